#include "unit.h"

#include <string.h>

#include "idn.h"

#define UE "\xc3\xbc" /* u with two dots */

static void labels_are_converted_one_by_one(void **unused)
{
    static const char l64[] = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" UE;
    const struct {
        const char *in, *want; /* NULL: unchanged */
    } cases[] = {
        {"example.org", NULL},
        {"EXAMPLE.org.", NULL},
        {"", NULL},
        {"b" UE "cher.test", "xn--bcher-kva.test"},
        {"B\xc3\x9c"
         "CHER.Test",
         "xn--bcher-kva.Test"},
        {"bu\xcc\x88"
         "cher.test",
         "xn--bcher-kva.test"},             /* not composed */
        {"fa\xc3\x9f.de", "xn--fa-hia.de"}, /* not fass.de */
        {"mx.b" UE "cher.test.", "mx.xn--bcher-kva.test."},
        {".b" UE "cher.test", ".xn--bcher-kva.test"},
        {"*.b" UE "cher.test", "*.xn--bcher-kva.test"},
        {"b" UE "*.test", NULL},
        {"[b" UE "cher.test]", NULL},
        {"\xe4\xbe\x8b\xe3\x81\x88.\xe3\x83\x86\xe3\x82\xb9\xe3\x83\x88", "xn--r8jz45g.xn--zckzah"},
        {"\xff\xfe.test", NULL}, /* not UTF-8 */
        {"\xe2\x80\xae"
         "b.test",
         NULL}, /* a mark of direction has no A-label */
        {"a\xef\xbc\xa0"
         "b.test",
         NULL}, /* a wide @ */
        {"a\xef\xbc\x9e"
         "b.test",
         NULL}, /* a wide > */
        {"a\xe3\x80\x80"
         "b.test",
         NULL}, /* a wide space */
        {"a\xe3\x80\x82"
         "test",
         NULL},      /* a wide full stop */
        {l64, NULL}, /* too long for a label */
    };

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        char room[256];
        struct slice got = idn_domain(slice_string(cases[i].in), room, sizeof room);
        const char *want = cases[i].want != NULL ? cases[i].want : cases[i].in;

        if (!slice_equal(got, slice_string(want))) {
            fail_msg("%s: %.*s", cases[i].in, SLICE_ARGS(got));
        }
    }
}

static void only_the_domain_of_an_address_is_converted(void **unused)
{
    char room[64];

    (void)unused;
    assert_true(slice_equal(idn_address(SLICE("j" UE "rg@b" UE "cher.test"), room, sizeof room),
                            SLICE("j" UE "rg@xn--bcher-kva.test")));
    assert_true(slice_equal(idn_address(SLICE("@b" UE "cher.test"), room, sizeof room),
                            SLICE("@xn--bcher-kva.test")));
    assert_true(slice_equal(idn_address(SLICE("b" UE "cher.test"), room, sizeof room),
                            SLICE("xn--bcher-kva.test")));
    assert_true(slice_equal(idn_address(SLICE("\"a@" UE "\"@c.test"), room, sizeof room),
                            SLICE("\"a@" UE "\"@c.test")));
}

static void a_name_that_does_not_fit_is_unchanged(void **unused)
{
    struct slice name = SLICE("b" UE "cher.test");
    char room[32];

    (void)unused;
    for (size_t size = 0; size < strlen("xn--bcher-kva.test"); size++) {
        assert_ptr_equal(idn_domain(name, room, size).ptr, name.ptr);
    }
    assert_ptr_equal(idn_domain(name, room, strlen("xn--bcher-kva.test")).ptr, room);
}

UNIT_MAIN(cmocka_unit_test(labels_are_converted_one_by_one),
          cmocka_unit_test(only_the_domain_of_an_address_is_converted),
          cmocka_unit_test(a_name_that_does_not_fit_is_unchanged))
