/*
 * Postfix's queue files: the envelope of one message, its recipients and content, and the few bytes
 * of them that a queue manager changes.
 *
 * A file is a sequence of records: type (1 byte), length (7 bits per byte, least significant first,
 * bit 8 = more follows), data. Three segments, in this order:
 *
 *     C size   T arrival   A attribute ..   S sender   R recipient ..   M     envelope
 *     N line ..                                                               content
 *     X   A attribute ..   R recipient ..                                E    extracted
 *     records that only pointers reach
 *
 * cleanup(8) edits a file by writing pointers (`p`) over records; what stands behind such a pointer
 * is the rest of an older record. So a file is read along its pointers, never from front to back,
 * and no byte twice: a file whose pointers make a circle ends at that bound.
 *
 * Agents and bounce(8) mark recipients in the file while others read it: a recipient's identity is
 * the offset of its type byte, and R, D and / are one record in three states. This module turns
 * bytes into checked values and says which bytes a mark writes; it opens nothing.
 *
 * Strict where a wrong guess could lose or misdeliver mail: a file with anything that is not as it
 * should be is corrupt as a whole. An attribute whose value makes no sense, but that changes only
 * how mail is reported, is left out, and `odd` says so.
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

/* Bytes of a record that is looked into; a longer one makes the file corrupt. cleanup(8) cuts lines
 * and addresses at line_length_limit (2048), and headers at header_size_limit (102400). */
#define QUEUE_FILE_RECORD_MAX ((size_t)1 << 17)
/* Pointers that lead backwards, of one file. Each edit by a milter makes two. */
#define QUEUE_FILE_JUMPS_MAX   10000
#define QUEUE_FILE_PROBLEM_MAX 160

/* Where the bytes come from: up to `len` bytes from offset `at`, fewer only at the end; or negative
 * errno. */
typedef ssize_t queue_file_read_at(void *context, void *bytes, size_t len, uint64_t at);

struct queue_file_source {
    queue_file_read_at *read;
    void *context;
    uint64_t size; /* of the file */
};

/* Texts of an envelope. Those of clients come from the log_ attributes, or, in files without any,
 * from the attributes without that prefix. */
enum queue_file_text {
    QUEUE_FILE_SENDER,
    QUEUE_FILE_ENVELOPE_ID,
    QUEUE_FILE_ENCODING, /* "7bit", "8bit" or empty */
    QUEUE_FILE_FILTER,   /* content filter, TRANSPORT:NEXTHOP */
    QUEUE_FILE_INSPECTOR,
    QUEUE_FILE_REDIRECT, /* the whole message goes to this recipient alone */
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

/* Field 4 of the size record. */
enum queue_file_size_flag {
    QUEUE_FILE_SIZE_MIXED = 1,   /* recipients are mixed with other records */
    QUEUE_FILE_SIZE_NEVER = 2,   /* some recipient has this NOTIFY */
    QUEUE_FILE_SIZE_SUCCESS = 4, /* and so on */
    QUEUE_FILE_SIZE_FAILURE = 8,
    QUEUE_FILE_SIZE_DELAY = 16,
    QUEUE_FILE_SIZE_FLAGS = 31,
};

/* Bits of attribute trace_flags, as agents and bounce(8) know them. */
enum queue_file_trace {
    QUEUE_FILE_TRACE_MTA_PROBE = 256,
    QUEUE_FILE_TRACE_USER_PROBE = 512, /* sendmail -bv */
    QUEUE_FILE_TRACE_RECORD = 1024,    /* sendmail -v */
    QUEUE_FILE_TRACE_DELAY = 8192,
    QUEUE_FILE_TRACE_KNOWN = 0x2700,
};

#define QUEUE_FILE_SENDOPTS_KNOWN 63u

struct queue_file_envelope {
    /* the size record */
    uint64_t data_offset;    /* of the first record of the content */
    uint64_t data_size;      /* X stands at data_offset + data_size */
    uint64_t content_length; /* for SIZE= and the log */
    uint64_t rcpt_count;     /* R records when the file was made; an upper bound later */
    unsigned size_flags;     /* enum queue_file_size_flag */
    unsigned sendopts;       /* SMTPUTF8 and what else agents are to be told, field 6 */

    struct wall arrived;   /* record T, to the microsecond */
    struct wall created;   /* base of lifetime and back-off, whole seconds */
    int64_t warn_s;        /* when a delay warning is due; 0 = never, < 0 = it was sent */
    uint64_t warn_offset;  /* of its record, 0 = it can't be changed */
    unsigned trace_flags;  /* enum queue_file_trace */
    uint64_t trace_offset; /* of its record */
    unsigned ret_flags;    /* DSN RET: 0, 1 full, 2 headers */
    struct slice text[QUEUE_FILE_TEXTS]; /* owned; empty ones have ptr "" */

