/*
 * The life of a query:
 *
 *   ASKED --libunbound's callback--> ANSWERED --the loop--> done() called, freed
 *     |                                  |
 *     +--cancel, timeout--> ABANDONED    +--cancel--> freed by the loop
 *                               |
 *                               +--libunbound's callback--> freed
 *
 * libunbound may call back from within ub_resolve_event (cache, hosts file); ANSWERED keeps that
 * from reaching the owner too early. An abandoned query is kept until libunbound lets go of it.
 */
#include "resolver.h"

#include <errno.h>
#include <event2/event.h>
#include <string.h>
#include <sys/queue.h>
#include <unbound-event.h>
#include <unbound.h>

#include "check.h"
#include "mem.h"

#define RCODE_OK   0
#define RCODE_NONE 3
/* A packet beyond this is refused; 64 KiB is what DNS can carry. */
#define PACKET_MAX  65535
#define HEADER_SIZE 12
#define ANCHOR_MAX  4096 /* a record in text form */
/* Sockets for questions; more questions wait inside the library. */
#define SOCKETS "256"

enum query_state { QUERY_ASKED, QUERY_ANSWERED, QUERY_ABANDONED };

struct resolver_query {
    struct resolver *resolver;
    resolver_done *done; /* NULL: the caller has given up */
    void *arg;
    struct event *timeout;
    char *packet; /* owned */
    size_t packet_len;
    enum query_state state;
    bool overdue; /* its time has passed; the sockets are looked at once more */
    enum resolver_outcome outcome;
    bool secure;
    char *bogus;                      /* owned; NULL: it is not */
    TAILQ_ENTRY(resolver_query) next; /* in asked or answered */
};

struct resolver {
    struct ub_ctx *context;
    struct event_base *base;
    struct event *answer_event;
    const struct timeval *timeout;
    TAILQ_HEAD(queries, resolver_query) asked, answered;
};

static void query_free(struct resolver_query *q)
{
    if (q->timeout != NULL) {
        event_free(q->timeout);
    }
    mem_free(q->packet);
    mem_free(q->bogus);
    mem_free(q);
}

/* The owner will hear of it in a moment. */
static void set_answered(struct resolver_query *q, enum resolver_outcome outcome)
{
    struct resolver *r = q->resolver;

    q->outcome = outcome;
    q->state = QUERY_ANSWERED;
    TAILQ_REMOVE(&r->asked, q, next);
    TAILQ_INSERT_TAIL(&r->answered, q, next);
    event_active(r->answer_event, EV_TIMEOUT, 0);
}

static void keep_packet(struct resolver_query *q, const void *packet, int packet_len)
{
    q->packet = mem_copy(packet, (size_t)packet_len);
    q->packet_len = (size_t)packet_len;
}

/* `rcode` tells of the library's own trouble; what the name server said stands in the packet. */
static enum resolver_outcome take_packet(struct resolver_query *q, int rcode, const void *packet,
                                         int packet_len)
{
    bool usable = packet != NULL && packet_len >= HEADER_SIZE && packet_len <= PACKET_MAX;

    if (rcode == RCODE_OK && usable) {
        rcode = ((const unsigned char *)packet)[3] & 0x0f;
    } else if (rcode == RCODE_OK) {
        return RESOLVER_AGAIN;
    }
    if (usable && (rcode == RCODE_OK || rcode == RCODE_NONE)) {
        keep_packet(q, packet, packet_len);
    }
    return rcode == RCODE_OK     ? RESOLVER_ANSWER
           : rcode == RCODE_NONE ? RESOLVER_NO_NAME
                                 : RESOLVER_AGAIN;
}

/* libunbound's words for how far an answer is to be believed. */
enum { UNBOUND_INSECURE = 0, UNBOUND_BOGUS = 1, UNBOUND_SECURE = 2 };

static void on_unbound(void *arg, int rcode, void *packet, int packet_len, int secure,
                       char *why_bogus, int was_ratelimited)
{
    struct resolver_query *q = arg;

    (void)was_ratelimited;
    if (q->state == QUERY_ABANDONED) {
        TAILQ_REMOVE(&q->resolver->asked, q, next);
        query_free(q);
        return;
    }
    if (secure == UNBOUND_BOGUS) {
        q->bogus = mem_string(why_bogus != NULL ? why_bogus : "DNSSEC validation failure");
        set_answered(q, RESOLVER_AGAIN);
        return;
    }
    q->secure = secure == UNBOUND_SECURE;
    set_answered(q, take_packet(q, rcode, packet, packet_len));
}

static void on_answers(evutil_socket_t fd, short what, void *arg)
{
    struct resolver *r = arg;
    struct resolver_query *q;

    (void)fd;
    (void)what;
    while ((q = TAILQ_FIRST(&r->answered)) != NULL) {
        TAILQ_REMOVE(&r->answered, q, next);
        if (q->done != NULL) {
            struct resolver_answer answer = {.outcome = q->outcome,
                                             .packet = slice_of(q->packet, q->packet_len),
                                             .secure = q->secure,
                                             .bogus = q->bogus};

            q->done(q->arg, &answer);
        }
        query_free(q);
    }
}

