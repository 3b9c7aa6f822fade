/*
 * Writes a queue file from beginning to end; only the size record at its beginning is completed
 * last.
 */
#ifndef POSTFIX_FILE_WRITER_H
#define POSTFIX_FILE_WRITER_H

#include "queue_file.h"
#include "spool_io.h"

/* Fields are private to file_writer.c, except `error`: 0, or the first error of the disk, after
 * which calls do nothing. */
struct file_writer {
    const struct spool_io *io;
    int fd; /* borrowed */
    int error;
    struct buf bytes; /* bytes not written yet */
    uint64_t at;      /* their offset in the file */
    uint64_t data_at, data_end;
    uint64_t rcpts;
    unsigned size_flags;
    bool in_line; /* the content's last line has no end yet */
    bool after_cr;
};

/* Begins a file; `fd` must be of an empty one. */
void file_writer_begin(struct file_writer *w, const struct spool_io *io, int fd);
void file_writer_fini(struct file_writer *w);

/* Writes a record of the envelope. */
void file_writer_put(struct file_writer *w, char type, struct slice data);
void file_writer_attribute(struct file_writer *w, const char *name, struct slice value);
/* Writes a recipient with its attributes. Returns the offset of its record. `done`: it must not be
 * delivered. */
uint64_t file_writer_rcpt(struct file_writer *w, struct slice address, struct slice dsn_original,
                          unsigned notify, bool done);

/* Begins the content, which file_writer_feed writes, in wire form and in pieces of any size. */
void file_writer_content(struct file_writer *w);
void file_writer_feed(struct file_writer *w, struct slice wire);

/* Writes the end of the file, then its size record. */
void file_writer_end(struct file_writer *w, unsigned sendopts);

#endif
