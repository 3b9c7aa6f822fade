#include "committer.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/queue.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "check.h"
#include "mem.h"

/* Statements around each batch; prepared. */
static const char sql_begin[] = "BEGIN";
static const char sql_commit[] = "COMMIT";
/* The marker. The incarnation must be in force and stay in force until the commit, so FOR SHARE
 * keeps take-overs from changing the fence's row. Otherwise division by zero (22012) fails the
 * transaction. */
static const char sql_fenced_marker[] =
    "INSERT INTO batch SELECT $1, $2 / count(*) FROM (SELECT 1 FROM fence WHERE no = $1 AND "
    "incarnation = $3 FOR SHARE) f";
/* The marker for a transaction that has locked the fence's row. It is not inserted if the server
 * lacks the committed batch $3. */
static const char sql_marker[] =
    "INSERT INTO batch (node, n) SELECT $1::smallint, $2::bigint WHERE $3::bigint = 0 OR EXISTS "
    "(SELECT FROM batch WHERE node = $1::smallint AND n >= $3::bigint)";

static const char words_stale[] =
    "another node has taken over: this incarnation is no longer in force";

#define SQL_WAIT "SELECT incarnation FROM fence WHERE no = $1 FOR UPDATE"
/* Returns markers from number $2 on, and a row if the server has a marker of $3 or later; older
 * ones are deleted. (A batch that is sent again after a look has a lower number than the look's
 * marker, so the loss of that batch alone would not be noticed.) */
#define SQL_LOOK                                                                                   \
    "(SELECT n, 0::bigint FROM batch WHERE node = $1 AND n >= $2 ORDER BY n LIMIT 2) UNION ALL "   \
    "SELECT max(n), 1::bigint FROM batch WHERE node = $1 AND n >= $3 HAVING max(n) IS NOT NULL"

/* Index of the marker's answer, after that of BEGIN. */
#define MARKER_ANSWER 2

/* Numbers of batches grow over all incarnations of a node, on any machine. Each incarnation has
 * this many numbers, also in SQL_NEW_FENCE. */
#define NUMBERS_OF_A_LIFE (INT64_C(1) << 36)
/* Numbers skipped if the database has a number that was not given yet, inserted by hand. */
#define NUMBERS_PASSED_OVER (1 << 20)

struct committer_statement {
    STAILQ_ENTRY(committer_statement) next;
    const char *sql;
    int count;
    struct link_param *params; /* owned; they point into `block` */
    char *block;               /* owned; NULL if each parameter is owned */
};

struct committer_batch {
    STAILQ_ENTRY(committer_batch) next;
    STAILQ_HEAD(, committer_statement) statements;
    int64_t number;
    unsigned tries;
    unsigned sends; /* number of times it was sent; 2 for more */
    enum { BATCH_WAITING, BATCH_SENT, BATCH_ENDED } state;
    int rc;           /* result in state BATCH_ENDED */
    bool committed;   /* whether COMMIT was answered */
    bool refused;     /* whether a statement has failed */
    unsigned answers; /* number of statements that were answered */
    unsigned sent;    /* number of statements that were sent, COMMIT the last */
    char error_state[6];
};

enum committer_state {
    COMMITTER_DOWN,    /* the timer has the time of the next attempt to connect */
    COMMITTER_OPENING, /* connecting, and changing settings */
    COMMITTER_DOUBT,   /* the look: finding out which batches were committed */
    COMMITTER_UP,
    COMMITTER_UNDOING, /* ROLLBACK after a failure */
};

struct committer {
    int epoll_fd;
    struct link *link;
    int timer; /* owned */
    int node;
    int64_t incarnation;
    int64_t last; /* last number of a batch or marker */
    int64_t kept; /* number that was committed last; 0 if unknown */
    enum committer_state state;
    STAILQ_HEAD(, committer_batch) batches;
    unsigned count;
    bool is_held, is_over;
    bool in_force; /* whether the look has found this incarnation in the fence */
    int64_t found[COMMITTER_UNDER_WAY_MAX];
    unsigned found_count;
    bool found_kept;
    int64_t look_marker; /* number of the look's own marker */
    bool look_failed;
    bool has_warned;     /* whether the server warned: a commit did not wait for the standby */
    uint64_t in_the_way; /* message id that committer_in_the_way returns */
    char error[LINK_ERROR_MAX];
};

