#include "sim_world.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "check.h"
#include "class_name.h"
#include "hash.h"
#include "mem.h"
#include "owner.h"
#include "rng.h"
#include "sim_events.h"
#include "sim_parking.h"
#include "sim_places.h"

/* Number of mailboxes of a domain whose transport delivers to mailboxes one by one. */
#define MAILBOXES        1000
#define MAILBOX_NAME_MAX (16 + SCHED_DEST_NAME_MAX)
/* Initial step of the series. */
#define SERIES_STEP_US (100 * US_PER_MS)

/* ---- structures ----------------------------------------------------------------------------- */

#define RCPT_DONE   UINT32_MAX /* place of a recipient with a final result */
#define NEVER_ASKED UINT32_MAX

struct rcpt {
    uint32_t place;    /* number, or RCPT_DONE */
    uint32_t asked_ms; /* time from arrival to the first attempt at a site; NEVER_ASKED */
};

struct sim_message {
    STAILQ_ENTRY(sim_message) link; /* link in sim_world.incoming */
    struct heap_node due_node;      /* node in sim_world.deferred, also of parked ones */
    struct sim_parked parked;
    int64_t due_us, arrived_us, size_bytes;
    uint64_t number; /* from 1, by arrival */
    uint32_t slot, class, rcpt_count;
    bool deferred;                        /* whether the message was ever deferred, so that it is
                                           * not new mail */
    struct slice sched_class;             /* the scheduler's name of its class; owned by the
                                           * world */
    uint32_t left;                        /* recipients without a final result */
    uint32_t read;                        /* recipients read in this pass */
    const struct trace_outcome *outcomes; /* outcomes of its recipients; NULL: the sites decide */
    /* The dead destination that the recipients deferred in this pass wait for; `several` if some of
     * them wait for something else. */
    struct owner_target dead;
    struct rcpt rcpts[];
};

/* A delivery in flight. */
struct delivery {
    struct sim_attempt attempt;
    struct sim_world *world;
    struct sim_message *message;
    struct sim_place *place;
    struct sched_entry entry;
    LIST_ENTRY(delivery) link;
    uint32_t rcpt_count;
    uint32_t rcpts[]; /* recipients' numbers, from 1 */
};

/* A source of mail: a line of arrivals, or the trace. */
struct source {
    struct sim_event event;
    struct sim_world *world;
    const struct workload_arrivals *arrivals; /* NULL: the trace */
    uint32_t *places;                         /* owned; by the domain's index */
    struct rng rng;
    struct slice sched_class; /* class of its mail, unused for the trace, which has several */
    uint64_t sent;            /* number of messages so far */
    double at_us;             /* time of the next message; a fraction, so that rounding errors do
                               * not add up */
};

struct sched_class_name {
    char *name; /* owned */
    UT_hash_handle hh;
};

struct sim_world {
    struct sim_options options;
    struct sim_events events;
    struct sched *sched;
    struct sim_places places;
    struct source *sources; /* owned */
    size_t source_count, sources_open;
    struct sim_site_model *trace_models; /* owned; models of the trace's domains */

    struct sim_message **slots; /* owned; the existing messages, by slot */
    uint32_t *free_slots;       /* owned; a stack */
    uint32_t slot_size, free_count;
    uint64_t messages_made;

    STAILQ_HEAD(, sim_message) incoming;
    struct heap deferred;
    struct owner_feed feed;
    struct sim_parkings parkings;
    uint32_t incoming_count, active_count;
    LIST_HEAD(, delivery) deliveries;

    struct rng retry_rng;
    struct sim_tally *classes; /* owned; first the workload's, then the trace's */
    size_t class_count;
    struct sched_class_name *sched_classes;  /* uthash */
    struct sim_series *series;               /* owned */
    uint32_t followed[SIM_SERIES_DESTS_MAX]; /* numbers of the places that it records */
    struct sim_result result;
    const struct sim_tally **sorted; /* owned; for the result */
};

static struct mono now_of(const struct sim_world *w)
{
    return w->events.now;
}

/* ---- messages ------------------------------------------------------------------------------- */

static bool due_sooner(const struct heap_node *a, const struct heap_node *b)
{
    const struct sim_message *x = CONTAINER_OF(a, const struct sim_message, due_node);
    const struct sim_message *y = CONTAINER_OF(b, const struct sim_message, due_node);

    return x->due_us != y->due_us ? x->due_us < y->due_us : x->number < y->number;
}

static struct sched_msg id_of(const struct sim_message *m)
{
    return (struct sched_msg){m->slot};
}

static struct sim_message *message_of(const struct sim_world *w, struct sched_msg id)
{
    CHECK(id.n < w->slot_size && w->slots[id.n] != NULL);
    return w->slots[id.n];
}

static void slots_grow(struct sim_world *w)
{
    uint32_t size = w->slot_size == 0 ? 1024 : 2 * w->slot_size;

    CHECK(size > w->slot_size);
    w->slots = mem_resize(w->slots, size, sizeof(struct sim_message *));
    w->free_slots = mem_resize(w->free_slots, size, sizeof *w->free_slots);
    for (uint32_t slot = size; slot-- > w->slot_size;) {
        w->slots[slot] = NULL;
        w->free_slots[w->free_count++] = slot;
    }
    w->slot_size = size;
}

/* Returns a new message, whose recipients the caller fills in. */
static struct sim_message *message_new(struct sim_world *w, uint32_t class, uint32_t rcpt_count,
                                       int64_t size_bytes)
{
    struct sim_message *m = mem_new(sizeof *m + rcpt_count * sizeof m->rcpts[0]);

    if (w->free_count == 0) {
        slots_grow(w);
    }
    heap_node_init(&m->due_node);
    sim_parked_init(&m->parked, w->messages_made + 1);
    m->slot = w->free_slots[--w->free_count];
    w->slots[m->slot] = m;
    m->number = ++w->messages_made;
    m->arrived_us = now_of(w).us;
    m->class = class;
    m->rcpt_count = m->left = rcpt_count;
    m->size_bytes = size_bytes;
    return m;
}

