/*
 * Transport agents as a kind of agent of the queue process (agent_kind.h).
 */
#ifndef ZMAILER_TA_KIND_H
#define ZMAILER_TA_KIND_H

#include "agent_table.h"
#include "queue.h"

extern const struct agent_kind ta_kind;

/* Returns the table of running agents, which lives as long as the queue. */
const struct agent_table *ta_kind_table(const struct queue *q);

#endif
