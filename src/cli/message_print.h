/*
 * What is known of a message, a destination, the whole: for people. The members are those of
 * docs/api.md. `now` is seconds since 1970.
 */
#ifndef CLI_MESSAGE_PRINT_H
#define CLI_MESSAGE_PRINT_H

#include <stdio.h>

#include <jansson.h>

/* Everything but the recipients. */
void message_print_head(FILE *out, const json_t *message, double now);

/* One recipient; with its gates, if it has some. */
void message_print_rcpt(FILE *out, const json_t *message, const json_t *rcpt, double now);

/* A destination in the scheduler, in some lines. */
void site_print(FILE *out, const json_t *site, double now);

/* The overview, from /v1/status. What only a running daemon knows is left out when it is missing.
 */
void status_print(FILE *out, const json_t *status);

#endif
