/*
 * The order in which recipients are selected: recordings of a real Postfix, the worked examples of
 * its design, and vectors made with its scheduler's functions.
 */
#include "order_replay.h"

#include <stdio.h>
#include <string.h>

#include "check.h"
#include "mem.h"
#include "recorded_params.h"
#include "recordings.h"
#include "unit.h"

/* In the second, mail does not fit into memory at once: the active limit, which bounds the first
 * read of a message, is small. 8 of them come out otherwise when all is read at once. */
#define RECORDINGS        TEST_DATA_DIR "/postfix-order.jsonl"
#define RECORDINGS_REFILL TEST_DATA_DIR "/postfix-refill.jsonl"

#define MESSAGES_MAX 16
#define ORDER_MAX    1024

static void recorded_orders_come_out(void **state)
{
    (void)state;
    recordings_replay(RECORDINGS, 38, order_recording_replay);
}

static void recorded_orders_with_refills_come_out(void **state)
{
    (void)state;
    recordings_replay(RECORDINGS_REFILL, 28, order_recording_replay);
}

/* ---- worked examples and vectors ------------------------------------------------------------ */

/* "A20@0 B1@5": messages in order of letters with their counts and second of arrival. "Ax5 B": five
 * of A, one of B. */
struct vector {
    int cost, loan, discount, minimum;
    const char *input, *want;
};

static void expand(const char *text, char out[ORDER_MAX])
{
    size_t len = 0;

    while (*text != '\0') {
        char letter = *text++;
        unsigned long count = 1;
        char *end;

        if (letter == ' ') {
            continue;
        }
        if (*text == 'x') {
            count = strtoul(text + 1, &end, 10);
            text = end;
        }
        CHECK(len + count < ORDER_MAX);
        memset(out + len, letter, count);
        len += count;
    }
    out[len] = '\0';
}

/* Messages and when they come. Untimed, all come in the second in which all is selected. */
static size_t plan(const char *text, struct order_arrival arrivals[MESSAGES_MAX])
{
    size_t count = 0;

    while (*text != '\0') {
        int64_t second = 0;
        uint32_t recipients;
        char *end;

        CHECK(count < MESSAGES_MAX);
        assert_int_equal(*text, 'A' + (int)count);
        recipients = (uint32_t)strtoul(text + 1, &end, 10);
        if (*end == '@') {
            second = strtol(end + 1, &end, 10);
        }
        arrivals[count++] = (struct order_arrival){second * US_PER_S, recipients};
        text = *end == ' ' ? end + 1 : end;
    }
    return count;
}

static void run_vector(const struct vector *v)
{
    struct order_arrival arrivals[MESSAGES_MAX];
    struct recorded_params params;
    struct order_scenario scenario = {.arrivals = arrivals, .audit = true};
    char want[ORDER_MAX], got[ORDER_MAX];
    struct buf error;
    uint32_t *order;
    size_t count;

    buf_init(&error, 1000);
    assert_true(recorded_params_read(NULL, true, &params, &error));
    scenario.limits = params.limits;
    scenario.policy = params.policy;
    scenario.policy.slot_cost = v->cost;
    scenario.policy.slot_loan = v->loan;
    scenario.policy.slot_discount = v->discount;
    scenario.policy.minimum_slots = v->minimum;
    scenario.arrival_count = plan(v->input, arrivals);
    scenario.delivery_us =
        strchr(v->input, '@') != NULL ? US_PER_S : 0; /* one selection a second */
    order = order_replay(&scenario, &count);
    CHECK(count < ORDER_MAX);
    for (size_t i = 0; i < count; i++) {
        got[i] = (char)('A' + order[i]);
    }
    got[count] = '\0';
    mem_free(order);
    buf_fini(&error);
    expand(v->want, want);
    if (strcmp(got, want) != 0) {
        print_error("%d,%d,%d,%d %s\n", v->cost, v->loan, v->discount, v->minimum, v->input);
    }
    assert_string_equal(got, want);
}

