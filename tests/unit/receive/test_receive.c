/*
 * The role receive between clients on the loopback and a queue process that the test plays.
 *
 * All of it runs in one thread: a client says something, then the loop turns until the answer is
 * there. Time is moved, not waited for.
 */
#include "unit.h"

#include <arpa/inet.h>
#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "check.h"
#include "clock.h"
#include "log.h"
#include "mem.h"
#include "receive.h"
#include "receive_session.h"
#include "tls.h"
#include "tls_fixture.h"

#define CONF_COMMON                                                                                \
    "myhostname = mx.example.test\n"                                                               \
    "mydomain = example.test\n"                                                                    \
    "local_domains = mx.example.test\n"                                                            \
    "relay_domains = partner.test\n"                                                               \
    "log = stderr\n"
/* The loopback is a stranger. */
#define CONF_STRICT CONF_COMMON "relay_networks = 192.0.2.0/24\n"

#define WAIT_S 120 /* far more than anything takes */

struct submission {
    uint64_t token;
    char *envelope; /* "sender>rcpt,rcpt" */
    char *trace;
    char *class_name;
    uint32_t class_source;
    struct buf content;
    bool by_fd;
};

struct client {
    int fd;
    struct tls *tls;
    struct buf in;
    bool closed;
};

struct site {
    struct role role;
    struct conf *conf;
    struct channel *queue; /* the test's end; NULL: closed */
    bool hold;             /* do not answer submissions */
    size_t count;
    struct submission last;
    uint64_t etrns;
    int port;
    char unix_path[64];
    char log_path[64];
    bool exited;
    bool queue_lost;
};

static struct site site;

/* What receive.c wants of role.c, which is not linked. */

void role_queue_lost(struct role *role)
{
    (void)role;
    site.queue_lost = true;
}

void role_exit(struct role *role, int status)
{
    assert_ptr_equal(role, &site.role);
    assert_int_equal(status, 0);
    site.exited = true;
}

struct slice role_file(const struct role *role, struct slice path)
{
    (void)role;
    if (slice_ends_nocase(path, SLICE("cert.pem"))) {
        return slice_string(fixture_certificate);
    }
    return slice_string(fixture_key);
}

/* ---- the queue process ---------------------------------------------------------------------- */

static void submission_fini(struct submission *s)
{
    mem_free(s->envelope);
    mem_free(s->trace);
    mem_free(s->class_name);
    buf_fini(&s->content);
    *s = (struct submission){0};
}

static void answer(uint32_t code, const char *status, const char *text)
{
    wire_put_submit_done(site.queue, &(struct wire_submit_done){
                                         .token = site.last.token,
                                         .code = code,
                                         .status = slice_string(status),
                                         .text = slice_string(text),
                                         .id = code == 250 ? SLICE("4Vq1") : SLICE(""),
                                     });
}

static void accept_submission(void)
{
    answer(250, "2.0.0", "Ok: queued as 4Vq1");
}

static void take_submission(const struct frame *frame)
{
    struct wire_rcpt *rcpts;
    struct wire_submit m;
    struct buf envelope;

    assert_true(wire_get_submit(frame->body, &m, &rcpts));
    assert_true(m.client.len > 0);
    assert_int_equal(m.pid, getpid());
    submission_fini(&site.last);
    site.count++;
    site.last.token = m.token;
    buf_init(&envelope, 1 << 20);
    buf_addf(&envelope, "%.*s>", SLICE_ARGS(m.sender));
    for (uint32_t i = 0; i < m.rcpt_count; i++) {
        buf_addf(&envelope, "%s%.*s", i == 0 ? "" : ",", SLICE_ARGS(rcpts[i].address));
    }
    mem_free(rcpts);
    site.last.envelope = buf_take(&envelope);
    site.last.trace = mem_copy(m.trace.ptr, m.trace.len);
    site.last.class_name = mem_copy(m.class_name.ptr, m.class_name.len);
    site.last.class_source = m.class_source;
    buf_init(&site.last.content, 64u << 20);
    assert_true(buf_add(&site.last.content, m.content));
    site.last.by_fd = frame->fd >= 0;
    if (frame->fd >= 0) {
        char *room = buf_room(&site.last.content, m.fd_size);
        assert_int_equal(read(frame->fd, room, m.fd_size), m.fd_size);
        buf_grew(&site.last.content, m.fd_size);
        (void)close(frame->fd);
    }
    if (!site.hold) {
        accept_submission();
    }
}

static void on_queue(void *arg, struct channel *ch)
{
    struct wire_etrn etrn;
    struct frame frame;

    (void)arg;
    while (channel_next(ch, &frame) == CHANNEL_FRAME) {
        if (frame.type == WIRE_SUBMIT) {
            take_submission(&frame);
        } else {
            assert_int_equal(frame.type, WIRE_ETRN);
            assert_true(wire_get_etrn(frame.body, &etrn));
            site.etrns++;
            wire_put_etrn_done(ch, &(struct wire_etrn_done){.token = etrn.token,
                                                            .code = 459,
                                                            .text = SLICE("not for this domain")});
        }
    }
}

static void connect_queue(void)
{
    struct wire_peer peer = {.role = ROLE_QUEUE, .index = 0, .count = 1};
    int fds[2];

    assert_return_code(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    site.queue = channel_new(site.role.base, fds[0], on_queue, NULL);
    receive_role.peer(&site.role, &peer, fds[1]);
}

static void lose_queue(void)
{
    channel_free(site.queue);
    site.queue = NULL;
}

static void send_flow(bool storage_ok, bool space_ok, bool behind)
{
    wire_put_flow(site.queue, &(struct wire_flow){.storage_ok = storage_ok,
                                                  .space_ok = space_ok,
                                                  .free_bytes = UINT64_MAX,
                                                  .behind = behind});
}

/* ---- the site ------------------------------------------------------------------------------- */

static void turn(void)
{
    clock_forget();
    assert_true(event_base_loop(site.role.base, EVLOOP_NONBLOCK) >= 0);
    channel_flush_all();
}

static void settle(void)
{
    for (int i = 0; i < 20; i++) {
        turn();
    }
}

static void move_clock(int64_t us)
{
    clock_set_offset(clock_offset() + us);
    clock_update();
    receive_role.clock_moved(&site.role);
}

static struct conf *load(const char *text)
{
    struct conf_world world = {.hostname = "mx.example.test"};
    struct conf_problems problems;
    struct conf *conf = conf_load_text(slice_string(text), "main.cf", "/tmp", &world, &problems);

    for (size_t i = 0; i < problems.count; i++) {
        print_message("conf: %s\n", problems.at[i].text);
    }
    conf_problems_fini(&problems);
    assert_non_null(conf);
    return conf;
}

static void listen_on(const char *url, struct sockaddr *addr, socklen_t *len)
{
    int fd = socket(addr->sa_family, SOCK_STREAM, 0);

    assert_return_code(bind(fd, addr, *len), 0);
    assert_return_code(listen(fd, 100), 0);
    assert_return_code(getsockname(fd, addr, len), 0);
    receive_role.listener(&site.role, slice_string(url), fd);
}

static void open_site(const char *text)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    socklen_t in_len = sizeof in, un_len = sizeof un;
    struct buf error;

    site = (struct site){0};
    (void)snprintf(site.log_path, sizeof site.log_path, "/tmp/test_receive.%d.log", (int)getpid());
    (void)snprintf(site.unix_path, sizeof site.unix_path, "/tmp/test_receive.%d.sock",
                   (int)getpid());
    (void)unlink(site.log_path);
    (void)unlink(site.unix_path);
    buf_init(&error, 1000);
    char *where = mem_new(100);
    (void)snprintf(where, 100, "file:%s", site.log_path);
    assert_true(log_open(where, "/", "postfix", "smtpd", &error));
    mem_free(where);
    site.conf = load(text);
    site.role = (struct role){
        .ops = &receive_role, .base = event_base_new(), .conf = site.conf, .state = NULL};
    assert_int_equal(receive_role.start(&site.role), 0);
    listen_on("smtp://127.0.0.1:25", (struct sockaddr *)&in, &in_len);
    site.port = ntohs(in.sin_port);
    (void)strcpy(un.sun_path, site.unix_path);
    listen_on("lmtp:unix:x", (struct sockaddr *)&un, &un_len);
    connect_queue();
}

