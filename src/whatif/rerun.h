/*
 * One run of recorded mail under a configuration, and what it tells over time.
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
#define RERUN_DESTINATIONS 10 /* that are told, those with the most mail */

struct rerun;

/* All are borrowed. The workload says how long it runs. */
struct rerun *rerun_new(const struct conf *conf, const struct workload *workload,
                        const struct trace *trace);

/* Go on a little. False: it is over. */
bool rerun_step(struct rerun *r);

/* What came of it (docs/api.md, WhatIfRun); a new reference. Mail without a class of its own is
 * told as `unmarked`. */
json_t *rerun_json(struct rerun *r, const char *unmarked);

/* NULL is fine. */
void rerun_free(struct rerun *r);

/* What really happened: `sent` and `delay` of the trace's recipients. A new reference. */
json_t *rerun_recorded(const struct trace *trace);

#endif
