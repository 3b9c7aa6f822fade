#include "api_server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <event2/event.h>
#include <event2/util.h>
#include <inttypes.h>
#include <jansson.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <unistd.h>

#include "buf.h"
#include "check.h"
#include "clock.h"
#include "hash.h"
#include "http.h"
#include "log.h"
#include "mem.h"
#include "printable.h"
#include "role.h"
#include "stream.h"
#include "tls.h"
#include "token_list.h"

/* Connections that are accepted in a row before other work. */
#define ACCEPT_TURN 16
/* Pause before accepting again when descriptors have run out. */
#define ACCEPT_AGAIN_S 1
/* Bytes next to a body: the head of an answer, the frame of a chunk. */
#define OUT_EXTRA  65536u
#define OUT_MAX    ((1u << 30) + OUT_EXTRA)
#define FIELDS_MAX 512u
/* Bytes of a body and of an answer in the audit log. */
#define AUDIT_BODY_MAX   600u
#define AUDIT_ANSWER_MAX 300u
/* Refused tokens that are logged per minute; the rest is counted. */
#define REFUSALS_LOGGED 20u
/* Largest answer that is sent even if clients do not read. */
#define SMALL_ANSWER 65536u

enum api_phase { API_HANDSHAKE, API_HEAD, API_BODY, API_WORK, API_ANSWER, API_CLOSING };

struct api_listener {
    LIST_ENTRY(api_listener) next;
    struct api_server *server;
    char *url; /* owned */
    int fd;
    bool is_unix, tls;
    struct event *event, *again;
};

/* The connections of one token. */
struct token_use {
    UT_hash_handle hh;
    char name[TOKEN_NAME_MAX + 1];
    size_t count; /* number of connections, at least 1 */
};

struct api_call {
    TAILQ_ENTRY(api_call) next;
    struct api_server *server;
    struct stream *stream;
    enum api_phase phase;
    bool is_local;
    bool driving; /* drive() is active and will go on */
    bool ended;   /* the client sends nothing more */
    bool broken;  /* the client gets nothing more */
    bool audited; /* logged although it only reads */
    bool started; /* the head of an answer in pieces was sent */
    bool chunked; /* pieces are sent as chunks */
    bool head_only;
    bool keep; /* the connection stays open after the answer */
    struct http http;
    struct buf body, out;
    size_t counted; /* bytes of `out` that the server's sum includes */
    char fields[FIELDS_MAX];
    unsigned rights;
    struct token_use *use;    /* connections of its token; NULL: no token */
    uint8_t hash[TOKEN_HASH]; /* hash of its token, if it has one */
    char caller[TOKEN_NAME_MAX + 1];
    char from[INET6_ADDRSTRLEN + 32];
    api_ready *ready;
    void *ready_arg;
    struct event *again; /* calls `ready` */
    api_gone *gone;
    void *gone_arg;
};

struct api_server {
    struct role *role;
    api_called *called;
    void *arg;
    struct streams *streams;
    struct tls_context *tls; /* NULL: no certificate */
    struct token_list *tokens;
    LIST_HEAD(, api_listener) listeners;
    TAILQ_HEAD(, api_call) calls; /* the oldest first */
    size_t local_count, tcp_count, strangers;
    struct token_use *uses; /* tokens, hashed by name */
    uint64_t unread;
    struct mono refusals_since;
    unsigned refusals;
};

static void drive(struct api_call *call);

/* ---- the life of a connection --------------------------------------------------------------- */

/* Updates the sum of unread bytes. */
static void count_out(struct api_call *call)
{
    size_t len = buf_len(&call->out);

    call->server->unread += len;
    call->server->unread -= call->counted;
    call->counted = len;
}

static bool is_stranger(const struct api_call *call)
{
    return !call->is_local && call->use == NULL;
}

