#include "unit.h"

#include <stdio.h>
#include <string.h>

#include "filter_changes.h"

#define INLINE 64u

static bool add_rcpt(struct draft *d, const char *address, const char *orcpt, uint32_t notify)
{
    return draft_add_rcpt(d,
                          &(struct wire_rcpt){.address = slice_string(address),
                                              .orcpt = slice_string(orcpt),
                                              .notify = notify},
                          false);
}

static struct draft_budget budget;

/* A finished draft with two recipients. */
static void make(struct draft *d, const char *content)
{
    budget = (struct draft_budget){.max = 1 << 20};
    draft_init(d, &budget, INLINE);
    assert_true(draft_begin(d, SLICE("s@a.test"), SLICE("env")));
    assert_true(add_rcpt(d, "one@b.test", "rfc822;x", NOTIFY_NEVER));
    assert_true(add_rcpt(d, "two@b.test", "", NOTIFY_DEFAULT));
    draft_keep_header(d);
    for (size_t i = 0; i < strlen(content); i++) { /* any split */
        assert_true(draft_add_content(d, slice_of(content + i, 1)));
    }
    assert_true(draft_finish(d));
}

/* Header, empty line and body as they would be submitted. */
static void want_content(const struct draft *d, const char *header, const char *body)
{
    char got[4096];
    size_t len = draft_read_body(d, 0, got, sizeof got - 1);

    got[len] = '\0';
    assert_string_equal(got, body);
    assert_int_equal(draft_body_size(d), strlen(body));
    assert_int_equal(draft_header(d).len, strlen(header));
    assert_memory_equal(draft_header(d).ptr, header, strlen(header));
}

static void want_rcpts(const struct draft *d, const char *want)
{
    struct slice address;
    struct buf all;
    size_t at = 0;

    buf_init(&all, 1000);
    while (draft_next_rcpt(d, &at, &address)) {
        buf_add(&all, address);
        buf_add_byte(&all, ' ');
    }
    assert_string_equal(buf_cstr(&all), want);
    buf_fini(&all);
}

static enum filter_change_result take(struct filter_changes *c, enum milter_change change,
                                      uint32_t index, const char *name, const char *value)
{
    const struct milter_event event = {.type = MILTER_CHANGED,
                                       .change = change,
                                       .index = index,
                                       .name = slice_string(name),
                                       .value = slice_string(value)};
    const char *why = "";

    return filter_changes_take(c, &event, &why);
}

static void end(struct draft *d, struct filter_changes *c)
{
    filter_changes_drop(c);
    draft_drop(d);
    assert_int_equal(budget.used, 0);
}

static void a_header_is_kept_apart_wherever_it_ends(void **unused)
{
    static const struct {
        const char *content, *header, *body;
    } cases[] = {
        {"A: 1\r\n\r\nbody\r\n", "A: 1\r\n", "body\r\n"},
        {"A: 1\r\n b\r\nC: 2\r\n\r\n", "A: 1\r\n b\r\nC: 2\r\n", ""},
        {"A: 1\r\n", "A: 1\r\n", ""},
        {"\r\nbody\r\n", "", "body\r\n"},
        {"no field\r\nA: 1\r\n", "", "no field\r\nA: 1\r\n"},
        {"A: 1\r\nno field\r\n", "A: 1\r\n", "no field\r\n"},
        {"A: 1\r\nno field", "A: 1\r\n", "no field"},
        {"", "", ""},
    };
    struct draft d;

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        make(&d, cases[i].content);
        want_content(&d, cases[i].header, cases[i].body);
        draft_drop(&d);
        assert_int_equal(budget.used, 0);
    }
}

