#include "report_writer.h"

#include <string.h>

#include "address.h"
#include "check.h"
#include "envelope.h"
#include "header.h"
#include "printable.h"
#include "xtext.h"

/* Column near which lines are folded at blanks, and length above which a word is folded inside; RFC
 * 5322 recommends 78 and allows 998. */
#define FOLD_COLUMN 76
#define FOLD_WORD   500

#define ATOM_MAX 40

/* ---- text ----------------------------------------------------------------------------------- */

void writer_folded(struct writer *w, struct slice text, size_t column, struct slice indent)
{
    text = slice_trim(text);
    while (text.len > 0) {
        size_t blanks = 0, len;

        while (text.ptr[blanks] == ' ') {
            blanks++; /* ends, because the text is trimmed */
        }
        len = blanks + slice_find(slice_skip(text, blanks), ' ');
        if (len - blanks > FOLD_WORD) {
            len = blanks + FOLD_WORD;
            while (((unsigned char)text.ptr[len] & 0xc0) == 0x80) {
                len--;
            }
        }
        if (column + len > FOLD_COLUMN && column > indent.len) {
            buf_add(w->out, SLICE("\r\n"));
            buf_add(w->out, indent);
            buf_add(w->out, slice_of(text.ptr + blanks, len - blanks));
            column = indent.len + len - blanks;
        } else {
            buf_add(w->out, slice_of(text.ptr, len));
            column += len;
        }
        text = slice_skip(text, len);
    }
}

/* Appends `s`, made harmless, to w->scratch. */
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

struct slice writer_harmless(struct writer *w, struct slice s, size_t max)
{
    buf_clear(&w->scratch);
    scratch_add(w, s, max);
    return buf_slice(&w->scratch);
}

bool writer_is_atom(struct slice type)
{
    for (size_t i = 0; i < type.len; i++) {
        if (!ascii_is_alnum(type.ptr[i]) && type.ptr[i] != '-') {
            return false;
        }
    }
    return type.len > 0 && type.len <= ATOM_MAX;
}

void writer_field(struct writer *w, const char *name, struct slice type, struct slice value,
                  size_t max)
{
    buf_clear(&w->scratch);
    if (writer_is_atom(type)) {
        CHECK(buf_addf(&w->scratch, "%.*s; ", SLICE_ARGS(type)));
    }
    scratch_add(w, value, max);
    buf_addf(w->out, "%s: ", name);
    writer_folded(w, buf_slice(&w->scratch), strlen(name) + 2, SLICE(" "));
    buf_add(w->out, SLICE("\r\n"));
}

void writer_date(struct writer *w, const char *name, struct wall time)
{
    buf_addf(w->out, "%s: ", name);
    header_date(time, w->r->utc_offset_minutes, w->out);
    buf_add(w->out, SLICE("\r\n"));
}

/* ---- a recipient ---------------------------------------------------------------------------- */

struct slice writer_address_type(struct slice address)
{
    if (slice_find(address, '@') == address.len) {
        return SLICE("X-LOCAL");
    }
    return address_is_ascii(address) ? SLICE("rfc822") : SLICE("utf-8");
}

const char *writer_status(const struct report_rcpt *rcpt, char out[STATUS_SIZE])
{
    enum status_class class = STATUS_SUCCESS;

    if (rcpt->action == REPORT_FAILED) {
        /* A recipient that was only deferred until it expired keeps its 4.x.x (RFC 3464, 2.3.4). */
        class = rcpt->status.class == STATUS_TRANSIENT ? STATUS_TRANSIENT : STATUS_PERMANENT;
    } else if (rcpt->action == REPORT_DELAYED) {
        class = STATUS_TRANSIENT;
    }
    return status_print(status_repair(rcpt->status, class), out);
}

const char *writer_action(enum report_action action)
{
    static const char *const actions[] = {
        [REPORT_FAILED] = "failed",       [REPORT_DELAYED] = "delayed",
        [REPORT_DELIVERED] = "delivered", [REPORT_RELAYED] = "relayed",
        [REPORT_EXPANDED] = "expanded",
    };

    return actions[action];
}

