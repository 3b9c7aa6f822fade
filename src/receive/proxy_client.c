#include "proxy_client.h"

#include <errno.h>
#include <event2/event.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "admission.h"
#include "check.h"
#include "clock.h"
#include "heap.h"
#include "log.h"
#include "match.h"
#include "mem.h"
#include "printable.h"
#include "proxy_header.h"
#include "receive_shared.h"

/* Maximum bytes of a wrong header in a log line. */
#define SHOWN_MAX 60

struct proxy_client {
    struct proxy_clients *clients;
    struct receive_origin *origin;
    struct place place;
    uint64_t held; /* always 0: memory for a header is not counted */
    int fd;
    struct sockaddr_storage addr;
    struct event *event;
    struct mono deadline;
    struct buf header; /* bytes read, which are all of the header */
    LIST_ENTRY(proxy_client) next;
};

static void client_free(struct proxy_client *c)
{
    LIST_REMOVE(c, next);
    event_free(c->event);
    admission_leave(&c->clients->all->admission, &c->place, false, clock_mono());
    receive_origin_unref(c->origin);
    buf_fini(&c->header);
    mem_free(c);
}

static void client_close(struct proxy_client *c)
{
    (void)close(c->fd); /* a socket: no data to lose */
    client_free(c);
}

/* ---- log ------------------------------------------------------------------------------------ */

/* Logs why a connection is closed. `got`: the wrong header, or empty. */
static void log_closed(struct receive_sessions *all, unsigned quota,
                       const struct receive_origin *origin, const struct sockaddr_storage *addr,
                       const char *why, struct slice got)
{
    char ip[INET6_ADDRSTRLEN] = "127.0.0.1"; /* a Unix socket, as in sessions */
    const char *name = "localhost";
    struct buf *shown = &all->text;

    if (!receive_may_log(all, quota)) {
        return;
    }
    (void)receive_name_client((const struct sockaddr *)addr, ip, &name); /* or as above */
    buf_clear(shown);
    if (got.len > 0) {
        (void)buf_add_string(shown, "expected the header of a proxy, got \""); /* these fit */
        (void)printable_add(shown, slice_trim(got), SHOWN_MAX);
        (void)buf_add_string(shown, "\": ");
    }
    log_warning("%s[%s]: connection to %s closed: %s%s", name, ip, origin->url, buf_cstr(shown),
                why);
}

static void client_refuse(struct proxy_client *c, const char *why, struct slice got)
{
    log_closed(c->clients->all, RECEIVE_QUOTA_HEADERS, c->origin, &c->addr, why, got);
    client_close(c);
}

/* ---- reading -------------------------------------------------------------------------------- */

/* Waits for input until the deadline. */
static void wait_for_input(struct proxy_client *c)
{
    struct mono now = clock_mono();
    int64_t us = c->deadline.us > now.us ? c->deadline.us - now.us : 0;
    struct timeval delay = {.tv_sec = us / US_PER_S, .tv_usec = us % US_PER_S};

    CHECK(event_add(c->event, &delay) == 0);
}

/* Begins the session with the address of the header; frees the client. */
static void begin_session(struct proxy_client *c, const struct proxy_header *header)
{
    struct proxy_clients *clients = c->clients;
    struct receive_origin *origin = c->origin;
    struct sockaddr_storage addr = c->addr;
    int fd = c->fd;

    if (header->source == PROXY_CLIENT) {
        struct sockaddr_in6 *client = (struct sockaddr_in6 *)&addr;

        memset(&addr, 0, sizeof addr);
        client->sin6_family = AF_INET6; /* an IPv4 address is mapped */
        client->sin6_port = htons(header->port);
        memcpy(&client->sin6_addr, header->address, sizeof client->sin6_addr);
    }
    origin->refs++;
    client_free(c);
    clients->begun(clients->arg, origin, fd, (struct sockaddr *)&addr,
                   header->source != PROXY_UNKNOWN);
    receive_origin_unref(origin);
}

/* Reads what has arrived of the header, and no byte after it. */
static void read_header(struct proxy_client *c)
{
    static const char lost[] = "expected the header of a proxy, got the end of the connection";
    char bytes[PROXY_HEADER_MAX];
    size_t before = buf_len(&c->header);
    struct proxy_header header;
    const char *why = "";
    enum proxy_result result;
    ssize_t got = recv(c->fd, bytes, sizeof bytes, MSG_PEEK);

    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
        wait_for_input(c);
        return;
    }
    if (got <= 0) {
        client_refuse(c, lost, SLICE(""));
        return;
    }
    CHECK(buf_add(&c->header, slice_of(bytes, (size_t)got)));
    result = proxy_header_parse(buf_slice(&c->header), &header, &why);
    if (result == PROXY_BAD) {
        client_refuse(c, why, buf_slice(&c->header));
        return;
    }
    if (result == PROXY_DONE) {
        CHECK(header.len > before);
        got = (ssize_t)(header.len - before);
    }
    if (recv(c->fd, bytes, (size_t)got, 0) != got) { /* reset since then */
        client_refuse(c, lost, SLICE(""));
        return;
    }
    if (result == PROXY_DONE) {
        begin_session(c, &header);
    } else {
        wait_for_input(c);
    }
}

