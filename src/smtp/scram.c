#include "scram.h"

#include <inttypes.h>
#include <string.h>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "base64.h"
#include "check.h"

/* Decodes exactly `len` bytes, or 1 to `len` if ret_len is not NULL. */
static bool get_bytes(struct slice text, uint8_t *ret_bytes, size_t len, size_t *ret_len)
{
    struct buf bytes;
    bool fits;

    buf_init(&bytes, len + 2); /* padding is decoded and cut off */
    fits = base64_get(text, &bytes) && buf_len(&bytes) > 0 &&
           (ret_len != NULL ? buf_len(&bytes) <= len : buf_len(&bytes) == len);
    if (fits) {
        memcpy(ret_bytes, buf_slice(&bytes).ptr, buf_len(&bytes));
        if (ret_len != NULL) {
            *ret_len = buf_len(&bytes);
        }
    }
    buf_fini(&bytes);
    return fits;
}

/* ---- keys ----------------------------------------------------------------------------------- */

static void hmac(const uint8_t key[SCRAM_KEY], struct slice text, uint8_t ret_sum[SCRAM_KEY])
{
    CHECK(HMAC(EVP_sha256(), key, SCRAM_KEY, (const unsigned char *)text.ptr, text.len, ret_sum,
               NULL) != NULL);
}

static void sha256(const uint8_t key[SCRAM_KEY], uint8_t ret_sum[SCRAM_KEY])
{
    CHECK(EVP_Digest(key, SCRAM_KEY, ret_sum, NULL, EVP_sha256(), NULL) == 1);
}

static void derive(struct slice password, const uint8_t *salt, size_t salt_len, uint32_t rounds,
                   uint8_t ret_client_key[SCRAM_KEY], struct scram_secret *ret)
{
    uint8_t salted[SCRAM_KEY];

    CHECK(salt_len > 0 && salt_len <= sizeof ret->salt && password.len <= INT32_MAX);
    CHECK(rounds > 0 && rounds <= SCRAM_ROUNDS_MAX);
    memset(ret, 0, sizeof *ret);
    ret->rounds = rounds;
    ret->salt_len = salt_len;
    memcpy(ret->salt, salt, salt_len);
    CHECK(PKCS5_PBKDF2_HMAC(password.ptr, (int)password.len, salt, (int)salt_len, (int)rounds,
                            EVP_sha256(), sizeof salted, salted) == 1);
    hmac(salted, SLICE("Client Key"), ret_client_key);
    sha256(ret_client_key, ret->stored_key);
    hmac(salted, SLICE("Server Key"), ret->server_key);
    OPENSSL_cleanse(salted, sizeof salted);
}

void scram_derive(struct slice password, const uint8_t *salt, size_t salt_len, uint32_t rounds,
                  struct scram_secret *ret_secret)
{
    uint8_t client_key[SCRAM_KEY];

    derive(password, salt, salt_len, rounds, client_key, ret_secret);
    OPENSSL_cleanse(client_key, sizeof client_key);
}

void scram_print(const struct scram_secret *secret, struct buf *out)
{
    (void)buf_addf(out, "%" PRIu32 ",", secret->rounds);
    base64_put(out, slice_of(secret->salt, secret->salt_len));
    (void)buf_add_byte(out, ',');
    base64_put(out, slice_of(secret->stored_key, SCRAM_KEY));
    (void)buf_add_byte(out, ',');
    base64_put(out, slice_of(secret->server_key, SCRAM_KEY));
}

bool scram_parse(struct slice text, struct scram_secret *ret_secret)
{
    struct slice rest = text, rounds = slice_cut(&rest, ','), salt = slice_cut(&rest, ','),
                 stored = slice_cut(&rest, ',');
    unsigned long long n;

    memset(ret_secret, 0, sizeof *ret_secret);
    if (!slice_number(rounds, SCRAM_ROUNDS_MAX, &n) || n < SCRAM_ROUNDS_MIN ||
        !get_bytes(salt, ret_secret->salt, sizeof ret_secret->salt, &ret_secret->salt_len) ||
        !get_bytes(stored, ret_secret->stored_key, SCRAM_KEY, NULL) ||
        !get_bytes(rest, ret_secret->server_key, SCRAM_KEY, NULL)) {
        return false;
    }
    ret_secret->rounds = (uint32_t)n;
    return true;
}

/* ---- messages ------------------------------------------------------------------------------- */

/* Headers for no channel binding and no other identity, and the same in base64. A client that
 * supports binding, but found that the server does not, sends "y". */
