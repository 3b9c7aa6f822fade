/*
 * Threads at work. Destinations whose clause has an interval are tried again together, at the time
 * that thread.h finds; mail is given up at the age that expiry.h finds.
 *
 * Where messages can be divided (ZMailer's POSTOFFICE), recipients that are to be tried again leave
 * their message and wait under the retry key of their thread; so each thread starts at its own
 * time, and a whole thread is woken at once. Elsewhere the message waits as a whole, under that key
 * when one thread holds all of it.
 */
#include "queue.h"

#include <string.h>

#include "check.h"
#include "clock.h"
#include "log.h"
#include "match.h"
#include "mem.h"
#include "park_key.h"

#define EXPIRY_WORDS_MAX (2 * WIRE_NOTARY_MAX + 4 * WIRE_TEXT_MAX)

static char *key_of(const char *prefix, const char *transport, const char *dest)
{
    struct buf key;

    buf_init(&key, SPOOL_PARKED_MAX + 1);
    (void)buf_addf(&key, "%s%s/%s", prefix, transport, dest);
    CHECK(!key.failed); /* both names have their limits */
    (void)buf_cstr(&key);
    return buf_take(&key);
}

static char *retry_key(const struct queue *q, const struct site *site)
{
    return key_of(PARK_KEY_RETRY, q->transports[site->transport], site->destination);
}

/* ---- what is tried again -------------------------------------------------------------------- */

void again_begin(struct again *a, struct active_msg *m, const struct site *site)
{
    *a = (struct again){.msg = m, .site = site, .limit = WALL_NEVER};
    buf_init(&a->words, EXPIRY_WORDS_MAX);
}

static bool has_thread(const struct again *a)
{
    return a->site != NULL && thread_rules_apply(&a->site->rules);
}

void again_ran(struct queue *q, struct again *a, enum thread_end end, struct wall not_before)
{
    struct thread *thread;

    if (has_thread(a)) {
        thread = threads_need(&q->threads, a->site->transport, slice_string(a->site->destination),
                              clock_wall());
        a->at = thread_ran(&q->threads, thread, &a->site->rules, end, not_before, clock_wall(),
                           (unsigned)q->conf->retry_jitter, &q->rng);
    }
}

/* Is it the one destination that is served, if there is only one (-p)? */
static bool is_served(const struct queue *q, const struct site *site)
{
    struct slice dest = slice_string(q->conf->deliver_only), transport = slice_cut(&dest, '/');

    return q->conf->deliver_only[0] == '\0' ||
           (glob_match(transport, slice_string(q->transports[site->transport])) &&
            glob_match(dest, slice_string(site->destination)));
}

void again_waits(struct queue *q, struct again *a)
{
    struct thread *thread;

    if (has_thread(a)) {
        thread = threads_find(&q->threads, a->site->transport, slice_string(a->site->destination));
        a->at = !is_served(q, a->site) ? WALL_NEVER
                : thread != NULL && thread_waits(thread, clock_wall())
                    ? thread->retry.due
                    : wall_after(clock_wall(), THREAD_ALWAYS_US);
        a->stopped = thread != NULL && thread->stopped;
    }
}

/* What was last said of a recipient, when nothing is said now. Lasts until the spool is asked
 * again. */
static void last_words(struct queue *q, const struct again *a, uint32_t n, struct slice *ret_text,
                       struct slice *ret_notary)
{
    struct spool_rcpt r;
    size_t count = 0;

    if (spool_read_rcpts(q->spool, a->msg->id, n - 1, true, 1, &r, &count) == 0 && count == 1 &&
        r.n == n) {
        *ret_text = r.diagnostic;
        *ret_notary = r.notary;
    }
}

/* Turn the verdict into one of failure. Its words last as long as `a` or until the next. */
static void give_up(struct queue *q, struct again *a, uint32_t n, bool tried,
                    struct queue_verdict *v)
{
    int64_t age = expiry_age(&a->site->expiry, tried);
    struct slice text = v->text, notary = v->notary;
    size_t text_len;

