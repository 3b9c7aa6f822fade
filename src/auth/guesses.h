/*
 * Delays of the answers to logins, so that guessing passwords is slow.
 *
 * Failures are counted for the address of the client (in IPv6 its network of 64 bits) and for the
 * user. The n-th failure delays answers by GUESSES_FIRST_US * 2^(n-1), at most GUESSES_LONGEST_US.
 * After GUESSES_FORGET_US without another failure all are forgotten.
 *
 * A refusal is delayed by the failures of the address or of the user, whichever is longer. All
 * other answers are delayed only by those of the address. So a client that guesses keeps no user
 * out, and does not learn sooner that a guess was right than that it was wrong.
 *
 * An address from which a login has succeeded is known, and not forgotten with time. An address
 * from which logins have failed, and none succeeded, differs from a new one. Messages of known
 * addresses, and of new ones, thus need not wait in line for those of thousands of addresses that
 * have only guessed.
 *
 * Bounded: GUESSES_MAX addresses, as many users and as many known addresses. If there are more, the
 * one whose last failure (or success) is the oldest is removed. Without I/O.
 */
#ifndef AUTH_GUESSES_H
#define AUTH_GUESSES_H

#include <stdbool.h>
#include <stdint.h>

#include "slice.h"
#include "times.h"

#define GUESSES_MAX        20000u
#define GUESSES_FIRST_US   (100 * US_PER_MS)
#define GUESSES_LONGEST_US (20 * US_PER_S)
#define GUESSES_FORGET_US  (15 * 60 * US_PER_S)

struct guesses;

struct guesses *guesses_new(void);

/* Frees all; NULL is allowed. */
void guesses_free(struct guesses *g);

/* Returns the key of a client, from its address as text; for IPv6 from its first 64 bits. */
uint64_t guesses_client(struct slice address);

/* Counts a failed login. `user` may be empty, if not known. */
void guesses_failed(struct guesses *g, uint64_t client, struct slice user, struct mono now);

/* Counts a successful login. */
void guesses_succeeded(struct guesses *g, uint64_t client, struct mono now);

/* Has a login from that address succeeded? */
bool guesses_is_known(const struct guesses *g, uint64_t client);

/* Has a login from that address failed, and is that not forgotten yet? */
bool guesses_has_failed(const struct guesses *g, uint64_t client, struct mono now);

/* Returns the delay of an answer. `user` is empty unless the answer is a refusal. */
int64_t guesses_wait_us(const struct guesses *g, uint64_t client, struct slice user,
                        struct mono now);

#endif
