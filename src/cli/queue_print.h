/*
 * Lists the queue as `postqueue -p` does, with the column widths of long queue ids.
 *
 *     ----Queue ID----- --Size-- ---Arrival Time---- --Sender/Recipient------
 *     3Q0YXS5kGxz*           276 Fri Nov 20 13:02:04 p@s.example
 *               (host 127.0.0.1[127.0.0.1] refused to talk to me: 421 go away)
 *                                                    c@bad.example
 *
 *     -- 0 Kbytes in 1 Request.
 *
 * Marks after the id: `*` active, `!` on hold, `?` corrupt, then `#` for a message that an operator
 * expires. A reason ends in column 78 and is printed once for consecutive recipients that share it.
 * Recipients that are done and only wait for a report are left out.
 */
#ifndef CLI_QUEUE_PRINT_H
#define CLI_QUEUE_PRINT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <jansson.h>

/* State of a listing; all members except `classes` are zero at its start. The other members are
 * private to queue_print.c. */
struct queue_print {
    bool classes; /* print a line with the class of each message */
    int64_t messages, bytes;
    char *reason; /* owned; reason of the previous recipient; NULL: none was printed */
};

/* Prints a message of the API, without its recipients; queue_print_rcpt prints each of them. */
void queue_print_message(struct queue_print *p, FILE *out, const json_t *message);
void queue_print_rcpt(struct queue_print *p, FILE *out, const json_t *rcpt);

/* Prints that there are more recipients, which are not listed. */
void queue_print_cut(FILE *out);

/* Prints the last line. `nothing` is the text for an empty list. */
void queue_print_end(struct queue_print *p, FILE *out, const char *nothing);

void queue_print_fini(struct queue_print *p);

#endif
