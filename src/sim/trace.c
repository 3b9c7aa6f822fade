#include "trace.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "class_name.h"
#include "hash.h"
#include "mem.h"
#include "rng.h"
#include "sender_group.h"
#include "trace_event.h"
#include "trace_line.h"

#define SAMPLE_SEED 1

#define NOT_ACTIVE UINT32_MAX

#define NEVER (-1)
/* Time after which a failed connection counts as timed out; others were refused. */
#define HANG_US (5 * US_PER_S)

/* A message whose end has not been seen. */
struct open_message {
    char *id;        /* owned */
    uint32_t number; /* NOT_ACTIVE: only its class is known yet */
    uint8_t class;
    bool marked;
    UT_hash_handle hh;
};

/* A recipient that was deferred, or that an event has named: further lines will name it. */
struct again {
    struct {
        uint64_t message, address; /* number of the message and hash of the address */
    } key;
    size_t rcpt;         /* index of the recipient */
    int64_t deferred_us; /* time of the last deferral by its site; NEVER */
    UT_hash_handle hh;
};

struct domain_slot {
    const char *name; /* borrowed from the trace */
    uint32_t index;
    int64_t down_us, failed_us; /* times of the first and the last failure to reach it; NEVER */
    bool hangs;
    int64_t reached_us; /* time of the last success; NEVER */
    UT_hash_handle hh;
};

struct trace_reader {
    struct trace *trace;
    struct trace_clock clock;
    struct open_message *open;
    struct again *again;
    struct domain_slot *domains;
    uint32_t *rcpt_messages; /* owned; parallel to trace->rcpts, which is still in the log's
                              * order */
    size_t message_size, rcpt_size, outcome_size;
    struct rng rng;
    bool tells_outcomes; /* whether the lines were events */
};

/* ---- domains and messages ------------------------------------------------------------------- */

static struct domain_slot *domain_add(struct trace_reader *r, char *name)
{
    struct trace *t = r->trace;
    struct domain_slot *slot = mem_new(sizeof *slot);
    struct trace_domain *d = mem_new(sizeof *d);

    d->name = name;
    t->domains = mem_resize(t->domains, t->domain_count + 1, sizeof(struct trace_domain *));
    slot->name = name;
    slot->index = (uint32_t)t->domain_count;
    slot->down_us = slot->failed_us = slot->reached_us = NEVER;
    t->domains[t->domain_count++] = d;
    HASH_ADD_KEYPTR(hh, r->domains, slot->name, strlen(slot->name), slot);
    return slot;
}

/* Returns the slot of a domain; NULL beyond the limit. */
static struct domain_slot *domain_need(struct trace_reader *r, struct slice written)
{
    char *name = mem_copy(written.ptr, written.len);
    struct domain_slot *slot;

    for (size_t i = 0; i < written.len; i++) {
        name[i] = ascii_lower(name[i]);
    }
    HASH_FIND(hh, r->domains, name, written.len, slot);
    if (slot != NULL) {
        mem_free(name);
    } else if (r->trace->domain_count == TRACE_DOMAINS_MAX) {
        mem_free(name);
        return NULL;
    } else {
        slot = domain_add(r, name);
    }
    return slot;
}

/* Keeps a fair sample of all deliveries (Vitter's algorithm R). */
static void sample(struct trace_reader *r, struct trace_domain *d, int64_t took_us)
{
    uint64_t place;

    d->deliveries++;
    place =
        d->deliveries <= TRACE_SAMPLES_MAX ? d->deliveries - 1 : rng_below(&r->rng, d->deliveries);
    if (place < TRACE_SAMPLES_MAX) {
        d->samples[place] = took_us;
    }
    d->sample_count =
        d->deliveries < TRACE_SAMPLES_MAX ? (uint32_t)d->deliveries : TRACE_SAMPLES_MAX;
}

static struct open_message *open_find(const struct trace_reader *r, struct slice id)
{
    struct open_message *m;

    HASH_FIND(hh, r->open, id.ptr, id.len, m);
    return m;
}

/* ---- lines ---------------------------------------------------------------------------------- */

static struct open_message *open_add(struct trace_reader *r, struct slice id)
{
    struct open_message *m = mem_new(sizeof *m);

    m->id = mem_copy(id.ptr, id.len);
    m->number = NOT_ACTIVE;
    HASH_ADD_KEYPTR(hh, r->open, m->id, id.len, m);
    return m;
}

