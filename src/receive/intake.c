#include "intake.h"

#include <string.h>

#include "check.h"

/* Maximum bytes that are converted at once. */
#define PIECE_SIZE 65536u

#define REFUSAL(code, status, text) ((struct server_reply){code, status, SLICE(text)})
#define NO_MEMORY                   REFUSAL(452, "4.3.1", "Insufficient memory, try again later")

void intake_begin(struct intake *i, const struct receive_settings *settings,
                  const struct conf *conf, struct rule_set *rules, struct draft_budget *budget,
                  intake_envelope *envelope, void *arg)
{
    *i = (struct intake){.settings = settings, .envelope = envelope, .arg = arg};
    draft_init(&i->draft, budget, settings->inline_max);
    content_init(&i->scanner, CONTENT_COUNTED);
    classify_begin(&i->classify, conf);
    arrival_begin(&i->arrival, rules, false);
    buf_init(&i->head, settings->smtp.limits.header_bytes + 2 * PIECE_SIZE + 3);
    buf_init(&i->wire, 2 * PIECE_SIZE + 3);
}

void intake_drop(struct intake *i)
{
    if (i->settings == NULL) {
        return;
    }
    draft_drop(&i->draft);
    classify_drop(&i->classify);
    arrival_drop(&i->arrival);
    buf_fini(&i->head);
    buf_fini(&i->wire);
    i->settings = NULL;
}

static struct server_reply judge(const struct intake *i)
{
    const struct server_limits *limits = &i->settings->smtp.limits;
    const struct content_facts *facts = &i->scanner.facts;

    if (limits->message_bytes > 0 && facts->bytes > limits->message_bytes) {
        return REFUSAL(552, "5.3.4", "Message size exceeds fixed limit (message_size_limit)");
    }
    if (limits->header_bytes > 0 && facts->header_bytes > limits->header_bytes) {
        return INTAKE_HEADER_TOO_LARGE;
    }
    if (limits->hops > 0 && facts->received > limits->hops) {
        return REFUSAL(554, "5.4.6", "Too many hops (hopcount_limit)");
    }
    return SERVER_ACCEPT;
}

/* Adds content that has passed the rules to the draft. */
static void put_content(void *arg, struct slice bytes)
{
    struct intake *i = arg;

    (void)draft_hold(&i->draft, arrival_held(&i->arrival)); /* a failure shows in the draft */
    (void)draft_add_content(&i->draft, bytes);
}

static bool keep(struct intake *i, struct slice wire)
{
    classify_feed(&i->classify, wire);
    arrival_content(&i->arrival, wire, put_content, i);
    (void)draft_hold(&i->draft, arrival_held(&i->arrival)); /* a failure shows in the draft */
    return !i->draft.failed;
}

/* Begins the body. `all` is the header section and the body received so far. */
static struct server_reply begin_body(struct intake *i, struct slice all)
{
    size_t len = (size_t)i->scanner.facts.header_bytes;
    struct arrival_author author = {.is_own = true};
    struct server_reply reply;

    CHECK(len <= all.len);
    i->in_body = true;
    reply = i->envelope(i->arg, slice_of(all.ptr, len));
    if (reply.code != 0) {
        return reply;
    }
    draft_keep_header(&i->draft);
    author.sender = draft_sender(&i->draft);
    arrival_data(&i->arrival, &author);
    if (all.len > 0 && !keep(i, all)) {
        return NO_MEMORY;
    }
    buf_fini(&i->head);
    return SERVER_ACCEPT;
}

static void scan(struct intake *i, struct slice wire)
{
    struct slice ignored;
    size_t used;

    while (wire.len > 0) {
        (void)content_feed(&i->scanner, wire, &used, &ignored); /* counted: reports no end */
        wire = slice_skip(wire, used);
    }
}

/* Converts bytes to wire form and scans them. Bytes that are in wire form already are not copied;
 * the scanner, which reads each line anyway, decides that. */
static struct slice scan_bytes(struct intake *i, struct slice bytes)
{
    struct content before = i->scanner;
    struct line_ends ends_before = i->ends;
    struct slice wire;

