#include "dovecot_link.h"

#include <event2/event.h>
#include <stdio.h>
#include <string.h>
#include <sys/queue.h>
#include <unistd.h>

#include "check.h"
#include "clock.h"
#include "hash.h"
#include "log.h"
#include "mem.h"
#include "role.h"
#include "stream.h"
#include "wire.h"

enum link_state {
    LINK_NONE,
    LINK_ASKED,
    LINK_GREETING,
    LINK_READY,
};

/* A login that Dovecot has, or that waits for the connection. */
struct pending {
    UT_hash_handle hh; /* node in dovecot_link.pendings, by id */
    TAILQ_ENTRY(pending) next;
    uint32_t id;
    void *login;
    bool passed_on;              /* whether Dovecot got a message of this login */
    bool waits;                  /* whether it waits for an answer; else Dovecot waits for the
                                  * client */
    struct mono since;           /* time of the last request */
    struct dovecot_request kept; /* first request, while it waits for the connection; owns its
                                  * bytes */
};

TAILQ_HEAD(pending_list, pending);

struct dovecot_link {
    struct role *role;
    dovecot_link_answer *answer;
    dovecot_link_mechanisms *changed;
    void *arg;
    enum link_state state;
    struct streams *streams;
    struct stream *stream; /* from LINK_GREETING on */
    struct dovecot engine; /* from LINK_GREETING on */
    struct mono asked, heard;
    unsigned mechanisms; /* mechanisms in the last greeting */
    uint32_t last_id;
    struct pending *pendings;    /* hash by id */
    struct pending_list waiting; /* logins that wait for Dovecot, in the order of their requests */
    struct event *timer;         /* for the parent's answer */
    bool trouble_told;           /* whether trouble was logged since the connection last worked */
};

static void ask_parent(struct dovecot_link *k);

/* Returns a copy that lasts until the connection exists. */
static struct slice copy(struct slice s)
{
    return s.ptr == NULL ? s : slice_of(mem_copy(s.ptr, s.len), s.len);
}

static void drop(struct slice *s)
{
    char *bytes = (char *)(uintptr_t)s->ptr;

    if (bytes != NULL) {
        explicit_bzero(bytes, s->len);
        mem_free(bytes);
        s->ptr = NULL;
    }
}

static void keep(struct pending *p, const struct dovecot_request *request)
{
    p->kept = (struct dovecot_request){.mechanism = request->mechanism,
                                       .remote = copy(request->remote),
                                       .local = copy(request->local),
                                       .message = copy(request->message)};
}

static void forget_kept(struct pending *p)
{
    drop(&p->kept.remote);
    drop(&p->kept.local);
    drop(&p->kept.message);
}

static void pending_free(struct dovecot_link *k, struct pending *p)
{
    if (p->waits) {
        TAILQ_REMOVE(&k->waiting, p, next);
    }
    HASH_DEL(k->pendings, p);
    forget_kept(p);
    mem_free(p);
}

static struct pending *find(struct dovecot_link *k, uint32_t id)
{
    struct pending *p;

    HASH_FIND(hh, k->pendings, &id, sizeof id, p);
    return p;
}

/* Passes an event to the owner. The login is then forgotten here, unless the event is a
 * challenge. */
static void tell(struct dovecot_link *k, struct pending *p, const struct dovecot_event *event)
{
    void *login = p->login;

    if (p->waits) {
        TAILQ_REMOVE(&k->waiting, p, next);
        p->waits = false;
    }
    if (event->type != DOVECOT_CHALLENGE) {
        pending_free(k, p);
    }
    k->answer(login, event);
}

/* ---- deadlines ------------------------------------------------------------------------------ */

/* Returns the time when the oldest request, or the greeting, is overdue. */
static struct mono deadline(const struct dovecot_link *k)
{
    const struct pending *first = TAILQ_FIRST(&k->waiting);

    if (k->state != LINK_READY) {
        return mono_after(k->asked, DOVECOT_ANSWER_US);
    }
    return first == NULL ? MONO_NEVER : mono_after(first->since, DOVECOT_ANSWER_US);
}

static void set_deadline(struct dovecot_link *k)
{
    if (k->stream != NULL) {
        stream_set_deadline(k->stream, deadline(k));
    }
}

/* ---- the connection ------------------------------------------------------------------------- */

