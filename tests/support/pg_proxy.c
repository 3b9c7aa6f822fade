#include "pg_proxy.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CONNECTIONS_MAX 100
#define SOCKET_NAME     ".s.PGSQL.5432"

enum side { FRONT, BACK };

enum harm { CUT, HALF, SWALLOW, DELAY, FLIP, FAIL };

struct bytes {
    unsigned char *at;
    size_t len, size;
};

/* One direction of a connection. */
struct way {
    int from, to;            /* -1: closed */
    struct bytes in;         /* not looked at yet */
    struct bytes out;        /* to be passed on */
    int64_t held_until;      /* ms */
    bool is_typed;           /* the first message of a client has no type */
    bool is_over, is_passed; /* `held` is to be passed on without a look */
};

struct connection {
    struct way ways[2];
    char kind; /* 0: not known yet */
    bool is_new;
    bool is_deaf;     /* nothing is passed on */
    int64_t close_at; /* ms; 0: it is not to be closed */
};

static struct {
    struct connection *list[CONNECTIONS_MAX];
    int count;
    const char *server_dir;
    bool is_hole;
    /* the harm to do */
    bool is_armed;
    enum side side;
    const char *types; /* of messages that are counted; NULL: all are */
    enum harm harm;
    long left;
    char kind, state[6];
    long fired;
    long late_ms;
    uint64_t random;
    unsigned long one_in;
    bool flips; /* no other harm is done at random */
} proxy;

static int64_t now_ms(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void add(struct bytes *b, const void *bytes, size_t len)
{
    if (b->size - b->len < len) {
        b->size = 2 * b->size + len;
        b->at = realloc(b->at, b->size);
        if (b->at == NULL) {
            abort();
        }
    }
    memcpy(b->at + b->len, bytes, len);
    b->len += len;
}

static void take(struct bytes *b, size_t len)
{
    memmove(b->at, b->at + len, b->len - len);
    b->len -= len;
}

/* ---- connections ----------------------------------------------------------------------------- */

static void close_end(struct connection *c, int fd)
{
    if (fd < 0) {
        return;
    }
    (void)close(fd);
    for (int i = 0; i < 2; i++) {
        c->ways[i].from = c->ways[i].from == fd ? -1 : c->ways[i].from;
        c->ways[i].to = c->ways[i].to == fd ? -1 : c->ways[i].to;
    }
}

static void close_both(struct connection *c)
{
    close_end(c, c->ways[FRONT].from);
    close_end(c, c->ways[BACK].from);
}

static void set_path(struct sockaddr_un *a, const char *dir)
{
    *a = (struct sockaddr_un){.sun_family = AF_UNIX};
    (void)snprintf(a->sun_path, sizeof a->sun_path, "%.80s/%s", dir, SOCKET_NAME);
}

static void accept_one(int listener)
{
    struct sockaddr_un a;
    int client = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK), server;
    struct connection *c;

    if (client < 0) {
        return;
    }
    set_path(&a, proxy.server_dir);
    server = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (proxy.count == CONNECTIONS_MAX || connect(server, (struct sockaddr *)&a, sizeof a) != 0 ||
        fcntl(server, F_SETFL, O_NONBLOCK) != 0) {
        (void)close(client); /* as a host without a server */
        (void)close(server);
        return;
    }
    c = calloc(1, sizeof *c);
    if (c == NULL) {
        abort();
    }
    c->ways[FRONT].from = c->ways[BACK].to = client;
    c->ways[FRONT].to = c->ways[BACK].from = server;
    c->ways[BACK].is_typed = true;
    c->is_new = true;
    proxy.list[proxy.count++] = c;
}

static void free_closed(void)
{
    int kept = 0;

    for (int i = 0; i < proxy.count; i++) {
        struct connection *c = proxy.list[i];

        if (c->ways[FRONT].from >= 0 || c->ways[BACK].from >= 0) {
            proxy.list[kept++] = c;
            continue;
        }
        for (int k = 0; k < 2; k++) {
            free(c->ways[k].in.at);
            free(c->ways[k].out.at);
        }
        free(c);
    }
    proxy.count = kept;
}

/* ---- messages -------------------------------------------------------------------------------- */

