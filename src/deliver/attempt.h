/*
 * The delivery of one entry by SMTP or LMTP: tries next hops, hosts, addresses and connections in
 * order until each recipient has a verdict.
 *
 *   WAITING --> (kept connection) ------------------------------+
 *      |                                                        v
 *      +--> LOOKING_UP --> CONNECTING --> HANDSHAKE --> TRANSACTION --> done
 *               ^              ^  |                           |
 *               |   next hop   |  | next address              | session failed: the recipients
 *               +--------------+--+<--------------------------+ without a verdict go on
 *
 * - A reply to a recipient, even 4xx, is its verdict; other hosts are tried only if the session
 *   fails. (Postfix tries its other hosts after a 4xx to RCPT, too. Here a 4xx reply counts for the
 *   whole site, and greylisting sees one host.)
 * - No recipient is delivered twice by one attempt. If all content was sent and no reply came, its
 *   recipients are deferred, and the result warns of a possible duplicate.
 * - A kept connection that is found dead before the peer has answered MAIL is replaced by a new
 *   connection.
 * - While the node's lease is over (lease_page.h), no delivery begins. A delivery that has not sent
 *   the end of its content is broken off: recipients without a verdict go back untried.
 * - The site is blamed (OUTCOME_SITE_FAIL) if the failure is of the site class, no other address or
 *   next hop was left, some recipient was deferred for that reason, and no session of this attempt
 *   succeeded.
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

/* Largest number of idle connections of one process. */
#define ATTEMPT_CACHE_MAX 1000

struct attempt;
TAILQ_HEAD(attempt_list, attempt);

/* State shared by all deliveries of a process. */
struct attempts {
    struct sessions *sessions;
    struct smtp_destinations *destinations;
    struct hops_world world;
    struct conncache cache;
    struct assignments assignments; /* `told` must not call this engine */
    struct attempt_list running;    /* attempts that are not waiting */
    struct attempt_list waiting; /* attempts that wait for a descriptor, first come first served */
    size_t bare;                 /* number of running attempts without a session */
    size_t socket_limit;         /* largest number of sessions at once */
    size_t descriptors;          /* number of assignments with content in a descriptor */
    bool room_made;              /* a session has ended since start_waiting */
    /* time before which nothing starts, because the system had no descriptor */
    struct mono held_until;
    bool stopping;
};

/* Initializes `all`. Then the caller sets `sessions`, `destinations`, `world`, `socket_limit`, and
 * `queue` or `told` of `assignments`. */
void attempts_init(struct attempts *all);

/* Frees `world`, `destinations`, `sessions` and the cache; no attempt must be left. */
void attempts_fini(struct attempts *all);

/* Takes a new assignment, which starts at once or waits for a descriptor. */
void attempts_add(struct attempts *all, struct assignment *assignment);

/* Starts waiting attempts as far as descriptors allow; is called at the end of each turn. */
void attempts_run(struct attempts *all);

/* Takes the content of an assignment, and `fd`. */
void attempts_content(struct attempts *all, const struct wire_content *m, int fd);

/* Closes kept connections with QUIT. With an empty transport, closes all, and refused logins are
 * tried again: an operator wants mail retried. Otherwise closes those to one destination, which
 * another node gets; none is kept for it until it gets another delivery. */
void attempts_forget(struct attempts *all, struct slice transport, struct slice nexthop);

/* Breaks off each delivery that has not reached the end of its content, and closes kept
 * connections: the node's lease is over. */
void attempts_break_off(struct attempts *all);
/* Breaks off this entry's delivery, if it has not reached the end of its content: another node
 * waits for the mail. */
void attempts_break_off_one(struct attempts *all, uint64_t entry);

/* Returns deliveries that have not begun to the queue process, and closes kept connections with
 * QUIT. Transactions continue. */
void attempts_stop(struct attempts *all);

/* Ends the remaining transactions, too. */
void attempts_cut(struct attempts *all);

/* Drops each delivery that has not reached the end of its content: the queue process is gone and
 * will repeat deliveries without a result. The others continue, because the peer may have the
 * message; their replies are logged. */
void attempts_queue_lost(struct attempts *all);

bool attempts_idle(const struct attempts *all);
/* Is there no idle connection? */
bool attempts_keep_none(const struct attempts *all);

/* Releases the destination of a session that has ended; is the callback for sessions_new, with the
 * struct attempts as `arg`. */
void attempts_session_closed(void *arg, const struct session_settings *settings);

#endif
