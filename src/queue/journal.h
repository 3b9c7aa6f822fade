/*
 * The journal of events: what became of messages and destinations, for programs (docs/events.md).
 *
 *     a fact in the open batch --> journal_..() --> a line in memory
 *     the commit of the batch  --> journal_write --> a block in the spool, in that commit
 *                              --> journal_done  --> readers: the API, the file, the web hook
 *
 * So an event is there exactly if its fact is. Numbers are given at the commit, and have no gaps. A
 * commit that fails takes events back of what was refused with it (submissions, changes), or is
 * done again (reports, mail given up); those of results wait. A full disk has to be able to store
 * results, so that mail leaves it: the journal is halted until the storage works and has room for
 * new mail. Events that do not fit into JOURNAL_HALTED_MAX until then are counted, and an event
 * "lost" tells how many.
 *
 * An event is a line of JSON, made here and nowhere else; its members come in the order of
 * docs/events.md. The journal keeps events for events_keep_time and up to events_keep_size.
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

/* Bytes of events that wait for a commit; with more, they are lost, and the log says so. */
#define JOURNAL_WAIT_MAX (64u << 20)
/* The same while the journal is halted. */
#define JOURNAL_HALTED_MAX (1u << 20)
/* Destinations whose windows are summed up, and how often that is told. */
#define JOURNAL_WINDOWS_MAX 500
#define JOURNAL_WINDOWS_US  (60 * US_PER_S)

struct journal_window;

/* The events of one commit. */
struct journal_piece {
    uint64_t count, bytes; /* bytes of the block */
    size_t waiting;        /* bytes at the front of the lines that wait */
    uint64_t facts_end;    /* of lines whose facts it has, counted as `passed` */
};

struct journal {
    bool on;
    struct buf waiting;   /* lines without their numbers, each behind a byte that says what a failed
                           commit does to it */
    uint64_t count;       /* of these, but those of commits under way */
    uint64_t first, last; /* committed, and kept */
    uint64_t bytes;       /* of all blocks */
    struct wall oldest;
    struct journal_piece adding[BATCH_COMMITS_MAX]; /* of commits under way, the oldest first */
    unsigned adding_count;
    uint64_t passed;                /* bytes of lines that were at the front of `waiting` */
    uint64_t lost;                  /* that no event has told yet */
    const char *forgot_by;          /* the limit by which events were forgotten last */
    bool halted;                    /* since a commit failed */
    bool wanted;                    /* the control process waits to be told of the next commit */
    uint64_t filed, filed_noted;    /* the last event in events_file, and as the spool has it */
    struct journal_window *windows; /* hash by transport and destination; owned */
    struct mono windows_at;         /* when they are told */
};

void journal_begin(struct queue *q);
void journal_reload(struct queue *q);
void journal_end(struct queue *q);

/* Before a commit begins, and when the oldest has ended; once for all that a failure undoes. Not
 * `now`: the events wait for another commit, as what some of them tell of does. */
void journal_write(struct queue *q, bool now);
void journal_done(struct queue *q, bool committed);

/* Are there events that the next commit would have? */
bool journal_waits(const struct queue *q);

/* Commits succeed, and there is room for new mail. */
void journal_storage_works(struct queue *q);

/* Once per turn: windows that are to be told, and lines for events_file. */
void journal_turn(struct queue *q);
/* When journal_turn, or a commit for events alone, has something to do; MONO_NEVER: nothing. */
struct mono journal_wake_at(const struct queue *q);

/* Append lines of committed events with numbers above `after` to `out`, up to about `max` bytes.
 * *ret_last: the number of the last of them, or `after` (or the last that was forgotten). 0 or a
 * negative errno. */
int journal_read(struct queue *q, uint64_t after, size_t max, struct buf *out, uint64_t *ret_last);

/* The number of the last kept event before `since` (0: the oldest is later), for journal_read. 0 or
 * a negative errno. */
int journal_find(struct queue *q, struct wall since, uint64_t *ret_after);

/* Tell the control process when there are more: once, at the next commit with events. */
void journal_tell_more(struct queue *q);

/* ---- facts ---- */

/* Stored, by this batch or (is_new) by another program: of `rcpts` recipients, of which one is
 * `rcpt` if it is the only one. */
void journal_received(struct queue *q, struct msg_id id, const struct spool_message *m,
                      struct slice rcpt, uint32_t rcpts, uint64_t size, struct slice login);

/* A recipient was settled: delivered, deferred, bounced or expired. */
void journal_settled(struct queue *q, const struct settlement *s, const struct settled *r);

/* A recipient was given up with all that were left of its message: its age, or an operator. */
void journal_expired(struct queue *q, const struct spool_message *m, const struct spool_rcpt *r);

/* An operator, or a rule, has done that to a message: "held", "released", "removed", "requeued",
 * "expiring". */
void journal_changed(struct queue *q, const char *event, const char *id,
                     const struct spool_message *m, struct slice reason);

/* A report about a message was stored as `report`. `kind`: "failure", "delay", "success". */
void journal_report_sent(struct queue *q, const char *id, const struct spool_message *m,
                         struct msg_id report, struct slice to, const char *kind);

/* "dead", "probed", "revived" of a destination. `until` us 0: none. */
void journal_destination(struct queue *q, const char *event, const char *transport,
                         struct slice dest, struct wall until, uint32_t window,
                         struct slice reason);

/* A window has changed: told with the others of its destination, once a minute. */
void journal_window(struct queue *q, const char *transport, const char *dest, uint32_t before,
                    uint32_t after);

/* An intervention: "paused", "bouncing", "redirected", "limited", or "cancelled". */
void journal_intervention(struct queue *q, const char *event, const char *name, const char *target,
                          const char *reason, struct wall until);

#endif
