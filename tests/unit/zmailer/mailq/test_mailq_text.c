/*
 * Every line of the recorded reports is read into the structures and written again: it must come
 * out as it was.
 */
#include "unit.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "capture.h"
#include "mailq_text.h"

#define TEXT_MAX 100000

static void duration_has_two_parts(void **unused)
{
    const struct {
        int64_t seconds;
        const char *want;
    } cases[] = {
        {0, "0s"},
        {59, "59s"},
        {60, "1m"},
        {3600, "1h"},
        {270, "4m30s"},
        {3605, "1h5s"},
        {86400 + 3600 + 60 + 1, "1d1h"},
        {86400 + 60 + 1, "1d1m"},
        {-61, "-1m1s"},
        {INT64_MIN, "-106751991167300d15h"},
    };

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct buf out;

        buf_init(&out, 100);
        mailq_duration(&out, cases[i].seconds);
        assert_string_equal(buf_cstr(&out), cases[i].want);
        buf_fini(&out);
    }
}

/* ---- reading what was recorded -------------------------------------------------------------- */

static int64_t read_duration(struct slice *s)
{
    int64_t total = 0;

    while (s->len > 0 && ascii_is_digit(s->ptr[0])) {
        int64_t n = 0;
        size_t i = 0;

        for (; i < s->len && ascii_is_digit(s->ptr[i]); i++) {
            n = n * 10 + s->ptr[i] - '0';
        }
        assert_true(i < s->len);
        total += n * (s->ptr[i] == 'd'   ? 86400
                      : s->ptr[i] == 'h' ? 3600
                      : s->ptr[i] == 'm' ? 60
                                         : 1);
        *s = slice_skip(*s, i + 1);
    }
    return total;
}

static bool after(struct slice line, const char *word, struct slice *ret)
{
    const char *at = memmem(line.ptr, line.len, word, strlen(word));

    if (at == NULL) {
        return false;
    }
    *ret = slice_skip(line, (size_t)(at - line.ptr) + strlen(word));
    return true;
}

static uint32_t number_after(struct slice line, const char *word)
{
    struct slice rest = {NULL, 0};

    assert_true(after(line, word, &rest));
    return (uint32_t)strtoul(rest.ptr, NULL, 10);
}

/* The i-th value of "WORD{a,b,c}". */
static struct slice nth_after(struct slice line, const char *word, size_t i)
{
    struct slice rest, part;

    assert_true(after(line, word, &rest));
    rest = slice_of(rest.ptr, slice_find(rest, '}'));
    do {
        assert_non_null(rest.ptr);
        part = slice_cut(&rest, ',');
    } while (i-- > 0);
    return part;
}

static enum mailq_agent_state state_of(struct slice word)
{
    static const char *const words[] = {"LARVA", "STUFF", "FINISH", "IDLE", "ERROR"};

    for (size_t i = 0; i < COUNT(words); i++) {
        if (slice_equal(word, slice_string(words[i]))) {
            return (enum mailq_agent_state)i;
        }
    }
    fail_msg("no state: %.*s", SLICE_ARGS(word));
    return MAILQ_ERROR;
}

