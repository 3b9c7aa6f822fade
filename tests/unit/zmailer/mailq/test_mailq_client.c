/*
 * The client talks to the server's engine, to recordings of a real ZMailer, and to servers that
 * make no sense.
 */
#include "unit.h"

#include <stdio.h>
#include <string.h>

#include "capture.h"
#include "mailq_client.h"
#include "mailq_server.h"

#define TEXT_MAX 1000000

static struct mailq_request request_of(enum mailq_view view)
{
    return (struct mailq_request){
        .view = view,
        .user = "tester",
        .password = "secret",
        .nonce = "fyko+d2lbbFgONRv9qkxdawL",
        .now_s = 1795179000,
    };
}

/* ---- with our server ------------------------------------------------------------------------ */

static void give_lists(struct mailq_server *s, const struct mailq_event *event)
{
    switch (event->question) {
    case MAILQ_ASK_THREAD_FIELDS:
        mailq_server_lines(s, SLICE("smtp\ta.example\tN=2\tR=3\tA=1\tQA=5s\n"
                                    "local\t-\tN=1\tR=1\tA=0\tQA=5s\n"));
        break;
    case MAILQ_ASK_THREAD:
        if (slice_equal(event->channel, SLICE("smtp"))) {
            mailq_server_lines(s, SLICE("#smtp/a.example/0  N=2\n"
                                        "17\t0\tx@y\t1\t1795179060\t0\t0\t2\t\tno\ranswer\n"
                                        "17\t1\tx@y\t2\t1795179060\t0\t0\t2\t\tno\ranswer\n"
                                        "18\t0\tx@y\t1\t0\t0\t0\t0\t\t\n"));
        } else {
            mailq_server_lines(
                s, SLICE("#local/-/0  N=1\n.19\t0\t\t1\t0\t0\t0\t7\t\t\x1b[2J \xe2\x80\xae\n"));
        }
        break;
    default:
        mailq_server_lines(s, SLICE("a line\n.and one more\n"));
        break;
    }
    mailq_server_done(s);
}

static void put_row(struct buf *text, const struct mailq_row *row)
{
    assert_true(buf_addf(text, "%s %zu", row->path, row->count));
    for (size_t i = 0; i < row->count; i++) {
        assert_true(buf_addf(text, ",%d", (int)row->offsets[i]));
    }
    if (row->is_short) {
        assert_true(buf_addf(text, " tries %d, %d s, %s", (int)row->tries,
                             row->expires ? (int)row->expires_in_s : -1, row->diagnostic));
    }
    assert_true(buf_add_byte(text, '\n'));
}

/* What is printed in the end, or why it failed. */
static bool converse(const struct mailq_request *request, struct buf *ret_text)
{
    static const char auth_text[] = "tester:secret:ALL:\n";
    struct mailq_client *client = mailq_client_new(request);
    struct mailq_client_event said = {0};
    struct mailq_server *server;
    struct mailq_event event;
    struct mailq_auth *auth;
    struct mailq_counts counts = {0};
    struct buf to_server, to_client, problems;

    buf_init(&problems, 1000);
    buf_init(&to_server, TEXT_MAX);
    buf_init(&to_client, TEXT_MAX);
    auth = mailq_auth_parse("auth", slice_string(auth_text), &problems);
    server = mailq_server_new(auth, &mailq_peer_local, "1.2.3", "0123456789abcdef", &counts);
    for (int turns = 0;
         turns < 1000 && said.type != MAILQ_CLIENT_DONE && said.type != MAILQ_CLIENT_FAILED;
         turns++) {
        struct buf *out = mailq_server_output(server);

        mailq_server_next(server, &to_server, &event);
        if (event.type == MAILQ_NEED_AUTH) {
            mailq_server_auth(server, auth);
        } else if (event.type == MAILQ_ASK) {
            give_lists(server, &event);
        }
        assert_true(buf_add(&to_client, buf_slice(out)));
        buf_clear(out);
        mailq_client_next(client, &to_client, &said);
        if (said.type == MAILQ_CLIENT_TEXT || said.type == MAILQ_CLIENT_FAILED) {
            assert_true(buf_add(ret_text, said.text));
        } else if (said.type == MAILQ_CLIENT_ROW) {
            put_row(ret_text, said.row);
        }
        out = mailq_client_output(client);
        assert_true(buf_add(&to_server, buf_slice(out)));
        buf_clear(out);
    }
    assert_true(said.type == MAILQ_CLIENT_DONE || said.type == MAILQ_CLIENT_FAILED);
    mailq_client_free(client);
    mailq_server_free(server);
    mailq_auth_free(auth);
    buf_fini(&to_server);
    buf_fini(&to_client);
    buf_fini(&problems);
    return said.type == MAILQ_CLIENT_DONE;
}

static void assert_told(const struct mailq_request *request, bool want_done, const char *want)
{
    struct buf text;

    buf_init(&text, TEXT_MAX);
    assert_int_equal(converse(request, &text), want_done);
    assert_string_equal(buf_cstr(&text), want);
    buf_fini(&text);
}

