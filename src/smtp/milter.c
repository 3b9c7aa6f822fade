/*
 * A packet, either way: 4 bytes of length (of the rest), a letter, data; numbers in network order,
 * texts end in NUL.
 */
#include "milter.h"

#include <stdio.h>
#include <string.h>

#include "check.h"
#include "status.h"

enum state { NEGOTIATING, READY, WAITING, FAILED };

/* Actions that a filter may request in the negotiation. */
enum action {
    ACT_ADD_HEADER = 0x01,
    ACT_REPLACE_BODY = 0x02,
    ACT_ADD_RCPT = 0x04,
    ACT_DELETE_RCPT = 0x08,
    ACT_CHANGE_HEADER = 0x10,
    ACT_QUARANTINE = 0x20,
    ACT_CHANGE_SENDER = 0x40,
    ACT_ADD_RCPT_WITH = 0x80,
    ACT_SET_MACROS = 0x100,
};
#define ACTIONS                                                                                    \
    (ACT_ADD_HEADER | ACT_REPLACE_BODY | ACT_ADD_RCPT | ACT_DELETE_RCPT | ACT_CHANGE_HEADER |      \
     ACT_QUARANTINE | ACT_CHANGE_SENDER | ACT_ADD_RCPT_WITH | ACT_SET_MACROS)

/* Bits of the protocol's mask, and versions of the protocol. */
#define SKIP_OFFERED    0x400u
#define LEADING_SPACE   0x100000u
#define VERSION_OURS    6u
#define VERSION_MIN     2u
#define VERSION_OF_DATA 4u

/* Steps, in the order of enum step. */
static const struct {
    char letter;
    uint32_t unwanted, unanswered; /* masks of the protocol's bits for "the filter does not want the
                                    * step" and "does not answer it" */
} steps[] = {
    {'O', 0, 0},          {'C', 0x01, 0x1000},   {'H', 0x02, 0x2000}, {'M', 0x04, 0x4000},
    {'R', 0x08, 0x8000},  {'T', 0x200, 0x10000}, {'L', 0x20, 0x80},   {'N', 0x40, 0x40000},
    {'B', 0x10, 0x80000}, {'E', 0, 0},
};
enum step {
    STEP_NEGOTIATE,
    STEP_CONNECT,
    STEP_HELO,
    STEP_MAIL,
    STEP_RCPT,
    STEP_DATA,
    STEP_HEADER,
    STEP_END_OF_HEADER,
    STEP_BODY,
    STEP_END,
};
/* Returns the actions that a version of the protocol has. */
static uint32_t actions_of(unsigned version)
{
    return version < VERSION_OURS ? 0x3fu : (uint32_t)ACTIONS;
}

#define PROTOCOL                                                                                   \
    (0x01u | 0x02u | 0x04u | 0x08u | 0x10u | 0x20u | 0x40u | 0x200u | 0x80u | 0x1000u | 0x2000u |  \
     0x4000u | 0x8000u | 0x10000u | 0x40000u | 0x80000u | 0x100u | 0x20000u | SKIP_OFFERED |       \
     LEADING_SPACE)

static uint32_t protocol_of(unsigned version)
{
    return PROTOCOL & (version == VERSION_MIN ? 0x7fu
                       : version == 3         ? 0x1ffu
                       : version < 6          ? 0x3ffu
                                              : UINT32_MAX);
}

static void put_u32(struct buf *out, uint32_t value)
{
    const unsigned char bytes[4] = {(unsigned char)(value >> 24), (unsigned char)(value >> 16),
                                    (unsigned char)(value >> 8), (unsigned char)value};

    (void)buf_add(out, slice_of(bytes, sizeof bytes));
}

