/*
 * Sends the same message again and again, by SMTP or by HTTP, so that both are measured with one
 * client.
 *
 *      bench_source smtp PORT SESSIONS MESSAGES BYTES
 *      bench_source smtp-each PORT SESSIONS MESSAGES BYTES
 *      bench_source http PORT SESSIONS MESSAGES BYTES TOKEN
 *      bench_source keys PORT SESSIONS MESSAGES BYTES TOKEN
 *      bench_source json PORT SESSIONS MESSAGES BYTES TOKEN
 *
 * The message has BYTES bytes of content, one sender and one recipient. Each session is a
 * connection to loopback that is kept. `smtp` sends MAIL, RCPT and DATA in one piece (PIPELINING),
 * `smtp-each` waits for each reply as most libraries do; `http` posts message/rfc822, `keys` with a
 * key for each, and `json` posts a document.
 *
 * Prints the seconds from the first byte to the last answer. Any answer but the wanted one ends it.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "buf.h"
#include "check.h"
#include "mem.h"
#include "slice.h"

#define SESSIONS_MAX 1000ul
#define STEPS_MAX    8u
#define ANSWERS_MAX  65536u
#define LINE         70u
#define EVENTS       64
#define KEY_DIGITS   16

/* What is sent, and how many answers come back. */
struct step {
    struct slice bytes;
    unsigned answers;
};

/* A session goes through all steps once, then through those from `again` on for each message. */
struct script {
    struct step steps[STEPS_MAX];
    unsigned count, again;
    bool http;
    size_t key_at; /* in the one step, KEY_DIGITS for the session to fill in; 0: none */
};

struct session {
    int fd;
    unsigned step, answers; /* answers that have come in this step */
    size_t sent;
    struct buf in;
    char *own; /* the step with its key, if there are keys */
};

static const struct script *script;
static unsigned long left_to_begin, left_to_end;
static uint64_t last_key;

__attribute__((noreturn)) static void stop(const char *what, struct slice found)
{
    (void)fprintf(stderr, "bench_source: %s: %.*s\n", what,
                  (int)(found.len < 300 ? found.len : 300), found.ptr == NULL ? "" : found.ptr);
    exit(1);
}

static unsigned long number(const char *text, unsigned long max)
{
    unsigned long long n;

    if (!slice_number(slice_string(text), max, &n)) {
        stop("expected a number", slice_string(text));
    }
    return (unsigned long)n;
}

static void add(struct buf *out, const char *text)
{
    CHECK(buf_add_string(out, text));
}

/* The content, in lines, that neither begin with a dot nor have what JSON escapes. */
static void add_content(struct buf *out, size_t bytes, const char *end)
{
    for (size_t i = 0; i < bytes; i++) {
        CHECK(buf_add_byte(out, (char)('a' + i % 26)));
        if (i % LINE == LINE - 1) {
            add(out, end);
        }
    }
    add(out, end);
}

static void add_request(struct buf *out, const char *target, const char *type, const char *token,
                        struct slice body, size_t *ret_key_at)
{
    CHECK(buf_addf(out,
                   "POST /v1/inject%s HTTP/1.1\r\nHost: localhost\r\nContent-Type: %s\r\n"
                   "Authorization: Bearer %s\r\nContent-Length: %zu\r\n",
                   target, type, token, body.len));
    if (ret_key_at != NULL) {
        add(out, "Idempotency-Key: ");
        *ret_key_at = buf_len(out);
        CHECK(buf_addf(out, "%0*d\r\n", KEY_DIGITS, 0));
    }
    add(out, "\r\n");
    CHECK(buf_add(out, body));
}

