#include "unit.h"

#include <string.h>

#include "conf.h"
#include "gate.h"

#define NOW ((struct wall){INT64_C(1763643724) * US_PER_S})

static struct conf *load(const char *text)
{
    struct conf_world world = {.hostname = "mx.here.test"};
    struct conf_problems problems;
    struct conf *conf = conf_load_text(slice_string(text), "test", "/", &world, &problems);

    assert_non_null(conf);
    conf_problems_fini(&problems);
    return conf;
}

/* The message as "show" has it: two recipients at a.test, one at b.test, one that is done. */
static json_t *show(void)
{
    return json_pack("{s:[{s:i, s:s, s:s}, {s:i, s:s, s:s}, {s:i, s:s, s:s}, {s:i, s:s, s:s}]}",
                     "recipients", "n", 1, "address", "x@a.test", "state", "pending", "n", 2,
                     "address", "y@b.test", "state", "pending", "n", 3, "address", "z@a.test",
                     "state", "failed", "n", 4, "address", "z@A.test", "state", "pending");
}

static const json_t *gate_at(const json_t *answer, size_t group, size_t i)
{
    return json_array_get(
        json_object_get(json_array_get(json_object_get(answer, "groups"), group), "gates"), i);
}

static const char *text(const json_t *object, const char *member)
{
    const char *string = json_string_value(json_object_get(object, member));

    assert_non_null(string);
    return string;
}

static void pending_recipients_are_grouped_by_destination(void **state)
{
    struct spool_message m = {
        .id = {7}, .state = SPOOL_DEFERRED, .due = wall_after(NOW, 300 * US_PER_S)};
    struct conf *conf = load("defer_transports = smtp\n");
    json_t *answer = show(), *groups, *rcpts;

    (void)state;
    gate_group_on_disk(answer, conf, &m, NOW, NULL, NULL);
    groups = json_object_get(answer, "groups");
    rcpts = json_object_get(answer, "recipients");
    assert_int_equal(json_array_size(groups), 2);
    assert_string_equal(text(json_array_get(groups, 0), "nexthop"), "a.test");
    assert_int_equal(json_integer_value(json_object_get(json_array_get(groups, 0), "recipients")),
                     2);
    assert_null(json_object_get(json_array_get(rcpts, 2), "group"));
    assert_int_equal(json_integer_value(json_object_get(json_array_get(rcpts, 3), "group")), 0);
    assert_string_equal(text(gate_at(answer, 0, 0), "gate"), "not_due");
    assert_string_equal(text(gate_at(answer, 0, 1), "gate"), "defer_transports");
    assert_non_null(strstr(text(gate_at(answer, 1, 0), "advice"), "sluice flush smtp/b.test"));
    gate_sum_up(json_array_get(groups, 0));
    assert_string_equal(text(json_array_get(groups, 0), "binds"), "not_due");
    assert_true(json_number_value(json_object_get(json_array_get(groups, 0), "earliest")) ==
                (double)m.due.us / (double)US_PER_S);
    json_decref(answer);
    conf_free(conf);
}

static void each_state_has_its_gate_and_its_advice(void **state)
{
    static const struct {
        struct spool_message m;
        const char *gate, *advice;
        bool closed;
    } rows[] = {
        {{.state = SPOOL_HOLD, .reason = {"why", 3}}, "held", "sluice release ", true},
        {{.state = SPOOL_CORRUPT, .reason = {"why", 3}}, "corrupt", "sluice cat ", true},
        {{.state = SPOOL_DEFERRED, .parked = {"k", 1}}, "parked", "sluice why smtp/a.test", true},
        {{.state = SPOOL_DEFERRED, .due = {INT64_C(2000000000) * US_PER_S}},
         "not_due",
         "sluice flush smtp/a.test",
         true},
        {{.state = SPOOL_INCOMING, .due = {1}}, "not_due", NULL, false},
    };
    struct conf *conf = load("");

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        json_t *answer = show();
        const json_t *gate;

        gate_group_on_disk(answer, conf, &rows[i].m, NOW, NULL, NULL);
        gate = gate_at(answer, 0, 0);
        assert_string_equal(text(gate, "gate"), rows[i].gate);
        assert_int_equal(json_is_true(json_object_get(gate, "closed")), rows[i].closed);
        if (rows[i].advice != NULL) {
            assert_non_null(strstr(text(gate, "advice"), rows[i].advice));
        } else {
            assert_null(json_object_get(gate, "advice"));
        }
        json_decref(answer);
    }
    conf_free(conf);
}

