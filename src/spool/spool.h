/*
 * The spool: durable store of messages, their recipients and their content.
 *
 * There is one interface and several engines: `sqlite:PATH` (durable, the default), and those that
 * a program registers (spool_engine.h). One process opens a spool for writing; others may open the
 * same spool to read. This header is the core, which every engine implements. Optional parts have
 * headers of their own:
 *
 *     spool_search.h     which messages exist, and for which destinations
 *     spool_division.h   one message becomes several, which wait separately
 *     spool_external.h   other programs change the store, too
 *     spool_reroute.h    recipients go back to the program that routes mail
 *     spool_verbose.h    a file in which a sender follows a message
 *     spool_conclusion.h other programs end passes
 *     spool_commits.h    commits that end later
 *     spool_parts.h      a message whose recipients lie in several partitions is stored in parts
 *     spool_lease.h      several nodes share the spool, each delivers for a limited time
 *     spool_shared.h     texts, other than mail, that all nodes share
 *
 * Group commit. Every call that changes something joins the open batch; spool_commit makes the
 * whole batch durable or undoes all of it. The caller must not acknowledge anything before its
 * commit has returned 0. When the storage fails a call, the batch has failed: later calls and
 * spool_commit return the same error, and spool_commit undoes everything. The caller may then retry
 * each change in a batch of its own, so that one bad change does not affect the others. A refused
 * call (-ENOENT, -EINVAL, -EBADMSG, -EROFS), and a call whose content could not be stored, changes
 * nothing and leaves the batch as it was. Reads see the open batch.
 *
 * States of a message (enum spool_state) and the calls that move between them:
 *
 *      spool_submit            spool_claim            spool_finish: none left
 *   -->  INCOMING ----------> (claimed; in memory) -----------------------------> gone
 *                              ^              |
 *                  spool_claim |              | spool_finish: some left, due later
 *                              |              v
 *                           DEFERRED <--------+
 *        any state --spool_hold--> HOLD --spool_release--> DEFERRED, due now
 *        any state --spool_quarantine--> CORRUPT (kept for a human; never claimed; deleted only by
 *                                       spool_remove; spool_hold changes it to HOLD)
 *        any but CORRUPT --spool_requeue--> INCOMING, due now
 *
 * A DEFERRED message may be parked under a key. For example, the queue process parks mail under the
 * name of a destination that is full, and the mail's class. spool_claim_parked finds a parked
 * message by its key before the message is due. Once the message is due, spool_claim finds it like
 * any other, so no message waits for its key forever.
 *
 *      spool_park, or submitted with a key          spool_claim_parked, spool_finish, or any change
 *   --> DEFERRED, parked under a key, due later -->   of state: no longer parked
 *
 * "Claimed" (Postfix's active queue) is not a state on disk. A claim exists in memory only, from
 * spool_claim (or the submit that asked for it) to spool_finish, spool_unclaim, spool_hold,
 * spool_remove or the end of the process. So a crash needs no repair: a restarted spool finds every
 * message INCOMING or DEFERRED with its previous due time.
 *
 * After a crash, a batch is stored completely or not at all, as it is one transaction. Content
 * outside the database is written and synced before the row that names it, and removed after the
 * row is gone. Opening the spool for writing removes orphan files.
 *
 * Errors are 0 or negative errno: -ENOSPC (disk full), -EIO, -ENOENT (no such message), -EBUSY
 * (open for writing in another process), -EBADMSG (a row that can't be decoded: quarantine it),
 * -EUCLEAN (the database itself is damaged, or other rows already have the keys of the new ones),
 * -EPROTO (a schema newer than this program, or not a spool), -EROFS (a change through a spool
 * opened for reading or, in a cluster, of another node's message), -EINVAL (wrong state, or a value
 * past its limit). spool_error() returns the text. Times are wall-clock microseconds passed by the
 * caller; the spool reads no clock.
 */
#ifndef SPOOL_SPOOL_H
#define SPOOL_SPOOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "class_name.h"
#include "envelope.h"
#include "slice.h"
#include "times.h"