/* Returns the number of a class; 0 beyond the limit. */
static uint8_t class_need(struct trace *t, struct slice name)
{
    size_t i = 0;

    while (i < t->class_count && !slice_equal(slice_string(t->classes[i]), name)) {
        i++;
    }
    if (i == TRACE_CLASSES_MAX) {
        return 0;
    }
    if (i == t->class_count) {
        t->classes[t->class_count++] = mem_copy(name.ptr, name.len);
    }
    return (uint8_t)(i + 1);
}

/* Takes the class of a message. Returns false beyond a limit, as the functions below do. */
static bool take_class(struct trace_reader *r, const struct trace_line *l)
{
    struct open_message *m = open_find(r, l->id);
    uint8_t class = class_need(r->trace, l->class_name);

    if (class == 0 || HASH_COUNT(r->open) >= TRACE_MESSAGES_MAX) {
        return false;
    }
    if (m == NULL) {
        m = open_add(r, l->id);
        m->class = class;
        m->marked = l->marked;
    }
    return true;
}

/* Takes the class from an event of a delivery, which is the scheduler's. The classes of bulk mail
 * and of other mail are those of default_class = auto, unless the message arrived with a class. */
static void note_class(struct trace_reader *r, const struct open_message *m,
                       const struct trace_line *l)
{
    struct trace_message *message = &r->trace->messages[m->number];

    if (message->class == 0 && l->class_name.len > 0 &&
        !slice_equal(l->class_name, SLICE(CLASS_NAME_PERSONAL))) {
        message->class = class_need(r->trace, l->class_name);
        message->marked = message->class > 0;
    }
}

static bool add_recipient(struct trace_reader *r, uint32_t message, uint32_t domain);
static void again_add(struct trace_reader *r, uint32_t message, struct slice address, size_t rcpt);

/* Takes the recipient from the event of an arrival, which names it if there is only one. */
static bool take_recipient(struct trace_reader *r, uint32_t message, const struct trace_line *l)
{
    struct domain_slot *slot;

    if (!l->event || l->domain.len == 0) {
        return true;
    }
    r->tells_outcomes = true;
    slot = domain_need(r, l->domain);
    if (slot == NULL || !add_recipient(r, message, slot->index)) {
        return false;
    }
    again_add(r, message, l->address, r->trace->rcpt_count - 1);
    return true;
}

static bool take_active(struct trace_reader *r, const struct trace_line *l)
{
    struct trace *t = r->trace;
    struct open_message *m = open_find(r, l->id);

    if (m != NULL && m->number != NOT_ACTIVE) {
        return true; /* it was deferred and is active again */
    }
    if (t->message_count == TRACE_MESSAGES_MAX) {
        return false;
    }
    if (m == NULL) {
        m = open_add(r, l->id);
    }
    m->number = (uint32_t)t->message_count;
    t->messages = mem_grow(t->messages, t->message_count, &r->message_size, sizeof *t->messages);
    t->messages[t->message_count++] =
        (struct trace_message){.at_us = l->at_us,
                               .size_bytes = l->size_bytes,
                               .class = m->class,
                               .group = (uint8_t)sender_group(CONF_CLASS_FAIRNESS_SENDER, true,
                                                              l->sender, slice_of(NULL, 0)),
                               .marked = m->marked};
    if (l->event && l->class_name.len > 0) {
        t->messages[m->number].class = class_need(t, l->class_name);
    }
    return take_recipient(r, m->number, l);
}

static struct again *again_find(const struct trace_reader *r, uint32_t message,
                                struct slice address)
{
    struct again *a, key;

    memset(&key, 0, sizeof key);
    key.key.message = message;
    key.key.address = hash_bytes(address.ptr, address.len);
    HASH_FIND(hh, r->again, &key.key, sizeof key.key, a);
    return a;
}

static void again_add(struct trace_reader *r, uint32_t message, struct slice address, size_t rcpt)
{
    struct again *a = mem_new(sizeof *a);

    a->key.message = message;
    a->key.address = hash_bytes(address.ptr, address.len);
    a->rcpt = rcpt;
    a->deferred_us = NEVER;
    HASH_ADD(hh, r->again, key, sizeof a->key, a);
}

