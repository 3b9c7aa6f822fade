#include "capture.h"

#include "unit.h"

#include <stdio.h>

void capture_read(const char *path, struct buf *ret_text)
{
    size_t got;
    FILE *in = fopen(path, "rb");

    assert_non_null(in);
    do {
        char *room = buf_room(ret_text, 4096);

        assert_non_null(room);
        got = fread(room, 1, 4096, in);
        buf_grew(ret_text, got);
    } while (got > 0);
    assert_int_equal(fclose(in), 0);
}

void capture_unescape(struct slice text, struct buf *ret_bytes)
{
    for (size_t i = 0; i < text.len; i++) {
        char c = text.ptr[i], kind = c == '\\' && i + 1 < text.len ? text.ptr[i + 1] : '\0';
        unsigned byte;

        if (kind == 'n') {
            i++;
            continue;
        }
        if (kind == 't' || kind == 'r') {
            c = kind == 't' ? '\t' : '\r';
            i++;
        } else if (kind == 'x') {
            assert_int_equal(sscanf(text.ptr + i + 2, "%2x", &byte), 1);
            c = (char)byte;
            i += 3;
        }
        assert_true(buf_add_byte(ret_bytes, c));
    }
}
