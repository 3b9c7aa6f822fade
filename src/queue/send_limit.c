#include "send_limit.h"

#include <string.h>
#include <sys/queue.h>

#include "check.h"
#include "conf.h"
#include "hash.h"
#include "mem.h"

enum { OF_CLIENT, OF_LOGIN, TABLES };
#define LIMITS_OF_ONE 4 /* minute and hour, messages and recipients */
#define RING          (SEND_SLOTS + 1)

_Static_assert(SEND_LIMITS == TABLES * LIMITS_OF_ONE, "the order of enum send_limit");

/* Counts per slot, up to slot `last`. */
struct slots {
    int64_t last; /* number of the present slot */
    uint32_t counts[RING];
};

struct count {
    UT_hash_handle hh;
    TAILQ_ENTRY(count) next;
    struct mono sent; /* time of the last accepted mail */
    bool refused;     /* a refusal since there was room */
    struct slots slots[LIMITS_OF_ONE];
    char name[];
};

struct table {
    struct count *items;            /* hash by name */
    TAILQ_HEAD(, count) by_recency; /* ascending by `sent` */
};

struct send_counts {
    struct table tables[TABLES];
    uint64_t refusals[SEND_LIMITS];
};

static int64_t slot_us(int i)
{
    return (i / 2 == 0 ? 60 * US_PER_S : 3600 * US_PER_S) / SEND_SLOTS;
}

const char *send_limit_name(enum send_limit limit)
{
    static const char *const names[SEND_LIMITS] = {
        "smtpd_client_message_rate_limit", "smtpd_client_recipient_rate_limit",
        "smtpd_client_message_hour_limit", "smtpd_client_recipient_hour_limit",
        "smtpd_login_message_rate_limit",  "smtpd_login_recipient_rate_limit",
        "smtpd_login_message_hour_limit",  "smtpd_login_recipient_hour_limit",
    };

    CHECK(limit < SEND_LIMITS);
    return names[limit];
}

uint64_t send_limit_value(const struct conf *conf, enum send_limit limit)
{
    const int64_t values[SEND_LIMITS] = {
        conf->smtpd_client_message_rate_limit, conf->smtpd_client_recipient_rate_limit,
        conf->smtpd_client_message_hour_limit, conf->smtpd_client_recipient_hour_limit,
        conf->smtpd_login_message_rate_limit,  conf->smtpd_login_recipient_rate_limit,
        conf->smtpd_login_message_hour_limit,  conf->smtpd_login_recipient_hour_limit,
    };

    CHECK(limit < SEND_LIMITS);
    return (uint64_t)values[limit];
}

struct send_counts *send_counts_new(void)
{
    struct send_counts *c = mem_new(sizeof *c);

    for (int i = 0; i < TABLES; i++) {
        TAILQ_INIT(&c->tables[i].by_recency);
    }
    return c;
}

static void forget(struct table *t, struct count *item)
{
    HASH_DEL(t->items, item);
    TAILQ_REMOVE(&t->by_recency, item, next);
    mem_free(item);
}

void send_counts_free(struct send_counts *c)
{
    struct count *item;

    if (c == NULL) {
        return;
    }
    for (int i = 0; i < TABLES; i++) {
        while ((item = TAILQ_FIRST(&c->tables[i].by_recency)) != NULL) {
            forget(&c->tables[i], item);
        }
    }
    mem_free(c);
}

static struct slice name_of(const struct send_origin *origin, int table)
{
    struct slice name = table == OF_CLIENT ? origin->client : origin->login;

    return name.len > SEND_NAME_MAX ? slice_of(name.ptr, SEND_NAME_MAX) : name;
}

static struct count *find(const struct table *t, struct slice name)
{
    struct count *item = NULL;

    if (name.len > 0) {
        HASH_FIND(hh, t->items, name.ptr, name.len, item);
    }
    return item;
}

/* Advances to the present slot; past slots are emptied and used again. */
static void turn(struct slots *s, int64_t slot)
{
    if (slot - s->last >= (int64_t)RING) {
        memset(s->counts, 0, sizeof s->counts);
        s->last = slot;
    }
    while (s->last < slot) {
        s->counts[++s->last % (int64_t)RING] = 0;
    }
}

static uint64_t sum(const struct slots *s)
{
    uint64_t all = 0;

    for (size_t i = 0; i < RING; i++) {
        all += s->counts[i];
    }
    return all;
}

uint32_t send_counts_room(struct send_counts *c, const struct conf *conf,
                          const struct send_origin *origin, struct mono now,
                          enum send_limit *ret_limit)
{
    uint32_t least = UINT32_MAX;

