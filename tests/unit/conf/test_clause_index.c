#include "unit.h"

#include <stdio.h>
#include <string.h>

#include "buf.h"
#include "clause_index.h"
#include "conf.h"
#include "conf_private.h"
#include "match.h"
#include "pool.h"
#include "rng.h"

/* Counted in this program: it is linked with --wrap. */
bool __wrap_glob_match(struct slice pattern, struct slice text);
bool __real_glob_match(struct slice pattern, struct slice text);
static unsigned long steps;

bool __wrap_glob_match(struct slice pattern, struct slice text)
{
    steps++;
    return __real_glob_match(pattern, text);
}

static bool matches(const struct clause *c, struct slice channel, struct slice host)
{
    return glob_match(c->lower_channel, channel) && nexthop_match(c->host, host);
}

static void the_first_that_matches_is_found_as_by_trying_all(void **state)
{
    static const char *const channels[] = {"a", "b", "*", "[ab]", "{a,c}", "a*", "class"};
    static const char *const hosts[] = {"*",   "x",     "*.x",   "y.x",    "*y.x",  "z.y.x",
                                        "?.x", "*.*.x", "[yz]*", "*{x,y}", "\\*.x", "*\\.x",
                                        "",    "-",     "[y.x]", "[y.?]"};
    static const char *const names[] = {"",    "x", ".x", "y.x", "z.y.x", "zy.x",
                                        "*.x", "-", "y",  "xx",  "[y.x]"};
    struct clause clauses[20];
    struct pool pool = {NULL};
    struct clause_index index;
    struct rng rng;

    (void)state;
    rng_init(&rng, 1);
    for (unsigned round = 0; round < 2000; round++) {
        size_t count = (size_t)rng_below(&rng, COUNT(clauses) + 1);

        for (size_t i = 0; i < count; i++) {
            clauses[i] = (struct clause){
                .lower_channel = slice_string(channels[rng_below(&rng, COUNT(channels))]),
                .host = slice_string(hosts[rng_below(&rng, COUNT(hosts))]),
                .is_class = rng_below(&rng, 4) == 0,
            };
        }
        clause_index_init(&index, clauses, count, &pool);
        for (size_t n = 0; n < COUNT(names); n++) {
            struct slice channel = slice_string(n % 2 == 0 ? "a" : "b");
            struct slice host = slice_string(names[n]);
            size_t below = (size_t)rng_below(&rng, count + 1), want = 0;
            bool is_class = rng_below(&rng, 2) == 0;

            while (want < below && (clauses[want].is_class != is_class ||
                                    !matches(&clauses[want], channel, host))) {
                want++;
            }
            assert_int_equal(clause_index_find(&index, is_class, channel, host, below, matches),
                             want);
        }
        clause_index_fini(&index);
    }
    pool_fini(&pool);
}

/* Patterns that are tried to load so many clauses, and to look as many destinations up. */
static unsigned long steps_for(const char *form, unsigned count)
{
    struct conf_problems problems;
    struct policy policy;
    struct conf *conf;
    struct buf text;
    char host[32];

    buf_init(&text, CONF_FILE_MAX);
    for (unsigned i = 0; i < count; i++) {
        assert_true(buf_addf(&text, form, i) && buf_add_byte(&text, '\n'));
    }
    steps = 0;
    conf = conf_load_text(buf_slice(&text), "x", "/", NULL, &problems);
    assert_non_null(conf);
    for (unsigned i = 0; i < count; i++) {
        (void)snprintf(host, sizeof host, "mx.d%u.test", i);
        policy_for(conf, SLICE("smtp"), slice_string(host), &policy);
    }
    conf_problems_fini(&problems);
    conf_free(conf);
    buf_fini(&text);
    return steps;
}

static void twice_as_many_clauses_cost_twice_as_many_steps(void **state)
{
    static const char *const forms[] = {
        "smtp/*.d%u.test agent=pipe command=x maxring=5",
        "smtp/mx.d%u.test maxring=5",
        "c%u/* agent=pipe command=x",
        "class/c%u weight=2",
    };

    (void)state;
    for (size_t i = 0; i < COUNT(forms); i++) {
        unsigned long one = steps_for(forms[i], 1000), two = steps_for(forms[i], 2000);

        print_message("%s: %lu for 1000, %lu for 2000\n", forms[i], one, two);
        assert_true(two <= 2 * one + 10);
        assert_true(two <= 2000 * 10);
    }
}

UNIT_MAIN(cmocka_unit_test(the_first_that_matches_is_found_as_by_trying_all),
          cmocka_unit_test(twice_as_many_clauses_cost_twice_as_many_steps))