    if (text.len == 0) {
        last_words(q, a, n, &text, &notary);
    }
    buf_clear(&a->words);
    expiry_put_text(&a->words, age, text);
    text_len = buf_len(&a->words);
    expiry_put_notary(&a->words, age, notary);
    CHECK(!a->words.failed); /* words and notary have their limits */
    v->kind = VERDICT_BOUNCED;
    v->expired = true;
    v->status = EXPIRY_STATUS;
    v->text = slice_of(buf_cstr(&a->words), text_len);
    v->notary = slice_skip(buf_slice(&a->words), text_len);
    q->expired++;
}

/* Is the recipient given up, as it would be tried again at `next`, or for its age now? */
static bool is_too_old(struct queue *q, struct again *a, uint32_t n, struct wall next,
                       struct queue_verdict *v)
{
    struct active_rcpt *r = active_find_rcpt(a->msg, n);
    struct wall limit;
    bool tried;

    CHECK(r != NULL);
    if (a->site == NULL || a->site->expiry.expiry_us == 0) {
        return false;
    }
    v->own_expiry = true;
    tried = r->tried || v->attempted || a->stopped; /* its site was, on behalf of it */
    limit = expiry_of(&a->site->expiry, a->msg->created, tried);
    if (limit.us <= (tried ? next : clock_wall()).us) {
        give_up(q, a, n, tried, v);
        return true;
    }
    a->limit = wall_min(a->limit, limit);
    return false;
}

bool again_judge(struct queue *q, struct again *a, uint32_t n, struct queue_verdict *v)
{
    bool has_time = a->at.us != 0 && a->at.us != US_FOREVER;

    if (is_too_old(q, a, n, has_time ? a->at : clock_wall(), v)) {
        return false;
    }
    v->again = true;
    if (a->count == a->size) {
        a->size = a->size == 0 ? 4 : 2 * a->size;
        a->ns = mem_resize(a->ns, a->size, sizeof *a->ns);
    }
    a->ns[a->count++] = n;
    return true;
}

/* They leave their message. Takes the key. */
static void put_off(struct queue *q, struct again *a, char *key, struct wall due)
{
    struct step *step = mem_new(sizeof *step);

    step->type = STEP_PUT_OFF;
    step->id = a->msg->id;
    step->ns = a->ns;
    step->ns_count = a->count;
    step->parked = key;
    step->again_at = due;
    a->ns = NULL;
    a->count = 0;
    a->msg->touched = true;
    queue_step(q, step);
    q->next_due = wall_min(q->next_due, due);
}

/* The message waits as a whole. */
static void note_in_message(struct queue *q, const struct again *a, struct wall due)
{
    struct active_msg *m = a->msg;
    char *key;

    m->lifetime_of_all = m->lifetime_of_all || a->site == NULL || a->site->expiry.expiry_us == 0;
    m->again_at = m->again_at.us == 0 ? due : wall_min(m->again_at, due);
    if (!has_thread(a)) {
        m->again_else = true;
        return;
    }
    key = retry_key(q, a->site);
    if (m->again_key == NULL) {
        m->again_key = key;
        return;
    }
    m->again_several = m->again_several || strcmp(key, m->again_key) != 0;
    mem_free(key);
}

void again_end(struct queue *q, struct again *a)
{
    struct thread *thread;
    struct wall due = a->limit;

    if (a->count > 0 && !a->msg->dropped) {
        if (has_thread(a) && !a->site->rules.queueonly) {
            due = wall_min(a->at, due);
        }
        if (has_thread(a) && spool_divides(q->spool)) {
            put_off(q, a, retry_key(q, a->site), due);
        } else {
            note_in_message(q, a, due);
        }
        thread = has_thread(a) ? threads_find(&q->threads, a->site->transport,
                                              slice_string(a->site->destination))
                               : NULL;
        if (thread != NULL) {
            thread_slept(thread);
        }
    }
    mem_free(a->ns);
    buf_fini(&a->words);
}

/* ---- mail that comes ------------------------------------------------------------------------ */

static bool is_running(const struct queue *q, const struct site *site, bool *ret_dead)
{
    struct sched_dest_info info;

    *ret_dead = false;
    if (!sched_dest_get(q->sched, site->transport, slice_string(site->destination), &info)) {
        return false;
    }
    *ret_dead = info.state == SCHED_DEST_DEAD_UNTIL;
    return info.busy > 0;
}

