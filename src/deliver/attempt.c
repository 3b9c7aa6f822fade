#include "attempt.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include "check.h"
#include "clock.h"
#include "hash.h"
#include "log.h"
#include "mem.h"

#define SMTP_PORT 25
#define LMTP_PORT 24
/* Time until the next try when the system has no descriptor left. */
#define HELD_UP_US (US_PER_S / 2)

enum attempt_phase {
    ATTEMPT_WAITING,
    ATTEMPT_LOOKING_UP,
    ATTEMPT_CONNECTING, /* includes the handshake */
    ATTEMPT_TRANSACTION,
};

/* The last failure; becomes the verdict of recipients that have none at the end. */
struct failure {
    struct status status; /* class 0: no failure yet */
    enum failure_cause cause;
    char *text;  /* owned */
    char *reply; /* owned: reply of the remote site; NULL: none */
    char *relay; /* owned; NULL: no host was reached */
    bool site;   /* the site is to blame */
};

struct attempt {
    struct attempts *all;
    struct assignment *assignment;        /* owned */
    struct smtp_destination *destination; /* one reference */
    struct session *session;              /* owned; may be NULL */
    struct hops *hops;                    /* owned; addresses of the current next hop */
    struct failure failure;
    enum attempt_phase phase;
    size_t hop_at, hop_count; /* indexes into destination->hops */
    size_t address_at;        /* index into hops->list.addresses */
    size_t sessions;          /* number opened with the current next hop */
    struct mono set_up;       /* time when the first session was ready; MONO_NEVER: none was */

    /* the transaction */
    size_t *which; /* owned: the recipients' indexes in the assignment */
    struct client_rcpt *rcpts;
    size_t rcpt_count;
    bool on_kept;         /* uses a kept connection */
    bool answered;        /* a recipient of the transaction got a verdict */
    bool sent;            /* a recipient of the transaction got the mail */
    bool too_many;        /* the transaction had more recipients than the site takes at once */
    bool content_wanted;  /* the engine waits for content */
    bool content_asked;   /* the content was requested from the queue process */
    bool content_done;    /* the engine has all content */
    bool maybe_duplicate; /* for the result */
    bool met;             /* a session succeeded */
    bool has_descriptor;  /* counted in all->descriptors */

    TAILQ_ENTRY(attempt) in_list, in_destination;
};

static const struct status cannot_connect = {STATUS_TRANSIENT, 4, 1};
static const struct status bad_configuration = {STATUS_TRANSIENT, 3, 5};
static const struct status shutting_down = {STATUS_TRANSIENT, 3, 2};
static const struct status no_content = {STATUS_TRANSIENT, 3, 0};
static const struct status too_large = {STATUS_PERMANENT, 3, 4};
static const struct status to_be_mended = FAILURE_STATUS;
static const struct status tls_not_offered = {STATUS_TRANSIENT, 7, 4};
static const struct status no_login = {STATUS_TRANSIENT, 7, 8};

static void session_event(void *arg, struct session *s, enum session_event event,
                          const struct client_event *talk);
static void try_hop(struct attempt *a);

/* ---- the attempt as an object --------------------------------------------------------------- */

static void transaction_fini(struct attempt *a)
{
    mem_free(a->which);
    mem_free(a->rcpts);
    a->which = NULL;
    a->rcpts = NULL;
    a->rcpt_count = 0;
}

static void failure_fini(struct failure *f)
{
    mem_free(f->text);
    mem_free(f->reply);
    mem_free(f->relay);
    *f = (struct failure){0};
}

/* Frees everything except the assignment, which was passed on. */
static void attempt_free(struct attempt *a)
{
    struct attempts *all = a->all;

    if (a->phase == ATTEMPT_WAITING) {
        TAILQ_REMOVE(&all->waiting, a, in_list);
        TAILQ_REMOVE(&a->destination->waiting, a, in_destination);
    } else {
        TAILQ_REMOVE(&all->running, a, in_list);
        if (a->session == NULL) {
            all->bare--;
        }
    }
    if (a->has_descriptor) {
        all->descriptors--;
    }
    session_abort(a->session);
    hops_free(a->hops);
    transaction_fini(a);
    failure_fini(&a->failure);
    smtp_destination_unref(a->destination);
    mem_free(a);
}

