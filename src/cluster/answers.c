#include "answers.h"

#include <string.h>

#include "check.h"
#include "class_name.h"
#include "marked_text.h"
#include "mem.h"
#include "parts.h"

/* Limit of times, so that sums of them cannot overflow. */
#define TIME_MAX (INT64_C(1) << 61)

/* ---- values ---------------------------------------------------------------------------------- */

bool answer_number(const PGresult *r, int row, int column, int64_t *ret_n)
{
    const unsigned char *value;
    int len;
    uint64_t n;

    if (column >= PQnfields(r) || PQgetisnull(r, row, column)) {
        return false;
    }
    value = (const unsigned char *)PQgetvalue(r, row, column);
    len = PQgetlength(r, row, column);
    if (len != 1 && len != 2 && len != 4 && len != 8) {
        return false;
    }
    n = value[0] >= 128 && len > 1 ? UINT64_MAX : 0;
    for (int i = 0; i < len; i++) {
        n = n << 8 | value[i];
    }
    *ret_n = (int64_t)n;
    return true;
}

bool answer_text(const PGresult *r, int row, int column, size_t max, struct text_pool *pool,
                 struct slice *ret_text)
{
    return column < PQnfields(r) && PQgetisnull(r, row, column) == 0 &&
           marked_text_read(
               slice_of(PQgetvalue(r, row, column), (size_t)PQgetlength(r, row, column)), max, pool,
               ret_text);
}

/* Numbers of types in pg_type. */
enum { TYPE_BOOL = 16, TYPE_BYTEA = 17, TYPE_INT8 = 20, TYPE_INT2 = 21, TYPE_INT4 = 23 };
enum { TYPE_TEXT = 25, TYPE_VARCHAR = 1043 };

static bool is_of(Oid type, char letter)
{
    return letter == 'b' ? type == TYPE_BYTEA
           : letter == 't'
               ? type == TYPE_TEXT || type == TYPE_VARCHAR
               : type == TYPE_BOOL || type == TYPE_INT8 || type == TYPE_INT2 || type == TYPE_INT4;
}

const char *answer_misfit(const PGresult *r, const char *types)
{
    for (int i = 0; types[i] != '\0'; i++) {
        if (i >= PQnfields(r)) {
            return "?";
        }
        if (!is_of(PQftype(r, i), types[i])) {
            return PQfname(r, i);
        }
    }
    return NULL;
}

/* ---- rows ------------------------------------------------------------------------------------ */

static int64_t number(struct answer_row *in, int64_t min, int64_t max, const char *what)
{
    int64_t n = min;

    if ((!answer_number(in->r, in->row, in->column++, &n) || n < min || n > max) &&
        in->wrong == NULL) {
        in->wrong = what;
    }
    return n < min || n > max ? min : n;
}

static struct wall timestamp(struct answer_row *in, const char *what)
{
    int64_t n = 0;

    if (answer_number(in->r, in->row, in->column++, &n) &&
        ((n >= -TIME_MAX && n <= TIME_MAX) || n == WALL_NEVER.us)) {
        return (struct wall){n};
    }
    in->wrong = in->wrong != NULL ? in->wrong : what;
    return (struct wall){0};
}

static struct slice text(struct answer_row *in, size_t max, const char *what)
{
    struct slice t = SLICE("");

    if (!answer_text(in->r, in->row, in->column++, max, in->pool, &t) && in->wrong == NULL) {
        in->wrong = what;
    }
    return t;
}

static bool is_null(const struct answer_row *in)
{
    return PQgetisnull(in->r, in->row, in->column) == 1;
}

/* Returns the message of the row if that is being loaded, or NULL. Sets the next column to the
 * third. */
static struct desk_message *whose(struct desk *d, struct answer_row *in, uint16_t *ret_p)
{
    int64_t p, id;
    struct desk_message *msg;

    if (!answer_number(in->r, in->row, 0, &p) || !answer_number(in->r, in->row, 1, &id) || p < 0 ||
        p >= PARTITIONS || id <= 0) {
        return NULL;
    }
    in->column = 2;
    *ret_p = (uint16_t)p;
    msg = desk_any(d, (uint64_t)id);
    return msg != NULL && msg->is_loading ? msg : NULL;
}