/* Ends the connection, or the wait for one, and all logins that wait. */
static void lose(struct dovecot_link *k, const char *why)
{
    struct dovecot_event event = {.type = DOVECOT_UNAVAILABLE, .why = "no connection to Dovecot"};
    struct pending *p, *next;

    if (why != NULL && !k->trouble_told) {
        log_warning("auth_dovecot %s: %s", k->role->conf->auth_dovecot, why);
        k->trouble_told = true;
    }
    if (k->stream != NULL) {
        stream_free(k->stream);
        k->stream = NULL;
        dovecot_fini(&k->engine);
    }
    (void)event_del(k->timer); /* armed in LINK_ASKED only */
    k->state = LINK_NONE;
    HASH_ITER(hh, k->pendings, p, next)
    {
        event.id = p->id;
        if (p->waits) {
            tell(k, p, &event);
        } else {
            pending_free(k, p); /* its next dovecot_link_ask returns 0 */
        }
    }
}

void dovecot_link_lost(struct dovecot_link *k)
{
    lose(k, NULL);
    k->trouble_told = false;
    ask_parent(k);
}

static void flush(struct dovecot_link *k)
{
    stream_flush(k->stream, dovecot_output(&k->engine));
}

static void pass_on(struct dovecot_link *k, struct pending *p,
                    const struct dovecot_request *request)
{
    if (p->passed_on) {
        dovecot_answer(&k->engine, p->id, request->message);
    } else {
        dovecot_begin(&k->engine, p->id, request);
    }
    p->passed_on = true;
}

static void greeted(struct dovecot_link *k)
{
    unsigned mechanisms = dovecot_mechanisms(&k->engine);
    struct pending *p;

    k->state = LINK_READY;
    if (k->trouble_told) {
        k->trouble_told = false;
        log_info("auth_dovecot %s: connected", k->role->conf->auth_dovecot);
    }
    if (mechanisms == 0) {
        log_warning("auth_dovecot %s: Dovecot has none of PLAIN, LOGIN and SCRAM-SHA-256",
                    k->role->conf->auth_dovecot);
    } else if (mechanisms != k->mechanisms) {
        k->mechanisms = mechanisms;
        k->changed(k->arg, mechanisms);
    }
    TAILQ_FOREACH(p, &k->waiting, next)
    {
        p->since = clock_mono();
        pass_on(k, p, &p->kept);
        forget_kept(p);
    }
    flush(k);
}

/* Processes the events of the engine. */
static void work(struct dovecot_link *k)
{
    struct dovecot_event event;
    struct pending *p;

    while (k->stream != NULL) {
        dovecot_next(&k->engine, &event);
        switch (event.type) {
        case DOVECOT_NEED_INPUT:
            set_deadline(k);
            return;
        case DOVECOT_READY:
            greeted(k);
            break;
        case DOVECOT_FAILED:
            lose(k, event.why);
            return;
        case DOVECOT_CHALLENGE:
        case DOVECOT_ACCEPTED:
        case DOVECOT_REFUSED:
        case DOVECOT_UNAVAILABLE:
            p = find(k, event.id);
            if (p == NULL) {
                break; /* its client has ended it */
            }
            if (!p->waits && (event.type == DOVECOT_ACCEPTED || event.type == DOVECOT_CHALLENGE)) {
                lose(k, "it answers what was not asked");
                return;
            }
            if (!p->waits) {
                pending_free(k, p); /* Dovecot's timeout; the next dovecot_link_ask returns 0 */
                break;
            }
            tell(k, p, &event);
            break;
        }
    }
}

static void overdue(struct dovecot_link *k)
{
    const struct dovecot_event event = {.type = DOVECOT_UNAVAILABLE, .why = "no answer of Dovecot"};
    struct pending *p = TAILQ_FIRST(&k->waiting);

    if (k->state != LINK_READY || p == NULL || k->heard.us <= p->since.us) {
        lose(k, "it does not answer (timeout)");
        return;
    }
    while ((p = TAILQ_FIRST(&k->waiting)) != NULL && mono_reached(deadline(k), clock_mono())) {
        dovecot_cancel(&k->engine, p->id);
        tell(k, p, &event);
    }
    flush(k);
    work(k); /* a request may have made the engine fail */
}

