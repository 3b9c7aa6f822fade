/*
 * The scheduler's interface: messages, facts, decisions. First, an overview of the whole method.
 *
 * The decisions are those of Postfix (qmgr, since 2.1; its SCHEDULER_README explains them). Postfix
 * finds them by walking lists. With 10^6 jobs no walk is short, so here the same choice is found in
 * another way. tests/unit/core/reference.c keeps the walks; random histories compare both decision
 * by decision.
 *
 * Selection. Postfix walks its list of jobs from `current` and takes the first job that has a peer
 * with a waiting entry whose destination has room. Jobs that have none are marked as blockers and
 * skipped until a destination they wait for has room again, which unmarks all and starts over at
 * the head. So the choice is the first job in list order that can be served: marks only save
 * walking. Here jobs carry labels that ascend along the list (order.h). Each destination keeps its
 * peers with waiting entries in a tree by label; each transport keeps the destinations that have
 * room and work in a heap by the label of their first peer's job. The top of the heap is the
 * choice:
 *
 *   Let J be the first job that can be served, through destination d. No job before J can be, so no
 *   job before J waits for any destination with room, so J's peer is the first of d, and d's key is
 *   J's label. No other key is less, as each key is the label of a job that can be served.
 *
 * By the same argument every peer of J that can be served is the first of its destination. So all
 * of them have equal labels at the top, and among equal labels the heap compares rotation. A job's
 * peers are a ring with labels; the cycle starts after `last`, the peer chosen before. Choosing
 * peer b moves b from the front of the cycle to its end. The peers between the old and the new
 * start could not be served and so are in no heap; all others keep their order to one another. One
 * heap node moves.
 *
 * A window that opens or closes thus costs O(log n), whatever waits for it.
 *
 * Marks. They do matter in three places. A known blocker is no candidate for preemption, its
 * message is not read further, and its release moves `current` back to the head. The preemption
 * test applies to `current`. A walk marks all jobs that it passes. So the jobs marked since the
 * last release are the jobs before `frontier`, the farthest point of any walk, except the few in
 * `fresh`. These were linked or moved in front of the frontier, or unmarked because recipients
 * arrived. Marking a million jobs is moving a pointer; releasing them, too. A destination that gets
 * room releases the blockers if a job in its tree is marked. Usually its first job is marked,
 * unless that job is fresh or after the frontier.
 *
 * A walk would stop at some jobs though they can't be served, because more of their recipients may
 * be read, or because they have no entries left and must be retired. These jobs are in the heap
 * `attention`. Marked ones among them go to the heap `skipped` when they reach the top. A release
 * puts them back, and then each is read further, or is retired, or is after the choice, so that the
 * cost is covered by that work.
 *
 * Candidates. Postfix scores all jobs after the current one by age / total entries, within a limit
 * on entries still needed, and takes the best, the first among equals. Here a tree over the list
 * has the best of each subtree and the time until which it stays the best; see sched_list.c. Only
 * unmarked jobs are candidates, and all of them are after the current one: the jobs from the
 * frontier on, and `fresh`. Postfix's early end of the search (no job on level 0 further on can be
 * better, as these are in order of age) never changes the result. Another rule does, and is
 * reproduced: a candidate is kept for the rest of the second, the lack of one until something new
 * arrives.
 *
 * Reading in the middle of a selection. sched_next returns SCHED_READ. With the answer (or without,
 * if the owner takes its time) the walk goes on at the job that it had reached, without a second
 * test for preemption.
 *
 * Shares. In Postfix one slow destination fills the active queue and all others wait. Here the
 * threshold moves: T = destination_share per cent of the places left. A single destination with a
 * backlog may fill half of memory; of n such destinations each gets 1/(n+1), and one part stays
 * free for the rest. No list of large destinations is kept and no share must be configured. The
 * threshold is checked when mail arrives (sched_share_full), and when an entry of a message ends
 * and the rest of the message waits for one destination (SCHED_PARK). It is also checked when there
 * is nothing else to decide (SCHED_ADMIT). The last check uses a heap of the destinations that have
 * parked mail and less in memory than keeps their window busy, least first. A SCHED_ADMIT reserves
 * its places until it is answered, so that answers always fit and a thousand unanswered requests
 * don't ask for the same place. It requests as many messages as four windows hold; a destination
 * that ran dry before the answer gets twice as many from then on. All of this is by class, too: the
 * backlog of one class at a destination is treated like that of another destination. The window of
 * a destination applies to all its classes at once, so only the class with least in memory is in
 * the heap. A window that moves thus costs the same for any number of classes.
 *
 * Failing destinations (a delivery failed since one succeeded) may have only a part of a
 * transport's deliveries, because each of theirs may last for a timeout. The limit is checked when
 * a failing destination reaches the top of the heap: at the limit it is removed and held back in a
 * list, closed as if its window were full. When a delivery is available again the first of the list
 * is opened. So a destination whose turn does not come costs nothing, and nothing changes for the
 * others.
 *
 * Unproven destinations, to which no delivery has succeeded yet, could otherwise take all
 * deliveries with their first attempts if many can't be reached, before one has failed. They have a
 * part of the deliveries that failing ones leave, separate from these, because an unknown site must
 * not wait for all that fail. Each of them that is reached allows one more delivery for a second or
 * two. So a list of sites that are all well is soon served by all deliveries. Among those held back
 * the oldest and the newest are released alternately: a site whose mail is queued behind hundreds
 * that hang has its first attempt when two of them have ended. Their timeouts are long, so a
 * newcomer need not wait for that. A newcomer came after the last one, and for half a second
 * nothing came after it, so a list of unknown sites has one newcomer. It gets a delivery beyond the
 * share, as long as another is left for proven destinations. The n-th one at a time waits for n
 * seconds after the one before. Proven and failing destinations are remembered as such for an hour
 * without mail. Otherwise the next message of a proven one would be held back, and those that
 * failed would be newcomers at each attempt.
 *
 * Rings. A destination that needs an agent of a ring is closed, too, as if its window were full,
 * and stands in line; the first of the line is opened when there is an agent for it. See
 * sched_ring.c.
 *
 * Classes. Everything above applies within one class of mail: a transport has a class queue for
 * each class that has mail there, with its own list, marks and heap, and in each the order is
 * Postfix's. A destination has a queue of its own for each class queue with mail for it (struct
 * dest_queue), and with a single class queue none of the following is done. Several class queues
 * take turns by weight (turns.h) in two places. At a destination with room only the queue whose
 * turn it is is shown, that is, put into the heap of its class queue. For the other class queues
 * the destination is closed as if the window were full. And among the class queues whose heaps are
 * not empty the transport takes from the one whose turn it is.
 *
 * While the transport takes whatever is ready, the class queue whose turn it is uses each opening
 * of a window, so each class has its share of each destination. When the transport is the
 * bottleneck (process_limit, a rate delay), that class queue may be busy elsewhere for long, while
 * another that the transport would serve waits here. So then more is shown. New mail for a
 * destination with room is shown at once. Waiting queues are shown a few at a time with each
 * delivery that begins, after the class queue whose turn it is has had the time that the transport
 * needs to reach it. Each delivery uses up a turn, whichever class used it. No delivery stays
 * unused while mail could use it, and no work is linear in class queues: showing is paid for by
 * deliveries, hiding by showing.
 *
 * Recipient slots and the active queue are not divided: memory does not grow with classes, and
 * nothing is reserved for a class without mail.
 *
 * Chores. A message of a million recipients is dropped, or all destinations of a transport are
 * changed, in pieces between decisions; see sched_chore.c.
 *
 * Time. Ages, the candidate's second and the refill delay are in whole seconds, as Postfix's clocks
 * are; timers and rate delays in microseconds.
 *
 * Departures from Postfix, on purpose:
 * - No pending connections to agents: an entry is selected when the transport is alive, not
 *   between two starts under a rate delay, below its process limit, and has a ready destination. An
 *   overcommitted destination therefore does not hide the work of others. Transports take turns in
 *   the same cyclic order.
 * - Recipients for dead destinations and transports don't become entries of a retry transport: they
 *   are handed to the owner (SCHED_DEFER). Recipients that wait already are handed over one message
 *   at a time: EARLY_DRAINS messages before any deliveries, the rest when there is nothing else to
 *   decide, so that a death with a million waiting entries stalls nothing.
 * - A destination with a rate delay that dies stays dead for minimal_backoff like any other.
 * - The rate delay of a transport is from start to start. No action or failure of an agent keeps
 *   the transport locked.
 * - A crash of an agent is no feedback, and does not throttle the transport.
 * - A success that ends while its destination is suspended by a rate delay is no feedback.
 * - Shares of the active queue and of the deliveries, unless destination_share and
 *   failing_share are 0.
 * - Classes of mail, unless there is only one.
 * - Rings, and agents that have several entries at once, where the policy requires them.
 * - sched_drop and sched_unselect do not exist in Postfix. The first forgets recipients; after the
 *   second the job can be found again as if recipients had arrived for it.
 * - A dead destination whose time is over gets one delivery, a probe, not a window full. If the
 *   probe fails the destination is dead for as long again, then for twice as long each time, up to
 *   maximal_backoff. If the probe succeeds the window starts again at the initial size, or at its
 *   last size while the destination was well if that was less. Under WINDOW_POSTFIX the destination
 *   starts with an initial window, and is dead for minimal_backoff each time.
 * - The feedback of a destination (window and sums, number of deaths, its connection cache) is not
 *   forgotten when the destination has no more mail but fades over destination_memory: linearly,
 *   and from the moment it became idle, as a busy one is up to date. The fading is computed when
 *   mail arrives again. Idle destinations are in a list in the order in which they became idle. A
 *   few are freed from its front with each new destination, if they are too old or too many. With a
 *   memory of 0 they are freed at once, as in Postfix, unless dead or suspended.
 */
