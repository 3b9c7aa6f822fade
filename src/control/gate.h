/*
 * Gates: what stands between mail and its delivery, in words, as the API has them.
 *
 *     {"gate": "destination_dead", "closed": true, "since": T, "until": T, "value": N, "limit": N,
 *      "text": "what it is", "advice": "what an operator can do"}
 *
 * `gate` is a fixed name for programs, the texts are for people. Here are the JSON of one gate and
 * those gates that a spool alone can tell of; queue_gate.c has the words for what only the queue
 * process knows (facts.h). No other file has words for gates: the command line and the dashboard
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
void gate_count(json_t *gate, uint64_t value, uint64_t limit);       /* limit 0 = none */
void gate_times(json_t *gate, struct wall since, struct wall until); /* us 0 = not known */
/* Set "text" or "advice". */
void gate_say(json_t *gate, const char *member, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* A time of day, local, with its date when that is not within a day of `now`. */
struct gate_clock {
    char text[32];
};
struct gate_clock gate_clock(struct wall t, struct wall now);

/* "1m 40s" and the like for texts. */
struct gate_clock gate_interval(int64_t us);

/* A message with its texts, which last as long as this. */
struct gate_message {
    struct spool_message message;
    char reason[SPOOL_DIAGNOSTIC_MAX];
    char parked[SPOOL_PARKED_MAX];
    char spoolid[SPOOL_NAME_MAX];
};

/* Read the message that `show` is of. False when it can't be decoded or is gone. */
bool gate_read(struct spool *sp, const json_t *show, struct gate_message *ret_message);

bool gate_rcpt_is_pending(const json_t *rcpt);

/* Count a recipient into the group at `index` of `groups`. */
void gate_put_into(json_t *groups, json_t *rcpt, json_int_t index);

/* What keeps mail of a store that routes for `transport`/`nexthop` if no clause has a command; NULL
 * when one has, or when routes are not the store's. */
json_t *gate_no_command(const struct conf *conf, struct slice transport, struct slice nexthop);

/* The gate of a pause, which is an intervention as above. */
json_t *gate_paused(const json_t *pause);

/* Say what can be done for a message that can't be decoded. */
void gate_advise_corrupt(json_t *gate, const char *id);

/* Append the gate of a message that is on hold or corrupt. */
void gate_add_state(json_t *gates, const struct spool_message *m);

/* What operators have decided about a recipient: changes its route to where it really goes; returns
 * the interventions, {"name", "verb", "text", ..} each, the pause that holds first; NULL: none. */
typedef json_t *gate_intervene(void *arg, const struct spool_message *m, struct slice address,
                               struct route *route);

/* Group the pending recipients of a message that is not in memory by destination. `intervene` may
 * be NULL: nothing is known of interventions. `show` is the
 * message as the API has it: each of its pending recipients gets "group", its place in the array
 * "groups", which is made: {"transport", "destination", "nexthop", "recipients" (how many of
 * these), "gates"}, the gates being those that the spool can tell of: on hold, corrupt, parked, not
 * due, defer_transports. */
void gate_group_on_disk(json_t *show, const struct conf *conf, const struct spool_message *m,
                        struct wall now, gate_intervene *intervene, void *arg);

/* A group's gates are complete: set "binds" (the name of the first closed one), "advice" (of that
 * one) and "earliest" (the latest "until" of the closed ones). When the first closed gate opens at
 * a set time and others later, the latest of all takes its place first: nothing goes before. */
void gate_sum_up(json_t *group);

/* Answer "why" for a message from a spool whose daemon does not run. As listing_ask. */
unsigned gate_ask_offline(struct spool *sp, const struct conf *conf, const json_t *question,
                          struct wall now, json_t **ret_answer);

#endif
