/*
 * GET /v1/events: events as they come, for any number of readers (Server-Sent Events).
 *
 * What has just come is asked for once, and kept in a ring of FEED_RING_MAX bytes from which all
 * readers that keep up are served. A reader that is further behind asks the journal itself, page by
 * page, until it has caught up: so a slow reader costs the queue process one page for each that it
 * reads, and no memory. While nothing comes a reader gets a comment every FEED_BEAT_S seconds, by
 * which either side notices that the other is gone.
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

/* Before the calls are freed. NULL is fine. */
void event_feed_free(struct event_feed *feed);

/* Answer this call; `query` has the members "after" (a text) and those of "filter", as texts or
 * arrays of them. Takes neither. */
void event_feed_call(struct event_feed *feed, struct api_call *call, const json_t *query);

/* There are events behind those that were asked for last. */
void event_feed_more(struct event_feed *feed);

#endif