static void close_site(void)
{
    receive_role.end(&site.role);
    channel_free(site.queue);
    submission_fini(&site.last);
    event_base_free(site.role.base);
    conf_free(site.conf);
    clock_stand();
    clock_set_offset(0);
    clock_update();
    (void)unlink(site.log_path);
    (void)unlink(site.unix_path);
}

/* How often is `text` in the log? */
static size_t times_logged(const char *text)
{
    static char bytes[1 << 20];
    size_t count = 0;
    ssize_t n;
    int fd;

    settle();
    log_flush();
    fd = open(site.log_path, O_RDONLY);
    assert_return_code(fd, 0);
    n = read(fd, bytes, sizeof bytes - 1);
    assert_return_code(n, 0);
    (void)close(fd);
    bytes[n] = '\0';
    for (const char *at = bytes; (at = strstr(at, text)) != NULL; at++) {
        count++;
    }
    return count;
}

static bool logged(const char *text)
{
    return times_logged(text) > 0;
}

#define ASSERT_LOGGED(text)                                                                        \
    do {                                                                                           \
        if (!logged(text)) {                                                                       \
            fail_msg("not in the log: %s", (text));                                                \
        }                                                                                          \
    } while (0)

/* ---- clients -------------------------------------------------------------------------------- */

static void client_of(struct client *c, int fd)
{
    *c = (struct client){.fd = fd};
    buf_init(&c->in, 4 << 20);
}

static void dial_from(struct client *c, const char *source)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)site.port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_in from = {.sin_family = AF_INET};
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    assert_int_equal(inet_pton(AF_INET, source, &from.sin_addr), 1);
    assert_return_code(bind(fd, (struct sockaddr *)&from, sizeof from), 0);
    assert_return_code(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    assert_return_code(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
    client_of(c, fd);
}

static void dial(struct client *c)
{
    dial_from(c, "127.0.0.1");
}

static void dial_unix(struct client *c)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);

    (void)strcpy(to.sun_path, site.unix_path);
    assert_return_code(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    assert_return_code(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
    client_of(c, fd);
}

static void hang_up(struct client *c)
{
    tls_free(c->tls);
    (void)close(c->fd);
    buf_fini(&c->in);
}

/* Read what has come. */
static void look(struct client *c)
{
    char bytes[65536];
    size_t len = 0;
    ssize_t n;

    if (c->tls != NULL) {
        while (tls_read(c->tls, bytes, sizeof bytes, &len) == TLS_OK) {
            assert_true(buf_add(&c->in, slice_of(bytes, len)));
        }
        return;
    }
    while ((n = recv(c->fd, bytes, sizeof bytes, 0)) > 0) {
        assert_true(buf_add(&c->in, slice_of(bytes, (size_t)n)));
    }
    c->closed = n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
}

static void say_bytes(struct client *c, const char *bytes, size_t len)
{
    while (len > 0) {
        ssize_t n = 0;

        if (c->tls != NULL) {
            size_t taken = 0;
            if (tls_write(c->tls, slice_of(bytes, len), &taken) == TLS_OK) {
                n = (ssize_t)taken;
            }
        } else {
            n = send(c->fd, bytes, len, MSG_NOSIGNAL);
        }
        if (n > 0) {
            bytes += n;
            len -= (size_t)n;
        } else if (c->tls == NULL && errno != EAGAIN) {
            return; /* it has been closed; the test looks at what was said */
        }
        turn();
    }
}

static void say(struct client *c, const char *text)
{
    say_bytes(c, text, strlen(text));
}

/* Is a complete reply at the front? Its length. */
static size_t reply_len(struct slice in)
{
    size_t at = 0;

    while (at < in.len) {
        size_t lf = slice_find(slice_skip(in, at), '\n');
        bool last = in.len - at > 3 && in.ptr[at + 3] != '-';

        if (lf == in.len - at) {
            return 0;
        }
        at += lf + 1;
        if (last) {
            return at;
        }
    }
    return 0;
}

/* The clock of the process under test stands still. */
static time_t real_seconds(void)
{
    struct timespec t;

    assert_return_code(clock_gettime(CLOCK_MONOTONIC, &t), 0);
    return t.tv_sec;
}

/* The next reply must begin with `want`. */
static void expect(struct client *c, const char *want)
{
    time_t until = real_seconds() + WAIT_S;
    size_t len;

    for (;;) {
        look(c);
        len = reply_len(buf_slice(&c->in));
        if (len > 0 || c->closed || real_seconds() > until) {
            break;
        }
        turn();
    }
    struct slice reply = slice_of(buf_slice(&c->in).ptr, len);
    if (!slice_starts(reply, slice_string(want))) {
        fail_msg("expected %s, got %.*s", want, SLICE_ARGS(reply));
    }
    buf_consume(&c->in, len);
}

static void expect_nothing(struct client *c)
{
    settle();
    look(c);
    assert_int_equal(buf_len(&c->in), 0);
    assert_false(c->closed);
}

static void expect_closed(struct client *c)
{
    time_t until = real_seconds() + WAIT_S;

    while (!c->closed && real_seconds() <= until) {
        turn();
        look(c);
    }
    assert_int_equal(buf_len(&c->in), 0);
    assert_true(c->closed);
}

static void ask(struct client *c, const char *command, const char *want)
{
    say(c, command);
    expect(c, want);
}

static void greet_from(struct client *c, const char *source)
{
    dial_from(c, source);
    expect(c, "220 mx.example.test ESMTP");
    ask(c, "EHLO client.test\r\n", "250-mx.example.test");
}

/* A client that has said EHLO. */
static void greet(struct client *c)
{
    greet_from(c, "127.0.0.1");
}

static void begin_mail(struct client *c)
{
    ask(c, "MAIL FROM:<s@client.test>\r\n", "250 2.1.0");
    ask(c, "RCPT TO:<r@partner.test>\r\n", "250 2.1.5");
    ask(c, "DATA\r\n", "354 ");
}

/* ---- tests ---------------------------------------------------------------------------------- */

static void a_client_hears_of_success_only_after_the_commit(void **unused)
{
    struct client c;

    (void)unused;
    open_site(CONF_STRICT);
    site.hold = true;
    greet(&c);
    begin_mail(&c);
    say(&c, "Subject: x\r\n\r\n..dot\r\n.\r\n");
    expect_nothing(&c);
    assert_int_equal(site.count, 1);
    assert_string_equal(site.last.envelope, "s@client.test>r@partner.test");
    assert_string_equal(buf_cstr(&site.last.content), "Subject: x\r\n\r\n.dot\r\n");
    assert_non_null(strstr(site.last.trace,
                           "Received: from client.test (localhost [127.0.0.1])\r\n\t"
                           "by mx.example.test (Sluice) with ESMTP id \1\r\n\t"
                           "for <r@partner.test>; "));
    accept_submission();
    expect(&c, "250 2.0.0 Ok: queued as 4Vq1\r\n");
    ask(&c, "QUIT\r\n", "221 ");
    expect_closed(&c);
    hang_up(&c);
    ASSERT_LOGGED("connect from localhost[127.0.0.1]\n");
    ASSERT_LOGGED(
        "disconnect from localhost[127.0.0.1] ehlo=1 mail=1 rcpt=1 data=1 quit=1 commands=5\n");
    assert_false(logged("lost connection"));
    close_site();
}

static void the_queues_refusal_is_passed_on(void **unused)
{
    struct client c;

    (void)unused;
    open_site(CONF_STRICT);
    site.hold = true;
    greet(&c);
    begin_mail(&c);
    say(&c, "x\r\n.\r\n");
    settle();
    answer(452, "4.3.1", "Insufficient system storage");
    expect(&c, "452 4.3.1 Insufficient system storage\r\n");
    ASSERT_LOGGED("NOQUEUE: reject: END-OF-MESSAGE from localhost[127.0.0.1]: 452 4.3.1 "
                  "Insufficient system storage; from=<s@client.test> proto=ESMTP "
                  "helo=<client.test>\n");
    hang_up(&c);
    close_site();
}

static void recipients_are_judged_by_client_and_domain(void **unused)
{
    static const struct {
        const char *conf, *rcpt, *want;
    } cases[] = {
        {CONF_STRICT, "r@partner.test", "250 2.1.5"},
        {CONF_STRICT, "r@PARTNER.TEST", "250 2.1.5"},
        {CONF_STRICT, "r@mx.example.test", "250 2.1.5"},
        {CONF_STRICT, "postmaster", "250 2.1.5"},
        {CONF_STRICT, "r@elsewhere.test", "554 5.7.1 <r@elsewhere.test>: Relay access denied\r\n"},
        {CONF_STRICT, "r@partner.test.elsewhere.test", "554 5.7.1"},
        {CONF_STRICT, "\\\"r@partner.test\\\"@elsewhere.test", "5"},
        {CONF_COMMON, "r@elsewhere.test", "250 2.1.5"},
        {CONF_COMMON "relay_transport = error:5.1.2 no such place\n", "r@partner.test",
         "550 5.1.2 <r@partner.test>: Recipient address rejected: no such place\r\n"},
        {CONF_COMMON "relay_transport = error:4.3.2 not now\n", "r@partner.test",
         "450 4.3.2 <r@partner.test>: Recipient address rejected: not now\r\n"},
        {CONF_COMMON "relay_transport = error:go away\n", "r@partner.test",
         "550 5.1.1 <r@partner.test>: Recipient address rejected: go away\r\n"},
    };

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        char command[200];
        struct client c;

        open_site(cases[i].conf);
        greet(&c);
        ask(&c, "MAIL FROM:<s@client.test>\r\n", "250 2.1.0");
        (void)snprintf(command, sizeof command, "RCPT TO:<%s>\r\n", cases[i].rcpt);
        ask(&c, command, cases[i].want);
        hang_up(&c);
        close_site();
    }
}

