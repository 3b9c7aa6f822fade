/*
 * Changes that one filter requests for one message. They are collected while the filter sends them,
 * applied together when its verdict lets the message pass, and dropped otherwise.
 *
 * Requests of a filter are untrusted input: an invalid address, too many changes, or a body larger
 * than message_size_limit are a failure of the filter. A new body gets CRLF line ends. Until it is
 * applied, it is in memory next to the old body and charged to the same budget.
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

/* Maximum number of changes except those of the body; equal to the maximum of changes of one
 * header. */
#define FILTER_CHANGES_MAX HEADER_EDIT_CHANGES_MAX

/* Zeroed and after filter_changes_drop the struct is empty. */
struct filter_changes {
    struct draft *draft;      /* borrowed; NULL: not begun */
    struct header_edit *edit; /* changes of the header, borrows the draft's header; NULL: none */
    struct buf envelope;      /* records of recipients and senders, in order */
    struct buf hold;          /* reason to put on hold; empty: none */
    struct draft body;        /* new body, if has_body */
    struct line_ends line_ends;
    uint64_t body_max;
    uint32_t count;
    bool has_body;
    bool has_8bit; /* true if added text has 8-bit characters */
};

/* Begins the changes of a message: a finished draft that keeps its header apart. */
void filter_changes_begin(struct filter_changes *c, struct draft *draft, uint64_t inline_max,
                          uint64_t body_max);
void filter_changes_drop(struct filter_changes *c);

enum filter_change_result {
    FILTER_CHANGE_OK,
    FILTER_CHANGE_BAD,       /* fault of the filter; *ret_why is static text */
    FILTER_CHANGE_NO_MEMORY, /* our memory is short */
};

/* Collects an event of type MILTER_CHANGED. */
enum filter_change_result filter_changes_take(struct filter_changes *c,
                                              const struct milter_event *event,
                                              const char **ret_why);

/* Applies the changes to the draft. Afterwards *c keeps only has_8bit and hold, until the next
 * begin. */
enum filter_change_result filter_changes_apply(struct filter_changes *c, const char **ret_why);

#endif
