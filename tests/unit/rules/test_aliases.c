#include "unit.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "alias_value.h"
#include "aliases.h"
#include "table_load.h"

/* One file for each parameter, for tables_load. */
struct world {
    const char *virtual, *local, *canonical, *senders;
    struct conf *conf;
    struct tables *tables;
};

static int read_files(void *arg, const char *path, size_t max, struct buf *out)
{
    const struct world *w = arg;
    const char *text = strcmp(path, "/d/virtual") == 0     ? w->virtual
                       : strcmp(path, "/d/local") == 0     ? w->local
                       : strcmp(path, "/d/canonical") == 0 ? w->canonical
                                                           : w->senders;

    (void)max;
    assert_true(buf_add_string(out, text != NULL ? text : ""));
    return 0;
}

/* Loads the files, and compares the errors. */
static void load(struct world *w, const char *want)
{
    struct conf_world world = {.hostname = "mail.example.org"};
    struct conf_problems problems;
    struct buf out;
    int fd = -1;

    w->conf = conf_load_text(SLICE("local_domains = example.org\nmyorigin = origin.test\n"
                                   "recipient_delimiter = +\nvirtual_alias_domains = v.test\n"
                                   "virtual_alias_maps = hash:virtual\nalias_maps = hash:local\n"
                                   "canonical_maps = canonical\nsender_canonical_maps = senders\n"),
                             "c", "/d", &world, &problems);
    assert_non_null(w->conf);
    conf_problems_fini(&problems);
    buf_init(&out, 100000);
    if (tables_load(w->conf, "/d", read_files, w, &out, &fd)) {
        w->tables = tables_open(fd);
        assert_non_null(w->tables);
        (void)close(fd);
    }
    assert_string_equal(buf_cstr(&out), want);
    buf_fini(&out);
}

static void done(struct world *w)
{
    tables_close(w->tables);
    conf_free(w->conf);
}

static void put(void *arg, struct slice address)
{
    struct buf *out = arg;

    assert_true(buf_addf(out, "%s%.*s", buf_len(out) > 0 ? " " : "", SLICE_ARGS(address)));
}

/* Compares the addresses that one stands for, or the fault. */
static void expands(const struct world *w, const char *address, const char *want, unsigned line)
{
    struct table_hit hit;
    struct buf out, fault;
    bool ok;

    buf_init(&out, 4000000);
    buf_init(&fault, 1000);
    ok = aliases_expand(w->tables, w->conf, slice_string(address), put, &out, &hit, &fault);
    if (strcmp(ok ? buf_cstr(&out) : buf_cstr(&fault), want) != 0) {
        fail_msg("%s: %s%s", address, buf_cstr(&out), buf_cstr(&fault));
    }
    assert_int_equal(hit.line, line);
    assert_int_equal(aliases_has(w->tables, w->conf, slice_string(address)), line > 0);
    buf_fini(&out);
    buf_fini(&fault);
}