static void a_refused_recipient_is_logged_like_postfix_does(void **unused)
{
    struct client c;

    (void)unused;
    open_site(CONF_STRICT);
    greet(&c);
    ask(&c, "MAIL FROM:<s@client.test>\r\n", "250 2.1.0");
    ask(&c, "RCPT TO:<r@elsewhere.test>\r\n", "554 5.7.1");
    ask(&c, "QUIT\r\n", "221 ");
    hang_up(&c);
    ASSERT_LOGGED("NOQUEUE: reject: RCPT from localhost[127.0.0.1]: 554 5.7.1 "
                  "<r@elsewhere.test>: Relay access denied; from=<s@client.test> "
                  "to=<r@elsewhere.test> proto=ESMTP helo=<client.test>\n");
    ASSERT_LOGGED("disconnect from localhost[127.0.0.1] ehlo=1 mail=1 rcpt=0/1 quit=1 "
                  "commands=3/4\n");
    close_site();
}

static void large_content_comes_through_a_descriptor(void **unused)
{
    size_t lines = 20000;
    struct client c;
    struct buf want, sent;

    (void)unused;
    open_site(CONF_STRICT "spool_inline_limit = 1000\n");
    buf_init(&want, 4 << 20);
    buf_init(&sent, 4 << 20);
    buf_add_string(&want, "\r\n"); /* it has no header */
    for (size_t i = 0; i < lines; i++) {
        buf_addf(&want, ".%zu line\r\n", i);
        buf_addf(&sent, "..%zu line\r\n", i);
    }
    buf_add_string(&sent, ".\r\n");
    greet(&c);
    begin_mail(&c);
    say_bytes(&c, buf_slice(&sent).ptr, buf_len(&sent));
    expect(&c, "250 2.0.0");
    assert_true(site.last.by_fd);
    assert_true(slice_equal(buf_slice(&site.last.content), buf_slice(&want)));
    begin_mail(&c);
    ask(&c, "small\r\n.\r\n", "250 2.0.0");
    assert_false(site.last.by_fd);
    buf_fini(&want);
    buf_fini(&sent);
    hang_up(&c);
    close_site();
}

/* Send a mail with this header and expect the class it was submitted with. */
static void expect_class(struct client *c, const char *header, const char *want)
{
    begin_mail(c);
    say(c, header);
    ask(c, "\r\nbody\r\n.\r\n", "250 2.0.0");
    assert_string_equal(site.last.class_name, want);
}

/* The class is the queue's to decide; what marks the mail as bulk is found here, however it comes.
 */
