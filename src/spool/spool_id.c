#include "spool.h"

#include <string.h>

/* Digits in the order of ASCII, so that texts sort as numbers do. A text begins with the last one
 * only in the long form, which therefore sorts after all texts of the short form. */
static const char alphabet[] = "0123456789BCDFGHJKLMNPQRSTVWXYZz";

#define DIGIT_BITS   5
#define SHORT_DIGITS 11
#define LONG_DIGITS  13
#define LONG_MARK    'z'
#define SHORT_END    (UINT64_C(31) << ((SHORT_DIGITS - 1) * DIGIT_BITS))

static void print_digits(uint64_t n, int digits, char *text)
{
    for (int i = digits - 1; i >= 0; i--) {
        text[i] = alphabet[n & 31];
        n >>= DIGIT_BITS;
    }
    text[digits] = '\0';
}

void spool_id_print(struct msg_id id, char text[SPOOL_ID_TEXT_MAX])
{
    _Static_assert(1 + LONG_DIGITS < SPOOL_ID_TEXT_MAX, "the long form and its NUL fit");

    if (id.n < SHORT_END) {
        print_digits(id.n, SHORT_DIGITS, text);
    } else {
        text[0] = LONG_MARK;
        print_digits(id.n, LONG_DIGITS, text + 1);
    }
}

bool spool_id_parse(struct slice text, struct msg_id *ret_id)
{
    char again[SPOOL_ID_TEXT_MAX];
    struct slice digits = text;
    uint64_t n = 0;

    if (text.len == 1 + LONG_DIGITS && text.ptr[0] == LONG_MARK) {
        digits = slice_skip(text, 1);
    } else if (text.len != SHORT_DIGITS) {
        return false;
    }
    for (size_t i = 0; i < digits.len; i++) {
        const char *at = digits.ptr[i] == '\0' ? NULL : strchr(alphabet, digits.ptr[i]);

        if (at == NULL) {
            return false;
        }
        n = n << DIGIT_BITS | (uint64_t)(at - alphabet);
    }
    /* Printing the number again detects texts that are a second spelling: a long form of a small
     * number, a short form of a large number, and digits that the shift has pushed out. */
    spool_id_print((struct msg_id){n}, again);
    if (!slice_equal(text, slice_string(again))) {
        return false;
    }
    ret_id->n = n;
    return true;
}
