#include "remote_mailq.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sysexits.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "mailq_client.h"
#include "mem.h"

#define ANSWER_MS 60000 /* how long a server may be silent */
#define INPUT_MAX ((size_t)2 * MAILQ_ANSWER_LINE_MAX)

struct options {
    const char *port, *host;
    char *user, *password; /* owned */
    struct mailq_request request;
};

static void print_usage(FILE *out)
{
    fputs(
        "usage: mailq -p PORT|/SOCKET [-Q[Q[Q[Q]]]] [-S] [-U USER/PASSWORD] [-c CHANNEL] [-h HOST] "
        "[SERVER]\n"
        "ask a mailq server of Sluice or ZMailer\n"
        "  -Q    threads only; more of them: rings, totals, counters\n"
        "  -S    log in with SCRAM-SHA-256\n"
        "  -U    instead of nobody/nobody; without a password: that in $MAILQ_PASSWORD\n",
        out);
}

bool remote_mailq_meant(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "-p", 2) == 0) {
            return true;
        }
    }
    return false;
}

static void set_user(struct options *o, const char *text)
{
    const char *slash = strchr(text, '/'), *secret = getenv("MAILQ_PASSWORD");

    mem_free(o->user);
    mem_free(o->password);
    o->user = slash != NULL ? mem_copy(text, (size_t)(slash - text)) : mem_string(text);
    o->password = mem_string(slash != NULL ? slash + 1 : secret != NULL ? secret : "");
}

/* False: the command line is wrong, and the usage has been printed. */
static bool read_options(int argc, char **argv, struct options *o)
{
    unsigned less = 0;
    int option;

    set_user(o, "nobody/nobody");
    while ((option = getopt(argc, argv, "p:QSU:c:h:")) != -1) {
        switch (option) {
        case 'p':
            o->port = optarg;
            break;
        case 'Q':
            less = less < MAILQ_VIEW_COUNTERS ? less + 1 : less;
            break;
        case 'S':
            o->request.scram = true;
            break;
        case 'U':
            set_user(o, optarg);
            break;
        case 'c':
            o->request.channel = optarg;
            break;
        case 'h':
            o->request.host = optarg;
            break;
        default:
            print_usage(stderr);
            return false;
        }
    }
    o->host = optind < argc ? argv[optind++] : "127.0.0.1";
    o->request.view = (enum mailq_view)less;
    if (o->port == NULL || o->port[0] == '\0' || optind < argc) {
        print_usage(stderr);
        return false;
    }
    return true;
}

static int connect_unix(const char *path)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    int fd;

    if (strlen(path) >= sizeof addr.sun_path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy(addr.sun_path, path, strlen(path));
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&addr, sizeof addr) != 0) {
        int error = errno;

        (void)close(fd); /* never connected */
        errno = error;
        return -1;
    }
    return fd;
}

static int connect_to(const struct options *o)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *list, *a;
    int fd = -1, error;

    if (o->port[0] == '/') {
        fd = connect_unix(o->port);
        if (fd < 0) {
            fprintf(stderr, "mailq: %s: %s\n", o->port, strerror(errno));
        }
        return fd;
    }
    error = getaddrinfo(o->host, o->port, &hints, &list);
    if (error != 0) {
        fprintf(stderr, "mailq: %s port %s: %s\n", o->host, o->port, gai_strerror(error));
        return -1;
    }
    for (a = list; a != NULL && fd < 0; a = a->ai_next) {
        fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
        if (fd >= 0 && connect(fd, a->ai_addr, a->ai_addrlen) != 0) {
            error = errno;
            (void)close(fd); /* never connected */
            errno = error;
            fd = -1;
        }
    }
    freeaddrinfo(list);
    if (fd < 0) {
        fprintf(stderr, "mailq: %s port %s: %s\n", o->host, o->port, strerror(errno));
    }
    return fd;
}

/* False after a message. */
static bool send_all(int fd, struct buf *out)
{
    while (buf_len(out) > 0) {
        ssize_t n = send(fd, buf_slice(out).ptr, buf_len(out), MSG_NOSIGNAL);

        if (n < 0 && errno != EINTR) {
            fprintf(stderr, "mailq: sending: %s\n", strerror(errno));
            return false;
        }
        buf_consume(out, n > 0 ? (size_t)n : 0);
    }
    return true;
}

/* More input, or its end; false after a message. */
static bool receive(int fd, struct mailq_client *client, struct buf *in)
{
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    char *room = buf_room(in, 65536);
    ssize_t n;
    int rc;

    CHECK(room != NULL); /* the client refuses lines that would fill it */
    do {
        rc = poll(&ready, 1, ANSWER_MS);
    } while (rc < 0 && errno == EINTR);
    if (rc == 0) {
        fprintf(stderr, "mailq: the server has been silent for %d s\n", ANSWER_MS / 1000);
        return false;
    }
    n = rc < 0 ? -1 : recv(fd, room, 65536, 0);
    if (n < 0) {
        fprintf(stderr, "mailq: receiving: %s\n", strerror(errno));
        return false;
    }
    buf_grew(in, (size_t)n);
    if (n == 0) {
        mailq_client_input_ended(client);
    }
    return true;
}

static int talk(int fd, struct mailq_client *client)
{
    struct mailq_client_event event;
    int status = -1;
    struct buf in;

    buf_init(&in, INPUT_MAX);
    while (status < 0) {
        mailq_client_next(client, &in, &event);
        if (!send_all(fd, mailq_client_output(client))) {
            status = EX_PROTOCOL;
        } else if (event.type == MAILQ_CLIENT_TEXT) {
            (void)fwrite(event.text.ptr, 1, event.text.len, stdout); /* seen at the end */
        } else if (event.type == MAILQ_CLIENT_DONE) {
            status = EX_OK;
        } else if (event.type == MAILQ_CLIENT_FAILED) {
            fprintf(stderr, "mailq: %.*s\n", SLICE_ARGS(event.text));
            status = EX_PROTOCOL;
        } else if (!receive(fd, client, &in)) {
            status = EX_TEMPFAIL;
        }
    }
    buf_fini(&in);
    return fflush(stdout) == 0 && !ferror(stdout) ? status : EX_IOERR;
}

/* Random letters for SCRAM. */
static void make_nonce(char nonce[33])
{
    unsigned char bytes[16];

    CHECK(getrandom(bytes, sizeof bytes, 0) == (ssize_t)sizeof bytes);
    for (size_t i = 0; i < sizeof bytes; i++) {
        (void)snprintf(nonce + 2 * i, 3, "%02x", bytes[i]); /* fits */
    }
}

int remote_mailq_main(int argc, char **argv)
{
    struct options o = {0};
    struct mailq_client *client;
    char nonce[33];
    int fd, status = EX_USAGE;

    if (read_options(argc, argv, &o)) {
        fd = connect_to(&o);
        status = EX_UNAVAILABLE;
        if (fd >= 0) {
            make_nonce(nonce);
            o.request.user = o.user;
            o.request.password = o.password;
            o.request.nonce = nonce;
            o.request.now_s = time(NULL);
            client = mailq_client_new(&o.request);
            status = talk(fd, client);
            mailq_client_free(client);
            (void)close(fd); /* nothing is lost with it */
        }
    }
    if (o.password != NULL) {
        explicit_bzero(o.password, strlen(o.password));
    }
    mem_free(o.user);
    mem_free(o.password);
    return status;
}
