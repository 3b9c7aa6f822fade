/*
 * Searches go through the tables of waiting mail by their indexes, state by state where there is no
 * condition, and through the fresh tables, which are small: mail is in them for seconds. Each
 * condition is written twice, for a part (x) and for a row of a fresh table (x, too), where all is
 * in one row.
 */
#include "cluster_view.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "check.h"
#include "cluster_tables.h"
#include "mem.h"
#include "rows.h"

#define SQL_MAX 32768
/* Six for a whole filter, for each state of parts, divided or not, and each fresh table. */
#define PARAMS_MAX 80

struct view {
    struct spool base;
    struct cluster_url url;
    PGconn *conn;   /* owned */
    PGresult *last; /* owned: what was handed out points into it */
};

static struct view *view_of(struct spool *sp)
{
    return (struct view *)sp;
}

/* ---- asking ---------------------------------------------------------------------------------- */

/* A statement that is being made, with its parameters: numbers are written into it. */
struct query {
    struct buf sql;
    const char *values[PARAMS_MAX];
    int lengths[PARAMS_MAX], formats[PARAMS_MAX];
    int count;
};

static void query_init(struct query *q)
{
    memset(q, 0, sizeof *q);
    buf_init(&q->sql, SQL_MAX);
}

/* Borrows the bytes; returns the parameter's number, from 1. */
static int query_bytes(struct query *q, struct slice bytes)
{
    CHECK(q->count < PARAMS_MAX);
    q->values[q->count] = bytes.ptr != NULL ? bytes.ptr : "";
    q->lengths[q->count] = (int)bytes.len;
    q->formats[q->count] = 1;
    return ++q->count;
}

#define SAY(q, ...) ((void)buf_addf(&(q)->sql, __VA_ARGS__)) /* sticky */

/* Ask, once more when the connection had been lost. The answer is v->last, with values in
 * binary. */
static int ask(struct view *v, struct query *q)
{
    int err = -EIO;

    CHECK(!q->sql.failed);
    for (int i = 0; i < 2 && err != 0; i++) {
        PQclear(v->last);
        v->last = PQexecParams(v->conn, buf_cstr(&q->sql), q->count, NULL, q->values, q->lengths,
                               q->formats, 1);
        err = PQresultStatus(v->last) == PGRES_TUPLES_OK ? 0 : -EIO;
        if (err != 0) {
            struct slice words = slice_trim(slice_string(PQerrorMessage(v->conn)));

            (void)spool_fail(&v->base, err, "%s: %.*s", v->url.text, SLICE_ARGS(words));
            if (PQstatus(v->conn) != CONNECTION_BAD) {
                break;
            }
            PQreset(v->conn);
        }
    }
    buf_fini(&q->sql);
    return err;
}

static int64_t number(const struct view *v, int row, int column)
{
    return rows_number(v->last, row, column);
}

static struct slice text(const struct view *v, int row, int column)
{
    return slice_of(PQgetvalue(v->last, row, column), (size_t)PQgetlength(v->last, row, column));
}

/* ---- filters --------------------------------------------------------------------------------- */

#define LOWER(column) "lower(encode(" column ", 'escape') COLLATE \"C\")"

