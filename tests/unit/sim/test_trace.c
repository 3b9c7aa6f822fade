/*
 * Mail logs: arrivals, recipients and delivery times out of lines of which any may be anything.
 */
#include "trace.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "trace_line.h"
#include "unit.h"

static struct trace *read_lines(const char *const *lines, size_t count)
{
    struct trace_reader *r = trace_reader_new();

    for (size_t i = 0; i < count; i++) {
        trace_reader_line(r, slice_string(lines[i]));
    }
    return trace_reader_finish(r);
}

static const char *domain_of(const struct trace *t, size_t message, uint32_t rcpt)
{
    return t->domains[t->rcpts[t->messages[message].first_rcpt + rcpt]]->name;
}

static void a_message_is_put_together(void **unused)
{
    static const char *const lines[] = {
        "Nov 21 08:00:01 mx postfix/smtpd[9]: AA1: client=unknown[127.0.0.1]",
        "Nov 21 08:00:01 mx postfix/qmgr[1]: AA1: from=<a@b.example>, size=4301, nrcpt=2 (queue "
        "active)",
        "Nov 21 08:00:03 mx postfix/qmgr[1]: BB2: from=<>, size=10, nrcpt=1 (queue active)",
        "Nov 21 08:00:03 mx postfix/smtp[2]: AA1: to=<c@D.example>, orig_to=<x@y.example>, "
        "relay=mx.d.example[192.0.2.1]:25, delay=2.3, delays=0.5/0.1/0.7/1, dsn=2.0.0, status=sent "
        "(250 ok)",
        "Nov 21 08:00:04 mx postfix/smtp[2]: BB2: to=<z@e.example>, relay=none, delay=1, "
        "delays=0/0/1/0, dsn=4.4.1, status=deferred (connection refused)",
        "Nov 21 08:00:05 mx postfix/smtp[2]: AA1: to=<f@e.example>, relay=e[192.0.2.2]:25, "
        "delay=4, delays=0/0/0/0.25, dsn=5.1.1, status=bounced (no such user)",
        "Nov 21 08:00:05 mx postfix/qmgr[1]: AA1: removed",
        "Nov 21 08:05:05 mx postfix/qmgr[1]: BB2: from=<>, size=10, nrcpt=1 (queue active)",
        "Nov 21 08:05:06 mx postfix/smtp[2]: BB2: to=<z@e.example>, relay=e[192.0.2.2]:25, "
        "delay=303, delays=302/0/0.5/0.125, dsn=2.0.0, status=sent (250 2.0.0 ok)",
        "Nov 21 08:05:06 mx postfix/qmgr[1]: BB2: removed",
        /* The same id again is another message. */
        "Nov 21 08:06:00 mx postfix/qmgr[1]: AA1: from=<>, size=1, nrcpt=1 (queue active)",
        "Nov 21 08:06:01 mx postfix/qmgr[1]: AA1: from=<>, status=expired, returned to sender",
    };
    struct trace *t = read_lines(lines, COUNT(lines));

    (void)unused;
    assert_int_equal(t->lines, COUNT(lines));
    assert_int_equal(t->understood, COUNT(lines) - 1);
    assert_int_equal(t->message_count, 2);
    assert_int_equal(t->incomplete, 1);
    assert_int_equal(t->rcpt_count, 3);
    assert_int_equal(t->messages[0].at_us, 0);
    assert_int_equal(t->messages[0].size_bytes, 4301);
    assert_int_equal(t->messages[0].rcpt_count, 2);
    assert_string_equal(domain_of(t, 0, 0), "d.example");
    assert_string_equal(domain_of(t, 0, 1), "e.example");
    assert_int_equal(t->messages[1].at_us, 2000000);
    assert_int_equal(t->messages[1].rcpt_count, 1);
    assert_string_equal(domain_of(t, 1, 0), "e.example");
    /* Connection and transmission of what was sent. */
    assert_int_equal(t->domains[0]->sample_count, 1);
    assert_int_equal(t->domains[0]->samples[0], 1700000);
    assert_int_equal(t->domains[1]->sample_count, 1);
    assert_int_equal(t->domains[1]->samples[0], 625000);
    trace_free(t);
}

static int64_t time_of(const char *date, struct trace_clock *clock)
{
    struct trace_line l;
    char line[256];

    snprintf(line, sizeof line, "%s mx postfix/qmgr[1]: A: removed", date);
    trace_line_read(slice_string(line), clock, &l);
    assert_int_equal(l.kind, TRACE_LINE_GONE);
    return l.at_us;
}

