/*
 * Part of a spool: a message whose recipients lie in several partitions is stored in parts.
 *
 * For stores that several processes share, each of which works on some partitions: destinations lie
 * in partitions, and a partition's recipients are seen to by its owner alone. A message with
 * recipients in one partition is as in other engines. One with recipients in k > 1 has:
 *
 *     spool_submit --> M: the report part, which has the content and the id that the client is told
 *                      |     nothing is pending of it; it gathers what is to be reported
 *                      +-- k parts, each with an id of its own and the recipients of one partition:
 *                            a message in every respect, with the content of M
 *
 *     a part's recipient is to be reported --spool_give--> it leaves its part for the report part,
 *                                                          which is due soon: one report for all
 *     a part ends (spool_finish, ..)       --> one part less; with the last the report part is due
 *     the report part ends                 --> the message and its content are gone
 *
 * The report part never ends while there is a part, so content is removed once, by one owner. Its
 * content can be read as any, and as pending recipients it reads those of all parts (they may be
 * settled through their own parts alone). To remove the report part while there are parts forgets
 * what it has gathered; it goes with the last part.
 *
 * A recipient that is routed anew may have to go to another partition (spool_move). It waits there
 * as mail that has just arrived, and the message is the same one for all who know its id:
 *
 *     a message in one part --all go to one--> it lies there
 *                           --else--> it is in parts, as if it had been submitted so
 *     a part                --all go to one--> it lies there
 *                           --else--> those that go are new parts; its message has more of them
 *
 * Recipients keep their numbers in the message, whichever part they are in. An engine without the
 * part, or one that has no place to move mail to, answers that all lies where it should
 * (spool_lies_elsewhere) and that none has moved, without an error and without opening a batch.
 *
 * Destinations of one transport that share a limit lie in one partition, so that one process
 * applies it: who opens the spool says which these are (spool_options.ring_of).
 */
#ifndef SPOOL_SPOOL_PARTS_H
#define SPOOL_SPOOL_PARTS_H

#include "spool.h"

/* Give the recipients of the part that are to be reported to its report part, which is due at `due`
 * at the latest. A change, part of the batch. -ENOENT: there is no such part; -EINVAL: it is none.
 */
int spool_give(struct spool *sp, struct msg_id id, struct wall due);

/* Is a recipient with that route another partition's than this message, which is at hand? Where it
 * lies is for tables to say that are as new as its route (spool_routes.h), and of a fixed route for
 * those in force: else it stays. */
bool spool_lies_elsewhere(const struct spool *sp, struct msg_id id, const struct spool_rcpt *r);

/* Pending recipients of the message, which is in no pass, leave it for the partitions of their
 * routes, unless they lie there, or stay as above; one that is not routed stays. What goes is due
 * at `due` at the latest; a report part that is made of the message, at `report_due`. A change,
 * part of the batch. *ret_moved: recipients that have gone; 0 of a report part, and of a message on
 * hold or corrupt. -ENOENT: there is no such message. */
int spool_move(struct spool *sp, struct msg_id id, struct wall due, struct wall report_due,
               uint32_t *ret_moved);

/* Are the parts at hand that spool_parts_of tells? 0, or -EAGAIN: they are asked for. -ENOENT:
 * there is no such message. One without parts has them at hand. */
int spool_parts_want(struct spool *sp, struct msg_id whole);

/* The parts of a message but for its report part, one page in order of ids, behind `after`, as far
 * as they are at hand; some may be another node's (spool_is_own, spool_others.h). */
int spool_parts_of(struct spool *sp, struct msg_id whole, struct msg_id after, size_t max,
                   struct msg_id *ret_ids, size_t *ret_count);

#define SPOOL_PARTITIONS_MAX 256

/* Recipients of one partition. */
struct spool_share {
    struct msg_id id; /* of the part */
    unsigned partition;
    const uint32_t *rcpts; /* where they stand in spool_new.rcpts, rising; their numbers, to move */
    uint32_t count;
};

/* All pending recipients of a message, each where its route lies. The share that has the message's
 * id goes on under it; the others are parts. When none has it, the message is divided. */
struct spool_relocation {
    const struct spool_share *shares; /* in order of partitions */
    size_t count;
    struct wall due, report_due; /* as of spool_move */
};

struct spool_new;

/* The part, as spool_engine.h wants it. */
struct spool_parts_part {
    /* Where the recipient's destination lies (parts_ring): below SPOOL_PARTITIONS_MAX. */
    unsigned (*partition)(const struct spool *sp, const struct spool_rcpt *r);
    /* As the core's submit, of a message with at least two shares, in order of partitions, with ids
     * that rise. n->claim is not for parts. */
    int (*submit)(struct spool *sp, struct msg_id whole, const struct spool_new *n,
                  const struct spool_share *shares, size_t count);
    int (*give)(struct spool *sp, struct msg_id id, struct wall due);
    int (*lies_in)(const struct spool *sp, struct msg_id id); /* -1: it is not at hand */
    /* NULL, and lies_in: nothing ever moves. */
    int (*move)(struct spool *sp, struct msg_id id, const struct spool_relocation *m);
    int (*want)(struct spool *sp, struct msg_id whole); /* NULL: they always are */
    int (*parts_of)(struct spool *sp, struct msg_id whole, struct msg_id after, size_t max,
                    struct msg_id *ret_ids, size_t *ret_count);
};

/* What its destination shares a limit by; empty: nothing. */
struct slice parts_ring(const struct spool *sp, const struct spool_rcpt *r);
/* Where a pending recipient of a message in partition `here` belongs. */
unsigned parts_place(const struct spool *sp, const struct spool_rcpt *r, unsigned here);

/* Submit with an engine that has the part: as it is when one partition has all recipients. */
int parts_submit(struct spool *sp, struct msg_id id, const struct spool_new *n);
/* Move, likewise; inside a batch. */
int parts_move(struct spool *sp, struct msg_id id, struct wall due, struct wall report_due,
               uint32_t *ret_moved);

#endif
