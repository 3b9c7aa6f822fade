/*
 * What docs/guarantees.md promises of mail as a whole, over random worlds: sites that are well,
 * slow, full, dead or moody, mail for them at random, and the real scheduler in between.
 *
 * A failure prints the seed of its world; SLUICE_SEEDS=FIRST-LAST runs others than the usual.
 */
#include "sim_world.h"

#include <stdio.h>
#include <string.h>

#include "buf.h"
#include "check.h"
#include "mem.h"
#include "rng.h"
#include "seeds.h"
#include "unit.h"
#include "world.h"

#define TEXT_MAX     8192 /* bytes of a configuration or a workload */
#define MESSAGES_MAX 20000
#define RCPTS_MAX    8

enum rcpt_state { WAITS, RUNS, ENDED };

struct message {
    struct mono came;
    struct mono pass;    /* when the last one began */
    struct mono left_at; /* when it ended; MONO_NEVER: it is under way */
    uint8_t count;
    uint8_t rcpts[RCPTS_MAX];
};

struct watch {
    uint64_t seed;
    struct rng rng;
    struct message *messages; /* by number */
    uint64_t count, left;     /* recipients that have not ended */
    int64_t latest_us;        /* after it came, when a message is looked at for the last time */
    struct buf conf, workload;
    void (*on_settled)(void *arg, struct mono now, uint64_t number, uint32_t rcpt_n,
                       const char *destination, enum sim_disposition disposition);
};

static uint32_t pick(struct watch *w, uint32_t low, uint32_t high)
{
    return low + (uint32_t)rng_below(&w->rng, high - low + 1);
}

static struct message *message_of(struct watch *w, uint64_t number)
{
    CHECK(number <= w->count);
    return &w->messages[number];
}

static uint8_t *rcpt_of(struct watch *w, struct message *m, uint32_t n)
{
    if (n == 0 || n > m->count) {
        fail_msg("seed %llu: a message of %u recipients has a recipient %u",
                 (unsigned long long)w->seed, m->count, n);
    }
    return &m->rcpts[n - 1];
}

static void on_arrival(void *arg, struct mono now, uint64_t number, uint32_t rcpt_count)
{
    struct watch *w = arg;
    struct message *m = &w->messages[number];

    CHECK(number == w->count + 1);
    CHECK(number < MESSAGES_MAX);
    CHECK(rcpt_count <= RCPTS_MAX);
    w->count = number;
    w->left += rcpt_count;
    *m = (struct message){.came = now, .count = (uint8_t)rcpt_count};
}

static void on_decision(void *arg, struct mono now, uint64_t number,
                        const struct sched_action *action)
{
    struct watch *w = arg;
    struct message *m;

    if (number == 0) {
        return; /* it is about a destination */
    }
    m = message_of(w, number);
    if (m->left_at.us == US_FOREVER && (action->type == SCHED_DONE || action->type == SCHED_PARK)) {
        m->left_at = now;
    } else if (m->left_at.us != US_FOREVER) {
        m->left_at = MONO_NEVER;
        m->pass = now;
    }
    for (size_t i = 0; action->type == SCHED_DELIVER && i < action->rcpt_count; i++) {
        uint8_t *state = rcpt_of(w, m, action->rcpts[i]);

        if (*state != WAITS) {
            fail_msg("seed %llu: recipient %u of message %llu is delivered again",
                     (unsigned long long)w->seed, action->rcpts[i], (unsigned long long)number);
        }
        *state = RUNS;
    }
}

static void on_settled(void *arg, struct mono now, uint64_t number, uint32_t rcpt_n,
                       const char *destination, enum sim_disposition disposition)
{
    struct watch *w = arg;
    struct message *m = message_of(w, number);
    uint8_t *state = rcpt_of(w, m, rcpt_n);

    (void)destination;
    if (*state == ENDED) {
        fail_msg("seed %llu: recipient %u of message %llu ends again", (unsigned long long)w->seed,
                 rcpt_n, (unsigned long long)number);
    }
    *state = disposition == SIM_DISPOSITION_DEFERRED ? WAITS : ENDED;
    if (disposition != SIM_DISPOSITION_DEFERRED) {
        w->left--;
        if (m->left_at.us != US_FOREVER && m->left_at.us != now.us) {
            m->pass = now; /* it is given up without another */
        }
        if (m->pass.us - m->came.us > w->latest_us) {
            fail_msg("seed %llu: message %llu was last looked at after %lld s, allowed %lld",
                     (unsigned long long)w->seed, (unsigned long long)number,
                     (long long)us_seconds(m->pass.us - m->came.us),
                     (long long)us_seconds(w->latest_us));
        }
    }
}

