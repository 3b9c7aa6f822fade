/*
 * Where the database is: what a URL means to libpq, and what is refused.
 */
#include "unit.h"

#include <string.h>

#include "cluster_url.h"

static bool has_setting(const struct cluster_url *u, const char *sql)
{
    const char *const *s = u->target.settings;

    while (*s != NULL && strcmp(*s, sql) != 0) {
        s++;
    }
    return *s != NULL;
}

static void urls_are_read(void **state)
{
    static const struct {
        const char *url, *host, *port, *database, *user, *schema, *sslmode;
    } cases[] = {
        {"//u@/db?host=/tmp/x", "/tmp/x", "", "db", "u", "sluice", "prefer"},
        {"postgresql:///db", "/var/run/postgresql", "", "db", NULL, "sluice", "prefer"},
        {"//%2Frun%2Fpg/db", "/run/pg", "", "db", NULL, "sluice", "prefer"},
        {"//127.0.0.1:5433/db?schema=mail_2", "127.0.0.1", "5433", "db", NULL, "mail_2", "prefer"},
        {"//[::1]:5433/db", "::1", "5433", "db", NULL, "sluice", "prefer"},
        {"//127.0.0.1,127.0.0.2:1/db", "127.0.0.1,127.0.0.2", ",1", "db", NULL, "sluice", "prefer"},
        {"//127.0.0.1,127.0.0.2/db?port=7", "127.0.0.1,127.0.0.2", "7,7", "db", NULL, "sluice",
         "prefer"},
        {"///db?port=7,8&host=/a,/b", "/a,/b", "7,8", "db", NULL, "sluice", "prefer"},
        {"//192.0.2.7/db", "192.0.2.7", "", "db", NULL, "sluice", "verify-full"},
        {"//a%40b@127.0.0.1/d%2Fb?target_session_attrs=read-write", "127.0.0.1", "", "d/b", "a@b",
         "sluice", "prefer"},
        {"//127.0.0.1/?dbname=db&user=u&sslmode=require", "127.0.0.1", "", "db", "u", "sluice",
         "require"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct cluster_url u;
        struct buf error;

        buf_init(&error, 1000);
        if (!cluster_url_parse(&u, cases[i].url, CLUSTER_URL_QUEUE, &error) ||
            !cluster_url_resolve(&u, &error)) {
            fail_msg("%s: %s", cases[i].url, buf_cstr(&error));
        }
        assert_string_equal(u.target.host, cases[i].host);
        assert_string_equal(u.target.port, cases[i].port);
        assert_string_equal(u.target.database, cases[i].database);
        assert_string_equal(u.target.user != NULL ? u.target.user : "-",
                            cases[i].user != NULL ? cases[i].user : "-");
        assert_string_equal(u.schema, cases[i].schema);
        assert_string_equal(u.target.sslmode, cases[i].sslmode);
        assert_null(u.target.password);
        /* Without the second the first costs more than it saves. */
        assert_true(has_setting(&u, "SET enable_seqscan = off"));
        assert_true(has_setting(&u, "SET jit = off"));
        buf_fini(&error);
        cluster_url_fini(&u);
    }
}

static void what_is_wrong_with_a_url_is_said(void **state)
{
    static const struct {
        const char *url, *words;
    } cases[] = {
        {"db", "expected postgresql://"},
        {"//host", "expected postgresql://"},
        {"//host/", "no database"},
        {"//u:geheim@host/db", "spool_password_file"},
        {"//u@host/db?password=geheim", "spool_password_file"},
        {"//host/db?schema=Mail", "schema="},
        {"//host/db?schema=1a", "schema="},
        {"//host/db?schema=", "schema="},
        {"//host/db?schema=a;b", "schema="},
        {"//host:0/db", "no port"},
        {"//host:65536/db", "no port"},
        {"//host:x/db", "no port"},
        {"//a,b/db?port=1,2,3", "port="},
        {"//a,b,c/db?port=1,2", "port="},
        {"//[::1/db", "without its ]"},
        {"//a%2cb/db", "comma"},
        {"//h/d%zz", "%XX"},
        {"//h/d%00", "%XX"},
        {"//h%4/db", "%XX"},
        {"//h/db?x=1", "`x='"},
        {"//h/db?x", "NAME=VALUE"},
        {"//h/db?sslmode=require", "verify-full"},
        {"//h/db?sslmode=disable", "verify-full"},
        {"//127.example.org/db?sslmode=disable", "verify-full"},
        {"//127.0.0.1,h/db?sslmode=prefer", "verify-full"},
        {"//127.0.0.1/db?sslmode=of+course", "verify-full"},
        {"//h/db?target_session_attrs=any", "read-write"},
        {"//a,b,c,d,e,f,g,h,i/db", "at most 8"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct cluster_url u;
        struct buf error;

        buf_init(&error, 1000);
        if (cluster_url_parse(&u, cases[i].url, CLUSTER_URL_QUEUE, &error)) {
            fail_msg("%s was taken", cases[i].url);
        }
        if (strstr(buf_cstr(&error), cases[i].words) == NULL ||
            strstr(buf_cstr(&error), "geheim") != NULL) {
            fail_msg("%s: %s", cases[i].url, buf_cstr(&error));
        }
        buf_fini(&error);
        cluster_url_fini(&u);
    }
}

static void a_password_is_the_first_line(void **state)
{
    struct cluster_url u;
    struct buf error;

    (void)state;
    buf_init(&error, 1000);
    assert_true(cluster_url_parse(&u, "//u@127.0.0.1/db", CLUSTER_URL_QUEUE, &error));
    cluster_url_set_password(&u, SLICE("se cret\r\nmore\n"));
    assert_string_equal(u.target.password, "se cret");
    cluster_url_set_password(&u, SLICE("other"));
    assert_string_equal(u.target.password, "other");
    assert_null(strstr(u.text, "other"));
    cluster_url_set_password(&u, SLICE(""));
    assert_null(u.target.password);
    buf_fini(&error);
    cluster_url_fini(&u);
}

UNIT_MAIN(cmocka_unit_test(urls_are_read), cmocka_unit_test(what_is_wrong_with_a_url_is_said),
          cmocka_unit_test(a_password_is_the_first_line))
