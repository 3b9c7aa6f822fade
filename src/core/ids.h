/*
 * A hash table from 64-bit ids to pointers.
 *
 * Open addressing: an id whose own slot is taken is in one of the next slots (Knuth, "The Art of
 * Computer Programming" 3, 6.4, algorithms L and R, with deletion by moving back). The owner
 * chooses the ids, no stranger does, so one multiplication scatters them well enough.
 *
 * uthash, which is used everywhere else, would cost more here. Its handle takes 56 bytes of each
 * message, an eighth of the size of a job. An insertion or deletion touches up to four other
 * messages, each of them a cache miss when there are a million.
 *
 * The table is never more than three quarters full, doubles and does not shrink. Valid when zeroed.
 */
#ifndef CORE_IDS_H
#define CORE_IDS_H

#include <stddef.h>
#include <stdint.h>

struct ids_slot {
    uint64_t id;
    void *object; /* NULL if the slot is free */
};

struct ids {
    struct ids_slot *slots; /* owned */
    size_t size;            /* 0 or a power of two */
    uint32_t count;
};

void ids_fini(struct ids *ids);

/* Returns the object, or NULL. */
void *ids_find(const struct ids *ids, uint64_t id);

/* Adds an id that is not in the table; the object must not be NULL. */
void ids_add(struct ids *ids, uint64_t id, void *object);

/* Removes an id that is in the table. */
void ids_remove(struct ids *ids, uint64_t id);

/* Returns the object in a slot below ids->size, or NULL; to iterate over all objects. */
static inline void *ids_at(const struct ids *ids, size_t slot)
{
    return ids->slots[slot].object;
}

#endif
