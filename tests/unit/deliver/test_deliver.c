/*
 * The role deliver between a queue process that the test plays, SMTP servers that follow scripts,
 * and a name server that knows a table. One thread, one loop; time is moved, not waited for.
 */
#include "unit.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "clock.h"
#include "lease_page.h"
#include "peers.h"
#include "played_queue.h"

#define HELLO "<220 peer ESMTP\n>EHLO mx.here.test\n<250-peer\n<250 PIPELINING\n"
#define TALK                                                                                       \
    ">MAIL FROM:<a@here.test>\n>RCPT TO:<b@there.test>\n>DATA\n<250 2.1.0 Ok\n<250 2.1.5 Ok\n"     \
    "<354 go\n.\n<250 2.0.0 Ok: queued as 77\n"
#define BYE ">QUIT\n!\n"

static int64_t offset_us;    /* of the clock */
static struct role resolves; /* the role resolve, in the same process */

static void pass_time(int64_t us)
{
    played_settle();
    offset_us += us;
    clock_set_offset(offset_us);
    clock_update();
    deliver_role.clock_moved(&played.role);
}

/* The role resolve begins, with a channel to deliver. */
static void start_resolve(void)
{
    int fds[2];

    resolves = (struct role){
        .ops = &resolve_role, .base = played.role.base, .conf = played.role.conf, .tables_fd = -1};
    assert_int_equal(resolve_role.start(&resolves), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    resolve_role.peer(&resolves, &(struct wire_peer){.role = ROLE_DELIVER, .count = 1}, fds[0]);
    deliver_role.peer(&played.role, &(struct wire_peer){.role = ROLE_RESOLVE, .count = 1}, fds[1]);
}

static void start_with(const char *more)
{
    struct buf text;

    buf_init(&text, 65536);
    offset_us = 0;
    played_init(&deliver_role);
    peers_start(played.role.base);
    buf_addf(&text,
             "myhostname = mx.here.test\ninet_protocols = ipv4\nsmtp_tls_security_level = none\n"
             "smtp_dns_server = 127.0.0.1:%d\nsmtp_connection_cache_on_demand = no\n%s",
             peers.dns_port, more);
    played_configure(buf_slice(&text), "/nonexistent");
    played_start();
    start_resolve();
    buf_fini(&text);
}

static int start(void **state)
{
    (void)state;
    start_with("");
    return 0;
}

static int stop(void **state)
{
    (void)state;
    peers_stop();
    resolve_role.end(&resolves);
    played_end();
    return 0;
}

/* An entry for recipients "b@there.test c@there.test ...". */
static void put(uint64_t entry, const char *transport, const char *nexthop, const char *rcpts,
                enum wire_content_place place, struct slice content, int fd)
{
    struct wire_deliver_rcpt list[10] = {0};
    struct slice rest = slice_string(rcpts);
    uint32_t count = 0;

    while (rest.ptr != NULL) {
        list[count] =
            (struct wire_deliver_rcpt){.n = count + 100, .address = slice_cut(&rest, ' ')};
        count++;
    }
    wire_put_deliver(played.channel,
                     &(struct wire_deliver){.entry = entry,
                                            .transport = slice_string(transport),
                                            .nexthop = slice_string(nexthop),
                                            .id = SLICE("4Vq1"),
                                            .sender = SLICE("a@here.test"),
                                            .rcpts = list,
                                            .rcpt_count = count,
                                            .size = content.len,
                                            .place = place,
                                            .content = content},
                     fd);
}

static void send_one(uint64_t entry, const char *nexthop)
{
    put(entry, "smtp", nexthop, "b@there.test", CONTENT_INSIDE, SLICE("Subject: x\r\n\r\n.dot\r\n"),
        -1);
}

static const char *at_port(const char *host, int port)
{
    static char text[4][100];
    static int next;

    next = (next + 1) % 4;
    (void)snprintf(text[next], sizeof text[next], "%s:%d", host, port);
    return text[next];
}

#define assert_slice(s, want)                                                                      \
    do {                                                                                           \
        char *copy_ = mem_copy((s).ptr, (s).len);                                                  \
        assert_string_equal(copy_, want);                                                          \
        mem_free(copy_);                                                                           \
    } while (0)

static void check_verdict(size_t at, uint32_t i, enum wire_verdict_kind kind, const char *status,
                          const char *text)
{
    const struct played_result *r = &played.results[at];

    assert_true(i < r->m.verdict_count);
    assert_int_equal(r->verdicts[i].n, i + 100);
    assert_slice(wire_verdict_text(&r->verdicts[i]), text);
    assert_slice(r->verdicts[i].status, status);
    assert_int_equal(r->verdicts[i].kind, kind);
}

/* The text begins like that. */
static void check_failure(size_t at, enum wire_outcome outcome, enum wire_verdict_kind kind,
                          const char *status, const char *text_start)
{
    const struct played_result *r = &played.results[at];

    if (!slice_starts(r->verdicts[0].text, slice_string(text_start))) {
        fail_msg("wanted %s, got %.*s", text_start, SLICE_ARGS(r->verdicts[0].text));
    }
    assert_slice(r->verdicts[0].status, status);
    assert_int_equal(r->verdicts[0].kind, kind);
    assert_int_equal(r->m.outcome, outcome);
    if (outcome == OUTCOME_SITE_FAIL) {
        assert_true(slice_starts(r->m.reason, slice_string(status)));
    }
}

/* ---- deliveries ----------------------------------------------------------------------------- */

static void a_message_is_delivered_and_reported(void **state)
{
    struct peer *p = peer_new("127.0.0.1", 0, HELLO TALK BYE);
    char relay[60];

    (void)state;
    send_one(7, at_port("[127.0.0.1]", peer_port(p)));
    played_await(1);
    assert_int_equal(played.results[0].m.entry, 7);
    assert_int_equal(played.results[0].m.outcome, OUTCOME_OK);
    assert_int_equal(played.results[0].m.conn_use, 1);
    check_verdict(0, 0, VERDICT_SENT, "2.0.0", "250 2.0.0 Ok: queued as 77");
    (void)snprintf(relay, sizeof relay, "127.0.0.1[127.0.0.1]:%d", peer_port(p));
    assert_slice(played.results[0].verdicts[0].relay, relay);
    played_settle();
    assert_string_equal(buf_cstr(&p->heard),
                        "EHLO mx.here.test\nMAIL FROM:<a@here.test>\nRCPT TO:<b@there.test>\nDATA\n"
                        "DATA:Subject: x\nDATA:\nDATA:..dot\n.\nQUIT\n");
    assert_int_equal(p->open_now, 0);
}

static void each_recipient_gets_its_own_verdict(void **state)
{
    struct peer *p =
        peer_new("127.0.0.1", 0,
                 HELLO ">MAIL\n<250 Ok\n>RCPT\n<250 Ok\n>RCPT\n<450 4.2.0 later\n"
                       ">RCPT\n<550 5.1.1 who\n>DATA\n<354 go\n.\n<250 2.0.0 Ok\n" BYE);

    (void)state;
    put(1, "smtp", at_port("[127.0.0.1]", peer_port(p)), "b@there.test c@there.test d@there.test",
        CONTENT_INSIDE, SLICE("x\r\n"), -1);
    played_await(1);
    check_verdict(0, 0, VERDICT_SENT, "2.0.0", "250 2.0.0 Ok");
    assert_slice(played.results[0].verdicts[0].reply, "250 2.0.0 Ok");
    assert_slice(played.results[0].verdicts[0].text, "");
    assert_int_equal(played.results[0].verdicts[1].kind, VERDICT_DEFERRED);
    assert_slice(played.results[0].verdicts[1].reply, "450 4.2.0 later");
    assert_slice(played.results[0].verdicts[2].reply, "550 5.1.1 who");
    assert_int_equal(played.results[0].verdicts[2].kind, VERDICT_BOUNCED);
    assert_slice(played.results[0].verdicts[2].status, "5.1.1");
    assert_true(slice_ends_nocase(played.results[0].verdicts[2].text,
                                  SLICE("said: 550 5.1.1 who (in reply to RCPT TO command)")));
    assert_int_equal(played.results[0].m.outcome, OUTCOME_OK);
}

static void a_refused_connection_blames_the_site(void **state)
{
    struct peer *p = peer_new("127.0.0.1", 0, "");
    char want[100];
    int port = peer_port(p);

    (void)state;
    peer_stop_listening(p);
    send_one(1, at_port("[127.0.0.1]", port));
    played_await(1);
    (void)snprintf(want, sizeof want, "connect to 127.0.0.1[127.0.0.1]:%d: Connection refused",
                   port);
    check_verdict(0, 0, VERDICT_DEFERRED, "4.4.1", want);
    check_failure(0, OUTCOME_SITE_FAIL, VERDICT_DEFERRED, "4.4.1", want);
    assert_slice(played.results[0].verdicts[0].relay, "none");
}

static void failures_of_a_lone_server(void **state)
{
    static const struct {
        const char *script;
        enum wire_outcome outcome;
        enum wire_verdict_kind kind;
        const char *status, *text, *reply;
        bool doubt;
    } table[] = {
        {"<421 4.3.2 busy\n!\n", OUTCOME_SITE_FAIL, VERDICT_DEFERRED, "4.3.2",
         "host 127.0.0.1[127.0.0.1] refused to talk to me: 421 4.3.2 busy", "421 4.3.2 busy",
         false},
        {"<554 5.7.1 no\n!\n", OUTCOME_SITE_FAIL, VERDICT_DEFERRED, "4.7.1",
         "host 127.0.0.1[127.0.0.1] refused to talk to me: 554 5.7.1 no", "554 5.7.1 no", false},
        {"!\n", OUTCOME_SITE_FAIL, VERDICT_DEFERRED, "4.4.2",
         "lost connection with 127.0.0.1[127.0.0.1] while receiving the initial server greeting",
         "", false},
        {HELLO ">MAIL\n<250 Ok\n>RCPT\n!\n", OUTCOME_SITE_FAIL, VERDICT_DEFERRED, "4.4.2",
         "lost connection with 127.0.0.1[127.0.0.1] while sending RCPT TO", "", false},
        {HELLO ">MAIL\n>RCPT\n>DATA\n<250 Ok\n<250 Ok\n<354 go\n.\n!\n", OUTCOME_SITE_FAIL,
         VERDICT_DEFERRED, "4.4.2",
         "lost connection with 127.0.0.1[127.0.0.1] while sending end of data -- message may be "
         "sent more than once",
         "", true},
        {HELLO ">MAIL\n<552 5.3.4 too big\n>RCPT\n<503 no\n>DATA\n<503 no\n" BYE, OUTCOME_OK,
         VERDICT_BOUNCED, "5.3.4", "host 127.0.0.1[127.0.0.1] said: 552 5.3.4 too big",
         "552 5.3.4 too big", false},
        {HELLO ">MAIL\n<451 4.3.0 sigh\n>RCPT\n<503 no\n>DATA\n<503 no\n" BYE, OUTCOME_OK,
         VERDICT_DEFERRED, "4.3.0", "host 127.0.0.1[127.0.0.1] said: 451 4.3.0 sigh",
         "451 4.3.0 sigh", false},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        struct peer *p;

        start_with("");
        p = peer_new("127.0.0.1", 0, table[i].script);
        send_one(i, at_port("[127.0.0.1]", peer_port(p)));
        played_await(1);
        check_failure(0, table[i].outcome, table[i].kind, table[i].status, table[i].text);
        assert_slice(played.results[0].verdicts[0].reply, table[i].reply);
        assert_int_equal(played.results[0].m.maybe_duplicate, table[i].doubt);
        (void)stop(NULL);
    }
}

static void silence_times_out(void **state)
{
    struct peer *p = peer_new("127.0.0.1", 0, "~\n");

    (void)state;
    send_one(1, at_port("[127.0.0.1]", peer_port(p)));
    played_settle();
    assert_int_equal(played.count, 0);
    pass_time(301 * US_PER_S);
    played_await(1);
    check_failure(0, OUTCOME_SITE_FAIL, VERDICT_DEFERRED, "4.4.2",
                  "conversation with 127.0.0.1[127.0.0.1] timed out while receiving the initial");
}

static void lmtp_over_a_unix_socket(void **state)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    char nexthop[200];

    (void)state;
    (void)snprintf(un.sun_path, sizeof un.sun_path, "/tmp/test_deliver.%d", (int)getpid());
    (void)unlink(un.sun_path);
    (void)peer_listen((struct sockaddr *)&un, sizeof un,
                      "<220 store LMTP\n>LHLO\n<250-store\n<250 PIPELINING\n>MAIL\n>RCPT\n>RCPT\n"
                      ">DATA\n<250 Ok\n<250 Ok\n<250 Ok\n<354 go\n.\n<250 2.0.0 stored\n"
                      "<452 4.2.2 full\n" BYE);
    (void)snprintf(nexthop, sizeof nexthop, "unix:%s", un.sun_path);
    put(1, "lmtp", nexthop, "b@there.test c@there.test", CONTENT_INSIDE, SLICE("x\r\n"), -1);
    played_await(1);
    check_verdict(0, 0, VERDICT_SENT, "2.0.0", "250 2.0.0 stored");
    assert_int_equal(played.results[0].verdicts[1].kind, VERDICT_DEFERRED);
    assert_slice(played.results[0].verdicts[1].status, "4.2.2");
    (void)unlink(un.sun_path);
}

