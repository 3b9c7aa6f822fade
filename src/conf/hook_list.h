/*
 * Web hooks: receivers of events by HTTP (parameter web_hooks). Lines of
 *
 *     NAME URL SECRET [MEMBER=VALUE,...]...
 *
 *     shop   https://shop.example/mail-events  s3cr3t-that-is-long-enough  event=bounced,expired
 *     local  http://127.0.0.1:8080/            another-secret-of-this-kind sender=@shop.example
 *
 * NAME has up to 32 letters, digits, `-` and `_`. SECRET is the key of the signature: 16 to 255
 * bytes without blanks. MEMBER is one of event_filter.h; without a MEMBER the hook gets all events.
 * http:// is only for this machine. Empty lines and lines that begin with `#` are ignored.
 */
#ifndef CONF_HOOK_LIST_H
#define CONF_HOOK_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "event_filter.h"
#include "slice.h"

#define HOOKS_MAX       16u
#define HOOK_NAME_MAX   32u
#define HOOK_HOST_MAX   253u
#define HOOK_PATH_MAX   512u
#define HOOK_SECRET_MIN 16u
#define HOOK_SECRET_MAX 255u

struct hook {
    char name[HOOK_NAME_MAX + 1];
    char host[HOOK_HOST_MAX + 1]; /* an IPv6 address is without brackets */
    char path[HOOK_PATH_MAX + 1]; /* with the query */
    char secret[HOOK_SECRET_MAX + 1];
    uint16_t port;
    bool tls;
    bool is_ipv6; /* true if `host` is an IPv6 address */
    struct event_filter filter;
};

struct hook_list {
    struct hook hooks[HOOKS_MAX];
    size_t count;
};

bool hook_name_valid(struct slice name);

/* Parses the text of a file. Returns NULL after an error, with "LINE:COLUMN: TEXT" in *ret_error,
 * which never quotes a secret. */
struct hook_list *hook_list_new(struct slice text, struct buf *ret_error);

/* Frees the list and overwrites its secrets. NULL is allowed. */
void hook_list_free(struct hook_list *list);

/* Are the two hooks equal? Conditions must be in the same order. */
bool hook_equal(const struct hook *a, const struct hook *b);

#endif
