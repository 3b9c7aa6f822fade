/*
 * The queue as `postqueue -p` lists it, with the column widths of long queue ids.
 *
 *     ----Queue ID----- --Size-- ---Arrival Time---- --Sender/Recipient------
 *     3Q0YXS5kGxz*           276 Fri Nov 20 13:02:04 p@s.example
 *               (host 127.0.0.1[127.0.0.1] refused to talk to me: 421 go away)
 *                                                    c@bad.example
 *
 *     -- 0 Kbytes in 1 Request.
 *
 * Behind the id: `*` being worked on, `!` on hold, `?` corrupt, then `#` to be given up. A reason
 * ends in column 78 and stands once for all recipients in a row that have it. Recipients that are
 * done, and only still to be reported, are left out.
 */
#ifndef CLI_QUEUE_PRINT_H
#define CLI_QUEUE_PRINT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <jansson.h>

/* The state of a listing; zeroed at its start, but for `classes`. The other fields are private to
 * queue_print.c. */
struct queue_print {
    bool classes; /* print a line for each message that tells its class */
    int64_t messages, bytes;
    char *reason; /* owned; of the recipient before; NULL: none was printed */
};

/* One message as the API has it, without its recipients; they follow one by one. */
void queue_print_message(struct queue_print *p, FILE *out, const json_t *message);
void queue_print_rcpt(struct queue_print *p, FILE *out, const json_t *rcpt);

/* There are more recipients, which are not listed. */
void queue_print_cut(FILE *out);

/* The last line. `nothing` is what an empty list says. */
void queue_print_end(struct queue_print *p, FILE *out, const char *nothing);

void queue_print_fini(struct queue_print *p);

#endif
