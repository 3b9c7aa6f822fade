/*
 * Parameters to the scheduler's limits and policies.
 */
#include "tuning.h"

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
        .minimal_backoff_us = conf->minimal_backoff_time_us,
        .maximal_backoff_us = conf->maximal_backoff_time_us,
        .destination_memory_us = conf->destination_memory_time_us,
        .transport_retry_us = conf->transport_retry_time_us,
    };
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

static struct window_limits window_limits_from(const struct conf *conf, const struct policy *p)
{
    return (struct window_limits){
        .rule = conf->concurrency_feedback_rule == CONF_FEEDBACK_RULE_POSTFIX ? WINDOW_POSTFIX
                                                                              : WINDOW_DOCUMENTED,
        .initial = (uint32_t)p->initial_destination_concurrency,
        .max = (uint32_t)p->destination_concurrency_limit,
        .positive = feedback_from(p->destination_concurrency_positive_feedback),
        .negative = feedback_from(p->destination_concurrency_negative_feedback),
        .failed_cohort_limit = (uint32_t)p->destination_concurrency_failed_cohort_limit,
    };
}

static uint32_t process_limit(const struct policy *p)
{
    int64_t limit = p->process_limit;

    if (p->maxchannel > 0 && (limit == 0 || p->maxchannel < limit)) {
        limit = p->maxchannel;
    }
    return (uint32_t)limit;
}

struct sched_transport_policy tuning_transport(const struct conf *conf, const struct policy *p)
{
    return (struct sched_transport_policy){
        .window = window_limits_from(conf, p),
        .process_limit = process_limit(p),
        .dest_recipient_limit = (uint32_t)p->destination_recipient_limit,
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

struct tuning_dest tuning_dest(const struct conf *conf, const struct policy *p)
{
    struct tuning_dest d = {
        .own = p->ring != 0,
        .window = window_limits_from(conf, p),
        .rate_delay_us = p->destination_rate_delay_us,
    };

    if (p->maxthr > 0 && (d.window.max == 0 || p->maxthr < d.window.max)) {
        d.window.max = (uint32_t)p->maxthr;
        d.own = true;
    }
    return d;
}
