#include "engine_member.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "boot_clock.h"
#include "check.h"
#include "cluster_engine.h"
#include "mem.h"
#include "marker_file.h"
#include "member_config.h"
#include "member_link.h"
#include "rows.h"
#include "told_events.h"

/* Time between two reads of arrivals if no node wakes this one. */
#define ARRIVALS_US (500 * US_PER_MS)
/* Time from gaining partitions to the second look. A batch of another node takes less time from its
 * look at the leases to its commit. */
#define SECOND_LOOK_US (3 * US_PER_S)
/* Foreign messages on the desk are read again after at most twice this time. */
#define FOREIGN_US (1 * US_PER_S)
/* Nodes to which this node has given mail within this time may have too much of it. */
#define GIVEN_US (10 * US_PER_S)
/* Ids are reserved this far ahead of the clock, which is longer than clients wait for a database
 * that stands still. An incarnation after a crash begins that far ahead of the clock. It then
 * reserves only as many ids as a second of load may take, so that repeated crashes do not move ids
 * further ahead. */
#define RESERVE_US       (30 * US_PER_S)
#define RESERVE_AHEAD_US (2 * US_PER_S)

/* Clocks with a smaller difference count as equal. */
#define CLOCK_US (2 * US_PER_S)
/* A difference is logged when it has changed by CLOCK_CHANGE_US, and again after CLOCK_AGAIN_US. */
#define CLOCK_CHANGE_US (1 * US_PER_S)
#define CLOCK_AGAIN_US  (3600 * US_PER_S)

/* After another node's reload this node's routing tables are out of date. A warning follows after
 * this time, as this node is probably reloaded, too. */
#define OLD_TABLES_US (60 * US_PER_S)

struct engine_member {
    struct member_link *link;      /* owned */
    struct membership *membership; /* owned by `link` */
    char *name;                    /* owned */
    struct membership_config config;
    uint64_t last_id;
    uint64_t given_up, gains, lapses;      /* number of times each has happened */
    struct spool_node_words own_words;     /* facts for other nodes */
    uint64_t changes;                      /* version of the shared texts that the queue uses */
    struct partition_set draining, gained; /* gained: partitions to take once the desk is clear */
    struct partition_set leaving;          /* not returned by engine_member_leaving yet */
    struct partition_set second_look;
    int64_t second_look_at, look_at, forget_at; /* microseconds of boot_now; 0 for never */
    int64_t given_at[MEMBERSHIP_NODES_MAX];     /* time of last mail to each node, or 0 */
    bool is_over;                               /* incarnation ended, desk not clear yet */
    bool is_ending;                             /* deliveries of the previous one have not ended */
    bool is_registered;                         /* registered, and the committer not started yet */
    bool is_woken;
    bool is_late;      /* whether shared texts were not read in time */
    int64_t route;     /* number of the routing tables that the queue knows; 0 if unknown */
    int64_t warned_of; /* number of the tables in force that the last warning was about */
    int64_t old_since; /* boot_now since when own tables are out of date, or 0 */
    /* Time until which own tables were not in force or unknown, in microseconds of boot_now; 0 for
     * the start. */
    int64_t in_force_since;
    bool has_tables;
    bool has_told;                    /* whether the link has something new to do */
    bool has_said_why;                /* whether a missing renewal was logged */
    bool stops;                       /* whether the program must stop in order */
    char words[MEMBERSHIP_WORDS_MAX]; /* last message about the database */
    char unread[LINK_ERROR_MAX];      /* last reason why mail could not be read */
    struct member_marker marker;      /* commit that the database must have */
    struct marker_file marker_file;
    bool marker_is_lost;   /* whether it could not be written, which was logged */
    bool lacks;            /* whether the database lacks the marker's commit */
    uint64_t renewals;     /* number of the renewal after which clocks were last compared */
    int64_t clock_off_us;  /* described at spool_clock_off_us */
    int64_t clock_said_us; /* difference that was logged last */
    int64_t clock_said_at; /* time of that, as boot_now */
    struct told_events events;
};

/* ---- events for the queue -------------------------------------------------------------------- */

__attribute__((format(printf, 4, 5))) static void tell_of(struct engine_member *m,
                                                          enum spool_event_type type,
                                                          struct msg_id id, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    told_events_add(&m->events, type, id, format, args);
    va_end(args);
}

static void tell(struct engine_member *m, enum spool_event_type type, struct msg_id id)
{
    tell_of(m, type, id, "%s", "");
}

#define say(m, type, ...) tell_of(m, type, (struct msg_id){0}, __VA_ARGS__)

bool engine_member_event(struct cluster_spool *s, struct spool_event *ret_event)
{
    return told_events_next(&s->member->events, ret_event);
}