/* Adds a recipient to a message; returns false beyond the limit. */
static bool add_recipient(struct trace_reader *r, uint32_t message, uint32_t domain)
{
    struct trace *t = r->trace;
    size_t size = r->rcpt_size; /* both arrays have elements of one size */

    if (t->rcpt_count == TRACE_MESSAGES_MAX) {
        return false;
    }
    t->rcpts = mem_grow(t->rcpts, t->rcpt_count, &size, sizeof *t->rcpts);
    t->outcomes = mem_grow(t->outcomes, t->rcpt_count, &r->outcome_size, sizeof *t->outcomes);
    r->rcpt_messages =
        mem_grow(r->rcpt_messages, t->rcpt_count, &r->rcpt_size, sizeof *r->rcpt_messages);
    t->rcpts[t->rcpt_count] = domain;
    t->outcomes[t->rcpt_count] = (struct trace_outcome){.sent_us = US_FOREVER};
    r->rcpt_messages[t->rcpt_count++] = message;
    t->messages[message].rcpt_count++;
    return true;
}

/* ---- outcomes from events ------------------------------------------------------------------- */

/* Returns the middle between the last failure and the next success, as the actual end of an outage
 * is not known. */
static int64_t between(int64_t failed_us, int64_t begun_us)
{
    return begun_us > failed_us ? failed_us + (begun_us - failed_us) / 2 : failed_us;
}

static void outage_end(struct trace_reader *r, struct domain_slot *slot, int64_t until_us)
{
    struct trace_domain *d = r->trace->domains[slot->index];

    if (d->outage_count < TRACE_OUTAGES_MAX) {
        d->outages = mem_resize(d->outages, d->outage_count + 1ul, sizeof *d->outages);
        d->outages[d->outage_count++] = (struct trace_outage){
            .from_us = slot->down_us, .until_us = until_us, .hangs = slot->hangs};
    }
    slot->down_us = NEVER;
}

/* Updates the domain's outage after its site was reached or not. Returns false if other deliveries
 * reached the site since, so that the failure concerns only one delivery. */
static bool domain_tried(struct trace_reader *r, struct domain_slot *slot,
                         const struct trace_line *l)
{
    int64_t begun_us = l->at_us - l->took_us;

    if (!l->unreached) {
        if (slot->down_us != NEVER && begun_us >= slot->down_us) {
            outage_end(r, slot, between(slot->failed_us, begun_us));
        }
        slot->reached_us = l->at_us;
        return true;
    }
    if (slot->down_us == NEVER && slot->reached_us >= begun_us) {
        return false;
    }
    if (slot->down_us == NEVER) {
        slot->down_us = begun_us;
        slot->hangs = l->took_us >= HANG_US;
    }
    slot->failed_us = l->at_us;
    return true;
}

/* Records the outcome of a recipient. `a`: earlier data of it, or NULL. */
static void note_outcome(struct trace_reader *r, struct domain_slot *slot, struct again *a,
                         size_t rcpt, const struct trace_line *l)
{
    struct trace_outcome *outcome = &r->trace->outcomes[rcpt];
    bool site_down = false;

    if (!l->unattempted) {
        site_down = domain_tried(r, slot, l) && l->unreached;
    }
    if (l->status == TRACE_DEFERRED) {
        if (!l->unattempted && !site_down && a != NULL) {
            a->deferred_us = l->at_us;
        }
        return;
    }
    outcome->bounced = l->status == TRACE_BOUNCED;
    outcome->sent_us = l->status == TRACE_SENT ? l->at_us : US_FOREVER;
    if (l->status == TRACE_EXPIRED) {
        outcome->not_before_us = US_FOREVER;
    } else if (a != NULL && a->deferred_us != NEVER) {
        outcome->not_before_us =
            between(a->deferred_us, l->took_us >= 0 ? l->at_us - l->took_us : l->at_us);
    }
}

static bool take_attempt(struct trace_reader *r, const struct trace_line *l)
{
    struct open_message *m = open_find(r, l->id);
    struct trace *t = r->trace;
    bool last = l->status != TRACE_DEFERRED;
    struct domain_slot *slot;
    struct again *a;
    size_t rcpt;

    if (m == NULL || m->number == NOT_ACTIVE) {
        return true; /* it arrived before the log begins */
    }
    slot = domain_need(r, l->domain);
    if (slot == NULL) {
        return false;
    }
    if (l->status == TRACE_SENT && l->took_us >= 0) {
        sample(r, t->domains[slot->index], l->took_us);
    }
    a = again_find(r, m->number, l->address);
    rcpt = a != NULL ? a->rcpt : t->rcpt_count;
    if (a == NULL && !add_recipient(r, m->number, slot->index)) {
        return false;
    }
    if (a == NULL && !last) {
        again_add(r, m->number, l->address, rcpt);
        a = again_find(r, m->number, l->address);
    }
    if (l->event) {
        r->tells_outcomes = true;
        note_class(r, m, l);
        note_outcome(r, slot, a, rcpt, l);
    }
    if (a != NULL && last) {
        HASH_DEL(r->again, a);
        mem_free(a);
    }
    return true;
}