static void a_failed_tls_handshake_is_tried_again_in_clear(void **state)
{
    struct peer *p;

    (void)state;
    start_with("smtp_tls_security_level = may\n");
    p = peer_new("127.0.0.1", 0,
                 "<220 peer ESMTP\n>EHLO\n<250-peer\n<250 STARTTLS\n>STARTTLS\n<220 go\n!\n");
    p->again = HELLO ">MAIL\n<250 Ok\n>RCPT\n<250 Ok\n>DATA\n<354 go\n.\n<250 2.0.0 Ok\n" BYE;
    send_one(1, at_port("[127.0.0.1]", peer_port(p)));
    played_await(1);
    check_verdict(0, 0, VERDICT_SENT, "2.0.0", "250 2.0.0 Ok");
    assert_int_equal(p->connections, 2);
    (void)stop(NULL);
}

/* ---- the lease ------------------------------------------------------------------------------ */

static struct lease_page page;

static void start_with_lease(const char *more)
{
    start_with(more);
    assert_int_equal(lease_page_make(&page), 0);
    lease_page_set(&page, mono_after(clock_mono(), 3600 * US_PER_S));
    wire_put_lease(played.channel, lease_page_share(&page));
}

static void end_lease(void)
{
    lease_page_set(&page, clock_mono());
}

