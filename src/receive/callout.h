/*
 * Callouts: queries to the next hop, at RCPT, whether a recipient exists (lmtp: and smtp: in
 * local_recipient_maps and relay_recipient_maps).
 *
 *     ask --> cache --> known, unknown: an answer at once
 *               |
 *               +-----> a connection of this process, made by the parent (filter_hub.h):
 *                       greeting, LHLO or EHLO, MAIL FROM:<>, then RCPT TO for each question
 *
 * A reply of 2xx to RCPT is "known", a reply of 5xx "unknown"; each of both is remembered for its
 * own time. Any other reply is "unsure", and the client is asked to try again. A peer that can't be
 * reached, refuses the session, breaks the protocol or exceeds callout_timeout also makes its
 * questions "unsure". Such a peer is not asked again for CALLOUT_PAUSE_US, so that not every client
 * waits for the same timeout.
 *
 * Limits of each process: CALLOUT_CACHE_MAX answers, after which the oldest are dropped;
 * CALLOUT_CONNECTIONS connections to a peer; CALLOUT_WAITING_MAX waiting questions, after which
 * further ones are unsure at once.
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
#define CALLOUT_IDLE_US     (10 * US_PER_S) /* then an idle connection is closed */
#define CALLOUT_RCPTS_MAX   100             /* RCPTs of one transaction */

enum callout_result { CALLOUT_KNOWN, CALLOUT_UNKNOWN, CALLOUT_UNSURE, CALLOUT_PENDING };

struct callout_question;

typedef void callout_done(void *arg, enum callout_result result);

/* All callouts of a process. Opaque. */
struct callouts;

struct callout_limits {
    int64_t timeout_us, positive_us, negative_us;
    const char *hostname; /* name for LHLO and EHLO; copied by callouts_configure */
};

/* Returns the callouts of a process. `hub` is borrowed. */
struct callouts *callouts_new(struct filter_hub *hub);
void callouts_free(struct callouts *all); /* NULL is allowed; calls no `done` */

/* Sets the limits of a configuration, and forgets all answers. */
void callouts_configure(struct callouts *all, const struct callout_limits *limits);

/* Returns the cached answer, or CALLOUT_PENDING. After CALLOUT_PENDING `done` is called once, from
 * the loop, unless *ret_question is forgotten before. `address` is copied. */
enum callout_result callouts_ask(struct callouts *all, const struct callout_target *target,
                                 struct slice address, callout_done *done, void *arg,
                                 struct callout_question **ret_question);
void callouts_forget(struct callout_question *q); /* NULL is allowed */

#endif