static void on_timeout(evutil_socket_t fd, short what, void *arg)
{
    static const struct timeval at_once;
    struct resolver_query *q = arg;

    (void)fd;
    (void)what;
    if (q->state == QUERY_ASKED && !q->overdue) {
        /* The loop looks at the sockets before it comes back: an answer that has come while this
         * process stood still counts. */
        q->overdue = true;
        CHECK(event_add(q->timeout, &at_once) == 0);
    } else if (q->state == QUERY_ASKED) {
        resolver_done *done = q->done;

        q->state = QUERY_ABANDONED;
        q->done = NULL;
        done(q->arg, &(struct resolver_answer){.outcome = RESOLVER_AGAIN});
    }
}

struct resolver_query *resolver_ask(struct resolver *r, struct slice name, enum resolver_type type,
                                    resolver_done *done, void *arg)
{
    struct resolver_query *q = mem_new(sizeof *q);
    char *copy = mem_copy(name.ptr, name.len);

    q->resolver = r;
    q->done = done;
    q->arg = arg;
    q->state = QUERY_ASKED;
    TAILQ_INSERT_TAIL(&r->asked, q, next);
    q->timeout = event_new(r->base, -1, 0, on_timeout, q);
    CHECK(q->timeout != NULL);
    CHECK(event_add(q->timeout, r->timeout) == 0);
    if (ub_resolve_event(r->context, copy, (int)type, 1, q, on_unbound, NULL) != 0) {
        set_answered(q, RESOLVER_AGAIN);
    }
    mem_free(copy);
    return q;
}

void resolver_cancel(struct resolver_query *q)
{
    if (q == NULL) {
        return;
    }
    q->done = NULL;
    if (q->state == QUERY_ASKED) {
        q->state = QUERY_ABANDONED;
    }
}

/* "127.0.0.1:53" and "[::1]:53" as libunbound writes it, "127.0.0.1@53". */
static bool add_server(struct ub_ctx *context, struct slice server)
{
    char text[64];
    struct slice port = slice_of("", 0);
    struct buf b;
    bool ok;

    if (slice_starts(server, SLICE("["))) {
        server = slice_skip(server, 1);
        port = server;
        server = slice_cut(&port, ']');
        port = slice_starts(port, SLICE(":")) ? slice_skip(port, 1) : slice_of("", 0);
    } else if (slice_find(server, ':') == slice_find_last(server, ':')) {
        port = server;
        server = slice_cut(&port, ':');
    }
    buf_init(&b, sizeof text - 1);
    ok =
        buf_addf(&b, "%.*s%s%.*s", SLICE_ARGS(server), port.len > 0 ? "@" : "", SLICE_ARGS(port)) &&
        ub_ctx_set_fwd(context, buf_cstr(&b)) == 0;
    buf_fini(&b);
    return ok;
}

static bool set_options(struct ub_ctx *context)
{
    static const char *const options[][2] = {
        {"do-not-query-localhost:", "no"},    {"outgoing-range:", SOCKETS},
        {"unblock-lan-zones:", "yes"}, /* inside a site 10.in-addr.arpa and the like are real */
        {"local-zone:", "test. transparent"}, {"local-zone:", "home.arpa. transparent"},
    };

    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        if (ub_ctx_set_option(context, options[i][0], options[i][1]) != 0) {
            return false;
        }
    }
    return true;
}

static const char no_records[] = "no DS or DNSKEY record is in it";

/* One record in a line; what follows a semicolon is a comment. */
static bool add_anchors(struct ub_ctx *context, struct slice anchors, struct buf *ret_error)
{
    unsigned number = 0, records = 0;

    while (anchors.len > 0) {
        struct slice line = slice_cut(&anchors, '\n');
        char *text;
        int rc = 0;

        number++;
        line = slice_trim(slice_cut(&line, ';'));
        if (line.len > ANCHOR_MAX) {
            (void)buf_addf(ret_error, "line %u is too long for a record", number);
            return false;
        }
        if (line.len > 0) {
            text = mem_copy(line.ptr, line.len);
            rc = ub_ctx_add_ta(context, text);
            mem_free(text);
            records++;
        }
        if (rc != 0) {
            (void)buf_addf(ret_error, "line %u: %s", number, ub_strerror(rc));
            return false;
        }
    }
    if (number > 0 && records == 0) { /* then nothing would be proven, and all be believed */
        (void)buf_add_string(ret_error, no_records);
        return false;
    }
    return true;
}

