/*
 * What the queue manager says to bounce(8) under its three names (bounce, defer, trace), to
 * verify(8) and to flush(8), without I/O. A connection carries one request and one answer.
 */
#ifndef POSTFIX_NOTICE_REQUEST_H
#define POSTFIX_NOTICE_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

#include "buf.h"
#include "delivery_request.h"
#include "slice.h"

enum notice_command {
    NOTICE_APPEND = 0, /* a line of the log of one recipient */
    NOTICE_FLUSH = 1,  /* send the report of all that the log has, and remove the log */
    NOTICE_WARN = 2,   /* the same of delayed mail; the log stays */
    NOTICE_VERP = 3,   /* as NOTICE_FLUSH, a report for each recipient */
    NOTICE_TRACE = 5,  /* the report of deliveries that were asked for */
};

#define NOTICE_MARK_DONE 2u /* with NOTICE_FLUSH: mark all of the log done in the queue file */

/* A request about a message; slices are borrowed for the call. */
struct notice {
    enum notice_command command;
    unsigned flags; /* NOTICE_MARK_DONE; trace flags with NOTICE_TRACE */
    struct slice queue_id, encoding;
    unsigned sendopts;
    struct slice sender, envelope_id;
    unsigned ret_flags;
    struct slice verp_delimiters; /* of NOTICE_VERP */
};

/* What became of one recipient. */
struct notice_result {
    unsigned trace_flags;
    struct slice queue_id;
    struct delivery_request_rcpt rcpt;
    struct slice status; /* "4.3.0" */
    struct slice action; /* "delayed", "delivered", .. */
    struct slice reason;
};

/* Append a request of any command but NOTICE_APPEND; *out is sticky. */
void notice_put(struct buf *out, const struct notice *n, const struct postfix_release *release);
/* NOTICE_APPEND. */
void notice_put_result(struct buf *out, const struct notice_result *r);

enum notice_address_status {
    NOTICE_ADDRESS_OK = 0,
    NOTICE_ADDRESS_DEFERRED = 1,
    NOTICE_ADDRESS_BOUNCED = 2
};
/* To verify(8): what is known of an address. */
void notice_put_verified(struct buf *out, struct slice address, enum notice_address_status status,
                         struct slice reason);
/* To flush(8): a message that waits has a recipient there. */
void notice_put_flush_add(struct buf *out, struct slice site, struct slice queue_id);

/* Names in the hello of these servers. */
#define NOTICE_HELLO        "delivery_status_protocol"
#define NOTICE_HELLO_VERIFY "address_verification_prrotocol" /* spelt so */
#define NOTICE_HELLO_FLUSH  "queue_flush_protocol"

/* Is the list a hello with this protocol's name? */
bool service_hello_is_right(struct slice list, const char *protocol);
/* The answer of all of them. False: it is none. */
bool notice_answer_parse(struct slice list, int32_t *ret_status);

#endif
