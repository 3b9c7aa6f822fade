/*
 * Logins of SMTP (AUTH, RFC 4954), both sides, without I/O: the three mechanisms that clients and
 * smarthosts have in common.
 *
 *     SCRAM-SHA-256  RFC 5802, 7677; without channel binding. Neither side shows the password.
 *     PLAIN          RFC 4616: one message, "AUTHZID NUL USER NUL PASSWORD"
 *     LOGIN          no RFC, but older programs know no other: asked for user, then for password
 *
 * Messages are passed as bytes; the protocol around them sends them in base64. What holds a
 * password or a key is overwritten before its memory is given back.
 *
 *     client  init -> answer (empty) if it speaks first -> answer (challenge) ... -> accepted
 *     server  init -> take -> SASL_CHALLENGE: send it, take the answer ... -> ACCEPTED or REFUSED
 *
 * Names and passwords are compared byte by byte: they are not prepared as RFC 4013 says, which
 * changes nothing for ASCII.
 */
#ifndef SMTP_SASL_H
#define SMTP_SASL_H

#include <stdbool.h>
#include <stdint.h>

#include "buf.h"
#include "scram.h"
#include "slice.h"

/* Bytes of one message; RFC 4954 has 12288 for its base64. */
#define SASL_MESSAGE_MAX  9216
#define SASL_USER_MAX     255
#define SASL_PASSWORD_MAX 1024
#define SASL_NONCE_MAX    64

/* In order of preference, best first. */
enum sasl_mechanism {
    SASL_SCRAM_SHA_256 = 1 << 0,
    SASL_PLAIN = 1 << 1,
    SASL_LOGIN = 1 << 2,
};
#define SASL_MECHANISMS (SASL_SCRAM_SHA_256 | SASL_PLAIN | SASL_LOGIN)

/* Those that are known of a list of names with blanks between them, case aside. */
unsigned sasl_mechanisms(struct slice names);

/* "PLAIN" and so on; of a single mechanism. */
const char *sasl_mechanism_name(enum sasl_mechanism mechanism);

/* Append the names, as in "AUTH SCRAM-SHA-256 PLAIN", with a blank between two. */
void sasl_put_mechanisms(struct buf *out, unsigned mechanisms);

/* The first of these, which is the best; 0 of none. */
enum sasl_mechanism sasl_best(unsigned mechanisms);

/* ---- the client ------------------------------------------------------------------------------ */

/* Fields are private to sasl.c. */
struct sasl_client {
    enum sasl_mechanism mechanism;
    struct slice user, password;
    char nonce[SASL_NONCE_MAX];
    size_t nonce_len;
    unsigned step;
    bool peer_proven;
    struct scram scram;
};

/* `user` (1..SASL_USER_MAX bytes) and `password` (up to SASL_PASSWORD_MAX) are borrowed until fini.
 * `nonce`: fresh random text of printable bytes without commas, up to SASL_NONCE_MAX; copied. */
void sasl_client_init(struct sasl_client *c, enum sasl_mechanism mechanism, struct slice user,
                      struct slice password, struct slice nonce);
void sasl_client_fini(struct sasl_client *c);

/* Does the client send a message with its AUTH command, before any challenge? */
bool sasl_client_speaks_first(const struct sasl_client *c);

/* Append the answer to a challenge; to none, for the message that comes first. False: the server
 * asks for what the mechanism has not, or does not know the password itself. */
bool sasl_client_answer(struct sasl_client *c, struct slice challenge, struct buf *ret_message);

/* The server says that the login is good. May it be believed? A server that does not know the
 * password can't prove itself in SCRAM-SHA-256. */
bool sasl_client_accepted(const struct sasl_client *c);

/* ---- the server ------------------------------------------------------------------------------ */

enum sasl_result {
    SASL_CHALLENGE, /* the client is to answer it */
    SASL_ACCEPTED,
    SASL_REFUSED,   /* user or password are wrong */
    SASL_MALFORMED, /* no message of this mechanism */
};

/* Find what a user's login is checked against. *ret_secret is set in any case: an unknown user
 * (false) gets a made-up one that is the same each time, so that nothing shows who is known. */
typedef bool sasl_find(void *arg, struct slice user, struct scram_secret *ret_secret);

/* Fields are private to sasl.c. */
struct sasl_server {
    enum sasl_mechanism mechanism;
    sasl_find *find;
    void *arg;
    unsigned step;
    bool user_known, accepted;
    char nonce[SASL_NONCE_MAX];
    size_t nonce_len;
    char user[SASL_USER_MAX + 1];
    struct scram scram;
};

/* `nonce` as of the client; copied. */
void sasl_server_init(struct sasl_server *s, enum sasl_mechanism mechanism, struct slice nonce,
                      sasl_find *find, void *arg);
void sasl_server_fini(struct sasl_server *s);

/* A message of the client; NULL at first, when its AUTH command came without one. Appends the
 * challenge. PLAIN and LOGIN derive a key from the password, which takes as long as the secret's
 * rounds. Not to be called after another result than SASL_CHALLENGE. */
enum sasl_result sasl_server_take(struct sasl_server *s, const struct slice *message,
                                  struct buf *ret_challenge);

/* The user, from when it is known; empty before. Not to be believed before SASL_ACCEPTED. */
const char *sasl_server_user(const struct sasl_server *s);

#endif
