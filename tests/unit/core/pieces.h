/* How much of a chore the scheduler does at once: few histories are long enough for its own
 * SCHED_AT_ONCE. */
#ifndef TESTS_CORE_PIECES_H
#define TESTS_CORE_PIECES_H

#include <stdbool.h>
#include <stdint.h>

struct sched;

void pieces_set(struct sched *s, uint32_t at_once);

/* Is some of a chore left? */
bool pieces_left(const struct sched *s);

#endif
