/*
 * Options of the SMTP agent: those of ZMailer's smtp(8) that have a meaning here, and -C for a
 * configuration of this client. Together they make a configuration.
 */
#ifndef ZMAILER_SMTP_OPTIONS_H
#define ZMAILER_SMTP_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "bundle.h"
#include "control_file.h"
#include "slice.h"

/* Largest number of hosts of a list that are used; the rest is ignored. */
#define SMTP_OPTIONS_HOPS_MAX 32
/* Bytes for next hops: the words themselves, and brackets, port and comma of each. */
#define SMTP_OPTIONS_NEXTHOP_MAX (CONTROL_WORD_MAX + SMTP_OPTIONS_HOPS_MAX * 16)

struct smtp_options {
    struct bundle bundle; /* owned */
    struct slice channel;
    struct slice host;    /* argument after the options, for jobs that name no host; may be empty */
    const char *force_to; /* host that gets all mail; NULL: none */
    const char *log;      /* log file; NULL: none */
    uint16_t port;        /* 0: the protocol's port */
    bool no_mx;           /* take names as hosts, without looking up MX records */
};

/* Reads the command line. Ends the program with a message on standard error if an option is
 * wrong. */
void smtp_options_read(int argc, char **argv, struct smtp_options *ret_options);
void smtp_options_fini(struct smtp_options *options);

/* Appends the next hops for the host of a recipient, in the form of an SMTP transport's `nexthop`.
 * `host` is one host or a list in parentheses. Appends at most SMTP_OPTIONS_NEXTHOP_MAX bytes. */
void smtp_options_nexthop(const struct smtp_options *options, struct slice host, struct buf *out);

#endif
