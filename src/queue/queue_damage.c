#include "queue_damage.h"

#include "check.h"
#include "clock.h"
#include "hash.h"
#include "log.h"
#include "mem.h"
#include "queue.h"
#include "unstored.h"

enum damaged_state {
    DAMAGED_HIDDEN,  /* no result waits */
    DAMAGED_RESTING, /* `results` wait */
    DAMAGED_TRYING,  /* results are in the batch again, not here */
};

struct damaged_message {
    struct msg_id id;
    enum damaged_state state;
    struct mono again; /* time of the next try */
    int64_t rest_us;   /* wait after the next failure */
    bool is_awaited;   /* another node waits for it */
    struct step_list results;
    char *why;
    UT_hash_handle hh;
};

static struct damaged_message *find(const struct damage *d, struct msg_id id)
{
    struct damaged_message *m;

    HASH_FIND(hh, d->table, &id, sizeof id, m);
    return m;
}

static struct damaged_message *need(struct queue *q, struct msg_id id, const char *why)
{
    struct damaged_message *m = find(&q->damage, id);

    if (m == NULL) {
        m = mem_new(sizeof *m);
        m->id = id;
        STAILQ_INIT(&m->results);
        m->rest_us = QUEUE_REST_US;
        HASH_ADD(hh, q->damage.table, id, sizeof m->id, m);
        auditor_tell_damage(q, id, why);
    }
    mem_free(m->why);
    m->why = mem_string(why);
    return m;
}

static void set_state(struct damage *d, struct damaged_message *m, enum damaged_state state)
{
    d->resting -= m->state == DAMAGED_RESTING;
    d->resting += state == DAMAGED_RESTING;
    m->state = state;
}

static void forget(struct damage *d, struct damaged_message *m)
{
    set_state(d, m, DAMAGED_HIDDEN);
    HASH_DEL(d->table, m);
    batch_free_steps(&m->results);
    mem_free(m->why);
    mem_free(m);
}

static void tell_lost(struct msg_id id)
{
    char text[SPOOL_ID_TEXT_MAX];

    spool_id_print(id, text);
    log_warning("%s: its result could not be stored: what was delivered may be delivered again",
                text);
}

void damage_hide(struct queue *q, struct msg_id id, const char *why, bool try_again)
{
    struct damaged_message *m = need(q, id, why);

    m->again = try_again ? mono_after(clock_mono(), QUEUE_UNREADABLE_US) : MONO_NEVER;
}

void damage_rest(struct queue *q, struct msg_id id, const char *why, struct step_list *results)
{
    struct damaged_message *m = need(q, id, why);

    CHECK(m->state != DAMAGED_RESTING); /* later results are appended to the waiting ones */
    STAILQ_CONCAT(&m->results, results);
    set_state(&q->damage, m, DAMAGED_RESTING);
    m->again = mono_after(clock_mono(), m->rest_us);
    if (m->is_awaited) {
        damage_leave(q, id, true);
    }
    m->rest_us = m->rest_us * 2 < QUEUE_REST_MAX_US ? m->rest_us * 2 : QUEUE_REST_MAX_US;
}

void damage_resume(struct queue *q, struct msg_id id, struct step_list *results)
{
    damage_rest(q, id, "its results could not be stored before the last end of this process",
                results);
    find(&q->damage, id)->again = clock_mono();
}

bool damage_is_hidden(const struct damage *d, struct msg_id id)
{
    return find(d, id) != NULL;
}

struct step_list *damage_results(const struct damage *d, struct msg_id id)
{
    struct damaged_message *m = find(d, id);

    return m != NULL && m->state == DAMAGED_RESTING ? &m->results : NULL;
}

const char *damage_why(const struct damage *d, struct msg_id id, struct mono *ret_again)
{
    const struct damaged_message *m = find(d, id);

    if (m == NULL) {
        return NULL;
    }
    *ret_again = m->again;
    return m->why;
}

/* Gives the message back to the spool, to be read again. */
static void give_back(struct queue *q, struct damaged_message *m)
{
    struct msg_id id = m->id;

    forget(&q->damage, m);
    spool_unclaim(q->spool, id);
    import_now(&q->import);
}

void damage_stored(struct queue *q, struct msg_id id, bool is_last)
{
    struct damaged_message *m = find(&q->damage, id);

    if (m == NULL || m->state != DAMAGED_TRYING || !is_last) {
        return;
    }
    unstored_forget(q, id);
    set_state(&q->damage, m, DAMAGED_HIDDEN); /* deliveries in flight have perhaps not ended */
    for (m = q->damage.table; m != NULL; m = m->hh.next) {
        if (m->state != DAMAGED_TRYING) {
            m->again = m->again.us != MONO_NEVER.us ? clock_mono() : MONO_NEVER;
        }
    }
}

void damage_drop(struct queue *q, struct msg_id id)
{
    struct damaged_message *m = find(&q->damage, id);

    if (m != NULL) {
        if (m->state == DAMAGED_RESTING) {
            tell_lost(id);
        }
        unstored_forget(q, id);
        forget(&q->damage, m);
    }
}

void damage_leave(struct queue *q, struct msg_id id, bool at_once)
{
    struct damaged_message *m = find(&q->damage, id);

    if (m == NULL) {
        return;
    }
    m->is_awaited |= at_once;
    if (m->state != DAMAGED_TRYING) {
        m->again = clock_mono();
    }
    if (m->state == DAMAGED_RESTING && at_once) {
        tell_lost(id);
        unstored_forget(q, id);
        batch_free_steps(&m->results);
        set_state(&q->damage, m, DAMAGED_HIDDEN);
    }
}

void damage_try_again(struct queue *q)
{
    struct damaged_message *m, *next;
    unsigned tries = 0;

    HASH_ITER(hh, q->damage.table, m, next)
    {
        if (!mono_reached(m->again, clock_mono())) {
            continue;
        }
        if (m->state == DAMAGED_HIDDEN && active_find(&q->active, m->id) == NULL) {
            give_back(q, m);
        } else if (m->state == DAMAGED_RESTING && q->clients.commits_work &&
                   tries < QUEUE_REST_TRIES && (tries > 0 || !batch_is_blocked(&q->batch))) {
            set_state(&q->damage, m, DAMAGED_TRYING);
            batch_add_again(q, &m->results);
            tries++;
        }
    }
    if (tries > 0) {
        batch_redo(q);
    }
}

void damage_fini(struct damage *d)
{
    struct damaged_message *m, *next;

    HASH_ITER(hh, d->table, m, next)
    {
        forget(d, m);
    }
}
