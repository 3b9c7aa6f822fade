/*
 * A bench for the scheduler: messages written as lists of destinations, and a story of what it
 * decided about them.
 *
 * "a b b" are three recipients, "2/a" is destination a of the second transport. In the story a
 * delivery is "m1:a(2)" (two recipients), a deferral "-m1:a(2)", the end of a message "m1.", what
 * is parked "pa.", a question for parked mail "aa.", death, probe and revival "!a", "?a" and "*a".
 */
#ifndef TESTS_CORE_BENCH_H
#define TESTS_CORE_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "scheduler.h"
#include "unit.h"

#define S                 US_PER_S
#define BENCH_RUNNING_MAX 64

struct bench {
    struct sched *s;
    struct mono now;
    const char *texts[512]; /* by message; what is still to be read */
    struct {
        uint64_t msg;
        char dest[32];
        struct sched_entry entry;
    } running[BENCH_RUNNING_MAX];
    size_t running_count;
    struct sched_action last;
    char story[1024];
};

/* Ten messages, a hundred recipients, and Postfix's ways. */
struct sched_limits bench_limits(void);

/* Postfix's defaults, but for recipients and process limit. */
struct sched_transport_policy bench_policy(void);

/* One transport, "smtp"; the time is 1000 s. */
void bench_start(struct bench *b, const struct sched_limits *limits,
                 const struct sched_transport_policy *policy);
void bench_end(struct bench *b);

void open_msg(struct bench *b, uint64_t msg, const char *text);

/* One decision, told in the story; false when there is none. Each is audited. */
bool decide(struct bench *b);

/* The delivery of this message to this destination, which runs no longer. */
struct sched_entry take(struct bench *b, uint64_t msg, const char *dest);

/* It ends. */
void finish(struct bench *b, uint64_t msg, const char *dest, enum sched_outcome outcome);

/* What it decides until there is nothing more. */
#define DECIDES(b, want)                                                                           \
    do {                                                                                           \
        (b)->story[0] = '\0';                                                                      \
        while (decide(b)) {                                                                        \
        }                                                                                          \
        assert_string_equal((b)->story, (want));                                                   \
    } while (0)

#endif