#include "scheduler.h"

#include <string.h>

#include "check.h"
#include "mem.h"
#include "sched_private.h"

/* ---- memory --------------------------------------------------------------------------------- */

void *sched_alloc(struct sched *s, size_t size)
{
    s->bytes += size;
    return mem_new(size);
}

void sched_release(struct sched *s, void *ptr, size_t size)
{
    s->bytes -= size;
    mem_free(ptr);
}

struct reason *reason_new(struct slice text)
{
    size_t len = text.len < SCHED_REASON_MAX ? text.len : SCHED_REASON_MAX;
    struct reason *reason = mem_new(sizeof *reason + len + 1);

    reason->refs = 1;
    reason->len = (uint32_t)len;
    if (len > 0) {
        memcpy(reason->text, text.ptr, len);
    }
    return reason;
}

struct reason *reason_ref(struct reason *reason)
{
    if (reason != NULL) {
        reason->refs++;
    }
    return reason;
}

void reason_unref(struct reason *reason)
{
    if (reason != NULL && --reason->refs == 0) {
        mem_free(reason);
    }
}

struct slice reason_slice(const struct reason *reason)
{
    return reason != NULL ? slice_of(reason->text, reason->len) : slice_of("", 0);
}

void sched_event(struct sched *s, enum sched_action_type type, const struct dest *d)
{
    struct event *event = mem_new(sizeof *event);

    event->type = type;
    event->transport = d->transport;
    event->dest = mem_copy(d->name, d->name_len);
    event->dest_len = d->name_len;
    event->reason = reason_ref(d->reason);
    event->until.us = d->state == DEST_DEAD ? d->timer.at_us : 0;
    event->window = d->window.size;
    STAILQ_INSERT_TAIL(&s->events, event, link);
}

static void event_free(struct event *event)
{
    if (event != NULL) {
        mem_free(event->dest);
        reason_unref(event->reason);
        mem_free(event);
    }
}

static void deferral_free(struct deferral *deferral)
{
    if (deferral != NULL) {
        reason_unref(deferral->reason);
        mem_free(deferral->dest);
        mem_free(deferral->rcpts);
        mem_free(deferral);
    }
}

