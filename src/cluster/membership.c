/*
 * Only one request is in flight at a time, so an answer never meets state that has changed since
 * the request. A request of a lost connection may still happen at any later time; each contains the
 * values that were seen (member_request.c), so that it does no damage then.
 *
 * Other nodes are judged by their beat alone: a node whose beat stands still is silent, even if its
 * row changes otherwise (a node that takes over raises the incarnation). Silence counts only while
 * looks are answered. After a gap between looks it begins again for all nodes, so that no node
 * loses its lease because the database was away.
 */
#include "membership.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "mem.h"

const struct membership_times membership_times = {
    .renew_us = 1 * US_PER_S,
    .look_us = 500 * US_PER_MS,
    .hold_us = 4 * US_PER_S,
    .dead_us = 5 * US_PER_S,
    .watch_us = 5 * US_PER_S,
    .drain_us = 30 * US_PER_S,
    .wish_us = 2 * US_PER_S,
    .settle_us = 3 * US_PER_S,
    .wake_us = 50 * US_PER_MS,
};

enum state { OUT, IN, LEFT, REFUSED };

enum part_state { PART_NONE, PART_OURS, PART_DRAINING, PART_DRAINED };

struct part {
    enum part_state state;
    int64_t epoch; /* epoch of the own lease */
    int16_t owner; /* last owner in the database, or MEMBERSHIP_NOBODY */
    int16_t wanted;
    struct mono since;         /* beginning of state DRAINING */
    struct mono unowned_since; /* {0} if it has an owner */
    struct mono wished_at;     /* time of this node's wish; {0} if none */
    bool hurried;
};

/* Row of a node as it was last seen. */
struct seen {
    bool is_there;
    int64_t incarnation, beat, state;
    struct mono since; /* time since which the beat stands still, or there is no row */
    char name[MEMBERSHIP_NAME_MAX + 1];
};

struct membership {
    struct membership_config config;
    enum state state;
    enum membership_health health;
    char words[MEMBERSHIP_WORDS_MAX];

    enum membership_action_type asked; /* request that was not answered yet */
    struct mono asked_at;
    struct membership_action action; /* last action; its arrays follow */
    int16_t to[PARTITIONS];
    int64_t epochs[PARTITIONS];

    int no; /* MEMBERSHIP_NOBODY if it was never registered */
    int64_t incarnation;
    int64_t beat;  /* beat of the last renewal that was answered */
    bool in_doubt; /* whether a renewal was not answered, so that the beat may be higher */
    struct mono deadline;
    uint64_t lapses;
    bool ready, leaving, leaving_now;

    /* Row of the own name, in state OUT. */
    bool looked;
    int row; /* number of the row, or MEMBERSHIP_NOBODY */
    int64_t row_incarnation, row_beat;
    struct mono row_since;
    unsigned row_moves;
    bool may_register;

    struct seen nodes[MEMBERSHIP_NODES_MAX];
    struct mono looked_at; /* time of the last answer; {0} for never */
    struct part parts[PARTITIONS];
    bool view_is_fresh; /* whether nothing was claimed or wished for since the last view */
    int64_t raise_timeline, highest_timeline;
    bool lacks, has_loss, is_settling, is_outdated;
    int64_t new_timeline; /* higher timeline, or 0; first seen at `new_since` */
    struct mono new_since;
    char system_id[32];

    struct mono renew_at, look_at, again_at;
    bool woken;

    bool was_given_up, was_registered;
    struct partition_set gained, drain;
};

/* ---- state of the nodes ---------------------------------------------------------------------- */

static bool is_silent(const struct membership *m, int no, struct mono now)
{
    return mono_reached(mono_after(m->nodes[no].since, m->config.times->dead_us), now);
}

/* Does the node get a share of the partitions? */
static bool has_share(const struct membership *m, int no, struct mono now)
{
    const struct seen *n = &m->nodes[no];

    if (no == m->no) {
        return m->ready && !m->leaving && (n->state == NODE_UP || n->state == NODE_WAITING);
    }
    return n->is_there && n->state == NODE_UP && !is_silent(m, no, now);
}

static int nodes_with_share(const struct membership *m, struct mono now)
{
    int count = 0;

    for (int no = 0; no < MEMBERSHIP_NODES_MAX; no++) {
        count += has_share(m, no, now);
    }
    return count;
}

static int share_of(const struct membership *m, int no, struct mono now)
{
    int nodes = nodes_with_share(m, now);

    return has_share(m, no, now) ? (PARTITIONS + nodes - 1) / nodes : 0;
}

/* ---- checking values of the database --------------------------------------------------------- */

__attribute__((format(printf, 3, 4))) static bool
object(struct membership *m, enum membership_health health, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    (void)vsnprintf(m->words, sizeof m->words, format, args); /* cut if too long */
    va_end(args);
    m->health = health;
    return false;
}