/* Sends the result and frees the assignment; all recipients have a verdict. */
static void report(struct attempt *a, enum wire_outcome outcome)
{
    struct mono now = clock_mono();
    bool was_set_up = a->set_up.us != US_FOREVER;
    struct mono set_up = was_set_up ? a->set_up : now;
    struct buf reason;
    struct assignment_end end = {
        .outcome = outcome,
        .setup_us = set_up.us - a->assignment->taken.us,
        .transmit_us = now.us - set_up.us,
        .conn_use = a->session == NULL ? 0 : session_uses(a->session),
        .maybe_duplicate = a->maybe_duplicate,
    };

    if (a->session != NULL) {
        end.proof = session_proof(a->session);
        end.tls_version = slice_string(session_tls_version(a->session));
        end.tls_cipher = slice_string(session_tls_cipher(a->session));
    }
    buf_init(&reason, WIRE_TEXT_MAX + STATUS_SIZE);
    if (outcome == OUTCOME_SITE_FAIL) {
        char printed[STATUS_SIZE];

        CHECK(buf_addf(&reason, "%s %.*s", status_print(a->failure.status, printed),
                       WIRE_TEXT_MAX - 16, a->failure.text));
        end.reason = buf_slice(&reason);
    }
    assignment_finish(a->assignment, &end);
    buf_fini(&reason);
}

/* Sends the result; frees the attempt and its session. */
static void finish(struct attempt *a, enum wire_outcome outcome)
{
    report(a, outcome);
    attempt_free(a);
}

static void give_back(struct attempt *a)
{
    assignment_give_back(a->assignment, false);
    attempt_free(a);
}

static const char lease_is_over[] = "this node's lease is over";

/* Returns recipients without a verdict: another node has the mail or waits for it. */
static void break_off(struct attempt *a, const char *why)
{
    assignment_break_off(a->assignment, why);
    attempt_free(a);
}

/* Counts content in a descriptor. */
static void count_descriptor(struct attempt *a)
{
    if (a->assignment->fd >= 0 && !a->has_descriptor) {
        a->has_descriptor = true;
        a->all->descriptors++;
    }
}

static void take_failure(struct attempt *a, enum failure_cause cause, struct status status,
                         struct slice text, struct slice reply, struct slice relay, bool site)
{
    /* A wrong name in a list of next hops must not bounce mail that another next hop may accept
     * later. */
    if (status.class == STATUS_PERMANENT && a->failure.status.class == STATUS_TRANSIENT) {
        return;
    }
    failure_fini(&a->failure);
    a->failure = (struct failure){.status = status,
                                  .cause = cause,
                                  .text = mem_copy(text.ptr, text.len),
                                  .reply = reply.len == 0 ? NULL : mem_copy(reply.ptr, reply.len),
                                  .relay = relay.len == 0 ? NULL : mem_copy(relay.ptr, relay.len),
                                  .site = site};
}

static void set_failure(struct attempt *a, struct status status, struct slice text,
                        struct slice relay, bool site)
{
    take_failure(a, FAILURE_OURS, status, text, slice_of("", 0), relay, site);
}

static bool is_tls_not_offered(struct status s)
{
    return s.subject == tls_not_offered.subject && s.detail == tls_not_offered.detail;
}

static void set_session_failure(struct attempt *a, const struct client_event *talk, bool site)
{
    static const enum failure_cause causes[] = {
        [CLIENT_CAUSE_REFUSED] = FAILURE_SESSION,
        [CLIENT_CAUSE_LOOP] = FAILURE_LOOP,
        /* causes between are also OURS and never permanent */
        [CLIENT_CAUSE_BROKEN_OFF] = FAILURE_OURS,
    };

    enum failure_cause cause = causes[talk->cause];

    if (talk->status.class == STATUS_TRANSIENT &&
        ((talk->cause == CLIENT_CAUSE_REFUSED && talk->code / 100 == 5) ||
         (talk->cause == CLIENT_CAUSE_TLS && is_tls_not_offered(talk->status)))) {
        cause = FAILURE_SETTING;
    }
    take_failure(a, cause, talk->status, talk->text, talk->reply, session_relay(a->session), site);
}

/* Sets the last failure as the verdict of recipients without one. */
static void give_up(struct attempt *a)
{
    struct failure *f = &a->failure;
    struct assignment *e = a->assignment;
    bool some_wait = false;

    CHECK(f->status.class != STATUS_NONE);
    for (size_t i = 0; i < e->ask.rcpt_count; i++) {
        if (!assignment_decided(e, i)) {
            assignment_decide(
                e, i, f->status.class == STATUS_PERMANENT ? VERDICT_BOUNCED : VERDICT_DEFERRED,
                f->cause, f->status, slice_string(f->text),
                slice_string(f->relay == NULL ? "none" : f->relay));
            assignment_reply(e, i, slice_string(f->reply == NULL ? "" : f->reply));
            some_wait = some_wait || assignment_verdict(e, i)->kind == VERDICT_DEFERRED;
        }
    }
    if (f->status.class == STATUS_PERMANENT && some_wait) {
        f->status = to_be_mended;
    }
    finish(a, f->site && some_wait && !a->met ? OUTCOME_SITE_FAIL : OUTCOME_OK);
}

