/*
 * Searches go through the tables of waiting mail by their indexes, state by state where there is no
 * condition, and through the fresh tables, which are small: mail is in them for seconds. Each
 * condition is written twice, for a part (x) and for a row of a fresh table (x, too), where all is
 * in one row.
 */
#include "cluster_search.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "answers.h"
#include "check.h"
#include "desk.h"

void cluster_query_init(struct cluster_query *q)
{
    memset(q, 0, sizeof *q);
    buf_init(&q->sql, CLUSTER_QUERY_SQL_MAX);
}

int cluster_query_bytes(struct cluster_query *q, struct slice bytes)
{
    CHECK(q->count < CLUSTER_QUERY_PARAMS_MAX);
    q->values[q->count] = bytes.ptr != NULL ? bytes.ptr : "";
    q->lengths[q->count] = (int)bytes.len;
    q->formats[q->count] = 1;
    return ++q->count;
}

#define SAY(q, ...) ((void)buf_addf(&(q)->sql, __VA_ARGS__)) /* sticky */

/* 0: there is none. */
static int64_t number(const struct cluster_search *s, int row, int column)
{
    int64_t n = 0;

    return row < PQntuples(s->last) && answer_number(s->last, row, column, &n) ? n : 0;
}

static struct slice text(const struct cluster_search *s, int row, int column)
{
    return slice_of(PQgetvalue(s->last, row, column), (size_t)PQgetlength(s->last, row, column));
}

/* ---- filters --------------------------------------------------------------------------------- */

#define LOWER(column) "lower(encode(" column ", 'escape') COLLATE \"C\")"

/* A whole address, or "@domain", whatever the case. */
static void say_address(struct cluster_query *q, const char *column, const char *domain_column,
                        struct slice wanted)
{
    bool is_domain = wanted.len > 0 && wanted.ptr[0] == '@';
    int n = cluster_query_bytes(q, wanted);

    if (is_domain && domain_column != NULL) {
        SAY(q, " AND %s = substr(lower(encode($%d::bytea, 'escape') COLLATE \"C\"), 2)",
            domain_column, n);
    } else if (is_domain) {
        SAY(q,
            " AND right(lower(encode(%s, 'escape') COLLATE \"C\"), "
            "length(encode($%d::bytea, 'escape'))) = lower(encode($%d::bytea, 'escape') "
            "COLLATE \"C\")",
            column, n, n);
    } else {
        SAY(q,
            " AND lower(encode(%s, 'escape') COLLATE \"C\") = lower(encode($%d::bytea, 'escape') "
            "COLLATE \"C\")",
            column, n);
    }
}

/* "transport/nexthop", "nexthop", or a domain: of the recipient in a row of a fresh table. */
static void say_fresh_destination(struct cluster_query *q, struct slice wanted)
{
    size_t slash = slice_find(wanted, '/');
    int n = cluster_query_bytes(q, wanted);

    SAY(q,
        " AND ((transport <> '' AND nexthop = $%d::text) OR "
        "right(lower(encode(address, 'escape') COLLATE \"C\"), length($%d::text) + 1) = "
        "'@' || lower($%d::text COLLATE \"C\")",
        n, n, n);
    if (slash > 0 && slash < wanted.len) {
        SAY(q, " OR (transport = $%d::text AND nexthop = $%d::text)",
            cluster_query_bytes(q, slice_of(wanted.ptr, slash)),
            cluster_query_bytes(q, slice_skip(wanted, slash + 1)));
    }
    SAY(q, ")");
}

/* The same of waiting mail; each of the three by its index, which an OR would not use. */
static void say_destination(struct cluster_query *q, struct slice wanted)
{
    size_t slash = slice_find(wanted, '/');
    int n = cluster_query_bytes(q, wanted);

    SAY(q,
        " AND (x.p, x.id) IN (SELECT p, id FROM recipient WHERE nexthop = $%d::text AND "
        "transport <> '' UNION SELECT p, id FROM recipient WHERE domain = "
        "lower($%d::text COLLATE \"C\")",
        n, n);
    if (slash > 0 && slash < wanted.len) {
        SAY(q,
            " UNION SELECT p, id FROM recipient WHERE transport = $%d::text AND "
            "nexthop = $%d::text",
            cluster_query_bytes(q, slice_of(wanted.ptr, slash)),
            cluster_query_bytes(q, slice_skip(wanted, slash + 1)));
    }
    SAY(q, ")");
}

/* The conditions of a message's own, as " AND ..". */
static void say_conditions(struct cluster_query *q, const struct spool_filter *f, bool is_fresh)
{
    if (slice_equal(f->sender, SLICE("<>"))) {
        SAY(q, " AND sender = ''");
    } else if (f->sender.len > 0) {
        say_address(q, "sender", is_fresh ? NULL : "sender_domain", f->sender);
    }
    if (f->class_name.len > 0) {
        SAY(q, " AND class = $%d::text", cluster_query_bytes(q, f->class_name));
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
        SAY(q, " AND (x.p, x.id) IN (SELECT p, id FROM recipient WHERE true");
        say_address(q, "address", "domain", f->rcpt);
        SAY(q, ")");
    }
    if (f->destination.len > 0) {
        say_destination(q, f->destination);
    }
}

static bool wants(const struct spool_filter *f, enum spool_state state)
{
    return f->states == 0 || (f->states & 1U << state) != 0;
}

