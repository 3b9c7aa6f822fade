/*
 * All overrides in force: stored in the spool, and applied to mail. In a cluster they are stored,
 * and in force, for all nodes (intervention_share.h).
 *
 * The scheduler has no overrides. They are applied to each recipient when its route is found
 * (queue_route.h), each time its message is read into memory:
 *
 *     redirect, bounce   change the route; a bounce to the transport `error`
 *     pause              returns the recipient to the disk, under a key of the pause
 *     limit              changes the scheduler's policy of a destination
 *
 * For one recipient a pause has precedence over a bounce, and a bounce over a redirect, so that a
 * decision that can be undone comes first. Among overrides with one verb intervention_precedes
 * decides; among pauses the one that ends last applies.
 *
 * Setting and cancelling is one small commit. The effect on existing mail is work, done in parts in
 * each turn, so that no delivery waits for it:
 *
 *     sweep   messages in memory that are affected leave memory, and are read and routed again
 *     walk    messages on disk that are affected get their new route, and are due
 *     wake    messages that a pause has kept are due
 *     tell    destinations in memory get their limits
 *
 * Work is not stored. After a crash two things complete it: a search for keys of ended pauses at
 * the start, and the due time of each message, which is never later than the longest back-off.
 *
 * An override that can't be read must not release the mail that it has kept. So it is in force as a
 * pause that an operator must cancel. It applies to the override's own mail if its checksum is
 * right and this program or configuration does not support it. It applies to all mail if the
 * override is damaged, if some were lost, or if the store can't be read, because then the mail is
 * unknown.
 *
 * Limits: INTERVENTIONS_MAX overrides, of which INTERVENTION_PATTERNS_MAX may be patterns, because
 * a pattern costs a comparison for each recipient.
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

/* Private to the three .c files of overrides; setting_fault.c reads it. */
struct interventions {
    struct intervention_list list;  /* sorted by number */
    struct intervention *by_key;    /* without patterns; the newest of each key */
    struct intervention **patterns; /* owned array */
    size_t count, pattern_count;
    size_t counts[INTERVENTION_VERBS];
    size_t pending;    /* number of changes whose commit is in flight */
    size_t unreadable; /* number of pauses that stand for an unreadable override */
    uint64_t last_number;
    uint64_t routes;      /* stored generation by which all mail on disk was routed; 0: unknown */
    uint64_t limits;      /* grows with each change of a limit; see destination.limits */
    struct wall next_end; /* earliest end; WALL_NEVER: none */
    struct intervention_works works; /* the first is active */
    uint64_t looks;                  /* number of walks over mail on disk that were begun
                                        (spool_filter.look) */
    bool awaits;                     /* mail for the work is not loaded: no work continues before */
    struct intervention **changed;   /* owned array of references; overrides of the next sweep */
    struct intervention **sweeping;  /* owned array of references; overrides of the current sweep */
    size_t changed_count, sweeping_count;
    struct mono sweep_begun;
    struct intervention_share share;
};

/* Reads the stored overrides. */
void interventions_begin(struct queue *q);
void interventions_end(struct queue *q);

/* ---- what operators do ---- */

/* Sets an override and makes it durable. Parameters and result as `later` of operation.h; the
 * answer is the override, or an error. */
unsigned interventions_set(struct queue *q, const json_t *question, uint64_t token,
                           json_t **ret_answer);

/* Cancels the override with this name. Parameters and result as interventions_set. */
unsigned interventions_cancel(struct queue *q, const char *name, uint64_t token,
                              json_t **ret_answer);

/* Lists up to `max` overrides with numbers above `after`. The pointers are borrowed. */
size_t interventions_list(const struct interventions *is, uint64_t after,
                          const struct intervention **ret, size_t max);

/* Returns the override with this name; NULL if there is none, or if its end is being committed. */
struct intervention *interventions_find(const struct interventions *is, const char *name);

/* Returns the number of overrides of a verb. */
static inline size_t interventions_count(const struct interventions *is,
                                         enum intervention_verb verb)
{
    return is->counts[verb];
}

/* ---- for intervention_share.c ---- */

/* Puts a stored override in force; takes the reference. `at_start`: no mail has been read yet, so
 * there is no work. */
