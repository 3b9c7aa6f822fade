/*
 * What is said on SMTP connections, for operators who watch (`sluice trace`): the part in the
 * processes that talk.
 *
 *     control <-- WIRE_DIALOGUE -- queue <-- WIRE_DIALOGUE -- this <-- sessions
 *             -- "watch" -->             -- WIRE_WATCHES -->
 *
 * Sessions tell what they say and hear, when dialogue_is_on: one test for each line while there
 * is no watch. What of it is a login or content is said by the protocol engines, which know; its
 * bytes never come here, only how many there are.
 *
 * Mail comes first. A line goes out only while less than DIALOGUE_WAITING_MAX bytes wait for the
 * queue process, and DIALOGUE_LINES_MAX of them in a second; the others are counted, and the next
 * line of that watch tells how many they were.
 */
#ifndef PROCESS_DIALOGUE_H
#define PROCESS_DIALOGUE_H

#include <stdbool.h>
#include <stdint.h>

#include "channel.h"
#include "match.h"
#include "slice.h"
#include "times.h"
#include "wire.h"

#define DIALOGUE_WAITING_MAX (256u << 10)
#define DIALOGUE_LINES_MAX   5000u

struct dialogue_watch {
    uint64_t number;
    enum wire_watch_kind kind;
    char *what; /* owned */
    bool is_network;
    struct cidr network;
    uint64_t dropped;
};

/* Fields are private to dialogue.c. */
struct dialogue {
    bool on;                      /* there is a watch */
    struct channel *const *queue; /* borrowed; *queue NULL: there is no queue process now */
    struct dialogue_watch watches[WIRE_WATCHES_MAX];
    unsigned count;
    uint64_t connections;
    struct mono second; /* when `lines` began to count */
    unsigned lines;
};

/* A connection, as its session keeps it; all zero at first. */
struct dialogue_end {
    uint64_t number;  /* 0: it has none yet */
    uint64_t content; /* bytes of it that were not told yet */
    bool content_ours;
};

/* What is known of a connection; borrowed for the call. Slices that do not apply are empty. */
struct dialogue_facts {
    struct slice peer;   /* "host[address]:port" */
    struct slice host;   /* of a client: its name; else the peer's */
    struct slice source; /* our address */
    struct slice tls;
    struct slice transport, nexthop, id; /* whom it serves */
    const unsigned char *client;         /* its address (cidr); NULL: we have connected */
    bool is_client;
};

void dialogue_init(struct dialogue *d, struct channel *const *queue);
/* There are no watches any more: the queue process is gone, or this one ends. */
void dialogue_drop(struct dialogue *d);

/* WIRE_WATCHES. False: it does not decode. */
bool dialogue_watches(struct dialogue *d, struct slice body);

static inline bool dialogue_is_on(const struct dialogue *d)
{
    return d->on;
}

/* Tell it to those who watch this connection. SAID_CONTENT is summed up until something else
 * happens. */
void dialogue_tell(struct dialogue *d, struct dialogue_end *end, const struct dialogue_facts *facts,
                   enum wire_said said, bool ours, struct slice text, uint64_t bytes);

/* Each of these lines. */
void dialogue_tell_lines(struct dialogue *d, struct dialogue_end *end,
                         const struct dialogue_facts *facts, bool ours, struct slice lines);

#endif
