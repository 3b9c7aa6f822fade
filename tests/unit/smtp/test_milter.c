#include "unit.h"

#include <stdio.h>
#include <string.h>

#include "milter.h"

#define ALL_ACTIONS 0x1ffu
#define NO_STEPS    0x27fu /* connect to end of header, body and data */
#define NO_ANSWERS  0xff080u

static const struct milter_config config = {10 * US_PER_S, 100 * US_PER_S, 6};

struct talk {
    struct milter milter;
    struct mono now;
    struct buf story; /* what the filter was told, and what came of it */
};

/* What the filter was told since the last time: letters, and the bytes with dots for NULs. */
static void tell_output(struct talk *t)
{
    struct buf *out = milter_output(&t->milter);
    struct slice rest = buf_slice(out);

    while (rest.len > 0) {
        const unsigned char *b = (const unsigned char *)rest.ptr;
        size_t len = (size_t)b[0] << 24 | (size_t)b[1] << 16 | (size_t)b[2] << 8 | b[3];

        assert_true(len >= 1 && len <= rest.len - 4);
        buf_addf(&t->story, "%c", rest.ptr[4]);
        for (size_t i = 5; i < 4 + len && rest.ptr[4] != 'O'; i++) {
            char c = rest.ptr[i];

            buf_addf(&t->story, c >= ' ' && c < 127 ? "%c" : c == 0 ? "." : "\\x%02x", c);
        }
        buf_add_byte(&t->story, '\n');
        rest = slice_skip(rest, 4 + len);
    }
    buf_consume(out, buf_len(out));
}

static void tell_event(struct talk *t, const struct milter_event *e)
{
    static const char *const verdicts[] = {"continue", "accept",  "reject", "tempfail",
                                           "reply",    "discard", "close"};
    static const char *const changes[] = {"add header",   "insert header", "change header",
                                          "add rcpt",     "delete rcpt",   "change sender",
                                          "replace body", "quarantine"};

    if (e->type == MILTER_VERDICT) {
        buf_addf(&t->story, "=%s", verdicts[e->verdict]);
        if (e->verdict == MILTER_REPLY) {
            buf_addf(&t->story, " %u %.*s %.*s", e->code, SLICE_ARGS(e->status),
                     SLICE_ARGS(e->text));
        }
    } else if (e->type == MILTER_CHANGED) {
        buf_addf(&t->story, "=%s %u %.*s:%.*s", changes[e->change], e->index, SLICE_ARGS(e->name),
                 SLICE_ARGS(e->value));
    } else {
        buf_addf(&t->story, "=failed %.*s", SLICE_ARGS(e->text));
    }
    buf_add_byte(&t->story, '\n');
}

static void drain(struct talk *t)
{
    struct milter_event e;

    tell_output(t);
    for (;;) {
        milter_next(&t->milter, &e);
        if (e.type == MILTER_NEED_INPUT) {
            return;
        }
        tell_event(t, &e);
        if (e.type == MILTER_FAILED || e.type == MILTER_VERDICT) {
            return;
        }
    }
}

/* The filter says this packet, in one piece or byte by byte. */
static void filter_says(struct talk *t, char letter, struct slice data, bool bytewise)
{
    size_t len = data.len + 1;
    char packet[70000] = {(char)(len >> 24), (char)(len >> 16), (char)(len >> 8), (char)len,
                          letter};

    assert_true(data.len + 5 <= sizeof packet);
    memcpy(packet + 5, data.ptr, data.len);
    for (size_t i = 0; i < data.len + 5; i += bytewise ? 1 : data.len + 5) {
        milter_input(&t->milter, slice_of(packet + i, bytewise ? 1 : data.len + 5), t->now);
        drain(t);
    }
}

#define SAYS(t, letter, text) filter_says(t, letter, slice_of(text, sizeof(text) - 1), false)

