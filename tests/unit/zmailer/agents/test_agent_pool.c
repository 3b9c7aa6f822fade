/*
 * Which agent works for whom. The test is the world around a pool: its agents are structs that do
 * what the test says, one job at a time.
 */
#include "unit.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "buf.h"
#include "agent_pool.h"
#include "heap.h"
#include "mem.h"
#include "rng.h"
#include "seeds.h"

#define AGENTS_MAX 64
#define JOBS_MAX   2000

struct agent {
    struct agent_place place;
    bool alive;
    struct job_place *job;
    char channel; /* of its ring */
};

static struct {
    struct agent_pool *pool;
    struct agent agents[AGENTS_MAX];
    struct job_place jobs[JOBS_MAX];
    size_t job_count, done, refused;
    struct mono now;
    struct buf story; /* what happened, in words */
    bool ends_late;   /* agents that are told to end need a word of the test's */
} world;

/* A channel is one letter, a host another: "ab" is host b of channel a. */
static struct agent_spec specs[26]; /* of each channel */

static struct agent_spec *spec(char channel)
{
    return &specs[channel - 'a'];
}

static int start(void **state)
{
    (void)state;
    memset(&world, 0, sizeof world);
    world.pool = agent_pool_new();
    agent_pool_configure(world.pool, 1000000, false);
    world.now = (struct mono){1000 * US_PER_S};
    buf_init(&world.story, 100000);
    for (size_t i = 0; i < COUNT(specs); i++) {
        specs[i] = (struct agent_spec){.clause = (uint32_t)i + 1,
                                       .start = SLICE("agent"),
                                       .maxthr = 1,
                                       .idle_max_us = 100 * US_PER_S};
    }
    return 0;
}

static void tell(const char *format, ...) __attribute__((format(printf, 1, 2)));

static void tell(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    assert_true(buf_addv(&world.story, format, args));
    va_end(args);
}

static void expect(const char *want)
{
    assert_string_equal(buf_cstr(&world.story), want);
    buf_clear(&world.story);
    agent_pool_audit(world.pool);
}

static struct agent_spec spec_of(const char *address)
{
    struct agent_spec r = *spec(address[0]);

    r.channel = slice_of(address, 1);
    r.host = slice_of(address + 1, 1);
    return r;
}

/* Jobs for these addresses, separated by blanks. */
static void add(const char *addresses)
{
    for (const char *at = addresses; *at != '\0'; at += at[2] == ' ' ? 3 : 2) {
        struct agent_spec r = spec_of(at);

        assert_true(world.job_count < JOBS_MAX);
        agent_pool_add(world.pool, &r, &world.jobs[world.job_count++]);
    }
}

static size_t number(const struct agent_place *a)
{
    return (size_t)(CONTAINER_OF(a, struct agent, place) - world.agents);
}

static void begin_job(struct agent_place *place, struct job_place *job)
{
    struct agent *a = CONTAINER_OF(place, struct agent, place);

    assert_null(a->job);
    assert_non_null(job);
    a->job = job;
    tell("%zu:%c%s ", number(place), a->channel, place->host);
}

static void new_agent(struct pool_thread *t)
{
    size_t i = 0;

    while (world.agents[i].alive) {
        i++;
        assert_true(i < AGENTS_MAX);
    }
    world.agents[i] = (struct agent){.alive = true};
    agent_pool_started(world.pool, t, &world.agents[i].place);
    world.agents[i].channel = agent_pool_thread_channel(t).ptr[0];
    tell("start%zu ", i);
}

/* It is gone; jobs of its thread stay. */
static void end(size_t i)
{
    struct pool_thread *t;

    assert_true(world.agents[i].alive);
    tell("end%zu ", i);
    world.agents[i].alive = false;
    (void)agent_pool_ended(world.pool, &world.agents[i].place, world.now, &t);
}

static void tell_end(struct agent_place *a)
{
    agent_pool_ending(world.pool, a);
    tell("told%zu ", number(a));
    if (!world.ends_late) {
        end(number(a));
    }
}

/* Do all that the pool wants done. */
static void work(void)
{
    struct pool_action action;

    for (agent_pool_next(world.pool, world.now, &action); action.type != POOL_NOTHING;
         agent_pool_next(world.pool, world.now, &action)) {
        switch (action.type) {
        case POOL_NOTHING:
            break;
        case POOL_GIVE:
            begin_job(action.agent, action.job);
            break;
        case POOL_START:
            new_agent(action.thread);
            break;
        case POOL_END:
            tell_end(action.agent);
            break;
        case POOL_REFUSE:
            tell("refused:%.*s ",
                 SLICE_ARGS(agent_pool_trouble(agent_pool_thread_ring(action.thread))));
            for (size_t left = agent_pool_thread_waiting(action.thread); left > 0; left--) {
                assert_non_null(agent_pool_take(world.pool, action.thread));
                world.refused++;
            }
        }
        agent_pool_audit(world.pool);
    }
}

