/*
 * mailq -p: queries a mailq server, ours or ZMailer's, over the mailq protocol.
 */
#include "door.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <pwd.h>
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

#define ANSWER_MS    60000 /* longest silence of a server */
#define DEFAULT_PORT "174"
#define INPUT_MAX    ((size_t)2 * MAILQ_ANSWER_LINE_MAX)

struct options {
    const char *port, *host; /* host NULL: not given */
    const char *zenv;        /* NULL: the default file */
    unsigned directories;    /* number of -s options */
    int family;              /* -4, -6 */
    unsigned verbose;        /* number of -v options */
    uid_t owner;
    struct conf *variables; /* owned; NULL: not loaded yet */
    char *user, *password;  /* owned */
    struct mailq_request request;
};

static void print_usage(FILE *out)
{
    fputs("usage: mailq [-p PORT|/SOCKET] [-Q[Q[Q[Q]]]] [-46adis[s]S[S]tv[v]] [-u USER]\n"
          "             [-U USER/PASSWORD] [-c CHANNEL] [-h HOST] [-Z ZENV] [SERVER]\n"
          "ask a mailq server of Sluice or ZMailer\n"
          "  -p    its port (174), or its socket\n"
          "  -Q    threads only; more of them: rings, totals, counters\n"
          "  -s    first the state of POSTOFFICE's directories; -ss: nothing else\n"
          "  -4 -6 by IPv4, IPv6\n"
          "  -v    what the control files say, too; -vv: and sizes of messages\n"
          "  -c -h of this channel and host only\n"
          "  -S    of each channel and host the number and size of files; -SS: the number\n"
          "  -a    log in with SCRAM-SHA-256\n"
          "  -i -u mail of your own, or of this user, as -v\n"
          "  -t    no -v\n"
          "  -d    is ZMailer's, and changes nothing\n"
          "  -U    log in as this user (default: nobody, password nobody); the default of another\n"
          "        user's password is $MAILQ_PASSWORD\n"
          "  -Z    ZMailer's variables (POSTOFFICE, MAILSERVER) instead of $ZCONFIG's\n",
          out);
}

/* Loads ZMailer's variables at the first call. Returns NULL after an error message. */
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

/* Is a ZMailer installed here, and no configuration of Sluice? */
static bool is_zmailer_site(void)
{
    struct options o = {0};
    const struct conf *variables;
    bool is;

    if (bundle_default_path() != NULL) {
        return false;
    }
    variables = variables_of(&o);
    is = variables != NULL && variables->zenv_file[0] != '\0'; /* a file was found */
    conf_free(o.variables);
    return is;
}

/* Is this a command line for a mailq server, as with -p? */
static bool is_for_server(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (argv[i][0] == '-' && argv[i][1] != '\0' && strchr("46dpQsSuUZ", argv[i][1]) != NULL) {
            return true;
        }
    }
    return is_zmailer_site();
}

static void set_user(struct options *o, const char *text)
{
    static const char separators[] = "/:,"; /* the first one that is there */
    const char *cut = NULL, *secret = getenv("MAILQ_PASSWORD");

    for (size_t i = 0; cut == NULL && separators[i] != '\0'; i++) {
        cut = strchr(text, separators[i]);
    }

    mem_free(o->user);
    mem_free(o->password);
    o->user = cut != NULL ? mem_copy(text, (size_t)(cut - text)) : mem_string(text);
    o->password = mem_string(cut != NULL ? cut + 1 : secret != NULL ? secret : "");
}

/* Shows only mail of this user, which needs the control files. */
static void set_owner(struct options *o, uid_t owner)
{
    o->request.is_own = o->request.verbose = true;
    o->owner = owner;
}

/* Finds the user for -u. Returns false after an error message. */
static bool find_owner(struct options *o, const char *name)
{
    const struct passwd *account = getpwnam(name);

    if (account == NULL) {
        fprintf(stderr, "mailq: unknown user `%s'\n", name);
        return false;
    }
    set_owner(o, account->pw_uid);
    return true;
}

