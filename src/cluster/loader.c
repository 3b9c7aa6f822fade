#include "loader.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <fcntl.h>
#include <unistd.h>

#include "answers.h"
#include "boot_clock.h"
#include "check.h"
#include "columns.h"
#include "mem.h"

/* Places whose next due time is not known are asked for all at once, few rows of each. */
#define PLACES_MAX   (FINDER_ORDERS * PARTITIONS)
#define PLACES_FEW   16
#define HEADS_OF_FEW 65
#define KEY_PAGE     64
#define LOCATE_MAX   256
/* What has moved is looked for so often: rows that were harmed may never be found. And the parts of
 * a message that move are listed so often. */
#define LOOKS_MAX 8
#define LISTS_MAX 1000

enum ask {
    ASK_COUNT,
    ASK_HEADS,
    ASK_WALK,
    ASK_PASSING,
    ASK_KEY,
    ASK_LOCATE,
    ASK_LOAD,
    ASK_OTHERS,
    ASK_CONTENT,
    ASK_PARTS,
    ASK_TOLD,
    ASK_ARRIVALS,
    ASK_NOTHING /* it deletes */
};

struct head {
    uint32_t place; /* index of question.places */
    uint16_t p;
    int64_t due;
    uint64_t id;
};

struct question {
    enum ask ask;
    struct finder_place **places; /* owned */
    size_t place_count;
    uint32_t limit;
    struct head *heads; /* owned: answers, or messages that are loaded or located */
    size_t head_count, head_size;
    char *key; /* owned */
    size_t key_len;
    uint64_t id;             /* of ASK_CONTENT and ASK_PARTS, the message */
    struct question *parts;  /* owned: of what is loaded for ASK_PARTS, that with its list */
    struct question *before; /* owned: of ASK_PARTS, the same with the list before; or NULL */
    uint64_t list;           /* of ASK_PARTS: its number */
    uint64_t look;           /* of ASK_PARTS: of the first list */
    unsigned looks;          /* how often it was looked for */
    int fd;                  /* owned: where its chunks go, or -1 */
    uint64_t filled;
    uint64_t life;    /* loader.lives when it was asked */
    unsigned rows;    /* of ASK_ARRIVALS */
    unsigned where;   /* of ASK_LOAD, enum desk_row: where its messages are taken to be; ROW_NONE:
                         anywhere */
    bool by_list;     /* places are as a list has had them: it may have moved since */
    bool only_due;    /* what is loaded and due later leaves again */
    bool to_move;     /* what is loaded is to be moved: its content stays where it is */
    bool is_answered; /* of ASK_COUNT */
    char *bytes;      /* owned: content that was in a row */
    size_t bytes_len;
};

struct loader {
    struct desk *desk;
    struct finder *finder;
    struct arrivals *arrivals;
    struct handover *handover;
    struct reader *reader;              /* owned */
    const struct cluster_search *lists; /* borrowed */
    uint64_t lives;                     /* raised when partitions leave */
    unsigned counting;                  /* questions */
    unsigned deleting;                  /* .. that delete arrivals */
    bool has_counted;                   /* and not told it */
    int64_t now;
    bool is_wanted;  /* mail that is due */
    uint64_t missed; /* messages that only a sweep has found */
    bool is_heading; /* heads, or a page of the walk, are asked for */
    bool is_telling; /* when those that were told of something are due is asked for */
    bool has_come;
    int64_t sweep_at; /* us */
    /* the walk through a fresh table for what is to be moved, so far */
    unsigned passing_table;
    uint16_t passing_p;
    uint64_t passing_id;
    bool passing_is_asked, passing_ended;
    char *key; /* owned: that was asked for last */
    size_t key_len;
    uint64_t key_after; /* its mail up to this was read */
    bool key_is_asked, key_found;
    bool key_ended; /* all of it was looked at, and none was not on the desk */
};

static struct question *loader_question_new(enum ask ask)
{
    struct question *q = mem_new(sizeof *q);

    q->ask = ask;
    q->fd = -1;
    return q;
}

static void loader_question_free(struct question *q)
{
    if (q->fd >= 0) {
        (void)close(q->fd);
    }
    mem_free(q->places);
    mem_free(q->heads);
    mem_free(q->key);
    mem_free(q->bytes);
    if (q->parts != NULL) {
        loader_question_free(q->parts);
    }
    if (q->before != NULL) {
        loader_question_free(q->before);
    }
    mem_free(q);
}

static void loader_add_head(struct question *q, struct head head)
{
    if (q->head_count == q->head_size) {
        q->head_size = q->head_size == 0 ? 64 : 2 * q->head_size;
        q->heads = mem_resize(q->heads, q->head_size, sizeof q->heads[0]);
    }
    q->heads[q->head_count++] = head;
}

static struct link_param loader_number(char room[24], int64_t n)
{
    int len = snprintf(room, 24, "%" PRId64, n); /* fits */

    return (struct link_param){.bytes = room, .len = (size_t)len};
}

/* ---- columns of parameters ------------------------------------------------------------------- */

/* Add a statement whose first parameters are columns, and whose last one may be a number. */
static void loader_add_columns(struct committer_batch *b, struct columns *c, int64_t more)
{
    char room[24];

    columns_flush_with(c, b, loader_number(room, more));
    columns_fini(c);
}

