/*
 * How fast the scheduler decides, and how much memory what waits takes.
 *
 *   bench_core [SCENARIO [JOBS [DECISIONS]]]
 *
 * For each scenario and size: messages are opened and read until all wait, then deliveries are
 * started and finished in turn. Printed: decisions per second of processor time (a decision is one
 * entry picked and finished), the rate with 10^3 jobs divided by this one, bytes per waiting
 * recipient and per job as the scheduler counts them, and resident bytes per job as the kernel
 * does. Under callgrind, --toggle-collect=work counts the instructions of the decisions alone.
 */
#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
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
    enum {
        PLAIN,
        BLOCKED,   /* half of the recipients go to one destination, which stays full */
        DIFFERENT, /* jobs of 1 to `jobs` recipients, each of another size, hardly read */
        RING,      /* all destinations share agents, which are all in use */
    } kind;
};

struct bench {
    const struct scenario *scenario;
    struct sched *s;
    struct mono now;
    struct rng rng;
    uint32_t opened;
    uint32_t *left; /* to be read, by message */
    char (*names)[32];
    struct sched_rcpt *rcpts;
    struct sched_entry *running;
    uint32_t first, count;
    uint64_t delivered;
};

static double seconds(void)
{
    struct timespec t;

    CHECK(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t) == 0);
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

static struct sched_transport_policy policy_of(const struct scenario *sc)
{
    return (struct sched_transport_policy){
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
}

static void answer(struct bench *b, struct sched_msg msg, uint32_t max)
{
    const struct scenario *sc = b->scenario;
    uint32_t *left = &b->left[msg.n - 1], count = *left < max ? *left : max;

    for (uint32_t i = 0; i < count; i++) {
        uint32_t dest = (uint32_t)rng_below(&b->rng, sc->dests);

        if (sc->kind == BLOCKED && rng_below(&b->rng, 2) == 0) {
            dest = 0;
        }
        b->rcpts[i] = (struct sched_rcpt){.n = *left - i,
                                          .dest = slice_of(b->names[dest], strlen(b->names[dest]))};
    }
    *left -= count;
    sched_recipients(b->s, b->now, msg, b->rcpts, count, 0, *left == 0);
    for (uint32_t i = 0; i < count && sc->kind == RING; i++) {
        struct sched_dest_policy policy = {.window = policy_of(sc).window, .ring = 1, .depth = 1};

        sched_dest_policy(b->s, b->now, 0, b->rcpts[i].dest, &policy);
    }
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
            if (b->scenario->kind != BLOCKED || !slice_equal(a.dest, slice_string(b->names[0]))) {
                b->running[(b->first + b->count++) % b->scenario->running] = a.entry;
            }
        }
    }
}

static uint32_t size_of(struct bench *b, uint32_t i)
{
    const struct scenario *sc = b->scenario;

    if (sc->kind == DIFFERENT) {
        return (uint32_t)((uint64_t)i * 7919 % sc->jobs) + 1; /* a permutation, 7919 is prime */
    }
    if (sc->rcpts_max > sc->rcpts_min && i % 10 == 0) {
        return sc->rcpts_min + (uint32_t)rng_below(&b->rng, sc->rcpts_max - sc->rcpts_min + 1);
    }
    return sc->rcpts_min;
}

static void open_all(struct bench *b)
{
    const struct scenario *sc = b->scenario;
    struct sched_action a;

    for (; b->opened < sc->jobs; b->opened++) {
        uint32_t *left = &b->left[b->opened];

        b->now.us += 50;
        *left = size_of(b, b->opened);
        sched_open(b->s, b->now, (struct sched_msg){b->opened + 1}, *left, false);
        do {
            CHECK(sched_next(b->s, b->now, &a) != SCHED_NONE);
            if (a.type == SCHED_READ) {
                answer(b, a.msg, a.max);
            } else { /* a long job is read on between selections */
                CHECK(sched_unselect(b->s, b->now, a.entry));
            }
        } while (*left > 0 && sc->kind != DIFFERENT);
    }
}

/* Finish the oldest delivery and start others, until enough were started or all is done. */
__attribute__((noinline)) static void work(struct bench *b, uint64_t deliveries)
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

static struct sched_limits limits_of(const struct scenario *sc)
{
    return (struct sched_limits){.message_active_limit = sc->jobs,
                                 .message_recipient_limit =
                                     sc->kind == DIFFERENT ? sc->jobs : 100000000,
                                 .message_recipient_minimum = sc->kind == DIFFERENT ? 5 : 10000000,
                                 .minimal_backoff_us = 300 * US_PER_S,
                                 .transport_retry_us = 60 * US_PER_S};
}

