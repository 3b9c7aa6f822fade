#include "unit.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lease_page.h"
#include "maildir.h"
#include "mem.h"

static char top[64];

static int make_top(void **state)
{
    (void)state;
    (void)snprintf(top, sizeof top, "/tmp/test_maildir.XXXXXX");
    return mkdtemp(top) == NULL ? -1 : 0;
}

static int remove_top(void **state)
{
    char command[100];

    (void)state;
    (void)snprintf(command, sizeof command, "rm -rf %s", top);
    return system(command);
}

/* ---- paths ---------------------------------------------------------------------------------- */

static void a_recipient_has_one_directory_and_no_way_out_of_it(void **state)
{
    static const struct {
        const char *pattern, *recipient, *delimiters;
        const char *want; /* NULL: refused */
    } table[] = {
        {"/m/%d/%u/", "Joe@Example.ORG", "", "/m/example.org/joe/"},
        {"/m/%u/Maildir", "joe", "", "/m/joe/Maildir"},
        {"/m/%d/%u", "joe+x@a.test", "+", "/m/a.test/joe"},
        {"/m/%d/%u", "joe-x+y@a.test", "+-", "/m/a.test/joe"},
        {"/m/%d/%u", "joe+x@a.test", "", "/m/a.test/joe+x"},
        {"/m/%d/%u", "+x@a.test", "+", "/m/a.test/+x"},
        {"/m/%d/%u", "\"a b\"@a.test", "", "/m/a.test/a b"},
        {"/m/100%%/%u", "joe@a.test", "", "/m/100%/joe"},
        {"/m/%u/%u", "joe@a.test", "", "/m/joe/joe"},
        {"/m/%d/%u", "\"..\"@a.test", "", NULL},
        {"/m/%d/%u", "\".x\"@a.test", "", NULL},
        {"/m/%d/%u", "\"../x\"@a.test", "", NULL},
        {"/m/%d/%u", "a/b@a.test", "", NULL},
        {"/m/%d/%u", "joe@..", "", NULL},
        {"/m/%d/%u", "joe", "", NULL}, /* no domain */
        {"/m/%d/%u", "", "", NULL},
        {"/m/%x", "joe@a.test", "", NULL},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        const char *why = NULL;
        struct buf path;
        bool ok;

        buf_init(&path, MAILDIR_PATH_MAX);
        ok = maildir_path(slice_string(table[i].pattern), slice_string(table[i].recipient),
                          slice_string(table[i].delimiters), &path, &why);
        assert_int_equal(ok, table[i].want != NULL);
        if (ok) {
            assert_string_equal(buf_cstr(&path), table[i].want);
        } else {
            assert_non_null(why);
        }
        buf_fini(&path);
    }
}

/* ---- deliveries ----------------------------------------------------------------------------- */

struct source {
    const char *text;
    size_t piece; /* bytes handed out at once */
    int error;    /* at the end */
};

static int read_source(void *arg, struct slice *ret_piece)
{
    struct source *s = arg;
    size_t len = strnlen(s->text, s->piece);

    if (len == 0) {
        return s->error;
    }
    *ret_piece = slice_of(s->text, len);
    s->text += len;
    return 1;
}

static int deliver_under(const struct lease_page *lease, const char *dir, struct source *source,
                         uint64_t number, struct buf *why)
{
    char path[200];
    struct maildir_mail mail = {.copy = {.path = path,
                                         .sender = SLICE("a@here.test"),
                                         .recipient = SLICE("Joe@there.test"),
                                         .now = {1700000000 * US_PER_S + 123456}},
                                .fixed_len = strlen(top),
                                .host = "mx/here:test",
                                .number = number,
                                .lease = lease};

    (void)snprintf(path, sizeof path, "%s/%s", top, dir);
    return maildir_deliver(&mail, read_source, source, why);
}

static int deliver(const char *dir, struct source *source, uint64_t number, struct buf *why)
{
    return deliver_under(NULL, dir, source, number, why);
}

/* How many files are in top/dir; the content of one of them. */
static size_t list(const char *dir, char *ret_content, size_t size)
{
    char path[600];
    size_t count = 0;
    struct dirent *entry;
    DIR *d;

    (void)snprintf(path, sizeof path, "%s/%s", top, dir);
    d = opendir(path);
    assert_non_null(d);
    while ((entry = readdir(d)) != NULL) {
        if (entry->d_name[0] != '.') {
            count++;
            assert_null(strchr(entry->d_name, ':'));
            (void)snprintf(path, sizeof path, "%s/%s/%s", top, dir, entry->d_name);
            int fd = open(path, O_RDONLY);
            ssize_t n = read(fd, ret_content, size - 1);
            assert_true(n >= 0);
            ret_content[n] = '\0';
            (void)close(fd);
        }
    }
    (void)closedir(d);
    return count;
}

