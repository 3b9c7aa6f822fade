#include "sasl.h"

#include <string.h>

#include <openssl/crypto.h>

#include "check.h"

static const struct {
    enum sasl_mechanism mechanism;
    const char *name;
} names[] = {
    {SASL_SCRAM_SHA_256, "SCRAM-SHA-256"},
    {SASL_PLAIN, "PLAIN"},
    {SASL_LOGIN, "LOGIN"},
};
#define NAME_COUNT (sizeof names / sizeof names[0])

unsigned sasl_mechanisms(struct slice words)
{
    unsigned found = 0;

    while (words.len > 0) {
        struct slice word = slice_cut(&words, ' ');

        for (size_t i = 0; i < NAME_COUNT; i++) {
            if (slice_equal_nocase(word, slice_string(names[i].name))) {
                found |= names[i].mechanism;
            }
        }
    }
    return found;
}

const char *sasl_mechanism_name(enum sasl_mechanism mechanism)
{
    for (size_t i = 0; i < NAME_COUNT; i++) {
        if (names[i].mechanism == mechanism) {
            return names[i].name;
        }
    }
    UNREACHABLE("no single mechanism");
}

void sasl_put_mechanisms(struct buf *out, unsigned mechanisms)
{
    const char *between = "";

    for (size_t i = 0; i < NAME_COUNT; i++) {
        if ((mechanisms & names[i].mechanism) != 0) {
            (void)buf_addf(out, "%s%s", between, names[i].name);
            between = " ";
        }
    }
}

enum sasl_mechanism sasl_best(unsigned mechanisms)
{
    return (enum sasl_mechanism)(mechanisms & -mechanisms & SASL_MECHANISMS);
}

/* ---- the client ------------------------------------------------------------------------------ */

void sasl_client_init(struct sasl_client *c, enum sasl_mechanism mechanism, struct slice user,
                      struct slice password, struct slice nonce)
{
    CHECK(user.len > 0 && user.len <= SASL_USER_MAX && password.len <= SASL_PASSWORD_MAX);
    CHECK(nonce.len > 0 && nonce.len <= SASL_NONCE_MAX);
    *c = (struct sasl_client){.mechanism = mechanism, .user = user, .password = password};
    memcpy(c->nonce, nonce.ptr, nonce.len);
    c->nonce_len = nonce.len;
    scram_init(&c->scram);
}

void sasl_client_fini(struct sasl_client *c)
{
    scram_fini(&c->scram);
}

bool sasl_client_speaks_first(const struct sasl_client *c)
{
    return c->mechanism != SASL_LOGIN;
}

static bool scram_answer(struct sasl_client *c, unsigned step, struct slice challenge,
                         struct buf *ret_message)
{
    switch (step) {
    case 0:
        scram_client_first(&c->scram, c->user, slice_of(c->nonce, c->nonce_len), ret_message);
        return challenge.len == 0;
    case 1:
        return scram_client_final(&c->scram, challenge, c->password, ret_message);
    case 2:
        c->peer_proven = scram_client_verify(&c->scram, challenge);
        return c->peer_proven;
    default:
        return false;
    }
}

bool sasl_client_answer(struct sasl_client *c, struct slice challenge, struct buf *ret_message)
{
    unsigned step = c->step++;
    bool goes_on = false;

    switch (c->mechanism) {
    case SASL_SCRAM_SHA_256:
        goes_on = scram_answer(c, step, challenge, ret_message);
        break;
    case SASL_PLAIN:
        goes_on = step == 0;
        (void)buf_add_byte(ret_message, '\0');
        (void)buf_add(ret_message, c->user);
        (void)buf_add_byte(ret_message, '\0');
        (void)buf_add(ret_message, c->password);
        break;
    case SASL_LOGIN: /* programs differ in the prompts, not in their order */
        goes_on = step < 2;
        (void)buf_add(ret_message, step == 0 ? c->user : c->password);
        break;
    }
    return goes_on && !ret_message->failed;
}

bool sasl_client_accepted(const struct sasl_client *c)
{
    switch (c->mechanism) {
    case SASL_SCRAM_SHA_256:
        return c->peer_proven;
    case SASL_PLAIN:
        return c->step == 1;
    case SASL_LOGIN:
        return c->step == 2;
    }
    return false;
}

/* ---- the server ------------------------------------------------------------------------------ */

void sasl_server_init(struct sasl_server *s, enum sasl_mechanism mechanism, struct slice nonce,
                      sasl_find *find, void *arg)
{
    CHECK(nonce.len > 0 && nonce.len <= SASL_NONCE_MAX);
    *s = (struct sasl_server){
        .mechanism = mechanism, .find = find, .arg = arg, .nonce_len = nonce.len};
    memcpy(s->nonce, nonce.ptr, nonce.len);
    scram_init(&s->scram);
}