static void changes_are_applied_as_a_whole(void **unused)
{
    struct filter_changes c = {0};
    const char *why = "";
    struct draft d;

    (void)unused;
    make(&d, "A: 1\r\nB: 2\r\n\r\nold\r\n");
    filter_changes_begin(&c, &d, INLINE, 1000);
    assert_int_equal(take(&c, MILTER_INSERT_HEADER, 0, "First", " x"), FILTER_CHANGE_OK);
    assert_int_equal(take(&c, MILTER_CHANGE_HEADER, 1, "b", ""), FILTER_CHANGE_OK);
    assert_int_equal(take(&c, MILTER_REPLACE_BODY, 0, "", "new\nbo"), FILTER_CHANGE_OK);
    assert_int_equal(take(&c, MILTER_REPLACE_BODY, 0, "", "dy"), FILTER_CHANGE_OK);
    assert_int_equal(take(&c, MILTER_DELETE_RCPT, 0, "", "ONE@b.test"), FILTER_CHANGE_OK);
    assert_int_equal(take(&c, MILTER_ADD_RCPT, 0, "", "two@b.test"), FILTER_CHANGE_OK);
    assert_int_equal(take(&c, MILTER_ADD_RCPT, 0, "", "new@c.test"), FILTER_CHANGE_OK);
    assert_int_equal(take(&c, MILTER_CHANGE_SENDER, 0, "", ""), FILTER_CHANGE_OK);
    assert_int_equal(take(&c, MILTER_QUARANTINE, 0, "", "odd"), FILTER_CHANGE_OK);
    want_content(&d, "A: 1\r\nB: 2\r\n", "old\r\n"); /* nothing yet */
    want_rcpts(&d, "one@b.test two@b.test ");
    assert_int_equal(filter_changes_apply(&c, &why), FILTER_CHANGE_OK);
    want_content(&d, "First: x\r\nA: 1\r\n", "new\r\nbody\r\n");
    want_rcpts(&d, "two@b.test new@c.test ");
    assert_int_equal(draft_sender(&d).len, 0);
    assert_int_equal(draft_rcpts(&d), 2);
    assert_string_equal(buf_cstr(&c.hold), "odd");
    assert_false(c.has_8bit);
    end(&d, &c);

    /* What was gathered and is dropped has no effect, and takes no memory. */
    make(&d, "A: 1\r\n\r\nold\r\n");
    filter_changes_begin(&c, &d, INLINE, 1000);
    assert_int_equal(take(&c, MILTER_REPLACE_BODY, 0, "", "\xc3\xa4"), FILTER_CHANGE_OK);
    assert_true(c.has_8bit);
    filter_changes_drop(&c);
    want_content(&d, "A: 1\r\n", "old\r\n");
    end(&d, &c);
}

static void a_body_in_a_memfd_stays_there(void **unused)
{
    char content[3000], body[2001];
    struct filter_changes c = {0};
    const char *why = "";
    struct draft d;
    int fd;

    (void)unused;
    memset(body, 'x', sizeof body - 3);
    memcpy(body + sizeof body - 3, "\r\n", 3);
    snprintf(content, sizeof content, "A: 1\r\n\r\n%s", body);
    make(&d, content);
    fd = d.fd;
    assert_true(fd >= 0);
    want_content(&d, "A: 1\r\n", body);
    filter_changes_begin(&c, &d, INLINE, 10000);
    assert_int_equal(take(&c, MILTER_ADD_HEADER, 0, "B", " 2"), FILTER_CHANGE_OK);
    assert_int_equal(filter_changes_apply(&c, &why), FILTER_CHANGE_OK);
    assert_int_equal(d.fd, fd);
    want_content(&d, "A: 1\r\nB: 2\r\n", body);

    /* And one that is as large takes its place. */
    memset(body, 'y', 1000);
    filter_changes_begin(&c, &d, INLINE, 10000);
    assert_int_equal(take(&c, MILTER_REPLACE_BODY, 0, "", body), FILTER_CHANGE_OK);
    assert_int_equal(filter_changes_apply(&c, &why), FILTER_CHANGE_OK);
    want_content(&d, "A: 1\r\nB: 2\r\n", body);
    end(&d, &c);
}

