#include "unit.h"

#include "nearest.h"

static const char *const names[] = {"queue", "show", "hold", "release", "config check"};

static void a_mistyped_name_is_recognised(void **state)
{
    static const struct {
        const char *typed, *want;
    } rows[] = {
        {"queue", "queue"},
        {"quue", "queue"},
        {"Qeueu", "queue"},
        {"hol", "hold"},
        {"relase", "release"},
        {"config chek", "config check"},
        {"h", NULL},
        {"zzzz", NULL},
        {"", NULL},
        {"a name that is much longer than any that is known to this program", NULL},
    };
    struct nearest n;

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        nearest_init(&n, slice_string(rows[i].typed));
        for (size_t j = 0; j < COUNT(names); j++) {
            nearest_try(&n, names[j]);
        }
        if (rows[i].want == NULL) {
            assert_null(n.name);
        } else {
            assert_non_null(n.name);
            assert_string_equal(n.name, rows[i].want);
        }
    }
}

UNIT_MAIN(cmocka_unit_test(a_mistyped_name_is_recognised))
