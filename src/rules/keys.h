/*
 * The keys under which a table is asked for an address, the closest first, as Postfix has them.
 *
 *     KEYS_ACCESS       user+ext@domain, user@domain, domain, of each parent domain .parent and
 *                       parent, user+ext@, user@; the null sender: <>
 *     KEYS_RECIPIENT    user+ext@domain, user@domain, of a local domain user+ext and user,
 *                       @domain
 *
 * All in lower case. The extension is what recipient_delimiter says.
 */
#ifndef RULES_KEYS_H
#define RULES_KEYS_H

#include <stdbool.h>

#include "conf.h"
#include "envelope.h"
#include "slice.h"

enum keys_form { KEYS_ACCESS, KEYS_RECIPIENT };

/* Fields are private to keys.c. */
struct keys {
    enum keys_form form;
    bool is_local; /* the domain is one of local_domains */
    int step;
    char whole[ADDRESS_MAX + 1]; /* the address in lower case */
    struct slice local, bare, domain, parent;
    char room[ADDRESS_MAX + 2];
};

/* `address` as envelopes have it, perhaps without a domain; at most ADDRESS_MAX bytes. */
void keys_init(struct keys *k, enum keys_form form, const struct conf *conf, struct slice address);

/* The next key; lasts until the next call. False: there are no more. */
bool keys_next(struct keys *k, struct slice *ret_key);

#endif
