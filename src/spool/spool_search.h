/*
 * Part of a spool: which messages exist, and for which destinations.
 *
 * An engine offers this part unless another process searches its store better: in a cluster the
 * control process queries the database, so that an operator's list does not delay the queue
 * process. Without this part every call returns -ENOTSUP. An engine without knowledge of waiting
 * mail (Postfix's directory) must scan its store: a list or count may then end before `max`, and
 * continue.
 *
 * The calls work inside a batch, whose changes they see, and outside, with the spool open for
 * reading or writing. Errors are those of storage (spool.h). Returned slices last until the next
 * call on the same spool; those of a filter and of `from` belong to the caller and are borrowed for
 * the call.
 */
#ifndef SPOOL_SPOOL_SEARCH_H
#define SPOOL_SPOOL_SEARCH_H

#include "spool.h"

struct spool_places;

/* Conditions, which must all hold. Zeroed = everything. Addresses and domains compare without
 * regard to the case of ASCII letters, transports and next hops exactly. Recipients count in any
 * state, as long as they have rows. */
struct spool_filter {
    unsigned states;            /* bits 1 << state; 0 = all */
    struct slice sender;        /* whole address, or "@domain"; "<>" = null sender */
    struct slice rcpt;          /* whole address, or "@domain" */
    struct slice destination;   /* "transport/nexthop", "nexthop", or a recipient's domain */
    struct slice class_name;    /* exact name */
    struct slice name;          /* name, path or spoolid of the control file */
    struct wall arrived_before; /* us 0 = any */
    struct wall arrived_after;
    uint64_t size_min;
    uint64_t size_max;   /* 0 = any */
    struct msg_id after; /* the page begins after this id */
    /* For a spool that several nodes share, borrowed: only mail in these partitions, each part by
     * itself. NULL = all, a message in parts as one. */
    const struct spool_places *places;
    bool waits; /* omit passing mail, where the engine stores that separately */
    /* Number of the caller's snapshot. A new number reads again: results of a database are kept for
     * a moment. */
    uint64_t look;
};

/* Lists matching messages, one page: at most `max` ids, in their order, or, where the engine scans
 * its store, as it finds them. Uses indexes: the cost grows with the matches of the most selective
 * condition. */
int spool_scan(struct spool *sp, const struct spool_filter *f, size_t max, struct msg_id *ret_ids,
               size_t *ret_count);

/* Has the last spool_scan or spool_count stopped at the limit of one call, or at `max`? Then the
 * rest is after *ret_after. Call it before any other call. False for an engine that has all of its
 * mail indexed. A call with such an `after` returns -ESTALE if that scan was dropped to make room
 * for another. */
bool spool_scan_goes_on(const struct spool *sp, struct msg_id *ret_after);

/* Counts the matching messages. */
int spool_count(struct spool *sp, const struct spool_filter *f, uint64_t *ret_count);

/* Lists the destinations with the most pending recipients first (ties by name), at most `max`, with
 * the numbers of recipients and of their messages. A recipient without a route counts for its
 * domain, with an empty transport. Every change updates the numbers: the cost grows with the number
 * of destinations, and with passing mail. */
struct spool_destination {
    struct slice transport, nexthop; /* lifetime as slices of spool_rcpt */
    uint64_t rcpts, messages;
};
int spool_destinations(struct spool *sp, size_t max, struct spool_destination *ret,
                       size_t *ret_count);

/* Lists destinations in order of next hop, then transport, beginning with `from`: pages of all of
 * them. The cost grows with the page, and with passing mail. `from` must not be a slice of this
 * spool. */
int spool_destinations_from(struct spool *sp, const struct spool_destination *from, size_t max,
                            struct spool_destination *ret, size_t *ret_count);

/* Returns the arrival time of the oldest message with pending recipients for this destination
 * (fields `transport` and `nexthop`). -ENOENT: there is none. The cost grows with the destination's
 * messages at most. */
int spool_oldest(struct spool *sp, const struct spool_destination *of, struct wall *ret_arrived);

/* The way a walk groups waiting mail: by destination each recipient, else each message with its
 * sender or class. */
enum spool_walk_by {
    SPOOL_WALK_DESTINATION,
    SPOOL_WALK_SENDER,
    SPOOL_WALK_SENDER_DOMAIN,
    SPOOL_WALK_CLASS,
};

/* The position of a walk; zeroed = its start. */
struct spool_walk {
    struct msg_id id;
    uint32_t n;
    bool ended;
};

struct spool_walked {
    struct slice key;       /* next hop, sender or class; this and transport last until the next
                             * call */
    struct slice transport; /* transport of a next hop, else empty */
    enum spool_state state;
    struct wall arrived;
    uint64_t rcpts; /* number of waiting recipients */
};

/* Walks over all mail with waiting recipients, at most `max` results per call; sets w->ended at the
 * end. The cost grows with the number of results. Mail that arrives or leaves meanwhile may be
 * missed. -ENOTSUP if the store can't do it. */
int spool_walk(struct spool *sp, enum spool_walk_by by, struct spool_walk *w, size_t max,
               struct spool_walked *ret, size_t *ret_count);

/* Does the engine find due mail by scanning its store now and then? Then mail may be due for a
 * while without a fault, and is not searched for as stuck mail. */
bool spool_due_by_scans(const struct spool *sp);

/* Functions of an engine with this part, as the calls above. */
struct spool_search_part {
    bool due_by_scans;
    int (*scan)(struct spool *sp, const struct spool_filter *f, size_t max, struct msg_id *ret_ids,
                size_t *ret_count);
    int (*count)(struct spool *sp, const struct spool_filter *f, uint64_t *ret_count);
    bool (*goes_on)(const struct spool *sp, struct msg_id *ret_after); /* NULL = false */
    int (*destinations)(struct spool *sp, size_t max, struct spool_destination *ret,
                        size_t *ret_count);
    int (*destinations_from)(struct spool *sp, const struct spool_destination *from, size_t max,
                             struct spool_destination *ret, size_t *ret_count);
    /* NULL = ids grow as messages arrive, so the first id of spool_scan is the oldest. */
    int (*oldest)(struct spool *sp, const struct spool_destination *of, struct wall *ret_arrived);
    int (*walk)(struct spool *sp, enum spool_walk_by by, struct spool_walk *w, size_t max,
                struct spool_walked *ret, size_t *ret_count); /* NULL = -ENOTSUP */
};

#endif
