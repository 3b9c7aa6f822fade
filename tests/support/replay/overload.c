#include "overload.h"

#include <math.h>

#include "check.h"
#include "mem.h"

#define MESSAGE ((struct sched_msg){1})

/* How long an idle connection is kept, and how long after its beginning one is used again:
 * Postfix's smtp_connection_cache_time_limit and smtp_connection_reuse_time_limit. */
#define KEEP_US (2 * US_PER_S)
#define REUSE_S 300 /* Postfix's clock has whole seconds */

/* From the decision to the client's first packet: a process is told, opens the message, asks the
 * cache, makes a socket. Processes are made as they are needed, one after the other, and stay. */
#define START_US   (4 * US_PER_MS)
#define PROCESS_US (20 * US_PER_MS)

static const char dest_name[] = "server";

struct run;

/* A connection that is kept. */
struct kept {
    struct run *run;
    struct sim_link *link;
    struct sim_event expiry;
    LIST_ENTRY(kept) all;
};

/* An entry under way. */
struct delivery {
    struct run *run;
    struct sim_call call;
    struct sim_event start;
    struct sched_entry entry;
    bool load, store; /* the scheduler's hints */
    LIST_ENTRY(delivery) all;
};

struct run {
    const struct overload *overload;
    struct sim_events events;
    struct sim_server server;
    struct rng rng;
    struct sched *s;
    uint32_t read;            /* recipients */
    uint32_t busy, processes; /* of the client */
    struct mono made;         /* when the last of them is */
    LIST_HEAD(, kept) kept;   /* the latest first */
    LIST_HEAD(, delivery) deliveries;
    struct overload_result result;
    uint64_t feedbacks;
    double sum, sum_of_squares; /* of windows */
};

/* ---- connections that are kept -------------------------------------------------------------- */

static void kept_free(struct kept *k)
{
    sim_event_cancel(&k->run->events, &k->expiry);
    LIST_REMOVE(k, all);
    mem_free(k);
}

static void kept_expires(struct sim_event *e)
{
    struct kept *k = CONTAINER_OF(e, struct kept, expiry);

    sim_link_hang_up(k->link);
    kept_free(k);
}

static void keep(struct run *r, struct sim_link *link)
{
    struct kept *k = mem_new(sizeof *k);

    k->run = r;
    k->link = link;
    sim_event_init(&k->expiry, kept_expires);
    sim_event_set(&r->events, &k->expiry, KEEP_US);
    LIST_INSERT_HEAD(&r->kept, k, all);
}

static struct sim_link *take_kept(struct run *r)
{
    struct kept *k = LIST_FIRST(&r->kept);
    struct sim_link *link = k == NULL ? NULL : k->link;

    if (k != NULL) {
        kept_free(k);
    }
    return link;
}

/* ---- deliveries ----------------------------------------------------------------------------- */

static void decide(struct run *r);

/* What the feedback made of the window. A destination that just drained is not there any more. */
static void note_window(struct run *r)
{
    struct sched_dest_info info;
    double window;

    if (sched_dest_get(r->s, 0, slice_string(dest_name), &info)) {
        window = info.state == SCHED_DEST_DEAD_UNTIL ? 0 : info.window;
        r->feedbacks++;
        r->sum += window;
        r->sum_of_squares += window * window;
    }
}

/* What becomes of the connection. */
static void leave(const struct delivery *d, struct sim_link *link)
{
    struct run *r = d->run;
    int64_t age_s = us_seconds(r->events.now.us) - us_seconds(sim_link_began(link).us);

    if (r->overload->cached && d->store && age_s <= REUSE_S) {
        keep(r, link);
    } else {
        sim_link_hang_up(link);
    }
}

static void delivery_done(struct sim_call *call, enum sim_server_end end, struct sim_link *link)
{
    struct delivery *d = CONTAINER_OF(call, struct delivery, call);
    struct run *r = d->run;
    bool ok = end == SIM_SERVER_DELIVERED;

    if (ok) {
        r->result.sent += call->rcpt_count;
        leave(d, link);
    } else {
        r->result.deferred += call->rcpt_count;
        r->result.failed[end] += call->rcpt_count;
    }
    CHECK(sched_finished(r->s, r->events.now, d->entry, ok ? SCHED_OK : SCHED_DEST_FAIL,
                         SLICE("overloaded")));
    LIST_REMOVE(d, all);
    mem_free(d);
    r->busy--;
    note_window(r);
    decide(r);
}

static void delivery_starts(struct sim_event *e)
{
    struct delivery *d = CONTAINER_OF(e, struct delivery, start);
    struct run *r = d->run;
    struct sim_link *link = r->overload->cached && d->load ? take_kept(r) : NULL;

    if (link != NULL) {
        sim_link_call(link, &d->call);
    } else {
        sim_server_call(&r->server, &d->call);
    }
}

