/*
 * DNS queries that do not block, in two ways:
 *
 *   resolver_new   asks name servers, with libunbound, which resolves inside this process's event
 *                  loop (ub_resolve_event), without a thread or helper process. It has its own
 *                  cache, retransmission, selection of name servers, and TCP. It gets the texts of
 *                  resolv.conf and hosts, because a confined process reads no files, and answers
 *                  names in hosts from there. Without a name server in resolv.conf it queries
 *                  127.0.0.1, as the C library does, and never the root servers.
 *   resolver_over  asks the resolve process (net/resolve.c), for processes that must not send to
 *                  name servers themselves (process/confine.c).
 *
 * Answers are DNS packets and arrive from the loop, never within resolver_ask. Each query is
 * answered within RESOLVER_TIMEOUT_US, if necessary with RESOLVER_AGAIN.
 */
#ifndef NET_RESOLVER_H
#define NET_RESOLVER_H

#include <stdbool.h>
#include <stddef.h>

#include "buf.h"
#include "dns_context.h"
#include "slice.h"
#include "times.h"

struct dns_link;
struct event_base;
struct role;
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
    RESOLVER_ANSWER,  /* the name exists; the packet may have records of the type */
    RESOLVER_NO_NAME, /* the name does not exist */
    RESOLVER_AGAIN,   /* no server could answer, or the answer is bogus */
};

/* The result of a query; lasts for the call. */
struct resolver_answer {
    enum resolver_outcome outcome;
    struct slice packet; /* for RESOLVER_ANSWER; for RESOLVER_NO_NAME if there is one */
    /* signatures from a trust anchor prove the whole answer, even that a name or record does not
     * exist */
    bool secure;
    const char *bogus; /* for RESOLVER_AGAIN: the fault of wrong signatures; else NULL */
};

typedef void resolver_done(void *arg, const struct resolver_answer *answer);

/* Returns the sources from the configuration of a process, with these anchors. */
struct dns_sources resolver_sources_of(const struct role *role, struct slice anchors);

/* Makes a resolver that queries name servers. Returns NULL and a text in *ret_error on a
 * failure. */
struct resolver *resolver_new(struct event_base *base, const struct dns_sources *sources,
                              struct buf *ret_error);

/* Makes a resolver whose queries the resolve process answers; `link` must outlive it. `prove`:
 * answers are validated, where there is a trust anchor; otherwise none is secure. */
struct resolver *resolver_over(struct event_base *base, struct dns_link *link, bool prove);

/* Changes a resolver of resolver_new to other sources: empties the cache and repeats queries in
 * flight. Does nothing if the sources are equal. Returns false and a text in *ret_error if the new
 * sources do not work; then the previous ones stay. A resolver_done must not call it. */
bool resolver_renew(struct resolver *r, const struct dns_sources *sources, struct buf *ret_error);

/* Frees a resolver; drops its queries. NULL is fine. */
void resolver_free(struct resolver *r);

/* Sends a query for a name that dns_name_valid accepts. Calls `done` once with the result; the
 * packet lasts for the call. */
struct resolver_query *resolver_ask(struct resolver *r, struct slice name, enum resolver_type type,
                                    resolver_done *done, void *arg);

/* Cancels a query whose `done` was not called; `done` will not be called. NULL is fine. */
void resolver_cancel(struct resolver_query *q);

#endif