/* ---- hops and addresses --------------------------------------------------------------------- */

static bool address_left(const struct attempt *a)
{
    return a->hops != NULL && a->hops->finished && a->hops->outcome == HOPS_FOUND &&
           a->address_at + 1 < a->hops->list.address_count &&
           a->sessions < a->destination->session_limit;
}

static bool more_to_try(const struct attempt *a)
{
    return address_left(a) || a->hop_at + 1 < a->hop_count;
}

static void attach(struct attempt *a, struct session *s)
{
    CHECK(a->session == NULL && s != NULL);
    a->session = s;
    session_serve(s, a->assignment->ask.id);
    a->all->bare--;
}

static struct session *detach(struct attempt *a)
{
    struct session *s = a->session;

    CHECK(s != NULL);
    a->session = NULL;
    a->all->bare++;
    return s;
}

static void open_session(struct attempt *a, const struct session_to *to)
{
    a->phase = ATTEMPT_CONNECTING;
    a->on_kept = false;
    (void)smtp_destination_ref(a->destination); /* released in attempts_session_closed */
    attach(a, session_open(a->all->sessions, &a->destination->settings, to, session_event, a));
}

static bool worth_keeping(const struct attempts *all, const struct smtp_destination *e,
                          const struct session *s);
static void use_kept(struct attempt *a, struct session *s);

/* Finds an idle connection to this host that another destination has opened, and whose proof meets
 * this demand. The cache is small: a walk costs less than a handshake. */
static struct session *find_shared(struct attempt *a, const struct session_to *to)
{
    const struct smtp_destination *e = a->destination;
    struct session *s;

    TAILQ_FOREACH(s, &a->all->cache.all, cache_all)
    {
        if (session_is_like(s, &e->settings, to) && session_meets(s, to->demand) &&
            worth_keeping(a->all, e, s)) {
            return s;
        }
    }
    return NULL;
}

static void open_address(struct attempt *a, bool in_clear)
{
    const struct mx_address *at = &a->hops->list.addresses[a->address_at];
    bool ipv4 = at->ip.sa.sa_family == AF_INET;
    char text[INET6_ADDRSTRLEN];
    struct session_to to = {
        .address = &at->ip.sa,
        .address_len = ipv4 ? sizeof at->ip.in : sizeof at->ip.in6,
        .host = a->hops->list.hosts[at->host].name,
        .detail = text,
        .port = ntohs(ipv4 ? at->ip.in.sin_port : at->ip.in6.sin6_port),
        .demand = a->hops->demands[at->host],
        .in_clear = in_clear,
        .login = a->destination->logins[a->hop_at],
    };
    struct session *shared = in_clear ? NULL : find_shared(a, &to);

    CHECK(inet_ntop(at->ip.sa.sa_family,
                    ipv4 ? (const void *)&at->ip.in.sin_addr : (const void *)&at->ip.in6.sin6_addr,
                    text, sizeof text) != NULL);
    if (shared == NULL) {
        open_session(a, &to);
        return;
    }
    struct smtp_destination *before = smtp_destination_of(shared->settings);

    conncache_remove(&a->all->cache, shared);
    session_adopt(shared, &smtp_destination_ref(a->destination)->settings, &to);
    smtp_destination_unref(before);
    use_kept(a, shared);
}

/* Returns false if the path is too long for an address. */
static bool open_unix(struct attempt *a, struct slice path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    if (path.len >= sizeof address.sun_path) {
        return false;
    }
    memcpy(address.sun_path, path.ptr, path.len);
    /* No third party can listen on a Unix socket: no TLS. */
    open_session(a, &(struct session_to){.address = (const struct sockaddr *)&address,
                                         .address_len = sizeof address,
                                         .host = a->all->world.hostname,
                                         .detail = address.sun_path,
                                         .login = a->destination->logins[a->hop_at]});
    return true;
}

/* Takes the result of the lookup. Returns false if it failed and there is another next hop to
 * try. */
static bool take_hops(struct attempt *a)
{
    struct hops *h = a->hops;

    if (h->found_self && a->hop_count > a->destination->own_count &&
        a->hop_at < a->destination->own_count) {
        /* A relay of last resort would send the mail back to this host. */
        a->hop_count = a->destination->own_count;
    }
    switch (h->outcome) {
    case HOPS_FOUND:
        a->address_at = 0;
        open_address(a, false);
        return true;
    case HOPS_DEFERRED:
        set_failure(a, h->status, slice_string(h->text), slice_of("", 0), !h->refused);
        return false;
    case HOPS_FAILED:
        take_failure(a, h->cause, h->status, slice_string(h->text), slice_of("", 0),
                     slice_of("", 0), true);
        if (h->last_word) {
            give_up(a);
            return true;
        }
        return false;
    }
    UNREACHABLE("an outcome beyond the enum");
}

