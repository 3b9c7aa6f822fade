#include "loader_private.h"

#include <stdio.h>
#include <unistd.h>

#include "answers.h"
#include "boot_clock.h"
#include "check.h"
#include "columns.h"
#include "mem.h"

struct question *loader_question_new(enum ask ask)
{
    struct question *q = mem_new(sizeof *q);

    q->ask = ask;
    if (ask == ASK_CONTENT) {
        q->content.fd = -1;
    }
    return q;
}

void loader_question_load(struct question *q, struct loading how)
{
    /* Questions of these kinds own only heads. */
    CHECK(q->ask == ASK_WALK || q->ask == ASK_PASSING || q->ask == ASK_KEY);
    q->ask = ASK_LOAD;
    q->load = how;
}

void loader_question_free(struct question *q)
{
    if (q == NULL) {
        return;
    }
    mem_free(q->heads);
    switch (q->ask) {
    case ASK_HEADS:
        mem_free(q->due.places);
        break;
    case ASK_LOAD:
    case ASK_OTHERS:
        loader_question_free(q->load.parts);
        break;
    case ASK_PARTS:
        loader_question_free(q->parts.before);
        break;
    case ASK_CONTENT:
        if (q->content.fd >= 0) {
            (void)close(q->content.fd);
        }
        mem_free(q->content.bytes);
        break;
    case ASK_COUNT:
    case ASK_WALK:
    case ASK_PASSING:
    case ASK_KEY:
    case ASK_LOCATE:
    case ASK_TOLD:
    case ASK_ARRIVALS:
    case ASK_NOTHING:
        break;
    }
    mem_free(q);
}

void loader_add_head(struct question *q, struct head head)
{
    if (q->head_count == q->head_size) {
        q->head_size = q->head_size == 0 ? 64 : 2 * q->head_size;
        q->heads = mem_resize(q->heads, q->head_size, sizeof q->heads[0]);
    }
    q->heads[q->head_count++] = head;
}

/* ---- columns of parameters ------------------------------------------------------------------- */

void loader_add_columns(struct committer_batch *b, struct columns *c, int64_t more)
{
    char room[LINK_NUMBER_SIZE];

    columns_flush_with(c, b, link_number_param(room, more));
    columns_fini(c);
}

void loader_head_columns(struct columns *c, const struct question *q, const char *sql)
{
    columns_init(c, sql, "sl");
    for (size_t i = 0; i < q->head_count; i++) {
        columns_number(c, q->heads[i].p);
        columns_number(c, (int64_t)q->heads[i].id);
        columns_row_open(c);
    }
}

void loader_ask_by_key(struct loader *l, struct question *q, const char *sql)
{
    struct committer_batch *b = committer_batch_new();
    struct columns c;

    loader_head_columns(&c, q, sql);
    columns_flush(&c, b);
    columns_fini(&c);
    reader_ask(l->reader, b, q);
}

/* Makes heads of rows that begin with partition and id. */
static void ids_answer(struct question *q, const PGresult *r)
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

/* ---- counts ---------------------------------------------------------------------------------- */

#define COUNT_FRESH(k)                                                                             \
    " UNION ALL SELECT 0, 1, '', count(*), coalesce(sum(size), 0)::bigint, p FROM fresh_" k        \
    " WHERE p = ANY($1::smallint[]) GROUP BY p"

/* $2 is unused. */
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

    if (q->count.is_answered) {
        return; /* it was read twice */
    }
    q->count.is_answered = true;
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

/* ---- report parts with new results ----------------------------------------------------------- */

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

/* ---- arrivals -------------------------------------------------------------------------------- */

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
        finder_put_fresh(l->finder, a->p, a->id);
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
        q->arrivals.no = no;
        q->arrivals.incarnation = incarnation;
        reader_ask(l->reader, b, q);
    }
}

static void arrivals_ended_here(struct loader *l, const struct question *q)
{
    if (arrivals_ended(l->arrivals, q->arrivals.rows)) {
        loader_look_for_arrivals(l, q->arrivals.no, q->arrivals.incarnation, l->arrivals->read_at);
    }
}

void loader_let_go(struct loader *l)
{
    l->lives++;
}

/* ---- interface ------------------------------------------------------------------------------- */

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
        ids_answer(q, r);
        return;
    case ASK_LOCATE:
        loader_locate_answer(q, r);
        return;
    case ASK_ARRIVALS:
        q->arrivals.rows = (unsigned)PQntuples(r);
        arrivals_answer(l->arrivals, r, arrived, l);
        return;
    case ASK_OTHERS:
        if (q->load.life == l->lives) {
            answers_others(l->desk, r);
        }
        return;
    case ASK_TOLD:
        told_answer(l, r);
        return;
    case ASK_LOAD:
        if (q->load.life != l->lives) {
            return;
        }
        loader_load_answer(l, q, n, r);
        return;
    case ASK_NOTHING:
        return;
    case ASK_CONTENT:
        loader_content_answer(q, n, r);
        return;
    }
}

/* Checks column types. Statements of ASK_LOAD are those of load_sql. */
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
        n += q->load.where == ROW_WAITING;
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
        break; /* invalid rows are skipped and read again later */
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
        l->has_come = true;
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
        (q->load.life == l->lives ? loader_loaded : loader_load_again)(l, q);
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

void loader_set_lists(struct loader *l, const struct cluster_search *lists)
{
    l->lists = lists;
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

const struct reader *loader_reader(const struct loader *l)
{
    return l->reader;
}
