/* What levels, records and MTA-STS policies demand. */
#include "unit.h"

#include <stdio.h>
#include <string.h>

#include "tls_policy.h"

#define BYTES(text)                                                                                \
    {                                                                                              \
        text, sizeof(text) - 1                                                                     \
    }

static const struct tls_record record = {3, 1, 1, BYTES("0123456789abcdef0123456789abcdef")};

/* "dane base.test domain.test until", "verify a|b", "may", or why the host is not used. */
static const char *demanded(enum conf_tls level, enum conf_tls least, const struct tls_host *host)
{
    static const char *const kinds[] = {"none", "may", "encrypt", "verify", "dane"};
    static char text[200];
    struct tls_demand *d;
    struct buf out;

    buf_init(&out, sizeof text - 1);
    d = tls_demand_new(level, least, host, &out);
    if (d != NULL) {
        (void)buf_addf(&out, "%s", kinds[d->kind]);
        for (size_t i = 0; i < d->name_count; i++) {
            (void)buf_addf(&out, " %s", d->names[i]);
        }
        assert_string_equal(d->sni, d->kind == TLS_DEMAND_DANE ? host->base : host->name);
        assert_int_equal(d->record_count, d->kind == TLS_DEMAND_DANE ? host->record_count : 0);
        assert_int_equal(d->until.us, host->until.us);
    }
    snprintf(text, sizeof text, "%s", buf_cstr(&out));
    buf_fini(&out);
    tls_demand_unref(d);
    return text;
}

static struct tls_host host(enum dane_step dane, enum tls_sts sts)
{
    return (struct tls_host){.name = "mx.test",
                             .domain = "d.test",
                             .dane = dane,
                             .base = dane == DANE_MATCH ? "base.test" : NULL,
                             .records = &record,
                             .record_count = dane == DANE_MATCH,
                             .sts = sts,
                             .until = {12}};
}

#define NO_STS  "host mx.test is not used: it is no host of the domain's MTA-STS policy"
#define NO_TLSA "host mx.test is not used: its TLSA records cannot be looked up"
#define DANELESS                                                                                   \
    "host mx.test is not used: it has no TLSA records that can be used, by secure answers of the " \
    "DNS"

static void demands_follow_the_table(void **unused)
{
    static const struct {
        enum conf_tls level;
        const char *match, *encrypt, *none, *skip, *sts_allows, *sts_refuses, *match_sts_refuses;
    } rows[] = {
        {CONF_TLS_NONE, "none", "none", "none", "none", "none", "none", "none"},
        {CONF_TLS_MAY, "may", "may", "may", "may", "verify mx.test", NO_STS, NO_STS},
        {CONF_TLS_ENCRYPT, "encrypt", "encrypt", "encrypt", "encrypt", "verify mx.test", NO_STS,
         NO_STS},
        {CONF_TLS_VERIFY, "verify mx.test", "verify mx.test", "verify mx.test", "verify mx.test",
         "verify mx.test", "verify mx.test", "verify mx.test"},
        {CONF_TLS_SECURE, "verify d.test .d.test", "verify d.test .d.test", "verify d.test .d.test",
         "verify d.test .d.test", "verify d.test .d.test", "verify d.test .d.test",
         "verify d.test .d.test"},
        {CONF_TLS_DANE, "dane base.test d.test", "encrypt", "may", NO_TLSA, "verify mx.test",
         NO_STS, "dane base.test d.test"},
        {CONF_TLS_DANE_ONLY, "dane base.test d.test", DANELESS, DANELESS, NO_TLSA, DANELESS,
         DANELESS, "dane base.test d.test"},
    };

    (void)unused;
    for (size_t i = 0; i < COUNT(rows); i++) {
        const struct {
            enum dane_step dane;
            enum tls_sts sts;
            const char *want;
        } cases[] = {
            {DANE_MATCH, TLS_STS_NONE, rows[i].match},
            {DANE_MATCH, TLS_STS_ALLOWS,
             rows[i].level < CONF_TLS_DANE ? rows[i].sts_allows : rows[i].match},
            {DANE_MATCH, TLS_STS_REFUSES, rows[i].match_sts_refuses},
            {DANE_ENCRYPT, TLS_STS_NONE, rows[i].encrypt},
            {DANE_NONE, TLS_STS_NONE, rows[i].none},
            {DANE_SKIP, TLS_STS_NONE, rows[i].skip},
            {DANE_NONE, TLS_STS_ALLOWS, rows[i].sts_allows},
            {DANE_NONE, TLS_STS_REFUSES, rows[i].sts_refuses},
        };

        for (size_t k = 0; k < COUNT(cases); k++) {
            struct tls_host h = host(cases[k].dane, cases[k].sts);

            assert_string_equal(demanded(rows[i].level, CONF_TLS_NONE, &h), cases[k].want);
        }
    }
}

