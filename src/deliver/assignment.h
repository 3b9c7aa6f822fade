/*
 * An assignment: an entry in the process that delivers it. It holds the recipients, the source of
 * the content, and the verdicts so far.
 *
 * The queue process gets exactly one WIRE_RESULT per assignment, with one verdict per recipient.
 * The result has no verdicts if the assignment is given back, and fewer than recipients if it is
 * broken off. assignment_finish CHECKs this.
 *
 *     assignments_add
 *         --> in the table --assignment_finish, _give_back, _break_off--> result sent, freed
 *                    |------assignments_lost: it goes on--> orphan --> log line, freed
 *                    +------assignments_lost: it does not, assignment_free--> freed
 *
 * A queue process that starts again repeats each delivery for which it has no result. A delivery in
 * flight may continue as an orphan, if that is better than to stop it; its result is only logged.
 *
 * The frame is copied once; all slices point into the copy. Texts of verdicts are copied, and equal
 * texts of successive recipients share a copy.
 */
#ifndef DELIVER_ASSIGNMENT_H
#define DELIVER_ASSIGNMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "channel.h"
#include "failure.h"
#include "hash.h"
#include "slice.h"
#include "status.h"
#include "times.h"
#include "wire.h"

/* Bytes of content that are read from a descriptor at once. */
#define ASSIGNMENT_PIECE_MAX 32768

/* Members after the first block are private to assignment.c. */
struct assignment {
    struct wire_deliver ask; /* the request; its slices last as long as the assignment */
    struct mono taken;       /* time of arrival */
    uint32_t open;           /* recipients without a verdict */
    bool last_resort;      /* set by the owner: a relay of smtp_fallback_relay gets the mail now */
    enum wire_fault fault; /* fault of settings in the result; set by assignment_decide */
    uint32_t fault_rcpt;   /* number of the first recipient with that fault */
    bool orphan;           /* the queue process that sent it is gone */

    struct assignments *all;
    void *owner; /* argument of assignments_add */
    UT_hash_handle hh;
    char *body;                      /* owned */
    struct wire_deliver_rcpt *rcpts; /* owned; ask.rcpts */
    /* owned, one per recipient; text.ptr is NULL until there is a verdict */
    struct wire_verdict *verdicts;
    struct assignment_text *texts; /* owned list */
    char *fetched;                 /* owned: content received on demand */
    struct slice content;          /* content in memory: all, or the beginning */
    int fd;                        /* descriptor of the remaining content, or -1 */
    uint64_t content_size;
    uint64_t content_at; /* bytes used so far */
    bool have_content;
};

struct assignment_end;

/* Is called with the end of an assignment, before the assignment is freed; `end` is NULL if it was
 * given back. Must not call functions of the assignment's owner. */
typedef void assignments_told(void *arg, const struct assignment *assignment,
                              const struct assignment_end *end);

/* The assignments of a process. The caller sets `queue` or `told`. */
struct assignments {
    struct channel *const *queue; /* the channel to the queue process, NULL while there is none */
    assignments_told *told;       /* callback in a process without that channel; else NULL */
    void *told_arg;
    struct assignment *table; /* hash by ask.entry; private to assignment.c */
};

/* Decodes a WIRE_DELIVER frame; takes its descriptor in any case. Returns NULL if the frame does
 * not decode or contradicts itself. */
struct assignment *assignment_new(const struct frame *frame);

/* Makes an assignment without a frame; the data of `ask` must outlast it. Takes `fd`, which has the
 * content (ask->place is CONTENT_FD). Returns NULL if fstat fails on `fd`. */
struct assignment *assignment_make(const struct wire_deliver *ask, int fd);

/* Adds an assignment to the table of `all`; assignments_find returns its `owner`. */
void assignments_add(struct assignments *all, struct assignment *e, void *owner);

/* Returns the owner of the assignment with the entry number `id`, or NULL. */
void *assignments_find(const struct assignments *all, uint64_t id);

/* Calls `each` for each owner, which may free its own assignment. */
void assignments_each(struct assignments *all, void (*each)(void *arg, void *owner), void *arg);

