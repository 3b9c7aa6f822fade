/*
 * The first bytes of a connection to a listener behind a proxy.
 *
 * Wanted, beside no crash: a header ends within its limit and before the bytes that follow it; each
 * part of it is incomplete; and no byte after it, or after an error, changes the result.
 */
#include <stdint.h>
#include <string.h>

#include "check.h"
#include "proxy_header.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool same(const struct proxy_header *a, const struct proxy_header *b)
{
    return a->len == b->len && a->source == b->source && a->port == b->port &&
           memcmp(a->address, b->address, sizeof a->address) == 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct proxy_header header = {.len = 0};
    const char *why = NULL;
    enum proxy_result result = proxy_header_parse(slice_of(data, size), &header, &why);
    bool decided = false;

    CHECK(size < PROXY_HEADER_MAX || result != PROXY_MORE);
    CHECK((result == PROXY_BAD) == (why != NULL));
    for (size_t len = 0; len <= size; len++) {
        struct proxy_header part = {.len = 0};
        const char *part_why = NULL;
        enum proxy_result now = proxy_header_parse(slice_of(data, len), &part, &part_why);

        CHECK(!decided || now != PROXY_MORE);
        decided = now != PROXY_MORE;
        if (decided) {
            CHECK(now == result && part_why == why && same(&part, &header));
            CHECK(now == PROXY_BAD || header.len <= len);
        } else {
            CHECK(result != PROXY_DONE || len < header.len);
        }
    }
    CHECK(result != PROXY_DONE || (header.len > 0 && header.len <= PROXY_HEADER_MAX));
    return 0;
}
