#include "sim_parking.h"

#include <string.h>

#include "check.h"
#include "hash.h"
#include "mem.h"

struct sim_parking {
    struct heap messages;
    UT_hash_handle hh;
    size_t key_len;
    char key[];
};

static bool older(const struct heap_node *a, const struct heap_node *b)
{
    return CONTAINER_OF(a, const struct sim_parked, node)->number <
           CONTAINER_OF(b, const struct sim_parked, node)->number;
}

/* The bytes of a key are the transport's number, the length of the class, the kind, the class, and
 * the destination: no two keys have the same bytes. */
static size_t key_size(const struct sim_parking_key *key)
{
    return 3 * sizeof(uint32_t) + key->class_name.len + key->dest.len;
}

static void key_write(char *bytes, const struct sim_parking_key *key)
{
    uint32_t numbers[3] = {key->transport, (uint32_t)key->class_name.len, key->deferred};

    memcpy(bytes, numbers, sizeof numbers);
    memcpy(bytes + sizeof numbers, key->class_name.ptr, key->class_name.len);
    memcpy(bytes + sizeof numbers + key->class_name.len, key->dest.ptr, key->dest.len);
}

static struct sim_parking *find(const struct sim_parkings *p, const struct sim_parking_key *key)
{
    struct sim_parking *parking;
    char *bytes = mem_new(key_size(key));

    key_write(bytes, key);
    HASH_FIND(hh, p->by_key, bytes, key_size(key), parking);
    mem_free(bytes);
    return parking;
}

static struct sim_parking *add(struct sim_parkings *p, const struct sim_parking_key *key)
{
    struct sim_parking *parking = mem_new(sizeof *parking + key_size(key));

    heap_init(&parking->messages, older);
    parking->key_len = key_size(key);
    key_write(parking->key, key);
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

void sim_parking_add(struct sim_parkings *p, const struct sim_parking_key *key,
                     struct sim_parked *m)
{
    CHECK(m->parking == NULL);
    m->parking = find(p, key);
    if (m->parking == NULL) {
        m->parking = add(p, key);
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

struct sim_parked *sim_parking_first(const struct sim_parkings *p,
                                     const struct sim_parking_key *key)
{
    const struct sim_parking *parking = find(p, key);

    return parking == NULL ? NULL
                           : CONTAINER_OF(heap_top(&parking->messages), struct sim_parked, node);
}

static bool is_new_for(const struct sim_parking *parking, uint32_t transport, struct slice dest)
{
    uint32_t numbers[3];
    size_t at;

    memcpy(numbers, parking->key, sizeof numbers);
    at = sizeof numbers + numbers[1];
    return numbers[0] == transport && numbers[2] == 0 &&
           slice_equal(slice_of(parking->key + at, parking->key_len - at), dest);
}

void sim_parkings_defer(struct sim_parkings *p, uint32_t transport, struct slice dest)
{
    struct sim_parking *parking, *next;

    HASH_ITER(hh, p->by_key, parking, next)
    {
        struct sim_parking_key key = {.transport = transport, .dest = dest, .deferred = true};
        struct sim_parking *to;
        uint32_t numbers[3];

        if (!is_new_for(parking, transport, dest)) {
            continue;
        }
        memcpy(numbers, parking->key, sizeof numbers);
        key.class_name = slice_of(parking->key + sizeof numbers, numbers[1]);
        to = find(p, &key);
        to = to != NULL ? to : add(p, &key);
        for (struct heap_node *top; (top = heap_top(&parking->messages)) != NULL;) {
            struct sim_parked *m = CONTAINER_OF(top, struct sim_parked, node);

            heap_remove(&parking->messages, top);
            heap_add(&to->messages, top);
            m->parking = to;
        }
        forget(p, parking);
    }
}
