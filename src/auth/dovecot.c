#include "dovecot.h"

#include <string.h>

#include "base64.h"
#include "check.h"
#include "class_name.h"
#include "name_lines.h"

#define ESCAPE '\001'
/* Room for several lines, the last one incomplete. */
#define INPUT_MAX (8u * DOVECOT_LINE_MAX)
/* Room for requests of many logins that the server has not read yet. */
#define OUTPUT_MAX (256u << 20)
/* Room for the base64 of the longest message, and its line. */
#define SCRATCH_MAX (2u * DOVECOT_LINE_MAX)

_Static_assert(SASL_MESSAGE_MAX / 3 * 4 + 1000 < DOVECOT_LINE_MAX, "a request is one line");

void dovecot_init(struct dovecot *d, uint32_t pid)
{
    *d = (struct dovecot){.state = DOVECOT_IN_GREETING};
    buf_init(&d->input, INPUT_MAX);
    buf_init(&d->output, OUTPUT_MAX);
    buf_init(&d->scratch, SCRATCH_MAX);
    buf_keep_secret(&d->output);
    (void)buf_addf(&d->output, "VERSION\t1\t1\nCPID\t%u\n", (unsigned)pid); /* fits */
}

void dovecot_fini(struct dovecot *d)
{
    buf_fini(&d->input);
    buf_fini(&d->output);
    buf_fini(&d->scratch);
}

struct buf *dovecot_output(struct dovecot *d)
{
    return &d->output;
}

unsigned dovecot_mechanisms(const struct dovecot *d)
{
    return d->state == DOVECOT_IS_READY ? d->mechanisms : 0;
}

static void fail(struct dovecot *d, const char *why)
{
    d->state = DOVECOT_IS_BROKEN;
    d->why = why;
}

/* ---- fields --------------------------------------------------------------------------------- */

/* Cuts the next field of a line; returns false after the last. */
static bool next_field(struct slice *rest, struct slice *ret_field)
{
    if (rest->ptr == NULL) {
        return false;
    }
    *ret_field = slice_cut(rest, '\t');
    return true;
}

/* Is this the field `name`, with a value or without? *ret_value is empty without. */
static bool is_field(struct slice field, const char *name, struct slice *ret_value)
{
    size_t len = strlen(name);

    if (!slice_starts(field, slice_string(name)) || (field.len > len && field.ptr[len] != '=')) {
        return false;
    }
    *ret_value = field.len > len ? slice_skip(field, len + 1) : slice_of("", 0);
    return true;
}

static bool take_id(struct slice *rest, uint32_t *ret_id)
{
    unsigned long long number;
    struct slice field;

    if (!next_field(rest, &field) || !slice_number(field, UINT32_MAX, &number)) {
        return false;
    }
    *ret_id = (uint32_t)number;
    return true;
}

/* Returns a value without its escapes. The result is in the scratch buffer, which has room for all
 * of a line. */
static struct slice unescape(struct dovecot *d, struct slice value)
{
    size_t begin = buf_len(&d->scratch);
    bool escaped = false;

    for (size_t i = 0; i < value.len; i++) {
        char c = value.ptr[i];

        if (!escaped && c == ESCAPE) {
            escaped = true;
            continue;
        }
        if (escaped) {
            c = c == '0'   ? '\0'
                : c == '1' ? ESCAPE
                : c == 't' ? '\t'
                : c == 'r' ? '\r'
                : c == 'n' ? '\n'
                           : c;
            escaped = false;
        }
        CHECK(buf_add_byte(&d->scratch, c));
    }
    return slice_skip(buf_slice(&d->scratch), begin);
}

/* Is this name safe in a log and in a header field? */
static bool is_user(struct slice user)
{
    for (size_t i = 0; i < user.len; i++) {
        unsigned char c = (unsigned char)user.ptr[i];

        if (c < ' ' || c == 0x7f) {
            return false;
        }
    }
    return user.len > 0 && user.len <= SASL_USER_MAX;
}