/* Removes the call from its token's connections. */
static void leave_token(struct api_call *call)
{
    struct token_use *use = call->use;

    call->use = NULL;
    if (use != NULL && --use->count == 0) {
        HASH_DEL(call->server->uses, use);
        mem_free(use);
    }
}

static void join_token(struct api_call *call, const char *name)
{
    struct api_server *server = call->server;
    struct token_use *use;

    HASH_FIND_STR(server->uses, name, use);
    if (use == NULL) {
        use = mem_new(sizeof *use);
        (void)snprintf(use->name, sizeof use->name, "%s", name); /* fits */
        HASH_ADD_STR(server->uses, name, use);
    }
    use->count++;
    call->use = use;
}

/* Frees the call after its stream was freed or handed on. */
static void call_free(struct api_call *call)
{
    struct api_server *server = call->server;

    buf_clear(&call->out);
    count_out(call);
    if (call->is_local) {
        server->local_count--;
    } else {
        server->tcp_count--;
        server->strangers -= is_stranger(call);
    }
    leave_token(call);
    if (call->again != NULL) {
        event_free(call->again);
    }
    http_fini(&call->http);
    buf_fini(&call->body);
    buf_fini(&call->out);
    TAILQ_REMOVE(&server->calls, call, next);
    mem_free(call);
}

static void call_close(struct api_call *call)
{
    if (call->broken) {
        stream_free(call->stream);
    } else {
        stream_finish(call->stream); /* the client may still be sending, and must read the answer */
    }
    call_free(call);
}

/* Ends a call whose client has left or is disconnected. */
static void call_lost(struct api_call *call)
{
    api_gone *gone = call->phase == API_WORK ? call->gone : NULL;
    void *arg = call->gone_arg;

    call->broken = true;
    call_close(call);
    if (gone != NULL) {
        gone(arg);
    }
}

static void set_deadline(struct api_call *call)
{
    stream_set_deadline(call->stream, mono_after(clock_mono(), API_IDLE_S * US_PER_S));
}

static void await_head(struct api_call *call)
{
    call->phase = API_HEAD;
    set_deadline(call);
}

/* ---- answers -------------------------------------------------------------------------------- */

static void take_caller(struct api_call *call, const char *name, unsigned rights)
{
    call->server->strangers -= is_stranger(call);
    (void)snprintf(call->caller, sizeof call->caller, "%s", name); /* fits */
    call->rights = rights;
    leave_token(call);
    if (name[0] != '\0') {
        join_token(call, name);
    }
    call->server->strangers += is_stranger(call);
}

static void audit(const struct api_call *call, unsigned status, struct slice answer)
{
    struct buf line;

    bool reads = slice_equal(call->http.method, SLICE("GET")) ||
                 slice_equal(call->http.method, SLICE("HEAD"));

    if (call->phase != API_WORK || (reads && !call->audited)) {
        return;
    }
    buf_init(&line, LOG_LINE_MAX);
    (void)printable_add(&line, buf_slice(&call->body), AUDIT_BODY_MAX); /* fits */
    log_info("audit: %s from %s: %.*s %.*s %s = %u %.*s",
             call->caller[0] != '\0' ? call->caller : "no token", call->from,
             SLICE_ARGS(call->http.method), SLICE_ARGS(call->http.target), buf_cstr(&line), status,
             (int)(answer.len < AUDIT_ANSWER_MAX ? answer.len : AUDIT_ANSWER_MAX), answer.ptr);
    buf_fini(&line);
}

void api_audit(struct api_call *call)
{
    call->audited = true;
}

