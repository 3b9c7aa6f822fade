/*
 * Filters as smtpd_milters and non_smtpd_milters name them: addresses separated by commas or
 * blanks, each alone or with options of its own in braces.
 *
 *     inet:HOST:PORT             a name, an IPv4 address, or an IPv6 address in brackets
 *     inet6:HOST:PORT            IPv6 only
 *     unix:PATH  local:PATH      a Unix socket; a relative path starts at state_directory
 *     { ADDRESS, connect_timeout=TIME, command_timeout=TIME, content_timeout=TIME,
 *       default_action=ACTION, protocol=VERSION }
 *
 * The words of Postfix, so that its lines may be pasted. `none' as the only word is no filter.
 */
#ifndef CONF_MILTER_LIST_H
#define CONF_MILTER_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "params.h"
#include "slice.h"

#define MILTER_LIST_MAX    8
#define MILTER_ADDRESS_MAX 300 /* bytes of an address as text, NUL included */

struct milter_address {
    bool is_unix;
    bool is_v6;        /* inet6: */
    struct slice host; /* of `text`; the path when is_unix */
    uint16_t port;     /* 1..65535; 0 when is_unix */
};

struct milter_spec {
    char text[MILTER_ADDRESS_MAX]; /* as written, a relative path made absolute */
    int64_t connect_timeout_us, command_timeout_us, content_timeout_us;
    enum conf_milter_action default_action;
    unsigned protocol; /* 2..6 */
};

struct milter_list {
    struct milter_spec at[MILTER_LIST_MAX];
    size_t count;
};

struct conf;

/* Read a list. What an element does not say is as milter_connect_timeout and its like in `conf`.
 * False with the reason in *ret_error. */
bool milter_list_parse(const struct conf *conf, const char *list, struct milter_list *ret_list,
                       struct buf *ret_error);

/* False when it is none. */
bool milter_address_parse(struct slice text, struct milter_address *ret_address);

#endif
