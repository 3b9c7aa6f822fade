/*
 * sendmail: writes a mail from a program or a person to maildrop, whether the daemon runs or not.
 * The options are those that programs pass to sendmail; those without a meaning here are accepted
 * and ignored. docs/maildrop.md describes the whole path.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pwd.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sysexits.h>
#include <time.h>
#include <unistd.h>

#include "address.h"
#include "bundle.h"
#include "check.h"
#include "door.h"
#include "header.h"
#include "maildrop.h"
#include "mem.h"
#include "printable.h"
#include "server.h"
#include "xtext.h"

#define HEADER_MAX     (1u << 20)
#define PIECE_SIZE     65536u
#define ERROR_TEXT_MAX 8192

enum mode { MODE_MAIL, MODE_SMTP, MODE_LIST, MODE_FLUSH, MODE_NOTHING };

struct options {
    enum mode mode;
    const char *conf_path;
    const char *sender; /* -f; NULL: the user */
    const char *name;   /* -F; NULL: the user's name */
    bool from_header;   /* -t */
    bool ignore_dots;   /* -i */
    unsigned notify;
    unsigned flags;
    struct buf envid; /* xtext */
};

/* The submitted message, without its content. Strings of recipients are owned. */
struct submission {
    struct buf sender;
    struct buf name;
    struct buf envid;
    unsigned flags;
    unsigned notify;
    struct maildrop_rcpt *rcpts;
    size_t rcpt_count, rcpt_size;
    size_t bad_count; /* texts given as recipients that are no addresses */
};

/* ---- errors --------------------------------------------------------------------------------- */

static const char *program = "sendmail";

/* Prints an error. */
__attribute__((format(printf, 1, 0))) static void complain(const char *format, va_list args)
{
    char text[ERROR_TEXT_MAX];
    struct slice rest;

    CHECK(vsnprintf(text, sizeof text, format, args) >= 0);
    rest = slice_string(text);
    fprintf(stderr, "%s: ", program);
    while (rest.len > 0) {
        struct slice line = slice_cut(&rest, '\n');

        printable_fix(text + (line.ptr - text), line.len);
        fprintf(stderr, "%.*s\n", SLICE_ARGS(line));
    }
}

__attribute__((format(printf, 1, 2))) static void warn(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    complain(format, args);
    va_end(args);
}

__attribute__((format(printf, 2, 3))) _Noreturn static void stop(int status, const char *format,
                                                                 ...)
{
    va_list args;

    va_start(args, format);
    complain(format, args);
    va_end(args);
    exit(status);
}

/* Returns the exit status by which programs decide whether to try again. */
static int status_of(int error)
{
    switch (-error) {
    case EACCES:
    case EPERM:
        return EX_NOPERM;
    case ENOENT:
    case ENOTDIR:
        return EX_CONFIG;
    case EFBIG:
        return EX_UNAVAILABLE;
    default:
        return EX_TEMPFAIL; /* temporary: no space, no descriptors */
    }
}

/* The file that is being written, which Ctrl-C removes. */
static struct maildrop_file drop;
static volatile sig_atomic_t drop_open;

static void on_interrupt(int number)
{
    (void)number;
    if (drop_open != 0) {
        (void)unlinkat(drop.directory, drop.name, 0); /* if this fails, the file stays incomplete */
    }
    _exit(EX_TEMPFAIL);
}

static void drop_create(const char *directory, const struct submission *sub)
{
    const struct maildrop m = {.sender = buf_slice(&sub->sender),
                               .name = buf_slice(&sub->name),
                               .envid = buf_slice(&sub->envid),
                               .flags = sub->flags,
                               .rcpts = sub->rcpts,
                               .rcpt_count = sub->rcpt_count};
    int error;

    if (directory[0] == '\0') {
        stop(EX_CONFIG, "the configuration has no maildrop");
    }
    error = maildrop_create(&drop, directory, &m);
    if (error != 0) {
        stop(status_of(error), "%s: %s", directory, strerror(-error));
    }
    drop_open = 1;
}

static void drop_abort(void)
{
    if (drop_open != 0) {
        drop_open = 0;
        maildrop_abort(&drop);
    }
}

static int drop_commit(void)
{
    drop_open = 0;
    return maildrop_commit(&drop);
}

/* ---- envelope ------------------------------------------------------------------------------- */

static void submission_init(struct submission *sub)
{
    *sub = (struct submission){0};
    buf_init(&sub->sender, ADDRESS_MAX);
    buf_init(&sub->name, MAILDROP_NAME_MAX);
    buf_init(&sub->envid, DSN_ENVID_MAX);
}

