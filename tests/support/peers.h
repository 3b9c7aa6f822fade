/*
 * What a client of the network meets in tests: SMTP servers that follow a script, and a name server
 * that knows a table. Both live in the test's own event loop.
 *
 * A script is one word per step, separated by newlines:
 *
 *     <text     send the text and CRLF          >text   the next line begins with the text
 *     .         read content up to its dot      !       close the connection
 *     ~         say and do nothing more         @       go on with the first line behind "="
 *     =         does nothing
 */
#ifndef TESTS_PEERS_H
#define TESTS_PEERS_H

#include <arpa/inet.h>
#include <arpa/nameser.h>
#include <event2/event.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "buf.h"
#include "mem.h"
#include "slice.h"
#include "unit.h"

#define PEERS_MAX     8
#define PEER_OPEN_MAX 256
#define PEER_TALK_MAX (4u << 20)

struct peer {
    struct event *listener;
    const char *script;
    const char *again; /* for all connections but the first; NULL: the same script */
    struct buf heard;  /* all lines of all connections; of content as "DATA:.." */
    size_t connections;
    size_t open_now, open_most;
};

struct peer_connection {
    struct peer *peer;
    struct event *event;
    const char *at; /* in the script */
    struct buf in;
    bool in_content;
};

struct peer_name {
    const char *name;
    int type; /* ns_t_mx .. */
    int preference;
    const char *value; /* host or address */
};

struct peers {
    struct event_base *base;
    struct peer peer[PEERS_MAX];
    size_t count;
    struct peer_connection *open[PEER_OPEN_MAX];
    struct event *dns;
    int dns_port;
    const struct peer_name *names;
    size_t name_count;
    const char *failing; /* names that end in this are answered with SERVFAIL */
    size_t questions;
};

static struct peers peers;

/* ---- SMTP ----------------------------------------------------------------------------------- */

static void peer_close(struct peer_connection *c)
{
    for (size_t i = 0; i < PEER_OPEN_MAX; i++) {
        if (peers.open[i] == c) {
            peers.open[i] = NULL;
        }
    }
    c->peer->open_now--;
    (void)close(event_get_fd(c->event));
    event_free(c->event);
    buf_fini(&c->in);
    mem_free(c);
}

/* The next whole line of input, without its CRLF. */
static bool peer_line(struct peer_connection *c, struct slice *ret_line)
{
    struct slice in = buf_slice(&c->in);
    const char *end = memmem(in.ptr, in.len, "\r\n", 2);

    if (end == NULL) {
        return false;
    }
    *ret_line = slice_of(in.ptr, (size_t)(end - in.ptr));
    return true;
}

/* One step of the script. False when it has to wait, or the connection is gone. */
static bool peer_step(struct peer_connection *c)
{
    const char *end = strchrnul(c->at, '\n');
    struct slice text = slice_of(c->at, (size_t)(end - c->at)), line;
    int fd = event_get_fd(c->event);

    switch (text.len == 0 ? '\0' : text.ptr[0]) {
    case '<':
        assert_int_equal(write(fd, text.ptr + 1, text.len - 1), text.len - 1);
        assert_int_equal(write(fd, "\r\n", 2), 2);
        break;
    case '>':
        if (!peer_line(c, &line)) {
            return false;
        }
        buf_addf(&c->peer->heard, "%.*s\n", SLICE_ARGS(line));
        if (!slice_starts(line, slice_skip(text, 1))) {
            fail_msg("wanted %.*s, got %.*s", SLICE_ARGS(text), SLICE_ARGS(line));
        }
        buf_consume(&c->in, line.len + 2);
        break;
    case '.':
        while (peer_line(c, &line)) {
            bool last = slice_equal(line, SLICE("."));

            buf_addf(&c->peer->heard, "%s%.*s\n", last ? "" : "DATA:", SLICE_ARGS(line));
            buf_consume(&c->in, line.len + 2);
            if (last) {
                c->at = *end == '\0' ? end : end + 1;
                return true;
            }
        }
        return false;
    case '!':
        peer_close(c);
        return false;
    case '~':
        return false;
    case '@':
        end = strstr(c->peer->script, "=\n") + 1;
        break;
    case '=':
        break;
    default: /* the end of the script: wait for the client to close */
        return false;
    }
    c->at = *end == '\0' ? end : end + 1;
    return true;
}

