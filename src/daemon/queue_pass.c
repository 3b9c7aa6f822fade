/*
 * A message's pass through the active queue: how it comes in (submitted or claimed), how its
 * recipients are read and routed, and how the pass ends: reports, expiry, delay warning, then
 * deleted or deferred.
 */
#include "queue.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <unistd.h>

#include "check.h"
#include "classify.h"
#include "clock.h"
#include "expiry.h"
#include "log.h"
#include "mem.h"
#include "park_key.h"

/* Recipients read from the spool in one call. */
#define READ_PAGE 500
/* Mail that was handed back untried goes on soon, but an agent that hands back everything must not
 * keep us busy. */
#define UNTRIED_WAIT_US US_PER_S
/* Recipients of a submission that are kept in memory; the others are read when it is their turn, or
 * long lists would pass the limits of recipients in memory. */
#define KEEP_RCPTS_MAX 100

/* ---- sites ---------------------------------------------------------------------------------- */

static void site_free(struct queue *q, struct site *site)
{
    HASH_DEL(q->sites, site);
    mem_free(site->key);
    mem_free(site->nexthop);
    thread_rules_fini(&site->rules);
    mem_free(site);
}

void pass_sites_free(struct queue *q)
{
    struct site *site, *next;

    HASH_ITER(hh, q->sites, site, next)
    {
        site_free(q, site);
    }
}

#define SITE_KEY_MAX (ROUTE_DESTINATION_MAX + 16)

static size_t site_key(char key[SITE_KEY_MAX], uint32_t transport, struct slice destination)
{
    int len = snprintf(key, SITE_KEY_MAX, "%" PRIu32 "/%.*s", transport, SLICE_ARGS(destination));

    CHECK(len > 0 && (size_t)len < SITE_KEY_MAX);
    return (size_t)len;
}

struct site *pass_site_find(struct queue *q, uint32_t transport, struct slice destination)
{
    char key[SITE_KEY_MAX];
    size_t len = site_key(key, transport, destination);
    struct site *site;

    HASH_FIND(hh, q->sites, key, len, site);
    return site;
}

static void site_set_policy(struct queue *q, struct site *site)
{
    const char *name = q->transports[site->transport];
    struct policy policy;

    if (conf_transport_find(q->conf, slice_string(name)) == NULL &&
        conf_postoffice(q->conf) == NULL) {
        return; /* the configuration has lost it; what waits for it ends as it began */
    }
    policy_for(q->conf, slice_string(name), slice_string(site->nexthop), &policy);
    site->agent = (enum conf_agent)policy.agent;
    site->has_clause = policy.ring != 0;
    site->has_command = site->agent == CONF_AGENT_TA && policy.command[0] != '\0';
    site->tuning = tuning_dest(q->conf, &policy);
    thread_rules_fini(&site->rules);
    thread_rules_init(&site->rules, &policy);
    site->expiry = (struct expiry_rules){policy.expiry_us, policy.expiry2_us};
}

static void site_tell_scheduler(struct queue *q, const struct site *site)
{
    tuning_tell(q->sched, clock_mono(), site->transport, slice_string(site->destination),
                &site->tuning);
}

void pass_sites_reload(struct queue *q)
{
    struct site *site, *next;

    HASH_ITER(hh, q->sites, site, next)
    {
        bool own_before = site->tuning.own;

        site_set_policy(q, site);
        if (own_before || site->tuning.own) {
            site_tell_scheduler(q, site);
        }
    }
}

/* Forget the sites without mail, before new ones are made. Those with mail are needed when it is
 * handed out: only they know the next hop as it was written. */
static void sites_trim(struct queue *q)
{
    struct sched_dest_info info;
    struct site *site, *next;

    if (HASH_COUNT(q->sites) < q->sites_trim_at) {
        return;
    }
    HASH_ITER(hh, q->sites, site, next)
    {
        if (!sched_dest_get(q->sched, site->transport, slice_string(site->destination), &info) ||
            info.state == SCHED_DEST_IDLE) {
            site_free(q, site);
        }
    }
    q->sites_trim_at = QUEUE_SITES_MAX + 2 * (size_t)HASH_COUNT(q->sites);
}

struct site *pass_site(struct queue *q, uint32_t transport, const char *destination,
                       const char *nexthop)
{
    struct site *site = pass_site_find(q, transport, slice_string(destination));
    char key[SITE_KEY_MAX];
    size_t len;

    if (site != NULL) {
        return site;
    }
    len = site_key(key, transport, slice_string(destination));
    site = mem_new(sizeof *site);
    site->key = mem_copy(key, len);
    site->destination = strchr(site->key, '/') + 1;
    site->transport = transport;
    site->nexthop = mem_string(nexthop);
    site_set_policy(q, site);
    HASH_ADD_KEYPTR(hh, q->sites, site->key, len, site);
    return site;
}

