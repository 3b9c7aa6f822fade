#include "tls_look.h"

#include <arpa/inet.h>
#include <event2/event.h>
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "mem.h"
#include "wire.h"

#define SMTP_PORT 25
#define LMTP_PORT 24
/* Bytes of a record's data that are shown: a SHA-512. */
#define RECORD_SHOWN 64u

_Static_assert(WIRE_TLS_HOSTS_MAX == MXLIST_HOSTS_MAX, "all are shown");

/* The connection to one host, and the texts about it. */
struct showing {
    struct tls_look *look;
    struct session *session; /* owned; NULL: ended, or not begun */
    bool tried, met;
    struct buf relay, protection, certificate, trouble;
};

struct tls_look {
    LIST_ENTRY(tls_look) next;
    struct tls_looks *looks;
    uint64_t token;
    struct smtp_destination *destination; /* one reference */
    struct nexthop nexthop;
    struct hops *hops;
    bool prove; /* try to get proven answers */
    bool bogus; /* proven answers were not available */
    bool connect;
    struct showing *shown; /* owned: one per host; NULL: no connections */
    size_t shown_count, open;
    struct event *timer; /* NULL: no connections */
};

/* Texts of one host, until the answer is sent. */
struct host_texts {
    struct buf addresses, records, text;
};

static void look_free(struct tls_look *l)
{
    LIST_REMOVE(l, next);
    l->looks->count--;
    l->looks->connecting -= l->connect;
    for (size_t i = 0; i < l->shown_count; i++) {
        struct showing *s = &l->shown[i];

        session_abort(s->session);
        buf_fini(&s->relay);
        buf_fini(&s->protection);
        buf_fini(&s->certificate);
        buf_fini(&s->trouble);
    }
    mem_free(l->shown);
    if (l->timer != NULL) {
        event_free(l->timer);
    }
    hops_free(l->hops);
    smtp_destination_unref(l->destination);
    mem_free(l);
}

static void put_answer(const struct tls_looks *looks, const struct wire_tls_seen *m)
{
    if (*looks->queue != NULL) {
        wire_put_tls_seen(*looks->queue, m);
    }
}

/* ---- texts ---------------------------------------------------------------------------------- */

static void put_addresses(const struct hops *h, size_t host, struct buf *out)
{
    for (size_t i = 0; i < h->list.address_count; i++) {
        const union ip_address *ip = &h->list.addresses[i].ip;
        char text[INET6_ADDRSTRLEN];
        bool ipv4 = ip->sa.sa_family == AF_INET;

        if (h->list.addresses[i].host != host) {
            continue;
        }
        CHECK(inet_ntop(ip->sa.sa_family,
                        ipv4 ? (const void *)&ip->in.sin_addr : (const void *)&ip->in6.sin6_addr,
                        text, sizeof text) != NULL);
        (void)buf_addf(out, "%s%s", buf_len(out) > 0 ? " " : "", text); /* fits */
    }
}

static void put_records(const struct hops_facts *facts, struct buf *out)
{
    for (size_t i = 0; i < facts->record_count; i++) {
        const struct tls_record *r = &facts->records[i];
        size_t len = r->data.len < RECORD_SHOWN ? r->data.len : RECORD_SHOWN;

        (void)buf_addf(out, "%u %u %u ", r->usage, r->selector, r->matching); /* fits */
        for (size_t k = 0; k < len; k++) {
            (void)buf_addf(out, "%02X", (unsigned)(unsigned char)r->data.ptr[k]);
        }
        (void)buf_add_string(out, len < r->data.len ? "...\n" : "\n");
    }
}

static void put_names(const struct tls_demand *d, struct buf *out)
{
    for (size_t i = 0; i < d->name_count; i++) {
        (void)buf_addf(out, "%s%s%s", i > 0 ? " or " : "", d->names[i][0] == '.' ? "*" : "",
                       d->names[i]);
    }
}

