/*
 * The journal of events: facts about messages and destinations, for programs (docs/events.md).
 *
 *     a fact in the open batch --> journal_..() --> a line in memory
 *     the commit of the batch  --> journal_write --> a block in the spool, in that commit
 *                              --> journal_done  --> readers: the API, the file, web hooks
 *
 * So an event is stored exactly if its fact is. Numbers are assigned at the commit, without gaps. A
 * failed commit drops the events of facts that were refused (submissions, changes) or are repeated
 * (bounces and notices, expired mail), because a repeated fact makes its event again. Events of
 * results wait for another commit. A full disk must have room for results, which remove mail from
 * the disk. So after a failed commit the journal is halted until storage works and has room for new
 * mail; damaged pages halt it until a restart. Events beyond JOURNAL_HALTED_MAX are counted, and an
 * event "lost" has their number.
 *
 * An event is a line of JSON with members in the order of docs/events.md; only journal.c
 * makes them. The journal keeps events for events_keep_time, up to events_keep_size bytes.
 */
#ifndef QUEUE_JOURNAL_H
#define QUEUE_JOURNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "batch.h"
#include "buf.h"
#include "slice.h"
#include "spool.h"
#include "times.h"

struct queue;
struct settled;
struct settlement;

/* Bytes of events that wait for a commit; further ones are lost, which is logged. */
#define JOURNAL_WAIT_MAX (64u << 20)
/* Limit of waiting events while the journal is halted. */
#define JOURNAL_HALTED_MAX (1u << 20)
/* Destinations whose changes of window are summed up, and period of the events about them. */
#define JOURNAL_WINDOWS_MAX 500
#define JOURNAL_WINDOWS_US  (60 * US_PER_S)

struct journal_window;

/* The events of one commit. */
struct journal_piece {
    uint64_t count, bytes; /* number of events, and bytes of their block */
    size_t waiting;        /* bytes of their lines in `waiting` */
    uint64_t facts_end;    /* end of the lines whose facts the commit has, counted like `passed` */
};

struct journal {
    bool on;
    struct buf waiting;   /* lines without numbers, each after a byte that defines what a failed
                             commit does to it */
    uint64_t count;       /* number of lines in `waiting`, except those of commits in flight */
    uint64_t first, last; /* first and last event committed and kept */
    uint64_t bytes;       /* total of all blocks */
    struct wall oldest;
    struct journal_piece adding[BATCH_COMMITS_MAX]; /* events of commits in flight, the oldest
                                                       first */
    unsigned adding_count;
    uint64_t passed;                /* bytes of lines removed from the front of `waiting` so far */
    uint64_t lost;                  /* number of lost events without an event "lost" */
    const char *forgot_by;          /* limit for which events were deleted last */
    bool halted;                    /* commits get no events before journal_storage_works */
    bool is_damaged;                /* damaged pages: the journal stays halted */
    int add_rc;                     /* the spool's result for the last events */
    bool wanted;                    /* the control process waits for the next commit with events */
    uint64_t filed, filed_noted;    /* last event in events_file, and its number in the spool */
    struct journal_window *windows; /* owned; hash by transport and destination */
    struct mono windows_at;         /* time of the events about windows */
};

void journal_begin(struct queue *q);
void journal_reload(struct queue *q);
void journal_end(struct queue *q);

/* Puts the waiting events into a commit, before the commit begins. Not `now`: the events wait for a
 * later commit, because some of their facts do. journal_done handles the end of the oldest commit;
 * a failure undoes all commits in flight, and is passed on once. */
void journal_write(struct queue *q, bool now);
void journal_done(struct queue *q, bool committed);

/* Are there events for the next commit? */
bool journal_waits(const struct queue *q);

/* Ends the halt of the journal: commits succeed, and there is room for new mail. */
void journal_storage_works(struct queue *q);

/* Adds due events about windows, and writes lines to events_file. Call it once per turn. */
void journal_turn(struct queue *q);
/* Returns the time of the next journal_turn, or of a commit for events alone; MONO_NEVER: none. */
struct mono journal_wake_at(const struct queue *q);

/* Appends lines of committed events with numbers above `after` to `out`, about `max` bytes at most.
 * Sets *ret_last to the number of the last of them, or to `after` if there are none. Returns 0 or a
 * negative errno. */
int journal_read(struct queue *q, uint64_t after, size_t max, struct buf *out, uint64_t *ret_last);

/* Finds the number of the last kept event before `since`, for journal_read; if the oldest kept
 * event is later, the number before it. Returns 0 or a negative errno. */
int journal_find(struct queue *q, struct wall since, uint64_t *ret_after);

/* Requests a message to the control process at the next commit with events, once. */
void journal_tell_more(struct queue *q);

/* ---- facts ---- */

/* Adds an event about a stored message: stored by this batch, or (is_new) by another program.
 * `rcpt` is its recipient if `rcpts` is 1. `from` is the name of the message whose recipients it
 * has taken over; empty: none. */
void journal_received(struct queue *q, struct msg_id id, const struct spool_message *m,
                      struct slice rcpt, uint32_t rcpts, uint64_t size, struct slice login,
                      const char *from);

/* Adds the settlement of a recipient: delivered, deferred, bounced or expired. */
void journal_settled(struct queue *q, const struct settlement *s, const struct settled *r);

/* Adds the expiry of a recipient, with all recipients left of its message, by age or by an
 * operator. */
void journal_expired(struct queue *q, const struct spool_message *m, const struct spool_rcpt *r);

/* Adds an operator's or a rule's change of a message: "held", "released", "removed", "requeued",
 * "expiring". */
void journal_changed(struct queue *q, const char *event, const char *id,
                     const struct spool_message *m, struct slice reason);

/* Adds a bounce or notice, stored as `report`. `kind` is "failure", "delay" or "success". */
void journal_report_sent(struct queue *q, const char *id, const struct spool_message *m,
                         struct msg_id report, struct slice to, const char *kind);

/* Adds "dead", "probed" or "revived" of a destination. `until` us 0: none. */
void journal_destination(struct queue *q, const char *event, const char *transport,
                         struct slice dest, struct wall until, uint32_t window,
                         struct slice reason);

/* Adds a change of a window to the summary of its destination, which becomes an event once a
 * minute. */
void journal_window(struct queue *q, const char *transport, const char *dest, uint32_t before,
                    uint32_t after);

/* Adds a change of an override: "paused", "bouncing", "redirected", "limited" or "cancelled". */
void journal_intervention(struct queue *q, const char *event, const char *name, const char *target,
                          const char *reason, struct wall until);

#endif