/* ---- ids ------------------------------------------------------------------------------------- */

struct msg_id engine_member_next_id(struct engine_member *m)
{
    uint64_t k = (uint64_t)wall_now().us / MEMBERSHIP_NODES_MAX,
             after = m->last_id / MEMBERSHIP_NODES_MAX + 1;
    int no = membership_number(m->membership);

    /* After the clock was set forward it is ahead of the reserved ids; ids are counted up
     * meanwhile. */
    if (k < after || k > member_link_renewal(m->link)->id_reserved / MEMBERSHIP_NODES_MAX - 1) {
        k = after;
    }
    /* The id of a node that is not registered is never committed. */
    m->last_id = k * MEMBERSHIP_NODES_MAX + (unsigned)(no >= 0 ? no : 0);
    return (struct msg_id){m->last_id};
}

bool engine_member_has_reserved(const struct engine_member *m, struct msg_id id)
{
    return membership_number(m->membership) != MEMBERSHIP_NOBODY &&
           id.n <= member_link_renewal(m->link)->id_reserved;
}

static void reserve(struct engine_member *m)
{
    uint64_t by_clock = (uint64_t)wall_now().us + RESERVE_US, ahead = m->last_id + RESERVE_AHEAD_US;

    member_link_reserve(m->link, by_clock > ahead ? by_clock : ahead);
}

/* ---- partitions ------------------------------------------------------------------------------ */

static void add_all(struct partition_set *to, const struct partition_set *more)
{
    for (int i = 0; i < PARTITIONS / 64; i++) {
        to->bits[i] |= more->bits[i];
    }
}

static void own(struct cluster_spool *s, const struct partition_set *partitions, bool is_mine)
{
    for (int p = 0; p < PARTITIONS; p++) {
        if (partition_set_has(partitions, p)) {
            finder_own(&s->finder, (uint16_t)p, is_mine);
        }
    }
}

static void gain(struct cluster_spool *s)
{
    struct engine_member *m = s->member;

    if (m->is_over || partition_set_is_empty(&m->gained)) {
        return;
    }
    own(s, &m->gained, true);
    m->gains++;
    desk_forget_foreign(&s->desk, false);
    loader_count(s->loader, &m->gained);
    for (unsigned p = 0; p < PARTITIONS; p++) {
        if (partition_set_has(&m->gained, (int)p)) {
            recount_gained(&s->recount, p, boot_now().us);
        }
    }
    add_all(&m->second_look, &m->gained);
    m->second_look_at = boot_now().us + SECOND_LOOK_US;
    say(m, SPOOL_EVENT_LOG, "node %s: %d partitions of the queue have come to it", m->name,
        partition_set_count(&m->gained));
    m->gained = (struct partition_set){{0}};
}

static void look_again(struct cluster_spool *s, int64_t now)
{
    struct engine_member *m = s->member;

    if (partition_set_is_empty(&m->second_look) || now < m->second_look_at) {
        return;
    }
    for (int p = 0; p < PARTITIONS; p++) {
        if (s->finder.is_mine[p] && partition_set_has(&m->second_look, p)) {
            finder_own(&s->finder, (uint16_t)p, true);
        }
    }
    m->second_look = (struct partition_set){{0}};
    tell(m, SPOOL_EVENT_GAINED, (struct msg_id){0});
    tell(m, SPOOL_EVENT_READY, (struct msg_id){0});
}

/* Drops foreign messages before they may be out of date. */
static void forget_foreign(struct cluster_spool *s, int64_t now)
{
    struct engine_member *m = s->member;

    if (now >= m->forget_at) {
        m->forget_at = now + FOREIGN_US;
        desk_forget_foreign(&s->desk, true);
    }
}

static void begin_to_drain(struct cluster_spool *s, const struct partition_set *partitions)
{
    struct engine_member *m = s->member;
    struct msg_id *ids;
    size_t count;

    own(s, partitions, false);
    loader_let_go(s->loader);
    desk_let_go(&s->desk, partitions);
    count = desk_claimed_in(&s->desk, partitions, &ids);
    for (size_t i = 0; i < count; i++) {
        tell(m, SPOOL_EVENT_CHANGED, ids[i]);
    }
    mem_free(ids);
    add_all(&m->draining, partitions);
    add_all(&m->leaving, partitions);
    for (int i = 0; i < PARTITIONS / 64; i++) {
        m->gained.bits[i] &= ~partitions->bits[i];
    }
}

bool engine_member_leaving(struct engine_member *m, struct partition_set *ret)
{
    *ret = m->leaving;
    m->leaving = (struct partition_set){{0}};
    return !partition_set_is_empty(ret);
}

