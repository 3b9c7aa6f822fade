/*
 * The sqlite engine's inside, shared by its parts: sqlite_spool.c (opening, changes, claims),
 * sqlite_read.c (rows, searches, sums), sqlite_tally.c, sqlite_segments.c (large content) and
 * sqlite_passage.c (mail that has no rows).
 *
 * Conventions: a statement is prepared when it is first wanted and kept. `ask` gives it out reset,
 * the caller binds and steps it, and `done` resets it, on errors too, so that none holds a read
 * transaction open. Texts are bound by reference; nothing steps a statement after its caller has
 * returned.
 */
#ifndef SPOOL_SQLITE_ENGINE_H
#define SPOOL_SQLITE_ENGINE_H

#include <sqlite3.h>

#include "claims.h"
#include "content_file.h"
#include "hash.h"
#include "passage.h"
#include "passage_envelope.h"
#include "reserve.h"
#include "segments.h"
#include "spool_engine.h"
#include "spool_keys.h"
#include "tally.h"
#include "text_pool.h"

/* An unlisted message is listed, at the latest, when so many have been submitted after it. It
 * bounds the ids among which unlisted ones have to be looked for, by searches and at the start. */
#define SQLITE_UNLISTED_SPAN UINT64_C(65536)

/* Far beyond any clock, and far below where ids end. */
#define SQLITE_LAST_ID_MAX (INT64_C(1) << 60)

enum statement {
    ST_BEGIN,
    ST_COMMIT,
    ST_ROLLBACK,
    ST_SPOOL_READ,
    ST_SPOOL_TAG,
    ST_SPOOL_WRITE,
    ST_SPOOL_START,
    ST_MESSAGE_INSERT,
    ST_MESSAGE_READ,
    ST_MESSAGE_EXISTS,
    ST_MESSAGE_UNREADABLE,
    ST_MESSAGE_COUNTERS,
    ST_MESSAGE_SET_SUM,
    ST_MESSAGE_BRIEF,
    ST_MESSAGE_CHANGE,
    ST_MESSAGE_SET_FLAGS,
    ST_MESSAGE_SET_DUE,
    ST_MESSAGE_DEFER,
    ST_MESSAGE_MOVE,
    ST_MESSAGE_COUNTS,
    ST_MESSAGE_LIST,
    ST_MESSAGE_QUARANTINE,
    ST_MESSAGE_DELETE,
    ST_REMOVED_ADD,
    ST_REMOVED_HAS,
    ST_REMOVED_CLEAR,
    ST_RCPT_INSERT,
    ST_RCPT_LIST,
    ST_RCPT_COUNT,
    ST_RCPT_SET_SUM,
    ST_RCPT_STATE,
    ST_RCPT_DEFER,
    ST_RCPT_SETTLE,
    ST_RCPT_DONE,
    ST_RCPT_DELETE,
    ST_RCPT_ROUTE,
    ST_RCPT_FORGET_TRIES,
    ST_RCPT_REPORTED,
    ST_RCPT_DELETE_ALL,
    ST_RCPT_READ,
    ST_RCPT_READ_PENDING,
    ST_CONTENT_INSERT,
    ST_CONTENT_READ,
    ST_CONTENT_DELETE,
    ST_WALK_SAME_DUE,
    ST_WALK_LATER,
    ST_WALK_PARKED,
    ST_PARKED_KEY,
    ST_HIGHEST_ID,
    ST_UNLISTED,
    ST_SEGMENT_COUNTS,
    ST_SEGMENT_ROWS,
    ST_MESSAGE_PLACES,
    ST_RCPT_PLACE,
    ST_DESTINATION_ADD,
    ST_DESTINATION_DROP,
    ST_DESTINATIONS,
    ST_UNLISTED_DESTINATIONS,
    ST_KEY_READ,
    ST_KEY_ADD,
    ST_KEYS_FORGET,
    ST_KEYS_COUNT,
    ST_KEYS_COUNT_ADD,
    ST_NOTE_PUT,
    ST_NOTE_REMOVE,
    ST_NOTE_NEXT,
    ST_WALK_RCPTS,
    ST_WALK_MESSAGES,
    ST_EVENTS_RANGE,
    ST_EVENTS_BYTES,
    ST_EVENTS_ADD,
    ST_EVENTS_READ,
    ST_EVENTS_FORGET,
    ST_COUNT,
};

extern const char *const sqlite_statement_sql[ST_COUNT];

