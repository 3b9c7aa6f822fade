/*
 * Delivery reports made of arbitrary strings.
 *
 * Input: options, then strings separated by 0xff, dealt out to the fields in turn; the last one is
 * the original message. Wanted, beside no crash: the boundary begins exactly as many lines as there
 * are parts, all lines of the first two parts are within 998 bytes, end in CRLF and have no control
 * characters, and without SMTPUTF8 all of it is ASCII
 * but for the text of a form.
 */
#include <stdint.h>
#include <string.h>

#include "buf.h"
#include "check.h"
#include "envelope.h"
#include "report.h"
#include "zmailer_form.h"

#define RCPTS 2

static struct slice take(struct slice *rest)
{
    struct slice s = slice_cut(rest, (char)0xff);

    return s.ptr == NULL ? slice_of("", 0) : s;
}

static void check_line(struct slice line, bool ascii)
{
    CHECK(line.len > 0 && line.ptr[line.len - 1] == '\r' && line.len <= 999);
    for (size_t i = 0; i + 1 < line.len; i++) {
        unsigned char c = (unsigned char)line.ptr[i];

        CHECK((c >= 0x20 && c != 0x7f) || c == '\t');
        CHECK(!ascii || c < 0x80);
    }
}

static void check_report(struct slice text, bool ascii, size_t want_parts)
{
    static const char mark[] = "\tboundary=\"";
    struct slice delimiter = {"", 0};
    size_t parts = 0;

    for (struct slice rest = text; rest.len > 0;) {
        struct slice line = slice_cut(&rest, '\n');

        if (parts < 3) {
            check_line(line, ascii);
        }
        if (delimiter.len == 0 && slice_starts(line, slice_string(mark))) {
            delimiter = slice_skip(line, sizeof(mark) - 1);
            delimiter.len = slice_find(delimiter, '"');
            CHECK(delimiter.len > 10);
        } else if (delimiter.len > 0 && slice_starts(line, SLICE("--")) &&
                   slice_starts(slice_skip(line, 2), delimiter)) {
            parts++;
            CHECK(slice_equal(slice_skip(line, 2 + delimiter.len),
                              rest.len > 0 ? SLICE("\r") : SLICE("--\r")));
        }
    }
    CHECK(parts == want_parts + 1); /* the last one closes */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct report_rcpt rcpts[RCPTS] = {0};
    struct report r = {.rcpts = rcpts, .rcpt_count = RCPTS};
    struct report_form form;
    struct slice rest;
    struct buf out;
    unsigned flags = 0;

    if (size < 4) {
        return 0;
    }
    r.kind = (enum report_kind)(data[0] % 3);
    r.headers_only = (data[0] & 128) != 0;
    r.seed = data[1];
    r.now.us = data[2] * US_PER_S * 1000000;
    r.arrival.us = r.now.us / 2;
    rest = slice_of(data + 3, size - 3);
    r.sender = take(&rest);
    if (r.sender.len == 0) {
        return 0;
    }
    zmailer_layout.read((data[0] & 64) != 0 ? take(&rest) : slice_of("", 0), &form);
    r.form = (data[0] & 64) != 0 ? &form : NULL;
    r.double_fault = r.form != NULL && (data[1] & 64) != 0;
    for (size_t i = 0; i < RCPTS; i++) {
        rcpts[i].action = (enum report_action)((data[0] / 3U + i) % 5);
        rcpts[i].status = (struct status){(uint16_t)(data[1] % 6), data[2], 999};
        rcpts[i].address = take(&rest);
        rcpts[i].orcpt = take(&rest);
        rcpts[i].remote_mta = take(&rest);
        rcpts[i].diagnostic = take(&rest);
        rcpts[i].text = take(&rest);
        if (r.form != NULL) {
            rcpts[i].status_words = take(&rest);
            rcpts[i].remote_type = take(&rest);
            rcpts[i].diagnostic_type = take(&rest);
            rcpts[i].agent = take(&rest);
            rcpts[i].control = take(&rest);
        }
        rcpts[i].last_attempt.us = rcpts[i].retry_until.us = r.now.us;
    }
    r.reporting_mta = take(&rest);
    r.queue_id = take(&rest);
    r.envid = take(&rest);
    r.message_id = take(&rest);
    r.original = rest.ptr == NULL ? slice_of("", 0) : rest;

    buf_init(&out, REPORT_FRAME_MAX + RCPTS * REPORT_PER_RCPT_MAX + r.original.len);
    CHECK(report_build(&r, &out, &flags));
    CHECK((flags & ENVELOPE_REPORT) != 0);
    if (!r.headers_only) {
        check_report(buf_slice(&out), r.form == NULL && (flags & ENVELOPE_SMTPUTF8) == 0,
                     r.original.len > 0 ? 3 : 2);
    }
    report_form_fini(&form);
    buf_fini(&out);
    return 0;
}
