#include "dest_retry.h"

#include "check.h"
#include "destination.h"
#include "mem.h"

/* ---- rules ---------------------------------------------------------------------------------- */

void retry_rules_init(struct retry_rules *r, const struct policy *policy)
{
    const struct conf_list *retries = &policy->retries;
    size_t count = retries->count < RETRY_SEQUENCE_MAX ? retries->count : RETRY_SEQUENCE_MAX;

    *r = (struct retry_rules){
        .sequence = {.interval_us = policy->interval_us, .skew = (uint32_t)policy->skew},
        .queueonly = policy->queueonly,
        .wakeuprestartonly = policy->wakeuprestartonly,
    };
    if (policy->interval_us == 0 || count == 0) {
        return;
    }
    r->factors = mem_array(count, sizeof *r->factors);
    r->sequence.factors = r->factors;
    for (size_t i = 0; i < count; i++) {
        unsigned long long factor = 0;

        /* The configuration has checked that each is a number; 0 means "always". */
        if (!slice_number(slice_string(retries->items[i]), UINT32_MAX, &factor) || factor == 0) {
            r->sequence.count = 0;
            return;
        }
        r->factors[r->sequence.count++] = (uint32_t)factor;
    }
}

void retry_rules_fini(struct retry_rules *r)
{
    mem_free(r->factors);
    *r = (struct retry_rules){.factors = NULL};
}

static int64_t longest_step(const struct retry_rules *r)
{
    uint32_t longest = 1;
    int64_t step;

    for (size_t i = 0; i < r->sequence.count; i++) {
        longest = r->factors[i] > longest ? r->factors[i] : longest;
    }
    return __builtin_mul_overflow(r->sequence.interval_us, longest, &step) ? US_FOREVER : step;
}

/* ---- the table of states --------------------------------------------------------------------- */

static bool earlier(const struct heap_node *a, const struct heap_node *b)
{
    const struct dest_retry *x = CONTAINER_OF(a, const struct dest_retry, by_check);
    const struct dest_retry *y = CONTAINER_OF(b, const struct dest_retry, by_check);

    return x->check_at.us < y->check_at.us;
}

void dest_retries_init(struct dest_retries *all)
{
    *all = (struct dest_retries){.count = 0};
    heap_init(&all->by_check, earlier);
}

void dest_retries_fini(struct dest_retries *all)
{
    struct heap_node *top;

    while ((top = heap_top(&all->by_check)) != NULL) {
        dest_retry_drop(all, CONTAINER_OF(top, struct dest_retry, by_check));
    }
    heap_fini(&all->by_check);
}

struct dest_retry *dest_retry_need(struct dest_retries *all, struct destination *d, struct wall now)
{
    struct dest_retry *r = d->retry;

    if (r != NULL) {
        return r;
    }
    if (all->count >= DEST_RETRIES_MAX) {
        dest_retry_drop(all, CONTAINER_OF(heap_top(&all->by_check), struct dest_retry, by_check));
    }
    r = d->retry = mem_new(sizeof *r);
    r->of = d;
    r->check_at = wall_after(now, RETRY_CHECK_US);
    heap_node_init(&r->by_check);
    heap_add(&all->by_check, &r->by_check);
    all->count++;
    return r;
}

void dest_retry_drop(struct dest_retries *all, struct dest_retry *r)
{
    CHECK(r->of->retry == r);
    r->of->retry = NULL;
    heap_remove(&all->by_check, &r->by_check);
    all->count--;
    mem_free(r);
}

static void check_after(struct dest_retries *all, struct dest_retry *r, struct wall from,
                        int64_t wait_us)
{
    r->check_at = wall_after(from, wait_us);
    heap_moved(&all->by_check, &r->by_check);
}

/* ---- retries -------------------------------------------------------------------------------- */

struct wall dest_retry_ran(struct dest_retries *all, struct dest_retry *r,
                           const struct retry_rules *rules, bool stops, struct wall not_before,
                           struct wall now, unsigned jitter_percent, struct rng *rng)
{
    struct retry_state *retry = &r->retry;

    CHECK(retry_rules_apply(rules));
    r->stopped = r->stopped && dest_retry_waits(r, now); /* cleared by a new run */
    if (rules->sequence.count == 0) {
        if (!dest_retry_waits(r, now)) {
            retry->due = wall_after(now, RETRY_ALWAYS_US);
        }
    } else {
        retry_sequence_ran(&rules->sequence, retry, now, jitter_percent, rng);
    }
    if (stops) {
        not_before = wall_min(not_before, wall_after(now, longest_step(rules)));
        retry->due = not_before.us > retry->due.us ? not_before : retry->due;
        r->stopped = true;
        r->stopped_at = now;
    }
    check_after(all, r, retry->due, RETRY_CHECK_US);
    return retry->due;
}

static void move(struct wall *t, int64_t by_us)
{
    int64_t sum;

    if (t->us != 0 && t->us != US_FOREVER && !__builtin_add_overflow(t->us, by_us, &sum)) {
        t->us = sum;
    }
}

void dest_retry_move(struct dest_retries *all, struct dest_retry *r, int64_t by_us)
{
    move(&r->retry.due, by_us);
    move(&r->woken, by_us);
    move(&r->check_at, by_us);
    heap_moved(&all->by_check, &r->by_check);
}

bool dest_retry_waits(const struct dest_retry *r, struct wall now)
{
    return r->retry.due.us > now.us;
}

void dest_retry_slept(struct dest_retry *r)
{
    r->asleep = true;
}

bool dest_retry_may_be_woken(const struct dest_retry *r, struct wall now)
{
    return r->asleep && (r->woken.us == 0 || now.us >= wall_after(r->woken, RETRY_WAKE_US).us);
}

bool dest_retry_is_fresh_stop(const struct dest_retry *r, struct wall now)
{
    return r->stopped && dest_retry_waits(r, now) &&
           now.us < wall_after(r->stopped_at, RETRY_WAKE_US).us;
}

void dest_retry_woken(struct dest_retry *r, bool requested, struct wall now)
{
    r->woken = now;
    r->asleep = r->stopped = false;
    if (requested) {
        r->retry.due.us = 0;
    }
}

/* ---- checks ---------------------------------------------------------------------------------- */

void dest_retry_check_soon(struct dest_retries *all, struct dest_retry *r, struct wall now)
{
    check_after(all, r, now, RETRY_CHECK_SOON_US);
}

struct dest_retry *dest_retries_check(struct dest_retries *all, struct wall now)
{
    struct heap_node *top = heap_top(&all->by_check);
    struct dest_retry *r = top == NULL ? NULL : CONTAINER_OF(top, struct dest_retry, by_check);

    if (r == NULL || r->check_at.us > now.us) {
        return NULL;
    }
    check_after(all, r, now, RETRY_CHECK_US);
    return r;
}

struct wall dest_retries_check_at(const struct dest_retries *all)
{
    struct heap_node *top = heap_top(&all->by_check);

    return top == NULL ? WALL_NEVER : CONTAINER_OF(top, struct dest_retry, by_check)->check_at;
}
