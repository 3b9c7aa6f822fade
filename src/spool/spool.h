/*
 * The spool: durable store of messages, their recipients and their content.
 *
 * One interface, several engines: `sqlite:PATH` (durable, the default), and those that a program
 * registers (spool_engine.h). One process holds a spool for writing; others may open it to read.
 * This page is the core, which every engine has. What only some can do are parts, each with a page
 * of its own:
 *
 *     spool_search.h     which messages are there, and for which destinations
 *     spool_division.h   one message becomes several, that wait apart from each other
 *     spool_external.h   other programs change the store, too
 *     spool_reroute.h    recipients go back to the program that says where mail goes
 *     spool_verbose.h    a file in which a sender follows a message
 *     spool_conclusion.h other programs bring passes to their end
 *     spool_commits.h    commits that end later
 *     spool_parts.h      a message whose recipients lie in several partitions is stored in parts
 *     spool_lease.h      several nodes have it, and this one may deliver for a time
 *     spool_shared.h     what all of them have in common beside mail
 *
 * Group commit. Every call that changes something joins the open batch; spool_commit makes the
 * whole batch durable or undoes all of it. Nothing may be acknowledged before its commit returned
 * 0. A call that the storage fails, fails the batch: the calls after it and spool_commit return
 * that same error, spool_commit undoes everything, and the caller may try the parts again in
 * batches of their own, so that one bad part harms no other. A call that is refused (-ENOENT,
 * -EINVAL, -EBADMSG, -EROFS) or whose content could not be stored has changed nothing and leaves
 * the batch as it was. Reads see the open batch.
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
 *        any state --spool_quarantine--> CORRUPT (kept for a human, never claimed, never deleted
 *                                       but by spool_remove; spool_hold makes it HOLD again)
 *        any but CORRUPT --spool_requeue--> INCOMING, due now
 *
 * A DEFERRED message may be parked: it waits for something that is known by a key (the queue
 * process parks mail under the names of a destination that can't take more now and its class), and
 * spool_claim_parked finds it by that key before it is due. When it falls due first, spool_claim
 * finds it as it finds any other, so no key is a trap.
 *
 *      spool_park, or submitted with a key          spool_claim_parked, spool_finish, or any change
 *   --> DEFERRED, parked under a key, due later -->   of state: not parked any more
 *
 * "Claimed" (Postfix's active queue) is no state on disk: it is known in memory only, from the
 * claim (or the submit that asked for it) to spool_finish, spool_unclaim, spool_hold, spool_remove
 * or the end of the process. So a crash needs no repair: a restarted spool finds every message
 * INCOMING or DEFERRED with the due time it had.
 *
 * What a crash leaves: a batch is one transaction, so all or nothing. Content beside the database
 * is written and synced before the row that names it, and removed after the row is gone; an orphan
 * file is removed when the spool is opened for writing.
 *
 * Errors are 0 or negative errno: -ENOSPC (disk full), -EIO, -ENOENT (no such message), -EBUSY
 * (held by another process), -EBADMSG (a row that can't be decoded: quarantine it), -EUCLEAN (the
 * database itself is damaged, or has rows where these would stand), -EPROTO (a schema newer than
 * this program, or not a spool), -EROFS (a change through a spool opened for reading), -EINVAL (not
 * in this state, or a value past its limit). spool_error() has the words. Times are wall-clock
 * microseconds given by the caller; the spool reads no clock.
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
struct conf; /* the spool hands it to engines and does not look into it */

/* A message's id. Ids grow with time of submission and are never used twice in one spool. */
struct msg_id {
    uint64_t n;
};

/* Queue ids in text: base 32 of digits and consonants, so that none spells a word, and all of them
 * letters that Postfix's long ids use, so that log analysers know them. Sorts as the number does.
 * 11 characters while n, read as microseconds since 1970, is before the year 3075; 14 after that.
 * SPOOL_ID_TEXT_MAX includes the NUL. */
#define SPOOL_ID_TEXT_MAX 16
void spool_id_print(struct msg_id id, char text[SPOOL_ID_TEXT_MAX]);
/* False when `text` is not exactly what spool_id_print writes for some id. */
bool spool_id_parse(struct slice text, struct msg_id *ret_id);

