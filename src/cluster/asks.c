#include "asks.h"

#include <errno.h>
#include <sys/queue.h>

#include "answers.h"
#include "check.h"
#include "columns.h"
#include "mem.h"
#include "reader.h"

/* ---- statements ------------------------------------------------------------------------------ */

#define STRINGIFY(n) #n
#define TEXT_OF(n)   STRINGIFY(n)

/* Clock of the server, so that writer and reader of a time use the same one. */
#define SQL_NOW "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"

#define SQL_LAZY "SELECT set_config('synchronous_commit', 'off', true)"
#define SQL_PUT                                                                                    \
    "INSERT INTO ask (from_node, n, to_node, question, at) VALUES ($1::smallint, $2::bigint, "     \
    "$3::smallint, $4::bytea, " SQL_NOW ") ON CONFLICT DO NOTHING"
/* The fence keeps an ended incarnation from answering: its mail belongs to another node now. */
#define SQL_ANSWER                                                                                 \
    "UPDATE ask SET answer = $3::bytea WHERE from_node = $1::smallint AND n = $2::bigint AND "     \
    "answer IS NULL AND EXISTS (SELECT FROM fence WHERE no = $4::smallint AND incarnation = "      \
    "$5::bigint)"
#define SQL_DELETE "DELETE FROM ask WHERE from_node = $2::smallint AND n = ANY ($1::bigint[])"
/* Questions for this node that it does not hold yet. */
#define SQL_FOR_US                                                                                 \
    "SELECT from_node, n, CASE WHEN octet_length(question) <= " TEXT_OF(                           \
        QUESTION_MAX) " THEN question END FROM ask WHERE to_node = $3::smallint AND answer IS "    \
                      "NULL AND at > " SQL_NOW " - " TEXT_OF(                                      \
                          ASKS_OLD_S) "000000 AND NOT EXISTS (SELECT FROM unnest($1::smallint[], " \
                                      "$2::bigint[]) h(f, m) WHERE f = from_node AND m = n) "      \
                                      "ORDER BY at LIMIT " TEXT_OF(ASKS_HELD_MAX)
#define SQL_ANSWERED                                                                               \
    "SELECT n, to_node, CASE WHEN octet_length(answer) <= " TEXT_OF(                               \
        ANSWER_MAX) " THEN answer END FROM ask WHERE from_node = $1::smallint AND answer IS NOT "  \
                    "NULL ORDER BY n LIMIT 16"

/* Values of SPOOL_QUESTION_MAX and SPOOL_ANSWER_MAX, as digits for statements. */
#define QUESTION_MAX 65536
#define ANSWER_MAX   4194304
_Static_assert(QUESTION_MAX == SPOOL_QUESTION_MAX && ANSWER_MAX == SPOOL_ANSWER_MAX,
               "the same limits");

/* ---- state ----------------------------------------------------------------------------------- */

/* Question of this node that has no answer yet. */
struct own_ask {
    uint32_t token;
    int node;
};

/* Question of another node. */
struct held {
    TAILQ_ENTRY(held) next;
    uint32_t token;
    int node;
    int64_t n;
    struct slice text; /* owned bytes until asks_next_told has returned them */
    bool is_told, is_answered;
};

struct told_answer {
    STAILQ_ENTRY(told_answer) next;
    struct own_ask of;
    struct slice text; /* owned bytes */
};

/* Purpose of a request to the reader. */
enum purpose { PUT, LOOK, ANSWER, DELETE };

struct request {
    enum purpose purpose;
    int node;       /* for PUT and ANSWER: node to notify */
    uint32_t token; /* for ANSWER: token of the held question */
};

