#include "unit.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "table.h"
#include "table_load.h"

/* The files of a test, for tables_load. */
struct file {
    const char *path;
    struct slice text;
};

static int read_files(void *arg, const char *path, size_t max, struct buf *out)
{
    for (const struct file *f = arg; f->path != NULL; f++) {
        if (strcmp(f->path, path) == 0) {
            return f->text.len <= max && buf_add(out, f->text) ? 0 : -EFBIG;
        }
    }
    return -ENOENT;
}

static struct conf *conf_of(const char *text)
{
    struct conf_world world = {.hostname = "mail.example.org"};
    struct conf_problems problems;
    struct conf *conf = conf_load_text(slice_string(text), "c", "/d", &world, &problems);

    assert_int_equal(problems.errors, 0);
    conf_problems_fini(&problems);
    assert_non_null(conf);
    return conf;
}

/* Load, and compare what is found wrong. */
static struct tables *load(const char *conf_text, struct file *files, const char *want)
{
    struct conf *conf = conf_of(conf_text);
    struct tables *t = NULL;
    struct buf out;
    int fd = -2;

    buf_init(&out, 100000);
    if (tables_load(conf, "/d", read_files, files, &out, &fd)) {
        t = tables_open(fd);
        assert_non_null(t);
        assert_return_code(close(fd), 0);
    } else {
        assert_int_equal(fd, -2);
    }
    assert_string_equal(buf_cstr(&out), want);
    buf_fini(&out);
    conf_free(conf);
    return t;
}

static void entries_are_found_by_their_keys_and_say_where_they_stand(void **unused)
{
    struct file files[] = {
        {"/d/one", SLICE("# comment\n\nA@B.test  REJECT no\n   more\n\nc.test OK\n")},
        {"/e/two", SLICE("c.test DUNNO\r\nd.test HOLD\n")},
        {NULL, SLICE("")},
    };
    struct tables *t = load("sender_access = one texthash:/e/two\n", files, "");
    struct table_hit hit;

    (void)unused;
    assert_int_equal(tables_count(t, TABLE_SENDER_ACCESS), 2);
    assert_int_equal(tables_count(t, TABLE_RECIPIENT_ACCESS), 0);
    assert_int_equal(tables_count(NULL, TABLE_SENDER_ACCESS), 0);
    assert_true(tables_find(t, TABLE_SENDER_ACCESS, 0, SLICE("a@b.test"), &hit));
    assert_true(slice_equal(hit.value, SLICE("REJECT no more")));
    assert_true(slice_equal(hit.path, SLICE("/d/one")));
    assert_int_equal(hit.line, 3);
    assert_true(tables_find(t, TABLE_SENDER_ACCESS, 0, SLICE("c.test"), &hit));
    assert_int_equal(hit.line, 6);
    assert_false(tables_find(t, TABLE_SENDER_ACCESS, 0, SLICE("A@B.test"), &hit));
    assert_false(tables_find(t, TABLE_SENDER_ACCESS, 0, SLICE(""), &hit));
    assert_true(tables_find(t, TABLE_SENDER_ACCESS, 1, SLICE("c.test"), &hit));
    assert_true(slice_equal(hit.value, SLICE("DUNNO")));
    assert_true(slice_equal(hit.path, SLICE("/e/two")));
    tables_close(t);
}

static void the_longest_network_is_found(void **unused)
{
    struct file files[] = {
        {"/d/nets", SLICE("0.0.0.0/0 REJECT\n10.0.0.0/8 DEFER\n10.1 HOLD\n10.1.2.3 OK\n"
                          "[2001:db8::]/32 DUNNO\n2001:db8::1 OK\n")},
        {NULL, SLICE("")},
    };
    static const struct {
        const char *ip, *want;
    } cases[] = {
        {"192.0.2.1", "REJECT"},   {"10.255.0.1", "DEFER"}, {"10.1.255.255", "HOLD"},
        {"10.1.2.3", "OK"},        {"10.1.2.2", "HOLD"},    {"2001:db8::2", "DUNNO"},
        {"2001:db8:0:0::1", "OK"}, {"2001:db9::1", ""},
    };
    struct tables *t = load("client_access = nets\n", files, "");

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        unsigned char ip[16];
        struct table_hit hit = {.value = SLICE("")};

        assert_true(ip_parse(slice_string(cases[i].ip), ip));
        assert_int_equal(tables_find_network(t, TABLE_CLIENT_ACCESS, 0, ip, &hit),
                         cases[i].want[0] != '\0');
        assert_true(slice_equal(hit.value, slice_string(cases[i].want)));
    }
    tables_close(t);
}

