#include "leased_spool.h"

#include "clock.h"

static struct spool_engine engine; /* that of the spool, with the part */
static const struct spool_engine *under;
static const _Atomic int64_t *until_us;
static bool is_lost; /* and that is still to be told */

static int64_t left_us(const struct spool *sp)
{
    (void)sp;
    return *until_us - clock_mono_now().us;
}

static void ended(struct spool *sp)
{
    (void)sp;
}

static bool next_event(struct spool *sp, struct spool_event *ret_event)
{
    if (is_lost) {
        is_lost = false;
        *ret_event = (struct spool_event){.type = SPOOL_EVENT_LOST};
        return true;
    }
    return under->next_event != NULL && under->next_event(sp, ret_event);
}

void leased_spool_lose(void)
{
    is_lost = true;
}

void leased_spool(struct spool *sp, const _Atomic int64_t *until_us_)
{
    static const struct spool_lease_part part = {.left_us = left_us, .ended = ended};

    if (sp->engine != &engine) { /* else it was opened again */
        under = sp->engine;
    }
    engine = *under;
    engine.lease = &part;
    engine.next_event = next_event;
    is_lost = false;
    until_us = until_us_;
    sp->engine = &engine;
}
