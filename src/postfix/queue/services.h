/*
 * The border between the spool engine on Postfix's queue directory and the clients of Postfix's
 * services. The engine owns files, the clients own sockets; neither knows the other but by this
 * page. Both live in the queue process, on one event loop.
 *
 * A message's way, with what each side does:
 *
 *     engine                                   services
 *     takes the file, reads the envelope
 *        of each recipient: ask ------------>  decides where it goes (trivial-rewrite)
 *        postfix_routed  <-------------------  at once from within ask, or later
 *     all are routed: can be claimed
 *        (the queue process opens it; deliveries go out by the agent kind, which reads
 *         postfix_envelope and postfix_rcpt; agents mark recipients in the file)
 *     spool_conclude, at the end of the pass
 *        conclude -------------------------->  bounce, trace, defer: in the order that they need
 *        postfix_pass_*  <-------------------  what is to be done to the file, step by step
 *        postfix_concluded  <----------------  the file has its last place; forget the message
 *
 * Of a message with many recipients the engine asks for the first ones, and for others as the
 * scheduler has room for them (spool_want_rcpts). Those that are settled leave memory.
 *
 * All slices handed in are borrowed for the call. Functions with an int return 0 or negative errno;
 * -ENOENT (another program has removed or moved the file) is normal for each of them.
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

    /* Where does recipient `n` go? Answered by postfix_routed, perhaps before this returns. The
     * engine may ask for many at once. `m` and `rcpt` are as read from the file. */
    void (*ask)(void *context, struct msg_id id, const struct queue_file_envelope *m,
                const struct queue_file_rcpt *rcpt);

    /* Nothing is known of this message any more: answers for it are not wanted. */
    void (*forget)(void *context, struct msg_id id);

    /* The pass of a claimed message is over. `deferred`: some recipient is to be tried again.
     * `due`: when, if it is. The claim has ended; the engine keeps the message until
     * postfix_concluded. */
    void (*conclude)(void *context, struct msg_id id, bool deferred, struct wall due);

    /* The class of a message, by the beginning of its content in wire form. The name is of `room`.
     * NULL: mail has no classes, and its content is not looked at. */
    void (*classify)(void *context, const struct queue_file_envelope *m, struct slice content,
                     char room[CLASS_NAME_MAX], struct slice *ret_name,
                     enum class_source *ret_source);
};

struct spool;

/* Once, before the first poll. Borrowed for the life of the spool. -EINVAL: another engine's. */
int postfix_use_services(struct spool *sp, const struct postfix_services *services);

/* ---- answers, and what services ask of the engine ---- */

enum postfix_disposal {
    POSTFIX_DELIVER,
    POSTFIX_SKIP,    /* not in this activation, and without a mark: a redirect has replaced it */
    POSTFIX_DISCARD, /* marked done in the file by the engine: an undeliverable double bounce */
};

struct postfix_route {
    enum postfix_disposal disposal;
    struct slice transport;
    struct slice nexthop;   /* as it is handed to the agent, verbatim */
    struct slice recipient; /* replaces the address of the file */
};

/* The answer for recipient `n`. A message that is not known any more is fine. */
void postfix_routed(struct spool *sp, struct msg_id id, uint32_t n,
                    const struct postfix_route *route);

/* Of a message that is claimed, or being concluded; NULL: not known. Last as long as that. */
struct postfix_message {
    struct slice queue_id;
    const struct queue_file_envelope *envelope;
    struct wall activated; /* when its file was taken into active/ */
    bool force_expire;     /* mode bit 0010 when it was taken */
    bool flushed;          /* mode bit 0040, or a scan with F: defer_transports does not hold */
};
const struct postfix_message *postfix_message(struct spool *sp, struct msg_id id);

/* A recipient of such a message; NULL: not in memory, as it was not read yet or is settled. Before
 * it is routed `recipient`, `transport` and `nexthop` are empty. */
struct postfix_rcpt {
    uint32_t n;
    uint64_t offset;        /* of its record: its identity towards agents and bounce(8) */
    struct slice recipient; /* routed */
    struct slice original, dsn_original; /* as of struct queue_file_rcpt */
    unsigned notify;
    struct slice transport, nexthop;
};
const struct postfix_rcpt *postfix_rcpt(struct spool *sp, struct msg_id id, uint32_t n);

/* Keep recipients in memory though they are settled, unless they are done, until postfix_unpin.
 * Each may be pinned once. Where that fills qmgr_message_recipient_limit the message gets no more
 * of its recipients than it has of these. Those that are not in memory are fine. */
void postfix_pin(struct spool *sp, struct msg_id id, const uint32_t *ns, size_t count);
void postfix_unpin(struct spool *sp, struct msg_id id, const uint32_t *ns, size_t count);

/* The type byte of that record as it stands in the file now: 'R', 'D', ..; negative errno. After an
 * agent's answer that says that some of its recipients were deferred. */
int postfix_rcpt_state(struct spool *sp, struct msg_id id, uint32_t n);

/* Append the end of a log that bounce(8) keeps of the message; nothing when there is none. */
#define POSTFIX_LOG_MAX ((size_t)1 << 17)
enum postfix_log { POSTFIX_LOG_BOUNCE, POSTFIX_LOG_DEFER, POSTFIX_LOG_TRACE, POSTFIX_LOGS };
void postfix_read_log(struct spool *sp, struct msg_id id, enum postfix_log which, struct buf *out);

/* Is there a bounce log to be sent? 1 or 0; an empty one is removed. */
int postfix_pass_bounce_log(struct spool *sp, struct msg_id id);
/* Is the file in active/ one that can be tried again (owner bits exactly 0700)? 1, or 0: an agent
 * has marked it corrupt. */
int postfix_pass_is_usable(struct spool *sp, struct msg_id id);
/* Recipients are left that could not be read, though the file is not damaged. */
bool postfix_pass_is_unread(struct spool *sp, struct msg_id id);
/* Overwrite the record of trace_flags, and that of the delay warning. */
int postfix_pass_traced(struct spool *sp, struct msg_id id);
int postfix_pass_warned(struct spool *sp, struct msg_id id);

enum postfix_place { POSTFIX_DEFERRED, POSTFIX_REMOVED, POSTFIX_CORRUPT };
/* The end: move the file (mtime = `due` for POSTFIX_DEFERRED) or remove it, and forget the message.
 * What the log is to be told is in events of the spool ("ID: removed" is one). */
void postfix_concluded(struct spool *sp, struct msg_id id, enum postfix_place place,
                       struct wall due);

/* ---- triggers ---- */

enum postfix_scan {
    POSTFIX_SCAN_INCOMING = 1,
    POSTFIX_SCAN_DEFERRED = 2,
    POSTFIX_SCAN_FLUSH = 4,      /* F: override defer_transports in the running and next scans */
    POSTFIX_SCAN_IGNORE_TIME = 8 /* A */
};
/* Bits of enum postfix_scan; what is to be scanned is scanned by the polls that follow. The caller
 * begins the first. */
void postfix_trigger(struct spool *sp, unsigned scans);

/* Messages that were taken from incoming/ since the last call, for in-flow control. */
uint64_t postfix_taken_from_incoming(struct spool *sp);
/* Does a scan of incoming/ run? */
bool postfix_scans_incoming(struct spool *sp);

#endif