static void what_is_wrong_is_told_with_its_place(void **unused)
{
    static const struct {
        const char *conf, *text, *want;
    } cases[] = {
        {"sender_access = f", "a@b\n", "/d/f:1:4: error: `a@b' has no action\n"},
        {"sender_access = f", "# x\na@b   REJCT\n",
         "/d/f:2:7: error: `a@b' has an unknown action; expected OK, DUNNO, REJECT, DEFER, 4NN, "
         "5NN, "
         "HOLD, DISCARD, WARN, INFO, PREPEND, REDIRECT, BCC or FILTER\n"},
        {"sender_access = f", "10.0.0.0/8 OK\n*.test OK\n",
         "/d/f:1:1: error: `10.0.0.0/8' is a network; expected an address or domain "
         "(networks belong in client_access)\n"
         "/d/f:2:1: error: `*.test' is not an address, domain, .domain or user@\n"},
        {"client_access = f", "mail.test OK\n10.0.0.1/8 OK\n",
         "/d/f:1:1: error: `mail.test' is not an address, or a network without bits after its "
         "mask; "
         "clients are known by address alone\n"
         "/d/f:2:1: error: `10.0.0.1/8' is not an address, or a network without bits after its "
         "mask; "
         "clients are known by address alone\n"},
        {"recipient_access = f", "a@b FILTER nosuch:x\nc@d FILTER\ne@f REDIRECT x\n",
         "/d/f:1:5: error: `a@b' names a transport that nothing declares\n"
         "/d/f:2:5: error: `c@d' needs a TRANSPORT:NEXTHOP after it\n"
         "/d/f:3:5: error: `e@f' needs a mail address with a domain after it\n"},
        {"sender_bcc_maps = f", "a@b c@d e@f\n",
         "/d/f:1:5: error: `a@b' needs one mail address with a domain after it\n"},
        {"header_checks = f", "/x/ REJECT\n/(/ REJECT\n",
         "/d/f:2:3: error: the pattern is invalid: missing closing parenthesis\n"},
        {"header_checks = nosuch", "",
         "c:1:17: error: header_checks: nosuch: No such file or directory\n"},
    };

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct file files[] = {{"/d/f", slice_string(cases[i].text)}, {NULL, SLICE("")}};

        assert_null(load(cases[i].conf, files, cases[i].want));
    }
    {
        struct file nul[] = {{"/d/f", SLICE("a@b OK\n\0")}, {NULL, SLICE("")}};

        assert_null(
            load("sender_access = f", nul, "/d/f:2:1: error: a NUL byte has no place in a text\n"));
    }
}

static void a_key_that_stands_twice_and_an_order_that_is_lost_are_warned_of(void **unused)
{
    struct file files[] = {
        {"/d/f", SLICE("a@b OK\nA@b REJECT\n")},
        {"/d/n", SLICE("10.0.0.0/8 REJECT\n10.1.0.0/16 OK\n10.2.0.0/16 REJECT\n")},
        {NULL, SLICE("")},
    };

    (void)unused;
    tables_close(load("sender_access = f", files,
                      "/d/f:2:1: warning: `A@b' stands in line 1, too; that one holds\n"));
    tables_close(load("client_access = n", files, ""));
    tables_close(load("client_access = cidr:n", files,
                      "/d/n:2:1: warning: `10.1.0.0/16' is part of the network in line 1, which "
                      "holds in Postfix's cidr tables as it is the first; here the smaller network "
                      "holds\n"));
}