static void dates_are_read_in_both_forms(void **unused)
{
    struct trace_clock clock = {0};

    (void)unused;
    assert_int_equal(time_of("1970-01-01T00:00:00Z", &clock), 0);
    assert_int_equal(time_of("2026-11-21T08:00:01.25+01:00", &clock), 1795244401250000);
    assert_int_equal(time_of("2024-02-29 23:59:59-0030", &clock), 1709252999000000);
    assert_int_equal(time_of("Jan  1 00:00:00", &clock), 0);
    assert_int_equal(time_of("Jan 21 08:00:01", &clock),
                     (INT64_C(20) * 86400 + 8 * 3600 + 1) * 1000000);
}

/* Dates of syslog have no year: the order tells when one ends, and a day that it is a leap year. */
static void years_are_guessed_from_the_order(void **unused)
{
    static const int64_t day = INT64_C(86400000000);
    struct trace_clock clock = {0};
    int64_t december = time_of("Dec 31 00:00:00", &clock);

    (void)unused;
    assert_int_equal(time_of("Jan  1 00:00:00", &clock) - december, day);
    /* Out of order by a little, not by a year. */
    assert_int_equal(time_of("Dec 31 00:00:00", &(struct trace_clock){.last_month = 12}) -
                         time_of("Nov 30 00:00:00", &(struct trace_clock){.last_month = 12}),
                     31 * day);
    clock = (struct trace_clock){0};
    int64_t leap = time_of("Feb 29 00:00:00", &clock);
    assert_int_equal(time_of("Mar  1 00:00:00", &clock) - leap, day);
    assert_int_equal(time_of("Apr  1 00:00:00", &clock) - leap, 32 * day);
}

static void a_log_tells_classes_before_mail_is_active(void **unused)
{
    static const char *const lines[] = {
        "Nov 21 08:00:01 mx postfix/qmgr[1]: AA1: class=bulk (List-Id)",
        "Nov 21 08:00:01 mx postfix/qmgr[1]: AA1: from=<n-1@b>, size=1, nrcpt=1 (queue active)",
        "Nov 21 08:00:01 mx postfix/qmgr[1]: AA2: from=<n@b>, size=1, nrcpt=1 (queue active)",
        "Nov 21 08:00:01 mx postfix/qmgr[1]: AA3: class=reset (class_header)",
        "Nov 21 08:00:01 mx postfix/smtp[1]: AA3: to=<c@d>, status=sent (it is not active)",
        "Nov 21 08:00:02 mx postfix/qmgr[1]: AA3: from=<>, size=1, nrcpt=1 (queue active)",
        "Nov 21 08:00:03 mx postfix/smtp[1]: AA1: to=<c@d>, status=sent (ok)",
        "Nov 21 08:00:03 mx postfix/smtp[1]: AA2: to=<c@d>, status=sent (ok)",
        "Nov 21 08:00:03 mx postfix/smtp[1]: AA3: to=<c@d>, status=sent (ok)",
        "Nov 21 08:00:04 mx postfix/qmgr[1]: AA4: class=bulk (of a message that does not come)",
    };
    struct trace *t = read_lines(lines, COUNT(lines));

    (void)unused;
    assert_int_equal(t->understood, COUNT(lines));
    assert_int_equal(t->message_count, 3);
    assert_int_equal(t->class_count, 2);
    assert_string_equal(t->classes[0], "bulk");
    assert_string_equal(t->classes[1], "reset");
    assert_int_equal(t->messages[0].class, 1);
    assert_true(t->messages[0].marked);
    assert_int_equal(t->messages[1].class, 0);
    assert_int_equal(t->messages[2].class, 2);
    assert_false(t->messages[2].marked);
    assert_int_equal(t->messages[0].group, t->messages[1].group); /* one sender */
    trace_free(t);
}

