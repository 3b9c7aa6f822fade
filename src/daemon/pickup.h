/*
 * Pickup: takes what sendmail leaves in maildrop to the queue.
 *
 *     maildrop/NAME --read, check, complete--> WIRE_SUBMIT --250--> file removed
 *                |                                 |---4xx---> file stays, tried again later
 *                +---no mail, or refused---------> 5xx-------> maildrop/corrupt/NAME
 *
 * The files belong to local users, who may be hostile. A file is looked at when it is regular, has
 * one link, and its owner's mode bits are exactly rwx (maildrop.h); it is opened without following
 * links and without waiting, and from then on only the open file counts. What can't be used is
 * moved aside with a line in the log, never deleted; what is no file is left and mentioned once.
 *
 * The mail gets a trace (Received: ... from userid N), the header fields it lacks (From, Date,
 * Message-ID), and CRLF line ends; addresses without a domain get $myorigin.
 *
 * A file is removed after the queue's commit. A crash of machine or parent in between means that
 * the mail is submitted twice, never that it is lost.
 *
 * Bounded: PICKUP_TURN_BYTES read and PICKUP_TURN_FILES looked at in a turn, PICKUP_PENDING_MAX
 * submissions on their way. Works in the parent, so it shares its loop.
 */
#ifndef DAEMON_PICKUP_H
#define DAEMON_PICKUP_H

#include "buf.h"
#include "channel.h"
#include "conf.h"
#include "wire.h"

struct event_base;
struct pickup;

#define PICKUP_TURN_BYTES  (1u << 20)
#define PICKUP_TURN_FILES  256u
#define PICKUP_PENDING_MAX 64u

/* Watch conf->maildrop, which exists. NULL with the reason in *ret_error. `conf` is borrowed until
 * pickup_reload or pickup_free. */
struct pickup *pickup_new(struct event_base *base, const struct conf *conf, struct buf *ret_error);

/* NULL is fine. */
void pickup_free(struct pickup *p);

/* The channel to the queue, NULL while there is none. What was on its way is submitted again. */
void pickup_queue(struct pickup *p, struct channel *queue);

/* The queue's answer. */
void pickup_done(struct pickup *p, const struct wire_submit_done *done);

/* Submit nothing more; answers are still to be given to pickup_done, or what they are about would
 * be submitted again after the next start. */
void pickup_stop(struct pickup *p);

void pickup_reload(struct pickup *p, const struct conf *conf);

#endif
