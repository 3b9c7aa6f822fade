/*
 * The sqlite engine: rows, searches, sums. These functions write nothing except pending counters,
 * which sqlite_read must see.
 *
 * Every value from the file is checked like input from a stranger: type, length, range.
 *
 * Searches. A condition with an index can drive the search: rows come from its index, and the other
 * conditions are tested on each row. Among several conditions the one with the fewest rows drives;
 * the rows of each index are counted up to PROBE_MAX. Equality on an index yields rows in order of
 * id, so a page ends early; the rows of a range must be sorted. A range with PROBE_MAX rows or more
 * does not drive, as a walk through all messages in order of id then finds a page soon enough.
 * Unlisted rows are in no index and are searched by id, which is cheap (see SQLITE_UNLISTED_SPAN).
 * So a search is a UNION of up to four SELECTs, each in order of id, which SQLite merges.
 */
#include "sqlite_engine.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "destination_list.h"
#include "mem.h"
#include "row_sum.h"

#define PROBE_MAX      20000
#define SQL_MAX        8192
#define CONDS_MAX      8
#define PARTS_MAX      3
#define TIME_MAX_US    (INT64_C(1) << 58) /* the year 11103 */
#define CONTENT_COLUMN 5                  /* index in ST_CONTENT_READ */
#define READ_TRIES     3

/* ---- rows ----------------------------------------------------------------------------------- */

/* Reads columns from left to right, and keeps the name of the first invalid one. */
struct row {
    struct sqlite_spool *s;
    sqlite3_stmt *st;
    int at;
    const char *bad;
};

static void row_bad(struct row *r)
{
    if (r->bad == NULL) {
        r->bad = sqlite3_column_name(r->st, r->at);
    }
}

static int64_t row_int(struct row *r, int64_t min, int64_t max)
{
    int64_t value = sqlite3_column_int64(r->st, r->at);

    if (sqlite3_column_type(r->st, r->at) != SQLITE_INTEGER || value < min || value > max) {
        row_bad(r);
        value = min;
    }
    r->at++;
    return value;
}

static struct slice row_text(struct row *r, size_t min, size_t max)
{
    struct slice text = SLICE("");

    if (sqlite3_column_type(r->st, r->at) == SQLITE_TEXT) {
        const void *bytes = sqlite3_column_text(r->st, r->at);

        text = slice_of(bytes, (size_t)sqlite3_column_bytes(r->st, r->at));
        if (bytes == NULL || text.len < min || text.len > max ||
            slice_find(text, '\0') < text.len) {
            row_bad(r);
            text = SLICE("");
        }
    } else {
        row_bad(r);
    }
    r->at++;
    return text_pool_add(&r->s->pool, text);
}

static struct wall row_time(struct row *r)
{
    return (struct wall){row_int(r, INT64_MIN, TIME_MAX_US)};
}

/* Reads a due time, which may be WALL_NEVER. */
static struct wall row_due(struct row *r)
{
    bool never = sqlite3_column_int64(r->st, r->at) == WALL_NEVER.us;

    return (struct wall){row_int(r, INT64_MIN, never ? INT64_MAX : TIME_MAX_US)};
}

/* Reads a checksum; false if the row has none. */
static bool row_sum(struct row *r, uint64_t *ret_sum)
{
    bool is_there = sqlite3_column_type(r->st, r->at) != SQLITE_NULL;

    *ret_sum = is_there ? (uint64_t)row_int(r, INT64_MIN, INT64_MAX) : 0;
    r->at += !is_there;
    return is_there;
}

int sqlite_damaged(struct sqlite_spool *s, struct msg_id id, const char *format, ...)
{
    char text[SPOOL_ID_TEXT_MAX], words[256];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(words, sizeof words, format, args); /* may be cut */
    va_end(args);
    spool_id_print(id, text);
    return spool_fail(&s->base, -EBADMSG, "%s: damaged: %s", text, words);
}

static int row_result(struct row *r, struct msg_id id)
{
    return r->bad == NULL ? 0 : sqlite_damaged(r->s, id, "impossible value of %s", r->bad);
}

/* ---- reading by id -------------------------------------------------------------------------- */

static sqlite3_stmt *ask_id(struct sqlite_spool *s, enum statement which, struct msg_id id)
{
    sqlite3_stmt *st = sqlite_ask(s, which);

    sqlite_bind_int(st, 1, id.n <= INT64_MAX ? (int64_t)id.n : 0);
    return st;
}

int sqlite_read_spool(struct sqlite_spool *s, struct spool_totals *ret_totals,
                      uint64_t *ret_last_id, uint64_t *ret_unlisted_from)
{
    sqlite3_stmt *st = sqlite_ask(s, ST_SPOOL_READ);
    int rc = sqlite_step(s, st), err;
    struct row r = {.s = s, .st = st};
    struct spool_totals totals = {.files = 0};
    uint64_t last_id, from;

    if (rc != SQLITE_ROW) {
        err = sqlite_done(s, st, rc);
        return err != 0 ? err : sqlite_fail(s, SQLITE_CORRUPT, "the table spool is empty");
    }
    last_id = (uint64_t)row_int(&r, 0, SQLITE_LAST_ID_MAX);
    from = (uint64_t)row_int(&r, 0, INT64_MAX);
    totals.incoming = (uint64_t)row_int(&r, 0, INT64_MAX);
    totals.deferred = (uint64_t)row_int(&r, 0, INT64_MAX);
    totals.hold = (uint64_t)row_int(&r, 0, INT64_MAX);
    totals.corrupt = (uint64_t)row_int(&r, 0, INT64_MAX);
    totals.bytes = (uint64_t)row_int(&r, 0, INT64_MAX);
    s->commits = (uint64_t)row_int(&r, 0, INT64_MAX - 1);
    s->passage_from = (uint64_t)row_int(&r, 0, INT64_MAX - 1);
    err = sqlite_done(s, st, rc);
    if (err != 0) {
        return err;
    }
    if (r.bad != NULL) {
        return sqlite_fail(s, SQLITE_CORRUPT, "the table spool");
    }
    *ret_totals = totals;
    *ret_last_id = last_id;
    *ret_unlisted_from = from;
    return 0;
}

