/*
 * Access tables: find the rule of client_access, sender_access and recipient_access for a client,
 * sender or recipient, and apply its action.
 *
 * The tables of a list are searched in their order: each for all keys of the address (keys.h), the
 * most specific first, or for the longest network that contains the client. The first rule found in
 * a table applies. The list ends with OK, REJECT, DEFER and DISCARD.
 */
#ifndef RULES_ACCESS_H
#define RULES_ACCESS_H

#include "action.h"
#include "buf.h"
#include "conf.h"
#include "ruling.h"
#include "slice.h"
#include "table.h"

/* Refusal of a recipient; none if `code` is 0. */
struct access_reply {
    unsigned code;
    char status[ACTION_STATUS_MAX];
    struct buf *text; /* text of the reply; borrowed, limit at least 2048 bytes, cleared first */
    struct buf *rule; /* list, file and line of the rule, for the log; as `text` */
};

/* Applies the rules for a client, sender or recipient. Returns false for a refusal, which is put
 * into *reply; all other actions go into *r. */
bool access_client(const struct tables *t, const unsigned char ip[16], const char *client,
                   struct ruling *r, struct access_reply *reply);
bool access_sender(const struct tables *t, const struct conf *conf, struct slice sender,
                   struct ruling *r, struct access_reply *reply);
bool access_recipient(const struct tables *t, const struct conf *conf, struct slice recipient,
                      struct ruling *r, struct access_reply *reply);

/* Whether an address exists, as far as the lists of recipients know. */
enum recipient_known {
    RECIPIENT_KNOWN,         /* listed, or its domain has no list */
    RECIPIENT_UNKNOWN,       /* in local_domains, but not in local_recipient_maps */
    RECIPIENT_UNKNOWN_RELAY, /* in relay_domains, but not in relay_recipient_maps */
    RECIPIENT_UNKNOWN_ALIAS, /* in virtual_alias_domains, but not in virtual_alias_maps */
};
/* Returns whether an address of one of our domains is listed, or an alias. */
enum recipient_known recipient_known(const struct tables *t, const struct conf *conf,
                                     struct slice recipient);

/* Finds the copy that sender_bcc_maps or recipient_bcc_maps add for this address. */
bool access_bcc(const struct tables *t, enum table_list list, const struct conf *conf,
                struct slice address, struct table_hit *ret_hit);

#endif