/* The ids that match, table by table, each at most `max` in their order (0: all). */
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
        SAY(q, "%s(SELECT id FROM part x WHERE state = %d AND id = message AND id > %" PRId64,
            before, state, (int64_t)f->after.n);
        say_conditions(q, f, false);
        SAY(q,
            "%s) UNION ALL (SELECT DISTINCT message FROM part x WHERE state = %d AND "
            "message <> id AND message > %" PRId64,
            limit, state, (int64_t)f->after.n);
        say_conditions(q, f, false);
        SAY(q, "%s)", limit);
        before = " UNION ";
    }
    for (int k = 0; wants(f, SPOOL_INCOMING) && k < DESK_FRESH_TABLES; k++) {
        SAY(q, "%s(SELECT id FROM fresh_%d x WHERE id > %" PRId64, before, k, (int64_t)f->after.n);
        say_conditions(q, f, true);
        SAY(q, "%s)", limit);
        before = " UNION ";
    }
}

int cluster_search_scan(struct cluster_search *s, const struct spool_filter *f, size_t max,
                        struct msg_id *ret_ids, size_t *ret_count)
{
    struct cluster_query q;
    int err;

    *ret_count = 0;
    if (max == 0 || f->name.len > 0) {
        return 0;
    }
    cluster_query_init(&q);
    SAY(&q, "SELECT id FROM (");
    say_ids(&q, f, max);
    SAY(&q, ") s (id) ORDER BY id LIMIT %zu", max);
    err = s->ask(s, &q);
    for (int i = 0; err == 0 && i < PQntuples(s->last); i++) {
        ret_ids[(*ret_count)++] = (struct msg_id){(uint64_t)number(s, i, 0)};
    }
    return err;
}

int cluster_search_count(struct cluster_search *s, const struct spool_filter *f,
                         uint64_t *ret_count)
{
    struct cluster_query q;
    int err;

    cluster_query_init(&q);
    SAY(&q, "SELECT count(*) FROM (");
    say_ids(&q, f, 0);
    SAY(&q, ") s (id)");
    err = s->ask(s, &q);
    *ret_count = err == 0 ? (uint64_t)number(s, 0, 0) : 0;
    return err;
}

/* ---- destinations ---------------------------------------------------------------------------- */

/* Each recipient that waits, with its message. */
#define DOMAIN "coalesce(substring(" LOWER("address") " FROM '@([^@]*)$'), '')"
#define FRESH_RCPT(k)                                                                              \
    " UNION ALL SELECT transport, CASE WHEN transport = '' THEN " DOMAIN                           \
    " ELSE nexthop END, id, arrived FROM fresh_" k
#define RCPTS                                                                                      \
    "(SELECT transport, CASE WHEN transport = '' THEN domain ELSE nexthop END AS nexthop, id, "    \
    "NULL::bigint AS arrived FROM recipient WHERE state = 1" FRESH_RCPT("0") FRESH_RCPT("1")       \
        FRESH_RCPT("2") ") r"

static int take_destinations(struct cluster_search *s, struct cluster_query *q,
                             struct spool_destination *ret, size_t *ret_count)
{
    int err = s->ask(s, q);

    *ret_count = 0;
    for (int i = 0; err == 0 && i < PQntuples(s->last); i++) {
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
    SAY(&q,
        "SELECT transport, nexthop, count(*), count(DISTINCT id) FROM " RCPTS
        " GROUP BY 1, 2 ORDER BY 3 DESC, nexthop COLLATE \"C\", transport COLLATE \"C\" LIMIT %zu",
        max);
    return take_destinations(s, &q, ret, ret_count);
}

int cluster_search_destinations_from(struct cluster_search *s, const struct spool_destination *from,
                                     size_t max, struct spool_destination *ret, size_t *ret_count)
{
    struct cluster_query q;
    int nexthop, transport;

    cluster_query_init(&q);
    nexthop = cluster_query_bytes(&q, from->nexthop);
    transport = cluster_query_bytes(&q, from->transport);
    SAY(&q,
        "SELECT transport, nexthop, count(*), count(DISTINCT id) FROM " RCPTS
        " WHERE (nexthop COLLATE \"C\", transport COLLATE \"C\") >= ($%d::text, $%d::text) "
        "GROUP BY 1, 2 ORDER BY nexthop COLLATE \"C\", transport COLLATE \"C\" LIMIT %zu",
        nexthop, transport, max);
    return take_destinations(s, &q, ret, ret_count);
}

int cluster_search_oldest(struct cluster_search *s, const struct spool_destination *of,
                          struct wall *ret_arrived)
{
    struct cluster_query q;
    int transport, nexthop, err;

    cluster_query_init(&q);
    transport = cluster_query_bytes(&q, of->transport);
    nexthop = cluster_query_bytes(&q, of->nexthop);
    SAY(&q,
        "SELECT min(coalesce(r.arrived, (SELECT min(x.arrived) FROM part x WHERE x.id = r.id AND "
        "x.state IN (1, 2, 3, 4)))) FROM " RCPTS " WHERE transport = $%d::text AND "
        "nexthop = $%d::text",
        transport, nexthop);
    err = s->ask(s, &q);
    if (err == 0 && PQgetisnull(s->last, 0, 0) != 0) {
        return spool_fail(s->sp, -ENOENT, "no message waits for it");
    }
    if (err == 0) {
        ret_arrived->us = number(s, 0, 0);
    }
    return err;
}
