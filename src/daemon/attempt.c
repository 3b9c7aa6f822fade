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
/* When the system has no descriptor left, try again so often. */
#define HELD_UP_US (US_PER_S / 2)

enum attempt_phase {
    ATTEMPT_WAITING,
    ATTEMPT_LOOKING_UP,
    ATTEMPT_CONNECTING, /* and the handshake */
    ATTEMPT_TRANSACTION,
};

/* The last thing that went wrong, for those who are left in the end. */
struct failure {
    struct status status; /* class 0: nothing yet */
    char *text;           /* owned */
    char *relay;          /* owned; NULL: none was reached */
    bool site;            /* blames the site */
};

struct attempt {
    struct attempts *all;
    struct entry *entry;       /* owned */
    struct endpoint *endpoint; /* one reference */
    struct session *session;   /* owned; NULL while there is none */
    struct hops *hops;         /* owned; the addresses of the current next hop */
    struct failure failure;
    uint64_t id; /* entry->ask.entry, key of by_entry */
    enum attempt_phase phase;
    size_t hop_at, hop_count; /* in endpoint->hops */
    size_t address_at;        /* in hops->list.addresses */
    size_t sessions;          /* opened with the current next hop */
    struct mono set_up;       /* when the first session was ready; MONO_NEVER: none was */

    /* the transaction */
    size_t *which; /* owned: entry's recipients in it */
    struct client_rcpt *rcpts;
    size_t rcpt_count;
    bool on_kept;         /* on a connection that was kept */
    bool answered;        /* somebody in it got a verdict */
    bool content_wanted;  /* the engine waits for content */
    bool content_asked;   /* the queue was asked for it */
    bool content_done;    /* the engine has all of it */
    bool maybe_duplicate; /* of the result */
    bool met;             /* a session ended well */
    bool orphan;          /* the queue that wants to know is gone */
    bool has_descriptor;  /* counted in all->descriptors */

    TAILQ_ENTRY(attempt) in_list, in_endpoint;
    UT_hash_handle hh;
};

static const struct status cannot_connect = {STATUS_TRANSIENT, 4, 1};
static const struct status bad_configuration = {STATUS_TRANSIENT, 3, 5};
static const struct status shutting_down = {STATUS_TRANSIENT, 3, 2};
static const struct status no_content = {STATUS_TRANSIENT, 3, 0};
static const struct status too_large = {STATUS_PERMANENT, 3, 4};

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
    mem_free(f->relay);
    *f = (struct failure){0};
}

/* Everything but the entry, which was handed on. */
static void attempt_free(struct attempt *a)
{
    struct attempts *all = a->all;

    if (a->phase == ATTEMPT_WAITING) {
        TAILQ_REMOVE(&all->waiting, a, in_list);
        TAILQ_REMOVE(&a->endpoint->waiting, a, in_endpoint);
    } else {
        TAILQ_REMOVE(&all->running, a, in_list);
        if (a->session == NULL) {
            all->bare--;
        }
    }
    if (!a->orphan) {
        HASH_DEL(all->by_entry, a);
    }
    if (a->has_descriptor) {
        all->descriptors--;
    }
    session_abort(a->session);
    hops_free(a->hops);
    transaction_fini(a);
    failure_fini(&a->failure);
    endpoint_unref(a->endpoint);
    mem_free(a);
}

static struct channel *result_channel(const struct attempt *a)
{
    return a->orphan ? NULL : a->all->queue;
}

/* All recipients have a verdict: say so. The entry is gone then. */
static void report(struct attempt *a, enum wire_outcome outcome)
{
    struct mono now = clock_mono();
    bool was_set_up = a->set_up.us != US_FOREVER;
    struct mono set_up = was_set_up ? a->set_up : now;
    struct buf reason;
    struct entry_end end = {
        .outcome = outcome,
        .setup_us = set_up.us - a->entry->taken.us,
        .transmit_us = now.us - set_up.us,
        .conn_use = a->session == NULL ? 0 : session_uses(a->session),
        .tls = a->session == NULL ? slice_of("", 0) : session_tls(a->session),
        .maybe_duplicate = a->maybe_duplicate,
    };

    if (a->orphan) {
        log_warning("%.*s: the queue was restarted during this delivery, which will be repeated",
                    SLICE_ARGS(a->entry->ask.id));
    }
    buf_init(&reason, WIRE_TEXT_MAX + STATUS_SIZE);
    if (outcome == OUTCOME_SITE_FAIL) {
        char printed[STATUS_SIZE];

        CHECK(buf_addf(&reason, "%s %.*s", status_print(a->failure.status, printed),
                       WIRE_TEXT_MAX - 16, a->failure.text));
        end.reason = buf_slice(&reason);
    }
    if (a->all->told != NULL) {
        a->all->told(a->all->told_arg, a->entry, &end);
        entry_free(a->entry);
    } else {
        entry_finish(a->entry, result_channel(a), &end);
    }
    buf_fini(&reason);
}

