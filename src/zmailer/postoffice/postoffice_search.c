/*
 * Queries about many messages, answered from memory. Only a recipient whose address hash matches is
 * checked in its file.
 */
#include <stdlib.h>
#include <errno.h>
#include <string.h>

#include "check.h"
#include "envelope.h"
#include "mem.h"
#include "postoffice_engine.h"

/* ---- matching -------------------------------------------------------------------------------- */

static bool address_matches(struct slice address, struct slice wanted)
{
    return wanted.ptr[0] == '@' ? slice_equal_nocase(spool_domain(address), slice_skip(wanted, 1))
                                : slice_equal_nocase(address, wanted);
}

/* Does the message have a recipient with this address, in any state? Compares the hash, then the
 * recipient's line. */
static bool has_rcpt(struct postoffice *po, const struct post_part *p, struct slice wanted)
{
    bool domain = wanted.ptr[0] == '@';
    uint32_t hash = address_hash(slice_skip(wanted, domain ? 1 : 0));
    struct post_view *view;

    for (uint32_t i = p->low; i < p->high; i++) {
        const struct post_rcpt *r = &p->file->rcpts[i];

        if (r->part == p && (domain ? r->domain_hash : r->address_hash) == hash &&
            view_of(po, p->file, false, &view) == 0) {
            const struct control_rcpt *line = control_file_find(&view->control, r->offset);

            if (line != NULL && address_matches(line->address.user, wanted)) {
                return true;
            }
        }
    }
    return false;
}

/* Is a recipient's destination "transport/nexthop" or "nexthop", or its domain, the wanted one? */
static bool has_destination(const struct post_part *p, struct slice wanted)
{
    uint32_t hash = address_hash(wanted);
    size_t slash = slice_find(wanted, '/');

    for (uint32_t i = p->low; i < p->high; i++) {
        const struct post_rcpt *r = &p->file->rcpts[i];
        const struct post_dest *dest;

        if (r->part != p) {
            continue;
        }
        dest = p->file->vertices[r->vertex].dest;
        if (r->domain_hash == hash || slice_equal_nocase(dest_nexthop(dest), wanted) ||
            (slash < wanted.len &&
             slice_equal_nocase(slice_of(dest->key, dest->key_len), wanted))) {
            return true;
        }
    }
    return false;
}

static bool has_name(const struct post_part *p, struct slice wanted)
{
    char spoolid[CONTROL_SPOOLID_MAX];

    if (slice_equal(post_name(p->file), wanted) || slice_equal(post_path(p->file), wanted)) {
        return true;
    }
    if (wanted.len == 0 || wanted.ptr[0] != 'S') {
        return false;
    }
    post_spoolid(p->file, spoolid);
    return slice_equal(slice_string(spoolid), wanted);
}

static bool sender_matches(struct slice sender, struct slice wanted)
{
    return slice_equal(wanted, SLICE("<>")) ? sender.len == 0 : address_matches(sender, wanted);
}

static bool matches(struct postoffice *po, const struct post_part *p, const struct spool_filter *f)
{
    const struct post_file *file = p->file;

    return !p->f.gone && !p->f.dormant && !file->f.gone && p->id > f->after.n &&
           (f->states == 0 || (f->states & 1U << post_state(p)) != 0) &&
           file->size >= f->size_min && (f->size_max == 0 || file->size <= f->size_max) &&
           (f->arrived_before.us == 0 || file->arrived.us < f->arrived_before.us) &&
           (f->arrived_after.us == 0 || file->arrived.us > f->arrived_after.us) &&
           f->class_name.len == 0 &&
           (f->sender.len == 0 || sender_matches(post_sender(file), f->sender)) &&
           (f->name.len == 0 || has_name(p, f->name)) &&
           (f->destination.len == 0 || has_destination(p, f->destination)) &&
           (f->rcpt.len == 0 || has_rcpt(po, p, f->rcpt));
}

/* ---- candidates ------------------------------------------------------------------------------ */

/* Messages that a filter must examine, in any order. */
struct candidates {
    struct post_part **parts; /* owned */
    size_t count, size;
};

