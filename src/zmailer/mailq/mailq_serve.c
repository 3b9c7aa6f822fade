#include "mailq_serve.h"

#include <errno.h>
#include <event2/event.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <unistd.h>

#include "admission.h"
#include "check.h"
#include "clock.h"
#include "entropy.h"
#include "heap.h"
#include "log.h"
#include "log_quota.h"
#include "mailq_answer.h"
#include "mailq_server.h"
#include "match.h"
#include "mem.h"
#include "service.h"
#include "stream.h"

/* Log lines per minute about clients that were dropped or refused. */
#define LIMIT_LINES 3

/* One address can't take all places, and clients of this machine have some reserved. When there are
 * too many clients, the slowest is dropped; the pace of a client is the rate at which it reads. */
static const struct admission_limits limits = {
    .places = MAILQ_SESSIONS_MAX,
    .reserve = MAILQ_SESSIONS_MAX / 4,
    .address_max = UINT64_MAX,
    .share_percent = 100,
    .patience_us = 2 * US_PER_S,
    .address_bits4 = 32,
    .address_bits6 = 64,
    .network_bits4 = 24,
    .network_bits6 = 48,
};

struct mailq_listener {
    TAILQ_ENTRY(mailq_listener) next;
    struct mailq_service *service;
    struct event *event;
    char *url;
    int fd;
};

/* A client. */
struct mailq_session {
    TAILQ_ENTRY(mailq_session) next;
    struct mailq_service *service;
    struct place place;
    uint64_t held; /* memory of the client as admission counts it; always 0 */
    struct stream *stream;
    struct mailq_peer peer;
    struct mailq_auth *auth;     /* owned; NULL: version 1 */
    struct mailq_server *server; /* NULL while the session waits for its first authfile, as is
                                  * `answer` */
    uint64_t auth_wanted;        /* number of the authfile that it waits for; 0: none */
    struct buf in;
    struct mailq_answer *answer;
};

struct mailq_service {
    struct mailq_facts facts;
    struct streams *streams;
    bool is_v2;
    uint64_t authfiles_asked, authfiles_read; /* number of requests, and of replies */
    char *problems;                           /* owned: problems of the authfile that were logged
                                               * last */
    struct admission admission;
    struct log_quota quotas[2]; /* log lines about refused and dropped clients */
    TAILQ_HEAD(, mailq_listener) listeners;
    TAILQ_HEAD(, mailq_session) sessions;
    unsigned challenge_count;
};

/* ---- sessions ------------------------------------------------------------------------------- */

static void session_free(struct mailq_session *s)
{
    struct mailq_service *service = s->service;

    if (s->answer != NULL) {
        mailq_answer_free(s->answer);
    }
    TAILQ_REMOVE(&service->sessions, s, next);
    admission_leave(&service->admission, &s->place, false, clock_mono());
    service->facts.counts.parallel--;
    stream_free(s->stream);
    mailq_server_free(s->server);
    mailq_auth_free(s->auth);
    buf_fini(&s->in);
    mem_free(s);
}

static void take_input(struct mailq_session *s)
{
    struct slice input = stream_input(s->stream);
    size_t room = 2 * MAILQ_LINE_MAX - buf_len(&s->in);

    if (input.len > room) {
        input.len = room;
    }
    if (buf_add(&s->in, input)) {
        stream_consume(s->stream, input.len);
    }
}

/* Sends as much output as the client takes. A client that takes all is not slow. */
static void send_output(struct mailq_session *s)
{
    struct buf *out = mailq_server_output(s->server);
    size_t before = buf_len(out);

    stream_flush(s->stream, out);
    client_pace_add(&s->place.pace, clock_mono(), before - buf_len(out));
}

/* Sends the remaining output, then closes the connection and frees the session. */
static void session_close(struct mailq_session *s)
{
    struct stream *stream = s->stream;

    send_output(s);
    if (buf_len(mailq_server_output(s->server)) == 0) {
        s->stream = NULL;
        session_free(s);
        stream_finish(stream);
    }
}

/* Requests the authfile. A request that is outstanding is recent enough for a greeting, but not for
 * a login (`anew`). */
static void want_auth(struct mailq_session *s, bool anew)
{
    struct mailq_service *service = s->service;

    if (anew || service->authfiles_read == service->authfiles_asked) {
        wire_put_service(
            service->facts.role->parent,
            &(struct wire_service){.name = SLICE(MAILQ_SERVICE), .what = MAILQ_NEED_AUTHFILE}, -1);
        service->authfiles_asked++;
    }
    s->auth_wanted = service->authfiles_asked;
    client_pace_rest(&s->place.pace, clock_mono());
}

