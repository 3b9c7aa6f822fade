/*
 * Virtual sites for the benchmarks: they take mail, slowly if told to, and write down when.
 *
 *      bench_sink ADDRESS:PORT[,latency=MS][,slots=N][,mute] ...
 *
 * Each argument is a site. `latency` is what a message takes from its last byte to the reply,
 * `slots` how many connections are served at once (further ones wait in the listen queue, unseen),
 * and a `mute` site accepts connections and never says a word.
 *
 * Prints "ready", then a line for each message accepted, when its reply is sent:
 *
 *      SECONDS ADDRESS RECIPIENTS FIRST-RECIPIENT
 *
 * with the time of CLOCK_MONOTONIC. It believes its clients: they are programs under measurement on
 * loopback. Ends with SIGTERM.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/queue.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "buf.h"
#include "check.h"
#include "mem.h"
#include "slice.h"
#include "times.h"

#define EVENTS    256
#define READ_MAX  65536     /* bytes */
#define INPUT_MAX (1 << 20) /* bytes kept of a client that is ahead of us */
#define REPLY_MAX (1 << 20)

/* What an event of epoll is about; the first member of what it points to. */
enum source { SOURCE_SITE, SOURCE_CLIENT };

enum phase {
    PHASE_COMMANDS,
    PHASE_CONTENT,
    PHASE_ACCEPTING, /* the end of a message was seen; it is accepted at `due` */
    PHASE_MUTE,
};

struct client {
    enum source source;
    enum phase phase;
    int fd;
    struct site *site;
    struct buf in, out;
    uint32_t rcpts;
    char first[256]; /* recipient */
    struct mono due;
    TAILQ_ENTRY(client) accepting;
};

struct site {
    enum source source;
    int fd;
    char address[INET_ADDRSTRLEN];
    int64_t latency_us;
    uint32_t slots, open; /* slots 0: no limit */
    bool mute;
    TAILQ_HEAD(, client) accepting; /* in the order of `due`, as all take equally long */
};

static int poller;

static struct mono mono_now(void)
{
    struct timespec t;

    CHECK(clock_gettime(CLOCK_MONOTONIC, &t) == 0);
    return (struct mono){(int64_t)t.tv_sec * US_PER_S + t.tv_nsec / 1000};
}

static _Noreturn void give_up(const char *what)
{
    fprintf(stderr, "bench_sink: %s: %s\n", what, strerror(errno));
    exit(1);
}

/* ---- clients -------------------------------------------------------------------------------- */

/* Listen to a site only while it has a slot. */
static void site_watch(struct site *site)
{
    bool room = site->slots == 0 || site->open < site->slots;
    struct epoll_event e = {.events = room ? EPOLLIN : 0, .data.ptr = site};

    CHECK(epoll_ctl(poller, EPOLL_CTL_MOD, site->fd, &e) == 0);
}

static void client_close(struct client *c)
{
    if (c->phase == PHASE_ACCEPTING) {
        TAILQ_REMOVE(&c->site->accepting, c, accepting);
    }
    c->site->open--;
    site_watch(c->site);
    (void)close(c->fd); /* which takes it out of the poller, too */
    buf_fini(&c->in);
    buf_fini(&c->out);
    mem_free(c);
}

/* False when the client is gone: it does not take a few hundred bytes. */
static bool client_flush(struct client *c)
{
    struct slice text = buf_slice(&c->out);
    bool sent = text.len == 0 || send(c->fd, text.ptr, text.len, MSG_NOSIGNAL) == (ssize_t)text.len;

    buf_clear(&c->out);
    return sent;
}

static void rcpt_note(struct client *c, struct slice line)
{
    size_t from = slice_find(line, '<') + 1, to = slice_find(line, '>');

    if (c->rcpts++ == 0 && from < to) {
        (void)snprintf(c->first, sizeof c->first, "%.*s",
                       SLICE_ARGS(slice_of(line.ptr + from, to - from))); /* may be cut */
    }
}