/* Requests that deliveries in these partitions are broken off where possible. */
static void hurry(struct cluster_spool *s, const struct partition_set *partitions)
{
    struct engine_member *m = s->member;
    struct msg_id *ids;
    size_t count = desk_claimed_in(&s->desk, partitions, &ids);

    say(m, SPOOL_EVENT_WARNING,
        "node %s: %d partitions that others wait for still have deliveries in flight: what can be "
        "broken off is",
        m->name, partition_set_count(partitions));
    for (size_t i = 0; i < count; i++) {
        tell(m, SPOOL_EVENT_HURRY, ids[i]);
    }
    mem_free(ids);
}

/* Lets partitions go in which nothing is open. */
static void drain(struct cluster_spool *s)
{
    struct engine_member *m = s->member;
    struct partition_set open;

    if (partition_set_is_empty(&m->draining) || handover_is_under_way(&s->handover)) {
        return;
    }
    desk_open_in(&s->desk, &open);
    for (int p = 0; p < PARTITIONS; p++) {
        if (partition_set_has(&m->draining, p) && !partition_set_has(&open, p)) {
            partition_set_remove(&m->draining, p);
            membership_drained(m->membership, p);
            m->has_told = true;
        }
    }
}

/* ---- end of an incarnation ------------------------------------------------------------------- */

static void give_up(struct cluster_spool *s)
{
    struct engine_member *m = s->member;
    struct partition_set all;

    memset(&all, 0xff, sizeof all);
    own(s, &all, false);
    m->gained = m->draining = m->second_look = (struct partition_set){{0}};
    m->is_over = m->is_ending = true;
    m->given_up++;
    if (s->committer != NULL) {
        committer_leave(s->committer);
    }
    m->is_registered = false;
    say(m, SPOOL_EVENT_WARNING,
        "node %s: other nodes have taken over what it had, as they have not heard of it", m->name);
}

/* Clears the desk after the last commit of the previous incarnation has ended. */
static void clear(struct cluster_spool *s)
{
    struct engine_member *m = s->member;
    struct msg_id *ids;
    size_t count;

    loader_let_go(s->loader);
    count = desk_clear(&s->desk, &ids);
    desk_note_gone(&s->desk, ids, count);
    for (size_t i = 0; i < count; i++) {
        tell(m, SPOOL_EVENT_LOST, ids[i]);
    }
    mem_free(ids);
    tell(m, SPOOL_EVENT_LOST, (struct msg_id){0}); /* end of the list */
    m->is_over = false;
}

void engine_member_failed(struct cluster_spool *s, int rc)
{
    if (s->member->is_over) {
        clear(s);
    } else if (rc == -ESTALE) {
        membership_doubt(s->member->membership);
        s->member->has_told = true;
    }
}

void engine_member_lease_ended(struct engine_member *m)
{
    m->is_ending = false;
    membership_ready(m->membership);
    m->has_told = true;
}

int64_t engine_member_lease_left_us(const struct cluster_spool *s)
{
    const struct engine_member *m = s->member;
    int64_t now = boot_now().us;

    return m->is_over || m->is_ending || shared_texts_is_late(s->shared, now)
               ? 0
               : membership_deadline(m->membership).us - now;
}

/* ---- registering ----------------------------------------------------------------------------- */

static void enter(struct cluster_spool *s)
{
    struct engine_member *m = s->member;
    int no = membership_number(m->membership);
    int64_t incarnation = membership_incarnation(m->membership);
    uint64_t given = member_link_renewal(m->link)->id_reserved;

    if (!m->is_registered || m->is_over || no == MEMBERSHIP_NOBODY) {
        return;
    }
    m->is_registered = false;
    m->last_id = given > m->last_id ? given : m->last_id;
    shared_texts_enter(s->shared, no, incarnation);
    if (s->committer == NULL) {
        s->committer = committer_new(s->epoll_fd, &s->url.target, no, incarnation, rows_statement);
    } else {
        committer_enter(s->committer, no, incarnation);
    }
    say(m, SPOOL_EVENT_LOG, "node %s: number %d of its cluster, incarnation %" PRId64, m->name, no,
        incarnation);
}

static void take_events(struct cluster_spool *s)
{
    struct engine_member *m = s->member;
    struct membership_event e;

    while (membership_event(m->membership, boot_now(), &e)) {
        switch (e.type) {
        case MEMBERSHIP_GIVEN_UP:
            give_up(s);
            break;
        case MEMBERSHIP_REGISTERED:
            m->is_registered = true;
            break;
        case MEMBERSHIP_GAINED:
            add_all(&m->gained, &e.partitions);
            break;
        case MEMBERSHIP_DRAIN:
            gain(s); /* in case the partition was gained a moment ago */
            begin_to_drain(s, &e.partitions);
            break;
        case MEMBERSHIP_HURRY:
            hurry(s, &e.partitions);
            break;
        }
    }
}

