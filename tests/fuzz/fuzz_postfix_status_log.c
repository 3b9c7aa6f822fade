/*
 * Hostile logs of bounce(8): bounce/ID and defer/ID. Wanted, beside no crash: what is taken out
 * lies in the log, and what was taken out and is written again is taken out as it was.
 */
#include <stdint.h>
#include <string.h>

#include "check.h"
#include "status_log.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define TEXTS 9

static void texts_of(const struct status_log_entry *e, struct slice texts[TEXTS])
{
    const struct slice all[TEXTS] = {e->recipient, e->original,  e->dsn_original,
                                     e->status,    e->action,    e->diag_type,
                                     e->diag_text, e->mta_mname, e->reason};

    memcpy(texts, all, sizeof all);
}

static void write_again(const struct status_log_entry *e)
{
    struct slice before[TEXTS], after[TEXTS], rest;
    struct status_log_entry again;
    struct buf out;

    buf_init(&out, 1u << 22);
    status_log_put(&out, e);
    CHECK(!out.failed);
    rest = buf_slice(&out);
    CHECK(status_log_next(&rest, &again));
    CHECK(again.offset == e->offset && again.notify == e->notify);
    texts_of(e, before);
    texts_of(&again, after);
    for (size_t i = 0; i < TEXTS; i++) {
        CHECK(before[i].len == after[i].len);
    }
    buf_fini(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct slice rest = slice_of(data, size), texts[TEXTS];
    struct status_log_entry e;

    while (status_log_next(&rest, &e)) {
        texts_of(&e, texts);
        for (size_t i = 0; i < TEXTS; i++) {
            CHECK(texts[i].len == 0 || (texts[i].ptr >= (const char *)data &&
                                        texts[i].ptr + texts[i].len <= (const char *)data + size));
        }
        write_again(&e);
    }
    return 0;
}