/* Values are stored: they never change meaning. */
enum spool_state {
    SPOOL_INCOMING = 1,
    SPOOL_DEFERRED = 2,
    SPOOL_HOLD = 3,
    SPOOL_CORRUPT = 4,
};

/* What is still to happen to a recipient; stored. */
enum spool_rcpt_state {
    SPOOL_RCPT_PENDING = 1,   /* to be delivered */
    SPOOL_RCPT_FAILED = 2,    /* given up, sender not told yet */
    SPOOL_RCPT_DELIVERED = 3, /* delivered (or relayed), sender asked to be told and was not yet */
    SPOOL_RCPT_RELAYED = 4,   /* as DELIVERED, but passed to a site that sends no success reports */
    /* done and reported, or done and no report was asked for: the row is gone */
};

/* Bytes; longer free text (diagnostic, reply, reason, remote, client, status) is cut, anything else
 * that is longer is -EINVAL. */
#define SPOOL_DIAGNOSTIC_MAX 1024
#define SPOOL_REPLY_MAX      1024
#define SPOOL_SENDER_MAX     ADDRESS_MAX
#define SPOOL_ROUTE_MAX      512 /* transport, and nexthop */
#define SPOOL_REMOTE_MAX     512 /* remote, and client */
#define SPOOL_TLS_MAX        160
#define SPOOL_STATUS_MAX     15
#define SPOOL_DETAILS_MAX    4096
#define SPOOL_NAME_MAX       255                /* spoolid */
#define SPOOL_PARKED_MAX     2048               /* a key; longer or empty is -EINVAL */
#define SPOOL_RCPTS_MAX      UINT32_C(10000000) /* recipients of one message */
#define SPOOL_CONTENT_MAX    (UINT64_C(1) << 40)
#define SPOOL_INLINE_MAX     (UINT64_C(1) << 26) /* inline_limit is at most this */

/* route_generation of recipients of which the store, or a rule at their arrival, says where they
 * go: not to be routed anew, but by spool_requeue. */
#define SPOOL_ROUTE_FIXED ((uint64_t)INT64_MAX)

/* A recipient, as submitted and as read back. Slices that are read last until the next call on the
 * same spool. */
struct spool_rcpt {
    uint32_t n;           /* its number in the message, from 1, never reused; set by submit */
    struct slice address; /* without angle brackets */
    struct slice orcpt;   /* DSN ORCPT "type;xtext" as given; may be empty */
    unsigned notify;      /* enum notify bits */
    enum spool_rcpt_state state; /* ignored on submit */
    struct slice transport;      /* routing cache; empty = not routed yet, nexthop is empty too */
    struct slice nexthop;
    uint64_t route_generation; /* of the tables that made it (spool_routes.h) */
    bool route_by_rule;       /* of engines that route by themselves: a content filter's, perhaps */
    uint32_t attempts;        /* deliveries tried */
    struct slice status;      /* last enhanced status "4.4.1", or empty */
    struct slice diagnostic;  /* last reason, in our words, or empty */
    struct slice reply;       /* what the remote site said in it, "450 4.2.0 later", or empty */
    struct slice remote;      /* "mx.example.org[192.0.2.1]:25" of that reason, or empty */
    struct slice tls;         /* what its connection had shown, as "dane-ee/TLSv1.3/CIPHER" */
    struct wall last_attempt; /* 0 = never */
    /* Of engines whose agents record results themselves, for reports; empty elsewhere. */
    struct slice details; /* bytes in a form of their own, for reports; empty: none were noted */
    struct slice control; /* "CHANNEL HOST USER UID", the line it was given by */
};

