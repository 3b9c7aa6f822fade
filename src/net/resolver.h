/*
 * DNS questions, asked without waiting: the adapter to libunbound.
 *
 * libunbound resolves inside this process's event loop (ub_resolve_event): no thread, no helper
 * process, so a confined process stays what it is. Cache, retransmission, name server selection and
 * TCP are its own. resolv.conf and hosts are read in resolver_new, before confinement; names in
 * hosts are answered from there.
 *
 * Answers come as DNS packets, from the loop, never from within resolver_ask. A question is
 * answered as RESOLVER_AGAIN at the latest after RESOLVER_TIMEOUT_US.
 */
#ifndef NET_RESOLVER_H
#define NET_RESOLVER_H

#include <stdbool.h>

#include "buf.h"
#include "slice.h"
#include "times.h"

struct event_base;
struct resolver;
struct resolver_query;

#define RESOLVER_TIMEOUT_US (60 * US_PER_S)

enum resolver_type {
    RESOLVER_A = 1,
    RESOLVER_CNAME = 5,
    RESOLVER_MX = 15,
    RESOLVER_TXT = 16,
    RESOLVER_AAAA = 28,
    RESOLVER_TLSA = 52,
};

enum resolver_outcome {
    RESOLVER_ANSWER,  /* the name exists; the packet tells whether there are such records */
    RESOLVER_NO_NAME, /* the name does not exist */
    RESOLVER_AGAIN,   /* no server that knows could be asked, or the answer is bogus */
};

/* What has come of a question; lasts for the call. */
struct resolver_answer {
    enum resolver_outcome outcome;
    struct slice packet; /* of RESOLVER_ANSWER, and of RESOLVER_NO_NAME if there is one */
    bool secure;         /* signatures prove all of it, from a trust anchor on; that there is no
                            such name or record, too */
    const char *bogus;   /* of RESOLVER_AGAIN: its signatures are wrong, and how; else NULL */
};

typedef void resolver_done(void *arg, const struct resolver_answer *answer);

/* `servers` are "address:port", "[address]:port" or plain addresses; none: the system's
 * resolv.conf. `anchors` has DS or DNSKEY records, one in a line: then answers are validated, in
 * this process, and a server's own word for it (the AD bit) counts for nothing. Empty: they are
 * not, and none is secure. NULL with a text in *ret_error when that does not work. */
struct resolver *resolver_new(struct event_base *base, const char *const *servers, size_t count,
                              struct slice anchors, struct buf *ret_error);

/* Can these be trust anchors? If not a text is appended to *ret_error. */
bool resolver_anchors_ok(struct slice anchors, struct buf *ret_error);

/* Questions under way are forgotten. NULL is fine. */
void resolver_free(struct resolver *r);

/* Ask. `name` is as dns_name_valid wants it. `done` gets the outcome once; the packet lasts for
 * the call. */
struct resolver_query *resolver_ask(struct resolver *r, struct slice name, enum resolver_type type,
                                    resolver_done *done, void *arg);

/* `done` has not been called, and will not be. NULL is fine. */
void resolver_cancel(struct resolver_query *q);

#endif