static char kind_of(const unsigned char *m, size_t len)
{
    static const struct {
        const char *words;
        char kind;
    } kinds[] = {
        {"INSERT INTO batch", 'W'}, {"SET lock_timeout = 500", 'L'}, {"parts FROM arrival", 'R'}};

    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (memmem(m, len, kinds[i].words, strlen(kinds[i].words)) != NULL) {
            return kinds[i].kind;
        }
    }
    return 0;
}

static void add_message(struct bytes *to, char type, const void *body, size_t len)
{
    uint32_t size = (uint32_t)len + 4;
    const unsigned char head[] = {(unsigned char)type, (unsigned char)(size >> 24),
                                  (unsigned char)(size >> 16), (unsigned char)(size >> 8),
                                  (unsigned char)size};

    add(to, head, sizeof head);
    add(to, body, len);
}

/* A statement that fails, before the one that the client binds: the server then passes over all up
 * to the next Sync. */
static void add_failure(struct bytes *to)
{
    char body[100] = "";
    int len =
        snprintf(body + 1, sizeof body - 1, "DO $$BEGIN RAISE SQLSTATE '%s'; END$$", proxy.state);

    add_message(to, 'P', body, (size_t)len + 4); /* no name, no types of parameters */
    add_message(to, 'B', "\0\0\0\0\0\0\0\0", 8);
    add_message(to, 'E', "\0\0\0\0\0", 5);
}

static unsigned long next_random(void)
{
    proxy.random ^= proxy.random << 13; /* xorshift64 */
    proxy.random ^= proxy.random >> 7;
    proxy.random ^= proxy.random << 17;
    return (unsigned long)(proxy.random >> 11);
}

/* At the message of `len` bytes that comes next. */
static void harm(struct connection *c, struct way *w, size_t len, enum harm how)
{
    proxy.fired++;
    switch (how) {
    case CUT:
        close_both(c);
        return;
    case HALF:
        close_end(c, c->ways[FRONT].from);
        c->is_deaf = true;
        c->close_at = now_ms() + proxy.late_ms;
        return;
    case SWALLOW:
        c->is_deaf = true;
        c->close_at = now_ms() + proxy.late_ms;
        return;
    case DELAY:
        w->held_until = now_ms() + proxy.late_ms;
        w->is_passed = true;
        return;
    case FLIP:
        w->in.at[next_random() % len] ^= (unsigned char)(1 << next_random() % 8);
        return;
    case FAIL:
        add_failure(&w->out);
        return;
    }
}

/* A whole message is about to be passed on. */
static void look(struct connection *c, enum side side, const unsigned char *m, size_t len)
{
    struct way *w = &c->ways[side];

    if (side == FRONT && c->kind == 0) {
        c->kind = kind_of(m, len);
    }
    if (w->is_passed) { /* it was held */
        w->is_passed = false;
        return;
    }
    if (proxy.one_in > 0 && next_random() % proxy.one_in == 0) {
        harm(c, w, len, proxy.flips ? FLIP : (enum harm)(next_random() % 4));
        return;
    }
    if (!proxy.is_armed || side != proxy.side ||
        !(proxy.kind == '*' || (proxy.kind == '+' ? c->is_new : c->kind == proxy.kind)) ||
        (proxy.types != NULL && strchr(proxy.types, m[0]) == NULL) || --proxy.left > 0) {
        return;
    }
    proxy.is_armed = false;
    harm(c, w, len, proxy.harm);
}

/* The length of the message at the beginning; 0: it is not complete. */
static size_t message_length(const struct way *w)
{
    size_t head = w->is_typed ? 1 : 0, len;
    const unsigned char *l = w->in.at + head;

    if (w->in.len < head + 4) {
        return 0;
    }
    len = head + ((size_t)l[0] << 24 | (size_t)l[1] << 16 | (size_t)l[2] << 8 | l[3]);
    return w->in.len >= len ? len : 0;
}

static void pass(struct connection *c, enum side side)
{
    struct way *w = &c->ways[side];
    size_t len;

    while (!proxy.is_hole && !c->is_deaf && w->from >= 0 && now_ms() >= w->held_until &&
           (len = message_length(w)) > 0) {
        look(c, side, w->in.at, len);
        if (c->is_deaf || w->from < 0 || now_ms() < w->held_until) {
            break;
        }
        w->is_typed = true;
        add(&w->out, w->in.at, len);
        take(&w->in, len);
    }
    if (c->is_deaf) {
        w->in.len = 0;
    }
}