/* A redirect takes all mail to c.test. */
static json_t *to_c(void *arg, const struct spool_message *m, struct slice address,
                    struct route *route)
{
    (void)arg;
    (void)m;
    (void)address;
    (void)strcpy(route->nexthop, "c.test");
    (void)strcpy(route->destination, "c.test");
    return NULL;
}

static void mail_that_a_change_of_routes_has_not_reached_yet_waits_for_that(void **state)
{
    static const struct {
        const char *parked;
        bool knows;
        const char *text; /* part of it */
    } rows[] = {
        {"smtp/a.test", true,
         "it was parked for smtp/a.test, and its route has changed: it goes to smtp/c.test"},
        {"!new smtp/a.test\tbulk", true,
         "it was parked for smtp/a.test, and its route has changed"},
        {"lmtp/c.test", true, "it was parked for lmtp/c.test, and its route has changed"},
        {"smtp/c.test", true, "it waits on disk until smtp/c.test can take more"},
        {"!new smtp/c.test\tbulk", true, "it waits on disk until smtp/c.test can take more"},
        {"smtp/c.test", false, "it waits on disk until smtp/a.test can take more"},
    };
    struct conf *conf = load("");

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct spool_message m = {.state = SPOOL_DEFERRED, .parked = slice_string(rows[i].parked)};
        json_t *answer = show();

        gate_group_on_disk(answer, conf, &m, NOW, rows[i].knows ? to_c : NULL, NULL);
        assert_string_equal(text(gate_at(answer, 0, 0), "gate"), "parked");
        assert_non_null(strstr(text(gate_at(answer, 0, 0), "text"), rows[i].text));
        json_decref(answer);
    }
    conf_free(conf);
}

/* A gate: its name, whether it is closed, and when it opens (0: that is not known). */
static json_t *gate_of(const char *name, bool closed, int until)
{
    json_t *gate = gate_new(name, closed);

    gate_times(gate, (struct wall){0}, (struct wall){until * US_PER_S});
    gate_say(gate, "advice", "advice of %s", name);
    return gate;
}

static void the_first_closed_gate_binds_and_the_latest_time_counts(void **state)
{
    static const struct {
        bool a_closed, b_closed, c_closed;
        int a, b, c; /* until */
        const char *binds;
        int earliest;
    } cases[] = {
        {false, true, true, 99, 10, 20, "c", 20}, /* nothing goes before 20 */
        {false, true, true, 99, 20, 10, "b", 20}, {true, true, true, 30, 20, 10, "a", 30},
        {true, true, true, 10, 0, 20, "c", 20},   {true, true, true, 0, 10, 20, "a", 20},
        {true, true, false, 10, 0, 99, "a", 10},  {false, false, true, 0, 0, 0, "c", 0},
    };
    json_t *group, *first;
    char advice[32];

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        group = json_pack("{s:[o, o, o]}", "gates", gate_of("a", cases[i].a_closed, cases[i].a),
                          gate_of("b", cases[i].b_closed, cases[i].b),
                          gate_of("c", cases[i].c_closed, cases[i].c));
        gate_sum_up(group);
        assert_string_equal(text(group, "binds"), cases[i].binds);
        (void)snprintf(advice, sizeof advice, "advice of %s", cases[i].binds);
        assert_string_equal(text(group, "advice"), advice);
        assert_int_equal((int)json_number_value(json_object_get(group, "earliest")),
                         cases[i].earliest);
        assert_int_equal(json_array_size(json_object_get(group, "gates")), 3);
        for (size_t k = 0;; k++) { /* it is told before all others that are closed */
            first = json_array_get(json_object_get(group, "gates"), k);
            if (json_is_true(json_object_get(first, "closed"))) {
                assert_string_equal(text(first, "gate"), cases[i].binds);
                break;
            }
        }
        json_decref(group);
    }
    group = json_pack("{s:[{s:s, s:b}]}", "gates", "gate", "a", "closed", 0);
    gate_sum_up(group);
    assert_null(json_object_get(group, "binds"));
    json_decref(group);
}

static void bytes_that_are_no_text_do_no_harm(void **state)
{
    json_t *gate = gate_new("held", true);

    (void)state;
    gate_say(gate, "text", "reason: %.*s", 3, "\xff\xfe!");
    assert_non_null(json_object_get(gate, "text"));
    json_decref(gate);
}

UNIT_MAIN(cmocka_unit_test(pending_recipients_are_grouped_by_destination),
          cmocka_unit_test(each_state_has_its_gate_and_its_advice),
          cmocka_unit_test(mail_that_a_change_of_routes_has_not_reached_yet_waits_for_that),
          cmocka_unit_test(the_first_closed_gate_binds_and_the_latest_time_counts),
          cmocka_unit_test(bytes_that_are_no_text_do_no_harm))
