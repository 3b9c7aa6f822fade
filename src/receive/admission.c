#include "admission.h"

#include <string.h>

#include "check.h"
#include "hash.h"
#include "mem.h"

enum level { LEVEL_ADDRESS = 1, LEVEL_NETWORK };

/* Addresses that share a prefix. A block exists while it has places or is remembered. */
struct admission_block {
    struct block_key {
        unsigned char ip[16]; /* address; the bits after the prefix are 0 */
        unsigned char level;
        unsigned char bits; /* prefix length, because a reload may change it */
    } key;
    uint64_t places;
    LIST_HEAD(, place) list; /* places of a network; empty in an address */
    int64_t debt_us;         /* of an address: the time waited in vain, as of debt_at */
    struct mono debt_at;
    bool remembered;
    TAILQ_ENTRY(admission_block) next;
    UT_hash_handle hh;
};

const char *admission_limit_name(enum admission_limit limit)
{
    static const char *const names[ADMISSION_LIMITS] = {
        "smtpd_client_connection_count_limit",
        "smtpd_client_connection_share",
        "smtpd_connection_limit",
        "smtpd_memory_limit",
    };

    CHECK(limit < ADMISSION_LIMITS);
    return names[limit];
}

/* ---- blocks --------------------------------------------------------------------------------- */

static struct block_key key_of(const struct admission_limits *limits, const unsigned char ip[16],
                               enum level level)
{
    static const unsigned char mapped[12] = {[10] = 0xff, [11] = 0xff};
    struct block_key key;
    unsigned bits;

    memset(&key, 0, sizeof key); /* padding is hashed, too */
    if (memcmp(ip, mapped, sizeof mapped) == 0) {
        bits = 96 + (level == LEVEL_ADDRESS ? limits->address_bits4 : limits->network_bits4);
    } else {
        bits = level == LEVEL_ADDRESS ? limits->address_bits6 : limits->network_bits6;
    }
    CHECK(bits <= 128);
    memcpy(key.ip, ip, bits / 8);
    if (bits % 8 != 0) {
        key.ip[bits / 8] = (unsigned char)(ip[bits / 8] & (0xff00u >> (bits % 8)));
    }
    key.level = (unsigned char)level;
    key.bits = (unsigned char)bits;
    return key;
}

static struct admission_block *block_find(const struct admission *a,
                                          const struct admission_limits *limits,
                                          const unsigned char ip[16], enum level level)
{
    struct block_key key = key_of(limits, ip, level);
    struct admission_block *b;

    HASH_FIND(hh, a->blocks, &key, sizeof key, b);
    return b;
}

static struct admission_block *block_need(struct admission *a,
                                          const struct admission_limits *limits,
                                          const unsigned char ip[16], enum level level)
{
    struct admission_block *b = block_find(a, limits, ip, level);

    if (b == NULL) {
        b = mem_new(sizeof *b);
        b->key = key_of(limits, ip, level);
        LIST_INIT(&b->list);
        HASH_ADD(hh, a->blocks, key, sizeof b->key, b);
    }
    return b;
}

static void block_free(struct admission *a, struct admission_block *b)
{
    CHECK(b->places == 0);
    if (b->remembered) {
        TAILQ_REMOVE(&a->remembered, b, next);
        a->remembered_count--;
    }
    HASH_DEL(a->blocks, b);
    mem_free(b);
}

/* Returns the part of the debt that is left at `now`. */
static int64_t block_debt(const struct admission_block *b, struct mono now)
{
    int64_t halves =
        b == NULL || b->debt_us == 0 ? 63 : (now.us - b->debt_at.us) / ADMISSION_FORGET_US;

    return halves >= 63 ? 0 : b->debt_us >> halves;
}

/* Removes one place; frees or remembers the block when it was the last. */
static void block_leave(struct admission *a, struct admission_block *b)
{
    CHECK(b->places > 0);
    if (--b->places > 0) {
        return;
    }
    if (b->debt_us == 0) {
        block_free(a, b);
        return;
    }
    b->remembered = true;
    TAILQ_INSERT_TAIL(&a->remembered, b, next);
    a->remembered_count++;
    if (a->remembered_count > ADMISSION_REMEMBERED_MAX) {
        block_free(a, TAILQ_FIRST(&a->remembered));
    }
}

