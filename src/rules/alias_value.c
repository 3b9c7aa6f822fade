#include "alias_value.h"

#include <string.h>

#include "address.h"
#include "envelope.h"
#include "route.h"

static bool is_separator(char c)
{
    return c == ',' || c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* Returns the offset after the quoted string that begins at `at`. */
static size_t skip_quoted(struct slice s, size_t at)
{
    for (at++; at < s.len && s.ptr[at] != '"'; at++) {
        at += s.ptr[at] == '\\' ? 1 : 0;
    }
    return at < s.len ? at + 1 : s.len;
}

/* Cuts the next element, which is empty at the end. */
static struct slice cut_element(struct slice *s)
{
    struct slice element;
    size_t at = 0;

    while (s->len > 0 && is_separator(s->ptr[0])) {
        *s = slice_skip(*s, 1);
    }
    while (at < s->len && !is_separator(s->ptr[at])) {
        at = s->ptr[at] == '"' ? skip_quoted(*s, at) : at + 1;
    }
    element = slice_of(s->ptr, at);
    *s = slice_skip(*s, at);
    return element;
}

/* Returns the fault of an element that is no address, but has a meaning for Postfix's local(8). */
static const char *local_fault(struct slice element)
{
    struct slice text = element.ptr[0] == '"' ? slice_skip(element, 1) : element;

    if (slice_starts(text, SLICE("|"))) {
        return "names a command; only addresses can be aliases here (a transport with agent=pipe "
               "runs commands)";
    }
    if (slice_starts(text, SLICE("/"))) {
        return "names a file; only addresses can be aliases here";
    }
    if (slice_starts(text, SLICE(":include:"))) {
        return "names a list in another file; only addresses can be aliases here";
    }
    return NULL;
}

/* Appends the stored form of an element. Returns NULL or the fault. */
static const char *add_element(struct slice element, enum alias_form form, const struct conf *conf,
                               struct buf *out)
{
    char room[ADDRESS_MAX];
    struct address address;
    struct buf stored;
    struct slice whole;
    const char *fault;
    bool ok;

    if (form != ALIAS_FORM_LOCAL && element.ptr[0] == '@') {
        return address_domain_valid(slice_skip(element, 1), true) && buf_add(out, element)
                   ? NULL
                   : "has no domain after its `@'";
    }
    if (element.len > 2 && element.ptr[0] == '<' && element.ptr[element.len - 1] == '>') {
        element = slice_of(element.ptr + 1, element.len - 2);
    }
    if (form == ALIAS_FORM_LOCAL && element.ptr[0] == '\\') {
        element = slice_skip(element, 1); /* \name is the mailbox of that name */
    }
    if (element.len == 0 ||
        address_parse(element, ADDRESS_UTF8 | ADDRESS_NO_DOMAIN, &address) != ADDRESS_OK) {
        return "needs mail addresses after it, separated by commas";
    }
    buf_init(&stored, ADDRESS_MAX);
    ok = address_print(&address, &stored);
    fault = local_fault(buf_slice(&stored)); /* without brackets and backslash */
    whole = route_complete(conf, buf_slice(&stored), room);
    ok = ok && address_split(whole).domain.len > 0 && buf_add(out, whole);
    buf_fini(&stored);
    return fault != NULL ? fault : ok ? NULL : "has too long a value";
}

const char *alias_value_parse(struct slice text, enum alias_form form, const struct conf *conf,
                              struct buf *out)
{
    const char *error = NULL;
    struct slice element;
    size_t count = 0;

    buf_clear(out);
    while (error == NULL && (element = cut_element(&text)).len > 0) {
        if (count++ > 0 && !buf_add_byte(out, '\n')) {
            return "has too long a value";
        }
        error = local_fault(element);
        error = error != NULL ? error : add_element(element, form, conf, out);
    }
    if (error == NULL && count == 0) {
        error = "needs mail addresses after it, separated by commas";
    }
    if (error == NULL && form == ALIAS_FORM_ONE && count > 1) {
        error = "needs exactly one mail address after it";
    }
    return error;
}

const char *alias_line_split(struct slice line, struct buf *ret_name, struct slice *ret_value)
{
    size_t at = 0;
    struct slice name;
    bool ok;

    while (at < line.len && line.ptr[at] != ':') {
        at = line.ptr[at] == '"' ? skip_quoted(line, at) : at + 1;
    }
    name = slice_trim(slice_of(line.ptr, at));
    if (at == line.len || name.len == 0) {
        return "is not of the form `name: addresses'";
    }
    *ret_value = slice_trim(slice_skip(line, at + 1));
    buf_clear(ret_name);
    if (name.ptr[0] == '"') {
        struct buf bytes;

        buf_init(&bytes, ADDRESS_MAX);
        ok =
            address_unquote_local(name, &bytes) && address_quote_local(buf_slice(&bytes), ret_name);
        buf_fini(&bytes);
    } else {
        ok = slice_find(name, '@') == name.len && address_quote_local(name, ret_name);
    }
    return ok ? NULL : "is no local name (addresses with a domain belong in virtual_alias_maps)";
}