int sqlite_read_brief(struct sqlite_spool *s, struct msg_id id, struct sqlite_brief *ret_brief)
{
    sqlite3_stmt *st;
    int64_t state, size;
    int rc, err;

    if (sqlite_is_passing(s, id)) {
        struct claim_facts facts = claims_get(&s->claims, id.n);

        *ret_brief = (struct sqlite_brief){.state = SPOOL_INCOMING,
                                           .due = facts.due,
                                           .size = facts.size,
                                           .in_file = facts.in_file,
                                           .segment = facts.segment,
                                           .has_rcpts = true,
                                           .counts_rcpts = true};
        return 0;
    }
    st = ask_id(s, ST_MESSAGE_BRIEF, id);
    rc = sqlite_step(s, st);
    if (rc == SQLITE_ROW) {
        state = sqlite3_column_int64(st, 0);
        size = sqlite3_column_int64(st, 2);
        *ret_brief = (struct sqlite_brief){
            .state =
                state >= SPOOL_INCOMING && state <= SPOOL_CORRUPT ? (enum spool_state)state : 0,
            .due = sqlite3_column_int64(st, 1),
            .size = size < 0 ? 0 : (uint64_t)size,
            .in_file = sqlite3_column_int(st, 3) != 0,
            .segment = sqlite_segment_number(sqlite3_column_int64(st, 4)),
            .has_rcpts = sqlite3_column_int(st, 5) != 0,
            .counts_rcpts =
                sqlite3_column_int64(st, 6) +
                    (s->counts.id == id.n ? s->counts.pending + s->counts.to_report : 0) !=
                0,
        };
    }
    err = sqlite_done(s, st, rc);
    return err == 0 && rc == SQLITE_DONE ? sqlite_no_message(s, id) : err;
}

static struct slice row_class(struct row *r)
{
    const char *column = sqlite3_column_name(r->st, r->at);
    struct slice name = row_text(r, 0, CLASS_NAME_MAX);

    if (name.len > 0 && !class_name_valid(name) && r->bad == NULL) {
        r->bad = column;
    }
    return name;
}

static int decode_message(struct row *r, struct msg_id id, struct spool_message *ret_message)
{
    struct spool_message m = {.id = id};
    uint64_t content_sum, sum;
    bool has_sum;
    int err;

    m.state = (enum spool_state)row_int(r, SPOOL_INCOMING, SPOOL_CORRUPT);
    m.due = row_due(r);
    m.arrived = row_time(r);
    m.created = row_time(r);
    m.size = (uint64_t)row_int(r, 0, (int64_t)SPOOL_CONTENT_MAX);
    m.flags = (unsigned)row_int(r, 0, 2 * ENVELOPE_TRACE - 1);
    m.rcpt_total = (uint32_t)row_int(r, 1, SPOOL_RCPTS_MAX);
    m.rcpt_pending = (uint32_t)row_int(r, 0, m.rcpt_total);
    m.rcpt_to_report = (uint32_t)row_int(r, 0, m.rcpt_total - m.rcpt_pending);
    m.warnings = row_int(r, 0, 1) == 1;
    m.force_expire = row_int(r, 0, 1) == 1;
    m.sender = row_text(r, 0, SPOOL_SENDER_MAX);
    m.envid = row_text(r, 0, DSN_ENVID_MAX);
    m.client = row_text(r, 0, SPOOL_REMOTE_MAX);
    m.reason = row_text(r, 0, SPOOL_DIAGNOSTIC_MAX);
    m.parked = row_text(r, 0, SPOOL_PARKED_MAX);
    m.class_name = row_class(r);
    m.class_source = (enum class_source)row_int(r, 0, CLASS_SOURCE_MAX);
    (void)row_int(r, 0, 1); /* the column `listed` */
    (void)row_sum(r, &content_sum);
    has_sum = row_sum(r, &sum);
    err = row_result(r, id);
    /* A quarantined message is shown as it is. */
    if (err == 0 && has_sum && m.state != SPOOL_CORRUPT &&
        row_sum_message(&m, content_sum) != sum) {
        err = sqlite_damaged(r->s, id, "its row is not what was stored: the checksum differs");
    }
    if (err == 0) {
        *ret_message = m;
    }
    return err;
}

int sqlite_read(struct spool *sp, struct msg_id id, struct spool_message *ret_message)
{
    struct sqlite_spool *s = sqlite_of(sp);
    int err = sqlite_flush_counts(s), rc, bad = 0;
    sqlite3_stmt *st;

    if (err != 0) {
        return err;
    }
    if (sqlite_is_passing(s, id)) {
        return sqlite_passage_read(s, id, ret_message);
    }
    text_pool_clear(&s->pool);
    st = ask_id(s, ST_MESSAGE_READ, id);
    rc = sqlite_step(s, st);
    if (rc == SQLITE_ROW) {
        struct row r = {.s = s, .st = st};

        bad = decode_message(&r, id, ret_message);
    }
    err = sqlite_done(s, st, rc);
    if (err == 0 && rc == SQLITE_DONE) {
        err = sqlite_no_message(s, id);
    }
    return err != 0 ? err : bad;
}

/* The counters of recipients in the message's row, with the changes of the open batch. */
struct counters {
    bool is_corrupt;
    uint32_t total;
    int64_t pending, to_report;
};

static int read_counters(struct sqlite_spool *s, struct msg_id id, struct counters *ret_counters)
{
    sqlite3_stmt *st = ask_id(s, ST_MESSAGE_COUNTERS, id);
    int rc = sqlite_step(s, st), err, bad = 0;

    if (rc == SQLITE_ROW) {
        struct row r = {.s = s, .st = st};
        struct counters c = {.is_corrupt = false};

        c.is_corrupt = row_int(&r, SPOOL_INCOMING, SPOOL_CORRUPT) == SPOOL_CORRUPT;
        c.total = (uint32_t)row_int(&r, 1, SPOOL_RCPTS_MAX);
        c.pending = row_int(&r, 0, SPOOL_RCPTS_MAX);
        c.to_report = row_int(&r, 0, SPOOL_RCPTS_MAX);
        if (s->counts.id == id.n) {
            c.pending += s->counts.pending;
            c.to_report += s->counts.to_report;
        }
        bad = row_result(&r, id);
        *ret_counters = c;
    }
    err = sqlite_done(s, st, rc);
    if (err == 0 && rc == SQLITE_DONE) {
        err = sqlite_no_message(s, id);
    }
    return err != 0 ? err : bad;
}

/* Decodes a row. Invalid values are replaced by valid ones, and recorded in `r`. */
static struct spool_rcpt decode_rcpt(struct row *r, uint64_t *ret_sum, bool *ret_has_sum)
{
    struct spool_rcpt rcpt = {.n = (uint32_t)row_int(r, 1, SPOOL_RCPTS_MAX)};