struct spool;
struct conf; /* passed on to engines; the core does not read it */

/* Id of a message. Ids grow with the time of submission and are never reused in a spool. */
struct msg_id {
    uint64_t n;
};

/* Prints an id as a queue id: base 32 of digits and consonants, so that no id spells a word.
 * Postfix's long ids use the same letters, so log analysers recognize them. Texts sort as the
 * numbers do. A text has 11 characters while n, read as microseconds since 1970, is before the year
 * 3075; 14 after that. SPOOL_ID_TEXT_MAX includes the NUL. */
#define SPOOL_ID_TEXT_MAX 16
void spool_id_print(struct msg_id id, char text[SPOOL_ID_TEXT_MAX]);
/* Parses a queue id. Returns false unless `text` is exactly what spool_id_print writes for some
 * id. */
bool spool_id_parse(struct slice text, struct msg_id *ret_id);

/* The values are stored on disk and never change meaning. */
enum spool_state {
    SPOOL_INCOMING = 1,
    SPOOL_DEFERRED = 2,
    SPOOL_HOLD = 3,
    SPOOL_CORRUPT = 4,
};

/* Remaining work for a recipient. The values are stored on disk. */
enum spool_rcpt_state {
    SPOOL_RCPT_PENDING = 1,   /* not delivered yet */
    SPOOL_RCPT_FAILED = 2,    /* failed or expired, not bounced yet */
    SPOOL_RCPT_DELIVERED = 3, /* delivered or relayed, success notice not sent yet */
    SPOOL_RCPT_RELAYED = 4,   /* as DELIVERED, but passed to a site that sends no success notices */
    /* A recipient that is done and needs no report any longer has no row. */
};

/* Limits in bytes. Longer free text (diagnostic, reply, reason, remote, client, status) is cut; any
 * other longer value is -EINVAL. */
#define SPOOL_DIAGNOSTIC_MAX 1024
#define SPOOL_REPLY_MAX      1024
#define SPOOL_SENDER_MAX     ADDRESS_MAX
#define SPOOL_ROUTE_MAX      512 /* of transport, and of nexthop */
#define SPOOL_REMOTE_MAX     512 /* of remote, and of client */
#define SPOOL_TLS_MAX        160
#define SPOOL_STATUS_MAX     15
#define SPOOL_DETAILS_MAX    4096
#define SPOOL_NAME_MAX       255                /* of spoolid */
#define SPOOL_PARKED_MAX     2048               /* of a key; a longer or empty key is -EINVAL */
#define SPOOL_RCPTS_MAX      UINT32_C(10000000) /* recipients of one message */
#define SPOOL_CONTENT_MAX    (UINT64_C(1) << 40)
#define SPOOL_INLINE_MAX     (UINT64_C(1) << 26) /* upper bound of inline_limit */

/* The route_generation of a recipient whose route was fixed by the store or by a rule at arrival.
 * Only spool_requeue routes such a recipient again. */
#define SPOOL_ROUTE_FIXED ((uint64_t)INT64_MAX)

/* Key under which an engine parks mail that another program has locked; the holder's name follows,
 * as in "!locked process 4711". */
#define SPOOL_PARKED_LOCKED "!locked "

/* A recipient, as submitted and as read back. Slices that the spool returns last until the next
 * call on the same spool. */