void interventions_enter(struct queue *q, struct intervention *i, bool at_start);
/* Logs an error: an unreadable override is in force as a pause. */
void interventions_log_unreadable(const struct intervention *i);
/* Ends an override that is no longer stored. */
void interventions_leave(struct queue *q, struct intervention *i, const char *why);
/* Ends this node's own override, because the store of all nodes has it now. */
void interventions_hand_over(struct queue *q, struct intervention *i);
/* Adds an event to the journal, in the batch: the override was set, or cancelled. */
void interventions_tell_journal(struct queue *q, const struct intervention *i, bool is_set);
/* Returns the error answer to a change that the spool has refused. */
unsigned interventions_failed(struct queue *q, int rc, json_t **ret_answer);

/* Stores, in the batch, that all mail on disk was routed by the tables in force, so that the next
 * start with these tables need not. */
void interventions_store_routes(struct queue *q);

/* ---- what they do to mail ---- */

enum intervene {
    INTERVENE_COUNT = 1, /* the recipient is handled now, not only examined */
    INTERVENE_FIXED = 2, /* a rule made the route, such as a content filter: a redirect of the
                            recipient's domain must not bypass it */
};

/* Applies redirects and bounces to a route, and returns the pause in force; NULL: none. `how` has
 * bits of `enum intervene`. */
struct intervention *interventions_route(struct queue *q, struct slice sender,
                                         struct slice class_name, struct slice address,
                                         struct route *route, unsigned how);

/* Finds overrides of all verbs that apply to this mail, at most `max`, those in force first.
 * `route` is the route without overrides. The pointers are borrowed. */
size_t interventions_about(const struct queue *q, struct slice sender, struct slice class_name,
                           struct slice address, const struct route *route,
                           const struct intervention **ret, size_t max);

/* Returns the pause of all mail for a destination; NULL: none. */
const struct intervention *interventions_pause_of(const struct queue *q, const char *transport,
                                                  struct slice nexthop);

/* Returns the next hop to which a redirect of `wanted`, "nexthop" or "transport/nexthop", leads;
 * empty: none. Valid as long as that redirect. */
struct slice interventions_leads_to(const struct queue *q, struct slice wanted);

/* Is there a redirect of a domain or a pattern, which moves some of the mail whose route leads to
 * `wanted`, "nexthop" or "transport/nexthop"? Returns true if that is not obvious. */
bool interventions_may_lead_from(const struct queue *q, struct slice wanted);

/* Finds overrides of all mail for a destination, at most `max`, the pause in force first. The
 * pointers are borrowed. */
size_t interventions_of_destination(const struct queue *q, const char *transport,
                                    struct slice nexthop, const struct intervention **ret,
                                    size_t max);

/* Sets the values of limits in the policy of a destination, or of a transport (nexthop empty).
 * Returns true if there are any. */
bool interventions_limit(const struct queue *q, const char *transport, struct slice nexthop,
                         struct policy *policy);

/* Returns recipients for one destination to the disk because of a pause. */
void interventions_keep(struct queue *q, struct active_msg *m, const uint32_t *ns, size_t count,
                        struct destination *destination, const struct intervention *pause);

/* Returns the key under which a pause parks mail; the caller frees it. */
char *interventions_key(const struct intervention *pause);

/* ---- work (intervention_work.c) ---- */

/* Adds the work that follows after `i` was set or cancelled. */
void interventions_follow(struct queue *q, struct intervention *i, bool is_set);

/* Adds a walk over all mail on disk, because the configuration has changed its routes. */
void interventions_reroute(struct queue *q);

/* Adds a search for mail that is parked under keys of ended pauses. */
void interventions_look_at_keys(struct queue *q);

/* Does a part of the work, and ends overrides whose time is over. Returns true if there is more. */
bool interventions_turn(struct queue *q);

/* Does a part of the work. Returns true if there is more. */
bool interventions_work(struct queue *q);

/* Are all changes applied to all mail and destinations in memory? */
bool interventions_are_in_force(const struct interventions *is);

/* Returns the time of the next end; WALL_NEVER: none. */
struct wall interventions_at(const struct interventions *is);

void interventions_work_fini(struct interventions *is);

#endif
