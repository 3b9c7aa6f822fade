/*
 * SCRAM-SHA-256 (RFC 5802, 7677), both sides, without channel binding: a login that neither shows
 * the password on the wire nor needs it in the auth file.
 *
 *   client  n,,n=USER,r=NONCE
 *   server  r=NONCE+MORE,s=SALT,i=ROUNDS
 *   client  c=biws,r=NONCE+MORE,p=PROOF
 *   server  v=SIGNATURE
 *
 * Messages are passed here as plain text; the protocol around them sends each in base64.
 */
#ifndef SMTP_SCRAM_H
#define SMTP_SCRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "slice.h"

#define SCRAM_KEY        32 /* bytes of a key and of a proof: SHA-256 */
#define SCRAM_SALT_MAX   64
#define SCRAM_ROUNDS_MIN 4096
#define SCRAM_ROUNDS_MAX 10000000
#define SCRAM_TEXT_MAX   1024 /* bytes of a message */

/* Secret of a user, against which a login is checked. */
struct scram_secret {
    uint32_t rounds;
    uint8_t salt[SCRAM_SALT_MAX];
    size_t salt_len;
    uint8_t stored_key[SCRAM_KEY], server_key[SCRAM_KEY];
};

/* Derives a secret from a password (PBKDF2 with HMAC-SHA-256). salt_len is 1..SCRAM_SALT_MAX. */
void scram_derive(struct slice password, const uint8_t *salt, size_t salt_len, uint32_t rounds,
                  struct scram_secret *ret_secret);

/* Prints or parses the form in an auth file: "ROUNDS,SALT,STORED-KEY,SERVER-KEY", the last three in
 * base64. */
void scram_print(const struct scram_secret *secret, struct buf *out);
bool scram_parse(struct slice text, struct scram_secret *ret_secret);

/* One login, for both sides; buffers are owned, scram_fini releases them. */
struct scram {
    struct buf nonce; /* the client's, later both parts */
    struct buf auth_message;
    bool client_could_bind;
    struct scram_secret secret;          /* server: secret of the user */
    uint8_t server_signature[SCRAM_KEY]; /* client: signature that the server must send */
};
void scram_init(struct scram *x);
void scram_fini(struct scram *x);

/* Serves a login: scram_first_user reads the user's name from the first message, the caller looks
 * up the secret, and scram_server_first and scram_server_final reply to the two messages. `nonce`
 * is fresh random text of printable bytes without commas. The caller continues for an unknown user
 * with a made-up secret, so that a client does not learn which users exist. Each function returns
 * false for an unexpected message. */
bool scram_first_user(struct slice message, struct buf *ret_user);
bool scram_server_first(struct scram *x, struct slice message, struct slice nonce,
                        const struct scram_secret *secret, struct buf *ret_message);
bool scram_server_final(struct scram *x, struct slice message, struct buf *ret_message);

/* Composes the client's two messages and verifies the server's last one. scram_client_final and
 * scram_client_verify return false for an unexpected message. */
void scram_client_first(struct scram *x, struct slice user, struct slice nonce,
                        struct buf *ret_message);
bool scram_client_final(struct scram *x, struct slice message, struct slice password,
                        struct buf *ret_message);
bool scram_client_verify(const struct scram *x, struct slice message);

#endif