/* ---- lines of the server -------------------------------------------------------------------- */

static void take_version(struct dovecot *d, struct slice rest)
{
    unsigned long long major;
    struct slice field;

    if (d->version_known || !next_field(&rest, &field) || !slice_number(field, 1000, &major)) {
        fail(d, "its VERSION cannot be read");
    } else if (major != 1) {
        fail(d, "it speaks another version of the protocol than 1");
    } else {
        d->version_known = true;
    }
}

/* Processes a line of the greeting. Returns true if it is the last. */
static bool take_greeting(struct dovecot *d, struct slice line)
{
    struct slice rest = line, word = slice_cut(&rest, '\t'), name;

    if (++d->lines > DOVECOT_GREETING_MAX) {
        fail(d, "its greeting does not end");
    } else if (slice_equal(word, SLICE("VERSION"))) {
        take_version(d, rest);
    } else if (!d->version_known) {
        fail(d, "it does not begin with its VERSION");
    } else if (slice_equal(word, SLICE("MECH"))) {
        if (next_field(&rest, &name)) {
            d->mechanisms |= sasl_mechanisms(name);
        }
    } else if (slice_equal(word, SLICE("DONE"))) {
        d->state = DOVECOT_IS_READY;
        return true;
    }
    return false;
}

static bool take_challenge(struct dovecot *d, struct slice rest, struct dovecot_event *e)
{
    struct slice field;

    e->type = DOVECOT_CHALLENGE;
    if (!take_id(&rest, &e->id)) {
        return false;
    }
    /* Without a field the challenge is empty: the client must begin. */
    if (next_field(&rest, &field) && !base64_get(field, &d->scratch)) {
        return false;
    }
    e->challenge = buf_slice(&d->scratch);
    return true;
}

/* Processes the fields of OK and FAIL. */
static bool take_end(struct dovecot *d, struct slice rest, struct dovecot_event *e)
{
    bool accepted = e->type == DOVECOT_ACCEPTED;
    struct slice field, value;

    e->user = e->class_name = e->senders = slice_of("", 0);
    if (!take_id(&rest, &e->id)) {
        return false;
    }
    (void)buf_room(&d->scratch, rest.len); /* later additions must not move the slices into it */
    while (next_field(&rest, &field)) {
        if (is_field(field, "user", &value)) {
            e->user = unescape(d, value);
        } else if (accepted && is_field(field, "class", &value)) {
            e->class_name = unescape(d, value);
        } else if (accepted && is_field(field, "senders", &value)) {
            e->senders = unescape(d, value);
        } else if (accepted &&
                   (is_field(field, "nologin", &value) || is_field(field, "proxy", &value))) {
            e->type = DOVECOT_REFUSED;
        } else if (!accepted && (is_field(field, "temp", &value) ||
                                 slice_equal(field, SLICE("code=temp_fail")))) {
            e->type = DOVECOT_UNAVAILABLE;
            e->why = "Dovecot reports a temporary failure";
        }
    }
    if (e->user.len > 0 && !is_user(e->user)) {
        return false;
    }
    if (accepted && e->user.len == 0) {
        return false;
    }
    /* Fewer rights than intended are a nuisance; more would be a security hole. */
    if (e->class_name.len > 0 && !class_name_valid(e->class_name)) {
        e->type = DOVECOT_UNAVAILABLE;
        e->why = "Dovecot gives the user a `class' that is none";
    } else if (e->senders.len > NAME_LINES_SENDERS_MAX ||
               (e->senders.len > 0 && !name_lines_senders_are_valid(e->senders))) {
        e->type = DOVECOT_UNAVAILABLE;
        e->why = "Dovecot gives the user `senders' that are none";
    }
    return true;
}

