/*
 * The spool: durable store of messages, their recipients and their content.
 *
 * One interface, several engines: `sqlite:PATH` (durable, the default) and `memory:` (tests and the
 * simulator). One process holds a spool for writing; others may open it for reading.
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
 *      spool_submit            spool_claim            spool_finish: nobody left
 *   -->  INCOMING ----------> (claimed; in memory) -----------------------------> gone
 *                              ^              |
 *                  spool_claim |              | spool_finish: somebody left, due later
 *                              |              v
 *                           DEFERRED <--------+
 *        any state --spool_hold--> HOLD --spool_release--> DEFERRED, due now
 *        any state --spool_set_aside--> CORRUPT (kept for a human, never claimed, never deleted
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
 * (held by another process), -EBADMSG (a row that can't be decoded: set it aside), -EUCLEAN (the
 * database file itself is damaged), -EPROTO (a schema newer than this program, or not a spool),
 * -EROFS (a change through a spool opened for reading), -EINVAL (not in this state, or a value past
 * its limit). spool_error() has the words. Times are wall-clock microseconds given by the caller;
 * the spool reads no clock.
 *
 * A third engine, `postoffice:DIR`, keeps mail in the files of ZMailer's scheduler, which a router
 * writes there and transport agents mark; see postoffice.h. What only it can do is said at the
 * calls: mail that is divided (spool_put_off), news of what others did, and looking for it.
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
    /* done and told, or done and nobody asked: the row is gone */
};

/* Bytes; longer free text (diagnostic, reason, remote, client, status) is cut, anything else that
 * is longer is -EINVAL. */
#define SPOOL_DIAGNOSTIC_MAX 1024
#define SPOOL_SENDER_MAX     ADDRESS_MAX
#define SPOOL_ROUTE_MAX      512 /* transport, and nexthop */
#define SPOOL_REMOTE_MAX     512 /* remote, and client */
#define SPOOL_STATUS_MAX     15
#define SPOOL_NOTARY_MAX     4096
#define SPOOL_PARKED_MAX     2048               /* a key; longer or empty is -EINVAL */
#define SPOOL_RCPTS_MAX      UINT32_C(10000000) /* recipients of one message */
#define SPOOL_CONTENT_MAX    (UINT64_C(1) << 40)
#define SPOOL_INLINE_MAX     (UINT64_C(1) << 26) /* inline_limit is at most this */

/* route_generation of recipients whose store says where they go: never to be routed anew. */
#define SPOOL_ROUTE_FIXED UINT64_MAX

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
    uint64_t route_generation; /* of the table that made it */
    uint32_t attempts;         /* deliveries tried */
    struct slice status;       /* last enhanced status "4.4.1", or empty */
    struct slice diagnostic;   /* last reason, or empty */
    struct slice remote;       /* "mx.example.org[192.0.2.1]:25" of that reason, or empty */
    struct wall last_attempt;  /* 0 = never */
    /* Of engines whose agents record results themselves, for reports; empty elsewhere. */
    struct slice notary;  /* as agents/notary.h has it; empty when an agent said nothing */
    struct slice control; /* "CHANNEL HOST USER UID", the line it was given by */
};

/* A message without its recipients and content. Slices as above. */
struct spool_message {
    struct msg_id id;
    enum spool_state state;
    struct slice sender;     /* empty = null sender */
    struct slice envid;      /* DSN ENVID, xtext as given; may be empty */
    unsigned flags;          /* enum envelope_flag bits; of a postoffice ENVELOPE_REPORT says that
                                the sender is the channel `error` */
    struct wall arrived;     /* when the receiving of it began */
    struct wall created;     /* base of back-off and expiry; a requeue sets it anew */
    struct wall due;         /* not to be tried before */
    uint64_t size;           /* bytes of content */
    uint32_t rcpt_total;     /* recipients it was submitted with */
    uint32_t rcpt_pending;   /* recipients in state PENDING */
    uint32_t rcpt_to_report; /* recipients in the other states */
    uint32_t warnings;       /* of delay that were sent; a database remembers one at most */
    bool force_expire;       /* an operator asked for it to be given up at its next turn */
    struct slice reason;     /* of HOLD or CORRUPT */
    struct slice parked;     /* the key it is parked under; empty = it is not */
    struct slice client;     /* where it came from, "name[ip]" or "local uid 1000" */
    struct slice class_name; /* as class_name.h has it; empty = none */
    enum class_source class_source;
    /* Of the postoffice engine, empty elsewhere. */
    struct slice path;    /* of the control file, relative to transport/: "A/90417" */
    struct slice spoolid; /* ZMailer's name for the message, "S90417AbkTMvx" */
    struct wall listed;   /* when the control file was written, as of reading it */
};

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

