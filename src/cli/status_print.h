/*
 * The state of the daemon and of its destinations, as text for a terminal. The members are those of
 * docs/api.md.
 */
#ifndef CLI_STATUS_PRINT_H
#define CLI_STATUS_PRINT_H

#include <stdio.h>

#include <jansson.h>

/* The overview, from /v1/status; of a cluster with its nodes, from /v1/cluster, as the member
 * "cluster": then what is in memory, and what came and went, is that of all. What only a running
 * daemon knows is left out when it is missing. */
void status_print(FILE *out, const json_t *status);

/* A destination that the scheduler has in memory, in some lines. `now` is seconds since 1970. */
void site_print(FILE *out, const json_t *site, double now);

#endif