static void submission_fini(struct submission *sub)
{
    for (size_t i = 0; i < sub->rcpt_count; i++) {
        mem_free((char *)(uintptr_t)sub->rcpts[i].address.ptr);
        mem_free((char *)(uintptr_t)sub->rcpts[i].orcpt.ptr);
    }
    mem_free(sub->rcpts);
    buf_fini(&sub->sender);
    buf_fini(&sub->name);
    buf_fini(&sub->envid);
}

static struct slice copy(struct slice s)
{
    return slice_of(mem_copy(s.ptr, s.len), s.len);
}

static bool add_rcpt(struct submission *sub, struct slice address, struct slice orcpt,
                     unsigned notify)
{
    if (sub->rcpt_count == MAILDROP_RCPTS_MAX) {
        return false;
    }
    sub->rcpts = mem_grow(sub->rcpts, sub->rcpt_count, &sub->rcpt_size, sizeof *sub->rcpts);
    sub->rcpts[sub->rcpt_count++] =
        (struct maildrop_rcpt){.notify = notify, .orcpt = copy(orcpt), .address = copy(address)};
    if (!address_is_ascii(address)) {
        sub->flags |= ENVELOPE_SMTPUTF8;
    }
    return true;
}

/* Adds all addresses of a header's value or an argument. One that is no address is reported, and
 * does not keep the mail from the others. */
static void add_rcpts(struct submission *sub, struct slice value)
{
    struct address_list list;
    struct buf address;

    address_list_init(&list, value, ADDRESS_UTF8 | ADDRESS_NO_DOMAIN);
    buf_init(&address, ADDRESS_MAX);
    for (;;) {
        switch (address_list_next(&list, &address)) {
        case ADDRESS_LIST_ADDRESS:
            if (!add_rcpt(sub, buf_slice(&address), slice_of("", 0), sub->notify)) {
                stop(EX_DATAERR, "more than %u recipients", MAILDROP_RCPTS_MAX);
            }
            break;
        case ADDRESS_LIST_BAD:
            warn("%.*s: not an address, the mail is not sent there",
                 SLICE_ARGS(buf_slice(&address)));
            sub->bad_count++;
            break;
        case ADDRESS_LIST_END:
            buf_fini(&address);
            return;
        }
    }
}

/* Sets the sender; "" and "<>" are the null sender. */
static void set_sender(struct submission *sub, struct slice text)
{
    struct address_list list;

    if (text.len == 0 || slice_equal(text, SLICE("<>"))) {
        return;
    }
    address_list_init(&list, text, ADDRESS_UTF8 | ADDRESS_NO_DOMAIN);
    if (address_list_next(&list, &sub->sender) != ADDRESS_LIST_ADDRESS) {
        stop(EX_USAGE, "-f %.*s: not an address", SLICE_ARGS(text));
    }
    if (!address_is_ascii(buf_slice(&sub->sender))) {
        sub->flags |= ENVELOPE_SMTPUTF8;
    }
}

/* Sets the sender: that of the options, otherwise the real user of this process. */
static void identify(struct submission *sub, const struct options *o)
{
    const struct passwd *user = getpwuid(getuid());
    const char *name = o->name;
    struct slice full;

    if (o->sender != NULL) {
        set_sender(sub, slice_string(o->sender));
    } else if (user == NULL) {
        stop(EX_NOUSER, "user %u has no name; give one with -f", (unsigned)getuid());
    } else {
        set_sender(sub, slice_string(user->pw_name));
    }
    if (name == NULL) {
        name = getenv("NAME");
    }
    full = slice_string(name != NULL ? name : user != NULL ? user->pw_gecos : "");
    if (name == NULL) {
        full = slice_of(full.ptr, slice_find(full, ',')); /* office and telephone follow */
    }
    (void)printable_add(&sub->name, full, MAILDROP_NAME_MAX); /* fits, or is cut */
    (void)buf_add(&sub->envid, buf_slice(&o->envid));         /* fits: the same limit */
    sub->flags |= o->flags;
    sub->notify = o->notify;
}

/* ---- input ---------------------------------------------------------------------------------- */

struct input {
    struct buf bytes;
    size_t used;     /* bytes of the last piece */
    bool line_start; /* the next piece begins a line */
    bool ended;
};