static void write_some(struct connection *c, struct way *w)
{
    ssize_t len;

    while (w->out.len > 0 && w->to >= 0) {
        len = send(w->to, w->out.at, w->out.len, MSG_NOSIGNAL);
        if (len <= 0) {
            if (len < 0 && errno != EAGAIN) {
                close_both(c);
            }
            return;
        }
        take(&w->out, (size_t)len);
    }
}

static void read_some(struct connection *c, enum side side)
{
    struct way *w = &c->ways[side];
    unsigned char room[65536];
    ssize_t len = recv(w->from, room, sizeof room, 0);

    if (len > 0) {
        add(&w->in, room, (size_t)len);
    } else if (len == 0 || errno != EAGAIN) {
        w->is_over = true;
    }
}

/* ---- what it is told ------------------------------------------------------------------------- */

static void arm(const char *line)
{
    char side[16], how[16], kind;
    long n;

    if (sscanf(line, "arm %15s %ld %15s %c", side, &n, how, &kind) != 4) {
        abort();
    }
    proxy.side = strcmp(side, "front") == 0 || strcmp(side, "statements") == 0 ? FRONT : BACK;
    proxy.harm = strcmp(how, "cut") == 0       ? CUT
                 : strcmp(how, "half") == 0    ? HALF
                 : strcmp(how, "swallow") == 0 ? SWALLOW
                 : strcmp(how, "delay") == 0   ? DELAY
                                               : FAIL;
    proxy.types = proxy.harm == FAIL                ? "B"
                  : strcmp(side, "statements") == 0 ? "BS"
                  : strcmp(side, "answers") == 0    ? "CZ"
                                                    : NULL;
    (void)snprintf(proxy.state, sizeof proxy.state, "%.5s", how);
    proxy.left = n;
    proxy.kind = kind;
    proxy.is_armed = n > 0;
    for (int i = 0; i < proxy.count; i++) {
        proxy.list[i]->is_new = false;
    }
}

static void obey(const char *line, int out)
{
    unsigned long seed;

    if (strncmp(line, "arm ", 4) == 0) {
        arm(line);
    } else if (sscanf(line, "random %lu %lu", &seed, &proxy.one_in) == 2) {
        proxy.random = seed * 2 + 1;
        proxy.flips = false;
    } else if (sscanf(line, "flips %lu %lu", &seed, &proxy.one_in) == 2) {
        proxy.random = seed * 2 + 1;
        proxy.flips = true;
    } else if (strcmp(line, "noise") == 0) {
        for (int i = 0; i < proxy.count; i++) {
            /* A length that has no room for itself. */
            add(&proxy.list[i]->ways[BACK].out, "\1\0\0\0", 5);
        }
    } else if (sscanf(line, "late %ld", &proxy.late_ms) == 1) {
        /* from now on */
    } else if (strncmp(line, "hole ", 5) == 0) {
        proxy.is_hole = line[5] == '1';
    } else if (strcmp(line, "drop") == 0) {
        for (int i = 0; i < proxy.count; i++) {
            close_both(proxy.list[i]);
        }
    } else if (strcmp(line, "fired") != 0) {
        abort();
    }
    (void)dprintf(out, "%ld\n", proxy.fired);
}

/* ---- the whole ------------------------------------------------------------------------------- */

static int wait_for(struct pollfd *polled, int in, int listener)
{
    int64_t now = now_ms(), until = INT64_MAX;
    int count = 0;

    polled[count++] = (struct pollfd){.fd = in, .events = POLLIN};
    polled[count++] = (struct pollfd){.fd = listener, .events = POLLIN};
    for (int i = 0; i < proxy.count; i++) {
        struct connection *c = proxy.list[i];

        for (int k = 0; k < 2; k++) {
            struct way *w = &c->ways[k], *other = &c->ways[1 - k];
            short events = (short)((w->is_over || proxy.is_hole ? 0 : POLLIN) |
                                   (other->out.len > 0 ? POLLOUT : 0));

            polled[count++] = (struct pollfd){.fd = events == 0 ? -1 : w->from, .events = events};
            if (w->held_until > now && w->held_until < until) {
                until = w->held_until;
            }
        }
        if (c->close_at > 0 && c->close_at < until) {
            until = c->close_at;
        }
    }
    return poll(polled, (nfds_t)count,
                until == INT64_MAX ? -1
                : until <= now     ? 0
                                   : (int)(until - now)) < 0 &&
                   errno != EINTR
               ? -1
               : count;
}