static void say_words(struct engine_member *m)
{
    const char *words = membership_words(m->membership);

    if (strcmp(words, m->words) == 0) {
        return;
    }
    (void)snprintf(m->words, sizeof m->words, "%s", words); /* fits */
    if (membership_health(m->membership) == MEMBERSHIP_UNWELCOME) {
        say(m, SPOOL_EVENT_ENDED, "%s", words);
    } else if (words[0] != '\0') {
        say(m, SPOOL_EVENT_WARNING, "nothing is accepted or delivered: %s", words);
    } else {
        say(m, SPOOL_EVENT_LOG, "the database is as it should be again");
    }
}

void engine_member_tell_reading(struct engine_member *m, const char *why_not)
{
    if (strcmp(why_not, m->unread) == 0) {
        return;
    }
    (void)snprintf(m->unread, sizeof m->unread, "%s", why_not); /* fits */
    if (why_not[0] != '\0') {
        say(m, SPOOL_EVENT_WARNING, "mail that waits can't be read for now: %s", why_not);
    } else {
        say(m, SPOOL_EVENT_LOG, "mail that waits can be read again");
    }
}

/* Ends the program in order when the tables have got a format that it does not know. */
static void stop_if_outdated(struct engine_member *m)
{
    if (!m->stops && membership_is_outdated(m->membership) &&
        membership_number(m->membership) != MEMBERSHIP_NOBODY) {
        m->stops = true;
        say(m, SPOOL_EVENT_STOP,
            "the tables have format %" PRId64 ", this program knows %d to %d: it stops in order",
            member_link_renewal(m->link)->format, m->config.format_min, m->config.format_max);
    }
}

/* Logs once why the lease is not renewed. */
static void say_why(struct engine_member *m, int64_t now)
{
    struct slice why = slice_trim(slice_string(member_link_error(m->link)));

    if (membership_deadline(m->membership).us > now) {
        m->has_said_why = false;
    } else if (!m->has_said_why && why.len > 0) {
        m->has_said_why = true;
        say(m, SPOOL_EVENT_WARNING, "node %s: its lease is not renewed: %.*s", m->name,
            SLICE_ARGS(why));
    }
}

static void follow_texts(struct cluster_spool *s, int64_t now)
{
    struct engine_member *m = s->member;
    const struct member_renewal *renewal = member_link_renewal(m->link);
    bool was_late = m->is_late;

    if (member_link_has_texts(m->link)) {
        shared_texts_woken(s->shared);
    }
    if (m->lapses != membership_lapses(m->membership)) {
        m->lapses = membership_lapses(m->membership);
        shared_texts_doubt(s->shared);
    }
    shared_texts_turn(s->shared, renewal->format, renewal->interventions, now);
    m->is_late = s->committer != NULL && shared_texts_is_current(s->shared) &&
                 shared_texts_is_late(s->shared, now);
    if (m->is_late && !was_late) {
        say(m, SPOOL_EVENT_WARNING,
            "nothing is delivered: what operators ordered at other nodes can't be read: %s",
            shared_texts_error(s->shared)[0] != '\0' ? shared_texts_error(s->shared)
                                                     : "the database does not answer");
    }
}

/* ---- routing tables -------------------------------------------------------------------------- */

static void warn_of_old_tables(struct engine_member *m, const struct member_renewal *r, int64_t now)
{
    if (r->route == 0) {
        return; /* unknown */
    }
    if (r->route >= r->active_route) {
        m->old_since = now;
    } else if (m->warned_of != r->active_route &&
               (m->old_since == 0 || now - m->old_since >= OLD_TABLES_US)) {
        m->warned_of = r->active_route;
        say(m, SPOOL_EVENT_WARNING,
            "node %s: its routing tables (number %" PRId64 ") are not those in force (%" PRId64
            "): mail that these have routed keeps its routes. sluice reload puts them in force",
            m->name, r->route, r->active_route);
    }
}

static void look_at_tables(struct engine_member *m, int64_t now)
{
    const struct member_renewal *r = member_link_renewal(m->link);

    if (r->route != m->route || r->route == 0 || r->route < r->active_route) {
        m->in_force_since = now;
    }
    if (r->route != m->route) {
        m->route = r->route;
        tell(m, SPOOL_EVENT_ROUTES, (struct msg_id){0});
    }
    warn_of_old_tables(m, r, now);
}

void engine_member_route_by(struct engine_member *m, uint64_t fingerprint)
{
    member_link_tables(m->link, fingerprint, true);
    m->route = member_link_renewal(m->link)->route;
    m->has_told = true;
}