struct slice writer_original(struct writer *w, const struct report_rcpt *rcpt,
                             struct slice *ret_type)
{
    struct slice encoded = rcpt->orcpt;
    char decoded[DSN_ORCPT_MAX + 1];
    struct buf plain;
    struct slice address;

    *ret_type = slice_cut(&encoded, ';');
    if (encoded.len == 0 || encoded.len >= sizeof(decoded)) {
        return slice_of("", 0);
    }
    buf_init(&plain, sizeof(decoded));
    address = xtext_decode(encoded, &plain) ? buf_slice(&plain) : encoded;
    address = writer_harmless(w, address, DSN_ORCPT_MAX);
    buf_fini(&plain);
    return address;
}

/* ---- the fields for programs ---------------------------------------------------------------- */

static void add_original_recipient(struct writer *w, const struct report_rcpt *rcpt)
{
    struct slice type, original = writer_original(w, rcpt, &type);

    /* An address type is an atom of a few letters; any other type is left out. */
    if (original.len == 0 || !writer_is_atom(type)) {
        return;
    }
    buf_addf(w->out, "Original-Recipient: %.*s;", SLICE_ARGS(type));
    writer_folded(w, original, 0, SLICE(" "));
    buf_add(w->out, SLICE("\r\n"));
}

static void add_rcpt(struct writer *w, const struct report_rcpt *rcpt)
{
    char status[STATUS_SIZE];

    buf_add(w->out, SLICE("\r\n"));
    add_original_recipient(w, rcpt);
    writer_field(w, "Final-Recipient", writer_address_type(rcpt->address), rcpt->address,
                 ADDRESS_MAX);
    buf_addf(w->out, "Action: %s\r\nStatus: %s\r\n", writer_action(rcpt->action),
             writer_status(rcpt, status));
    if (rcpt->remote_mta.len > 0) {
        writer_field(w, "Remote-MTA", rcpt->remote_type.len > 0 ? rcpt->remote_type : SLICE("dns"),
                     rcpt->remote_mta, HOST_MAX);
    }
    if (rcpt->diagnostic.len > 0) {
        writer_field(w, "Diagnostic-Code",
                     rcpt->diagnostic_type.len > 0 ? rcpt->diagnostic_type : SLICE("smtp"),
                     rcpt->diagnostic, EXPLAIN_MAX);
    } else if (rcpt->text.len > 0) {
        writer_field(w, "Diagnostic-Code", SLICE("X-Sluice"), rcpt->text, EXPLAIN_MAX);
    }
    if (rcpt->last_attempt.us > 0) {
        writer_date(w, "Last-Attempt-Date", rcpt->last_attempt);
    }
    if (rcpt->action == REPORT_DELAYED && rcpt->retry_until.us > 0) {
        writer_date(w, "Will-Retry-Until", rcpt->retry_until);
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
        writer_field(w, "Original-Envelope-Id", SLICE(""), buf_slice(&plain), DSN_ENVID_MAX);
    }
    buf_fini(&plain);
}

void writer_status_fields(struct writer *w)
{
    const struct report *r = w->r;

    add_envelope_id(w);
    writer_field(w, "Reporting-MTA", SLICE("dns"), r->reporting_mta, HOST_MAX);
    if (r->form == NULL) {
        writer_field(w, "X-Sluice-Queue-ID", SLICE(""), r->queue_id, ID_MAX);
        writer_field(w, "X-Sluice-Sender", writer_address_type(r->sender), r->sender, ADDRESS_MAX);
    } else {
        writer_field(w, r->form->layout->id_field, SLICE(""), r->queue_id, ID_MAX);
    }
    writer_date(w, "Arrival-Date", r->arrival);
    for (size_t i = 0; i < r->rcpt_count; i++) {
        add_rcpt(w, &r->rcpts[i]);
    }
}
