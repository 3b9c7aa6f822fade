/*
 * mailq -p: asking a mailq server, ours or a ZMailer's, over its own protocol.
 */
#include "door.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sysexits.h>
#include <time.h>
#include <unistd.h>

#include "bundle.h"
#include "check.h"
#include "entropy.h"
#include "mailq_client.h"
#include "mailq_detail.h"
#include "mailq_directories.h"
#include "mailq_parent.h"
#include "mem.h"
#include "zmailer_variables.h"
#include "zmailer_dialect.h"

#define ANSWER_MS    60000 /* how long a server may be silent */
#define DEFAULT_PORT "174"
#define INPUT_MAX    ((size_t)2 * MAILQ_ANSWER_LINE_MAX)

struct options {
    const char *port, *host; /* host NULL: not given */
    const char *zenv;        /* NULL: the usual one */
    bool directories;
    struct conf *variables; /* owned; NULL: not needed yet */
    char *user, *password;  /* owned */
    struct mailq_request request;
};

static void print_usage(FILE *out)
{
    fputs("usage: mailq [-p PORT|/SOCKET] [-Q[Q[Q[Q]]]] [-aitsSv] [-U USER/PASSWORD]\n"
          "             [-c CHANNEL] [-h HOST] [-Z ZENV] [SERVER]\n"
          "ask a mailq server of Sluice or ZMailer\n"
          "  -p    its port (174), or its socket\n"
          "  -Q    threads only; more of them: rings, totals, counters\n"
          "  -s    first the state of POSTOFFICE's directories\n"
          "  -v    what the control files say, too\n"
          "  -c -h of this channel and host only\n"
          "  -S    a summary: rings, as -QQ\n"
          "  -a    log in with SCRAM-SHA-256\n"
          "  -i -t are ZMailer's, and change nothing\n"
          "  -U    instead of nobody/nobody; without a password: that in $MAILQ_PASSWORD\n"
          "  -Z    ZMailer's variables (POSTOFFICE, MAILSERVER) instead of $ZCONFIG's\n",
          out);
}

/* ZMailer's variables, once they are wanted; NULL after a message. */
static const struct conf *variables_of(struct options *o)
{
    struct buf messages;

    if (o->variables == NULL) {
        buf_init(&messages, 65536);
        o->variables = zmailer_variables(o->zenv != NULL ? o->zenv : getenv("ZCONFIG"), &messages);
        if (o->variables == NULL) {
            fprintf(stderr, "mailq: %s", buf_cstr(&messages));
        }
        buf_fini(&messages);
    }
    return o->variables;
}

/* Here is a ZMailer, and no configuration of ours. */
static bool is_zmailer_site(void)
{
    struct options o = {0};
    const struct conf *variables;
    bool is;

    if (bundle_default_path() != NULL) {
        return false;
    }
    variables = variables_of(&o);
    is = variables != NULL && variables->zenv_file[0] != '\0'; /* it was found */
    conf_free(o.variables);
    return is;
}

/* Is this command line of mailq one for a server, with a -p? */
static bool is_for_server(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (argv[i][0] == '-' && argv[i][1] != '\0' && strchr("pQsUZ", argv[i][1]) != NULL) {
            return true;
        }
    }
    return is_zmailer_site();
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
    while ((option = getopt(argc, argv, "p:QsvSaitU:c:h:Z:")) != -1) {
        switch (option) {
        case 'p':
            o->port = optarg;
            break;
        case 'Q':
            less = less < MAILQ_VIEW_COUNTERS ? less + 1 : less;
            break;
        case 's':
            o->directories = true;
            break;
        case 'v':
            o->request.verbose = true;
            break;
        case 'Z':
            o->zenv = optarg;
            break;
        case 'S':
            less = less < MAILQ_VIEW_RINGS ? MAILQ_VIEW_RINGS : less;
            break;
        case 'a':
            o->request.scram = true;
            break;
        case 'i': /* ZMailer's program takes them, and its manual page does not say what for */
        case 't':
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
    o->host = optind < argc ? argv[optind++] : NULL;
    o->port = o->port != NULL ? o->port : DEFAULT_PORT;
    o->request.view = (enum mailq_view)less;
    if (o->port[0] == '\0' || optind < argc) {
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

/* The server that is meant when none is named. */
static const char *usual_host(struct options *o)
{
    const struct conf *variables = variables_of(o);
    const char *host = variables == NULL ? NULL : conf_zenv(variables, SLICE("MAILSERVER"));

    return host != NULL && host[0] != '\0' ? host : "127.0.0.1";
}

static int connect_to(struct options *o)
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
    if (o->host == NULL) {
        o->host = usual_host(o);
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

static void print_row(struct options *o, const struct mailq_row *row)
{
    struct buf out;

    buf_init(&out, (size_t)1 << 30);
    mailq_detail_put(&out, conf_postoffice(o->variables), o->request.now_s, row);
    (void)fwrite(buf_slice(&out).ptr, 1, buf_len(&out), stdout); /* seen at the end */
    buf_fini(&out);
}

static int talk(int fd, struct options *o, struct mailq_client *client)
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
        } else if (event.type == MAILQ_CLIENT_ROW) {
            print_row(o, event.row);
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

    entropy_fill(bytes, sizeof bytes);
    for (size_t i = 0; i < sizeof bytes; i++) {
        (void)snprintf(nonce + 2 * i, 3, "%02x", bytes[i]); /* fits */
    }
}

static int ask_server(struct options *o)
{
    struct mailq_client *client;
    char nonce[33];
    int fd = connect_to(o), status;

    if (fd < 0) {
        return EX_UNAVAILABLE;
    }
    make_nonce(nonce);
    o->request.user = o->user;
    o->request.password = o->password;
    o->request.nonce = nonce;
    o->request.now_s = time(NULL);
    client = mailq_client_new(&o->request);
    status = talk(fd, o, client);
    mailq_client_free(client);
    (void)close(fd); /* nothing is lost with it */
    return status;
}

/* What -s wants. */
static void print_directories(struct options *o)
{
    struct buf out;

    buf_init(&out, 65536);
    (void)mailq_directories_put(&out, conf_postoffice(o->variables)); /* it says what is wrong */
    (void)fwrite(buf_slice(&out).ptr, 1, buf_len(&out), stdout);      /* seen at the end */
    buf_fini(&out);
}

/* The exit status is of sysexits. */
static int ask(int argc, char **argv)
{
    struct options o = {0};
    int status = EX_USAGE;

    if (read_options(argc, argv, &o)) {
        if ((o.directories || o.request.verbose) && variables_of(&o) == NULL) {
            status = EX_CONFIG;
        } else {
            if (o.directories) {
                print_directories(&o);
            }
            status = ask_server(&o);
        }
    }
    if (o.password != NULL) {
        explicit_bzero(o.password, strlen(o.password));
    }
    mem_free(o.user);
    mem_free(o.password);
    conf_free(o.variables);
    return status;
}

void zmailer_open_commands(void)
{
    zmailer_open_conf();
    mailq_parent_register();
}

bool zmailer_run_mailq(int argc, char **argv, int *ret_status)
{
    if (!is_for_server(argc, argv)) {
        return false;
    }
    *ret_status = ask(argc, argv);
    return true;
}