static bool expire(struct proxy_client *c)
{
    if (!mono_reached(c->deadline, clock_mono())) {
        return false;
    }
    client_refuse(c,
                  "expected the header of a proxy, got none in time (smtpd_upstream_proxy_timeout)",
                  SLICE(""));
    return true;
}

static void on_input(evutil_socket_t fd, short what, void *arg)
{
    struct proxy_client *c = arg;

    (void)fd;
    if ((what & EV_READ) != 0) {
        read_header(c);
    } else if (!expire(c)) {
        wait_for_input(c);
    }
}

/* ---- the beginning -------------------------------------------------------------------------- */

/* Ends the wait of a client that loses its place. */
static void client_drop(struct place *place, enum admission_limit limit)
{
    struct proxy_client *c = CONTAINER_OF(place, struct proxy_client, place);
    char why[100];

    (void)snprintf(why, sizeof why, "no header of a proxy yet, and others are faster (%s)",
                   admission_limit_name(limit)); /* fits */
    log_closed(c->clients->all, RECEIVE_QUOTA_DROPPED + limit, c->origin, &c->addr, why, SLICE(""));
    client_close(c);
}

/* May the peer send a header? On a Unix socket the rights of its file decide. */
static bool may_be_proxy(const struct receive_sessions *all, const struct sockaddr_storage *addr)
{
    return addr->ss_family == AF_UNIX ||
           network_list_match(&all->role->conf->smtpd_upstream_proxy_networks,
                              (const struct sockaddr *)addr);
}

void proxy_client_begin(struct proxy_clients *clients, const struct receive_settings *settings,
                        struct receive_origin *origin, int fd, const struct sockaddr_storage *addr)
{
    struct receive_sessions *all = clients->all;
    struct admission_client wanted = {.drop = client_drop, .trusted = true, .exempt = true};
    struct admission_answer answer;
    struct proxy_client *c;

    if (!may_be_proxy(all, addr)) {
        log_closed(all, RECEIVE_QUOTA_HEADERS, origin, addr,
                   "its address is not in smtpd_upstream_proxy_networks", SLICE(""));
        (void)close(fd); /* a socket: no data to lose */
        return;
    }
    answer = admission_ask(&all->admission, &settings->admission, &wanted, clock_mono());
    if (!answer.admitted) {
        char why[100];

        (void)snprintf(why, sizeof why, "too many sessions (%s)",
                       admission_limit_name(answer.limit)); /* fits */
        log_closed(all, RECEIVE_QUOTA_REFUSED + answer.limit, origin, addr, why, SLICE(""));
        (void)close(fd); /* as above */
        return;
    }
    if (answer.victim != NULL) {
        answer.victim->drop(answer.victim, answer.limit);
    }
    c = mem_new(sizeof *c);
    c->clients = clients;
    c->origin = origin;
    origin->refs++;
    c->fd = fd;
    c->addr = *addr;
    buf_init(&c->header, 2 * (size_t)PROXY_HEADER_MAX); /* an incomplete header and new bytes */
    c->deadline = mono_after(clock_mono(), all->role->conf->smtpd_upstream_proxy_timeout_us);
    c->event = event_new(all->role->base, fd, EV_READ, on_input, c);
    CHECK(c->event != NULL);
    admission_enter(&all->admission, &settings->admission, &c->place, &wanted, &c->held,
                    clock_mono());
    LIST_INSERT_HEAD(&clients->list, c, next);
    wait_for_input(c);
}

/* ---- all clients ---------------------------------------------------------------------------- */

void proxy_clients_init(struct proxy_clients *clients, struct receive_sessions *all,
                        proxy_client_begun *begun, void *arg)
{
    *clients = (struct proxy_clients){.all = all, .begun = begun, .arg = arg};
    LIST_INIT(&clients->list);
}

void proxy_clients_clock_moved(struct proxy_clients *clients)
{
    struct proxy_client *c = LIST_FIRST(&clients->list), *next;

    for (; c != NULL; c = next) {
        next = LIST_NEXT(c, next);
        if (!expire(c)) {
            wait_for_input(c);
        }
    }
}

void proxy_clients_cut(struct proxy_clients *clients)
{
    struct proxy_client *c;

    while ((c = LIST_FIRST(&clients->list)) != NULL) {
        client_close(c);
    }
}
