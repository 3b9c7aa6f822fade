/*
 * The workload language: what it means, and what is said about what it does not.
 */
#include "workload.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "unit.h"

#define ERRORS_MAX 65536

static struct workload *parse(const char *text, char errors[ERRORS_MAX])
{
    struct workload *w;
    struct buf b;

    buf_init(&b, ERRORS_MAX - 1);
    w = workload_parse(slice_string(text), "w", &b);
    strcpy(errors, buf_cstr(&b));
    buf_fini(&b);
    return w;
}

static struct workload *need(const char *text)
{
    char errors[ERRORS_MAX];
    struct workload *w = parse(text, errors);

    assert_string_equal(errors, "");
    assert_non_null(w);
    return w;
}

static void every_key_of_a_site_has_its_meaning(void **unused)
{
    struct workload *w =
        need("site *.Example.ORG hosts=4 bad=1:refuse slots=20 backlog=5 full=busy "
             "setup=10ms latency=uniform(1s, 2s) recipient=1ms bandwidth=1M "
             "greylist=5m fail=1% defer=2.5% limit=600/h outage=2h..3h outage=5h..6h:mute # x");
    const struct sim_site_model *m = &w->sites[0].model;

    (void)unused;
    assert_int_equal(w->site_count, 1);
    assert_string_equal(w->sites[0].pattern, "*.example.org");
    assert_int_equal(m->hosts, 4);
    assert_int_equal(m->bad, 1);
    assert_int_equal(m->bad_down, SIM_DOWN_REFUSE);
    assert_int_equal(m->slots, 20);
    assert_int_equal(m->backlog, 5);
    assert_int_equal(m->full, SIM_DOWN_BUSY);
    assert_int_equal(m->setup.a, 10000);
    assert_int_equal(m->latency.form, DISTRIBUTION_UNIFORM);
    assert_int_equal(m->latency.b, 2000000);
    assert_int_equal(m->recipient.a, 1000);
    assert_int_equal(m->bandwidth, 1 << 20);
    assert_int_equal(m->greylist_us, 300000000);
    assert_true(m->fail == 0.01 && m->defer == 0.025);
    assert_true(m->limit == 600 && m->limit_us == 3600000000);
    assert_int_equal(m->outage_count, 2);
    assert_int_equal(m->outages[0].down, SIM_DOWN_HANG);
    assert_int_equal(m->outages[1].from_us, 5 * 3600000000);
    assert_int_equal(m->outages[1].until_us, 6 * 3600000000);
    assert_int_equal(m->outages[1].down, SIM_DOWN_MUTE);
    workload_free(w);
}

static void every_key_of_arrivals_has_its_meaning(void **unused)
{
    struct workload *w =
        need("arrivals news class=bulk at=8h count=2 recipients=uniform(1,10) size=20k "
             "to=a.example:3,B.example\n"
             "arrivals steady rate=600/m from=1m until=2h count=9 to=zipf(10,1,pop.example)\r\n"
             "arrivals tick class=Bulk every=1s to=uniform(4)\n"
             "\tduration 24h # a day\n");
    const struct workload_arrivals *a = w->arrivals;

    (void)unused;
    assert_int_equal(w->arrivals_count, 3);
    assert_int_equal(w->class_count, 2);
    assert_string_equal(w->classes[0], "bulk");
    assert_string_equal(w->classes[1], "steady");
    assert_int_equal(w->duration_us, 24 * 3600000000);

    assert_true(a[0].classed && !a[1].classed && a[2].classed);

    assert_int_equal(a[0].rhythm, WORKLOAD_BURST);
    assert_int_equal(a[0].from_us, 8 * 3600000000);
    assert_int_equal(a[0].count, 2);
    assert_int_equal(a[0].recipients.b, 10);
    assert_int_equal(a[0].size.a, 20480);
    assert_int_equal(a[0].to.count, 2);
    assert_string_equal(a[0].to.names[1], "b.example");
    assert_true(a[0].to.cumulative[0] == 3 && a[0].to.cumulative[1] == 4);

    assert_int_equal(a[1].rhythm, WORKLOAD_POISSON);
    assert_true(a[1].gap_us == 100000);
    assert_int_equal(a[1].from_us, 60000000);
    assert_int_equal(a[1].until_us, 2 * 3600000000);
    assert_int_equal(a[1].count, 9);
    assert_string_equal(a[1].to.names[9], "d10.pop.example");
    assert_true(fabs(a[1].to.cumulative[1] - 1.5) < 1e-12);

    assert_int_equal(a[2].rhythm, WORKLOAD_EVEN);
    assert_int_equal(a[2].class, 0);
    assert_int_equal(a[2].until_us, US_FOREVER);
    assert_string_equal(a[2].to.names[0], "d1.tick.example");
    assert_true(a[2].to.cumulative[3] == 4);
    workload_free(w);
}

