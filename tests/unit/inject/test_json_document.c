#include "unit.h"

#include <stdio.h>
#include <string.h>

#include "json_document.h"
#include "rng.h"
#include "same_json.h"

/* Whatever stands in long and short strings, however it is cut: what the parser gets of it is the
 * same to it as the whole. A `#` is forty bytes, so that the string is long. */
static const char *const documents[] = {
    "",
    "{}",
    "[\"#\", {\"#\": \"#\"}]",
    "{\"a\": \"#\"}",
    "{\"a\": \"#\", \"b\": \"x#\"}",
    "{\"a\": \"#\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\u20AC\\uD83D\\uDE00\\u007f\"}",
    "{\"a\": \"#\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\"}",
    "{\"a\": \"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80#\\ud83d\\ude00\xf0\x9f\x98\x80\"}",
    /* what looks like a mark */
    "{\"a\": \"\x7f\", \"b\": \"\x7f"
    "0\", \"c\": \"\\u007f0\", \"d\": \"\\u007F1\", \"e\": \"#\"}",
    "{\"a\": \"\x7f\\q\"}",
    "{\"a\": \"\x7f\\u0000\"}",
    "{\"a\": \"\x7f\n\"}",
    "{\"a\": \"\\u007f\\ud800\"}",
    "{\"\x7f"
    "0\": [\"\x7f"
    "0\", \"\x7f\"]}",
    /* mistakes within, and behind */
    "{\"a\": \"#\\q\"}",
    "{\"a\": \"#\\u12\"}",
    "{\"a\": \"#\\u12\\\"}",
    "{\"a\": \"#\\u12\xc3\xa9\"}",
    "{\"a\": \"#\\u123\xf0\x9f\x98\x80\"}",
    "{\"a\": \"#\\u12\xc3\"}",
    "{\"a\": \"#\\\xc3\xa9\"}",
    "{\"a\": \"#\\\xc3\"}",
    "{\"a\": \"#\\u0000\"}",
    "{\"a\": \"#\\u0000\\ud800#\"}",
    "{\"a\": \"#\\ud800\"}",
    "{\"a\": \"#\\ud800x\"}",
    "{\"a\": \"#\\ud800\\n\"}",
    "{\"a\": \"#\\ud800\xc3\xa9\"}",
    "{\"a\": \"#\\ud800\\u0000\"}",
    "{\"a\": \"#\\ud800\\ud800\\udc00\"}",
    "{\"a\": \"#\\udc00\\ud800\", \"b\": 1}",
    "{\"a\": \"#\\ud800\\q\"}",
    "{\"a\": \"#\n#\"}",
    "{\"a\": \"#\t\"}",
    "{\"a\": \"#\x80\"}",
    "{\"a\": \"#\xc0\x80\"}",
    "{\"a\": \"#\xc3\"}",
    "{\"a\": \"#\xe2\x82\"}",
    "{\"a\": \"#\xed\xa0\x80\"}",
    "{\"a\": \"#\xf4\x90\x80\x80\"}",
    "{\"a\": \"#\xf5\x80\x80\x80\"}",
    "{\"a\": \"#\x80#\\q#\\\"\", \"b\": 1",
    "{\"a\": \"#",
    "{\"a\": \"#\\",
    "{\"a\": \"#\\u12",
    "{\"a\": \"#\\ud800",
    "{\"a\": \"#\xe2\x82",
    "{\"a\": \"#\\u12\xe2\x82",
    "{\"a\": \"#\" \"b\": 1}",
    "{\"a\": \"#\xc3\xa9\", \"b\": \"#\", \"c\": tru}",
    "{\"a\": \"#\",\n\"b\": \"#\xc3\xa9\", \"c\": tru}",
    "{\"a\": \"#\", \"a\": \"#\"}",
    "{\"a\": : \"#\"}",
    "{\"a\": \"#\": \"#\"}",
    "\"#\"",
    ": \"#\"",
};

static void the_parser_sees_the_same(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < COUNT(documents); i++) {
        char words[2][SAME_JSON_WORDS];
        struct buf text;

        buf_init(&text, 10000);
        for (const char *c = documents[i]; *c != '\0'; c++) {
            assert_true(*c == '#'
                            ? buf_add_string(&text, "1234567890123456789012345678901234567890")
                            : buf_add_byte(&text, *c));
        }
        for (size_t piece = 1; piece <= buf_len(&text) + 1; piece++) {
            if (!same_json(buf_slice(&text), piece, 24 + i % 20, words)) {
                fail_msg("%s in pieces of %zu: \"%s\", expected \"%s\"", documents[i], piece,
                         words[1], words[0]);
            }
        }
        buf_fini(&text);
    }
}

