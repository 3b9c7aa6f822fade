/*
 * The keys under which a table is searched for an address, the most specific first, as in Postfix.
 *
 *     KEYS_ACCESS       user+ext@domain, user@domain, domain, .parent and parent for each parent
 *                       domain, user+ext@, user@; for the null sender <>
 *     KEYS_RECIPIENT    user+ext@domain, user@domain, for a local domain and myorigin user+ext and
 *                       user, @domain
 *
 * All are in lower case. recipient_delimiter separates the extension.
 */
#ifndef RULES_KEYS_H
#define RULES_KEYS_H

#include <stdbool.h>
#include <stddef.h>

#include "conf.h"
#include "envelope.h"
#include "slice.h"

enum keys_form { KEYS_ACCESS, KEYS_RECIPIENT };

/* Fields are private to keys.c. */
struct keys {
    enum keys_form form;
    bool is_local;               /* the domain is one of local_domains, or myorigin */
    int step, last;              /* of the next key, and of the last one */
    char whole[ADDRESS_MAX + 1]; /* the address in lower case */
    struct slice local, bare, domain, parent;
    char room[ADDRESS_MAX + 2];
};

/* Begins the keys of `address`, which has the form of envelopes, perhaps without a domain, and at
 * most ADDRESS_MAX bytes. */
void keys_init(struct keys *k, enum keys_form form, const struct conf *conf, struct slice address);

/* Returns the next key, which lasts until the next call; false at the end. */
bool keys_next(struct keys *k, struct slice *ret_key);

/* Returns the length of the local part without its extension, if the last key was without it; else
 * 0. */
size_t keys_without_extension(const struct keys *k);

#endif