/* What was put off under the key becomes due. */
static size_t wake_key(struct queue *q, const char *key)
{
    size_t count = 0;

    if (spool_wake(q->spool, slice_string(key), clock_wall(), &count) != 0) {
        log_warning("%s: what waits there goes at its time: %s", key, spool_error(q->spool));
        return 0;
    }
    q->next_due = count > 0 ? (struct wall){0} : q->next_due;
    return count;
}

static void wake(struct queue *q, const struct site *site, struct thread *thread)
{
    char *key;

    if (thread_may_be_woken(thread, clock_wall())) {
        key = retry_key(q, site);
        (void)wake_key(q, key);
        mem_free(key);
        thread_woken(thread, false, clock_wall());
    }
}

/* Does a message go though its thread waits? New mail does, but for a site that failed a moment
 * ago. What has been in memory before goes in the run that woke it, until that stops; where
 * messages can't be divided, until something of it is deferred. */
static bool goes_before_time(const struct queue *q, const struct active_msg *m,
                             const struct thread_rules *rules, const struct thread *thread)
{
    if (m->fresh && rules->wakeuprestartonly) {
        return false;
    }
    if (m->fresh && m->created.us >= q->started.us) {
        return !thread_is_fresh_stop(thread, clock_wall());
    }
    return !thread->stopped && (m->fresh || spool_divides(q->spool) || !thread->asleep);
}

bool queue_thread_lets_go(struct queue *q, const struct active_msg *m, const struct site *site)
{
    const struct thread_rules *rules = &site->rules;
    struct slice dest = slice_string(site->destination);
    struct thread *thread;
    bool dead, waits;

    if (!thread_rules_apply(rules) || is_running(q, site, &dead)) {
        return true;
    }
    if (!is_served(q, site)) {
        return false;
    }
    thread = threads_find(&q->threads, site->transport, dest);
    waits = thread != NULL && thread_waits(thread, clock_wall());
    if (!m->wanted && (rules->queueonly || (waits && !goes_before_time(q, m, rules, thread)))) {
        return false;
    }
    if (dead) {
        sched_revive(q->sched, clock_mono(), site->transport, dest);
    }
    if (waits && m->fresh && m->created.us >= q->started.us) {
        wake(q, site, thread);
    }
    return true;
}

bool queue_thread_keeps(struct queue *q, struct active_msg *m, struct active_rcpt *r,
                        const struct site *site)
{
    struct queue_verdict v = {.kind = VERDICT_DEFERRED, .relay = SLICE("none"), .program = "error"};
    struct again a;
    bool keeps;

    if (!thread_rules_apply(&site->rules) && site->expiry.expiry_us == 0) {
        return false;
    }
    again_begin(&a, m, site);
    if (queue_thread_lets_go(q, m, site)) {
        keeps = is_too_old(q, &a, r->n, clock_wall(), &v);
    } else {
        again_waits(q, &a);
        keeps = true;
        if (again_judge(q, &a, r->n, &v)) {
            active_settle_rcpt(m, r); /* nothing new is to be said of it */
            m->touched = true;
        }
    }
    if (v.expired) {
        queue_settle(q, m, r->n, &v);
    }
    again_end(q, &a);
    return keeps;
}

bool queue_thread_defers(struct queue *q, struct active_msg *m, const struct sched_action *action)
{
    const struct site *site = pass_site_find(q, action->transport, action->dest);
    struct slice words = action->reason;
    struct again a;

    if (site == NULL || !thread_rules_apply(&site->rules) || !spool_divides(q->spool)) {
        return false;
    }
    again_begin(&a, m, site);
    again_waits(q, &a);
    for (size_t i = 0; i < action->rcpt_count; i++) {
        struct queue_verdict v = {
            .kind = VERDICT_DEFERRED, .text = words, .relay = SLICE("none"), .program = "error"};

        (void)again_judge(q, &a, action->rcpts[i], &v); /* a failure is settled like the others */
        queue_settle(q, m, action->rcpts[i], &v);
    }
    again_end(q, &a);
    return true;
}

void queue_thread_suspend(struct queue *q, const struct site *site, struct wall until,
                          struct slice reason)
{
    int64_t wait = until.us - clock_wall().us;

    if (wait > 0) {
        sched_suspend(q->sched, clock_mono(), site->transport, slice_string(site->destination),
                      mono_after(clock_mono(), wait), reason);
    }
}