/* Strings are borrowed for the life of the spool. */
struct spool_postoffice_options {
    unsigned hash_levels;       /* 0, 1 or 2: where new files are moved to */
    uint32_t scan_files;        /* new files per scan at most; 0 = 40000 */
    int64_t scan_us;            /* and time per scan; 0 = 5 s */
    int64_t scan_interval_us;   /* from the end of a scan to the next; 0 = 10 s */
    int64_t report_interval_us; /* results of a message are gathered so long before a report */
    const char *notify_path;    /* of the socket that announces files; NULL = none */
    const char *router_notify;  /* of the router's socket; NULL = none */
    const char *hostname;       /* in the names and envelopes of what is handed to the router */
    bool msgwriteasync;         /* that is not synced before it is handed over */
    const char *only;           /* control files that alone are read, once, as "A/90417 90418";
                                   NULL = all there are */
    bool keep_files;            /* nothing is removed and nobody told: to look at one thread */
};

struct spool_options {
    uint64_t inline_limit;     /* bytes; content above it goes to files beside the database */
    uint64_t segment_bytes;    /* of the files that many share; 0 = as many as is good */
    uint64_t id_floor;         /* new ids are above this (a clock value, so that ids grow over time
                                  even after the last message is gone) */
    const struct spool_io *io; /* borrowed; NULL = the real one. Tests replace it, see spool_io.h */
    struct spool_postoffice_options postoffice;
};

/* Open `url` ("sqlite:PATH", "memory:", "postoffice:DIR"). On failure *ret_error (caller's buffer)
 * says what and where. */
int spool_open(const char *url, enum spool_open_mode mode, const struct spool_options *options,
               struct buf *ret_error, struct spool **ret_spool);

/* Undo an open batch, close. NULL is fine. */
void spool_close(struct spool *sp);

/* Words for the last error of this spool, "what, where: why". Lasts until the next call. */
const char *spool_error(const struct spool *sp);

/* ---- the batch ------------------------------------------------------------------------------ */

/* Make the open batch durable (0 when there is none). On an error all of it is undone, and claims
 * are what they were when the batch was opened (by its first change). After an error from the disk
 * a crash may yet bring the batch back, whole: doubt costs a duplicate, never a loss. */
int spool_commit(struct spool *sp);

/* Is anything in the open batch? */
bool spool_dirty(const struct spool *sp);

/* House-keeping that commits would otherwise have to do under load; to be called, outside a batch,
 * when there is nothing else to do. Cheap when nothing has piled up. Failing is harmless. */
void spool_tidy(struct spool *sp);

/* Store a new message with its recipients and content, state INCOMING (or HOLD with `hold_reason`
 * non-empty; the postoffice engine keeps such mail, a report that nobody is to get, as a file
 * postman/NAME:HOLD_REASON, or DEFERRED and parked with m->parked non-empty; not both). Uses of *m:
 * sender, envid, flags, arrived, created, due, client, class_name, class_source,
 * parked. `content_prefix` (the
 * trace header) may hold one mark, the byte 1, that is replaced by the id's text. `claim` claims it
 * at once: the caller keeps it in memory and need not ask for it again (neither held nor parked).
 */
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
    bool unreported; /* nothing is to be written there: nobody wants to know */
    struct slice status;
    struct slice diagnostic;
    struct slice remote;
    struct slice notary; /* as agents/notary.h has it, or empty; kept where spool_rcpt has it */
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
 * requeued, set aside, while its deliveries were under way) goes when nobody is left, unless it is
 * CORRUPT, and otherwise stays as it is. */
