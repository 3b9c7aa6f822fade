/*
 * Files in which sendmail leaves mail for pickup.
 *
 *     sluice-maildrop 1
 *     sender you@example.org               empty: the null sender
 *     name Your Name                       for a missing From: field; optional
 *     envid xtext                          optional
 *     flag 8bit                            one line per flag; also smtputf8 ret_full ret_hdrs trace
 *     rcpt default - friend@example.org    NOTIFY, ORCPT or "-", address; one line each
 *     content 0000000000001234             length in bytes, always 16 digits
 *     ...                                  the content, to the end of the file
 *
 * Every line ends with LF; the lines are in this order. Content is as the user gave it: lines end
 * with LF or CRLF.
 *
 * The name of a file is final from the start; the mode bits of its owner are its state:
 *   0600   being written. A crash leaves the file in this state, and pickup ignores it.
 *   0700   complete. The writer syncs the file before it sets this mode and again after it, and
 *          only then reports success. So a file is complete before it has this mode, and a file
 *          whose writer reported success exists after a crash: file systems of Linux write the
 *          entry of a new file with its first fsync. (Other users can't sync a
 *          directory that only its owner may read.)
 *
 * The length detects a fault in all of that: a file of another size is no mail.
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

/* A head with the maximum of recipients of 400 bytes each fits. */
_Static_assert(MAILDROP_RCPTS_MAX * 400ull < MAILDROP_HEAD_MAX, "usual recipients fit");

#define MAILDROP_INCOMPLETE 0600
#define MAILDROP_COMPLETE   0700

struct maildrop_rcpt {
    unsigned notify;      /* bits of enum notify */
    struct slice orcpt;   /* `type;xtext` or empty */
    struct slice address; /* stored form (address.h), domain optional */
};

struct maildrop {
    struct slice sender;
    struct slice name;
    struct slice envid;
    unsigned flags; /* bits of enum envelope_flag, without ENVELOPE_REPORT */
    struct maildrop_rcpt *rcpts;
    size_t rcpt_count; /* >= 1 */
    uint64_t content_size;
};

/* Appends everything before the content. Returns false if a field has an invalid byte or length, or
 * the buffer is full. */
bool maildrop_put(const struct maildrop *m, struct buf *out);

enum maildrop_result {
    MAILDROP_OK,
    MAILDROP_MORE, /* the head continues after `in` */
    MAILDROP_BAD,
};

/* Parses the head at the start of `in`. *ret_head is its length. Only output of maildrop_put is
 * valid. Slices point into `in`; maildrop_fini frees ret->rcpts. Without MAILDROP_OK the outputs
 * are unchanged, except that MAILDROP_BAD sets *ret_why, a static text. */
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
    int error; /* first error as negative errno; later writes do nothing */
};

/* Creates a file in `directory` (a path) with this head, before content_size is known. Returns 0 or
 * negative errno. */
int maildrop_create(struct maildrop_file *f, const char *directory, const struct maildrop *m);

void maildrop_write(struct maildrop_file *f, struct slice content);

/* Writes the size, syncs the file, and makes it visible to pickup. Removes the file on failure.
 * Returns 0 or negative errno; *f is invalid afterwards. */
int maildrop_commit(struct maildrop_file *f);

/* Removes an unfinished file. */
void maildrop_abort(struct maildrop_file *f);

#endif
