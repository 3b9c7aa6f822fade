/*
 * Choice of the clients that get a place when there are more clients than places.
 *
 * A process can hold a limited number of connections, and an idle client holds one as well as a
 * client that sends mail. Therefore a new client is not refused only because it comes last: when no
 * place is free, the slowest client loses its own.
 *
 *   cost     of a client: places of its network / pace (client_pace.h). The higher the cost, the
 *            slower the client. An exempt client counts as one place, however many its network has.
 *   victim   the client of the highest cost among those that the server has waited for at least
 *            `patience_us` since their last message, if that cost is more than the newcomer's.
 *            Without a victim the newcomer is turned away.
 *   memory   of an address whose client lost its place or was sent away for slowness: the time that
 *            the server waited for the client. The next client of the address begins with that
 *            time, so an immediate return gains nothing. The time halves every
 *            ADMISSION_FORGET_US; the first delivered message resets it to 0.
 *
 * Limits, in the order of the checks:
 *
 *   address_max     places of one address, not for exempt clients. The newcomer is turned away.
 *   share_percent   share of the free places that one network may hold, not for exempt clients. So
 *                   the allowance shrinks as places get scarce, and a few stay free for networks
 *                   that have none (dynamic thresholds: Choudhury and Hahne, 1998). The newcomer
 *                   may take the place of a client of its own network.
 *   reserve         the part of `places` that is kept for trusted clients
 *   places          all places
 *
 * Addresses and networks are blocks: an IPv6 host can choose from 2^64 addresses, so its address is
 * the /64. A network is the block that one party usually has.
 *
 * The module has no I/O and no clock. The owner has the connections: it embeds a struct place in
 * each, calls admission_leave for a victim, and closes the victim's connection.
 *
 * Cost: O(1), except for the choice of a victim: one walk over all places finds up to
 * ADMISSION_CANDIDATES of them.
 */
#ifndef RECEIVE_ADMISSION_H
#define RECEIVE_ADMISSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "client_pace.h"
#include "times.h"

#define ADMISSION_CANDIDATES 64
/* Time after a walk without a victim during which no walk is made. */
#define ADMISSION_AGAIN_US  (5 * US_PER_MS)
#define ADMISSION_FORGET_US (60 * US_PER_S)
/* Maximum of remembered addresses without places; beyond it the oldest is forgotten. */
#define ADMISSION_REMEMBERED_MAX 16384

struct admission_limits {
    uint64_t places;
    uint64_t reserve;       /* part of `places` for trusted clients only; less than places */
    uint64_t address_max;   /* UINT64_MAX: no limit */
    uint64_t share_percent; /* 0: no limit */
    int64_t patience_us;
    unsigned address_bits4, address_bits6; /* prefix length of an address */
    unsigned network_bits4, network_bits6; /* prefix length of a network */
};

enum admission_limit {
    ADMISSION_ADDRESS,
    ADMISSION_NETWORK,
    ADMISSION_PLACES,
    ADMISSION_MEMORY,
    ADMISSION_LIMITS /* number of limits */
};

struct place;

/* Calls admission_leave for a victim of this limit, and closes the victim's connection. */
typedef void admission_drop(struct place *victim, enum admission_limit limit);

/* A newcomer. */
struct admission_client {
    admission_drop *drop;    /* NULL for a client that is never a victim */
    const unsigned char *ip; /* 16 bytes, IPv4 as ::ffff:a.b.c.d; NULL: no address */
    bool trusted;
    bool exempt;
};

struct admission_block;

/* A client with a place. Its fields are private to admission.c, except `pace`, which the owner
 * updates. */
struct place {
    struct client_pace pace;
    admission_drop *drop; /* callback for the caller that chooses this place as the victim; NULL:
                           * never a victim */
    const uint64_t *held; /* bytes of memory that the client holds now; borrowed */
    struct admission_block *address, *network; /* NULL for a client without an IP address */
    bool trusted;
    bool exempt;
    size_t index;     /* index in admission->all */
    size_t candidate; /* index in admission->candidates + 1; 0: no candidate */
    LIST_ENTRY(place) of_network;
};

struct admission {
    struct place **all;                       /* all places; owned array, unordered */
    size_t count, room;                       /* number of entries and allocated entries of `all` */
    uint64_t strangers;                       /* number of places of clients that are not trusted */
    struct admission_block *blocks;           /* hash of addresses and networks */
    TAILQ_HEAD(, admission_block) remembered; /* addresses without places, oldest first */
    size_t remembered_count;
    struct place
        *candidates[ADMISSION_CANDIDATES]; /* places of strangers, highest cost first; may have
                                            * gaps */
    size_t candidate_count, candidate_next;
    double candidate_cost; /* lowest cost among the candidates when they were found */
    struct mono no_victim_until;
};

/* Returns the name of the parameter that sets the limit. */
const char *admission_limit_name(enum admission_limit limit);

struct admission_answer {
    bool admitted;              /* true also if the newcomer needs the victim's place */
    enum admission_limit limit; /* limit that was reached; valid if refused or with a victim */
    struct place *victim;       /* client that must leave first; NULL: none */
};

void admission_init(struct admission *a);

/* Frees what is left. The caller has freed all places with admission_leave. */
void admission_fini(struct admission *a);

/* May the client get a place? Changes no place. */
struct admission_answer admission_ask(struct admission *a, const struct admission_limits *limits,
                                      const struct admission_client *client, struct mono now);

/* Gives `place` to an admitted client until admission_leave, and begins its pace. `held` is
 * borrowed until then. */
void admission_enter(struct admission *a, const struct admission_limits *limits,
                     struct place *place, const struct admission_client *client,
                     const uint64_t *held, struct mono now);

/* Makes the client a trusted one, after a login. */
void admission_trust(struct admission *a, struct place *place);

/* Frees the place. `in_vain`: the client was sent away for slowness, and the module remembers this
 * for its address. */
void admission_leave(struct admission *a, struct place *place, bool in_vain, struct mono now);

/* Records that the client has delivered a message. */
void admission_delivered(struct place *place, struct mono now);

/* Returns the client that should go when memory for `self` is short: the highest product of cost
 * and bytes held, if that is more than the product of `self`. NULL: none. `self` may have no place
 * or be NULL. */
struct place *admission_memory_victim(const struct admission *a,
                                      const struct admission_limits *limits,
                                      const struct place *self, struct mono now);

/* Returns the number of places of the client's network, for the log; 1 for a client without
 * address. */
uint64_t admission_network_places(const struct place *place);

/* Aborts if the invariants above are broken. For tests. */
void admission_audit(const struct admission *a);

#endif
