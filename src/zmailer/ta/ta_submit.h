/*
 * Handing a new message (postoffice/router_file.h) to ZMailer's router, from an agent.
 *
 *     public/HOST:PID written, synced -> renamed to router/INODE -> router/ synced -> router told
 *
 * The files are those beside the current directory, POSTOFFICE/transport.
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
    struct slice dsn; /* words of an `N` line; empty: none */
};

struct ta_submission {
    const struct conf *zenv; /* ROUTERDIRHASH, ROUTERNOTIFY */
    struct router_envelope envelope;
    const struct ta_submit_rcpt *rcpts;
    size_t rcpt_count;
    mail_read *read; /* header, empty line and body; lines end as they will */
    void *arg;
};

/* 0 and the printable identification of the new message, or negative errno with what failed in
 * *ret_why: -EINVAL when something in the envelope can't stand there. */
int ta_submit(const struct ta_submission *s, char ret_spoolid[CONTROL_SPOOLID_MAX],
              struct buf *ret_why);

#endif