static void stop_with_lease(void)
{
    lease_page_fini(&page);
    (void)stop(NULL);
}

/* What the peer does from now on, on the connections that are open. */
static void go_on(struct peer *p, const char *script)
{
    for (size_t i = 0; i < PEER_OPEN_MAX; i++) {
        struct peer_connection *c = peers.open[i];

        if (c != NULL && c->peer == p) {
            c->at = script;
            while (peer_step(c)) {
            }
        }
    }
    played_settle();
}

static void check_broken_off(size_t at, uint64_t entry)
{
    const struct played_result *r = &played.results[at];

    assert_int_equal(r->m.entry, entry);
    assert_int_equal(r->m.outcome, OUTCOME_BROKEN_OFF);
    assert_int_equal(r->m.verdict_count, 0);
    assert_false(r->m.maybe_duplicate);
}

static void nothing_is_begun_when_the_lease_is_over(void **state)
{
    struct peer *p, *slow;

    (void)state;
    start_with_lease("");
    p = peer_new("127.0.0.1", 0, HELLO TALK BYE);
    slow = peer_new("127.0.0.2", 0, "<220 peer ESMTP\n>EHLO mx.here.test\n~\n");
    send_one(1, at_port("[127.0.0.2]", peer_port(slow)));
    played_settle();
    end_lease();
    go_on(slow, "<250-peer\n<250 PIPELINING\n>QUIT\n!\n"); /* it is ready for MAIL */
    played_await(1);
    check_broken_off(0, 1);
    assert_string_equal(buf_cstr(&slow->heard), "EHLO mx.here.test\nQUIT\n");
    send_one(2, at_port("[127.0.0.1]", peer_port(p)));
    played_await(2);
    check_broken_off(1, 2);
    assert_int_equal(p->connections, 0);
    lease_page_set(&page, mono_after(clock_mono(), US_PER_S));
    send_one(3, at_port("[127.0.0.1]", peer_port(p)));
    played_await(3);
    assert_int_equal(played.results[2].m.outcome, OUTCOME_OK);
    check_verdict(2, 0, VERDICT_SENT, "2.0.0", "250 2.0.0 Ok: queued as 77");
    stop_with_lease();
}

static void no_dot_is_sent_when_the_lease_is_over(void **state)
{
    struct peer *p, *late;

    (void)state;
    start_with_lease("");
    p = peer_new("127.0.0.1", 0, HELLO ">MAIL\n>RCPT\n>DATA\n~\n");
    late = peer_new("127.0.0.2", 0, HELLO ">MAIL\n>RCPT\n>DATA\n<250 Ok\n<250 Ok\n<354 go\n.\n~\n");
    send_one(1, at_port("[127.0.0.1]", peer_port(p)));
    send_one(2, at_port("[127.0.0.2]", peer_port(late)));
    played_settle();
    end_lease();
    go_on(p, "<250 Ok\n<250 Ok\n<354 go\n.\n<250 2.0.0 Ok\n" BYE);
    played_await(1);
    check_broken_off(0, 1);
    played_settle();
    assert_null(strstr(buf_cstr(&p->heard), "\n.\n"));
    assert_null(strstr(buf_cstr(&p->heard), "QUIT"));
    assert_int_equal(p->open_now, 0);
    /* What was past it is waited for. */
    go_on(late, "<250 2.0.0 Ok\n" BYE);
    played_await(2);
    assert_int_equal(played.results[1].m.entry, 2);
    check_verdict(1, 0, VERDICT_SENT, "2.0.0", "250 2.0.0 Ok");
    stop_with_lease();
}

static void a_silent_peer_does_not_keep_a_delivery_back(void **state)
{
    struct peer *greets, *late, *refuses;

    (void)state;
    start_with_lease("");
    greets = peer_new("127.0.0.1", 0, "~\n");
    late = peer_new("127.0.0.2", 0, HELLO ">MAIL\n>RCPT\n>DATA\n<250 Ok\n<250 Ok\n<354 go\n.\n~\n");
    /* Its recipient has a verdict, and two replies are still to come. */
    refuses = peer_new("127.0.0.3", 0, HELLO ">MAIL\n>RCPT\n>DATA\n<550 5.0.0 no\n~\n");
    send_one(1, at_port("[127.0.0.1]", peer_port(greets)));
    send_one(2, at_port("[127.0.0.2]", peer_port(late)));
    send_one(3, at_port("[127.0.0.3]", peer_port(refuses)));
    played_settle();
    end_lease();
    played_await(1);
    check_broken_off(0, 1);
    played_settle();
    assert_int_equal(greets->open_now, 0);
    assert_int_equal(played.count, 1);
    go_on(refuses, "<503 no\n<503 no\n" BYE);
    played_await(2);
    check_verdict(1, 0, VERDICT_BOUNCED, "5.0.0",
                  "host 127.0.0.3[127.0.0.3] said: 550 5.0.0 no (in reply to MAIL FROM command)");
    go_on(late, "<250 2.0.0 Ok\n" BYE);
    played_await(3);
    check_verdict(2, 0, VERDICT_SENT, "2.0.0", "250 2.0.0 Ok");
    stop_with_lease();
}