/* Changes of a message's two recipient counters that are not written yet: settling many recipients
 * of one message then costs one write of its row. */
struct sqlite_counts {
    uint64_t id; /* 0 = none */
    int64_t pending, to_report;
};

/* A key that is in passage. */
struct sqlite_passing_key {
    UT_hash_handle hh;
    uint32_t file;
    struct spool_key k; /* k.key is `text` */
    char text[];
};

/* Keys of messages. */
struct sqlite_keys {
    bool known;                         /* these three are */
    uint64_t count;                     /* with those of the open batch */
    int64_t change;                     /* of the number of rows, that is not written yet */
    struct wall first;                  /* none is to be forgotten before */
    struct wall now;                    /* as of the last look for one */
    struct sqlite_passing_key *passing; /* a hash, owned: those that are in passage */
    struct sqlite_passing_key **listed; /* owned: the same, in their order */
    size_t listed_count, listed_size;
    size_t fresh;   /* the last of them: of the open batch */
    bool have_rows; /* all of them, in the open batch */
};

/* Which file a name leads to; inode 0: not known. */
struct sqlite_place {
    uint64_t device, inode;
};

#define SQLITE_WARNINGS_MAX 4

struct sqlite_spool {
    struct spool base;
    sqlite3 *db;
    sqlite3_stmt *statements[ST_COUNT];
    char *path, *log_path;
    const struct spool_io *io;
    int lock_fd; /* -1 for readers */
    uint64_t inline_limit;
    struct content_files content;
    struct segments segments;
    struct passage passage;
    struct text_pool pool; /* what was last read */
    struct buf bytes;      /* inline content being put together */
    int log_pages;         /* in the write-ahead log, as of the last commit */
    int log_kept;          /* of these, those that the last checkpoint had to leave there */

    /* of the holder only */
    struct reserve reserve;
    bool space_ran_out; /* in the open batch */
    struct claims claims;
    struct sqlite_counts counts;
    struct sqlite_keys keys;
    struct tally tally;                          /* of the open batch */
    bool tally_is_broken;                        /* pages of the counters are damaged */
    bool due_is_broken;                          /* so are those of the index by due time */
    uint64_t can_not_list;                       /* an unlisted message on a damaged page, or 0 */
    struct spool_totals totals, totals_before;   /* now; when the batch was opened */
    struct spool_totals passing, passing_before; /* of these, what has no rows */
    bool batch_open;                             /* as the engine sees it */
    bool in_transaction;   /* the open batch has one: it has changed the database */
    bool row_in_doubt;     /* the next commit writes the row `spool` in each case: an earlier one
                                has failed, and has to be overwritten */
    bool holds;            /* the start is over */
    bool has_rows_beside;  /* the open batch has events, which go with mail that passes */
    bool rows_beside;      /* so had the last one that was committed */
    uint64_t passage_from; /* as the row `spool` has it */
    struct buf envelope;   /* being put together */
    struct passage_envelope passing_mail; /* that was read last */
    uint64_t last_id;
    uint64_t commits;             /* in the database */
    uint64_t commits_told;        /* by the lock file, when it was opened; 0 = nothing */
    uint64_t removed;             /* rows of the table of that name that were added */
    struct sqlite_place database; /* where the files are that are open */
    struct sqlite_place log;
    char warnings[SQLITE_WARNINGS_MAX][SPOOL_ERROR_MAX]; /* for the log */
    size_t warning_count, warnings_told;
};

static inline struct sqlite_spool *sqlite_of(struct spool *sp)
{
    return (struct sqlite_spool *)sp;
}

extern const struct spool_keys_part sqlite_keys;

/* At the end of a batch: make rows of those in passage when it is time to, and write what has
 * changed of their number. These are 0 or a negative errno. */
int sqlite_flush_keys(struct sqlite_spool *s);

/* Make rows of all that are in passage. */
int sqlite_need_key_rows(struct sqlite_spool *s);

/* Make a row of what a record of a key in passage says. -EBADMSG: it makes no sense. */
int sqlite_take_passing_key(struct sqlite_spool *s, struct msg_id id, struct slice record);

/* How the batch ended. */
void sqlite_keys_committed(struct sqlite_spool *s);
void sqlite_keys_undone(struct sqlite_spool *s);
void sqlite_keys_fini(struct sqlite_spool *s);
extern const struct spool_notes_part sqlite_notes;
extern const struct spool_events_part sqlite_events;

