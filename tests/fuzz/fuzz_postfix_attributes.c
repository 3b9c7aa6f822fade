/*
 * Hostile services: what may come from an agent, bounce(8) or trivial-rewrite(8). Wanted, beside no
 * crash: lists end where they end however the bytes arrive, and what is taken out of a list and
 * written again is the same.
 */
#include <stdint.h>
#include <string.h>

#include "attributes.h"
#include "check.h"
#include "delivery_request.h"
#include "notice_request.h"
#include "rewrite_request.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The first list, with so many bytes at a time; 0: there is none. */
static size_t list_end(struct slice in, size_t step)
{
    struct attributes_scan scan = {0};
    size_t have = 0, len = 0;
    enum attributes_event event = ATTRIBUTES_MORE;

    while (event == ATTRIBUTES_MORE && have < in.len) {
        have = in.len - have < step ? in.len : have + step;
        event = attributes_scan(&scan, slice_of(in.ptr, have), &len);
    }
    return event == ATTRIBUTES_LIST ? len : 0;
}

static void write_again(const struct rewrite_answer *answer, struct slice list)
{
    struct slice rest = list, value;
    struct buf out;
    int32_t number;

    buf_init(&out, 1 << 20);
    CHECK(attributes_take_int(&rest, "flags", &number));
    attributes_put_int(&out, "flags", number);
    CHECK(attributes_take(&rest, "transport", &value));
    attributes_put(&out, "transport", value);
    CHECK(attributes_take(&rest, "nexthop", &value));
    attributes_put(&out, "nexthop", value);
    attributes_put(&out, "recipient", answer->recipient);
    CHECK(attributes_take(&rest, "recipient", &value));
    CHECK(attributes_take_int(&rest, "flags", &number));
    attributes_put_int(&out, "flags", number);
    attributes_end(&out);
    CHECK(!out.failed);
    /* Leading zeros of numbers are not kept. */
    CHECK(buf_len(&out) <= list.len);
    CHECK(rewrite_resolve_parse(buf_slice(&out), &(struct rewrite_answer){0}));
    buf_fini(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct slice in = slice_of(data, size), address, list;
    struct rewrite_answer answer;
    struct delivery_reply reply;
    size_t len = list_end(in, size + 1);
    int32_t status;
    bool gone;

    CHECK(len == list_end(in, 1) && len == list_end(in, 7));
    if (len == 0) {
        return 0;
    }
    list = slice_of(data, len);
    if (rewrite_resolve_parse(list, &answer)) {
        CHECK(answer.transport.len > 0 && answer.nexthop.len > 0 && answer.recipient.len > 0);
        write_again(&answer, list);
    }
    if (delivery_reply_parse(list, &reply)) {
        CHECK(reply.status.len == 0 || reply.reason.len > 0);
    }
    (void)rewrite_rewrite_parse(list, &address, &gone);
    (void)notice_answer_parse(list, &status);
    (void)delivery_hello_is_right(list);
    (void)service_hello_is_right(list, NOTICE_HELLO);
    return 0;
}