static void verdicts_from_before_stand_when_the_rest_is_broken_off(void **state)
{
    const struct played_result *r = &played.results[0];
    struct peer *p;

    (void)state;
    start_with_lease("");
    p = peer_new("127.0.0.1", 0,
                 "<220 peer\n>LHLO\n<250-peer\n<250 PIPELINING\n"
                 ">MAIL\n>RCPT\n>RCPT\n>RCPT\n>DATA\n~\n");
    put(1, "lmtp", at_port("[127.0.0.1]", peer_port(p)), "b@there.test c@there.test d@there.test",
        CONTENT_INSIDE, SLICE("x\r\n"), -1);
    played_settle();
    end_lease();
    go_on(p, "<250 Ok\n<250 Ok\n<550 5.1.1 who\n<250 Ok\n<354 go\n.\n" BYE);
    played_await(1);
    assert_int_equal(r->m.outcome, OUTCOME_BROKEN_OFF);
    assert_int_equal(r->m.verdict_count, 3);
    assert_int_equal(r->verdicts[0].kind, VERDICT_NONE);
    assert_int_equal(r->verdicts[0].n, 100);
    assert_int_equal(r->verdicts[1].kind, VERDICT_BOUNCED);
    assert_int_equal(r->verdicts[2].kind, VERDICT_NONE);
    assert_int_equal(r->verdicts[2].n, 102);
    stop_with_lease();
}

/* A peer that does not read: the kernel takes a part of the message, and the lease ends. */
static void what_is_stuck_before_its_end_gets_none(void **state)
{
    size_t len = 40u << 20;
    struct peer_connection *c = NULL;
    struct peer *p;
    char *content;
    int fd;

    (void)state;
    start_with_lease("");
    p = peer_new("127.0.0.1", 0, HELLO ">MAIL\n>RCPT\n>DATA\n~\n");
    fd = memfd_create("content", MFD_CLOEXEC);
    content = mem_new(len);
    memset(content, 'x', len);
    for (size_t i = 100; i + 1 < len; i += 100) {
        memcpy(content + i, "\r\n", 2);
    }
    assert_int_equal(write(fd, content, len), len);
    mem_free(content);
    put(1, "smtp", at_port("[127.0.0.1]", peer_port(p)), "b@there.test", CONTENT_FD,
        slice_of("", 0), fd);
    played_settle();
    for (size_t i = 0; i < PEER_OPEN_MAX; i++) {
        c = peers.open[i] != NULL ? peers.open[i] : c;
    }
    assert_non_null(c);
    assert_return_code(event_del(c->event), 0);
    go_on(p, "<250 Ok\n<250 Ok\n<354 go\n~\n");
    assert_int_equal(played.count, 0);
    end_lease();
    for (;;) {
        static char bytes[1 << 20];
        ssize_t n = recv(event_get_fd(c->event), bytes, sizeof bytes, MSG_DONTWAIT);

        if (n == 0 || (n < 0 && errno != EAGAIN)) {
            break;
        }
        assert_null(memmem(bytes, n > 0 ? (size_t)n : 0, "\n.\r", 3));
        played_turn();
    }
    played_await(1);
    check_broken_off(0, 1);
    stop_with_lease();
}

/* ---- content -------------------------------------------------------------------------------- */

static char *big_content(size_t *ret_len)
{
    struct buf b;

    buf_init(&b, 1 << 20);
    for (int i = 0; i < 4000; i++) {
        buf_addf(&b, "line %d of a message that does not fit into one piece of anything\r\n", i);
    }
    *ret_len = buf_len(&b);
    return buf_take(&b);
}

static void check_big_content(const struct peer *p, const char *content)
{
    const char *heard = strstr(buf_slice(&p->heard).ptr, "DATA:line");
    const char *line = content;

    while (*line != '\0') {
        size_t len = strcspn(line, "\r");

        assert_non_null(heard);
        assert_memory_equal(heard, "DATA:", 5);
        assert_memory_equal(heard + 5, line, len);
        heard += 5 + len + 1;
        line += len + 2;
    }
    assert_memory_equal(heard, ".\n", 2);
}

static void content_comes_by_descriptor(void **state)
{
    struct peer *p = peer_new("127.0.0.1", 0, HELLO TALK BYE);
    int fd = memfd_create("content", 0);
    size_t len;
    char *content = big_content(&len);

    (void)state;
    assert_int_equal(write(fd, content, len), len);
    put(1, "smtp", at_port("[127.0.0.1]", peer_port(p)), "b@there.test", CONTENT_FD,
        slice_of("", 0), fd);
    played_await(1);
    check_verdict(0, 0, VERDICT_SENT, "2.0.0", "250 2.0.0 Ok: queued as 77");
    check_big_content(p, content);
    mem_free(content);
}

static void content_comes_when_it_is_asked_for(void **state)
{
    struct peer *p = peer_new("127.0.0.1", 0, HELLO TALK BYE);
    size_t len;
    char *content = big_content(&len);

    (void)state;
    put(9, "smtp", at_port("[127.0.0.1]", peer_port(p)), "b@there.test", CONTENT_ON_DEMAND,
        slice_of("", 0), -1);
    played_settle();
    assert_int_equal(played.content_asked, 9);
    wire_put_content(
        played.channel,
        &(struct wire_content){.entry = 9, .ok = true, .content = slice_of(content, len)}, -1);
    played_await(1);
    check_verdict(0, 0, VERDICT_SENT, "2.0.0", "250 2.0.0 Ok: queued as 77");
    check_big_content(p, content);
    mem_free(content);
}

static void content_that_cannot_be_read_defers(void **state)
{
    struct peer *p = peer_new("127.0.0.1", 0, HELLO TALK BYE);

    (void)state;
    put(9, "smtp", at_port("[127.0.0.1]", peer_port(p)), "b@there.test", CONTENT_ON_DEMAND,
        slice_of("", 0), -1);
    played_settle();
    wire_put_content(played.channel, &(struct wire_content){.entry = 9, .ok = false}, -1);
    played_await(1);
    check_failure(0, OUTCOME_OK, VERDICT_DEFERRED, "4.3.0", "message content can't be read");
    played_settle();
    assert_null(strstr(buf_cstr(&p->heard), "\n.\n")); /* half a message must not look whole */
    assert_int_equal(p->open_now, 0);
}

