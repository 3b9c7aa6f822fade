#include "hook.h"

#include <arpa/inet.h>
#include <event2/event.h>
#include <inttypes.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#include "check.h"
#include "clock.h"
#include "entropy.h"
#include "hook_list.h"
#include "host_addresses.h"
#include "https_call.h"
#include "log.h"
#include "mem.h"
#include "printable.h"
#include "dns_link.h"
#include "resolver.h"
#include "rng.h"
#include "tls.h"
#include "worker.h"

#define FIELD_MAX 512u
/* Size of the JSON around the events. */
#define FRAME_MAX 512u
/* A wait is longer by up to this part, at random, so that hooks of one host do not return all at
 * once. */
#define JITTER_PART 4u

enum hook_state {
    HOOK_AWAY,   /* without a queue process */
    HOOK_ASKED,  /* waiting for events from the queue process */
    HOOK_NAMES,  /* looking up addresses */
    HOOK_CALL,   /* calling the hook */
    HOOK_FAILED, /* waiting for the next call, at `until` */
    HOOK_RESTS,  /* waiting to request the next events, at `until` */
};

struct caller {
    struct hooks *all;
    const struct hook *hook; /* element of all->list */
    enum hook_state state;
    struct buf body, letters;
    uint64_t last;  /* last event of the call */
    uint64_t first; /* first event of the call, for a header field */
    struct host_addresses *addresses;
    struct https_call *call;
    struct event *timer; /* ends NAMES, CALL, FAILED and RESTS */
    struct mono until;
    struct mono asked; /* time when the last events were received */
    bool is_full;      /* whether more events may be waiting */
    unsigned failures; /* number of failures in a row */
    struct mono failing_since;
    char field_time[FIELD_MAX], field_events[FIELD_MAX], field_name[FIELD_MAX];
    const char *fields[5];
};

struct hooks {
    struct worker worker;
    struct role *role;
    struct dns_link *dns;
    struct resolver *resolver;
    struct rng rng;
    struct buf system; /* certificates of the system's authorities */
    struct hook_list *list;
    struct caller callers[HOOKS_MAX];
};

static void ask(struct caller *c);
static void begin_call(struct caller *c);

/* ---- waiting -------------------------------------------------------------------------------- */

static void wait_us(struct caller *c, enum hook_state state, int64_t us)
{
    struct timeval delay = {.tv_sec = us / US_PER_S, .tv_usec = us % US_PER_S};

    c->state = state;
    c->until = mono_after(clock_mono(), us);
    CHECK(event_add(c->timer, &delay) == 0);
}

/* Ends the look-up, the call and the timer. */
static void end_call(struct caller *c)
{
    host_addresses_free(c->addresses);
    https_call_free(c->call);
    c->addresses = NULL;
    c->call = NULL;
    CHECK(event_del(c->timer) == 0);
}

static void rest(struct caller *c)
{
    int64_t left = c->is_full
                       ? 0 /* more may be waiting; a delay only pays for few events */
                       : c->all->role->conf->web_hook_wait_us - (clock_mono().us - c->asked.us);

    wait_us(c, HOOK_RESTS, left > 0 ? left : 0);
}

/* ---- result of a call ----------------------------------------------------------------------- */

static void done(struct caller *c, bool given_up)
{
    struct wire_hook_done m = {.name = slice_string(c->hook->name),
                               .last = c->last,
                               .given_up = given_up,
                               .letters = given_up ? buf_slice(&c->letters) : SLICE("")};

    end_call(c);
    if (c->failures > 0) {
        wire_put_hook_failing(
            c->all->worker.queue,
            &(struct wire_hook_failing){.name = slice_string(c->hook->name), .why = SLICE("")});
        log_info("web hook %s: %s", c->hook->name,
                 given_up ? "the next events are tried" : "it takes events again");
    }
    c->failures = 0;
    wire_put_hook_done(c->all->worker.queue, &m);
    buf_clear(&c->body);
    buf_clear(&c->letters);
    rest(c);
}

