/*
 * The files in which sendmail leaves mail for pickup.
 *
 *     sluice-maildrop 1
 *     sender you@example.org               empty: the null sender
 *     name Your Name                       for a missing From: field; may be absent
 *     envid xtext                          may be absent
 *     flag 8bit                            one line per flag; also smtputf8 ret_full ret_hdrs trace
 *     rcpt default - friend@example.org    NOTIFY, ORCPT or "-", address; one line each
 *     content 0000000000001234             length in bytes, always 16 digits
 *     ...                                  the content, to the end of the file
 *
 * Every line ends with LF; the lines come in this order. Content is as the user gave it: lines end
 * with LF or CRLF.
 *
 * State of a file: its name is final from the start, its owner's mode bits say how far it is.
 *   0600   being written; a crash leaves it so, and pickup passes it over
 *   0700   complete. The writer syncs the file before it sets this mode and again behind it, and
 *          says success only then. So a complete file was complete before it could be seen, and
 *          one whose writer was told of success is there after a crash: the file systems of Linux
 *          write the entry of a new file with its first fsync (a directory that only its owner may
 *          read can't be synced by others).
 *
 * The length is what distrust of all that is for: a file whose size is another is no mail.
 */
#ifndef RECEIVE_MAILDROP_H
#define RECEIVE_MAILDROP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "envelope.h"
#include "slice.h"

#define MAILDROP_RCPTS_MAX 50000u
#define MAILDROP_HEAD_MAX  (24u << 20) /* bytes before the content */
#define MAILDROP_NAME_MAX  256         /* bytes of a user's name */

/* Every recipient of the longest form fits. */
_Static_assert(MAILDROP_RCPTS_MAX * 400ull < MAILDROP_HEAD_MAX, "usual recipients fit");

#define MAILDROP_INCOMPLETE 0600
#define MAILDROP_COMPLETE   0700

struct maildrop_rcpt {
    unsigned notify;      /* of enum notify */
    struct slice orcpt;   /* `type;xtext` or empty */
    struct slice address; /* stored form (address.h), perhaps without a domain */
};

struct maildrop {
    struct slice sender;
    struct slice name;
    struct slice envid;
    unsigned flags; /* of enum envelope_flag, without ENVELOPE_REPORT */
    struct maildrop_rcpt *rcpts;
    size_t rcpt_count; /* >= 1 */
    uint64_t content_size;
};

/* Append everything before the content. False when a field has a byte or a length that it can't
 * have, or the buffer is full. */
bool maildrop_put(const struct maildrop *m, struct buf *out);

enum maildrop_result {
    MAILDROP_OK,
    MAILDROP_MORE, /* the head goes on behind `in` */
    MAILDROP_BAD,
};

/* Read the head at the start of `in`: *ret_head is its length. Only what maildrop_put writes is
 * read. Slices point into `in`; ret->rcpts is freed by maildrop_fini. Outputs are untouched but on
 * MAILDROP_OK; *ret_why is set on MAILDROP_BAD: static text. */
enum maildrop_result maildrop_get(struct slice in, struct maildrop *ret, size_t *ret_head,
                                  const char **ret_why);

void maildrop_fini(struct maildrop *m);

/* ---- writing a file ------------------------------------------------------------------------- */

struct maildrop_file {
    int directory;
    int fd;
    char name[64];
    uint64_t head_size;
    uint64_t content_size;
    int error; /* the first one, negative errno; later writes do nothing */
};

/* Begin a file in `directory` (a path) with this head; content_size is not known yet. 0 or negative
 * errno. */
int maildrop_create(struct maildrop_file *f, const char *directory, const struct maildrop *m);

void maildrop_write(struct maildrop_file *f, struct slice content);

/* All is written: fill in the size, make it safe, let pickup see it. On failure the file is
 * removed. 0 or negative errno. Either way *f is done with. */
int maildrop_commit(struct maildrop_file *f);

/* Remove an unfinished file. */
void maildrop_abort(struct maildrop_file *f);

#endif