static bool check_nodes(struct membership *m, const struct membership_view *v)
{
    bool seen[MEMBERSHIP_NODES_MAX] = {false};

    for (size_t i = 0; i < v->node_count; i++) {
        const struct membership_node *n = &v->nodes[i];

        if (n->no < 0 || n->no >= MEMBERSHIP_NODES_MAX || seen[n->no]) {
            return object(m, MEMBERSHIP_UNFIT, "the table node has a row with number %" PRId64,
                          n->no);
        }
        seen[n->no] = true;
        if (n->incarnation < 0 || n->beat < 0 || n->state < NODE_WAITING ||
            n->state > NODE_REMOVED || n->name.len == 0 || n->name.len > MEMBERSHIP_NAME_MAX) {
            return object(m, MEMBERSHIP_UNFIT,
                          "the table node has values for node %" PRId64 " that can't be", n->no);
        }
        for (size_t k = 0; k < i; k++) {
            if (slice_equal(n->name, v->nodes[k].name)) {
                return object(m, MEMBERSHIP_UNFIT,
                              "nodes %" PRId64 " and %" PRId64
                              " have the same name in the table node",
                              v->nodes[k].no, n->no);
            }
        }
    }
    return true;
}

static bool is_owner(int64_t no)
{
    return no >= MEMBERSHIP_NOBODY && no < MEMBERSHIP_NODES_MAX;
}

static bool check_leases(struct membership *m, const struct membership_view *v)
{
    struct partition_set seen = {{0}};

    for (size_t i = 0; i < v->lease_count; i++) {
        const struct membership_lease *l = &v->leases[i];

        if (l->p < 0 || l->p >= PARTITIONS || partition_set_has(&seen, (int)l->p)) {
            return object(m, MEMBERSHIP_UNFIT, "the table lease has a row with partition %" PRId64,
                          l->p);
        }
        partition_set_add(&seen, (int)l->p);
        if (l->epoch < 0 || !is_owner(l->node) || !is_owner(l->wanted)) {
            return object(m, MEMBERSHIP_UNFIT,
                          "the table lease has values for partition %" PRId64 " that can't be",
                          l->p);
        }
    }
    for (int p = 0; p < PARTITIONS; p++) {
        if (!partition_set_has(&seen, p)) {
            return object(m, MEMBERSHIP_UNFIT, "the table lease has no row for partition %d", p);
        }
    }
    return true;
}

/* Is each commit on two machines? */
static bool check_durability(struct membership *m, const struct membership_view *v)
{
    bool on_two = slice_equal(v->synchronous_commit, SLICE("on")) ||
                  slice_equal(v->synchronous_commit, SLICE("remote_apply"));

    if (slice_equal(v->synchronous_commit, SLICE("off"))) {
        return object(m, MEMBERSHIP_UNFIT,
                      "the server's synchronous_commit is off: a crash would lose mail");
    }
    if (!m->config.needs_standby) {
        return true;
    }
    if (!v->fsync || !v->full_page_writes) {
        return object(m, MEMBERSHIP_UNFIT, "the server's %s is off: a crash would lose mail",
                      v->fsync ? "full_page_writes" : "fsync");
    }
    if (slice_trim(v->standby_names).len == 0) {
        return object(m, MEMBERSHIP_UNFIT,
                      "the server has no synchronous standby (synchronous_standby_names is empty): "
                      "a fail-over would lose mail; cluster_standby = none if there is never one");
    }
    if (!on_two) {
        return object(m, MEMBERSHIP_UNFIT,
                      "the server's synchronous_commit is neither on nor remote_apply: "
                      "a fail-over would lose mail");
    }
    return true;
}

/* Is it the primary that has all commits? */
static bool check_server(struct membership *m, const struct membership_view *v)
{
    if (v->in_recovery) {
        return object(m, MEMBERSHIP_UNFIT, "the server is a standby");
    }
    if (v->timeline <= 0 || v->timeline > UINT32_MAX || v->cluster_timeline < 0) {
        return object(m, MEMBERSHIP_UNFIT, "the server gives no timeline");
    }
    if (v->timeline < m->highest_timeline || v->timeline < v->cluster_timeline) {
        return object(m, MEMBERSHIP_UNFIT,
                      "the server is an old primary: its timeline is %" PRId64 ", another has had "
                      "%" PRId64,
                      v->timeline,
                      v->cluster_timeline > m->highest_timeline ? v->cluster_timeline
                                                                : m->highest_timeline);
    }
    if (v->system_id.len == 0 || v->system_id.len >= sizeof m->system_id ||
        (v->cluster_system_id.len > 0 && !slice_equal(v->system_id, v->cluster_system_id)) ||
        (m->system_id[0] != '\0' && !slice_equal(v->system_id, slice_string(m->system_id)))) {
        return object(m, MEMBERSHIP_UNFIT,
                      "this is another database server than that of the cluster (its "
                      "system_identifier); after a restore: sluice cluster restored");
    }
    return true;
}

/* Does the server have all changes that nodes have acknowledged? It lacks some if a standby without
 * the latest changes was promoted, or if a backup was restored. All nodes stop, even those that
 * miss nothing, as their work would be lost once the right server is back. */