/* ---- messages ------------------------------------------------------------------------------- */

struct message *message_find(const struct sched *s, struct sched_msg id)
{
    return ids_find(&s->messages, id.n);
}

void message_list(struct sched *s, struct message *m, enum message_list to)
{
    struct message_list_head *lists[] = {
        [LIST_NONE] = NULL,           [LIST_TO_READ] = &s->to_read,   [LIST_DONE] = &s->done,
        [LIST_TO_PARK] = &s->to_park, [LIST_DROPPING] = &s->dropping,
    };

    if (m->list == to) {
        return;
    }
    if (lists[m->list] != NULL) {
        TAILQ_REMOVE(lists[m->list], m, link);
    }
    if (lists[to] != NULL) {
        TAILQ_INSERT_TAIL(lists[to], m, link);
    }
    m->list = (uint8_t)to;
}

void message_check(struct sched *s, struct message *m)
{
    bool idle = m->entries == 0 && m->deferrals == 0 && !m->reading;

    if (m->list != LIST_DROPPING) { /* only its chore removes it from this list */
        message_list(s, m, !idle ? LIST_NONE : m->all_read ? LIST_DONE : LIST_TO_READ);
    }
}

void message_park_check(struct sched *s, struct message *m)
{
    if (m->list == LIST_NONE && share_evicts(s, m)) {
        message_list(s, m, LIST_TO_PARK);
    }
}

void message_free(struct sched *s, struct message *m)
{
    CHECK(m->entries == 0);
    CHECK(m->rcpt_count == 0);
    message_list(s, m, LIST_NONE);
    while (!SLIST_EMPTY(&m->jobs)) {
        struct job *j = SLIST_FIRST(&m->jobs);
        SLIST_REMOVE_HEAD(&m->jobs, of_message);
        job_free(j);
    }
    ids_remove(&s->messages, m->id.n);
    class_unref(s, m->mail_class);
    slab_free(&s->message_slab, m);
}

static void message_all_read(struct message *m)
{
    m->all_read = true;
    m->rcpt_unread = 0;
    message_slots_returned(m);
    message_changed(m);
}

/* ---- transports ----------------------------------------------------------------------------- */

static void limits_for_delay(struct window_limits *limits, int64_t rate_delay_us)
{
    if (rate_delay_us > 0) {
        limits->initial = limits->max = 1;
    }
}

void dest_limits_changed(struct dest *d)
{
    if (!d->used && d->state != DEST_DEAD) {
        window_init(&d->window, dest_limits(d));
    } else {
        window_limits_changed(&d->window, dest_limits(d));
    }
    dest_refresh(d, NULL);
}

static struct transport *transport_at(const struct sched *s, uint32_t index)
{
    CHECK(index < s->transport_count);
    return s->transports[index];
}

static struct transport *transport_new(struct sched *s, const char *name)
{
    struct transport *t = sched_alloc(s, sizeof *t);

    CHECK(s->transport_count < SCHED_TRANSPORTS_MAX);
    t->sched = s;
    t->name = mem_string(name);
    t->index = s->transport_count;
    heap_init(&t->wanting, parking_less);
    for (int i = 0; i < STANDINGS; i++) {
        TAILQ_INIT(&t->held_back[i]);
    }
    TAILQ_INIT(&t->in_line);
    transport_slots_init(t);
    class_queue_init(&t->plain, t);
    class_turns_init(&t->turns_of_queues, s);
    TAILQ_INIT(&t->with_jobs);
    TAILQ_INIT(&t->unshown);
    timer_init(&t->dead, TIMER_TRANSPORT_DEAD);
    timer_init(&t->rate, TIMER_TRANSPORT_RATE);
    timer_init(&t->newcomer, TIMER_NEWCOMER);
    t->newcomer_us = INT64_MIN / 2;
    s->transports = mem_resize(s->transports, s->transport_count + 1, sizeof(struct transport *));
    s->transports[s->transport_count++] = t;
    TAILQ_INSERT_HEAD(&s->turns, t, turn);
    return t;
}

uint32_t sched_transport(struct sched *s, struct mono now, const char *name,
                         const struct sched_transport_policy *policy)
{
    struct transport *t = NULL;
    struct class_queue *q;

    s->now = now;
    CHECK(policy->slot_cost >= 0);
    CHECK(policy->minimum_slots >= 0);
    for (uint32_t i = 0; i < s->transport_count && t == NULL; i++) {
        if (strcmp(s->transports[i]->name, name) == 0) {
            t = s->transports[i];
        }
    }
    if (t == NULL) {
        t = transport_new(s, name);
    }
    transport_slots_added(t, (int64_t)policy->recipient_limit - t->policy.recipient_limit);
    t->policy = *policy;
    t->limits = policy->window;
    limits_for_delay(&t->limits, policy->dest_rate_delay_us);
    if (policy->transport_rate_delay_us <= 0 && t->rate_locked) {
        t->rate_locked = false;
        timer_cancel(s, &t->rate);
    }
    s->agents_moved_us = now.us;
    t->policy_told = chore_sweep(s);
    chores_run(s, now);
    TAILQ_FOREACH(q, &t->with_jobs, link)
    {
        class_queue_forget_candidate(q);
    }
    return t->index;
}

static void transport_revive(struct transport *t)
{
    if (t->reason != NULL) {
        reason_unref(t->reason);
        t->reason = NULL;
        timer_cancel(t->sched, &t->dead);
    }
}

static void transport_free(struct transport *t)
{
    struct dest *d, *next;

    HASH_ITER(hh, t->dests, d, next)
    {
        dest_free(d);
    }
    rings_free(t);
    transport_revive(t);
    timer_cancel(t->sched, &t->rate);
    timer_cancel(t->sched, &t->newcomer);
    heap_fini(&t->wanting);
    heap_fini(&t->unread);
    class_queues_free(t);
    mem_free(t->name);
    sched_release(t->sched, t, sizeof *t);
}