static void the_first_site_that_matches_holds(void **unused)
{
    struct workload *w = need("site a.example latency=1s\nsite *.example latency=2s\n");

    (void)unused;
    assert_int_equal(workload_site_find(w, SLICE("a.example"))->model.latency.a, 1000000);
    assert_int_equal(workload_site_find(w, SLICE("b.example"))->model.latency.a, 2000000);
    assert_null(workload_site_find(w, SLICE("example.org")));
    workload_free(w);
}

static void domains_are_drawn_by_their_weights(void **unused)
{
    struct workload *w = need("arrivals a at=0s to=x.example:6,y.example:3,z.example\n");
    uint32_t counts[3] = {0};
    struct rng rng;

    (void)unused;
    rng_init(&rng, 1);
    for (int i = 0; i < 10000; i++) {
        counts[workload_draw_domain(&w->arrivals[0].to, &rng)]++;
    }
    assert_in_range(counts[0], 5850, 6150);
    assert_in_range(counts[1], 2850, 3150);
    assert_in_range(counts[2], 850, 1150);
    workload_free(w);
}

static void each_mistake_is_told_with_its_place(void **unused)
{
    static const struct {
        const char *in, *want;
    } cases[] = {
        {"sit x", "w:1:1: error: `sit': site, arrivals or duration is expected\n"},
        {"\n\n  site", "w:3:7: error: `': a domain or a shell pattern is expected\n"},
        {"site a slots", "w:1:8: error: `slots': KEY=VALUE is expected\n"},
        {"site a slots=", "w:1:8: error: `slots=': KEY=VALUE is expected\n"},
        {"site a slot=1", "w:1:8: error: `slot': a key (slots?) is expected\n"},
        {"site a zzzzzzzz=1", "w:1:8: error: `zzzzzzzz': a key is expected\n"},
        {"site a slots=1 slots=2", "w:1:16: error: `slots': each key once is expected\n"},
        {"site a slots=-1", "w:1:14: error: `-1': a whole number up to 4294967295 is expected\n"},
        {"site a hosts=65", "w:1:14: error: `65': a whole number up to 64 is expected\n"},
        {"site a hosts=0", "w:1:6: error: `a': at least one host (hosts=1) is expected\n"},
        {"site a bad=2", "w:1:6: error: `a': no more bad hosts than hosts are expected\n"},
        {"site a bad=1:sick", "w:1:14: error: `sick': refuse, hang, mute or busy is expected\n"},
        {"site a backlog=3", "w:1:6: error: `a': slots=N with backlog and full is expected\n"},
        {"site a fail=2", "w:1:13: error: `2': a percentage such as 2.5% is expected\n"},
        {"site a fail=101%", "w:1:13: error: `101%': a percentage such as 2.5% is expected\n"},
        {"site a fail=60% defer=60%",
         "w:1:6: error: `a': fail and defer of 100% together at most are expected\n"},
        {"site a limit=0.5/m",
         "w:1:6: error: `a': a limit of 1 or more (60/h rather than 0.1/m) is expected\n"},
        {"arrivals a at=1s to=x\narrivals A at=1s to=x",
         "w:2:10: error: `A': a name of its own is expected\n"},
        {"arrivals a at=1s to=uniform(60000)\narrivals b at=1s to=uniform(60000)",
         "w:2:10: error: `b': at most 100000 domains in all lines are expected\n"},
        {"site a outage=1h",
         "w:1:15: error: `1h': an outage such as 2h..3h or 2h..3h:refuse is expected\n"},
        {"site a outage=1h..30m", "w:1:19: error: `30m': an end after the beginning is expected\n"},
        {"site a latency=lognormal(1s,x)",
         "w:1:29: error: `x': a number from 0 to 10 is expected\n"},
        {"site [a", "w:1:6: error: `[a': a domain or a shell pattern is expected\n"},
        {"arrivals", "w:1:9: error: `': a name of letters, digits, `.', `-' and `_' is expected\n"},
        {"arrivals a to=x", "w:1:10: error: `a': one of at=, rate= and every= is expected\n"},
        {"arrivals a at=1s rate=1/s to=x",
         "w:1:10: error: `a': one of at=, rate= and every= is expected\n"},
        {"arrivals a at=1s", "w:1:10: error: `a': to=DOMAIN is expected\n"},
        {"arrivals a at=1s until=2s to=x",
         "w:1:10: error: `a': from= and until= with rate= or every= only are expected\n"},
        {"arrivals a every=0s to=x", "w:1:18: error: `0s': an interval above 0 is expected\n"},
        {"arrivals a rate=0/s to=x",
         "w:1:17: error: `0/s': a rate such as 10/s, 600/m, 100/h or 5/d is expected\n"},
        {"arrivals a rate=1/s from=2s until=1s to=x",
         "w:1:10: error: `a': an end after the beginning is expected\n"},
        {"arrivals a at=1s to=x,",
         "w:1:23: error: `': a name of letters, digits, `.', `-' and `_' is expected\n"},
        {"arrivals a at=1s to=x:0", "w:1:23: error: `0': a weight of 1 or more is expected\n"},
        {"arrivals a at=1s to=pareto(1)",
         "w:1:21: error: `pareto': zipf(COUNT,EXPONENT) or uniform(COUNT) is expected\n"},
        {"arrivals a at=1s to=zipf(0,1)",
         "w:1:26: error: `0': a population of 1 or more is expected\n"},
        {"arrivals a at=1s to=zipf(100001,1)",
         "w:1:26: error: `100001': a whole number up to 100000 is expected\n"},
        {"arrivals a at=1s to=zipf(5)",
         "w:1:21: error: `zipf(5)': zipf(COUNT,EXPONENT) is expected\n"},
        {"arrivals a at=1s to=zipf(5,1",
         "w:1:21: error: `zipf(5,1': a closing parenthesis is expected\n"},
        {"duration", "w:1:9: error: `': an interval such as 200ms, 5s or 2h is expected\n"},
        {"duration 1h 2h", "w:1:13: error: `2h': the end of the line is expected\n"},
        {"duration 1h\nduration 1h", "w:2:10: error: `1h': one duration is expected\n"},
        {"arrivals a rate=1/s to=x",
         "w: error: arrivals a never end: until=, count= or a duration is expected\n"},
        {"site x \x01\xff=1", "w:1:8: error: `\?\?': a key is expected\n"},
    };

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        char errors[ERRORS_MAX];
        struct workload *w = parse(cases[i].in, errors);

        assert_string_equal(errors, cases[i].want);
        assert_null(w);
    }
}

