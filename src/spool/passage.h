/*
 * Mail in passage: messages that are delivered at once, as most are, never reach the database.
 * What is stored of them, and what ended them, is appended to files beside it:
 *
 *      PATH.d/00000002.passage
 *
 *      0       4096          8192                      PASSAGE_FILE_BYTES or a little more
 *      |header |batch: records  |pad|batch ..|pad| free, or old batches |
 *                                   ^ a batch begins at a page: what is durable is never in a page
 *                                     that is written again
 *
 * One batch for each commit that has something for it, written in one sequence and synced once. Its
 * records are messages (envelope and content), keys of calls (spool_keys.h), and marks: of messages
 * that are done, of those that have moved to the database because they stay (deferred, held, looked
 * for), and of batches that failed. passage.c draws the bytes.
 *
 * A batch has happened when it is whole and, if its commit changed the database, too, when the
 * database has that commit. It is written and synced first, so the order is
 *
 *   passage_write: written and synced        without the database: the batch has happened;
 *                                            with it: a crash leaves a batch that has not
 *   (commit of the database)                 it has happened
 *
 * A batch whose write, sync or commit failed is in doubt: it may be there, whole, but nothing of it
 * was acknowledged. The next one that succeeds says that it is void. Until then a crash may bring
 * it back, whole.
 *
 * At the start all batches that have happened are read, and each message without a mark is given to
 * the engine, which makes rows of it. Then everything up to there is void, by a number in the
 * database (`from`), so files are never needed longer than from one start to the next.
 *
 *      FREE ------passage_add, passage_end-----> CURRENT --full--> IN USE
 *        ^                                                           |
 *        '----- nothing of it, or of an older one, is left ----------'
 *
 * Files are given back in the order in which they were written, because the marks of a message may
 * be in any later one. When PASSAGE_FILES are in use the engine moves what is left in the oldest to
 * the database (passage_to_empty). While there is a file PATH.d/keep none is written again: there
 * are more files then, and those beyond PASSAGE_FILES are removed later.
 */
#ifndef SPOOL_PASSAGE_H
#define SPOOL_PASSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "slice.h"
#include "spool.h"
#include "spool_io.h"

#define PASSAGE_FILE_BYTES (UINT32_C(16) << 20) /* no batch begins behind it */
#define PASSAGE_FILES      8 /* 128 MiB, some seconds of mail at the disk's speed */
#define PASSAGE_PAGE       UINT32_C(4096)
/* Of one message, as far as the files bear it; what the engine puts there is less, see
 * CONTENT_FACTOR in sqlite_passage.c. */
#define PASSAGE_CONTENT_MAX  ((size_t)64 << 10)
#define PASSAGE_ENVELOPE_MAX ((size_t)64 << 10) /* of one message */
#define PASSAGE_BATCH_MAX    ((size_t)1 << 20)  /* messages of one batch; marks come on top */

/* Of a record. */
struct passage_place {
    uint32_t file; /* 0: none */
    uint32_t at;
};

struct passage_file {
    uint32_t number;
    uint64_t generation; /* grows each time that it is begun anew; 0: before this holder's time */
    uint32_t end;        /* of its batches; a multiple of PASSAGE_PAGE */
    uint64_t live;       /* messages and keys in it, those of the open batch included */
    bool failed;         /* a write or sync has: not appended to any more */
};

/* A batch that did not succeed. */
struct passage_void {
    uint64_t generation;
    uint64_t at;
};

struct passage_list {
    uint64_t *all; /* owned */
    size_t count, size;
};

struct passage {
    const struct spool_io *io; /* borrowed */
    char *dir;                 /* owned */
    uint64_t tag;              /* of the spool */
    uint32_t file_bytes;
    struct passage_file *files; /* owned, in order of their numbers */
    size_t file_count, file_size;
    uint32_t highest;    /* number of any file with such a name */
    uint32_t current;    /* number of the file that is appended to; 0: none yet */
    int fd;              /* of the current one, or -1 */
    uint64_t from;       /* batches before this one are void */
    uint64_t sequence;   /* of the next batch */
    uint64_t generation; /* of the file that is begun next */

    /* the open batch */
    char *bytes; /* owned: the batch as it will be in the file, its header last */
    size_t len, size;
    uint32_t records;
    bool written;                    /* to the file, and synced */
    struct passage_list added;       /* numbers of files */
    struct passage_list done, moved; /* ids */
    struct passage_list ended;       /* numbers of files that done and moved ones are in */

