/* The recorded counters are read and written again: they must come out as they were. */
#include "unit.h"

#include <stdlib.h>
#include <string.h>

#include "capture.h"
#include "mailq_counters.h"
#include "mem.h"

#define TEXT_MAX 100000
#define ROWS_MAX 300

/* Names of agents' rows. */
static bool is_others(struct slice name)
{
    return slice_starts(name, SLICE("TA-"));
}

/* Reads a count, or a load in hundredths. */
static uint64_t value_of(struct slice name, const char *text)
{
    return slice_starts(name, SLICE("SYS.Load-Avg")) ? (uint64_t)(strtod(text, NULL) * 100 + 0.5)
                                                     : strtoull(text, NULL, 10);
}

static void recorded_counters(void **unused)
{
    struct buf text, want, got;
    struct slice rest, line;
    struct mailq_counter rows[ROWS_MAX];
    char *names[ROWS_MAX];
    size_t count = 0;

    (void)unused;
    buf_init(&text, TEXT_MAX);
    buf_init(&want, TEXT_MAX);
    buf_init(&got, TEXT_MAX);
    capture_read(TEST_DATA_DIR "/24-mailq-v2-show-counters.txt", &text);
    rest = buf_slice(&text);
    while (!slice_equal(slice_cut(&rest, '\n'), SLICE("S: +OK until LF.LF"))) {
        assert_non_null(rest.ptr);
    }
    while (!slice_equal(line = slice_cut(&rest, '\n'), SLICE("S: ."))) {
        struct slice name, value;

        line = slice_skip(line, line.len > 2 ? 3 : 2);
        value = line;
        name = slice_cut(&value, ' ');
        (void)buf_addf(&want, "%.*s\n", SLICE_ARGS(line));
        if (value.ptr != NULL && !slice_starts(name, SLICE("ZMailer")) && !is_others(name)) {
            assert_true(count < ROWS_MAX);
            names[count] = mem_copy(name.ptr, name.len);
            rows[count].name = names[count];
            rows[count++].value = value_of(name, value.ptr);
        }
    }
    mailq_put_counters(&got, rows, count);
    assert_string_equal(buf_cstr(&got), buf_cstr(&want));
    while (count > 0) {
        mem_free(names[--count]);
    }
    buf_fini(&text);
    buf_fini(&want);
    buf_fini(&got);
}

UNIT_MAIN(cmocka_unit_test(recorded_counters))