static void begin(struct talk *t, uint32_t version, uint32_t actions, uint32_t protocol,
                  bool bytewise)
{
    uint32_t fields[3] = {version, actions, protocol};
    char body[12];

    *t = (struct talk){.now = {1000 * US_PER_S}};
    buf_init(&t->story, 1 << 20);
    milter_init(&t->milter, &config, t->now);
    drain(t);
    assert_string_equal(buf_cstr(&t->story), "O\n");
    buf_clear(&t->story);
    for (size_t i = 0; i < sizeof body; i++) {
        body[i] = (char)(fields[i / 4] >> (24 - 8 * (i % 4)));
    }
    filter_says(t, 'O', slice_of(body, sizeof body), bytewise);
}

static void end(struct talk *t)
{
    milter_fini(&t->milter);
    buf_fini(&t->story);
}

static void want(struct talk *t, const char *story)
{
    assert_string_equal(buf_cstr(&t->story), story);
    buf_clear(&t->story);
}

static void a_whole_session(void **unused)
{
    (void)unused;
    for (int bytewise = 0; bytewise < 2; bytewise++) {
        const struct milter_macro macros[] = {{"j", SLICE("mx.example")},
                                              {"{daemon_name}", SLICE("x")}};
        struct talk t;

        begin(&t, 6, ALL_ACTIONS, 0, bytewise);
        assert_true(milter_is_ready(&t.milter));
        milter_macros(&t.milter, MILTER_AT_CONNECT, macros, COUNT(macros));
        milter_connect(&t.milter, SLICE("c.example"), 4, SLICE("192.0.2.1"), 0x4142, t.now);
        assert_false(milter_is_ready(&t.milter));
        drain(&t);
        want(&t, "DCj.mx.example.{daemon_name}.x.\nCc.example.4AB192.0.2.1.\n");
        filter_says(&t, 'c', SLICE(""), bytewise);
        milter_helo(&t.milter, SLICE("c.example"), t.now);
        drain(&t);
        SAYS(&t, 'c', "");
        milter_mail(&t.milter, SLICE("a@b"), SLICE("SIZE=10  BODY=8BITMIME"), t.now);
        drain(&t);
        SAYS(&t, 'c', "");
        want(&t, "=continue\nHc.example.\n=continue\nM<a@b>.SIZE=10.BODY=8BITMIME.\n=continue\n");
        milter_rcpt(&t.milter, SLICE("c@d"), SLICE(""), t.now);
        drain(&t);
        SAYS(&t, 'r', "");
        milter_rcpt(&t.milter, SLICE("e@f"), SLICE(""), t.now);
        drain(&t);
        SAYS(&t, 'c', "");
        milter_data(&t.milter, t.now);
        drain(&t);
        SAYS(&t, 'c', "");
        want(&t, "R<c@d>.\n=reject\nR<e@f>.\n=continue\nT\n=continue\n");
        milter_header(&t.milter, SLICE("Subject"), SLICE(" a\r\n b"), t.now);
        drain(&t);
        SAYS(&t, 'c', "");
        milter_end_of_header(&t.milter, t.now);
        drain(&t);
        SAYS(&t, 'c', "");
        milter_body(&t.milter, SLICE("x\r\n"), t.now);
        drain(&t);
        SAYS(&t, 's', "");
        milter_body(&t.milter, SLICE("more"), t.now);
        drain(&t);
        want(&t,
             "LSubject.a\\x0a b.\n=continue\nN\n=continue\nBx\\x0d\\x0a\n=continue\n=continue\n");
        milter_end(&t.milter, t.now);
        drain(&t);
        SAYS(&t, 'p', "");
        filter_says(&t, 'i', slice_of("\0\0\0\1DKIM-Signature\0v=1;\n\tb=x\0", 29), bytewise);
        SAYS(&t, 'h', "X-A\0b\0");
        SAYS(&t, 'm', "\0\0\0\2Received\0\0");
        SAYS(&t, '+', "<new@x>\0");
        SAYS(&t, '2', "<new2@x>\0NOTIFY=NEVER\0");
        SAYS(&t, '-', "e@f\0");
        SAYS(&t, 'e', "<>\0");
        SAYS(&t, 'b', "new ");
        SAYS(&t, 'b', "body");
        SAYS(&t, 'q', "odd\0");
        SAYS(&t, 'c', "");
        want(&t, "E\n=insert header 1 DKIM-Signature: v=1;\r\n\tb=x\n=add header 0 X-A: b\n"
                 "=change header 2 Received:\n=add rcpt 0 :new@x\n=add rcpt 0 :new2@x\n"
                 "=delete rcpt 0 :e@f\n=change sender 0 :\n=replace body 0 :new \n"
                 "=replace body 0 :body\n=quarantine 0 :odd\n=continue\n");
        /* Another message, which is given up. */
        milter_mail(&t.milter, SLICE(""), SLICE(""), t.now);
        drain(&t);
        SAYS(&t, 'c', "");
        milter_abort(&t.milter);
        drain(&t);
        milter_quit(&t.milter);
        tell_output(&t);
        want(&t, "M<>.\n=continue\nA\nQ\n");
        end(&t);
    }
}