struct spool_rcpt {
    uint32_t n;           /* number in the message, from 1, never reused; set by spool_submit */
    struct slice address; /* without angle brackets */
    struct slice orcpt;   /* DSN ORCPT "type;xtext" as received; may be empty */
    unsigned notify;      /* enum notify bits */
    enum spool_rcpt_state state; /* ignored on submit */
    struct slice transport;      /* cached route; empty = not routed yet, then nexthop is empty,
                                  * too */
    struct slice nexthop;
    uint64_t route_generation; /* generation of the tables that made the route (spool_routes.h) */
    bool route_by_rule;        /* the route is perhaps a content filter's; only set by engines that
                               * route by themselves */
    uint32_t attempts;         /* number of deliveries tried */
    struct slice status;       /* last enhanced status "4.4.1", or empty */
    struct slice diagnostic;   /* last reason, in Sluice's words, or empty */
    struct slice reply;        /* remote site's text in that reason, "450 4.2.0 later", or empty */
    struct slice remote;       /* "mx.example.org[192.0.2.1]:25" of that reason, or empty */
    struct slice tls;          /* TLS proof of that connection, as "dane-ee/TLSv1.3/CIPHER" */
    struct wall last_attempt;  /* 0 = never */
    /* The next two are set by engines whose agents record results themselves, for reports;
     * elsewhere empty. */
    struct slice details; /* the agents' notes, in a form of their own; empty = no notes */
    struct slice control; /* "CHANNEL HOST USER UID", the line of the control file that named this
                           * recipient */
};

/* A message without its recipients and content. Slices last as in struct spool_rcpt. */
struct spool_message {
    struct msg_id id;
    enum spool_state state;
    struct slice sender;     /* empty = null sender */
    struct slice envid;      /* DSN ENVID, xtext as received; may be empty */
    unsigned flags;          /* enum envelope_flag bits */
    struct wall arrived;     /* start of its reception */
    struct wall created;     /* base of back-off and expiry; a requeue renews it */
    struct wall due;         /* earliest time of the next attempt */
    struct wall found_at;    /* for engines that scan their store now and then: time of the first
                              * scan after `due`; us 0 = no scan needed (spool_next_attempt) */
    uint64_t size;           /* bytes of content */
    uint32_t rcpt_total;     /* number of recipients at submission */
    uint32_t rcpt_pending;   /* number of recipients in state PENDING */
    uint32_t rcpt_to_report; /* number of recipients in the other states */
    uint32_t warnings;       /* number of delay notices sent; a database stores at most 1 */
    bool force_expire;       /* an operator requested that it expire at its next attempt */
    bool is_new;             /* not claimed before; only set by engines whose mail other programs
                              * store */
    struct slice reason;     /* for HOLD or CORRUPT, the reason; else what rules did to the message,
                              * until it is held */
    struct slice parked;     /* key it is parked under; empty = not parked */
    struct slice client;     /* its origin, "name[ip]" or "local uid 1000" */
    struct slice class_name; /* class, in the form of class_name.h; empty = none */
    enum class_source class_source;
    /* The next three are set by engines that store mail in parts (spool_parts.h), else 0. */
    struct msg_id whole;    /* for a part: the id of the whole message */
    bool gathers;           /* true for the report part, which has the id of the whole message */
    struct wall report_due; /* on submit: due time of the report part if no part gives it recipients
                             * to report; us 0 = the message's due time */
    /* The next three are set by engines whose mail other programs know by name, elsewhere empty. If
     * spoolid is set and path is empty, spoolid names this message alone, and users see it instead
     * of the id. */
    struct slice path;    /* path of the message's file, as spool_resync takes it: "A/90417" */
    struct slice spoolid; /* name in the logs of those programs: "S90417AbkTMvx" */
    struct wall listed;   /* modification time of the file when it was read */
};

/* Returns the time of the next attempt, if nothing else delays the message. */
static inline struct wall spool_next_attempt(const struct spool_message *m)
{
    return m->found_at.us > m->due.us ? m->found_at : m->due;
}

/* Is it a part of a message, other than its report part? */
static inline bool spool_is_part(const struct spool_message *m)
{
    return m->whole.n != 0 && m->whole.n != m->id.n;
}

/* Returns the id that the client received in the reply, by which people know the message. */
static inline struct msg_id spool_whole(const struct spool_message *m)
{
    return m->whole.n != 0 ? m->whole : m->id;
}

/* Content to store, in wire form: lines end with CRLF. An engine whose files have other line ends
 * converts in both directions. The content is `bytes`, followed by `fd_size` bytes of `fd` from
 * offset 0 (fd -1 = none). Borrowed for the call. */
