#include "rows.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "mem.h"

#define FRESH_CONTENT_MAX 32768
#define CHUNK             262144

/* Parameters of one statement. */
struct row_params {
    struct link_param p[LINK_PARAMS_MAX];
    char numbers[LINK_PARAMS_MAX][24];
    int count;
};

static void put_number(struct row_params *r, int64_t n)
{
    char *room = r->numbers[r->count];

    r->p[r->count].bytes = room;
    r->p[r->count].len = (size_t)snprintf(room, 24, "%" PRId64, n); /* fits */
    r->p[r->count++].is_binary = false;
}

/* The binary form of text is its bytes, too. */
static void put_bytes(struct row_params *r, struct slice bytes)
{
    r->p[r->count++] = (struct link_param){
        .bytes = bytes.ptr != NULL ? bytes.ptr : "", .len = bytes.len, .is_binary = true};
}

static void put_null(struct row_params *r)
{
    r->p[r->count++] = (struct link_param){.bytes = NULL};
}

/* All of one node for now: partition 0. */
#define P 0

static void add_row(struct committer_batch *b, const char *sql, const struct row_params *r)
{
    committer_batch_add(b, sql, r->p, r->count);
}

static void delete_by_id(struct committer_batch *b, const char *sql, uint64_t id)
{
    struct row_params r = {.count = 0};

    put_number(&r, (int64_t)id);
    add_row(b, sql, &r);
}

static void insert_fresh(struct committer_batch *b, const struct desk_message *msg)
{
    const struct spool_message *m = &msg->f.m;
    const struct spool_rcpt *to = &msg->rcpts[0].r;
    struct row_params r = {.count = 0};

    put_number(&r, P);
    put_number(&r, (int64_t)msg->id);
    put_number(&r, m->due.us);
    put_number(&r, m->arrived.us);
    put_number(&r, m->created.us);
    put_number(&r, (int64_t)m->size);
    put_number(&r, (int64_t)to->route_generation);
    put_number(&r, m->flags);
    put_number(&r, to->notify);
    put_number(&r, (int64_t)m->class_source);
    put_bytes(&r, m->sender);
    put_bytes(&r, m->envid);
    put_bytes(&r, m->client);
    put_bytes(&r, to->address);
    put_bytes(&r, to->orcpt);
    put_bytes(&r, m->reason);
    put_bytes(&r, m->class_name);
    put_bytes(&r, to->transport);
    put_bytes(&r, to->nexthop);
    put_bytes(&r, slice_of(msg->content, m->size));
    add_row(b,
            "INSERT INTO fresh_0 (p, id, due, arrived, created, size, route_generation, flags, "
            "notify, class_source, sender, envid, client, address, orcpt, reason, class, "
            "transport, nexthop, bytes) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, "
            "$12, $13, $14, $15, $16, $17, $18, $19, $20)",
            &r);
}

static void insert_rcpt(struct committer_batch *b, uint64_t id, const struct spool_rcpt *to)
{
    struct row_params r = {.count = 0};

    put_number(&r, P);
    put_number(&r, (int64_t)id);
    put_number(&r, to->n);
    put_number(&r, to->state);
    put_number(&r, to->notify);
    put_number(&r, to->attempts);
    put_number(&r, to->last_attempt.us);
    put_number(&r, (int64_t)to->route_generation);
    put_bytes(&r, to->address);
    put_bytes(&r, to->transport);
    put_bytes(&r, to->nexthop);
    put_bytes(&r, to->orcpt);
    put_bytes(&r, to->status);
    put_bytes(&r, to->diagnostic);
    put_bytes(&r, to->reply);
    put_bytes(&r, to->remote);
    put_bytes(&r, to->tls);
    add_row(b,
            "INSERT INTO recipient (p, id, n, state, notify, attempts, last_attempt, "
            "route_generation, address, domain, transport, nexthop, orcpt, status, diagnostic, "
            "reply, remote, tls) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, '', $10, $11, $12, "
            "$13, $14, $15, $16, $17) ON CONFLICT (p, id, n) DO UPDATE SET state = $4, "
            "attempts = $6, last_attempt = $7, route_generation = $8, transport = $10, "
            "nexthop = $11, status = $13, diagnostic = $14, reply = $15, remote = $16, tls = $17",
            &r);
}

