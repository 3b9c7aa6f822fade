/*
 * Any spool, as if it were that of several nodes: with a lease that holds as long as the test says.
 */
#ifndef TESTS_LEASED_SPOOL_H
#define TESTS_LEASED_SPOOL_H

#include "spool_engine.h"

/* From now on `sp` (one at a time) has a lease, until the time in *until_us, which is read at each
 * question and must outlast it. */
void leased_spool(struct spool *sp, const _Atomic int64_t *until_us);

/* It was taken away, as the next event says; no message was claimed that is named. */
void leased_spool_lose(void);

#endif
