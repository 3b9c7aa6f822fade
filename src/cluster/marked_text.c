#include "marked_text.h"

#include "mem.h"
#include "printable.h"

#define MARK 2

bool marked_text_is_plain(struct slice text)
{
    for (struct slice rest = text; rest.len > 0;) {
        size_t len = rest.ptr[0] == '\0' ? 0 : utf8_length(rest);

        if (len == 0) {
            return false;
        }
        rest = slice_skip(rest, len);
    }
    return text.len == 0 || text.ptr[0] != MARK;
}

size_t marked_text_size(struct slice text)
{
    return 1 + 2 * text.len;
}

void marked_text_write(char *at, struct slice text)
{
    static const char digits[] = "0123456789abcdef";

    *at++ = MARK;
    for (size_t i = 0; i < text.len; i++) {
        *at++ = digits[(unsigned char)text.ptr[i] >> 4];
        *at++ = digits[text.ptr[i] & 15];
    }
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Reads two digits for each byte. */
static bool read_hex(struct slice digits, char *to)
{
    if (digits.len % 2 != 0) {
        return false;
    }
    for (size_t i = 0; i < digits.len; i += 2) {
        int high = hex_digit(digits.ptr[i]), low = hex_digit(digits.ptr[i + 1]);

        if (high < 0 || low < 0) {
            return false;
        }
        *to++ = (char)(high << 4 | low);
    }
    return true;
}

bool marked_text_read(struct slice stored, size_t max, struct text_pool *pool,
                      struct slice *ret_text)
{
    if (stored.len > 0 && stored.ptr[0] == MARK) {
        struct slice digits = slice_skip(stored, 1);
        size_t len = digits.len / 2;
        char *bytes = mem_new(len + 1);
        bool is_right = len <= max && read_hex(digits, bytes);

        if (is_right) {
            stored = text_pool_add(pool, slice_of(bytes, len));
        }
        mem_free(bytes);
        if (!is_right) {
            return false;
        }
    }
    if (stored.len > max || slice_find(stored, '\0') != stored.len) {
        return false;
    }
    *ret_text = stored;
    return true;
}
