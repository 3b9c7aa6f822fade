/*
 * ZMailer's message control files: a router's decisions about one message, and the results of
 * delivery.
 *
 * A file is read as a whole and never rewritten: one tag byte and the lock columns at a time are
 * changed in place, and lines are appended. So the offset of a field's letter identifies the field
 * for ever. This module parses bytes into a checked structure and computes the bytes of a change;
 * it does no I/O.
 *
 *   @ 0x00000007                      format bits            v verbose log     x obsoletes
 *   i NAME    o BODY-OFFSET    l LOG-IDENTIFICATION          T ETRN request
 *   e ERROR-ADDRESS
 *   s CHANNEL HOST USER UID                                  \
 *   rT PPPPPPDDDD CHANNEL HOST USER UID   recipient           | an address group, any number
 *   XT PPPPPPDDDD CLASS CHANNEL HOST USER UID  alternative    | of them
 *   N NOTIFY=... ORCPT=...   R FULL|HDRS   n ENVID            |
 *   m + header lines + empty line                            /
 *   dT RCPT:HEADER:DSN::TIME \t NOTARY \t TEXT               appended by agents and the scheduler
 *
 * T is the tag: ' ' not processed or deferred, '~' locked by the process PPPPPP, '+' done, '-'
 * failed; on a `d` line '+' means that the line was reported.
 *
 * The parser is strict where a wrong guess could lose or misdeliver mail, and liberal with old
 * files: without the `@` line it recognizes the columns PPPPPP and DDDD by their bytes, as
 * ZMailer's agents do.
 */
#ifndef ZMAILER_CONTROL_FILE_H
#define ZMAILER_CONTROL_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "slice.h"

#define CONTROL_FILE_MAX     ((size_t)1 << 30) /* largest file in bytes */
#define CONTROL_WORD_MAX     4096              /* longest word of an address in bytes */
#define CONTROL_COLUMN_PID   6
#define CONTROL_COLUMN_DELAY 4

/* Bits of the `@` line. */
enum {
    CONTROL_FORMAT_PID = 1,   /* recipients have the 6 columns of the lock */
    CONTROL_FORMAT_DELAY = 2, /* recipients have the 4 columns of delay reports */
    CONTROL_FORMAT_MIME = 4,  /* `M` blocks may occur */
    CONTROL_FORMAT_KNOWN = 7,
};

#define CONTROL_NONE UINT64_MAX /* value of an offset that does not exist */

/* An address as the router writes it. Words are copied from the file, with quotes; a "-" for an
 * empty word is kept. */
struct control_address {
    struct slice channel, host, user;
    int64_t uid;
};

struct control_group {
    struct control_address sender;
    struct slice headers; /* headers of the `m` block, without its empty line; empty if there is no
                           * block */
    uint64_t headers_at;  /* offset of the first byte of `headers`; CONTROL_NONE */
};

struct control_rcpt {
    uint64_t offset; /* offset of its letter, which identifies the recipient */
    char tag;
    bool alternative;  /* from an `X` line */
    bool open;         /* must be delivered: its tag is ' ' or '~', and an alternative is the next
                        * one of its class */
    uint64_t class;    /* class of an alternative; after a success the others of its class are not
                        * needed */
    bool has_lock;     /* the line has the columns of the lock, so the recipient can be marked in
                        * place */
    int64_t lock_pid;  /* process in the columns of a '~'; 0: none */
    bool has_delay;    /* the line has the columns of delay reports */
    uint32_t warnings; /* number of delay reports in these columns; 0: blank */
    struct control_address address;
    uint32_t group;
    uint64_t dsn_at;  /* offset of its `N` line; CONTROL_NONE */
    struct slice dsn; /* words of the `N` line */
};

struct control_diagnostic {
    uint64_t offset;
    char tag;
    uint64_t rcpt, headers_at, dsn_at; /* CONTROL_NONE: not known */
    int64_t time_s;
    struct slice notary; /* may be empty */
    struct slice text;   /* lines separated by CR */
};

