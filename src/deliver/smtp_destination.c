#include "smtp_destination.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "heap.h"
#include "log.h"
#include "login_list.h"
#include "mem.h"
#include "role.h"

/* A TLS context, shared by destinations that trust the same authorities. */
struct smtp_trust {
    struct smtp_destinations *all;
    char *path; /* owned; empty: the system's authorities */
    struct tls_context *context;
    uint32_t refs;
    bool stale;
    LIST_ENTRY(smtp_trust) next;
};

/* A login that a relay has refused; removed when it succeeds or the list is read again. */
struct refused_login {
    unsigned line; /* line in relay_auth */
    unsigned times;
    bool on_trial; /* one delivery tries it again; the others wait for the result */
    struct mono until;
    char *why; /* owned */
    UT_hash_handle hh;
};

struct smtp_destinations {
    const struct role *role;
    struct buf system; /* PEM */
    struct smtp_destination *table;
    struct login_list *logins;     /* NULL: none */
    struct refused_login *refused; /* hash by line */
    LIST_HEAD(, smtp_trust) trusts;
};

/* ---- trust ---------------------------------------------------------------------------------- */

static struct slice trust_bytes(const struct smtp_destinations *all, const char *path)
{
    struct slice bytes;

    if (path[0] == '\0') {
        return buf_slice(&all->system);
    }
    bytes = role_file(all->role, slice_string(path));
    if (bytes.ptr == NULL) {
        log_warning("%s: no trusted authorities: the file is not there", path);
    }
    return bytes;
}

static struct smtp_trust *trust_get(struct smtp_destinations *all, const char *path)
{
    struct smtp_trust *trust;
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
    CHECK(context != NULL); /* an empty list of authorities is valid */
    trust = mem_new(sizeof *trust);
    trust->all = all;
    trust->path = mem_string(path);
    trust->context = context;
    trust->refs = 1;
    LIST_INSERT_HEAD(&all->trusts, trust, next);
    return trust;
}

static void trust_unref(struct smtp_trust *trust)
{
    if (trust != NULL && --trust->refs == 0) {
        LIST_REMOVE(trust, next);
        tls_context_free(trust->context);
        mem_free(trust->path);
        mem_free(trust);
    }
}

/* ---- logins --------------------------------------------------------------------------------- */

/* Reads the list of logins. The parent has read it before and logged its errors. */
static void read_logins(struct smtp_destinations *all)
{
    const char *path = all->role->conf->relay_auth;
    struct slice text =
        path[0] == '\0' ? slice_of(NULL, 0) : role_file(all->role, slice_string(path));
    struct buf error;

    smtp_destinations_forgive(all); /* lines or passwords may have changed */
    login_list_free(all->logins);
    all->logins = NULL;
    if (text.ptr == NULL) {
        return;
    }
    buf_init(&error, LOG_LINE_MAX);
    all->logins = login_list_new(text, &error);
    if (all->logins == NULL) {
        log_warning("%s:%s", path, buf_cstr(&error));
    }
    buf_fini(&error);
}

static struct session_login *login_new(const struct login *login)
{
    struct session_login *l;

    if (login == NULL) {
        return NULL;
    }
    l = mem_new(sizeof *l);
    l->user = slice_string(mem_string(login->user));
    l->password = slice_string(mem_string(login->password));
    return l;
}

static void login_free(struct session_login *l)
{
    if (l != NULL) {
        explicit_bzero((char *)(uintptr_t)l->password.ptr, l->password.len);
        mem_free((char *)(uintptr_t)l->user.ptr);
        mem_free((char *)(uintptr_t)l->password.ptr);
        mem_free(l);
    }
}

static void forgive(struct smtp_destinations *all, struct refused_login *r)
{
    HASH_DEL(all->refused, r);
    mem_free(r->why);
    mem_free(r);
}

void smtp_destinations_forgive(struct smtp_destinations *all)
{
    while (all->refused != NULL) {
        forgive(all, all->refused);
    }
}

/* Returns NULL if the login was not refused, or the destination has an older list. */
static struct refused_login *refused_find(const struct smtp_destination *e, size_t hop)
{
    struct refused_login *r = NULL;

    CHECK(hop < e->hop_count);
    if (e->logins[hop] != NULL && !e->stale) {
        HASH_FIND(hh, e->all->refused, &e->login_lines[hop], sizeof r->line, r);
    }
    return r;
}

void smtp_destination_login_refused(struct smtp_destination *e, size_t hop, struct slice why,
                                    struct mono now)
{
    const struct conf *conf = e->all->role->conf;
    struct refused_login *r = refused_find(e, hop);
    int64_t us = conf->minimal_backoff_time_us;

