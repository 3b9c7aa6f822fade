/*
 * The desk: what the engine `postgresql:` has of its mail in memory. No SQL and no I/O.
 *
 * On the desk is what is claimed, what a batch that has not ended has changed, what was read to be
 * claimed next (ready), and what was looked at a moment ago. All other mail waits in the
 * database, and the finder knows where; desk_find does not find it, and functions by id return
 * -EAGAIN for it, after they have put it on the list of what is missed: it is loaded then.
 *
 *   not there --desk_expect--> LOADING --desk_loaded--> there --its last reason ends--> not there
 *
 * Undo. What a batch changes is logged with its old value, whole: a message's own fields, or one
 * recipient. All texts of such a value are in one block, so the old value keeps its block until the
 * batch ends. There is a log for each commit that is under way, and for the open batch. What one of
 * them has changed can't be claimed before its end: nothing is tried before it is durable, and a
 * message that is made and ends in one batch would leave no row from which its report is told.
 *
 *     desk_begin --> open batch --desk_begin_commit--> under way (a FIFO) --> desk_keep_oldest
 *                        +--> desk_rollback                 +--> desk_undo_all
 *
 * Only what lies in partitions that are ours (finder.is_mine) is found, claimed, and changed. A
 * message for another's (is_foreign) is on the desk until its insertion has ended, and to be looked
 * at for a moment: its owner may change it at any time (-EROFS: another node has it). When a
 * partition is let go what is claimed or in a batch stays until that has ended, and is not counted
 * any more.
 *
 * A message that moves to another partition (spool_parts.h) is as new there when the batch is
 * durable, and leaves the desk; until then both partitions have something open.
 *
 * Counts of what is stored (totals) have what a batch changes from then on, and what others have
 * stored from when they have told it. For each batch stands what it adds to them, with what was
 * told in rows of arrival that it deletes: so it is known what they were as of any commit.
 *
 * Functions that spool_engine.h has, too, are as there: errors are its, their words go to `base`.
 */
#ifndef CLUSTER_DESK_H
#define CLUSTER_DESK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "hash.h"
#include "finder.h"
#include "heap.h"
#include "partition_set.h"
#include "spool_engine.h"
#include "text_pool.h"

#define DESK_UNDER_WAY_MAX 2
/* Content up to this is in the row; larger content in chunks. */
#define DESK_CONTENT_MAX 32768
#define DESK_CHUNK       262144

/* A recipient; `gone` when done with. */
struct desk_rcpt {
    struct spool_rcpt r;
    char *block; /* owned: the bytes of its slices */
    bool gone;   /* also: it has moved to another part */
    bool given;  /* gone to the report part of its message */
};

/* What can change of a message, but for its recipients. */
struct desk_fields {
    struct spool_message m;
    char *block;         /* owned: the bytes of its slices */
    uint16_t p;          /* its partition */
    uint32_t parts_left; /* of a report part */
    uint32_t parts_made; /* of a part: so many have left it */
    bool claimed;
    bool gone;
    bool waits; /* its rows are to be where those of waiting mail are */
};

/* Where its rows are: in one of the fresh tables, or in those of mail that waits. */
#define DESK_FRESH_TABLES 3
enum desk_row { ROW_NONE, ROW_WAITING, ROW_FRESH /* + number of the table */ };

/* Messages of a partition with a key. */
struct desk_key_count {
    uint16_t p;
    uint64_t count;
};

/* Messages with a key, on the desk and in the database. */
struct desk_key {
    char *key;                   /* owned */
    uint64_t count;              /* the sum of: */
    struct desk_key_count *by_p; /* owned */
    size_t by_p_count;
    TAILQ_HEAD(, desk_message) here; /* on the desk */
    uint64_t here_count;
    UT_hash_handle hh;
};

/* A message of which parts are on the desk. */
struct desk_whole {
    uint64_t id;
    TAILQ_HEAD(, desk_message) parts;
    UT_hash_handle hh;
};

