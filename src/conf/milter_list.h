/*
 * Lists of filters in smtpd_milters and non_smtpd_milters: addresses separated by commas or blanks,
 * each alone or with its options in braces.
 *
 *     inet:HOST:PORT             a name, an IPv4 address, or an IPv6 address in brackets
 *     inet6:HOST:PORT            IPv6 only
 *     unix:PATH  local:PATH      a Unix socket; a relative path starts at state_directory
 *     { ADDRESS, connect_timeout=TIME, command_timeout=TIME, content_timeout=TIME,
 *       default_action=ACTION, protocol=VERSION }
 *
 * The words are those of Postfix, so that its lines can be copied. `none' as the only word means no
 * filter.
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
    bool is_v6;        /* true for inet6: */
    struct slice host; /* slice of `text`; the path if is_unix */
    uint16_t port;     /* 1..65535; 0 if is_unix */
};

struct milter_spec {
    char text[MILTER_ADDRESS_MAX]; /* as written, with an absolute path */
    int64_t connect_timeout_us, command_timeout_us, content_timeout_us;
    enum conf_milter_action default_action;
    unsigned protocol; /* 2..6 */
};

struct milter_list {
    struct milter_spec at[MILTER_LIST_MAX];
    size_t count;
};

struct conf;

/* Parses a list. Missing options have the values of milter_connect_timeout and the other parameters
 * in `conf`. Returns false with the reason in *ret_error. */
bool milter_list_parse(const struct conf *conf, const char *list, struct milter_list *ret_list,
                       struct buf *ret_error);

/* Parses an address. Returns false if the text is none. */
bool milter_address_parse(struct slice text, struct milter_address *ret_address);

#endif
