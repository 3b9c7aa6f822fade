#include "leased_spool.h"

#include "clock.h"

static struct spool_engine engine; /* that of the spool, with the part */
static const _Atomic int64_t *until_us;

static int64_t left_us(const struct spool *sp)
{
    (void)sp;
    return *until_us - clock_mono_now().us;
}

void leased_spool(struct spool *sp, const _Atomic int64_t *until_us_)
{
    static const struct spool_lease_part part = {.left_us = left_us};

    engine = *sp->engine;
    engine.lease = &part;
    until_us = until_us_;
    sp->engine = &engine;
}