struct desk_message {
    uint64_t id;
    struct desk_fields f;
    struct desk_rcpt *rcpts; /* owned; in order of n */
    uint32_t rcpt_count;
    char *content;        /* owned; NULL: not at hand, or in: */
    int content_fd;       /* owned: sealed memory, or -1 */
    struct heap_node due; /* in desk.due[] when it can be claimed */
    struct desk_key *key; /* of its being parked, or NULL */
    TAILQ_ENTRY(desk_message) by_key;
    struct desk_whole *whole; /* of a part that is there */
    TAILQ_ENTRY(desk_message) by_whole;
    TAILQ_ENTRY(desk_message) by_look;
    /* Of messages in parts. */
    int64_t give_due;         /* of a part: when what it gives is to be told */
    int64_t told_due;         /* of a report part: others have given to it since it was read, it is
                                 due then; INT64_MAX: they have not */
    int32_t gen;              /* of a report part, as the next: as it was read */
    struct desk_rcpt *others; /* owned: pending ones of its parts, as far as they were read */
    uint32_t other_count;
    unsigned row;       /* enum desk_row, with the commits under way */
    char *wrong;        /* owned: its rows make no sense, and why; or NULL */
    unsigned undos;     /* in all logs */
    bool is_foreign;    /* another's, but for its insertion */
    bool is_old;        /* .. and was looked at before */
    bool is_loading;    /* nothing else of it holds */
    bool is_missed;     /* in desk.missed */
    bool wants_content; /* it was asked for */
    bool wants_parts;   /* of a report part: its parts were */
    bool parts_are_here;
    uint64_t look;        /* number of the latest look when it was asked for last */
    uint64_t parts_look;  /* .. when its parts were */
    uint64_t parts_asked; /* number of the list that is asked for; 0: none, or one of its parts has
                              left the desk since, or moved */
    bool is_ready;        /* read to be claimed */
    bool is_looked;       /* in desk.looked */
    bool stays;           /* a row is in the way of its own: it is not moved */
    UT_hash_handle hh;
};

/* The value before a change; n = 0 is the message itself. */
struct desk_undo {
    struct desk_message *message;
    uint32_t n;
    union {
        struct desk_fields fields;
        struct desk_rcpt rcpt;
    } before;
};

/* Where a message was before a commit. */
struct desk_move {
    struct desk_message *message;
    unsigned before;
    bool tells; /* a part: its report part has something from it */
    bool moves; /* it, or some of it, to another partition */
};

/* A report part that others, or parts of ours, have given to: it may be due. */
struct desk_told {
    uint16_t p;
    uint64_t id;
};

/* What the open batch has changed, or one that is under way. */
struct desk_batch {
    struct desk_undo *log; /* owned */
    size_t count, size;
    struct desk_move *moves; /* owned: of a commit under way */
    size_t move_count;
    struct spool_totals *adds;    /* owned; by partition, below 0 as 2^64 less; NULL: nothing */
    struct spool_totals *arrived; /* .. of what others have told, likewise */
    int64_t number;               /* of the commit, when it is under way */
    struct partition_set told;    /* of others: something arrives there with it */
};

enum { DUE_INCOMING, DUE_DEFERRED, DUE_ORDERS };

#define DESK_LOOKED_MAX 2048
/* Content on the desk, in all; what is claimed beyond it is read again when it is asked for. */
#define DESK_CONTENTS_MAX ((size_t)64 << 20)

/* Fields are the module's own; others read them. */
struct desk {
    struct spool *base;       /* borrowed: keeps the words of errors */
    struct finder *finder;    /* borrowed: is told of what leaves */
    struct desk_message *all; /* by id */
    struct heap due[DUE_ORDERS];
    TAILQ_HEAD(desk_list, desk_message) looked; /* the latest last */
    size_t looked_count, ready_count, content_bytes;
    struct desk_whole *wholes; /* by id */
    struct desk_key *keys;
    struct desk_key **keys_in_order; /* owned; NULL: to be made */
    struct desk_batch open;
    bool is_open;
    struct desk_batch under_way[DESK_UNDER_WAY_MAX]; /* the oldest first */
    unsigned under_way_count;
    bool passed_over;           /* something waits for a batch to end (desk_await_batch) */
    bool is_there_now;          /* such a batch has ended since (desk_is_there_now) */
    struct spool_totals totals; /* of partitions that are ours: the sum of: */
    struct spool_totals by_p[PARTITIONS];
    struct spool_totals *arrived; /* owned; as in a batch: what is to join the next; or NULL */
    uint32_t breaks;              /* how often totals were changed otherwise than by a batch */
    uint64_t lists;               /* how many lists of parts were asked for */
    uint64_t looks;               /* how many looks have begun (spool_others.h) */
    uint64_t look;                /* the number of the one under way; 0: none is */
    unsigned fresh_now;           /* the fresh table that new mail goes to */
    struct desk_told *told;       /* owned: the loader asks when these are due */
    size_t told_count, told_size;
    struct desk_message **missed; /* owned: the loader reads these, their content, or parts */
    size_t missed_count, missed_size;
    struct text_pool pool; /* of keys that were handed out */
};

