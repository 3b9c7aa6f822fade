/*
 * Enhanced mail system status codes (RFC 3463), "class.subject.detail", and where they come from
 * when the peer sent none: a bare SMTP reply code, or the exit status of a delivery command.
 *
 * A plain value. Class 0 means "none"; otherwise class is 2, 4 or 5 and the others are 0..999.
 */
#ifndef SMTP_STATUS_H
#define SMTP_STATUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "slice.h"

enum status_class {
    STATUS_NONE = 0,
    STATUS_SUCCESS = 2,
    STATUS_TRANSIENT = 4,
    STATUS_PERMANENT = 5,
};

struct status {
    uint16_t class;
    uint16_t subject;
    uint16_t detail;
};

/* Room for the longest printed code, "5.999.999", and its NUL. */
#define STATUS_SIZE 10

/* A code at the front of `text`, followed by a blank or the end. *ret_len is how long it is. */
bool status_prefix(struct slice text, struct status *ret_status, size_t *ret_len);

/* A code that is all of `text`. */
bool status_parse(struct slice text, struct status *ret_status);

/* The first code of `class` that stands in `text` as a word: "smtp; 550 5.1.1 user unknown", or
 * behind the hyphen of a reply of several lines, "550-5.1.1 user unknown". */
bool status_find(struct slice text, enum status_class class, struct status *ret_status);

/* Print into `out` and return it. Printing STATUS_NONE gives the empty string. */
const char *status_print(struct status s, char out[STATUS_SIZE]);

/* The code that says no more than the first digit of an SMTP reply: 2.0.0, 4.0.0 or 5.0.0; any
 * other digit gives 4.0.0, because a reply that makes no sense must not bounce mail. */
struct status status_of_reply(unsigned code);

/* `s` as it is when it may stand for `class`, else class.0.0. */
struct status status_repair(struct status s, enum status_class class);

/* What an exit status from sysexits(3) means for a delivery. 0 is success, and a status outside the
 * table is a permanent failure, as mailers have always taken it. *ret_text is a static phrase for
 * logs and reports ("user unknown"). */
struct status status_of_exit(int exit_status, const char **ret_text);

#endif
