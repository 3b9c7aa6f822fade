/*
 * The interface between the spool engine of Postfix's queue directory and the clients of Postfix's
 * services. The engine owns files, the clients own sockets; they use each other only through this
 * header. Both run in the queue process, on one event loop.
 *
 * The way of a message:
 *
 *     engine                                   services
 *     takes the file, reads the envelope
 *        for each recipient: ask ----------->  find its route (trivial-rewrite)
 *        postfix_routed  <-------------------  at once from within ask, or later
 *     all are routed: can be claimed
 *        (the queue process opens it; the agent kind makes deliveries, and reads
 *         postfix_message and postfix_rcpt; agents mark recipients in the file)
 *     spool_conclude, at the end of the pass
 *        conclude -------------------------->  bounce, trace, defer: in the necessary order
 *        postfix_pass_*  <-------------------  changes of the file, step by step
 *        postfix_concluded  <----------------  the file goes to its last place; drop the message
 *
 * For a message with many recipients, the engine first requests the routes of some, and of others
 * when the scheduler has room for them (spool_want_rcpts). Settled recipients leave memory.
 *
 * All slices in arguments are borrowed for the call. Functions with an int return 0 or negative
 * errno; -ENOENT (another program has removed or moved the file) is normal for each of them.
 */
#ifndef POSTFIX_SERVICES_H
#define POSTFIX_SERVICES_H

#include <stdbool.h>
#include <stdint.h>

#include "queue_file.h"
#include "slice.h"
#include "spool.h"
#include "times.h"

/* ---- what the services offer to the engine ---- */

struct postfix_services {
    void *context;

    /* Requests the route of a recipient. postfix_routed is the answer, perhaps before this returns.
     * The engine may request many at once. `m` and `rcpt` are as read from the file. */
    void (*ask)(void *context, struct msg_id id, const struct queue_file_envelope *m,
                const struct queue_file_rcpt *rcpt);

    /* Drops a message that is no longer in memory: answers for it are ignored. */
    void (*forget)(void *context, struct msg_id id);

    /* Concludes the pass of a claimed message. `deferred`: some recipient must be tried again, at
     * `due`. The claim has ended; the engine keeps the message until postfix_concluded. */
    void (*conclude)(void *context, struct msg_id id, bool deferred, struct wall due);

    /* Finds the class of a message by the beginning of its content in wire form. The name is stored
     * in `room`. NULL = mail has no classes, and its content is not read. */
    void (*classify)(void *context, const struct queue_file_envelope *m, struct slice content,
                     char room[CLASS_NAME_MAX], struct slice *ret_name,
                     enum class_source *ret_source);
};

struct spool;

/* Sets the services; call it once, before the first poll. They are borrowed until the spool is
 * closed. -EINVAL: the spool has another engine. */
int postfix_use_services(struct spool *sp, const struct postfix_services *services);

/* ---- answers, and what services ask of the engine ---- */

enum postfix_disposal {
    POSTFIX_DELIVER,
    POSTFIX_SKIP,    /* not delivered in this activation, and not marked: a redirect has replaced
                      * it */
    POSTFIX_DISCARD, /* marked done in the file by the engine: an undeliverable double bounce */
};

struct postfix_route {
    enum postfix_disposal disposal;
    struct slice transport;
    struct slice nexthop;   /* passed to the agent verbatim */
    struct slice recipient; /* replaces the address in the file */
};

/* Sets the route of recipient `n`. Ignored if the message is no longer in memory. */
void postfix_routed(struct spool *sp, struct msg_id id, uint32_t n,
                    const struct postfix_route *route);

/* Returns a message that is in active/ and is not leaving; NULL if there is none. The result lasts
 * as long as that. */
struct postfix_message {
    struct slice queue_id;
    const struct queue_file_envelope *envelope;
    struct wall activated; /* time at which its file was taken into active/ */
    bool force_expire;     /* mode bit 0010 when it was taken */
    bool flushed;          /* mode bit 0040, or a scan with F: defer_transports does not apply */
};
const struct postfix_message *postfix_message(struct spool *sp, struct msg_id id);

