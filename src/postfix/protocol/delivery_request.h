/*
 * What the queue manager and a delivery agent of Postfix say to each other, without I/O. One
 * connection is one delivery:
 *
 *     manager                                   agent
 *       connect                                   accept
 *                          <---  hello
 *       request, then a list per recipient  --->
 *                          <---  reply (may take minutes)
 *       close
 *
 * What became of each recipient is not in the reply: the agent has marked those that are done in
 * the queue file, and written the logs of those that are not.
 */
#ifndef POSTFIX_DELIVERY_REQUEST_H
#define POSTFIX_DELIVERY_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

#include "buf.h"
#include "slice.h"
#include "times.h"

/* What differs between releases of Postfix. */
struct postfix_release {
    bool servers_greet; /* 3.6: rewrite, bounce, .. send a hello */
    bool says_sendopts; /* 3.10: the attribute is called so, before it smtputf8 */
};

/* From mail_version ("3.7.11", "3.12-20260821"); what can't be read is taken for a new one. */
struct postfix_release postfix_release_of(struct slice mail_version);

enum delivery_request_flag {
    DELIVERY_MARK_DONE = 1, /* mark those that are done in the file */
    DELIVERY_BOUNCE = 2,    /* write a bounce log for those that fail */
    DELIVERY_CACHED = 2048, /* may take a cached connection */
    DELIVERY_KEEP = 4096,   /* keep the connection for another delivery */
};

/* A whole request; slices are borrowed for the call. */
struct delivery_request {
    unsigned flags; /* enum delivery_request_flag, and trace flags of the message */
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

/* Append the request; exactly rcpt_count recipients are to follow. *out is sticky. */
void delivery_request_put(struct buf *out, const struct delivery_request *m,
                          const struct postfix_release *release);
void delivery_request_put_rcpt(struct buf *out, const struct delivery_request_rcpt *r);
/* The five attributes of a recipient, without the end of their list: so they are in requests to
 * bounce(8), too. */
void delivery_request_put_rcpt_attributes(struct buf *out, const struct delivery_request_rcpt *r);

/* Is the list the hello of an agent, of any release? */
bool delivery_hello_is_right(struct slice list);

struct delivery_reply {
    bool deferred;       /* some recipient has to be tried again */
    struct slice status; /* "4.4.1" and the reason: the site is bad. Empty: it is fine */
    struct slice reason;
};

/* From a complete list; the slices are borrowed from it. False: it is no reply. */
bool delivery_reply_parse(struct slice list, struct delivery_reply *ret_reply);

/* The sender of a request with VERP: LOCAL d1 RLOCAL d2 RDOMAIN @ DOMAIN, appended to *out. Without
 * `@` in an address there is nothing behind it. */
void delivery_put_verp_sender(struct buf *out, struct slice sender, struct slice delimiters,
                              struct slice recipient);

#endif
