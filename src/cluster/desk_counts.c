#include "desk_private.h"

#include <stdlib.h>

#include "mem.h"

/* ---- keys ------------------------------------------------------------------------------------ */

static struct desk_key *need_key(struct desk *d, struct slice name)
{
    struct desk_key *key;

    HASH_FIND(hh, d->keys, name.ptr, (unsigned)name.len, key);
    if (key == NULL) {
        key = mem_new(sizeof *key);
        key->key = mem_copy(name.ptr, name.len);
        TAILQ_INIT(&key->here);
        HASH_ADD_KEYPTR(hh, d->keys, key->key, (unsigned)name.len, key);
        mem_free(d->keys_in_order);
        d->keys_in_order = NULL;
    }
    return key;
}

void desk_drop_key_if_empty(struct desk *d, struct desk_key *key)
{
    if (key->count == 0 && key->here_count == 0) {
        HASH_DEL(d->keys, key);
        mem_free(key->by_p);
        mem_free(key->key);
        mem_free(key);
        mem_free(d->keys_in_order);
        d->keys_in_order = NULL;
    }
}

static uint64_t *key_count_of(struct desk_key *key, uint16_t p)
{
    for (size_t i = 0; i < key->by_p_count; i++) {
        if (key->by_p[i].p == p) {
            return &key->by_p[i].count;
        }
    }
    key->by_p = mem_resize(key->by_p, key->by_p_count + 1, sizeof key->by_p[0]);
    key->by_p[key->by_p_count] = (struct desk_key_count){.p = p};
    return &key->by_p[key->by_p_count++].count;
}

/* The count may be too low until all messages were counted, and then wraps below 0. */
static void count_key(struct desk *d, uint16_t p, struct slice name, uint64_t by)
{
    struct desk_key *key = need_key(d, name);

    *key_count_of(key, p) += by;
    key->count += by;
    desk_drop_key_if_empty(d, key);
}

void desk_unlink_key(struct desk *d, struct desk_message *msg)
{
    struct desk_key *key = msg->key;

    if (key != NULL) {
        TAILQ_REMOVE(&key->here, msg, by_key);
        key->here_count--;
        msg->key = NULL;
        desk_drop_key_if_empty(d, key);
    }
}

void desk_link_key(struct desk *d, struct desk_message *msg)
{
    if (msg->f.m.parked.len > 0 && !msg->f.gone && d->finder->is_mine[msg->f.p]) {
        msg->key = need_key(d, msg->f.m.parked);
        TAILQ_INSERT_TAIL(&msg->key->here, msg, by_key);
        msg->key->here_count++;
    }
}

struct desk_key *desk_key(const struct desk *d, struct slice name)
{
    struct desk_key *key;

    HASH_FIND(hh, d->keys, name.ptr, (unsigned)name.len, key);
    return key;
}

bool desk_key_waits_elsewhere(const struct desk_key *key)
{
    return (int64_t)key->count > (int64_t)key->here_count;
}

static int key_order(const void *a, const void *b)
{
    const struct desk_key *const *x = a, *const *y = b;

    return slice_compare(slice_of((*x)->key, (*x)->hh.keylen),
                         slice_of((*y)->key, (*y)->hh.keylen));
}

/* Returns all keys in their order, which is computed again after keys were added or removed. */
static struct desk_key **keys_in_order(struct desk *d)
{
    struct desk_key *key;
    size_t count = 0;

    if (d->keys_in_order == NULL) {
        d->keys_in_order = mem_array(HASH_COUNT(d->keys) + 1, sizeof(struct desk_key *));
        for (key = d->keys; key != NULL; key = key->hh.next) {
            d->keys_in_order[count++] = key;
        }
        qsort(d->keys_in_order, count, sizeof(struct desk_key *), key_order);
    }
    return d->keys_in_order;
}

int desk_parked_keys(struct desk *d, struct slice after, size_t max, struct slice *ret_keys,
                     size_t *ret_count)
{
    struct desk_key **keys = keys_in_order(d);
    size_t from = 0, to = HASH_COUNT(d->keys), all = to, count = 0;

    while (from < to) {
        size_t middle = from + (to - from) / 2;

        if (slice_compare(slice_of(keys[middle]->key, keys[middle]->hh.keylen), after) <= 0) {
            from = middle + 1;
        } else {
            to = middle;
        }
    }
    text_pool_clear(&d->pool);
    for (; from < all && count < max; from++) {
        if ((int64_t)keys[from]->count > 0) {
            ret_keys[count++] =
                text_pool_add(&d->pool, slice_of(keys[from]->key, keys[from]->hh.keylen));
        }
    }
    *ret_count = count;
    return 0;
}

void desk_count_parked(struct desk *d, uint16_t p, struct slice key, uint64_t messages)
{
    if (d->finder->is_mine[p]) {
        count_key(d, p, key, messages);
    }
}

/* ---- totals ---------------------------------------------------------------------------------- */

static const enum spool_state counted_states[] = {SPOOL_INCOMING, SPOOL_DEFERRED, SPOOL_HOLD,
                                                  SPOOL_CORRUPT};