static void on_stream(void *arg, struct stream *stream, enum stream_event event)
{
    struct dovecot_link *k = arg;
    struct slice input = stream_input(stream);

    switch (event) {
    case STREAM_READABLE:
        k->heard = clock_mono();
        dovecot_input(&k->engine, input);
        stream_consume(stream, input.len);
        work(k);
        return;
    case STREAM_WRITABLE:
        flush(k);
        return;
    case STREAM_DEADLINE:
        overdue(k);
        return;
    case STREAM_END:
        lose(k, k->state == LINK_GREETING ? "it has closed the connection" : NULL);
        return;
    case STREAM_FAILED:
        lose(k, stream_error(stream));
        return;
    case STREAM_CONNECTED:
    case STREAM_SECURED:
        UNREACHABLE("the parent has connected, and there is no TLS");
    }
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    lose(arg, "the parent does not connect");
}

static void ask_parent(struct dovecot_link *k)
{
    static const struct timeval patience = {.tv_sec = DOVECOT_ANSWER_US / US_PER_S};

    CHECK(k->state == LINK_NONE);
    k->state = LINK_ASKED;
    k->asked = clock_mono();
    wire_put_empty(k->role->parent, WIRE_AUTH_CONNECT);
    CHECK(event_add(k->timer, &patience) == 0);
}

void dovecot_link_connected(struct dovecot_link *k, int fd, struct slice why)
{
    char text[256];

    if (k->state != LINK_ASKED) {
        if (fd >= 0) {
            (void)close(fd); /* too late: nothing was sent on it */
        }
        return;
    }
    if (fd < 0) {
        (void)snprintf(text, sizeof text, "cannot connect: %.*s",
                       SLICE_ARGS(why)); /* cut at most */
        lose(k, text);
        return;
    }
    (void)event_del(k->timer); /* armed with the request */
    k->state = LINK_GREETING;
    k->asked = clock_mono();
    dovecot_init(&k->engine, (uint32_t)getpid());
    k->stream = stream_new(k->streams, fd, on_stream, k);
    flush(k);
    set_deadline(k);
}

void dovecot_link_clock_moved(struct dovecot_link *k)
{
    streams_clock_moved(k->streams);
}

/* ---- logins --------------------------------------------------------------------------------- */

static struct pending *pending_new(struct dovecot_link *k, void *login)
{
    struct pending *p = mem_new(sizeof *p);

    do {
        k->last_id++;
    } while (k->last_id == 0 || find(k, k->last_id) != NULL);
    p->id = k->last_id;
    p->login = login;
    HASH_ADD(hh, k->pendings, id, sizeof p->id, p);
    return p;
}

uint32_t dovecot_link_ask(struct dovecot_link *k, void *login, uint32_t id,
                          const struct dovecot_request *request)
{
    struct pending *p = id == 0 ? pending_new(k, login) : find(k, id);

    if (p == NULL) {
        return 0;
    }
    p->waits = true;
    p->since = clock_mono();
    TAILQ_INSERT_TAIL(&k->waiting, p, next);
    if (k->state == LINK_READY) {
        pass_on(k, p, request);
        flush(k);
        set_deadline(k);
        return p->id;
    }
    keep(p, request);
    if (k->state == LINK_NONE) {
        ask_parent(k);
    }
    return p->id;
}

void dovecot_link_forget(struct dovecot_link *k, uint32_t id)
{
    struct pending *p = find(k, id);

    if (p == NULL) {
        return;
    }
    if (p->passed_on && k->state == LINK_READY) {
        dovecot_cancel(&k->engine, id);
        flush(k);
    }
    pending_free(k, p);
    set_deadline(k);
}

/* ---- the whole link ------------------------------------------------------------------------- */

struct dovecot_link *dovecot_link_new(struct role *role, dovecot_link_answer *answer,
                                      dovecot_link_mechanisms *changed, void *arg)
{
    struct dovecot_link *k = mem_new(sizeof *k);

    k->role = role;
    k->answer = answer;
    k->changed = changed;
    k->arg = arg;
    k->streams = streams_new(role->base);
    TAILQ_INIT(&k->waiting);
    k->timer = evtimer_new(role->base, on_timer, k);
    CHECK(k->timer != NULL);
    ask_parent(k);
    return k;
}

void dovecot_link_free(struct dovecot_link *k)
{
    if (k == NULL) {
        return;
    }
    lose(k, NULL);
    event_free(k->timer);
    streams_free(k->streams);
    mem_free(k);
}