static uint32_t get_u32(const char *at)
{
    const unsigned char *bytes = (const unsigned char *)at;

    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

static void put_text(struct buf *out, struct slice text)
{
    (void)buf_add(out, slice_of(text.ptr, slice_find(text, '\0')));
    (void)buf_add_byte(out, '\0');
}

static void fail(struct milter *m, const char *why)
{
    if (m->state != FAILED) {
        (void)snprintf(m->error, sizeof m->error, "%s", why);
        m->state = FAILED;
        m->deadline = MONO_NEVER;
    }
}

/* Sends a packet with the content of `body` after its letter, and empties `body`. */
static void send_packet(struct milter *m, char letter, struct buf *body)
{
    if (body->failed || buf_len(&m->out) + 5 + buf_len(body) > MILTER_OUTPUT_MAX) {
        fail(m, "too much to send at once");
    } else {
        put_u32(&m->out, (uint32_t)buf_len(body) + 1);
        (void)buf_add_byte(&m->out, letter);
        (void)buf_add(&m->out, buf_slice(body));
    }
    buf_fini(body);
}

static void body_init(struct buf *body)
{
    buf_init(body, MILTER_OUTPUT_MAX);
}

void milter_init(struct milter *m, const struct milter_config *config, struct mono now)
{
    struct buf body;

    *m = (struct milter){.config = config, .state = NEGOTIATING, .step = STEP_NEGOTIATE};
    buf_init(&m->in, MILTER_PACKET_MAX + 4);
    buf_init(&m->out, MILTER_OUTPUT_MAX);
    buf_init(&m->text, MILTER_PACKET_MAX * 2);
    m->deadline = mono_after(now, config->command_timeout_us);
    body_init(&body);
    m->offered = config->version != 0 ? (uint8_t)config->version : VERSION_OURS;
    put_u32(&body, m->offered);
    put_u32(&body, actions_of(m->offered));
    put_u32(&body, protocol_of(m->offered));
    send_packet(m, 'O', &body);
}

void milter_fini(struct milter *m)
{
    buf_fini(&m->in);
    buf_fini(&m->out);
    buf_fini(&m->text);
}

bool milter_is_ready(const struct milter *m)
{
    return m->state == READY && !m->at_once;
}

bool milter_wants_content(const struct milter *m)
{
    return !m->done_session && !m->done_message;
}

bool milter_wants_body(const struct milter *m)
{
    return milter_wants_content(m) && !m->skips_body &&
           (m->protocol & steps[STEP_BODY].unwanted) == 0;
}

void milter_rest(struct milter *m)
{
    struct buf *const all[] = {&m->in, &m->out, &m->text};

    buf_consume(&m->in, m->taken);
    m->taken = 0;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (buf_len(all[i]) == 0 || all[i] == &m->text) {
            buf_fini(all[i]);
        }
    }
}

struct buf *milter_output(struct milter *m)
{
    return &m->out;
}

struct mono milter_deadline(const struct milter *m)
{
    return m->deadline;
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* Is the step not sent to the filter? If so, it has its verdict at once. */
static bool passes(struct milter *m, enum step step)
{
    CHECK(m->state == FAILED || milter_is_ready(m));
    m->step = (uint8_t)step;
    if (step == STEP_MAIL) {
        m->done_message = m->skips_body = false;
    }
    m->at_once = m->state != FAILED &&
                 (m->done_session || m->done_message || (m->protocol & steps[step].unwanted) != 0 ||
                  (step == STEP_DATA && m->version < VERSION_OF_DATA) ||
                  (step == STEP_BODY && m->skips_body));
    return m->at_once || m->state == FAILED;
}

static void take_step(struct milter *m, enum step step, struct buf *body, struct mono now)
{
    send_packet(m, steps[step].letter, body);
    if (m->state == FAILED) {
        return;
    }
    if ((m->protocol & steps[step].unanswered) != 0) {
        m->at_once = true;
        return;
    }
    m->state = WAITING;
    m->deadline =
        mono_after(now, step == STEP_BODY || step == STEP_END ? m->config->content_timeout_us
                                                              : m->config->command_timeout_us);
}

void milter_macros(struct milter *m, enum milter_macros_of step, const struct milter_macro *macros,
                   size_t count)
{
    struct buf body;

    if (m->state != READY || m->done_session || m->done_message) {
        return;
    }
    body_init(&body);
    (void)buf_add_byte(&body, (char)step);
    for (size_t i = 0; i < count; i++) {
        put_text(&body, slice_string(macros[i].name));
        put_text(&body, macros[i].value);
    }
    send_packet(m, 'D', &body);
}

void milter_connect(struct milter *m, struct slice name, int family, struct slice address,
                    uint16_t port, struct mono now)
{
    struct buf body;

    if (passes(m, STEP_CONNECT)) {
        return;
    }
    body_init(&body);
    put_text(&body, name);
    (void)buf_add_byte(&body, family == 4 ? '4' : family == 6 ? '6' : family == 'L' ? 'L' : 'U');
    if (family != 0) {
        (void)buf_add_byte(&body, (char)(port >> 8));
        (void)buf_add_byte(&body, (char)port);
        put_text(&body, address);
    }
    take_step(m, STEP_CONNECT, &body, now);
}

void milter_helo(struct milter *m, struct slice helo, struct mono now)
{
    struct buf body;

    if (!passes(m, STEP_HELO)) {
        body_init(&body);
        put_text(&body, helo);
        take_step(m, STEP_HELO, &body, now);
    }
}

static void take_address(struct milter *m, enum step step, struct slice address,
                         struct slice parameters, struct mono now)
{
    struct buf body;

