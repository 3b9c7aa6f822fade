#include "unit.h"

#include <stdio.h>

#include "class_count.h"

static void classes_without_number_are_counted_together(void **unused)
{
    struct class_counts all = {.count = 0};
    char name[32];

    (void)unused;
    class_count(&all, SLICE(""))->submitted = 3;
    class_count(&all, SLICE("bulk"))->submitted = 5;
    for (unsigned i = 0; i < 100; i++) {
        class_count(&all, slice_of(name, (size_t)snprintf(name, sizeof name, "c%u", i)))
            ->submitted++;
    }
    assert_int_equal(all.count, CLASS_COUNTS_MAX + 1);
    assert_int_equal(class_count(&all, SLICE(""))->submitted, 3);
    assert_int_equal(class_count(&all, SLICE("bulk"))->submitted, 5);
    assert_int_equal(class_count(&all, SLICE("c0"))->submitted, 1);
    assert_string_equal(class_count(&all, SLICE("c99"))->name, CLASS_COUNT_OTHERS);
    assert_int_equal(class_count(&all, SLICE("c99"))->submitted, 100 - (CLASS_COUNTS_MAX - 2));
}

UNIT_MAIN(cmocka_unit_test(classes_without_number_are_counted_together))
