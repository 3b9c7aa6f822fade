#include "spool_mover.h"

#include "check.h"

static const struct spool_mover *movers[SPOOL_MOVERS_MAX];

void spool_mover_register(const struct spool_mover *mover)
{
    size_t i = 0;

    while (i < SPOOL_MOVERS_MAX && movers[i] != NULL && movers[i] != mover) {
        i++;
    }
    CHECK(i < SPOOL_MOVERS_MAX);
    movers[i] = mover;
}

const struct spool_mover *spool_mover_find(struct slice system)
{
    for (size_t i = 0; i < SPOOL_MOVERS_MAX && movers[i] != NULL; i++) {
        if (slice_equal(slice_string(movers[i]->system), system)) {
            return movers[i];
        }
    }
    return NULL;
}
