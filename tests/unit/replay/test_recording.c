/* What a replay says of recordings that come out, that do not, and that make no sense. The
 * recordings of a real queue manager are played in core/test_sched_order and core/test_window. */
#include "recording.h"

#include <string.h>

#include "unit.h"

struct row {
    const char *recording;
    enum recording_verdict verdict;
    const char *said;
};

static void replay_rows(const struct row *rows, size_t count, recording_replay *replay)
{
    for (size_t i = 0; i < count; i++) {
        json_t *recording = json_loads(rows[i].recording, 0, NULL);
        enum recording_verdict verdict;
        struct buf said;

        assert_non_null(recording);
        buf_init(&said, 1 << 16);
        verdict = replay(recording, &said);
        assert_string_equal(buf_cstr(&said), rows[i].said);
        assert_int_equal(verdict, rows[i].verdict);
        buf_fini(&said);
        json_decref(recording);
    }
}

static void orders_are_compared_and_the_difference_is_marked(void **state)
{
    static const struct row rows[] = {
        {"{\"name\": \"x\", \"messages\": [2, 1], \"order\": [1, 1, 2]}", RECORDING_EQUAL,
         "x: ok\n"},
        {"{\"messages\": [15, 1], \"order\": [1, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]}",
         RECORDING_EQUAL, "(no name): ok\n"},
        {"{\"name\": \"x\", \"messages\": [2, 1], \"order\": [1, 2, 1]}", RECORDING_DIFFERS,
         "x: differs at delivery 2 of 3\n"
         "  recorded       1: 1 2 1\n"
         "  simulated      1: 1 1 2\n"
         "                      ^\n"},
        {"{\"name\": \"x\", \"messages\": [2], \"order\": [1]}", RECORDING_DIFFERS,
         "x: differs at delivery 2 of 1\n"
         "  recorded       1: 1\n"
         "  simulated      1: 1 1\n"
         "                      ^\n"},
    };

    (void)state;
    replay_rows(rows, COUNT(rows), order_recording_replay);
}

/* Of two that may overtake, the smaller one goes first when both are as old; when the second ticked
 * between their arrivals, the older one does. */
static void a_clock_that_ticks_at_another_time_is_told(void **state)
{
    static const struct row rows[] = {
        {"{\"name\": \"x\", \"params\": {\"delivery_slot_cost\": 2, \"delivery_slot_loan\": 0,"
         " \"delivery_slot_discount\": 0}, \"messages\": [12, 3, 2],"
         " \"order\": [1,1,1,1,3,3,1,1,1,1,1,1,2,2,2,1,1]}",
         RECORDING_EQUAL, "x: ok\n"},
        {"{\"name\": \"x\", \"params\": {\"delivery_slot_cost\": 2, \"delivery_slot_loan\": 0,"
         " \"delivery_slot_discount\": 0}, \"messages\": [12, 3, 2],"
         " \"order\": [1,1,1,1,1,1,2,2,2,1,1,1,1,3,3,1,1]}",
         RECORDING_EQUAL,
         "x: ok when the plug comes 0.6 s past a full second, mail 0.15 s apart, and the plug goes "
         "1.0 s later\n"},
    };

    (void)state;
    replay_rows(rows, COUNT(rows), order_recording_replay);
}

static void parameters_are_known_by_all_their_names(void **state)
{
    static const struct row rows[] = {
        {"{\"params\": {\"delivery_slot_cost\": 0}, \"messages\": [15, 1],"
         " \"order\": [1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,2]}",
         RECORDING_EQUAL, "(no name): ok\n"},
        {"{\"params\": {\"tst_delivery_slot_cost\": \"0\"}, \"messages\": [15, 1],"
         " \"order\": [1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,2]}",
         RECORDING_EQUAL, "(no name): ok\n"},
        {"{\"params\": {\"tst_delivery_slot_cost\": 0, \"default_delivery_slot_cost\": 5},"
         " \"messages\": [15, 1], \"order\": [1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,2]}",
         RECORDING_EQUAL, "(no name): ok\n"},
        /* the recorder's own setting of one delivery at a time is stronger */
        {"{\"params\": {\"default_destination_concurrency_limit\": 20, \"default_process_limit\": "
         "50,"
         " \"default_destination_recipient_limit\": 50}, \"messages\": [15, 1],"
         " \"order\": [1,2,1,1,1,1,1,1,1,1,1,1,1,1,1,1]}",
         RECORDING_EQUAL, "(no name): ok\n"},
        {"{\"params\": {\"qmgr_message_active_limit\": 10, \"recipient_refill_delay\": \"2s\","
         " \"helpful_warnings\": true}, \"messages\": [1], \"order\": [1]}",
         RECORDING_EQUAL, "(no name): ok\n"},
        {"{\"params\": {\"delivery_slot_cots\": 1}, \"messages\": [1], \"order\": [1]}",
         RECORDING_BAD,
         "params: unknown parameter `delivery_slot_cots', did you mean `delivery_slot_cost'?"},
        {"{\"params\": {\"delivery_slot_discount\": 101}, \"messages\": [1], \"order\": [1]}",
         RECORDING_BAD,
         "params: delivery_slot_discount: a number of per cent from 0 to 100 is expected"},
        {"{\"params\": {\"delivery_slot_cost\": null}, \"messages\": [1], \"order\": [1]}",
         RECORDING_BAD,
         "params: delivery_slot_cost: a number of entries from 0 to 100000 is expected"},
        {"{\"params\": [1], \"messages\": [1], \"order\": [1]}", RECORDING_BAD,
         "params: an object is expected"},
        {"{\"params\": {\"a_delivery_slot_cost\": 1, \"b_delivery_slot_loan\": 1},"
         " \"messages\": [1], \"order\": [1]}",
         RECORDING_BAD, "params: values of two transports, a and b"},
    };

    (void)state;
    replay_rows(rows, COUNT(rows), order_recording_replay);
}