static int64_t retry_us(struct caller *c)
{
    const struct conf *conf = c->all->role->conf;
    unsigned doubled = c->failures < 40 ? c->failures - 1 : 39;
    int64_t us = conf->web_hook_retry_min_us;

    for (unsigned i = 0; i < doubled && us < conf->web_hook_retry_max_us; i++) {
        us *= 2;
    }
    us = us < conf->web_hook_retry_max_us ? us : conf->web_hook_retry_max_us;
    return us + (int64_t)rng_below(&c->all->rng, (uint64_t)us / JITTER_PART + 1);
}

static void failed(struct caller *c, const char *why)
{
    const struct conf *conf = c->all->role->conf;
    char text[WIRE_TEXT_MAX];

    (void)snprintf(text, sizeof text, "%s", why); /* may be cut */
    printable_fix(text, strlen(text));            /* may contain text of hosts */
    end_call(c);
    if (c->failures++ == 0) {
        c->failing_since = clock_mono();
        log_warning("web hook %s: %s; it is called again until web_hook_give_up_time",
                    c->hook->name, text);
    }
    wire_put_hook_failing(c->all->worker.queue,
                          &(struct wire_hook_failing){.name = slice_string(c->hook->name),
                                                      .why = slice_string(text)});
    if (mono_reached(mono_after(c->failing_since, conf->web_hook_give_up_time_us), clock_mono())) {
        log_warning("web hook %s: events %" PRIu64 " to %" PRIu64 " were not taken within "
                    "web_hook_give_up_time: they are dead letters",
                    c->hook->name, c->first, c->last);
        done(c, true);
        return;
    }
    wait_us(c, HOOK_FAILED, retry_us(c));
}

static void on_called(void *arg, struct https_call *call)
{
    struct caller *c = arg;
    const char *why = https_call_error(call);

    if (why != NULL) {
        char text[WIRE_TEXT_MAX];

        (void)snprintf(text, sizeof text, "%s", why); /* a copy, as the call is freed */
        failed(c, text);
    } else {
        done(c, false);
    }
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    struct caller *c = arg;

    (void)fd;
    (void)what;
    switch (c->state) {
    case HOOK_NAMES:
    case HOOK_CALL:
        failed(c, "no answer within web_hook_timeout");
        return;
    case HOOK_FAILED:
        begin_call(c);
        return;
    case HOOK_RESTS:
        ask(c);
        return;
    case HOOK_AWAY:
    case HOOK_ASKED:
        return;
    }
}

/* ---- a call --------------------------------------------------------------------------------- */

/* Makes the field "Sluice-Signature: t=SECONDS,v1=HEX". */
static void sign(struct caller *c)
{
    unsigned char sum[EVP_MAX_MD_SIZE];
    char hex[2 * 32 + 1];
    unsigned sum_len = 0;
    long long seconds = (long long)(clock_wall().us / US_PER_S);
    struct slice body = buf_slice(&c->body);
    struct buf text;

    buf_init(&text, body.len + 64);
    CHECK(buf_addf(&text, "%lld.", seconds) && buf_add(&text, body));
    CHECK(HMAC(EVP_sha256(), c->hook->secret, (int)strlen(c->hook->secret),
               (const unsigned char *)buf_slice(&text).ptr, buf_len(&text), sum,
               &sum_len) != NULL &&
          sum_len == 32);
    buf_fini(&text);
    for (unsigned i = 0; i < sum_len; i++) {
        (void)snprintf(hex + 2 * i, 3, "%02x", sum[i]); /* fits */
    }
    (void)snprintf(c->field_time, sizeof c->field_time, "Sluice-Signature: t=%lld,v1=%s", seconds,
                   hex); /* fits */
}

static struct slice authorities(const struct hooks *all)
{
    const char *path = all->role->conf->web_hook_CAfile;

