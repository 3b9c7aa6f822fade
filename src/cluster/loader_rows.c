#include "loader_private.h"

#include <sys/mman.h>
#include <fcntl.h>
#include <unistd.h>

#include "answers.h"
#include "columns.h"
#include "mem.h"

#define LOCATE_MAX 256
/* Number of times that a message which has moved is located, as damaged rows may never be found;
 * and number of times that parts which move are listed. */
#define LOOKS_MAX 8
#define LISTS_MAX 1000

static void locate(struct loader *l, struct question *q);
static void ask_parts(struct loader *l, uint64_t whole, struct question *before);

/* ---- loading --------------------------------------------------------------------------------- */

/* Returns the n-th statement that reads the rows of enum desk_row `where`, or NULL. */
static const char *load_sql(unsigned where, unsigned n)
{
    static const char *const sql[] = {answers_fresh_sql, answers_waiting_sql, answers_rcpts_sql};
    static const char *const fresh[DESK_FRESH_TABLES] = {answers_fresh_0_sql, answers_fresh_1_sql,
                                                         answers_fresh_2_sql};

    if (where >= ROW_FRESH) {
        return n == 0 ? fresh[where - ROW_FRESH] : NULL;
    }
    n += where == ROW_WAITING;
    return n < 3 ? sql[n] : NULL;
}

void loader_load_answer(struct loader *l, const struct question *q, unsigned n, const PGresult *r)
{
    static void (*const take[])(struct desk * d, const PGresult *r) = {
        answers_fresh, answers_waiting, answers_rcpts};

    n += q->load.where == ROW_WAITING;
    if (n < 3) {
        take[n](l->desk, r);
    }
}

/* Loads the messages of `q`, which the desk expects. Takes `q`. */
static void load(struct loader *l, struct question *q)
{
    struct committer_batch *b = committer_batch_new();
    const char *sql;
    int64_t content = !q->load.to_move && l->desk->content_bytes < DESK_CONTENTS_MAX
                          ? (int64_t)DESK_CONTENT_MAX
                          : INT64_C(-1);

    q->ask = ASK_LOAD;
    q->load.life = l->lives;
    for (unsigned i = 0; (sql = load_sql(q->load.where, i)) != NULL; i++) {
        struct columns c;

        loader_head_columns(&c, q, sql);
        if (sql != answers_rcpts_sql) {
            loader_add_columns(b, &c, content);
        } else {
            columns_flush(&c, b);
            columns_fini(&c);
        }
    }
    reader_ask(l->reader, b, q);
}

bool loader_load_new(struct loader *l, struct question *q, enum desk_reason why)
{
    size_t kept = 0;

    for (size_t i = 0; i < q->head_count; i++) {
        if (desk_expect(l->desk, q->heads[i].id, why) != NULL) {
            q->heads[kept++] = q->heads[i];
        }
    }
    q->head_count = kept;
    if (kept == 0) {
        loader_question_free(q);
        return false;
    }
    load(l, q);
    return true;
}

/* Removes messages from `q` that were not found in the table, and reads all tables for them. */
static void load_rest(struct loader *l, struct question *q)
{
    struct question *rest = loader_question_new(ASK_LOAD);
    size_t kept = 0;

    for (size_t i = 0; i < q->head_count; i++) {
        const struct desk_message *msg = desk_any(l->desk, q->heads[i].id);

        if (msg != NULL && msg->is_loading && msg->row == ROW_NONE) {
            loader_add_head(rest, q->heads[i]);
        } else {
            q->heads[kept++] = q->heads[i];
        }
    }
    q->head_count = kept;
    if (rest->head_count == 0) {
        loader_question_free(rest);
        return;
    }
    rest->load.by_list = q->load.by_list;
    rest->load.only_due = q->load.only_due;
    rest->load.to_move = q->load.to_move; /* `rest` completes the move */
    q->load.to_move = false;
    load(l, rest);
}