struct asks {
    struct reader *reader; /* owned */
    void (*notify)(void *arg, int node);
    void *arg;
    int node; /* SPOOL_NOBODY until the node has registered */
    int64_t incarnation;
    struct own_ask own[ASKS_MAX];
    size_t own_count;
    TAILQ_HEAD(, held) held;
    unsigned held_count;
    uint32_t last_token;
    STAILQ_HEAD(, told_answer) answers; /* answers that asks_next_told has not returned yet */
    struct columns done;                /* rows to delete */
    bool is_looking, is_woken, has_come;
    int64_t look_at;
    char *last_text; /* owned; text that asks_next_told returned last */
};

/* Returns the number of the row of a question: incarnation and token. */
static int64_t row_number(const struct asks *a, uint32_t token)
{
    return (int64_t)((uint64_t)a->incarnation << 32 | token);
}

static struct request *request_new(enum purpose purpose)
{
    struct request *r = mem_new(sizeof *r);

    r->purpose = purpose;
    r->node = SPOOL_NOBODY;
    return r;
}

/* ---- sending --------------------------------------------------------------------------------- */

static struct link_param bytes(struct slice s)
{
    return (struct link_param){.bytes = s.len > 0 ? s.ptr : "", .len = s.len, .is_binary = true};
}

static struct committer_batch *lazy_batch(void)
{
    struct committer_batch *b = committer_batch_new();

    committer_batch_add(b, SQL_LAZY, NULL, 0);
    return b;
}

static void look(struct asks *a, int64_t now)
{
    struct committer_batch *b = committer_batch_new();
    char room[LINK_NUMBER_SIZE];
    struct columns c;
    struct held *h;

    a->is_looking = true;
    a->is_woken = false;
    a->look_at = now + ASKS_LOOK_US;
    columns_init(&c, SQL_FOR_US, "sl");
    TAILQ_FOREACH(h, &a->held, next)
    {
        columns_number(&c, h->node);
        columns_number(&c, h->n);
        columns_row_open(&c);
    }
    columns_flush_with(&c, b, link_number_param(room, a->node));
    columns_fini(&c);
    committer_batch_add(b, SQL_ANSWERED, (struct link_param[]){link_number_param(room, a->node)},
                        1);
    reader_ask(a->reader, b, request_new(LOOK));
}

/* Adds a row of this node to those that the next turn deletes. */
static void delete_row(struct asks *a, int64_t n)
{
    columns_number(&a->done, n);
    columns_row_open(&a->done);
}

static void delete_rows(struct asks *a)
{
    struct committer_batch *b;
    char room[LINK_NUMBER_SIZE];

    if (a->done.rows == 0) {
        return;
    }
    b = lazy_batch();
    columns_flush_with(&a->done, b, link_number_param(room, a->node));
    reader_ask(a->reader, b, request_new(DELETE));
}

int asks_ask(struct asks *a, struct spool *sp, int node, uint32_t token, struct slice question)
{
    struct committer_batch *b;
    char room[3][LINK_NUMBER_SIZE];
    struct request *r;

    if (a->node == SPOOL_NOBODY || !reader_is_up(a->reader) || a->own_count == ASKS_MAX) {
        return spool_fail(sp, -EAGAIN, "other nodes can't be asked: %s",
                          a->own_count == ASKS_MAX             ? "too much is asked at once"
                          : reader_error(a->reader)[0] != '\0' ? reader_error(a->reader)
                                                               : "the database is not connected");
    }
    a->own[a->own_count++] = (struct own_ask){token, node};
    b = lazy_batch();
    committer_batch_add(b, SQL_PUT,
                        (struct link_param[]){link_number_param(room[0], a->node),
                                              link_number_param(room[1], row_number(a, token)),
                                              link_number_param(room[2], node), bytes(question)},
                        4);
    r = request_new(PUT);
    r->node = node;
    reader_ask(a->reader, b, r);
    return 0;
}

/* Returns the index of the question in `own`, or own_count if there is none. */
static size_t find_own(const struct asks *a, uint32_t token)
{
    size_t i = 0;

    while (i < a->own_count && a->own[i].token != token) {
        i++;
    }
    return i;
}

