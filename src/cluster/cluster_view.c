#include "cluster_view.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "answers.h"
#include "boot_clock.h"
#include "check.h"
#include "cluster_search.h"
#include "cluster_tables.h"
#include "columns.h"
#include "mem.h"
#include "partition.h"

/* Number of listed messages whose rows are read at once, and the time for which these rows are
 * used. */
#define CHUNK_MAX 64
#define CHUNK_US  (2 * INT64_C(1000000))

/* Rows that were read ahead. */
struct chunk {
    PGresult *messages, *rcpts; /* owned; NULL if not read */
    uint64_t ids[CHUNK_MAX];
    size_t count;
    size_t rcpts_max; /* limit of recipients of each message in `rcpts` */
    int64_t time;     /* time of the query, in microseconds */
};

/* Statements that a list executes many times, prepared once for each connection. */
enum prepared { NOT_PREPARED, MESSAGES, RCPTS, PENDING, PREPARED_COUNT };
static const char *const prepared_names[] = {"", "messages", "rcpts", "pending"};

struct view {
    struct spool base;
    struct cluster_url url;
    PGconn *conn;   /* owned */
    PGresult *last; /* owned; returned texts point into it */
    struct cluster_search search;
    struct chunk chunk;
    struct text_pool pool; /* owned; returned texts */
    bool is_prepared[PREPARED_COUNT];
};

static struct view *view_of(struct spool *sp)
{
    return (struct view *)sp;
}

/* ---- queries --------------------------------------------------------------------------------- */

#define SAY(q, ...) ((void)buf_addf(&(q)->sql, __VA_ARGS__)) /* errors of the buffer are sticky */

static PGresult *run(struct view *v, struct cluster_query *q, enum prepared which)
{
    PGresult *r;

    if (which == NOT_PREPARED) {
        return cluster_url_wait(&v->url, v->conn,
                                PQsendQueryParams(v->conn, buf_cstr(&q->sql), q->count, NULL,
                                                  q->values, q->lengths, q->formats, 1));
    }
    if (!v->is_prepared[which]) {
        r = cluster_url_wait(
            &v->url, v->conn,
            PQsendPrepare(v->conn, prepared_names[which], buf_cstr(&q->sql), 0, NULL));
        if (PQresultStatus(r) != PGRES_COMMAND_OK) {
            return r;
        }
        PQclear(r);
        v->is_prepared[which] = true;
    }
    return cluster_url_wait(&v->url, v->conn,
                            PQsendQueryPrepared(v->conn, prepared_names[which], q->count, q->values,
                                                q->lengths, q->formats, 1));
}

/* Connects again after the connection was lost, to the host that is the primary now. Returns false
 * if that fails; the previous error stays. */
static bool connect_anew(struct view *v)
{
    struct buf error;
    PGconn *conn;

    buf_init(&error, 8192);
    conn = cluster_url_connect(&v->url, &error);
    if (conn != NULL) {
        PQfinish(v->conn);
        v->conn = conn;
        memset(v->is_prepared, 0, sizeof v->is_prepared);
    }
    buf_fini(&error);
    return conn != NULL;
}

/* Executes a query, a second time if the connection was lost. The result is v->last, in binary
 * form. Frees the query. */
static int ask_prepared(struct view *v, struct cluster_query *q, enum prepared which)
{
    int err = -EIO;

    CHECK(!q->sql.failed);
    for (int i = 0; i < 2 && err != 0; i++) {
        PQclear(v->last);
        v->last = run(v, q, which);
        err = PQresultStatus(v->last) == PGRES_TUPLES_OK ? 0 : -EIO;
        if (err != 0) {
            struct buf error;

            buf_init(&error, 8192);
            cluster_url_say_error(&v->url, v->conn, &error);
            (void)spool_fail(&v->base, err, "%s", error.failed ? "?" : buf_cstr(&error));
            buf_fini(&error);
            if (v->url.silence != NULL || PQstatus(v->conn) != CONNECTION_BAD || !connect_anew(v)) {
                break;
            }
        }
    }
    cluster_query_fini(q);
    return err;
}

