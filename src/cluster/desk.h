/*
 * The desk: mail of the engine `postgresql:` in memory. No SQL and no I/O.
 *
 * The desk has messages that are claimed, that a batch in flight has changed, that were loaded to
 * be claimed next (ready), and that were read a moment ago (looked). All other mail waits in the
 * database, and the finder has its places. desk_find does not find such mail. Functions by id
 * return -EAGAIN for it and put it on the list of missed mail, which the loader reads.
 *
 *    not there --desk_expect--> LOADING --desk_loaded--> there --its last reason ends--> not there
 *
 * Undo: each change of a batch is logged with the complete previous value, either the fields of a
 * message or one recipient. All texts of a value are in one block, which the log keeps until the
 * batch ends. The open batch has a log, and so has each commit in flight. A message that one of
 * them has changed cannot be claimed before that commit ends, for two reasons. No delivery may
 * begin before its message is durable. A message that is created and ended in one batch would leave
 * no row for its report.
 *
 * desk_begin --> open batch --desk_begin_commit--> in flight (a FIFO) --> desk_keep_oldest
 *                   |                                   |
 *                   +--> desk_rollback                  +--> desk_undo_all
 *
 * Only mail in own partitions (finder.is_mine) is found, claimed and changed. A foreign message
 * (is_foreign), one in a partition of another node, is on the desk until its insertion has ended,
 * and for a moment after it was read. Its owner may change it at any time; changes to it fail with
 * -EROFS. When a partition is let go, its messages that are claimed or in a batch stay until they
 * are neither. They are not counted.
 *
 * A message that moves to another partition (spool_parts.h) is like a new one there, and leaves the
 * desk when the batch is durable. Until then it counts as open work of both partitions.
 *
 * Totals of stored mail contain a batch's changes at once, and mail of other nodes from the moment
 * when its arrival was read. Each batch stores what it adds to the totals, and the sum of the
 * arrivals that it deletes. So the totals as of any commit can be calculated.
 *
 * Functions that spool_engine.h has, too, are described there. They return its errors, and set the
 * error text in `base`.
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
/* Largest content that is stored in the row, in bytes; larger content is in chunks. */
#define DESK_CONTENT_MAX 32768
#define DESK_CHUNK       262144

/* Recipient; `gone` if it is done. */
struct desk_rcpt {
    struct spool_rcpt r;
    char *block; /* owned; bytes of the slices in `r` */
    bool gone;   /* whether it is done, or has moved to another part */
    bool given;  /* whether it was handed to the report part of its message */
};

/* All that can change in a message, except its recipients. */
struct desk_fields {
    struct spool_message m;
    char *block;         /* owned; bytes of the slices in `m` */
    uint16_t p;          /* partition */
    uint32_t parts_left; /* of a report part: number of parts that have not ended */
    uint32_t parts_made; /* of a part: number of parts that were split off it */
    bool claimed;
    bool gone;
    bool waits; /* whether its rows belong in the tables of waiting mail */
};

/* Tables that have the rows of a message: one of the fresh tables, or those of waiting mail. */
#define DESK_FRESH_TABLES 3
enum desk_row { ROW_NONE, ROW_WAITING, ROW_FRESH /* + number of the fresh table */ };

/* Number of messages in a partition that are parked under a key. */
struct desk_key_count {
    uint16_t p;
    uint64_t count;
};

/* Parked messages of one key, on the desk and in the database. */
struct desk_key {
    char *key;                   /* owned */
    uint64_t count;              /* sum of `by_p` */
    struct desk_key_count *by_p; /* owned */
    size_t by_p_count;
    TAILQ_HEAD(, desk_message) here; /* messages on the desk */
    uint64_t here_count;
    UT_hash_handle hh;
};

/* Message with parts on the desk. */
struct desk_whole {
    uint64_t id;
    TAILQ_HEAD(, desk_message) parts;
    UT_hash_handle hh;
};

