/*
 * Metrics in Prometheus' text format. The number of series is bounded, whatever mail arrives:
 * classes and destinations have series of their own only up to limits of the queue process.
 */
#ifndef CONTROL_METRICS_H
#define CONTROL_METRICS_H

#include <jansson.h>

#include "buf.h"
#include "slice.h"
#include "times.h"

/* Largest text in bytes: several times what all classes and destinations need. */
#define METRICS_MAX (4u << 20)

/* Prints the metrics. `answer` is the answer of operation "metrics". `own` has heap_bytes of this
 * process. `processes` is the text of the parent's WIRE_PROCESSES_TOLD. */
void metrics_print(struct buf *out, const json_t *answer, const json_t *own, struct slice processes,
                   struct wall now);

#endif
