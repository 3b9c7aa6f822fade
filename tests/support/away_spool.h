/*
 * Any spool whose commits end later, as if its mail were on another machine: nothing by id is at
 * hand before it was asked for, but what is claimed, and no content is. That something has come is
 * told some calls of spool_commits_turn later (SPOOL_EVENT_READY), of a few messages at a time.
 */
#ifndef TESTS_AWAY_SPOOL_H
#define TESTS_AWAY_SPOOL_H

#include "spool_engine.h"

/* From now on `sp` (one at a time) is so. */
void away_spool(struct spool *sp);

/* How often something was not at hand, since away_spool. */
unsigned away_spool_misses(void);

/* What has come is away again; and nothing comes until it is said that it may. */
void away_spool_hold(bool held);

#endif
