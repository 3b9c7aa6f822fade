#include "capture.h"

#include "unit.h"

#include <stdio.h>

void capture_read(const char *name, struct buf *ret_text)
{
    char path[4096];
    size_t got;
    FILE *in;

    assert_true(snprintf(path, sizeof path, "%s/%s", TEST_DATA_DIR, name) < (int)sizeof path);
    in = fopen(path, "rb");
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
        char c = text.ptr[i];

        if (c == '\\' && i + 1 < text.len && (text.ptr[i + 1] == 't' || text.ptr[i + 1] == 'r')) {
            c = text.ptr[++i] == 't' ? '\t' : '\r';
        }
        assert_true(buf_add_byte(ret_bytes, c));
    }
}
