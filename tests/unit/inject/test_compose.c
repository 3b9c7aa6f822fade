/*
 * Beside GMime itself: a message is the same, byte for byte, as when GMime makes all of it.
 */
#include "unit.h"

#include <stdio.h>
#include <string.h>

#include <gmime/gmime.h>

#include "compose.h"
#include "mem.h"
#include "rng.h"

#define BOXES_MAX 6u
#define TEXT_MAX  3000u

/* ---- GMime's ------------------------------------------------------------------------------- */

static void add_boxes(GMimeMessage *message, GMimeAddressType type,
                      const struct compose_mailbox *boxes, size_t count)
{
    InternetAddressList *list = g_mime_message_get_addresses(message, type);

    for (size_t i = 0; i < count; i++) {
        char *name = mem_copy(boxes[i].name.ptr, boxes[i].name.len);
        char *address = mem_copy(boxes[i].address.ptr, boxes[i].address.len);
        InternetAddress *one = internet_address_mailbox_new(name[0] == '\0' ? NULL : name, address);

        internet_address_set_charset(one, "utf-8");
        internet_address_list_add(list, one);
        g_object_unref(one);
        mem_free(name);
        mem_free(address);
    }
}

/* In base64 lines end with CRLF (RFC 2045, 6.8): GMime has to be given them so. */
static GMimeObject *part_by_gmime(const char *type, struct slice text)
{
    GMimePart *part = g_mime_part_new_with_type("text", type);
    GMimeContentEncoding best;
    GMimeStream *stream = g_mime_stream_mem_new_with_buffer(text.ptr, text.len);
    GMimeDataWrapper *content =
        g_mime_data_wrapper_new_with_stream(stream, GMIME_CONTENT_ENCODING_DEFAULT);

    g_mime_object_set_content_type_parameter(GMIME_OBJECT(part), "charset", "utf-8");
    g_mime_part_set_content(part, content);
    best = g_mime_part_get_best_content_encoding(part, GMIME_ENCODING_CONSTRAINT_7BIT);
    g_mime_part_set_content_encoding(part, best);
    g_object_unref(content);
    g_object_unref(stream);
    if (best == GMIME_CONTENT_ENCODING_BASE64) {
        struct buf lines;

        buf_init(&lines, 2 * TEXT_MAX);
        for (size_t i = 0; i < text.len; i++) {
            (void)buf_add_string(&lines, text.ptr[i] == '\n' ? "\r" : ""); /* fits */
            (void)buf_add_byte(&lines, text.ptr[i]);
        }
        stream = g_mime_stream_mem_new_with_buffer(buf_slice(&lines).ptr, buf_len(&lines));
        content = g_mime_data_wrapper_new_with_stream(stream, GMIME_CONTENT_ENCODING_DEFAULT);
        g_mime_part_set_content(part, content);
        g_object_unref(content);
        g_object_unref(stream);
        buf_fini(&lines);
    }
    return GMIME_OBJECT(part);
}

static void put_in(GMimeMultipart *multipart, GMimeObject *part)
{
    g_mime_multipart_add(multipart, part);
    g_object_unref(part);
}

/* `boundary` is that of the other. */
static void by_gmime(const struct compose_message *m, const char *boundary, struct buf *out)
{
    GMimeMessage *message = g_mime_message_new(TRUE);
    GMimeFormatOptions *options = g_mime_format_options_new();
    GMimeStream *stream = g_mime_stream_mem_new();
    char *subject = mem_copy(m->subject.ptr, m->subject.len);
    GMimeObject *body;
    GByteArray *bytes;

    add_boxes(message, GMIME_ADDRESS_TYPE_FROM, &m->from, 1);
    add_boxes(message, GMIME_ADDRESS_TYPE_REPLY_TO, m->reply_to, m->reply_to_count);
    add_boxes(message, GMIME_ADDRESS_TYPE_TO, m->to, m->to_count);
    add_boxes(message, GMIME_ADDRESS_TYPE_CC, m->cc, m->cc_count);
    g_mime_message_set_subject(message, subject, "utf-8");
    if (m->text.ptr != NULL && m->html.ptr != NULL) {
        GMimeMultipart *both = g_mime_multipart_new_with_subtype("alternative");

        g_mime_multipart_set_boundary(both, boundary);
        put_in(both, part_by_gmime("plain", m->text));
        put_in(both, part_by_gmime("html", m->html));
        body = GMIME_OBJECT(both);
    } else {
        body = part_by_gmime(m->text.ptr != NULL ? "plain" : "html",
                             m->text.ptr != NULL ? m->text : m->html);
    }
    g_mime_message_set_mime_part(message, body);
    g_object_unref(body);
    g_mime_format_options_set_newline_format(options, GMIME_NEWLINE_FORMAT_DOS);
    assert_true(g_mime_object_write_to_stream(GMIME_OBJECT(message), options, stream) >= 0);
    bytes = g_mime_stream_mem_get_byte_array(GMIME_STREAM_MEM(stream));
    assert_true(buf_add(out, slice_of(bytes->data, bytes->len)));
    mem_free(subject);
    g_object_unref(stream);
    g_mime_format_options_free(options);
    g_object_unref(message);
}

