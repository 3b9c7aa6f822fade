/*
 * Maildrop files of hostile users. Wanted, beside no crash: whatever is read can be put again, and
 * that gives the same bytes; and a head that is cut anywhere is never taken for a whole one.
 */
#include <stdint.h>
#include <string.h>

#include "check.h"
#include "maildrop.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct slice in = slice_of(data, size);
    struct maildrop m, part;
    struct buf again;
    size_t head, ignored;
    const char *why = NULL;

    switch (maildrop_get(in, &m, &head, &why)) {
    case MAILDROP_MORE:
        return 0;
    case MAILDROP_BAD:
        CHECK(why != NULL);
        return 0;
    case MAILDROP_OK:
        break;
    }
    CHECK(head <= size);
    buf_init(&again, MAILDROP_HEAD_MAX);
    CHECK(maildrop_put(&m, &again));
    CHECK(slice_equal(buf_slice(&again), slice_of(data, head)));
    CHECK(maildrop_get(slice_of(data, head / 2), &part, &ignored, &why) == MAILDROP_MORE);
    CHECK(maildrop_get(slice_of(data, head - 1), &part, &ignored, &why) == MAILDROP_MORE);
    buf_fini(&again);
    maildrop_fini(&m);
    return 0;
}
