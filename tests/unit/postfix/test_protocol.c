/*
 * The protocols of Postfix's services against recordings of a real one: each message that its queue
 * manager wrote is written by us, byte for byte, from the values in it; each that it read is read.
 */
#include "unit.h"

#include <stdio.h>
#include <string.h>
#include <sys/time.h>

#include "attributes.h"
#include "buf.h"
#include "check.h"
#include "delivery_request.h"
#include "dialogues.h"
#include "notice_request.h"
#include "rewrite_request.h"

#define MESSAGE_MAX ((size_t)1 << 20)

static const struct postfix_release release_37 = {.servers_greet = true};

/* ---- values of a recorded message ---- */

static struct slice take(struct slice *list, const char *name)
{
    struct slice value;

    if (!attributes_take(list, name, &value)) {
        fail_msg("%s is expected next", name);
    }
    return value;
}

static uint64_t take_number(struct slice *list, const char *name)
{
    unsigned long long number;

    assert_true(slice_number(take(list, name), UINT64_MAX, &number));
    return number;
}

static void take_end(struct slice *list)
{
    assert_true(list->len > 0 && list->ptr[0] == '\0');
    *list = slice_skip(*list, 1);
}

static int digit_of(char c)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = strchr(digits, c);

    return at == NULL ? 0 : (int)(at - digits);
}

/* The first two times of the structure. */
static void take_times(struct slice *list, struct wall *ret_arrived, struct wall *ret_activated)
{
    struct slice text = take(list, "time");
    unsigned char bytes[96] = {0};
    struct timeval at[2];
    size_t len = 0;

    assert_int_equal(text.len, 120);
    for (size_t i = 0; i + 3 < text.len; i += 4) {
        unsigned bits = (unsigned)(digit_of(text.ptr[i]) << 18 | digit_of(text.ptr[i + 1]) << 12 |
                                   digit_of(text.ptr[i + 2]) << 6 | digit_of(text.ptr[i + 3]));

        bytes[len++] = (unsigned char)(bits >> 16);
        bytes[len++] = (unsigned char)(bits >> 8);
        bytes[len++] = (unsigned char)bits;
    }
    memcpy(at, bytes, sizeof at);
    ret_arrived->us = at[0].tv_sec * US_PER_S + at[0].tv_usec;
    ret_activated->us = at[1].tv_sec * US_PER_S + at[1].tv_usec;
}

static struct delivery_request_rcpt take_rcpt(struct slice *in)
{
    struct delivery_request_rcpt r = {.original = take(in, "original_recipient")};

    r.recipient = take(in, "recipient");
    r.offset = take_number(in, "offset");
    r.dsn_original = take(in, "dsn_orig_rcpt");
    r.notify = (unsigned)take_number(in, "notify_flags");
    return r;
}

/* ---- written again ---- */

static void write_delivery(struct slice in, struct buf *out)
{
    struct delivery_request m = {.flags = (unsigned)take_number(&in, "flags")};

    assert_true(slice_equal(take(&in, "queue_name"), SLICE("active")));
    m.queue_id = take(&in, "queue_id");
    m.data_offset = take_number(&in, "offset");
    m.content_length = take_number(&in, "size");
    m.nexthop = take(&in, "nexthop");
    m.encoding = take(&in, "encoding");
    m.sendopts = (unsigned)take_number(&in, "smtputf8");
    m.sender = take(&in, "sender");
    m.envelope_id = take(&in, "envelope_id");
    m.ret_flags = (unsigned)take_number(&in, "ret_flags");
    take_times(&in, &m.arrived, &m.activated);
    m.client_name = take(&in, "log_client_name");
    m.client_address = take(&in, "log_client_address");
    m.client_port = take(&in, "log_client_port");
    m.protocol_name = take(&in, "log_protocol_name");
    m.helo_name = take(&in, "log_helo_name");
    m.sasl_method = take(&in, "sasl_method");
    m.sasl_username = take(&in, "sasl_username");
    m.sasl_sender = take(&in, "sasl_sender");
    m.log_ident = take(&in, "log_ident");
    m.rewrite_context = take(&in, "rewrite_context");
    m.rcpt_count = (uint32_t)take_number(&in, "recipient_count");
    take_end(&in);
    delivery_request_put(out, &m, &release_37);
    for (uint32_t i = 0; i < m.rcpt_count; i++) {
        struct delivery_request_rcpt r = take_rcpt(&in);

        take_end(&in);
        delivery_request_put_rcpt(out, &r);
    }
    assert_int_equal(in.len, 0);
}

