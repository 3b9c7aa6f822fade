/*
 * Hands a new message (postoffice/router_file.h) of an agent to ZMailer's router:
 *
 *     public/HOST:PID written, synced -> renamed to router/INODE -> router/ synced -> notify
 *
 * The directories are relative to POSTOFFICE, the parent of the current directory.
 */
#ifndef ZMAILER_TA_SUBMIT_H
#define ZMAILER_TA_SUBMIT_H

#include <stdbool.h>
#include <stddef.h>

#include "buf.h"
#include "conf.h"
#include "control_file.h"
#include "router_file.h"
#include "slice.h"
#include "mail_file.h"

struct ta_submit_rcpt {
    struct slice address;
    struct slice dsn; /* words of an `N` line; may be empty */
};

struct ta_submission {
    const struct conf *zenv; /* ROUTERDIRHASH, ROUTERNOTIFY */
    struct router_envelope envelope;
    const struct ta_submit_rcpt *rcpts;
    size_t rcpt_count;
    mail_read *read; /* source of header, empty line and body; any line ends */
    void *arg;
};

/* Submits a message. Returns 0 with the printable id of the new message, or negative errno with the
 * failed step in *ret_why. -EINVAL: the envelope contains something that a router file can't
 * have. */
int ta_submit(const struct ta_submission *s, char ret_spoolid[CONTROL_SPOOLID_MAX],
              struct buf *ret_why);

#endif