static void put_demand(const struct tls_demand *d, struct buf *out)
{
    switch (d->kind) {
    case TLS_DEMAND_NONE:
        (void)buf_add_string(out, "no TLS");
        return;
    case TLS_DEMAND_MAY:
        (void)buf_add_string(out, "TLS where it is offered, with any certificate");
        return;
    case TLS_DEMAND_ENCRYPT:
        (void)buf_add_string(out, "TLS, with any certificate");
        return;
    case TLS_DEMAND_VERIFY:
        (void)buf_add_string(out, "TLS, with a certificate of a trusted authority for ");
        put_names(d, out);
        return;
    case TLS_DEMAND_DANE:
        (void)buf_addf(out, "TLS, with a certificate that matches a TLSA record");
        return;
    }
    UNREACHABLE("a kind beyond the enum");
}

/* ---- the answer ----------------------------------------------------------------------------- */

static enum wire_dnssec dnssec(const struct tls_look *l, bool secure)
{
    return l->bogus                             ? DNSSEC_BOGUS
           : l->looks->world->validator == NULL ? DNSSEC_UNKNOWN
           : secure                             ? DNSSEC_SECURE
                                                : DNSSEC_INSECURE;
}

static void describe_host(const struct tls_look *l, size_t i, struct host_texts *texts,
                          struct wire_tls_host *ret)
{
    const struct hops *h = l->hops;
    struct hops_facts facts;

    buf_init(&texts->addresses, WIRE_TEXT_MAX);
    buf_init(&texts->records, WIRE_TLSA_MAX);
    buf_init(&texts->text, WIRE_TEXT_MAX);
    hops_describe(h, i, &facts, &texts->text);
    put_addresses(h, i, &texts->addresses);
    put_records(&facts, &texts->records);
    if (facts.demand != NULL) {
        put_demand(facts.demand, &texts->text);
    }
    if (facts.is_tlsa_broken && facts.demand != NULL) {
        (void)buf_add_string(&texts->text, "; its TLSA records cannot be looked up");
    }
    *ret = (struct wire_tls_host){.name = slice_string(h->list.hosts[i].name),
                                  .preference = h->list.hosts[i].preference,
                                  .addresses = buf_slice(&texts->addresses),
                                  .dnssec = dnssec(l, facts.secure),
                                  .records = buf_slice(&texts->records),
                                  .used = facts.demand != NULL,
                                  .text = buf_slice(&texts->text)};
    if (l->shown != NULL) {
        const struct showing *s = &l->shown[i];

        ret->tried = s->tried;
        ret->met = s->met;
        ret->relay = buf_slice(&s->relay);
        ret->protection = buf_slice(&s->protection);
        ret->certificate = buf_slice(&s->certificate);
        ret->trouble = buf_slice(&s->trouble);
    }
}

/* Sends the answer and frees the request. */
static void answer(struct tls_look *l)
{
    const struct hops *h = l->hops;
    struct host_texts texts[WIRE_TLS_HOSTS_MAX];
    struct wire_tls_host hosts[WIRE_TLS_HOSTS_MAX];
    struct wire_tls_seen m = {.token = l->token,
                              .found = h->outcome == HOPS_FOUND,
                              .later = h->outcome == HOPS_DEFERRED,
                              .text = slice_string(h->text),
                              .dnssec = dnssec(l, h->proven && h->by_mx),
                              .hosts = hosts};

    if (h->hosts != NULL && h->demands != NULL) {
        m.host_count = (uint32_t)h->list.host_count;
    }
    for (uint32_t i = 0; i < m.host_count; i++) {
        describe_host(l, i, &texts[i], &hosts[i]);
    }
    put_answer(l->looks, &m);
    for (uint32_t i = 0; i < m.host_count; i++) {
        buf_fini(&texts[i].addresses);
        buf_fini(&texts[i].records);
        buf_fini(&texts[i].text);
    }
    look_free(l);
}

/* ---- connecting ----------------------------------------------------------------------------- */

