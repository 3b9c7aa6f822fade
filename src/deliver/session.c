#include "session.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "check.h"
#include "clock.h"
#include "entropy.h"
#include "mem.h"

#define RELAY_MAX (MXLIST_NAME_MAX + 200)

struct sessions {
    struct streams *streams;
    sessions_closed *closed;
    void *arg;
    struct dialogue *dialogue;      /* borrowed; NULL: there is none */
    const struct lease_page *lease; /* borrowed; NULL: there is none */
    size_t count;
    LIST_HEAD(, session) list;
    TAILQ_HEAD(, session) ready;
};

static void pump(struct session *s);

/* ---- the set -------------------------------------------------------------------------------- */

struct sessions *sessions_new(struct streams *streams, sessions_closed *closed, void *arg)
{
    struct sessions *all = mem_new(sizeof *all);

    all->streams = streams;
    all->closed = closed;
    all->arg = arg;
    LIST_INIT(&all->list);
    TAILQ_INIT(&all->ready);
    return all;
}

void sessions_watch(struct sessions *all, struct dialogue *dialogue)
{
    all->dialogue = dialogue;
}

void sessions_set_lease(struct sessions *all, const struct lease_page *lease)
{
    all->lease = lease;
}

bool sessions_may_deliver(const struct sessions *all)
{
    return all->lease == NULL || lease_holds(all->lease);
}

/* ---- watches -------------------------------------------------------------------------------- */

/* Bytes of an incomplete line that are kept. */
#define HEARD_MAX  4096u
#define SOURCE_MAX (INET6_ADDRSTRLEN + 10)

static bool is_watched(const struct session *s)
{
    return s->all->dialogue != NULL && dialogue_is_on(s->all->dialogue);
}

static void print_source(const struct session *s, char ret_text[SOURCE_MAX])
{
    union ip_address source = {.sa.sa_family = AF_UNSPEC};
    socklen_t len = sizeof source;
    char ip[INET6_ADDRSTRLEN];
    bool ipv4;

    ret_text[0] = '\0';
    if (s->stream == NULL || stream_fd(s->stream) < 0 ||
        getsockname(stream_fd(s->stream), &source.sa, &len) != 0) {
        return; /* it is closed */
    }
    ipv4 = source.sa.sa_family == AF_INET;
    if (!ipv4 && source.sa.sa_family != AF_INET6) {
        return;
    }
    CHECK(inet_ntop(source.sa.sa_family,
                    ipv4 ? (const void *)&source.in.sin_addr : (const void *)&source.in6.sin6_addr,
                    ip, sizeof ip) != NULL);
    (void)snprintf(ret_text, SOURCE_MAX, "[%s]:%u", ip,
                   ntohs(ipv4 ? source.in.sin_port : source.in6.sin6_port)); /* fits */
}

static void tell(struct session *s, enum wire_said said, bool ours, struct slice text,
                 uint64_t bytes)
{
    char source[SOURCE_MAX], tls[WIRE_TLS_MAX];
    struct dialogue_facts facts = {.peer = slice_string(s->relay),
                                   .host = slice_string(s->host),
                                   .transport = s->settings->transport,
                                   .nexthop = s->settings->nexthop,
                                   .id = slice_string(s->id)};

    print_source(s, source);
    tls[0] = '\0';
    if (s->is_tls && s->stream != NULL) {
        (void)snprintf(tls, sizeof tls, "%s %s", session_tls_version(s),
                       session_tls_cipher(s)); /* a cut text is acceptable */
    }
    facts.source = slice_string(source);
    facts.tls = slice_string(tls);
    if (said == SAID_LINE) {
        dialogue_tell_lines(s->all->dialogue, &s->end, &facts, ours, text);
    } else {
        dialogue_tell(s->all->dialogue, &s->end, &facts, said, ours, text, bytes);
    }
}

/* Position of the engine's output before a call of the engine. */
struct mark {
    bool watched, secret;
    size_t before;
};

static struct mark mark(struct session *s)
{
    struct mark m = {.watched = s->talked && is_watched(s)};

    if (m.watched) {
        m.secret = client_is_logging_in(&s->client);
        m.before = buf_len(client_output(&s->client));
    }
    return m;
}

