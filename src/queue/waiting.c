#include "waiting.h"

#include <string.h>

#include "check.h"
#include "mem.h"
#include "park_key.h"

/* Checks the members that each state requires. */
static void check(const struct waiting *w)
{
    switch (w->state) {
    case WAITS_NOT:
        CHECK(w->retry_at.us == 0 && w->retry_key == NULL);
        break;
    case WAITS_RETRY:
        CHECK(w->retry_at.us != 0 && w->retry_key != NULL);
        break;
    case WAITS_RETRIES:
        CHECK(w->retry_at.us != 0 && w->retry_key == NULL);
        break;
    case WAITS_BACKOFF:
        CHECK(w->retry_key == NULL);
        break;
    }
}

static void enter(struct waiting *w, enum waits state)
{
    w->state = state;
    if (state != WAITS_RETRY) {
        mem_free(w->retry_key);
        w->retry_key = NULL;
    }
    check(w);
}

void waiting_fini(struct waiting *w)
{
    mem_free(w->retry_key);
    mem_free(w->pause_key);
    owner_target_fini(&w->dead);
}

void waiting_for_dead(struct waiting *w, const struct sched_action *action)
{
    owner_target_deferred(&w->dead, action);
    enter(w, WAITS_BACKOFF);
}

void waiting_not_for_dead(struct waiting *w)
{
    w->dead.several = true;
}

void waiting_for_backoff(struct waiting *w)
{
    enter(w, WAITS_BACKOFF);
}

void waiting_until(struct waiting *w, struct wall at, char *retry_key)
{
    CHECK(at.us != 0);
    w->retry_at = w->retry_at.us == 0 ? at : wall_min(w->retry_at, at);
    if (retry_key == NULL) {
        enter(w, WAITS_BACKOFF);
    } else if (w->state == WAITS_NOT) {
        w->retry_key = retry_key;
        retry_key = NULL;
        enter(w, WAITS_RETRY);
    } else if (w->state == WAITS_RETRY && strcmp(retry_key, w->retry_key) != 0) {
        enter(w, WAITS_RETRIES);
    }
    mem_free(retry_key);
}

void waiting_for_pause(struct waiting *w, char *key)
{
    if (w->pause_key != NULL && strcmp(w->pause_key, key) != 0) {
        mem_free(w->pause_key);
        w->pause_key = mem_string(PARK_KEY_PAUSES);
    } else if (w->pause_key == NULL) {
        w->pause_key = key;
        key = NULL;
    }
    w->has_lifetime = true;
    mem_free(key);
}

char *waiting_take_pause_key(struct waiting *w)
{
    char *key = w->pause_key;

    w->pause_key = NULL;
    return key;
}

void waiting_for_lifetime(struct waiting *w)
{
    w->has_lifetime = true;
}

void waiting_move(struct waiting *w, int64_t by_us)
{
    if (w->retry_at.us != 0 && w->retry_at.us != US_FOREVER) {
        w->retry_at.us = us_add(w->retry_at.us, by_us);
    }
}

struct waiting waiting_take(struct waiting *w)
{
    struct waiting taken = *w;

    check(w);
    *w = (struct waiting){0};
    return taken;
}

char *waiting_take_key(struct waiting *w)
{
    char *key = w->retry_key;

    CHECK((key != NULL) == (w->state == WAITS_RETRY));
    w->retry_key = NULL;
    return key;
}