/* ---- life ----------------------------------------------------------------------------------- */

static bool timer_less(const struct heap_node *a, const struct heap_node *b)
{
    const struct timer *ta = CONTAINER_OF(a, struct timer, node);
    const struct timer *tb = CONTAINER_OF(b, struct timer, node);

    return ta->at_us != tb->at_us ? ta->at_us < tb->at_us : ta->serial < tb->serial;
}

struct sched *sched_new(const struct sched_limits *limits)
{
    struct sched *s = mem_new(sizeof *s);

    s->bytes = sizeof *s;
    TAILQ_INIT(&s->turns);
    TAILQ_INIT(&s->to_read);
    TAILQ_INIT(&s->done);
    TAILQ_INIT(&s->to_park);
    TAILQ_INIT(&s->dropping);
    s->at_once = SCHED_AT_ONCE;
    TAILQ_INIT(&s->ask_later);
    TAILQ_INIT(&s->draining);
    TAILQ_INIT(&s->idle);
    TAILQ_INIT(&s->deferrals);
    STAILQ_INIT(&s->events);
    slab_init(&s->message_slab, sizeof(struct message));
    slab_init(&s->job_slab, sizeof(struct job));
    slab_init(&s->peer_slab, sizeof(struct peer));
    slab_init(&s->entry_slab, sizeof(struct entry));
    heap_init(&s->timers, timer_less);
    timer_init(&s->ask_again, TIMER_ASK_AGAIN);
    s->busy_free = SLOT_NONE;
    s->plain_weight = 1;
    s->ration = SCHED_NO_RATION;
    rng_init(&s->rng, 1);
    sched_set_limits(s, limits);
    return s;
}

void sched_set_limits(struct sched *s, const struct sched_limits *limits)
{
    CHECK(limits->message_recipient_limit >= limits->message_active_limit);
    CHECK(limits->message_recipient_minimum >= 1);
    s->limits = *limits;
}

static void out_forget(struct sched *s)
{
    deferral_free(s->out_deferral);
    s->out_deferral = NULL;
    event_free(s->out_event);
    s->out_event = NULL;
    mem_free(s->out_name);
    s->out_name = NULL;
    reason_unref(s->out_reason);
    s->out_reason = NULL;
}

void sched_free(struct sched *s)
{
    struct mono now = {0};
    struct message *m;

    if (s == NULL) {
        return;
    }
    out_forget(s);
    while (!TAILQ_EMPTY(&s->deferrals)) {
        struct deferral *deferral = TAILQ_FIRST(&s->deferrals);
        TAILQ_REMOVE(&s->deferrals, deferral, link);
        deferral_free(deferral);
    }
    for (size_t i = 0; i < s->messages.size; i++) {
        m = ids_at(&s->messages, i);
        if (m != NULL) {
            (void)message_forget_waiting(m, now, UINT32_MAX); /* a single limit covers all */
        }
    }
    for (uint32_t i = 0; i < s->busy_size; i++) {
        if (s->busy[i].entry != NULL) {
            entry_done(s->busy[i].entry, now);
        }
    }
    for (size_t i = 0; i < s->messages.size; i++) {
        while ((m = ids_at(&s->messages, i)) != NULL) {
            message_free(s, m); /* another may move into its slot */
        }
    }
    ids_fini(&s->messages);
    while (!STAILQ_EMPTY(&s->events)) {
        struct event *event = STAILQ_FIRST(&s->events);
        STAILQ_REMOVE_HEAD(&s->events, link);
        event_free(event);
    }
    for (uint32_t i = 0; i < s->transport_count; i++) {
        transport_free(s->transports[i]);
    }
    slab_fini(&s->message_slab);
    slab_fini(&s->job_slab);
    slab_fini(&s->peer_slab);
    slab_fini(&s->entry_slab);
    heap_fini(&s->timers);
    mem_free(s->transports);
    mem_free(s->dests);
    mem_free(s->rings);
    mem_free(s->busy);
    mem_free(s->out_rcpts);
    mem_free(s);
}

/* ---- facts ---------------------------------------------------------------------------------- */

bool sched_has_room(const struct sched *s)
{
    return (uint64_t)s->messages.count + s->asked < s->limits.message_active_limit;
}

bool sched_has_message(const struct sched *s, struct sched_msg msg)
{
    return message_find(s, msg) != NULL;
}

void sched_open_in_class(struct sched *s, struct mono now, struct sched_msg msg,
                         uint32_t recipients, bool one_per_entry, struct slice class_name,
                         uint32_t weight)
{
    struct message *m;

    CHECK(sched_has_room(s) || s->asked > 0);
    CHECK(!sched_has_message(s, msg));
    m = slab_new(&s->message_slab);
    m->id = msg;
    m->queued_s = us_seconds(now.us);
    m->rcpt_unread = recipients;
    m->rcpt_limit = s->limits.message_recipient_minimum;
    m->one_per_entry = one_per_entry;
    m->mail_class = class_need(s, class_name);
    sched_class_weight(s, class_name, weight);
    SLIST_INIT(&m->jobs);
    ids_add(&s->messages, m->id.n, m);
    message_check(s, m);
}

void sched_open(struct sched *s, struct mono now, struct sched_msg msg, uint32_t recipients,
                bool one_per_entry)
{
    sched_open_in_class(s, now, msg, recipients, one_per_entry, slice_of("", 0), s->plain_weight);
}

void sched_class_weight(struct sched *s, struct slice class_name, uint32_t weight)
{
    struct mail_class *c = class_name.len > 0 ? class_find(s, class_name) : NULL;

    CHECK(weight >= 1);
    CHECK(weight <= SCHED_WEIGHT_MAX);
    if (class_name.len == 0) {
        s->plain_weight = weight;
    } else if (c != NULL) {
        class_whole(c)->weight = weight;
    }
}

/* Appends a recipient to the last deferral, or to a new one. A deferral has recipients of one
 * message for one dead destination, or one dead transport (`d` is NULL). */
