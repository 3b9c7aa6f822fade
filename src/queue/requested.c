#include "requested.h"

#include "hash.h"
#include "mem.h"

struct requested_message {
    struct msg_id id;
    UT_hash_handle hh;
};

static struct requested_message *find(const struct requested *r, struct msg_id id)
{
    struct requested_message *m;

    HASH_FIND(hh, r->table, &id, sizeof id, m);
    return m;
}

static void forget(struct requested *r, struct requested_message *m)
{
    HASH_DEL(r->table, m);
    mem_free(m);
}

void requested_add(struct requested *r, struct msg_id id)
{
    struct requested_message *m;

    if (find(r, id) != NULL || HASH_COUNT(r->table) >= REQUESTED_MAX) {
        return;
    }
    m = mem_new(sizeof *m);
    m->id = id;
    HASH_ADD(hh, r->table, id, sizeof m->id, m);
}

bool requested_take(struct requested *r, struct msg_id id)
{
    struct requested_message *m = find(r, id);

    if (m == NULL) {
        return false;
    }
    forget(r, m);
    return true;
}

void requested_fini(struct requested *r)
{
    struct requested_message *m, *next;

    HASH_ITER(hh, r->table, m, next)
    {
        forget(r, m);
    }
}
