#include "unit.h"

#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ta_agent.h"

static int ends[2]; /* ours, the agent's */
static struct ta_agent agent;

static int begin(void **state)
{
    (void)state;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) {
        return -1;
    }
    ta_agent_init(&agent, "test", SLICE("smtp"), ends[1], ends[1]);
    agent.pid = 4711;
    return 0;
}

static int end(void **state)
{
    (void)state;
    ta_agent_fini(&agent);
    (void)close(ends[0]);
    (void)close(ends[1]);
    return 0;
}

static void send_text(const char *text)
{
    assert_int_equal(write(ends[0], text, strlen(text)), strlen(text));
}

static void want_said(const char *want)
{
    char got[1000];
    ssize_t n = recv(ends[0], got, sizeof got - 1, MSG_DONTWAIT);

    got[n < 0 ? 0 : n] = '\0';
    assert_string_equal(got, want);
}

static void want_job(const char *path, const char *host)
{
    struct ta_order order;

    assert_true(ta_agent_wait(&agent, &order));
    assert_int_equal(order.type, TA_ORDER_JOB);
    assert_true(slice_equal(order.path, slice_string(path)));
    assert_true(slice_equal(order.host, slice_string(host)));
}

static void want_end(void)
{
    struct ta_order order;

    assert_false(ta_agent_wait(&agent, &order));
    assert_true(agent.stop);
}

static void orders_come_one_by_one_however_they_arrive(void **state)
{
    struct ta_order order;

    (void)state;
    send_text("A/1\tmx.example\nB/2\tmx");
    want_job("A/1", "mx.example");
    send_text(".example\n#idle\n33\n");
    want_job("B/2", "mx.example");
    assert_true(ta_agent_wait(&agent, &order));
    assert_int_equal(order.type, TA_ORDER_IDLE);
    want_job("33", "");
    send_text("\n4\n");
    want_end();
    want_end();
}

static void part_of_a_line_at_the_end_is_no_order(void **state)
{
    (void)state;
    send_text("A/1\tmx\nA/2\tm");
    assert_int_equal(shutdown(ends[0], SHUT_WR), 0);
    want_job("A/1", "mx");
    want_end();
    assert_int_equal(agent.exit_status, 0);
}

static void a_line_without_end_ends_the_agent(void **state)
{
    char flood[TA_AGENT_ORDER_MAX + 2];

    (void)state;
    memset(flood, 'x', sizeof flood);
    assert_int_equal(write(ends[0], flood, sizeof flood), sizeof flood);
    want_end();
}

static void answers_are_lines(void **state)
{
    char long_text[TA_LINE_MAX + 10];

    (void)state;
    ta_agent_hungry(&agent);
    ta_agent_comment(&agent, "%s: byte %d", "A/1", 7);
    ta_agent_comment(&agent, "%s", "two\nlines");
    memset(long_text, 'x', sizeof long_text - 1);
    long_text[sizeof long_text - 1] = '\0';
    ta_agent_comment(&agent, "%s", long_text);
    ta_agent_resync(&agent, SLICE("A/1"));
    want_said("#hungry\n# test[4711]: A/1: byte 7\n#resync A/1\n");
}

/* The scheduler is gone: nothing dies of it, and what is under way can be brought to its end. */
static void nobody_listens(void **state)
{
    (void)state;
    send_text("A/1\tmx\n");
    want_job("A/1", "mx");
    (void)close(ends[0]);
    ta_agent_hungry(&agent);
    assert_true(agent.gone);
    ta_agent_hungry(&agent);
    want_end();
}

/* Last, because a process is asked to quit only once. */
static void a_signal_ends_it_between_jobs(void **state)
{
    (void)state;
    send_text("A/1\tmx\nA/2\tmx\n");
    want_job("A/1", "mx");
    assert_int_equal(raise(SIGQUIT), 0); /* blocked during the job */
    want_end();
}

UNIT_MAIN(cmocka_unit_test_setup_teardown(orders_come_one_by_one_however_they_arrive, begin, end),
          cmocka_unit_test_setup_teardown(part_of_a_line_at_the_end_is_no_order, begin, end),
          cmocka_unit_test_setup_teardown(a_line_without_end_ends_the_agent, begin, end),
          cmocka_unit_test_setup_teardown(answers_are_lines, begin, end),
          cmocka_unit_test_setup_teardown(nobody_listens, begin, end),
          cmocka_unit_test_setup_teardown(a_signal_ends_it_between_jobs, begin, end))
