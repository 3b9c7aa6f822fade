/*
 * Dialogues of SMTP connections, for operators who watch (`sluice trace`): the part in the
 * processes with connections.
 *
 *     control <-- WIRE_DIALOGUE -- queue <-- WIRE_DIALOGUE -- this <-- sessions
 *             -- "watch" -->             -- WIRE_WATCHES -->
 *
 * Sessions report their input and output if dialogue_is_on, which costs one test per line without a
 * watch. The protocol engines mark logins and content; their bytes are not passed to this module,
 * only their number.
 *
 * Mail has precedence. A line is sent only while less than DIALOGUE_WAITING_MAX bytes wait for the
 * queue process, and at most DIALOGUE_LINES_MAX lines per second. Other lines are counted; the next
 * line of that watch has the number.
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

/* All members are private to dialogue.c. */
struct dialogue {
    bool on;                      /* there is a watch */
    struct channel *const *queue; /* borrowed; *queue NULL: the queue process is gone */
    struct dialogue_watch watches[WIRE_WATCHES_MAX];
    unsigned count;
    uint64_t connections;
    struct mono second; /* time when `lines` began to count */
    unsigned lines;
};

/* State of a connection, kept by its session; all zero at first. */
struct dialogue_end {
    uint64_t number;  /* 0: none yet */
    uint64_t content; /* bytes of content not reported yet */
    bool content_ours;
};

/* Facts about a connection; borrowed for the call. Slices that do not apply are empty. */
struct dialogue_facts {
    struct slice peer;   /* "host[address]:port" */
    struct slice host;   /* a client's name; otherwise the peer's */
    struct slice source; /* our address */
    struct slice tls;
    struct slice transport, nexthop, id; /* destination and message that it serves */
    const unsigned char *client;         /* a client's address (cidr); NULL: we have connected */
    bool is_client;
};

void dialogue_init(struct dialogue *d, struct channel *const *queue);
/* Removes all watches: the queue process is gone, or this process ends. */
void dialogue_drop(struct dialogue *d);

/* Handles WIRE_WATCHES. Returns false if it does not decode. */
bool dialogue_watches(struct dialogue *d, struct slice body);

static inline bool dialogue_is_on(const struct dialogue *d)
{
    return d->on;
}

/* Sends an event to the watches of this connection. The bytes of SAID_CONTENT are added up until
 * another event follows. */
void dialogue_tell(struct dialogue *d, struct dialogue_end *end, const struct dialogue_facts *facts,
                   enum wire_said said, bool ours, struct slice text, uint64_t bytes);

/* Sends each of these lines as an event. */
void dialogue_tell_lines(struct dialogue *d, struct dialogue_end *end,
                         const struct dialogue_facts *facts, bool ours, struct slice lines);

#endif
