#include "inject_mail.h"

#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "address.h"
#include "base64.h"
#include "check.h"
#include "compose.h"
#include "inject_mail_private.h"
#include "mem.h"
#include "printable.h"
#include "template.h"

#define PATH_LENGTH   200
#define FOUND_SHOWN   100
#define MEDIA_MAX     127u
#define ADDRESSES_MAX (64u << 20)

/* ---- memory of documents ---------------------------------------------------------------------
 *
 * A document of a few megabytes can make thousands of megabytes of objects: "[{},{},{}, ...". So
 * jansson's memory is counted, and is not there beyond the limit. The counters are the process's,
 * as jansson's functions for memory are; it reads one document at a time.
 */

static uint64_t memory_used, memory_max = UINT64_MAX;
static bool memory_refused;

/* In front of what jansson gets; keeps its alignment. */
union counted {
    size_t size;
    max_align_t align;
};

static void *counted_malloc(size_t size)
{
    union counted *c;

    if (size > memory_max - memory_used || size > SIZE_MAX - sizeof *c) {
        memory_refused = true;
        return NULL;
    }
    c = malloc(sizeof *c + size);
    if (c == NULL) {
        return NULL;
    }
    c->size = size;
    memory_used += size;
    return c + 1;
}

static void counted_free(void *ptr)
{
    union counted *c = ptr;

    if (c != NULL) {
        memory_used -= c[-1].size;
        free(c - 1);
    }
}

void inject_mail_start(void)
{
    json_set_alloc_funcs(counted_malloc, counted_free);
    compose_start();
}

/* ---- what is wrong -------------------------------------------------------------------------- */

__attribute__((format(printf, 2, 3))) static bool wrong(struct inject_mail *m, const char *format,
                                                        ...)
{
    va_list args;

    if (m->error != NULL) {
        buf_clear(m->error);
        va_start(args, format);
        (void)buf_addv(m->error, format, args); /* sticky */
        va_end(args);
    }
    return false;
}

static bool wrong_found(struct inject_mail *m, const char *path, struct slice found,
                        const char *expected)
{
    struct buf shown;

    buf_init(&shown, 4 * FOUND_SHOWN);
    (void)printable_add(&shown, found, FOUND_SHOWN); /* fits */
    (void)wrong(m, "%s: found \"%s\", %s", path, buf_cstr(&shown), expected);
    buf_fini(&shown);
    return false;
}

static bool has_control(struct slice s)
{
    for (size_t i = 0; i < s.len; i++) {
        unsigned char c = (unsigned char)s.ptr[i];

        /* C1 controls are two bytes in UTF-8: U+0080 to U+009F */
        if (c < ' ' || c == 127 ||
            (c == 0xc2 && i + 1 < s.len && (unsigned char)s.ptr[i + 1] < 0xa0)) {
            return true;
        }
    }
    return false;
}

/* Text that may stand in a field of the header. */
static bool check_field(struct inject_mail *m, const char *path, struct slice value)
{
    if (has_control(value)) {
        return wrong_found(m, path, value, "expected no control characters");
    }
    if (value.len > INJECT_FIELD_MAX) {
        return wrong(m, "%s: found %zu bytes, expected at most %u", path, value.len,
                     INJECT_FIELD_MAX);
    }
    return true;
}

/* ---- addresses ------------------------------------------------------------------------------ */

static bool add_mailbox(struct inject_mail *m, struct inject_mailboxes *list, const char *path,
                        struct slice name, struct slice address_text)
{
    struct address address;
    enum address_error error = address_parse(address_text, ADDRESS_UTF8, &address);
    struct inject_mailbox box = {.at = buf_len(&m->pool), .name_len = name.len};

    if (error != ADDRESS_OK) {
        return wrong_found(m, path, address_text, address_error_text(error));
    }
    if (!check_field(m, path, name)) {
        return false;
    }
    if (!address_print(&address, &m->pool)) {
        return wrong(m, "%s: expected at most 64 MiB of addresses and names", path);
    }
    box.name_at = buf_len(&m->pool);
    box.len = box.name_at - box.at;
    if (!buf_add(&m->pool, name)) {
        return wrong(m, "%s: expected at most 64 MiB of addresses and names", path);
    }
    list->all = mem_grow(list->all, list->count, &list->size, sizeof *list->all);
    list->all[list->count++] = box;
    return true;
}