static void an_alias_stands_for_its_addresses(void **unused)
{
    struct world w = {.virtual = "one@v.test a@x.test\n"
                                 "two@v.test A@x.test, b@x.test\n"
                                 "Deep@v.test one@v.test two@v.test a@x.test\n"
                                 "self@v.test self@v.test, c@x.test\n"
                                 "user@v.test user@x.test\n"
                                 "with+ext@v.test exact@x.test\n"
                                 "quoted@v.test \"a b\"@x.test <d@x.test>\n"
                                 "bare@v.test root\n"
                                 "root admin@x.test\n"
                                 "\"odd.\"@v.test e@x.test\n"
                                 "b\xc3\xbc"
                                 "cher@v.test f@x.test\n"
                                 "@all.test @x.test\n"
                                 "some@all.test g@x.test\n"
                                 "@catch.test h@x.test\n"
                                 "local@example.org i@x.test\n",
                      .local = "# comment\n"
                               "postmaster: root\n"
                               "list: j@x.test,\n  k@x.test, local\n"
                               "\"two words\": l@x.test\n"
                               "me: \\me, m@x.test\n"
                               "quoted:\"q q\"@x.test\n"
                               "user : n@x.test\n"};

    (void)unused;
    load(&w, "");
    expands(&w, "nobody@v.test", "nobody@v.test", 0);
    expands(&w, "one@v.test", "a@x.test", 1);
    expands(&w, "ONE@V.Test", "a@x.test", 1);
    expands(&w, "two@v.test", "A@x.test b@x.test", 2);
    expands(&w, "deep@v.test", "a@x.test b@x.test", 3);
    expands(&w, "self@v.test", "self@v.test c@x.test", 4);
    expands(&w, "user+more@v.test", "user+more@x.test", 5);
    expands(&w, "with+ext@v.test", "exact@x.test", 6);
    expands(&w, "quoted+more@v.test", "\"a b\"@x.test d+more@x.test", 7);
    expands(&w, "bare@v.test", "admin@x.test", 8);
    expands(&w, "root@origin.test", "admin@x.test", 9);
    expands(&w, "root@elsewhere.test", "root@elsewhere.test", 0);
    expands(&w, "root@example.org", "admin@x.test", 9);
    expands(&w, "root", "admin@x.test", 9);
    expands(&w, "\"odd.\"@v.test", "e@x.test", 10);
    expands(&w,
            "b\xc3\xbc"
            "cher@v.test",
            "f@x.test", 11);
    expands(&w, "Any+one@all.test", "Any+one@x.test", 12);
    expands(&w, "some@all.test", "g@x.test", 13);
    expands(&w, "any@catch.test", "h@x.test", 14);
    expands(&w, "postmaster", "admin@x.test", 2);
    expands(&w, "postmaster@example.org", "admin@x.test", 2);
    expands(&w, "postmaster@v.test", "postmaster@v.test", 0);
    expands(&w, "list@example.org", "j@x.test k@x.test local@origin.test", 3);
    expands(&w, "list+ext@example.org", "j@x.test k@x.test local@origin.test", 3);
    expands(&w, "list@v.test", "list@v.test", 0);
    expands(&w, "\"two words\"@example.org", "l@x.test", 5);
    expands(&w, "me@example.org", "me@origin.test m@x.test", 6);
    expands(&w, "quoted@example.org", "\"q q\"@x.test", 7);
    expands(&w, "user@example.org", "n@x.test", 8);
    expands(&w, "", "", 0);
    done(&w);
}

static void loops_and_floods_are_named(void **unused)
{
    struct world w = {0};
    char address[300], want[500];
    struct buf text;

    (void)unused;
    buf_init(&text, 1000000);
    (void)buf_add_string(&text,
                         "a@v.test b@v.test\nb@v.test c@v.test d@v.test\nd@v.test a@v.test\n");
    for (int i = 0; i < 101; i++) { /* a chain */
        (void)buf_addf(&text, "n%d@v.test n%d@v.test\n", i, i + 1);
    }
    for (int i = 0; i < 40; i++) { /* 2^40 ways, but few addresses */
        (void)buf_addf(&text, "x%d@v.test x%d@v.test y%d@v.test\ny%d@v.test x%d@v.test\n", i, i + 1,
                       i, i, i + 1);
    }
    for (int i = 0; i < 101; i++) {
        (void)buf_addf(&text, "%s f%d@v.test", i == 0 ? "many@v.test" : "", i);
    }
    for (int i = 0; i < 101; i++) {
        (void)buf_addf(&text, "\nf%d@v.test", i);
        for (int k = 0; k < 100; k++) {
            (void)buf_addf(&text, " p%d.%d@v.test", i, k);
        }
    }
    (void)buf_add_string(&text, "\n@w.test @");
    for (int i = 0; i < 40; i++) {
        (void)buf_add_string(&text, "abcd.");
    }
    (void)buf_add_string(&text, "test\n");
    assert_false(text.failed);
    w.virtual = buf_cstr(&text);
    load(&w, "");
    expands(&w, "a@v.test",
            "<a@v.test>: is an alias that leads to itself (virtual_alias_maps /d/virtual:3)", 1);
    expands(&w, "n1@v.test", "n101@v.test", 5);
    expands(&w, "n0@v.test",
            "<n100@v.test>: is more than 100 levels of aliases away (virtual_alias_maps "
            "/d/virtual:104)",
            4);
    expands(&w, "x0@v.test", "x40@v.test", 105);
    expands(&w, "many@v.test",
            "<f99@v.test>: leads to more than 10000 addresses (virtual_alias_maps /d/virtual:285)",
            185);
    (void)snprintf(address, sizeof address, "%0200d@w.test", 1);
    (void)snprintf(want, sizeof want,
                   "<%s>: leads to an address that is too long (virtual_alias_maps /d/virtual:287)",
                   address);
    expands(&w, address, want, 287);
    done(&w);
    buf_fini(&text);
}

