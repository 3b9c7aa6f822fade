#include "member_world.h"

#include <stdio.h>
#include <string.h>

#include "mem.h"

#define LOCK_US (500 * US_PER_MS)
#define STEP_US (5 * US_PER_MS)
#define WRITE   100 /* besides the types of actions */

enum phase { UNUSED, SENT, RUNNING, ANSWERED };

struct world_tx {
    enum phase phase;
    bool is_awaited;
    int type, node; /* whose it is: index */
    int no;         /* and its number */
    int64_t incarnation;
    struct membership_action action;
    int16_t to[PARTITIONS];
    int64_t epochs[PARTITIONS];
    char name[16];
    int p; /* WRITE */
    int64_t number;
    int step;
    int64_t at; /* when its next step is */
    int64_t waits_since;
    uint64_t fence_s, fence_x, node_x; /* locks, by number */
    struct partition_set lease_x;
    struct partition_set got;
    struct membership_answer answer;
    struct membership_node nodes[MEMBERSHIP_NODES_MAX];
    char names[MEMBERSHIP_NODES_MAX][16];
    struct membership_lease leases[PARTITIONS];
    struct membership_view view;
};

static int64_t some(struct world *w, int64_t us)
{
    return 1 + (int64_t)rng_below(&w->rng, (uint64_t)us);
}

static void violation(struct world *w, const char *what, int node, int p)
{
    if (w->violations++ == 0) {
        (void)snprintf(w->first, sizeof w->first, "%s: node %d, partition %d, at %lld us", what,
                       node, p, (long long)w->now);
    }
}

struct mono world_clock(const struct world *w, int i)
{
    const struct world_node *n = &w->nodes[i];

    return (struct mono){n->offset_us + (int64_t)((double)w->now * n->rate)};
}

static bool has_bit(uint64_t set, int no)
{
    return (set >> no & 1) != 0;
}

/* ---- locks ----------------------------------------------------------------------------------- */

static bool lock_fence(struct world *w, struct world_tx *t, int no, bool exclusive)
{
    for (int i = 0; i < WORLD_TX; i++) {
        const struct world_tx *x = &w->tx[i];

        if (x != t && x->phase == RUNNING &&
            (has_bit(x->fence_x, no) || (exclusive && has_bit(x->fence_s, no)))) {
            return false;
        }
    }
    *(exclusive ? &t->fence_x : &t->fence_s) |= UINT64_C(1) << no;
    return true;
}

static bool lock_node(struct world *w, struct world_tx *t, int no)
{
    for (int i = 0; i < WORLD_TX; i++) {
        const struct world_tx *x = &w->tx[i];

        if (x != t && x->phase == RUNNING && has_bit(x->node_x, no)) {
            return false;
        }
    }
    t->node_x |= UINT64_C(1) << no;
    return true;
}

static bool lock_leases(struct world *w, struct world_tx *t, const struct partition_set *set)
{
    for (int i = 0; i < WORLD_TX; i++) {
        const struct world_tx *x = &w->tx[i];

        for (int k = 0; k < PARTITIONS / 64; k++) {
            if (x != t && x->phase == RUNNING && (x->lease_x.bits[k] & set->bits[k]) != 0) {
                return false;
            }
        }
    }
    t->lease_x = *set;
    return true;
}

/* ---- what transactions do -------------------------------------------------------------------- */

static struct partition_set leases_of(const struct world *w, int no)
{
    struct partition_set set = {{0}};

    for (int p = 0; p < PARTITIONS; p++) {
        if (w->db.lease[p].node == no || w->db.lease[p].wanted == no) {
            partition_set_add(&set, p);
        }
    }
    return set;
}

static void set_owner(struct world *w, int p, int no)
{
    if (no != MEMBERSHIP_NOBODY) {
        w->moves += w->db.lease[p].last != MEMBERSHIP_NOBODY && w->db.lease[p].last != no;
        w->db.lease[p].last = no;
    }
    w->db.lease[p].node = no;
    w->db.lease[p].epoch++;
}

