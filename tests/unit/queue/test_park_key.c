#include "park_key.h"

#include "unit.h"

static void keys_say_what_they_wait_for(void **state)
{
    static const struct {
        const char *key;
        enum park_kind kind;
        const char *place, *class_name;
    } cases[] = {
        {"smtp/there.test", PARK_SHARE, "smtp/there.test", ""},
        {"smtp/there.test\tbulk", PARK_SHARE, "smtp/there.test", "bulk"},
        {PARK_KEY_NEW "smtp/there.test", PARK_SHARE, "smtp/there.test", ""},
        {PARK_KEY_NEW "smtp/there.test\tbulk/7", PARK_SHARE, "smtp/there.test", "bulk/7"},
        {PARK_KEY_RETRY "smtp/there.test", PARK_RETRY, "smtp/there.test", ""},
        {PARK_KEY_REQUEST "smtp/there.test", PARK_REQUEST, "smtp/there.test", ""},
        {PARK_KEY_LOCKED "process 4711", PARK_LOCKED, "process 4711", ""},
        {PARK_KEY_STUCK "fk/-", PARK_STUCK, "fk/-", ""},
        {"!retry", PARK_SHARE, "!retry", ""},
        {"", PARK_SHARE, "", ""},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct slice key = slice_string(cases[i].key);

        assert_int_equal(park_key_kind(key), cases[i].kind);
        assert_true(slice_equal(park_key_place(key), slice_string(cases[i].place)));
        assert_true(slice_equal(park_key_class(key), slice_string(cases[i].class_name)));
        assert_int_equal(park_key_is_new(key), slice_starts(key, SLICE(PARK_KEY_NEW)));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_say_what_they_wait_for),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
