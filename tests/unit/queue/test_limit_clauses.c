#include "unit.h"

#include "conf.h"
#include "json.h"
#include "limit_clauses.h"
#include "mem.h"
#include "policy.h"
#include "rng.h"

#define LIMITS_MAX 12

/* All pairs of these patterns have a common part that a pattern describes. */
static const char *const targets[] = {
    "smtp/",
    "relay/",
    "*",
    "s*/",
    "*.test",
    "smtp/*.test",
    "*.dom.test",
    "relay/*.dom.test",
    "a.dom.test",
    "smtp/a.dom.test",
    "relay/a.dom.test",
    "big.example",
    "smtp/[192.0.2.7]:25",
    "[192.0.2.*]:25",
    "smtp/[*]:25",
    "b\xc3\xbc"
    "cher.test",
    "smtp/b\xc3\xbc"
    "cher.test",
    "smtp/mx[12].example",
    "smtp/[b\xc3\xbc"
    "cher.test]",
};

static const char *const hops[] = {
    "a.dom.test",         "b.dom.test",           "c.test",         "big.example",
    "other.example",      "[192.0.2.7]:25",       "[192.0.2.8]:25", "[b.test]:25",
    "xn--bcher-kva.test", "[xn--bcher-kva.test]", "mx[12].example", "mx1.example",
};

static struct conf *load(const char *text)
{
    static const struct conf_world world = {.hostname = "mail.example.org"};
    struct conf_problems problems;
    struct conf *conf = conf_load_text(slice_string(text), "test", "/", &world, &problems);

    assert_non_null(conf);
    conf_problems_fini(&problems);
    return conf;
}

static struct intervention *limit(const struct conf *conf, uint64_t number, const char *target,
                                  json_t *values)
{
    json_t *object =
        json_pack("{s:s, s:s, s:o}", "verb", "limit", "destination", target, "values", values);
    struct intervention *i;
    struct buf error;

    buf_init(&error, 1000);
    i = intervention_read(conf, object, (struct wall){1}, &error);
    assert_string_equal(buf_cstr(&error), "");
    assert_non_null(i);
    intervention_number(i, number);
    buf_fini(&error);
    json_decref(object);
    return i;
}

/* Computes the policy that limits in force give. */
static struct policy limited(const struct conf *conf, struct intervention *const *limits,
                             size_t count, const char *transport, const char *nexthop)
{
    bool used[LIMITS_MAX] = {false};
    struct policy p;

    policy_for(conf, slice_string(transport), slice_string(nexthop), &p);
    for (size_t n = 0; n < count; n++) {
        size_t lowest = count;

        for (size_t i = 0; i < count; i++) {
            if (!used[i] && (lowest == count || intervention_precedes(limits[lowest], limits[i]))) {
                lowest = i;
            }
        }
        used[lowest] = true;
        if (intervention_matches_destination(limits[lowest], transport, slice_string(nexthop))) {
            intervention_limit(limits[lowest], &p);
        }
    }
    return p;
}

static void put_clauses(struct buf *out, struct intervention *const *limits, size_t count)
{
    struct limit_clause *clauses;
    const char *name;
    json_t *value;
    size_t n;

    clauses = limit_clauses_new((const struct intervention *const *)limits, count, &n);
    for (size_t i = 0; i < n; i++) {
        assert_true(buf_addf(out, "%s\n   ", clauses[i].pattern));
        json_object_foreach(clauses[i].values, name, value)
        {
            assert_true(buf_addf(out, " %s=%s", name, json_string_value(value)));
        }
        assert_true(buf_add_string(out, "\n"));
    }
    limit_clauses_free(clauses, n);
}

static void free_limits(struct intervention **limits, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        intervention_unref(limits[i]);
    }
}

static void clauses_have_the_effect_of_the_limits(void **state)
{
    static const char *const names[] = {"destination_concurrency_limit", "maxthr",
                                        "initial_destination_concurrency"};
    static const char *const transports[] = {"smtp", "relay", "lmtp"};
    struct conf *none = load(""), *c;
    struct intervention *limits[LIMITS_MAX];
    struct rng rng;
    struct buf text;

    (void)state;
    rng_init(&rng, 1);
    buf_init(&text, 100000);
    for (int round = 0; round < 500; round++) {
        size_t count = 1 + (size_t)rng_below(&rng, LIMITS_MAX);

        for (size_t i = 0; i < count; i++) {
            const char *name = names[rng_below(&rng, COUNT(names))];

            limits[i] = limit(none, i + 1, targets[rng_below(&rng, COUNT(targets))],
                              json_pack("{s:o}", name, json_sprintf("%zu", 100 + i)));
        }
        buf_clear(&text);
        put_clauses(&text, limits, count);
        c = load(buf_cstr(&text));
        for (size_t t = 0; t < COUNT(transports); t++) {
            for (size_t h = 0; h < COUNT(hops); h++) {
                struct policy want = limited(none, limits, count, transports[t], hops[h]), got;

                policy_for(c, slice_string(transports[t]), slice_string(hops[h]), &got);
                if (got.maxthr != want.maxthr ||
                    got.destination_concurrency_limit != want.destination_concurrency_limit ||
                    got.initial_destination_concurrency != want.initial_destination_concurrency) {
                    fail_msg("%s/%s: %s", transports[t], hops[h], buf_cstr(&text));
                }
            }
        }
        conf_free(c);
        free_limits(limits, count);
    }
    buf_fini(&text);
    conf_free(none);
}

static void the_values_of_a_transport_remain_with_it(void **state)
{
    struct conf *none = load("");
    struct intervention *limits[] = {
        limit(none, 1, "smtp/", json_pack("{s:s, s:s}", "process_limit", "7", "maxthr", "3")),
        limit(none, 2, "a.test", json_pack("{s:s}", "destination_rate_delay", "1s")),
        limit(none, 3, "a.test", json_pack("{s:s}", "destination_rate_delay", "2s")),
        limit(none, 4, "*.test", json_pack("{s:s}", "maxthr", "9")),
    };
    struct buf text;

    (void)state;
    buf_init(&text, 10000);
    put_clauses(&text, limits, COUNT(limits));
    assert_string_equal(buf_cstr(&text), "smtp/a.test\n    maxthr=9 destination_rate_delay=2s\n"
                                         "*/a.test\n    maxthr=9 destination_rate_delay=2s\n"
                                         "smtp/*.test\n    maxthr=9\n"
                                         "*/*.test\n    maxthr=9\n"
                                         "smtp/*\n    process_limit=7 maxthr=3\n");
    free_limits(limits, COUNT(limits));
    buf_fini(&text);
    conf_free(none);
}

UNIT_MAIN(cmocka_unit_test(clauses_have_the_effect_of_the_limits),
          cmocka_unit_test(the_values_of_a_transport_remain_with_it))
