#include "spool_parts.h"

#include <string.h>

#include "check.h"
#include "mem.h"
#include "spool_engine.h"

/* Recipients sorted by partition, within one in their order: sorted in two passes, with 5 bytes for
 * each recipient. */
struct division {
    uint8_t *partitions; /* owned; partition of the i-th recipient */
    uint32_t *order;     /* owned; the recipients' numbers in sorted order */
    uint32_t counts[SPOOL_PARTITIONS_MAX];
    struct spool_share shares[SPOOL_PARTITIONS_MAX];
    size_t share_count;
};

static void division_init(struct division *v, uint32_t rcpts)
{
    memset(v->counts, 0, sizeof v->counts);
    v->partitions = mem_array(rcpts, sizeof *v->partitions);
    v->order = mem_array(rcpts, sizeof *v->order);
    v->share_count = 0;
}

static void division_fini(struct division *v)
{
    mem_free(v->partitions);
    mem_free(v->order);
}

static void division_put(struct division *v, uint32_t i, unsigned partition)
{
    CHECK(partition < SPOOL_PARTITIONS_MAX);
    v->partitions[i] = (uint8_t)partition;
    v->counts[partition]++;
}

/* Sorts after division_put was called for all `rcpts`. The i-th has the number numbers[i]; numbers
 * NULL = i. */
static void division_end(struct division *v, uint32_t rcpts, const uint32_t *numbers)
{
    uint32_t at[SPOOL_PARTITIONS_MAX], next = 0;

    for (unsigned p = 0; p < SPOOL_PARTITIONS_MAX; p++) {
        if (v->counts[p] > 0) {
            v->shares[v->share_count++] = (struct spool_share){
                .partition = p, .rcpts = v->order + next, .count = v->counts[p]};
        }
        at[p] = next;
        next += v->counts[p];
    }
    for (uint32_t i = 0; i < rcpts; i++) {
        v->order[at[v->partitions[i]]++] = numbers != NULL ? numbers[i] : i;
    }
}

struct slice parts_ring(const struct spool *sp, const struct spool_rcpt *r)
{
    const char *name =
        sp->ring_of != NULL ? sp->ring_of(sp->ring_arg, r->transport, r->nexthop) : NULL;

    return name != NULL ? slice_string(name) : slice_of(NULL, 0);
}

unsigned parts_place(const struct spool *sp, const struct spool_rcpt *r, unsigned here)
{
    uint64_t own = spool_route_generation(sp, 0);
    bool stays = r->route_generation == SPOOL_ROUTE_FIXED
                     ? !spool_routes_are_in_force(sp)
                     : spool_route_is_newer(sp, r->route_generation, own);

    return stays || r->transport.len == 0 ? here : sp->engine->parts->partition(sp, r);
}

int parts_submit(struct spool *sp, struct msg_id id, const struct spool_new *n)
{
    struct division *v = mem_new(sizeof *v);
    int err;

    division_init(v, n->rcpt_count);
    for (uint32_t i = 0; i < n->rcpt_count; i++) {
        division_put(v, i, sp->engine->parts->partition(sp, &n->rcpts[i]));
    }
    division_end(v, n->rcpt_count, NULL);
    for (size_t i = 0; v->share_count > 1 && i < v->share_count; i++) {
        v->shares[i].id = sp->engine->next_id(sp);
    }
    err = v->share_count > 1 ? sp->engine->parts->submit(sp, id, n, v->shares, v->share_count)
                             : sp->engine->submit(sp, id, n);
    division_fini(v);
    mem_free(v);
    return err;
}

/* ---- moving ---------------------------------------------------------------------------------- */

#define MOVE_PAGE 256

/* Finds the partitions and numbers of the message's first `max` pending recipients. */
static int find_places(struct spool *sp, struct msg_id id, unsigned here, uint32_t max,
                       struct division *v, uint32_t *numbers, uint32_t *ret_count)
{
    struct spool_rcpt page[MOVE_PAGE];
    uint32_t after = 0, all = 0;
    size_t count = MOVE_PAGE;

    while (count == MOVE_PAGE) {
        int err = sp->engine->read_rcpts(sp, id, after, true, MOVE_PAGE, page, &count);

        if (err != 0) {
            return err;
        }
        for (size_t i = 0; i < count && all < max; i++) {
            division_put(v, all, parts_place(sp, &page[i], here));
            after = numbers[all++] = page[i].n;
        }
    }
    *ret_count = all;
    return 0;
}

/* Assigns ids to the shares. The share that keeps the message's id has the recipients that stay, or
 * all if they go together. A part always has such a share, because its message counts it by its
 * id. */
static void name_shares(struct spool *sp, struct msg_id id, unsigned here, bool is_part,
                        struct division *v)
{
    size_t same = v->share_count == 1 || is_part ? 0 : v->share_count;

    for (size_t i = 0; is_part && i < v->share_count; i++) {
        same = v->shares[i].partition == here ? i : same;
    }
    for (size_t i = 0; i < v->share_count; i++) {
        v->shares[i].id = i == same ? id : sp->engine->next_id(sp);
    }
}

static int move_as(struct spool *sp, const struct spool_message *m, unsigned here,
                   struct spool_relocation *to, uint32_t *ret_moved)
{
    struct division *v = mem_new(sizeof *v);
    uint32_t *numbers = mem_array(m->rcpt_pending, sizeof *numbers), count;
    bool is_part = spool_is_part(m);
    struct msg_id id = m->id;
    int err;

    division_init(v, m->rcpt_pending);
    err = find_places(sp, id, here, m->rcpt_pending, v, numbers, &count);
    if (err == 0 && count > v->counts[here]) {
        division_end(v, count, numbers);
        name_shares(sp, id, here, is_part, v);
        to->shares = v->shares;
        to->count = v->share_count;
        err = sp->engine->parts->move(sp, id, to);
        *ret_moved = err == 0 ? count - v->counts[here] : 0;
    }
    division_fini(v);
    mem_free(numbers);
    mem_free(v);
    return err;
}

int parts_move(struct spool *sp, struct msg_id id, struct wall due, struct wall report_due,
               uint32_t *ret_moved)
{
    struct spool_relocation to = {.due = due, .report_due = report_due};
    struct spool_message m;
    int err = sp->engine->read(sp, id, &m), here = sp->engine->parts->lies_in(sp, id);

    if (err != 0 || here < 0 || m.gathers || m.rcpt_pending == 0 ||
        (m.state != SPOOL_INCOMING && m.state != SPOOL_DEFERRED)) {
        return err;
    }
    return move_as(sp, &m, (unsigned)here, &to, ret_moved);
}