/* Does the destination hold so much of the active queue that other mail suffers? Entries are
 * compared with messages, as Postfix does. */
static void warn_of_clog(struct queue *q, struct site *site)
{
    const struct conf *conf = q->conf;
    const char *transport = q->transports[site->transport];
    int64_t limit = conf->qmgr_message_active_limit, held;
    struct sched_dest_info d;

    if (!conf->helpful_warnings || conf->qmgr_clog_warn_time_us == 0 ||
        !mono_reached(site->next_clog_warning, clock_mono()) ||
        !sched_dest_get(q->sched, site->transport, slice_string(site->destination), &d)) {
        return;
    }
    held = (int64_t)d.waiting + d.busy;
    if (held <= limit / 5) {
        return;
    }
    site->next_clog_warning = mono_after(clock_mono(), conf->qmgr_clog_warn_time_us);
    log_warning("mail for %s is using up %" PRId64 " of %" PRId64 " active queue entries",
                site->nexthop, held, limit);
    if (held < limit - limit / 10) {
        log_warning("this may slow down other mail deliveries");
    }
    if (d.window_max > 0 && d.window >= d.window_max) {
        log_warning("you may need to increase %s_destination_concurrency_limit from %" PRIu32,
                    transport, d.window_max);
    } else if (sched_totals(q->sched).destinations > 1) {
        log_warning("you may need a separate transport for %s", site->nexthop);
    } else {
        log_warning("you may need to reduce the timeouts of %s, or to increase the back-off times",
                    transport);
    }
}

/* ---- mail that was asked for ---------------------------------------------------------------- */

void pass_want(struct queue *q, struct msg_id id)
{
    struct wanted *w;

    HASH_FIND(hh, q->wanted, &id, sizeof id, w);
    if (w != NULL || HASH_COUNT(q->wanted) >= QUEUE_WANTED_MAX) {
        return;
    }
    w = mem_new(sizeof *w);
    w->id = id;
    HASH_ADD(hh, q->wanted, id, sizeof w->id, w);
}

static bool take_wanted(struct queue *q, struct msg_id id)
{
    struct wanted *w;

    HASH_FIND(hh, q->wanted, &id, sizeof id, w);
    if (w == NULL) {
        return false;
    }
    HASH_DEL(q->wanted, w);
    mem_free(w);
    return true;
}

void pass_wanted_free(struct queue *q)
{
    struct wanted *w, *next;

    HASH_ITER(hh, q->wanted, w, next)
    {
        HASH_DEL(q->wanted, w);
        mem_free(w);
    }
}

/* How long is it kept at most, from its creation on? */
static int64_t lifetime_us(const struct conf *conf, const struct spool_message *m)
{
    return m->sender.len == 0 ? conf->bounce_queue_lifetime_us : conf->maximal_queue_lifetime_us;
}

/* ---- coming in ------------------------------------------------------------------------------ */

/* Open in the scheduler: it will ask for the recipients. */
bool pass_open(struct queue *q, struct active_msg *m, bool admitted)
{
    if (m->dropped || m->untried || q->role->stopping || (!admitted && !sched_has_room(q->sched))) {
        spool_unclaim(q->spool, m->id);
        active_remove(&q->active, m);
        q->incoming_waits = true;
        q->next_due.us = 0;
        return false;
    }
    log_info("%s: from=<%s>, size=%" PRIu64 ", nrcpt=%" PRIu32 " (queue active)", m->id_text,
             m->sender, m->size, m->undone);
    if (m->fresh) {
        report_verbose(q, m->id, "scheduler processing %s", m->path);
    }
    sched_open_in_class(q->sched, clock_mono(), (struct sched_msg){m->id.n}, m->undone, false,
                        slice_string(m->lane),
                        class_weight(q->conf, slice_string(m->its_class->name)));
    return true;
}

void pass_classes_reload(struct queue *q)
{
    const struct active_class *c;

    for (c = q->active.classes; c != NULL; c = c->hh.next) {
        struct slice name = slice_string(c->name);

        sched_class_weight(q->sched, name, class_weight(q->conf, name));
    }
}

