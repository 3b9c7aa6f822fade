/*
 * Parts of a report in ZMailer's layout: its subject, which counts the recipients of each outcome,
 * and its part 1:
 *
 *   - the form's text,
 *   - the listing that people and programs expect from ZMailer: a heading for each outcome, and a
 *     block of indented fields for each recipient,
 *   - a copy of part 2, for readers whose mail program shows the text alone.
 */
#include "check.h"
#include "envelope.h"
#include "header.h"
#include "report_writer.h"
#include "xtext.h"
#include "zmailer_form.h"

/* Longest word of the router's line that is shown; such words may have thousands of bytes. */
#define CONTROL_MAX 1000

static void add_name(struct writer *w, const char *name)
{
    buf_addf(w->out, "  %s:\r\n", name);
}

/* Adds a value below its name. `type` may be empty. */
static void add_value(struct writer *w, const char *name, struct slice type, struct slice value,
                      size_t max)
{
    const struct slice indent = SLICE("      ");

    if (value.len == 0) {
        return;
    }
    add_name(w, name);
    buf_add(w->out, indent);
    if (writer_is_atom(type)) {
        buf_add(w->out, type);
        buf_add(w->out, SLICE("; "));
    }
    writer_folded(w, writer_harmless(w, value, max), indent.len + type.len, indent);
    buf_add(w->out, SLICE("\r\n"));
}

/* Adds an agent's text, whose lines are separated by carriage returns. */
static void add_texts(struct writer *w, struct slice text)
{
    const struct slice indent = SLICE("      ");

    if (text.len > EXPLAIN_MAX) {
        text.len = EXPLAIN_MAX;
    }
    add_name(w, "Diagnostic texts");
    while (text.len > 0) {
        struct slice line = slice_trim(slice_cut(&text, '\r'));

        if (line.len > 0) {
            buf_add(w->out, indent);
            writer_folded(w, writer_harmless(w, line, EXPLAIN_MAX), indent.len, indent);
            buf_add(w->out, SLICE("\r\n"));
        }
    }
}

static void add_rcpt(struct writer *w, const struct report_rcpt *rcpt)
{
    static const char *const headings[] = {
        [REPORT_FAILED] = "FAILED",
        [REPORT_DELAYED] = "DELAYED (still in queue)",
        [REPORT_RELAYED] = "RELAYED (into system not supporting DSN facility)",
        [REPORT_DELIVERED] = "DELIVERED (successfully)",
        [REPORT_EXPANDED] = "EXPANDED (to some list or alias)",
    };
    char status[STATUS_SIZE];
    struct slice type, original;

    buf_addf(w->out, "\r\n%s:\r\n", headings[rcpt->action]);
    original = writer_original(w, rcpt, &type);
    if (original.len > 0 && writer_is_atom(type)) {
        add_name(w, "Original Recipient");
        buf_addf(w->out, "      %.*s;", SLICE_ARGS(type));
        writer_folded(w, original, 0, SLICE("      "));
        buf_add(w->out, SLICE("\r\n"));
    }
    add_value(w, "Final Recipient", writer_address_type(rcpt->address), rcpt->address, ADDRESS_MAX);
    add_value(w, "Action", SLICE(""), slice_string(writer_action(rcpt->action)), ID_MAX);
    add_value(w, "Status", SLICE(""),
              rcpt->status_words.len > 0 ? rcpt->status_words
                                         : slice_string(writer_status(rcpt, status)),
              HOST_MAX);
    add_value(w, "Remote-MTA", rcpt->remote_type, rcpt->remote_mta, HOST_MAX);
    if (rcpt->last_attempt.us > 0) {
        add_name(w, "Last-Attempt-Date");
        buf_add(w->out, SLICE("      "));
        header_date(rcpt->last_attempt, w->r->utc_offset_minutes, w->out);
        buf_add(w->out, SLICE("\r\n"));
    }
    if (rcpt->action == REPORT_DELAYED && rcpt->retry_until.us > 0) {
        add_name(w, "Will-Retry-Until");
        buf_add(w->out, SLICE("      "));
        header_date(rcpt->retry_until, w->r->utc_offset_minutes, w->out);
        buf_add(w->out, SLICE("\r\n"));
    }
    add_value(w, "X-ZTAID", SLICE(""), rcpt->agent, ID_MAX);
    add_value(w, "Diagnostic-Code", rcpt->diagnostic_type, rcpt->diagnostic, EXPLAIN_MAX);
    buf_add(w->out, SLICE("\r\n"));
    add_value(w, "Control data", SLICE(""), rcpt->control, CONTROL_MAX);
    if (rcpt->text.len > 0) {
        add_texts(w, rcpt->text);
    }
}

