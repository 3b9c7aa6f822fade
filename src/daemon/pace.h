/*
 * How fast a client has been of late, to choose between clients when there are too many.
 *
 * Time counts only while it is the client's turn: what it waits for us is not its fault. Its pace
 * is
 *
 *     PACE_CREDIT bytes / the time it was waited for since its last message
 *   + its bytes of late / the time it was waited for of late
 *
 * So a client that has just come, or has just delivered, is fast; one that keeps us waiting gets
 * slower with every moment; one that sends steadily keeps its rate, however long it takes. Bytes
 * "of late" lose half their weight every PACE_HALF_US, so that much content at once does not pay
 * for a long drip.
 *
 * A plain value: embed it. Fields are private to pace.c.
 */
#ifndef DAEMON_PACE_H
#define DAEMON_PACE_H

#include <stdbool.h>
#include <stdint.h>

#include "times.h"

#define PACE_CREDIT  1000 /* bytes; about what it takes to say a transaction */
#define PACE_HALF_US (8 * US_PER_S)

struct pace {
    struct mono since; /* its turn since; MONO_NEVER: it is ours */
    int64_t waited_us; /* since its last message, until `since` */
    double recent_us;  /* of late, likewise, with their weights */
    double recent_bytes;
};

/* A client whose turn it is from now on, and that has been waited for so long already. */
void pace_begin(struct pace *p, struct mono now, int64_t waited_us);

/* From now on it is the client's turn, or ours. No effect when it was before. */
void pace_wait(struct pace *p, struct mono now);
void pace_rest(struct pace *p, struct mono now);

/* The client has sent so many bytes. */
void pace_add(struct pace *p, struct mono now, uint64_t bytes);

/* It has delivered a message. */
void pace_delivered(struct pace *p, struct mono now);

/* Is it the client's turn? */
bool pace_waits(const struct pace *p);

/* How long it was waited for since its last message. */
int64_t pace_waited_us(const struct pace *p, struct mono now);

/* Bytes per second. */
double pace_rate(const struct pace *p, struct mono now);

#endif
