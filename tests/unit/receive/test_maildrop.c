#include "unit.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "maildrop.h"
#include "mem.h"

#define HEAD "sluice-maildrop 1\nsender a@b.test\n"
#define TAIL "content 0000000000000003\n"

static enum maildrop_result get(struct slice in, struct maildrop *ret, size_t *ret_head)
{
    const char *why = "";

    return maildrop_get(in, ret, ret_head, &why);
}

static void what_is_put_is_got(void **state)
{
    struct maildrop_rcpt rcpts[] = {
        {NOTIFY_DEFAULT, {"", 0}, SLICE("friend@example.org")},
        {NOTIFY_SUCCESS | NOTIFY_DELAY, SLICE("rfc822;x+2By"), SLICE("\"a b\"@example.org")},
        {NOTIFY_NEVER, {"", 0}, SLICE("root")},
    };
    const struct maildrop m = {.sender = SLICE("a@b.test"),
                               .name = SLICE("J\xc3\xb6rg, A."),
                               .envid = SLICE("id+2B1"),
                               .flags = ENVELOPE_SMTPUTF8 | ENVELOPE_TRACE | ENVELOPE_RET_HDRS,
                               .rcpts = rcpts,
                               .rcpt_count = COUNT(rcpts),
                               .content_size = 1234};
    struct maildrop got;
    struct buf b;
    size_t head;

    (void)state;
    buf_init(&b, MAILDROP_HEAD_MAX);
    assert_true(maildrop_put(&m, &b));
    for (size_t len = 0; len < buf_len(&b); len++) {
        assert_int_equal(get(slice_of(buf_slice(&b).ptr, len), &got, &head), MAILDROP_MORE);
    }
    assert_true(buf_add_string(&b, "content"));
    assert_int_equal(get(buf_slice(&b), &got, &head), MAILDROP_OK);
    assert_int_equal(head, buf_len(&b) - strlen("content"));
    assert_true(slice_equal(got.sender, m.sender));
    assert_true(slice_equal(got.name, m.name));
    assert_true(slice_equal(got.envid, m.envid));
    assert_int_equal(got.flags, m.flags);
    assert_int_equal(got.content_size, 1234);
    assert_int_equal(got.rcpt_count, COUNT(rcpts));
    for (size_t i = 0; i < COUNT(rcpts); i++) {
        assert_int_equal(got.rcpts[i].notify, rcpts[i].notify);
        assert_true(slice_equal(got.rcpts[i].orcpt, rcpts[i].orcpt));
        assert_true(slice_equal(got.rcpts[i].address, rcpts[i].address));
    }
    maildrop_fini(&got);
    buf_fini(&b);
}

static void only_what_is_put_is_read(void **state)
{
    static const struct {
        const char *text;
        enum maildrop_result want;
    } cases[] = {
        {HEAD "rcpt default - x@y.test\n" TAIL, MAILDROP_OK},
        {"sluice-maildrop 1\nsender \nrcpt default - x\n" TAIL, MAILDROP_OK},
        {HEAD "rcpt default - x@y.test\n", MAILDROP_MORE},
        {HEAD TAIL, MAILDROP_BAD}, /* no recipients */
        {"sluice-maildrop 2\n", MAILDROP_BAD},
        {"#!/bin/sh\n", MAILDROP_BAD},
        {"sluice-maildrop 1\nsender a b@c.test\n", MAILDROP_BAD},
        {"sluice-maildrop 1\nsender <a@c.test>\n", MAILDROP_BAD},
        {"sluice-maildrop 1\nrcpt default - x@y.test\n", MAILDROP_BAD},
        {HEAD "rcpt default - x\r@y.test\n" TAIL, MAILDROP_BAD},
        {HEAD "rcpt default - \n" TAIL, MAILDROP_BAD},
        {HEAD "rcpt default x@y.test\n" TAIL, MAILDROP_BAD},
        {HEAD "rcpt delay,success - x@y.test\n" TAIL, MAILDROP_BAD}, /* not the order of put */
        {HEAD "rcpt default  x@y.test\n" TAIL, MAILDROP_BAD},
        {HEAD "rcpt default - x@y.test\nname Late\n" TAIL, MAILDROP_BAD},
        {HEAD "name A\nname B\nrcpt default - x@y.test\n" TAIL, MAILDROP_BAD},
        {HEAD "name \nrcpt default - x@y.test\n" TAIL, MAILDROP_BAD},
        {HEAD "flag trace\nflag 8bit\nrcpt default - x@y.test\n" TAIL, MAILDROP_BAD},
        {HEAD "flag report\nrcpt default - x@y.test\n" TAIL, MAILDROP_BAD},
        {HEAD "rcpt default - x@y.test\ncontent 3\n", MAILDROP_BAD},
        {HEAD "rcpt default - x@y.test\ncontent -000000000000003\n", MAILDROP_BAD},
        {HEAD "rcpt default - x@y.test\n\n" TAIL, MAILDROP_BAD},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct maildrop m;
        size_t head;
        enum maildrop_result result = get(slice_string(cases[i].text), &m, &head);

        if (result != cases[i].want) {
            print_error("case %zu\n", i);
        }
        assert_int_equal(result, cases[i].want);
        if (result == MAILDROP_OK) {
            maildrop_fini(&m);
        }
    }
}

