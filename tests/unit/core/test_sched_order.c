/*
 * The order in which recipients are selected: recordings of a real Postfix, the worked examples of
 * its design, and vectors made with its scheduler's functions.
 */
#include "scheduler.h"

#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include "check.h"
#include "unit.h"

#define RECORDINGS TEST_DATA_DIR "/postfix-order.jsonl"

#define MESSAGES_MAX 16
#define ORDER_MAX    1024
#define PLUG         1000 /* the message that keeps the only process busy at first */

struct play {
    struct sched *s;
    struct mono now;
    uint32_t counts[MESSAGES_MAX], read[MESSAGES_MAX]; /* recipients, from 1 */
    struct sched_entry running;
    char order[ORDER_MAX]; /* a letter per delivery */
    size_t len;
};

static const struct sched_transport_policy usual = {
    .window = {.rule = WINDOW_POSTFIX,
               .initial = 1,
               .max = 1,
               .positive = {FEEDBACK_CONSTANT, 1},
               .negative = {FEEDBACK_CONSTANT, 1},
               .failed_cohort_limit = 1},
    .process_limit = 1,
    .dest_recipient_limit = 1,
    .recipient_limit = 20000,
    .extra_recipient_limit = 1000,
    .refill_limit = 100,
    .refill_delay_us = 5 * US_PER_S,
    .slot_cost = 5,
    .slot_loan = 3,
    .slot_discount = 50,
    .minimum_slots = 3,
};

static const struct sched_limits usual_limits = {
    .message_active_limit = 20000,
    .message_recipient_limit = 20000,
    .message_recipient_minimum = 10,
    .minimal_backoff_us = 300 * US_PER_S,
    .transport_retry_us = 60 * US_PER_S,
};

/* Every recipient is a destination of its own, named so that names sort as they are read. */
static void answer(struct play *p, const struct sched_action *a)
{
    static struct sched_rcpt rcpts[SCHED_READ_MAX];
    static char names[SCHED_READ_MAX][32];
    uint32_t total = a->msg.n == PLUG ? 1 : p->counts[a->msg.n];
    uint32_t *read = &p->read[a->msg.n == PLUG ? 0 : a->msg.n], count = total - *read;

    if (count > a->max) {
        count = a->max;
    }
    for (uint32_t i = 0; i < count; i++) {
        int len =
            snprintf(names[i], sizeof names[i], "r%05u@m%llu", *read, (unsigned long long)a->msg.n);
        rcpts[i] = (struct sched_rcpt){.n = (*read)++, .dest = slice_of(names[i], (size_t)len)};
    }
    sched_recipients(p->s, p->now, a->msg, rcpts, count, 0, *read == total);
}

/* Decisions until there are none. The one delivery that is started is noted. */
static void pull(struct play *p)
{
    struct sched_action a;

    while (sched_next(p->s, p->now, &a) != SCHED_NONE) {
        sched_audit(p->s);
        if (a.type == SCHED_READ) {
            answer(p, &a);
        } else if (a.type == SCHED_DELIVER) {
            p->running = a.entry;
            assert_int_equal(a.rcpt_count, 1);
            if (a.msg.n != PLUG) {
                CHECK(p->len + 1 < ORDER_MAX);
                p->order[p->len++] = (char)('A' + a.msg.n - 1);
            }
        } else {
            assert_int_equal(a.type, SCHED_DONE);
        }
        sched_audit(p->s);
    }
}

static void finish(struct play *p)
{
    struct sched_entry ended = p->running;

    p->running.n = 0;
    assert_true(sched_finished(p->s, p->now, ended, SCHED_OK, slice_of("", 0)));
    pull(p);
}

static void arrive(struct play *p, uint32_t n, uint32_t recipients)
{
    CHECK(n < MESSAGES_MAX);
    if (n > 0) {
        p->counts[n] = recipients;
    }
    sched_open(p->s, p->now, (struct sched_msg){n == 0 ? PLUG : n}, recipients, false);
    pull(p);
}

static void play_start(struct play *p, const struct sched_limits *limits,
                       const struct sched_transport_policy *policy)
{
    *p = (struct play){.now = {1000 * US_PER_S}};
    p->s = sched_new(limits);
    assert_int_equal(sched_transport(p->s, p->now, "test", policy), 0);
}

static void play_end(struct play *p)
{
    assert_int_equal(sched_totals(p->s).messages, 0);
    assert_int_equal(sched_totals(p->s).destinations, 0);
    sched_free(p->s);
    p->order[p->len] = '\0';
}

/* ---- recordings ----------------------------------------------------------------------------- */