static void defer(struct sched *s, struct message *m, struct transport *t, const struct dest *d,
                  uint32_t n)
{
    struct deferral *last = TAILQ_LAST(&s->deferrals, deferral_list);
    struct slice name = d != NULL ? slice_of(d->name, d->name_len) : slice_of("", 0);
    struct reason *reason = d != NULL ? d->reason : t->reason;

    if (last == NULL || last->message != m || last->transport != t || last->reason != reason ||
        !slice_equal(slice_of(last->dest, last->dest_len), name)) {
        last = mem_new(sizeof *last);
        last->message = m;
        last->transport = t;
        last->reason = reason_ref(reason);
        last->dest = mem_copy(name.ptr, name.len);
        last->dest_len = name.len;
        TAILQ_INSERT_TAIL(&s->deferrals, last, link);
        m->deferrals++;
    }
    last->rcpts = mem_grow(last->rcpts, last->count, &last->size, sizeof *last->rcpts);
    last->rcpts[last->count++] = n;
    s->deferred_rcpts++;
}

struct sorted_rcpt {
    const struct sched_rcpt *rcpt;
    const struct transport *transport;
};

static int compare_rcpts(const void *a, const void *b)
{
    const struct sorted_rcpt *ra = a, *rb = b;
    int order = strcmp(ra->transport->name, rb->transport->name);

    if (order == 0) {
        order = slice_compare(ra->rcpt->dest, rb->rcpt->dest);
    }
    if (order == 0) {
        order = ra->rcpt < rb->rcpt ? -1 : ra->rcpt > rb->rcpt; /* order in the array */
    }
    return order;
}

static void assign(struct sched *s, struct message *m, const struct sched_rcpt *rcpts, size_t count)
{
    struct sorted_rcpt *sorted = mem_array(count, sizeof *sorted);
    struct peer *p = NULL;

    for (size_t i = 0; i < count; i++) {
        sorted[i].rcpt = &rcpts[i];
        sorted[i].transport = transport_at(s, rcpts[i].transport);
    }
    if (count > 1) {
        qsort(sorted, count, sizeof *sorted, compare_rcpts);
    }
    for (size_t i = 0; i < count; i++) {
        const struct sched_rcpt *r = sorted[i].rcpt;
        struct transport *t = s->transports[r->transport];
        struct dest *d;

        if (t->reason != NULL) {
            defer(s, m, t, NULL, r->n);
            continue;
        }
        if (i > 0 && p != NULL && peer_dest(p)->transport == t &&
            slice_equal(r->dest, slice_of(peer_dest(p)->name, peer_dest(p)->name_len))) {
            peer_add_rcpt(p, r->n);
            continue;
        }
        d = dest_need(t, r->dest);
        if (d->state == DEST_DEAD) {
            defer(s, m, t, d, r->n);
            continue;
        }
        p = peer_need(job_need(m, t), d);
        peer_add_rcpt(p, r->n);
    }
    mem_free(sorted);
}

void sched_recipients(struct sched *s, struct mono now, struct sched_msg msg,
                      const struct sched_rcpt *rcpts, size_t count, uint32_t disposed,
                      bool complete)
{
    struct message *m = message_find(s, msg);
    struct job *j;

    CHECK(m != NULL);
    CHECK(m->reading);
    CHECK(count <= SCHED_READ_MAX);
    CHECK(count > 0 || disposed > 0 || complete); /* otherwise reading would never end */
    s->now = now;
    m->reading = false;
    m->opened = true;
    m->refill_s = us_seconds(now.us);
    if (!m->dropped) {
        uint64_t passed = (uint64_t)count + disposed;

        m->rcpt_unread = passed < m->rcpt_unread ? m->rcpt_unread - (uint32_t)passed : 0;
        if (complete) {
            m->all_read = true;
            m->rcpt_unread = 0;
        }
        assign(s, m, rcpts, count);
        SLIST_FOREACH(j, &m->jobs, of_message)
        {
            if (j->selected < j->read && !job_is_known_blocker(j)) {
                class_queue_forget_candidate(j->queue);
            }
        }
        if (complete) {
            message_all_read(m);
        }
    }
    message_changed(m);
    message_check(s, m);
}

/* Applies a delivery that reached the destination. */
static void dest_answered(struct dest *d)
{
    transport_revive(d->transport);
    switch ((enum dest_state)d->state) {
    case DEST_READY:
        if (d->probing) {
            dest_revive(d);
        } else {
            (void)window_succeeded(&d->window, dest_limits(d),
                                   dest_agents(d)); /* dest_refresh follows */
        }
        break;
    case DEST_DEAD:
        if (!d->postponed) {
            dest_revive(d);
        } else if (d->probing) {
            dest_recover(d);
        } else {
            (void)window_succeeded(&d->window, dest_limits(d), dest_agents(d)); /* dest_refresh
                                                                                 * follows */
        }
        break;
    case DEST_SUSPENDED:
        break; /* by a rate delay that was set while more than one delivery ran */
    }
    d->well = d->window.size;
    d->well_us = d->transport->sched->now.us;
}

/* Applies a delivery that could not reach the destination or lost it. Returns true if the
 * destination is now dead. */
static bool dest_failed(struct dest *d)
{
    const struct window_limits *limits = dest_limits(d);
    bool dies;

    if (d->state != DEST_READY && !d->postponed) {
        return false;
    }
    dies = d->probing ? limits->failed_cohort_limit > 0 : window_failed(&d->window, limits);
    return dies && !d->postponed;
}

bool sched_finished(struct sched *s, struct mono now, struct sched_entry entry,
                    enum sched_outcome outcome, struct slice reason)
{
    struct entry *e = entry_find(s, entry);
    struct dest *d;