/* Returns the next line with its end, a very long line in pieces. Returns false at the end. */
static bool next_piece(struct input *in, struct slice *ret_piece, bool *ret_line_start)
{
    buf_consume(&in->bytes, in->used);
    in->used = 0;
    for (;;) {
        struct slice all = buf_slice(&in->bytes);
        size_t end = slice_find(all, '\n');
        bool whole = end < all.len;
        ssize_t n;

        if (whole || all.len >= PIECE_SIZE || (in->ended && all.len > 0)) {
            *ret_piece = slice_of(all.ptr, whole ? end + 1 : all.len);
            *ret_line_start = in->line_start;
            in->line_start = whole;
            in->used = ret_piece->len;
            return true;
        }
        if (in->ended) {
            return false;
        }
        n = read(STDIN_FILENO, buf_room(&in->bytes, PIECE_SIZE), PIECE_SIZE);
        if (n < 0 && errno != EINTR) {
            drop_abort();
            stop(EX_IOERR, "reading the mail: %s", strerror(errno));
        }
        in->ended = n == 0;
        buf_grew(&in->bytes, n > 0 ? (size_t)n : 0);
    }
}

static bool is_lone_dot(struct slice line)
{
    return slice_equal(line, SLICE(".\n")) || slice_equal(line, SLICE(".\r\n")) ||
           slice_equal(line, SLICE("."));
}

/* Is it a field, or the continuation of one? */
static bool is_header_line(struct slice line, bool first)
{
    size_t i = 0;

    if (line.ptr[0] == ' ' || line.ptr[0] == '\t') {
        return !first;
    }
    while (i < line.len && line.ptr[i] > ' ' && line.ptr[i] < 0x7f && line.ptr[i] != ':') {
        i++;
    }
    return i > 0 && i < line.len && line.ptr[i] == ':';
}

/* ---- a mail on standard input --------------------------------------------------------------- */

static bool is_one_of(struct slice name, const char *const *names)
{
    for (; *names != NULL; names++) {
        if (slice_equal_nocase(name, slice_string(*names))) {
            return true;
        }
    }
    return false;
}

static bool is_resent(struct slice header)
{
    struct header_field field;

    while (header_next(&header, &field)) {
        if (slice_starts_nocase(field.name, SLICE("Resent-"))) {
            return true;
        }
    }
    return false;
}

/* Adds the recipients of the header; those of the Resent- fields if the mail was resent (RFC 5322,
 * 3.6.6). */
static void rcpts_of_header(struct submission *sub, struct slice header)
{
    static const char *const first[] = {"To", "Cc", "Bcc", NULL};
    static const char *const again[] = {"Resent-To", "Resent-Cc", "Resent-Bcc", NULL};
    const char *const *wanted = is_resent(header) ? again : first;
    struct header_field field;
    struct buf value;

    buf_init(&value, HEADER_MAX);
    while (header_next(&header, &field)) {
        if (is_one_of(field.name, wanted)) {
            buf_clear(&value);
            (void)header_unfold(field.value, &value); /* fits: shorter than the header */
            add_rcpts(sub, buf_slice(&value));
        }
    }
    buf_fini(&value);
}

static void check_size(const struct conf *conf)
{
    if (conf->message_size_limit > 0 && drop.content_size > (uint64_t)conf->message_size_limit) {
        drop_abort();
        stop(EX_UNAVAILABLE, "the mail is larger than message_size_limit (%lld bytes)",
             (long long)conf->message_size_limit);
    }
}

/* Reads the header into `header`. *ret_body is the first piece after it; returns false if the mail
 * ends before. */
static bool read_header(struct input *in, bool ignore_dots, struct buf *header,
                        struct slice *ret_body, bool *ret_line_start)
{
    bool first = true;

    while (next_piece(in, ret_body, ret_line_start)) {
        struct slice line = *ret_body;

        if (*ret_line_start && !ignore_dots && is_lone_dot(line)) {
            return false;
        }
        /* separators of mailboxes are included when old mail is submitted again */
        if (first && (slice_starts(line, SLICE("From ")) || slice_starts(line, SLICE(">From ")))) {
            continue;
        }
        if (*ret_line_start && !is_header_line(line, first)) {
            return true;
        }
        if (!buf_add(header, line)) {
            stop(EX_DATAERR, "the header is longer than %u bytes", HEADER_MAX);
        }
        first = false;
    }
    return false;
}