static void a_login_demands_no_less_than_it_needs(void **unused)
{
    static const struct {
        enum conf_tls level, least;
        enum dane_step dane;
        const char *want;
    } cases[] = {
        {CONF_TLS_NONE, CONF_TLS_VERIFY, DANE_NONE, "verify mx.test"},
        {CONF_TLS_MAY, CONF_TLS_ENCRYPT, DANE_NONE, "encrypt"},
        {CONF_TLS_ENCRYPT, CONF_TLS_MAY, DANE_NONE, "encrypt"},
        {CONF_TLS_SECURE, CONF_TLS_VERIFY, DANE_NONE, "verify d.test .d.test"},
        {CONF_TLS_MAY, CONF_TLS_SECURE, DANE_NONE, "verify d.test .d.test"},
        {CONF_TLS_DANE, CONF_TLS_VERIFY, DANE_NONE, "verify mx.test"},
        {CONF_TLS_DANE, CONF_TLS_VERIFY, DANE_ENCRYPT, "verify mx.test"},
        {CONF_TLS_DANE, CONF_TLS_VERIFY, DANE_MATCH, "dane base.test d.test"},
        {CONF_TLS_DANE, CONF_TLS_MAY, DANE_ENCRYPT, "encrypt"},
    };

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct tls_host h = host(cases[i].dane, TLS_STS_NONE);

        assert_string_equal(demanded(cases[i].level, cases[i].least, &h), cases[i].want);
    }
}

static void names_are_not_given_twice(void **unused)
{
    struct tls_host h = host(DANE_MATCH, TLS_STS_NONE);

    (void)unused;
    h.domain = "BASE.test";
    assert_string_equal(demanded(CONF_TLS_DANE, CONF_TLS_NONE, &h), "dane base.test");
    h.domain = "d.test";
    h.domain_alias = "real.test";
    assert_string_equal(demanded(CONF_TLS_DANE, CONF_TLS_NONE, &h),
                        "dane base.test d.test real.test");
    h.domain = "192.0.2.1"; /* nothing is below an address */
    assert_string_equal(demanded(CONF_TLS_SECURE, CONF_TLS_NONE, &h), "verify 192.0.2.1");
}

static struct tls_demand *with(const struct tls_record *records, size_t count)
{
    struct tls_host h = host(DANE_MATCH, TLS_STS_NONE);
    struct tls_demand *d;
    struct buf why;

    buf_init(&why, 200);
    h.records = records;
    h.record_count = count;
    d = tls_demand_new(CONF_TLS_DANE, CONF_TLS_NONE, &h, &why);
    assert_non_null(d);
    buf_fini(&why);
    return d;
}

static void records_are_compared_in_any_order(void **unused)
{
    static const struct tls_record ab[] = {{3, 1, 1, BYTES("a")}, {3, 1, 1, BYTES("b")}},
                                   ba[] = {{3, 1, 1, BYTES("b")}, {3, 1, 1, BYTES("a")}},
                                   aa[] = {{3, 1, 1, BYTES("a")}, {3, 1, 1, BYTES("a")}},
                                   ac[] = {{3, 1, 1, BYTES("a")}, {2, 1, 1, BYTES("b")}};
    static const struct {
        const struct tls_record *a, *b;
        size_t a_count, b_count;
        bool want;
    } cases[] = {
        {ab, ba, 2, 2, true},  {ab, ab, 1, 2, false}, {ab, aa, 2, 2, false},
        {aa, ab, 2, 2, false}, {ab, ac, 2, 2, false}, {ab, ab, 1, 1, true},
    };

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct tls_demand *a = with(cases[i].a, cases[i].a_count),
                          *b = with(cases[i].b, cases[i].b_count);

        assert_int_equal(tls_demand_same_records(a, b), cases[i].want);
        tls_demand_unref(a);
        tls_demand_unref(b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(demands_follow_the_table),
        cmocka_unit_test(a_login_demands_no_less_than_it_needs),
        cmocka_unit_test(names_are_not_given_twice),
        cmocka_unit_test(records_are_compared_in_any_order),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