/* A whole address, or "@domain", whatever the case. */
static void say_address(struct query *q, const char *column, const char *domain_column,
                        struct slice wanted)
{
    bool is_domain = wanted.len > 0 && wanted.ptr[0] == '@';
    int n = query_bytes(q, wanted);

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
static void say_fresh_destination(struct query *q, struct slice wanted)
{
    size_t slash = slice_find(wanted, '/');
    int n = query_bytes(q, wanted);

    SAY(q,
        " AND ((transport <> '' AND nexthop = $%d::text) OR "
        "right(lower(encode(address, 'escape') COLLATE \"C\"), length($%d::text) + 1) = "
        "'@' || lower($%d::text COLLATE \"C\")",
        n, n, n);
    if (slash > 0 && slash < wanted.len) {
        SAY(q, " OR (transport = $%d::text AND nexthop = $%d::text)",
            query_bytes(q, slice_of(wanted.ptr, slash)),
            query_bytes(q, slice_skip(wanted, slash + 1)));
    }
    SAY(q, ")");
}

/* The same of waiting mail; each of the three by its index, which an OR would not use. */
static void say_destination(struct query *q, struct slice wanted)
{
    size_t slash = slice_find(wanted, '/');
    int n = query_bytes(q, wanted);

    SAY(q,
        " AND (x.p, x.id) IN (SELECT p, id FROM recipient WHERE nexthop = $%d::text AND "
        "transport <> '' UNION SELECT p, id FROM recipient WHERE domain = "
        "lower($%d::text COLLATE \"C\")",
        n, n);
    if (slash > 0 && slash < wanted.len) {
        SAY(q,
            " UNION SELECT p, id FROM recipient WHERE transport = $%d::text AND "
            "nexthop = $%d::text",
            query_bytes(q, slice_of(wanted.ptr, slash)),
            query_bytes(q, slice_skip(wanted, slash + 1)));
    }
    SAY(q, ")");
}

/* The conditions of a message's own, as " AND ..". */
static void say_conditions(struct query *q, const struct spool_filter *f, bool is_fresh)
{
    if (slice_equal(f->sender, SLICE("<>"))) {
        SAY(q, " AND sender = ''");
    } else if (f->sender.len > 0) {
        say_address(q, "sender", is_fresh ? NULL : "sender_domain", f->sender);
    }
    if (f->class_name.len > 0) {
        SAY(q, " AND class = $%d::text", query_bytes(q, f->class_name));
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
static void say_ids(struct query *q, const struct spool_filter *f, size_t max)
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

static int scan(struct spool *sp, const struct spool_filter *f, size_t max, struct msg_id *ret_ids,
                size_t *ret_count)
{
    struct view *v = view_of(sp);
    struct query q;
    int err;

    *ret_count = 0;
    if (max == 0 || f->name.len > 0) {
        return 0;
    }
    query_init(&q);
    SAY(&q, "SELECT id FROM (");
    say_ids(&q, f, max);
    SAY(&q, ") s (id) ORDER BY id LIMIT %zu", max);
    err = ask(v, &q);
    for (int i = 0; err == 0 && i < PQntuples(v->last); i++) {
        ret_ids[(*ret_count)++] = (struct msg_id){(uint64_t)number(v, i, 0)};
    }
    return err;
}

static int count_matches(struct spool *sp, const struct spool_filter *f, uint64_t *ret_count)
{
    struct view *v = view_of(sp);
    struct query q;
    int err;

    query_init(&q);
    SAY(&q, "SELECT count(*) FROM (");
    say_ids(&q, f, 0);
    SAY(&q, ") s (id)");
    err = ask(v, &q);
    *ret_count = err == 0 ? (uint64_t)number(v, 0, 0) : 0;
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

static int take_destinations(struct view *v, struct query *q, struct spool_destination *ret,
                             size_t *ret_count)
{
    int err = ask(v, q);

    *ret_count = 0;
    for (int i = 0; err == 0 && i < PQntuples(v->last); i++) {
        ret[(*ret_count)++] = (struct spool_destination){.transport = text(v, i, 0),
                                                         .nexthop = text(v, i, 1),
                                                         .rcpts = (uint64_t)number(v, i, 2),
                                                         .messages = (uint64_t)number(v, i, 3)};
    }
    return err;
}

static int destinations(struct spool *sp, size_t max, struct spool_destination *ret,
                        size_t *ret_count)
{
    struct query q;

    query_init(&q);
    SAY(&q,
        "SELECT transport, nexthop, count(*), count(DISTINCT id) FROM " RCPTS
        " GROUP BY 1, 2 ORDER BY 3 DESC, nexthop COLLATE \"C\", transport COLLATE \"C\" LIMIT %zu",
        max);
    return take_destinations(view_of(sp), &q, ret, ret_count);
}

static int destinations_from(struct spool *sp, const struct spool_destination *from, size_t max,
                             struct spool_destination *ret, size_t *ret_count)
{
    struct query q;
    int nexthop, transport;

    query_init(&q);
    nexthop = query_bytes(&q, from->nexthop);
    transport = query_bytes(&q, from->transport);
    SAY(&q,
        "SELECT transport, nexthop, count(*), count(DISTINCT id) FROM " RCPTS
        " WHERE (nexthop COLLATE \"C\", transport COLLATE \"C\") >= ($%d::text, $%d::text) "
        "GROUP BY 1, 2 ORDER BY nexthop COLLATE \"C\", transport COLLATE \"C\" LIMIT %zu",
        nexthop, transport, max);
    return take_destinations(view_of(sp), &q, ret, ret_count);
}

static int oldest(struct spool *sp, const struct spool_destination *of, struct wall *ret_arrived)
{
    struct view *v = view_of(sp);
    struct query q;
    int transport, nexthop, err;

    query_init(&q);
    transport = query_bytes(&q, of->transport);
    nexthop = query_bytes(&q, of->nexthop);
    SAY(&q,
        "SELECT min(coalesce(r.arrived, (SELECT min(x.arrived) FROM part x WHERE x.id = r.id AND "
        "x.state IN (1, 2, 3, 4)))) FROM " RCPTS " WHERE transport = $%d::text AND "
        "nexthop = $%d::text",
        transport, nexthop);
    err = ask(v, &q);
    if (err == 0 && PQgetisnull(v->last, 0, 0) != 0) {
        return spool_fail(sp, -ENOENT, "no message waits for it");
    }
    if (err == 0) {
        ret_arrived->us = number(v, 0, 0);
    }
    return err;
}

/* ---- by id ----------------------------------------------------------------------------------- */

/* The parts of message %lld: found by an index whatever their partition. */
#define PARTS                                                                                      \
    "(SELECT * FROM part WHERE state IN (1, 2, 3, 4) AND id = %" PRId64 " AND message = id "       \
    "UNION ALL SELECT * FROM part WHERE message <> id AND message = %" PRId64 ") x"
#define ALL_P "p = ANY (ARRAY(SELECT generate_series(0, 255)::smallint))"

#define FRESH_MESSAGE(k)                                                                           \
    " UNION ALL SELECT 1, due, created, size, flags, 1, arrived, 1, 0, 0, 0, '', reason, sender, " \
    "class, envid, client, class_source FROM fresh_" k " WHERE " ALL_P " AND id = %" PRId64

static int read_message(struct spool *sp, struct msg_id id, struct spool_message *ret_message)
{
    struct view *v = view_of(sp);
    char name[SPOOL_ID_TEXT_MAX];
    int64_t n = (int64_t)id.n;
    struct query q;
    int err;

    query_init(&q);
    SAY(&q,
        "SELECT CASE WHEN bool_or(x.state = 4) THEN 4 WHEN bool_or(x.state = 3) THEN 3 "
        "WHEN bool_or(x.state = 1) THEN 1 ELSE 2 END, min(x.due), min(x.created), m.size, m.flags, "
        "m.rcpt_total, m.arrived, sum(x.pending)::bigint, sum(x.to_report)::bigint, "
        "max(x.warnings), max(x.force_expire::int), coalesce(max(x.parked), ''), "
        "(array_agg(x.reason ORDER BY length(x.reason) DESC))[1], (array_agg(x.sender))[1], "
        "(array_agg(x.class))[1], m.envid, m.client, m.class_source FROM " PARTS
        " JOIN message m ON m.id = x.message GROUP BY m.id" FRESH_MESSAGE("0") FRESH_MESSAGE("1")
            FRESH_MESSAGE("2") " LIMIT 1",
        n, n, n, n, n);
    err = ask(v, &q);
    if (err == 0 && PQntuples(v->last) == 0) {
        spool_id_print(id, name);
        return spool_fail(sp, -ENOENT, "%s: no such message", name);
    }
    if (err != 0) {
        return err;
    }
    *ret_message = (struct spool_message){.id = id,
                                          .state = (enum spool_state)number(v, 0, 0),
                                          .due = {number(v, 0, 1)},
                                          .created = {number(v, 0, 2)},
                                          .size = (uint64_t)number(v, 0, 3),
                                          .flags = (unsigned)number(v, 0, 4),
                                          .rcpt_total = (uint32_t)number(v, 0, 5),
                                          .arrived = {number(v, 0, 6)},
                                          .rcpt_pending = (uint32_t)number(v, 0, 7),
                                          .rcpt_to_report = (uint32_t)number(v, 0, 8),
                                          .warnings = (uint32_t)number(v, 0, 9),
                                          .force_expire = number(v, 0, 10) != 0,
                                          .parked = text(v, 0, 11),
                                          .reason = text(v, 0, 12),
                                          .sender = text(v, 0, 13),
                                          .class_name = text(v, 0, 14),
                                          .envid = text(v, 0, 15),
                                          .client = text(v, 0, 16),
                                          .class_source = (enum class_source)number(v, 0, 17)};
    if (ret_message->state < SPOOL_INCOMING || ret_message->state > SPOOL_CORRUPT) {
        return spool_fail(sp, -EBADMSG, "a message's state is %d", (int)ret_message->state);
    }
    return 0;
}

#define FRESH_ROW(k)                                                                               \
    " UNION ALL SELECT 1, 1, notify, 0, 0::bigint, route_generation, address, transport, "         \
    "nexthop, orcpt, ''::bytea, ''::bytea, ''::bytea, ''::bytea, ''::bytea FROM fresh_" k          \
    " WHERE " ALL_P " AND id = %" PRId64 " AND %" PRIu32 " < 1"

static int read_rcpts(struct spool *sp, struct msg_id id, uint32_t after, bool only_pending,
                      size_t max, struct spool_rcpt *ret_rcpts, size_t *ret_count)
{
    struct view *v = view_of(sp);
    int64_t n = (int64_t)id.n;
    struct query q;
    int err;

    query_init(&q);
    SAY(&q,
        "SELECT * FROM (SELECT r.n, r.state, r.notify, r.attempts, r.last_attempt, "
        "r.route_generation, r.address, r.transport, r.nexthop, r.orcpt, r.status, r.diagnostic, "
        "r.reply, r.remote, r.tls FROM " PARTS " JOIN recipient r ON r.p = x.p AND r.id = x.id "
        "WHERE r.n > %" PRIu32 "%s" FRESH_ROW("0") FRESH_ROW("1")
            FRESH_ROW("2") ") s "
                           "ORDER BY n LIMIT %zu",
        n, n, after, only_pending ? " AND r.state = 1" : "", n, after, n, after, n, after, max);
    err = ask(v, &q);
    *ret_count = 0;
    for (int i = 0; err == 0 && i < PQntuples(v->last); i++) {
        ret_rcpts[(*ret_count)++] =
            (struct spool_rcpt){.n = (uint32_t)number(v, i, 0),
                                .state = (enum spool_rcpt_state)number(v, i, 1),
                                .notify = (unsigned)number(v, i, 2),
                                .attempts = (uint32_t)number(v, i, 3),
                                .last_attempt = {number(v, i, 4)},
                                .route_generation = (uint64_t)number(v, i, 5),
                                .address = text(v, i, 6),
                                .transport = text(v, i, 7),
                                .nexthop = text(v, i, 8),
                                .orcpt = text(v, i, 9),
                                .status = text(v, i, 10),
                                .diagnostic = text(v, i, 11),
                                .reply = text(v, i, 12),
                                .remote = text(v, i, 13),
                                .tls = text(v, i, 14)};
    }
    return err;
}

static int write_all(int fd, struct slice bytes)
{
    while (bytes.len > 0) {
        ssize_t n = write(fd, bytes.ptr, bytes.len);

        if (n < 0) {
            return -errno;
        }
        bytes = slice_skip(bytes, (size_t)n);
    }
    return 0;
}

/* The pieces, one after the other, into a file in memory. */
static int read_pieces(struct view *v, struct msg_id id, int64_t count, int *ret_fd,
                       uint64_t *ret_size)
{
    int fd = memfd_create("content", MFD_CLOEXEC), err = fd < 0 ? -errno : 0;
    struct query q;

    *ret_size = 0;
    for (int64_t n = 0; err == 0 && n < count; n++) {
        query_init(&q);
        SAY(&q, "SELECT bytes FROM content WHERE id = %" PRId64 " AND n = %" PRId64, (int64_t)id.n,
            n);
        err = ask(v, &q);
        if (err == 0 && PQntuples(v->last) != 1) {
            err = spool_fail(&v->base, -EBADMSG, "piece %" PRId64 " of its content is missing", n);
        }
        if (err == 0) {
            *ret_size += text(v, 0, 0).len;
            err = write_all(fd, text(v, 0, 0));
        }
    }
    if (err != 0 && fd >= 0) {
        (void)close(fd); /* in memory */
    }
    *ret_fd = err == 0 && lseek(fd, 0, SEEK_SET) == 0 ? fd : -1;
    return err;
}

#define FRESH_CONTENT(k)                                                                           \
    " UNION ALL SELECT bytes, 0, size FROM fresh_" k " WHERE " ALL_P " AND id = %" PRId64

static int read_content(struct spool *sp, struct msg_id id, struct buf *ret_bytes, int *ret_fd,
                        uint64_t *ret_size)
{
    struct view *v = view_of(sp);
    char name[SPOOL_ID_TEXT_MAX];
    int64_t n = (int64_t)id.n;
    struct query q;
    int err;

    query_init(&q);
    SAY(&q,
        "SELECT bytes, chunks, size FROM message WHERE id = %" PRId64 FRESH_CONTENT("0")
            FRESH_CONTENT("1") FRESH_CONTENT("2") " LIMIT 1",
        n, n, n, n);
    err = ask(v, &q);
    if (err != 0) {
        return err;
    }
    if (PQntuples(v->last) == 0) {
        spool_id_print(id, name);
        return spool_fail(sp, -ENOENT, "%s: no such message", name);
    }
    if (PQgetisnull(v->last, 0, 0) != 0) {
        return read_pieces(v, id, number(v, 0, 1), ret_fd, ret_size);
    }
    *ret_fd = -1;
    *ret_size = text(v, 0, 0).len;
    return buf_add(ret_bytes, text(v, 0, 0)) ? 0 : spool_fail(sp, -ENOMEM, "content: too large");
}

/* ---- the whole ------------------------------------------------------------------------------- */

static int totals(struct spool *sp, struct spool_totals *ret_totals)
{
    struct view *v = view_of(sp);
    struct query q;
    int err;

    query_init(&q);
    SAY(&q, "SELECT state::int, count(*), coalesce(sum(size)::bigint, 0) FROM part WHERE "
            "id = message GROUP BY state UNION ALL SELECT 2, count(DISTINCT message), 0 FROM part "
            "WHERE message <> id");
    for (int k = 0; k < DESK_FRESH_TABLES; k++) {
        SAY(&q, " UNION ALL SELECT 1, count(*), coalesce(sum(size)::bigint, 0) FROM fresh_%d", k);
    }
    err = ask(v, &q);
    *ret_totals = (struct spool_totals){.bytes = 0};
    for (int i = 0; err == 0 && i < PQntuples(v->last); i++) {
        uint64_t *total = spool_total_of(ret_totals, (enum spool_state)number(v, i, 0));

        if (total != NULL) {
            *total += (uint64_t)number(v, i, 1);
        }
        ret_totals->bytes += (uint64_t)number(v, i, 2);
    }
    return err;
}

static int free_bytes(struct spool *sp, uint64_t *ret_bytes)
{
    (void)sp; /* the server does not say */
    *ret_bytes = UINT64_MAX;
    return 0;
}

static bool is_claimed(const struct spool *sp, struct msg_id id)
{
    (void)sp;
    (void)id; /* the nodes know */
    return false;
}

static void close_view(struct spool *sp)
{
    struct view *v = view_of(sp);

    PQclear(v->last);
    PQfinish(v->conn);
    cluster_url_fini(&v->url);
    mem_free(v);
}

static const struct spool_search_part search = {
    .scan = scan,
    .count = count_matches,
    .destinations = destinations,
    .destinations_from = destinations_from,
    .oldest = oldest,
};

static const struct spool_engine view_engine = {
    .close = close_view,
    .is_claimed = is_claimed,
    .read = read_message,
    .read_rcpts = read_rcpts,
    .read_content = read_content,
    .totals = totals,
    .free_bytes = free_bytes,
    .search = &search,
};

int cluster_view_open(const char *where, const struct spool_options *options, struct buf *ret_error,
                      struct spool **ret_spool)
{
    struct view *v = mem_new(sizeof *v);
    int err = -EINVAL;

    v->base.engine = &view_engine;
    v->base.mode = SPOOL_OPEN_READ;
    if (cluster_url_parse(&v->url, where, CLUSTER_URL_READING, ret_error)) {
        cluster_url_set_password(&v->url, options->secret);
        err = -EIO;
        if (cluster_url_resolve(&v->url, ret_error)) {
            v->conn = cluster_tables_open(&v->url, &err, ret_error);
        }
    }
    if (v->conn == NULL) {
        close_view(&v->base);
        return err;
    }
    *ret_spool = &v->base;
    return 0;
}
