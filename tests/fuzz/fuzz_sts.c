/*
 * What a domain publishes for MTA-STS: TXT records, or a policy.
 *
 * Input: a byte that says which, then the text; records have line feeds between them. Wanted,
 * beside no crash: an id is one, a policy that was read and written is read as the same, and it
 * fits into what is kept of it.
 */
#include <stdint.h>
#include <string.h>

#include "check.h"
#include "sts.h"

#define RECORDS_MAX 8

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_records(struct slice text)
{
    struct slice records[RECORDS_MAX], id;
    size_t count = 0;

    while (text.ptr != NULL && count < RECORDS_MAX) {
        records[count++] = slice_cut(&text, '\n');
    }
    if (sts_record_find(records, count, &id)) {
        CHECK(sts_id_valid(id));
    }
}

static void read_policy(struct slice text)
{
    struct sts_policy first, second;
    struct buf written;
    const char *why;

    if (!sts_policy_parse(text, &first, &why)) {
        CHECK(why != NULL);
        return;
    }
    CHECK(first.max_age <= STS_MAX_AGE_MAX);
    CHECK(first.mode == STS_NONE || first.mx_count > 0);
    buf_init(&written, STS_POLICY_MAX);
    CHECK(sts_policy_put(&first, &written));
    CHECK(sts_policy_parse(buf_slice(&written), &second, &why));
    CHECK(first.mode == second.mode && first.max_age == second.max_age);
    CHECK(first.mx_count == second.mx_count);
    for (size_t i = 0; i < first.mx_count; i++) {
        CHECK(slice_equal(first.mx[i], second.mx[i]));
        if (!slice_starts(first.mx[i], SLICE("*."))) {
            CHECK(sts_policy_allows(&second, first.mx[i]));
        }
    }
    buf_fini(&written);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > 0) {
        struct slice text = slice_of(data + 1, size - 1);

        if (data[0] % 2 == 0) {
            read_policy(text);
        } else {
            read_records(text);
        }
    }
    return 0;
}
