#include "endpoint.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "heap.h"
#include "log.h"
#include "mem.h"
#include "role.h"

/* Where the system keeps the authorities it trusts. */
#define SYSTEM_TRUST     "/etc/ssl/certs/ca-certificates.crt"
#define SYSTEM_TRUST_MAX (8u << 20)

/* A TLS context, shared by the endpoints that trust the same authorities. */
struct endpoint_trust {
    struct endpoints *all;
    char *path; /* owned; empty: the system's */
    struct tls_context *context;
    uint32_t refs;
    bool stale;
    LIST_ENTRY(endpoint_trust) next;
};

struct endpoints {
    const struct role *role;
    char *system; /* owned: PEM */
    size_t system_len;
    struct endpoint *table;
    LIST_HEAD(, endpoint_trust) trusts;
};

/* ---- trust ---------------------------------------------------------------------------------- */

static void read_system_trust(struct endpoints *all)
{
    struct buf bytes;
    int fd = open(SYSTEM_TRUST, O_RDONLY | O_CLOEXEC);
    ssize_t n = 1;

    if (fd < 0) {
        return; /* a system without authorities: nobody can be verified, and logs will say so */
    }
    buf_init(&bytes, SYSTEM_TRUST_MAX);
    while (n > 0) {
        char *room = buf_room(&bytes, 65536);

        n = room == NULL ? 0 : read(fd, room, 65536);
        if (n > 0) {
            buf_grew(&bytes, (size_t)n);
        }
    }
    (void)close(fd); /* only read */
    all->system_len = buf_len(&bytes);
    if (!bytes.failed && all->system_len > 0) {
        all->system = buf_take(&bytes);
    }
    buf_fini(&bytes);
}

static struct slice trust_bytes(const struct endpoints *all, const char *path)
{
    struct slice bytes;

    if (path[0] == '\0') {
        return slice_of(all->system, all->system == NULL ? 0 : all->system_len);
    }
    bytes = role_file(all->role, slice_string(path));
    if (bytes.ptr == NULL) {
        log_warning("%s: no trusted authorities: the file is not there", path);
    }
    return bytes;
}

/* NULL when TLS can't be used with it. */
static struct endpoint_trust *trust_get(struct endpoints *all, const char *path)
{
    struct endpoint_trust *trust;
    struct tls_context *context;
    struct buf error;

    LIST_FOREACH(trust, &all->trusts, next)
    {
        if (!trust->stale && strcmp(trust->path, path) == 0) {
            trust->refs++;
            return trust;
        }
    }
    buf_init(&error, LOG_LINE_MAX);
    context = tls_client_new(trust_bytes(all, path), &error);
    if (context == NULL) {
        log_warning("cannot load certificates: %s", buf_cstr(&error));
        buf_clear(&error);
        context = tls_client_new(slice_of("", 0), &error);
    }
    buf_fini(&error);
    if (context == NULL) {
        return NULL;
    }
    trust = mem_new(sizeof *trust);
    trust->all = all;
    trust->path = mem_string(path);
    trust->context = context;
    trust->refs = 1;
    LIST_INSERT_HEAD(&all->trusts, trust, next);
    return trust;
}

static void trust_unref(struct endpoint_trust *trust)
{
    if (trust != NULL && --trust->refs == 0) {
        LIST_REMOVE(trust, next);
        tls_context_free(trust->context);
        mem_free(trust->path);
        mem_free(trust);
    }
}

/* ---- the table ------------------------------------------------------------------------------ */

struct endpoints *endpoints_new(const struct role *role)
{
    struct endpoints *all = mem_new(sizeof *all);

    all->role = role;
    LIST_INIT(&all->trusts);
    read_system_trust(all);
    /* One context is always there: reading the system's authorities takes a while, and the TLS
     * library wants to have loaded what it needs before confinement. */
    (void)trust_get(all, ""); /* without it TLS is off, as was logged */
    return all;
}