    if (e == NULL) {
        return false;
    }
    s->now = now;
    d = peer_dest(e->peer);
    dest_catch_up(d);
    if (outcome != SCHED_CRASH) {
        dest_set_standing(d, outcome == SCHED_DEST_FAIL ? STANDING_FAILING : STANDING_PROVEN);
    }
    s->step.before = d->window.size;
    switch (outcome) {
    case SCHED_OK:
        dest_answered(d);
        break;
    case SCHED_DEST_FAIL:
        if (dest_failed(d)) {
            dest_die(d, now, reason);
        }
        break;
    case SCHED_CRASH:
        break;
    }
    s->step.after = d->window.size;
    s->agents_moved_us = now.us;
    entry_done(e, now);
    return true;
}

bool sched_unselect(struct sched *s, struct mono now, struct sched_entry entry)
{
    struct entry *e = entry_find(s, entry);
    struct message *m;
    struct job *j;

    if (e == NULL) {
        return false;
    }
    s->now = now;
    j = e->peer->job;
    m = j->message;
    if (m->dropped) {
        entry_done(e, now);
        return true;
    }
    s->agents_moved_us = now.us;
    job_given_back(j);
    entry_unstart(e);
    if (m->all_read) {
        message_slots_returned(m);
    }
    message_changed(m);
    return true;
}

bool sched_drop(struct sched *s, struct mono now, struct sched_msg msg)
{
    struct message *m = message_find(s, msg);

    if (m == NULL) {
        return false;
    }
    if (!m->dropped) {
        chore_drop(s, m);
        message_all_read(m);
        chores_run(s, now);
    }
    return true;
}

void sched_transport_failed(struct sched *s, struct mono now, uint32_t transport,
                            struct slice reason)
{
    struct transport *t = transport_at(s, transport);
    struct class_queue *q;

    s->now = t->died = now;
    transport_revive(t);
    t->reason = reason_new(reason);
    TAILQ_FOREACH(q, &t->with_jobs, link)
    {
        q->selecting = false;
    }
    timer_set(s, &t->dead, mono_after(now, s->limits.transport_retry_us));
}

void sched_transport_works(struct sched *s, struct mono now, uint32_t transport)
{
    s->now = now;
    transport_revive(transport_at(s, transport));
}

void sched_revive(struct sched *s, struct mono now, uint32_t transport, struct slice dest)
{
    struct transport *t = transport_at(s, transport);

    s->now = now;
    if (dest.len > 0) {
        struct dest *d = dest_find(t, dest);

        if (d != NULL && (d->state == DEST_DEAD || d->probing)) {
            dest_revive(d);
            dest_check(d);
        }
        return;
    }
    transport_revive(t);
    t->revive_told = chore_sweep(s);
    chores_run(s, now);
}

void sched_revive_all(struct sched *s, struct mono now)
{
    for (uint32_t i = 0; i < s->transport_count; i++) {
        sched_revive(s, now, i, slice_of("", 0));
    }
}

void sched_postpone(struct sched *s, struct mono now, uint32_t transport, struct slice dest,
                    struct mono until, struct slice reason)
{
    struct dest *d;

    s->now = now;
    d = dest_need(transport_at(s, transport), dest);
    dest_postpone(d, until, reason);
    dest_check(d);
}

void sched_suspend(struct sched *s, struct mono now, const struct sched_suspension *x)
{
    struct dest *d;

    s->now = now;
    if (mono_reached(x->until, now)) {
        return;
    }
    d = dest_need(transport_at(s, x->transport), x->dest);
    dest_take_over(d, x);
    dest_check(d);
}

void sched_ring(struct sched *s, struct mono now, uint32_t transport, uint32_t ring,
                const struct sched_ring_policy *policy)
{
    CHECK(ring >= 1);
    s->now = now;
    ring_need(transport_at(s, transport), ring)->policy = *policy;
    s->agents_moved_us = now.us;
}

void sched_dest_policy(struct sched *s, struct mono now, uint32_t transport, struct slice dest,
                       const struct sched_dest_policy *policy)
{
    struct transport *t = transport_at(s, transport);
    struct ring *r = policy->ring > 0 ? ring_find(t, policy->ring) : NULL;
    struct dest *d = dest_find(t, dest);

    CHECK(policy->depth >= 1);
    CHECK(r != NULL || policy->ring == 0);
    s->now = now;
    if (d == NULL) {
        return;
    }
    dest_catch_up(d);
    dest_set_ring(d, r, policy->rate_delay_us > 0 ? 1 : policy->depth);
    d->policy->limits = policy->window;
    d->policy->rate_delay_us = policy->rate_delay_us;
    limits_for_delay(&d->policy->limits, policy->rate_delay_us);
    dest_limits_changed(d);
}

/* ---- decisions ------------------------------------------------------------------------------ */

static void timers_run(struct sched *s, struct mono now)
{
    for (;;) {
        struct heap_node *top = heap_top(&s->timers);
        struct timer *timer;
        struct dest *d;

        if (top == NULL) {
            return;
        }
        timer = CONTAINER_OF(top, struct timer, node);
        if (timer->at_us > now.us) {
            return;
        }
        heap_remove(&s->timers, top);
        switch (timer->type) {
        case TIMER_DEST:
            d = CONTAINER_OF(timer, struct dest, timer);
            dest_catch_up(d);
            dest_time_over(d);
            dest_check(d);
            break;
        case TIMER_TRANSPORT_DEAD:
            transport_revive(CONTAINER_OF(timer, struct transport, dead));
            break;
        case TIMER_TRANSPORT_RATE:
            CONTAINER_OF(timer, struct transport, rate)->rate_locked = false;
            s->agents_moved_us = now.us;
            break;
        case TIMER_NEWCOMER:
            break; /* the next decision releases it */
        case TIMER_ASK_AGAIN:
            share_ask_again(s);
            break;
        }
    }
}

static bool next_event(struct sched *s, struct sched_action *a)
{
    struct event *event = STAILQ_FIRST(&s->events);

    if (event == NULL) {
        return false;
    }
    STAILQ_REMOVE_HEAD(&s->events, link);
    s->out_event = event;
    a->type = event->type;
    a->transport = event->transport->index;
    a->dest = slice_of(event->dest, event->dest_len);
    a->reason = reason_slice(event->reason);
    a->until = event->until;
    a->window = event->window;
    return true;
}