static void fields_that_mark_bulk_mail_are_reported(void **unused)
{
    static const struct {
        const char *header;
        enum class_source want;
    } cases[] = {
        {"", CLASS_SOURCE_NONE},
        {"Subject: x\r\n", CLASS_SOURCE_NONE},
        {"LIST-UNSUBSCRIBE: <mailto:leave@example.org>\r\n", CLASS_SOURCE_LIST_UNSUBSCRIBE},
        {"List-Id: News <news.example.org>\r\n", CLASS_SOURCE_LIST_ID},
        {"Precedence: bulk\r\nList-Id: x\r\nlist-unsubscribe: y\r\n",
         CLASS_SOURCE_LIST_UNSUBSCRIBE},
        {"precedence:\r\n\tBULK \r\n", CLASS_SOURCE_PRECEDENCE},
        {"Precedence: list\r\n", CLASS_SOURCE_PRECEDENCE},
        {"Precedence: junk (very)\r\n", CLASS_SOURCE_PRECEDENCE},
        {"Precedence: first-class\r\n", CLASS_SOURCE_NONE},
        {"Precedence: bulky\r\n", CLASS_SOURCE_NONE},
        {"Precedence:\r\n", CLASS_SOURCE_NONE},
        {"Auto-Submitted: auto-generated\r\n", CLASS_SOURCE_NONE},
        {"Subject: x\r\n List-Id: folded\r\n", CLASS_SOURCE_NONE},
        {"\r\nList-Id: in the body\r\n", CLASS_SOURCE_NONE},
    };
    struct client c;

    (void)unused;
    open_site(CONF_COMMON);
    greet(&c);
    for (size_t i = 0; i < COUNT(cases); i++) {
        expect_class(&c, cases[i].header, "");
        assert_int_equal(site.last.class_source, cases[i].want);
    }
    /* In chunks that cut it anywhere. */
    ask(&c, "MAIL FROM:<s@client.test>\r\n", "250 ");
    ask(&c, "RCPT TO:<r@partner.test>\r\n", "250 ");
    ask(&c, "BDAT 8\r\nPreceden", "250 ");
    ask(&c, "BDAT 8\r\nce: bulk", "250 ");
    ask(&c, "BDAT 10 LAST\r\n\r\n\r\nbody\r\n", "250 ");
    assert_int_equal(site.last.class_source, CLASS_SOURCE_PRECEDENCE);
    /* A transaction that was given up leaves nothing to the next. */
    ask(&c, "MAIL FROM:<s@client.test>\r\n", "250 ");
    ask(&c, "RCPT TO:<r@partner.test>\r\n", "250 ");
    ask(&c, "BDAT 12\r\nList-Id: x\r\n", "250 ");
    ask(&c, "RSET\r\n", "250 ");
    expect_class(&c, "Subject: x\r\n", "");
    assert_int_equal(site.last.class_source, CLASS_SOURCE_NONE);
    hang_up(&c);
    close_site();
}

static void the_header_names_the_class_before_the_listener_does(void **unused)
{
    static const char classes[] = "class_header = X-Class\nspool_inline_limit = 300\n"
                                  "listen = smtp://127.0.0.1:25 class=Bulk lmtp:unix:x\n";
    struct conf *old;
    struct client c;
    char text[500];

    (void)unused;
    (void)snprintf(text, sizeof text, "%s%s", CONF_COMMON, classes);
    open_site(text);
    greet(&c);
    expect_class(&c, "Subject: x\r\n", "bulk");
    expect_class(&c, "x-class:\r\n Reset \r\nX-Class: other\r\n", "reset");
    assert_false(site.last.by_fd);
    expect_class(&c,
                 "Subject: a long one, which goes through a descriptor\r\nX-Class: big\r\n"
                 "X-Text: the quick brown fox jumps over the lazy dog, and the quick brown fox\r\n"
                 "X-Text: the quick brown fox jumps over the lazy dog, and the quick brown fox\r\n"
                 "X-Text: the quick brown fox jumps over the lazy dog, and the quick brown fox\r\n",
                 "big");
    assert_true(site.last.by_fd);
    expect_class(&c, "X-Class: two words\r\n", "bulk");
    ASSERT_LOGGED("localhost[127.0.0.1]: X-Class: `two words' is no name of a class and is "
                  "ignored\n");

    /* A listener's class is what the configuration says when the mail comes. */
    old = site.conf;
    site.role.conf = site.conf = load(CONF_COMMON "listen = smtp://127.0.0.1:25 lmtp:unix:x\n");
    receive_role.reload(&site.role, old);
    conf_free(old);
    expect_class(&c, "X-Class: reset\r\n", "");
    hang_up(&c);
    close_site();

    /* Strangers have no say. */
    (void)snprintf(text, sizeof text, "%s%s", CONF_STRICT, classes);
    open_site(text);
    greet(&c);
    expect_class(&c, "X-Class: reset\r\n", "bulk");
    hang_up(&c);
    close_site();
}

static void lmtp_answers_for_each_recipient(void **unused)
{
    struct client c;

    (void)unused;
    open_site(CONF_STRICT);
    dial_unix(&c);
    expect(&c, "220 ");
    ask(&c, "LHLO client.test\r\n", "250-");
    ask(&c, "MAIL FROM:<>\r\n", "250 ");
    ask(&c, "RCPT TO:<a@elsewhere.test>\r\n", "250 "); /* who can open the socket may relay */
    ask(&c, "RCPT TO:<b@elsewhere.test>\r\n", "250 ");
    ask(&c, "DATA\r\n", "354 ");
    ask(&c, "x\r\n.\r\n", "250 2.0.0");
    expect(&c, "250 2.0.0");
    expect_nothing(&c);
    assert_string_equal(site.last.envelope, ">a@elsewhere.test,b@elsewhere.test");
    hang_up(&c);
    close_site();
}

static void without_a_queue_mail_is_refused_for_now(void **unused)
{
    struct client waiting, c;

    (void)unused;
    open_site(CONF_STRICT);
    site.hold = true;
    greet(&waiting);
    begin_mail(&waiting);
    say(&waiting, "x\r\n.\r\n");
    greet(&c);
    begin_mail(&c);
    settle();
    assert_int_equal(site.count, 1);
    assert_false(site.queue_lost);
    lose_queue();
    expect(&waiting, "451 4.3.0");
    ask(&c, "x\r\n.\r\n", "451 4.3.0"); /* what was begun before */
    ask(&c, "MAIL FROM:<s@client.test>\r\n", "451 4.3.0");
    ask(&c, "ETRN partner.test\r\n", "458 ");
    assert_true(site.queue_lost);
    connect_queue();
    site.hold = false;
    begin_mail(&waiting);
    ask(&waiting, "x\r\n.\r\n", "250 2.0.0");
    begin_mail(&c);
    ask(&c, "x\r\n.\r\n", "250 2.0.0");
    hang_up(&waiting);
    hang_up(&c);
    close_site();
}

/* Runs after the sockets were asked, and before the deadlines are judged. */
static void accept_late(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    (void)arg;
    accept_submission();
    channel_flush_all();
}

/* This process stood still while the queue accepted the message: the client must not be told to
 * bring it again. */
static void an_answer_that_waits_is_read_before_the_queue_is_given_up(void **unused)
{
    static const struct timeval at_once;
    struct client c;

    (void)unused;
    open_site(CONF_STRICT "qmgr_ipc_timeout = 10s\n");
    site.hold = true;
    greet(&c);
    begin_mail(&c);
    say(&c, "x\r\n.\r\n");
    expect_nothing(&c);
    assert_int_equal(event_base_once(site.role.base, -1, EV_TIMEOUT, accept_late, NULL, &at_once),
                     0);
    move_clock(11 * US_PER_S);
    expect(&c, "250 2.0.0");
    hang_up(&c);
    close_site();
}

static void a_queue_that_does_not_answer_is_given_up(void **unused)
{
    struct client c;

    (void)unused;
    open_site(CONF_STRICT "qmgr_ipc_timeout = 10s\n");
    site.hold = true;
    greet(&c);
    begin_mail(&c);
    say(&c, "x\r\n.\r\n");
    expect_nothing(&c);
    move_clock(11 * US_PER_S);
    expect(&c, "451 4.3.0");
    accept_submission(); /* too late: nobody waits for it */
    expect_nothing(&c);
    ASSERT_LOGGED("4Vq1: the queue's answer came too late");
    ask(&c, "NOOP\r\n", "250 ");
    hang_up(&c);
    close_site();
}

