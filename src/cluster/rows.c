#include "rows.h"

#include <stdlib.h>
#include <string.h>

#include "arrivals.h"
#include "check.h"
#include "columns.h"
#include "mem.h"
#include "parts.h"

/* ---- statements ------------------------------------------------------------------------------ */

#define FRESH_COLUMNS                                                                              \
    "p, id, due, arrived, created, size, route_generation, flags, notify, class_source, sender, "  \
    "envid, client, address, orcpt, reason, class, transport, nexthop, bytes"

/* Elements are read by their index. For 20 arrays unnest, which makes a table of each, would cost a
 * third of the insertion, and as much again for the content. */
#define INSERT_FRESH(k)                                                                            \
    {                                                                                              \
        "INSERT INTO fresh_" k " (" FRESH_COLUMNS ") SELECT ($1::smallint[])[i], "                 \
        "($2::bigint[])[i], ($3::bigint[])[i], ($4::bigint[])[i], ($5::bigint[])[i], "             \
        "($6::bigint[])[i], ($7::bigint[])[i], ($8::int[])[i], ($9::smallint[])[i], "              \
        "($10::smallint[])[i], ($11::bytea[])[i], ($12::bytea[])[i], ($13::bytea[])[i], "          \
        "($14::bytea[])[i], ($15::bytea[])[i], ($16::bytea[])[i], ($17::text[])[i], "              \
        "($18::text[])[i], ($19::text[])[i], ($20::bytea[])[i] FROM "                              \
        "generate_subscripts($2::bigint[], 1) AS u (i)",                                           \
            "slllllliss"                                                                           \
            "bbbbbbtttb"                                                                           \
    }

/* The server copies the content from table to table. */
#define MOVE_FRESH(k)                                                                              \
    {                                                                                              \
        "WITH gone AS (DELETE FROM fresh_" k " f USING unnest($1::smallint[], $2::bigint[]) "      \
        "AS u (p, id) WHERE f.p = u.p AND f.id = u.id RETURNING f.*) INSERT INTO message (id, "    \
        "flags, rcpt_total, size, arrived, class_source, envid, client, chunks, bytes) SELECT "    \
        "id, flags, 1, size, arrived, class_source, envid, client, 0, bytes FROM gone",            \
            "sl"                                                                                   \
    }

#define DELETE_FRESH(k)                                                                            \
    {                                                                                              \
        "DELETE FROM fresh_" k " f USING unnest($1::smallint[], $2::bigint[]) AS u (p, id) WHERE " \
        "f.p = u.p AND f.id = u.id",                                                               \
            "sl"                                                                                   \
    }

/* All statements that change mail, in the order in which a batch has them. */
enum statement {
    GIVE_RCPT,
    TELL_REPORT,
    INSERT_FRESH_0,
    MOVE_FRESH_0 = INSERT_FRESH_0 + DESK_FRESH_TABLES,
    INSERT_MESSAGE = MOVE_FRESH_0 + DESK_FRESH_TABLES,
    INSERT_CONTENT,
    INSERT_PART,
    INSERT_RCPT,
    MOVE_PART,
    DIVIDE_MESSAGE,
    UPDATE_PART,
    UPDATE_REPORT,
    UPDATE_RCPT,
    DELETE_RCPT,
    DELETE_RCPTS,
    DELETE_PART,
    DELETE_MESSAGE,
    DELETE_CONTENT,
    CLOSE_REPORT,
    DELETE_FRESH_0,
    INSERT_ARRIVAL = DELETE_FRESH_0 + DESK_FRESH_TABLES,
    STATEMENTS,
};

