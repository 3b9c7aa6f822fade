/*
 * A filter that says anything to the milter client.
 *
 * Input: a byte for the size of the pieces, then what the filter says. The owner takes one step
 * after the other of two messages. Wanted, beside no crash: values of header fields could stand in
 * a message, names are some, replies are 4xx and 5xx, and nothing is told after a failure.
 */
#include <stdint.h>

#include "check.h"
#include "milter.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_event(const struct milter_event *e)
{
    bool folds = false;

    if (e->type == MILTER_VERDICT && e->verdict == MILTER_REPLY) {
        CHECK(e->code >= 400 && e->code <= 599 && e->text.len <= MILTER_TEXT_MAX);
    }
    if (e->type != MILTER_CHANGED || e->change > MILTER_CHANGE_HEADER) {
        return;
    }
    CHECK(e->name.len > 0);
    for (size_t i = 0; i < e->value.len; i++) {
        char c = e->value.ptr[i];

        CHECK(c != '\0' && (!folds || c == ' ' || c == '\t'));
        folds = c == '\n';
        CHECK(c != '\n' || (i > 0 && e->value.ptr[i - 1] == '\r'));
        CHECK(c != '\r' || (i + 1 < e->value.len && e->value.ptr[i + 1] == '\n'));
    }
    CHECK(!folds);
}

static void take_step(struct milter *m, unsigned step, struct mono now)
{
    static const struct milter_macro macros[] = {{"i", {"1", 1}}};

    switch (step % 10) {
    case 0:
        milter_macros(m, MILTER_AT_CONNECT, macros, 1);
        milter_connect(m, SLICE("c"), 6, SLICE("::1"), 25, now);
        break;
    case 1:
        milter_helo(m, SLICE("c"), now);
        break;
    case 2:
        milter_mail(m, SLICE("a@b"), SLICE("SIZE=1"), now);
        break;
    case 3:
    case 4:
        milter_rcpt(m, SLICE("a@b"), SLICE(""), now);
        break;
    case 5:
        milter_data(m, now);
        break;
    case 6:
        milter_header(m, SLICE("A"), SLICE(" b\r\n c"), now);
        break;
    case 7:
        milter_end_of_header(m, now);
        break;
    case 8:
        milter_body(m, SLICE("x"), now);
        break;
    default:
        milter_end(m, now);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct milter_config config = {US_PER_S, US_PER_S, 6};
    const struct mono now = {1};
    struct slice in;
    struct milter m;
    struct milter_event event;
    unsigned step = 0;
    size_t piece;
    bool failed = false;

    if (size < 1) {
        return 0;
    }
    piece = data[0] == 0 ? 1000000 : data[0];
    in = slice_of(data + 1, size - 1);
    milter_init(&m, &config, now);
    while (!failed && step < 20) {
        milter_next(&m, &event);
        check_event(&event);
        buf_consume(milter_output(&m), buf_len(milter_output(&m)));
        failed = event.type == MILTER_FAILED;
        if (event.type != MILTER_NEED_INPUT) {
            continue;
        }
        if (milter_is_ready(&m)) {
            take_step(&m, step++, now);
        } else if (in.len > 0) {
            size_t len = piece < in.len ? piece : in.len;

            milter_input(&m, slice_of(in.ptr, len), now);
            in = slice_skip(in, len);
        } else {
            milter_lost(&m);
        }
    }
    milter_next(&m, &event);
    CHECK(!failed || event.type == MILTER_FAILED);
    milter_fini(&m);
    return 0;
}
