#include "verifier_list.h"

#include <stdlib.h>
#include <string.h>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "check.h"
#include "class_name.h"
#include "mem.h"

#define SCHEME     SLICE("{SCRAM-SHA-256}")
#define ROUNDS_OUR SCRAM_ROUNDS_MIN

struct verifier_list {
    char *text;                 /* owned: what the verifiers point to */
    struct verifier *verifiers; /* owned, in the order of the file */
    size_t count, size;
    const struct verifier **by_user; /* owned, sorted */
};

static bool bad(struct buf *ret_error, unsigned number, const char *start, const char *at,
                const char *what)
{
    buf_clear(ret_error);
    (void)buf_addf(ret_error, "%u:%zu: %s", number, (size_t)(at - start) + 1, what);
    return false;
}

bool verifier_user_is_valid(struct slice user)
{
    for (size_t i = 0; i < user.len; i++) {
        if ((unsigned char)user.ptr[i] <= ' ' || user.ptr[i] == ':' || user.ptr[i] == 127) {
            return false;
        }
    }
    return user.len > 0 && user.len <= SASL_USER_MAX && user.ptr[0] != '#';
}

bool verifier_senders_are_valid(struct slice senders)
{
    if (senders.len == 0 || senders.len > VERIFIER_SENDERS_MAX) {
        return false;
    }
    while (senders.ptr != NULL) {
        struct slice one = slice_cut(&senders, ',');

        if (slice_find(one, '@') == one.len || one.ptr[one.len - 1] == '@') {
            return false;
        }
        for (size_t i = 0; i < one.len; i++) {
            if ((unsigned char)one.ptr[i] <= ' ' || one.ptr[i] == ':' || one.ptr[i] == 127) {
                return false;
            }
        }
    }
    return true;
}

/* One of the settings behind the verifier. */
static bool read_setting(struct verifier *v, struct slice setting, const char **ret_what)
{
    struct slice value = setting, name = slice_cut(&value, '=');
    char room[CLASS_NAME_MAX];
    struct slice parsed;

    *ret_what = "expected class=NAME or senders=LIST";
    if (slice_equal(name, SLICE("class"))) {
        *ret_what = "expected the name of a class";
        v->class_name = value;
        return value.ptr != NULL && class_name_parse(value, room, &parsed);
    }
    if (slice_equal(name, SLICE("senders"))) {
        *ret_what = "expected addresses or @DOMAINs with commas between them";
        v->senders = value;
        return value.ptr != NULL && verifier_senders_are_valid(value);
    }
    return false;
}

static bool read_line(struct verifier_list *list, struct slice line, unsigned number,
                      struct buf *ret_error)
{
    const char *start = line.ptr, *what;
    struct slice user = slice_cut(&line, ':'), word = slice_cut(&line, ':');
    struct verifier v = {.line = number};

    if (!verifier_user_is_valid(user)) {
        return bad(ret_error, number, start, start,
                   "expected a user's name of 1 to 255 bytes without blanks");
    }
    if (!slice_starts(word, SCHEME) || !scram_parse(slice_skip(word, SCHEME.len), &v.secret)) {
        return bad(ret_error, number, start, user.ptr + user.len,
                   "expected :{SCRAM-SHA-256}ROUNDS,SALT,STORED-KEY,SERVER-KEY (sluice auth add "
                   "writes such a line)");
    }
    while (line.ptr != NULL) {
        struct slice setting = slice_cut(&line, ':');

        if (!read_setting(&v, setting, &what)) {
            OPENSSL_cleanse(&v.secret, sizeof v.secret);
            return bad(ret_error, number, start, setting.ptr, what);
        }
    }
    if (list->count == VERIFIER_LIST_MAX) {
        return bad(ret_error, number, start, start, "there are more than 100000 users");
    }
    ((char *)(uintptr_t)user.ptr)[user.len] = '\0'; /* was the colon */
    v.user = user.ptr;
    list->verifiers[list->count++] = v;
    OPENSSL_cleanse(&v.secret, sizeof v.secret);
    return true;
}

static int by_user(const void *a, const void *b)
{
    return strcmp((*(const struct verifier *const *)a)->user,
                  (*(const struct verifier *const *)b)->user);
}

/* True unless a user stands there twice. */
static bool sort(struct verifier_list *list, struct buf *ret_error)
{
    list->by_user = mem_array(list->count + 1, sizeof(struct verifier *));
    for (size_t i = 0; i < list->count; i++) {
        list->by_user[i] = &list->verifiers[i];
    }
    qsort(list->by_user, list->count, sizeof(struct verifier *), by_user);
    for (size_t i = 1; i < list->count; i++) {
        const struct verifier *a = list->by_user[i - 1], *b = list->by_user[i];

        if (strcmp(a->user, b->user) == 0) {
            unsigned later = a->line > b->line ? a->line : b->line;

            buf_clear(ret_error);
            (void)buf_addf(ret_error, "%u:1: the user stands in line %u, too", later,
                           a->line + b->line - later);
            return false;
        }
    }
    return true;
}

