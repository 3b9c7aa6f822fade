#include "delay_text.h"

#include "times.h"

const char *delay_text(int64_t us, int64_t digits, char out[DELAY_TEXT_MAX])
{
    int64_t unit = us >= 10 * US_PER_S ? US_PER_S : us >= US_PER_S ? US_PER_S / 10 : US_PER_S / 100;
    int64_t places = us >= 10 * US_PER_S ? 0 : us >= US_PER_S ? 1 : 2, n;
    char *at = out + DELAY_TEXT_MAX - 1;

    us = us > 0 ? us : 0;
    for (int64_t x = us; x > 0 && x < US_PER_S / 10 && places < digits; x *= 10) {
        places++;
        unit /= 10;
    }
    for (; places > digits; places--) {
        unit *= 10;
    }
    n = us / unit + (us % unit >= (unit + 1) / 2 ? 1 : 0);
    *at = '\0';
    for (; places > 0; places--, n /= 10) {
        if (*at != '\0' || n % 10 != 0) { /* drop trailing zeros */
            *--at = (char)('0' + n % 10);
        }
    }
    if (*at != '\0') {
        *--at = '.';
    }
    do {
        *--at = (char)('0' + n % 10);
        n /= 10;
    } while (n > 0);
    return at;
}
