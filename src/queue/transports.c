#include "transports.h"

#include <string.h>

#include "clock.h"
#include "mem.h"
#include "policy.h"
#include "queue.h"
#include "tuning.h"

static int64_t part_of(int64_t limit, unsigned nodes)
{
    return limit <= 0 ? limit : limit > nodes ? limit / nodes : 1;
}

void transports_divide(unsigned nodes, struct policy *policy)
{
    if (nodes <= 1) {
        return;
    }
    policy->process_limit = part_of(policy->process_limit, nodes);
    policy->maxchannel = part_of(policy->maxchannel, nodes);
    policy->maxta = part_of(policy->maxta, nodes);
    if (__builtin_mul_overflow(policy->transport_rate_delay_us, (int64_t)nodes,
                               &policy->transport_rate_delay_us)) {
        policy->transport_rate_delay_us = US_FOREVER;
    }
}

static uint32_t set(struct transports *t, const struct conf *conf, struct sched *sched,
                    const char *name, struct policy *p)
{
    struct sched_transport_policy policy;
    uint32_t index;

    transports_divide(t->nodes, p);
    policy = tuning_transport(conf, p);
    index = sched_transport(sched, clock_mono(), name, &policy);

    if (index >= t->count) {
        t->names = mem_resize(t->names, index + 1, sizeof *t->names);
        t->agents = mem_resize(t->agents, index + 1, sizeof *t->agents);
        for (uint32_t i = t->count; i <= index; i++) {
            t->names[i] = NULL;
        }
        t->count = index + 1;
    }
    if (t->names[index] == NULL) {
        t->names[index] = mem_string(name);
    }
    t->agents[index] = (enum conf_agent)p->agent;
    return index;
}

void transports_load(struct queue *q)
{
    struct transports *t = &q->transports;
    const struct conf *conf = q->conf;
    struct sched *sched = q->sched;
    size_t count = conf_transport_count(conf);
    struct policy policy;

    for (size_t i = 0; i < count; i++) {
        const struct conf_transport *declared = conf_transport_at(conf, i);

        policy = declared->policy;
        (void)interventions_limit(q, declared->name, slice_of("", 0), &policy);
        (void)set(t, conf, sched, declared->name, &policy);
    }
    for (uint32_t i = 0; conf_spool_routes(conf) && i < t->count; i++) {
        struct slice name = slice_string(t->names[i]);

        if (conf_transport_find(conf, name) == NULL) {
            policy_for(conf, name, slice_of("", 0), &policy);
            (void)interventions_limit(q, t->names[i], slice_of("", 0), &policy);
            (void)set(t, conf, sched, t->names[i], &policy);
        }
    }
}

void transports_fini(struct transports *t)
{
    for (uint32_t i = 0; i < t->count; i++) {
        mem_free(t->names[i]);
    }
    mem_free(t->names);
    mem_free(t->agents);
}

bool transport_find(const struct transports *t, struct slice name, uint32_t *ret_index)
{
    for (uint32_t i = 0; i < t->count; i++) {
        if (t->names[i] != NULL && slice_equal(slice_string(t->names[i]), name)) {
            *ret_index = i;
            return true;
        }
    }
    return false;
}

uint32_t transport_index(const struct transports *t, const char *name)
{
    uint32_t error = 0;

    for (uint32_t i = 0; i < t->count; i++) {
        if (t->names[i] != NULL && strcmp(t->names[i], name) == 0) {
            return i;
        }
        if (t->names[i] != NULL && strcmp(t->names[i], "error") == 0) {
            error = i; /* every configuration has it */
        }
    }
    return error;
}

bool transport_need(struct transports *t, const struct conf *conf, struct sched *sched,
                    const char *name, uint32_t *ret_index)
{
    struct policy policy;

    if (transport_find(t, slice_string(name), ret_index)) {
        return true;
    }
    if (t->count >= SCHED_TRANSPORTS_MAX) {
        return false;
    }
    policy_for(conf, slice_string(name), slice_of("", 0), &policy);
    *ret_index = set(t, conf, sched, name, &policy);
    return true;
}