struct spool_content {
    struct slice bytes;
    int fd;
    uint64_t fd_size;
};

enum spool_open_mode {
    SPOOL_OPEN_WRITE, /* create the spool if missing; -EBUSY while another process has it open for
                       * writing */
    SPOOL_OPEN_READ,  /* read only; also works while another process has it open for writing */
};

struct spool_options {
    uint64_t inline_limit;     /* bytes; larger content goes to files outside the database */
    uint64_t segment_bytes;    /* size of files that many messages share; 0 = the default */
    uint64_t id_floor;         /* lower bound of new ids (a clock value, so that ids grow over time
                                * even after the last message is gone) */
    const struct spool_io *io; /* borrowed; NULL = the real system calls. Tests replace them
                                * (spool_io.h) */
    const struct conf *conf;   /* borrowed for the call; source of an engine's own parameters. NULL
                                * = their built-in values */
    const char *side;          /* path of a database for notes and events, for stores that have no
                                * place for them (side_store.h); NULL = none */
    /* Called now and then while opening takes long; true: stop with -ECANCELED. NULL = never
     * stop. */
    bool (*is_over)(void *arg);
    void *arg;
    struct slice secret; /* borrowed for the call; the server's password, as the text of its file.
                          * Empty = none */
    /* For spools of several processes (spool_parts.h), used until the spool is closed. Returns the
     * name of the ring by which this destination shares a limit with others of its transport, or
     * NULL if it shares none. The name lasts until the next call, and may change with the
     * generation of routes. NULL = no destination shares a limit. */
    const char *(*ring_of)(void *ring_arg, struct slice transport, struct slice nexthop);
    void *ring_arg;
};

/* Opens `url`: "sqlite:PATH", or a URL with the prefix of a registered engine (spool_engine.h). On
 * failure *ret_error, the caller's buffer, has the cause and the place. */
int spool_open(const char *url, enum spool_open_mode mode, const struct spool_options *options,
               struct buf *ret_error, struct spool **ret_spool);

/* Replaces the server's password, as in spool_options, for connections that are made from now on.
 * Does nothing for a spool without a server. */
void spool_set_secret(struct spool *sp, struct slice secret);

/* Undoes an open batch and closes the spool, which may be NULL. */
void spool_close(struct spool *sp);

/* Returns the text of this spool's last error, "what, where: why". It lasts until the next call. */
const char *spool_error(const struct spool *sp);

/* ---- the batch ------------------------------------------------------------------------------ */

/* Makes the open batch durable; returns 0 if there is none. On an error the whole batch is undone,
 * and claims are again as they were before its first change. After a disk error, a crash may still
 * bring back the whole batch: that may cost a duplicate delivery, never a loss. If commits end
 * later (spool_commits.h), waits until all have ended; the caller must not have begun any
 * before. */
int spool_commit(struct spool *sp);

/* Is there an open batch? */
bool spool_dirty(const struct spool *sp);

/* Lets the commit of the open batch, if there is one, fail with `err`. */
void spool_lose_batch(struct spool *sp, int err);

/* Has an error already decided that the commit of the open batch will fail? */
bool spool_batch_is_lost(const struct spool *sp);

/* Does housekeeping that would otherwise slow down commits under load. Call it outside a batch when
 * there is nothing else to do. Cheap when no work has piled up. A failure has no consequences. */
void spool_tidy(struct spool *sp);

/* Stores a new message with its recipients and content in state INCOMING. With `hold_reason` the
 * state is HOLD (an engine may keep such mail elsewhere, as files for a human to read). With
 * m->parked the state is DEFERRED, parked. Only one of these two may be non-empty. Reads from *m:
 * sender, envid, flags, arrived, created, due, client, class_name, class_source, parked, and,
 * without `hold_reason`, reason. `content_prefix` (the trace header) may hold one mark, the byte 1,
 * which is replaced by the text of the id. `claim` claims a message that is neither held nor parked
 * at once, as the caller keeps it in memory. An engine that stores mail in parts may leave it
 * unclaimed; see spool_is_claimed. */