/* Takes the texts of a host whose handshake has ended or failed. May free the request. */
static void shown(struct showing *s, struct slice trouble)
{
    struct tls_look *l = s->look;
    const char *version = session_tls_version(s->session);

    (void)buf_add(&s->trouble, trouble); /* a cut text is acceptable, also below */
    (void)buf_add(&s->relay, session_relay(s->session));
    if (version[0] != '\0') {
        (void)buf_addf(&s->protection, "%s/%s/%s", wire_proof_name(session_proof(s->session)),
                       version, session_tls_cipher(s->session));
    } else if (s->met) {
        (void)buf_add_string(&s->protection, wire_proof_name(WIRE_PROOF_CLEAR));
    }
    session_describe_certificate(s->session, &s->certificate);
    session_close(s->session);
    s->session = NULL;
    if (--l->open == 0) {
        answer(l);
    }
}

static void on_session(void *arg, struct session *session, enum session_event event,
                       const struct client_event *talk)
{
    struct showing *s = arg;
    struct buf text;

    CHECK(s->session == session);
    if (event == SESSION_UNREACHABLE) {
        buf_init(&text, WIRE_TEXT_MAX);
        (void)buf_addf(&text, "connect to %.*s: %s", SLICE_ARGS(session_relay(session)),
                       session_why(session)); /* same text as in the log */
        shown(s, buf_slice(&text));
        buf_fini(&text);
        return;
    }
    if (event == SESSION_TALK && talk->kind == CLIENT_READY) {
        s->met = true; /* the session has checked the demand */
        shown(s, SLICE(""));
    } else if (event == SESSION_TALK && talk->kind == CLIENT_FAILED && talk->retry_in_clear) {
        buf_init(&text, WIRE_TEXT_MAX);
        (void)buf_addf(&text, "%.*s; mail would go in clear", SLICE_ARGS(talk->text));
        s->met = true;
        shown(s, buf_slice(&text));
        buf_fini(&text);
    } else if (event == SESSION_TALK && talk->kind == CLIENT_FAILED) {
        shown(s, talk->text);
    } else if (event == SESSION_TALK && talk->kind == CLIENT_CLOSED) {
        shown(s, SLICE("the host has closed the connection"));
    }
}

/* Ends the connections to hosts that do not answer. */
static void on_look_timer(evutil_socket_t fd, short what, void *arg)
{
    struct tls_look *l = arg;
    size_t left = l->open;

    (void)fd;
    (void)what;
    for (size_t i = 0; left > 0; i++) { /* the last one frees the request */
        if (l->shown[i].session != NULL) {
            left--;
            shown(&l->shown[i], SLICE("no answer in time"));
        }
    }
}

static const struct mx_address *first_address(const struct hops *h, size_t host)
{
    for (size_t i = 0; i < h->list.address_count; i++) {
        if (h->list.addresses[i].host == host) {
            return &h->list.addresses[i];
        }
    }
    return NULL;
}

static void connect_to(struct tls_look *l, size_t host, const struct mx_address *at)
{
    bool ipv4 = at->ip.sa.sa_family == AF_INET;
    char text[INET6_ADDRSTRLEN];
    struct session_to to = {
        .address = &at->ip.sa,
        .address_len = ipv4 ? sizeof at->ip.in : sizeof at->ip.in6,
        .host = l->hops->list.hosts[host].name,
        .detail = text,
        .port = ntohs(ipv4 ? at->ip.in.sin_port : at->ip.in6.sin6_port),
        .demand = l->hops->demands[host],
    };
    struct showing *s = &l->shown[host];

    CHECK(inet_ntop(at->ip.sa.sa_family,
                    ipv4 ? (const void *)&at->ip.in.sin_addr : (const void *)&at->ip.in6.sin6_addr,
                    text, sizeof text) != NULL);
    s->tried = true;
    l->open++;
    (void)smtp_destination_ref(l->destination); /* for the session, as for a delivery's */
    s->session = session_open(l->looks->sessions, &l->destination->settings, &to, on_session, s);
}

