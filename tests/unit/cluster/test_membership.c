/* Members of a cluster over a model of a database (member_world.h), in virtual time. */
#include "unit.h"

#include <stdio.h>
#include <string.h>

#include "member_world.h"

#define S US_PER_S

static struct world w;

static int start(void **state)
{
    (void)state;
    world_init(&w, 1);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    world_fini(&w);
    return 0;
}

static void no_violation(void)
{
    if (w.violations > 0) {
        fail_msg("%u violations, the first: %s", w.violations, w.first);
    }
}

/* Run until so many nodes have all partitions among them, none more than `share`. */
static void run_until_shared(int nodes, int share)
{
    for (int i = 0; i < 600; i++) {
        int sum = 0, most = 0, has = 0;

        for (int k = 0; k < WORLD_NODES; k++) {
            int count =
                w.nodes[k].m != NULL && !membership_left(w.nodes[k].m) ? world_count(&w, k) : 0;

            sum += count;
            has += count > 0;
            most = count > most ? count : most;
        }
        if (sum == PARTITIONS && most == share && has == nodes) {
            return;
        }
        world_run(&w, S / 2);
    }
    fail_msg("the partitions are not shared among %d nodes", nodes);
}

static void the_first_node_takes_all(void **state)
{
    (void)state;
    world_start(&w, 0);
    world_run(&w, 3 * S);
    assert_int_equal(world_count(&w, 0), PARTITIONS);
    assert_int_equal(membership_number(w.nodes[0].m), 0);
    assert_int_equal(membership_incarnation(w.nodes[0].m), 1);
    assert_int_equal(partition_set_count(&w.nodes[0].mine), PARTITIONS);
    no_violation();
}

/* Each renewal takes about two seconds, so that it is always time for another. */
static void over_a_slow_database_a_node_gets_partitions(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 30; seed++) {
        world_fini(&w);
        world_init(&w, seed);
        w.latency_us = 500 * US_PER_MS;
        world_start(&w, 0);
        world_run(&w, 20 * S);
        assert_int_equal(world_count(&w, 0), PARTITIONS);
        no_violation();
    }
}

static void joining_and_leaving_moves_no_more_than_a_share(void **state)
{
    (void)state;
    world_start(&w, 0);
    run_until_shared(1, 256);
    w.moves = 0;
    world_start(&w, 1);
    run_until_shared(2, 128);
    assert_in_range(w.moves, 128, 129);
    w.moves = 0;
    world_start(&w, 2);
    run_until_shared(3, 86);
    assert_in_range(w.moves, 84, 87);
    w.moves = 0;
    membership_leave(w.nodes[1].m, world_clock(&w, 1));
    run_until_shared(2, 128);
    assert_in_range(w.moves, 84, 87);
    assert_true(membership_left(w.nodes[1].m));
    no_violation();
}

/* Eight after eight would take 128 / 8 times as long as each. */
static void long_deliveries_do_not_keep_other_partitions_from_moving(void **state)
{
    (void)state;
    w.drain_us = 10 * S;
    world_start(&w, 0);
    run_until_shared(1, 256);
    w.moves = 0;
    world_start(&w, 1);
    world_run(&w, 60 * S);
    assert_int_equal(world_count(&w, 0), 128);
    assert_int_equal(world_count(&w, 1), 128);
    assert_in_range(w.moves, 128, 129);
    no_violation();
}

static void a_killed_node_is_taken_over_and_comes_back(void **state)
{
    int64_t killed;

    (void)state;
    world_start(&w, 0);
    world_start(&w, 1);
    run_until_shared(2, 128);
    world_kill(&w, 0);
    killed = w.now;
    run_until_shared(1, 256);
    assert_in_range(w.now - killed, 3 * S, 8 * S); /* virtual */
    world_start(&w, 0);
    run_until_shared(2, 128);
    assert_int_equal(membership_number(w.nodes[0].m), 0);
    no_violation();
}