static void message_free(struct sim_world *w, struct sim_message *m)
{
    owner_target_fini(&m->dead);
    w->slots[m->slot] = NULL;
    w->free_slots[w->free_count++] = m->slot;
    mem_free(m);
}

static uint32_t messages_waiting(const struct sim_world *w)
{
    return w->slot_size - w->free_count;
}

/* ---- where messages wait -------------------------------------------------------------------- */

/* Returns the scheduler's name of a recipient's destination; `room` is for a generated one. The
 * local part is derived from the message and the recipient, so a retry uses the same mailbox. */
static struct slice dest_of(const struct sim_message *m, uint32_t n, const struct sim_place *place,
                            char room[MAILBOX_NAME_MAX])
{
    uint64_t mixed;
    int len;

    if (!place->per_mailbox) {
        return place->dest;
    }
    mixed = (m->number * 1000003 + n) * UINT64_C(0x9e3779b97f4a7c15);
    len = snprintf(room, MAILBOX_NAME_MAX, "u%u@%.*s", (unsigned)((mixed >> 32) % MAILBOXES),
                   SLICE_ARGS(place->dest));
    CHECK(len > 0 && len < MAILBOX_NAME_MAX);
    return slice_of(room, (size_t)len);
}

/* Returns the time of the next pass of a message that was not delivered: its age from now, within
 * bounds. */
static int64_t back_off(struct sim_world *w, const struct sim_message *m)
{
    return us_add(now_of(w).us,
                  owner_backoff_us(w->options.conf, now_of(w).us - m->arrived_us, &w->retry_rng));
}

static void defer_until(struct sim_world *w, struct sim_message *m, int64_t due_us)
{
    m->due_us = due_us;
    heap_add(&w->deferred, &m->due_node);
}

/* Returns the time at which a parked message is checked even if the scheduler has not requested it.
 * There are no delay notices in the simulation. */
static int64_t parked_until(struct sim_world *w, const struct sim_message *m)
{
    const struct conf *conf = w->options.conf;

    return us_add(now_of(w).us,
                  owner_parked_us(conf, now_of(w).us - m->arrived_us,
                                  conf->maximal_queue_lifetime_us, false, &w->retry_rng));
}

static void park(struct sim_world *w, struct sim_message *m, const struct sim_parking_key *key)
{
    sim_parking_add(&w->parkings, key, &m->parked);
    defer_until(w, m, parked_until(w, m));
}

/* Returns the world's only copy of the scheduler's name of a class. */
static struct slice sched_class_need(struct sim_world *w, struct slice name)
{
    struct sched_class_name *l;

    HASH_FIND(hh, w->sched_classes, name.ptr, name.len, l);
    if (l == NULL) {
        l = mem_new(sizeof *l);
        l->name = mem_copy(name.ptr, name.len);
        HASH_ADD_KEYPTR(hh, w->sched_classes, l->name, name.len, l);
    }
    return slice_of(l->name, name.len);
}

/* Adds the destination of recipient `n` to the target. */
static void target_add(const struct sim_world *w, const struct sim_message *m,
                       struct owner_target *t, uint32_t n)
{
    const struct sim_place *place = w->places.list[m->rcpts[n - 1].place];
    char room[MAILBOX_NAME_MAX];

    owner_target_add(t, place->transport, dest_of(m, n, place, room));
}

/* Returns the destination of all recipients that are left, if there is only one. The caller calls
 * owner_target_fini. */
static struct owner_target target_of(const struct sim_world *w, const struct sim_message *m)
{
    struct owner_target t = {.several = false};

    for (uint32_t n = 1; n <= m->rcpt_count && !t.several; n++) {
        if (m->rcpts[n - 1].place != RCPT_DONE) {
            target_add(w, m, &t, n);
        }
    }
    return t;
}

/* Should the message wait for the share of its only destination? */
static bool waits_for_share(const struct sim_world *w, const struct sim_message *m,
                            const struct owner_target *t)
{
    return owner_target_full(w->sched, t, m->sched_class);
}

/* Parks a message and reports that to the scheduler, unlike `park`, which is for messages that the
 * scheduler itself parks. */
static void park_and_tell(struct sim_world *w, struct sim_message *m, const struct owner_target *t)
{
    struct sim_parking_key key = {t->transport, slice_string(t->dest), m->sched_class, false};

    m->deferred = !owner_parks_as_new(w->sched, key.transport, key.dest, !m->deferred);
    key.deferred = m->deferred;
    park(w, m, &key);
    sched_parked(w->sched, now_of(w), key.transport, key.dest, key.class_name);
}

/* Parks or queues a message that has just arrived. */
static void enqueue(struct sim_world *w, struct sim_message *m)
{
    struct owner_target t = target_of(w, m);

    if (waits_for_share(w, m, &t)) {
        park_and_tell(w, m, &t);
    } else {
        STAILQ_INSERT_TAIL(&w->incoming, m, link);
        w->incoming_count++;
    }
    owner_target_fini(&t);
}

/* ---- arrivals ------------------------------------------------------------------------------- */

static void tally_arrival(struct sim_tally *t, const struct sim_world *w, uint64_t messages,
                          uint64_t recipients)
{
    t->messages += messages;
    t->recipients += recipients;
    t->last_came_us = now_of(w).us;
}

