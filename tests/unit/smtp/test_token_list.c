#include "unit.h"

#include <string.h>

#include "token_list.h"

static void a_token_is_known_by_what_was_made(void **unused)
{
    struct buf text, line, other, error;
    struct token_list *list;
    const struct token *t;
    char wrong[TOKEN_MAX + 1];

    (void)unused;
    buf_init(&text, TOKEN_MAX);
    buf_init(&other, TOKEN_MAX);
    buf_init(&line, 10000);
    buf_init(&error, 1000);
    (void)buf_add_string(&line, "# tokens\n\n");
    token_make(SLICE("shop.one"), TOKEN_INJECT | TOKEN_READ, SLICE("orders"), SLICE("@b.c"), &text,
               &line);
    token_make(SLICE("app"), TOKEN_OPERATE, SLICE(""), SLICE(""), &other, &line);
    assert_int_equal(buf_len(&text), 8 + 1 + TOKEN_SECRET);
    list = token_list_new(buf_slice(&line), &error);
    assert_string_equal(buf_cstr(&error), "");
    t = token_list_check(list, buf_slice(&text));
    assert_non_null(t);
    assert_string_equal(t->line.name, "shop.one");
    assert_int_equal(t->rights, TOKEN_INJECT | TOKEN_READ);
    assert_int_equal(t->line.class_name.len, 6);
    assert_int_equal(t->line.number, 3);
    assert_string_equal(token_list_check(list, buf_slice(&other))->line.name, "app");
    for (size_t i = 0; i < buf_len(&text); i++) { /* each digit counts, and the name */
        memcpy(wrong, buf_slice(&text).ptr, buf_len(&text));
        wrong[i] = wrong[i] == '0' ? '1' : '0';
        assert_null(token_list_check(list, slice_of(wrong, buf_len(&text))));
    }
    assert_null(token_list_check(list, slice_of(wrong, buf_len(&text) - 1)));
    assert_null(token_list_check(list, SLICE("")));
    assert_null(token_list_check(list, SLICE("app")));
    assert_null(token_list_check(list, SLICE("app.")));
    token_list_free(list);
    buf_fini(&text);
    buf_fini(&other);
    buf_fini(&line);
    buf_fini(&error);
}

static void rights_have_older_names(void **unused)
{
    static const struct {
        const char *text, *want;
    } cases[] = {{"inject", "inject"},
                 {"operate,read", "read,operate"},
                 {"look", "read"},
                 {"steer,inject,look", "inject,read,operate"}};

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        unsigned rights;
        struct buf out;

        buf_init(&out, 100);
        assert_true(token_rights_parse(slice_string(cases[i].text), &rights));
        token_rights_put(rights, &out);
        assert_string_equal(buf_cstr(&out), cases[i].want);
        buf_fini(&out);
    }
}

static void a_typo_is_told_with_its_place(void **unused)
{
#define HASH "{SHA-256}47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="
    static const struct {
        const char *in, *want;
    } cases[] = {
        {"a:" HASH ":rights=inject\n", ""},
        {"a b:" HASH ":rights=inject", "1:1: expected a token's name"},
        {"a", "1:2: expected :{SHA-256}HASH"},
        {"a:{SHA-256}AAAA:rights=inject", "1:2: expected :{SHA-256}HASH"},
        {"a:" HASH, "1:1: it has no rights=LIST"},
        {"\na:" HASH ":rights=send", "2:57: expected inject, read or operate"},
        {"a:" HASH ":rights=inject:class=a b", "1:71: expected the name of a class"},
        {"a:" HASH ":rights=inject:senders=a", "1:71: expected addresses"},
        {"a:" HASH ":right=inject", "1:57: expected rights=LIST, class=NAME or senders=LIST"},
        {"a:" HASH ":rights=inject\na:" HASH ":rights=look", "2:1: the name stands in line 1, too"},
    };
    struct buf error;

    (void)unused;
    buf_init(&error, 1000);
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct token_list *list;

        buf_clear(&error);
        list = token_list_new(slice_string(cases[i].in), &error);
        assert_int_equal(list != NULL, cases[i].want[0] == '\0');
        if (strncmp(buf_cstr(&error), cases[i].want, strlen(cases[i].want)) != 0) {
            fail_msg("%s: found \"%s\"", cases[i].in, buf_cstr(&error));
        }
        token_list_free(list);
    }
    buf_fini(&error);
}

UNIT_MAIN(cmocka_unit_test(rights_have_older_names),
          cmocka_unit_test(a_token_is_known_by_what_was_made),
          cmocka_unit_test(a_typo_is_told_with_its_place))