/* Must the message be located by its id? It was requested, and has moved or changed while it was
 * read. */
static bool may_have_moved(const struct loader *l, const struct question *q,
                           struct desk_message *msg)
{
    return (q->load.by_list || msg->is_looked) && !q->load.to_move && q->looks < LOOKS_MAX &&
           (msg->row == ROW_NONE || desk_drop_torn(l->desk, msg));
}

void loader_loaded(struct loader *l, struct question *q)
{
    struct question *others = loader_question_new(ASK_OTHERS),
                    *moved = loader_question_new(ASK_LOCATE);

    if (q->load.where != ROW_NONE) {
        load_rest(l, q);
    }
    for (size_t i = 0; i < q->head_count; i++) {
        struct desk_message *msg = desk_any(l->desk, q->heads[i].id);

        if (msg == NULL || !msg->is_loading) {
            continue;
        }
        if (may_have_moved(l, q, msg)) {
            loader_add_head(moved, (struct head){.id = msg->id});
        } else if (q->ask == ASK_LOAD && desk_needs_others(msg)) {
            loader_add_head(others, (struct head){.p = msg->f.p, .id = msg->id});
        } else {
            desk_loaded(l->desk, msg);
            if (q->load.only_due) {
                desk_leave_until(l->desk, q->heads[i].id, l->now);
            }
        }
    }
    if (q->load.to_move) {
        l->passing_is_asked = false;
    }
    moved->looks = q->looks + 1;
    if (moved->head_count > 0) {
        locate(l, moved);
    } else {
        loader_question_free(moved);
    }
    if (others->head_count > 0) {
        others->load.life = l->lives;
        others->load.only_due = q->load.only_due;
        loader_ask_by_key(l, others, answers_others_sql);
    } else {
        loader_question_free(others);
    }
    if (q->load.parts != NULL) {
        struct question *list = q->load.parts;

        q->load.parts = NULL;
        ask_parts(l, list->parts.whole, list);
    }
    l->has_come = true;
    loader_question_free(q);
}

/* Reads messages again that are still wanted. */
void loader_load_again(struct loader *l, struct question *q)
{
    size_t kept = 0;

    for (size_t i = 0; i < q->head_count; i++) {
        const struct desk_message *msg = desk_any(l->desk, q->heads[i].id);

        if (msg != NULL && msg->is_loading) {
            q->heads[kept++] = q->heads[i];
        }
    }
    q->head_count = kept;
    q->load.where = ROW_NONE;
    if (kept > 0) {
        load(l, q);
    } else {
        loader_loaded(l, q);
    }
}

/* ---- messages by id -------------------------------------------------------------------------- */

#define LOCATE_FRESH(k)                                                                            \
    " UNION ALL SELECT f.p, f.id FROM unnest($1::bigint[]) AS u (id), generate_series(0, 255) AS " \
    "g (p) JOIN LATERAL (SELECT x.p, x.id FROM fresh_" k                                           \
    " x WHERE x.p = g.p::smallint AND x.id = u.id) f ON true"

#define SQL_LOCATE                                                                                 \
    "SELECT x.p, x.id FROM unnest($1::bigint[]) AS u (id) JOIN part x ON x.state = "               \
    "ANY('{1,2,3,4}'::smallint[]) AND x.id = u.id" LOCATE_FRESH("0") LOCATE_FRESH("1")             \
        LOCATE_FRESH("2")

static void locate(struct loader *l, struct question *q)
{
    struct committer_batch *b = committer_batch_new();
    struct columns c;

    columns_init(&c, SQL_LOCATE, "l");
    for (size_t i = 0; i < q->head_count; i++) {
        columns_number(&c, (int64_t)q->heads[i].id);
        columns_row_open(&c);
    }
    columns_flush(&c, b);
    columns_fini(&c);
    reader_ask(l->reader, b, q);
}