static void add_totals(struct spool_totals *to, struct spool_totals by, bool add)
{
    for (size_t i = 0; i < sizeof counted_states / sizeof counted_states[0]; i++) {
        uint64_t n = *spool_total_of(&by, counted_states[i]);

        *spool_total_of(to, counted_states[i]) += add ? n : -n;
    }
    to->bytes += add ? by.bytes : -by.bytes;
}

void desk_add_totals(struct spool_totals *to, const struct spool_totals *by)
{
    add_totals(to, *by, true);
}

static struct spool_totals total_of(enum spool_state state, uint64_t messages, uint64_t bytes)
{
    struct spool_totals t = {.bytes = bytes};

    *spool_total_of(&t, state) = messages;
    return t;
}

static void count_total(struct desk *d, uint16_t p, struct spool_totals by, bool add)
{
    add_totals(&d->totals, by, add);
    add_totals(&d->by_p[p], by, add);
}

static struct spool_totals *need_by_p(struct spool_totals **by_p)
{
    if (*by_p == NULL) {
        *by_p = mem_array(PARTITIONS, sizeof **by_p);
    }
    return *by_p;
}

void desk_count_fields(struct desk *d, const struct desk_fields *f, bool add)
{
    if (f->gone || !d->finder->is_mine[f->p]) {
        return;
    }
    if (!spool_is_part(&f->m)) { /* its whole message is counted */
        struct spool_totals by = total_of(f->m.state, 1, f->m.size);

        count_total(d, f->p, by, add);
        if (d->is_open) {
            add_totals(&need_by_p(&d->open.adds)[f->p], by, add);
        }
    }
    if (f->m.parked.len > 0) {
        count_key(d, f->p, f->m.parked, add ? 1 : UINT64_MAX);
    }
}

void desk_count_stored(struct desk *d, uint16_t p, enum spool_state state, uint64_t messages,
                       uint64_t bytes)
{
    if (d->finder->is_mine[p] && spool_total_of(&d->totals, state) != NULL) {
        count_total(d, p, total_of(state, messages, bytes), true);
    }
}

void desk_count_arrived(struct desk *d, uint16_t p, enum spool_state state, uint64_t bytes)
{
    if (d->finder->is_mine[p] && spool_total_of(&d->totals, state) != NULL) {
        struct spool_totals by = total_of(state, 1, bytes);

        count_total(d, p, by, true);
        add_totals(&need_by_p(&d->arrived)[p], by, true);
    }
}

void desk_arrivals_deleted(struct desk *d)
{
    d->breaks++;
    mem_free(d->arrived);
    d->arrived = NULL;
}

void desk_uncount_arrived(struct desk *d, struct spool_totals *arrived)
{
    for (uint16_t p = 0; arrived != NULL && p < PARTITIONS; p++) {
        count_total(d, p, arrived[p], false);
    }
    mem_free(arrived);
}

struct spool_totals desk_batch_adds(const struct desk_batch *b, unsigned p)
{
    struct spool_totals sum = {0};

    if (b->adds != NULL) {
        add_totals(&sum, b->adds[p], true);
    }
    if (b->arrived != NULL) {
        add_totals(&sum, b->arrived[p], true);
    }
    return sum;
}

struct spool_totals desk_stored(const struct desk *d, unsigned p)
{
    struct spool_totals stored = d->by_p[p];

    add_totals(&stored, desk_batch_adds(&d->open, p), false);
    for (unsigned i = 0; i < d->under_way_count; i++) {
        add_totals(&stored, desk_batch_adds(&d->under_way[i], p), false);
    }
    if (d->arrived != NULL) {
        add_totals(&stored, d->arrived[p], false);
    }
    return stored;
}

uint64_t desk_correct_totals(struct desk *d, unsigned p, const struct spool_totals *from,
                             const struct spool_totals *to)
{
    struct spool_totals more = *to;
    uint64_t wrong = 0;

    add_totals(&more, *from, false);
    count_total(d, (uint16_t)p, more, true);
    for (size_t i = 0; i < sizeof counted_states / sizeof counted_states[0]; i++) {
        uint64_t n = *spool_total_of(&more, counted_states[i]);

        wrong += n <= INT64_MAX ? n : -n; /* the difference is negative */
    }
    return wrong;
}

static void forget_adds(struct spool_totals *by_p, unsigned p)
{
    if (by_p != NULL) {
        by_p[p] = (struct spool_totals){0};
    }
}

void desk_forget_counts(struct desk *d, const struct partition_set *partitions)
{
    struct desk_key *key, *next;

    d->breaks++;
    for (unsigned p = 0; p < PARTITIONS; p++) {
        if (!partition_set_has(partitions, (int)p)) {
            continue;
        }
        count_total(d, (uint16_t)p, d->by_p[p], false);
        forget_adds(d->arrived, p);
        forget_adds(d->open.adds, p);
        for (unsigned i = 0; i < d->under_way_count; i++) {
            forget_adds(d->under_way[i].adds, p);
            forget_adds(d->under_way[i].arrived, p);
        }
    }
    HASH_ITER(hh, d->keys, key, next)
    {
        for (size_t i = 0; i < key->by_p_count; i++) {
            if (partition_set_has(partitions, key->by_p[i].p)) {
                key->count -= key->by_p[i].count;
                key->by_p[i].count = 0;
            }
        }
        desk_drop_key_if_empty(d, key);
    }
}