    if (!i->converts && !i->ends.after_cr) {
        wire = line_ends_pass(&i->ends, bytes);
        scan(i, wire);
        if ((i->scanner.facts.flags & (CONTENT_BARE_CR | CONTENT_BARE_LF)) == 0 &&
            (wire.len == 0 || wire.ptr[wire.len - 1] != '\r')) {
            return wire;
        }
        i->scanner = before;
        i->ends = ends_before;
        i->converts = true;
    }
    buf_clear(&i->wire);
    wire = line_ends_add(&i->ends, bytes, &i->wire);
    CHECK(wire.ptr != NULL); /* it fits */
    scan(i, wire);
    return wire;
}

/* Adds scanned bytes to the header section or the body. */
static struct server_reply take_wire(struct intake *i, struct slice wire)
{
    struct server_reply reply = judge(i);

    if (reply.code != 0) {
        return reply;
    }
    if (i->in_body) {
        return keep(i, wire) ? SERVER_ACCEPT : NO_MEMORY;
    }
    if (i->scanner.facts.header_ended && buf_len(&i->head) == 0) {
        return begin_body(i, wire);
    }
    if (!buf_add(&i->head, wire)) {
        return INTAKE_HEADER_TOO_LARGE;
    }
    return i->scanner.facts.header_ended ? begin_body(i, buf_slice(&i->head)) : SERVER_ACCEPT;
}

struct server_reply intake_add(struct intake *i, struct slice bytes)
{
    struct server_reply reply = SERVER_ACCEPT;

    while (bytes.len > 0 && reply.code == 0) {
        size_t len = bytes.len < PIECE_SIZE ? bytes.len : PIECE_SIZE;

        reply = take_wire(i, scan_bytes(i, slice_of(bytes.ptr, len)));
        bytes = slice_skip(bytes, len);
    }
    return reply;
}

/* Returns the length of the header section with its empty line, or of its part received so far. */
static size_t header_length(struct slice message)
{
    const char *end = memmem(message.ptr, message.len, "\r\n\r\n", 4);

    return end == NULL ? message.len : (size_t)(end + 4 - message.ptr);
}

struct server_reply intake_add_composed(struct intake *i, struct slice bytes)
{
    struct server_reply reply = SERVER_ACCEPT;

    if (bytes.len > 0 && !i->in_body) {
        size_t header = header_length(bytes);

        reply = intake_add(i, slice_of(bytes.ptr, header));
        bytes = slice_skip(bytes, header);
    }
    if (bytes.len == 0 || reply.code != 0) {
        return reply;
    }
    if (!i->in_body || i->converts || i->ends.after_cr) {
        return intake_add(i, bytes);
    }
    bytes = line_ends_pass(&i->ends, bytes);
    content_pass(&i->scanner, bytes.len);
    return take_wire(i, bytes);
}

struct server_reply intake_finish(struct intake *i, const char *client)
{
    struct server_reply reply;
    struct slice end;

    buf_clear(&i->wire);
    end = line_ends_finish(&i->ends, &i->wire);
    scan(i, end);
    reply = take_wire(i, end);
    if (reply.code != 0) {
        return reply;
    }
    content_finish(&i->scanner);
    if (!i->in_body) { /* a header section without a body, or no content */
        reply = begin_body(i, buf_slice(&i->head));
        if (reply.code == 0 && !keep(i, SLICE("\r\n"))) {
            reply = NO_MEMORY;
        }
    }
    if (reply.code == 0) {
        reply = judge(i);
    }
    if (reply.code == 0) {
        reply = arrival_end(&i->arrival, client, put_content, i);
    }
    (void)draft_hold(&i->draft, 0); /* draft_finish reports a failure */
    if (reply.code == 0 && !draft_finish(&i->draft)) {
        reply = NO_MEMORY;
    }
    return reply;
}

unsigned intake_flags(const struct intake *i)
{
    return (i->scanner.facts.flags & CONTENT_8BIT) != 0 ? (unsigned)ENVELOPE_8BIT : 0;
}
