#include "pieces.h"

#include "sched_private.h"

void pieces_set(struct sched *s, uint32_t at_once)
{
    s->at_once = at_once;
}

bool pieces_left(const struct sched *s)
{
    return chores_left(s);
}
