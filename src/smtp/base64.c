#include "base64.h"

#include <openssl/evp.h>
#include <string.h>

/* Number of characters coded at once; whole groups of four. */
#define PIECE_TEXT  1024
#define PIECE_BYTES (PIECE_TEXT / 4 * 3)

void base64_put(struct buf *out, struct slice bytes)
{
    unsigned char text[PIECE_TEXT + 1];

    while (bytes.len > 0 && !out->failed) {
        size_t piece = bytes.len < PIECE_BYTES ? bytes.len : PIECE_BYTES;
        int n = EVP_EncodeBlock(text, (const unsigned char *)bytes.ptr, (int)piece);

        (void)buf_add(out, slice_of(text, (size_t)n));
        bytes = slice_skip(bytes, piece);
    }
    explicit_bzero(text, sizeof text); /* it was possibly a password */
}

/* Checks the text strictly, because EVP_DecodeBlock accepts blanks at the ends and padding in the
 * middle. */
static bool is_strict(struct slice text, size_t *ret_padding)
{
    size_t padding = 0;

    for (size_t i = 0; i < text.len; i++) {
        char c = text.ptr[i];

        if (c == '=') {
            padding++;
        } else if (padding > 0 || !(ascii_is_alnum(c) || c == '+' || c == '/')) {
            return false;
        }
    }
    *ret_padding = padding;
    return text.len % 4 == 0 && padding <= 2;
}

bool base64_is_strict(struct slice text)
{
    size_t padding;

    return is_strict(text, &padding);
}

bool base64_get(struct slice text, struct buf *ret_bytes)
{
    unsigned char bytes[PIECE_BYTES];
    size_t padding;
    bool good = true;

    if (!is_strict(text, &padding)) {
        return false;
    }
    while (text.len > 0 && good) {
        size_t piece = text.len < PIECE_TEXT ? text.len : PIECE_TEXT;
        int n = EVP_DecodeBlock(bytes, (const unsigned char *)text.ptr, (int)piece);

        text = slice_skip(text, piece);
        good = n >= 0 && (text.len > 0 || (size_t)n >= padding) &&
               buf_add(ret_bytes, slice_of(bytes, (size_t)n - (text.len == 0 ? padding : 0)));
    }
    explicit_bzero(bytes, sizeof bytes); /* as above */
    return good;
}