static void turn(const struct pollfd *polled, int count)
{
    for (int i = 0; i < count; i++) {
        struct connection *c = proxy.list[i];

        for (int k = 0; k < 2; k++) {
            if ((polled[2 * i + k].revents & (POLLIN | POLLHUP | POLLERR)) != 0 &&
                c->ways[k].from >= 0) {
                read_some(c, (enum side)k);
            }
        }
        for (int k = 0; k < 2; k++) {
            pass(c, (enum side)k);
            write_some(c, &c->ways[k]);
        }
        for (int k = 0; k < 2; k++) { /* an end is told when all whole messages before it were */
            if (c->ways[k].is_over && message_length(&c->ways[k]) == 0 && c->ways[k].out.len == 0 &&
                !proxy.is_hole && !c->is_deaf) {
                close_both(c);
            }
        }
        if (c->close_at > 0 && now_ms() >= c->close_at) {
            close_both(c);
        }
    }
}

int pg_proxy_run(const char *dir, const char *server_dir, int in, int out)
{
    struct pollfd polled[2 + 2 * CONNECTIONS_MAX];
    struct sockaddr_un a;
    char line[200];
    size_t len = 0;
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), count;

    set_path(&a, dir);
    if (bind(listener, (struct sockaddr *)&a, sizeof a) != 0 || listen(listener, 100) != 0 ||
        chmod(a.sun_path, 0777) != 0) {
        perror(a.sun_path);
        return EXIT_FAILURE;
    }
    proxy.server_dir = server_dir;
    proxy.late_ms = PG_PROXY_LATE_MS;
    (void)dprintf(out, "0\n");
    while ((count = wait_for(polled, in, listener)) > 0) {
        int connections = proxy.count;

        if (polled[0].revents != 0) {
            if (read(in, line + len, 1) != 1) {
                return EXIT_SUCCESS;
            }
            if (line[len] == '\n') {
                line[len] = '\0';
                obey(line, out);
                len = 0;
            } else if (++len == sizeof line) {
                return EXIT_FAILURE;
            }
        }
        turn(polled + 2, connections);
        free_closed();
        if (polled[1].revents != 0 && !proxy.is_hole) {
            accept_one(listener);
        }
    }
    return EXIT_FAILURE;
}

#ifdef PG_PROXY_MAIN
int main(int argc, char **argv)
{
    return argc == 3 ? pg_proxy_run(argv[1], argv[2], STDIN_FILENO, STDOUT_FILENO) : EXIT_FAILURE;
}
#else

#include "unit.h"

void pg_proxy_init(struct pg_proxy *p, const char *server_dir)
{
    int ends[2];
    char answer[8];

    (void)strcpy(p->dir, "/tmp/pg-proxy.XXXXXX");
    assert_non_null(mkdtemp(p->dir));
    assert_return_code(chmod(p->dir, 0755), errno);
    assert_return_code(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), errno);
    p->pid = fork();
    assert_return_code(p->pid, errno);
    if (p->pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)close(ends[0]);
        _exit(pg_proxy_run(p->dir, server_dir, ends[1], ends[1]));
    }
    (void)close(ends[1]);
    p->control = ends[0];
    assert_int_equal(read(p->control, answer, sizeof answer), 2); /* it listens */
}

void pg_proxy_fini(struct pg_proxy *p)
{
    char path[100];

    (void)close(p->control);
    (void)waitpid(p->pid, NULL, 0);
    (void)snprintf(path, sizeof path, "%s/%s", p->dir, SOCKET_NAME);
    (void)unlink(path);
    (void)rmdir(p->dir);
}

long pg_proxy_tell(const struct pg_proxy *p, const char *format, ...)
{
    char line[200];
    va_list args;
    ssize_t len;

    va_start(args, format);
    len = vsnprintf(line, sizeof line - 1, format, args);
    va_end(args);
    line[len++] = '\n';
    assert_int_equal(write(p->control, line, (size_t)len), len);
    len = 0;
    do {
        assert_int_equal(read(p->control, line + len, 1), 1);
    } while (line[len++] != '\n');
    return strtol(line, NULL, 10);
}
#endif
