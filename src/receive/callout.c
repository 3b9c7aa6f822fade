/*
 * A connection:
 *
 *     SOCKET --> CONNECT --> GREETING --> HELO --> MAIL --> IDLE <--> RCPT
 *                                           ^                ^         |
 *                                         (LHLO, EHLO)       +- RSET <-+ after CALLOUT_RCPTS_MAX
 *
 * Any fault frees the connection. Outside IDLE, a fault also makes all questions to the peer
 * unsure, and pauses the peer.
 */
#include "callout.h"

#include <stdio.h>
#include <string.h>
#include <sys/queue.h>
#include <unistd.h>

#include "check.h"
#include "clock.h"
#include "envelope.h"
#include "hash.h"
#include "log.h"
#include "mem.h"
#include "reply.h"
#include "stream.h"

enum connection_state { SOCKET, CONNECT, GREETING, HELO, MAIL, IDLE, RCPT, RSET };

TAILQ_HEAD(questions, callout_question);

struct callout_question {
    struct peer *peer;
    struct questions *in; /* list that contains the question; NULL: a connection has it */
    TAILQ_ENTRY(callout_question) next;
    callout_done *done; /* NULL: forgotten while a connection has the question */
    void *arg;
    char address[ADDRESS_MAX + 1];
};

struct connection {
    struct peer *peer;
    LIST_ENTRY(connection) next;
    enum connection_state state;
    uint64_t token; /* token of the hub, in SOCKET */
    struct stream *stream;
    struct reply reply;
    struct buf out;
    bool utf8; /* the peer offers SMTPUTF8 */
    unsigned rcpts;
    struct callout_question *question; /* question of this RCPT, in RCPT; owned */
};

struct peer {
    struct callouts *all;
    LIST_ENTRY(peer) next;
    struct callout_target target;
    LIST_HEAD(, connection) connections;
    unsigned count;
    struct questions waiting;
    struct mono paused_until;
};

struct cached {
    UT_hash_handle hh;
    TAILQ_ENTRY(cached) next;
    struct mono until;
    bool known;
    size_t len;
    char key[];
};

struct callouts {
    struct filter_hub *hub;
    struct callout_limits limits;
    char *hostname;
    LIST_HEAD(, peer) peers;
    unsigned waiting; /* number of questions of all peers that no connection has */
    struct cached *cache;
    TAILQ_HEAD(cached_list, cached) order; /* oldest first */
};

/* ---- cached answers -------------------------------------------------------------------------- */

#define KEY_MAX (MILTER_ADDRESS_MAX + ADDRESS_MAX + 1)

static size_t key_of(const struct callout_target *target, struct slice address, char key[KEY_MAX])
{
    size_t len = strlen(target->text);

    memcpy(key, target->text, len);
    key[len++] = '\n';
    for (size_t i = 0; i < address.len; i++) {
        key[len++] = ascii_lower(address.ptr[i]);
    }
    return len;
}

static void drop_cached(struct callouts *all, struct cached *c)
{
    HASH_DEL(all->cache, c);
    TAILQ_REMOVE(&all->order, c, next);
    mem_free(c);
}

static const struct cached *find_cached(struct callouts *all, const struct callout_target *target,
                                        struct slice address)
{
    char key[KEY_MAX];
    size_t len = key_of(target, address, key);
    struct cached *c;

    HASH_FIND(hh, all->cache, key, len, c);
    if (c != NULL && mono_reached(c->until, clock_mono())) {
        drop_cached(all, c);
        return NULL;
    }
    return c;
}

static void remember(struct callouts *all, const struct callout_target *target,
                     struct slice address, bool known)
{
    char key[KEY_MAX];
    size_t len = key_of(target, address, key);
    struct cached *c;

    HASH_FIND(hh, all->cache, key, len, c);
    if (c != NULL) {
        drop_cached(all, c);
    } else if (HASH_COUNT(all->cache) == CALLOUT_CACHE_MAX) {
        drop_cached(all, TAILQ_FIRST(&all->order));
    }
    c = mem_new(sizeof *c + len);
    memcpy(c->key, key, len);
    c->len = len;
    c->known = known;
    c->until = mono_after(clock_mono(), known ? all->limits.positive_us : all->limits.negative_us);
    HASH_ADD_KEYPTR(hh, all->cache, c->key, c->len, c);
    TAILQ_INSERT_TAIL(&all->order, c, next);
}