/* Reads the command line. Returns false after an error message. */
static bool read_options(int argc, char **argv, struct options *o)
{
    unsigned less = 0;
    int option;

    set_user(o, "nobody/nobody");
    while ((option = getopt(argc, argv, "46dp:QsvSaitu:U:c:h:Z:")) != -1) {
        switch (option) {
        case 'p':
            o->port = optarg;
            break;
        case 'Q':
            less = less < MAILQ_VIEW_COUNTERS ? less + 1 : less;
            break;
        case 's':
            o->directories++;
            break;
        case '4':
        case '6':
            o->family = option == '4' ? AF_INET : AF_INET6;
            break;
        case 'd': /* without effect; ZMailer's prints the received lines */
            break;
        case 'v':
            o->request.verbose = true;
            o->verbose++;
            break;
        case 'Z':
            o->zenv = optarg;
            break;
        case 'S':
            o->request.summary++;
            break;
        case 'a':
            o->request.scram = true;
            break;
        case 'i':
            set_owner(o, getuid());
            break;
        case 'u':
            if (!find_owner(o, optarg)) {
                return false;
            }
            break;
        case 't':
            o->request.verbose = false;
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

/* Returns the default server. */
static const char *usual_host(struct options *o)
{
    const struct conf *variables = variables_of(o);
    const char *host = variables == NULL ? NULL : conf_zenv(variables, SLICE("MAILSERVER"));

    return host != NULL && host[0] != '\0' ? host : "127.0.0.1";
}

static int connect_to(struct options *o)
{
    const struct addrinfo hints = {.ai_family = o->family, .ai_socktype = SOCK_STREAM};
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

/* Sends all output. Returns false after an error message. */
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

/* Receives more input or its end. Returns false after an error message. */
static bool receive(int fd, struct mailq_client *client, struct buf *in)
{
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    char *room = buf_room(in, 65536);
    ssize_t n;
    int rc;

    CHECK(room != NULL); /* fits: the client refuses longer lines */
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
    mailq_detail_put(&out, conf_postoffice(o->variables), o->request.now_s, row, o->verbose > 1);
    (void)fwrite(buf_slice(&out).ptr, 1, buf_len(&out), stdout); /* checked at the end */
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
            (void)fwrite(event.text.ptr, 1, event.text.len, stdout); /* checked at the end */
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

static void make_nonce(char nonce[33])
{
    unsigned char bytes[16];

    entropy_fill(bytes, sizeof bytes);
    for (size_t i = 0; i < sizeof bytes; i++) {
        (void)snprintf(nonce + 2 * i, 3, "%02x", bytes[i]); /* fits */
    }
}

/* Filters the messages of a request, as its `look`. */
static bool look(void *arg, const char *path, uint64_t *ret_size)
{
    const struct options *o = arg;
    uid_t owner;

    return mailq_detail_look(conf_postoffice(o->variables), path, &owner, ret_size)
               ? !o->request.is_own || owner == o->owner
               : !o->request.is_own;
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
    o->request.look = o->request.is_own || o->request.summary > 0 ? look : NULL;
    o->request.look_arg = o;
    client = mailq_client_new(&o->request);
    status = talk(fd, o, client);
    mailq_client_free(client);
    (void)close(fd); /* a close error loses no data */
    return status;
}

/* Prints the counts of -s. */
static void print_directories(struct options *o)
{
    struct buf out;

    buf_init(&out, 65536);
    (void)mailq_directories_put(&out, conf_postoffice(o->variables)); /* the text has the error */
    (void)fwrite(buf_slice(&out).ptr, 1, buf_len(&out), stdout);      /* checked at the end */
    buf_fini(&out);
}

/* Runs mailq for a server. Returns an exit status of sysexits. */
static int ask(int argc, char **argv)
{
    struct options o = {0};
    int status = EX_USAGE;

    if (read_options(argc, argv, &o)) {
        bool looks = o.directories > 0 || o.request.verbose || o.request.summary > 0;

        if (looks && variables_of(&o) == NULL) {
            status = EX_CONFIG;
        } else {
            if (o.directories > 0) {
                print_directories(&o);
            }
            status = o.directories > 1 && o.request.summary == 0 ? EX_OK : ask_server(&o);
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