/* The trace header with the id in its place. */
static void print_trace(struct buf *out, struct slice trace, struct msg_id id)
{
    char text[SPOOL_ID_TEXT_MAX];
    size_t at = slice_find(trace, '\1');

    spool_id_print(id, text);
    (void)buf_add(out, slice_of(trace.ptr, at)); /* far below the buffer's limit */
    if (at < trace.len) {
        (void)buf_add_string(out, text);
        (void)buf_add(out, slice_skip(trace, at + 1));
    }
}

/* The message's class as the scheduler knows it. */
static struct slice lane_of(const struct queue *q, const struct spool_message *m,
                            char room[SCHED_CLASS_NAME_MAX])
{
    return tuning_lane(q->conf, m->class_name, m->sender, m->client, room);
}

/* A submission that goes on at once: what was just written need not be read again. */
static struct active_msg *keep_submitted(struct queue *q, const struct wire_submit *m,
                                         int sealed_fd, struct spool_message *message)
{
    char lane_room[SCHED_CLASS_NAME_MAX];
    struct active_msg *active;
    struct buf content;

    buf_init(&content, WIRE_CONTENT_MAX + 2 * WIRE_TRACE_MAX);
    print_trace(&content, m->trace, message->id);
    (void)buf_add(&content, m->content); /* a frame's content fits */
    message->state = SPOOL_INCOMING;
    message->rcpt_pending = message->rcpt_total = m->rcpt_count;
    message->size = buf_len(&content) + m->fd_size;
    active =
        active_add(&q->active, message, lane_of(q, message, lane_room), clock_mono(), clock_wall());
    if (sealed_fd >= 0) {
        active_keep_fd(&q->active, active, buf_slice(&content), sealed_fd);
    } else {
        active_keep_content(&q->active, active, buf_slice(&content)); /* unless there is more */
    }
    buf_fini(&content);
    for (uint32_t i = 0; i < m->rcpt_count && i < KEEP_RCPTS_MAX; i++) {
        active_add_rcpt(active,
                        &(struct spool_rcpt){.n = i + 1,
                                             .address = m->rcpts[i].address,
                                             .orcpt = m->rcpts[i].orcpt,
                                             .notify = m->rcpts[i].notify},
                        false);
    }
    active->all_read = m->rcpt_count <= KEEP_RCPTS_MAX;
    return active;
}

/* Where a message comes from, on behalf of who took it in: log analysers want this to be the first
 * line that names the message, and only one process can see to that. */
static void log_arrival(const struct wire_submit *m, struct msg_id id)
{
    const struct slice userid = SLICE("userid ");
    char text[SPOOL_ID_TEXT_MAX];

    spool_id_print(id, text);
    if (slice_equal(m->origin, SLICE("pickup")) && slice_starts(m->client, userid)) {
        struct slice uid = slice_skip(m->client, userid.len);

        log_as("pickup", (int)m->pid, "%s: uid=%.*s from=<%.*s>", text, SLICE_ARGS(uid),
               SLICE_ARGS(m->sender));
    } else {
        log_as("smtpd", (int)m->pid, "%s: client=%.*s", text, SLICE_ARGS(m->client));
    }
}

/* For those who replay the log: messages without such a line are of the class that needs no mark.
 */
static void log_class(struct classified class, struct msg_id id)
{
    char text[SPOOL_ID_TEXT_MAX];

    switch (class.source) {
    case CLASS_SOURCE_HEADER:
    case CLASS_SOURCE_LISTENER:
    case CLASS_SOURCE_LIST_UNSUBSCRIBE:
    case CLASS_SOURCE_LIST_ID:
    case CLASS_SOURCE_PRECEDENCE:
        spool_id_print(id, text);
        log_info("%s: class=%.*s (%s)", text, SLICE_ARGS(class.name),
                 class_source_word(class.source));
        break;
    case CLASS_SOURCE_NONE:
    case CLASS_SOURCE_SENDER:
    case CLASS_SOURCE_DEFAULT:
    case CLASS_SOURCE_REPORT:
        break;
    }
}

/* When a message that is parked now is to be looked at again though nobody asked for it: its time
 * to be tried again, and no later than its sender is to be told something. */
static struct wall parked_until(struct queue *q, const struct spool_message *m)
{
    const struct conf *conf = q->conf;
    struct wall now = clock_wall(), due, warning;

    due = wall_after(now,
                     retry_backoff(conf->minimal_backoff_time_us, conf->maximal_backoff_time_us,
                                   now.us - m->created.us, (unsigned)conf->retry_jitter, &q->rng));
    due = wall_min(due, wall_after(m->created, lifetime_us(conf, m)));
    warning = wall_after(m->created, conf->delay_warning_time_us);
    if (conf->delay_warning_time_us > 0 && m->sender.len > 0 && m->warnings == 0 &&
        warning.us > now.us) {
        due = wall_min(due, warning);
    }
    return due;
}

