/*
 * The protocol between the queue manager and a delivery agent of Postfix, without I/O. One
 * connection is one delivery:
 *
 *     manager                                   agent
 *       connect                                   accept
 *                          <---  hello
 *       request, then a list per recipient  --->
 *                          <---  reply (may take minutes)
 *       close
 *
 * The reply has no results of single recipients: the agent has marked those that are done in the
 * queue file, and appended the others to their logs.
 */
#ifndef POSTFIX_DELIVERY_REQUEST_H
#define POSTFIX_DELIVERY_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

#include "buf.h"
#include "slice.h"
#include "times.h"

/* Differences between releases of Postfix. */
struct postfix_release {
    bool servers_greet; /* since 3.6: rewrite, bounce and other servers send a hello */
    bool says_sendopts; /* since 3.10: the attribute is named sendopts, before that smtputf8 */
};

/* Parses mail_version ("3.7.11", "3.12-20260821"). A text that can't be parsed counts as a new
 * release. */
struct postfix_release postfix_release_of(struct slice mail_version);

enum delivery_request_flag {
    DELIVERY_MARK_DONE = 1, /* mark recipients that are done in the file */
    DELIVERY_BOUNCE = 2,    /* write a bounce log for recipients that fail */
    DELIVERY_CACHED = 2048, /* a cached connection may be used */
    DELIVERY_KEEP = 4096,   /* keep the connection for another delivery */
};

/* A complete request; slices are borrowed for the call. */
struct delivery_request {
    unsigned flags; /* bits of enum delivery_request_flag, and trace flags of the message */
    struct slice queue_id;
    uint64_t data_offset, content_length;
    struct slice nexthop, encoding;
    unsigned sendopts;
    struct slice sender, envelope_id;
    unsigned ret_flags;
    struct wall arrived, activated;
    struct slice client_name, client_address, client_port, protocol_name, helo_name;
    struct slice sasl_method, sasl_username, sasl_sender;
    struct slice log_ident, rewrite_context;
    uint32_t rcpt_count;
};

struct delivery_request_rcpt {
    struct slice original, recipient;
    uint64_t offset;
    struct slice dsn_original;
    unsigned notify;
};

/* Appends the request; exactly rcpt_count recipients must follow. Errors of *out are sticky. */
void delivery_request_put(struct buf *out, const struct delivery_request *m,
                          const struct postfix_release *release);
void delivery_request_put_rcpt(struct buf *out, const struct delivery_request_rcpt *r);
/* Appends the five attributes of a recipient, without the end of their list; requests to bounce(8)
 * have them in this form, too. */
void delivery_request_put_rcpt_attributes(struct buf *out, const struct delivery_request_rcpt *r);

/* Is the list the hello of an agent, of any release? */
bool delivery_hello_is_right(struct slice list);

struct delivery_reply {
    bool deferred;       /* some recipient must be tried again */
    struct slice status; /* "4.4.1" if the site is bad, then with the reason; empty if it is fine */
    struct slice reason;
};

/* Parses a complete list, from which the slices are borrowed. Returns false if it is not a
 * reply. */
bool delivery_reply_parse(struct slice list, struct delivery_reply *ret_reply);

/* Appends the sender of a request with VERP, LOCAL d1 RLOCAL d2 RDOMAIN @ DOMAIN, to *out. An
 * address without `@` has no domain. */
void delivery_put_verp_sender(struct buf *out, struct slice sender, struct slice delimiters,
                              struct slice recipient);

#endif
