/*
 * The life of a query:
 *
 *   ASKED --answer--> ANSWERED --the loop--> done() called, freed
 *     |                   |
 *     |                   +--cancel--> freed by the loop
 *     +--cancel, timeout--> ABANDONED --libunbound's callback--> freed
 *
 * libunbound may call back from within ub_resolve_event (cache, hosts file). The state ANSWERED
 * delays that answer until the loop runs. A query that libunbound has is kept until the callback; a
 * query to the resolve process is freed when it is abandoned (dns_link.h).
 */
#include "resolver.h"

#include <event2/event.h>
#include <string.h>
#include <sys/queue.h>
#include <unbound-event.h>
#include <unbound.h>

#include "check.h"
#include "dns_link.h"
#include "mem.h"
#include "role.h"
#include "wire.h"

#define RCODE_OK   0
#define RCODE_NONE 3
/* Largest packet that is accepted, the limit of DNS. */
#define PACKET_MAX  65535
#define HEADER_SIZE 12

_Static_assert(PACKET_MAX == WIRE_PACKET_MAX, "fits");

enum query_state { QUERY_ASKED, QUERY_ANSWERED, QUERY_ABANDONED };

struct resolver_query {
    struct resolver *resolver;
    char *name; /* owned */
    enum resolver_type type;
    struct dns_link_query *linked; /* ASKED, of a resolver with a link */
    resolver_done *done;           /* NULL: cancelled */
    void *arg;
    struct event *timeout;
    char *packet; /* owned */
    size_t packet_len;
    enum query_state state;
    bool overdue; /* the timeout has passed; the sockets are read once more */
    enum resolver_outcome outcome;
    bool secure;
    char *bogus;                      /* owned; NULL: not bogus */
    TAILQ_ENTRY(resolver_query) next; /* member of `asked` or `answered` */
};

struct resolver {
    struct dns_link *link; /* NULL: there is a context */
    bool prove;            /* for `link` */
    struct ub_ctx *context;
    bool closing;       /* the context ends: libunbound calls back for each of its queries */
    struct buf made_of; /* sources of the context, one after the other */
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
    mem_free(q->name);
    mem_free(q->packet);
    mem_free(q->bogus);
    mem_free(q);
}

/* Sets the result; the loop passes it to the owner soon. */
static void set_answered(struct resolver_query *q, enum resolver_outcome outcome)
{
    struct resolver *r = q->resolver;

    q->outcome = outcome;
    q->state = QUERY_ANSWERED;
    TAILQ_REMOVE(&r->asked, q, next);
    TAILQ_INSERT_TAIL(&r->answered, q, next);
    event_active(r->answer_event, EV_TIMEOUT, 0);
}

static void keep_packet(struct resolver_query *q, const void *packet, size_t packet_len)
{
    q->packet = mem_copy(packet, packet_len);
    q->packet_len = packet_len;
}

/* Returns the outcome. `rcode` shows a failure of the library; the name server's reply code is in
 * the packet. */
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
        keep_packet(q, packet, (size_t)packet_len);
    }
    return rcode == RCODE_OK     ? RESOLVER_ANSWER
           : rcode == RCODE_NONE ? RESOLVER_NO_NAME
                                 : RESOLVER_AGAIN;
}

/* Values of libunbound for the security of an answer. */
enum { UNBOUND_INSECURE = 0, UNBOUND_BOGUS = 1, UNBOUND_SECURE = 2 };