struct verifier_list *verifier_list_new(struct slice text, struct buf *ret_error)
{
    struct verifier_list *list = mem_new(sizeof *list);
    size_t lines = 1;
    struct slice rest;
    unsigned number = 0;
    bool good = true;

    for (size_t i = 0; i < text.len; i++) {
        lines += text.ptr[i] == '\n';
    }
    list->size = lines < VERIFIER_LIST_MAX ? lines : VERIFIER_LIST_MAX;
    list->verifiers = mem_array(list->size, sizeof *list->verifiers);
    list->text = mem_array(text.len + 1, 1);
    if (text.len > 0) {
        memcpy(list->text, text.ptr, text.len);
    }
    rest = slice_of(list->text, text.len);
    while (good && rest.len > 0) {
        struct slice line = slice_trim(slice_cut(&rest, '\n'));

        number++;
        if (line.len > 0 && line.ptr[0] != '#') {
            good = read_line(list, line, number, ret_error);
        }
    }
    if (!good || !sort(list, ret_error)) {
        verifier_list_free(list);
        return NULL;
    }
    return list;
}

void verifier_list_free(struct verifier_list *list)
{
    if (list == NULL) {
        return;
    }
    OPENSSL_cleanse(list->verifiers, list->size * sizeof *list->verifiers);
    mem_free(list->verifiers);
    mem_free(list->by_user);
    mem_free(list->text);
    mem_free(list);
}

const struct verifier *verifier_list_at(const struct verifier_list *list, size_t n)
{
    return n < list->count ? &list->verifiers[n] : NULL;
}

const struct verifier *verifier_list_find(const struct verifier_list *list, struct slice user)
{
    char name[SASL_USER_MAX + 1];
    struct verifier wanted = {.user = name};
    const struct verifier *key = &wanted, **found;

    if (!verifier_user_is_valid(user)) {
        return NULL;
    }
    memcpy(name, user.ptr, user.len);
    name[user.len] = '\0';
    found = bsearch(&key, list->by_user, list->count, sizeof(struct verifier *), by_user);
    return found != NULL ? *found : NULL;
}

bool verifier_may_send(const struct verifier *v, struct slice sender)
{
    struct slice rest = v->senders;
    struct slice domain = slice_skip(sender, slice_find_last(sender, '@')); /* with its @ */

    if (rest.len == 0 || sender.len == 0) {
        return true;
    }
    while (rest.ptr != NULL) {
        struct slice one = slice_cut(&rest, ',');

        if (slice_equal_nocase(one, one.ptr[0] == '@' ? domain : sender)) {
            return true;
        }
    }
    return false;
}

void verifier_put(struct buf *out, struct slice user, const struct scram_secret *secret,
                  struct slice class_name, struct slice senders)
{
    CHECK(verifier_user_is_valid(user));
    (void)buf_addf(out, "%.*s:%.*s", SLICE_ARGS(user), SLICE_ARGS(SCHEME));
    scram_print(secret, out);
    if (class_name.len > 0) {
        (void)buf_addf(out, ":class=%.*s", SLICE_ARGS(class_name));
    }
    if (senders.len > 0) {
        (void)buf_addf(out, ":senders=%.*s", SLICE_ARGS(senders));
    }
    (void)buf_add_byte(out, '\n');
}

void verifier_make_up(const struct verifier_list *list, const uint8_t key[VERIFIER_MAKE_UP_KEY],
                      struct slice user, struct scram_secret *ret_secret)
{
    /* Salt, stored key and server key, each a digest of its own. */
    uint8_t sums[3][SCRAM_KEY];

    for (unsigned char i = 0; i < 3; i++) {
        uint8_t own_key[VERIFIER_MAKE_UP_KEY];

        memcpy(own_key, key, sizeof own_key);
        own_key[0] ^= i;
        CHECK(HMAC(EVP_sha256(), own_key, sizeof own_key, (const unsigned char *)user.ptr, user.len,
                   sums[i], NULL) != NULL);
        OPENSSL_cleanse(own_key, sizeof own_key);
    }
    memset(ret_secret, 0, sizeof *ret_secret);
    ret_secret->rounds = list->count > 0 ? list->verifiers[0].secret.rounds : ROUNDS_OUR;
    ret_secret->salt_len = list->count > 0 ? list->verifiers[0].secret.salt_len : 16;
    if (ret_secret->salt_len > SCRAM_KEY) {
        ret_secret->salt_len = SCRAM_KEY;
    }
    memcpy(ret_secret->salt, sums[0], ret_secret->salt_len);
    memcpy(ret_secret->stored_key, sums[1], SCRAM_KEY);
    memcpy(ret_secret->server_key, sums[2], SCRAM_KEY);
}