static void block_enter(struct admission *a, struct admission_block *b)
{
    b->places++;
    if (b->remembered) {
        TAILQ_REMOVE(&a->remembered, b, next);
        a->remembered_count--;
        b->remembered = false;
    }
}

/* ---- costs ---------------------------------------------------------------------------------- */

static double cost_of(uint64_t places, double rate)
{
    return (double)places / (rate + 1);
}

static uint64_t place_weight(const struct place *p)
{
    return p->exempt || p->network == NULL ? 1 : p->network->places;
}

static double place_cost(const struct place *p, struct mono now)
{
    return cost_of(place_weight(p), client_pace_rate(&p->pace, now));
}

static bool may_lose(const struct place *p, const struct admission_limits *limits, struct mono now)
{
    return client_pace_waits(&p->pace) &&
           client_pace_waited_us(&p->pace, now) >= limits->patience_us;
}

/* Returns the cost that a newcomer would have. */
static double newcomer_cost(const struct admission_block *address,
                            const struct admission_block *network, bool exempt, struct mono now)
{
    struct client_pace pace;

    client_pace_begin(&pace, now, block_debt(address, now));
    return cost_of(exempt || network == NULL ? 1 : network->places + 1,
                   client_pace_rate(&pace, now));
}

/* ---- victims -------------------------------------------------------------------------------- */

static void forget_candidates(struct admission *a)
{
    for (size_t i = 0; i < a->candidate_count; i++) {
        if (a->candidates[i] != NULL) {
            a->candidates[i]->candidate = 0;
        }
    }
    a->candidate_count = a->candidate_next = 0;
}

/* Walks over all strangers and collects those of the highest cost. */
static void find_candidates(struct admission *a, const struct admission_limits *limits,
                            struct mono now)
{
    double costs[ADMISSION_CANDIDATES];
    size_t wanted = a->count / 16, count = 0, at;

    wanted = wanted < 1 ? 1 : wanted > ADMISSION_CANDIDATES ? ADMISSION_CANDIDATES : wanted;
    forget_candidates(a);
    for (size_t i = 0; i < a->count; i++) {
        struct place *p = a->all[i];
        double cost;

        if (p->trusted || !may_lose(p, limits, now)) {
            continue;
        }
        cost = place_cost(p, now);
        if (count == wanted) {
            if (cost <= costs[count - 1]) {
                continue;
            }
            count--;
        }
        for (at = count; at > 0 && costs[at - 1] < cost; at--) {
            costs[at] = costs[at - 1];
            a->candidates[at] = a->candidates[at - 1];
        }
        costs[at] = cost;
        a->candidates[at] = p;
        count++;
    }
    a->candidate_count = count;
    for (size_t i = 0; i < count; i++) {
        a->candidates[i]->candidate = i + 1;
    }
    a->candidate_cost = count > 0 ? costs[count - 1] : 0;
    if (count == 0) {
        a->no_victim_until = mono_after(now, ADMISSION_AGAIN_US);
    }
}

/* Returns the first candidate that is still a victim at its former cost, or NULL. */
static struct place *next_candidate(struct admission *a, const struct admission_limits *limits,
                                    struct mono now)
{
    for (; a->candidate_next < a->candidate_count; a->candidate_next++) {
        struct place *p = a->candidates[a->candidate_next];

        if (p != NULL && may_lose(p, limits, now) && place_cost(p, now) >= a->candidate_cost) {
            return p;
        }
    }
    return NULL;
}

static struct place *worst_stranger(struct admission *a, const struct admission_limits *limits,
                                    struct mono now)
{
    struct place *p = next_candidate(a, limits, now);

    if (p == NULL && mono_reached(a->no_victim_until, now)) {
        find_candidates(a, limits, now);
        p = next_candidate(a, limits, now);
    }
    return p;
}

