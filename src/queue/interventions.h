/*
 * The interventions that hold: kept in the spool, applied to mail. Where several nodes have the
 * spool they are kept, and hold, for all (intervention_share.h).
 *
 * They are a gate in front of the scheduler, whose core does not know them: a recipient is looked
 * at where its route is found (queue_route.h), each time its message comes into memory.
 *
 *     redirect, bounce   change the route, the latter to the transport `error`
 *     pause              the recipient is put back on disk, under a key of the pause
 *     limit              changes what the scheduler is told of a destination
 *
 * Of one recipient a pause holds before a bounce, and a bounce before a redirect: what can be
 * undone goes first. Of several with one verb the one that holds is said by
 * intervention_precedes, except for pauses: it waits for the one that ends last.
 *
 * Setting and cancelling is one small commit. What follows for mail that is there already is work
 * that is done a bit in each turn, so that no delivery waits for it:
 *
 *     sweep   messages in memory that it is about leave memory, and come back through the gate
 *     walk    messages on disk that it is about get their new route, and are due
 *     wake    messages that a pause has kept are due
 *     tell    destinations in memory get their limits
 *
 * That work is not kept. What a crash leaves undone of it is done by a look at the keys of pauses
 * at the start, and by mail coming into memory at its time, which is never later than the longest
 * back-off.
 *
 * Owns the interventions. Limits: INTERVENTIONS_MAX, INTERVENTION_PATTERNS_MAX of them patterns, as
 * those cost a comparison for each recipient.
 */
#ifndef QUEUE_INTERVENTIONS_H
#define QUEUE_INTERVENTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "active.h"
#include "intervention.h"
#include "intervention_share.h"
#include "route.h"
#include "spool_search.h"

struct queue;

#define INTERVENTIONS_MAX         10000u
#define INTERVENTION_PATTERNS_MAX 200u

TAILQ_HEAD(intervention_list, intervention);
struct intervention_work;
STAILQ_HEAD(intervention_works, intervention_work);

/* Fields are private to interventions.c, intervention_share.c and intervention_work.c. */
struct interventions {
    struct intervention_list list;  /* in order of numbers */
    struct intervention *by_key;    /* those without patterns, the newest of each key */
    struct intervention **patterns; /* owned array */
    size_t count, pattern_count;
    size_t counts[INTERVENTION_VERBS];
    size_t pending; /* changes whose commits are under way */
    uint64_t last_number;
    uint64_t limits;                 /* grows with each change of one: destinations compare it */
    struct wall next_end;            /* of the first that ends; WALL_NEVER */
    struct intervention_works works; /* to be done, the first is under way */
    uint64_t looks;                  /* through mail on disk, begun */
    bool awaits;                     /* mail that is not at hand: none goes on before */
    struct intervention **changed;   /* owned array of references: for the sweep to come */
    struct intervention **sweeping;  /* for the one under way */
    size_t changed_count, sweeping_count;
    struct intervention_share share;
};

/* Read them from the spool. */
void interventions_begin(struct queue *q);
void interventions_end(struct queue *q);

/* ---- what operators do ---- */

/* Set one and make it durable: as `later` of operation.h. The answer is itself, or an error. */
unsigned interventions_set(struct queue *q, const json_t *question, uint64_t token,
                           json_t **ret_answer);

/* Cancel the one with this name. Likewise. */
unsigned interventions_cancel(struct queue *q, const char *name, uint64_t token,
                              json_t **ret_answer);

/* Up to `max`, those with numbers above `after`. Borrowed. */
size_t interventions_list(const struct interventions *is, uint64_t after,
                          const struct intervention **ret, size_t max);

/* With this name, if it is not about to end; or NULL. */
struct intervention *interventions_find(const struct interventions *is, const char *name);

/* How many of a verb hold. */
static inline size_t interventions_count(const struct interventions *is,
                                         enum intervention_verb verb)
{
    return is->counts[verb];
}

/* ---- for intervention_share.c ---- */

/* One that is stored is in force from now on; takes the reference. `at_start`: no mail has been
 * looked at yet. */
void interventions_enter(struct queue *q, struct intervention *i, bool at_start);
/* One that is stored no more is not in force any more. */
void interventions_leave(struct queue *q, struct intervention *i, const char *why);
/* One that is this node's own is in the store of all: it leaves its own, too. */
void interventions_hand_over(struct queue *q, struct intervention *i);
/* For the journal, in the batch: it was set, or cancelled. */
void interventions_tell_journal(struct queue *q, const struct intervention *i, bool is_set);
/* The answer to a change that the spool has refused. */
unsigned interventions_failed(struct queue *q, int rc, json_t **ret_answer);

/* ---- what they do to mail ---- */

enum intervene {
    INTERVENE_COUNT = 1, /* the recipient is really handled now, not only looked at */
    INTERVENE_FIXED = 2, /* a rule says where it goes, a content filter perhaps: a redirect of its
                            domain is not to take it past that */
};

/* Apply redirects and bounces to a route that was found; the pause that holds, or NULL. `how`: of
 * enum intervene. */
struct intervention *interventions_route(struct queue *q, struct slice sender,
                                         struct slice class_name, struct slice address,
                                         struct route *route, unsigned how);

/* Those that are about this mail, of all verbs, at most `max`: those that hold first. `route` is
 * that of before. Borrowed. */
size_t interventions_about(const struct queue *q, struct slice sender, struct slice class_name,
                           struct slice address, const struct route *route,
                           const struct intervention **ret, size_t max);

/* The pause of all mail for a destination, or NULL. */
const struct intervention *interventions_pause_of(const struct queue *q, const char *transport,
                                                  struct slice nexthop);

/* Those about all mail for a destination, the pause that holds first. As interventions_about. */
size_t interventions_of_destination(const struct queue *q, const char *transport,
                                    struct slice nexthop, const struct intervention **ret,
                                    size_t max);

/* Put the values of limits into the policy of a destination, or of a transport (nexthop empty).
 * True when there were some. */
bool interventions_limit(const struct queue *q, const char *transport, struct slice nexthop,
                         struct policy *policy);

/* Recipients for one destination are put back because of a pause. */
void interventions_keep(struct queue *q, struct active_msg *m, const uint32_t *ns, size_t count,
                        struct destination *destination, const struct intervention *pause);

/* The key under which mail is parked that a pause keeps; to be freed. */
char *interventions_key(const struct intervention *pause);

/* ---- work (intervention_work.c) ---- */

/* Something has changed: `i` was set or was cancelled. */
void interventions_follow(struct queue *q, struct intervention *i, bool is_set);

/* The routes of all mail on disk are to be looked at: the configuration has changed. */
void interventions_reroute(struct queue *q);

/* Mail may be parked under keys of pauses that are over. */
void interventions_look_at_keys(struct queue *q);

/* A piece of it, and the ends of those whose time is over. True when there is more. */
bool interventions_turn(struct queue *q);

/* The same without looking at ends. */
bool interventions_work(struct queue *q);

/* Does no mail, and no destination, in memory go on as it did before one was set or cancelled? */
bool interventions_are_in_force(const struct interventions *is);

/* When one ends. */
struct wall interventions_at(const struct interventions *is);

void interventions_work_fini(struct interventions *is);

#endif
