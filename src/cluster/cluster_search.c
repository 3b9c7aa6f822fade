/*
 * Searches use the indexes of the tables of waiting mail, and read state by state if the filter has
 * no other condition. Fresh tables are read completely; they are small, as mail is in them for
 * seconds. Each condition is written twice: for a part, and for a row of a fresh table. The row is
 * named x in both cases.
 */
#include "cluster_search.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "answers.h"
#include "boot_clock.h"
#include "check.h"
#include "desk.h"
#include "marked_text.h"
#include "mem.h"
#include "parts.h"

/* ---- statements ------------------------------------------------------------------------------ */

void cluster_query_init(struct cluster_query *q)
{
    memset(q, 0, sizeof *q);
    buf_init(&q->sql, CLUSTER_QUERY_SQL_MAX);
}

void cluster_query_fini(struct cluster_query *q)
{
    buf_fini(&q->sql);
    text_pool_fini(&q->pool);
}

int cluster_query_bytes(struct cluster_query *q, struct slice bytes)
{
    CHECK(q->count < CLUSTER_QUERY_PARAMS_MAX);
    q->values[q->count] = bytes.ptr != NULL ? bytes.ptr : "";
    q->lengths[q->count] = (int)bytes.len;
    q->formats[q->count] = 1;
    return ++q->count;
}

int cluster_query_text(struct cluster_query *q, struct slice text)
{
    size_t len = marked_text_size(text);
    char *marked;
    int n;

    if (marked_text_is_plain(text)) {
        return cluster_query_bytes(q, text);
    }
    marked = mem_new(len);
    marked_text_write(marked, text);
    n = cluster_query_bytes(q, text_pool_add(&q->pool, slice_of(marked, len)));
    mem_free(marked);
    return n;
}

int cluster_query_number(struct cluster_query *q, int64_t n)
{
    char bytes[8];

    for (unsigned i = 0; i < sizeof bytes; i++) {
        bytes[i] = (char)((uint64_t)n >> (56 - 8 * i));
    }
    return cluster_query_bytes(q, text_pool_add(&q->pool, slice_of(bytes, sizeof bytes)));
}

#define SAY(q, ...) ((void)buf_addf(&(q)->sql, __VA_ARGS__)) /* errors of the buffer are sticky */

/* Returns the number of rows, at most `max`, as the server may return more than requested. */
static int rows(const struct cluster_search *s, size_t max)
{
    int n = PQntuples(s->last);

    return (size_t)n < max ? n : (int)max;
}

/* Returns 0 if there is no such number. */
static int64_t number(const struct cluster_search *s, int row, int column)
{
    int64_t n = 0;

    return row < PQntuples(s->last) && answer_number(s->last, row, column, &n) ? n : 0;
}

/* Returns an empty text if the column is invalid. */
static struct slice text(struct cluster_search *s, int row, int column)
{
    struct slice t = SLICE("");

    (void)answer_text(s->last, row, column, SPOOL_ROUTE_MAX, &s->pool,
                      &t); /* it stays empty after an error */
    return t;
}

/* ---- filters --------------------------------------------------------------------------------- */

#define LOWER(column) "lower(encode(" column ", 'escape') COLLATE \"C\")"

/* Adds a parameter in lower case, as domains are stored. */
static int lower_text(struct cluster_query *q, struct slice wanted)
{
    char *lower = mem_copy(wanted.ptr, wanted.len);
    int n;

    for (size_t i = 0; i < wanted.len; i++) {
        lower[i] = ascii_lower(lower[i]);
    }
    n = cluster_query_text(q, text_pool_add(&q->pool, slice_of(lower, wanted.len)));
    mem_free(lower);
    return n;
}

/* Adds a condition on a whole address or on "@domain", without regard to case. */
static void say_address(struct cluster_query *q, const char *column, const char *domain_column,
                        struct slice wanted)
{
    bool is_domain = wanted.len > 0 && wanted.ptr[0] == '@';