void loader_locate_answer(struct question *q, const PGresult *r)
{
    for (int row = 0; row < PQntuples(r); row++) {
        int64_t p, id;

        if (!answer_number(r, row, 0, &p) || !answer_number(r, row, 1, &id) || p < 0 ||
            p >= PARTITIONS) {
            continue;
        }
        for (size_t i = 0; i < q->head_count; i++) {
            if (q->heads[i].id == (uint64_t)id) {
                q->heads[i].p = (uint16_t)p;
                q->heads[i].due = 1; /* marks it as found */
            }
        }
    }
}

void loader_located(struct loader *l, struct question *q)
{
    struct question *found = loader_question_new(ASK_LOAD);

    found->looks = q->looks;
    for (size_t i = 0; i < q->head_count; i++) {
        struct desk_message *msg = desk_any(l->desk, q->heads[i].id);

        if (msg == NULL || !msg->is_loading) {
            continue;
        }
        if (q->heads[i].due == 1) {
            loader_add_head(found, q->heads[i]);
        } else {
            desk_loaded(l->desk, msg); /* it does not exist */
            l->has_come = true;
        }
    }
    if (found->head_count > 0) {
        load(l, found);
    } else {
        loader_question_free(found);
    }
}

/* ---- content --------------------------------------------------------------------------------- */

static void ask_content(struct loader *l, struct desk_message *msg)
{
    static const char *const fresh[DESK_FRESH_TABLES] = {
        "SELECT bytes FROM fresh_0 WHERE p = $1::smallint AND id = $2::bigint",
        "SELECT bytes FROM fresh_1 WHERE p = $1::smallint AND id = $2::bigint",
        "SELECT bytes FROM fresh_2 WHERE p = $1::smallint AND id = $2::bigint",
    };
    struct question *q = loader_question_new(ASK_CONTENT);
    struct committer_batch *b = committer_batch_new();
    int64_t stored; /* id under which the content is stored */
    char room[2][LINK_NUMBER_SIZE];

    q->content.id = msg->id;
    q->content.size = msg->f.m.size;
    q->content.where = msg->row;
    q->content.is_moving = msg->undos > 0;
    stored = (int64_t)spool_whole(&msg->f.m).n;
    if (msg->row >= ROW_FRESH) {
        committer_batch_add(b, fresh[msg->row - ROW_FRESH],
                            (struct link_param[]){link_number_param(room[0], msg->f.p),
                                                  link_number_param(room[1], (int64_t)msg->id)},
                            2);
    } else if (msg->f.m.size <= DESK_CONTENT_MAX) {
        committer_batch_add(b, "SELECT bytes FROM message WHERE id = $1::bigint",
                            (struct link_param[]){link_number_param(room[0], stored)}, 1);
    } else {
        for (uint64_t n = 0; n * DESK_CHUNK < msg->f.m.size; n++) {
            committer_batch_add(b,
                                "SELECT bytes FROM content WHERE id = $1::bigint AND n = $2::int",
                                (struct link_param[]){link_number_param(room[0], stored),
                                                      link_number_param(room[1], (int64_t)n)},
                                2);
        }
    }
    reader_ask(l->reader, b, q);
}

static bool write_all(int fd, const char *bytes, size_t len)
{
    while (len > 0) {
        ssize_t n = write(fd, bytes, len);

        if (n < 0) {
            return false;
        }
        bytes += n;
        len -= (size_t)n;
    }
    return true;
}

void loader_content_answer(struct question *q, unsigned n, const PGresult *r)
{
    struct content_question *c = &q->content;
    size_t len = PQntuples(r) == 1 && PQnfields(r) == 1 ? (size_t)PQgetlength(r, 0, 0) : 0;

    if (c->size <= DESK_CONTENT_MAX) {
        mem_free(c->bytes);
        c->bytes = PQntuples(r) == 1 ? mem_copy(PQgetvalue(r, 0, 0), len) : NULL;
        c->bytes_len = len;
        return;
    }
    if (n == 0) {
        if (c->fd >= 0) {
            (void)close(c->fd);
        }
        c->fd = memfd_create("content", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        c->has_failed = c->fd < 0;
        c->filled = 0;
    }
    if (c->has_failed || len == 0) {
        return;
    }
    c->has_failed = !write_all(c->fd, PQgetvalue(r, 0, 0), len);
    c->filled += len;
}

static bool seal(int fd)
{
    return fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) == 0;
}

