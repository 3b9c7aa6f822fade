/*
 * Published measurements of deliveries to an overloaded server, and the same in simulation.
 *
 * The tables are JSON: members "common" and "tables" as published-tables.json has them. What a
 * table gives decides what server it was: with "connect_timeout_s" one whose system drops
 * connections that its queue has no room for; with "greeting_timeout_s" one whose system completes
 * them all the same; with "server_process_limit" one that answers 421 above the common
 * "server_concurrency_limit". docs/replays.md explains the model and its constants.
 */
#ifndef REPLAY_PUBLISHED_TABLES_H
#define REPLAY_PUBLISHED_TABLES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "buf.h"
#include "slice.h"

struct published_tables;

/* Read tables. NULL: *error says what is wrong, with `name` of the file in front. */
struct published_tables *published_tables_new(struct slice text, const char *name,
                                              struct buf *error);
void published_tables_free(struct published_tables *t);

/* Simulate all rows, each with `seeds` seeds under both feedback rules. True when every row comes
 * out as published under the documented rule, within the tolerance. */
bool published_tables_simulate(struct published_tables *t, uint32_t seeds);

/* After that: the figures side by side, for people and for programs. */
void published_tables_print(const struct published_tables *t, struct buf *out);
json_t *published_tables_json(const struct published_tables *t);

#endif
