/*
 * Chores: work of a single fact on any number of destinations or entries, done in pieces so that
 * nothing stalls. The first piece is done with the fact, another with each sched_next. As long as
 * something is left, sched_wake_at returns the present time.
 *
 * A whole transport gets another policy or is made ready again: each destination must follow. Each
 * such change has a number (`sched.told`), so that a destination that is used before the sweep
 * reaches it follows at that time (dest_catch_up). Nothing is selected and nothing deferred until
 * all have followed.
 *
 * A failing destination in the line of a ring must be held back instead of served: the next ones in
 * line are checked.
 *
 * A message is dropped: its waiting entries are freed. Until then they are no candidates, and a
 * selected one is forgotten instead of delivered.
 */
#include "check.h"
#include "mem.h"
#include "sched_private.h"

/* ---- destinations --------------------------------------------------------------------------- */

void dest_catch_up(struct dest *d)
{
    const struct transport *t = d->transport;
    uint32_t told = d->told;

    if (told == t->sched->told) {
        return;
    }
    d->told = t->sched->told;
    if (t->policy_told > told) {
        if (d->idle) { /* its owner sets its own policy again with the next recipients */
            mem_free(d->policy);
            d->policy = NULL;
        }
        if (d->policy == NULL) {
            dest_limits_changed(d);
        }
    }
    if (t->revive_told > told && (d->state == DEST_DEAD || d->probing)) {
        dest_revive(d);
    }
}

/* Sweeps from the last slot down: when a destination is freed, the last one takes its slot, which
 * was swept already. */
static void sweep(struct sched *s)
{
    if (s->sweep_at > s->dest_count) {
        s->sweep_at = s->dest_count;
    }
    for (uint32_t n = s->at_once; n > 0 && s->sweep_at > 0; n--) {
        struct dest *d = s->dests[--s->sweep_at];

        if (d->told != s->told) {
            dest_catch_up(d);
            dest_check(d);
        }
    }
}

uint32_t chore_sweep(struct sched *s)
{
    s->sweep_at = s->dest_count;
    return ++s->told;
}

bool chore_sweeping(const struct sched *s)
{
    return s->sweep_at > 0;
}

/* ---- dropped messages ----------------------------------------------------------------------- */

void chore_drop(struct sched *s, struct message *m)
{
    m->dropped = true;
    message_list(s, m, LIST_DROPPING);
}

static void drop_some(struct sched *s, struct mono now)
{
    struct message *m = TAILQ_FIRST(&s->dropping);

    if (m != NULL && message_forget_waiting(m, now, s->at_once)) {
        message_list(s, m, LIST_NONE);
        message_check(s, m);
    }
}

bool message_forget_waiting(struct message *m, struct mono now, uint32_t limit)
{
    struct job *j;

    SLIST_FOREACH(j, &m->jobs, of_message)
    {
        struct order_node *n = j->peers.first;
        while (n != NULL) {
            struct peer *p = CONTAINER_OF(n, struct peer, ring);
            bool last = false;

            n = n->next;
            while (!last && !TAILQ_EMPTY(&p->waiting)) {
                if (limit-- == 0) {
                    return false;
                }
                last = p->entries == 1; /* the peer is freed with it */
                entry_done(TAILQ_FIRST(&p->waiting), now);
            }
        }
    }
    return true;
}

/* ---- all of them ---------------------------------------------------------------------------- */

void chores_run(struct sched *s, struct mono now)
{
    sweep(s);
    drop_some(s, now);
}

bool chores_left(const struct sched *s)
{
    return s->sweep_at > 0 || !TAILQ_EMPTY(&s->dropping) || s->lines_left;
}
