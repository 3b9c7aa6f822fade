/*
 * What the mailq protocols ask of the queue: threads, which are destinations with mail, with the
 * deliveries that are under way to them. One page is a bounded piece of work.
 */
#include "queue.h"

#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "clock.h"
#include "listing.h"
#include "mem.h"

/* Threads in one answer; a longer list is asked for in pages. */
#define THREADS_PAGE 100
/* Threads that can be listed at all: those with the most mail. */
#define THREADS_MAX 1000
/* Recipients of its oldest message that are looked at for a thread's last reply. */
#define OLDEST_RCPTS 50

static int by_name(const void *a, const void *b)
{
    const struct spool_destination *x = a, *y = b;
    int order = slice_compare(x->transport, y->transport);

    return order != 0 ? order : slice_compare(x->nexthop, y->nexthop);
}

static bool goes_to(const struct queue *q, const struct flight *f,
                    const struct spool_destination *d)
{
    return slice_equal(slice_string(q->transports[f->transport]), d->transport) &&
           slice_equal_nocase(slice_string(f->dest), d->nexthop);
}

/* The deliveries under way to one destination. All flights are looked at for each: there are some
 * hundreds of them. */
static json_t *flights_json(struct queue *q, const struct spool_destination *d)
{
    json_t *array = json_array();
    struct flight *f, *next;

    HASH_ITER(hh, q->active.flights, f, next)
    {
        if (goes_to(q, f, d)) {
            json_t *object = json_pack("{s:I, s:f, s:I}", "agent", (json_int_t)f->agent, "age",
                                       (double)(clock_mono().us - f->handed.us) / (double)US_PER_S,
                                       "recipients", (json_int_t)f->rcpt_count);

            CHECK(object != NULL);
            CHECK(json_array_append_new(array, object) == 0);
        }
    }
    return array;
}

static void set(json_t *object, const char *name, json_t *value)
{
    CHECK(json_object_set_new(object, name, value) == 0);
}

/* Its oldest message: age, attempts, when it is due. */
static void add_oldest(struct queue *q, const struct spool_destination *d, json_t *object)
{
    struct spool_filter f = {.states = 1u << SPOOL_INCOMING | 1u << SPOOL_DEFERRED};
    struct spool_rcpt rcpts[OLDEST_RCPTS];
    struct spool_message m;
    struct msg_id id;
    struct buf name;
    size_t count = 0, rcpt_count = 0;
    int64_t now = clock_wall().us;

    buf_init(&name, (size_t)2 * SPOOL_ROUTE_MAX + 2);
    (void)buf_addf(&name, "%.*s/%.*s", SLICE_ARGS(d->transport), SLICE_ARGS(d->nexthop)); /* fits */
    f.destination = buf_slice(&name);
    if (spool_scan(q->spool, &f, 1, &id, &count) == 0 && count == 1 &&
        spool_read(q->spool, id, &m) == 0) {
        set(object, "oldest_age", json_real((double)(now - m.arrived.us) / (double)US_PER_S));
        set(object, "due_in", json_real((double)(m.due.us - now) / (double)US_PER_S));
        if (spool_read_rcpts(q->spool, id, 0, true, OLDEST_RCPTS, rcpts, &rcpt_count) == 0) {
            for (size_t i = 0; i < rcpt_count; i++) {
                if (slice_equal(rcpts[i].nexthop, d->nexthop)) {
                    set(object, "attempts", json_integer((json_int_t)rcpts[i].attempts));
                    break;
                }
            }
        }
    }
    buf_fini(&name);
}

static void add_state(struct queue *q, const struct spool_destination *d, json_t *object)
{
    struct sched_dest_info info;
    uint32_t transport = 0;

    while (transport < q->transport_count &&
           (q->transports[transport] == NULL ||
            !slice_equal(slice_string(q->transports[transport]), d->transport))) {
        transport++;
    }
    if (transport == q->transport_count ||
        !sched_dest_get(q->sched, transport, d->nexthop, &info)) {
        return;
    }
    set(object, "waiting", json_integer((json_int_t)info.waiting));
    set(object, "window", json_integer((json_int_t)info.window));
    if (info.until.us != 0) {
        set(object, "closed_for",
            json_real((double)(info.until.us - clock_mono().us) / (double)US_PER_S));
    }
}

static json_t *thread_json(struct queue *q, const struct spool_destination *d)
{
    json_t *object = json_object();

    set(object, "transport", listing_text(d->transport));
    set(object, "nexthop", listing_text(d->nexthop));
    set(object, "recipients", json_integer((json_int_t)d->rcpts));
    set(object, "messages", json_integer((json_int_t)d->messages));
    set(object, "flights", flights_json(q, d));
    add_state(q, d, object);
    add_oldest(q, d, object);
    return object;
}

/* Copies, as slices of the spool do not outlast the next question to it. */
static void copy_names(struct spool_destination *d)
{
    d->transport = slice_of(mem_copy(d->transport.ptr, d->transport.len), d->transport.len);
    d->nexthop = slice_of(mem_copy(d->nexthop.ptr, d->nexthop.len), d->nexthop.len);
}

/* The threads of the question: all, or the one it names. Sorted; at most THREADS_MAX. */
static int list_threads(struct queue *q, const json_t *question, struct spool_destination *list,
                        size_t *ret_count)
{
    const char *transport = json_string_value(json_object_get(question, "transport"));
    const char *nexthop = json_string_value(json_object_get(question, "nexthop"));
    size_t count = 0, kept = 0;
    int rc = spool_destinations(q->spool, THREADS_MAX, list, &count);

    for (size_t i = 0; rc == 0 && i < count; i++) {
        bool wanted = transport == NULL || nexthop == NULL ||
                      (slice_equal(list[i].transport, slice_string(transport)) &&
                       slice_equal_nocase(list[i].nexthop, slice_string(nexthop)));

        if (wanted) {
            list[kept++] = list[i];
        }
    }
    for (size_t i = 0; i < kept; i++) {
        copy_names(&list[i]);
    }
    qsort(list, kept, sizeof *list, by_name);
    *ret_count = kept;
    return rc;
}

unsigned ask_threads(struct queue *q, const json_t *question, json_t **ret_answer)
{
    struct spool_destination *list = mem_array(THREADS_MAX, sizeof *list);
    json_int_t cursor = json_integer_value(json_object_get(question, "cursor"));
    size_t count, from = cursor > 0 && cursor < THREADS_MAX ? (size_t)cursor : 0, to;
    json_t *array = json_array();

    if (list_threads(q, question, list, &count) != 0) {
        mem_free(list);
        json_decref(array);
        return listing_error(503, ret_answer, "%s", spool_error(q->spool));
    }
    to = from + THREADS_PAGE < count ? from + THREADS_PAGE : count;
    for (size_t i = from; i < to; i++) {
        CHECK(json_array_append_new(array, thread_json(q, &list[i])) == 0);
    }
    *ret_answer = json_pack("{s:o}", "threads", array);
    if (to < count) {
        set(*ret_answer, "cursor", json_integer((json_int_t)to));
    }
    for (size_t i = 0; i < count; i++) {
        mem_free((void *)(uintptr_t)list[i].transport.ptr); /* copy_names made them */
        mem_free((void *)(uintptr_t)list[i].nexthop.ptr);
    }
    mem_free(list);
    return 200;
}
