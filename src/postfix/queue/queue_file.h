/*
 * Postfix's queue files: the envelope of a message, its recipients and content, and the few bytes
 * that a queue manager changes.
 *
 * A file is a sequence of records: type (1 byte), length (7 bits per byte, least significant first,
 * bit 8 = more follows), data. It has three segments, in this order:
 *
 *     C size   T arrival   A attribute ..   S sender   R recipient ..   M     envelope
 *     N line ..                                                               content
 *     X   A attribute ..   R recipient ..                                E    extracted
 *     records that only pointers reach
 *
 * cleanup(8) edits a file by writing pointers (`p`) over records; the bytes after such a pointer
 * are the rest of an older record. So a file is read along its pointers, never sequentially, and at
 * most as many bytes as it has: in a file whose pointers form a circle, reading stops at that
 * bound.
 *
 * Agents and bounce(8) mark recipients in the file while others read it. A recipient is identified
 * by the offset of its type byte, and R, D and / are one record in three states. This module
 * decodes and checks bytes, and computes the bytes of a mark; it opens no file.
 *
 * The reader is strict where a wrong guess could lose or misdeliver mail: a file with any fault is
 * corrupt as a whole. An invalid attribute that only affects reports is ignored, and recorded in
 * `odd`.
 */
#ifndef POSTFIX_QUEUE_FILE_H
#define POSTFIX_QUEUE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "buf.h"
#include "slice.h"
#include "times.h"

/* Limit of a record's bytes; a longer record that is read makes the file corrupt. cleanup(8) cuts
 * lines and addresses at line_length_limit (2048), and headers at header_size_limit (102400). */
#define QUEUE_FILE_RECORD_MAX ((size_t)1 << 17)
/* Limit of backward pointers in a file. Each edit by a milter makes two. */
#define QUEUE_FILE_JUMPS_MAX   10000
#define QUEUE_FILE_PROBLEM_MAX 160

/* Reads up to `len` bytes of a file from offset `at`, fewer only at its end; or returns negative
 * errno. */
typedef ssize_t queue_file_read_at(void *context, void *bytes, size_t len, uint64_t at);

struct queue_file_source {
    queue_file_read_at *read;
    void *context;
    uint64_t size; /* size of the file */
};

/* Texts of an envelope. Those of clients are from the log_ attributes, or, in files without any,
 * from the attributes without that prefix. */
enum queue_file_text {
    QUEUE_FILE_SENDER,
    QUEUE_FILE_ENVELOPE_ID,
    QUEUE_FILE_ENCODING, /* "7bit", "8bit" or empty */
    QUEUE_FILE_FILTER,   /* content filter, TRANSPORT:NEXTHOP */
    QUEUE_FILE_INSPECTOR,
    QUEUE_FILE_REDIRECT, /* the only recipient of the whole message */
    QUEUE_FILE_VERP,     /* two delimiters */
    QUEUE_FILE_CLIENT_NAME,
    QUEUE_FILE_CLIENT_ADDRESS,
    QUEUE_FILE_CLIENT_PORT,
    QUEUE_FILE_PROTOCOL_NAME,
    QUEUE_FILE_HELO_NAME,
    QUEUE_FILE_SASL_METHOD,
    QUEUE_FILE_SASL_USERNAME,
    QUEUE_FILE_SASL_SENDER,
    QUEUE_FILE_LOG_IDENT,
    QUEUE_FILE_REWRITE_CONTEXT, /* "local" or "remote" */
    QUEUE_FILE_TEXTS,
};

/* Flags in field 4 of the size record. */
enum queue_file_size_flag {
    QUEUE_FILE_SIZE_MIXED = 1,   /* recipients are mixed with other records */
    QUEUE_FILE_SIZE_NEVER = 2,   /* some recipient has this NOTIFY */
    QUEUE_FILE_SIZE_SUCCESS = 4, /* as QUEUE_FILE_SIZE_NEVER, as do the next two */
    QUEUE_FILE_SIZE_FAILURE = 8,
    QUEUE_FILE_SIZE_DELAY = 16,
    QUEUE_FILE_SIZE_FLAGS = 31,
};

