/* What clauses mean to the scheduler: Postfix's parameters and ZMailer's words together. */
#include "tuning.h"

#include "unit.h"
#include "door.h"
#include "zmailer_dialect.h"

/* As programs do at their start. */
__attribute__((constructor)) static void know_dialects(void)
{
    zmailer_open_conf();
}

static struct conf *load(const char *text)
{
    static const struct conf_world world = {.hostname = "mail.example.org"};
    struct conf_problems problems;
    struct conf *conf = conf_load_text(slice_string(text), "test", "/", &world, &problems);

    assert_non_null(conf);
    conf_problems_fini(&problems);
    return conf;
}

static struct tuning_dest dest(const struct conf *conf, const char *transport, const char *nexthop)
{
    struct policy p;

    policy_for(conf, slice_string(transport), slice_string(nexthop), &p);
    return tuning_dest(conf, &p);
}

static struct sched_transport_policy transport(const struct conf *conf, const char *name)
{
    return tuning_transport(conf, &conf_transport_find(conf, slice_string(name))->policy);
}

static void without_a_clause_all_is_as_the_transport_says(void **state)
{
    struct conf *c = load("smtp/b.example size_limit=1M\n");

    (void)state;
    assert_false(dest(c, "smtp", "a.example").own);
    assert_true(dest(c, "smtp", "b.example").own);
    assert_int_equal(dest(c, "smtp", "b.example").policy.ring, 0); /* it limits nothing */
    assert_int_equal(dest(c, "smtp", "b.example").policy.depth, 1);
    assert_int_equal(dest(c, "smtp", "b.example").policy.window.max, 20);
    assert_int_equal(transport(c, "smtp").process_limit, 100);
    assert_int_equal(transport(c, "smtp").dest_recipient_limit, 50);
    conf_free(c);
}

static void a_ring_is_the_clause_that_matches(void **state)
{
    struct conf *c = load("*/* maxta=90\n"
                          "smtp/*.fi maxring=7 maxchannel=40\n"
                          "smtp/* maxring=0 maxchannel=-1\n");
    struct tuning_dest fi = dest(c, "smtp", "a.fi"), org = dest(c, "smtp", "a.org");

    (void)state;
    assert_int_equal(fi.policy.ring, dest(c, "smtp", "b.fi").policy.ring);
    assert_int_equal(fi.ring.ring_limit, 7);
    assert_int_equal(fi.ring.transport_limit, 40);
    assert_int_equal(fi.ring.total_limit, 90);
    assert_int_not_equal(org.policy.ring, 0);
    assert_int_not_equal(org.policy.ring, fi.policy.ring);
    assert_int_equal(org.ring.ring_limit, 0);
    assert_int_equal(org.ring.transport_limit, 0);
    assert_int_equal(org.ring.total_limit, 90);
    assert_int_equal(transport(c, "smtp").process_limit,
                     100); /* what maxchannel says is the ring's */
    conf_free(c);
}

static void agents_of_zmailer_have_zmailer_limits(void **state)
{
    struct conf *c = load("spool = postoffice:/po\n"
                          "hold/* command=\"hold\"\n"
                          "tube/one maxthr=0 overfeed=0 command=\"tube\"\n"
                          "tube/many maxthr=30 command=\"tube\"\n"
                          "tube/much maxthr=5000000000 overfeed=5000000000 command=\"tube\"\n"
                          "tube/narrow maxthr=30 destination_concurrency_limit=4 command=\"tube\"\n"
                          "tube/* command=\"tube\" destination_recipient_limit=3\n"
                          "slow/* command=\"slow\" process_limit=12\n");

    (void)state;
    assert_true(dest(c, "hold", "x").own);
    assert_int_equal(dest(c, "hold", "x").policy.window.max, 1);
    assert_int_equal(dest(c, "hold", "x").policy.depth, 151);
    assert_int_equal(dest(c, "tube", "one").policy.window.max, 1);
    assert_int_equal(dest(c, "tube", "one").policy.depth, 1);
    assert_int_equal(dest(c, "tube", "many").policy.window.max, 30);
    assert_int_equal(dest(c, "tube", "many").policy.window.initial, 30); /* no feedback */
    assert_int_equal(dest(c, "tube", "much").policy.window.max, UINT32_MAX);
    assert_int_equal(dest(c, "tube", "much").policy.depth, 10000);
    assert_int_equal(dest(c, "tube", "narrow").policy.window.max, 4);
    assert_int_equal(transport(c, "tube").dest_recipient_limit, 0);
    assert_int_equal(transport(c, "tube").process_limit, 0);
    assert_int_equal(transport(c, "slow").process_limit, 12);
    conf_free(c);
}

static void the_words_mean_the_same_to_other_agents(void **state)
{
    struct conf *c = load("smtp/few maxthr=3 overfeed=9\n"
                          "smtp/* maxthr=0 agent=smtp\n");

    (void)state;
    assert_int_equal(dest(c, "smtp", "few").policy.window.max, 3);
    assert_int_equal(dest(c, "smtp", "few").policy.window.initial, 5); /* which max bounds */
    assert_int_equal(dest(c, "smtp", "few").policy.depth, 1);
    assert_int_equal(dest(c, "smtp", "x").policy.window.max, 20);
    conf_free(c);
}

/* As in ZMailer: all agents at once from the first delivery on, and whatever fails. */
static void a_clause_can_do_without_feedback(void **state)
{
    struct conf *c =
        load("smtp/a maxthr=12 destination_concurrency_feedback=no\n"
             "smtp/b destination_concurrency_feedback=no\n"
             "smtp/c destination_concurrency_limit=0 destination_concurrency_feedback=no\n"
             "smtp/* maxthr=12\n"
             "relay_destination_concurrency_feedback = no\n");
    struct window_limits a = dest(c, "smtp", "a").policy.window;
    struct window w;

    (void)state;
    window_init(&w, &a);
    assert_int_equal(w.size, 12);
    for (int i = 0; i < 100; i++) {
        assert_false(window_failed(&w, &a));
    }
    assert_int_equal(w.size, 12);
    assert_int_equal(dest(c, "smtp", "b").policy.window.initial, 20);
    assert_int_equal(dest(c, "smtp", "c").policy.window.initial, 5); /* there is no limit */
    assert_int_equal(dest(c, "smtp", "d").policy.window.initial, 5);
    assert_int_equal(transport(c, "relay").window.initial, 20);
    conf_free(c);
}

UNIT_MAIN(cmocka_unit_test(without_a_clause_all_is_as_the_transport_says),
          cmocka_unit_test(a_ring_is_the_clause_that_matches),
          cmocka_unit_test(agents_of_zmailer_have_zmailer_limits),
          cmocka_unit_test(the_words_mean_the_same_to_other_agents),
          cmocka_unit_test(a_clause_can_do_without_feedback))