uint64_t engine_member_route(const struct engine_member *m)
{
    return (uint64_t)m->route;
}

/* The tables must have been in force for so long that all nodes which may deliver know it. Then
 * no node uses older tables and moves mail back. */
bool engine_member_routes_are_in_force(const struct engine_member *m)
{
    return m->in_force_since != 0 && boot_now().us - m->in_force_since >= m->config.times->dead_us;
}

/* ---- the commit that the database must have -------------------------------------------------- */

static void expect(struct engine_member *m, struct member_marker marker)
{
    int err;

    m->marker = marker;
    member_link_expect(m->link, &marker);
    err = marker_file_write(&m->marker_file, &marker);
    if (err != 0 && !m->marker_is_lost) {
        say(m, SPOOL_EVENT_WARNING,
            "node %s: the file cluster-marker in the state directory can't be written (%s): a "
            "daemon that starts again does not find out that a server lacks acknowledged mail",
            m->name, strerror(-err));
    }
    m->marker_is_lost = err != 0;
}

void engine_member_keep(struct cluster_spool *s)
{
    struct engine_member *m = s->member;
    struct member_marker marker = {.accepted = m->marker.accepted};

    if (s->committer != NULL) {
        marker.number = committer_kept(s->committer, &marker.no);
    }
    if (marker.number != 0 && (marker.number != m->marker.number || marker.no != m->marker.no)) {
        marker.at_us = wall_now().us;
        expect(m, marker);
    }
}

static void tell_status(struct cluster_spool *s);

/* Handles an operator's order to go on without lost changes. */
static void look_at_losses(struct cluster_spool *s)
{
    struct engine_member *m = s->member;
    int64_t accepted = member_link_renewal(m->link)->accepted;

    if (membership_lacks(m->membership) != m->lacks) {
        m->lacks = !m->lacks;
        tell_status(s);
    }
    if (membership_health(m->membership) != MEMBERSHIP_FIT || accepted <= m->marker.accepted) {
        return;
    }
    if (m->marker.number != 0) {
        say(m, SPOOL_EVENT_WARNING, "node %s: an operator has accepted that mail may be lost",
            m->name);
    }
    if (s->committer != NULL) {
        committer_forget(s->committer);
    }
    expect(m, (struct member_marker){.accepted = accepted});
}

/* ---- clocks ---------------------------------------------------------------------------------- */

