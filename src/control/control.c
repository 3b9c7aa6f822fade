/*
 * The control process: HTTP with JSON for operators, scripts and the command line (docs/api.md).
 *
 * It owns no files and knows nothing of the queue: it turns a request into a question, sends it to
 * the queue process and turns the answer into a response. A request waits in `asks` under its
 * token; when its client goes away first, the answer is dropped.
 */
#include "control.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/http.h>
#include <event2/keyvalq_struct.h>
#include <event2/listener.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <unistd.h>

#include "buf.h"
#include "check.h"
#include "clock.h"
#include "json.h"
#include "log.h"
#include "mem.h"
#include "metrics.h"
#include "printable.h"
#include "queue_measures.h"
#include "role.h"
#include "service.h"

#define BODY_MAX    (1u << 20)
#define HEADERS_MAX 16384
#define IDLE_S      60
/* Text of an error about a query: longer than the list of its names. */
#define QUERY_ERROR_MAX 1024
/* Questions under way; more are told to come back. */
#define ASKS_MAX 1000
/* Processes of receive and deliver, 64 each at most. */
#define EXPOSED_MAX 128
/* Bytes of messages that clients have asked for and not read yet; who asks for another message
 * while there are more is told to come back. */
#define CONTENT_UNREAD_MAX (64u << 20)
/* When descriptors have run out, accept again after this. */
#define ACCEPT_AGAIN_S 1

struct unread;

enum ask_kind { ASK_JSON, ASK_CONTENT, ASK_STATUS, ASK_METRICS, ASK_RELOAD, ASK_SERVICE };

struct ask {
    TAILQ_ENTRY(ask) next;
    uint64_t token;
    enum ask_kind kind;
    struct evhttp_request *request; /* NULL: the client is gone */
    struct buf processes;           /* ASK_METRICS: what the parent has told */
    control_answered *answered;     /* ASK_SERVICE; NULL: the answer is not wanted any more */
    void *arg;
};

struct control {
    struct role *role;
    struct evhttp *http;
    struct channel *queue;        /* NULL: being restarted */
    void *services[SERVICES_MAX]; /* their states */
    TAILQ_HEAD(, ask) asks;
    size_t ask_count;
    uint64_t last_token;
    struct unread *unread; /* outlives this while there is some */
    struct wall started;
    pid_t daemon_pid; /* the parent's */
    /* Processes that strangers talk to: should one of them be taken over, it is not to reach the
     * queue's controls from here. 0: free. */
    pid_t exposed[EXPOSED_MAX];
};

/* ---- responses ------------------------------------------------------------------------------ */

static void respond(struct evhttp_request *request, int status, const char *type, struct slice body)
{
    struct evbuffer *out = evbuffer_new();

    CHECK(out != NULL);
    CHECK(evbuffer_add(out, body.ptr, body.len) == 0);
    CHECK(evhttp_add_header(evhttp_request_get_output_headers(request), "Content-Type", type) == 0);
    evhttp_connection_set_closecb(evhttp_request_get_connection(request), NULL, NULL);
    evhttp_send_reply(request, status, NULL, out);
    evbuffer_free(out);
}

static void respond_json(struct evhttp_request *request, int status, json_t *object)
{
    char *text = json_dumps(object, JSON_COMPACT);

    CHECK(text != NULL);
    respond(request, status, "application/json", slice_string(text));
    free(text);
    json_decref(object);
}

static void respond_error(struct evhttp_request *request, int status, const char *text)
{
    respond_json(request, status, json_pack("{s:s}", "error", text));
}

/* Pieces on their way. libevent frees its buffers when it likes, perhaps after the end. */
struct unread {
    uint64_t bytes;
    bool ended; /* the process is about to */
};

static void unread_free_if_done(struct unread *unread)
{
    if (unread->ended && unread->bytes == 0) {
        mem_free(unread);
    }
}

/* A piece of a message on its way to a client. */
struct piece {
    struct unread *unread;
    size_t len;
    char bytes[65536];
};

static void piece_free(const void *bytes, size_t len, void *arg)
{
    struct piece *piece = arg;

    (void)bytes;
    (void)len;
    piece->unread->bytes -= piece->len;
    unread_free_if_done(piece->unread);
    mem_free(piece);
}

