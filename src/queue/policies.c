#include "policies.h"

#include <unistd.h>

#include "check.h"
#include "clock.h"
#include "log.h"
#include "queue.h"

static void pull_answers(struct queue *q)
{
    struct sts_cache_answer a;

    while (sts_cache_next_answer(q->policies.cache, &a)) {
        const char *policy = a.domain == NULL ? NULL : sts_domain_policy(a.domain, clock_mono());
        struct wire_policy_answer m = {.token = a.token, .policy = slice_string(policy)};
        struct channel *channel = agents_channel(&q->agents, a.asker);

        if (channel != NULL) {
            wire_put_policy_answer(channel, &m);
        }
    }
}

static void pull_checks(struct policies *p)
{
    const struct sts_domain *d;

    while (p->fetch != NULL && (d = sts_cache_next_check(p->cache)) != NULL) {
        const struct wire_fetch m = {.domain = slice_string(d->name),
                                     .id = slice_string(sts_domain_known_id(d, clock_mono())),
                                     .always = d->always};
        wire_put_fetch(p->fetch, &m);
    }
}

/* Returns true if there is more to store. */
static bool store_some(struct policies *p, unsigned most)
{
    const struct sts_domain *d = NULL;

    for (unsigned i = 0; i < most && (d = sts_cache_next_change(p->cache)) != NULL; i++) {
        sts_store_put(p->store, d, clock_mono(), clock_wall());
    }
    return d != NULL;
}

/* ---- the process that fetches --------------------------------------------------------------- */

static void log_effect(const struct policies *p, const struct wire_fetched *m,
                       enum sts_effect effect)
{
    const struct sts_domain *d = sts_cache_find(p->cache, m->domain);

    if (d != NULL && effect == STS_FAILED) {
        log_warning("%s: MTA-STS policy: %s; %s", d->name, d->why,
                    sts_domain_policy(d, clock_mono()) != NULL ? "the previous one holds"
                                                               : "mail goes as if there were none");
    } else if (d != NULL && effect == STS_CHANGED && d->policy != NULL) {
        log_info("%s: MTA-STS policy: id %s, mode %s, max_age %lld s", d->name, d->id,
                 sts_mode_name(d->mode), (long long)us_seconds(d->until.us - d->fetched.us));
    }
}

static bool take_fetched(struct policies *p, const struct frame *frame)
{
    struct wire_fetched m;
    enum sts_effect effect;

    if (frame->fd >= 0) {
        (void)close(frame->fd); /* fetch sends none */
        return false;
    }
    if (frame->type != WIRE_FETCHED || !wire_get_fetched(frame->body, &m)) {
        return false;
    }
    effect = sts_cache_result(p->cache, clock_mono(), &m);
    log_effect(p, &m, effect);
    return effect != STS_REFUSED;
}

static void lose_fetch(struct policies *p)
{
    channel_free(p->fetch);
    p->fetch = NULL;
    sts_cache_lost(p->cache, clock_mono());
    pull_answers(p->queue);
}

static void on_fetch(void *arg, struct channel *ch)
{
    struct policies *p = arg;
    struct frame frame;
    enum channel_event event;

    queue_clock_look(p->queue);
    while ((event = channel_next(ch, &frame)) == CHANNEL_FRAME) {
        if (!take_fetched(p, &frame)) {
            log_error("fetch: protocol violation: connection closed");
            event = CHANNEL_CLOSED;
            break;
        }
        pull_answers(p->queue);
    }
    if (event == CHANNEL_CLOSED) {
        lose_fetch(p);
    }
}

void policies_adopt(struct queue *q, int fd)
{
    struct policies *p = &q->policies;

    if (p->fetch != NULL) {
        lose_fetch(p);
    }
    p->fetch = channel_new(q->role->base, fd, on_fetch, p);
}

/* ---- delivering processes ------------------------------------------------------------------ */

bool policies_ask(struct queue *q, uint32_t agent, struct slice body)
{
    struct wire_policy_ask m;

    if (!wire_get_policy_ask(body, &m) || !sts_domain_valid(m.domain)) {
        return false;
    }
    sts_cache_ask(q->policies.cache, clock_mono(), m.domain, agent, m.token);
    pull_answers(q);
    return true;
}

void policies_asker_lost(struct queue *q, uint32_t agent)
{
    sts_cache_asker_lost(q->policies.cache, agent);
}

/* ---- begin, end, turn ---------------------------------------------------------------------- */

void policies_begin(struct queue *q)
{
    struct policies *p = &q->policies;

    *p = (struct policies){.queue = q, .cache = sts_cache_new(clock_mono())};
    p->store = sts_store_open(q->conf->state_directory);
    sts_store_load(p->store, p->cache, clock_mono(), clock_wall());
}

void policies_end(struct queue *q)
{
    struct policies *p = &q->policies;

    (void)store_some(p, STS_POLICIES_MAX + STS_DOMAINS_MAX); /* all of them */
    channel_free(p->fetch);
    sts_store_close(p->store);
    sts_cache_free(p->cache);
}

void policies_turn(struct queue *q)
{
    struct policies *p = &q->policies;

    sts_cache_tick(p->cache, clock_mono());
    pull_answers(q);
    pull_checks(p);
    p->store_more = store_some(p, POLICIES_STORE_TURN);
}

struct mono policies_wake_at(const struct policies *p)
{
    return p->store_more ? (struct mono){0} : sts_cache_wake_at(p->cache);
}