/* Takes the content if the row has it. */
static void take_content(struct desk *d, struct desk_message *msg, struct answer_row *in)
{
    struct slice bytes;

    if (is_null(in)) {
        return;
    }
    bytes = slice_of(PQgetvalue(in->r, in->row, in->column),
                     (size_t)PQgetlength(in->r, in->row, in->column));
    if (bytes.len != msg->f.m.size) {
        in->wrong = in->wrong != NULL ? in->wrong : "its content is not as long as it should be";
        return;
    }
    desk_fill_content(d, msg, mem_copy(bytes.ptr, bytes.len), -1);
}

static void each_row(struct desk *d, const PGresult *r,
                     void (*take)(struct desk *d, const PGresult *r, int row,
                                  struct text_pool *pool))
{
    struct text_pool pool = {NULL, 0};

    for (int row = 0; row < PQntuples(r); row++) {
        take(d, r, row, &pool);
    }
    text_pool_fini(&pool);
}

static void end(struct answer_row *in, struct desk_message *msg)
{
    if (in->wrong != NULL) {
        desk_fill_wrong(msg, in->wrong);
    }
    text_pool_clear(in->pool);
}

void answer_envelope(struct answer_row *in, struct spool_message *m)
{
    m->due = timestamp(in, "its due time is impossible");
    m->arrived = timestamp(in, "its time of arrival is impossible");
    m->created = timestamp(in, "its time of creation is impossible");
    m->size = (uint64_t)number(in, 0, (int64_t)SPOOL_CONTENT_MAX, "its size is impossible");
    m->flags = (unsigned)number(in, 0, INT32_MAX, "its flags are impossible");
    if ((m->flags & ~(unsigned)MESSAGE_FLAGS) != 0) {
        m->flags &= MESSAGE_FLAGS;
        in->wrong = in->wrong != NULL ? in->wrong : "its flags are impossible";
    }
    m->class_source =
        (enum class_source)number(in, 0, CLASS_SOURCE_MAX, "its class is from nowhere");
    m->sender = text(in, SPOOL_SENDER_MAX, "its sender is impossible");
    m->envid = text(in, DSN_ENVID_MAX, "its envelope id is impossible");
    m->client = text(in, SPOOL_REMOTE_MAX, "its client is impossible");
    m->reason = text(in, SPOOL_DIAGNOSTIC_MAX, "its reason is impossible");
    m->class_name = text(in, CLASS_NAME_MAX, "its class is impossible");
    if (m->class_name.len > 0 && !class_name_valid(m->class_name)) {
        m->class_name = SLICE("");
        in->wrong = in->wrong != NULL ? in->wrong : "its class is impossible";
    }
}

static void take_address(struct answer_row *in, struct spool_rcpt *to)
{
    to->notify = (unsigned)number(in, 0, NOTIFY_BITS, "a recipient's notify is impossible");
    to->route_generation =
        (uint64_t)number(in, 0, INT64_MAX, "a recipient's route number is impossible");
    to->address = text(in, ADDRESS_MAX, "a recipient's address is impossible");
    to->orcpt = text(in, DSN_ORCPT_MAX, "a recipient's original address is impossible");
    to->transport = text(in, SPOOL_ROUTE_MAX, "a recipient's transport is impossible");
    to->nexthop = text(in, SPOOL_ROUTE_MAX, "a recipient's next hop is impossible");
    if (to->address.len == 0 || (to->transport.len == 0 && to->nexthop.len > 0)) {
        in->wrong = in->wrong != NULL ? in->wrong : "a recipient has no address or transport";
    }
}

void answer_wait(struct answer_row *row, struct spool_message *m)
{
    m->state = (enum spool_state)number(row, SPOOL_INCOMING, SPOOL_CORRUPT, "its state is unknown");
    m->rcpt_pending =
        (uint32_t)number(row, 0, SPOOL_RCPTS_MAX, "its number of recipients is impossible");
    m->rcpt_to_report =
        (uint32_t)number(row, 0, SPOOL_RCPTS_MAX, "its number of recipients is impossible");
    m->rcpt_total =
        (uint32_t)number(row, 1, SPOOL_RCPTS_MAX, "its number of recipients is impossible");
    m->warnings = (uint32_t)number(row, 0, INT32_MAX, "its warnings are impossible");
    m->force_expire = number(row, 0, 1, "its expiry is impossible") != 0;
    m->parked = text(row, SPOOL_PARKED_MAX, "the key it is parked under is impossible");
    if (m->parked.len > 0 && m->state != SPOOL_DEFERRED) {
        m->parked = SLICE("");
        row->wrong = row->wrong != NULL ? row->wrong : "it is parked, and not deferred";
    }
}

