/*
 * One mail server as the TCP of its clients sees it: what happens between connect(2) and the
 * greeting when more connections come than its processes can take.
 *
 *   SYN --> listen queue has room ------> queued --> a process accepts --> greeted --> deliveries
 *     |        no room, half_open ------> half open (the client believes to be connected); a place
 *     |                                   that comes free is taken only when the server repeats its
 *     |                                   SYN-ACK, and after five of them it forgets
 *     `---- no room: no answer; the client repeats its SYN
 *
 * A client that gives up while it is queued leaves a dead connection behind: it keeps its place
 * until a process accepts it, greets it, and finds no client there. A process serves one connection
 * after the other, and one that its client keeps for later occupies it.
 *
 * sim_site.h is the simpler model, of many hosts and their outages; this one is for questions about
 * overload (docs/replays.md).
 */
#ifndef REPLAY_SIM_SERVER_H
#define REPLAY_SIM_SERVER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "rng.h"
#include "sim_events.h"

struct sim_server_model {
    uint32_t processes;    /* connections served at once */
    uint32_t client_limit; /* of one client; one more is answered with 421. 0: no limit */
    uint32_t backlog;      /* as listen(2) has it; the queue holds one more, as on Linux */
    bool half_open;     /* handshakes complete beyond the queue, as on Linux; else SYNs are lost */
    int64_t rcpt_us;    /* the server's time for a recipient */
    int64_t accept_us;  /* from a free process to the greeting, or the 421 */
    int64_t message_us; /* the rest of a delivery */
    int64_t close_us;   /* from the client's end of a connection to a free process */
};

/* What a client is told of an attempt. */
enum sim_server_end {
    SIM_SERVER_DELIVERED,
    SIM_SERVER_CONNECT_TIMEOUT,
    SIM_SERVER_GREETING_TIMEOUT,
    SIM_SERVER_TURNED_AWAY, /* 421 */
    SIM_SERVER_ENDS
};

struct sim_server;
struct sim_link;

/* A delivery, from connect to the last reply. Embed it in what knows the rest. */
struct sim_call {
    /* by the caller: */
    uint32_t rcpt_count;
    int64_t connect_timeout_us, greeting_timeout_us;
    /* Called when `end` stands; the call may then be freed. After SIM_SERVER_DELIVERED the
     * connection is the caller's: sim_link_hang_up, or sim_link_call again. */
    void (*done)(struct sim_call *call, enum sim_server_end end, struct sim_link *link);
    /* by the server: */
    struct sim_event patience;
    struct sim_link *link;
};

struct sim_server {
    const struct sim_server_model *model; /* borrowed */
    struct sim_events *events;            /* borrowed */
    struct rng rng;
    uint32_t busy;    /* processes with a connection */
    uint32_t counted; /* connections that count for client_limit */
    uint32_t queued, young;
    TAILQ_HEAD(sim_links, sim_link) queue; /* to be accepted, the oldest first */
    struct sim_links others;               /* all other connections */
};

/* `model` and `events` must outlive the server. */
void sim_server_init(struct sim_server *server, const struct sim_server_model *model,
                     struct sim_events *events, uint64_t seed);

/* Connections that are left end without a word. */
void sim_server_fini(struct sim_server *server);

/* Connect and deliver. call->done comes later, never from here. */
void sim_server_call(struct sim_server *server, struct sim_call *call);

/* Deliver over a connection that was kept. */
void sim_link_call(struct sim_link *link, struct sim_call *call);

/* Close it. */
void sim_link_hang_up(struct sim_link *link);

/* When its client began to connect. */
struct mono sim_link_began(const struct sim_link *link);

/* Abort unless counts and lists agree. */
void sim_server_audit(const struct sim_server *server);

#endif
