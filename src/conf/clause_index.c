#include "clause_index.h"

#include <string.h>

#include "buf.h"
#include "conf_private.h"
#include "hash.h"
#include "match.h"

#define KEY_MAX  8192 /* maximum bytes of a key */
#define TEXT_MAX 4096 /* bytes of channel and host; a longer pattern has no key */

/* Key of clauses of one pattern. Leads to the first of them. */
struct clause_key {
    UT_hash_handle hh; /* hash by text: kind, length of the channel, channel, host */
    size_t clause;
    char text[];
};

static bool is_star(struct slice s)
{
    return slice_equal(s, SLICE("*"));
}

/* Can a lookup find the clause by its text? */
static bool has_key(const struct clause *c)
{
    bool starred = c->host.len > 0 && c->host.ptr[0] == '*';

    return (glob_is_plain(c->lower_channel) || is_star(c->lower_channel)) &&
           (starred ? glob_is_plain(slice_skip(c->host, 1)) : nexthop_pattern_is_plain(c->host)) &&
           c->lower_channel.len + c->host.len < TEXT_MAX;
}

/* Builds a key. Its host is `end`, with a star before it if `star`. */
static void put_key(struct buf *out, bool is_class, struct slice channel, bool star,
                    struct slice end)
{
    buf_clear(out);
    (void)buf_addf(out, "%c%zu ", is_class ? 'c' : 'd', channel.len); /* KEY_MAX is enough */
    (void)buf_add(out, channel);
    (void)buf_add_string(out, star ? "*" : "");
    (void)buf_add(out, end);
}

static const struct clause_key *find_key(const struct clause_index *index, const struct buf *key)
{
    struct slice text = buf_slice(key);
    const struct clause_key *found;

    HASH_FIND(hh, index->keys, text.ptr, text.len, found);
    return found;
}

/* Adds the pattern of a clause as a key, so that an equal pattern of any form is found. */
static void add_key(struct clause_index *index, size_t n, struct buf *key, struct pool *pool)
{
    const struct clause *c = &index->clauses[n];
    struct clause_key *made;
    struct slice text;

    put_key(key, c->is_class, c->lower_channel, false, c->host);
    if (find_key(index, key) != NULL) {
        return;
    }
    text = buf_slice(key);
    made = pool_new(pool, sizeof *made + text.len);
    made->clause = n;
    memcpy(made->text, text.ptr, text.len);
    HASH_ADD_KEYPTR(hh, index->keys, made->text, text.len, made);
}

void clause_index_init(struct clause_index *index, const struct clause *clauses, size_t count,
                       struct pool *pool)
{
    struct buf key;

    *index = (struct clause_index){.clauses = clauses,
                                   .others = pool_new(pool, count * sizeof *index->others)};
    buf_init(&key, KEY_MAX);
    for (size_t i = 0; i < count; i++) {
        if (clauses[i].lower_channel.len + clauses[i].host.len < TEXT_MAX) {
            add_key(index, i, &key, pool);
        }
        if (!has_key(&clauses[i])) {
            index->others[index->other_count++] = i;
        }
    }
    buf_fini(&key);
}

void clause_index_fini(struct clause_index *index)
{
    HASH_CLEAR(hh, index->keys);
}

/* A search, and its best result so far. */
struct search {
    const struct clause_index *index;
    clause_covers *covers;
    struct slice channel, host;
    size_t best;
};

static void try_key(struct search *s, const struct buf *key)
{
    const struct clause_key *found = find_key(s->index, key);

    if (found != NULL && found->clause < s->best &&
        s->covers(&s->index->clauses[found->clause], s->channel, s->host)) {
        s->best = found->clause;
    }
}

/* Tries all keys of clauses of this channel that may cover the host. */
static void try_channel(struct search *s, bool is_class, struct slice channel, struct buf *key)
{
    put_key(key, is_class, channel, false, s->host);
    try_key(s, key);
    for (size_t from = 0; from <= s->host.len; from++) {
        put_key(key, is_class, channel, true, slice_skip(s->host, from));
        try_key(s, key);
    }
}

size_t clause_index_find(const struct clause_index *index, bool is_class, struct slice channel,
                         struct slice host, size_t count, clause_covers *covers)
{
    struct search s = {index, covers, channel, host, count};
    struct buf key;

    if (channel.len + host.len < TEXT_MAX) {
        buf_init(&key, KEY_MAX);
        try_channel(&s, is_class, channel, &key);
        if (!is_star(channel)) {
            try_channel(&s, is_class, SLICE("*"), &key);
        }
        buf_fini(&key);
    }
    for (size_t i = 0; i < index->other_count && index->others[i] < s.best; i++) {
        const struct clause *c = &index->clauses[index->others[i]];

        if (c->is_class == is_class && covers(c, channel, host)) {
            s.best = index->others[i];
        }
    }
    return s.best;
}
