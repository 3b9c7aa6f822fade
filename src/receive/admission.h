/*
 * Which clients have a place when there are more clients than places.
 *
 * A process can hold so many connections and no more, and a client that does nothing holds one as
 * well as a client that brings mail. So a client is not turned away because it comes last: when
 * there is no place left, the slowest client loses its own.
 *
 *   cost     of a client: the places of its network / its pace (client_pace.h). The higher it is,
 *            the slower the client. An exempt client counts as one place, whatever its network has.
 *   victim   the client of the highest cost among those that were waited for at least `patience_us`
 *            since their last message, if that is more than the cost of the client that comes.
 *            None: the client that comes is turned away.
 *   memory   of an address whose client lost its place, or held it in vain: for how long it was
 *            waited for. Its next client begins with that, so coming back at once gains nothing. It
 *            halves every ADMISSION_FORGET_US and ends with the first message delivered.
 *
 * Limits, in the order in which they are looked at:
 *
 *   address_max     places of one address, not for exempt clients. The one that comes is turned
 *                   away.
 *   share_percent   of the free places, what one network may hold, not for exempt clients. So the
 *                   allowance shrinks as places get scarce, and a few stay free for networks that
 *                   have none (dynamic thresholds: Choudhury and Hahne, 1998). The one that comes
 *                   may take the place of a client of the same network.
 *   reserve         of all places, kept for trusted clients
 *   places          all
 *
 * Addresses and networks are blocks: an IPv6 host has 2^64 addresses to choose from, so its address
 * is the /64. A network is what one party is likely to have as a whole.
 *
 * Without I/O and clock. The owner has the connections: it embeds a struct place in each, takes the
 * place of a victim away with admission_leave, and ends its connection.
 *
 * Cost: O(1), but for the choice of a victim: one walk over all places finds up to
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
/* A walk that found no victim is not repeated within this. */
#define ADMISSION_AGAIN_US  (5 * US_PER_MS)
#define ADMISSION_FORGET_US (60 * US_PER_S)
/* Addresses without places that are remembered; beyond it the oldest is forgotten. */
#define ADMISSION_REMEMBERED_MAX 16384

struct admission_limits {
    uint64_t places;
    uint64_t reserve;       /* of these, for trusted clients only; less than places */
    uint64_t address_max;   /* UINT64_MAX: no limit */
    uint64_t share_percent; /* 0: no limit */
    int64_t patience_us;
    unsigned address_bits4, address_bits6; /* what is one address: bits of a prefix */
    unsigned network_bits4, network_bits6; /* and one network */
};

enum admission_limit {
    ADMISSION_ADDRESS,
    ADMISSION_NETWORK,
    ADMISSION_PLACES,
    ADMISSION_MEMORY,
    ADMISSION_LIMITS /* how many there are */
};

struct place;

/* Take its place away from a victim, because of this limit, and end its connection. */
typedef void admission_drop(struct place *victim, enum admission_limit limit);

/* A client that comes. */
struct admission_client {
    admission_drop *drop;    /* may be NULL for one that is never a victim */
    const unsigned char *ip; /* 16 bytes, IPv4 as ::ffff:a.b.c.d; NULL: none */
    bool trusted;
    bool exempt;
};

struct admission_block;

/* A client with a place. Fields are private to admission.c but for `pace`, which the owner keeps.
 */
struct place {
    struct client_pace pace;
    admission_drop *drop; /* for the one who found it as a victim */
    const uint64_t *held; /* borrowed: bytes of memory that the client holds now */
    struct admission_block *address, *network; /* NULL: it has no IP address */
    bool trusted;
    bool exempt;
    size_t index;     /* in admission->all */
    size_t candidate; /* in admission->candidates, + 1; 0: it is none */
    LIST_ENTRY(place) of_network;
};

struct admission {
    struct place **all;                       /* owned; unordered */
    size_t count, room;                       /* of `all` */
    uint64_t strangers;                       /* of these, not trusted */
    struct admission_block *blocks;           /* a hash */
    TAILQ_HEAD(, admission_block) remembered; /* without places, oldest first */
    size_t remembered_count;
    struct place
        *candidates[ADMISSION_CANDIDATES]; /* strangers, highest cost first; may have gaps */
    size_t candidate_count, candidate_next;
    double candidate_cost; /* of the least, when they were found */
    struct mono no_victim_until;
};

/* The parameter that sets it. */
const char *admission_limit_name(enum admission_limit limit);

struct admission_answer {
    bool admitted;              /* perhaps in the place of the victim */
    enum admission_limit limit; /* if it is not, or there is a victim: what was hit */
    struct place *victim;       /* to be taken away first; NULL: none */
};

void admission_init(struct admission *a);

/* All places have been left. */
void admission_fini(struct admission *a);

/* May it come in? Changes no place. */
struct admission_answer admission_ask(struct admission *a, const struct admission_limits *limits,
                                      const struct admission_client *client, struct mono now);

/* It has come in: `place` is its own until admission_leave, `held` borrowed until then. Its pace
 * begins. */
void admission_enter(struct admission *a, const struct admission_limits *limits,
                     struct place *place, const struct admission_client *client,
                     const uint64_t *held, struct mono now);

/* The client has proven who it is: from now on it is one that is trusted. */
void admission_trust(struct admission *a, struct place *place);

/* The client goes. `in_vain`: it was sent away for slowness, which its address is remembered for.
 */
void admission_leave(struct admission *a, struct place *place, bool in_vain, struct mono now);

/* It has delivered a message. */
void admission_delivered(struct place *place, struct mono now);

/* Memory is short for `self` (may have a place or be NULL): which client has to go? The most bytes
 * held at the highest cost, more than those of `self`. NULL: none. */
struct place *admission_memory_victim(const struct admission *a,
                                      const struct admission_limits *limits,
                                      const struct place *self, struct mono now);

/* For the log: places of the client's address and network, with the client; 1 without IP address.
 */
uint64_t admission_address_places(const struct place *place);
uint64_t admission_network_places(const struct place *place);

/* Abort unless what is said above holds. For tests. */
void admission_audit(const struct admission *a);

#endif
