/*
 * Every parser fills a `struct mailbox_local`, a local part without its quotes, and only one
 * function writes the stored form. So the printed form does not depend on the way an address was
 * written.
 */
#include "address.h"

#include <arpa/inet.h>
#include <string.h>

#include "check.h"
#include "printable.h"

#define LABEL_MAX 63 /* RFC 1035, 2.3.4 */

/* A local part without quotes. */
struct mailbox_local {
    char bytes[ADDRESS_MAX];
    size_t len;
    bool overflow; /* whether the local part was longer */
};

static void local_add(struct mailbox_local *local, char c)
{
    if (local->len == sizeof local->bytes) {
        local->overflow = true;
    } else {
        local->bytes[local->len++] = c;
    }
}

static struct slice local_slice(const struct mailbox_local *local)
{
    return slice_of(local->bytes, local->len);
}

static bool is_8bit(char c)
{
    return (unsigned char)c > 127;
}

static bool is_control(char c)
{
    return (unsigned char)c < ' ' || c == 127;
}

/* Is this atext of RFC 5322, or with RFC 6532 anything beyond ASCII? check_charset checks once for
 * the whole part whether that is valid and allowed UTF-8. */
static bool is_atext(char c)
{
    return ascii_is_alnum(c) || is_8bit(c) ||
           (c != '\0' && strchr("!#$%&'*+-/=?^_`{|}~", c) != NULL);
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* Returns the number of blanks at the start of `in`. */
static size_t blank_length(struct slice in)
{
    size_t i = 0;

    while (i < in.len && is_blank(in.ptr[i])) {
        i++;
    }
    return i;
}

bool address_is_ascii(struct slice bytes)
{
    for (size_t i = 0; i < bytes.len; i++) {
        if (is_8bit(bytes.ptr[i])) {
            return false;
        }
    }
    return true;
}

bool address_utf8_valid(struct slice bytes)
{
    while (bytes.len > 0) {
        size_t len = utf8_length(bytes);

        /* U+0080..U+009F are C2 80..C2 9F */
        if (len == 0 || (len == 2 && bytes.ptr[0] == '\xc2' && bytes.ptr[1] < '\xa0')) {
            return false;
        }
        bytes = slice_skip(bytes, len);
    }
    return true;
}

static enum address_error check_charset(struct slice bytes, unsigned options)
{
    if (address_is_ascii(bytes)) {
        return ADDRESS_OK;
    }
    if ((options & ADDRESS_UTF8) == 0) {
        return ADDRESS_NEEDS_UTF8;
    }
    return address_utf8_valid(bytes) ? ADDRESS_OK : ADDRESS_BAD_UTF8;
}

static bool is_dot_string(struct slice s)
{
    bool in_atom = false;

    for (size_t i = 0; i < s.len; i++) {
        if (s.ptr[i] == '.' && in_atom) {
            in_atom = false;
        } else if (is_atext(s.ptr[i])) {
            in_atom = true;
        } else {
            return false;
        }
    }
    return in_atom;
}

static bool needs_escape(char c)
{
    return c == '"' || c == '\\';
}

/* Returns the length of the stored form. */
static size_t stored_length(struct slice unquoted)
{
    size_t len = unquoted.len;

    if (is_dot_string(unquoted)) {
        return len;
    }
    for (size_t i = 0; i < unquoted.len; i++) {
        len += needs_escape(unquoted.ptr[i]);
    }
    return len + 2;
}

bool address_quote_local(struct slice bytes, struct buf *out)
{
    for (size_t i = 0; i < bytes.len; i++) {
        if (is_control(bytes.ptr[i])) {
            return false;
        }
    }
    if (is_dot_string(bytes)) {
        return buf_add(out, bytes);
    }
    buf_add_byte(out, '"');
    for (size_t i = 0; i < bytes.len; i++) {
        if (needs_escape(bytes.ptr[i])) {
            buf_add_byte(out, '\\');
        }
        buf_add_byte(out, bytes.ptr[i]);
    }
    return buf_add_byte(out, '"');
}

void address_put_external(struct slice address, struct buf *out)
{
    size_t at = slice_find_last(address, '@');

    if (address.len == 0) {
        return; /* the null sender */
    }
    if (address_quote_local(slice_of(address.ptr, at), out)) {
        (void)buf_add(out, slice_skip(address, at));
    } else {
        (void)buf_add(out, address);
    }
}

/* Reads the quoted string at the start of `in`. Returns false if the string does not end or has a
 * control character; *ret_used is then the position of the error. */
static bool read_quoted(struct slice in, struct mailbox_local *local, size_t *ret_used)
{
    size_t i = 1;

    CHECK(in.len > 0 && in.ptr[0] == '"');
    for (; i < in.len && in.ptr[i] != '"' && !is_control(in.ptr[i]); i++) {
        if (in.ptr[i] == '\\') {
            i++;
            if (i == in.len || is_control(in.ptr[i])) {
                break;
            }
        }
        local_add(local, in.ptr[i]);
    }
    *ret_used = i < in.len && in.ptr[i] == '"' ? i + 1 : i;
    return i < in.len && in.ptr[i] == '"';
}

/* Is the stored address with a domain of this length short enough? */
static bool fits(const struct mailbox_local *local, size_t domain_len)
{
    size_t rest = domain_len > 0 ? 1 + domain_len : 0;

    return !local->overflow && stored_length(local_slice(local)) + rest <= ADDRESS_MAX;
}

/* Reads the local part at the start of `in`, up to the first byte that can't belong to it. */
static enum address_error read_local(struct slice in, unsigned options,
                                     struct mailbox_local *ret_local, size_t *ret_used)
{
    enum address_error error;
    size_t used = 0;

    *ret_local = (struct mailbox_local){0};
    if (in.len > 0 && in.ptr[0] == '"') {
        if (!read_quoted(in, ret_local, &used)) {
            return ADDRESS_BAD_LOCAL;
        }
    } else {
        while (used < in.len && (is_atext(in.ptr[used]) || in.ptr[used] == '.')) {
            local_add(ret_local, in.ptr[used++]);
        }
    }
    if (used == 0) {
        return ADDRESS_BAD_LOCAL;
    }
    error = check_charset(slice_of(in.ptr, used), options);
    if (error != ADDRESS_OK) {
        return error;
    }
    if (!fits(ret_local, 0)) {
        return ADDRESS_TOO_LONG;
    }
    *ret_used = used;
    return ADDRESS_OK;
}

static bool literal_valid(struct slice inside)
{
    char text[INET6_ADDRSTRLEN];
    unsigned char address[16];
    int family = AF_INET;

    if (slice_starts_nocase(inside, SLICE("IPv6:"))) {
        inside = slice_skip(inside, 5);
        family = AF_INET6;
    }
    if (inside.len == 0 || inside.len >= sizeof text || memchr(inside.ptr, '\0', inside.len)) {
        return false;
    }
    memcpy(text, inside.ptr, inside.len);
    text[inside.len] = '\0';
    return inet_pton(family, text, address) == 1;
}

static bool label_valid(struct slice label)
{
    if (label.len == 0 || label.ptr[0] == '-' || label.ptr[label.len - 1] == '-') {
        return false;
    }
    for (size_t i = 0; i < label.len; i++) {
        /* RFC 1123 allows no underscores in host names, but many hosts that receive mail have
         * them. */
        if (!ascii_is_alnum(label.ptr[i]) && label.ptr[i] != '-' && label.ptr[i] != '_' &&
            !is_8bit(label.ptr[i])) {
            return false;
        }
    }
    /* The limit applies to A-labels, whose length differs from the U-label's. */
    return label.len <= LABEL_MAX || !address_is_ascii(label);
}

static bool all_digits(struct slice s)
{
    for (size_t i = 0; i < s.len; i++) {
        if (!ascii_is_digit(s.ptr[i])) {
            return false;
        }
    }
    return true;
}

static enum address_error check_domain(struct slice domain, unsigned options)
{
    enum address_error error = check_charset(domain, options);
    struct slice rest = domain, label;

    if (error != ADDRESS_OK) {
        return error;
    }
    if (domain.len > ADDRESS_DOMAIN_MAX) {
        return ADDRESS_DOMAIN_TOO_LONG;
    }
    if (domain.len == 0) {
        return ADDRESS_BAD_DOMAIN;
    }
    if (domain.ptr[0] == '[') {
        return domain.len > 2 && domain.ptr[domain.len - 1] == ']' &&
                       literal_valid(slice_of(domain.ptr + 1, domain.len - 2))
                   ? ADDRESS_OK
                   : ADDRESS_BAD_DOMAIN;
    }
    do {
        label = slice_cut(&rest, '.');
        if (!label_valid(label)) {
            return ADDRESS_BAD_DOMAIN;
        }
    } while (rest.ptr != NULL);
    /* No top-level domain is a number: this is an IP address without brackets. */
    return all_digits(label) ? ADDRESS_BAD_DOMAIN : ADDRESS_OK;
}

bool address_domain_valid(struct slice domain, bool utf8)
{
    return check_domain(domain, utf8 ? ADDRESS_UTF8 : 0) == ADDRESS_OK;
}

/* Returns the domain without the dot that makes it complete. */
static struct slice without_dot(struct slice domain)
{
    bool dot = domain.len > 1 && domain.ptr[domain.len - 1] == '.';

    return slice_of(domain.ptr, domain.len - dot);
}

/* Returns the length of the possible domain at the start of `in`: up to the first byte that ends a
 * path. */
static size_t domain_extent(struct slice in)
{
    size_t i = 0;

    while (i < in.len && in.ptr[i] != '>' && !is_blank(in.ptr[i])) {
        i++;
    }
    return i;
}

/* Reads `local@domain`, or `local` if the options allow it, at the start of `in`. */
static enum address_error read_mailbox(struct slice in, unsigned options,
                                       struct address *ret_address, size_t *ret_used)
{
    struct address address = {.domain = slice_of(in.ptr, 0)};
    struct mailbox_local local;
    enum address_error error;
    size_t used;

    error = read_local(in, options, &local, &used);
    if (error != ADDRESS_OK) {
        return error;
    }
    address.local = slice_of(in.ptr, used);
    if (used < in.len && in.ptr[used] == '@') {
        struct slice rest = slice_skip(in, used + 1);

        address.domain = slice_of(rest.ptr, domain_extent(rest));
        used += 1 + address.domain.len;
        address.domain = without_dot(address.domain);
        error = check_domain(address.domain, options);
        if (error != ADDRESS_OK) {
            return error;
        }
        if (!fits(&local, address.domain.len)) {
            return ADDRESS_TOO_LONG;
        }
    } else if ((options & ADDRESS_NO_DOMAIN) == 0 &&
               ((options & ADDRESS_POSTMASTER) == 0 ||
                !slice_equal_nocase(local_slice(&local), SLICE("postmaster")))) {
        return used < in.len && in.ptr[used] != '>' ? ADDRESS_BAD_LOCAL : ADDRESS_NO_DOMAIN_GIVEN;
    }
    *ret_address = address;
    *ret_used = used;
    return ADDRESS_OK;
}

/* Skips the source route "@a,@b:" at the start of `in`. */
static enum address_error skip_route(struct slice in, size_t *ret_used)
{
    size_t colon = slice_find(in, ':');
    struct slice hops = slice_of(in.ptr, colon);

    if (colon == in.len) {
        return ADDRESS_BAD_ROUTE;
    }
    while (hops.ptr != NULL) {
        struct slice hop = slice_cut(&hops, ',');

        if (hop.len == 0 || hop.ptr[0] != '@' || !address_domain_valid(slice_skip(hop, 1), true)) {
            return ADDRESS_BAD_ROUTE;
        }
    }
    *ret_used = colon + 1;
    return ADDRESS_OK;
}

enum address_error address_parse_path(struct slice in, unsigned options,
                                      struct address *ret_address, size_t *ret_used)
{
    bool brackets = in.len > 0 && in.ptr[0] == '<';
    struct address address;
    enum address_error error;
    size_t at = brackets, used;

    if (in.len == 0 || (!brackets && (options & ADDRESS_NO_BRACKETS) == 0)) {
        return ADDRESS_NOT_A_PATH;
    }
    at += brackets ? blank_length(slice_skip(in, at)) : 0;
    if (brackets && at < in.len && in.ptr[at] == '>') {
        if ((options & ADDRESS_NULL) == 0) {
            return ADDRESS_EMPTY;
        }
        *ret_address = (struct address){slice_of(in.ptr, 0), slice_of(in.ptr, 0)};
        *ret_used = at + 1;
        return ADDRESS_OK;
    }
    if (at < in.len && in.ptr[at] == '@') {
        error = skip_route(slice_skip(in, at), &used);
        if (error != ADDRESS_OK) {
            return error;
        }
        at += used;
    }
    error = read_mailbox(slice_skip(in, at), options, &address, &used);
    if (error != ADDRESS_OK) {
        return error;
    }
    at += used;
    if (brackets) {
        at += blank_length(slice_skip(in, at));
        if (at == in.len) {
            return ADDRESS_UNCLOSED;
        }
        if (in.ptr[at] != '>') {
            return address.domain.len > 0 ? ADDRESS_BAD_DOMAIN : ADDRESS_BAD_LOCAL;
        }
        at++;
        at += at < in.len && in.ptr[at] == ';';
    } else if (at < in.len && !is_blank(in.ptr[at])) {
        return ADDRESS_NOT_A_PATH;
    }
    *ret_address = address;
    *ret_used = at;
    return ADDRESS_OK;
}

enum address_error address_parse(struct slice in, unsigned options, struct address *ret_address)
{
    struct address address;
    enum address_error error;
    size_t used;

    if (in.len == 0) {
        if ((options & ADDRESS_NULL) == 0) {
            return ADDRESS_EMPTY;
        }
        *ret_address = (struct address){in, in};
        return ADDRESS_OK;
    }
    error = read_mailbox(in, options, &address, &used);
    if (error != ADDRESS_OK) {
        return error;
    }
    if (used < in.len) {
        return address.domain.len > 0 ? ADDRESS_BAD_DOMAIN : ADDRESS_BAD_LOCAL;
    }
    *ret_address = address;
    return ADDRESS_OK;
}

const char *address_error_text(enum address_error error)
{
    switch (error) {
    case ADDRESS_OK:
        return "Address accepted";
    case ADDRESS_NOT_A_PATH:
        return "Address is not of the form <local@domain>";
    case ADDRESS_UNCLOSED:
        return "Closing > is missing";
    case ADDRESS_EMPTY:
        return "Null address is not allowed here";
    case ADDRESS_BAD_ROUTE:
        return "Bad source route";
    case ADDRESS_BAD_LOCAL:
        return "Bad local part";
    case ADDRESS_TOO_LONG:
        return "Address is longer than 320 octets";
    case ADDRESS_NO_DOMAIN_GIVEN:
        return "Address lacks a domain";
    case ADDRESS_BAD_DOMAIN:
        return "Bad domain";
    case ADDRESS_DOMAIN_TOO_LONG:
        return "Domain is longer than 255 octets";
    case ADDRESS_NEEDS_UTF8:
        return "Non-ASCII address needs SMTPUTF8";
    case ADDRESS_BAD_UTF8:
        return "Address is not valid UTF-8";
    }
    UNREACHABLE("an error that is none");
}

bool address_print(const struct address *address, struct buf *out)
{
    struct mailbox_local local;
    size_t used;

    if (address->local.len == 0) {
        CHECK(address->domain.len == 0);
        return true;
    }
    CHECK(read_local(address->local, ADDRESS_UTF8, &local, &used) == ADDRESS_OK);
    CHECK(used == address->local.len);
    address_quote_local(local_slice(&local), out);
    if (address->domain.len > 0) {
        buf_add_byte(out, '@');
        buf_add(out, address->domain);
    }
    return !out->failed;
}

bool address_unquote_local(struct slice local, struct buf *out)
{
    if (local.len < 2 || local.ptr[0] != '"' || local.ptr[local.len - 1] != '"') {
        return buf_add(out, local);
    }
    for (size_t i = 1; i < local.len - 1; i++) {
        if (local.ptr[i] == '\\' && i + 1 < local.len - 1) {
            i++;
        }
        buf_add_byte(out, local.ptr[i]);
    }
    return !out->failed;
}

bool address_is_stored(struct slice stored, unsigned options)
{
    struct address address;
    struct mailbox_local local;
    size_t used;

    if (address_parse(stored, options, &address) != ADDRESS_OK) {
        return false;
    }
    if (address.local.len == 0) {
        return true;
    }
    CHECK(read_local(address.local, options, &local, &used) == ADDRESS_OK);
    used += address.domain.len > 0 ? 1 + address.domain.len : 0;
    /* Quotes, escapes and a last dot are all that could differ, and they change the length. */
    return stored_length(local_slice(&local)) == address.local.len && used == stored.len;
}

struct address address_split(struct slice stored)
{
    size_t at = stored.len;
    bool quoted = false;

    for (size_t i = 0; i < stored.len; i++) {
        if (quoted && stored.ptr[i] == '\\') {
            i++;
        } else if (stored.ptr[i] == '"') {
            quoted = !quoted;
        } else if (stored.ptr[i] == '@' && !quoted) {
            at = i;
        }
    }
    return (struct address){slice_of(stored.ptr, at),
                            slice_skip(stored, at == stored.len ? at : at + 1)};
}

/*
 * Header values. One element is read token by token into `struct element`: words and dots before
 * the `@` are the local part, those after it the domain. A `<` shows that the words before it were
 * a display name, so it starts over; so does the `:` of a group.
 */
struct element {
    struct mailbox_local local;
    char domain[ADDRESS_DOMAIN_MAX];
    size_t domain_len;
    bool seen;     /* whether there was anything but blanks and comments */
    bool word;     /* whether the last token was a word: another one would be a second address */
    bool at_sign;  /* in the domain */
    bool in_angle; /* between < and > */
    bool closed;   /* after > */
    bool in_route; /* after < @ */
    bool bad;
};

static void element_domain_add(struct element *e, struct slice bytes)
{
    if (bytes.len > sizeof e->domain - e->domain_len) {
        e->bad = true;
        return;
    }
    memcpy(e->domain + e->domain_len, bytes.ptr, bytes.len);
    e->domain_len += bytes.len;
}

/* Adds a word, a dot or a literal, without quotes, to the element. */
static void element_add(struct element *e, struct slice token, bool is_word)
{
    if (e->in_route) {
        return;
    }
    if (e->closed || (is_word && e->word)) {
        e->bad = true;
    }
    e->word = is_word;
    if (e->at_sign) {
        element_domain_add(e, token);
        return;
    }
    for (size_t i = 0; i < token.len; i++) {
        local_add(&e->local, token.ptr[i]);
    }
}

static void element_quoted(struct element *e, const struct mailbox_local *quoted)
{
    if (e->at_sign || quoted->overflow) {
        e->bad = true;
        return;
    }
    element_add(e, local_slice(quoted), true);
}

static void element_at_sign(struct element *e)
{
    if (e->in_angle && e->local.len == 0 && !e->at_sign) {
        e->in_route = true;
    }
    if (e->in_route) {
        return;
    }
    if (e->at_sign || e->closed) {
        e->bad = true;
    }
    e->at_sign = true;
    e->word = false;
}

/* Returns the length of the comment at the start of `in`; 0 if it does not end or is nested too
 * deeply. */
static size_t comment_length(struct slice in)
{
    size_t depth = 0;

    for (size_t i = 0; i < in.len; i++) {
        if (in.ptr[i] == '\\') {
            i++;
        } else if (in.ptr[i] == '(') {
            if (++depth > ADDRESS_COMMENT_DEPTH_MAX) {
                return 0;
            }
        } else if (in.ptr[i] == ')' && --depth == 0) {
            return i + 1;
        }
    }
    return 0;
}

static size_t atom_length(struct slice in)
{
    size_t i = 0;

    while (i < in.len && is_atext(in.ptr[i])) {
        i++;
    }
    return i;
}

/* Returns the length of the quoted string at the start of `in`; 0 if it does not end. In a header
 * the string may be folded and, as a display name, of any length, so its end is found first. */
static size_t quoted_length(struct slice in)
{
    for (size_t i = 1; i < in.len; i++) {
        if (in.ptr[i] == '\\') {
            i++;
        } else if (in.ptr[i] == '"') {
            return i + 1;
        }
    }
    return 0;
}

/* Reads the word, quoted string, comment or literal at the start of *rest. */
static void element_token(struct element *e, struct slice *rest)
{
    struct mailbox_local quoted = {0};
    size_t len, used;

    switch (rest->ptr[0]) {
    case '(':
        len = comment_length(*rest);
        break;
    case '"':
        e->seen = true;
        len = quoted_length(*rest);
        if (len > 0 && !read_quoted(slice_of(rest->ptr, len), &quoted, &used)) {
            quoted.overflow = true; /* folded or with control characters: only a display name can be
                                     * so */
        }
        element_quoted(e, &quoted);
        break;
    case '[':
        e->seen = true;
        len = slice_find(*rest, ']');
        len = len == rest->len ? 0 : len + 1;
        if (!e->at_sign || e->domain_len > 0) {
            e->bad = true;
        }
        element_add(e, slice_of(rest->ptr, len), true);
        break;
    case '.':
        e->seen = true;
        len = 1;
        element_add(e, slice_of(rest->ptr, 1), false);
        break;
    default:
        e->seen = true;
        len = atom_length(*rest);
        if (len == 0) {
            e->bad = true;
            len = 1;
        } else {
            element_add(e, slice_of(rest->ptr, len), true);
        }
        break;
    }
    if (len == 0) { /* the token does not end, so nothing follows it */
        e->bad = e->seen = true;
        e->closed = true;
        len = rest->len;
    }
    *rest = slice_skip(*rest, len);
}

/* Reads one element and the separator after it from list->rest. *ret_raw is the element as
 * written. */
static void element_read(struct address_list *list, struct element *e, struct slice *ret_raw)
{
    const char *start = list->rest.ptr;

    *e = (struct element){0};
    while (list->rest.len > 0) {
        char c = list->rest.ptr[0];

        if ((c == ',' && !e->in_route) || c == ';') {
            break;
        }
        if (c == '<' && !e->in_angle && !e->closed) {
            *e = (struct element){.seen = true, .in_angle = true};
        } else if (c == '>' && e->in_angle) {
            e->in_angle = false;
            e->closed = true;
        } else if (c == ':' && e->in_route) {
            e->in_route = false;
        } else if (c == ':' && !list->in_group && !e->in_angle && !e->closed) {
            *e = (struct element){0};
            list->in_group = true;
            start = list->rest.ptr + 1;
        } else if (c == '@') {
            e->seen = true;
            element_at_sign(e);
        } else if (!is_blank(c) && !(c == ',' && e->in_route)) {
            element_token(e, &list->rest);
            continue;
        }
        list->rest = slice_skip(list->rest, 1);
    }
    *ret_raw = slice_trim(slice_of(start, (size_t)(list->rest.ptr - start)));
    if (list->rest.len > 0) {
        if (list->rest.ptr[0] == ';') {
            list->in_group = false;
        }
        list->rest = slice_skip(list->rest, 1);
    }
}

static bool element_print(const struct element *e, unsigned options, struct buf *out)
{
    struct slice local = local_slice(&e->local);
    struct slice domain = without_dot(slice_of(e->domain, e->domain_len));

    if (e->bad || e->in_angle || local.len == 0 || !fits(&e->local, domain.len) ||
        check_charset(local, options) != ADDRESS_OK) {
        return false;
    }
    if (e->at_sign ? check_domain(domain, options) != ADDRESS_OK
                   : (options & ADDRESS_NO_DOMAIN) == 0) {
        return false;
    }
    if (!address_quote_local(local, out)) {
        return false;
    }
    if (e->at_sign) {
        buf_add_byte(out, '@');
        buf_add(out, domain);
    }
    return !out->failed;
}

void address_list_init(struct address_list *list, struct slice value, unsigned options)
{
    *list = (struct address_list){.rest = value, .options = options};
}

enum address_list_event address_list_next(struct address_list *list, struct buf *out)
{
    while (list->rest.len > 0) {
        struct element e;
        struct slice raw;

        element_read(list, &e, &raw);
        if (!e.seen) {
            continue; /* no text between two separators */
        }
        buf_clear(out);
        if (element_print(&e, list->options, out)) {
            return ADDRESS_LIST_ADDRESS;
        }
        buf_clear(out);
        for (size_t i = 0; i < raw.len && i < ADDRESS_MAX; i++) {
            buf_add_byte(out, is_control(raw.ptr[i]) ? '?' : raw.ptr[i]);
        }
        return ADDRESS_LIST_BAD;
    }
    buf_clear(out);
    return ADDRESS_LIST_END;
}