/* Advances the session as far as possible. May free the session. */
static void session_go(struct mailq_session *s)
{
    struct mailq_event event;

    while (s->auth_wanted == 0) {
        mailq_answer_go_on(s->answer);
        send_output(s);
        if (buf_len(mailq_server_output(s->server)) > 0) {
            client_pace_wait(&s->place.pace, clock_mono());
            return; /* continued by STREAM_WRITABLE */
        }
        if (mailq_answer_waits(s->answer)) {
            client_pace_rest(&s->place.pace, clock_mono());
            return; /* continued by the answer */
        }
        client_pace_wait(&s->place.pace, clock_mono());
        if (mailq_answer_is_busy(s->answer)) {
            continue;
        }
        take_input(s);
        mailq_server_next(s->server, &s->in, &event);
        if (event.type == MAILQ_ASK) {
            mailq_answer_begin(s->answer, &event);
        } else if (event.type == MAILQ_NEED_AUTH) {
            want_auth(s, true);
        } else if (event.type == MAILQ_CLOSE) {
            session_close(s);
            return;
        } else if (event.type == MAILQ_NEED_INPUT && stream_input(s->stream).len == 0 &&
                   buf_len(mailq_server_output(s->server)) == 0) {
            return;
        }
    }
}

static void on_progress(void *arg)
{
    session_go(arg);
}

/* Extends the deadline. A dump of version 1 may be long and its reader slow, so each piece has this
 * time; a session of version 2 has it once. */
static void grant_time(struct mailq_session *s)
{
    stream_set_deadline(s->stream, mono_after(clock_mono(), MAILQ_SESSION_S * US_PER_S));
}

static void on_stream(void *arg, struct stream *stream, enum stream_event event)
{
    struct mailq_session *s = arg;

    (void)stream;
    switch (event) {
    case STREAM_END:
        s->service->facts.counts.read_ends++;
        if (s->server == NULL) {
            session_free(s); /* left before the greeting */
            return;
        }
        take_input(s);
        mailq_server_input_ended(s->server);
        session_go(s);
        break;
    case STREAM_WRITABLE:
        if (mailq_server_is_v1(s->server)) {
            grant_time(s);
        }
        session_go(s);
        break;
    case STREAM_READABLE:
        if (s->server != NULL) {
            session_go(s);
        }
        break;
    case STREAM_DEADLINE:
        s->service->facts.counts.timeouts++;
        session_free(s);
        break;
    case STREAM_FAILED:
    case STREAM_CONNECTED:
    case STREAM_SECURED: /* never happen here */
        session_free(s);
        break;
    }
}

/* ---- the service ---------------------------------------------------------------------------- */

static struct mailq_peer peer_of(const struct sockaddr_storage *addr)
{
    const struct sockaddr_in *in = (const struct sockaddr_in *)addr;
    const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)addr;
    struct mailq_peer peer = mailq_peer_local;

    if (addr->ss_family == AF_INET) {
        memcpy(peer.address, &in->sin_addr, 4);
    } else if (addr->ss_family == AF_INET6) {
        peer.len = 16;
        memcpy(peer.address, &in6->sin6_addr, 16);
    }
    return peer;
}

static void make_nonce(char nonce[25])
{
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    unsigned char bytes[24];

    entropy_fill(bytes, sizeof bytes);
    for (size_t i = 0; i < sizeof bytes; i++) {
        nonce[i] = letters[bytes[i] & 63];
    }
    nonce[24] = '\0';
}

/* Greets an admitted client. Takes `server`. May free the session. */
static void session_begin(struct mailq_session *s, struct mailq_server *server)
{
    s->server = server;
    s->answer = mailq_answer_new(&s->service->facts, server, on_progress, s);
    session_go(s);
}

static void session_begin_v2(struct mailq_session *s, struct mailq_auth *auth)
{
    int64_t now = clock_wall().us;
    char moment[80], nonce[25];

    s->auth = auth;
    make_nonce(nonce);
    (void)snprintf(moment, sizeof moment, "%" PRId64 ".%" PRId64 ".%u", now / US_PER_S,
                   now % US_PER_S, ++s->service->challenge_count); /* fits */
    session_begin(s, mailq_server_new(auth, &s->peer, moment, nonce, &s->service->facts.counts));
}

