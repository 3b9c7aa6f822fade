/*
 * Operations for the mailq protocols, a page at a time: threads, which are destinations with mail,
 * and recipients with the state of their threads. A page is a bounded piece of work.
 *
 * Threads are listed in the order of their names; a caller that needs them by ring sorts them. A
 * page examines at most THREADS_LOOKED_AT threads, so a thread in another ring costs little.
 */
#include "queue_threads.h"

#include <string.h>

#include "check.h"
#include "clock.h"
#include "dismiss.h"
#include "json.h"
#include "listing.h"
#include "machine.h"
#include "mem.h"
#include "park_key.h"
#include "operation.h"
#include "queue.h"
#include "spool_search.h"
#include "thread_view.h"

#define THREADS_PAGE      100
#define THREADS_LOOKED_AT 1000
/* Recipients of a thread's oldest message that are read to find its attempts. */
#define OLDEST_RCPTS 50

/* ---- cursors -------------------------------------------------------------------------------- */

/* Encodes a name for a cursor: two hexadecimal digits for each byte, as a name may contain any
 * byte. */
static json_t *cursor_text(struct slice s)
{
    static const char digits[] = "0123456789abcdef";
    char text[2 * SPOOL_ROUTE_MAX + 1];

    CHECK(s.len <= SPOOL_ROUTE_MAX);
    for (size_t i = 0; i < s.len; i++) {
        text[2 * i] = digits[(unsigned char)s.ptr[i] >> 4];
        text[2 * i + 1] = digits[(unsigned char)s.ptr[i] & 15];
    }
    return json_stringn(text, 2 * s.len);
}

static int digit_of(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Decodes a name of a cursor. Returns false if it is not valid. */
static bool read_cursor(const json_t *value, char text[SPOOL_ROUTE_MAX], struct slice *ret)
{
    const char *hex = json_string_value(value);
    size_t len = json_string_length(value);

    if (hex == NULL || len % 2 != 0 || len / 2 > SPOOL_ROUTE_MAX) {
        return false;
    }
    for (size_t i = 0; i < len / 2; i++) {
        int high = digit_of(hex[2 * i]), low = digit_of(hex[2 * i + 1]);

        if (high < 0 || low < 0) {
            return false;
        }
        text[i] = (char)(high << 4 | low);
    }
    *ret = slice_of(text, len / 2);
    return true;
}

/* ---- threads -------------------------------------------------------------------------------- */

/* Parameters of a query. */
struct wish {
    bool one; /* one thread only */
    struct slice transport, nexthop;
    const json_t *ring; /* ring of the threads, or NULL: all rings */
    bool brief;         /* leave out values that need a look-up in the spool */
    struct spool_destination from;
    char from_transport[SPOOL_ROUTE_MAX], from_nexthop[SPOOL_ROUTE_MAX];
};

/* Adds the age of the oldest message and, of the first message, the attempts and the due time if
 * the thread itself has none. */
static void add_oldest(struct queue *q, const struct spool_destination *d, json_t *object)
{
    struct spool_filter f = {.states = 1u << SPOOL_INCOMING | 1u << SPOOL_DEFERRED};
    struct spool_rcpt rcpts[OLDEST_RCPTS];
    struct spool_message m;
    struct msg_id id;
    struct buf name;
    size_t count = 0, rcpt_count = 0;
    int64_t now = clock_wall().us;
    struct wall oldest;
    bool never;
    double wait;

    if (spool_oldest(q->spool, d, &oldest) == 0) {
        double age = (double)(now - oldest.us) / (double)US_PER_S;

        json_put(object, "oldest_age", json_real(age));
        wait = json_number_value(json_object_get(object, "asked_for_wait")) - age;
        if (wait > 0 && json_object_get(object, "wait") == NULL) {
            json_put(object, "wait", json_real(wait));
        }
    }
    buf_init(&name, (size_t)2 * SPOOL_ROUTE_MAX + 2);
    (void)buf_addf(&name, "%.*s/%.*s", SLICE_ARGS(d->transport), SLICE_ARGS(d->nexthop)); /* fits */
    f.destination = buf_slice(&name);
    if (spool_scan(q->spool, &f, 1, &id, &count) == 0 && count == 1 &&
        spool_read(q->spool, id, &m) == 0) {
        never = m.due.us == US_FOREVER; /* mail without a route */
        /* mail that goes on request only is due when it expires */
        wait = never || park_key_kind(m.parked) == PARK_REQUEST
                   ? 0
                   : (double)(m.due.us - now) / (double)US_PER_S;
        if (!json_is_true(json_object_get(object, "retried_together")) &&
            wait > json_number_value(json_object_get(object, "wait"))) {
            json_put(object, "wait", json_real(wait));
        }
        if (spool_read_rcpts(q->spool, id, 0, true, OLDEST_RCPTS, rcpts, &rcpt_count) == 0) {
            if (never && rcpt_count > 0 && rcpts[0].diagnostic.len > 0) {
                json_put(object, "reason", listing_text(rcpts[0].diagnostic));
            }
            for (size_t i = 0; i < rcpt_count; i++) {
                if (slice_equal(rcpts[i].nexthop, d->nexthop) &&
                    json_object_get(object, "attempts") == NULL) {
                    json_put(object, "attempts", json_integer((json_int_t)rcpts[i].attempts));
                    break;
                }
            }
        }
    }
    buf_fini(&name);
}

static struct slice copy(struct slice s)
{
    return slice_of(mem_copy(s.ptr, s.len), s.len);
}

/* Lists up to `max` threads from wish->from on, as copies, because the next call of the spool
 * invalidates its slices. */
static int list_threads(struct queue *q, const struct wish *wish, size_t max,
                        struct spool_destination *list, size_t *ret_count)
{
    int rc = spool_destinations_from(q->spool, &wish->from, max, list, ret_count);

    for (size_t i = 0; rc == 0 && i < *ret_count; i++) {
        list[i].transport = copy(list[i].transport);
        list[i].nexthop = copy(list[i].nexthop);
    }
    return rc;
}

static void free_threads(struct spool_destination *list, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        mem_free((void *)(uintptr_t)list[i].transport.ptr); /* copies of list_threads */
        mem_free((void *)(uintptr_t)list[i].nexthop.ptr);
    }
    mem_free(list);
}

