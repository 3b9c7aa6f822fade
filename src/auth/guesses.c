#include "guesses.h"

#include <string.h>
#include <sys/queue.h>

#include "hash.h"
#include "match.h"
#include "mem.h"

/* Bytes of an IPv6 address that name its network. */
#define NETWORK_BYTES 8

struct guesser {
    UT_hash_handle hh;
    TAILQ_ENTRY(guesser) next;
    uint64_t key;
    unsigned failures;
    struct mono last;
};

/* Addresses, users, or known addresses. */
struct guess_table {
    struct guesser *items;            /* hash by key */
    TAILQ_HEAD(, guesser) by_recency; /* ordered by last failure, the latest at the end */
};

struct guesses {
    struct guess_table clients, users;
    struct guess_table known; /* addresses, with successes in place of failures */
};

struct guesses *guesses_new(void)
{
    struct guesses *g = mem_new(sizeof *g);

    TAILQ_INIT(&g->clients.by_recency);
    TAILQ_INIT(&g->users.by_recency);
    TAILQ_INIT(&g->known.by_recency);
    return g;
}

static void remove_guesser(struct guess_table *t, struct guesser *item)
{
    HASH_DEL(t->items, item);
    TAILQ_REMOVE(&t->by_recency, item, next);
    mem_free(item);
}

static void empty(struct guess_table *t)
{
    struct guesser *item;

    while ((item = TAILQ_FIRST(&t->by_recency)) != NULL) {
        remove_guesser(t, item);
    }
}

void guesses_free(struct guesses *g)
{
    if (g != NULL) {
        empty(&g->clients);
        empty(&g->users);
        empty(&g->known);
        mem_free(g);
    }
}

uint64_t guesses_client(struct slice address)
{
    static const unsigned char mapped[12] = {[10] = 0xff, [11] = 0xff};
    unsigned char ip[16];

    if (!ip_parse(address, ip)) {
        return hash_bytes(address.ptr, address.len);
    }
    return hash_bytes(ip, memcmp(ip, mapped, sizeof mapped) == 0 ? sizeof ip : NETWORK_BYTES);
}

static bool is_forgotten(const struct guesser *item, struct mono now)
{
    return now.us - item->last.us >= GUESSES_FORGET_US;
}

static void count(struct guess_table *t, uint64_t key, struct mono now)
{
    struct guesser *item;

    HASH_FIND(hh, t->items, &key, sizeof key, item);
    if (item == NULL) {
        if (HASH_COUNT(t->items) >= GUESSES_MAX) {
            remove_guesser(t, TAILQ_FIRST(&t->by_recency));
        }
        item = mem_new(sizeof *item);
        item->key = key;
        HASH_ADD(hh, t->items, key, sizeof item->key, item);
    } else {
        TAILQ_REMOVE(&t->by_recency, item, next);
        if (is_forgotten(item, now)) {
            item->failures = 0;
        }
    }
    item->failures++;
    item->last = now;
    TAILQ_INSERT_TAIL(&t->by_recency, item, next);
}

static int64_t wait_us(const struct guess_table *t, uint64_t key, struct mono now)
{
    int64_t us = GUESSES_FIRST_US;
    const struct guesser *item;

    HASH_FIND(hh, t->items, &key, sizeof key, item);
    if (item == NULL || is_forgotten(item, now)) {
        return 0;
    }
    for (unsigned i = 1; i < item->failures && us < GUESSES_LONGEST_US; i++) {
        us *= 2;
    }
    return us < GUESSES_LONGEST_US ? us : GUESSES_LONGEST_US;
}

void guesses_failed(struct guesses *g, uint64_t client, struct slice user, struct mono now)
{
    count(&g->clients, client, now);
    if (user.len > 0) {
        count(&g->users, hash_bytes(user.ptr, user.len), now);
    }
}

void guesses_succeeded(struct guesses *g, uint64_t client, struct mono now)
{
    count(&g->known, client, now);
}

bool guesses_is_known(const struct guesses *g, uint64_t client)
{
    const struct guesser *item;

    HASH_FIND(hh, g->known.items, &client, sizeof client, item);
    return item != NULL;
}

bool guesses_has_failed(const struct guesses *g, uint64_t client, struct mono now)
{
    return wait_us(&g->clients, client, now) > 0;
}

int64_t guesses_wait_us(const struct guesses *g, uint64_t client, struct slice user,
                        struct mono now)
{
    int64_t own = wait_us(&g->clients, client, now);
    int64_t of_user = user.len > 0 ? wait_us(&g->users, hash_bytes(user.ptr, user.len), now) : 0;

    return own > of_user ? own : of_user;
}
