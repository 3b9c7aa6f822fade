#include "unit.h"

#include <stdio.h>

#include "conf.h"
#include "param.h"

#define UE "\xc3\xbc" /* u umlaut */

static const struct conf_world world = {.hostname = "mail.example.org"};

static struct conf *load(const char *text)
{
    struct conf_problems problems;
    struct conf *conf = conf_load_text(slice_string(text), "test", "/", &world, &problems);

    assert_non_null(conf);
    conf_problems_fini(&problems);
    return conf;
}

static struct policy policy(const struct conf *conf, const char *transport, const char *nexthop)
{
    struct policy p;

    policy_for(conf, slice_string(transport), slice_string(nexthop), &p);
    return p;
}

static void values_come_in_the_order_of_precedence(void **state)
{
    struct conf *c = load("default_destination_concurrency_limit = 30\n"
                          "relay_destination_concurrency_limit = 7\n"
                          "smtp_connect_timeout = 9s\n"
                          "lmtp_connect_timeout = 8s\n"
                          "smtp/*.gmail.com destination_concurrency_limit=50 maxring=200\n"
                          "smtp/mx.gmail.com maxring=3\n"
                          "own/[ab].example destination_concurrency_limit=2\n"
                          "own/* agent=lmtp destination_concurrency_limit=4 size_limit=1M\n"
                          "own_destination_recipient_limit = 6\n");

    (void)state;
    assert_int_equal(policy(c, "smtp", "a").destination_concurrency_limit, 30);
    assert_int_equal(policy(c, "smtp", "a").connect_timeout_us, 9 * US_PER_S);
    assert_int_equal(policy(c, "lmtp", "a").connect_timeout_us, 8 * US_PER_S);
    assert_int_equal(policy(c, "relay", "a").destination_concurrency_limit, 7);
    assert_int_equal(policy(c, "local", "a").destination_concurrency_limit, 2);
    assert_int_equal(policy(c, "local", "a").destination_recipient_limit, 1);
    /* The first clause that matches, and no other. */
    assert_int_equal(policy(c, "smtp", "MX.gmail.com").maxring, 200);
    assert_int_equal(policy(c, "smtp", "mx.gmail.com").destination_concurrency_limit, 50);
    /* A narrower clause is silent where the transport's own speaks. */
    assert_int_equal(policy(c, "own", "a.example").agent, CONF_AGENT_LMTP);
    assert_int_equal(policy(c, "own", "a.example").destination_concurrency_limit, 2);
    assert_int_equal(policy(c, "own", "a.example").size_limit, 1 << 20);
    assert_int_equal(policy(c, "own", "c.example").destination_concurrency_limit, 4);
    assert_int_equal(policy(c, "own", "c.example").destination_recipient_limit, 6);
    assert_int_equal(policy(c, "own", "c.example").connect_timeout_us, 9 * US_PER_S);
    conf_free(c);
}

static void the_defaults_clause_lies_beneath_the_clauses_after_it(void **state)
{
    struct conf *c = load("smtp/before maxthr=1\n"
                          "* skew=2 queueonly\n"
                          "smtp/empty\n"
                          "smtp/next maxthr=2\n"
                          "*/* skew=3\n"
                          "smtp/after maxthr=-4 overfeed=-1\n");

    (void)state;
    assert_int_equal(policy(c, "smtp", "before").skew, 5);
    assert_false(policy(c, "smtp", "before").queueonly);
    assert_int_equal(policy(c, "smtp", "empty").skew, 2);
    assert_int_equal(policy(c, "smtp", "empty").maxthr, 2);
    assert_string_equal(policy_clause(c, policy(c, "smtp", "empty").ring), "smtp/empty");
    assert_string_equal(policy_clause(c, policy(c, "smtp", "next").ring), "smtp/next");
    assert_int_equal(policy(c, "smtp", "after").skew, 3);
    assert_true(policy(c, "smtp", "after").queueonly);
    assert_int_equal(policy(c, "smtp", "after").maxthr, 0);
    assert_int_equal(policy(c, "smtp", "after").overfeed, 0);
    assert_int_equal(policy(c, "smtp", "none").skew, 3);
    assert_int_equal(policy(c, "smtp", "none").ring, 0);
    assert_null(policy_clause(c, 0));
    conf_free(c);
}

