#include "owner.h"

#include <string.h>

#include "check.h"
#include "mem.h"
#include "retry.h"
#include "times.h"

/* ---- messages that wait on disk ------------------------------------------------------------- */

void owner_target_fini(struct owner_target *t)
{
    mem_free(t->dest);
    *t = (struct owner_target){.several = false};
}

void owner_target_add(struct owner_target *t, uint32_t transport, struct slice dest)
{
    if (t->dest == NULL) {
        t->dest = mem_copy(dest.ptr, dest.len);
        t->transport = transport;
    } else if (transport != t->transport || !slice_equal(dest, slice_string(t->dest))) {
        t->several = true;
    }
}

void owner_target_deferred(struct owner_target *t, const struct sched_action *action)
{
    CHECK(action->type == SCHED_DEFER);
    if (action->dest.len > 0) {
        owner_target_add(t, action->transport, action->dest);
    } else {
        t->several = true;
    }
}

bool owner_target_is_one(const struct owner_target *t)
{
    return t->dest != NULL && !t->several;
}

bool owner_target_full(const struct sched *s, const struct owner_target *t,
                       struct slice sched_class)
{
    return owner_target_is_one(t) &&
           sched_share_full(s, t->transport, slice_string(t->dest), sched_class);
}

/* ---- time of the next pass ------------------------------------------------------------------ */

int64_t owner_backoff_us(const struct conf *conf, int64_t age_us, struct rng *rng)
{
    return retry_backoff(conf->minimal_backoff_time_us, conf->maximal_backoff_time_us, age_us,
                         (unsigned)conf->retry_jitter, rng);
}

int64_t owner_parked_us(const struct conf *conf, int64_t age_us, int64_t lifetime_us, bool to_warn,
                        struct rng *rng)
{
    int64_t wait_us = owner_backoff_us(conf, age_us, rng);
    int64_t left_us = us_add(lifetime_us, -age_us);
    int64_t warning_us = us_add(conf->delay_warning_time_us, -age_us);

    if (left_us < wait_us) {
        wait_us = left_us;
    }
    if (to_warn && conf->delay_warning_time_us > 0 && warning_us > 0 && warning_us < wait_us) {
        wait_us = warning_us;
    }
    return wait_us;
}

/* ---- order of entering memory --------------------------------------------------------------- */

void owner_turns_took(struct owner_turns *t, bool found)
{
    t->deferred = !t->deferred;
    t->dry = found ? 0 : t->dry + 1;
}

bool owner_parks_as_new(const struct sched *s, uint32_t transport, struct slice dest, bool is_new)
{
    struct sched_dest_info info;

    return is_new &&
           !(sched_dest_get(s, transport, dest, &info) && info.state == SCHED_DEST_DEAD_UNTIL);
}

void owner_feed_begin(struct owner_feed *f)
{
    f->fed = f->turns.dry = 0;
}

bool owner_feed_goes_on(const struct owner_feed *f, bool has_place)
{
    return f->fed < OWNER_FEED_MAX && owner_turns_go_on(&f->turns) && has_place;
}

void owner_feed_took(struct owner_feed *f, bool found)
{
    owner_turns_took(&f->turns, found);
    f->fed += found ? 1 : 0;
}

enum owner_feed_end owner_feed_end(struct owner_feed *f, struct sched *s, bool has_place,
                                   bool new_first)
{
    bool was_full = f->full, empty = !owner_turns_go_on(&f->turns);

    f->full = !empty && !has_place;
    if (f->full != was_full) {
        sched_ration(s, f->full ? 1 : SCHED_NO_RATION);
    }
    if (f->full && new_first) {
        f->turns.deferred = false;
    }
    return empty ? OWNER_FEED_EMPTY : f->full ? OWNER_FEED_FULL : OWNER_FEED_MORE;
}

bool owner_feed_lets_in(const struct owner_feed *f)
{
    return !f->full || !f->turns.deferred;
}

void owner_feed_let_in(struct owner_feed *f)
{
    if (f->full) {
        f->turns.deferred = true;
    }
}

void owner_feed_opened(const struct owner_feed *f, struct sched *s)
{
    if (f->full) {
        sched_ration(s, 1);
    }
}
