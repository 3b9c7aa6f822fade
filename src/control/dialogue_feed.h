/*
 * GET /v1/trace: streams dialogues of SMTP connections (Server-Sent Events).
 *
 *     reader --> ASKED --"watch"--> ON --client gone, queue process gone--> freed ("unwatch")
 *
 * Each reader has one watch in the queue process (queue/watches.h). While more than FEED_BEHIND
 * bytes wait for a client, further lines are dropped. An event "dropped" with their number is sent
 * before the next line, or when the client has read the rest.
 *
 * Limits: WIRE_WATCHES_MAX readers, and FEED_BEHIND bytes and a line for each.
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
/* Frees the feed; its readers get nothing more. `feed` may be NULL. */
void dialogue_feed_free(struct dialogue_feed *feed);

/* Adds a reader; `query` has a filter (docs/api.md). */
void dialogue_feed_call(struct dialogue_feed *feed, struct api_call *call, const json_t *query);

/* Handles a WIRE_DIALOGUE frame of the queue process. Returns false if it does not decode. */
bool dialogue_feed_heard(struct dialogue_feed *feed, struct slice body);

/* Ends the readers, because the queue process has ended, and its watches with it. */
void dialogue_feed_queue_lost(struct dialogue_feed *feed);

#endif