static void put_part(struct committer_batch *b, const struct desk_message *msg, bool is_new)
{
    const struct spool_message *m = &msg->f.m;
    struct row_params r = {.count = 0};

    put_number(&r, P);
    put_number(&r, (int64_t)msg->id);
    put_number(&r, m->state);
    put_number(&r, m->due.us);
    put_number(&r, m->created.us);
    put_number(&r, m->rcpt_pending);
    put_number(&r, m->rcpt_to_report);
    put_number(&r, m->warnings);
    put_number(&r, m->force_expire);
    if (m->parked.len > 0) {
        put_bytes(&r, m->parked);
    } else {
        put_null(&r);
    }
    put_bytes(&r, m->reason);
    if (!is_new) {
        add_row(b,
                "UPDATE part SET state = $3, due = $4, created = $5, pending = $6, to_report = $7, "
                "warnings = $8, force_expire = $9::int::boolean, parked = $10, reason = $11 "
                "WHERE p = $1 AND id = $2",
                &r);
        return;
    }
    put_number(&r, m->arrived.us);
    put_number(&r, (int64_t)m->size);
    put_number(&r, m->rcpt_total);
    put_bytes(&r, m->sender);
    put_bytes(&r, m->class_name);
    add_row(b,
            "INSERT INTO part (p, id, message, kind, state, due, created, pending, to_report, "
            "warnings, force_expire, parked, reason, arrived, size, rcpts, sender, sender_domain, "
            "class) VALUES ($1, $2, $2, 0, $3, $4, $5, $6, $7, $8, $9::int::boolean, $10, $11, "
            "$12, $13, $14, $15, '', $16)",
            &r);
}

static void insert_waiting(struct committer_batch *b, const struct desk_message *msg)
{
    const struct spool_message *m = &msg->f.m;
    struct row_params r = {.count = 0};
    bool is_inside = m->size <= FRESH_CONTENT_MAX;

    put_number(&r, (int64_t)msg->id);
    put_number(&r, m->flags);
    put_number(&r, m->rcpt_total);
    put_number(&r, (int64_t)m->size);
    put_number(&r, m->arrived.us);
    put_number(&r, (int64_t)m->class_source);
    put_bytes(&r, m->envid);
    put_bytes(&r, m->client);
    put_number(&r, is_inside ? 0 : (int64_t)((m->size + CHUNK - 1) / CHUNK));
    if (is_inside) {
        put_bytes(&r, slice_of(msg->content, m->size));
    } else {
        put_null(&r);
    }
    add_row(b,
            "INSERT INTO message (id, flags, rcpt_total, size, arrived, class_source, envid, "
            "client, chunks, bytes) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
            &r);
    for (uint64_t at = 0, n = 0; !is_inside && at < m->size; at += CHUNK, n++) {
        struct row_params chunk = {.count = 0};

        put_number(&chunk, (int64_t)msg->id);
        put_number(&chunk, (int64_t)n);
        put_bytes(&chunk, slice_of(msg->content + at, m->size - at < CHUNK ? m->size - at : CHUNK));
        add_row(b, "INSERT INTO content (id, n, bytes) VALUES ($1, $2, $3)", &chunk);
    }
    put_part(b, msg, true);
    for (uint32_t i = 0; i < m->rcpt_total; i++) {
        if (!msg->rcpts[i].gone) {
            insert_rcpt(b, msg->id, &msg->rcpts[i].r);
        }
    }
}