/* Writes the head of an answer; `length` NULL: an answer in pieces. */
static void put_head(struct api_call *call, unsigned status, const char *type, const size_t *length)
{
    struct buf *out = &call->out;

    call->keep = call->http.state == HTTP_COMPLETE && call->http.keep_alive && !call->ended &&
                 (length != NULL || call->chunked);
    (void)buf_addf(out, "HTTP/1.1 %u %s\r\nContent-Type: %s\r\n", status, http_reason(status),
                   type); /* sticky, as all appends here */
    if (length != NULL) {
        (void)buf_addf(out, "Content-Length: %zu\r\n", *length);
    } else if (call->chunked) {
        (void)buf_add_string(out, "Transfer-Encoding: chunked\r\n");
    }
    (void)buf_addf(out, "%sCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n%s\r\n",
                   call->keep ? "" : "Connection: close\r\n", call->fields);
}

/* Sends the rest of a complete answer. */
static void go_out(struct api_call *call)
{
    call->gone = NULL;
    call->ready = NULL;
    call->phase = call->keep ? API_ANSWER : API_CLOSING;
    CHECK(!call->out.failed);
    count_out(call);
    set_deadline(call);
    if (!call->driving) {
        drive(call);
    }
}

void api_answer(struct api_call *call, unsigned status, const char *type, struct slice body)
{
    CHECK(!call->started);
    if (!api_has_room(call, body.len)) {
        api_answer_error(call, 503, "clients do not read what they have asked for; ask again");
        return;
    }
    audit(call, status, body);
    put_head(call, status, type, &body.len);
    if (!call->head_only) {
        (void)buf_add(&call->out, body); /* sticky */
    }
    go_out(call);
}

void api_answer_error(struct api_call *call, unsigned status, const char *text)
{
    json_t *object = json_pack("{s:s}", "error", text);
    char *json = object == NULL ? NULL : json_dumps(object, JSON_COMPACT);

    json_decref(object);
    api_answer(call, status, "application/json",
               json == NULL ? SLICE("{\"error\":\"not in UTF-8\"}") : slice_string(json));
    free(json);
}

void api_answer_field(struct api_call *call, const char *field)
{
    size_t at = strlen(call->fields), len = strlen(field);

    CHECK(at + len < sizeof call->fields);
    memcpy(call->fields + at, field, len + 1);
}

/* Is it HTTP/1.0, which has no chunks? The end of the connection then ends the answer. */
static bool is_old(const struct api_call *call)
{
    struct slice head = buf_slice(&call->http.head);

    return !slice_ends_nocase(slice_of(head.ptr, slice_find(head, '\n')), SLICE("HTTP/1.1\r"));
}

void api_answer_begin(struct api_call *call, unsigned status, const char *type)
{
    CHECK(call->phase == API_WORK && !call->started);
    audit(call, status, SLICE(""));
    call->started = true;
    call->chunked = !is_old(call);
    put_head(call, status, type, NULL);
    count_out(call);
    set_deadline(call);
    if (!call->driving) {
        drive(call);
    }
}

void api_answer_add(struct api_call *call, struct slice piece)
{
    bool was_empty = buf_len(&call->out) == 0;

    CHECK(call->started);
    if (call->head_only || piece.len == 0) {
        return;
    }
    if (call->chunked) {
        (void)buf_addf(&call->out, "%zx\r\n", piece.len); /* sticky, as all appends here */
    }
    (void)buf_add(&call->out, piece);
    if (call->chunked) {
        (void)buf_add_string(&call->out, "\r\n");
    }
    CHECK(!call->out.failed); /* owners wait until the client has read */
    count_out(call);
    if (was_empty) {
        set_deadline(call);
    }
    if (!call->driving) {
        drive(call);
    }
}

void api_answer_end(struct api_call *call)
{
    CHECK(call->started);
    if (call->chunked && !call->head_only) {
        (void)buf_add_string(&call->out, "0\r\n\r\n"); /* sticky */
    }
    go_out(call);
}

void api_answer_cut(struct api_call *call)
{
    call->gone = NULL;
    call->broken = true;
    call->phase = API_CLOSING;
    if (!call->driving) {
        drive(call);
    }
}

size_t api_unread(const struct api_call *call)
{
    return buf_len(&call->out);
}

