#include "finder.h"

#include "check.h"
#include "mem.h"

static bool place_before(const struct heap_node *a, const struct heap_node *b)
{
    const struct finder_place *x = CONTAINER_OF(a, const struct finder_place, node);
    const struct finder_place *y = CONTAINER_OF(b, const struct finder_place, node);

    return x->next != y->next ? x->next < y->next
           : x->p != y->p     ? x->p < y->p
                              : x->order < y->order;
}

static bool early_before(const struct heap_node *a, const struct heap_node *b)
{
    const struct finder_early *x = CONTAINER_OF(a, const struct finder_early, node);
    const struct finder_early *y = CONTAINER_OF(b, const struct finder_early, node);

    return x->due != y->due ? x->due < y->due : x->id < y->id;
}

static struct finder_early *first_early(const struct finder *f)
{
    struct heap_node *top = heap_top(&f->early);

    return top == NULL ? NULL : CONTAINER_OF(top, struct finder_early, node);
}

static struct finder_place *first_place(const struct finder *f)
{
    struct heap_node *top = heap_top(&f->by_next);

    return top == NULL ? NULL : CONTAINER_OF(top, struct finder_place, node);
}

void finder_init(struct finder *f)
{
    *f = (struct finder){.walks = false};
    heap_init(&f->by_next, place_before);
    heap_init(&f->early, early_before);
    for (unsigned order = 0; order < FINDER_ORDERS; order++) {
        for (unsigned p = 0; p < PARTITIONS; p++) {
            struct finder_place *place = &f->places[order][p];

            heap_node_init(&place->node);
            place->p = (uint16_t)p;
            place->order = order;
            place->swept_due = INT64_MIN;
        }
    }
}

void finder_fini(struct finder *f)
{
    struct finder_early *e;

    while ((e = first_early(f)) != NULL) {
        heap_remove(&f->early, &e->node);
        mem_free(e);
    }
    heap_fini(&f->early);
    heap_fini(&f->by_next);
}

/* Sets `next`. While a query is in flight this has no effect, as its answer sets `next`. */
static void set_next(struct finder *f, struct finder_place *place, int64_t next)
{
    if (heap_has(&place->node)) {
        heap_remove(&f->by_next, &place->node);
    }
    place->next = place->order == FINDER_INCOMING && next != FINDER_NONE && next > 0 ? 0 : next;
    if (!place->asked && next != FINDER_NONE && f->is_mine[place->p]) {
        heap_add(&f->by_next, &place->node);
    }
}

static void start_over(struct finder *f, struct finder_place *place)
{
    place->due = INT64_MIN;
    place->id = 0;
    place->again = place->asked;
    set_next(f, place, INT64_MIN);
}

static void walk_again(struct finder *f)
{
    f->walks = true;
    f->walk_table = 0;
    f->walk_p = 0;
    f->walk_id = 0;
}

void finder_own(struct finder *f, uint16_t p, bool is_mine)
{
    f->is_mine[p] = is_mine;
    for (unsigned order = 0; order < FINDER_ORDERS; order++) {
        start_over(f, &f->places[order][p]);
        f->places[order][p].swept_due = INT64_MIN;
    }
    if (is_mine) {
        f->walk_is_sweep = false;
        walk_again(f);
    }
}

bool finder_was_past(const struct finder *f, const struct finder_place *place, int64_t due,
                     uint64_t id)
{
    return f->sweep_is_sure &&
           (due != place->swept_due ? due < place->swept_due : id <= place->swept_id);
}

void finder_sweep(struct finder *f)
{
    f->sweep_is_sure = f->early.count == 0;
    f->walk_is_sweep = !f->walks;
    for (unsigned order = 0; order < FINDER_ORDERS; order++) {
        for (unsigned p = 0; p < PARTITIONS; p++) {
            struct finder_place *place = &f->places[order][p];

            place->swept_due = place->due;
            place->swept_id = place->id;
            start_over(f, place);
        }
    }
    walk_again(f);
}

static bool put_early(struct finder *f, uint16_t p, int64_t due, uint64_t id, bool passes)
{
    struct finder_early *e;

    if (f->early.count == FINDER_EARLY_MAX) {
        return false;
    }
    e = mem_new(sizeof *e);
    e->p = p;
    e->due = due;
    e->id = id;
    e->passes = passes;
    heap_node_init(&e->node);
    heap_add(&f->early, &e->node);
    return true;
}

void finder_put(struct finder *f, enum finder_order order, uint16_t p, int64_t due, uint64_t id)
{
    struct finder_place *place = &f->places[order][p];
    bool is_behind = due != place->due ? due > place->due : id > place->id;

    if (!f->is_mine[p]) {
        return; /* the owner has its place */
    }
    if (is_behind && !place->asked) {
        if (due < place->next || (place->order == FINDER_INCOMING && place->next > 0)) {
            set_next(f, place, due);
        }
    } else if (!put_early(f, p, order == FINDER_INCOMING ? 0 : due, id, false) && !is_behind) {
        /* Rows in between are read again. Mail after a place with a query in flight was stored
         * before the query, which finds it; if not, a sweep does. */
        place->due = due;
        place->id = id - 1;
        set_next(f, place, due);
    }
}

void finder_put_early(struct finder *f, uint16_t p, int64_t due, uint64_t id)
{
    if (f->is_mine[p]) {
        (void)put_early(f, p, due, id, false); /* if the heap is full, a sweep finds it */
    }
}

void finder_put_fresh(struct finder *f, uint16_t p, uint64_t id)
{
    if (f->is_mine[p] && !put_early(f, p, 0, id, true)) {
        walk_again(f);
    }
}

int64_t finder_next(const struct finder *f)
{
    const struct finder_early *e = first_early(f);
    const struct finder_place *place = first_place(f);
    int64_t next = place != NULL ? place->next : FINDER_NONE;

    if (f->walks) {
        return INT64_MIN;
    }
    return e != NULL && e->due < next ? e->due : next;
}

bool finder_take_early(struct finder *f, int64_t now, uint16_t *ret_p, uint64_t *ret_id,
                       bool *ret_passes)
{
    struct finder_early *e;
    bool is_mine = false;

    while (!is_mine && (e = first_early(f)) != NULL && e->due <= now) {
        *ret_p = e->p;
        *ret_id = e->id;
        *ret_passes = e->passes;
        is_mine = f->is_mine[e->p]; /* otherwise its partition was let go */
        heap_remove(&f->early, &e->node);
        mem_free(e);
    }
    return is_mine;
}

size_t finder_ask(struct finder *f, int64_t now, size_t max, struct finder_place **ret_places)
{
    struct finder_place *place;
    size_t count = 0;

    while (count < max && (place = first_place(f)) != NULL && place->next <= now) {
        heap_remove(&f->by_next, &place->node);
        place->asked = true;
        ret_places[count++] = place;
    }
    return count;
}

void finder_answer(struct finder *f, struct finder_place *place, int64_t due, uint64_t id,
                   int64_t next)
{
    CHECK(place->asked);
    place->asked = false;
    if (place->again) {
        place->again = false;
        set_next(f, place, INT64_MIN);
        return;
    }
    if (place->due == INT64_MIN || due != place->due ? due > place->due : id >= place->id) {
        place->due = due;
        place->id = id;
    }
    set_next(f, place, next);
}