int spool_finish(struct spool *sp, struct msg_id id, struct wall due, bool *ret_gone);

/* The fast way through for the most frequent case, all in one: every recipient is done with nothing
 * to report. Deletes the message; -EINVAL when it is CORRUPT. */
int spool_finish_all_done(struct spool *sp, struct msg_id id);

/* End a claim, if there is one, by parking the message under `key`: DEFERRED until `due`, if nobody
 * asks for that key before. -EINVAL when it is on HOLD or CORRUPT. */
int spool_park(struct spool *sp, struct msg_id id, struct slice key, struct wall due);

/* Recipients `ns` of the message leave it and become mail of their own, DEFERRED and parked under
 * `key` until `due`; they join what the same message has parked there and nobody has claimed. Such
 * mail has an id of its own and is a message in every respect. Kept in memory alone: after a crash
 * it is one message again and due at once. -ENOTSUP when !spool_divides, -ENOENT when a recipient
 * is none of the message's pending ones. */
int spool_put_off(struct spool *sp, struct msg_id id, const uint32_t *ns, size_t count,
                  struct slice key, struct wall due);
bool spool_divides(const struct spool *sp);

/* All unclaimed mail parked under `key` is parked no more and becomes due at `due`; how many
 * messages, into *ret_count. The cost grows with that mail alone. */
int spool_wake(struct spool *sp, struct slice key, struct wall due, size_t *ret_count);

/* Recipients `ns` of the message, in order, go back to who says where mail goes: a postoffice's
 * router gets them as mail of their sender, with their headers and the body. They are done, and
 * nobody is told, once that is safe: a crash makes two of it, never none. A recipient stays whom a
 * living process has locked, who is done already, or who is no mailbox but a program or a file;
 * *ret_count is how many go. -ENOTSUP where nobody else says where mail goes, -ENOENT when one is
 * none of the message's pending recipients. */
int spool_reroute(struct spool *sp, struct msg_id id, const uint32_t *ns, size_t count,
                  size_t *ret_count);

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
int spool_set_aside(struct spool *sp, struct msg_id id, struct slice reason);

/* ---- what others do to the store ------------------------------------------------------------ */

/* Readable when there is something for spool_poll; -1: never. */
int spool_news_fd(const struct spool *sp);

/* Take in a bounded piece of what others have written, for a few milliseconds; *ret_again is when
 * to call again though the descriptor is silent (WALL_NEVER: never). What is new can be claimed
 * afterwards. Outside a batch. */
int spool_poll(struct spool *sp, struct wall now, struct wall *ret_again);

/* Whatever it said last, the next spool_poll looks at all there is. */
void spool_look(struct spool *sp);

/* Somebody has found the files of a message changed, or not what was expected: read them again.
 * `path` as of spool_message. What is no more to be delivered leaves; news tell of it. Outside a
 * batch. -ENOENT: not known, or gone. -ENOTSUP: not this engine's. */
int spool_resync(struct spool *sp, struct slice path);

/* Add a line to the file that the sender has asked to follow the message in (the control file's
 * `v`). Where there is none, or it can't be written as its owner, nothing happens. */
void spool_verbose(struct spool *sp, struct msg_id id, struct slice line);

enum spool_news_type {
    SPOOL_NEWS_LOG,
    SPOOL_NEWS_WARNING,
    SPOOL_NEWS_ETRN,    /* text: the domain whose mail is to be tried now */
    SPOOL_NEWS_CHANGED, /* recipients of a claimed message changed behind its holder's back: forget
                           what is known of it, and load it again */
    SPOOL_NEWS_COMPLETE /* text: "SPOOLID: complete (total 3 recipients, 1 failed)", or: obsoleted
                         */
};

struct spool_news {
    enum spool_news_type type;
    struct msg_id id;  /* 0: of no message */
    struct slice text; /* lasts until the next call */
};

