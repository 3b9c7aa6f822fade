/*
 * Prints the state of the daemon and of its destinations for a terminal. The members are those of
 * docs/api.md.
 */
#ifndef CLI_STATUS_PRINT_H
#define CLI_STATUS_PRINT_H

#include <stdio.h>

#include <jansson.h>

/* Prints the overview, an answer of /v1/status. In a cluster its member "cluster" is the answer of
 * /v1/cluster: counts and memory are then those of all nodes. Missing values, which only a running
 * daemon has, are left out. */
void queue_status_print(FILE *out, const json_t *status);

/* Prints a destination in the scheduler's memory, in several lines. `now` is seconds since 1970. */
void site_print(FILE *out, const json_t *site, double now);

#endif