struct desk_message {
    uint64_t id;
    struct desk_fields f;
    struct desk_rcpt *rcpts; /* owned; sorted by n */
    uint32_t rcpt_count;
    char *content;        /* owned; NULL if not loaded, or if it is in `content_fd` */
    int content_fd;       /* owned; sealed memory file, or -1 */
    struct heap_node due; /* node in desk.due[] while the message can be claimed */
    struct desk_key *key; /* key under which it is parked, or NULL */
    TAILQ_ENTRY(desk_message) by_key;
    struct desk_whole *whole; /* for a part that is loaded */
    TAILQ_ENTRY(desk_message) by_whole;
    TAILQ_ENTRY(desk_message) by_look;
    /* Members for messages in parts. */
    int64_t give_due;         /* part: due time of the report part after this part's results */
    int64_t told_due;         /* report part: due time that others have set since it was read;
                               * INT64_MAX if none */
    int32_t gen;              /* report part: gen of its row as it was read */
    struct desk_rcpt *others; /* owned; pending recipients of its parts that were loaded */
    uint32_t other_count;
    unsigned row;       /* enum desk_row; as it will be after all commits in flight */
    char *wrong;        /* owned; reason why its rows are invalid, or NULL */
    unsigned undos;     /* number of entries in all logs */
    bool is_foreign;    /* whether another node owns its partition */
    bool is_old;        /* whether it was foreign at the previous desk_forget_foreign, too */
    bool is_loading;    /* whether it is being loaded, and most members are not valid yet */
    bool is_missed;     /* whether it is in desk.missed */
    bool wants_content; /* whether its content was requested */
    bool wants_parts;   /* report part: whether a list of its parts was requested */
    bool parts_are_here;
    uint64_t look;        /* value of desk.looks at its last request */
    uint64_t parts_look;  /* value of desk.looks at the last request for its parts */
    uint64_t parts_asked; /* number of the requested list of parts; 0 if none is requested, or if a
                           * part has left the desk or moved since */
    bool is_ready;        /* whether it was loaded to be claimed */
    bool is_looked;       /* whether it is in desk.looked */
    bool stays;           /* whether its row must stay where it is, as another row has its key */
    UT_hash_handle hh;
};

/* Previous value of a change; n = 0 is the message itself. */
struct desk_undo {
    struct desk_message *message;
    uint32_t n;
    union {
        struct desk_fields fields;
        struct desk_rcpt rcpt;
    } before;
};

/* Place of a message's rows before a commit. */
struct desk_move {
    struct desk_message *message;
    unsigned before;
    bool tells; /* part that sends results to its report part */
    bool moves; /* whether it, or a part of it, moves to another partition */
};

/* Report part that got results from a part; it may be due now. */
struct desk_told {
    uint16_t p;
    uint64_t id;
};

/* Changes of the open batch, or of a commit in flight. */
struct desk_batch {
    struct desk_undo *log; /* owned */
    size_t count, size;
    struct desk_move *moves; /* owned; set when the commit begins */
    size_t move_count;
    struct spool_totals *adds;    /* owned; added messages by partition, may be negative; or NULL */
    struct spool_totals *arrived; /* owned; arrivals that it deletes, by partition; or NULL */
    int64_t number;               /* number of the commit, once it is in flight */
    struct partition_set told;    /* partitions of other nodes that get mail with this batch */
};

enum { DUE_INCOMING, DUE_DEFERRED, DUE_ORDERS };

#define DESK_LOOKED_MAX 2048
/* Limit of the content on the desk, in bytes. Content of claimed messages beyond it is dropped and
 * read again when it is needed. */
#define DESK_CONTENTS_MAX ((size_t)64 << 20)

