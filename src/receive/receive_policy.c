#include "receive_policy.h"

#include <stdio.h>

#include "conf.h"
#include "log.h"
#include "route.h"

/* Number of parts of a status code: class.subject.detail. */
#define STATUS_PARTS 3

static bool is_status(struct slice word)
{
    unsigned long long number;
    int parts = 0;

    while (word.ptr != NULL && parts <= STATUS_PARTS) {
        struct slice part = slice_cut(&word, '.');

        if (part.len > 3 || !slice_number(part, 999, &number) ||
            (parts == 0 && number != 4 && number != 5)) {
            return false;
        }
        parts++;
    }
    return parts == STATUS_PARTS;
}

/* Splits the text of an error route into its status code, or 5.1.1, and the rest, which it
 * returns. */
static struct slice split_error(struct slice text, char status[RECEIVE_STATUS_MAX])
{
    struct slice word = slice_of(text.ptr, slice_find(text, ' '));

    if (!is_status(word)) {
        (void)snprintf(status, RECEIVE_STATUS_MAX, "5.1.1"); /* fits */
        return text;
    }
    (void)snprintf(status, RECEIVE_STATUS_MAX, "%.*s", SLICE_ARGS(word)); /* 9 characters at most */
    return slice_trim(slice_skip(text, word.len));
}

struct server_reply receive_judge(const struct conf *conf, bool may_relay, struct slice rcpt,
                                  struct receive_verdict *verdict)
{
    const struct conf_transport *transport;
    struct slice domain = route_domain(rcpt), why;
    struct buf *text = verdict->text;
    struct route route;

    buf_clear(text);
    buf_addf(text, "<%.*s>: ", SLICE_ARGS(rcpt));
    if (!may_relay && domain.len > 0 && !route_accepts_domain(conf, domain)) {
        buf_add_string(text, "Relay access denied");
        return (struct server_reply){554, "5.7.1", buf_slice(text)};
    }
    route_address(conf, ROUTE_NO_SENDER, rcpt, &route); /* errors do not depend on the sender */
    transport = conf_transport_find(conf, slice_string(route.transport));
    if (transport == NULL) {
        log_warning("transport %s of recipient <%.*s> is not declared", route.transport,
                    SLICE_ARGS(rcpt));
        buf_add_string(text, "Server configuration error");
        return (struct server_reply){451, "4.3.5", buf_slice(text)};
    }
    if (transport->policy.agent == CONF_AGENT_ERROR) {
        why = split_error(slice_string(route.nexthop), verdict->status);
        buf_addf(text, "Recipient address rejected: %.*s", SLICE_ARGS(why));
        return (struct server_reply){verdict->status[0] == '4' ? 450 : 550, verdict->status,
                                     buf_slice(text)};
    }
    verdict->ignores_case = transport->policy.agent == CONF_AGENT_MAILDIR;
    return SERVER_ACCEPT;
}
