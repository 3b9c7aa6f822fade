/*
 * Questions about a queue, answered from its spool: the part of the API that only reads.
 *
 * A question is a JSON object with "op" and what the operation needs, an answer is a JSON object;
 * docs/api.md describes both. The queue process answers so while the daemon runs, and the command
 * line asks the same questions of the spool itself when it does not.
 *
 * Work and answer are bounded: lists come in pages of at most LISTING_PAGE_MAX messages, and a page
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
/* Length of an answer at which it ends: a message or recipient may still pass it. */
#define LISTING_BYTES_MAX (8u << 20)

/* Does `op` only read ("list", "show", "count", "destinations", "shape", "totals")? */
bool listing_knows(const char *op);

/* Does it ask for messages in memory ("list", "count" with "active" among the states)? Of others'
 * memory the spool does not know. */
bool listing_is_of_memory(const json_t *question);

/* Answer a question whose op listing_knows. Returns a status as HTTP has them; *ret_answer is a new
 * object, {"error": "..."} unless the status is 200. */
unsigned listing_ask(struct spool *sp, const json_t *question, struct wall now,
                     json_t **ret_answer);

/* What a question asks for: conditions that the spool has indexes for, and others for which the
 * messages that meet those are looked at, one by one. */
struct listing_filter {
    struct spool_filter spool;
    struct slice reason; /* text, or a pattern with * or ?, that stands in why it is kept, or in a
                             recipient's last reply; empty: any */
    struct slice client; /* where it came from: its name, a domain of that, its address, or a
                             pattern for one of these */
    bool client_is_network; /* then this holds in its place */
    struct cidr client_network;
    bool active;     /* messages in memory, and of other states those in `states` */
    unsigned states; /* of those, when `active` */
};

/* The "filter" object of a question; NULL is everything. False and *ret_error (static text: which
 * member, what is expected) when it is none. Addresses are taken as people type them (shop.example,
 * *@shop.example, <a@b>) and rewritten in the JSON, into which the slices of *ret_filter point. */
bool listing_filter(json_t *filter, struct wall now, struct listing_filter *ret_filter,
                    const char **ret_error);

/* Messages and recipients that one listing_scan looks at, where no index says which match. */
#define LISTING_LOOKED_MAX 5000

/* The next messages that match, at most `max`, behind f->spool.after. *ret_more: there may be
 * others, behind *ret_last, also when there are fewer than `max`. As spool_scan. */
int listing_scan(struct spool *sp, const struct listing_filter *f, size_t max,
                 struct msg_id *ret_ids, size_t *ret_count, struct msg_id *ret_last,
                 bool *ret_more);

/* The messages that a text names: the one with this queue id, or those of the control file with
 * this name, path or spoolid, of which there may be several, as mail is divided. At most `max` ids
 * into ret_ids; 0: there is none. */
size_t listing_ids(struct spool *sp, const char *text, size_t max, struct msg_id *ret_ids);

/* The first of them; else the status of an answer that says so. */
unsigned listing_id(struct spool *sp, const char *text, struct msg_id *ret_id, json_t **ret_answer);

/* {"error": text}, and the status it goes with. */
unsigned listing_error(unsigned status, json_t **ret_answer, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Bytes from mail as JSON text: what is not UTF-8 is shown with its bytes as Latin-1, so that
 * nothing is lost and the answer stays JSON. */
json_t *listing_text(struct slice s);

const char *listing_state_name(enum spool_state state);

/* What users know the message by: its id, or the name that other programs have for it alone. */
const char *listing_shown_id(const struct spool_message *m, char room[QUEUE_NAME_MAX]);

#endif
