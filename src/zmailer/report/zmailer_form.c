#include "zmailer_form.h"

#include <string.h>

#include "check.h"
#include "envelope.h"
#include "mem.h"
#include "printable.h"

static const char builtin[] = "SUB Returned mail: see the transcript\n"
                              "HDR From: Mail Delivery System <postmaster>\n"
                              "This is a collection of reports about email delivery\n"
                              "process concerning a message you originated.\n"
                              "\n"
                              "If you need help, show this report to your postmaster.\n";

static const char missing[] = "SUB Multiple-fault: Report template missing\n"
                              "HDR From: Mail Delivery System <postmaster>\n"
                              "ADR Cc: postmaster\n"
                              "This is a collection of reports about email delivery\n"
                              "process concerning a message you originated.\n"
                              "\n"
                              "What should stand here instead can't be read. It is to be in the\n"
                              "file named below, and your postmaster gets a copy of this:\n"
                              "\n";

/* Returns a line without its end, with unsafe bytes replaced; owned by the caller. */
static char *harmless_line(struct slice line)
{
    struct buf text;

    buf_init(&text, REPORT_FORM_LINE_MAX + 4);
    CHECK(printable_add(&text, line, REPORT_FORM_LINE_MAX));
    return buf_take(&text);
}

/* Returns the length of the name in a header line "Name: value"; 0 if it is none. */
static size_t name_length(struct slice line)
{
    size_t len = slice_find(line, ':');

    for (size_t i = 0; i < len; i++) {
        if (line.ptr[i] <= ' ' || line.ptr[i] > '~') {
            return 0;
        }
    }
    return len < line.len ? len : 0;
}

static bool is_reports_own(struct slice name)
{
    return slice_equal_nocase(name, SLICE("To")) || slice_equal_nocase(name, SLICE("Subject")) ||
           slice_equal_nocase(name, SLICE("MIME-Version")) ||
           slice_starts_nocase(name, SLICE("Content-"));
}

/* Adds a header line; bytes other than ASCII become '?'. */
static void add_header(struct report_form *form, struct slice line)
{
    char *text = harmless_line(line);

    for (char *c = text; *c != '\0'; c++) {
        *c = (unsigned char)*c >= 0x80 ? '?' : *c;
    }
    (void)buf_addf(&form->headers, "%s\r\n", text); /* fits: the form is limited */
    mem_free(text);
}

static void read_header(struct report_form *form, struct slice line)
{
    size_t len;

    line = slice_trim(line);
    len = name_length(line);
    if (len > 0 && !is_reports_own(slice_of(line.ptr, len))) {
        add_header(form, line);
    }
}

/* Returns the address of an ADR line: the text in angle brackets, otherwise the whole value. */
static struct slice address_of(struct slice value)
{
    size_t open = slice_find(value, '<');
    struct slice inside = slice_skip(value, open + 1);
    size_t close = slice_find(inside, '>');

    if (close < inside.len) {
        return slice_of(inside.ptr, close);
    }
    return slice_trim(value);
}

static bool is_address(struct slice address)
{
    if (address.len == 0 || address.len > ADDRESS_MAX) {
        return false;
    }
    for (size_t i = 0; i < address.len; i++) {
        if (address.ptr[i] <= ' ' || address.ptr[i] > '~' ||
            strchr("<>()", address.ptr[i]) != NULL) {
            return false;
        }
    }
    return true;
}

static void read_copy(struct report_form *form, struct slice line)
{
    struct slice address;
    size_t len;

    line = slice_trim(line);
    len = name_length(line);
    address = address_of(len > 0 ? slice_skip(line, len + 1) : line);
    if (!is_address(address) || form->copy_count == REPORT_FORM_COPIES_MAX) {
        return;
    }
    form->copies[form->copy_count++] = mem_copy(address.ptr, address.len);
    read_header(form, line);
}

/* Returns the subject without the name "Subject:", which ZMailer's own forms repeat. */
static struct slice subject_of(struct slice value)
{
    const struct slice name = SLICE("Subject:");

    value = slice_trim(value);
    return slice_starts_nocase(value, name) ? slice_trim(slice_skip(value, name.len)) : value;
}

static void read_line(struct report_form *form, struct slice line)
{
    char *text;

    if (slice_starts(line, SLICE("HDR "))) {
        read_header(form, slice_skip(line, 4));
    } else if (slice_starts(line, SLICE("ADR "))) {
        read_copy(form, slice_skip(line, 4));
    } else if (slice_starts(line, SLICE("SUB "))) {
        mem_free(form->subject);
        form->subject = harmless_line(subject_of(slice_skip(line, 4)));
    } else {
        text = harmless_line(line);
        (void)buf_addf(&form->text, "%s\r\n", text); /* fits, as above */
        mem_free(text);
    }
}

static void read_form(struct slice bytes, struct report_form *ret_form)
{
    report_form_init(ret_form, &zmailer_layout);
    if (bytes.len > REPORT_FORM_MAX) {
        bytes.len = REPORT_FORM_MAX;
    }
    while (bytes.len > 0) {
        struct slice line = slice_cut(&bytes, '\n');

        if (line.len > 0 && line.ptr[line.len - 1] == '\r') {
            line.len--;
        }
        read_line(ret_form, line);
    }
}

static void builtin_form(struct report_form *ret_form)
{
    read_form(slice_string(builtin), ret_form);
}

/* Makes a report that names the missing file, with a copy to the postmaster. */
static void missing_form(struct slice file, struct report_form *ret_form)
{
    char *name = harmless_line(file);

    read_form(slice_string(missing), ret_form);
    (void)buf_addf(&ret_form->text, "    %s\r\n\r\n", name); /* fits: both are short */
    mem_free(name);
}

const struct report_layout zmailer_layout = {
    .read = read_form,
    .builtin = builtin_form,
    .missing = missing_form,
    .put_header = listing_put_header,
    .put_text = listing_put_text,
    .id_field = "Local-Spool-ID",
};
