#include "unit.h"

#include <string.h>

#include "mem.h"
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

static void an_agents_notary_data_are_taken_apart(void **state)
{
    const struct spool_rcpt r = {
        .address = SLICE("\"odd user\"@oven.example"),
        .state = SPOOL_RCPT_FAILED,
        .diagnostic = SLICE("smtp; 550 user unknown"),
        .notary =
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
                                     .notary = slice_string(table[i].notary)};
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
                                 .notary = SLICE("u1" A "delayed" A "4.2.0" A "x-local; 4xx" A
                                                 "mx.example" A "testta[13515]")};
    const struct report_rcpt *got = drafted(&r);

    (void)state;
    assert_int_equal(got->action, REPORT_FAILED);
    assert_status(got, 5, 4, 7);
    assert_int_equal(got->status_words.len, 0);
    assert_slice(got->diagnostic_type, "x-local");
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
                                       .notary = s,
                                       .control = s});
    assert_int_equal(got->control.len, 8192);
    report_draft_fini(&draft);
    mem_free(long_text);
}

UNIT_MAIN(cmocka_unit_test(what_a_remote_site_said_is_a_field_of_its_own),
          cmocka_unit_test(an_agents_notary_data_are_taken_apart),
          cmocka_unit_test(what_is_missing_comes_from_the_recipient_line),
          cmocka_unit_test(a_delay_that_was_given_up_is_a_failure),
          cmocka_unit_test(hostile_lengths_are_cut))
