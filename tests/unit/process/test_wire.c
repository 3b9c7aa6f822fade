/*
 * Frames, each by its fields in wire_fields.h: what is put is got, bytes too few or too many and
 * values beyond a limit are refused. And what holds between fields.
 */
#include "unit.h"

#include <event2/event.h>
#include <string.h>
#include <sys/socket.h>

#include "channel.h"
#include "mem.h"
#include "wire_fields.h"

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
        enum wire_verdict_kind kind;
        enum wire_report report;
        int64_t until_us;
        bool want;
    } cases[] = {
        {VERDICT_NONE, WIRE_REPORT_DUE, 0, true},
        {VERDICT_DEFERRED, WIRE_REPORT_DUE, 5 * US_PER_S, true},
        {VERDICT_BOUNCED, WIRE_REPORT_WRITTEN, 0, true},
        {VERDICT_SENT, WIRE_REPORT_NONE, 0, true},
        {VERDICT_SENT, WIRE_REPORT_COUNT, 0, false},
        {VERDICT_BOUNCED, WIRE_REPORT_NONE, 0, false},
        {VERDICT_NONE, WIRE_REPORT_WRITTEN, 0, false},
        {VERDICT_SENT, WIRE_REPORT_DUE, -1, false},
    };

    for (size_t i = 0; i < COUNT(cases); i++) {
        const struct wire_verdict verdict = {.n = 125,
                                             .kind = cases[i].kind,
                                             .report = cases[i].report,
                                             .stops_thread = true,
                                             .details = SLICE("a\1b")};
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
            assert_int_equal(verdicts[0].kind, cases[i].kind);
            assert_int_equal(verdicts[0].report, cases[i].report);
            assert_true(verdicts[0].stops_thread);
            assert_true(slice_equal(verdicts[0].details, SLICE("a\1b")));
            mem_free(verdicts);
        }
    }
}

/* ---- all frames, by their table ------------------------------------------------------------- */

#define TRIED_MAX 20000 /* bytes; longer texts are not tried at their limit */

static const char letters[TRIED_MAX + 1] = {[0 ... TRIED_MAX] = 'a'};

/* A frame without its type: as it was put, and whether it passes. */
struct trial {
    struct fixture *fixture;
    const char *name;
    const void *frame;
    void (*put)(struct channel *ch, const void *frame);
    bool (*get)(struct slice body);
};

static bool passes(const struct trial *t)
{
    struct frame frame;

    t->put(t->fixture->near_end, t->frame);
    channel_flush_all();
    assert_int_equal(channel_wait(t->fixture->far_end, 1000, &frame), CHANNEL_FRAME);
    return t->get(frame.body);
}

static void expect(const struct trial *t, const char *member, bool want)
{
    if (passes(t) != want) {
        fail_msg("%s.%s", t->name, member);
    }
}

/* A value for each kind of field. */
#define FILL_U32(member)                m->member = UINT32_MAX - 1;
#define FILL_BELOW(member, values)      m->member = (values)-1;
#define FILL_U64(member)                m->member = 1ull << 63;
#define FILL_I64(member)                m->member = INT64_MIN;
#define FILL_WALL(member)               m->member.us = INT64_MAX;
#define FILL_BOOL(member)               m->member = true;
#define FILL_ENUM(member, type, values) m->member = (enum type)0;
#define FILL_BYTES(member, max)         m->member = slice_of(letters, 3);
#define FILL_SOME(member, max)          m->member = slice_of(letters, 3);
#define FILL_ARRAY(member, count, element, min, max)                                               \
    static struct wire_##element array[2];                                                         \
    fill_##element(&array[0]);                                                                     \
    fill_##element(&array[1]);                                                                     \
    m->member = array;                                                                             \
    m->count = 2;
#define FILL(kind, ...) FILL_##kind(__VA_ARGS__)

/* Make hold what has to hold between fields. */
#define meet_NO_RULE(m)           (void)(m)
#define meet_verdict_holds(m)     (void)(m)
#define meet_submit_holds(m)      (void)(m)
#define meet_auth_answer_holds(m) (void)(m)
#define meet_auth_key_holds(m)    ((m)->bytes = SLICE("0123456789abcdef0123456789abcdef"))
#define meet_dialogue_holds(m)    (void)(m)
#define meet_peer_holds(m)        ((m)->index = 7)
#define meet_deliver_holds(m)                                                                      \
    do {                                                                                           \
        (m)->place = (m)->path.len > 0 ? CONTENT_NONE : CONTENT_INSIDE;                            \
        (m)->content.len = 0;                                                                      \
    } while (0)

