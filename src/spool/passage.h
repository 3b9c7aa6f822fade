/*
 * Mail in passage: messages that are delivered at once, as most are, never reach the database.
 * Their data, and marks of their end, are appended to files outside the database:
 *
 *      PATH.d/00000002.passage
 *
 *      0       4096          8192                      PASSAGE_FILE_BYTES or a little more
 *      |header |batch: records  |pad|batch ..|pad| free, or old batches |
 *                                   ^ a batch begins at a page: durable bytes are never in a page
 *                                     that is written again
 *
 * Each commit with such data writes one batch in one sequence and syncs it once. The records of a
 * batch are messages (envelope and content), keys of client requests (spool_keys.h), and marks.
 * Marks name messages that are done, messages that have moved to the database because they stay
 * (deferred, held, read by a search), and batches that failed. passage.c draws the bytes.
 *
 * A batch has happened when it is complete and, if its commit also changed the database, the
 * database has that commit. The batch is written and synced first, so the order is
 *
 *   passage_write: written and synced        without the database: the batch has happened;
 *                                            with it: a crash leaves a batch that has not
 *   (commit of the database)                 it has happened
 *
 * A batch whose write, sync or commit failed is in doubt: it may be in the file, complete, but
 * nothing in it was acknowledged. The next batch that succeeds marks it as void. Until then a crash
 * may bring it back, complete.
 *
 * At the start all batches that have happened are read. The engine gets each message without a mark
 * and makes rows for it. Then all earlier batches become void by a number in the database (`from`),
 * so files are needed from one start to the next at most.
 *
 *      FREE ------passage_add, passage_end-----> CURRENT --full--> IN USE
 *        ^                                                           |
 *        '----- no message is left in it, or in an older file -------'
 *
 * Files are reused in the order in which they were written, because the marks of a message may be
 * in any later file. When PASSAGE_FILES are in use, the engine moves the rest of the oldest file to
 * the database (passage_to_empty). While a file PATH.d/keep exists, no file is overwritten: then
 * there are more files, and those beyond PASSAGE_FILES are removed later.
 */
#ifndef SPOOL_PASSAGE_H
#define SPOOL_PASSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "slice.h"
#include "spool.h"
#include "spool_io.h"

#define PASSAGE_FILE_BYTES (UINT32_C(16) << 20) /* no batch begins after this offset */
#define PASSAGE_FILES      8 /* 128 MiB, some seconds of mail at the disk's speed */
#define PASSAGE_PAGE       UINT32_C(4096)
/* Limit of a message's content in these files. The engine puts smaller content there, see
 * CONTENT_FACTOR in sqlite_passage.c. */
#define PASSAGE_CONTENT_MAX  ((size_t)64 << 10)
#define PASSAGE_ENVELOPE_MAX ((size_t)64 << 10) /* limit of a message's envelope */
#define PASSAGE_BATCH_MAX    ((size_t)1 << 20)  /* limit of one batch without its marks */

/* The place of a record. */
struct passage_place {
    uint32_t file; /* number of the file; 0 = none */
    uint32_t at;
};

struct passage_file {
    uint32_t number;
    uint64_t generation; /* rises each time the file is overwritten; 0 = not used since the start */
    uint32_t end;        /* end of its batches; a multiple of PASSAGE_PAGE */
    uint64_t live;       /* number of messages and keys in it, including those of the open batch */
    bool failed;         /* a write or sync failed, so nothing is appended to it */
};

/* A batch that failed. */
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
    uint64_t tag;              /* tag of the spool */
    uint32_t file_bytes;
    struct passage_file *files; /* owned, in order of their numbers */
    size_t file_count, file_size;
    uint32_t highest;    /* highest number in the name of a file */
    uint32_t current;    /* number of the file that is appended to; 0 = none yet */
    int fd;              /* descriptor of the current file, or -1 */
    uint64_t from;       /* batches before this one are void */
    uint64_t sequence;   /* number of the next batch */
    uint64_t generation; /* generation of the next file */

    /* the open batch */
    char *bytes; /* owned; the batch as it will be in the file; its header is filled last */
    size_t len, size;
    uint32_t records;
    bool written;                    /* the batch was written, at least in part */
    struct passage_list added;       /* numbers of files that messages and keys were added to */
    struct passage_list done, moved; /* ids */
    struct passage_list ended;       /* numbers of the files of messages and keys that end */

    struct passage_list voids; /* void batches: generation and place of each, two numbers */
    char *read;                /* owned; the last record read */
    size_t read_size;
    const char *why; /* cause of the last -EBADMSG */
};

