#include "pages.h"

#include <stddef.h>

#include "web_files.h"

const char *const web_page_fields[] = {
    "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'\r\n",
    "X-Content-Type-Options: nosniff\r\n",
    "Referrer-Policy: no-referrer\r\n",
    "Cross-Origin-Opener-Policy: same-origin\r\n",
    "Cross-Origin-Resource-Policy: same-origin\r\n",
    "Cache-Control: no-cache\r\n",
    NULL,
};

const struct web_page *web_page_find(struct slice path)
{
    for (size_t i = 0; i < sizeof web_files / sizeof web_files[0]; i++) {
        if (slice_equal(path, slice_string(web_files[i].path))) {
            return &web_files[i];
        }
    }
    return NULL;
}
