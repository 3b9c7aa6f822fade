/*
 * Internal interface of the sqlite engine, shared by its files: sqlite_spool.c (opening, changes,
 * claims), sqlite_read.c (rows, searches, sums), sqlite_tally.c, sqlite_segments.c (large content),
 * sqlite_passage.c (mail without rows) and others.
 *
 * Conventions: a statement is prepared at its first use and kept. sqlite_ask returns it reset, the
 * caller binds and steps it, and sqlite_done resets it, after errors, too, so that no statement
 * keeps a read transaction open. Texts are bound by reference; no statement is stepped after the
 * function that bound it has returned.
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

/* Limit of newer messages before an unlisted message is listed. It bounds the ids that searches and
 * the start must search for unlisted messages. */
#define SQLITE_UNLISTED_SPAN UINT64_C(65536)

/* An upper bound of ids: far beyond any clock, and far below the limit of the type. */
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
    ST_NOTE_REMOVE_DAMAGED,
    ST_NOTES,
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

/* Changes of a message's two recipient counters that are not written yet. Settling many recipients
 * of one message then costs one write of its row. */
struct sqlite_counts {
    uint64_t id; /* 0 = none */
    int64_t pending, to_report;
};

/* A key in passage. */
struct sqlite_passing_key {
    UT_hash_handle hh;
    uint32_t file;
    struct spool_key k; /* k.key points to `text` */
    char text[];
};

/* Keys of client requests. */
struct sqlite_keys {
    bool known;                         /* true once count and first are read */
    uint64_t count;                     /* number of keys, including those of the open batch */
    int64_t change;                     /* change of the number of rows that is not written yet */
    struct wall first;                  /* time before which no key expires */
    struct wall now;                    /* time of the last search for a key */
    struct sqlite_passing_key *passing; /* owned; a hash of the keys in passage */
    struct sqlite_passing_key **listed; /* owned; the same keys in the order in which they were
                                         * added */
    size_t listed_count, listed_size;
    size_t fresh;   /* number of keys at the end of `listed` that are of the open batch */
    bool have_rows; /* the open batch makes rows for all keys in passage */
};

/* Identity of a file; inode 0 = unknown. */
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
    struct text_pool pool; /* texts of the last read */
    struct buf bytes;      /* buffer for inline content */
    int log_pages;         /* pages in the write-ahead log after the last commit */
    int log_kept;          /* pages that the last checkpoint could not move */

    /* members below are for a spool that is open for writing */
    struct reserve reserve;
    bool space_ran_out; /* a write of the open batch found no space */
    struct claims claims;
    struct sqlite_counts counts;
    struct sqlite_keys keys;
    struct tally tally;                          /* changes of the open batch */
    bool tally_is_broken;                        /* pages of the counters are damaged */
    bool due_is_broken;                          /* pages of the index by due time are damaged */
    bool damage_met;                             /* a statement met a damaged page */
    unsigned index_looks;                        /* number of looks at all indexes */
    uint64_t can_not_list;                       /* id of an unlisted message on a damaged page, or
                                                  * 0 */
    bool can_not_move;                           /* a damaged page prevents that mail in passage
                                                  * gets rows */
    struct spool_totals totals, totals_before;   /* now; when the batch was opened */
    struct spool_totals passing, passing_before; /* share of mail without rows in these totals */
    bool batch_open;                             /* a batch is open */
    bool in_transaction;   /* the open batch has changed the database, so it has a transaction */
    bool row_in_doubt;     /* the next commit must write the row `spool`, to overwrite that of a
                            * failed commit */
    bool holds;            /* opening is complete */
    bool has_rows_beside;  /* the open batch has events, which accompany passing mail */
    bool rows_beside;      /* the last committed batch had events */
    uint64_t passage_from; /* value of `from` in the row `spool` */
    struct buf envelope;   /* buffer for an envelope */
    struct passage_envelope passing_mail; /* message in passage that was read last */
    uint64_t last_id;
    uint64_t commits;             /* number of the database's last commit */
    uint64_t commits_told;        /* number of commits in the lock file when the spool was opened; 0
                                   * = unknown */
    uint64_t removed;             /* number of rows added to the table `removed` */
    struct sqlite_place database; /* identity of the open database and log */
    struct sqlite_place log;
    char warnings[SQLITE_WARNINGS_MAX][SPOOL_ERROR_MAX]; /* warnings for the log */
    size_t warning_count, warnings_told;
};

static inline struct sqlite_spool *sqlite_of(struct spool *sp)
{
    return (struct sqlite_spool *)sp;
}

extern const struct spool_keys_part sqlite_keys;