static void what_a_filter_does_not_want_passes_at_once(void **unused)
{
    struct talk t;

    (void)unused;
    begin(&t, 6, 0, NO_STEPS, false);
    milter_connect(&t.milter, SLICE("c"), 'L', SLICE("/run/x"), 0, t.now);
    drain(&t);
    milter_helo(&t.milter, SLICE("c"), t.now);
    drain(&t);
    milter_mail(&t.milter, SLICE("a@b"), SLICE(""), t.now);
    drain(&t);
    milter_rcpt(&t.milter, SLICE("a@b"), SLICE(""), t.now);
    drain(&t);
    milter_data(&t.milter, t.now);
    drain(&t);
    milter_header(&t.milter, SLICE("A"), SLICE("b"), t.now);
    drain(&t);
    milter_end_of_header(&t.milter, t.now);
    drain(&t);
    milter_body(&t.milter, SLICE("x"), t.now);
    drain(&t);
    want(&t, "=continue\n=continue\n=continue\n=continue\n=continue\n=continue\n=continue\n"
             "=continue\n");
    milter_end(&t.milter, t.now);
    drain(&t);
    SAYS(&t, 'a', "");
    want(&t, "E\n=accept\n");
    end(&t);

    /* Told, but not asked; a blank is kept where the filter wants it. */
    begin(&t, 6, 0, NO_ANSWERS | 0x100000u, false);
    milter_helo(&t.milter, SLICE("c"), t.now);
    drain(&t);
    milter_header(&t.milter, SLICE("A"), SLICE(" b"), t.now);
    drain(&t);
    want(&t, "Hc.\n=continue\nLA. b.\n=continue\n");
    end(&t);

    /* DATA is younger than version 2. */
    begin(&t, 2, 0, 0, false);
    milter_data(&t.milter, t.now);
    drain(&t);
    want(&t, "=continue\n");
    end(&t);
}

static void accept_ends_what_it_is_said_of(void **unused)
{
    struct talk t;

    (void)unused;
    begin(&t, 6, 0, 0, false);
    milter_mail(&t.milter, SLICE("a@b"), SLICE(""), t.now);
    drain(&t);
    SAYS(&t, 'a', "");
    milter_rcpt(&t.milter, SLICE("c@d"), SLICE(""), t.now);
    drain(&t);
    milter_end(&t.milter, t.now);
    drain(&t);
    want(&t, "M<a@b>.\n=accept\n=continue\n=continue\n");
    milter_mail(&t.milter, SLICE("x@y"), SLICE(""), t.now); /* another message */
    drain(&t);
    want(&t, "M<x@y>.\n");
    end(&t);

    begin(&t, 6, 0, 0, false);
    milter_helo(&t.milter, SLICE("c"), t.now);
    drain(&t);
    SAYS(&t, 'a', "");
    milter_mail(&t.milter, SLICE("a@b"), SLICE(""), t.now);
    drain(&t);
    want(&t, "Hc.\n=accept\n=continue\n");
    end(&t);
}