/* Reports the engine's new output to watches. For a login, only the mechanism's name is shown. */
static void tell_said(struct session *s, const struct mark *m)
{
    struct slice new, rest;

    if (!m->watched || buf_len(client_output(&s->client)) <= m->before) {
        return;
    }
    new = slice_skip(buf_slice(client_output(&s->client)), m->before);
    if ((!m->secret && !client_is_logging_in(&s->client)) || slice_equal(new, SLICE("QUIT\r\n"))) {
        tell(s, SAID_LINE, true, new, 0);
        return;
    }
    rest = new;
    if (slice_starts(new, SLICE("AUTH "))) {
        size_t name = strcspn(rest.ptr + 5, " \r");

        rest = slice_skip(rest, 5 + name);
    }
    tell(s, SAID_LOGIN, true, slice_of(new.ptr, new.len - rest.len), rest.len);
}

/* Reports a line of the peer, with its line end. For a login, only the code is shown. */
static void tell_heard_line(struct session *s, struct slice line)
{
    size_t code = 0;

    if (!s->heard_secret) {
        tell(s, SAID_LINE, false, line, 0);
        return;
    }
    while (code < 3 && code < line.len && line.ptr[code] >= '0' && line.ptr[code] <= '9') {
        code++;
    }
    code = code == 3 ? code : 0;
    tell(s, SAID_LOGIN, false, slice_of(line.ptr, code), line.len - code);
}

static void tell_heard(struct session *s, const struct mark *m, struct slice in)
{
    size_t lf;

    if (!m->watched) {
        return;
    }
    while (in.len > 0) {
        lf = slice_find(in, '\n');
        lf += lf < in.len;
        s->heard_secret = s->heard_secret || m->secret;
        if (!buf_add(&s->heard, slice_of(in.ptr, lf))) {
            s->heard.failed = false;
            tell_heard_line(s, buf_slice(&s->heard)); /* the part received so far */
            buf_clear(&s->heard);
            lf = lf < HEARD_MAX ? lf : HEARD_MAX;
            CHECK(buf_add(&s->heard, slice_of(in.ptr, lf)));
        }
        if (in.ptr[lf - 1] == '\n') {
            tell_heard_line(s, buf_slice(&s->heard));
            buf_clear(&s->heard);
            s->heard_secret = false;
        }
        in = slice_skip(in, lf);
    }
}

static bool next_event(struct session *s, struct client_event *ret_event)
{
    struct mark m = mark(s);
    bool is_one = client_next(&s->client, clock_mono(), ret_event);

    tell_said(s, &m);
    return is_one;
}

static void session_free(struct session *s)
{
    CHECK(s->cached_under == NULL);
    if (s->queued) {
        TAILQ_REMOVE(&s->all->ready, s, ready);
    }
    if (is_watched(s) && s->end.number != 0) {
        bool broken = s->stream != NULL && stream_state(s->stream) == STREAM_STATE_BROKEN;

        tell(s, SAID_CLOSED, !broken && !s->ended,
             slice_string(broken ? stream_error(s->stream) : ""), 0);
    }
    LIST_REMOVE(s, in_all);
    s->all->count--;
    buf_fini(&s->heard);
    stream_free(s->stream);
    if (s->talked) {
        client_fini(&s->client);
    }
    mem_free(s->relay);
    mem_free(s->host);
    tls_demand_unref(s->demand);
    mem_free(s);
}

size_t sessions_count(const struct sessions *all)
{
    return all->count;
}

static void session_gone(struct session *s)
{
    struct sessions *all = s->all;
    const struct session_settings *settings = s->settings;

    session_free(s);
    all->closed(all->arg, settings);
}

void sessions_free(struct sessions *all)
{
    struct session *s;

    if (all == NULL) {
        return;
    }
    while ((s = LIST_FIRST(&all->list)) != NULL) {
        session_gone(s);
    }
    mem_free(all);
}

static void queue(struct session *s)
{
    if (!s->queued && !s->pumping && !s->dead) {
        s->queued = true;
        TAILQ_INSERT_TAIL(&s->all->ready, s, ready);
    }
}

void sessions_run(struct sessions *all)
{
    struct session *s;

    while ((s = TAILQ_FIRST(&all->ready)) != NULL) {
        TAILQ_REMOVE(&all->ready, s, ready);
        s->queued = false;
        pump(s);
    }
}

/* ---- between stream and engine -------------------------------------------------------------- */

/* Ends the session, now or at the end of the running pump(). */
static void vanish(struct session *s)
{
    s->callback = NULL;
    s->dead = true;
    if (!s->pumping) {
        session_gone(s);
    }
}