/* Only this module changes the members; other files may read them. */
struct desk {
    struct spool *base;       /* borrowed; stores error texts */
    struct finder *finder;    /* borrowed; gets the places of messages that leave the desk */
    struct desk_message *all; /* by id */
    struct heap due[DUE_ORDERS];
    TAILQ_HEAD(desk_list, desk_message) looked; /* messages read a moment ago, the latest last */
    size_t looked_count, ready_count, content_bytes;
    struct desk_whole *wholes; /* by id */
    struct desk_key *keys;
    struct desk_key **keys_in_order; /* owned; NULL after a change of the keys */
    struct desk_batch open;
    bool is_open;
    struct desk_batch under_way[DESK_UNDER_WAY_MAX]; /* commits in flight, the oldest first */
    unsigned under_way_count;
    bool passed_over;           /* whether some call waits for a batch to end (desk_await_batch) */
    bool is_there_now;          /* whether such a batch has ended (desk_is_there_now) */
    struct spool_totals totals; /* sum of `by_p` over own partitions */
    struct spool_totals by_p[PARTITIONS];
    struct spool_totals
        *arrived;           /* owned; arrivals that the next batch deletes, by partition; or NULL */
    uint32_t breaks;        /* number of changes to totals that were made by no batch */
    uint64_t lists;         /* number of lists of parts that were requested */
    uint64_t looks;         /* number of looks that have begun (spool_others.h) */
    uint64_t look;          /* number of the current look, or 0 */
    unsigned fresh_now;     /* number of the fresh table for new mail */
    struct desk_told *told; /* owned; report parts whose due times the loader reads */
    size_t told_count, told_size;
    struct desk_message **missed; /* owned; the loader reads these, their content or their parts */
    size_t missed_count, missed_size;
    struct text_pool pool; /* keys that were returned */
};

void desk_init(struct desk *d, struct spool *base, struct finder *finder);
void desk_fini(struct desk *d);

/* Returns the message if it is loaded and not gone, else NULL. Messages and recipients belong to
 * the desk, and are valid until the next call that changes the desk. */
struct desk_message *desk_find(const struct desk *d, struct msg_id id);
/* Returns the message, also if it is being loaded or gone; NULL if the desk does not have it. */
struct desk_message *desk_any(const struct desk *d, uint64_t id);
/* Returns recipient n, or NULL if it does not exist or is gone. */
struct desk_rcpt *desk_rcpt(const struct desk_message *msg, uint32_t n);
/* Returns recipient n, also if it is gone; NULL if it does not exist. */
struct desk_rcpt *desk_any_rcpt(const struct desk_message *msg, uint32_t n);

/* ---- batches --------------------------------------------------------------------------------- */

/* Opens a batch, which logs all changes. No batch may be open. */
void desk_begin(struct desk *d);
/* Undoes the changes of the open batch and closes it. Commits in flight stay. */
void desk_rollback(struct desk *d);
/* Closes the open batch and puts it in flight; fewer than DESK_UNDER_WAY_MAX may be in flight.
 * Returns the batch, from which rows_write makes statements. The batch belongs to the desk and is
 * valid until it ends. */
struct desk_batch *desk_begin_commit(struct desk *d);
/* Ends the oldest commit in flight, which is durable. *ret_told: partitions of other nodes in which
 * mail has arrived with the commit, so that their owners must be woken. */
void desk_keep_oldest(struct desk *d, struct partition_set *ret_told);
/* Undoes all commits in flight, the youngest first, after the oldest has failed. No batch may be
 * open. */
void desk_undo_all(struct desk *d);

/* ---- changes, claims, reading: described in spool_engine.h ----------------------------------- */

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
/* Notes that something waits for batches in flight to end. A claim by key that skips a message in
 * such a batch does this, too. */
void desk_await_batch(struct desk *d);
/* Has a batch ended since the last call, for which something waited? */
bool desk_is_there_now(struct desk *d);
struct desk_key *desk_key(const struct desk *d, struct slice name); /* NULL if no mail has it */
/* Is mail parked under that key in the database that is not on the desk? */
bool desk_key_waits_elsewhere(const struct desk_key *key);
int desk_parked_keys(struct desk *d, struct slice after, size_t max, struct slice *ret_keys,
                     size_t *ret_count);
/* Finds the earliest due time. Mail that was never tried counts as due `now` at the latest. */
int desk_next_due(struct desk *d, struct wall now, struct wall *ret_due);
bool desk_is_claimed(const struct desk *d, struct msg_id id);
size_t desk_claimed(const struct desk *d, uint64_t *cursor, size_t max, struct msg_id *ret_ids);
int desk_read(struct desk *d, struct msg_id id, struct spool_message *ret_message);
int desk_read_rcpts(struct desk *d, struct msg_id id, uint32_t after, bool only_pending, size_t max,
                    struct spool_rcpt *ret_rcpts, size_t *ret_count);