/* A message that nothing has happened to yet. */
static bool is_passing(const struct desk_message *msg)
{
    const struct spool_message *m = &msg->f.m;

    return m->rcpt_total == 1 && m->size <= FRESH_CONTENT_MAX && m->state == SPOOL_INCOMING &&
           m->rcpt_pending == 1 && m->warnings == 0 && !m->force_expire && m->parked.len == 0 &&
           msg->rcpts[0].r.attempts == 0 && msg->rcpts[0].r.status.len == 0;
}

/* Did the batch change anything of it but its claim? */
static bool is_changed(const struct desk_batch *d, const struct desk_message *msg)
{
    for (size_t i = 0; i < d->count; i++) {
        const struct spool_message *a = &d->log[i].before.fields.m, *m = &msg->f.m;

        if (d->log[i].message == msg &&
            (d->log[i].n != 0 || d->log[i].before.fields.gone != msg->f.gone ||
             a->state != m->state || a->due.us != m->due.us || a->created.us != m->created.us ||
             a->rcpt_pending != m->rcpt_pending || a->rcpt_to_report != m->rcpt_to_report ||
             a->warnings != m->warnings || a->force_expire != m->force_expire ||
             !slice_equal(a->reason, m->reason) || !slice_equal(a->parked, m->parked))) {
            return true;
        }
    }
    return false;
}

static void delete_waiting(struct committer_batch *b, uint64_t id)
{
    delete_by_id(b, "DELETE FROM recipient WHERE p = 0 AND id = $1", id);
    delete_by_id(b, "DELETE FROM part WHERE p = 0 AND id = $1", id);
    delete_by_id(b, "DELETE FROM message WHERE id = $1", id);
    delete_by_id(b, "DELETE FROM content WHERE id = $1", id);
}

static void update_waiting(struct committer_batch *b, const struct desk_batch *d,
                           const struct desk_message *msg)
{
    put_part(b, msg, false);
    for (size_t i = 0; i < d->count; i++) {
        const struct desk_undo *undo = &d->log[i];
        struct row_params r = {.count = 0};

        if (undo->message != msg || undo->n == 0) {
            continue;
        }
        if (!msg->rcpts[undo->n - 1].gone) {
            insert_rcpt(b, msg->id, &msg->rcpts[undo->n - 1].r);
            continue;
        }
        put_number(&r, (int64_t)msg->id);
        put_number(&r, undo->n);
        add_row(b, "DELETE FROM recipient WHERE p = 0 AND id = $1 AND n = $2", &r);
    }
}

/* What became of a message in the batch, as statements. Its new place is returned. */
static enum desk_row write_message(struct committer_batch *b, const struct desk_batch *d,
                                   const struct desk_message *msg)
{
    enum desk_row to = msg->f.gone                                  ? ROW_NONE
                       : msg->row != ROW_WAITING && is_passing(msg) ? ROW_FRESH
                                                                    : ROW_WAITING;

    if (!is_changed(d, msg) || (msg->row == ROW_NONE && to == ROW_NONE)) {
        return msg->row;
    }
    if (msg->row == ROW_FRESH) {
        delete_by_id(b, "DELETE FROM fresh_0 WHERE p = 0 AND id = $1", msg->id);
    }
    if (to == ROW_NONE && msg->row == ROW_WAITING) {
        delete_waiting(b, msg->id);
    } else if (to == ROW_FRESH) {
        insert_fresh(b, msg);
    } else if (to == ROW_WAITING && msg->row == ROW_WAITING) {
        update_waiting(b, d, msg);
    } else if (to == ROW_WAITING) {
        insert_waiting(b, msg);
    }
    return to;
}

struct committer_batch *rows_write(struct desk_batch *d)
{
    struct committer_batch *b = committer_batch_new();