/* Words and errno for an SQLite result code. */
int sqlite_fail(struct sqlite_spool *s, int rc, const char *what);

/* -ENOENT, with words. */
int sqlite_no_message(struct sqlite_spool *s, struct msg_id id);

/* A statement, reset; NULL when it can't be prepared: then `done` has the reason. */
sqlite3_stmt *sqlite_ask(struct sqlite_spool *s, enum statement which);

/* End of a statement whose last step returned `rc`: 0 for SQLITE_DONE and SQLITE_ROW. */
int sqlite_done(struct sqlite_spool *s, sqlite3_stmt *st, int rc);

/* sqlite3_step that takes NULL for a statement that could not be prepared. */
int sqlite_step(struct sqlite_spool *s, sqlite3_stmt *st);

void sqlite_bind_int(sqlite3_stmt *st, int at, int64_t value);
void sqlite_bind_slice(sqlite3_stmt *st, int at, struct slice text);

/* Write what s->counts holds. */
int sqlite_flush_counts(struct sqlite_spool *s);

/* Listed recipients that wait (sqlite_tally.c): all pending ones of a message, or one recipient if
 * it is pending, count (sign 1) or do so no more (-1). Recipients of an unlisted message, or that
 * are not there, are nothing. */
int sqlite_tally_message(struct sqlite_spool *s, struct msg_id id, int sign);
int sqlite_tally_rcpt(struct sqlite_spool *s, struct msg_id id, uint32_t n, int sign);
/* Write what was counted. A failure fails the batch. */
int sqlite_tally_write(struct sqlite_spool *s);

/* Large content in segments (sqlite_segments.c). At the start of a reader, or a holder: it counts
 * what rows name, but for unlisted ones, which have been told to sqlite_segments_name before. */
int sqlite_segments_begin(struct sqlite_spool *s);
void sqlite_segments_name(struct sqlite_spool *s, uint32_t segment, int64_t at, int64_t size);

/* A segment as a column has it; 0 when it is none. */
uint32_t sqlite_segment_number(int64_t value);

/* Content appended to *ret_bytes, or in a memfd that is sealed. -EBADMSG: segments_why. */
int sqlite_segments_read(struct sqlite_spool *s, struct msg_id id, struct segment_place place,
                         uint64_t size, uint64_t *ret_sum, struct buf *ret_bytes, int *ret_fd);

/* Copy what is left of a segment to where content is appended, at most about `bytes`; part of the
 * open batch. An error has failed it. */
int sqlite_segments_empty(struct sqlite_spool *s, uint32_t segment, uint64_t bytes);

/* ---- mail in passage (sqlite_passage.c) ---- */

/* At the start of a holder: rows for what is in passage. *ret_damaged: records that could not be
 * read. */
int sqlite_passage_begin(struct sqlite_spool *s, uint64_t *ret_damaged);
/* At its end: rows for what is in passage. Failing is harmless: the next start does it. */
void sqlite_passage_finish(struct sqlite_spool *s);

/* What a repair and a reader want of it. */
struct sqlite_passing {
    uint64_t tag;           /* of the spool, or 0: not known; then as files say */
    uint64_t from;          /* as the row `spool` has it */
    uint64_t commits, told; /* as passage.h has them */
    struct passage_found found;
    uint64_t damaged; /* records that can't be read, or can't become rows */
};
/* Rows for what is in passage, in a database that is filled; each id is told to `made`. */
int sqlite_passage_recover(sqlite3 *db, const char *dir, struct sqlite_passing *passing,
                           void (*made)(void *context, int64_t id), void *context);
/* How much is in passage. Beside a holder it is soon out of date. */
int sqlite_passage_look(struct sqlite_spool *s, struct sqlite_passing *ret_passing);

/* A message that is submitted and claimed: is it for passage? */
bool sqlite_passage_takes(const struct sqlite_spool *s, const struct spool_new *n);
/* What is written beside the database can't be; the batch is lost. `err` again. */
int sqlite_passage_failed(struct sqlite_spool *s, int err);
int sqlite_passage_submit(struct sqlite_spool *s, struct msg_id id, const struct spool_new *n);
/* It is done, and goes. */
int sqlite_passage_done(struct sqlite_spool *s, struct msg_id id);

/* From now on the message has rows, if it had none. What is known of it by claims changes. */
int sqlite_need_rows(struct sqlite_spool *s, struct msg_id id);
/* So has every message; for sums over rows. In a batch of its own, if none is open. */
int sqlite_need_all_rows(struct sqlite_spool *s);
/* Under load: rows for some of the messages that keep files from being given back. */
int sqlite_passage_empty(struct sqlite_spool *s);