    rcpt.address = row_text(r, 1, ADDRESS_MAX);
    rcpt.orcpt = row_text(r, 0, DSN_ORCPT_MAX);
    rcpt.notify = (unsigned)row_int(r, 0, 2 * NOTIFY_DELAY - 1);
    rcpt.state = (enum spool_rcpt_state)row_int(r, SPOOL_RCPT_PENDING, SPOOL_RCPT_RELAYED);
    rcpt.transport = row_text(r, 0, SPOOL_ROUTE_MAX);
    rcpt.nexthop = row_text(r, 0, SPOOL_ROUTE_MAX);
    rcpt.route_generation = (uint64_t)row_int(r, 0, INT64_MAX);
    rcpt.attempts = (uint32_t)row_int(r, 0, UINT32_MAX);
    rcpt.status = row_text(r, 0, SPOOL_STATUS_MAX);
    rcpt.diagnostic = row_text(r, 0, SPOOL_DIAGNOSTIC_MAX);
    rcpt.remote = row_text(r, 0, SPOOL_REMOTE_MAX);
    rcpt.reply = row_text(r, 0, SPOOL_REPLY_MAX);
    rcpt.tls = row_text(r, 0, SPOOL_TLS_MAX);
    rcpt.last_attempt = row_time(r);
    *ret_has_sum = row_sum(r, ret_sum);
    if (rcpt.transport.len == 0) {
        rcpt.nexthop = SLICE(""); /* on disk it is the domain, for the index */
    }
    return rcpt;
}

/* Decodes a recipient, and checks that its number is above `after` and within its message's
 * counters. */
static int take_rcpt(struct row *r, struct msg_id id, const struct counters *c, uint32_t after,
                     struct spool_rcpt *ret_rcpt)
{
    uint64_t sum = 0;
    bool has_sum = false;
    struct spool_rcpt rcpt = decode_rcpt(r, &sum, &has_sum);

    if (c->is_corrupt) {
        /* The message was quarantined and is only shown, so return everything that is known. */
        if (rcpt.address.len == 0) {
            rcpt.address = SLICE("(unreadable)");
        }
        rcpt.n = rcpt.n > after ? rcpt.n : after + 1;
        *ret_rcpt = rcpt;
        return 0;
    }
    if (r->bad != NULL) {
        return row_result(r, id);
    }
    if (rcpt.n <= after || rcpt.n > c->total) {
        return sqlite_damaged(r->s, id, "recipient %u is out of order", (unsigned)rcpt.n);
    }
    if (has_sum && row_sum_rcpt(id, &rcpt) != sum) {
        return sqlite_damaged(r->s, id, "recipient %u is not what was stored: the checksum differs",
                              (unsigned)rcpt.n);
    }
    *ret_rcpt = rcpt;
    return 0;
}

/* Checks that the recipients exist that the message's row counts. */
static int check_counters(struct sqlite_spool *s, struct msg_id id, const struct counters *c)
{
    sqlite3_stmt *st = ask_id(s, ST_RCPT_COUNT, id);
    int rc = sqlite_step(s, st), err;
    int64_t pending = 0, all = 0;

    if (rc == SQLITE_ROW) {
        pending = sqlite3_column_int64(st, 0);
        all = sqlite3_column_int64(st, 1);
    }
    err = sqlite_done(s, st, rc);
    if (err == 0 && (pending != c->pending || all - pending != c->to_report)) {
        err = sqlite_damaged(s, id,
                             "of %lld recipients that wait %lld are there, of %lld to report %lld",
                             (long long)c->pending, (long long)pending, (long long)c->to_report,
                             (long long)(all - pending));
    }
    return err;
}

/* Checks each row, and after the last one that none is missing. */
int sqlite_read_rcpts(struct spool *sp, struct msg_id id, uint32_t after, bool only_pending,
                      size_t max, struct spool_rcpt *ret_rcpts, size_t *ret_count)
{
    struct sqlite_spool *s = sqlite_of(sp);
    struct counters counters = {.is_corrupt = false};
    size_t count = 0;
    sqlite3_stmt *st;
    int rc, err, bad = 0;

    if (sqlite_is_passing(s, id)) {
        return sqlite_passage_read_rcpts(s, id, after, max, ret_rcpts, ret_count);
    }
    text_pool_clear(&s->pool);
    err = read_counters(s, id, &counters);
    if (err != 0) {
        return err;
    }
    st = ask_id(s, only_pending ? ST_RCPT_READ_PENDING : ST_RCPT_READ, id);
    sqlite_bind_int(st, 2, after == 0 && counters.is_corrupt ? INT64_MIN : after);
    sqlite_bind_int(st, 3, max < INT64_MAX ? (int64_t)max : INT64_MAX);
    while ((rc = sqlite_step(s, st)) == SQLITE_ROW && bad == 0) {
        struct row r = {.s = s, .st = st};

        CHECK(count < max);
        bad = take_rcpt(&r, id, &counters, after, &ret_rcpts[count]);
        if (bad == 0) {
            after = ret_rcpts[count++].n;
        }
    }
    err = sqlite_done(s, st, rc);
    if (err == 0 && bad == 0 && count < max && !counters.is_corrupt) {
        bad = check_counters(s, id, &counters);
    }
    if (err != 0 || bad != 0) {
        return err != 0 ? err : bad;
    }
    *ret_count = count;
    return 0;
}

/* ---- going on with what was quarantined ----------------------------------------------------- */

static int set_sum(struct sqlite_spool *s, sqlite3_stmt *st, int at, uint64_t sum)
{
    int err;

    sqlite_bind_int(st, at, (int64_t)sum);
    err = sqlite_done(s, st, sqlite_step(s, st));
    return err == 0 ? 0 : spool_batch_failed(&s->base, err);
}

/* Computes the sum of the next recipient after number `after`, and stores it with `write`. *ret_n
 * is the recipient's number, 0 at the end. */
static int accept_rcpt(struct sqlite_spool *s, struct msg_id id, const struct counters *c,
                       uint32_t after, bool write, uint32_t *ret_n)
{
    sqlite3_stmt *st = ask_id(s, ST_RCPT_READ, id);
    struct spool_rcpt rcpt = {.n = 0};
    bool has_sum;
    uint64_t sum;
    int rc, err, bad = 0;

    sqlite_bind_int(st, 2, after);
    sqlite_bind_int(st, 3, 1);
    rc = sqlite_step(s, st);
    if (rc == SQLITE_ROW) {
        struct row r = {.s = s, .st = st};

        rcpt = decode_rcpt(&r, &sum, &has_sum);
        bad = row_result(&r, id);
        if (bad == 0 && (rcpt.n <= after || rcpt.n > c->total)) {
            bad = sqlite_damaged(s, id, "recipient %u is out of order", (unsigned)rcpt.n);
        }
        sum = row_sum_rcpt(id, &rcpt);
    }
    err = sqlite_done(s, st, rc);
    err = err != 0 ? err : bad;
    if (err == 0 && rcpt.n != 0 && write) {
        st = ask_id(s, ST_RCPT_SET_SUM, id);
        sqlite_bind_int(st, 2, rcpt.n);
        err = set_sum(s, st, 3, sum);
    }
    *ret_n = rcpt.n;
    return err;
}

