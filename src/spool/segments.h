/*
 * Large content outside the database: files of fixed size ("segments"), each shared by many
 * messages, written once from beginning to end.
 *
 *      PATH.d/00000017.segment
 *
 *      0       4096 (SEGMENT_START)            used            SEGMENT_BYTES
 *      |header |record|record| pad |record|pad |  free, or old bytes |
 *                                   ^ a batch begins at a page: durable bytes are never in a page
 *                                     that is written again, so that a torn write can't touch them
 *
 *      record: 64 bytes of header (segments.c draws it), then the content
 *
 * The database row of a message names the segment and the offset (struct segment_place). A record
 * also identifies itself: id, size, checksum of the content, its place, and the spool's tag. So a
 * row that names the wrong place is always noticed.
 *
 * A record is live as long as a row names it. At the start the engine counts the rows of each
 * segment (segments_count); later each append and release changes the counts. No count is on disk
 * that could be wrong, and the start scans nothing but an index of the rows.
 *
 * A segment's states, which are in memory only:
 *
 *   segments_append  --> ACTIVE -- no room is left in it, or a write failed --> FULL
 *   creates it            ^  ^ |                                                 |
 *                         |  +-+ no live record: it starts over                  |
 *   a later               |                                                      |
 *   segments_append       +-- SPARE <------- no live record ---------------------+
 *                                            (or, if there are enough spares: removed)
 *
 *   FOREIGN: rows name it, but the file is missing or not a segment of this spool. Reads
 *   of it fail, and it is never written or removed.
 *
 * A spare is overwritten from its beginning, under the same name. Its blocks are already on disk,
 * so the sync of a batch then writes content and nothing else: no journal, no directory.
 *
 * Order of steps, and the state that a crash right after each leaves:
 *
 *   a new segment: file made, header written and synced,  a segment that no row names: spare
 *     directory synced                                    (without a complete header: a file too
 *                                                         short to hold content, removed)
 *   segments_append: record written, not synced           bytes that no row names; overwritten
 *   segments_sync: synced                                 the same
 *   (commit)  the row names the record                    the message
 *   segments_release                                      the message
 *   (commit)  the row is gone                             bytes that no row names
 *   segments_committed: room may be used again            the same
 *
 * So content is durable before the row that names it, and no byte is overwritten before the removal
 * of its row is durable. When a batch is undone, `used` goes back to its previous value. But if its
 * commit itself failed, the batch is in doubt: it may turn out durable after a power cut. Then its
 * records stay until a later commit succeeds and proves that it was not.
 *
 * Room is freed by whole segments. The engine empties a segment with few live records by copying
 * these to the end of the active one, a few at a time (segments_poorest).
 *
 * While a file PATH.d/keep exists, nothing is overwritten, emptied by copying or removed, so that
 * the database and then the directory can be copied while mail flows.
 *
 * Content above segments_content_max is not for this module. It gets a file of its own
 * (content_file.h), whose cost is small compared with the content, and whose room is freed at once.
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

/* 16 MiB: passing mail uses a few segments again and again, and they stay in the page cache. */
#define SEGMENT_BYTES      (UINT64_C(16) << 20)
#define SEGMENT_START      UINT64_C(4096) /* offset of the first record; alignment of batches */
#define SEGMENT_HEADER     UINT64_C(64)   /* size of a record's header; alignment of records */
#define SEGMENT_SPARES     8              /* number of empty segments that are kept: 128 MiB */
#define SEGMENT_NUMBER_MAX UINT32_C(0x7fffffff)

struct segment_place {
    uint32_t segment; /* 0 = none */
    uint64_t at;      /* offset of the record's header */
};

struct segment {
    uint32_t number;
    enum { SEGMENT_FULL, SEGMENT_ACTIVE, SEGMENT_SPARE, SEGMENT_FOREIGN } state;
    uint64_t used;      /* end of used bytes, where the next write begins; a multiple of
                         * SEGMENT_START between batches */
    uint64_t allocated; /* size of the file */
    uint64_t messages;  /* number of live records, including those of the open batch and in doubt */
    uint64_t bytes;     /* bytes of their content */
    bool failed;        /* a write or sync failed: not written again while it has live records */
    bool can_not_empty; /* emptying it failed, as a record in it is damaged */
    UT_hash_handle hh;
};

