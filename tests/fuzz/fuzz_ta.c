/*
 * Hostile transport agents. The first byte sets the feeding, the rest is what the agent says.
 * Wanted, beside no crash: it never has more jobs than it may, and what is sent to it is whole
 * lines.
 */
#include <stdint.h>
#include <string.h>

#include "check.h"
#include "ta.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct slice rest = slice_of(data, size);
    struct ta_event event = {.type = TA_NEED_INPUT};
    uint32_t overfeed = size > 0 ? data[0] % 8 : 0, jobs = size > 0 ? data[0] / 8 : 0;
    struct buf in;
    struct ta ta;

    rest = slice_skip(rest, 1);
    buf_init(&in, 1 << 20);
    ta_init(&ta, overfeed % 2 == 0, overfeed);
    while (event.type != TA_BROKEN && (event.type != TA_NEED_INPUT || rest.len > 0)) {
        if (event.type == TA_NEED_INPUT) {
            size_t piece = rest.len < 13 ? rest.len : 13;

            CHECK(buf_add(&in, slice_of(rest.ptr, piece)));
            rest = slice_skip(rest, piece);
        }
        ta_next(&ta, &in, &event);
        CHECK(ta.owed <= overfeed + 1);
        switch (event.type) {
        case TA_FEED:
            if (jobs-- % 3 == 0) {
                ta_no_job(&ta);
            } else {
                ta_job(&ta, SLICE("A/1"), SLICE("host"));
            }
            break;
        case TA_DETACH:
            if (jobs-- % 2 == 0) {
                ta_idle(&ta);
            } else {
                ta_job(&ta, SLICE("2"), SLICE("other"));
            }
            break;
        case TA_REST:
            CHECK(ta_is_idle(&ta));
            ta_job(&ta, SLICE("3"), SLICE("host"));
            break;
        case TA_RESULT:
            CHECK(event.status <= TA_UNKNOWN && event.retry_s >= 0);
            if (event.status == TA_DEFERALL) {
                ta_stop_feeding(&ta);
            }
            break;
        case TA_MALFORMED:
            CHECK(strlen(event.what) > 0);
            break;
        default:
            break;
        }
        if (buf_len(&ta.output) > 0) {
            struct slice out = buf_slice(&ta.output);

            CHECK(out.ptr[out.len - 1] == '\n');
            buf_clear(&ta.output);
        }
    }
    ta_fini(&ta);
    buf_fini(&in);
    return 0;
}