    if (e->stale) {
        return;
    }
    if (r == NULL) {
        r = mem_new(sizeof *r);
        r->line = e->login_lines[hop];
        HASH_ADD(hh, e->all->refused, line, sizeof r->line, r);
    }
    if (r->times > 0 && !r->on_trial) {
        return; /* another delivery was already using the login */
    }
    r->on_trial = false;
    for (unsigned i = 0; i < r->times && us < conf->maximal_backoff_time_us; i++) {
        us *= 2;
    }
    us = us < conf->maximal_backoff_time_us ? us : conf->maximal_backoff_time_us;
    r->times++;
    r->until = mono_after(now, us);
    log_warning("%s:%u: login refused; mail waits until this is corrected: %.*s", conf->relay_auth,
                r->line, SLICE_ARGS(why));
    mem_free(r->why);
    r->why = mem_copy(why.ptr, why.len);
}

void smtp_destination_login_works(struct smtp_destination *e, size_t hop)
{
    struct refused_login *r = refused_find(e, hop);

    if (r != NULL) {
        forgive(e->all, r);
    }
}

const char *smtp_destination_login_rests(struct smtp_destination *e, size_t hop, struct mono now,
                                         int64_t *ret_us)
{
    struct refused_login *r = refused_find(e, hop);

    if (r == NULL) {
        return NULL;
    }
    if (mono_reached(r->until, now)) {
        r->on_trial = true;
        r->until = mono_after(now, e->all->role->conf->minimal_backoff_time_us);
        return NULL;
    }
    *ret_us = r->until.us - now.us;
    return r->why;
}

/* ---- the table ------------------------------------------------------------------------------ */

struct smtp_destinations *smtp_destinations_new(const struct role *role)
{
    struct smtp_destinations *all = mem_new(sizeof *all);

    all->role = role;
    LIST_INIT(&all->trusts);
    tls_read_system_authorities(&all->system);
    read_logins(all);
    /* One context always exists: reading the system's authorities takes time, and the TLS library
     * must load its files before confinement. */
    (void)trust_get(all, ""); /* the list keeps it */
    return all;
}

void smtp_destinations_renew(struct smtp_destinations *all)
{
    struct smtp_destination *e, *next;
    struct smtp_trust *trust;

    HASH_ITER(hh, all->table, e, next)
    {
        e->stale = true;
        HASH_DEL(all->table, e);
    }
    LIST_FOREACH(trust, &all->trusts, next)
    {
        trust->stale = trust->path[0] != '\0';
    }
    read_logins(all);
}

static void smtp_destination_free(struct smtp_destination *e)
{
    for (size_t i = 0; i < e->hop_count; i++) {
        mem_free(e->hops[i]);
        login_free(e->logins[i]);
    }
    trust_unref(e->trust);
    mem_free(e->helo);
    mem_free(e->key);
    mem_free(e);
}

void smtp_destinations_free(struct smtp_destinations *all)
{
    struct smtp_trust *trust;

    if (all == NULL) {
        return;
    }
    CHECK(all->table == NULL);
    while ((trust = LIST_FIRST(&all->trusts)) != NULL) {
        trust->refs = 1;
        trust_unref(trust);
    }
    smtp_destinations_forgive(all);
    login_list_free(all->logins);
    buf_fini(&all->system);
    mem_free(all);
}

/* ---- one destination ------------------------------------------------------------------------ */

static void add_hops(struct smtp_destination *e, struct slice list)
{
    while (list.ptr != NULL && e->hop_count < SMTP_DESTINATION_HOPS_MAX) {
        struct slice hop = slice_trim(slice_cut(&list, ','));

        if (hop.len > 0) {
            e->hops[e->hop_count++] = mem_copy(hop.ptr, hop.len);
        }
    }
}