/* The incarnation comes from the database; the modulus keeps the product in range. */
static int64_t before_first_number(int64_t incarnation)
{
    return incarnation % (INT64_MAX / NUMBERS_OF_A_LIFE) * NUMBERS_OF_A_LIFE;
}

static void set_timer(const struct committer *c, int64_t us)
{
    struct itimerspec at = {.it_value = {.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000}};

    CHECK(timerfd_settime(c->timer, 0, &at, NULL) == 0);
}

static void keep_error(struct committer *c, const char *words)
{
    (void)snprintf(c->error, sizeof c->error, "%s", words); /* cut if too long */
}

/* ---- batches --------------------------------------------------------------------------------- */

struct committer_batch *committer_batch_new(void)
{
    struct committer_batch *b = mem_new(sizeof *b);

    STAILQ_INIT(&b->statements);
    return b;
}

void committer_batch_free(struct committer_batch *b)
{
    struct committer_statement *s;

    if (b == NULL) {
        return;
    }
    while ((s = STAILQ_FIRST(&b->statements)) != NULL) {
        STAILQ_REMOVE_HEAD(&b->statements, next);
        for (int i = 0; s->block == NULL && i < s->count; i++) {
            mem_free((char *)(uintptr_t)s->params[i].bytes);
        }
        mem_free(s->block);
        mem_free(s->params);
        mem_free(s);
    }
    mem_free(b);
}

void committer_batch_add(struct committer_batch *b, const char *sql,
                         const struct link_param *params, int count)
{
    struct committer_statement *s = mem_new(sizeof *s);
    size_t size = 0, at = 0;

    CHECK(count <= LINK_PARAMS_MAX);
    for (int i = 0; i < count; i++) {
        size += params[i].len + 1;
    }
    s->sql = sql;
    s->count = count;
    s->params = mem_array((size_t)count, sizeof *s->params);
    s->block = mem_new(size + 1);
    for (int i = 0; i < count; i++) {
        s->params[i] = params[i];
        if (params[i].bytes != NULL) {
            memcpy(s->block + at, params[i].bytes, params[i].len);
            s->block[at + params[i].len] = '\0';
            s->params[i].bytes = s->block + at;
            at += params[i].len + 1;
        }
    }
    STAILQ_INSERT_TAIL(&b->statements, s, next);
}

void committer_batch_add_taken(struct committer_batch *b, const char *sql,
                               const struct link_param *params, int count)
{
    struct committer_statement *s = mem_new(sizeof *s);

    CHECK(count <= LINK_PARAMS_MAX);
    s->sql = sql;
    s->count = count;
    s->params = mem_array((size_t)count, sizeof *s->params);
    memcpy(s->params, params, (size_t)count * sizeof *s->params);
    STAILQ_INSERT_TAIL(&b->statements, s, next);
}

void committer_batch_join(struct committer_batch *b, struct committer_batch *more)
{
    if (more != NULL) {
        STAILQ_CONCAT(&b->statements, &more->statements);
        committer_batch_free(more);
    }
}

/* ---- sending --------------------------------------------------------------------------------- */

static void send_plain(struct committer *c, const char *sql)
{
    link_send(c->link, sql, NULL, 0);
}

/* Sends a statement whose first parameter is the node's number. */
static void send_numbers(struct committer *c, const char *sql, int64_t a, int64_t b)
{
    char room[3][LINK_NUMBER_SIZE];
    const struct link_param params[] = {link_number_param(room[0], c->node),
                                        link_number_param(room[1], a),
                                        link_number_param(room[2], b)};

    link_send(c->link, sql, params, 3);
}

unsigned committer_batch_send(const struct committer_batch *b, struct link *l)
{
    const struct committer_statement *s;
    unsigned count = 0;

    STAILQ_FOREACH(s, &b->statements, next)
    {
        link_send(l, s->sql, s->params, s->count);
        count++;
    }
    return count;
}

static void send_batch(struct committer *c, struct committer_batch *b)
{
    b->state = BATCH_SENT;
    b->sends += b->sends < 2;
    b->committed = b->refused = false;
    b->answers = 0;
    send_plain(c, sql_begin);
    send_numbers(c, sql_fenced_marker, b->number, c->incarnation);
    b->sent = MARKER_ANSWER + committer_batch_send(b, c->link) + 1;
    send_plain(c, sql_commit);
    link_sync(c->link);
}