/* Agent `i` says #hungry: its job is done, or it has come to life. What follows is its next job, or
 * rest. */
static void hungry(size_t i)
{
    struct agent_place *a = &world.agents[i].place;
    struct pool_action action = {.type = POOL_GIVE};

    world.done += world.agents[i].job != NULL;
    world.agents[i].job = NULL;
    (void)agent_pool_proven(a);
    action.job = agent_pool_feed(world.pool, a, 0);
    if (action.job == NULL) {
        agent_pool_leave(world.pool, a, &action);
    }
    if (action.type == POOL_GIVE) {
        begin_job(a, action.job);
    } else if (action.type == POOL_END) {
        tell_end(a);
    } else {
        agent_pool_rest(world.pool, a, world.now);
        tell("rest%zu ", i);
    }
    agent_pool_audit(world.pool);
}

static int stop(void **state)
{
    struct pool_thread *t;

    (void)state;
    for (size_t i = 0; i < world.job_count; i++) {
        if (world.jobs[i].thread != NULL) {
            agent_pool_remove(world.pool, &world.jobs[i]);
        }
    }
    for (size_t i = 0; i < AGENTS_MAX; i++) {
        if (world.agents[i].alive) {
            (void)agent_pool_ended(world.pool, &world.agents[i].place, world.now, &t);
        }
    }
    agent_pool_audit(world.pool);
    agent_pool_free(world.pool);
    buf_fini(&world.story);
    return 0;
}

/* ---- threads --------------------------------------------------------------------------------- */

/* As in the recording of smtp: done, told #idle, given the next job of that host. */
static void an_idle_agent_is_used_before_one_is_started(void **state)
{
    (void)state;
    add("ax");
    work();
    expect("start0 ");
    hungry(0);
    hungry(0);
    expect("0:ax rest0 ");
    add("ax");
    work();
    expect("0:ax ");
}

static void the_agent_that_knows_the_host_is_preferred(void **state)
{
    (void)state;
    add("ax ay");
    work();
    hungry(0);
    hungry(1);
    hungry(0);
    hungry(1);
    expect("start0 start1 0:ax 1:ay rest0 rest1 ");
    add("ax");
    work();
    expect("0:ax ");
    hungry(0);
    add("az"); /* nobody knows it: the one used last */
    work();
    expect("rest0 0:az ");
}

static void a_thread_gets_agents_up_to_maxthr(void **state)
{
    (void)state;
    spec('a')->maxthr = 3;
    add("ax");
    work();
    expect("start0 "); /* no more agents than jobs */
    add("ax ax ax ax");
    work();
    expect("start1 start2 ");
    hungry(1);
    hungry(0);
    hungry(2);
    hungry(1);
    hungry(0);
    expect("1:ax 0:ax 2:ax 1:ax 0:ax ");
    hungry(0);
    hungry(2);
    hungry(1);
    expect("rest0 rest2 rest1 ");
}

/* As in the recording with maxthr=3 and overfeed=2: one at a time, so that all have work. */
static void agents_of_one_thread_are_fed_one_at_a_time(void **state)
{
    (void)state;
    spec('a')->maxthr = 2;
    add("ax ax ax ax ax bx bx bx");
    work();
    hungry(0);
    hungry(1);
    expect("start0 start1 start2 0:ax 1:bx ");
    assert_null(agent_pool_feed(world.pool, &world.agents[0].place, 1));
    assert_non_null(agent_pool_feed(world.pool, &world.agents[1].place, 1));
}

static void a_stopped_thread_gives_no_agent_a_job_and_needs_no_more(void **state)
{
    struct agent_place *a = &world.agents[0].place, *b = &world.agents[1].place;

    (void)state;
    spec('a')->maxthr = 3;
    add("ax ax");
    work();
    hungry(0);
    hungry(1);
    expect("start0 start1 0:ax 1:ax ");
    agent_pool_stop(world.pool, a);
    agent_pool_stop(world.pool, a);
    add("ax ax ax");
    work();
    expect("");
    hungry(1);
    expect("rest1 ");
    assert_null(agent_pool_feed(world.pool, a, 0));
    agent_pool_go_on(world.pool, a);
    work();
    expect("1:ax ");
    agent_pool_stop(world.pool, b);
    work();
    expect("");
    agent_pool_go_on(world.pool, a); /* it is not the one that has stopped it this time */
    assert_null(agent_pool_feed(world.pool, a, 0));
    end(1); /* that one is gone */
    work();
    expect("end1 start1 ");
    assert_non_null(agent_pool_feed(world.pool, a, 0));
    agent_pool_audit(world.pool);
}

