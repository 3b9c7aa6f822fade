#include "callout_target.h"

#include <stdio.h>

#include "conf.h"
#include "nexthop.h"

#define PORT_LMTP 24
#define PORT_SMTP 25

bool callout_element(struct slice text)
{
    return slice_starts(text, SLICE("lmtp:")) || slice_starts(text, SLICE("smtp:"));
}

static bool fail(struct buf *error, const char *element, const char *what)
{
    (void)buf_addf(error, "`%.200s' %s", element, what); /* errors are sticky */
    return false;
}

static bool put_address(const struct nexthop *n, const struct conf *conf,
                        struct callout_target *target)
{
    int len;

    if (n->is_unix) {
        len = snprintf(target->text, sizeof target->text, "unix:%s%s%.*s",
                       n->host.ptr[0] == '/' ? "" : conf->state_directory,
                       n->host.ptr[0] == '/' ? "" : "/", SLICE_ARGS(n->host));
    } else {
        bool v6 = slice_find(n->host, ':') < n->host.len;
        unsigned port = n->port != 0 ? n->port : target->lmtp ? PORT_LMTP : PORT_SMTP;

        len = snprintf(target->text, sizeof target->text, "inet:%s%.*s%s:%u", v6 ? "[" : "",
                       SLICE_ARGS(n->host), v6 ? "]" : "", port);
    }
    return len > 0 && (size_t)len < sizeof target->text;
}

bool callout_target_of(const struct conf *conf, bool local, struct callout_target *ret_target,
                       struct buf *ret_error)
{
    const struct conf_list *list =
        local ? &conf->local_recipient_maps : &conf->relay_recipient_maps;
    struct milter_address address;
    const char *element = NULL;
    struct slice where;
    struct nexthop n;

    *ret_target = (struct callout_target){.lmtp = false};
    for (size_t i = 0; i < list->count; i++) {
        if (!callout_element(slice_string(list->items[i]))) {
            continue;
        }
        if (element != NULL) {
            return fail(ret_error, list->items[i], "is a second peer to ask: one is enough");
        }
        element = list->items[i];
    }
    if (element == NULL) {
        return true;
    }
    ret_target->lmtp = slice_starts(slice_string(element), SLICE("lmtp:"));
    where = slice_skip(slice_string(element), 5);
    if (where.len == 0) {
        where = slice_string(local ? conf->local_transport : conf->relay_transport);
        (void)slice_cut(&where, ':');
    }
    if (where.len == 0 || !nexthop_parse(where, &n) || n.use_mx) {
        return fail(ret_error, element,
                    "leads to no peer that can be asked: [host], [host]:port or unix:PATH is "
                    "expected after it, or in local_transport or relay_transport");
    }
    if (!put_address(&n, conf, ret_target) ||
        !milter_address_parse(slice_string(ret_target->text), &address)) {
        return fail(ret_error, element, "has an address that is too long");
    }
    return true;
}
