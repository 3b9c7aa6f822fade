/*
 * Large content beside the database: files of fixed size ("segments"), each shared by many
 * messages, written once from their beginning to their end.
 *
 *      PATH.d/00000017.segment
 *
 *      0       4096 (SEGMENT_START)            used            SEGMENT_BYTES
 *      |header |record|record| pad |record|pad |  free, or old bytes |
 *                                   ^ a batch begins at a page: what is durable is never in a page
 *                                     that is written again, so that a torn write can't touch it
 *
 *      record: 64 bytes of header (segments.c draws it), then the content
 *
 * The database row of a message names the segment and the offset (struct segment_place). A record
 * also says by itself whose it is: id, size, checksum of the content, its place, and the spool's
 * tag. So a row that names the wrong place is noticed, whatever the reason.
 *
 * What is alive. The rows alone say so: this module is told at the start of each row
 * (segments_count), and afterwards of each append and release. No count is kept on disk that could
 * be wrong, and nothing is scanned but an index of the rows.
 *
 * A segment's life, as far as this process knows it:
 *
 *   segments_append: --> ACTIVE -- no room is left in it, or a write failed --> FULL
 *   makes it              ^  ^ |                                                 |
 *                         |  +-+ nothing lives in it: it starts over             |
 *   segments_append:      |                                                      |
 *   the next              +-- SPARE <------- nothing lives in it ----------------+
 *                                            (or, when there are enough spares: removed)
 *
 *   FOREIGN: rows name it, but the file is missing or not a segment of this spool. Reading from it
 *   is refused, nothing is written to it, and it is never removed.
 *
 * A spare is written again from its beginning, under the same name. Its blocks are on disk already,
 * so the sync of a batch then writes content and nothing else: no journal, no directory.
 *
 * Order of steps, and what a crash right after each leaves:
 *
 *   a new segment: file made, header written and synced,  a segment that no row names: spare
 *     directory synced                                    (without a whole header: a file too
 *                                                         short to hold content, removed)
 *   segments_append: record written, not synced           bytes that no row names; overwritten
 *   segments_sync: synced                                 the same
 *   (commit)  the row names the record                    the message
 *   segments_release                                      the message
 *   (commit)  the row is gone                             bytes that no row names
 *   segments_committed: room may be used again            the same
 *
 * So content is durable before the row that names it, and no byte is overwritten before it is
 * durable that no row names it. A batch that is undone takes its end back (`used` is what it was).
 * When its commit itself failed it may turn out durable after a power cut: then its records stay
 * until a later commit succeeds, which says that it did not.
 *
 * Room is given back by whole segments. One in which little is left is emptied by the engine, which
 * copies what is left to the end of the active one (segments_poorest) a bit at a time.
 *
 * While there is a file PATH.d/keep nothing is overwritten, emptied by copying or removed, so that
 * the database and then the directory can be copied while mail flows.
 *
 * Content above segments_content_max is not for this module: it gets a file of its own
 * (content_file.h), whose cost is small beside the content's, and which gives its room back at
 * once.
 */
#ifndef SPOOL_SEGMENTS_H
#define SPOOL_SEGMENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hash.h"
#include "slice.h"
#include "spool.h"
#include "spool_io.h"

/* 16 MiB: mail that passes uses a few of them again and again, and they stay in the page cache. */
#define SEGMENT_BYTES      (UINT64_C(16) << 20)
#define SEGMENT_START      UINT64_C(4096) /* of the first record; batches are aligned to it */
#define SEGMENT_HEADER     UINT64_C(64)   /* of a record, and what records are aligned to */
#define SEGMENT_SPARES     8              /* empty ones that are kept: 128 MiB */
#define SEGMENT_NUMBER_MAX UINT32_C(0x7fffffff)

struct segment_place {
    uint32_t segment; /* 0: none */
    uint64_t at;      /* of the record's header */
};

struct segment {
    uint32_t number;
    enum { SEGMENT_FULL, SEGMENT_ACTIVE, SEGMENT_SPARE, SEGMENT_FOREIGN } state;
    uint64_t used;      /* from here on it may be written; a multiple of SEGMENT_START between
                           batches */
    uint64_t allocated; /* bytes of the file */
    uint64_t messages;  /* that live in it, those of the open batch and in doubt included */
    uint64_t bytes;     /* of their content */
    bool failed;        /* a write or sync has: not written again before nothing lives in it */
    bool can_not_empty; /* emptying it has failed: something in it is damaged */
    UT_hash_handle hh;
};

/* A record that was appended in the open batch, or is to be released. */
struct segment_change {
    uint32_t segment;
    uint64_t size;
    uint64_t used_before;
};

struct segment_changes {
    struct segment_change *all; /* owned */
    size_t count, size;
};