static bool configure(struct resolver *r, const char *const *servers, size_t count,
                      struct slice anchors, struct buf *ret_error)
{
    /* Without anchors answers are used, not proven. */
    const char *modules = anchors.len > 0 ? "validator iterator" : "iterator";
    int rc;

    if (!set_options(r->context) || ub_ctx_set_option(r->context, "module-config:", modules) != 0) {
        (void)buf_add_string(ret_error, "libunbound does not know one of its options");
        return false;
    }
    if (!add_anchors(r->context, anchors, ret_error)) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        if (!add_server(r->context, slice_string(servers[i]))) {
            (void)buf_addf(ret_error, "bad name server \"%s\"", servers[i]);
            return false;
        }
    }
    /* Without resolv.conf the library asks the root servers. */
    rc = count > 0 ? 0 : ub_ctx_resolvconf(r->context, NULL);
    if (rc != 0 && rc != UB_READFILE) {
        (void)buf_addf(ret_error, "resolv.conf: %s", ub_strerror(rc));
        return false;
    }
    rc = ub_ctx_hosts(r->context, NULL);
    if (rc != 0 && rc != UB_READFILE) {
        (void)buf_addf(ret_error, "hosts: %s", ub_strerror(rc));
        return false;
    }
    return true;
}

/* The library sets itself up at the first question, which must be before confinement. */
static void on_warm(void *arg, int rcode, void *packet, int packet_len, int secure, char *why_bogus,
                    int was_ratelimited)
{
    (void)arg;
    (void)rcode;
    (void)packet;
    (void)packet_len;
    (void)secure;
    (void)why_bogus;
    (void)was_ratelimited;
}

static struct resolver *open_resolver(struct event_base *base, const char *const *servers,
                                      size_t count, struct slice anchors, bool quiet,
                                      struct buf *ret_error)
{
    struct resolver *r = mem_new(sizeof *r);
    struct timeval timeout = {.tv_sec = RESOLVER_TIMEOUT_US / US_PER_S};

    r->base = base;
    TAILQ_INIT(&r->asked);
    TAILQ_INIT(&r->answered);
    r->answer_event = event_new(base, -1, 0, on_answers, r);
    CHECK(r->answer_event != NULL);
    r->timeout = event_base_init_common_timeout(base, &timeout);
    CHECK(r->timeout != NULL);
    r->context = ub_ctx_create_event(base);
    if (r->context != NULL && quiet) {
        CHECK(ub_ctx_debugout(r->context, NULL) == 0); /* it writes to standard error by itself */
    }
    if (r->context == NULL) {
        (void)buf_add_string(ret_error, "libunbound cannot use this event loop");
    } else if (configure(r, servers, count, anchors, ret_error)) {
        int rc = ub_resolve_event(r->context, "localhost", RESOLVER_A, 1, NULL, on_warm, NULL);

        if (rc == 0) {
            return r;
        }
        (void)buf_addf(ret_error, "libunbound: %s", ub_strerror(rc));
    }
    resolver_free(r);
    return NULL;
}

struct resolver *resolver_new(struct event_base *base, const char *const *servers, size_t count,
                              struct slice anchors, struct buf *ret_error)
{
    return open_resolver(base, servers, count, anchors, false, ret_error);
}

void resolver_free(struct resolver *r)
{
    struct resolver_query *q;

    if (r == NULL) {
        return;
    }
    if (r->context != NULL) {
        ub_ctx_delete(r->context);
    }
    while ((q = TAILQ_FIRST(&r->asked)) != NULL) {
        TAILQ_REMOVE(&r->asked, q, next);
        query_free(q);
    }
    while ((q = TAILQ_FIRST(&r->answered)) != NULL) {
        TAILQ_REMOVE(&r->answered, q, next);
        query_free(q);
    }
    event_free(r->answer_event);
    mem_free(r);
}

/* The library reads an anchor when it sets itself up, and does not say which one was wrong: so each
 * line is tried alone. */
bool resolver_anchors_ok(struct slice anchors, struct buf *ret_error)
{
    static const char *const nowhere[] = {"127.0.0.1:9"};
    struct event_base *base = event_base_new();
    unsigned number = 0, records = 0;
    bool ok = true;

    CHECK(base != NULL);
    while (ok && anchors.len > 0) {
        struct slice line = slice_cut(&anchors, '\n'), text = line;
        struct resolver *r;
        struct buf why;

        number++;
        if (slice_trim(slice_cut(&text, ';')).len == 0) {
            continue;
        }
        records++;
        buf_init(&why, ANCHOR_MAX);
        r = open_resolver(base, nowhere, 1, line, true, &why);
        ok = r != NULL;
        resolver_free(r);
        buf_fini(&why);
    }
    event_base_free(base);
    if (!ok) {
        (void)buf_addf(ret_error, "line %u: expected a DS or DNSKEY record", number);
    } else if (records == 0) {
        (void)buf_add_string(ret_error, no_records);
        ok = false;
    }
    return ok;
}