static int clock_order(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

/* Finds the median of the clocks of the database and all nodes, relative to the database's clock,
 * so that one wrong clock has no effect. Between two medians it returns the value nearest to the
 * own clock. */
static int64_t middle_clock(const struct engine_member *m, int64_t own)
{
    int64_t clocks[MEMBERSHIP_NODES_MAX + 1] = {0, own}; /* first the database's clock */
    size_t count = 2;

    for (int no = 0; no < MEMBERSHIP_NODES_MAX; no++) {
        int64_t clock_us = member_link_words(m->link, no)->clock_us;

        if (no != membership_number(m->membership) && clock_us != MEMBER_LINK_NO_CLOCK &&
            engine_member_node_is_up(m, no)) {
            clocks[count++] = clock_us;
        }
    }
    qsort(clocks, count, sizeof clocks[0], clock_order);
    return own < clocks[(count - 1) / 2] ? clocks[(count - 1) / 2]
           : own > clocks[count / 2]     ? clocks[count / 2]
                                         : own;
}

static void say_clock(struct engine_member *m, int64_t own, int64_t now)
{
    int64_t change = own - m->clock_said_us;

    if (own > -CLOCK_US && own < CLOCK_US) {
        if (m->clock_said_us != 0) {
            m->clock_said_us = 0;
            say(m, SPOOL_EVENT_LOG, "node %s: its clock agrees with the database's again", m->name);
        }
        return;
    }
    if (change > -CLOCK_CHANGE_US && change < CLOCK_CHANGE_US &&
        now - m->clock_said_at < CLOCK_AGAIN_US) {
        return;
    }
    m->clock_said_us = own;
    m->clock_said_at = now;
    say(m, SPOOL_EVENT_WARNING, "node %s: its clock is %.1f s %s the database's%s", m->name,
        (double)(own < 0 ? -own : own) / (double)US_PER_S, own < 0 ? "behind" : "ahead of",
        m->clock_off_us != 0 ? ", and does not agree with those of the other nodes: times of mail "
                               "go by theirs"
                             : "");
}

static void compare_clocks(struct cluster_spool *s, int64_t now)
{
    struct engine_member *m = s->member;
    int64_t own = member_link_clock(m->link), off;

    if (m->renewals == member_link_renewals(m->link) || own == MEMBER_LINK_NO_CLOCK) {
        return;
    }
    m->renewals = member_link_renewals(m->link);
    off = own - middle_clock(m, own);
    off = off > -CLOCK_US && off < CLOCK_US ? 0 : off;
    if (off == 0 || off - m->clock_off_us >= CLOCK_CHANGE_US ||
        m->clock_off_us - off >= CLOCK_CHANGE_US) {
        m->clock_said_at =
            (off == 0) == (m->clock_off_us == 0) ? m->clock_said_at : now - CLOCK_AGAIN_US;
        m->clock_off_us = off;
    }
    say_clock(m, own, now);
    tell_status(s);
}

int64_t engine_member_clock_off_us(const struct engine_member *m)
{
    return m->clock_off_us;
}

int64_t engine_member_clock_us(const struct engine_member *m)
{
    int64_t own = member_link_clock(m->link);

    return own == MEMBER_LINK_NO_CLOCK ? 0 : own;
}

bool engine_member_must_hold(const struct engine_member *m)
{
    return engine_member_is_unfit(m) &&
           (membership_has_loss(m->membership) || membership_is_settling(m->membership));
}

bool engine_member_lacks(const struct engine_member *m)
{
    return membership_has_loss(m->membership);
}

const char *engine_member_why(const struct engine_member *m)
{
    const char *words = membership_words(m->membership);

    return words[0] != '\0' ? words : member_link_error(m->link);
}

static void look_for_arrivals(struct cluster_spool *s, int64_t now)
{
    struct engine_member *m = s->member;
    int no = membership_number(m->membership);

    if (no != MEMBERSHIP_NOBODY && !m->is_over && (m->is_woken || now >= m->look_at)) {
        m->is_woken = false;
        m->look_at = now + ARRIVALS_US;
        loader_look_for_arrivals(s->loader, no, membership_incarnation(m->membership), now);
    }
}

void engine_member_turn(struct cluster_spool *s)
{
    struct engine_member *m = s->member;
    int64_t now;

    reserve(m);
    engine_member_keep(s);
    member_link_turn(m->link);
    look_at_losses(s);
    s->timeline = membership_timeline(m->membership);
    take_events(s);
    say_words(m);
    stop_if_outdated(m);
    if (m->is_over && s->desk.under_way_count == 0 && !s->base.dirty) {
        clear(s);
    }
    enter(s);
    s->handover.has_table = member_link_renewal(m->link)->format >= HANDOVER_FORMAT;
    gain(s);
    drain(s);
    now = boot_now().us;
    say_why(m, now);
    look_again(s, now);
    look_at_tables(m, now);
    compare_clocks(s, now);
    forget_foreign(s, now);
    look_for_arrivals(s, now);
    if (member_link_has_asks(m->link)) {
        asks_woken(s->asks);
    }
    asks_turn(s->asks, membership_number(m->membership), membership_incarnation(m->membership),
              now);
    follow_texts(s, now);
    if (s->housekeeper != NULL) {
        housekeeper_set_duty(s->housekeeper, s->finder.is_mine[0]);
    }
    if (m->has_told) {
        m->has_told = false;
        member_link_turn(m->link);
    }
}

/* ---- facts about this node ------------------------------------------------------------------- */

bool engine_member_is_out(const struct engine_member *m)
{
    return m->is_registered || membership_number(m->membership) == MEMBERSHIP_NOBODY;
}

bool engine_member_is_unfit(const struct engine_member *m)
{
    return membership_health(m->membership) != MEMBERSHIP_FIT;
}

int engine_member_number(const struct engine_member *m)
{
    return membership_number(m->membership);
}

void engine_member_tell(struct engine_member *m, const struct partition_set *told)
{
    int self = membership_number(m->membership);
    bool has_told = false;

    for (int p = 0; p < PARTITIONS; p++) {
        if (partition_set_has(told, p)) {
            int owner = membership_owner(m->membership, p);

            if (owner != MEMBERSHIP_NOBODY && owner != self) {
                member_link_notify(m->link, owner);
                m->given_at[owner] = boot_now().us;
                has_told = true;
            }
        }
    }
    if (has_told) {
        member_link_turn(m->link);
    }
}

/* ---- the other nodes ------------------------------------------------------------------------- */

int engine_member_owner(const struct engine_member *m, unsigned partition)
{
    CHECK(partition < PARTITIONS);
    return membership_owner(m->membership, (int)partition);
}

int64_t engine_member_unowned_us(const struct engine_member *m, unsigned partition)
{
    CHECK(partition < PARTITIONS);
    return membership_unowned_us(m->membership, (int)partition, boot_now());
}

const char *engine_member_node_name(const struct engine_member *m, int node)
{
    return membership_name(m->membership, node);
}

bool engine_member_node_is_up(const struct engine_member *m, int node)
{
    return membership_is_up(m->membership, node, boot_now());
}

bool engine_member_node_seen(const struct engine_member *m, int node, struct spool_node_facts *ret)
{
    static const char *const names[] = {"waiting", "up",      "draining",
                                        "stopped", "stopped", "removed"};
    enum node_state state;

    if (!membership_seen(m->membership, node, boot_now(), &state, &ret->silent_us)) {
        return false;
    }
    ret->state = state >= NODE_WAITING && state <= NODE_REMOVED ? names[state] : "?";
    ret->partitions = 0;
    for (int p = 0; p < PARTITIONS; p++) {
        ret->partitions += membership_owner(m->membership, p) == node;
    }
    return true;
}

unsigned engine_member_nodes_up(const struct engine_member *m)
{
    return (unsigned)membership_nodes_up(m->membership, boot_now());
}

uint64_t engine_member_given_up(const struct engine_member *m)
{
    return m->given_up;
}

static void tell_status(struct cluster_spool *s)
{
    const struct engine_member *m = s->member;
    char clock[40] = "", lost[120] = "", json[400];

    if (member_link_clock(m->link) != MEMBER_LINK_NO_CLOCK) {
        (void)snprintf(clock, sizeof clock, ", \"clock\": %" PRId64,
                       member_link_clock(m->link)); /* fits, as below */
    }
    if (m->lacks) {
        (void)snprintf(lost, sizeof lost,
                       ", \"lost\": %" PRId64 ", \"lost_number\": %" PRId64
                       ", \"lost_at\": %" PRId64,
                       m->marker.accepted + 1, m->marker.number, m->marker.at_us);
    }
    (void)snprintf(json, sizeof json,
                   "{\"behind\": %" PRIu64 ", \"drift\": %" PRIu64 ", \"interventions\": %" PRIu64
                   ", \"under_way\": %" PRIu64 ", \"awaited\": %" PRIu64 "%s%s}",
                   m->own_words.behind, s->recount.drift, m->changes, m->own_words.under_way,
                   m->own_words.awaited, clock, lost);
    member_link_status(m->link, json);
}

void engine_member_tell_others(struct cluster_spool *s, const struct spool_node_words *words)
{
    s->member->own_words = *words;
    tell_status(s);
}

void engine_member_go_by(struct cluster_spool *s, uint64_t changes)
{
    s->member->changes = changes;
    tell_status(s);
    (void)member_link_renew(s->member->link);
    s->member->has_told = true;
}

uint64_t engine_member_watch(struct engine_member *m)
{
    m->has_told = true;
    return member_link_renew(m->link);
}

bool engine_member_find_behind(struct engine_member *m, uint64_t watch, uint64_t changes,
                               uint64_t *ret_nodes)
{
    int self = membership_number(m->membership);
    bool is_known = self != MEMBERSHIP_NOBODY && member_link_renewals(m->link) >= watch;

    *ret_nodes = 0;
    for (int no = 0; no < MEMBERSHIP_NODES_MAX; no++) {
        if (no != self && engine_member_node_is_up(m, no) &&
            (!is_known || member_link_words(m->link, no)->interventions < (int64_t)changes)) {
            *ret_nodes |= UINT64_C(1) << no;
        }
    }
    if (!is_known || *ret_nodes != 0) {
        (void)engine_member_watch(m);
    }
    return is_known;
}

uint64_t engine_member_others_behind(const struct engine_member *m)
{
    int64_t now = boot_now().us;
    uint64_t most = 0;

    for (int no = 0; no < MEMBERSHIP_NODES_MAX; no++) {
        uint64_t behind = member_link_words(m->link, no)->behind;

        if (m->given_at[no] != 0 && now - m->given_at[no] < GIVEN_US && behind > most) {
            most = behind;
        }
    }
    return most;
}

void engine_member_tell_drift(struct engine_member *m, uint64_t messages)
{
    say(m, SPOOL_EVENT_WARNING,
        "node %s: what waits was counted wrong by %" PRIu64 " messages, and is put right", m->name,
        messages);
}

void engine_member_notify_ask(struct engine_member *m, int node)
{
    member_link_notify_ask(m->link, node);
    m->has_told = true;
}

void engine_member_notify_texts(struct engine_member *m)
{
    int self = membership_number(m->membership);

    for (int no = 0; no < MEMBERSHIP_NODES_MAX; no++) {
        if (no != self && engine_member_node_is_up(m, no)) {
            member_link_notify_text(m->link, no);
        }
    }
    member_link_turn(m->link);
}

uint64_t engine_member_gains(const struct engine_member *m)
{
    return m->gains;
}

/* ---- interface ------------------------------------------------------------------------------- */

static void woken(void *arg)
{
    struct cluster_spool *s = arg;

    s->member->is_woken = true;
}

static struct committer_batch *letting_go(void *arg, const struct partition_set *partitions)
{
    struct cluster_spool *s = arg;

    return handover_of(&s->handover, partitions);
}

/* Reads the marker that an earlier process of this node has written. */
static void begin_to_expect(struct engine_member *m, const struct cluster_url *url,
                            const struct conf *conf)
{
    int err = 0;

    m->marker_file.fd = -1;
    if (conf != NULL && conf->state_directory != NULL && conf->state_directory[0] != '\0') {
        err = marker_file_open(&m->marker_file, conf->state_directory, url->target.database,
                               url->schema, m->name, &m->marker);
        member_link_expect(m->link, &m->marker);
    }
    if (err != 0) {
        say(m, SPOOL_EVENT_WARNING,
            "%s/cluster-marker: %s: a daemon that starts again does not find out that a server "
            "lacks acknowledged mail",
            conf->state_directory, strerror(-err));
    }
}

struct engine_member *engine_member_new(struct cluster_spool *s, const struct conf *conf,
                                        uint64_t id_floor)
{
    static const struct member_link_owner owner = {.woken = woken, .letting_go = letting_go};
    struct engine_member *m = mem_new(sizeof *m);
    struct conf none = {.cluster_node = "sluice", .cluster_standby = CONF_CLUSTER_STANDBY_NONE};

    told_events_init(&m->events);
    m->last_id = id_floor;
    m->config = member_config(conf != NULL ? conf : &none);
    m->name = mem_string(m->config.name);
    m->config.name = m->name;
    m->link = member_link_new(s->epoll_fd, &s->url.target, &m->config, &owner, s);
    m->membership = member_link_membership(m->link);
    begin_to_expect(m, &s->url, conf);
    m->has_tables = conf != NULL && conf->route_tables != 0;
    if (m->has_tables) {
        member_link_tables(m->link, conf->route_tables, false);
    }
    return m;
}

/* Waits until something can be read, at most 100 ms. */
static void wait(const struct cluster_spool *s)
{
    struct pollfd ready = {.fd = s->epoll_fd, .events = POLLIN};

    (void)poll(&ready, 1, 100);
}

int engine_member_wait(struct cluster_spool *s, const struct spool_options *options,
                       struct buf *ret_error)
{
    struct engine_member *m = s->member;
    struct mono began = boot_now();

    for (;;) {
        bool is_unfit = engine_member_is_unfit(m) && !membership_is_settling(m->membership);
        struct mono until =
            mono_after(began, is_unfit ? ENGINE_MEMBER_UNFIT_US : ENGINE_MEMBER_START_US);

        engine_member_turn(s);
        housekeeper_turn(s->housekeeper); /* unhandled events would end each wait at once */
        loader_turn(s->loader);
        engine_search_turn(s->search);
        if (s->committer != NULL) {
            committer_turn(s->committer);
        }
        if (s->committer != NULL && membership_is_settled(m->membership) &&
            (m->route != 0 || !m->has_tables) && shared_texts_is_current(s->shared)) {
            gain(s);
            return 0;
        }
        if (options->is_over != NULL && options->is_over(options->arg)) {
            (void)buf_addf(ret_error, "spool %s: not waited for any longer", s->url.text);
            return -ECANCELED;
        }
        if (membership_left(m->membership)) {
            (void)buf_addf(ret_error, "spool %s: %s", s->url.text, membership_words(m->membership));
            return -EPROTO;
        }
        if (mono_reached(until, boot_now())) {
            const char *words = membership_words(m->membership);

            (void)buf_addf(ret_error, "spool %s: %s", s->url.text,
                           words[0] != '\0' ? words : member_link_error(m->link));
            return -EIO;
        }
        wait(s);
    }
}

void engine_member_leave(struct cluster_spool *s)
{
    struct engine_member *m = s->member;
    struct mono until = mono_after(boot_now(), ENGINE_MEMBER_END_US);

    membership_leave_now(m->membership);
    for (;;) {
        member_link_turn(m->link);
        if (membership_left(m->membership) || mono_reached(until, boot_now())) {
            return;
        }
        wait(s);
    }
}

void engine_member_free(struct engine_member *m)
{
    if (m == NULL) {
        return;
    }
    told_events_fini(&m->events);
    marker_file_close(&m->marker_file);
    member_link_free(m->link);
    mem_free(m->name);
    mem_free(m);
}