static void candidates_add(struct candidates *c, struct post_part *p)
{
    c->parts = mem_grow(c->parts, c->count, &c->size, sizeof(struct post_part *));
    c->parts[c->count++] = p;
}

static void add_file(struct candidates *c, struct post_file *file)
{
    struct post_part *p;

    candidates_add(c, &file->root);
    LIST_FOREACH(p, &file->parts, by_file)
    {
        candidates_add(c, p);
    }
}

/* Adds the messages with pending recipients for a destination with transport. Those that do not
 * match are filtered later. Returns false if there is no such destination. */
static bool add_dest(struct postoffice *po, struct candidates *c, struct slice destination)
{
    size_t slash = slice_find(destination, '/');
    char key[2 * SPOOL_ROUTE_MAX + 1];
    const struct post_dest *dest;
    const struct post_vertex *v;

    if (slash == destination.len || destination.len > sizeof key) {
        return false;
    }
    for (size_t i = 0; i < destination.len; i++) {
        key[i] = ascii_lower(destination.ptr[i]);
    }
    dest = table_dest_find(&po->table, slice_of(key, slash),
                           slice_of(key + slash + 1, destination.len - slash - 1));
    if (dest == NULL) {
        return false; /* the slash may be part of a host's name */
    }
    LIST_FOREACH(v, &dest->waiting, by_dest)
    {
        add_file(c, v->file);
    }
    return true;
}

/* Selects candidates. Returns false if all messages must be examined. */
static bool select_few(struct postoffice *po, const struct spool_filter *f, struct candidates *c)
{
    struct slice name = f->name;
    uint64_t number;

    if (name.len > 0) {
        size_t slash = slice_find_last(name, '/');
        struct post_file *file;

        name = slice_skip(name, slash == name.len ? 0 : slash + 1);
        name = slice_skip(name, name.len > 0 && name.ptr[0] == 'S' ? 1 : 0);
        file = control_spool_number(name, &number) ? table_file(&po->table, number) : NULL;
        if (file != NULL) {
            add_file(c, file);
        }
        return true;
    }
    return f->destination.len > 0 && add_dest(po, c, f->destination);
}

static int by_id(const void *a, const void *b)
{
    const struct post_part *const *x = a, *const *y = b;

    return ((*x)->id > (*y)->id) - ((*x)->id < (*y)->id);
}

/* ---- calls of the engine --------------------------------------------------------------------- */

/* Finds up to `max` matches in the order of ids. Returns their number; with `ret_ids` NULL they are
 * only counted. */
static size_t search(struct postoffice *po, const struct spool_filter *f, size_t max,
                     struct msg_id *ret_ids)
{
    struct candidates few = {.parts = NULL};
    size_t count = 0;

    if (select_few(po, f, &few)) {
        if (few.count > 1) {
            qsort(few.parts, few.count, sizeof(struct post_part *), by_id);
        }
        for (size_t i = 0; i < few.count && count < max; i++) {
            bool again = i > 0 && few.parts[i] == few.parts[i - 1];

            if (!again && matches(po, few.parts[i], f)) {
                if (ret_ids != NULL) {
                    ret_ids[count].n = few.parts[i]->id;
                }
                count++;
            }
        }
        mem_free(few.parts);
        return count;
    }
    for (size_t i = table_after(&po->table, f->after.n); i < po->table.id_count && count < max;
         i++) {
        struct post_part *p = po->table.by_id[i].part;

        if (p != NULL && matches(po, p, f)) {
            if (ret_ids != NULL) {
                ret_ids[count].n = p->id;
            }
            count++;
        }
    }
    return count;
}

int search_scan(struct spool *sp, const struct spool_filter *f, size_t max, struct msg_id *ret_ids,
                size_t *ret_count)
{
    *ret_count = search(postoffice_of(sp), f, max, ret_ids);
    return 0;
}

int search_count(struct spool *sp, const struct spool_filter *f, uint64_t *ret_count)
{
    *ret_count = search(postoffice_of(sp), f, SIZE_MAX, NULL);
    return 0;
}

