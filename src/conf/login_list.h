/*
 * Who we are to the relays that want a login (relay_auth): lines of
 *
 *     NEXTHOP [SENDER] USER:PASSWORD
 *
 *     [smtp.example.org]:587                  app:secret
 *     [smtp.example.org]:587  @shop.example   shop@shop.example:two words
 *     [smtp.example.org]:587  a@shop.example  other:secret
 *
 * NEXTHOP is written as in relayhost and transport_maps. SENDER is an address or @DOMAIN. What
 * follows is the login: the user up to the first colon, which no user's name has, and the password
 * to the end of the line. Empty lines, and those that begin with `#`, are nothing. Of several that
 * fit the one with the address counts, then the one with the domain, then the one without a sender,
 * and of those the first.
 */
#ifndef CONF_LOGIN_LIST_H
#define CONF_LOGIN_LIST_H

#include <stdbool.h>
#include <stddef.h>

#include "buf.h"
#include "slice.h"

#define LOGIN_LIST_FILE_MAX (1u << 20) /* bytes */
#define LOGIN_LIST_MAX      10000u
#define LOGIN_USER_MAX      255u
#define LOGIN_PASSWORD_MAX  1024u

struct login {
    const char *nexthop, *sender; /* sender: NULL: any */
    const char *user, *password;
    unsigned line;
};

struct login_list;

/* Read the text of a file. NULL with "LINE:COLUMN: what is wrong" in *ret_error, which never quotes
 * a password. */
struct login_list *login_list_new(struct slice text, struct buf *ret_error);

/* Passwords are overwritten. NULL is fine. */
void login_list_free(struct login_list *list);

/* The login for mail from `sender` (without angle brackets, may be empty) by this next hop; NULL:
 * there is none. Lasts as long as the list. */
const struct login *login_list_find(const struct login_list *list, struct slice nexthop,
                                    struct slice sender);

/* Is there any for this next hop, whatever the sender? */
bool login_list_has(const struct login_list *list, struct slice nexthop);

#endif