static void a_message_lands_in_new_with_unix_line_ends(void **state)
{
    static const char *const want = "Return-Path: <a@here.test>\nDelivered-To: Joe@there.test\n"
                                    "Subject: x\n\nbare \r cr\nlast\n";
    char content[1000];

    (void)state;
    /* However the content is cut, even between CR and LF. */
    for (size_t piece = 1; piece < 50; piece++) {
        struct source source = {"Subject: x\r\n\r\nbare \r cr\r\nlast", piece, 0};
        char dir[40], new[50];
        struct buf why;

        buf_init(&why, 1000);
        (void)snprintf(dir, sizeof dir, "a/b%zu/c/", piece);
        assert_int_equal(deliver(dir, &source, piece, &why), 0);
        (void)snprintf(new, sizeof new, "%snew", dir);
        assert_int_equal(list(new, content, sizeof content), 1);
        assert_string_equal(content, want);
        (void)snprintf(new, sizeof new, "%stmp", dir);
        assert_int_equal(list(new, content, sizeof content), 0);
        buf_fini(&why);
    }
}

static void the_last_look_is_before_the_new_name(void **state)
{
    struct source first = {"x\r\n", 100, 0}, second = first;
    struct lease_page page;
    char content[1000];
    struct buf why;

    (void)state;
    buf_init(&why, 1000);
    assert_int_equal(lease_page_make(&page), 0); /* its lease does not hold yet */
    assert_int_equal(deliver_under(&page, "leased", &first, 1, &why), -ECANCELED);
    assert_int_equal(first.text[0], '\0'); /* all was written */
    assert_int_equal(list("leased/new", content, sizeof content), 0);
    assert_int_equal(list("leased/tmp", content, sizeof content), 0);
    lease_page_set(&page, MONO_NEVER);
    assert_int_equal(deliver_under(&page, "leased", &second, 1, &why), 0);
    assert_int_equal(list("leased/new", content, sizeof content), 1);
    lease_page_fini(&page);
    buf_fini(&why);
}

static void deliveries_have_names_of_their_own(void **state)
{
    char content[1000];
    struct buf why;

    (void)state;
    buf_init(&why, 1000);
    for (uint64_t i = 0; i < 20; i++) {
        struct source source = {"x\r\n", 100, 0};

        assert_int_equal(deliver("box", &source, i, &why), 0);
    }
    assert_int_equal(list("box/new", content, sizeof content), 20);
    buf_fini(&why);
}

static void make_dir(const char *name)
{
    char path[300];

    (void)snprintf(path, sizeof path, "%s/%s", top, name);
    assert_return_code(mkdir(path, 0700), errno);
}

static void make_link(const char *target, const char *name)
{
    char from[300], to[300];

    (void)snprintf(from, sizeof from, "%s/%s", top, target);
    (void)snprintf(to, sizeof to, "%s/%s", top, name);
    assert_return_code(symlink(from, to), errno);
}

/* This is root's delivery, too, when root runs the tests: nothing else would keep it out. */
static void no_link_of_a_user_is_followed(void **state)
{
    static const struct {
        const char *made[3]; /* directories */
        const char *link;    /* in place of this one */
        const char *mailbox;
    } table[] = {
        {{"l1"}, "l1/joe", "l1/joe/Maildir"},
        {{"l2", "l2/joe"}, "l2/joe/Maildir", "l2/joe/Maildir/"},
        {{"l3", "l3/joe", "l3/joe/Maildir"}, "l3/joe/Maildir/new", "l3/joe/Maildir"},
        {{"l4", "l4/joe", "l4/joe/Maildir"}, "l4/joe/Maildir/tmp", "l4/joe/Maildir"},
        {{"l5", "l5/joe", "l5/joe/Maildir"}, "l5/joe/Maildir/cur", "l5/joe/Maildir"},
    };
    char content[1000];
    struct buf why;

    (void)state;
    buf_init(&why, 4000);
    make_dir("theirs");
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct source source = {"x\r\n", 100, 0};

        for (size_t k = 0; k < 3 && table[i].made[k] != NULL; k++) {
            make_dir(table[i].made[k]);
        }
        make_link("theirs", table[i].link);
        buf_clear(&why);
        assert_int_equal(deliver(table[i].mailbox, &source, i, &why), -ELOOP);
        assert_non_null(strstr(buf_cstr(&why), table[i].link));
        assert_non_null(strstr(buf_cstr(&why), "a symbolic link, which is not followed"));
        assert_int_equal(list("theirs", content, sizeof content), 0);
    }
    buf_fini(&why);
}

