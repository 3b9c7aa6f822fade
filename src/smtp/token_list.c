#include "token_list.h"

#include <string.h>

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include "base64.h"
#include "check.h"
#include "entropy.h"
#include "mem.h"

#define SCHEME "{SHA-256}"

struct token_list {
    struct name_lines lines; /* struct token */
};

static const struct {
    const char *word;
    unsigned right;
} rights_words[] = {{"inject", TOKEN_INJECT}, {"read", TOKEN_READ}, {"operate", TOKEN_OPERATE}},
  old_words[] = {{"look", TOKEN_READ}, {"steer", TOKEN_OPERATE}}; /* in files of older versions */

bool token_name_is_valid(struct slice name)
{
    for (size_t i = 0; i < name.len; i++) {
        char c = name.ptr[i];

        if (!ascii_is_alnum(c) && (i == 0 || memchr("_-.@", c, 4) == NULL)) {
            return false;
        }
    }
    return name.len > 0 && name.len <= TOKEN_NAME_MAX;
}

bool token_rights_parse(struct slice text, unsigned *ret_rights)
{
    unsigned rights = 0;

    while (text.ptr != NULL) {
        struct slice word = slice_cut(&text, ',');
        unsigned before = rights;

        for (size_t i = 0; i < sizeof rights_words / sizeof rights_words[0]; i++) {
            if (slice_equal(word, slice_string(rights_words[i].word))) {
                rights |= rights_words[i].right;
            }
        }
        for (size_t i = 0; i < sizeof old_words / sizeof old_words[0]; i++) {
            if (slice_equal(word, slice_string(old_words[i].word))) {
                rights |= old_words[i].right;
            }
        }
        if (rights == before) {
            return false;
        }
    }
    *ret_rights = rights;
    return rights != 0;
}

void token_rights_put(unsigned rights, struct buf *out)
{
    const char *separator = "";

    for (size_t i = 0; i < sizeof rights_words / sizeof rights_words[0]; i++) {
        if ((rights & rights_words[i].right) != 0) {
            (void)buf_addf(out, "%s%s", separator, rights_words[i].word); /* the error is sticky */
            separator = ",";
        }
    }
}

static void hash_of(struct slice text, uint8_t ret_hash[TOKEN_HASH])
{
    unsigned len = 0;

    CHECK(EVP_Digest(text.ptr, text.len, ret_hash, &len, EVP_sha256(), NULL) == 1);
    CHECK(len == TOKEN_HASH);
}

static bool parse_hash(struct slice text, uint8_t ret_hash[TOKEN_HASH])
{
    struct buf bytes;
    bool good;

    buf_init(&bytes, TOKEN_HASH);
    good = base64_get(text, &bytes) && buf_len(&bytes) == TOKEN_HASH;
    if (good) {
        memcpy(ret_hash, buf_slice(&bytes).ptr, TOKEN_HASH);
    }
    buf_fini(&bytes);
    return good;
}

static bool read_verifier(struct name_line *line, struct slice text)
{
    return parse_hash(text, ((struct token *)line)->hash);
}

static bool read_setting(struct name_line *line, struct slice name, struct slice value,
                         const char **ret_expected)
{
    if (!slice_equal(name, SLICE("rights"))) {
        return false;
    }
    *ret_expected = "expected inject, read or operate, with commas between them";
    return token_rights_parse(value, &((struct token *)line)->rights);
}

static const char *missing(const struct name_line *line)
{
    return ((const struct token *)line)->rights == 0 ? "it has no rights=LIST" : NULL;
}

struct token_list *token_list_new(struct slice text, struct buf *ret_error)
{
    static const struct name_lines_form form = {
        .size = sizeof(struct token),
        .most = TOKEN_LIST_MAX,
        .scheme = SCHEME,
        .name_is_valid = token_name_is_valid,
        .read_verifier = read_verifier,
        .read_setting = read_setting,
        .missing = missing,
        .name_expected = "expected a token's name of 1 to 64 letters, digits, and _ - . @",
        .verifier_expected = "expected :{SHA-256}HASH (sluice token add writes such a line)",
        .setting_expected = "expected rights=LIST, class=NAME or senders=LIST",
        .too_many = "there are more than 10000 tokens",
    };
    struct token_list *list = mem_new(sizeof *list);

    if (!name_lines_read(&list->lines, &form, text, ret_error)) {
        mem_free(list);
        return NULL;
    }
    return list;
}

void token_list_free(struct token_list *list)
{
    if (list != NULL) {
        name_lines_fini(&list->lines);
        mem_free(list);
    }
}

const struct token *token_list_at(const struct token_list *list, size_t n)
{
    return (const struct token *)name_lines_at(&list->lines, n);
}

const struct token *token_list_find(const struct token_list *list, struct slice name)
{
    return (const struct token *)name_lines_find(&list->lines, name);
}

const struct token *token_list_check(const struct token_list *list, struct slice text)
{
    const struct token *t = token_list_find(list, slice_of(text.ptr, slice_find_last(text, '.')));
    uint8_t hash[TOKEN_HASH];

    hash_of(text, hash);
    return t != NULL && CRYPTO_memcmp(hash, t->hash, sizeof hash) == 0 ? t : NULL;
}

void token_make(struct slice name, unsigned rights, struct slice class_name, struct slice senders,
                struct buf *ret_text, struct buf *ret_line)
{
    char secret[TOKEN_SECRET];
    uint8_t hash[TOKEN_HASH];

    CHECK(token_name_is_valid(name));
    CHECK(rights != 0 && (rights & ~(unsigned)TOKEN_RIGHTS) == 0);
    entropy_text(secret, sizeof secret);
    (void)buf_addf(ret_text, "%.*s.%.*s", SLICE_ARGS(name), (int)sizeof secret, secret);
    OPENSSL_cleanse(secret, sizeof secret);
    hash_of(buf_slice(ret_text), hash);
    (void)buf_addf(ret_line, "%.*s:" SCHEME, SLICE_ARGS(name)); /* the error is sticky, here and
                                                                 * below */
    base64_put(ret_line, slice_of(hash, sizeof hash));
    (void)buf_add_string(ret_line, ":rights=");
    token_rights_put(rights, ret_line);
    name_lines_put_end(ret_line, class_name, senders);
}
