#include "xtext.h"

static bool is_xchar(char c)
{
    return c >= '!' && c <= '~' && c != '+' && c != '=';
}

/* Returns the value of an upper-case hexadecimal digit, or -1. */
static int hex_value(char c)
{
    if (ascii_is_digit(c)) {
        return c - '0';
    }
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

bool xtext_valid(struct slice encoded)
{
    size_t i = 0;

    while (i < encoded.len) {
        if (is_xchar(encoded.ptr[i])) {
            i++;
        } else if (encoded.ptr[i] == '+' && encoded.len - i >= 3 &&
                   hex_value(encoded.ptr[i + 1]) >= 0 && hex_value(encoded.ptr[i + 2]) >= 0) {
            i += 3;
        } else {
            return false;
        }
    }
    return true;
}

bool xtext_encode(struct slice bytes, struct buf *out)
{
    static const char digits[] = "0123456789ABCDEF";

    for (size_t i = 0; i < bytes.len; i++) {
        char c = bytes.ptr[i];

        if (is_xchar(c)) {
            buf_add_byte(out, c);
        } else {
            char hex[3] = {'+', digits[(unsigned char)c >> 4], digits[(unsigned char)c & 15]};
            buf_add(out, slice_of(hex, sizeof hex));
        }
    }
    return !out->failed;
}

bool xtext_decode(struct slice encoded, struct buf *out)
{
    if (!xtext_valid(encoded)) {
        return false;
    }
    for (size_t i = 0; i < encoded.len; i++) {
        char c = encoded.ptr[i];

        if (c == '+') {
            c = (char)(hex_value(encoded.ptr[i + 1]) << 4 | hex_value(encoded.ptr[i + 2]));
            i += 2;
        }
        buf_add_byte(out, c);
    }
    return !out->failed;
}
