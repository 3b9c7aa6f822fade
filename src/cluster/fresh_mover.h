/*
 * Moves mail that has been passing for long to the tables of mail that waits, so that the fresh
 * table in which its rows are can be emptied when its turn comes (housekeeper.h).
 *
 * A table that has not been in use for FRESH_MOVER_PASSING_US is looked through once: what is on
 * the desk is moved with the next batch, FRESH_MOVER_MAX messages at a time; the rest is brought to
 * the desk for that, page by page. Content goes from table to table, not through here. It is each
 * node's own clock and what it has heard of turns that count: no row has a time that would have to
 * be right. Mail in a table that stays in use, as there is little, is left alone.
 *
 *   in use --another is--> left --FRESH_MOVER_PASSING_US--> due <--> bringing, moving --> done
 *     ^                      ^                                                       |
 *     |                      +------ any turn: who has not heard of the last --------+
 *     |                              one may have put more there
 *     +---- its turn
 *
 * No I/O here but through the loader; the batch is the engine's.
 */
#ifndef CLUSTER_FRESH_MOVER_H
#define CLUSTER_FRESH_MOVER_H

#include <stdbool.h>
#include <stdint.h>

#include "desk.h"
#include "loader.h"

#define FRESH_MOVER_PASSING_US (15 * INT64_C(1000000))
#define FRESH_MOVER_MAX        256
/* From one look at what is on the desk to the next, unless something has come or was moved. */
#define FRESH_MOVER_LOOK_US INT64_C(1000000)

/* Fields are the module's own. */
struct fresh_mover {
    struct desk *desk;                  /* borrowed */
    struct loader *loader;              /* borrowed */
    int64_t passing_us;                 /* FRESH_MOVER_PASSING_US; tests have less */
    unsigned in_use;                    /* the fresh table, as was heard last */
    int64_t left_at[DESK_FRESH_TABLES]; /* us, by a clock that never goes back */
    bool is_done[DESK_FRESH_TABLES];
    int64_t look_at;  /* us */
    bool is_bringing; /* a page was asked for */
    bool is_wanted;   /* something of `table` is on the desk and can be moved */
    unsigned table;
};

void fresh_mover_init(struct fresh_mover *m, struct desk *desk, struct loader *loader, int64_t now);

/* In each turn. */
void fresh_mover_turn(struct fresh_mover *m, int64_t now);

/* Would a batch move something? */
bool fresh_mover_is_wanted(const struct fresh_mover *m);
/* Move it, in the batch that is open, and look for more when that has ended (fresh_mover_ended). */
void fresh_mover_move(struct fresh_mover *m);
void fresh_mover_ended(struct fresh_mover *m);

#endif
