/*
 * Metrics in Prometheus' text form. The number of series is bounded, whatever mail comes: classes
 * and destinations have a name of their own up to limits of the queue process.
 */
#ifndef CONTROL_METRICS_H
#define CONTROL_METRICS_H

#include <jansson.h>

#include "buf.h"
#include "slice.h"
#include "times.h"

/* Bytes that the text may have: several times what all classes and destinations can make. */
#define METRICS_MAX (4u << 20)

/* `answer` is that of the operation "metrics". `own` has heap_bytes of this process. `processes`
 * is the text of the parent's WIRE_PROCESSES_TOLD. */
void metrics_print(struct buf *out, const json_t *answer, const json_t *own, struct slice processes,
                   struct wall now);

#endif