bool api_has_room(const struct api_call *call, size_t bytes)
{
    return bytes <= SMALL_ANSWER ||
           (bytes < OUT_MAX - OUT_EXTRA && call->server->unread < API_UNREAD_MAX);
}

static void on_ready(evutil_socket_t fd, short what, void *arg)
{
    struct api_call *call = arg;
    api_ready *ready = call->ready;

    (void)fd;
    (void)what;
    if (ready != NULL && call->phase == API_WORK) {
        call->ready = NULL;
        ready(call->ready_arg, call);
    }
}

static void tell_ready(struct api_call *call)
{
    static const struct timeval now = {0};

    if (call->ready == NULL) {
        return;
    }
    if (call->again == NULL) {
        call->again = evtimer_new(call->server->role->base, on_ready, call);
        CHECK(call->again != NULL);
    }
    CHECK(event_add(call->again, &now) == 0);
}

void api_answer_wait(struct api_call *call, api_ready *ready, void *arg)
{
    call->ready = ready;
    call->ready_arg = arg;
    if (buf_len(&call->out) == 0) {
        tell_ready(call);
    }
}

void api_on_gone(struct api_call *call, api_gone *gone, void *arg)
{
    call->gone = gone;
    call->gone_arg = arg;
}

/* ---- properties of a call -------------------------------------------------------------------- */

struct slice api_method(const struct api_call *call)
{
    return call->http.method;
}

struct slice api_path(const struct api_call *call)
{
    struct slice target = call->http.target;

    return slice_cut(&target, '?');
}

struct slice api_query(const struct api_call *call)
{
    struct slice target = call->http.target;

    (void)slice_cut(&target, '?');
    return target.ptr == NULL ? SLICE("") : target;
}

struct slice api_body(const struct api_call *call)
{
    return buf_slice(&call->body);
}

struct slice api_field(const struct api_call *call, struct slice name)
{
    return http_field(&call->http, name, 0);
}

int api_socket(const struct api_call *call)
{
    return stream_fd(call->stream);
}

bool api_is_local(const struct api_call *call)
{
    return call->is_local;
}

unsigned api_rights(const struct api_call *call)
{
    return call->rights;
}

const char *api_caller(const struct api_call *call)
{
    return call->caller;
}

/* ---- requests ------------------------------------------------------------------------------- */

static void log_refusal(struct api_call *call, const char *why)
{
    struct api_server *server = call->server;
    struct mono now = clock_mono();

    if (now.us - server->refusals_since.us > 60 * US_PER_S) {
        if (server->refusals > REFUSALS_LOGGED) {
            log_warning("api: %u more calls were refused", server->refusals - REFUSALS_LOGGED);
        }
        server->refusals_since = now;
        server->refusals = 0;
    }
    if (server->refusals++ < REFUSALS_LOGGED) {
        log_warning("api: refused a call from %s: %s", call->from, why);
    }
}

/* Answers an invalid request. The connection ends if the body was not read. */
static void refuse(struct api_call *call, unsigned status, const char *why)
{
    if (status == 401) {
        api_answer_field(call, "WWW-Authenticate: Bearer realm=\"sluice\"\r\n");
        log_refusal(call, why);
    }
    api_answer_error(call, status, why);
}

/* May this token have one more connection? If all places are taken, the token with the most loses
 * its oldest, unless this token would then have as many. */
static bool has_share(struct api_call *call, const char *name)
{
    struct api_server *server = call->server;
    struct token_use *own, *use, *next, *most = NULL;
    struct api_call *victim;

    HASH_FIND_STR(server->uses, name, own);
    if ((own != NULL && own == call->use) ||
        server->tcp_count - server->strangers < API_CLIENTS_MAX - API_STRANGERS_MAX) {
        return true;
    }
    HASH_ITER(hh, server->uses, use, next)
    {
        most = most == NULL || use->count > most->count ? use : most;
    }
    CHECK(most != NULL); /* all places are taken by tokens */
    if (own != NULL && own->count + 1 >= most->count) {
        return false;
    }
    TAILQ_FOREACH(victim, &server->calls, next)
    {
        if (victim->use == most && !victim->driving) {
            call_lost(victim);
            return true;
        }
    }
    return false;
}