/* Report, and be gone; the session with it. */
static void finish(struct attempt *a, enum wire_outcome outcome)
{
    report(a, outcome);
    attempt_free(a);
}

static void give_back(struct attempt *a)
{
    CHECK(a->entry->open == a->entry->ask.rcpt_count);
    if (a->all->told != NULL) {
        a->all->told(a->all->told_arg, a->entry, NULL);
        entry_free(a->entry);
    } else {
        entry_give_back(a->entry, result_channel(a), false);
    }
    attempt_free(a);
}

/* Content in a descriptor is there. */
static void count_descriptor(struct attempt *a)
{
    if (a->entry->fd >= 0 && !a->has_descriptor) {
        a->has_descriptor = true;
        a->all->descriptors++;
    }
}

static void set_failure(struct attempt *a, struct status status, struct slice text,
                        struct slice relay, bool site)
{
    /* A wrong name in a list of next hops must not return mail that another one may take later. */
    if (status.class == STATUS_PERMANENT && a->failure.status.class == STATUS_TRANSIENT) {
        return;
    }
    failure_fini(&a->failure);
    a->failure = (struct failure){.status = status,
                                  .text = mem_copy(text.ptr, text.len),
                                  .relay = relay.len == 0 ? NULL : mem_copy(relay.ptr, relay.len),
                                  .site = site};
}

/* Whoever has no verdict gets the last failure. */
static void give_up(struct attempt *a)
{
    struct failure *f = &a->failure;
    bool blame = f->site && f->status.class == STATUS_TRANSIENT && a->entry->open > 0 && !a->met;

    CHECK(f->status.class != STATUS_NONE);
    entry_decide_rest(a->entry, f->status, slice_string(f->text),
                      slice_string(f->relay == NULL ? "none" : f->relay));
    finish(a, blame ? OUTCOME_SITE_FAIL : OUTCOME_OK);
}

/* ---- where to go ---------------------------------------------------------------------------- */

static bool address_left(const struct attempt *a)
{
    return a->hops != NULL && a->hops->finished && a->hops->outcome == HOPS_FOUND &&
           a->address_at + 1 < a->hops->list.address_count &&
           a->sessions < a->endpoint->session_limit;
}

static bool more_to_try(const struct attempt *a)
{
    return address_left(a) || a->hop_at + 1 < a->hop_count;
}

static void attach(struct attempt *a, struct session *s)
{
    CHECK(a->session == NULL && s != NULL);
    a->session = s;
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

static void open_session(struct attempt *a, const struct sockaddr *to, socklen_t to_len,
                         const char *host, const char *detail, unsigned port, bool in_clear)
{
    a->phase = ATTEMPT_CONNECTING;
    a->on_kept = false;
    (void)endpoint_ref(a->endpoint); /* the session's own; see attempts_session_closed */
    attach(a, session_open(a->all->sessions, &a->endpoint->settings, to, to_len, host, detail, port,
                           in_clear, session_event, a));
}

static void open_address(struct attempt *a, bool in_clear)
{
    const struct mx_address *to = &a->hops->list.addresses[a->address_at];
    bool ipv4 = to->ip.sa.sa_family == AF_INET;
    char text[INET6_ADDRSTRLEN];

    CHECK(inet_ntop(to->ip.sa.sa_family,
                    ipv4 ? (const void *)&to->ip.in.sin_addr : (const void *)&to->ip.in6.sin6_addr,
                    text, sizeof text) != NULL);
    open_session(a, &to->ip.sa, ipv4 ? sizeof to->ip.in : sizeof to->ip.in6,
                 a->hops->list.hosts[to->host].name, text,
                 ntohs(ipv4 ? to->ip.in.sin_port : to->ip.in6.sin6_port), in_clear);
}

/* False when the path is no address. */
static bool open_unix(struct attempt *a, struct slice path)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};

    if (path.len >= sizeof to.sun_path) {
        return false;
    }
    memcpy(to.sun_path, path.ptr, path.len);
    /* Nobody can listen in on a Unix socket. */
    open_session(a, (const struct sockaddr *)&to, sizeof to, a->all->world.hostname, to.sun_path, 0,
                 true);
    return true;
}

