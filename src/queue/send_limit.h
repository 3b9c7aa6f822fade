/*
 * Limits of the messages and recipients that a client, or a user who has logged in, may send in a
 * minute and in an hour. They limit the damage of a stolen password or a program out of control.
 *
 * The queue process counts, since all submitted mail passes through it: neither a reload nor a new
 * receiving process resets the counts. Only accepted mail counts. The counts are empty at the start
 * of a queue process.
 *
 * Method: a period is divided into SEND_SLOTS slots. The sum over the present slot and the
 * SEND_SLOTS before it covers at least the last period, so no minute and no hour exceeds its limit.
 * Room returns when a slot is past, at most a twelfth of the period late.
 *
 * Limits: SEND_COUNTS_MAX clients and as many users. A further one replaces the one whose last mail
 * is oldest. If that mail is less than an hour old, its count is lost early, and the caller is
 * informed.
 */
#ifndef QUEUE_SEND_LIMIT_H
#define QUEUE_SEND_LIMIT_H

#include <stdbool.h>
#include <stdint.h>

#include "slice.h"
#include "times.h"

#define SEND_SLOTS      12u
#define SEND_COUNTS_MAX 20000u
#define SEND_NAME_MAX   255u /* bytes of a client or user */

struct conf;

/* Order: client, then login; for each a minute, then an hour; for each messages, then
 * recipients. */
enum send_limit {
    SEND_CLIENT_MESSAGES_MINUTE,
    SEND_CLIENT_RCPTS_MINUTE,
    SEND_CLIENT_MESSAGES_HOUR,
    SEND_CLIENT_RCPTS_HOUR,
    SEND_LOGIN_MESSAGES_MINUTE,
    SEND_LOGIN_RCPTS_MINUTE,
    SEND_LOGIN_MESSAGES_HOUR,
    SEND_LOGIN_RCPTS_HOUR,
    SEND_LIMITS
};

/* Returns the name of the parameter. */
const char *send_limit_name(enum send_limit limit);

/* Returns the configured limit; 0: no limit. */
uint64_t send_limit_value(const struct conf *conf, enum send_limit limit);

/* Origin of mail; an empty name has no limit. */
struct send_origin {
    struct slice client; /* address or network, as text */
    struct slice login;
};

struct send_counts;

struct send_counts *send_counts_new(void);

/* Frees the counts; NULL is allowed. */
void send_counts_free(struct send_counts *c);

/* Returns how many recipients a message may have now, or UINT32_MAX if there is no limit.
 * *ret_limit is the limit that leaves the least room, or SEND_LIMITS. */
uint32_t send_counts_room(struct send_counts *c, const struct conf *conf,
                          const struct send_origin *origin, struct mono now,
                          enum send_limit *ret_limit);

/* Returns the seconds until there is room for a message with `rcpts` recipients, or with as many as
 * the limit allows; 0: now. Other messages may use the room first. */
uint32_t send_counts_wait_s(struct send_counts *c, const struct conf *conf,
                            const struct send_origin *origin, uint32_t rcpts, struct mono now);

/* Counts an accepted message. Returns false if the counts of another client or user were dropped
 * too early. */
bool send_counts_add(struct send_counts *c, const struct send_origin *origin, uint32_t rcpts,
                     struct mono now);

/* Counts the refusal of a message or recipient by the limit. Returns true for the first refusal
 * since this origin had room, which deserves a warning. */
bool send_counts_refused(struct send_counts *c, const struct send_origin *origin,
                         enum send_limit limit);

/* Returns the number of refusals since the start. */
uint64_t send_counts_refusals(const struct send_counts *c, enum send_limit limit);

#endif