static const struct {
    const char *sql, *types;
} statements[STATEMENTS] = {
    [GIVE_RCPT] = {parts_give_sql, parts_give_types},
    [TELL_REPORT] = {parts_tell_sql, parts_tell_types},
    [MOVE_PART] = {parts_move_sql, parts_move_types},
    [DIVIDE_MESSAGE] = {parts_divide_sql, parts_divide_types},
    [UPDATE_REPORT] = {parts_update_sql, parts_update_types},
    [CLOSE_REPORT] = {parts_close_sql, parts_close_types},
    [INSERT_FRESH_0] = INSERT_FRESH("0"),
    [INSERT_FRESH_0 + 1] = INSERT_FRESH("1"),
    [INSERT_FRESH_0 + 2] = INSERT_FRESH("2"),
    [MOVE_FRESH_0] = MOVE_FRESH("0"),
    [MOVE_FRESH_0 + 1] = MOVE_FRESH("1"),
    [MOVE_FRESH_0 + 2] = MOVE_FRESH("2"),
    [INSERT_MESSAGE] = {"INSERT INTO message (id, flags, rcpt_total, size, arrived, class_source, "
                        "envid, client, chunks, bytes, parts, home) SELECT * FROM "
                        "unnest($1::bigint[], $2::int[], $3::int[], $4::bigint[], $5::bigint[], "
                        "$6::smallint[], $7::bytea[], $8::bytea[], $9::int[], $10::bytea[], "
                        "$11::smallint[], $12::smallint[])",
                        "liillsbbibss"},
    [INSERT_CONTENT] = {"INSERT INTO content (id, n, bytes) SELECT * FROM unnest($1::bigint[], "
                        "$2::int[], $3::bytea[])",
                        "lib"},
    [INSERT_PART] = {"INSERT INTO part (p, id, message, kind, state, due, created, pending, "
                     "to_report, warnings, force_expire, parked, reason, arrived, size, rcpts, "
                     "sender, sender_domain, class, parts_left) SELECT p, id, message, kind, "
                     "state, due, created, pending, to_report, warnings, force_expire, parked, "
                     "reason, arrived, size, rcpts, sender, sender_domain, class, parts_left FROM "
                     "unnest($1::smallint[], $2::bigint[], $3::smallint[], $4::bigint[], "
                     "$5::bigint[], $6::int[], $7::int[], $8::int[], $9::boolean[], $10::text[], "
                     "$11::bytea[], $12::bigint[], $13::bigint[], $14::int[], $15::bytea[], "
                     "$16::text[], $17::text[], $18::bigint[], $19::smallint[], $20::int[]) AS u "
                     "(p, id, state, due, created, pending, to_report, warnings, force_expire, "
                     "parked, reason, arrived, size, rcpts, sender, sender_domain, class, "
                     "message, kind, parts_left)",
                     "slslliiiotbllibttlsi"},
    [INSERT_RCPT] = {"INSERT INTO recipient (p, id, n, state, attempts, last_attempt, "
                     "route_generation, transport, nexthop, status, diagnostic, reply, remote, "
                     "tls, notify, address, domain, orcpt) SELECT * FROM unnest($1::smallint[], "
                     "$2::bigint[], $3::int[], $4::smallint[], $5::int[], $6::bigint[], "
                     "$7::bigint[], $8::text[], $9::text[], $10::bytea[], $11::bytea[], "
                     "$12::bytea[], $13::bytea[], $14::bytea[], $15::smallint[], $16::bytea[], "
                     "$17::text[], $18::bytea[])",
                     "slisillttbbbbbsbtb"},
    [UPDATE_PART] = {"UPDATE part x SET state = u.state, due = u.due, created = u.created, "
                     "pending = u.pending, to_report = u.to_report, warnings = u.warnings, "
                     "force_expire = u.force_expire, parked = u.parked, reason = u.reason FROM "
                     "unnest($1::smallint[], $2::bigint[], $3::smallint[], $4::bigint[], "
                     "$5::bigint[], $6::int[], $7::int[], $8::int[], $9::boolean[], $10::text[], "
                     "$11::bytea[]) AS u (p, id, state, due, created, pending, to_report, "
                     "warnings, force_expire, parked, reason) WHERE x.p = u.p AND x.id = u.id",
                     "slslliiiotb"},
    [UPDATE_RCPT] = {"UPDATE recipient x SET state = u.state, attempts = u.attempts, "
                     "last_attempt = u.last_attempt, route_generation = u.route_generation, "
                     "transport = u.transport, nexthop = u.nexthop, status = u.status, "
                     "diagnostic = u.diagnostic, reply = u.reply, remote = u.remote, tls = u.tls "
                     "FROM unnest($1::smallint[], $2::bigint[], $3::int[], $4::smallint[], "
                     "$5::int[], $6::bigint[], $7::bigint[], $8::text[], $9::text[], "
                     "$10::bytea[], $11::bytea[], $12::bytea[], $13::bytea[], $14::bytea[]) AS u "
                     "(p, id, n, state, attempts, last_attempt, route_generation, transport, "
                     "nexthop, status, diagnostic, reply, remote, tls) WHERE x.p = u.p AND "
                     "x.id = u.id AND x.n = u.n",
                     "slisillttbbbbb"},
    [DELETE_RCPT] = {"DELETE FROM recipient x USING unnest($1::smallint[], $2::bigint[], "
                     "$3::int[]) AS u (p, id, n) WHERE x.p = u.p AND x.id = u.id AND x.n = u.n",
                     "sli"},
    [DELETE_RCPTS] = {"DELETE FROM recipient x USING unnest($1::smallint[], $2::bigint[]) AS u "
                      "(p, id) WHERE x.p = u.p AND x.id = u.id",
                      "sl"},
    [DELETE_PART] = {"DELETE FROM part x USING unnest($1::smallint[], $2::bigint[]) AS u (p, id) "
                     "WHERE x.p = u.p AND x.id = u.id",
                     "sl"},
    [DELETE_MESSAGE] = {"DELETE FROM message x USING unnest($1::bigint[]) AS u (id) WHERE "
                        "x.id = u.id",
                        "l"},
    [DELETE_CONTENT] = {"DELETE FROM content x USING unnest($1::bigint[]) AS u (id) WHERE "
                        "x.id = u.id",
                        "l"},
    [INSERT_ARRIVAL] = {arrivals_insert_sql, arrivals_insert_types},
    [DELETE_FRESH_0] = DELETE_FRESH("0"),
    [DELETE_FRESH_0 + 1] = DELETE_FRESH("1"),
    [DELETE_FRESH_0 + 2] = DELETE_FRESH("2"),
};

