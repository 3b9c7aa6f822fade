#include "recordings.h"

#include "unit.h"

#include "jsonlines.h"

void recordings_replay(const char *path, size_t least, recording_replay *replay)
{
    struct jsonlines in;
    json_t *recording;
    struct buf said;
    size_t count = 0;

    assert_int_equal(jsonlines_open(&in, path), 0);
    buf_init(&said, 1 << 20);
    while (jsonlines_next(&in, &recording, &said) == JSONLINES_OBJECT) {
        buf_clear(&said);
        if (replay(recording, &said) != RECORDING_EQUAL) {
            fail_msg("%s", buf_cstr(&said));
        }
        json_decref(recording);
        count++;
    }
    jsonlines_close(&in);
    buf_fini(&said);
    assert_true(count >= least);
}