/* Is the content missing or of another size at the right place? If a batch has moved the row
 * meanwhile, the content is requested again instead. */
static bool is_damaged(const struct content_question *c, const struct desk_message *msg)
{
    return !c->is_moving && msg->row == c->where && msg->f.m.size == c->size;
}

void loader_content_ended(struct loader *l, struct question *q)
{
    struct content_question *c = &q->content;
    struct desk_message *msg = desk_any(l->desk, c->id);
    bool is_inside = c->size <= DESK_CONTENT_MAX;

    if (msg == NULL || msg->is_loading) {
        l->has_come = true;
        return;
    }
    msg->is_missed = false;
    if (msg->content != NULL || msg->content_fd >= 0) {
        l->has_come = true;
        return;
    }
    if (c->has_failed) {
        return; /* the caller tries again after the next event, at the latest a sweep */
    }
    if (is_inside ? c->bytes == NULL || c->bytes_len != msg->f.m.size
                  : c->filled != msg->f.m.size) {
        if (msg->undos > 0) {
            desk_await_batch(l->desk); /* may take as long as no standby answers */
            return;
        }
        if (is_damaged(c, msg)) {
            desk_fill_wrong(msg, "its content is not as long as it should be");
        }
    } else if (is_inside) {
        desk_fill_content(l->desk, msg, c->bytes, -1);
        c->bytes = NULL;
    } else if (seal(c->fd)) {
        desk_fill_content(l->desk, msg, NULL, c->fd);
        c->fd = -1;
    }
    l->has_come = true;
}

/* ---- the parts of a message ------------------------------------------------------------------ */

/*
 * Parts may move and be divided between the list and the read of each part. So the list is read
 * again after the parts. It is valid if it equals the previous list, and if no part is being read.
 */

/* Requests a list of parts. Takes `before`, the question with the previous list; NULL for the first
 * one. */
static void ask_parts(struct loader *l, uint64_t whole, struct question *before)
{
    struct committer_batch *b = committer_batch_new();
    struct question *q = loader_question_new(ASK_PARTS);
    char room[LINK_NUMBER_SIZE];

    q->parts.whole = whole;
    q->parts.list = desk_parts_list(l->desk, whole);
    q->parts.before = before;
    q->parts.look = before != NULL ? before->parts.look : l->desk->looks;
    q->looks = before != NULL ? before->looks : 0;
    if (before != NULL) {
        loader_question_free(before->parts.before);
        before->parts.before = NULL;
    }
    committer_batch_add(b,
                        "SELECT p, id FROM part WHERE message = $1::bigint AND message <> id "
                        "ORDER BY p, id",
                        (struct link_param[]){link_number_param(room, (int64_t)whole)}, 1);
    reader_ask(l->reader, b, q);
}

static bool is_same_list(const struct question *a, const struct question *b)
{
    bool is_same = b != NULL && a->head_count == b->head_count;

    for (size_t i = 0; is_same && i < a->head_count; i++) {
        is_same = a->heads[i].id == b->heads[i].id && a->heads[i].p == b->heads[i].p;
    }
    return is_same;
}

/* Are all parts of the list on the desk? *ret_is_loading is set if some are being read. */
static bool is_read(const struct loader *l, const struct question *q, bool *ret_is_loading)
{
    bool is_read = true;

    *ret_is_loading = false;
    for (size_t i = 0; i < q->head_count; i++) {
        const struct desk_message *msg = desk_any(l->desk, q->heads[i].id);

        *ret_is_loading = *ret_is_loading || (msg != NULL && msg->is_loading);
        is_read =
            is_read && msg != NULL && !msg->is_loading && !desk_is_outdated(msg, q->parts.look);
    }
    return is_read;
}

