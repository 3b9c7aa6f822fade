#include "unit.h"

#include "agent_table.h"

static void tell(struct agent_table *t, uint32_t pid, const char *host, enum ta_state state)
{
    const struct agent_report m = {
        .pid = pid,
        .transport = SLICE("smtp"),
        .host = slice_string(host),
        .ring = 3,
        .state = (uint32_t)state,
        .owed = 1,
    };

    agent_table_take(t, &m);
}

static size_t count_of(const struct agent_table *t, const char *host)
{
    const struct agent_thread *thread = agent_table_of(t, SLICE("smtp"), slice_string(host));
    const struct agent_row *row;
    size_t count = 0;

    if (thread != NULL) {
        TAILQ_FOREACH(row, &thread->agents, of_thread)
        {
            count++;
        }
    }
    return count;
}

static void agents_are_found_by_what_they_work_for(void **unused)
{
    struct agent_table t = {0};
    struct agent_report end = {.pid = 12, .transport = SLICE("smtp"), .ended = true};

    (void)unused;
    tell(&t, 11, "", TA_LARVA);
    assert_int_equal(count_of(&t, ""), 0);
    tell(&t, 11, "a", TA_STUFF);
    tell(&t, 12, "a", TA_LARVA);
    assert_int_equal(count_of(&t, "a"), 2);
    tell(&t, 11, "b", TA_STUFF);
    assert_int_equal(count_of(&t, "a"), 1);
    assert_int_equal(count_of(&t, "b"), 1);
    tell(&t, 11, "b", TA_IDLE);
    assert_int_equal(count_of(&t, "b"), 0);
    assert_int_equal(t.idle, 1);
    tell(&t, 11, "b", TA_IDLE);
    assert_int_equal(t.idle, 1);
    assert_int_equal(agent_table_count(&t), 2);
    agent_table_take(&t, &end);
    agent_table_take(&t, &end); /* twice is once */
    assert_int_equal(count_of(&t, "a"), 0);
    assert_int_equal(agent_table_count(&t), 1);
    assert_int_equal(t.starts, 2);
    agent_table_clear(&t);
    assert_int_equal(agent_table_count(&t), 0);
    assert_int_equal(t.idle, 0);
    assert_int_equal(t.starts, 2);
}

static void too_many_agents_are_passed_over(void **unused)
{
    struct agent_table t = {0};

    (void)unused;
    for (uint32_t pid = 1; pid <= AGENT_TABLE_MAX + 10; pid++) {
        tell(&t, pid, "a", TA_STUFF);
    }
    assert_int_equal(agent_table_count(&t), AGENT_TABLE_MAX);
    assert_int_equal(count_of(&t, "a"), AGENT_TABLE_MAX);
    agent_table_clear(&t);
    assert_null(agent_table_of(&t, SLICE("smtp"), SLICE("a")));
}

static void a_report_is_read_whole_or_not_at_all(void **unused)
{
    static const struct {
        uint32_t pid, state;
        bool want;
    } cases[] = {{4711, TA_ENDING, true}, {0, TA_IDLE, false}, {4711, TA_ENDING + 1, false}};

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct agent_report got, m = {.pid = cases[i].pid,
                                      .transport = SLICE("smtp"),
                                      .host = SLICE("b.test"),
                                      .ring = 3,
                                      .state = cases[i].state,
                                      .owed = 2,
                                      .hungry = {11},
                                      .fed = {12},
                                      .ended = true};
        struct buf body;

        buf_init(&body, 1000);
        agent_report_write(&body, &m);
        assert_int_equal(agent_report_read(buf_slice(&body), &got), cases[i].want);
        if (cases[i].want) {
            assert_true(slice_equal(got.host, m.host));
            assert_int_equal(got.ring, 3);
            assert_int_equal(got.owed, 2);
            assert_int_equal(got.hungry.us, 11);
            assert_int_equal(got.fed.us, 12);
            assert_true(got.ended);
            assert_false(agent_report_read(slice_of(body.ptr, buf_len(&body) - 1), &got));
        }
        buf_fini(&body);
    }
}

UNIT_MAIN(cmocka_unit_test(agents_are_found_by_what_they_work_for),
          cmocka_unit_test(a_report_is_read_whole_or_not_at_all),
          cmocka_unit_test(too_many_agents_are_passed_over))