static void on_hops(void *arg, struct hops *h)
{
    struct attempt *a = arg;

    CHECK(h == a->hops);
    if (!take_hops(a)) {
        a->hop_at++;
        try_hop(a);
    }
}

/* Ends the attempt and returns true if our login at the next hop was refused recently and must not
 * be tried yet. No other hop is tried, just as after a refusal. */
static bool login_rests(struct attempt *a)
{
    struct buf text;
    int64_t us;
    const char *why = smtp_destination_login_rests(a->destination, a->hop_at, clock_mono(), &us);

    if (why == NULL) {
        return false;
    }
    buf_init(&text, WIRE_TEXT_MAX);
    (void)buf_addf(&text, "not tried, the login is to rest for %lld s more: %.*s",
                   (long long)(us / US_PER_S + 1), WIRE_TEXT_MAX - 100, why); /* fits */
    failure_fini(&a->failure);
    set_failure(a, no_login, buf_slice(&text), slice_of("", 0), false);
    buf_fini(&text);
    give_up(a);
    return true;
}

/* Goes to the next hop at hop_at. Returns true if a lookup or connection is in flight, or the
 * attempt is over. */
static bool begin_hop(struct attempt *a)
{
    struct smtp_destination *e = a->destination;
    struct slice text = slice_string(e->hops[a->hop_at]);
    struct hops_tls tls = smtp_destination_tls(e, a->hop_at);
    struct nexthop nexthop;

    hops_free(a->hops);
    a->hops = NULL;
    a->sessions = 0;
    a->phase = ATTEMPT_LOOKING_UP;
    a->assignment->last_resort = a->hop_at >= e->own_count;
    if (login_rests(a)) {
        return true;
    }
    if (!nexthop_parse(text, &nexthop)) {
        set_failure(a, bad_configuration,
                    SLICE("mail system configuration error: bad next hop syntax"), slice_of("", 0),
                    false);
        return false;
    }
    if (nexthop.is_unix) {
        if (open_unix(a, nexthop.host)) {
            return true;
        }
        set_failure(a, bad_configuration,
                    SLICE("mail system configuration error: socket path is too long"),
                    slice_of("", 0), false);
        return false;
    }
    a->hops = hops_find(&a->all->world, &nexthop, e->lmtp ? LMTP_PORT : SMTP_PORT, &e->rules, &tls,
                        !e->lmtp, on_hops, a);
    return !a->hops->finished || take_hops(a);
}

static void try_hop(struct attempt *a)
{
    for (; a->hop_at < a->hop_count; a->hop_at++) {
        if (begin_hop(a)) {
            return;
        }
    }
    if (a->failure.status.class == STATUS_NONE) {
        set_failure(a, bad_configuration, SLICE("mail system configuration error: no next hop"),
                    slice_of("", 0), false);
    }
    give_up(a);
}

/* Tries the next address or next hop after a failure. */
static void try_next(struct attempt *a)
{
    if (address_left(a)) {
        a->address_at++;
        open_address(a, false);
    } else {
        a->hop_at++;
        try_hop(a);
    }
}

/* ---- connections kept ----------------------------------------------------------------------- */

static void on_kept(void *arg, struct session *s, enum session_event event,
                    const struct client_event *talk)
{
    struct attempts *all = arg;

    (void)talk; /* no delivery waits for it */
    CHECK(event != SESSION_UNREACHABLE);
    conncache_remove(&all->cache, s);
    session_close(s);
}

/* Ignores the scheduler's hints (cache_load, cache_store), which mark a busy destination:
 * connection_cache_time_limit decides whether a kept connection is used again. */
static bool worth_keeping(const struct attempts *all, const struct smtp_destination *e,
                          const struct session *s)
{
    struct mono reuse_until = mono_after(session_opened(s), e->reuse_us);

    return e->cache && !e->stale && !e->leaves && !all->stopping &&
           sessions_may_deliver(all->sessions) && !mono_reached(reuse_until, clock_mono()) &&
           (e->reuse_count == 0 || session_uses(s) < e->reuse_count);
}

static void begin(struct attempt *a);

/* Moves an attempt from the waiting to the running ones. */
static void unqueue(struct attempt *a)
{
    struct attempts *all = a->all;

    TAILQ_REMOVE(&all->waiting, a, in_list);
    TAILQ_REMOVE(&a->destination->waiting, a, in_destination);
    TAILQ_INSERT_TAIL(&all->running, a, in_list);
    a->phase = ATTEMPT_CONNECTING;
    all->bare++;
}

static void use_kept(struct attempt *a, struct session *s)
{
    attach(a, s);
    session_set_owner(s, session_event, a);
    a->on_kept = true;
    begin(a);
}