static void the_operator_may_use_links_and_nobody_may_go_up(void **state)
{
    char content[1000], path[200];
    struct source source = {"x\r\n", 100, 0}, again = source;
    struct maildir_mail mail = {.copy = {.path = path}, .host = "mx", .number = 1};
    struct buf why;

    (void)state;
    buf_init(&why, 4000);
    make_dir("disk2");
    make_link("disk2", "mail");
    (void)snprintf(path, sizeof path, "%s/mail/joe", top);
    mail.fixed_len = strlen(top) + strlen("/mail");
    assert_int_equal(maildir_deliver(&mail, read_source, &source, &why), 0);
    assert_int_equal(list("disk2/joe/new", content, sizeof content), 1);
    (void)snprintf(path, sizeof path, "%s/mail/../up", top);
    assert_int_equal(maildir_deliver(&mail, read_source, &again, &why), -EINVAL);
    assert_int_equal(maildir_fixed_len(SLICE("/home/%u/Maildir")), strlen("/home"));
    assert_int_equal(maildir_fixed_len(SLICE("/m/x%u")), strlen("/m"));
    assert_int_equal(maildir_fixed_len(SLICE("/%u")), 0);
    assert_int_equal(maildir_fixed_len(SLICE("%u")), 0);
    assert_int_equal(maildir_fixed_len(SLICE("/m/all/")), strlen("/m/all/"));
    buf_fini(&why);
}

static void what_fails_leaves_nothing_and_says_why(void **state)
{
    struct rlimit before, small = {.rlim_cur = 4096};
    static char large[20001];
    struct source source = {large, 1000, 0}, broken = {"x\r\n", 100, -EIO};
    char content[1000], path[200];
    struct buf why;

    (void)state;
    memset(large, 'x', sizeof large - 1);
    buf_init(&why, 4000);
    assert_return_code(getrlimit(RLIMIT_FSIZE, &before), 0);
    small.rlim_max = before.rlim_max;
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_return_code(setrlimit(RLIMIT_FSIZE, &small), 0);
    int rc = deliver("full", &source, 1, &why);
    assert_return_code(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(rc, -EFBIG);
    assert_int_equal(maildir_status(rc).class, STATUS_TRANSIENT);
    assert_int_equal(maildir_status(rc).subject, 2);
    assert_non_null(strstr(buf_cstr(&why), "File too large"));
    assert_int_equal(list("full/new", content, sizeof content), 0);
    assert_int_equal(list("full/tmp", content, sizeof content), 0);

    assert_int_equal(deliver("broken", &broken, 2, &why), -EIO);
    assert_int_equal(list("broken/new", content, sizeof content), 0);
    assert_int_equal(list("broken/tmp", content, sizeof content), 0);

    /* A file where a directory should be. */
    (void)snprintf(path, sizeof path, "%s/file", top);
    (void)close(open(path, O_CREAT | O_WRONLY, 0600));
    source = (struct source){"x\r\n", 100, 0};
    assert_int_equal(deliver("file/box", &source, 3, &why), -ENOTDIR);
    assert_int_equal(maildir_status(-ENOTDIR).class, STATUS_TRANSIENT);
    buf_fini(&why);
}

UNIT_MAIN(cmocka_unit_test(a_recipient_has_one_directory_and_no_way_out_of_it),
          cmocka_unit_test_setup_teardown(a_message_lands_in_new_with_unix_line_ends, make_top,
                                          remove_top),
          cmocka_unit_test_setup_teardown(the_last_look_is_before_the_new_name, make_top,
                                          remove_top),
          cmocka_unit_test_setup_teardown(deliveries_have_names_of_their_own, make_top, remove_top),
          cmocka_unit_test_setup_teardown(no_link_of_a_user_is_followed, make_top, remove_top),
          cmocka_unit_test_setup_teardown(the_operator_may_use_links_and_nobody_may_go_up, make_top,
                                          remove_top),
          cmocka_unit_test_setup_teardown(what_fails_leaves_nothing_and_says_why, make_top,
                                          remove_top))