/* Add the next piece of what `fd` refers to. 1, 0 at the end, or a negative errno. */
static int add_piece(struct control *c, struct evbuffer *out, int fd, off_t *at)
{
    struct piece *piece = mem_new(sizeof *piece);
    ssize_t n;

    do {
        n = pread(fd, piece->bytes, sizeof piece->bytes, *at);
    } while (n < 0 && errno == EINTR);
    if (n <= 0) {
        int result = n < 0 ? -errno : 0;

        mem_free(piece);
        return result;
    }
    piece->unread = c->unread;
    piece->len = (size_t)n;
    c->unread->bytes += piece->len;
    CHECK(evbuffer_add_reference(out, piece->bytes, piece->len, piece_free, piece) == 0);
    *at += n;
    return 1;
}

/* The bytes of a message, from the frame or from the descriptor that came with it. */
static void respond_content(struct control *c, struct evhttp_request *request, struct slice bytes,
                            int fd)
{
    struct evbuffer *out;
    off_t at = 0;
    int more = fd >= 0;

    if (c->unread->bytes > CONTENT_UNREAD_MAX) {
        respond_error(request, 503, "clients do not read the messages they asked for; ask again");
        return;
    }
    out = evbuffer_new();
    CHECK(out != NULL);
    CHECK(evbuffer_add(out, bytes.ptr, bytes.len) == 0);
    while (more > 0) {
        more = add_piece(c, out, fd, &at);
    }
    if (more < 0) {
        evbuffer_free(out);
        respond_error(request, 503, "the content can't be read");
        return;
    }
    CHECK(evhttp_add_header(evhttp_request_get_output_headers(request), "Content-Type",
                            "message/rfc822") == 0);
    evhttp_connection_set_closecb(evhttp_request_get_connection(request), NULL, NULL);
    evhttp_send_reply(request, 200, NULL, out);
    evbuffer_free(out);
}

/* Prometheus' text form; takes nothing. */
static void respond_metrics(struct evhttp_request *request, const json_t *answer,
                            struct slice processes)
{
    json_t *own = json_object();
    struct buf text;

    buf_init(&text, METRICS_MAX);
    measures_put_process(own);
    metrics_print(&text, answer, own, processes, clock_wall());
    CHECK(!text.failed);
    respond(request, 200, "text/plain; version=0.0.4", buf_slice(&text));
    buf_fini(&text);
    json_decref(own);
}

/* ---- questions under way -------------------------------------------------------------------- */

static void ask_free(struct control *c, struct ask *ask)
{
    TAILQ_REMOVE(&c->asks, ask, next);
    c->ask_count--;
    buf_fini(&ask->processes);
    mem_free(ask);
}

static void on_client_gone(struct evhttp_connection *connection, void *arg)
{
    struct ask *ask = arg;

    (void)connection;
    ask->request = NULL;
}

static struct ask *ask_add(struct control *c, enum ask_kind kind)
{
    struct ask *ask = mem_new(sizeof *ask);

    ask->token = ++c->last_token;
    ask->kind = kind;
    buf_init(&ask->processes, WIRE_JSON_MAX);
    TAILQ_INSERT_TAIL(&c->asks, ask, next);
    c->ask_count++;
    return ask;
}

/* NULL: too many, and the request has been answered. */
static struct ask *ask_new(struct control *c, struct evhttp_request *request, enum ask_kind kind)
{
    struct ask *ask;

    if (c->ask_count == ASKS_MAX) {
        respond_error(request, 503, "too many questions at once, ask again");
        return NULL;
    }
    ask = ask_add(c, kind);
    ask->request = request;
    evhttp_connection_set_closecb(evhttp_request_get_connection(request), on_client_gone, ask);
    return ask;
}

static void send_question(struct control *c, const struct ask *ask, json_t *question)
{
    char *text = json_dumps(question, JSON_COMPACT);

    CHECK(text != NULL);
    wire_put_ask(c->queue, &(struct wire_ask){.token = ask->token, .json = slice_string(text)});
    free(text);
}

/* First the parent is asked for what the processes use, then the queue process (processes_told). */
static void ask_metrics(struct control *c, struct evhttp_request *request)
{
    struct ask *ask = ask_new(c, request, ASK_METRICS);

    if (ask != NULL) {
        wire_put_number(c->role->parent, WIRE_PROCESSES, ask->token);
    }
}