void asks_end(struct asks *a, uint32_t token)
{
    size_t i = find_own(a, token);

    if (i == a->own_count) {
        return;
    }
    a->own[i] = a->own[--a->own_count];
    if (reader_is_up(a->reader)) {
        delete_row(a, row_number(a, token));
        a->is_woken = true; /* deletes the row; otherwise the housekeeper does later */
    }
}

void asks_answer(struct asks *a, uint32_t token, struct slice answer)
{
    struct committer_batch *b;
    char room[4][LINK_NUMBER_SIZE];
    struct request *r;
    struct held *h;

    TAILQ_FOREACH(h, &a->held, next)
    {
        if (h->token == token && !h->is_answered) {
            h->is_answered = true;
            b = lazy_batch();
            committer_batch_add(b, SQL_ANSWER,
                                (struct link_param[]){link_number_param(room[0], h->node),
                                                      link_number_param(room[1], h->n),
                                                      bytes(answer),
                                                      link_number_param(room[2], a->node),
                                                      link_number_param(room[3], a->incarnation)},
                                5);
            r = request_new(ANSWER);
            r->node = h->node;
            r->token = token;
            reader_ask(a->reader, b, r);
            return;
        }
    }
}

/* ---- answers --------------------------------------------------------------------------------- */

/* Returns a copy of the bytes; empty if the column is missing, NULL or too long. */
static struct slice take_text(const PGresult *r, int row, int column, size_t max)
{
    size_t len = column < PQnfields(r) ? (size_t)PQgetlength(r, row, column) : 0;

    if (len == 0 || len > max) {
        return (struct slice){0};
    }
    return slice_of(mem_copy(PQgetvalue(r, row, column), len), len);
}

static bool is_held(const struct asks *a, int64_t node, int64_t n)
{
    const struct held *h;

    TAILQ_FOREACH(h, &a->held, next)
    {
        if (h->node == node && h->n == n) {
            return true;
        }
    }
    return false;
}

static void take_questions(struct asks *a, const PGresult *r)
{
    for (int row = 0; row < PQntuples(r) && a->held_count < ASKS_HELD_MAX; row++) {
        int64_t from, n;
        struct held *h;

        if (!answer_number(r, row, 0, &from) || !answer_number(r, row, 1, &n) || from < 0 ||
            from >= SPOOL_NODES_MAX || is_held(a, from, n)) {
            continue;
        }
        h = mem_new(sizeof *h);
        h->token = ++a->last_token;
        h->node = (int)from;
        h->n = n;
        h->text = take_text(r, row, 2, SPOOL_QUESTION_MAX);
        TAILQ_INSERT_TAIL(&a->held, h, next);
        a->held_count++;
        a->has_come = true;
    }
}

static void take_answers(struct asks *a, const PGresult *r)
{
    for (int row = 0; row < PQntuples(r); row++) {
        struct told_answer *t;
        int64_t n;
        size_t i;

        if (!answer_number(r, row, 0, &n) || n >> 32 > a->incarnation) {
            continue; /* a later incarnation exists, and this one has not noticed yet */
        }
        delete_row(a, n);
        i = find_own(a, (uint32_t)n);
        if (i == a->own_count || row_number(a, (uint32_t)n) != n) {
            continue; /* an earlier incarnation asked, or asks_end was called */
        }
        t = mem_new(sizeof *t);
        t->of = a->own[i];
        t->text = take_text(r, row, 2, SPOOL_ANSWER_MAX);
        a->own[i] = a->own[--a->own_count];
        STAILQ_INSERT_TAIL(&a->answers, t, next);
        a->has_come = true;
        a->is_woken = true; /* one query does not return all answers */
    }
}

static void on_answer(void *arg, void *question, unsigned n, const PGresult *result)
{
    const struct request *r = question;

    if (r->purpose == LOOK) {
        (n == 0 ? take_questions : take_answers)(arg, result);
    }
}

