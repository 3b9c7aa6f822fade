/*
 * Numbers of the last hour, for plots: a sample of "status" every few seconds, and samples of the
 * destinations in it. In memory only, with a fixed size: SERIES_SAMPLES of the whole, and as many
 * for each of the SERIES_DESTINATIONS destinations that were named last.
 */
#ifndef CONTROL_SERIES_H
#define CONTROL_SERIES_H

#include <jansson.h>

#include "slice.h"
#include "times.h"

#define SERIES_SAMPLES      720
#define SERIES_STEP_S       5
#define SERIES_DESTINATIONS 64
/* Largest number of nodes for which samples include all nodes. In a larger cluster each node
 * samples only itself, so that nodes do not all query each other. */
#define SERIES_NODES_MAX 8

struct series;

struct series *series_new(void);
void series_free(struct series *s); /* `s` may be NULL */

/* Adds a sample: an answer of "sample". */
void series_add(struct series *s, const json_t *status, struct wall now);

/* Returns {"step": seconds, "at": [..], NAME: [..]..}: counters since the start of the daemon, and
 * values. */
json_t *series_json(const struct series *s);

/* Returns the samples of one destination, "transport/destination". A sample that does not name it
 * is null; there are no samples if it was not named in the last hour. */
json_t *series_destination_json(const struct series *s, struct slice name);

#endif