static bool check_markers(struct membership *m, const struct membership_view *v)
{
    m->lacks = m->has_loss = v->lacks_marker;
    if (m->lacks) {
        return object(m, MEMBERSHIP_UNFIT,
                      "the server lacks changes of node %s that were acknowledged: a standby that "
                      "did not have them was promoted? Promote the one that has them, or see "
                      "what may be lost: sluice cluster accept-loss",
                      m->config.name);
    }
    for (size_t i = 0; i < v->node_count; i++) {
        if (v->nodes[i].state != NODE_REMOVED && v->nodes[i].lost > v->accepted) {
            m->has_loss = true;
            return object(m, MEMBERSHIP_UNFIT,
                          "node %.*s has found that this server lacks changes that were "
                          "acknowledged: sluice cluster accept-loss",
                          SLICE_ARGS(v->nodes[i].name));
        }
    }
    return true;
}

bool membership_lacks(const struct membership *m)
{
    return m->lacks;
}

bool membership_has_loss(const struct membership *m)
{
    return m->has_loss;
}

bool membership_is_outdated(const struct membership *m)
{
    return m->is_outdated;
}

bool membership_is_settling(const struct membership *m)
{
    return m->is_settling;
}

int64_t membership_timeline(const struct membership *m)
{
    return m->highest_timeline;
}

/* Checks a promoted standby: for a while nothing begins, as each node checks for itself whether the
 * server has its changes. */
static bool check_change(struct membership *m, struct mono now, const struct membership_view *v)
{
    if (m->highest_timeline == 0 || v->timeline <= m->highest_timeline) {
        m->new_timeline = 0;
        return true;
    }
    if (m->new_timeline != v->timeline) {
        m->new_timeline = v->timeline;
        m->new_since = now;
    }
    m->is_settling = !mono_reached(mono_after(m->new_since, m->config.times->settle_us), now);
    return !m->is_settling || object(m, MEMBERSHIP_UNFIT,
                                     "the server has another timeline, %" PRId64 ": for %" PRId64
                                     " s nodes look whether it has all that they have acknowledged",
                                     v->timeline, m->config.times->settle_us / US_PER_S);
}

static bool check_view(struct membership *m, struct mono now, const struct membership_view *v)
{
    m->is_settling = false;
    m->is_outdated = v->format < m->config.format_min || v->format > m->config.format_max ||
                     v->min_format > m->config.format_max;
    if (m->is_outdated && m->state != IN) {
        return object(m, MEMBERSHIP_UNWELCOME,
                      "the tables have format %" PRId64 ", this program knows %d to %d", v->format,
                      m->config.format_min, m->config.format_max);
    }
    if (v->partitions != PARTITIONS) {
        return object(m, MEMBERSHIP_UNWELCOME,
                      "the tables have %" PRId64 " partitions, this program %d", v->partitions,
                      PARTITIONS);
    }
    if (!check_nodes(m, v) || !check_leases(m, v)) {
        return false;
    }
    if ((!v->by_consensus && !check_server(m, v)) || !check_markers(m, v)) {
        return false;
    }
    if (v->by_consensus) {
        return true;
    }
    if (!check_change(m, now, v) || !check_durability(m, v)) {
        return false;
    }
    m->highest_timeline = v->timeline;
    m->raise_timeline = v->timeline > v->cluster_timeline ? v->timeline : 0;
    (void)snprintf(m->system_id, sizeof m->system_id, "%.*s", SLICE_ARGS(v->system_id)); /* fits */
    return true;
}

/* Stores the rows, and the time when each last changed. */
static void observe(struct membership *m, struct mono now, const struct membership_view *v)
{
    const struct membership_node *rows[MEMBERSHIP_NODES_MAX] = {NULL};
    bool anew = m->looked_at.us == 0 ||
                mono_reached(mono_after(m->looked_at, m->config.times->dead_us / 2), now);

    for (size_t i = 0; i < v->node_count; i++) {
        if (v->nodes[i].state != NODE_REMOVED) {
            rows[v->nodes[i].no] = &v->nodes[i];
        }
    }
    for (int no = 0; no < MEMBERSHIP_NODES_MAX; no++) {
        struct seen *n = &m->nodes[no];
        const struct membership_node *row = rows[no];

        if (anew || n->is_there != (row != NULL) || (row != NULL && n->beat != row->beat)) {
            n->since = now;
        }
        n->is_there = row != NULL;
        n->incarnation = row != NULL ? row->incarnation : 0;
        n->beat = row != NULL ? row->beat : MEMBERSHIP_NOBODY;
        n->state = row != NULL ? row->state : NODE_STOPPED;
        (void)snprintf(n->name, sizeof n->name, "%.*s",
                       SLICE_ARGS(row != NULL ? row->name : SLICE(""))); /* fits */
    }
    for (size_t i = 0; i < v->lease_count; i++) {
        struct mono *since = &m->parts[v->leases[i].p].unowned_since;

        if (v->leases[i].node != MEMBERSHIP_NOBODY) {
            *since = (struct mono){0};
        } else if (since->us == 0) {
            *since = now;
        }
    }
    m->looked_at = now;
}

/* ---- registering and losing the incarnation -------------------------------------------------- */