/* Takes `question`. */
static void ask_queue(struct control *c, struct evhttp_request *request, enum ask_kind kind,
                      json_t *question)
{
    struct ask *ask;

    if (c->queue == NULL) {
        respond_error(request, 503, "the queue process is being restarted");
    } else if ((ask = ask_new(c, request, kind)) != NULL) {
        send_question(c, ask, question);
    }
    json_decref(question);
}

static struct ask *ask_find(struct control *c, uint64_t token)
{
    struct ask *ask;

    TAILQ_FOREACH(ask, &c->asks, next)
    {
        if (ask->token == token) {
            return ask;
        }
    }
    return NULL;
}

uint64_t control_ask(struct control *c, json_t *question, control_answered *answered, void *arg)
{
    struct ask *ask = NULL;

    if (c->queue != NULL && c->ask_count < ASKS_MAX) {
        ask = ask_add(c, ASK_SERVICE);
        ask->answered = answered;
        ask->arg = arg;
        send_question(c, ask, question);
    }
    json_decref(question);
    return ask == NULL ? 0 : ask->token;
}

void control_forget(struct control *c, uint64_t name)
{
    struct ask *ask = ask_find(c, name);

    if (ask != NULL) {
        ask->answered = NULL;
    }
}

/* Frees the question. */
static void answer_service(struct control *c, struct ask *ask, unsigned status, struct slice json)
{
    control_answered *answered = ask->answered;
    void *arg = ask->arg;
    json_t *object = NULL;

    ask_free(c, ask);
    if (answered == NULL) {
        return;
    }
    if (status == 200) {
        object = json_loadb(json.ptr, json.len, 0, NULL);
        CHECK(object != NULL); /* the queue process wrote it */
    }
    answered(arg, status, object);
    json_decref(object);
}

static void add_own_status(struct control *c, json_t *object)
{
    json_t *own = json_pack("{s:s, s:i, s:f}", "version", SLUICE_VERSION, "pid", (int)c->daemon_pid,
                            "uptime", (double)(clock_wall().us - c->started.us) / (double)US_PER_S);

    CHECK(own != NULL);
    CHECK(json_object_update_new(object, own) == 0);
}

static void answer_metrics(struct control *c, struct ask *ask, struct slice json)
{
    json_t *object = json_loadb(json.ptr, json.len, 0, NULL);

    CHECK(object != NULL); /* the queue process wrote it */
    add_own_status(c, object);
    respond_metrics(ask->request, object, buf_slice(&ask->processes));
    json_decref(object);
}

static void answer(struct control *c, const struct wire_answer *m, int fd)
{
    struct ask *ask = ask_find(c, m->token);
    struct evhttp_request *request;
    enum ask_kind kind;
    json_t *object;

    if (ask == NULL) {
        return;
    }
    if (ask->kind == ASK_SERVICE) {
        answer_service(c, ask, m->status, m->json);
        return;
    }
    request = ask->request;
    kind = ask->kind;
    if (request != NULL && m->status == 200 && kind == ASK_METRICS) {
        answer_metrics(c, ask, m->json);
    }
    ask_free(c, ask);
    if (request == NULL || (m->status == 200 && kind == ASK_METRICS)) {
        return;
    }
    if (m->status == 200 && kind == ASK_CONTENT) {
        respond_content(c, request, m->bytes, fd);
    } else if (m->status == 200 && kind == ASK_STATUS) {
        object = json_loadb(m->json.ptr, m->json.len, 0, NULL);
        CHECK(object != NULL); /* the queue process wrote it */
        add_own_status(c, object);
        respond_json(request, 200, object);
    } else {
        respond(request, (int)m->status, "application/json", m->json);
    }
}

/* An answer of the parent is still to come; then the queue process is asked, if it is there. */
static bool waits_for_parent(const struct ask *ask)
{
    return ask->kind == ASK_METRICS && buf_len(&ask->processes) == 0;
}

