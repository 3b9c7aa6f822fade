/*
 * Values of an SMTP envelope that receiver, spool and deliverer must agree on.
 *
 * Values are stored in spools and sent between processes: they never change meaning.
 */
#ifndef BASE_ENVELOPE_H
#define BASE_ENVELOPE_H

#include <stdbool.h>

#include "slice.h"

/* Longest address of an envelope, without the angle brackets (RFC 5321, 4.5.3.1: 64 + 1 + 255). */
#define ADDRESS_MAX 320
/* Longest ENVID and ORCPT value as written, xtext-encoded (RFC 3461, 4.2 and 4.4). */
#define DSN_ENVID_MAX 100
#define DSN_ORCPT_MAX 500

/* Properties of a message's content and its sender's requests; a bit set. */
enum envelope_flag {
    ENVELOPE_8BIT = 1 << 0,     /* 8-bit bytes, or 8BITMIME before the content */
    ENVELOPE_SMTPUTF8 = 1 << 1, /* SMTPUTF8 was given: the envelope or headers may need it */
    ENVELOPE_RET_FULL = 1 << 2, /* DSN RET=FULL */
    ENVELOPE_RET_HDRS = 1 << 3, /* DSN RET=HDRS */
    ENVELOPE_REPORT = 1 << 4,   /* our own delivery report */
    ENVELOPE_TRACE = 1 << 5,    /* sendmail -v: report every delivery to the sender */
};

/* DSN NOTIFY, a bit set; 0 = not given (RFC 3461: FAILURE and perhaps DELAY apply). */
enum notify {
    NOTIFY_DEFAULT = 0,
    NOTIFY_NEVER = 1 << 0,
    NOTIFY_SUCCESS = 1 << 1,
    NOTIFY_FAILURE = 1 << 2,
    NOTIFY_DELAY = 1 << 3,
};

/* Is this an address, and neither a program (a bar) nor a file (a slash)? X.400 addresses begin
 * with a slash, too. Routers quote addresses that begin with such a character. */
bool envelope_is_mailbox(struct slice address);

#endif
