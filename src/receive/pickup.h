/*
 * The role `pickup` (its table is pickup_role in role.h): takes what sendmail leaves in maildrop to
 * the queue.
 *
 *     maildrop/NAME --read, check, complete--> filters --> WIRE_SUBMIT --250--> file removed
 *                |                                |---4xx-----+---4xx---> file stays, tried later
 *                +---no mail, or refused--------> 5xx---------+---------> maildrop/corrupt/NAME
 *
 * The files belong to local users, who may be hostile. A file is looked at when it is regular, has
 * one link, and its owner's mode bits are exactly rwx (maildrop.h); it is opened without following
 * links and without waiting, and from then on only the open file counts. What can't be used is
 * moved aside with a line in the log, never deleted; what is no file is left and mentioned once.
 *
 * The filters of non_smtpd_milters see it as it will be stored. While they look at one, others are
 * read: a filter that hangs holds up its own mail.
 *
 * The mail gets a trace (Received: ... from userid N), the header fields it lacks (From, Date,
 * Message-ID), and CRLF line ends; addresses without a domain get $myorigin.
 *
 * A file is removed after the queue's commit. A crash of this process, of the queue process or of
 * the machine in between means that the mail is submitted twice, never that it is lost.
 *
 * Bounded: the bytes read and the files looked at in a turn, the submissions without an answer and
 * the mails at filters (TURN_BYTES, TURN_FILES, SENT_MAX, FILTERED_MAX in pickup.c). There is one
 * such process where there is a maildrop. It opens the directory before it is confined; afterwards
 * it reads, renames and removes files there, and can do nothing else (confine.h).
 */
#ifndef RECEIVE_PICKUP_H
#define RECEIVE_PICKUP_H

#include "role.h"

#endif
