/*
 * What operators ask of interventions: to list, set and cancel them. docs/api.md describes the
 * operations; queue/interventions.h does what they say.
 */
#ifndef CONTROL_INTERVENTION_ASK_H
#define CONTROL_INTERVENTION_ASK_H

#include <stddef.h>

#include <stdint.h>

#include <jansson.h>

struct inquiry;
struct intervention;
struct queue;

/* Answers of operations (queue/operation.h). */
unsigned interventions_ask_list(struct queue *q, const json_t *question, json_t **ret_answer);
unsigned interventions_ask_list_spread(struct queue *q, const json_t *question, struct inquiry *in,
                                       json_t **ret_answer);
unsigned interventions_ask_set(struct queue *q, const json_t *question, uint64_t token,
                               json_t **ret_answer);
unsigned interventions_ask_cancel(struct queue *q, const json_t *question, uint64_t token,
                                  json_t **ret_answer);

/* {"pause": N, ..}: how many hold. */
json_t *interventions_ask_counts(const struct queue *q);

/* [{"name", "verb", "text", "since", "until"}, ..], what they do in words; NULL for none. */
json_t *intervention_notes(const struct intervention *const *found, size_t count);

#endif
