#include "tls_look.h"

#include <arpa/inet.h>

#include "check.h"
#include "mem.h"
#include "wire.h"

#define SMTP_PORT 25
#define LMTP_PORT 24
/* Bytes of a record's data that are shown: a SHA-512. */
#define RECORD_SHOWN 64u

_Static_assert(WIRE_TLS_HOSTS_MAX == MXLIST_HOSTS_MAX, "all are shown");

struct tls_look {
    LIST_ENTRY(tls_look) next;
    struct tls_looks *looks;
    uint64_t token;
    struct smtp_destination *destination; /* one reference */
    struct nexthop nexthop;
    struct hops *hops;
    bool prove; /* not given up on */
    bool bogus; /* proven answers were not to be had */
};

/* Texts of one host, for the time of the answer. */
struct host_texts {
    struct buf addresses, records, text;
};

static void look_free(struct tls_look *l)
{
    LIST_REMOVE(l, next);
    l->looks->count--;
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
        (void)buf_addf(out, "%s%s", buf_len(out) > 0 ? " " : "", text); /* there is room for all */
    }
}

static void put_records(const struct hops_facts *facts, struct buf *out)
{
    for (size_t i = 0; i < facts->record_count; i++) {
        const struct tls_record *r = &facts->records[i];
        size_t len = r->data.len < RECORD_SHOWN ? r->data.len : RECORD_SHOWN;

        (void)buf_addf(out, "%u %u %u ", r->usage, r->selector, r->matching); /* room for all */
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
}

/* Say it; the look is gone then. */
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
        /* Mail does not ask for proof: once more as mail does. */
        l->prove = false;
        l->bogus = true;
        l->hops = NULL;
        hops_free(h);
        look_up(l);
        return;
    }
    answer(l);
}

/* ---- questions ------------------------------------------------------------------------------ */

void tls_looks_init(struct tls_looks *looks, struct hops_world *world,
                    struct smtp_destinations *destinations, struct channel *const *queue)
{
    *looks = (struct tls_looks){.world = world, .destinations = destinations, .queue = queue};
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
    if (looks->count == TLS_LOOKS_MAX) {
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
