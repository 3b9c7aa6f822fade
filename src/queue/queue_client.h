/*
 * Submission clients: receiving processes and the parent's pickup. They submit mail and request the
 * mail of a domain (ETRN). They get the state of the queue, so that they refuse mail or slow down.
 *
 * Owns the clients' channels and the state that is sent to them (struct wire_flow). The functions
 * below change that state; the clients get it at the end of the turn.
 *
 * Limit: QUEUE_CLIENTS_MAX.
 */
#ifndef QUEUE_QUEUE_CLIENT_H
#define QUEUE_QUEUE_CLIENT_H

#include <stdbool.h>
#include <stdint.h>

#include "channel.h"
#include "spool.h"
#include "wire.h"

struct queue;

#define QUEUE_CLIENTS_MAX 128
/* Number of unclaimed new messages above which clients are slowed down. */
#define QUEUE_BEHIND 200

struct clients {
    struct channel *channels[QUEUE_CLIENTS_MAX];
    struct wire_peer peers[QUEUE_CLIENTS_MAX]; /* process at the other end of a channel */
    bool commits_work;                         /* the last commit has succeeded */
    bool spool_is_fit;                         /* the spool can accept mail */
    struct wire_flow flow;                     /* storage_ok: commits_work and spool_is_fit */
    bool told;                                 /* `flow` has been sent as it is */
};

void clients_init(struct clients *c);
void clients_fini(struct clients *c);

/* Adopts the connection of a process and takes the descriptor. Returns false if there are too many
 * clients; then the descriptor stays the caller's. */
bool clients_adopt(struct queue *q, const struct wire_peer *peer, int fd);

/* Stores a message in place of the recipients of a delivery that this agent has (WIRE_SUBMIT of
 * ROLE_FILTER), both or neither. The descriptor of `frame` stays the caller's. Returns false if the
 * frame breaks the protocol. */
bool clients_take_replacement(struct queue *q, struct channel *ch, unsigned agent,
                              const struct frame *frame);

/* Answers a submission. rc 0: the message is committed under this id, now or before (`repeated`);
 * otherwise rc is the negative errno of the failure. */
void clients_answer(struct queue *q, struct channel *client, uint64_t token, struct msg_id id,
                    int rc, bool repeated);

/* Returns the state that the clients have or will get. */
static inline const struct wire_flow *clients_flow(const struct clients *c)
{
    return &c->flow;
}

/* Records whether commits work. */
void clients_storage(struct clients *c, bool ok);

/* Updates the state from the free space on disk and the amount of waiting mail. */
void queue_flow_update(struct queue *q);

/* Sends the state to the clients if it has changed. */
void clients_tell(struct clients *c);

#endif
