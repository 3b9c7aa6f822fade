/*
 * The recorded conversations of real agents are held again: what the agent said goes in, work is
 * given as the recording has it, and every line to the agent must come when it came there.
 */
#include "unit.h"

#include <stdio.h>
#include <string.h>

#include "capture.h"
#include "ta.h"

#define TEXT_MAX 1000000

/* "TIME S: LINE" or "TIME T: LINE", with "\t", "\r", "\n" and "\xNN" written out. */
static bool recorded_line(struct slice line, char *ret_side, struct buf *ret_text)
{
    size_t at = slice_find(line, ' ');

    if (at == 0 || !ascii_is_digit(line.ptr[0]) || at + 4 > line.len || line.ptr[at + 2] != ':') {
        return false;
    }
    *ret_side = line.ptr[at + 1];
    buf_clear(ret_text);
    capture_unescape(slice_skip(line, at + 4), ret_text);
    return *ret_side == 'S' || *ret_side == 'T';
}

struct play {
    struct ta ta;
    struct buf in;
    bool open;
    size_t lines, results, resyncs, comments;
};

/* Let the engine go on; results that stop a thread stop it. Returns what it waits for. */
static struct ta_event go_on(struct play *p)
{
    for (;;) {
        struct ta_event event;

        ta_next(&p->ta, &p->in, &event);
        switch (event.type) {
        case TA_RESULT:
            p->results++;
            assert_int_not_equal(event.status, TA_UNKNOWN);
            if (event.status == TA_DEFERALL || event.status == TA_RETRYAT) {
                ta_stop_feeding(&p->ta);
            }
            break;
        case TA_RESYNC:
            p->resyncs++;
            break;
        case TA_COMMENT:
            p->comments++;
            break;
        case TA_HUNGRY:
        case TA_REST:
            break;
        default:
            assert_int_not_equal(event.type, TA_MALFORMED);
            return event;
        }
    }
}

static void expect_output(struct play *p, struct slice want)
{
    struct slice got = buf_slice(&p->ta.output);

    assert_int_equal(got.len, want.len + 1);
    assert_memory_equal(got.ptr, want.ptr, want.len);
    buf_clear(&p->ta.output);
}

/* The scheduler said `line` there: bring the engine to say it. */
static void scheduler_says(struct play *p, struct slice line)
{
    struct ta_event event = go_on(p);
    struct ta_order order;

    ta_parse_order(line, &order);
    switch (order.type) {
    case TA_ORDER_JOB:
        if (event.type == TA_NEED_INPUT) {
            assert_true(ta_is_idle(&p->ta));
        }
        ta_job(&p->ta, order.path, order.host);
        break;
    case TA_ORDER_IDLE:
        while (event.type == TA_FEED) {
            ta_no_job(&p->ta);
            event = go_on(p);
        }
        assert_int_equal(event.type, TA_DETACH);
        ta_idle(&p->ta);
        break;
    case TA_ORDER_END:
        ta_end(&p->ta);
        break;
    }
    expect_output(p, line);
    p->lines++;
}

static void end_play(struct play *p, size_t *lines, size_t *results)
{
    if (p->open) {
        *lines += p->lines;
        *results += p->results;
        ta_fini(&p->ta);
        buf_fini(&p->in);
    }
    *p = (struct play){0};
}

static void play_file(const char *path, size_t want_lines, size_t want_results)
{
    struct buf text, line;
    struct slice rest;
    struct play p = {0};
    size_t lines = 0, results = 0;

    buf_init(&text, TEXT_MAX);
    buf_init(&line, TEXT_MAX);
    capture_read(path, &text);
    rest = buf_slice(&text);
    while (rest.ptr != NULL) {
        struct slice recorded = slice_cut(&rest, '\n');
        char side = '\0';

        if (slice_starts(recorded, SLICE("# argv="))) {
            bool host_bound = memmem(recorded.ptr, recorded.len, "'fkh'", 5) != NULL;

            end_play(&p, &lines, &results);
            ta_init(&p.ta, host_bound, 150);
            buf_init(&p.in, TEXT_MAX);
            p.open = true;
        } else if (recorded.len == 0) {
            end_play(&p, &lines, &results);
        } else if (p.open && recorded_line(recorded, &side, &line)) {
            if (slice_starts(buf_slice(&line), SLICE("<"))) {
                continue; /* ends of streams and of processes */
            }
            if (side == 'S') {
                scheduler_says(&p, buf_slice(&line));
            } else {
                assert_true(buf_add(&p.in, buf_slice(&line)) && buf_add_byte(&p.in, '\n'));
            }
        }
    }
    end_play(&p, &lines, &results);
    assert_int_equal(lines, want_lines);
    assert_int_equal(results, want_results);
    buf_fini(&text);
    buf_fini(&line);
}