static void command(struct client *c, struct slice line)
{
    static const char ehlo[] = "250-sink.test\r\n250-PIPELINING\r\n250-8BITMIME\r\n250 SIZE\r\n";

    if (slice_starts_nocase(line, SLICE("RCPT"))) {
        rcpt_note(c, line);
    } else if (slice_starts_nocase(line, SLICE("MAIL")) ||
               slice_starts_nocase(line, SLICE("RSET"))) {
        c->rcpts = 0;
    }
    if (slice_starts_nocase(line, SLICE("DATA"))) {
        c->phase = PHASE_CONTENT;
        buf_add_string(&c->out, "354 go on\r\n");
    } else if (slice_starts_nocase(line, SLICE("EHLO"))) {
        buf_add_string(&c->out, ehlo);
    } else if (slice_starts_nocase(line, SLICE("QUIT"))) {
        buf_add_string(&c->out, "221 2.0.0 bye\r\n"); /* the client closes */
    } else {
        buf_add_string(&c->out, "250 2.0.0 ok\r\n");
    }
}

/* Take whole lines from the input until it is used up or a message has ended. */
static void client_lines(struct client *c)
{
    while (c->phase == PHASE_COMMANDS || c->phase == PHASE_CONTENT) {
        struct slice input = buf_slice(&c->in);
        size_t len = slice_find(input, '\n');

        if (len == input.len) {
            return;
        }
        if (c->phase == PHASE_COMMANDS) {
            command(c, slice_trim(slice_of(input.ptr, len)));
        } else if (len == 2 && memcmp(input.ptr, ".\r", 2) == 0) {
            c->phase = PHASE_ACCEPTING;
            c->due = mono_after(mono_now(), c->site->latency_us);
            TAILQ_INSERT_TAIL(&c->site->accepting, c, accepting);
        }
        buf_consume(&c->in, len + 1);
    }
}

static void client_read(struct client *c)
{
    char *room = buf_room(&c->in, READ_MAX);
    ssize_t len = room == NULL ? -1 : recv(c->fd, room, READ_MAX, MSG_DONTWAIT);

    if (len < 0 && (errno == EAGAIN || errno == EINTR) && room != NULL) {
        return;
    }
    if (len <= 0) {
        client_close(c);
        return;
    }
    buf_grew(&c->in, (size_t)len);
    if (c->phase == PHASE_MUTE) {
        buf_clear(&c->in);
        return;
    }
    client_lines(c);
    if (!client_flush(c)) {
        client_close(c);
    }
}

static void accept_message(struct client *c, struct mono now)
{
    TAILQ_REMOVE(&c->site->accepting, c, accepting);
    c->phase = PHASE_COMMANDS;
    printf("%.6f %s %u %s\n", (double)now.us / (double)US_PER_S, c->site->address, c->rcpts,
           c->first);
    buf_add_string(&c->out, "250 2.0.0 ok\r\n");
    client_lines(c);
    if (!client_flush(c)) {
        client_close(c);
    }
}

/* ---- sites ---------------------------------------------------------------------------------- */

