#include "ask.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#include <curl/curl.h>

#include "buf.h"
#include "check.h"
#include "gate.h"
#include "listing.h"
#include "mem.h"
#include "question.h"
#include "spool.h"
#include "spool_secret.h"
#include "words.h"

#define ANSWER_MAX       (256u << 20) /* bytes; a page of messages with long reasons is 20 MiB */
#define CONNECT_SECONDS  10L
#define SILENCE_SECONDS  300L /* a daemon that is silent for longer hangs */
#define CONTENT_PIECE    65536u
#define SPOOL_INLINE_BUF (SPOOL_INLINE_MAX + 1)

struct ask {
    const struct conf *conf; /* borrowed */
    CURL *curl;              /* HTTP client; NULL until needed; kept for its connection */
    struct spool *spool;     /* spool without a daemon; NULL while the daemon answers */
    /* spool with all mail of a cluster, while the daemon has only its own; NULL until needed */
    struct spool *cluster;
};

struct ask *ask_new(const struct conf *conf)
{
    struct ask *a = mem_new(sizeof *a);

    a->conf = conf;
    return a;
}

void ask_free(struct ask *a)
{
    if (a->curl != NULL) {
        curl_easy_cleanup(a->curl);
        curl_global_cleanup();
    }
    spool_close(a->spool);
    spool_close(a->cluster);
    mem_free(a);
}

bool ask_is_offline(const struct ask *a)
{
    return a->spool != NULL;
}

/* ---- by HTTP -------------------------------------------------------------------------------- */

/* Target of a response's bytes: `sink`, if there is one, for a response with status 200. */
struct response {
    CURL *curl;
    struct buf text;
    ask_sink *sink;
    void *arg;
    bool sink_ended;
};

static size_t on_bytes(char *bytes, size_t size, size_t count, void *arg)
{
    struct response *r = arg;
    struct slice piece = slice_of(bytes, size * count);
    long status = 0;

    (void)curl_easy_getinfo(r->curl, CURLINFO_RESPONSE_CODE, &status); /* 0 on error */
    if (r->sink != NULL && status == (long)ASK_OK) {
        r->sink_ended = !r->sink(r->arg, piece);
        return r->sink_ended ? 0 : piece.len;
    }
    return buf_add(&r->text, piece) ? piece.len : 0;
}

static void option(CURLcode rc)
{
    CHECK(rc == CURLE_OK); /* fails only for options unknown to libcurl, or without memory */
}

static void start_curl(struct ask *a)
{
    option(curl_global_init(CURL_GLOBAL_NOTHING));
    a->curl = curl_easy_init();
    CHECK(a->curl != NULL);
}

static struct curl_slist *prepare(struct ask *a, struct request *request, struct response *r)
{
    struct curl_slist *headers = curl_slist_append(NULL, "Content-Type: application/json");
    struct buf url;

    CHECK(headers != NULL);
    curl_easy_reset(a->curl); /* keeps the connection */
    buf_init(&url, QUESTION_URL_MAX + 64);
    (void)buf_addf(&url, "http://localhost%s", buf_cstr(&request->url)); /* fits */
    option(curl_easy_setopt(a->curl, CURLOPT_URL, buf_cstr(&url)));
    buf_fini(&url);
    option(curl_easy_setopt(a->curl, CURLOPT_UNIX_SOCKET_PATH, a->conf->control_socket));
    option(curl_easy_setopt(a->curl, CURLOPT_PROTOCOLS_STR, "http"));
    option(curl_easy_setopt(a->curl, CURLOPT_PATH_AS_IS, 1L));
    option(curl_easy_setopt(a->curl, CURLOPT_PROXY, ""));
    option(curl_easy_setopt(a->curl, CURLOPT_NOSIGNAL, 1L));
    option(curl_easy_setopt(a->curl, CURLOPT_CONNECTTIMEOUT, CONNECT_SECONDS));
    option(curl_easy_setopt(a->curl, CURLOPT_LOW_SPEED_LIMIT, 1L));
    option(curl_easy_setopt(a->curl, CURLOPT_LOW_SPEED_TIME, SILENCE_SECONDS));
    option(curl_easy_setopt(a->curl, CURLOPT_WRITEFUNCTION, on_bytes));
    option(curl_easy_setopt(a->curl, CURLOPT_WRITEDATA, r));
    option(curl_easy_setopt(a->curl, CURLOPT_HTTPHEADER, headers));
    if (request->post) {
        option(curl_easy_setopt(a->curl, CURLOPT_POSTFIELDS,
                                request->body == NULL ? "" : request->body));
    }
    return headers;
}