/* Bits of the attribute trace_flags, as agents and bounce(8) use them. */
enum queue_file_trace {
    QUEUE_FILE_TRACE_MTA_PROBE = 256,
    QUEUE_FILE_TRACE_USER_PROBE = 512, /* sendmail -bv */
    QUEUE_FILE_TRACE_RECORD = 1024,    /* sendmail -v */
    QUEUE_FILE_TRACE_DELAY = 8192,
    QUEUE_FILE_TRACE_KNOWN = 0x2700,
};

#define QUEUE_FILE_SENDOPTS_KNOWN 63u

struct queue_file_envelope {
    /* the next six are from the size record */
    uint64_t data_offset;    /* offset of the first record of the content */
    uint64_t data_size;      /* size of the content; X is at data_offset + data_size */
    uint64_t content_length; /* size for SIZE= and the log */
    uint64_t rcpt_count;     /* number of R records when the file was made; later an upper bound */
    unsigned size_flags;     /* bits of enum queue_file_size_flag */
    unsigned sendopts;       /* SMTPUTF8 and other options for agents, field 6 */

    struct wall arrived;   /* record T, to the microsecond */
    struct wall created;   /* base of lifetime and back-off, whole seconds */
    int64_t warn_s;        /* time at which a delay notice is due; 0 = never, < 0 = it was sent */
    uint64_t warn_offset;  /* offset of its record, 0 = it can't be changed */
    unsigned trace_flags;  /* bits of enum queue_file_trace */
    uint64_t trace_offset; /* offset of its record */
    unsigned ret_flags;    /* DSN RET: 0, 1 full, 2 headers */
    char *texts;           /* owned; all texts, each with its NUL, in the order of enum
                            * queue_file_text; NULL: all are empty */

    /* recipients that were read; all of them once the reader is at the end */
    uint32_t undelivered, done, cancelled;
};

/* One R, D or / record. Slices last until the next call on the reader. */
struct queue_file_rcpt {
    uint32_t n;      /* number among R, D and / records in order of reading, from 1: the same at
                      * each reading */
    char type;       /* 'R' pending, 'D' done, '/' cancelled */
    uint64_t offset; /* offset of its type byte, which identifies it */
    struct slice address;
    struct slice original; /* may be empty, as may dsn_original */
    struct slice dsn_original;
    unsigned notify; /* DSN NOTIFY bits, 0 = none given */
};

/* A position after a recipient. It may be copied, and is valid as long as the file exists. */
struct queue_file_cursor {
    uint64_t position;
    uint64_t consumed; /* bytes of records so far, at most the size of the file */
    uint32_t n;
    uint32_t jumps;
    bool extracted; /* X was reached */
};

enum queue_file_read {
    QUEUE_FILE_READ_ITEM,    /* a recipient, or a piece of the content */
    QUEUE_FILE_READ_END,     /* the E record; the envelope is complete */
    QUEUE_FILE_READ_CORRUPT, /* final; `problem` has the cause */
    QUEUE_FILE_READ_FAILED,  /* final; the source failed with `error`, and the file may be valid */
};

/* A reader; embed it. Fields other than envelope, text, odd, problem and error are private to
 * queue_file.c. */
struct queue_file_reader {
    struct queue_file_source source;
    struct queue_file_envelope envelope; /* its texts are in `text` until it is taken */
    struct slice text[QUEUE_FILE_TEXTS]; /* owned; empty ones have ptr "" */
    char odd[QUEUE_FILE_PROBLEM_MAX];    /* first value that was ignored, "ignoring ..", or empty */
    char problem[QUEUE_FILE_PROBLEM_MAX]; /* in the words of Postfix's own manager, if it has any */
    int error;