/* `[learns that it was given up]`: ends the incarnation. */
static void give_up(struct membership *m)
{
    for (int p = 0; p < PARTITIONS; p++) {
        m->parts[p].state = PART_NONE;
    }
    m->was_given_up = m->state == IN;
    m->state = m->leaving ? LEFT : OUT;
    m->incarnation = 0;
    m->deadline = (struct mono){0};
    m->ready = false;
    m->looked = m->may_register = false;
    m->row_moves = 0;
    m->look_at = (struct mono){0};
    m->view_is_fresh = false;
    m->was_registered = false;
    m->gained = m->drain = (struct partition_set){{0}};
}

/* Takes a view. Returns false if the node cannot go on with it. */
static bool take_view(struct membership *m, struct mono now, const struct membership_view *v)
{
    if (!check_view(m, now, v)) {
        m->deadline = (struct mono){0};
        m->looked_at = (struct mono){0}; /* silence begins again */
        m->view_is_fresh = false;
        if (m->health == MEMBERSHIP_UNWELCOME) {
            give_up(m);
            m->state = REFUSED;
        }
        return false;
    }
    m->health = MEMBERSHIP_FIT;
    m->words[0] = '\0';
    observe(m, now, v);
    return true;
}

/* Judges the row of the own name in a look that was sent at asked_at. If its beat moves more than
 * once, another daemon has the name; a single beat may be the last one of an earlier
 * incarnation. */
static void look_for_our_name(struct membership *m, struct mono now,
                              const struct membership_view *v)
{
    const struct membership_node *row = NULL;
    bool first = !m->looked;
    int numbers = 0; /* numbers in use */

    for (size_t i = 0; i < v->node_count; i++) {
        numbers += v->nodes[i].state != NODE_REMOVED;
        if (v->nodes[i].state != NODE_REMOVED &&
            slice_equal(v->nodes[i].name, slice_string(m->config.name))) {
            row = &v->nodes[i];
        }
    }
    m->looked = true;
    m->may_register = true;
    if (row == NULL) {
        if (numbers >= MEMBERSHIP_NODES_MAX) {
            (void)object(m, MEMBERSHIP_UNFIT,
                         "the cluster has %d nodes, and can't have more: "
                         "sluice node remove",
                         MEMBERSHIP_NODES_MAX);
            m->may_register = false;
        }
        m->row = MEMBERSHIP_NOBODY;
        m->row_incarnation = 0;
        m->row_beat = MEMBERSHIP_NOBODY;
        return;
    }
    if (!first && (m->row != (int)row->no || m->row_beat != row->beat)) {
        m->row_moves++;
        m->row_since = now;
    } else if (first) {
        m->row_since = now;
    }
    m->may_register =
        row->state == NODE_STOPPED || row->state == NODE_STOPPED_DRAINING ||
        (m->config.take_over && m->no == MEMBERSHIP_NOBODY) ||
        (m->no == (int)row->no && m->beat == row->beat && !m->in_doubt) ||
        mono_reached(mono_after(m->row_since, m->config.times->watch_us), m->asked_at);
    m->row = (int)row->no;
    m->row_incarnation = row->incarnation;
    m->row_beat = row->beat;
    if (!m->may_register && m->row_moves > 1) {
        m->state = REFUSED;
        (void)object(m, MEMBERSHIP_UNWELCOME,
                     "another daemon is running as node %s (cluster_node) of this cluster",
                     m->config.name);
    }
}

/* [comes up]: begins the incarnation. */
static void registered(struct membership *m, const struct membership_answer *a)
{
    if (a->no < 0 || a->no >= MEMBERSHIP_NODES_MAX || a->incarnation <= 0 || a->beat < 0) {
        (void)object(m, MEMBERSHIP_UNFIT,
                     "the database gives number %" PRId64 ", incarnation %" PRId64 " to this node",
                     a->no, a->incarnation);
        m->looked = m->may_register = false;
        return;
    }
    m->state = IN;
    m->no = (int)a->no;
    m->incarnation = a->incarnation;
    m->beat = a->beat;
    m->in_doubt = false;
    m->deadline = (struct mono){0}; /* until the first renewal */
    m->renew_at = m->again_at = (struct mono){0};
    m->woken = false;
    m->was_registered = true;
}

/* ---- partitions ------------------------------------------------------------------------------ */

static void gain(struct membership *m, int p, int64_t epoch)
{
    m->parts[p].state = PART_OURS;
    m->parts[p].epoch = epoch;
    m->parts[p].owner = (int16_t)m->no;
    m->parts[p].wanted = MEMBERSHIP_NOBODY;
    partition_set_add(&m->gained, p);
}

static void drain(struct membership *m, struct mono now, int p)
{
    m->parts[p].state = PART_DRAINING;
    m->parts[p].since = now;
    m->parts[p].hurried = false;
    partition_set_add(&m->drain, p);
}

/* Begins to drain partitions that other nodes wish for, or all of them before leaving. */
static void begin_to_drain(struct membership *m, struct mono now)
{
    for (int p = 0; p < PARTITIONS; p++) {
        const struct part *part = &m->parts[p];
        bool wanted = part->wanted != MEMBERSHIP_NOBODY && part->wanted != m->no &&
                      has_share(m, part->wanted, now);

        if (part->state == PART_OURS && (wanted || m->leaving)) {
            drain(m, now, p);
        }
    }
}

