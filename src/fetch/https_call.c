#include "https_call.h"

#include <curl/curl.h>
#include <event2/event.h>
#include <stdio.h>
#include <string.h>
#include <sys/queue.h>

#include "buf.h"
#include "check.h"
#include "mem.h"
#include "tls.h"

#define URL_MAX   1024
#define ERROR_MAX 512

/* Socket of libcurl that the loop watches. */
struct watched {
    struct event *event;
    LIST_ENTRY(watched) next;
};

struct https_call {
    struct event_base *base;
    https_done *done;
    void *arg;
    CURLM *multi;
    CURL *easy;
    struct curl_slist *resolve, *fields;
    struct event *timer;
    LIST_HEAD(, watched) sockets;
    char *host;
    struct buf body;
    size_t header_size;
    char text[CURL_ERROR_SIZE]; /* libcurl's error text */
    char error[ERROR_MAX];      /* error of the call; empty if none */
    bool ended;
    bool posts;
    bool is_address;
};

void https_begin(void)
{
    CHECK(curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK);
}

/* ---- the reply ------------------------------------------------------------------------------ */

static void fail(struct https_call *g, const char *why)
{
    if (g->error[0] == '\0') {
        (void)snprintf(g->error, sizeof g->error, "%s", why); /* may be cut */
    }
}

static size_t on_body(char *bytes, size_t one, size_t len, void *arg)
{
    struct https_call *g = arg;

    (void)one;
    if (!buf_add(&g->body, slice_of(bytes, len))) {
        char why[64];

        (void)snprintf(why, sizeof why, "it is longer than %zu bytes", g->body.limit); /* fits */
        fail(g, why);
        return 0; /* ends the transfer */
    }
    return len;
}

static size_t on_header(char *bytes, size_t one, size_t len, void *arg)
{
    struct https_call *g = arg;

    (void)bytes;
    (void)one;
    g->header_size += len;
    if (g->header_size > HTTPS_HEADER_MAX) {
        fail(g, "the header of the reply is longer than 65536 bytes");
        return 0;
    }
    return len;
}

static CURLcode on_tls(CURL *easy, void *context, void *arg)
{
    struct https_call *g = arg;

    (void)easy;
    if (g->is_address) {
        return CURLE_OK; /* libcurl compares the address */
    }
    return tls_demand_dns_id(context, g->host) ? CURLE_OK : CURLE_SSL_CERTPROBLEM;
}

static bool is_plain_text(const char *type)
{
    struct slice rest = slice_string(type), media = slice_cut(&rest, ';');

    return slice_equal_nocase(slice_trim(media), SLICE("text/plain"));
}

static void judge(struct https_call *g, CURLcode result)
{
    const char *type = NULL;
    char why[ERROR_MAX];
    long status = 0;

    if (result != CURLE_OK) {
        fail(g, g->text[0] != '\0' ? g->text : curl_easy_strerror(result));
        return;
    }
    CHECK(curl_easy_getinfo(g->easy, CURLINFO_RESPONSE_CODE, &status) == CURLE_OK);
    CHECK(curl_easy_getinfo(g->easy, CURLINFO_CONTENT_TYPE, &type) == CURLE_OK);
    if (g->posts) {
        if (status / 100 != 2) {
            (void)snprintf(why, sizeof why, "expected a status of 200 to 299, got %ld",
                           status); /* fits */
            fail(g, why);
        }
    } else if (status != 200) {
        (void)snprintf(why, sizeof why, "the status is %ld, not 200", status); /* fits */
        fail(g, why);
    } else if (!is_plain_text(type)) {
        (void)snprintf(why, sizeof why, "the media type is %.100s, not text/plain",
                       type == NULL ? "missing" : type); /* fits */
        fail(g, why);
    }
}

/* Handles the end of the transfer. */
static void look(struct https_call *g)
{
    int left;
    CURLMsg *message = curl_multi_info_read(g->multi, &left);

    if (message != NULL && message->msg == CURLMSG_DONE && !g->ended) {
        g->ended = true;
        judge(g, message->data.result);
        g->done(g->arg, g);
    }
}

/* ---- libcurl in the loop -------------------------------------------------------------------- */

