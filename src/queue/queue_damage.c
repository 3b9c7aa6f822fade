#include "queue_damage.h"

#include "clock.h"
#include "hash.h"
#include "mem.h"
#include "queue.h"

struct damaged_message {
    struct msg_id id;
    struct mono again; /* when it is to be tried */
    UT_hash_handle hh;
};

static struct damaged_message *find(const struct damage *d, struct msg_id id)
{
    struct damaged_message *m;

    HASH_FIND(hh, d->table, &id, sizeof id, m);
    return m;
}

void damage_hide(struct queue *q, struct msg_id id, const char *why, bool try_again)
{
    struct damaged_message *m = find(&q->damage, id);

    if (m == NULL) {
        m = mem_new(sizeof *m);
        m->id = id;
        HASH_ADD(hh, q->damage.table, id, sizeof m->id, m);
        auditor_tell_damage(q, id, why);
    }
    m->again = try_again ? mono_after(clock_mono(), QUEUE_UNREADABLE_US) : MONO_NEVER;
}

bool damage_is_hidden(const struct damage *d, struct msg_id id)
{
    return find(d, id) != NULL;
}

void damage_try_again(struct queue *q)
{
    struct damaged_message *m, *next;

    HASH_ITER(hh, q->damage.table, m, next)
    {
        if (mono_reached(m->again, clock_mono())) {
            struct msg_id id = m->id;

            HASH_DEL(q->damage.table, m);
            mem_free(m);
            spool_unclaim(q->spool, id);
            import_now(&q->import);
        }
    }
}

void damage_fini(struct damage *d)
{
    struct damaged_message *m, *next;

    HASH_ITER(hh, d->table, m, next)
    {
        HASH_DEL(d->table, m);
        mem_free(m);
    }
}