static int send_mail(const struct conf *conf, const struct options *o, char **rcpts)
{
    struct input in = {.line_start = true};
    struct submission sub;
    struct buf header;
    struct slice piece;
    bool line_start, more;
    int error;

    submission_init(&sub);
    identify(&sub, o);
    for (; *rcpts != NULL; rcpts++) {
        add_rcpts(&sub, slice_string(*rcpts));
    }
    buf_init(&in.bytes, 4 * PIECE_SIZE);
    buf_init(&header, HEADER_MAX);
    more = read_header(&in, o->ignore_dots, &header, &piece, &line_start);
    if (o->from_header) {
        rcpts_of_header(&sub, buf_slice(&header));
    }
    if (sub.rcpt_count == 0 && sub.bad_count > 0) {
        stop(EX_DATAERR, "no recipient is an address");
    }
    if (sub.rcpt_count == 0) {
        stop(EX_USAGE, "no recipients: name them as arguments, or in the header with -t");
    }
    drop_create(conf->maildrop, &sub);
    maildrop_write(&drop, buf_slice(&header)); /* pickup cleans it up */
    while (more) {
        maildrop_write(&drop, piece);
        check_size(conf);
        more = next_piece(&in, &piece, &line_start) &&
               (o->ignore_dots || !line_start || !is_lone_dot(piece));
    }
    error = drop_commit();
    if (error != 0) {
        stop(status_of(error), "%s: %s", conf->maildrop, strerror(-error));
    }
    buf_fini(&in.bytes);
    buf_fini(&header);
    submission_fini(&sub);
    return sub.bad_count > 0 ? EX_DATAERR : EX_OK;
}

/* ---- SMTP on standard input and output ------------------------------------------------------ */

static struct mono now_mono(void)
{
    struct timespec t;

    CHECK(clock_gettime(CLOCK_MONOTONIC, &t) == 0);
    return (struct mono){t.tv_sec * US_PER_S + t.tv_nsec / 1000};
}

static bool write_out(struct buf *out)
{
    while (buf_len(out) > 0) {
        struct slice s = buf_slice(out);
        ssize_t n = write(STDOUT_FILENO, s.ptr, s.len);

        if (n < 0 && errno != EINTR) {
            return false;
        }
        buf_consume(out, n > 0 ? (size_t)n : 0);
    }
    return true;
}

static struct server_reply refusal(int error)
{
    return (struct server_reply){
        .code = 451, .status = "4.3.0", .text = slice_string(strerror(-error))};
}

static void on_mail(struct server *s, struct submission *sub, const struct server_mail *mail)
{
    submission_fini(sub);
    submission_init(sub);
    sub->flags = mail->flags;
    /* fits: the engine has checked both against the same limits */
    (void)buf_add(&sub->sender, mail->sender);
    (void)buf_add(&sub->envid, mail->envid);
    server_answer(s, SERVER_ACCEPT);
}

static void on_rcpt(struct server *s, struct submission *sub, const struct server_rcpt *rcpt)
{
    server_answer(s, add_rcpt(sub, rcpt->recipient, rcpt->orcpt, rcpt->notify)
                         ? SERVER_ACCEPT
                         : (struct server_reply){.code = 452,
                                                 .status = "4.5.3",
                                                 .text = SLICE("too many recipients")});
}

static void on_message(struct server *s)
{
    int error = drop_commit();
    const struct server_reply failed = refusal(error);

    server_message_done(s, error == 0 ? &SERVER_ACCEPT : &failed, 1);
}

/* Handles an event. Returns false at the end. */
static bool smtp_event(struct server *s, const struct conf *conf, struct submission *sub,
                       const struct server_event *event)
{
    switch (event->type) {
    case SERVER_MAIL:
        on_mail(s, sub, &event->mail);
        return true;
    case SERVER_RCPT:
        on_rcpt(s, sub, &event->rcpt);
        return true;
    case SERVER_DATA:
        drop_create(conf->maildrop, sub);
        server_answer(s, SERVER_ACCEPT);
        return true;
    case SERVER_AUTH: /* not offered */
    case SERVER_ETRN:
        server_answer(
            s, (struct server_reply){.code = 502, .status = "5.5.1", .text = SLICE("not here")});
        return true;
    case SERVER_CONTENT:
        maildrop_write(&drop, event->content);
        return true;
    case SERVER_MESSAGE:
        on_message(s);
        return true;
    case SERVER_ABORT:
        drop_abort();
        return true;
    case SERVER_CLOSE:
        return false;
    case SERVER_NEED_INPUT:
    case SERVER_NEED_ANSWER:
    case SERVER_NEED_OUTPUT:
    case SERVER_HELO:
    case SERVER_STARTTLS:
        return true;
    }
    return true;
}

