/*
 *     header of the report          From MAILER-DAEMON, Auto-Submitted, multipart/report
 *     part 1, text/plain            for people: a paragraph, then a block per recipient
 *     part 2, message/delivery-status
 *                                   for programs: fields of the message, then of each recipient
 *     part 3, message/rfc822 or text/rfc822-headers, if anything is returned
 *
 * Strings from outside pass through `scratch`, where they are made printable, and then through
 * add_folded, which is the only place where lines are broken.
 */
#include "report.h"

#include <string.h>

#include "address.h"
#include "check.h"
#include "envelope.h"
#include "header.h"
#include "printable.h"
#include "rng.h"
#include "xtext.h"

/* Lines are folded at blanks near this column, and within a word only when it gets this long; RFC
 * 5322 wants 78 and allows 998. */
#define FOLD_COLUMN 76
#define FOLD_WORD   500
/* What is kept of one string from outside. */
#define HOST_MAX    255
#define ID_MAX      100
#define EXPLAIN_MAX 2000
#define SCRATCH_MAX 4096

_Static_assert(2 * (EXPLAIN_MAX + DSN_ORCPT_MAX + 2 * ADDRESS_MAX) * 5 / 4 + HOST_MAX + 400 <=
                   REPORT_PER_RCPT_MAX,
               "a recipient's two blocks, folded, fit");

#define BOUNDARY_SIZE sizeof("=_0123456789abcdef")

struct writer {
    const struct report *r;
    struct buf *out;
    struct buf scratch;
    struct slice returned; /* the part of the original that goes back */
    char boundary[BOUNDARY_SIZE];
    bool utf8;            /* the global forms of RFC 6533 are in use */
    bool returned_8bit;   /* `returned` has bytes above 127 .. */
    bool returned_global; /* .. in its header, which makes it a global message, if utf8 */
};

/* Append `text`, whose blanks may become line breaks followed by `indent`. `column` is where the
 * line stands by now. Blanks at both ends are left out. */
static void add_folded(struct buf *out, struct slice text, size_t column, struct slice indent)
{
    text = slice_trim(text);
    while (text.len > 0) {
        size_t blanks = 0, len;

        while (text.ptr[blanks] == ' ') {
            blanks++; /* ends: the text is trimmed */
        }
        len = blanks + slice_find(slice_skip(text, blanks), ' ');
        if (len - blanks > FOLD_WORD) {
            len = blanks + FOLD_WORD;
            while (((unsigned char)text.ptr[len] & 0xc0) == 0x80) {
                len--;
            }
        }
        if (column + len > FOLD_COLUMN && column > indent.len) {
            buf_add(out, SLICE("\r\n"));
            buf_add(out, indent);
            buf_add(out, slice_of(text.ptr + blanks, len - blanks));
            column = indent.len + len - blanks;
        } else {
            buf_add(out, slice_of(text.ptr, len));
            column += len;
        }
        text = slice_skip(text, len);
    }
}

/* `s` made harmless, in w->scratch behind what is there. Without SMTPUTF8, ASCII. */
static void scratch_add(struct writer *w, struct slice s, size_t max)
{
    size_t from = buf_len(&w->scratch);

    CHECK(printable_add(&w->scratch, s, max));
    if (!w->utf8) {
        struct slice added = buf_slice(&w->scratch);

        for (size_t i = from; i < added.len; i++) {
            char *c = &w->scratch.ptr[w->scratch.start + i];

            *c = (unsigned char)*c >= 0x80 ? '?' : *c;
        }
    }
}

static struct slice harmless(struct writer *w, struct slice s, size_t max)
{
    buf_clear(&w->scratch);
    scratch_add(w, s, max);
    return buf_slice(&w->scratch);
}

/* "name: type; value", folded; `type` may be empty. */
static void add_field(struct writer *w, const char *name, const char *type, struct slice value,
                      size_t max)
{
    buf_clear(&w->scratch);
    if (type[0] != '\0') {
        CHECK(buf_addf(&w->scratch, "%s; ", type));
    }
    scratch_add(w, value, max);
    buf_addf(w->out, "%s: ", name);
    add_folded(w->out, buf_slice(&w->scratch), strlen(name) + 2, SLICE(" "));
    buf_add(w->out, SLICE("\r\n"));
}

static void add_date(struct writer *w, const char *name, struct wall time)
{
    buf_addf(w->out, "%s: ", name);
    header_date(time, w->r->utc_offset_minutes, w->out);
    buf_add(w->out, SLICE("\r\n"));
}

static const char *address_type(struct slice address)
{
    return address_is_ascii(address) ? "rfc822" : "utf-8";
}

