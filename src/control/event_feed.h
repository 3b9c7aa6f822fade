/*
 * GET /v1/events: streams events as they happen to any number of readers (Server-Sent Events).
 *
 * New events are requested once and kept in a ring of FEED_RING_MAX bytes, which serves all readers
 * that keep up. A reader that is too slow for the ring requests pages of the journal until it has
 * caught up. So a slow reader costs one page at a time in the queue process, and no memory. While
 * there are no events, a reader gets a comment every FEED_BEAT_S seconds, with which either side
 * detects that the other has gone.
 */
#ifndef CONTROL_EVENT_FEED_H
#define CONTROL_EVENT_FEED_H

#include <jansson.h>

#define FEED_RING_MAX (4u << 20)
#define FEED_PAGE     65536
#define FEED_BEAT_S   15

struct api_call;
struct control;
struct event_base;
struct event_feed;

struct event_feed *event_feed_new(struct control *control, struct event_base *base);

/* Frees the feed. Called before the calls are freed. `feed` may be NULL. */
void event_feed_free(struct event_feed *feed);

/* Answers this call. `query` has the member "after" (a text) and those of "filter", as texts or
 * arrays of texts. Takes neither. */
void event_feed_call(struct event_feed *feed, struct api_call *call, const json_t *query);

/* Reports that there are events after those that were requested last. */
void event_feed_more(struct event_feed *feed);

#endif