static void bench_init(struct bench *b, const struct scenario *sc)
{
    struct sched_limits limits = limits_of(sc);
    struct sched_transport_policy policy = policy_of(sc);

    *b = (struct bench){.scenario = sc, .now = {1000 * US_PER_S}};
    rng_init(&b->rng, 7);
    b->names = mem_array(sc->dests, sizeof *b->names);
    for (uint32_t i = 0; i < sc->dests; i++) {
        (void)snprintf(b->names[i], sizeof b->names[i], "d%u.example", i); /* fits */
    }
    b->left = mem_array(sc->jobs, sizeof *b->left);
    b->rcpts = mem_array(SCHED_READ_MAX, sizeof *b->rcpts);
    b->running = mem_array(sc->running, sizeof *b->running);
    b->s = sched_new(&limits);
    (void)sched_transport(b->s, b->now, "smtp", &policy); /* the only one: index 0 */
    if (sc->kind == RING) {
        struct sched_ring_policy ring = {.ring_limit = sc->running - 1};

        sched_ring(b->s, b->now, 0, 1, &ring);
    }
    memset(b->left, 1, sc->jobs * sizeof *b->left); /* resident before it is measured */
}

static void bench_fini(struct bench *b)
{
    sched_free(b->s);
    mem_free(b->names);
    mem_free(b->left);
    mem_free(b->rcpts);
    mem_free(b->running);
}

/* Decisions per second. `smallest`: of the smallest size of this scenario, 0 when this is it. */
static double run(const struct scenario *sc, uint64_t decisions, double smallest)
{
    struct sched_totals full;
    struct bench b;
    double resident, start, loading, rate;
    uint64_t delivered;

    (void)malloc_trim(0); /* what the one before has left */
    bench_init(&b, sc);
    resident = resident_bytes();
    start = seconds();
    open_all(&b);
    loading = seconds() - start;
    resident = resident_bytes() - resident;
    full = sched_totals(b.s);
    delivered = b.delivered;
    start = seconds();
    work(&b, decisions);
    rate = (double)(b.delivered - delivered) / (seconds() - start);
    printf("%-26s %8" PRIu32 " %7" PRIu32 " %8" PRIu32 " %9.0f %6.2f %9.0f %7.0f %7.0f %7.0f\n",
           sc->name, sc->jobs, sc->dests, full.recipients, rate, smallest > 0 ? smallest / rate : 1,
           full.recipients / loading, (double)full.bytes / full.recipients,
           (double)full.bytes / sc->jobs, resident / sc->jobs);
    (void)fflush(stdout);
    bench_fini(&b);
    return rate;
}

int main(int argc, char **argv)
{
    static const struct scenario scenarios[] = {
        {"one recipient, 10 sites", 1000000, 10, 1, 1, 20, 100, PLAIN},
        {"one recipient", 1000000, 1000, 1, 1, 20, 100, PLAIN},
        {"one recipient, 10^5 sites", 1000000, 100000, 1, 1, 20, 100, PLAIN},
        {"1 to 50 recipients", 1000000, 1000, 1, 50, 20, 100, PLAIN},
        {"half of it blocked", 1000000, 1000, 1, 1, 20, 100, BLOCKED},
        {"1 to 50, half blocked", 100000, 1000, 1, 50, 20, 100, BLOCKED},
        {"windows of one", 1000000, 1000, 1, 1, 1, 1000, PLAIN},
        {"all different sizes", 100000, 1000, 1, 1, 20, 100, DIFFERENT},
        {"ring of 10^4 sites", 1000000, 10000, 1, 1, 20, 100, RING},
        {"ring of 10^5 sites", 1000000, 100000, 1, 1, 20, 100, RING},
        {"one job of 10^6", 1, 1000, 1000000, 1000000, 20, 100, PLAIN},
    };
    uint64_t decisions = argc > 3 ? strtoull(argv[3], NULL, 10) : DECISIONS;

    printf("%-26s %8s %7s %8s %9s %6s %9s %7s %7s %7s\n", "scenario", "jobs", "sites", "waiting",
           "decided/s", "slower", "loaded/s", "B/rcpt", "B/job", "RSS/job");
    for (size_t i = 0; i < sizeof scenarios / sizeof scenarios[0]; i++) {
        struct scenario sc = scenarios[i];
        double smallest = 0;

        if (argc > 1 && strcmp(argv[1], sc.name) != 0) {
            continue;
        }
        for (sc.jobs = sc.jobs < 1000 ? sc.jobs : 1000; sc.jobs <= scenarios[i].jobs;
             sc.jobs *= 10) {
            if (argc <= 2 || strtoul(argv[2], NULL, 10) == sc.jobs) {
                double rate = run(&sc, decisions, smallest);
                smallest = smallest > 0 ? smallest : rate;
            }
        }
    }
    return 0;
}
