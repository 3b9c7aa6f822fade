#include "limit_clauses.h"

#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "json.h"
#include "match.h"
#include "mem.h"
#include "policy.h"

/* Maximum clauses for common parts, whose number can grow with the square of that of limits. */
#define PARTS_MAX 5000

/* Destinations of a clause: those of a limit, or the common part of two. */
struct area {
    const char *transport, *host;     /* borrowed; transport NULL: any */
    const struct intervention *first; /* limit that precedes the others that cover it */
    size_t covering;                  /* number of limits that cover it */
};

struct areas {
    struct area *list; /* owned */
    size_t count, size;
};

static bool has_mark(const char *s)
{
    return strpbrk(s, "*?") != NULL;
}

static bool is_any(const char *host)
{
    return strcmp(host, "*") == 0;
}

/* Does the first transport cover the second? NULL is any. */
static bool transport_covers(const char *general, const char *special)
{
    return general == NULL ||
           (special != NULL &&
            (strcmp(general, special) == 0 ||
             (!has_mark(special) && glob_match(slice_string(general), slice_string(special)))));
}

/* Does the first host of an override cover the second? One without `*` and `?` is literal. */
static bool host_covers(const char *general, const char *special)
{
    struct slice g = slice_string(general), s = slice_string(special);

    if (is_any(general) || slice_equal(g, s)) {
        return true;
    }
    return has_mark(general) &&
           (has_mark(special) ? nexthop_pattern_covers(g, s) : nexthop_match(g, s));
}

static bool limit_covers(const struct intervention *limit, const struct area *a)
{
    return transport_covers(limit->transport, a->transport) && host_covers(limit->host, a->host);
}

static void add(struct areas *all, const char *transport, const char *host)
{
    all->list = mem_grow(all->list, all->count, &all->size, sizeof *all->list);
    all->list[all->count++] = (struct area){.transport = transport, .host = host};
}

static bool is_part_of(const struct area *a, const struct area *b)
{
    return transport_covers(b->transport, a->transport) && host_covers(b->host, a->host);
}

/* Adds the common part of two areas, if it is neither of them and has a pattern. Pairs are enough:
 * the common part of more has the transport of one and the host of another. */
static void add_part(struct areas *all, const struct area *a, const struct area *b)
{
    bool a_transport = transport_covers(b->transport, a->transport);
    bool a_host = host_covers(b->host, a->host);

    if (!is_part_of(a, b) && !is_part_of(b, a) &&
        (a_transport || transport_covers(a->transport, b->transport)) &&
        (a_host || host_covers(a->host, b->host))) {
        add(all, (a_transport ? a : b)->transport, (a_host ? a : b)->host);
    }
}

/* Can the area have a part in common with another one that is no part of it? */
static bool is_wide(const struct area *a)
{
    return a->transport == NULL || has_mark(a->transport) || has_mark(a->host);
}

static void add_parts(struct areas *all)
{
    const size_t limits = all->count;

    for (size_t i = 0; i < limits; i++) {
        for (size_t k = i + 1;
             is_wide(&all->list[i]) && k < limits && all->count < limits + PARTS_MAX; k++) {
            struct area a = all->list[i], b = all->list[k]; /* the list moves */

            if ((has_mark(a.host) && is_wide(&b)) || (has_mark(b.host) && is_wide(&a))) {
                add_part(all, &a, &b);
            }
        }
    }
}

static int compare_names(const void *left, const void *right)
{
    const struct area *a = left, *b = right;
    int order =
        strcmp(a->transport == NULL ? "" : a->transport, b->transport == NULL ? "" : b->transport);

    return order != 0 ? order : strcmp(a->host, b->host);
}

/* Compares by the place in a configuration. An area within another one is covered by all limits
 * that cover the other one, so it is first. */
static int compare_places(const void *left, const void *right)
{
    const struct area *a = left, *b = right;

    if (a->first != b->first) {
        return intervention_precedes(a->first, b->first) ? -1 : 1;
    }
    return a->covering != b->covering ? (a->covering > b->covering ? -1 : 1) : compare_names(a, b);
}

static void sort_areas(struct areas *all, const struct intervention *const *limits, size_t count)
{
    size_t kept = 0;

    qsort(all->list, all->count, sizeof *all->list, compare_names);
    for (size_t i = 0; i < all->count; i++) {
        if (kept == 0 || compare_names(&all->list[kept - 1], &all->list[i]) != 0) {
            all->list[kept++] = all->list[i];
        }
    }
    all->count = kept;
    for (size_t i = 0; i < all->count; i++) {
        struct area *a = &all->list[i];

        for (size_t k = 0; k < count; k++) {
            if (limit_covers(limits[k], a)) {
                a->first = a->first == NULL || intervention_precedes(limits[k], a->first)
                               ? limits[k]
                               : a->first;
                a->covering++;
            }
        }
        CHECK(a->first != NULL);
    }
    qsort(all->list, all->count, sizeof *all->list, compare_places);
}

static int compare_limits(const void *left, const void *right)
{
    const struct intervention *a = *(const struct intervention *const *)left;
    const struct intervention *b = *(const struct intervention *const *)right;

    return intervention_precedes(a, b) ? 1 : -1;
}

/* Adds the values of a limit that an area can have. */
static void put_values(json_t *values, const struct intervention *limit, const struct area *a)
{
    const char *name;
    json_t *value;

    json_object_foreach(limit->values, name, value)
    {
        if (is_any(a->host) || !intervention_is_of_transport(name)) {
            json_put(values, name, json_incref(value));
        }
    }
}

static char *area_pattern(const struct area *a)
{
    size_t size = 2 * strlen(a->host) + sizeof "*/";
    struct buf text, pattern;
    char *copy;

    size += a->transport != NULL ? strlen(a->transport) : 0;
    buf_init(&text, size);
    buf_init(&pattern, size);
    (void)buf_addf(&text, "%s%s%s", a->transport == NULL ? "" : a->transport,
                   a->transport == NULL ? "" : "/", a->host); /* fits */
    clause_put_pattern(&pattern, buf_slice(&text));
    copy = mem_string(buf_cstr(&pattern));
    buf_fini(&text);
    buf_fini(&pattern);
    return copy;
}

struct limit_clause *limit_clauses_new(const struct intervention *const *limits, size_t count,
                                       size_t *ret_count)
{
    const struct intervention **sorted = mem_array(count + 1, sizeof *sorted); /* lowest first */
    struct areas all = {.list = NULL};
    struct limit_clause *clauses;

    for (size_t i = 0; i < count; i++) {
        sorted[i] = limits[i];
        add(&all, limits[i]->transport, limits[i]->host);
    }
    add_parts(&all);
    if (count > 0) {
        qsort(sorted, count, sizeof *sorted, compare_limits);
        sort_areas(&all, limits, count);
    }
    clauses = mem_array(all.count + 1, sizeof *clauses);
    for (size_t i = 0; i < all.count; i++) {
        clauses[i] = (struct limit_clause){area_pattern(&all.list[i]), json_object()};
        for (size_t k = 0; k < count; k++) {
            if (limit_covers(sorted[k], &all.list[i])) {
                put_values(clauses[i].values, sorted[k], &all.list[i]);
            }
        }
    }
    *ret_count = all.count;
    mem_free(sorted);
    mem_free(all.list);
    return clauses;
}

void limit_clauses_free(struct limit_clause *clauses, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        mem_free(clauses[i].pattern);
        json_decref(clauses[i].values);
    }
    mem_free(clauses);
}