/* Ends the session after its pending output. stream_finish reads what the peer still sends, because
 * unread input would make the kernel reset the connection, and a QUIT would be lost. */
static void part(struct session *s)
{
    struct buf *out = client_output(&s->client);

    if (stream_state(s->stream) == STREAM_STATE_OPEN) {
        stream_flush(s->stream, out);
        if (buf_len(out) == 0) {
            stream_finish(s->stream);
            s->stream = NULL;
        }
    }
    vanish(s);
}

static void start_tls(struct session *s)
{
    const struct tls_demand *d = s->demand;
    struct tls_peer peer = {.sni = d->sni,
                            .names = (const char *const *)d->names,
                            .name_count = d->name_count,
                            .dns_ids = d->dns_ids,
                            .verify = d->kind >= TLS_DEMAND_VERIFY,
                            .records = d->records,
                            .record_count = d->record_count};
    const char *host = s->host;

    if (peer.name_count == 0) { /* only for the log */
        peer.names = &host;
        peer.name_count = 1;
    }
    s->want_tls = false;
    stream_start_tls(s->stream, s->settings->tls, &peer);
}

static void on_event(struct session *s, const struct client_event *event)
{
    s->idle =
        event->kind == CLIENT_READY || (event->kind == CLIENT_TRANSACTION_DONE && event->reusable);
    if (event->kind == CLIENT_NEED_TLS) {
        s->want_tls = true;
    } else if (s->callback != NULL) {
        s->callback(s->arg, s, SESSION_TALK, event);
    } else if (event->kind == CLIENT_CLOSED || event->kind == CLIENT_FAILED) {
        part(s);
    }
}

static void set_deadline(struct session *s)
{
    stream_set_deadline(s->stream, mono_min(client_deadline(&s->client), s->rest_until));
}

/* Passes input for one reply to the engine. Returns false if there was none. */
static bool feed(struct session *s)
{
    struct slice in = stream_input(s->stream);
    struct mark m;
    size_t used;

    if (in.len == 0) {
        return false;
    }
    m = mark(s);
    used = client_input(&s->client, in, clock_mono());
    tell_heard(s, &m, slice_of(in.ptr, used));
    tell_said(s, &m);
    stream_consume(s->stream, used);
    return used > 0;
}

/* Sends pending output. Returns true if the engine may continue because there is room. */
static bool send_some(struct session *s)
{
    struct buf *out = client_output(&s->client);
    size_t before;

    if (stream_state(s->stream) != STREAM_STATE_OPEN) {
        return false;
    }
    if (client_at_last_look(&s->client)) {
        if (!sessions_may_deliver(s->all)) {
            client_break_off(&s->client);
            return true; /* the engine has an event */
        }
        client_pass_last_look(&s->client);
    }
    before = buf_len(out);
    if (before == 0) {
        return false;
    }
    stream_flush(s->stream, out);
    return buf_len(out) < before;
}

/* Moves bytes and events until nothing moves. The order matters: events, then input, then one send
 * for all output. The end of the connection counts only after all input was read. */
static void pump(struct session *s)
{
    struct client_event event;

    if (!s->talked) {
        return; /* not connected yet */
    }
    s->pumping = true;
    for (;;) {
        while (!s->dead && next_event(s, &event)) {
            on_event(s, &event);
        }
        if (s->dead) {
            break;
        }
        if (stream_state(s->stream) == STREAM_STATE_HANDSHAKE) {
            break;
        }
        if (feed(s)) {
            continue;
        }
        if (s->want_tls) {
            start_tls(s);
            break;
        }
        if (s->ended) {
            s->ended = false;
            client_lost(&s->client);
            continue;
        }
        if (!send_some(s)) {
            break;
        }
    }
    s->pumping = false;
    if (s->dead) {
        session_gone(s);
    } else {
        set_deadline(s);
    }
}

/* ---- events of the stream
 * --------------------------------------------------------------------- */

static void unreachable(struct session *s)
{
    if (is_watched(s)) {
        tell(s, SAID_CLOSED, false, slice_string(session_why(s)), 0);
        s->end.number = 0; /* the end was reported */
    }
    CHECK(s->callback != NULL);
    s->callback(s->arg, s, SESSION_UNREACHABLE, NULL);
}

static void on_secured(struct session *s)
{
    struct mark m = mark(s);

    s->is_tls = true;
    if (m.watched) {
        char text[2 * WIRE_TLS_MAX];

        (void)snprintf(text, sizeof text, "%s %s", session_tls_version(s),
                       session_tls_cipher(s)); /* a cut text is acceptable */
        tell(s, SAID_SECURED, true, slice_string(text), 0);
    }
    client_tls_started(&s->client, clock_mono());
    tell_said(s, &m);
    pump(s);
}

