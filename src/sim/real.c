#include "real.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

/* ln 2 in two parts: the first has 32 significant bits, so a small multiple of it is exact. */
#define LN2_HIGH  0x1.62e42feep-1
#define LN2_LOW   0x1.a39ef35793c76p-33
#define SQRT_HALF 0x1.6a09e667f3bcdp-1

#define SPELLING_MAX 32 /* bytes */

/* x = m * 2^e with m between sqrt(1/2) and sqrt(2), and ln m = 2 artanh((m - 1) / (m + 1)), whose
 * series needs eleven terms there. */
double real_ln(double x)
{
    int exponent;
    double m, s, square, sum = 0;

    CHECK(x > 0 && x < INFINITY);
    m = frexp(x, &exponent);
    if (m < SQRT_HALF) {
        m *= 2;
        exponent--;
    }
    s = (m - 1) / (m + 1);
    square = s * s;
    for (int k = 21; k >= 1; k -= 2) {
        sum = sum * square + 1.0 / k;
    }
    return exponent * LN2_HIGH + (2 * s * sum + exponent * LN2_LOW);
}

/* x = k ln 2 + r with |r| <= ln 2 / 2, and the power series of exp r. */
double real_exp(double x)
{
    double k, r, sum = 1;

    CHECK(x >= -700 && x <= 700);
    k = floor(x / (LN2_HIGH + LN2_LOW) + 0.5);
    r = (x - k * LN2_HIGH) - k * LN2_LOW;
    for (int n = 16; n >= 1; n--) {
        sum = 1 + r / n * sum;
    }
    return ldexp(sum, (int)k);
}

bool real_parse(struct slice text, double max, double *ret_value)
{
    char copy[SPELLING_MAX], *end;
    double value;

    if (text.len == 0 || text.len >= sizeof copy) {
        return false;
    }
    for (size_t i = 0; i < text.len; i++) { /* strtod would also accept "inf", "0x1" and blanks */
        if (!ascii_is_digit(text.ptr[i]) && text.ptr[i] != '.') {
            return false;
        }
    }
    memcpy(copy, text.ptr, text.len);
    copy[text.len] = '\0';
    value = strtod(copy, &end);
    if (*end != '\0' || end == copy || value > max) {
        return false;
    }
    *ret_value = value;
    return true;
}