static void on_queue(void *arg, struct channel *ch)
{
    struct control *c = arg;
    struct wire_answer m;
    struct frame frame;
    enum channel_event event;
    struct ask *ask, *next;

    while ((event = channel_next(ch, &frame)) == CHANNEL_FRAME) {
        CHECK(frame.type == WIRE_ANSWER);
        CHECK(wire_get_answer(frame.body, &m));
        answer(c, &m, frame.fd);
        if (frame.fd >= 0) {
            (void)close(frame.fd); /* only read */
        }
    }
    if (event == CHANNEL_CLOSED) {
        channel_free(ch);
        c->queue = NULL;
        role_queue_lost(c->role);
        for (ask = TAILQ_FIRST(&c->asks); ask != NULL; ask = next) {
            next = TAILQ_NEXT(ask, next);
            if (ask->kind == ASK_SERVICE) {
                answer_service(c, ask, 503, SLICE(""));
            } else if (ask->kind != ASK_RELOAD && !waits_for_parent(ask)) {
                struct evhttp_request *request = ask->request;
                ask_free(c, ask);
                if (request != NULL) {
                    respond_error(request, 503, "the queue process ended; ask again");
                }
            }
        }
    }
}

/* ---- requests ------------------------------------------------------------------------------- */

/* A page in a browser must not be able to steer us by a name that resolves to this machine, so the
 * Host of a TCP request has to be a loopback one. The Unix socket has permissions instead. */
static bool host_allowed(struct evhttp_request *request)
{
    const char *host = evhttp_request_get_host(request);

    return host == NULL || strcasecmp(host, "localhost") == 0 || strcmp(host, "127.0.0.1") == 0 ||
           strcmp(host, "[::1]") == 0 || strcmp(host, "::1") == 0;
}

/* The names in a query string. */
static const struct query_name {
    const char *name;
    bool in_filter; /* else of the question itself */
    enum {
        QUERY_TEXT,
        QUERY_TEXTS, /* may be there more than once */
        QUERY_NUMBER
    } type;
} query_names[] = {
    {"state", true, QUERY_TEXTS},        {"sender", true, QUERY_TEXT},
    {"recipient", true, QUERY_TEXT},     {"destination", true, QUERY_TEXT},
    {"class", true, QUERY_TEXT},         {"name", true, QUERY_TEXT},
    {"older_than", true, QUERY_NUMBER},  {"newer_than", true, QUERY_NUMBER},
    {"min_size", true, QUERY_NUMBER},    {"max_size", true, QUERY_NUMBER},
    {"max", false, QUERY_NUMBER},        {"after", false, QUERY_TEXT},
    {"recipients", false, QUERY_NUMBER}, {"after_recipient", false, QUERY_NUMBER},
    {"cursor", false, QUERY_NUMBER},     {"domain", false, QUERY_TEXT},
    {"fetch", false, QUERY_NUMBER},
};
#define QUERY_NAMES (sizeof query_names / sizeof query_names[0])

/* Put one pair into the question or its filter. False: `error` has what was expected. */
static bool add_pair(json_t *question, json_t *filter, const char *name, const char *text,
                     struct buf *error)
{
    const struct query_name *n = query_names;
    unsigned long long number = 0;
    json_t *value, *into, *list;

    while (n < query_names + QUERY_NAMES && strcmp(n->name, name) != 0) {
        n++;
    }
    if (n == query_names + QUERY_NAMES) {
        (void)buf_add_string(error, "query: ");
        (void)printable_add(error, slice_string(name), 40);
        (void)buf_add_string(error, " is not known; known are");
        for (size_t i = 0; i < QUERY_NAMES; i++) {
            (void)buf_addf(error, "%s %s", i > 0 ? "," : "", query_names[i].name);
        }
        return false; /* the names are far below the limit */
    }
    if (n->type == QUERY_NUMBER && !slice_number(slice_string(text), INT64_MAX, &number)) {
        (void)buf_addf(error, "%s: a number is expected, not \"", name);
        (void)printable_add(error, slice_string(text), 40);
        (void)buf_add_string(error, "\"");
        return false;
    }
    value = n->type == QUERY_NUMBER ? json_integer((json_int_t)number) : json_string(text);
    if (value == NULL) {
        (void)buf_addf(error, "%s: UTF-8 is expected", name);
        return false;
    }
    into = n->in_filter ? filter : question;
    if (n->type == QUERY_TEXTS) {
        list = json_object_get(into, name);
        if (list == NULL) {
            list = json_array();
            json_put(into, name, list);
        }
        CHECK(json_array_append_new(list, value) == 0);
    } else {
        json_put(into, name, value);
    }
    return true;
}