static bool is_our_wish(const struct membership *m, const struct part *part)
{
    return part->wanted == m->no && part->owner != m->no;
}

/* Takes a lease from a renewal's view. Returns false if the lease was changed by hand. */
static bool take_lease(struct membership *m, const struct membership_lease *l)
{
    struct part *part = &m->parts[l->p];

    part->owner = (int16_t)l->node;
    part->wanted = (int16_t)l->wanted;
    if (!is_our_wish(m, part)) {
        part->wished_at = (struct mono){0};
    } else if (part->wished_at.us == 0) {
        part->wished_at = m->asked_at; /* an earlier incarnation made it, or its answer was lost */
    }
    if (part->state == PART_NONE) {
        if (l->node == m->no) {
            gain(m, (int)l->p, l->epoch);
            part->wanted = (int16_t)l->wanted;
        }
        return true;
    }
    if (l->node == m->no && l->epoch == part->epoch) {
        return true;
    }
    if (part->state != PART_DRAINED) {
        return object(m, MEMBERSHIP_UNFIT,
                      "the lease of partition %" PRId64 " was taken away by hand", l->p);
    }
    part->state = PART_NONE; /* let go by a request whose answer was lost */
    return take_lease(m, l);
}

static void take_leases(struct membership *m, struct mono now, const struct membership_view *v)
{
    for (size_t i = 0; i < v->lease_count; i++) {
        if (!take_lease(m, &v->leases[i])) {
            give_up(m);
            return;
        }
    }
    begin_to_drain(m, now);
    m->view_is_fresh = true;
}

static int count_owned(const struct membership *m, int no)
{
    int count = 0;

    for (int p = 0; p < PARTITIONS; p++) {
        count += m->parts[p].owner == no;
    }
    return count;
}

/* Chooses free partitions up to the share. Each node begins at an index of its own, so that nodes
 * choose different ones. */
static bool choose_free(const struct membership *m, struct mono now, struct partition_set *ret)
{
    int need = share_of(m, m->no, now) - count_owned(m, m->no);
    int free_parts[PARTITIONS], count = 0, rank = 0;

    *ret = (struct partition_set){{0}};
    for (int p = 0; p < PARTITIONS; p++) {
        if (m->parts[p].owner == MEMBERSHIP_NOBODY) {
            free_parts[count++] = p;
        }
    }
    for (int no = 0; no < m->no; no++) {
        rank += has_share(m, no, now);
    }
    need = need < count ? need : count;
    for (int i = 0; i < need; i++) {
        int from = count * rank / nodes_with_share(m, now);

        partition_set_add(ret, free_parts[(from + i) % count]);
    }
    return need > 0;
}

/* Returns the node that exceeds its share most, or MEMBERSHIP_NOBODY. */
static int richest(const struct membership *m, struct mono now, const int owned[])
{
    int best = MEMBERSHIP_NOBODY, most = 0;

    for (int no = 0; no < MEMBERSHIP_NODES_MAX; no++) {
        int above = owned[no] - share_of(m, no, now);

        if (no != m->no && m->nodes[no].is_there && !is_silent(m, no, now) && above > most) {
            best = no;
            most = above;
        }
    }
    return best;
}

/* Chooses partitions of nodes above their share, up to the own share. Partitions with a wish count
 * as moved. */
static bool choose_wishes(const struct membership *m, struct mono now, struct partition_set *ret)
{
    int owned[MEMBERSHIP_NODES_MAX] = {0};
    int need = share_of(m, m->no, now), wishes = 0;
    int no;

    *ret = (struct partition_set){{0}};
    for (int p = 0; p < PARTITIONS; p++) {
        const struct part *part = &m->parts[p];

        if (part->owner == m->no || part->wanted == m->no) {
            need--;
        }
        if (part->owner == MEMBERSHIP_NOBODY) {
            return false; /* claim free partitions first */
        }
        wishes += is_our_wish(m, part) &&
                  !mono_reached(mono_after(part->wished_at, m->config.times->wish_us), now);
        owned[part->owner] += part->wanted == MEMBERSHIP_NOBODY;
    }
    while (need > 0 && wishes < MEMBERSHIP_WISHES_MAX &&
           (no = richest(m, now, owned)) != MEMBERSHIP_NOBODY) {
        int p = 0;

        while (m->parts[p].owner != no || m->parts[p].wanted != MEMBERSHIP_NOBODY ||
               partition_set_has(ret, p)) {
            p++; /* one exists, as owned[no] > 0 */
        }
        partition_set_add(ret, p);
        owned[no]--;
        need--;
        wishes++;
    }
    return !partition_set_is_empty(ret);
}

/* Returns a silent node that has or wishes for partitions, or MEMBERSHIP_NOBODY. */
static int silent_owner(const struct membership *m, struct mono now)
{
    for (int p = 0; p < PARTITIONS; p++) {
        const int16_t concerned[] = {m->parts[p].owner, m->parts[p].wanted};

        for (int i = 0; i < 2; i++) {
            if (concerned[i] != MEMBERSHIP_NOBODY && concerned[i] != m->no &&
                is_silent(m, concerned[i], now)) {
                return concerned[i];
            }
        }
    }
    return MEMBERSHIP_NOBODY;
}