static void forget_all(struct callouts *all)
{
    while (!TAILQ_EMPTY(&all->order)) {
        drop_cached(all, TAILQ_FIRST(&all->order));
    }
}

/* ---- connections ---------------------------------------------------------------------------- */

static void connection_free(struct connection *c)
{
    struct peer *p = c->peer;

    CHECK(c->question == NULL);
    if (c->state == SOCKET) {
        filter_hub_forget(p->all->hub, c->token);
    }
    stream_free(c->stream);
    reply_fini(&c->reply);
    buf_fini(&c->out);
    LIST_REMOVE(c, next);
    p->count--;
    mem_free(c);
}

/* Frees a question and calls its `done`. */
static void answer(struct callout_question *q, enum callout_result result)
{
    callout_done *done = q->done;
    void *arg = q->arg;

    if (q->in != NULL) {
        TAILQ_REMOVE(q->in, q, next);
    }
    mem_free(q);
    if (done != NULL) {
        done(arg, result);
    }
}

/* Frees the connection, pauses the peer, and makes all its questions unsure. */
static void fail(struct connection *c, const char *why)
{
    struct peer *p = c->peer;
    struct callout_question *q = c->question;
    struct questions waiting;

    TAILQ_INIT(&waiting);
    log_warning(
        "callout to %s: %s: it can't be known which recipients there are; clients are asked "
        "to try again",
        p->target.text, why);
    c->question = NULL;
    connection_free(c);
    p->paused_until = mono_after(clock_mono(), CALLOUT_PAUSE_US);
    TAILQ_CONCAT(&waiting, &p->waiting, next);
    if (q != NULL) {
        q->in = NULL;
        answer(q, CALLOUT_UNSURE);
    }
    TAILQ_FOREACH(q, &waiting, next)
    {
        q->in = &waiting;
        p->all->waiting--;
    }
    while ((q = TAILQ_FIRST(&waiting)) != NULL) {
        answer(q, CALLOUT_UNSURE);
    }
}

static void say(struct connection *c, enum connection_state state)
{
    c->state = state;
    reply_reset(&c->reply);
    stream_set_deadline(c->stream, mono_after(clock_mono(), c->peer->all->limits.timeout_us));
    stream_flush(c->stream, &c->out);
}

static void say_mail(struct connection *c)
{
    (void)buf_addf(&c->out, "MAIL FROM:<>%s\r\n", c->utf8 ? " SMTPUTF8" : ""); /* fits */
    c->rcpts = 0;
    say(c, MAIL);
}

/* Sends the next question, or makes the connection idle. */
static void go_on(struct connection *c)
{
    struct callout_question *q = TAILQ_FIRST(&c->peer->waiting);

    c->state = IDLE;
    stream_set_deadline(c->stream, mono_after(clock_mono(), CALLOUT_IDLE_US));
    if (q == NULL) {
        return;
    }
    if (c->rcpts == CALLOUT_RCPTS_MAX) {
        (void)buf_add_string(&c->out, "RSET\r\n"); /* fits */
        say(c, RSET);
        return;
    }
    TAILQ_REMOVE(&c->peer->waiting, q, next);
    c->peer->all->waiting--;
    q->in = NULL;
    c->question = q;
    c->rcpts++;
    (void)buf_addf(&c->out, "RCPT TO:<%s>\r\n", q->address); /* fits */
    say(c, RCPT);
}

static void rcpt_answered(struct connection *c)
{
    struct callout_question *q = c->question;
    unsigned code = c->reply.code;
    enum callout_result result = code / 100 == 2   ? CALLOUT_KNOWN
                                 : code / 100 == 5 ? CALLOUT_UNKNOWN
                                                   : CALLOUT_UNSURE;

    c->question = NULL;
    if (result != CALLOUT_UNSURE) {
        remember(c->peer->all, &c->peer->target, slice_string(q->address), result == CALLOUT_KNOWN);
    } else {
        log_info("callout to %s: <%s>: %.*s", c->peer->target.text, q->address,
                 SLICE_ARGS(reply_text(&c->reply)));
    }
    go_on(c); /* before the answer, which may bring another question */
    answer(q, result);
}

