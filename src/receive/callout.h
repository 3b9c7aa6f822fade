/*
 * Callouts: asking the next hop, at RCPT, whether a recipient exists (lmtp: and smtp: in
 * local_recipient_maps and relay_recipient_maps).
 *
 *     ask --> cache --> known, unknown: the answer at once
 *               |
 *               +-----> a connection of this process, made by the parent (filter_hub.h):
 *                       greeting, LHLO or EHLO, MAIL FROM:<>, then RCPT TO for each question
 *
 * A reply of 2xx to RCPT is "known", of 5xx "unknown"; both are remembered for a time of their own.
 * Anything else, a peer that can't be reached, that refuses the session, says rubbish or takes
 * longer than callout_timeout, is "unsure": the client is asked to try again, and the peer is left
 * alone for CALLOUT_PAUSE_US, so that not each client waits for the same timeout.
 *
 * Bounds, for each process: CALLOUT_CACHE_MAX answers, the oldest go; CALLOUT_CONNECTIONS
 * connections to a peer; CALLOUT_WAITING_MAX questions that wait, more are unsure at once.
 */
#ifndef RECEIVE_CALLOUT_H
#define RECEIVE_CALLOUT_H

#include <stdbool.h>
#include <stdint.h>

#include "callout_target.h"
#include "filter_hub.h"
#include "slice.h"

#define CALLOUT_CACHE_MAX   100000u
#define CALLOUT_CONNECTIONS 4
#define CALLOUT_WAITING_MAX 1000u
#define CALLOUT_PAUSE_US    (5 * US_PER_S)
#define CALLOUT_IDLE_US     (10 * US_PER_S) /* then a connection is given up */
#define CALLOUT_RCPTS_MAX   100             /* RCPTs of one transaction */

enum callout_result { CALLOUT_KNOWN, CALLOUT_UNKNOWN, CALLOUT_UNSURE, CALLOUT_PENDING };

struct callout_question;

typedef void callout_done(void *arg, enum callout_result result);

/* All callouts of a process. */
struct callouts;

struct callout_limits {
    int64_t timeout_us, positive_us, negative_us;
    const char *hostname; /* for LHLO; borrowed for callouts_configure */
};

/* `hub` is borrowed. */
struct callouts *callouts_new(struct filter_hub *hub);
void callouts_free(struct callouts *all); /* NULL is fine; `done` is called no more */

/* The configuration's; a changed one forgets all answers. */
void callouts_configure(struct callouts *all, const struct callout_limits *limits);

/* Ask. The answer, or CALLOUT_PENDING: then `done` is called once, from the loop, unless
 * *ret_question is forgotten before. `address` is copied. */
enum callout_result callouts_ask(struct callouts *all, const struct callout_target *target,
                                 struct slice address, callout_done *done, void *arg,
                                 struct callout_question **ret_question);
void callouts_forget(struct callout_question *q); /* NULL is fine */

#endif
