#include "notary_details.h"

#include "unit.h"

#include "expiry.h"
#include "report_draft.h"

#define A "\001"

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

static void an_agents_notary_data_are_taken_apart(void **state)
{
    const struct spool_rcpt r = {
        .address = SLICE("\"odd user\"@oven.example"),
        .state = SPOOL_RCPT_FAILED,
        .diagnostic = SLICE("smtp; 550 user unknown"),
        .details =
            SLICE("odd@oven.example" A "failed" A "5.1.1 (no such user)" A
                  "smtp; 550 (user unknown)" A "dns; oven.example (192.0.2.1)" A "smtp[4711]"),
        .control = SLICE("smtp oven.example \"odd user\"@oven.example 65534"),
    };
    const struct report_rcpt *got = drafted(&r);

    (void)state;
    assert_slice(got->address, "odd@oven.example");
    assert_int_equal(got->action, REPORT_FAILED);
    assert_status(got, 5, 1, 1);
    assert_slice(got->status_words, "5.1.1 (no such user)");
    assert_slice(got->diagnostic_type, "smtp");
    assert_slice(got->diagnostic, "550 (user unknown)");
    assert_slice(got->remote_type, "dns");
    assert_slice(got->remote_mta, "oven.example");
    assert_slice(got->agent, "smtp[4711]");
    assert_slice(got->text, "smtp; 550 user unknown");
    assert_slice(got->control, "smtp oven.example \"odd user\"@oven.example 65534");
}

/* Agents in circulation leave out fields, and the report must not lose the recipient for it. */
static void what_is_missing_comes_from_the_recipient_line(void **state)
{
    static const struct {
        const char *notary, *address, *diagnostic, *remote;
        enum spool_rcpt_state state;
        enum report_action action;
        unsigned class;
    } table[] = {
        {"", "u@x", "", "", SPOOL_RCPT_FAILED, REPORT_FAILED, 5},
        {"", "u@x", "", "", SPOOL_RCPT_DELIVERED, REPORT_DELIVERED, 2},
        {"", "u@x", "", "", SPOOL_RCPT_RELAYED, REPORT_RELAYED, 2},
        {"", "u@x", "", "", SPOOL_RCPT_PENDING, REPORT_DELAYED, 4},
        {"v@x" A "delayed" A "4.2.0", "u@x", "", "", SPOOL_RCPT_PENDING, REPORT_DELAYED, 4},
        {"\003" A "failed", "u@x", "", "", SPOOL_RCPT_FAILED, REPORT_FAILED, 5},
        {"v@x" A A A A, "v@x", "", "", SPOOL_RCPT_FAILED, REPORT_FAILED, 5},
        {"v@x" A "Expanded" A "2.0.0", "v@x", "", "", SPOOL_RCPT_DELIVERED, REPORT_EXPANDED, 2},
        {"v@x" A "relayed" A "junk" A "no type" A "host", "v@x", "no type", "host",
         SPOOL_RCPT_DELIVERED, REPORT_RELAYED, 2},
        /* the spool says that it has failed, whatever the agent called it */
        {"v@x" A "delivered" A "5.0.0" A "two words; x" A ";", "v@x", "two words; x", "",
         SPOOL_RCPT_FAILED, REPORT_FAILED, 5},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        const struct spool_rcpt r = {.address = SLICE("u@x"),
                                     .state = table[i].state,
                                     .details = slice_string(table[i].notary)};
        const struct report_rcpt *got = drafted(&r);

        assert_slice(got->address, table[i].address);
        assert_slice(got->diagnostic, table[i].diagnostic);
        assert_slice(got->remote_mta, table[i].remote);
        assert_int_equal(got->action, table[i].action);
        assert_int_equal(got->status.class, table[i].class);
    }
}

/* ZMailer loses such mail without a word: the bounce says "delayed", which nobody asked for. */
static void a_delay_that_was_given_up_is_a_failure(void **state)
{
    const struct spool_rcpt r = {.address = SLICE("u1"),
                                 .state = SPOOL_RCPT_FAILED,
                                 .status = SLICE("4.2.0"),
                                 .details = SLICE("u1" A "delayed" A "4.2.0" A "x-local; 4xx" A
                                                  "mx.example" A "testta[13515]")};
    const struct report_rcpt *got = drafted(&r);

    (void)state;
    assert_int_equal(got->action, REPORT_FAILED);
    assert_status(got, 5, 4, 7);
    assert_int_equal(got->status_words.len, 0);
    assert_slice(got->diagnostic_type, "x-local");
}

/* ZMailer's own report said that the mail was still in the queue, or nothing at all was sent. */
static void the_report_says_failed_whatever_the_agent_said(void **state)
{
    static const struct {
        const char *last, *want;
    } cases[] = {
        {"", "\003\1failed\1"
             "5.4.7 (unspecified timeout failure)\1smtp; 500 (Expired after 40 secs)\1"},
        {"u1\1delayed\1"
         "4.2.0\1smtp; 450 (busy)\1mx.example\1smtp[7]",
         "\3\1failed\1"
         "5.4.7 (unspecified timeout failure)\1smtp; 450 (busy)\1mx.example\1smtp[7]"},
    };
    struct buf text;

    (void)state;
    buf_init(&text, 500);
    for (size_t i = 0; i < COUNT(cases); i++) {
        buf_clear(&text);
        expiry_put_details(&text, 40 * US_PER_S, slice_string(cases[i].last));
        assert_string_equal(buf_cstr(&text), cases[i].want);
    }
    buf_fini(&text);
}

static int begin(void **state)
{
    (void)state;
    notary_details_register();
    return 0;
}

static int end(void **state)
{
    (void)state;
    report_draft_fini(&draft);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_agents_notary_data_are_taken_apart),
        cmocka_unit_test(what_is_missing_comes_from_the_recipient_line),
        cmocka_unit_test(a_delay_that_was_given_up_is_a_failure),
        cmocka_unit_test(the_report_says_failed_whatever_the_agent_said),
    };

    return cmocka_run_group_tests(tests, begin, end);
}