/* A filter and paging from a query string. False: `error` has why not. */
static bool add_query(json_t *question, const char *query, struct buf *error)
{
    json_t *filter = json_object();
    struct evkeyvalq list;
    struct evkeyval *pair;
    bool ok = true;

    json_put(question, "filter", filter);
    TAILQ_INIT(&list);
    if (query != NULL && evhttp_parse_query_str(query, &list) != 0) {
        (void)buf_add_string(error, "query: name=value&name=value is expected");
        ok = false;
    }
    TAILQ_FOREACH(pair, &list, next)
    {
        ok = ok && add_pair(question, filter, pair->key, pair->value, error);
    }
    evhttp_clear_headers(&list);
    return ok;
}

/* A part of a path, with its %XX; empty when it is no text. */
static json_t *decoded(struct slice part)
{
    char *text = mem_copy(part.ptr, part.len);
    size_t len = 0;
    char *plain = evhttp_uridecode(text, 0, &len);
    json_t *json = plain == NULL ? NULL : json_stringn(plain, len);

    mem_free(text);
    free(plain);
    return json != NULL ? json : json_string("");
}

static void get_request(struct control *c, struct evhttp_request *request, const char *path,
                        const char *query)
{
    static const struct {
        const char *path, *op;
        enum ask_kind kind;
    } plain[] = {
        {"/v1/status", "status", ASK_STATUS},
        {"/v1/messages", "list", ASK_JSON},
        {"/v1/count", "count", ASK_JSON},
        {"/v1/sites", "sites", ASK_JSON},
        {"/v1/destinations", "destinations", ASK_JSON},
        {"/v1/site", "site", ASK_JSON},
        {"/v1/tls", "tls", ASK_JSON},
        {"/v1/interventions", "interventions", ASK_JSON},
    };
    struct slice rest, id;
    const char *op = "show";
    enum ask_kind kind = ASK_JSON;
    json_t *question = json_object();
    struct buf error;

    buf_init(&error, QUERY_ERROR_MAX);
    if (!add_query(question, query, &error)) {
        json_decref(question);
        respond_error(request, 400, buf_cstr(&error));
        buf_fini(&error);
        return;
    }
    buf_fini(&error);
    if (strcmp(path, "/metrics") == 0) {
        json_decref(question);
        ask_metrics(c, request);
        return;
    }
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++) {
        if (strcmp(path, plain[i].path) == 0) {
            CHECK(json_object_set_new(question, "op", json_string(plain[i].op)) == 0);
            ask_queue(c, request, plain[i].kind, question);
            return;
        }
    }
    rest = slice_string(path);
    if (!slice_starts(rest, SLICE("/v1/messages/"))) {
        json_decref(question);
        respond_error(request, 404, "no such path; docs/api.md lists them");
        return;
    }
    rest = slice_skip(rest, strlen("/v1/messages/"));
    id = slice_cut(&rest, '/');
    if (slice_equal(rest, SLICE("content"))) {
        op = "cat";
        kind = ASK_CONTENT;
    } else if (slice_equal(rest, SLICE("why"))) {
        op = "why";
    } else if (rest.ptr != NULL) {
        json_decref(question);
        respond_error(request, 404, "no such path; docs/api.md lists them");
        return;
    }
    CHECK(json_object_set_new(question, "op", json_string(op)) == 0);
    CHECK(json_object_set_new(question, "id", decoded(id)) == 0);
    ask_queue(c, request, kind, question);
}

/* POST /v1/interventions with one, or /v1/interventions/NAME/cancel. False: it is neither. */
static bool intervention_request(struct control *c, struct evhttp_request *request,
                                 struct slice path, json_t *body)
{
    const struct slice before = SLICE("/v1/interventions");
    struct slice rest, name;

    if (!slice_starts(path, before)) {
        return false;
    }
    rest = slice_skip(path, before.len);
    if (rest.len == 0 && json_is_object(body)) {
        json_put(body, "op", json_string("intervene"));
        ask_queue(c, request, ASK_JSON, json_incref(body));
        return true;
    }
    if (!slice_starts(rest, SLICE("/"))) {
        return false;
    }
    rest = slice_skip(rest, 1);
    name = slice_cut(&rest, '/');
    if (!slice_equal(rest, SLICE("cancel"))) {
        return false;
    }
    ask_queue(c, request, ASK_JSON, json_pack("{s:s, s:o}", "op", "cancel", "id", decoded(name)));
    return true;
}