static void read_thread(struct slice line, struct mailq_thread *t, struct mailq_agent agents[8])
{
    struct slice rest;

    *t = (struct mailq_thread){
        .vertices = number_after(line, "N="),
        .recipients = number_after(line, "R="),
        .attempts = number_after(line, "A="),
        .agents = agents,
    };
    if (after(line, "P={", &rest)) {
        rest = slice_of(rest.ptr, slice_find(rest, '}'));
        while (rest.ptr != NULL) {
            struct mailq_agent *a = &agents[t->agent_count];
            struct slice fed = nth_after(line, "FA={", t->agent_count);

            a->pid = strtol(slice_cut(&rest, ',').ptr, NULL, 10);
            a->hungry_age_s = strtol(nth_after(line, "HA={", t->agent_count).ptr, NULL, 10);
            a->fed_age_s = slice_equal(fed, SLICE("never")) ? -1 : strtol(fed.ptr, NULL, 10);
            a->overfeed = (uint32_t)strtoul(nth_after(line, "OF={", t->agent_count).ptr, NULL, 10);
            a->state = state_of(nth_after(line, "S={", t->agent_count));
            t->agent_count++;
        }
        t->unfed = number_after(line, "UF=");
    }
    t->wait_s = after(line, "W=", &rest) ? strtol(rest.ptr, NULL, 10) : 0;
    if (after(line, "pend=", &rest)) {
        t->reason = slice_of(rest.ptr, slice_find(rest, ' '));
    }
    assert_true(after(line, "QA=", &rest));
    t->oldest_age_s = read_duration(&rest);
    t->pending = after(line, " channelwait", &rest)  ? MAILQ_PENDING_CHANNEL
                 : after(line, " threadwait", &rest) ? MAILQ_PENDING_THREAD
                                                     : MAILQ_PENDING_NONE;
}

/* "CHANNEL/HOST/FLAG" up to the last slash. */
static void read_name(struct slice name, struct slice *ret_channel, struct slice *ret_host)
{
    size_t last = slice_find_last(name, '/'), first = slice_find(name, '/');

    *ret_channel = slice_of(name.ptr, first);
    *ret_host = slice_of(name.ptr + first + 1, last - first - 1);
}

static void assert_written(struct buf *out, struct slice line)
{
    assert_true(buf_len(out) > 0);
    if (!slice_equal(buf_slice(out), slice_of(line.ptr, line.len))) {
        fail_msg("written \"%.*s\" of \"%.*s\"", SLICE_ARGS(buf_slice(out)), SLICE_ARGS(line));
    }
    buf_clear(out);
}

static size_t check_report_line(struct slice line, struct buf *out)
{
    struct mailq_agent agents[8] = {0};
    struct mailq_thread t;
    struct mailq_ring ring;
    struct slice rest;
    char *space;

    if (slice_starts(line, SLICE("    ")) || line.ptr[0] == '#') {
        size_t from = line.ptr[0] == '#' ? 1 : 4, to = from;

        while (line.ptr[to] != ' ' && line.ptr[to] != '\t') {
            to++;
        }
        read_thread(slice_skip(line, to), &t, agents);
        read_name(slice_of(line.ptr + from, to - from), &t.channel, &t.host);
        (from == 1 ? mailq_put_thread_head : mailq_put_thread)(out, &t);
    } else if (slice_starts(line, SLICE("\tThreads:"))) {
        ring = (struct mailq_ring){
            .threads = number_after(line, "Threads:"),
            .vertices = number_after(line, "Msgs:"),
            .agents = number_after(line, "Procs:"),
            .idle = number_after(line, "Idle:"),
            .ring_limit = number_after(line, "Plim:"),
            .feed_limit = number_after(line, "Flim:"),
            .thread_limit = number_after(line, "Tlim:"),
        };
        mailq_put_ring_totals(out, &ring);
    } else if (after(line, "\tN=", &rest)) {
        read_thread(line, &t, agents);
        rest = line;
        t.channel = slice_cut(&rest, '\t');
        t.host = slice_cut(&rest, '\t');
        mailq_put_thread_fields(out, &t);
    } else if ((space = memchr(line.ptr, '/', line.len)) != NULL &&
               memchr(line.ptr, ' ', line.len) == NULL &&
               memchr(line.ptr, '\t', line.len) == NULL) {
        ring = (struct mailq_ring){0};
        read_name(line, &ring.channel, &ring.host);
        mailq_put_ring_head(out, &ring);
    } else {
        return 0;
    }
    (void)buf_len(out);
    buf_truncate(out, buf_len(out) - 1);
    assert_written(out, line);
    return 1;
}