static int accept_rcpts(struct sqlite_spool *s, struct msg_id id, const struct counters *c,
                        bool write)
{
    uint32_t after = 0;
    int err;

    do {
        text_pool_clear(&s->pool);
        err = accept_rcpt(s, id, c, after, write, &after);
    } while (err == 0 && after != 0);
    return err;
}

/* Stores a new sum of the message's row. */
static int accept_message(struct sqlite_spool *s, struct msg_id id)
{
    sqlite3_stmt *st = ask_id(s, ST_MESSAGE_READ, id);
    uint64_t content_sum = 0, sum = 0;
    struct spool_message m;
    int rc = sqlite_step(s, st), err, bad = 0;

    text_pool_clear(&s->pool);
    if (rc == SQLITE_ROW) {
        struct row r = {.s = s, .st = st};

        bad = decode_message(&r, id, &m);
        r.at = sqlite3_column_count(st) - 2;
        (void)row_sum(&r, &content_sum);
        sum = bad == 0 ? row_sum_message(&m, content_sum) : 0;
    }
    err = sqlite_done(s, st, rc);
    if (err != 0 || bad != 0) {
        return err != 0 ? err : bad;
    }
    return set_sum(s, ask_id(s, ST_MESSAGE_SET_SUM, id), 2, sum);
}

int sqlite_accept(struct sqlite_spool *s, struct msg_id id)
{
    struct counters counters;
    uint64_t size;
    int fd = -1, err = read_counters(s, id, &counters);

    if (err == 0) {
        err = check_counters(s, id, &counters);
    }
    if (err == 0) {
        err = accept_rcpts(s, id, &counters, false);
    }
    if (err == 0) {
        buf_clear(&s->bytes);
        err = sqlite_read_content(&s->base, id, &s->bytes, &fd, &size);
        if (fd >= 0) {
            (void)s->io->close(fd); /* opened for reading */
        }
    }
    if (err == 0) {
        err = accept_message(s, id);
    }
    return err != 0 ? err : accept_rcpts(s, id, &counters, true);
}

static int content_missing(struct sqlite_spool *s, struct msg_id id, const char *what)
{
    return sqlite_damaged(s, id, "its content is %s", what);
}

/* The columns of a message's row that describe its content. */
struct content_facts {
    uint64_t size;
    uint64_t sum;
    bool has_sum; /* false = stored by a version without checksums */
    bool in_file;
    bool in_segment;
    struct segment_place place;
};

#define CHANGED "not what was stored: its checksum does not match"

static int decode_content(struct row *r, struct msg_id id, struct content_facts *ret_facts)
{
    struct content_facts facts = {.size = (uint64_t)row_int(r, 0, (int64_t)SPOOL_CONTENT_MAX)};
    int err;

    facts.in_file = row_int(r, 0, 1) == 1;
    facts.has_sum = row_sum(r, &facts.sum);
    facts.in_segment = sqlite3_column_type(r->st, r->at) != SQLITE_NULL;
    if (facts.in_segment) {
        facts.place.segment = (uint32_t)row_int(r, 1, SEGMENT_NUMBER_MAX);
        facts.place.at = (uint64_t)row_int(r, 0, (int64_t)SPOOL_CONTENT_MAX);
    }
    err = row_result(r, id);
    if (err == 0) {
        *ret_facts = facts;
    }
    return err;
}

static int read_inline(struct sqlite_spool *s, sqlite3_stmt *st, struct msg_id id,
                       const struct content_facts *facts, struct buf *ret_bytes)
{
    const void *bytes = sqlite3_column_blob(st, CONTENT_COLUMN);
    size_t len = (size_t)sqlite3_column_bytes(st, CONTENT_COLUMN);

    if (sqlite3_column_type(st, CONTENT_COLUMN) != SQLITE_BLOB) {
        return content_missing(s, id, "missing");
    }
    if (len != facts->size) {
        return content_missing(s, id, "not of the size it had");
    }
    if (len > 0 && bytes == NULL) {
        return sqlite_fail(s, SQLITE_NOMEM, "read content");
    }
    if (facts->has_sum && checksum_of(slice_of(bytes, len)) != facts->sum) {
        return content_missing(s, id, CHANGED);
    }
    return buf_add(ret_bytes, slice_of(bytes, len))
               ? 0
               : spool_fail(&s->base, -ENOBUFS, "content is larger than the caller's buffer");
}

/* Opens a file and reads all of it, which also brings the file into the page cache for the process
 * that delivers it. */
static int read_file(struct sqlite_spool *s, struct msg_id id, const struct content_facts *facts,
                     int *ret_fd)
{
    struct checksum *sum;
    int fd, err = content_files_read(&s->content, id, facts->size, &fd);

    if (err == -EBADMSG) {
        return content_missing(s, id, "missing, or not of the size it had");
    }
    if (err == 0 && facts->has_sum) {
        sum = checksum_new();
        err = spool_io_sum(s->io, fd, facts->size, sum);
        if (err == 0 && checksum_value(sum) != facts->sum) {
            err = content_missing(s, id, CHANGED);
        }
        checksum_free(sum);
        if (err != 0) {
            (void)s->io->close(fd); /* opened for reading */
        }
    }
    if (err != 0 && err != -EBADMSG) {
        return spool_fail(&s->base, err, "read content: %s.d: %s", s->path, strerror(-err));
    }
    if (err == 0) {
        *ret_fd = fd;
    }
    return err;
}

static int read_segment(struct sqlite_spool *s, struct msg_id id, const struct content_facts *facts,
                        struct buf *ret_bytes, int *ret_fd)
{
    uint64_t sum = 0;
    int fd, err = sqlite_segments_read(s, id, facts->place, facts->size, &sum, ret_bytes, &fd);

    if (err == -EBADMSG) {
        return content_missing(s, id, segments_why(&s->segments));
    }
    if (err != 0) {
        return spool_fail(&s->base, err, "read content: %s.d: %s", s->path, strerror(-err));
    }
    if (facts->has_sum && sum != facts->sum) { /* the record is another one with the same id and
                                                * size */
        if (fd >= 0) {
            (void)close(fd); /* it is memory */
        }
        return content_missing(s, id, CHANGED);
    }
    *ret_fd = fd;
    return 0;
}