const char *rows_statement(unsigned n)
{
    return n < STATEMENTS ? statements[n].sql : n == STATEMENTS ? arrivals_delete_sql : NULL;
}

/* Batch for which statements are made. */
struct writer {
    const struct desk *desk;
    struct desk_batch *batch;
    struct committer_batch *first; /* results of parts, which must precede deletions */
    struct committer_batch *b;
    struct columns columns[STATEMENTS];
    uint16_t p; /* partition of the message's rows before the batch */
};

static void put_key(struct columns *c, const struct desk_message *msg)
{
    columns_number(c, msg->f.p);
    columns_number(c, (int64_t)msg->id);
}

/* Writes the key that the message had before the batch. */
static void put_old_key(const struct writer *w, struct columns *c, const struct desk_message *msg)
{
    columns_number(c, w->p);
    columns_number(c, (int64_t)msg->id);
}

static void add_key(struct writer *w, unsigned statement, const struct desk_message *msg)
{
    put_old_key(w, &w->columns[statement], msg);
    columns_row(&w->columns[statement], w->b);
}

static void add_id(struct writer *w, unsigned statement, uint64_t id)
{
    columns_number(&w->columns[statement], (int64_t)id);
    columns_row(&w->columns[statement], w->b);
}

/* Adds an arrival if the partition is another node's. */
static void tell(struct writer *w, struct arrived_mail a)
{
    struct columns *c = &w->columns[INSERT_ARRIVAL];

    if (!w->desk->finder->is_mine[a.p]) {
        arrived_put(c, &a);
        columns_row(c, w->b);
        partition_set_add(&w->batch->told, a.p);
    }
}

static void tell_mail(struct writer *w, const struct desk_message *msg)
{
    const struct spool_message *m = &msg->f.m;

    tell(w, (struct arrived_mail){.p = msg->f.p,
                                  .id = msg->id,
                                  .kind = ARRIVAL_MAIL,
                                  .counts_as = spool_is_part(m) ? 0 : (unsigned)m->state,
                                  .size = m->size});
}

/* ---- rows ------------------------------------------------------------------------------------ */

static void insert_fresh(struct writer *w, const struct desk_message *msg)
{
    struct columns *c = &w->columns[INSERT_FRESH_0 + msg->row - ROW_FRESH];
    const struct spool_message *m = &msg->f.m;
    const struct spool_rcpt *to = &msg->rcpts[0].r;

    put_key(c, msg);
    columns_number(c, m->due.us);
    columns_number(c, m->arrived.us);
    columns_number(c, m->created.us);
    columns_number(c, (int64_t)m->size);
    columns_number(c, (int64_t)to->route_generation);
    columns_number(c, m->flags);
    columns_number(c, to->notify);
    columns_number(c, (int64_t)m->class_source);
    columns_bytes(c, m->sender);
    columns_bytes(c, m->envid);
    columns_bytes(c, m->client);
    columns_bytes(c, to->address);
    columns_bytes(c, to->orcpt);
    columns_bytes(c, m->reason);
    columns_bytes(c, m->class_name);
    columns_bytes(c, to->transport);
    columns_bytes(c, to->nexthop);
    columns_bytes(c, slice_of(msg->content, m->size));
    columns_row(c, w->b);
}

