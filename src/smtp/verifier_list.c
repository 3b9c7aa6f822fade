#include "verifier_list.h"

#include <string.h>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "check.h"
#include "mem.h"

#define SCHEME     "{SCRAM-SHA-256}"
#define ROUNDS_OUR SCRAM_ROUNDS_MIN

struct verifier_list {
    struct name_lines lines; /* struct verifier */
};

bool verifier_user_is_valid(struct slice user)
{
    for (size_t i = 0; i < user.len; i++) {
        if ((unsigned char)user.ptr[i] <= ' ' || user.ptr[i] == ':' || user.ptr[i] == 127) {
            return false;
        }
    }
    return user.len > 0 && user.len <= SASL_USER_MAX && user.ptr[0] != '#';
}

static bool read_verifier(struct name_line *line, struct slice text)
{
    return scram_parse(text, &((struct verifier *)line)->secret);
}

struct verifier_list *verifier_list_new(struct slice text, struct buf *ret_error)
{
    static const struct name_lines_form form = {
        .size = sizeof(struct verifier),
        .most = VERIFIER_LIST_MAX,
        .scheme = SCHEME,
        .name_is_valid = verifier_user_is_valid,
        .read_verifier = read_verifier,
        .name_expected = "expected a user's name of 1 to 255 bytes without blanks",
        .verifier_expected = "expected :{SCRAM-SHA-256}ROUNDS,SALT,STORED-KEY,SERVER-KEY (sluice "
                             "auth add writes such a line)",
        .setting_expected = "expected class=NAME or senders=LIST",
        .too_many = "there are more than 100000 users",
    };
    struct verifier_list *list = mem_new(sizeof *list);

    if (!name_lines_read(&list->lines, &form, text, ret_error)) {
        mem_free(list);
        return NULL;
    }
    return list;
}

void verifier_list_free(struct verifier_list *list)
{
    if (list != NULL) {
        name_lines_fini(&list->lines);
        mem_free(list);
    }
}

const struct verifier *verifier_list_at(const struct verifier_list *list, size_t n)
{
    return (const struct verifier *)name_lines_at(&list->lines, n);
}

const struct verifier *verifier_list_find(const struct verifier_list *list, struct slice user)
{
    return (const struct verifier *)name_lines_find(&list->lines, user);
}

void verifier_put(struct buf *out, struct slice user, const struct scram_secret *secret,
                  struct slice class_name, struct slice senders)
{
    CHECK(verifier_user_is_valid(user));
    (void)buf_addf(out, "%.*s:" SCHEME, SLICE_ARGS(user));
    scram_print(secret, out);
    name_lines_put_end(out, class_name, senders);
}

/* Computes a digest; each use of the key gets different digests. */
static void digest(const uint8_t key[VERIFIER_MAKE_UP_KEY], unsigned char use, struct slice text,
                   uint8_t ret_sum[SCRAM_KEY])
{
    uint8_t own_key[VERIFIER_MAKE_UP_KEY];

    memcpy(own_key, key, sizeof own_key);
    own_key[0] ^= use;
    CHECK(HMAC(EVP_sha256(), own_key, sizeof own_key, (const unsigned char *)text.ptr, text.len,
               ret_sum, NULL) != NULL);
    OPENSSL_cleanse(own_key, sizeof own_key);
}

uint64_t verifier_stamp(const uint8_t key[VERIFIER_MAKE_UP_KEY], struct slice text)
{
    uint8_t sum[SCRAM_KEY];
    uint64_t stamp;

    digest(key, 3, text, sum); /* verifier_make_up uses 0 to 2 */
    memcpy(&stamp, sum, sizeof stamp);
    return stamp;
}

void verifier_make_up(const struct verifier_list *list, const uint8_t key[VERIFIER_MAKE_UP_KEY],
                      struct slice user, struct scram_secret *ret_secret)
{
    /* Salt, stored key and server key are separate digests. */
    uint8_t sums[3][SCRAM_KEY];
    const struct verifier *first = verifier_list_at(list, 0);

    for (unsigned char i = 0; i < 3; i++) {
        digest(key, i, user, sums[i]);
    }
    memset(ret_secret, 0, sizeof *ret_secret);
    ret_secret->rounds = first != NULL ? first->secret.rounds : ROUNDS_OUR;
    ret_secret->salt_len = first != NULL ? first->secret.salt_len : 16;
    if (ret_secret->salt_len > SCRAM_KEY) {
        ret_secret->salt_len = SCRAM_KEY;
    }
    memcpy(ret_secret->salt, sums[0], ret_secret->salt_len);
    memcpy(ret_secret->stored_key, sums[1], SCRAM_KEY);
    memcpy(ret_secret->server_key, sums[2], SCRAM_KEY);
}