static void with_wakeuprestartonly_agents_come_at_the_begin_of_a_run(void **state)
{
    (void)state;
    spec('a')->maxthr = 3;
    spec('a')->wakeup_restart_only = true;
    add("ax ax");
    work();
    expect("start0 start1 ");
    add("ax ax ax ax");
    work();
    expect("");
    for (int i = 0; i < 4; i++) {
        hungry(0);
    }
    hungry(1);
    hungry(1);
    hungry(0);
    expect("0:ax 0:ax 0:ax 0:ax 1:ax 1:ax rest0 ");
    hungry(1);
    add("ax ax ax ax ax");
    work();
    expect("rest1 1:ax 0:ax start2 "); /* the next run */
}

static void an_agent_goes_on_to_another_thread_of_its_ring(void **state)
{
    (void)state;
    spec('a')->maxring = 1;
    add("ax ay az ay");
    work();
    for (int i = 0; i < 5; i++) {
        hungry(0);
    }
    expect("start0 0:ax 0:ay 0:ay 0:az rest0 ");
}

static void a_queueonly_ring_has_no_other_thread(void **state)
{
    (void)state;
    spec('a')->maxring = 1;
    spec('a')->queue_only = true;
    add("ax ay");
    work();
    hungry(0);
    expect("start0 0:ax ");
    hungry(0);
    expect("rest0 ");
    work();
    expect("0:ay "); /* it was asked for, and does not depend on the other */
}

static void a_host_bound_agent_serves_its_host_only(void **state)
{
    (void)state;
    spec('a')->host_bound = true;
    add("ax");
    work();
    hungry(0);
    hungry(0);
    add("ay");
    work();
    expect("start0 0:ax rest0 start1 ");
}

/* ---- limits ---------------------------------------------------------------------------------- */

static void idle_agents_of_others_make_room(void **state)
{
    static const char *const limits[] = {"maxta", "maxchannel"};

    (void)state;
    for (size_t i = 0; i < COUNT(limits); i++) {
        const char *others[] = {"bx by", "ax ay"}; /* another channel, another clause of it */

        for (size_t k = 0; k < COUNT(specs); k++) {
            specs[k].maxta = i == 0 ? 2 : 0;
            specs[k].maxchannel = i == 1 ? 2 : 0;
        }
        add(others[i]);
        work();
        for (size_t k = 0; k < 2; k++) {
            hungry(k);
            hungry(k);
        }
        buf_clear(&world.story);
        spec('a')->clause = 77;
        add("ax");
        work();
        expect("told0 end0 start0 "); /* the longest unused one */
        assert_int_equal(agent_pool_count(world.pool), 2);
        assert_int_equal(stop(NULL), 0);
        assert_int_equal(start(NULL), 0);
    }
}

static void an_agent_that_ends_keeps_its_place_until_it_is_gone(void **state)
{
    (void)state;
    world.ends_late = true;
    spec('a')->maxta = spec('b')->maxta = 1;
    add("ax");
    work();
    hungry(0);
    hungry(0);
    add("bx");
    work();
    expect("start0 0:ax rest0 told0 ");
    assert_int_equal(agent_pool_wake_at(world.pool, world.now).us,
                     US_FOREVER); /* an end wakes it */
    work();
    expect(""); /* help is near */
    end(0);
    work();
    expect("end0 start0 ");
}

static void a_busy_ring_starves_no_other(void **state)
{
    (void)state;
    spec('a')->maxta = spec('b')->maxta = 1;
    add("ax");
    for (int i = 0; i < 3 * POOL_RUN_MAX; i++) {
        add("ax");
    }
    work();
    hungry(0);
    add("by");
    work();
    for (int i = 0; i < POOL_RUN_MAX; i++) {
        assert_true(world.agents[0].alive && world.agents[0].channel == 'a');
        hungry(0);
    }
    work();
    assert_true(world.agents[0].alive && world.agents[0].channel == 'b');
    hungry(0);
    hungry(0); /* and back */
    work();
    assert_true(world.agents[0].alive && world.agents[0].channel == 'a');
}

