/*
 * What is known of a message, as text for a terminal. The members are those of docs/api.md. `now`
 * is seconds since 1970.
 */
#ifndef CLI_MESSAGE_PRINT_H
#define CLI_MESSAGE_PRINT_H

#include <stdio.h>

#include <jansson.h>

/* Everything but the recipients. */
void message_print_head(FILE *out, const json_t *message, double now);

/* One recipient. */
void message_print_rcpt(FILE *out, const json_t *rcpt, double now);

/* Of a recipient: ", 3 attempts, the last TIME", and the line with its last reason; nothing when
 * there is none. */
void message_print_attempts(FILE *out, const json_t *rcpt, double now);
void message_print_reply(FILE *out, const json_t *rcpt);

#endif
