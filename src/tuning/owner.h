/*
 * Rules common to every owner of a scheduler: the queue process and the simulator.
 *
 * The scheduler decides about the mail in memory. Its owner decides which message enters memory
 * next, which one waits on disk ("parked") because its destination has its share or is dead, and
 * when a message continues after its pass. These rules are implemented here, without a spool and
 * without a clock, so that a simulated system decides as the real one does.
 */
#ifndef TUNING_OWNER_H
#define TUNING_OWNER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "conf.h"
#include "rng.h"
#include "scheduler.h"
#include "slice.h"

/* ---- messages that wait on disk ------------------------------------------------------------- */

/* Maximum number of recipients that the owner reads to find out whether all are for one
 * destination. A message with more is opened, and the scheduler reports with SCHED_PARK if the rest
 * should be parked. */
#define OWNER_LOOK_MAX 100

/* The destination of some recipients, if they have only one. Valid when zeroed: no recipients. */
struct owner_target {
    char *dest; /* owned: the scheduler's name of the first recipient's destination; NULL: no
                 * recipients */
    uint32_t transport;
    bool several; /* several destinations; to be set, too, if a recipient waits for something
                   * else */
};

void owner_target_fini(struct owner_target *t);

/* Adds a recipient. */
void owner_target_add(struct owner_target *t, uint32_t transport, struct slice dest);

/* Adds recipients of a SCHED_DEFER, which wait for a dead destination, or for a dead transport,
 * which counts as several destinations. */
void owner_target_deferred(struct owner_target *t, const struct sched_action *action);

/* Are there recipients, all of them for one destination? True at the end of a pass means that the
 * remaining recipients were all deferred for this dead destination. Then the message is parked
 * there, so that it continues as soon as the destination is well. */
bool owner_target_is_one(const struct owner_target *t);

/* Should a message with these remaining recipients be parked instead of opened, because its class
 * has its share of the active queue there? */
bool owner_target_full(const struct sched *s, const struct owner_target *t,
                       struct slice sched_class);

/* ---- time of the next pass ------------------------------------------------------------------ */

/* Returns the wait of a message of this age for its next pass: its age, within the bounds of the
 * configuration, spread by retry_jitter. */
int64_t owner_backoff_us(const struct conf *conf, int64_t age_us, struct rng *rng);

/* Returns how long a message that is parked now stays so unless the scheduler requests it. That is
 * a back-off, but at most until the end of its lifetime, and until its delay notice if that is
 * still to be sent (`to_warn`). Negative if its lifetime is over. */
int64_t owner_parked_us(const struct conf *conf, int64_t age_us, int64_t lifetime_us, bool to_warn,
                        struct rng *rng);

/* ---- order of entering memory --------------------------------------------------------------- */

/* One rule: where new and deferred mail both wait, they enter alternately, so that neither keeps
 * the other out. "New" is mail that was never deferred. The rule applies in two places:
 *
 *   free places of the active queue, for mail that is not parked (struct owner_feed)
 *   requests of the scheduler for one destination and class (SCHED_ADMIT; struct owner_turns)
 *
 * While the active queue is full, places also alternate between these two. So each of the two gets
 * at least n/2 - 1 of n places while its mail waits. At least n/2 - 1 of n messages in one of them
 * are new, and as many deferred, while mail of both kinds waits. */

/* Alternation of new and deferred mail. While owner_turns_go_on, the owner searches for a message
 * of the kind whose turn it is, and calls owner_turns_took with the result. */
struct owner_turns {
    bool deferred; /* whether deferred mail is next */
    unsigned dry;  /* number of consecutive searches without a result */
};

static inline bool owner_turns_go_on(const struct owner_turns *t)
{
    return t->dry < 2; /* new mail, and deferred mail */
}

void owner_turns_took(struct owner_turns *t, bool found);

/* Should mail that waits for a share of its destination be parked as new mail? `is_new`: it was
 * never deferred. New mail for a dead destination becomes deferred mail at once, as in Postfix. */
bool owner_parks_as_new(const struct sched *s, uint32_t transport, struct slice dest, bool is_new);

/* Maximum number of messages that enter before the scheduler decides again. */
#define OWNER_FEED_MAX 64

/* Mail that enters without a request of the scheduler. In each of its turns the owner calls
 * owner_feed_begin; while owner_feed_goes_on, takes the next message of the kind whose turn it is
 * and calls owner_feed_took with the result; then calls owner_feed_end. */
struct owner_feed {
    struct owner_turns turns; /* kept from one turn of the owner to the next */
    unsigned fed;             /* messages that entered in this turn */
    bool full;                /* whether the last turn ended without a free place, so that mail may
                               * wait for one */
};

enum owner_feed_end {
    OWNER_FEED_MORE,  /* more messages may be due right now */
    OWNER_FEED_FULL,  /* no place is free */
    OWNER_FEED_EMPTY, /* neither kind has a message that is due */
};

void owner_feed_begin(struct owner_feed *f);
bool owner_feed_goes_on(const struct owner_feed *f, bool has_place);
void owner_feed_took(struct owner_feed *f, bool found);
/* Ends a turn of the owner and returns its result. `new_first`: the next free place of a full queue
 * goes to new mail (conf_new_mail_first). */
enum owner_feed_end owner_feed_end(struct owner_feed *f, struct sched *s, bool has_place,
                                   bool new_first);

/* May a new message that just arrived enter at once, though others may wait for a place? */
bool owner_feed_lets_in(const struct owner_feed *f);
/* Records that such a message enters. */
void owner_feed_let_in(struct owner_feed *f);

/* Reserves the next place for requested mail, after a message entered without a request. */
void owner_feed_opened(const struct owner_feed *f, struct sched *s);

#endif