static void on_failed(struct session *s)
{
    switch (stream_failed_in(s->stream)) {
    case STREAM_STATE_CONNECTING:
        unreachable(s);
        return;
    case STREAM_STATE_HANDSHAKE:
        if (is_watched(s)) {
            tell(s, SAID_CLOSED, false, slice_string(stream_error(s->stream)), 0);
            s->end.number = 0;
        }
        client_tls_failed(&s->client, slice_string(stream_error(s->stream)));
        break;
    case STREAM_STATE_OPEN:
    case STREAM_STATE_BROKEN:
        s->ended = true;
        break;
    }
    pump(s);
}

static void on_deadline(struct session *s)
{
    if (!s->talked) {
        unreachable(s);
    } else if (mono_reached(s->rest_until, clock_mono()) && s->callback != NULL) {
        s->rest_until = MONO_NEVER;
        s->callback(s->arg, s, SESSION_RESTED, NULL);
    } else if (s->callback == NULL) {
        vanish(s); /* the time for QUIT is over */
    } else {
        struct mark m = mark(s);

        client_expire(&s->client, clock_mono());
        tell_said(s, &m);
        pump(s);
    }
}

static void log_in(struct session *s)
{
    entropy_text(s->nonce, sizeof s->nonce);
    s->client_login = (struct client_login){.user = s->login->user,
                                            .password = s->login->password,
                                            .nonce = slice_of(s->nonce, sizeof s->nonce),
                                            .mechanisms = SASL_MECHANISMS};
    client_log_in(&s->client, &s->client_login);
}

static void on_stream(void *arg, struct stream *stream, enum stream_event event)
{
    struct session *s = arg;

    (void)stream;
    switch (event) {
    case STREAM_CONNECTED:
        s->talked = true;
        client_init(&s->client, &s->config, slice_of(s->relay, s->peer_len), clock_mono());
        if (s->login != NULL) {
            log_in(s);
        }
        if (is_watched(s)) {
            tell(s, SAID_OPENED, true, SLICE(""), 0);
        }
        set_deadline(s);
        return;
    case STREAM_SECURED:
        on_secured(s);
        return;
    case STREAM_READABLE:
    case STREAM_WRITABLE:
        pump(s);
        return;
    case STREAM_END:
        s->ended = true;
        pump(s);
        return;
    case STREAM_DEADLINE:
        on_deadline(s);
        return;
    case STREAM_FAILED:
        on_failed(s);
        return;
    }
}

/* ---- for the owner -------------------------------------------------------------------------- */

static void name_relay(struct session *s, const char *host, const char *detail, unsigned port)
{
    struct buf text;

    buf_init(&text, RELAY_MAX);
    CHECK(buf_addf(&text, "%s[%s]", host, detail));
    s->peer_len = buf_len(&text);
    if (port != 0) {
        CHECK(buf_addf(&text, ":%u", port));
    }
    s->relay = buf_take(&text);
    s->host = mem_string(host);
}

static enum client_tls engine_level(const struct session_to *to)
{
    if (to->demand == NULL || to->in_clear) {
        CHECK(to->demand == NULL || to->demand->kind <= TLS_DEMAND_MAY);
        return CLIENT_TLS_NONE;
    }
    switch (to->demand->kind) {
    case TLS_DEMAND_NONE:
        return CLIENT_TLS_NONE;
    case TLS_DEMAND_MAY:
        return CLIENT_TLS_MAY;
    case TLS_DEMAND_ENCRYPT:
        return CLIENT_TLS_ENCRYPT;
    case TLS_DEMAND_VERIFY:
    case TLS_DEMAND_DANE:
        return CLIENT_TLS_VERIFY;
    }
    UNREACHABLE("a kind beyond the enum");
}

/* Takes settings for a new session or a new destination. */
static void take_settings(struct session *s, const struct session_settings *settings,
                          const struct session_to *to)
{
    enum client_tls tls = s->config.tls;

    s->settings = settings;
    s->login = to->login;
    s->config = settings->config;
    s->config.tls = tls;
    s->fits_until = to->demand == NULL ? MONO_NEVER : to->demand->until;
}

