#include "loader_private.h"

#include <stdlib.h>

#include "answers.h"
#include "columns.h"
#include "mem.h"

/* Number of places in a query: all places without a known due time with few rows each, or few
 * places with more rows. */
#define PLACES_MAX   (FINDER_ORDERS * PARTITIONS)
#define PLACES_FEW   16
#define HEADS_OF_FEW 65
#define KEY_PAGE     64

/* ---- due mail -------------------------------------------------------------------------------- */

/* $5: number of rows for each place. Rows with invalid ids, which no node has written, are
 * skipped. */
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

    q->due.places = mem_array(PLACES_MAX, sizeof(struct finder_place *));
    q->due.place_count =
        finder_ask(l->finder, l->now, next == INT64_MIN ? PLACES_MAX : PLACES_FEW, q->due.places);
    q->due.limit = q->due.place_count > PLACES_FEW ? 2 : HEADS_OF_FEW;
    columns_init(&c, SQL_HEADS, "ssll");
    for (size_t i = 0; i < q->due.place_count; i++) {
        const struct finder_place *place = q->due.places[i];

        columns_number(&c, place->p);
        columns_number(&c, place->order == FINDER_INCOMING ? SPOOL_INCOMING : SPOOL_DEFERRED);
        columns_number(&c, place->due);
        columns_number(&c, (int64_t)place->id);
        columns_row_open(&c);
    }
    if (q->due.place_count == 0) {
        columns_fini(&c);
        committer_batch_free(b);
        loader_question_free(q);
        return;
    }
    l->is_heading = true;
    loader_add_columns(b, &c, q->due.limit);
    reader_ask(l->reader, b, q);
}