static void write_rewrite(struct slice in, struct buf *out)
{
    struct slice request = take(&in, "request");

    if (slice_equal(request, SLICE("rewrite"))) {
        assert_true(slice_equal(take(&in, "rule"), SLICE("local")));
        rewrite_put_rewrite(out, take(&in, "address"));
    } else {
        struct slice sender = take(&in, "sender");

        rewrite_put_resolve(out, slice_equal(request, SLICE("verify")), sender,
                            take(&in, "address"));
    }
}

static void write_result(struct slice in, struct buf *out)
{
    struct notice_result r = {.trace_flags = (unsigned)take_number(&in, "flags")};

    r.queue_id = take(&in, "queue_id");
    r.rcpt = take_rcpt(&in);
    r.status = take(&in, "status");
    (void)take(&in, "diag_type");
    (void)take(&in, "diag_text");
    (void)take(&in, "mta_type");
    (void)take(&in, "mta_mname");
    r.action = take(&in, "action");
    r.reason = take(&in, "reason");
    notice_put_result(out, &r);
}

static void write_notice(struct slice in, struct buf *out)
{
    struct notice n = {.command = (enum notice_command)take_number(&in, "nrequest")};

    if (n.command == NOTICE_APPEND) {
        write_result(in, out);
        return;
    }
    n.flags = (unsigned)take_number(&in, "flags");
    assert_true(slice_equal(take(&in, "queue_name"), SLICE("active")));
    n.queue_id = take(&in, "queue_id");
    n.encoding = take(&in, "encoding");
    n.sendopts = (unsigned)take_number(&in, "smtputf8");
    n.sender = take(&in, "sender");
    n.envelope_id = take(&in, "envelope_id");
    n.ret_flags = (unsigned)take_number(&in, "ret_flags");
    if (n.command == NOTICE_VERP) {
        n.verp_delimiters = take(&in, "verp_delimiters");
    }
    notice_put(out, &n, &release_37);
}

static bool is_one_of(const char *service, const char *const *services, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(service, services[i]) == 0) {
            return true;
        }
    }
    return false;
}

static const char *const reporters[] = {"private/bounce", "private/defer", "private/trace"};

struct counts {
    unsigned deliveries, rewrites, notices, hellos, replies, refused;
};

static void write_again(void *arg, const struct dialogue_message *m)
{
    struct counts *n = arg;
    struct buf out;

    if (!m->written) {
        return;
    }
    buf_init(&out, MESSAGE_MAX);
    if (strcmp(m->service, "private/rewrite") == 0) {
        write_rewrite(m->bytes, &out);
        n->rewrites++;
    } else if (is_one_of(m->service, reporters, COUNT(reporters))) {
        write_notice(m->bytes, &out);
        n->notices++;
    } else {
        write_delivery(m->bytes, &out);
        n->deliveries++;
    }
    if (!slice_equal(buf_slice(&out), m->bytes)) {
        fail_msg("%s:%u: written differently", m->file, m->line);
    }
    buf_fini(&out);
}

static void every_request_is_written_byte_for_byte(void **unused)
{
    struct counts n = {0};

    (void)unused;
    dialogues_read(write_again, &n);
    assert_true(n.deliveries > 50 && n.rewrites > 50 && n.notices > 20);
}

