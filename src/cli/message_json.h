/*
 * Prints a message as one line of JSON: the API's members, those of `postqueue -j` first and in its
 * order, and all recipients, written one by one.
 */
#ifndef CLI_MESSAGE_JSON_H
#define CLI_MESSAGE_JSON_H

#include <stdio.h>

#include <jansson.h>

#include "rcpt_walk.h"

/* Begins the line; the recipients and the end follow. As in postqueue, the null sender is
 * MAILER-DAEMON. */
void message_json_begin(FILE *out, const json_t *message);
void message_json_rcpts(FILE *out, struct rcpt_walk *w);
void message_json_end(FILE *out);

#endif