/* Handles a complete reply. Returns false if the connection was freed. */
static bool step(struct connection *c)
{
    const unsigned class = c->reply.code / 100;
    char why[REPLY_LINE_MAX];

    if (class != 2 && c->state != RCPT) {
        (void)snprintf(why, sizeof why, "it replied: %.*s", SLICE_ARGS(reply_text(&c->reply)));
        fail(c, why);
        return false;
    }
    switch (c->state) {
    case GREETING:
        (void)buf_addf(&c->out, "%s %s\r\n", c->peer->target.lmtp ? "LHLO" : "EHLO",
                       c->peer->all->hostname); /* fits */
        say(c, HELO);
        return true;
    case HELO:
    case RSET:
        say_mail(c);
        return true;
    case MAIL:
        go_on(c);
        return true;
    case RCPT:
        rcpt_answered(c);
        return true;
    case SOCKET:
    case CONNECT:
    case IDLE:
        break;
    }
    fail(c, "it speaks without being asked");
    return false;
}

static void take_input(struct connection *c)
{
    for (;;) {
        struct slice in = stream_input(c->stream);
        enum reply_event event;
        size_t used = 0;

        if (in.len == 0) {
            return;
        }
        if (c->state == IDLE) { /* 421: the peer ends the session */
            connection_free(c);
            return;
        }
        event = reply_feed(&c->reply, in, &used);
        if (c->state == HELO && (event == REPLY_LINE || event == REPLY_DONE) &&
            slice_equal_nocase(slice_trim(reply_line(&c->reply)), SLICE("SMTPUTF8"))) {
            c->utf8 = true;
        }
        stream_consume(c->stream, used);
        if (event == REPLY_BAD) {
            fail(c, "it speaks no SMTP");
            return;
        }
        /* Each command is sent after the reply to the previous one, so further input breaks the
         * protocol. */
        if (event == REPLY_DONE && stream_input(c->stream).len > 0) {
            fail(c, "it speaks without being asked");
            return;
        }
        if (event == REPLY_DONE && !step(c)) {
            return;
        }
    }
}

static void on_stream(void *arg, struct stream *stream, enum stream_event event)
{
    struct connection *c = arg;
    char why[300];

    switch (event) {
    case STREAM_CONNECTED:
        c->state = GREETING;
        return;
    case STREAM_READABLE:
        take_input(c);
        return;
    case STREAM_WRITABLE:
        stream_flush(stream, &c->out);
        return;
    case STREAM_END:
    case STREAM_DEADLINE:
    case STREAM_FAILED:
        if (c->state == IDLE) {
            connection_free(c);
            return;
        }
        (void)snprintf(why, sizeof why, "%s",
                       event == STREAM_DEADLINE ? "timeout: callout_timeout"
                       : event == STREAM_END    ? "it has closed the connection"
                                                : stream_error(stream)); /* or is cut */
        fail(c, why);
        return;
    case STREAM_SECURED:
        break;
    }
    UNREACHABLE("no TLS was begun");
}

static void on_socket(void *arg, int fd, uint32_t addresses, struct slice error)
{
    struct connection *c = arg;
    char why[300];

    (void)addresses;
    c->state = CONNECT; /* no question to the parent is open now */
    if (fd < 0) {
        (void)snprintf(why, sizeof why, "%.*s", SLICE_ARGS(error)); /* or is cut */
        fail(c, why);
        return;
    }
    c->stream = stream_adopt(c->peer->all->hub->streams, fd, on_stream, c);
    stream_set_deadline(c->stream, mono_after(clock_mono(), c->peer->all->limits.timeout_us));
}

static void connection_new(struct peer *p)
{
    struct connection *c = mem_new(sizeof *c);

    c->peer = p;
    c->state = SOCKET;
    reply_init(&c->reply);
    buf_init(&c->out, 4096);
    LIST_INSERT_HEAD(&p->connections, c, next);
    p->count++;
    c->token = filter_hub_ask(p->all->hub, p->target.text, 0, on_socket, c);
}

