/*
 * Parts of the queue manager that need no sockets: Postfix's parameters, what becomes of a
 * recipient, triggers, and the configuration that is made of Postfix's.
 */
#include "unit.h"

#include <string.h>

#include "buf.h"
#include "master_link.h"
#include "postconf.h"
#include "postconf_places.h"
#include "postconf_values.h"
#include "routing.h"
#include "services.h"
#include "settings.h"

/* ---- parameters ---- */

static void parameters_are_found_by_name(void **unused)
{
    struct settings s;

    (void)unused;
    settings_init(&s, SLICE("b = 2\n"
                            "no line\n"
                            "a =  x y \n"
                            "= nothing\n"
                            "b = 3\n"
                            "empty =\n"
                            "last = 7"));
    assert_true(slice_equal(settings_get(&s, "a"), SLICE("x y")));
    assert_true(slice_equal(settings_get(&s, "b"), SLICE("3")));
    assert_string_equal(settings_get(&s, "last").ptr, "7");
    assert_true(settings_has(&s, "empty"));
    assert_false(settings_has(&s, "c"));
    assert_int_equal(settings_get(&s, "c").len, 0);
    settings_fini(&s);
}

static void times_have_units(void **unused)
{
    static const struct {
        const char *value;
        char unit;
        int64_t want_s;
    } cases[] = {
        {"5", 's', 5},   {"5", 'd', 432000}, {"2h", 's', 7200}, {"1w", 's', 604800},
        {"", 's', 99},   {"x", 's', 99},     {"-1", 's', 99},   {"99999999999999d", 's', 99},
        {"3M", 's', 180}};

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct settings s;
        struct buf text;

        buf_init(&text, 100);
        assert_true(buf_addf(&text, "t = %s\n", cases[i].value));
        settings_init(&s, buf_slice(&text));
        assert_int_equal(settings_time_us(&s, "t", 99 * US_PER_S, cases[i].unit),
                         cases[i].want_s * US_PER_S);
        settings_fini(&s);
        buf_fini(&text);
    }
}

/* ---- triggers ---- */

static void letters_of_a_trigger_ask_for_scans(void **unused)
{
    static const struct {
        const char *letters;
        size_t len;
        unsigned want;
    } cases[] = {{"W", 2, POSTFIX_SCAN_INCOMING},
                 {"FADI", 5, 15},
                 {"", 1, 0},
                 {"xyz", 3, 0},
                 {"DD", 2, POSTFIX_SCAN_DEFERRED},
                 {"F", 1, POSTFIX_SCAN_FLUSH}};

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        assert_int_equal(master_trigger_scans(slice_of(cases[i].letters, cases[i].len)),
                         cases[i].want);
    }
}

static void the_generation_is_octal(void **unused)
{
    (void)unused;
    assert_int_equal(master_generation("17"), 15);
    assert_int_equal(master_generation("0"), 0);
    assert_int_equal(master_generation("18"), 0);
    assert_int_equal(master_generation(" 7"), 0);
    assert_int_equal(master_generation(NULL), 0);
    assert_int_equal(master_generation("77777777777777777777777777"), 0);
}

/* ---- routing ---- */

static const struct routing_params params = {.default_filter_nexthop = {"", 0},
                                             .myhostname = {"mail.test", 9},
                                             .defer_transports = {"uucp, smtp", 10},
                                             .double_bounce_sender = {"double-bounce", 13},
                                             .probe_limit = 2};

/* Makes an envelope with two texts; queue_file_envelope_fini frees it. */
static struct queue_file_envelope envelope_with(enum queue_file_text which, const char *value,
                                                const char *filter)
{
    struct queue_file_envelope e = {.size_flags = 0};
    struct slice text[QUEUE_FILE_TEXTS];

    for (size_t i = 0; i < QUEUE_FILE_TEXTS; i++) {
        text[i] = SLICE("");
    }
    text[QUEUE_FILE_FILTER] = slice_string(filter);
    text[which] = slice_string(value);
    queue_file_set_texts(&e, text);
    return e;
}