/* Writes the domain in lower case. */
static void put_domain(struct columns *c, struct slice address)
{
    struct slice domain = spool_domain(address);
    char room[ADDRESS_MAX];

    CHECK(domain.len <= sizeof room);
    for (size_t i = 0; i < domain.len; i++) {
        room[i] = ascii_lower(domain.ptr[i]);
    }
    columns_bytes(c, slice_of(room, domain.len));
}

/* Writes the columns of a recipient that change, which follow its key. */
static void put_rcpt(struct columns *c, const struct spool_rcpt *to)
{
    columns_number(c, to->n);
    columns_number(c, to->state);
    columns_number(c, to->attempts < INT32_MAX ? to->attempts : INT32_MAX);
    columns_number(c, to->last_attempt.us);
    columns_number(c, (int64_t)to->route_generation);
    columns_bytes(c, to->transport);
    columns_bytes(c, to->nexthop);
    columns_bytes(c, to->status);
    columns_bytes(c, to->diagnostic);
    columns_bytes(c, to->reply);
    columns_bytes(c, to->remote);
    columns_bytes(c, to->tls);
}

static void insert_rcpt(struct writer *w, const struct desk_message *msg,
                        const struct spool_rcpt *to)
{
    struct columns *c = &w->columns[INSERT_RCPT];

    put_key(c, msg);
    put_rcpt(c, to);
    columns_number(c, to->notify);
    columns_bytes(c, to->address);
    put_domain(c, to->address);
    columns_bytes(c, to->orcpt);
    columns_row(c, w->b);
}

/* Writes the columns of a part that change. */
static void put_part(struct columns *c, const struct desk_message *msg)
{
    const struct spool_message *m = &msg->f.m;

    columns_number(c, m->state);
    columns_number(c, m->due.us);
    columns_number(c, m->created.us);
    columns_number(c, m->rcpt_pending);
    columns_number(c, m->rcpt_to_report);
    columns_number(c, m->warnings < INT32_MAX ? m->warnings : INT32_MAX);
    columns_number(c, m->force_expire);
    if (m->parked.len > 0) {
        columns_bytes(c, m->parked);
    } else {
        columns_null(c);
    }
    columns_bytes(c, m->reason);
}

static void insert_part(struct writer *w, const struct desk_message *msg)
{
    struct columns *c = &w->columns[INSERT_PART];
    const struct spool_message *m = &msg->f.m;

    put_key(c, msg);
    put_part(c, msg);
    columns_number(c, m->arrived.us);
    columns_number(c, (int64_t)m->size);
    columns_number(c, m->gathers ? 0 : msg->rcpt_count);
    columns_bytes(c, m->sender);
    put_domain(c, m->sender);
    columns_bytes(c, m->class_name);
    columns_number(c, (int64_t)spool_whole(m).n);
    columns_number(c, m->gathers ? PART_REPORT : PART_MAIL);
    columns_number(c, msg->f.parts_left);
    columns_row(c, w->b);
}

static void insert_message(struct writer *w, const struct desk_message *msg)
{
    struct columns *c = &w->columns[INSERT_MESSAGE], *chunk = &w->columns[INSERT_CONTENT];
    const struct spool_message *m = &msg->f.m;
    bool is_inside = m->size <= DESK_CONTENT_MAX;

    columns_number(c, (int64_t)msg->id);
    columns_number(c, m->flags);
    columns_number(c, m->rcpt_total);
    columns_number(c, (int64_t)m->size);
    columns_number(c, m->arrived.us);
    columns_number(c, (int64_t)m->class_source);
    columns_bytes(c, m->envid);
    columns_bytes(c, m->client);
    columns_number(c, is_inside ? 0 : (int64_t)((m->size + DESK_CHUNK - 1) / DESK_CHUNK));
    if (is_inside) {
        columns_bytes(c, slice_of(msg->content, m->size));
    } else {
        columns_null(c);
    }
    columns_number(c, m->gathers ? msg->f.parts_left : 1);
    columns_number(c, msg->f.p);
    columns_row(c, w->b);
    for (uint64_t at = 0, n = 0; !is_inside && at < m->size; at += DESK_CHUNK, n++) {
        columns_number(chunk, (int64_t)msg->id);
        columns_number(chunk, (int64_t)n);
        columns_bytes(chunk, slice_of(msg->content + at,
                                      m->size - at < DESK_CHUNK ? m->size - at : DESK_CHUNK));
        columns_row(chunk, w->b);
    }
}