static void recorded_agents(void **unused)
{
    (void)unused;
    play_file(TEST_DATA_DIR "/03-ta-protocol-overfeed-maxthr-host.txt", 19, 13);
    play_file(TEST_DATA_DIR "/01-ta-protocol-smtp.txt", 25, 15);
}

/* ---- batches -------------------------------------------------------------------------------- */

static void say(struct buf *in, const char *text)
{
    assert_true(buf_add_string(in, text));
}

/* What comes after the answers. */
static enum ta_event_type next(struct ta *ta, struct buf *in)
{
    struct ta_event event;

    do {
        ta_next(ta, in, &event);
    } while (event.type == TA_HUNGRY);
    return event.type;
}

static size_t feed_batch(struct ta *ta, struct buf *in, size_t left)
{
    size_t fed = 0;

    while (next(ta, in) == TA_FEED) {
        if (fed == left) {
            ta_no_job(ta);
        } else {
            ta_job(ta, SLICE("1"), SLICE("h"));
            fed++;
        }
    }
    return fed;
}

static void batches_are_bounded_by_overfeed(void **unused)
{
    struct buf in;
    struct ta ta;

    (void)unused;
    buf_init(&in, 1000);
    ta_init(&ta, false, 2);
    assert_int_equal(next(&ta, &in), TA_NEED_INPUT); /* nothing before it asks */
    say(&in, "#hungry\n");
    assert_int_equal(feed_batch(&ta, &in, 100), 1); /* a dead site costs one attempt */
    say(&in, "#hungry\n");
    assert_int_equal(feed_batch(&ta, &in, 100), 3);
    say(&in, "#hungry\n#hungry\n");
    assert_int_equal(feed_batch(&ta, &in, 100), 0); /* one is unanswered yet */
    say(&in, "#hungry\n");
    assert_int_equal(feed_batch(&ta, &in, 2), 2);
    say(&in, "#hungry\n#hungry\n");
    assert_int_equal(next(&ta, &in), TA_FEED); /* more may have come meanwhile */
    ta_no_job(&ta);
    assert_int_equal(next(&ta, &in), TA_DETACH);
    ta_job(&ta, SLICE("2"), SLICE("other")); /* of another thread: alone again */
    assert_int_equal(next(&ta, &in), TA_NEED_INPUT);
    say(&in, "#hungry\n");
    assert_int_equal(next(&ta, &in), TA_FEED);
    ta_no_job(&ta);
    assert_int_equal(next(&ta, &in), TA_DETACH);
    ta_idle(&ta);
    assert_false(ta_is_idle(&ta));
    say(&in, "#hungry\n");
    assert_int_equal(next(&ta, &in), TA_REST);
    assert_true(ta_is_idle(&ta));
    assert_string_equal(buf_cstr(&ta.output),
                        "1\th\n1\th\n1\th\n1\th\n1\th\n1\th\n2\tother\n#idle\n");
    ta_fini(&ta);
    buf_fini(&in);
}

static void stopping_leaves_the_thread_when_all_is_answered(void **unused)
{
    struct buf in;
    struct ta_event event;
    struct ta ta;

    (void)unused;
    buf_init(&in, 1000);
    ta_init(&ta, true, 1);
    say(&in, "#hungry\n");
    assert_int_equal(feed_batch(&ta, &in, 100), 1);
    say(&in, "#hungry\n");
    assert_int_equal(feed_batch(&ta, &in, 100), 2);
    say(&in, "7/100\t\tdeferall no route\n#hungry\n");
    ta_next(&ta, &in, &event);
    assert_int_equal(event.type, TA_RESULT);
    ta_stop_feeding(&ta);
    assert_int_equal(next(&ta, &in), TA_NEED_INPUT);
    say(&in, "#hungry\n");
    assert_int_equal(next(&ta, &in), TA_DETACH);
    ta_end(&ta);
    assert_string_equal(buf_cstr(&ta.output), "1\n1\n1\n\n");
    ta_fini(&ta);
    buf_fini(&in);
}

/* ---- lines ---------------------------------------------------------------------------------- */

