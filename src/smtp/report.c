/*
 *     header of the report          From MAILER-DAEMON, Auto-Submitted, multipart/report
 *     part 1, text/plain            for people: a paragraph, then a block per recipient
 *     part 2, message/delivery-status
 *                                   for programs: fields of the message, then of each recipient
 *     part 3, message/rfc822 or text/rfc822-headers, if anything is returned
 */
#include "report.h"

#include <string.h>

#include "address.h"
#include "check.h"
#include "envelope.h"
#include "header.h"
#include "report_writer.h"
#include "rng.h"

#define SCRATCH_MAX 4096

/* A layout may write it all three times: for people, for programs, and the latter again for
 * people. */
_Static_assert(3 * (2 * EXPLAIN_MAX + DSN_ORCPT_MAX + 2 * ADDRESS_MAX + HOST_MAX) * 5 / 4 +
                       3 * HOST_MAX + 2000 <=
                   REPORT_PER_RCPT_MAX,
               "a recipient's blocks, folded, fit");
_Static_assert(2 * REPORT_FORM_MAX + 8192 <= REPORT_FRAME_MAX, "a form fits");

static void add_delimiter(struct writer *w, const char *description)
{
    buf_addf(w->out, "\r\n--%s\r\nContent-Description: %s\r\n", w->boundary, description);
}

/* -- the report's own header ------------------------------------------------------------------- */

static const char *plain_subject(const struct report *r)
{
    static const char *const subjects[][2] = {
        [REPORT_FAILURE] = {"Undeliverable mail: returned to sender",
                            "Postmaster Copy: Undelivered Mail"},
        [REPORT_DELAY] = {"Delayed mail: still being tried", "Postmaster Warning: Delayed Mail"},
        [REPORT_SUCCESS] = {"Delivery report", "Postmaster Copy: Delivery report"},
    };

    return subjects[r->kind][r->postmaster_copy ? 1 : 0];
}

static bool form_has(const struct writer *w, const char *name)
{
    return w->r->form != NULL && report_form_has_header(w->r->form, slice_string(name));
}