/* Connects to each usable host. Returns false if there is none. */
static bool connect_to_hosts(struct tls_look *l)
{
    static const struct timeval longest = {.tv_sec = TLS_LOOK_US / US_PER_S};
    const struct hops *h = l->hops;

    if (h->outcome != HOPS_FOUND || h->demands == NULL) {
        return false;
    }
    l->shown_count = h->list.host_count;
    l->shown = mem_array(l->shown_count, sizeof l->shown[0]);
    for (size_t i = 0; i < l->shown_count; i++) {
        struct showing *s = &l->shown[i];
        const struct mx_address *at = first_address(h, i);

        s->look = l;
        buf_init(&s->relay, WIRE_TEXT_MAX);
        buf_init(&s->protection, WIRE_TEXT_MAX);
        buf_init(&s->certificate, WIRE_TEXT_MAX);
        buf_init(&s->trouble, WIRE_TEXT_MAX);
        if (at != NULL && h->demands[i] != NULL) {
            connect_to(l, i, at);
        }
    }
    if (l->open > 0) {
        l->timer = evtimer_new(l->looks->base, on_look_timer, l);
        CHECK(l->timer != NULL && event_add(l->timer, &longest) == 0);
    }
    return l->open > 0;
}

static void on_hops(void *arg, struct hops *h);

static void look_up(struct tls_look *l)
{
    const struct smtp_destination *e = l->destination;
    struct hops_tls tls = smtp_destination_tls(e, 0);
    struct hops *h;

    tls.prove = l->prove;
    h = hops_find(l->looks->world, &l->nexthop, e->lmtp ? LMTP_PORT : SMTP_PORT, &e->rules, &tls,
                  !e->lmtp, on_hops, l);
    l->hops = h;
    if (h->finished) {
        on_hops(l, h);
    }
}

static void on_hops(void *arg, struct hops *h)
{
    struct tls_look *l = arg;

    l->hops = h;
    if (h->outcome == HOPS_DEFERRED && !h->refused && l->prove && l->looks->world->validator &&
        !tls_policy_uses_dane(l->destination->level)) {
        /* Mail at this level needs no proof: look up again as mail does. */
        l->prove = false;
        l->bogus = true;
        l->hops = NULL;
        hops_free(h);
        look_up(l);
        return;
    }
    if (!l->connect || !connect_to_hosts(l)) {
        answer(l);
    }
}

/* ---- requests ------------------------------------------------------------------------------- */

void tls_looks_init(struct tls_looks *looks, struct event_base *base, struct hops_world *world,
                    struct sessions *sessions, struct smtp_destinations *destinations,
                    struct channel *const *queue)
{
    *looks = (struct tls_looks){.base = base,
                                .world = world,
                                .sessions = sessions,
                                .destinations = destinations,
                                .queue = queue};
    LIST_INIT(&looks->all);
}

static void decline(const struct tls_looks *looks, uint64_t token, const char *why)
{
    put_answer(looks,
               &(struct wire_tls_seen){.token = token, .later = true, .text = slice_string(why)});
}

bool tls_looks_begin(struct tls_looks *looks, struct slice body)
{
    struct smtp_destination *e;
    struct wire_tls_look m;
    struct nexthop nexthop;
    struct tls_look *l;

    if (!wire_get_tls_look(body, &m)) {
        return false;
    }
    if (looks->count == TLS_LOOKS_MAX || (m.connect && looks->connecting == TLS_LOOKS_CONNECTING)) {
        decline(looks, m.token, "too many such questions at once");
        return true;
    }
    e = smtp_destination_get(looks->destinations, m.transport, m.nexthop, slice_of("", 0));
    if (!nexthop_parse(slice_string(e->hops[0]), &nexthop) || nexthop.is_unix) {
        decline(looks, m.token, "the next hop is a Unix socket, or is malformed: no TLS");
        smtp_destination_unref(e);
        return true;
    }
    l = mem_new(sizeof *l);
    l->looks = looks;
    l->token = m.token;
    l->destination = e;
    l->nexthop = nexthop;
    l->prove = true;
    l->connect = m.connect;
    looks->connecting += m.connect;
    LIST_INSERT_HEAD(&looks->all, l, next);
    looks->count++;
    look_up(l);
    return true;
}

void tls_looks_drop(struct tls_looks *looks)
{
    struct tls_look *l;

    while ((l = LIST_FIRST(&looks->all)) != NULL) {
        look_free(l);
    }
}
