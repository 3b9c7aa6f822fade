/*
 * File in which new mail is handed to ZMailer's router: an envelope with one line for each fact,
 * then header and body (ZMailer's manual, "Message file format"). This module makes the text, and
 * the datagram that notifies the router. Each caller writes the file itself.
 *
 *     rcvdfrom STDIN ("PROGRAM"@HOST)
 *     channel error              a report, null sender;     from <SENDER>   otherwise
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
    const char *program; /* program that submits the mail */
    const char *host;    /* our host name */
    const char *via;     /* way of arrival; NULL: left out */
    bool eight_bit;
    struct slice sender; /* empty: a report */
    struct slice envid;  /* xtext; may be empty */
    enum control_ret ret;
};

/* Appends the lines before the recipients. router_file_rcpt appends those of one recipient (`dsn`:
 * words of an `N` line, may be empty), router_file_end the last line. Both functions with a result
 * return false if a value contains the end of a line; a full `out` is marked as failed. */
bool router_file_begin(struct buf *out, const struct router_envelope *e);
bool router_file_rcpt(struct buf *out, struct slice address, struct slice dsn);
void router_file_end(struct buf *out);

/* Notifies the router at `path` of the file, with a datagram from `socket`. A router also searches
 * the directory itself, so a lost datagram does no damage. */
void router_file_tell(int socket, const char *path, const char *name);

#endif
