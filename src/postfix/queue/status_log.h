/*
 * What bounce(8) keeps of recipients until it reports them: bounce/ID, defer/ID and trace/ID.
 *
 * A text; for each recipient an empty line, a line for humans, then lines NAME=VALUE:
 *
 *     <rcpt@good.example>: host sink.example said: 550 5.1.1 unknown
 *     recipient=rcpt@good.example
 *     offset=649
 *     dsn_orig_rcpt=rfc822;orig@good.example
 *     status=5.1.1
 *     action=failed
 *     ...
 */
#ifndef POSTFIX_STATUS_LOG_H
#define POSTFIX_STATUS_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "buf.h"
#include "slice.h"

/* Texts may be empty. */
struct status_log_entry {
    struct slice recipient, original, dsn_original;
    uint64_t offset; /* of the recipient's record in its message; 0 = not told */
    unsigned notify; /* DSN NOTIFY bits; 0 = not told */
    struct slice status, action;
    struct slice diag_type, diag_text; /* "smtp", and what the site said */
    struct slice mta_type, mta_mname;  /* "dns", and the site */
    struct slice reason;
};

/* Take the next recipient out of *rest; false: there is none. What is no line of its form is passed
 * over. Slices are of *rest. */
bool status_log_next(struct slice *rest, struct status_log_entry *ret_entry);

/* Append one; line ends in its texts become blanks. *out is sticky. */
void status_log_put(struct buf *out, const struct status_log_entry *e);

#endif