static struct watch *watch_new(uint64_t seed)
{
    struct watch *w = mem_new(sizeof *w);

    w->seed = seed;
    w->on_settled = on_settled;
    rng_init(&w->rng, seed);
    w->messages = mem_array(MESSAGES_MAX, sizeof w->messages[0]);
    buf_init(&w->conf, TEXT_MAX);
    buf_init(&w->workload, TEXT_MAX);
    return w;
}

static void watch_free(struct watch *w)
{
    buf_fini(&w->conf);
    buf_fini(&w->workload);
    mem_free(w->messages);
    mem_free(w);
}

/* Run the world that the two texts describe until all mail has ended. */
static void watch_run(struct watch *w)
{
    const struct sim_hooks hooks = {
        .arg = w, .arrived = on_arrival, .decided = on_decision, .settled = w->on_settled};
    struct test_world t;

    test_world_open(&t, buf_cstr(&w->conf), buf_cstr(&w->workload), w->seed, &hooks, NULL);
    test_world_run(&t);
    if (w->left > 0 || !t.result->drained) {
        fail_msg("seed %llu: %llu recipients never ended", (unsigned long long)w->seed,
                 (unsigned long long)w->left);
    }
    assert_int_equal(t.result->total.messages, w->count);
    test_world_close(&t);
}

/* ---- each recipient ends once, and in time -------------------------------------------------- */

static void random_site(struct watch *w, uint32_t i)
{
    static const char *const downs[] = {"refuse", "hang", "mute", "busy"};
    const char *down = downs[pick(w, 0, 3)];
    struct buf *b = &w->workload;

    buf_addf(b, "site s%u.example latency=exponential(%ums)", i, pick(w, 1, 3000));
    switch (pick(w, 0, 6)) {
    case 0:
        buf_addf(b, " hosts=%u bad=1:%s", pick(w, 1, 3), down);
        break;
    case 1:
        buf_addf(b, " slots=%u backlog=%u full=%s", pick(w, 1, 3), pick(w, 0, 5), down);
        break;
    case 2:
        buf_addf(b, " greylist=%us", pick(w, 10, 900));
        break;
    case 3:
        buf_addf(b, " fail=%u%% defer=%u%%", pick(w, 0, 30), pick(w, 0, 60));
        break;
    case 4:
        buf_addf(b, " outage=%us..%us:%s", pick(w, 0, 300), pick(w, 301, 9000), down);
        break;
    default:
        break;
    }
    buf_add_string(b, "\n");
}

static void random_world(struct watch *w)
{
    uint32_t sites = pick(w, 1, 8), lines = pick(w, 1, 4);

    for (uint32_t i = 0; i < sites; i++) {
        random_site(w, i);
    }
    for (uint32_t i = 0; i < lines; i++) {
        buf_addf(&w->workload,
                 "arrivals a%u count=%u recipients=uniform(1,%u) to=s%u.example,s%u.example", i,
                 pick(w, 1, 60), pick(w, 1, RCPTS_MAX), pick(w, 0, sites - 1),
                 pick(w, 0, sites - 1));
        if (pick(w, 0, 2) == 0) {
            buf_addf(&w->workload, " at=%us\n", pick(w, 0, 600));
        } else {
            buf_addf(&w->workload, " rate=%u/m\n", pick(w, 1, 120));
        }
    }
}

