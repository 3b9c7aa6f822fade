/*
 * MTA-STS policies of domains, as the queue process knows them: a struct sts_source (hops.h) over
 * the channel to it.
 *
 *   ask --WIRE_POLICY_ASK--> queue --WIRE_POLICY_ANSWER--> done()
 *
 * The queue process answers every question, within STS_WAIT_US (sts_cache.h). Should it end, all
 * that asks is given up with its deliveries (attempts_queue_lost), and cancels.
 */
#ifndef DELIVER_STS_CLIENT_H
#define DELIVER_STS_CLIENT_H

#include <stdbool.h>
#include <stdint.h>

#include "channel.h"
#include "hops.h"
#include "slice.h"
#include "times.h"

/* So long an answer is good for the connections that were opened with it. */
#define STS_CLIENT_US (60 * US_PER_S)

struct sts_client {
    struct sts_source source;
    struct channel *const *queue; /* borrowed; *queue NULL: the queue process is away */
    struct sts_question *questions;
    uint64_t last_token;
};

/* `queue` is where its channel stands, now and later. */
void sts_client_init(struct sts_client *c, struct channel *const *queue);

/* When no question is left. */
void sts_client_fini(struct sts_client *c);

/* WIRE_POLICY_ANSWER; false: it does not decode, or answers nothing that was ever asked. */
bool sts_client_answer(struct sts_client *c, struct slice body);

#endif
