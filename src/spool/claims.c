#include "claims.h"

#include "check.h"
#include "mem.h"

struct early {
    struct claim_place place;
    struct heap_node node;
};

static const struct claim_place start = {INT64_MIN, 0};

bool claim_place_before(struct claim_place a, struct claim_place b)
{
    return a.due != b.due ? a.due < b.due : a.id < b.id;
}

static bool early_before(const struct heap_node *a, const struct heap_node *b)
{
    return claim_place_before(CONTAINER_OF(a, const struct early, node)->place,
                              CONTAINER_OF(b, const struct early, node)->place);
}

static bool id_before(const struct heap_node *a, const struct heap_node *b)
{
    return CONTAINER_OF(a, const struct claim, by_id)->id <
           CONTAINER_OF(b, const struct claim, by_id)->id;
}

static bool known(struct claim_facts facts)
{
    return facts.claimed || facts.unlisted;
}

void claims_init(struct claims *c)
{
    *c = (struct claims){.all = NULL};
    heap_init(&c->unlisted, id_before);
    for (unsigned i = 0; i < CLAIM_ORDERS; i++) {
        c->orders[i].cursor = start;
        heap_init(&c->orders[i].early, early_before);
    }
}

static struct early *first_early(const struct claims *c, unsigned order)
{
    struct heap_node *node = heap_top(&c->orders[order].early);

    return node == NULL ? NULL : CONTAINER_OF(node, struct early, node);
}

static void clear_early(struct claims *c)
{
    for (unsigned i = 0; i < CLAIM_ORDERS; i++) {
        while (first_early(c, i) != NULL) {
            claims_drop_early(c, i);
        }
    }
}

static void forget(struct claims *c, struct claim *claim)
{
    if (heap_has(&claim->by_id)) {
        heap_remove(&c->unlisted, &claim->by_id);
    }
    HASH_DEL(c->all, claim);
    mem_free(claim);
}

void claims_fini(struct claims *c)
{
    struct claim *claim, *next;

    HASH_ITER(hh, c->all, claim, next)
    {
        forget(c, claim);
    }
    clear_early(c);
    heap_fini(&c->unlisted);
    for (unsigned i = 0; i < CLAIM_ORDERS; i++) {
        heap_fini(&c->orders[i].early);
    }
    mem_free(c->log);
}

static struct claim *find(const struct claims *c, uint64_t id)
{
    struct claim *claim;

    HASH_FIND(hh, c->all, &id, sizeof id, claim);
    return claim;
}

struct claim_facts claims_get(const struct claims *c, uint64_t id)
{
    const struct claim *claim = find(c, id);

    return claim == NULL ? (struct claim_facts){.claimed = false} : claim->facts;
}

size_t claims_walk(const struct claims *c, uint64_t *cursor, size_t max, struct msg_id *ret_ids)
{
    size_t count = 0;

    /* The table has fewer elements than buckets, or not many more. Elements beyond `max` are
     * omitted. */
    for (size_t looked = 0; looked <= max / 4 && (looked == 0 || *cursor != 0); looked++) {
        struct UT_hash_handle *hh = hash_bucket(c->all != NULL ? &c->all->hh : NULL, cursor);

        for (; hh != NULL && count < max; hh = hh->hh_next) {
            const struct claim *claim = CONTAINER_OF(hh, const struct claim, hh);

            if (claim->facts.claimed) {
                ret_ids[count++].n = claim->id;
            }
        }
    }
    return count;
}

size_t claims_in_passage(const struct claims *c, uint32_t file, size_t max, struct msg_id *ret_ids)
{
    size_t count = 0;

    for (size_t i = 0; i < c->unlisted.count && count < max; i++) {
        const struct claim *claim = CONTAINER_OF(c->unlisted.nodes[i], const struct claim, by_id);
        uint32_t its = claim->facts.passage.file;

        if (its != 0 && (file == 0 || its == file)) {
            ret_ids[count++].n = claim->id;
        }
    }
    return count;
}

static void log_before(struct claims *c, uint64_t id, struct claim_facts before)
{
    if (c->log_count == c->log_size) {
        c->log_size = c->log_size == 0 ? 256 : c->log_size * 2;
        c->log = mem_resize(c->log, c->log_size, sizeof c->log[0]);
    }
    c->log[c->log_count++] = (struct claim_undo){id, before};
}