static void canonical_forms_are_followed_to_the_last(void **unused)
{
    static const struct {
        enum table_list list;
        const char *address, *want;
    } cases[] = {
        {TABLE_SENDER_CANONICAL, "jdoe@example.org", "John.Doe@corp.test"},
        {TABLE_RECIPIENT_CANONICAL, "jdoe@example.org", "jdoe@example.org"},
        {TABLE_RECIPIENT_CANONICAL, "a@old.test", "a@new.test"},
        {TABLE_SENDER_CANONICAL, "a@old.test", "a@new.test"},
        {TABLE_SENDER_CANONICAL, "x+y@old.test", "x+y@new.test"},
        {TABLE_SENDER_CANONICAL, "jdoe+ext@example.org", "John.Doe+ext@corp.test"},
        {TABLE_SENDER_CANONICAL, "loop@a.test", "loop@a.test"},
        {TABLE_SENDER_CANONICAL, "www@example.org", "web@origin.test"},
        {TABLE_SENDER_CANONICAL, "other@x.test", "other@x.test"},
        {TABLE_SENDER_CANONICAL, "", ""},
    };
    struct world w = {.canonical = "@old.test @new.test\nloop@a.test loop@b.test\n"
                                   "loop@b.test loop@a.test\nwww web\n",
                      .senders = "jdoe@example.org j.doe@example.org\n"
                                 "j.doe@example.org John.Doe@corp.test\n"};

    (void)unused;
    load(&w, "");
    for (size_t i = 0; i < COUNT(cases); i++) {
        char room[ADDRESS_MAX];
        struct slice got = aliases_canonical(w.tables, w.conf, cases[i].list,
                                             slice_string(cases[i].address), room);

        if (!slice_equal(got, slice_string(cases[i].want))) {
            fail_msg("%s: %.*s", cases[i].address, SLICE_ARGS(got));
        }
    }
    done(&w);
}

static void bad_lines_are_named(void **unused)
{
    struct world w = {
        .virtual = "a@v.test\nb@v.test @\nc@v.test x@\nd@v.test a@x.test |run\n",
        .local = "a: |/bin/run\nb: \"|/bin/run -x\", c@x.test\nc: /var/mail/c\n"
                 "d: :include:/etc/list\ne e@x.test\nf@x.test: g\n: h\ni:\nj: @x.test\nk: "
                 "<|/bin/run>\nl: \\|run\n",
        .canonical = "a@x.test b@x.test c@x.test\nb@x.test ,\n",
    };

    (void)unused;
    load(
        &w,
        "/d/virtual:1:9: error: `a@v.test' needs mail addresses after it, separated by commas\n"
        "/d/virtual:2:10: error: `b@v.test' has no domain after its `@'\n"
        "/d/virtual:3:10: error: `c@v.test' needs mail addresses after it, separated by commas\n"
        "/d/virtual:4:10: error: `d@v.test' names a command; only addresses can be aliases here (a "
        "transport with agent=pipe runs commands)\n"
        "/d/local:1:4: error: `a' names a command; only addresses can be aliases here (a transport "
        "with agent=pipe runs commands)\n"
        "/d/local:2:4: error: `b' names a command; only addresses can be aliases here (a transport "
        "with agent=pipe runs commands)\n"
        "/d/local:3:4: error: `c' names a file; only addresses can be aliases here\n"
        "/d/local:4:4: error: `d' names a list in another file; only addresses can be aliases "
        "here\n"
        "/d/local:5:1: error: `e' is not of the form `name: addresses'\n"
        "/d/local:6:1: error: `f@x.test:' is no local name (addresses with a domain belong in "
        "virtual_alias_maps)\n"
        "/d/local:7:1: error: `:' is not of the form `name: addresses'\n"
        "/d/local:8:3: error: `i' needs mail addresses after it, separated by commas\n"
        "/d/local:9:4: error: `j' needs mail addresses after it, separated by commas\n"
        "/d/local:10:4: error: `k' names a command; only addresses can be aliases here (a "
        "transport with agent=pipe runs commands)\n"
        "/d/local:11:4: error: `l' names a command; only addresses can be aliases here (a "
        "transport with agent=pipe runs commands)\n"
        "/d/canonical:1:10: error: `a@x.test' needs exactly one mail address after it\n"
        "/d/canonical:2:10: error: `b@x.test' needs mail addresses after it, separated by "
        "commas\n");
    done(&w);
}

UNIT_MAIN(cmocka_unit_test(an_alias_stands_for_its_addresses),
          cmocka_unit_test(loops_and_floods_are_named),
          cmocka_unit_test(canonical_forms_are_followed_to_the_last),
          cmocka_unit_test(bad_lines_are_named))