static void transports_are_built_in_or_declared(void **state)
{
    static const char *const want[] = {"smtp",  "relay",   "lmtp",   "local", "error",
                                       "retry", "discard", "milter", "slow",  "prog"};
    struct conf *c = load("slow agent=smtp process_limit=3\n"
                          "slow_destination_rate_delay = 0.5s\n"
                          "prog/* agent=pipe command=\"/bin/true $user\" user=nobody\n");

    (void)state;
    assert_int_equal(conf_transport_count(c), COUNT(want));
    for (size_t i = 0; i < COUNT(want); i++) {
        assert_string_equal(conf_transport_at(c, i)->name, want[i]);
        assert_ptr_equal(conf_transport_find(c, slice_string(want[i])), conf_transport_at(c, i));
    }
    assert_null(conf_transport_find(c, SLICE("none")));
    assert_int_equal(conf_transport_at(c, 8)->policy.process_limit, 3);
    assert_int_equal(conf_transport_at(c, 8)->policy.destination_rate_delay_us, US_PER_S / 2);
    assert_int_equal(conf_transport_at(c, 9)->policy.agent, CONF_AGENT_PIPE);
    assert_string_equal(conf_transport_at(c, 9)->policy.command, "/bin/true $user");
    conf_free(c);
}

static void personal_mail_has_ten_turns_and_bulk_is_divided_by_default(void **state)
{
    struct conf *c = load("");

    (void)state;
    assert_int_equal(class_weight(c, SLICE("personal")), CLASS_WEIGHT_PERSONAL);
    assert_int_equal(class_weight(c, SLICE("bulk")), 1);
    assert_int_equal(class_weight(c, SLICE("reset")), 1);
    assert_int_equal(class_fairness(c, SLICE("bulk")), CONF_CLASS_FAIRNESS_SENDER);
    assert_int_equal(class_fairness(c, SLICE("personal")), CONF_CLASS_FAIRNESS_NONE);
    conf_free(c);

    c = load("class/personal weight=3 fairness=client\nclass/bulk weight=2\n"
             "class_fairness = sender-domain\n");
    assert_int_equal(class_weight(c, SLICE("personal")), 3);
    assert_int_equal(class_fairness(c, SLICE("personal")), CONF_CLASS_FAIRNESS_CLIENT);
    assert_int_equal(class_fairness(c, SLICE("bulk")), CONF_CLASS_FAIRNESS_SENDER_DOMAIN);
    conf_free(c);

    c = load("default_class = none\nclass_fairness = none\n");
    assert_int_equal(class_weight(c, SLICE("personal")), 1);
    assert_int_equal(class_fairness(c, SLICE("bulk")), CONF_CLASS_FAIRNESS_NONE);
    conf_free(c);
}

static void a_class_has_the_weight_of_the_first_clause_that_matches(void **state)
{
    struct conf *c = load("smtp/* maxthr=3\n"
                          "class/bulk weight=2\n"
                          "class/reset*\n"
                          "class/alarm weight=10\n"
                          "class/r* weight=5\n"
                          "*/b* maxthr=4\n");

    (void)state;
    assert_int_equal(class_weight(c, SLICE("bulk")), 2);
    assert_int_equal(class_weight(c, SLICE("reset-1")), 10);
    assert_int_equal(class_weight(c, SLICE("alarm")), 10);
    assert_int_equal(class_weight(c, SLICE("rest")), 5);
    assert_int_equal(class_weight(c, SLICE("other")), 1);
    assert_int_equal(class_weight(c, SLICE("")), 1);
    /* Neither sees the other's clauses. */
    assert_int_equal(policy(c, "class", "bulk").maxthr, 4);
    assert_int_equal(policy(c, "class", "reset").maxthr, 0);
    assert_null(conf_transport_find(c, SLICE("class")));
    conf_free(c);
    c = load("class/* weight=3\n");
    assert_int_equal(class_weight(c, SLICE("")), 3);
    conf_free(c);
}

static void assert_origin(const struct policy_origin *origins, const char *name, unsigned line,
                          const char *where)
{
    const struct policy_origin *from =
        &origins[param_find_in_clause(slice_string(name)) - param_table];

    if (where == NULL) {
        assert_null(from->file);
        return;
    }
    assert_string_equal(from->file, "test");
    assert_int_equal(from->line, line);
    assert_string_equal(from->name, where);
}

