#include "unit.h"

#include <string.h>

#include "header_edit.h"

#define HEADER "Received: a\r\n\tb\r\nSubject: x\r\nReceived: c\r\nTo: y\r\n"

static void want(const struct header_edit *h, const char *text)
{
    struct buf out;

    buf_init(&out, 10000);
    assert_true(header_edit_put(h, &out));
    assert_string_equal(buf_cstr(&out), text);
    buf_fini(&out);
}

static void fields_are_inserted_where_they_are_wanted(void **unused)
{
    struct header_edit *h = header_edit_new(SLICE(HEADER));

    (void)unused;
    assert_false(header_edit_changed(h));
    want(h, HEADER);
    assert_true(header_edit_insert(h, 0, SLICE("DKIM-Signature"), SLICE(" v=1;\r\n\tb=z")));
    assert_true(header_edit_insert(h, 2, SLICE("X-B"), SLICE(" 2")));
    assert_true(header_edit_insert(h, 99, SLICE("X-C"), SLICE("3")));
    assert_true(header_edit_add(h, SLICE("X-D"), SLICE("")));
    assert_true(header_edit_changed(h));
    want(h, "DKIM-Signature: v=1;\r\n\tb=z\r\nReceived: a\r\n\tb\r\nX-B: 2\r\nSubject: x\r\n"
            "Received: c\r\nTo: y\r\nX-C:3\r\nX-D:\r\n");
    header_edit_free(h);
    header_edit_free(NULL);
}

static void fields_are_changed_and_removed_by_name_and_number(void **unused)
{
    struct header_edit *h = header_edit_new(SLICE(HEADER));

    (void)unused;
    assert_true(header_edit_change(h, 2, SLICE("received"), SLICE(" d")));
    assert_true(header_edit_change(h, 1, SLICE("SUBJECT"), SLICE(" ***SPAM*** x")));
    want(h, "Received: a\r\n\tb\r\nSUBJECT: ***SPAM*** x\r\nreceived: d\r\nTo: y\r\n");
    assert_true(header_edit_change(h, 1, SLICE("Received"), SLICE(" ")));
    assert_true(header_edit_change(h, 1, SLICE("Received"), SLICE("")));
    assert_true(header_edit_change(h, 1, SLICE("Received"), SLICE("")));
    assert_true(header_edit_change(h, 2, SLICE("To"), SLICE("")));
    assert_true(header_edit_change(h, 3, SLICE("X-New"), SLICE(" n")));
    want(h, "SUBJECT: ***SPAM*** x\r\nTo: y\r\nX-New: n\r\n");
    header_edit_free(h);
}

static void odd_headers_stay_as_they_are(void **unused)
{
    struct header_edit *h = header_edit_new(SLICE(""));

    (void)unused;
    want(h, "");
    assert_true(header_edit_add(h, SLICE("A"), SLICE(" b")));
    want(h, "A: b\r\n");
    header_edit_free(h);
    h = header_edit_new(SLICE("A: b"));
    assert_true(header_edit_add(h, SLICE("C"), SLICE(" d")));
    want(h, "A: b\r\nC: d\r\n");
    header_edit_free(h);
}

static void limits_hold(void **unused)
{
    static char value[HEADER_EDIT_BYTES_MAX];
    struct header_edit *h = header_edit_new(SLICE(HEADER));

    (void)unused;
    memset(value, 'x', sizeof value);
    assert_false(header_edit_add(h, SLICE("A"), slice_of(value, sizeof value)));
    assert_true(header_edit_add(h, SLICE("A"), slice_of(value, sizeof value - 100)));
    assert_false(header_edit_change(h, 1, SLICE("A"), slice_of(value, 100)));
    header_edit_free(h);
    h = header_edit_new(SLICE(""));
    for (size_t i = 0; i < HEADER_EDIT_CHANGES_MAX; i++) {
        assert_true(header_edit_add(h, SLICE("B"), SLICE("")));
    }
    assert_false(header_edit_add(h, SLICE("B"), SLICE("")));
    assert_false(header_edit_change(h, 1, SLICE("B"), SLICE("")));
    header_edit_free(h);
}

UNIT_MAIN(cmocka_unit_test(fields_are_inserted_where_they_are_wanted),
          cmocka_unit_test(fields_are_changed_and_removed_by_name_and_number),
          cmocka_unit_test(odd_headers_stay_as_they_are), cmocka_unit_test(limits_hold))
