/*
 * ZMailer's message control files: what a router decided about one message, and what became of it.
 *
 * A file is read as a whole and never rewritten: it is changed in place, one tag byte and the lock
 * columns at a time, and appended to. So everything in it has a name for life, the offset of its
 * field letter. This module turns bytes into a checked structure and says which bytes a change
 * would write; it opens nothing.
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
 * failed; on a `d` line '+' says that it has been reported.
 *
 * Strict where a wrong guess could lose or misdeliver mail, liberal where old files are: without
 * the
 * `@` line the columns PPPPPP and DDDD are recognised by their bytes, as ZMailer's agents do.
 */
#ifndef ZMAILER_CONTROL_FILE_H
#define ZMAILER_CONTROL_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "slice.h"

#define CONTROL_FILE_MAX     ((size_t)1 << 30) /* bytes */
#define CONTROL_WORD_MAX     4096              /* bytes of one word of an address */
#define CONTROL_COLUMN_PID   6
#define CONTROL_COLUMN_DELAY 4

/* Bits of the `@` line. */
enum {
    CONTROL_FORMAT_PID = 1,   /* recipients have the 6 columns of the lock */
    CONTROL_FORMAT_DELAY = 2, /* and the 4 of delay reports */
    CONTROL_FORMAT_MIME = 4,  /* `M` blocks may occur */
    CONTROL_FORMAT_KNOWN = 7,
};

#define CONTROL_NONE UINT64_MAX /* no such offset */

/* An address as the router knows it. Words are as they stand in the file, quotes included; a "-"
 * that stands for an empty word is kept. */
struct control_address {
    struct slice channel, host, user;
    int64_t uid;
};

struct control_group {
    struct control_address sender;
    struct slice headers; /* of the `m` block, without its empty line; empty when there is none */
    uint64_t headers_at;  /* offset of their first byte; CONTROL_NONE */
};

struct control_rcpt {
    uint64_t offset; /* of its letter: its name */
    char tag;
    bool alternative;  /* an `X` */
    bool open;         /* to be delivered: tag ' ' or '~' and, of alternatives, the one in turn */
    uint64_t class;    /* of alternatives: success of one makes the others unnecessary */
    bool has_lock;     /* the columns are there, so it can be marked in place */
    int64_t lock_pid;  /* of a '~' whose columns name a process, else 0 */
    bool has_delay;    /* so are the columns of delay reports */
    uint32_t warnings; /* the number in them, 0 when blank */
    struct control_address address;
    uint32_t group;
    uint64_t dsn_at;  /* offset of its `N` line; CONTROL_NONE */
    struct slice dsn; /* the words of that line */
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

/* All slices point into the bytes that were read. Arrays are owned. */
struct control_file {
    unsigned format;
    bool has_format;
    struct slice name;      /* `i` */
    uint64_t body_at;       /* `o`: where the body begins in the message file */
    struct slice log_id;    /* `l` */
    struct slice verbose;   /* `v`, or empty */
    struct slice obsoletes; /* `x`, or empty */
    struct slice etrn;      /* `T`, or empty: then nothing else need be there */
    struct slice error_to;  /* where failures are reported to; empty: nowhere */
    bool is_bounce;         /* the sender is on the channel `error` */
    enum control_ret ret;
    struct slice envid; /* xtext, or empty */
    struct control_group *groups;
    size_t group_count;
    struct control_rcpt *rcpts;
    size_t rcpt_count;
    struct control_diagnostic *diagnostics;
    size_t diagnostic_count, damaged_diagnostics;
    bool ends_in_part; /* the last line has no end: begin another before anything is appended */
    bool is_whole; /* every group ends in its headers, and they in an empty line: a router writes
                      no other file, so one that is not whole has lost its end */
};

/* What is wrong with a file, and where. */
struct control_problem {
    uint64_t offset;
    const char *expected; /* a constant */
};

/* Read `bytes`, which must outlive *ret_file. False when it is no control file, in whole or in
 * part: nothing of it may then be acted on; *ret_problem says why. A file that stops in the middle
 * of an appended `d` line is whole without that line. Free with control_file_fini. */
bool control_file_parse(struct slice bytes, struct control_file *ret_file,
                        struct control_problem *ret_problem);
void control_file_fini(struct control_file *f);

/* The recipient with this name, or NULL. */
const struct control_rcpt *control_file_find(const struct control_file *f, uint64_t offset);

/* The value of a word of an `N` line ("NOTIFY", "ORCPT" ..), in any case; empty when there is none.
 */
struct slice control_dsn_word(struct slice dsn, struct slice name);

/* The wishes of that line: enum notify, NOTIFY_DEFAULT when it names none that is known. */
unsigned control_notify(struct slice dsn);

/* What stands for a host where recipients are gathered: itself, and of a list in parentheses what
 * comes before the end of its first word. To be compared without regard to case. */
struct slice control_host_key(struct slice host);

/* What is written at offset + 1 to give a recipient a new tag: the tag, and the lock columns where
 * they are (`pid` for '~', else blank). Returns the number of bytes, 1 or 7; 0 when `tag` is '~'
 * and the file has no place for a pid, or the pid more than 22 bits. */
#define CONTROL_MARK_MAX 7
size_t control_mark(const struct control_rcpt *r, char tag, int64_t pid,
                    char ret_bytes[CONTROL_MARK_MAX]);

/* Append a `d` line to *out. Line feeds in `notary` and `text` become CR, tabs blanks. */
void control_put_diagnostic(struct buf *out, const struct control_diagnostic *d);

/* The number that a file's name begins with, by which results name its message. False when it does
 * not begin with a digit or the number is too large. */
bool control_spool_number(struct slice name, uint64_t *ret_number);

/* The hash directory of a number at 0, 1 or 2 levels: "", "X/", "X/Y/" and a NUL. */
void control_hash_directory(uint64_t number, unsigned levels, char ret_path[5]);

/* The spoolid: "S", the number, and the message file's modification time (UTC). */
#define CONTROL_SPOOLID_MAX 48
void control_spoolid(uint64_t number, int64_t mtime_s, uint32_t mtime_ns,
                     char ret_text[CONTROL_SPOOLID_MAX]);

#endif