    return path[0] == '\0' ? buf_slice(&all->system) : role_file(all->role, slice_string(path));
}

static void call(struct caller *c, const char *addresses)
{
    const struct https_request request = {.host = c->hook->host,
                                          .port = c->hook->port,
                                          .path = c->hook->path,
                                          .addresses = addresses,
                                          .authorities = authorities(c->all),
                                          .size_max = HOOK_REPLY_MAX,
                                          .in_clear = !c->hook->tls,
                                          .posts = true,
                                          .body = buf_slice(&c->body),
                                          .fields = c->fields};

    sign(c);
    c->state = HOOK_CALL;
    c->call = https_call_new(c->all->role->base, &request, on_called, c);
    if (c->call == NULL) {
        failed(c, "libcurl does not take the request");
    }
}

static void on_addresses(void *arg, struct host_addresses *a)
{
    struct caller *c = arg;

    if (host_addresses_text(a)[0] != '\0') {
        call(c, host_addresses_text(a));
    } else {
        char why[HOOK_HOST_MAX + 64];

        (void)snprintf(why, sizeof why, "%s: %s", c->hook->host, host_addresses_why(a)); /* fits */
        failed(c, why);
    }
}

static void begin_call(struct caller *c)
{
    unsigned char binary[16];

    wait_us(c, HOOK_NAMES, c->all->role->conf->web_hook_timeout_us);
    if (c->hook->is_ipv6 || inet_pton(AF_INET, c->hook->host, binary) == 1) {
        call(c, "");
    } else if (strcmp(c->hook->host, "localhost") == 0) { /* independent of name servers */
        call(c, "127.0.0.1,[::1]");
    } else {
        c->addresses = host_addresses_new(c->all->resolver, c->all->role->conf,
                                          slice_string(c->hook->host), false, on_addresses, c);
    }
}

/* ---- events --------------------------------------------------------------------------------- */

/* Adds wanted events to the body, up to web_hook_batch. Returns their number. */
static unsigned fill_body(struct caller *c, const struct wire_hook_events *m)
{
    unsigned count = 0, most = (unsigned)c->all->role->conf->web_hook_batch;
    struct slice lines = m->lines;

    c->first = m->after + 1;
    c->last = m->after;
    while (lines.len > 0 && count < most) {
        struct slice line = slice_of(lines.ptr, slice_find(lines, '\n'));

        c->last = event_number(line);
        if (event_filter_holds(&c->hook->filter, line)) {
            CHECK(buf_add_string(&c->body, count > 0 ? ",\n" : "\n") && buf_add(&c->body, line));
            CHECK(buf_add(&c->letters, line) && buf_add_byte(&c->letters, '\n'));
            count++;
        }
        lines = slice_skip(lines, line.len + 1);
    }
    if (lines.len == 0) {
        c->last = m->last;
    }
    return count;
}

static void begin_body(struct caller *c, const struct wire_hook_events *m, uint64_t last)
{
    CHECK(buf_addf(&c->body, "{\"hook\":\"%s\",\"first\":%" PRIu64 ",\"last\":%" PRIu64,
                   c->hook->name, m->after + 1, last));
    if (m->lost_to > 0) {
        CHECK(buf_addf(&c->body, ",\"lost\":{\"from\":%" PRIu64 ",\"to\":%" PRIu64 "}",
                       m->lost_from, m->lost_to));
    }
    CHECK(buf_add_string(&c->body, ",\"events\":["));
}

