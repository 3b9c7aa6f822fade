/*
 * Logins at relays (relay_auth): lines of
 *
 *     NEXTHOP [SENDER] USER:PASSWORD
 *
 *     [smtp.example.org]:587                  app:secret
 *     [smtp.example.org]:587  @shop.example   shop@shop.example:two words
 *     [smtp.example.org]:587  a@shop.example  other:secret
 *
 * NEXTHOP is written as in relayhost and transport_maps. A host alone also fits that host in
 * brackets, at any port. SENDER is an address or @DOMAIN. The user ends at the first colon, which
 * no user's name may have, and the password is the rest of the line. Empty lines and lines that
 * begin with `#` are ignored.
 *
 *     @shop.example           shop:secret
 *
 * A line without NEXTHOP fits every next hop in brackets. It does not fit a next hop whose hosts
 * the DNS names, because mail to any domain has one.
 *
 * If several logins fit, the one with the address counts, then the one with the domain, then the
 * one without a sender; among equals the one with a next hop, then the first. So the text that
 * postmap reads for smtp_sasl_password_maps of Postfix is valid here and has the same meaning.
 */
#ifndef CONF_LOGIN_LIST_H
#define CONF_LOGIN_LIST_H

#include <stdbool.h>
#include <stddef.h>

#include "buf.h"
#include "nexthop.h"
#include "slice.h"

#define LOGIN_LIST_FILE_MAX (1u << 20) /* maximum bytes of a file */
#define LOGIN_LIST_MAX      10000u
#define LOGIN_USER_MAX      255u
#define LOGIN_PASSWORD_MAX  1024u

struct login {
    const char *nexthop, *sender; /* NULL: any; the next hop in its canonical form */
    struct nexthop hop;           /* parsed `nexthop', if that is not NULL */
    char *changed;                /* private: owned text of `nexthop', or NULL */
    const char *user, *password;
    unsigned line;
};

struct login_list;

/* Parses the text of a file. Returns NULL after an error, with "LINE:COLUMN: TEXT" in *ret_error,
 * which never quotes a password. */
struct login_list *login_list_new(struct slice text, struct buf *ret_error);

/* Frees the list and overwrites its passwords. NULL is allowed. */
void login_list_free(struct login_list *list);

/* Returns the login for mail from `sender` (without angle brackets, may be empty) by this next hop;
 * NULL: none. Lasts as long as the list. */
const struct login *login_list_find(const struct login_list *list, struct slice nexthop,
                                    struct slice sender);

#endif