/* Makes the answer for a query without a response. */
static unsigned no_answer(struct ask *a, CURLcode rc, json_t **ret_answer)
{
    const char *path = a->conf->control_socket;
    long error = 0;

    (void)curl_easy_getinfo(a->curl, CURLINFO_OS_ERRNO, &error); /* 0 on error */
    if (rc == CURLE_COULDNT_CONNECT && (error == ENOENT || error == ECONNREFUSED)) {
        return listing_error(ASK_NO_DAEMON, ret_answer, "the daemon is not running (%s: %s)", path,
                             strerror((int)error));
    }
    if (rc == CURLE_COULDNT_CONNECT && (error == EACCES || error == EPERM)) {
        return listing_error(ASK_DENIED, ret_answer, "%s: %s", path, strerror((int)error));
    }
    return listing_error(503, ret_answer, "%s: %s", path,
                         rc == CURLE_COULDNT_CONNECT && error != 0 ? strerror((int)error)
                                                                   : curl_easy_strerror(rc));
}

static unsigned parse_answer(long status, struct response *r, json_t **ret_answer)
{
    struct slice text = buf_slice(&r->text);
    json_t *object = json_loadb(text.ptr == NULL ? "" : text.ptr, text.len, 0, NULL);

    if (!json_is_object(object)) {
        json_decref(object);
        return listing_error(503, ret_answer, "the daemon's answer (%ld) is no JSON object",
                             status);
    }
    *ret_answer = object;
    return (unsigned)status;
}

/* Sends a query. `sink` takes the bytes of a good answer; without a sink the answer is JSON. */
static unsigned ask_http(struct ask *a, const json_t *question, ask_sink *sink, void *arg,
                         json_t **ret_answer)
{
    struct response r = {.sink = sink, .arg = arg};
    struct curl_slist *headers;
    struct request request;
    unsigned status;
    long http_status = 0;
    CURLcode rc;

    request_init(&request, question);
    if (request.url.failed) {
        request_fini(&request);
        return listing_error(400, ret_answer, "the question is too long");
    }
    if (a->curl == NULL) {
        start_curl(a);
    }
    r.curl = a->curl;
    buf_init(&r.text, ANSWER_MAX);
    headers = prepare(a, &request, &r);
    rc = curl_easy_perform(a->curl);
    (void)curl_easy_getinfo(a->curl, CURLINFO_RESPONSE_CODE, &http_status); /* 0 on error */
    if (r.sink_ended) {
        status = ASK_OK; /* the sink had its own reason */
    } else if (rc != CURLE_OK) {
        status = no_answer(a, rc, ret_answer);
    } else if (sink != NULL && http_status == (long)ASK_OK) {
        status = ASK_OK;
    } else {
        status = parse_answer(http_status, &r, ret_answer);
    }
    curl_slist_free_all(headers);
    buf_fini(&r.text);
    request_fini(&request);
    return status;
}

/* ---- from the spool ------------------------------------------------------------------------- */

static int open_spool(const struct ask *a, struct spool **ret_spool, struct buf *ret_error)
{
    struct spool_options options = {0};
    struct buf secret;
    int rc;

    buf_init(&secret, SPOOL_SECRET_MAX);
    rc = spool_secret_read(a->conf, &secret, ret_error);
    if (rc == 0) {
        options.secret = buf_slice(&secret);
        rc = spool_open(a->conf->spool, SPOOL_OPEN_READ, &options, ret_error, ret_spool);
    }
    buf_wipe(&secret);
    return rc;
}

/* Opens the spool because there is no daemon. On failure the answer has both reasons. */
static bool go_offline(struct ask *a, json_t **answer)
{
    struct spool_event event;
    struct buf error;
    int rc;

    buf_init(&error, 8192);
    rc = open_spool(a, &a->spool, &error);
    if (rc == 0) {
        fprintf(stderr, "sluice: %s; reading the spool itself\n", member_text(*answer, "error"));
        if (buf_len(&error) > 0) { /* the library has skipped a host */
            fprintf(stderr, "sluice: %.*s\n", SLICE_ARGS(slice_trim(buf_slice(&error))));
        }
        while (spool_next_event(a->spool, &event)) {
            fprintf(stderr, "sluice: %.*s\n", SLICE_ARGS(event.text));
        }
        json_decref(*answer);
    } else {
        char *first = mem_string(member_text(*answer, "error"));

        json_decref(*answer);
        (void)listing_error(ASK_NO_DAEMON, answer, "%s, and its spool can't be read: %s", first,
                            error.failed ? strerror(-rc) : buf_cstr(&error));
        mem_free(first);
    }
    buf_fini(&error);
    return rc == 0;
}

/* Opens the database of a cluster if the daemon has no answer. The database has all mail: that of
 * other nodes, and that which is not in the daemon's memory. Returns false if it can't be read or
 * there is no cluster; the answer stays as it is. */
