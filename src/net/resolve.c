/*
 * The role resolve: the only process that sends to name servers. It looks up names for the
 * processes that connect to sites, so that an attacker who controls one of those cannot send
 * datagrams anywhere (process/confine.h), and so that they have one cache.
 *
 *     client: WIRE_DNS_QUERY --> lookup --> resolver (libunbound) --> WIRE_DNS_ANSWER
 *
 * A client with LOOKUPS_MAX queries in flight is not read until one of them has ended. When its
 * channel is lost, its look-ups end.
 */
#include "role.h"

#include <string.h>
#include <sys/queue.h>
#include <sysexits.h>
#include <unistd.h>

#include "dialect.h"
#include "dns_answer.h"
#include "log.h"
#include "mem.h"
#include "resolver.h"

#define LOOKUPS_MAX 4096

struct lookup {
    TAILQ_ENTRY(lookup) next;
    struct client *client;
    uint64_t token; /* the client's number of the query */
    struct resolver_query *query;
};

struct client {
    TAILQ_ENTRY(client) next;
    struct resolve *resolve;
    struct wire_peer peer;
    struct channel *channel;
    TAILQ_HEAD(, lookup) lookups;
    size_t lookup_count;
};

struct resolve {
    struct role *role;
    /* `validator` has a trust anchor, and other queries do not wait for signatures; NULL: there is
     * no anchor */
    struct resolver *resolver, *validator;
    TAILQ_HEAD(, client) clients;
};

/* ---- look-ups ------------------------------------------------------------------------------- */

static void lookup_free(struct lookup *l)
{
    TAILQ_REMOVE(&l->client->lookups, l, next);
    l->client->lookup_count--;
    resolver_cancel(l->query);
    mem_free(l);
}

static void send_answer(const struct client *c, uint64_t token,
                        const struct resolver_answer *answer)
{
    const struct wire_dns_answer m = {
        .token = token,
        .outcome = answer->outcome,
        .packet = answer->packet,
        .secure = answer->secure,
        .bogus = answer->bogus == NULL
                     ? SLICE("")
                     : slice_of(answer->bogus, strnlen(answer->bogus, WIRE_TEXT_MAX))};

    wire_put_dns_answer(c->channel, &m);
}

static void read_client(struct client *c);

static void on_answer(void *arg, const struct resolver_answer *answer)
{
    struct lookup *l = arg;
    struct client *c = l->client;

    l->query = NULL;
    send_answer(c, l->token, answer);
    lookup_free(l);
    if (c->lookup_count == LOOKUPS_MAX - 1) {
        read_client(c);
    }
}

static bool is_known(uint32_t type)
{
    return type == RESOLVER_A || type == RESOLVER_AAAA || type == RESOLVER_CNAME ||
           type == RESOLVER_MX || type == RESOLVER_TXT || type == RESOLVER_TLSA;
}

/* Begins a look-up. Returns false if the frame is no query. */
static bool on_query(struct client *c, const struct frame *frame)
{
    const struct resolve *all = c->resolve;
    struct wire_dns_query m;
    struct lookup *l;

    if (frame->type != WIRE_DNS_QUERY || !wire_get_dns_query(frame->body, &m) ||
        !is_known(m.type) || !dns_name_valid(m.name)) {
        return false;
    }
    if (m.prove && all->validator == NULL) {
        send_answer(c, m.token,
                    &(struct resolver_answer){.outcome = RESOLVER_AGAIN,
                                              .bogus = "there is no valid trust anchor in "
                                                       "dnssec_trust_anchor_file"});
        return true;
    }
    l = mem_new(sizeof *l);
    l->client = c;
    l->token = m.token;
    TAILQ_INSERT_TAIL(&c->lookups, l, next);
    c->lookup_count++;
    l->query = resolver_ask(m.prove ? all->validator : all->resolver, m.name,
                            (enum resolver_type)m.type, on_answer, l);
    return true;
}

/* ---- clients -------------------------------------------------------------------------------- */

static void client_free(struct client *c)
{
    struct lookup *l;

    while ((l = TAILQ_FIRST(&c->lookups)) != NULL) {
        lookup_free(l);
    }
    TAILQ_REMOVE(&c->resolve->clients, c, next);
    channel_free(c->channel);
    mem_free(c);
}

