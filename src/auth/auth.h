/*
 * The role `auth` (its table is auth_role in role.h): says who may log in to send mail.
 *
 * It alone has the verifiers of auth_users. The receive processes pass it the messages of clients
 * that log in (WIRE_AUTH) and get challenges, a yes with what the user may do, or a no. It opens
 * neither sockets nor files.
 *
 * With auth_dovecot it knows no user itself: Dovecot judges (dovecot_link.h), and the rest is the
 * same.
 *
 * Checking a password takes a while by design (PBKDF2). Messages wait in line by the address of
 * their client, and addresses take turns, so that a client that guesses waits for itself. Addresses
 * from which a login has succeeded have most of the turns, and of the others the first message of
 * a new address has, so that thousands that guess from thousands of addresses, and more than the
 * processor can check, wait for each other, and keep no user waiting. After AUTH_TURN messages the
 * process looks at its channels again. guesses.h says how long answers are held back. A login that
 * the client has given up (WIRE_AUTH_END) is forgotten.
 *
 * A token of a program that sends by HTTP (api_tokens) is a message like these, and over with its
 * answer.
 *
 * There is one such process where auth_users, auth_dovecot or api_tokens is set. When it is not
 * there, clients are told to come again.
 */
#ifndef AUTH_AUTH_H
#define AUTH_AUTH_H

#include "role.h"
#include "sasl.h"

#define AUTH_TURN 16u
/* Logins of all clients that have begun; further ones are told to come again. */
#define AUTH_LOGINS_MAX 10000u
/* Bytes: no message of the three mechanisms needs more. */
#define AUTH_MESSAGE_MAX 2048u
/* What clients are offered while Dovecot has not said what it has: all Dovecots have these. */
#define AUTH_DOVECOT_MECHANISMS (SASL_PLAIN | SASL_LOGIN)

#endif