/* Processes a line that answers a request. Returns true for an event. */
static bool take_reply(struct dovecot *d, struct slice line, struct dovecot_event *e)
{
    struct slice rest = line, word = slice_cut(&rest, '\t');
    bool good = true, told = true;

    if (slice_equal(word, SLICE("CONT"))) {
        good = take_challenge(d, rest, e);
    } else if (slice_equal(word, SLICE("OK"))) {
        e->type = DOVECOT_ACCEPTED;
        good = take_end(d, rest, e);
    } else if (slice_equal(word, SLICE("FAIL"))) {
        e->type = DOVECOT_REFUSED;
        good = take_end(d, rest, e);
    } else {
        told = false; /* a word of a later version */
    }
    if (!good) {
        fail(d, "it sends an answer that cannot be read");
        return false;
    }
    return told;
}

void dovecot_input(struct dovecot *d, struct slice bytes)
{
    if (d->state != DOVECOT_IS_BROKEN && !buf_add(&d->input, bytes)) {
        fail(d, "it sends more than was asked for");
    }
}

void dovecot_next(struct dovecot *d, struct dovecot_event *ret_event)
{
    *ret_event = (struct dovecot_event){.type = DOVECOT_NEED_INPUT};
    buf_clear(&d->scratch);
    while (d->state != DOVECOT_IS_BROKEN) {
        struct slice input = buf_slice(&d->input), line;
        size_t end = slice_find(input, '\n');
        bool told;

        if (end > DOVECOT_LINE_MAX) {
            fail(d, "it sends a line that is too long");
            break;
        }
        if (end == input.len) {
            return;
        }
        line = slice_of(input.ptr, end);
        if (d->state == DOVECOT_IN_GREETING) {
            told = take_greeting(d, line);
            ret_event->type = told ? DOVECOT_READY : DOVECOT_NEED_INPUT;
        } else {
            told = take_reply(d, line, ret_event);
        }
        buf_consume(&d->input, end + 1); /* the event's slices point into the scratch buffer */
        if (told) {
            return;
        }
    }
    *ret_event = (struct dovecot_event){.type = DOVECOT_FAILED, .why = d->why};
}

/* ---- requests ------------------------------------------------------------------------------- */

/* Adds an address as a field. The text of an address needs no escapes. */
static void put_address(struct dovecot *d, const char *name, struct slice address)
{
    if (address.len > 0 && address.len < 100 && slice_find(address, '\t') == address.len &&
        slice_find(address, '\n') == address.len) {
        (void)buf_addf(&d->output, "\t%s=%.*s", name, SLICE_ARGS(address)); /* see end_line */
    }
}

/* Ends a request. Output overflows only if the server reads nothing while thousands of clients log
 * in; such a server is given no further requests. */
static void end_line(struct dovecot *d)
{
    (void)buf_add_byte(&d->output, '\n'); /* the error is sticky, and checked here */
    if (d->output.failed) {
        fail(d, "it takes no requests");
    }
}

void dovecot_begin(struct dovecot *d, uint32_t id, const struct dovecot_request *request)
{
    CHECK(d->state != DOVECOT_IN_GREETING);
    CHECK(request->message.len <= SASL_MESSAGE_MAX);
    (void)buf_addf(&d->output, "AUTH\t%u\t%s\tservice=smtp\tsecured", (unsigned)id,
                   sasl_mechanism_name(request->mechanism)); /* see end_line */
    put_address(d, "rip", request->remote);
    put_address(d, "lip", request->local);
    if (request->message.ptr != NULL) {
        (void)buf_add_string(&d->output, "\tresp=");
        base64_put(&d->output, request->message);
    }
    end_line(d);
}

void dovecot_answer(struct dovecot *d, uint32_t id, struct slice message)
{
    CHECK(d->state != DOVECOT_IN_GREETING);
    CHECK(message.len <= SASL_MESSAGE_MAX);
    (void)buf_addf(&d->output, "CONT\t%u\t", (unsigned)id); /* see end_line */
    base64_put(&d->output, message);
    end_line(d);
}

void dovecot_cancel(struct dovecot *d, uint32_t id)
{
    CHECK(d->state != DOVECOT_IN_GREETING);
    (void)buf_addf(&d->output, "CANCEL\t%u", (unsigned)id); /* see end_line */
    end_line(d);
}
