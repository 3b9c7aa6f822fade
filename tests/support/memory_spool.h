/*
 * A spool in memory, for tests: the model that other engines are compared with, and a spool for
 * tests of what uses one. Durable until the process ends.
 */
#ifndef TESTS_MEMORY_SPOOL_H
#define TESTS_MEMORY_SPOOL_H

#include "spool.h"

/* Never fails. Close it with spool_close. */
struct spool *memory_spool_open(const struct spool_options *options);

#endif