/* Runs -bs, for programs that speak SMTP to a child process. */
static int speak_smtp(const struct conf *conf)
{
    struct server_config config;
    struct server_event event = {.type = SERVER_NEED_INPUT};
    struct submission sub;
    struct server *s;
    struct slice in = slice_of("", 0);
    char bytes[PIECE_SIZE];
    bool open = true;

    server_config_default(&config);
    config.hostname = conf->myhostname;
    config.banner = "ESMTP Sluice";
    config.starttls = config.etrn = false;
    config.accept_early_talkers = config.accept_no_domain = config.accept_bare_newlines = true;
    config.limits.message_bytes = (uint64_t)conf->message_size_limit;
    config.limits.recipients = MAILDROP_RCPTS_MAX;
    submission_init(&sub);
    s = server_new(&config, now_mono());
    server_trust(s);
    server_accept_bare_lf(s);
    while (open) {
        server_next(s, now_mono(), &in, &event);
        open = smtp_event(s, conf, &sub, &event);
        if (event.type != SERVER_NEED_INPUT && event.type != SERVER_NEED_OUTPUT && open) {
            continue;
        }
        if (!write_out(server_output(s))) {
            break; /* the client has gone */
        }
        if (event.type == SERVER_NEED_INPUT) {
            ssize_t n = read(STDIN_FILENO, bytes, sizeof bytes);

            if (n > 0) {
                in = slice_of(bytes, (size_t)n);
            } else if (n == 0 || errno != EINTR) {
                server_hangup(s, "end of input");
            }
        }
    }
    drop_abort();
    server_free(s);
    submission_fini(&sub);
    return EX_OK;
}

/* ---- options -------------------------------------------------------------------------------- */

static void usage(void)
{
    stop(EX_USAGE, "usage: sendmail [-C file] [-f sender] [-F name] [-i] [-t] [-v] [-N dsn] "
                   "[-R return] [-V envid] [-bm|-bs|-bp|-q] [recipient ...]");
}

static unsigned parse_notify(const char *text)
{
    struct slice rest = slice_string(text);
    unsigned notify = 0;

    while (rest.ptr != NULL) {
        struct slice word = slice_cut(&rest, ',');

        if (slice_equal_nocase(word, SLICE("never"))) {
            notify |= NOTIFY_NEVER;
        } else if (slice_equal_nocase(word, SLICE("success"))) {
            notify |= NOTIFY_SUCCESS;
        } else if (slice_equal_nocase(word, SLICE("failure"))) {
            notify |= NOTIFY_FAILURE;
        } else if (slice_equal_nocase(word, SLICE("delay"))) {
            notify |= NOTIFY_DELAY;
        } else {
            stop(EX_USAGE, "-N %s: not never, or some of success,failure,delay", text);
        }
    }
    if ((notify & NOTIFY_NEVER) != 0 && notify != NOTIFY_NEVER) {
        stop(EX_USAGE, "-N %s: never stands alone", text);
    }
    return notify;
}

static unsigned parse_return(const char *text)
{
    if (strcasecmp(text, "full") == 0) {
        return ENVELOPE_RET_FULL;
    }
    if (strcasecmp(text, "hdrs") != 0) {
        stop(EX_USAGE, "-R %s: not full or hdrs", text);
    }
    return ENVELOPE_RET_HDRS;
}

static enum mode parse_mode(const char *text)
{
    switch (text[0]) {
    case 'm':
        return MODE_MAIL;
    case 's':
        return MODE_SMTP;
    case 'p':
        return MODE_LIST;
    case 'i': /* there is no alias database to build */
        return MODE_NOTHING;
    case 'd':
    case 'D':
        stop(EX_USAGE, "-b%c: this is no daemon; start sluiced (or its service)", text[0]);
    default:
        stop(EX_USAGE, "-b%s: unknown mode", text);
    }
}

/* Parses -o: -oi is -i; other old settings are accepted, because programs pass them. */
static void parse_setting(struct options *o, const char *text)
{
    if (strcmp(text, "i") == 0 || strcasecmp(text, "IgnoreDots") == 0) {
        o->ignore_dots = true;
    }
}

