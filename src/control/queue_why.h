/*
 * Reasons for which mail waits, and destinations, as far as they need the queue process. Functions
 * answer as listing_ask.
 */
#ifndef CONTROL_QUEUE_WHY_H
#define CONTROL_QUEUE_WHY_H

#include <jansson.h>

#include "conf.h"

struct inquiry;
struct queue;
struct sched_dest_info;

/* Returns a SITE of the API. */
json_t *why_site_json(struct queue *q, const struct sched_dest_info *info);

/* Returns the busiest destinations, as in "sites". */
json_t *why_busiest(struct queue *q);
/* Returns the destinations that are dead or were until now, those longest dead first. */
json_t *why_troubled(struct queue *q);
/* Returns the destinations of a list of transport/nexthop that have mail in memory or a history. */
json_t *why_named(struct queue *q, const struct conf_list *names);

/* Answers "why" for a message. why_sites answers "sites" (all in memory, by pages), why_site
 * answers "site" (one, with all details). */
unsigned why_message(struct queue *q, const json_t *question, json_t **ret_answer);
unsigned why_sites(struct queue *q, const json_t *question, json_t **ret_answer);
unsigned why_site(struct queue *q, const json_t *question, json_t **ret_answer);

/* Answers "why" for several nodes (operation.h), as the next two functions answer "sites" and
 * "site": each node answers for its own mail. A query between nodes with "parts": true is about the
 * parts of a message alone. */
unsigned why_message_spread(struct queue *q, const json_t *question, struct inquiry *in,
                            json_t **ret_answer);
unsigned why_sites_spread(struct queue *q, const json_t *question, struct inquiry *in,
                          json_t **ret_answer);
unsigned why_site_spread(struct queue *q, const json_t *question, struct inquiry *in,
                         json_t **ret_answer);

#endif
