#include "example_file.h"

#include <stdio.h>
#include <string.h>

#include "unit.h"

#include "capture.h"

const char *const example_names[] = {
    "01-smtpd-two-recipients-bcc",
    "02-smtpd-dsn",
    "03-smtpd-smtputf8",
    "04-milter-edited",
    "05-content-filter",
    "06-sendmail",
    "07-bounce-daemon-report",
    "08-sendmail-verp",
    "09-sendmail-t-extracted-recipients",
    "10-one-done-one-todo",
    "11-sendmail-bv",
    "12-sendmail-v",
    NULL,
};

static void add_record(struct example *e, struct slice line)
{
    struct example_record *rec = &e->records[e->count];
    size_t from = slice_find(line, '"'), to = slice_find_last(line, '"');
    char head[64];
    unsigned long offset, len;

    assert_true(e->count < EXAMPLE_RECORDS_MAX && from < to && to < line.len);
    (void)snprintf(head, sizeof head, "%.*s", SLICE_ARGS(line));
    assert_int_equal(sscanf(head, "%lu '%c' len %lu", &offset, &rec->type, &len), 3);
    rec->offset = offset;
    rec->data = slice_of(line.ptr + from + 1, to - from - 1);
    assert_int_equal(rec->data.len, len);
    e->count++;
}

static void add_bytes(struct example *e, struct slice line)
{
    struct slice hex = slice_skip(line, 8);

    for (unsigned i = 0; i < 16 && hex.len >= 2 && hex.ptr[0] != ' '; i++) {
        char two[3] = {hex.ptr[0], hex.ptr[1], '\0'};

        assert_true(buf_add_byte(&e->bytes, (char)strtoul(two, NULL, 16)));
        hex = slice_skip(hex, 3);
    }
}

void example_read(const char *name, struct example *ret_example)
{
    struct example *e = ret_example;
    bool dump = false;
    struct slice rest;
    char path[512];

    memset(e, 0, sizeof *e);
    buf_init(&e->text, 1 << 20);
    buf_init(&e->bytes, 1 << 20);
    (void)snprintf(path, sizeof path, "%s/queue-files/%s.txt", TEST_DATA_DIR, name);
    capture_read(path, &e->text);
    rest = buf_slice(&e->text);
    while (rest.len > 0) {
        struct slice line = slice_cut(&rest, '\n');

        if (slice_equal(line, SLICE("# hex dump"))) {
            dump = true;
        } else if (line.len > 0 && line.ptr[0] != '#') {
            if (dump) {
                add_bytes(e, line);
            } else {
                add_record(e, line);
            }
        }
    }
    assert_true(e->count > 0 && buf_len(&e->bytes) > 0);
}

void example_fini(struct example *e)
{
    buf_fini(&e->text);
    buf_fini(&e->bytes);
}

const struct example_record *example_next(const struct example *e, const char *types, size_t *at)
{
    while (*at < e->count) {
        const struct example_record *rec = &e->records[(*at)++];

        if (strchr(types, rec->type) != NULL) {
            return rec;
        }
    }
    return NULL;
}