static void what_does_not_fit_is_the_filters_failure(void **unused)
{
    struct filter_changes c = {0};
    struct draft d;

    (void)unused;
    make(&d, "A: 1\r\n\r\nold\r\n");
    filter_changes_begin(&c, &d, INLINE, 20);
    assert_int_equal(take(&c, MILTER_ADD_RCPT, 0, "", "no address"), FILTER_CHANGE_BAD);
    assert_int_equal(take(&c, MILTER_ADD_RCPT, 0, "", ""), FILTER_CHANGE_BAD);
    assert_int_equal(take(&c, MILTER_CHANGE_SENDER, 0, "", "a@b c"), FILTER_CHANGE_BAD);
    assert_int_equal(take(&c, MILTER_REPLACE_BODY, 0, "", "ten bytes\n"), FILTER_CHANGE_OK);
    assert_int_equal(take(&c, MILTER_REPLACE_BODY, 0, "", "ten bytes\n"), FILTER_CHANGE_BAD);
    filter_changes_begin(&c, &d, INLINE, 20);
    for (unsigned i = 0; i < FILTER_CHANGES_MAX; i++) {
        assert_int_equal(take(&c, MILTER_DELETE_RCPT, 0, "", "x@y.test"), FILTER_CHANGE_OK);
    }
    assert_int_equal(take(&c, MILTER_DELETE_RCPT, 0, "", "x@y.test"), FILTER_CHANGE_BAD);
    end(&d, &c);
}

static void memory_that_is_out_is_no_failure_of_the_filter(void **unused)
{
    struct filter_changes c = {0};
    const char *why = "";
    struct draft d;

    (void)unused;
    make(&d, "A: 1\r\n\r\nold\r\n");
    filter_changes_begin(&c, &d, INLINE, 1000);
    budget.max = budget.used + 10;
    assert_int_equal(take(&c, MILTER_REPLACE_BODY, 0, "", "more than ten bytes"),
                     FILTER_CHANGE_NO_MEMORY);
    end(&d, &c);

    make(&d, "A: 1\r\n\r\nold\r\n");
    filter_changes_begin(&c, &d, INLINE, 1000);
    assert_int_equal(take(&c, MILTER_ADD_HEADER, 0, "B", " 2"), FILTER_CHANGE_OK);
    budget.max = budget.used + 10;
    assert_int_equal(filter_changes_apply(&c, &why), FILTER_CHANGE_NO_MEMORY);
    end(&d, &c);
}

static void the_last_recipient_can_be_taken_back(void **unused)
{
    struct draft d;

    (void)unused;
    budget = (struct draft_budget){.max = 10000};
    draft_init(&d, &budget, INLINE);
    assert_true(draft_begin(&d, SLICE("s@a.test"), SLICE("")));
    assert_true(add_rcpt(&d, "one@b.test", "", 0));
    assert_true(add_rcpt(&d, "two@b.test", "", 0));
    draft_undo_rcpt(&d);
    uint64_t used = budget.used; /* with the hash of the recipients before the last one */
    assert_true(add_rcpt(&d, "two@b.test", "", 0));
    draft_undo_rcpt(&d);
    assert_int_equal(budget.used, used);
    assert_true(add_rcpt(&d, "three@b.test", "", 0));
    want_rcpts(&d, "one@b.test three@b.test ");
    assert_int_equal(draft_rcpts(&d), 2);
    draft_drop(&d);
}

UNIT_MAIN(cmocka_unit_test(a_header_is_kept_apart_wherever_it_ends),
          cmocka_unit_test(changes_are_applied_as_a_whole),
          cmocka_unit_test(a_body_in_a_memfd_stays_there),
          cmocka_unit_test(what_does_not_fit_is_the_filters_failure),
          cmocka_unit_test(memory_that_is_out_is_no_failure_of_the_filter),
          cmocka_unit_test(the_last_recipient_can_be_taken_back))