    struct passage_list voids; /* generation and place of each, two numbers */
    char *read;                /* owned: the record that was read last */
    size_t read_size;
    const char *why; /* of the last -EBADMSG */
};

/* `dir` is copied. `file_bytes` 0 = PASSAGE_FILE_BYTES; tests take less. Touches nothing. */
void passage_init(struct passage *p, const struct spool_io *io, const char *dir,
                  uint32_t file_bytes);
/* Closes; removes nothing. */
void passage_fini(struct passage *p);

/* ---- start of a holder ---------------------------------------------------------------------- */

/* A message as it was stored. Slices last for the call. */
struct passage_mail {
    struct msg_id id;
    struct slice envelope;
    struct slice content; /* may be damaged; the envelope is not */
    uint64_t content_sum; /* as of when it was stored */
};

struct passage_start {
    uint64_t tag;     /* 0: not known, then that of the first file */
    uint64_t from;    /* batches before this one are void */
    uint64_t commits; /* in the database */
    uint64_t told;    /* there were so many at least; 0 = not known */
    bool only_look;   /* beside a holder, or without one: remove nothing */
    int (*take)(void *context, const struct passage_mail *mail);
    int (*take_key)(void *context, struct msg_id id, struct slice key); /* NULL: none is wanted */
    void *context;
};

struct passage_found {
    uint64_t
        last_id; /* the highest id that was given, as far as batches say; 0: they say nothing */
    uint64_t commits;  /* the highest number of a commit */
    uint64_t next;     /* the number of the next batch: `from` of the next start */
    uint64_t batches;  /* that were not void, whether they have happened or not */
    uint64_t messages; /* given to `take` */
    uint64_t damaged;  /* records that can't be read: messages, or marks of their end */
};

/* Give all messages that are in passage to `take`, whose error ends it and is returned; and learn
 * which files there are. All of them are free then: what they say is void once the database says so
 * (`next`). Nothing is written. */
int passage_begin(struct passage *p, const struct passage_start *start,
                  struct passage_found *ret_found);

/* Is there any file with the name of one, whatever is in it? */
bool passage_is_there(const struct passage *p);

/* ---- the batch ------------------------------------------------------------------------------ */

/* Is there room in the open batch for a message of so many bytes, envelope and content? */
bool passage_fits(const struct passage *p, size_t envelope, uint64_t content);

/* Find the open batch a file, before anything is added. An error fails the batch. */
int passage_open(struct passage *p);

/* Add a message; on an error, which is one of reading its content, nothing has changed. `prefix`,
 * `content.bytes` and what is in `content.fd` make its content. */
int passage_add(struct passage *p, struct msg_id id, struct slice envelope, struct slice prefix,
                const struct spool_content *content, struct passage_place *ret_place,
                uint64_t *ret_content_sum);

/* The message in that file is done, or `moved`: it has rows from this commit on. */
int passage_end(struct passage *p, struct msg_id id, uint32_t file, bool moved);

/* Add the key of a call: bytes that the engine gives and gets again. It is in this file until it
 * has a row, and then the start may still give it. */
int passage_add_key(struct passage *p, struct msg_id id, struct slice key, uint32_t *ret_file);

/* A key in that file has a row from this commit on. */
int passage_end_key(struct passage *p, uint32_t file);

/* Is there something to be written with the next commit? */
bool passage_dirty(const struct passage *p);

/* Write and sync the batch of commit `number`, which changes the database, too, or not. After an
 * error the batch has to be undone. */
int passage_write(struct passage *p, uint64_t number, uint64_t last_id, bool with_database);

void passage_committed(struct passage *p);
void passage_undone(struct passage *p);

/* All messages have rows, or are done, and `sequence` is the `from` of the next start: forget the
 * open batch and what is in files. */
void passage_end_all(struct passage *p);

/* The file whose messages should move to the database; 0: none. */
uint32_t passage_to_empty(const struct passage *p);

/* ---- reading -------------------------------------------------------------------------------- */

/* The message at that place, the open batch included; its slices last until the next call. Without
 * `with_content` its content may be cut. -EBADMSG: it is not there, or damaged: passage_why has the
 * words ("missing ..."). */
int passage_read(struct passage *p, struct passage_place place, struct msg_id id, bool with_content,
                 struct passage_mail *ret_mail);
const char *passage_why(const struct passage *p);

#endif