/* "a@example.org" or "Ann <a@example.org>". */
static bool add_text_mailbox(struct inject_mail *m, struct inject_mailboxes *list, const char *path,
                             struct slice text)
{
    struct slice name = slice_of(text.ptr, slice_find_last(text, '<')), address;

    if (text.len == 0 || text.ptr[text.len - 1] != '>' || name.len == text.len) {
        return add_mailbox(m, list, path, SLICE(""), text);
    }
    address = slice_of(text.ptr + name.len + 1, text.len - name.len - 2);
    name = slice_trim(name);
    if (name.len >= 2 && name.ptr[0] == '"' && name.ptr[name.len - 1] == '"') {
        name = slice_of(name.ptr + 1, name.len - 2);
    }
    return add_mailbox(m, list, path, name, address);
}

static bool only_members(struct inject_mail *m, const json_t *object, const char *path,
                         const char *const *names, size_t count)
{
    const char *name;
    json_t *value;

    json_object_foreach((json_t *)(uintptr_t)object, name, value)
    {
        size_t i = 0;

        while (i < count && strcmp(names[i], name) != 0) {
            i++;
        }
        if (i == count) {
            struct buf shown;

            buf_init(&shown, 4 * FOUND_SHOWN);
            (void)printable_add(&shown, slice_string(name), FOUND_SHOWN); /* fits */
            (void)wrong(m, "%s%s%s: this member is not known", path, path[0] == '\0' ? "" : ".",
                        buf_cstr(&shown));
            buf_fini(&shown);
            return false;
        }
    }
    return true;
}

static bool get_text(struct inject_mail *m, const json_t *object, const char *path,
                     const char *name, struct slice *ret_text)
{
    const json_t *value = json_object_get(object, name);

    if (value == NULL || json_is_null(value)) {
        return true;
    }
    if (!json_is_string(value)) {
        return wrong(m, "%s%s%s: expected a string", path, path[0] == '\0' ? "" : ".", name);
    }
    *ret_text = json_document_text(m->json, value);
    return true;
}

/* `substitutions`: names with texts. */
static bool get_values(struct inject_mail *m, const json_t *object, const char *path,
                       const json_t **ret_values)
{
    const json_t *values = json_object_get(object, "substitutions");
    const char *name;
    json_t *value;

    if (values == NULL || json_is_null(values)) {
        return true;
    }
    if (!json_is_object(values) || json_object_size(values) > INJECT_SUBSTITUTIONS_MAX) {
        return wrong(m, "%s%ssubstitutions: expected an object of at most %u members", path,
                     path[0] == '\0' ? "" : ".", INJECT_SUBSTITUTIONS_MAX);
    }
    json_object_foreach((json_t *)(uintptr_t)values, name, value)
    {
        if (!json_is_string(value)) {
            return wrong(m, "%s%ssubstitutions.%.60s: expected a string", path,
                         path[0] == '\0' ? "" : ".", name);
        }
    }
    *ret_values = values;
    return true;
}

/* A mailbox as a string or as {"address", "name"}. A recipient may have "substitutions", for
 * *ret_values; NULL: it may not. */
static bool read_mailbox(struct inject_mail *m, struct inject_mailboxes *list, const char *path,
                         const json_t *value, const json_t **ret_values)
{
    static const char *const names[] = {"address", "name", "substitutions"};
    struct slice address = slice_of(NULL, 0), name = SLICE("");

    if (json_is_string(value)) {
        return add_text_mailbox(m, list, path, json_document_text(m->json, value));
    }
    if (!json_is_object(value)) {
        return wrong(m,
                     "%s: expected \"ADDRESS\", \"NAME <ADDRESS>\", or an object with address "
                     "and name",
                     path);
    }
    if (!only_members(m, value, path, names, ret_values != NULL ? 3 : 2) ||
        !get_text(m, value, path, "address", &address) ||
        !get_text(m, value, path, "name", &name) ||
        (ret_values != NULL && !get_values(m, value, path, ret_values))) {
        return false;
    }
    if (address.ptr == NULL) {
        return wrong(m, "%s.address: expected an address", path);
    }
    return add_mailbox(m, list, path, name, address);
}

static bool too_many(struct inject_mail *m, const char *name)
{
    return wrong(m, "%s: expected at most %u recipients (inject_recipient_limit)", name,
                 (unsigned)m->limits.rcpts);
}