static int read_content(struct sqlite_spool *s, struct msg_id id, struct buf *ret_bytes,
                        int *ret_fd, uint64_t *ret_size)
{
    sqlite3_stmt *st = ask_id(s, ST_CONTENT_READ, id);
    int rc = sqlite_step(s, st), err, bad = 0, fd = -1;
    struct content_facts facts = {.size = 0};

    if (rc == SQLITE_ROW) {
        struct row r = {.s = s, .st = st};

        bad = decode_content(&r, id, &facts);
        if (bad == 0 && !facts.in_file) {
            bad = read_inline(s, st, id, &facts, ret_bytes);
        }
    }
    err = sqlite_done(s, st, rc);
    if (err == 0 && rc == SQLITE_DONE) {
        err = sqlite_no_message(s, id);
    }
    if (err == 0) {
        err = bad;
    }
    if (err == 0 && facts.in_segment) {
        err = read_segment(s, id, &facts, ret_bytes, &fd);
    } else if (err == 0 && facts.in_file) {
        err = read_file(s, id, &facts, &fd);
    }
    if (err == 0) {
        *ret_fd = fd;
        *ret_size = facts.size;
    }
    return err;
}

/* Reads the content, for a reader several times: meanwhile the writing process may deliver the
 * message and overwrite its place, or move the content. Then the row names the new place. */
int sqlite_read_content(struct spool *sp, struct msg_id id, struct buf *ret_bytes, int *ret_fd,
                        uint64_t *ret_size)
{
    struct sqlite_spool *s = sqlite_of(sp);
    int err = -EBADMSG;

    if (sqlite_is_passing(s, id)) {
        return sqlite_passage_read_content(s, id, ret_bytes, ret_fd, ret_size);
    }
    for (int i = 0; err == -EBADMSG && i < (s->lock_fd < 0 ? READ_TRIES : 1); i++) {
        err = read_content(s, id, ret_bytes, ret_fd, ret_size);
    }
    return err;
}

/* ---- searches ------------------------------------------------------------------------------- */

/* One condition of a filter. A condition that can drive a search has up to PARTS_MAX `parts`. Each
 * is a SELECT over listed rows that names its index; their union is the rows that match. */
struct cond {
    const char *test; /* SQL test of a message row `m` */
    const char *parts[PARTS_MAX];
    size_t part_count;
    bool is_range; /* its rows are not in order of id */
};

struct search {
    struct cond conds[CONDS_MAX];
    size_t count;
    /* values of named SQL parameters */
    struct slice sender, rcpt, whole, domain, transport, nexthop, class_name;
    int64_t arrived_before, arrived_after, size_min, size_max;
    uint64_t after, unlisted_from;
    /* storage for these values */
    char sender_domain[ADDRESS_MAX], rcpt_domain[ADDRESS_MAX], domain_space[ADDRESS_MAX];
    char state_test[64], state_part[160];
    bool nothing; /* a condition can't be met */
};

#define BY_MESSAGE(index, where)                                                                   \
    "SELECT m.id FROM message m INDEXED BY " index " WHERE m.listed = 1 AND " where                \
    " AND m.id > :after"
#define BY_RCPT(index, where)                                                                      \
    "SELECT r.message AS id FROM recipient r INDEXED BY " index " CROSS JOIN message m"            \
    " ON m.id = r.message WHERE r.listed = 1 AND " where " AND r.message > :after"
#define RCPT_TEST(where)                                                                           \
    "EXISTS (SELECT 1 FROM recipient r NOT INDEXED WHERE r.message = m.id AND " where ")"

static void search_add(struct search *q, struct cond cond)
{
    CHECK(q->count < CONDS_MAX);
    q->conds[q->count++] = cond;
}

static void copy_lower(char space[ADDRESS_MAX], struct slice text, struct slice *ret_lower)
{
    CHECK(text.len <= ADDRESS_MAX);
    for (size_t i = 0; i < text.len; i++) {
        space[i] = ascii_lower(text.ptr[i]);
    }
    *ret_lower = slice_of(space, text.len);
}

static void add_states(struct search *q, unsigned states)
{
    static const unsigned all =
        1U << SPOOL_INCOMING | 1U << SPOOL_DEFERRED | 1U << SPOOL_HOLD | 1U << SPOOL_CORRUPT;
    char list[16] = "";
    size_t len = 0, count = 0;

    if (states == 0 || (states & all) == all) {
        return;
    }
    for (int state = SPOOL_INCOMING; state <= SPOOL_CORRUPT; state++) {
        if (states & 1U << state) {
            len += (size_t)snprintf(list + len, sizeof list - len, "%s%d", count > 0 ? "," : "",
                                    state);
            count++;
        }
    }
    q->nothing = q->nothing || count == 0;
    snprintf(q->state_test, sizeof q->state_test, "m.state IN (%s)", list);
    snprintf(q->state_part, sizeof q->state_part, BY_MESSAGE("message_state", "m.state IN (%s)"),
             list);
    search_add(q, (struct cond){.test = q->state_test,
                                .parts = {q->state_part},
                                .part_count = 1,
                                .is_range = count > 1});
}

static void add_sender(struct search *q, struct slice sender)
{
    q->nothing = q->nothing || sender.len > ADDRESS_MAX;
    if (sender.len == 0 || q->nothing) {
        return;
    }
    if (sender.ptr[0] == '@') {
        copy_lower(q->sender_domain, slice_skip(sender, 1), &q->sender);
        search_add(q, (struct cond){.test = "m.sender_domain = :sender",
                                    .parts = {BY_MESSAGE("message_sender_domain",
                                                         "m.sender_domain = :sender")},
                                    .part_count = 1});
        return;
    }
    q->sender = slice_equal(sender, SLICE("<>")) ? SLICE("") : sender;
    search_add(q, (struct cond){.test = "m.sender = :sender",
                                .parts = {BY_MESSAGE("message_sender", "m.sender = :sender")},
                                .part_count = 1});
}

static void add_rcpt(struct search *q, struct slice rcpt)
{
    q->nothing = q->nothing || rcpt.len > ADDRESS_MAX;
    if (rcpt.len == 0 || q->nothing) {
        return;
    }
    if (rcpt.ptr[0] == '@') {
        copy_lower(q->rcpt_domain, slice_skip(rcpt, 1), &q->rcpt);
        search_add(q, (struct cond){.test = RCPT_TEST("r.domain = :rcpt"),
                                    .parts = {BY_RCPT("recipient_domain", "r.domain = :rcpt")},
                                    .part_count = 1});
        return;
    }
    q->rcpt = rcpt;
    search_add(q, (struct cond){.test = RCPT_TEST("r.address = :rcpt"),
                                .parts = {BY_RCPT("recipient_address", "r.address = :rcpt")},
                                .part_count = 1});
}