static void on_socket(evutil_socket_t fd, short what, void *arg)
{
    struct https_call *g = arg;
    int running, flags = ((what & EV_READ) != 0 ? CURL_CSELECT_IN : 0) |
                         ((what & EV_WRITE) != 0 ? CURL_CSELECT_OUT : 0);

    CHECK(curl_multi_socket_action(g->multi, fd, flags, &running) == CURLM_OK);
    look(g);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    struct https_call *g = arg;
    int running;

    (void)fd;
    (void)what;
    CHECK(curl_multi_socket_action(g->multi, CURL_SOCKET_TIMEOUT, 0, &running) == CURLM_OK);
    look(g);
}

static void watched_free(struct watched *w)
{
    LIST_REMOVE(w, next);
    event_free(w->event);
    mem_free(w);
}

static int watch(CURL *easy, curl_socket_t fd, int what, void *arg, void *socket_arg)
{
    struct https_call *g = arg;
    struct watched *w = socket_arg;
    short events = EV_PERSIST;

    (void)easy;
    if (w != NULL) {
        watched_free(w);
        w = NULL;
    }
    if (what != CURL_POLL_REMOVE) {
        events |= (what & CURL_POLL_IN) != 0 ? EV_READ : 0;
        events |= (what & CURL_POLL_OUT) != 0 ? EV_WRITE : 0;
        w = mem_new(sizeof *w);
        w->event = event_new(g->base, fd, events, on_socket, g);
        CHECK(w->event != NULL);
        CHECK(event_add(w->event, NULL) == 0);
        LIST_INSERT_HEAD(&g->sockets, w, next);
    }
    CHECK(curl_multi_assign(g->multi, fd, w) == CURLM_OK);
    return 0;
}

static int set_timer(CURLM *multi, long ms, void *arg)
{
    struct https_call *g = arg;
    struct timeval delay = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};

    (void)multi;
    CHECK(ms < 0 ? event_del(g->timer) == 0 : event_add(g->timer, &delay) == 0);
    return 0;
}

/* ---- a request ------------------------------------------------------------------------------ */

/* Sets the options of every request. */
static bool set_rules(struct https_call *g, bool in_clear)
{
    CURL *e = g->easy;

    return curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, in_clear ? "http" : "https") == CURLE_OK &&
           curl_easy_setopt(e, CURLOPT_FOLLOWLOCATION, 0L) == CURLE_OK &&
           curl_easy_setopt(e, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1) == CURLE_OK &&
           curl_easy_setopt(e, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2) == CURLE_OK &&
           curl_easy_setopt(e, CURLOPT_SSL_VERIFYPEER, 1L) == CURLE_OK &&
           curl_easy_setopt(e, CURLOPT_SSL_VERIFYHOST, 2L) == CURLE_OK &&
           curl_easy_setopt(e, CURLOPT_CAINFO, NULL) == CURLE_OK &&
           curl_easy_setopt(e, CURLOPT_CAPATH, NULL) == CURLE_OK &&
           curl_easy_setopt(e, CURLOPT_PROXY, "") == CURLE_OK && /* ignores the environment */
           curl_easy_setopt(e, CURLOPT_NETRC, (long)CURL_NETRC_IGNORED) == CURLE_OK &&
           curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L) == CURLE_OK &&
           curl_easy_setopt(e, CURLOPT_FRESH_CONNECT, 1L) == CURLE_OK &&
           curl_easy_setopt(e, CURLOPT_FORBID_REUSE, 1L) == CURLE_OK &&
           curl_easy_setopt(e, CURLOPT_USERAGENT, "sluice/" SLUICE_VERSION) == CURLE_OK &&
           curl_easy_setopt(e, CURLOPT_SSL_CTX_FUNCTION, on_tls) == CURLE_OK &&
           curl_easy_setopt(e, CURLOPT_SSL_CTX_DATA, g) == CURLE_OK &&
           curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, on_body) == CURLE_OK &&
           curl_easy_setopt(e, CURLOPT_WRITEDATA, g) == CURLE_OK &&
           curl_easy_setopt(e, CURLOPT_HEADERFUNCTION, on_header) == CURLE_OK &&
           curl_easy_setopt(e, CURLOPT_HEADERDATA, g) == CURLE_OK &&
           curl_easy_setopt(e, CURLOPT_ERRORBUFFER, g->text) == CURLE_OK;
}

/* Sets a POST. The empty field Expect keeps libcurl from waiting for 100 before it sends the
 * body. */
