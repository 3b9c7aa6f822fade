/*
 * Part of a spool: a message whose recipients lie in several partitions is stored in parts.
 *
 * For stores that several processes share. Destinations lie in partitions, and only the owner of a
 * partition delivers to its recipients. A message whose recipients lie in one partition is stored
 * as in other engines. A message with recipients in k > 1 partitions has:
 *
 *     spool_submit --> M: the report part; has the content, and the id that the client receives.
 *                      |     It has no pending recipients; it gathers recipients to report
 *                      +-- k parts, each with an id of its own and the recipients of one partition:
 *                            a message in every respect, with the content of M
 *
 *     a part's recipient needs a report --spool_give--> it moves from its part to the report part,
 *                                                       which is due soon: one report for all
 *     a part ends (spool_finish, ..) --> one part less; with the last the report part is due
 *     the report part ends           --> the message and its content are gone
 *
 * The report part never ends while there is a part, so content is removed once, by one owner. Its
 * content can be read like any other. A read of its pending recipients returns those of all parts
 * (which can be settled only through their own parts). Removing the report part while there are
 * parts forgets the recipients that it has gathered; it is deleted with the last part.
 *
 * A recipient that is routed again may move to another partition (spool_move). It waits there like
 * mail that has just arrived, and the message keeps its id:
 *
 *     a message in one part --all go to one--> it lies there
 *                           --else--> it is in parts, as if it had been submitted so
 *     a part                --all go to one--> it lies there
 *                           --else--> moved recipients form new parts of the same message
 *
 * Recipients keep their numbers in the message, whichever part they are in. In an engine that lacks
 * this part, or can't move mail, every recipient lies where it should (spool_lies_elsewhere is
 * false), and spool_move moves none, without an error and without opening a batch.
 *
 * Destinations of one transport that share a limit lie in one partition, so that one process
 * applies the limit: spool_options.ring_of groups them.
 */
#ifndef SPOOL_SPOOL_PARTS_H
#define SPOOL_SPOOL_PARTS_H

#include "spool.h"

/* Moves those recipients of the part that need a report to its report part, which is then due at
 * `due` at the latest. This is a change, so it is part of the batch. -ENOENT: there is no such
 * part; -EINVAL: the message is not a part. */
int spool_give(struct spool *sp, struct msg_id id, struct wall due);

/* Does the route of a recipient lie in another partition than this message, which must be loaded?
 * Only tables at least as new as the route (spool_routes.h) decide this, and for a fixed route the
 * tables in force; otherwise the recipient stays. */
bool spool_lies_elsewhere(const struct spool *sp, struct msg_id id, const struct spool_rcpt *r);

/* Moves pending recipients of the message to the partitions of their routes, except those that
 * already lie there, must stay (see spool_lies_elsewhere), or have no route. The message must be in
 * no pass. Moved recipients are due at `due` at the latest; if the message becomes a report part,
 * that is due at `report_due`. This is a change, so it is part of the batch. *ret_moved: number of
 * recipients moved; 0 for a report part, and for a message on hold or corrupt. -ENOENT: there is no
 * such message. */
int spool_move(struct spool *sp, struct msg_id id, struct wall due, struct wall report_due,
               uint32_t *ret_moved);

/* Checks that the parts that spool_parts_of returns are loaded. Returns 0; -EAGAIN if they were
 * requested; -ENOENT if there is no such message. The parts of a message without parts are always
 * loaded. */
int spool_parts_want(struct spool *sp, struct msg_id whole);

/* Lists the loaded parts of a message without its report part, one page in order of ids, after
 * `after`. Some may be another node's (spool_is_own, spool_others.h). */
int spool_parts_of(struct spool *sp, struct msg_id whole, struct msg_id after, size_t max,
                   struct msg_id *ret_ids, size_t *ret_count);

#define SPOOL_PARTITIONS_MAX 256

/* Recipients of one partition. */
struct spool_share {
    struct msg_id id; /* id of the part */
    unsigned partition;
    const uint32_t *rcpts; /* indexes into spool_new.rcpts, ascending; for a move, the recipients'
                            * numbers */
    uint32_t count;
};

/* All pending recipients of a message, each in the partition of its route. The share with the
 * message's id stays that message; the others are parts. If no share has that id, the message is
 * divided. */
struct spool_relocation {
    const struct spool_share *shares; /* in order of partitions */
    size_t count;
    struct wall due, report_due; /* as for spool_move */
};

struct spool_new;

/* Functions of an engine with this part. */
struct spool_parts_part {
    /* Returns the partition of the recipient's destination (parts_ring): below
     * SPOOL_PARTITIONS_MAX. */
    unsigned (*partition)(const struct spool *sp, const struct spool_rcpt *r);
    /* As the core's submit, for a message with at least two shares, in order of partitions, with
     * ascending ids. n->claim does not apply to parts. */
    int (*submit)(struct spool *sp, struct msg_id whole, const struct spool_new *n,
                  const struct spool_share *shares, size_t count);
    int (*give)(struct spool *sp, struct msg_id id, struct wall due);
    int (*lies_in)(const struct spool *sp, struct msg_id id); /* returns the partition of a message;
                                                               * -1 if it is not loaded */
    /* NULL, with lies_in: nothing ever moves. */
    int (*move)(struct spool *sp, struct msg_id id, const struct spool_relocation *m);
    int (*want)(struct spool *sp, struct msg_id whole); /* NULL = they are always loaded */
    int (*parts_of)(struct spool *sp, struct msg_id whole, struct msg_id after, size_t max,
                    struct msg_id *ret_ids, size_t *ret_count);
};

/* Returns the ring by which the recipient's destination shares a limit; empty if there is none. */
struct slice parts_ring(const struct spool *sp, const struct spool_rcpt *r);
/* Returns the partition in which a pending recipient of a message in partition `here` should
 * lie. */
unsigned parts_place(const struct spool *sp, const struct spool_rcpt *r, unsigned here);

/* Submits a message with an engine that has the part: as usual if all recipients lie in one
 * partition, else in parts. */
int parts_submit(struct spool *sp, struct msg_id id, const struct spool_new *n);
/* Does spool_move for an engine that has the part, inside a batch. */
int parts_move(struct spool *sp, struct msg_id id, struct wall due, struct wall report_due,
               uint32_t *ret_moved);

#endif