static void complaints_are_bounded(void **unused)
{
    char text[4096] = "", errors[ERRORS_MAX];
    size_t lines = 0;

    (void)unused;
    for (int i = 0; i < 100; i++) {
        strcat(text, "what is this\n");
    }
    assert_null(parse(text, errors));
    for (const char *c = errors; *c != '\0'; c++) {
        lines += *c == '\n';
    }
    assert_int_equal(lines, WORKLOAD_PROBLEMS_MAX);
}

static void a_file_that_is_not_there_is_told(void **unused)
{
    struct buf errors;

    (void)unused;
    buf_init(&errors, ERRORS_MAX);
    assert_null(workload_load("/nonexistent/w", &errors));
    assert_string_equal(buf_cstr(&errors), "/nonexistent/w: error: No such file or directory\n");
    buf_fini(&errors);
}

UNIT_MAIN(cmocka_unit_test(every_key_of_a_site_has_its_meaning),
          cmocka_unit_test(every_key_of_arrivals_has_its_meaning),
          cmocka_unit_test(the_first_site_that_matches_holds),
          cmocka_unit_test(domains_are_drawn_by_their_weights),
          cmocka_unit_test(each_mistake_is_told_with_its_place),
          cmocka_unit_test(complaints_are_bounded),
          cmocka_unit_test(a_file_that_is_not_there_is_told))