int desk_read_content(struct desk *d, struct msg_id id, struct buf *ret_bytes, int *ret_fd,
                      uint64_t *ret_size);

/* Does the desk have own mail in fresh table `table` that can be moved? *ret_is_busy is set if it
 * has such mail that cannot be moved, as a batch has changed it. */
bool desk_is_passing(const struct desk *d, unsigned table, bool *ret_is_busy);
/* Moves at most `max` of these messages to the tables of waiting mail, in the open batch. Returns
 * their number. Nothing else of them changes. */
size_t desk_move_passing(struct desk *d, unsigned table, size_t max);
/* Keeps the row of a message in its fresh table, as another row has its key in the tables of
 * waiting mail. */
void desk_stay(struct desk *d, struct msg_id id);

/* Returns 0 if the message is loaded, with its content if `content` is set, or an error: -EAGAIN if
 * it must be loaded first (spool_want). */
int desk_want(struct desk *d, struct msg_id id, bool content);

/* Implements spool_parts.h. Results of parts do not change a report part on the desk, even if it is
 * there: it is marked with desk_tell and read again. */
int desk_submit_parts(struct desk *d, struct msg_id whole, const struct spool_new *n,
                      const struct spool_share *shares, size_t count);
int desk_give(struct desk *d, struct msg_id id, struct wall due);
int desk_move(struct desk *d, struct msg_id id, const struct spool_relocation *m);
/* Returns the partition of a message, or -1 if the desk does not have it. */
int desk_partition(const struct desk *d, struct msg_id id);
int desk_parts_want(struct desk *d, struct msg_id whole);
/* Requests a list of the message's parts. Returns the number of the list. */
uint64_t desk_parts_list(struct desk *d, uint64_t whole);
/* Returns whether a list that was read is valid. LIST_OLD: a part has moved or left the desk since
 * the request. LIST_UNWANTED: a later list was requested, or the message is being read again. */
enum desk_listed { LIST_HOLDS, LIST_OLD, LIST_UNWANTED };
enum desk_listed desk_parts_listed(const struct desk *d, uint64_t whole, uint64_t list);
/* Notes that all parts of a list are on the desk; `look` is the value of `looks` when the list was
 * requested. */
void desk_parts_are_here(struct desk *d, uint64_t whole, uint64_t look);
/* Lists the parts on the desk; these are all parts after desk_parts_want has returned 0. */
int desk_parts_of(struct desk *d, struct msg_id whole, struct msg_id after, size_t max,
                  struct msg_id *ret_ids, size_t *ret_count);

/* Implements spool_others.h. */
int desk_places_of(struct desk *d, struct msg_id id, struct spool_places *ret);

/* ---- mail from the database ------------------------------------------------------------------ */

enum desk_reason { DESK_READY, DESK_LOOKED };

/* Is the message loaded and own, being loaded, or changed by a batch? A message that is noted as
 * gone does not count: it may be in the database again if its partition was lost and regained. A
 * foreign message does not count either, as it may have moved to this node. */
bool desk_has(const struct desk *d, uint64_t id);
/* Was the message foreign or gone when it was read, and was it read before this look began? */
bool desk_is_outdated(const struct desk_message *msg, uint64_t look);
/* Adds a message that will be loaded. Returns NULL if the desk has the message already
 * (desk_has). */
struct desk_message *desk_expect(struct desk *d, uint64_t id, enum desk_reason why);
/* Fills in a message that is being loaded: first its fields, then its recipients in any order.
 * Copies the slices. */
void desk_fill(struct desk *d, struct desk_message *msg, uint16_t p, unsigned row,
               const struct spool_message *m);
void desk_fill_rcpt(struct desk_message *msg, const struct spool_rcpt *r);
/* Adds the content, and takes it: either `bytes` (from mem_new, of the message's size) or a sealed
 * memory file `fd`. The other argument is NULL or -1. */