static bool take_events(struct hooks *all, struct slice body)
{
    struct wire_hook_events m;
    struct caller *c = NULL;
    struct buf events;
    unsigned count;

    if (!wire_get_hook_events(body, &m)) {
        return false;
    }
    for (size_t i = 0; i < all->list->count && c == NULL; i++) {
        if (slice_equal(m.name, slice_string(all->list->hooks[i].name))) {
            c = &all->callers[i];
        }
    }
    if (c == NULL || c->state != HOOK_ASKED) {
        return true; /* the answer to a request before a reload */
    }
    c->asked = clock_mono();
    count = fill_body(c, &m);
    c->is_full = count == (unsigned)all->role->conf->web_hook_batch ||
                 m.lines.len >= WIRE_HOOK_PAGE; /* a full page, from which few were wanted */
    if (count == 0 && m.lost_to == 0) {
        done(c, false);
        return true;
    }
    events = c->body;
    buf_init(&c->body, events.limit);
    begin_body(c, &m, c->last);
    CHECK((count == 0 || buf_add(&c->body, buf_slice(&events))) &&
          buf_add_string(&c->body, "]}\n"));
    buf_fini(&events);
    (void)snprintf(c->field_events, sizeof c->field_events, "Sluice-Events: %" PRIu64 "-%" PRIu64,
                   c->first, c->last); /* fits */
    begin_call(c);
    return true;
}

static void ask(struct caller *c)
{
    if (c->all->worker.queue == NULL) {
        c->state = HOOK_AWAY;
        return;
    }
    c->state = HOOK_ASKED;
    wire_put_hook_ask(c->all->worker.queue,
                      &(struct wire_hook_ask){.name = slice_string(c->hook->name)});
}

/* ---- the queue process ---------------------------------------------------------------------- */

static bool on_frame(void *arg, const struct frame *frame)
{
    if (frame->fd >= 0) {
        (void)close(frame->fd); /* frames to this process have no descriptor */
        return false;
    }
    return frame->type == WIRE_HOOK_EVENTS && take_events(arg, frame->body);
}

/* Drops all calls; the queue process sends the events again. */
static void on_lost(void *arg)
{
    struct hooks *all = arg;

    for (size_t i = 0; i < all->list->count; i++) {
        struct caller *c = &all->callers[i];

        end_call(c);
        buf_clear(&c->body);
        buf_clear(&c->letters);
        c->state = HOOK_AWAY;
    }
}

static const struct worker_ops queue_ops = {.frame = on_frame, .lost = on_lost};

/* ---- the role ------------------------------------------------------------------------------- */

static void callers_begin(struct hooks *all)
{
    for (size_t i = 0; i < all->list->count; i++) {
        struct caller *c = &all->callers[i];

        *c = (struct caller){.all = all, .hook = &all->list->hooks[i]};
        buf_init(&c->body, 2ul * WIRE_HOOK_PAGE_MAX + FRAME_MAX);
        buf_init(&c->letters, WIRE_HOOK_PAGE_MAX);
        c->timer = evtimer_new(all->role->base, on_timer, c);
        CHECK(c->timer != NULL);
        (void)snprintf(c->field_name, sizeof c->field_name, "Sluice-Hook: %s",
                       c->hook->name); /* fits */
        c->fields[0] = "Content-Type: application/json";
        c->fields[1] = c->field_name;
        c->fields[2] = c->field_events;
        c->fields[3] = c->field_time;
        c->fields[4] = NULL;
        ask(c);
    }
}

static void callers_end(struct hooks *all)
{
    for (size_t i = 0; i < all->list->count; i++) {
        struct caller *c = &all->callers[i];

        end_call(c);
        event_free(c->timer);
        buf_fini(&c->body);
        buf_fini(&c->letters);
    }
}

static struct hook_list *read_list(const struct role *role)
{
    struct hook_list *list;
    struct buf error;

    buf_init(&error, LOG_LINE_MAX);
    list = hook_list_new(role_file(role, slice_string(role->conf->web_hooks)), &error);
    if (list == NULL) {
        log_error("web_hooks: %s", buf_cstr(&error)); /* the parent has found no error */
    }
    buf_fini(&error);
    return list;
}

