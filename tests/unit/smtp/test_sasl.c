#include "unit.h"

#include <string.h>

#include "sasl.h"

/* The server knows one user. */
static bool find(void *arg, struct slice user, struct scram_secret *ret_secret)
{
    static const char salt[] = "a salt of the user";
    bool known = slice_equal(user, SLICE("ann@example.org"));

    (void)arg;
    scram_derive(known ? SLICE("pass, word=1") : SLICE("made up"), (const uint8_t *)salt,
                 sizeof salt, SCRAM_ROUNDS_MIN, ret_secret);
    return known;
}

struct talk {
    enum sasl_result result;
    bool client_agrees; /* it went through to the end, and the server has proven itself */
    char user[SASL_USER_MAX + 1];
    unsigned challenges;
};

/* A login of the client below to the server above, message by message. */
static struct talk log_in(enum sasl_mechanism mechanism, const char *user, const char *password)
{
    struct talk talk = {.result = SASL_CHALLENGE};
    struct sasl_client client;
    struct sasl_server server;
    struct buf message, challenge;
    struct slice given;
    bool goes_on = true;

    buf_init(&message, SASL_MESSAGE_MAX);
    buf_init(&challenge, SASL_MESSAGE_MAX);
    sasl_client_init(&client, mechanism, slice_string(user), slice_string(password),
                     SLICE("0123456789abcdef"));
    sasl_server_init(&server, mechanism, SLICE("fedcba9876543210"), find, NULL);
    if (!sasl_client_speaks_first(&client)) {
        talk.result = sasl_server_take(&server, NULL, &challenge);
        talk.challenges++;
    }
    while (talk.result == SASL_CHALLENGE && talk.challenges < 10) {
        buf_clear(&message);
        goes_on = sasl_client_answer(&client, buf_slice(&challenge), &message);
        if (!goes_on) {
            break;
        }
        buf_clear(&challenge);
        given = buf_slice(&message);
        talk.result = sasl_server_take(&server, &given, &challenge);
        talk.challenges += talk.result == SASL_CHALLENGE;
    }
    talk.client_agrees = goes_on && sasl_client_accepted(&client);
    (void)strcpy(talk.user, sasl_server_user(&server));
    sasl_client_fini(&client);
    sasl_server_fini(&server);
    buf_wipe(&message);
    buf_fini(&challenge);
    return talk;
}

static void every_mechanism_lets_the_right_one_in(void **unused)
{
    static const struct {
        enum sasl_mechanism mechanism;
        unsigned want_challenges;
    } cases[] = {{SASL_SCRAM_SHA_256, 2}, {SASL_PLAIN, 0}, {SASL_LOGIN, 2}};

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct talk talk = log_in(cases[i].mechanism, "ann@example.org", "pass, word=1");

        assert_int_equal(talk.result, SASL_ACCEPTED);
        assert_true(talk.client_agrees);
        assert_string_equal(talk.user, "ann@example.org");
        assert_int_equal(talk.challenges, cases[i].want_challenges);
    }
}

static void every_mechanism_keeps_others_out(void **unused)
{
    static const struct {
        const char *user, *password;
    } cases[] = {{"ann@example.org", "pass, word=2"},
                 {"ann@example.org", ""},
                 {"Ann@example.org", "pass, word=1"},
                 {"bob", "made up"},
                 {"bob", "pass, word=1"}};

    (void)unused;
    for (unsigned m = 1; m <= SASL_LOGIN; m <<= 1) {
        for (size_t i = 0; i < COUNT(cases); i++) {
            struct talk talk = log_in((enum sasl_mechanism)m, cases[i].user, cases[i].password);

            assert_int_equal(talk.result, SASL_REFUSED);
        }
    }
}

/* One message after the other; the result of the last. */
static enum sasl_result take(enum sasl_mechanism mechanism, size_t count,
                             const struct slice *messages)
{
    enum sasl_result result = SASL_CHALLENGE;
    struct sasl_server server;
    struct buf challenge;

    buf_init(&challenge, SASL_MESSAGE_MAX);
    sasl_server_init(&server, mechanism, SLICE("nonce"), find, NULL);
    for (size_t i = 0; i < count && result == SASL_CHALLENGE; i++) {
        result = sasl_server_take(&server, &messages[i], &challenge);
    }
    sasl_server_fini(&server);
    buf_fini(&challenge);
    return result;
}