static void a_busy_thread_starves_no_other_of_its_ring(void **state)
{
    (void)state;
    spec('a')->maxring = 1;
    for (int i = 0; i < 2 * POOL_RUN_MAX; i++) {
        add("ax");
    }
    work();
    hungry(0);
    for (int i = 0; i < POOL_RUN_MAX + 20; i++) { /* while nobody else waits it stays */
        hungry(0);
    }
    buf_clear(&world.story);
    add("ay");
    work();
    hungry(0);
    expect("0:ay ");
}

static void each_clause_compares_with_its_own_limit(void **state)
{
    (void)state;
    spec('a')->maxta = 1;
    spec('b')->maxta = 2;
    add("ax bx by ay");
    work();
    expect("start0 start1 ");
    assert_int_equal(agent_pool_count(world.pool), 2);
}

static void starts_per_second_are_limited(void **state)
{
    (void)state;
    agent_pool_configure(world.pool, 2, false);
    add("ax ay az");
    work();
    expect("start0 start1 ");
    assert_int_equal(agent_pool_wake_at(world.pool, world.now).us, world.now.us + US_PER_S);
    world.now = agent_pool_wake_at(world.pool, world.now);
    work();
    expect("start2 ");
    assert_int_equal(agent_pool_wake_at(world.pool, world.now).us, US_FOREVER);
}

static void a_frozen_pool_starts_nothing_and_goes_on(void **state)
{
    (void)state;
    add("ax");
    work();
    hungry(0);
    hungry(0);
    agent_pool_configure(world.pool, 2, true);
    add("ax by");
    work();
    expect("start0 0:ax rest0 0:ax ");
    agent_pool_configure(world.pool, 2, false);
    work();
    expect("start1 ");
}

/* ---- failing starts -------------------------------------------------------------------------- */

/* A start that ends before it has asked for work. */
static bool fail_start(size_t i)
{
    struct pool_thread *t;

    agent_pool_explain(world.agents[i].place.ring, SLICE("broken"));
    world.agents[i].alive = false;
    return agent_pool_ended(world.pool, &world.agents[i].place, world.now, &t);
}

static void failing_starts_are_held_longer_and_longer(void **state)
{
    int64_t hold_us = POOL_HOLD_US;

    (void)state;
    for (int i = 0; i < 15; i++) {
        add("ax ay");
        work();
        expect(i == 0 ? "start0 start1 " : "start0 start1 ");
        assert_int_equal(fail_start(0), i == 0); /* said once */
        assert_false(fail_start(1));
        work();
        expect("refused:broken refused:broken ");
        hold_us = i == 0 ? 2 * POOL_HOLD_US : 4 * hold_us; /* two failed each time */
        hold_us = hold_us < POOL_HOLD_MAX_US ? hold_us : POOL_HOLD_MAX_US;
        world.now = mono_after(world.now, hold_us - 1);
        add("az");
        work();
        expect("refused:broken ");
        world.now = mono_after(world.now, 1);
    }
    add("ax");
    work();
    assert_true(agent_pool_proven(&world.agents[0].place)); /* said once, too */
    assert_false(agent_pool_proven(&world.agents[0].place));
}

static void a_system_without_processes_is_asked_again_later(void **state)
{
    struct pool_action action;

    (void)state;
    add("ax");
    agent_pool_next(world.pool, world.now, &action);
    assert_int_equal(action.type, POOL_START);
    agent_pool_not_started(world.pool, world.now);
    work();
    expect("");
    world.now = agent_pool_wake_at(world.pool, world.now);
    work();
    expect("start0 ");
}

/* ---- time and configuration ------------------------------------------------------------------ */

static void agents_that_rest_too_long_are_swept_away(void **state)
{
    (void)state;
    spec('b')->idle_max_us = 200 * US_PER_S;
    add("ax bx");
    work();
    for (size_t i = 0; i < 2; i++) {
        hungry(i);
        hungry(i);
    }
    world.now = mono_after(world.now, 100 * US_PER_S - 1);
    assert_null(agent_pool_sweep(world.pool, world.now));
    world.now = mono_after(world.now, 1);
    assert_ptr_equal(agent_pool_sweep(world.pool, world.now), &world.agents[0].place);
    tell_end(&world.agents[0].place);
    assert_null(agent_pool_sweep(world.pool, world.now));
}

static void look(void *arg, struct slice channel, struct slice host, struct agent_spec *ret_spec)
{
    (void)arg;
    *ret_spec = specs[channel.ptr[0] - 'a'];
    ret_spec->channel = channel;
    ret_spec->host = host;
}

