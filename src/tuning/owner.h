/*
 * What every owner of a scheduler does alike: the queue process and the simulator.
 *
 * The scheduler decides about the mail in memory. Its owner decides which message comes into
 * memory next, which one waits on disk ("parked") because its destination holds its share or is
 * dead, and when a message whose pass is over goes on. These rules are here, without a spool and
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

/* ---- which message waits on disk ------------------------------------------------------------ */

/* Of a message with more recipients left not all are read to see whether they are for one
 * destination: it is opened, and the scheduler tells when what is left is to be parked. */
#define OWNER_LOOK_MAX 100

/* The one destination of some recipients, if they are for one. Valid when zeroed: of none. */
struct owner_target {
    char *dest; /* owned: the scheduler's name of the first; NULL: there is none */
    uint32_t transport;
    bool several; /* to be set, too, when one of them waits for something else */
};

void owner_target_fini(struct owner_target *t);

/* One more recipient. */
void owner_target_add(struct owner_target *t, uint32_t transport, struct slice dest);

/* SCHED_DEFER: recipients wait for a dead destination, or for a dead transport, which is none. */
void owner_target_deferred(struct owner_target *t, const struct sched_action *action);

/* Are there recipients, all of them for one destination? At the end of a pass: those left were all
 * deferred as that destination is dead, and the message is to be parked there, so that it goes on
 * as soon as the destination is well. */
bool owner_target_is_one(const struct owner_target *t);

/* Is a message with these recipients left to be parked instead of opened, as its class holds its
 * share of the active queue there? */
bool owner_target_full(const struct sched *s, const struct owner_target *t,
                       struct slice sched_class);

/* ---- when it goes on ------------------------------------------------------------------------ */

/* How long a message of this age waits for its next pass: as long as it is old, within the bounds
 * of the configuration, spread by retry_jitter. */
int64_t owner_backoff_us(const struct conf *conf, int64_t age_us, struct rng *rng);

/* How long a message that is parked now stays so unless the scheduler asks for it: for a back-off,
 * but at most to the end of its lifetime, and if a delay warning is due (`to_warn`) to that. Below
 * 0 when its lifetime is over. */
int64_t owner_parked_us(const struct conf *conf, int64_t age_us, int64_t lifetime_us, bool to_warn,
                        struct rng *rng);

/* ---- what comes into memory next ------------------------------------------------------------ */

/* Messages brought in before the scheduler decides again. */
#define OWNER_FEED_MAX 64

/* New and deferred mail come in turn, as in Postfix, so that neither can keep the other out. A
 * turn of the owner: owner_feed_begin; while owner_feed_goes_on, take the next message of the
 * queue whose turn it is and say whether there was one; owner_feed_end. */
struct owner_feed {
    bool deferred; /* it is the turn of deferred mail; kept from one turn to the next */
    unsigned fed;  /* messages, in this turn */
    unsigned dry;  /* how often in a row nothing was there */
};

enum owner_feed_end {
    OWNER_FEED_MORE,  /* there may be more right now */
    OWNER_FEED_FULL,  /* there is no place: the next free one goes to new mail */
    OWNER_FEED_EMPTY, /* neither queue has a message that is due */
};

void owner_feed_begin(struct owner_feed *f);
bool owner_feed_goes_on(const struct owner_feed *f, bool has_place);
void owner_feed_took(struct owner_feed *f, bool found);
enum owner_feed_end owner_feed_end(struct owner_feed *f, bool has_place);

#endif