/* Loads parts of the list that are foreign or not on the desk. Returns false if there are none;
 * otherwise takes `q`. */
static bool load_parts(struct loader *l, struct question *q)
{
    struct question *parts = loader_question_new(ASK_LOAD);

    for (size_t i = 0; i < q->head_count; i++) {
        if (desk_expect(l->desk, q->heads[i].id, DESK_LOOKED) != NULL) {
            loader_add_head(parts, q->heads[i]);
        }
    }
    if (parts->head_count == 0) {
        loader_question_free(parts);
        return false;
    }
    parts->load.parts = q;
    load(l, parts);
    return true;
}

void loader_parts_ended(struct loader *l, struct question *q)
{
    enum desk_listed worth = desk_parts_listed(l->desk, q->parts.whole, q->parts.list);
    bool is_loading, is_here = is_read(l, q, &is_loading) && is_same_list(q, q->parts.before);

    q->looks += !is_loading; /* a read in flight ends by itself */
    if (worth == LIST_UNWANTED) {
        loader_question_free(q);
        return;
    }
    if (q->looks < LISTS_MAX && (is_loading || worth == LIST_OLD)) {
        ask_parts(l, q->parts.whole, q);
        return;
    }
    if (q->looks < LISTS_MAX && !is_here && load_parts(l, q)) {
        return;
    }
    desk_parts_are_here(l->desk, q->parts.whole, q->parts.look);
    l->has_come = true;
    loader_question_free(q);
}

/* ---- requests from the desk ------------------------------------------------------------------ */

void loader_ask(struct loader *l)
{
    struct question *unknown, *known;
    const struct cluster_place *place;

    if (l->desk->missed_count == 0) {
        return;
    }
    unknown = loader_question_new(ASK_LOCATE);
    known = loader_question_new(ASK_LOAD);
    known->load.by_list = true;
    for (size_t i = 0; i < l->desk->missed_count; i++) {
        struct desk_message *msg = l->desk->missed[i];

        if (!msg->is_loading && msg->wants_parts) {
            msg->wants_parts = false;
            ask_parts(l, msg->id, NULL);
            continue;
        }
        if (!msg->is_loading) {
            ask_content(l, msg); /* stays missed until it is loaded, so that it is requested once */
            continue;
        }
        msg->is_missed = false;
        place = l->lists != NULL ? cluster_search_place(l->lists, msg->id) : NULL;
        if (place != NULL) {
            loader_add_head(known, (struct head){.p = place->p, .id = msg->id});
        } else {
            loader_add_head(unknown, (struct head){.id = msg->id});
        }
        if (known->head_count == LOCATE_MAX) {
            load(l, known);
            known = loader_question_new(ASK_LOAD);
            known->load.by_list = true;
        }
        if (unknown->head_count == LOCATE_MAX) {
            locate(l, unknown);
            unknown = loader_question_new(ASK_LOCATE);
        }
    }
    l->desk->missed_count = 0;
    if (known->head_count > 0) {
        load(l, known);
    } else {
        loader_question_free(known);
    }
    if (unknown->head_count > 0) {
        locate(l, unknown);
    } else {
        loader_question_free(unknown);
    }
}

void loader_bring(struct loader *l, const struct spool_routed *mail, size_t count)
{
    struct question *q = loader_question_new(ASK_LOAD);

    for (size_t i = 0; i < count; i++) {
        if (desk_any(l->desk, mail[i].id.n) == NULL) {
            loader_add_head(q, (struct head){.p = (uint16_t)mail[i].partition, .id = mail[i].id.n});
        }
    }
    (void)loader_load_new(l, q, DESK_LOOKED);
}