/* ---- how much there is ----------------------------------------------------------------------- */

#define COUNT_FRESH(k)                                                                             \
    " UNION ALL SELECT 0, 1, '', count(*), coalesce(sum(size), 0)::bigint, p FROM fresh_" k        \
    " WHERE p = ANY($1::smallint[]) GROUP BY p"

/* $2: nothing. */
#define SQL_COUNT                                                                                  \
    "SELECT 0::smallint, state, ''::text, count(*), coalesce(sum(size), 0)::bigint, p FROM part "  \
    "WHERE p = ANY($1::smallint[]) AND message = id AND $2::bigint IS NOT NULL GROUP BY p, state " \
    "UNION ALL SELECT 1, "                                                                         \
    "2, parked, count(*), 0, p FROM part WHERE parked IS NOT NULL AND p = ANY($1::smallint[]) "    \
    "GROUP BY p, parked" COUNT_FRESH("0") COUNT_FRESH("1") COUNT_FRESH("2")

void loader_count(struct loader *l, const struct partition_set *partitions)
{
    struct committer_batch *b = committer_batch_new();
    const char *const sql[] = {SQL_COUNT, handover_sql};

    for (int i = 0; i < (l->handover->has_table ? 2 : 1); i++) {
        struct columns c;

        columns_init(&c, sql[i], "s");
        for (int p = 0; p < PARTITIONS; p++) {
            if (partition_set_has(partitions, p)) {
                columns_number(&c, p);
                columns_row_open(&c);
            }
        }
        loader_add_columns(b, &c, 0);
    }
    l->counting++;
    reader_ask(l->reader, b, loader_question_new(ASK_COUNT));
}

bool loader_is_counting(const struct loader *l)
{
    return l->counting > 0;
}

bool loader_is_deleting(const struct loader *l)
{
    return l->deleting > 0;
}

bool loader_has_counted(struct loader *l)
{
    bool has_counted = l->has_counted;

    l->has_counted = false;
    return has_counted;
}

static void counted(struct loader *l, struct question *q, const PGresult *r)
{
    struct text_pool pool = {NULL, 0};

    if (q->is_answered) {
        return; /* it came twice */
    }
    q->is_answered = true;
    for (int row = 0; row < PQntuples(r); row++) {
        int64_t what, state, count, bytes, p;
        struct slice key;

        text_pool_clear(&pool);
        if (!answer_number(r, row, 0, &what) || !answer_number(r, row, 1, &state) ||
            !answer_text(r, row, 2, SPOOL_PARKED_MAX, &pool, &key) ||
            !answer_number(r, row, 3, &count) || !answer_number(r, row, 4, &bytes) ||
            !answer_number(r, row, 5, &p) || p < 0 || p >= PARTITIONS) {
            continue;
        }
        if (what == 0) {
            desk_count_stored(l->desk, (uint16_t)p, (enum spool_state)state, (uint64_t)count,
                              (uint64_t)bytes);
        } else if (key.len > 0) {
            desk_count_parked(l->desk, (uint16_t)p, key, (uint64_t)count);
        }
    }
    text_pool_fini(&pool);
    l->has_come = true;
}

static void locate(struct loader *l, struct question *q);
static void ask_parts(struct loader *l, uint64_t whole, struct question *before);

/* ---- loading --------------------------------------------------------------------------------- */

/* What reads rows, in its order. `where` is enum desk_row; NULL: there is no n-th. */
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

static void loader_load_answer(struct loader *l, const struct question *q, unsigned n,
                               const PGresult *r)
{
    static void (*const take[])(struct desk * d, const PGresult *r) = {
        answers_fresh, answers_waiting, answers_rcpts};

    n += q->where == ROW_WAITING;
    if (n < 3) {
        take[n](l->desk, r);
    }
}

/* The messages of `q`, which are expected on the desk. Takes it. */
static void load(struct loader *l, struct question *q)
{
    struct committer_batch *b = committer_batch_new();
    const char *sql;
    int64_t content = !q->to_move && l->desk->content_bytes < DESK_CONTENTS_MAX
                          ? (int64_t)DESK_CONTENT_MAX
                          : INT64_C(-1);

    q->ask = ASK_LOAD;
    q->life = l->lives;
    for (unsigned i = 0; (sql = load_sql(q->where, i)) != NULL; i++) {
        struct columns c;

        columns_init(&c, sql, "sl");
        for (size_t k = 0; k < q->head_count; k++) {
            columns_number(&c, q->heads[k].p);
            columns_number(&c, (int64_t)q->heads[k].id);
            columns_row_open(&c);
        }
        if (sql != answers_rcpts_sql) {
            loader_add_columns(b, &c, content);
        } else {
            columns_flush(&c, b);
            columns_fini(&c);
        }
    }
    reader_ask(l->reader, b, q);
}

/* Those of `heads` that are not on the desk yet. Takes `q`. */
static bool loader_load_new(struct loader *l, struct question *q, enum desk_reason why)
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

/* The messages of `q`, in two columns of a statement. */
static void loader_ask_by_key(struct loader *l, struct question *q, const char *sql)
{
    struct committer_batch *b = committer_batch_new();
    struct columns c;

    columns_init(&c, sql, "sl");
    for (size_t k = 0; k < q->head_count; k++) {
        columns_number(&c, q->heads[k].p);
        columns_number(&c, (int64_t)q->heads[k].id);
        columns_row_open(&c);
    }
    columns_flush(&c, b);
    columns_fini(&c);
    reader_ask(l->reader, b, q);
}