void desk_fill_content(struct desk *d, struct desk_message *msg, char *bytes, int fd);
/* Makes the message a report part. desk_fill_other adds a pending recipient of one of its parts. */
void desk_fill_report(struct desk_message *msg, uint32_t parts_left, int32_t gen);
void desk_fill_other(struct desk_message *msg, const struct spool_rcpt *r);
/* Must the pending recipients of the message's parts be read, too? They are needed only for delay
 * notices. */
bool desk_needs_others(const struct desk_message *msg);
/* Puts a report part that got results, or a part of which has ended, on the list `told`. desk_told
 * stores the due time that the database has for such a report part. */
void desk_tell(struct desk *d, uint16_t p, uint64_t id);
void desk_told(struct desk *d, uint16_t p, uint64_t id, int64_t due);
/* Drops a foreign message whose rows contradict each other, as its owner may have changed it
 * between the statements that read it. Returns whether it was dropped. */
bool desk_drop_torn(struct desk *d, struct desk_message *msg);
/* Marks a message whose rows are invalid; the first reason is kept. Reading or delivering it fails
 * with -EBADMSG. */
void desk_fill_wrong(struct desk_message *msg, const char *why);
/* Ends the loading of a message. A message that desk_fill was not called for does not exist, and is
 * gone. */
void desk_loaded(struct desk *d, struct desk_message *msg);

/* Removes a message from the desk that was read to be claimed and is due later than `now`
 * (microseconds, wall clock). The finder gets its due time. */
void desk_leave_until(struct desk *d, uint64_t id, int64_t now);

/* Adds stored messages of an own partition to the totals: by state, with their bytes. */
void desk_count_stored(struct desk *d, uint16_t p, enum spool_state state, uint64_t messages,
                       uint64_t bytes);
/* Adds a message that another node has stored and announced by a row that the next batch
 * deletes. */
void desk_count_arrived(struct desk *d, uint16_t p, enum spool_state state, uint64_t bytes);
/* Notes that these rows were deleted without a batch. */
void desk_arrivals_deleted(struct desk *d);
void desk_count_parked(struct desk *d, uint16_t p, struct slice key, uint64_t messages);
/* Is no message of this partition in a batch that is open or in flight? */
bool desk_is_quiet(const struct desk *d, unsigned p);
/* Adds `by` to `to`. */
void desk_add_totals(struct spool_totals *to, const struct spool_totals *by);
/* Returns what the batch adds to the totals of a partition, including arrivals. */
struct spool_totals desk_batch_adds(const struct desk_batch *b, unsigned p);
/* Returns the totals of a partition as of the last commit that has ended: without later batches,
 * and without arrivals that no ended batch has deleted. */
struct spool_totals desk_stored(const struct desk *d, unsigned p);
/* Replaces `from` by `to` in the totals of a partition. Returns the difference in messages. */
uint64_t desk_correct_totals(struct desk *d, unsigned p, const struct spool_totals *from,
                             const struct spool_totals *to);

/* Lets partitions go that are no longer own (finder_own was called before). Their mail leaves the
 * desk and the totals. Messages that are claimed or in a batch stay on the desk until they are
 * neither. */
void desk_let_go(struct desk *d, const struct partition_set *partitions);
/* Removes foreign messages that were only read, as their owners may change them. With `only_old` it
 * removes those that were there at the previous call, too. */
void desk_forget_foreign(struct desk *d, bool only_old);
/* Returns the number of claimed messages in these partitions, and their ids in *ret_ids, which the
 * caller must free. */
size_t desk_claimed_in(const struct desk *d, const struct partition_set *partitions,
                       struct msg_id **ret_ids);
/* Finds partitions with messages that are claimed, or in a batch that has not ended. */
void desk_open_in(const struct desk *d, struct partition_set *ret_partitions);

/* Drops all messages, keys and totals, after the node has lost all partitions. No batch may be open
 * or in flight. Returns the number of messages that were claimed, and their ids in *ret_ids, which
 * the caller must free. */
size_t desk_clear(struct desk *d, struct msg_id **ret_ids);
/* Notes that these messages are gone, at most the last DESK_LOOKED_MAX of them. Calls by their ids
 * then return -ENOENT instead of -EAGAIN, for callers that still act on them. */
void desk_note_gone(struct desk *d, const struct msg_id *ids, size_t count);

#endif
