/*
 * Elements of local_recipient_maps and relay_recipient_maps that are no file: whom to ask at RCPT
 * which recipients there are.
 *
 *     lmtp:NEXTHOP  smtp:NEXTHOP    ask there; NEXTHOP is [host], [host]:port or unix:PATH
 *     lmtp:         smtp:           ask the next hop of local_transport or relay_transport
 */
#ifndef CONF_CALLOUT_TARGET_H
#define CONF_CALLOUT_TARGET_H

#include <stdbool.h>

#include "buf.h"
#include "milter_list.h"
#include "slice.h"

struct conf;

struct callout_target {
    bool lmtp;
    char
        text[MILTER_ADDRESS_MAX]; /* "inet:HOST:PORT" or "unix:PATH" (milter_list.h); empty: none */
};

/* Is it such an element? */
bool callout_element(struct slice text);

/* Whom to ask about recipients of local_domains, else of relay_domains; none is fine. False: the
 * element is wrong, with the reason in *ret_error. */
bool callout_target_of(const struct conf *conf, bool local, struct callout_target *ret_target,
                       struct buf *ret_error);

#endif
