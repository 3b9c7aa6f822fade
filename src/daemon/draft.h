/*
 * A message while it is being received: the envelope, and the content as far as it has come.
 *
 * Content stays in memory up to a limit and moves to a memfd beyond it, which is sealed before it
 * is handed over, so that the receiver may read it without a copy of its own. Either way it is
 * memory: all drafts of a process are charged to one budget, and a draft that would exceed it
 * fails. A failed draft has released everything it held and stays failed until the next
 * draft_begin.
 *
 *   draft_begin --> draft_add_rcpt ... --> draft_add_content ... --> draft_submit --> draft_drop
 *
 * What was submitted is charged until draft_drop: it waits in a channel or in the queue process.
 * Embed it; fields are private to draft.c.
 */
#ifndef DAEMON_DRAFT_H
#define DAEMON_DRAFT_H

#include <stdbool.h>
#include <stdint.h>

#include "buf.h"
#include "slice.h"
#include "wire.h"

/* Bytes of all addresses and their parameters. */
#define DRAFT_ENVELOPE_MAX (16u << 20)
/* The most that `inline_max` may be: envelope and content share a frame. */
#define DRAFT_INLINE_MAX (8u << 20)

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
    uint32_t rcpts;
    bool failed;
};

void draft_init(struct draft *d, struct draft_budget *budget, uint64_t inline_max);

/* Release all that is held, and the charge. Fine at any time, also twice. */
void draft_drop(struct draft *d);

/* These are false when the draft has failed now or before. */
bool draft_begin(struct draft *d, struct slice sender, struct slice envid);
bool draft_add_rcpt(struct draft *d, struct slice address, struct slice orcpt, uint32_t notify);
bool draft_add_content(struct draft *d, struct slice bytes);

/* All content has come: seal it. False like the above. */
bool draft_finish(struct draft *d);

/* Send it as WIRE_SUBMIT. Sender, envelope id, recipients and content are filled in here, the other
 * fields of *m are the caller's. Only after a successful draft_finish. The content is gone then,
 * the envelope stays until draft_drop. */
void draft_submit(struct draft *d, struct channel *ch, struct wire_submit *m);

/* Until the envelope changes: the sender, the number of recipients, the first of them (empty when
 * there is none). */
struct slice draft_sender(const struct draft *d);
uint32_t draft_rcpts(const struct draft *d);
struct slice draft_first_rcpt(const struct draft *d);

#endif