static void a_stopped_node_learns_that_it_was_given_up(void **state)
{
    int64_t incarnation;

    (void)state;
    world_start(&w, 0);
    world_start(&w, 1);
    run_until_shared(2, 128);
    incarnation = membership_incarnation(w.nodes[0].m);
    w.nodes[0].stopped_until = w.now + 60 * S;
    world_run(&w, 30 * S);
    assert_int_equal(world_count(&w, 1), PARTITIONS);
    world_run(&w, 32 * S);
    assert_int_equal(w.nodes[0].given_up, 1);
    run_until_shared(2, 128);
    assert_true(membership_incarnation(w.nodes[0].m) > incarnation);
    no_violation();
}

/* It renews each second, but looks at the others only when its database answers. */
static void a_database_that_was_away_takes_no_leases(void **state)
{
    (void)state;
    world_start(&w, 0);
    world_start(&w, 1);
    world_start(&w, 2);
    run_until_shared(3, 86);
    for (int i = 0; i < 3; i++) { /* as if all were: nothing is answered, then a moment apart */
        w.nodes[i].stopped_until = w.now + 60 * S + i * S / 2;
    }
    world_run(&w, 80 * S);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(w.nodes[i].given_up, 0);
    }
    no_violation();
}

static void an_operator_drains_a_node_and_lets_it_back(void **state)
{
    (void)state;
    world_start(&w, 0);
    world_start(&w, 1);
    run_until_shared(2, 128);
    w.db.node[1].state = NODE_DRAINING;
    run_until_shared(1, 256);
    assert_int_equal(world_count(&w, 1), 0);
    assert_int_equal(w.nodes[1].given_up, 0);
    world_kill(&w, 1); /* the word holds for its next life, too */
    world_start(&w, 1);
    world_run(&w, 10 * S);
    assert_int_equal(w.db.node[1].state, NODE_DRAINING);
    assert_int_equal(world_count(&w, 1), 0);
    w.db.node[1].state = NODE_UP;
    run_until_shared(2, 128);
    no_violation();
}

static void the_last_node_keeps_its_partitions_though_it_drains(void **state)
{
    (void)state;
    world_start(&w, 0);
    run_until_shared(1, 256);
    w.db.node[0].state = NODE_DRAINING;
    world_run(&w, 10 * S);
    assert_int_equal(world_count(&w, 0), PARTITIONS);
    no_violation();
}

static void a_second_daemon_of_the_same_name_is_refused(void **state)
{
    (void)state;
    world_start(&w, 0);
    run_until_shared(1, 256);
    w.nodes[1].config.name = memcpy(w.nodes[1].name, "node0", 6);
    world_start(&w, 1);
    world_run(&w, 10 * S);
    assert_int_equal(membership_health(w.nodes[1].m), MEMBERSHIP_UNWELCOME);
    assert_non_null(strstr(membership_words(w.nodes[1].m), "another daemon"));
    assert_int_equal(w.nodes[0].given_up, 0);
    no_violation();
}

static void of_two_daemons_that_are_told_to_take_over_one_remains(void **state)
{
    (void)state;
    world_start(&w, 0);
    run_until_shared(1, 256);
    w.nodes[1].config.name = memcpy(w.nodes[1].name, "node0", 6);
    w.nodes[1].config.take_over = true;
    world_start(&w, 1);
    world_run(&w, 20 * S);
    assert_int_equal(w.nodes[0].given_up, 1);
    assert_int_equal(membership_health(w.nodes[0].m), MEMBERSHIP_UNWELCOME);
    assert_int_equal(membership_number(w.nodes[1].m), 0);
    assert_int_equal(world_count(&w, 1), PARTITIONS); /* A2 is the operator's word here */
}

static void a_lease_whose_node_has_no_row_is_taken_over(void **state)
{
    (void)state;
    for (int p = 0; p < 9; p++) {
        w.db.lease[p].node = 50;
    }
    world_start(&w, 0);
    world_run(&w, 4 * S);
    assert_int_equal(world_count(&w, 0), PARTITIONS - 9);
    run_until_shared(1, 256);
    assert_int_equal(w.db.fence[50], 1);
    no_violation();
}

static void a_lease_that_was_changed_by_hand_ends_that_life(void **state)
{
    (void)state;
    world_start(&w, 0);
    run_until_shared(1, 256);
    w.db.lease[5].node = 50;
    world_run(&w, 20 * S);
    assert_int_equal(w.nodes[0].given_up, 1);
    run_until_shared(1, 256);
}

/* ---- what the database says ------------------------------------------------------------------ */