/* A message without its recipients and content. Slices as above. */
struct spool_message {
    struct msg_id id;
    enum spool_state state;
    struct slice sender;     /* empty = null sender */
    struct slice envid;      /* DSN ENVID, xtext as given; may be empty */
    unsigned flags;          /* enum envelope_flag bits */
    struct wall arrived;     /* when the receiving of it began */
    struct wall created;     /* base of back-off and expiry; a requeue sets it anew */
    struct wall due;         /* not to be tried before */
    uint64_t size;           /* bytes of content */
    uint32_t rcpt_total;     /* recipients it was submitted with */
    uint32_t rcpt_pending;   /* recipients in state PENDING */
    uint32_t rcpt_to_report; /* recipients in the other states */
    uint32_t warnings;       /* of delay that were sent; a database remembers one at most */
    bool force_expire;       /* an operator asked for it to be given up at its next turn */
    bool is_new;             /* of engines whose mail other programs store: it is seen for the first
                                time, and was not read by a claim before */
    struct slice reason;     /* of HOLD or CORRUPT; else what rules did to it, until it is held */
    struct slice parked;     /* the key it is parked under; empty = it is not */
    struct slice client;     /* where it came from, "name[ip]" or "local uid 1000" */
    struct slice class_name; /* as class_name.h has it; empty = none */
    enum class_source class_source;
    /* Of engines that store mail in parts (spool_parts.h), else 0. */
    struct msg_id whole;    /* of a part: the message that it is of */
    bool gathers;           /* it is the report part of a message in parts, whose id it has */
    struct wall report_due; /* on submit: when the report part is due though nothing is given to it;
                               us 0: with the message */
    /* Of engines whose mail other programs know by name, empty elsewhere. Without a path, spoolid
     * is the name of this message alone, and users are shown it in place of the id. */
    struct slice path;    /* of the message's file, as spool_resync has it: "A/90417" */
    struct slice spoolid; /* the message's name in those programs' logs: "S90417AbkTMvx" */
    struct wall listed;   /* when the file was written, as of reading it */
};

/* Is it a part of a message, other than its report part? */
static inline bool spool_is_part(const struct spool_message *m)
{
    return m->whole.n != 0 && m->whole.n != m->id.n;
}

/* The id that its client was told, by which people know it. */
static inline struct msg_id spool_whole(const struct spool_message *m)
{
    return m->whole.n != 0 ? m->whole : m->id;
}

/* Content to store, in wire form (lines end with CRLF; an engine whose files have other lines
 * converts, both ways): either all in `bytes`, or `bytes` followed by `fd_size` bytes read from
 * `fd` from its offset 0 (fd -1 = none). Borrowed for the call. */
struct spool_content {
    struct slice bytes;
    int fd;
    uint64_t fd_size;
};

enum spool_open_mode {
    SPOOL_OPEN_WRITE, /* create it when missing; -EBUSY when another process holds it */
    SPOOL_OPEN_READ,  /* only reads; works beside a process that holds it */
};

struct spool_options {
    uint64_t inline_limit;     /* bytes; content above it goes to files beside the database */
    uint64_t segment_bytes;    /* of the files that many share; 0 = as many as is good */
    uint64_t id_floor;         /* new ids are above this (a clock value, so that ids grow over time
                                  even after the last message is gone) */
    const struct spool_io *io; /* borrowed; NULL = the real one. Tests replace it, see spool_io.h */
    const struct conf *conf;   /* borrowed for the call; engines that have parameters of their own
                                  find them here. NULL = their built-in values */
    const char *side;          /* path of the database beside a store that has no place for notes or
                                  events (side_store.h); NULL = there is none */
    /* Asked now and then while opening takes long: true: give up, -ECANCELED. NULL: never. */
    bool (*is_over)(void *arg);
    void *arg;
    struct slice secret; /* borrowed for the call; what a server asks for before it lets us
                                  in, as the text of its file. Empty = nothing */
    /* For spools of several processes (spool_parts.h), until it is closed: the name of what this
     * destination shares a limit by with others of its transport; NULL: it shares none. It lasts
     * until the next call, and may change when the generation of routes does. NULL: none does. */
    const char *(*ring_of)(void *ring_arg, struct slice transport, struct slice nexthop);
    void *ring_arg;
};

/* Open `url`: "sqlite:PATH", or what begins as another engine says that was registered
 * (spool_engine.h). On failure *ret_error (caller's buffer) says what and where. */
int spool_open(const char *url, enum spool_open_mode mode, const struct spool_options *options,
               struct buf *ret_error, struct spool **ret_spool);

/* Undo an open batch, close. NULL is fine. */
void spool_close(struct spool *sp);