    if (is_domain && domain_column != NULL) {
        SAY(q, " AND %s = $%d::text", domain_column, lower_text(q, slice_skip(wanted, 1)));
    } else if (is_domain) {
        int n = cluster_query_bytes(q, wanted);

        SAY(q,
            " AND right(lower(encode(%s, 'escape') COLLATE \"C\"), "
            "length(encode($%d::bytea, 'escape'))) = lower(encode($%d::bytea, 'escape') "
            "COLLATE \"C\")",
            column, n, n);
    } else {
        SAY(q,
            " AND lower(encode(%s, 'escape') COLLATE \"C\") = lower(encode($%d::bytea, 'escape') "
            "COLLATE \"C\")",
            column, cluster_query_bytes(q, wanted));
    }
}

/* Adds a condition on the recipient in a row of a fresh table: "transport/nexthop", "nexthop" or a
 * domain. */
static void say_fresh_destination(struct cluster_query *q, struct slice wanted)
{
    size_t slash = slice_find(wanted, '/');
    int bytes = cluster_query_bytes(q, wanted);

    SAY(q,
        " AND ((transport <> '' AND nexthop = $%d::text) OR "
        "right(lower(encode(address, 'escape') COLLATE \"C\"), length(encode($%d::bytea, "
        "'escape')) + 1) = '@' || lower(encode($%d::bytea, 'escape') COLLATE \"C\")",
        cluster_query_text(q, wanted), bytes, bytes);
    if (slash > 0 && slash < wanted.len) {
        SAY(q, " OR (transport = $%d::text AND nexthop = $%d::text)",
            cluster_query_text(q, slice_of(wanted.ptr, slash)),
            cluster_query_text(q, slice_skip(wanted, slash + 1)));
    }
    SAY(q, ")");
}

/* Adds the same condition on waiting mail. Each of the three forms has a query of its own, as an OR
 * would not use their indexes. */
static void say_destination(struct cluster_query *q, struct slice wanted, uint64_t after)
{
    size_t slash = slice_find(wanted, '/');

    SAY(q,
        " AND (x.p, x.id) IN (SELECT p, id FROM recipient WHERE nexthop = $%d::text AND "
        "transport <> '' AND id > %" PRId64 " UNION SELECT p, id FROM recipient WHERE domain = "
        "$%d::text AND id > %" PRId64,
        cluster_query_text(q, wanted), (int64_t)after, lower_text(q, wanted), (int64_t)after);
    if (slash > 0 && slash < wanted.len) {
        SAY(q,
            " UNION SELECT p, id FROM recipient WHERE transport = $%d::text AND "
            "nexthop = $%d::text AND id > %" PRId64,
            cluster_query_text(q, slice_of(wanted.ptr, slash)),
            cluster_query_text(q, slice_skip(wanted, slash + 1)), (int64_t)after);
    }
    SAY(q, ")");
}

/* Adds the filter's conditions on single messages, as " AND ..". */
static void say_conditions(struct cluster_query *q, const struct spool_filter *f, bool is_fresh)
{
    if (slice_equal(f->sender, SLICE("<>"))) {
        SAY(q, " AND sender = ''");
    } else if (f->sender.len > 0) {
        say_address(q, "sender", is_fresh ? NULL : "sender_domain", f->sender);
    }
    if (f->class_name.len > 0) {
        SAY(q, " AND class = $%d::text", cluster_query_text(q, f->class_name));
    }
    if (f->arrived_before.us != 0) {
        SAY(q, " AND arrived < %" PRId64, f->arrived_before.us);
    }
    if (f->arrived_after.us != 0) {
        SAY(q, " AND arrived > %" PRId64, f->arrived_after.us);
    }
    if (f->size_min > 0) {
        SAY(q, " AND size >= %" PRIu64, f->size_min);
    }
    if (f->size_max > 0) {
        SAY(q, " AND size <= %" PRIu64, f->size_max);
    }
    if (is_fresh) {
        if (f->rcpt.len > 0) {
            say_address(q, "address", NULL, f->rcpt);
        }
        if (f->destination.len > 0) {
            say_fresh_destination(q, f->destination);
        }
        return;
    }
    if (f->rcpt.len > 0) {
        SAY(q, " AND (x.p, x.id) IN (SELECT p, id FROM recipient WHERE id > %" PRId64,
            (int64_t)f->after.n); /* ids of parts are higher than that of their message */
        say_address(q, "address", "domain", f->rcpt);
        SAY(q, ")");
    }
    if (f->destination.len > 0) {
        say_destination(q, f->destination, f->after.n);
    }
}

