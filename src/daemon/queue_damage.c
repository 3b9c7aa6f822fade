/*
 * Messages on damaged pages of the database: they can be neither read nor set aside.
 *
 * Such a message stays claimed, so that nothing finds it again and other mail goes on. One that
 * could not be read is tried again after a while: the disk may have answered badly. One whose
 * results could not be stored is left alone until the next start, because each further try would
 * deliver it once more. The auditor tells of each, and a repair of the spool brings them back.
 */
#include "queue.h"

#include "clock.h"
#include "log.h"
#include "mem.h"

/* A message on damaged pages. */
struct unreadable {
    struct msg_id id;
    struct mono again; /* when it is to be tried */
    UT_hash_handle hh;
};

static struct unreadable *find(const struct queue *q, struct msg_id id)
{
    struct unreadable *u;

    HASH_FIND(hh, q->unreadable, &id, sizeof id, u);
    return u;
}

void damage_hide(struct queue *q, struct msg_id id, const char *why, bool try_again)
{
    struct unreadable *u = find(q, id);

    if (u == NULL) {
        u = mem_new(sizeof *u);
        u->id = id;
        HASH_ADD(hh, q->unreadable, id, sizeof u->id, u);
        auditor_tell_damage(q, id, why);
    }
    u->again = try_again ? mono_after(clock_mono(), QUEUE_UNREADABLE_US) : MONO_NEVER;
}

bool damage_is_hidden(const struct queue *q, struct msg_id id)
{
    return find(q, id) != NULL;
}

void damage_try_again(struct queue *q)
{
    struct unreadable *u, *next;

    HASH_ITER(hh, q->unreadable, u, next)
    {
        if (mono_reached(u->again, clock_mono())) {
            struct msg_id id = u->id;

            HASH_DEL(q->unreadable, u);
            mem_free(u);
            spool_unclaim(q->spool, id);
            q->next_due.us = 0;
        }
    }
}

void damage_end(struct queue *q)
{
    struct unreadable *u, *next;

    HASH_ITER(hh, q->unreadable, u, next)
    {
        HASH_DEL(q->unreadable, u);
        mem_free(u);
    }
}