static void post_request(struct control *c, struct evhttp_request *request, const char *path,
                         json_t *body)
{
    static const char *const changes[] = {"hold",    "release", "delete",
                                          "requeue", "expire",  "flush"};
    struct slice rest = slice_string(path);
    struct ask *ask;

    if (strcmp(path, "/v1/reload") == 0) {
        ask = ask_new(c, request, ASK_RELOAD);
        if (ask != NULL) {
            wire_put_number(c->role->parent, WIRE_RELOAD, ask->token);
        }
        return;
    }
    if (strcmp(path, "/v1/stop") == 0) {
        respond_json(request, 200, json_pack("{s:b}", "ok", 1));
        wire_put_empty(c->role->parent, WIRE_STOP_ALL);
        return;
    }
    if (strcmp(path, "/v1/clock") == 0) {
        const json_t *offset = json_object_get(body, "offset_seconds");
        json_int_t seconds = json_integer_value(offset);

        if (!c->role->conf->debug_clock) {
            respond_error(request, 400, "the clock moves only with debug_clock = yes");
        } else if (!json_is_integer(offset) || seconds < 0 || seconds > 100LL * 365 * 86400) {
            respond_error(request, 400, "offset_seconds: a number of seconds is expected");
        } else {
            wire_put_number(c->role->parent, WIRE_SET_CLOCK, (uint64_t)(seconds * US_PER_S));
            respond_json(request, 200, json_pack("{s:b}", "ok", 1));
        }
        return;
    }
    if (intervention_request(c, request, rest, body)) {
        return;
    }
    if (slice_starts(rest, SLICE("/v1/messages/")) && json_is_object(body)) {
        rest = slice_skip(rest, strlen("/v1/messages/"));
        for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
            if (slice_equal(rest, slice_string(changes[i]))) {
                CHECK(json_object_set_new(body, "op", json_string(changes[i])) == 0);
                ask_queue(c, request, ASK_JSON, json_incref(body));
                return;
            }
        }
    }
    respond_error(request, json_is_object(body) ? 404 : 400,
                  json_is_object(body) ? "no such path; docs/api.md lists them"
                                       : "a JSON object is expected");
}

bool control_refuses(const struct control *c, int fd)
{
    struct ucred peer;
    socklen_t len = sizeof peer;

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) != 0 || peer.pid <= 0) {
        return false; /* TCP, or a process of another container */
    }
    for (size_t i = 0; i < EXPOSED_MAX; i++) {
        if (c->exposed[i] == peer.pid) {
            log_warning("process %d of this daemon, which talks to the network, has connected to "
                        "the control socket: refused",
                        (int)peer.pid);
            return true;
        }
    }
    return false;
}

/* Has it been ended, or has it no place? Then nothing is to be done. */
static void expose(struct control *c, pid_t pid, bool ended)
{
    for (size_t i = 0; i < EXPOSED_MAX; i++) {
        if (c->exposed[i] == (ended ? pid : 0)) {
            c->exposed[i] = ended ? 0 : pid;
            return;
        }
    }
}

