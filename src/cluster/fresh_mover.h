/*
 * Fresh mover: moves mail that has long been in passage to the tables of waiting mail, so that its
 * fresh table can be emptied in its turn (housekeeper.h).
 *
 * A table that has not been in use for FRESH_MOVER_PASSING_US is searched once. Mail on the desk is
 * moved with the next batch, FRESH_MOVER_MAX messages at a time; other mail is loaded for that,
 * page by page. Content is copied from table to table by the server. Times are measured by the
 * node's own clock from the moment when it noticed a turn, so no time in a row must be right. Mail
 * in the table in use is left alone.
 *
 *   in use --another is--> left --FRESH_MOVER_PASSING_US--> due <--> bringing, moving --> done
 *     ^                      ^                                                       |
 *     |                      +------- any turn: a node that missed the last one -----+
 *     |                               may have put more mail there
 *     +---- its turn
 *
 * The module reads only through the loader; the batch belongs to the engine.
 */
#ifndef CLUSTER_FRESH_MOVER_H
#define CLUSTER_FRESH_MOVER_H

#include <stdbool.h>
#include <stdint.h>

#include "desk.h"
#include "loader.h"

#define FRESH_MOVER_PASSING_US (15 * INT64_C(1000000))
#define FRESH_MOVER_MAX        256
/* Time between two searches of the desk, unless mail was loaded or moved. */
#define FRESH_MOVER_LOOK_US INT64_C(1000000)

/* Members are private to the module. */
struct fresh_mover {
    struct desk *desk;                  /* borrowed */
    struct loader *loader;              /* borrowed */
    int64_t passing_us;                 /* FRESH_MOVER_PASSING_US, or less in tests */
    unsigned in_use;                    /* fresh table in use, as far as this node knows */
    int64_t left_at[DESK_FRESH_TABLES]; /* microseconds of a clock that never goes back */
    bool is_done[DESK_FRESH_TABLES];
    int64_t look_at;  /* microseconds */
    bool is_bringing; /* whether a page was requested */
    bool is_wanted;   /* whether mail of `table` on the desk can be moved */
    unsigned table;
};

void fresh_mover_init(struct fresh_mover *m, struct desk *desk, struct loader *loader, int64_t now);

/* Does the work that is due; must be called in each turn. */
void fresh_mover_turn(struct fresh_mover *m, int64_t now);

/* Is there mail that a batch would move? */
bool fresh_mover_is_wanted(const struct fresh_mover *m);
/* Moves mail in the open batch. After its end (fresh_mover_ended) more mail is searched for. */
void fresh_mover_move(struct fresh_mover *m);
void fresh_mover_ended(struct fresh_mover *m);

#endif
