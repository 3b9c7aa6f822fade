/*
 * Decision whether a failed delivery may fail permanently, so that the mail bounces.
 *
 * Permitted causes are: the site's answer about this mail, the mail itself, a rule that the
 * operator wrote to refuse it, and the recipient's own domain. If a next hop of the configuration
 * can't be used, or this machine has a fault, the operator must correct that. The mail then waits
 * with FAILURE_STATUS, Postfix's status for a relayhost that was not found.
 */
#ifndef CONF_FAILURE_H
#define CONF_FAILURE_H

#include <stdbool.h>

#include "route.h"

enum failure_cause {
    FAILURE_OURS,    /* fault of this machine: system, DNS, login, TLS settings, commands */
    FAILURE_ANSWER,  /* answer of the site or command about this recipient or its mail */
    FAILURE_MAIL,    /* address or content that the site's protocol can't express */
    FAILURE_RULE,    /* setting whose purpose is to refuse such mail, as size_limit */
    FAILURE_LOOKUP,  /* no such name, no address, a null MX, or no host name at all */
    FAILURE_LOOP,    /* next hop that is this machine */
    FAILURE_SESSION, /* site that refuses every session */
    FAILURE_SETTING, /* temporary refusal until a setting or the next hop changes: no login, no
                        TLS, or a 5xx greeting with skip_5xx_greeting */
    FAILURE_BIND,    /* bind_address that is no address of this machine */
    FAILURE_BIND6,   /* bind_address6 that is no address of this machine */
    FAILURE_CAUSES
};

/* Status of mail after a permanent failure that must not be permanent. */
#define FAILURE_STATUS                                                                             \
    {                                                                                              \
        4, 3, 5                                                                                    \
    }

/* Prefix of the text of a local delivery that waits with FAILURE_STATUS because of its user or
 * group; other such texts are about its command. */
#define FAILURE_USER_TEXT "mail system configuration error: "

/* May the mail bounce for this cause, if `namer` named the next hop? */
bool failure_may_be_permanent(enum failure_cause cause, enum route_namer namer);

/* Does mail that is deferred for this cause wait until an operator corrects a setting, if `namer`
 * named the next hop? */
bool failure_waits_for_setting(enum failure_cause cause, enum route_namer namer);

#endif