static void shortages_of_the_queue_refuse_mail(void **unused)
{
    struct client c;

    (void)unused;
    open_site(CONF_STRICT);
    greet(&c);
    send_flow(true, false, false);
    settle();
    ask(&c, "MAIL FROM:<s@client.test>\r\n", "452 4.3.1 Insufficient system storage\r\n");
    send_flow(false, true, false);
    settle();
    ask(&c, "MAIL FROM:<s@client.test>\r\n", "451 4.3.0");
    send_flow(true, true, false);
    settle();
    ask(&c, "MAIL FROM:<s@client.test>\r\n", "250 2.1.0");
    ask(&c, "RCPT TO:<r@partner.test>\r\n", "250 2.1.5");
    send_flow(false, true, false);
    settle();
    ask(&c, "DATA\r\n", "451 4.3.0");
    send_flow(true, true, false);
    settle();
    begin_mail(&c);
    send_flow(false, true, false);
    settle();
    ask(&c, "x\r\n.\r\n", "451 4.3.0");
    assert_int_equal(site.count, 0);
    hang_up(&c);
    close_site();
}

static void clients_wait_while_the_queue_is_behind(void **unused)
{
    struct client c, other;

    (void)unused;
    open_site(CONF_STRICT "in_flow_delay = 5s\n");
    greet(&c);
    greet(&other);
    send_flow(true, true, true);
    begin_mail(&c);
    ask(&c, "x\r\n.\r\n", "250 2.0.0");
    say(&c, "NOOP\r\n");
    expect_nothing(&c);
    ask(&other, "NOOP\r\n", "250 "); /* only who sends mail waits */
    move_clock(6 * US_PER_S);
    expect(&c, "250 ");
    hang_up(&c);
    hang_up(&other);
    close_site();
}

static void sessions_are_limited_in_all_and_for_each_address(void **unused)
{
    static const struct {
        const char *conf, *want, *want_log;
    } cases[] = {
        {CONF_STRICT "smtpd_connection_limit = 2\nsmtpd_client_connection_share = 0\n"
                     "smtpd_overload_patience = 300s\n",
         "421 4.3.2 mx.example.test Error: too many connections (smtpd_connection_limit)",
         "too many sessions: 2; localhost[127.0.0.1] is turned away (smtpd_connection_limit)\n"},
        {CONF_STRICT "smtpd_client_connection_count_limit = 2\n",
         "421 4.7.0 mx.example.test Error: too many connections from 127.0.0.1 "
         "(smtpd_client_connection_count_limit)",
         "Connection concurrency limit exceeded: 3 from localhost[127.0.0.1] for service smtp "
         "(smtpd_client_connection_count_limit)\n"},
        {CONF_STRICT "smtpd_connection_limit = 5\nsmtpd_overload_patience = 300s\n",
         "421 4.7.0 mx.example.test Error: too many connections from the network of 127.0.0.1 for "
         "now (smtpd_client_connection_share)",
         "too many sessions from the network of localhost[127.0.0.1] for service smtp "
         "(smtpd_client_connection_share)\n"},
    };

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct client a, b, c, d;

        open_site(cases[i].conf);
        greet(&a);
        greet(&b);
        dial(&c);
        expect(&c, cases[i].want);
        expect_closed(&c);
        ASSERT_LOGGED(cases[i].want_log);
        ask(&a, "QUIT\r\n", "221 ");
        settle();
        greet(&d);
        hang_up(&a);
        hang_up(&b);
        hang_up(&c);
        hang_up(&d);
        close_site();
    }
}

static void the_slowest_client_makes_room_for_another(void **unused)
{
    struct client drip, sender, other, more;

    (void)unused;
    open_site(CONF_STRICT "smtpd_connection_limit = 2\n");
    greet_from(&drip, "127.1.0.1");
    begin_mail(&drip);
    greet_from(&sender, "127.2.0.1");
    begin_mail(&sender);
    for (int i = 0; i < 5; i++) {
        move_clock(2 * US_PER_S);
        say(&drip, "abc");
        for (int line = 0; line < 100; line++) {
            say(&sender, "a line of forty bytes, as good as others\r\n");
        }
        settle();
    }
    greet_from(&other, "127.3.0.1");
    expect(&drip, "421 4.3.2 Too busy, and others are faster (smtpd_connection_limit)\r\n");
    expect_closed(&drip);
    ASSERT_LOGGED(
        "warning: smtpd_connection_limit: dropped localhost[127.1.0.1] after DATA: waited "
        "10 s, ");
    begin_mail(&other);
    ask(&other, "x\r\n.\r\n", "250 2.0.0");
    ask(&sender, ".\r\n", "250 2.0.0");
    /* One that has delivered and does nothing more loses its place as well, between two messages.
     */
    move_clock(20 * US_PER_S);
    greet_from(&more, "127.4.0.1");
    expect(&other, "421 4.3.2"); /* the other one has sent more */
    expect_closed(&other);
    expect_nothing(&sender);
    hang_up(&drip);
    hang_up(&sender);
    hang_up(&other);
    hang_up(&more);
    close_site();
}

static void a_client_whose_message_is_with_the_queue_keeps_its_place(void **unused)
{
    struct client c, other;

    (void)unused;
    open_site(CONF_STRICT "smtpd_connection_limit = 1\n");
    site.hold = true;
    greet_from(&c, "127.1.0.1");
    begin_mail(&c);
    say(&c, "x\r\n.\r\n");
    settle();
    assert_int_equal(site.count, 1);
    move_clock(50 * US_PER_S);
    dial_from(&other, "127.2.0.1");
    expect(&other, "421 4.3.2 ");
    accept_submission();
    expect(&c, "250 2.0.0");
    hang_up(&c);
    hang_up(&other);
    close_site();
}

static void a_place_is_lost_in_any_phase(void **unused)
{
    struct client silent, shaking, other[3];

    (void)unused;
    open_site(CONF_STRICT "smtpd_connection_limit = 3\nsmtpd_client_connection_share = 0\n"
                          "tls_cert = /cert.pem\ntls_key = /key.pem\n");
    dial_from(&silent, "127.1.0.1");
    expect(&silent, "220 ");
    greet_from(&shaking, "127.2.0.1");
    ask(&shaking, "STARTTLS\r\n", "220 ");
    settle();
    move_clock(1 * US_PER_S);
    for (size_t i = 0; i < COUNT(other); i++) {
        dial_from(&other[i], i == 0 ? "127.3.0.1" : i == 1 ? "127.4.0.1" : "127.5.0.1");
        expect(&other[i], "220 ");
        move_clock(10 * US_PER_MS);
    }
    expect(&silent, "421 4.3.2 ");
    expect_closed(&silent);
    expect_closed(&shaking); /* without a word: there is no room for one */
    ASSERT_LOGGED("dropped localhost[127.1.0.1] after CONNECT: waited 1 s");
    ASSERT_LOGGED("dropped localhost[127.2.0.1] after STARTTLS: waited 1 s");
    hang_up(&silent);
    hang_up(&shaking);
    for (size_t i = 0; i < COUNT(other); i++) {
        hang_up(&other[i]);
    }
    close_site();
}