enum control_ret { CONTROL_RET_UNKNOWN, CONTROL_RET_FULL, CONTROL_RET_HEADERS };

/* A parsed control file. All slices point into the bytes that were parsed; arrays are owned. */
struct control_file {
    unsigned format;
    bool has_format;
    struct slice name;      /* `i` */
    uint64_t body_at;       /* `o`: offset of the body in the message file */
    struct slice log_id;    /* `l` */
    struct slice verbose;   /* `v`; may be empty */
    struct slice obsoletes; /* `x`; may be empty */
    struct slice etrn;      /* `T`; may be empty; a file with it may lack all other fields */
    struct slice error_to;  /* address for failure reports; empty: none */
    bool is_bounce;         /* the sender is on the channel `error` */
    enum control_ret ret;
    struct slice envid; /* xtext; may be empty */
    struct control_group *groups;
    size_t group_count;
    struct control_rcpt *rcpts;
    size_t rcpt_count;
    struct control_diagnostic *diagnostics;
    size_t diagnostic_count, damaged_diagnostics;
    bool ends_in_part; /* the last line is incomplete: append a line end before anything else */
    bool is_whole; /* every group ends with its headers and their empty line; routers write no other
                    * files, so any other file has lost its end */
};

/* A fault of a file, with its place. */
struct control_problem {
    uint64_t offset;
    const char *expected; /* a constant string */
};

/* Parses `bytes`, which must outlive *ret_file. Returns false, with the fault in *ret_problem, if
 * any part of it is not valid: nothing in the file may then be used. A file that ends within an
 * appended `d` line is valid without that line. Free with control_file_fini. */
bool control_file_parse(struct slice bytes, struct control_file *ret_file,
                        struct control_problem *ret_problem);
void control_file_fini(struct control_file *f);

/* Returns the recipient at this offset, or NULL. */
const struct control_rcpt *control_file_find(const struct control_file *f, uint64_t offset);

/* Returns the value of a word of an `N` line ("NOTIFY", "ORCPT" ..), in any case; empty if there is
 * none. */
struct slice control_dsn_word(struct slice dsn, struct slice name);

/* Returns the NOTIFY value of that line as enum notify bits; NOTIFY_DEFAULT if it has no known
 * value. */
unsigned control_notify(struct slice dsn);

/* Returns the key by which recipients are grouped by host: the host itself, or the part of a list
 * in parentheses before the end of its first word. Keys are compared without regard to case. */
struct slice control_host_key(struct slice host);

/* Makes the bytes that give a recipient a new tag; the caller stores them at offset + 1. The bytes
 * are the tag, and the lock columns if the line has them (`pid` for '~', otherwise blanks). Returns
 * their number, 1 or 7. Returns 0 if `tag` is '~' and the line has no columns for a pid or the pid
 * has more than 22 bits. */
#define CONTROL_MARK_MAX 7
size_t control_mark(const struct control_rcpt *r, char tag, int64_t pid,
                    char ret_bytes[CONTROL_MARK_MAX]);

/* Appends a `d` line. Line feeds in `notary` and `text` become CR, tabs become blanks. */
void control_put_diagnostic(struct buf *out, const struct control_diagnostic *d);

/* Parses the number at the front of a file's name, by which results identify the message. Returns
 * false if the name does not begin with a digit or the number is too large. */
bool control_spool_number(struct slice name, uint64_t *ret_number);

/* Writes the hash directory of a number at 0, 1 or 2 levels: "", "X/", "X/Y/", and a NUL. */
void control_hash_directory(uint64_t number, unsigned levels, char ret_path[5]);

/* Writes the spoolid: "S", the number, and the modification time (UTC) of the message file. */
#define CONTROL_SPOOLID_MAX 48
void control_spoolid(uint64_t number, int64_t mtime_s, uint32_t mtime_ns,
                     char ret_text[CONTROL_SPOOLID_MAX]);

#endif
