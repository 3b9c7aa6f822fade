/*
 * A thread as the mailq protocols show it: a destination with mail, its agents, and the reason for
 * which it waits.
 *
 * The data are in several places of the queue process: the scheduler, the retry states, the active
 * deliveries, the agents. A view combines them for the threads of one answer. It is made for that
 * answer and reads each place once per thread.
 */
#ifndef ZMAILER_THREAD_VIEW_H
#define ZMAILER_THREAD_VIEW_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

#include "queue.h"

struct thread_view;

/* Makes a view. `q` is borrowed until thread_view_free, and must not change meanwhile. */
struct thread_view *thread_view_new(struct queue *q);
void thread_view_free(struct thread_view *v);

/* Returns a new object with the values of a thread; unknown values are left out:
 *
 *   transport, nexthop
 *   "ring"               its index in thread_view_rings
 *   "host_bound"         its agents serve this host only
 *   "agents"             [{pid, hungry, fed, owed, state}], ages in seconds, -1 = never
 *   "unfed"              deliveries that wait in memory
 *   "retried_together"   all its mail is retried at the same time
 *   "asked_for_wait"     for a thread that runs on request only: the wait that ZMailer shows while
 *                        its oldest mail is younger than that
 *   "wait"               seconds until the next try
 *   "reason"             reason for which it is not tried
 *   "pending"            limit that it waits for: "channel", "thread" or "global"
 *   "lifetime"           in seconds, 0 = for ever */
json_t *thread_view_json(struct thread_view *v, struct slice transport, struct slice nexthop);

/* Is the thread in this ring, an object of thread_view_rings? */
bool thread_view_in_ring(struct thread_view *v, struct slice transport, struct slice nexthop,
                         const json_t *ring);

/* Returns the time when the recipient was handed to the agent that has it now; us 0: no agent has
 * it. */
struct wall thread_view_handed(const struct thread_view *v, struct msg_id id, uint32_t n);

/* Returns a new array: the rings of the threads of this view and, `with_others`, those that only
 * have agents. */
json_t *thread_view_rings(struct thread_view *v, bool with_others);

#endif
