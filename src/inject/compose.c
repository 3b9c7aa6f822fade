#include "compose.h"

#include <string.h>

#include <gmime/gmime.h>

#include "address.h"
#include "check.h"
#include "entropy.h"
#include "mem.h"

#define CHARSET "utf-8"
/* Two messages have never the same one, and no line of a part begins with it by chance. */
#define BOUNDARY_DIGITS 32
#define LINE_LENGTH     78u /* RFC 5322, 2.1.1 */
#define LINE_MAX_BYTES  997u
#define BASE64_LINE     76u /* RFC 2045, 6.8 */

void compose_start(void)
{
    g_mime_init();
}

/* A C string of a slice; GMime wants these. Free it with mem_free. */
static char *text_of(struct slice s)
{
    return mem_copy(s.ptr == NULL ? "" : s.ptr, s.len);
}

/* ---- the header ----------------------------------------------------------------------------- */

static void add_mailboxes(GMimeMessage *message, GMimeAddressType type,
                          const struct compose_mailbox *boxes, size_t count)
{
    InternetAddressList *list = g_mime_message_get_addresses(message, type);

    for (size_t i = 0; i < count; i++) {
        char *name = text_of(boxes[i].name), *address = text_of(boxes[i].address);
        InternetAddress *one = internet_address_mailbox_new(name[0] == '\0' ? NULL : name, address);

        internet_address_set_charset(one, CHARSET); /* else it asks for tables of others */
        internet_address_list_add(list, one);
        g_object_unref(one);
        mem_free(name);
        mem_free(address);
    }
}

/* A value in lines of LINE_LENGTH bytes where it has blanks to fold at (RFC 5322, 2.2.3). */
static void put_folded(struct slice value, size_t column, struct buf *out)
{
    while (value.len > 0) {
        struct slice word = slice_of(value.ptr, slice_find(slice_skip(value, 1), ' ') + 1);

        word.len = word.len < value.len ? word.len : value.len;
        if (column + word.len > LINE_LENGTH && word.ptr[0] == ' ' && word.len > 1) {
            (void)buf_add_string(out, "\r\n"); /* sticky, all of it */
            column = 0;
        }
        (void)buf_add(out, word);
        column += word.len;
        value = slice_skip(value, word.len);
    }
    (void)buf_add_string(out, "\r\n");
}

/* GMime would put an encoded word into any field that has no place to fold, and so spoil the URLs
 * of List-Unsubscribe: what is ASCII stays as it is. */
static void put_field(const struct compose_field *field, struct buf *out)
{
    (void)buf_addf(out, "%.*s: ", SLICE_ARGS(field->name)); /* sticky */
    if (address_is_ascii(field->value)) {
        put_folded(field->value, field->name.len + 2, out);
    } else {
        char *value = text_of(field->value);
        char *encoded = g_mime_utils_header_encode_text(NULL, value, CHARSET);

        put_folded(slice_string(encoded), field->name.len + 2, out);
        g_free(encoded);
        mem_free(value);
    }
}

/* ---- parts ---------------------------------------------------------------------------------- */

/* What stands in a part without work of GMime's, which takes some nanoseconds for a byte: it gets a
 * token, and what it has written gets the body in its place. A token is as random as a boundary. */
struct body {
    char token[BOUNDARY_DIGITS + 1];
    struct slice text;
    bool is_base64; /* in one line; else ASCII in lines that end with LF */
};

struct composing {
    const struct compose_message *m;
    struct body *bodies; /* owned, in the order of the parts */
    size_t body_count;
};

/* The token for a body. */
static struct slice token_of(struct composing *c, struct slice text, bool is_base64)
{
    struct body *body = &c->bodies[c->body_count++];

    *body = (struct body){.text = text, .is_base64 = is_base64};
    entropy_text(body->token, BOUNDARY_DIGITS);
    return slice_string(body->token);
}

static void put_body(const struct body *body, struct buf *out)
{
    struct slice rest = body->text;

    while (rest.len > 0) {
        size_t len = body->is_base64 ? BASE64_LINE : slice_find(rest, '\n');
        struct slice line = slice_of(rest.ptr, len < rest.len ? len : rest.len);

        (void)buf_add(out, line); /* sticky */
        rest = slice_skip(rest, line.len);
        if (rest.len > 0) {
            (void)buf_add_string(out, "\r\n");
            rest = slice_skip(rest, body->is_base64 ? 0 : 1);
        }
    }
}