static int hook_start(struct role *role)
{
    struct hooks *all = mem_new(sizeof *all);

    role->state = all;
    all->role = role;
    rng_init(&all->rng, entropy_u64());
    all->list = read_list(role);
    if (all->list == NULL) {
        log_error("there are no web hooks");
        mem_free(all);
        return EX_CONFIG;
    }
    all->dns = dns_link_new(role->base);
    all->resolver = resolver_over(role->base, all->dns, false);
    tls_read_system_authorities(&all->system);
    https_begin();
    worker_init(&all->worker, role, &queue_ops, all);
    callers_begin(all);
    return EX_OK;
}

static void hook_peer(struct role *role, const struct wire_peer *peer, int fd)
{
    struct hooks *all = role->state;

    if (peer->role == ROLE_RESOLVE) {
        dns_link_peer(all->dns, fd);
        return;
    }
    worker_peer(&all->worker, peer, fd);
    for (size_t i = 0; i < all->list->count && all->worker.queue != NULL; i++) {
        if (all->callers[i].state == HOOK_AWAY) {
            ask(&all->callers[i]);
        }
    }
}

static bool has_port(const struct hook_list *list, uint16_t port)
{
    for (size_t i = 0; i < list->count; i++) {
        if (list->hooks[i].port == port) {
            return true;
        }
    }
    return false;
}

static bool same_hooks(const struct hook_list *a, const struct hook_list *b)
{
    bool same = a->count == b->count;

    for (size_t i = 0; same && i < a->count; i++) {
        same = hook_equal(&a->hooks[i], &b->hooks[i]);
    }
    return same;
}

/* Applies a new list. Calls in flight go on if the list has not changed; otherwise all hooks begin
 * again. */
static void hook_reload(struct role *role, const struct conf *old)
{
    struct hooks *all = role->state;
    struct hook_list *list;

    (void)old;
    list = read_list(role);
    if (list == NULL || same_hooks(list, all->list)) {
        hook_list_free(list);
        return;
    }
    for (size_t i = 0; i < list->count; i++) {
        if (!has_port(all->list, list->hooks[i].port)) {
            log_info("web hooks have a new port, %u, which only a new process may reach",
                     list->hooks[i].port);
            hook_list_free(list);
            role_exit(role, 0);
            return;
        }
    }
    callers_end(all);
    hook_list_free(all->list);
    all->list = list;
    callers_begin(all);
}

/* The next process sends again what is in flight. */
static void hook_stop(struct role *role)
{
    role_exit(role, 0);
}

static void hook_clock_moved(struct role *role)
{
    struct hooks *all = role->state;

    for (size_t i = 0; i < all->list->count; i++) {
        struct caller *c = &all->callers[i];

        if ((c->state == HOOK_FAILED || c->state == HOOK_RESTS) &&
            mono_reached(c->until, clock_mono())) {
            CHECK(event_del(c->timer) == 0);
            on_timer(-1, EV_TIMEOUT, c);
        }
    }
}

static void hook_turn(struct role *role)
{
    struct hooks *all = role->state;

    worker_tick(&all->worker, false);
}

static void hook_end(struct role *role)
{
    struct hooks *all = role->state;

    worker_fini(&all->worker);
    callers_end(all);
    hook_list_free(all->list);
    resolver_free(all->resolver);
    dns_link_free(all->dns);
    buf_fini(&all->system);
    mem_free(all);
}

static unsigned hook_count(const struct conf *conf)
{
    return conf->web_hooks[0] == '\0' ? 0 : 1;
}

const struct role_ops hook_role = {
    .role = ROLE_HOOK,
    .program = "hook",
    .kind = ROLE_WORKS,
    .is_exposed = true,
    .count = hook_count,
    .start = hook_start,
    .peer = hook_peer,
    .reload = hook_reload,
    .stop = hook_stop,
    .clock_moved = hook_clock_moved,
    .turn = hook_turn,
    .end = hook_end,
};