void desk_init(struct desk *d, struct spool *base, struct finder *finder);
void desk_fini(struct desk *d);

/* Messages and recipients are the desk's, and last until the next call that changes it.
 *
 * A message that is loaded and not gone; NULL: there is none. */
struct desk_message *desk_find(const struct desk *d, struct msg_id id);
/* The same, also while it is being loaded and when it is gone. */
struct desk_message *desk_any(const struct desk *d, uint64_t id);
/* Recipient n, unless it is gone; NULL: there is none. */
struct desk_rcpt *desk_rcpt(const struct desk_message *msg, uint32_t n);
/* The same, also when it is gone. */
struct desk_rcpt *desk_any_rcpt(const struct desk_message *msg, uint32_t n);

/* ---- batches --------------------------------------------------------------------------------- */

/* Open a batch: what is changed from now on is logged. None is open. */
void desk_begin(struct desk *d);
/* Undo what the open batch has changed, and close it. Those under way stay. */
void desk_rollback(struct desk *d);
/* The open batch goes under way: fewer than DESK_UNDER_WAY_MAX are. Its statements are made of what
 * is returned (rows_write), which the desk owns, and which is valid until the batch has ended. */
struct desk_batch *desk_begin_commit(struct desk *d);
/* The oldest of those under way is durable. *ret_told: partitions of others in which something has
 * arrived with it, so that their owners are to be woken. */
void desk_keep_oldest(struct desk *d, struct partition_set *ret_told);
/* The oldest has failed: undo all that are under way, the youngest first. None is open. */
void desk_undo_all(struct desk *d);

/* ---- changes, claims, reading: as spool_engine.h --------------------------------------------- */

int desk_submit(struct desk *d, struct msg_id id, const struct spool_new *n);
int desk_settle(struct desk *d, struct msg_id id, uint32_t n, const struct spool_verdict *v);
int desk_set_route(struct desk *d, struct msg_id id, uint32_t n, struct slice transport,
                   struct slice nexthop, uint64_t route_generation);
int desk_reported(struct desk *d, struct msg_id id);
int desk_finish(struct desk *d, struct msg_id id, struct wall due, bool *ret_gone);
int desk_finish_all_done(struct desk *d, struct msg_id id);
int desk_change(struct desk *d, const struct spool_change *c);
int desk_remove(struct desk *d, struct msg_id id);
int desk_quarantine(struct desk *d, struct msg_id id, struct slice reason);
void desk_unclaim(struct desk *d, struct msg_id id);
int desk_claim(struct desk *d, enum spool_state from, struct wall now, size_t max,
               struct msg_id *ret_ids, size_t *ret_count);
int desk_claim_parked(struct desk *d, struct slice key, struct wall now, size_t max,
                      struct msg_id *ret_ids, size_t *ret_count, bool *ret_more);
/* Something can't be done before the batches that have changed it have ended. A claim by key that
 * leaves such mail out says so, too. */
void desk_await_batch(struct desk *d);
/* Has a batch ended, since this was asked last, for which something waited? */
bool desk_is_there_now(struct desk *d);
struct desk_key *desk_key(const struct desk *d, struct slice name); /* NULL: nothing has it */
/* Does mail with that key wait in the database that is not on the desk? */
bool desk_key_waits_elsewhere(const struct desk_key *key);
int desk_parked_keys(struct desk *d, struct slice after, size_t max, struct slice *ret_keys,
                     size_t *ret_count);