/* Returns the victim among all clients, for when trusted clients have more than their reserve. */
static struct place *worst_of_all(const struct admission *a, const struct admission_limits *limits,
                                  struct mono now)
{
    struct place *worst = NULL;
    double worst_cost = 0;

    for (size_t i = 0; i < a->count; i++) {
        struct place *p = a->all[i];
        double cost = may_lose(p, limits, now) ? place_cost(p, now) : 0;

        if (cost > worst_cost) {
            worst = p;
            worst_cost = cost;
        }
    }
    return worst;
}

static struct place *worst_of_network(const struct admission_block *network,
                                      const struct admission_limits *limits, struct mono now)
{
    struct place *worst = NULL, *p;
    double worst_rate = 0;

    LIST_FOREACH(p, &network->list, of_network)
    {
        double rate;

        if (!may_lose(p, limits, now)) {
            continue;
        }
        rate = client_pace_rate(&p->pace, now);
        if (worst == NULL || rate < worst_rate) {
            worst = p;
            worst_rate = rate;
        }
    }
    return worst;
}

struct place *admission_memory_victim(const struct admission *a,
                                      const struct admission_limits *limits,
                                      const struct place *self, struct mono now)
{
    struct place *worst = NULL;
    double worst_cost = 0;

    if (self != NULL) {
        worst_cost = place_cost(self, now) * (double)*self->held;
    }
    for (size_t i = 0; i < a->count; i++) {
        struct place *p = a->all[i];
        double cost;

        if (p == self || *p->held == 0 || !may_lose(p, limits, now)) {
            continue;
        }
        cost = place_cost(p, now) * (double)*p->held;
        if (cost > worst_cost) {
            worst = p;
            worst_cost = cost;
        }
    }
    return worst;
}

/* ---- places --------------------------------------------------------------------------------- */

static uint64_t free_places(const struct admission *a, const struct admission_limits *limits,
                            bool trusted)
{
    uint64_t all = limits->places > a->count ? limits->places - a->count : 0;
    uint64_t max = limits->places - limits->reserve;
    uint64_t strangers = max > a->strangers ? max - a->strangers : 0;

    return trusted || all < strangers ? all : strangers;
}

/* Returns the number of places that one network may hold now. */
static uint64_t allowance(const struct admission_limits *limits, uint64_t free)
{
    uint64_t allowed;

    if (limits->share_percent == 0) {
        return UINT64_MAX;
    }
    allowed = free / 100 * limits->share_percent + free % 100 * limits->share_percent / 100;
    return allowed < 1 ? 1 : allowed;
}

/* Admits a newcomer of this cost if the victim's cost is higher. */
static struct admission_answer replace(enum admission_limit limit, struct place *victim,
                                       double cost, struct mono now)
{
    bool worse = victim != NULL && place_cost(victim, now) > cost;

    return (struct admission_answer){worse, limit, worse ? victim : NULL};
}

struct admission_answer admission_ask(struct admission *a, const struct admission_limits *limits,
                                      const struct admission_client *client, struct mono now)
{
    struct admission_block *address = NULL, *network = NULL;
    uint64_t free = free_places(a, limits, client->trusted);
    double cost;
    struct place *victim;

    CHECK(limits->reserve < limits->places);
    if (client->ip != NULL) {
        address = block_find(a, limits, client->ip, LEVEL_ADDRESS);
        network = block_find(a, limits, client->ip, LEVEL_NETWORK);
    }
    if (!client->exempt && address != NULL && address->places >= limits->address_max) {
        return (struct admission_answer){false, ADMISSION_ADDRESS, NULL};
    }
    cost = newcomer_cost(address, network, client->exempt, now);
    if (!client->exempt && network != NULL && network->places >= allowance(limits, free)) {
        return replace(ADMISSION_NETWORK, worst_of_network(network, limits, now), cost, now);
    }
    if (free > 0) {
        return (struct admission_answer){.admitted = true};
    }
    victim = a->strangers >= limits->places - limits->reserve && !client->trusted
                 ? worst_stranger(a, limits, now)
                 : worst_of_all(a, limits, now);
    return replace(ADMISSION_PLACES, victim, cost, now);
}