/* Finds the token of a call. Returns true if the call may go on. */
static bool judge_token(struct api_call *call)
{
    static const struct slice bearer = {"Bearer ", 7};
    struct slice token = http_field(&call->http, SLICE("Authorization"), 0);
    const struct token *t;

    if (call->is_local) {
        return true;
    }
    if (token.ptr == NULL) {
        take_caller(call, "", 0);
        return true;
    }
    if (!slice_starts_nocase(token, bearer)) {
        refuse(call, 401, "expected Authorization: Bearer TOKEN");
        return false;
    }
    token = slice_trim(slice_skip(token, bearer.len));
    t = token.len > TOKEN_MAX ? NULL : token_list_check(call->server->tokens, token);
    if (t == NULL) {
        take_caller(call, "", 0);
        refuse(call, 401, "this token is not known");
        return false;
    }
    if (!has_share(call, t->line.name)) {
        take_caller(call, "", 0);
        refuse(call, 503, "this token has its share of the connections; try again");
        return false;
    }
    take_caller(call, t->line.name, t->rights);
    memcpy(call->hash, t->hash, sizeof call->hash);
    return true;
}

static void on_head(struct api_call *call)
{
    bool has_body = call->http.chunked || call->http.length > 0;

    call->head_only = slice_equal(call->http.method, SLICE("HEAD"));
    call->fields[0] = '\0';
    call->started = call->chunked = false;
    call->phase = API_BODY;
    if (!judge_token(call)) {
        return;
    }
    if (call->http.length > API_BODY_MAX) {
        refuse(call, 413, "a body of at most 1 MiB is expected");
    } else if (has_body && !call->is_local && call->rights == 0) {
        refuse(call, 401, "expected Authorization: Bearer TOKEN");
    } else if (call->http.expects_continue) {
        (void)buf_add_string(&call->out, "HTTP/1.1 100 Continue\r\n\r\n"); /* fits */
        stream_flush(call->stream, &call->out);
        count_out(call);
    }
}

static void on_body(struct api_call *call, struct slice piece)
{
    if (!buf_add(&call->body, piece)) {
        refuse(call, 413, "a body of at most 1 MiB is expected");
    }
}

/* Reads a piece of the input. Returns false if more is needed. */
static bool read_some(struct api_call *call)
{
    struct slice input = stream_input(call->stream), in = input;
    struct http_event event;

    http_next(&call->http, &in, &event);
    switch (event.type) {
    case HTTP_NEED_INPUT:
        break;
    case HTTP_HEAD:
        on_head(call);
        break;
    case HTTP_BODY:
        on_body(call, event.body);
        break;
    case HTTP_END:
        call->phase = API_WORK;
        stream_set_deadline(call->stream, MONO_NEVER);
        break;
    case HTTP_BAD:
        call->head_only = false;
        call->fields[0] = '\0';
        call->phase = API_BODY;
        refuse(call, event.status, event.reason);
        break;
    }
    stream_consume(call->stream, input.len - in.len);
    if (call->phase == API_WORK) {
        call->server->called(call->server->arg, call);
    }
    return event.type != HTTP_NEED_INPUT;
}

/* Sends output. Returns true if the client has read all. */
static bool send_some(struct api_call *call)
{
    size_t before = buf_len(&call->out);

    if (!call->broken) {
        stream_flush(call->stream, &call->out);
        call->broken = stream_state(call->stream) == STREAM_STATE_BROKEN;
    }
    if (call->broken) {
        buf_clear(&call->out);
    }
    if (buf_len(&call->out) == 0) {
        buf_fini(&call->out); /* frees the memory */
    } else if (buf_len(&call->out) < before) {
        set_deadline(call);
    }
    count_out(call);
    return buf_len(&call->out) == 0;
}