static void send_waiting(struct committer *c)
{
    struct committer_batch *b;

    if (c->state != COMMITTER_UP || c->is_held) {
        return;
    }
    STAILQ_FOREACH(b, &c->batches, next)
    {
        if (b->state == BATCH_WAITING) {
            send_batch(c, b);
        }
    }
}

/* ---- failures -------------------------------------------------------------------------------- */

/* Ends `b` with an error, and all after it with -ECANCELED. */
static void fail_from(struct committer_batch *b, int rc)
{
    for (; b != NULL; b = STAILQ_NEXT(b, next)) {
        b->state = BATCH_ENDED;
        b->rc = rc;
        rc = -ECANCELED;
    }
}

static struct committer_batch *first_not_ended(struct committer *c)
{
    struct committer_batch *b;

    STAILQ_FOREACH(b, &c->batches, next)
    {
        if (b->state != BATCH_ENDED) {
            break;
        }
    }
    return b;
}

static int errno_of(const char *state)
{
    return strcmp(state, "22012") == 0                                  ? -ESTALE
           : strcmp(state, "23505") == 0                                ? -EUCLEAN
           : strcmp(state, "53100") == 0 || strcmp(state, "53200") == 0 ? -ENOSPC
                                                                        : -EIO;
}

/* Is the error about tables rather than rows? Prepared statements use the tables as they were when
 * prepared, and may fail for ever after the tables were altered. */
static bool is_of_tables(const char *state)
{
    return strncmp(state, "42", 2) == 0 || strncmp(state, "0A", 2) == 0;
}

/* Handles the failure of the first batch; batches sent after it are in the same failed
 * transaction. */
static void undo(struct committer *c)
{
    struct committer_batch *b = first_not_ended(c);
    bool is_stale;

    CHECK(b != NULL && b->state == BATCH_SENT);
    is_stale = is_of_tables(b->error_state);
    if (link_error_passes(b->error_state) && ++b->tries < COMMITTER_TRIES) {
        for (; b != NULL; b = STAILQ_NEXT(b, next)) {
            b->state = BATCH_WAITING;
        }
    } else {
        fail_from(b, errno_of(b->error_state));
    }
    if (is_stale) {
        link_drop(c->link, c->error);
        return;
    }
    c->state = COMMITTER_UNDOING;
    send_plain(c, "ROLLBACK");
    link_sync(c->link);
}

/* ---- answers --------------------------------------------------------------------------------- */

static bool is_sync(const PGresult *result)
{
    return PQresultStatus(result) == PGRES_PIPELINE_SYNC;
}

static bool is_good(const PGresult *result)
{
    ExecStatusType status = PQresultStatus(result);

    return status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK;
}

/* Returns the oldest batch if it was sent and has not ended, or NULL. */
static struct committer_batch *first_sent(struct committer *c)
{
    struct committer_batch *b = first_not_ended(c);

    return b != NULL && b->state == BATCH_SENT ? b : NULL;
}

/* Returns 123 for "Key (p, id)=(3, 123) already exists.", in any language, or 0. */
static uint64_t id_of_key(const char *detail)
{
    const char *names = strchr(detail, '('), *values = strstr(detail, ")=(");
    uint64_t id = 0;

    if (names == NULL || values == NULL) {
        return 0;
    }
    for (values += 2; names != NULL && values != NULL;
         names = strchr(names + 1, ','), values = strchr(values + 1, ',')) {
        names += names[1] == ' ';
        if (strncmp(names + 1, "id,", 3) == 0 || strncmp(names + 1, "id)", 3) == 0) {
            id = strtoull(values + 1, NULL, 10);
            break;
        }
    }
    return id <= INT64_MAX ? id : 0;
}

static void keep_words(struct committer *c, const PGresult *result)
{
    const char *words = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
    const char *detail = PQresultErrorField(result, PG_DIAG_MESSAGE_DETAIL);

    (void)snprintf(c->error, sizeof c->error, "%s%s%s",
                   words != NULL ? words : "the database refuses it", detail != NULL ? ": " : "",
                   detail != NULL ? detail : ""); /* cut if too long */
    c->in_the_way = detail != NULL ? id_of_key(detail) : 0;
}