/* ---- actions --------------------------------------------------------------------------------- */

static bool ask(struct membership *m, struct mono now, enum membership_action_type type)
{
    m->asked = m->action.type = type;
    m->asked_at = now;
    return true;
}

static bool next_out(struct membership *m, struct mono now)
{
    if (m->looked && m->may_register && m->health == MEMBERSHIP_FIT) {
        m->action.no = m->row;
        m->action.incarnation = m->row_incarnation;
        m->action.beat = m->row_beat;
        m->action.ready = m->ready;
        return ask(m, now, MEMBERSHIP_REGISTER);
    }
    if (!mono_reached(m->look_at, now)) {
        return false;
    }
    m->look_at = mono_after(now, m->config.times->look_us);
    return ask(m, now, MEMBERSHIP_LOOK);
}

static struct mono renewal_due(const struct membership *m)
{
    struct mono soon =
        mono_after(m->renew_at, m->config.times->wake_us - m->config.times->renew_us);

    return m->woken ? soon : m->renew_at;
}

static bool next_release(struct membership *m, struct mono now)
{
    m->action.partitions = (struct partition_set){{0}};
    for (int p = 0; p < PARTITIONS; p++) {
        const struct part *part = &m->parts[p];

        if (part->state == PART_DRAINED) {
            bool is_up = part->wanted != MEMBERSHIP_NOBODY && has_share(m, part->wanted, now);

            partition_set_add(&m->action.partitions, p);
            m->to[p] = is_up ? part->wanted : MEMBERSHIP_NOBODY;
            m->epochs[p] = part->epoch;
        }
    }
    return !partition_set_is_empty(&m->action.partitions) && ask(m, now, MEMBERSHIP_RELEASE);
}

static bool next_take_over(struct membership *m, struct mono now)
{
    int no = silent_owner(m, now);

    if (no == MEMBERSHIP_NOBODY) {
        return false;
    }
    m->action.no = no;
    m->action.incarnation = m->nodes[no].incarnation;
    m->action.beat = m->nodes[no].beat;
    return ask(m, now, MEMBERSHIP_TAKE_OVER);
}

static bool has_any(const struct membership *m)
{
    for (int p = 0; p < PARTITIONS; p++) {
        if (m->parts[p].state != PART_NONE) {
            return true;
        }
    }
    return false;
}

/* Chooses partitions to claim or wish for, once for each view. */
static bool next_wanted(struct membership *m, struct mono now, bool is_good)
{
    bool is_fresh = m->view_is_fresh;

    m->view_is_fresh = false;
    if (!is_fresh || !is_good || share_of(m, m->no, now) == 0) {
        return false;
    }
    if (choose_free(m, now, &m->action.partitions)) {
        return ask(m, now, MEMBERSHIP_CLAIM);
    }
    return choose_wishes(m, now, &m->action.partitions) && ask(m, now, MEMBERSHIP_WISH);
}

/* Is a renewal due? If renewals take long, one would follow the other. Therefore actions that
 * follow from the last view go first, while half of the lease is left. */
static bool must_renew(const struct membership *m, struct mono now)
{
    bool is_half_left = m->deadline.us != 0 &&
                        !mono_reached(mono_after(m->deadline, -m->config.times->hold_us / 2), now);
    bool is_awaited = m->renew_at.us == 0; /* the renewal shows the result of an action */

    return mono_reached(renewal_due(m), now) && (is_awaited || !m->view_is_fresh || !is_half_left);
}

static bool renew(struct membership *m, struct mono now)
{
    m->woken = false;
    m->renew_at = mono_after(now, m->config.times->renew_us);
    m->look_at = mono_after(now, m->config.times->look_us);
    m->action.ready = m->ready;
    m->action.raise_timeline = m->raise_timeline;
    return ask(m, now, MEMBERSHIP_RENEW);
}

static bool next_in(struct membership *m, struct mono now)
{
    bool is_good = m->health == MEMBERSHIP_FIT && !mono_reached(m->deadline, now);

    if (must_renew(m, now)) {
        return renew(m, now);
    }
    if (mono_reached(m->again_at, now)) {
        if (m->leaving_now || (m->leaving && !has_any(m))) {
            return ask(m, now, MEMBERSHIP_LEAVE);
        }
        if (next_release(m, now) || (is_good && !m->leaving && next_take_over(m, now))) {
            return true;
        }
    }
    if (next_wanted(m, now, is_good)) {
        return true;
    }
    if (mono_reached(renewal_due(m), now)) {
        return renew(m, now); /* no action was left */
    }
    if (mono_reached(m->look_at, now)) {
        m->look_at = mono_after(now, m->config.times->look_us);
        return ask(m, now, MEMBERSHIP_LOOK);
    }
    return false;
}

bool membership_next(struct membership *m, struct mono now, struct membership_action *ret)
{
    bool is_one = false;

    if (m->asked != MEMBERSHIP_NONE) {
        return false;
    }
    m->action = (struct membership_action){.to = m->to, .epochs = m->epochs};
    switch (m->state) {
    case OUT:
        is_one = next_out(m, now);
        break;
    case IN:
        is_one = next_in(m, now);
        break;
    case LEFT:
    case REFUSED:
        break;
    }
    if (is_one) {
        *ret = m->action;
    }
    return is_one;
}