/* A submission was stored parked. */
static void submitted_parked(struct queue *q, const struct spool_message *m, struct msg_id id,
                             uint32_t rcpts)
{
    char text[SPOOL_ID_TEXT_MAX];

    park_tell(q, m->parked);
    q->next_due = wall_min(q->next_due, m->due);
    spool_id_print(id, text);
    log_hold(); /* as in log_arrival's case */
    log_info("%s: from=<%.*s>, nrcpt=%" PRIu32 " (waits on disk: %.*s holds its share of the "
             "active queue)",
             text, SLICE_ARGS(m->sender), rcpts, SLICE_ARGS(park_key_place(m->parked)));
    log_hold_end();
}

/* Where there are classes a part of the active queue is for new mail of those with little mail in
 * memory: a bulk that fills the rest keeps no other mail out. While all mail in memory is
 * `personal` by default_class it may fill everything, as it would without classes: what could come
 * besides is bulk, which can wait. */
#define RESERVED_PART 16
#define LITTLE_PART   8

static uint64_t reserved_places(const struct queue *q)
{
    bool all_personal =
        q->conf->default_class == CONF_DEFAULT_CLASS_AUTO &&
        active_class_count(&q->active, SLICE(CLASS_NAME_PERSONAL)) == HASH_COUNT(q->active.msgs);

    return classes_are_used(q->conf) && !all_personal
               ? (uint64_t)q->conf->qmgr_message_active_limit / RESERVED_PART
               : 0;
}

static bool has_reserved_place(const struct queue *q, struct slice class_name)
{
    uint64_t reserved = reserved_places(q);

    return reserved > 0 &&
           HASH_COUNT(q->active.msgs) < (uint64_t)q->conf->qmgr_message_active_limit &&
           active_class_count(&q->active, class_name) <= reserved / LITTLE_PART;
}

bool pass_has_place(const struct queue *q)
{
    return HASH_COUNT(q->active.msgs) + reserved_places(q) <
           (uint64_t)q->conf->qmgr_message_active_limit;
}

int pass_submit(struct queue *q, const struct wire_submit *m, int fd, struct msg_id *ret_id,
                struct active_msg **ret_msg)
{
    struct spool_message message = {.sender = m->sender,
                                    .envid = m->envid,
                                    .flags = m->flags & ~(unsigned)ENVELOPE_REPORT,
                                    .arrived = m->arrived,
                                    .created = clock_wall(),
                                    .due = clock_wall(),
                                    .client = m->client};
    struct spool_content content = {.bytes = m->content, .fd = fd, .fd_size = m->fd_size};
    /* Others that wait for their commit are not in the scheduler yet, but here. */
    bool claim;
    /* What is delivered is what is stored, so nobody may change it from here on. */
    int sealed_fd = fd >= 0 && wire_fd_is_sealed(fd, m->fd_size) ? fd : -1;
    struct park_target target = {.routes = 0};
    struct spool_rcpt *rcpts;
    struct route route;
    char **nexthops, *parked;
    char class_room[CLASS_NAME_MAX], lane_room[SCHED_CLASS_NAME_MAX];
    struct classified class;
    int rc;

