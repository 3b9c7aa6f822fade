#include "file_writer.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "check.h"

/* cleanup(8) cuts lines at this length (line_length_limit). */
#define LINE_PIECE   2048
#define SIZE_DATA    95
#define SIZE_RECORD  (SIZE_DATA + 2)
#define FLUSH_BYTES  ((size_t)1 << 16)
#define BUFFER_BYTES (FLUSH_BYTES + QUEUE_FILE_RECORD_MAX + 16)

static void flush(struct file_writer *w)
{
    struct slice bytes = buf_slice(&w->bytes);

    CHECK(!w->bytes.failed);
    if (w->error == 0) {
        w->error = spool_io_write_all(w->io, w->fd, bytes.ptr, bytes.len);
    }
    w->at += bytes.len;
    buf_clear(&w->bytes);
}

static uint64_t position(const struct file_writer *w)
{
    return w->at + buf_len(&w->bytes);
}

void file_writer_put(struct file_writer *w, char type, struct slice data)
{
    CHECK(data.len <= QUEUE_FILE_RECORD_MAX);
    queue_file_put(&w->bytes, type, data); /* there is room */
    if (buf_len(&w->bytes) >= FLUSH_BYTES) {
        flush(w);
    }
}

void file_writer_begin(struct file_writer *w, const struct spool_io *io, int fd)
{
    char blank[SIZE_DATA];

    *w = (struct file_writer){.io = io, .fd = fd};
    buf_init(&w->bytes, BUFFER_BYTES);
    memset(blank, ' ', sizeof blank);
    file_writer_put(w, 'C', slice_of(blank, sizeof blank));
}

void file_writer_fini(struct file_writer *w)
{
    buf_fini(&w->bytes);
}

void file_writer_attribute(struct file_writer *w, const char *name, struct slice value)
{
    struct buf both;

    buf_init(&both, QUEUE_FILE_RECORD_MAX);
    if (buf_addf(&both, "%s=%.*s", name, SLICE_ARGS(value))) {
        file_writer_put(w, 'A', buf_slice(&both));
    }
    buf_fini(&both);
}

uint64_t file_writer_rcpt(struct file_writer *w, struct slice address, struct slice dsn_original,
                          unsigned notify, bool done)
{
    char number[16];
    uint64_t at;

    if (notify != 0) {
        (void)snprintf(number, sizeof number, "%u", notify); /* it fits */
        file_writer_attribute(w, "notify_flags", slice_string(number));
        w->size_flags |= notify << 1;
    }
    if (dsn_original.len > 0) {
        file_writer_attribute(w, "dsn_orig_rcpt", dsn_original);
    }
    file_writer_put(w, 'O', address);
    at = position(w);
    file_writer_put(w, done ? 'D' : 'R', address);
    w->rcpts++;
    return at;
}

void file_writer_content(struct file_writer *w)
{
    file_writer_put(w, 'M', SLICE(""));
    w->data_at = position(w);
}

static void put_piece(struct file_writer *w, struct slice piece, bool ends)
{
    for (; piece.len > LINE_PIECE; piece = slice_skip(piece, LINE_PIECE)) {
        file_writer_put(w, 'L', slice_of(piece.ptr, LINE_PIECE));
    }
    if (ends || piece.len > 0) {
        file_writer_put(w, ends ? 'N' : 'L', piece);
    }
    w->in_line = !ends;
}

void file_writer_feed(struct file_writer *w, struct slice wire)
{
    while (wire.len > 0) {
        size_t end = slice_find(wire, '\n');
        bool ends = end < wire.len;
        struct slice line = slice_of(wire.ptr, end);

        wire = slice_skip(wire, ends ? end + 1 : end);
        if (w->after_cr && !(ends && line.len == 0)) {
            put_piece(w, SLICE("\r"), false); /* this CR was not part of a line end */
        }
        w->after_cr = false;
        if (line.len > 0 && line.ptr[line.len - 1] == '\r') {
            line.len--;
            w->after_cr = !ends;
        }
        if (ends || line.len > 0) {
            put_piece(w, line, ends);
        }
    }
}

void file_writer_end(struct file_writer *w, unsigned sendopts)
{
    char size[SIZE_RECORD + 1] = {'C', SIZE_DATA};
    uint64_t length;
    ssize_t n;

    if (w->after_cr) {
        put_piece(w, SLICE("\r"), false);
    }
    if (w->in_line || position(w) == w->data_at) {
        put_piece(w, SLICE(""), true);
    }
    length = position(w) - w->data_at;
    file_writer_put(w, 'X', SLICE(""));
    file_writer_put(w, 'E', SLICE(""));
    flush(w);
    (void)snprintf(size + 2, sizeof size - 2,
                   "%15" PRIu64 " %15" PRIu64 " %15" PRIu64 " %15u %15" PRIu64 " %15u", length,
                   w->data_at, w->rcpts, w->size_flags, length, sendopts); /* it fits */
    if (w->error == 0) {
        n = w->io->pwrite(w->fd, size, SIZE_RECORD, 0);
        w->error = n < 0 ? (int)n : n == SIZE_RECORD ? 0 : -EIO;
    }
}