static void message_arrived(struct sim_world *w, struct sim_message *m)
{
    const struct sim_hooks *hooks = &w->options.hooks;

    tally_arrival(&w->result.total, w, 1, m->rcpt_count);
    tally_arrival(&w->classes[m->class], w, 1, m->rcpt_count);
    for (uint32_t i = 0; i < m->rcpt_count; i++) {
        bool first = i == 0 || m->rcpts[i].place != m->rcpts[i - 1].place;

        /* A message that returns to a destination within its list counts there again: recognizing
         * this would cost a set per message. */
        tally_arrival(&w->places.list[m->rcpts[i].place]->tally, w, first ? 1 : 0, 1);
    }
    if (messages_waiting(w) > w->result.queue_peak) {
        w->result.queue_peak = messages_waiting(w);
    }
    if (hooks->arrived != NULL) {
        hooks->arrived(hooks->arg, now_of(w), m->number, m->rcpt_count);
    }
    enqueue(w, m);
}

static void source_send(struct source *s)
{
    const struct workload_arrivals *a = s->arrivals;
    int64_t count = distribution_draw(&a->recipients, &s->rng);
    int64_t size = distribution_draw(&a->size, &s->rng);
    struct sim_message *m;

    count = count < 1 ? 1 : count > WORKLOAD_RECIPIENTS_MAX ? WORKLOAD_RECIPIENTS_MAX : count;
    m = message_new(s->world, a->class, (uint32_t)count, size);
    m->sched_class = s->sched_class;
    for (uint32_t i = 0; i < m->rcpt_count; i++) {
        uint32_t domain = workload_draw_domain(&a->to, &s->rng);

        m->rcpts[i] = (struct rcpt){s->places[domain], NEVER_ASKED};
    }
    s->sent++;
    message_arrived(s->world, m);
}

static void source_wait(struct source *s)
{
    const struct workload_arrivals *a = s->arrivals;

    if (s->sent >= a->count || s->at_us >= (double)a->until_us) {
        s->world->sources_open--;
        return;
    }
    sim_event_set(&s->world->events, &s->event, (int64_t)s->at_us - now_of(s->world).us);
}

static double source_gap(struct source *s)
{
    const struct workload_arrivals *a = s->arrivals;

    return a->rhythm == WORKLOAD_POISSON ? distribution_draw_gap(a->gap_us, &s->rng) : a->gap_us;
}

static void source_due(struct sim_event *e)
{
    struct source *s = CONTAINER_OF(e, struct source, event);

    if (s->arrivals->rhythm == WORKLOAD_BURST) {
        while (s->sent < s->arrivals->count) {
            source_send(s);
        }
    } else {
        source_send(s);
        s->at_us += source_gap(s);
    }
    source_wait(s);
}

static void sched_classes_free(struct sim_world *w)
{
    struct sched_class_name *l, *next;

    HASH_ITER(hh, w->sched_classes, l, next)
    {
        HASH_DEL(w->sched_classes, l);
        mem_free(l->name);
        mem_free(l);
    }
}

static void source_open(struct sim_world *w, struct source *s, const struct workload_arrivals *a)
{
    char room[SCHED_CLASS_NAME_MAX];

    s->world = w;
    s->arrivals = a;
    s->sched_class = sched_class_need(
        w, a->classed ? tuning_sched_class(w->options.conf,
                                           slice_string(w->options.workload->classes[a->class]),
                                           slice_string(a->name), slice_string(a->name), room)
                      : SLICE(""));
    rng_init(&s->rng, sim_stream_seed(w->options.seed, a->name));
    s->places = mem_array(a->to.count, sizeof *s->places);
    for (uint32_t i = 0; i < a->to.count; i++) {
        s->places[i] = sim_places_need(&w->places, slice_string(a->to.names[i]), NULL, false);
    }
    s->at_us = (double)a->from_us;
    if (a->rhythm == WORKLOAD_POISSON) {
        s->at_us += source_gap(s);
    }
    sim_event_init(&s->event, source_due);
    w->sources_open++;
    source_wait(s);
}

/* ---- the trace as a source ------------------------------------------------------------------ */

static void trace_wait(struct source *s)
{
    const struct trace *t = s->world->options.trace;

    if (s->sent == t->message_count) {
        s->world->sources_open--;
        return;
    }
    sim_event_set(&s->world->events, &s->event, t->messages[s->sent].at_us - now_of(s->world).us);
}

/* Returns the class that the daemon would give the message with this configuration: a field that
 * marks bulk mail counts only with default_class = auto. */
static struct slice sched_class_of_traced(struct sim_world *w, const struct trace_message *m)
{
    const struct conf *conf = w->options.conf;
    bool by_default = conf->default_class == CONF_DEFAULT_CLASS_AUTO;
    struct slice name = m->class > 0 && (by_default || !m->marked)
                            ? slice_string(w->options.trace->classes[m->class - 1])
                        : by_default ? SLICE(CLASS_NAME_PERSONAL)
                                     : SLICE("");
    char room[SCHED_CLASS_NAME_MAX];

    if (name.len > 0 && class_fairness(conf, name) != CONF_CLASS_FAIRNESS_NONE) {
        name = tuning_sched_class_of_group(name, m->group, room);
    }
    return sched_class_need(w, name);
}

static void trace_due(struct sim_event *e)
{
    struct source *s = CONTAINER_OF(e, struct source, event);
    const struct trace *t = s->world->options.trace;
    const struct trace_message *from = &t->messages[s->sent++];
    size_t class = s->world->options.workload->class_count + from->class;
    struct sim_message *m =
        message_new(s->world, (uint32_t) class, from->rcpt_count, from->size_bytes);

    m->sched_class = sched_class_of_traced(s->world, from);
    m->outcomes = t->outcomes == NULL ? NULL : &t->outcomes[from->first_rcpt];
    for (uint32_t i = 0; i < m->rcpt_count; i++) {
        m->rcpts[i] = (struct rcpt){s->places[t->rcpts[from->first_rcpt + i]], NEVER_ASKED};
    }
    message_arrived(s->world, m);
    trace_wait(s);
}

/* Returns the workload's model of a traced domain, with the log's times unless the workload sets
 * them. */
