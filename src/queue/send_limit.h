/*
 * How much a client, and a user that has logged in, may send: messages and recipients in a minute
 * and in an hour, so that a stolen password, or a program that runs wild, does limited harm.
 *
 * They are counted here, in the queue process: it is the one that all mail passes which others
 * submit, and neither a reload nor a new receive process gives a fresh allowance. What is counted
 * was accepted. At the start of the daemon, or of a new queue process, the counts are empty.
 *
 * Method: a period is divided into SEND_SLOTS slots. The sum over the present slot and the
 * SEND_SLOTS before it has at least all of the last period, so in any minute and any hour no more
 * than the limit is accepted; room comes back when a slot is past, a twelfth of the period late at
 * most.
 *
 * Bounded: SEND_COUNTS_MAX clients and as many users are known. One more takes the place of the one
 * that sent nothing for the longest time; when that was less than an hour, its allowance is a fresh
 * one, and the caller is told.
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

/* Of a client, then of a login; of each in a minute, then in an hour; messages, then recipients. */
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

/* The name of the parameter. */
const char *send_limit_name(enum send_limit limit);

/* What the configuration says; 0: no limit. */
uint64_t send_limit_value(const struct conf *conf, enum send_limit limit);

/* Where mail comes from; empty: nothing that is limited. */
struct send_origin {
    struct slice client; /* its address or network, as text */
    struct slice login;
};

struct send_counts;

struct send_counts *send_counts_new(void);

/* NULL is fine. */
void send_counts_free(struct send_counts *c);

/* How many recipients a message may have now: 0..UINT32_MAX, the latter without a limit. *ret_limit
 * is the one that leaves the least room; SEND_LIMITS: none does. */
uint32_t send_counts_room(struct send_counts *c, const struct conf *conf,
                          const struct send_origin *origin, struct mono now,
                          enum send_limit *ret_limit);

/* In how many seconds there will be room for a message of so many recipients, or for as many as the
 * limit allows; 0: now. Others may take the room first. */
uint32_t send_counts_wait_s(struct send_counts *c, const struct conf *conf,
                            const struct send_origin *origin, uint32_t rcpts, struct mono now);

/* A message was accepted. False: a client or user that is still remembered had to be forgotten. */
bool send_counts_add(struct send_counts *c, const struct send_origin *origin, uint32_t rcpts,
                     struct mono now);

/* A message or a recipient was refused because of the limit. True: the first time since this origin
 * had room, which is worth a warning. */
bool send_counts_refused(struct send_counts *c, const struct send_origin *origin,
                         enum send_limit limit);

/* How often that was, since the start. */
uint64_t send_counts_refusals(const struct send_counts *c, enum send_limit limit);

#endif
