/*
 * The file in which new mail is handed to ZMailer's router: an envelope, a line for each thing that
 * is known, then header and body (ZMailer's manual, "Message file format"). Each writer has
 * its own way to the disk; the text, and the datagram that tells the router, are made here.
 *
 *     rcvdfrom STDIN ("PROGRAM"@HOST)
 *     channel error              a report, null sender;     from <SENDER>   else
 *     errormsg
 *     todsn DSN-WORDS            for each recipient
 *     to <ADDRESS>
 *     env-end
 */
#ifndef ZMAILER_ROUTER_FILE_H
#define ZMAILER_ROUTER_FILE_H

#include <stdbool.h>

#include "buf.h"
#include "control_file.h"
#include "slice.h"

struct router_envelope {
    const char *program; /* who submits it */
    const char *host;    /* our name */
    const char *via;     /* how it came; NULL: not told */
    bool eight_bit;
    struct slice sender; /* empty: a report */
    struct slice envid;  /* xtext, or empty */
    enum control_ret ret;
};

/* Append the lines before the recipients, those of one recipient (`dsn`: the words of an `N` line,
 * or empty), and the last one. False when something in them would end its line; that `out` is full
 * it says itself. */
bool router_file_begin(struct buf *out, const struct router_envelope *e);
bool router_file_rcpt(struct buf *out, struct slice address, struct slice dsn);
void router_file_end(struct buf *out);

/* Tell the router at `path` of the file by a datagram from `socket`. One that hears nothing looks
 * for itself, so a lost one is no harm. */
void router_file_tell(int socket, const char *path, const char *name);

#endif