static struct sim_site_model traced_model(const struct workload *workload,
                                          const struct trace_domain *d)
{
    const struct workload_site *site = workload_site_find(workload, slice_string(d->name));
    struct sim_site_model model =
        site != NULL ? sim_site_model_copy(&site->model) : sim_site_model_default();

    if (d->sample_count > 0 && (site == NULL || !site->tells_latency)) {
        distribution_fini(&model.latency);
        model.latency = distribution_empirical(d->samples, d->sample_count);
    }
    for (uint32_t i = 0; i < d->outage_count && model.outage_count < SIM_OUTAGES_MAX; i++) {
        model.outages[model.outage_count++] =
            (struct sim_outage){.from_us = d->outages[i].from_us,
                                .until_us = d->outages[i].until_us,
                                .down = d->outages[i].hangs ? SIM_DOWN_HANG : SIM_DOWN_REFUSE};
    }
    return model;
}

static void trace_open(struct sim_world *w, struct source *s, const struct trace *t)
{
    s->world = w;
    s->places = mem_array(t->domain_count, sizeof *s->places);
    w->trace_models = mem_array(t->domain_count, sizeof *w->trace_models);
    for (size_t i = 0; i < t->domain_count; i++) {
        const struct trace_domain *d = t->domains[i];

        w->trace_models[i] = traced_model(w->options.workload, d);
        /* A journal of events comes from this daemon, so its mail went through the present
         * relays. */
        s->places[i] = sim_places_need(&w->places, slice_string(d->name), &w->trace_models[i],
                                       t->outcomes != NULL);
    }
    sim_event_init(&s->event, trace_due);
    w->sources_open++;
    trace_wait(s);
}

/* ---- settling ------------------------------------------------------------------------------- */

static void tally_disposition(struct sim_tally *t, enum sim_disposition disposition, int64_t now_us,
                              int64_t delay_us)
{
    switch (disposition) {
    case SIM_DISPOSITION_SENT:
        t->sent++;
        histogram_add(&t->delay, delay_us);
        break;
    case SIM_DISPOSITION_DEFERRED:
        t->deferrals++;
        return;
    case SIM_DISPOSITION_BOUNCED:
        t->bounced++;
        break;
    case SIM_DISPOSITION_EXPIRED:
        t->expired++;
        break;
    }
    t->last_gone_us = now_us;
}

static void settle(struct sim_world *w, struct sim_message *m, uint32_t rcpt_n,
                   enum sim_disposition disposition)
{
    const struct sim_hooks *hooks = &w->options.hooks;
    struct rcpt *r = &m->rcpts[rcpt_n - 1];
    int64_t now_us = now_of(w).us, delay_us = now_us - m->arrived_us;
    struct sim_place *place;

    CHECK(r->place != RCPT_DONE);
    place = w->places.list[r->place];
    tally_disposition(&w->result.total, disposition, now_us, delay_us);
    tally_disposition(&w->classes[m->class], disposition, now_us, delay_us);
    tally_disposition(&place->tally, disposition, now_us, delay_us);
    if (disposition != SIM_DISPOSITION_DEFERRED) {
        r->place = RCPT_DONE;
        m->left--;
    }
    if (hooks->settled != NULL) {
        hooks->settled(hooks->arg, now_of(w), m->number, rcpt_n, place->key, disposition);
    }
}

/* Settles a recipient after an attempt: a deferred one waits for its back-off, not for its
 * destination. */
static void settle_attempted(struct sim_world *w, struct sim_message *m, uint32_t rcpt_n,
                             enum sim_disposition disposition)
{
    settle(w, m, rcpt_n, disposition);
    m->dead.several |= disposition == SIM_DISPOSITION_DEFERRED;
}

/* ---- deliveries ----------------------------------------------------------------------------- */

/* Counts a delivery for the run, its class and its place. */
static void tally_busy(struct sim_world *w, const struct delivery *f, int change)
{
    sim_tally_busy(&w->result.total, now_of(w), change);
    sim_tally_busy(&w->classes[f->message->class], now_of(w), change);
    sim_tally_busy(&f->place->tally, now_of(w), change);
}

static void tally_attempt(struct sim_tally *t, uint32_t rcpt_count)
{
    t->attempts++;
    t->asked += rcpt_count;
}

static void tally_failure(struct sim_world *w, const struct delivery *f)
{
    w->result.total.failures[f->attempt.result]++;
    w->classes[f->message->class].failures[f->attempt.result]++;
    f->place->tally.failures[f->attempt.result]++;
}

static int64_t milliseconds_up(int64_t us)
{
    return (us + US_PER_MS - 1) / US_PER_MS;
}

/* Returns the reply of a site that was reached for one recipient. */
static enum sim_disposition verdict_on(struct delivery *f, uint32_t rcpt_n)
{
    static const enum sim_disposition dispositions[] = {[SIM_SENT] = SIM_DISPOSITION_SENT,
                                                        [SIM_DEFERRED] = SIM_DISPOSITION_DEFERRED,
                                                        [SIM_BOUNCED] = SIM_DISPOSITION_BOUNCED};
    struct sim_message *m = f->message;
    struct rcpt *r = &m->rcpts[rcpt_n - 1];
    const struct trace_outcome *outcome = m->outcomes == NULL ? NULL : &m->outcomes[rcpt_n - 1];
    int64_t first_us =
        r->asked_ms == NEVER_ASKED ? -1 : m->arrived_us + (int64_t)r->asked_ms * US_PER_MS;
    bool first = first_us < 0;
    enum sim_verdict verdict = sim_site_verdict(&f->place->site, &first_us);

    if (outcome != NULL && verdict == SIM_SENT) {
        verdict = outcome->not_before_us > now_of(f->world).us ? SIM_DEFERRED
                  : outcome->bounced                           ? SIM_BOUNCED
                                                               : SIM_SENT;
    }
    if (first && first_us >= 0) {
        int64_t ms = milliseconds_up(first_us - m->arrived_us);

        r->asked_ms = ms < NEVER_ASKED ? (uint32_t)ms : NEVER_ASKED - 1;
    }
    return dispositions[verdict];
}