/* How long until the client's process for one more delivery begins with it. */
static int64_t process_delay_us(struct run *r)
{
    int64_t delay_us = START_US / 2 + (int64_t)rng_below(&r->rng, START_US + 1);

    if (++r->busy <= r->processes) {
        return delay_us;
    }
    r->processes = r->busy;
    r->made =
        mono_after(mono_reached(r->made, r->events.now) ? r->events.now : r->made, PROCESS_US);
    return r->made.us - r->events.now.us + delay_us;
}

static void deliver(struct run *r, const struct sched_action *a)
{
    struct delivery *d = mem_new(sizeof *d);

    d->run = r;
    d->entry = a->entry;
    d->load = a->cache_load;
    d->store = a->cache_store;
    d->call.rcpt_count = (uint32_t)a->rcpt_count;
    d->call.connect_timeout_us = r->overload->connect_timeout_us;
    d->call.greeting_timeout_us = r->overload->greeting_timeout_us;
    d->call.done = delivery_done;
    sim_event_init(&d->start, delivery_starts);
    sim_event_set(&r->events, &d->start, process_delay_us(r));
    LIST_INSERT_HEAD(&r->deliveries, d, all);
}

/* ---- the scheduler -------------------------------------------------------------------------- */

static void answer(struct run *r, const struct sched_action *a)
{
    struct sched_rcpt *rcpts = mem_array(a->max, sizeof *rcpts);
    uint32_t count = r->overload->recipients - r->read;

    if (count > a->max) {
        count = a->max;
    }
    for (uint32_t i = 0; i < count; i++) {
        rcpts[i] = (struct sched_rcpt){.n = r->read++, .dest = slice_string(dest_name)};
    }
    sched_recipients(r->s, r->events.now, MESSAGE, rcpts, count, 0,
                     r->read == r->overload->recipients);
    mem_free(rcpts);
}

static void decide(struct run *r)
{
    struct sched_action a;
    enum sched_action_type type;

    while ((type = sched_next(r->s, r->events.now, &a)) != SCHED_NONE) {
        switch (type) {
        case SCHED_READ:
            answer(r, &a);
            break;
        case SCHED_DELIVER:
            deliver(r, &a);
            break;
        case SCHED_DEFER:
            r->result.deferred += (uint32_t)a.rcpt_count;
            break;
        case SCHED_DONE:
        case SCHED_DEST_DEAD:
        case SCHED_DEST_PROBED:
        case SCHED_DEST_REVIVED:
            break;
        case SCHED_PARK:
        case SCHED_ADMIT:
        case SCHED_NONE:
            UNREACHABLE("one message is within its share");
        }
    }
}

/* Until the message is done. The scheduler's own timers are the caller's to keep. */
static void run_all(struct run *r)
{
    sim_events_run(&r->events, (struct mono){(int64_t)rng_below(&r->rng, US_PER_S)});
    sched_open(r->s, r->events.now, MESSAGE, r->overload->recipients, false);
    decide(r);
    while (sched_has_message(r->s, MESSAGE)) {
        struct mono wake = sched_wake_at(r->s);
        struct mono next = mono_min(wake, sim_events_next(&r->events));

        CHECK(next.us != US_FOREVER);
        sim_events_run(&r->events, next);
        if (mono_reached(wake, r->events.now)) {
            decide(r);
        }
        sim_server_audit(&r->server);
    }
}

static void finish(struct run *r)
{
    double n = (double)r->feedbacks, mean = n > 0 ? r->sum / n : 0;
    double variance = n > 0 ? r->sum_of_squares / n - mean * mean : 0;
    struct kept *k;

    r->result.window_mean = mean;
    r->result.window_deviation = sqrt(variance > 0 ? variance : 0);
    CHECK(LIST_EMPTY(&r->deliveries));
    while ((k = LIST_FIRST(&r->kept)) != NULL) {
        kept_free(k);
    }
    sim_server_fini(&r->server);
    sim_events_fini(&r->events);
    sched_free(r->s);
}

struct overload_result overload_run(const struct overload *overload, uint64_t seed)
{
    struct run r = {.overload = overload};

    sim_events_init(&r.events);
    rng_init(&r.rng, seed);
    sim_server_init(&r.server, &overload->server, &r.events, rng_next(&r.rng));
    LIST_INIT(&r.kept);
    LIST_INIT(&r.deliveries);
    r.s = sched_new(&overload->limits);
    CHECK(sched_transport(r.s, r.events.now, "smtp", &overload->policy) == 0);
    run_all(&r);
    finish(&r);
    CHECK(r.result.sent + r.result.deferred == overload->recipients);
    return r.result;
}