/* Advances the call as far as possible. May free it. */
static void drive(struct api_call *call)
{
    call->driving = true;
    for (;;) {
        switch (call->phase) {
        case API_HEAD:
        case API_BODY:
            if (read_some(call)) {
                break;
            }
            call->driving = false;
            if (call->ended || call->broken) {
                call->broken = true;
                call_close(call);
            }
            return;
        case API_WORK:
            call->driving = false;
            if (buf_len(&call->out) > 0 && send_some(call)) {
                if (!call->broken) {
                    stream_set_deadline(call->stream, MONO_NEVER);
                }
                tell_ready(call); /* also for a broken call: its stream reports the error */
            }
            return;
        case API_ANSWER:
            if (!send_some(call)) {
                call->driving = false;
                return;
            }
            if (call->broken) {
                call_close(call);
                return;
            }
            http_again(&call->http);
            buf_fini(&call->body);
            await_head(call);
            break;
        case API_CLOSING:
            call->driving = false;
            if (call->broken || send_some(call)) {
                call_close(call);
            }
            return;
        case API_HANDSHAKE:
            call->driving = false;
            return;
        }
    }
}

static void on_deadline(struct api_call *call)
{
    if (call->phase == API_BODY || (call->phase == API_HEAD && http_in_request(&call->http))) {
        call->head_only = false;
        call->fields[0] = '\0';
        refuse(call, 408, "the request took too long");
        return;
    }
    call_lost(call);
}

static void on_stream(void *arg, struct stream *stream, enum stream_event event)
{
    struct api_call *call = arg;

    (void)stream;
    switch (event) {
    case STREAM_READABLE:
    case STREAM_WRITABLE:
        drive(call);
        return;
    case STREAM_END:
        call->ended = true;
        drive(call);
        return;
    case STREAM_SECURED:
        await_head(call);
        drive(call);
        return;
    case STREAM_DEADLINE:
        on_deadline(call);
        return;
    case STREAM_FAILED:
        if (call->phase == API_HANDSHAKE) {
            log_refusal(call, stream_error(stream));
        }
        call_lost(call);
        return;
    case STREAM_CONNECTED:
        UNREACHABLE("we accept, we do not connect");
    }
}

/* ---- accepting ------------------------------------------------------------------------------ */

static void name_client(struct api_call *call, int fd, const struct sockaddr_storage *addr)
{
    char ip[INET6_ADDRSTRLEN] = "unknown";
    struct ucred peer;
    socklen_t len = sizeof peer;

    if (call->is_local) {
        if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0) {
            (void)snprintf(call->caller, sizeof call->caller, "uid %u", (unsigned)peer.uid);
            (void)snprintf(call->from, sizeof call->from, "process %d", (int)peer.pid);
        } else {
            (void)snprintf(call->caller, sizeof call->caller, "uid unknown");
            (void)snprintf(call->from, sizeof call->from, "a process"); /* all of these fit */
        }
        return;
    }
    if (addr->ss_family == AF_INET) {
        (void)inet_ntop(AF_INET, &((const struct sockaddr_in *)addr)->sin_addr, ip, sizeof ip);
    } else if (addr->ss_family == AF_INET6) {
        (void)inet_ntop(AF_INET6, &((const struct sockaddr_in6 *)addr)->sin6_addr, ip, sizeof ip);
    }
    (void)snprintf(call->from, sizeof call->from, "[%s]", ip); /* fits */
}

