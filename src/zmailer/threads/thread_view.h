/*
 * A thread as the mailq protocols show it: a destination with mail, its agents, and why it waits.
 *
 * The queue process knows the parts of it in several places: the scheduler, the retry states, the
 * deliveries under way, the agents. A view puts them together for the threads of one answer; it is
 * made for that answer and reads each of those places once per thread.
 */
#ifndef ZMAILER_THREAD_VIEW_H
#define ZMAILER_THREAD_VIEW_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

#include "queue.h"

struct thread_view;

/* `q` is borrowed until thread_view_free; nothing of it may change meanwhile. */
struct thread_view *thread_view_new(struct queue *q);
void thread_view_free(struct thread_view *v);

/* A thread: transport, nexthop; "ring", its index in thread_view_rings; "host_bound"; "agents" that
 * work for it
 * [{pid, hungry, fed, owed, state}], ages in seconds, -1 = never; "unfed" deliveries that wait in
 * memory; "retried_together": its mail has one time of retry; "asked_for_wait": of a thread that
 * goes when it is asked for, what ZMailer shows as its wait while its oldest mail is younger;
 * "wait" seconds until it is tried; "reason" why it is not, and "pending" on a limit of "channel",
 * "thread" or "global"; "lifetime" in seconds, 0 = for ever. What is not known is not there. New.
 */
json_t *thread_view_json(struct thread_view *v, struct slice transport, struct slice nexthop);

/* Is it of this ring, as thread_view_rings has told of it? */
bool thread_view_in_ring(struct thread_view *v, struct slice transport, struct slice nexthop,
                         const json_t *ring);

/* When recipient `n` of the message was handed to an agent that has it now; us 0: it was not. */
struct wall thread_view_handed(const struct thread_view *v, struct msg_id id, uint32_t n);

/* The rings of the threads that were asked about, and then those that only have agents if
 * `with_others`. New. */
json_t *thread_view_rings(struct thread_view *v, bool with_others);

#endif