static void note_failure(struct committer *c, struct committer_batch *b, const PGresult *result)
{
    const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    const char *words = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);

    if (b->refused || PQresultStatus(result) == PGRES_PIPELINE_ABORTED) {
        return; /* the first error is the reason */
    }
    b->refused = true;
    if (b != first_not_ended(c)) {
        return; /* it was sent into the transaction that has failed */
    }
    (void)snprintf(b->error_state, sizeof b->error_state, "%s", state != NULL ? state : "");
    if (b->answers == MARKER_ANSWER && strcmp(b->error_state, "23505") == 0 && b->sends == 1) {
        c->last += NUMBERS_PASSED_OVER;
        b->error_state[0] = '\0'; /* the next attempt uses a higher number */
        keep_error(c, "the table batch has a number that was not given yet");
        return;
    }
    if (b->answers == MARKER_ANSWER && strcmp(b->error_state, "23505") == 0) {
        link_drop(c->link, "a batch that was sent again is there already");
        return;
    }
    if (strcmp(b->error_state, "25006") == 0) { /* read-only: no longer the primary */
        link_drop(c->link, words != NULL ? words : "the database is read only");
        return;
    }
    if (b->answers == 1 || b->answers == b->sent) {
        /* Its transaction has not begun, or has ended, so the next batch is not affected. */
        b->tries++;
        link_drop(c->link, words != NULL ? words : "the database refuses a transaction");
        return;
    }
    if (strcmp(b->error_state, "22012") == 0) {
        keep_error(c, words_stale);
    } else {
        keep_words(c, result);
    }
}

/* Returns the batch of an answer, or NULL if none was sent. Batches after one that failed are
 * answered, too, before ROLLBACK is sent. */
static struct committer_batch *answered_batch(struct committer *c)
{
    struct committer_batch *b = first_sent(c);

    while (b != NULL && b->refused && b->committed) { /* all its answers were received */
        b = STAILQ_NEXT(b, next);
    }
    return b;
}

static void batch_answer(struct committer *c, const PGresult *result)
{
    struct committer_batch *b = answered_batch(c), *next;

    if (b == NULL) {
        link_drop(c->link, "the database answers what was not asked");
        return;
    }
    if (!is_sync(result)) {
        b->answers++;
        if (is_good(result)) {
            b->committed = strcmp(PQcmdStatus((PGresult *)(uintptr_t)result), "COMMIT") == 0;
            if (c->has_warned) {
                link_drop(c->link, "the database has not committed as it should");
            }
        } else {
            note_failure(c, b, result);
        }
        return;
    }
    next = STAILQ_NEXT(b, next);
    if (b->refused) {
        b->committed = true; /* all its answers were received */
        if (next != NULL && next->state == BATCH_SENT) {
            return;
        }
        undo(c);
    } else if (!b->committed) {
        link_drop(c->link, "the database has answered a commit with something else");
    } else {
        b->state = BATCH_ENDED;
        b->rc = 0;
        c->kept = b->number;
    }
}

static void opened(struct committer *c);

static void take_found(struct committer *c, const PGresult *result, int row)
{
    int64_t n, is_kept;

    if (!link_number(result, row, 0, &n) || !link_number(result, row, 1, &is_kept)) {
        return;
    }
    if (is_kept != 0) {
        c->found_kept = true;
    } else if (c->found_count < COMMITTER_UNDER_WAY_MAX) {
        c->found[c->found_count++] = n;
    }
}

static void doubt_answer(struct committer *c, const PGresult *result)
{
    int64_t incarnation;

    if (!is_sync(result)) {
        if (!is_good(result)) {
            c->look_failed = true;
            if (PQresultStatus(result) != PGRES_PIPELINE_ABORTED) {
                keep_error(c, PQresultErrorMessage(result));
            }
        } else if (PQnfields(result) == 1 && strcmp(PQfname(result, 0), "incarnation") == 0) {
            c->in_force = PQntuples(result) == 1 && link_number(result, 0, 0, &incarnation) &&
                          incarnation == c->incarnation;
        } else if (PQnfields(result) == 2) {
            for (int row = 0; row < PQntuples(result); row++) {
                take_found(c, result, row);
            }
        }
        return;
    }
    opened(c);
}

