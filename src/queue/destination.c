#include "destination.h"

#include <inttypes.h>
#include <stddef.h>
#include <string.h>

#include "check.h"
#include "clock.h"
#include "log.h"
#include "mem.h"
#include "policy.h"
#include "queue.h"

/* ---- the table ------------------------------------------------------------------------------ */

/* A key has no padding: both structures have the name directly after the transport. */
struct destination_key {
    uint32_t transport;
    char name[ROUTE_DESTINATION_MAX];
};
_Static_assert(offsetof(struct destination_key, name) == sizeof(uint32_t), "no padding");
_Static_assert(offsetof(struct destination, name) ==
                   offsetof(struct destination, transport) + sizeof(uint32_t),
               "a destination ends like a key");

static size_t key_len(size_t name_len)
{
    return offsetof(struct destination_key, name) + name_len;
}

static void destination_free(struct destinations *all, struct destination *d)
{
    CHECK(d->retry == NULL && d->history == NULL);
    HASH_DEL(all->table, d);
    mem_free(d->nexthop);
    retry_rules_fini(&d->rules);
    mem_free(d);
}

void destinations_init(struct destinations *all)
{
    *all = (struct destinations){.trim_at = QUEUE_DESTINATIONS_MAX};
    dest_retries_init(&all->retries);
    dest_histories_init(&all->histories);
}

void destinations_fini(struct destinations *all)
{
    struct destination *d, *next;

    dest_retries_fini(&all->retries);
    dest_histories_fini(&all->histories);
    HASH_ITER(hh, all->table, d, next)
    {
        destination_free(all, d);
    }
}

void destinations_move(struct destinations *all, int64_t by_us)
{
    struct destination *d, *next;

    HASH_ITER(hh, all->table, d, next)
    {
        if (d->retry != NULL) {
            dest_retry_move(&all->retries, d->retry, by_us);
        }
    }
}

struct destination *destination_find(const struct destinations *all, uint32_t transport,
                                     struct slice name)
{
    struct destination_key key;
    struct destination *d;

    if (name.len > sizeof key.name) {
        return NULL;
    }
    key.transport = transport;
    if (name.len > 0) {
        memcpy(key.name, name.ptr, name.len);
    }
    HASH_FIND(hh, all->table, &key, key_len(name.len), d);
    return d;
}

void destinations_trim(struct queue *q)
{
    struct destinations *all = &q->destinations;
    struct sched_dest_info info;
    struct destination *d, *next;

    if (HASH_COUNT(all->table) < all->trim_at) {
        return;
    }
    HASH_ITER(hh, all->table, d, next)
    {
        if (d->retry == NULL && d->history == NULL &&
            (!sched_dest_get(q->sched, d->transport, slice_string(d->name), &info) ||
             info.state == SCHED_DEST_IDLE)) {
            destination_free(all, d);
        }
    }
    all->trim_at = QUEUE_DESTINATIONS_MAX + 2 * (size_t)HASH_COUNT(all->table);
}

/* ---- policies ------------------------------------------------------------------------------- */

static void set_policy(struct queue *q, struct destination *d)
{
    const char *transport = transport_name(&q->transports, d->transport);
    struct policy policy;
    bool limited;

    d->limits = q->interventions.limits;
    if (conf_transport_find(q->conf, slice_string(transport)) == NULL &&
        !conf_spool_routes(q->conf)) {
        return; /* no longer configured: waiting mail keeps the old policy */
    }
    policy_for(q->conf, slice_string(transport), slice_string(d->nexthop), &policy);
    limited = interventions_limit(q, transport, slice_string(d->nexthop), &policy);
    transports_divide(q->transports.nodes, &policy);
    d->agent = (enum conf_agent)policy.agent;
    d->has_clause = policy.ring != 0;
    d->has_command = policy_starts_agents(&policy);
    d->tuning = tuning_dest(q->conf, &policy);
    d->tuning.own = d->tuning.own || limited;
    retry_rules_fini(&d->rules);
    retry_rules_init(&d->rules, &policy);
    d->expiry = (struct expiry_rules){policy.expiry_us, policy.expiry2_us};
}

static void tell_scheduler(struct queue *q, struct destination *d)
{
    d->told = true;
    tuning_tell(q->sched, clock_mono(), d->transport, slice_string(d->name), &d->tuning);
}

struct destination *destination_need(struct queue *q, uint32_t transport, const char *name,
                                     const char *nexthop)
{
    struct destination *d = destination_find(&q->destinations, transport, slice_string(name));
    size_t len = strlen(name);

    if (d != NULL) {
        return d;
    }
    d = mem_new(sizeof *d + len + 1);
    d->transport = transport;
    memcpy(d->name, name, len + 1);
    d->nexthop = mem_string(nexthop);
    set_policy(q, d);
    HASH_ADD_KEYPTR(hh, q->destinations.table, &d->transport, key_len(len), d);
    return d;
}

void destinations_reload(struct queue *q)
{
    struct destination *d, *next;

    HASH_ITER(hh, q->destinations.table, d, next)
    {
        set_policy(q, d);
        if (d->told || d->tuning.own) {
            tell_scheduler(q, d);
        }
    }
}

void destination_retune(struct queue *q, struct destination *d)
{
    if (d->limits != q->interventions.limits) {
        set_policy(q, d);
        if (d->told || d->tuning.own) {
            tell_scheduler(q, d);
        }
    }
}

/* ---- mail for it ---------------------------------------------------------------------------- */

void destination_opened(struct queue *q, struct destination *d)
{
    if (d->limits != q->interventions.limits) {
        destination_retune(q, d);
    } else if (d->tuning.own) {
        tell_scheduler(q, d);
    }
}

/* Compares a number of entries with a limit of messages, as Postfix does. */
void destination_warn_of_clog(struct queue *q, struct destination *d)
{
    const struct conf *conf = q->conf;
    const char *transport = transport_name(&q->transports, d->transport);
    int64_t limit = conf->qmgr_message_active_limit, held;
    struct sched_dest_info info;

    if (!conf->helpful_warnings || conf->qmgr_clog_warn_time_us == 0 ||
        !mono_reached(d->next_clog_warning, clock_mono()) ||
        !sched_dest_get(q->sched, d->transport, slice_string(d->name), &info)) {
        return;
    }
    held = (int64_t)info.waiting + info.busy;
    if (held <= limit / 5) {
        return;
    }
    d->next_clog_warning = mono_after(clock_mono(), conf->qmgr_clog_warn_time_us);
    log_warning("mail for %s is using up %" PRId64 " of %" PRId64 " active queue entries",
                d->nexthop, held, limit);
    if (held < limit - limit / 10) {
        log_warning("this may slow down other mail deliveries");
    }
    if (info.window_max > 0 && info.window >= info.window_max) {
        log_warning("you may need to increase %s_destination_concurrency_limit from %" PRIu32,
                    transport, info.window_max);
    } else if (sched_totals(q->sched).destinations > 1) {
        log_warning("you may need a separate transport for %s", d->nexthop);
    } else {
        log_warning("you may need to reduce the timeouts of %s, or to increase the back-off times",
                    transport);
    }
}
