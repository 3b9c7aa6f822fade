/*
 * Logins of SMTP (AUTH, RFC 4954), both sides, without I/O: the three mechanisms that clients and
 * smarthosts have in common.
 *
 *     SCRAM-SHA-256  RFC 5802, 7677; without channel binding. Neither side shows the password.
 *     PLAIN          RFC 4616: one message, "AUTHZID NUL USER NUL PASSWORD"
 *     LOGIN          no RFC, but older programs support nothing else: prompts for user and password
 *
 * Messages are passed as bytes; the protocol around them sends them in base64. Memory that held a
 * password or a key is overwritten before it is freed.
 *
 *     client  init -> answer (empty) if it speaks first -> answer (challenge) ... -> accepted
 *     server  init -> take -> SASL_CHALLENGE: send it, take the answer ... -> ACCEPTED or REFUSED
 *
 * Names and passwords are compared byte by byte, without the preparation of RFC 4013, which changes
 * nothing for ASCII.
 */
#ifndef SMTP_SASL_H
#define SMTP_SASL_H

#include <stdbool.h>
#include <stdint.h>

#include "buf.h"
#include "scram.h"
#include "slice.h"

/* Maximum of bytes of one message; RFC 4954 has 12288 for its base64. */
#define SASL_MESSAGE_MAX  9216
#define SASL_USER_MAX     255
#define SASL_PASSWORD_MAX 1024
#define SASL_NONCE_MAX    64

/* Mechanisms, in order of preference, best first. */
enum sasl_mechanism {
    SASL_SCRAM_SHA_256 = 1 << 0,
    SASL_PLAIN = 1 << 1,
    SASL_LOGIN = 1 << 2,
};
#define SASL_MECHANISMS (SASL_SCRAM_SHA_256 | SASL_PLAIN | SASL_LOGIN)

/* Returns the supported mechanisms in a list of names with blanks between them, in any case. */
unsigned sasl_mechanisms(struct slice names);

/* Returns "PLAIN" and so on, for a single mechanism. */
const char *sasl_mechanism_name(enum sasl_mechanism mechanism);

/* Appends the names, as in "AUTH SCRAM-SHA-256 PLAIN", with a blank between two. */
void sasl_put_mechanisms(struct buf *out, unsigned mechanisms);

/* Returns the best of these mechanisms; 0 if there is none. */
enum sasl_mechanism sasl_best(unsigned mechanisms);

/* ---- the client ------------------------------------------------------------------------------ */

/* A login of the client. Fields are private to sasl.c. */
struct sasl_client {
    enum sasl_mechanism mechanism;
    struct slice user, password;
    char nonce[SASL_NONCE_MAX];
    size_t nonce_len;
    unsigned step;
    bool peer_proven;
    struct scram scram;
};

/* Starts a login. `user` (1..SASL_USER_MAX bytes) and `password` (up to SASL_PASSWORD_MAX) are
 * borrowed until fini. `nonce`: fresh random text of printable bytes without commas, up to
 * SASL_NONCE_MAX; copied. */
void sasl_client_init(struct sasl_client *c, enum sasl_mechanism mechanism, struct slice user,
                      struct slice password, struct slice nonce);
void sasl_client_fini(struct sasl_client *c);

/* Does the client send a message with its AUTH command, before any challenge? */
bool sasl_client_speaks_first(const struct sasl_client *c);

/* Appends the answer to a challenge, or the first message if the challenge is empty. Returns false
 * if the challenge does not fit the mechanism, or shows that the server itself lacks the
 * password. */
bool sasl_client_answer(struct sasl_client *c, struct slice challenge, struct buf *ret_message);

/* May the client trust the server's acceptance of the login? In SCRAM-SHA-256 a server without the
 * password can't prove itself. */
bool sasl_client_accepted(const struct sasl_client *c);

/* ---- the server ------------------------------------------------------------------------------ */

enum sasl_result {
    SASL_CHALLENGE, /* the client must answer it */
    SASL_ACCEPTED,
    SASL_REFUSED,   /* user or password is wrong */
    SASL_MALFORMED, /* the message does not fit the mechanism */
};

/* Finds the secret for a user's login. *ret_secret is set in any case: an unknown user (false) gets
 * a made-up secret that is the same each time, so that replies do not reveal which users exist. */
typedef bool sasl_find(void *arg, struct slice user, struct scram_secret *ret_secret);

/* A login at the server. Fields are private to sasl.c. */
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

/* Starts a login. `nonce` as for the client; copied. */
void sasl_server_init(struct sasl_server *s, enum sasl_mechanism mechanism, struct slice nonce,
                      sasl_find *find, void *arg);
void sasl_server_fini(struct sasl_server *s);

/* Processes a message of the client; NULL at first, if its AUTH command had none. Appends the
 * challenge. PLAIN and LOGIN derive a key from the password, which costs the secret's rounds. Must
 * not be called after another result than SASL_CHALLENGE. */
enum sasl_result sasl_server_take(struct sasl_server *s, const struct slice *message,
                                  struct buf *ret_challenge);

/* Returns the user as soon as it is known; empty before. Not verified before SASL_ACCEPTED. */
const char *sasl_server_user(const struct sasl_server *s);

#endif
