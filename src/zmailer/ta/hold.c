/* hold: waits for conditions, then returns mail to the router. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#include "check.h"
#include "hold_condition.h"
#include "mem.h"
#include "ta_local.h"
#include "ta_run.h"
#include "ta_submit.h"
#include "ta_zenv.h"

#define SCRIPT_TIMEOUT_S 300
#define DNS_PORT         53
#define WHY_MAX          2048

struct holder {
    struct hold_world world;
    char host[TA_RUN_HOST_SIZE];
};

static _Noreturn void usage(const char *why)
{
    fprintf(stderr, "# hold: %s\n# usage: hold [-c CHANNEL] [-N ADDRESS[:PORT]] [-V]\n", why);
    exit(EX_USAGE);
}

static void take_name_server(const char *text, struct sockaddr_storage *ret_address)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    struct slice port = slice_string(text), host = slice_cut(&port, ':');
    unsigned long long number = DNS_PORT;
    char *copy = mem_copy(host.ptr, host.len);

    if (inet_pton(AF_INET, copy, &address.sin_addr) != 1 ||
        (port.ptr != NULL && !slice_number(port, 65535, &number))) {
        usage("-N: an IPv4 address, perhaps with a port, is expected");
    }
    mem_free(copy);
    address.sin_port = htons((uint16_t)number);
    memcpy(ret_address, &address, sizeof address);
}

/* worded as by ZMailer's own agent */
static const struct ta_job_result no_answer = {
    .outcome = TA_JOB_DEFERRED,
    .status = {"4.4.3 (Temporary routing lookup failure)", 40},
    .diagnostic = {"x-local; 466 (Temporary routing lookup failure)", 47},
    .remote = {"", 0},
    .text = {"try again", 9},
};

/* Submits a run of recipients to the router as one mail. The router makes a new decision, so no
 * success report is sent here. */
static void give_back(struct holder *h, struct ta_job *job, size_t first, size_t end)
{
    static struct ta_content content;
    struct ta_submit_rcpt *rcpts = mem_array(end - first, sizeof rcpts[0]);
    struct ta_submission s = {.zenv = h->world.zenv,
                              .envelope = {.program = "hold",
                                           .host = h->host,
                                           .via = "suspension",
                                           .sender = ta_job_sender(job, first),
                                           .envid = job->control.envid,
                                           .ret = job->control.ret},
                              .rcpts = rcpts,
                              .rcpt_count = end - first,
                              .read = ta_content_read,
                              .arg = &content};
    char spoolid[CONTROL_SPOOLID_MAX];
    struct buf why;
    int rc;

    for (size_t i = first; i < end; i++) {
        const struct control_rcpt *r = job->rcpts[i].rcpt;

        rcpts[i - first] = (struct ta_submit_rcpt){r->address.user, r->dsn};
    }
    buf_init(&why, WHY_MAX);
    ta_content_init(&content, job, first);
    rc = ta_submit(&s, spoolid, &why);
    for (size_t i = first; i < end; i++) {
        if (rc != 0) {
            ta_local_settle(job, i, (struct status){STATUS_TRANSIENT, 3, 0}, buf_slice(&why));
        } else {
            ta_job_settle(job, i,
                          &(struct ta_job_result){.outcome = TA_JOB_PASSED,
                                                  .status = SLICE("2.0.0"),
                                                  .diagnostic = SLICE("x-local; 250 (released)"),
                                                  .remote = SLICE(""),
                                                  .text = slice_string(spoolid)});
        }
    }
    buf_fini(&why);
    mem_free(rcpts);
}

static void settle(struct ta_job *job, size_t i, enum hold_outcome outcome)
{
    static const struct status not_yet = {STATUS_TRANSIENT, 3, 0};
    static const struct status unknown = {STATUS_TRANSIENT, 3, 5};

    switch (outcome) {
    case HOLD_OVER:
        UNREACHABLE("it goes to the router");
    case HOLD_NO_ANSWER:
        ta_job_settle(job, i, &no_answer);
        return;
    case HOLD_NOT_YET:
        ta_local_settle(job, i, not_yet, SLICE("the condition does not hold yet"));
        return;
    case HOLD_UNKNOWN:
        ta_local_settle(job, i, unknown, SLICE("no condition that is known"));
        return;
    }
}

static void work(struct ta_job *job, void *arg)
{
    struct holder *h = arg;
    struct slice looked_at = {"", 0};
    enum hold_outcome outcome = HOLD_UNKNOWN;

    for (size_t first = 0, end; first < job->rcpt_count && !job->stuck; first = end) {
        struct slice condition = job->rcpts[first].rcpt->address.host;

        end = ta_job_run(job, first);
        if (!slice_equal(condition, looked_at)) {
            looked_at = condition;
            outcome = hold_condition(&h->world, condition, job->arrived, ta_run_now());
        }
        if (outcome == HOLD_OVER) {
            give_back(h, job, first, end);
        } else {
            for (size_t i = first; i < end; i++) {
                settle(job, i, outcome);
            }
        }
    }
}

int main(int argc, char **argv)
{
    struct holder holder = {.world.script_timeout_s = SCRIPT_TIMEOUT_S};
    struct slice channel = SLICE("hold");
    struct ta_agent agent;
    struct conf *zenv;
    int option, status;

    opterr = 0;
    while ((option = getopt(argc, argv, "c:N:V")) != -1) {
        switch (option) {
        case 'c':
            channel = slice_string(optarg);
            break;
        case 'N':
            take_name_server(optarg, &holder.world.name_server);
            break;
        case 'V':
            printf("hold (Sluice) %s\n", SLUICE_VERSION);
            return EX_OK;
        default:
            usage("unknown option, or no value for it");
        }
    }
    if (optind < argc) {
        usage("no words are expected after the options");
    }
    zenv = ta_zenv_load("hold");
    holder.world.zenv = zenv;
    ta_run_host(holder.host);
    ta_agent_init(&agent, "hold", channel, STDIN_FILENO, STDOUT_FILENO);
    status = ta_run(&agent, work, &holder);
    ta_agent_fini(&agent);
    conf_free(zenv);
    return status;
}
