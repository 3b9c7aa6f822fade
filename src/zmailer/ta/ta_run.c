#include "ta_run.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

int ta_run(struct ta_agent *agent, ta_run_work *work, void *arg)
{
    struct ta_order order;
    struct ta_job job;

    ta_agent_hungry(agent);
    while (ta_agent_wait(agent, &order)) {
        if (order.type == TA_ORDER_JOB && ta_job_open(&job, agent, &order)) {
            work(&job, arg);
            ta_job_close(&job);
        }
        ta_agent_hungry(agent);
    }
    return agent->exit_status;
}

struct wall ta_run_now(void)
{
    struct timespec now;

    CHECK(clock_gettime(CLOCK_REALTIME, &now) == 0);
    return (struct wall){now.tv_sec * US_PER_S + now.tv_nsec / 1000};
}

void ta_run_host(char ret_name[TA_RUN_HOST_SIZE])
{
    memset(ret_name, 0, TA_RUN_HOST_SIZE);
    if (gethostname(ret_name, TA_RUN_HOST_SIZE - 1) != 0 || ret_name[0] == '\0' ||
        strpbrk(ret_name, "/ \n") != NULL) {
        (void)snprintf(ret_name, TA_RUN_HOST_SIZE, "localhost");
    }
}