static struct mailq_session *session_new(struct mailq_service *service,
                                         const struct admission_client *client, int fd)
{
    struct mailq_session *s = mem_new(sizeof *s);

    s->service = service;
    s->stream = stream_new(service->streams, fd, on_stream, s);
    grant_time(s);
    buf_init(&s->in, 4 * MAILQ_LINE_MAX);
    TAILQ_INSERT_TAIL(&service->sessions, s, next);
    admission_enter(&service->admission, &limits, &s->place, client, &s->held, clock_mono());
    service->facts.counts.parallel++;
    service->facts.counts.connects++;
    return s;
}

static void service_dump(struct mailq_service *service, int fd)
{
    static const struct admission_client own = {.trusted = true, .exempt = true};

    CHECK(evutil_make_socket_nonblocking(fd) == 0);
    session_begin(session_new(service, &own, fd), mailq_server_new_v1());
}

static void log_limit(struct mailq_service *service, bool dropped)
{
    struct log_quota *quota = &service->quotas[dropped];

    if (log_quota_take(quota, clock_mono())) {
        log_warning("mailq: more than %d sessions at once: %s", MAILQ_SESSIONS_MAX,
                    dropped ? "the slowest was ended" : "a new one was refused");
    }
}

/* May another client have a session? Drops a slower client if necessary. */
static bool admit(struct mailq_service *service, const struct admission_client *client)
{
    struct admission_answer answer =
        admission_ask(&service->admission, &limits, client, clock_mono());

    if (!answer.admitted || answer.victim != NULL) {
        log_limit(service, answer.admitted);
    }
    if (answer.victim != NULL) {
        session_free(CONTAINER_OF(answer.victim, struct mailq_session, place));
    }
    return answer.admitted;
}

static void client_begin(struct mailq_service *service, int fd, const struct sockaddr_storage *addr)
{
    static const struct cidr loopback4 = {{[10] = 0xff, 0xff, 127}, 104};
    static const struct cidr loopback6 = {{[15] = 1}, 128};
    struct admission_client client = {.trusted = true};
    struct mailq_session *s;
    unsigned char ip[16];

    if (ip_of_sockaddr((const struct sockaddr *)addr, ip)) {
        client.ip = ip;
        client.trusted = cidr_match(&loopback4, ip) || cidr_match(&loopback6, ip);
        client.exempt = client.trusted;
    }
    if (!admit(service, &client)) {
        (void)close(fd); /* nothing was sent */
        return;
    }
    s = session_new(service, &client, fd);
    s->peer = peer_of(addr);
    if (!service->is_v2) {
        session_begin(s, mailq_server_new_v1());
    } else {
        want_auth(s, false);
    }
}

static void on_accept(evutil_socket_t fd, short what, void *arg)
{
    struct mailq_listener *l = arg;
    struct sockaddr_storage addr = {0};
    socklen_t len = sizeof addr;
    int client = accept4(fd, (struct sockaddr *)&addr, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);

    (void)what;
    if (client >= 0 && control_refuses(l->service->facts.control, client)) {
        (void)close(client); /* nothing was sent */
    } else if (client >= 0) {
        client_begin(l->service, client, &addr);
    } /* otherwise the client has left; other clients are accepted in the next turns */
}

static void listener_free(struct mailq_listener *l)
{
    TAILQ_REMOVE(&l->service->listeners, l, next);
    event_free(l->event);
    (void)close(l->fd); /* a listening socket */
    mem_free(l->url);
    mem_free(l);
}

static void service_listen(void *state, struct slice url, int fd)
{
    struct mailq_service *service = state;
    struct mailq_listener *l = mem_new(sizeof *l);

    l->service = service;
    l->fd = fd;
    l->url = mem_copy(url.ptr, url.len);
    l->event = event_new(service->facts.role->base, fd, EV_READ | EV_PERSIST, on_accept, l);
    CHECK(l->event != NULL && evutil_make_socket_nonblocking(fd) == 0 &&
          event_add(l->event, NULL) == 0);
    TAILQ_INSERT_TAIL(&service->listeners, l, next);
}

/* Parses the authfile. Logs each line that can't be parsed, unless the same problems were logged
 * before. */
static struct mailq_auth *parse_auth(struct mailq_service *service, struct slice text)
{
    struct mailq_auth *auth;
    struct buf problems;
    struct slice rest;

