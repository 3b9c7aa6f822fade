/*
 * What programs send by HTTP: requests, envelopes, documents.
 *
 * Input: a byte that says how the rest is split; then a request. Wanted, beside no crash: any split
 * tells the same; a body that is a document is to the parser what it would be if its long strings
 * were left to it, and gives messages whose header has the fields that the document may set, and no
 * others.
 */
#include <stdint.h>
#include <string.h>

#include "address.h"
#include "buf.h"
#include "check.h"
#include "header.h"
#include "http.h"
#include "http_envelope.h"
#include "inject_mail.h"
#include "inject_message.h"
#include "../support/same_json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MESSAGES_LOOKED_AT 3
#define BODY_MAX           65536

/* What an engine has said, without how the body was cut. */
struct told {
    struct buf events, body;
};

static void look_at_envelope(const struct http *h)
{
    struct http_envelope e;
    struct slice rest, rcpt;
    struct buf error;
    uint32_t count = 0;

    buf_init(&error, 100000);
    http_envelope_init(&e, 100);
    if (http_envelope_read(&e, h, &error)) {
        rest = buf_slice(&e.rcpts);
        while (http_envelope_next(&rest, &rcpt)) {
            CHECK(address_is_stored(rcpt, ADDRESS_UTF8));
            count++;
        }
        CHECK(count == e.rcpt_count);
        CHECK(address_is_stored(buf_slice(&e.sender), ADDRESS_UTF8 | ADDRESS_NULL));
    }
    http_envelope_fini(&e);
    buf_fini(&error);
}

static void tell(struct slice rest, size_t piece, struct told *ret_told)
{
    struct http_event event;
    struct http h;

    http_init(&h);
    buf_init(&ret_told->events, 1 << 20);
    buf_init(&ret_told->body, BODY_MAX);
    while (rest.len > 0) {
        struct slice in = slice_of(rest.ptr, piece < rest.len ? piece : rest.len);

        rest = slice_skip(rest, in.len);
        do {
            http_next(&h, &in, &event);
            switch (event.type) {
            case HTTP_NEED_INPUT:
                CHECK(in.len == 0);
                break;
            case HTTP_HEAD:
                (void)buf_addf(&ret_told->events, "head %zu;", h.field_count);
                look_at_envelope(&h);
                break;
            case HTTP_BODY:
                CHECK(event.body.len > 0);
                (void)buf_add(&ret_told->body, event.body);
                break;
            case HTTP_END:
                (void)buf_add_string(&ret_told->events, "end;");
                http_again(&h);
                break;
            case HTTP_BAD:
                (void)buf_addf(&ret_told->events, "bad %u", event.status);
                http_fini(&h);
                return;
            }
        } while (event.type != HTTP_NEED_INPUT);
    }
    http_fini(&h);
}

/* Does a document with this body say that the field may be there? */
static bool is_expected(struct slice name, struct slice document)
{
    static const char *const ours[] = {"From",
                                       "To",
                                       "Cc",
                                       "Reply-To",
                                       "Subject",
                                       "MIME-Version",
                                       "Content-Type",
                                       "Content-Transfer-Encoding",
                                       "Content-Disposition",
                                       "Content-Id"};

    for (size_t i = 0; i < sizeof ours / sizeof ours[0]; i++) {
        if (slice_equal_nocase(name, slice_string(ours[i]))) {
            return true;
        }
    }
    /* Of `headers`: its name stands in the document, perhaps with escapes. */
    return memmem(document.ptr, document.len, name.ptr, name.len) != NULL ||
           memchr(document.ptr, '\\', document.len) != NULL;
}

/* False: it is too large. */
static bool make_message(const struct inject_mail *m, size_t number, size_t piece, struct buf *out)
{
    struct inject_message *im = inject_message_new(m, number);
    enum inject_message_result result;
    struct slice some;

    do {
        result = inject_message_next(im, piece < 2 ? 2 : piece, &some);
        CHECK(buf_add(out, some));
    } while (result == INJECT_MESSAGE_MORE);
    inject_message_free(im);
    return result == INJECT_MESSAGE_END;
}

/* `piece`: bytes of it that come at once. */
static void look_at_document(struct slice text, size_t piece)
{
    static const struct inject_mail_limits limits = {.rcpts = 100, .memory = 1 << 22};
    struct json_document document;
    enum inject_mail_result result;
    struct inject_mail *m;
    struct buf error, out;
    char words[2][SAME_JSON_WORDS];

    CHECK(same_json(text, piece, JSON_LONG_MIN, words));
    buf_init(&error, 100000);
    json_document_init(&document, inject_mail_arrays, text.len, JSON_LONG_MIN);
    for (struct slice in = text; in.len > 0; in = slice_skip(in, piece < in.len ? piece : in.len)) {
        CHECK(json_document_add(&document, slice_of(in.ptr, piece < in.len ? piece : in.len)));
    }
    json_document_end(&document);
    m = inject_mail_new(&document, &limits);
    do {
        result = inject_mail_read(m, 3, &error);
    } while (result == INJECT_MAIL_MORE);
    CHECK(result == INJECT_MAIL_OK || (!error.failed && buf_len(&error) > 0));
    for (size_t i = 0;
         result == INJECT_MAIL_OK && i < inject_mail_count(m) && i < MESSAGES_LOOKED_AT; i++) {
        struct header_field field;
        struct slice rest, rcpt;
        size_t at = 0;
        bool whole = memmem(text.ptr, text.len, "message", 7) != NULL;

        buf_init(&out, 1 << 24);
        CHECK(inject_mail_next_rcpt(m, i, &at, &rcpt));
        CHECK(address_is_stored(rcpt, ADDRESS_UTF8));
        if (make_message(m, i, piece, &out) && !whole) {
            rest = buf_slice(&out);
            while (header_next(&rest, &field)) {
                CHECK(is_expected(field.name, text));
                CHECK(!slice_equal_nocase(field.name, SLICE("Bcc")));
            }
            CHECK(slice_starts(rest, SLICE("\r\n")));
        }
        buf_fini(&out);
    }
    inject_mail_free(m);
    json_document_fini(&document);
    buf_fini(&error);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool started;
    struct told one, other;

    if (!started) {
        started = true;
        inject_mail_start();
    }
    if (size < 1 || size > BODY_MAX) {
        return 0;
    }
    tell(slice_of(data + 1, size - 1), size, &one);
    tell(slice_of(data + 1, size - 1), data[0] % 17u + 1, &other);
    CHECK(slice_equal(buf_slice(&one.events), buf_slice(&other.events)));
    CHECK(slice_equal(buf_slice(&one.body), buf_slice(&other.body)));
    look_at_document(buf_slice(&one.body), data[0] % 17u + 1);
    look_at_document(slice_of(data + 1, size - 1),
                     data[0] % 17u + 1); /* without a request around it */
    buf_fini(&one.events);
    buf_fini(&one.body);
    buf_fini(&other.events);
    buf_fini(&other.body);
    return 0;
}