/* ---- names ---------------------------------------------------------------------------------- */

static const struct peer_name names[] = {
    {"two.test", ns_t_mx, 10, "mx1.two.test"},
    {"two.test", ns_t_mx, 20, "mx2.two.test"},
    {"mx1.two.test", ns_t_a, 0, "127.0.0.2"},
    {"mx2.two.test", ns_t_a, 0, "127.0.0.3"},
    {"null.test", ns_t_mx, 0, "."},
    {"plain.test", ns_t_a, 0, "127.0.0.2"},
    {"me.test", ns_t_mx, 10, "mx.here.test"},
    {"me.test", ns_t_mx, 20, "mx2.two.test"},
    {"backup.test", ns_t_mx, 5, "mx1.two.test"},
    {"backup.test", ns_t_mx, 10, "mx.here.test"},
    {"backup.test", ns_t_mx, 20, "mx2.two.test"},
    {"mx.here.test", ns_t_a, 0, "127.0.0.4"},
    {"lost.test", ns_t_mx, 10, "nowhere.test"},
    {"empty.test", ns_t_txt, 0, ""}, /* nobody asks for it */
    {"six.test", ns_t_aaaa, 0, "::1"},
    {"mx.six.test", ns_t_mx, 10, "six.test"},
};

static void know_names(void)
{
    peers.names = names;
    peers.name_count = COUNT(names);
    peers.failing = "broken.test";
}

static void check_fault(size_t at, enum wire_outcome outcome, enum wire_verdict_kind kind,
                        const char *status, enum wire_fault fault, const char *text)
{
    check_failure(at, outcome, kind, status, text);
    assert_int_equal(played.results[at].m.fault, fault);
}

/* A domain that has no place for mail returns the mail of its own recipients. Where the
 * configuration has named it, for others, their mail waits. */
static void names_that_lead_nowhere(void **state)
{
    static const struct {
        const char *nexthop;
        enum wire_outcome outcome;
        enum wire_verdict_kind kind;
        const char *status, *text;
    } table[] = {
        {"null.test", OUTCOME_OK, VERDICT_BOUNCED, "5.1.10",
         "Domain null.test does not accept mail (nullMX)"},
        {"missing.test", OUTCOME_OK, VERDICT_BOUNCED, "5.4.4",
         "Host or domain name not found. Name service error for name=missing.test type=MX: Host "
         "not found"},
        {"x.broken.test", OUTCOME_SITE_FAIL, VERDICT_DEFERRED, "4.4.3",
         "Host or domain name not found. Name service error for name=x.broken.test type=MX: Host "
         "not found, try again"},
        {"lost.test", OUTCOME_OK, VERDICT_BOUNCED, "5.4.4", "Host or domain name not found."},
        {"empty.test", OUTCOME_OK, VERDICT_BOUNCED, "5.4.4",
         "Host or domain name not found. Name service error for name=empty.test type=A: Host found "
         "but no data record of requested type"},
        {"me.test", OUTCOME_OK, VERDICT_BOUNCED, "5.4.6", "mail for me.test loops back to myself"},
        {"bad name.test", OUTCOME_OK, VERDICT_DEFERRED, "4.3.5", "mail system configuration error"},
    };
    char address[100];

    (void)state;
    know_names();
    for (size_t i = 0; i < COUNT(table); i++) {
        bool is_returned = table[i].kind == VERDICT_BOUNCED;

        (void)snprintf(address, sizeof address, "b@%s",
                       is_returned ? table[i].nexthop : "there.test");
        put(2 * i, "smtp", table[i].nexthop, address, CONTENT_INSIDE, SLICE("x\r\n"), -1);
        played_await(2 * i + 1);
        check_fault(2 * i, table[i].outcome, table[i].kind, table[i].status, WIRE_FAULT_NONE,
                    table[i].text);
        send_one(2 * i + 1, table[i].nexthop);
        played_await(2 * i + 2);
        check_fault(2 * i + 1, is_returned ? OUTCOME_SITE_FAIL : table[i].outcome, VERDICT_DEFERRED,
                    is_returned ? "4.3.5" : table[i].status,
                    is_returned ? WIRE_FAULT_ROUTE : WIRE_FAULT_NONE, table[i].text);
    }
}

/* Recipients of the domain itself, and others that the configuration sends there. */
static void each_recipient_is_judged_by_its_own_domain(void **state)
{
    (void)state;
    know_names();
    put(1, "smtp", "missing.test", "b@Missing.TEST b@there.test b", CONTENT_INSIDE, SLICE("x\r\n"),
        -1);
    played_await(1);
    assert_int_equal(played.results[0].verdicts[0].kind, VERDICT_BOUNCED);
    assert_slice(played.results[0].verdicts[0].status, "5.4.4");
    for (size_t i = 1; i < 3; i++) {
        assert_int_equal(played.results[0].verdicts[i].kind, VERDICT_DEFERRED);
        assert_slice(played.results[0].verdicts[i].status, "4.3.5");
    }
    assert_int_equal(played.results[0].m.outcome, OUTCOME_SITE_FAIL);
}

/* inet_protocols = ipv4: the domain is right, and we can't reach it. */
static void a_domain_with_addresses_of_the_other_family_alone_returns_no_mail(void **state)
{
    static const char *const names_of[] = {"six.test", "mx.six.test"};
    char address[100];

    (void)state;
    know_names();
    for (size_t i = 0; i < COUNT(names_of); i++) {
        (void)snprintf(address, sizeof address, "b@%s", names_of[i]);
        put(i, "smtp", names_of[i], address, CONTENT_INSIDE, SLICE("x\r\n"), -1);
        played_await(i + 1);
        (void)snprintf(address, sizeof address,
                       "Host %s has IPv6 addresses alone, which inet_protocols leaves out",
                       names_of[i]);
        check_fault(i, OUTCOME_SITE_FAIL, VERDICT_DEFERRED, "4.3.5", WIRE_FAULT_ROUTE, address);
    }
}

/* Its refusal is no answer about a recipient; only the recipient's own domain may mean it so. */
static void a_relay_that_refuses_all_sessions_returns_no_mail(void **state)
{
    struct peer *p = peer_new("127.0.0.1", 0,
                              "<220 peer ESMTP\n>EHLO mx.here.test\n<550 no\n>HELO "
                              "mx.here.test\n<550 5.7.1 no\n" BYE);

    (void)state;
    send_one(1, at_port("[127.0.0.1]", peer_port(p)));
    played_await(1);
    check_fault(0, OUTCOME_SITE_FAIL, VERDICT_DEFERRED, "4.3.5", WIRE_FAULT_ROUTE, "host ");
}