static void delivery_end(struct sim_world *w, struct delivery *f, enum sched_outcome outcome)
{
    const char *reason =
        outcome == SCHED_DEST_FAIL ? sim_try_text(f->attempt.result) : ""; /* kept if the
                                                                            * destination dies */

    tally_busy(w, f, -1);
    LIST_REMOVE(f, link);
    CHECK(sched_finished(w->sched, now_of(w), f->entry, outcome, slice_string(reason)));
    mem_free(f);
}

static void attempt_done(struct sim_attempt *a)
{
    struct delivery *f = CONTAINER_OF(a, struct delivery, attempt);
    struct sim_world *w = f->world;
    bool reached = a->result == SIM_TRY_REACHED;

    for (uint32_t i = 0; i < f->rcpt_count; i++) {
        settle_attempted(w, f->message, f->rcpts[i],
                         reached ? verdict_on(f, f->rcpts[i]) : SIM_DISPOSITION_DEFERRED);
    }
    if (!reached) {
        tally_failure(w, f);
    }
    delivery_end(w, f, reached ? SCHED_OK : SCHED_DEST_FAIL);
}

/* Gets the fixed result of a transport that needs no site. Returns false if it needs one. */
static bool disposition_here(enum conf_agent agent, enum sim_disposition *ret_disposition)
{
    switch (agent) {
    case CONF_AGENT_ERROR:
        *ret_disposition = SIM_DISPOSITION_BOUNCED;
        return true;
    case CONF_AGENT_RETRY:
        *ret_disposition = SIM_DISPOSITION_DEFERRED;
        return true;
    case CONF_AGENT_DISCARD:
        *ret_disposition = SIM_DISPOSITION_SENT;
        return true;
    case CONF_AGENT_SMTP:
    case CONF_AGENT_LMTP:
    case CONF_AGENT_MAILDIR:
    case CONF_AGENT_PIPE:
    case CONF_AGENT_TA:
    case CONF_AGENT_POSTFIX:
    case CONF_AGENT_MILTER:
        break;
    }
    return false;
}

static void deliver(struct sim_world *w, const struct sched_action *action)
{
    struct sim_message *m = message_of(w, action->msg);
    uint32_t count = (uint32_t)action->rcpt_count;
    struct delivery *f = mem_new(sizeof *f + count * sizeof f->rcpts[0]);
    enum sim_disposition disposition;

    f->world = w;
    f->message = m;
    f->place = w->places.list[m->rcpts[action->rcpts[0] - 1].place];
    f->entry = action->entry;
    f->rcpt_count = count;
    memcpy(f->rcpts, action->rcpts, count * sizeof f->rcpts[0]);
    LIST_INSERT_HEAD(&w->deliveries, f, link);
    tally_attempt(&w->result.total, count);
    tally_attempt(&w->classes[m->class], count);
    tally_attempt(&f->place->tally, count);
    tally_busy(w, f, 1);
    if (disposition_here(f->place->agent, &disposition)) {
        for (uint32_t i = 0; i < count; i++) {
            settle_attempted(w, m, f->rcpts[i], disposition);
        }
        delivery_end(w, f, SCHED_OK);
        return;
    }
    f->attempt.rcpt_count = count;
    f->attempt.size_bytes = m->size_bytes;
    f->attempt.cache_load = action->cache_load;
    f->attempt.cache_store = action->cache_store;
    f->attempt.done = attempt_done;
    sim_site_start(&f->place->site, &f->attempt);
}

/* ---- reading recipients --------------------------------------------------------------------- */

/* A recipient about to be passed to the scheduler. */
struct reading {
    uint32_t n;
    const struct sim_place *place;
};

/* Orders as the queue process does: by domain, then by address. */
static int compare_readings(const void *a, const void *b)
{
    const struct reading *x = a, *y = b;

    if (x->place != y->place) {
        return x->place->rank < y->place->rank ? -1 : 1;
    }
    return x->n < y->n ? -1 : x->n > y->n;
}

static void tell_policies(struct sim_world *w, const struct reading *readings,
                          const struct sched_rcpt *rcpts, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct sim_place *place = readings[i].place;
        bool again = i > 0 && place == readings[i - 1].place && !place->per_mailbox;

        if (place->tuning.own && !again) {
            tuning_tell(w->sched, now_of(w), place->transport, rcpts[i].dest, &place->tuning);
        }
    }
}

static void give_recipients(struct sim_world *w, struct sim_message *m, struct reading *readings,
                            size_t count)
{
    struct sched_rcpt *rcpts = mem_array(count, sizeof *rcpts);
    char(*names)[MAILBOX_NAME_MAX] = NULL;

    if (count > 1) {
        qsort(readings, count, sizeof *readings, compare_readings);
    }
    for (size_t i = 0; i < count; i++) {
        const struct sim_place *place = readings[i].place;

        rcpts[i] = (struct sched_rcpt){readings[i].n, place->transport, place->dest};
        if (place->per_mailbox) {
            if (names == NULL) {
                names = mem_array(count, sizeof *names);
            }
            rcpts[i].dest = dest_of(m, readings[i].n, place, names[i]);
        }
    }
    sched_recipients(w->sched, now_of(w), id_of(m), rcpts, count, 0, m->read == m->rcpt_count);
    tell_policies(w, readings, rcpts, count);
    mem_free(names);
    mem_free(rcpts);
}

static void read_recipients(struct sim_world *w, struct sim_message *m, uint32_t max)
{
    uint32_t unread = m->rcpt_count - m->read;
    struct reading *readings = mem_array(max < unread ? max : unread, sizeof *readings);
    size_t count = 0;

    while (m->read < m->rcpt_count && count < max) {
        const struct rcpt *r = &m->rcpts[m->read++];

        if (r->place != RCPT_DONE) {
            readings[count++] = (struct reading){m->read, w->places.list[r->place]};
        }
    }
    while (m->read < m->rcpt_count && m->rcpts[m->read].place == RCPT_DONE) {
        m->read++; /* so that the end is noticed with the last one */
    }
    give_recipients(w, m, readings, count);
    mem_free(readings);
}