/* Words for the last error of this spool, "what, where: why". Lasts until the next call. */
const char *spool_error(const struct spool *sp);

/* ---- the batch ------------------------------------------------------------------------------ */

/* Make the open batch durable (0 when there is none). On an error all of it is undone, and claims
 * are what they were when the batch was opened (by its first change). After an error from the disk
 * a crash may yet bring the batch back, whole: doubt costs a duplicate, never a loss. Where commits
 * end later (spool_commits.h) it waits until all of them ended; none may have been begun before. */
int spool_commit(struct spool *sp);

/* Is anything in the open batch? */
bool spool_dirty(const struct spool *sp);

/* Has an error made sure that the commit of the open batch will fail? */
bool spool_batch_is_lost(const struct spool *sp);

/* House-keeping that commits would otherwise have to do under load; to be called, outside a batch,
 * when there is nothing else to do. Cheap when nothing has piled up. Failing is harmless. */
void spool_tidy(struct spool *sp);

/* Store a new message with its recipients and content, state INCOMING (or HOLD with `hold_reason`
 * non-empty; an engine may keep such mail elsewhere, as files for a human to read; or DEFERRED and
 * parked with m->parked non-empty; not both). Uses of *m: sender, envid, flags, arrived, created,
 * due, client, class_name, class_source, parked, and, without `hold_reason`, reason.
 * `content_prefix` (the trace header) may hold one mark, the byte 1, that is replaced by the id's
 * text. `claim` claims it at once: the caller keeps it in memory and need not ask for it again
 * (neither held nor parked). Where mail is stored in parts the engine may not do so, which
 * spool_is_claimed tells. */
int spool_submit(struct spool *sp, const struct spool_message *m, const struct spool_rcpt *rcpts,
                 uint32_t rcpt_count, struct slice content_prefix,
                 const struct spool_content *content, bool claim, struct slice hold_reason,
                 struct msg_id *ret_id);

/* Record what came of one recipient. `state` PENDING = deferred: the diagnostic is kept and
 * attempts counted (when `attempted`); FAILED, DELIVERED, RELAYED: kept for a report; and `done` =
 * true: nothing is to be reported, the recipient goes. */
struct spool_verdict {
    enum spool_rcpt_state state;
    bool done;
    bool attempted;
    bool noted;      /* the agent has written the diagnostic into the control file itself */
    bool unreported; /* nothing is to be written there: no report is wanted */
    struct slice status;
    struct slice diagnostic;
    struct slice reply;
    struct slice remote;
    struct slice tls;
    struct slice details; /* or empty; kept where spool_rcpt has them */
    struct wall when;
};
int spool_settle(struct spool *sp, struct msg_id id, uint32_t n, const struct spool_verdict *v);

/* Store a route in the recipient's cache. */
int spool_set_route(struct spool *sp, struct msg_id id, uint32_t n, struct slice transport,
                    struct slice nexthop, uint64_t route_generation);

/* Forget the recipients in states FAILED, DELIVERED, RELAYED: their report has been submitted (in
 * this same batch). */
int spool_reported(struct spool *sp, struct msg_id id);

/* End a claim: delete the message when no recipient is left in any state, else it is DEFERRED until
 * `due`. *ret_gone says which. A message whose claim was ended meanwhile by another (held,
 * requeued, quarantined, while its deliveries were under way) goes when no recipient is left,
 * unless it is CORRUPT, and otherwise stays as it is. */
int spool_finish(struct spool *sp, struct msg_id id, struct wall due, bool *ret_gone);

/* The fast way through for the most frequent case, all in one: every recipient is done with nothing
 * to report. Deletes the message; -EINVAL when it is CORRUPT. */
int spool_finish_all_done(struct spool *sp, struct msg_id id);

/* End a claim, if there is one, by parking the message under `key`: DEFERRED until `due`, if that
 * key is not asked for before. -EINVAL when it is on HOLD or CORRUPT. */
int spool_park(struct spool *sp, struct msg_id id, struct slice key, struct wall due);

/* All unclaimed mail parked under `key` is parked no more and becomes due at `due`; how many
 * messages, into *ret_count (-EAGAIN: and there is more that is not at hand). The cost grows with
 * that mail alone. */