/* RFC 4954, 6: these codes are about our login. */
static void a_reply_about_our_login_returns_no_mail(void **state)
{
    static const char *const codes[] = {"530", "534", "535", "538"};

    (void)state;
    for (size_t i = 0; i < COUNT(codes); i++) {
        char talk[300];

        (void)snprintf(talk, sizeof talk,
                       HELLO ">MAIL\n>RCPT\n>DATA\n<%s 5.7.0 who are you\n<503 no\n<503 no\n" BYE,
                       codes[i]);
        struct peer *p = peer_new("127.0.0.1", 0, talk);

        send_one(i, at_port("[127.0.0.1]", peer_port(p)));
        played_await(i + 1);
        check_fault(i, OUTCOME_OK, VERDICT_DEFERRED, "4.7.0", WIRE_FAULT_ROUTE, "host ");
    }
}

static void a_relay_of_last_resort_that_is_not_found_returns_no_mail(void **state)
{
    (void)state;
    start_with("smtp_fallback_relay = missing.test\n");
    know_names();
    put(1, "smtp", "lost.test", "b@lost.test", CONTENT_INSIDE, SLICE("x\r\n"), -1);
    played_await(1);
    check_fault(0, OUTCOME_SITE_FAIL, VERDICT_DEFERRED, "4.3.5", WIRE_FAULT_FALLBACK_RELAY,
                "Host or domain name not found. Name service error for name=missing.test");
    (void)stop(NULL);
}

static void the_better_exchanger_is_tried_first_and_the_next_one_after_it(void **state)
{
    struct peer *second = peer_new("127.0.0.3", 0, HELLO TALK BYE);
    int port = peer_port(second);
    struct peer *first = peer_new("127.0.0.2", port, "<421 4.3.2 not now\n!\n");

    (void)state;
    know_names();
    send_one(1, at_port("two.test", port));
    played_await(1);
    check_verdict(0, 0, VERDICT_SENT, "2.0.0", "250 2.0.0 Ok: queued as 77");
    assert_int_equal(first->connections, 1);
    assert_true(
        slice_starts(played.results[0].verdicts[0].relay, SLICE("mx2.two.test[127.0.0.3]")));
}

static void a_lost_session_goes_on_with_those_who_have_no_verdict(void **state)
{
    struct peer *second =
        peer_new("127.0.0.3", 0,
                 HELLO ">MAIL\n<250 Ok\n>RCPT TO:<c@there.test>\n<250 Ok\n>DATA\n<354 go\n.\n"
                       "<250 2.0.0 Ok\n" BYE);
    int port = peer_port(second);
    struct peer *first =
        peer_new("127.0.0.2", port, HELLO ">MAIL\n>RCPT\n>RCPT\n<250 Ok\n<550 5.1.1 who\n!\n");

    (void)state;
    know_names();
    put(1, "smtp", at_port("two.test", port), "b@there.test c@there.test", CONTENT_INSIDE,
        SLICE("x\r\n"), -1);
    played_await(1);
    assert_int_equal(first->connections, 1);
    assert_int_equal(played.results[0].verdicts[0].kind, VERDICT_BOUNCED);
    check_verdict(0, 1, VERDICT_SENT, "2.0.0", "250 2.0.0 Ok");
    assert_int_equal(played.results[0].m.outcome, OUTCOME_OK);
}

static void nobody_else_gets_what_may_have_been_delivered(void **state)
{
    struct peer *second = peer_new("127.0.0.3", 0, HELLO TALK BYE);
    int port = peer_port(second);

    (void)state;
    (void)peer_new("127.0.0.2", port,
                   HELLO ">MAIL\n>RCPT\n>DATA\n<250 Ok\n<250 Ok\n<354 go\n.\n!\n");
    know_names();
    send_one(1, at_port("two.test", port));
    played_await(1);
    assert_int_equal(second->connections, 0);
    assert_true(played.results[0].m.maybe_duplicate);
    /* There was another host to try, so the site is not blamed. */
    check_failure(0, OUTCOME_OK, VERDICT_DEFERRED, "4.4.2", "lost connection with mx1.two.test");
}

static void a_backup_exchanger_sends_to_better_ones_only(void **state)
{
    struct peer *worse = peer_new("127.0.0.3", 0, HELLO TALK BYE);
    int port = peer_port(worse);

    (void)state;
    know_names();
    (void)peer_new("127.0.0.2", port, "<421 4.3.2 not now\n!\n");
    send_one(1, at_port("backup.test", port));
    played_await(1);
    assert_int_equal(worse->connections, 0);
    check_failure(0, OUTCOME_SITE_FAIL, VERDICT_DEFERRED, "4.3.2",
                  "host mx1.two.test[127.0.0.2] refused");
}

static void a_domain_without_exchangers_is_its_own(void **state)
{
    struct peer *p = peer_new("127.0.0.2", 0, HELLO TALK BYE);

    (void)state;
    know_names();
    send_one(1, at_port("plain.test", peer_port(p)));
    played_await(1);
    check_verdict(0, 0, VERDICT_SENT, "2.0.0", "250 2.0.0 Ok: queued as 77");
}

static void next_hops_are_tried_in_order_and_relays_of_last_resort_behind_them(void **state)
{
    char more[200], hops[100];
    struct peer *dead, *p;

    (void)state;
    start_with("");
    p = peer_new("127.0.0.1", 0, "");
    int port = peer_port(p);
    (void)stop(NULL);
    (void)snprintf(more, sizeof more, "smtp_fallback_relay = [127.0.0.1]:%d\n", port);
    start_with(more);
    know_names();
    dead = peer_new("127.0.0.2", 0, "!\n");
    p = peer_new("127.0.0.1", port, HELLO TALK BYE);
    (void)snprintf(hops, sizeof hops, "missing.test, plain.test:%d", peer_port(dead));
    send_one(1, hops);
    played_await(1);
    assert_int_equal(dead->connections, 1);
    check_verdict(0, 0, VERDICT_SENT, "2.0.0", "250 2.0.0 Ok: queued as 77");
    (void)stop(NULL);
}