static void recorded_reports_are_written_alike(void **unused)
{
    static const char *const files[] = {
        TEST_DATA_DIR "/10-mailq-v1-dump-active.raw",
        TEST_DATA_DIR "/11-mailq-v1-dump-idle.raw",
        TEST_DATA_DIR "/20-mailq-v2-dialogue-nobody.txt",
        TEST_DATA_DIR "/21-mailq-v2-dialogue-active.txt",
        TEST_DATA_DIR "/23-mailq-v2-dialogue-kill.txt",
    };
    size_t checked = 0;

    (void)unused;
    for (size_t i = 0; i < COUNT(files); i++) {
        struct buf text, bytes, out;
        struct slice rest;

        buf_init(&text, TEXT_MAX);
        buf_init(&bytes, TEXT_MAX);
        buf_init(&out, TEXT_MAX);
        capture_read(files[i], &text);
        capture_unescape(buf_slice(&text), &bytes);
        rest = buf_slice(&bytes);
        while (rest.ptr != NULL) {
            struct slice line = slice_cut(&rest, '\n');
            bool dialogue = slice_starts(line, SLICE("S: ")) || slice_starts(line, SLICE("C: "));

            if (dialogue) {
                line = slice_skip(line, 3);
            }
            if (line.len > 0 && !ascii_is_digit(line.ptr[0])) {
                checked += check_report_line(line, &out);
            }
        }
        buf_fini(&text);
        buf_fini(&bytes);
        buf_fini(&out);
    }
    assert_int_equal(checked, 79);
}

static void totals_are_written_alike(void **unused)
{
    const struct mailq_totals t = {
        .agents = 10,
        .idle = 9,
        .messages = 3,
        .threads = 4,
        .vertices = 6,
        .uptime_s = 10,
        .messages_in = 5,
        .messages_out = 2,
        .messages_stored = 3,
        .rcpts_in = 15,
        .rcpts_out = 9,
        .rcpts_stored = 6,
    };
    struct buf out;

    (void)unused;
    buf_init(&out, TEXT_MAX);
    mailq_put_totals(&out, &t, false);
    mailq_put_totals(&out, &t, true);
    assert_string_equal(buf_cstr(&out),
                        "Kids: 10  Idle:  9  Msgs:   3  Thrds:   4  Rcpnts:    6  Uptime: 10s\n"
                        "Msgs in 5 out 2 stored 3 Rcpnts in 15 out 9 stored 6\n"
                        "Kids: 10  Idle:  9  Msgs:   3  Thrds:   4  Rcpnts:    6  Uptime: 10 sec\n"
                        "Msgs in 5 out 2 stored 3 Rcpnts in 15 out 9 stored 6\n");
    buf_fini(&out);
}

static void vertices_are_written_alike(void **unused)
{
    const uint64_t two[] = {263, 231}, one[] = {1462}, other[] = {103};
    const struct mailq_vertex vertices[] = {
        {
            .key = 3,
            .path = SLICE("X/S/11059300"),
            .offsets = one,
            .rcpt_count = 1,
            .diagnostic =
                SLICE("smtp; 466 (No DNS response for host: soft.com; h_errno=0)\r<<- RCPT "
                      "To:<e@soft.com> NOTIFY=SUCCESS,FAILURE,DELAY ORCPT=rfc822;e@soft.com\r->> "
                      "450 4.3.0 Error: command failed"),
            .retry_in_s = 12,
            .expires = true,
            .expires_in_s = 3438,
            .attempts = 1,
        },
        {
            .key = 4,
            .path = SLICE("A/B/11059320"),
            .offsets = two,
            .rcpt_count = 2,
            .diagnostic = SLICE("try later"),
            .retry_in_s = 2,
            .expires = true,
            .expires_in_s = 3598,
            .attempts = 2,
        },
        {
            .key = 8,
            .path = SLICE("A/B/11059320"),
            .offsets = other,
            .rcpt_count = 1,
            .pending = MAILQ_PENDING_CHANNEL,
            .expires = true,
            .expires_in_s = 3598,
        },
        {
            .key = 12,
            .path = SLICE("A/C/11059321"),
            .offsets = other,
            .rcpt_count = 1,
            .pid = 15442,
            .next_feed = true,
            .expires = true,
            .expires_in_s = 3598,
        },
        {.key = 13, .path = SLICE("9"), .offsets = other, .rcpt_count = 1},
    };
    struct buf out;

    (void)unused;
    buf_init(&out, TEXT_MAX);
    for (size_t i = 0; i < COUNT(vertices); i++) {
        mailq_put_vertex(&out, &vertices[i]);
    }
    assert_string_equal(
        buf_cstr(&out),
        "3:\tX/S/11059300\t1; 1462\t#smtp; 466 (No DNS response for host: soft.com; h_errno=0)\r"
        "<<- RCPT To:<e@soft.com> NOTIFY=SUCCESS,FAILURE,DELAY ORCPT=rfc822;e@soft.com\r"
        "->> 450 4.3.0 Error: command failed (retry in 12s, expires in 57m18s, tries=1)\n"
        "4:\tA/B/11059320\t2; 263,231\t#try later (retry in 2s, expires in 59m58s, tries=2)\n"
        "8:\tA/B/11059320\t1; 103\t#(waiting for channel slot, expires in 59m58s, tries=0)\n"
        "12:\tA/C/11059321\t1; 103\t#(running now, pid=15442 NextFeed, expires in 59m58s, "
        "tries=0)\n"
        "13:\t9\t1; 103\t#(activation pending, thread inactive)\n");
    buf_fini(&out);
}

