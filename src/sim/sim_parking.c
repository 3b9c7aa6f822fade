#include "sim_parking.h"

#include <string.h>

#include "check.h"
#include "hash.h"
#include "mem.h"

struct sim_parking {
    struct heap messages;
    UT_hash_handle hh;
    size_t key_len;
    char key[]; /* the transport's number, then the destination */
};

static bool older(const struct heap_node *a, const struct heap_node *b)
{
    return CONTAINER_OF(a, const struct sim_parked, node)->number <
           CONTAINER_OF(b, const struct sim_parked, node)->number;
}

static size_t key_size(struct slice dest)
{
    return sizeof(uint32_t) + dest.len;
}

static void key_write(char *key, uint32_t transport, struct slice dest)
{
    memcpy(key, &transport, sizeof transport);
    memcpy(key + sizeof transport, dest.ptr, dest.len);
}

static struct sim_parking *find(const struct sim_parkings *p, uint32_t transport, struct slice dest)
{
    struct sim_parking *parking;
    char *key = mem_new(key_size(dest));

    key_write(key, transport, dest);
    HASH_FIND(hh, p->by_key, key, key_size(dest), parking);
    mem_free(key);
    return parking;
}

static struct sim_parking *add(struct sim_parkings *p, uint32_t transport, struct slice dest)
{
    struct sim_parking *parking = mem_new(sizeof *parking + key_size(dest));

    heap_init(&parking->messages, older);
    parking->key_len = key_size(dest);
    key_write(parking->key, transport, dest);
    HASH_ADD_KEYPTR(hh, p->by_key, parking->key, parking->key_len, parking);
    return parking;
}

static void forget(struct sim_parkings *p, struct sim_parking *parking)
{
    HASH_DEL(p->by_key, parking);
    heap_fini(&parking->messages);
    mem_free(parking);
}

void sim_parkings_init(struct sim_parkings *p)
{
    *p = (struct sim_parkings){.count = 0};
}

void sim_parkings_fini(struct sim_parkings *p)
{
    struct sim_parking *parking, *next;

    HASH_ITER(hh, p->by_key, parking, next)
    {
        forget(p, parking);
    }
}

void sim_parked_init(struct sim_parked *m, uint64_t number)
{
    *m = (struct sim_parked){.number = number};
    heap_node_init(&m->node);
}

void sim_parking_add(struct sim_parkings *p, uint32_t transport, struct slice dest,
                     struct sim_parked *m)
{
    CHECK(m->parking == NULL);
    m->parking = find(p, transport, dest);
    if (m->parking == NULL) {
        m->parking = add(p, transport, dest);
    }
    heap_add(&m->parking->messages, &m->node);
    p->count++;
}

void sim_parking_remove(struct sim_parkings *p, struct sim_parked *m)
{
    CHECK(m->parking != NULL);
    heap_remove(&m->parking->messages, &m->node);
    if (heap_top(&m->parking->messages) == NULL) {
        forget(p, m->parking);
    }
    m->parking = NULL;
    p->count--;
}

struct sim_parked *sim_parking_first(const struct sim_parkings *p, uint32_t transport,
                                     struct slice dest)
{
    const struct sim_parking *parking = find(p, transport, dest);

    return parking == NULL ? NULL
                           : CONTAINER_OF(heap_top(&parking->messages), struct sim_parked, node);
}