static json_t *thread_json(struct queue *q, struct thread_view *view,
                           const struct spool_destination *d, bool brief)
{
    json_t *object = thread_view_json(view, d->transport, d->nexthop);

    json_put(object, "recipients", json_integer((json_int_t)d->rcpts));
    json_put(object, "messages", json_integer((json_int_t)d->messages));
    if (!brief) {
        add_oldest(q, d, object);
    }
    return object;
}

static bool is_wanted(struct thread_view *view, const struct wish *wish,
                      const struct spool_destination *d)
{
    return wish->one ? slice_equal(d->transport, wish->transport) &&
                           slice_equal(d->nexthop, wish->nexthop)
                     : wish->ring == NULL ||
                           thread_view_in_ring(view, d->transport, d->nexthop, wish->ring);
}

/* Adds the threads of a page to `array`. Returns the number of threads of the list that were
 * examined. */
static size_t add_threads(struct queue *q, struct thread_view *view, const struct wish *wish,
                          const struct spool_destination *list, size_t count, json_t *array)
{
    size_t i = 0;

    while (i < count && json_array_size(array) < THREADS_PAGE) {
        if (is_wanted(view, wish, &list[i])) {
            CHECK(json_array_append_new(array, thread_json(q, view, &list[i], wish->brief)) == 0);
        }
        i++;
    }
    return i;
}

static bool read_wish(const json_t *question, struct wish *wish)
{
    const json_t *transport = json_object_get(question, "transport");
    const json_t *nexthop = json_object_get(question, "nexthop");
    const json_t *cursor = json_object_get(question, "cursor");

    *wish = (struct wish){
        .ring = json_object_get(question, "ring"),
        .brief = json_is_true(json_object_get(question, "brief")),
        .from = {.transport = SLICE(""), .nexthop = SLICE("")},
    };
    if (transport != NULL || nexthop != NULL) {
        wish->one = true;
        wish->transport = slice_string(json_string_value(transport));
        wish->nexthop = slice_string(json_string_value(nexthop));
        wish->from.transport = wish->transport;
        wish->from.nexthop = wish->nexthop;
        return json_is_string(transport) && json_is_string(nexthop);
    }
    return cursor == NULL || (read_cursor(json_object_get(cursor, "transport"),
                                          wish->from_transport, &wish->from.transport) &&
                              read_cursor(json_object_get(cursor, "nexthop"), wish->from_nexthop,
                                          &wish->from.nexthop));
}

