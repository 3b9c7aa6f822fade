#include "guesses.h"

#include <stdio.h>

#include "unit.h"

static struct mono at(int64_t seconds)
{
    return (struct mono){seconds * US_PER_S};
}

static int64_t wait_of(const struct guesses *g, const char *address, const char *user, int64_t now)
{
    return guesses_wait_us(g, guesses_client(slice_string(address)), slice_string(user), at(now));
}

static void add_failure(struct guesses *g, const char *address, const char *user, int64_t now)
{
    guesses_failed(g, guesses_client(slice_string(address)), slice_string(user), at(now));
}

static void each_failure_doubles_the_wait_up_to_a_limit(void **unused)
{
    struct guesses *g = guesses_new();
    int64_t wanted = GUESSES_FIRST_US;

    (void)unused;
    assert_int_equal(wait_of(g, "192.0.2.1", "app", 0), 0);
    for (int i = 0; i < 100; i++) {
        add_failure(g, "192.0.2.1", "app", i);
        assert_int_equal(wait_of(g, "192.0.2.1", "", i), wanted);
        wanted = 2 * wanted < GUESSES_LONGEST_US ? 2 * wanted : GUESSES_LONGEST_US;
    }
    guesses_free(g);
}

static void who_guesses_keeps_no_user_out(void **unused)
{
    struct guesses *g = guesses_new();

    (void)unused;
    for (int i = 0; i < 20; i++) {
        add_failure(g, "192.0.2.1", "app", 0);
    }
    /* From elsewhere: a refusal waits, a yes does not. */
    assert_int_equal(wait_of(g, "192.0.2.2", "app", 0), GUESSES_LONGEST_US);
    assert_int_equal(wait_of(g, "192.0.2.2", "", 0), 0);
    assert_int_equal(wait_of(g, "192.0.2.2", "other", 0), 0);
    /* From there all wait, for any user. */
    assert_int_equal(wait_of(g, "192.0.2.1", "", 0), GUESSES_LONGEST_US);
    assert_int_equal(wait_of(g, "192.0.2.1", "other", 0), GUESSES_LONGEST_US);
    guesses_free(g);
}

static void a_network_of_ipv6_is_one_client(void **unused)
{
    struct guesses *g = guesses_new();

    (void)unused;
    add_failure(g, "2001:db8:1:2::1", "", 0);
    add_failure(g, "2001:db8:1:2:ffff::9", "", 0);
    assert_int_equal(wait_of(g, "2001:db8:1:2::77", "", 0), 2 * GUESSES_FIRST_US);
    assert_int_equal(wait_of(g, "2001:db8:1:3::1", "", 0), 0);
    /* All of IPv4 would be one such network. */
    add_failure(g, "192.0.2.1", "", 0);
    assert_int_equal(wait_of(g, "192.0.2.2", "", 0), 0);
    guesses_free(g);
}

static void failures_are_forgotten(void **unused)
{
    const int64_t later = GUESSES_FORGET_US / US_PER_S;
    struct guesses *g = guesses_new();

    (void)unused;
    for (int i = 0; i < 10; i++) {
        add_failure(g, "192.0.2.1", "app", 0);
    }
    assert_int_equal(wait_of(g, "192.0.2.1", "", later - 1), GUESSES_LONGEST_US);
    assert_int_equal(wait_of(g, "192.0.2.1", "app", later), 0);
    add_failure(g, "192.0.2.1", "app", later);
    assert_int_equal(wait_of(g, "192.0.2.1", "app", later), GUESSES_FIRST_US);
    guesses_free(g);
}

static void the_oldest_makes_room(void **unused)
{
    struct guesses *g = guesses_new();
    char user[40];

    (void)unused;
    add_failure(g, "192.0.2.1", "first", 0);
    add_failure(g, "192.0.2.1", "second", 0);
    for (unsigned i = 0; i < GUESSES_MAX - 2; i++) {
        (void)snprintf(user, sizeof user, "user%u", i);
        add_failure(g, "192.0.2.2", user, 1);
    }
    add_failure(g, "192.0.2.2", "first", 2); /* it is the latest now */
    assert_int_equal(wait_of(g, "192.0.2.3", "second", 2), GUESSES_FIRST_US);
    add_failure(g, "192.0.2.2", "one more", 2);
    assert_int_equal(wait_of(g, "192.0.2.3", "second", 2), 0);
    assert_int_equal(wait_of(g, "192.0.2.3", "first", 2), 2 * GUESSES_FIRST_US);
    /* However many users: the address that guesses is not forgotten. */
    assert_int_equal(wait_of(g, "192.0.2.2", "", 2), GUESSES_LONGEST_US);
    guesses_free(g);
}

static void who_has_logged_in_is_known(void **unused)
{
    struct guesses *g = guesses_new();
    const uint64_t user = guesses_client(SLICE("192.0.2.1"));
    char address[40];

    (void)unused;
    assert_false(guesses_is_known(g, user));
    guesses_succeeded(g, user, at(0));
    add_failure(g, "192.0.2.1", "app", GUESSES_FORGET_US);
    assert_true(guesses_is_known(g, user));
    assert_false(guesses_is_known(g, guesses_client(SLICE("192.0.2.2"))));
    for (unsigned i = 0; i < GUESSES_MAX; i++) {
        (void)snprintf(address, sizeof address, "10.0.%u.%u", i / 250, i % 250);
        guesses_succeeded(g, guesses_client(slice_string(address)), at(1));
    }
    assert_false(guesses_is_known(g, user)); /* the oldest made room */
    guesses_free(g);
}

UNIT_MAIN(cmocka_unit_test(who_has_logged_in_is_known),
          cmocka_unit_test(each_failure_doubles_the_wait_up_to_a_limit),
          cmocka_unit_test(who_guesses_keeps_no_user_out),
          cmocka_unit_test(a_network_of_ipv6_is_one_client),
          cmocka_unit_test(failures_are_forgotten), cmocka_unit_test(the_oldest_makes_room))
