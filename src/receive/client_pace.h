/*
 * Recent speed of a client, to choose between clients when there are too many.
 *
 * Time counts only while the server waits for the client, never while the client waits for the
 * server. The pace is
 *
 *     CLIENT_PACE_CREDIT bytes / the time waited for the client since its last message
 *   + its recent bytes / the recent time waited for the client
 *
 * So a client that has just connected, or has just delivered, is fast. A client that keeps the
 * server waiting gets slower with every moment. A client that sends steadily keeps its rate,
 * however long the message takes. Recent bytes and times lose half their weight every
 * CLIENT_PACE_HALF_US, so one large burst does not pay for a long drip.
 *
 * A plain value: embed it. Its fields are private to client_pace.c.
 */
#ifndef RECEIVE_CLIENT_PACE_H
#define RECEIVE_CLIENT_PACE_H

#include <stdbool.h>
#include <stdint.h>

#include "times.h"

#define CLIENT_PACE_CREDIT  1000 /* bytes; about the size of the commands of a transaction */
#define CLIENT_PACE_HALF_US (8 * US_PER_S)

struct client_pace {
    struct mono since; /* begin of the client's turn; MONO_NEVER: the server's turn */
    int64_t waited_us; /* time waited since the last message, up to `since` */
    double recent_us;  /* recent time and bytes, weighted */
    double recent_bytes;
};

/* Begins with the client's turn, and with `waited_us` as time already waited. */
void client_pace_begin(struct client_pace *p, struct mono now, int64_t waited_us);

/* Begins the client's turn (wait) or the server's turn (rest). No effect during that turn. */
void client_pace_wait(struct client_pace *p, struct mono now);
void client_pace_rest(struct client_pace *p, struct mono now);

/* Counts bytes that the client has sent. */
void client_pace_add(struct client_pace *p, struct mono now, uint64_t bytes);

/* Resets the time waited, as the client has delivered a message. */
void client_pace_delivered(struct client_pace *p, struct mono now);

/* Is it the client's turn? */
bool client_pace_waits(const struct client_pace *p);

/* Returns the time waited for the client since its last message. */
int64_t client_pace_waited_us(const struct client_pace *p, struct mono now);

/* Returns the pace in bytes per second. */
double client_pace_rate(const struct client_pace *p, struct mono now);

#endif