static int ask(struct view *v, struct cluster_query *q)
{
    return ask_prepared(v, q, NOT_PREPARED);
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

static struct slice bytes(const struct view *v, int row, int column)
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

/* ---- messages by id -------------------------------------------------------------------------- */

/* A list is read in chunks, with the partitions that the search has found. The partition of a
 * message that is requested by id alone is looked up first. */

/* Parts of message u, or the row of an undivided one. */
#define PARTS                                                                                      \
    "(SELECT * FROM part WHERE p = u.p AND id = u.id AND message = id UNION ALL SELECT * FROM "    \
    "part WHERE message <> id AND message = u.id) x"

#define FRESH_MESSAGE(k)                                                                           \
    " UNION ALL SELECT due, arrived, created, size, flags, class_source, sender, envid, client, "  \
    "reason, class, 1, 1, 0, 1, 0, false, '' FROM fresh_" k " WHERE p = u.p AND id = u.id"

/* Columns in the order of answer_envelope and answer_wait. */
#define SQL_MESSAGES                                                                               \
    "SELECT u.id, e.* FROM unnest($1::smallint[], $2::bigint[]) AS u (p, id) CROSS JOIN LATERAL "  \
    "(SELECT coalesce(min(x.due) FILTER (WHERE x.kind = 0), min(x.due)), m.arrived, "              \
    "min(x.created), m.size, m.flags, m.class_source, "                                            \
    "(array_agg(x.sender))[1], m.envid, m.client, (array_agg(x.reason ORDER BY length(x.reason) "  \
    "DESC))[1], (array_agg(x.class))[1], CASE WHEN bool_or(x.state = 4) THEN 4 WHEN "              \
    "bool_or(x.state = 3) THEN 3 WHEN bool_or(x.state = 2) THEN 2 ELSE 1 END, "                    \
    "sum(x.pending)::bigint, sum(x.to_report)::bigint, m.rcpt_total, max(x.warnings), "            \
    "bool_or(x.force_expire), CASE WHEN bool_or(x.state <> 2) THEN '' ELSE "                       \
    "coalesce(max(x.parked), '') END FROM " PARTS                                                  \
    " JOIN message m ON m.id = u.id GROUP BY m.id" FRESH_MESSAGE("0") FRESH_MESSAGE("1")           \
        FRESH_MESSAGE("2") " LIMIT 1) e"

#define FRESH_RCPT(k)                                                                              \
    " UNION ALL SELECT 1, notify, route_generation, address, orcpt, transport, nexthop, 1, 0, "    \
    "0::bigint, ''::bytea, ''::bytea, ''::bytea, ''::bytea, ''::bytea FROM fresh_" k               \
    " WHERE p = u.p AND id = u.id AND $3::bigint < 1"

/* The number n, then columns in the order of answer_rcpt. $3: only recipients after this number.
 * $4: limit for each message. */
#define SQL_RCPTS(condition)                                                                       \
    "SELECT u.id, e.* FROM unnest($1::smallint[], $2::bigint[]) AS u (p, id) CROSS JOIN LATERAL "  \
    "(SELECT r.n, r.notify, r.route_generation, r.address, r.orcpt, r.transport, r.nexthop, "      \
    "r.state, r.attempts, r.last_attempt, r.status, r.diagnostic, r.reply, r.remote, r.tls "       \
    "FROM " PARTS                                                                                  \
    " JOIN recipient r ON r.p = x.p AND r.id = x.id WHERE r.n > $3::bigint" condition FRESH_RCPT(  \
        "0") FRESH_RCPT("1") FRESH_RCPT("2") " ORDER BY 1 LIMIT $4::bigint) e"

static const char *const prepared_sql[] = {
    [MESSAGES] = SQL_MESSAGES, [RCPTS] = SQL_RCPTS(""), [PENDING] = SQL_RCPTS(" AND r.state = 1")};

static void clear_chunk(struct chunk *c)
{
    PQclear(c->messages);
    PQclear(c->rcpts);
    *c = (struct chunk){.messages = NULL};
}

static bool is_in_chunk(const struct chunk *c, struct msg_id id)
{
    for (size_t i = 0; i < c->count; i++) {
        if (c->ids[i] == id.n) {
            return boot_now().us - c->time <= CHUNK_US;
        }
    }
    return false;
}

/* Queries messages, or at most `max` recipients of each after number `after`. */
static int ask_rows(struct view *v, enum prepared which, const uint16_t *ps, const uint64_t *ids,
                    size_t count, uint32_t after, size_t max)
{
    struct cluster_query q;
    struct columns p, id;
    int err;

    columns_init(&p, "", "s");
    columns_init(&id, "", "l");
    for (size_t i = 0; i < count; i++) {
        columns_number(&p, ps[i]);
        columns_row_open(&p);
        columns_number(&id, (int64_t)ids[i]);
        columns_row_open(&id);
    }
    cluster_query_init(&q);
    SAY(&q, "%s", prepared_sql[which]);
    (void)cluster_query_bytes(&q, columns_array(&p));
    (void)cluster_query_bytes(&q, columns_array(&id));
    if (which != MESSAGES) {
        (void)cluster_query_number(&q, after);
        (void)cluster_query_number(&q, (int64_t)max);
    }
    err = ask_prepared(v, &q, which);
    columns_fini(&p);
    columns_fini(&id);
    return err;
}

/* Finds the partition of a message. Returns -ENOENT if there is no such message. */
static int locate(struct view *v, struct msg_id id, uint16_t *ret_p)
{
    const struct cluster_place *place = cluster_search_place(&v->search, id.n);
    int64_t n = (int64_t)id.n, p = 0;
    char name[SPOOL_ID_TEXT_MAX];
    struct cluster_query q;
    int err;

    if (place != NULL) {
        *ret_p = place->p;
        return 0;
    }
    cluster_query_init(&q);
    SAY(&q, "SELECT p FROM part WHERE state IN (1, 2, 3, 4) AND id = %" PRId64 " AND message = id",
        n);
    for (int k = 0; k < DESK_FRESH_TABLES; k++) {
        SAY(&q,
            " UNION ALL SELECT p FROM fresh_%d WHERE p = ANY (ARRAY(SELECT generate_series(0, "
            "255)::smallint)) AND id = %" PRId64,
            k, n);
    }
    err = ask(v, &q);
    if (err == 0 && (PQntuples(v->last) == 0 || !answer_number(v->last, 0, 0, &p) || p < 0 ||
                     p >= PARTITIONS)) {
        spool_id_print(id, name);
        err = spool_fail(&v->base, -ENOENT, "%s: no such message", name);
    }
    *ret_p = (uint16_t)p;
    return err;
}

/* Reads the rows of the message and of those after it in the list. */
static int read_chunk(struct view *v, struct msg_id id)
{
    const struct cluster_piece *list = &v->search.piece;
    const struct cluster_place *place = cluster_search_place(&v->search, id.n);
    struct chunk *c = &v->chunk;
    uint16_t ps[CHUNK_MAX];
    int err = 0;

    clear_chunk(c);
    if (place == NULL) {
        err = locate(v, id, &ps[0]);
        c->ids[c->count++] = id.n;
    }
    for (; place != NULL && c->count < CHUNK_MAX && place < list->places + list->count; place++) {
        ps[c->count] = place->p;
        c->ids[c->count++] = place->id;
    }
    if (err == 0) {
        err = ask_rows(v, MESSAGES, ps, c->ids, c->count, 0, 0);
    }
    if (err != 0) {
        clear_chunk(c);
        return err;
    }
    c->time = boot_now().us;
    c->messages = v->last;
    v->last = NULL;
    return 0;
}

static int row_of(const PGresult *r, struct msg_id id)
{
    int64_t n;

    for (int row = 0; row < PQntuples(r); row++) {
        if (answer_number(r, row, 0, &n) && (uint64_t)n == id.n) {
            return row;
        }
    }
    return -1;
}

static int read_message(struct spool *sp, struct msg_id id, struct spool_message *ret_message)
{
    struct view *v = view_of(sp);
    struct answer_row row = {.column = 1, .pool = &v->pool};
    struct spool_message m = {.id = id};
    char name[SPOOL_ID_TEXT_MAX];
    int err = is_in_chunk(&v->chunk, id) ? 0 : read_chunk(v, id);

    if (err != 0) {
        return err;
    }
    spool_id_print(id, name);
    row.r = v->chunk.messages;
    row.row = row_of(row.r, id);
    if (row.row < 0) {
        return spool_fail(sp, -ENOENT, "%s: no such message", name);
    }
    text_pool_clear(&v->pool);
    answer_envelope(&row, &m);
    answer_wait(&row, &m);
    if (row.wrong != NULL) {
        return spool_fail(sp, -EBADMSG, "%s: %s", name, row.wrong);
    }
    *ret_message = m;
    return 0;
}

/* Copies recipients of the message from the result, up to `max`. */
static int take_rcpts(struct view *v, const PGresult *r, struct msg_id id, size_t max,
                      struct spool_rcpt *ret_rcpts, size_t *ret_count)
{
    struct answer_row row = {.r = r, .pool = &v->pool};
    char name[SPOOL_ID_TEXT_MAX];
    int64_t n;

    text_pool_clear(&v->pool);
    for (int i = row_of(r, id); i >= 0 && i < PQntuples(r) && *ret_count < max; i++) {
        struct spool_rcpt *to = &ret_rcpts[*ret_count];

        if (!answer_number(r, i, 0, &n) || (uint64_t)n != id.n) {
            break;
        }
        row.row = i;
        row.column = 2;
        *to = (struct spool_rcpt){.n = 0};
        answer_rcpt(&row, to);
        if (row.wrong != NULL || !answer_number(r, i, 1, &n) || n < 1 || n > UINT32_MAX) {
            spool_id_print(id, name);
            return spool_fail(&v->base, -EBADMSG, "%s: %s", name,
                              row.wrong != NULL ? row.wrong : "a recipient's number is impossible");
        }
        to->n = (uint32_t)n;
        ++*ret_count;
    }
    return 0;
}

static int read_rcpts(struct spool *sp, struct msg_id id, uint32_t after, bool only_pending,
                      size_t max, struct spool_rcpt *ret_rcpts, size_t *ret_count)
{
    struct view *v = view_of(sp);
    struct chunk *c = &v->chunk;
    const struct cluster_place *place;
    bool is_first = after == 0 && !only_pending && max <= CHUNK_MAX && is_in_chunk(c, id);
    uint16_t ps[CHUNK_MAX];
    int err;

    *ret_count = 0;
    if (is_first && c->rcpts != NULL && c->rcpts_max >= max) {
        return take_rcpts(v, c->rcpts, id, max, ret_rcpts, ret_count);
    }
    for (size_t i = 0; is_first && i < c->count; i++) {
        place = cluster_search_place(&v->search, c->ids[i]);
        is_first = place != NULL;
        ps[i] = is_first ? place->p : 0;
    }
    err = is_first ? 0 : locate(v, id, &ps[0]);
    if (err != 0) {
        return err;
    }
    err = ask_rows(v, only_pending ? PENDING : RCPTS, ps, is_first ? c->ids : &id.n,
                   is_first ? c->count : 1, after, max);
    if (err == 0 && is_first) {
        PQclear(c->rcpts);
        c->rcpts = v->last;
        c->rcpts_max = max;
        v->last = NULL;
    }
    return err != 0 ? err
                    : take_rcpts(v, is_first ? c->rcpts : v->last, id, max, ret_rcpts, ret_count);
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

/* Reads all chunks into a file in memory. */
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
            *ret_size += bytes(v, 0, 0).len;
            err = write_all(fd, bytes(v, 0, 0));
        }
    }
    if (err != 0 && fd >= 0) {
        (void)close(fd); /* cannot fail */
    }
    *ret_fd = err == 0 && lseek(fd, 0, SEEK_SET) == 0 ? fd : -1;
    return err;
}

