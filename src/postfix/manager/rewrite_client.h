/*
 * The client of trivial-rewrite(8): where does mail for an address go? Many may be asked at once;
 * the server answers one after the other.
 *
 *     ask --(in the cache)--------------------------------------> answered, at once
 *       \--> line --> connection to private/rewrite --answer--> answered
 *                       |    ^
 *              end, bad answer, no server: the same is asked again, until it is answered
 *
 * Answers are kept, up to REWRITE_CACHE_MAX of them and REWRITE_CACHE_US long. Where nothing that
 * is configured makes a difference between two mailboxes of a domain (by_domain), the answer for
 * one serves all of its domain, with the address put in its place; an answer in which the server
 * has changed the address serves no other. The sender is a part of the question unless the
 * configuration says that it makes no difference (by_sender).
 */
#ifndef POSTFIX_REWRITE_CLIENT_H
#define POSTFIX_REWRITE_CLIENT_H

#include <stdbool.h>
#include <stdint.h>

#include "rewrite_request.h"
#include "slice.h"
#include "spool.h"

struct event_base;
struct rewrite_client;

#define REWRITE_CACHE_MAX 10000
#define REWRITE_CACHE_US  (30 * US_PER_S)

struct rewrite_plan {
    struct event_base *base;
    const char *path;    /* of the socket */
    bool greets;         /* the server speaks first */
    bool by_domain;      /* mailboxes of a domain never differ */
    bool by_sender;      /* the sender may matter */
    int64_t idle_us;     /* a connection that is not used is closed after */
    int64_t life_us;     /* and one that is used, after */
    int64_t patience_us; /* an answer may take so long */
    /* An answer; borrowed for the call. */
    void (*answered)(void *arg, struct msg_id id, uint32_t n, const struct rewrite_answer *answer);
    void *arg;
};

struct rewrite_question {
    struct msg_id id;
    uint32_t n;           /* recipient */
    bool probe;           /* for address verification */
    bool completed_first; /* the address is to be rewritten before */
    struct slice sender, address;
};

struct rewrite_client *rewrite_client_new(const struct rewrite_plan *plan);
void rewrite_client_free(struct rewrite_client *r);

/* `answered` may be called from within. */
void rewrite_client_ask(struct rewrite_client *r, const struct rewrite_question *question);
/* Answers for this message are not wanted any more. */
void rewrite_client_forget(struct rewrite_client *r, struct msg_id id);

/* Questions that wait, and how many were answered by the server and from the cache. */
struct rewrite_counts {
    size_t waiting;
    uint64_t asked, cached;
};
struct rewrite_counts rewrite_counts(const struct rewrite_client *r);

#endif
