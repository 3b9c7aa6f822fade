/*
 * Enhanced mail system status codes (RFC 3463), "class.subject.detail", and their derivation if the
 * peer sent none: from a bare SMTP reply code, or the exit status of a delivery command.
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

/* Size of the longest printed code, "5.999.999", with its NUL. */
#define STATUS_SIZE 10

/* Parses a code at the front of `text`, followed by a blank or the end. *ret_len is its length. */
bool status_prefix(struct slice text, struct status *ret_status, size_t *ret_len);

/* Parses a code that fills `text`. */
bool status_parse(struct slice text, struct status *ret_status);

/* Finds the first code of `class` that is a word of `text`, as in "smtp; 550 5.1.1 user unknown",
 * or that follows the hyphen of a multi-line reply, as in "550-5.1.1 user unknown". */
bool status_find(struct slice text, enum status_class class, struct status *ret_status);

/* Prints into `out` and returns it. STATUS_NONE gives the empty string. */
const char *status_print(struct status s, char out[STATUS_SIZE]);

/* Returns the code for the first digit of an SMTP reply: 2.0.0, 4.0.0 or 5.0.0. Any other digit
 * gives 4.0.0, because an invalid reply must not bounce mail. */
struct status status_of_reply(unsigned code);

/* Returns `s` if it has this class, else class.0.0. */
struct status status_repair(struct status s, enum status_class class);

/* Returns the result of a delivery whose command ended with this exit status of sysexits(3). 0 is
 * success. Only a status about the mail is a permanent failure. A status about the command (its
 * usage, its files, its configuration) is a transient failure, unlike in Postfix: mail is not
 * bounced for it. So is any status outside the table, as a shell's for a missing command. *ret_text
 * is a static phrase for logs and reports ("user unknown"). */
struct status status_of_exit(int exit_status, const char **ret_text);

#endif
