/* A row of mail that makes no sense: the first thing that is wrong is told, and nothing of it is
 * out of range. */
#include "unit.h"

#include <string.h>

#include "answers.h"

/* due, arrived, created, then what makes sense: size, flags, class_source, and five texts. */
static PGresult *envelope(int64_t due, int64_t arrived, int64_t created)
{
    static char names[11][2] = {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k"};
    const int64_t numbers[] = {due, arrived, created, 0, 0, 0};
    PGresult *r = PQmakeEmptyPGresult(NULL, PGRES_TUPLES_OK);
    PGresAttDesc columns[11] = {{.name = NULL}};

    for (int i = 0; i < 11; i++) {
        columns[i].name = names[i];
    }
    assert_int_equal(PQsetResultAttrs(r, 11, columns), 1);
    for (int i = 0; i < 11; i++) {
        char bytes[8];

        for (int k = 0; i < 6 && k < 8; k++) {
            bytes[k] = (char)((uint64_t)numbers[i] >> (56 - 8 * k));
        }
        assert_int_equal(PQsetvalue(r, 0, i, bytes, i < 6 ? 8 : 0), 1);
    }
    return r;
}

static void impossible_times_are_none(void **state)
{
    static const struct {
        int64_t due, arrived, created;
        const char *wrong;
    } cases[] = {
        {1, 2, 3, NULL},
        {INT64_MAX, 2, 3, NULL}, /* never */
        {INT64_MIN, 2, 3, "its due time is impossible"},
        {INT64_MIN, INT64_MIN + 1, 3, "its due time is impossible"},
        {1, INT64_MAX - 1, INT64_MIN, "its time of arrival is impossible"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        PGresult *r = envelope(cases[i].due, cases[i].arrived, cases[i].created);
        struct text_pool pool = {NULL, 0};
        struct answer_row row = {.r = r, .pool = &pool};
        const int64_t limit = INT64_C(1) << 61;
        struct spool_message m;

        answer_envelope(&row, &m);
        assert_true((row.wrong == NULL) == (cases[i].wrong == NULL));
        if (cases[i].wrong != NULL) {
            assert_string_equal(row.wrong, cases[i].wrong);
        }
        assert_true(m.due.us == WALL_NEVER.us || (m.due.us >= -limit && m.due.us <= limit));
        assert_true(m.arrived.us >= -limit && m.arrived.us <= limit);
        assert_true(m.created.us >= -limit && m.created.us <= limit);
        text_pool_fini(&pool);
        PQclear(r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(impossible_times_are_none)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
