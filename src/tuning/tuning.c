/*
 * Translation of parameters into the scheduler's limits and policies.
 */
#include "tuning.h"

#include <stdio.h>

#include "class_name.h"
#include "sender_group.h"

struct sched_limits tuning_limits(const struct conf *conf)
{
    int64_t recipients = conf->qmgr_message_recipient_limit;

    if (recipients < conf->qmgr_message_active_limit) {
        recipients = conf->qmgr_message_active_limit;
    }
    return (struct sched_limits){
        .message_active_limit = (uint32_t)conf->qmgr_message_active_limit,
        .message_recipient_limit = (uint32_t)recipients,
        .message_recipient_minimum = (uint32_t)conf->qmgr_message_recipient_minimum,
        .destination_share = (uint32_t)conf->qmgr_destination_share,
        .failing_share = (uint32_t)conf->qmgr_failing_share,
        .unproven_share = (uint32_t)conf->qmgr_failing_share,
        .minimal_backoff_us = conf->minimal_backoff_time_us,
        .maximal_backoff_us = conf->maximal_backoff_time_us,
        .destination_memory_us = conf->destination_memory_time_us,
        .transport_retry_us = conf->transport_retry_time_us,
    };
}

_Static_assert(CLASS_NAME_MAX + sizeof "/999" <= SCHED_CLASS_NAME_MAX && SENDER_GROUPS <= 999,
               "the name of a group fits");

struct slice tuning_sched_class(const struct conf *conf, struct slice class_name,
                                struct slice sender, struct slice client,
                                char room[SCHED_CLASS_NAME_MAX])
{
    uint32_t group = class_name.len > 0 ? sender_group(class_fairness(conf, class_name),
                                                       conf->class_fairness_merge, sender, client)
                                        : 0;

    return group == 0 ? class_name : tuning_sched_class_of_group(class_name, group, room);
}

struct slice tuning_sched_class_of_group(struct slice class_name, uint32_t group,
                                         char room[SCHED_CLASS_NAME_MAX])
{
    return slice_of(room, (size_t)snprintf(room, SCHED_CLASS_NAME_MAX, "%.*s%c%u",
                                           SLICE_ARGS(class_name), SCHED_GROUP_MARK, group));
}

struct slice tuning_class_of(struct slice sched_class)
{
    return slice_of(sched_class.ptr, slice_find(sched_class, SCHED_GROUP_MARK));
}

bool tuning_sched_class_valid(struct slice sched_class)
{
    struct slice group = sched_class, name = slice_cut(&group, SCHED_GROUP_MARK);
    unsigned long long number;

    return class_name_valid(name) &&
           (group.ptr == NULL || slice_number(group, SENDER_GROUPS, &number));
}

static struct feedback feedback_from(struct conf_feedback f)
{
    static const enum feedback_form forms[] = {
        [CONF_FEEDBACK_CONSTANT] = FEEDBACK_CONSTANT,
        [CONF_FEEDBACK_PER_WINDOW] = FEEDBACK_PER_WINDOW,
        [CONF_FEEDBACK_PER_SQRT_WINDOW] = FEEDBACK_PER_SQRT_WINDOW,
    };

    return (struct feedback){.form = forms[f.form], .base = f.base};
}

/* Maximum of overfeed; no agent needs more entries ahead, and all of them would be in flight. */
#define OVERFEED_MAX 9999

static int64_t at_most(int64_t value, int64_t max)
{
    return value < max ? value : max;
}

/* Returns a limit of a clause as the scheduler's, where 0 is no limit; 0 and less are no limit in a
 * clause. */
static uint32_t agents_from(int64_t limit)
{
    return limit > 0 ? (uint32_t)at_most(limit, UINT32_MAX) : 0;
}

/* Fixes the window at its maximum. */
static void stop_feedback(struct window_limits *w)
{
    w->positive = w->negative = (struct feedback){.form = FEEDBACK_CONSTANT, .base = 0};
    w->failed_cohort_limit = 0;
    w->initial = w->max > 0 ? w->max : w->initial;
}

static struct window_limits window_limits_from(const struct conf *conf, const struct policy *p)
{
    struct window_limits w = {
        .rule = conf->concurrency_feedback_rule == CONF_FEEDBACK_RULE_POSTFIX ? WINDOW_POSTFIX
                                                                              : WINDOW_DOCUMENTED,
        .initial = (uint32_t)p->initial_destination_concurrency,
        .max = (uint32_t)p->destination_concurrency_limit,
        .positive = feedback_from(p->destination_concurrency_positive_feedback),
        .negative = feedback_from(p->destination_concurrency_negative_feedback),
        .failed_cohort_limit = (uint32_t)p->destination_concurrency_failed_cohort_limit,
    };

    if (p->maxthr > 0 && (w.max == 0 || p->maxthr < w.max)) {
        w.max = agents_from(p->maxthr);
    }
    if (!p->destination_concurrency_feedback) {
        stop_feedback(&w);
    }
    return w;
}

struct sched_transport_policy tuning_transport(const struct conf *conf, const struct policy *p)
{
    return (struct sched_transport_policy){
        .window = window_limits_from(conf, p),
        .process_limit = (uint32_t)p->process_limit,
        .dest_recipient_limit =
            p->agent == CONF_AGENT_TA ? 0 : (uint32_t)p->destination_recipient_limit,
        .recipient_limit = (uint32_t)p->recipient_limit,
        .extra_recipient_limit = (uint32_t)p->extra_recipient_limit,
        .refill_limit = (uint32_t)p->recipient_refill_limit,
        .refill_delay_us = p->recipient_refill_delay_us,
        .slot_cost = (int)p->delivery_slot_cost,
        .slot_loan = (int)p->delivery_slot_loan,
        .slot_discount = (int)p->delivery_slot_discount,
        .minimum_slots = (int)p->minimum_delivery_slots,
        .dest_rate_delay_us = p->destination_rate_delay_us,
        .transport_rate_delay_us = p->transport_rate_delay_us,
    };
}

static struct sched_ring_policy ring_from(const struct policy *p)
{
    return (struct sched_ring_policy){
        .ring_limit = agents_from(p->maxring),
        .transport_limit = agents_from(p->maxchannel),
        .total_limit = agents_from(p->maxta),
    };
}

struct tuning_dest tuning_dest(const struct conf *conf, const struct policy *p)
{
    struct tuning_dest d = {
        .own = p->ring != 0 || p->agent == CONF_AGENT_TA,
        .policy = {.window = window_limits_from(conf, p),
                   .rate_delay_us = p->destination_rate_delay_us,
                   .depth = 1},
        .ring = ring_from(p),
    };

    if (p->agent == CONF_AGENT_TA) {
        d.policy.depth += (uint32_t)at_most(p->overfeed, OVERFEED_MAX);
    }
    if (d.ring.ring_limit > 0 || d.ring.transport_limit > 0 || d.ring.total_limit > 0) {
        d.policy.ring = p->ring;
    }
    return d;
}

void tuning_tell(struct sched *s, struct mono now, uint32_t transport, struct slice dest,
                 const struct tuning_dest *tuning)
{
    if (tuning->policy.ring > 0) {
        sched_ring(s, now, transport, tuning->policy.ring, &tuning->ring);
    }
    sched_dest_policy(s, now, transport, dest, &tuning->policy);
}