    if (passes(m, step)) {
        return;
    }
    body_init(&body);
    (void)buf_add_byte(&body, '<');
    (void)buf_add(&body, slice_of(address.ptr, slice_find(address, '\0')));
    put_text(&body, SLICE(">"));
    while (parameters.len > 0) {
        struct slice word = slice_cut(&parameters, ' ');

        if (word.len > 0) {
            put_text(&body, word);
        }
    }
    take_step(m, step, &body, now);
}

void milter_mail(struct milter *m, struct slice address, struct slice parameters, struct mono now)
{
    take_address(m, STEP_MAIL, address, parameters, now);
}

void milter_rcpt(struct milter *m, struct slice address, struct slice parameters, struct mono now)
{
    take_address(m, STEP_RCPT, address, parameters, now);
}

static void take_empty(struct milter *m, enum step step, struct mono now)
{
    struct buf body;

    if (!passes(m, step)) {
        body_init(&body);
        take_step(m, step, &body, now);
    }
}

void milter_data(struct milter *m, struct mono now)
{
    take_empty(m, STEP_DATA, now);
}

void milter_end_of_header(struct milter *m, struct mono now)
{
    take_empty(m, STEP_END_OF_HEADER, now);
}

void milter_end(struct milter *m, struct mono now)
{
    take_empty(m, STEP_END, now);
}

/* Sends a field with LF as line end, and without the blank after the colon unless the filter has
 * negotiated LEADING_SPACE. */
void milter_header(struct milter *m, struct slice name, struct slice value, struct mono now)
{
    struct buf body;

    if (passes(m, STEP_HEADER)) {
        return;
    }
    if ((m->protocol & LEADING_SPACE) == 0 && value.len > 0 && value.ptr[0] == ' ') {
        value = slice_skip(value, 1);
    }
    body_init(&body);
    put_text(&body, name);
    while (value.len > 0) {
        size_t at = slice_find(value, '\r');

        (void)buf_add(&body, slice_of(value.ptr, at));
        value = slice_skip(value, at < value.len ? at + 1 : at);
    }
    (void)buf_add_byte(&body, '\0');
    take_step(m, STEP_HEADER, &body, now);
}

void milter_body(struct milter *m, struct slice piece, struct mono now)
{
    struct buf body;

    CHECK(piece.len <= MILTER_BODY_MAX);
    if (!passes(m, STEP_BODY)) {
        body_init(&body);
        (void)buf_add(&body, piece);
        take_step(m, STEP_BODY, &body, now);
    }
}

static void say(struct milter *m, char letter)
{
    struct buf body;

    body_init(&body);
    send_packet(m, letter, &body);
}

void milter_abort(struct milter *m)
{
    if (m->state == WAITING || m->state == NEGOTIATING) {
        fail(m, "cancelled before its answer"); /* the next answer could not be assigned to a
                                                     * step */
    } else if (m->state == READY) {
        say(m, 'A');
        m->at_once = false;
        m->done_message = true; /* until the next milter_mail */
    }
}

void milter_quit(struct milter *m)
{
    if (m->state != FAILED) {
        say(m, 'Q');
        fail(m, "closed");
    }
}

/* ---- answers of the filter ------------------------------------------------------------------- */

static void negotiated(struct milter *m, struct slice body)
{
    if (body.len < 12) {
        fail(m, "its negotiation is cut short");
        return;
    }
    m->version = get_u32(body.ptr);
    m->actions = get_u32(body.ptr + 4);
    m->protocol = get_u32(body.ptr + 8);
    if (m->version < VERSION_MIN || m->version > m->offered) {
        fail(m, "it speaks a version of the protocol that is none of 2 to 6");
    } else if ((m->actions & ~actions_of(m->offered)) != 0 ||
               (m->protocol & ~protocol_of(m->offered)) != 0) {
        fail(m, "it asks for more than was offered");
    } else {
        m->state = READY;
        m->deadline = MONO_NEVER;
    }
}

/* Cuts a text off the front; returns false if its NUL is missing. */
static bool cut_text(struct slice *rest, struct slice *ret_text)
{
    size_t at = slice_find(*rest, '\0');

    if (at == rest->len) {
        return false;
    }
    *ret_text = slice_of(rest->ptr, at);
    *rest = slice_skip(*rest, at + 1);
    return true;
}

static bool is_field_name(struct slice name)
{
    for (size_t i = 0; i < name.len; i++) {
        if (name.ptr[i] <= ' ' || name.ptr[i] >= 127 || name.ptr[i] == ':') {
            return false;
        }
    }
    return name.len > 0;
}

/* Puts a field's value in wire form into m->text; returns false if the value would end the
 * field. */
static bool keep_value(struct milter *m, struct slice value)
{
    bool at_start = false;

    buf_clear(&m->text);
    if ((m->protocol & LEADING_SPACE) == 0 && value.len > 0) {
        (void)buf_add_byte(&m->text, ' ');
    }
    while (value.len > 0 &&
           (value.ptr[value.len - 1] == '\n' || value.ptr[value.len - 1] == '\r')) {
        value.len--;
    }
    for (size_t i = 0; i < value.len; i++) {
        char c = value.ptr[i];

        if (at_start && c != ' ' && c != '\t') {
            return false;
        }
        at_start = c == '\n';
        if (c == '\n') {
            (void)buf_add(&m->text, SLICE("\r\n"));
        } else if (c != '\r') {
            (void)buf_add_byte(&m->text, c);
        } else if (i + 1 == value.len || value.ptr[i + 1] != '\n') {
            return false;
        }
    }
    return !m->text.failed;
}

static void change_header(struct milter *m, char letter, struct slice body,
                          struct milter_event *event)
{
    struct slice value;