void answer_rcpt(struct answer_row *row, struct spool_rcpt *to)
{
    take_address(row, to);
    to->state = (enum spool_rcpt_state)number(row, SPOOL_RCPT_PENDING, SPOOL_RCPT_RELAYED,
                                              "a recipient's state is unknown");
    to->attempts = (uint32_t)number(row, 0, INT32_MAX, "a recipient's attempts are impossible");
    to->last_attempt = timestamp(row, "a recipient's last attempt is impossible");
    to->status = text(row, SPOOL_STATUS_MAX, "a recipient's status is impossible");
    to->diagnostic = text(row, SPOOL_DIAGNOSTIC_MAX, "a recipient's diagnostic is impossible");
    to->reply = text(row, SPOOL_REPLY_MAX, "a recipient's reply is impossible");
    to->remote = text(row, SPOOL_REMOTE_MAX, "a recipient's site is impossible");
    to->tls = text(row, SPOOL_TLS_MAX, "what a recipient's site has shown is impossible");
}

/* ---- mail in passage ------------------------------------------------------------------------- */

#define FRESH(k)                                                                                   \
    "SELECT f.p, f.id, due, arrived, created, size, flags, class_source, sender, envid, client, "  \
    "reason, class, notify, route_generation, address, orcpt, transport, nexthop, "                \
    "CASE WHEN size <= $3 THEN bytes END, " k "::smallint FROM unnest($1::smallint[], "            \
    "$2::bigint[]) AS u (p, id) JOIN fresh_" k " f ON f.p = u.p AND f.id = u.id"

const char answers_fresh_sql[] = FRESH("0") " UNION ALL " FRESH("1") " UNION ALL " FRESH("2");
const char answers_fresh_0_sql[] = FRESH("0");
const char answers_fresh_1_sql[] = FRESH("1");
const char answers_fresh_2_sql[] = FRESH("2");

const char answers_fresh_types[] = "nnnnnnnnbbbbtnnbbttbn";

static void take_fresh(struct desk *d, const PGresult *r, int row, struct text_pool *pool)
{
    struct spool_message m = {
        .state = SPOOL_INCOMING, .rcpt_total = 1, .rcpt_pending = 1, .parked = SLICE("")};
    struct spool_rcpt to = {.n = 1, .state = SPOOL_RCPT_PENDING};
    struct answer_row in = {.r = r, .row = row, .pool = pool};
    struct desk_message *msg;
    int content;
    int64_t table;
    uint16_t p;

    msg = whose(d, &in, &p);
    if (msg == NULL) {
        return;
    }
    m.id.n = msg->id;
    answer_envelope(&in, &m);
    take_address(&in, &to);
    content = in.column++;
    table = number(&in, 0, DESK_FRESH_TABLES - 1, "it is in no table");
    desk_fill(d, msg, p, ROW_FRESH + (unsigned)table, &m);
    desk_fill_rcpt(msg, &to);
    in.column = content;
    take_content(d, msg, &in);
    end(&in, msg);
}

void answers_fresh(struct desk *d, const PGresult *r)
{
    each_row(d, r, take_fresh);
}

/* ---- waiting mail ---------------------------------------------------------------------------- */

const char answers_waiting_sql[] =
    "SELECT x.p, x.id, x.due, m.arrived, x.created, m.size, m.flags, m.class_source, x.sender, "
    "m.envid, m.client, x.reason, x.class, x.state, x.pending, x.to_report, m.rcpt_total, "
    "x.warnings, x.force_expire, coalesce(x.parked, ''), x.message, x.kind, x.parts_left, x.gen, "
    "m.chunks, CASE WHEN m.size <= $3 THEN "
    "m.bytes END FROM unnest($1::smallint[], $2::bigint[]) AS u (p, id) JOIN part x ON x.p = u.p "
    "AND x.id = u.id JOIN message m ON m.id = x.message";

const char answers_waiting_types[] = "nnnnnnnnbbbbtnnnnnntnnnnnb";