/* The next of what has happened meanwhile, oldest first; false when there is no more. To be asked
 * after every poll, resync and commit. */
bool spool_next_news(struct spool *sp, struct spool_news *ret_news);

/* ---- reading -------------------------------------------------------------------------------- */

/* Claim up to `max` messages of state `from` (INCOMING or DEFERRED) with due <= now that are not
 * claimed, the earliest due first; ids into ret_ids, their number into *ret_count. The cost does
 * not grow with what is claimed or not due. On an error none is claimed. For the holder, as is
 * spool_next_due. */
int spool_claim(struct spool *sp, enum spool_state from, struct wall now, size_t max,
                struct msg_id *ret_ids, size_t *ret_count);

/* The earliest due time of an unclaimed INCOMING or DEFERRED message; WALL_NEVER when none. */
int spool_next_due(struct spool *sp, struct wall *ret_due);

/* Claim up to `max` messages that are parked under `key`, the oldest submissions first: they are
 * not parked any more and due `now`, so that they go on at once after a crash. *ret_more: are more
 * parked? A change, part of the batch. The cost does not grow with what is parked. */
int spool_claim_parked(struct spool *sp, struct slice key, struct wall now, size_t max,
                       struct msg_id *ret_ids, size_t *ret_count, bool *ret_more);

/* Keys under which something is parked, claimed or not, in order, those behind `after` (empty =
 * from the first on), at most `max`. The cost grows with the number of keys alone. */
int spool_parked_keys(struct spool *sp, struct slice after, size_t max, struct slice *ret_keys,
                      size_t *ret_count);

bool spool_is_claimed(const struct spool *sp, struct msg_id id);

/* Some of the claimed messages, at most `max` ids; the return value is their number. For those who
 * look at all of them bit by bit: *cursor is 0 at the start, and again when all have been told.
 * Claims that begin or end meanwhile may be missed. For the holder. */
size_t spool_claimed(const struct spool *sp, uint64_t *cursor, size_t max, struct msg_id *ret_ids);

/* -EBADMSG: there, but can't be decoded; spool_error says what is wrong. */
int spool_read(struct spool *sp, struct msg_id id, struct spool_message *ret_message);

/* Recipients with n > after in order of n, at most `max`. `only_pending` leaves out the others. */
int spool_read_rcpts(struct spool *sp, struct msg_id id, uint32_t after, bool only_pending,
                     size_t max, struct spool_rcpt *ret_rcpts, size_t *ret_count);

/* The content: `bytes` appended to *ret_bytes when it is held inline (*ret_fd = -1), else a new
 * read-only file descriptor in *ret_fd, owned by the caller. */
int spool_read_content(struct spool *sp, struct msg_id id, struct buf *ret_bytes, int *ret_fd,
                       uint64_t *ret_size);

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
};

/* An id greater than that of any message before, and less than that of any to come. */
struct msg_id spool_mark(struct spool *sp);

/* The clock was set: what is stored of a message's times moves with it. It stays claimed or parked
 * as it is. */
int spool_set_times(struct spool *sp, struct msg_id id, struct wall due, struct wall created);

/* Messages that match, in order of id, one page: at most `max` ids. Uses indexes: the cost grows
 * with the matches of the most selective condition. */
int spool_scan(struct spool *sp, const struct spool_filter *f, size_t max, struct msg_id *ret_ids,
               size_t *ret_count);

/* How many match. */
int spool_count(struct spool *sp, const struct spool_filter *f, uint64_t *ret_count);

struct spool_totals {
    uint64_t incoming, deferred, hold, corrupt; /* messages */
    uint64_t bytes;                             /* of content */
    uint64_t files; /* control files, whose mail may be divided into several messages; else 0 */
};
/* Kept up to date by every change: O(1). */
int spool_totals(struct spool *sp, struct spool_totals *ret_totals);

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

/* Bytes free for new mail where the spool keeps its data; UINT64_MAX when that has no meaning. What
 * is kept back for storing results on a full disk does not count. */
int spool_free_bytes(struct spool *sp, uint64_t *ret_bytes);

#endif