/* ---- any messages --------------------------------------------------------------------------- */

struct made {
    struct compose_message m;
    struct compose_mailbox boxes[3][BOXES_MAX];
    struct buf pool;
};

static struct slice pooled(struct made *made, size_t from)
{
    return slice_skip(buf_slice(&made->pool), from);
}

/* Words, most of them of letters. */
static struct slice any_words(struct made *made, struct rng *rng, unsigned max)
{
    static const char *const odd[] = {"=?utf-8?q?x?=",
                                      "\xc3\xa9",
                                      "a.b",
                                      "\"",
                                      "(c)",
                                      "<",
                                      ",",
                                      "x=3Dy",
                                      "''",
                                      "--",
                                      " ",
                                      "",
                                      ":",
                                      "a@b.c",
                                      "\\",
                                      "_"};
    size_t from = buf_len(&made->pool), words = (size_t)rng_below(rng, max + 1);
    bool plain = rng_below(rng, 3) > 0;

    for (size_t i = 0; i < words; i++) {
        (void)buf_add_string(&made->pool, i > 0 ? " " : ""); /* fits, all of it */
        if (!plain && rng_below(rng, 4) == 0) {
            (void)buf_add_string(&made->pool, odd[rng_below(rng, COUNT(odd))]);
            continue;
        }
        for (uint64_t n = 1 + rng_below(rng, 9); n > 0; n--) {
            (void)buf_add_byte(&made->pool, "abcXYZ0189"[rng_below(rng, 10)]);
        }
    }
    return pooled(made, from);
}

static struct slice any_address(struct made *made, struct rng *rng)
{
    static const char *const odd[] = {"\"a b\"@c.d", "x=y@z.example", "\xc3\xa9@b.example",
                                      "a@[192.0.2.1]"};
    size_t from = buf_len(&made->pool);

    if (rng_below(rng, 12) == 0) {
        (void)buf_add_string(&made->pool, odd[rng_below(rng, COUNT(odd))]);
    } else {
        (void)buf_addf(&made->pool, "%.*s.x-y_z+1@d-%u.example", (int)rng_below(rng, 8), "someonee",
                       (unsigned)rng_below(rng, 1000));
    }
    return pooled(made, from);
}

static size_t any_boxes(struct made *made, struct rng *rng, struct compose_mailbox *boxes,
                        size_t max)
{
    size_t count = (size_t)rng_below(rng, max + 1);

    for (size_t i = 0; i < count; i++) {
        boxes[i].address = any_address(made, rng);
        boxes[i].name = any_words(made, rng, (unsigned)rng_below(rng, 3));
        boxes[i].name = slice_trim(boxes[i].name);
    }
    return count;
}

/* No line begins with "From ", which GMime would encode. */
static struct slice any_text(struct made *made, struct rng *rng)
{
    size_t from = buf_len(&made->pool),
           len = (size_t)rng_below(rng, 3) * (size_t)rng_below(rng, 900);
    uint64_t high = rng_below(rng, 3) == 0 ? 1 + rng_below(rng, 4) : 0;
    bool lines = rng_below(rng, 8) > 0;

    if (len > 900 && len < 1000) {
        len = 900; /* one byte makes the difference there, and is counted otherwise */
    }

    for (size_t i = 0; i < len; i++) {
        uint64_t kind = rng_below(rng, 40);

        (void)buf_add_string(&made->pool, kind < high          ? "\xc3\xa9" /* fits */
                                          : kind > 37 && lines ? "\n"
                                          : kind > 35          ? " "
                                          : kind > 34          ? "="
                                          : kind > 33          ? "."
                                                               : "x");
    }
    return pooled(made, from);
}