static void a_filter_takes_all_mail_but_probes(void **unused)
{
    static const struct {
        const char *filter, *rcpt, *transport, *nexthop;
    } cases[] = {{"scan:[::1]:10025", "a@b.test", "scan", "[::1]:10025"},
                 {"scan", "a@b.test", "scan", "b.test"},
                 {"scan:", "a", "scan", "mail.test"}};

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct queue_file_envelope e = envelope_with(QUEUE_FILE_FILTER, cases[i].filter, "");
        struct routing_message m = {.envelope = &e};
        struct rewrite_question question = {0};
        struct postfix_route route;

        assert_int_equal(routing_begin(&params, &m, slice_string(cases[i].rcpt), &question, &route),
                         ROUTING_DECIDED);
        assert_true(slice_equal(route.transport, slice_string(cases[i].transport)));
        assert_true(slice_equal(route.nexthop, slice_string(cases[i].nexthop)));
        assert_true(slice_equal(route.recipient, slice_string(cases[i].rcpt)));
        e.trace_flags = QUEUE_FILE_TRACE_USER_PROBE;
        assert_int_equal(routing_begin(&params, &m, slice_string(cases[i].rcpt), &question, &route),
                         ROUTING_ASK);
        queue_file_envelope_fini(&e);
    }
}

static void a_redirect_is_for_one_recipient_of_the_message(void **unused)
{
    struct queue_file_envelope e = envelope_with(QUEUE_FILE_REDIRECT, "other@x.test", "scan:host");
    struct routing_message m = {.envelope = &e};
    struct rewrite_question question = {0};
    struct postfix_route route;

    (void)unused;
    assert_int_equal(routing_begin(&params, &m, SLICE("a@b.test"), &question, &route), ROUTING_ASK);
    assert_true(question.completed_first);
    assert_true(slice_equal(question.address, SLICE("other@x.test")));
    m.was_redirected = true;
    assert_int_equal(routing_begin(&params, &m, SLICE("c@b.test"), &question, &route),
                     ROUTING_DECIDED);
    assert_int_equal(route.disposal, POSTFIX_SKIP);
    queue_file_envelope_fini(&e);
}

static void what_is_not_delivered_now_goes_to_retry(void **unused)
{
    struct queue_file_envelope e = envelope_with(QUEUE_FILE_SENDER, "s@x.test", "");
    struct rewrite_answer to_smtp = {.transport = SLICE("smtp"),
                                     .nexthop = SLICE("host"),
                                     .recipient = SLICE("a@b.test"),
                                     .classes = 4096};
    struct rewrite_answer to_local = {.transport = SLICE("local"),
                                      .nexthop = SLICE("mail.test"),
                                      .recipient = SLICE("Double-Bounce@mail.test"),
                                      .classes = REWRITE_CLASS_LOCAL};
    struct routing_message m = {.envelope = &e};
    struct postfix_route route;

    (void)unused;
    routing_end(&params, &m, &to_smtp, &route);
    assert_true(slice_equal(route.transport, SLICE("retry")));
    assert_true(slice_equal(route.nexthop, SLICE("4.3.2 deferred transport")));
    m.flushed = true;
    routing_end(&params, &m, &to_smtp, &route);
    assert_true(slice_equal(route.transport, SLICE("smtp")));
    m.force_expire = true;
    routing_end(&params, &m, &to_smtp, &route);
    assert_true(slice_equal(route.nexthop, SLICE("4.7.0 message is administratively expired")));
    m.force_expire = false;
    routing_end(&params, &m, &to_local, &route);
    assert_int_equal(route.disposal, POSTFIX_DISCARD);
    to_local.classes = 4096;
    routing_end(&params, &m, &to_local, &route);
    assert_int_equal(route.disposal, POSTFIX_DELIVER);
    e.trace_flags = QUEUE_FILE_TRACE_MTA_PROBE;
    m.probes = 3;
    routing_end(&params, &m, &to_smtp, &route);
    assert_true(slice_equal(route.nexthop, SLICE("4.3.2 Too many address verification requests")));
    queue_file_envelope_fini(&e);
}

static void a_next_hop_that_is_too_long_is_no_next_hop(void **unused)
{
    static char text[ROUTING_NEXTHOP_MAX + 1];
    struct queue_file_envelope e = envelope_with(QUEUE_FILE_SENDER, "", "");
    struct rewrite_answer answer = {.transport = SLICE("relay"), .recipient = SLICE("a@b.test")};
    struct routing_message m = {.envelope = &e};
    struct postfix_route route;

    (void)unused;
    memset(text, 'x', sizeof text);
    answer.nexthop = slice_of(text, sizeof text);
    routing_end(&params, &m, &answer, &route);
    assert_true(slice_equal(route.transport, SLICE("retry")));
    answer.transport = SLICE("error");
    routing_end(&params, &m, &answer, &route);
    assert_true(slice_equal(route.transport, SLICE("error")));
    assert_int_equal(route.nexthop.len, ROUTING_NEXTHOP_MAX);
    queue_file_envelope_fini(&e);
}

