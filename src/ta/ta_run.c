#include "ta_run.h"

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
