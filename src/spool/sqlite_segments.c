/*
 * The sqlite engine: large content in segments (segments.h). This file handles the rows that name
 * records: it counts them at the start, and changes them when a record is moved.
 */
#include "sqlite_engine.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "check.h"
#include "mem.h"

/* Limit of content that is returned as bytes, which go through a socket faster than a descriptor
 * made for them. */
#define READ_AS_BYTES (UINT64_C(64) << 10)
#define ROWS_AT_ONCE  64

uint32_t sqlite_segment_number(int64_t value)
{
    return value > 0 && value <= SEGMENT_NUMBER_MAX ? (uint32_t)value : 0;
}

/* ---- the start ------------------------------------------------------------------------------ */

void sqlite_segments_name(struct sqlite_spool *s, uint32_t segment, int64_t at, int64_t size)
{
    bool makes_sense = at >= 0 && at <= (int64_t)SPOOL_CONTENT_MAX && size >= 0 &&
                       size <= (int64_t)SPOOL_CONTENT_MAX;

    if (segment > 0) {
        segments_count(&s->segments, segment, 1, makes_sense ? (uint64_t)size : 0,
                       makes_sense ? (uint64_t)(at + size) + SEGMENT_HEADER : SPOOL_CONTENT_MAX);
    }
}

static int count_listed(struct sqlite_spool *s)
{
    sqlite3_stmt *st = sqlite_ask(s, ST_SEGMENT_COUNTS);
    int rc;

    while ((rc = sqlite_step(s, st)) == SQLITE_ROW) {
        uint32_t segment = sqlite_segment_number(sqlite3_column_int64(st, 0));

        if (segment > 0) {
            segments_count(&s->segments, segment, (uint64_t)sqlite3_column_int64(st, 1),
                           (uint64_t)sqlite3_column_int64(st, 2),
                           (uint64_t)sqlite3_column_int64(st, 3) + SEGMENT_HEADER);
        }
    }
    return sqlite_done(s, st, rc);
}

/* Counts again, with the index made again if that was damaged. */
static int count_again(struct sqlite_spool *s)
{
    char *dir = mem_string(s->segments.dir);
    uint64_t tag = s->segments.tag, bytes = s->segments.segment_bytes;

    sqlite_mend_indexes(s);
    segments_fini(&s->segments);
    segments_init(&s->segments, s->io, dir, tag, bytes);
    mem_free(dir);
    return count_listed(s);
}

int sqlite_segments_begin(struct sqlite_spool *s)
{
    sqlite3_stmt *st = sqlite_ask(s, ST_SPOOL_TAG);
    int rc = sqlite_step(s, st), err;

    if (rc == SQLITE_ROW) {
        s->segments.tag = (uint64_t)sqlite3_column_int64(st, 0);
    }
    err = sqlite_done(s, st, rc);
    if (err != 0 || s->lock_fd < 0) {
        return err;
    }
    err = count_listed(s);
    if (err == -EUCLEAN) {
        err = count_again(s);
    }
    if (err != 0) {
        return err;
    }
    /* A database that went back to an earlier commit may lack rows. */
    err = s->commits_told > s->commits ? segments_keep(&s->segments) : 0;
    if (err == 0) {
        err = segments_begin(&s->segments);
    }
    return err == 0 ? 0
                    : spool_fail(&s->base, err, "read segments: %s.d: %s", s->path, strerror(-err));
}

/* ---- reading -------------------------------------------------------------------------------- */

struct copy {
    struct buf *bytes;
    int fd; /* a memfd, or -1 */
};

static int take(void *context, struct slice piece)
{
    struct copy *c = context;

    return c->fd >= 0 ? spool_io_write_all(&spool_io_real, c->fd, piece.ptr, piece.len)
           : buf_add(c->bytes, piece) ? 0
                                      : -ENOBUFS;
}

/* Seals a memfd, so that it can't be changed any longer. */
static int seal(int fd)
{
    int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL;

    return fcntl(fd, F_ADD_SEALS, seals) != 0 || lseek(fd, 0, SEEK_SET) != 0 ? -errno : 0;
}

