/*
 * The options of the SMTP agent: those of ZMailer's smtp(8), as far as they mean something here,
 * and -C for a configuration of this client. Together they are a configuration.
 */
#ifndef TA_SMTP_OPTIONS_H
#define TA_SMTP_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "bundle.h"
#include "slice.h"

struct smtp_options {
    struct bundle bundle; /* owned */
    struct slice channel;
    struct slice host;    /* of the word behind the options, for jobs that name none; or empty */
    const char *force_to; /* all mail goes there; NULL */
    const char *log;      /* file; NULL */
    uint16_t port;        /* 0: the protocol's */
    bool no_mx;           /* hosts are hosts, not domains */
};

/* Ends the program, with words on standard error, when they are wrong. */
void smtp_options_read(int argc, char **argv, struct smtp_options *ret_options);
void smtp_options_fini(struct smtp_options *options);

/* Append the next hops for the host of a recipient, as `nexthop` of an SMTP transport has them:
 * a host, or each of a list in parentheses. */
void smtp_options_nexthop(const struct smtp_options *options, struct slice host, struct buf *out);

#endif