#define NEXTHOP_PARTS                                                                              \
    BY_RCPT("recipient_nexthop", "r.nexthop = :whole"),                                            \
        BY_RCPT("recipient_domain", "r.domain = :domain")

/* Adds the condition "transport/nexthop", "nexthop" (which may contain a slash, too), or a
 * domain. */
static void add_destination(struct search *q, struct slice destination)
{
    size_t slash = slice_find(destination, '/');

    if (destination.len == 0) {
        return;
    }
    q->whole = q->domain = destination;
    if (destination.len <= ADDRESS_MAX) { /* a longer text is not a domain */
        copy_lower(q->domain_space, destination, &q->domain);
    }
    if (slash == 0 || slash == destination.len) {
        search_add(q, (struct cond){.test = RCPT_TEST("(r.nexthop = :whole OR r.domain = :domain)"),
                                    .parts = {NEXTHOP_PARTS},
                                    .part_count = 2});
        return;
    }
    q->transport = slice_of(destination.ptr, slash);
    q->nexthop = slice_skip(destination, slash + 1);
    search_add(q, (struct cond){
                      .test = RCPT_TEST("(r.nexthop = :whole OR r.domain = :domain"
                                        " OR (r.nexthop = :nexthop AND r.transport = :transport))"),
                      .parts = {NEXTHOP_PARTS,
                                BY_RCPT("recipient_nexthop",
                                        "r.nexthop = :nexthop AND r.transport = :transport")},
                      .part_count = 3});
}

static void add_class(struct search *q, struct slice class_name)
{
    q->class_name = class_name;
    if (class_name.len > 0) {
        /* The index omits messages without a class, so the query must exclude them, too. */
        search_add(q, (struct cond){.test = "m.class = :class",
                                    .parts = {BY_MESSAGE("message_class",
                                                         "m.class = :class AND m.class <> ''")},
                                    .part_count = 1});
    }
}

static void add_ranges(struct search *q, const struct spool_filter *f)
{
    if (f->arrived_before.us != 0 || f->arrived_after.us != 0) {
        q->arrived_after = f->arrived_after.us != 0 ? f->arrived_after.us : INT64_MIN;
        q->arrived_before = f->arrived_before.us != 0 ? f->arrived_before.us : INT64_MAX;
        search_add(q,
                   (struct cond){
                       .test = "m.arrived > :arrived_after AND m.arrived < :arrived_before",
                       .parts = {BY_MESSAGE("message_arrived", "m.arrived > :arrived_after"
                                                               " AND m.arrived < :arrived_before")},
                       .part_count = 1,
                       .is_range = true});
    }
    if (f->size_min != 0 || f->size_max != 0) {
        q->size_min = f->size_min < INT64_MAX ? (int64_t)f->size_min : INT64_MAX;
        q->size_max =
            f->size_max != 0 && f->size_max < INT64_MAX ? (int64_t)f->size_max : INT64_MAX;
        search_add(q, (struct cond){.test = "m.size BETWEEN :size_min AND :size_max",
                                    .parts = {BY_MESSAGE("message_size",
                                                         "m.size BETWEEN :size_min AND :size_max")},
                                    .part_count = 1,
                                    .is_range = true});
    }
}

/* Returns the lowest id from which on messages may be unlisted. */
static int unlisted_begin(struct sqlite_spool *s, uint64_t *ret_from)
{
    struct spool_totals totals;
    uint64_t last_id;

    if (s->base.mode == SPOOL_OPEN_READ) {
        return sqlite_read_spool(s, &totals, &last_id, ret_from);
    }
    *ret_from = claims_unlisted_from(&s->claims, INT64_MAX);
    return 0;
}

static int search_init(struct search *q, struct sqlite_spool *s, const struct spool_filter *f)
{
    int err;

    *q = (struct search){.after = f->after.n < INT64_MAX ? f->after.n : INT64_MAX};
    err = unlisted_begin(s, &q->unlisted_from);
    add_states(q, f->states);
    add_sender(q, f->sender);
    add_rcpt(q, f->rcpt);
    add_destination(q, f->destination);
    add_class(q, f->class_name);
    add_ranges(q, f);
    return err;
}

static void bind_named_int(sqlite3_stmt *st, const char *name, int64_t value)
{
    int at = sqlite3_bind_parameter_index(st, name);

    if (at > 0) {
        sqlite_bind_int(st, at, value);
    }
}

static void bind_named_slice(sqlite3_stmt *st, const char *name, struct slice text)
{
    int at = sqlite3_bind_parameter_index(st, name);

    if (at > 0) {
        sqlite_bind_slice(st, at, text);
    }
}

static void search_bind(const struct search *q, sqlite3_stmt *st, size_t max)
{
    uint64_t unlisted_after = q->unlisted_from == 0 ? 0 : q->unlisted_from - 1;

    bind_named_int(st, ":after", (int64_t)q->after);
    /* A single bound, as SQLite would use only the first of two. */
    bind_named_int(st, ":unlisted_after",
                   (int64_t)(q->after > unlisted_after ? q->after : unlisted_after));
    bind_named_int(st, ":max", max < INT64_MAX ? (int64_t)max : INT64_MAX);
    bind_named_int(st, ":arrived_after", q->arrived_after);
    bind_named_int(st, ":arrived_before", q->arrived_before);
    bind_named_int(st, ":size_min", q->size_min);
    bind_named_int(st, ":size_max", q->size_max);
    bind_named_slice(st, ":sender", q->sender);
    bind_named_slice(st, ":class", q->class_name);
    bind_named_slice(st, ":rcpt", q->rcpt);
    bind_named_slice(st, ":whole", q->whole);
    bind_named_slice(st, ":domain", q->domain);
    bind_named_slice(st, ":transport", q->transport);
    bind_named_slice(st, ":nexthop", q->nexthop);
}

/* Prepares and binds the statement in `sql`, a buffer of SQL_MAX that must not have failed. */
static int search_prepare(struct sqlite_spool *s, const struct search *q, struct buf *sql,
                          size_t max, sqlite3_stmt **ret_st)
{
    sqlite3_stmt *st;
    int rc = sqlite3_prepare_v2(s->db, buf_cstr(sql), -1, &st, NULL);

    if (rc != SQLITE_OK) {
        return sqlite_fail(s, rc, "search");
    }
    search_bind(q, st, max);
    *ret_st = st;
    return 0;
}

