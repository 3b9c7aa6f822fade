/*
 * A table from 64-bit ids to pointers.
 *
 * Open addressing: an id that is not at its place is in one of the next (Knuth, "The Art of
 * Computer Programming" 3, 6.4, algorithms L and R, with deletion by moving back). Ids are the
 * owner's, no stranger chooses them, so one multiplication scatters them well enough.
 *
 * Why not uthash as everywhere else: its handle takes 56 bytes of each message, an eighth of what a
 * job costs, and an insertion or deletion touches up to four other messages, each of them a cache
 * miss when there are a million.
 *
 * It is never more than three quarters full, doubles and does not shrink. Valid when zeroed.
 */
#ifndef CORE_IDS_H
#define CORE_IDS_H

#include <stddef.h>
#include <stdint.h>

struct ids_slot {
    uint64_t id;
    void *object; /* NULL: free */
};

struct ids {
    struct ids_slot *slots; /* owned */
    size_t size;            /* 0 or a power of two */
    uint32_t count;
};

void ids_fini(struct ids *ids);

/* The object, or NULL. */
void *ids_find(const struct ids *ids, uint64_t id);

/* Add an id that is not in the table; object is not NULL. */
void ids_add(struct ids *ids, uint64_t id, void *object);

/* Remove an id that is in the table. */
void ids_remove(struct ids *ids, uint64_t id);

/* To go over all of them: the object in a slot below ids->size, or NULL. */
static inline void *ids_at(const struct ids *ids, size_t slot)
{
    return ids->slots[slot].object;
}

#endif
