/*
 * A message on its way in, as the rules see it. Here access tables, recipient tables,
 * content_filter, automatic copies and aliases are applied to a message, for SMTP, LMTP, `sendmail`
 * and all other ways in. After the checks its content is cleaned up (cleanup.h).
 *
 *     arrival_begin --> arrival_rcpt ... --> arrival_data --> arrival_content ... --> arrival_end
 *                       (SMTP and LMTP)
 *                   --> arrival_envelope --> arrival_log --> arrival_drop
 *
 * Mail from a listener with filtered=yes has passed the rules when it was first received. No rule
 * is applied to it again.
 *
 * Embed the struct; its fields except `ruling` are private to arrival.c.
 */
#ifndef RECEIVE_ARRIVAL_H
#define RECEIVE_ARRIVAL_H

#include <stdbool.h>
#include <stdint.h>

#include "access.h"
#include "buf.h"
#include "callout_target.h"
#include "checks.h"
#include "cleanup.h"
#include "conf.h"
#include "role.h"
#include "rule_set.h"
#include "ruling.h"
#include "server.h"
#include "slice.h"
#include "wire.h"

/* Number of visits after which a message that would go to a content filter again is in a loop. */
#define ARRIVAL_VISITS_MAX 10

struct arrival {
    struct rule_set *set; /* a reference; NULL: no message has begun */
    struct ruling ruling;
    struct checks *checks; /* owned; NULL: the content is not checked */
    struct cleanup cleanup;
    struct buf author; /* value of a missing From field */
    checks_put *put;   /* receiver of the content and its argument, while bytes are fed */
    void *put_arg;
    bool filtered;
    bool client_asked; /* true after the check of client and sender */
    unsigned bar_code; /* code with which client_access or sender_access refuses every recipient; 0:
                        * none */
    char bar_status[ACTION_STATUS_MAX];
    char *bar_text, *bar_rule; /* owned */
    struct buf rules;          /* buffer of arrival_rules */
    char **kept;               /* owned; addresses of aliases and canonical maps */
    size_t kept_count, kept_size;
};

/* A client that sends by SMTP or LMTP. */
struct arrival_client {
    const unsigned char *ip; /* 16 bytes; NULL for a Unix socket */
    const char *text;        /* "unknown[192.0.2.1]" */
};

/* Buffers for the text of a refusal. */
struct arrival_words {
    struct buf *text, *rule; /* the caller's; `rule` is empty or "sender_access FILE:LINE" */
    char status[ACTION_STATUS_MAX];
    struct callout_target ask; /* with code 0: the peer to ask whether the recipient exists */
};

/* Begins a new message. `a` is zeroed or was used before. `filtered`: its listener has
 * filtered=yes. */
void arrival_begin(struct arrival *a, struct rule_set *set, bool filtered);

/* Releases the message. May be called at any time, also twice. */
void arrival_drop(struct arrival *a);

/* Checks a recipient with client_access, sender_access, recipient_access and the recipient tables.
 * Returns code 0 if none of them refuses it. Client and sender are checked once for a message. */
struct server_reply arrival_rcpt(struct arrival *a, const struct conf *conf,
                                 const struct arrival_client *client, struct slice sender,
                                 struct slice rcpt, struct arrival_words *words);

/* Returns the reply for a recipient that does not exist, or that no peer could verify
 * (`unsure`). */
struct server_reply arrival_unknown(bool unsure, bool local, struct slice rcpt,
                                    struct arrival_words *words);

/* The author of a message, for its clean-up. */
struct arrival_author {
    bool is_own;         /* the client may relay (cleanup.h) */
    struct slice sender; /* stored form, empty: the null sender */
    struct slice name;   /* for a missing From field; may be empty */
};

/* Prepares the checks and the clean-up of the content, which follows. Borrows nothing. */
void arrival_data(struct arrival *a, const struct arrival_author *author);

/* Checks and cleans a piece of the content, in wire form. Calls `put` with content to store:
 * perhaps later, and perhaps changed. */
void arrival_content(struct arrival *a, struct slice content, checks_put *put, void *arg);

/* Returns the number of bytes that were fed and have not been passed to `put` yet. */
size_t arrival_held(const struct arrival *a);

/* Ends the content: passes the rest to `put`. Returns the reply to the message, which lasts until
 * arrival_drop; code 0: accepted. `client` names the client in the log. */
struct server_reply arrival_end(struct arrival *a, const char *client, checks_put *put, void *arg);

/* Changes the envelope for the queue: applies REDIRECT, canonical forms (of *sender, too), adds
 * copies (BCC, always_bcc, sender_bcc_maps, recipient_bcc_maps; each address once), expands
 * aliases, and sets the first target (FILTER, content_filter, fallback_transport). Replaces *rcpts,
 * an array of mem_array; its slices last until arrival_drop or as long as `conf`. At most `max`
 * recipients result: further copies are left out and counted. Returns code 0, or the reply to the
 * message if aliases can't be expanded, which is logged. *rcpts is the caller's in both cases. */
struct server_reply arrival_envelope(struct arrival *a, const struct conf *conf,
                                     struct slice *sender, struct wire_rcpt **rcpts,
                                     uint32_t *count, uint32_t max);

/* Returns the reason to put the message on hold; empty: none. */
struct slice arrival_hold(const struct arrival *a);

/* Returns the actions of the rules, for operators that view the message later: "REDIRECT a@b
 * (sender_access FILE:LINE); ..". Empty without actions. Lasts until arrival_drop. */
struct slice arrival_rules(struct arrival *a);

/* Is there something to log? */
bool arrival_has_notes(const struct arrival *a);

/* Logs the actions of the rules, each after `id` (a queue id, or "NOQUEUE"). `envelope` is the text
 * that Postfix logs after the client: "from=<a> to=<b> proto=ESMTP helo=<c>". */
void arrival_log(const struct arrival *a, const char *id, const char *client, const char *envelope);

/* Replaces *rules by the rules of the role's configuration. If they can't be loaded, logs the error
 * and returns false; the process must not accept mail then. */
bool arrival_use_rules(const struct role *role, struct rule_set **rules);

#endif