static void messages_by_thread(void **unused)
{
    struct mailq_request r = request_of(MAILQ_VIEW_MESSAGES);
    static const char smtp[] = "smtp/a.example:\n"
                               "\t17/2: (2 tries, expires in 1m) no\nanswer\n"
                               "\t18: (0 tries) \n";
    static const char local[] = "local/-:\n\t.19: (7 tries) ?[2J ???\n";
    char both[1000];

    (void)unused;
    assert_true(snprintf(both, sizeof both, "%s%s", smtp, local) > 0);
    assert_told(&r, true, both);
    r.channel = "smtp";
    assert_told(&r, true, smtp);
    r.channel = NULL;
    r.host = "-";
    assert_told(&r, true, local);
    r.host = "elsewhere";
    assert_told(&r, true, "");
}

static void less_is_told_with_more_options(void **unused)
{
    (void)unused;
    for (enum mailq_view view = MAILQ_VIEW_THREADS; view <= MAILQ_VIEW_COUNTERS; view++) {
        struct mailq_request r = request_of(view);

        assert_told(&r, true, "a line\n.and one more\n");
    }
}

static void logins(void **unused)
{
    struct mailq_request r = request_of(MAILQ_VIEW_TOTALS);

    (void)unused;
    r.scram = true;
    assert_told(&r, true, "a line\n.and one more\n");
    r.password = "wrong";
    assert_told(&r, false, "wrong password");
    r.user = "nobody";
    assert_told(&r, false, "no such user");
    r.scram = false;
    assert_told(&r, false, "no such user");
    r.user = "tester";
    assert_told(&r, false, "wrong password");
}

/* ---- with what was recorded, and with nonsense ---------------------------------------------- */

static bool listen_as(struct slice said, const struct mailq_request *request, struct buf *ret_text)
{
    struct mailq_client *client = mailq_client_new(request);
    struct mailq_client_event event;
    struct buf in;

    buf_init(&in, (size_t)4 << 20);
    for (;;) {
        mailq_client_next(client, &in, &event);
        if (event.type == MAILQ_CLIENT_NEED_INPUT) {
            size_t piece = said.len < 100 ? said.len : 100;

            if (piece == 0) {
                mailq_client_input_ended(client);
            }
            assert_true(buf_add(&in, slice_of(said.ptr, piece)));
            said = slice_skip(said, piece);
            continue;
        }
        if (event.type == MAILQ_CLIENT_ROW) {
            put_row(ret_text, event.row);
            continue;
        }
        assert_true(event.type == MAILQ_CLIENT_DONE || buf_add(ret_text, event.text));
        if (event.type != MAILQ_CLIENT_TEXT) {
            break;
        }
    }
    mailq_client_free(client);
    buf_fini(&in);
    return event.type == MAILQ_CLIENT_DONE;
}

static bool listen_to(struct slice said, enum mailq_view view, struct buf *ret_text)
{
    const struct mailq_request r = request_of(view);

    return listen_as(said, &r, ret_text);
}

static void a_recorded_dump(void **unused)
{
    struct buf dump, text;

    (void)unused;
    buf_init(&dump, TEXT_MAX);
    buf_init(&text, TEXT_MAX);
    capture_read(TEST_DATA_DIR "/10-mailq-v1-dump-active.raw", &dump);
    assert_true(listen_to(buf_slice(&dump), MAILQ_VIEW_MESSAGES, &text));
    assert_string_equal(
        buf_cstr(&text),
        "fk/defer.f:\n"
        "\tA/B/11059320/2:\ttry later (retry in 2s, expires in 59m58s, tries=2)\n"
        "fkp/slow.z:\n"
        "\tA/B/11059320:\t(running now, pid=15444, expires in 59m58s, tries=0)\n"
        "\tA/C/11059321:\t(running now, pid=15444, expires in 59m58s, tries=0)\n"
        "hold/ns:unknown.zz/any:\n"
        "\tX/S/11059300:\ttry again (retry in 42s, expires in 57m18s, tries=1)\n"
        "smtp/[127.0.0.2]:\n"
        "\tX/S/11059300:\tsmtp; 500 (connect to 127.0.0.2 [127.0.0.2|2525|127.0.0.1|49984]: "
        "Connection refused) (retry in 2s, expires in 57m18s, tries=1)\n"
        "smtp/[127.0.0.4]:\n"
        "\tX/S/11059300:\tsmtp; 466 (No DNS response for host: soft.com; h_errno=0)\n"
        "<<- RCPT To:<e@soft.com> NOTIFY=SUCCESS,FAILURE,DELAY ORCPT=rfc822;e@soft.com\n"
        "->> 450 4.3.0 Error: command failed (retry in 12s, expires in 57m18s, tries=1)\n"
        "smtp-etrn/[127.0.0.1]:\n"
        "\tA/B/11059320:\t(retry in 10s, expires in 59m58s, tries=0)\n"
        "wch/slow.a:\n"
        "\tA/B/11059320:\t(running now, pid=15442, expires in 59m58s, tries=0)\n"
        "\tA/C/11059321:\t(running now, pid=15442 NextFeed, expires in 59m58s, tries=0)\n"
        "wch/slow.b:\n"
        "\tA/B/11059320:\t(waiting for channel slot, expires in 59m58s, tries=0)\n"
        "wrg/slow.c:\n"
        "\tA/B/11059320:\t(running now, pid=15443, expires in 59m58s, tries=0)\n"
        "wrg/slow.d:\n"
        "\tA/B/11059320:\t(waiting for thread slot, expires in 59m58s, tries=0)\n");
    buf_clear(&text);
    assert_true(listen_to(buf_slice(&dump), MAILQ_VIEW_TOTALS, &text));
    assert_string_equal(buf_cstr(&text),
                        "Kids: 8  Idle:  4  Msgs:   3  Thrds:  10  Rcpnts:   12  Uptime: 8s\n"
                        "Msgs in 3 out 0 stored 3 Rcpnts in 13 out 0 stored 13\n");
    buf_clear(&text);
    assert_true(listen_to(buf_slice(&dump), MAILQ_VIEW_THREADS, &text));
    assert_true(slice_starts(buf_slice(&text), SLICE("hold/*/0\n    hold/ns:unknown.zz/any/0\t")));
    buf_fini(&dump);
    buf_fini(&text);
}