static bool read_mailboxes(struct inject_mail *m, struct inject_mailboxes *list, const char *name,
                           bool one)
{
    const json_t *value = json_object_get(m->document, name), *element;
    char path[PATH_LENGTH];
    size_t i;

    if (value == NULL || json_is_null(value)) {
        return true;
    }
    if (one || !json_is_array(value)) {
        return read_mailbox(m, list, name, value, NULL);
    }
    json_array_foreach((json_t *)(uintptr_t)value, i, element)
    {
        (void)snprintf(path, sizeof path, "%s[%zu]", name, i); /* fits */
        if (i >= m->limits.rcpts) {
            return too_many(m, name);
        }
        if (!read_mailbox(m, list, path, element, NULL)) {
            return false;
        }
    }
    return true;
}

/* What the parser found is no JSON, `at` bytes from the begin of the document. */
static bool no_json(struct inject_mail *m, size_t at, const char *what)
{
    size_t line, column;

    m->no_json = true;
    json_document_place(m->json, at, &line, &column);
    return wrong(m, "JSON: line %zu, column %zu: %s", line, column, what);
}

struct slice inject_mail_address(const struct inject_mail *m, const struct inject_mailbox *box)
{
    return slice_of(buf_slice(&m->pool).ptr + box->at, box->len);
}

/* ---- substitutions --------------------------------------------------------------------------- */

struct slice inject_mail_value(const struct inject_mail *m, const json_t *values, struct slice name)
{
    const json_t *value = json_object_getn(values, name.ptr, name.len);

    if (value == NULL && m->values != NULL) {
        value = json_object_getn(m->values, name.ptr, name.len);
    }
    return value == NULL ? slice_of(NULL, 0) : json_document_text(m->json, value);
}

static struct used_name *find_used(const struct used_names *used, struct slice name)
{
    struct used_name *u;

    HASH_FIND(hh, used->all, name.ptr, name.len, u);
    return u;
}

static void free_used(struct used_names *used)
{
    HASH_CLEAR(hh, used->all);
    for (size_t i = 0; i < used->count; i++) {
        mem_free(used->listed[i]);
    }
    mem_free(used->listed);
}

static bool find_names(struct inject_mail *m, struct used_names *used, struct slice text,
                       const char *where, bool in_field)
{
    struct slice before, name;
    struct used_name *u;
    bool raw;

    while (template_next(&text, &before, &name, &raw)) {
        if (name.len == 0 || name.len > FOUND_SHOWN) {
            return wrong_found(m, where, name, "expected {{NAME}} of 1 to 100 bytes");
        }
        u = find_used(used, name);
        if (u != NULL) {
            u->in_field = u->in_field || in_field;
            continue;
        }
        if (used->count == INJECT_SUBSTITUTIONS_MAX) {
            return wrong(m, "%s: expected at most %u names in braces", where,
                         INJECT_SUBSTITUTIONS_MAX);
        }
        u = mem_new(sizeof *u);
        *u = (struct used_name){.name = name, .where = where, .in_field = in_field};
        HASH_ADD_KEYPTR(hh, used->all, u->name.ptr, u->name.len, u);
        used->listed = mem_grow(used->listed, used->count, &used->size, sizeof *used->listed);
        used->listed[used->count++] = u;
    }
    return true;
}

/* Which names have a value for all recipients? */
static bool check_defaults(struct inject_mail *m, struct used_names *used)
{
    char path[PATH_LENGTH];

    for (size_t i = 0; i < used->count; i++) {
        struct used_name *u = used->listed[i];
        const json_t *value =
            m->values == NULL ? NULL : json_object_getn(m->values, u->name.ptr, u->name.len);

        u->has_default = value != NULL;
        used->needed += value == NULL;
        (void)snprintf(path, sizeof path, "substitutions.%.*s",
                       SLICE_ARGS(u->name)); /* fits by the length of names */
        if (value != NULL && u->in_field &&
            !check_field(m, path, json_document_text(m->json, value))) {
            return false;
        }
    }
    return true;
}

/* Has this recipient the values that it needs, and none that could end a field? Looks at its values
 * and not at all names: these may be a thousand, for each of 10^5 recipients. */
