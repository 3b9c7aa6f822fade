/*
 * Submission clients: receiving processes and the parent's pickup. They submit mail, ask for a
 * domain's mail (ETRN), and are told how the queue is doing, so that they refuse or slow down.
 *
 * Owns the clients' channels and the state that they are told (struct wire_flow). Who changes that
 * state uses the functions below; the clients hear of it at the end of the turn.
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
/* Unclaimed new mail at which clients are slowed down. */
#define QUEUE_BEHIND 200

struct clients {
    struct channel *channels[QUEUE_CLIENTS_MAX];
    struct wire_peer peers[QUEUE_CLIENTS_MAX]; /* which process it is */
    bool commits_work;                         /* the last one did */
    bool spool_is_fit;                         /* .. to take mail, as it says */
    struct wire_flow flow;                     /* storage_ok: both of these */
    bool told;                                 /* flow, as it is */
};

void clients_init(struct clients *c);
void clients_fini(struct clients *c);

/* A process has connected. Takes the descriptor; false: there are too many, it stays the caller's.
 */
bool clients_adopt(struct queue *q, const struct wire_peer *peer, int fd);

/* Do what a client's frame asks for; its descriptor stays the caller's. False: it breaks the
 * protocol. */
bool queue_client_frame(struct queue *q, struct channel *ch, const struct frame *frame);

/* A report that comes back from its filters (WIRE_SUBMIT of ROLE_FILTER), likewise. */
bool clients_take_report(struct queue *q, struct channel *ch, const struct frame *frame);

/* Answer a submission: 0, it is committed under this id, or was before (`repeated`); else the
 * negative errno of what failed. */
void clients_answer(struct queue *q, struct channel *client, uint64_t token, struct msg_id id,
                    int rc, bool repeated);

/* What the clients are told, or are about to be. */
static inline const struct wire_flow *clients_flow(const struct clients *c)
{
    return &c->flow;
}

/* Commits fail, or work again. */
void clients_storage(struct clients *c, bool ok);

/* Find out how much room there is on disk and how much mail waits. */
void queue_flow_update(struct queue *q);

/* Tell the clients what has changed. */
void clients_tell(struct clients *c);

#endif
