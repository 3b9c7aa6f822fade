/*
 * The journal of events as the simulator's input: a recorded day, run again with nothing changed,
 * has the delays that it really had.
 */
#include "trace_event.h"

#include <stdio.h>
#include <string.h>

#include "histogram.h"
#include "mem.h"
#include "trace.h"
#include "unit.h"
#include "world.h"

#define MESSAGES_MAX 100000
/* 2026-11-21: the day's midnight, as events tell times. */
#define MIDNIGHT_S INT64_C(1795219200)

#define CONF                                                                                       \
    "myhostname = mx.example.org\nminimal_backoff_time = 200s\nmaximal_backoff_time = 1200s\n"     \
    "queue_run_delay = 200s\n"

/* The day writes its journal: what the daemon would have written. */
struct recorder {
    struct trace_reader *reader;
    int64_t *begun_us; /* by message: the delivery that is under way; -1: none */
    int64_t *arrived_us;
    struct histogram delays;
};

__attribute__((format(printf, 2, 3))) static void tell(struct recorder *r, const char *format, ...)
{
    char line[1024];
    va_list args;
    int n;

    va_start(args, format);
    n = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    assert_in_range(n, 1, sizeof line - 1);
    trace_reader_line(r->reader, slice_of(line, (size_t)n));
}

static double seconds(struct mono t)
{
    return (double)MIDNIGHT_S + (double)t.us / (double)US_PER_S;
}

static void on_arrived(void *arg, struct mono now, uint64_t message, uint32_t rcpts)
{
    struct recorder *r = arg;

    assert_in_range(message, 1, MESSAGES_MAX - 1);
    assert_int_equal(rcpts, 1); /* so that a message has one delivery at a time */
    r->arrived_us[message] = now.us;
    r->begun_us[message] = -1;
    tell(r,
         "{\"time\":%.6f,\"event\":\"received\",\"queue_id\":\"M%d\",\"sender\":\"a@b.example\","
         "\"recipients\":1,\"size\":4096}",
         seconds(now), (int)message);
}

static void on_decided(void *arg, struct mono now, uint64_t message,
                       const struct sched_action *action)
{
    struct recorder *r = arg;

    if (action->type == SCHED_DELIVER) {
        r->begun_us[message] = now.us;
    }
}

static void on_settled(void *arg, struct mono now, uint64_t message, uint32_t rcpt_n,
                       const char *destination, enum sim_disposition disposition)
{
    static const char *const events[] = {"delivered", "deferred", "bounced", "expired"};
    static const char *const statuses[] = {"2.0.0", "4.2.0", "5.1.1", "4.2.0"};
    struct recorder *r = arg;
    int64_t begun_us = r->begun_us[message];
    bool down = now.us >= 12 * 3600 * US_PER_S && now.us < 13 * 3600 * US_PER_S &&
                strstr(destination, "down.example") != NULL;
    char delays[128] = "";

    r->begun_us[message] = -1;
    if (begun_us >= 0) {
        snprintf(delays, sizeof delays,
                 ",\"delays\":{\"queued\":0,\"active\":0,\"setup\":0,\"transmit\":%.6f}",
                 (double)(now.us - begun_us) / (double)US_PER_S);
    }
    if (disposition == SIM_DISPOSITION_SENT) {
        histogram_add(&r->delays, now.us - r->arrived_us[message]);
    }
    tell(r,
         "{\"time\":%.6f,\"event\":\"%s\",\"queue_id\":\"M%d\",\"sender\":\"a@b.example\","
         "\"recipient\":\"u%d@%s\",\"destination\":\"%s\",\"status\":\"%s\"%s}",
         seconds(now), events[disposition], (int)message, (int)rcpt_n, strchr(destination, '/') + 1,
         destination, down ? "4.4.1" : statuses[disposition], delays);
}

static void record(const char *workload, struct recorder *r)
{
    struct test_world day;

    *r = (struct recorder){.reader = trace_reader_new(),
                           .begun_us = mem_array(MESSAGES_MAX, sizeof *r->begun_us),
                           .arrived_us = mem_array(MESSAGES_MAX, sizeof *r->arrived_us)};
    histogram_init(&r->delays);
    test_world_open(
        &day, CONF, workload, 7,
        &(struct sim_hooks){
            .arg = r, .arrived = on_arrived, .decided = on_decided, .settled = on_settled},
        NULL);
    test_world_run(&day);
    test_world_close(&day);
    mem_free(r->begun_us);
    mem_free(r->arrived_us);
}

static void within(int64_t have, int64_t want, double part)
{
    if ((double)have > (double)want * (1 + part) || (double)have < (double)want * (1 - part)) {
        fail_msg("%lld us is not within %.0f %% of %lld us", (long long)have, part * 100,
                 (long long)want);
    }
}

/* docs/simulator.md promises these parts: half of the mail, and nine in ten, within a tenth; of 99
 * in a hundred within a quarter. */
static void runs_as_it_was(const char *workload)
{
    struct recorder day;
    struct test_world again;
    struct trace *trace;

    record(workload, &day);
    trace = trace_reader_finish(day.reader);
    assert_true(trace->message_count > 1000);
    assert_int_equal(trace->incomplete, 0);
    test_world_open(&again, CONF, "duration 24h", 1, NULL, trace);
    test_world_run(&again);
    within((int64_t)again.result->total.sent, (int64_t)day.delays.count, 0.01);
    within(histogram_quantile(&again.result->total.delay, 500),
           histogram_quantile(&day.delays, 500), 0.1);
    within(histogram_quantile(&again.result->total.delay, 900),
           histogram_quantile(&day.delays, 900), 0.1);
    within(histogram_quantile(&again.result->total.delay, 990),
           histogram_quantile(&day.delays, 990), 0.25);
    test_world_close(&again);
    trace_free(trace);
    histogram_fini(&day.delays);
}

static void a_calm_day_is_as_it_was(void **unused)
{
    (void)unused;
    runs_as_it_was("site * setup=50ms latency=lognormal(300ms,0.7)\n"
                   "arrivals people rate=20/m to=zipf(50,1.1)\nduration 24h\n");
}

static void a_day_with_refusals_and_an_outage_is_as_it_was(void **unused)
{
    (void)unused;
    runs_as_it_was("site grey.example greylist=4m latency=200ms fail=3%\n"
                   "site down.example latency=exponential(300ms) outage=12h..13h:refuse\n"
                   "site busy.example latency=1s defer=20%\n"
                   "arrivals grey rate=5/m to=grey.example\n"
                   "arrivals down rate=5/m to=down.example\n"
                   "arrivals busy rate=5/m to=busy.example\nduration 24h\n");
}

static void a_day_with_a_queue_is_as_it_was(void **unused)
{
    (void)unused;
    runs_as_it_was("site slow.example latency=5s\n"
                   "arrivals letter at=1h count=3000 to=slow.example\n"
                   "arrivals people rate=2/m to=slow.example\nduration 24h\n");
}

UNIT_MAIN(cmocka_unit_test(a_calm_day_is_as_it_was),
          cmocka_unit_test(a_day_with_refusals_and_an_outage_is_as_it_was),
          cmocka_unit_test(a_day_with_a_queue_is_as_it_was))
