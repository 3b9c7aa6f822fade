#include "trace.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "hash.h"
#include "mem.h"
#include "rng.h"
#include "sender_group.h"
#include "trace_line.h"

#define SAMPLE_SEED 1

#define NOT_ACTIVE UINT32_MAX

/* A message whose end has not been seen. */
struct open_message {
    char *id;        /* owned */
    uint32_t number; /* NOT_ACTIVE: only its class is known yet */
    uint8_t class;
    bool marked;
    UT_hash_handle hh;
};

/* A recipient that was deferred: it will be named again. */
struct again {
    struct {
        uint64_t message, address; /* number and hash */
    } key;
    UT_hash_handle hh;
};

struct domain_slot {
    const char *name; /* borrowed from the trace */
    uint32_t index;
    UT_hash_handle hh;
};

struct trace_reader {
    struct trace *trace;
    struct trace_clock clock;
    struct open_message *open;
    struct again *again;
    struct domain_slot *domains;
    uint32_t *rcpt_messages; /* owned; beside trace->rcpts, which is in the log's order for now */
    size_t message_size, rcpt_size;
    struct rng rng;
};

/* ---- what has been seen --------------------------------------------------------------------- */

static struct domain_slot *domain_add(struct trace_reader *r, char *name)
{
    struct trace *t = r->trace;
    struct domain_slot *slot = mem_new(sizeof *slot);
    struct trace_domain *d = mem_new(sizeof *d);

    d->name = name;
    t->domains = mem_resize(t->domains, t->domain_count + 1, sizeof(struct trace_domain *));
    slot->name = name;
    slot->index = (uint32_t)t->domain_count;
    t->domains[t->domain_count++] = d;
    HASH_ADD_KEYPTR(hh, r->domains, slot->name, strlen(slot->name), slot);
    return slot;
}

/* False: one too many. */
static bool domain_need(struct trace_reader *r, struct slice written, uint32_t *ret_index)
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
        return false;
    } else {
        slot = domain_add(r, name);
    }
    *ret_index = slot->index;
    return true;
}

/* Keep a fair choice of all deliveries (Vitter's algorithm R). */
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

/* False, here and below: it passes a limit. */
static bool take_class(struct trace_reader *r, const struct trace_line *l)
{
    struct trace *t = r->trace;
    struct open_message *m = open_find(r, l->id);
    size_t i = 0;

    while (i < t->class_count && !slice_equal(slice_string(t->classes[i]), l->class_name)) {
        i++;
    }
    if (i == TRACE_CLASSES_MAX || HASH_COUNT(r->open) >= TRACE_MESSAGES_MAX) {
        return false;
    }
    if (i == t->class_count) {
        t->classes[t->class_count++] = mem_copy(l->class_name.ptr, l->class_name.len);
    }
    if (m == NULL) {
        m = open_add(r, l->id);
        m->class = (uint8_t)(i + 1);
        m->marked = l->marked;
    }
    return true;
}