/* All leases and wishes of a number end. */
static void free_leases(struct world *w, int no)
{
    for (int p = 0; p < PARTITIONS; p++) {
        if (w->db.lease[p].node == no) {
            set_owner(w, p, MEMBERSHIP_NOBODY);
            w->db.lease[p].wanted = MEMBERSHIP_NOBODY;
        }
        if (w->db.lease[p].wanted == no) {
            w->db.lease[p].wanted = MEMBERSHIP_NOBODY;
        }
    }
}

static void read_view(struct world *w, struct world_tx *t)
{
    size_t count = 0;

    for (int no = 0; no < MEMBERSHIP_NODES_MAX; no++) {
        if (w->db.node[no].is_there) {
            memcpy(t->names[count], w->db.node[no].name, sizeof t->names[count]);
            t->nodes[count] = (struct membership_node){no,
                                                       w->db.node[no].incarnation,
                                                       w->db.node[no].beat,
                                                       w->db.node[no].state,
                                                       slice_string(t->names[count]),
                                                       0};
            count++;
        }
    }
    for (int p = 0; p < PARTITIONS; p++) {
        t->leases[p] = (struct membership_lease){p, w->db.lease[p].epoch, w->db.lease[p].node,
                                                 w->db.lease[p].wanted};
    }
    t->view = w->db.settings;
    t->view.nodes = t->nodes;
    t->view.node_count = count;
    t->view.leases = t->leases;
    t->view.lease_count = PARTITIONS;
    t->answer.view = &t->view;
}

static int by_name(const struct world *w, const char *name)
{
    for (int no = 0; no < MEMBERSHIP_NODES_MAX; no++) {
        if (w->db.node[no].is_there && strcmp(w->db.node[no].name, name) == 0) {
            return no;
        }
    }
    return MEMBERSHIP_NOBODY;
}

enum { WAIT, GO_ON, END };

static int end(struct world_tx *t, enum membership_outcome outcome)
{
    t->answer.outcome = outcome;
    return END;
}

static int step_register(struct world *w, struct world_tx *t)
{
    struct partition_set set;
    int no = t->action.no;

    if (no == MEMBERSHIP_NOBODY) {
        if (by_name(w, t->name) != MEMBERSHIP_NOBODY) {
            return end(t, MEMBERSHIP_NOT_MET);
        }
        no = 0;
        while (w->db.node[no].is_there) {
            no++;
        }
        t->action.no = no; /* the row has to be free until the commit */
        t->action.beat = MEMBERSHIP_NOBODY;
    }
    switch (t->step) {
    case 0:
        return lock_fence(w, t, no, true) ? GO_ON : WAIT;
    case 1:
        if (!lock_node(w, t, no)) {
            return WAIT;
        }
        if (t->action.beat == MEMBERSHIP_NOBODY
                ? w->db.node[no].is_there
                : !w->db.node[no].is_there || w->db.node[no].beat != t->action.beat ||
                      w->db.node[no].incarnation != t->action.incarnation) {
            return end(t, MEMBERSHIP_NOT_MET);
        }
        return GO_ON;
    case 2:
        set = leases_of(w, no);
        return lock_leases(w, t, &set) ? GO_ON : WAIT;
    default:
        if (!w->db.node[no].is_there && by_name(w, t->name) != MEMBERSHIP_NOBODY) {
            return end(t, MEMBERSHIP_NOT_MET);
        }
        free_leases(w, no);
        w->db.fence[no]++;
        w->db.node[no].incarnation = w->db.fence[no];
        w->db.node[no].beat = w->db.node[no].is_there ? w->db.node[no].beat + 1 : 0;
        w->db.node[no].state =
            w->db.node[no].is_there && (w->db.node[no].state == NODE_DRAINING ||
                                        w->db.node[no].state == NODE_STOPPED_DRAINING)
                ? NODE_DRAINING
            : t->action.ready ? NODE_UP
                              : NODE_WAITING;
        w->db.node[no].is_there = true;
        memcpy(w->db.node[no].name, t->name, sizeof t->name);
        t->answer.no = no;
        t->answer.incarnation = w->db.fence[no];
        t->answer.beat = w->db.node[no].beat;
        return end(t, MEMBERSHIP_DONE);
    }
}