/* Times are such that every strategy of the back-off is met. */
static void random_conf(struct watch *w)
{
    uint32_t lifetime = pick(w, 0, 20000), minimal = pick(w, 30, 600);
    uint32_t maximal = minimal + pick(w, 0, 4000), jitter = pick(w, 0, 60);
    uint32_t active = pick(w, 0, 1) == 0 ? pick(w, 3, 40) : 20000;

    buf_addf(&w->conf, "bounce_queue_lifetime = %us\nmaximal_queue_lifetime = %us\n", lifetime,
             lifetime);
    buf_addf(&w->conf, "minimal_backoff_time = %us\nmaximal_backoff_time = %us\n", minimal,
             maximal);
    buf_addf(&w->conf, "retry_jitter = %u\n", jitter);
    buf_addf(&w->conf, "qmgr_message_active_limit = %u\nqmgr_message_recipient_limit = %u\n",
             active, active);
    buf_addf(&w->conf,
             "default_destination_concurrency_limit = %u\ninitial_destination_concurrency = %u\n",
             pick(w, 1, 20), pick(w, 1, 5));
    buf_addf(&w->conf, "default_destination_recipient_limit = %u\ndefault_process_limit = %u\n",
             pick(w, 1, 5), pick(w, 1, 50));
    buf_addf(&w->conf, "smtp_connect_timeout = %us\nsmtp_helo_timeout = %us\n", pick(w, 1, 60),
             pick(w, 1, 300));
    if (active == 20000) { /* there is room whenever mail is due */
        w->latest_us = (int64_t)(lifetime + maximal) * US_PER_S;
    } else {
        w->latest_us = US_FOREVER;
    }
}

static void history_of_ends(uint64_t seed)
{
    struct watch *w = watch_new(seed);

    random_world(w);
    random_conf(w);
    watch_run(w);
    watch_free(w);
}

static void every_recipient_ends_once_and_in_time(void **unused)
{
    (void)unused;
    for_each_seed(1, 150, history_of_ends);
}

/* ---- a site in trouble harms nobody else ---------------------------------------------------- */

/* What is for a site of this name is to enter, and to begin, when it comes. */
static bool is_well(const char *destination)
{
    return strstr(destination, "well.example") != NULL;
}

static void on_settled_beside_trouble(void *arg, struct mono now, uint64_t number, uint32_t rcpt_n,
                                      const char *destination, enum sim_disposition disposition)
{
    struct watch *w = arg;
    struct message *m = message_of(w, number);

    if (is_well(destination) && (disposition != SIM_DISPOSITION_SENT || m->pass.us != m->came.us)) {
        fail_msg("seed %llu: message %llu entered after %lld us", (unsigned long long)w->seed,
                 (unsigned long long)number, (long long)(m->pass.us - m->came.us));
    }
    on_settled(arg, now, number, rcpt_n, destination, disposition);
}

/* Some sites are in trouble, with mail for each that would fill the active queue several times. */
static void troubled_world(struct watch *w, uint32_t active)
{
    static const char *const troubles[] = {"outage=0s..1d:mute",
                                           "outage=0s..1d:hang",
                                           "outage=0s..1d:refuse",
                                           "slots=1 latency=30s",
                                           "slots=2 full=busy latency=20s",
                                           "defer=90%"};
    uint32_t bad = pick(w, 1, 4);

    for (uint32_t i = 0; i < bad; i++) {
        buf_addf(&w->workload, "site bad%u.example %s\n", i,
                 troubles[pick(w, 0, COUNT(troubles) - 1)]);
        buf_addf(&w->workload, "arrivals bad%u at=%us count=%u to=bad%u.example\n", i,
                 pick(w, 0, 60), active * pick(w, 1, 2), i);
    }
    buf_addf(&w->workload, "arrivals well rate=%u/m until=20m to=uniform(20,well.example)\n",
             pick(w, 30, 120));
}

static void history_beside_trouble(uint64_t seed)
{
    struct watch *w = watch_new(seed);
    uint32_t active = pick(w, 400, 800);

    troubled_world(w, active);
    buf_addf(&w->conf, "qmgr_message_active_limit = %u\nqmgr_message_recipient_limit = %u\n",
             active, active);
    buf_addf(&w->conf, "qmgr_destination_share = %u\n", pick(w, 10, 100));
    buf_addf(&w->conf, "maximal_queue_lifetime = 2h\nbounce_queue_lifetime = 2h\n");
    w->latest_us = US_FOREVER;
    w->on_settled = on_settled_beside_trouble;
    watch_run(w);
    watch_free(w);
}

static void mail_for_others_enters_when_it_comes(void **unused)
{
    (void)unused;
    for_each_seed(1, 8, history_beside_trouble);
}

UNIT_MAIN(cmocka_unit_test(every_recipient_ends_once_and_in_time),
          cmocka_unit_test(mail_for_others_enters_when_it_comes))