static void what_is_not_understood_is_passed_over(void **unused)
{
    static const char *const lines[] = {
        "Nov 21 08:00:01 mx postfix/qmgr[1]: AA1: class=",
        "Nov 21 08:00:01 mx postfix/qmgr[1]: AA1: class=bulk",
        "Nov 21 08:00:01 mx postfix/qmgr[1]: AA1: class=A/B (List-Id)",
        "",
        " ",
        "Nov",
        "Nov 21",
        "Nov 21 08:00:01",
        "Nov 21 08:00:01 mx",
        "Nov 32 08:00:01 mx postfix/qmgr[1]: AA1: removed",
        "Nov 21 24:00:01 mx postfix/qmgr[1]: AA1: removed",
        "Foo 21 08:00:01 mx postfix/qmgr[1]: AA1: removed",
        "2026-13-21T08:00:01 mx postfix/qmgr[1]: AA1: removed",
        "2026-11-21T08:00:01+9 mx postfix/qmgr[1]: AA1: removed",
        "Nov 21 08:00:01 mx postfix/qmgr[1]: AA1: removed by hand",
        "Nov 21 08:00:01 mx postfix/qmgr[1]: : removed",
        "Nov 21 08:00:01 mx postfix/qmgr[1]: A-1: removed",
        "Nov 21 08:00:01 mx postfix/qmgr[1]: AA1: from=<a@b>, size=x, nrcpt=1",
        "Nov 21 08:00:01 mx postfix/qmgr[1]: AA1: from=<a@b>",
        "Nov 21 08:00:01 mx postfix/qmgr[1]: AA1: from=<a@b>, size=99999999999999999999, nrcpt=1",
        "Nov 21 08:00:01 mx postfix/smtp[1]: AA1: to=<>, status=sent (ok)",
        "Nov 21 08:00:01 mx postfix/smtp[1]: AA1: to=<a@>, status=sent (ok)",
        "Nov 21 08:00:01 mx postfix/smtp[1]: AA1: to=<a@b/c>, status=sent (ok)",
        "Nov 21 08:00:01 mx postfix/smtp[1]: AA1: to=<a@b>, status=lost (ok)",
        "Nov 21 08:00:01 mx postfix/smtp[1]: AA1: to=<a@b>",
        "\xff\xfe\x01",
    };
    struct trace *t = read_lines(lines, COUNT(lines));

    (void)unused;
    assert_int_equal(t->lines, COUNT(lines));
    assert_int_equal(t->understood, 0);
    assert_int_equal(t->message_count, 0);
    trace_free(t);
}

/* NUL is in no set of characters. */
static void a_nul_byte_is_no_part_of_a_domain(void **unused)
{
    struct trace_clock clock = {0};
    struct trace_line l;

    (void)unused;
    trace_line_read(SLICE("Nov 21 08:00:01 mx postfix/smtp[1]: AA1: to=<a@b\0c>, status=sent (ok)"),
                    &clock, &l);
    assert_int_equal(l.kind, TRACE_LINE_OTHER);
}

static void odd_delays_give_no_sample(void **unused)
{
    static const char *const delays[] = {
        "", "1/2/3", "1/2/3/4/5", "1/2/-3/4", "1/2/3/x", "1/2/3/4.x", "1/2/999999/4", "1/2/3/",
    };
    struct trace_reader *r = trace_reader_new();
    struct trace *t;

    (void)unused;
    trace_reader_line(
        r, SLICE("Nov 21 08:00:00 mx postfix/qmgr[1]: A: from=<>, size=1, nrcpt=9 (queue active)"));
    for (size_t i = 0; i < COUNT(delays); i++) {
        char line[256];

        snprintf(
            line, sizeof line,
            "Nov 21 08:00:01 mx postfix/smtp[1]: A: to=<u%zu@b.example>, delays=%s, dsn=2.0.0, "
            "status=sent (ok)",
            i, delays[i]);
        trace_reader_line(r, slice_string(line));
    }
    t = trace_reader_finish(r);
    assert_int_equal(t->messages[0].rcpt_count, COUNT(delays));
    assert_int_equal(t->domains[0]->sample_count, 0);
    trace_free(t);
}

static void samples_are_bounded(void **unused)
{
    struct trace_reader *r = trace_reader_new();
    struct trace *t;
    bool late = false;

    (void)unused;
    trace_reader_line(
        r, SLICE("Nov 21 08:00:00 mx postfix/qmgr[1]: A: from=<>, size=1, nrcpt=9 (queue active)"));
    for (int i = 0; i < 10 * TRACE_SAMPLES_MAX; i++) {
        char line[256];

        snprintf(line, sizeof line,
                 "Nov 21 08:00:01 mx postfix/smtp[1]: A: to=<u%d@b.example>, delays=0/0/0/%d, "
                 "dsn=2.0.0, status=sent (ok)",
                 i, i);
        trace_reader_line(r, slice_string(line));
    }
    t = trace_reader_finish(r);
    assert_int_equal(t->domains[0]->sample_count, TRACE_SAMPLES_MAX);
    assert_int_equal(t->domains[0]->deliveries, 10 * TRACE_SAMPLES_MAX);
    for (int i = 0; i < TRACE_SAMPLES_MAX; i++) {
        late |= t->domains[0]->samples[i] >= 5 * TRACE_SAMPLES_MAX * INT64_C(1000000);
    }
    assert_true(late); /* the choice is of all, not of the first ones */
    trace_free(t);
}