static bool check_rcpt(struct inject_mail *m, const struct used_names *used, size_t rcpt,
                       const json_t *values)
{
    char path[PATH_LENGTH];
    const char *name;
    json_t *value;
    size_t have = 0;

    json_object_foreach((json_t *)(uintptr_t)values, name, value)
    {
        const struct used_name *u = find_used(used, slice_string(name));

        have += u != NULL && !u->has_default;
        if (u == NULL || !u->in_field) {
            continue;
        }
        (void)snprintf(path, sizeof path, "recipients[%zu].substitutions.%s", rcpt,
                       name); /* likewise */
        if (!check_field(m, path, json_document_text(m->json, value))) {
            return false;
        }
    }
    for (size_t i = 0; have < used->needed && i < used->count; i++) {
        const struct used_name *u = used->listed[i];

        if (!u->has_default && json_object_getn(values, u->name.ptr, u->name.len) == NULL) {
            return wrong(m,
                         "recipients[%zu].substitutions.%.*s: there is no such value, and %s uses "
                         "it",
                         rcpt, SLICE_ARGS(u->name), u->where);
        }
    }
    return true;
}

/* ---- fields and attachments ------------------------------------------------------------------ */

static bool is_token(struct slice s, size_t max)
{
    for (size_t i = 0; i < s.len; i++) {
        if (!ascii_is_alnum(s.ptr[i]) && memchr("-_.+!#$&^", s.ptr[i], 9) == NULL) {
            return false;
        }
    }
    return s.len > 0 && s.len <= max;
}

/* Fields that other members make, or that are not the author's. */
static bool is_ours(struct slice name)
{
    static const char *const ours[] = {"From",     "To",         "Cc",          "Bcc",
                                       "Subject",  "Reply-To",   "Sender",      "Return-Path",
                                       "Received", "Resent-Bcc", "MIME-Version"};

    for (size_t i = 0; i < sizeof ours / sizeof ours[0]; i++) {
        if (slice_equal_nocase(name, slice_string(ours[i]))) {
            return true;
        }
    }
    return slice_starts_nocase(name, SLICE("Content-")) ||
           slice_starts_nocase(name, SLICE("Resent-"));
}

static bool read_fields(struct inject_mail *m)
{
    const json_t *headers = json_object_get(m->document, "headers");
    char path[PATH_LENGTH];
    const char *name;
    json_t *value;

    if (headers == NULL || json_is_null(headers)) {
        return true;
    }
    if (!json_is_object(headers) || json_object_size(headers) > INJECT_HEADERS_MAX) {
        return wrong(m, "headers: expected an object of at most %u members", INJECT_HEADERS_MAX);
    }
    json_object_foreach((json_t *)(uintptr_t)headers, name, value)
    {
        struct slice field = slice_string(name);

        if (!is_token(field, MEDIA_MAX)) {
            return wrong_found(m, "headers", field,
                               "expected names of fields: letters, digits and dashes");
        }
        (void)snprintf(path, sizeof path, "headers.%s", name); /* fits by its length */
        if (is_ours(field)) {
            return wrong(m,
                         "%s: this field is not for `headers'; from, to, cc, subject, "
                         "reply_to and sender are members of their own",
                         path);
        }
        if (!json_is_string(value)) {
            return wrong(m, "%s: expected a string", path);
        }
        if (!check_field(m, path, json_document_text(m->json, value))) {
            return false;
        }
        m->fields[m->field_count++] =
            (struct compose_field){field, json_document_text(m->json, value)};
    }
    return true;
}

static bool read_type(struct inject_mail *m, struct inject_attachment *a, const char *path)
{
    struct slice rest = a->type, kind = slice_cut(&rest, '/');

    if (!is_token(kind, MEDIA_MAX) || rest.ptr == NULL || !is_token(rest, MEDIA_MAX) ||
        slice_equal_nocase(kind, SLICE("multipart")) ||
        slice_equal_nocase(kind, SLICE("message"))) {
        return wrong_found(m, path, a->type,
                           "expected a media type such as image/png, and none of multipart/ and "
                           "message/");
    }
    return true;
}