/* Gives a reusable session to a waiting delivery of this destination, or keeps it, or closes it
 * with QUIT. */
static void pass_on(struct attempts *all, struct smtp_destination *e, struct session *s)
{
    struct attempt *next = TAILQ_FIRST(&e->waiting);
    struct session *oldest;

    if (!worth_keeping(all, e, s)) {
        session_close(s);
    } else if (next != NULL && session_fits(s)) {
        unqueue(next);
        use_kept(next, s);
    } else {
        session_set_owner(s, on_kept, all);
        session_serve(s, SLICE(""));
        session_rest(s, mono_after(clock_mono(), e->cache_us));
        oldest = conncache_put(&all->cache, &e->idle, s);
        if (oldest != NULL) {
            session_close(oldest);
        }
    }
}

static void close_kept(struct attempts *all, struct slice transport, struct slice nexthop)
{
    struct session *s, *next;

    for (s = TAILQ_FIRST(&all->cache.all); s != NULL; s = next) {
        next = TAILQ_NEXT(s, cache_all);
        if (smtp_destination_is(smtp_destination_of(s->settings), transport, nexthop)) {
            conncache_remove(&all->cache, s);
            session_close(s);
        }
    }
}

void attempts_forget(struct attempts *all, struct slice transport, struct slice nexthop)
{
    close_kept(all, transport, nexthop);
    if (transport.len > 0) {
        smtp_destinations_leave(all->destinations, transport, nexthop);
    } else {
        smtp_destinations_forgive(all->destinations);
    }
}

void attempts_session_closed(void *arg, const struct session_settings *settings)
{
    struct attempts *all = arg;

    all->held_until = (struct mono){0};
    all->room_made = true;
    smtp_destination_unref(smtp_destination_of(settings));
}

/* ---- a transaction -------------------------------------------------------------------------- */

/* Begins a transaction for the recipients without a verdict. */
static void begin(struct attempt *a)
{
    if (!sessions_may_deliver(a->all->sessions)) {
        session_close(detach(a));
        break_off(a, lease_is_over);
        return;
    }
    const struct wire_deliver *ask = &a->assignment->ask;
    struct client_mail mail = {
        .sender = ask->sender, .envid = ask->envid, .flags = ask->flags, .size_bytes = ask->size};
    size_t count = a->assignment->open < CLIENT_RCPTS_MAX ? a->assignment->open : CLIENT_RCPTS_MAX;

    transaction_fini(a);
    a->phase = ATTEMPT_TRANSACTION;
    a->answered = a->sent = a->too_many = a->content_wanted = a->content_done = false;
    a->which = mem_array(count, sizeof a->which[0]);
    a->rcpts = mem_array(count, sizeof a->rcpts[0]);
    for (size_t i = 0; i < ask->rcpt_count && a->rcpt_count < count; i++) {
        if (!assignment_decided(a->assignment, i)) {
            const struct wire_deliver_rcpt *r = &ask->rcpts[i];

            a->which[a->rcpt_count] = i;
            a->rcpts[a->rcpt_count++] =
                (struct client_rcpt){.address = r->address, .orcpt = r->orcpt, .notify = r->notify};
        }
    }
    if (a->set_up.us == US_FOREVER) {
        a->set_up = clock_mono();
    }
    mail.rcpts = a->rcpts;
    mail.rcpt_count = a->rcpt_count;
    assignment_rewind(a->assignment);
    session_begin(a->session, &mail);
}

static void broken_content(struct attempt *a)
{
    log_warning("%.*s: message content can't be read", SLICE_ARGS(a->assignment->ask.id));
    assignment_decide_rest(a->assignment, FAILURE_OURS, no_content,
                           SLICE("message content can't be read"), SLICE("none"));
    finish(a, OUTCOME_OK);
}

static void give_content(struct attempt *a)
{
    struct slice piece;
    bool last;
    size_t used;

    switch (assignment_piece(a->assignment, &piece, &last)) {
    case ASSIGNMENT_PIECE:
        a->content_wanted = false;
        used = session_content(a->session, piece, last);
        assignment_piece_used(a->assignment, used);
        a->content_done = last && used == piece.len;
        return;
    case ASSIGNMENT_PIECE_WAIT:
        a->content_wanted = true;
        if (!a->content_asked) {
            a->content_asked = true;
            assignment_ask_content(a->assignment);
        }
        return;
    case ASSIGNMENT_PIECE_BROKEN:
        broken_content(a);
        return;
    }
}