static void a_wrong_name_behind_a_host_that_is_down_does_not_bounce(void **state)
{
    struct peer *dead = peer_new("127.0.0.2", 0, "!\n");
    char hops[100];

    (void)state;
    know_names();
    (void)snprintf(hops, sizeof hops, "plain.test:%d, missing.test", peer_port(dead));
    send_one(1, hops);
    played_await(1);
    check_failure(0, OUTCOME_SITE_FAIL, VERDICT_DEFERRED, "4.4.2", "lost connection");
}

/* ---- connections kept ----------------------------------------------------------------------- */

#define CACHE "smtp_connection_cache_on_demand = yes\n"

static void a_connection_is_kept_for_the_next_message(void **state)
{
    struct peer *p;

    (void)state;
    start_with(CACHE);
    p = peer_new("127.0.0.1", 0, HELLO "=\n" TALK "@\n");
    for (unsigned i = 0; i < 3; i++) {
        send_one(i, at_port("[127.0.0.1]", peer_port(p)));
        played_await(i + 1);
        check_verdict(i, 0, VERDICT_SENT, "2.0.0", "250 2.0.0 Ok: queued as 77");
        assert_int_equal(played.results[i].m.conn_use, i + 1);
    }
    assert_int_equal(p->connections, 1);
    (void)stop(NULL);
}

static void an_idle_connection_says_goodbye_in_time(void **state)
{
    struct peer *p;

    (void)state;
    start_with(CACHE);
    p = peer_new("127.0.0.1", 0, HELLO TALK BYE);
    send_one(1, at_port("[127.0.0.1]", peer_port(p)));
    played_await(1);
    played_settle();
    assert_int_equal(p->open_now, 1);
    pass_time(3 * US_PER_S);
    played_settle();
    assert_int_equal(p->open_now, 0);
    assert_non_null(strstr(buf_cstr(&p->heard), "QUIT\n"));
    (void)stop(NULL);
}

static void a_kept_connection_that_died_is_replaced(void **state)
{
    static const char *const deaths[] = {
        HELLO TALK "!\n",        /* seen before it is used */
        HELLO TALK ">MAIL\n!\n", /* when it is used */
        HELLO TALK ">MAIL\n<421 bye\n!\n",
    };

    (void)state;
    for (size_t i = 0; i < COUNT(deaths); i++) {
        struct peer *p;

        start_with(CACHE);
        p = peer_new("127.0.0.1", 0, deaths[i]);
        p->again = HELLO TALK BYE;
        send_one(1, at_port("[127.0.0.1]", peer_port(p)));
        played_await(1);
        send_one(2, at_port("[127.0.0.1]", peer_port(p)));
        played_await(2);
        check_verdict(1, 0, VERDICT_SENT, "2.0.0", "250 2.0.0 Ok: queued as 77");
        assert_int_equal(played.results[1].m.outcome, OUTCOME_OK);
        assert_int_equal(p->connections, 2);
        (void)stop(NULL);
    }
}

static void forgotten_connections_are_closed(void **state)
{
    struct peer *p;

    (void)state;
    start_with(CACHE);
    p = peer_new("127.0.0.1", 0, HELLO TALK BYE);
    send_one(1, at_port("[127.0.0.1]", peer_port(p)));
    played_await(1);
    wire_put_forget(played.channel,
                    &(struct wire_forget){.transport = SLICE("smtp"), .nexthop = SLICE("other")});
    played_settle();
    assert_int_equal(p->open_now, 1);
    wire_put_forget(played.channel, &(struct wire_forget){0});
    played_settle();
    assert_int_equal(p->open_now, 0);
    (void)stop(NULL);
}

/* Another node gets it. */
static void of_a_destination_that_leaves_no_connection_is_kept(void **state)
{
    const char *dest;
    struct peer *p;

    (void)state;
    start_with(CACHE);
    p = peer_new("127.0.0.1", 0, HELLO ">MAIL\n>RCPT\n>DATA\n~\n");
    p->again = HELLO TALK BYE;
    dest = at_port("[127.0.0.1]", peer_port(p));
    send_one(1, dest);
    played_settle(); /* it is in use */
    wire_put_forget(played.channel, &(struct wire_forget){.transport = SLICE("smtp"),
                                                          .nexthop = slice_string(dest)});
    played_settle();
    go_on(p, "<250 Ok\n<250 Ok\n<354 go\n.\n<250 2.0.0 Ok\n" BYE);
    played_await(1);
    played_settle();
    assert_int_equal(p->open_now, 0);
    send_one(2, dest); /* it has come back */
    played_await(2);
    played_settle();
    assert_int_equal(p->open_now, 1);
    wire_put_forget(played.channel, &(struct wire_forget){.transport = SLICE("smtp"),
                                                          .nexthop = slice_string(dest)});
    played_settle();
    assert_int_equal(p->open_now, 0);
    (void)stop(NULL);
}

static bool none_is_open(const void *arg)
{
    const struct peer *p = arg;

    return p->open_now == 0;
}

static void kept_connections_are_closed_when_the_lease_is_over(void **state)
{
    struct peer *p, *late;

    (void)state;
    start_with_lease(CACHE "smtp_connection_cache_time_limit = 1h\n");
    p = peer_new("127.0.0.1", 0, HELLO TALK BYE);
    late = peer_new("127.0.0.2", 0, HELLO ">MAIL\n>RCPT\n>DATA\n<250 Ok\n<250 Ok\n<354 go\n.\n~\n");
    send_one(1, at_port("[127.0.0.1]", peer_port(p)));
    played_await(1);
    send_one(2, at_port("[127.0.0.2]", peer_port(late)));
    played_settle();
    assert_int_equal(p->open_now, 1);
    end_lease();
    assert_true(played_until(none_is_open, p));
    go_on(late, "<250 2.0.0 Ok\n" BYE); /* was past its end, and is not kept either */
    played_await(2);
    assert_true(played_until(none_is_open, late));
    stop_with_lease();
}

/* ---- the process ---------------------------------------------------------------------------- */

static void few_descriptors_make_deliveries_wait_and_not_fail(void **state)
{
    struct rlimit before, few = {.rlim_cur = 720 + 64};
    struct peer *p;

    (void)state;
    assert_return_code(getrlimit(RLIMIT_NOFILE, &before), 0);
    few.rlim_max = before.rlim_max;
    assert_return_code(setrlimit(RLIMIT_NOFILE, &few), 0);
    start_with("");
    p = peer_new("127.0.0.1", 0, HELLO TALK BYE);
    for (unsigned i = 0; i < 200; i++) {
        send_one(i, at_port("[127.0.0.1]", peer_port(p)));
    }
    played_await(200);
    for (unsigned i = 0; i < 200; i++) {
        assert_int_equal(played.results[i].verdicts[0].kind, VERDICT_SENT);
    }
    assert_true(p->open_most <= 64);
    assert_return_code(setrlimit(RLIMIT_NOFILE, &before), 0);
    (void)stop(NULL);
}