/* Handles the loss of the queue process: calls `goes_on` for each owner. The assignment becomes an
 * orphan if `goes_on` returns true; otherwise `goes_on` must have freed it. */
void assignments_lost(struct assignments *all, bool (*goes_on)(void *arg, void *owner), void *arg);

/* Is there a queue process that gets the result? */
bool assignment_is_awaited(const struct assignment *e);

/* Requests the content from the queue process (CONTENT_ON_DEMAND); does nothing for an orphan. */
void assignment_ask_content(const struct assignment *e);

/* Frees an assignment without a result to the queue process. NULL is fine. */
void assignment_free(struct assignment *e);

/* Takes the content that WIRE_NEED_CONTENT has requested, and `fd`. Returns false if the content is
 * not expected or not usable. */
bool assignment_take_content(struct assignment *e, const struct wire_content *m, int fd);

enum assignment_piece {
    ASSIGNMENT_PIECE,        /* a piece of content */
    ASSIGNMENT_PIECE_WAIT,   /* the content must be requested first */
    ASSIGNMENT_PIECE_BROKEN, /* the content can't be read */
};

/* Reads the next piece of content; at the end an empty piece with *ret_last. The piece lasts until
 * the next call for any assignment. The same bytes are returned again unless assignment_piece_used
 * is called with the number of bytes used. */
enum assignment_piece assignment_piece(struct assignment *e, struct slice *ret_piece,
                                       bool *ret_last);
void assignment_piece_used(struct assignment *e, size_t len);

/* Moves back to the beginning of the content. */
void assignment_rewind(struct assignment *e);

/* Does recipient `i` have a verdict? */
bool assignment_decided(const struct assignment *e, size_t i);

/* Sets the verdict of recipient `i`. VERDICT_BOUNCED becomes VERDICT_DEFERRED if `cause` must not
 * bounce mail (conf/failure.h). Texts are cut to the limits of the wire. */
void assignment_decide(struct assignment *e, size_t i, enum wire_verdict_kind kind,
                       enum failure_cause cause, struct status status, struct slice text,
                       struct slice relay);

/* Sets this verdict for each recipient without one: deferred or bounced, according to `status`. */
void assignment_decide_rest(struct assignment *e, enum failure_cause cause, struct status status,
                            struct slice text, struct slice relay);

/* Adds the reply of the remote site to the verdict of recipient `i`. The result leaves out a text
 * of the verdict that equals the reply. */
void assignment_reply(struct assignment *e, size_t i, struct slice reply);

/* Adds to the verdict of recipient `i`: which process sends the bounce or notice, whether the
 * destination stops, and the details for the bounce, cut to the limit of the wire. */
void assignment_quote(struct assignment *e, size_t i, enum wire_report report, bool stops_thread,
                      struct slice details);

/* Returns the verdict of a recipient that has one; lasts as long as the assignment. */
const struct wire_verdict *assignment_verdict(const struct assignment *e, size_t i);

/* The data of a result besides the verdicts. */
struct assignment_end {
    enum wire_outcome outcome;
    struct slice reason; /* for OUTCOME_SITE_FAIL and OUTCOME_CRASH */
    int64_t setup_us, transmit_us;
    uint32_t conn_use;
    enum wire_proof proof;
    struct slice tls_version, tls_cipher;
    bool maybe_duplicate;
    bool resync, thread_stops; /* for transport agents, as in struct wire_result */
    struct wall thread_until;
    uint32_t pid;
};

/* Sends the result and frees the assignment; all recipients must have a verdict. The result of an
 * orphan is logged instead. */
void assignment_finish(struct assignment *e, const struct assignment_end *end);

/* Returns an assignment without verdicts to the queue process and frees it. `stopped`: the result
 * of another delivery has stopped its thread, so the mail must wait for the thread's time. */
void assignment_give_back(struct assignment *e, bool stopped);

/* Returns the recipients without a verdict (at least one) to the queue process, together with the
 * verdicts of the others, and frees the assignment: another node has the mail or waits for it.
 * `why` is logged. */
void assignment_break_off(struct assignment *e, const char *why);

#endif
