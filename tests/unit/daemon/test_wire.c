/* What transport agents add to the frames; all types go round trip in tests/fuzz/fuzz_wire.c. */
#include "unit.h"

#include <event2/event.h>
#include <string.h>
#include <sys/socket.h>

#include "channel.h"
#include "mem.h"
#include "ta.h"
#include "wire.h"

struct fixture {
    struct event_base *base;
    struct channel *near_end, *far_end;
};

static void on_ready(void *arg, struct channel *ch)
{
    (void)arg;
    (void)ch;
}

static int set_up(void **state)
{
    struct fixture *f = mem_new(sizeof *f);
    int fds[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    f->base = event_base_new();
    f->near_end = channel_new(f->base, fds[0], on_ready, NULL);
    f->far_end = channel_new(f->base, fds[1], on_ready, NULL);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;

    channel_free(f->near_end);
    channel_free(f->far_end);
    event_base_free(f->base);
    mem_free(f);
    return 0;
}

/* What was put at the near end, as it arrives. */
static struct slice arrived(struct fixture *f, enum wire_type type)
{
    struct frame frame;

    channel_flush_all();
    assert_int_equal(channel_wait(f->far_end, 1000, &frame), CHANNEL_FRAME);
    assert_int_equal(frame.type, type);
    return frame.body;
}

static void a_job_carries_a_path_in_place_of_content(void **state)
{
    static const struct {
        enum wire_content_place place;
        const char *path, *content;
        bool want;
    } cases[] = {
        {CONTENT_NONE, "A/90417", "", true},    {CONTENT_NONE, "", "", false},
        {CONTENT_NONE, "A/90417", "x", false},  {CONTENT_INSIDE, "", "x", true},
        {CONTENT_INSIDE, "A/90417", "", false}, {CONTENT_ON_DEMAND, "A/90417", "", false},
    };
    const struct wire_deliver_rcpt rcpt = {.n = 125, .address = SLICE("a@b.test")};

    for (size_t i = 0; i < COUNT(cases); i++) {
        struct wire_deliver got, m = {.entry = 7,
                                      .transport = SLICE("smtp"),
                                      .nexthop = SLICE("b.test"),
                                      .path = slice_string(cases[i].path),
                                      .place = cases[i].place,
                                      .content = slice_string(cases[i].content),
                                      .rcpts = &rcpt,
                                      .rcpt_count = 1};
        struct wire_deliver_rcpt *rcpts;

        wire_put_deliver(((struct fixture *)*state)->near_end, &m, -1);
        assert_int_equal(wire_get_deliver(arrived(*state, WIRE_DELIVER), &got, &rcpts),
                         cases[i].want);
        if (cases[i].want) {
            assert_true(slice_equal(got.path, m.path));
            assert_int_equal(got.rcpts[0].n, 125);
            mem_free(rcpts);
        }
    }
}

static void a_result_carries_what_an_agent_said(void **state)
{
    static const struct {
        uint32_t word;
        int64_t until_us;
        bool want;
    } cases[] = {
        {0, 0, true},
        {1 + TA_RETRYAT, 5 * US_PER_S, true},
        {1 + TA_UNKNOWN, 0, false},
        {1 + TA_OK, -1, false},
    };

    for (size_t i = 0; i < COUNT(cases); i++) {
        const struct wire_verdict verdict = {
            .n = 125, .kind = VERDICT_NONE, .word = cases[i].word, .notary = SLICE("a\1b")};
        struct wire_result got, m = {.entry = 7,
                                     .outcome = OUTCOME_CRASH,
                                     .reason = SLICE("ended with exit status 75"),
                                     .resync = true,
                                     .thread_stops = true,
                                     .thread_until = {cases[i].until_us},
                                     .pid = 4711,
                                     .verdicts = &verdict,
                                     .verdict_count = 1};
        struct wire_verdict *verdicts;

        wire_put_result(((struct fixture *)*state)->near_end, &m);
        assert_int_equal(wire_get_result(arrived(*state, WIRE_RESULT), &got, &verdicts),
                         cases[i].want);
        if (cases[i].want) {
            assert_int_equal(got.outcome, OUTCOME_CRASH);
            assert_true(got.resync && got.thread_stops);
            assert_int_equal(got.thread_until.us, cases[i].until_us);
            assert_int_equal(got.pid, 4711);
            assert_int_equal(verdicts[0].kind, VERDICT_NONE);
            assert_int_equal(verdicts[0].word, cases[i].word);
            assert_true(slice_equal(verdicts[0].notary, SLICE("a\1b")));
            mem_free(verdicts);
        }
    }
}

static void an_agent_s_report_arrives_whole_or_not_at_all(void **state)
{
    static const struct {
        uint32_t pid, state;
        bool want;
    } cases[] = {{4711, TA_ENDING, true}, {0, TA_IDLE, false}, {4711, TA_ENDING + 1, false}};

    for (size_t i = 0; i < COUNT(cases); i++) {
        struct wire_agent got, m = {.pid = cases[i].pid,
                                    .transport = SLICE("smtp"),
                                    .host = SLICE("b.test"),
                                    .ring = 3,
                                    .state = cases[i].state,
                                    .owed = 2,
                                    .hungry = {11},
                                    .fed = {12},
                                    .ended = true};

        wire_put_agent(((struct fixture *)*state)->near_end, &m);
        assert_int_equal(wire_get_agent(arrived(*state, WIRE_AGENT), &got), cases[i].want);
        if (cases[i].want) {
            assert_true(slice_equal(got.host, m.host));
            assert_int_equal(got.ring, 3);
            assert_int_equal(got.owed, 2);
            assert_int_equal(got.hungry.us, 11);
            assert_int_equal(got.fed.us, 12);
            assert_true(got.ended);
        }
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

UNIT_MAIN(TEST(a_job_carries_a_path_in_place_of_content), TEST(a_result_carries_what_an_agent_said),
          TEST(an_agent_s_report_arrives_whole_or_not_at_all))