int desk_next_due(struct desk *d, struct wall *ret_due);
bool desk_is_claimed(const struct desk *d, struct msg_id id);
size_t desk_claimed(const struct desk *d, uint64_t *cursor, size_t max, struct msg_id *ret_ids);
int desk_read(struct desk *d, struct msg_id id, struct spool_message *ret_message);
int desk_read_rcpts(struct desk *d, struct msg_id id, uint32_t after, bool only_pending, size_t max,
                    struct spool_rcpt *ret_rcpts, size_t *ret_count);
int desk_read_content(struct desk *d, struct msg_id id, struct buf *ret_bytes, int *ret_fd,
                      uint64_t *ret_size);

/* Is something of ours here of which the row is in fresh table `table`, and that can be moved?
 * *ret_is_busy: there is something that can't be, as a batch has to do with it. */
bool desk_is_passing(const struct desk *d, unsigned table, bool *ret_is_busy);
/* Move at most `max` of these, in the open batch, to where mail waits; how many. For all else they
 * are what they were. */
size_t desk_move_passing(struct desk *d, unsigned table, size_t max);
/* A row is in the way of that of a message: its row is where it is for as long as it passes. */
void desk_stay(struct desk *d, struct msg_id id);

/* Is the message, with its content if that is wanted, at hand? As spool_want. */
int desk_want(struct desk *d, struct msg_id id, bool content);

/* As spool_parts.h. What parts do to a report part is not done on the desk, though it may be there:
 * it is told, and read again. */
int desk_submit_parts(struct desk *d, struct msg_id whole, const struct spool_new *n,
                      const struct spool_share *shares, size_t count);
int desk_give(struct desk *d, struct msg_id id, struct wall due);
int desk_move(struct desk *d, struct msg_id id, const struct spool_relocation *m);
/* Where it lies; -1: it is not here. */
int desk_partition(const struct desk *d, struct msg_id id);
int desk_parts_want(struct desk *d, struct msg_id whole);
/* A list of its parts is asked for: its number. */
uint64_t desk_parts_list(struct desk *d, uint64_t whole);
/* What it is worth when it has come: it may be of before one of them left the desk, or moved; and
 * it is not waited for when a later one is asked for, or the message itself is read again. */
enum desk_listed { LIST_HOLDS, LIST_OLD, LIST_UNWANTED };
enum desk_listed desk_parts_listed(const struct desk *d, uint64_t whole, uint64_t list);
/* What is listed is on the desk; it was asked for in the look of this number. */
void desk_parts_are_here(struct desk *d, uint64_t whole, uint64_t look);
/* Only those on the desk: after desk_parts_want, all. */
int desk_parts_of(struct desk *d, struct msg_id whole, struct msg_id after, size_t max,
                  struct msg_id *ret_ids, size_t *ret_count);

/* As spool_others.h. */
int desk_places_of(struct desk *d, struct msg_id id, struct spool_places *ret);

/* ---- what comes from the database ------------------------------------------------------------ */

enum desk_reason { DESK_READY, DESK_LOOKED };

/* Is it there and ours, loading, or changed by a batch? What was noted as gone may be in the
 * database again, or still: a partition that was lost may have come back. What was looked at of
 * another node's may have moved to us since. */
bool desk_has(const struct desk *d, uint64_t id);
/* Was it another's, or gone, when it was read, and that before this look had begun? */
bool desk_is_outdated(const struct desk_message *msg, uint64_t look);
/* A message is going to be loaded, unless the desk has it (NULL then). */
struct desk_message *desk_expect(struct desk *d, uint64_t id, enum desk_reason why);
/* Fill in one that is being loaded: fields, then its recipients in any order. Slices are copied. */
void desk_fill(struct desk *d, struct desk_message *msg, uint16_t p, unsigned row,
               const struct spool_message *m);
void desk_fill_rcpt(struct desk_message *msg, const struct spool_rcpt *r);
/* Its content, which is taken: `bytes` (from mem_new, as many as its size), or a sealed memory file
 * `fd`; the other is NULL, or -1. */