    event->change = letter == 'h'   ? MILTER_ADD_HEADER
                    : letter == 'i' ? MILTER_INSERT_HEADER
                                    : MILTER_CHANGE_HEADER;
    if (letter != 'h') {
        if (body.len < 4) {
            fail(m, "it changes a header field without its number");
            return;
        }
        event->index = get_u32(body.ptr);
        body = slice_skip(body, 4);
    }
    if (!cut_text(&body, &event->name) || !cut_text(&body, &value) || body.len > 0 ||
        !is_field_name(event->name) || !keep_value(m, value)) {
        fail(m, "it sets a header field that is none");
    } else if (letter == 'm' && event->index == 0) {
        event->index = 1; /* as libmilter's programs mean it */
        event->value = buf_slice(&m->text);
    } else {
        event->value = buf_slice(&m->text);
    }
}

/* Takes "<a@b>" or "a@b"; the owner checks whether this is an address. */
static void change_address(struct milter *m, enum milter_change change, struct slice body,
                           struct milter_event *event)
{
    struct slice address;

    if (!cut_text(&body, &address)) {
        fail(m, "it names an address without an end");
        return;
    }
    if (address.len >= 2 && address.ptr[0] == '<' && address.ptr[address.len - 1] == '>') {
        address = slice_of(address.ptr + 1, address.len - 2);
    }
    event->change = change;
    event->value = address;
}

/* Parses "550 5.7.1 text"; several lines are joined. Per cent signs are doubled in the packet. */
static void take_reply(struct milter *m, struct slice body, struct milter_event *event)
{
    struct slice text;
    struct status status;
    unsigned long long code;
    size_t len;

    if (!cut_text(&body, &text) || text.len < 3 ||
        !slice_number(slice_of(text.ptr, 3), 599, &code) || code < 400 ||
        (text.len > 3 && text.ptr[3] != ' ' && text.ptr[3] != '-')) {
        fail(m, "its reply is none of 4xx and 5xx");
        return;
    }
    event->verdict = MILTER_REPLY;
    event->code = (unsigned)code;
    text = slice_skip(text, text.len > 3 ? 4 : 3);
    if (status_prefix(text, &status, &len) && status.class == code / 100) {
        event->status = slice_of(text.ptr, len);
        text = slice_trim(slice_skip(text, len));
    }
    buf_clear(&m->text);
    for (size_t i = 0; i < text.len && buf_len(&m->text) < MILTER_TEXT_MAX; i++) {
        char c = text.ptr[i];

        if (c == '\r' || (c == '%' && i + 1 < text.len && text.ptr[i + 1] == '%')) {
            continue;
        }
        (void)buf_add_byte(&m->text, c == '\n' ? ' ' : c);
    }
    event->text = buf_slice(&m->text);
}

static bool may(struct milter *m, uint32_t action, const char *why)
{
    if ((m->actions & action) == 0 || m->step != STEP_END) {
        fail(m, why);
        return false;
    }
    return true;
}

/* Processes a change of the message; returns false if the letter is another one. */
static bool take_change(struct milter *m, char letter, struct slice body,
                        struct milter_event *event)
{
    static const char header[] = "it changes the header without having asked for it",
                      rcpt[] = "it changes recipients without having asked for it";

