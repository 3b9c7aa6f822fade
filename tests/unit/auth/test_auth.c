/*
 * The role auth with receive processes that the test plays.
 */
#include "unit.h"

#include <event2/event.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "auth.h"
#include "clock.h"
#include "mem.h"
#include "scram.h"
#include "verifier_list.h"

#define PASSWORD "correct-horse"
#define GUESSES  9000u
#define TURNS    100000u /* far more than anything takes but the timers of answers that wait */

struct answer {
    uint64_t login;
    enum wire_auth_result result;
    char text[WIRE_CHALLENGE_MAX + 1]; /* the challenge, or "USER CLASS SENDERS" */
};

struct receiver {
    struct channel *channel; /* NULL: closed by the other side */
    struct answer last;
    unsigned count, busy;
};

static struct {
    struct role role;
    struct conf *conf;
    struct buf users;
    struct receiver one, other;
} site;

/* What auth.c wants of role.c, which is not linked. */

void role_exit(struct role *role, int status)
{
    (void)role;
    (void)status;
}

struct slice role_file(const struct role *role, struct slice path)
{
    (void)role;
    (void)path;
    return buf_slice(&site.users);
}

/* ---- the site ------------------------------------------------------------------------------- */

static void on_auth(void *arg, struct channel *ch)
{
    struct receiver *r = arg;
    struct wire_auth_answer m;
    struct frame frame;
    enum channel_event event;

    while ((event = channel_next(ch, &frame)) == CHANNEL_FRAME) {
        if (frame.type == WIRE_AUTH_MECHANISMS) {
            continue;
        }
        assert_int_equal(frame.type, WIRE_AUTH_ANSWER);
        assert_true(wire_get_auth_answer(frame.body, &m));
        r->count++;
        r->busy += m.result == WIRE_AUTH_BUSY;
        r->last = (struct answer){.login = m.login, .result = m.result};
        if (m.result == WIRE_AUTH_CHALLENGE) {
            (void)snprintf(r->last.text, sizeof r->last.text, "%.*s", SLICE_ARGS(m.challenge));
        } else {
            (void)snprintf(r->last.text, sizeof r->last.text, "%.*s %.*s %.*s", SLICE_ARGS(m.user),
                           SLICE_ARGS(m.class_name), SLICE_ARGS(m.senders));
        }
    }
    if (event == CHANNEL_CLOSED) {
        channel_free(r->channel);
        r->channel = NULL;
    }
}