#define FRESH_CONTENT(k)                                                                           \
    " UNION ALL SELECT bytes, 0, size FROM fresh_" k " WHERE p = %d AND id = %" PRId64

static int read_content(struct spool *sp, struct msg_id id, struct buf *ret_bytes, int *ret_fd,
                        uint64_t *ret_size)
{
    struct view *v = view_of(sp);
    char name[SPOOL_ID_TEXT_MAX];
    int64_t n = (int64_t)id.n;
    struct cluster_query q;
    uint16_t p;
    int err = locate(v, id, &p);

    if (err != 0) {
        return err;
    }
    cluster_query_init(&q);
    SAY(&q,
        "SELECT bytes, chunks, size FROM message WHERE id = %" PRId64 FRESH_CONTENT("0")
            FRESH_CONTENT("1") FRESH_CONTENT("2") " LIMIT 1",
        n, p, n, p, n, p, n);
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
    *ret_size = bytes(v, 0, 0).len;
    return buf_add(ret_bytes, bytes(v, 0, 0)) ? 0 : spool_fail(sp, -ENOMEM, "content: too large");
}

/* ---- interface ------------------------------------------------------------------------------- */

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
    (void)sp; /* the server does not report its free space */
    *ret_bytes = UINT64_MAX;
    return 0;
}

static bool is_claimed(const struct spool *sp, struct msg_id id)
{
    (void)sp;
    (void)id; /* only the nodes have claims */
    return false;
}

static void close_view(struct spool *sp)
{
    struct view *v = view_of(sp);

    clear_chunk(&v->chunk);
    cluster_search_fini(&v->search);
    text_pool_fini(&v->pool);
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