/* Documents of random pieces, most of them wrong. */
static void random_documents_are_the_same(void **unused)
{
    static const char *const parts[] = {"{\"a\":\"",
                                        "\"",
                                        "\"",
                                        "\"}",
                                        "\",\"b\":\"",
                                        "\\",
                                        "u",
                                        "\\u00e9",
                                        "\\ud83d",
                                        "\\ude00",
                                        "\\u0000",
                                        "\x7f",
                                        "0",
                                        "\n",
                                        "\xc3",
                                        "\xa9",
                                        "\xf0\x9f\x98\x80",
                                        "\xe2\x82",
                                        "12345678",
                                        "1234567890123456789012345",
                                        "[",
                                        "]",
                                        ":",
                                        ",",
                                        "{",
                                        "}",
                                        "\"recipients\":[",
                                        "\\\"",
                                        "\\n",
                                        " "};
    struct rng rng;

    (void)unused;
    rng_init(&rng, 1);
    for (unsigned i = 0; i < 20000; i++) {
        size_t count = 2 + rng_below(&rng, 12);
        char words[2][SAME_JSON_WORDS];
        struct buf text;

        buf_init(&text, 10000);
        assert_true(buf_add_string(&text, "{\"a\":\""));
        while (count-- > 0) {
            assert_true(buf_add_string(&text, parts[rng_below(&rng, COUNT(parts))]));
        }
        (void)(rng_below(&rng, 2) == 0 && buf_add_string(&text, "\"}"));
        if (!same_json(buf_slice(&text), 1 + rng_below(&rng, 40), 24, words)) {
            fail_msg("%s: \"%s\", expected \"%s\"", buf_cstr(&text), words[1], words[0]);
        }
        buf_fini(&text);
    }
}

/* Long enough that no room of one size has all of it. */
static void very_long_strings_are_the_same(void **unused)
{
    static const char *const parts[] = {"\\n", "\\\"", "\\\\",    "\xc3\xa9",       "\\u00e9",
                                        "\\t", "x",    "1234567", "\\ud83d\\ude00", "plain words"};
    struct buf text;
    struct rng rng;

    (void)unused;
    rng_init(&rng, 2);
    buf_init(&text, 100000);
    for (unsigned i = 0; i < 300; i++) {
        char words[2][SAME_JSON_WORDS];
        size_t kinds = 1 + rng_below(&rng, COUNT(parts)), piece = 1 + rng_below(&rng, 20000);

        buf_clear(&text);
        assert_true(buf_add_string(&text, "{\"a\":\""));
        while (buf_len(&text) < 10000) {
            assert_true(buf_add_string(&text, parts[COUNT(parts) - 1 - rng_below(&rng, kinds)]));
        }
        assert_true(buf_add_string(&text, rng_below(&rng, 4) == 0 ? "\\q\"}" : "\"}"));
        if (!same_json(buf_slice(&text), piece, 24, words)) {
            fail_msg("%s in pieces of %zu: \"%s\", expected \"%s\"", buf_cstr(&text), piece,
                     words[1], words[0]);
        }
    }
    buf_fini(&text);
}

/* What stands in the arrays is left out of the rest, wherever they stand, and found again. */
static void arrays_are_cut_out(void **unused)
{
    static const struct {
        const char *in, *cut;
    } cases[] = {
        {"{\"b\":[1,2],\"x\":[3],\"a\":[ {\"a\":[4]} ]}", "{\"b\":[],\"x\":[3],\"a\":[]}"},
        {"{\"a\":[],\"b\":3}", "{\"a\":[],\"b\":3}"},
        {"{\"a\":{\"a\":[1]},\"a\":[2]}", "{\"a\":{\"a\":[1]},\"a\":[]}"},
        {"{\"a\":[1],\"a\":[2]}", "{\"a\":[],\"a\":[2]}"},
        {"[\"a\",[1]]", "[\"a\",[1]]"},
        {"{\"a\":[\"]\"],\"b\":[\"\\\"]\"]}", "{\"a\":[],\"b\":[]}"},
        {"{\"a\":[1}", "{\"a\":[1}"},
        {"{\"a\":[1", "{\"a\":[1"},
    };
    static const char *const names[] = {"a", "b", NULL};

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct slice in = slice_string(cases[i].in);
        struct json_document d;
        struct buf cut;

        json_document_init(&d, names, in.len, 24);
        assert_true(json_document_add(&d, in));
        json_document_end(&d);
        buf_init(&cut, in.len);
        assert_true(json_document_cut(&d, &cut));
        assert_string_equal(buf_cstr(&cut), cases[i].cut);
        for (size_t at = 0; at < buf_len(&cut); at++) { /* what is left stands where it stood */
            size_t from = json_document_uncut(&d, at + 1) - 1;

            assert_int_equal(in.ptr[from], buf_slice(&cut).ptr[at]);
        }
        buf_fini(&cut);
        json_document_fini(&d);
    }
}

static void a_large_document_is_refused(void **unused)
{
    static const char *const names[] = {NULL};
    struct json_document d;

    (void)unused;
    json_document_init(&d, names, 10, 24);
    assert_true(json_document_add(&d, SLICE("1234567890")));
    assert_false(json_document_add(&d, SLICE("1")));
    json_document_fini(&d);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_parser_sees_the_same),
        cmocka_unit_test(random_documents_are_the_same),
        cmocka_unit_test(very_long_strings_are_the_same),
        cmocka_unit_test(arrays_are_cut_out),
        cmocka_unit_test(a_large_document_is_refused),
    };

    cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