/* The status, with a class that fits the action. */
static const char *rcpt_status(const struct report_rcpt *rcpt, char out[STATUS_SIZE])
{
    enum status_class class = STATUS_SUCCESS;

    if (rcpt->action == REPORT_FAILED) {
        /* What was only deferred until time ran out keeps its 4.x.x (RFC 3464, 2.3.4). */
        class = rcpt->status.class == STATUS_TRANSIENT ? STATUS_TRANSIENT : STATUS_PERMANENT;
    } else if (rcpt->action == REPORT_DELAYED) {
        class = STATUS_TRANSIENT;
    }
    return status_print(status_repair(rcpt->status, class), out);
}

static void add_delimiter(struct writer *w, const char *description)
{
    buf_addf(w->out, "\r\n--%s\r\nContent-Description: %s\r\n", w->boundary, description);
}

/* -- the report's own header ------------------------------------------------------------------- */

static void add_header(struct writer *w)
{
    static const char *const subjects[] = {
        [REPORT_FAILURE] = "Undeliverable mail: returned to sender",
        [REPORT_DELAY] = "Delayed mail: still being tried",
        [REPORT_SUCCESS] = "Delivery report",
    };
    const struct report *r = w->r;
    struct slice host;

    add_date(w, "Date", r->now);
    host = harmless(w, r->reporting_mta, HOST_MAX);
    buf_addf(w->out, "From: Mail Delivery System <MAILER-DAEMON@%.*s>\r\n", SLICE_ARGS(host));
    add_field(w, "To", "", r->sender, ADDRESS_MAX);
    buf_addf(w->out, "Subject: %s\r\n", subjects[r->kind]);
    buf_add_string(w->out, "Message-ID: <");
    buf_add(w->out, harmless(w, r->message_id, ID_MAX));
    buf_add_byte(w->out, '@');
    buf_add(w->out, harmless(w, r->reporting_mta, HOST_MAX));
    buf_addf(w->out,
             ">\r\n"
             "Auto-Submitted: auto-replied\r\n"
             "MIME-Version: 1.0\r\n"
             "Content-Type: multipart/report; report-type=%s;\r\n"
             "\tboundary=\"%s\"\r\n",
             w->utf8 ? "global-delivery-status" : "delivery-status", w->boundary);
    if (w->utf8 || w->returned_8bit) {
        buf_add_string(w->out, "Content-Transfer-Encoding: 8bit\r\n");
    }
    buf_add_string(w->out, "\r\nThis is a report in MIME format, for people and programs.\r\n");
}

/* -- part 1, for people ------------------------------------------------------------------------ */

static void add_introduction(struct writer *w)
{
    static const char failure[] =
        "Your message could not be delivered to the recipients named below, and\r\n"
        "no further attempt will be made. All other recipients, if there are\r\n"
        "any, are not concerned by this report.\r\n";
    static const char delay[] =
        "Your message has not reached the recipients named below yet. You need\r\n"
        "not send it again: delivery is tried again and again, and you will be\r\n"
        "told if it fails for good.\r\n";
    static const char success[] =
        "You asked to be told what became of your message. It was passed on to\r\n"
        "the recipients named below.\r\n";
    static const char *const introductions[] = {
        [REPORT_FAILURE] = failure, [REPORT_DELAY] = delay, [REPORT_SUCCESS] = success};
    struct slice host = harmless(w, w->r->reporting_mta, HOST_MAX);

    buf_addf(w->out, "This is the mail system at %.*s.\r\n\r\n", SLICE_ARGS(host));
    buf_add_string(w->out, introductions[w->r->kind]);
    if (w->returned.len > 0) {
        buf_add_string(w->out, w->r->headers_only
                                   ? "The header of your message is at the end of this report.\r\n"
                                   : "Your message is at the end of this report.\r\n");
    }
    buf_add_string(w->out, "If you need help, show this report to your postmaster.\r\n");
}

/* A paragraph of the recipient's block. */
static void add_paragraph(struct writer *w, struct slice text)
{
    struct slice indent = SLICE("    ");

    buf_add(w->out, indent);
    add_folded(w->out, text, indent.len, indent);
    buf_add(w->out, SLICE("\r\n"));
}

/* The address the message was first sent to; empty when unknown or not readable. Decoded into
 * w->scratch. */
static struct slice original_address(struct writer *w, const struct report_rcpt *rcpt)
{
    struct slice encoded = rcpt->orcpt;
    char decoded[DSN_ORCPT_MAX + 1];
    struct buf plain;
    struct slice address;

    slice_cut(&encoded, ';');
    if (encoded.len == 0 || encoded.len >= sizeof(decoded)) {
        return slice_of("", 0);
    }
    buf_init(&plain, sizeof(decoded));
    address = xtext_decode(encoded, &plain) ? buf_slice(&plain) : encoded;
    address = harmless(w, address, DSN_ORCPT_MAX);
    buf_fini(&plain);
    return address;
}