static void delete_rcpt(struct writer *w, const struct desk_message *msg, uint32_t n)
{
    struct columns *c = &w->columns[DELETE_RCPT];

    put_old_key(w, c, msg);
    columns_number(c, n);
    columns_row(c, w->b);
}

static void insert_waiting(struct writer *w, const struct desk_message *msg)
{
    insert_part(w, msg);
    for (uint32_t i = 0; i < msg->rcpt_count; i++) {
        if (!msg->rcpts[i].gone) {
            insert_rcpt(w, msg, &msg->rcpts[i].r);
        }
    }
}

static void delete_waiting(struct writer *w, const struct desk_message *msg)
{
    if (msg->f.m.gathers) {
        add_key(w, CLOSE_REPORT, msg);
        return;
    }
    add_key(w, DELETE_RCPTS, msg);
    add_key(w, DELETE_PART, msg);
    if (spool_is_part(&msg->f.m)) {
        return;
    }
    add_id(w, DELETE_MESSAGE, msg->id);
    if (msg->f.m.size > DESK_CONTENT_MAX) {
        add_id(w, DELETE_CONTENT, msg->id);
    }
}

/* ---- changes of a batch ---------------------------------------------------------------------- */

/* Is it a new message that goes on at once, so that it fits into a fresh table? */
static bool is_passing(const struct desk_message *msg)
{
    const struct spool_message *m = &msg->f.m;

    return m->rcpt_total == 1 && msg->rcpt_count == 1 && !msg->rcpts[0].gone &&
           m->size <= DESK_CONTENT_MAX && m->state == SPOOL_INCOMING && m->rcpt_pending == 1 &&
           m->warnings == 0 && !m->force_expire && m->parked.len == 0 &&
           msg->rcpts[0].r.attempts == 0 && msg->rcpts[0].r.status.len == 0;
}

/* Sorts log entries by message, then by recipient, then in their order. */
static int entry_order(const void *a, const void *b)
{
    const struct desk_undo *const *x = a, *const *y = b;
    const struct desk_message *m = (*x)->message, *o = (*y)->message;

    return m->f.p != o->f.p     ? (m->f.p > o->f.p) - (m->f.p < o->f.p)
           : m->id != o->id     ? (m->id > o->id) - (m->id < o->id)
           : (*x)->n != (*y)->n ? ((*x)->n > (*y)->n) - ((*x)->n < (*y)->n)
                                : (*x > *y) - (*x < *y);
}

/* Have the message's fields changed, except its claim? */
static bool fields_are_changed(const struct desk_undo *first)
{
    const struct spool_message *a = &first->before.fields.m, *m = &first->message->f.m;

    return first->n == 0 &&
           (first->before.fields.gone != first->message->f.gone || a->state != m->state ||
            a->due.us != m->due.us || a->created.us != m->created.us ||
            a->rcpt_pending != m->rcpt_pending || a->rcpt_to_report != m->rcpt_to_report ||
            a->warnings != m->warnings || a->force_expire != m->force_expire ||
            first->before.fields.waits != first->message->f.waits ||
            first->before.fields.p != first->message->f.p || a->gathers != m->gathers ||
            first->before.fields.parts_made != first->message->f.parts_made ||
            !slice_equal(a->reason, m->reason) || !slice_equal(a->parked, m->parked));
}

/* Returns the next recipient that the batch has changed, from entry *at on, or NULL. */
static const struct desk_rcpt *next_rcpt(const struct desk_undo *const *entries, size_t count,
                                         size_t *at)
{
    while (*at < count) {
        size_t i = (*at)++;
        uint32_t n = entries[i]->n;

        if (n != 0 && (i == 0 || entries[i - 1]->n != n) && !entries[i]->before.rcpt.gone) {
            return desk_any_rcpt(entries[i]->message, n);
        }
    }
    return NULL;
}

