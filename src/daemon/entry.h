/*
 * One entry as a delivering process holds it: what is to be delivered to whom, where its content
 * comes from, and what has come of it.
 *
 * Promise to the queue: exactly one WIRE_RESULT per entry, with one verdict per recipient (none
 * when it is given back). entry_finish CHECKs it.
 *
 * The frame is copied once; everything else points into the copy. Texts of verdicts are copied,
 * and kept once when the same text holds for many recipients in a row.
 */
#ifndef DAEMON_ENTRY_H
#define DAEMON_ENTRY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "channel.h"
#include "slice.h"
#include "status.h"
#include "times.h"
#include "wire.h"

/* Content is read from descriptors in pieces of this size. */
#define ENTRY_PIECE_MAX 32768

/* Fields but those of the first block are private to entry.c. */
struct entry {
    struct wire_deliver ask; /* what was asked for; slices last as long as the entry */
    struct mono taken;       /* when it came */
    uint32_t open;           /* recipients without a verdict */

    char *body;                      /* owned */
    struct wire_deliver_rcpt *rcpts; /* owned; ask.rcpts */
    struct wire_verdict *verdicts;   /* owned, one per recipient; text.ptr NULL: none yet */
    struct entry_text *texts;        /* owned list */
    char *fetched;                   /* owned: content that came on demand */
    struct slice content;            /* in memory: all of it, or its beginning */
    int fd;                          /* the rest of it, or -1 */
    uint64_t content_size;
    uint64_t content_at; /* bytes handed out */
    bool have_content;
};

/* Decode a WIRE_DELIVER frame (its descriptor is taken in any case). NULL when it does not decode
 * or contradicts itself. */
struct entry *entry_new(const struct frame *frame);

/* An entry without a frame: what `ask` points to must outlast it. `fd` (taken) has the content:
 * ask->place is CONTENT_FD. NULL when it can't be looked at. */
struct entry *entry_make(const struct wire_deliver *ask, int fd);

/* NULL is fine. */
void entry_free(struct entry *e);

/* The content that was asked for with WIRE_NEED_CONTENT has come. `fd` is taken. False when it is
 * not wanted or can't be used. */
bool entry_take_content(struct entry *e, const struct wire_content *m, int fd);

enum entry_piece {
    ENTRY_PIECE,        /* here */
    ENTRY_PIECE_WAIT,   /* the content must be asked for first */
    ENTRY_PIECE_BROKEN, /* can't be read */
};

/* The next piece of content; at the end an empty one with *ret_last. It lasts until the next call
 * for any entry. entry_piece_used says how much of it is done with. */
enum entry_piece entry_piece(struct entry *e, struct slice *ret_piece, bool *ret_last);
void entry_piece_used(struct entry *e, size_t len);

/* Begin with the content again. */
void entry_rewind(struct entry *e);

/* Has recipient `i` got a verdict? */
bool entry_decided(const struct entry *e, size_t i);

/* Give recipient `i` its verdict. Texts are cut to what the wire carries. */
void entry_decide(struct entry *e, size_t i, enum wire_verdict_kind kind, struct status status,
                  struct slice text, struct slice relay);

/* The same for all who have none; `status` decides between deferred and bounced. */
void entry_decide_rest(struct entry *e, struct status status, struct slice text,
                       struct slice relay);

/* Beside the verdict of recipient `i`, what a transport agent said of it. The notary is cut to what
 * the wire carries. */
void entry_quote(struct entry *e, size_t i, uint32_t word, struct slice notary);

/* The verdict of a recipient that has one; lasts as long as the entry. */
const struct wire_verdict *entry_verdict(const struct entry *e, size_t i);

/* What the result says beside the verdicts. */
struct entry_end {
    enum wire_outcome outcome;
    struct slice reason; /* of OUTCOME_SITE_FAIL and OUTCOME_CRASH */
    int64_t setup_us, transmit_us;
    uint32_t conn_use;
    struct slice tls;
    bool maybe_duplicate;
    bool resync, thread_stops; /* of transport agents, as in struct wire_result */
    struct wall thread_until;
    uint32_t pid;
};

/* Send the result (unless `ch` is NULL: nobody is there to hear it) and free the entry. */
void entry_finish(struct entry *e, struct channel *ch, const struct entry_end *end);

/* Send it back untouched, and free it. `stopped`: its thread was, by another's result, so that it
 * is to wait for the thread's time. */
void entry_give_back(struct entry *e, struct channel *ch, bool stopped);

#endif
