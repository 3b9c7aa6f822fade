#include "ids.h"

#include <stdbool.h>

#include "rng.h"
#include "unit.h"

#define OBJECTS 5000

static void random_life(uint64_t (*id_of)(size_t i))
{
    static bool in[OBJECTS];
    struct ids ids = {0};
    struct rng rng;
    size_t count = 0, seen = 0;

    rng_init(&rng, 11);
    assert_null(ids_find(&ids, 1));
    for (size_t step = 0; step < 60000; step++) {
        size_t i = rng_below(&rng, step % 20000 < 10000 ? OBJECTS : OBJECTS / 50);

        assert_ptr_equal(ids_find(&ids, id_of(i)), in[i] ? &in[i] : NULL);
        if (in[i]) {
            ids_remove(&ids, id_of(i));
        } else {
            ids_add(&ids, id_of(i), &in[i]);
        }
        count = in[i] ? count - 1 : count + 1;
        in[i] = !in[i];
        assert_int_equal(ids.count, count);
    }
    for (size_t slot = 0; slot < ids.size; slot++) {
        seen += ids_at(&ids, slot) != NULL;
    }
    assert_int_equal(seen, count);
    for (size_t i = 0; i < OBJECTS; i++) {
        assert_ptr_equal(ids_find(&ids, id_of(i)), in[i] ? &in[i] : NULL);
        in[i] = false;
    }
    ids_fini(&ids);
}

static uint64_t one_after_the_other(size_t i)
{
    return i + 1;
}

static uint64_t in_the_upper_bits_alone(size_t i)
{
    return (uint64_t)i << 48;
}

static uint64_t far_apart(size_t i)
{
    return i * UINT64_C(1000003) << 10 | 5;
}

static void what_was_added_is_found_until_removed(void **state)
{
    (void)state;
    random_life(one_after_the_other);
    random_life(in_the_upper_bits_alone);
    random_life(far_apart);
}

UNIT_MAIN(cmocka_unit_test(what_was_added_is_found_until_removed))
