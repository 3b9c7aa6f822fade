/* Threads come in order of name, in pages, and are written by ring. */
#include "unit.h"

#include <stdio.h>

#include "mailq_report.h"

#define RINGS 2

/* Thread `i` is of ring i % RINGS; so many, so that not all of them can be kept. */
static json_t *page(size_t from, size_t to, long only_ring, bool others)
{
    json_t *threads = json_array(), *rings = json_array(), *answer;

    for (int i = 0; i < RINGS; i++) {
        char name[20];

        assert_true(snprintf(name, sizeof name, "chan%d", i) > 0);
        json_array_append_new(
            rings, json_pack("{s:s, s:s, s:i, s:s, s:s, s:i, s:i, s:i}", "transport", name, "host",
                             "", "clause", i + 1, "clause_channel", name, "clause_host", "*",
                             "ring_limit", 20, "feed_limit", 150, "thread_limit", 1));
    }
    if (others) {
        json_array_append_new(rings,
                              json_pack("{s:s, s:s, s:i, s:s, s:s, s:i, s:i}", "transport", "rest",
                                        "host", "", "clause", 9, "clause_channel", "rest",
                                        "clause_host", "x*", "agents", 2, "idle", 2));
    }
    for (size_t i = from; i < to; i++) {
        char channel[20], host[40];

        if (only_ring >= 0 && (long)(i % RINGS) != only_ring) {
            continue;
        }
        assert_true(snprintf(channel, sizeof channel, "chan%zu", i % RINGS) > 0);
        assert_true(snprintf(host, sizeof host, "host%06zu.example.org", i) > 0);
        json_array_append_new(threads, json_pack("{s:s, s:s, s:i, s:i, s:i, s:i, s:f, s:f}",
                                                 "transport", channel, "nexthop", host, "ring",
                                                 (int)(i % RINGS), "messages", 1, "recipients", 2,
                                                 "attempts", 3, "wait", 5.5, "oldest_age", 61.0));
    }
    answer = json_pack("{s:o, s:o}", "threads", threads, "rings", rings);
    assert_non_null(answer);
    return answer;
}

static void give(struct mailq_report *r, size_t count, long only_ring, struct buf *out)
{
    for (size_t at = 0; at < count; at += 1000) {
        size_t end = at + 1000 < count ? at + 1000 : count;
        json_t *answer = page(at, end, only_ring, end == count);

        mailq_report_page(r, answer, end == count, out);
        json_decref(answer);
    }
}

/* Writes all; returns how often a ring was asked for again. */
static size_t write_all(struct mailq_report *r, size_t count, struct buf *out)
{
    const json_t *ask;
    size_t asked = 0;

    while (mailq_report_next(r, out, &ask)) {
        if (ask != NULL) {
            give(r, count, (long)json_integer_value(json_object_get(ask, "clause")) - 1, out);
            asked++;
        }
    }
    return asked;
}

static void threads_are_written_by_ring(void **unused)
{
    struct mailq_report *r = mailq_report_new(MAILQ_REPORT_THREADS);
    struct mailq_totals sums = {0};
    struct buf out;

    (void)unused;
    buf_init(&out, 10000);
    give(r, 3, -1, &out);
    assert_int_equal(write_all(r, 3, &out), 0);
    assert_string_equal(
        buf_cstr(&out),
        "chan0/*/0\n"
        "    chan0/host000000.example.org/0 N=1   R=2   A=3  W=5s QA=1m1s\n"
        "    chan0/host000002.example.org/0 N=1   R=2   A=3  W=5s QA=1m1s\n"
        "\tThreads:    2 Msgs:     2 Procs:   0 Idle:   0 Plim:  20 Flim: 150 Tlim: 1\n"
        "chan1/*/0\n"
        "    chan1/host000001.example.org/0 N=1   R=2   A=3  W=5s QA=1m1s\n"
        "\tThreads:    1 Msgs:     1 Procs:   0 Idle:   0 Plim:  20 Flim: 150 Tlim: 1\n"
        "rest/x*/0\n"
        "\tThreads:    0 Msgs:     0 Procs:   2 Idle:   2 Plim:   0 Flim:   0 Tlim: 0\n");
    mailq_report_sums(r, &sums);
    assert_int_equal(sums.threads, 3);
    assert_int_equal(sums.vertices, 3);
    assert_int_equal(sums.rcpts_stored, 6);
    assert_int_equal(sums.agents, 2);
    assert_int_equal(sums.idle, 2);
    mailq_report_free(r);
    buf_fini(&out);
}

static size_t lines_of(struct slice text)
{
    size_t count = 0;

    for (size_t i = 0; i < text.len; i++) {
        count += text.ptr[i] == '\n';
    }
    return count;
}

static void what_is_too_much_to_keep_is_asked_for_again(void **unused)
{
    const size_t count = 120000; /* lines of 60 bytes and more: twice MAILQ_REPORT_MAX nearly */
    struct mailq_report *r = mailq_report_new(MAILQ_REPORT_FIELDS);
    struct buf out;

    (void)unused;
    buf_init(&out, 100000000);
    give(r, count, -1, &out);
    assert_int_equal(buf_len(&out), 0);
    assert_in_range(write_all(r, count, &out), 1, RINGS);
    assert_int_equal(lines_of(buf_slice(&out)), count);
    assert_true(slice_starts(buf_slice(&out), SLICE("chan0\thost000000.example.org\tN=1")));
    mailq_report_free(r);
    buf_fini(&out);
}

UNIT_MAIN(cmocka_unit_test(threads_are_written_by_ring),
          cmocka_unit_test(what_is_too_much_to_keep_is_asked_for_again))
