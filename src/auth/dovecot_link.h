/*
 * The connection to Dovecot's auth service (auth_dovecot), and the logins that wait for it.
 *
 * This process can open no socket, so the parent connects (WIRE_AUTH_CONNECT) and hands the
 * connection over (WIRE_AUTH_CONNECTED). That is asked for at the start, and when a login comes and
 * there is none.
 *
 *     NONE --asked for--> ASKED --connected--> GREETING --ready--> READY
 *       ^                   |                     |                  |
 *       +-------------------+--- refused, lost, too slow, a lie -----+
 *
 * Logins that come before READY wait. When the connection is lost, all that are under way end with
 * DOVECOT_UNAVAILABLE: their clients are told to come again. So does a login that Dovecot has not
 * answered for DOVECOT_ANSWER_US. If Dovecot has said nothing at all since that login was passed on
 * it is taken for hanging, and the connection is closed.
 */
#ifndef AUTH_DOVECOT_LINK_H
#define AUTH_DOVECOT_LINK_H

#include <stdbool.h>
#include <stdint.h>

#include "dovecot.h"
#include "slice.h"
#include "times.h"

struct role;
struct dovecot_link;

/* Dovecot holds back a refusal by 2 s, and one of a client that guesses by up to 15 s. */
#define DOVECOT_ANSWER_US (30 * US_PER_S)

/* What came of a login's message: DOVECOT_CHALLENGE, _ACCEPTED, _REFUSED or _UNAVAILABLE. Of the
 * functions of this header dovecot_link_connected, _lost and _free call it, no others. */
typedef void dovecot_link_answer(void *login, const struct dovecot_event *event);

/* Dovecot's mechanisms have become known, or others. */
typedef void dovecot_link_mechanisms(void *arg, unsigned mechanisms);

/* Asks the parent for the first connection. */
struct dovecot_link *dovecot_link_new(struct role *role, dovecot_link_answer *answer,
                                      dovecot_link_mechanisms *changed, void *arg);

/* Logins that are under way end. NULL is fine. */
void dovecot_link_free(struct dovecot_link *link);

/* The parent's answer. `fd` (taken) is -1 when it could not connect: `why`. */
void dovecot_link_connected(struct dovecot_link *link, int fd, struct slice why);

/* The configuration names another socket: leave the present one. */
void dovecot_link_lost(struct dovecot_link *link);

void dovecot_link_clock_moved(struct dovecot_link *link);

/* A message of a login, which gets one answer. `id` is 0 with its first, then what was returned;
 * `login` is what `answer` gets. Returns the login's id; 0: it was under way on a connection that
 * is lost, or Dovecot has given it up, and there will be no answer. */
uint32_t dovecot_link_ask(struct dovecot_link *link, void *login, uint32_t id,
                          const struct dovecot_request *request);

/* The login is over; there is no answer any more. 0 and ids of ended logins are fine. */
void dovecot_link_forget(struct dovecot_link *link, uint32_t id);

#endif
