#include "unit.h"

#include <string.h>

#include "delivery_details.h"
#include "mem.h"
#include "report_draft.h"

static struct report_draft draft;

static const struct report_rcpt *drafted(const struct spool_rcpt *r)
{
    report_draft_fini(&draft);
    report_draft_add(&draft, r, report_draft_action(r), (struct wall){0});
    return &draft.rcpts[0];
}

static void assert_slice(struct slice got, const char *want)
{
    if (!slice_equal(got, slice_string(want))) {
        fail_msg("wanted '%s', got '%.*s'", want, SLICE_ARGS(got));
    }
}

static void assert_status(const struct report_rcpt *r, unsigned class, unsigned subject,
                          unsigned detail)
{
    assert_int_equal(r->status.class, class);
    assert_int_equal(r->status.subject, subject);
    assert_int_equal(r->status.detail, detail);
}

static void what_a_remote_site_said_is_a_field_of_its_own(void **state)
{
    struct spool_rcpt r = {
        .address = SLICE("b@there.test"),
        .state = SPOOL_RCPT_FAILED,
        .status = SLICE("5.1.1"),
        .diagnostic =
            SLICE("host mx.there.test[192.0.2.9] said: 550 5.1.1 He said: go (in reply to "
                  "RCPT TO command)"),
        .reply = SLICE("550 5.1.1 He said: go"),
        .remote = SLICE("mx.there.test[192.0.2.9]:25"),
    };
    const struct report_rcpt *got = drafted(&r);

    (void)state;
    assert_slice(got->diagnostic, "550 5.1.1 He said: go");
    assert_slice(got->remote_mta, "mx.there.test");
    r.reply = slice_of("", 0); /* our account alone is no reply, whatever is in it */
    assert_slice(drafted(&r)->diagnostic, "");
    r.reply = SLICE("550 no");
    r.remote = SLICE("none"); /* nor is what no host said */
    assert_slice(drafted(&r)->diagnostic, "");
}

/* What a form makes of them, in the place of a system's own. */
static void read_details(struct slice text, struct delivery_details *ret_details)
{
    *ret_details = (struct delivery_details){
        .action = DETAILS_EXPANDED,
        .status = SLICE("2.1.5"),
        .status_words = SLICE("2.1.5 (a list)"),
        .host_type = SLICE("x-host"),
        .diagnostic_type = SLICE("x-said"),
        .agent = SLICE("agent[1]"),
    };
    ret_details->address = slice_cut(&text, ' ');
    ret_details->host = slice_cut(&text, ' ');
    ret_details->diagnostic = text;
}

static void details_say_more_than_the_recipient_line(void **state)
{
    static const struct details_form form = {.read = read_details};
    const struct spool_rcpt r = {.address = SLICE("u@x"),
                                 .state = SPOOL_RCPT_DELIVERED,
                                 .status = SLICE("2.0.0"),
                                 .reply = SLICE("250 ok"),
                                 .remote = SLICE("mx.x[192.0.2.1]:25"),
                                 .details = SLICE("list@x host 250 expanded")};
    const struct report_rcpt *got = drafted(&r);

    (void)state;
    assert_slice(got->address, "u@x"); /* nothing reads them yet */
    assert_int_equal(got->action, REPORT_DELIVERED);
    assert_slice(got->remote_mta, "mx.x");
    assert_slice(got->diagnostic, "250 ok");
    details_register(&form);
    got = drafted(&r);
    assert_slice(got->address, "list@x");
    assert_int_equal(got->action, REPORT_EXPANDED);
    assert_status(got, 2, 1, 5);
    assert_slice(got->status_words, "2.1.5 (a list)");
    assert_slice(got->remote_mta, "host");
    assert_slice(got->remote_type, "x-host");
    assert_slice(got->diagnostic, "250 expanded");
    assert_slice(got->diagnostic_type, "x-said");
    assert_slice(got->agent, "agent[1]");
}

static void hostile_lengths_are_cut(void **state)
{
    char *long_text = mem_array(1000000, 1);
    struct slice s = slice_of(long_text, 1000000);
    const struct report_rcpt *got;

    (void)state;
    memset(long_text, 'x', 1000000);
    got = drafted(&(struct spool_rcpt){.address = s,
                                       .orcpt = s,
                                       .state = SPOOL_RCPT_FAILED,
                                       .status = s,
                                       .diagnostic = s,
                                       .remote = s,
                                       .details = s,
                                       .control = s});
    assert_int_equal(got->control.len, 8192);
    report_draft_fini(&draft);
    mem_free(long_text);
}

UNIT_MAIN(cmocka_unit_test(what_a_remote_site_said_is_a_field_of_its_own),
          cmocka_unit_test(hostile_lengths_are_cut),
          cmocka_unit_test(details_say_more_than_the_recipient_line))
