/*
 * Questions about a queue that its spool can answer: the part of the API that only reads.
 *
 * A question is a JSON object with "op" and the operation's parameters, and an answer is a JSON
 * object; docs/api.md describes both. While the daemon runs, the queue process answers. Otherwise
 * the command line passes the same questions to these functions.
 *
 * Work and answers are limited: a list has pages of at most LISTING_PAGE_MAX messages, and a page
 * ends early when it is longer than LISTING_BYTES_MAX.
 */
#ifndef QUEUE_LISTING_H
#define QUEUE_LISTING_H

#include <stdbool.h>

#include <jansson.h>

#include "match.h"
#include "queue_report.h"
#include "spool.h"
#include "spool_search.h"
#include "times.h"

#define LISTING_PAGE_MAX  1000
#define LISTING_RCPTS_MAX 1000 /* recipients of one message in one answer */
/* Length at which an answer ends, except that its last message or recipient may exceed it. */
#define LISTING_BYTES_MAX (8u << 20)

/* Does `op` only read ("list", "show", "count", "destinations", "shape", "totals")? */
bool listing_knows(const char *op);

/* Does the question concern messages in memory ("list" or "count", with "active" among the states)?
 * The spool does not have the state of other nodes' memory. */
bool listing_is_of_memory(const json_t *question);

/* Answers a question for whose op listing_knows is true. Returns an HTTP status; *ret_answer is a
 * new object, {"error": "..."} unless the status is 200. */
unsigned listing_ask(struct spool *sp, const json_t *question, struct wall now,
                     json_t **ret_answer);

/* Conditions of a question: those with an index in the spool, and those that are checked message by
 * message. */
struct listing_filter {
    struct spool_filter spool;
    struct slice reason;    /* text, or pattern with * or ?, within the reason of a message or a
                               recipient's last reply; empty: any */
    struct slice client;    /* origin: a host's name, a domain of it, its address, or a pattern for
                               one of these; empty: any */
    bool client_is_network; /* client_network applies instead of `client` */
    struct cidr client_network;
    /* Further condition; NULL: none. It reads the message, and returns whether it matches. */
    bool (*extra)(const void *context, struct msg_id id);
    const void *context; /* borrowed; argument of `extra` */
    bool active;         /* messages in memory, and of others those in `states` */
    unsigned states;     /* valid with `active` */
};

/* Reads the "filter" object of a question; NULL means all messages. Returns false for an invalid
 * filter, and sets *ret_error to a static text with the member and the expected value. Addresses
 * may be written as people type them (shop.example, *@shop.example, <a@b>). They are rewritten in
 * the JSON, into which the slices of *ret_filter point. */
bool listing_filter(json_t *filter, struct wall now, struct listing_filter *ret_filter,
                    const char **ret_error);

/* Messages and recipients that one listing_scan reads if no index finds the matching ones. */
#define LISTING_LOOKED_MAX 5000

/* Finds the next messages that match, at most `max`, after f->spool.after. *ret_more: there may be
 * more after *ret_last, even if there are fewer than `max`. Errors as spool_scan. */
int listing_scan(struct spool *sp, const struct listing_filter *f, size_t max,
                 struct msg_id *ret_ids, size_t *ret_count, struct msg_id *ret_last,
                 bool *ret_more);

/* Finds the messages that a text names: the one with this queue id, or those of the control file
 * with this name, path or spoolid (a divided control file has several). Stores at most `max` ids in
 * ret_ids, and returns their number. */
size_t listing_ids(struct spool *sp, const char *text, size_t max, struct msg_id *ret_ids);

/* Finds the first such message. Returns 200, or the status of an error in *ret_answer. */
unsigned listing_id(struct spool *sp, const char *text, struct msg_id *ret_id, json_t **ret_answer);

/* Sets *ret_answer to {"error": text} and returns the status. */
unsigned listing_error(unsigned status, json_t **ret_answer, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Returns bytes from mail as JSON text. Bytes that are not UTF-8 are converted from Latin-1, so
 * that nothing is lost. */
json_t *listing_text(struct slice s);

const char *listing_state_name(enum spool_state state);

/* Returns the id that users see: the queue id, or the message's only name in another program's
 * store. */
const char *listing_shown_id(const struct spool_message *m, char room[QUEUE_NAME_MAX]);

#endif
