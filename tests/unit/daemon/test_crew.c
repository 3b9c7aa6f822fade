/*
 * Which agent works for whom. The test is the world around a crew: its agents are structs that do
 * what the test says, one job at a time.
 */
#include "unit.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "buf.h"
#include "crew.h"
#include "heap.h"
#include "mem.h"
#include "rng.h"
#include "seeds.h"

#define AGENTS_MAX 64
#define JOBS_MAX   2000

struct agent {
    struct crew_agent place;
    bool alive;
    struct crew_job *job;
    char channel; /* of its ring */
};

static struct {
    struct crew *crew;
    struct agent agents[AGENTS_MAX];
    struct crew_job jobs[JOBS_MAX];
    size_t job_count, done, refused;
    struct mono now;
    struct buf story; /* what happened, in words */
    bool ends_late;   /* agents that are told to end need a word of the test's */
} world;

/* A channel is one letter, a host another: "ab" is host b of channel a. */
static struct crew_recipe recipes[26]; /* of each channel */

static struct crew_recipe *recipe(char channel)
{
    return &recipes[channel - 'a'];
}

static int start(void **state)
{
    (void)state;
    memset(&world, 0, sizeof world);
    world.crew = crew_new();
    crew_configure(world.crew, 1000000, false);
    world.now = (struct mono){1000 * US_PER_S};
    buf_init(&world.story, 100000);
    for (size_t i = 0; i < COUNT(recipes); i++) {
        recipes[i] = (struct crew_recipe){.clause = (uint32_t)i + 1,
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
    crew_audit(world.crew);
}

static struct crew_recipe recipe_of(const char *address)
{
    struct crew_recipe r = *recipe(address[0]);

    r.channel = slice_of(address, 1);
    r.host = slice_of(address + 1, 1);
    return r;
}

/* Jobs for these addresses, separated by blanks. */
static void add(const char *addresses)
{
    for (const char *at = addresses; *at != '\0'; at += at[2] == ' ' ? 3 : 2) {
        struct crew_recipe r = recipe_of(at);

        assert_true(world.job_count < JOBS_MAX);
        crew_add(world.crew, &r, &world.jobs[world.job_count++]);
    }
}

static size_t number(const struct crew_agent *a)
{
    return (size_t)(CONTAINER_OF(a, struct agent, place) - world.agents);
}

static void begin_job(struct crew_agent *place, struct crew_job *job)
{
    struct agent *a = CONTAINER_OF(place, struct agent, place);

    assert_null(a->job);
    assert_non_null(job);
    a->job = job;
    tell("%zu:%c%s ", number(place), a->channel, place->host);
}

static void new_agent(struct crew_thread *t)
{
    size_t i = 0;

    while (world.agents[i].alive) {
        i++;
        assert_true(i < AGENTS_MAX);
    }
    world.agents[i] = (struct agent){.alive = true};
    crew_started(world.crew, t, &world.agents[i].place);
    world.agents[i].channel = crew_thread_channel(t).ptr[0];
    tell("start%zu ", i);
}

/* It is gone; jobs of its thread stay. */
static void end(size_t i)
{
    struct crew_thread *t;

    assert_true(world.agents[i].alive);
    tell("end%zu ", i);
    world.agents[i].alive = false;
    (void)crew_ended(world.crew, &world.agents[i].place, world.now, &t);
}

static void tell_end(struct crew_agent *a)
{
    crew_ending(world.crew, a);
    tell("told%zu ", number(a));
    if (!world.ends_late) {
        end(number(a));
    }
}

/* Do all that the crew wants done. */
static void work(void)
{
    struct crew_action action;

    for (crew_next(world.crew, world.now, &action); action.type != CREW_NOTHING;
         crew_next(world.crew, world.now, &action)) {
        switch (action.type) {
        case CREW_NOTHING:
            break;
        case CREW_GIVE:
            begin_job(action.agent, action.job);
            break;
        case CREW_START:
            new_agent(action.thread);
            break;
        case CREW_END:
            tell_end(action.agent);
            break;
        case CREW_REFUSE:
            tell("refused:%.*s ", SLICE_ARGS(crew_trouble(crew_thread_ring(action.thread))));
            for (size_t left = crew_thread_waiting(action.thread); left > 0; left--) {
                assert_non_null(crew_take(world.crew, action.thread));
                world.refused++;
            }
        }
        crew_audit(world.crew);
    }
}

/* Agent `i` says #hungry: its job is done, or it has come to life. What follows is its next job, or
 * rest. */
static void hungry(size_t i)
{
    struct crew_agent *a = &world.agents[i].place;
    struct crew_action action = {.type = CREW_GIVE};

    world.done += world.agents[i].job != NULL;
    world.agents[i].job = NULL;
    (void)crew_proven(a);
    action.job = crew_feed(world.crew, a, 0);
    if (action.job == NULL) {
        crew_leave(world.crew, a, &action);
    }
    if (action.type == CREW_GIVE) {
        begin_job(a, action.job);
    } else if (action.type == CREW_END) {
        tell_end(a);
    } else {
        crew_rest(world.crew, a, world.now);
        tell("rest%zu ", i);
    }
    crew_audit(world.crew);
}

static int stop(void **state)
{
    struct crew_thread *t;

    (void)state;
    for (size_t i = 0; i < world.job_count; i++) {
        if (world.jobs[i].thread != NULL) {
            crew_remove(world.crew, &world.jobs[i]);
        }
    }
    for (size_t i = 0; i < AGENTS_MAX; i++) {
        if (world.agents[i].alive) {
            (void)crew_ended(world.crew, &world.agents[i].place, world.now, &t);
        }
    }
    crew_audit(world.crew);
    crew_free(world.crew);
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
    recipe('a')->maxthr = 3;
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
    recipe('a')->maxthr = 2;
    add("ax ax ax ax ax bx bx bx");
    work();
    hungry(0);
    hungry(1);
    expect("start0 start1 start2 0:ax 1:bx ");
    assert_null(crew_feed(world.crew, &world.agents[0].place, 1));
    assert_non_null(crew_feed(world.crew, &world.agents[1].place, 1));
}

static void a_stopped_thread_gives_no_agent_a_job_and_needs_no_more(void **state)
{
    struct crew_agent *a = &world.agents[0].place, *b = &world.agents[1].place;

    (void)state;
    recipe('a')->maxthr = 3;
    add("ax ax");
    work();
    hungry(0);
    hungry(1);
    expect("start0 start1 0:ax 1:ax ");
    crew_stop(world.crew, a);
    crew_stop(world.crew, a);
    add("ax ax ax");
    work();
    expect("");
    hungry(1);
    expect("rest1 ");
    assert_null(crew_feed(world.crew, a, 0));
    crew_go_on(world.crew, a);
    work();
    expect("1:ax ");
    crew_stop(world.crew, b);
    work();
    expect("");
    crew_go_on(world.crew, a); /* it is not the one that has stopped it this time */
    assert_null(crew_feed(world.crew, a, 0));
    end(1); /* that one is gone */
    work();
    expect("end1 start1 ");
    assert_non_null(crew_feed(world.crew, a, 0));
    crew_audit(world.crew);
}

static void with_wakeuprestartonly_agents_come_at_the_begin_of_a_run(void **state)
{
    (void)state;
    recipe('a')->maxthr = 3;
    recipe('a')->wakeup_restart_only = true;
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
    recipe('a')->maxring = 1;
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
    recipe('a')->maxring = 1;
    recipe('a')->queue_only = true;
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
    recipe('a')->host_bound = true;
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

        for (size_t k = 0; k < COUNT(recipes); k++) {
            recipes[k].maxta = i == 0 ? 2 : 0;
            recipes[k].maxchannel = i == 1 ? 2 : 0;
        }
        add(others[i]);
        work();
        for (size_t k = 0; k < 2; k++) {
            hungry(k);
            hungry(k);
        }
        buf_clear(&world.story);
        recipe('a')->clause = 77;
        add("ax");
        work();
        expect("told0 end0 start0 "); /* the longest unused one */
        assert_int_equal(crew_count(world.crew), 2);
        assert_int_equal(stop(NULL), 0);
        assert_int_equal(start(NULL), 0);
    }
}

static void an_agent_that_ends_keeps_its_place_until_it_is_gone(void **state)
{
    (void)state;
    world.ends_late = true;
    recipe('a')->maxta = recipe('b')->maxta = 1;
    add("ax");
    work();
    hungry(0);
    hungry(0);
    add("bx");
    work();
    expect("start0 0:ax rest0 told0 ");
    assert_int_equal(crew_wake_at(world.crew, world.now).us, US_FOREVER); /* an end wakes it */
    work();
    expect(""); /* help is near */
    end(0);
    work();
    expect("end0 start0 ");
}

static void a_busy_ring_starves_no_other(void **state)
{
    (void)state;
    recipe('a')->maxta = recipe('b')->maxta = 1;
    add("ax");
    for (int i = 0; i < 3 * CREW_RUN_MAX; i++) {
        add("ax");
    }
    work();
    hungry(0);
    add("by");
    work();
    for (int i = 0; i < CREW_RUN_MAX; i++) {
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
    recipe('a')->maxring = 1;
    for (int i = 0; i < 2 * CREW_RUN_MAX; i++) {
        add("ax");
    }
    work();
    hungry(0);
    for (int i = 0; i < CREW_RUN_MAX + 20; i++) { /* while nobody else waits it stays */
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
    recipe('a')->maxta = 1;
    recipe('b')->maxta = 2;
    add("ax bx by ay");
    work();
    expect("start0 start1 ");
    assert_int_equal(crew_count(world.crew), 2);
}

static void starts_per_second_are_limited(void **state)
{
    (void)state;
    crew_configure(world.crew, 2, false);
    add("ax ay az");
    work();
    expect("start0 start1 ");
    assert_int_equal(crew_wake_at(world.crew, world.now).us, world.now.us + US_PER_S);
    world.now = crew_wake_at(world.crew, world.now);
    work();
    expect("start2 ");
    assert_int_equal(crew_wake_at(world.crew, world.now).us, US_FOREVER);
}

static void a_frozen_crew_starts_nothing_and_goes_on(void **state)
{
    (void)state;
    add("ax");
    work();
    hungry(0);
    hungry(0);
    crew_configure(world.crew, 2, true);
    add("ax by");
    work();
    expect("start0 0:ax rest0 0:ax ");
    crew_configure(world.crew, 2, false);
    work();
    expect("start1 ");
}

/* ---- failing starts -------------------------------------------------------------------------- */

/* A start that ends before it has asked for work. */
static bool fail_start(size_t i)
{
    struct crew_thread *t;

    crew_explain(world.agents[i].place.ring, SLICE("broken"));
    world.agents[i].alive = false;
    return crew_ended(world.crew, &world.agents[i].place, world.now, &t);
}

static void failing_starts_are_held_longer_and_longer(void **state)
{
    int64_t hold_us = CREW_HOLD_US;

    (void)state;
    for (int i = 0; i < 15; i++) {
        add("ax ay");
        work();
        expect(i == 0 ? "start0 start1 " : "start0 start1 ");
        assert_int_equal(fail_start(0), i == 0); /* said once */
        assert_false(fail_start(1));
        work();
        expect("refused:broken refused:broken ");
        hold_us = i == 0 ? 2 * CREW_HOLD_US : 4 * hold_us; /* two failed each time */
        hold_us = hold_us < CREW_HOLD_MAX_US ? hold_us : CREW_HOLD_MAX_US;
        world.now = mono_after(world.now, hold_us - 1);
        add("az");
        work();
        expect("refused:broken ");
        world.now = mono_after(world.now, 1);
    }
    add("ax");
    work();
    assert_true(crew_proven(&world.agents[0].place)); /* said once, too */
    assert_false(crew_proven(&world.agents[0].place));
}

static void a_system_without_processes_is_asked_again_later(void **state)
{
    struct crew_action action;

    (void)state;
    add("ax");
    crew_next(world.crew, world.now, &action);
    assert_int_equal(action.type, CREW_START);
    crew_not_started(world.crew, world.now);
    work();
    expect("");
    world.now = crew_wake_at(world.crew, world.now);
    work();
    expect("start0 ");
}

/* ---- time and configuration ------------------------------------------------------------------ */

static void agents_that_rest_too_long_are_swept_away(void **state)
{
    (void)state;
    recipe('b')->idle_max_us = 200 * US_PER_S;
    add("ax bx");
    work();
    for (size_t i = 0; i < 2; i++) {
        hungry(i);
        hungry(i);
    }
    world.now = mono_after(world.now, 100 * US_PER_S - 1);
    assert_null(crew_sweep(world.crew, world.now));
    world.now = mono_after(world.now, 1);
    assert_ptr_equal(crew_sweep(world.crew, world.now), &world.agents[0].place);
    tell_end(&world.agents[0].place);
    assert_null(crew_sweep(world.crew, world.now));
}

static void look(void *arg, struct slice channel, struct slice host, struct crew_recipe *ret_recipe)
{
    (void)arg;
    *ret_recipe = recipes[channel.ptr[0] - 'a'];
    ret_recipe->channel = channel;
    ret_recipe->host = host;
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
    recipe('a')->clause = 2; /* numbers change places */
    recipe('b')->clause = 1;
    recipe('b')->start = recipe('c')->start = SLICE("another agent");
    crew_reload(world.crew, look, NULL);
    crew_audit(world.crew);
    assert_ptr_equal(crew_sweep(world.crew, world.now), &world.agents[1].place);
    tell_end(&world.agents[1].place);
    assert_null(crew_sweep(world.crew, world.now));
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
        int64_t most = recipes[i].maxchannel;

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
    for (size_t i = 0; i < COUNT(recipes); i++) {
        recipes[i].maxta = 8;
        recipes[i].maxchannel = (int64_t)rng_below(&rng, 4);
        recipes[i].maxring = (int64_t)rng_below(&rng, 4);
        recipes[i].maxthr = 1 + (int64_t)rng_below(&rng, 3);
        recipes[i].host_bound = rng_below(&rng, 5) == 0;
        recipes[i].wakeup_restart_only = rng_below(&rng, 3) == 0;
        recipes[i].queue_only = rng_below(&rng, 5) == 0;
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
        if (world.agents[i].alive && world.agents[i].place.state == CREW_BUSY) {
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
          TEST(a_frozen_crew_starts_nothing_and_goes_on),
          TEST(failing_starts_are_held_longer_and_longer),
          TEST(a_system_without_processes_is_asked_again_later),
          TEST(agents_that_rest_too_long_are_swept_away),
          TEST(a_new_configuration_keeps_what_it_can),
          cmocka_unit_test(whatever_happens_limits_hold_and_all_is_done))