    d->moves = mem_array(d->count, sizeof *d->moves);
    d->move_count = 0;
    for (size_t i = 0; i < d->count; i++) {
        struct desk_message *msg = d->log[i].message;

        if (!msg->written) {
            msg->written = true;
            d->moves[d->move_count++] = (struct desk_move){msg, msg->row};
            msg->row = write_message(b, d, msg);
        }
    }
    for (size_t i = 0; i < d->move_count; i++) {
        d->moves[i].message->written = false;
    }
    return b;
}

/* ---- reading --------------------------------------------------------------------------------- */

int64_t rows_number(const PGresult *r, int row, int column)
{
    const unsigned char *value = (const unsigned char *)PQgetvalue(r, row, column);
    int len = PQgetlength(r, row, column);
    uint64_t n = len > 0 && value[0] >= 128 && len > 1 ? UINT64_MAX : 0;

    for (int i = 0; i < len && i < 8; i++) {
        n = n << 8 | value[i];
    }
    return (int64_t)n;
}

static struct slice bytes_at(const PGresult *r, int row, int column)
{
    return PQgetisnull(r, row, column)
               ? SLICE("")
               : slice_of(PQgetvalue(r, row, column), (size_t)PQgetlength(r, row, column));
}

static void load_fresh_row(struct desk *d, const PGresult *r, int row)
{
    struct desk_message *msg = mem_new(sizeof *msg);
    struct slice content = bytes_at(r, row, 18);
    struct desk_fields fields = {.m = {.state = SPOOL_INCOMING,
                                       .rcpt_total = 1,
                                       .rcpt_pending = 1,
                                       .due = {rows_number(r, row, 1)},
                                       .arrived = {rows_number(r, row, 2)},
                                       .created = {rows_number(r, row, 3)},
                                       .size = content.len,
                                       .flags = (unsigned)rows_number(r, row, 6),
                                       .class_source = (enum class_source)rows_number(r, row, 8),
                                       .sender = bytes_at(r, row, 9),
                                       .envid = bytes_at(r, row, 10),
                                       .client = bytes_at(r, row, 11),
                                       .reason = bytes_at(r, row, 14),
                                       .class_name = bytes_at(r, row, 15),
                                       .parked = SLICE("")}};

    msg->id = (uint64_t)rows_number(r, row, 0);
    fields.m.id.n = msg->id;
    msg->row = ROW_FRESH;
    msg->content = mem_copy(content.ptr, content.len);
    msg->rcpts = mem_array(1, sizeof msg->rcpts[0]);
    msg->rcpts[0].r = (struct spool_rcpt){.n = 1,
                                          .state = SPOOL_RCPT_PENDING,
                                          .route_generation = (uint64_t)rows_number(r, row, 5),
                                          .notify = (unsigned)rows_number(r, row, 7),
                                          .address = bytes_at(r, row, 12),
                                          .orcpt = bytes_at(r, row, 13),
                                          .transport = bytes_at(r, row, 16),
                                          .nexthop = bytes_at(r, row, 17)};
    desk_pack_rcpt(&msg->rcpts[0]);
    desk_adopt(d, msg, fields);
}

const char rows_fresh_sql[] =
    "SELECT id, due, arrived, created, size, route_generation, flags, notify, class_source, "
    "sender, envid, client, address, orcpt, reason, class, transport, nexthop, bytes FROM fresh_0 "
    "ORDER BY id";

void rows_take_fresh(struct desk *d, const PGresult *r)
{
    for (int row = 0; row < PQntuples(r); row++) {
        load_fresh_row(d, r, row);
    }
}

