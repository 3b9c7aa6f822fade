/*
 * Hostile clients of the mailq server and damaged auth files. The first line of the input is an
 * auth entry, the rest is what a client sends, in pieces. Wanted, beside no crash: nothing is asked
 * before a login, output stays bounded, and every session ends when its input does.
 */
#include <stdint.h>
#include <string.h>

#include "check.h"
#include "mailq_server.h"

static void answer(struct mailq_server *s, const struct mailq_event *event)
{
    if (event->question >= MAILQ_ASK_ETRN) {
        mailq_server_verdict(s, event->id.len % 2 == 0, event->channel.len % 3);
    } else {
        mailq_server_lines(s, SLICE(".a line\n"));
        mailq_server_done(s);
    }
}

/* A client that the auth entry lets in, so that commands are reached. */
static void log_in(struct buf *in)
{
    char hex[33];

    mailq_auth_md5(SLICE("220 MAILQ-V2-CHALLENGE: 1.2.3"), SLICE("p"), hex);
    CHECK(buf_addf(in, "AUTH u %s\n", hex));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct slice rest = slice_of(data, size), entry = slice_cut(&rest, '\n');
    struct mailq_auth *auth;
    struct mailq_server *s;
    struct mailq_counts counts = {0};
    struct mailq_event event = {.type = MAILQ_NEED_INPUT};
    struct buf in, text, problems;

    buf_init(&problems, 1 << 20);
    buf_init(&text, 1 << 20);
    buf_init(&in, 1 << 20);
    (void)buf_add(&text, entry);
    (void)buf_add_string(&text, "\nu:p:ALL:\n");
    auth = mailq_auth_parse("auth", buf_slice(&text), &problems);
    s = mailq_server_new(auth, &mailq_peer_local, "1.2.3", "0123456789abcdef", &counts);
    if (rest.len > 0 && rest.ptr[0] % 2 == 0) {
        log_in(&in);
    }
    while (event.type != MAILQ_CLOSE) {
        mailq_server_next(s, &in, &event);
        CHECK(buf_len(mailq_server_output(s)) < MAILQ_OUTPUT_MAX + 2048);
        if (event.type == MAILQ_NEED_AUTH) {
            mailq_server_auth(s, auth);
        } else if (event.type == MAILQ_ASK) {
            CHECK(event.user.len > 0);
            answer(s, &event);
        } else if (event.type == MAILQ_NEED_OUTPUT) {
            CHECK(buf_len(mailq_server_output(s)) > 0);
            buf_clear(mailq_server_output(s));
        } else if (event.type == MAILQ_NEED_INPUT && rest.len > 0) {
            size_t piece = rest.len < 7 ? rest.len : 7;

            CHECK(buf_add(&in, slice_of(rest.ptr, piece)));
            rest = slice_skip(rest, piece);
        } else if (event.type == MAILQ_NEED_INPUT) {
            mailq_server_input_ended(s);
        }
    }
    mailq_server_free(s);
    mailq_auth_free(auth);
    buf_fini(&in);
    buf_fini(&text);
    buf_fini(&problems);
    return 0;
}