static void replies_are_the_filters_words(void **unused)
{
    static const struct {
        const char *text, *want;
    } cases[] = {
        {"550 5.7.1 Spam 100%% sure", "=reply 550 5.7.1 Spam 100% sure\n"},
        {"451 4.7.1 Try\r\nagain", "=reply 451 4.7.1 Try again\n"},
        {"554", "=reply 554  \n"},
        {"554 4.7.1 odd", "=reply 554  4.7.1 odd\n"},
        {"250 2.0.0 fine", "=failed its reply is none of 4xx and 5xx\n"},
        {"5", "=failed its reply is none of 4xx and 5xx\n"},
        {"5xx", "=failed its reply is none of 4xx and 5xx\n"},
        {"5500", "=failed its reply is none of 4xx and 5xx\n"},
    };

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct talk t;

        begin(&t, 6, 0, 0, false);
        milter_mail(&t.milter, SLICE("a@b"), SLICE(""), t.now);
        drain(&t);
        buf_clear(&t.story);
        filter_says(&t, 'y', slice_of(cases[i].text, strlen(cases[i].text) + 1), false);
        want(&t, cases[i].want);
        end(&t);
    }
}

static void a_filter_that_lies_fails(void **unused)
{
    static const struct {
        uint32_t actions;
        char letter;
        size_t len;
        const char *data, *want;
    } cases[] = {
        {0, 'h', 6, "X-A\0b\0", "it changes the header without having asked for it"},
        {0x01, 'm', 8, "\0\0\0\1A\0b\0", "it changes the header without having asked for it"},
        {0x01, 'h', 5, "X-A\0b", "it sets a header field that is none"},
        {0x01, 'h', 7, "X:A\0b\0", "it sets a header field that is none"},
        {0x01, 'h', 3, "\0b\0", "it sets a header field that is none"},
        {0x01, 'h', 9, "A\0b\nC: d\0", "it sets a header field that is none"},
        {0x01, 'h', 5, "A\0b\rc\0", "it sets a header field that is none"},
        {0x01, 'i', 3, "\0\0\0", "it changes a header field without its number"},
        {0, '+', 4, "a@b\0", "it changes recipients without having asked for it"},
        {0x04, '2', 4, "a@b\0", "it changes recipients without having asked for it"},
        {0x04, '+', 3, "a@b", "it names an address without an end"},
        {0, '-', 4, "a@b\0", "it changes recipients without having asked for it"},
        {0, 'e', 4, "a@b\0", "it changes the sender without having asked for it"},
        {0, 'b', 1, "x", "it replaces the body without having asked for it"},
        {0, 'q', 2, "x\0", "it quarantines without having asked for it"},
        {0x20, 'q', 1, "x", "it quarantines without a reason"},
        {0, 's', 0, "", "it skips what is not a body"},
        {0, 'O', 12, "\0\0\0\6\0\0\0\0\0\0\0\0", "it sends a word that the protocol does not have"},
        {0, '?', 0, "", "it sends a word that the protocol does not have"},
    };
    struct talk t;
    char expected[200];

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        begin(&t, 6, cases[i].actions, NO_STEPS, false);
        milter_end(&t.milter, t.now);
        drain(&t);
        buf_clear(&t.story);
        filter_says(&t, cases[i].letter, slice_of(cases[i].data, cases[i].len), false);
        snprintf(expected, sizeof expected, "=failed %s\n", cases[i].want);
        want(&t, expected);
        end(&t);
    }
    /* Changes belong to the end of a message. */
    begin(&t, 6, ALL_ACTIONS, 0, false);
    milter_mail(&t.milter, SLICE("a@b"), SLICE(""), t.now);
    drain(&t);
    buf_clear(&t.story);
    SAYS(&t, 'h', "A\0b\0");
    want(&t, "=failed it changes the header without having asked for it\n");
    end(&t);
}