    class = class_decide(q->conf, (struct classified){m->class_name, m->class_source}, m->sender,
                         class_room);
    message.class_name = class.name;
    message.class_source = class.source;
    claim = STAILQ_EMPTY(&q->redo) && !spool_divides(q->spool) &&
            (q->incoming_waits ? has_reserved_place(q, message.class_name)
                               : pass_has_place(q) || has_reserved_place(q, message.class_name));
    if ((fd < 0) != (m->fd_size == 0) ||
        (q->conf->message_size_limit > 0 &&
         m->content.len + m->fd_size > (uint64_t)q->conf->message_size_limit + WIRE_TRACE_MAX)) {
        return -EMSGSIZE;
    }
    rcpts = mem_array(m->rcpt_count, sizeof *rcpts);
    nexthops = mem_array(m->rcpt_count, sizeof *nexthops);
    for (uint32_t i = 0; i < m->rcpt_count; i++) {
        route_address(q->conf, m->rcpts[i].address, &route);
        nexthops[i] = mem_string(route.nexthop);
        rcpts[i] = (struct spool_rcpt){.address = m->rcpts[i].address,
                                       .orcpt = m->rcpts[i].orcpt,
                                       .notify = m->rcpts[i].notify,
                                       .transport = slice_string(route.transport),
                                       .nexthop = slice_string(nexthops[i]),
                                       .route_generation = q->conf->route_generation};
        queue_route_hold_back(q->conf, &route);
        park_target_add(q, &target, &route);
    }
    parked = park_target_full(q, &target, lane_of(q, &message, lane_room));
    if (parked != NULL) {
        claim = false;
        message.parked = slice_string(parked);
        message.due = parked_until(q, &message);
    }
    rc = spool_submit(q->spool, &message, rcpts, m->rcpt_count, m->trace, &content, claim,
                      slice_of("", 0), ret_id);
    if (rc == 0) {
        log_hold(); /* until its commit */
        log_arrival(m, *ret_id);
        log_class(class, *ret_id);
        log_hold_end();
        class_count(&q->class_counts, class.name)->submitted++;
    }
    if (rc == 0 && claim) {
        message.id = *ret_id;
        *ret_msg = keep_submitted(q, m, sealed_fd, &message);
    } else if (rc == 0 && parked != NULL) {
        submitted_parked(q, &message, *ret_id, m->rcpt_count);
    } else if (rc == 0) {
        q->incoming_waits = true;
        q->next_due.us = 0;
    }
    mem_free(parked);
    for (uint32_t i = 0; i < m->rcpt_count; i++) {
        mem_free(nexthops[i]);
    }
    mem_free(nexthops);
    mem_free(rcpts);
    return rc;
}

/* ---- reading recipients --------------------------------------------------------------------- */

/* Postfix's order before it looks at destinations: by domain without regard to case (no domain
 * last), then by the whole address. */
static int compare_addresses(const void *a, const void *b)
{
    struct slice x = slice_string((*(struct active_rcpt *const *)a)->address);
    struct slice y = slice_string((*(struct active_rcpt *const *)b)->address);
    size_t at_x = slice_find_last(x, '@'), at_y = slice_find_last(y, '@');
    int order;

    if ((at_x == x.len) != (at_y == y.len)) {
        return at_x == x.len ? 1 : -1;
    }
    order = strcasecmp(x.ptr + at_x, y.ptr + at_y);
    return order != 0 ? order : slice_compare(x, y);
}

/* Read the next page of pending recipients into memory. False when the message can't go on. */
static bool read_page(struct queue *q, struct active_msg *m, size_t max)
{
    struct spool_rcpt page[READ_PAGE];
    size_t count = 0;
    int rc;

    if (max > READ_PAGE) {
        max = READ_PAGE;
    }
    rc = spool_read_rcpts(q->spool, m->id, m->last_read, true, max, page, &count);
    if (rc != 0) {
        log_warning("%s: recipients can't be read: %s", m->id_text, spool_error(q->spool));
        if (rc == -EBADMSG) {
            queue_set_aside(q, m->id, spool_error(q->spool));
        } else if (rc == -EUCLEAN || rc == -EIO) {
            m->unreadable = true; /* see pass_end */
        }
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        active_add_rcpt(m, &page[i],
                        page[i].transport.len == 0 ||
                            page[i].route_generation != q->conf->route_generation);
    }
    if (count < max) {
        m->all_read = true;
    }
    return true;
}

/* End a pass without an attempt: to be given up, to be reported on, or to wait on disk for its
 * destination's share. Takes `parked`. */
static void end_at_once(struct queue *q, struct msg_id id, enum pass_how how, char *parked)
{
    struct step *step = mem_new(sizeof *step);

    step->type = STEP_END_PASS;
    step->id = id;
    step->how = how;
    step->parked = parked;
    queue_step(q, step);
}

/* The key under which a message that has fallen due is to stay on disk; NULL when it is to be
 * opened. Few recipients are read for it now instead of a moment later. */
static char *stays_parked(struct queue *q, struct active_msg *m)
{
    struct park_target target = {.routes = 0};
    struct route route;
    const char *nowhere;

    if (m->undone > KEEP_RCPTS_MAX) {
        return NULL; /* the scheduler will tell */
    }
    while (!m->all_read) {
        if (!read_page(q, m, READ_PAGE)) {
            m->all_read = m->touched = m->deferred_else = true; /* as in pass_read */
            return NULL;
        }
    }
    for (size_t i = 0; i < m->rcpt_count; i++) {
        struct site *site = queue_route(q, m, &m->rcpts[i], &route, &nowhere);

        if (site == NULL || !queue_thread_lets_go(q, m, site)) {
            return NULL; /* pass_read sees to it */
        }
        park_target_add(q, &target, &route);
    }
    return park_target_full(q, &target, slice_string(m->lane));
}