static void on_unbound(void *arg, int rcode, void *packet, int packet_len, int secure,
                       char *why_bogus, int was_ratelimited)
{
    struct resolver_query *q = arg;

    (void)was_ratelimited;
    if (q->resolver->closing) {
        return;
    }
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

static void on_linked(void *arg, const struct wire_dns_answer *m)
{
    struct resolver_query *q = arg;

    q->linked = NULL;
    q->secure = m->secure;
    if (m->bogus.len > 0) {
        q->bogus = mem_copy(m->bogus.ptr, m->bogus.len);
    }
    if (m->packet.len > 0) {
        keep_packet(q, m->packet.ptr, m->packet.len);
    }
    if (m->outcome == RESOLVER_NO_NAME ||
        (m->outcome == RESOLVER_ANSWER && q->packet_len >= HEADER_SIZE)) {
        set_answered(q, (enum resolver_outcome)m->outcome);
    } else {
        set_answered(q, RESOLVER_AGAIN);
    }
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

/* Drops a query in QUERY_ASKED; frees it unless libunbound has it. */
static void abandon(struct resolver_query *q)
{
    q->done = NULL;
    if (q->linked == NULL) {
        q->state = QUERY_ABANDONED;
        return;
    }
    dns_link_cancel(q->linked);
    TAILQ_REMOVE(&q->resolver->asked, q, next);
    query_free(q);
}

static void on_timeout(evutil_socket_t fd, short what, void *arg)
{
    static const struct timeval at_once;
    struct resolver_query *q = arg;

    (void)fd;
    (void)what;
    if (q->state == QUERY_ASKED && !q->overdue) {
        /* The loop reads the sockets before the next call: an answer that arrived while this
         * process stood still counts. */
        q->overdue = true;
        CHECK(event_add(q->timeout, &at_once) == 0);
    } else if (q->state == QUERY_ASKED) {
        resolver_done *done = q->done;
        void *owner = q->arg;

        abandon(q);
        done(owner, &(struct resolver_answer){.outcome = RESOLVER_AGAIN});
    }
}

static void ask(struct resolver_query *q)
{
    struct resolver *r = q->resolver;

    TAILQ_INSERT_TAIL(&r->asked, q, next);
    if (r->link != NULL) {
        q->linked = dns_link_ask(r->link, slice_string(q->name), q->type, r->prove, on_linked, q);
    } else if (ub_resolve_event(r->context, q->name, (int)q->type, 1, q, on_unbound, NULL) != 0) {
        set_answered(q, RESOLVER_AGAIN);
    }
}

struct resolver_query *resolver_ask(struct resolver *r, struct slice name, enum resolver_type type,
                                    resolver_done *done, void *arg)
{
    struct resolver_query *q = mem_new(sizeof *q);

    q->resolver = r;
    q->name = mem_copy(name.ptr, name.len);
    q->type = type;
    q->done = done;
    q->arg = arg;
    q->state = QUERY_ASKED;
    q->timeout = event_new(r->base, -1, 0, on_timeout, q);
    CHECK(q->timeout != NULL);
    CHECK(event_add(q->timeout, r->timeout) == 0);
    ask(q);
    return q;
}

void resolver_cancel(struct resolver_query *q)
{
    if (q == NULL) {
        return;
    }
    if (q->state == QUERY_ASKED) {
        abandon(q);
    } else {
        q->done = NULL;
    }
}

static void put_source(struct buf *out, struct slice text)
{
    CHECK(buf_addf(out, "%zu:", text.len) && buf_add(out, text));
}

/* Appends all sources of a context. */
static void put_sources(struct buf *out, const struct dns_sources *s)
{
    buf_init(out, CHANNEL_BODY_MAX * 2ul); /* they fit in one frame */
    for (size_t i = 0; i < s->count; i++) {
        put_source(out, slice_string(s->servers[i]));
    }
    put_source(out, s->count > 0 ? SLICE("") : s->resolv_conf);
    put_source(out, s->hosts);
    put_source(out, s->anchors);
}

static struct resolver *new_resolver(struct event_base *base)
{
    const struct timeval timeout = {.tv_sec = RESOLVER_TIMEOUT_US / US_PER_S};
    struct resolver *r = mem_new(sizeof *r);

    r->base = base;
    TAILQ_INIT(&r->asked);
    TAILQ_INIT(&r->answered);
    r->answer_event = event_new(base, -1, 0, on_answers, r);
    CHECK(r->answer_event != NULL);
    r->timeout = event_base_init_common_timeout(base, &timeout);
    CHECK(r->timeout != NULL);
    return r;
}

struct resolver *resolver_new(struct event_base *base, const struct dns_sources *sources,
                              struct buf *ret_error)
{
    struct ub_ctx *context = dns_context_new(base, sources, false, ret_error);
    struct resolver *r;

    if (context == NULL) {
        return NULL;
    }
    r = new_resolver(base);
    r->context = context;
    put_sources(&r->made_of, sources);
    return r;
}

struct resolver *resolver_over(struct event_base *base, struct dns_link *link, bool prove)
{
    struct resolver *r = new_resolver(base);

    r->link = link;
    r->prove = prove;
    return r;
}

/* Are these the sources of the resolver's context? */
static bool is_made_of(const struct resolver *r, const struct dns_sources *sources)
{
    struct buf made_of;
    bool same;

    put_sources(&made_of, sources);
    same = slice_equal(buf_slice(&made_of), buf_slice(&r->made_of));
    buf_fini(&made_of);
    return same;
}

bool resolver_renew(struct resolver *r, const struct dns_sources *sources, struct buf *ret_error)
{
    struct queries asked = TAILQ_HEAD_INITIALIZER(asked);
    struct resolver_query *q;
    struct ub_ctx *context;

    CHECK(r->link == NULL);
    if (is_made_of(r, sources)) {
        return true;
    }
    context = dns_context_new(r->base, sources, false, ret_error);
    if (context == NULL) {
        return false;
    }
    r->closing = true;
    ub_ctx_delete(r->context);
    r->closing = false;
    r->context = context;
    buf_fini(&r->made_of);
    put_sources(&r->made_of, sources);
    TAILQ_CONCAT(&asked, &r->asked, next);
    while ((q = TAILQ_FIRST(&asked)) != NULL) {
        TAILQ_REMOVE(&asked, q, next);
        if (q->state == QUERY_ABANDONED) {
            query_free(q);
        } else {
            ask(q);
        }
    }
    return true;
}

struct dns_sources resolver_sources_of(const struct role *role, struct slice anchors)
{
    return (struct dns_sources){
        .servers = role->conf->smtp_dns_server.items,
        .count = role->conf->smtp_dns_server.count,
        .resolv_conf = role_file(role, SLICE(DNS_RESOLV_CONF_PATH)),
        .hosts = role_file(role, SLICE(DNS_HOSTS_PATH)),
        .anchors = anchors,
    };
}

void resolver_free(struct resolver *r)
{
    struct resolver_query *q;

    if (r == NULL) {
        return;
    }
    r->closing = true;
    if (r->context != NULL) {
        ub_ctx_delete(r->context);
    }
    while ((q = TAILQ_FIRST(&r->asked)) != NULL) {
        dns_link_cancel(q->linked);
        TAILQ_REMOVE(&r->asked, q, next);
        query_free(q);
    }
    while ((q = TAILQ_FIRST(&r->answered)) != NULL) {
        TAILQ_REMOVE(&r->answered, q, next);
        query_free(q);
    }
    event_free(r->answer_event);
    buf_fini(&r->made_of);
    mem_free(r);
}
