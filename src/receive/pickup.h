/*
 * The role `pickup` (pickup_role in role.h): moves the mail that sendmail leaves in maildrop to the
 * queue.
 *
 *     maildrop/NAME --read, check, complete--> filters --> WIRE_SUBMIT --250--> file removed
 *                |                                |---4xx-----+---4xx---> file stays, tried later
 *                +---no mail, or refused--------> 5xx---------+---------> maildrop/corrupt/NAME
 *
 * The files belong to local users, who may be hostile. Pickup reads a file if it is regular, has
 * one link, and its owner's mode bits are exactly rwx (maildrop.h). The file is opened without
 * following links and without blocking; from then on only the open file counts. An unusable file is
 * moved aside with a log line, never deleted. An entry that is no such file is left, and logged
 * once.
 *
 * The filters of non_smtpd_milters get the mail as it will be stored. Meanwhile pickup reads other
 * files, so a filter that hangs delays only its own mail.
 *
 * The mail gets a trace (Received: ... from userid N), CRLF line ends, and the clean-up of mail of
 * own clients (cleanup.h); addresses of the envelope without a domain get $myorigin.
 *
 * A file is removed after the queue's commit. If this process, the queue process or the machine
 * crashes between commit and removal, the mail is submitted twice, but never lost.
 *
 * Limits: bytes and files read in a turn, submissions without an answer, mails at filters
 * (TURN_BYTES, TURN_FILES, SENT_MAX, FILTERED_MAX in pickup.c). There is one such process if there
 * is a maildrop. It opens the directory before it is confined; afterwards it can only read, rename
 * and remove files there (confine.h).
 */
#ifndef RECEIVE_PICKUP_H
#define RECEIVE_PICKUP_H

#include "role.h"

#endif
