/* errormail: sends reports for addresses that the router could not resolve. */
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>
#include <unistd.h>

#include "errormail_report.h"
#include "report.h"
#include "ta_run.h"
#include "ta_zenv.h"

static _Noreturn void usage(const char *why)
{
    fprintf(stderr, "# errormail: %s\n# usage: errormail [-c CHANNEL] [-V]\n", why);
    exit(EX_USAGE);
}

static void work(struct ta_job *job, void *arg)
{
    for (size_t first = 0, end; first < job->rcpt_count && !job->stuck; first = end) {
        end = ta_job_run(job, first);
        if (end - first > REPORT_RCPTS_MAX) {
            end = first + REPORT_RCPTS_MAX;
        }
        errormail_report(arg, job, first, end);
    }
}

int main(int argc, char **argv)
{
    char host[TA_RUN_HOST_SIZE];
    struct errormail errormail = {.host = host};
    struct slice channel = SLICE("error");
    struct ta_agent agent;
    struct conf *zenv;
    int option, status;

    opterr = 0;
    while ((option = getopt(argc, argv, "c:V")) != -1) {
        switch (option) {
        case 'c':
            channel = slice_string(optarg);
            break;
        case 'V':
            printf("errormail (Sluice) %s\n", SLUICE_VERSION);
            return EX_OK;
        default:
            usage("unknown option, or no value for it");
        }
    }
    if (optind < argc) {
        usage("no words are expected after the options");
    }
    zenv = ta_zenv_load("errormail");
    errormail.zenv = zenv;
    ta_run_host(host);
    ta_agent_init(&agent, "errormail", channel, STDIN_FILENO, STDOUT_FILENO);
    status = ta_run(&agent, work, &errormail);
    ta_agent_fini(&agent);
    conf_free(zenv);
    return status;
}