static bool wants(const struct spool_filter *f, enum spool_state state)
{
    return f->states == 0 || (f->states & 1U << state) != 0;
}

/* Adds " AND p = ANY ('{1,2,3}')". */
static void say_places(struct cluster_query *q, const struct spool_filter *f)
{
    const char *comma = "";

    if (f->places == NULL) {
        return;
    }
    SAY(q, " AND p = ANY ('{");
    for (unsigned p = 0; p < PARTITIONS; p++) {
        if (spool_places_has(f->places, p)) {
            SAY(q, "%s%u", comma, p);
            comma = ",";
        }
    }
    SAY(q, "}'::smallint[])");
}

/* Makes the statement unique for each look, so that an earlier answer is not reused. */
static void say_look(struct cluster_query *q, const struct spool_filter *f)
{
    if (f->look != 0) {
        SAY(q, " /* look %" PRIu64 " */", f->look);
    }
}

/* Adds queries for the matching ids and their partitions (NULL for a message in parts), one for
 * each table and state. Each returns at most `max` rows in the order of ids (0: all rows). */
static void say_ids(struct cluster_query *q, const struct spool_filter *f, size_t max)
{
    const char *before = "";
    char limit[60] = "";

    if (max > 0) {
        (void)snprintf(limit, sizeof limit, " ORDER BY 1 LIMIT %zu", max); /* fits */
    }
    for (int state = SPOOL_INCOMING; state <= SPOOL_CORRUPT; state++) {
        if (!wants(f, (enum spool_state)state)) {
            continue;
        }
        SAY(q, "%s(SELECT id, p FROM part x WHERE state = %d AND %skind = 0 AND id > %" PRId64,
            before, state, f->places == NULL ? "id = message AND " : "", (int64_t)f->after.n);
        say_places(q, f);
        say_conditions(q, f, false);
        if (f->places == NULL) {
            SAY(q,
                "%s) UNION (SELECT DISTINCT message, NULL::smallint FROM part x WHERE state = %d "
                "AND message <> id AND message > %" PRId64,
                limit, state, (int64_t)f->after.n);
            say_conditions(q, f, false);
        }
        SAY(q, "%s)", limit);
        before = " UNION ";
    }
    for (int k = 0; wants(f, SPOOL_INCOMING) && !f->waits && k < DESK_FRESH_TABLES; k++) {
        SAY(q, "%s(SELECT id, p FROM fresh_%d x WHERE id > %" PRId64, before, k,
            (int64_t)f->after.n);
        say_places(q, f);
        say_conditions(q, f, true);
        SAY(q, "%s)", limit);
        before = " UNION ";
    }
}

/* ---- pages ----------------------------------------------------------------------------------- */

/* Makes the key of a filter. Filters with equal statements and parameters are equal. */
static void key_of(const struct spool_filter *f, struct buf *ret_key)
{
    struct spool_filter from_start = *f;
    struct cluster_query q;

    from_start.after.n = 0;
    cluster_query_init(&q);
    say_ids(&q, &from_start, 0);
    buf_init(ret_key, 2 * CLUSTER_QUERY_SQL_MAX);
    (void)buf_add(ret_key, buf_slice(&q.sql)); /* a key that failed equals no other */
    for (int i = 0; i < q.count; i++) {
        (void)buf_addf(ret_key, "/%d/", q.lengths[i]);
        (void)buf_add(ret_key, slice_of(q.values[i], (size_t)q.lengths[i]));
    }
    cluster_query_fini(&q);
}

