#include "thread.h"

#include <stddef.h>
#include <string.h>

#include "check.h"
#include "mem.h"

/* ---- rules ---------------------------------------------------------------------------------- */

void thread_rules_init(struct thread_rules *r, const struct policy *policy)
{
    const struct conf_list *retries = &policy->retries;
    size_t count = retries->count < RETRY_SEQUENCE_MAX ? retries->count : RETRY_SEQUENCE_MAX;

    *r = (struct thread_rules){
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

        /* The configuration has seen to it that it is a number; 0 is the way to say "always". */
        if (!slice_number(slice_string(retries->items[i]), UINT32_MAX, &factor) || factor == 0) {
            r->sequence.count = 0;
            return;
        }
        r->factors[r->sequence.count++] = (uint32_t)factor;
    }
}

void thread_rules_fini(struct thread_rules *r)
{
    mem_free(r->factors);
    *r = (struct thread_rules){.factors = NULL};
}

static int64_t longest_step(const struct thread_rules *r)
{
    uint32_t longest = 1;
    int64_t step;

    for (size_t i = 0; i < r->sequence.count; i++) {
        longest = r->factors[i] > longest ? r->factors[i] : longest;
    }
    return __builtin_mul_overflow(r->sequence.interval_us, longest, &step) ? US_FOREVER : step;
}

/* ---- the table ------------------------------------------------------------------------------ */

static bool earlier(const struct heap_node *a, const struct heap_node *b)
{
    const struct thread *x = CONTAINER_OF(a, const struct thread, by_check);
    const struct thread *y = CONTAINER_OF(b, const struct thread, by_check);

    return x->check_at.us < y->check_at.us;
}

_Static_assert(offsetof(struct thread, dest) ==
                   offsetof(struct thread, transport) + sizeof(uint32_t),
               "a key has no holes");

void threads_init(struct threads *t)
{
    t->table = NULL;
    heap_init(&t->by_check, earlier);
}

void threads_fini(struct threads *t)
{
    struct thread *thread, *next;

    HASH_ITER(hh, t->table, thread, next)
    {
        threads_drop(t, thread);
    }
    heap_fini(&t->by_check);
}

static size_t key_bytes(size_t dest_len)
{
    return sizeof(uint32_t) + dest_len;
}

struct thread *threads_find(const struct threads *t, uint32_t transport, struct slice dest)
{
    char key[sizeof transport + SCHED_DEST_NAME_MAX];
    struct thread *found;

    CHECK(dest.len <= SCHED_DEST_NAME_MAX);
    memcpy(key, &transport, sizeof transport);
    memcpy(key + sizeof transport, dest.ptr, dest.len);
    HASH_FIND(hh, t->table, key, key_bytes(dest.len), found);
    return found;
}

struct thread *threads_need(struct threads *t, uint32_t transport, struct slice dest,
                            struct wall now)
{
    struct thread *thread = threads_find(t, transport, dest);

    if (thread != NULL) {
        return thread;
    }
    if (HASH_COUNT(t->table) >= THREADS_KEPT_MAX) {
        threads_drop(t, CONTAINER_OF(heap_top(&t->by_check), struct thread, by_check));
    }
    thread = mem_new(sizeof *thread + dest.len + 1);
    thread->transport = transport;
    thread->dest_len = (uint32_t)dest.len;
    memcpy(thread->dest, dest.ptr, dest.len);
    thread->check_at = wall_after(now, THREAD_CHECK_US);
    HASH_ADD_KEYPTR(hh, t->table, &thread->transport, key_bytes(dest.len), thread);
    heap_node_init(&thread->by_check);
    heap_add(&t->by_check, &thread->by_check);
    return thread;
}

void threads_drop(struct threads *t, struct thread *thread)
{
    HASH_DEL(t->table, thread);
    heap_remove(&t->by_check, &thread->by_check);
    mem_free(thread);
}

static void check_after(struct threads *t, struct thread *thread, struct wall from, int64_t wait_us)
{
    thread->check_at = wall_after(from, wait_us);
    heap_moved(&t->by_check, &thread->by_check);
}

/* ---- retries -------------------------------------------------------------------------------- */

struct wall thread_ran(struct threads *t, struct thread *thread, const struct thread_rules *rules,
                       enum thread_end end, struct wall not_before, struct wall now,
                       unsigned jitter_percent, struct rng *rng)
{
    struct retry_state *retry = &thread->retry;

    CHECK(thread_rules_apply(rules));
    thread->stopped = thread->stopped && thread_waits(thread, now); /* else this is another run */
    if (rules->sequence.count == 0) {
        if (!thread_waits(thread, now)) {
            retry->due = wall_after(now, THREAD_ALWAYS_US);
        }
    } else if (end == THREAD_DEFERRED) {
        retry_sequence_deferred(&rules->sequence, retry, now, true, jitter_percent, rng);
    } else {
        retry_sequence_run_ended(&rules->sequence, retry, now, jitter_percent, rng);
    }
    if (end == THREAD_STOPPED) {
        not_before = wall_min(not_before, wall_after(now, longest_step(rules)));
        retry->due = not_before.us > retry->due.us ? not_before : retry->due;
        thread->stopped = true;
        thread->stopped_at = now;
    }
    check_after(t, thread, retry->due, THREAD_CHECK_US);
    return retry->due;
}

static void move(struct wall *t, int64_t by_us)
{
    int64_t sum;

    if (t->us != 0 && t->us != US_FOREVER && !__builtin_add_overflow(t->us, by_us, &sum)) {
        t->us = sum;
    }
}

void threads_move(struct threads *t, int64_t by_us)
{
    struct thread *thread, *next;

    HASH_ITER(hh, t->table, thread, next)
    {
        move(&thread->retry.due, by_us);
        move(&thread->woken, by_us);
        move(&thread->check_at, by_us);
        heap_moved(&t->by_check, &thread->by_check);
    }
}

bool thread_waits(const struct thread *thread, struct wall now)
{
    return thread->retry.due.us > now.us;
}

void thread_slept(struct thread *thread)
{
    thread->asleep = true;
}

bool thread_may_be_woken(const struct thread *thread, struct wall now)
{
    return thread->asleep &&
           (thread->woken.us == 0 || now.us >= wall_after(thread->woken, THREAD_WAKE_US).us);
}

bool thread_is_fresh_stop(const struct thread *thread, struct wall now)
{
    return thread->stopped && thread_waits(thread, now) &&
           now.us < wall_after(thread->stopped_at, THREAD_WAKE_US).us;
}

void thread_woken(struct thread *thread, bool asked_for, struct wall now)
{
    thread->woken = now;
    thread->asleep = thread->stopped = false;
    if (asked_for) {
        thread->retry.due.us = 0;
    }
}

/* ---- those that nobody asks for ------------------------------------------------------------- */

void thread_check_soon(struct threads *t, struct thread *thread, struct wall now)
{
    check_after(t, thread, now, THREAD_CHECK_SOON_US);
}

struct thread *threads_check(struct threads *t, struct wall now)
{
    struct heap_node *top = heap_top(&t->by_check);
    struct thread *thread = top == NULL ? NULL : CONTAINER_OF(top, struct thread, by_check);

    if (thread == NULL || thread->check_at.us > now.us) {
        return NULL;
    }
    check_after(t, thread, now, THREAD_CHECK_US);
    return thread;
}

struct wall threads_check_at(const struct threads *t)
{
    struct heap_node *top = heap_top(&t->by_check);

    return top == NULL ? WALL_NEVER : CONTAINER_OF(top, struct thread, by_check)->check_at;
}