static void answer(void *arg, struct link *l, const PGresult *result)
{
    struct committer *c = arg;

    (void)l;
    switch (c->state) {
    case COMMITTER_UP:
        batch_answer(c, result);
        return;
    case COMMITTER_DOUBT:
        doubt_answer(c, result);
        return;
    case COMMITTER_UNDOING:
        if (is_sync(result)) {
            c->state = COMMITTER_UP;
            send_waiting(c);
        }
        return;
    case COMMITTER_DOWN:
    case COMMITTER_OPENING:
        break;
    }
    UNREACHABLE("nothing was asked");
}

/* ---- the connection -------------------------------------------------------------------------- */

/* Begins the look. Its marker makes earlier commits durable, and proves that this incarnation is in
 * force. */
static void begin_doubt(struct committer *c)
{
    const struct committer_batch *first = first_not_ended(c);
    char room[2][LINK_NUMBER_SIZE];
    const struct link_param node = link_number_param(room[0], c->node);

    c->state = COMMITTER_DOUBT;
    c->in_force = c->look_failed = c->has_warned = c->found_kept = false;
    c->found_count = 0;
    c->look_marker = ++c->last;
    send_plain(c, sql_begin);
    link_send(c->link, SQL_WAIT, &node, 1);
    send_numbers(c, SQL_LOOK, first != NULL ? first->number : c->look_marker, c->kept);
    send_numbers(c, sql_marker, c->look_marker, c->kept);
    send_plain(c, sql_commit);
    link_sync(c->link);
}

/* Ends the look, whose result is durable. */
static void opened(struct committer *c)
{
    struct committer_batch *b;

    if (c->look_failed || c->has_warned) {
        link_drop(c->link,
                  c->look_failed ? c->error : "the database has not committed as it should");
        return;
    }
    if (c->kept != 0 && !c->found_kept) {
        link_pass_over(c->link, "the server lacks a batch that it, or another, has committed");
        return;
    }
    c->state = COMMITTER_UP;
    c->kept = c->kept == 0 ? c->look_marker : c->kept; /* a look acknowledges no mail */
    set_timer(c, 0);
    STAILQ_FOREACH(b, &c->batches, next)
    {
        bool is_there = false;

        for (unsigned i = 0; i < c->found_count; i++) {
            is_there = is_there || c->found[i] == b->number;
        }
        if (b->state != BATCH_ENDED && is_there) {
            b->state = BATCH_ENDED;
            b->rc = 0;
        } else if (b->state == BATCH_SENT) {
            b->state = BATCH_WAITING;
        }
    }
    b = first_not_ended(c);
    if (b != NULL && b->tries >= COMMITTER_TRIES) {
        fail_from(b, errno_of(b->error_state)); /* its transaction was refused */
    }
    if (!c->in_force) {
        keep_error(c, words_stale);
        fail_from(first_not_ended(c), -ESTALE);
    }
    send_waiting(c);
}

static void changed(void *arg, struct link *l, bool is_up)
{
    struct committer *c = arg;

    if (is_up) {
        begin_doubt(c);
        return;
    }
    keep_error(c, link_error(l));
    c->state = COMMITTER_DOWN;
    set_timer(c, COMMITTER_AGAIN_US);
}

static void notice(void *arg, struct link *l, const char *state, const char *words)
{
    struct committer *c = arg;

    (void)l;
    (void)words;
    c->has_warned = c->has_warned || strncmp(state, "01", 2) == 0; /* such as "committed locally" */
}

/* ---- interface ------------------------------------------------------------------------------- */

static const struct link_owner owner = {.changed = changed, .answer = answer, .notice = notice};

static void prepare(struct committer *c, const char *(*statement)(unsigned n))
{
    static const char *const own[] = {sql_begin, sql_commit, sql_fenced_marker};
    const char *sql;

    link_prepare(c->link, own, sizeof own / sizeof own[0]);
    for (unsigned n = 0; statement != NULL && (sql = statement(n)) != NULL; n++) {
        link_prepare(c->link, &sql, 1);
    }
}