/* All changes of claims go through this function. */
static void apply(struct claims *c, uint64_t id, struct claim *claim, struct claim_facts facts)
{
    if (!known(facts)) {
        if (claim != NULL) {
            forget(c, claim);
        }
        return;
    }
    if (claim == NULL) {
        claim = mem_new(sizeof *claim);
        claim->id = id;
        heap_node_init(&claim->by_id);
        HASH_ADD(hh, c->all, id, sizeof id, claim);
    }
    if (facts.unlisted && !heap_has(&claim->by_id)) {
        heap_add(&c->unlisted, &claim->by_id);
    } else if (!facts.unlisted && heap_has(&claim->by_id)) {
        heap_remove(&c->unlisted, &claim->by_id);
    }
    claim->facts = facts;
}

void claims_set(struct claims *c, uint64_t id, struct claim_facts facts)
{
    struct claim *claim = find(c, id);

    if (c->logging) {
        log_before(c, id, claim == NULL ? (struct claim_facts){.claimed = false} : claim->facts);
    }
    apply(c, id, claim, facts);
}

uint64_t claims_unlisted_from(const struct claims *c, uint64_t none)
{
    struct heap_node *node = heap_top(&c->unlisted);

    return node == NULL ? none : CONTAINER_OF(node, struct claim, by_id)->id;
}

void claims_begin(struct claims *c)
{
    CHECK(!c->logging);
    c->logging = true;
}

void claims_commit(struct claims *c)
{
    CHECK(c->logging);
    c->logging = false;
    c->log_count = 0;
}

static void push_early(struct claims *c, unsigned order, struct claim_place place)
{
    struct early *early = mem_new(sizeof *early);

    early->place = place;
    heap_node_init(&early->node);
    heap_add(&c->orders[order].early, &early->node);
}

/* Unlisted rows are not in the index that the cursor walks, so the unclaimed ones must be in the
 * heap. They are few, see SQLITE_UNLISTED_SPAN. */
void claims_restart(struct claims *c)
{
    clear_early(c);
    for (unsigned i = 0; i < CLAIM_ORDERS; i++) {
        c->orders[i].cursor = start;
    }
    for (size_t i = 0; i < c->unlisted.count; i++) {
        const struct claim *claim = CONTAINER_OF(c->unlisted.nodes[i], const struct claim, by_id);

        if (!claim->facts.claimed) {
            push_early(c, CLAIM_INCOMING, (struct claim_place){claim->facts.due, claim->id});
        }
    }
}

void claims_undo(struct claims *c)
{
    CHECK(c->logging);
    c->logging = false;
    while (c->log_count > 0) {
        const struct claim_undo *undo = &c->log[--c->log_count];

        apply(c, undo->id, find(c, undo->id), undo->before);
    }
    /* Rows may have returned to places that the cursor has passed. The heap may also lack entries
     * that were dropped because of changes that are now undone. */
    claims_restart(c);
}

void claims_add_due(struct claims *c, unsigned order, int64_t due, uint64_t id)
{
    struct claim_place place = {due, id};
    bool listed = !claims_get(c, id).unlisted;

    if (listed && claim_place_before(c->orders[order].cursor, place)) {
        return; /* the walk will reach it */
    }
    push_early(c, order, place);
    if (c->orders[order].early.count > EARLY_MAX + 2 * c->unlisted.count) {
        claims_restart(c);
    }
}

bool claims_early(const struct claims *c, unsigned order, struct claim_place *ret_place)
{
    const struct early *early = first_early(c, order);

    if (early != NULL) {
        *ret_place = early->place;
    }
    return early != NULL;
}

void claims_drop_early(struct claims *c, unsigned order)
{
    struct early *early = first_early(c, order);

    CHECK(early != NULL);
    heap_remove(&c->orders[order].early, &early->node);
    mem_free(early);
}

void claims_advance(struct claims *c, unsigned order, struct claim_place place)
{
    CHECK(claim_place_before(c->orders[order].cursor, place));
    c->orders[order].cursor = place;
}