static void peer_on_input(evutil_socket_t fd, short what, void *arg)
{
    struct peer_connection *c = arg;
    char bytes[65536];
    ssize_t n = read(fd, bytes, sizeof bytes);

    (void)what;
    if (n <= 0) {
        peer_close(c);
        return;
    }
    assert_true(buf_add(&c->in, slice_of(bytes, (size_t)n)));
    while (peer_step(c)) {
    }
}

static void peer_on_connection(evutil_socket_t fd, short what, void *arg)
{
    struct peer *p = arg;
    struct peer_connection *c = mem_new(sizeof *c);
    int connected = accept(fd, NULL, NULL), on = 1;

    (void)what;
    assert_true(connected >= 0);
    (void)setsockopt(connected, IPPROTO_TCP, TCP_NODELAY, &on,
                     sizeof on); /* not for Unix sockets */
    c->peer = p;
    if (p->connections > 0 && p->again != NULL) {
        p->script = p->again;
    }
    c->at = p->script;
    buf_init(&c->in, PEER_TALK_MAX);
    c->event = event_new(peers.base, connected, EV_READ | EV_PERSIST, peer_on_input, c);
    event_add(c->event, NULL);
    for (size_t i = 0; i < PEER_OPEN_MAX; i++) {
        if (peers.open[i] == NULL) {
            peers.open[i] = c;
            break;
        }
    }
    p->connections++;
    if (++p->open_now > p->open_most) {
        p->open_most = p->open_now;
    }
    while (peer_step(c)) {
    }
}

static struct peer *peer_listen(const struct sockaddr *address, socklen_t len, const char *script)
{
    struct peer *p = &peers.peer[peers.count++];
    int fd = socket(address->sa_family, SOCK_STREAM, 0), on = 1;

    assert_true(peers.count <= PEERS_MAX && fd >= 0);
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    assert_return_code(bind(fd, address, len), 0);
    assert_return_code(listen(fd, 512), 0);
    p->script = script;
    buf_init(&p->heard, PEER_TALK_MAX);
    p->listener = event_new(peers.base, fd, EV_READ | EV_PERSIST, peer_on_connection, p);
    event_add(p->listener, NULL);
    return p;
}

/* A server on a loopback address; port 0: any. */
static struct peer *peer_new(const char *ip, int port, const char *script)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};

    assert_int_equal(inet_pton(AF_INET, ip, &in.sin_addr), 1);
    return peer_listen((struct sockaddr *)&in, sizeof in, script);
}

static int peer_port(const struct peer *p)
{
    struct sockaddr_in in;
    socklen_t len = sizeof in;

    assert_return_code(getsockname(event_get_fd(p->listener), (struct sockaddr *)&in, &len), 0);
    return ntohs(in.sin_port);
}

static void peer_stop_listening(struct peer *p)
{
    (void)close(event_get_fd(p->listener));
    event_free(p->listener);
    p->listener = NULL;
}

/* ---- DNS ------------------------------------------------------------------------------------ */

static void dns_put_name(struct buf *out, const char *name)
{
    struct slice rest = slice_string(name);

    while (rest.ptr != NULL) {
        struct slice label = slice_cut(&rest, '.');

        if (label.len > 0) {
            buf_add_byte(out, (char)label.len);
            buf_add(out, label);
        }
    }
    buf_add_byte(out, '\0');
}

static void dns_put16(struct buf *out, unsigned value)
{
    buf_add_byte(out, (char)(value >> 8));
    buf_add_byte(out, (char)value);
}

