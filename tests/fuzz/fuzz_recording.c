/*
 * Recordings and published tables made of arbitrary bytes.
 *
 * Wanted, beside no crash: whatever is refused has words without an end of line, whatever is played
 * has lines.
 */
#include <stdint.h>
#include <string.h>

#include <jansson.h>

#include "buf.h"
#include "check.h"
#include "published_tables.h"
#include "recording.h"

#define TEXT_MAX       (1u << 20)
#define RECIPIENTS_MAX 200 /* that are played, to be quick */

/* Is it one that is soon played? What is refused is. */
static bool is_small(const json_t *recording)
{
    const json_t *messages = json_object_get(recording, "messages");
    json_int_t sum = 0;

    for (size_t i = 0; i < json_array_size(messages); i++) {
        json_int_t count = json_integer_value(json_array_get(messages, i));

        if (count > RECIPIENTS_MAX || (sum += count > 0 ? count : 0) > RECIPIENTS_MAX) {
            return false;
        }
    }
    return true;
}

static void replay(const json_t *recording, recording_replay *play)
{
    enum recording_verdict verdict;
    struct slice text;
    struct buf said;

    buf_init(&said, TEXT_MAX);
    verdict = play(recording, &said);
    text = buf_slice(&said);
    CHECK(said.failed || text.len > 0);
    if (!said.failed) {
        CHECK((text.ptr[text.len - 1] == '\n') == (verdict != RECORDING_BAD));
    }
    buf_fini(&said);
}

static void read_tables(struct slice text)
{
    struct published_tables *t;
    struct buf error;

    buf_init(&error, TEXT_MAX);
    t = published_tables_new(text, "fuzz", &error);
    CHECK(error.failed || (t == NULL) == slice_starts(buf_slice(&error), SLICE("fuzz:")));
    published_tables_free(t);
    buf_fini(&error);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    json_t *recording = json_loadb((const char *)data, size, JSON_REJECT_DUPLICATES, NULL);

    if (json_is_object(recording) && is_small(recording)) {
        replay(recording, order_recording_replay);
        replay(recording, window_recording_replay);
    }
    json_decref(recording);
    read_tables(slice_of(data, size));
    return 0;
}