/* The largest value passes, one more does not. The struct is as before afterwards. */
#define LIMIT_U32(member)
#define LIMIT_U64(member)
#define LIMIT_I64(member)
#define LIMIT_BOOL(member)
#define LIMIT_BELOW(member, values)                                                                \
    m->member = (values);                                                                          \
    expect(t, #member, false);                                                                     \
    m->member = (values)-1;
#define LIMIT_ENUM(member, type, values)                                                           \
    m->member = (enum type)(values);                                                               \
    expect(t, #member, false);                                                                     \
    m->member = (enum type)0;
#define LIMIT_WALL(member)                                                                         \
    m->member.us = -1;                                                                             \
    expect(t, #member, false);                                                                     \
    m->member.us = 0;                                                                              \
    expect(t, #member, true);
#define LIMIT_BYTES(member, max)                                                                   \
    if ((max) < TRIED_MAX) {                                                                       \
        m->member.len = (max);                                                                     \
        expect(t, #member, true);                                                                  \
        m->member.len++;                                                                           \
        expect(t, #member, false);                                                                 \
        m->member.len = 3;                                                                         \
    }
#define LIMIT_SOME(member, max)                                                                    \
    m->member.len = 0;                                                                             \
    expect(t, #member, false);                                                                     \
    LIMIT_BYTES(member, max)
#define LIMIT_ARRAY(member, count, element, min, max)                                              \
    limits_of_##element(t, (struct wire_##element *)(uintptr_t)&m->member[1]);                     \
    m->count = 0;                                                                                  \
    expect(t, #member, (min) == 0);                                                                \
    m->count = 2;
#define LIMIT(kind, ...) LIMIT_##kind(__VA_ARGS__)

#define DEFINE_STRUCT(name, rule)                                                                  \
    static void fill_##name(struct wire_##name *m)                                                 \
    {                                                                                              \
        WIRE_FIELDS_##name(FILL);                                                                  \
        meet_##rule(m);                                                                            \
    }                                                                                              \
                                                                                                   \
    static void limits_of_##name(const struct trial *t, struct wire_##name *m)                     \
    {                                                                                              \
        expect(t, #name, true);                                                                    \
        WIRE_FIELDS_##name(LIMIT);                                                                 \
        meet_##rule(m);                                                                            \
        expect(t, #name, true);                                                                    \
    }

/* Every other number of bytes is refused. */
static void lengths_of(const struct trial *t)
{
    struct frame frame;
    struct buf longer;

    t->put(t->fixture->near_end, t->frame);
    channel_flush_all();
    assert_int_equal(channel_wait(t->fixture->far_end, 1000, &frame), CHANNEL_FRAME);
    buf_init(&longer, 65536);
    assert_true(buf_add(&longer, frame.body) && buf_add_byte(&longer, '\0'));
    for (size_t len = 0; len <= frame.body.len + 1; len++) {
        /* A copy of its own: a decoder that reads on is seen by a sanitizer. */
        char *copy = mem_copy(longer.ptr, len);

        if (t->get(slice_of(copy, len)) != (len == frame.body.len)) {
            fail_msg("%s: %zu of %zu bytes", t->name, len, frame.body.len);
        }
        mem_free(copy);
    }
    buf_fini(&longer);
}

#define CALL_PUT_PLAIN(name)    wire_put_##name(ch, m)
#define CALL_PUT_FD(name)       wire_put_##name(ch, m, -1)
#define CALL_PUT_ARRAY(name)    wire_put_##name(ch, m)
#define CALL_PUT_ARRAY_FD(name) wire_put_##name(ch, m, -1)

#define CALL_GET_PLAIN(name) return wire_get_##name(body, &m)
#define CALL_GET_FD(name)    return wire_get_##name(body, &m)
#define CALL_GET_ARRAY(name, member, element)                                                      \
    struct wire_##element *array;                                                                  \
    bool ok = wire_get_##name(body, &m, &array);                                                   \
    mem_free(array);                                                                               \
    return ok
#define CALL_GET_ARRAY_FD(name, member, element) CALL_GET_ARRAY(name, member, element)

#define DEFINE_TRIAL(shape, name, type, rule, ...)                                                 \
    DEFINE_STRUCT(name, rule)                                                                      \
                                                                                                   \
    static void put_##name(struct channel *ch, const void *frame)                                  \
    {                                                                                              \
        const struct wire_##name *m = frame;                                                       \
        CALL_PUT_##shape(name);                                                                    \
    }                                                                                              \
                                                                                                   \
    static bool get_##name(struct slice body)                                                      \
    {                                                                                              \
        struct wire_##name m;                                                                      \
        CALL_GET_##shape(name __VA_OPT__(, ) __VA_ARGS__);                                         \
    }                                                                                              \
                                                                                                   \
    static void try_##name(struct fixture *f)                                                      \
    {                                                                                              \
        struct wire_##name m = {0};                                                                \
        const struct trial t = {f, #name, &m, put_##name, get_##name};                             \
                                                                                                   \
        fill_##name(&m);                                                                           \
        lengths_of(&t);                                                                            \
        limits_of_##name(&t, &m);                                                                  \
    }

WIRE_ELEMENTS(DEFINE_STRUCT)
WIRE_FRAMES(DEFINE_TRIAL)

static void every_frame_is_refused_beyond_each_limit_and_at_other_lengths(void **state)
{
#define TRY(shape, name, ...) try_##name(*state);
    WIRE_FRAMES(TRY)
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

UNIT_MAIN(TEST(a_job_carries_a_path_in_place_of_content), TEST(a_result_carries_what_an_agent_said),
          TEST(every_frame_is_refused_beyond_each_limit_and_at_other_lengths))