static void a_new_configuration_keeps_what_it_can(void **state)
{
    (void)state;
    add("ax bx cx cx");
    work();
    for (size_t i = 0; i < 3; i++) {
        hungry(i);
    }
    hungry(0);
    hungry(1);
    expect("start0 start1 start2 0:ax 1:bx 2:cx rest0 rest1 ");
    spec('a')->clause = 2; /* numbers change places */
    spec('b')->clause = 1;
    spec('b')->start = spec('c')->start = SLICE("another agent");
    agent_pool_reload(world.pool, look, NULL);
    agent_pool_audit(world.pool);
    assert_ptr_equal(agent_pool_sweep(world.pool, world.now), &world.agents[1].place);
    tell_end(&world.agents[1].place);
    assert_null(agent_pool_sweep(world.pool, world.now));
    work();
    expect("told1 end1 start1 "); /* the waiting job needs the other agent */
    add("ay");
    work();
    expect("0:ay "); /* the same agent, now of clause 2 */
    hungry(2);
    expect("told2 end2 "); /* it has done its last job */
    hungry(1);
    expect("1:cx ");
}

/* ---- anything -------------------------------------------------------------------------------- */

static bool within_limits(void)
{
    size_t per_channel[26] = {0}, total = 0;

    for (size_t i = 0; i < AGENTS_MAX; i++) {
        if (world.agents[i].alive) {
            total++;
            per_channel[world.agents[i].channel - 'a']++;
        }
    }
    for (size_t i = 0; i < 26; i++) {
        int64_t most = specs[i].maxchannel;

        if (most > 0 && per_channel[i] > (size_t)most) {
            return false;
        }
    }
    return total <= 8;
}

static void history(uint64_t seed)
{
    struct rng rng;

    rng_init(&rng, seed);
    assert_int_equal(start(NULL), 0);
    for (size_t i = 0; i < COUNT(specs); i++) {
        specs[i].maxta = 8;
        specs[i].maxchannel = (int64_t)rng_below(&rng, 4);
        specs[i].maxring = (int64_t)rng_below(&rng, 4);
        specs[i].maxthr = 1 + (int64_t)rng_below(&rng, 3);
        specs[i].host_bound = rng_below(&rng, 5) == 0;
        specs[i].wakeup_restart_only = rng_below(&rng, 3) == 0;
        specs[i].queue_only = rng_below(&rng, 5) == 0;
    }
    for (size_t step = 0; step < 100000 && world.done < JOBS_MAX; step++) {
        size_t i = rng_below(&rng, AGENTS_MAX);

        buf_clear(&world.story);
        world.now = mono_after(world.now, 10 * US_PER_MS);
        if (world.job_count < JOBS_MAX && rng_below(&rng, 4) == 0) {
            char address[3] = {(char)('a' + (char)rng_below(&rng, 6)),
                               (char)('a' + (char)rng_below(&rng, 4)), '\0'};
            add(address);
        }
        if (world.agents[i].alive && world.agents[i].place.state == AGENT_BUSY) {
            hungry(i);
        }
        work();
        assert_true(within_limits());
    }
    if (world.done != JOBS_MAX) {
        fail_msg("seed %" PRIu64 ": %zu jobs are done", seed, world.done);
    }
    assert_int_equal(stop(NULL), 0);
}

static void whatever_happens_limits_hold_and_all_is_done(void **state)
{
    (void)state;
    for_each_seed(1, 10, history);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, stop)

UNIT_MAIN(TEST(an_idle_agent_is_used_before_one_is_started),
          TEST(the_agent_that_knows_the_host_is_preferred), TEST(a_thread_gets_agents_up_to_maxthr),
          TEST(agents_of_one_thread_are_fed_one_at_a_time),
          TEST(a_stopped_thread_gives_no_agent_a_job_and_needs_no_more),
          TEST(with_wakeuprestartonly_agents_come_at_the_begin_of_a_run),
          TEST(an_agent_goes_on_to_another_thread_of_its_ring),
          TEST(a_queueonly_ring_has_no_other_thread), TEST(a_host_bound_agent_serves_its_host_only),
          TEST(idle_agents_of_others_make_room),
          TEST(an_agent_that_ends_keeps_its_place_until_it_is_gone),
          TEST(a_busy_ring_starves_no_other), TEST(a_busy_thread_starves_no_other_of_its_ring),
          TEST(each_clause_compares_with_its_own_limit), TEST(starts_per_second_are_limited),
          TEST(a_frozen_pool_starts_nothing_and_goes_on),
          TEST(failing_starts_are_held_longer_and_longer),
          TEST(a_system_without_processes_is_asked_again_later),
          TEST(agents_that_rest_too_long_are_swept_away),
          TEST(a_new_configuration_keeps_what_it_can),
          cmocka_unit_test(whatever_happens_limits_hold_and_all_is_done))
