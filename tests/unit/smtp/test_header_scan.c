#include "unit.h"

#include <stdio.h>
#include <string.h>

#include "header.h"
#include "header_scan.h"
#include "rng.h"

#define VALUE_MAX 40

static const char *const wanted[] = {"List-Id", "List", "Precedence", "X-Class"};

static void scan_init(struct header_scan *s)
{
    header_scan_init(s);
    for (size_t i = 0; i < COUNT(wanted); i++) {
        assert_int_equal(header_scan_want(s, slice_string(wanted[i]), VALUE_MAX), i);
    }
}

/* What was found, as "name=value;". */
static void tell(const struct header_scan *s, struct buf *story)
{
    buf_clear(story);
    for (size_t i = 0; i < COUNT(wanted); i++) {
        if (header_scan_found(s, i)) {
            struct slice value = header_scan_value(s, i);

            (void)buf_addf(story, "%s=", wanted[i]);
            (void)buf_add(story, value);
            (void)buf_add_string(story, ";");
        }
    }
}

static void fields_are_found_in_any_split(void **unused)
{
    static const struct {
        const char *in, *want;
    } cases[] = {
        {"", ""},
        {"\r\n", ""},
        {"\r\nList-Id: body\r\n", ""},
        {"List-Id: <a.example>\r\n\r\nprecedence: bulk\r\n", "List-Id=<a.example>;"},
        {"LIST-ID:x\nprecedence:\tBulk \n", "List-Id=x;Precedence=Bulk;"},
        {"precedence \t: list\r\n", "Precedence=list;"},
        {"Precedence:\r\n junk\r\n\r\n", "Precedence=junk;"},
        {"Precedence: first\r\n\tclass\r\nPrecedence: bulk\r\n", "Precedence=first\tclass;"},
        {"Subject: a\r\n List-Id: folded\r\nX-Class: b", "X-Class=b;"},
        {" List-Id: a line before any field\r\nList-Id: x\r\n", ""},
        {"Subject: a\r\nno field\r\nList-Id: x\r\n", ""},
        {"Subject: a\r\n: no name\r\nList-Id: x\r\n", ""},
        {"Subject: a\r\nList-Id\r\n : x\r\n", ""},
        {"List-Ids: x\r\nList-I: y\r\nList: z\r\n", "List=z;"},
        {"X-Class: a\rb\r\n c\r\n", "X-Class=a\rb c;"},
        {"X-Class: \xc3\xa9\r\nList-\xc3\xa9: x\r\nList-Id: y\r\n", "X-Class=\xc3\xa9;"},
        {"List-Id", ""},
        {"List-Id:", "List-Id=;"},
        {"X-Class: 1234567890123456789012345678901234567890 and more\r\nList-Id: x\r\n",
         "List-Id=x;X-Class=1234567890123456789012345678901234567890;"},
    };
    struct buf story;

    (void)unused;
    buf_init(&story, 1000);
    for (size_t i = 0; i < COUNT(cases); i++) {
        size_t len = strlen(cases[i].in);

        for (size_t first = 0; first <= len; first++) {
            for (size_t second = first; second <= len; second++) {
                struct header_scan s;

                scan_init(&s);
                header_scan_feed(&s, slice_of(cases[i].in, first));
                header_scan_feed(&s, slice_of(cases[i].in + first, second - first));
                header_scan_feed(&s, slice_of(cases[i].in + second, len - second));
                tell(&s, &story);
                assert_string_equal(buf_cstr(&story), cases[i].want);
                header_scan_fini(&s);
            }
        }
    }
    buf_fini(&story);
}

static void a_nul_is_a_byte_of_a_value_and_ends_a_header_elsewhere(void **unused)
{
    static const char in[] = "X-Class: a\0b\r\nList\0-Id: x\r\nList-Id: y\r\n";
    struct header_scan s;

    (void)unused;
    scan_init(&s);
    header_scan_feed(&s, slice_of(in, sizeof in - 1));
    assert_true(slice_equal(header_scan_value(&s, 3), slice_of("a\0b", 3)));
    assert_false(header_scan_found(&s, 0));
    header_scan_fini(&s);
}

/* The other way to find fields is header.h, which has the whole header section before it. */
static void random_headers_are_read_like_whole_ones(void **unused)
{
    static const char *const pieces[] = {
        "List-Id", "list",  "Precedence", "X-class", "Subject", ":",  ": ",   "bulk", "\r\n",
        "\r\n",    "\r\n ", "\n",         "\r",      " ",       "\t", "\xff", "x",    "\r\n\r\n",
    };
    struct rng rng;
    struct buf in, want;

    (void)unused;
    rng_init(&rng, 11);
    buf_init(&in, 10000);
    buf_init(&want, 10000);
    for (int round = 0; round < 20000; round++) {
        struct header_scan s;
        struct slice rest;

        buf_clear(&in);
        for (uint64_t n = rng_below(&rng, 30); n > 0; n--) {
            (void)buf_add_string(&in, pieces[rng_below(&rng, COUNT(pieces))]);
        }
        scan_init(&s);
        for (rest = buf_slice(&in); rest.len > 0;) {
            size_t part = 1 + (size_t)rng_below(&rng, rest.len);

            header_scan_feed(&s, slice_of(rest.ptr, part));
            rest = slice_skip(rest, part);
        }
        for (size_t i = 0; i < COUNT(wanted); i++) {
            struct header_field field;
            bool has = header_find(buf_slice(&in), slice_string(wanted[i]), &field);

            assert_int_equal(header_scan_found(&s, i), has);
            if (has) {
                struct slice whole;

                buf_clear(&want);
                assert_true(header_unfold(field.value, &want));
                whole = buf_slice(&want);
                whole.len = whole.len < VALUE_MAX ? whole.len : VALUE_MAX;
                assert_true(slice_equal(header_scan_value(&s, i), slice_trim(whole)));
            }
        }
        header_scan_fini(&s);
    }
    buf_fini(&want);
    buf_fini(&in);
}

static void a_long_header_is_looked_at_up_to_its_limit(void **unused)
{
    static char line[1002];
    struct header_scan s;
    size_t bytes = 0;

    (void)unused;
    memset(line, 'x', sizeof line);
    memcpy(line, "X-Long:", 7);
    memcpy(line + 1000, "\r\n", 2);
    scan_init(&s);
    for (; bytes + sizeof line <= HEADER_SCAN_BYTES_MAX; bytes += sizeof line) {
        header_scan_feed(&s, slice_of(line, sizeof line));
    }
    assert_false(header_scan_was_cut(&s));
    header_scan_feed(&s, slice_of(line, sizeof line));
    assert_true(header_scan_was_cut(&s));
    header_scan_feed(&s, SLICE("List-Id: x\r\n\r\n"));
    assert_false(header_scan_found(&s, 0));
    header_scan_fini(&s);

    /* The body of a short one is of no account. */
    scan_init(&s);
    header_scan_feed(&s, SLICE("List-Id: x\r\n\r\n"));
    for (bytes = 0; bytes <= HEADER_SCAN_BYTES_MAX; bytes += sizeof line) {
        header_scan_feed(&s, slice_of(line, sizeof line));
    }
    assert_false(header_scan_was_cut(&s));
    assert_true(header_scan_found(&s, 0));
    header_scan_fini(&s);
}

UNIT_MAIN(cmocka_unit_test(fields_are_found_in_any_split),
          cmocka_unit_test(a_nul_is_a_byte_of_a_value_and_ends_a_header_elsewhere),
          cmocka_unit_test(random_headers_are_read_like_whole_ones),
          cmocka_unit_test(a_long_header_is_looked_at_up_to_its_limit))
