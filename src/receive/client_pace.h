/*
 * How fast a client has been of late, to choose between clients when there are too many.
 *
 * Time counts only while it is the client's turn: what it waits for us is not its fault. Its pace
 * is
 *
 *     CLIENT_PACE_CREDIT bytes / the time it was waited for since its last message
 *   + its bytes of late / the time it was waited for of late
 *
 * So a client that has just come, or has just delivered, is fast; one that keeps us waiting gets
 * slower with every moment; one that sends steadily keeps its rate, however long it takes. Bytes
 * "of late" lose half their weight every CLIENT_PACE_HALF_US, so that much content at once does not
 * pay for a long drip.
 *
 * A plain value: embed it. Fields are private to client_pace.c.
 */
#ifndef RECEIVE_CLIENT_PACE_H
#define RECEIVE_CLIENT_PACE_H

#include <stdbool.h>
#include <stdint.h>

#include "times.h"

#define CLIENT_PACE_CREDIT  1000 /* bytes; about what it takes to say a transaction */
#define CLIENT_PACE_HALF_US (8 * US_PER_S)

struct client_pace {
    struct mono since; /* its turn since; MONO_NEVER: it is ours */
    int64_t waited_us; /* since its last message, until `since` */
    double recent_us;  /* of late, likewise, with their weights */
    double recent_bytes;
};

/* A client whose turn it is from now on, and that has been waited for so long already. */
void client_pace_begin(struct client_pace *p, struct mono now, int64_t waited_us);

/* From now on it is the client's turn, or ours. No effect when it was before. */
void client_pace_wait(struct client_pace *p, struct mono now);
void client_pace_rest(struct client_pace *p, struct mono now);

/* The client has sent so many bytes. */
void client_pace_add(struct client_pace *p, struct mono now, uint64_t bytes);

/* It has delivered a message. */
void client_pace_delivered(struct client_pace *p, struct mono now);

/* Is it the client's turn? */
bool client_pace_waits(const struct client_pace *p);

/* How long it was waited for since its last message. */
int64_t client_pace_waited_us(const struct client_pace *p, struct mono now);

/* Bytes per second. */
double client_pace_rate(const struct client_pace *p, struct mono now);

#endif
