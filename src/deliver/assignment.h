/*
 * An assignment: an entry as the process that delivers it holds it. What is to be delivered to
 * whom, where its content comes from, and what has come of it.
 *
 * Promise to the queue: exactly one WIRE_RESULT per assignment, with one verdict per recipient
 * (none when it is given back, or broken off before the first). assignment_finish CHECKs it.
 *
 *     assignments_add
 *         --> in the table --assignment_finish, _give_back, _break_off--> result sent, freed
 *                    |------assignments_lost: it goes on--> orphan --> log line, freed
 *                    +------assignments_lost: it does not, assignment_free--> freed
 *
 * A queue process that starts anew wants anew what it has no result of. What had begun then goes on
 * as an orphan where that is the lesser evil; its result goes nowhere.
 *
 * The frame is copied once; everything else points into the copy. Texts of verdicts are copied,
 * and kept once when the same text holds for many recipients in a row.
 */
#ifndef DELIVER_ASSIGNMENT_H
#define DELIVER_ASSIGNMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "channel.h"
#include "hash.h"
#include "slice.h"
#include "status.h"
#include "times.h"
#include "wire.h"

/* Content is read from descriptors in pieces of this size. */
#define ASSIGNMENT_PIECE_MAX 32768

/* Fields but those of the first block are private to assignment.c. */
struct assignment {
    struct wire_deliver ask; /* what was asked for; slices last as long as the assignment */
    struct mono taken;       /* when it came */
    uint32_t open;           /* recipients without a verdict */
    bool orphan;             /* the queue process that gave it is gone */

    struct assignments *all;
    void *owner; /* of the caller of assignments_add */
    UT_hash_handle hh;
    char *body;                      /* owned */
    struct wire_deliver_rcpt *rcpts; /* owned; ask.rcpts */
    struct wire_verdict *verdicts;   /* owned, one per recipient; text.ptr NULL: none yet */
    struct assignment_text *texts;   /* owned list */
    char *fetched;                   /* owned: content that came on demand */
    struct slice content;            /* in memory: all of it, or its beginning */
    int fd;                          /* the rest of it, or -1 */
    uint64_t content_size;
    uint64_t content_at; /* bytes handed out */
    bool have_content;
};

struct assignment_end;

/* Told what came of an assignment, which is freed then; `end` is NULL when it was given back. To
 * take note and no more. */
typedef void assignments_told(void *arg, const struct assignment *assignment,
                              const struct assignment_end *end);

/* The assignments of a process. `queue`, or `told`, is the caller's to set. */
struct assignments {
    struct channel *const *queue; /* the channel to the queue process, NULL while there is none */
    assignments_told *told;       /* instead, in a process without such a channel */
    void *told_arg;
    struct assignment *table; /* by ask.entry; private to assignment.c */
};

/* Decode a WIRE_DELIVER frame (its descriptor is taken in any case). NULL when it does not decode
 * or contradicts itself. */
struct assignment *assignment_new(const struct frame *frame);

/* An assignment without a frame: what `ask` points to must outlast it. `fd` (taken) has the
 * content: ask->place is CONTENT_FD. NULL when it can't be looked at. */
struct assignment *assignment_make(const struct wire_deliver *ask, int fd);

/* Put it into the table of `all`. `owner` is what assignments_find finds. */
void assignments_add(struct assignments *all, struct assignment *e, void *owner);

/* The owner of the assignment that the queue process calls `id`, or NULL. */
void *assignments_find(const struct assignments *all, uint64_t id);

/* Call `each` for each owner; it may free that one's assignment. */
void assignments_each(struct assignments *all, void (*each)(void *arg, void *owner), void *arg);

/* The queue process is gone. `goes_on` says of each owner whether its assignment becomes an orphan;
 * if not, it has freed it. */
void assignments_lost(struct assignments *all, bool (*goes_on)(void *arg, void *owner), void *arg);

/* Ask the queue process for the content (CONTENT_ON_DEMAND). An orphan gets none. */
void assignment_ask_content(const struct assignment *e);

/* Without a word to the queue process. NULL is fine. */
void assignment_free(struct assignment *e);

/* The content that was asked for with WIRE_NEED_CONTENT has come. `fd` is taken. False when it is
 * not wanted or can't be used. */
bool assignment_take_content(struct assignment *e, const struct wire_content *m, int fd);

enum assignment_piece {
    ASSIGNMENT_PIECE,        /* here */
    ASSIGNMENT_PIECE_WAIT,   /* the content must be asked for first */
    ASSIGNMENT_PIECE_BROKEN, /* can't be read */
};

/* The next piece of content; at the end an empty one with *ret_last. It lasts until the next call
 * for any assignment. assignment_piece_used says how much of it is done with. */
enum assignment_piece assignment_piece(struct assignment *e, struct slice *ret_piece,
                                       bool *ret_last);
void assignment_piece_used(struct assignment *e, size_t len);

/* Begin with the content again. */
void assignment_rewind(struct assignment *e);

/* Has recipient `i` got a verdict? */
bool assignment_decided(const struct assignment *e, size_t i);

/* Give recipient `i` its verdict. Texts are cut to what the wire carries. */
void assignment_decide(struct assignment *e, size_t i, enum wire_verdict_kind kind,
                       struct status status, struct slice text, struct slice relay);

/* The same for all recipients that have none; `status` decides between deferred and bounced. */
void assignment_decide_rest(struct assignment *e, struct status status, struct slice text,
                            struct slice relay);

/* Beside the verdict of recipient `i`: what the remote site said. Its text is left out of the
 * result when it is the same. */
void assignment_reply(struct assignment *e, size_t i, struct slice reply);

/* Beside the verdict of recipient `i`: which process reports it, whether it stops the destination,
 * and the details for the report, which are cut to what the wire carries. */
void assignment_quote(struct assignment *e, size_t i, enum wire_report report, bool stops_thread,
                      struct slice details);

/* The verdict of a recipient that has one; lasts as long as the assignment. */
const struct wire_verdict *assignment_verdict(const struct assignment *e, size_t i);

/* What the result says beside the verdicts. */
struct assignment_end {
    enum wire_outcome outcome;
    struct slice reason; /* of OUTCOME_SITE_FAIL and OUTCOME_CRASH */
    int64_t setup_us, transmit_us;
    uint32_t conn_use;
    enum wire_proof proof;
    struct slice tls_version, tls_cipher;
    bool maybe_duplicate;
    bool resync, thread_stops; /* of transport agents, as in struct wire_result */
    struct wall thread_until;
    uint32_t pid;
};

/* All recipients have a verdict: send the result and free the assignment. Of an orphan there is a
 * line in the log instead. */
void assignment_finish(struct assignment *e, const struct assignment_end *end);

/* Send it back untouched, and free it. `stopped`: its thread was, by another's result, so that it
 * is to wait for the thread's time. */
void assignment_give_back(struct assignment *e, bool stopped);

/* Another node has the mail, or is to have it: send back the recipients that have no verdict (there
 * is one at least), with the verdicts of the others, and free it. `why` is for the log. */
void assignment_break_off(struct assignment *e, const char *why);

#endif