/* ---- asking --------------------------------------------------------------------------------- */

static struct peer *find_peer(struct callouts *all, const struct callout_target *target)
{
    struct peer *p;

    LIST_FOREACH(p, &all->peers, next)
    {
        if (strcmp(p->target.text, target->text) == 0 && p->target.lmtp == target->lmtp) {
            return p;
        }
    }
    p = mem_new(sizeof *p);
    p->all = all;
    p->target = *target;
    LIST_INIT(&p->connections);
    TAILQ_INIT(&p->waiting);
    LIST_INSERT_HEAD(&all->peers, p, next);
    return p;
}

/* Makes a connection take the first waiting question: an idle or a new one, if there is room. */
static void dispatch(struct peer *p)
{
    struct connection *c;

    LIST_FOREACH(c, &p->connections, next)
    {
        if (c->state == IDLE) {
            go_on(c);
            return;
        }
    }
    if (p->count < CALLOUT_CONNECTIONS) {
        connection_new(p);
    }
}

enum callout_result callouts_ask(struct callouts *all, const struct callout_target *target,
                                 struct slice address, callout_done *done, void *arg,
                                 struct callout_question **ret_question)
{
    const struct cached *known = find_cached(all, target, address);
    struct callout_question *q;
    struct peer *p;

    CHECK(address.len <= ADDRESS_MAX);
    if (known != NULL) {
        return known->known ? CALLOUT_KNOWN : CALLOUT_UNKNOWN;
    }
    p = find_peer(all, target);
    if (!mono_reached(p->paused_until, clock_mono())) {
        return CALLOUT_UNSURE;
    }
    if (all->waiting == CALLOUT_WAITING_MAX) {
        log_warning("CALLOUT_WAITING_MAX: %u questions wait for %s", CALLOUT_WAITING_MAX,
                    target->text);
        return CALLOUT_UNSURE;
    }
    q = mem_new(sizeof *q);
    q->peer = p;
    q->in = &p->waiting;
    q->done = done;
    q->arg = arg;
    memcpy(q->address, address.ptr, address.len);
    TAILQ_INSERT_TAIL(&p->waiting, q, next);
    all->waiting++;
    dispatch(p);
    *ret_question = q;
    return CALLOUT_PENDING;
}

void callouts_forget(struct callout_question *q)
{
    if (q == NULL) {
        return;
    }
    if (q->in == NULL) { /* the reply will still be cached */
        q->done = NULL;
        return;
    }
    if (q->in == &q->peer->waiting) {
        q->peer->all->waiting--;
    }
    TAILQ_REMOVE(q->in, q, next);
    mem_free(q);
}

/* ---- all callouts --------------------------------------------------------------------------- */

struct callouts *callouts_new(struct filter_hub *hub)
{
    struct callouts *all = mem_new(sizeof *all);

    all->hub = hub;
    LIST_INIT(&all->peers);
    TAILQ_INIT(&all->order);
    return all;
}

void callouts_configure(struct callouts *all, const struct callout_limits *limits)
{
    mem_free(all->hostname);
    all->limits = *limits;
    all->hostname = mem_string(limits->hostname);
    all->limits.hostname = all->hostname;
    forget_all(all);
}

void callouts_free(struct callouts *all)
{
    struct peer *p;

    while (all != NULL && (p = LIST_FIRST(&all->peers)) != NULL) {
        struct callout_question *q;
        struct connection *c;

        while ((c = LIST_FIRST(&p->connections)) != NULL) {
            mem_free(c->question);
            c->question = NULL;
            connection_free(c);
        }
        while ((q = TAILQ_FIRST(&p->waiting)) != NULL) {
            TAILQ_REMOVE(&p->waiting, q, next);
            mem_free(q);
        }
        LIST_REMOVE(p, next);
        mem_free(p);
    }
    if (all != NULL) {
        forget_all(all);
        mem_free(all->hostname);
        mem_free(all);
    }
}