    event->type = MILTER_CHANGED;
    switch (letter) {
    case 'h':
    case 'i':
        if (may(m, ACT_ADD_HEADER, header)) {
            change_header(m, letter, body, event);
        }
        return true;
    case 'm':
        if (may(m, ACT_CHANGE_HEADER, header)) {
            change_header(m, letter, body, event);
        }
        return true;
    case '+':
    case '2':
        if (may(m, letter == '+' ? ACT_ADD_RCPT : ACT_ADD_RCPT_WITH, rcpt)) {
            change_address(m, MILTER_ADD_RCPT, body, event);
        }
        return true;
    case '-':
        if (may(m, ACT_DELETE_RCPT, rcpt)) {
            change_address(m, MILTER_DELETE_RCPT, body, event);
        }
        return true;
    case 'e':
        if (may(m, ACT_CHANGE_SENDER, "it changes the sender without having asked for it")) {
            change_address(m, MILTER_CHANGE_SENDER, body, event);
        }
        return true;
    case 'b':
        if (may(m, ACT_REPLACE_BODY, "it replaces the body without having asked for it")) {
            event->change = MILTER_REPLACE_BODY;
            event->value = body;
        }
        return true;
    case 'q':
        if (may(m, ACT_QUARANTINE, "it quarantines without having asked for it") &&
            !cut_text(&body, &event->value)) {
            fail(m, "it quarantines without a reason");
        }
        event->change = MILTER_QUARANTINE;
        return true;
    default:
        return false;
    }
}

/* Ends the step with this verdict. */
static void settle(struct milter *m, enum milter_verdict verdict, struct milter_event *event)
{
    bool in_session = m->step == STEP_CONNECT || m->step == STEP_HELO;
    bool of_rcpt = m->step == STEP_RCPT && (verdict == MILTER_REJECT ||
                                            verdict == MILTER_TEMPFAIL || verdict == MILTER_REPLY);

    event->type = MILTER_VERDICT;
    event->verdict = verdict;
    m->state = READY;
    m->deadline = MONO_NEVER;
    if (verdict == MILTER_ACCEPT && in_session) {
        m->done_session = true;
    } else if (verdict != MILTER_CONTINUE && !in_session && !of_rcpt) {
        m->done_message = true;
    }
}

static void take_verdict(struct milter *m, char letter, struct slice body,
                         struct milter_event *event)
{
    switch (letter) {
    case 'c':
        settle(m, MILTER_CONTINUE, event);
        return;
    case 'a':
        settle(m, MILTER_ACCEPT, event);
        return;
    case 'r':
        settle(m, MILTER_REJECT, event);
        return;
    case 't':
        settle(m, MILTER_TEMPFAIL, event);
        return;
    case 'd':
        settle(m, MILTER_DISCARD, event);
        return;
    case '4':
    case 'f':
        settle(m, MILTER_CLOSE, event);
        return;
    case 's':
        if (m->step != STEP_BODY) {
            fail(m, "it skips what is not a body");
            return;
        }
        m->skips_body = true;
        settle(m, MILTER_CONTINUE, event);
        return;
    case 'y':
        take_reply(m, body, event);
        if (m->state != FAILED) {
            settle(m, MILTER_REPLY, event);
        }
        return;
    default:
        fail(m, "it sends a word that the protocol does not have");
    }
}

/* Processes one packet. Returns true if *event is filled. */
static bool take_packet(struct milter *m, char letter, struct slice body,
                        struct milter_event *event)
{
    if (m->state == NEGOTIATING) {
        if (letter == 'O') {
            negotiated(m, body);
        } else {
            fail(m, "it does not negotiate");
        }
        return false;
    }
    if (letter == 'p') {
        return false; /* milter_input has already moved the deadline */
    }
    if (!take_change(m, letter, body, event)) {
        take_verdict(m, letter, body, event);
    }
    return m->state != FAILED;
}

void milter_input(struct milter *m, struct slice in, struct mono now)
{
    if (m->state == FAILED || in.len == 0) {
        return;
    }
    if (m->state == READY) {
        fail(m, "it speaks without being asked");
    } else if (!buf_add(&m->in, in)) {
        fail(m, "it sends too much at once");
    } else if (m->step == STEP_BODY || m->step == STEP_END) {
        m->deadline = mono_after(now, m->config->content_timeout_us);
    }
}

void milter_next(struct milter *m, struct milter_event *ret_event)
{
    if (m->taken > 0) { /* the memory of the last event's slices */
        buf_consume(&m->in, m->taken);
        m->taken = 0;
    }
    *ret_event = (struct milter_event){.type = MILTER_NEED_INPUT};
    if (m->at_once && m->state == READY) {
        m->at_once = false;
        ret_event->type = MILTER_VERDICT;
        return;
    }
    while (m->state == NEGOTIATING || m->state == WAITING) {
        struct slice in = buf_slice(&m->in);
        uint32_t len;

        if (in.len < 4 || (len = get_u32(in.ptr)) > in.len - 4) {
            if (in.len >= 4 && get_u32(in.ptr) > MILTER_PACKET_MAX) {
                fail(m, "its packet is too long");
            } else if (m->lost) {
                fail(m, "connection lost");
            }
            break;
        }
        if (len == 0) {
            fail(m, "its packet is empty");
            break;
        }
        m->taken = 4 + len;
        if (take_packet(m, in.ptr[4], slice_of(in.ptr + 5, len - 1), ret_event)) {
            if (m->state == READY && buf_len(&m->in) > m->taken) {
                fail(m, "it sends more than its verdict");
                break;
            }
            return;
        }
        buf_consume(&m->in, m->taken);
        m->taken = 0;
    }
    if (m->state == FAILED || (m->lost && m->state == READY)) {
        fail(m, "connection lost");
        *ret_event = (struct milter_event){.type = MILTER_FAILED, .text = slice_string(m->error)};
    }
}

void milter_expire(struct milter *m, struct mono now)
{
    if (mono_reached(m->deadline, now)) {
        fail(m, "it does not answer in time");
    }
}

void milter_lost(struct milter *m)
{
    m->lost = true;
}