int spool_submit(struct spool *sp, const struct spool_message *m, const struct spool_rcpt *rcpts,
                 uint32_t rcpt_count, struct slice content_prefix,
                 const struct spool_content *content, bool claim, struct slice hold_reason,
                 struct msg_id *ret_id);

/* Returns the name of the mail that the last spool_submit has stored, for an engine that hands mail
 * to another program: "S90417AbkTMvx", or the file's path, "postman/90417:reason". Empty for other
 * engines. Lasts until the next call on the same spool. */
struct slice spool_submitted_name(const struct spool *sp);

/* The result of a delivery to one recipient. State PENDING = deferred: the diagnostic is stored,
 * and the attempt is counted if `attempted`. FAILED, DELIVERED, RELAYED: the recipient is kept for
 * a report. With `done` no report is needed, and the recipient is removed. */
struct spool_verdict {
    enum spool_rcpt_state state;
    bool done;
    bool attempted;
    bool noted;      /* the agent has already written the diagnostic into the control file */
    bool unreported; /* no report is wanted, so nothing is written for one */
    struct slice status;
    struct slice diagnostic;
    struct slice reply;
    struct slice remote;
    struct slice tls;
    struct slice details; /* may be empty; stored by engines that have spool_rcpt.details */
    struct wall when;
};
int spool_settle(struct spool *sp, struct msg_id id, uint32_t n, const struct spool_verdict *v);

/* Stores a route in the recipient's cache. */
int spool_set_route(struct spool *sp, struct msg_id id, uint32_t n, struct slice transport,
                    struct slice nexthop, uint64_t route_generation);

/* Removes the recipients in states FAILED, DELIVERED, RELAYED. Their report must be submitted in
 * the same batch. */
int spool_reported(struct spool *sp, struct msg_id id);

/* Ends a claim. Deletes the message if no recipient is left in any state; else it becomes DEFERRED
 * until `due`. *ret_gone: was it deleted? The claim may have ended earlier, if the message was
 * held, requeued or quarantined during its deliveries. Such a message is deleted if no recipient is
 * left and it is not CORRUPT, and otherwise stays as it is. */
int spool_finish(struct spool *sp, struct msg_id id, struct wall due, bool *ret_gone);

/* Finishes a message whose recipients are all done and need no report, the most frequent case, in
 * one fast call. Deletes the message; -EINVAL if it is CORRUPT. */
int spool_finish_all_done(struct spool *sp, struct msg_id id);

/* Ends a claim, if there is one, and parks the message under `key`: DEFERRED until `due`, or until
 * the key is claimed. -EINVAL if it is on HOLD or CORRUPT. */
int spool_park(struct spool *sp, struct msg_id id, struct slice key, struct wall due);

/* Unparks all unclaimed mail under `key` and makes it due at `due`. *ret_count: number of messages.
 * -EAGAIN: more exist that are not loaded yet. The cost grows with that mail alone. */
int spool_wake(struct spool *sp, struct slice key, struct wall due, size_t *ret_count);

/* Ends a claim without a result; the message keeps its state (INCOMING or DEFERRED) and due
 * time. */
void spool_unclaim(struct spool *sp, struct msg_id id);

int spool_set_warned(struct spool *sp, struct msg_id id);
int spool_set_force_expire(struct spool *sp, struct msg_id id);
int spool_hold(struct spool *sp, struct msg_id id, struct slice reason);
/* Changes HOLD to DEFERRED, due at `now`; -EINVAL in another state. */
int spool_release(struct spool *sp, struct msg_id id, struct wall now);
/* Makes the message as if it were submitted at `now`: INCOMING, created and due now, no delay
 * notice sent, no forced expiry. Pending recipients get attempts 0 and lose their routes, but keep
 * the last status and diagnostic. Ends a claim. -EINVAL for CORRUPT. */