static void add_cursor(json_t *answer, const struct spool_destination *d)
{
    json_put(answer, "cursor",
             json_pack("{s:o, s:o}", "transport", cursor_text(d->transport), "nexthop",
                       cursor_text(d->nexthop)));
}

/* Changes the host of a query for one thread to lower case, as that of ZMailer's files is stored.
 * Returns false if that changes nothing. */
static bool try_lower_case(struct wish *wish)
{
    size_t len = wish->nexthop.len;
    bool changed = false;

    if (!wish->one || len > sizeof wish->from_nexthop) {
        return false;
    }
    for (size_t i = 0; i < len; i++) {
        wish->from_nexthop[i] = ascii_lower(wish->nexthop.ptr[i]);
        changed = changed || wish->from_nexthop[i] != wish->nexthop.ptr[i];
    }
    wish->from.nexthop = wish->nexthop = slice_of(wish->from_nexthop, len);
    return changed;
}

static unsigned ask_page(struct queue *q, struct wish *wish, json_t **ret_answer)
{
    size_t max = wish->one ? 1 : wish->ring != NULL ? THREADS_LOOKED_AT : THREADS_PAGE + 1;
    struct spool_destination *list = mem_array(max, sizeof *list);
    struct thread_view *view;
    size_t count = 0, looked_at;
    json_t *array;

    if (list_threads(q, wish, max, list, &count) != 0) {
        mem_free(list);
        return listing_error(503, ret_answer, "%s", spool_error(q->spool));
    }
    array = json_array();
    view = thread_view_new(q);
    /* the last thread of a full list is the start of the next page */
    looked_at =
        add_threads(q, view, wish, list, count == max && !wish->one ? count - 1 : count, array);
    *ret_answer = json_pack("{s:o}", "threads", array);
    if (looked_at < count) {
        add_cursor(*ret_answer, &list[looked_at]);
    }
    json_put(*ret_answer, "rings", thread_view_rings(view, looked_at == count && !wish->one));
    thread_view_free(view);
    free_threads(list, count);
    return 200;
}

static unsigned ask_threads(struct queue *q, const json_t *question, json_t **ret_answer)
{
    struct wish *wish = mem_new(sizeof *wish);
    unsigned status = 400;

    if (read_wish(question, wish)) {
        status = ask_page(q, wish, ret_answer);
        if (status == 200 && json_is_true(json_object_get(question, "machine"))) {
            json_put(*ret_answer, "machine", machine_json(q->conf));
        }
        if (status == 200 && json_array_size(json_object_get(*ret_answer, "threads")) == 0 &&
            try_lower_case(wish)) {
            json_decref(*ret_answer);
            status = ask_page(q, wish, ret_answer);
        }
    } else {
        (void)listing_error(400, ret_answer, "cursor, transport or nexthop: this is none");
    }
    mem_free(wish);
    return status;
}

/* ---- recipients ----------------------------------------------------------------------------- */

/* The threads of a page's recipients, each once. */
struct seen {
    struct thread_view *view;
    json_t *index;   /* "transport/nexthop" -> index in `threads` */
    json_t *threads; /* array of threads */
};

/* Returns the index of a recipient's thread, which is added if it is missing. */
static json_t *place_of(struct seen *seen, const json_t *rcpt)
{
    const char *transport = json_string_value(json_object_get(rcpt, "transport"));
    const char *nexthop = json_string_value(json_object_get(rcpt, "nexthop"));
    json_t *place;
    struct buf key;

    buf_init(&key, (size_t)8 * SPOOL_ROUTE_MAX);
    (void)buf_addf(&key, "%s/%s", transport, nexthop); /* fits, even if bytes became two */
    place = json_object_get(seen->index, buf_cstr(&key));
    if (place == NULL) {
        place = json_integer((json_int_t)json_array_size(seen->threads));
        json_put(seen->index, buf_cstr(&key), place);
        CHECK(json_array_append_new(seen->threads,
                                    thread_view_json(seen->view, slice_string(transport),
                                                     slice_string(nexthop))) == 0);
    }
    buf_fini(&key);
    return place;
}