/* Lines of every length around the buffer's and the limit's. */
static void files_are_read_whole(void **unused)
{
    char path[] = "/tmp/sluice-trace-XXXXXX";
    int fd = mkstemp(path);
    FILE *f = fdopen(fd, "w");
    struct buf error;
    struct trace *t;

    (void)unused;
    assert_non_null(f);
    for (int i = 0; i < 3000; i++) {
        fprintf(f, "Nov 21 08:00:00 mx postfix/qmgr[1]: A%d: from=<>, size=1, nrcpt=1 (q)\n", i);
        fprintf(f, "Nov 21 08:00:00 mx postfix/smtp[1]: A%d: to=<u@b.example>, status=sent (", i);
        fprintf(f, "%*s)\n", i * 7 % (2 * TRACE_LINE_MAX), "x");
    }
    fprintf(f, "Nov 21 08:00:00 mx postfix/qmgr[1]: LAST: from=<>, size=1, nrcpt=1 (q)\n"
               "Nov 21 08:00:00 mx postfix/smtp[1]: LAST: to=<u@b.example>, status=sent (ok)");
    assert_int_equal(fclose(f), 0);
    buf_init(&error, 4096);
    t = trace_load(path, &error);
    assert_non_null(t);
    assert_int_equal(t->message_count, 3001);
    assert_int_equal(t->rcpt_count, 3001);
    trace_free(t);
    assert_int_equal(unlink(path), 0);
    assert_null(trace_load(path, &error));
    assert_non_null(strstr(buf_cstr(&error), "No such file"));
    buf_fini(&error);
}

/* ---- events --------------------------------------------------------------------------------- */

#define EVENT(time, event, id, rest)                                                               \
    "{\"number\":1,\"time\":" time ",\"event\":\"" event "\",\"queue_id\":\"" id                   \
    "\",\"sender\":\"a@b\"," rest "}"
#define TRIED(rcpt, status, delays)                                                                \
    "\"recipient\":\"" rcpt "\",\"class\":\"personal\",\"status\":\"" status "\","                 \
    "\"delays\":" delays
#define SECOND "{\"queued\":0,\"active\":0,\"setup\":0.5,\"transmit\":0.5}"

