/*
 * A client session against any server.
 *
 * Input: one byte of options, then what the server sends, in parts separated by 0xff. Between two
 * parts the owner acts: it answers NEED_TLS, and at the end the connection is lost. The input is
 * played whole, byte by byte, and in pieces of a few lengths; wanted, beside no crash and
 * client_audit after each step:
 *
 *   - the same story under every split: same events, same bytes sent;
 *   - per transaction each recipient gets exactly one verdict, or is unresolved after FAILED;
 *   - no message is sent that did not pass its last look, whatever the socket takes at a time;
 *   - nothing is reported after the end, and the session ends when the connection does.
 */
#include <stdint.h>
#include <string.h>

#include "buf.h"
#include "check.h"
#include "client.h"
#include "envelope.h"

#define RCPTS          5
#define TRANSACTIONS   3
#define PART_END       ((char)0xff)
#define STORY_MAX      (4 * 1024 * 1024)
#define CONTENT_PIECES 3

struct play {
    struct client client;
    struct mono now;
    struct buf story;
    unsigned seen[RCPTS];
    unsigned begun;
    unsigned content_pieces;
    size_t take;     /* what the socket takes at a time; 0: all */
    size_t looks;    /* that it has come to */
    size_t break_at; /* the look that stops it; 0: none does */
    bool in_transaction;
    bool broken_off;
    bool tls_wanted;
    bool over;
};

static const struct client_rcpt rcpts[RCPTS] = {
    {.address = {"a@x", 3}, .orcpt = {"rfc822;a", 8}, .notify = NOTIFY_SUCCESS},
    {.address = {"\xc3\xbc@x", 4}},
    {.address = {"b x", 3}},
    {.address = {"c@x", 3}},
    {.address = {"d@x", 3}, .notify = NOTIFY_NEVER},
};

static void on_event(struct play *p, const struct client_event *e)
{
    char status[STATUS_SIZE];

    CHECK(!p->over);
    buf_addf(&p->story, "[%d %d %d %zu %u %s %d%d%d%d%d ", (int)e->kind, (int)e->outcome,
             (int)e->cause, e->rcpt, e->code, status_print(e->status, status), e->reusable,
             e->dsn_passed, e->site, e->content_was_sent, e->retry_in_clear);
    buf_add(&p->story, e->text);
    buf_add_byte(&p->story, ']');
    for (size_t i = 0; i < e->text.len; i++) {
        CHECK((unsigned char)e->text.ptr[i] >= 0x20 && e->text.ptr[i] != 0x7f);
    }

    switch (e->kind) {
    case CLIENT_READY:
        break;
    case CLIENT_NEED_TLS:
        p->tls_wanted = true;
        break;
    case CLIENT_NEED_CONTENT: {
        static const char piece[] = ".\r\n.x\n\ry";
        bool last = ++p->content_pieces == CONTENT_PIECES;

        CHECK(client_content(&p->client, slice_of(piece, sizeof(piece) - 1), last, p->now) ==
              sizeof(piece) - 1);
        break;
    }
    case CLIENT_RCPT_VERDICT:
        CHECK(p->in_transaction && e->rcpt < RCPTS && p->seen[e->rcpt]++ == 0);
        CHECK(e->outcome != CLIENT_BOUNCED || e->status.class == STATUS_PERMANENT);
        CHECK(e->outcome != CLIENT_SENT || (p->content_pieces == CONTENT_PIECES && p->looks > 0));
        break;
    case CLIENT_TRANSACTION_DONE:
        CHECK(p->in_transaction);
        for (size_t i = 0; i < RCPTS; i++) {
            CHECK(p->seen[i] == 1);
        }
        p->in_transaction = false;
        p->over = !e->reusable;
        break;
    case CLIENT_FAILED:
        for (size_t i = 0, unresolved = 0; p->in_transaction && i < RCPTS; i++) {
            CHECK(client_unresolved(&p->client, i) == (p->seen[i] == 0));
            unresolved += p->seen[i] == 0;
            CHECK(i + 1 < RCPTS || unresolved > 0);
        }
        CHECK((e->cause == CLIENT_CAUSE_BROKEN_OFF) == p->broken_off);
        p->over = true;
        break;
    case CLIENT_CLOSED:
        CHECK(!p->in_transaction);
        p->over = true;
        break;
    }
    if (e->kind == CLIENT_READY || (e->kind == CLIENT_TRANSACTION_DONE && e->reusable)) {
        struct client_mail mail = {.sender = {"s@y", 3},
                                   .envid = {"id", 2},
                                   .flags = ENVELOPE_8BIT | ENVELOPE_RET_FULL,
                                   .size_bytes = 1000,
                                   .rcpts = rcpts,
                                   .rcpt_count = RCPTS};

        if (p->begun++ < TRANSACTIONS) {
            memset(p->seen, 0, sizeof(p->seen));
            p->content_pieces = 0;
            p->looks = 0;
            p->in_transaction = true;
            client_begin(&p->client, &mail, p->now);
        } else {
            client_quit(&p->client, p->now);
        }
    }
}