struct session *session_open(struct sessions *all, const struct session_settings *settings,
                             const struct session_to *to, session_callback *callback, void *arg)
{
    struct session *s = mem_new(sizeof *s);
    sa_family_t family = to->address->sa_family;
    const union ip_address *from = family == AF_INET    ? &settings->from4
                                   : family == AF_INET6 ? &settings->from6
                                                        : NULL;
    bool bind = from != NULL && from->sa.sa_family == family;

    s->all = all;
    s->config.tls = engine_level(to);
    take_settings(s, settings, to);
    s->demand = to->demand == NULL ? NULL : tls_demand_ref(to->demand);
    s->callback = callback;
    s->arg = arg;
    s->rest_until = MONO_NEVER;
    buf_init(&s->heard, HEARD_MAX);
    s->opened = clock_mono();
    if (family != AF_UNIX) {
        CHECK(to->address_len <= sizeof s->to);
        memcpy(&s->to, to->address, to->address_len);
    }
    name_relay(s, to->host, to->detail, to->port);
    s->bound_family = bind ? family : AF_UNSPEC;
    s->stream = stream_connect(all->streams, to->address, to->address_len, bind ? &from->sa : NULL,
                               !bind                           ? 0
                               : from->sa.sa_family == AF_INET ? sizeof from->in
                                                               : sizeof from->in6,
                               on_stream, s);
    stream_set_deadline(s->stream, mono_after(clock_mono(), settings->connect_timeout_us));
    LIST_INSERT_HEAD(&all->list, s, in_all);
    all->count++;
    return s;
}

static bool same_login(const struct session_login *a, const struct session_login *b)
{
    if (a == NULL || b == NULL) {
        return a == b;
    }
    return slice_equal(a->user, b->user) && slice_equal(a->password, b->password);
}

static bool same_source(const union ip_address *a, const union ip_address *b)
{
    return a->sa.sa_family == b->sa.sa_family && (a->sa.sa_family == 0 || ip_address_equal(a, b));
}

static bool same_settings(const struct session_settings *a, const struct session_settings *b)
{
    const struct client_config *x = &a->config, *y = &b->config;

    return a->tls == b->tls && same_source(&a->from4, &b->from4) &&
           same_source(&a->from6, &b->from6) && slice_equal(x->hostname, y->hostname) &&
           x->lmtp == y->lmtp && x->detect_loop == y->detect_loop;
}

bool session_is_like(const struct session *s, const struct session_settings *settings,
                     const struct session_to *to)
{
    return s->demand != NULL && to->demand != NULL &&
           s->to.sa.sa_family == to->address->sa_family &&
           ip_address_equal(&s->to, (const union ip_address *)to->address) &&
           strcasecmp(s->host, to->host) == 0 && same_login(s->login, to->login) &&
           same_settings(s->settings, settings);
}

/* With DANE the records must be the same as at the handshake, and still valid. */
static bool meets_dane(const struct session *s, const struct tls_demand *d)
{
    const struct tls *tls = stream_tls(s->stream);

    return s->demand->kind == TLS_DEMAND_DANE && !mono_reached(s->demand->until, clock_mono()) &&
           strcasecmp(s->demand->sni, d->sni) == 0 && tls_demand_same_records(s->demand, d) &&
           (tls_trust(tls) == TLS_DANE_EE ||
            tls_is_for(tls, (const char *const *)d->names, d->name_count, d->dns_ids));
}

static bool meets_names(const struct session *s, const struct tls_demand *d)
{
    const struct tls *tls = stream_tls(s->stream);
    enum tls_trust trust = tls_trust(tls);

    return (trust == TLS_TRUSTED || trust == TLS_VERIFIED) &&
           tls_is_for(tls, (const char *const *)d->names, d->name_count, d->dns_ids);
}

bool session_meets(const struct session *s, const struct tls_demand *d)
{
    switch (d->kind) {
    case TLS_DEMAND_NONE:
    case TLS_DEMAND_MAY:
        return true;
    case TLS_DEMAND_ENCRYPT:
        return s->is_tls;
    case TLS_DEMAND_VERIFY:
        return s->is_tls && meets_names(s, d);
    case TLS_DEMAND_DANE:
        return s->is_tls && meets_dane(s, d);
    }
    UNREACHABLE("a kind beyond the enum");
}

bool session_fits(const struct session *s)
{
    return !mono_reached(s->fits_until, clock_mono());
}

