/*
 * Elements of local_recipient_maps and relay_recipient_maps that are no file, but a peer that is
 * asked at RCPT whether a recipient exists.
 *
 *     lmtp:NEXTHOP  smtp:NEXTHOP    the peer is [host], [host]:port or unix:PATH
 *     lmtp:         smtp:           the peer is the next hop of local_transport or
 * relay_transport
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

/* Is the text such an element? */
bool callout_element(struct slice text);

/* Finds the peer for recipients of local_domains, or else of relay_domains; perhaps none. Returns
 * false, with the reason in *ret_error, if an element is invalid. */
bool callout_target_of(const struct conf *conf, bool local, struct callout_target *ret_target,
                       struct buf *ret_error);

#endif