/* Returns a recipient of such a message; false if it is not in memory, as it was not read yet or is
 * settled. Before it is routed, `recipient` is the address in the file, and `transport` and
 * `nexthop` are empty. The slices last as long as the recipient is in memory with this route. */
struct postfix_rcpt {
    uint32_t n;
    uint64_t offset;        /* offset of its record, by which agents and bounce(8) identify it */
    struct slice recipient; /* address after routing */
    struct slice original, dsn_original; /* as in struct queue_file_rcpt */
    unsigned notify;
    struct slice transport, nexthop;
};
bool postfix_rcpt(struct spool *sp, struct msg_id id, uint32_t n, struct postfix_rcpt *ret_rcpt);

/* Keeps recipients in memory until postfix_unpin, even if they are settled, unless they are done.
 * Each may be pinned once. If pinned recipients fill qmgr_message_recipient_limit, the message gets
 * no more recipients than it has pinned. Recipients that are not in memory are ignored. */
void postfix_pin(struct spool *sp, struct msg_id id, const uint32_t *ns, size_t count);
void postfix_unpin(struct spool *sp, struct msg_id id, const uint32_t *ns, size_t count);

/* Reads the type byte of a recipient's record in the file: 'R', 'D', ..; or returns negative errno.
 * For use after an agent's reply that some of its recipients were deferred. */
int postfix_rcpt_state(struct spool *sp, struct msg_id id, uint32_t n);

/* Appends the end of a log of bounce(8) about the message; nothing if there is none. */
#define POSTFIX_LOG_MAX ((size_t)1 << 17)
enum postfix_log { POSTFIX_LOG_BOUNCE, POSTFIX_LOG_DEFER, POSTFIX_LOG_TRACE, POSTFIX_LOGS };
void postfix_read_log(struct spool *sp, struct msg_id id, enum postfix_log which, struct buf *out);

/* Returns 1 if there is a bounce log to report, else 0; removes an empty one. */
int postfix_pass_bounce_log(struct spool *sp, struct msg_id id);
/* Returns 1 if the file in active/ can be tried again (owner bits exactly 0700), 0 if an agent has
 * marked it corrupt. */
int postfix_pass_is_usable(struct spool *sp, struct msg_id id);
/* Has the message recipients that could not be read, though the file is not damaged? */
bool postfix_pass_is_unread(struct spool *sp, struct msg_id id);
/* Cancels the record of trace_flags; postfix_pass_warned updates that of the delay notice. */
int postfix_pass_traced(struct spool *sp, struct msg_id id);
int postfix_pass_warned(struct spool *sp, struct msg_id id);

enum postfix_place { POSTFIX_DEFERRED, POSTFIX_REMOVED, POSTFIX_CORRUPT };
/* Ends the conclusion: moves the file (mtime = `due` for POSTFIX_DEFERRED) or removes it, and drops
 * the message. Events of the spool have the lines for the log ("ID: removed" is one). */
void postfix_concluded(struct spool *sp, struct msg_id id, enum postfix_place place,
                       struct wall due);

/* ---- triggers ---- */

enum postfix_scan {
    POSTFIX_SCAN_INCOMING = 1,
    POSTFIX_SCAN_DEFERRED = 2,
    POSTFIX_SCAN_FLUSH = 4,      /* F: override defer_transports in the running and next scans */
    POSTFIX_SCAN_IGNORE_TIME = 8 /* A: ignore the times of files */
};
/* Requests scans, bits of enum postfix_scan; later polls perform them. The caller starts the first
 * poll. */
void postfix_trigger(struct spool *sp, unsigned scans);

/* Returns the number of messages taken from incoming/ since the last call, for in-flow control. */
uint64_t postfix_taken_from_incoming(struct spool *sp);
/* Is a scan of incoming/ running or requested? */
bool postfix_scans_incoming(struct spool *sp);

#endif