static void add_message(struct writer *w)
{
    const struct report *r = w->r;
    struct buf plain;

    writer_field(w, "Reporting-MTA", SLICE("dns"), r->reporting_mta, HOST_MAX);
    buf_add_string(w->out, "Return-Path: <");
    buf_add(w->out, writer_harmless(w, r->double_fault ? slice_of("", 0) : r->sender, ADDRESS_MAX));
    buf_add_string(w->out, ">\r\n");
    buf_init(&plain, DSN_ENVID_MAX);
    if (r->envid.len > 0 && r->envid.len <= DSN_ENVID_MAX && xtext_decode(r->envid, &plain)) {
        writer_field(w, "Original-Envelope-Id", SLICE(""), buf_slice(&plain), DSN_ENVID_MAX);
    }
    buf_fini(&plain);
    writer_date(w, "Arrival-Date", r->arrival);
    writer_field(w, "Local-Spool-ID", SLICE(""), r->queue_id, ID_MAX);
}

void listing_put_text(struct writer *w)
{
    CHECK(w->r->form != NULL);
    buf_add(w->out, buf_slice(&w->r->form->text));
    add_message(w);
    for (size_t i = 0; i < w->r->rcpt_count; i++) {
        add_rcpt(w, &w->r->rcpts[i]);
    }
    buf_add_string(w->out,
                   "\r\n"
                   "Following is a copy of MESSAGE/DELIVERY-STATUS format section below.\r\n"
                   "It is copied here in case your email client is unable to show it to you.\r\n"
                   "\r\n");
    writer_status_fields(w);
}

/* Adds the form's subject with the number of recipients of each outcome. */
static void add_subject(struct writer *w)
{
    static const char *const classes[] = {
        [REPORT_FAILED] = "FAILED",        [REPORT_DELAYED] = "DELAYED",
        [REPORT_RELAYED] = "RELAYED-OK",   [REPORT_DELIVERED] = "DELIVERED-OK",
        [REPORT_EXPANDED] = "EXPANDED-OK",
    };
    static const enum report_action order[] = {REPORT_FAILED, REPORT_DELAYED, REPORT_RELAYED,
                                               REPORT_DELIVERED, REPORT_EXPANDED};
    size_t counts[sizeof classes / sizeof classes[0]] = {0};
    const char *separator = " [";

    for (size_t i = 0; i < w->r->rcpt_count; i++) {
        counts[w->r->rcpts[i].action]++;
    }
    buf_add_string(w->out, w->r->double_fault ? "Subject: Double-fault: " : "Subject: ");
    buf_add(w->out, writer_harmless(w, slice_string(w->r->form->subject), REPORT_FORM_LINE_MAX));
    for (size_t i = 0; i < sizeof order / sizeof order[0]; i++) {
        if (counts[order[i]] > 0) {
            buf_addf(w->out, "%s%s(%zu)", separator, classes[order[i]], counts[order[i]]);
            separator = ",";
        }
    }
    buf_add_string(w->out, "]\r\n");
}

void listing_put_header(struct writer *w)
{
    if (w->r->double_fault) {
        buf_add_string(w->out, "To: dummy:; (error trapped source)\r\n");
    } else {
        writer_field(w, "To", SLICE(""), w->r->sender, ADDRESS_MAX);
    }
    add_subject(w);
    buf_add(w->out, buf_slice(&w->r->form->headers));
}