static void dns_put_record(struct buf *out, const struct peer_name *n)
{
    unsigned char address[16];
    struct buf data;

    buf_init(&data, 512);
    if (n->type == ns_t_mx) {
        dns_put16(&data, (unsigned)n->preference);
        dns_put_name(&data, n->value);
    } else {
        assert_int_equal(inet_pton(n->type == ns_t_a ? AF_INET : AF_INET6, n->value, address), 1);
        buf_add(&data, slice_of(address, n->type == ns_t_a ? 4 : 16));
    }
    dns_put16(out, 0xc00c); /* the name asked for */
    dns_put16(out, (unsigned)n->type);
    dns_put16(out, ns_c_in);
    dns_put16(out, 0);
    dns_put16(out, 60);
    dns_put16(out, (unsigned)buf_len(&data));
    buf_add(out, buf_slice(&data));
    buf_fini(&data);
}

/* Answer one question from the table: NXDOMAIN for names that are not in it. */
static void dns_answer(struct slice question, struct buf *out)
{
    char name[NS_MAXDNAME + 1];
    ns_msg message;
    ns_rr asked;
    unsigned answers = 0;
    bool known = false, failing;

    assert_int_equal(ns_initparse((const unsigned char *)question.ptr, (int)question.len, &message),
                     0);
    assert_int_equal(ns_parserr(&message, ns_s_qd, 0, &asked), 0);
    (void)snprintf(name, sizeof name, "%s", ns_rr_name(asked));
    failing =
        peers.failing != NULL && slice_ends_nocase(slice_string(name), slice_string(peers.failing));
    for (size_t i = 0; i < peers.name_count; i++) {
        const struct peer_name *n = &peers.names[i];
        bool same = slice_equal_nocase(slice_string(n->name), slice_string(name));

        known = known || same;
        answers += same && n->type == (int)ns_rr_type(asked);
    }
    dns_put16(out, ns_msg_id(message));
    dns_put16(out, 0x8580u | (failing ? ns_r_servfail : known ? ns_r_noerror : ns_r_nxdomain));
    dns_put16(out, 1);
    dns_put16(out, failing ? 0 : answers);
    dns_put16(out, 0);
    dns_put16(out, 0);
    /* The question as it came, name compression being out of the question. */
    buf_add(out, slice_of(question.ptr + 12, strlen(question.ptr + 12) + 5));
    for (size_t i = 0; i < peers.name_count && !failing; i++) {
        const struct peer_name *n = &peers.names[i];

        if (slice_equal_nocase(slice_string(n->name), slice_string(name)) &&
            n->type == (int)ns_rr_type(asked)) {
            dns_put_record(out, n);
        }
    }
}

static void dns_on_question(evutil_socket_t fd, short what, void *arg)
{
    struct sockaddr_in from;
    socklen_t len = sizeof from;
    char bytes[1500];
    ssize_t n = recvfrom(fd, bytes, sizeof bytes, 0, (struct sockaddr *)&from, &len);
    struct buf out;

    (void)what;
    (void)arg;
    if (n < 12) {
        return;
    }
    peers.questions++;
    buf_init(&out, 4096);
    dns_answer(slice_of(bytes, (size_t)n), &out);
    assert_false(out.failed);
    (void)sendto(fd, buf_slice(&out).ptr, buf_len(&out), 0, (struct sockaddr *)&from, len);
    buf_fini(&out);
}

/* ---- all of them ---------------------------------------------------------------------------- */

static void peers_start(struct event_base *base)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof in;
    int fd = socket(AF_INET, SOCK_DGRAM, 0);

    peers = (struct peers){.base = base};
    assert_return_code(bind(fd, (struct sockaddr *)&in, sizeof in), 0);
    assert_return_code(getsockname(fd, (struct sockaddr *)&in, &len), 0);
    peers.dns_port = ntohs(in.sin_port);
    peers.dns = event_new(base, fd, EV_READ | EV_PERSIST, dns_on_question, NULL);
    event_add(peers.dns, NULL);
}

static void peers_stop(void)
{
    for (size_t i = 0; i < PEER_OPEN_MAX; i++) {
        if (peers.open[i] != NULL) {
            peer_close(peers.open[i]);
        }
    }
    for (size_t i = 0; i < peers.count; i++) {
        if (peers.peer[i].listener != NULL) {
            peer_stop_listening(&peers.peer[i]);
        }
        buf_fini(&peers.peer[i].heard);
    }
    (void)close(event_get_fd(peers.dns));
    event_free(peers.dns);
}

#endif
