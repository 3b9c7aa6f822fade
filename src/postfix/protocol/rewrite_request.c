#include "rewrite_request.h"

#include "attributes.h"

enum { ANSWER_BAD_SYNTAX = 4, ANSWER_FAILED = 8, ANSWER_CLASSES = 0x1f00 };

void rewrite_put_resolve(struct buf *out, bool probe, struct slice sender, struct slice address)
{
    attributes_put(out, "request", probe ? SLICE("verify") : SLICE("resolve"));
    attributes_put(out, "sender", sender);
    attributes_put(out, "address", address);
    attributes_end(out);
}

void rewrite_put_rewrite(struct buf *out, struct slice address)
{
    attributes_put(out, "request", SLICE("rewrite"));
    attributes_put(out, "rule", SLICE("local"));
    attributes_put(out, "address", address);
    attributes_end(out);
}

bool rewrite_resolve_parse(struct slice list, struct rewrite_answer *ret_answer)
{
    struct rewrite_answer answer = {.disconnect = false};
    int32_t server, flags;

    if (!attributes_take_int(&list, "flags", &server) ||
        !attributes_take(&list, "transport", &answer.transport) ||
        !attributes_take(&list, "nexthop", &answer.nexthop) ||
        !attributes_take(&list, "recipient", &answer.recipient) ||
        !attributes_take_int(&list, "flags", &flags) || !attributes_at_end(list)) {
        return false;
    }
    answer.disconnect = server != 0;
    if ((flags & ANSWER_FAILED) != 0) {
        answer.transport = SLICE("retry");
        answer.nexthop = SLICE("4.3.0 address resolver failure");
    } else if ((flags & ANSWER_BAD_SYNTAX) != 0) {
        answer.transport = SLICE("error");
        answer.nexthop = SLICE("5.1.3 bad address syntax");
    } else {
        answer.classes = (unsigned)flags & ANSWER_CLASSES;
    }
    *ret_answer = answer;
    return answer.transport.len > 0 && answer.nexthop.len > 0 && answer.recipient.len > 0;
}

bool rewrite_rewrite_parse(struct slice list, struct slice *ret_address, bool *ret_disconnect)
{
    int32_t server;

    if (!attributes_take_int(&list, "flags", &server) ||
        !attributes_take(&list, "address", ret_address) || !attributes_at_end(list)) {
        return false;
    }
    *ret_disconnect = server != 0;
    return true;
}