static uint32_t whole(const json_t *params, const char *name, uint32_t otherwise)
{
    const json_t *value = json_object_get(params, name);

    return value != NULL ? (uint32_t)json_integer_value(value) : otherwise;
}

static void replay(const json_t *recording)
{
    const json_t *params = json_object_get(recording, "params");
    const json_t *messages = json_object_get(recording, "messages");
    const json_t *order = json_object_get(recording, "order");
    struct sched_transport_policy policy = usual;
    struct sched_limits limits = usual_limits;
    char want[ORDER_MAX] = "";
    struct play p;

    policy.slot_cost = (int)whole(params, "delivery_slot_cost", 5);
    policy.slot_loan = (int)whole(params, "delivery_slot_loan", 3);
    policy.slot_discount = (int)whole(params, "delivery_slot_discount", 50);
    policy.minimum_slots = (int)whole(params, "minimum_delivery_slots", 3);
    policy.recipient_limit = whole(params, "recipient_limit", 20000);
    policy.extra_recipient_limit = whole(params, "extra_recipient_limit", 1000);
    policy.refill_limit = whole(params, "recipient_refill_limit", 100);
    policy.refill_delay_us = whole(params, "recipient_refill_delay", 5) * US_PER_S;
    /* A limit below the active limit is raised to it, which the recorder left at its default. */
    limits.message_recipient_limit = whole(params, "qmgr_message_recipient_limit", 20000);
    if (limits.message_recipient_limit < limits.message_active_limit) {
        limits.message_recipient_limit = limits.message_active_limit;
    }
    limits.message_recipient_minimum = whole(params, "qmgr_message_recipient_minimum", 10);
    play_start(&p, &limits, &policy);
    arrive(&p, 0, 1);
    for (size_t i = 0; i < json_array_size(messages); i++) {
        p.now.us += 150 * US_PER_MS;
        arrive(&p, (uint32_t)i + 1, (uint32_t)json_integer_value(json_array_get(messages, i)));
    }
    p.now.us += US_PER_S;
    while (p.running.n != 0) {
        finish(&p);
        p.now.us += 70 * US_PER_MS;
    }
    play_end(&p);
    for (size_t i = 0; i < json_array_size(order); i++) {
        want[i] = (char)('A' + json_integer_value(json_array_get(order, i)) - 1);
    }
    if (strcmp(p.order, want) != 0) {
        print_error("%s\n", json_string_value(json_object_get(recording, "name")));
    }
    assert_string_equal(p.order, want);
}

static void recorded_orders_come_out(void **state)
{
    FILE *in = fopen(RECORDINGS, "r");
    json_t *recording;
    size_t count = 0;

    (void)state;
    assert_non_null(in);
    while ((recording = json_loadf(in, JSON_DISABLE_EOF_CHECK, NULL)) != NULL) {
        replay(recording);
        json_decref(recording);
        count++;
    }
    assert_int_equal(fclose(in), 0);
    assert_true(count >= 38);
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

static void run_vector(const struct vector *v)
{
    struct sched_transport_policy policy = usual;
    uint32_t counts[MESSAGES_MAX] = {0}, at[MESSAGES_MAX] = {0}, messages = 0, second = 0, next;
    bool timed = strchr(v->input, '@') != NULL;
    char want[ORDER_MAX];
    const char *text = v->input;
    struct play p;

    while (*text != '\0') {
        char *end;
        assert_int_equal(*text, 'A' + (int)messages);
        counts[++messages] = (uint32_t)strtoul(text + 1, &end, 10);
        if (*end == '@') {
            at[messages] = (uint32_t)strtoul(end + 1, &end, 10);
        }
        text = *end == ' ' ? end + 1 : end;
    }
    policy.slot_cost = v->cost;
    policy.slot_loan = v->loan;
    policy.slot_discount = v->discount;
    policy.minimum_slots = v->minimum;
    play_start(&p, &usual_limits, &policy);
    arrive(&p, 0, 1);
    for (next = 1; next <= messages && at[next] == 0; next++) {
        arrive(&p, next, counts[next]);
    }
    /* One selection a second, after what arrives in it. */
    while (p.running.n != 0) {
        for (; next <= messages && at[next] <= second; next++) {
            arrive(&p, next, counts[next]);
        }
        finish(&p);
        if (timed) {
            second++;
            p.now.us += US_PER_S;
        }
    }
    play_end(&p);
    expand(v->want, want);
    if (strcmp(p.order, want) != 0) {
        print_error("%d,%d,%d,%d %s\n", v->cost, v->loan, v->discount, v->minimum, v->input);
    }
    assert_string_equal(p.order, want);
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
          cmocka_unit_test(vectors_of_the_program_come_out),
          cmocka_unit_test(examples_of_the_design_come_out))