static void what_does_not_fit_stops_the_node_until_it_does(void **state)
{
    static const struct {
        const char *want, *commit, *standby, *system_id;
        int timeline;
        bool no_fsync, recovery, lacks;
    } cases[] = {
        {"fsync is off", "on", "*", "77", 1, true, false, false},
        {"no synchronous standby", "on", " ", "77", 1, false, false, false},
        {"neither on nor", "local", "*", "77", 1, false, false, false},
        {"is off", "off", "*", "77", 1, false, false, false},
        {"is a standby", "on", "*", "77", 1, false, true, false},
        {"old primary", "on", "*", "77", 2, false, false, false},
        {"another database server", "on", "*", "78", 1, false, false, false},
        {"lacks changes of node", "on", " ", "77", 1, false, false, true},
    };

    (void)state;
    world_start(&w, 0);
    run_until_shared(1, 256);
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct membership_view before = w.db.settings;
        uint64_t lapses;

        w.db.settings.fsync = !cases[i].no_fsync;
        w.db.settings.standby_names = slice_string(cases[i].standby);
        w.db.settings.synchronous_commit = slice_string(cases[i].commit);
        w.db.settings.in_recovery = cases[i].recovery;
        w.db.settings.cluster_timeline = cases[i].timeline;
        w.db.settings.system_id = slice_string(cases[i].system_id);
        w.db.settings.lacks_marker = cases[i].lacks;
        lapses = membership_lapses(w.nodes[0].m);
        world_run(&w, 2 * S);
        assert_int_equal(membership_lacks(w.nodes[0].m), cases[i].lacks);
        if (strstr(membership_words(w.nodes[0].m), cases[i].want) == NULL) {
            fail_msg("want %s, got %s", cases[i].want, membership_words(w.nodes[0].m));
        }
        assert_int_equal(membership_health(w.nodes[0].m), MEMBERSHIP_UNFIT);
        assert_true(mono_reached(membership_deadline(w.nodes[0].m), world_clock(&w, 0)));
        w.db.settings = before;
        world_run(&w, 2 * S);
        assert_int_equal(membership_health(w.nodes[0].m), MEMBERSHIP_FIT);
        assert_false(mono_reached(membership_deadline(w.nodes[0].m), world_clock(&w, 0)));
        assert_string_equal(membership_words(w.nodes[0].m), "");
        assert_int_equal(membership_lapses(w.nodes[0].m), lapses + 1);
    }
    assert_int_equal(w.nodes[0].given_up, 0);
}

static void a_server_alone_needs_no_standby_when_told_so(void **state)
{
    (void)state;
    w.nodes[0].config.needs_standby = false;
    w.db.settings.standby_names = SLICE("");
    w.db.settings.synchronous_commit = SLICE("local");
    world_start(&w, 0);
    run_until_shared(1, 256);
    w.db.settings.synchronous_commit = SLICE("off");
    world_run(&w, 2 * S);
    assert_non_null(strstr(membership_words(w.nodes[0].m), "synchronous_commit is off"));
}

static void an_old_primary_is_known_by_who_saw_the_new_one(void **state)
{
    (void)state;
    world_start(&w, 0);
    run_until_shared(1, 256);
    w.db.settings.timeline = 3;
    world_run(&w, 2 * S);
    assert_non_null(strstr(membership_words(w.nodes[0].m), "another timeline, 3"));
    assert_true(membership_is_settling(w.nodes[0].m));
    assert_true(mono_reached(membership_deadline(w.nodes[0].m), world_clock(&w, 0)));
    world_run(&w, 3 * S);
    assert_int_equal(membership_health(w.nodes[0].m), MEMBERSHIP_FIT);
    assert_false(membership_is_settling(w.nodes[0].m));
    w.db.settings.timeline = 1; /* and cluster.timeline is what it was, too */
    world_run(&w, 2 * S);
    assert_non_null(strstr(membership_words(w.nodes[0].m), "timeline is 1, another has had 3"));
}

static void a_server_with_consensus_is_not_asked(void **state)
{
    (void)state;
    w.db.settings = (struct membership_view){
        .format = 1, .min_format = 1, .partitions = PARTITIONS, .by_consensus = true};
    world_start(&w, 0);
    run_until_shared(1, 256);
}