#define GS2_HEADER        SLICE("n,,")
#define GS2_BINDING       SLICE("c=biws")
#define GS2_COULD_HEADER  SLICE("y,,")
#define GS2_COULD_BINDING SLICE("c=eSws")

/* Cuts the attribute `name`=VALUE off the front of *rest. */
static bool cut_attribute(struct slice *rest, char name, struct slice *ret_value)
{
    struct slice part;

    if (rest->ptr == NULL) {
        return false;
    }
    part = slice_cut(rest, ',');
    if (part.len < 2 || part.ptr[0] != name || part.ptr[1] != '=') {
        return false;
    }
    *ret_value = slice_skip(part, 2);
    return true;
}

/* Decodes a user's name, where "=2C" stands for a comma and "=3D" for an equals sign. */
static bool unescape_user(struct slice text, struct buf *ret_user)
{
    for (size_t i = 0; i < text.len; i++) {
        struct slice rest = slice_skip(text, i);
        char c = text.ptr[i];

        if (slice_starts(rest, SLICE("=2C"))) {
            c = ',';
            i += 2;
        } else if (slice_starts(rest, SLICE("=3D"))) {
            i += 2;
        } else if (c == '=' || c == '\0') {
            return false;
        }
        (void)buf_add_byte(ret_user, c);
    }
    return text.len > 0 && !ret_user->failed;
}

static void escape_user(struct slice user, struct buf *out)
{
    for (size_t i = 0; i < user.len; i++) {
        char c = user.ptr[i];

        (void)(c == ','   ? buf_add_string(out, "=2C")
               : c == '=' ? buf_add_string(out, "=3D")
                          : buf_add_byte(out, c));
    }
}

/* Parses a client's first message; *ret_bare is the message without the header. */
static bool parse_client_first(struct slice message, struct slice *ret_bare, struct slice *ret_user,
                               struct slice *ret_nonce)
{
    struct slice rest;

    if (message.len > SCRAM_TEXT_MAX ||
        (!slice_starts(message, GS2_HEADER) && !slice_starts(message, GS2_COULD_HEADER))) {
        return false;
    }
    rest = *ret_bare = slice_skip(message, GS2_HEADER.len);
    return cut_attribute(&rest, 'n', ret_user) && cut_attribute(&rest, 'r', ret_nonce) &&
           ret_nonce->len > 0;
}

void scram_init(struct scram *x)
{
    memset(x, 0, sizeof *x);
    buf_init(&x->nonce, 2 * SCRAM_TEXT_MAX);
    buf_init(&x->auth_message, (size_t)4 * SCRAM_TEXT_MAX);
}

void scram_fini(struct scram *x)
{
    buf_fini(&x->nonce);
    buf_fini(&x->auth_message);
    OPENSSL_cleanse(&x->secret, sizeof x->secret);
}

bool scram_first_user(struct slice message, struct buf *ret_user)
{
    struct slice bare, user, nonce;

    return parse_client_first(message, &bare, &user, &nonce) && unescape_user(user, ret_user);
}

bool scram_server_first(struct scram *x, struct slice message, struct slice nonce,
                        const struct scram_secret *secret, struct buf *ret_message)
{
    struct slice bare, user, client_nonce;

    if (!parse_client_first(message, &bare, &user, &client_nonce)) {
        return false;
    }
    x->secret = *secret;
    x->client_could_bind = slice_starts(message, GS2_COULD_HEADER);
    (void)buf_add(&x->nonce, client_nonce);
    (void)buf_add(&x->nonce, nonce);
    (void)buf_addf(ret_message, "r=%.*s,s=", SLICE_ARGS(buf_slice(&x->nonce)));
    base64_put(ret_message, slice_of(secret->salt, secret->salt_len));
    (void)buf_addf(ret_message, ",i=%" PRIu32, secret->rounds);
    (void)buf_add(&x->auth_message, bare);
    (void)buf_add_byte(&x->auth_message, ',');
    (void)buf_add(&x->auth_message, buf_slice(ret_message));
    return !x->nonce.failed && !x->auth_message.failed && !ret_message->failed;
}

/* Completes the signed text with the client's last message up to the proof. */
static void end_auth_message(struct scram *x, struct slice without_proof)
{
    (void)buf_add_byte(&x->auth_message, ',');
    (void)buf_add(&x->auth_message, without_proof);
}