/* The lookup is done. False when it leads nowhere and there is another next hop to try. */
static bool take_hops(struct attempt *a)
{
    struct hops *h = a->hops;

    if (h->found_self && a->hop_count > a->endpoint->own_count &&
        a->hop_at < a->endpoint->own_count) {
        /* A relay of last resort would send it here again. */
        a->hop_count = a->endpoint->own_count;
    }
    switch (h->outcome) {
    case HOPS_FOUND:
        a->address_at = 0;
        open_address(a, false);
        return true;
    case HOPS_DEFERRED:
        set_failure(a, h->status, slice_string(h->text), slice_of("", 0), true);
        return false;
    case HOPS_BOUNCED:
        set_failure(a, h->status, slice_string(h->text), slice_of("", 0), true);
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

/* Go to the next hop at hop_at. True when something is under way (or all is over). */
static bool begin_hop(struct attempt *a)
{
    struct endpoint *e = a->endpoint;
    struct slice text = slice_string(e->hops[a->hop_at]);
    struct nexthop nexthop;

    hops_free(a->hops);
    a->hops = NULL;
    a->sessions = 0;
    a->phase = ATTEMPT_LOOKING_UP;
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
    a->hops = hops_find(&a->all->world, &nexthop, e->lmtp ? LMTP_PORT : SMTP_PORT, &e->rules,
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

/* What was tried last has failed. */
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

    (void)talk; /* whatever it says, nobody is waiting for it */
    CHECK(event != SESSION_UNREACHABLE);
    conncache_remove(&all->cache, s);
    session_close(s);
}

/* The scheduler's hints (cache_load, cache_store) say when a destination is busy; what arrives
 * within connection_cache_time_limit says it better, so they are not needed here. */
static bool worth_keeping(const struct attempts *all, const struct endpoint *e,
                          const struct session *s)
{
    struct mono reuse_until = mono_after(session_opened(s), e->reuse_us);

    return e->cache && !e->stale && !all->stopping && !mono_reached(reuse_until, clock_mono()) &&
           (e->reuse_count == 0 || session_uses(s) < e->reuse_count);
}

static void begin(struct attempt *a);

/* Take a waiting attempt out of the queue. */
static void unqueue(struct attempt *a)
{
    struct attempts *all = a->all;

    TAILQ_REMOVE(&all->waiting, a, in_list);
    TAILQ_REMOVE(&a->endpoint->waiting, a, in_endpoint);
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

/* A session that could do more: for whoever waits for this destination, or later, or goodbye. */
static void pass_on(struct attempts *all, struct endpoint *e, struct session *s)
{
    struct attempt *next = TAILQ_FIRST(&e->waiting);
    struct session *oldest;

    if (!worth_keeping(all, e, s)) {
        session_close(s);
    } else if (next != NULL) {
        unqueue(next);
        use_kept(next, s);
    } else {
        session_set_owner(s, on_kept, all);
        session_rest(s, mono_after(clock_mono(), e->cache_us));
        oldest = conncache_put(&all->cache, &e->idle, s);
        if (oldest != NULL) {
            session_close(oldest);
        }
    }
}

void attempts_forget(struct attempts *all, struct slice transport, struct slice nexthop)
{
    struct session *s, *next;

    for (s = TAILQ_FIRST(&all->cache.all); s != NULL; s = next) {
        next = TAILQ_NEXT(s, cache_all);
        if (endpoint_is(endpoint_of(s->settings), transport, nexthop)) {
            conncache_remove(&all->cache, s);
            session_close(s);
        }
    }
}

void attempts_session_closed(void *arg, const struct session_settings *settings)
{
    struct attempts *all = arg;

    all->held_until = (struct mono){0};
    all->room_made = true;
    endpoint_unref(endpoint_of(settings));
}

/* ---- a transaction -------------------------------------------------------------------------- */

/* Begin a transaction for those who have no verdict. */
static void begin(struct attempt *a)
{
    const struct wire_deliver *ask = &a->entry->ask;
    struct client_mail mail = {
        .sender = ask->sender, .envid = ask->envid, .flags = ask->flags, .size_bytes = ask->size};
    size_t count = a->entry->open < CLIENT_RCPTS_MAX ? a->entry->open : CLIENT_RCPTS_MAX;

    transaction_fini(a);
    a->phase = ATTEMPT_TRANSACTION;
    a->answered = a->content_wanted = a->content_done = false;
    a->which = mem_array(count, sizeof a->which[0]);
    a->rcpts = mem_array(count, sizeof a->rcpts[0]);
    for (size_t i = 0; i < ask->rcpt_count && a->rcpt_count < count; i++) {
        if (!entry_decided(a->entry, i)) {
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
    entry_rewind(a->entry);
    session_begin(a->session, &mail);
}

static void broken_content(struct attempt *a)
{
    log_warning("%.*s: message content can't be read", SLICE_ARGS(a->entry->ask.id));
    entry_decide_rest(a->entry, no_content, SLICE("message content can't be read"), SLICE("none"));
    finish(a, OUTCOME_OK);
}

static void give_content(struct attempt *a)
{
    struct slice piece;
    bool last;
    size_t used;

    switch (entry_piece(a->entry, &piece, &last)) {
    case ENTRY_PIECE:
        a->content_wanted = false;
        used = session_content(a->session, piece, last);
        entry_piece_used(a->entry, used);
        a->content_done = last && used == piece.len;
        return;
    case ENTRY_PIECE_WAIT:
        a->content_wanted = true;
        if (!a->content_asked && result_channel(a) != NULL) {
            a->content_asked = true;
            wire_put_need_content(result_channel(a), a->id);
        }
        return;
    case ENTRY_PIECE_BROKEN:
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
    entry_decide(a->entry, i, kind, talk->status, talk->text, session_relay(a->session));
}

static void on_done(struct attempt *a, const struct client_event *talk)
{
    struct attempts *all = a->all;
    struct endpoint *e = a->endpoint;
    struct session *s;

    a->met = true;
    if (a->entry->open > 0) { /* one transaction does not take as many */
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
    (void)endpoint_ref(e);
    attempt_free(a);
    if (talk->reusable) {
        pass_on(all, e, s);
    } else {
        session_close(s);
    }
    endpoint_unref(e);
}

/* ---- what goes wrong ------------------------------------------------------------------------ */

/* A kept connection had died while nobody looked: the peer has heard nothing of this message that
 * it could act on. */
static bool died_unnoticed(const struct attempt *a, const struct client_event *talk)
{
    return a->on_kept && !a->answered &&
           (talk->phase == CLIENT_PHASE_RSET || talk->phase == CLIENT_PHASE_MAIL) &&
           (talk->cause == CLIENT_CAUSE_LOST || talk->code == 421);
}

/* No reply to the end of the content: the peer may have it. Nobody else must get it now. */
static void on_doubt(struct attempt *a, const struct client_event *talk)
{
    bool final = !more_to_try(a);

    set_failure(a, talk->status, talk->text, session_relay(a->session), talk->site && final);
    a->maybe_duplicate = true;
    give_up(a);
}

static void on_failed(struct attempt *a, const struct client_event *talk)
{
    bool final;

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
        log_info("%.*s: %.*s: trying again without TLS", SLICE_ARGS(a->entry->ask.id),
                 SLICE_ARGS(talk->text));
        session_abort(detach(a));
        open_address(a, true);
        return;
    }
    final = talk->outcome == CLIENT_BOUNCED || !more_to_try(a);
    if (final) {
        failure_fini(&a->failure); /* what happened before has no say against this */
    }
    set_failure(a, talk->status, talk->text, session_relay(a->session), talk->site);
    if (final) {
        give_up(a);
        return;
    }
    log_info("%.*s: %.*s", SLICE_ARGS(a->entry->ask.id), SLICE_ARGS(talk->text));
    session_close(detach(a));
    transaction_fini(a);
    try_next(a);
}

/* Back into the queue, in front. */
static void wait_again(struct attempt *a)
{
    struct attempts *all = a->all;

    all->held_until = mono_after(clock_mono(), HELD_UP_US);
    session_abort(detach(a));
    all->bare--;
    TAILQ_REMOVE(&all->running, a, in_list);
    TAILQ_INSERT_HEAD(&all->waiting, a, in_list);
    TAILQ_INSERT_HEAD(&a->endpoint->waiting, a, in_endpoint);
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
    set_failure(a, cannot_connect, buf_slice(&text), slice_of("", 0), true);
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
    UNREACHABLE("the session does TLS itself, and closes only when nobody's");
}

/* ---- beginning and waiting ------------------------------------------------------------------ */

static bool has_room(const struct attempts *all)
{
    return sessions_count(all->sessions) + all->bare < all->socket_limit &&
           mono_reached(all->held_until, clock_mono());
}

/* Begin, or go on where the lack of a descriptor stopped it. The attempt is running and bare. */
static void start(struct attempt *a)
{
    const struct endpoint *e = a->endpoint;
    struct session *kept;
    char text[120];

    if (e->size_limit > 0 && a->entry->ask.size > (uint64_t)e->size_limit) {
        (void)snprintf(text, sizeof text, "message size %llu exceeds size limit %lld",
                       (unsigned long long)a->entry->ask.size, (long long)e->size_limit);
        entry_decide_rest(a->entry, too_large, slice_string(text), SLICE("none"));
        finish(a, OUTCOME_OK);
        return;
    }
    kept = conncache_take(&a->all->cache, &a->endpoint->idle);
    if (kept != NULL) {
        use_kept(a, kept);
    } else if (a->hops != NULL) {
        open_address(a, false);
    } else {
        try_hop(a);
    }
}

void attempts_add(struct attempts *all, struct entry *entry)
{
    struct attempt *a = mem_new(sizeof *a);

    a->all = all;
    a->entry = entry;
    a->id = entry->ask.entry;
    a->endpoint = endpoint_get(all->endpoints, entry->ask.transport, entry->ask.nexthop);
    a->hop_count = a->endpoint->hop_count;
    a->set_up = MONO_NEVER;
    count_descriptor(a);
    HASH_ADD(hh, all->by_entry, id, sizeof a->id, a);
    TAILQ_INSERT_TAIL(&all->waiting, a, in_list);
    TAILQ_INSERT_TAIL(&a->endpoint->waiting, a, in_endpoint);
    if (all->stopping) {
        give_back(a);
    } else if (!TAILQ_EMPTY(&a->endpoint->idle.idle) ||
               (TAILQ_FIRST(&all->waiting) == a && has_room(all))) {
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
            /* Work that is there is worth more than a connection that may be used again. Its
             * descriptor is free when it has said goodbye. */
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
    struct attempt *a;
    uint64_t id = m->entry;

    HASH_FIND(hh, all->by_entry, &id, sizeof id, a);
    if (a == NULL) { /* its session has failed in the meantime */
        if (fd >= 0) {
            (void)close(fd); /* of no use now */
        }
    } else if (!entry_take_content(a->entry, m, fd)) {
        broken_content(a);
    } else {
        count_descriptor(a);
        if (a->content_wanted) {
            give_content(a);
        }
    }
}

/* ---- the end -------------------------------------------------------------------------------- */

/* The peer may have the whole message. */
static bool past_the_end(const struct attempt *a)
{
    return a->phase == ATTEMPT_TRANSACTION && a->content_done && session_flushed(a->session);
}

static void end_early(struct attempt *a)
{
    if (a->entry->open == a->entry->ask.rcpt_count && !past_the_end(a)) {
        give_back(a);
        return;
    }
    a->maybe_duplicate = a->entry->open > 0 && past_the_end(a);
    entry_decide_rest(a->entry, shutting_down, SLICE("mail system is shutting down"),
                      SLICE("none"));
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

static void drop(struct attempt *a)
{
    entry_free(a->entry);
    attempt_free(a);
}

void attempts_orphan(struct attempts *all)
{
    struct attempt *a, *next;

    all->queue = NULL;
    while ((a = TAILQ_FIRST(&all->waiting)) != NULL) {
        drop(a);
    }
    for (a = TAILQ_FIRST(&all->running); a != NULL; a = next) {
        next = TAILQ_NEXT(a, in_list);
        if (a->orphan) {
            continue;
        }
        if (past_the_end(a)) {
            HASH_DEL(all->by_entry, a);
            a->orphan = true;
        } else {
            drop(a);
        }
    }
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
    endpoints_free(all->endpoints);
    hops_world_fini(&all->world);
}
