/*
 * The control process: HTTP with JSON for operators, scripts and the command line (docs/api.md).
 *
 * It owns no files and has no data of the queue. It converts a request to a query, sends the query
 * to the queue process and converts the answer to a response. endpoint.c has the table of requests.
 * A query waits in `asks` under its token; if its client leaves first, the answer is dropped.
 */
#include "control.h"

#include <errno.h>
#include <event2/event.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api_server.h"
#include "buf.h"
#include "check.h"
#include "clock.h"
#include "cluster_counts.h"
#include "dialogue_feed.h"
#include "endpoint.h"
#include "event_feed.h"
#include "json.h"
#include "log.h"
#include "mem.h"
#include "metrics.h"
#include "pages.h"
#include "queue_measures.h"
#include "role.h"
#include "series.h"
#include "service.h"
#include "token_list.h"
#include "whatif_call.h"

/* Longest error text about a query string: more than the list of its parameters. */
#define QUERY_ERROR_MAX 1024
/* Largest number of outstanding queries; further ones are refused. Each reader of a long answer has
 * one. */
#define ASKS_MAX 3000
/* Largest number of processes of receive and deliver, 64 each. */
#define EXPOSED_MAX 128
/* A long list is requested in pages with these limits, each after the client has read the previous
 * one. So a slow reader holds one page. */
#define LIST_PAGE_MESSAGES 100
#define LIST_PAGE_BYTES    65536
#define CONTENT_PIECE      65536

/* Time for which the answer of the nodes is used again. */
#define CLUSTER_KEPT_US (2 * US_PER_S)

enum ask_kind {
    ASK_JSON,
    ASK_LIST,
    ASK_CONTENT,
    ASK_STATUS,
    ASK_CLUSTER, /* waits for control.cluster_ask; not sent itself */
    ASK_METRICS,
    ASK_RELOAD,
    ASK_SERVICE
};

struct ask {
    TAILQ_ENTRY(ask) next;
    uint64_t token;
    enum ask_kind kind;
    struct api_call *call;                  /* call of the client; NULL: the client has gone */
    struct buf processes;                   /* ASK_METRICS: text of the parent */
    struct list_walk *walk;                 /* ASK_LIST; owned */
    control_bytes_answered *bytes_answered; /* called instead of `answered`, or NULL */
    control_answered *answered;             /* ASK_SERVICE; NULL: the service dropped the query */
    void *arg;
};

/* A list that is sent page by page. */
struct list_walk {
    struct control *control;
    json_t *question; /* owned */
    json_int_t left;  /* number of messages that may still be sent */
    bool begun;       /* the client has got some messages */
    bool counts;      /* only the number of messages is sent */
    json_int_t counted;
    json_t *failed; /* owned: nodes without an answer, from a page; or NULL */
};

/* Content that is sent from a file. */
struct content_walk {
    int fd;
    off_t at;
};

struct control {
    struct role *role;
    struct api_server *server;
    struct event_feed *feed;
    struct dialogue_feed *dialogues;
    struct whatif_call *whatif;
    struct channel *queue;        /* NULL: the queue process is being restarted */
    void *services[SERVICES_MAX]; /* states of the services */
    TAILQ_HEAD(, ask) asks;
    size_t ask_count;
    uint64_t last_token;
    struct wall started;
    pid_t daemon_pid;         /* process id of the parent */
    struct series *series;    /* owned: samples of the last hour */
    json_t *cluster;          /* owned: last answer of all nodes; NULL: none */
    struct mono cluster_told; /* time of that answer */
    uint64_t cluster_ask;     /* outstanding query; 0: none */
    struct cluster_counts counts;
    json_t *sample;              /* owned: sample that waits for `cluster`; NULL: none */
    struct event *sampler;       /* owned: timer for samples of `series` */
    struct api_call *clock_call; /* call that waits for the move of the clock, or NULL */
    /* Processes that talk to strangers: if one of them is taken over, it must not operate the queue
     * from here. 0: free. */
    pid_t exposed[EXPOSED_MAX];
};

/* ---- responses ------------------------------------------------------------------------------- */

static void respond_json(struct api_call *call, unsigned status, json_t *object)
{
    char *text = json_dumps(object, JSON_COMPACT);

    CHECK(text != NULL);
    api_answer(call, status, "application/json", slice_string(text));
    free(text);
    json_decref(object);
}

static void clock_client_gone(void *arg)
{
    struct control *c = arg;

    c->clock_call = NULL;
}

static void content_walk_end(void *arg)
{
    struct content_walk *walk = arg;

    (void)close(walk->fd); /* only read */
    mem_free(walk);
}