/* Takes queries as long as there is room for them. May free the client. */
static void read_client(struct client *c)
{
    struct frame frame;

    while (c->lookup_count < LOOKUPS_MAX) {
        enum channel_event event = channel_next(c->channel, &frame);

        if (event == CHANNEL_EMPTY) {
            break;
        }
        if (event == CHANNEL_FRAME && frame.fd >= 0) {
            (void)close(frame.fd); /* queries have none */
        }
        if (event == CHANNEL_FRAME && !on_query(c, &frame)) {
            log_error("%s: a frame of type %u does not decode: connection closed",
                      wire_role_name(c->peer.role), frame.type);
            event = CHANNEL_CLOSED;
        }
        if (event == CHANNEL_CLOSED) {
            client_free(c);
            return;
        }
    }
    channel_pause(c->channel, c->lookup_count >= LOOKUPS_MAX);
}

static void on_client(void *arg, struct channel *ch)
{
    (void)ch;
    read_client(arg);
}

static void resolve_peer(struct role *role, const struct wire_peer *peer, int fd)
{
    struct resolve *all = role->state;
    struct client *c, *next;

    for (c = TAILQ_FIRST(&all->clients); c != NULL; c = next) { /* the predecessor is gone */
        next = TAILQ_NEXT(c, next);
        if (c->peer.role == peer->role && c->peer.index == peer->index) {
            client_free(c);
        }
    }
    c = mem_new(sizeof *c);
    c->resolve = all;
    c->peer = *peer;
    TAILQ_INIT(&c->lookups);
    TAILQ_INSERT_TAIL(&all->clients, c, next);
    c->channel = channel_new(role->base, fd, on_client, c);
}

/* ---- the role ------------------------------------------------------------------------------- */

/* Makes a resolver, or renews `r`. On an error returns NULL, or `r` with its previous sources, and
 * the reason in *ret_error. */
static struct resolver *follow(struct resolver *r, const struct role *role, struct slice anchors,
                               struct buf *ret_error)
{
    const struct dns_sources sources = resolver_sources_of(role, anchors);

    if (r == NULL) {
        return resolver_new(role->base, &sources, ret_error);
    }
    (void)resolver_renew(r, &sources, ret_error); /* the caller checks the text */
    return r;
}

/* Opens or renews both resolvers. A validator stays if the file of its trust anchor is gone. */
static bool open_resolvers(struct resolve *all)
{
    const struct role *role = all->role;
    struct slice anchors = role_file(role, slice_string(role->conf->dnssec_trust_anchor_file));
    struct buf error;

    buf_init(&error, LOG_LINE_MAX);
    all->resolver = follow(all->resolver, role, SLICE(""), &error);
    if (buf_len(&error) > 0) {
        log_error("%s", buf_cstr(&error));
    }
    if (all->resolver != NULL && anchors.len > 0) {
        buf_clear(&error);
        all->validator = follow(all->validator, role, anchors, &error);
        if (buf_len(&error) > 0) {
            log_warning("%s: dnssec_trust_anchor_file = %s: %s",
                        all->validator == NULL ? "no DANE" : "the old trust anchor stays",
                        role->conf->dnssec_trust_anchor_file, buf_cstr(&error));
        }
    }
    buf_fini(&error);
    return all->resolver != NULL;
}

static int resolve_start(struct role *role)
{
    struct resolve *all = mem_new(sizeof *all);

    all->role = role;
    role->state = all;
    TAILQ_INIT(&all->clients);
    if (!open_resolvers(all)) {
        mem_free(all);
        return EX_CONFIG;
    }
    return EX_OK;
}

/* Takes new name servers and hosts; queries in flight are repeated. If the name servers of the
 * configuration have changed, ends the process, as only a new one may connect to their ports
 * (confine.h); the clients send their queries to the new one. */
static void resolve_reload(struct role *role, const struct conf *old)
{
    if (conf_differs(old, role->conf, "smtp_dns_server")) {
        log_info("smtp_dns_server has changed: starting over");
        role_exit(role, 0);
        return;
    }
    (void)open_resolvers(role->state); /* a resolver exists already */
}

static void resolve_stop(struct role *role)
{
    role_exit(role, 0); /* the processes that deliver have stopped */
}

static void resolve_end(struct role *role)
{
    struct resolve *all = role->state;
    struct client *c;

    while ((c = TAILQ_FIRST(&all->clients)) != NULL) {
        client_free(c);
    }
    resolver_free(all->resolver);
    resolver_free(all->validator);
    mem_free(all);
}

/* With the queue of another system only web hooks need names. */
static unsigned resolve_count(const struct conf *conf)
{
    return conf_spool_uses_services(conf) && conf->web_hooks[0] == '\0' ? 0 : 1;
}

const struct role_ops resolve_role = {
    .role = ROLE_RESOLVE,
    .program = "resolve",
    .kind = ROLE_ANSWERS,
    .is_exposed = true,
    .count = resolve_count,
    .start = resolve_start,
    .peer = resolve_peer,
    .reload = resolve_reload,
    .stop = resolve_stop,
    .end = resolve_end,
};
