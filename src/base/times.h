/*
 * Two clocks, two types, both in signed 64-bit microseconds.
 *
 * `struct mono` never jumps: intervals and deadlines inside one run. `struct wall` is time since
 * 1970 UTC: ages and due times stored in the spool. Nothing in base, core, spool or smtp reads a
 * clock; the programs do, and pass the time in.
 */
#ifndef BASE_TIMES_H
#define BASE_TIMES_H

#include <stdbool.h>
#include <stdint.h>

struct mono {
    int64_t us;
};

struct wall {
    int64_t us;
};

#define US_PER_MS  INT64_C(1000)
#define US_PER_S   INT64_C(1000000)
#define US_FOREVER INT64_MAX /* a deadline that never comes */

#define MONO_NEVER ((struct mono){US_FOREVER})
#define WALL_NEVER ((struct wall){US_FOREVER})

/* Returns a + b for times and intervals >= 0; US_FOREVER instead of an overflow. */
static inline int64_t us_add(int64_t a, int64_t b)
{
    int64_t sum;

    return __builtin_add_overflow(a, b, &sum) ? US_FOREVER : sum;
}

static inline struct mono mono_after(struct mono t, int64_t delay_us)
{
    return (struct mono){us_add(t.us, delay_us)};
}

static inline struct wall wall_after(struct wall t, int64_t delay_us)
{
    return (struct wall){us_add(t.us, delay_us)};
}

static inline struct wall wall_min(struct wall a, struct wall b)
{
    return a.us < b.us ? a : b;
}

static inline bool mono_reached(struct mono deadline, struct mono now)
{
    return deadline.us <= now.us;
}

static inline struct mono mono_min(struct mono a, struct mono b)
{
    return a.us < b.us ? a : b;
}

/* Returns whole seconds, rounded towards minus infinity. */
static inline int64_t us_seconds(int64_t us)
{
    return us >= 0 ? us / US_PER_S : -((-us + US_PER_S - 1) / US_PER_S);
}

#endif