static bool read_attachment(struct inject_mail *m, const json_t *object, const char *path)
{
    static const char *const names[] = {"name", "type", "content", "id", "disposition"};
    struct inject_attachment *a = &m->attachments[m->attachment_count];
    struct slice disposition = SLICE("attachment");

    *a = (struct inject_attachment){.type = SLICE("application/octet-stream")};
    if (!json_is_object(object)) {
        return wrong(m, "%s: expected an object with name, type and content", path);
    }
    if (!only_members(m, object, path, names, sizeof names / sizeof names[0]) ||
        !get_text(m, object, path, "name", &a->name) ||
        !get_text(m, object, path, "type", &a->type) || !get_text(m, object, path, "id", &a->id) ||
        !get_text(m, object, path, "content", &a->content) ||
        !get_text(m, object, path, "disposition", &disposition) || !read_type(m, a, path) ||
        !check_field(m, path, a->name)) {
        return false;
    }
    a->is_inline = slice_equal(disposition, SLICE("inline"));
    if (!a->is_inline && !slice_equal(disposition, SLICE("attachment"))) {
        return wrong_found(m, path, disposition, "expected attachment or inline");
    }
    for (size_t i = 0; i < a->id.len; i++) {
        if (a->id.ptr[i] <= ' ' || a->id.ptr[i] > '~' || strchr("<>\"()\\", a->id.ptr[i])) {
            return wrong_found(m, path, a->id, "expected an id without blanks and brackets");
        }
    }
    if (a->content.ptr == NULL) {
        return wrong(m, "%s.content: expected the bytes in base64", path);
    }
    m->attachment_count++;
    if (!base64_is_strict(a->content)) {
        return wrong(m, "%s.content: expected base64 (RFC 4648, 4), without line ends", path);
    }
    return true;
}

static bool read_attachments(struct inject_mail *m)
{
    const json_t *list = json_object_get(m->document, "attachments"), *object;
    char path[PATH_LENGTH];
    size_t i;

    if (list == NULL || json_is_null(list)) {
        return true;
    }
    if (!json_is_array(list) || json_array_size(list) > INJECT_ATTACHMENTS_MAX) {
        return wrong(m, "attachments: expected an array of at most %u", INJECT_ATTACHMENTS_MAX);
    }
    m->attachments = mem_array(json_array_size(list) + 1, sizeof *m->attachments);
    json_array_foreach((json_t *)(uintptr_t)list, i, object)
    {
        (void)snprintf(path, sizeof path, "attachments[%zu]", i); /* fits */
        if (!read_attachment(m, object, path)) {
            return false;
        }
    }
    return true;
}

/* ---- the document --------------------------------------------------------------------------- */

static bool read_sender(struct inject_mail *m)
{
    const json_t *value = json_object_get(m->document, "sender");

    if (json_is_string(value) && json_string_length(value) == 0) {
        m->null_sender = true;
        return true;
    }
    return read_mailboxes(m, &m->sender, "sender", true);
}

static bool no_rcpts(struct inject_mail *m)
{
    return wrong(m, "to: expected at least one recipient, in to, cc, bcc or recipients");
}

static bool read_lists(struct inject_mail *m)
{
    const json_t *recipients = json_object_get(m->document, "recipients");
    size_t lists;

    if (!read_mailboxes(m, &m->from, "from", true) || !read_sender(m) ||
        !read_mailboxes(m, &m->reply_to, "reply_to", false) ||
        !read_mailboxes(m, &m->to, "to", false) || !read_mailboxes(m, &m->cc, "cc", false) ||
        !read_mailboxes(m, &m->bcc, "bcc", false)) {
        return false;
    }
    if (recipients != NULL && !json_is_null(recipients) &&
        (!m->divided || json_array_size(recipients) > 0)) {
        return wrong(m, "recipients: expected an array, and this name without escapes");
    }
    lists = m->to.count + m->cc.count + m->bcc.count;
    if (m->divided && lists > 0) {
        return wrong(m, "recipients: expected either this, a message for each, or to, cc and bcc, "
                        "one message for all");
    }
    if (!m->divided && lists == 0) {
        return no_rcpts(m);
    }
    if (lists > m->limits.rcpts) {
        return too_many(m, "to");
    }
    if (m->from.count == 0 && (m->whole.ptr == NULL || (m->sender.count == 0 && !m->null_sender))) {
        return wrong(m, "from: expected an address");
    }
    return true;
}

/* A whole message is not composed: what would be for that is a mistake. */
static bool check_whole(struct inject_mail *m)
{
    static const char *const made[] = {"subject", "text",     "html",       "attachments",
                                       "headers", "reply_to", "recipients", "substitutions"};

    for (size_t i = 0; i < sizeof made / sizeof made[0]; i++) {
        if (json_object_get(m->document, made[i]) != NULL) {
            return wrong(m, "%s: not with `message', which is a whole message", made[i]);
        }
    }
    return true;
}

