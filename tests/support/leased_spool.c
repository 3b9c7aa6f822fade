#include "leased_spool.h"

static struct spool_engine engine; /* that of the spool, with the part */
static const _Atomic int64_t *until_us;

static struct mono until(const struct spool *sp)
{
    (void)sp;
    return (struct mono){*until_us};
}

void leased_spool(struct spool *sp, const _Atomic int64_t *until_us_)
{
    static const struct spool_lease_part part = {.until = until};

    engine = *sp->engine;
    engine.lease = &part;
    until_us = until_us_;
    sp->engine = &engine;
}