/* Those that were not where they were taken to be leave `q`, and are looked for everywhere. */
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
    rest->by_list = q->by_list;
    rest->only_due = q->only_due;
    rest->to_move = q->to_move; /* who waits for all of it waits for this */
    q->to_move = false;
    load(l, rest);
}

/* Is it to be looked for by its id alone? It was where it is not any more, or changed while it was
 * read, and it is asked for. */
static bool may_have_moved(const struct loader *l, const struct question *q,
                           struct desk_message *msg)
{
    return (q->by_list || msg->is_looked) && !q->to_move && q->looks < LOOKS_MAX &&
           (msg->row == ROW_NONE || desk_drop_torn(l->desk, msg));
}

/* Takes the question. */
static void loader_loaded(struct loader *l, struct question *q)
{
    struct question *others = loader_question_new(ASK_OTHERS),
                    *moved = loader_question_new(ASK_LOCATE);

    if (q->where != ROW_NONE) {
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
            if (q->only_due) {
                desk_leave_until(l->desk, q->heads[i].id, l->now);
            }
        }
    }
    if (q->to_move) {
        l->passing_is_asked = false;
    }
    moved->looks = q->looks + 1;
    if (moved->head_count > 0) {
        locate(l, moved);
    } else {
        loader_question_free(moved);
    }
    if (others->head_count > 0) {
        others->life = l->lives;
        others->only_due = q->only_due;
        loader_ask_by_key(l, others, answers_others_sql);
    } else {
        loader_question_free(others);
    }
    if (q->parts != NULL) {
        struct question *list = q->parts;

        q->parts = NULL;
        ask_parts(l, list->id, list);
    }
    l->has_come = true;
    loader_question_free(q);
}

/* What was read in a former life is read again, where it is still wanted. */
static void loader_load_again(struct loader *l, struct question *q)
{
    size_t kept = 0;

    for (size_t i = 0; i < q->head_count; i++) {
        const struct desk_message *msg = desk_any(l->desk, q->heads[i].id);

        if (msg != NULL && msg->is_loading) {
            q->heads[kept++] = q->heads[i];
        }
    }
    q->head_count = kept;
    q->where = ROW_NONE;
    if (kept > 0) {
        load(l, q);
    } else {
        loader_loaded(l, q);
    }
}

/* ---- report parts that were given to --------------------------------------------------------- */

static void ask_told(struct loader *l)
{
    struct desk *d = l->desk;
    struct question *q;

    if (d->told_count == 0 || l->is_telling) {
        return;
    }
    q = loader_question_new(ASK_TOLD);
    for (size_t i = 0; i < d->told_count; i++) {
        loader_add_head(q, (struct head){.p = d->told[i].p, .id = d->told[i].id});
    }
    d->told_count = 0;
    l->is_telling = true;
    loader_ask_by_key(
        l, q,
        "SELECT x.p, x.id, x.due FROM unnest($1::smallint[], $2::bigint[]) AS u (p, id) "
        "JOIN part x ON x.p = u.p AND x.id = u.id");
}

static void told_answer(struct loader *l, const PGresult *r)
{
    for (int row = 0; row < PQntuples(r); row++) {
        int64_t p, id, due;

        if (answer_number(r, row, 0, &p) && answer_number(r, row, 1, &id) &&
            answer_number(r, row, 2, &due) && p >= 0 && p < PARTITIONS && id > 0) {
            desk_told(l->desk, (uint16_t)p, (uint64_t)id, due);
        }
    }
    l->is_wanted = l->has_come = true;
}

/* ---- by id alone ----------------------------------------------------------------------------- */

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

static void loader_locate_answer(struct question *q, const PGresult *r)
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
                q->heads[i].due = 1; /* found */
            }
        }
    }
}