static int step_renew(struct world *w, struct world_tx *t)
{
    if (t->step == 0) {
        if (!lock_node(w, t, t->no)) {
            return WAIT;
        }
        if (!w->db.node[t->no].is_there || w->db.node[t->no].incarnation != t->incarnation) {
            return end(t, MEMBERSHIP_STALE);
        }
        return GO_ON;
    }
    if (t->step == 1) {
        read_view(w, t);
        return GO_ON;
    }
    w->db.node[t->no].beat++;
    if (t->action.ready && w->db.node[t->no].state == NODE_WAITING) {
        w->db.node[t->no].state = NODE_UP;
    }
    t->answer.beat = w->db.node[t->no].beat;
    return end(t, MEMBERSHIP_DONE);
}

static int step_take_over(struct world *w, struct world_tx *t)
{
    struct partition_set set;
    int o = t->action.no;
    bool was_there = t->action.beat != MEMBERSHIP_NOBODY;

    switch (t->step) {
    case 0:
    case 1: /* fences in their order */
        if ((t->step == 0) == (t->no < o)) {
            if (!lock_fence(w, t, t->no, false)) {
                return WAIT;
            }
            return w->db.fence[t->no] == t->incarnation ? GO_ON : end(t, MEMBERSHIP_STALE);
        }
        return lock_fence(w, t, o, true) ? GO_ON : WAIT;
    case 2:
        if (!lock_node(w, t, o)) {
            return WAIT;
        }
        if (w->flaw != FLAW_NO_BEAT &&
            (w->db.node[o].is_there != was_there ||
             (was_there && (w->db.node[o].incarnation != t->action.incarnation ||
                            w->db.node[o].beat != t->action.beat)))) {
            return end(t, MEMBERSHIP_NOT_MET);
        }
        return GO_ON;
    case 3:
        set = leases_of(w, o);
        return lock_leases(w, t, &set) ? GO_ON : WAIT;
    default:
        free_leases(w, o);
        w->db.node[o].incarnation++;
        w->db.fence[o]++;
        return end(t, MEMBERSHIP_DONE);
    }
}

static int step_leave(struct world *w, struct world_tx *t)
{
    struct partition_set set;

    switch (t->step) {
    case 0:
        if (!lock_fence(w, t, t->no, true)) {
            return WAIT;
        }
        return w->db.fence[t->no] == t->incarnation ? GO_ON : end(t, MEMBERSHIP_STALE);
    case 1:
        return lock_node(w, t, t->no) ? GO_ON : WAIT;
    case 2:
        set = leases_of(w, t->no);
        return lock_leases(w, t, &set) ? GO_ON : WAIT;
    default:
        free_leases(w, t->no);
        w->db.fence[t->no]++;
        w->db.node[t->no].incarnation++;
        w->db.node[t->no].state =
            w->db.node[t->no].state == NODE_DRAINING ? NODE_STOPPED_DRAINING : NODE_STOPPED;
        return end(t, MEMBERSHIP_DONE);
    }
}

static bool may_have(const struct world *w, const struct world_tx *t, int p)
{
    switch ((enum membership_action_type)t->type) {
    case MEMBERSHIP_CLAIM:
        return w->db.lease[p].node == MEMBERSHIP_NOBODY;
    case MEMBERSHIP_WISH:
        return w->db.lease[p].node != MEMBERSHIP_NOBODY && w->db.lease[p].node != t->no &&
               w->db.lease[p].wanted == MEMBERSHIP_NOBODY;
    default:
        return w->db.lease[p].node == t->no &&
               (w->flaw == FLAW_NO_EPOCH || w->db.lease[p].epoch == t->epochs[p]);
    }
}

static void change_lease(struct world *w, struct world_tx *t, int p)
{
    if (t->type == MEMBERSHIP_CLAIM) {
        set_owner(w, p, t->no);
        partition_set_add(&t->answer.partitions, p);
        t->answer.epochs[p] = w->db.lease[p].epoch;
    } else if (t->type == MEMBERSHIP_WISH) {
        w->db.lease[p].wanted = t->no;
    } else {
        int to = t->to[p];

        set_owner(w, p,
                  to >= 0 && w->db.node[to].is_there && w->db.node[to].state == NODE_UP
                      ? to
                      : MEMBERSHIP_NOBODY);
        w->db.lease[p].wanted = MEMBERSHIP_NOBODY;
    }
}

