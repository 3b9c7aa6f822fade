/*
 * A message that is being received: its envelope, and the content received so far.
 *
 * Content stays in memory up to a limit and moves to a memfd beyond it. The memfd is sealed before
 * it is passed on, so that the receiver may read it without a copy. Both are memory: all drafts of
 * a process are charged to one budget, and a draft that would exceed it fails. A failed draft has
 * released all its memory and stays failed until the next draft_begin.
 *
 *   draft_begin --> draft_add_rcpt ... --> draft_add_content ... --> draft_finish -+
 *                                                                                  v
 *                                      draft_drop <-- draft_submit <-- filters change it
 *
 * For filters the header section is kept apart from the body (draft_keep_header), so that a filter
 * can replace it while the body, which may be large, stays in place.
 *
 * Each recipient is in the envelope once, however often the client names it: a second delivery
 * would be a second copy in the same mailbox. Domains are compared without case, and local parts as
 * given, except where the recipient's own delivery ignores case.
 *
 * A submitted draft is charged until draft_drop, because its content waits in a channel or in the
 * queue process. Embed the struct; its fields are private to draft.c.
 */
#ifndef RECEIVE_DRAFT_H
#define RECEIVE_DRAFT_H

#include <stdbool.h>
#include <stdint.h>

#include "buf.h"
#include "content.h"
#include "slice.h"
#include "wire.h"

/* Maximum bytes of all addresses and their parameters. */
#define DRAFT_ENVELOPE_MAX (16u << 20)
/* Maximum of `inline_max`: envelope and content share a frame. */
#define DRAFT_INLINE_MAX (8u << 20)
/* Maximum bytes of a header section that is kept apart. */
#define DRAFT_HEADER_MAX (4u << 20)

/* Memory limit that all drafts of a process share. */
struct draft_budget {
    uint64_t max;  /* bytes */
    uint64_t used; /* 0..max */
};

struct draft_known;

struct draft {
    struct draft_budget *budget; /* borrowed */
    uint64_t inline_max;         /* maximum bytes of content in memory */
    uint64_t charged;            /* this draft's share of budget->used */
    struct buf envelope;         /* records: sender with ENVID, then recipients with ORCPT */
    struct buf content;          /* all content, or content not yet written to the memfd */
    int fd;                      /* memfd, or -1 */
    uint64_t fd_size;            /* bytes in the memfd */
    size_t last_rcpt;            /* offset of the last recipient's record in `envelope` */
    uint32_t rcpts;
    struct draft_known *known; /* hash of the recipients before `known_end` */
    size_t known_end;          /* offset in `envelope` */
    uint64_t held;             /* charged bytes of draft_hold */
    bool failed;
    bool apart;             /* true if `header` has the header section */
    struct buf header;      /* header section up to its last line end, without the empty line */
    struct content scanner; /* finds the end of the header section */
};

void draft_init(struct draft *d, struct draft_budget *budget, uint64_t inline_max);

/* Releases all memory and the charge. May be called at any time, also twice. */
void draft_drop(struct draft *d);

/* Returns false if the draft has failed now or before, as do the next two functions. */
bool draft_begin(struct draft *d, struct slice sender, struct slice envid);
/* Adds a recipient, unless it is in the envelope already; the first one's ORCPT and NOTIFY stay.
 * `ignores_case`: its local part is compared without case (route_ignores_case). */
bool draft_add_rcpt(struct draft *d, const struct wire_rcpt *rcpt, bool ignores_case);
bool draft_add_content(struct draft *d, struct slice bytes);

/* Removes the last recipient that was added. */
void draft_undo_rcpt(struct draft *d);

/* Keeps the header section apart from the body. Call it after draft_begin, before any content. */
void draft_keep_header(struct draft *d);
/* Charges memory that the caller holds for this message, until draft_drop. Returns false if the
 * draft has failed. */
bool draft_reserve(struct draft *d, uint64_t bytes);

/* Sets the number of bytes of content that the caller keeps for this draft, and charges them.
 * Returns false if the draft has failed. */
bool draft_hold(struct draft *d, uint64_t bytes);

/* Ends the content and seals it. Returns false if the draft has failed. */
bool draft_finish(struct draft *d);

/* Returns the recipients in an array of mem_array, whose slices point into the draft. */
struct wire_rcpt *draft_envelope(const struct draft *d);

/* Sends a finished draft as WIRE_SUBMIT. Fills in envelope id, content, and sender and recipients
 * where m->sender.ptr and m->rcpts are NULL; the caller sets the other fields of *m. The draft
 * keeps its envelope until draft_drop, but no content. */
void draft_submit(struct draft *d, struct channel *ch, struct wire_submit *m);

/* Returns the sender; the next two return the number of recipients and the first recipient (empty
 * without one). The slices are valid until the envelope changes. */
struct slice draft_sender(const struct draft *d);
uint32_t draft_rcpts(const struct draft *d);
struct slice draft_first_rcpt(const struct draft *d);

/* Returns the address of the recipient at *at, and advances *at, which begins at 0. False after the
 * last recipient. */
bool draft_next_rcpt(const struct draft *d, size_t *at, struct slice *ret_address);

/* ---- changes by filters, after draft_finish of a draft that keeps its header apart ---------- */

struct slice draft_header(const struct draft *d);

/* Returns the size of the body without the empty line before it. draft_read_body copies up to
 * `size` bytes of that body from `offset`, and returns their number; 0 at the end. */
uint64_t draft_body_size(const struct draft *d);
size_t draft_read_body(const struct draft *d, uint64_t offset, char *to, size_t size);

/* Returns false if the draft has failed now or before, as does the next function. */
bool draft_set_header(struct draft *d, struct slice header);
bool draft_set_sender(struct draft *d, struct slice sender);

/* Removes all recipients with this address. Returns their number. */
uint32_t draft_remove_rcpt(struct draft *d, struct slice address);

/* Replaces the body of `d` by the content of `from`, a finished draft of the same budget without an
 * envelope. Leaves `from` as after draft_drop. */
void draft_move_body(struct draft *d, struct draft *from);

#endif