static void events_tell_what_became_of_recipients(void **unused)
{
    static const char *const lines[] = {
        EVENT("1000", "received", "A", "\"class\":\"bulk\",\"recipients\":2,\"size\":77"),
        EVENT("1001", "received", "B", "\"recipient\":\"x@C.example\",\"recipients\":1,\"size\":5"),
        EVENT("1002", "delivered", "A", TRIED("u@c.example", "2.0.0", SECOND)),
        EVENT("1003", "deferred", "A", TRIED("v@c.example", "4.2.0", SECOND)),
        EVENT("1004", "bounced", "B", TRIED("x@C.example", "5.1.1", SECOND)),
        EVENT("1014", "delivered", "A", TRIED("v@c.example", "2.0.0", SECOND)),
        EVENT("1015", "received", "D", "\"recipient\":\"y@e.example\",\"recipients\":1,\"size\":5"),
        EVENT("1016", "received", "E", "\"recipient\":\"z@e.example\",\"recipients\":1,\"size\":5"),
        EVENT("1017", "deferred", "E", TRIED("z@e.example", "4.4.1", SECOND)),
        /* The site was known to be dead. */
        EVENT("1018", "deferred", "D", "\"recipient\":\"y@e.example\",\"status\":\"4.4.1\""),
        EVENT("1050", "delivered", "E", TRIED("z@e.example", "2.0.0", SECOND)),
        EVENT("1060", "deferred", "D", TRIED("y@e.example", "4.7.1", SECOND)),
    };
    struct trace *t = read_lines(lines, COUNT(lines));
    const struct trace_message *a = &t->messages[0], *b = &t->messages[1];

    (void)unused;
    assert_int_equal(t->understood, COUNT(lines));
    assert_int_equal(t->message_count, 4);
    assert_int_equal(t->first_us, INT64_C(1000000000));
    assert_int_equal(t->rcpt_count, 5);
    assert_int_equal(a->rcpt_count, 2);
    assert_int_equal(a->size_bytes, 77);
    assert_string_equal(t->classes[a->class - 1], "bulk");
    assert_false(a->marked);
    assert_int_equal(b->class, 0);
    assert_string_equal(domain_of(t, 1, 0), "c.example");
    /* The first was taken at once, the second half way between its two attempts. */
    assert_int_equal(t->outcomes[a->first_rcpt].not_before_us, 0);
    assert_int_equal(t->outcomes[a->first_rcpt + 1].not_before_us, 8000000);
    assert_false(t->outcomes[a->first_rcpt + 1].bounced);
    assert_true(t->outcomes[b->first_rcpt].bounced);
    /* E's site was down from the beginning of its attempt until half way to the next. */
    assert_int_equal(t->domains[0]->outage_count, 0);
    assert_int_equal(t->domains[1]->outage_count, 1);
    assert_int_equal(t->domains[1]->outages[0].from_us, 16000000);
    assert_int_equal(t->domains[1]->outages[0].until_us, 33000000);
    assert_false(t->domains[1]->outages[0].hangs);
    /* D is deferred still. */
    assert_int_equal(t->outcomes[t->messages[2].first_rcpt].not_before_us, US_FOREVER);
    assert_int_equal(t->outcomes[t->messages[3].first_rcpt].not_before_us, 0);
    assert_int_equal(t->domains[0]->sample_count, 2);
    assert_int_equal(t->domains[0]->samples[0], 1000000);
    trace_free(t);
}

static void events_that_are_none_are_passed_over(void **unused)
{
    static const char *const lines[] = {
        "{",
        "{}",
        "{\"event\":\"received\"}",
        "{\"event\":\"received\",\"time\":\"1\",\"queue_id\":\"A\"}",
        "{\"event\":\"received\",\"time\":-1,\"queue_id\":\"A\",\"size\":1}",
        "{\"event\":\"received\",\"time\":1e300,\"queue_id\":\"A\",\"size\":1}",
        "{\"event\":\"received\",\"time\":1,\"queue_id\":\"A\",\"size\":-1}",
        "{\"event\":\"received\",\"time\":1,\"queue_id\":\"\",\"size\":1}",
        "{\"event\":\"received\",\"time\":1,\"queue_id\":7,\"size\":1}",
        "{\"event\":\"received\",\"time\":1,\"queue_id\":\"A\",\"size\":1,\"class\":\"no class\"}",
        "{\"event\":\"delivered\",\"time\":1,\"queue_id\":\"A\",\"recipient\":\"no domain\"}",
        "{\"event\":\"delivered\",\"time\":1,\"queue_id\":\"A\",\"recipient\":\"a@b/c\"}",
        "{\"event\":\"delivered\",\"time\":1,\"queue_id\":\"A\",\"recipient\":\"a@b\\u0000c\"}",
        "{\"event\":[\"delivered\"],\"time\":1,\"queue_id\":\"A\",\"recipient\":{}}",
        "{\"event\":\"window\",\"time\":1,\"destination\":\"smtp/a\"}",
    };
    struct trace *t = read_lines(lines, COUNT(lines));

    (void)unused;
    assert_int_equal(t->lines, COUNT(lines));
    assert_int_equal(t->understood, 0);
    assert_int_equal(t->message_count, 0);
    trace_free(t);
}

UNIT_MAIN(cmocka_unit_test(events_tell_what_became_of_recipients),
          cmocka_unit_test(events_that_are_none_are_passed_over),
          cmocka_unit_test(a_message_is_put_together),
          cmocka_unit_test(dates_are_read_in_both_forms),
          cmocka_unit_test(years_are_guessed_from_the_order),
          cmocka_unit_test(a_log_tells_classes_before_mail_is_active),
          cmocka_unit_test(what_is_not_understood_is_passed_over),
          cmocka_unit_test(a_nul_byte_is_no_part_of_a_domain),
          cmocka_unit_test(odd_delays_give_no_sample), cmocka_unit_test(samples_are_bounded),
          cmocka_unit_test(files_are_read_whole))
