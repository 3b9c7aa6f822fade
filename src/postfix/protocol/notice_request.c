#include "notice_request.h"

#include "attributes.h"
#include "check.h"

void notice_put(struct buf *out, const struct notice *n, const struct postfix_release *release)
{
    CHECK(n->command != NOTICE_APPEND);
    attributes_put_size(out, "nrequest", (uint64_t)n->command);
    attributes_put_size(out, "flags", n->flags);
    attributes_put(out, "queue_name", SLICE("active"));
    attributes_put(out, "queue_id", n->queue_id);
    attributes_put(out, "encoding", n->encoding);
    attributes_put_size(out, release->says_sendopts ? "sendopts" : "smtputf8", n->sendopts);
    attributes_put(out, "sender", n->sender);
    attributes_put(out, "envelope_id", n->envelope_id);
    attributes_put_size(out, "ret_flags", n->ret_flags);
    if (n->command == NOTICE_VERP) {
        attributes_put(out, "verp_delimiters", n->verp_delimiters);
    }
    attributes_end(out);
}

void notice_put_result(struct buf *out, const struct notice_result *r)
{
    attributes_put_size(out, "nrequest", NOTICE_APPEND);
    attributes_put_size(out, "flags", r->trace_flags);
    attributes_put(out, "queue_id", r->queue_id);
    delivery_request_put_rcpt_attributes(out, &r->rcpt);
    attributes_put(out, "status", r->status);
    attributes_put(out, "diag_type", SLICE(""));
    attributes_put(out, "diag_text", SLICE(""));
    attributes_put(out, "mta_type", SLICE(""));
    attributes_put(out, "mta_mname", SLICE(""));
    attributes_put(out, "action", r->action);
    attributes_put(out, "reason", r->reason);
    attributes_end(out);
}

void notice_put_verified(struct buf *out, struct slice address, enum notice_address_status status,
                         struct slice reason)
{
    attributes_put(out, "request", SLICE("update"));
    attributes_put(out, "address", address);
    attributes_put_size(out, "recipient_status", (uint64_t)status);
    attributes_put(out, "reason", reason);
    attributes_end(out);
}

void notice_put_flush_add(struct buf *out, struct slice site, struct slice queue_id)
{
    attributes_put(out, "request", SLICE("add"));
    attributes_put(out, "site", site);
    attributes_put(out, "queue_id", queue_id);
    attributes_end(out);
}

bool service_hello_is_right(struct slice list, const char *protocol)
{
    struct slice value;

    return attributes_take(&list, "protocol", &value) &&
           slice_equal(value, slice_string(protocol)) && attributes_at_end(list);
}

bool notice_answer_parse(struct slice list, int32_t *ret_status)
{
    return attributes_take_int(&list, "status", ret_status) && attributes_at_end(list);
}