static void take_piece(struct cluster_search *s, uint64_t after, size_t asked)
{
    struct cluster_piece *p = &s->piece;
    int count = rows(s, asked);

    mem_free(p->places);
    p->places = mem_array((size_t)count + 1, sizeof *p->places);
    p->count = 0;
    p->from = p->told = after;
    p->is_all = (size_t)count < asked;
    p->asked = asked;
    p->time = boot_now().us;
    for (int i = 0; i < count; i++) {
        uint64_t id = (uint64_t)number(s, i, 0), last;
        int64_t partition;

        last = p->count > 0 ? p->places[p->count - 1].id : after;
        if (id <= last || id > INT64_MAX) {
            continue; /* a message in parts has a row for each state of its parts */
        }
        if (!answer_number(s->last, i, 1, &partition) || partition < 0 || partition >= PARTITIONS) {
            partition = parts_home((struct msg_id){id});
        }
        p->places[p->count++] = (struct cluster_place){id, (uint16_t)partition};
    }
}

/* Returns the index of the first place after this id. */
static size_t place_behind(const struct cluster_piece *p, uint64_t id)
{
    size_t from = 0, to = p->count;

    while (from < to) {
        size_t middle = from + (to - from) / 2;

        if (p->places[middle].id <= id) {
            from = middle + 1;
        } else {
            to = middle;
        }
    }
    return from;
}

const struct cluster_place *cluster_search_place(const struct cluster_search *s, uint64_t id)
{
    size_t at = place_behind(&s->piece, id);

    return at > 0 && s->piece.places[at - 1].id == id ? &s->piece.places[at - 1] : NULL;
}

/* Does the piece contain a page of `max` places after `after`? The first page is always queried
 * again. */
static bool has_page(const struct cluster_piece *p, uint64_t after, size_t max)
{
    return after != 0 && after == p->told && boot_now().us - p->time <= CLUSTER_PIECE_US &&
           (p->is_all || p->count - place_behind(p, after) >= max);
}

static int ask_piece(struct cluster_search *s, const struct spool_filter *f, size_t max)
{
    struct cluster_query q;
    int err;

    cluster_query_init(&q);
    SAY(&q, "SELECT id, p FROM (");
    say_ids(&q, f, max);
    SAY(&q, ") s (id, p) ORDER BY id, p LIMIT %zu", max);
    say_look(&q, f);
    err = s->ask(s, &q);
    if (err == 0) {
        take_piece(s, f->after.n, max);
    }
    return err;
}

int cluster_search_scan(struct cluster_search *s, const struct spool_filter *f, size_t max,
                        struct msg_id *ret_ids, size_t *ret_count)
{
    struct cluster_piece *p = &s->piece;
    bool goes_on;
    struct buf key;
    size_t at, size = max;
    int err = 0;

    *ret_count = 0;
    if (max == 0 || f->name.len > 0) {
        return 0;
    }
    key_of(f, &key);
    goes_on = !key.failed && slice_equal(buf_slice(&key), buf_slice(&p->filter)) &&
              f->after.n != 0 && f->after.n == p->told;
    if (goes_on && size < CLUSTER_PIECE_MAX) {
        size = 8 * p->asked < CLUSTER_PIECE_MAX ? 8 * p->asked : CLUSTER_PIECE_MAX;
        size = size < max ? max : size;
    }
    if (!goes_on || !has_page(p, f->after.n, max)) {
        err = ask_piece(s, f, size);
    }
    if (err != 0) {
        buf_fini(&key);
        return err;
    }
    buf_fini(&p->filter);
    p->filter = key;
    at = place_behind(p, f->after.n);
    while (*ret_count < max && at < p->count) {
        p->told = p->places[at].id;
        ret_ids[(*ret_count)++] = (struct msg_id){p->places[at++].id};
    }
    return 0;
}

