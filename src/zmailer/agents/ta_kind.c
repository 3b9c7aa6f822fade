#include "ta_kind.h"

#include "check.h"
#include "mem.h"

static void *begin(struct queue *q)
{
    (void)q;
    return mem_new(sizeof(struct agent_table));
}

static bool told(void *state, struct slice body)
{
    struct agent_report report;

    if (!agent_report_read(body, &report)) {
        return false;
    }
    agent_table_take(state, &report);
    return true;
}

static void lost(void *state)
{
    agent_table_clear(state);
}

static void status(const void *state, json_t *answer)
{
    const struct agent_table *t = state;
    json_t *members =
        json_pack("{s:I, s:I, s:I}", "agents", (json_int_t)agent_table_count(t), "agents_idle",
                  (json_int_t)t->idle, "agent_starts", (json_int_t)t->starts);

    CHECK(json_object_update_new(answer, members) == 0);
}

static void end(void *state)
{
    agent_table_clear(state);
    mem_free(state);
}

const struct agent_kind ta_kind = {
    .role = ROLE_AGENTS,
    .is_final = true,
    .by_path = true,
    .is_patient = true,
    .begin = begin,
    .told = told,
    .lost = lost,
    .status = status,
    .end = end,
};

const struct agent_table *ta_kind_table(const struct queue *q)
{
    const struct agent_table *t = q->agents.states[CONF_AGENT_TA];

    CHECK(t != NULL);
    return t;
}