static void on_verdict(struct attempt *a, const struct client_event *talk)
{
    size_t i;
    enum wire_verdict_kind kind = VERDICT_SENT;

    CHECK(talk->rcpt < a->rcpt_count);
    i = a->which[talk->rcpt];
    if (talk->too_many) { /* the next transaction has it, or the failure if there is none */
        a->too_many = true;
        take_failure(a, FAILURE_ANSWER, talk->status, talk->text, talk->reply,
                     session_relay(a->session), false);
        return;
    }
    switch (talk->outcome) {
    case CLIENT_SENT:
        if ((a->rcpts[talk->rcpt].notify & NOTIFY_SUCCESS) != 0 && !talk->dsn_passed) {
            kind = VERDICT_RELAYED;
        }
        break;
    case CLIENT_DEFERRED:
        kind = VERDICT_DEFERRED;
        break;
    case CLIENT_BOUNCED:
        kind = VERDICT_BOUNCED;
        break;
    }
    a->answered = true;
    a->sent = a->sent || talk->outcome == CLIENT_SENT;
    assignment_decide(a->assignment, i, kind,
                      talk->code == 0                           ? FAILURE_MAIL
                      : client_reply_is_about_login(talk->code) ? FAILURE_SETTING
                                                                : FAILURE_ANSWER,
                      talk->status, talk->text, session_relay(a->session));
    assignment_reply(a->assignment, i, talk->reply);
}

static void on_done(struct attempt *a, const struct client_event *talk)
{
    struct attempts *all = a->all;
    struct smtp_destination *e = a->destination;
    struct session *s;

    a->met = true;
    if (a->assignment->open > 0 && a->too_many && !a->sent) {
        give_up(a); /* another transaction would end as this one */
        return;
    }
    if (a->assignment->open > 0) { /* more recipients than fit in one transaction */
        if (talk->reusable) {
            begin(a);
        } else {
            session_close(detach(a));
            try_hop(a);
        }
        return;
    }
    report(a, OUTCOME_OK);
    s = detach(a);
    (void)smtp_destination_ref(e);
    attempt_free(a);
    if (talk->reusable) {
        pass_on(all, e, s);
    } else {
        session_close(s);
    }
    smtp_destination_unref(e);
}

/* ---- failures ------------------------------------------------------------------------------- */

/* Did a kept connection die while it was idle? Then the peer has acted on nothing of this
 * message. */
static bool died_unnoticed(const struct attempt *a, const struct client_event *talk)
{
    return a->on_kept && !a->answered &&
           (talk->phase == CLIENT_PHASE_RSET || talk->phase == CLIENT_PHASE_MAIL) &&
           (talk->cause == CLIENT_CAUSE_LOST || talk->code == 421);
}

/* Handles a missing reply to the end of the content: the peer may have the message, so no other
 * host must get it now. */
static void on_doubt(struct attempt *a, const struct client_event *talk)
{
    bool final = !more_to_try(a);

    set_session_failure(a, talk, talk->site && final);
    a->maybe_duplicate = true;
    give_up(a);
}

static void on_failed(struct attempt *a, const struct client_event *talk)
{
    /* A refused login affects all mail with this login, and no other mail (smtp_destination.h).
     * After a 4xx the relay has the trouble, not the login. */
    bool login = talk->cause == CLIENT_CAUSE_LOGIN && talk->code / 100 != 4, final;

    if (talk->cause == CLIENT_CAUSE_BROKEN_OFF) {
        break_off(a, lease_is_over);
        return;
    }
    if (talk->content_was_sent) {
        on_doubt(a, talk);
        return;
    }
    if (died_unnoticed(a, talk)) {
        session_abort(detach(a));
        a->set_up = MONO_NEVER;
        a->hop_at = 0;
        try_hop(a);
        return;
    }
    if (talk->retry_in_clear) {
        log_info("%.*s: %.*s: trying again without TLS", SLICE_ARGS(a->assignment->ask.id),
                 SLICE_ARGS(talk->text));
        session_abort(detach(a));
        open_address(a, true);
        return;
    }
    /* A refused login is not tried at the relay's other addresses. */
    final = talk->outcome == CLIENT_BOUNCED || !more_to_try(a) || login;
    if (login) {
        smtp_destination_login_refused(a->destination, a->hop_at, talk->text, clock_mono());
    }
    if (final) {
        failure_fini(&a->failure); /* this failure replaces an earlier one */
    }
    set_session_failure(a, talk, talk->site && !login);
    if (final) {
        give_up(a);
        return;
    }
    log_info("%.*s: %.*s", SLICE_ARGS(a->assignment->ask.id), SLICE_ARGS(talk->text));
    session_close(detach(a));
    transaction_fini(a);
    try_next(a);
}