/* It could not be read. */
static void load_failed(struct queue *q, struct msg_id id, int rc)
{
    char text[SPOOL_ID_TEXT_MAX];

    if (rc == -EBADMSG) {
        queue_set_aside(q, id, spool_error(q->spool));
    } else if (rc == -EUCLEAN || rc == -EIO) {
        damage_hide(q, id, spool_error(q->spool), true); /* other mail goes on */
    } else if (rc == -ENOENT && !spool_divides(q->spool)) {
        damage_hide(q, id, "an index names it, and it is not there", false);
    } else if (rc != -ENOENT) {
        spool_id_print(id, text);
        log_warning("%s: can't be read: %s", text, spool_error(q->spool));
        spool_unclaim(q->spool, id);
        q->next_due = wall_after(clock_wall(), US_PER_S);
    }
}

bool pass_load(struct queue *q, struct msg_id id, bool admitted)
{
    char lane_room[SCHED_CLASS_NAME_MAX];
    struct active_msg *active;
    struct spool_message m;
    char *parked;
    bool wanted;
    int rc;

    if (active_find(&q->active, id) != NULL) {
        return false; /* dropped from memory but with a delivery under way: end_pass gives it free
                       */
    }
    rc = spool_read(q->spool, id, &m);
    if (rc != 0) {
        load_failed(q, id, rc);
        return false;
    }
    m.created.us += queue_clock_pending(q, id);
    m.class_name = class_in_force(q->conf, m.class_name);
    if (m.state != SPOOL_INCOMING && m.state != SPOOL_DEFERRED) {
        /* A damaged index: it named a message that an operator keeps. */
        log_warning("spool: a message on hold or set aside was found as if it were due");
        spool_unclaim(q->spool, id);
        return false;
    }
    wanted = take_wanted(q, id);
    if (m.force_expire || m.rcpt_pending == 0) {
        /* Nothing is tried any more. */
        end_at_once(q, id, m.rcpt_pending == 0 ? PASS_REPORT : PASS_TRIED, NULL);
        return false;
    }
    if (m.parked.len > 0 && park_is_full(q, m.parked)) {
        parked = mem_copy(m.parked.ptr, m.parked.len);
    } else {
        active = active_add(&q->active, &m, lane_of(q, &m, lane_room), clock_mono(), clock_wall());
        active->wanted = wanted;
        parked = admitted ? NULL : stays_parked(q, active);
        if (parked == NULL) {
            return pass_open(q, active, admitted);
        }
        active_remove(&q->active, active);
    }
    end_at_once(q, id, PASS_PARKED, parked);
    if (wanted) {
        pass_want(q, id); /* it still is */
    }
    return false;
}

/* Find out where recipients go. Those that don't go now are dealt with; the number of the others,
 * who stand in ret_rcpts and ret_sites. */
static size_t place_rcpts(struct queue *q, struct active_msg *m, struct active_rcpt **order,
                          size_t count, struct sched_rcpt *ret_rcpts, struct site **ret_sites)
{
    size_t go = 0;

    for (size_t i = 0; i < count; i++) {
        struct active_rcpt *r = order[i];
        struct route route;
        const char *nowhere;
        struct site *site = queue_route(q, m, r, &route, &nowhere);

        if (site == NULL) {
            queue_stuck(q, m, r->n, &route, nowhere);
        } else if (!queue_thread_keeps(q, m, r, site)) {
            ret_rcpts[go] = (struct sched_rcpt){
                .n = r->n, .transport = site->transport, .dest = slice_string(site->destination)};
            ret_sites[go++] = site;
        }
    }
    return go;
}