/* ---- our configuration ---- */

static void postfix_parameters_become_ours(void **unused)
{
    struct settings s;
    struct buf out, notes;

    (void)unused;
    buf_init(&out, 1 << 20);
    buf_init(&notes, 4096);
    settings_init(&s, SLICE("queue_directory = /var/spool/postfix\n"
                            "data_directory = /var/lib/postfix\n"
                            "mail_owner = postfix\n"
                            "setgid_group = postdrop\n"
                            "minimal_backoff_time = 300s\n"
                            "slow_destination_rate_delay = 1s\n"
                            "default_destination_rate_delay = 0s\n"
                            "smtpd_recipient_limit = 1000\n"
                            "maillog_file =\n"));
    postconf_translate(&s, SLICE("slow_process_limit = 2\n"),
                       SLICE("# comment\n"
                             "sluice_default_class = auto\n"
                             "sluice_control_socket = /run/qmgr\n"
                             "sluice_class_header =\n"
                             "  X-Class\n"),
                       SLICE("class/bulk\n\tweight=1\n"), SLICE("syslog"), &out, &notes);
    const char *text = buf_cstr(&out);
    assert_non_null(strstr(text, "spool = postfix:/var/spool/postfix\n"));
    assert_non_null(strstr(text, "state_directory = /var/lib/postfix/sluice\n"));
    assert_non_null(strstr(text, "log = syslog\n"));
    assert_non_null(strstr(text, "minimal_backoff_time = 5m\n"));
    assert_non_null(strstr(text, "slow_destination_rate_delay = 1s\n"));
    assert_non_null(strstr(text, "slow_process_limit = 2\n"));
    assert_non_null(strstr(text, "default_class = auto\n"));
    assert_non_null(strstr(text, "control_socket = /run/qmgr\n"));
    assert_non_null(strstr(text, "class_header = X-Class\n"));
    assert_non_null(strstr(text, "class/bulk\n\tweight=1\n"));
    assert_null(strstr(text, "public/sluice"));
    assert_null(strstr(text, "smtpd_recipient_limit"));
    assert_string_equal(buf_cstr(&notes), "");
    settings_fini(&s);
    buf_fini(&notes);
    buf_fini(&out);
}

/* What a line of main.cf becomes, as Postfix 3.7 reads it (interop/test_qmgr_values). */
static void odd_values_are_taken_as_postfix_takes_them(void **unused)
{
    static const struct {
        const char *line, *want, *note;
    } cases[] = {
        {"queue_run_delay = +300", "queue_run_delay = 5m\n", ""},
        {"queue_run_delay = 200d", "queue_run_delay = 14w2d\n",
         "queue_run_delay: found `200d', which Postfix takes; here 14w2d counts\n"},
        {"queue_run_delay = 1h30m", "queue_run_delay = 1h\n",
         "queue_run_delay: found `1h30m', which Postfix takes; here 1h counts\n"},
        {"qmgr_clog_warn_time = h", "qmgr_clog_warn_time = 0s\n", ""},
        {"queue_run_delay = 0", "queue_run_delay = 0\n", ""}, /* refused, by both */
        {"queue_run_delay = 3553w", "queue_run_delay = 3553w\n", ""},
        {"queue_run_delay = 2147483648", "queue_run_delay = 2147483648\n", ""},
        {"maximal_queue_lifetime = 101d", "maximal_queue_lifetime = 101d\n", ""},
        {"default_delivery_slot_cost = -1", "default_delivery_slot_cost = 0\n",
         "default_delivery_slot_cost: found `-1', which Postfix takes; here 0 counts\n"},
        {"default_delivery_slot_discount = 101", "default_delivery_slot_discount = 101\n", ""},
        {"qmgr_message_active_limit = 2147483647", "qmgr_message_active_limit = 10000000\n",
         "qmgr_message_active_limit: found `2147483647', which Postfix takes; here 10000000 "
         "counts\n"},
        {"qmgr_message_active_limit = 1e3", "qmgr_message_active_limit = 1e3\n", ""},
        {"smtp_recipient_refill_delay = 3d", "smtp_recipient_refill_delay = 1d\n",
         "smtp_recipient_refill_delay: found `3d', which Postfix takes; here 1d counts\n"},
        {"smtp_delivery_slot_loan = abc", NULL,
         "smtp_delivery_slot_loan: found `abc', which Postfix refuses; the default counts\n"},
        {"default_destination_concurrency_positive_feedback = 1 / $x",
         "default_destination_concurrency_positive_feedback = 1 / $$x\n", ""},
    };

    (void)unused;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct buf out, notes;
        struct settings s;
        struct slice name = slice_string(cases[i].line);

        name = slice_trim(slice_of(name.ptr, slice_find(name, '=')));
        buf_init(&out, 1 << 16);
        buf_init(&notes, 4096);
        settings_init(&s, slice_string(cases[i].line));
        postconf_translate(&s, SLICE(""), SLICE(""), SLICE(""), SLICE("syslog"), &out, &notes);
        assert_string_equal(buf_cstr(&notes), cases[i].note);
        if (cases[i].want != NULL) {
            assert_non_null(strstr(buf_cstr(&out), cases[i].want));
        } else {
            assert_null(memmem(buf_cstr(&out), buf_len(&out), name.ptr, name.len));
        }
        settings_fini(&s);
        buf_fini(&notes);
        buf_fini(&out);
    }
}