/* Puts a running attempt back at the head of the waiting ones. */
static void wait_again(struct attempt *a)
{
    struct attempts *all = a->all;

    all->held_until = mono_after(clock_mono(), HELD_UP_US);
    session_abort(detach(a));
    all->bare--;
    TAILQ_REMOVE(&all->running, a, in_list);
    TAILQ_INSERT_HEAD(&all->waiting, a, in_list);
    TAILQ_INSERT_HEAD(&a->destination->waiting, a, in_destination);
    a->phase = ATTEMPT_WAITING;
}

static void on_unreachable(struct attempt *a)
{
    struct buf text;

    if (session_errno(a->session) == EMFILE || session_errno(a->session) == ENFILE) {
        wait_again(a);
        return;
    }
    buf_init(&text, WIRE_TEXT_MAX);
    CHECK(buf_addf(&text, "connect to %.*s: %s", SLICE_ARGS(session_relay(a->session)),
                   session_why(a->session)));
    log_info("%s", buf_cstr(&text));
    take_failure(a, session_unreachable_cause(a->session), cannot_connect, buf_slice(&text),
                 slice_of("", 0), slice_of("", 0), true);
    buf_fini(&text);
    session_abort(detach(a));
    try_next(a);
}

static void session_event(void *arg, struct session *s, enum session_event event,
                          const struct client_event *talk)
{
    struct attempt *a = arg;

    CHECK(a->session == s);
    if (event == SESSION_UNREACHABLE) {
        on_unreachable(a);
        return;
    }
    CHECK(event == SESSION_TALK);
    switch (talk->kind) {
    case CLIENT_READY:
        a->sessions++;
        smtp_destination_login_works(a->destination, a->hop_at);
        begin(a);
        return;
    case CLIENT_NEED_CONTENT:
        give_content(a);
        return;
    case CLIENT_RCPT_VERDICT:
        on_verdict(a, talk);
        return;
    case CLIENT_TRANSACTION_DONE:
        on_done(a, talk);
        return;
    case CLIENT_FAILED:
        if (a->phase == ATTEMPT_CONNECTING) {
            a->sessions++;
        }
        on_failed(a, talk);
        return;
    case CLIENT_NEED_TLS:
    case CLIENT_CLOSED:
        break;
    }
    UNREACHABLE("the session does TLS itself, and closes only when it has no owner");
}

/* ---- beginning and waiting ------------------------------------------------------------------ */

static bool has_room(const struct attempts *all)
{
    return sessions_count(all->sessions) + all->bare < all->socket_limit &&
           mono_reached(all->held_until, clock_mono());
}

/* Does this destination have an idle connection that meets its policy, as far as is known without a
 * lookup? */
static bool has_kept(const struct smtp_destination *e)
{
    /* open_address finds those of other destinations */
    const struct session *s = TAILQ_FIRST(&e->idle.idle);

    return s != NULL && session_fits(s);
}

/* Starts an attempt, or continues one that had no descriptor. It is running and without a
 * session. */
static void start(struct attempt *a)
{
    const struct smtp_destination *e = a->destination;
    struct session *kept;
    char text[120];

    if (!sessions_may_deliver(a->all->sessions)) {
        break_off(a, lease_is_over);
        return;
    }
    if (e->size_limit > 0 && a->assignment->ask.size > (uint64_t)e->size_limit) {
        (void)snprintf(text, sizeof text, "message size %llu exceeds size limit %lld",
                       (unsigned long long)a->assignment->ask.size, (long long)e->size_limit);
        assignment_decide_rest(a->assignment, FAILURE_RULE, too_large, slice_string(text),
                               SLICE("none"));
        finish(a, OUTCOME_OK);
        return;
    }
    kept = has_kept(e) ? conncache_take(&a->all->cache, &a->destination->idle) : NULL;
    if (kept != NULL) {
        use_kept(a, kept);
    } else if (a->hops != NULL) {
        open_address(a, false);
    } else {
        try_hop(a);
    }
}

void attempts_add(struct attempts *all, struct assignment *assignment)
{
    struct attempt *a = mem_new(sizeof *a);

    a->all = all;
    a->assignment = assignment;
    a->destination = smtp_destination_get(all->destinations, assignment->ask.transport,
                                          assignment->ask.nexthop, assignment->ask.sender);
    a->destination->leaves = false;
    a->hop_count = a->destination->hop_count;
    a->set_up = MONO_NEVER;
    count_descriptor(a);
    assignments_add(&all->assignments, assignment, a);
    TAILQ_INSERT_TAIL(&all->waiting, a, in_list);
    TAILQ_INSERT_TAIL(&a->destination->waiting, a, in_destination);
    if (all->stopping) {
        give_back(a);
    } else if (has_kept(a->destination) || (TAILQ_FIRST(&all->waiting) == a && has_room(all))) {
        unqueue(a);
        start(a);
    }
}

