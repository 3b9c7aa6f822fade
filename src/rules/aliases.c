#include "aliases.h"

#include <string.h>

#include "address.h"
#include "address_set.h"
#include "keys.h"
#include "match.h"

#define CANONICAL_STEPS_MAX 10 /* as in Postfix */

/* An entry that was found, and how its values are changed. */
struct found {
    struct table_hit hit;
    struct slice local, extension; /* of the address */
};

/* Finds the entry of an address in a list. Returns false if there is none. */
static bool find_in(const struct tables *t, const struct conf *conf, enum table_list list,
                    struct slice address, struct found *ret)
{
    const struct slice local = address_split(address).local;

    for (size_t i = 0; i < tables_count(t, list); i++) {
        struct keys keys;
        struct slice key;

        keys_init(&keys, KEYS_RECIPIENT, conf, address);
        while (keys_next(&keys, &key)) {
            if (tables_find(t, list, i, key, &ret->hit)) {
                size_t bare = keys_without_extension(&keys);

                ret->local = local;
                ret->extension = bare > 0 && bare < local.len ? slice_skip(local, bare) : SLICE("");
                return true;
            }
        }
    }
    return false;
}

static bool is_local(const struct conf *conf, struct slice address)
{
    struct slice domain = address_split(address).domain;

    return domain.len == 0 || domain_list_match(&conf->local_domains, domain);
}

/* Finds the alias of an address. */
static bool find_alias(const struct tables *t, const struct conf *conf, struct slice address,
                       struct found *ret)
{
    if (address.len == 0 || address.len > ADDRESS_MAX) {
        return false;
    }
    if (find_in(t, conf, TABLE_VIRTUAL_ALIAS, address, ret)) {
        return true;
    }
    if (tables_count(t, TABLE_ALIAS) > 0 && is_local(conf, address) &&
        find_in(t, conf, TABLE_ALIAS, address, ret)) {
        ret->extension = SLICE("");
        return true;
    }
    return false;
}

bool aliases_has(const struct tables *t, const struct conf *conf, struct slice address)
{
    struct found found;

    return find_alias(t, conf, address, &found);
}

/* Writes the address that a value stands for. Returns it, or an empty slice if it is too long. */
static struct slice result_of(const struct found *f, struct slice value, char room[ADDRESS_MAX])
{
    struct address parts = address_split(value);
    bool extends = f->extension.len > 0 && value.ptr[0] != '@' && value.ptr[0] != '"';
    struct buf out;
    struct slice result = SLICE("");

    if (value.ptr[0] == '@') {
        parts = (struct address){.local = f->local, .domain = slice_skip(value, 1)};
    }
    buf_init(&out, ADDRESS_MAX);
    (void)buf_add(&out, parts.local); /* errors are sticky, as of the next */
    (void)buf_add(&out, extends ? f->extension : SLICE(""));
    (void)buf_addf(&out, "@%.*s", SLICE_ARGS(parts.domain));
    if (!out.failed) {
        result = buf_slice(&out);
        memcpy(room, result.ptr, result.len);
        result = slice_of(room, result.len);
    }
    buf_fini(&out);
    return result;
}

/* ---- aliases -------------------------------------------------------------------------------- */

/* An address whose aliases are being expanded. */
struct level {
    const struct level *above;
    struct slice address;
    struct table_hit hit;
};

struct expansion {
    const struct tables *tables;
    const struct conf *conf;
    aliases_put *put;
    void *arg;
    size_t count;
    struct address_set *seen; /* addresses that were passed on or expanded */
    struct table_hit *first;
    struct buf *fault;
};

static bool fail(struct expansion *x, const struct level *at, struct slice address, const char *why)
{
    (void)buf_addf(x->fault, "<%.*s>: %s (%s %.*s:%u)", SLICE_ARGS(address), why,
                   table_list_name(at->hit.list), SLICE_ARGS(at->hit.path),
                   at->hit.line); /* cut at worst */
    x->fault->failed = false;
    return false;
}

static bool is_above(const struct level *at, struct slice address)
{
    while (at != NULL && !slice_equal_nocase(at->address, address)) {
        at = at->above;
    }
    return at != NULL;
}

static bool expand(struct expansion *x, const struct level *above, struct slice address,
                   size_t depth);

/* Passes on the address of a value, or expands it. */
static bool take_value(struct expansion *x, const struct level *at, struct slice address,
                       size_t depth)
{
    if (address.len == 0) {
        return fail(x, at, at->address, "leads to an address that is too long");
    }
    if (slice_equal_nocase(address, at->address)) {
        x->put(x->arg, address);
        return true;
    }
    if (is_above(at, address)) {
        return fail(x, at, address, "is an alias that leads to itself");
    }
    if (!address_set_add(&x->seen, address)) {
        return true;
    }
    if (++x->count > ALIASES_MAX) {
        return fail(x, at, at->address, "leads to more than 10000 addresses");
    }
    return expand(x, at, address, depth + 1);
}

static bool expand(struct expansion *x, const struct level *above, struct slice address,
                   size_t depth)
{
    struct level here = {.above = above, .address = address};
    struct found found;
    struct slice values;

    if (!find_alias(x->tables, x->conf, address, &found)) {
        x->put(x->arg, address);
        return true;
    }
    here.hit = found.hit;
    if (depth == 0) {
        *x->first = found.hit;
    }
    if (depth == ALIASES_LEVELS_MAX) {
        return fail(x, &here, address, "is more than 100 levels of aliases away");
    }
    values = found.hit.value;
    while (values.ptr != NULL) {
        char room[ADDRESS_MAX];
        struct slice value = slice_cut(&values, '\n');

        if (value.len > 0 && !take_value(x, &here, result_of(&found, value, room), depth)) {
            return false;
        }
    }
    return true;
}

bool aliases_expand(const struct tables *t, const struct conf *conf, struct slice address,
                    aliases_put *put, void *arg, struct table_hit *ret_hit, struct buf *ret_fault)
{
    struct expansion x = {
        .tables = t, .conf = conf, .put = put, .arg = arg, .first = ret_hit, .fault = ret_fault};
    bool ok;

    *ret_hit = (struct table_hit){.line = 0};
    buf_clear(ret_fault);
    (void)address_set_add(&x.seen, address);
    ok = expand(&x, NULL, address, 0);
    address_set_clear(&x.seen);
    return ok;
}

/* ---- canonical addresses -------------------------------------------------------------------- */

/* Maps an address until it stays as it is. A loop ends after some steps. */
static struct slice map(const struct tables *t, const struct conf *conf, enum table_list list,
                        struct slice address, char room[ADDRESS_MAX])
{
    for (int i = 0; i < CANONICAL_STEPS_MAX; i++) {
        char next[ADDRESS_MAX];
        struct found found;
        struct slice result;

        if (!find_in(t, conf, list, address, &found)) {
            break;
        }
        result = result_of(&found, found.hit.value, next);
        if (result.len == 0 || slice_equal(result, address)) {
            break;
        }
        memcpy(room, result.ptr, result.len);
        address = slice_of(room, result.len);
    }
    return address;
}

struct slice aliases_canonical(const struct tables *t, const struct conf *conf,
                               enum table_list list, struct slice address, char room[ADDRESS_MAX])
{
    if (address.len == 0 || address.len > ADDRESS_MAX) {
        return address;
    }
    return map(t, conf, TABLE_CANONICAL, map(t, conf, list, address, room), room);
}