static bool set_post(struct https_call *g, const struct https_request *request)
{
    g->fields = curl_slist_append(NULL, "Expect:");
    for (size_t i = 0; g->fields != NULL && request->fields[i] != NULL; i++) {
        struct curl_slist *longer = curl_slist_append(g->fields, request->fields[i]);

        if (longer == NULL) {
            return false;
        }
        g->fields = longer;
    }
    return g->fields != NULL &&
           curl_easy_setopt(g->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)request->body.len) ==
               CURLE_OK &&
           curl_easy_setopt(g->easy, CURLOPT_POSTFIELDS, request->body.ptr) == CURLE_OK &&
           curl_easy_setopt(g->easy, CURLOPT_HTTPHEADER, g->fields) == CURLE_OK;
}

static bool set_request(struct https_call *g, const struct https_request *request)
{
    struct curl_blob authorities = {.data = (void *)(uintptr_t)request->authorities.ptr,
                                    .len = request->authorities.len,
                                    .flags = CURL_BLOB_COPY};
    bool is_ipv6 = strchr(request->host, ':') != NULL, ok = true;
    struct buf text;

    buf_init(&text, strlen(request->addresses) + URL_MAX);
    if (!g->is_address) {
        ok = buf_addf(&text, "%s:%u:%s", request->host, request->port, request->addresses);
        g->resolve = curl_slist_append(NULL, buf_cstr(&text));
        ok = g->resolve != NULL &&
             curl_easy_setopt(g->easy, CURLOPT_RESOLVE, g->resolve) == CURLE_OK;
    }
    buf_clear(&text);
    ok = ok &&
         buf_addf(&text, "http%s://%s%s%s:%u%s", request->in_clear ? "" : "s", is_ipv6 ? "[" : "",
                  request->host, is_ipv6 ? "]" : "", request->port, request->path) &&
         curl_easy_setopt(g->easy, CURLOPT_URL, buf_cstr(&text)) == CURLE_OK &&
         curl_easy_setopt(g->easy, CURLOPT_CAINFO_BLOB, &authorities) == CURLE_OK;
    buf_fini(&text);
    return ok && (!request->posts || set_post(g, request));
}

struct https_call *https_call_new(struct event_base *base, const struct https_request *request,
                                  https_done *done, void *arg)
{
    struct https_call *g = mem_new(sizeof *g);

    g->base = base;
    g->done = done;
    g->arg = arg;
    g->host = mem_string(request->host);
    g->posts = request->posts;
    g->is_address = request->addresses[0] == '\0';
    LIST_INIT(&g->sockets);
    buf_init(&g->body, request->size_max);
    g->timer = evtimer_new(base, on_timer, g);
    CHECK(g->timer != NULL);
    g->multi = curl_multi_init();
    g->easy = curl_easy_init();
    if (g->multi == NULL || g->easy == NULL ||
        curl_multi_setopt(g->multi, CURLMOPT_SOCKETFUNCTION, watch) != CURLM_OK ||
        curl_multi_setopt(g->multi, CURLMOPT_SOCKETDATA, g) != CURLM_OK ||
        curl_multi_setopt(g->multi, CURLMOPT_TIMERFUNCTION, set_timer) != CURLM_OK ||
        curl_multi_setopt(g->multi, CURLMOPT_TIMERDATA, g) != CURLM_OK ||
        !set_rules(g, request->in_clear) || !set_request(g, request) ||
        curl_multi_add_handle(g->multi, g->easy) != CURLM_OK) {
        https_call_free(g);
        return NULL;
    }
    return g;
}

void https_call_free(struct https_call *g)
{
    struct watched *w;

    if (g == NULL) {
        return;
    }
    g->ended = true;
    if (g->multi != NULL && g->easy != NULL) {
        (void)curl_multi_remove_handle(g->multi, g->easy); /* fails if it was not added */
    }
    curl_easy_cleanup(g->easy);
    (void)curl_multi_cleanup(g->multi); /* refuses NULL without effect */
    curl_slist_free_all(g->resolve);
    curl_slist_free_all(g->fields);
    while ((w = LIST_FIRST(&g->sockets)) != NULL) {
        watched_free(w);
    }
    event_free(g->timer);
    buf_fini(&g->body);
    mem_free(g->host);
    mem_free(g);
}

const char *https_call_error(const struct https_call *g)
{
    return g->error[0] == '\0' ? NULL : g->error;
}

struct slice https_call_body(const struct https_call *g)
{
    return buf_slice(&g->body);
}