void cluster_search_fini(struct cluster_search *s)
{
    mem_free(s->piece.places);
    buf_fini(&s->piece.filter);
    text_pool_fini(&s->pool);
}

int cluster_search_count(struct cluster_search *s, const struct spool_filter *f,
                         uint64_t *ret_count)
{
    struct cluster_query q;
    int err;

    cluster_query_init(&q);
    SAY(&q, "SELECT count(*) FROM (");
    say_ids(&q, f, 0);
    SAY(&q, ") s (id, p)");
    say_look(&q, f);
    err = s->ask(s, &q);
    *ret_count = err == 0 ? (uint64_t)number(s, 0, 0) : 0;
    return err;
}

/* ---- destinations ---------------------------------------------------------------------------- */

/* Queries of waiting recipients by destination. A condition on transport and nexthop and the GROUP
 * BY are appended. Routed recipients are read from the index alone, in its order, so that a query
 * reads only the rows of its page. For unrouted ones the domain replaces the next hop. */
#define DOMAIN "coalesce(substring(" LOWER("address") " FROM '@([^@]*)$'), '')"
#define ROUTED                                                                                     \
    "SELECT transport, nexthop, count(*) AS n, count(DISTINCT id) AS messages FROM recipient "     \
    "WHERE state = 1 AND transport <> ''"
#define UNROUTED                                                                                   \
    "SELECT transport, nexthop, count(*), count(DISTINCT id) FROM (SELECT transport, domain "      \
    "COLLATE \"C\" AS nexthop, id FROM recipient WHERE state = 1 AND nexthop = '' AND transport "  \
    "= '') r WHERE true"
#define PASSING(k)                                                                                 \
    "SELECT transport, nexthop, count(*), count(*) FROM (SELECT transport COLLATE \"C\" AS "       \
    "transport, (CASE WHEN transport "                                                             \
    "= '' THEN " DOMAIN " ELSE nexthop END) COLLATE \"C\" AS nexthop FROM fresh_" k                \
    ") r WHERE true"

static const char *const waiting_sql[] = {ROUTED, UNROUTED, PASSING("0"), PASSING("1"),
                                          PASSING("2")};

/* Adds a query of all groups; `where` is appended to each part of it. */
static void say_groups(struct cluster_query *q, const char *where)
{
    SAY(q, "SELECT transport, nexthop, sum(n)::bigint, sum(messages)::bigint FROM (");
    for (size_t i = 0; i < sizeof waiting_sql / sizeof waiting_sql[0]; i++) {
        SAY(q, "%s(%s%s)", i > 0 ? " UNION ALL " : "", waiting_sql[i], where);
    }
    SAY(q, ") g GROUP BY transport, nexthop");
}

static int take_destinations(struct cluster_search *s, struct cluster_query *q, size_t max,
                             struct spool_destination *ret, size_t *ret_count)
{
    int err = s->ask(s, q);

    *ret_count = 0;
    text_pool_clear(&s->pool);
    for (int i = 0; err == 0 && i < rows(s, max); i++) {
        ret[(*ret_count)++] = (struct spool_destination){.transport = text(s, i, 0),
                                                         .nexthop = text(s, i, 1),
                                                         .rcpts = (uint64_t)number(s, i, 2),
                                                         .messages = (uint64_t)number(s, i, 3)};
    }
    return err;
}

int cluster_search_destinations(struct cluster_search *s, size_t max, struct spool_destination *ret,
                                size_t *ret_count)
{
    struct cluster_query q;

    cluster_query_init(&q);
    say_groups(&q, " GROUP BY nexthop, transport");
    SAY(&q, " ORDER BY 3 DESC, nexthop, transport LIMIT %zu", max);
    return take_destinations(s, &q, max, ret, ret_count);
}