void loader_heads_answer(struct question *q, const PGresult *r)
{
    q->head_count = 0;
    for (int row = 0; row < PQntuples(r); row++) {
        int64_t i, due, id;

        if (answer_number(r, row, 0, &i) && answer_number(r, row, 1, &due) &&
            answer_number(r, row, 2, &id) && i >= 1 && (size_t)i <= q->due.place_count && id > 0) {
            loader_add_head(q, (struct head){.place = (uint32_t)i - 1,
                                             .p = q->due.places[i - 1]->p,
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

/* Loads the earliest messages that are due, as far as there is room, and sets the places. */
void loader_heads_ended(struct loader *l, struct question *q)
{
    struct question *take = loader_question_new(ASK_LOAD);
    size_t room = room_of(l);
    uint32_t *counts = mem_array(q->due.place_count, sizeof *counts);
    int64_t *next = mem_array(q->due.place_count, sizeof *next);
    struct head *last = mem_array(q->due.place_count, sizeof *last);

    l->is_heading = false;
    if (q->head_count > 0) {
        qsort(q->heads, q->head_count, sizeof q->heads[0], head_order);
    }
    for (size_t i = 0; i < q->due.place_count; i++) {
        next[i] = FINDER_NONE;
        last[i] = (struct head){.due = q->due.places[i]->due, .id = q->due.places[i]->id};
    }
    for (size_t i = 0; i < q->head_count; i++) {
        const struct head *h = &q->heads[i];

        counts[h->place]++;
        if (next[h->place] != FINDER_NONE) {
            continue; /* an earlier one is not taken */
        }
        if ((h->due > l->now && q->due.places[h->place]->order != FINDER_INCOMING) ||
            take->head_count >= room) {
            next[h->place] = h->due;
            continue;
        }
        if (!desk_has(l->desk, h->id)) {
            loader_add_head(take, *h);
            l->missed += desk_any(l->desk, h->id) == NULL && h->due < l->now - LOADER_MISSED_US &&
                         finder_was_past(l->finder, q->due.places[h->place], h->due, h->id);
        }
        last[h->place] = *h;
    }
    for (size_t i = 0; i < q->due.place_count; i++) {
        if (next[i] == FINDER_NONE && counts[i] == q->due.limit) {
            next[i] = last[i].due; /* more rows may follow */
        }
        finder_answer(l->finder, q->due.places[i], last[i].due, last[i].id, next[i]);
    }
    mem_free(last);
    mem_free(next);
    mem_free(counts);
    take->load.where = ROW_WAITING;
    (void)loader_load_new(l, take, DESK_READY);
    l->has_come = true; /* the next due time has changed */
}

/* ---- the walk through the fresh tables ------------------------------------------------------- */

#define SQL_WALK(k)                                                                                \
    "SELECT p, id FROM fresh_" k " WHERE (p, id) > ($1::smallint, $2::bigint) AND id > 0 AND "     \
    "p < 256 ORDER BY p, id LIMIT $3::bigint"

/* Requests a page of the table after (p, id). Takes the question. */
static void ask_page(struct loader *l, struct question *q, unsigned table, uint16_t p, uint64_t id)
{
    static const char *const sql[DESK_FRESH_TABLES] = {SQL_WALK("0"), SQL_WALK("1"), SQL_WALK("2")};
    struct committer_batch *b = committer_batch_new();
    char room[3][LINK_NUMBER_SIZE];

    committer_batch_add(b, sql[table],
                        (struct link_param[]){link_number_param(room[0], p),
                                              link_number_param(room[1], (int64_t)id),
                                              link_number_param(room[2], q->page)},
                        3);
    reader_ask(l->reader, b, q);
}

static void ask_walk(struct loader *l)
{
    struct question *q = loader_question_new(ASK_WALK);

    q->page = (uint32_t)room_of(l);
    l->is_heading = true;
    ask_page(l, q, l->finder->walk_table, l->finder->walk_p, l->finder->walk_id);
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

void loader_walk_ended(struct loader *l, struct question *q)
{
    struct finder *f = l->finder;
    const struct loading how = {.where = ROW_FRESH + f->walk_table};

    l->is_heading = false;
    if (q->head_count > 0) {
        f->walk_p = q->heads[q->head_count - 1].p;
        f->walk_id = q->heads[q->head_count - 1].id;
    }
    if (q->head_count < q->page) {
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
    loader_question_load(q, how);
    (void)loader_load_new(l, q, DESK_READY);
    l->has_come = true;
}

/* ---- mail that has long been in passage ------------------------------------------------------ */

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
            return false; /* the next call begins again */
        }
    }
    q = loader_question_new(ASK_PASSING);
    q->page = LOADER_HIGH;
    l->passing_is_asked = true;
    ask_page(l, q, table, l->passing_p, l->passing_id);
    return true;
}

bool loader_is_bringing_passing(const struct loader *l)
{
    return l->passing_is_asked;
}

void loader_passing_ended(struct loader *l, struct question *q)
{
    l->passing_ended = q->head_count < q->page;
    if (q->head_count > 0) {
        l->passing_p = q->heads[q->head_count - 1].p;
        l->passing_id = q->heads[q->head_count - 1].id;
    }
    only_mine(l, q);
    loader_question_load(q,
                         (struct loading){.where = ROW_FRESH + l->passing_table, .to_move = true});
    l->passing_is_asked = loader_load_new(l, q, DESK_LOOKED);
    l->has_come = true;
}

/* ---- parked mail ----------------------------------------------------------------------------- */

static void ask_key(struct loader *l)
{
    struct committer_batch *b = committer_batch_new();
    struct question *q = loader_question_new(ASK_KEY);
    struct columns c;

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
            return true; /* one key at a time */
        }
        mem_free(l->key);
        l->key = mem_copy(key.ptr, key.len);
        l->key_len = key.len;
        l->key_after = 0;
        l->key_found = l->key_ended = false;
    }
    if (l->key_ended) {
        l->key_ended = false; /* the next call begins again */
        return false;
    }
    if (!l->key_is_asked) {
        ask_key(l);
    }
    return true;
}

void loader_look_at_key_again(struct loader *l)
{
    l->key_ended = false;
}

void loader_key_ended(struct loader *l, struct question *q)
{
    size_t count = q->head_count;

    l->key_is_asked = false;
    l->key_after = count > 0 ? q->heads[count - 1].id : 0;
    only_mine(l, q);
    loader_question_load(q, (struct loading){.where = ROW_WAITING});
    if (loader_load_new(l, q, DESK_READY)) {
        l->key_found = true;
        return; /* has_come is set when they are loaded */
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

/* ---- reading ahead --------------------------------------------------------------------------- */

/* Loads early mail first, then continues the walk, then queries the places. */
void loader_go_on(struct loader *l)
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
    q->load.only_due = waiting->load.only_due = true; /* due times of arrivals are unknown */
    q->load.where = ROW_FRESH + l->desk->fresh_now;   /* the most probable table */
    while (q->head_count + waiting->head_count < room &&
           finder_take_early(l->finder, l->now, &early.p, &early.id, &passes)) {
        const struct desk_message *msg = desk_any(l->desk, early.id);

        loader_add_head(msg != NULL && msg->is_loading ? later : passes ? q : waiting, early);
    }
    for (size_t i = 0; i < later->head_count; i++) {
        /* The message is being read, perhaps at its previous place. */
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