static void results_are_read_strictly(void **unused)
{
    const struct {
        const char *line, *what;
    } bad[] = {
        {"junk", "NUMBER/OFFSET"},
        {"1/2", "a tab after NUMBER/OFFSET"},
        {"1/2\tnotary ok", "a tab after the notary"},
        {"x/2\t\tok", "two numbers as NUMBER/OFFSET"},
        {"1/-2\t\tok", "two numbers as NUMBER/OFFSET"},
        {"1/2/3\t\tok", "two numbers as NUMBER/OFFSET"},
        {"1/ 2\t\tok", "two numbers as NUMBER/OFFSET"},
        {"99999999999999999999999/2\t\tok", "two numbers as NUMBER/OFFSET"},
    };
    const struct {
        const char *line;
        enum ta_status status;
        const char *text;
        bool relative;
        int64_t retry_s;
    } good[] = {
        {"1/2\t\tok", TA_OK, "", false, 0},
        {"1/2\t\tok3 \r<<- a\r->> b", TA_OK3, "\r<<- a\r->> b", false, 0},
        {"1/2\ta\001b\terror2 x\ty", TA_ERROR2, "x\ty", false, 0},
        {"1/2\t\tretryat +300 busy now", TA_RETRYAT, "busy now", true, 300},
        {"1/2\t\tretryat 1795180404", TA_RETRYAT, "", false, 1795180404},
        {"1/2\t\tretryat soon", TA_RETRYAT, "", false, 0},
        {"1/2\t\tretryat -5 x", TA_RETRYAT, "x", false, 0},
        {"1/2\t\tOK", TA_UNKNOWN, "", false, 0},
        {"1/2\t\t", TA_UNKNOWN, "", false, 0},
        {"1/2\t\tdeferback x", TA_DEFERBACK, "x", false, 0},
    };

    (void)unused;
    for (size_t i = 0; i < COUNT(bad); i++) {
        struct ta_event event = {0};
        const char *what = NULL;

        assert_false(ta_parse_result(slice_string(bad[i].line), &event, &what));
        assert_string_equal(what, bad[i].what);
    }
    for (size_t i = 0; i < COUNT(good); i++) {
        struct ta_event event = {0};
        const char *what = NULL;

        assert_true(ta_parse_result(slice_string(good[i].line), &event, &what));
        assert_int_equal(event.number, 1);
        assert_int_equal(event.offset, 2);
        assert_int_equal(event.status, good[i].status);
        assert_true(slice_equal(event.text, slice_string(good[i].text)));
        assert_int_equal(event.retry_is_relative, good[i].relative);
        assert_int_equal(event.retry_s, good[i].retry_s);
    }
}

static void other_lines_are_told_apart(void **unused)
{
    const struct {
        const char *line;
        enum ta_event_type type;
    } cases[] = {
        {"# smtp:1: a warning\n", TA_COMMENT}, {"\n", TA_COMMENT},
        {"#resync X/S/11059300\n", TA_RESYNC}, {"hello\n", TA_MALFORMED},
        {"#resyncing\n", TA_COMMENT},
    };
    struct ta_event event;
    struct buf in;
    struct ta ta;

    (void)unused;
    buf_init(&in, (size_t)2 * TA_LINE_MAX);
    ta_init(&ta, false, 0);
    for (size_t i = 0; i < COUNT(cases); i++) {
        say(&in, cases[i].line);
        ta_next(&ta, &in, &event);
        assert_int_equal(event.type, cases[i].type);
        if (event.type == TA_RESYNC) {
            assert_true(slice_equal(event.path, SLICE("X/S/11059300")));
        }
    }
    for (size_t i = 0; i <= TA_LINE_MAX; i++) {
        assert_int_equal(next(&ta, &in), TA_NEED_INPUT);
        assert_true(buf_add_byte(&in, 'x'));
    }
    assert_int_equal(next(&ta, &in), TA_BROKEN);
    ta_fini(&ta);
    buf_fini(&in);
}

static void our_agents_say_what_is_read_back(void **unused)
{
    struct ta_event event = {0};
    struct ta_order order;
    const char *what = NULL;
    struct buf out;

    (void)unused;
    buf_init(&out, 1000);
    ta_put_result(&out, 11059243, 103, SLICE("u0\001failed\t\n"), TA_ERROR, SLICE("a\nb\tc"));
    ta_put_result(&out, 1, 2, SLICE(""), TA_OK3, SLICE(""));
    assert_string_equal(buf_cstr(&out),
                        "11059243/103\tu0\001failed \r\terror a\rb\tc\n1/2\t\tok3\n");
    assert_true(ta_parse_result(slice_of(buf_slice(&out).ptr, slice_find(buf_slice(&out), '\n')),
                                &event, &what));
    assert_int_equal(event.status, TA_ERROR);
    buf_fini(&out);

    ta_parse_order(SLICE("X/Q/1\t[127.0.0.1]"), &order);
    assert_int_equal(order.type, TA_ORDER_JOB);
    assert_true(slice_equal(order.host, SLICE("[127.0.0.1]")));
    ta_parse_order(SLICE("X/Q/1"), &order);
    assert_int_equal(order.host.len, 0);
    ta_parse_order(SLICE("#idle"), &order);
    assert_int_equal(order.type, TA_ORDER_IDLE);
    ta_parse_order(SLICE(""), &order);
    assert_int_equal(order.type, TA_ORDER_END);
}

UNIT_MAIN(cmocka_unit_test(recorded_agents), cmocka_unit_test(batches_are_bounded_by_overfeed),
          cmocka_unit_test(stopping_leaves_the_thread_when_all_is_answered),
          cmocka_unit_test(results_are_read_strictly), cmocka_unit_test(other_lines_are_told_apart),
          cmocka_unit_test(our_agents_say_what_is_read_back))
