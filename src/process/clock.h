/*
 * The clocks of a process; no other module reads them.
 *
 * An offset can move both clocks forward (parameter debug_clock, for tests of retry and expiry).
 * They are read once per turn of the loop, so that a turn has one time.
 */
#ifndef PROCESS_CLOCK_H
#define PROCESS_CLOCK_H

#include "times.h"

/* Reads the clocks now. */
void clock_update(void);

/* Ends the turn: the next query reads the clocks again. Call it before the loop sleeps, because
 * none of our code runs between its end of sleep and the first event. */
void clock_forget(void);

/* Returns the time of this turn. */
struct mono clock_mono(void);
struct wall clock_wall(void);

/* Returns the current time, however long the turn has lasted, for decisions that must not depend on
 * an earlier time. */
struct mono clock_mono_now(void);

/* The monotonic clock runs while the machine is suspended, as the wall clock does. If they differ,
 * the wall clock was set; queue_clock.c handles that. */

/* Adds to the wall clock only, like setting it; effective at the next clock_update. For a clock
 * known to be wrong, and for tests. */
void clock_set_step(int64_t step_us);

/* Adds to both clocks, microseconds >= 0; effective at the next clock_update. */
void clock_set_offset(int64_t offset_us);
int64_t clock_offset(void);

/* Stops both clocks, so that only the offset moves them. For unit tests, which then do not depend
 * on run time. */
void clock_stand(void);

/* Returns the time zone at `t` in seconds east of UTC, for texts. */
int clock_zone(struct wall t);

#endif