/* Makes room for another connection. Returns false if there is none. */
static bool make_room(struct api_server *server, bool is_local)
{
    struct api_call *call;

    if (is_local) {
        return server->local_count < API_CLIENTS_MAX;
    }
    if (server->strangers >= API_STRANGERS_MAX) {
        TAILQ_FOREACH(call, &server->calls, next)
        {
            if (is_stranger(call) && !call->driving) {
                call_lost(call);
                break;
            }
        }
    }
    return server->tcp_count < API_CLIENTS_MAX;
}

static void accepted(struct api_listener *l, int fd, const struct sockaddr_storage *addr)
{
    static const int on = 1;
    struct api_server *server = l->server;
    struct api_call *call;

    if (!make_room(server, l->is_unix) || (l->tls && server->tls == NULL)) {
        static const char busy[] = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: "
                                   "application/json\r\nContent-Length: 37\r\nConnection: close\r\n"
                                   "\r\n{\"error\":\"too many clients; try again\"}\r\n";
        if (!l->tls) { /* best effort: the client may have left, or not read */
            (void)send(fd, busy, sizeof busy - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
        }
        (void)close(fd); /* nothing is lost */
        return;
    }
    call = mem_new(sizeof *call);
    call->server = server;
    call->is_local = l->is_unix;
    http_init(&call->http);
    buf_init(&call->body, API_BODY_MAX);
    buf_init(&call->out, OUT_MAX);
    name_client(call, fd, addr);
    call->rights = l->is_unix ? TOKEN_RIGHTS : 0;
    TAILQ_INSERT_TAIL(&server->calls, call, next);
    if (l->is_unix) {
        server->local_count++;
    } else {
        server->tcp_count++;
        server->strangers++;
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on); /* only for speed */
    }
    call->stream = stream_new(server->streams, fd, on_stream, call);
    stream_keep_secret(call->stream, true); /* tokens are secret */
    set_deadline(call);
    if (l->tls) {
        call->phase = API_HANDSHAKE;
        stream_start_tls(call->stream, server->tls, NULL);
    } else {
        await_head(call);
    }
}

static void on_accept(evutil_socket_t listening, short what, void *arg)
{
    static const struct timeval pause = {.tv_sec = ACCEPT_AGAIN_S};
    struct api_listener *l = arg;

    (void)what;
    for (int i = 0; i < ACCEPT_TURN; i++) {
        struct sockaddr_storage addr = {0};
        socklen_t len = sizeof addr;
        int fd = accept4(listening, (struct sockaddr *)&addr, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);

        if (fd >= 0) {
            accepted(l, fd, &addr);
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            /* Clients wait in the kernel meanwhile. Without a pause the loop would spin. */
            log_warning("accept: %s; the next try is in %d s", strerror(errno), ACCEPT_AGAIN_S);
            CHECK(event_del(l->event) == 0);
            CHECK(event_add(l->again, &pause) == 0);
            return;
        } else if (errno != EINTR && errno != ECONNABORTED) {
            return;
        }
    }
}

static void on_accept_again(evutil_socket_t fd, short what, void *arg)
{
    struct api_listener *l = arg;

    (void)fd;
    (void)what;
    CHECK(event_add(l->event, NULL) == 0);
}

void api_server_listen(struct api_server *server, struct slice url, int fd)
{
    struct api_listener *l = mem_new(sizeof *l);

    l->server = server;
    l->url = mem_copy(url.ptr, url.len);
    l->fd = fd;
    l->is_unix = slice_starts(url, SLICE("unix:"));
    l->tls = slice_starts_nocase(url, SLICE("https:"));
    l->event = event_new(server->role->base, fd, EV_READ | EV_PERSIST, on_accept, l);
    l->again = evtimer_new(server->role->base, on_accept_again, l);
    CHECK(l->event != NULL && l->again != NULL);
    CHECK(event_add(l->event, NULL) == 0);
    LIST_INSERT_HEAD(&server->listeners, l, next);
}

static void listener_free(struct api_listener *l)
{
    LIST_REMOVE(l, next);
    event_free(l->event);
    event_free(l->again);
    (void)close(l->fd); /* open connections go on */
    mem_free(l->url);
    mem_free(l);
}

