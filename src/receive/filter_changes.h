/*
 * What one filter wants to have changed in one message: gathered while it speaks, applied as a
 * whole when its verdict lets the message pass, and dropped when it does not, or fails.
 *
 * What a filter says is input: an address that is none, more changes than fit or a body that is
 * larger than message_size_limit is a failure of the filter. A new body gets CRLF line ends. It is
 * in memory beside the old one until it is applied, charged to the same budget.
 */
#ifndef RECEIVE_FILTER_CHANGES_H
#define RECEIVE_FILTER_CHANGES_H

#include <stdbool.h>
#include <stdint.h>

#include "buf.h"
#include "draft.h"
#include "header_edit.h"
#include "line_ends.h"
#include "milter.h"

/* Recipients that are added or removed, senders, and reasons to hold; as many as one message may
 * have changes of its header. */
#define FILTER_CHANGES_MAX HEADER_EDIT_CHANGES_MAX

/* Zeroed and after filter_changes_drop there are none. */
struct filter_changes {
    struct draft *draft;      /* borrowed; NULL: nothing was begun */
    struct header_edit *edit; /* NULL: not of the header. Borrows the draft's header */
    struct buf envelope;      /* records of recipients and senders, in order */
    struct buf hold;          /* the reason; empty: do not hold */
    struct draft body;        /* the new one, when has_body */
    struct line_ends line_ends;
    uint64_t body_max;
    uint32_t count;
    bool has_body;
    bool has_8bit; /* something that was added has */
};

/* Begin for this message, a finished draft that keeps its header apart. */
void filter_changes_begin(struct filter_changes *c, struct draft *draft, uint64_t inline_max,
                          uint64_t body_max);
void filter_changes_drop(struct filter_changes *c);

enum filter_change_result {
    FILTER_CHANGE_OK,
    FILTER_CHANGE_BAD,       /* *ret_why: static text */
    FILTER_CHANGE_NO_MEMORY, /* ours */
};

/* Take an event of type MILTER_CHANGED. */
enum filter_change_result filter_changes_take(struct filter_changes *c,
                                              const struct milter_event *event,
                                              const char **ret_why);

/* Change the draft. Afterwards there is nothing in *c but has_8bit and hold, until the next
 * begin. */
enum filter_change_result filter_changes_apply(struct filter_changes *c, const char **ret_why);

#endif