static void many_entries_are_all_found(void **unused)
{
    struct table_image *image = table_image_new();
    struct table_hit hit;
    struct tables *t;
    unsigned before;
    char key[64];
    int fd;

    (void)unused;
    assert_true(table_image_begin(image, TABLE_RELAY_RECIPIENT, SLICE("/f")));
    for (unsigned i = 0; i < 100000; i++) {
        (void)snprintf(key, sizeof key, "user%u@example.org", i);
        assert_int_equal(table_image_add(image, slice_string(key),
                                         i % 2 == 0 ? SLICE("a") : SLICE(""), i, &before),
                         TABLE_ADDED);
    }
    assert_int_equal(table_image_add(image, SLICE("user7@example.org"), SLICE(""), 1, &before),
                     TABLE_SEEN);
    assert_int_equal(before, 7);
    fd = table_image_seal(image);
    assert_return_code(fd, errno);
    table_image_free(image);
    t = tables_open(fd);
    assert_non_null(t);
    assert_int_equal(write(fd, "x", 1), -1); /* nothing can change it */
    (void)close(fd);
    for (unsigned i = 0; i < 100000; i++) {
        (void)snprintf(key, sizeof key, "user%u@example.org", i);
        assert_true(tables_find(t, TABLE_RELAY_RECIPIENT, 0, slice_string(key), &hit));
        assert_int_equal(hit.line, i);
        assert_int_equal(hit.value.len, i % 2 == 0);
    }
    assert_false(tables_find(t, TABLE_RELAY_RECIPIENT, 0, SLICE("user100000@example.org"), &hit));
    tables_close(t);
}

/* Any byte of an image may be wrong: nothing outside of it is read. */
static void a_damaged_image_is_refused_or_read_within_its_bounds(void **unused)
{
    struct table_image *image = table_image_new();
    char bytes[4096], damaged[sizeof bytes];
    struct table_hit hit;
    unsigned before;
    ssize_t len;
    int fd;

    (void)unused;
    assert_true(table_image_begin(image, TABLE_SENDER_ACCESS, SLICE("/f")));
    for (char c = 'a'; c <= 'z'; c++) {
        assert_int_equal(table_image_add(image, slice_of(&c, 1), SLICE("OK"), 1, &before),
                         TABLE_ADDED);
    }
    fd = table_image_seal(image);
    table_image_free(image);
    len = pread(fd, bytes, sizeof bytes, 0);
    assert_in_range(len, 100, sizeof bytes - 1);
    (void)close(fd);
    for (ssize_t i = 0; i < len; i++) {
        int copy = memfd_create("damaged", 0);
        unsigned char ip[16] = {0};
        struct tables *t;

        memcpy(damaged, bytes, (size_t)len);
        damaged[i] = (char)(damaged[i] ^ 0xa5);
        assert_int_equal(write(copy, damaged, (size_t)len), len);
        t = tables_open(copy);
        (void)close(copy);
        if (t != NULL && tables_count(t, TABLE_SENDER_ACCESS) > 0) {
            for (char c = 'a'; c <= 'z'; c++) {
                (void)tables_find(t, TABLE_SENDER_ACCESS, 0, slice_of(&c, 1), &hit);
            }
            (void)tables_find_network(t, TABLE_SENDER_ACCESS, 0, ip, &hit);
        }
        tables_close(t);
    }
}

UNIT_MAIN(cmocka_unit_test(entries_are_found_by_their_keys_and_say_where_they_stand),
          cmocka_unit_test(the_longest_network_is_found),
          cmocka_unit_test(what_is_wrong_is_told_with_its_place),
          cmocka_unit_test(a_key_that_stands_twice_and_an_order_that_is_lost_are_warned_of),
          cmocka_unit_test(many_entries_are_all_found),
          cmocka_unit_test(a_damaged_image_is_refused_or_read_within_its_bounds))