/* Makes rows for keys in passage at the end of a batch, when it is time to, and writes the change
 * of their number. This and the next two return 0 or a negative errno. */
int sqlite_flush_keys(struct sqlite_spool *s);

/* Makes rows for all keys in passage. */
int sqlite_need_key_rows(struct sqlite_spool *s);

/* Makes a row of a key's record in passage. -EBADMSG: the record is malformed. */
int sqlite_take_passing_key(struct sqlite_spool *s, struct msg_id id, struct slice record);

/* Updates the keys in memory after the batch was committed; the next two after it was undone, and
 * at the end. */
void sqlite_keys_committed(struct sqlite_spool *s);
void sqlite_keys_undone(struct sqlite_spool *s);
void sqlite_keys_fini(struct sqlite_spool *s);
extern const struct spool_notes_part sqlite_notes;
/* Reads a row of name, text and sum. Returns false if it is damaged; then name and text may be
 * anything, or empty. Both last until the next step. */
bool sqlite_note_row(sqlite3_stmt *st, struct slice *ret_name, struct slice *ret_text);
extern const struct spool_events_part sqlite_events;

/* Stores the text of an SQLite result code, and returns its errno. */
int sqlite_fail(struct sqlite_spool *s, int rc, const char *what);

/* Stores the text and returns -ENOENT. */
int sqlite_no_message(struct sqlite_spool *s, struct msg_id id);

/* Returns a statement, reset; NULL if it can't be prepared: then sqlite_done returns the reason. */
sqlite3_stmt *sqlite_ask(struct sqlite_spool *s, enum statement which);

/* Resets a statement whose last step returned `rc`. Returns 0 for SQLITE_DONE and SQLITE_ROW, else
 * an error. */
int sqlite_done(struct sqlite_spool *s, sqlite3_stmt *st, int rc);

/* Steps a statement, which may be NULL if it could not be prepared. */
int sqlite_step(struct sqlite_spool *s, sqlite3_stmt *st);

void sqlite_bind_int(sqlite3_stmt *st, int at, int64_t value);
void sqlite_bind_slice(sqlite3_stmt *st, int at, struct slice text);

/* Makes indexes with lost pages again, after damage was met (sqlite_indexes.h). A failure has no
 * consequences but a warning. */
void sqlite_mend_indexes(struct sqlite_spool *s);

/* Writes the counters in s->counts. */
int sqlite_flush_counts(struct sqlite_spool *s);

/* Adds (sign 1) or subtracts (-1) listed waiting recipients: all pending ones of a message, or one
 * recipient if it is pending. Recipients of an unlisted message, and those without a row, do not
 * count (sqlite_tally.c). */
int sqlite_tally_message(struct sqlite_spool *s, struct msg_id id, int sign);
int sqlite_tally_rcpt(struct sqlite_spool *s, struct msg_id id, uint32_t n, int sign);
/* Writes the changes of the counts. A failure fails the batch. */
int sqlite_tally_write(struct sqlite_spool *s);

/* Counts the large content in segments (sqlite_segments.c) when a spool is opened, for reading or
 * writing. It counts the content of listed rows; sqlite_segments_name has counted that of unlisted
 * ones before. */
int sqlite_segments_begin(struct sqlite_spool *s);
void sqlite_segments_name(struct sqlite_spool *s, uint32_t segment, int64_t at, int64_t size);

/* Converts a column to the number of a segment; 0 if it is not one. */
uint32_t sqlite_segment_number(int64_t value);

/* Reads content: appends it to *ret_bytes, or returns it in a sealed memfd. -EBADMSG: segments_why
 * has the cause. */
int sqlite_segments_read(struct sqlite_spool *s, struct msg_id id, struct segment_place place,
                         uint64_t size, uint64_t *ret_sum, struct buf *ret_bytes, int *ret_fd);

/* Copies live records of a segment to the active one, at most about `bytes`, as part of the open
 * batch. An error has failed the batch. */
int sqlite_segments_empty(struct sqlite_spool *s, uint32_t segment, uint64_t bytes);

/* ---- mail in passage (sqlite_passage.c) ---- */

/* Makes rows for mail in passage when the spool is opened for writing. *ret_damaged: number of
 * records that could not be read. */
int sqlite_passage_begin(struct sqlite_spool *s, uint64_t *ret_damaged);
/* Makes rows for mail in passage when the spool is closed. A failure has no consequences: the next
 * start does the same. */
void sqlite_passage_finish(struct sqlite_spool *s);