/* ---- the pass of a message ------------------------------------------------------------------ */

static void open_message(struct sim_world *w, struct sim_message *m)
{
    m->read = 0;
    owner_target_fini(&m->dead);
    w->active_count++;
    if (w->active_count > w->result.active_peak) {
        w->result.active_peak = w->active_count;
    }
    sched_open_in_class(w->sched, now_of(w), id_of(m), m->left, false, m->sched_class,
                        class_weight(w->options.conf, tuning_class_of(m->sched_class)));
}

/* Settles all recipients that are left as expired if the message has reached its lifetime. */
static void give_up_if_old(struct sim_world *w, struct sim_message *m)
{
    if (now_of(w).us - m->arrived_us < w->options.conf->maximal_queue_lifetime_us) {
        return;
    }
    for (uint32_t n = 1; n <= m->rcpt_count; n++) {
        if (m->rcpts[n - 1].place != RCPT_DONE) {
            settle(w, m, n, SIM_DISPOSITION_EXPIRED);
        }
    }
}

/* Ends a pass when the scheduler has nothing left of the message: frees or defers it, or (if all
 * wait for one dead destination) parks it, so that it continues when the destination is well. */
static void end_pass(struct sim_world *w, struct sim_message *m)
{
    give_up_if_old(w, m);
    m->deferred = true;
    if (m->left == 0) {
        message_free(w, m);
    } else if (owner_target_is_one(&m->dead)) {
        park_and_tell(w, m, &m->dead);
    } else {
        defer_until(w, m, back_off(w, m));
    }
}

/* Ends a pass with parking, as requested by the scheduler. */
static void end_pass_parked(struct sim_world *w, struct sim_message *m,
                            const struct sched_action *action)
{
    give_up_if_old(w, m);
    if (m->left == 0) {
        message_free(w, m);
    } else {
        m->deferred |= m->dead.several || m->dead.dest != NULL;
        park(w, m,
             &(struct sim_parking_key){action->transport, action->dest, action->class_name,
                                       m->deferred});
    }
}

static void admit(struct sim_world *w, const struct sched_action *action)
{
    char *dest = mem_copy(action->dest.ptr, action->dest.len);
    char *class_name = mem_copy(action->class_name.ptr, action->class_name.len);
    struct sim_parking_key key = {action->transport, slice_string(dest), slice_string(class_name),
                                  false};
    struct owner_turns turns = {.deferred = action->deferred_first};
    uint32_t max = action->max, count = 0;

    while (count < max && owner_turns_go_on(&turns)) {
        struct sim_parked *first;

        key.deferred = turns.deferred;
        first = sim_parking_first(&w->parkings, &key);
        if (first != NULL) {
            struct sim_message *m = CONTAINER_OF(first, struct sim_message, parked);

            sim_parking_remove(&w->parkings, first);
            heap_remove(&w->deferred, &m->due_node);
            m->deferred |= key.deferred;
            open_message(w, m);
            count++;
        }
        owner_turns_took(&turns, first != NULL);
    }
    sched_admitted(w->sched, now_of(w), key.transport, key.dest, key.class_name, count,
                   owner_turns_go_on(&turns));
    mem_free(class_name);
    mem_free(dest);
}

/* ---- decisions ------------------------------------------------------------------------------ */

static void defer_unattempted(struct sim_world *w, const struct sched_action *action)
{
    struct sim_message *m = message_of(w, action->msg);

    owner_target_deferred(&m->dead, action);
    for (size_t i = 0; i < action->rcpt_count; i++) {
        struct sim_place *place = w->places.list[m->rcpts[action->rcpts[i] - 1].place];

        w->result.total.unattempted++;
        w->classes[m->class].unattempted++;
        place->tally.unattempted++;
        settle(w, m, action->rcpts[i], SIM_DISPOSITION_DEFERRED);
    }
}

/* Returns the message of an action; NULL if the action concerns a destination. */
static struct sim_message *subject_of(const struct sim_world *w, const struct sched_action *action)
{
    switch (action->type) {
    case SCHED_DELIVER:
    case SCHED_READ:
    case SCHED_DEFER:
    case SCHED_DONE:
    case SCHED_PARK:
        return message_of(w, action->msg);
    case SCHED_NONE:
    case SCHED_ADMIT:
    case SCHED_DEST_DEAD:
    case SCHED_DEST_PROBED:
    case SCHED_DEST_REVIVED:
        break;
    }
    return NULL;
}

static void decide(struct sim_world *w, const struct sched_action *action)
{
    const struct sim_hooks *hooks = &w->options.hooks;
    struct sim_message *m = subject_of(w, action);

    if (hooks->decided != NULL) {
        hooks->decided(hooks->arg, now_of(w), m == NULL ? 0 : m->number, action);
    }
    switch (action->type) {
    case SCHED_DELIVER:
        deliver(w, action);
        break;
    case SCHED_READ:
        read_recipients(w, m, action->max);
        break;
    case SCHED_DEFER:
        defer_unattempted(w, action);
        break;
    case SCHED_DONE:
        w->active_count--;
        end_pass(w, m);
        break;
    case SCHED_PARK:
        w->active_count--;
        end_pass_parked(w, m, action);
        break;
    case SCHED_ADMIT:
        admit(w, action);
        break;
    case SCHED_DEST_DEAD:
        sim_parkings_defer(&w->parkings, action->transport, action->dest);
        break;
    case SCHED_NONE:
    case SCHED_DEST_PROBED:
    case SCHED_DEST_REVIVED:
        break;
    }
}

static void pull_decisions(struct sim_world *w)
{
    struct sched_action action;

    while (sched_next(w->sched, now_of(w), &action) != SCHED_NONE) {
        decide(w, &action);
    }
}