int spool_wake(struct spool *sp, struct slice key, struct wall due, size_t *ret_count);

/* End a claim without a verdict; the message is as it was (INCOMING or DEFERRED, same due). */
void spool_unclaim(struct spool *sp, struct msg_id id);

int spool_set_warned(struct spool *sp, struct msg_id id);
int spool_set_force_expire(struct spool *sp, struct msg_id id);
int spool_hold(struct spool *sp, struct msg_id id, struct slice reason);
/* HOLD -> DEFERRED, due at `now`; -EINVAL in another state. */
int spool_release(struct spool *sp, struct msg_id id, struct wall now);
/* As if submitted at `now`: created and due are now, not warned nor to be expired, and of pending
 * recipients attempts 0 and routes forgotten (what was last said of them stays); state INCOMING;
 * claims end. -EINVAL for CORRUPT. */
int spool_requeue(struct spool *sp, struct msg_id id, struct wall now);
/* Make it due at `due`. -EINVAL for CORRUPT. */
int spool_set_due(struct spool *sp, struct msg_id id, struct wall due);
/* Delete a message in any state, decodable or not. */
int spool_remove(struct spool *sp, struct msg_id id);
/* To CORRUPT. For a message that can't be decoded, too: impossible values are made
 * harmless ones. */
int spool_quarantine(struct spool *sp, struct msg_id id, struct slice reason);

/* ---- what an engine has to tell ------------------------------------------------------------- */

enum spool_event_type {
    SPOOL_EVENT_LOG,      /* text: a line for the log */
    SPOOL_EVENT_WARNING,  /* the same, for a human to look at */
    SPOOL_EVENT_ETRN,     /* text: the domain whose mail is to be tried now, then who asked */
    SPOOL_EVENT_CHANGED,  /* an external change to the recipients of a claimed message: forget what
                             is known of it, and load it again */
    SPOOL_EVENT_COMPLETE, /* text: "SPOOLID: complete (total 3 recipients, 1 failed)", or that it is
                             obsoleted */
    SPOOL_EVENT_READY,  /* something that was -EAGAIN may be at hand now, or mail can be claimed */
    SPOOL_EVENT_LOST,   /* a message that was claimed is not ours any more, nor what becomes of it;
                          without an id: that was all, but for what a batch had claimed that has
                          failed, and spool_lease_ended is waited for */
    SPOOL_EVENT_HURRY,  /* a message that was to be left (CHANGED) is still being delivered, and
                          another node waits for it: what can be broken off is to be */
    SPOOL_EVENT_ROUTES, /* the generation of our routes is another one (spool_routes.h) */
    SPOOL_EVENT_GAINED, /* mail that was others' has become ours: older tables may have routed it */
    SPOOL_EVENT_ENDED,  /* text: why nothing can ever be done with it again; the program ends */
};

struct spool_event {
    enum spool_event_type type;
    struct msg_id id;  /* 0: of no message */
    struct slice text; /* lasts until the next call */
};

/* The oldest event that was not given out yet; false when there is none. To be asked after every
 * commit, poll and resync. */
bool spool_next_event(struct spool *sp, struct spool_event *ret_event);

/* ---- reading -------------------------------------------------------------------------------- */

/* Claim up to `max` messages of state `from` (INCOMING or DEFERRED) with due <= now that are not
 * claimed, the earliest due first; ids into ret_ids, their number into *ret_count. The cost does
 * not grow with what is claimed or not due. On an error none is claimed. Where commits end later,
 * what a batch that has not ended has changed is not found. For the holder, as spool_next_due is.
 */
int spool_claim(struct spool *sp, enum spool_state from, struct wall now, size_t max,
                struct msg_id *ret_ids, size_t *ret_count);

/* The earliest due time of an unclaimed INCOMING or DEFERRED message; WALL_NEVER when none. */
int spool_next_due(struct spool *sp, struct wall *ret_due);