static bool take_active(struct trace_reader *r, const struct trace_line *l)
{
    struct trace *t = r->trace;
    struct open_message *m = open_find(r, l->id);

    if (m != NULL && m->number != NOT_ACTIVE) {
        return true; /* it was deferred and comes again */
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
    return true;
}

/* Is it the first time that this recipient of this message is named? `last`: and it will not be
 * again. */
static bool named_first(struct trace_reader *r, uint32_t message, struct slice address, bool last)
{
    struct again *a, key;

    memset(&key, 0, sizeof key);
    key.key.message = message;
    key.key.address = hash_bytes(address.ptr, address.len);
    HASH_FIND(hh, r->again, &key.key, sizeof key.key, a);
    if (a != NULL && last) {
        HASH_DEL(r->again, a);
        mem_free(a);
        return false;
    }
    if (a == NULL && !last) {
        a = mem_new(sizeof *a);
        a->key = key.key;
        HASH_ADD(hh, r->again, key, sizeof a->key, a);
        return true;
    }
    return a == NULL;
}

static bool take_attempt(struct trace_reader *r, const struct trace_line *l)
{
    struct open_message *m = open_find(r, l->id);
    struct trace *t = r->trace;
    uint32_t domain;
    size_t size = r->rcpt_size; /* both arrays have elements of one size */

    if (m == NULL || m->number == NOT_ACTIVE) {
        return true; /* it arrived before the log begins */
    }
    if (t->rcpt_count == TRACE_MESSAGES_MAX || !domain_need(r, l->domain, &domain)) {
        return false;
    }
    if (l->status == TRACE_SENT && l->took_us >= 0) {
        sample(r, t->domains[domain], l->took_us);
    }
    if (!named_first(r, m->number, l->address, l->status != TRACE_DEFERRED)) {
        return true;
    }
    t->rcpts = mem_grow(t->rcpts, t->rcpt_count, &size, sizeof *t->rcpts);
    r->rcpt_messages =
        mem_grow(r->rcpt_messages, t->rcpt_count, &r->rcpt_size, sizeof *r->rcpt_messages);
    t->rcpts[t->rcpt_count] = domain;
    r->rcpt_messages[t->rcpt_count++] = m->number;
    t->messages[m->number].rcpt_count++;
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
    bool within = true;

    r->trace->lines++;
    trace_line_read(line, &r->clock, &l);
    switch (l.kind) {
    case TRACE_LINE_OTHER:
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
}

/* ---- the whole ------------------------------------------------------------------------------ */

/* Bring the recipients together by message. */
static void group_recipients(struct trace_reader *r)
{
    struct trace *t = r->trace;
    uint32_t *grouped = mem_array(t->rcpt_count, sizeof *grouped);
    size_t at = 0;

    for (size_t i = 0; i < t->message_count; i++) {
        t->messages[i].first_rcpt = at;
        at += t->messages[i].rcpt_count;
        t->messages[i].rcpt_count = 0;
    }
    for (size_t i = 0; i < t->rcpt_count; i++) {
        struct trace_message *m = &t->messages[r->rcpt_messages[i]];

        grouped[m->first_rcpt + m->rcpt_count++] = t->rcpts[i];
    }
    mem_free(t->rcpts);
    t->rcpts = grouped;
}

static int compare_arrival(const void *a, const void *b)
{
    const struct trace_message *x = a, *y = b;

    if (x->at_us != y->at_us) {
        return x->at_us < y->at_us ? -1 : 1;
    }
    return x->first_rcpt < y->first_rcpt ? -1 : x->first_rcpt > y->first_rcpt;
}

/* Leave out those without a recipient, put the rest in order, and let time begin at 0. */
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
    for (size_t i = kept; i-- > 0;) {
        t->messages[i].at_us -= t->messages[0].at_us;
    }
}

struct trace *trace_reader_finish(struct trace_reader *r)
{
    struct open_message *m, *next_m;
    struct domain_slot *d, *next_d;
    struct again *a, *next_a;
    struct trace *t = r->trace;

    group_recipients(r);
    order_messages(t);
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
        mem_free(t->domains[i]);
    }
    for (size_t i = 0; i < t->class_count; i++) {
        mem_free(t->classes[i]);
    }
    mem_free(t->domains);
    mem_free(t->messages);
    mem_free(t->rcpts);
    mem_free(t);
}

/* ---- files ---------------------------------------------------------------------------------- */

/* Hand on the lines that are complete. One that outgrows the limit is cut there; what is behind it
 * counts as lines of their own, which nothing understands. */
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

        CHECK(room != NULL); /* less than a line is left over from before */
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
        (void)close(fd); /* only read from */
    }
    if (rc == 0 && t->message_count == 0) {
        (void)buf_addf(error, "%s: error: no mail in it\n", path); /* a path fits */
    } else if (rc != 0) {
        (void)buf_addf(error, "%s: error: %s\n", path, strerror(-rc)); /* as above */
    } else {
        return t;
    }
    trace_free(t);
    return NULL;
}