/* CLAIM, WISH, RELEASE */
static int step_leases(struct world *w, struct world_tx *t)
{
    if (t->step == 0) {
        if (!lock_fence(w, t, t->no, false)) {
            return WAIT;
        }
        return w->db.fence[t->no] == t->incarnation ? GO_ON : end(t, MEMBERSHIP_STALE);
    }
    if (t->step == 1) {
        if (!lock_leases(w, t, &t->action.partitions)) {
            return WAIT;
        }
        for (int p = 0; p < PARTITIONS; p++) {
            if (partition_set_has(&t->action.partitions, p) && may_have(w, t, p)) {
                partition_set_add(&t->got, p);
            }
        }
        return GO_ON;
    }
    for (int p = 0; p < PARTITIONS; p++) {
        if (partition_set_has(&t->got, p)) {
            change_lease(w, t, p);
        }
    }
    return end(t, MEMBERSHIP_DONE);
}

static int step_write(struct world *w, struct world_tx *t)
{
    if (t->step == 0) {
        if (w->flaw == FLAW_NO_FENCE) {
            return GO_ON;
        }
        if (w->flaw != FLAW_NO_LOCK && !lock_fence(w, t, t->no, false)) {
            return WAIT;
        }
        return w->db.fence[t->no] == t->incarnation ? GO_ON : end(t, MEMBERSHIP_STALE);
    }
    if (t->step == 1) { /* the marker: its key is unique, so another that has it is waited for */
        for (int i = 0; i < WORLD_TX; i++) {
            const struct world_tx *x = &w->tx[i];

            if (x != t && x->phase == RUNNING && x->type == WRITE && x->number == t->number &&
                x->step > 1) {
                return WAIT;
            }
        }
        return w->db.stored[t->p] >= t->number ? end(t, MEMBERSHIP_DONE) : GO_ON;
    }
    if (w->db.fence[t->no] != t->incarnation || w->db.lease[t->p].node != t->no) {
        violation(w, "A1", t->node, t->p);
    }
    w->db.stored[t->p] = t->number;
    w->commits++;
    return end(t, MEMBERSHIP_DONE);
}

static int step(struct world *w, struct world_tx *t)
{
    switch (t->type) {
    case MEMBERSHIP_LOOK:
        read_view(w, t);
        return end(t, MEMBERSHIP_DONE);
    case MEMBERSHIP_REGISTER:
        return step_register(w, t);
    case MEMBERSHIP_RENEW:
        return step_renew(w, t);
    case MEMBERSHIP_TAKE_OVER:
        return step_take_over(w, t);
    case MEMBERSHIP_LEAVE:
        return step_leave(w, t);
    case WRITE:
        return step_write(w, t);
    default:
        return step_leases(w, t);
    }
}

