/*
 * A message on its way in, as the rules see it: the one place where access tables, recipient
 * tables, content_filter and automatic copies meet a message, for SMTP, LMTP, `sendmail` and all
 * other ways in.
 *
 *     arrival_begin --> arrival_rcpt ... --> arrival_data --> arrival_content ... --> arrival_end
 *                       (SMTP and LMTP)
 *                   --> arrival_envelope --> arrival_log --> arrival_drop
 *
 * What comes in by a listener with filtered=yes was looked at when it came in first: none of the
 * rules hold for it again.
 *
 * Embed it; fields but `ruling` are private to arrival.c.
 */
#ifndef RECEIVE_ARRIVAL_H
#define RECEIVE_ARRIVAL_H

#include <stdbool.h>
#include <stdint.h>

#include "access.h"
#include "buf.h"
#include "callout_target.h"
#include "checks.h"
#include "conf.h"
#include "rule_set.h"
#include "ruling.h"
#include "server.h"
#include "slice.h"
#include "wire.h"

/* A message that has been here so often and would go to a content filter again is in a loop. */
#define ARRIVAL_VISITS_MAX 10

struct arrival {
    struct rule_set *set; /* counted; NULL: no message has begun */
    struct ruling ruling;
    struct checks *checks; /* owned; NULL: nothing is looked at in the content */
    bool filtered;
    bool client_asked; /* and the sender */
    unsigned bar_code; /* what they answered: each recipient is refused; 0: nothing */
    char bar_status[ACTION_STATUS_MAX];
    char *bar_text, *bar_rule; /* owned */
    struct buf rules;          /* of arrival_rules */
};

/* A client that sends by SMTP or LMTP. */
struct arrival_client {
    const unsigned char *ip; /* 16 bytes; NULL: a Unix socket */
    const char *text;        /* "unknown[192.0.2.1]" */
};

/* Where a refusal keeps its words. */
struct arrival_words {
    struct buf *text, *rule; /* the caller's; `rule` is empty, or "sender_access FILE:LINE" */
    char status[ACTION_STATUS_MAX];
    struct callout_target ask; /* with code 0: this peer knows if there is such a recipient */
};

/* All zero is one that has not begun. A new message; `filtered`: of a listener that is so. */
void arrival_begin(struct arrival *a, struct rule_set *set, bool filtered);

/* Fine at any time, also twice. */
void arrival_drop(struct arrival *a);

/* What client_access, sender_access and recipient_access say of a recipient, and the lists of those
 * that there are. Code 0: nothing. The first two are asked once for a message. */
struct server_reply arrival_rcpt(struct arrival *a, const struct conf *conf,
                                 const struct arrival_client *client, struct slice sender,
                                 struct slice rcpt, struct arrival_words *words);

/* The reply where a peer was asked, or could not be. */
struct server_reply arrival_unknown(bool unsure, bool local, struct slice rcpt,
                                    struct arrival_words *words);

/* The content is about to come. */
void arrival_data(struct arrival *a, const struct conf *conf);

/* A piece of it, in wire form: what is to be stored goes to `put`, perhaps later, perhaps with more
 * lines. */
void arrival_content(struct arrival *a, struct slice content, checks_put *put, void *arg);

/* Bytes that have come and have not gone to `put` yet. */
size_t arrival_held(const struct arrival *a);

/* All of it has come: the rest goes to `put`. The reply to the message; code 0: nothing speaks
 * against it. It lasts until arrival_drop. `client` is whose message it is, for the log. */
struct server_reply arrival_end(struct arrival *a, const struct conf *conf, const char *client,
                                checks_put *put, void *arg);

/* Recipients as they are handed to the queue: REDIRECT, copies (BCC, always_bcc, sender_bcc_maps,
 * recipient_bcc_maps), each address once, and where they go first (FILTER, content_filter,
 * fallback_transport). *rcpts, an array of mem_array, is exchanged for another one; what it points
 * to lasts until arrival_drop, or as long as `conf`. At most `max` recipients: copies beyond that
 * are left out, and counted. */
void arrival_envelope(struct arrival *a, const struct conf *conf, struct slice sender,
                      struct wire_rcpt **rcpts, uint32_t *count, uint32_t max);

/* Why it is to go to hold; empty: it is not. */
struct slice arrival_hold(const struct arrival *a);

/* What the rules did, for operators that look at the message later: "REDIRECT a@b (sender_access
 * FILE:LINE); ..". Empty: nothing. Lasts until arrival_drop. */
struct slice arrival_rules(struct arrival *a);

/* Is there something to log? */
bool arrival_has_notes(const struct arrival *a);

/* Log what the rules did, behind `id` (a queue id, or "NOQUEUE"). `envelope` is what Postfix puts
 * behind the client: "from=<a> to=<b> proto=ESMTP helo=<c>". */
void arrival_log(const struct arrival *a, const char *id, const char *client, const char *envelope);

#endif
