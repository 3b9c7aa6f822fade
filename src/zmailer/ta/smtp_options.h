/*
 * The options of the SMTP agent: those of ZMailer's smtp(8), as far as they mean something here,
 * and -C for a configuration of this client. Together they are a configuration.
 */
#ifndef ZMAILER_SMTP_OPTIONS_H
#define ZMAILER_SMTP_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "bundle.h"
#include "control_file.h"
#include "slice.h"

/* Hosts of a list that are tried; more are left out. */
#define SMTP_OPTIONS_HOPS_MAX 32
/* Room for next hops: the words as they are, and brackets, port and comma of each. */
#define SMTP_OPTIONS_NEXTHOP_MAX (CONTROL_WORD_MAX + SMTP_OPTIONS_HOPS_MAX * 16)

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
 * a host, or each of a list in parentheses. At most SMTP_OPTIONS_NEXTHOP_MAX bytes. */
void smtp_options_nexthop(const struct smtp_options *options, struct slice host, struct buf *out);

#endif