/* A record that was appended in the open batch, or will be released. */
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
    uint64_t tag;              /* tag of the spool */
    uint64_t segment_bytes;
    struct segment *all; /* by number; empty for readers */
    struct segment *active;
    uint32_t highest;  /* highest number */
    size_t spares;     /* number of spares */
    bool some_empty;   /* some segments have no live record and could not be freed yet */
    int fd;            /* descriptor of the active segment, or -1 */
    bool unsynced;     /* the active segment was written to since the last sync */
    int sync_error;    /* sync error of a segment that is no longer active: the batch is lost */
    bool poor_unknown; /* a record was released since segments_poorest found none */
    char *piece;       /* owned; buffer for writing and reading */
    struct segment_changes appended;
    struct segment_changes released; /* the first in_doubt of them stay when the batch is undone */
    size_t in_doubt;
    const char *why; /* cause of the last -EBADMSG */
};

/* Sets up the struct and copies `dir`. `segment_bytes` 0 = SEGMENT_BYTES; tests use less. Makes no
 * system call. A reader needs no other call before segments_read. */
void segments_init(struct segments *sg, const struct spool_io *io, const char *dir, uint64_t tag,
                   uint64_t segment_bytes);

/* Closes the active segment; removes none. */
void segments_fini(struct segments *sg);

/* ---- start of a holder ---------------------------------------------------------------------- */

/* Adds rows to the counts of a segment: `messages` records with `bytes` bytes of content, the last
 * of which ends at `end`. Call it for every segment that rows name, then segments_begin. */
void segments_count(struct segments *sg, uint32_t segment, uint64_t messages, uint64_t bytes,
                    uint64_t end);

/* Reads the directory: segments of this spool that no row names become spare or are removed.
 * Ignores other files. */
int segments_begin(struct segments *sg);

/* Creates the file `keep`, if the directory exists, as bytes that no row names may still be
 * needed. */
int segments_keep(struct segments *sg);

/* ---- the batch ------------------------------------------------------------------------------ */

/* Returns the limit of content in segments. */
uint64_t segments_content_max(const struct segments *sg);

/* Appends a record. *ret_checksum is XXH3-64 of the content. An error changes nothing. */
int segments_append(struct segments *sg, struct msg_id id, struct slice prefix,
                    const struct spool_content *content, struct segment_place *ret_place,
                    uint64_t *ret_checksum);

/* Makes the records of the batch durable. */
int segments_sync(struct segments *sg);

/* Releases a record once the batch is durable. */
void segments_release(struct segments *sg, uint32_t segment, uint64_t size);

void segments_committed(struct segments *sg);

/* Undoes the batch; `in_doubt` as described above. */
void segments_undone(struct segments *sg, bool in_doubt);

/* Makes segments without live records spare, or removes them; outside a batch. Cheap if there are
 * none. */
void segments_tidy(struct segments *sg);

/* ---- reading -------------------------------------------------------------------------------- */

/* Reads the content of a record and passes it to `take` piece by piece; an error of `take` stops it
 * and is returned. -EBADMSG: the record is missing or damaged; segments_why has the cause, and the
 * pieces passed to `take` must not be used. */
int segments_read(struct segments *sg, struct segment_place place, struct msg_id id, uint64_t size,
                  uint64_t *ret_checksum, int (*take)(void *context, struct slice piece),
                  void *context);

/* Returns the cause of an error as the end of a sentence that begins with "its content is". */
const char *segments_why(const struct segments *sg);

/* ---- room ----------------------------------------------------------------------------------- */

/* Returns a segment worth emptying: less than half (`eager`: 7/8) of its used bytes is live, its
 * content is at most `room` bytes, and it is not active. 0 = none. */
uint32_t segments_poorest(struct segments *sg, bool eager, uint64_t room);

/* Excludes a segment that could not be emptied from segments_poorest; segments_may_empty includes
 * it again. */
void segments_can_not_empty(struct segments *sg, uint32_t segment);
void segments_may_empty(struct segments *sg, uint32_t segment);

/* Returns the bytes of dead content in segments, and the bytes that can be written without more
 * space from the file system. */
uint64_t segments_dead_bytes(const struct segments *sg);
uint64_t segments_spare_bytes(const struct segments *sg);

/* Is there any file with the name of a segment, whatever its content? */
bool segments_are_there(const struct segments *sg);

/* Is this the name of a segment, but its file not a segment of this spool? */
bool segments_is_foreign(struct segments *sg, const char *name);

/* ---- without a database --------------------------------------------------------------------- */

/* A record found in a file. Its message may have been delivered, or its content moved elsewhere. */
struct segment_record {
    uint64_t id;
    uint64_t size;
    uint64_t tag;
    uint64_t checksum; /* sum stored in the header; the content was not read */
    struct segment_place place;
};

/* Finds all records in all segments of a directory, of any spool, and skips unreadable bytes. For
 * repairs: reads every segment. */
void segments_walk(const struct spool_io *io, const char *dir,
                   void (*found)(void *context, const struct segment_record *record),
                   void *context);

/* Aborts unless the invariants above hold. For tests. */
void segments_audit(const struct segments *sg);

#endif
