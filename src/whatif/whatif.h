/*
 * The role `whatif` (its table is whatif_role in role.h): what a changed parameter would have meant
 * for the mail of the last hours.
 *
 *     IDLE --WIRE_ASK--> READS --no more events--> RUNS --WIRE_ANSWER--> IDLE
 *                        |  ^                       twice: as it is, and changed
 *                        +--+ WIRE_EVENTS_MORE, answered with WIRE_ANSWER: a page of the journal
 *
 * Control asks, one run at a time, and brings the pages that this process asks for; a page with
 * another status than 200 ends the run, as does a reload. The journal holds text from outside, so
 * this process has no files and no network, and is last in line for the processor (SCHED_IDLE,
 * nice 19): mail does not wait for it. It looks at its channels between slices of a run.
 *
 * Limits: WHATIF_MEMORY_MAX, beyond which it ends and is started anew; WHATIF_CPU_S for a run,
 * which is answered with an error; twice that ends it, should a single step never end.
 */
#ifndef WHATIF_WHATIF_H
#define WHATIF_WHATIF_H

#include <stdbool.h>

#include "slice.h"

#define WHATIF_MEMORY_MAX (512u << 20) /* bytes */
#define WHATIF_CPU_S      60
#define WHATIF_SET_MAX    16 /* parameters of a question */

/* Is it a parameter, or TRANSPORT_parameter, that the simulator knows of? */
bool whatif_knows(struct slice name);

#endif