static void orders_that_make_no_sense_are_refused(void **state)
{
    static const char messages[] =
        "messages: an array of 1 to 100000 whole numbers from 1 to 1000000 is expected";
    static const char order[] =
        "order: an array of 1 to 1000000 whole numbers from 1 to 1 is expected";
    static const struct row rows[] = {
        {"{}", RECORDING_BAD, messages},
        {"{\"messages\": []}", RECORDING_BAD, messages},
        {"{\"messages\": {\"a\": 1}}", RECORDING_BAD, messages},
        {"{\"messages\": [0]}", RECORDING_BAD, messages},
        {"{\"messages\": [1000001]}", RECORDING_BAD, messages},
        {"{\"messages\": [-9223372036854775808]}", RECORDING_BAD, messages},
        {"{\"messages\": [1.5]}", RECORDING_BAD, messages},
        {"{\"messages\": [1000000, 1], \"order\": [1]}", RECORDING_BAD,
         "messages: more than 1000000 recipients"},
        {"{\"messages\": [1]}", RECORDING_BAD, order},
        {"{\"messages\": [1], \"order\": [2]}", RECORDING_BAD, order},
    };

    (void)state;
    replay_rows(rows, COUNT(rows), order_recording_replay);
}

#define PARAMS                                                                                     \
    "\"name\": \"w\", \"params\": {\"initial_destination_concurrency\": 2,"                        \
    " \"destination_concurrency_limit\": 3, \"destination_concurrency_failed_cohort_limit\": 2},"

static void windows_are_compared_step_by_step(void **state)
{
    static const struct row rows[] = {
        {"{" PARAMS "\"steps\": [[\"+\", 3, 0, 0, 0], [\"+\", 3, 0, 0, 0]]}", RECORDING_EQUAL,
         "w: ok, 2 steps\n"},
        /* to death and back, with two deliveries running */
        {"{" PARAMS "\"steps\": [[\"-\", 1, 0, 1, 0.5], [\"-\", 1, 0, 1, 1.5],"
         " [\"-\", 0, 0, 1, 2.5], [\"+\", 2, 0, 0, 0]]}",
         RECORDING_EQUAL, "w: ok, 4 steps\n"},
        /* forgotten between two */
        {"{" PARAMS "\"steps\": [[\"-\", 1, 0, 1, 0.5], [\"+\", 3, 0, 0, 0]]}", RECORDING_EQUAL,
         "w: ok, 2 steps, the destination forgotten 1 time\n"},
        {"{" PARAMS "\"steps\": [[\"+\", 4, 0, 0, 0]]}", RECORDING_DIFFERS,
         "w: differs at step 1 of 1, a success\n"
         "  before    window 2, success 0, failure 0, failed cohorts 0\n"
         "  recorded  window 4, success 0, failure 0, failed cohorts 0\n"
         "  simulated window 3, success 0, failure 0, failed cohorts 0\n"},
        /* held back by the safety condition: not at the initial size, but above it */
        {"{" PARAMS "\"steps\": [[\"+\", 2, 0, 0, 0]]}", RECORDING_DIFFERS,
         "w: differs at step 1 of 1, a success\n"
         "  before    window 2, success 0, failure 0, failed cohorts 0\n"
         "  recorded  window 2, success 0, failure 0, failed cohorts 0\n"
         "  simulated window 3, success 0, failure 0, failed cohorts 0\n"},
        {"{\"name\": \"w\", \"params\": {\"tst_initial_destination_concurrency\": 1},"
         " \"steps\": [[\"+\", 2, 0, 0, 0], [\"+\", 2, 0, 0, 0]]}",
         RECORDING_EQUAL, "w: ok, 2 steps\n"},
    };

    (void)state;
    replay_rows(rows, COUNT(rows), window_recording_replay);
}

static void windows_that_make_no_sense_are_refused(void **state)
{
    static const char steps[] = "steps: an array of 1 to 1000000 steps is expected";
    static const char step[] = "steps: step 1: [\"+\" or \"-\", window, success, failure, failed "
                               "cohorts] is expected";
    static const struct row rows[] = {
        {"{}", RECORDING_BAD, steps},
        {"{\"steps\": []}", RECORDING_BAD, steps},
        {"{\"steps\": [1]}", RECORDING_BAD, step},
        {"{\"steps\": [[\"*\", 1, 0, 0, 0]]}", RECORDING_BAD, step},
        {"{\"steps\": [[\"+\", -1, 0, 0, 0]]}", RECORDING_BAD, step},
        {"{\"steps\": [[\"+\", 99999999999, 0, 0, 0]]}", RECORDING_BAD, step},
        {"{\"steps\": [[\"+\", 1.0, 0, 0, 0]]}", RECORDING_BAD, step},
        {"{\"steps\": [[\"+\", 1, 0, 0]]}", RECORDING_BAD, step},
        {"{\"steps\": [[\"+\", 1, 0, 0, \"0\"]]}", RECORDING_BAD, step},
    };

    (void)state;
    replay_rows(rows, COUNT(rows), window_recording_replay);
}

UNIT_MAIN(cmocka_unit_test(orders_are_compared_and_the_difference_is_marked),
          cmocka_unit_test(a_clock_that_ticks_at_another_time_is_told),
          cmocka_unit_test(parameters_are_known_by_all_their_names),
          cmocka_unit_test(orders_that_make_no_sense_are_refused),
          cmocka_unit_test(windows_are_compared_step_by_step),
          cmocka_unit_test(windows_that_make_no_sense_are_refused))