static void on_request(struct evhttp_request *request, void *arg)
{
    struct control *c = arg;
    struct evhttp_connection *connection = evhttp_request_get_connection(request);
    const struct evhttp_uri *uri = evhttp_request_get_evhttp_uri(request);
    const char *path = evhttp_uri_get_path(uri);
    struct evbuffer *input = evhttp_request_get_input_buffer(request);
    enum evhttp_cmd_type command;
    const char *type;
    json_t *body = NULL;
    size_t len;

    if (control_refuses(c, bufferevent_getfd(evhttp_connection_get_bufferevent(connection)))) {
        respond_error(request, 403, "not to processes of this daemon that talk to the network");
        return;
    }
    if (path == NULL || !host_allowed(request)) {
        respond_error(request, 400, "the Host is not a local one");
        return;
    }
    command = evhttp_request_get_command(request);
    if (command != EVHTTP_REQ_GET && command != EVHTTP_REQ_HEAD && command != EVHTTP_REQ_POST) {
        (void)evhttp_add_header(evhttp_request_get_output_headers(request), "Allow",
                                "GET, HEAD, POST");
        respond_error(request, 405, "GET, HEAD or POST is expected");
        return;
    }
    if (command != EVHTTP_REQ_POST) {
        get_request(c, request, path, evhttp_uri_get_query(uri));
        return;
    }
    /* A form on a foreign page can't have this type without asking first. */
    len = evbuffer_get_length(input);
    type = evhttp_find_header(evhttp_request_get_input_headers(request), "Content-Type");
    if (len > 0 && (type == NULL || strncasecmp(type, "application/json", 16) != 0)) {
        respond_error(request, 400, "Content-Type: application/json is expected");
        return;
    }
    if (len > 0) {
        body =
            json_loadb((const char *)evbuffer_pullup(input, -1), len, JSON_REJECT_DUPLICATES, NULL);
    }
    post_request(c, request, path, body);
    json_decref(body);
}

/* ---- services ------------------------------------------------------------------------------- */

static const struct service *services[SERVICES_MAX];
static size_t service_count;

void service_register(const struct service *service)
{
    CHECK(service_count < SERVICES_MAX);
    services[service_count++] = service;
}

/* ---- the role ------------------------------------------------------------------------------- */

static int control_start(struct role *role)
{
    struct control *c = mem_new(sizeof *c);

    role->state = c;
    c->role = role;
    c->unread = mem_new(sizeof *c->unread);
    c->started = clock_wall();
    c->daemon_pid = getppid(); /* no system call for it once confined */
    TAILQ_INIT(&c->asks);
    c->http = evhttp_new(role->base);
    CHECK(c->http != NULL);
    evhttp_set_max_body_size(c->http, BODY_MAX);
    evhttp_set_max_headers_size(c->http, HEADERS_MAX);
    evhttp_set_timeout(c->http, IDLE_S);
    /* What is not known is answered here, in JSON, and not by the library in HTML. */
    evhttp_set_allowed_methods(c->http, EVHTTP_REQ_GET | EVHTTP_REQ_HEAD | EVHTTP_REQ_POST |
                                            EVHTTP_REQ_PUT | EVHTTP_REQ_DELETE |
                                            EVHTTP_REQ_OPTIONS | EVHTTP_REQ_PATCH);
    evhttp_set_gencb(c->http, on_request, c);
    for (size_t i = 0; i < service_count; i++) {
        c->services[i] = services[i]->begin(role, c, c->daemon_pid);
    }
    return 0;
}

static void on_accept_again(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    CHECK(evconnlistener_enable(arg) == 0);
}

/* Clients wait in the kernel meanwhile; without this pause the loop would spin. */
static void on_accept_error(struct evconnlistener *listener, void *arg)
{
    static const struct timeval pause = {.tv_sec = ACCEPT_AGAIN_S};

    (void)arg;
    log_warning("accept: %s; the next try is in %d s", strerror(errno), ACCEPT_AGAIN_S);
    CHECK(evconnlistener_disable(listener) == 0);
    CHECK(event_base_once(evconnlistener_get_base(listener), -1, EV_TIMEOUT, on_accept_again,
                          listener, &pause) == 0);
}

static void control_listener(struct role *role, struct slice url, int fd)
{
    struct control *c = role->state;
    struct evhttp_bound_socket *bound;

    for (size_t i = 0; i < service_count; i++) {
        if (slice_equal(slice_of(url.ptr, slice_find(url, ':')), slice_string(services[i]->name))) {
            services[i]->listener(c->services[i], url, fd);
            return;
        }
    }
    bound = evhttp_accept_socket_with_handle(c->http, fd);
    if (bound == NULL) {
        log_error("%.*s: can't listen", SLICE_ARGS(url));
        (void)close(fd); /* only bound */
        return;
    }
    evconnlistener_set_error_cb(evhttp_bound_socket_get_listener(bound), on_accept_error);
}

static void control_peer(struct role *role, const struct wire_peer *peer, int fd)
{
    struct control *c = role->state;

    CHECK(peer->role == ROLE_QUEUE);
    if (c->queue != NULL) {
        struct channel *old = c->queue;
        channel_pause(old, true);
        channel_free(old);
    }
    c->queue = channel_new(role->base, fd, on_queue, c);
}