bool scram_server_final(struct scram *x, struct slice message, struct buf *ret_message)
{
    struct slice rest = message, nonce, proof_text;
    uint8_t proof[SCRAM_KEY], signature[SCRAM_KEY], digest[SCRAM_KEY];
    struct slice binding;

    if (message.len > SCRAM_TEXT_MAX || buf_len(&x->nonce) == 0) {
        return false;
    }
    binding = slice_cut(&rest, ',');
    if (!slice_equal(binding, x->client_could_bind ? GS2_COULD_BINDING : GS2_BINDING) ||
        !cut_attribute(&rest, 'r', &nonce) || !slice_equal(nonce, buf_slice(&x->nonce)) ||
        !cut_attribute(&rest, 'p', &proof_text) || rest.ptr != NULL ||
        !get_bytes(proof_text, proof, sizeof proof, NULL)) {
        return false;
    }
    end_auth_message(x, slice_of(message.ptr, (size_t)(proof_text.ptr - 3 - message.ptr)));
    if (x->auth_message.failed) {
        return false;
    }
    hmac(x->secret.stored_key, buf_slice(&x->auth_message), signature);
    for (size_t i = 0; i < sizeof proof; i++) {
        proof[i] ^= signature[i]; /* the client's key, if it has the right one */
    }
    sha256(proof, digest);
    if (CRYPTO_memcmp(digest, x->secret.stored_key, sizeof digest) != 0) {
        return false;
    }
    hmac(x->secret.server_key, buf_slice(&x->auth_message), signature);
    (void)buf_add_string(ret_message, "v=");
    base64_put(ret_message, slice_of(signature, sizeof signature));
    return !ret_message->failed;
}

void scram_client_first(struct scram *x, struct slice user, struct slice nonce,
                        struct buf *ret_message)
{
    size_t bare_at = buf_len(ret_message) + GS2_HEADER.len;

    (void)buf_add(&x->nonce, nonce);
    (void)buf_add(ret_message, GS2_HEADER);
    (void)buf_add_string(ret_message, "n=");
    escape_user(user, ret_message);
    (void)buf_addf(ret_message, ",r=%.*s", SLICE_ARGS(nonce));
    (void)buf_add(&x->auth_message, slice_skip(buf_slice(ret_message), bare_at));
}

bool scram_client_final(struct scram *x, struct slice message, struct slice password,
                        struct buf *ret_message)
{
    struct slice rest = message, nonce, salt_text, rounds_text, own = buf_slice(&x->nonce);
    uint8_t salt[SCRAM_SALT_MAX], proof[SCRAM_KEY], signature[SCRAM_KEY];
    unsigned long long rounds;
    size_t salt_len;

    if (message.len > 2 * SCRAM_TEXT_MAX || !cut_attribute(&rest, 'r', &nonce) ||
        !slice_starts(nonce, own) || nonce.len == own.len ||
        !cut_attribute(&rest, 's', &salt_text) ||
        !get_bytes(salt_text, salt, sizeof salt, &salt_len) ||
        !cut_attribute(&rest, 'i', &rounds_text) ||
        !slice_number(rounds_text, SCRAM_ROUNDS_MAX, &rounds) || rounds < SCRAM_ROUNDS_MIN) {
        return false; /* servers use at least this many rounds; fewer would make guessing easy */
    }
    (void)buf_addf(ret_message, "%.*s,r=%.*s", SLICE_ARGS(GS2_BINDING), SLICE_ARGS(nonce));
    (void)buf_add_byte(&x->auth_message, ',');
    (void)buf_add(&x->auth_message, message);
    end_auth_message(x, buf_slice(ret_message));
    if (x->auth_message.failed || ret_message->failed) {
        return false;
    }
    derive(password, salt, salt_len, (uint32_t)rounds, proof, &x->secret);
    hmac(x->secret.stored_key, buf_slice(&x->auth_message), signature);
    for (size_t i = 0; i < sizeof proof; i++) {
        proof[i] ^= signature[i];
    }
    (void)buf_add_string(ret_message, ",p=");
    base64_put(ret_message, slice_of(proof, sizeof proof));
    OPENSSL_cleanse(proof, sizeof proof);
    hmac(x->secret.server_key, buf_slice(&x->auth_message), x->server_signature);
    return !ret_message->failed;
}

bool scram_client_verify(const struct scram *x, struct slice message)
{
    struct slice rest = message, text;
    uint8_t signature[SCRAM_KEY];

    return cut_attribute(&rest, 'v', &text) && get_bytes(text, signature, sizeof signature, NULL) &&
           CRYPTO_memcmp(signature, x->server_signature, sizeof signature) == 0;
}
