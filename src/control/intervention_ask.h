/*
 * Operations on overrides: list, set and cancel. docs/api.md describes the operations;
 * the queue process applies the overrides.
 */
#ifndef CONTROL_INTERVENTION_ASK_H
#define CONTROL_INTERVENTION_ASK_H

#include <stddef.h>

#include <stdint.h>

#include <jansson.h>

struct inquiry;
struct intervention;
struct queue;

/* Answers the operation that lists overrides. The other functions answer its variant for several
 * nodes, and the operations that set and cancel an override (queue/operation.h). */
unsigned interventions_ask_list(struct queue *q, const json_t *question, json_t **ret_answer);
unsigned interventions_ask_list_spread(struct queue *q, const json_t *question, struct inquiry *in,
                                       json_t **ret_answer);
unsigned interventions_ask_set(struct queue *q, const json_t *question, uint64_t token,
                               json_t **ret_answer);
unsigned interventions_ask_cancel(struct queue *q, const json_t *question, uint64_t token,
                                  json_t **ret_answer);

/* Returns {"pause": N, ..}: the numbers of active overrides. */
json_t *interventions_ask_counts(const struct queue *q);

/* Returns [{"name", "verb", "text", "since", "until"}, ..], with their effects as texts; NULL for
 * none. */
json_t *intervention_notes(const struct intervention *const *found, size_t count);

#endif