struct committer *committer_new(int epoll_fd, const struct link_target *target, int node,
                                int64_t incarnation, const char *(*statement)(unsigned n))
{
    struct committer *c = mem_new(sizeof *c);
    struct epoll_event e = {.events = EPOLLIN};

    c->epoll_fd = epoll_fd;
    c->node = node;
    c->incarnation = incarnation;
    c->last = before_first_number(incarnation);
    STAILQ_INIT(&c->batches);
    c->timer = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    CHECK(c->timer >= 0 && epoll_ctl(epoll_fd, EPOLL_CTL_ADD, c->timer, &e) == 0);
    c->link = link_new(epoll_fd, target, &owner, c);
    prepare(c, statement);
    c->state = COMMITTER_OPENING;
    link_connect(c->link);
    return c;
}

void committer_free(struct committer *c)
{
    struct committer_batch *b;

    if (c == NULL) {
        return;
    }
    link_free(c->link);
    (void)epoll_ctl(c->epoll_fd, EPOLL_CTL_DEL, c->timer, NULL);
    (void)close(c->timer);
    while ((b = STAILQ_FIRST(&c->batches)) != NULL) {
        STAILQ_REMOVE_HEAD(&c->batches, next);
        committer_batch_free(b);
    }
    mem_free(c);
}

void committer_leave(struct committer *c)
{
    c->is_over = true;
}

/* Fails the batches that were not sent; they were not committed, and will not be. */
static void fail_waiting(struct committer *c)
{
    struct committer_batch *b = first_not_ended(c);

    if (b != NULL && b->state == BATCH_WAITING) {
        keep_error(c, words_stale);
        fail_from(b, -ESTALE);
    }
}

void committer_enter(struct committer *c, int node, int64_t incarnation)
{
    fail_waiting(c);
    CHECK(first_not_ended(c) == NULL);
    c->is_over = false;
    c->kept = node == c->node ? c->kept : 0;
    c->node = node;
    c->incarnation = incarnation;
    c->last = before_first_number(incarnation);
    if (c->state == COMMITTER_DOUBT) {
        link_drop(c->link, "the node has registered again"); /* its look is out of date */
    }
}

int64_t committer_begin(struct committer *c, struct committer_batch *b)
{
    const struct committer_batch *older = STAILQ_FIRST(&c->batches);
    int64_t number = ++c->last;

    CHECK(c->count < COMMITTER_UNDER_WAY_MAX);
    b->number = number;
    b->state = BATCH_WAITING;
    for (; older != NULL; older = STAILQ_NEXT(older, next)) {
        if (older->state == BATCH_ENDED && older->rc != 0) {
            fail_from(b, -ECANCELED); /* committer_end has not returned the failure yet */
        }
    }
    STAILQ_INSERT_TAIL(&c->batches, b, next);
    c->count++;
    send_waiting(c);
    link_flush(c->link);
    return number;
}

int64_t committer_last(const struct committer *c)
{
    return c->last;
}

void committer_hold(struct committer *c, bool is_held)
{
    c->is_held = is_held;
    send_waiting(c);
}

bool committer_end(struct committer *c, int *ret_rc)
{
    struct committer_batch *b = STAILQ_FIRST(&c->batches);

    if (c->is_over) {
        fail_waiting(c);
    }
    if (b == NULL || b->state != BATCH_ENDED) {
        return false;
    }
    *ret_rc = b->rc;
    STAILQ_REMOVE_HEAD(&c->batches, next);
    c->count--;
    committer_batch_free(b);
    return true;
}

const char *committer_error(const struct committer *c)
{
    return c->error;
}

uint64_t committer_in_the_way(const struct committer *c)
{
    return c->in_the_way;
}

void committer_turn(struct committer *c)
{
    uint64_t times;

    link_turn(c->link);
    if (c->state == COMMITTER_DOWN &&
        read(c->timer, &times, sizeof times) == (ssize_t)sizeof times) {
        c->state = COMMITTER_OPENING;
        link_connect(c->link);
    }
    link_flush(c->link); /* send what the answers caused */
}

bool committer_is_up(const struct committer *c)
{
    return c->state == COMMITTER_UP;
}

int64_t committer_kept(const struct committer *c, int *ret_node)
{
    *ret_node = c->node;
    return c->kept;
}

void committer_forget(struct committer *c)
{
    c->kept = 0;
}