static void a_filter_out_of_step_fails(void **unused)
{
    static const struct {
        uint32_t version, actions, protocol;
        const char *want;
    } cases[] = {
        {1, 0, 0, "=failed it speaks a version of the protocol that is none of 2 to 6\n"},
        {7, 0, 0, "=failed it speaks a version of the protocol that is none of 2 to 6\n"},
        {6, 0x200, 0, "=failed it asks for more than was offered\n"},
        {6, 0, 0x800, "=failed it asks for more than was offered\n"},
    };
    struct talk t;

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        begin(&t, cases[i].version, cases[i].actions, cases[i].protocol, false);
        want(&t, cases[i].want);
        end(&t);
    }
    begin(&t, 6, 0, 0, false);
    SAYS(&t, 'c', ""); /* nothing was asked */
    want(&t, "=failed it speaks without being asked\n");
    end(&t);

    begin(&t, 6, 0, 0, false);
    milter_helo(&t.milter, SLICE("c"), t.now);
    drain(&t);
    buf_clear(&t.story);
    milter_input(&t.milter, slice_of("\0\0\0\1c\0\0\0\1c", 10), t.now);
    drain(&t);
    want(&t, "=failed it sends more than its verdict\n");
    end(&t);

    begin(&t, 6, 0, 0, false);
    milter_helo(&t.milter, SLICE("c"), t.now);
    drain(&t);
    buf_clear(&t.story);
    milter_input(&t.milter, slice_of("\0\0\0\0", 4), t.now);
    drain(&t);
    want(&t, "=failed its packet is empty\n");
    end(&t);

    begin(&t, 6, 0, 0, false);
    milter_helo(&t.milter, SLICE("c"), t.now);
    drain(&t);
    buf_clear(&t.story);
    milter_input(&t.milter, slice_of("\x7f\0\0\0", 4), t.now);
    drain(&t);
    want(&t, "=failed its packet is too long\n");
    end(&t);

    begin(&t, 6, 0, 0, false);
    milter_helo(&t.milter, SLICE("c"), t.now);
    drain(&t);
    buf_clear(&t.story);
    milter_lost(&t.milter);
    drain(&t);
    want(&t, "=failed connection lost\n");
    end(&t);
}

static void time_runs_out(void **unused)
{
    struct talk t;

    (void)unused;
    begin(&t, 6, 0, NO_STEPS, false);
    assert_int_equal(milter_deadline(&t.milter).us, US_FOREVER);
    milter_end(&t.milter, t.now);
    drain(&t);
    buf_clear(&t.story);
    assert_int_equal(milter_deadline(&t.milter).us, t.now.us + config.content_timeout_us);
    t.now.us += 90 * US_PER_S;
    SAYS(&t, 'p', ""); /* it works on it */
    milter_expire(&t.milter, t.now);
    drain(&t);
    want(&t, "");
    t.now = milter_deadline(&t.milter);
    assert_int_equal(t.now.us, (1000 + 90 + 100) * US_PER_S);
    milter_expire(&t.milter, t.now);
    drain(&t);
    want(&t, "=failed it does not answer in time\n");
    end(&t);

    t = (struct talk){.now = {1000 * US_PER_S}};
    buf_init(&t.story, 1000);
    milter_init(&t.milter, &config, t.now);
    t.now = milter_deadline(&t.milter);
    milter_expire(&t.milter, t.now);
    drain(&t);
    want(&t, "O\n=failed it does not answer in time\n");
    end(&t);
}

UNIT_MAIN(cmocka_unit_test(a_whole_session),
          cmocka_unit_test(what_a_filter_does_not_want_passes_at_once),
          cmocka_unit_test(accept_ends_what_it_is_said_of),
          cmocka_unit_test(replies_are_the_filters_words),
          cmocka_unit_test(a_filter_that_lies_fails), cmocka_unit_test(a_filter_out_of_step_fails),
          cmocka_unit_test(time_runs_out))