    *ret_limit = SEND_LIMITS;
    for (int i = 0; i < SEND_LIMITS; i++) {
        enum send_limit limit = (enum send_limit)i;
        int of_one = i % LIMITS_OF_ONE;
        struct slice name = name_of(origin, i / LIMITS_OF_ONE);
        struct count *item = find(&c->tables[i / LIMITS_OF_ONE], name);
        uint64_t max = send_limit_value(conf, limit), used = 0, room;

        if (max == 0 || name.len == 0) {
            continue;
        }
        if (item != NULL) {
            turn(&item->slots[of_one], now.us / slot_us(of_one));
            used = sum(&item->slots[of_one]);
        }
        room = used < max ? max - used : 0;
        if (of_one % 2 == 0 && room > 0) {
            room = UINT32_MAX; /* a single message always fits */
        }
        if (room < least) {
            least = (uint32_t)room;
            *ret_limit = limit;
        }
    }
    return least;
}

/* Returns the time when enough slots are past that at most `may_stay` is counted. */
static int64_t until_left(const struct slots *s, int64_t slot, uint64_t may_stay)
{
    uint64_t left = sum(s);
    int64_t n = s->last < (int64_t)SEND_SLOTS ? 0 : s->last - (int64_t)SEND_SLOTS;

    while (left > may_stay) {
        CHECK(n <= s->last);
        left -= s->counts[n % (int64_t)RING];
        n++;
    }
    return (n + (int64_t)SEND_SLOTS) * slot;
}

uint32_t send_counts_wait_s(struct send_counts *c, const struct conf *conf,
                            const struct send_origin *origin, uint32_t rcpts, struct mono now)
{
    int64_t longest = 0;

    for (int i = 0; i < SEND_LIMITS; i++) {
        int of_one = i % LIMITS_OF_ONE;
        struct slice name = name_of(origin, i / LIMITS_OF_ONE);
        struct count *item = find(&c->tables[i / LIMITS_OF_ONE], name);
        uint64_t max = send_limit_value(conf, (enum send_limit)i), wanted;

        if (max == 0 || item == NULL) {
            continue;
        }
        wanted = of_one % 2 == 0 ? 1 : rcpts;
        wanted = wanted < max ? wanted : max;
        turn(&item->slots[of_one], now.us / slot_us(of_one));
        if (sum(&item->slots[of_one]) + wanted > max) {
            int64_t us = until_left(&item->slots[of_one], slot_us(of_one), max - wanted) - now.us;

            longest = us > longest ? us : longest;
        }
    }
    return (uint32_t)((longest + US_PER_S - 1) / US_PER_S); /* at most 65 minutes */
}

/* Makes room for one more. Returns false if counts that still matter were dropped. */
static bool make_place(struct table *t, struct mono now)
{
    struct count *oldest = TAILQ_FIRST(&t->by_recency);
    bool past;

    if (HASH_COUNT(t->items) < SEND_COUNTS_MAX) {
        return true;
    }
    past = now.us - oldest->sent.us > 3600 * US_PER_S + slot_us(LIMITS_OF_ONE - 1);
    forget(t, oldest);
    return past;
}

static struct count *need(struct table *t, struct slice name, struct mono now, bool *ret_full)
{
    struct count *item = find(t, name);

    if (item != NULL) {
        TAILQ_REMOVE(&t->by_recency, item, next);
    } else {
        *ret_full = !make_place(t, now) || *ret_full;
        item = mem_new(sizeof *item + name.len);
        memcpy(item->name, name.ptr, name.len);
        HASH_ADD_KEYPTR(hh, t->items, item->name, name.len, item);
    }
    item->sent = now;
    TAILQ_INSERT_TAIL(&t->by_recency, item, next);
    return item;
}

bool send_counts_add(struct send_counts *c, const struct send_origin *origin, uint32_t rcpts,
                     struct mono now)
{
    bool full = false;

    for (int i = 0; i < TABLES; i++) {
        struct slice name = name_of(origin, i);
        struct count *item;

        if (name.len == 0) {
            continue;
        }
        item = need(&c->tables[i], name, now, &full);
        item->refused = false;
        for (int k = 0; k < LIMITS_OF_ONE; k++) {
            struct slots *s = &item->slots[k];
            uint32_t n = k % 2 == 0 ? 1 : rcpts, *count;

            turn(s, now.us / slot_us(k));
            count = &s->counts[s->last % (int64_t)RING];
            *count = *count > UINT32_MAX - n ? UINT32_MAX : *count + n;
        }
    }
    return !full;
}

bool send_counts_refused(struct send_counts *c, const struct send_origin *origin,
                         enum send_limit limit)
{
    int table = (int)limit / LIMITS_OF_ONE;
    struct count *item = find(&c->tables[table], name_of(origin, table));
    bool first = item != NULL && !item->refused;

    CHECK(limit < SEND_LIMITS);
    c->refusals[limit]++;
    if (item != NULL) {
        item->refused = true;
    }
    return first;
}

uint64_t send_counts_refusals(const struct send_counts *c, enum send_limit limit)
{
    CHECK(limit < SEND_LIMITS);
    return c->refusals[limit];
}
