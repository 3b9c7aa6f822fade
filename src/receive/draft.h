/*
 * A message while it is being received: the envelope, and the content as far as it has come.
 *
 * Content stays in memory up to a limit and moves to a memfd beyond it, which is sealed before it
 * is handed over, so that the receiver may read it without a copy of its own. Either way it is
 * memory: all drafts of a process are charged to one budget, and a draft that would exceed it
 * fails. A failed draft has released everything it held and stays failed until the next
 * draft_begin.
 *
 *   draft_begin --> draft_add_rcpt ... --> draft_add_content ... --> draft_finish -+
 *                                                                                  v
 *                                      draft_drop <-- draft_submit <-- filters change it
 *
 * Where filters are to see a message its header section is kept apart from the body
 * (draft_keep_header): it can be exchanged then, and the body, which may be large, stays where it
 * is.
 *
 * What was submitted is charged until draft_drop: it waits in a channel or in the queue process.
 * Embed it; fields are private to draft.c.
 */
#ifndef RECEIVE_DRAFT_H
#define RECEIVE_DRAFT_H

#include <stdbool.h>
#include <stdint.h>

#include "buf.h"
#include "content.h"
#include "slice.h"
#include "wire.h"

/* Bytes of all addresses and their parameters. */
#define DRAFT_ENVELOPE_MAX (16u << 20)
/* The most that `inline_max` may be: envelope and content share a frame. */
#define DRAFT_INLINE_MAX (8u << 20)
/* Bytes of a header section that is kept apart. */
#define DRAFT_HEADER_MAX (4u << 20)

/* Shared by all drafts of a process. */
struct draft_budget {
    uint64_t max;  /* bytes */
    uint64_t used; /* 0..max */
};

struct draft {
    struct draft_budget *budget; /* borrowed */
    uint64_t inline_max;         /* content in memory */
    uint64_t charged;            /* this draft's share of budget->used */
    struct buf envelope;         /* records: the sender with ENVID, then recipients with ORCPT */
    struct buf content;          /* all of it, or what has not gone to the memfd yet */
    int fd;                      /* memfd, or -1 */
    uint64_t fd_size;            /* written to it */
    size_t last_rcpt;            /* where its record begins in `envelope` */
    uint32_t rcpts;
    uint64_t held; /* of the charge: see draft_hold */
    bool failed;
    bool apart;             /* the header section is in `header` */
    struct buf header;      /* with the line end of its last field, without the empty line */
    struct content scanner; /* finds its end */
};

void draft_init(struct draft *d, struct draft_budget *budget, uint64_t inline_max);

/* Release all that is held, and the charge. Fine at any time, also twice. */
void draft_drop(struct draft *d);

/* These are false when the draft has failed now or before. */
bool draft_begin(struct draft *d, struct slice sender, struct slice envid);
bool draft_add_rcpt(struct draft *d, struct slice address, struct slice orcpt, uint32_t notify);
bool draft_add_content(struct draft *d, struct slice bytes);

/* Take the last recipient back. */
void draft_undo_rcpt(struct draft *d);

/* Keep the header section apart from the body. After draft_begin, before any content. */
void draft_keep_header(struct draft *d);
/* Charge memory that the caller holds for this message, until draft_drop. */
bool draft_reserve(struct draft *d, uint64_t bytes);

/* So many bytes of content are kept for this draft elsewhere, and are charged to it. False like the
 * above. */
bool draft_hold(struct draft *d, uint64_t bytes);

/* All content has come: seal it. False like the above. */
bool draft_finish(struct draft *d);

/* The recipients, in an array of mem_array that points into the draft. */
struct wire_rcpt *draft_envelope(const struct draft *d);

/* Send it as WIRE_SUBMIT. Sender, envelope id, content, and the recipients where m->rcpts is NULL,
 * are filled in here, the other fields of *m are the caller's. Only after a successful
 * draft_finish. The content is gone then, the envelope stays until draft_drop. */
void draft_submit(struct draft *d, struct channel *ch, struct wire_submit *m);

/* Until the envelope changes: the sender, the number of recipients, the first of them (empty when
 * there is none). */
struct slice draft_sender(const struct draft *d);
uint32_t draft_rcpts(const struct draft *d);
struct slice draft_first_rcpt(const struct draft *d);

/* The address of recipient *at, which begins at 0; false behind the last. */
bool draft_next_rcpt(const struct draft *d, size_t *at, struct slice *ret_address);

/* ---- what filters change, after draft_finish of a draft that keeps its header apart ---------- */

struct slice draft_header(const struct draft *d);

/* The body without the empty line before it: its size, and up to `size` bytes of it from `offset`.
 * How many there were; 0 at its end. */
uint64_t draft_body_size(const struct draft *d);
size_t draft_read_body(const struct draft *d, uint64_t offset, char *to, size_t size);

/* These are false when the draft has failed, as above. */
bool draft_set_header(struct draft *d, struct slice header);
bool draft_set_sender(struct draft *d, struct slice sender);

/* How many recipients were removed that have this address. */
uint32_t draft_remove_rcpt(struct draft *d, struct slice address);

/* The content of `from`, a finished draft of the same budget that has no envelope, is the body of
 * `d` in place of its own. `from` is as after draft_drop then. */
void draft_move_body(struct draft *d, struct draft *from);

#endif
