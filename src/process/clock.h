/*
 * The clocks of a process: the only place that reads them.
 *
 * Both may be shifted forward by an offset (parameter debug_clock, for tests of retry and expiry);
 * they are read once per turn of the loop, so that a turn has one time.
 */
#ifndef PROCESS_CLOCK_H
#define PROCESS_CLOCK_H

#include "times.h"

/* Read the clocks now. */
void clock_update(void);

/* The turn is over: the first question of the next one reads the clocks. Called before the loop
 * goes to sleep, as nothing of ours runs between its waking up and the first event. */
void clock_forget(void);

/* The time of this turn. */
struct mono clock_mono(void);
struct wall clock_wall(void);

/* The time at this very moment, however long the turn has lasted: for what must not rest on a time
 * that was read before. */
struct mono clock_mono_now(void);

/* The clock of intervals goes on while the machine is suspended, as the wall clock does. Where the
 * two part, the wall clock was set: queue_clock.c acts on that. */

/* Add to the wall clock only, as setting it does; for tests. */
void clock_set_step(int64_t step_us);

/* Add to both clocks, microseconds >= 0; takes effect at the next clock_update. */
void clock_set_offset(int64_t offset_us);
int64_t clock_offset(void);

/* From now on both clocks move with the offset only: for unit tests, which then don't depend on how
 * long anything takes. */
void clock_stand(void);

/* Seconds east of UTC at `t`, for texts. */
int clock_zone(struct wall t);

#endif