/* A part with these bytes, which are in this encoding. */
static GMimePart *part_of(struct slice type, struct slice bytes, GMimeContentEncoding encoding)
{
    struct slice rest = type, kind = slice_cut(&rest, '/');
    char *kind_text = text_of(kind), *subtype = text_of(rest);
    GMimePart *part = g_mime_part_new_with_type(kind_text, subtype);
    GMimeStream *stream =
        g_mime_stream_mem_new_with_buffer(bytes.ptr == NULL ? "" : bytes.ptr, bytes.len);
    GMimeDataWrapper *content = g_mime_data_wrapper_new_with_stream(stream, encoding);

    g_mime_part_set_content(part, content);
    g_object_unref(content);
    g_object_unref(stream);
    mem_free(kind_text);
    mem_free(subtype);
    return part;
}

/* Can a text leave as it is: ASCII, in lines of at most LINE_MAX_BYTES (RFC 5322, 2.1.1)? */
static bool is_plain(struct slice text)
{
    while (text.len > 0) {
        size_t len = slice_find(text, '\n');

        if (len > LINE_MAX_BYTES) {
            return false;
        }
        text = slice_skip(text, len < text.len ? len + 1 : len);
    }
    return true;
}

static GMimeObject *text_part(struct composing *c, struct slice type, struct slice text)
{
    bool plain = address_is_ascii(text) && is_plain(text);
    GMimePart *part = plain
                          ? part_of(type, token_of(c, text, false), GMIME_CONTENT_ENCODING_DEFAULT)
                          : part_of(type, text, GMIME_CONTENT_ENCODING_DEFAULT);
    GMimeContentEncoding best;

    g_mime_object_set_content_type_parameter(GMIME_OBJECT(part), "charset", CHARSET);
    best = g_mime_part_get_best_content_encoding(part, GMIME_ENCODING_CONSTRAINT_7BIT);
    g_mime_part_set_content_encoding(part, best);
    return GMIME_OBJECT(part);
}

static void set_parameter(GMimeParamList *list, const char *name, const char *value)
{
    g_mime_param_list_set_parameter(list, name, value);
    g_mime_param_set_charset(g_mime_param_list_get_parameter(list, name), CHARSET);
}

static GMimeObject *attachment_part(struct composing *c, const struct compose_attachment *a)
{
    GMimePart *part = part_of(a->type, token_of(c, a->base64, true), GMIME_CONTENT_ENCODING_BASE64);
    GMimeObject *object = GMIME_OBJECT(part);
    char *id = text_of(a->id), *name = text_of(a->name);

    g_mime_part_set_content_encoding(part, GMIME_CONTENT_ENCODING_BASE64);
    g_mime_object_set_disposition(object, a->is_inline ? GMIME_DISPOSITION_INLINE
                                                       : GMIME_DISPOSITION_ATTACHMENT);
    if (id[0] != '\0') {
        g_mime_object_set_content_id(object, id);
    }
    if (name[0] != '\0') {
        set_parameter(g_mime_content_disposition_get_parameters(
                          g_mime_object_get_content_disposition(object)),
                      "filename", name);
        set_parameter(g_mime_content_type_get_parameters(g_mime_object_get_content_type(object)),
                      "name", name); /* for old readers */
    }
    mem_free(id);
    mem_free(name);
    return object;
}

static GMimeMultipart *multipart_of(const char *subtype)
{
    GMimeMultipart *multipart = g_mime_multipart_new_with_subtype(subtype);
    char boundary[2 + BOUNDARY_DIGITS + 1] = "=_";

    entropy_text(boundary + 2, BOUNDARY_DIGITS);
    g_mime_multipart_set_boundary(multipart, boundary);
    return multipart;
}

/* Put `part` in the multipart; taken. */
static void put_in(GMimeMultipart *multipart, GMimeObject *part)
{
    g_mime_multipart_add(multipart, part);
    g_object_unref(part);
}