static void a_process_limit_is_a_number_or_the_default(void **unused)
{
    (void)unused;
    assert_int_equal(postconf_process_limit(SLICE("-"), 7), 7);
    assert_int_equal(postconf_process_limit(SLICE("0"), 7), 0);
    assert_int_equal(postconf_process_limit(SLICE("200000"), 7), 100000);
    assert_int_equal(postconf_process_limit(SLICE("x"), 7), 7);
}

static void complaints_name_the_file_of_the_operator(void **unused)
{
    static const struct postconf_places places = {
        .path = "/data/qmgr.conf",
        .directory = "/etc/postfix",
        .text = {"spool = postfix:/q\nqueue_run_delay = x\nfoo = 1\nslow_process_limit = 3\n"
                 "weight=x\n",
                 79},
        .main_cf = {"# sluice_foo = 0\nsluice_foo =\n foo = 1\nqueue_run_delay=x\n", 57},
        .own = {"weight=x\n", 9}};
    struct buf out;

    (void)unused;
    assert_int_equal(strlen(places.text.ptr), places.text.len);
    assert_int_equal(strlen(places.main_cf.ptr), places.main_cf.len);
    buf_init(&out, 4096);
    postconf_put_places(&places,
                        SLICE("/data/qmgr.conf:5:8: error: a\n/data/qmgr.conf:3:1: error: b\n"
                              "/data/qmgr.conf:2:9: error: c\n/data/qmgr.conf:4:1: error: d\n"
                              "/data/qmgr.conf:1:1: error: e\n/data/qmgr.conf:99:1: error: f\n"
                              "/data/qmgr.conf: g\n/data/qmgr.confx:1:1: h\n2 errors"),
                        &out);
    assert_string_equal(buf_cstr(&out),
                        "/etc/postfix/sluice.cf:1:8: error: a\n/etc/postfix/main.cf:2: error: b\n"
                        "/etc/postfix/main.cf:4: error: c\n/etc/postfix/master.cf: error: d\n"
                        "/etc/postfix/main.cf: not set there, or by -o in master.cf: error: e\n"
                        "/data/qmgr.conf:99:1: error: f\n/data/qmgr.conf: g\n"
                        "/data/qmgr.confx:1:1: h\n2 errors\n");
    buf_fini(&out);
}

UNIT_MAIN(cmocka_unit_test(complaints_name_the_file_of_the_operator),
          cmocka_unit_test(parameters_are_found_by_name), cmocka_unit_test(times_have_units),
          cmocka_unit_test(letters_of_a_trigger_ask_for_scans),
          cmocka_unit_test(the_generation_is_octal),
          cmocka_unit_test(a_filter_takes_all_mail_but_probes),
          cmocka_unit_test(a_redirect_is_for_one_recipient_of_the_message),
          cmocka_unit_test(what_is_not_delivered_now_goes_to_retry),
          cmocka_unit_test(a_next_hop_that_is_too_long_is_no_next_hop),
          cmocka_unit_test(postfix_parameters_become_ours),
          cmocka_unit_test(odd_values_are_taken_as_postfix_takes_them),
          cmocka_unit_test(a_process_limit_is_a_number_or_the_default))