static void strangers_leave_places_to_those_that_may_relay(void **unused)
{
    struct client stranger[2], own;

    (void)unused;
    open_site(CONF_STRICT "smtpd_connection_limit = 2\nsmtpd_connection_reserve = 50\n"
                          "smtpd_overload_patience = 300s\n");
    dial_from(&stranger[0], "127.1.0.1");
    expect(&stranger[0], "220 ");
    dial_from(&stranger[1], "127.2.0.1");
    expect(&stranger[1], "421 4.3.2 ");
    dial_unix(&own);
    expect(&own, "220 ");
    hang_up(&stranger[0]);
    hang_up(&stranger[1]);
    hang_up(&own);
    close_site();
}

static void memory_is_taken_from_slow_clients(void **unused)
{
    static char big[600000];
    struct client slow, other, third;

    (void)unused;
    memset(big, 'x', sizeof big);
    for (size_t i = 78; i + 1 < sizeof big; i += 80) {
        big[i] = '\r';
        big[i + 1] = '\n';
    }
    open_site(CONF_STRICT "smtpd_memory_limit = 1m\nmessage_size_limit = 500k\n"
                          "spool_inline_limit = 1k\nsmtpd_client_connection_share = 0\n");
    greet_from(&slow, "127.1.0.1");
    begin_mail(&slow);
    say_bytes(&slow, big, 450000);
    settle();
    move_clock(100 * US_PER_S);
    greet_from(&other, "127.2.0.1");
    begin_mail(&other);
    say_bytes(&other, big, 480000);
    expect_nothing(&slow); /* there is room for both */
    greet_from(&third, "127.3.0.1");
    begin_mail(&third);
    say_bytes(&third, big, 480000);
    say(&third, "\r\n.\r\n");
    expect(&third, "250 2.0.0");
    expect(&slow, "421 4.3.2 Too busy, and others are faster (smtpd_memory_limit)\r\n");
    say(&other, "\r\n.\r\n");
    expect(&other, "250 2.0.0");
    ASSERT_LOGGED("smtpd_memory_limit: dropped localhost[127.1.0.1] after DATA");
    hang_up(&slow);
    hang_up(&other);
    hang_up(&third);
    close_site();
}

static void an_attack_does_not_flood_the_log(void **unused)
{
    enum { DRIPS = 50 };
    static struct client drips[DRIPS];
    struct client good;

    (void)unused;
    open_site(CONF_STRICT "smtpd_connection_limit = 1\nsmtpd_client_connection_share = 0\n");
    for (int i = 0; i < DRIPS; i++) {
        char source[32];

        (void)snprintf(source, sizeof source, "127.%d.0.1", 1 + i);
        greet_from(&drips[i], source);
        begin_mail(&drips[i]);
        say(&drips[i], "x");
        settle();
        move_clock(US_PER_S);
    }
    greet_from(&good, "127.99.0.1");
    begin_mail(&good);
    ask(&good, "x\r\n.\r\n", "250 2.0.0");
    ask(&good, "QUIT\r\n", "221 ");
    expect_closed(&good);
    assert_int_equal(times_logged("smtpd_connection_limit: dropped "), RECEIVE_LIMIT_LINES);
    assert_in_range(times_logged(": connect from "), RECEIVE_LIMIT_LINES, RECEIVE_LIMIT_LINES + 4);
    assert_int_equal(times_logged(": connect from "), times_logged(": disconnect from "));
    ASSERT_LOGGED(": connect from localhost[127.99.0.1]\n"); /* it has brought mail */
    ASSERT_LOGGED("disconnect from localhost[127.99.0.1] ehlo=1 mail=1 rcpt=1 data=1 quit=1");
    assert_int_equal(times_logged(" more clients "), 0);
    move_clock(60 * US_PER_S);
    ASSERT_LOGGED("warning: smtpd_connection_limit: 40 more clients were dropped\n");
    for (int i = 0; i < DRIPS; i++) {
        hang_up(&drips[i]);
    }
    hang_up(&good);
    close_site();
}

static void out_of_descriptors_accepting_pauses(void **unused)
{
    struct rlimit old, low;
    struct client c;
    int fd;

    (void)unused;
    open_site(CONF_STRICT);
    settle();
    dial(&c);
    assert_return_code(getrlimit(RLIMIT_NOFILE, &old), 0);
    fd = dup(0); /* the lowest that is free */
    assert_return_code(fd, 0);
    (void)close(fd);
    low = old;
    low.rlim_cur = (rlim_t)fd;
    assert_return_code(setrlimit(RLIMIT_NOFILE, &low), 0);
    expect_nothing(&c);
    assert_return_code(setrlimit(RLIMIT_NOFILE, &old), 0);
    ASSERT_LOGGED("accept: Too many open files; the next try is in 1 s");
    expect(&c, "220 ");
    hang_up(&c);
    close_site();
}

static void silent_clients_are_sent_away(void **unused)
{
    struct client c, sender;

    (void)unused;
    open_site(CONF_STRICT "smtpd_timeout = 100s\n");
    greet(&c);
    greet(&sender);
    begin_mail(&sender);
    say(&sender, "half a li");
    settle();
    move_clock(90 * US_PER_S);
    ask(&c, "NOOP\r\n", "250 ");
    move_clock(90 * US_PER_S);
    expect(&sender, "421 4.4.2");
    expect_closed(&sender);
    expect_nothing(&c); /* its time began anew */
    move_clock(20 * US_PER_S);
    expect(&c, "421 4.4.2");
    expect_closed(&c);
    assert_int_equal(site.count, 0);
    ASSERT_LOGGED("timeout after DATA from localhost[127.0.0.1]: smtpd_timeout\n");
    ASSERT_LOGGED("timeout after EHLO from localhost[127.0.0.1]: smtpd_timeout\n");
    hang_up(&c);
    hang_up(&sender);
    close_site();
}

static void a_client_that_goes_away_leaves_nothing_behind(void **unused)
{
    static const struct {
        const char *words, *want_log;
    } cases[] = {
        {"", "lost connection after CONNECT from localhost[127.0.0.1]\n"},
        {"EHLO x\r\nMAIL FROM:<a@b.test>\r\n", "lost connection after MAIL from"},
        {"EHLO x\r\nMAIL FROM:<a@b.test>\r\nRCPT TO:<r@partner.test>\r\nDATA\r\nSubj",
         "lost connection after DATA from"},
        {"EHLO x\r\nMAIL FROM:<a@b.test>\r\nRCPT TO:<r@partner.test>\r\nDATA\r\nx\r\n.\r",
         "lost connection after DATA from"},
        {"HELO x\r\n\xff\xff\xff\xff garbage", "lost connection after HELO from"},
    };

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct client c;

        open_site(CONF_STRICT);
        dial(&c);
        expect(&c, "220 ");
        say(&c, cases[i].words);
        settle();
        hang_up(&c);
        ASSERT_LOGGED(cases[i].want_log);
        ASSERT_LOGGED("disconnect from localhost[127.0.0.1]");
        assert_int_equal(site.count, 0);
        close_site();
    }
}

static void a_message_whose_sender_has_gone_is_committed_and_logged(void **unused)
{
    struct client c;

    (void)unused;
    open_site(CONF_STRICT);
    site.hold = true;
    greet(&c);
    begin_mail(&c);
    say(&c, "x\r\n.\r\n");
    settle();
    assert_int_equal(site.count, 1);
    hang_up(&c);
    settle();
    accept_submission();
    ASSERT_LOGGED("lost connection after END-OF-MESSAGE from");
    close_site();
}

