/*
 * client_access, sender_access and recipient_access: which rule fits a client, sender or recipient,
 * and what it says.
 *
 * The tables of a list are asked in their order, each for all keys of the address (keys.h), the
 * closest first, or for the longest network that has the client. The first rule of a table that
 * fits counts there; the list ends with OK, REJECT, DEFER and DISCARD.
 */
#ifndef RULES_ACCESS_H
#define RULES_ACCESS_H

#include "action.h"
#include "buf.h"
#include "conf.h"
#include "ruling.h"
#include "slice.h"
#include "table.h"

/* A refusal of a recipient; code 0: none. */
struct access_reply {
    unsigned code;
    char status[ACTION_STATUS_MAX];
    struct buf *text; /* the caller's, of at least 2048 bytes; cleared first */
    struct buf *rule; /* where the rule stands, for the log; the same */
};

/* What these find goes into *r, but for a refusal, which goes into *reply. True: no refusal. */
bool access_client(const struct tables *t, const unsigned char ip[16], const char *client,
                   struct ruling *r, struct access_reply *reply);
bool access_sender(const struct tables *t, const struct conf *conf, struct slice sender,
                   struct ruling *r, struct access_reply *reply);
bool access_recipient(const struct tables *t, const struct conf *conf, struct slice recipient,
                      struct ruling *r, struct access_reply *reply);

/* Is it one of the addresses that there are? */
enum recipient_known {
    RECIPIENT_KNOWN,   /* or of no domain that has a list */
    RECIPIENT_UNKNOWN, /* of local_domains, and in none of local_recipient_maps */
    RECIPIENT_UNKNOWN_RELAY,
};
enum recipient_known recipient_known(const struct tables *t, const struct conf *conf,
                                     struct slice recipient);

/* What sender_bcc_maps or recipient_bcc_maps add for this address. */
bool access_bcc(const struct tables *t, enum table_list list, const struct conf *conf,
                struct slice address, struct table_hit *ret_hit);

#endif