void endpoints_renew(struct endpoints *all)
{
    struct endpoint *e, *next;
    struct endpoint_trust *trust;

    HASH_ITER(hh, all->table, e, next)
    {
        e->stale = true;
        HASH_DEL(all->table, e);
    }
    LIST_FOREACH(trust, &all->trusts, next)
    {
        trust->stale = trust->path[0] != '\0';
    }
}

static void endpoint_free(struct endpoint *e)
{
    for (size_t i = 0; i < e->hop_count; i++) {
        mem_free(e->hops[i]);
    }
    trust_unref(e->trust);
    mem_free(e->helo);
    mem_free(e->key);
    mem_free(e);
}

void endpoints_free(struct endpoints *all)
{
    struct endpoint_trust *trust;

    if (all == NULL) {
        return;
    }
    CHECK(all->table == NULL);
    while ((trust = LIST_FIRST(&all->trusts)) != NULL) {
        trust->refs = 1;
        trust_unref(trust);
    }
    mem_free(all->system);
    mem_free(all);
}

/* ---- one endpoint --------------------------------------------------------------------------- */

static void add_hops(struct endpoint *e, struct slice list)
{
    while (list.ptr != NULL && e->hop_count < ENDPOINT_HOPS_MAX) {
        struct slice hop = slice_trim(slice_cut(&list, ','));

        if (hop.len > 0) {
            e->hops[e->hop_count++] = mem_copy(hop.ptr, hop.len);
        }
    }
}

/* Does every next hop mean the protocol's own port? */
static bool usual_ports(const struct endpoint *e)
{
    struct nexthop hop;

    for (size_t i = 0; i < e->hop_count; i++) {
        if (nexthop_parse(slice_string(e->hops[i]), &hop) && hop.port != 0) {
            return false;
        }
    }
    return true;
}

static enum client_tls tls_level(enum conf_tls level)
{
    switch (level) {
    case CONF_TLS_NONE:
        return CLIENT_TLS_NONE;
    case CONF_TLS_MAY:
        return CLIENT_TLS_MAY;
    case CONF_TLS_ENCRYPT:
        return CLIENT_TLS_ENCRYPT;
    case CONF_TLS_VERIFY:
        return CLIENT_TLS_VERIFY;
    }
    UNREACHABLE("a level beyond the enum");
}

static void set_source(struct session_settings *s, const struct policy *p)
{
    if (inet_pton(AF_INET, p->bind_address, &s->from4.in.sin_addr) == 1) {
        s->from4.in.sin_family = AF_INET;
    }
    if (inet_pton(AF_INET6, p->bind_address6, &s->from6.in6.sin6_addr) == 1) {
        s->from6.in6.sin6_family = AF_INET6;
    }
}

static void set_session(struct endpoint *e, const struct policy *p)
{
    struct session_settings *s = &e->settings;
    struct client_config *c = &s->config;

    client_config_defaults(c);
    e->helo = mem_string(p->helo_name);
    c->hostname = slice_string(e->helo);
    c->lmtp = e->lmtp;
    c->skip_5xx_greeting = p->skip_5xx_greeting;
    c->detect_loop = !e->lmtp && usual_ports(e);
    c->tls = tls_level((enum conf_tls)p->tls_security_level);
    c->smtp_helo_timeout = p->helo_timeout_us;
    c->smtp_starttls_timeout = p->starttls_timeout_us;
    c->smtp_mail_timeout = p->mail_timeout_us;
    c->smtp_rcpt_timeout = p->rcpt_timeout_us;
    c->smtp_data_init_timeout = p->data_init_timeout_us;
    c->smtp_data_xfer_timeout = p->data_xfer_timeout_us;
    c->smtp_data_done_timeout = p->data_done_timeout_us;
    c->smtp_rset_timeout = p->rset_timeout_us;
    c->smtp_quit_timeout = p->quit_timeout_us;
    if (c->tls != CLIENT_TLS_NONE) {
        e->trust = trust_get(e->all, p->tls_CAfile);
        if (e->trust != NULL) {
            s->tls = e->trust->context;
        } else if (c->tls == CLIENT_TLS_MAY) {
            c->tls = CLIENT_TLS_NONE;
        }
    }
    s->verify = c->tls == CLIENT_TLS_VERIFY;
    s->config_clear = *c;
    s->config_clear.tls = CLIENT_TLS_NONE;
    s->connect_timeout_us = p->connect_timeout_us;
    set_source(s, p);
}