static void site_accept(struct site *site)
{
    int on = 1, fd = accept4(site->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    struct client *c;
    struct epoll_event e = {.events = EPOLLIN};

    if (fd < 0) {
        if (errno == EMFILE || errno == ENFILE) {
            give_up("accept");
        }
        return; /* the client has gone again */
    }
    c = mem_new(sizeof *c);
    *c = (struct client){.source = SOURCE_CLIENT,
                         .phase = site->mute ? PHASE_MUTE : PHASE_COMMANDS,
                         .fd = fd,
                         .site = site};
    buf_init(&c->in, INPUT_MAX);
    buf_init(&c->out, REPLY_MAX);
    CHECK(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0);
    e.data.ptr = c;
    CHECK(epoll_ctl(poller, EPOLL_CTL_ADD, fd, &e) == 0);
    site->open++;
    site_watch(site);
    if (!site->mute) {
        buf_add_string(&c->out, "220 sink.test ESMTP\r\n");
        if (!client_flush(c)) {
            client_close(c);
        }
    }
}

static void site_listen(struct site *site, unsigned port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = site};
    int on = 1;

    if (inet_pton(AF_INET, site->address, &a.sin_addr) != 1) {
        errno = EINVAL;
        give_up(site->address);
    }
    site->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (site->fd < 0 || setsockopt(site->fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
        bind(site->fd, (struct sockaddr *)&a, sizeof a) != 0 || listen(site->fd, 1024) != 0) {
        give_up(site->address);
    }
    CHECK(epoll_ctl(poller, EPOLL_CTL_ADD, site->fd, &e) == 0);
}

static _Noreturn void usage(void)
{
    fprintf(stderr, "usage: bench_sink ADDRESS:PORT[,latency=MS][,slots=N][,mute] ...\n");
    exit(2);
}

static unsigned number(struct slice text, unsigned max)
{
    unsigned long long value;

    if (!slice_number(text, max, &value)) {
        usage();
    }
    return (unsigned)value;
}

static void site_open(struct site *site, struct slice description)
{
    struct slice where = slice_cut(&description, ','), address = slice_cut(&where, ':');

    *site = (struct site){.source = SOURCE_SITE};
    TAILQ_INIT(&site->accepting);
    (void)snprintf(site->address, sizeof site->address, "%.*s", SLICE_ARGS(address));
    while (description.ptr != NULL) {
        struct slice value = slice_cut(&description, ','), name = slice_cut(&value, '=');

        if (slice_equal(name, SLICE("latency"))) {
            site->latency_us = number(value, 1000000) * US_PER_MS;
        } else if (slice_equal(name, SLICE("slots"))) {
            site->slots = number(value, 100000);
        } else if (slice_equal(name, SLICE("mute"))) {
            site->mute = true;
        } else {
            usage();
        }
    }
    site_listen(site, number(where, 65535));
}

/* Accept what is due; milliseconds until the next is, -1 when none waits. */
static int sites_accept_due(struct site *sites, size_t count)
{
    struct mono now = mono_now(), next = MONO_NEVER;

    for (size_t i = 0; i < count; i++) {
        struct client *c;

        while ((c = TAILQ_FIRST(&sites[i].accepting)) != NULL && mono_reached(c->due, now)) {
            accept_message(c, now);
        }
        if (c != NULL) {
            next = mono_min(next, c->due);
        }
    }
    return next.us == US_FOREVER ? -1 : (int)((next.us - now.us + US_PER_MS - 1) / US_PER_MS);
}

static void serve(struct site *sites, size_t count)
{
    struct epoll_event events[EVENTS];

    for (;;) {
        int wait_ms = sites_accept_due(sites, count), n;

        (void)fflush(stdout); /* who measures reads it, or has ended */
        n = epoll_wait(poller, events, EVENTS, wait_ms);
        for (int i = 0; i < n; i++) {
            if (*(enum source *)events[i].data.ptr == SOURCE_SITE) {
                site_accept(events[i].data.ptr);
            } else {
                client_read(events[i].data.ptr);
            }
        }
    }
}

int main(int argc, char **argv)
{
    size_t count = (size_t)(argc - 1);
    struct rlimit files;
    struct site *sites;

    if (argc < 2) {
        usage();
    }
    CHECK(getrlimit(RLIMIT_NOFILE, &files) == 0);
    files.rlim_cur = files.rlim_max;
    CHECK(setrlimit(RLIMIT_NOFILE, &files) == 0);
    poller = epoll_create1(EPOLL_CLOEXEC);
    CHECK(poller >= 0);
    sites = mem_array(count, sizeof *sites);
    for (size_t i = 0; i < count; i++) {
        site_open(&sites[i], slice_string(argv[i + 1]));
    }
    printf("ready\n");
    serve(sites, count);
}