/* Sends the next piece, after the client has read the previous ones. */
static void content_walk_on(void *arg, struct api_call *call)
{
    struct content_walk *walk = arg;
    char piece[CONTENT_PIECE];
    ssize_t n;

    do {
        n = pread(walk->fd, piece, sizeof piece, walk->at);
    } while (n < 0 && errno == EINTR);
    if (n > 0) {
        walk->at += n;
        api_answer_add(call, slice_of(piece, (size_t)n));
        api_answer_wait(call, content_walk_on, walk);
        return;
    }
    if (n < 0) {
        log_warning("the content of a message can't be read: %s", strerror(errno));
        api_answer_cut(call);
    } else {
        api_answer_end(call);
    }
    content_walk_end(walk);
}

/* Sends the bytes of a message: those of the frame, then those of its descriptor, which is taken
 * (-1: none). */
static void respond_content(struct api_call *call, struct slice bytes, int fd)
{
    struct content_walk *walk;

    if (fd < 0) {
        api_answer(call, 200, "message/rfc822", bytes);
        return;
    }
    walk = mem_new(sizeof *walk);
    walk->fd = fd;
    api_answer_begin(call, 200, "message/rfc822");
    api_on_gone(call, content_walk_end, walk);
    api_answer_add(call, bytes);
    api_answer_wait(call, content_walk_on, walk);
}

static void respond_page(struct api_call *call, const struct web_page *page)
{
    for (const char *const *field = web_page_fields; *field != NULL; field++) {
        api_answer_field(call, *field);
    }
    api_answer(call, 200, page->type, page->bytes);
}

static void respond_metrics(struct api_call *call, const json_t *answer, struct slice processes)
{
    json_t *own = json_object();
    struct buf text;

    buf_init(&text, METRICS_MAX);
    measures_put_process(own);
    metrics_print(&text, answer, own, processes, clock_wall());
    CHECK(!text.failed);
    api_answer(call, 200, "text/plain; version=0.0.4", buf_slice(&text));
    buf_fini(&text);
    json_decref(own);
}

/* ---- outstanding queries --------------------------------------------------------------------- */

static void ask_free(struct control *c, struct ask *ask)
{
    TAILQ_REMOVE(&c->asks, ask, next);
    c->ask_count--;
    buf_fini(&ask->processes);
    mem_free(ask);
}

static void list_walk_free(struct list_walk *walk)
{
    if (walk != NULL) {
        json_decref(walk->question);
        json_decref(walk->failed);
        mem_free(walk);
    }
}