/* True when that has stopped it. */
static bool look(struct play *p)
{
    if (!client_at_last_look(&p->client)) {
        return false;
    }
    p->broken_off = ++p->looks == p->break_at;
    if (p->broken_off) {
        client_break_off(&p->client);
    } else {
        client_pass_last_look(&p->client);
    }
    client_audit(&p->client);
    return p->broken_off;
}

static void drain(struct play *p)
{
    struct buf *out = client_output(&p->client);
    struct client_event e;
    bool more = true;

    while (more) {
        more = client_next(&p->client, p->now, &e);
        client_audit(&p->client);
        if (more) {
            on_event(p, &e);
        }
        more |= look(p);
        if (buf_len(out) > 0) {
            size_t len = p->take == 0 || buf_len(out) < p->take ? buf_len(out) : p->take;

            buf_add(&p->story, slice_of(buf_slice(out).ptr, len));
            buf_consume(out, len);
            more = true;
        }
    }
}

static void feed(struct play *p, struct slice bytes, size_t step)
{
    while (bytes.len > 0) {
        struct slice piece = slice_of(bytes.ptr, bytes.len < step ? bytes.len : step);
        size_t used = client_input(&p->client, piece, p->now);

        CHECK(used > 0 && used <= piece.len);
        client_audit(&p->client);
        bytes = slice_skip(bytes, used);
        drain(p);
    }
}

static void play(struct play *p, unsigned options, struct slice parts, size_t step, size_t take,
                 size_t break_at)
{
    struct client_config config;

    client_config_defaults(&config);
    config.hostname = SLICE("me");
    config.lmtp = (options & 1) != 0;
    config.tls = (enum client_tls)(options >> 1 & 3);
    config.pipelining = (options & 8) == 0;
    config.detect_loop = (options & 16) != 0;
    config.skip_5xx_greeting = (options & 32) != 0;
    config.skip_quit_response = (options & 64) != 0;
    *p = (struct play){.now = {US_PER_S}, .take = take, .break_at = break_at};
    buf_init(&p->story, STORY_MAX);
    client_init(&p->client, &config, SLICE("mx[192.0.2.1]"), p->now);
    drain(p);
    while (parts.ptr != NULL) {
        feed(p, slice_cut(&parts, PART_END), step);
        if (p->tls_wanted && !p->over) {
            p->tls_wanted = false;
            if ((options & 128) != 0) {
                client_tls_failed(&p->client, SLICE("why\n"));
            } else {
                client_tls_started(&p->client, p->now);
            }
            drain(p);
        }
    }
    if ((options & 128) != 0) {
        client_lost(&p->client);
    } else if (client_deadline(&p->client).us != US_FOREVER) {
        p->now = client_deadline(&p->client);
        client_expire(&p->client, p->now);
    }
    drain(p);
    CHECK(p->over || client_deadline(&p->client).us == US_FOREVER);
    CHECK(!p->story.failed);
    client_fini(&p->client);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const size_t steps[] = {1, 2, 3, 7, 61};
    struct play whole, split;

    if (size < 1 || size > 100000) {
        return 0;
    }
    play(&whole, data[0], slice_of(data + 1, size - 1), size, 0, 0);
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        play(&split, data[0], slice_of(data + 1, size - 1), steps[i], 0, 0);
        CHECK(slice_equal(buf_slice(&whole.story), buf_slice(&split.story)));
        buf_fini(&split.story);
        play(&split, data[0], slice_of(data + 1, size - 1), size, steps[i], i);
        buf_fini(&split.story);
    }
    buf_fini(&whole.story);
    return 0;
}
