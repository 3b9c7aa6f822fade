#include "unit.h"

#include <string.h>

#include "conf.h"
#include "intake.h"
#include "mem.h"
#include "rng.h"

#define HEADER "From: a@a.test\r\nDate: x\r\nMessage-ID: <x@a.test>\r\n"

struct fixture {
    struct conf *conf;
    const struct conf *current;
    struct rule_set *rules;
    struct receive_settings settings;
    struct draft_budget budget;
};

static bool add_rcpt(struct draft *d, const char *address, const char *orcpt, uint32_t notify)
{
    return draft_add_rcpt(d,
                          &(struct wire_rcpt){.address = slice_string(address),
                                              .orcpt = slice_string(orcpt),
                                              .notify = notify},
                          false);
}

static void begin(struct fixture *f, uint64_t inline_max)
{
    const struct conf_world world = {.hostname = "h.test"};
    struct conf_problems problems = {0};
    struct buf error;

    buf_init(&error, 1000);
    *f = (struct fixture){.settings = {.hostname = "h.test", .inline_max = inline_max},
                          .budget = {.max = 1u << 30}};
    f->settings.smtp.limits.header_bytes = 1u << 20;
    f->conf = conf_load_text(SLICE(""), "sluice.conf", "/tmp", &world, &problems);
    assert_non_null(f->conf);
    conf_problems_fini(&problems);
    f->current = f->conf;
    f->rules = rule_set_new(0, &f->current, &error);
    assert_non_null(f->rules);
    buf_fini(&error);
}

static void end(struct fixture *f)
{
    rule_set_unref(f->rules);
    conf_free(f->conf);
}

static struct server_reply envelope(void *arg, struct slice header)
{
    struct intake *i = arg;

    (void)header;
    assert_true(draft_begin(&i->draft, SLICE("s@a.test"), SLICE("")));
    assert_true(add_rcpt(&i->draft, "r@b.test", "", 0));
    return (struct server_reply){0};
}

/* What the draft has of a message that comes in pieces of so many bytes. */
static void take(struct fixture *f, struct slice bytes, size_t piece, struct buf *ret_whole)
{
    struct intake i;
    char part[1000];
    uint64_t at = 0;
    size_t len;

    intake_begin(&i, &f->settings, f->conf, f->rules, &f->budget, envelope, &i);
    while (bytes.len > 0) {
        len = piece < bytes.len ? piece : bytes.len;
        assert_int_equal(intake_add(&i, slice_of(bytes.ptr, len)).code, 0);
        bytes = slice_skip(bytes, len);
    }
    assert_int_equal(intake_finish(&i, "client").code, 0);
    buf_clear(ret_whole);
    assert_true(buf_add(ret_whole, draft_header(&i.draft)));
    assert_true(buf_add_string(ret_whole, "\r\n"));
    while ((len = draft_read_body(&i.draft, at, part, sizeof part)) > 0) {
        assert_true(buf_add(ret_whole, slice_of(part, len)));
        at += len;
    }
    intake_drop(&i);
    assert_int_equal(f->budget.used, 0);
}

static void what_comes_is_the_same_however_it_is_cut(void **unused)
{
    static const struct {
        const char *in, *want;
    } cases[] = {
        {HEADER "\r\na\r\nb\r\n", HEADER "\r\na\r\nb\r\n"},
        {"From: a@a.test\nDate: x\nMessage-ID: <x@a.test>\n\na\nb", HEADER "\r\na\r\nb\r\n"},
        {HEADER "\r\na\rb\r\nc\n", HEADER "\r\na b\r\nc\r\n"}, /* CRLF at first */
        {HEADER "Bcc: c@c.test\r\n d\r\nX: y\r\n\r\na", HEADER "X: y\r\n\r\na\r\n"},
        {HEADER "\r\na\r\r\n\r", HEADER "\r\na\r\n\r\n"},
        {HEADER, HEADER "\r\n"},
        {HEADER "\r\n", HEADER "\r\n"},
        {HEADER "no field\r\n", HEADER "\r\nno field\r\n"},
    };
    struct fixture f;
    struct buf whole;

    (void)unused;
    begin(&f, 1000);
    buf_init(&whole, 10000);
    for (size_t i = 0; i < COUNT(cases); i++) {
        size_t len = strlen(cases[i].in);

        for (size_t piece = 1; piece <= len; piece++) {
            take(&f, slice_of(cases[i].in, len), piece, &whole);
            assert_string_equal(buf_cstr(&whole), cases[i].want);
        }
    }
    buf_fini(&whole);
    end(&f);
}

/* Lines of any length and any ends, more of them than are converted at once. */
static void large_mail_is_the_same_however_it_is_cut(void **unused)
{
    static const char *const ends[] = {"\r\n", "\n", "\r", "\r\n"};
    static const size_t pieces[] = {SIZE_MAX, 65536, 65535, 1000, 71};
    struct fixture f;
    struct buf in, first, other;
    struct rng rng;

    (void)unused;
    begin(&f, 1000);
    buf_init(&in, 1u << 20);
    buf_init(&first, 1u << 20);
    buf_init(&other, 1u << 20);
    rng_init(&rng, 7);
    for (uint64_t kinds = 1; kinds <= COUNT(ends); kinds++) {
        buf_clear(&in);
        assert_true(buf_add_string(&in, HEADER "\r\n"));
        while (buf_len(&in) < 200000) {
            assert_true(buf_addf(&in, "%0*d%s", 1 + (int)rng_below(&rng, 100), 0,
                                 ends[rng_below(&rng, kinds)]));
        }
        take(&f, buf_slice(&in), 1, &first);
        for (size_t i = 0; i < COUNT(pieces); i++) {
            take(&f, buf_slice(&in), pieces[i], &other);
            assert_true(slice_equal(buf_slice(&first), buf_slice(&other)));
        }
        if (kinds == 1) { /* it comes as it is to be kept */
            assert_true(slice_equal(buf_slice(&first), buf_slice(&in)));
        }
    }
    buf_fini(&in);
    buf_fini(&first);
    buf_fini(&other);
    end(&f);
}

UNIT_MAIN(cmocka_unit_test(what_comes_is_the_same_however_it_is_cut),
          cmocka_unit_test(large_mail_is_the_same_however_it_is_cut))