static void other_tables_than_ours_are_refused(void **state)
{
    (void)state;
    world_start(&w, 0);
    run_until_shared(1, 256);
    w.db.settings.format = 2; /* the node stops in order, and stores the results until then */
    world_run(&w, 2 * S);
    assert_true(membership_is_outdated(w.nodes[0].m));
    assert_int_equal(membership_health(w.nodes[0].m), MEMBERSHIP_FIT);
    assert_false(mono_reached(membership_deadline(w.nodes[0].m), world_clock(&w, 0)));
    world_start(&w, 1);
    world_run(&w, 2 * S);
    assert_int_equal(membership_health(w.nodes[1].m), MEMBERSHIP_UNWELCOME);
    assert_non_null(strstr(membership_words(w.nodes[1].m), "format 2"));
    w.db.settings.format = 1;
    w.db.settings.partitions = 128;
    world_start(&w, 2);
    world_run(&w, 2 * S);
    assert_non_null(strstr(membership_words(w.nodes[2].m), "128 partitions"));
    assert_int_equal(membership_number(w.nodes[2].m), MEMBERSHIP_NOBODY);
}

/* Answers as no database of ours would give them, straight into one machine. */
static void rows_that_can_not_be_are_errors(void **state)
{
    const struct membership_node nodes[][2] = {
        {{.no = -1, .name = SLICE("a")}, {.no = 1, .name = SLICE("b")}},
        {{.no = 64, .name = SLICE("a")}, {.no = 1, .name = SLICE("b")}},
        {{.no = INT64_MIN, .name = SLICE("a")}, {.no = 1, .name = SLICE("b")}},
        {{.no = 1, .name = SLICE("a")}, {.no = 1, .name = SLICE("b")}},
        {{.no = 0, .name = SLICE("a")}, {.no = 1, .name = SLICE("a")}},
        {{.no = 0, .name = SLICE("")}, {.no = 1, .name = SLICE("b")}},
        {{.no = 0, .name = SLICE("a"), .state = 6}, {.no = 1, .name = SLICE("b")}},
        {{.no = 0, .name = SLICE("a"), .state = -1}, {.no = 1, .name = SLICE("b")}},
        {{.no = 0, .name = SLICE("a"), .beat = -1}, {.no = 1, .name = SLICE("b")}},
        {{.no = 0, .name = SLICE("a"), .incarnation = -1}, {.no = 1, .name = SLICE("b")}},
    };
    static const struct membership_lease bad[] = {
        {.p = -1, .node = -1, .wanted = -1},       {.p = 256, .node = -1, .wanted = -1},
        {.p = 8, .node = -1, .wanted = -1},        {.p = 7, .node = 64, .wanted = -1},
        {.p = 7, .node = -2, .wanted = -1},        {.p = 7, .node = -1, .wanted = 64},
        {.p = 7, .node = -1, .wanted = INT64_MAX}, {.p = 7, .epoch = -1, .node = -1, .wanted = -1},
    };
    struct membership_lease leases[PARTITIONS];
    struct membership *m = membership_new(&w.nodes[0].config);
    struct membership_action a;
    int64_t now = S;

    (void)state;
    for (size_t i = 0; i < COUNT(nodes) + COUNT(bad) + 1; i++) {
        struct membership_view v = w.db.settings;

        for (int p = 0; p < PARTITIONS; p++) {
            leases[p] = (struct membership_lease){.p = p, .node = -1, .wanted = -1};
        }
        v.leases = leases;
        v.lease_count = PARTITIONS;
        if (i < COUNT(nodes)) {
            v.nodes = nodes[i];
            v.node_count = 2;
        } else if (i < COUNT(nodes) + COUNT(bad)) {
            leases[7] = bad[i - COUNT(nodes)];
        } else {
            v.lease_count--;
        }
        now += S;
        assert_true(membership_next(m, (struct mono){now}, &a));
        assert_int_equal(a.type, MEMBERSHIP_LOOK);
        membership_answered(m, (struct mono){now},
                            &(struct membership_answer){.outcome = MEMBERSHIP_DONE, .view = &v});
        assert_int_equal(membership_health(m), MEMBERSHIP_UNFIT);
        assert_non_null(strstr(membership_words(m), "the table "));
    }
    membership_free(m);
}