static void add_state(struct seen *seen, struct msg_id id, json_t *rcpt)
{
    json_int_t n = json_integer_value(json_object_get(rcpt, "n"));
    struct wall handed = thread_view_handed(seen->view, id, (uint32_t)n);

    json_put(rcpt, "thread", json_incref(place_of(seen, rcpt)));
    if (handed.us != 0) {
        json_put(rcpt, "handed", json_seconds(handed.us));
    }
}

static bool is_pending(const json_t *rcpt)
{
    const char *state = json_string_value(json_object_get(rcpt, "state"));
    const char *transport = json_string_value(json_object_get(rcpt, "transport"));

    return state != NULL && strcmp(state, "pending") == 0 && transport != NULL &&
           transport[0] != '\0';
}

/* Is recipient `n` in the next delivery of its thread? */
static bool is_next(const struct queue *q, struct msg_id id, uint32_t n)
{
    struct sched_wait wait;
    uint32_t group;

    if (sched_why(q->sched, (struct sched_msg){id.n}, &n, 1, &group, &wait) == 0 ||
        wait.entry.n != 0) {
        return false;
    }
    for (size_t i = 0; i < wait.gate_count; i++) {
        if (wait.gates[i].type == SCHED_GATE_BEHIND) {
            return wait.gates[i].value == 0;
        }
    }
    return false;
}

static void add_states(struct queue *q, struct seen *seen, const json_t *message)
{
    const char *text = json_string_value(json_object_get(message, "queue_id"));
    struct msg_id id;
    json_t *rcpt;
    size_t i;

    CHECK(text != NULL && spool_id_parse(slice_string(text), &id));
    json_array_foreach(json_object_get(message, "recipients"), i, rcpt)
    {
        const json_t *thread;

        if (!is_pending(rcpt)) {
            continue;
        }
        add_state(seen, id, rcpt);
        thread = json_array_get(seen->threads,
                                (size_t)json_integer_value(json_object_get(rcpt, "thread")));
        if (json_object_get(rcpt, "handed") == NULL &&
            json_array_size(json_object_get(thread, "agents")) > 0 &&
            is_next(q, id, (uint32_t)json_integer_value(json_object_get(rcpt, "n")))) {
            json_put(rcpt, "next", json_true());
        }
    }
}

static unsigned ask_vertices(struct queue *q, const json_t *question, json_t **ret_answer)
{
    json_t *list = json_copy((json_t *)(uintptr_t)question), *message, *messages;
    struct seen seen;
    unsigned status;
    size_t i;

    CHECK(list != NULL);
    json_put(list, "op", json_string(json_object_get(question, "id") != NULL ? "show" : "list"));
    status = listing_ask(q->spool, list, clock_wall(), ret_answer);
    json_decref(list);
    if (status != 200) {
        return status;
    }
    if (json_object_get(question, "id") != NULL) {
        *ret_answer = json_pack("{s:[o]}", "messages", *ret_answer);
        CHECK(*ret_answer != NULL);
    }
    seen = (struct seen){thread_view_new(q), json_object(), json_array()};
    messages = json_object_get(*ret_answer, "messages");
    json_array_foreach(messages, i, message)
    {
        add_states(q, &seen, message);
    }
    json_decref(seen.index);
    json_put(*ret_answer, "threads", seen.threads);
    thread_view_free(seen.view);
    return 200;
}

void threads_register(void)
{
    static const struct operation operations[] = {
        {.op = "threads", .answer = ask_threads},
        {.op = "vertices", .answer = ask_vertices},
        {.op = "kill", .later = dismiss_kill},
        {.op = "reroute", .later = dismiss_reroute},
    };

    operations_register(operations, sizeof operations / sizeof operations[0]);
}
