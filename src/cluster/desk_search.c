#include "desk_search.h"

#include <stdlib.h>

#include "check.h"
#include "destination_list.h"
#include "mem.h"
#include "spool_engine.h"

/* Is `address` the wanted one, or of the wanted "@domain"? */
static bool address_matches(struct slice address, struct slice wanted)
{
    if (wanted.ptr[0] == '@') {
        return slice_equal_nocase(spool_domain(address), slice_skip(wanted, 1));
    }
    return slice_equal_nocase(address, wanted);
}

static bool destination_matches(const struct spool_rcpt *r, struct slice wanted)
{
    struct slice domain = spool_domain(r->address);
    size_t slash = slice_find(wanted, '/');

    if (slice_equal_nocase(domain, wanted) ||
        (r->transport.len > 0 && slice_equal(r->nexthop, wanted))) {
        return true;
    }
    return slash > 0 && slash < wanted.len &&
           slice_equal(r->transport, slice_of(wanted.ptr, slash)) &&
           slice_equal(r->nexthop, slice_skip(wanted, slash + 1));
}

static bool rcpts_match(const struct desk_message *msg, const struct spool_filter *f)
{
    bool address = f->rcpt.len == 0, destination = f->destination.len == 0;

    for (uint32_t i = 0; i < msg->f.m.rcpt_total && !(address && destination); i++) {
        const struct desk_rcpt *r = &msg->rcpts[i];

        if (!r->gone) {
            address = address || address_matches(r->r.address, f->rcpt);
            destination = destination || destination_matches(&r->r, f->destination);
        }
    }
    return address && destination;
}

static bool matches(const struct desk_message *msg, const struct spool_filter *f)
{
    const struct spool_message *m = &msg->f.m;

    if (msg->f.gone || msg->id <= f->after.n ||
        (f->states != 0 && (f->states & 1U << m->state) == 0) || m->size < f->size_min ||
        (f->size_max != 0 && m->size > f->size_max) ||
        (f->arrived_before.us != 0 && m->arrived.us >= f->arrived_before.us) ||
        (f->arrived_after.us != 0 && m->arrived.us <= f->arrived_after.us) ||
        (f->class_name.len > 0 && !slice_equal(f->class_name, m->class_name))) {
        return false;
    }
    if (slice_equal(f->sender, SLICE("<>")) ? m->sender.len > 0
        : f->sender.len > 0                 ? !address_matches(m->sender, f->sender)
                                            : false) {
        return false;
    }
    return rcpts_match(msg, f);
}

int desk_scan(struct desk *d, const struct spool_filter *f, size_t max, struct msg_id *ret_ids,
              size_t *ret_count)
{
    const struct desk_message *msg;
    size_t count = 0;

    TAILQ_FOREACH(msg, &d->in_order, by_id)
    {
        if (count == max) {
            break;
        }
        if (matches(msg, f)) {
            ret_ids[count++] = (struct msg_id){msg->id};
        }
    }
    *ret_count = count;
    return 0;
}

int desk_count(struct desk *d, const struct spool_filter *f, uint64_t *ret_count)
{
    const struct desk_message *msg;
    uint64_t count = 0;

    TAILQ_FOREACH(msg, &d->in_order, by_id)
    {
        count += matches(msg, f);
    }
    *ret_count = count;
    return 0;
}

/* A recipient's destination: its nexthop, or its domain in lower case while it is not routed. */
struct destination_key {
    struct spool_destination d;
    uint64_t message;
    char domain[ADDRESS_MAX];
};

static int key_order(const void *a, const void *b)
{
    const struct destination_key *const *x = a, *const *y = b;
    int order = destination_order(&(*x)->d, &(*y)->d);

    return order != 0 ? order : ((*x)->message > (*y)->message) - ((*x)->message < (*y)->message);
}

static struct destination_key *key_new(const struct spool_rcpt *r, uint64_t message)
{
    struct destination_key *key = mem_new(sizeof *key);
    struct slice domain = spool_domain(r->address);

    key->message = message;
    key->d =
        (struct spool_destination){.transport = r->transport, .nexthop = r->nexthop, .rcpts = 1};
    if (r->transport.len == 0) {
        for (size_t i = 0; i < domain.len; i++) {
            key->domain[i] = ascii_lower(domain.ptr[i]);
        }
        key->d.nexthop = slice_of(key->domain, domain.len);
    }
    return key;
}

/* Those from `from` on go into the list. */
static size_t fill_list(struct desk *d, const struct spool_destination *from,
                        struct destination_list *list)
{
    const struct desk_message *msg;
    struct destination_key **keys;
    size_t total = 0, count = 0;

    TAILQ_FOREACH(msg, &d->in_order, by_id)
    {
        total += msg->f.gone ? 0 : msg->f.m.rcpt_pending;
    }
    keys = mem_array(total, sizeof(struct destination_key *));
    TAILQ_FOREACH(msg, &d->in_order, by_id)
    {
        for (uint32_t i = 0; !msg->f.gone && i < msg->f.m.rcpt_total; i++) {
            if (!msg->rcpts[i].gone && msg->rcpts[i].r.state == SPOOL_RCPT_PENDING) {
                CHECK(count < total);
                keys[count++] = key_new(&msg->rcpts[i].r, msg->id);
            }
        }
    }
    qsort(keys, count, sizeof(struct destination_key *), key_order);
    for (size_t i = 0; i < count; i++) {
        keys[i]->d.messages = i == 0 || key_order(&keys[i - 1], &keys[i]) != 0;
        if (destination_order(&keys[i]->d, from) >= 0) {
            destination_list_add(list, &keys[i]->d);
        }
    }
    total = destination_list_end(list);
    for (size_t i = 0; i < count; i++) {
        mem_free(keys[i]);
    }
    mem_free(keys);
    return total;
}

int desk_destinations(struct desk *d, size_t max, struct spool_destination *ret, size_t *ret_count)
{
    static const struct spool_destination first = {.nexthop = {"", 0}, .transport = {"", 0}};
    struct destination_list list;

    text_pool_clear(&d->pool);
    destination_list_init(&list, &d->pool, ret, max);
    *ret_count = fill_list(d, &first, &list);
    return 0;
}

int desk_destinations_from(struct desk *d, const struct spool_destination *from, size_t max,
                           struct spool_destination *ret, size_t *ret_count)
{
    struct destination_list list;

    text_pool_clear(&d->pool);
    destination_list_init_by_name(&list, &d->pool, ret, max);
    *ret_count = fill_list(d, from, &list);
    return 0;
}
