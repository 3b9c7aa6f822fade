/*
 * The delivery of one entry by SMTP or LMTP: next hops, hosts, addresses and connections are tried
 * in order until every recipient has a verdict.
 *
 *   WAITING --> (kept connection) ------------------------------+
 *      |                                                        v
 *      +--> LOOKING_UP --> CONNECTING --> HANDSHAKE --> TRANSACTION --> done
 *               ^              ^  |                           |
 *               |   next hop   |  | next address              | session failed: the recipients
 *               +--------------+--+<--------------------------+ without a verdict go on
 *
 * - A reply to a recipient, 4xx included, is its verdict; other hosts are tried only when the
 *   session itself fails. (Postfix tries its other hosts after a 4xx to RCPT, too; a site that
 *   says "later" means all of it, and greylisting sees one host.)
 * - No recipient is delivered twice by one attempt. When all content was sent and no reply came,
 *   the recipients in it are deferred, and the result says that they may get the message twice.
 * - A connection that was kept and turns out to be dead before the peer answered MAIL is replaced
 *   by a fresh one, and nothing was lost.
 * - Nothing is begun while the node's lease is over (lease_page.h), and what has not come to the
 *   end of its content is broken off: its recipients without a verdict go back as if not tried.
 * - The site is blamed (OUTCOME_SITE_FAIL) when the failure is of the site class, no other address
 *   or next hop was left, it made some recipient wait, and no session of this attempt ended well.
 */
#ifndef DELIVER_ATTEMPT_H
#define DELIVER_ATTEMPT_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/queue.h>

#include "channel.h"
#include "conncache.h"
#include "smtp_destination.h"
#include "assignment.h"
#include "hops.h"
#include "session.h"

/* Idle connections kept by one process. */
#define ATTEMPT_CACHE_MAX 1000

struct attempt;
TAILQ_HEAD(attempt_list, attempt);

/* What all deliveries of a process share. */
struct attempts {
    struct sessions *sessions;
    struct smtp_destinations *destinations;
    struct hops_world world;
    struct conncache cache;
    struct assignments assignments; /* `told` may call nothing of this engine */
    struct attempt_list running;    /* all that are not waiting */
    struct attempt_list waiting;    /* for a descriptor, first come first served */
    size_t bare;                    /* running ones without a session */
    size_t socket_limit;            /* sessions at once */
    size_t descriptors;             /* assignments whose content is in one */
    bool room_made;                 /* a session has vanished since start_waiting */
    struct mono held_until;         /* the system had no descriptor: start nothing before */
    bool stopping;
};

/* The fields `sessions`, `destinations`, `world` and `socket_limit` are then the caller's to set,
 * and `queue` or `told` of `assignments`. */
void attempts_init(struct attempts *all);

/* When no attempt is left. Frees the members named above but for socket_limit. */
void attempts_fini(struct attempts *all);

/* A new assignment (taken): starts at once or waits for a descriptor. */
void attempts_add(struct attempts *all, struct assignment *assignment);

/* Start what waits, as far as there are descriptors. At the end of each turn. */
void attempts_run(struct attempts *all);

/* Content for an assignment has come; `fd` is taken. */
void attempts_content(struct attempts *all, const struct wire_content *m, int fd);

/* Close kept connections with QUIT: all (empty transport: an operator wants mail tried again, and
 * logins do not rest any more), or those to a destination, which another node gets: those in use
 * are not kept either, until a delivery comes for it again. */
void attempts_forget(struct attempts *all, struct slice transport, struct slice nexthop);

/* The node's lease is over: break off what has not reached the end of its content, and close kept
 * connections. */
void attempts_break_off(struct attempts *all);
/* Another node waits for the mail of this entry: the same, if it is here still. */
void attempts_break_off_one(struct attempts *all, uint64_t entry);

/* Give back what was not begun; close kept connections with QUIT. What is in a transaction
 * goes on. */
void attempts_stop(struct attempts *all);

/* End the rest, too: nothing is waited for any more. */
void attempts_cut(struct attempts *all);

/* The queue process is gone and will deliver anew what it has no result for. Drop everything that
 * has not reached the end of its content; the rest goes on, because by now the peer may have the
 * message, and its reply at least tells the log. */
void attempts_queue_lost(struct attempts *all);

bool attempts_idle(const struct attempts *all);
/* No connection is kept. */
bool attempts_keep_none(const struct attempts *all);

/* For sessions_new: `arg` is the struct attempts. */
void attempts_session_closed(void *arg, const struct session_settings *settings);

#endif
