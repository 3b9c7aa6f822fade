#include "ids.h"

#include "check.h"
#include "mem.h"

#define SIZE_MIN 64

void ids_fini(struct ids *ids)
{
    mem_free(ids->slots);
    *ids = (struct ids){0};
}

/* Returns the slot that the id has if nothing collides. Fibonacci hashing: the upper half of the
 * product depends on all bits of the id. */
static size_t home(const struct ids *ids, uint64_t id)
{
    return (size_t)(id * UINT64_C(0x9e3779b97f4a7c15) >> 32) & (ids->size - 1);
}

/* Returns the slot of the id, or the free slot where the id would go. */
static size_t place(const struct ids *ids, uint64_t id)
{
    size_t i = home(ids, id);

    while (ids->slots[i].object != NULL && ids->slots[i].id != id) {
        i = (i + 1) & (ids->size - 1);
    }
    return i;
}

void *ids_find(const struct ids *ids, uint64_t id)
{
    return ids->size > 0 ? ids->slots[place(ids, id)].object : NULL;
}

static void grow(struct ids *ids)
{
    struct ids old = *ids;

    ids->size = old.size > 0 ? old.size * 2 : SIZE_MIN;
    CHECK(ids->size <= (size_t)1 << 32); /* `home` yields 32 bits */
    ids->slots = mem_array(ids->size, sizeof *ids->slots);
    for (size_t i = 0; i < old.size; i++) {
        if (old.slots[i].object != NULL) {
            ids->slots[place(ids, old.slots[i].id)] = old.slots[i];
        }
    }
    ids_fini(&old);
}

void ids_add(struct ids *ids, uint64_t id, void *object)
{
    struct ids_slot *slot;

    CHECK(object != NULL);
    if (ids->count >= ids->size / 4 * 3) {
        grow(ids);
    }
    slot = &ids->slots[place(ids, id)];
    CHECK(slot->object == NULL);
    *slot = (struct ids_slot){id, object};
    ids->count++;
}

void ids_remove(struct ids *ids, uint64_t id)
{
    size_t mask = ids->size - 1, hole, i;

    CHECK(ids->count > 0);
    hole = place(ids, id);
    CHECK(ids->slots[hole].object != NULL);
    /* Later ids that would no longer be found move into the hole, and each leaves another hole. */
    for (i = (hole + 1) & mask; ids->slots[i].object != NULL; i = (i + 1) & mask) {
        size_t from_home = (i - home(ids, ids->slots[i].id)) & mask;

        if (from_home >= ((i - hole) & mask)) {
            ids->slots[hole] = ids->slots[i];
            hole = i;
        }
    }
    ids->slots[hole].object = NULL;
    ids->count--;
}