/* ---- the queue ------------------------------------------------------------------------------ */

static struct sim_message *first_deferred(const struct sim_world *w)
{
    struct heap_node *top = heap_top(&w->deferred);

    return top == NULL ? NULL : CONTAINER_OF(top, struct sim_message, due_node);
}

/* Opens the message, or lets it wait for the share of its destination. */
static void open_or_park(struct sim_world *w, struct sim_message *m)
{
    struct owner_target t = {.several = m->left > OWNER_LOOK_MAX};

    if (!t.several) {
        t = target_of(w, m);
    }
    if (waits_for_share(w, m, &t)) {
        park_and_tell(w, m, &t);
    } else {
        open_message(w, m);
        owner_feed_opened(&w->feed, w->sched);
    }
    owner_target_fini(&t);
}

/* Return false if there is no such message. */
static bool import_new(struct sim_world *w)
{
    struct sim_message *m = STAILQ_FIRST(&w->incoming);

    if (m == NULL) {
        return false;
    }
    STAILQ_REMOVE_HEAD(&w->incoming, link);
    w->incoming_count--;
    open_or_park(w, m);
    return true;
}

/* Returns true if a parked message that is due stays parked, or has expired. */
static bool stays_parked(struct sim_world *w, struct sim_message *m)
{
    struct owner_target t = target_of(w, m);
    bool stays = waits_for_share(w, m, &t);

    if (stays) {
        sim_parking_remove(&w->parkings, &m->parked);
        heap_remove(&w->deferred, &m->due_node);
        give_up_if_old(w, m);
        if (m->left == 0) {
            message_free(w, m);
        } else {
            park_and_tell(w, m, &t);
        }
    }
    owner_target_fini(&t);
    return stays;
}

static bool import_due(struct sim_world *w)
{
    struct sim_message *m = first_deferred(w);

    if (m == NULL || m->due_us > now_of(w).us) {
        return false;
    }
    if (m->parked.parking != NULL && stays_parked(w, m)) {
        return true;
    }
    heap_remove(&w->deferred, &m->due_node);
    if (m->parked.parking != NULL) {
        sim_parking_remove(&w->parkings, &m->parked);
        open_message(w, m);
        owner_feed_opened(&w->feed, w->sched);
    } else {
        open_or_park(w, m);
    }
    return true;
}

/* Brings messages into the scheduler, new and deferred ones alternately, as the queue process does.
 * Returns true if there may be more right now. */
static bool import(struct sim_world *w)
{
    owner_feed_begin(&w->feed);
    while (owner_feed_goes_on(&w->feed, sched_has_room(w->sched))) {
        owner_feed_took(&w->feed, w->feed.turns.deferred ? import_due(w) : import_new(w));
        pull_decisions(w); /* the next message must see an updated share */
    }
    (void)owner_feed_end(&w->feed, w->sched, sched_has_room(w->sched),
                         conf_new_mail_first(w->options.conf)); /* decisions free places */
    return w->feed.fed > 0;
}

/* ---- time ----------------------------------------------------------------------------------- */

static struct sim_series_dest sample_place(const struct sim_world *w, const struct sim_place *place)
{
    struct sched_dest_info info;

    if (!sched_dest_get(w->sched, place->transport, place->dest, &info)) {
        return (struct sim_series_dest){.busy = 0};
    }
    return (struct sim_series_dest){
        .busy = info.busy,
        .window = info.state == SCHED_DEST_DEAD_UNTIL ? 0 : info.window,
        .waiting = info.waiting,
    };
}

/* Adds samples of the present state up to `until`, possibly many. */
static void sample(struct sim_world *w, struct mono until)
{
    struct sim_series_queue queue = {
        .incoming = w->incoming_count,
        .active = w->active_count,
        .deferred = (uint32_t)w->deferred.count - w->parkings.count,
        .parked = w->parkings.count,
    };
    struct sim_series_dest dests[SIM_SERIES_DESTS_MAX];
    bool looked = false;

    while (sim_series_due(w->series) < until.us) {
        for (uint32_t i = 0; !looked && i < w->series->dest_count; i++) {
            dests[i] = sample_place(w, w->places.list[w->followed[i]]);
        }
        looked = true;
        sim_series_add(w->series, &queue, dests);
    }
}

/* Returns the time of the next event; MONO_NEVER if the run is over. */
static struct mono next_moment(const struct sim_world *w)
{
    const struct sim_message *m = first_deferred(w);
    struct mono at = mono_min(sim_events_next(&w->events), sched_wake_at(w->sched));

    if (w->sources_open == 0 && messages_waiting(w) == 0) {
        return MONO_NEVER; /* a kept connection changes nothing */
    }
    if (m != NULL && sched_has_room(w->sched)) {
        at = mono_min(at, (struct mono){m->due_us});
    }
    return at.us > w->options.workload->duration_us ? MONO_NEVER : at;
}

bool sim_world_step(struct sim_world *w)
{
    struct mono next;

    do {
        pull_decisions(w);
    } while (import(w));
    if (w->options.audit) {
        sched_audit(w->sched);
    }
    next = next_moment(w);
    if (next.us == US_FOREVER) {
        if (w->options.workload->duration_us != US_FOREVER && messages_waiting(w) > 0) {
            w->events.now.us = w->options.workload->duration_us;
        }
        return false;
    }
    CHECK(next.us > now_of(w).us || sim_events_next(&w->events).us == next.us);
    sample(w, next);
    sim_events_run(&w->events, next);
    return true;
}

void sim_world_run(struct sim_world *w)
{
    while (sim_world_step(w)) {
        continue;
    }
}

const struct sched *sim_world_sched(const struct sim_world *w)
{
    return w->sched;
}

/* ---- the result ----------------------------------------------------------------------------- */