static void each_value_tells_where_it_stands(void **state)
{
    struct conf *c = load("default_destination_concurrency_limit = 30\n"
                          "smtp_destination_recipient_limit = 7\n"
                          "*/* interval=1m\n"
                          "\tskew=2\n"
                          "smtp/*.org\n"
                          "smtp/*.com maxthr=3\n"
                          "\tinterval = 5m\n"
                          "tube/a skew=3\n"
                          "tube/* agent=pipe command=\"x\" maxring=2\n"
                          "[ab]odd/* maxthr=1\n");
    struct policy_origin origins[PARAM_COUNT_MAX];
    struct policy p;

    (void)state;
    assert_true(policy_explain(c, SLICE("smtp"), SLICE("x.org"), &p, origins));
    assert_int_equal(p.maxthr, 3);
    assert_origin(origins, "maxthr", 6, "smtp/*.com"); /* an empty clause takes the next one's */
    assert_origin(origins, "interval", 7, "smtp/*.com");
    assert_origin(origins, "skew", 4, "*/*");
    assert_origin(origins, "destination_concurrency_limit", 1,
                  "default_destination_concurrency_limit");
    assert_origin(origins, "destination_recipient_limit", 2, "smtp_destination_recipient_limit");
    assert_origin(origins, "overfeed", 0, NULL);
    assert_true(policy_explain(c, SLICE("tube"), SLICE("a"), &p, origins));
    assert_origin(origins, "agent", 9, "tube/*");
    assert_origin(origins, "maxring", 9, "tube/*");
    assert_origin(origins, "skew", 8, "tube/a");
    assert_origin(origins, "interval", 3, "*/*");
    assert_true(policy_explain(c, SLICE("aodd"), SLICE("h"), &p, origins));
    assert_int_equal(p.maxthr, 1);
    assert_false(policy_explain(c, SLICE("codd"), SLICE("h"), &p, origins));
    conf_free(c);
}

static const char *shared_ring(const struct conf *c, const char *transport, const char *nexthop)
{
    const char *ring = policy_shared_ring(c, slice_string(transport), slice_string(nexthop));

    return ring != NULL ? ring : "none";
}

static void destinations_of_a_clause_share_its_ring(void **state)
{
    struct conf *c = load("smtp/own.big.example maxthr=2\n"
                          "smtp/none.big.example maxring=0\n"
                          "*/*.big.example maxring=5\n"
                          "smtp/first.example\n"
                          "smtp/second.example maxring=3\n"
                          "slow/a.example maxthr=1\n"
                          "slow/* agent=smtp maxring=2\n");

    (void)state;
    assert_string_equal(shared_ring(c, "smtp", "a.big.example"), "*/*.big.example");
    assert_string_equal(shared_ring(c, "smtp", "B.Big.example"), "*/*.big.example");
    assert_string_equal(shared_ring(c, "relay", "a.big.example"), "*/*.big.example");
    assert_string_equal(shared_ring(c, "smtp", "own.big.example"), "none");
    assert_string_equal(shared_ring(c, "smtp", "none.big.example"), "none");
    assert_string_equal(shared_ring(c, "smtp", "elsewhere.example"), "none");
    assert_string_equal(shared_ring(c, "smtp", "first.example"), "smtp/first.example");
    assert_string_equal(shared_ring(c, "smtp", "second.example"), "smtp/second.example");
    assert_string_equal(shared_ring(c, "slow", "a.example"), "slow/a.example"); /* declared so */
    assert_string_equal(shared_ring(c, "slow", "b.example"), "slow/*");
    conf_free(c);
    c = load("*/* maxring=2\nsmtp/*.big.example maxthr=5\nsmtp/none.example maxring=0\n");
    assert_string_equal(shared_ring(c, "smtp", "a.big.example"), "smtp/*.big.example");
    assert_string_equal(shared_ring(c, "smtp", "none.example"), "none");
    assert_string_equal(shared_ring(c, "smtp", "elsewhere.example"), "none"); /* of no clause */
    conf_free(c);
    c = load("smtp/*.big.example maxthr=5\n");
    assert_string_equal(shared_ring(c, "smtp", "a.big.example"), "none");
    conf_free(c);
}

/* What --as-config prints of limits, read back: each clause holds for its destination and for no
 * other. */