int sqlite_hand_out(struct slice content, struct buf *ret_bytes, int *ret_fd)
{
    struct copy c = {.bytes = ret_bytes, .fd = -1};
    int err;

    if (content.len > READ_AS_BYTES || content.len > ret_bytes->limit - buf_len(ret_bytes)) {
        c.fd = memfd_create("content", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        if (c.fd < 0) {
            return -errno;
        }
    }
    err = take(&c, content);
    if (err == 0 && c.fd >= 0) {
        err = seal(c.fd);
    }
    if (err != 0 && c.fd >= 0) {
        (void)close(c.fd); /* it is memory */
    }
    if (err == 0) {
        *ret_fd = c.fd;
    }
    return err;
}

int sqlite_segments_read(struct sqlite_spool *s, struct msg_id id, struct segment_place place,
                         uint64_t size, uint64_t *ret_sum, struct buf *ret_bytes, int *ret_fd)
{
    struct copy c = {.bytes = ret_bytes, .fd = -1};
    size_t before = ret_bytes == NULL ? 0 : buf_len(ret_bytes);
    int err;

    if (ret_bytes == NULL || size > READ_AS_BYTES || size > ret_bytes->limit - before) {
        c.fd = memfd_create("content", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        if (c.fd < 0) {
            return -errno;
        }
    }
    err = segments_read(&s->segments, place, id, size, ret_sum, take, &c);
    if (err == 0 && c.fd >= 0) {
        err = seal(c.fd);
    }
    if (err != 0) {
        if (c.fd >= 0) {
            (void)close(c.fd); /* it is memory */
        } else {
            buf_truncate(ret_bytes, before);
        }
        return err;
    }
    *ret_fd = c.fd;
    return 0;
}

/* ---- moving --------------------------------------------------------------------------------- */

struct record_row {
    struct msg_id id;
    struct segment_place place;
    uint64_t size;
};

static int rows_of(struct sqlite_spool *s, uint32_t segment, struct record_row rows[ROWS_AT_ONCE],
                   size_t *ret_count)
{
    sqlite3_stmt *st = sqlite_ask(s, ST_SEGMENT_ROWS);
    size_t count = 0;
    int rc, err;

    sqlite_bind_int(st, 1, segment);
    sqlite_bind_int(st, 2, ROWS_AT_ONCE);
    while ((rc = sqlite_step(s, st)) == SQLITE_ROW) {
        int64_t at = sqlite3_column_int64(st, 1), size = sqlite3_column_int64(st, 2);

        CHECK(count < ROWS_AT_ONCE);
        rows[count++] = (struct record_row){.id = {(uint64_t)sqlite3_column_int64(st, 0)},
                                            .place = {segment, at < 0 ? 0 : (uint64_t)at},
                                            .size = size < 0 ? SPOOL_CONTENT_MAX : (uint64_t)size};
    }
    err = sqlite_done(s, st, rc);
    if (err == 0) {
        *ret_count = count;
    }
    return err;
}

/* Copies a record to the active segment. -EBADMSG: it can't be read, and stays in place; its
 * delivery will report that. */
static int move(struct sqlite_spool *s, const struct record_row *row)
{
    struct spool_content content = {.fd_size = row->size};
    struct segment_place place;
    uint64_t sum, again;
    sqlite3_stmt *st;
    int err;

    if (row->size > segments_content_max(&s->segments)) {
        return -EBADMSG;
    }
    err = sqlite_segments_read(s, row->id, row->place, row->size, &sum, NULL, &content.fd);
    if (err != 0) {
        return err;
    }
    err = segments_append(&s->segments, row->id, slice_of(NULL, 0), &content, &place, &again);
    (void)close(content.fd); /* it is memory */
    if (err != 0) {
        return err;
    }
    st = sqlite_ask(s, ST_MESSAGE_MOVE);
    sqlite_bind_int(st, 1, (int64_t)row->id.n);
    sqlite_bind_int(st, 2, place.segment);
    sqlite_bind_int(st, 3, (int64_t)place.at);
    err = sqlite_done(s, st, sqlite_step(s, st));
    if (err != 0) {
        return spool_batch_failed(&s->base, err);
    }
    segments_release(&s->segments, row->place.segment, row->size);
    return 0;
}

int sqlite_segments_empty(struct sqlite_spool *s, uint32_t segment, uint64_t bytes)
{
    struct record_row rows[ROWS_AT_ONCE];
    size_t count = 0, moved = 0;
    uint64_t done = 0;
    int err = rows_of(s, segment, rows, &count);

    for (size_t i = 0; err == 0 && i < count && done < bytes; i++) {
        int failed = move(s, &rows[i]);

        if (s->base.batch_error != 0) {
            return failed;
        }
        if (failed == 0) {
            moved++;
            done += rows[i].size;
        } else if (failed != -EBADMSG) {
            segments_can_not_empty(&s->segments, segment); /* no room or memory now */
            return 0;
        }
    }
    if (err != 0) {
        return spool_batch_failed(&s->base, err);
    }
    if (moved == 0) {
        segments_can_not_empty(&s->segments, segment); /* the remaining records are unlisted or
                                                        * damaged */
    }
    return 0;
}