static void add_rcpt_for_people(struct writer *w, const struct report_rcpt *rcpt)
{
    static const char *const results[] = {
        [REPORT_FAILED] = "Not delivered.",
        [REPORT_DELAYED] = "Not delivered yet.",
        [REPORT_DELIVERED] = "Delivered.",
        [REPORT_RELAYED] =
            "Passed on to another mail system, which will send no report of success.",
        [REPORT_EXPANDED] = "Delivered to an alias or list, and passed on to its members.",
    };
    struct slice why = rcpt->text.len > 0 ? rcpt->text : rcpt->diagnostic;
    struct slice original;

    buf_add_string(w->out, "\r\n<");
    buf_add(w->out, harmless(w, rcpt->address, ADDRESS_MAX));
    buf_add_string(w->out, ">\r\n");
    original = original_address(w, rcpt);
    if (original.len > 0 && !slice_equal_nocase(original, rcpt->address)) {
        buf_addf(w->out, "    (sent by you to <%.*s>)\r\n", SLICE_ARGS(original));
    }
    add_paragraph(w, slice_string(results[rcpt->action]));
    if (why.len > 0) {
        add_paragraph(w, harmless(w, why, EXPLAIN_MAX));
    }
    if (rcpt->action == REPORT_DELAYED && rcpt->retry_until.us > 0) {
        buf_add_string(w->out, "    Delivery will be tried until ");
        header_date(rcpt->retry_until, w->r->utc_offset_minutes, w->out);
        buf_add_string(w->out, ".\r\n");
    }
}

static void add_text_part(struct writer *w)
{
    add_delimiter(w, "Notification");
    buf_add_string(w->out, w->utf8 ? "Content-Type: text/plain; charset=utf-8\r\n"
                                     "Content-Transfer-Encoding: 8bit\r\n\r\n"
                                   : "Content-Type: text/plain; charset=us-ascii\r\n\r\n");
    add_introduction(w);
    for (size_t i = 0; i < w->r->rcpt_count; i++) {
        add_rcpt_for_people(w, &w->r->rcpts[i]);
    }
}

/* -- part 2, for programs ---------------------------------------------------------------------- */

static void add_original_recipient(struct writer *w, const struct report_rcpt *rcpt)
{
    struct slice rest = rcpt->orcpt;
    struct slice type = slice_cut(&rest, ';');
    struct slice original = original_address(w, rcpt);

    if (original.len == 0 || type.len == 0) {
        return;
    }
    /* An address type is an atom of a handful of letters; take no other for one. */
    for (size_t i = 0; i < type.len; i++) {
        if (!ascii_is_alnum(type.ptr[i]) && type.ptr[i] != '-') {
            return;
        }
    }
    buf_addf(w->out, "Original-Recipient: %.*s;", SLICE_ARGS(type));
    add_folded(w->out, original, 0, SLICE(" "));
    buf_add(w->out, SLICE("\r\n"));
}

static void add_rcpt_for_programs(struct writer *w, const struct report_rcpt *rcpt)
{
    static const char *const actions[] = {
        [REPORT_FAILED] = "failed",       [REPORT_DELAYED] = "delayed",
        [REPORT_DELIVERED] = "delivered", [REPORT_RELAYED] = "relayed",
        [REPORT_EXPANDED] = "expanded",
    };
    char status[STATUS_SIZE];

    buf_add(w->out, SLICE("\r\n"));
    add_original_recipient(w, rcpt);
    add_field(w, "Final-Recipient", address_type(rcpt->address), rcpt->address, ADDRESS_MAX);
    buf_addf(w->out, "Action: %s\r\nStatus: %s\r\n", actions[rcpt->action],
             rcpt_status(rcpt, status));
    if (rcpt->remote_mta.len > 0) {
        add_field(w, "Remote-MTA", "dns", rcpt->remote_mta, HOST_MAX);
    }
    if (rcpt->diagnostic.len > 0) {
        add_field(w, "Diagnostic-Code", "smtp", rcpt->diagnostic, EXPLAIN_MAX);
    } else if (rcpt->text.len > 0) {
        add_field(w, "Diagnostic-Code", "X-Sluice", rcpt->text, EXPLAIN_MAX);
    }
    if (rcpt->last_attempt.us > 0) {
        add_date(w, "Last-Attempt-Date", rcpt->last_attempt);
    }
    if (rcpt->action == REPORT_DELAYED && rcpt->retry_until.us > 0) {
        add_date(w, "Will-Retry-Until", rcpt->retry_until);
    }
}