void desk_fill_content(struct desk *d, struct desk_message *msg, char *bytes, int fd);
/* It is a report part; and a pending recipient of one of its parts. */
void desk_fill_report(struct desk_message *msg, uint32_t parts_left, int32_t gen);
void desk_fill_other(struct desk_message *msg, const struct spool_rcpt *r);
/* Are its parts' pending recipients to be read, too? Only who was not told of a delay may be. */
bool desk_needs_others(const struct desk_message *msg);
/* A report part was given to, or a part of it has ended: it goes on the list of the told; and when
 * it is due as the database has it. */
void desk_tell(struct desk *d, uint16_t p, uint64_t id);
void desk_told(struct desk *d, uint16_t p, uint64_t id, int64_t due);
/* Another node's message does not fit together: its owner may have changed it between the
 * statements that read it. Then what was read is dropped; true. */
bool desk_drop_torn(struct desk *d, struct desk_message *msg);
/* Its rows make no sense; the first reason counts. What reads or delivers it gets -EBADMSG. */
void desk_fill_wrong(struct desk_message *msg, const char *why);
/* Loading ends: all of it was filled in, or it was not found (no desk_fill), and is gone. */
void desk_loaded(struct desk *d, struct desk_message *msg);

/* A message that was read to be claimed and is due later than `now` (us, wall clock) leaves the
 * desk: the finder has its time. */
void desk_leave_until(struct desk *d, uint64_t id, int64_t now);

/* Messages that are there in the database, in a partition of ours, by state, with their bytes;
 * parked under a key. */
void desk_count_stored(struct desk *d, uint16_t p, enum spool_state state, uint64_t messages,
                       uint64_t bytes);
/* Another has stored a message there, and told it in a row that the next batch deletes. */
void desk_count_arrived(struct desk *d, uint16_t p, enum spool_state state, uint64_t bytes);
/* These rows are deleted without a batch. */
void desk_arrivals_deleted(struct desk *d);
void desk_count_parked(struct desk *d, uint16_t p, struct slice key, uint64_t messages);
/* Is nothing of this partition in a batch that is open or under way? */
bool desk_is_quiet(const struct desk *d, unsigned p);
/* `to` += `by`. */
void desk_add_totals(struct spool_totals *to, const struct spool_totals *by);
/* What the batch adds to a partition, with what has arrived there. */
struct spool_totals desk_batch_adds(const struct desk_batch *b, unsigned p);
/* What is stored in a partition by those batches that have ended: its totals without the others,
 * and without what has arrived and is in none of them. */
struct spool_totals desk_stored(const struct desk *d, unsigned p);
/* Its totals are wrong by so much: `to` is to be in the place of `from`. By how many messages? */
uint64_t desk_correct_totals(struct desk *d, unsigned p, const struct spool_totals *from,
                             const struct spool_totals *to);

/* Partitions are not ours any more (finder_own was told): their mail leaves the desk, but for what
 * is claimed or in a batch, and is not counted any more. */
void desk_let_go(struct desk *d, const struct partition_set *partitions);
/* Mail of other nodes that was only looked at leaves, as its owner may change it; with `only_old`,
 * only what was there at the last call already. */
void desk_forget_foreign(struct desk *d, bool only_old);
/* *ret_ids: messages that are claimed there, to be freed by the caller. Returns how many. */
size_t desk_claimed_in(const struct desk *d, const struct partition_set *partitions,
                       struct msg_id **ret_ids);
/* Partitions with something that is claimed, or changed in a batch that has not ended. */
void desk_open_in(const struct desk *d, struct partition_set *ret_partitions);

/* Drop all messages, keys and totals: nothing of them is ours any more. No batch is open or under
 * way. *ret_ids: those that were claimed, to be freed by the caller. Returns how many. */
size_t desk_clear(struct desk *d, struct msg_id **ret_ids);
/* Remember that these are gone (the latest DESK_LOOKED_MAX of them): calls by their ids answer
 * -ENOENT, and not -EAGAIN, while callers still act on them. */
void desk_note_gone(struct desk *d, const struct msg_id *ids, size_t count);

#endif
