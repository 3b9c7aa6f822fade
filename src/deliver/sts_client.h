/*
 * A struct sts_source (hops.h): gets the MTA-STS policies of domains from the queue process.
 *
 *   ask --WIRE_POLICY_ASK--> queue --WIRE_POLICY_ANSWER--> done()
 *
 * The queue process answers each question within STS_WAIT_US (sts_cache.h). If the queue process
 * ends, attempts_queue_lost drops the deliveries that wait for an answer, which cancels their
 * questions.
 */
#ifndef DELIVER_STS_CLIENT_H
#define DELIVER_STS_CLIENT_H

#include <stdbool.h>
#include <stdint.h>

#include "channel.h"
#include "hops.h"
#include "slice.h"
#include "times.h"

/* Validity of an answer for connections that were opened with it. */
#define STS_CLIENT_US (60 * US_PER_S)

struct sts_client {
    struct sts_source source;
    struct channel *const *queue; /* borrowed; *queue NULL: the queue process is gone */
    struct sts_question *questions;
    uint64_t last_token;
};

/* Initializes a client; *queue is the current channel, or NULL. */
void sts_client_init(struct sts_client *c, struct channel *const *queue);

/* Frees a client; no question must be left. */
void sts_client_fini(struct sts_client *c);

/* Handles WIRE_POLICY_ANSWER. Returns false if it does not decode or its token was never sent. */
bool sts_client_answer(struct sts_client *c, struct slice body);

#endif