void session_adopt(struct session *s, const struct session_settings *settings,
                   const struct session_to *to)
{
    CHECK(s->idle && s->cached_under == NULL && session_meets(s, to->demand));
    take_settings(s, settings, to);
    if (s->login != NULL) {
        s->client_login.user = s->login->user;
        s->client_login.password = s->login->password;
    }
}

void session_set_owner(struct session *s, session_callback *callback, void *arg)
{
    s->callback = callback;
    s->arg = arg;
}

void session_serve(struct session *s, struct slice id)
{
    CHECK(id.len < sizeof s->id);
    memcpy(s->id, id.ptr, id.len);
    s->id[id.len] = '\0';
}

void session_begin(struct session *s, const struct client_mail *mail)
{
    struct mark m;

    s->rest_until = MONO_NEVER;
    s->uses++;
    s->idle = false;
    m = mark(s);
    client_begin(&s->client, mail, clock_mono());
    tell_said(s, &m);
    queue(s);
}

size_t session_content(struct session *s, struct slice piece, bool last)
{
    struct mark m = mark(s);
    size_t taken, dot;

    queue(s);
    taken = client_content(&s->client, piece, last, clock_mono());
    if (m.watched) {
        dot = last && taken == piece.len ? strlen(".\r\n") : 0;
        tell(s, SAID_CONTENT, true, SLICE(""), buf_len(client_output(&s->client)) - m.before + dot);
    }
    return taken;
}

void session_rest(struct session *s, struct mono until)
{
    s->rest_until = until;
    if (!s->pumping) {
        set_deadline(s);
    }
}

void session_close(struct session *s)
{
    s->callback = NULL;
    if (!s->talked || stream_state(s->stream) != STREAM_STATE_OPEN) {
        vanish(s);
    } else if (s->idle) {
        struct mark m = mark(s);

        s->idle = false;
        client_quit(&s->client, clock_mono());
        tell_said(s, &m);
        s->rest_until = mono_after(clock_mono(), SESSION_QUIT_US);
        queue(s);
    } else {
        part(s);
    }
}

void session_abort(struct session *s)
{
    if (s != NULL) {
        vanish(s);
    }
}

int session_errno(const struct session *s)
{
    return stream_state(s->stream) == STREAM_STATE_BROKEN ? stream_errno(s->stream) : ETIMEDOUT;
}

enum failure_cause session_unreachable_cause(const struct session *s)
{
    if (session_errno(s) != EADDRNOTAVAIL) {
        return FAILURE_OURS;
    }
    return s->bound_family == AF_INET    ? FAILURE_BIND
           : s->bound_family == AF_INET6 ? FAILURE_BIND6
                                         : FAILURE_OURS;
}

const char *session_why(const struct session *s)
{
    return stream_state(s->stream) == STREAM_STATE_BROKEN ? stream_error(s->stream)
                                                          : "Connection timed out";
}

struct slice session_relay(const struct session *s)
{
    return slice_string(s->relay);
}

bool session_flushed(struct session *s)
{
    return client_is_flushed(&s->client);
}

const char *session_tls_version(const struct session *s)
{
    return s->is_tls ? tls_version(stream_tls(s->stream)) : "";
}

const char *session_tls_cipher(const struct session *s)
{
    return s->is_tls ? tls_cipher(stream_tls(s->stream)) : "";
}

void session_describe_certificate(const struct session *s, struct buf *out)
{
    if (stream_tls(s->stream) != NULL) {
        tls_describe_certificate(stream_tls(s->stream), out);
    }
}

enum wire_proof session_proof(const struct session *s)
{
    static const enum wire_proof proofs[] = {
        [TLS_ANONYMOUS] = WIRE_PROOF_ANONYMOUS, [TLS_UNTRUSTED] = WIRE_PROOF_UNTRUSTED,
        [TLS_TRUSTED] = WIRE_PROOF_TRUSTED,     [TLS_VERIFIED] = WIRE_PROOF_VERIFIED,
        [TLS_DANE_TA] = WIRE_PROOF_DANE_TA,     [TLS_DANE_EE] = WIRE_PROOF_DANE_EE,
    };

    if (s->is_tls) {
        return proofs[tls_trust(stream_tls(s->stream))];
    }
    /* A peer without the demanded proof got no mail. */
    return s->demand != NULL && s->uses > 0 ? WIRE_PROOF_CLEAR : WIRE_PROOF_NONE;
}

uint32_t session_uses(const struct session *s)
{
    return s->uses;
}

struct mono session_opened(const struct session *s)
{
    return s->opened;
}