static void connect_receiver(struct receiver *r, unsigned index)
{
    struct wire_peer peer = {.role = ROLE_RECEIVE, .index = index, .count = 2};
    int fds[2];

    assert_return_code(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    *r = (struct receiver){0};
    r->channel = channel_new(site.role.base, fds[0], on_auth, r);
    auth_role.peer(&site.role, &peer, fds[1]);
}

static void add_user(const char *name, const char *class_name, const char *senders)
{
    struct scram_secret secret;

    scram_derive(SLICE(PASSWORD), (const uint8_t *)"salt", 4, SCRAM_ROUNDS_MIN, &secret);
    verifier_put(&site.users, slice_string(name), &secret, slice_string(class_name),
                 slice_string(senders));
}

static int open_site(void **unused)
{
    struct conf_world world = {.hostname = "mx.example.test"};
    struct conf_problems problems;

    (void)unused;
    memset(&site, 0, sizeof site);
    site.conf =
        conf_load_text(SLICE("auth_users = users\n"), "sluice.conf", "/tmp", &world, &problems);
    conf_problems_fini(&problems);
    assert_non_null(site.conf);
    buf_init(&site.users, 10000);
    add_user("app", "", "");
    add_user("shop", "orders", "@shop.example");
    site.role = (struct role){.ops = &auth_role, .base = event_base_new(), .conf = site.conf};
    assert_int_equal(auth_role.start(&site.role), 0);
    connect_receiver(&site.one, 0);
    connect_receiver(&site.other, 1);
    return 0;
}

static int close_site(void **unused)
{
    (void)unused;
    auth_role.end(&site.role);
    channel_free(site.one.channel);
    channel_free(site.other.channel);
    event_base_free(site.role.base);
    conf_free(site.conf);
    buf_fini(&site.users);
    return 0;
}

static void turn(int flags)
{
    channel_flush_all();
    clock_forget();
    assert_true(event_base_loop(site.role.base, flags) >= 0);
    channel_flush_all();
}

static void say(struct receiver *r, uint64_t login, enum sasl_mechanism mechanism, bool first,
                const char *client, struct slice message)
{
    wire_put_auth(r->channel, &(struct wire_auth){.login = login,
                                                  .mechanism = (uint32_t)mechanism,
                                                  .first = first,
                                                  .has_message = message.ptr != NULL,
                                                  .message = message,
                                                  .client = slice_string(client)});
}

static const struct answer *answer_to(struct receiver *r, unsigned count)
{
    for (unsigned i = 0; r->count < count; i++) {
        assert_in_range(i, 0, TURNS);
        turn(EVLOOP_ONCE);
    }
    assert_int_equal(r->count, count);
    return &r->last;
}

/* ---- what it says --------------------------------------------------------------------------- */

static void a_user_with_its_password_is_accepted_with_its_rights(void **unused)
{
    const struct answer *a;

    (void)unused;
    say(&site.one, 1, SASL_PLAIN, true, "192.0.2.1", SLICE("\0app\0" PASSWORD));
    a = answer_to(&site.one, 1);
    assert_int_equal(a->result, WIRE_AUTH_ACCEPTED);
    assert_string_equal(a->text, "app  ");
    say(&site.one, 2, SASL_LOGIN, true, "192.0.2.1", slice_of(NULL, 0));
    assert_string_equal(answer_to(&site.one, 2)->text, "Username:");
    say(&site.one, 2, SASL_LOGIN, false, "192.0.2.1", SLICE("shop"));
    assert_string_equal(answer_to(&site.one, 3)->text, "Password:");
    say(&site.one, 2, SASL_LOGIN, false, "192.0.2.1", SLICE(PASSWORD));
    a = answer_to(&site.one, 4);
    assert_int_equal(a->result, WIRE_AUTH_ACCEPTED);
    assert_string_equal(a->text, "shop orders @shop.example");
}

static void others_are_refused(void **unused)
{
    static const struct slice wrong[] = {
        {"\0app\0correct-hors", 17}, {"\0apps\0" PASSWORD, 19}, {"\0app\0", 5}};
    unsigned count = 0;

    (void)unused;
    for (size_t i = 0; i < COUNT(wrong); i++) {
        say(&site.one, i + 1, SASL_PLAIN, true, "192.0.2.1", wrong[i]);
        assert_int_equal(answer_to(&site.one, ++count)->result, WIRE_AUTH_REFUSED);
        assert_int_equal(site.one.last.login, i + 1);
    }
    say(&site.one, 9, SASL_PLAIN, true, "192.0.2.1", SLICE("nonsense"));
    assert_int_equal(answer_to(&site.one, ++count)->result, WIRE_AUTH_MALFORMED);
}

static void who_is_a_user_shows_in_no_challenge(void **unused)
{
    (void)unused;
    say(&site.one, 1, SASL_SCRAM_SHA_256, true, "192.0.2.1", SLICE("n,,n=app,r=abc"));
    assert_int_equal(answer_to(&site.one, 1)->result, WIRE_AUTH_CHALLENGE);
    say(&site.one, 2, SASL_SCRAM_SHA_256, true, "192.0.2.1", SLICE("n,,n=stranger,r=abc"));
    assert_int_equal(answer_to(&site.one, 2)->result, WIRE_AUTH_CHALLENGE);
    assert_memory_equal(site.one.last.text, "r=abc", 5);
    assert_non_null(strstr(site.one.last.text, ",i=4096"));
}

static void a_changed_list_counts_at_once(void **unused)
{
    (void)unused;
    buf_clear(&site.users);
    add_user("new", "", "");
    auth_role.reload(&site.role, NULL);
    say(&site.one, 1, SASL_PLAIN, true, "192.0.2.1", SLICE("\0new\0" PASSWORD));
    assert_int_equal(answer_to(&site.one, 1)->result, WIRE_AUTH_ACCEPTED);
    say(&site.one, 2, SASL_PLAIN, true, "192.0.2.1", SLICE("\0app\0" PASSWORD));
    assert_int_equal(answer_to(&site.one, 2)->result, WIRE_AUTH_REFUSED);
}

/* ---- what is asked too much ----------------------------------------------------------------- */

/* Thousands of guesses are there before another client's login: it is judged after a few of them,
 * not after all. */
static void who_guesses_waits_for_itself(void **unused)
{
    unsigned turns = 0;

    (void)unused;
    for (unsigned i = 0; i < GUESSES; i++) {
        say(&site.one, i + 1, SASL_PLAIN, true, "192.0.2.66", SLICE("\0app\0guess"));
    }
    for (int i = 0; i < 20; i++) {
        turn(EVLOOP_ONCE | EVLOOP_NONBLOCK);
    }
    say(&site.other, 1, SASL_PLAIN, true, "192.0.2.1", SLICE("\0app\0" PASSWORD));
    for (; site.other.count == 0; turns++) {
        turn(EVLOOP_ONCE | EVLOOP_NONBLOCK);
    }
    assert_int_equal(site.other.last.result, WIRE_AUTH_ACCEPTED);
    assert_in_range((turns + 20) * AUTH_TURN, 0, GUESSES / 4);
}

static unsigned turns_until_the_answer(void)
{
    unsigned count = site.other.count, turns = 0;

    say(&site.other, count + 1, SASL_PLAIN, true, "192.0.2.1", SLICE("\0app\0" PASSWORD));
    for (; site.other.count == count; turns++) {
        turn(EVLOOP_ONCE | EVLOOP_NONBLOCK);
    }
    assert_int_equal(site.other.last.result, WIRE_AUTH_ACCEPTED);
    return turns;
}

/* Thousands guess, each from an address of its own: one from which the user has logged in before
 * does not wait for them all. */
static void who_guesses_from_everywhere_keeps_no_known_user_waiting(void **unused)
{
    char client[40];

    (void)unused;
    (void)turns_until_the_answer();
    for (unsigned i = 0; i < GUESSES; i++) {
        (void)snprintf(client, sizeof client, "10.0.%u.%u", i / 250, i % 250);
        say(&site.one, i + 1, SASL_PLAIN, true, client, SLICE("\0app\0guess"));
    }
    for (int i = 0; i < 20; i++) {
        turn(EVLOOP_ONCE | EVLOOP_NONBLOCK);
    }
    assert_in_range((turns_until_the_answer() + 20) * AUTH_TURN, 0, GUESSES / 4);
}

/* Hundreds guess again, each from an address of its own, and one that was never seen comes: it is
 * judged before them. */
static void who_has_guessed_keeps_no_new_user_waiting(void **unused)
{
    const unsigned guessers = 20 * AUTH_TURN;
    char client[40];

    (void)unused;
    for (unsigned i = 0; i < 2 * guessers; i++) {
        unsigned n = i % guessers;

        (void)snprintf(client, sizeof client, "10.0.%u.%u", n / 250, n % 250);
        say(&site.one, i + 1, SASL_PLAIN, true, client, SLICE("\0app\0guess"));
        if (i + 1 == guessers) { /* all have guessed once, and their answers are held back */
            for (unsigned k = 0; k < 2 * guessers / AUTH_TURN; k++) {
                turn(EVLOOP_ONCE | EVLOOP_NONBLOCK);
            }
        }
    }
    turn(EVLOOP_ONCE | EVLOOP_NONBLOCK);
    assert_in_range(turns_until_the_answer(), 0, 5);
}

static void a_login_that_is_given_up_is_forgotten(void **unused)
{
    (void)unused;
    for (unsigned i = 0; i <= AUTH_LOGINS_MAX; i++) {
        say(&site.one, i + 1, SASL_LOGIN, true, "192.0.2.1", slice_of(NULL, 0));
    }
    (void)answer_to(&site.one, AUTH_LOGINS_MAX + 1);
    assert_int_equal(site.one.busy, 1);
    wire_put_number(site.one.channel, WIRE_AUTH_END, 7);
    wire_put_number(site.one.channel, WIRE_AUTH_END, 7); /* may be late */
    say(&site.one, AUTH_LOGINS_MAX + 2, SASL_LOGIN, true, "192.0.2.1", slice_of(NULL, 0));
    assert_int_equal(answer_to(&site.one, AUTH_LOGINS_MAX + 2)->result, WIRE_AUTH_CHALLENGE);
    assert_int_equal(site.one.busy, 1);
}

static void a_receive_process_that_lies_is_cut_off_alone(void **unused)
{
    (void)unused;
    for (int lie = 0; lie < 6; lie++) {
        struct receiver r;

        connect_receiver(&r, 0);
        switch (lie) {
        case 0: /* no mechanism */
            say(&r, 1, 0, true, "192.0.2.1", SLICE("x"));
            break;
        case 1: /* two */
            say(&r, 1, SASL_PLAIN | SASL_LOGIN, true, "192.0.2.1", SLICE("x"));
            break;
        case 2: /* a login that goes on before it has begun */
            say(&r, 1, SASL_LOGIN, false, "192.0.2.1", SLICE("x"));
            break;
        case 3: /* one that begins twice */
            say(&r, 1, SASL_LOGIN, true, "192.0.2.1", slice_of(NULL, 0));
            say(&r, 1, SASL_LOGIN, true, "192.0.2.1", slice_of(NULL, 0));
            break;
        case 4: /* the next message before the answer */
            say(&r, 1, SASL_LOGIN, true, "192.0.2.1", SLICE("app"));
            say(&r, 1, SASL_LOGIN, false, "192.0.2.1", SLICE(PASSWORD));
            break;
        case 5: /* a frame for others */
            wire_put_empty(r.channel, WIRE_LOOK);
            break;
        }
        for (unsigned i = 0; r.channel != NULL; i++) {
            assert_in_range(i, 0, TURNS);
            turn(EVLOOP_ONCE);
        }
    }
    say(&site.other, 1, SASL_PLAIN, true, "192.0.2.1", SLICE("\0app\0" PASSWORD));
    assert_int_equal(answer_to(&site.other, 1)->result, WIRE_AUTH_ACCEPTED);
}

#define WITH_SITE(test) cmocka_unit_test_setup_teardown(test, open_site, close_site)

UNIT_MAIN(WITH_SITE(a_user_with_its_password_is_accepted_with_its_rights),
          WITH_SITE(others_are_refused), WITH_SITE(who_is_a_user_shows_in_no_challenge),
          WITH_SITE(a_changed_list_counts_at_once), WITH_SITE(who_guesses_waits_for_itself),
          WITH_SITE(who_guesses_from_everywhere_keeps_no_known_user_waiting),
          WITH_SITE(who_has_guessed_keeps_no_new_user_waiting),
          WITH_SITE(a_login_that_is_given_up_is_forgotten),
          WITH_SITE(a_receive_process_that_lies_is_cut_off_alone))
