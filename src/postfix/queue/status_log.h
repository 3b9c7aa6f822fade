/*
 * The logs in which bounce(8) keeps results of recipients until it reports them: bounce/ID,
 * defer/ID and trace/ID.
 *
 * A log is a text; for each recipient it has an empty line, a line for humans, then lines
 * NAME=VALUE:
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

/* The entry of one recipient. Texts may be empty. */
struct status_log_entry {
    struct slice recipient, original, dsn_original;
    uint64_t offset; /* offset of the recipient's record in its message; 0 = missing */
    unsigned notify; /* DSN NOTIFY bits; 0 = missing */
    struct slice status, action;
    struct slice diag_type, diag_text; /* "smtp", and the site's reply */
    struct slice mta_type, mta_mname;  /* "dns", and the site's name */
    struct slice reason;
};

/* Removes the next entry from *rest; false if there is none. Ignores lines of another form. Slices
 * point into *rest. */
bool status_log_next(struct slice *rest, struct status_log_entry *ret_entry);

/* Appends an entry; line ends in its texts become blanks. Errors of *out are sticky. */
void status_log_put(struct buf *out, const struct status_log_entry *e);

#endif