static void on_client_gone(void *arg)
{
    struct ask *ask = arg;

    ask->call = NULL;
    list_walk_free(ask->walk);
    ask->walk = NULL;
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

/* Makes a query for a call. Returns NULL if there are too many; the call was then answered. */
static struct ask *ask_new(struct control *c, struct api_call *call, enum ask_kind kind)
{
    struct ask *ask;

    if (c->ask_count >= ASKS_MAX) {
        api_answer_error(call, 503, "too many questions at once; ask again");
        return NULL;
    }
    ask = ask_add(c, kind);
    ask->call = call;
    api_on_gone(call, on_client_gone, ask);
    return ask;
}

static void send_question(struct control *c, const struct ask *ask, json_t *question)
{
    char *text = json_dumps(question, JSON_COMPACT);

    CHECK(text != NULL);
    wire_put_ask(c->queue, &(struct wire_ask){.token = ask->token, .json = slice_string(text)});
    free(text);
}

/* Requests the numbers of the processes from the parent; processes_told then queries the queue
 * process. */
static void ask_metrics(struct control *c, struct api_call *call)
{
    struct ask *ask = ask_new(c, call, ASK_METRICS);

    if (ask != NULL) {
        wire_put_number(c->role->parent, WIRE_PROCESSES, ask->token);
    }
}

/* Sends the query and frees it. */
static void ask_queue(struct control *c, struct api_call *call, enum ask_kind kind,
                      json_t *question)
{
    struct ask *ask;

    if (c->queue == NULL) {
        api_answer_error(call, 503, "the queue process is being restarted");
    } else if ((ask = ask_new(c, call, kind)) != NULL) {
        send_question(c, ask, question);
    }
    json_decref(question);
}

/* ---- long lists ----------------------------------------------------------------------------- */

static void list_walk_on(void *arg, struct api_call *call)
{
    struct list_walk *walk = arg;
    struct control *c = walk->control;
    json_int_t page = walk->left < LIST_PAGE_MESSAGES ? walk->left : LIST_PAGE_MESSAGES;
    struct ask *ask;

    if (c->queue == NULL || c->ask_count >= ASKS_MAX) {
        list_walk_free(walk);
        if (call != NULL) {
            api_answer_cut(call);
        }
        return;
    }
    json_put(walk->question, "max", json_integer(page));
    ask = ask_add(c, ASK_LIST);
    ask->call = call;
    ask->walk = walk;
    api_on_gone(call, on_client_gone, ask);
    send_question(c, ask, walk->question);
}

static void list_walk_gone(void *arg)
{
    list_walk_free(arg);
}

/* Adds a page to the count. Returns true, after sending the answer, if it was the last. */
static bool count_page(struct list_walk *walk, struct api_call *call, const json_t *page)
{
    const json_t *next = json_object_get(page, "next");

    walk->counted += json_integer_value(json_object_get(page, "count"));
    if (next != NULL) {
        json_put(walk->question, "after", json_copy((json_t *)(uintptr_t)next));
        return false;
    }
    respond_json(call, 200,
                 json_pack("{s:I, s:O*}", "count", walk->counted, "failed", walk->failed));
    return true;
}

/* Sends the query of a list; takes it. */
static void ask_list(struct control *c, struct api_call *call, json_t *question)
{
    const json_t *max = json_object_get(question, "max");
    struct list_walk *walk;

    if (c->queue == NULL) {
        api_answer_error(call, 503, "the queue process is being restarted");
        json_decref(question);
        return;
    }
    if (c->ask_count >= ASKS_MAX) {
        api_answer_error(call, 503, "too many questions at once; ask again");
        json_decref(question);
        return;
    }
    walk = mem_new(sizeof *walk);
    walk->control = c;
    walk->question = question;
    walk->counts = strcmp(json_string_value(json_object_get(question, "op")), "count") == 0;
    walk->left = max == NULL ? LIST_PAGE_MESSAGES : json_integer_value(max);
    json_put(question, "bytes", json_integer(LIST_PAGE_BYTES));
    list_walk_on(walk, call);
}

/* Sends a page of a list, then requests the next or ends. Takes `walk`. */
static void list_page(struct list_walk *walk, struct api_call *call, unsigned status,
                      struct slice json)
{
    json_t *page, *next;
    struct buf text;
    size_t i;
    json_t *message;

    if (status != 200) {
        bool begun = walk->begun;

        list_walk_free(walk);
        if (begun) {
            api_answer_cut(call); /* the client has got status 200 already */
        } else {
            api_answer(call, status, "application/json", json);
        }
        return;
    }
    page = json_loadb(json.ptr, json.len, 0, NULL);
    CHECK(page != NULL); /* the queue process wrote it */
    if (walk->failed == NULL) {
        walk->failed = json_incref(json_object_get(page, "failed"));
    }
    if (walk->counts) {
        if (count_page(walk, call, page)) {
            list_walk_free(walk);
        } else {
            api_on_gone(call, list_walk_gone, walk);
            api_answer_wait(call, list_walk_on, walk);
        }
        json_decref(page);
        return;
    }
    next = json_incref(json_object_get(page, "next"));
    buf_init(&text, CHANNEL_BODY_MAX * 2ul);
    if (!walk->begun) {
        api_answer_begin(call, 200, "application/json");
        (void)buf_add_string(&text, "{\"messages\":["); /* far below the limit, as all appends
                                                         * here */
    }
    json_array_foreach(json_object_get(page, "messages"), i, message)
    {
        char *one = json_dumps(message, JSON_COMPACT);

        CHECK(one != NULL);
        (void)buf_addf(&text, "%s%s", walk->begun ? ",\n" : "\n", one);
        walk->begun = true;
        walk->left--;
        free(one);
    }
    walk->begun = true;
    json_decref(page);
    if (next == NULL || walk->left <= 0) {
        (void)buf_add_string(&text, "]");
        if (next != NULL) {
            (void)buf_addf(&text, ",\"next\":\"%s\"", json_string_value(next));
        }
        if (walk->failed != NULL) {
            char *failed = json_dumps(walk->failed, JSON_COMPACT);

            CHECK(failed != NULL);
            (void)buf_addf(&text, ",\"failed\":%s", failed);
            free(failed);
        }
        (void)buf_add_string(&text, "}");
        api_on_gone(call, NULL, NULL);
        api_answer_add(call, buf_slice(&text));
        api_answer_end(call);
        list_walk_free(walk);
    } else {
        json_put(walk->question, "after", json_incref(next));
        api_on_gone(call, list_walk_gone, walk);
        api_answer_add(call, buf_slice(&text));
        api_answer_wait(call, list_walk_on, walk);
    }
    json_decref(next);
    buf_fini(&text);
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

uint64_t control_ask_bytes(struct control *c, json_t *question, control_bytes_answered *answered,
                           void *arg)
{
    uint64_t name = control_ask(c, question, NULL, arg);

    if (name != 0) {
        ask_find(c, name)->bytes_answered = answered;
    }
    return name;
}

void control_forget(struct control *c, uint64_t name)
{
    struct ask *ask = ask_find(c, name);

    if (ask != NULL) {
        ask->bytes_answered = NULL;
        ask->answered = NULL;
    }
}

/* ---- the cluster ---------------------------------------------------------------------------- */

/* Takes an answer of "cluster" and sends it to all calls that wait for it. */
static void on_cluster_told(void *arg, unsigned status, const json_t *answer)
{
    struct control *c = arg;
    struct ask *ask, *next;

    c->cluster_ask = 0;
    json_decref(c->cluster);
    c->cluster = status == 200 ? json_incref((json_t *)(uintptr_t)answer) : NULL;
    c->cluster_told = clock_mono();
    if (c->cluster != NULL && c->sample != NULL) {
        cluster_counts_put(&c->counts, c->cluster, c->sample);
        series_add(c->series, c->sample, clock_wall());
    }
    json_decref(c->sample); /* without an answer the hour has a gap */
    c->sample = NULL;
    for (ask = TAILQ_FIRST(&c->asks); ask != NULL; ask = next) {
        struct api_call *call = ask->call;

        next = TAILQ_NEXT(ask, next);
        if (ask->kind != ASK_CLUSTER) {
            continue;
        }
        ask_free(c, ask);
        if (call == NULL) {
            continue;
        }
        api_on_gone(call, NULL, NULL);
        if (answer == NULL) {
            api_answer_error(call, status, "the queue process has not answered; ask again");
        } else {
            respond_json(call, status, json_incref((json_t *)(uintptr_t)answer));
        }
    }
}

static void ask_nodes(struct control *c)
{
    if (c->cluster_ask == 0) {
        c->cluster_ask = control_ask(c, json_pack("{s:s}", "op", "cluster"), on_cluster_told, c);
    }
    if (c->cluster_ask == 0) { /* too many queries */
        on_cluster_told(c, 503, NULL);
    }
}

/* Answers a call for the cluster. Only one query to all nodes is outstanding at a time, and its
 * answer is used again for a while. */
static void ask_cluster(struct control *c, struct api_call *call)
{
    bool is_new = !mono_reached(mono_after(c->cluster_told, CLUSTER_KEPT_US), clock_mono());

    if (c->cluster != NULL && is_new) {
        respond_json(call, 200, json_incref(c->cluster));
    } else if (c->queue == NULL) {
        api_answer_error(call, 503, "the queue process is being restarted");
    } else if (ask_new(c, call, ASK_CLUSTER) != NULL) {
        ask_nodes(c);
    }
}

/* Ends the query to all nodes, because the queue process has ended. */
static void cluster_lost(struct control *c)
{
    control_forget(c, c->cluster_ask);
    on_cluster_told(c, 503, NULL);
}

/* Passes an answer to a service and frees the query. */
static void answer_service(struct control *c, struct ask *ask, unsigned status, struct slice json,
                           struct slice bytes)
{
    control_bytes_answered *bytes_answered = ask->bytes_answered;
    control_answered *answered = ask->answered;
    void *arg = ask->arg;
    json_t *object = NULL;

    ask_free(c, ask);
    if (answered == NULL && bytes_answered == NULL) {
        return;
    }
    if (status == 200 || json.len > 0) {
        object = json_loadb(json.ptr, json.len, 0, NULL);
        CHECK(object != NULL); /* the queue process wrote it */
    }
    if (bytes_answered != NULL) {
        bytes_answered(arg, status, object, bytes);
    } else {
        answered(arg, status, object);
    }
    json_decref(object);
}

static void add_own_status(struct control *c, json_t *object)
{
    json_t *own = json_pack("{s:s, s:i, s:f}", "version", SLUICE_VERSION, "pid", (int)c->daemon_pid,
                            "uptime", (double)(clock_wall().us - c->started.us) / (double)US_PER_S);

    CHECK(own != NULL);
    CHECK(json_object_update_new(object, own) == 0);
}

static void answer_metrics(struct control *c, struct api_call *call, struct slice json,
                           struct slice processes)
{
    json_t *object = json_loadb(json.ptr, json.len, 0, NULL);

    CHECK(object != NULL); /* the queue process wrote it */
    add_own_status(c, object);
    respond_metrics(call, object, processes);
    json_decref(object);
}

/* Passes an answer on. Returns true if the descriptor was taken. */
static bool answer(struct control *c, const struct wire_answer *m, int fd)
{
    struct ask *ask = ask_find(c, m->token);
    struct list_walk *walk;
    struct api_call *call;
    enum ask_kind kind;
    json_t *object;

    if (ask == NULL) {
        return false;
    }
    if (ask->kind == ASK_SERVICE) {
        answer_service(c, ask, m->status, m->json, m->bytes);
        return false;
    }
    call = ask->call;
    kind = ask->kind;
    walk = ask->walk;
    if (call != NULL) {
        api_on_gone(call, NULL, NULL);
        if (kind == ASK_METRICS && m->status == 200) {
            answer_metrics(c, call, m->json, buf_slice(&ask->processes));
            call = NULL;
        }
    }
    ask_free(c, ask);
    if (call == NULL) {
        return false;
    }
    if (kind == ASK_LIST) {
        list_page(walk, call, m->status, m->json);
    } else if (m->status == 200 && kind == ASK_CONTENT) {
        respond_content(call, m->bytes, fd);
        return fd >= 0;
    } else if (m->status == 200 && kind == ASK_STATUS) {
        object = json_loadb(m->json.ptr, m->json.len, 0, NULL);
        CHECK(object != NULL); /* the queue process wrote it */
        add_own_status(c, object);
        respond_json(call, 200, object);
    } else {
        api_answer(call, m->status, "application/json", m->json);
    }
    return false;
}

/* Must the parent still answer? Afterwards the queue process is queried. */
static bool waits_for_parent(const struct ask *ask)
{
    return ask->kind == ASK_METRICS && buf_len(&ask->processes) == 0;
}

/* Ends a query without an answer, because the queue process has ended. */
static void queue_ended(struct control *c, struct ask *ask)
{
    struct list_walk *walk = ask->walk;
    struct api_call *call = ask->call;
    bool begun = walk != NULL && walk->begun;

    ask_free(c, ask);
    list_walk_free(walk);
    if (call == NULL) {
        return;
    }
    api_on_gone(call, NULL, NULL);
    if (begun) {
        api_answer_cut(call);
    } else {
        api_answer_error(call, 503, "the queue process ended; ask again");
    }
}

static void on_queue(void *arg, struct channel *ch)
{
    struct control *c = arg;
    struct wire_answer m;
    struct frame frame;
    enum channel_event event;
    struct ask *ask, *next;

    while ((event = channel_next(ch, &frame)) == CHANNEL_FRAME) {
        if (frame.type == WIRE_EVENTS_MORE) {
            event_feed_more(c->feed);
            continue;
        }
        if (frame.type == WIRE_DIALOGUE) {
            CHECK(dialogue_feed_heard(c->dialogues, frame.body));
            continue;
        }
        CHECK(frame.type == WIRE_ANSWER);
        CHECK(wire_get_answer(frame.body, &m));
        if (!answer(c, &m, frame.fd) && frame.fd >= 0) {
            (void)close(frame.fd); /* only read */
        }
    }
    if (event == CHANNEL_CLOSED) {
        channel_free(ch);
        c->queue = NULL;
        role_queue_lost(c->role);
        dialogue_feed_queue_lost(c->dialogues);
        cluster_lost(c);
        for (ask = TAILQ_FIRST(&c->asks); ask != NULL; ask = next) {
            next = TAILQ_NEXT(ask, next);
            if (ask->kind == ASK_SERVICE) {
                answer_service(c, ask, 503, SLICE(""), SLICE(""));
            } else if (ask->kind != ASK_RELOAD && !waits_for_parent(ask)) {
                queue_ended(c, ask);
            }
        }
    }
}

/* ---- requests ------------------------------------------------------------------------------- */

/* Is the Host field allowed? A web page must not reach the Unix socket through a proxy in the
 * browser, so Host must be a local name there. On TCP a token is needed, which no web page has. */
static bool host_allowed(const struct api_call *call)
{
    struct slice host = api_field(call, SLICE("Host"));
    static const char *const local[] = {"localhost", "127.0.0.1", "[::1]", "::1", ""};
    size_t colon = slice_find_last(host, ':');

    if (host.ptr == NULL || !api_is_local(call)) {
        return true;
    }
    if (colon < host.len && colon > 0 && slice_find(host, ']') + 1 == colon) {
        host.len = colon; /* a port after brackets */
    } else if (colon < host.len && slice_find(host, ':') == colon) {
        host.len = colon;
    }
    for (size_t i = 0; i < sizeof local / sizeof local[0]; i++) {
        if (slice_equal_nocase(host, slice_string(local[i]))) {
            return true;
        }
    }
    return false;
}

/* Sends the numbers of the last hour, of all mail or of a destination. */
static void answer_series(struct control *c, struct api_call *call, const json_t *question)
{
    const char *name =
        json_string_value(json_object_get(json_object_get(question, "filter"), "destination"));

    if (name != NULL && strchr(name, '/') == NULL) {
        api_answer_error(call, 400, "destination: transport/nexthop is expected");
        return;
    }
    respond_json(call, 200,
                 name == NULL ? series_json(c->series)
                              : series_destination_json(c->series, slice_string(name)));
}

static void move_clock(struct control *c, struct api_call *call, const json_t *question)
{
    const json_t *offset = json_object_get(question, "offset_seconds");
    json_int_t seconds = json_integer_value(offset);
    size_t known = 1 + (json_object_get(question, "op") != NULL);

    if (!c->role->conf->debug_clock) {
        api_answer_error(call, 400, "the clock moves only with debug_clock = yes");
    } else if (!json_is_integer(offset) || seconds < 0 || seconds > 100LL * 365 * 86400 ||
               json_object_size(question) != known) {
        api_answer_error(call, 400, "offset_seconds: a number of seconds is expected, alone");
    } else if (c->clock_call != NULL) {
        api_answer_error(call, 503, "the clock is being moved; ask again");
    } else {
        wire_put_number(c->role->parent, WIRE_SET_CLOCK, (uint64_t)(seconds * US_PER_S));
        c->clock_call = call;
        api_on_gone(call, clock_client_gone, c);
    }
}

static void ask_reload(struct control *c, struct api_call *call)
{
    struct ask *ask = ask_new(c, call, ASK_RELOAD);

    if (ask != NULL) {
        wire_put_number(c->role->parent, WIRE_RELOAD, ask->token);
    }
}

/* Answers a valid call; takes `question`. */
static void answer_call(struct control *c, struct api_call *call, const struct endpoint *endpoint,
                        json_t *question)
{
    switch (endpoint->kind) {
    case ENDPOINT_QUESTION:
        ask_queue(c, call, ASK_JSON, question);
        return;
    case ENDPOINT_STATUS:
        ask_queue(c, call, ASK_STATUS, question);
        return;
    case ENDPOINT_CLUSTER:
        ask_cluster(c, call);
        break;
    case ENDPOINT_CONTENT:
        ask_queue(c, call, ASK_CONTENT, question);
        return;
    case ENDPOINT_LIST:
        ask_list(c, call, question);
        return;
    case ENDPOINT_METRICS:
        ask_metrics(c, call);
        break;
    case ENDPOINT_SERIES:
        answer_series(c, call, question);
        break;
    case ENDPOINT_EVENTS:
        event_feed_call(c->feed, call, question);
        break;
    case ENDPOINT_TRACE:
        dialogue_feed_call(c->dialogues, call, question);
        break;
    case ENDPOINT_WHATIF:
        whatif_call(c->whatif, call, question);
        break;
    case ENDPOINT_DESCRIPTION:
        api_answer(call, 200, "application/json", endpoint_description());
        break;
    case ENDPOINT_RELOAD:
        ask_reload(c, call);
        break;
    case ENDPOINT_STOP:
        respond_json(call, 200, json_pack("{s:b}", "ok", 1));
        wire_put_empty(c->role->parent, WIRE_STOP_ALL);
        break;
    case ENDPOINT_CLOCK:
        move_clock(c, call, question);
        break;
    }
    json_decref(question);
}

/* Reads the body of a POST into *question. Returns false if it was refused. */
static bool read_body(struct api_call *call, const struct endpoint *endpoint, json_t **question)
{
    struct slice text = api_body(call);
    /* A form on another site's page can't send this type without permission. */
    bool is_json =
        slice_starts_nocase(api_field(call, SLICE("Content-Type")), SLICE("application/json"));
    char why[JSON_ERROR_TEXT_LENGTH + 128];
    json_error_t error;
    const char *name;
    json_t *body, *value;

    if (text.len > 0 && !is_json) {
        api_answer_error(call, 400, "Content-Type: application/json is expected");
        return false;
    }
    if (text.len == 0 && !endpoint->has_body) {
        return true;
    }
    body = json_loadb(text.ptr, text.len, JSON_REJECT_DUPLICATES, &error);
    if (!json_is_object(body)) {
        (void)snprintf(why, sizeof why, "body: a JSON object is expected%s%s",
                       body == NULL && text.len > 0 ? ": " : "",
                       body == NULL && text.len > 0 ? error.text : ""); /* fits */
        if (body == NULL && text.len > 0) {
            size_t len = strlen(why);

            (void)snprintf(why + len, sizeof why - len, ", line %d, column %d", error.line,
                           error.column); /* fits */
        }
        json_decref(body);
        api_answer_error(call, 400, why);
        return false;
    }
    json_object_foreach(body, name, value)
    {
        /* The command line always sends these two. Another member could be a misspelled
         * restriction. */
        if (!endpoint->has_body && strcmp(name, "op") != 0 && strcmp(name, "id") != 0) {
            api_answer_error(call, 400, "body: this call has no members; none, or {} is expected");
            json_decref(body);
            return false;
        }
    }
    json_decref(*question);
    *question = body;
    return true;
}

/* Converts a call to a query and sends it. `part` is the part of its path that is a name. */
static void understand(struct control *c, struct api_call *call, const struct endpoint *endpoint,
                       struct slice part)
{
    json_t *question = json_object();
    struct buf error;
    bool good;

    buf_init(&error, QUERY_ERROR_MAX);
    good = endpoint_read_query(endpoint, api_query(call), question, &error);
    if (!good) {
        api_answer_error(call, 400, buf_cstr(&error));
    }
    buf_fini(&error);
    if (!good ||
        (slice_equal(api_method(call), SLICE("POST")) && !read_body(call, endpoint, &question))) {
        json_decref(question);
        return;
    }
    if (endpoint->op != NULL) {
        json_put(question, "op", json_string(endpoint->op));
        if (strcmp(endpoint->op, "intervene") == 0) {
            json_put(question, "by", json_string(api_caller(call)));
        }
    }
    if (part.ptr != NULL) {
        json_put(question, "id", endpoint_decode(part));
    }
    answer_call(c, call, endpoint, question);
}

bool control_refuses(const struct control *c, int fd)
{
    struct ucred peer;
    socklen_t len = sizeof peer;

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) != 0 || peer.pid <= 0) {
        return false; /* TCP, or a process in another container */
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

/* Adds an exposed process, or removes one that has ended. Does nothing if the table is full. */
static void expose(struct control *c, pid_t pid, bool ended)
{
    for (size_t i = 0; i < EXPOSED_MAX; i++) {
        if (c->exposed[i] == (ended ? pid : 0)) {
            c->exposed[i] = ended ? 0 : pid;
            return;
        }
    }
}

/* Has the caller this right? Otherwise sends the refusal. */
static bool may(struct api_call *call, unsigned right, const char *name)
{
    char text[64];

    if ((api_rights(call) & right) != 0) {
        return true;
    }
    if (api_caller(call)[0] == '\0') {
        api_answer_field(call, "WWW-Authenticate: Bearer realm=\"sluice\"\r\n");
        api_answer_error(call, 401, "expected Authorization: Bearer TOKEN");
    } else {
        (void)snprintf(text, sizeof text, "the token lacks the right %s", name); /* fits */
        api_answer_error(call, 403, text);
    }
    return false;
}

static void on_call(void *arg, struct api_call *call)
{
    struct control *c = arg;
    struct slice method = api_method(call);
    bool post = slice_equal(method, SLICE("POST")), operates;
    const struct endpoint *endpoint;
    const char *allowed = NULL;
    const struct web_page *page;
    struct slice part;

    if (control_refuses(c, api_socket(call))) {
        api_answer_error(call, 403, "not to processes of this daemon that talk to the network");
        return;
    }
    if (!host_allowed(call)) {
        api_answer_error(call, 400, "the Host is not a local one");
        return;
    }
    if (!post && !slice_equal(method, SLICE("GET")) && !slice_equal(method, SLICE("HEAD"))) {
        api_answer_field(call, "Allow: GET, HEAD, POST\r\n");
        api_answer_error(call, 405, "GET, HEAD or POST is expected");
        return;
    }
    page = post ? NULL : web_page_find(api_path(call));
    if (page != NULL) { /* a browser loads it before it has a token */
        respond_page(call, page);
        return;
    }
    endpoint = endpoint_find(method, api_path(call), &part, &allowed);
    operates = endpoint == NULL ? post : endpoint->operates;
    if (!may(call, operates ? TOKEN_OPERATE : TOKEN_READ, operates ? "operate" : "read")) {
        return;
    }
    if (endpoint != NULL) {
        understand(c, call, endpoint, part);
    } else if (allowed != NULL) {
        api_answer_field(call, allowed);
        api_answer_error(call, 405, "this path has another method; see the field Allow");
    } else {
        api_answer_error(call, 404, "no such path; GET /v1/openapi.json lists them");
    }
}

/* ---- services ------------------------------------------------------------------------------- */

static const struct service *services[SERVICES_MAX];
static size_t service_count;

void service_register(const struct service *service)
{
    CHECK(service_count < SERVICES_MAX);
    services[service_count++] = service;
}

/* ---- samples of the last hour ---------------------------------------------------------------- */

static const struct timeval sample_step = {.tv_sec = SERIES_STEP_S};

static void on_sampled(void *arg, unsigned status, const json_t *answer)
{
    struct control *c = arg;

    if (status != 200) {
        return;
    }
    if (json_object_get(answer, "node") != NULL &&
        json_integer_value(json_object_get(answer, "nodes_up")) <= SERIES_NODES_MAX) {
        json_decref(c->sample);
        c->sample = json_copy((json_t *)(uintptr_t)answer);
        ask_nodes(c);
    } else {
        series_add(c->series, answer, clock_wall());
    }
}

static void on_sample(evutil_socket_t fd, short what, void *arg)
{
    struct control *c = arg;

    (void)fd;
    (void)what;
    /* Without an answer the hour has a gap. */
    (void)control_ask(c, json_pack("{s:s}", "op", "sample"), on_sampled, c);
}

/* ---- the role ------------------------------------------------------------------------------- */

static int control_start(struct role *role)
{
    struct control *c = mem_new(sizeof *c);

    role->state = c;
    c->role = role;
    c->started = clock_wall();
    c->daemon_pid = getppid(); /* getppid() is not allowed after confinement */
    TAILQ_INIT(&c->asks);
    c->server = api_server_new(role, on_call, c);
    c->series = series_new();
    c->sampler = event_new(role->base, -1, EV_PERSIST, on_sample, c);
    CHECK(c->sampler != NULL && event_add(c->sampler, &sample_step) == 0);
    c->feed = event_feed_new(c, role->base);
    c->dialogues = dialogue_feed_new(c, role->base);
    c->whatif = whatif_call_new(c, role->base);
    for (size_t i = 0; i < service_count; i++) {
        c->services[i] = services[i]->begin(role, c, c->daemon_pid);
    }
    return 0;
}

static void control_listener(struct role *role, struct slice url, int fd)
{
    struct control *c = role->state;

    for (size_t i = 0; i < service_count; i++) {
        if (slice_equal(slice_of(url.ptr, slice_find(url, ':')), slice_string(services[i]->name))) {
            services[i]->listener(c->services[i], url, fd);
            return;
        }
    }
    api_server_listen(c->server, url, fd);
}

static void control_peer(struct role *role, const struct wire_peer *peer, int fd)
{
    struct control *c = role->state;

    if (peer->role == ROLE_WHATIF) {
        whatif_call_peer(c->whatif, fd);
        return;
    }
    CHECK(peer->role == ROLE_QUEUE);
    if (c->queue != NULL) {
        struct channel *old = c->queue;
        channel_pause(old, true);
        channel_free(old);
        dialogue_feed_queue_lost(c->dialogues);
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

/* Takes the parent's numbers of processes, then queries the queue process for the rest of the
 * metrics. */
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
    if (ask->call == NULL || c->queue == NULL) {
        struct api_call *call = ask->call;

        ask_free(c, ask);
        if (call != NULL) {
            api_answer_error(call, 503, "the queue process is being restarted");
        }
        return true;
    }
    (void)buf_add(&ask->processes, m.text); /* fits: the same limit */
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
        struct api_call *call = ask->call;

        ask_free(c, ask);
        if (call != NULL) {
            object = m.ok ? json_pack("{s:b}", "ok", 1)
                          : json_pack("{s:s%}", "error", m.text.ptr, m.text.len);
            if (object == NULL) {
                object = json_pack("{s:s}", "error", "errors that are not UTF-8; see the log");
            }
            if (m.ok && m.text.len > 0) {
                (void)json_object_set_new(object, "warnings",
                                          json_stringn(m.text.ptr, m.text.len)); /* optional */
            }
            respond_json(call, m.ok ? 200 : 400, object);
        }
    }
    return true;
}

static void control_reload(struct role *role, const struct conf *old)
{
    struct control *c = role->state;

    (void)old;
    api_server_reload(c->server);
    for (size_t i = 0; i < service_count; i++) {
        services[i]->reload(c->services[i]);
    }
}

static void control_stop(struct role *role)
{
    role_exit(role, 0);
}

static void control_clock_moved(struct role *role)
{
    struct control *c = role->state;
    struct api_call *call = c->clock_call;

    if (call != NULL) {
        c->clock_call = NULL;
        api_on_gone(call, NULL, NULL);
        respond_json(call, 200, json_pack("{s:b}", "ok", 1));
    }
}

static void control_end(struct role *role)
{
    struct control *c = role->state;
    struct ask *ask;

    for (size_t i = 0; i < service_count; i++) {
        services[i]->end(c->services[i]);
    }
    whatif_call_free(c->whatif);
    api_server_free(c->server);
    event_feed_free(c->feed);
    dialogue_feed_free(c->dialogues);
    while ((ask = TAILQ_FIRST(&c->asks)) != NULL) {
        list_walk_free(ask->walk);
        ask_free(c, ask);
    }
    channel_free(c->queue);
    event_free(c->sampler);
    series_free(c->series);
    json_decref(c->cluster);
    json_decref(c->sample);
    cluster_counts_fini(&c->counts);
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
    .clock_moved = control_clock_moved,
    .stop = control_stop,
    .end = control_end,
};
