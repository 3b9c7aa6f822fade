/*
 *   AT_START --byte--> IN_LINE --LF, "ddd-"--> BETWEEN --byte--> IN_LINE
 *                         |
 *                         +---LF, "ddd " or "ddd"--> COMPLETE --byte--> a new reply, AT_START
 *                         +---LF, anything else, tolerant--> AT_START or BETWEEN as before
 *                         +---LF, anything else, or too much--> BROKEN
 */
#include "reply.h"

#include <string.h>

#include "check.h"
#include "printable.h"

void reply_init(struct reply *r)
{
    *r = (struct reply){.state = REPLY_AT_START};
    buf_init(&r->text, REPLY_TEXT_MAX);
}

void reply_reset(struct reply *r)
{
    struct buf text = r->text;
    bool tolerant = r->tolerant;

    buf_clear(&text);
    *r = (struct reply){.state = REPLY_AT_START, .text = text, .tolerant = tolerant};
}

void reply_fini(struct reply *r)
{
    buf_fini(&r->text);
    reply_init(r);
}

bool reply_is_idle(const struct reply *r)
{
    return r->state == REPLY_AT_START || r->state == REPLY_COMPLETE;
}

struct slice reply_text(const struct reply *r)
{
    return buf_slice(&r->text);
}

static struct slice line_kept(const struct reply *r)
{
    return slice_skip(reply_text(r), r->line_start);
}

struct slice reply_line(const struct reply *r)
{
    return slice_skip(line_kept(r), 4);
}

static size_t at_most(size_t a, size_t b)
{
    return a < b ? a : b;
}

static void line_begin(struct reply *r)
{
    if (r->lines > 0 && buf_len(&r->text) < REPLY_TEXT_MAX) {
        CHECK(buf_add_byte(&r->text, ' '));
    }
    r->line_start = (uint32_t)buf_len(&r->text);
    r->line_len = 0;
    r->line_end_cr = false;
}

/* Adds more of the line, without its LF, as far as the limits allow. The head is kept separately
 * because it determines how the reply continues, even if there is no room for the text. */
static void line_add(struct reply *r, struct slice bytes)
{
    size_t kept = buf_len(&r->text) - r->line_start;
    size_t room = at_most(REPLY_LINE_MAX - kept, REPLY_TEXT_MAX - buf_len(&r->text));

    for (size_t i = 0; i < bytes.len && r->line_len + i < sizeof(r->head); i++) {
        r->head[r->line_len + i] = bytes.ptr[i];
    }
    if (kept < r->line_len) {
        room = 0; /* a part was left out already; later bytes must not close the gap */
    }
    CHECK(buf_add(&r->text, slice_of(bytes.ptr, at_most(bytes.len, room))));
    r->line_len += (uint32_t)bytes.len;
    r->line_end_cr = bytes.ptr[bytes.len - 1] == '\r';
}

/* Makes a complete line printable for logs. */
static void line_fix(struct reply *r)
{
    size_t len = line_kept(r).len;

    if (len > 0) {
        printable_fix(r->text.ptr + r->text.end - len, len);
    }
}

static enum reply_event broken(struct reply *r)
{
    line_fix(r);
    r->state = REPLY_BROKEN;
    return REPLY_BAD;
}

/* Does the line begin with a code, and blank, hyphen or nothing after it? */
static bool line_has_code(const struct reply *r)
{
    return r->line_len >= 3 && r->head[0] >= '2' && r->head[0] <= '5' &&
           ascii_is_digit(r->head[1]) && ascii_is_digit(r->head[2]) &&
           (r->line_len == 3 || r->head[3] == ' ' || r->head[3] == '\t' || r->head[3] == '-');
}

/* Forgets a line, as if it had not come. */
static enum reply_event line_skip(struct reply *r)
{
    size_t joint = r->lines > 0 && r->line_start > 0;

    buf_truncate(&r->text, r->line_start - joint);
    r->state = r->lines > 0 ? REPLY_BETWEEN : REPLY_AT_START;
    return REPLY_MORE;
}

/* Ends a line at its LF. Returns REPLY_MORE if the line was skipped. */
static enum reply_event line_end(struct reply *r)
{
    struct slice kept = line_kept(r);
    struct status status;
    size_t status_len;
    bool is_last;

    if (r->line_end_cr) {
        if (kept.len == r->line_len) {
            buf_truncate(&r->text, buf_len(&r->text) - 1);
            kept.len--;
        }
        r->line_len--;
    }
    if (!line_has_code(r)) {
        bool other_protocol = r->greets && r->lines == 0 && r->line_len > 0;

        return r->tolerant && !other_protocol ? line_skip(r) : broken(r);
    }
    if (r->lines < UINT16_MAX) {
        r->lines++;
    }
    is_last = r->line_len == 3 || r->head[3] != '-';
    line_fix(r);
    r->code = (uint16_t)((r->head[0] - '0') * 100 + (r->head[1] - '0') * 10 + (r->head[2] - '0'));
    if (status_prefix(slice_skip(kept, 4), &status, &status_len) && status.class == r->code / 100) {
        r->status = status;
        r->status_sent = true;
    } else if (!r->status_sent || r->status.class != r->code / 100) {
        r->status = status_of_reply(r->code);
        r->status_sent = false;
    }
    if (is_last) {
        r->state = REPLY_COMPLETE;
        return REPLY_DONE;
    }
    r->state = REPLY_BETWEEN;
    return REPLY_LINE;
}

enum reply_event reply_feed(struct reply *r, struct slice in, size_t *ret_used)
{
    *ret_used = 0;
    if (r->state == REPLY_COMPLETE && in.len > 0) {
        reply_reset(r);
    }
    while (r->state != REPLY_BROKEN && *ret_used < in.len) {
        struct slice rest = slice_skip(in, *ret_used);
        enum reply_event event;
        struct slice line;

        if (r->bytes == REPLY_BYTES_MAX) {
            return broken(r);
        }
        rest.len = at_most(rest.len, REPLY_BYTES_MAX - r->bytes);
        if (r->state != REPLY_IN_LINE) {
            line_begin(r);
            r->state = REPLY_IN_LINE;
        }
        line = slice_of(rest.ptr, slice_find(rest, '\n'));
        if (line.len > 0) {
            line_add(r, line);
        }
        if (line.len < rest.len) {
            *ret_used += line.len + 1;
            r->bytes += (uint32_t)line.len + 1;
            event = line_end(r);
            if (event != REPLY_MORE) {
                return event;
            }
            continue;
        }
        *ret_used += line.len;
        r->bytes += (uint32_t)line.len;
    }
    return r->state == REPLY_BROKEN ? REPLY_BAD : REPLY_MORE;
}