int spool_requeue(struct spool *sp, struct msg_id id, struct wall now);
/* Sets the due time. -EINVAL for CORRUPT. */
int spool_set_due(struct spool *sp, struct msg_id id, struct wall due);
/* Deletes a message in any state, decodable or not. */
int spool_remove(struct spool *sp, struct msg_id id);
/* Changes any state to CORRUPT. Also works on a message that can't be decoded: impossible values
 * are replaced by valid ones. */
int spool_quarantine(struct spool *sp, struct msg_id id, struct slice reason);

/* ---- what an engine has to tell ------------------------------------------------------------- */

enum spool_event_type {
    SPOOL_EVENT_LOG,      /* text: a line for the log */
    SPOOL_EVENT_WARNING,  /* text: a line for the log that needs a human's attention */
    SPOOL_EVENT_ETRN,     /* text: the domain whose mail should be tried now, then the requester */
    SPOOL_EVENT_CHANGED,  /* the recipients of a claimed message changed externally: drop it from
                           * memory and load it again */
    SPOOL_EVENT_COMPLETE, /* text: "SPOOLID: complete (total 3 recipients, 1 failed)", or that the
                           * message is obsoleted */
    SPOOL_EVENT_READY,    /* data that was -EAGAIN may be loaded now, or mail can be claimed */
    SPOOL_EVENT_LOST,     /* a claimed message no longer belongs to this node, and its results no
                         * longer count; without an id: all such messages have been listed, except
                         * claims of a failed batch, and the spool waits for spool_lease_ended */
    SPOOL_EVENT_HURRY,  /* a message that should be left (CHANGED) is still in delivery, and another
                         * node waits for it: break off what can be broken off */
    SPOOL_EVENT_ROUTES, /* the generation of this node's routes changed (spool_routes.h) */
    SPOOL_EVENT_GAINED, /* this node gained mail of other nodes, perhaps routed by older tables */
    SPOOL_EVENT_STOP,   /* text: why the program must stop in order; results can still be stored */
    SPOOL_EVENT_ENDED,  /* text: why the spool can never be used again; the program ends */
};

struct spool_event {
    enum spool_event_type type;
    struct msg_id id;  /* 0 = no message */
    struct slice text; /* lasts until the next call */
};

/* Returns the oldest event that was not returned yet; false if there is none. Call it after every
 * commit, poll and resync. */
bool spool_next_event(struct spool *sp, struct spool_event *ret_event);

/* ---- reading -------------------------------------------------------------------------------- */

/* Claims up to `max` unclaimed messages of state `from` (INCOMING or DEFERRED) with due <= now, the
 * earliest due first. Stores their ids in ret_ids and their number in *ret_count. The cost does not
 * grow with claimed mail or mail that is not due. On an error no message is claimed. If nodes share
 * a spool, INCOMING mail is due at once, since its time may come from another clock. If commits end
 * later, messages changed by an unfinished batch are not found. Only for the process that has the
 * spool open for writing, as is spool_next_due. */
int spool_claim(struct spool *sp, enum spool_state from, struct wall now, size_t max,
                struct msg_id *ret_ids, size_t *ret_count);

/* Returns the earliest due time of an unclaimed INCOMING or DEFERRED message; WALL_NEVER if there
 * is none. */
int spool_next_due(struct spool *sp, struct wall *ret_due);

/* Claims up to `max` messages that are parked under `key`, the oldest submissions first. They are
 * no longer parked and become due `now`, so that they continue at once after a crash. *ret_more:
 * are more parked? This is a change, so it is part of the batch. The cost does not grow with the
 * number of parked messages. -EAGAIN: some are parked, but none is loaded yet (see spool_want).
 *
 * If spool_conclude has parked mail (Postfix), a call examines a bounded piece of that mail, makes
 * due what it finds and claims nothing; *ret_more then means that there is more to examine. */
int spool_claim_parked(struct spool *sp, struct slice key, struct wall now, size_t max,
                       struct msg_id *ret_ids, size_t *ret_count, bool *ret_more);