static void make_script(struct script *s, struct buf room[2], const char *how, size_t bytes,
                        const char *token)
{
    static const char header[] = "From: sender@example.org\r\nTo: rcpt@example.net\r\n"
                                 "Subject: measured\r\nDate: Mon, 23 Nov 2026 12:00:00 +0000\r\n"
                                 "Message-ID: <1@example.org>\r\n\r\n";
    struct buf *body = &room[0], *out = &room[1];

    for (unsigned i = 0; i < 2; i++) {
        buf_init(&room[i], 1u << 31);
    }
    if (strcmp(how, "json") == 0) {
        add(body, "{\"from\":\"sender@example.org\",\"to\":\"rcpt@example.net\","
                  "\"subject\":\"measured\",\"text\":\"");
        add_content(body, bytes, "\\n");
        add(body, "\"}");
        add_request(out, "", "application/json", token, buf_slice(body), NULL);
    } else {
        add(body, header);
        add_content(body, bytes, "\r\n");
    }
    *s = (struct script){.http = strncmp(how, "smtp", 4) != 0};
    if (strcmp(how, "http") == 0 || strcmp(how, "keys") == 0) {
        add_request(out, "?from=sender@example.org&to=rcpt@example.net", "message/rfc822", token,
                    buf_slice(body), how[0] == 'k' ? &s->key_at : NULL);
    }
    if (s->http) {
        s->steps[s->count++] = (struct step){buf_slice(out), 1};
        return;
    }
    add(body, ".\r\n");
    s->steps[s->count++] = (struct step){SLICE(""), 1};
    s->steps[s->count++] = (struct step){SLICE("EHLO bench.example\r\n"), 1};
    s->again = s->count;
    if (strcmp(how, "smtp") == 0) {
        s->steps[s->count++] = (struct step){
            SLICE("MAIL FROM:<sender@example.org>\r\nRCPT TO:<rcpt@example.net>\r\nDATA\r\n"), 3};
    } else {
        s->steps[s->count++] = (struct step){SLICE("MAIL FROM:<sender@example.org>\r\n"), 1};
        s->steps[s->count++] = (struct step){SLICE("RCPT TO:<rcpt@example.net>\r\n"), 1};
        s->steps[s->count++] = (struct step){SLICE("DATA\r\n"), 1};
    }
    s->steps[s->count++] = (struct step){buf_slice(body), 1};
}

/* The length of the answer at the front of `in`; 0: not all of it has come. */
static size_t answer_length(struct slice in)
{
    static const char mark[] = "\r\nContent-Length: ";
    const char *end, *length;

    if (!script->http) {
        size_t at = 0, line;

        while ((line = slice_find(slice_skip(in, at), '\n')) < in.len - at) {
            bool last = in.ptr[at + 3] != '-';

            at += line + 1;
            if (last) {
                return at;
            }
        }
        return 0;
    }
    end = in.len == 0 ? NULL : memmem(in.ptr, in.len, "\r\n\r\n", 4);
    if (end == NULL) {
        return 0;
    }
    length = memmem(in.ptr, (size_t)(end - in.ptr), mark, sizeof mark - 1);
    if (length == NULL) {
        stop("an answer without a length", in);
    }
    end += 4 + strtoul(length + sizeof mark - 1, NULL, 10);
    return (size_t)(end - in.ptr) <= in.len ? (size_t)(end - in.ptr) : 0;
}

static bool is_wanted(struct slice answer)
{
    return script->http ? slice_starts(answer, SLICE("HTTP/1.1 200 "))
                        : answer.ptr[0] == '2' || answer.ptr[0] == '3';
}

static bool read_answers(struct session *s)
{
    char bytes[16384];
    ssize_t len = recv(s->fd, bytes, sizeof bytes, MSG_DONTWAIT);
    struct slice in;
    size_t one;

    if (len < 0 && errno == EAGAIN) {
        return false;
    }
    if (len <= 0) {
        stop("a connection ended", SLICE(""));
    }
    CHECK(buf_add(&s->in, slice_of(bytes, (size_t)len)));
    in = buf_slice(&s->in);
    while (s->answers < script->steps[s->step].answers && (one = answer_length(in)) > 0) {
        if (!is_wanted(in)) {
            stop("refused", in);
        }
        in = slice_skip(in, one);
        s->answers++;
    }
    buf_consume(&s->in, buf_len(&s->in) - in.len);
    return true;
}

