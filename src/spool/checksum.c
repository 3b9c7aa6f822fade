#include "checksum.h"

#include <xxhash.h>

#include "check.h"

uint64_t checksum_of(struct slice bytes)
{
    return XXH3_64bits(bytes.len == 0 ? "" : bytes.ptr, bytes.len);
}

/* XXH3_state_t has a special alignment, so the library allocates it. */
struct checksum *checksum_new(void)
{
    XXH3_state_t *state = XXH3_createState();

    CHECK(state != NULL); /* the request is small */
    CHECK(XXH3_64bits_reset(state) == XXH_OK);
    return (struct checksum *)state;
}

void checksum_free(struct checksum *c)
{
    if (c != NULL) {
        (void)XXH3_freeState((XXH3_state_t *)c); /* always XXH_OK */
    }
}

void checksum_add(struct checksum *c, struct slice bytes)
{
    if (bytes.len > 0) {
        CHECK(XXH3_64bits_update((XXH3_state_t *)c, bytes.ptr, bytes.len) == XXH_OK);
    }
}

uint64_t checksum_value(const struct checksum *c)
{
    return XXH3_64bits_digest((const XXH3_state_t *)c);
}