/* ---- random histories ------------------------------------------------------------------------ */

static void history(uint64_t seed, enum world_flaw flaw)
{
    world_fini(&w);
    world_init(&w, seed);
    w.flaw = flaw;
    w.faults = true;
    w.loss = 0.02 * (double)(seed % 3);
    w.latency_us = seed % 4 == 0 ? 300000 : 20000;
    if (flaw == FLAW_SLOW_CLOCK) {
        w.nodes[0].rate = 0.5;
    }
    for (int i = 0; i < 3; i++) {
        world_start(&w, i);
    }
    world_run(&w, 120 * S);
}

static void whatever_happens_no_two_nodes_work_in_a_partition(void **state)
{
    uint64_t commits = 0;
    unsigned moves = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= 12; seed++) {
        history(seed, FLAW_NONE);
        if (w.violations > 0) {
            fail_msg("seed %llu: %u violations, the first: %s", (unsigned long long)seed,
                     w.violations, w.first);
        }
        commits += w.commits;
        moves += w.moves;
        w.faults = false; /* and when it is quiet again, all is shared */
        w.loss = 0;
        for (int k = 0; k < 60 * WORLD_NODES; k++) {
            int i = k % WORLD_NODES;

            if (w.nodes[i].m != NULL && membership_left(w.nodes[i].m)) {
                world_kill(&w, i);
            }
            if (w.nodes[i].m == NULL) {
                world_start(&w, i);
            }
            if (w.db.node[i].is_there && w.db.node[i].state == NODE_DRAINING) {
                w.db.node[i].state = NODE_UP;
            }
            world_run(&w, S / WORLD_NODES);
        }
        run_until_shared(WORLD_NODES, (PARTITIONS + WORLD_NODES - 1) / WORLD_NODES);
        no_violation();
    }
    assert_true(commits > 10000);
    assert_true(moves > 1000);
}

/* Each part of the protocol is needed: without it the histories are not safe. */
static void without_a_part_of_it_something_goes_wrong(void **state)
{
    (void)state;
    for (enum world_flaw flaw = FLAW_NO_FENCE; flaw <= FLAW_SLOW_CLOCK; flaw++) {
        unsigned violations = 0;

        for (uint64_t seed = 1; seed <= 200 && violations == 0; seed++) {
            history(seed, flaw);
            violations = w.violations;
        }
        if (violations == 0) {
            fail_msg("flaw %d was not noticed", flaw);
        }
    }
}

#define WORLD_TEST(f) cmocka_unit_test_setup_teardown(f, start, stop)

UNIT_MAIN(WORLD_TEST(the_first_node_takes_all),
          WORLD_TEST(over_a_slow_database_a_node_gets_partitions),
          WORLD_TEST(joining_and_leaving_moves_no_more_than_a_share),
          WORLD_TEST(long_deliveries_do_not_keep_other_partitions_from_moving),
          WORLD_TEST(a_killed_node_is_taken_over_and_comes_back),
          WORLD_TEST(a_stopped_node_learns_that_it_was_given_up),
          WORLD_TEST(a_database_that_was_away_takes_no_leases),
          WORLD_TEST(an_operator_drains_a_node_and_lets_it_back),
          WORLD_TEST(the_last_node_keeps_its_partitions_though_it_drains),
          WORLD_TEST(a_second_daemon_of_the_same_name_is_refused),
          WORLD_TEST(of_two_daemons_that_are_told_to_take_over_one_remains),
          WORLD_TEST(a_lease_whose_node_has_no_row_is_taken_over),
          WORLD_TEST(a_lease_that_was_changed_by_hand_ends_that_life),
          WORLD_TEST(what_does_not_fit_stops_the_node_until_it_does),
          WORLD_TEST(a_server_alone_needs_no_standby_when_told_so),
          WORLD_TEST(an_old_primary_is_known_by_who_saw_the_new_one),
          WORLD_TEST(a_server_with_consensus_is_not_asked),
          WORLD_TEST(other_tables_than_ours_are_refused),
          WORLD_TEST(rows_that_can_not_be_are_errors),
          WORLD_TEST(whatever_happens_no_two_nodes_work_in_a_partition),
          WORLD_TEST(without_a_part_of_it_something_goes_wrong))