/* One element of `recipients`, which begins at `at`. *ret_end is behind it. */
static bool read_recipient(struct inject_mail *m, const struct used_names *used, size_t at,
                           size_t *ret_end)
{
    struct slice rest = slice_of(m->source.ptr + at, m->json->array.to - at);
    const json_t *values = NULL;
    char path[PATH_LENGTH];
    size_t rcpt = m->recipients.count;
    json_error_t error;
    json_t *element =
        json_loadb(rest.ptr, rest.len,
                   JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_DISABLE_EOF_CHECK, &error);
    bool good;

    if (element == NULL) {
        return no_json(m, at + (size_t)error.position, error.text);
    }
    (void)snprintf(path, sizeof path, "recipients[%zu]", rcpt); /* fits */
    good = rcpt < m->limits.rcpts || too_many(m, "recipients");
    good = good && read_mailbox(m, &m->recipients, path, element, &values) &&
           check_rcpt(m, used, rcpt, values);
    if (good && values != NULL) {
        m->recipients.all[rcpt].element = slice_of(rest.ptr, (size_t)error.position);
    }
    *ret_end = at + (size_t)error.position;
    json_decref(element);
    return good;
}

/* The next elements of `recipients`. */
static bool read_elements(struct inject_mail *m, size_t count, bool *ret_more)
{
    size_t at = json_skip_blanks(m->source, m->element_at);

    *ret_more = true;
    if (at == m->json->array.to && m->recipients.count == 0) {
        return no_rcpts(m);
    }
    while (count-- > 0) {
        if (!read_recipient(m, &m->used, at, &at)) {
            return false;
        }
        at = json_skip_blanks(m->source, at);
        if (at == m->json->array.to) {
            *ret_more = false;
            return true;
        }
        if (m->source.ptr[at] != ',') {
            return no_json(m, at + 1, "expected , or ] behind an element of recipients");
        }
        at = json_skip_blanks(m->source, at + 1);
    }
    m->element_at = at;
    return true;
}

/* Before the recipients that have a message each: all values that it needs, and none that could
 * end a field. */
static bool read_names(struct inject_mail *m)
{
    bool good = find_names(m, &m->used, m->subject, "subject", true) &&
                find_names(m, &m->used, m->text, "text", false) &&
                find_names(m, &m->used, m->html, "html", false);

    for (size_t i = 0; i < m->field_count && good; i++) {
        good = find_names(m, &m->used, m->fields[i].value, "headers", true);
    }
    m->element_at = m->json->array.from;
    return good && check_defaults(m, &m->used);
}

static bool read_document(struct inject_mail *m)
{
    static const char *const names[] = {
        "from",    "sender", "reply_to", "to",          "cc",      "bcc",     "recipients",
        "subject", "text",   "html",     "attachments", "headers", "message", "substitutions"};

    if (!json_is_object(m->document)) {
        return wrong(m, "expected an object with from, to, subject and text");
    }
    if (!only_members(m, m->document, "", names, sizeof names / sizeof names[0]) ||
        !get_text(m, m->document, "", "subject", &m->subject) ||
        !get_text(m, m->document, "", "text", &m->text) ||
        !get_text(m, m->document, "", "html", &m->html) ||
        !get_text(m, m->document, "", "message", &m->whole) ||
        !get_values(m, m->document, "", &m->values) || !read_lists(m)) {
        return false;
    }
    if (m->whole.ptr != NULL) {
        return check_whole(m);
    }
    if (!check_field(m, "subject", m->subject) || !read_fields(m) || !read_attachments(m)) {
        return false;
    }
    if (m->text.ptr == NULL && m->html.ptr == NULL && m->attachment_count == 0) {
        return wrong(m, "text: expected text, html or attachments");
    }
    if (m->values != NULL && !m->divided) {
        return wrong(m, "substitutions: only with recipients");
    }
    return !m->divided || read_names(m);
}

/* Beside the document. */
static uint64_t own_memory(const struct inject_mail *m)
{
    const struct inject_mailboxes *const lists[] = {&m->to, &m->cc, &m->bcc, &m->recipients};
    uint64_t bytes = sizeof *m + buf_len(&m->pool);

    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        bytes += lists[i]->size * sizeof(struct inject_mailbox);
    }
    return bytes;
}