void admission_enter(struct admission *a, const struct admission_limits *limits,
                     struct place *place, const struct admission_client *client,
                     const uint64_t *held, struct mono now)
{
    *place = (struct place){
        .drop = client->drop, .trusted = client->trusted, .exempt = client->exempt, .held = held};
    if (client->ip != NULL) {
        place->address = block_need(a, limits, client->ip, LEVEL_ADDRESS);
        place->network = block_need(a, limits, client->ip, LEVEL_NETWORK);
        block_enter(a, place->address);
        block_enter(a, place->network);
        LIST_INSERT_HEAD(&place->network->list, place, of_network);
    }
    client_pace_begin(&place->pace, now, block_debt(place->address, now));
    a->all = mem_grow(a->all, a->count, &a->room, sizeof *a->all);
    place->index = a->count;
    a->all[a->count++] = place;
    a->strangers += !place->trusted;
}

void admission_trust(struct admission *a, struct place *place)
{
    a->strangers -= !place->trusted;
    place->trusted = true;
}

void admission_leave(struct admission *a, struct place *place, bool in_vain, struct mono now)
{
    struct place *last = a->all[a->count - 1];

    CHECK(a->all[place->index] == place);
    if (place->candidate > 0) {
        a->candidates[place->candidate - 1] = NULL;
    }
    last->index = place->index;
    a->all[place->index] = last;
    a->count--;
    a->strangers -= !place->trusted;
    if (place->address != NULL) {
        struct admission_block *address = place->address;
        int64_t waited_us = client_pace_waited_us(&place->pace, now);

        if (in_vain && waited_us > block_debt(address, now)) {
            address->debt_us = waited_us;
            address->debt_at = now;
        }
        LIST_REMOVE(place, of_network);
        block_leave(a, place->network);
        block_leave(a, address);
    }
    place->address = place->network = NULL;
}

void admission_delivered(struct place *place, struct mono now)
{
    client_pace_delivered(&place->pace, now);
    if (place->address != NULL) {
        place->address->debt_us = 0;
    }
}

uint64_t admission_network_places(const struct place *place)
{
    return place->network == NULL ? 1 : place->network->places;
}

/* ---- begin and end -------------------------------------------------------------------------- */

void admission_init(struct admission *a)
{
    *a = (struct admission){0};
    TAILQ_INIT(&a->remembered);
}

void admission_fini(struct admission *a)
{
    CHECK(a->count == 0);
    while (!TAILQ_EMPTY(&a->remembered)) {
        block_free(a, TAILQ_FIRST(&a->remembered));
    }
    CHECK(a->blocks == NULL);
    mem_free(a->all);
    *a = (struct admission){0};
}

void admission_audit(const struct admission *a)
{
    const struct admission_block *b, *next;
    uint64_t strangers = 0, addresses = 0, networks = 0, with_ip = 0;
    size_t remembered = 0;

    for (size_t i = 0; i < a->count; i++) {
        const struct place *p = a->all[i];

        CHECK(p->index == i);
        CHECK((p->address == NULL) == (p->network == NULL));
        CHECK(p->candidate == 0 || a->candidates[p->candidate - 1] == p);
        strangers += !p->trusted;
        with_ip += p->address != NULL;
    }
    CHECK(strangers == a->strangers);
    HASH_ITER(hh, a->blocks, b, next)
    {
        CHECK(b->remembered == (b->places == 0));
        CHECK(!b->remembered || (b->key.level == LEVEL_ADDRESS && b->debt_us > 0));
        remembered += b->remembered;
        addresses += b->key.level == LEVEL_ADDRESS ? b->places : 0;
        networks += b->key.level == LEVEL_NETWORK ? b->places : 0;
    }
    CHECK(addresses == with_ip);
    CHECK(networks == with_ip);
    CHECK(remembered == a->remembered_count);
    CHECK(remembered <= ADMISSION_REMEMBERED_MAX);
}
