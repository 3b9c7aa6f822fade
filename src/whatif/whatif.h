/*
 * The role `whatif` (its table is whatif_role in role.h): simulates the mail of the last hours with
 * a changed parameter, and once more with the parameters as they are.
 *
 *     IDLE --WIRE_ASK--> READS --no more events--> RUNS --WIRE_ANSWER--> IDLE
 *                        |  ^                       twice: as it is, and changed
 *                        +--+ WIRE_EVENTS_MORE, answered with WIRE_ANSWER: a page of the journal
 *
 * The control process starts one run at a time and sends the pages of the journal that this process
 * requests. A page with another status than 200 ends the run, and so does a reload. The journal
 * holds text from outside, so this process has no files and no network. It has the lowest priority
 * (SCHED_IDLE, nice 19), so mail does not wait for it. It reads its channels between slices of a
 * run.
 *
 * Limits: above WHATIF_MEMORY_MAX the process ends and is started again. A run that has used
 * WHATIF_CPU_S ends with an error; a single step that never ends is killed after twice that time.
 */
#ifndef WHATIF_WHATIF_H
#define WHATIF_WHATIF_H

#include <stdbool.h>

#include "slice.h"

#define WHATIF_MEMORY_MAX (512u << 20) /* bytes */
#define WHATIF_CPU_S      60
#define WHATIF_SET_MAX    16 /* parameters that one request may change */

/* Has this parameter, or TRANSPORT_parameter, an effect in the simulator? */
bool whatif_knows(struct slice name);

#endif
