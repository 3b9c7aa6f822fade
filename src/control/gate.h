/*
 * Gates: the reasons for which mail waits, with their texts, as the API has them.
 *
 *     {"gate": "destination_dead", "closed": true, "since": T, "until": T, "value": N, "limit": N,
 *      "text": "what it is", "advice": "what an operator can do"}
 *
 * `gate` is a fixed name for programs, the texts are for people. This module makes the JSON of a
 * gate and the gates that can be found in a spool alone; queue_gate.c makes those that need the
 * queue process (facts.h). No other file has texts of gates: the command line and the dashboard
 * print these.
 */
#ifndef CONTROL_GATE_H
#define CONTROL_GATE_H

#include <stdbool.h>

#include <jansson.h>

#include "conf.h"
#include "route.h"
#include "spool.h"
#include "times.h"

json_t *gate_new(const char *name, bool closed);
void gate_count(json_t *gate, uint64_t value, uint64_t limit);       /* limit 0: none */
void gate_times(json_t *gate, struct wall since, struct wall until); /* us 0: unknown */
/* Sets "text" or "advice". */
void gate_say(json_t *gate, const char *member, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Returns a local time of day, with its date if it is more than half a day from `now`. */
struct gate_clock {
    char text[32];
};
struct gate_clock gate_clock(struct wall t, struct wall now);

/* Returns an interval like "1m 40s" for texts. */
struct gate_clock gate_interval(int64_t us);

/* A message with its texts, which are copied into this struct. */
struct gate_message {
    struct spool_message message;
    char reason[SPOOL_DIAGNOSTIC_MAX];
    char parked[SPOOL_PARKED_MAX];
    char spoolid[SPOOL_NAME_MAX];
};

/* Reads the message of the answer `show`. Returns false if it can't be decoded or is gone. */
bool gate_read(struct spool *sp, const json_t *show, struct gate_message *ret_message);

bool gate_rcpt_is_pending(const json_t *rcpt);

/* Counts a recipient in the group at `index` of `groups`. */
void gate_put_into(json_t *groups, json_t *rcpt, json_int_t index);

/* Returns the gate of a store that routes itself if no clause has a command for
 * `transport`/`nexthop`. Returns NULL if a clause has one, if the store does not route, or if its
 * agents are services of its system. */
json_t *gate_no_command(const struct conf *conf, struct slice transport, struct slice nexthop);

/* Is the message parked for this destination? If it is parked for another one its route has changed
 * since. */
bool gate_is_parked_for(const struct spool_message *m, const char *transport, const char *dest);

/* Makes the gate of a pause, which is an override as above. */
json_t *gate_paused(const json_t *pause);

/* Sets the advice for a message that can't be decoded. */
void gate_advise_corrupt(json_t *gate, const char *id);

/* Appends the gate of a message that is on hold or corrupt. */
void gate_add_state(json_t *gates, const struct spool_message *m);

/* Applies the overrides to a recipient: changes its route to the effective one, and returns the
 * overrides, each as {"name", "verb", "text", ..}, an active pause first; NULL: none. */
typedef json_t *gate_intervene(void *arg, const struct spool_message *m, struct slice address,
                               struct route *route);

/* Groups the pending recipients of a message that is not in memory by destination. `intervene` may
 * be NULL if the overrides are unknown. `show` is the message as in the API. Each pending recipient
 * gets "group", an index in the new array "groups" of {"transport", "destination", "nexthop",
 * "recipients" (their number), "gates"}. The gates are those that the spool has: on hold, corrupt,
 * parked, not due, defer_transports. */
void gate_group_on_disk(json_t *show, const struct conf *conf, const struct spool_message *m,
                        struct wall now, gate_intervene *intervene, void *arg);

/* Completes a group whose gates are all added: sets "binds" (the name of the first closed gate),
 * "advice" (of that gate) and "earliest" (the latest "until" of the closed gates). If the first
 * closed gate opens at a known time and others open later, the latest of them is moved before it,
 * because nothing can start earlier. */
void gate_sum_up(json_t *group);

/* Answers "why" for a message from a spool whose daemon does not run. Returns as listing_ask. */
unsigned gate_ask_offline(struct spool *sp, const struct conf *conf, const json_t *question,
                          struct wall now, json_t **ret_answer);

#endif
