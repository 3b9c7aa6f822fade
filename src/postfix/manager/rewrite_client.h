/*
 * The client of trivial-rewrite(8), which returns the route of an address. Many questions may be
 * asked at once; the server answers them one after the other.
 *
 *     ask --(in the cache)--------------------------------------> answered, at once
 *       \--> line --> connection to private/rewrite --answer--> answered
 *                       |    ^
 *              end, bad answer, no server: the question is repeated until it is answered
 *
 * Up to REWRITE_CACHE_MAX answers are cached for REWRITE_CACHE_US. If the configuration never
 * distinguishes mailboxes of a domain (by_domain), the answer for one mailbox is used for the whole
 * domain, with the address replaced. An answer in which the server has changed the address is used
 * for no other. The sender is part of the key only if the configuration may distinguish senders
 * (by_sender).
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
    const char *path;    /* path of the socket */
    bool greets;         /* the server sends a hello first */
    bool by_domain;      /* all mailboxes of a domain have the same route */
    bool by_sender;      /* the route may depend on the sender */
    int64_t idle_us;     /* time after which an unused connection is closed */
    int64_t life_us;     /* time after which a used connection is closed */
    int64_t patience_us; /* time limit of an answer */
    /* Receives an answer, which is borrowed for the call. */
    void (*answered)(void *arg, struct msg_id id, uint32_t n, const struct rewrite_answer *answer);
    void *arg;
};

struct rewrite_question {
    struct msg_id id;
    uint32_t n;           /* number of the recipient */
    bool probe;           /* for address verification */
    bool completed_first; /* the address must be rewritten first */
    struct slice sender, address;
};

struct rewrite_client *rewrite_client_new(const struct rewrite_plan *plan);
void rewrite_client_free(struct rewrite_client *r);

/* Requests the route of an address. May call `answered` before it returns. */
void rewrite_client_ask(struct rewrite_client *r, const struct rewrite_question *question);
/* Drops the questions of this message: their answers will not be passed on. */
void rewrite_client_forget(struct rewrite_client *r, struct msg_id id);

/* Number of questions that wait, and that were answered by the server and from the cache. */
struct rewrite_counts {
    size_t waiting;
    uint64_t asked, cached;
};
struct rewrite_counts rewrite_counts(const struct rewrite_client *r);

#endif