/* Writes a part's results for its report part. Returns whether there are any. */
static bool write_given(struct writer *w, const struct desk_undo *const *entries, size_t count)
{
    struct columns *give = &w->columns[GIVE_RCPT], *tell = &w->columns[TELL_REPORT];
    const struct desk_message *msg = entries[0]->message;
    struct msg_id whole = msg->f.m.whole;
    const struct desk_rcpt *r;
    int64_t given = 0, made = 0;

    for (size_t at = 0; (r = next_rcpt(entries, count, &at)) != NULL;) {
        if (r->given) {
            put_old_key(w, give, msg);
            put_rcpt(give, &r->r);
            columns_number(give, parts_home(whole));
            columns_number(give, (int64_t)whole.n);
            columns_row(give, w->first);
            given++;
        }
    }
    if (entries[0]->n == 0) {
        made = msg->f.parts_made - entries[0]->before.fields.parts_made;
    }
    if (given == 0 && made == 0 && !msg->f.gone) {
        return false;
    }
    columns_number(tell, parts_home(whole));
    columns_number(tell, (int64_t)whole.n);
    columns_number(tell, given);
    columns_number(tell, msg->f.gone - made);
    columns_number(tell, given > 0 ? msg->give_due : WALL_NEVER.us);
    columns_row(tell, w->first);
    return true;
}

/* Deletes the recipients that were reported, and updates the columns that the owner changes. */
static void update_report(struct writer *w, const struct desk_undo *const *entries, size_t count)
{
    struct columns *c = &w->columns[UPDATE_REPORT];
    const struct desk_message *msg = entries[0]->message;
    const struct spool_message *m = &msg->f.m;
    const struct desk_rcpt *r;
    int64_t reported = 0;

    for (size_t at = 0; (r = next_rcpt(entries, count, &at)) != NULL;) {
        if (r->gone) {
            delete_rcpt(w, msg, r->r.n);
            reported++;
        }
    }
    put_key(c, msg);
    columns_number(c, m->state);
    columns_number(c, m->due.us);
    columns_number(c, m->created.us);
    columns_number(c, reported);
    columns_number(c, m->warnings < INT32_MAX ? m->warnings : INT32_MAX);
    columns_number(c, m->force_expire);
    columns_bytes(c, m->reason);
    columns_number(c, msg->gen);
    columns_row(c, w->b);
}

static void update_rcpts(struct writer *w, const struct desk_undo *const *entries, size_t count)
{
    const struct desk_message *msg = entries[0]->message;
    const struct desk_rcpt *r;

    for (size_t at = 0; (r = next_rcpt(entries, count, &at)) != NULL;) {
        if (r->given) {
            continue; /* moved to the report part */
        }
        if (r->gone) {
            delete_rcpt(w, msg, r->r.n);
        } else if (msg->f.p == w->p) {
            put_key(&w->columns[UPDATE_RCPT], msg);
            put_rcpt(&w->columns[UPDATE_RCPT], &r->r);
            columns_row(&w->columns[UPDATE_RCPT], w->b);
        }
    }
}

/* Moves the rows to another partition, or makes the message a report part. New parts are written by
 * themselves. */
static void move_waiting(struct writer *w, const struct desk_undo *const *entries, size_t count)
{
    struct columns *c = &w->columns[MOVE_PART];
    const struct desk_message *msg = entries[0]->message;

    put_old_key(w, c, msg);
    put_part(c, msg);
    columns_number(c, msg->f.p);
    columns_number(c, msg->f.m.gathers ? PART_REPORT : PART_MAIL);
    columns_number(c, msg->f.parts_left);
    columns_row(c, w->b);
    if (msg->f.m.gathers) {
        columns_number(&w->columns[DIVIDE_MESSAGE], (int64_t)msg->id);
        columns_number(&w->columns[DIVIDE_MESSAGE], msg->f.p);
        columns_number(&w->columns[DIVIDE_MESSAGE],
                       msg->f.parts_left < INT16_MAX ? msg->f.parts_left : INT16_MAX);
        columns_row(&w->columns[DIVIDE_MESSAGE], w->b);
    }
    update_rcpts(w, entries, count);
    for (uint32_t i = 0; i < msg->rcpt_count && msg->f.p != w->p; i++) {
        if (!msg->rcpts[i].gone) {
            delete_rcpt(w, msg, msg->rcpts[i].r.n);
            insert_rcpt(w, msg, &msg->rcpts[i].r);
        }
    }
}