static void rows_are_written_alike(void **unused)
{
    const struct mailq_rcpt rows[] = {
        {.path = SLICE("11059704"),
         .n = 1,
         .error_to = SLICE("zmuser@zm.test"),
         .offset = 128,
         .expires_s = 1795182713,
         .wake_s = 1795179780,
         .last_fed_s = 1795179720,
         .attempts = 4,
         .retry_in_s = 53,
         .diagnostic = SLICE("try again")},
        {.path = SLICE("Y/G/11059314"),
         .error_to = SLICE("zmuser@zm.test"),
         .offset = 128,
         .expires_s = 1795185049,
         .pending = MAILQ_PENDING_THREAD},
    };
    struct buf out;

    (void)unused;
    buf_init(&out, TEXT_MAX);
    for (size_t i = 0; i < COUNT(rows); i++) {
        mailq_put_rcpt(&out, &rows[i]);
    }
    assert_string_equal(buf_cstr(&out),
                        "11059704\t1\tzmuser@zm.test\t128\t1795182713\t1795179780\t1795179720\t4\t"
                        "retry in 53s\ttry again\n"
                        "Y/G/11059314\t0\tzmuser@zm.test\t128\t1795185049\t0\t0\t0\tthread\t\n");
    buf_fini(&out);
}

/* A site's words must not look like another line of the answer, nor shift its fields. */
static void hostile_text_stays_in_its_place(void **unused)
{
    const uint64_t offset = 5;
    const struct mailq_rcpt row = {.path = SLICE("1\t2\n3"), .diagnostic = SLICE("a\n.\nb\tc\0d")};
    const struct mailq_vertex vertex = {.key = 1,
                                        .path = SLICE("1"),
                                        .offsets = &offset,
                                        .rcpt_count = 1,
                                        .diagnostic = SLICE("x\rEnd:\r2:\t9\t1; 1\t#y")};
    struct buf out;

    (void)unused;
    buf_init(&out, TEXT_MAX);
    mailq_put_rcpt(&out, &row);
    mailq_put_vertex(&out, &vertex);
    assert_string_equal(buf_cstr(&out), "1 2 3\t0\t\t0\t0\t0\t0\t0\t\ta . b c d\n"
                                        "1:\t1\t1; 5\t#x\rEnd:\r2: 9 1; 1 #y (activation "
                                        "pending, thread inactive)\n");
    buf_fini(&out);
}

UNIT_MAIN(cmocka_unit_test(duration_has_two_parts),
          cmocka_unit_test(recorded_reports_are_written_alike),
          cmocka_unit_test(totals_are_written_alike), cmocka_unit_test(vertices_are_written_alike),
          cmocka_unit_test(rows_are_written_alike),
          cmocka_unit_test(hostile_text_stays_in_its_place))
