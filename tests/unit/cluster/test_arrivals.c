/*
 * Rows of arrival: what may be in them, and until when they are known.
 */
#include "unit.h"

#include <string.h>

#include "arrivals.h"

#define ENTRY 20

static struct arrivals arrivals;
static struct arrived_mail told[16];
static size_t told_count;
static bool hand_on;

static int begin(void **state)
{
    (void)state;
    arrivals_init(&arrivals);
    told_count = 0;
    hand_on = false;
    return 0;
}

static int end(void **state)
{
    (void)state;
    arrivals_fini(&arrivals);
    return 0;
}

static bool arrived(void *arg, const struct arrived_mail *mail)
{
    (void)arg;
    assert_true(told_count < COUNT(told));
    told[told_count++] = *mail;
    return hand_on;
}

/* An entry of a message of 5 bytes that counts as new. */
static void put_entry(char *at, unsigned kind, unsigned p, unsigned char id)
{
    memset(at, 0, ENTRY);
    at[0] = (char)kind;
    at[1] = 1;
    at[2] = (char)(p >> 8);
    at[3] = (char)p;
    at[11] = (char)id;
    at[19] = 5;
}

/* The database answers with one row. */
static void answer(unsigned char seq, const char *parts, int len)
{
    PGresAttDesc columns[2] = {{.name = (char[]){"seq"}, .format = 1, .typid = 20, .typlen = 8},
                               {.name = (char[]){"parts"}, .format = 1, .typid = 17, .typlen = -1}};
    PGresult *r = PQmakeEmptyPGresult(NULL, PGRES_TUPLES_OK);
    char number[8] = {0}, bytes[4 * ENTRY];

    number[7] = (char)seq;
    memcpy(bytes, parts, (size_t)len);
    assert_true(PQsetResultAttrs(r, 2, columns) == 1 && PQsetvalue(r, 0, 0, number, 8) == 1 &&
                PQsetvalue(r, 0, 1, bytes, len) == 1);
    arrivals_answer(&arrivals, r, arrived, NULL);
    (void)arrivals_ended(&arrivals, 1);
    PQclear(r);
}

static bool asks(void)
{
    struct committer_batch *b = arrivals_ask(&arrivals, 3, 0);

    committer_batch_free(b);
    return b != NULL;
}

static void begin_batch(void)
{
    struct committer_batch *b = committer_batch_new();

    arrivals_begin(&arrivals, 3, b);
    committer_batch_free(b);
}

static void only_what_can_be_is_told(void **state)
{
    (void)state;
    char parts[4 * ENTRY];

    put_entry(parts, ARRIVAL_TOLD + 1, 7, 1);
    put_entry(parts + ENTRY, ARRIVAL_MAIL, 256, 2);
    put_entry(parts + 2 * ENTRY, ARRIVAL_MAIL, 7, 0);
    put_entry(parts + 3 * ENTRY, ARRIVAL_MAIL, 255, 9);
    assert_true(asks());
    assert_false(asks()); /* one after the other */
    answer(1, parts, sizeof parts);
    assert_int_equal(told_count, 1);
    assert_int_equal(told[0].p, 255);
    assert_int_equal(told[0].id, 9);
    assert_int_equal(told[0].counts_as, 1);
    assert_int_equal(told[0].size, 5);
    assert_true(asks());
    answer(2, parts + 3 * ENTRY, ENTRY - 1); /* a piece of one */
    assert_int_equal(told_count, 1);
}

static void a_row_is_told_once_until_it_is_deleted(void **state)
{
    (void)state;
    char parts[ENTRY];

    put_entry(parts, ARRIVAL_MAIL, 7, 1);
    assert_true(asks());
    answer(1, parts, ENTRY);
    begin_batch();
    assert_true(asks());
    answer(1, parts, ENTRY); /* the batch is not durable yet */
    answer(2, parts, ENTRY);
    assert_int_equal(told_count, 2);
    arrivals_kept(&arrivals);
    assert_int_equal(arrivals.count, 1); /* the second is in no batch */
    begin_batch();
    arrivals_undone(&arrivals);
    answer(2, parts, ENTRY); /* it is there still */
    assert_int_equal(told_count, 3);
}

static void without_a_batch_rows_are_deleted_after_a_while(void **state)
{
    (void)state;
    struct committer_batch *b;
    char parts[ENTRY];

    put_entry(parts, ARRIVAL_TOLD, 7, 1);
    hand_on = true;
    assert_true(asks());
    answer(1, parts, ENTRY);
    assert_null(arrivals_delete(&arrivals, 3, 1, ARRIVALS_ALONE_US - 1));
    b = arrivals_delete(&arrivals, 3, 1, ARRIVALS_ALONE_US);
    assert_non_null(b);
    committer_batch_free(b);
    assert_int_equal(arrivals.count, 0);
    assert_null(arrivals_delete(&arrivals, 3, 1, 2 * ARRIVALS_ALONE_US));
}

static void what_is_passed_on_is_not_counted_again(void **state)
{
    (void)state;
    const struct column *entries = &arrivals.handed_on.column[1];
    char parts[ENTRY];

    put_entry(parts, ARRIVAL_MAIL, 7, 1);
    hand_on = true;
    assert_true(asks());
    answer(1, parts, ENTRY);
    assert_int_equal(told[0].counts_as, 1);
    parts[1] = 0;
    assert_non_null(memmem(entries->bytes, entries->len, parts, ENTRY));
}

UNIT_MAIN(cmocka_unit_test_setup_teardown(only_what_can_be_is_told, begin, end),
          cmocka_unit_test_setup_teardown(a_row_is_told_once_until_it_is_deleted, begin, end),
          cmocka_unit_test_setup_teardown(without_a_batch_rows_are_deleted_after_a_while, begin,
                                          end),
          cmocka_unit_test_setup_teardown(what_is_passed_on_is_not_counted_again, begin, end))