static void a_stop_gives_back_what_was_not_begun_and_waits_for_the_rest(void **state)
{
    struct peer *silent = peer_new("127.0.0.1", 0, "~\n");
    struct peer *busy = peer_new("127.0.0.2", 0, HELLO ">MAIL\n>RCPT\n>DATA\n~\n");

    (void)state;
    send_one(1, at_port("[127.0.0.1]", peer_port(silent)));
    send_one(2, at_port("[127.0.0.2]", peer_port(busy)));
    played_settle();
    played.role.stopping = true;
    deliver_role.stop(&played.role);
    played_await(1);
    assert_int_equal(played.results[0].m.entry, 1);
    assert_int_equal(played.results[0].m.outcome, OUTCOME_GIVEN_BACK);
    played_settle();
    assert_false(played.exited);
    pass_time(31 * US_PER_S);
    played_await(2);
    assert_int_equal(played.results[1].m.entry, 2);
    assert_int_equal(played.results[1].m.outcome, OUTCOME_GIVEN_BACK);
    assert_true(played.exited);
}

static void when_queue_is_gone_only_finished_content_goes_on(void **state)
{
    struct peer *early = peer_new("127.0.0.1", 0, HELLO ">MAIL\n>RCPT\n>DATA\n~\n");
    struct peer *late =
        peer_new("127.0.0.2", 0, HELLO ">MAIL\n>RCPT\n>DATA\n<250 Ok\n<250 Ok\n<354 go\n.\n~\n");
    struct peer *next = peer_new("127.0.0.3", 0, HELLO TALK BYE);

    (void)state;
    send_one(1, at_port("[127.0.0.1]", peer_port(early)));
    send_one(2, at_port("[127.0.0.2]", peer_port(late)));
    played_settle();
    assert_false(played.lost);
    played_connect();
    played_settle();
    assert_true(played.lost);
    assert_int_equal(early->open_now, 0);
    assert_int_equal(late->open_now, 1);
    /* The new queue is served, and hears nothing of the old one's entries. */
    send_one(1, at_port("[127.0.0.3]", peer_port(next)));
    played_await(1);
    check_verdict(0, 0, VERDICT_SENT, "2.0.0", "250 2.0.0 Ok: queued as 77");
    pass_time(601 * US_PER_S);
    played_settle();
    assert_int_equal(played.count, 1);
    assert_int_equal(late->open_now, 0);
}

static void a_reload_changes_what_new_deliveries_do(void **state)
{
    struct peer *p;

    (void)state;
    p = peer_new("127.0.0.1", 0, HELLO TALK BYE);
    send_one(1, at_port("[127.0.0.1]", peer_port(p)));
    played_await(1);
    played_configure(SLICE("myhostname = new.here.test\nsmtp_tls_security_level = none\n"),
                     "/nonexistent");
    p->script = "<220 peer\n>EHLO new.here.test\n<250 peer\n>MAIL\n<550 5.0.0 no\n" BYE;
    send_one(2, at_port("[127.0.0.1]", peer_port(p)));
    played_await(2);
    assert_int_equal(played.results[1].verdicts[0].kind, VERDICT_BOUNCED);
}

#define SITE_TEST(f) cmocka_unit_test_setup_teardown(f, start, stop)

UNIT_MAIN(SITE_TEST(a_message_is_delivered_and_reported),
          SITE_TEST(each_recipient_gets_its_own_verdict),
          SITE_TEST(a_refused_connection_blames_the_site),
          cmocka_unit_test(failures_of_a_lone_server), SITE_TEST(silence_times_out),
          SITE_TEST(lmtp_over_a_unix_socket),
          cmocka_unit_test(a_failed_tls_handshake_is_tried_again_in_clear),
          cmocka_unit_test(nothing_is_begun_when_the_lease_is_over),
          cmocka_unit_test(no_dot_is_sent_when_the_lease_is_over),
          cmocka_unit_test(a_silent_peer_does_not_keep_a_delivery_back),
          cmocka_unit_test(verdicts_from_before_stand_when_the_rest_is_broken_off),
          cmocka_unit_test(what_is_stuck_before_its_end_gets_none),
          SITE_TEST(content_comes_by_descriptor), SITE_TEST(content_comes_when_it_is_asked_for),
          SITE_TEST(content_that_cannot_be_read_defers), SITE_TEST(names_that_lead_nowhere),
          SITE_TEST(a_domain_with_addresses_of_the_other_family_alone_returns_no_mail),
          SITE_TEST(each_recipient_is_judged_by_its_own_domain),
          SITE_TEST(a_relay_that_refuses_all_sessions_returns_no_mail),
          SITE_TEST(a_reply_about_our_login_returns_no_mail),
          cmocka_unit_test(a_relay_of_last_resort_that_is_not_found_returns_no_mail),
          SITE_TEST(the_better_exchanger_is_tried_first_and_the_next_one_after_it),
          SITE_TEST(a_lost_session_goes_on_with_those_who_have_no_verdict),
          SITE_TEST(nobody_else_gets_what_may_have_been_delivered),
          SITE_TEST(a_backup_exchanger_sends_to_better_ones_only),
          SITE_TEST(a_domain_without_exchangers_is_its_own),
          cmocka_unit_test(next_hops_are_tried_in_order_and_relays_of_last_resort_behind_them),
          SITE_TEST(a_wrong_name_behind_a_host_that_is_down_does_not_bounce),
          cmocka_unit_test(a_connection_is_kept_for_the_next_message),
          cmocka_unit_test(an_idle_connection_says_goodbye_in_time),
          cmocka_unit_test(a_kept_connection_that_died_is_replaced),
          cmocka_unit_test(forgotten_connections_are_closed),
          cmocka_unit_test(of_a_destination_that_leaves_no_connection_is_kept),
          cmocka_unit_test(kept_connections_are_closed_when_the_lease_is_over),
          cmocka_unit_test(few_descriptors_make_deliveries_wait_and_not_fail),
          SITE_TEST(a_stop_gives_back_what_was_not_begun_and_waits_for_the_rest),
          SITE_TEST(when_queue_is_gone_only_finished_content_goes_on),
          SITE_TEST(a_reload_changes_what_new_deliveries_do))