static void loader_located(struct loader *l, struct question *q)
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
            desk_loaded(l->desk, msg); /* there is none */
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
    int64_t stored; /* under this id */
    char room[2][24];

    q->id = msg->id;
    stored = (int64_t)spool_whole(&msg->f.m).n;
    if (msg->row >= ROW_FRESH) {
        committer_batch_add(b, fresh[msg->row - ROW_FRESH],
                            (struct link_param[]){loader_number(room[0], msg->f.p),
                                                  loader_number(room[1], (int64_t)msg->id)},
                            2);
    } else if (msg->f.m.size <= DESK_CONTENT_MAX) {
        committer_batch_add(b, "SELECT bytes FROM message WHERE id = $1::bigint",
                            (struct link_param[]){loader_number(room[0], stored)}, 1);
    } else {
        for (uint64_t n = 0; n * DESK_CHUNK < msg->f.m.size; n++) {
            committer_batch_add(b,
                                "SELECT bytes FROM content WHERE id = $1::bigint AND n = $2::int",
                                (struct link_param[]){loader_number(room[0], stored),
                                                      loader_number(room[1], (int64_t)n)},
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

static void loader_content_answer(struct loader *l, struct question *q, unsigned n,
                                  const PGresult *r)
{
    struct desk_message *msg = desk_any(l->desk, q->id);
    size_t len = PQntuples(r) == 1 && PQnfields(r) == 1 ? (size_t)PQgetlength(r, 0, 0) : 0;

    if (msg == NULL || msg->is_loading) {
        return;
    }
    if (msg->f.m.size <= DESK_CONTENT_MAX) {
        mem_free(q->bytes);
        q->bytes = PQntuples(r) == 1 ? mem_copy(PQgetvalue(r, 0, 0), len) : NULL;
        q->bytes_len = len;
        return;
    }
    if (n == 0) {
        if (q->fd >= 0) {
            (void)close(q->fd);
        }
        q->fd = memfd_create("content", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        q->filled = 0;
    }
    if (q->fd >= 0 && len > 0 && write_all(q->fd, PQgetvalue(r, 0, 0), len)) {
        q->filled += len;
    }
}

static void loader_content_ended(struct loader *l, struct question *q)
{
    struct desk_message *msg = desk_any(l->desk, q->id);
    bool is_right;

    l->has_come = true;
    if (msg == NULL || msg->is_loading) {
        return;
    }
    msg->is_missed = false;
    if (msg->content != NULL || msg->content_fd >= 0) {
        return;
    }
    is_right = msg->f.m.size <= DESK_CONTENT_MAX ? q->bytes != NULL && q->bytes_len == msg->f.m.size
                                                 : q->filled == msg->f.m.size;
    if (!is_right) {
        desk_fill_wrong(msg, "its content is not as long as it should be");
    } else if (q->bytes != NULL) {
        desk_fill_content(l->desk, msg, q->bytes, -1);
        q->bytes = NULL;
    } else if (fcntl(q->fd, F_ADD_SEALS,
                     F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) == 0) {
        desk_fill_content(l->desk, msg, NULL, q->fd);
        q->fd = -1;
    }
}

/* ---- the parts of a message ------------------------------------------------------------------ */

/*
 * Parts move, and are divided, between the moment in which they are listed and that in which each
 * is read. So they are listed again behind that: they are here when the list is the one before,
 * and nothing of it is being read any more.
 */

/* `before` has the list before, and is taken; NULL: it is the first. */
static void ask_parts(struct loader *l, uint64_t whole, struct question *before)
{
    struct committer_batch *b = committer_batch_new();
    struct question *q = loader_question_new(ASK_PARTS);
    char room[24];

    q->id = whole;
    q->list = desk_parts_list(l->desk, whole);
    q->before = before;
    q->look = before != NULL ? before->look : l->desk->looks;
    q->looks = before != NULL ? before->looks : 0;
    if (before != NULL && before->before != NULL) {
        loader_question_free(before->before);
        before->before = NULL;
    }
    committer_batch_add(b,
                        "SELECT p, id FROM part WHERE message = $1::bigint AND message <> id "
                        "ORDER BY p, id",
                        (struct link_param[]){loader_number(room, (int64_t)whole)}, 1);
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

/* Is all of the list read? *ret_is_loading: not yet, as some of it is being read. */
static bool is_read(const struct loader *l, const struct question *q, bool *ret_is_loading)
{
    bool is_read = true;

    *ret_is_loading = false;
    for (size_t i = 0; i < q->head_count; i++) {
        const struct desk_message *msg = desk_any(l->desk, q->heads[i].id);

        *ret_is_loading = *ret_is_loading || (msg != NULL && msg->is_loading);
        is_read = is_read && msg != NULL && !msg->is_loading && !desk_is_outdated(msg, q->look);
    }
    return is_read;
}

/* What of the list is not on the desk, or another node's, is read. False: nothing is. Takes `q`. */
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
    parts->parts = q;
    load(l, parts);
    return true;
}

/* Takes the question. */
static void loader_parts_ended(struct loader *l, struct question *q)
{
    enum desk_listed worth = desk_parts_listed(l->desk, q->id, q->list);
    bool is_loading, is_here = is_read(l, q, &is_loading) && is_same_list(q, q->before);

    q->looks += !is_loading; /* what is read ends */
    if (worth == LIST_UNWANTED) {
        loader_question_free(q);
        return;
    }
    if (q->looks < LISTS_MAX && (is_loading || worth == LIST_OLD)) {
        ask_parts(l, q->id, q);
        return;
    }
    if (q->looks < LISTS_MAX && !is_here && load_parts(l, q)) {
        return;
    }
    desk_parts_are_here(l->desk, q->id, q->look);
    l->has_come = true;
    loader_question_free(q);
}

void loader_ask(struct loader *l)
{
    struct question *unknown, *known;
    const struct cluster_place *place;

    if (l->desk->missed_count == 0) {
        return;
    }
    unknown = loader_question_new(ASK_LOCATE);
    known = loader_question_new(ASK_LOAD);
    known->by_list = true;
    for (size_t i = 0; i < l->desk->missed_count; i++) {
        struct desk_message *msg = l->desk->missed[i];

        if (!msg->is_loading && msg->wants_parts) {
            msg->wants_parts = false;
            ask_parts(l, msg->id, NULL);
            continue;
        }
        if (!msg->is_loading) {
            ask_content(l, msg); /* missed until it is there: it is not asked for twice */
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
            known->by_list = true;
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

void loader_set_lists(struct loader *l, const struct cluster_search *lists)
{
    l->lists = lists;
}

/* ---- what is due ----------------------------------------------------------------------------- */

/* $5: how many of each place. Of rows that nothing here has written none is counted for a page. */
#define SQL_HEADS                                                                                  \
    "SELECT g.i, h.due, h.id FROM unnest($1::smallint[], $2::smallint[], $3::bigint[], "           \
    "$4::bigint[]) WITH ORDINALITY AS g (p, state, due, id, i) JOIN LATERAL (SELECT x.due, x.id "  \
    "FROM part x WHERE x.p = g.p AND x.state = g.state AND (x.due, x.id) > (g.due, g.id) AND "     \
    "x.id > 0 ORDER BY x.due, x.id LIMIT $5::bigint) h ON true"

static void ask_heads(struct loader *l)
{
    struct question *q = loader_question_new(ASK_HEADS);
    struct committer_batch *b = committer_batch_new();
    int64_t next = finder_next(l->finder);
    struct columns c;

    q->places = mem_array(PLACES_MAX, sizeof(struct finder_place *));
    q->place_count =
        finder_ask(l->finder, l->now, next == INT64_MIN ? PLACES_MAX : PLACES_FEW, q->places);
    q->limit = q->place_count > PLACES_FEW ? 2 : HEADS_OF_FEW;
    columns_init(&c, SQL_HEADS, "ssll");
    for (size_t i = 0; i < q->place_count; i++) {
        const struct finder_place *place = q->places[i];

        columns_number(&c, place->p);
        columns_number(&c, place->order == FINDER_INCOMING ? SPOOL_INCOMING : SPOOL_DEFERRED);
        columns_number(&c, place->due);
        columns_number(&c, (int64_t)place->id);
        columns_row_open(&c);
    }
    if (q->place_count == 0) {
        columns_fini(&c);
        committer_batch_free(b);
        loader_question_free(q);
        return;
    }
    l->is_heading = true;
    loader_add_columns(b, &c, q->limit);
    reader_ask(l->reader, b, q);
}

static void loader_heads_answer(struct question *q, const PGresult *r)
{
    q->head_count = 0;
    for (int row = 0; row < PQntuples(r); row++) {
        int64_t i, due, id;

        if (answer_number(r, row, 0, &i) && answer_number(r, row, 1, &due) &&
            answer_number(r, row, 2, &id) && i >= 1 && (size_t)i <= q->place_count && id > 0) {
            loader_add_head(q, (struct head){.place = (uint32_t)i - 1,
                                             .p = q->places[i - 1]->p,
                                             .due = due,
                                             .id = (uint64_t)id});
        }
    }
}

static int head_order(const void *a, const void *b)
{
    const struct head *x = a, *y = b;

    return x->due != y->due ? (x->due > y->due) - (x->due < y->due)
                            : (x->id > y->id) - (x->id < y->id);
}

static size_t room_of(const struct loader *l)
{
    return l->desk->ready_count < LOADER_HIGH ? LOADER_HIGH - l->desk->ready_count : 0;
}

/* The earliest go to the desk, as far as there is room and they are due; the places say what comes
 * next. */
static void loader_heads_ended(struct loader *l, struct question *q)
{
    struct question *take = loader_question_new(ASK_LOAD);
    size_t room = room_of(l);
    uint32_t *counts = mem_array(q->place_count, sizeof *counts);
    int64_t *next = mem_array(q->place_count, sizeof *next);
    struct head *last = mem_array(q->place_count, sizeof *last);

    l->is_heading = false;
    if (q->head_count > 0) {
        qsort(q->heads, q->head_count, sizeof q->heads[0], head_order);
    }
    for (size_t i = 0; i < q->place_count; i++) {
        next[i] = FINDER_NONE;
        last[i] = (struct head){.due = q->places[i]->due, .id = q->places[i]->id};
    }
    for (size_t i = 0; i < q->head_count; i++) {
        const struct head *h = &q->heads[i];

        counts[h->place]++;
        if (next[h->place] != FINDER_NONE) {
            continue; /* one before it stays behind */
        }
        if (h->due > l->now || take->head_count >= room) {
            next[h->place] = h->due;
            continue;
        }
        if (!desk_has(l->desk, h->id)) {
            loader_add_head(take, *h);
            l->missed += desk_any(l->desk, h->id) == NULL && h->due < l->now - LOADER_MISSED_US &&
                         finder_was_past(l->finder, q->places[h->place], h->due, h->id);
        }
        last[h->place] = *h;
    }
    for (size_t i = 0; i < q->place_count; i++) {
        if (next[i] == FINDER_NONE && counts[i] == q->limit) {
            next[i] = last[i].due; /* there may be more */
        }
        finder_answer(l->finder, q->places[i], last[i].due, last[i].id, next[i]);
    }
    mem_free(last);
    mem_free(next);
    mem_free(counts);
    take->where = ROW_WAITING;
    (void)loader_load_new(l, take, DESK_READY);
    l->has_come = true; /* the next due time is known now */
}

/* ---- the walk through what passes ------------------------------------------------------------ */

#define SQL_WALK(k)                                                                                \
    "SELECT p, id FROM fresh_" k " WHERE (p, id) > ($1::smallint, $2::bigint) AND id > 0 AND "     \
    "p < 256 ORDER BY p, id LIMIT $3::bigint"

/* A page of the table behind (p, id). Takes the question. */
static void ask_page(struct loader *l, struct question *q, unsigned table, uint16_t p, uint64_t id)
{
    static const char *const sql[DESK_FRESH_TABLES] = {SQL_WALK("0"), SQL_WALK("1"), SQL_WALK("2")};
    struct committer_batch *b = committer_batch_new();
    char room[3][24];

    committer_batch_add(b, sql[table],
                        (struct link_param[]){loader_number(room[0], p),
                                              loader_number(room[1], (int64_t)id),
                                              loader_number(room[2], q->limit)},
                        3);
    reader_ask(l->reader, b, q);
}

static void ask_walk(struct loader *l)
{
    struct question *q = loader_question_new(ASK_WALK);

    q->limit = (uint32_t)room_of(l);
    l->is_heading = true;
    ask_page(l, q, l->finder->walk_table, l->finder->walk_p, l->finder->walk_id);
}

static void loader_ids_answer(struct question *q, const PGresult *r)
{
    q->head_count = 0;
    for (int row = 0; row < PQntuples(r); row++) {
        int64_t p, id;

        if (answer_number(r, row, 0, &p) && answer_number(r, row, 1, &id) && p >= 0 &&
            p < PARTITIONS && id > 0) {
            loader_add_head(q, (struct head){.p = (uint16_t)p, .id = (uint64_t)id});
        }
    }
}

static void only_mine(const struct loader *l, struct question *q)
{
    size_t kept = 0;

    for (size_t i = 0; i < q->head_count; i++) {
        if (l->finder->is_mine[q->heads[i].p]) {
            q->heads[kept++] = q->heads[i];
        }
    }
    q->head_count = kept;
}

/* Takes the question. */
static void loader_walk_ended(struct loader *l, struct question *q)
{
    struct finder *f = l->finder;

    l->is_heading = false;
    q->where = ROW_FRESH + f->walk_table;
    if (q->head_count > 0) {
        f->walk_p = q->heads[q->head_count - 1].p;
        f->walk_id = q->heads[q->head_count - 1].id;
    }
    if (q->head_count < q->limit) {
        f->walk_table++;
        f->walk_p = 0;
        f->walk_id = 0;
        if (f->walk_table == DESK_FRESH_TABLES) {
            f->walk_table = 0;
            f->walks = false;
        }
    }
    only_mine(l, q);
    for (size_t i = 0; i < q->head_count && f->walk_is_sweep && f->sweep_is_sure; i++) {
        /* Ids are times. */
        l->missed += desk_any(l->desk, q->heads[i].id) == NULL &&
                     (int64_t)q->heads[i].id < l->now - LOADER_MISSED_US;
    }
    (void)loader_load_new(l, q, DESK_READY);
    l->has_come = true;
}

/* ---- what has been passing for long ---------------------------------------------------------- */

bool loader_bring_passing(struct loader *l, unsigned table)
{
    struct question *q;

    if (l->passing_is_asked) {
        return true;
    }
    if (table != l->passing_table || l->passing_ended) {
        bool has_ended = table == l->passing_table;

        l->passing_table = table;
        l->passing_p = 0;
        l->passing_id = 0;
        l->passing_ended = false;
        if (has_ended) {
            return false; /* the next time begins anew */
        }
    }
    q = loader_question_new(ASK_PASSING);
    q->limit = LOADER_HIGH;
    q->to_move = true;
    l->passing_is_asked = true;
    ask_page(l, q, table, l->passing_p, l->passing_id);
    return true;
}

bool loader_is_bringing_passing(const struct loader *l)
{
    return l->passing_is_asked;
}

/* Takes the question. */
static void loader_passing_ended(struct loader *l, struct question *q)
{
    l->passing_ended = q->head_count < q->limit;
    if (q->head_count > 0) {
        l->passing_p = q->heads[q->head_count - 1].p;
        l->passing_id = q->heads[q->head_count - 1].id;
    }
    only_mine(l, q);
    q->where = ROW_FRESH + l->passing_table;
    l->passing_is_asked = loader_load_new(l, q, DESK_LOOKED);
    l->has_come = true;
}

/* Read ahead. */
static void loader_go_on(struct loader *l)
{
    struct question *q, *waiting, *later;
    struct head early = {.due = 0};
    bool passes, has_some;
    size_t room;

    if (!l->is_wanted || l->is_heading || l->desk->ready_count >= LOADER_LOW) {
        return;
    }
    room = room_of(l);
    q = loader_question_new(ASK_LOAD);
    waiting = loader_question_new(ASK_LOAD);
    later = loader_question_new(ASK_LOAD);
    q->only_due = waiting->only_due = true;    /* when what has arrived is due is not known */
    q->where = ROW_FRESH + l->desk->fresh_now; /* most often */
    while (q->head_count + waiting->head_count < room &&
           finder_take_early(l->finder, l->now, &early.p, &early.id, &passes)) {
        const struct desk_message *msg = desk_any(l->desk, early.id);

        loader_add_head(msg != NULL && msg->is_loading ? later : passes ? q : waiting, early);
    }
    for (size_t i = 0; i < later->head_count; i++) {
        /* It is being looked at, perhaps where it was before. */
        finder_put_early(l->finder, later->heads[i].p, l->now, later->heads[i].id);
    }
    loader_question_free(later);
    has_some = loader_load_new(l, q, DESK_READY);
    has_some |= loader_load_new(l, waiting, DESK_READY);
    if (has_some && room_of(l) < LOADER_HIGH - LOADER_LOW) {
        return;
    }
    if (l->finder->walks && room_of(l) > 0) {
        ask_walk(l);
    } else if (finder_next(l->finder) <= l->now) {
        ask_heads(l);
    } else {
        l->is_wanted = false;
    }
}

void loader_want(struct loader *l, int64_t now)
{
    l->now = now;
    l->is_wanted = true;
    loader_go_on(l);
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

/* ---- what others tell ------------------------------------------------------------------------ */

static bool arrived(void *arg, const struct arrived_mail *a)
{
    struct loader *l = arg;

    if (!l->finder->is_mine[a->p]) {
        return true;
    }
    if (a->kind == ARRIVAL_TOLD) {
        desk_tell(l->desk, a->p, a->id);
        return false;
    }
    if (a->counts_as != 0) {
        desk_count_arrived(l->desk, a->p, (enum spool_state)a->counts_as, a->size);
    }
    if (a->counts_as != SPOOL_HOLD && a->counts_as != SPOOL_CORRUPT) {
        finder_put_fresh(l->finder, a->p, INT64_MIN, a->id);
        l->is_wanted = true;
    }
    l->has_come = true;
    return false;
}

void loader_look_for_arrivals(struct loader *l, int no, int64_t incarnation, int64_t now)
{
    struct committer_batch *gone = arrivals_delete(l->arrivals, no, incarnation, now);
    struct committer_batch *b = arrivals_ask(l->arrivals, no, now);
    struct question *q;

    if (gone != NULL) {
        desk_arrivals_deleted(l->desk);
        l->deleting++;
        reader_ask(l->reader, gone, loader_question_new(ASK_NOTHING));
    }
    if (b != NULL) {
        q = loader_question_new(ASK_ARRIVALS);
        q->id = (uint64_t)no;
        q->life = (uint64_t)incarnation;
        reader_ask(l->reader, b, q);
    }
}

static void arrivals_ended_here(struct loader *l, const struct question *q)
{
    if (arrivals_ended(l->arrivals, q->rows)) {
        loader_look_for_arrivals(l, (int)q->id, (int64_t)q->life, l->arrivals->read_at);
    }
}

void loader_let_go(struct loader *l)
{
    l->lives++;
}

/* ---- by key ---------------------------------------------------------------------------------- */

static void ask_key(struct loader *l)
{
    struct committer_batch *b = committer_batch_new();
    struct question *q = loader_question_new(ASK_KEY);
    struct columns c;

    q->key = mem_copy(l->key, l->key_len);
    q->key_len = l->key_len;
    l->key_is_asked = true;
    columns_init(&c,
                 "SELECT p, id FROM part WHERE parked = ($1::text[])[1] AND id > $2::bigint AND p "
                 "BETWEEN 0 AND 255 ORDER BY parked, id LIMIT 64",
                 "t");
    columns_bytes(&c, slice_of(l->key, l->key_len));
    columns_row_open(&c);
    loader_add_columns(b, &c, (int64_t)l->key_after);
    reader_ask(l->reader, b, q);
}

bool loader_want_key(struct loader *l, struct slice key)
{
    if (l->key == NULL || !slice_equal(key, slice_of(l->key, l->key_len))) {
        if (l->key_is_asked) {
            return true; /* one after the other */
        }
        mem_free(l->key);
        l->key = mem_copy(key.ptr, key.len);
        l->key_len = key.len;
        l->key_after = 0;
        l->key_found = l->key_ended = false;
    }
    if (l->key_ended) {
        l->key_ended = false; /* for the next time */
        return false;
    }
    if (!l->key_is_asked) {
        ask_key(l);
    }
    return true;
}

/* Takes the question. */
static void loader_key_ended(struct loader *l, struct question *q)
{
    size_t count = q->head_count;

    l->key_is_asked = false;
    l->key_after = count > 0 ? q->heads[count - 1].id : 0;
    only_mine(l, q);
    q->where = ROW_WAITING;
    if (loader_load_new(l, q, DESK_READY)) {
        l->key_found = true;
        return; /* told when they are loaded */
    }
    if (count == KEY_PAGE) {
        ask_key(l);
        return;
    }
    l->key_after = 0;
    l->key_ended = !l->key_found;
    l->key_found = false;
    l->has_come = true;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static void answer(void *arg, void *question, unsigned n, const PGresult *r)
{
    struct loader *l = arg;
    struct question *q = question;

    switch (q->ask) {
    case ASK_COUNT:
        if (n == 0) {
            counted(l, q, r);
        } else {
            handover_answer(l->handover, r);
        }
        return;
    case ASK_HEADS:
        loader_heads_answer(q, r);
        return;
    case ASK_PARTS:
    case ASK_WALK:
    case ASK_PASSING:
    case ASK_KEY:
        loader_ids_answer(q, r);
        return;
    case ASK_LOCATE:
        loader_locate_answer(q, r);
        return;
    case ASK_ARRIVALS:
        q->rows = (unsigned)PQntuples(r);
        arrivals_answer(l->arrivals, r, arrived, l);
        return;
    case ASK_OTHERS:
        if (q->life == l->lives) {
            answers_others(l->desk, r);
        }
        return;
    case ASK_TOLD:
        told_answer(l, r);
        return;
    case ASK_LOAD:
        if (q->life != l->lives) {
            return;
        }
        loader_load_answer(l, q, n, r);
        return;
    case ASK_NOTHING:
        return;
    case ASK_CONTENT:
        loader_content_answer(l, q, n, r);
        return;
    }
}

/* What ASK_LOAD has of each place, as load_sql. */
static bool misfits(void *arg, void *question, unsigned n, const PGresult *r, char *words)
{
    static const char *const types[] = {answers_fresh_types, answers_waiting_types,
                                        answers_rcpts_types};
    static const char *const tables[] = {"fresh_0 to fresh_2", "part, message", "recipient"};
    const struct question *q = question;
    const char *column = NULL, *of = "part, fresh_0 to fresh_2";

    (void)arg;
    switch (q->ask) {
    case ASK_LOAD:
        n += q->where == ROW_WAITING;
        of = n < 3 ? tables[n] : "";
        column = n < 3 ? answer_misfit(r, types[n]) : NULL;
        break;
    case ASK_OTHERS:
        of = tables[2];
        column = answer_misfit(r, answers_rcpts_types);
        break;
    case ASK_CONTENT:
        of = "content, message, fresh_0 to fresh_2";
        column = answer_misfit(r, "b");
        break;
    case ASK_HEADS:
        column = answer_misfit(r, "nnn");
        break;
    case ASK_PARTS:
    case ASK_WALK:
    case ASK_PASSING:
    case ASK_KEY:
    case ASK_LOCATE:
        column = answer_misfit(r, "nn");
        break;
    case ASK_COUNT:
    case ASK_ARRIVALS:
    case ASK_TOLD:
    case ASK_NOTHING:
        break; /* what makes no sense there is left out, and looked for again */
    }
    if (column != NULL) {
        (void)snprintf(words, LINK_ERROR_MAX,
                       "the tables are not as this program knows them: column %s (of %s) has "
                       "another type",
                       column, of); /* fits */
    }
    return column != NULL;
}

static void ended(void *arg, void *question, bool answered)
{
    struct loader *l = arg;
    struct question *q = question;

    if (!answered) {
        loader_question_free(q);
        return;
    }
    switch (q->ask) {
    case ASK_COUNT:
        l->counting--;
        l->has_counted = l->counting == 0;
        break;
    case ASK_NOTHING:
        l->deleting--;
        break;
    case ASK_ARRIVALS:
        arrivals_ended_here(l, q);
        break;
    case ASK_HEADS:
        loader_heads_ended(l, q);
        break;
    case ASK_WALK:
        loader_walk_ended(l, q);
        return;
    case ASK_PASSING:
        loader_passing_ended(l, q);
        return;
    case ASK_KEY:
        loader_key_ended(l, q);
        return;
    case ASK_PARTS:
        loader_parts_ended(l, q);
        return;
    case ASK_LOCATE:
        loader_located(l, q);
        break;
    case ASK_LOAD:
    case ASK_OTHERS:
        (q->life == l->lives ? loader_loaded : loader_load_again)(l, q);
        return;
    case ASK_TOLD:
        l->is_telling = false;
        ask_told(l);
        break;
    case ASK_CONTENT:
        loader_content_ended(l, q);
        break;
    }
    loader_question_free(q);
}

struct loader *loader_new(int epoll_fd, const struct link_target *target, struct desk *desk,
                          struct finder *finder, struct arrivals *arrivals,
                          struct handover *handover)
{
    static const char *const often[] = {
        answers_fresh_0_sql, answers_fresh_1_sql, answers_fresh_2_sql, answers_fresh_sql,
        answers_waiting_sql, answers_rcpts_sql,   arrivals_ask_sql,    NULL};
    static const struct reader_owner owner = {
        .misfits = misfits, .answer = answer, .end = ended, .prepared = often};
    struct loader *l = mem_new(sizeof *l);

    l->desk = desk;
    l->finder = finder;
    l->arrivals = arrivals;
    l->handover = handover;
    l->sweep_at = boot_now().us + LOADER_SWEEP_US;
    l->reader = reader_new(epoll_fd, target, &owner, l);
    return l;
}

void loader_free(struct loader *l)
{
    if (l == NULL) {
        return;
    }
    reader_free(l->reader);
    mem_free(l->key);
    mem_free(l);
}

void loader_turn(struct loader *l)
{
    reader_turn(l->reader);
    if (boot_now().us >= l->sweep_at) {
        l->sweep_at = boot_now().us + LOADER_SWEEP_US;
        finder_sweep(l->finder);
        l->is_wanted = true;
    }
    loader_ask(l);
    ask_told(l);
    loader_go_on(l);
}

bool loader_has_come(struct loader *l)
{
    bool has_come = l->has_come;

    l->has_come = false;
    return has_come;
}

uint64_t loader_missed(const struct loader *l)
{
    return l->missed;
}

bool loader_is_idle(const struct loader *l)
{
    return reader_count(l->reader) == 0 && l->desk->missed_count + l->desk->told_count == 0;
}

struct reader *loader_reader(struct loader *l)
{
    return l->reader;
}