static void pipelined_commands_and_messages_are_all_answered(void **unused)
{
    struct client c;
    struct buf words;

    (void)unused;
    open_site(CONF_STRICT);
    buf_init(&words, 1 << 20);
    for (int i = 0; i < 200; i++) {
        buf_add_string(&words, "MAIL FROM:<a@b.test>\r\nRCPT TO:<r@partner.test>\r\nDATA\r\n"
                               "Subject: x\r\n\r\nbody\r\n.\r\n");
    }
    greet(&c);
    say_bytes(&c, buf_slice(&words).ptr, buf_len(&words));
    for (int i = 0; i < 200; i++) {
        expect(&c, "250 2.1.0");
        expect(&c, "250 2.1.5");
        expect(&c, "354 ");
        expect(&c, "250 2.0.0");
    }
    assert_int_equal(site.count, 200);
    buf_fini(&words);
    hang_up(&c);
    close_site();
}

static void a_flood_of_commands_whose_answers_nobody_reads_is_held_up(void **unused)
{
    static char flood[6 * 10000];
    size_t sent = 0, most = 64 << 20;
    struct client c, other;
    int small = 4096, stuck = 0;

    (void)unused;
    open_site(CONF_STRICT "smtpd_junk_command_limit = 1000000\n");
    greet(&c);
    greet(&other);
    assert_return_code(setsockopt(c.fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small), 0);
    for (size_t i = 0; i < sizeof flood; i += 6) {
        memcpy(flood + i, "NOOP\r\n", 6);
    }
    while (stuck < 200 && sent < most) {
        size_t at = sent % sizeof flood;
        ssize_t n = send(c.fd, flood + at, sizeof flood - at, MSG_NOSIGNAL);

        stuck = n > 0 ? 0 : stuck + 1;
        sent += n > 0 ? (size_t)n : 0;
        turn();
    }
    assert_true(sent < most); /* what the kernel's buffers hold, and no more */
    ask(&other, "NOOP\r\n", "250 ");
    hang_up(&c);
    hang_up(&other);
    close_site();
}

static void a_client_with_many_errors_is_slowed_and_then_sent_away(void **unused)
{
    struct client c;

    (void)unused;
    open_site(CONF_STRICT "smtpd_soft_error_limit = 2\nsmtpd_hard_error_limit = 4\n"
                          "smtpd_error_sleep_time = 5s\n");
    greet(&c);
    ask(&c, "BAD1\r\n", "500 ");
    ask(&c, "BAD2\r\n", "500 ");
    say(&c, "BAD3\r\n");
    expect_nothing(&c);
    move_clock(6 * US_PER_S);
    expect(&c, "500 ");
    say(&c, "BAD4\r\n");
    expect(&c, "500 ");
    expect(&c, "421 4.7.0");
    expect_closed(&c);
    ASSERT_LOGGED("too many errors after EHLO from localhost[127.0.0.1]\n");
    hang_up(&c);
    close_site();
}

static void the_engines_own_refusal_of_content_is_logged(void **unused)
{
    struct client c;

    (void)unused;
    open_site(CONF_STRICT);
    greet(&c);
    begin_mail(&c);
    ask(&c, "bare\nnewline\r\n.\r\n", "550 5.6.11");
    assert_int_equal(site.count, 0);
    ASSERT_LOGGED("NOQUEUE: reject: END-OF-MESSAGE from localhost[127.0.0.1]: Bare LF in content; "
                  "from=<s@client.test> proto=ESMTP helo=<client.test>\n");
    hang_up(&c);
    close_site();
}

static int lowest_free_fd(void)
{
    int fd = dup(0);

    assert_return_code(fd, 0);
    (void)close(fd);
    return fd;
}

static void the_memory_of_a_message_that_comes_to_nothing_is_given_back(void **unused)
{
    struct client c;
    int before;

    (void)unused;
    open_site(CONF_STRICT "spool_inline_limit = 10\n");
    greet(&c);
    before = lowest_free_fd();
    begin_mail(&c);
    say(&c, "more than ten bytes\r\n");
    settle();
    assert_int_not_equal(lowest_free_fd(), before); /* a memfd holds them */
    ask(&c, "bare\nnewline\r\n.\r\n", "550 5.6.11");
    assert_int_equal(lowest_free_fd(), before);
    hang_up(&c);
    close_site();
}

static void a_refusal_of_data_is_logged_once(void **unused)
{
    struct client c;

    (void)unused;
    open_site(CONF_STRICT);
    greet(&c);
    ask(&c, "MAIL FROM:<s@client.test>\r\n", "250 2.1.0");
    ask(&c, "RCPT TO:<r@partner.test>\r\n", "250 2.1.5");
    send_flow(false, true, false);
    settle();
    ask(&c, "DATA\r\n", "451 4.3.0");
    ask(&c, "NOOP\r\n", "250 ");
    ASSERT_LOGGED("NOQUEUE: reject: DATA from localhost[127.0.0.1]: 451 4.3.0 ");
    assert_false(logged("END-OF-MESSAGE"));
    hang_up(&c);
    close_site();
}

static void etrn_is_passed_to_the_queue(void **unused)
{
    struct client c;

    (void)unused;
    open_site(CONF_STRICT);
    greet(&c);
    ask(&c, "ETRN elsewhere.test\r\n", "459 ");
    assert_int_equal(site.etrns, 1);
    ask(&c, "NOOP\r\n", "250 ");
    hang_up(&c);
    close_site();
}

static void mail_comes_in_over_tls(void **unused)
{
    static const char *const name = "mx.example.test";
    struct tls_peer peer = {.sni = name, .names = &name, .name_count = 1, .verify = true};
    struct tls_context *context;
    enum tls_result result = TLS_WANT_READ;
    struct client c;
    struct buf error;

    (void)unused;
    open_site(CONF_STRICT "tls_cert = /cert.pem\ntls_key = /key.pem\n");
    buf_init(&error, 1000);
    context = tls_client_new(slice_string(fixture_authority), &error);
    greet(&c);
    /* What is injected behind STARTTLS in the clear is thrown away. */
    say(&c, "STARTTLS\r\nMAIL FROM:<injected@client.test>\r\n");
    expect(&c, "220 ");
    c.tls = tls_connect(context, c.fd, &peer);
    for (int i = 0; i < 10000 && result != TLS_OK; i++) {
        result = tls_handshake(c.tls);
        turn();
    }
    assert_int_equal(result, TLS_OK);
    expect_nothing(&c);
    ask(&c, "EHLO client.test\r\n", "250-");
    begin_mail(&c);
    ask(&c, "x\r\n.\r\n", "250 2.0.0");
    assert_non_null(strstr(site.last.trace, "(using TLSv1.3 with cipher TLS_AES_256_GCM_SHA384 "));
    assert_non_null(strstr(site.last.trace, " with ESMTPS id \1"));
    hang_up(&c);
    ASSERT_LOGGED("Anonymous TLS connection established from localhost[127.0.0.1]: TLSv1.3");
    tls_context_free(context);
    close_site();
}