/* All of the document but the elements of `recipients`. */
static bool parse_document(struct inject_mail *m)
{
    struct slice text = m->source;
    size_t removed = 0;
    struct buf cut;
    json_error_t error;

    m->divided = m->json->has_array;
    buf_init(&cut, text.len);
    if (m->divided) {
        CHECK(json_document_cut(m->json, &cut)); /* it is not longer */
        text = buf_slice(&cut);
        removed = m->json->array.to - m->json->array.from;
    }
    m->document = json_loadb(text.ptr, text.len, JSON_REJECT_DUPLICATES, &error);
    buf_fini(&cut);
    if (m->document == NULL) {
        size_t at = (size_t)error.position;

        return no_json(m, m->divided && at > m->json->array.from ? at + removed : at, error.text);
    }
    return true;
}

void inject_mail_document(struct json_document *d, size_t limit_bytes)
{
    json_document_init(d, "recipients", limit_bytes, JSON_LONG);
}

struct inject_mail *inject_mail_new(const struct json_document *document,
                                    const struct inject_mail_limits *limits)
{
    struct inject_mail *m = mem_new(sizeof *m);

    m->json = document;
    m->source = buf_slice(&document->rest);
    m->source = m->source.ptr == NULL ? SLICE("") : m->source;
    m->limits = *limits;
    buf_init(&m->pool, ADDRESSES_MAX);
    return m;
}

enum inject_mail_result inject_mail_read(struct inject_mail *m, size_t rcpts, struct buf *ret_error)
{
    uint64_t before = memory_used;
    bool more = false, good;

    m->error = ret_error;
    memory_max = memory_used + m->limits.memory - m->parser_memory;
    memory_refused = false;
    good = m->document != NULL || (parse_document(m) && read_document(m));
    if (good && m->divided) {
        good = read_elements(m, rcpts, &more);
    }
    memory_max = UINT64_MAX;
    m->parser_memory += memory_used - before;
    if (memory_refused) {
        (void)wrong(m, "the document takes too much memory: expected fewer objects and arrays "
                       "(inject_json_limit)");
    }
    m->error = NULL;
    if (!good) {
        return memory_refused ? INJECT_MAIL_TOO_LARGE
               : m->no_json   ? INJECT_MAIL_NO_JSON
                              : INJECT_MAIL_WRONG;
    }
    m->memory = m->parser_memory + own_memory(m);
    return more ? INJECT_MAIL_MORE : INJECT_MAIL_OK;
}

void inject_mail_free(struct inject_mail *m)
{
    struct inject_mailboxes *lists[7];

    if (m == NULL) {
        return;
    }
    lists[0] = &m->from;
    lists[1] = &m->sender;
    lists[2] = &m->reply_to;
    lists[3] = &m->to;
    lists[4] = &m->cc;
    lists[5] = &m->bcc;
    lists[6] = &m->recipients;
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        mem_free(lists[i]->all);
    }
    mem_free(m->attachments);
    free_used(&m->used);
    buf_fini(&m->pool);
    json_decref(m->document);
    mem_free(m);
}

uint64_t inject_mail_memory(const struct inject_mail *m)
{
    return m->memory;
}

struct slice inject_mail_sender(const struct inject_mail *m)
{
    if (m->null_sender) {
        return SLICE("");
    }
    return inject_mail_address(m, m->sender.count > 0 ? &m->sender.all[0] : &m->from.all[0]);
}

size_t inject_mail_count(const struct inject_mail *m)
{
    return m->divided ? m->recipients.count : 1;
}

bool inject_mail_next_rcpt(const struct inject_mail *m, size_t message, size_t *at,
                           struct slice *ret_address)
{
    const struct inject_mailboxes *const lists[] = {&m->to, &m->cc, &m->bcc};
    size_t n = *at;

    if (m->divided) {
        if (n > 0 || message >= m->recipients.count) {
            return false;
        }
        *ret_address = inject_mail_address(m, &m->recipients.all[message]);
        (*at)++;
        return true;
    }
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        if (n < lists[i]->count) {
            *ret_address = inject_mail_address(m, &lists[i]->all[n]);
            (*at)++;
            return true;
        }
        n -= lists[i]->count;
    }
    return false;
}

uint64_t inject_mail_address_bytes(const struct inject_mail *m)
{
    return buf_len(&m->pool);
}

bool inject_mail_is_divided(const struct inject_mail *m)
{
    return m->divided;
}