    struct queue_file_cursor at;
    enum queue_file_read ended; /* QUEUE_FILE_READ_ITEM = not ended */
    bool has_size, has_arrival, has_sender, has_log_client;
    bool only_rcpts;                   /* resumed: the envelope is not read again */
    bool in_content;                   /* for queue_file_content_next */
    struct slice fallback[5];          /* owned; client attributes without log_ */
    struct buf original, dsn_original; /* properties of the next recipient */
    unsigned notify;
    bool forget_dsn; /* they belong to the recipient that was returned last */
    char *window;    /* bytes [window_at, window_at + window_len) of the file */
    size_t window_size, window_len;
    uint64_t window_at;
};

/* Begins to read a file. `source.context` is borrowed until queue_file_fini. */
void queue_file_init(struct queue_file_reader *r, struct queue_file_source source);
void queue_file_fini(struct queue_file_reader *r);

/* Reads the next recipient. Other records go to r->envelope and r->text, where each field is final
 * only at the end: filter, redirect, encoding and attributes may follow the recipients. */
enum queue_file_read queue_file_next(struct queue_file_reader *r, struct queue_file_rcpt *ret_rcpt);

/* Moves the envelope out of a reader that is at the end; queue_file_envelope_fini frees it. */
void queue_file_take_envelope(struct queue_file_reader *r, struct queue_file_envelope *ret);
void queue_file_envelope_fini(struct queue_file_envelope *e);

/* Returns a text of an envelope that was taken; empty if the file has none. It lasts as long as the
 * envelope. */
struct slice queue_file_text(const struct queue_file_envelope *e, enum queue_file_text which);
/* Replaces all texts by copies of these, which have no NUL. */
void queue_file_set_texts(struct queue_file_envelope *e, const struct slice text[QUEUE_FILE_TEXTS]);

/* Returns the position of the reader, for queue_file_resume. Only after QUEUE_FILE_READ_ITEM. */
struct queue_file_cursor queue_file_cursor(const struct queue_file_reader *r);

/* Continues after a cursor of the same file, whose envelope was completely read before: returns
 * only recipients, and r->envelope counts only these. `layout` is borrowed for the call. */
void queue_file_resume(struct queue_file_reader *r, struct queue_file_source source,
                       const struct queue_file_envelope *layout, struct queue_file_cursor cursor);

/* ---- content ---- */

/* Begins to read the content. `layout` is the file's envelope, borrowed for the call. */
void queue_file_content_init(struct queue_file_reader *r, struct queue_file_source source,
                             const struct queue_file_envelope *layout);

/* Reads the next piece of a line, which lasts until the next call; *ret_ends: it is the line's
 * last. QUEUE_FILE_READ_END: X was reached. */
enum queue_file_read queue_file_content_next(struct queue_file_reader *r, struct slice *ret_piece,
                                             bool *ret_ends);

/* ---- marks ---- */

/* Bytes that overwrite a record in place, if its type byte is still `before`. */
#define QUEUE_FILE_MARK_MAX 17
struct queue_file_mark {
    uint64_t offset;
    char before;
    size_t len;
    char bytes[QUEUE_FILE_MARK_MAX];
};

/* Returns the mark that makes the recipient at `offset` done. Agents mark all recipients that they
 * deliver; the manager marks those that it discards. */
struct queue_file_mark queue_file_mark_done(uint64_t offset);
/* Returns the mark that cancels the attribute at `offset` (trace_flags, once its report was
 * sent). */
struct queue_file_mark queue_file_mark_killed(uint64_t offset);
/* Returns the mark for a delay notice that was sent; `offset` is that of its record. */
struct queue_file_mark queue_file_mark_warned(uint64_t offset);

/* ---- writing ---- */

/* Appends a record to *out. */
void queue_file_put(struct buf *out, char type, struct slice data);

/* Reads from bytes in memory: `context` is a struct slice. */
queue_file_read_at queue_file_read_bytes;
/* Reads from a file: `context` is a pointer to its descriptor. */
queue_file_read_at queue_file_read_fd;

#endif