static bool service_frame(struct control *c, const struct frame *frame)
{
    struct wire_service m;

    if (!wire_get_service(frame->body, &m)) {
        return false;
    }
    for (size_t i = 0; i < service_count; i++) {
        if (slice_equal(m.name, slice_string(services[i]->name))) {
            return services[i]->heard(c->services[i], &m, frame->fd);
        }
    }
    return false;
}

/* The parent has told of the processes: now the rest of the metrics. */
static bool processes_told(struct control *c, struct slice body)
{
    struct wire_processes_told m;
    json_t *question;
    struct ask *ask;

    if (!wire_get_processes_told(body, &m)) {
        return false;
    }
    ask = ask_find(c, m.token);
    if (ask == NULL) {
        return true;
    }
    if (ask->request == NULL || c->queue == NULL) {
        struct evhttp_request *request = ask->request;

        ask_free(c, ask);
        if (request != NULL) {
            respond_error(request, 503, "the queue process is being restarted");
        }
        return true;
    }
    (void)buf_add(&ask->processes, m.text); /* it has the same limit */
    question = json_pack("{s:s}", "op", "metrics");
    send_question(c, ask, question);
    json_decref(question);
    return true;
}

static bool control_parent_frame(struct role *role, const struct frame *frame)
{
    struct control *c = role->state;
    struct wire_reloaded m;
    uint64_t pid;
    struct ask *ask;
    json_t *object;

    if (frame->type == WIRE_SERVICE) {
        return service_frame(c, frame);
    }
    if (frame->type == WIRE_PROCESSES_TOLD) {
        return processes_told(c, frame->body);
    }
    if (frame->type == WIRE_CHILD || frame->type == WIRE_CHILD_ENDED) {
        if (!wire_get_number(frame->body, &pid) || pid == 0 || pid > INT32_MAX) {
            return false;
        }
        expose(c, (pid_t)pid, frame->type == WIRE_CHILD_ENDED);
        return true;
    }
    if (frame->type != WIRE_RELOADED || !wire_get_reloaded(frame->body, &m)) {
        return false;
    }
    ask = ask_find(c, m.token);
    if (ask != NULL) {
        if (ask->request != NULL) {
            object = m.ok ? json_pack("{s:b}", "ok", 1)
                          : json_pack("{s:s%}", "error", m.text.ptr, m.text.len);
            if (object == NULL) {
                object = json_pack("{s:s}", "error", "errors that are not UTF-8; see the log");
            }
            if (m.ok && m.text.len > 0) {
                (void)json_object_set_new(object, "warnings",
                                          json_stringn(m.text.ptr, m.text.len)); /* optional */
            }
            respond_json(ask->request, m.ok ? 200 : 400, object);
        }
        ask_free(c, ask);
    }
    return true;
}

static void control_reload(struct role *role, const struct conf *old)
{
    struct control *c = role->state;

    (void)old; /* what HTTP needs it reads from role->conf when it needs it */
    for (size_t i = 0; i < service_count; i++) {
        services[i]->reload(c->services[i]);
    }
}

static void control_stop(struct role *role)
{
    role_exit(role, 0);
}

static void control_end(struct role *role)
{
    struct control *c = role->state;
    struct ask *ask;

    for (size_t i = 0; i < service_count; i++) {
        services[i]->end(c->services[i]);
    }
    while ((ask = TAILQ_FIRST(&c->asks)) != NULL) {
        if (ask->request != NULL) {
            evhttp_connection_set_closecb(evhttp_request_get_connection(ask->request), NULL, NULL);
        }
        ask_free(c, ask);
    }
    channel_free(c->queue);
    evhttp_free(c->http);
    c->unread->ended = true;
    unread_free_if_done(c->unread);
    mem_free(c);
}

const struct role_ops control_role = {
    .role = ROLE_CONTROL,
    .program = "control",
    .kind = ROLE_ANSWERS,
    .start = control_start,
    .listener = control_listener,
    .peer = control_peer,
    .parent_frame = control_parent_frame,
    .reload = control_reload,
    .stop = control_stop,
    .end = control_end,
};