static void take_gone(struct trace_reader *r, const struct trace_line *l)
{
    struct open_message *m = open_find(r, l->id);

    if (m != NULL) {
        HASH_DEL(r->open, m);
        mem_free(m->id);
        mem_free(m);
    }
}

struct trace_reader *trace_reader_new(void)
{
    struct trace_reader *r = mem_new(sizeof *r);

    r->trace = mem_new(sizeof *r->trace);
    rng_init(&r->rng, SAMPLE_SEED);
    return r;
}

void trace_reader_line(struct trace_reader *r, struct slice line)
{
    struct trace_line l;
    json_t *event = NULL;
    bool within = true;

    r->trace->lines++;
    if (trace_event_is(line)) {
        event = trace_event_read(line, &l);
    } else {
        trace_line_read(line, &r->clock, &l);
    }
    switch (l.kind) {
    case TRACE_LINE_OTHER:
        json_decref(event);
        return;
    case TRACE_LINE_ACTIVE:
        within = take_active(r, &l);
        break;
    case TRACE_LINE_ATTEMPT:
        within = take_attempt(r, &l);
        break;
    case TRACE_LINE_CLASS:
        within = take_class(r, &l);
        break;
    case TRACE_LINE_GONE:
        take_gone(r, &l);
        break;
    }
    r->trace->understood++;
    r->trace->over_limit += within ? 0 : 1;
    json_decref(event);
}

/* ---- the whole trace ------------------------------------------------------------------------ */

/* Sorts the recipients by message. */
static void group_recipients(struct trace_reader *r)
{
    struct trace *t = r->trace;
    uint32_t *grouped = mem_array(t->rcpt_count, sizeof *grouped);
    struct trace_outcome *outcomes =
        r->tells_outcomes ? mem_array(t->rcpt_count, sizeof *outcomes) : NULL;
    size_t at = 0;

    for (size_t i = 0; i < t->message_count; i++) {
        t->messages[i].first_rcpt = at;
        at += t->messages[i].rcpt_count;
        t->messages[i].rcpt_count = 0;
    }
    for (size_t i = 0; i < t->rcpt_count; i++) {
        struct trace_message *m = &t->messages[r->rcpt_messages[i]];

        if (outcomes != NULL) {
            outcomes[m->first_rcpt + m->rcpt_count] = t->outcomes[i];
        }
        grouped[m->first_rcpt + m->rcpt_count++] = t->rcpts[i];
    }
    mem_free(t->rcpts);
    mem_free(t->outcomes);
    t->rcpts = grouped;
    t->outcomes = outcomes;
}

/* Ends the outcomes: a recipient whose last line is a deferral stays deferred, and a site that was
 * not reached at the end stays down. */
static void end_outcomes(struct trace_reader *r)
{
    struct domain_slot *d, *next_d;
    struct again *a, *next_a;

    HASH_ITER(hh, r->again, a, next_a)
    {
        if (a->deferred_us != NEVER) {
            r->trace->outcomes[a->rcpt].not_before_us = US_FOREVER;
        }
    }
    HASH_ITER(hh, r->domains, d, next_d)
    {
        if (d->down_us != NEVER) {
            outage_end(r, d, US_FOREVER);
        }
    }
}

static void shift(int64_t *time_us, int64_t by_us)
{
    if (*time_us != US_FOREVER) {
        *time_us = *time_us > by_us ? *time_us - by_us : 0;
    }
}

/* Shifts all times so that the first message is at 0. */
static void shift_outcomes(struct trace *t)
{
    for (size_t i = 0; t->outcomes != NULL && i < t->rcpt_count; i++) {
        shift(&t->outcomes[i].not_before_us, t->first_us);
        shift(&t->outcomes[i].sent_us, t->first_us);
    }
    for (size_t i = 0; i < t->domain_count; i++) {
        for (uint32_t k = 0; k < t->domains[i]->outage_count; k++) {
            shift(&t->domains[i]->outages[k].from_us, t->first_us);
            shift(&t->domains[i]->outages[k].until_us, t->first_us);
        }
    }
}