/* Runs a statement that returns one number. */
static int search_number(struct sqlite_spool *s, const struct search *q, struct buf *sql,
                         size_t max, uint64_t *ret_number)
{
    sqlite3_stmt *st;
    int err = search_prepare(s, q, sql, max, &st), rc;
    uint64_t number = 0;

    if (err != 0) {
        return err;
    }
    rc = sqlite3_step(st);
    if (rc == SQLITE_ROW) {
        number = (uint64_t)sqlite3_column_int64(st, 0);
    }
    err = rc == SQLITE_ROW ? 0 : sqlite_fail(s, rc, "search");
    (void)sqlite3_finalize(st); /* returns the error of the last step again */
    if (err == 0) {
        *ret_number = number;
    }
    return err;
}

/* Counts the rows that a condition would have to read, up to PROBE_MAX. */
static int probe(struct sqlite_spool *s, const struct search *q, const struct cond *c,
                 uint64_t *ret_rows)
{
    struct buf sql;
    int err;

    buf_init(&sql, SQL_MAX);
    buf_add_string(&sql, "SELECT count(*) FROM (");
    for (size_t i = 0; i < c->part_count; i++) {
        buf_addf(&sql, "%s%s", i > 0 ? " UNION ALL " : "", c->parts[i]);
    }
    buf_add_string(&sql, " LIMIT :max)");
    err = search_number(s, q, &sql, PROBE_MAX, ret_rows);
    buf_fini(&sql);
    return err;
}

/* Chooses the condition that drives the search; NULL = read all messages. */
static int choose_driver(struct sqlite_spool *s, const struct search *q,
                         const struct cond **ret_driver)
{
    const struct cond *best = NULL;
    uint64_t best_rows = PROBE_MAX + 1;

    if (q->count == 1 && !q->conds[0].is_range) {
        *ret_driver = &q->conds[0];
        return 0;
    }
    for (size_t i = 0; i < q->count; i++) {
        const struct cond *c = &q->conds[i];
        uint64_t rows;
        int err = probe(s, q, c, &rows);

        if (err != 0) {
            return err;
        }
        if (rows < best_rows && (rows < PROBE_MAX || !c->is_range)) {
            best = c;
            best_rows = rows;
        }
    }
    *ret_driver = best;
    return 0;
}

static void add_tests(struct buf *sql, const struct search *q, const struct cond *but)
{
    for (size_t i = 0; i < q->count; i++) {
        if (&q->conds[i] != but) {
            buf_addf(sql, " AND %s", q->conds[i].test);
        }
    }
}

/* Builds a SELECT of the ids that match. */
static int search_sql(struct sqlite_spool *s, const struct search *q, struct buf *sql)
{
    const struct cond *driver;
    int err = choose_driver(s, q, &driver);

    if (err != 0) {
        return err;
    }
    if (driver == NULL) {
        buf_add_string(sql, "SELECT m.id FROM message m NOT INDEXED WHERE m.id > :after");
        add_tests(sql, q, NULL);
        return 0;
    }
    for (size_t i = 0; i < driver->part_count; i++) {
        buf_add_string(sql, driver->parts[i]);
        add_tests(sql, q, driver);
        buf_add_string(sql, " UNION ");
    }
    buf_add_string(sql, "SELECT m.id FROM message m NOT INDEXED WHERE m.id > :unlisted_after"
                        " AND m.listed = 0");
    add_tests(sql, q, NULL);
    return 0;
}

/* Merges `more` into `ids`, both in order. Returns their number, at most `max`. */
static size_t merge_ids(struct msg_id *ids, size_t count, size_t max, const struct msg_id *more,
                        size_t more_count)
{
    size_t all = count + more_count, at = all;

    /* From the last to the first, so that no element is overwritten before it has moved. */
    while (at > 0 && more_count > 0) {
        bool take_more = count == 0 || more[more_count - 1].n > ids[count - 1].n;
        struct msg_id id = take_more ? more[--more_count] : ids[--count];

        at--;
        if (at < max) {
            ids[at] = id;
        }
    }
    return all < max ? all : max;
}

int sqlite_scan(struct spool *sp, const struct spool_filter *f, size_t max, struct msg_id *ret_ids,
                size_t *ret_count)
{
    struct sqlite_spool *s = sqlite_of(sp);
    sqlite3_stmt *st = NULL;
    struct search q;
    size_t count = 0, passing_count = 0;
    struct msg_id *passing = NULL;
    struct buf sql;
    int err, rc;

    buf_init(&sql, SQL_MAX);
    err = search_init(&q, s, f);
    if (err != 0 || q.nothing || max == 0) {
        goto out;
    }
    err = search_sql(s, &q, &sql);
    if (err != 0) {
        goto out;
    }
    buf_add_string(&sql, " ORDER BY 1 LIMIT :max");
    err = search_prepare(s, &q, &sql, max, &st);
    if (err != 0) {
        goto out;
    }
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        CHECK(count < max);
        ret_ids[count++] = (struct msg_id){(uint64_t)sqlite3_column_int64(st, 0)};
    }
    err = rc == SQLITE_DONE ? 0 : sqlite_fail(s, rc, "search");
    (void)sqlite3_finalize(st); /* returns the error of the last step again */
    if (err == 0) {
        err = sqlite_passage_search(s, f, &passing, &passing_count);
    }
    if (err == 0) {
        count = merge_ids(ret_ids, count, max, passing, passing_count);
    }
out:
    mem_free(passing);
    buf_fini(&sql);
    if (err == 0) {
        *ret_count = count;
    }
    return err;
}

/* Has the filter no condition except the state? */
static bool only_states(const struct spool_filter *f)
{
    return f->sender.len == 0 && f->rcpt.len == 0 && f->destination.len == 0 &&
           f->class_name.len == 0 && f->arrived_before.us == 0 && f->arrived_after.us == 0 &&
           f->size_min == 0 && f->size_max == 0 && f->after.n == 0;
}

static int count_states(struct spool *sp, unsigned states, uint64_t *ret_count)
{
    struct spool_totals totals;
    uint64_t count = 0;
    int err = sqlite_totals(sp, &totals);

    for (int state = SPOOL_INCOMING; err == 0 && state <= SPOOL_CORRUPT; state++) {
        if (states == 0 || (states & 1U << state) != 0) {
            count += *spool_total_of(&totals, (enum spool_state)state);
        }
    }
    if (err == 0) {
        *ret_count = count;
    }
    return err;
}

