#include "compose.h"

#include <string.h>

#include <gmime/gmime.h>

#include "address.h"
#include "check.h"
#include "entropy.h"
#include "mem.h"
#include "mime_body.h"

#define CHARSET "utf-8"
/* Random, so that messages never share a boundary and no line of a part begins with the
 * boundary. */
#define BOUNDARY_DIGITS 32
#define LINE_LENGTH     78u /* RFC 5322, 2.1.1 */
/* GMime folds no field with fewer bytes. */
#define UNFOLDED_MAX 76u
/* Limit above the size of all fields of the largest document. */
#define FRAME_MAX ((size_t)1 << 30)

/* Body and its place in the frame. */
struct place {
    struct mime_body body;
    char token[BOUNDARY_DIGITS + 1]; /* placeholder of the body in GMime's output */
    size_t at;                       /* offset in `frame` */
};

enum stage {
    STAGE_EXAMINE, /* examines texts, to choose their encodings */
    STAGE_FRAME,
    STAGE_WRITE,
};

struct compose {
    struct compose_message m; /* as given; borrows the same memory */
    enum stage stage;
    struct buf frame;     /* the message without bodies */
    struct place *places; /* owned; in the order of the parts */
    size_t place_count;
    size_t place; /* index of the place that is examined or written */
    size_t text_count;
    bool single;    /* whether the message has one text and no other part */
    size_t written; /* number of bytes of `frame` that were written */
};

void compose_start(void)
{
    g_mime_init();
}

/* Returns a C string of a slice, for GMime; the caller must free it with mem_free. */
static char *text_of(struct slice s)
{
    return mem_copy(s.ptr == NULL ? "" : s.ptr, s.len);
}

/* ---- fields that are written without GMime --------------------------------------------------- */

/* Writes a value, folded at blanks into lines of LINE_LENGTH bytes (RFC 5322, 2.2.3). */
static void put_folded(struct slice value, size_t column, struct buf *out)
{
    while (value.len > 0) {
        struct slice word = slice_of(value.ptr, slice_find(slice_skip(value, 1), ' ') + 1);

        word.len = word.len < value.len ? word.len : value.len;
        if (column + word.len > LINE_LENGTH && word.ptr[0] == ' ' && word.len > 1) {
            (void)buf_add_string(out, "\r\n"); /* errors of the buffer are sticky, here and below */
            column = 0;
        }
        (void)buf_add(out, word);
        column += word.len;
        value = slice_skip(value, word.len);
    }
    (void)buf_add_string(out, "\r\n");
}

/* Writes a field. ASCII values stay unchanged: GMime would write an encoded word into any field
 * that it cannot fold, which would damage the URLs of List-Unsubscribe. */
