/*
 * GET /v1/trace: what is said on SMTP connections, as it is said (Server-Sent Events).
 *
 *     reader --> ASKED --"watch"--> ON --client gone, queue process gone--> freed ("unwatch")
 *
 * A reader has one watch of the queue process (queue/watches.h). Lines that come while FEED_BEHIND
 * bytes wait for its client are dropped, and an event "dropped" tells how many, before the next
 * line or when the client has taken what it had.
 *
 * Limits: WIRE_WATCHES_MAX readers, FEED_BEHIND bytes and a line for each.
 */
#ifndef CONTROL_DIALOGUE_FEED_H
#define CONTROL_DIALOGUE_FEED_H

#include <stdbool.h>

#include <jansson.h>

#include "slice.h"

struct api_call;
struct control;
struct dialogue_feed;
struct event_base;

#define FEED_BEHIND          (1u << 20)
#define DIALOGUE_FEED_BEAT_S 15

struct dialogue_feed *dialogue_feed_new(struct control *control, struct event_base *base);
/* Readers get nothing more. NULL is fine. */
void dialogue_feed_free(struct dialogue_feed *feed);

/* A reader; `query` has a filter (docs/api.md). */
void dialogue_feed_call(struct dialogue_feed *feed, struct api_call *call, const json_t *query);

/* WIRE_DIALOGUE of the queue process. False: it does not decode. */
bool dialogue_feed_heard(struct dialogue_feed *feed, struct slice body);

/* And with it all watches. */
void dialogue_feed_queue_lost(struct dialogue_feed *feed);

#endif
