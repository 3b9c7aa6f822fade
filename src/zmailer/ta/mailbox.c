/* mailbox: delivers to the users, files and commands of this machine. */
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>
#include <unistd.h>

#include "mailbox_deliver.h"
#include "ta_run.h"
#include "ta_zenv.h"
#include "zmailer_dialect.h"

#define MAILBOX_DIRECTORY "/var/mail"
#define COMMAND_TIMEOUT_S 3600
#define LOCK_WAIT_S       15
#define SECONDS_MAX       1000000

static _Noreturn void usage(const char *why)
{
    fprintf(stderr,
            "# mailbox: %s\n"
            "# usage: mailbox [-c CHANNEL] [-h HOST] [-d DIRECTORY] [-D[D]] [-m MAILDIR]\n"
            "#   [-t COMMAND-SECONDS] [-w LOCK-SECONDS] [-V] [-8abCHrRSU] [-l FILE] [-F WORD]\n",
            why);
    exit(EX_USAGE);
}

static int seconds(const char *text)
{
    unsigned long long n;

    if (!slice_number(slice_string(text), SECONDS_MAX, &n)) {
        usage("a number of seconds is expected");
    }
    return (int)n;
}

static void work(struct ta_job *job, void *arg)
{
    for (size_t i = 0; i < job->rcpt_count && !job->stuck; i++) {
        mailbox_deliver(arg, job, i);
    }
}

static void take_options(int argc, char **argv, struct mailbox *m, struct slice *channel,
                         struct slice *host)
{
    int option;

    opterr = 0;
    while ((option = getopt(argc, argv, "8abc:Cd:DF:h:Hl:m:rRSt:UVw:")) != -1) {
        switch (option) {
        case 'c':
            *channel = slice_string(optarg);
            break;
        case 'h':
            *host = slice_string(optarg);
            break;
        case 'd':
            m->directory = optarg;
            break;
        case 'D':
            if (++m->levels > 2) {
                usage("at most two -D");
            }
            break;
        case 'm':
            m->maildir = optarg;
            break;
        case 't':
            m->command_timeout_s = seconds(optarg);
            break;
        case 'w':
            m->lock_wait_s = seconds(optarg);
            break;
        case 'V':
            printf("mailbox (Sluice) %s\n", SLUICE_VERSION);
            exit(EX_OK);
        case '?':
            usage("unknown option, one that is not supported (-M -P -X), or no value for it");
        default: /* option of ZMailer's mailbox without a meaning here */
            break;
        }
    }
    if (optind < argc) {
        usage("no words are expected after the options");
    }
}

int main(int argc, char **argv)
{
    struct mailbox mailbox = {.command_timeout_s = COMMAND_TIMEOUT_S, .lock_wait_s = LOCK_WAIT_S};
    struct slice channel = SLICE("local"), host = SLICE("");
    char hostname[TA_RUN_HOST_SIZE];
    struct ta_agent agent;
    struct conf *zenv;
    int status;

    take_options(argc, argv, &mailbox, &channel, &host);
    zenv = ta_zenv_load("mailbox");
    mailbox.conf = zenv;
    if (mailbox.directory == NULL) {
        mailbox.directory = conf_zenv(zenv, SLICE("MAILBOX"));
    }
    if (mailbox.directory == NULL) {
        mailbox.directory = MAILBOX_DIRECTORY;
    }
    ta_run_host(hostname);
    mailbox.host = hostname;
    ta_agent_init(&agent, "mailbox", channel, STDIN_FILENO, STDOUT_FILENO);
    agent.host = host;
    status = ta_run(&agent, work, &mailbox);
    ta_agent_fini(&agent);
    conf_free(zenv);
    return status;
}