static void start_waiting(struct attempts *all)
{
    struct attempt *a;
    struct session *oldest;

    while ((a = TAILQ_FIRST(&all->waiting)) != NULL) {
        if (!has_room(all)) {
            /* Waiting work has precedence over an idle connection, whose descriptor is free after
             * QUIT. */
            oldest = conncache_take_oldest(&all->cache);
            if (oldest != NULL) {
                session_close(oldest);
            }
            return;
        }
        unqueue(a);
        start(a);
    }
}

void attempts_run(struct attempts *all)
{
    do {
        all->room_made = false;
        start_waiting(all);
        sessions_run(all->sessions);
    } while (all->room_made && !TAILQ_EMPTY(&all->waiting));
}

void attempts_content(struct attempts *all, const struct wire_content *m, int fd)
{
    struct attempt *a = assignments_find(&all->assignments, m->entry);

    if (a == NULL) { /* the session has failed meanwhile */
        if (fd >= 0) {
            (void)close(fd); /* not needed */
        }
    } else if (!assignment_take_content(a->assignment, m, fd)) {
        broken_content(a);
    } else {
        count_descriptor(a);
        if (a->content_wanted) {
            give_content(a);
        }
    }
}

/* ---- the end -------------------------------------------------------------------------------- */

/* May the peer have the whole message? */
static bool past_the_end(const struct attempt *a)
{
    return a->phase == ATTEMPT_TRANSACTION && a->content_done && session_flushed(a->session);
}

/* Breaks off the delivery of one entry, or of all if `entry` is NULL. */
static void break_off_list(struct attempt_list *list, const uint64_t *entry, const char *why)
{
    struct attempt *a, *next;

    for (a = TAILQ_FIRST(list); a != NULL; a = next) {
        next = TAILQ_NEXT(a, in_list);
        /* Without open recipients the rest of the dialogue decides nothing. */
        if ((entry == NULL || a->assignment->ask.entry == *entry) && a->assignment->open > 0 &&
            !past_the_end(a)) {
            break_off(a, why);
        }
    }
}

void attempts_break_off(struct attempts *all)
{
    break_off_list(&all->waiting, NULL, lease_is_over);
    break_off_list(&all->running, NULL, lease_is_over);
    close_kept(all, slice_of("", 0), slice_of("", 0));
}

void attempts_break_off_one(struct attempts *all, uint64_t entry)
{
    break_off_list(&all->waiting, &entry, "another node waits for it");
    break_off_list(&all->running, &entry, "another node waits for it");
}

static void end_early(struct attempt *a)
{
    if (a->assignment->open == a->assignment->ask.rcpt_count && !past_the_end(a)) {
        give_back(a);
        return;
    }
    a->maybe_duplicate = a->assignment->open > 0 && past_the_end(a);
    assignment_decide_rest(a->assignment, FAILURE_OURS, shutting_down,
                           SLICE("mail system is shutting down"), SLICE("none"));
    finish(a, OUTCOME_OK);
}

static void end_list(struct attempt_list *list, bool transactions)
{
    struct attempt *a, *next;

    for (a = TAILQ_FIRST(list); a != NULL; a = next) {
        next = TAILQ_NEXT(a, in_list);
        if (transactions || a->phase != ATTEMPT_TRANSACTION) {
            end_early(a);
        }
    }
}

void attempts_stop(struct attempts *all)
{
    all->stopping = true;
    end_list(&all->waiting, true);
    end_list(&all->running, false);
    attempts_forget(all, slice_of("", 0), slice_of("", 0));
}

void attempts_cut(struct attempts *all)
{
    end_list(&all->running, true);
}

static bool goes_on(void *arg, void *owner)
{
    struct attempt *a = owner;

    (void)arg;
    if (past_the_end(a)) {
        return true;
    }
    assignment_free(a->assignment);
    attempt_free(a);
    return false;
}

void attempts_queue_lost(struct attempts *all)
{
    assignments_lost(&all->assignments, goes_on, NULL);
}

bool attempts_keep_none(const struct attempts *all)
{
    return all->cache.count == 0;
}

bool attempts_idle(const struct attempts *all)
{
    return TAILQ_EMPTY(&all->waiting) && TAILQ_EMPTY(&all->running);
}

void attempts_init(struct attempts *all)
{
    *all = (struct attempts){0};
    TAILQ_INIT(&all->running);
    TAILQ_INIT(&all->waiting);
    conncache_init(&all->cache, ATTEMPT_CACHE_MAX);
}

void attempts_fini(struct attempts *all)
{
    CHECK(attempts_idle(all));
    attempts_forget(all, slice_of("", 0), slice_of("", 0));
    sessions_free(all->sessions);
    smtp_destinations_free(all->destinations);
    hops_world_fini(&all->world);
}