/* Sets up the struct and copies `dir`. `file_bytes` 0 = PASSAGE_FILE_BYTES; tests use less. Makes
 * no system call. */
void passage_init(struct passage *p, const struct spool_io *io, const char *dir,
                  uint32_t file_bytes);
/* Closes the file; removes none. */
void passage_fini(struct passage *p);

/* ---- start of a holder ---------------------------------------------------------------------- */

/* A message as it was stored. Its slices last for the call. */
struct passage_mail {
    struct msg_id id;
    struct slice envelope;
    struct slice content; /* may be damaged; the envelope is not */
    uint64_t content_sum; /* sum of the content when it was stored */
};

struct passage_start {
    uint64_t tag;     /* tag of the spool; 0 = unknown, use that of the first file */
    uint64_t from;    /* batches before this one are void */
    uint64_t commits; /* number of the database's last commit */
    uint64_t told;    /* lower bound of the number of commits before; 0 = unknown */
    bool only_look;   /* another process may write to the files: remove none */
    int (*take)(void *context, const struct passage_mail *mail);
    int (*take_key)(void *context, struct msg_id id, struct slice key); /* NULL = keys are
                                                                         * ignored */
    void *context;
};

struct passage_found {
    uint64_t last_id;  /* highest id ever submitted, according to the batches; 0 = no batch */
    uint64_t commits;  /* highest number of a commit */
    uint64_t next;     /* number of the next batch: `from` of the next start */
    uint64_t batches;  /* number of batches that were not void, whether they have happened or not */
    uint64_t messages; /* number of messages passed to `take` */
    uint64_t damaged;  /* number of records that can't be read: messages, or marks of their end */
};

/* Finds the files, and passes all messages in passage to `take`. An error of `take` stops it and is
 * returned. Afterwards all files are free: their batches are void once the database stores `next`.
 * Writes nothing. */
int passage_begin(struct passage *p, const struct passage_start *start,
                  struct passage_found *ret_found);

/* Is there any file with the name of a passage file, whatever its content? */
bool passage_is_there(const struct passage *p);

/* ---- the batch ------------------------------------------------------------------------------ */

/* Has the open batch room for a message of so many bytes, envelope and content? */
bool passage_fits(const struct passage *p, size_t envelope, uint64_t content);

/* Finds a file for the open batch, before anything is added. An error fails the batch. */
int passage_open(struct passage *p);

/* Adds a message. Its content is `prefix`, `content.bytes` and the bytes of `content.fd`. An error
 * in reading `content.fd` is returned, and changes nothing. */
int passage_add(struct passage *p, struct msg_id id, struct slice envelope, struct slice prefix,
                const struct spool_content *content, struct passage_place *ret_place,
                uint64_t *ret_content_sum);

/* Marks a message in that file as done, or as `moved`: it has rows from this commit on. */
int passage_end(struct passage *p, struct msg_id id, uint32_t file, bool moved);

/* Adds the key of a client request: bytes that the engine makes, and gets back at the start. The
 * key stays in this file until it has a row; the start may return it even then. */
int passage_add_key(struct passage *p, struct msg_id id, struct slice key, uint32_t *ret_file);

/* Records that a key in that file has a row from this commit on. */
int passage_end_key(struct passage *p, uint32_t file);

/* Has the next commit anything to write? */
bool passage_dirty(const struct passage *p);

/* Writes and syncs the batch of commit `number`. `with_database`: the commit changes the database,
 * too. After an error the batch must be undone. */
int passage_write(struct passage *p, uint64_t number, uint64_t last_id, bool with_database);

void passage_committed(struct passage *p);
void passage_undone(struct passage *p);

/* Forgets the open batch and all messages in files. All messages must have rows or be done, and
 * `sequence` must be the `from` of the next start. */
void passage_end_all(struct passage *p);

/* Returns the file whose messages should move to the database; 0 = none. */
uint32_t passage_to_empty(const struct passage *p);

/* ---- reading -------------------------------------------------------------------------------- */

/* Reads the message at that place, in the open batch, too; its slices last until the next call.
 * Without `with_content` the content may be cut. -EBADMSG: the message is missing or damaged;
 * passage_why returns the cause ("missing ..."). */
int passage_read(struct passage *p, struct passage_place place, struct msg_id id, bool with_content,
                 struct passage_mail *ret_mail);
const char *passage_why(const struct passage *p);

#endif
