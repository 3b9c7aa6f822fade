#include "unit.h"

#include <string.h>

#include "content_cut.h"

static const struct {
    const char *content;
    enum shown_part part;
    bool for_terminal;
    const char *want;
} rows[] = {
    {"A: b\r\n\r\nbody\r\n", CONTENT_ALL, false, "A: b\n\nbody\n"},
    {"A: b\r\n\r\nbody\r\n", CONTENT_HEADER, false, "A: b\n"},
    {"A: b\r\n\r\nbody\r\n", CONTENT_BODY, false, "body\n"},
    {"A: b\r\n c\r\n\r\n\r\nx\r\n\r\ny", CONTENT_HEADER, false, "A: b\n c\n"},
    {"A: b\r\n c\r\n\r\n\r\nx\r\n\r\ny", CONTENT_BODY, false, "\nx\n\ny\n"},
    {"\r\nbody\r\n", CONTENT_HEADER, false, ""},
    {"\r\nbody\r\n", CONTENT_BODY, false, "body\n"},
    {"A: b\r\n", CONTENT_BODY, false, ""},
    {"A: b", CONTENT_ALL, false, "A: b\n"},
    {"", CONTENT_ALL, false, ""},
    {"A:\r\n\r\nx\ry\033[2J\r\n", CONTENT_ALL, false, "A:\n\nx\ry\033[2J\n"},
    {"A:\r\n\r\nx\ry\033[2J\r\n", CONTENT_ALL, true, "A:\n\nx?y?[2J\n"},
};

static void header_and_body_are_found_however_the_content_arrives(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        size_t len = strlen(rows[i].content);

        for (size_t split = 0; split <= len; split++) {
            struct content_cut c;
            struct buf out;

            buf_init(&out, 1000);
            content_cut_init(&c, rows[i].part, rows[i].for_terminal);
            content_cut_add(&c, slice_of(rows[i].content, split), &out);
            content_cut_add(&c, slice_of(rows[i].content + split, len - split), &out);
            content_cut_end(&c, &out);
            assert_string_equal(buf_cstr(&out), rows[i].want);
            content_cut_fini(&c);
            buf_fini(&out);
        }
    }
}

UNIT_MAIN(cmocka_unit_test(header_and_body_are_found_however_the_content_arrives))
