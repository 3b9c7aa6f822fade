#include "spool_handover.h"

#include "spool_engine.h"

void spool_hand_over_from(struct spool *sp, spool_tell_suspensions *tell, void *arg)
{
    if (sp->engine->handover != NULL) {
        sp->engine->handover->from(sp, tell, arg);
    }
}

bool spool_next_suspension(struct spool *sp, struct spool_suspension *ret)
{
    return sp->engine->handover != NULL && sp->engine->handover->next(sp, ret);
}

bool spool_partitions_came(struct spool *sp)
{
    return sp->engine->handover != NULL && sp->engine->handover->came(sp);
}

bool spool_next_leaving(struct spool *sp, struct spool_places *ret)
{
    return sp->engine->handover != NULL && sp->engine->handover->next_leaving(sp, ret);
}

unsigned spool_partition_of(const struct spool *sp, struct slice transport, struct slice nexthop)
{
    return sp->engine->parts == NULL
               ? 0
               : sp->engine->parts->partition(
                     sp, &(struct spool_rcpt){.transport = transport, .nexthop = nexthop});
}
