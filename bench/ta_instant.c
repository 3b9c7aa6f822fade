/* A transport agent that delivers to nowhere, at once, for measuring schedulers: it locks, answers
 * and marks as an agent of ZMailer's does, and that is all.
 *
 *     ta_instant [-c CHANNEL] [-d]      -d: everything is deferred
 */
#include <stdio.h>
#include <sysexits.h>
#include <unistd.h>

#include "ta_run.h"

static void deliver(struct ta_job *job, void *arg)
{
    ta_job_settle_rest(job, arg);
}

int main(int argc, char **argv)
{
    struct ta_job_result result = {
        .outcome = TA_JOB_DELIVERED,
        .status = SLICE("2.0.0"),
        .diagnostic = SLICE("x-local; 250 (nowhere)"),
        .remote = SLICE(""),
        .text = SLICE("Ok"),
    };
    struct slice channel = SLICE("smtp");
    struct ta_agent agent;
    int option, status;

    while ((option = getopt(argc, argv, "c:d")) != -1) {
        switch (option) {
        case 'c':
            channel = slice_string(optarg);
            break;
        case 'd':
            result.outcome = TA_JOB_DEFERRED;
            result.status = SLICE("4.0.0");
            result.diagnostic = SLICE("x-local; 450 (nowhere)");
            result.text = SLICE("not now");
            break;
        default:
            fprintf(stderr, "usage: ta_instant [-c CHANNEL] [-d]\n");
            return EX_USAGE;
        }
    }
    ta_agent_init(&agent, "ta_instant", channel, STDIN_FILENO, STDOUT_FILENO);
    status = ta_run(&agent, deliver, &result);
    ta_agent_fini(&agent);
    return status;
}