static void a_failed_handshake_ends_the_session(void **unused)
{
    struct client c;

    (void)unused;
    open_site(CONF_STRICT "tls_cert = /cert.pem\ntls_key = /key.pem\n");
    greet(&c);
    ask(&c, "STARTTLS\r\n", "220 ");
    say(&c, "EHLO in the clear\r\n");
    ASSERT_LOGGED("SSL_accept error from localhost[127.0.0.1]: ");
    ASSERT_LOGGED("lost connection after STARTTLS from localhost[127.0.0.1]\n");
    hang_up(&c);
    greet(&c);
    ask(&c, "STARTTLS\r\n", "220 ");
    move_clock(301 * US_PER_S);
    ASSERT_LOGGED("timeout after STARTTLS from localhost[127.0.0.1]: smtpd_starttls_timeout\n");
    hang_up(&c);
    close_site();
}

static void a_session_keeps_its_limits_over_a_reload(void **unused)
{
    struct conf *old;
    struct client before, after;

    (void)unused;
    open_site(CONF_STRICT);
    greet(&before);
    old = site.conf;
    site.conf = load("myhostname = new.example.test\nrelay_domains = partner.test\n"
                     "smtpd_recipient_limit = 1\nlisten = smtp://127.0.0.1:25\n");
    site.role.conf = site.conf;
    receive_role.reload(&site.role, old);
    conf_free(old);
    dial(&after);
    expect(&after, "220 new.example.test");
    ask(&after, "EHLO x\r\n", "250-new.example.test");
    ask(&after, "MAIL FROM:<>\r\n", "250 ");
    ask(&after, "RCPT TO:<a@partner.test>\r\n", "250 ");
    ask(&after, "RCPT TO:<b@partner.test>\r\n", "452 4.5.3");
    ask(&before, "EHLO x\r\n", "250-mx.example.test");
    ask(&before, "MAIL FROM:<>\r\n", "250 ");
    ask(&before, "RCPT TO:<a@partner.test>\r\n", "250 ");
    ask(&before, "RCPT TO:<b@partner.test>\r\n", "250 ");
    /* The LMTP listener is no longer wanted. */
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    (void)strcpy(to.sun_path, site.unix_path);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), -1);
    (void)close(fd);
    hang_up(&before);
    hang_up(&after);
    close_site();
}

static void a_stop_lets_a_message_finish(void **unused)
{
    struct client idle, sender, stuck;

    (void)unused;
    open_site(CONF_STRICT);
    greet(&idle);
    greet(&sender);
    greet(&stuck);
    begin_mail(&sender);
    begin_mail(&stuck);
    site.role.stopping = true;
    receive_role.stop(&site.role);
    expect(&idle, "421 4.3.2");
    expect_closed(&idle);
    say(&sender, "x\r\n.\r\n");
    expect(&sender, "250 2.0.0");
    expect(&sender, "421 4.3.2");
    expect_closed(&sender);
    assert_int_equal(site.count, 1);
    assert_false(site.exited);
    hang_up(&stuck);
    settle();
    assert_true(site.exited);
    hang_up(&idle);
    hang_up(&sender);
    close_site();
}

/* The site's listener is that of a proxy. */
#define CONF_PROXY                                                                                 \
    CONF_STRICT "listen = smtp://127.0.0.1:25 proxy=yes\n"                                         \
                "smtpd_upstream_proxy_networks = 127.0.0.0/8\n"

static void a_proxy_names_the_client(void **state)
{
    struct client c, silent;

    (void)state;
    open_site(CONF_PROXY);
    dial(&silent);
    dial(&c);
    say(&c, "PROXY TCP4 192.0.2.7 ");
    settle();
    look(&c);
    assert_int_equal(buf_len(&c.in), 0);
    say(&c, "198.51.100.1 4711 25\r\nQUIT\r\n");
    settle();
    look(&c);
    assert_true(slice_starts(buf_slice(&c.in), SLICE("220 ")));
    ASSERT_LOGGED("connect from unknown[192.0.2.7]");
    hang_up(&c);
    hang_up(&silent); /* and the process ends before it has noticed */
    close_site();
}

static void connections_without_the_header_of_a_proxy_are_closed_in_time(void **state)
{
    struct client silent, slow;

    (void)state;
    open_site(CONF_PROXY);
    dial(&silent);
    dial(&slow);
    settle();
    move_clock(4 * US_PER_S);
    say(&slow, "PROXY");
    settle();
    look(&silent);
    assert_false(silent.closed);
    move_clock(1 * US_PER_S);
    settle();
    look(&silent);
    look(&slow);
    assert_true(silent.closed && slow.closed);
    assert_int_equal(times_logged("got none in time (smtpd_upstream_proxy_timeout)"), 2);
    hang_up(&silent);
    hang_up(&slow);
    close_site();
}

UNIT_MAIN(cmocka_unit_test(a_client_hears_of_success_only_after_the_commit),
          cmocka_unit_test(the_queues_refusal_is_passed_on),
          cmocka_unit_test(recipients_are_judged_by_client_and_domain),
          cmocka_unit_test(a_refused_recipient_is_logged_like_postfix_does),
          cmocka_unit_test(large_content_comes_through_a_descriptor),
          cmocka_unit_test(fields_that_mark_bulk_mail_are_reported),
          cmocka_unit_test(the_header_names_the_class_before_the_listener_does),
          cmocka_unit_test(lmtp_answers_for_each_recipient),
          cmocka_unit_test(without_a_queue_mail_is_refused_for_now),
          cmocka_unit_test(an_answer_that_waits_is_read_before_the_queue_is_given_up),
          cmocka_unit_test(a_queue_that_does_not_answer_is_given_up),
          cmocka_unit_test(shortages_of_the_queue_refuse_mail),
          cmocka_unit_test(clients_wait_while_the_queue_is_behind),
          cmocka_unit_test(sessions_are_limited_in_all_and_for_each_address),
          cmocka_unit_test(the_slowest_client_makes_room_for_another),
          cmocka_unit_test(a_client_whose_message_is_with_the_queue_keeps_its_place),
          cmocka_unit_test(a_place_is_lost_in_any_phase),
          cmocka_unit_test(strangers_leave_places_to_those_that_may_relay),
          cmocka_unit_test(memory_is_taken_from_slow_clients),
          cmocka_unit_test(an_attack_does_not_flood_the_log),
          cmocka_unit_test(out_of_descriptors_accepting_pauses),
          cmocka_unit_test(silent_clients_are_sent_away),
          cmocka_unit_test(a_client_that_goes_away_leaves_nothing_behind),
          cmocka_unit_test(a_message_whose_sender_has_gone_is_committed_and_logged),
          cmocka_unit_test(pipelined_commands_and_messages_are_all_answered),
          cmocka_unit_test(a_flood_of_commands_whose_answers_nobody_reads_is_held_up),
          cmocka_unit_test(a_client_with_many_errors_is_slowed_and_then_sent_away),
          cmocka_unit_test(the_engines_own_refusal_of_content_is_logged),
          cmocka_unit_test(the_memory_of_a_message_that_comes_to_nothing_is_given_back),
          cmocka_unit_test(a_refusal_of_data_is_logged_once),
          cmocka_unit_test(etrn_is_passed_to_the_queue), cmocka_unit_test(mail_comes_in_over_tls),
          cmocka_unit_test(a_failed_handshake_ends_the_session),
          cmocka_unit_test(a_session_keeps_its_limits_over_a_reload),
          cmocka_unit_test(a_proxy_names_the_client),
          cmocka_unit_test(connections_without_the_header_of_a_proxy_are_closed_in_time),
          cmocka_unit_test(a_stop_lets_a_message_finish))