void sasl_server_fini(struct sasl_server *s)
{
    scram_fini(&s->scram);
}

const char *sasl_server_user(const struct sasl_server *s)
{
    return s->user;
}

/* Keeps a user's name if it is safe in log lines and lists: no control characters, no blanks at the
 * ends. */
static bool keep_user(struct sasl_server *s, struct slice user)
{
    if (user.len == 0 || user.len > SASL_USER_MAX || user.ptr[0] == ' ' ||
        user.ptr[user.len - 1] == ' ') {
        return false;
    }
    for (size_t i = 0; i < user.len; i++) {
        if ((unsigned char)user.ptr[i] < ' ' || user.ptr[i] == 0x7f) {
            return false;
        }
    }
    memcpy(s->user, user.ptr, user.len);
    s->user[user.len] = '\0';
    return true;
}

static enum sasl_result judge_password(struct sasl_server *s, struct slice password)
{
    struct scram_secret wanted, given;
    bool fits;

    if (password.len > SASL_PASSWORD_MAX) {
        return SASL_MALFORMED;
    }
    s->user_known = s->find(s->arg, slice_string(s->user), &wanted);
    scram_derive(password, wanted.salt, wanted.salt_len, wanted.rounds, &given);
    fits = CRYPTO_memcmp(given.stored_key, wanted.stored_key, sizeof given.stored_key) == 0;
    OPENSSL_cleanse(&wanted, sizeof wanted);
    OPENSSL_cleanse(&given, sizeof given);
    return fits && s->user_known ? SASL_ACCEPTED : SASL_REFUSED;
}

static enum sasl_result take_plain(struct sasl_server *s, struct slice message)
{
    struct slice rest = message, other = slice_cut(&rest, '\0'), user = slice_cut(&rest, '\0');

    if (rest.ptr == NULL || memchr(rest.ptr, '\0', rest.len) != NULL || !keep_user(s, user)) {
        return SASL_MALFORMED;
    }
    /* Acting for another identity is more than sending mail, and refused. */
    return other.len == 0 || slice_equal(other, user) ? judge_password(s, rest) : SASL_REFUSED;
}

static enum sasl_result scram_begin(struct sasl_server *s, struct slice message,
                                    struct buf *ret_challenge)
{
    struct scram_secret secret;
    struct buf user;
    bool good;

    buf_init(&user, SASL_USER_MAX + 1);
    good = scram_first_user(message, &user) && keep_user(s, buf_slice(&user));
    if (good) {
        s->user_known = s->find(s->arg, buf_slice(&user), &secret);
        good = scram_server_first(&s->scram, message, slice_of(s->nonce, s->nonce_len), &secret,
                                  ret_challenge);
        OPENSSL_cleanse(&secret, sizeof secret);
    }
    buf_fini(&user);
    return good ? SASL_CHALLENGE : SASL_MALFORMED;
}

/* Processes a message of SCRAM. The server's proof is sent as a challenge with an empty answer,
 * because the reply that ends the exchange can't carry it (RFC 4954, 4). */
static enum sasl_result take_scram(struct sasl_server *s, unsigned step, struct slice message,
                                   struct buf *ret_challenge)
{
    switch (step) {
    case 0:
        return scram_begin(s, message, ret_challenge);
    case 1:
        s->accepted = scram_server_final(&s->scram, message, ret_challenge) && s->user_known;
        return s->accepted ? SASL_CHALLENGE : SASL_REFUSED;
    default:
        return s->accepted && message.len == 0 ? SASL_ACCEPTED : SASL_MALFORMED;
    }
}

static enum sasl_result take_login(struct sasl_server *s, unsigned step, struct slice message,
                                   struct buf *ret_challenge)
{
    if (step == 1) {
        return judge_password(s, message);
    }
    (void)buf_add_string(ret_challenge, "Password:");
    return keep_user(s, message) ? SASL_CHALLENGE : SASL_MALFORMED;
}

enum sasl_result sasl_server_take(struct sasl_server *s, const struct slice *message,
                                  struct buf *ret_challenge)
{
    unsigned step;

    if (message == NULL) {
        CHECK(s->step == 0);
        if (s->mechanism == SASL_LOGIN) {
            (void)buf_add_string(ret_challenge, "Username:");
        }
        return SASL_CHALLENGE;
    }
    if (message->len > SASL_MESSAGE_MAX) {
        return SASL_MALFORMED;
    }
    step = s->step++;
    switch (s->mechanism) {
    case SASL_SCRAM_SHA_256:
        return take_scram(s, step, *message, ret_challenge);
    case SASL_PLAIN:
        return take_plain(s, *message);
    case SASL_LOGIN:
        return take_login(s, step, *message, ret_challenge);
    }
    return SASL_MALFORMED;
}
