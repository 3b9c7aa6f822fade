/*
 * Prints a message for a terminal. The members are those of docs/api.md. `now` is seconds since
 * 1970.
 */
#ifndef CLI_MESSAGE_PRINT_H
#define CLI_MESSAGE_PRINT_H

#include <stdio.h>

#include <jansson.h>

/* Prints everything except the recipients. */
void message_print_head(FILE *out, const json_t *message, double now);

/* Prints one recipient. */
void message_print_rcpt(FILE *out, const json_t *rcpt, double now);

/* Prints ", 3 attempts, the last TIME" of a recipient; message_print_reply prints the line with its
 * last reason. Both print nothing if there is none. */
void message_print_attempts(FILE *out, const json_t *rcpt, double now);
void message_print_reply(FILE *out, const json_t *rcpt);

#endif
