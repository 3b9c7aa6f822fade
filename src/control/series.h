/*
 * What the numbers of the last hour were, for plots: a sample of "status" every few seconds, and of
 * the destinations that it names. In memory only, of a fixed size: SERIES_SAMPLES of the whole, and
 * as many of SERIES_DESTINATIONS destinations, those that were named last.
 */
#ifndef CONTROL_SERIES_H
#define CONTROL_SERIES_H

#include <jansson.h>

#include "slice.h"
#include "times.h"

#define SERIES_SAMPLES      720
#define SERIES_STEP_S       5
#define SERIES_DESTINATIONS 64
/* In a cluster of up to so many nodes samples are of all; in a larger one, where each node would
 * ask all others each time, of the node itself. */
#define SERIES_NODES_MAX 8

struct series;

struct series *series_new(void);
void series_free(struct series *s); /* NULL is fine */

/* Add a sample: an answer of "sample". */
void series_add(struct series *s, const json_t *status, struct wall now);

/* {"step": seconds, "at": [..], NAME: [..]..}: counters since the start of the daemon, and values.
 */
json_t *series_json(const struct series *s);

/* The same of one destination, "transport/destination"; its samples are null where it was not
 * named, and there are none when it was not named in the last hour. */
json_t *series_destination_json(const struct series *s, struct slice name);

#endif