/* Writes all changes of a message. */
static void write_message(struct writer *w, const struct desk_undo *const *entries, size_t count,
                          struct desk_move *move)
{
    struct desk_message *msg = entries[0]->message;
    const struct desk_fields *old = entries[0]->n == 0 ? &entries[0]->before.fields : &msg->f;
    unsigned before = msg->row;
    bool moves = before != ROW_NONE && (old->p != msg->f.p || old->m.gathers != msg->f.m.gathers);

    w->p = old->p;
    *move = (struct desk_move){.message = msg, .before = before, .moves = moves};

    if (before == ROW_NONE && msg->f.gone) {
        return;
    }
    /* A new route of mail in passage is not stored; it is looked up again when needed. */
    if (!fields_are_changed(entries[0]) &&
        (entries[count - 1]->n == 0 || (before >= ROW_FRESH && is_passing(msg)))) {
        return;
    }
    if (spool_is_part(&msg->f.m) && before == ROW_WAITING) {
        move->tells = write_given(w, entries, count);
    }
    if (move->tells) {
        tell(w, (struct arrived_mail){
                    .p = parts_home(msg->f.m.whole), .id = msg->f.m.whole.n, .kind = ARRIVAL_TOLD});
    }
    if (msg->f.gone) {
        msg->row = ROW_NONE;
        if (before >= ROW_FRESH) {
            add_key(w, DELETE_FRESH_0 + before - ROW_FRESH, msg);
        } else {
            delete_waiting(w, msg);
        }
    } else if (before == ROW_NONE && (msg->f.claimed || msg->is_foreign) && is_passing(msg)) {
        msg->row = ROW_FRESH + w->desk->fresh_now;
        insert_fresh(w, msg);
        tell_mail(w, msg);
    } else if (before == ROW_WAITING && moves) {
        move_waiting(w, entries, count);
        tell_mail(w, msg);
    } else if (before == ROW_WAITING && msg->f.m.gathers) {
        update_report(w, entries, count);
    } else if (before == ROW_WAITING) {
        put_key(&w->columns[UPDATE_PART], msg);
        put_part(&w->columns[UPDATE_PART], msg);
        columns_row(&w->columns[UPDATE_PART], w->b);
        update_rcpts(w, entries, count);
    } else {
        msg->row = ROW_WAITING;
        if (before >= ROW_FRESH) {
            add_key(w, MOVE_FRESH_0 + before - ROW_FRESH, msg);
        } else if (!spool_is_part(&msg->f.m)) {
            insert_message(w, msg);
        }
        insert_waiting(w, msg);
        if (before == ROW_NONE || moves) {
            tell_mail(w, msg);
        }
    }
}

struct committer_batch *rows_write(const struct desk *desk, struct desk_batch *d)
{
    struct writer *w = mem_new(sizeof *w);
    const struct desk_undo **entries = mem_array(d->count, sizeof(struct desk_undo *));
    struct committer_batch *b = committer_batch_new();

    w->desk = desk;
    w->batch = d;
    w->b = b;
    w->first = committer_batch_new();
    for (unsigned i = 0; i < STATEMENTS; i++) {
        columns_init(&w->columns[i], statements[i].sql, statements[i].types);
    }
    for (size_t i = 0; i < d->count; i++) {
        entries[i] = &d->log[i];
    }
    if (d->count > 0) {
        qsort(entries, d->count, sizeof(struct desk_undo *), entry_order);
    }
    d->moves = mem_array(d->count, sizeof *d->moves);
    d->move_count = 0;
    for (size_t i = 0, count; i < d->count; i += count) {
        struct desk_message *msg = entries[i]->message;

        for (count = 1; i + count < d->count && entries[i + count]->message == msg;) {
            count++;
        }
        write_message(w, entries + i, count, &d->moves[d->move_count++]);
    }
    for (unsigned i = 0; i < STATEMENTS; i++) {
        columns_flush(&w->columns[i], i == GIVE_RCPT || i == TELL_REPORT ? w->first : b);
        columns_fini(&w->columns[i]);
    }
    committer_batch_join(w->first, b);
    b = w->first;
    mem_free(entries);
    mem_free(w);
    return b;
}
