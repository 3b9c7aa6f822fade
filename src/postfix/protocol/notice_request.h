/*
 * Requests of the queue manager to bounce(8) under its three names (bounce, defer, trace), to
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
    NOTICE_APPEND = 0, /* append a recipient to the log */
    NOTICE_FLUSH = 1,  /* send the report of everything in the log, and remove the log */
    NOTICE_WARN = 2,   /* send a delay notice of everything in the log, and keep the log */
    NOTICE_VERP = 3,   /* as NOTICE_FLUSH, with a report for each recipient */
    NOTICE_TRACE = 5,  /* send the report of deliveries that was requested */
};

#define NOTICE_MARK_DONE 2u /* with NOTICE_FLUSH: mark the log's recipients done in the file */

/* A request about a message; slices are borrowed for the call. */
struct notice {
    enum notice_command command;
    unsigned flags; /* NOTICE_MARK_DONE; trace flags with NOTICE_TRACE */
    struct slice queue_id, encoding;
    unsigned sendopts;
    struct slice sender, envelope_id;
    unsigned ret_flags;
    struct slice verp_delimiters; /* for NOTICE_VERP */
};

/* The result of one recipient. */
struct notice_result {
    unsigned trace_flags;
    struct slice queue_id;
    struct delivery_request_rcpt rcpt;
    struct slice status; /* "4.3.0" */
    struct slice action; /* "delayed", "delivered", .. */
    struct slice reason;
};

/* Appends a request of any command but NOTICE_APPEND. Errors of *out are sticky. */
void notice_put(struct buf *out, const struct notice *n, const struct postfix_release *release);
/* Appends a NOTICE_APPEND request. */
void notice_put_result(struct buf *out, const struct notice_result *r);

enum notice_address_status {
    NOTICE_ADDRESS_OK = 0,
    NOTICE_ADDRESS_DEFERRED = 1,
    NOTICE_ADDRESS_BOUNCED = 2
};
/* Appends a request to verify(8) with the status of an address. */
void notice_put_verified(struct buf *out, struct slice address, enum notice_address_status status,
                         struct slice reason);
/* Appends a request to flush(8): a waiting message has a recipient at that site. */
void notice_put_flush_add(struct buf *out, struct slice site, struct slice queue_id);

/* Names in the hello of these servers. */
#define NOTICE_HELLO        "delivery_status_protocol"
#define NOTICE_HELLO_VERIFY "address_verification_prrotocol" /* Postfix's own spelling */
#define NOTICE_HELLO_FLUSH  "queue_flush_protocol"

/* Is the list a hello with this protocol's name? */
bool service_hello_is_right(struct slice list, const char *protocol);
/* Parses the answer of any of these servers. Returns false if it is not an answer. */
bool notice_answer_parse(struct slice list, int32_t *ret_status);

#endif
