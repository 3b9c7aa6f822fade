#include "mem.h"

#include "unit.h"

struct large {
    char bytes[100];
};

static void an_array_grows_by_doubling(void **state)
{
    size_t size = 0, resized = 0;
    uint32_t *numbers = NULL;

    (void)state;
    for (uint32_t i = 0; i < 100000; i++) {
        size_t before = size;

        numbers = mem_grow(numbers, i, &size, sizeof *numbers);
        assert_true(size > i);
        assert_true(size == before || before == 0 || size == 2 * before);
        resized += size != before;
        numbers[i] = i;
    }
    assert_int_equal(resized, 14); /* 16, 32, .. 131072 */
    for (uint32_t i = 0; i < 100000; i++) {
        assert_int_equal(numbers[i], i);
    }
    mem_free(numbers);
}

static void an_array_of_large_elements_begins_with_one(void **state)
{
    size_t size = 0;
    struct large *all = mem_grow(NULL, 0, &size, sizeof *all);

    (void)state;
    assert_int_equal(size, 1);
    all = mem_grow(all, 1, &size, sizeof *all);
    assert_int_equal(size, 2);
    mem_free(all);
}

static void an_array_with_room_stays_where_it_is(void **state)
{
    size_t size = 0;
    uint32_t *numbers = mem_grow(NULL, 0, &size, sizeof *numbers);

    (void)state;
    assert_int_equal(size, 16);
    assert_ptr_equal(mem_grow(numbers, 15, &size, sizeof *numbers), numbers);
    assert_int_equal(size, 16);
    mem_free(numbers);
}

UNIT_MAIN(cmocka_unit_test(an_array_grows_by_doubling),
          cmocka_unit_test(an_array_of_large_elements_begins_with_one),
          cmocka_unit_test(an_array_with_room_stays_where_it_is))