/* The recorder counted the bytes, so what is made again of its lines is what was sent. */
static void check_length(void *arg, const struct dialogue_message *m)
{
    unsigned *count = arg;

    if (m->written && m->recorded_len != SIZE_MAX && /* the agent was gone */
        m->bytes.len != m->recorded_len) {
        fail_msg("%s:%u: %zu bytes, %zu were recorded", m->file, m->line, m->bytes.len,
                 m->recorded_len);
    }
    *count += m->written;
}

static void recordings_are_whole(void **unused)
{
    unsigned count = 0;

    (void)unused;
    dialogues_read(check_length, &count);
    assert_true(count > 100);
}

/* The bytes of one recording were kept, too. */
static void the_bytes_of_a_request_are_those_on_the_wire(void **unused)
{
    FILE *f = fopen(TEST_DATA_DIR "/captures/02-two-recipients-one-site.hex", "r");
    struct buf wire, ours;
    char line[256];
    bool is_request = false;

    (void)unused;
    assert_non_null(f);
    buf_init(&wire, MESSAGE_MAX);
    buf_init(&ours, MESSAGE_MAX);
    while (fgets(line, sizeof line, f) != NULL) {
        unsigned byte;

        if (strstr(line, "->") != NULL) {
            is_request = strncmp(line, "qmgr", 4) == 0;
        }
        for (size_t at = 8;
             is_request && at < 56 && sscanf(line, "%*6[0-9a-f]") == 0 && at < strlen(line) &&
             sscanf(line + at, "%2x", &byte) == 1 && line[6] == ' ' && line[7] == ' ';
             at += 3) {
            assert_true(buf_add_byte(&wire, (char)byte));
        }
    }
    assert_int_equal(fclose(f), 0);
    assert_int_equal(buf_len(&wire), 774);
    write_delivery(buf_slice(&wire), &ours);
    assert_true(slice_equal(buf_slice(&wire), buf_slice(&ours)));
    buf_fini(&wire);
    buf_fini(&ours);
}

/* ---- read ---- */

static void read_list(struct counts *n, const struct dialogue_message *m, struct slice list)
{
    struct rewrite_answer answer;
    struct delivery_reply reply;
    int32_t status;

    if (strcmp(m->service, "private/rewrite") == 0) {
        n->hellos += service_hello_is_right(list, "trivial_rewrite_protocol");
        n->replies += rewrite_resolve_parse(list, &answer);
    } else if (is_one_of(m->service, reporters, COUNT(reporters))) {
        n->hellos += service_hello_is_right(list, NOTICE_HELLO);
        n->replies += notice_answer_parse(list, &status);
    } else {
        n->hellos += delivery_hello_is_right(list);
        n->replies += delivery_reply_parse(list, &reply);
    }
}

/* However the bytes arrive. */
static void read_again(void *arg, const struct dialogue_message *m)
{
    struct counts *n = arg;
    struct counts before = *n;
    size_t whole = 0, len;
    struct attributes_scan scan = {0};

    if (m->written) {
        return;
    }
    for (size_t have = 1; have <= m->bytes.len; have++) {
        enum attributes_event event = attributes_scan(&scan, slice_of(m->bytes.ptr, have), &len);

        if (have < m->bytes.len) {
            assert_int_equal(event, ATTRIBUTES_MORE);
        } else if (event == ATTRIBUTES_LIST) {
            whole = len;
        }
    }
    assert_int_equal(whole, m->bytes.len);
    read_list(n, m, m->bytes);
    if (n->hellos + n->replies == before.hellos + before.replies) {
        /* Agents that were made to send another hello, and rubbish. */
        assert_true(strcmp(m->service, "private/xbadhello") == 0 ||
                    strcmp(m->service, "private/xgarbage") == 0);
        n->refused++;
    }
}

static void every_answer_is_read(void **unused)
{
    struct counts n = {0};

    (void)unused;
    dialogues_read(read_again, &n);
    assert_true(n.hellos > 100 && n.replies > 100);
    assert_int_equal(n.refused, 4);
}

