#include "delivery_request.h"

#include <string.h>
#include <sys/time.h>

#include "attributes.h"
#include "status.h"

/* ---- releases ---- */

/* Returns the number at the start of *s, or -1; removes it and one dot from *s. */
static int take_number(struct slice *s)
{
    int n = -1;

    while (s->len > 0 && ascii_is_digit(s->ptr[0]) && n < 10000) {
        n = (n < 0 ? 0 : n) * 10 + (s->ptr[0] - '0');
        *s = slice_skip(*s, 1);
    }
    if (s->len > 0 && s->ptr[0] == '.') {
        *s = slice_skip(*s, 1);
    }
    return n;
}

struct postfix_release postfix_release_of(struct slice mail_version)
{
    int major = take_number(&mail_version), minor = take_number(&mail_version);
    bool is_three = major == 3 && minor >= 0;

    return (struct postfix_release){
        .servers_greet = !is_three || minor >= 6,
        .says_sendopts = !is_three || minor >= 10,
    };
}

/* ---- requests ---- */

/* Five times and a count, in the memory layout of the C structure of Postfix's programs, which are
 * built for the same machine. */
struct times {
    struct timeval at[5]; /* arrival and activation; hand-off, set-up and end are for the agent */
    int reused;
};

static struct timeval timeval_of(struct wall t)
{
    return (struct timeval){.tv_sec = (time_t)us_seconds(t.us),
                            .tv_usec = (suseconds_t)(t.us - us_seconds(t.us) * US_PER_S)};
}

static void put_times(struct buf *out, struct wall arrived, struct wall activated)
{
    struct times t;

    memset(&t, 0, sizeof t); /* the padding is sent, too */
    t.at[0] = timeval_of(arrived);
    t.at[1] = timeval_of(activated);
    attributes_put_data(out, "time", &t, sizeof t);
}

void delivery_request_put(struct buf *out, const struct delivery_request *m,
                          const struct postfix_release *release)
{
    attributes_put_size(out, "flags", m->flags);
    attributes_put(out, "queue_name", SLICE("active"));
    attributes_put(out, "queue_id", m->queue_id);
    attributes_put_size(out, "offset", m->data_offset);
    attributes_put_size(out, "size", m->content_length);
    attributes_put(out, "nexthop", m->nexthop);
    attributes_put(out, "encoding", m->encoding);
    attributes_put_size(out, release->says_sendopts ? "sendopts" : "smtputf8", m->sendopts);
    attributes_put(out, "sender", m->sender);
    attributes_put(out, "envelope_id", m->envelope_id);
    attributes_put_size(out, "ret_flags", m->ret_flags);
    put_times(out, m->arrived, m->activated);
    attributes_put(out, "log_client_name", m->client_name);
    attributes_put(out, "log_client_address", m->client_address);
    attributes_put(out, "log_client_port", m->client_port);
    attributes_put(out, "log_protocol_name", m->protocol_name);
    attributes_put(out, "log_helo_name", m->helo_name);
    attributes_put(out, "sasl_method", m->sasl_method);
    attributes_put(out, "sasl_username", m->sasl_username);
    attributes_put(out, "sasl_sender", m->sasl_sender);
    attributes_put(out, "log_ident", m->log_ident);
    attributes_put(out, "rewrite_context", m->rewrite_context);
    attributes_put_size(out, "recipient_count", m->rcpt_count);
    attributes_end(out);
}

void delivery_request_put_rcpt_attributes(struct buf *out, const struct delivery_request_rcpt *r)
{
    attributes_put(out, "original_recipient", r->original);
    attributes_put(out, "recipient", r->recipient);
    attributes_put_size(out, "offset", r->offset);
    attributes_put(out, "dsn_orig_rcpt", r->dsn_original);
    attributes_put_size(out, "notify_flags", r->notify);
}

void delivery_request_put_rcpt(struct buf *out, const struct delivery_request_rcpt *r)
{
    delivery_request_put_rcpt_attributes(out, r);
    attributes_end(out);
}

void delivery_put_verp_sender(struct buf *out, struct slice sender, struct slice delimiters,
                              struct slice recipient)
{
    size_t at = slice_find_last(sender, '@'), at_rcpt = slice_find_last(recipient, '@');

    (void)buf_addf(out, "%.*s%c%.*s%c%.*s%.*s", (int)at, sender.ptr, delimiters.ptr[0],
                   (int)at_rcpt, recipient.ptr, delimiters.ptr[1],
                   SLICE_ARGS(slice_skip(recipient, at_rcpt + 1)),
                   SLICE_ARGS(slice_skip(sender, at))); /* errors are sticky */
}

/* ---- answers ---- */

bool delivery_hello_is_right(struct slice list)
{
    struct slice value;
    int32_t status;

    if (attributes_take(&list, "protocol", &value)) {
        return slice_equal(value, SLICE("delivery_request_protocol")) && attributes_at_end(list);
    }
    return attributes_take_int(&list, "status", &status) && status == 0 && attributes_at_end(list);
}

bool delivery_reply_parse(struct slice list, struct delivery_reply *ret_reply)
{
    static const char *const passed_over[] = {"diag_type", "diag_text", "mta_type", "mta_mname",
                                              "action"};
    struct delivery_reply reply = {.deferred = false};
    struct status status;
    struct slice unused;
    int32_t number;

    if (!attributes_take(&list, "status", &reply.status)) {
        return false;
    }
    for (size_t i = 0; i < sizeof passed_over / sizeof passed_over[0]; i++) {
        if (!attributes_take(&list, passed_over[i], &unused)) {
            return false;
        }
    }
    if (!attributes_take(&list, "reason", &reply.reason) ||
        !attributes_take_int(&list, "status", &number) || !attributes_at_end(list)) {
        return false;
    }
    reply.deferred = number != 0;
    if (reply.status.len > 0 && !status_parse(reply.status, &status)) {
        reply.status = SLICE("4.0.0");
    }
    if (reply.status.len > 0 && reply.reason.len == 0) {
        reply.reason = SLICE("unknown error");
    }
    *ret_reply = reply;
    return true;
}
