#include "token_list.h"

#include <stdlib.h>
#include <string.h>

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include "base64.h"
#include "check.h"
#include "class_name.h"
#include "entropy.h"
#include "mem.h"
#include "verifier_list.h"

#define SCHEME SLICE("{SHA-256}")

struct token_list {
    char *text;           /* owned: what the tokens point to */
    struct token *tokens; /* owned, in the order of the file */
    size_t count, size;
    const struct token **by_name; /* owned, sorted */
};

static const struct {
    const char *word;
    unsigned right;
} rights_words[] = {{"inject", TOKEN_INJECT}, {"look", TOKEN_LOOK}, {"steer", TOKEN_STEER}};

static bool bad(struct buf *ret_error, unsigned number, const char *start, const char *at,
                const char *what)
{
    buf_clear(ret_error);
    (void)buf_addf(ret_error, "%u:%zu: %s", number, (size_t)(at - start) + 1, what);
    return false;
}

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
            (void)buf_addf(out, "%s%s", separator, rights_words[i].word); /* sticky */
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

/* One of the settings behind the hash. */
static bool read_setting(struct token *t, struct slice setting, const char **ret_what)
{
    struct slice value = setting, name = slice_cut(&value, '='), parsed;
    char room[CLASS_NAME_MAX];

    *ret_what = "expected rights=LIST, class=NAME or senders=LIST";
    if (slice_equal(name, SLICE("rights"))) {
        *ret_what = "expected inject, look or steer, with commas between them";
        return token_rights_parse(value, &t->rights);
    }
    if (slice_equal(name, SLICE("class"))) {
        *ret_what = "expected the name of a class";
        t->class_name = value;
        return value.ptr != NULL && class_name_parse(value, room, &parsed);
    }
    if (slice_equal(name, SLICE("senders"))) {
        *ret_what = "expected addresses or @DOMAINs with commas between them";
        t->senders = value;
        return value.ptr != NULL && verifier_senders_are_valid(value);
    }
    return false;
}

static bool read_line(struct token_list *list, struct slice line, unsigned number,
                      struct buf *ret_error)
{
    const char *start = line.ptr, *what;
    struct slice name = slice_cut(&line, ':'), word = slice_cut(&line, ':');
    struct token t = {.line = number};

    if (!token_name_is_valid(name)) {
        return bad(ret_error, number, start, start,
                   "expected a token's name of 1 to 64 letters, digits, and _ - . @");
    }
    if (!slice_starts(word, SCHEME) || !parse_hash(slice_skip(word, SCHEME.len), t.hash)) {
        return bad(ret_error, number, start, name.ptr + name.len,
                   "expected :{SHA-256}HASH (sluice token add writes such a line)");
    }
    while (line.ptr != NULL) {
        struct slice setting = slice_cut(&line, ':');

        if (!read_setting(&t, setting, &what)) {
            return bad(ret_error, number, start, setting.ptr, what);
        }
    }
    if (t.rights == 0) {
        return bad(ret_error, number, start, start, "it has no rights=LIST");
    }
    if (list->count == TOKEN_LIST_MAX) {
        return bad(ret_error, number, start, start, "there are more than 10000 tokens");
    }
    ((char *)(uintptr_t)name.ptr)[name.len] = '\0'; /* was the colon */
    t.name = name.ptr;
    list->tokens[list->count++] = t;
    return true;
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(const struct token *const *)a)->name, (*(const struct token *const *)b)->name);
}

/* True unless a name stands there twice. */
static bool sort(struct token_list *list, struct buf *ret_error)
{
    list->by_name = mem_array(list->count + 1, sizeof(struct token *));
    for (size_t i = 0; i < list->count; i++) {
        list->by_name[i] = &list->tokens[i];
    }
    qsort(list->by_name, list->count, sizeof(struct token *), by_name);
    for (size_t i = 1; i < list->count; i++) {
        const struct token *a = list->by_name[i - 1], *b = list->by_name[i];

        if (strcmp(a->name, b->name) == 0) {
            unsigned later = a->line > b->line ? a->line : b->line;

            buf_clear(ret_error);
            (void)buf_addf(ret_error, "%u:1: the name stands in line %u, too", later,
                           a->line + b->line - later);
            return false;
        }
    }
    return true;
}

struct token_list *token_list_new(struct slice text, struct buf *ret_error)
{
    struct token_list *list = mem_new(sizeof *list);
    size_t lines = 1;
    struct slice rest;
    unsigned number = 0;
    bool good = true;

    for (size_t i = 0; i < text.len; i++) {
        lines += text.ptr[i] == '\n';
    }
    list->size = lines < TOKEN_LIST_MAX ? lines : TOKEN_LIST_MAX;
    list->tokens = mem_array(list->size, sizeof *list->tokens);
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
        token_list_free(list);
        return NULL;
    }
    return list;
}

void token_list_free(struct token_list *list)
{
    if (list == NULL) {
        return;
    }
    mem_free(list->tokens);
    mem_free(list->by_name);
    mem_free(list->text);
    mem_free(list);
}

const struct token *token_list_at(const struct token_list *list, size_t n)
{
    return n < list->count ? &list->tokens[n] : NULL;
}

const struct token *token_list_find(const struct token_list *list, struct slice name)
{
    char text[TOKEN_NAME_MAX + 1];
    struct token wanted = {.name = text};
    const struct token *key = &wanted, **found;

    if (!token_name_is_valid(name)) {
        return NULL;
    }
    memcpy(text, name.ptr, name.len);
    text[name.len] = '\0';
    found = bsearch(&key, list->by_name, list->count, sizeof(struct token *), by_name);
    return found == NULL ? NULL : *found;
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
    (void)buf_addf(ret_line, "%.*s:{SHA-256}", SLICE_ARGS(name)); /* sticky, all of it */
    base64_put(ret_line, slice_of(hash, sizeof hash));
    (void)buf_add_string(ret_line, ":rights=");
    token_rights_put(rights, ret_line);
    if (class_name.len > 0) {
        (void)buf_addf(ret_line, ":class=%.*s", SLICE_ARGS(class_name));
    }
    if (senders.len > 0) {
        (void)buf_addf(ret_line, ":senders=%.*s", SLICE_ARGS(senders));
    }
    (void)buf_add_byte(ret_line, '\n');
}