static bool next_deferral(struct sched *s, struct sched_action *a)
{
    struct deferral *deferral;

    while ((deferral = TAILQ_FIRST(&s->deferrals)) != NULL) {
        struct message *m = deferral->message;

        TAILQ_REMOVE(&s->deferrals, deferral, link);
        s->deferred_rcpts -= deferral->count;
        m->deferrals--;
        message_check(s, m);
        if (m->dropped) {
            deferral_free(deferral);
            continue;
        }
        s->out_deferral = deferral;
        a->type = SCHED_DEFER;
        a->msg = m->id;
        a->transport = deferral->transport->index;
        a->dest = slice_of(deferral->dest, deferral->dest_len);
        a->reason = reason_slice(deferral->reason);
        a->rcpts = deferral->rcpts;
        a->rcpt_count = deferral->count;
        return true;
    }
    return false;
}

/* Moves the recipients of the peer's waiting entries to out_rcpts[*count..). May free the peer. */
static void drain_peer(struct sched *s, struct peer *p, size_t *count, struct mono now)
{
    bool last = false;

    while (!last && !TAILQ_EMPTY(&p->waiting)) {
        struct entry *e = TAILQ_FIRST(&p->waiting);

        if (*count + e->count > s->out_size) {
            s->out_size = (*count + e->count) * 2;
            s->out_rcpts = mem_resize(s->out_rcpts, s->out_size, sizeof *s->out_rcpts);
        }
        memcpy(s->out_rcpts + *count, entry_rcpts(e), e->count * sizeof *s->out_rcpts);
        *count += e->count;
        last = p->entries == 1;
        entry_done(e, now);
    }
}

/* Frees waiting entries of a dropped message when one of them is selected; the rest follows with
 * the next calls. Returns whether the message is dropped. */
static bool forgets_dropped(struct sched *s, struct message *m, struct mono now)
{
    if (m->dropped) {
        (void)message_forget_waiting(m, now, s->at_once); /* the chore goes on */
    }
    return m->dropped;
}

static void drained(struct sched *s, struct sched_action *a, const struct message *m,
                    const struct transport *t, size_t count)
{
    a->type = SCHED_DEFER;
    a->msg = m->id;
    a->transport = t->index;
    a->rcpts = s->out_rcpts;
    a->rcpt_count = count;
}

/* Defers the recipients of one message that wait for a dead destination. */
static bool next_dest_drain(struct sched *s, struct mono now, struct sched_action *a)
{
    struct dest *d = TAILQ_FIRST(&s->draining);
    struct peer *p;
    struct message *m;
    struct transport *t;
    size_t count = 0, name_len;

    if (d == NULL) {
        return false;
    }
    t = d->transport;
    p = dest_first_queue(d)->first;
    m = p->job->message;
    if (forgets_dropped(s, m, now)) {
        return false;
    }
    name_len = d->name_len;
    s->out_name = mem_copy(d->name, name_len);
    s->out_reason = reason_ref(d->reason);
    drain_peer(s, p, &count, now); /* may free the destination */
    drained(s, a, m, t, count);
    a->dest = slice_of(s->out_name, name_len);
    a->reason = reason_slice(s->out_reason);
    return true;
}

/* Defers the recipients of one message that wait for a dead transport. */
static bool next_transport_drain(struct sched *s, struct transport *t, struct mono now,
                                 struct sched_action *a)
{
    struct order_node *n;
    struct job *j;
    size_t count = 0;

    if (t->reason == NULL || t->waiting == 0) {
        return false;
    }
    for (;;) {
        const struct class_queue *q = TAILQ_FIRST(&t->with_jobs);

        CHECK(q != NULL);
        j = JOB_OF(q->jobs.first);
        if (j->selected < j->read) {
            break;
        }
        job_retire(j);
    }
    if (forgets_dropped(s, j->message, now)) {
        return false;
    }
    for (n = j->peers.first; n != NULL;) {
        struct peer *p = CONTAINER_OF(n, struct peer, ring);
        n = n->next;
        drain_peer(s, p, &count, now);
    }
    drained(s, a, j->message, t, count);
    s->out_reason = reason_ref(t->reason);
    a->reason = reason_slice(s->out_reason);
    return true;
}

static bool next_drain(struct sched *s, struct mono now, struct sched_action *a)
{
    struct transport *t;

    if (chore_sweeping(s)) {
        return false;
    }
    if (next_dest_drain(s, now, a)) {
        return true;
    }
    TAILQ_FOREACH(t, &s->turns, turn)
    {
        if (next_transport_drain(s, t, now, a)) {
            return true;
        }
    }
    return false;
}

/* Number of messages that a death defers before other decisions, which then see the messages
 * without these recipients (entries left, recipients that may be read). More would be too much work
 * for the owner at once. */
#define EARLY_DRAINS 256

static bool next_early_drain(struct sched *s, struct mono now, struct sched_action *a)
{
    if (s->early_drains == EARLY_DRAINS || !next_drain(s, now, a)) {
        return false;
    }
    s->early_drains++;
    return true;
}

/* Does next_drain have something to do? */
static bool drains_left(const struct sched *s)
{
    const struct transport *t;

    TAILQ_FOREACH(t, &s->turns, turn)
    {
        if (t->reason != NULL && t->waiting > 0) {
            return true;
        }
    }
    return !TAILQ_EMPTY(&s->draining);
}

static void read_action(const struct sched *s, struct message *m, uint32_t max,
                        struct sched_action *a)
{
    m->reading = true;
    m->refill_s = us_seconds(s->now.us);
    a->type = SCHED_READ;
    a->msg = m->id;
    a->max = max < SCHED_READ_MAX ? max : SCHED_READ_MAX;
}

/* Returns the number of recipients that a message may still get in memory. */
static uint32_t read_room(const struct message *m)
{
    int64_t room = m->rcpt_limit - m->rcpt_count;

    CHECK(room > 0);
    return room < UINT32_MAX ? (uint32_t)room : UINT32_MAX;
}

