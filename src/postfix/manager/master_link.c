#include "master_link.h"

#include <errno.h>
#include <event2/event.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <unistd.h>

#include "check.h"
#include "log.h"
#include "mem.h"
#include "services.h"

#define TRIGGER_MAX 1024 /* bytes; the rest is not read */
#define TOKENS_MAX  10000u

struct client {
    TAILQ_ENTRY(client) all;
    struct master_link *link;
    struct event *event;
    int fd;
};

struct master_link {
    struct master_link_plan plan;
    struct event *listener;
    TAILQ_HEAD(, client) clients;
    unsigned client_count;
    bool is_used; /* a client was reported to master, which throttles a service whose process ends
                   * without one */
};

unsigned master_trigger_scans(struct slice letters)
{
    unsigned scans = 0;

    for (size_t i = 0; i < letters.len; i++) {
        switch (letters.ptr[i]) {
        case 'W':
        case 'I':
            scans |= POSTFIX_SCAN_INCOMING;
            break;
        case 'D':
            scans |= POSTFIX_SCAN_DEFERRED;
            break;
        case 'F':
            scans |= POSTFIX_SCAN_FLUSH;
            break;
        case 'A':
            scans |= POSTFIX_SCAN_IGNORE_TIME;
            break;
        default:
            break;
        }
    }
    return scans;
}

bool master_is_there(void)
{
    return getenv(MASTER_ENVIRONMENT) != NULL;
}

unsigned master_generation(const char *text)
{
    char *end;
    unsigned long value;

    if (text == NULL || text[0] < '0' || text[0] > '7') {
        return 0;
    }
    errno = 0;
    value = strtoul(text, &end, 8);
    return errno != 0 || *end != '\0' || value > UINT32_MAX ? 0 : (unsigned)value;
}

/* ---- status messages ---- */

static ssize_t write_message(const void *bytes, size_t len)
{
    return send(MASTER_STATUS, bytes, len, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void tell(const struct master_link *link, bool available)
{
    struct {
        int pid;
        unsigned generation;
        int available;
    } message = {(int)link->plan.pid, link->plan.generation, available};

    _Static_assert(sizeof message == 12, "as master reads it");
    (void)write_message(&message, sizeof message); /* if master is gone, is_current detects it */
}

/* Does master still use this process? At a reload master closes the channel and then sends a
 * trigger for the next process; if this one accepted it, no process would be started. */
static bool is_current(void)
{
    char byte;
    ssize_t got = recv(MASTER_STATUS, &byte, 1, MSG_PEEK | MSG_DONTWAIT);

    return got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
}

/* ---- clients ---- */

static void accept_more(struct master_link *link)
{
    CHECK(event_add(link->listener, NULL) == 0);
}

static void client_free(struct client *c)
{
    struct master_link *link = c->link;

    TAILQ_REMOVE(&link->clients, c, all);
    link->client_count--;
    event_free(c->event);
    (void)close(c->fd); /* a client waits for the close */
    mem_free(c);
}

/* Reads a client's letters; false if it has not written yet. */
static bool hear(const struct master_link *link, int fd)
{
    char letters[TRIGGER_MAX];
    ssize_t got = read(fd, letters, sizeof letters);

    if (got > 0) {
        link->plan.triggered(link->plan.arg, master_trigger_scans(slice_of(letters, (size_t)got)));
    }
    return got >= 0 || errno != EAGAIN;
}

static void on_client(evutil_socket_t fd, short what, void *arg)
{
    struct client *c = arg;
    struct master_link *link = c->link;

    if ((what & EV_READ) != 0) {
        (void)hear(link, (int)fd);
    }
    client_free(c);
    if (link->client_count == 0) {
        tell(link, true);
    }
    if (is_current()) {
        accept_more(link);
    }
}

static void client_new(struct master_link *link, int fd)
{
    static const struct timeval patience = {.tv_sec = MASTER_CLIENT_US / US_PER_S};
    struct client *c = mem_new(sizeof *c);

    c->link = link;
    c->fd = fd;
    c->event = event_new(link->plan.base, fd, EV_READ, on_client, c);
    CHECK(c->event != NULL);
    CHECK(event_add(c->event, &patience) == 0);
    TAILQ_INSERT_TAIL(&link->clients, c, all);
    link->is_used = true;
    if (link->client_count++ == 0) {
        tell(link, false);
    }
}

static void on_listener(evutil_socket_t listener, short what, void *arg)
{
    struct master_link *link = arg;
    int fd;

    (void)what;
    while (link->client_count < MASTER_CLIENTS_MAX && is_current()) {
        fd = accept4((int)listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0) {
            if (errno == EMFILE || errno == ENFILE) {
                log_warning("public/qmgr: accept: %s", strerror(errno));
            }
            return;
        }
        if (link->is_used && hear(link, fd)) {
            (void)close(fd); /* a client waits for the close; master need not be notified of so
                              * short a time */
        } else {
            client_new(link, fd);
        }
    }
    CHECK(event_del(link->listener) == 0); /* until a client is gone, or for good */
}

/* ---- in-flow control ---- */

static void write_tokens(size_t count)
{
    static const char zeros[256];

    while (count > 0) {
        size_t some = count < sizeof zeros ? count : sizeof zeros;

        if (write(MASTER_FLOW_WRITE, zeros, some) <= 0) {
            return; /* the pipe is full, which is enough */
        }
        count -= some;
    }
}

static void read_tokens(size_t count)
{
    char bytes[256];

    while (count > 0) {
        ssize_t got = read(MASTER_FLOW_READ, bytes, count < sizeof bytes ? count : sizeof bytes);

        if (got <= 0) {
            return; /* cleanup(8) has read them first */
        }
        count -= (size_t)got;
    }
}

void master_link_flow(struct master_link *link, uint64_t taken, bool scanning)
{
    int have = 0;

    if (link->plan.tokens == 0 || ioctl(MASTER_FLOW_READ, FIONREAD, &have) != 0) {
        return;
    }
    if ((unsigned)have < link->plan.tokens) {
        size_t room = link->plan.tokens - (unsigned)have;

        if (!scanning) {
            write_tokens(room);
        } else if (taken > 0) {
            write_tokens(taken < room ? (size_t)taken : room);
        }
    } else {
        read_tokens((unsigned)have - link->plan.tokens);
    }
}

/* ---- the link ---- */

struct master_link *master_link_new(const struct master_link_plan *plan)
{
    struct master_link *link = mem_new(sizeof *link);

    link->plan = *plan;
    if (link->plan.tokens > TOKENS_MAX) {
        link->plan.tokens = TOKENS_MAX;
    }
    TAILQ_INIT(&link->clients);
    /* Level-triggered, because other processes may have used the socket before and may use it after
     * this one. */
    link->listener = event_new(plan->base, MASTER_LISTEN, EV_READ | EV_PERSIST, on_listener, link);
    CHECK(link->listener != NULL);
    accept_more(link);
    return link;
}

void master_link_free(struct master_link *link)
{
    struct client *c;

    if (link == NULL) {
        return;
    }
    while ((c = TAILQ_FIRST(&link->clients)) != NULL) {
        client_free(c);
    }
    event_free(link->listener);
    mem_free(link);
}