/* ---- the life of threads -------------------------------------------------------------------- */

/* Is anything left for its destination? */
static bool is_empty(struct queue *q, const struct thread *thread)
{
    struct spool_filter filter = {.states = 0};
    struct sched_dest_info info;
    struct slice dest = slice_of(thread->dest, thread->dest_len);
    struct buf name;
    uint64_t count = 1;

    if (sched_dest_get(q->sched, thread->transport, dest, &info) && info.busy + info.waiting > 0) {
        return false;
    }
    buf_init(&name, SPOOL_PARKED_MAX);
    (void)buf_addf(&name, "%s/%s", q->transports[thread->transport], thread->dest); /* fits */
    filter.destination = buf_slice(&name);
    if (spool_count(q->spool, &filter, &count) != 0) {
        log_warning("spool: %s", spool_error(q->spool)); /* it is looked at again */
    }
    buf_fini(&name);
    return count == 0;
}

void queue_thread_note(struct queue *q, const struct site *site, size_t tried)
{
    struct slice dest;
    struct thread *thread;
    struct sched_dest_info info;

    if (site == NULL || !thread_rules_apply(&site->rules)) {
        return;
    }
    dest = slice_string(site->destination);
    thread = threads_need(&q->threads, site->transport, dest, clock_wall());
    thread->attempts += tried;
    if (sched_dest_get(q->sched, site->transport, dest, &info) && info.busy + info.waiting > 0) {
        return;
    }
    if (thread->retry.due.us == 0 && !thread->asleep) {
        threads_drop(&q->threads, thread); /* it has never failed: nothing is put off */
    } else if (!thread_waits(thread, clock_wall())) {
        thread_check_soon(&q->threads, thread, clock_wall());
    }
}

void queue_thread_turn(struct queue *q)
{
    struct thread *thread;

    for (int i = 0; i < THREADS_PER_TURN; i++) {
        thread = threads_check(&q->threads, clock_wall());
        if (thread == NULL) {
            return;
        }
        if (is_empty(q, thread)) {
            threads_drop(&q->threads, thread);
        }
    }
}

void queue_thread_ask_for(struct queue *q, struct slice wanted)
{
    char dest[SCHED_DEST_NAME_MAX];
    struct thread *thread;

    for (uint32_t i = 0; i < q->transport_count && wanted.len <= sizeof dest; i++) {
        struct slice rest = wanted, name = slice_cut(&rest, '/');

        if (rest.ptr == NULL || !slice_equal(name, slice_string(q->transports[i]))) {
            rest = wanted;
        }
        for (size_t j = 0; j < rest.len; j++) {
            dest[j] = ascii_lower(rest.ptr[j]);
        }
        thread = threads_find(&q->threads, i, slice_of(dest, rest.len));
        if (thread != NULL) {
            thread_woken(thread, true, clock_wall());
        }
    }
}

/* ---- mail that goes nowhere ----------------------------------------------------------------- */

void queue_stuck(struct queue *q, struct active_msg *m, uint32_t n, const struct route *route,
                 const char *why)
{
    char *key = key_of(PARK_KEY_STUCK, route->transport, route->destination);
    struct again a;

    again_begin(&a, m, NULL);
    queue_settle(q, m, n, /* which ends the recipient's strings, and with them the route */
                 &(struct queue_verdict){.kind = VERDICT_DEFERRED,
                                         .again = true,
                                         .status = SLICE("4.3.5"),
                                         .text = slice_string(why),
                                         .relay = SLICE("none"),
                                         .program = "error"});
    a.ns = mem_new(sizeof *a.ns);
    a.ns[a.count++] = n;
    put_off(q, &a, key, WALL_NEVER);
    again_end(q, &a);
}

void queue_try_stuck(struct queue *q)
{
    struct slice key;
    size_t count = 1;
    char *copy = mem_string(PARK_KEY_STUCK);

    while (spool_parked_keys(q->spool, slice_string(copy), 1, &key, &count) == 0 && count == 1 &&
           park_key_kind(key) == PARK_STUCK) {
        mem_free(copy);
        copy = mem_copy(key.ptr, key.len);
        (void)wake_key(q, copy);
    }
    mem_free(copy);
}