static void rows_are_told_to_those_who_want_more(void **unused)
{
    struct mailq_request r = request_of(MAILQ_VIEW_MESSAGES);
    struct buf dump, text;

    (void)unused;
    r.verbose = true;
    assert_told(&r, true,
                "smtp/a.example:\n"
                "17 2,1,2 tries 2, 60 s, no\ranswer\n"
                "18 1,1 tries 0, -1 s, \n"
                "local/-:\n"
                ".19 1,1 tries 7, -1 s, \x1b[2J \xe2\x80\xae\n");

    buf_init(&dump, TEXT_MAX);
    buf_init(&text, TEXT_MAX);
    capture_read(TEST_DATA_DIR "/11-mailq-v1-dump-idle.raw", &dump);
    assert_true(listen_as(buf_slice(&dump), &r, &text));
    assert_string_equal(buf_cstr(&text),
                        "hold/ns:dead.test/any:\n"
                        "\t11059704:\ttry again (retry in 2m30s, expires in 59m15s, tries=2)\n"
                        "11059704 1,438\n"
                        "hold/ns:dest.test/any:\n"
                        "\t11059704/2:\ttry again (retry in 26s, expires in 59m15s, tries=2)\n"
                        "11059704 2,283,128\n");
    buf_fini(&dump);
    buf_fini(&text);
}

static void nonsense_is_an_error_and_no_endless_wait(void **unused)
{
    const struct {
        const char *said, *want;
    } cases[] = {
        {"", "the server ended the connection in the middle of its answer"},
        {"220 mail.example ESMTP\n", "this is no mailq server of version 1.0 or 2.0"},
        {"version zmailer 1.0\n", "the server ended the connection in the middle of its answer"},
        {"version zmailer 1.0\nVertices:\n1:\tx\t0; 1\t#y\n",
         "the server lists a vertex without recipients"},
        {"version zmailer 1.0\nVertices:\n1:\tx\t1; 1\t#y\nEnd:\n",
         "the server lists a vertex without channel or host"},
        {"version zmailer 1.0\nVertices:\n1:\tx\t1; 1\t#y\nChannels:\nsmtp\n",
         "the server's list of channels and hosts makes no sense"},
        {"version zmailer 1.0\nVertices:\n2:\tx\t1; 1\t#y\nChannels:\nsmtp:\t>1>2>99>x\nEnd:\n",
         "the server lists a vertex without channel or host"},
        {"version zmailer 2.0\n550 NO ACCESS FOR YOU\n", "no access from this address"},
        {"version zmailer 2.0\nhello\n", "the server sends no challenge"},
        {"version zmailer 2.0\n220 MAILQ-V2-CHALLENGE: 1\n-BAD USER OR PASSWORD\n",
         "wrong password"},
        {"version zmailer 2.0\n220 MAILQ-V2-CHALLENGE: 1\n+OK\n-no\n",
         "the server refuses to answer"},
        {"version zmailer 2.0\n220 MAILQ-V2-CHALLENGE: 1\n+OK\n+OK until LF.LF\na\tb\tN=1\n.\n+OK "
         "until LF.LF\nx\ty\n",
         "the server lists a recipient with less than ten fields"},
    };

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct buf text;

        buf_init(&text, TEXT_MAX);
        assert_false(listen_to(slice_string(cases[i].said), MAILQ_VIEW_MESSAGES, &text));
        assert_string_equal(buf_cstr(&text), cases[i].want);
        buf_fini(&text);
    }
}

UNIT_MAIN(cmocka_unit_test(messages_by_thread),
          cmocka_unit_test(rows_are_told_to_those_who_want_more),
          cmocka_unit_test(less_is_told_with_more_options), cmocka_unit_test(logins),
          cmocka_unit_test(a_recorded_dump),
          cmocka_unit_test(nonsense_is_an_error_and_no_endless_wait))
