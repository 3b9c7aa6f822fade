/*
 * What every unit test includes: cmocka and the headers it wants before it.
 *
 * A test program is a list of `static void a_sentence(void **state)` and a main that runs them with
 * UNIT_MAIN; as an argument the program takes the name of the tests to run, with * for any
 * characters. Inputs are tables with `want` columns; time is a variable; nothing sleeps.
 */
#ifndef TESTS_UNIT_H
#define TESTS_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

#define UNIT_MAIN(...)                                                                             \
    int main(int argc, char **argv)                                                                \
    {                                                                                              \
        const struct CMUnitTest tests[] = {__VA_ARGS__};                                           \
        cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);                                         \
        return cmocka_run_group_tests(tests, NULL, NULL);                                          \
    }

#endif