static void what_cannot_be_read_is_not_put(void **state)
{
    struct maildrop_rcpt good = {NOTIFY_DEFAULT, {"", 0}, SLICE("x@y.test")};
    struct maildrop_rcpt bad[] = {
        {NOTIFY_NEVER | NOTIFY_DELAY, {"", 0}, SLICE("x@y.test")},
        {NOTIFY_DEFAULT, SLICE("-"), SLICE("x@y.test")},
        {NOTIFY_DEFAULT, SLICE("a b"), SLICE("x@y.test")},
        {NOTIFY_DEFAULT, {"", 0}, SLICE("x@y.test\nrcpt")},
        {NOTIFY_DEFAULT, {"", 0}, {"", 0}},
    };
    struct maildrop m = {.sender = SLICE("a@b.test"), .name = {"", 0}, .envid = {"", 0}};
    struct buf b;

    (void)state;
    buf_init(&b, MAILDROP_HEAD_MAX);
    assert_false(maildrop_put(&m, &b)); /* no recipients */
    m.rcpt_count = 1;
    for (size_t i = 0; i < COUNT(bad); i++) {
        m.rcpts = &bad[i];
        assert_false(maildrop_put(&m, &b));
    }
    m.rcpts = &good;
    m.flags = ENVELOPE_REPORT;
    assert_false(maildrop_put(&m, &b));
    m.flags = 0;
    m.name = SLICE("two\nlines");
    assert_false(maildrop_put(&m, &b));
    buf_fini(&b);
}

static void an_envelope_has_an_end(void **state)
{
    struct buf b;
    struct maildrop m;
    size_t head;

    (void)state;
    buf_init(&b, 2u * MAILDROP_HEAD_MAX);
    assert_true(buf_add_string(&b, HEAD));
    for (unsigned i = 0; i < MAILDROP_RCPTS_MAX; i++) {
        assert_true(buf_add_string(&b, "rcpt default - x@y.test\n"));
    }
    assert_int_equal(get(buf_slice(&b), &m, &head), MAILDROP_MORE);
    assert_true(buf_add_string(&b, "rcpt default - x@y.test\n"));
    assert_int_equal(get(buf_slice(&b), &m, &head), MAILDROP_BAD);
    buf_clear(&b);
    memset(buf_room(&b, MAILDROP_HEAD_MAX), 'x', MAILDROP_HEAD_MAX);
    buf_grew(&b, MAILDROP_HEAD_MAX - 1); /* one endless line */
    assert_int_equal(get(buf_slice(&b), &m, &head), MAILDROP_MORE);
    buf_grew(&b, 1);
    assert_int_equal(get(buf_slice(&b), &m, &head), MAILDROP_BAD);
    buf_fini(&b);
}

/* A file as sendmail makes it, and what pickup sees of it before and after. */
static void a_file_is_complete_by_its_mode(void **state)
{
    char directory[] = "/tmp/sluice-test-maildrop-XXXXXX", path[200], bytes[500];
    struct maildrop_rcpt rcpt = {NOTIFY_DEFAULT, {"", 0}, SLICE("x@y.test")};
    struct maildrop m = {.sender = SLICE("a@b.test"),
                         .name = {"", 0},
                         .envid = {"", 0},
                         .rcpts = &rcpt,
                         .rcpt_count = 1};
    struct maildrop_file f;
    struct stat st;
    ssize_t len;
    size_t head;
    int fd;

    (void)state;
    assert_non_null(mkdtemp(directory));
    assert_int_equal(maildrop_create(&f, directory, &m), 0);
    snprintf(path, sizeof path, "%s/%s", directory, f.name);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, MAILDROP_INCOMPLETE);
    maildrop_write(&f, SLICE("Hello\n"));
    maildrop_write(&f, SLICE("World\n"));
    assert_int_equal(maildrop_commit(&f), 0);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, MAILDROP_COMPLETE);

    fd = open(path, O_RDONLY | O_CLOEXEC);
    len = read(fd, bytes, sizeof bytes);
    close(fd);
    assert_true(len > 0);
    assert_int_equal(get(slice_of(bytes, (size_t)len), &m, &head), MAILDROP_OK);
    assert_int_equal(m.content_size, 12);
    assert_true(slice_equal(slice_of(bytes + head, (size_t)len - head), SLICE("Hello\nWorld\n")));
    maildrop_fini(&m);
    assert_int_equal(unlink(path), 0);

    m.rcpts = &rcpt;
    m.rcpt_count = 1;
    assert_int_equal(maildrop_create(&f, directory, &m), 0);
    maildrop_abort(&f);
    assert_int_equal(rmdir(directory), 0); /* nothing is left in it */
    assert_true(maildrop_create(&f, directory, &m) < 0);
}

UNIT_MAIN(cmocka_unit_test(what_is_put_is_got), cmocka_unit_test(only_what_is_put_is_read),
          cmocka_unit_test(what_cannot_be_read_is_not_put),
          cmocka_unit_test(an_envelope_has_an_end),
          cmocka_unit_test(a_file_is_complete_by_its_mode))