static void the_clause_of_a_destination_matches_it_alone(void **state)
{
    static const char *const odd[] = {
        "smtp/example.com",
        "smtp/[192.0.2.7]:25",
        "smtp/[IPv6:2001:DB8::1]:25",
        "smtp/[localhost]",
        "smtp/[mx.a.example]",
        "[192.0.2.9]:587",
        "unix:/run/a[1]/b{c,d}e",
        "B.example",
        "smtp/a[bc].example",
        "smtp/a{b,c}",
        "smtp/a\\.example",
        "slow/x/y[1].z",
        "smtp/[a.example",
        "lmtp/unix:/run/#x=y",
    };
    struct buf text;

    (void)state;
    buf_init(&text, 10000);
    for (size_t i = 0; i < COUNT(odd); i++) {
        clause_put_pattern(&text, slice_string(odd[i]));
        assert_true(buf_addf(&text, " maxthr=%zu\n", i + 1));
    }
    assert_true(buf_add_string(&text, "slow/* agent=pipe command=x\n"));
    struct conf *c = load(buf_cstr(&text));
    for (size_t i = 0; i < COUNT(odd); i++) {
        struct slice host = slice_string(odd[i]), transport = SLICE("smtp");

        if (!slice_starts(host, SLICE("unix:")) && slice_find(host, '/') < host.len) {
            transport = slice_cut(&host, '/');
        }
        struct policy p;
        policy_for(c, transport, host, &p);
        assert_int_equal(p.maxthr, i + 1);
    }
    conf_free(c);
    buf_fini(&text);
}

static void a_clause_of_all_transports_lies_over_the_clause_of_its_transport(void **state)
{
    struct conf *c = load("*/shop.example maxthr=3\n"
                          "local/* user=nobody maildir=/m/%u/\n"
                          "smtp/* maxthr=7 skew=2\n"
                          "slow/* agent=lmtp skew=4\n");

    (void)state;
    assert_string_equal(policy(c, "local", "shop.example").user, "nobody");
    assert_string_equal(policy(c, "local", "shop.example").maildir, "/m/%u/");
    assert_int_equal(policy(c, "local", "shop.example").maxthr, 3);
    assert_int_equal(policy(c, "smtp", "shop.example").maxthr, 3);
    assert_int_equal(policy(c, "smtp", "shop.example").skew, 2);
    assert_int_equal(policy(c, "slow", "shop.example").agent, CONF_AGENT_LMTP);
    assert_int_equal(policy(c, "slow", "shop.example").skew, 4);
    conf_free(c);
    c = load("smtp/shop.example maxthr=3\nsmtp/* maxthr=7 skew=2\n");
    assert_int_equal(policy(c, "smtp", "shop.example").skew, 5); /* a clause that names it: alone */
    conf_free(c);
}

static void a_clause_matches_every_form_of_a_name(void **state)
{
    static const char *const hops[] = {"[b" UE "cher.test]:26", "[xn--bcher-kva.test]:26",
                                       "[B" UE "cher.test.]:26"};
    char text[100];

    (void)state;
    for (size_t i = 0; i < COUNT(hops); i++) {
        (void)snprintf(text, sizeof text, "smtp/%s maxthr=3\nsmtp/*.%s maxthr=4\n", hops[i],
                       "b" UE "cher.test.");
        struct conf *c = load(text);

        for (size_t k = 0; k < COUNT(hops); k++) {
            assert_int_equal(policy(c, "smtp", hops[k]).maxthr, 3);
        }
        assert_int_equal(policy(c, "smtp", "mx.b" UE "cher.test").maxthr, 4);
        assert_int_equal(policy(c, "smtp", "mx.xn--bcher-kva.test").maxthr, 4);
        conf_free(c);
    }
}

UNIT_MAIN(cmocka_unit_test(a_clause_of_all_transports_lies_over_the_clause_of_its_transport),
          cmocka_unit_test(a_clause_matches_every_form_of_a_name),
          cmocka_unit_test(the_clause_of_a_destination_matches_it_alone),
          cmocka_unit_test(destinations_of_a_clause_share_its_ring),
          cmocka_unit_test(each_value_tells_where_it_stands),
          cmocka_unit_test(personal_mail_has_ten_turns_and_bulk_is_divided_by_default),
          cmocka_unit_test(a_class_has_the_weight_of_the_first_clause_that_matches),
          cmocka_unit_test(values_come_in_the_order_of_precedence),
          cmocka_unit_test(the_defaults_clause_lies_beneath_the_clauses_after_it),
          cmocka_unit_test(transports_are_built_in_or_declared))