int sqlite_count(struct spool *sp, const struct spool_filter *f, uint64_t *ret_count)
{
    struct sqlite_spool *s = sqlite_of(sp);
    uint64_t count = 0;
    size_t passing_count = 0;
    struct msg_id *passing = NULL;
    struct search q;
    struct buf sql;
    int err;

    if (only_states(f)) {
        return count_states(sp, f->states, ret_count);
    }
    buf_init(&sql, SQL_MAX);
    err = search_init(&q, s, f);
    if (err == 0 && !q.nothing) {
        buf_add_string(&sql, "SELECT count(*) FROM (");
        err = search_sql(s, &q, &sql);
        buf_add_string(&sql, ")");
    }
    if (err == 0 && !q.nothing) {
        err = search_number(s, &q, &sql, 0, &count);
    }
    if (err == 0 && !q.nothing) {
        err = sqlite_passage_search(s, f, &passing, &passing_count);
    }
    mem_free(passing);
    buf_fini(&sql);
    if (err == 0) {
        *ret_count = count + passing_count;
    }
    return err;
}

/* ---- sums ----------------------------------------------------------------------------------- */

int sqlite_totals(struct spool *sp, struct spool_totals *ret_totals)
{
    struct sqlite_spool *s = sqlite_of(sp);
    uint64_t last_id, unlisted_from;

    if (sp->mode == SPOOL_OPEN_WRITE) {
        *ret_totals = s->totals;
        return 0;
    }
    return sqlite_read_spool(s, ret_totals, &last_id, &unlisted_from);
}

/* A stream of destinations in order. */
struct destination_stream {
    sqlite3_stmt *st;
    int rc;
    struct spool_destination at; /* valid while rc is SQLITE_ROW */
};

static void destination_stream_next(struct sqlite_spool *s, struct destination_stream *d)
{
    d->rc = sqlite_step(s, d->st);
    if (d->rc == SQLITE_ROW) {
        const void *nexthop = sqlite3_column_text(d->st, 0);
        const void *transport = sqlite3_column_text(d->st, 1);

        d->at.nexthop = slice_of(nexthop, (size_t)sqlite3_column_bytes(d->st, 0));
        d->at.transport = slice_of(transport, (size_t)sqlite3_column_bytes(d->st, 1));
        d->at.rcpts = (uint64_t)sqlite3_column_int64(d->st, 2);
        d->at.messages = (uint64_t)sqlite3_column_int64(d->st, 3);
    }
}

static sqlite3_stmt *ask_from(struct sqlite_spool *s, enum statement which,
                              const struct spool_destination *from)
{
    sqlite3_stmt *st = sqlite_ask(s, which);

    sqlite_bind_slice(st, 1, from->nexthop);
    sqlite_bind_slice(st, 2, from->transport);
    return st;
}

/* Fills the list from the counters of listed recipients, and counts the few unlisted ones. */
static int fill_list(struct sqlite_spool *s, const struct spool_destination *from,
                     struct destination_list *list, size_t *ret_count)
{
    struct destination_stream listed, unlisted;
    uint64_t unlisted_from = 0;
    size_t count;
    int err = unlisted_begin(s, &unlisted_from), err_unlisted;

    if (err != 0) {
        (void)destination_list_end(list);
        return err;
    }
    listed.st = ask_from(s, ST_DESTINATIONS, from);
    destination_stream_next(s, &listed);
    if (listed.rc != SQLITE_ROW && listed.rc != SQLITE_DONE) {
        (void)destination_list_end(list);
        return sqlite_done(s, listed.st, listed.rc); /* while SQLite still has the text of the
                                                      * error */
    }
    unlisted.st = ask_from(s, ST_UNLISTED_DESTINATIONS, from);
    sqlite_bind_int(unlisted.st, 3, (int64_t)unlisted_from);
    destination_stream_next(s, &unlisted);
    while ((listed.rc == SQLITE_ROW || unlisted.rc == SQLITE_ROW) &&
           !destination_list_is_full(list)) {
        bool take_listed =
            unlisted.rc != SQLITE_ROW ||
            (listed.rc == SQLITE_ROW && destination_order(&listed.at, &unlisted.at) <= 0);
        struct destination_stream *d = take_listed ? &listed : &unlisted;

        destination_list_add(list, &d->at);
        destination_stream_next(s, d);
    }
    count = destination_list_end(list);
    err = sqlite_done(s, listed.st, listed.rc);
    err_unlisted = sqlite_done(s, unlisted.st, unlisted.rc);
    err = err != 0 ? err : err_unlisted;
    if (err == 0) {
        *ret_count = count;
    }
    return err;
}

int sqlite_destinations(struct spool *sp, size_t max, struct spool_destination *ret,
                        size_t *ret_count)
{
    static const struct spool_destination first = {.nexthop = {"", 0}, .transport = {"", 0}};
    struct sqlite_spool *s = sqlite_of(sp);
    struct destination_list list;
    int err = sqlite_need_all_rows(s);

    if (err == 0) {
        err = sqlite_tally_write(s);
    }
    if (err != 0) {
        return err;
    }
    text_pool_clear(&s->pool);
    destination_list_init(&list, &s->pool, ret, max);
    return fill_list(s, &first, &list, ret_count);
}

int sqlite_destinations_from(struct spool *sp, const struct spool_destination *from, size_t max,
                             struct spool_destination *ret, size_t *ret_count)
{
    struct sqlite_spool *s = sqlite_of(sp);
    struct destination_list list;
    int err = sqlite_need_all_rows(s);

    if (err == 0) {
        err = sqlite_tally_write(s);
    }
    if (err != 0) {
        return err;
    }
    text_pool_clear(&s->pool);
    destination_list_init_by_name(&list, &s->pool, ret, max);
    return fill_list(s, from, &list, ret_count);
}

/* ---- parked messages ------------------------------------------------------------------------ */

/* Each key costs a search of its own, which skips the messages of the previous key. */
int sqlite_parked_keys(struct spool *sp, struct slice after, size_t max, struct slice *ret_keys,
                       size_t *ret_count)
{
    struct sqlite_spool *s = sqlite_of(sp);
    size_t count = 0;
    int rc = SQLITE_ROW, err = 0;

    text_pool_clear(&s->pool);
    after = text_pool_add(&s->pool, after);
    while (err == 0 && count < max) {
        sqlite3_stmt *st = sqlite_ask(s, ST_PARKED_KEY);

        sqlite_bind_slice(st, 1, after);
        rc = sqlite_step(s, st);
        if (rc == SQLITE_ROW) {
            const void *key = sqlite3_column_text(st, 0);

            after = text_pool_add(&s->pool, slice_of(key, (size_t)sqlite3_column_bytes(st, 0)));
            ret_keys[count++] = after;
        }
        err = sqlite_done(s, st, rc);
        if (rc != SQLITE_ROW) {
            break;
        }
    }
    if (err == 0) {
        *ret_count = count;
    }
    return err;
}
