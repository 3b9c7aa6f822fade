/*
 * Part of a spool: which messages are there, and for which destinations.
 *
 * An engine offers it unless another process asks its store better: the one of a cluster lets the
 * control process ask the database, so that no operator's list delays the queue process. Without
 * the part every call is -ENOTSUP. An engine that knows nothing of the mail that waits (Postfix's
 * directory) has to look through it: a list or count may then end before `max`, and go on.
 *
 * Called inside a batch (which they see) and outside, open for reading or for writing. Errors are
 * those of storage (spool.h).
 * Slices that are handed out last until the next call on the same spool; those of a filter and of
 * `from` are the caller's and only borrowed for the call.
 */
#ifndef SPOOL_SPOOL_SEARCH_H
#define SPOOL_SPOOL_SEARCH_H

#include "spool.h"

struct spool_places;

/* All conditions that are given must hold. Zeroed = everything. Addresses and domains compare
 * without regard to the case of ASCII letters, transports and nexthops exactly. Of recipients,
 * those that are still there count, in any state. */
struct spool_filter {
    unsigned states;            /* bit 1 << state; 0 = all */
    struct slice sender;        /* whole address, or "@domain"; "<>" = null sender */
    struct slice rcpt;          /* whole address, or "@domain" */
    struct slice destination;   /* "transport/nexthop", "nexthop", or a recipient's domain */
    struct slice class_name;    /* exactly */
    struct slice name;          /* of the control file: its name, path or spoolid */
    struct wall arrived_before; /* us 0 = any */
    struct wall arrived_after;
    uint64_t size_min;
    uint64_t size_max;   /* 0 = any */
    struct msg_id after; /* continue behind this id */
    /* Where several nodes share the spool, borrowed: only what lies there, each part by itself.
     * NULL: all, a message in parts as one. */
    const struct spool_places *places;
    bool waits; /* not what passes, where the engine has that apart */
    /* As it is from now on, for another number: what a database has found is kept for a moment. */
    uint64_t look;
};

/* Messages that match, one page: at most `max` ids, in their order, or, where the engine looks
 * through its store, as it finds them. Uses indexes: the cost grows
 * with the matches of the most selective condition. */
int spool_scan(struct spool *sp, const struct spool_filter *f, size_t max, struct msg_id *ret_ids,
               size_t *ret_count);

/* After spool_scan or spool_count, before any other call: they have ended at what one call may
 * look at, or at `max`, and the rest is behind *ret_after. An engine that sees all of its mail
 * never says so. -ESTALE from a call with such an `after`: the list was given up, as others were
 * asked for. */
bool spool_scan_goes_on(const struct spool *sp, struct msg_id *ret_after);

/* How many match. */
int spool_count(struct spool *sp, const struct spool_filter *f, uint64_t *ret_count);

/* Pending recipients per destination, the most first (ties by name), at most `max`, and of how many
 * messages they are. One not routed yet counts for its domain, with an empty transport. Kept up to
 * date by every change: the cost grows with the number of destinations, and with passing mail. */
struct spool_destination {
    struct slice transport, nexthop; /* as slices of spool_rcpt */
    uint64_t rcpts, messages;
};
int spool_destinations(struct spool *sp, size_t max, struct spool_destination *ret,
                       size_t *ret_count);

/* The same in order of nexthop, then transport, `from` and those behind it: pages of all of them.
 * Costs what the page holds, and passing mail. `from` is no slice of this spool's. */
int spool_destinations_from(struct spool *sp, const struct spool_destination *from, size_t max,
                            struct spool_destination *ret, size_t *ret_count);

/* When the oldest message arrived that has recipients pending for this destination (fields
 * `transport` and `nexthop`). -ENOENT: there is none. Costs as much as it has messages, or less. */
int spool_oldest(struct spool *sp, const struct spool_destination *of, struct wall *ret_arrived);

/* All mail with recipients that wait, in pieces, for those who sum it up: by destination each
 * recipient, else each message with its sender or class. */
enum spool_walk_by {
    SPOOL_WALK_DESTINATION,
    SPOOL_WALK_SENDER,
    SPOOL_WALK_SENDER_DOMAIN,
    SPOOL_WALK_CLASS,
};

/* Where a walk has come to; zeroed: at its start. */
struct spool_walk {
    struct msg_id id;
    uint32_t n;
    bool ended;
};

struct spool_walked {
    struct slice key;       /* next hop, sender or class; lasts like a read, as does: */
    struct slice transport; /* of a next hop, else empty */
    enum spool_state state;
    struct wall arrived;
    uint64_t rcpts; /* that wait */
};

/* At most `max` more; at the end of all w->ended is set. The cost grows with what is handed out.
 * Mail that comes or goes meanwhile may be missed. -ENOTSUP where the store can't do it. */
int spool_walk(struct spool *sp, enum spool_walk_by by, struct spool_walk *w, size_t max,
               struct spool_walked *ret, size_t *ret_count);

/* Does the engine find mail that falls due by a look through its store now and then? Then mail may
 * be due for a while without a fault, and is not to be looked for. */
bool spool_due_by_scans(const struct spool *sp);

/* The part, as spool_engine.h wants it: functions as the calls above. */
struct spool_search_part {
    bool due_by_scans;
    int (*scan)(struct spool *sp, const struct spool_filter *f, size_t max, struct msg_id *ret_ids,
                size_t *ret_count);
    int (*count)(struct spool *sp, const struct spool_filter *f, uint64_t *ret_count);
    bool (*goes_on)(const struct spool *sp, struct msg_id *ret_after); /* NULL: never */
    int (*destinations)(struct spool *sp, size_t max, struct spool_destination *ret,
                        size_t *ret_count);
    int (*destinations_from)(struct spool *sp, const struct spool_destination *from, size_t max,
                             struct spool_destination *ret, size_t *ret_count);
    /* NULL: ids grow as messages arrive, so the first that spool_scan finds is the oldest. */
    int (*oldest)(struct spool *sp, const struct spool_destination *of, struct wall *ret_arrived);
    int (*walk)(struct spool *sp, enum spool_walk_by by, struct spool_walk *w, size_t max,
                struct spool_walked *ret, size_t *ret_count); /* NULL: -ENOTSUP */
};

#endif