static void free_held(struct asks *a, struct held *h)
{
    TAILQ_REMOVE(&a->held, h, next);
    a->held_count--;
    mem_free((char *)(uintptr_t)h->text.ptr);
    mem_free(h);
}

/* Frees a question whose answer was stored. */
static void answered(struct asks *a, uint32_t token)
{
    struct held *h;

    TAILQ_FOREACH(h, &a->held, next)
    {
        if (h->token == token) {
            free_held(a, h);
            return;
        }
    }
}

static void on_end(void *arg, void *question, bool is_answered)
{
    struct request *r = question;
    struct asks *a = arg;

    if (r->purpose == LOOK) {
        a->is_looking = false;
    } else if (r->purpose == ANSWER) {
        answered(a, r->token);
    }
    if (is_answered && r->node != SPOOL_NOBODY) {
        a->notify(a->arg, r->node);
    }
    mem_free(r);
}

bool asks_next_told(struct asks *a, struct spool_told *ret)
{
    struct told_answer *t = STAILQ_FIRST(&a->answers);
    struct held *h;

    mem_free(a->last_text);
    a->last_text = NULL;
    if (t != NULL) {
        STAILQ_REMOVE_HEAD(&a->answers, next);
        *ret = (struct spool_told){.token = t->of.token, .node = t->of.node, .text = t->text};
        a->last_text = (char *)(uintptr_t)t->text.ptr;
        mem_free(t);
        return true;
    }
    TAILQ_FOREACH(h, &a->held, next)
    {
        if (!h->is_told) {
            h->is_told = true;
            *ret = (struct spool_told){
                .is_question = true, .token = h->token, .node = h->node, .text = h->text};
            a->last_text = (char *)(uintptr_t)h->text.ptr;
            h->text = (struct slice){0};
            return true;
        }
    }
    return false;
}

/* ---- interface ------------------------------------------------------------------------------- */

struct asks *asks_new(int epoll_fd, const struct link_target *target,
                      void (*notify)(void *arg, int node), void *arg)
{
    static const struct reader_owner owner = {.answer = on_answer, .end = on_end};
    struct asks *a = mem_new(sizeof *a);

    a->notify = notify;
    a->arg = arg;
    a->node = SPOOL_NOBODY;
    TAILQ_INIT(&a->held);
    STAILQ_INIT(&a->answers);
    columns_init(&a->done, SQL_DELETE, "l");
    a->reader = reader_new(epoll_fd, target, &owner, a);
    return a;
}

void asks_free(struct asks *a)
{
    struct told_answer *t;
    struct held *h;

    if (a == NULL) {
        return;
    }
    reader_free(a->reader);
    while ((h = TAILQ_FIRST(&a->held)) != NULL) {
        free_held(a, h);
    }
    while ((t = STAILQ_FIRST(&a->answers)) != NULL) {
        STAILQ_REMOVE_HEAD(&a->answers, next);
        mem_free((char *)(uintptr_t)t->text.ptr);
        mem_free(t);
    }
    columns_fini(&a->done);
    mem_free(a->last_text);
    mem_free(a);
}

/* Begins a new incarnation and forgets the questions of the previous one. */
static void enter(struct asks *a, int node, int64_t incarnation)
{
    a->own_count = 0;
    a->node = node;
    a->incarnation = incarnation;
    a->is_woken = true;
}

void asks_turn(struct asks *a, int node, int64_t incarnation, int64_t now)
{
    reader_turn(a->reader);
    if (node != a->node || incarnation != a->incarnation) {
        enter(a, node, incarnation);
    }
    if (a->node == SPOOL_NOBODY) {
        return;
    }
    if (!a->is_looking && reader_is_up(a->reader) && (a->is_woken || now >= a->look_at)) {
        delete_rows(a);
        look(a, now);
    }
}

void asks_woken(struct asks *a)
{
    a->is_woken = true;
}

bool asks_has_come(struct asks *a)
{
    bool has_come = a->has_come;

    a->has_come = false;
    return has_come;
}