static void add_envelope_id(struct writer *w)
{
    struct buf plain;

    if (w->r->envid.len == 0 || w->r->envid.len > DSN_ENVID_MAX) {
        return;
    }
    buf_init(&plain, DSN_ENVID_MAX);
    if (xtext_decode(w->r->envid, &plain)) {
        add_field(w, "Original-Envelope-Id", "", buf_slice(&plain), DSN_ENVID_MAX);
    }
    buf_fini(&plain);
}

static void add_status_part(struct writer *w)
{
    add_delimiter(w, "Delivery report");
    buf_add_string(w->out, w->utf8 ? "Content-Type: message/global-delivery-status\r\n"
                                     "Content-Transfer-Encoding: 8bit\r\n\r\n"
                                   : "Content-Type: message/delivery-status\r\n\r\n");
    add_envelope_id(w);
    add_field(w, "Reporting-MTA", "dns", w->r->reporting_mta, HOST_MAX);
    add_field(w, "X-Sluice-Queue-ID", "", w->r->queue_id, ID_MAX);
    add_field(w, "X-Sluice-Sender", address_type(w->r->sender), w->r->sender, ADDRESS_MAX);
    add_date(w, "Arrival-Date", w->r->arrival);
    for (size_t i = 0; i < w->r->rcpt_count; i++) {
        add_rcpt_for_programs(w, &w->r->rcpts[i]);
    }
}

/* -- part 3, what is returned ------------------------------------------------------------------ */

static void add_returned_part(struct writer *w)
{
    bool global = w->utf8 && w->returned_global;
    const char *type = global ? "message/global" : "message/rfc822";

    if (w->r->headers_only) {
        type = global ? "message/global-headers" : "text/rfc822-headers";
    }
    add_delimiter(w, w->r->headers_only ? "Header of the message" : "The message");
    buf_addf(w->out, "Content-Type: %s\r\n", type);
    if (w->returned_8bit) {
        buf_add_string(w->out, "Content-Transfer-Encoding: 8bit\r\n");
    }
    buf_add(w->out, SLICE("\r\n"));
    buf_add(w->out, w->returned);
}

/* -- the whole --------------------------------------------------------------------------------- */

static struct slice header_section(struct slice content)
{
    struct slice rest = content;
    struct header_field field;

    while (header_next(&rest, &field)) {
    }
    return slice_of(content.ptr, content.len - rest.len);
}

static bool needs_utf8(const struct report *r)
{
    bool ascii = address_is_ascii(r->sender) && address_is_ascii(r->reporting_mta);

    for (size_t i = 0; ascii && i < r->rcpt_count; i++) {
        ascii = address_is_ascii(r->rcpts[i].address);
    }
    return !ascii;
}

/* Random, and none of the text that somebody else wrote holds it. */
static void choose_boundary(struct writer *w)
{
    static const char digits[] = "0123456789abcdef";
    struct rng rng;

    rng_init(&rng, w->r->seed);
    do {
        uint64_t bits = rng_next(&rng);

        memcpy(w->boundary, "=_", 2);
        for (size_t i = 2; i < BOUNDARY_SIZE - 1; i++, bits >>= 4) {
            w->boundary[i] = digits[bits & 15];
        }
        w->boundary[BOUNDARY_SIZE - 1] = '\0';
    } while (w->returned.len > 0 &&
             memmem(w->returned.ptr, w->returned.len, w->boundary, BOUNDARY_SIZE - 1) != NULL);
}

bool report_build(const struct report *r, struct buf *out, unsigned *ret_flags)
{
    struct writer w = {.r = r, .out = out, .utf8 = needs_utf8(r), .returned = r->original};
    struct slice header;

    CHECK(r->rcpt_count >= 1 && r->rcpt_count <= REPORT_RCPTS_MAX);
    CHECK(r->sender.len > 0); /* nobody is told about the null sender's mail */
    buf_init(&w.scratch, SCRATCH_MAX);
    header = header_section(r->original);
    if (r->headers_only) {
        w.returned = header;
    }
    w.returned_8bit = !address_is_ascii(w.returned);
    w.returned_global = !address_is_ascii(header);
    choose_boundary(&w);

    add_header(&w);
    add_text_part(&w);
    add_status_part(&w);
    if (w.returned.len > 0) {
        add_returned_part(&w);
    }
    buf_addf(out, "\r\n--%s--\r\n", w.boundary);
    buf_fini(&w.scratch);
    if (out->failed) {
        return false;
    }
    *ret_flags = ENVELOPE_REPORT | (w.utf8 ? (unsigned)ENVELOPE_SMTPUTF8 : 0) |
                 (w.utf8 || w.returned_8bit ? (unsigned)ENVELOPE_8BIT : 0);
    return true;
}