static enum mxlist_prefer prefer_of(enum conf_prefer prefer)
{
    switch (prefer) {
    case CONF_PREFER_ANY:
        return MXLIST_PREFER_ANY;
    case CONF_PREFER_IPV6:
        return MXLIST_PREFER_IPV6;
    case CONF_PREFER_IPV4:
        return MXLIST_PREFER_IPV4;
    }
    UNREACHABLE("a preference beyond the enum");
}

static struct endpoint *endpoint_new(struct endpoints *all, struct slice transport,
                                     struct slice nexthop)
{
    struct endpoint *e = mem_new(sizeof *e);
    struct policy p;

    policy_for(all->role->conf, transport, nexthop, &p);
    e->all = all;
    e->lmtp = p.agent == CONF_AGENT_LMTP;
    add_hops(e, nexthop);
    e->own_count = e->hop_count;
    for (size_t i = 0; !e->lmtp && i < p.fallback_relay.count; i++) {
        add_hops(e, slice_string(p.fallback_relay.items[i]));
    }
    e->rules = (struct mxlist_rules){.prefer = prefer_of((enum conf_prefer)p.address_preference),
                                     .limit = (size_t)p.mx_address_limit};
    e->session_limit = (size_t)p.mx_session_limit;
    e->size_limit = p.size_limit;
    e->cache = p.connection_cache_on_demand && p.connection_cache_time_limit_us > 0;
    e->cache_us = p.connection_cache_time_limit_us;
    e->reuse_us = p.connection_reuse_time_limit_us;
    e->reuse_count = (uint64_t)p.connection_reuse_count_limit;
    conncache_key_init(&e->idle);
    TAILQ_INIT(&e->waiting);
    set_session(e, &p);
    return e;
}

struct endpoint *endpoint_get(struct endpoints *all, struct slice transport, struct slice nexthop)
{
    struct endpoint *e;
    struct buf key;

    buf_init(&key, transport.len + 1 + nexthop.len);
    CHECK(buf_add(&key, transport) && buf_add_byte(&key, '\0') && buf_add(&key, nexthop));
    HASH_FIND(hh, all->table, buf_slice(&key).ptr, buf_len(&key), e);
    if (e == NULL) {
        e = endpoint_new(all, transport, nexthop);
        e->transport_len = transport.len;
        e->key_len = buf_len(&key);
        e->key = buf_take(&key);
        HASH_ADD_KEYPTR(hh, all->table, e->key, e->key_len, e);
    }
    buf_fini(&key);
    return endpoint_ref(e);
}

struct endpoint *endpoint_ref(struct endpoint *e)
{
    e->refs++;
    return e;
}

void endpoint_unref(struct endpoint *e)
{
    CHECK(e->refs > 0);
    if (--e->refs == 0) {
        CHECK(TAILQ_EMPTY(&e->idle.idle) && TAILQ_EMPTY(&e->waiting));
        if (!e->stale) {
            HASH_DEL(e->all->table, e);
        }
        endpoint_free(e);
    }
}

struct endpoint *endpoint_of(const struct session_settings *settings)
{
    return CONTAINER_OF((char *)(uintptr_t)settings, struct endpoint, settings);
}

bool endpoint_is(const struct endpoint *e, struct slice transport, struct slice nexthop)
{
    return transport.len == 0 ||
           (slice_equal(slice_of(e->key, e->transport_len), transport) &&
            slice_equal(slice_of(e->key + e->transport_len + 1, e->key_len - e->transport_len - 1),
                        nexthop));
}