/* Do all next hops use the default port of the protocol? */
static bool usual_ports(const struct smtp_destination *e)
{
    struct nexthop hop;

    for (size_t i = 0; i < e->hop_count; i++) {
        if (nexthop_parse(slice_string(e->hops[i]), &hop) && hop.port != 0) {
            return false;
        }
    }
    return true;
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

static bool logs_in(const struct smtp_destination *e)
{
    for (size_t i = 0; i < e->hop_count; i++) {
        if (e->logins[i] != NULL) {
            return true;
        }
    }
    return false;
}

static void set_session(struct smtp_destination *e, const struct policy *p)
{
    struct session_settings *s = &e->settings;
    struct client_config *c = &s->config;

    client_config_defaults(c);
    e->helo = mem_string(p->helo_name);
    c->hostname = slice_string(e->helo);
    c->lmtp = e->lmtp;
    c->skip_5xx_greeting = p->skip_5xx_greeting;
    c->detect_loop = !e->lmtp && usual_ports(e);
    c->smtp_helo_timeout = p->helo_timeout_us;
    c->smtp_starttls_timeout = p->starttls_timeout_us;
    c->smtp_mail_timeout = p->mail_timeout_us;
    c->smtp_rcpt_timeout = p->rcpt_timeout_us;
    c->smtp_data_init_timeout = p->data_init_timeout_us;
    c->smtp_data_xfer_timeout = p->data_xfer_timeout_us;
    c->smtp_data_done_timeout = p->data_done_timeout_us;
    c->smtp_rset_timeout = p->rset_timeout_us;
    c->smtp_quit_timeout = p->quit_timeout_us;
    e->level = (enum conf_tls)p->tls_security_level;
    e->sts = (enum conf_sts)p->mta_sts;
    if (e->level != CONF_TLS_NONE || logs_in(e)) {
        e->trust = trust_get(e->all, p->tls_CAfile);
        s->tls = e->trust->context;
    }
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

static struct smtp_destination *smtp_destination_new(struct smtp_destinations *all,
                                                     struct slice transport, struct slice nexthop,
                                                     struct slice sender)
{
    struct smtp_destination *e = mem_new(sizeof *e);
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
    for (size_t i = 0; i < e->hop_count; i++) {
        /* Relays of last resort are not in the key, so their logins do not depend on the sender. */
        const struct login *login = login_list_find(all->logins, slice_string(e->hops[i]),
                                                    i < e->own_count ? sender : slice_of("", 0));

        e->logins[i] = login_new(login);
        e->login_lines[i] = login == NULL ? 0 : login->line;
    }
    set_session(e, &p);
    return e;
}

struct hops_tls smtp_destination_tls(const struct smtp_destination *e, size_t hop)
{
    return (struct hops_tls){
        .level = e->level,
        .sts = e->sts,
        .least = e->logins[hop] == NULL ? CONF_TLS_NONE
                                        : (enum conf_tls)e->all->role->conf->relay_auth_tls,
    };
}

/* Adds the lines of the logins to the key: senders with different logins at any hop must not share
 * a connection. */
static void add_logins(const struct smtp_destinations *all, struct slice nexthop,
                       struct slice sender, struct buf *key)
{
    for (size_t i = 0; nexthop.ptr != NULL && i < SMTP_DESTINATION_HOPS_MAX;) {
        struct slice hop = slice_trim(slice_cut(&nexthop, ','));
        const struct login *login = login_list_find(all->logins, hop, sender);

        if (login != NULL) {
            CHECK(buf_add_byte(key, '\0') && buf_addf(key, "%u", login->line));
        }
        i += hop.len > 0;
    }
}

struct smtp_destination *smtp_destination_get(struct smtp_destinations *all, struct slice transport,
                                              struct slice nexthop, struct slice sender)
{
    struct smtp_destination *e;
    struct buf key;

    buf_init(&key, transport.len + 1 + nexthop.len + SMTP_DESTINATION_HOPS_MAX * (size_t)12);
    CHECK(buf_add(&key, transport) && buf_add_byte(&key, '\0') && buf_add(&key, nexthop));
    if (all->logins != NULL) {
        add_logins(all, nexthop, sender, &key);
    }
    HASH_FIND(hh, all->table, buf_slice(&key).ptr, buf_len(&key), e);
    if (e == NULL) {
        e = smtp_destination_new(all, transport, nexthop, sender);
        e->transport_len = transport.len;
        e->nexthop_len = nexthop.len;
        e->key_len = buf_len(&key);
        e->key = buf_take(&key);
        e->settings.transport = slice_of(e->key, e->transport_len);
        e->settings.nexthop = slice_of(e->key + e->transport_len + 1, e->nexthop_len);
        HASH_ADD_KEYPTR(hh, all->table, e->key, e->key_len, e);
    }
    buf_fini(&key);
    return smtp_destination_ref(e);
}

struct smtp_destination *smtp_destination_ref(struct smtp_destination *e)
{
    e->refs++;
    return e;
}

void smtp_destination_unref(struct smtp_destination *e)
{
    CHECK(e->refs > 0);
    if (--e->refs == 0) {
        CHECK(TAILQ_EMPTY(&e->idle.idle) && TAILQ_EMPTY(&e->waiting));
        if (!e->stale) {
            HASH_DEL(e->all->table, e);
        }
        smtp_destination_free(e);
    }
}

struct smtp_destination *smtp_destination_of(const struct session_settings *settings)
{
    return CONTAINER_OF((char *)(uintptr_t)settings, struct smtp_destination, settings);
}

bool smtp_destination_is(const struct smtp_destination *e, struct slice transport,
                         struct slice nexthop)
{
    return transport.len == 0 ||
           (slice_equal(slice_of(e->key, e->transport_len), transport) &&
            slice_equal(slice_of(e->key + e->transport_len + 1, e->nexthop_len), nexthop));
}

void smtp_destinations_leave(struct smtp_destinations *all, struct slice transport,
                             struct slice nexthop)
{
    struct smtp_destination *e, *next;

    HASH_ITER(hh, all->table, e, next)
    {
        e->leaves = e->leaves || smtp_destination_is(e, transport, nexthop);
    }
}