/* ---- without recordings ---- */

static void numbers_travel_as_32_bits(void **unused)
{
    static const struct {
        int32_t value;
        const char *want;
    } cases[] = {
        {0, "0"}, {-1, "4294967295"}, {INT32_MIN, "2147483648"}, {INT32_MAX, "2147483647"}};

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct buf out;
        struct slice list;
        int32_t value;

        buf_init(&out, 256);
        attributes_put_int(&out, "n", cases[i].value);
        attributes_end(&out);
        list = buf_slice(&out);
        assert_string_equal(list.ptr + 2, cases[i].want);
        assert_true(attributes_take_int(&list, "n", &value));
        assert_int_equal(value, cases[i].value);
        assert_true(attributes_at_end(list));
        buf_fini(&out);
    }
}

static void a_number_that_is_none_is_refused(void **unused)
{
    static const char *const cases[] = {"", "-1", "+1", "1 ", "4294967296", "0x1", "1e3"};

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct buf out;
        struct slice list;
        int32_t value = 77;

        buf_init(&out, 256);
        attributes_put(&out, "n", slice_string(cases[i]));
        attributes_end(&out);
        list = buf_slice(&out);
        assert_false(attributes_take_int(&list, "n", &value));
        assert_int_equal(value, 77);
        buf_fini(&out);
    }
}

static void a_list_without_end_is_refused_at_its_limit(void **unused)
{
    struct attributes_scan scan = {0};
    char *bytes = calloc(ATTRIBUTES_LIST_MAX + 1, 1);
    size_t len;

    (void)unused;
    assert_non_null(bytes);
    memset(bytes, 'x', ATTRIBUTES_LIST_MAX + 1);
    assert_int_equal(attributes_scan(&scan, slice_of(bytes, ATTRIBUTES_LIST_MAX), &len),
                     ATTRIBUTES_MORE);
    assert_int_equal(attributes_scan(&scan, slice_of(bytes, ATTRIBUTES_LIST_MAX + 1), &len),
                     ATTRIBUTES_BAD);
    free(bytes);
}

static void a_reply_has_these_attributes_and_no_others(void **unused)
{
    static const char *const names[] = {"status",    "diag_type", "diag_text", "mta_type",
                                        "mta_mname", "action",    "reason"};
    struct delivery_reply reply;

    (void)unused;
    for (size_t missing = 0; missing <= COUNT(names); missing++) {
        struct buf out;

        buf_init(&out, 1024);
        for (size_t i = 0; i < COUNT(names); i++) {
            if (i != missing) {
                attributes_put(&out, names[i], SLICE(""));
            }
        }
        attributes_put_int(&out, "status", -1);
        attributes_end(&out);
        assert_int_equal(delivery_reply_parse(buf_slice(&out), &reply), missing == COUNT(names));
        buf_fini(&out);
    }
    assert_true(reply.deferred);
    assert_int_equal(reply.status.len, 0);
}

static void a_bad_status_of_a_reply_is_made_a_good_one(void **unused)
{
    struct delivery_reply reply;
    struct buf out;

    (void)unused;
    buf_init(&out, 1024);
    attributes_put(&out, "status", SLICE("broken"));
    for (size_t i = 0; i < 5; i++) {
        static const char *const names[] = {"diag_type", "diag_text", "mta_type", "mta_mname",
                                            "action"};
        attributes_put(&out, names[i], SLICE(""));
    }
    attributes_put(&out, "reason", SLICE(""));
    attributes_put_int(&out, "status", -1);
    attributes_end(&out);
    assert_true(delivery_reply_parse(buf_slice(&out), &reply));
    assert_true(slice_equal(reply.status, SLICE("4.0.0")));
    assert_true(slice_equal(reply.reason, SLICE("unknown error")));
    buf_fini(&out);
}