static GMimeObject *body_text(struct composing *c)
{
    const struct compose_message *m = c->m;
    GMimeMultipart *both;

    if (m->html.ptr == NULL) {
        return m->text.ptr == NULL ? NULL : text_part(c, SLICE("text/plain"), m->text);
    }
    if (m->text.ptr == NULL) {
        return text_part(c, SLICE("text/html"), m->html);
    }
    both = multipart_of("alternative");
    put_in(both, text_part(c, SLICE("text/plain"), m->text));
    put_in(both, text_part(c, SLICE("text/html"), m->html));
    return GMIME_OBJECT(both);
}

/* `body` (taken, may be NULL) with those attachments that are inline, or are not. */
static GMimeObject *with_attachments(struct composing *c, GMimeObject *body, bool is_inline,
                                     const char *subtype)
{
    const struct compose_message *m = c->m;
    GMimeMultipart *all = NULL;

    for (size_t i = 0; i < m->attachment_count; i++) {
        if (m->attachments[i].is_inline != is_inline) {
            continue;
        }
        if (all == NULL) {
            all = multipart_of(subtype);
            if (body != NULL) {
                put_in(all, body);
            }
        }
        put_in(all, attachment_part(c, &m->attachments[i]));
    }
    return all == NULL ? body : GMIME_OBJECT(all);
}

/* ---- the whole ------------------------------------------------------------------------------ */

static bool write_out(const struct composing *c, GMimeMessage *message, struct buf *out)
{
    GMimeFormatOptions *options = g_mime_format_options_new();
    GMimeStream *stream = g_mime_stream_mem_new();
    GByteArray *bytes;
    struct slice rest;
    bool good;

    g_mime_format_options_set_newline_format(options, GMIME_NEWLINE_FORMAT_DOS);
    good = g_mime_object_write_to_stream(GMIME_OBJECT(message), options, stream) >= 0;
    bytes = g_mime_stream_mem_get_byte_array(GMIME_STREAM_MEM(stream));
    rest = slice_of(bytes->data, bytes->len);
    for (size_t i = 0; i < c->body_count && good; i++) {
        const char *at = memmem(rest.ptr, rest.len, c->bodies[i].token, BOUNDARY_DIGITS);

        CHECK(at != NULL);                                               /* it is as it was given */
        (void)buf_add(out, slice_of(rest.ptr, (size_t)(at - rest.ptr))); /* sticky */
        put_body(&c->bodies[i], out);
        rest = slice_skip(rest, (size_t)(at - rest.ptr) + BOUNDARY_DIGITS);
    }
    good = buf_add(out, rest) && good;
    g_object_unref(stream);
    g_mime_format_options_free(options);
    return good;
}

bool compose(const struct compose_message *m, struct buf *out)
{
    GMimeMessage *message = g_mime_message_new(TRUE);
    struct composing c = {.m = m, .bodies = mem_array(m->attachment_count + 2, sizeof *c.bodies)};
    GMimeObject *body;
    char *subject = text_of(m->subject);
    bool good;

    add_mailboxes(message, GMIME_ADDRESS_TYPE_FROM, &m->from, 1);
    add_mailboxes(message, GMIME_ADDRESS_TYPE_REPLY_TO, m->reply_to, m->reply_to_count);
    add_mailboxes(message, GMIME_ADDRESS_TYPE_TO, m->to, m->to_count);
    add_mailboxes(message, GMIME_ADDRESS_TYPE_CC, m->cc, m->cc_count);
    if (m->to_count + m->cc_count == 0) {
        (void)buf_add_string(out, "To: undisclosed-recipients:;\r\n"); /* sticky */
    }
    g_mime_message_set_subject(message, subject, CHARSET);
    mem_free(subject);
    for (size_t i = 0; i < m->field_count; i++) {
        put_field(&m->fields[i], out);
    }
    body =
        with_attachments(&c, with_attachments(&c, body_text(&c), true, "related"), false, "mixed");
    CHECK(body != NULL);
    g_mime_message_set_mime_part(message, body);
    g_object_unref(body);
    good = write_out(&c, message, out);
    mem_free(c.bodies);
    g_object_unref(message);
    return good;
}