/* Messages in passage that match: their ids in order, owned by the caller (mem_free), or NULL. */
int sqlite_passage_search(struct sqlite_spool *s, const struct spool_filter *f,
                          struct msg_id **ret_ids, size_t *ret_count);

/* Is it in passage? Then reading goes here. */
bool sqlite_is_passing(const struct sqlite_spool *s, struct msg_id id);
int sqlite_passage_read(struct sqlite_spool *s, struct msg_id id,
                        struct spool_message *ret_message);
int sqlite_passage_read_rcpts(struct sqlite_spool *s, struct msg_id id, uint32_t after, size_t max,
                              struct spool_rcpt *ret_rcpts, size_t *ret_count);
int sqlite_passage_read_content(struct sqlite_spool *s, struct msg_id id, struct buf *ret_bytes,
                                int *ret_fd, uint64_t *ret_size);

/* Insert the rows of a message; `inline_bytes` NULL: its content is in a file, or at `place`. */
int sqlite_insert(struct sqlite_spool *s, struct msg_id id, const struct spool_new *n,
                  const struct slice *inline_bytes, struct segment_place place,
                  uint64_t content_sum);

/* Content that is in memory, as reading hands it out. */
int sqlite_hand_out(struct slice content, struct buf *ret_bytes, int *ret_fd);

/* A batch of the engine's own, which nothing waits for: false, or it is open, to be ended by
 * spool_commit. */
bool sqlite_begin_alone(struct sqlite_spool *s);

/* The reading half, as functions of struct spool_engine. */
int sqlite_read(struct spool *sp, struct msg_id id, struct spool_message *ret_message);
int sqlite_read_rcpts(struct spool *sp, struct msg_id id, uint32_t after, bool only_pending,
                      size_t max, struct spool_rcpt *ret_rcpts, size_t *ret_count);
int sqlite_read_content(struct spool *sp, struct msg_id id, struct buf *ret_bytes, int *ret_fd,
                        uint64_t *ret_size);
int sqlite_scan(struct spool *sp, const struct spool_filter *f, size_t max, struct msg_id *ret_ids,
                size_t *ret_count);
int sqlite_count(struct spool *sp, const struct spool_filter *f, uint64_t *ret_count);
int sqlite_totals(struct spool *sp, struct spool_totals *ret_totals);
int sqlite_destinations_from(struct spool *sp, const struct spool_destination *from, size_t max,
                             struct spool_destination *ret, size_t *ret_count);
int sqlite_destinations(struct spool *sp, size_t max, struct spool_destination *ret,
                        size_t *ret_count);

int sqlite_walk(struct spool *sp, enum spool_walk_by by, struct spool_walk *w, size_t max,
                struct spool_walked *ret, size_t *ret_count);

int sqlite_parked_keys(struct spool *sp, struct slice after, size_t max, struct slice *ret_keys,
                       size_t *ret_count);

/* What the row `spool` says; all of it checked. */
int sqlite_read_spool(struct sqlite_spool *s, struct spool_totals *ret_totals,
                      uint64_t *ret_last_id, uint64_t *ret_unlisted_from);

/* What deleting or moving a message takes, read without decoding the rest. A state that is none is
 * 0, impossible numbers are 0. -ENOENT. */
struct sqlite_brief {
    enum spool_state state;
    int64_t due;
    uint64_t size;
    bool in_file;
    uint32_t segment; /* 0: a file of its own, if in_file */
    bool has_rcpts;
    bool counts_rcpts; /* as the row's counters say it; has_rcpts when nothing is lost */
};
int sqlite_read_brief(struct sqlite_spool *s, struct msg_id id, struct sqlite_brief *ret_brief);

/* -EBADMSG, with words: "ID: damaged: " and what the format says. */
int sqlite_damaged(struct sqlite_spool *s, struct msg_id id, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Read all of a message that is not CORRUPT, content included, with all checks: 0, or what is wrong
 * with it. */
int sqlite_look_at(struct sqlite_spool *s, struct msg_id id);

/* An operator has looked at a message that was quarantined, and wants to go on with it: what its
 * rows say now gets new checksums. -EBADMSG when they make no sense, or its content is damaged;
 * nothing has changed then. */
int sqlite_accept(struct sqlite_spool *s, struct msg_id id);

#endif