static bool go_to_cluster(struct ask *a, unsigned status)
{
    struct buf error;

    if (a->cluster == NULL && (status == 404 || status == 503) &&
        slice_starts(slice_string(a->conf->spool), SLICE(CONF_SPOOL_CLUSTER))) {
        buf_init(&error, 8192);
        (void)open_spool(a, &a->cluster, &error); /* the daemon's error is reported instead */
        buf_fini(&error);
    }
    return a->cluster != NULL && (status == 404 || status == 503);
}

/* Can the spool alone answer this operation? */
static bool spool_knows(const char *op)
{
    return listing_knows(op) || strcmp(op, "why") == 0;
}

static unsigned ask_spool(const struct ask *a, struct spool *sp, const json_t *question,
                          json_t **ret_answer)
{
    struct wall now = {(int64_t)(words_now() * (double)US_PER_S)};

    if (strcmp(member_text(question, "op"), "why") == 0) {
        return gate_ask_offline(sp, a->conf, question, now, ret_answer);
    }
    return listing_ask(sp, question, now, ret_answer);
}

unsigned ask_json(struct ask *a, const json_t *question, json_t **ret_answer)
{
    unsigned status;

    if (a->spool != NULL) {
        return ask_spool(a, a->spool, question, ret_answer);
    }
    status = ask_http(a, question, NULL, NULL, ret_answer);
    if (status == ASK_NO_DAEMON && spool_knows(member_text(question, "op")) &&
        go_offline(a, ret_answer)) {
        return ask_spool(a, a->spool, question, ret_answer);
    }
    if (listing_knows(member_text(question, "op")) && go_to_cluster(a, status)) {
        json_decref(*ret_answer);
        return ask_spool(a, a->cluster, question, ret_answer);
    }
    return status;
}

static int content_from_file(int fd, ask_sink *sink, void *arg)
{
    char piece[CONTENT_PIECE];

    for (;;) {
        ssize_t n = read(fd, piece, sizeof piece);

        if (n < 0 && errno != EINTR) {
            return -errno;
        }
        if (n == 0 || (n > 0 && !sink(arg, slice_of(piece, (size_t)n)))) {
            return 0;
        }
    }
}

static unsigned content_from_spool(struct spool *sp, const char *id, ask_sink *sink, void *arg,
                                   json_t **ret_answer)
{
    struct msg_id number;
    unsigned status = listing_id(sp, id, &number, ret_answer);
    struct buf bytes;
    uint64_t size;
    int fd = -1, rc;

    if (status != ASK_OK) {
        return status;
    }
    buf_init(&bytes, SPOOL_INLINE_BUF);
    rc = spool_read_content(sp, number, &bytes, &fd, &size);
    if (rc != 0) {
        status = rc == -ENOENT
                     ? listing_error(404, ret_answer, "%s: no such message", id)
                     : listing_error(rc == -EBADMSG ? 409 : 503, ret_answer, "%s", spool_error(sp));
    } else if (fd < 0) {
        (void)sink(arg, buf_slice(&bytes)); /* the only piece */
    } else {
        rc = content_from_file(fd, sink, arg);
        if (rc != 0) {
            status = listing_error(503, ret_answer, "%s: %s", id, strerror(-rc));
        }
        (void)close(fd); /* only read */
    }
    buf_fini(&bytes);
    return status;
}

unsigned ask_content(struct ask *a, const char *id, ask_sink *sink, void *arg, json_t **ret_answer)
{
    json_t *question = json_pack("{s:s, s:s}", "op", "cat", "id", id);
    unsigned status = ASK_NO_DAEMON;

    if (question == NULL) {
        return listing_error(400, ret_answer, "a queue id is expected");
    }
    if (a->spool == NULL) {
        status = ask_http(a, question, sink, arg, ret_answer);
    }
    json_decref(question);
    if (a->spool != NULL || (status == ASK_NO_DAEMON && go_offline(a, ret_answer))) {
        status = content_from_spool(a->spool, id, sink, arg, ret_answer);
    } else if (go_to_cluster(a, status)) {
        json_decref(*ret_answer);
        status = content_from_spool(a->cluster, id, sink, arg, ret_answer);
    }
    return status;
}

unsigned ask_stream(struct ask *a, const json_t *question, ask_sink *sink, void *arg,
                    json_t **ret_answer)
{
    return ask_http(a, question, sink, arg, ret_answer);
}

/* ---- failures ------------------------------------------------------------------------------- */

int ask_failed(unsigned status, json_t *answer)
{
    put_error(member_text(answer, "error"));
    json_decref(answer);
    switch (status) {
    case ASK_NO_DAEMON:
        return EX_UNAVAILABLE;
    case ASK_DENIED:
        return EX_NOPERM;
    case 400:
        return EX_USAGE;
    case 404:
        return EX_NOINPUT;
    case 409:
        return EX_DATAERR;
    default:
        return EX_TEMPFAIL;
    }
}
