#include "unit.h"

#include <stdio.h>
#include <string.h>

#include "base64.h"
#include "scram.h"

/* The dialogue of RFC 7677, section 3. */
static void rfc_example(void **unused)
{
    struct scram client, server;
    struct scram_secret secret;
    struct buf salt, out, user;

    (void)unused;
    buf_init(&salt, 100);
    buf_init(&out, 1000);
    buf_init(&user, 100);
    scram_init(&client);
    scram_init(&server);

    scram_client_first(&client, SLICE("user"), SLICE("rOprNGfwEbeRWgbNEkqO"), &out);
    assert_string_equal(buf_cstr(&out), "n,,n=user,r=rOprNGfwEbeRWgbNEkqO");
    assert_true(scram_first_user(buf_slice(&out), &user));
    assert_string_equal(buf_cstr(&user), "user");

    assert_true(base64_get(SLICE("W22ZaJ0SNY7soEsUEjb6gQ=="), &salt));
    scram_derive(SLICE("pencil"), (const uint8_t *)buf_slice(&salt).ptr, buf_len(&salt), 4096,
                 &secret);
    struct buf answer;
    buf_init(&answer, 1000);
    assert_true(scram_server_first(&server, buf_slice(&out),
                                   SLICE("%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"), &secret, &answer));
    assert_string_equal(buf_cstr(&answer), "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
                                           "s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096");
    buf_clear(&out);
    assert_true(scram_client_final(&client, buf_slice(&answer), SLICE("pencil"), &out));
    assert_string_equal(buf_cstr(&out),
                        "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
                        "p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=");
    buf_clear(&answer);
    assert_true(scram_server_final(&server, buf_slice(&out), &answer));
    assert_string_equal(buf_cstr(&answer), "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=");
    assert_true(scram_client_verify(&client, buf_slice(&answer)));
    assert_false(
        scram_client_verify(&client, SLICE("v=7rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")));

    scram_fini(&client);
    scram_fini(&server);
    buf_fini(&answer);
    buf_fini(&salt);
    buf_fini(&out);
    buf_fini(&user);
}

/* Log in with a password; may it? */
static bool login(const char *user, const char *password, const struct scram_secret *secret,
                  bool cut_last)
{
    struct scram client, server;
    struct buf first, challenge, final, answer;
    bool ok;

    scram_init(&client);
    scram_init(&server);
    buf_init(&first, 3000);
    buf_init(&challenge, 3000);
    buf_init(&final, 3000);
    buf_init(&answer, 3000);
    scram_client_first(&client, slice_string(user), SLICE("abc"), &first);
    assert_true(scram_server_first(&server, buf_slice(&first), SLICE("def"), secret, &challenge));
    assert_true(scram_client_final(&client, buf_slice(&challenge), slice_string(password), &final));
    if (cut_last) {
        buf_truncate(&final, buf_len(&final) - 1);
    }
    ok = scram_server_final(&server, buf_slice(&final), &answer) &&
         scram_client_verify(&client, buf_slice(&answer));
    scram_fini(&client);
    scram_fini(&server);
    buf_fini(&first);
    buf_fini(&challenge);
    buf_fini(&final);
    buf_fini(&answer);
    return ok;
}

static void only_the_password_fits(void **unused)
{
    struct scram_secret secret, again;
    struct buf text;

    (void)unused;
    scram_derive(SLICE("right"), (const uint8_t *)"salt", 4, SCRAM_ROUNDS_MIN, &secret);
    buf_init(&text, 300);
    scram_print(&secret, &text);
    assert_true(scram_parse(buf_slice(&text), &again));
    assert_memory_equal(&secret, &again, sizeof secret);
    assert_true(login("a,b=c", "right", &again, false));
    assert_false(login("a,b=c", "Right", &again, false));
    assert_false(login("a,b=c", "", &again, false));
    assert_false(login("a,b=c", "right", &again, true));
    buf_fini(&text);
}

static void bad_secrets_are_refused(void **unused)
{
    static const char key[] = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    const char *const formats[] = {
        "4095,c2FsdA==,%s,%s",  "10000001,c2FsdA==,%s,%s", "-1,c2FsdA==,%s,%s",
        "4096,,%s,%s",          "4096,c2FsdA=,%s,%s",      "4096,c2FsdA==,%s",
        "4096,c2FsdA==,%s,%s,", "4096,c2F=dA==,%s,%s",     "4096,c2FsdA==,AA%s,%s",
    };
    struct scram_secret secret;
    char text[300];

    (void)unused;
    assert_true(snprintf(text, sizeof text, "4096,c2FsdA==,%s,%s", key, key) > 0);
    assert_true(scram_parse(slice_string(text), &secret));
    for (size_t i = 0; i < COUNT(formats); i++) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        assert_true(snprintf(text, sizeof text, formats[i], key, key) > 0);
#pragma GCC diagnostic pop
        if (scram_parse(slice_string(text), &secret)) {
            fail_msg("taken: %s", text);
        }
    }
}

static void odd_messages_are_refused(void **unused)
{
    static const char *const firsts[] = {
        "",
        "n",
        "n,,",
        "x,,n=u,r=x",
        "n,,n=u",
        "n,,n=u,r=",
        "n,,n=,r=x",
        "n,,m=ext,n=u,r=x",
        "n,,n=u=2,r=x",
        "p=tls-unique,,n=u,r=x",
        "n,a=other,n=u,r=x",
    };
    static const char *const challenges[] = {
        "",
        "r=abc",
        "r=abc,s=c2FsdA==,i=4096",
        "r=abcdef,s=,i=4096",
        "r=abcdef,s=c2FsdA==,i=1",
        "r=xbcdef,s=c2FsdA==,i=4096",
        "r=abcdef,s=c2FsdA==,i=99999999999999999999",
    };

    (void)unused;
    for (size_t i = 0; i < COUNT(firsts); i++) {
        struct buf user;

        buf_init(&user, 100);
        if (scram_first_user(slice_string(firsts[i]), &user)) {
            fail_msg("taken: %s", firsts[i]);
        }
        buf_fini(&user);
    }
    for (size_t i = 0; i < COUNT(challenges); i++) {
        struct scram client;
        struct buf out;

        scram_init(&client);
        buf_init(&out, 1000);
        scram_client_first(&client, SLICE("u"), SLICE("abc"), &out);
        buf_clear(&out);
        if (scram_client_final(&client, slice_string(challenges[i]), SLICE("p"), &out)) {
            fail_msg("taken: %s", challenges[i]);
        }
        scram_fini(&client);
        buf_fini(&out);
    }
}

UNIT_MAIN(cmocka_unit_test(rfc_example), cmocka_unit_test(only_the_password_fits),
          cmocka_unit_test(bad_secrets_are_refused), cmocka_unit_test(odd_messages_are_refused))
