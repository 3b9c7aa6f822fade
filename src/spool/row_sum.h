/*
 * Checksums of rows. They cover the columns that are written once, when a message is stored, and
 * never change. A row whose sum does not match was damaged, though each of its values may look
 * possible: a changed letter of an address sends mail to a stranger.
 */
#ifndef SPOOL_ROW_SUM_H
#define SPOOL_ROW_SUM_H

#include "spool.h"

/* Returns the sum of id, arrived, size, flags, rcpt_total, sender, envid, client, class_name and
 * the content's sum. All must be within the limits of spool.h. */
uint64_t row_sum_message(const struct spool_message *m, uint64_t content_sum);

/* Returns the sum of the message's id, and n, notify, address and orcpt of the recipient. */
uint64_t row_sum_rcpt(struct msg_id id, const struct spool_rcpt *r);

/* Returns the sum of a note's name and text, both of any length. */
uint64_t row_sum_note(struct slice name, struct slice text);

#endif