/* Has some of it been sent? */
static bool send_some(struct session *s)
{
    struct slice all = script->steps[s->step].bytes;
    struct slice rest = slice_skip(s->own != NULL ? slice_of(s->own, all.len) : all, s->sent);
    ssize_t len = rest.len == 0 ? 0 : send(s->fd, rest.ptr, rest.len, MSG_DONTWAIT | MSG_NOSIGNAL);

    if (len < 0 && errno != EAGAIN) {
        stop("a connection failed", slice_string(strerror(errno)));
    }
    s->sent += len > 0 ? (size_t)len : 0;
    return len > 0;
}

/* It begins with a message; false: there is none left. */
static bool begin_message(struct session *s)
{
    char key[KEY_DIGITS + 1];

    if (left_to_begin == 0) {
        return false;
    }
    left_to_begin--;
    if (script->key_at > 0) {
        (void)snprintf(key, sizeof key, "%016llx", (unsigned long long)++last_key); /* fits */
        memcpy(s->own + script->key_at, key, KEY_DIGITS);
    }
    return true;
}

/* False: it has nothing more to do. */
static bool next_step(struct session *s)
{
    s->answers = 0;
    s->sent = 0;
    s->step++;
    if (s->step == script->count) {
        left_to_end--;
        s->step = script->again;
    }
    return s->step != script->again || begin_message(s);
}

/* Until nothing more can be sent or read: events come on edges. */
static void drive(struct session *s)
{
    bool moved = true;

    while (moved) {
        const struct step *step = &script->steps[s->step];

        moved = send_some(s);
        moved = read_answers(s) || moved;
        if (s->sent == step->bytes.len && s->answers == step->answers) {
            if (!next_step(s)) {
                (void)close(s->fd); /* a socket: nothing to lose */
                return;
            }
            moved = true;
        }
    }
}

static int connect_to(unsigned long port)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;

    if (fd < 0 || connect(fd, (const struct sockaddr *)&to, sizeof to) != 0 ||
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0) {
        stop("can't connect", slice_string(strerror(errno)));
    }
    return fd;
}

int main(int argc, char **argv)
{
    struct epoll_event events[EVENTS];
    struct session *sessions;
    struct timespec start, end;
    struct buf room[2];
    struct script made;
    unsigned long count, port;
    int poll;

    if (argc < 6 || (strncmp(argv[1], "smtp", 4) != 0 && argc != 7)) {
        (void)fprintf(stderr,
                      "usage: bench_source smtp|smtp-each|http|keys|json PORT SESSIONS MESSAGES "
                      "BYTES [TOKEN]\n");
        return 1;
    }
    port = number(argv[2], 65535);
    count = number(argv[3], SESSIONS_MAX);
    left_to_end = left_to_begin = number(argv[4], 1000000000);
    make_script(&made, room, argv[1], number(argv[5], 1ul << 30), argc > 6 ? argv[6] : "");
    script = &made;
    sessions = mem_array(count, sizeof *sessions);
    poll = epoll_create1(EPOLL_CLOEXEC);
    CHECK(poll >= 0 && clock_gettime(CLOCK_MONOTONIC, &start) == 0);
    last_key = (uint64_t)start.tv_sec << 32 | (uint64_t)start.tv_nsec; /* none was used before */
    for (unsigned long i = 0; i < count && left_to_begin > 0; i++) {
        struct session *s = &sessions[i];
        struct epoll_event wanted = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.ptr = s};

        s->fd = connect_to(port);
        buf_init(&s->in, ANSWERS_MAX);
        if (made.key_at > 0) {
            s->own = mem_copy(made.steps[0].bytes.ptr, made.steps[0].bytes.len);
        }
        CHECK(made.again > 0 || begin_message(s));
        CHECK(epoll_ctl(poll, EPOLL_CTL_ADD, s->fd, &wanted) == 0);
    }
    while (left_to_end > 0) {
        int n = epoll_wait(poll, events, EVENTS, -1);

        for (int i = 0; i < n; i++) {
            drive(events[i].data.ptr);
        }
    }
    CHECK(clock_gettime(CLOCK_MONOTONIC, &end) == 0);
    (void)printf("%.6f\n",
                 (double)(end.tv_sec - start.tv_sec) + (double)(end.tv_nsec - start.tv_nsec) / 1e9);
    return 0;
}