void pass_read(struct queue *q, struct active_msg *m, uint32_t max)
{
    struct active_rcpt **order;
    struct sched_rcpt *rcpts;
    struct site **sites;
    size_t count, first, go;
    bool complete;

    sites_trim(q);
    /* A message that came with its recipients has them all; they are handed on in portions of what
     * the scheduler allows, as if read. */
    while (!m->all_read && m->rcpt_count - m->rcpt_handed < max) {
        if (!read_page(q, m, max - (m->rcpt_count - m->rcpt_handed))) {
            /* What is left is tried in another pass. */
            m->all_read = m->touched = m->deferred_else = true;
        }
    }
    first = m->rcpt_handed;
    count = m->rcpt_count - first < max ? m->rcpt_count - first : max;
    m->rcpt_handed += count;
    complete = m->all_read && m->rcpt_handed == m->rcpt_count;
    order = mem_array(count, sizeof(struct active_rcpt *));
    rcpts = mem_array(count, sizeof *rcpts);
    sites = mem_array(count, sizeof(struct site *));
    for (size_t i = 0; i < count; i++) {
        order[i] = &m->rcpts[first + i];
    }
    if (count > 1) {
        qsort(order, count, sizeof *order, compare_addresses);
    }
    go = place_rcpts(q, m, order, count, rcpts, sites);
    sched_recipients(q->sched, clock_mono(), (struct sched_msg){m->id.n}, rcpts, go,
                     (uint32_t)(count - go), complete);
    for (size_t i = 0; i < go; i++) {
        if (sites[i]->tuning.own && (i == 0 || sites[i] != sites[i - 1])) {
            site_tell_scheduler(q, sites[i]);
        }
        if (i == 0 || sites[i] != sites[i - 1]) {
            warn_of_clog(q, sites[i]);
        }
    }
    mem_free(sites);
    mem_free(rcpts);
    mem_free(order);
}

/* ---- the end of a pass ---------------------------------------------------------------------- */

/* Give up every pending recipient: what was a reason to wait becomes the reason of the failure. One
 * at a time, since a settle ends the life of what was read before it. */
static int expire(struct queue *q, const struct spool_message *m)
{
    struct spool_rcpt r;
    struct buf words;
    size_t count;
    int rc;

    buf_init(&words, 1u << 20);
    for (;;) {
        struct spool_verdict v = {.state = SPOOL_RCPT_FAILED};

        rc = spool_read_rcpts(q->spool, m->id, 0, true, 1, &r, &count);
        if (rc != 0 || count == 0) {
            break;
        }
        if (r.diagnostic.len == 0) {
            r.diagnostic = m->force_expire ? SLICE("message is administratively expired")
                                           : SLICE("message could not be delivered in time");
            r.status = m->force_expire ? SLICE("4.7.0") : SLICE("4.4.7");
        }
        buf_clear(&words);
        (void)buf_add(&words, r.status); /* bounded by the spool's limits */
        (void)buf_add(&words, r.diagnostic);
        (void)buf_add(&words, r.remote);
        if (m->spoolid.len > 0) {
            expiry_put_notary(&words, clock_wall().us - m->created.us, r.notary);
        }
        const char *at = buf_cstr(&words);
        v.status = slice_of(at, r.status.len);
        v.diagnostic = slice_of(at + r.status.len, r.diagnostic.len);
        v.remote = slice_of(at + r.status.len + r.diagnostic.len, r.remote.len);
        v.notary = slice_skip(buf_slice(&words), r.status.len + r.diagnostic.len + r.remote.len);
        v.when = r.last_attempt;
        v.done = r.notify != NOTIFY_DEFAULT && (r.notify & NOTIFY_FAILURE) == 0;
        struct statistics_line line = {.spoolid = m->spoolid,
                                       .channel = r.transport,
                                       .host = r.nexthop,
                                       .created = m->created,
                                       .listed = m->listed};
        queue_statistics(q, m->id, "expire", m->path, &line);
        rc = spool_settle(q->spool, m->id, r.n, &v);
        if (rc != 0) {
            break;
        }
    }
    buf_fini(&words);
    return rc;
}

/* A message with strings of its own, which outlast further calls of the spool. */
struct kept_message {
    struct spool_message m;
    struct buf strings;
};

static int keep_message(struct queue *q, struct msg_id id, struct kept_message *kept)
{
    struct spool_message *m = &kept->m;
    struct slice *parts[] = {&m->sender, &m->envid, &m->class_name, &m->path, &m->spoolid};
    size_t at = 1; /* behind a byte that makes sure of a pointer for empty ones */
    int rc;

    buf_init(&kept->strings, 1u << 20);
    CHECK(buf_add_byte(&kept->strings, '\0'));
    rc = spool_read(q->spool, id, m);
    if (rc != 0) {
        return rc;
    }
    m->created.us += queue_clock_pending(q, id);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        CHECK(parts[i]->len == 0 || buf_add(&kept->strings, *parts[i])); /* the spool's limits */
    }
    m->reason = m->parked = m->client = slice_of("", 0);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        *parts[i] = slice_of(buf_slice(&kept->strings).ptr + at, parts[i]->len);
        at += parts[i]->len;
    }
    return 0;
}

