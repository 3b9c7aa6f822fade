#include "unit.h"

#include <stdio.h>
#include <string.h>

#include "verifier_list.h"

static const uint8_t made_up_key[VERIFIER_MAKE_UP_KEY] = "a key that only a process knows";

/* A file with two users, "ann" and "shop". */
static void put_file(struct buf *out)
{
    struct scram_secret secret;

    scram_derive(SLICE("secret"), (const uint8_t *)"some salt", 9, SCRAM_ROUNDS_MIN, &secret);
    (void)buf_add_string(out, "# who may send\n\n");
    verifier_put(out, SLICE("shop"), &secret, SLICE("bulk"),
                 SLICE("news@shop.example,@lists.shop.example"));
    verifier_put(out, SLICE("ann@example.org"), &secret, SLICE(""), SLICE(""));
}

static void users_are_found(void **unused)
{
    struct buf text, error;
    struct verifier_list *list;
    const struct verifier *v;

    (void)unused;
    buf_init(&text, 10000);
    buf_init(&error, 1000);
    put_file(&text);
    list = verifier_list_new(buf_slice(&text), &error);
    assert_string_equal(buf_cstr(&error), "");
    v = verifier_list_find(list, SLICE("shop"));
    assert_non_null(v);
    assert_int_equal(v->line.class_name.len, 4);
    assert_int_equal(v->secret.rounds, SCRAM_ROUNDS_MIN);
    assert_int_equal(v->line.number, 3);
    assert_non_null(verifier_list_find(list, SLICE("ann@example.org")));
    assert_null(verifier_list_find(list, SLICE("Shop")));
    assert_null(verifier_list_find(list, SLICE("sho")));
    assert_null(verifier_list_find(list, SLICE("")));
    assert_string_equal(verifier_list_at(list, 1)->line.name, "ann@example.org");
    assert_null(verifier_list_at(list, 2));
    verifier_list_free(list);
    list = verifier_list_new(SLICE(""), &error);
    assert_non_null(list);
    assert_null(verifier_list_find(list, SLICE("shop")));
    verifier_list_free(list);
    buf_fini(&text);
    buf_fini(&error);
}

static void a_user_sends_as_those_of_its_list(void **unused)
{
    static const struct {
        const char *sender;
        bool want;
    } cases[] = {
        {"news@shop.example", true},    {"News@Shop.example", true},
        {"x@lists.shop.example", true}, {"x@LISTS.shop.example", true},
        {"x@shop.example", false},      {"x@sub.lists.shop.example", false},
        {"lists.shop.example", false},  {"", true},
        {"@lists.shop.example", true},  {"a@b@lists.shop.example", true},
    };
    struct buf text, error;
    struct verifier_list *list;

    (void)unused;
    buf_init(&text, 10000);
    buf_init(&error, 1000);
    put_file(&text);
    list = verifier_list_new(buf_slice(&text), &error);
    for (size_t i = 0; i < COUNT(cases); i++) {
        assert_int_equal(name_lines_may_send(verifier_list_find(list, SLICE("shop"))->line.senders,
                                             slice_string(cases[i].sender)),
                         cases[i].want);
        assert_true(
            name_lines_may_send(verifier_list_find(list, SLICE("ann@example.org"))->line.senders,
                                slice_string(cases[i].sender)));
    }
    verifier_list_free(list);
    buf_fini(&text);
    buf_fini(&error);
}

static void a_typo_is_told_with_its_place(void **unused)
{
#define KEYS                                                                                       \
    "4096,c2FsdA==,AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=,"                                  \
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
    static const struct {
        const char *text, *want;
    } cases[] = {
        {"a b:{SCRAM-SHA-256}" KEYS,
         "1:1: expected a user's name of 1 to 255 bytes without blanks"},
        {"\n:x\n", "2:1: expected a user's name of 1 to 255 bytes without blanks"},
        {"u:secret\n", "1:2: expected :{SCRAM-SHA-256}ROUNDS,SALT,STORED-KEY,SERVER-KEY (sluice "
                       "auth add writes such a line)"},
        {"u:{SCRAM-SHA-256}1,c2FsdA==,AA==,AA==\n",
         "1:2: expected :{SCRAM-SHA-256}ROUNDS,SALT,STORED-KEY,SERVER-KEY (sluice auth add writes "
         "such a line)"},
        {"u:{SCRAM-SHA-256}" KEYS ":colour=red\n", "1:122: expected class=NAME or senders=LIST"},
        {"u:{SCRAM-SHA-256}" KEYS ":senders=shop.example\n",
         "1:122: expected addresses or @DOMAINs with commas between them"},
        {"u:{SCRAM-SHA-256}" KEYS ":senders=a@b,,c@d\n",
         "1:122: expected addresses or @DOMAINs with commas between them"},
        {"u:{SCRAM-SHA-256}" KEYS ":class=a b\n", "1:122: expected the name of a class"},
        {"u:{SCRAM-SHA-256}" KEYS "\nv:{SCRAM-SHA-256}" KEYS "\nu:{SCRAM-SHA-256}" KEYS "\n",
         "3:1: the name stands in line 1, too"},
    };

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct buf error;

        buf_init(&error, 1000);
        assert_null(verifier_list_new(slice_string(cases[i].text), &error));
        assert_string_equal(buf_cstr(&error), cases[i].want);
        buf_fini(&error);
    }
}

static void a_user_that_is_not_there_looks_like_one(void **unused)
{
    struct buf text, error;
    struct verifier_list *list;
    struct scram_secret a, b, c;

    (void)unused;
    buf_init(&text, 10000);
    buf_init(&error, 1000);
    put_file(&text);
    list = verifier_list_new(buf_slice(&text), &error);
    verifier_make_up(list, made_up_key, SLICE("eve"), &a);
    verifier_make_up(list, made_up_key, SLICE("eve"), &b);
    verifier_make_up(list, made_up_key, SLICE("eva"), &c);
    assert_memory_equal(&a, &b, sizeof a);
    assert_memory_not_equal(a.salt, c.salt, a.salt_len);
    assert_int_equal(a.rounds, verifier_list_at(list, 0)->secret.rounds);
    assert_int_equal(a.salt_len, verifier_list_at(list, 0)->secret.salt_len);
    verifier_list_free(list);
    buf_fini(&text);
    buf_fini(&error);
}

UNIT_MAIN(cmocka_unit_test(users_are_found), cmocka_unit_test(a_user_sends_as_those_of_its_list),
          cmocka_unit_test(a_typo_is_told_with_its_place),
          cmocka_unit_test(a_user_that_is_not_there_looks_like_one))
