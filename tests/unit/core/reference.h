/*
 * The scheduler as its specification writes it: lists, walks, tags, one step after the other, and
 * no thought of speed. The real one must decide the same.
 *
 * Recipients are read through a callback, in the middle of a selection if it wants them there.
 */
#ifndef TESTS_CORE_REFERENCE_H
#define TESTS_CORE_REFERENCE_H

#include "scheduler.h"

struct reference;

/* Read up to `max` recipients of a message. Recipients in *ret_rcpts, number returned. */
typedef size_t reference_read(void *arg, uint64_t msg, uint32_t max,
                              const struct sched_rcpt **ret_rcpts, uint32_t *ret_disposed,
                              bool *ret_complete);

/* A delivery was chosen; `entry` names it. Or it was deferred (entry NULL). */
struct reference_entry;
typedef void reference_chosen(void *arg, uint64_t msg, uint32_t transport, const char *dest,
                              struct reference_entry *entry, const uint32_t *rcpts, size_t count);

struct reference *reference_new(const struct sched_limits *limits, reference_read *read,
                                reference_chosen *chosen, void *arg);
void reference_free(struct reference *r);
void reference_transport(struct reference *r, const struct sched_transport_policy *policy,
                         const char *name);
void reference_open(struct reference *r, struct mono now, uint64_t msg, uint32_t recipients,
                    bool one_per_entry);
void reference_finished(struct reference *r, struct mono now, struct reference_entry *entry,
                        enum sched_outcome outcome);

/* Run timers and make all decisions there are. */
void reference_run(struct reference *r, struct mono now);

size_t reference_messages(const struct reference *r);

#endif
