/*
 * One simulation of recorded mail under a configuration, and its result over time.
 *
 * Time is cut into RERUN_STEPS equal steps from the first message to the end of the record.
 */
#ifndef WHATIF_RERUN_H
#define WHATIF_RERUN_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

#include "conf.h"
#include "trace.h"
#include "workload.h"

#define RERUN_STEPS        120
#define RERUN_DESTINATIONS 10 /* in the result: those with the most mail */

struct rerun;

/* Returns a run that lasts as long as the workload. Borrows its arguments until rerun_free. */
struct rerun *rerun_new(const struct conf *conf, const struct workload *workload,
                        const struct trace *trace);

/* Simulates a few events. Returns false when the run is over. */
bool rerun_step(struct rerun *r);

/* Returns the result (docs/api.md, WhatIfRun), a new reference. Mail without a class is counted as
 * class `unmarked`. */
json_t *rerun_json(struct rerun *r, const char *unmarked);

/* Frees a run, which may be NULL. */
void rerun_free(struct rerun *r);

/* Returns the recorded result, `sent` and `delay` of the trace's recipients; a new reference. */
json_t *rerun_recorded(const struct trace *trace);

#endif