/* Lists keys under which messages are parked, claimed or not, in order, after `after` (empty = from
 * the first), at most `max`. The cost grows with the number of keys alone. */
int spool_parked_keys(struct spool *sp, struct slice after, size_t max, struct slice *ret_keys,
                      size_t *ret_count);

bool spool_is_claimed(const struct spool *sp, struct msg_id id);

/* Requests data of a message: its rows, its content, or both. If mail is in a database on another
 * machine, only claimed mail and a little more is loaded, and any call by id may return -EAGAIN
 * without having changed anything. The missing data is then requested at once, and
 * SPOOL_EVENT_READY is the time to retry. The content of a claimed message may need a request, too.
 * Returns 0 if all is loaded, -EAGAIN if it was requested, or -ENOENT. Other engines always return
 * 0. */
#define SPOOL_WANT_ROWS    1U
#define SPOOL_WANT_CONTENT 2U
int spool_want(struct spool *sp, struct msg_id id, unsigned what);

/* Has a call returned -EAGAIN since the last spool_missed? */
bool spool_missed(struct spool *sp);

/* Returns the number of claimed messages that it stored in ret_ids, at most `max`. Repeated calls
 * visit all claimed messages: *cursor is 0 at the start, and 0 again after the last page. Claims
 * that begin or end meanwhile may be missed. Only for the process that has the spool open for
 * writing. */
size_t spool_claimed(const struct spool *sp, uint64_t *cursor, size_t max, struct msg_id *ret_ids);

/* Reads a message. -EBADMSG: it exists but can't be decoded; spool_error has the fault. */
int spool_read(struct spool *sp, struct msg_id id, struct spool_message *ret_message);

/* Reads recipients with n > after in order of n, at most `max`. `only_pending` omits the others. */
int spool_read_rcpts(struct spool *sp, struct msg_id id, uint32_t after, bool only_pending,
                     size_t max, struct spool_rcpt *ret_rcpts, size_t *ret_count);

/* Checks that the next `max` pending recipients after `after` of a claimed message are loaded, or
 * all that are left. Some stores (Postfix) load recipients only on request, and spool_read_rcpts
 * returns only loaded ones. Returns 0 if they are loaded; -EAGAIN if they were requested; -ENOBUFS
 * if too many settled recipients of the message are still in memory; or -ENOENT. SPOOL_EVENT_READY
 * is the time to retry. Other engines always return 0. */
int spool_want_rcpts(struct spool *sp, struct msg_id id, uint32_t after, size_t max);

/* Reads the content. If it is stored inline, appends it to *ret_bytes and sets *ret_fd to -1; else
 * *ret_fd is a new read-only file descriptor, owned by the caller. */
int spool_read_content(struct spool *sp, struct msg_id id, struct buf *ret_bytes, int *ret_fd,
                       uint64_t *ret_size);

/* Returns an id greater than that of any earlier message, and less than that of any later one. */
struct msg_id spool_mark(struct spool *sp);

/* Sets the stored times of a message after the clock was set. A claimed or parked message stays
 * claimed or parked. */
int spool_set_times(struct spool *sp, struct msg_id id, struct wall due, struct wall created);

struct spool_totals {
    uint64_t incoming, deferred, hold, corrupt; /* numbers of messages */
    uint64_t bytes;                             /* bytes of content */
    uint64_t files; /* number of control files, whose mail may be divided into several messages;
                     * else 0 */
};
/* Returns the totals, which every change updates: O(1). */
int spool_totals(struct spool *sp, struct spool_totals *ret_totals);

/* Returns the bytes free for new mail where the spool keeps its data; UINT64_MAX if that has no
 * meaning. The reserve for storing results on a full disk does not count. -EROFS: the database
 * server does not meet the spool's requirements, so no mail may be accepted; an event of the spool
 * has given the reason. */
int spool_free_bytes(struct spool *sp, uint64_t *ret_bytes);

#endif
