/*
 * Writing a queue file from its beginning to its end. The size record, which stands first, is
 * written last.
 */
#ifndef POSTFIX_FILE_WRITER_H
#define POSTFIX_FILE_WRITER_H

#include "queue_file.h"
#include "spool_io.h"

/* Fields are private to file_writer.c, but for `error`: 0, or what the disk said first; later calls
 * then do nothing. */
struct file_writer {
    const struct spool_io *io;
    int fd; /* borrowed */
    int error;
    struct buf bytes; /* not written yet */
    uint64_t at;      /* in the file, of their beginning */
    uint64_t data_at, data_end;
    uint64_t rcpts;
    unsigned size_flags;
    bool in_line; /* the content's last line has no end yet */
    bool after_cr;
};

/* `fd` is of an empty file. */
void file_writer_begin(struct file_writer *w, const struct spool_io *io, int fd);
void file_writer_fini(struct file_writer *w);

/* A record of the envelope. */
void file_writer_put(struct file_writer *w, char type, struct slice data);
void file_writer_attribute(struct file_writer *w, const char *name, struct slice value);
/* A recipient, and what is said of it: where its record is. `done`: it is not to be delivered. */
uint64_t file_writer_rcpt(struct file_writer *w, struct slice address, struct slice dsn_original,
                          unsigned notify, bool done);

/* The content follows, in wire form, in any pieces. */
void file_writer_content(struct file_writer *w);
void file_writer_feed(struct file_writer *w, struct slice wire);

/* All was said. */
void file_writer_end(struct file_writer *w, unsigned sendopts);

#endif
