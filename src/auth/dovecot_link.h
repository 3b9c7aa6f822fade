/*
 * The connection to Dovecot's auth service (auth_dovecot), and the logins that wait for it.
 *
 * This process can't open a socket, so the parent connects (WIRE_AUTH_CONNECT) and passes the
 * connection on (WIRE_AUTH_CONNECTED). The connection is requested at the start, and when a login
 * arrives while there is none.
 *
 *     NONE --requested--> ASKED --connected--> GREETING --ready--> READY
 *       ^                   |                     |                  |
 *       +-------------------+-- refused, lost, too slow, invalid ----+
 *
 * Logins that arrive before READY wait. When the connection is lost, all unfinished logins end with
 * DOVECOT_UNAVAILABLE, and their clients get a temporary refusal. So does a login that Dovecot has
 * not answered for DOVECOT_ANSWER_US. If Dovecot has sent nothing at all since that login was
 * passed on, it is considered hung, and the connection is closed.
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

/* Time limit of an answer. Dovecot holds back a refusal for 2 s, and for a client that guesses up
 * to 15 s. */
#define DOVECOT_ANSWER_US (30 * US_PER_S)

/* Called with the answer to a login's message: DOVECOT_CHALLENGE, _ACCEPTED, _REFUSED or
 * _UNAVAILABLE. Among the functions of this header only dovecot_link_connected, _lost and _free
 * call it. */
typedef void dovecot_link_answer(void *login, const struct dovecot_event *event);

/* Called when Dovecot's mechanisms become known or change. */
typedef void dovecot_link_mechanisms(void *arg, unsigned mechanisms);

/* Asks the parent for the first connection. */
struct dovecot_link *dovecot_link_new(struct role *role, dovecot_link_answer *answer,
                                      dovecot_link_mechanisms *changed, void *arg);

/* Frees the link; unfinished logins end. NULL is allowed. */
void dovecot_link_free(struct dovecot_link *link);

/* Processes the parent's answer. `fd` (taken over) is -1 if the parent could not connect, for the
 * reason `why`. */
void dovecot_link_connected(struct dovecot_link *link, int fd, struct slice why);

/* Leaves the present connection, because the configuration names another socket. */
void dovecot_link_lost(struct dovecot_link *link);

void dovecot_link_clock_moved(struct dovecot_link *link);

/* Passes on a message of a login, which gets one answer. `id` is 0 with the first message, later
 * the value returned; `login` is the argument of `answer`. Returns the login's id. Returns 0,
 * without an answer to follow, if the login was on a connection that is lost, or Dovecot has ended
 * it. */
uint32_t dovecot_link_ask(struct dovecot_link *link, void *login, uint32_t id,
                          const struct dovecot_request *request);

/* Forgets a login, which gets no further answer. 0 and ids of ended logins are allowed. */
void dovecot_link_forget(struct dovecot_link *link, uint32_t id);

#endif