struct segments {
    const struct spool_io *io; /* borrowed */
    char *dir;                 /* owned */
    uint64_t tag;              /* of the spool */
    uint64_t segment_bytes;
    struct segment *all; /* by number; empty for readers */
    struct segment *active;
    uint32_t highest;  /* number */
    size_t spares;     /* how many */
    bool some_empty;   /* nothing lives in some, and they could not be used again yet */
    int fd;            /* of the active one, or -1 */
    bool unsynced;     /* the active one has been written to */
    int sync_error;    /* of a segment that is not active any more: the batch is lost */
    bool poor_unknown; /* something was released since segments_poorest found none */
    char *piece;       /* owned: what is being written, or read */
    struct segment_changes appended;
    struct segment_changes released; /* the first in_doubt of them stay when the batch is undone */
    size_t in_doubt;
    const char *why; /* of the last -EBADMSG */
};

/* `dir` is copied. `segment_bytes` 0 = SEGMENT_BYTES; tests take less. Touches nothing. A reader
 * needs no more than this. */
void segments_init(struct segments *sg, const struct spool_io *io, const char *dir, uint64_t tag,
                   uint64_t segment_bytes);

/* Closes; removes nothing. */
void segments_fini(struct segments *sg);

/* ---- start of a holder ---------------------------------------------------------------------- */

/* Rows name `messages` records of `bytes` bytes of content in this segment, the last of which ends
 * at `end`. To be called for every segment that rows name, then segments_begin. */
void segments_count(struct segments *sg, uint32_t segment, uint64_t messages, uint64_t bytes,
                    uint64_t end);

/* Look at the files: segments of this spool that no row names become spare or are removed. What is
 * no segment of this spool is left alone. */
int segments_begin(struct segments *sg);

/* Make the file `keep`, if there is a directory: bytes that no row names may be missed. */
int segments_keep(struct segments *sg);

/* ---- the batch ------------------------------------------------------------------------------ */

/* The longest content that a segment takes. */
uint64_t segments_content_max(const struct segments *sg);

/* Append a record. On an error nothing has changed; *ret_checksum is XXH3-64 of the content. */
int segments_append(struct segments *sg, struct msg_id id, struct slice prefix,
                    const struct spool_content *content, struct segment_place *ret_place,
                    uint64_t *ret_checksum);

/* Make the records of the batch durable. */
int segments_sync(struct segments *sg);

/* The record is not wanted once the batch is durable. */
void segments_release(struct segments *sg, uint32_t segment, uint64_t size);

void segments_committed(struct segments *sg);

/* The batch was undone; `in_doubt` as said on top. */
void segments_undone(struct segments *sg, bool in_doubt);

/* Use again, or remove, what nothing lives in; outside a batch. Cheap when there is nothing. */
void segments_tidy(struct segments *sg);

/* ---- reading -------------------------------------------------------------------------------- */

/* Read the content of a record in pieces, each of which is given to `take` (its error ends the
 * reading and is returned). -EBADMSG: what is there is not this record, or it is damaged:
 * segments_why has the words. What was given to `take` before that is not to be used. */
int segments_read(struct segments *sg, struct segment_place place, struct msg_id id, uint64_t size,
                  uint64_t *ret_checksum, int (*take)(void *context, struct slice piece),
                  void *context);

/* "of its segment 00000017 is missing": what follows "its content". */
const char *segments_why(const struct segments *sg);

/* ---- room ----------------------------------------------------------------------------------- */

/* A segment worth emptying: less than half of it (`eager`: 7/8) is alive, that is no more than
 * `room` bytes, and it is not written to now. 0: there is none. */
uint32_t segments_poorest(struct segments *sg, bool eager, uint64_t room);

/* It could not be emptied: segments_poorest does not name it any more, until it may be. */
void segments_can_not_empty(struct segments *sg, uint32_t segment);
void segments_may_empty(struct segments *sg, uint32_t segment);

/* Bytes of dead content in segments, and bytes that can be written without asking the file system
 * for more. */
uint64_t segments_dead_bytes(const struct segments *sg);
uint64_t segments_spare_bytes(const struct segments *sg);

/* Is there any file with the name of a segment, whatever is in it? */
bool segments_are_there(const struct segments *sg);

/* Has a file of the directory the name of a segment without being one of this spool? */
bool segments_is_foreign(struct segments *sg, const char *name);

/* ---- without a database --------------------------------------------------------------------- */

/* A record that was found. It may be of a message that has been delivered, or moved elsewhere. */
struct segment_record {
    uint64_t id;
    uint64_t size;
    uint64_t tag;
    uint64_t checksum; /* as the record says; the content has not been looked at */
    struct segment_place place;
};

/* All records in all segments of a directory, of whatever spool; what can't be read is passed
 * over. For repairs: each segment is read. */
void segments_walk(const struct spool_io *io, const char *dir,
                   void (*found)(void *context, const struct segment_record *record),
                   void *context);

/* Abort unless what is drawn on top holds. For tests. */
void segments_audit(const struct segments *sg);

#endif
