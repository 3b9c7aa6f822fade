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

/* What a login is checked against. */
struct scram_secret {
    uint32_t rounds;
    uint8_t salt[SCRAM_SALT_MAX];
    size_t salt_len;
    uint8_t stored_key[SCRAM_KEY], server_key[SCRAM_KEY];
};

/* Derive it from a password (PBKDF2 with HMAC-SHA-256). salt_len 1..SCRAM_SALT_MAX. */
void scram_derive(struct slice password, const uint8_t *salt, size_t salt_len, uint32_t rounds,
                  struct scram_secret *ret_secret);

/* As it stands in an auth file: "ROUNDS,SALT,STORED-KEY,SERVER-KEY", the last three in base64. */
void scram_print(const struct scram_secret *secret, struct buf *out);
bool scram_parse(struct slice text, struct scram_secret *ret_secret);

/* One login; buffers are owned, scram_fini releases them. Both sides keep the same. */
struct scram {
    struct buf nonce; /* the client's, then both */
    struct buf auth_message;
    bool client_could_bind;
    struct scram_secret secret;          /* server: what it is checked against */
    uint8_t server_signature[SCRAM_KEY]; /* client: what it expects */
};
void scram_init(struct scram *x);
void scram_fini(struct scram *x);

/* The server's side. The user's name is part of the first message: find it out, look the secret up,
 * go on. `nonce` is fresh random text of printable bytes without commas. For a user that is not
 * there go on all the same with a made-up secret, so that a client does not learn which users are.
 * False: not the message that was expected. */
bool scram_first_user(struct slice message, struct buf *ret_user);
bool scram_server_first(struct scram *x, struct slice message, struct slice nonce,
                        const struct scram_secret *secret, struct buf *ret_message);
bool scram_server_final(struct scram *x, struct slice message, struct buf *ret_message);

/* The client's side. */
void scram_client_first(struct scram *x, struct slice user, struct slice nonce,
                        struct buf *ret_message);
bool scram_client_final(struct scram *x, struct slice message, struct slice password,
                        struct buf *ret_message);
bool scram_client_verify(const struct scram *x, struct slice message);

#endif
