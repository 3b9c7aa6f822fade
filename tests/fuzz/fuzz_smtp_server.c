/*
 * A server session against any client.
 *
 * Input: one byte of options, then what the client sends. It is played whole, byte by byte and in
 * pieces of a few lengths; wanted, beside no crash and server_audit after each step:
 *
 *   - the same story under every split: same events, same replies, same content of each message;
 *   - every accepted MAIL ends in one SERVER_MESSAGE or one SERVER_ABORT;
 *   - content is handed out exactly once: as many bytes as the facts say;
 *   - replies are lines of at most 512 octets, and the session ends when the client does.
 */
#include <stdint.h>
#include <string.h>

#include "buf.h"
#include "check.h"
#include "server.h"

#define STORY_MAX (16 * 1024 * 1024)
#define RCPTS     4

enum option {
    OPTION_LMTP = 1 << 0,
    OPTION_TLS = 1 << 1,
    OPTION_KEEP_NEWLINES = 1 << 2,
    OPTION_NO_DOMAIN = 1 << 3,
    OPTION_STRICT = 1 << 4,
    OPTION_SMALL = 1 << 5,
    OPTION_BARE_LF = 1 << 6,
};

struct play {
    struct server_config config;
    struct server *server;
    struct buf story;
    struct buf replies;
    struct buf content;
    bool in_mail;
    bool over;
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void configure(struct server_config *config, uint8_t options)
{
    server_config_default(config);
    config->lmtp = (options & OPTION_LMTP) != 0;
    config->starttls = (options & OPTION_TLS) != 0;
    config->accept_bare_newlines = (options & OPTION_KEEP_NEWLINES) != 0;
    config->accept_no_domain = (options & OPTION_NO_DOMAIN) != 0;
    config->strict_paths = (options & OPTION_STRICT) != 0;
    config->limits.recipients = RCPTS;
    config->login = SASL_MECHANISMS;
    config->login_in_clear = (options & OPTION_TLS) == 0;
    config->require_login = (options & OPTION_STRICT) != 0;
    if ((options & OPTION_SMALL) != 0) {
        config->limits.message_bytes = 60;
        config->limits.header_bytes = 30;
        config->limits.line_bytes = 20;
        config->limits.discard_bytes = 60;
        config->limits.hops = 1;
    }
}

static void take_output(struct play *p)
{
    struct slice out = buf_slice(server_output(p->server));
    struct slice rest = out;

    while (rest.len > 0) {
        size_t lf = slice_find(rest, '\n');

        CHECK(lf >= 4 && lf < 512 && rest.ptr[lf - 1] == '\r');
        rest = slice_skip(rest, lf + 1);
    }
    buf_add(&p->replies, out);
    buf_consume(server_output(p->server), out.len);
}

/* Some are refused, so that both ways are walked. */
static struct server_reply verdict(struct slice text)
{
    if (text.len > 0 && text.ptr[0] == 'z') {
        return (struct server_reply){450, "4.2.0", text};
    }
    if (text.len > 0 && text.ptr[0] == 'y') {
        return (struct server_reply){550, NULL, text};
    }
    return SERVER_ACCEPT;
}

static void on_message(struct play *p, const struct server_event *event)
{
    struct server_reply replies[RCPTS] = {SERVER_ACCEPT};
    size_t count = p->config.lmtp ? event->message.recipients : 1;

    CHECK(p->in_mail && count >= 1 && count <= RCPTS);
    CHECK(buf_len(&p->content) == event->message.facts.bytes);
    CHECK(event->message.facts.header_bytes <= event->message.facts.bytes);
    p->in_mail = false;
    buf_addf(&p->story, "message %u %u %u:", event->message.recipients, event->message.flags,
             event->message.facts.flags);
    buf_add(&p->story, buf_slice(&p->content));
    server_message_done(p->server, replies, count);
}

static void act(struct play *p, const struct server_event *event)
{
    struct server_reply reply;

    switch (event->type) {
    case SERVER_NEED_INPUT:
    case SERVER_NEED_ANSWER:
    case SERVER_NEED_OUTPUT:
        break;
    case SERVER_HELO:
        buf_addf(&p->story, "helo %.*s;", SLICE_ARGS(server_helo(p->server)));
        break;
    case SERVER_MAIL:
        CHECK(!p->in_mail);
        buf_addf(&p->story, "mail %.*s %u %.*s;", SLICE_ARGS(event->mail.sender), event->mail.flags,
                 SLICE_ARGS(event->mail.envid));
        reply = verdict(event->mail.sender);
        p->in_mail = reply.code == 0;
        server_answer(p->server, reply);
        break;
    case SERVER_RCPT:
        CHECK(p->in_mail && event->rcpt.index < RCPTS);
        buf_addf(&p->story, "rcpt %.*s %u %.*s;", SLICE_ARGS(event->rcpt.recipient),
                 event->rcpt.notify, SLICE_ARGS(event->rcpt.orcpt));
        server_answer(p->server, verdict(event->rcpt.recipient));
        break;
    case SERVER_DATA:
        CHECK(p->in_mail);
        buf_clear(&p->content);
        server_answer(p->server, verdict(server_helo(p->server)));
        break;
    case SERVER_AUTH:
        CHECK(!p->in_mail && (event->auth.has_message || event->auth.first));
        buf_addf(&p->story, "auth %d %d %zu;", event->auth.first, (int)event->auth.mechanism,
                 event->auth.message.len);
        if (!event->auth.has_message || event->auth.message.len % 3 == 0) {
            server_challenge(p->server, event->auth.message);
        } else {
            server_login_done(p->server, verdict(event->auth.message));
        }
        break;
    case SERVER_ETRN:
        buf_addf(&p->story, "etrn %.*s;", SLICE_ARGS(event->etrn));
        server_answer(p->server, verdict(event->etrn));
        break;
    case SERVER_CONTENT:
        CHECK(p->in_mail && event->content.len > 0);
        buf_add(&p->content, event->content);
        break;
    case SERVER_MESSAGE:
        on_message(p, event);
        break;
    case SERVER_ABORT:
        CHECK(p->in_mail);
        p->in_mail = false;
        buf_addf(&p->story, "abort %s;", event->reason);
        break;
    case SERVER_STARTTLS:
        /* What is thrown away behind it depends on what has arrived: the play ends here. */
        buf_add_string(&p->story, "starttls;");
        server_hangup(p->server, "no handshake");
        break;
    case SERVER_CLOSE:
        CHECK(!p->in_mail);
        buf_addf(&p->story, "close %s;", event->reason);
        p->over = true;
        break;
    }
}

static void feed(struct play *p, struct slice in)
{
    struct server_event event;

    do {
        server_next(p->server, (struct mono){1}, &in, &event);
        server_audit(p->server);
        take_output(p);
        act(p, &event);
    } while (!p->over && event.type != SERVER_NEED_INPUT);
}

static void play(struct play *p, uint8_t options, struct slice in, size_t piece)
{
    *p = (struct play){0};
    configure(&p->config, options);
    buf_init(&p->story, STORY_MAX);
    buf_init(&p->replies, STORY_MAX);
    buf_init(&p->content, STORY_MAX);
    p->server = server_new(&p->config, (struct mono){1});
    if ((options & OPTION_BARE_LF) != 0) {
        server_accept_bare_lf(p->server);
    }
    feed(p, slice_of("", 0));
    while (in.len > 0 && !p->over) {
        size_t len = piece < in.len ? piece : in.len;

        feed(p, slice_of(in.ptr, len));
        in = slice_skip(in, len);
    }
    if (!p->over) {
        server_hangup(p->server, "gone");
        feed(p, slice_of("", 0));
    }
    CHECK(!p->story.failed && !p->replies.failed && !p->content.failed);
}

static void play_end(struct play *p)
{
    server_free(p->server);
    buf_fini(&p->story);
    buf_fini(&p->replies);
    buf_fini(&p->content);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const size_t pieces[] = {1, 2, 3, 7, 64};
    struct play whole;
    struct slice in;

    if (size < 1) {
        return 0;
    }
    in = slice_of(data + 1, size - 1);
    play(&whole, data[0], in, size);
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
        struct play split;

        play(&split, data[0], in, pieces[i]);
        CHECK(slice_equal(buf_slice(&whole.story), buf_slice(&split.story)));
        CHECK(slice_equal(buf_slice(&whole.replies), buf_slice(&split.replies)));
        play_end(&split);
    }
    play_end(&whole);
    return 0;
}
