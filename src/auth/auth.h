/*
 * The role `auth` (its table is auth_role in role.h): checks who may log in to send mail.
 *
 * This process alone has the verifiers of auth_users. The receive processes pass it the messages of
 * clients that log in (WIRE_AUTH) and get challenges, an acceptance with the user's rights, or a
 * refusal. It opens neither sockets nor files.
 *
 * With auth_dovecot it has no users itself: Dovecot checks the logins (dovecot_link.h), and the
 * rest is the same.
 *
 * Checking a password takes a while by design (PBKDF2). Messages wait in line by the address of
 * their client, and addresses take turns, so that a client that guesses delays only itself.
 * Addresses from which a login has succeeded have most of the turns, and the first message of a new
 * address has most of the others. So thousands of addresses that guess, and send more than the
 * processor can check, wait for each other and delay no user. After AUTH_TURN messages the process
 * reads its channels again. guesses.h describes how long answers are held back. A login that the
 * client has ended (WIRE_AUTH_END) is forgotten.
 *
 * A token of a program that sends by HTTP (api_tokens) is a message like these, and its login ends
 * with the answer.
 *
 * There is one such process if auth_users, auth_dovecot or api_tokens is set. While it is not
 * running, clients get a temporary refusal.
 */
#ifndef AUTH_AUTH_H
#define AUTH_AUTH_H

#include "role.h"
#include "sasl.h"

#define AUTH_TURN 16u
/* Maximum of unfinished logins of all clients; further ones get a temporary refusal. */
#define AUTH_LOGINS_MAX 10000u
/* Maximum of bytes in a message: no message of the three mechanisms needs more. */
#define AUTH_MESSAGE_MAX 2048u
/* Mechanisms offered until Dovecot has sent its own: every Dovecot has these. */
#define AUTH_DOVECOT_MECHANISMS (SASL_PLAIN | SASL_LOGIN)

#endif
