/*
 * How long the answers to logins wait, so that guessing passwords is slow.
 *
 * Failures are counted for the address of the client (in IPv6 its network of 64 bits) and for the
 * user. The n-th makes answers wait GUESSES_FIRST_US * 2^(n-1), at most GUESSES_LONGEST_US; after
 * GUESSES_FORGET_US without another all are forgotten.
 *
 * A refusal waits as long as the failures of address or user demand. All other answers wait for
 * those of the address alone: a client that guesses keeps no user out, and learns no sooner that it
 * has guessed right than that it has not.
 *
 * An address from which a login has succeeded is known, and not forgotten for time; one from which
 * one has failed, and none succeeded, is told from one that was never seen. Where messages wait in
 * line those of known addresses, and of new ones, need not wait for those of thousands that have
 * shown nothing but guesses.
 *
 * Bounded: GUESSES_MAX addresses, as many users and as many known addresses; the one whose last
 * failure (success) is the longest ago makes room. Without I/O.
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

/* NULL is fine. */
void guesses_free(struct guesses *g);

/* What stands for a client: its address as text, of which IPv6 keeps the first 64 bits. */
uint64_t guesses_client(struct slice address);

/* A login has failed. `user` may be empty: it is not known. */
void guesses_failed(struct guesses *g, uint64_t client, struct slice user, struct mono now);

/* A login has succeeded. */
void guesses_succeeded(struct guesses *g, uint64_t client, struct mono now);

/* Has one from that address? */
bool guesses_is_known(const struct guesses *g, uint64_t client);

/* Has one failed that is not forgotten? */
bool guesses_has_failed(const struct guesses *g, uint64_t client, struct mono now);

/* So long an answer waits. `user` is empty unless it is a refusal. */
int64_t guesses_wait_us(const struct guesses *g, uint64_t client, struct slice user,
                        struct mono now);

#endif