static int compare_mail(const void *a, const void *b)
{
    const struct sim_tally *x = *(const struct sim_tally *const *)a;
    const struct sim_tally *y = *(const struct sim_tally *const *)b;

    if (x->recipients != y->recipients) {
        return x->recipients > y->recipients ? -1 : 1;
    }
    return strcmp(x->name, y->name);
}

const struct sim_result *sim_world_result(struct sim_world *w)
{
    struct sim_result *r = &w->result;

    sim_tally_close(&r->total, now_of(w));
    for (size_t i = 0; i < w->class_count; i++) {
        sim_tally_close(&w->classes[i], now_of(w));
    }
    for (uint32_t i = 0; i < w->places.count; i++) {
        sim_tally_close(&w->places.list[i]->tally, now_of(w));
        w->sorted[i] = &w->places.list[i]->tally;
    }
    if (w->places.count > 1) {
        qsort(w->sorted, w->places.count, sizeof *w->sorted, compare_mail);
    }
    r->ended = now_of(w);
    r->drained = w->sources_open == 0 && messages_waiting(w) == 0;
    r->classes = w->classes;
    r->class_count = w->class_count;
    r->dests = w->sorted;
    r->dest_count = w->places.count;
    r->decisions = sched_totals(w->sched).decisions;
    r->series = w->series;
    return r;
}

/* ---- life ----------------------------------------------------------------------------------- */

static void classes_open(struct sim_world *w)
{
    const struct workload *workload = w->options.workload;

    const struct trace *trace = w->options.trace;

    w->class_count = workload->class_count + (trace != NULL ? 1 + trace->class_count : 0);
    w->classes = mem_array(w->class_count, sizeof *w->classes);
    for (size_t i = 0; i < workload->class_count; i++) {
        sim_tally_init(&w->classes[i], workload->classes[i]);
    }
    if (w->options.trace != NULL) {
        sim_tally_init(&w->classes[workload->class_count], "trace");
        for (size_t i = 0; i < trace->class_count; i++) {
            sim_tally_init(&w->classes[workload->class_count + 1 + i], trace->classes[i]);
        }
    }
}

static void sources_open(struct sim_world *w)
{
    const struct workload *workload = w->options.workload;

    w->source_count = workload->arrivals_count + (w->options.trace != NULL ? 1 : 0);
    w->sources = mem_array(w->source_count, sizeof *w->sources);
    for (size_t i = 0; i < workload->arrivals_count; i++) {
        source_open(w, &w->sources[i], &workload->arrivals[i]);
    }
    if (w->options.trace != NULL) {
        trace_open(w, &w->sources[workload->arrivals_count], w->options.trace);
    }
}

/* Does a `site` line name this place and no other? */
static bool named(const struct sim_world *w, const struct sim_place *place)
{
    const struct workload *workload = w->options.workload;

    for (size_t i = 0; i < workload->site_count; i++) {
        if (&workload->sites[i].model == place->site.model) {
            return strpbrk(workload->sites[i].pattern, "*?[") == NULL;
        }
    }
    return false;
}

/* Chooses destinations for the series: with `those_named` those that the workload names, else the
 * others in the order of their mail. */
static void follow(struct sim_world *w, bool those_named)
{
    for (uint32_t i = 0; i < w->places.count; i++) {
        const struct sim_place *place = w->places.list[i];

        if (w->series->dest_count < SIM_SERIES_DESTS_MAX && named(w, place) == those_named) {
            w->followed[w->series->dest_count] = i;
            w->series->names[w->series->dest_count++] = place->key;
        }
    }
}

static void series_open(struct sim_world *w)
{
    w->series = mem_new(sizeof *w->series);
    sim_series_init(w->series, SERIES_STEP_US);
    follow(w, true);
    follow(w, false);
}

struct sim_world *sim_world_new(const struct sim_options *options)
{
    struct sched_limits limits = tuning_limits(options->conf);
    struct sim_world *w = mem_new(sizeof *w);

    w->options = *options;
    sim_events_init(&w->events);
    w->sched = sched_new(&limits);
    sim_places_init(&w->places, options->conf, options->workload, w->sched, &w->events,
                    options->seed);
    STAILQ_INIT(&w->incoming);
    LIST_INIT(&w->deliveries);
    sim_parkings_init(&w->parkings);
    heap_init(&w->deferred, due_sooner);
    rng_init(&w->retry_rng, sim_stream_seed(options->seed, "retry times"));
    sim_tally_init(&w->result.total, "all");
    classes_open(w);
    sources_open(w);
    sim_places_rank(&w->places);
    w->sorted = mem_array(w->places.count, sizeof(struct sim_tally *));
    series_open(w);
    return w;
}

void sim_world_free(struct sim_world *w)
{
    struct delivery *f;

    if (w == NULL) {
        return;
    }
    while ((f = LIST_FIRST(&w->deliveries)) != NULL) {
        LIST_REMOVE(f, link);
        sim_site_abandon(&f->attempt);
        mem_free(f);
    }
    for (size_t i = 0; i < w->source_count; i++) {
        mem_free(w->sources[i].places);
    }
    for (size_t i = 0; w->trace_models != NULL && i < w->options.trace->domain_count; i++) {
        sim_site_model_fini(&w->trace_models[i]);
    }
    sim_places_fini(&w->places);
    for (size_t i = 0; i < w->class_count; i++) {
        sim_tally_fini(&w->classes[i]);
    }
    for (uint32_t i = 0; i < w->slot_size; i++) {
        if (w->slots[i] != NULL) {
            message_free(w, w->slots[i]);
        }
    }
    sim_parkings_fini(&w->parkings);
    heap_fini(&w->deferred);
    sim_events_fini(&w->events);
    sched_free(w->sched);
    sim_tally_fini(&w->result.total);
    mem_free(w->trace_models);
    mem_free(w->sources);
    sched_classes_free(w);
    mem_free(w->classes);
    mem_free(w->series);
    mem_free(w->sorted);
    mem_free(w->slots);
    mem_free(w->free_slots);
    mem_free(w);
}
