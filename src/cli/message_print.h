/*
 * What is known of a message, for people. The members are those of docs/api.md. `now` is seconds
 * since 1970.
 */
#ifndef CLI_MESSAGE_PRINT_H
#define CLI_MESSAGE_PRINT_H

#include <stdio.h>

#include <jansson.h>

/* Everything but the recipients. */
void message_print_head(FILE *out, const json_t *message, double now);

/* One recipient; with its gates, if it has some. */
void message_print_rcpt(FILE *out, const json_t *message, const json_t *rcpt, double now);

#endif