static void odd_messages_are_refused(void **unused)
{
#define BYTES(text) slice_of(text, sizeof(text) - 1)
    static char long_name[SASL_USER_MAX + 1], long_password[SASL_PASSWORD_MAX + 1],
        long_message[SASL_MESSAGE_MAX + 1];
    const struct {
        enum sasl_mechanism mechanism;
        size_t count;
        struct slice messages[3];
        enum sasl_result want;
    } cases[] = {
        {SASL_PLAIN, 1, {BYTES("\0ann@example.org\0pass, word=1")}, SASL_ACCEPTED},
        {SASL_PLAIN, 1, {BYTES("ann@example.org\0ann@example.org\0pass, word=1")}, SASL_ACCEPTED},
        {SASL_PLAIN, 1, {BYTES("bob\0ann@example.org\0pass, word=1")}, SASL_REFUSED},
        {SASL_PLAIN, 1, {BYTES("\0ann@example.org\0pass, word=1\0")}, SASL_MALFORMED},
        {SASL_PLAIN, 1, {BYTES("\0ann@example.org")}, SASL_MALFORMED},
        {SASL_PLAIN, 1, {BYTES("ann@example.org")}, SASL_MALFORMED},
        {SASL_PLAIN, 1, {BYTES("\0\0x")}, SASL_MALFORMED},
        {SASL_PLAIN, 1, {BYTES("")}, SASL_MALFORMED},
        {SASL_PLAIN, 1, {BYTES("\0a\nb\0x")}, SASL_MALFORMED},
        {SASL_PLAIN, 1, {BYTES("\0a \0x")}, SASL_MALFORMED},
        {SASL_PLAIN, 1, {slice_of(long_message, sizeof long_message)}, SASL_MALFORMED},
        {SASL_LOGIN, 1, {BYTES("")}, SASL_MALFORMED},
        {SASL_LOGIN, 1, {slice_of(long_name, sizeof long_name)}, SASL_MALFORMED},
        {SASL_LOGIN,
         2,
         {BYTES("bob"), slice_of(long_password, sizeof long_password)},
         SASL_MALFORMED},
        {SASL_SCRAM_SHA_256, 1, {BYTES("n,,n=ann@example.org,r=x")}, SASL_CHALLENGE},
        {SASL_SCRAM_SHA_256, 1, {BYTES("y,,n=ann@example.org,r=x")}, SASL_CHALLENGE},
        {SASL_SCRAM_SHA_256, 1, {BYTES("p=tls-unique,,n=ann@example.org,r=x")}, SASL_MALFORMED},
        {SASL_SCRAM_SHA_256, 1, {BYTES("n,a=bob,n=ann@example.org,r=x")}, SASL_MALFORMED},
        {SASL_SCRAM_SHA_256, 1, {BYTES("n,,n=,r=x")}, SASL_MALFORMED},
        {SASL_SCRAM_SHA_256,
         2,
         {BYTES("n,,n=a,r=x"), BYTES("c=biws,r=xnonce,p=AAAA")},
         SASL_REFUSED},
        {SASL_SCRAM_SHA_256, 2, {BYTES("n,,n=a,r=x"), BYTES("")}, SASL_REFUSED},
    };

    (void)unused;
    memset(long_name, 'n', sizeof long_name);
    memset(long_password, 'p', sizeof long_password);
    memset(long_message, 'm', sizeof long_message);
    for (size_t i = 0; i < COUNT(cases); i++) {
        enum sasl_result result = take(cases[i].mechanism, cases[i].count, cases[i].messages);

        if (result != cases[i].want) {
            fail_msg("case %zu: %d, not %d", i, (int)result, (int)cases[i].want);
        }
    }
}

/* A server that does not know the password must not be believed when it says yes. */
static void a_server_has_to_prove_itself(void **unused)
{
    struct sasl_client client;
    struct buf message;

    (void)unused;
    buf_init(&message, SASL_MESSAGE_MAX);
    sasl_client_init(&client, SASL_SCRAM_SHA_256, SLICE("ann"), SLICE("secret"), SLICE("abc"));
    assert_true(sasl_client_answer(&client, SLICE(""), &message));
    assert_false(sasl_client_accepted(&client));
    buf_clear(&message);
    assert_true(sasl_client_answer(&client, SLICE("r=abcdef,s=c2FsdA==,i=4096"), &message));
    assert_false(sasl_client_accepted(&client));
    buf_clear(&message);
    assert_false(sasl_client_answer(
        &client, SLICE("v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="), &message));
    assert_false(sasl_client_accepted(&client));
    sasl_client_fini(&client);

    /* Asked once more than the mechanism has answers. */
    sasl_client_init(&client, SASL_PLAIN, SLICE("ann"), SLICE("secret"), SLICE("abc"));
    assert_true(sasl_client_answer(&client, SLICE(""), &message));
    assert_false(sasl_client_answer(&client, SLICE("more?"), &message));
    sasl_client_fini(&client);
    sasl_client_init(&client, SASL_LOGIN, SLICE("ann"), SLICE("secret"), SLICE("abc"));
    assert_true(sasl_client_answer(&client, SLICE("User Name"), &message));
    assert_true(sasl_client_answer(&client, SLICE(""), &message));
    assert_false(sasl_client_answer(&client, SLICE("Password:"), &message));
    sasl_client_fini(&client);
    buf_fini(&message);
}

static void names_of_mechanisms(void **unused)
{
    struct buf text;

    (void)unused;
    assert_int_equal(sasl_mechanisms(SLICE("GSSAPI  plain LOGIN XOAUTH2")),
                     SASL_PLAIN | SASL_LOGIN);
    assert_int_equal(sasl_mechanisms(SLICE("SCRAM-SHA-256-PLUS CRAM-MD5 PLAINX")), 0);
    assert_int_equal(sasl_mechanisms(SLICE("")), 0);
    assert_int_equal(sasl_best(SASL_PLAIN | SASL_LOGIN), SASL_PLAIN);
    assert_int_equal(sasl_best(SASL_MECHANISMS), SASL_SCRAM_SHA_256);
    assert_int_equal(sasl_best(0), 0);
    buf_init(&text, 100);
    sasl_put_mechanisms(&text, SASL_MECHANISMS);
    assert_string_equal(buf_cstr(&text), "SCRAM-SHA-256 PLAIN LOGIN");
    buf_fini(&text);
}

UNIT_MAIN(cmocka_unit_test(every_mechanism_lets_the_right_one_in),
          cmocka_unit_test(every_mechanism_keeps_others_out),
          cmocka_unit_test(odd_messages_are_refused),
          cmocka_unit_test(a_server_has_to_prove_itself), cmocka_unit_test(names_of_mechanisms))