static void load_waiting_row(struct desk *d, const PGresult *r, int row)
{
    struct desk_message *msg = mem_new(sizeof *msg);
    struct slice content = bytes_at(r, row, 17);
    struct desk_fields fields = {.m = {.state = (enum spool_state)rows_number(r, row, 1),
                                       .due = {rows_number(r, row, 2)},
                                       .created = {rows_number(r, row, 3)},
                                       .rcpt_pending = (uint32_t)rows_number(r, row, 4),
                                       .rcpt_to_report = (uint32_t)rows_number(r, row, 5),
                                       .warnings = (uint32_t)rows_number(r, row, 6),
                                       .force_expire = rows_number(r, row, 7) != 0,
                                       .parked = bytes_at(r, row, 8),
                                       .reason = bytes_at(r, row, 9),
                                       .sender = bytes_at(r, row, 10),
                                       .class_name = bytes_at(r, row, 11),
                                       .flags = (unsigned)rows_number(r, row, 12),
                                       .rcpt_total = (uint32_t)rows_number(r, row, 13),
                                       .arrived = {rows_number(r, row, 14)},
                                       .envid = bytes_at(r, row, 15),
                                       .client = bytes_at(r, row, 16),
                                       .class_source = (enum class_source)rows_number(r, row, 18),
                                       .size = content.len}};

    msg->id = (uint64_t)rows_number(r, row, 0);
    fields.m.id.n = msg->id;
    msg->row = ROW_WAITING;
    msg->content = mem_copy(content.ptr, content.len);
    msg->rcpts = mem_array(fields.m.rcpt_total, sizeof msg->rcpts[0]);
    for (uint32_t i = 0; i < fields.m.rcpt_total; i++) {
        msg->rcpts[i].gone = true;
    }
    desk_adopt(d, msg, fields);
}

static void load_rcpt_row(struct desk *d, const PGresult *r, int row)
{
    struct desk_message *msg = desk_find(d, (struct msg_id){(uint64_t)rows_number(r, row, 0)});
    uint32_t n = (uint32_t)rows_number(r, row, 1);

    if (msg == NULL || n == 0 || n > msg->f.m.rcpt_total) {
        return; /* XXX an orphan: to be told */
    }
    msg->rcpts[n - 1].gone = false;
    msg->rcpts[n - 1].r =
        (struct spool_rcpt){.n = n,
                            .state = (enum spool_rcpt_state)rows_number(r, row, 2),
                            .notify = (unsigned)rows_number(r, row, 3),
                            .attempts = (uint32_t)rows_number(r, row, 4),
                            .last_attempt = {rows_number(r, row, 5)},
                            .route_generation = (uint64_t)rows_number(r, row, 6),
                            .address = bytes_at(r, row, 7),
                            .transport = bytes_at(r, row, 8),
                            .nexthop = bytes_at(r, row, 9),
                            .orcpt = bytes_at(r, row, 10),
                            .status = bytes_at(r, row, 11),
                            .diagnostic = bytes_at(r, row, 12),
                            .reply = bytes_at(r, row, 13),
                            .remote = bytes_at(r, row, 14),
                            .tls = bytes_at(r, row, 15)};
    desk_pack_rcpt(&msg->rcpts[n - 1]);
}

const char rows_waiting_sql[] =
    "SELECT p.id, p.state, due, created, pending, to_report, warnings, force_expire, parked, "
    "reason, sender, class, flags, rcpt_total, m.arrived, envid, client, coalesce(m.bytes, "
    "(SELECT string_agg(c.bytes, '' ORDER BY n) FROM content c WHERE c.id = p.id)), "
    "class_source FROM part p JOIN message m ON m.id = p.message ORDER BY p.id";

void rows_take_waiting(struct desk *d, const PGresult *r)
{
    for (int row = 0; row < PQntuples(r); row++) {
        load_waiting_row(d, r, row);
    }
}

const char rows_rcpts_sql[] =
    "SELECT id, n, state, notify, attempts, last_attempt, route_generation, address, transport, "
    "nexthop, orcpt, status, diagnostic, reply, remote, tls FROM recipient";

void rows_take_rcpts(struct desk *d, const PGresult *r)
{
    for (int row = 0; row < PQntuples(r); row++) {
        load_rcpt_row(d, r, row);
    }
}
