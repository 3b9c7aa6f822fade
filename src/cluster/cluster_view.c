#include "cluster_view.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "answers.h"
#include "check.h"
#include "cluster_search.h"
#include "cluster_tables.h"
#include "mem.h"

struct view {
    struct spool base;
    struct cluster_url url;
    PGconn *conn;   /* owned */
    PGresult *last; /* owned: what was handed out points into it */
    struct cluster_search search;
};

static struct view *view_of(struct spool *sp)
{
    return (struct view *)sp;
}

/* ---- asking ---------------------------------------------------------------------------------- */

#define SAY(q, ...) ((void)buf_addf(&(q)->sql, __VA_ARGS__)) /* sticky */

/* Ask, once more when the connection had been lost. The answer is v->last, with values in
 * binary. */
static int ask(struct view *v, struct cluster_query *q)
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

static int ask_search(struct cluster_search *s, struct cluster_query *q)
{
    struct view *v = view_of(s->sp);
    int err = ask(v, q);

    s->last = v->last;
    return err;
}

static int64_t number(const struct view *v, int row, int column)
{
    int64_t n = 0;

    return answer_number(v->last, row, column, &n) ? n : 0;
}

static struct slice text(const struct view *v, int row, int column)
{
    return slice_of(PQgetvalue(v->last, row, column), (size_t)PQgetlength(v->last, row, column));
}

/* ---- searches -------------------------------------------------------------------------------- */

static int scan(struct spool *sp, const struct spool_filter *f, size_t max, struct msg_id *ret_ids,
                size_t *ret_count)
{
    return cluster_search_scan(&view_of(sp)->search, f, max, ret_ids, ret_count);
}

static int count_matches(struct spool *sp, const struct spool_filter *f, uint64_t *ret_count)
{
    return cluster_search_count(&view_of(sp)->search, f, ret_count);
}

static int destinations(struct spool *sp, size_t max, struct spool_destination *ret,
                        size_t *ret_count)
{
    return cluster_search_destinations(&view_of(sp)->search, max, ret, ret_count);
}

static int destinations_from(struct spool *sp, const struct spool_destination *from, size_t max,
                             struct spool_destination *ret, size_t *ret_count)
{
    return cluster_search_destinations_from(&view_of(sp)->search, from, max, ret, ret_count);
}

static int oldest(struct spool *sp, const struct spool_destination *of, struct wall *ret_arrived)
{
    return cluster_search_oldest(&view_of(sp)->search, of, ret_arrived);
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
    struct cluster_query q;
    int err;

    cluster_query_init(&q);
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
    struct cluster_query q;
    int err;

    cluster_query_init(&q);
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
    struct cluster_query q;

    *ret_size = 0;
    for (int64_t n = 0; err == 0 && n < count; n++) {
        cluster_query_init(&q);
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
    struct cluster_query q;
    int err;

    cluster_query_init(&q);
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
    struct cluster_query q;
    int err;

    cluster_query_init(&q);
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
    v->search = (struct cluster_search){.sp = &v->base, .ask = ask_search};
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