static void make(struct made *made, struct rng *rng)
{
    uint64_t kind = rng_below(rng, 3);

    buf_init(&made->pool, 1u << 20);
    assert_true(buf_add_string(&made->pool, "x"));
    made->m = (struct compose_message){
        .reply_to = made->boxes[0], .to = made->boxes[1], .cc = made->boxes[2]};
    assert_non_null(buf_room(&made->pool, 1u << 19)); /* it stays where it is */
    made->m.from.address = any_address(made, rng);
    made->m.from.name = slice_trim(any_words(made, rng, 2));
    made->m.reply_to_count = any_boxes(made, rng, made->boxes[0], 1);
    made->m.to_count = 1 + any_boxes(made, rng, &made->boxes[1][1], BOXES_MAX - 1);
    made->boxes[1][0] = made->m.from;
    made->m.cc_count = any_boxes(made, rng, made->boxes[2], 2);
    made->m.subject = any_words(made, rng, 12);
    if (kind != 1) {
        made->m.text = any_text(made, rng);
    }
    if (kind != 0) {
        made->m.html = any_text(made, rng);
    }
}

static void write_all(const struct compose_message *m, size_t piece, struct buf *out)
{
    struct compose *c = compose_new(m);

    while (!compose_next(c, piece, out)) {
        assert_false(out->failed);
    }
    assert_false(out->failed);
    compose_free(c);
}

static void a_message_is_what_gmime_makes_of_it(void **unused)
{
    unsigned plain = 0, encoded = 0;
    struct buf ours, theirs;

    (void)unused;
    buf_init(&ours, 1u << 20);
    buf_init(&theirs, 1u << 20);
    for (uint64_t seed = 1; seed <= 3000; seed++) {
        char boundary[40] = "";
        const char *at;
        struct made made;
        struct rng rng;

        rng_init(&rng, seed);
        make(&made, &rng);
        buf_clear(&ours);
        buf_clear(&theirs);
        write_all(&made.m, 1 + (size_t)rng_below(&rng, 2000), &ours);
        at = strstr(buf_cstr(&ours), "boundary=\"=_");
        if (at != NULL) {
            (void)sscanf(at, "boundary=\"%34s", boundary);
        }
        by_gmime(&made.m, boundary, &theirs);
        if (!slice_equal(buf_slice(&ours), buf_slice(&theirs))) {
            fail_msg("seed %u:\n%s\n---- GMime:\n%s", (unsigned)seed, buf_cstr(&ours),
                     buf_cstr(&theirs));
        }
        plain += strstr(buf_cstr(&ours), "Content-Transfer-Encoding") == NULL;
        encoded += strstr(buf_cstr(&ours), "Content-Transfer-Encoding") != NULL;
        buf_fini(&made.pool);
    }
    assert_true(plain > 500 && encoded > 500);
    buf_fini(&ours);
    buf_fini(&theirs);
}

/* Line ends of any kind are line ends, in what is encoded, too. */
static void line_ends_of_texts_are_crlf(void **unused)
{
    static const struct {
        const char *text, *want;
    } cases[] = {
        {"a\nb\r\nc\rd\r\r\n\n", "\r\n\r\na\r\nb\r\nc\r\nd\r\n\r\n\r\n"},
        {"\xc3\xa9 aaaaaaaaaaa\r\nb\rc", "\r\n\r\n=C3=A9 aaaaaaaaaaa\r\nb\r\nc"},
        {"\xc3\xa9\r\n\xc3\xa9\n", "\r\n\r\nw6kNCsOpDQo="},
    };
    struct buf out, other;

    (void)unused;
    buf_init(&out, 10000);
    buf_init(&other, 10000);
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct compose_message m = {.from = {SLICE("a@b.c"), SLICE("")},
                                    .subject = SLICE("s"),
                                    .text = slice_string(cases[i].text)};

        buf_clear(&out);
        write_all(&m, 10000, &out);
        assert_non_null(strstr(buf_cstr(&out), cases[i].want));
        for (size_t piece = 1; piece < 20; piece++) {
            buf_clear(&other);
            write_all(&m, piece, &other);
            assert_string_equal(buf_cstr(&other), buf_cstr(&out));
        }
    }
    buf_fini(&out);
    buf_fini(&other);
}

static int start(void **unused)
{
    (void)unused;
    compose_start();
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_is_what_gmime_makes_of_it),
        cmocka_unit_test(line_ends_of_texts_are_crlf),
    };

    cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
    return cmocka_run_group_tests(tests, start, NULL);
}