struct mono membership_wake_at(const struct membership *m)
{
    struct mono at = MONO_NEVER;

    if (m->asked != MEMBERSHIP_NONE || m->state == LEFT || m->state == REFUSED) {
        return MONO_NEVER;
    }
    if (m->state == OUT) {
        return m->looked && m->may_register && m->health == MEMBERSHIP_FIT ? (struct mono){0}
                                                                           : m->look_at;
    }
    at = mono_min(renewal_due(m), m->look_at);
    if (m->view_is_fresh) {
        return (struct mono){0};
    }
    if (m->leaving_now || (m->leaving && !has_any(m))) {
        at = mono_min(at, m->again_at);
    }
    for (int p = 0; p < PARTITIONS; p++) {
        const struct part *part = &m->parts[p];

        if (part->state == PART_DRAINED) {
            at = mono_min(at, m->again_at);
        } else if (part->state == PART_DRAINING && !part->hurried) {
            at = mono_min(at, mono_after(part->since, m->config.times->drain_us));
        }
    }
    return at;
}

/* ---- answers --------------------------------------------------------------------------------- */

static void renew_soon(struct membership *m)
{
    m->renew_at = (struct mono){0};
}

/* [renews]. The lease is extended from the time when the request was sent. */
static void renewed(struct membership *m, struct mono now, const struct membership_answer *a)
{
    m->beat = a->beat;
    m->in_doubt = false;
    if (!take_view(m, now, a->view)) {
        return;
    }
    m->lapses += mono_reached(m->deadline, now);
    m->deadline = mono_after(m->asked_at, m->config.times->hold_us);
    take_leases(m, now, a->view);
}

static void done(struct membership *m, struct mono now, enum membership_action_type type,
                 const struct membership_answer *a)
{
    switch (type) {
    case MEMBERSHIP_NONE:
        break;
    case MEMBERSHIP_LOOK:
        if (take_view(m, now, a->view) && m->state == OUT) {
            look_for_our_name(m, now, a->view);
        }
        break;
    case MEMBERSHIP_REGISTER:
        registered(m, a);
        break;
    case MEMBERSHIP_RENEW:
        renewed(m, now, a);
        break;
    case MEMBERSHIP_TAKE_OVER:
        renew_soon(m); /* the view of the renewal shows the partitions that are free */
        break;
    case MEMBERSHIP_CLAIM:
        for (int p = 0; p < PARTITIONS; p++) {
            if (partition_set_has(&a->partitions, p) &&
                partition_set_has(&m->action.partitions, p)) {
                gain(m, p, a->epochs[p]);
            }
        }
        break;
    case MEMBERSHIP_WISH:
        for (int p = 0; p < PARTITIONS; p++) {
            if (partition_set_has(&m->action.partitions, p)) {
                m->parts[p].wanted = (int16_t)m->no; /* if wrong, the next view corrects it */
                m->parts[p].wished_at = now;
            }
        }
        break;
    case MEMBERSHIP_RELEASE:
        for (int p = 0; p < PARTITIONS; p++) {
            if (partition_set_has(&m->action.partitions, p)) {
                m->parts[p].state = PART_NONE;
                m->parts[p].owner = m->to[p];
                m->parts[p].wanted = MEMBERSHIP_NOBODY;
            }
        }
        break;
    case MEMBERSHIP_LEAVE:
        give_up(m);
        m->was_given_up = false;
        break;
    }
}

void membership_answered(struct membership *m, struct mono now, const struct membership_answer *a)
{
    enum membership_action_type type = m->asked;

    CHECK(type != MEMBERSHIP_NONE);
    m->asked = MEMBERSHIP_NONE;
    switch (a->outcome) {
    case MEMBERSHIP_DONE:
        done(m, now, type, a);
        return;
    case MEMBERSHIP_STALE:
        if (m->state == IN) {
            give_up(m);
        }
        return;
    case MEMBERSHIP_NOT_MET:
        m->looked = m->may_register = false;
        m->again_at = mono_after(now, m->config.times->look_us);
        renew_soon(m);
        return;
    case MEMBERSHIP_AGAIN:
        m->again_at = mono_after(now, m->config.times->look_us);
        if (type == MEMBERSHIP_RENEW) {
            m->renew_at = m->again_at;
        }
        return;
    }
}

void membership_lost(struct membership *m, struct mono now)
{
    if (m->asked == MEMBERSHIP_RENEW || m->asked == MEMBERSHIP_REGISTER) {
        m->in_doubt = true;
        m->looked = m->may_register = false;
    }
    m->asked = MEMBERSHIP_NONE;
    m->look_at = m->again_at = now;
    renew_soon(m); /* the view of the renewal shows the request's result */
}

void membership_wake(struct membership *m)
{
    m->woken = true;
}

/* ---- events ---------------------------------------------------------------------------------- */

static bool take_set(struct partition_set *set, enum membership_event_type type,
                     struct membership_event *ret)
{
    if (partition_set_is_empty(set)) {
        return false;
    }
    *ret = (struct membership_event){.type = type, .partitions = *set};
    *set = (struct partition_set){{0}};
    return true;
}