static void run_tx(struct world *w, struct world_tx *t)
{
    switch (step(w, t)) {
    case GO_ON:
        t->step++;
        t->waits_since = 0;
        break;
    case WAIT:
        t->waits_since = t->waits_since != 0 ? t->waits_since : w->now;
        if (w->now - t->waits_since < LOCK_US) {
            t->at = w->now + STEP_US;
            return;
        }
        t->answer.outcome = MEMBERSHIP_AGAIN;
        t->phase = ANSWERED;
        break;
    default:
        t->phase = ANSWERED;
        break;
    }
    if (t->phase == ANSWERED) {
        t->fence_s = t->fence_x = t->node_x = 0;
        t->lease_x = (struct partition_set){{0}};
    }
    t->at =
        w->now + some(w, w->faults && rng_below(&w->rng, 300) == 0 ? 9 * US_PER_S : w->latency_us);
    if (t->phase == ANSWERED && !t->is_awaited) {
        t->phase = UNUSED;
    }
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static int new_tx(struct world *w, int node, int type)
{
    int i = 0;

    while (w->tx[i].phase != UNUSED) {
        CHECK(++i < WORLD_TX);
    }
    w->tx[i] = (struct world_tx){.phase = SENT,
                                 .is_awaited = true,
                                 .type = type,
                                 .node = node,
                                 .no = membership_number(w->nodes[node].m),
                                 .incarnation = membership_incarnation(w->nodes[node].m),
                                 .at = w->now + some(w, w->latency_us)};
    memcpy(w->tx[i].name, w->nodes[node].name, sizeof w->tx[i].name);
    return i;
}

/* Its answer is awaited no more; it may be done at any later time, or never. */
static void forget_tx(struct world *w, struct world_tx *t)
{
    t->is_awaited = false;
    if (t->phase == ANSWERED ||
        (t->phase == SENT && t->type != MEMBERSHIP_RELEASE && rng_below(&w->rng, 2) == 0)) {
        t->phase = UNUSED;
    } else if (t->phase == SENT && t->type != MEMBERSHIP_RELEASE) {
        t->at = w->now + some(w, rng_below(&w->rng, 2) == 0 ? US_PER_S : 30 * US_PER_S);
    }
}

static void send_request(struct world *w, int i)
{
    struct world_node *n = &w->nodes[i];
    struct membership_action a;
    struct world_tx *t;

    if (n->request >= 0 || !membership_next(n->m, world_clock(w, i), &a)) {
        return;
    }
    n->request = new_tx(w, i, (int)a.type);
    t = &w->tx[n->request];
    t->action = a;
    memcpy(t->to, a.to, sizeof t->to);
    memcpy(t->epochs, a.epochs, sizeof t->epochs);
    n->lost_at = rng_double(&w->rng) < (a.type == MEMBERSHIP_RELEASE ? 10 * w->loss : w->loss)
                     ? w->now + some(w, 3 * US_PER_S)
                     : 0;
    if (n->lost_at != 0 && a.type == MEMBERSHIP_RELEASE) {
        t->at = n->lost_at + some(w, 9 * US_PER_S); /* done when all have forgotten it */
    }
}

static void take_answer(struct world *w, int i)
{
    struct world_node *n = &w->nodes[i];
    struct world_tx *t;

    if (n->request < 0) {
        return;
    }
    t = &w->tx[n->request];
    if (t->phase == ANSWERED && t->at <= w->now) {
        t->phase = UNUSED;
        n->request = -1;
        membership_answered(n->m, world_clock(w, i), &t->answer);
    } else if (n->lost_at != 0 && n->lost_at <= w->now) {
        forget_tx(w, t);
        n->request = -1;
        membership_lost(n->m, world_clock(w, i));
    }
}

static void forget_work(struct world_node *n)
{
    memset(n->open, 0, sizeof n->open);
    memset(n->write_of, 0, sizeof n->write_of);
    memset(n->drains_at, 0, sizeof n->drains_at);
    n->mine = (struct partition_set){{0}};
}

static void take_events(struct world *w, int i)
{
    struct world_node *n = &w->nodes[i];
    struct membership_event e;

    while (membership_event(n->m, world_clock(w, i), &e)) {
        if (e.type == MEMBERSHIP_GIVEN_UP) {
            n->given_up++;
            forget_work(n);
            n->ready_at = w->now + some(w, 5 * US_PER_S);
        }
        n->registered += e.type == MEMBERSHIP_REGISTERED;
        for (int p = 0; p < PARTITIONS; p++) {
            if (!partition_set_has(&e.partitions, p)) {
                continue;
            }
            if (e.type == MEMBERSHIP_GAINED) {
                partition_set_add(&n->mine, p);
            } else if (e.type == MEMBERSHIP_DRAIN) {
                n->drains_at[p] = w->now + w->drain_us + some(w, 2 * US_PER_S);
            }
        }
    }
    if (n->ready_at != 0 && n->ready_at <= w->now) {
        n->ready_at = 0;
        membership_ready(n->m);
    }
}

/* May node i begin work in p, as it sees it? */
static bool may_begin(const struct world *w, int i, int p)
{
    const struct world_node *n = &w->nodes[i];

    return n->m != NULL && membership_is_mine(n->m, p) &&
           !mono_reached(membership_deadline(n->m), world_clock(w, i));
}

static void look_whose(struct world *w, int i, int p)
{
    int no = membership_number(w->nodes[i].m);

    if (w->db.lease[p].node != no || w->db.fence[no] != membership_incarnation(w->nodes[i].m)) {
        violation(w, "A2, not the owner", i, p);
    }
    for (int k = 0; k < WORLD_NODES; k++) {
        if (k != i && may_begin(w, k, p)) {
            violation(w, "A2, two owners", i, p);
        }
        /* What a node has begun and not stored, it may still do to its end: only if it was given
         * up meanwhile, or is one that does not know it yet. */
        if (k != i && w->nodes[k].m != NULL && w->nodes[k].open[p] &&
            w->db.lease[p].node != membership_number(w->nodes[k].m) &&
            w->db.fence[membership_number(w->nodes[k].m)] ==
                membership_incarnation(w->nodes[k].m)) {
            violation(w, "A5", k, p);
        }
    }
}

static void send_write(struct world *w, int i, int p)
{
    struct world_node *n = &w->nodes[i];
    struct world_tx *t;

    if (n->write_of[p] == 0) {
        n->write_of[p] = ++w->number;
    }
    t = &w->tx[new_tx(w, i, WRITE)];
    t->p = p;
    t->number = n->write_of[p];
}

static struct world_tx *find_write(struct world *w, int i, int p)
{
    for (int k = 0; k < WORLD_TX; k++) {
        struct world_tx *t = &w->tx[k];

        if (t->phase != UNUSED && t->is_awaited && t->type == WRITE && t->node == i && t->p == p) {
            return t;
        }
    }
    return NULL;
}

static void work_in(struct world *w, int i, int p)
{
    struct world_node *n = &w->nodes[i];
    struct world_tx *t = NULL;

    if (may_begin(w, i, p) && rng_below(&w->rng, 100) == 0) {
        look_whose(w, i, p);
        n->open[p] = true;
    }
    if (n->open[p]) {
        t = find_write(w, i, p);
        if (t == NULL && rng_below(&w->rng, 20) == 0) {
            send_write(w, i, p);
        } else if (t != NULL && t->phase == ANSWERED && t->at <= w->now) {
            n->open[p] = n->open[p] && t->answer.outcome == MEMBERSHIP_AGAIN;
            n->write_of[p] = n->open[p] ? n->write_of[p] : 0;
            t->phase = UNUSED;
        } else if (t != NULL && rng_double(&w->rng) < w->loss / 50) {
            forget_tx(w, t); /* and it is sent again, with its number */
        }
    }
}

static void drain(struct world *w, struct world_node *n, int p)
{
    if (n->drains_at[p] != 0 && n->drains_at[p] <= w->now &&
        (w->flaw == FLAW_RUDE || !n->open[p])) {
        n->drains_at[p] = 0;
        partition_set_remove(&n->mine, p);
        membership_drained(n->m, p);
    }
}

static void drop_writes(struct world *w, int i)
{
    for (int k = 0; k < WORLD_TX; k++) {
        if (w->tx[k].phase != UNUSED && w->tx[k].is_awaited && w->tx[k].node == i) {
            forget_tx(w, &w->tx[k]);
        }
    }
}

void world_start(struct world *w, int i)
{
    struct world_node *n = &w->nodes[i];

    CHECK(n->m == NULL);
    n->m = membership_new(&n->config);
    n->request = -1;
    n->given_up = n->registered = 0;
    n->stopped_until = n->ready_at = 0;
}

void world_kill(struct world *w, int i)
{
    struct world_node *n = &w->nodes[i];

    drop_writes(w, i);
    membership_free(n->m);
    n->m = NULL;
    n->request = -1;
    forget_work(n);
}

/* Only a few partitions are worked in, so that each is often. */
static void turn(struct world *w, int i)
{
    struct world_node *n = &w->nodes[i];
    bool had = membership_number(n->m) != MEMBERSHIP_NOBODY;

    take_answer(w, i);
    take_events(w, i);
    if (had && membership_number(n->m) == MEMBERSHIP_NOBODY) {
        for (int k = 0; k < WORLD_TX; k++) {
            if (w->tx[k].phase != UNUSED && w->tx[k].is_awaited && w->tx[k].node == i &&
                w->tx[k].type == WRITE) {
                forget_tx(w, &w->tx[k]);
            }
        }
    }
    for (int p = 0; p < PARTITIONS; p++) {
        if (p % 16 < 3) {
            work_in(w, i, p);
        }
        drain(w, n, p);
    }
    if (membership_wake_at(n->m).us <= world_clock(w, i).us) {
        send_request(w, i);
    }
    if (rng_below(&w->rng, 200) == 0) {
        membership_wake(n->m);
    }
}

static void mischief(struct world *w)
{
    int i = (int)rng_below(&w->rng, WORLD_NODES);
    struct world_node *n = &w->nodes[i];

    if (n->m == NULL) {
        if (rng_below(&w->rng, 1000) == 0) {
            world_start(w, i);
        }
    } else if (rng_below(&w->rng, 8000) == 0) {
        world_kill(w, i);
    } else if (rng_below(&w->rng, 4000) == 0) {
        n->stopped_until =
            w->now + some(w, rng_below(&w->rng, 3) == 0 ? 60 * US_PER_S : 8 * US_PER_S);
    } else if (rng_below(&w->rng, 8000) == 0) {
        membership_leave(n->m, world_clock(w, i));
    } else if (membership_left(n->m)) {
        world_kill(w, i);
    } else if (rng_below(&w->rng, 500) == 0) { /* an operator drains it, or lets it back */
        int no = membership_number(n->m);

        if (no >= 0 && (w->db.node[no].state == NODE_UP || w->db.node[no].state == NODE_DRAINING)) {
            w->db.node[no].state = NODE_UP + NODE_DRAINING - w->db.node[no].state;
        }
    }
}

void world_run(struct world *w, int64_t us)
{
    int64_t end_at = w->now + us;

    while (w->now < end_at) {
        w->now += some(w, 2 * STEP_US);
        for (int i = 0; i < WORLD_TX; i++) {
            if ((w->tx[i].phase == SENT || w->tx[i].phase == RUNNING) && w->tx[i].at <= w->now) {
                w->tx[i].phase = RUNNING;
                run_tx(w, &w->tx[i]);
            }
        }
        for (int i = 0; i < WORLD_NODES; i++) {
            if (w->nodes[i].m != NULL && w->nodes[i].stopped_until <= w->now) {
                turn(w, i);
            }
        }
        if (w->faults) {
            mischief(w);
        }
    }
}

int world_count(const struct world *w, int i)
{
    int no = by_name(w, w->nodes[i].name), count = 0;

    for (int p = 0; p < PARTITIONS && no != MEMBERSHIP_NOBODY; p++) {
        count += w->db.lease[p].node == no;
    }
    return count;
}

void world_init(struct world *w, uint64_t seed)
{
    *w = (struct world){.latency_us = 20 * US_PER_MS, .now = US_PER_S};
    rng_init(&w->rng, seed);
    w->tx = mem_array(WORLD_TX, sizeof *w->tx);
    w->db.settings = (struct membership_view){.format = 1,
                                              .min_format = 1,
                                              .partitions = PARTITIONS,
                                              .cluster_timeline = 1,
                                              .cluster_system_id = SLICE("77"),
                                              .fsync = true,
                                              .full_page_writes = true,
                                              .synchronous_commit = SLICE("on"),
                                              .standby_names = SLICE("*"),
                                              .timeline = 1,
                                              .system_id = SLICE("77")};
    for (int p = 0; p < PARTITIONS; p++) {
        w->db.lease[p].node = w->db.lease[p].wanted = w->db.lease[p].last = MEMBERSHIP_NOBODY;
    }
    for (int i = 0; i < WORLD_NODES; i++) {
        struct world_node *n = &w->nodes[i];

        (void)snprintf(n->name, sizeof n->name, "node%d", i);
        n->config = (struct membership_config){.times = &membership_times,
                                               .name = n->name,
                                               .format_min = 1,
                                               .format_max = 1,
                                               .needs_standby = true};
        n->rate = 0.9 + 0.2 * rng_double(&w->rng);
        n->offset_us = some(w, 1000 * US_PER_S);
        n->request = -1;
    }
}

void world_fini(struct world *w)
{
    for (int i = 0; i < WORLD_NODES; i++) {
        membership_free(w->nodes[i].m);
    }
    mem_free(w->tx);
}