static void take_waiting(struct desk *d, const PGresult *r, int row, struct text_pool *pool)
{
    struct spool_message m = {.state = SPOOL_INCOMING};
    struct answer_row in = {.r = r, .row = row, .pool = pool};
    struct desk_message *msg;
    int64_t chunks, parts_left, gen;
    uint16_t p;

    msg = whose(d, &in, &p);
    if (msg == NULL) {
        return;
    }
    m.id.n = msg->id;
    answer_envelope(&in, &m);
    answer_wait(&in, &m);
    m.whole.n = (uint64_t)number(&in, 1, INT64_MAX, "it is a part of nothing");
    m.gathers = number(&in, PART_MAIL, PART_REPORT, "its kind is unknown") == PART_REPORT;
    parts_left = number(&in, 0, SPOOL_RCPTS_MAX, "its number of parts is impossible");
    gen = number(&in, INT32_MIN, INT32_MAX, "it was given to impossibly often");
    if (m.gathers ? m.whole.n != m.id.n || p != parts_home(m.id) : parts_left != 0) {
        m.gathers = false;
        in.wrong = in.wrong != NULL ? in.wrong : "it is no report part, but has parts";
    }
    m.whole.n = m.gathers || m.whole.n != m.id.n ? m.whole.n : 0;
    chunks = number(&in, 0, INT32_MAX, "its content has an impossible number of chunks");
    if (chunks !=
        (m.size <= DESK_CONTENT_MAX ? 0 : (int64_t)((m.size + DESK_CHUNK - 1) / DESK_CHUNK))) {
        in.wrong = in.wrong != NULL ? in.wrong : "its content has an impossible number of chunks";
    }
    desk_fill(d, msg, p, ROW_WAITING, &m);
    desk_fill_report(msg, m.gathers ? (uint32_t)parts_left : 0, (int32_t)gen);
    take_content(d, msg, &in);
    end(&in, msg);
}

void answers_waiting(struct desk *d, const PGresult *r)
{
    each_row(d, r, take_waiting);
}

const char answers_rcpts_sql[] =
    "SELECT r.p, r.id, r.n, notify, route_generation, address, orcpt, transport, nexthop, state, "
    "attempts, last_attempt, status, diagnostic, reply, remote, tls FROM unnest($1::smallint[], "
    "$2::bigint[]) AS u (p, id) JOIN recipient r ON r.p = u.p AND r.id = u.id";

const char answers_rcpts_types[] = "nnnnnbbttnnnbbbbb";

/* $1, $2: partitions and ids of report parts. Numbers of recipients are those of the report
 * part. */
const char answers_others_sql[] =
    "SELECT u.p, u.id, r.n, notify, route_generation, address, orcpt, transport, nexthop, state, "
    "attempts, last_attempt, status, diagnostic, reply, remote, tls FROM unnest($1::smallint[], "
    "$2::bigint[]) AS u (p, id) JOIN LATERAL (SELECT r.* FROM part x JOIN recipient r ON "
    "r.p = x.p AND r.id = x.id WHERE x.message = u.id AND x.message <> x.id AND r.state = 1 ORDER "
    "BY r.n LIMIT 1000) r ON true ORDER BY u.id, r.n";

_Static_assert(PARTS_PENDING_MAX == 1000, "as above");

static void take_rcpt(struct desk *d, const PGresult *r, int row, bool is_others,
                      struct text_pool *pool)
{
    struct spool_rcpt to = {.n = 0};
    struct answer_row in = {.r = r, .row = row, .pool = pool};
    struct desk_message *msg;
    uint16_t p;

    msg = whose(d, &in, &p);
    if (msg == NULL || msg->row != ROW_WAITING || msg->f.p != p) {
        return; /* orphan, which `sluice cluster check` finds */
    }
    to.n = (uint32_t)number(&in, 1, msg->f.m.rcpt_total, "a recipient's number is impossible");
    answer_rcpt(&in, &to);
    if (in.wrong == NULL && is_others) {
        desk_fill_other(msg, &to);
    } else if (in.wrong == NULL) {
        desk_fill_rcpt(msg, &to);
    }
    end(&in, msg);
}

static void take_own_rcpt(struct desk *d, const PGresult *r, int row, struct text_pool *pool)
{
    take_rcpt(d, r, row, false, pool);
}

static void take_other_rcpt(struct desk *d, const PGresult *r, int row, struct text_pool *pool)
{
    take_rcpt(d, r, row, true, pool);
}

void answers_rcpts(struct desk *d, const PGresult *r)
{
    each_row(d, r, take_own_rcpt);
}

void answers_others(struct desk *d, const PGresult *r)
{
    each_row(d, r, take_other_rcpt);
}