    buf_init(&problems, 65536);
    auth = mailq_auth_parse(service->facts.role->conf->authfile, text, &problems);
    rest = buf_slice(&problems);
    if (service->problems == NULL || !slice_equal(slice_string(service->problems), rest)) {
        mem_free(service->problems);
        service->problems = mem_copy(rest.ptr, rest.len);
        while (rest.len > 0) {
            struct slice line = slice_cut(&rest, '\n');

            log_warning("%.*s; the line is ignored", SLICE_ARGS(line));
        }
    }
    buf_fini(&problems);
    return auth;
}

/* Greets the client, or continues its login. Takes `auth`. May free the session. */
static void take_auth(struct mailq_session *s, struct mailq_auth *auth)
{
    struct mailq_auth *before = s->auth;

    if (s->server == NULL) {
        session_begin_v2(s, auth);
        return;
    }
    s->auth = auth;
    mailq_server_auth(s->server, auth);
    mailq_auth_free(before);
    session_go(s);
}

/* Hands the current authfile to the sessions that wait for it. */
static void service_authfile(struct mailq_service *service, struct slice text)
{
    struct mailq_session *s, *next;

    service->authfiles_read++;
    for (s = TAILQ_FIRST(&service->sessions); s != NULL; s = next) {
        next = TAILQ_NEXT(s, next);
        if (s->auth_wanted != 0 && s->auth_wanted <= service->authfiles_read) {
            s->auth_wanted = 0;
            take_auth(s, parse_auth(service, text));
        }
    }
}

/* Decides which version is served, when a configuration is loaded. */
static void load_auth(struct mailq_service *service)
{
    const char *path = service->facts.role->conf->authfile;
    struct slice text =
        path[0] == '\0' ? slice_of(NULL, 0) : role_file(service->facts.role, slice_string(path));

    service->is_v2 = text.ptr != NULL || service->facts.role->conf->mailq_protocol == 2;
    mailq_auth_free(parse_auth(service, text)); /* logs its problems */
}

/* Ends all sessions: their users may have lost rights. */
static void end_sessions(struct mailq_service *service)
{
    struct mailq_session *s;

    while ((s = TAILQ_FIRST(&service->sessions)) != NULL) {
        session_free(s);
    }
}

static void *service_begin(struct role *role, struct control *control, int64_t daemon_pid)
{
    struct mailq_service *service = mem_new(sizeof *service);

    service->facts = (struct mailq_facts){
        .role = role,
        .control = control,
        .started = clock_wall(),
        .daemon_pid = daemon_pid,
    };
    service->streams = streams_new(role->base);
    TAILQ_INIT(&service->listeners);
    TAILQ_INIT(&service->sessions);
    admission_init(&service->admission);
    service->quotas[0].lines_max = service->quotas[1].lines_max = LIMIT_LINES;
    load_auth(service);
    return service;
}

static void service_reload(void *state)
{
    struct mailq_service *service = state;
    struct mailq_listener *l, *next;
    const char *wanted = service->facts.role->conf->mailqsock;

    end_sessions(service);
    load_auth(service);
    for (l = TAILQ_FIRST(&service->listeners); l != NULL; l = next) {
        next = TAILQ_NEXT(l, next);
        if (strcmp(l->url + strlen(MAILQ_SERVICE ":"), wanted) != 0) {
            listener_free(l);
        }
    }
}

static void service_end(void *state)
{
    struct mailq_service *service = state;
    struct mailq_listener *l;

    end_sessions(service);
    while ((l = TAILQ_FIRST(&service->listeners)) != NULL) {
        listener_free(l);
    }
    admission_fini(&service->admission);
    streams_free(service->streams);
    mem_free(service->problems);
    mem_free(service);
}

static bool service_heard(void *state, const struct wire_service *m, int fd)
{
    if (m->what == MAILQ_DUMP && fd >= 0) {
        service_dump(state, fd);
        return true;
    }
    if (m->what == MAILQ_AUTHFILE && fd < 0) {
        service_authfile(state, m->text);
        return true;
    }
    return false;
}

void mailq_service_register(void)
{
    static const struct service service = {
        .name = MAILQ_SERVICE,
        .begin = service_begin,
        .listener = service_listen,
        .heard = service_heard,
        .reload = service_reload,
        .end = service_end,
    };

    service_register(&service);
}