static int compare_arrival(const void *a, const void *b)
{
    const struct trace_message *x = a, *y = b;

    if (x->at_us != y->at_us) {
        return x->at_us < y->at_us ? -1 : 1;
    }
    return x->first_rcpt < y->first_rcpt ? -1 : x->first_rcpt > y->first_rcpt;
}

/* Leaves out messages without a recipient, sorts the others, and shifts their times so that the
 * first is at 0. */
static void order_messages(struct trace *t)
{
    size_t kept = 0;

    for (size_t i = 0; i < t->message_count; i++) {
        if (t->messages[i].rcpt_count > 0) {
            t->messages[kept++] = t->messages[i];
        }
    }
    t->incomplete = t->message_count - kept;
    t->message_count = kept;
    if (kept > 1) {
        qsort(t->messages, kept, sizeof *t->messages, compare_arrival);
    }
    t->first_us = kept > 0 ? t->messages[0].at_us : 0;
    for (size_t i = 0; i < kept; i++) {
        t->messages[i].at_us -= t->first_us;
    }
}

struct trace *trace_reader_finish(struct trace_reader *r)
{
    struct open_message *m, *next_m;
    struct domain_slot *d, *next_d;
    struct again *a, *next_a;
    struct trace *t = r->trace;

    end_outcomes(r);
    group_recipients(r);
    order_messages(t);
    shift_outcomes(t);
    HASH_ITER(hh, r->open, m, next_m)
    {
        HASH_DEL(r->open, m);
        mem_free(m->id);
        mem_free(m);
    }
    HASH_ITER(hh, r->again, a, next_a)
    {
        HASH_DEL(r->again, a);
        mem_free(a);
    }
    HASH_ITER(hh, r->domains, d, next_d)
    {
        HASH_DEL(r->domains, d);
        mem_free(d);
    }
    mem_free(r->rcpt_messages);
    mem_free(r);
    return t;
}

void trace_free(struct trace *t)
{
    if (t == NULL) {
        return;
    }
    for (size_t i = 0; i < t->domain_count; i++) {
        mem_free(t->domains[i]->name);
        mem_free(t->domains[i]->outages);
        mem_free(t->domains[i]);
    }
    for (size_t i = 0; i < t->class_count; i++) {
        mem_free(t->classes[i]);
    }
    mem_free(t->domains);
    mem_free(t->messages);
    mem_free(t->rcpts);
    mem_free(t->outcomes);
    mem_free(t);
}

/* ---- files ---------------------------------------------------------------------------------- */

/* Passes on the complete lines. A line longer than the limit is cut there; parts of it that are
 * read later count as further lines, which are ignored. */
static void hand_lines(struct trace_reader *r, struct buf *text, bool at_end)
{
    struct slice rest = buf_slice(text);
    size_t used = 0;

    while (rest.len > 0) {
        size_t len = slice_find(rest, '\n');

        if (len == rest.len && len < TRACE_LINE_MAX && !at_end) {
            break;
        }
        trace_reader_line(r, slice_of(rest.ptr, len < TRACE_LINE_MAX ? len : TRACE_LINE_MAX));
        used += len < rest.len ? len + 1 : len;
        rest = slice_skip(rest, len < rest.len ? len + 1 : len);
    }
    buf_consume(text, used);
}

static int read_lines(int fd, struct trace_reader *r)
{
    struct buf text;
    ssize_t n;
    int rc = 0;

    buf_init(&text, 1u << 20);
    do {
        char *room = buf_room(&text, 65536);

        CHECK(room != NULL); /* less than a line is left over */
        n = read(fd, room, 65536);
        if (n >= 0) {
            buf_grew(&text, (size_t)n);
            hand_lines(r, &text, n == 0);
        } else if (errno != EINTR) {
            rc = -errno;
        }
    } while (n != 0 && rc == 0);
    buf_fini(&text);
    return rc;
}

struct trace *trace_load(const char *path, struct buf *error)
{
    struct trace_reader *r = trace_reader_new();
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    int rc = fd < 0 ? -errno : read_lines(fd, r);
    struct trace *t = trace_reader_finish(r);

    if (fd >= 0) {
        (void)close(fd); /* read only */
    }
    if (rc == 0 && t->message_count == 0) {
        (void)buf_addf(error, "%s: error: no mail in it\n", path); /* a path fits */
    } else if (rc != 0) {
        (void)buf_addf(error, "%s: error: %s\n", path, strerror(-rc)); /* a path fits */
    } else {
        return t;
    }
    trace_free(t);
    return NULL;
}