static void an_address_that_fails_goes_to_error_or_retry(void **unused)
{
    static const struct {
        int32_t flags;
        const char *transport;
        unsigned classes;
    } cases[] = {{4096, "smtp", 4096},
                 {256, "smtp", 256},
                 {4 | 256, "error", 0},
                 {8 | 4, "retry", 0},
                 {2 | 4096, "smtp", 4096}};

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct rewrite_answer answer;
        struct buf out;

        buf_init(&out, 1024);
        attributes_put_int(&out, "flags", 1);
        attributes_put(&out, "transport", SLICE("smtp"));
        attributes_put(&out, "nexthop", SLICE("host"));
        attributes_put(&out, "recipient", SLICE("a@b"));
        attributes_put_int(&out, "flags", cases[i].flags);
        attributes_end(&out);
        assert_true(rewrite_resolve_parse(buf_slice(&out), &answer));
        assert_true(answer.disconnect);
        assert_true(slice_equal(answer.transport, slice_string(cases[i].transport)));
        assert_int_equal(answer.classes, cases[i].classes);
        buf_fini(&out);
    }
}

static void releases_differ_in_two_things(void **unused)
{
    static const struct {
        const char *version;
        bool greet, sendopts;
    } cases[] = {{"3.5.0", false, false},       {"3.5.25", false, false}, {"3.6.0", true, false},
                 {"3.7.11", true, false},       {"3.9.14", true, false},  {"3.10.0", true, true},
                 {"3.12-20260821", true, true}, {"4.0.1", true, true},    {"", true, true}};

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct postfix_release r = postfix_release_of(slice_string(cases[i].version));

        assert_int_equal(r.servers_greet, cases[i].greet);
        assert_int_equal(r.says_sendopts, cases[i].sendopts);
    }
}

static void agents_of_all_releases_greet(void **unused)
{
    (void)unused;
    assert_true(delivery_hello_is_right(SLICE("protocol\0delivery_request_protocol\0\0")));
    assert_false(delivery_hello_is_right(SLICE("protocol\0delivery_status_protocol\0\0")));
    assert_true(delivery_hello_is_right(slice_of("status\0"
                                                 "0\0",
                                                 10)));
    assert_false(delivery_hello_is_right(slice_of("status\0"
                                                  "1\0",
                                                  10)));
}

static void verp_puts_the_recipient_into_the_sender(void **unused)
{
    static const struct {
        const char *sender, *delimiters, *recipient, *want;
    } cases[] = {
        {"list@good.example", "+=", "y1@hard.example", "list+y1=hard.example@good.example"},
        {"list@good.example", "-=", "\"a@b\"@c.test", "list-\"a@b\"=c.test@good.example"},
        {"list", "+=", "local", "list+local="},
    };

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct buf out;

        buf_init(&out, 1024);
        delivery_put_verp_sender(&out, slice_string(cases[i].sender),
                                 slice_string(cases[i].delimiters),
                                 slice_string(cases[i].recipient));
        assert_string_equal(buf_cstr(&out), cases[i].want);
        buf_fini(&out);
    }
}

UNIT_MAIN(cmocka_unit_test(recordings_are_whole),
          cmocka_unit_test(every_request_is_written_byte_for_byte),
          cmocka_unit_test(the_bytes_of_a_request_are_those_on_the_wire),
          cmocka_unit_test(every_answer_is_read), cmocka_unit_test(numbers_travel_as_32_bits),
          cmocka_unit_test(a_number_that_is_none_is_refused),
          cmocka_unit_test(a_list_without_end_is_refused_at_its_limit),
          cmocka_unit_test(a_reply_has_these_attributes_and_no_others),
          cmocka_unit_test(a_bad_status_of_a_reply_is_made_a_good_one),
          cmocka_unit_test(an_address_that_fails_goes_to_error_or_retry),
          cmocka_unit_test(releases_differ_in_two_things),
          cmocka_unit_test(agents_of_all_releases_greet),
          cmocka_unit_test(verp_puts_the_recipient_into_the_sender))