static void vectors_of_the_program_come_out(void **state)
{
    static const struct vector vectors[] = {
        {5, 3, 50, 3, "A14 B1", "Ax14 B"},
        {5, 3, 50, 3, "A15 B1", "A B Ax14"},
        {5, 3, 50, 3, "A15 B3", "A Bx3 Ax14"},
        {5, 3, 50, 3, "A15 B4", "Ax15 Bx4"},
        {5, 3, 50, 3, "A50 B7", "Ax5 Bx7 Ax45"},
        {5, 3, 50, 3, "A50 B9", "Ax10 Bx9 Ax40"},
        {5, 3, 50, 3, "A50 B10", "Ax10 Bx10 Ax40"},
        {5, 3, 50, 3, "A50 B11", "Ax50 Bx11"},
        {5, 3, 50, 3, "A20 B1 C1 D1 E1", "A B Ax5 C Ax5 D Ax5 E Ax4"},
        {5, 0, 0, 3, "A20 B1 C1 D1 E1", "Ax5 B Ax5 C Ax5 D Ax5 E"},
        {2, 0, 0, 3, "A20 B1 C1 D1 E1", "Ax2 B Ax2 C Ax2 D Ax2 E Ax12"},
        {5, 3, 50, 3, "A40 B6 C3 D1", "A D Ax5 Cx3 Ax34 Bx6"},
        {2, 0, 0, 3, "A40 B8 C3 D1", "Ax2 D Ax6 Cx3 Ax16 Bx8 Ax16"},
        {5, 3, 50, 3, "A20 B3 C2 D1", "A D Ax5 Cx2 Ax14 Bx3"},
        {2, 0, 0, 3, "A30 B12 C2", "Ax4 Cx2 Ax24 Bx12 Ax2"},
        {2, 0, 0, 3, "A30@0 B1@5 C2@6 D1@20", "Ax5 B A Cx2 Ax11 D Ax13"},
        {2, 0, 0, 3, "A30@0 B3@1 C1@2 D1@3 E1@4", "Ax2 C Ax2 D Ax2 E Ax6 Bx3 Ax18"},
        {5, 3, 50, 3, "A30@0 B3@1 C1@2 D1@3 E1@4", "A Bx3 Ax15 C Ax5 D Ax5 E Ax4"},
        {0, 3, 50, 3, "A20 B1", "Ax20 B"},
        {1, 3, 50, 0, "A20 B1", "Ax20 B"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(vectors); i++) {
        run_vector(&vectors[i]);
    }
}

static void examples_of_the_design_come_out(void **state)
{
    static const struct vector vectors[] = {
        {5, 3, 50, 3, "A4 B1 C1 D1 E1", "AAAABCDE"},  {2, 3, 50, 3, "A4 B1 C1 D1 E1", "AAAABCDE"},
        {2, 0, 0, 0, "A4 B1 C1 D1 E1", "AABAACDE"},   {2, 0, 50, 0, "A4 B1 C1 D1 E1", "AABAACDE"},
        {2, 3, 50, 0, "A4 B1 C1 D1 E1", "ABAACADE"},  {2, 0, 100, 0, "A4 B1 C1 D1 E1", "ABAACADE"},
        {2, 0, 0, 3, "A10 B2 C2", "AAAABBAAAACCAA"},  {2, 0, 50, 3, "A10 B2 C2", "AABBAAAACCAAAA"},
        {2, 3, 50, 3, "A10 B2 C2", "ABBAAAACCAAAAA"}, {5, 3, 50, 3, "A10 B2 C2", "AAAAAAAAAABBCC"},
        {2, 0, 0, 0, "A4 B2 C2", "AAAABBCC"},         {2, 0, 50, 0, "A4 B2 C2", "AABBAACC"},
        {2, 3, 50, 0, "A4 B2 C2", "ABBAAACC"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(vectors); i++) {
        run_vector(&vectors[i]);
    }
}

UNIT_MAIN(cmocka_unit_test(recorded_orders_come_out),
          cmocka_unit_test(recorded_orders_with_refills_come_out),
          cmocka_unit_test(vectors_of_the_program_come_out),
          cmocka_unit_test(examples_of_the_design_come_out))