/* Is `a` before `b` in the list of destinations? */
static bool busier(const struct post_dest *a, const struct spool_destination *b)
{
    int order;

    if (a->rcpts != b->rcpts) {
        return a->rcpts > b->rcpts;
    }
    order = slice_compare(dest_nexthop(a), b->nexthop);
    return order != 0 ? order < 0 : slice_compare(dest_transport(a), b->transport) < 0;
}

static struct spool_destination destination_of(const struct post_dest *dest)
{
    return (struct spool_destination){.transport = dest_transport(dest),
                                      .nexthop = dest_nexthop(dest),
                                      .rcpts = dest->rcpts,
                                      .messages = dest->messages};
}

int search_destinations(struct spool *sp, size_t max, struct spool_destination *ret,
                        size_t *ret_count)
{
    const struct post_dest *dest, *next;
    size_t count = 0;

    HASH_ITER(hh, postoffice_of(sp)->table.dests, dest, next)
    {
        size_t low = 0, high = count;

        if (dest->rcpts == 0 || max == 0 || (count == max && !busier(dest, &ret[max - 1]))) {
            continue;
        }
        while (low < high) {
            size_t middle = low + (high - low) / 2;

            if (busier(dest, &ret[middle])) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        count += count < max;
        memmove(&ret[low + 1], &ret[low], (count - 1 - low) * sizeof ret[0]);
        ret[low] = destination_of(dest);
    }
    *ret_count = count;
    return 0;
}

int search_oldest(struct spool *sp, const struct spool_destination *of, struct wall *ret_arrived)
{
    const struct post_dest *dest =
        table_dest_find(&postoffice_of(sp)->table, of->transport, of->nexthop);
    const struct post_vertex *v;
    struct wall oldest = WALL_NEVER;

    if (dest != NULL) {
        LIST_FOREACH(v, &dest->waiting, by_dest)
        {
            oldest = wall_min(oldest, v->file->arrived);
        }
    }
    if (oldest.us == WALL_NEVER.us) {
        return -ENOENT;
    }
    *ret_arrived = oldest;
    return 0;
}

static int by_nexthop(const struct spool_destination *a, const struct spool_destination *b)
{
    int order = slice_compare(a->nexthop, b->nexthop);

    return order != 0 ? order : slice_compare(a->transport, b->transport);
}

/* Returns a page; each page examines all destinations. */
int search_destinations_from(struct spool *sp, const struct spool_destination *from, size_t max,
                             struct spool_destination *ret, size_t *ret_count)
{
    const struct post_dest *dest, *next;
    size_t count = 0;

    HASH_ITER(hh, postoffice_of(sp)->table.dests, dest, next)
    {
        struct spool_destination d = destination_of(dest);
        size_t low = 0, high = count;

        if (d.rcpts == 0 || by_nexthop(&d, from) < 0 ||
            (count == max && (max == 0 || by_nexthop(&ret[max - 1], &d) < 0))) {
            continue;
        }
        while (low < high) {
            size_t middle = low + (high - low) / 2;

            if (by_nexthop(&ret[middle], &d) < 0) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        count += count < max;
        memmove(&ret[low + 1], &ret[low], (count - 1 - low) * sizeof ret[0]);
        ret[low] = d;
    }
    *ret_count = count;
    return 0;
}

static int compare_slices(const void *a, const void *b)
{
    return slice_compare(*(const struct slice *)a, *(const struct slice *)b);
}

int search_parked_keys(struct spool *sp, struct slice after, size_t max, struct slice *ret_keys,
                       size_t *ret_count)
{
    const struct post_table *t = &postoffice_of(sp)->table;
    struct slice *all = mem_array(HASH_COUNT(t->keys) + 1, sizeof *all);
    const struct post_key *key, *next;
    size_t count = 0;

    HASH_ITER(hh, t->keys, key, next)
    {
        struct slice name = slice_of(key->name, key->len);

        if (key->count > 0 && slice_compare(name, after) > 0) {
            all[count++] = name;
        }
    }
    qsort(all, count, sizeof *all, compare_slices);
    *ret_count = count < max ? count : max;
    memcpy(ret_keys, all, *ret_count * sizeof *all);
    mem_free(all);
    return 0;
}
