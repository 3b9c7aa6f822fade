/*
 * How fast the scheduler decides, and how much memory what waits takes.
 *
 *   bench_core [SCENARIO]
 *
 * For each scenario and size: messages are opened and read until all wait, then deliveries are
 * started and finished in turn. Printed: decisions per second (a decision is one entry picked and
 * finished), bytes per waiting recipient and per job as the scheduler counts them, and resident
 * bytes per job as the kernel does.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "mem.h"
#include "rng.h"
#include "scheduler.h"

#define DECISIONS 1000000

struct scenario {
    const char *name;
    uint32_t jobs, dests;
    uint32_t rcpts_min, rcpts_max; /* per job */
    uint32_t window, running;      /* deliveries kept running */
    bool blocked;                  /* half of the first recipients go to one full destination */
};

struct bench {
    const struct scenario *scenario;
    struct sched *s;
    struct mono now;
    struct rng rng;
    uint32_t opened, last_count;
    char (*names)[32];
    struct sched_rcpt *rcpts;
    struct sched_entry *running;
    uint32_t first, count;
    uint64_t delivered;
};

static double seconds(void)
{
    struct timespec t;

    CHECK(clock_gettime(CLOCK_MONOTONIC, &t) == 0);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static double resident_bytes(void)
{
    long pages = 0;
    FILE *in = fopen("/proc/self/statm", "r");

    CHECK(in != NULL);
    CHECK(fscanf(in, "%*d %ld", &pages) == 1);
    CHECK(fclose(in) == 0);
    return (double)pages * (double)sysconf(_SC_PAGESIZE);
}

static void answer(struct bench *b, struct sched_msg msg, uint32_t max)
{
    const struct scenario *sc = b->scenario;
    uint32_t count = b->last_count < max ? b->last_count : max;

    for (uint32_t i = 0; i < count; i++) {
        uint32_t dest = (uint32_t)rng_below(&b->rng, sc->dests);

        if (sc->blocked && rng_below(&b->rng, 2) == 0) {
            dest = 0;
        }
        b->rcpts[i] =
            (struct sched_rcpt){.n = i, .dest = slice_of(b->names[dest], strlen(b->names[dest]))};
    }
    b->last_count -= count;
    sched_recipients(b->s, b->now, msg, b->rcpts, count, 0, b->last_count == 0);
}

/* Read what is asked for, and keep `running` deliveries going. In the blocked scenarios those to
 * the first destination never end. */
static void pull(struct bench *b)
{
    struct sched_action a;

    while (b->count < b->scenario->running && sched_next(b->s, b->now, &a) != SCHED_NONE) {
        if (a.type == SCHED_READ) {
            answer(b, a.msg, a.max);
        } else if (a.type == SCHED_DELIVER) {
            b->delivered++;
            if (!b->scenario->blocked || !slice_equal(a.dest, slice_string(b->names[0]))) {
                b->running[(b->first + b->count++) % b->scenario->running] = a.entry;
            }
        }
    }
}

static void open_all(struct bench *b)
{
    const struct scenario *sc = b->scenario;
    struct sched_action a;

    for (; b->opened < sc->jobs; b->opened++) {
        b->now.us += 50;
        b->last_count = sc->rcpts_min;
        if (sc->rcpts_max > sc->rcpts_min && b->opened % 10 == 0) {
            b->last_count += (uint32_t)rng_below(&b->rng, sc->rcpts_max - sc->rcpts_min);
        }
        sched_open(b->s, b->now, (struct sched_msg){b->opened + 1}, b->last_count, false);
        while (b->last_count > 0) {
            CHECK(sched_next(b->s, b->now, &a) != SCHED_NONE);
            if (a.type == SCHED_READ) {
                answer(b, a.msg, a.max);
            } else { /* a long job is read on between selections */
                CHECK(sched_unselect(b->s, b->now, a.entry));
            }
        }
    }
}

/* Finish the oldest delivery and start others, until enough were started or all is done. */
static void work(struct bench *b, uint64_t deliveries)
{
    uint64_t until = b->delivered + deliveries;

    pull(b);
    while (b->delivered < until && b->count > 0) {
        struct sched_entry e = b->running[b->first];

        b->first = (b->first + 1) % b->scenario->running;
        b->count--;
        b->now.us += 2;
        CHECK(sched_finished(b->s, b->now, e, SCHED_OK, slice_of("", 0)));
        pull(b);
    }
}

static void run(const struct scenario *sc)
{
    struct sched_limits limits = {.message_active_limit = 10000000,
                                  .message_recipient_limit = 100000000,
                                  .message_recipient_minimum = 10000000,
                                  .minimal_backoff_us = 300 * US_PER_S,
                                  .transport_retry_us = 60 * US_PER_S};
    struct sched_transport_policy policy = {
        .window = {.rule = WINDOW_POSTFIX,
                   .initial = sc->window,
                   .max = sc->window,
                   .positive = {FEEDBACK_CONSTANT, 1},
                   .negative = {FEEDBACK_CONSTANT, 1},
                   .failed_cohort_limit = 1},
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
    struct bench b = {.scenario = sc, .now = {1000 * US_PER_S}};
    double resident, start, loading, working;
    struct sched_totals full;
    uint64_t delivered;

    rng_init(&b.rng, 7);
    b.names = mem_array(sc->dests, sizeof *b.names);
    for (uint32_t i = 0; i < sc->dests; i++) {
        (void)snprintf(b.names[i], sizeof b.names[i], "d%u.example", i); /* fits */
    }
    b.rcpts = mem_array(SCHED_READ_MAX, sizeof *b.rcpts);
    b.running = mem_array(sc->running, sizeof *b.running);
    b.s = sched_new(&limits);
    (void)sched_transport(b.s, b.now, "smtp", &policy); /* the only one: index 0 */
    resident = resident_bytes();
    start = seconds();
    open_all(&b);
    loading = seconds() - start;
    resident = resident_bytes() - resident;
    full = sched_totals(b.s);
    start = seconds();
    delivered = b.delivered;
    work(&b, DECISIONS);
    working = seconds() - start;
    delivered = b.delivered - delivered;
    printf("%-28s %8" PRIu32 " %8" PRIu32 " %9" PRIu32 " %10.0f %10.0f %8.0f %8.0f %8.0f\n",
           sc->name, sc->jobs, sc->dests, full.recipients, (double)delivered / working,
           full.recipients / loading, (double)full.bytes / full.recipients,
           (double)full.bytes / sc->jobs, resident / full.recipients);
    sched_free(b.s);
    mem_free(b.names);
    mem_free(b.rcpts);
    mem_free(b.running);
}

int main(int argc, char **argv)
{
    static const struct scenario scenarios[] = {
        {"one recipient", 1000, 10, 1, 1, 20, 100, false},
        {"one recipient", 10000, 100, 1, 1, 20, 100, false},
        {"one recipient", 100000, 1000, 1, 1, 20, 100, false},
        {"one recipient", 1000000, 1000, 1, 1, 20, 100, false},
        {"one recipient, many sites", 100000, 100000, 1, 1, 20, 100, false},
        {"one recipient, many sites", 1000000, 100000, 1, 1, 20, 100, false},
        {"one recipient, ten sites", 1000000, 10, 1, 1, 20, 100, false},
        {"mixed", 1000, 100, 1, 100, 20, 100, false},
        {"mixed", 100000, 1000, 1, 100, 20, 100, false},
        {"half of it blocked", 1000, 100, 1, 1, 20, 100, true},
        {"half of it blocked", 100000, 1000, 1, 1, 20, 100, true},
        {"half of it blocked", 1000000, 1000, 1, 1, 20, 100, true},
        {"mixed, half of it blocked", 100000, 1000, 1, 100, 20, 100, true},
        {"windows of one", 100000, 1000, 1, 1, 1, 1000, false},
        {"windows of one", 1000000, 1000, 1, 1, 1, 1000, false},
        {"one job", 1, 1000, 1000000, 1000000, 20, 100, false},
    };

    printf("%-28s %8s %8s %9s %10s %10s %8s %8s %8s\n", "scenario", "jobs", "sites", "waiting",
           "decided/s", "loaded/s", "B/rcpt", "B/job", "RSS/rcpt");
    for (size_t i = 0; i < sizeof scenarios / sizeof scenarios[0]; i++) {
        if (argc < 2 || strcmp(argv[1], scenarios[i].name) == 0) {
            run(&scenarios[i]);
        }
    }
    return 0;
}