    /* recipients that were met; all of them once the reader has come to the end */
    uint32_t undelivered, done, cancelled;
    char odd[QUEUE_FILE_PROBLEM_MAX]; /* what was left out first, "ignoring ..", or empty */
};

/* One R, D or / record. Slices last until the next call on the reader. */
struct queue_file_rcpt {
    uint32_t n;      /* R, D and / records in order of reading, from 1: the same at each reading */
    char type;       /* 'R' to be delivered, 'D' done, '/' cancelled */
    uint64_t offset; /* of its type byte: its identity */
    struct slice address;
    struct slice original; /* may be empty, as dsn_original */
    struct slice dsn_original;
    unsigned notify; /* DSN NOTIFY bits, 0 = none given */
};

/* Where to go on after a recipient. A plain value, good for as long as the file lives. */
struct queue_file_cursor {
    uint64_t position;
    uint64_t consumed; /* bytes of records so far, of which a file has no more than its size */
    uint32_t n;
    uint32_t jumps;
    bool extracted; /* X is passed */
};

enum queue_file_read {
    QUEUE_FILE_READ_ITEM,    /* a recipient, or a piece of the content */
    QUEUE_FILE_READ_END,     /* the E record; the envelope is complete */
    QUEUE_FILE_READ_CORRUPT, /* final; `problem` says what is wrong */
    QUEUE_FILE_READ_FAILED,  /* final; the source failed with `error`: says nothing of the file */
};

/* Embed it; fields other than envelope, problem and error are private to queue_file.c. */
struct queue_file_reader {
    struct queue_file_source source;
    struct queue_file_envelope envelope;
    char problem
        [QUEUE_FILE_PROBLEM_MAX]; /* in the words that Postfix's own manager logs, if it has any */
    int error;

    struct queue_file_cursor at;
    enum queue_file_read ended; /* QUEUE_FILE_READ_ITEM: not yet */
    bool has_size, has_arrival, has_sender, has_log_client;
    bool only_rcpts;                   /* resumed: the envelope is not gathered again */
    bool in_content;                   /* of queue_file_content_next */
    struct slice fallback[5];          /* owned; client attributes without log_ */
    struct buf original, dsn_original; /* of the recipient to come */
    unsigned notify;
    bool forget_dsn; /* they were given out */
    char *window;    /* bytes [window_at, window_at + window_len) of the file */
    size_t window_size, window_len;
    uint64_t window_at;
};

/* Read from the beginning. `source.context` is borrowed for the life of the reader. */
void queue_file_init(struct queue_file_reader *r, struct queue_file_source source);
void queue_file_fini(struct queue_file_reader *r);

/* The next recipient. Everything else goes to r->envelope, where each field is final only at the
 * end: filter, redirect, encoding and attributes may stand behind the recipients. */
enum queue_file_read queue_file_next(struct queue_file_reader *r, struct queue_file_rcpt *ret_rcpt);

/* Move the envelope out of the reader, once it has come to the end; free it with
 * queue_file_envelope_fini. */
void queue_file_take_envelope(struct queue_file_reader *r, struct queue_file_envelope *ret);
void queue_file_envelope_fini(struct queue_file_envelope *e);
/* An envelope of which nothing is known. */
void queue_file_envelope_clear(struct queue_file_envelope *ret);

/* Where the reader stands, for queue_file_resume. Only after QUEUE_FILE_READ_ITEM. */
struct queue_file_cursor queue_file_cursor(const struct queue_file_reader *r);

/* Read on behind a cursor of the same file, whose envelope was read to its end before: only
 * recipients are told, and r->envelope counts those alone. `layout` is borrowed for the call. */
void queue_file_resume(struct queue_file_reader *r, struct queue_file_source source,
                       const struct queue_file_envelope *layout, struct queue_file_cursor cursor);

/* ---- content ---- */

/* Start on the content: `layout` is the file's envelope, borrowed for the call. */
void queue_file_content_init(struct queue_file_reader *r, struct queue_file_source source,
                             const struct queue_file_envelope *layout);

/* The next piece of a line, which lasts until the next call; *ret_ends when the line ends with it.
 * QUEUE_FILE_READ_END: X was reached. */
enum queue_file_read queue_file_content_next(struct queue_file_reader *r, struct slice *ret_piece,
                                             bool *ret_ends);

/* ---- marks ---- */

/* Bytes that are written over a record in place, if its type byte is still `before`. */
#define QUEUE_FILE_MARK_MAX 17
struct queue_file_mark {
    uint64_t offset;
    char before;
    size_t len;
    char bytes[QUEUE_FILE_MARK_MAX];
};

/* The recipient at `offset` is done. Agents do this for all that they deliver; the manager, for
 * what it discards itself. */
struct queue_file_mark queue_file_mark_done(uint64_t offset);
/* The attribute at `offset` (trace_flags, once its report was sent) counts no more. */
struct queue_file_mark queue_file_mark_killed(uint64_t offset);
/* The delay warning of the record at `offset` was sent. */
struct queue_file_mark queue_file_mark_warned(uint64_t offset);

/* ---- writing ---- */

/* Append a record to *out. */
void queue_file_put(struct buf *out, char type, struct slice data);

/* A source over bytes in memory: `context` is a struct slice. */
queue_file_read_at queue_file_read_bytes;
/* A source over a file: `context` is a pointer to its descriptor. */
queue_file_read_at queue_file_read_fd;

#endif
