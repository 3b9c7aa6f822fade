#include "http_envelope.h"

#include "address.h"
#include "header.h"
#include "printable.h"

void http_envelope_init(struct http_envelope *e, uint32_t rcpts_max)
{
    *e = (struct http_envelope){.rcpts_max = rcpts_max};
    buf_init(&e->sender, ADDRESS_MAX);
    buf_init(&e->rcpts, HTTP_ENVELOPE_BYTES_MAX);
}

void http_envelope_fini(struct http_envelope *e)
{
    buf_fini(&e->sender);
    buf_fini(&e->rcpts);
}

static bool bad(struct buf *ret_error, const char *what, struct slice found, const char *why)
{
    buf_clear(ret_error);
    (void)buf_addf(ret_error, "%s: found \"", what); /* errors are sticky, here and below */
    (void)printable_add(ret_error, found, 100);
    (void)buf_addf(ret_error, "\", %s", why);
    return false;
}

static bool parse(struct slice text, unsigned options, const char *what, struct buf *ret_stored,
                  struct buf *ret_error)
{
    struct address address;
    enum address_error error = address_parse(text, ADDRESS_UTF8 | options, &address);

    if (error != ADDRESS_OK) {
        return bad(ret_error, what, text, address_error_text(error));
    }
    return address_print(&address, ret_stored) || bad(ret_error, what, text, "it is too long");
}

static bool add_rcpt(struct http_envelope *e, struct slice text, const char *what,
                     struct buf *ret_error)
{
    struct buf stored;
    bool good;

    if (e->rcpt_count == e->rcpts_max) {
        buf_clear(ret_error);
        (void)buf_addf(ret_error, "%s: expected at most %u recipients (inject_recipient_limit)",
                       what, (unsigned)e->rcpts_max);
        return false;
    }
    buf_init(&stored, ADDRESS_MAX);
    good = parse(text, 0, what, &stored, ret_error);
    if (good && (!buf_add(&e->rcpts, buf_slice(&stored)) || !buf_add_byte(&e->rcpts, '\n'))) {
        good = bad(ret_error, what, text, "expected at most 16 MiB of addresses");
    }
    e->rcpt_count += good;
    buf_fini(&stored);
    return good;
}

static bool set_sender(struct http_envelope *e, struct slice text, const char *what,
                       struct buf *ret_error)
{
    if (e->has_sender) {
        return bad(ret_error, what, text, "expected one sender");
    }
    e->has_sender = true;
    return text.len == 0 || parse(text, 0, what, &e->sender, ret_error);
}

static bool read_parameter(struct http_envelope *e, struct slice name, struct slice value,
                           struct buf *ret_error)
{
    struct buf decoded;
    bool good;

    buf_init(&decoded, HTTP_HEAD_MAX);
    if (!http_decode(value, &decoded)) {
        good = bad(ret_error, "target", value, "expected %XX for a byte");
    } else if (slice_equal(name, SLICE("from"))) {
        good = set_sender(e, buf_slice(&decoded), "from", ret_error);
    } else if (slice_equal(name, SLICE("to"))) {
        good = add_rcpt(e, buf_slice(&decoded), "to", ret_error);
    } else {
        good = bad(ret_error, "target", name, "expected from=ADDRESS or to=ADDRESS");
    }
    buf_fini(&decoded);
    return good;
}

bool http_envelope_read(struct http_envelope *e, const struct http *h, struct buf *ret_error)
{
    struct slice query = slice_skip(h->target, slice_find(h->target, '?') + 1), name, value;

    while (http_parameter(&query, &name, &value)) {
        if (!read_parameter(e, name, value, ret_error)) {
            return false;
        }
    }
    for (size_t n = 0; (value = http_field(h, SLICE("X-Sluice-From"), n)).ptr != NULL; n++) {
        if (!set_sender(e, value, "X-Sluice-From", ret_error)) {
            return false;
        }
    }
    for (size_t n = 0; (value = http_field(h, SLICE("X-Sluice-To"), n)).ptr != NULL; n++) {
        while (value.ptr != NULL) {
            if (!add_rcpt(e, slice_trim(slice_cut(&value, ',')), "X-Sluice-To", ret_error)) {
                return false;
            }
        }
    }
    return true;
}

/* Takes each address of a field. */
static bool take_field(struct http_envelope *e, const struct header_field *field, bool sender,
                       struct buf *ret_error)
{
    struct address_list list;
    struct buf one;
    bool good = true;

    buf_init(&one, ADDRESS_MAX);
    address_list_init(&list, field->value, ADDRESS_UTF8);
    while (good && !(sender && e->has_sender)) {
        enum address_list_event event = address_list_next(&list, &one);

        if (event == ADDRESS_LIST_END) {
            break;
        }
        if (event == ADDRESS_LIST_BAD) {
            good = bad(ret_error, "header", buf_slice(&one), "expected an address");
        } else {
            good = sender ? set_sender(e, buf_slice(&one), "From", ret_error)
                          : add_rcpt(e, buf_slice(&one), "header", ret_error);
        }
    }
    buf_fini(&one);
    return good;
}

static bool take_sender(struct http_envelope *e, struct slice header, struct buf *ret_error)
{
    struct header_field field;

    if (!header_find(header, SLICE("Sender"), &field) &&
        !header_find(header, SLICE("From"), &field)) {
        buf_clear(ret_error);
        (void)buf_add_string(ret_error, "there is no sender: expected from=ADDRESS in the target, "
                                        "X-Sluice-From, or a From field in the message");
        return false;
    }
    return take_field(e, &field, true, ret_error) &&
           (e->has_sender || bad(ret_error, "From", field.value, "expected an address"));
}

bool http_envelope_complete(struct http_envelope *e, struct slice header, struct buf *ret_error)
{
    static const struct slice names[] = {{"To", 2}, {"Cc", 2}, {"Bcc", 3}};
    struct header_field field;
    struct slice rest = header;

    if (!e->has_sender && !take_sender(e, header, ret_error)) {
        return false;
    }
    if (e->rcpt_count > 0) {
        return true;
    }
    while (header_next(&rest, &field)) {
        for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
            if (slice_equal_nocase(field.name, names[i]) &&
                !take_field(e, &field, false, ret_error)) {
                return false;
            }
        }
    }
    if (e->rcpt_count == 0) {
        buf_clear(ret_error);
        (void)buf_add_string(ret_error, "there is no recipient: expected to=ADDRESS in the target, "
                                        "X-Sluice-To, or To, Cc or Bcc in the message");
        return false;
    }
    return true;
}

bool http_envelope_next(struct slice *rest, struct slice *ret_address)
{
    if (rest->ptr == NULL || rest->len == 0) {
        return false;
    }
    *ret_address = slice_cut(rest, '\n');
    return true;
}