static bool next_read(struct sched *s, struct sched_action *a)
{
    struct message *m = TAILQ_FIRST(&s->to_read);
    uint32_t max;

    if (m == NULL) {
        return false;
    }
    max = read_room(m);
    if (!m->opened && s->limits.message_recipient_limit > s->rcpt_count &&
        s->limits.message_recipient_limit - s->rcpt_count > max) {
        max = s->limits.message_recipient_limit - s->rcpt_count;
    }
    read_action(s, m, max, a);
    message_check(s, m);
    message_changed(m);
    return true;
}

static bool next_done(struct sched *s, struct sched_action *a)
{
    struct message *m = TAILQ_FIRST(&s->done);

    if (m == NULL) {
        return false;
    }
    a->type = SCHED_DONE;
    a->msg = m->id;
    message_free(s, m);
    return true;
}

static void deliver(struct transport *t, struct peer *p, struct mono now, struct sched_action *a)
{
    struct sched *s = t->sched;
    struct entry *e = TAILQ_FIRST(&p->waiting);
    struct dest *d = peer_dest(p);
    struct job *j = p->job;

    class_queue_took(j->queue);
    entry_start(e, us_seconds(now.us));
    if (t->policy.transport_rate_delay_us > 0) {
        t->rate_locked = true;
        timer_set(s, &t->rate, mono_after(now, t->policy.transport_rate_delay_us));
    }
    a->type = SCHED_DELIVER;
    a->msg = j->message->id;
    a->entry = (struct sched_entry){s->busy[e->slot].id};
    a->transport = t->index;
    a->dest = slice_of(d->name, d->name_len);
    a->rcpts = entry_rcpts(e);
    a->rcpt_count = e->count;
    a->cache_load = d->cache_load;
    a->cache_store = d->cache_store;
    a->window = d->window.size;
    job_selected(j);
    transport_show_more(t);
}

static bool may_select(const struct transport *t)
{
    return t->reason == NULL && !t->rate_locked &&
           (t->policy.process_limit == 0 || t->busy < t->policy.process_limit);
}

/* Returns the class queue to select from, or NULL if nothing is ready. Before that, releases
 * destinations held back if there is room for them. A destination that a ring shows must sometimes
 * be held back, perhaps all in its line; then the search is done in pieces. */
static struct class_queue *next_queue(struct transport *t)
{
    struct sched *s = t->sched;
    uint32_t rounds = s->at_once;
    struct class_queue *q;
    bool more;

    transport_release_held_back(t);
    do {
        more = !TAILQ_EMPTY(&t->in_line) && transport_show_rings(t);
        q = transport_next_queue(t);
        more = more || (q == NULL && transport_release_newcomer(t));
    } while (q == NULL && more && --rounds > 0);
    s->lines_left |= q == NULL && more;
    return q;
}

static bool select_from(struct class_queue *q, struct mono now, struct sched_action *a)
{
    struct sched *s = q->transport->sched;
    struct message *m;
    struct peer *p;

    switch (class_queue_walk(q, us_seconds(now.us), &p, &m)) {
    case WALK_NOTHING:
        return false;
    case WALK_PEER:
        if (forgets_dropped(s, p->job->message, now)) {
            return false;
        }
        deliver(q->transport, p, now, a);
        return true;
    case WALK_READ:
        s->resume = q;
        read_action(s, m, read_room(m), a);
        message_changed(m);
        return true;
    }
    UNREACHABLE("no such result of a walk");
}

/* Moves all transports before `t` and `t` itself to the end, in their order: a rotation. */
static void turn_to(struct sched *s, struct transport *t)
{
    struct transport *first;

    do {
        first = TAILQ_FIRST(&s->turns);
        TAILQ_REMOVE(&s->turns, first, turn);
        TAILQ_INSERT_TAIL(&s->turns, first, turn);
    } while (first != t);
}

static bool next_delivery(struct sched *s, struct mono now, struct sched_action *a)
{
    struct class_queue *q = s->resume;
    struct transport *t;

    if (chore_sweeping(s)) {
        return false;
    }
    s->resume = NULL;
    if (q != NULL && q->selecting && may_select(q->transport)) {
        transport_release_held_back(q->transport);
        (void)transport_show_rings(q->transport); /* next_queue shows the rest */
        if (class_queue_first_ready(q) != NULL && select_from(q, now, a)) {
            return true;
        }
    }
    TAILQ_FOREACH(t, &s->turns, turn)
    {
        if (!may_select(t)) {
            continue;
        }
        q = next_queue(t);
        if (q != NULL) {
            turn_to(s, t);
            if (!select_from(q, now, a)) {
                CHECK(chores_left(s)); /* otherwise the first job of a ready destination can be
                                        * selected */
                return false;
            }
            return true;
        }
    }
    return false;
}

enum sched_action_type sched_next(struct sched *s, struct mono now, struct sched_action *ret_action)
{
    *ret_action = (struct sched_action){.type = SCHED_NONE};
    s->now = now;
    s->lines_left = false;
    out_forget(s);
    timers_run(s, now);
    chores_run(s, now);
    if (next_event(s, ret_action) || next_deferral(s, ret_action) ||
        next_early_drain(s, now, ret_action) || next_done(s, ret_action) ||
        share_next_park(s, now, ret_action) || next_read(s, ret_action) ||
        next_delivery(s, now, ret_action) || share_next_admit(s, ret_action)) {
        s->decisions++;
    } else if (next_drain(s, now, ret_action)) {
        ret_action->can_wait = true;
        s->decisions++;
    } else {
        s->early_drains = 0;
        dest_forget_old(s);
    }
    return ret_action->type;
}

struct mono sched_wake_at(const struct sched *s)
{
    const struct heap_node *top = heap_top(&s->timers);

    if (chores_left(s) || drains_left(s)) {
        return s->now;
    }
    return top == NULL ? MONO_NEVER
                       : (struct mono){CONTAINER_OF(top, const struct timer, node)->at_us};
}