int cluster_search_destinations_from(struct cluster_search *s, const struct spool_destination *from,
                                     size_t max, struct spool_destination *ret, size_t *ret_count)
{
    struct cluster_query q;
    char where[200];
    int nexthop, transport;

    cluster_query_init(&q);
    nexthop = cluster_query_text(&q, from->nexthop);
    transport = cluster_query_text(&q, from->transport);
    (void)snprintf(where, sizeof where,
                   " AND (nexthop, transport) >= ($%d::text, $%d::text) GROUP BY nexthop, "
                   "transport ORDER BY nexthop, transport LIMIT %zu",
                   nexthop, transport, max); /* fits */
    say_groups(&q, where);
    SAY(&q, " ORDER BY nexthop, transport LIMIT %zu", max);
    return take_destinations(s, &q, max, ret, ret_count);
}

int cluster_search_oldest(struct cluster_search *s, const struct spool_destination *of,
                          struct wall *ret_arrived)
{
    const char *routed = of->transport.len > 0 ? "r.nexthop" : "r.nexthop = '' AND r.domain";
    struct cluster_query q;
    int transport, nexthop, err;

    cluster_query_init(&q);
    transport = cluster_query_text(&q, of->transport);
    nexthop = cluster_query_text(&q, of->nexthop);
    SAY(&q,
        "SELECT min(arrived) FROM (SELECT min(x.arrived) AS arrived FROM recipient r JOIN part x "
        "ON x.p = r.p AND x.id = r.id WHERE r.state = 1 AND r.transport = $%d::text AND %s = "
        "$%d::text",
        transport, routed, nexthop);
    for (int k = 0; k < 3; k++) {
        SAY(&q,
            " UNION ALL SELECT min(arrived) FROM fresh_%d WHERE transport = $%d::text AND CASE "
            "WHEN transport = '' THEN " DOMAIN " ELSE nexthop END = $%d::text",
            k, transport, nexthop);
    }
    SAY(&q, ") a");
    err = s->ask(s, &q);
    if (err == 0 && PQgetisnull(s->last, 0, 0) != 0) {
        return spool_fail(s->sp, -ENOENT, "no message waits for it");
    }
    if (err == 0) {
        ret_arrived->us = number(s, 0, 0);
    }
    return err;
}

int cluster_search_stale(struct cluster_search *s, const bool is_mine[PARTITIONS], uint64_t own,
                         const struct spool_routed *after, size_t max, struct spool_routed *ret,
                         size_t *ret_count)
{
    const char *comma = "";
    struct cluster_query q;
    int err;

    cluster_query_init(&q);
    SAY(&q, "SELECT DISTINCT p, id FROM recipient WHERE p = ANY('{");
    for (unsigned p = 0; p < PARTITIONS; p++) {
        if (is_mine[p]) {
            SAY(&q, "%s%u", comma, p);
            comma = ",";
        }
    }
    SAY(&q,
        "}'::smallint[]) AND (p, id) > (%u::smallint, %" PRId64
        ") AND state = 1 AND (route_generation < %" PRIu64 " OR (route_generation > %" PRIu64
        " AND route_generation <> %" PRIu64 ")) ORDER BY p, id LIMIT %zu",
        after->partition, (int64_t)after->id.n, own, SPOOL_ROUTE_GENERATION_MAX, SPOOL_ROUTE_FIXED,
        max);
    err = s->ask(s, &q);
    for (int i = 0; err == 0 && i < rows(s, max); i++) {
        int64_t p = number(s, i, 0), id = number(s, i, 1);

        if (p >= 0 && p < PARTITIONS && id > 0) {
            ret[(*ret_count)++] =
                (struct spool_routed){.partition = (unsigned)p, .id = {(uint64_t)id}};
        }
    }
    return err;
}