static void parse_options(struct options *o, int argc, char **argv)
{
    int option;

    while ((option = getopt(argc, argv, "A:B:C:F:GIL:N:O:R:UV:X:b:d:e:f:h:imno:p:q::r:tvx")) !=
           -1) {
        switch (option) {
        case 'C':
            if (getauxval(AT_SECURE) != 0) {
                stop(EX_NOPERM, "-C: not in a program that is set-id");
            }
            o->conf_path = optarg;
            break;
        case 'F':
            o->name = optarg;
            break;
        case 'I':
            o->mode = MODE_NOTHING;
            break;
        case 'N':
            o->notify = parse_notify(optarg);
            break;
        case 'R':
            o->flags |= parse_return(optarg);
            break;
        case 'V':
            if (optarg[0] == '\0' || !xtext_encode(slice_string(optarg), &o->envid)) {
                stop(EX_USAGE, "-V: the envelope id is empty or too long");
            }
            break;
        case 'b':
            o->mode = parse_mode(optarg);
            break;
        case 'f':
        case 'r':
            o->sender = optarg;
            break;
        case 'i':
            o->ignore_dots = true;
            break;
        case 'O':
        case 'o':
            parse_setting(o, optarg);
            break;
        case 'q':
            /* -q30m asks for a daemon that runs the queue, as sluiced does */
            o->mode = o->mode == MODE_MAIL && optarg == NULL ? MODE_FLUSH : MODE_NOTHING;
            break;
        case 't':
            o->from_header = true;
            break;
        case 'v':
            o->flags |= ENVELOPE_TRACE;
            break;
        case '?':
            usage();
            break;
        default:
            break; /* known, without a meaning here */
        }
    }
}

/* Executes `sluice COMMAND`, which is installed next to this program. */
static int run_sluice(const struct options *o, const char *command)
{
    char path[PATH_MAX];
    ssize_t len = readlink("/proc/self/exe", path, sizeof path - sizeof "sluice");
    char *slash;

    path[len < 0 ? 0 : len] = '\0';
    slash = strrchr(path, '/');
    if (slash == NULL) {
        stop(EX_OSERR, "cannot find where it is installed");
    }
    (void)strcpy(slash + 1, "sluice"); /* fits: room was reserved */
    if (o->conf_path != NULL && setenv("SLUICE_CONF", o->conf_path, 1) != 0) {
        stop(EX_OSERR, "%s", strerror(errno));
    }
    execl(path, "sluice", command, (char *)NULL);
    stop(EX_UNAVAILABLE, "%s: %s", path, strerror(errno));
}

/* Loads the configuration. Errors that do not affect maildrop are left to the daemon; they must not
 * reject mail. */
static struct conf *load_conf(const struct options *o)
{
    static const char *const needed[] = {"state_directory", "maildrop", NULL};
    const char *path = o->conf_path != NULL ? o->conf_path : bundle_default_path();
    struct conf_problems problems;
    struct conf *conf = conf_load_places(path, needed, &problems);
    struct buf text;

    if (conf == NULL) {
        buf_init(&text, PIECE_SIZE);
        conf_print_problems(&text, &problems);
        text.failed = false; /* print as many as fit */
        stop(EX_CONFIG, "the configuration has errors:\n%s", buf_cstr(&text));
    }
    conf_problems_fini(&problems);
    return conf;
}

int main(int argc, char **argv)
{
    struct options o = {.mode = MODE_MAIL};
    const char *slash = argc > 0 ? strrchr(argv[0], '/') : NULL;
    struct conf *conf;
    int status;

    program = slash != NULL ? slash + 1 : argc > 0 ? argv[0] : program;
    zmailer_open_conf();
    buf_init(&o.envid, DSN_ENVID_MAX);
    if (strcmp(program, "newaliases") == 0) {
        return EX_OK;
    }
    parse_options(&o, argc, argv);
    if (strcmp(program, "mailq") == 0) {
        o.mode = MODE_LIST;
    }
    if (o.mode == MODE_LIST || o.mode == MODE_FLUSH) {
        return run_sluice(&o, o.mode == MODE_LIST ? "queue" : "flush");
    }
    if (o.mode == MODE_NOTHING) {
        return EX_OK;
    }
    for (const int *number = (const int[]){SIGINT, SIGTERM, SIGHUP, 0}; *number != 0; number++) {
        CHECK(signal(*number, on_interrupt) != SIG_ERR);
    }
    CHECK(signal(SIGPIPE, SIG_IGN) != SIG_ERR);
    conf = load_conf(&o);
    status = o.mode == MODE_SMTP ? speak_smtp(conf) : send_mail(conf, &o, argv + optind);
    conf_free(conf);
    buf_fini(&o.envid);
    return status;
}
