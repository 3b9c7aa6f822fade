#include "bench.h"

#include <stdio.h>
#include <string.h>

#include "check.h"

struct sched_limits bench_limits(void)
{
    return (struct sched_limits){.message_active_limit = 10,
                                 .message_recipient_limit = 100,
                                 .message_recipient_minimum = 10,
                                 .minimal_backoff_us = 300 * S,
                                 .transport_retry_us = 60 * S};
}

struct sched_transport_policy bench_policy(void)
{
    return (struct sched_transport_policy){
        .window = {.rule = WINDOW_POSTFIX,
                   .initial = 5,
                   .max = 20,
                   .positive = {FEEDBACK_CONSTANT, 1},
                   .negative = {FEEDBACK_CONSTANT, 1},
                   .failed_cohort_limit = 1},
        .dest_recipient_limit = 50,
        .recipient_limit = 100,
        .extra_recipient_limit = 10,
        .refill_limit = 100,
        .refill_delay_us = 5 * S,
        .slot_cost = 5,
        .slot_loan = 3,
        .slot_discount = 50,
        .minimum_slots = 3,
    };
}

void bench_start(struct bench *b, const struct sched_limits *limits,
                 const struct sched_transport_policy *policy)
{
    *b = (struct bench){.now = {1000 * S}};
    b->s = sched_new(limits);
    assert_int_equal(sched_transport(b->s, b->now, "smtp", policy), 0);
}

void bench_end(struct bench *b)
{
    sched_audit(b->s);
    sched_free(b->s);
}

static void note(struct bench *b, const char *before, uint64_t msg, const struct sched_action *a)
{
    size_t at = strlen(b->story);

    (void)snprintf(b->story + at, sizeof b->story - at, "%s%sm%u:%.*s(%zu)", at > 0 ? " " : "",
                   before, (unsigned)msg, SLICE_ARGS(a->dest), a->rcpt_count);
}

static void note_mark(struct bench *b, const char *before, const char *name, const char *after)
{
    size_t at = strlen(b->story);

    (void)snprintf(b->story + at, sizeof b->story - at, "%s%s%s%s", at > 0 ? " " : "", before, name,
                   after);
}

static void answer(struct bench *b, uint64_t msg, uint32_t max)
{
    struct sched_rcpt rcpts[64];
    size_t count = 0;
    struct slice rest = slice_string(b->texts[msg]);

    while (rest.len > 0 && count < max) {
        struct slice word = slice_cut(&rest, ' ');
        uint32_t transport = slice_starts(word, SLICE("2/")) ? 1 : 0;

        rcpts[count] = (struct sched_rcpt){.n = (uint32_t)(word.ptr - b->texts[msg]),
                                           .transport = transport,
                                           .dest = slice_skip(word, transport == 1 ? 2 : 0)};
        count++;
    }
    b->texts[msg] = rest.len > 0 ? rest.ptr : "";
    sched_recipients(b->s, b->now, (struct sched_msg){msg}, rcpts, count, 0, rest.len == 0);
}

bool decide(struct bench *b)
{
    struct sched_action a;
    char name[32];

    if (sched_next(b->s, b->now, &a) == SCHED_NONE) {
        return false;
    }
    b->last = a;
    (void)snprintf(name, sizeof name, "%.*s", SLICE_ARGS(a.dest));
    switch (a.type) {
    case SCHED_NONE:
        break;
    case SCHED_READ:
        answer(b, a.msg.n, a.max);
        break;
    case SCHED_DELIVER:
        note(b, "", a.msg.n, &a);
        CHECK(b->running_count < BENCH_RUNNING_MAX);
        b->running[b->running_count].msg = a.msg.n;
        (void)snprintf(b->running[b->running_count].dest, 32, "%s", name);
        b->running[b->running_count++].entry = a.entry;
        break;
    case SCHED_DEFER:
        note(b, "-", a.msg.n, &a);
        break;
    case SCHED_DONE:
        (void)snprintf(name, sizeof name, "%u", (unsigned)a.msg.n);
        note_mark(b, "m", name, ".");
        break;
    case SCHED_PARK:
        note_mark(b, "p", name, ".");
        break;
    case SCHED_ADMIT:
        note_mark(b, "a", name, ".");
        break;
    case SCHED_DEST_DEAD:
        note_mark(b, "!", name, "");
        break;
    case SCHED_DEST_PROBED:
        note_mark(b, "?", name, "");
        break;
    case SCHED_DEST_REVIVED:
        note_mark(b, "*", name, "");
        break;
    }
    sched_audit(b->s);
    return true;
}

void open_msg(struct bench *b, uint64_t msg, const char *text)
{
    uint32_t count = 1;

    for (const char *c = text; *c != '\0'; c++) {
        count += *c == ' ';
    }
    b->texts[msg] = text;
    sched_open(b->s, b->now, (struct sched_msg){msg}, count, false);
}

struct sched_entry take(struct bench *b, uint64_t msg, const char *dest)
{
    for (size_t i = 0; i < b->running_count; i++) {
        if (b->running[i].msg == msg && strcmp(b->running[i].dest, dest) == 0) {
            struct sched_entry entry = b->running[i].entry;
            b->running[i] = b->running[--b->running_count];
            return entry;
        }
    }
    CHECK(false);
    return (struct sched_entry){0};
}

void finish(struct bench *b, uint64_t msg, const char *dest, enum sched_outcome outcome)
{
    assert_true(sched_finished(b->s, b->now, take(b, msg, dest), outcome, SLICE("4.4.1 refused")));
    sched_audit(b->s);
}