static void put_field(const struct compose_field *field, struct buf *out)
{
    (void)buf_addf(out, "%.*s: ", SLICE_ARGS(field->name));
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

/* ---- messages that are written without GMime ----------------------------------------------------
 * GMime takes some 50 microseconds for any message. If no field must be encoded or folded, and all
 * parts are texts, the functions below write the same bytes (test_compose compares them). */

/* Is the name empty, or words of letters and digits? */
static bool is_plain_name(struct slice name)
{
    for (size_t i = 0; i < name.len; i++) {
        if (!ascii_is_alnum(name.ptr[i]) &&
            (name.ptr[i] != ' ' || i == 0 || i + 1 == name.len || name.ptr[i + 1] == ' ')) {
            return false;
        }
    }
    return true;
}

static bool is_plain_address(struct slice address)
{
    for (size_t i = 0; i < address.len; i++) {
        if (!ascii_is_alnum(address.ptr[i]) && memchr("@.-_+", address.ptr[i], 5) == NULL) {
            return false;
        }
    }
    return true;
}

/* Can all mailboxes be written unchanged in one line? `field`: length of the field's name, colon
 * and blank. */
static bool are_plain(const struct compose_mailbox *boxes, size_t count, size_t field)
{
    size_t bytes = field;

    for (size_t i = 0; i < count; i++) {
        bytes += boxes[i].name.len + boxes[i].address.len + sizeof ", <>";
        if (bytes > UNFOLDED_MAX || !is_plain_name(boxes[i].name) ||
            !is_plain_address(boxes[i].address)) {
            return false;
        }
    }
    return true;
}

static bool is_plain_subject(struct slice subject)
{
    struct slice trimmed = slice_trim(subject);

    if (subject.len + sizeof "Subject: " > UNFOLDED_MAX || trimmed.len != subject.len) {
        return false;
    }
    for (size_t i = 0; i < subject.len; i++) {
        if (subject.ptr[i] < ' ' || subject.ptr[i] > '~' || subject.ptr[i] == '=') {
            return false; /* `=' may begin an encoded word */
        }
    }
    return true;
}

static bool is_plain(const struct compose_message *m)
{
    return m->attachment_count == 0 && is_plain_subject(m->subject) &&
           are_plain(&m->from, 1, sizeof "From: ") &&
           are_plain(m->reply_to, m->reply_to_count, sizeof "Reply-To: ") &&
           are_plain(m->to, m->to_count, sizeof "To: ") &&
           are_plain(m->cc, m->cc_count, sizeof "Cc: ");
}

static void put_mailboxes(const char *field, const struct compose_mailbox *boxes, size_t count,
                          struct buf *out)
{
    for (size_t i = 0; i < count; i++) {
        bool named = boxes[i].name.len > 0;

        (void)buf_add_string(out, i == 0 ? field : ", ");
        (void)buf_add(out, boxes[i].name);
        (void)buf_add_string(out, named ? " <" : "");
        (void)buf_add(out, boxes[i].address);
        (void)buf_add_string(out, named ? ">" : "");
    }
    (void)buf_add_string(out, count > 0 ? "\r\n" : "");
}

/* Writes the fields of a text's part and notes the place of the text. */
static void put_text(struct compose *c, struct place *place, const char *type)
{
    static const char *const encodings[] = {
        [MIME_BODY_7BIT] = "",
        [MIME_BODY_QUOTED] = "Content-Transfer-Encoding: quoted-printable\r\n",
        [MIME_BODY_BASE64] = "Content-Transfer-Encoding: base64\r\n",
    };

    (void)buf_add_string(&c->frame, type);
    (void)buf_add_string(&c->frame, "; charset=" CHARSET "\r\n");
    (void)buf_add_string(&c->frame, encodings[place->body.encoding]);
    (void)buf_add_string(&c->frame, "\r\n");
    place->at = buf_len(&c->frame);
}

static void put_alternatives(struct compose *c)
{
    char boundary[BOUNDARY_DIGITS + 1] = "";
    struct buf *out = &c->frame;

    entropy_text(boundary, BOUNDARY_DIGITS);
    (void)buf_addf(out,
                   "Content-Type: multipart/alternative;\r\n\tboundary=\"=_%s\"\r\n\r\n--=_%s\r\n",
                   boundary, boundary);
    put_text(c, &c->places[0], "Content-Type: text/plain");
    (void)buf_addf(out, "\r\n--=_%s\r\n", boundary);
    put_text(c, &c->places[1], "Content-Type: text/html");
    (void)buf_addf(out, "\r\n--=_%s--\r\n", boundary);
}

static void put_plain(struct compose *c)
{
    const struct compose_message *m = &c->m;
    struct buf *out = &c->frame;

    put_mailboxes("From: ", &m->from, 1, out);
    put_mailboxes("Reply-To: ", m->reply_to, m->reply_to_count, out);
    (void)buf_addf(out, "Subject: %.*s\r\n", SLICE_ARGS(m->subject));
    put_mailboxes("To: ", m->to, m->to_count, out);
    put_mailboxes("Cc: ", m->cc, m->cc_count, out);
    (void)buf_add_string(out, "MIME-Version: 1.0\r\n");
    if (m->text.ptr != NULL && m->html.ptr != NULL) {
        put_alternatives(c);
    } else {
        put_text(c, &c->places[0],
                 m->text.ptr != NULL ? "Content-Type: text/plain" : "Content-Type: text/html");
    }
}

/* ---- messages that GMime writes ------------------------------------------------------------- */

static void add_mailboxes(GMimeMessage *message, GMimeAddressType type,
                          const struct compose_mailbox *boxes, size_t count)
{
    /* Addresses are added to a separate list, as the message's own list rewrites the field with
     * each added address. */
    InternetAddressList *list = internet_address_list_new();

    for (size_t i = 0; i < count; i++) {
        char *name = text_of(boxes[i].name), *address = text_of(boxes[i].address);
        InternetAddress *one = internet_address_mailbox_new(name[0] == '\0' ? NULL : name, address);

        internet_address_set_charset(one, CHARSET); /* or GMime loads tables of other charsets */
        internet_address_list_add(list, one);
        g_object_unref(one);
        mem_free(name);
        mem_free(address);
    }
    if (count > 0) {
        internet_address_list_append(g_mime_message_get_addresses(message, type), list);
    }
    g_object_unref(list);
}

/* Makes a part in this encoding, whose content is a random placeholder for the body. */
static GMimePart *part_of(struct place *place, struct slice type, GMimeContentEncoding encoding)
{
    struct slice rest = type, kind = slice_cut(&rest, '/');
    char *kind_text = text_of(kind), *subtype = text_of(rest);
    GMimePart *part = g_mime_part_new_with_type(kind_text, subtype);
    GMimeStream *stream;
    GMimeDataWrapper *content;

    entropy_text(place->token, BOUNDARY_DIGITS);
    stream = g_mime_stream_mem_new_with_buffer(place->token, BOUNDARY_DIGITS);
    content = g_mime_data_wrapper_new_with_stream(stream, encoding);
    g_mime_part_set_content(part, content);
    g_mime_part_set_content_encoding(part, encoding);
    g_object_unref(content);
    g_object_unref(stream);
    mem_free(kind_text);
    mem_free(subtype);
    return part;
}

static GMimeObject *text_part(struct place *place, struct slice type)
{
    static const GMimeContentEncoding encodings[] = {
        [MIME_BODY_7BIT] = GMIME_CONTENT_ENCODING_DEFAULT,
        [MIME_BODY_QUOTED] = GMIME_CONTENT_ENCODING_QUOTEDPRINTABLE,
        [MIME_BODY_BASE64] = GMIME_CONTENT_ENCODING_BASE64,
    };
    GMimePart *part = part_of(place, type, encodings[place->body.encoding]);

    g_mime_object_set_content_type_parameter(GMIME_OBJECT(part), "charset", CHARSET);
    return GMIME_OBJECT(part);
}

static void set_parameter(GMimeParamList *list, const char *name, const char *value)
{
    g_mime_param_list_set_parameter(list, name, value);
    g_mime_param_set_charset(g_mime_param_list_get_parameter(list, name), CHARSET);
}

static GMimeObject *attachment_part(struct compose *c, const struct compose_attachment *a)
{
    struct place *place = &c->places[c->place_count++];
    GMimeObject *object = GMIME_OBJECT(part_of(place, a->type, GMIME_CONTENT_ENCODING_BASE64));
    char *id = text_of(a->id), *name = text_of(a->name);

    mime_body_base64(&place->body, a->base64);
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
                      "name", name); /* for old mail programs */
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

/* Adds `part` to the multipart; takes it. */
static void put_in(GMimeMultipart *multipart, GMimeObject *part)
{
    g_mime_multipart_add(multipart, part);
    g_object_unref(part);
}

static GMimeObject *body_text(struct compose *c)
{
    const struct compose_message *m = &c->m;
    GMimeMultipart *both;

    if (m->html.ptr == NULL) {
        return m->text.ptr == NULL ? NULL : text_part(&c->places[0], SLICE("text/plain"));
    }
    if (m->text.ptr == NULL) {
        return text_part(&c->places[0], SLICE("text/html"));
    }
    both = multipart_of("alternative");
    put_in(both, text_part(&c->places[0], SLICE("text/plain")));
    put_in(both, text_part(&c->places[1], SLICE("text/html")));
    return GMIME_OBJECT(both);
}

/* Adds either all inline attachments or all others to `body` (taken, may be NULL). */
static GMimeObject *with_attachments(struct compose *c, GMimeObject *body, bool is_inline,
                                     const char *subtype)
{
    const struct compose_message *m = &c->m;
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

/* Copies GMime's output to the frame, without the placeholders. */
static void take_frame(struct compose *c, struct slice bytes)
{
    for (size_t i = 0; i < c->place_count; i++) {
        const char *at = memmem(bytes.ptr, bytes.len, c->places[i].token, BOUNDARY_DIGITS);
        size_t len;

        CHECK(at != NULL); /* the placeholder is always written unchanged */
        len = (size_t)(at - bytes.ptr);
        (void)buf_add(&c->frame, slice_of(bytes.ptr, len));
        c->places[i].at = buf_len(&c->frame);
        bytes = slice_skip(bytes, len + BOUNDARY_DIGITS);
    }
    (void)buf_add(&c->frame, bytes);
}

static void put_by_gmime(struct compose *c)
{
    const struct compose_message *m = &c->m;
    GMimeMessage *message = g_mime_message_new(TRUE);
    GMimeFormatOptions *options = g_mime_format_options_new();
    GMimeStream *stream = g_mime_stream_mem_new();
    char *subject = text_of(m->subject);
    GByteArray *bytes;
    GMimeObject *body;

    add_mailboxes(message, GMIME_ADDRESS_TYPE_FROM, &m->from, 1);
    add_mailboxes(message, GMIME_ADDRESS_TYPE_REPLY_TO, m->reply_to, m->reply_to_count);
    add_mailboxes(message, GMIME_ADDRESS_TYPE_TO, m->to, m->to_count);
    add_mailboxes(message, GMIME_ADDRESS_TYPE_CC, m->cc, m->cc_count);
    g_mime_message_set_subject(message, subject, CHARSET);
    body = with_attachments(c, with_attachments(c, body_text(c), true, "related"), false, "mixed");
    CHECK(body != NULL);
    g_mime_message_set_mime_part(message, body);
    g_object_unref(body);
    g_mime_format_options_set_newline_format(options, GMIME_NEWLINE_FORMAT_DOS);
    /* Fails only if memory is missing. */
    CHECK(g_mime_object_write_to_stream(GMIME_OBJECT(message), options, stream) >= 0);
    bytes = g_mime_stream_mem_get_byte_array(GMIME_STREAM_MEM(stream));
    take_frame(c, slice_of(bytes->data, bytes->len));
    mem_free(subject);
    g_object_unref(stream);
    g_mime_format_options_free(options);
    g_object_unref(message);
}

/* ---- interface ------------------------------------------------------------------------------ */

struct compose *compose_new(const struct compose_message *m)
{
    struct compose *c = mem_new(sizeof *c);

    c->m = *m;
    buf_init(&c->frame, FRAME_MAX);
    c->places = mem_array(m->attachment_count + 2, sizeof *c->places);
    if (m->text.ptr != NULL) {
        mime_body_text(&c->places[c->place_count++].body, m->text);
    }
    if (m->html.ptr != NULL) {
        mime_body_text(&c->places[c->place_count++].body, m->html);
    }
    c->text_count = c->place_count;
    return c;
}

void compose_free(struct compose *c)
{
    if (c != NULL) {
        buf_fini(&c->frame);
        mem_free(c->places);
        mem_free(c);
    }
}

size_t compose_memory(const struct compose *c)
{
    return sizeof *c + buf_len(&c->frame) + (c->m.attachment_count + 2) * sizeof *c->places;
}

static void put_frame(struct compose *c)
{
    const struct compose_message *m = &c->m;

    if (m->to_count + m->cc_count == 0) {
        (void)buf_add_string(&c->frame, "To: undisclosed-recipients:;\r\n");
    }
    for (size_t i = 0; i < m->field_count; i++) {
        put_field(&m->fields[i], &c->frame);
    }
    if (is_plain(m)) {
        put_plain(c);
    } else {
        put_by_gmime(c);
    }
    c->single = m->attachment_count == 0 && c->text_count == 1;
    if (c->single) { /* GMime takes the placeholder for a line without an end */
        buf_truncate(&c->frame, c->places[0].at);
    }
    CHECK(!c->frame.failed); /* all parts of it are limited */
}

/* Writes the frame up to an offset. */
static void write_frame(struct compose *c, size_t to, struct buf *out)
{
    (void)buf_add(out, slice_of(buf_slice(&c->frame).ptr + c->written, to - c->written));
    c->written = to;
}

/* Writes the next frame or body. Returns true at the end of the message. */
static bool write_some(struct compose *c, size_t bytes, struct buf *out)
{
    struct place *place = &c->places[c->place];

    if (c->place == c->place_count) {
        write_frame(c, buf_len(&c->frame), out);
        if (c->single && c->places[0].body.in_line) {
            (void)buf_add_string(out, "\r\n"); /* a failure shows in `out` */
        }
        return true;
    }
    if (c->written < place->at) {
        write_frame(c, place->at, out);
    }
    c->place += mime_body_write(&place->body, bytes, out);
    return false;
}

bool compose_next(struct compose *c, size_t bytes, struct buf *out)
{
    size_t most = buf_len(out) + bytes;
    bool end = false;

    switch (c->stage) {
    case STAGE_EXAMINE:
        while (c->place < c->text_count) {
            if (!mime_body_examine(&c->places[c->place].body, bytes)) {
                return false;
            }
            c->place++;
        }
        c->stage = STAGE_FRAME;
        /* fall through */
    case STAGE_FRAME:
        put_frame(c);
        c->place = 0;
        c->stage = STAGE_WRITE;
        /* fall through */
    case STAGE_WRITE:
        while (!end && !out->failed && buf_len(out) < most) {
            end = write_some(c, bytes, out);
        }
    }
    return end;
}
