/*
 * Checksums of rows: of what is written once, when a message is stored, and never changes. A row
 * whose sum does not match was damaged, though each of its values may look possible: a changed
 * letter of an address sends mail to a stranger.
 */
#ifndef SPOOL_ROW_SUM_H
#define SPOOL_ROW_SUM_H

#include "spool.h"

/* Of id, arrived, size, flags, rcpt_total, sender, envid, client, class_name and the content's sum.
 * All are within the limits of spool.h. */
uint64_t row_sum_message(const struct spool_message *m, uint64_t content_sum);

/* Of its message's id, n, notify, address and orcpt. */
uint64_t row_sum_rcpt(struct msg_id id, const struct spool_rcpt *r);

#endif