/* When the message is due again whose pass has ended like this. */
static struct wall next_pass(struct queue *q, const struct step *step,
                             const struct spool_message *m)
{
    const struct conf *conf = q->conf;
    struct wall now = clock_wall(), due = WALL_NEVER;

    if (step->again_at.us == 0 || step->again_else) {
        due = wall_after(now, retry_backoff(conf->minimal_backoff_time_us,
                                            conf->maximal_backoff_time_us, now.us - m->created.us,
                                            (unsigned)conf->retry_jitter, &q->rng));
    }
    if (step->again_at.us != 0) {
        due = wall_min(due, step->again_at);
        due = step->own_expiry ? due : wall_min(due, wall_after(m->created, lifetime_us(conf, m)));
    }
    return due;
}

/* Park what is left of it, or let it wait for another pass, or go. */
static int settle_pass(struct queue *q, const struct spool_message *m, const struct step *step,
                       bool expired)
{
    struct wall due;
    char name[QUEUE_NAME_MAX];
    bool gone = false;
    int rc;

    if (step->how == PASS_PARKED && m->rcpt_pending > 0 && !expired) {
        due = step->again_at.us != 0 ? next_pass(q, step, m) : parked_until(q, m);
        rc = spool_park(q->spool, m->id, slice_string(step->parked), due);
        if (rc == 0) {
            park_tell(q, slice_string(step->parked));
        }
    } else {
        due = step->how == PASS_UNTRIED ? wall_after(clock_wall(), UNTRIED_WAIT_US)
                                        : next_pass(q, step, m);
        rc = spool_finish(q->spool, m->id, due, &gone);
    }
    if (rc == 0 && gone && !spool_divides(q->spool)) {
        log_info("%s: removed", queue_message_name(m, name));
    }
    if (rc == 0 && spool_divides(q->spool)) {
        q->next_due.us = 0; /* what is to be reported of all parts is due when the spool says */
    } else if (rc == 0 && !gone) {
        q->next_due = wall_min(q->next_due, due);
    }
    return rc;
}

static int end_pass_of(struct queue *q, const struct spool_message *m, const struct step *step)
{
    char name[QUEUE_NAME_MAX];
    int64_t age = clock_wall().us - m->created.us, lifetime = lifetime_us(q->conf, m);
    bool expired = false;
    int rc = 0;

    if (m->state == SPOOL_CORRUPT ||
        (m->rcpt_pending > 0 && (step->how == PASS_DROPPED || m->state == SPOOL_HOLD))) {
        spool_unclaim(q->spool, m->id); /* it may have been released and claimed again meanwhile */
        q->next_due.us = 0;
        return 0; /* what is left of it goes the way the operator chose */
    }
    if (m->rcpt_pending > 0 &&
        (m->force_expire || (step->how != PASS_UNTRIED && !step->own_expiry && age >= lifetime))) {
        expired = true;
        log_info("%s: from=<%.*s>, status=%s, returned to sender", queue_message_name(m, name),
                 SLICE_ARGS(m->sender), m->force_expire ? "force-expired" : "expired");
        q->expired++;
        rc = expire(q, m);
    }
    /* Where messages are divided the spool gathers what is to be reported of all parts, and hands
     * out the message again when it is time. */
    if (rc == 0 && (m->rcpt_to_report > 0 || expired) &&
        (step->how == PASS_REPORT || !spool_divides(q->spool))) {
        rc = report_results(q, m);
    }
    if (rc == 0 && m->rcpt_pending > 0 && !expired) {
        rc = report_delay(q, m, age, wall_after(m->created, lifetime));
    }
    return rc == 0 ? settle_pass(q, m, step, expired) : rc;
}

int pass_end(struct queue *q, const struct step *step)
{
    struct kept_message kept;
    int rc = keep_message(q, step->id, &kept);

    if (rc == 0) {
        rc = end_pass_of(q, &kept.m, step);
    }
    buf_fini(&kept.strings);
    return rc;
}

int pass_put_off(struct queue *q, const struct step *step)
{
    struct kept_message kept;
    struct spool_message *m = &kept.m;
    int rc = keep_message(q, step->id, &kept);

    /* Before they leave: their message comes to the end of its pass without them. */
    if (rc == 0) {
        rc = report_delay(q, m, clock_wall().us - m->created.us,
                          wall_after(m->created, lifetime_us(q->conf, m)));
    }
    if (rc == 0) {
        rc = spool_put_off(q->spool, step->id, step->ns, step->ns_count, slice_string(step->parked),
                           step->again_at);
    }
    buf_fini(&kept.strings);
    return rc;
}
