/*
 * Why mail waits, and the destinations, as the queue process knows them. Functions answer as
 * listing_ask.
 */
#ifndef CONTROL_QUEUE_WHY_H
#define CONTROL_QUEUE_WHY_H

#include <jansson.h>

#include "conf.h"

struct inquiry;
struct queue;
struct sched_dest_info;

/* SITE of the API. */
json_t *why_site_json(struct queue *q, const struct sched_dest_info *info);

/* The busiest destinations, as "sites" has them. */
json_t *why_busiest(struct queue *q);
/* Likewise those that are dead or were until now, the longest first. */
json_t *why_troubled(struct queue *q);
/* Likewise those of a list of transport/nexthop that have mail in memory, or of which something is
 * remembered. */
json_t *why_named(struct queue *q, const struct conf_list *names);

/* "why" (of a message), "sites" (all in memory, by pages) and "site" (one, with all that is known
 * of it). */
unsigned why_message(struct queue *q, const json_t *question, json_t **ret_answer);
unsigned why_sites(struct queue *q, const json_t *question, json_t **ret_answer);
unsigned why_site(struct queue *q, const json_t *question, json_t **ret_answer);

/* The same of several nodes (operation.h): each answers of what it owns. A question between nodes
 * that has "parts": true is about the parts of a message alone. */
unsigned why_message_spread(struct queue *q, const json_t *question, struct inquiry *in,
                            json_t **ret_answer);
unsigned why_sites_spread(struct queue *q, const json_t *question, struct inquiry *in,
                          json_t **ret_answer);
unsigned why_site_spread(struct queue *q, const json_t *question, struct inquiry *in,
                         json_t **ret_answer);

#endif