/* Claim up to `max` messages that are parked under `key`, the oldest submissions first: they are
 * not parked any more and due `now`, so that they go on at once after a crash. *ret_more: are more
 * parked? A change, part of the batch. The cost does not grow with what is parked. -EAGAIN: there
 * are, and none is at hand yet (see spool_want).
 *
 * Where spool_conclude has parked mail (Postfix) a call looks through a bounded piece of it, makes
 * due what it finds and claims nothing; *ret_more then says that there is more to look through. */
int spool_claim_parked(struct spool *sp, struct slice key, struct wall now, size_t max,
                       struct msg_id *ret_ids, size_t *ret_count, bool *ret_more);

/* Keys under which something is parked, claimed or not, in order, those behind `after` (empty =
 * from the first on), at most `max`. The cost grows with the number of keys alone. */
int spool_parked_keys(struct spool *sp, struct slice after, size_t max, struct slice *ret_keys,
                      size_t *ret_count);

bool spool_is_claimed(const struct spool *sp, struct msg_id id);

/* Where mail is in a database on another machine, only what is claimed and a little more is at
 * hand; any call by id may then return -EAGAIN, and has changed nothing. What it missed is asked
 * for at once, and SPOOL_EVENT_READY says when to try again. Content of a claimed message may have
 * to be asked for, too.
 * Is all that at hand? 0, or -EAGAIN (it is asked for), -ENOENT. Other engines always say 0. */
#define SPOOL_WANT_ROWS    1U
#define SPOOL_WANT_CONTENT 2U
int spool_want(struct spool *sp, struct msg_id id, unsigned what);

/* Was a call answered -EAGAIN since this was asked last? */
bool spool_missed(struct spool *sp);

/* Some of the claimed messages, at most `max` ids; the return value is their number. For those who
 * look at all of them bit by bit: *cursor is 0 at the start, and again when all have been told.
 * Claims that begin or end meanwhile may be missed. For the holder. */
size_t spool_claimed(const struct spool *sp, uint64_t *cursor, size_t max, struct msg_id *ret_ids);

/* -EBADMSG: there, but can't be decoded; spool_error says what is wrong. */
int spool_read(struct spool *sp, struct msg_id id, struct spool_message *ret_message);

/* Recipients with n > after in order of n, at most `max`. `only_pending` leaves out the others. */
int spool_read_rcpts(struct spool *sp, struct msg_id id, uint32_t after, bool only_pending,
                     size_t max, struct spool_rcpt *ret_rcpts, size_t *ret_count);

/* Some stores bring recipients into memory only as they are asked for (Postfix), and then
 * spool_read_rcpts tells those alone that are there. Are the next `max` pending ones of a claimed
 * message behind `after` at hand, or all that are left, if these are fewer? 0; -EAGAIN: no, they
 * are on their way; -ENOBUFS: no, as too many of the message that were dealt with are still in
 * memory. SPOOL_EVENT_READY says when to ask again. -ENOENT. Other engines always say 0. */
int spool_want_rcpts(struct spool *sp, struct msg_id id, uint32_t after, size_t max);

/* The content: `bytes` appended to *ret_bytes when it is held inline (*ret_fd = -1), else a new
 * read-only file descriptor in *ret_fd, owned by the caller. */
int spool_read_content(struct spool *sp, struct msg_id id, struct buf *ret_bytes, int *ret_fd,
                       uint64_t *ret_size);

/* An id greater than that of any message before, and less than that of any to come. */
struct msg_id spool_mark(struct spool *sp);

/* The clock was set: what is stored of a message's times moves with it. It stays claimed or parked
 * as it is. */
int spool_set_times(struct spool *sp, struct msg_id id, struct wall due, struct wall created);

struct spool_totals {
    uint64_t incoming, deferred, hold, corrupt; /* messages */
    uint64_t bytes;                             /* of content */
    uint64_t files; /* control files, whose mail may be divided into several messages; else 0 */
};
/* Kept up to date by every change: O(1). */
int spool_totals(struct spool *sp, struct spool_totals *ret_totals);

/* Bytes free for new mail where the spool keeps its data; UINT64_MAX when that has no meaning. What
 * is kept back for storing results on a full disk does not count. -EROFS: what keeps it is not what
 * it has to be, no mail may be taken; an event of the spool has said why. */
int spool_free_bytes(struct spool *sp, uint64_t *ret_bytes);

#endif