bool membership_event(struct membership *m, struct mono now, struct membership_event *ret)
{
    struct partition_set late = {{0}};

    if (m->was_given_up || m->was_registered) {
        *ret = (struct membership_event){.type = m->was_given_up ? MEMBERSHIP_GIVEN_UP
                                                                 : MEMBERSHIP_REGISTERED};
        m->was_registered = m->was_given_up && m->was_registered;
        m->was_given_up = false;
        return true;
    }
    if (take_set(&m->gained, MEMBERSHIP_GAINED, ret) ||
        take_set(&m->drain, MEMBERSHIP_DRAIN, ret)) {
        return true;
    }
    for (int p = 0; p < PARTITIONS; p++) {
        struct part *part = &m->parts[p];

        if (part->state == PART_DRAINING && !part->hurried &&
            mono_reached(mono_after(part->since, m->config.times->drain_us), now)) {
            part->hurried = true;
            partition_set_add(&late, p);
        }
    }
    return take_set(&late, MEMBERSHIP_HURRY, ret);
}

/* ---- facts from the owner -------------------------------------------------------------------- */

void membership_ready(struct membership *m)
{
    if (!m->ready) {
        m->ready = true;
        renew_soon(m);
    }
}

void membership_doubt(struct membership *m)
{
    m->deadline = (struct mono){0};
    renew_soon(m);
}

void membership_drained(struct membership *m, int p)
{
    if (m->parts[p].state == PART_DRAINING) { /* unless the lease was lost meanwhile */
        m->parts[p].state = PART_DRAINED;
    }
}

void membership_leave(struct membership *m, struct mono now)
{
    m->leaving = true;
    if (m->state == OUT) {
        m->state = LEFT;
    } else if (m->state == IN) {
        begin_to_drain(m, now);
    }
}

void membership_leave_now(struct membership *m)
{
    m->leaving = m->leaving_now = true;
    m->again_at = (struct mono){0};
    m->state = m->state == OUT ? LEFT : m->state;
}

bool membership_left(const struct membership *m)
{
    return m->state == LEFT || m->state == REFUSED;
}

/* ---- facts about this node ------------------------------------------------------------------- */

bool membership_is_settled(const struct membership *m)
{
    return m->state == IN && m->deadline.us != 0 && !m->view_is_fresh &&
           m->asked != MEMBERSHIP_CLAIM;
}

struct mono membership_deadline(const struct membership *m)
{
    return m->deadline;
}

bool membership_is_mine(const struct membership *m, int p)
{
    return m->parts[p].state == PART_OURS;
}

bool membership_is_draining(const struct membership *m, int p)
{
    return m->parts[p].state == PART_DRAINING;
}

int membership_owner(const struct membership *m, int p)
{
    return m->parts[p].owner;
}

int64_t membership_unowned_us(const struct membership *m, int p, struct mono now)
{
    struct mono since = m->parts[p].unowned_since;

    return since.us == 0 || now.us < since.us ? 0 : now.us - since.us;
}

uint64_t membership_lapses(const struct membership *m)
{
    return m->lapses;
}

const char *membership_name(const struct membership *m, int no)
{
    return m->nodes[no].name;
}

bool membership_is_up(const struct membership *m, int no, struct mono now)
{
    return no == m->no ? m->state == IN
                       : m->nodes[no].is_there && m->nodes[no].state < NODE_STOPPED &&
                             !is_silent(m, no, now);
}

bool membership_seen(const struct membership *m, int no, struct mono now,
                     enum node_state *ret_state, int64_t *ret_silent_us)
{
    const struct seen *n = &m->nodes[no];

    if (!n->is_there || n->state == NODE_REMOVED) {
        return false;
    }
    *ret_state = (enum node_state)n->state;
    *ret_silent_us = no == m->no || now.us < n->since.us ? 0 : now.us - n->since.us;
    return true;
}

int membership_number(const struct membership *m)
{
    return m->state == IN ? m->no : MEMBERSHIP_NOBODY;
}

int64_t membership_incarnation(const struct membership *m)
{
    return m->incarnation;
}

int membership_nodes_up(const struct membership *m, struct mono now)
{
    int count = 0;

    for (int no = 0; no < MEMBERSHIP_NODES_MAX; no++) {
        count += membership_is_up(m, no, now);
    }
    return count;
}

enum membership_health membership_health(const struct membership *m)
{
    return m->health;
}

const char *membership_words(const struct membership *m)
{
    return m->words;
}

/* ---- interface ------------------------------------------------------------------------------- */

struct membership *membership_new(const struct membership_config *config)
{
    struct membership *m = mem_new(sizeof *m);

    CHECK(config->name[0] != '\0' && strlen(config->name) <= MEMBERSHIP_NAME_MAX);
    m->config = *config;
    m->no = MEMBERSHIP_NOBODY;
    m->ready = true;
    for (int p = 0; p < PARTITIONS; p++) {
        m->parts[p].owner = m->parts[p].wanted = MEMBERSHIP_NOBODY;
    }
    return m;
}

void membership_free(struct membership *m)
{
    mem_free(m);
}