static void add_header(struct writer *w)
{
    const struct report *r = w->r;
    struct slice host;

    if (!form_has(w, "Date")) {
        writer_date(w, "Date", r->now);
    }
    if (!form_has(w, "From")) {
        host = writer_harmless(w, r->reporting_mta, HOST_MAX);
        buf_addf(w->out, "From: Mail Delivery System <MAILER-DAEMON@%.*s>\r\n", SLICE_ARGS(host));
    }
    if (r->form != NULL) {
        r->form->layout->put_header(w);
    } else {
        writer_field(w, "To", SLICE(""), r->sender, ADDRESS_MAX);
        buf_addf(w->out, "Subject: %s\r\n", plain_subject(r));
    }
    if (!form_has(w, "Message-ID")) {
        buf_add_string(w->out, "Message-ID: <");
        buf_add(w->out, writer_harmless(w, r->message_id, ID_MAX));
        buf_add_byte(w->out, '@');
        buf_add(w->out, writer_harmless(w, r->reporting_mta, HOST_MAX));
        buf_add_string(w->out, ">\r\n");
    }
    if (!form_has(w, "Auto-Submitted")) {
        buf_add_string(w->out, "Auto-Submitted: auto-replied\r\n");
    }
    buf_addf(w->out,
             "MIME-Version: 1.0\r\n"
             "Content-Type: multipart/report; report-type=%s;\r\n"
             "\tboundary=\"%s\"\r\n",
             w->utf8 ? "global-delivery-status" : "delivery-status", w->boundary);
    if (w->utf8 || w->text_8bit || w->returned_8bit) {
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
        "You asked for a report about your message. It was passed on to\r\n"
        "the recipients named below.\r\n";
    static const char *const introductions[] = {
        [REPORT_FAILURE] = failure, [REPORT_DELAY] = delay, [REPORT_SUCCESS] = success};
    struct slice host = writer_harmless(w, w->r->reporting_mta, HOST_MAX);

    buf_addf(w->out, "This is the mail system at %.*s.\r\n\r\n", SLICE_ARGS(host));
    buf_add_string(w->out, introductions[w->r->kind]);
    if (w->returned.len > 0) {
        buf_add_string(w->out, w->r->headers_only
                                   ? "The header of your message is at the end of this report.\r\n"
                                   : "Your message is at the end of this report.\r\n");
    }
    buf_add_string(w->out, "If you need help, show this report to your postmaster.\r\n");
}

/* Adds a paragraph of the recipient's block. */
static void add_paragraph(struct writer *w, struct slice text)
{
    struct slice indent = SLICE("    ");

    buf_add(w->out, indent);
    writer_folded(w, text, indent.len, indent);
    buf_add(w->out, SLICE("\r\n"));
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
    struct slice original, type;

    buf_add_string(w->out, "\r\n<");
    buf_add(w->out, writer_harmless(w, rcpt->address, ADDRESS_MAX));
    buf_add_string(w->out, ">\r\n");
    original = writer_original(w, rcpt, &type);
    if (original.len > 0 && !slice_equal_nocase(original, rcpt->address)) {
        buf_addf(w->out, "    (sent by you to <%.*s>)\r\n", SLICE_ARGS(original));
    }
    add_paragraph(w, slice_string(results[rcpt->action]));
    if (why.len > 0) {
        add_paragraph(w, writer_harmless(w, why, EXPLAIN_MAX));
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
    buf_add_string(w->out, w->utf8 || w->text_8bit
                               ? "Content-Type: text/plain; charset=utf-8\r\n"
                                 "Content-Transfer-Encoding: 8bit\r\n\r\n"
                               : "Content-Type: text/plain; charset=us-ascii\r\n\r\n");
    if (w->r->form != NULL) {
        w->r->form->layout->put_text(w);
        return;
    }
    add_introduction(w);
    for (size_t i = 0; i < w->r->rcpt_count; i++) {
        add_rcpt_for_people(w, &w->r->rcpts[i]);
    }
}

/* -- part 2, for programs ---------------------------------------------------------------------- */

static void add_status_part(struct writer *w)
{
    add_delimiter(w, "Delivery report");
    buf_add_string(w->out, w->utf8 ? "Content-Type: message/global-delivery-status\r\n"
                                     "Content-Transfer-Encoding: 8bit\r\n\r\n"
                                   : "Content-Type: message/delivery-status\r\n\r\n");
    writer_status_fields(w);
}

/* -- part 3, the returned message -------------------------------------------------------------- */

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

/* -- the whole report -------------------------------------------------------------------------- */

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

static void choose_boundary(struct writer *w, struct rng *rng)
{
    static const char digits[] = "0123456789abcdef";
    uint64_t bits = rng_next(rng);

    memcpy(w->boundary, "=_", 2);
    for (size_t i = 2; i < BOUNDARY_SIZE - 1; i++, bits >>= 4) {
        w->boundary[i] = digits[bits & 15];
    }
    w->boundary[BOUNDARY_SIZE - 1] = '\0';
}

static size_t count_boundary(const struct writer *w, struct slice text)
{
    size_t count = 0;
    const char *at;

    while ((at = memmem(text.ptr, text.len, w->boundary, BOUNDARY_SIZE - 1)) != NULL) {
        text = slice_skip(text, (size_t)(at - text.ptr) + BOUNDARY_SIZE - 1);
        count++;
    }
    return count;
}

/* Returns the number of boundaries that the report should have: in the header, and around the
 * parts. */
static size_t write_report(struct writer *w)
{
    size_t parts = 2;

    add_header(w);
    add_text_part(w);
    add_status_part(w);
    if (w->returned.len > 0) {
        add_returned_part(w);
        parts++;
    }
    buf_addf(w->out, "\r\n--%s--\r\n", w->boundary);
    return 1 + parts + 1;
}

/* Writes the report again until the boundary occurs in no foreign text. Only the finished report
 * shows that, because a text may get the boundary when it is decoded, made printable or folded.
 * Usually one round is enough; each further one needs a text that contains 64 bits unknown to its
 * author. */
static void write_parted(struct writer *w)
{
    size_t begin = buf_len(w->out), wanted;
    struct rng rng;

    rng_init(&rng, w->r->seed);
    do {
        buf_truncate(w->out, begin);
        choose_boundary(w, &rng);
        wanted = write_report(w);
    } while (!w->out->failed && count_boundary(w, slice_skip(buf_slice(w->out), begin)) != wanted);
}

bool report_build(const struct report *r, struct buf *out, unsigned *ret_flags)
{
    struct writer w = {.r = r, .out = out, .utf8 = needs_utf8(r), .returned = r->original};
    struct slice header;

    CHECK(r->rcpt_count >= 1 && r->rcpt_count <= REPORT_RCPTS_MAX);
    CHECK(r->sender.len > 0 || r->double_fault); /* the null sender gets no report */
    CHECK(!r->double_fault || r->form != NULL);
    buf_init(&w.scratch, SCRATCH_MAX);
    header = header_section(r->original);
    if (r->headers_only) {
        w.returned = header;
    }
    w.text_8bit = r->form != NULL && !address_is_ascii(buf_slice(&r->form->text));
    w.returned_8bit = !address_is_ascii(w.returned);
    w.returned_global = !address_is_ascii(header);
    write_parted(&w);
    buf_fini(&w.scratch);
    if (out->failed) {
        return false;
    }
    *ret_flags = ENVELOPE_REPORT | (w.utf8 ? (unsigned)ENVELOPE_SMTPUTF8 : 0) |
                 (w.utf8 || w.text_8bit || w.returned_8bit ? (unsigned)ENVELOPE_8BIT : 0);
    return true;
}