/* Mail in passage as a repair or a reader finds it. */
struct sqlite_passing {
    uint64_t tag;           /* tag of the spool; 0 = unknown, use that of the files */
    uint64_t from;          /* value of `from` in the row `spool` */
    uint64_t commits, told; /* as in struct passage_start */
    struct passage_found found;
    uint64_t damaged; /* number of records that can't be read, or can't become rows */
};
/* Makes rows for mail in passage in a database that is being filled; passes each id to `made`. */
int sqlite_passage_recover(sqlite3 *db, const char *dir, struct sqlite_passing *passing,
                           void (*made)(void *context, int64_t id), void *context);
/* Counts the mail in passage. While another process writes, the result is soon out of date. */
int sqlite_passage_look(struct sqlite_spool *s, struct sqlite_passing *ret_passing);

/* Can this message, which is submitted and claimed, be stored in passage? */
bool sqlite_passage_takes(const struct sqlite_spool *s, const struct spool_new *n);
/* Fails the batch after a write to a file outside the database failed; returns `err`. */
int sqlite_passage_failed(struct sqlite_spool *s, int err);
int sqlite_passage_submit(struct sqlite_spool *s, struct msg_id id, const struct spool_new *n);
/* Deletes a message in passage, which is done. */
int sqlite_passage_done(struct sqlite_spool *s, struct msg_id id);

/* Makes rows for a message in passage; does nothing for others. Changes the facts in `claims`. */
int sqlite_need_rows(struct sqlite_spool *s, struct msg_id id);
/* Makes rows for all messages in passage, for sums over rows; in a batch of its own if none is
 * open. */
int sqlite_need_all_rows(struct sqlite_spool *s);
/* Makes rows for some of the messages that prevent the reuse of files; for commits under load. */
int sqlite_passage_empty(struct sqlite_spool *s);

/* Finds the messages in passage that match: their ids in order, owned by the caller (mem_free), or
 * NULL. */
int sqlite_passage_search(struct sqlite_spool *s, const struct spool_filter *f,
                          struct msg_id **ret_ids, size_t *ret_count);

/* Is it in passage? Then the next three functions read it. */
bool sqlite_is_passing(const struct sqlite_spool *s, struct msg_id id);
int sqlite_passage_read(struct sqlite_spool *s, struct msg_id id,
                        struct spool_message *ret_message);
int sqlite_passage_read_rcpts(struct sqlite_spool *s, struct msg_id id, uint32_t after, size_t max,
                              struct spool_rcpt *ret_rcpts, size_t *ret_count);
int sqlite_passage_read_content(struct sqlite_spool *s, struct msg_id id, struct buf *ret_bytes,
                                int *ret_fd, uint64_t *ret_size);

/* Inserts the rows of a message; `inline_bytes` NULL: its content is in a file, or at `place`. */
int sqlite_insert(struct sqlite_spool *s, struct msg_id id, const struct spool_new *n,
                  const struct slice *inline_bytes, struct segment_place place,
                  uint64_t content_sum);

/* Returns content that is in memory in the form of spool_read_content. */
int sqlite_hand_out(struct slice content, struct buf *ret_bytes, int *ret_fd);

/* Opens a batch of the engine's own, which no caller waits for and spool_commit ends. Returns false
 * on failure. */
bool sqlite_begin_alone(struct sqlite_spool *s);

/* Implements reading, as the next functions do: they are functions of struct spool_engine. */
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

/* Reads and checks the row `spool`. */
int sqlite_read_spool(struct sqlite_spool *s, struct spool_totals *ret_totals,
                      uint64_t *ret_last_id, uint64_t *ret_unlisted_from);

/* The values of a message's row that are needed to delete or move it, read without decoding the
 * rest. An invalid state is 0, impossible numbers are 0. -ENOENT if there is no row. */
struct sqlite_brief {
    enum spool_state state;
    int64_t due;
    uint64_t size;
    bool in_file;
    uint32_t segment; /* 0 = a file of its own, if in_file */
    bool has_rcpts;
    bool counts_rcpts; /* true if the row's counters are not 0; differs from has_rcpts only after
                        * damage */
};
int sqlite_read_brief(struct sqlite_spool *s, struct msg_id id, struct sqlite_brief *ret_brief);

/* Stores the text "ID: damaged: " and the formatted cause, and returns -EBADMSG. */
int sqlite_damaged(struct sqlite_spool *s, struct msg_id id, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Reads a complete message that is not CORRUPT, content included, with all checks. Returns 0, or
 * the first fault. */
int sqlite_look_at(struct sqlite_spool *s, struct msg_id id);

/* Accepts a quarantined message, after an operator has examined it: its rows get new checksums.
 * -EBADMSG if the rows are malformed or the content is damaged; then nothing has changed. */
int sqlite_accept(struct sqlite_spool *s, struct msg_id id);

#endif