/* ---- the server ----------------------------------------------------------------------------- */

static bool is_wanted(const struct api_listener *l, const struct conf *conf)
{
    if (l->is_unix) {
        return strcmp(l->url + strlen("unix:"), conf->control_socket) == 0;
    }
    for (size_t i = 0; i < conf->control_listen.count; i++) {
        if (strcmp(l->url, conf->control_listen.items[i]) == 0) {
            return true;
        }
    }
    return false;
}

static void read_tokens(struct api_server *server)
{
    const char *path = server->role->conf->api_tokens;
    struct token_list *tokens;
    struct buf error;

    buf_init(&error, LOG_LINE_MAX);
    tokens = token_list_new(
        path[0] == '\0' ? slice_of(NULL, 0) : role_file(server->role, slice_string(path)), &error);
    if (tokens == NULL) { /* the parent has read the file before and reported its faults */
        log_error("%s:%s: the tokens stay as they were", path, buf_cstr(&error));
    } else {
        token_list_free(server->tokens);
        server->tokens = tokens;
    }
    buf_fini(&error);
}

static void read_certificate(struct api_server *server)
{
    const struct conf *conf = server->role->conf;
    struct tls_context *tls = NULL;
    struct buf error;

    buf_init(&error, LOG_LINE_MAX);
    if (conf->tls_cert[0] != '\0' && conf->control_listen.count > 0) {
        tls = tls_server_new(role_file(server->role, slice_string(conf->tls_cert)),
                             role_file(server->role, slice_string(conf->tls_key)), &error);
        if (tls == NULL) {
            log_error("tls_cert %s, tls_key %s: %s: no TLS for control_listen", conf->tls_cert,
                      conf->tls_key, buf_cstr(&error));
        }
    }
    tls_context_free(server->tls);
    server->tls = tls;
    buf_fini(&error);
}

struct api_server *api_server_new(struct role *role, api_called *called, void *arg)
{
    struct api_server *server = mem_new(sizeof *server);

    server->role = role;
    server->called = called;
    server->arg = arg;
    LIST_INIT(&server->listeners);
    TAILQ_INIT(&server->calls);
    server->streams = streams_new(role->base);
    read_tokens(server);
    read_certificate(server);
    return server;
}

/* Is the call's token still in the list, unchanged? */
static bool has_grant(const struct api_call *call)
{
    const struct token *t = token_list_find(call->server->tokens, slice_string(call->caller));

    return call->caller[0] == '\0' ||
           (t != NULL && t->rights == call->rights && memcmp(t->hash, call->hash, TOKEN_HASH) == 0);
}

void api_server_reload(struct api_server *server)
{
    struct api_listener *l, *next;
    struct api_call *call, *next_call;

    for (l = LIST_FIRST(&server->listeners); l != NULL; l = next) {
        next = LIST_NEXT(l, next);
        if (!is_wanted(l, server->role->conf)) {
            listener_free(l);
        }
    }
    read_tokens(server);
    read_certificate(server);
    for (call = TAILQ_FIRST(&server->calls); call != NULL; call = next_call) {
        next_call = TAILQ_NEXT(call, next);
        if (call->phase == API_WORK && !call->is_local && !has_grant(call)) {
            call_lost(call); /* the caller may have lost the right to this answer */
        }
    }
}

void api_server_free(struct api_server *server)
{
    struct api_call *call;
    struct api_listener *l;

    if (server == NULL) {
        return;
    }
    while ((l = LIST_FIRST(&server->listeners)) != NULL) {
        listener_free(l);
    }
    while ((call = TAILQ_FIRST(&server->calls)) != NULL) {
        call_lost(call);
    }
    streams_free(server->streams);
    tls_context_free(server->tls);
    token_list_free(server->tokens);
    mem_free(server);
}
