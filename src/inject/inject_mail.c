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

/* In the order in which they are read. */
const char *const inject_mail_arrays[] = {"reply_to", "to", "cc", "bcc", "recipients", NULL};
#define LIST_RECIPIENTS 4u
/* Size up to which a document, without long strings, is read in one call. */
#define LITTLE 4096u

/* ---- memory of documents ------------------------------------------------------------------------
 * A document of a few megabytes can make thousands of megabytes of objects: "[{},{},{}, ...".
 * Therefore jansson's memory is counted and limited. The counters are global, like jansson's memory
 * functions; the process reads one document at a time. */

static uint64_t memory_used, memory_max = UINT64_MAX;
static bool memory_refused;

/* Header of each allocation; keeps the alignment. */
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

/* ---- faults --------------------------------------------------------------------------------- */

__attribute__((format(printf, 2, 3))) static bool wrong(struct inject_mail *m, const char *format,
                                                        ...)
{
    va_list args;

    if (m->error != NULL) {
        buf_clear(m->error);
        va_start(args, format);
        (void)buf_addv(m->error, format, args); /* errors of the buffer are sticky */
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

/* Checks a text for a header field. */
static bool check_field(struct inject_mail *m, const char *path, struct slice value)
{
    if (value.len > INJECT_FIELD_MAX) {
        return wrong(m, "%s: found %zu bytes, expected at most %u", path, value.len,
                     INJECT_FIELD_MAX);
    }
    if (has_control(value)) {
        return wrong_found(m, path, value, "expected no control characters");
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

/* Adds "a@example.org" or "Ann <a@example.org>". */
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

/* Reads `substitutions`: an object with text values. */
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

/* Reads a mailbox: a string or {"address", "name"}. If ret_values is not NULL, "substitutions" are
 * allowed and returned. */
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

static bool is_list(const struct inject_mail *m, const char *name)
{
    for (size_t i = 0; inject_mail_arrays[i] != NULL; i++) {
        if (strcmp(inject_mail_arrays[i], name) == 0) {
            return json_document_array(m->json, name) != NULL;
        }
    }
    return false;
}

/* Reads a member with a single mailbox; arrays are left to read_elements. */
static bool read_member(struct inject_mail *m, struct inject_mailboxes *list, const char *name)
{
    const json_t *value = json_object_get(m->document, name);

    if (value == NULL || json_is_null(value) || is_list(m, name)) {
        return true;
    }
    return read_mailbox(m, list, name, value, NULL);
}

/* Notes the parser's fault at offset `at` of the document. */
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

/* Finds the names that have a value for all recipients. */
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
                       SLICE_ARGS(u->name)); /* fits, as names are limited */
        if (value != NULL && u->in_field &&
            !check_field(m, path, json_document_text(m->json, value))) {
            return false;
        }
    }
    return true;
}

/* Does this recipient have all values that are needed, and no control characters in values for
 * fields? Reads the recipient's values rather than all names, which may be a thousand for each of
 * 10^5 recipients. */
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
                       name); /* fits, as names are limited */
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

/* Is the field made from other members, or not for authors to set? */
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
        (void)snprintf(path, sizeof path, "headers.%s", name); /* fits, as names are limited */
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
    return true;
}

/* Checks the next piece of the attachments' contents. *ret_more: more pieces follow. */
static bool check_contents(struct inject_mail *m, bool *ret_more)
{
    const struct inject_attachment *a = &m->attachments[m->attachment];
    struct slice rest, piece;

    *ret_more = m->attachment < m->attachment_count;
    if (!*ret_more) {
        return true;
    }
    rest = slice_skip(a->content, m->checked);
    piece = slice_of(rest.ptr, rest.len < INJECT_AT_ONCE ? rest.len : INJECT_AT_ONCE);
    /* only the last piece may end with padding */
    if (!base64_is_strict(piece) || (piece.len < rest.len && piece.ptr[piece.len - 1] == '=')) {
        return wrong(m,
                     "attachments[%zu].content: expected base64 (RFC 4648, 4), without line ends",
                     m->attachment);
    }
    m->checked += piece.len;
    if (piece.len == rest.len) {
        m->attachment++;
        m->checked = 0;
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
    return read_member(m, &m->sender, "sender");
}

static bool no_rcpts(struct inject_mail *m)
{
    return wrong(m, "to: expected at least one recipient, in to, cc, bcc or recipients");
}

/* Reads the members with a single mailbox. */
static bool read_single(struct inject_mail *m)
{
    return read_member(m, &m->from, "from") && read_sender(m) &&
           read_member(m, &m->reply_to, "reply_to") && read_member(m, &m->to, "to") &&
           read_member(m, &m->cc, "cc") && read_member(m, &m->bcc, "bcc");
}

/* Are there recipients and a sender? */
static bool check_lists(struct inject_mail *m)
{
    const json_t *recipients = json_object_get(m->document, "recipients");
    size_t lists;

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

/* Refuses members that are for composing, as the document has a whole message. */
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

/* Elements of an array that is read separately. */
struct elements {
    const char *name;
    struct inject_mailboxes *list;
    const struct json_array *array; /* NULL if there is none */
    bool have_values;               /* whether they may have substitutions (`recipients`) */
};

/* Reads the element at offset `at`. *ret_end is the offset after it. */
static bool read_element(struct inject_mail *m, const struct elements *e, size_t at,
                         size_t *ret_end)
{
    struct slice rest = slice_of(m->source.ptr + at, e->array->to - at);
    bool is_cut = rest.len > INJECT_MEMBERS_MAX;
    size_t number = e->list->count;
    const json_t *values = NULL;
    char path[PATH_LENGTH];
    json_error_t error;
    json_t *element;
    bool good;

    rest.len = is_cut ? INJECT_MEMBERS_MAX : rest.len;
    element = json_loadb(rest.ptr, rest.len,
                         JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_DISABLE_EOF_CHECK, &error);
    (void)snprintf(path, sizeof path, "%s[%zu]", e->name, number); /* fits */
    if (element == NULL && is_cut && (size_t)error.position + JSON_LONG > rest.len) {
        m->too_large = true;
        return wrong(m, "%s: expected at most %u bytes, besides long strings", path,
                     INJECT_MEMBERS_MAX);
    }
    if (element == NULL) {
        return no_json(m, at + (size_t)error.position, error.text);
    }
    good = number < m->limits.rcpts || too_many(m, e->name);
    good = good && read_mailbox(m, e->list, path, element, e->have_values ? &values : NULL) &&
           (!e->have_values || check_rcpt(m, &m->used, number, values));
    if (good && values != NULL) {
        e->list->all[number].element = slice_of(rest.ptr, (size_t)error.position);
    }
    *ret_end = at + (size_t)error.position;
    json_decref(element);
    return good;
}

/* Reads the next elements of the array. *ret_more: more elements follow. */
static bool read_elements(struct inject_mail *m, const struct elements *e, size_t count,
                          bool *ret_more)
{
    size_t begin = m->element_at, at = json_skip_blanks(m->source, begin);

    *ret_more = false;
    if (at == e->array->to && e->list->count == 0) {
        return true;
    }
    while (count-- > 0 && at - begin < INJECT_AT_ONCE) {
        if (!read_element(m, e, at, &at)) {
            return false;
        }
        at = json_skip_blanks(m->source, at);
        if (at == e->array->to) {
            return true;
        }
        if (m->source.ptr[at] != ',') {
            return no_json(m, at + 1, "expected , or ] after an element");
        }
        at = json_skip_blanks(m->source, at + 1);
    }
    m->element_at = at;
    *ret_more = true;
    return true;
}

static struct elements elements_of(struct inject_mail *m, size_t number)
{
    struct inject_mailboxes *const lists[] = {&m->reply_to, &m->to, &m->cc, &m->bcc,
                                              &m->recipients};
    const char *name = inject_mail_arrays[number];

    return (struct elements){name, lists[number], json_document_array(m->json, name),
                             number == LIST_RECIPIENTS};
}

/* Finds all names in texts before the recipients are read, and checks their defaults. */
static bool read_names(struct inject_mail *m)
{
    bool good = find_names(m, &m->used, m->subject, "subject", true) &&
                find_names(m, &m->used, m->text, "text", false) &&
                find_names(m, &m->used, m->html, "html", false);

    for (size_t i = 0; i < m->field_count && good; i++) {
        good = find_names(m, &m->used, m->fields[i].value, "headers", true);
    }
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
        !get_values(m, m->document, "", &m->values)) {
        return false;
    }
    return read_single(m);
}

/* Reads the other members after all lists except `recipients`. */
static bool read_members(struct inject_mail *m)
{
    if (!check_lists(m)) {
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

/* Returns the memory of the mail without the parser's objects. */
static uint64_t own_memory(const struct inject_mail *m)
{
    const struct inject_mailboxes *const lists[] = {&m->from, &m->sender, &m->reply_to,  &m->to,
                                                    &m->cc,   &m->bcc,    &m->recipients};
    uint64_t bytes = sizeof *m + buf_len(&m->pool);

    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        bytes += lists[i]->size * sizeof(struct inject_mailbox);
    }
    return bytes;
}

/* Parses the document without the elements of its arrays. */
static bool parse_document(struct inject_mail *m)
{
    struct buf cut;
    json_error_t error;

    m->divided = json_document_array(m->json, "recipients") != NULL;
    buf_init(&cut, m->source.len);
    CHECK(json_document_cut(m->json, &cut)); /* it is shorter */
    if (buf_len(&cut) > INJECT_MEMBERS_MAX) {
        m->too_large = true;
        buf_fini(&cut);
        return wrong(m, "expected at most %u bytes, besides recipients and long strings",
                     INJECT_MEMBERS_MAX);
    }
    m->document = json_loadb(buf_cstr(&cut), buf_len(&cut), JSON_REJECT_DUPLICATES, &error);
    buf_fini(&cut);
    return m->document != NULL ||
           no_json(m, json_document_uncut(m->json, (size_t)error.position), error.text);
}

void inject_mail_document(struct json_document *d, size_t limit_bytes)
{
    json_document_init(d, inject_mail_arrays, limit_bytes, JSON_LONG);
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

/* Begins with the first element of list `number`. */
static void begin_list(struct inject_mail *m, size_t number)
{
    struct elements e = elements_of(m, number);

    m->list = number;
    m->element_at = e.array == NULL ? 0 : e.array->from;
}

/* Reads elements of the current list. A list that is no array has none. */
static bool read_list(struct inject_mail *m, size_t rcpts, bool *ret_more)
{
    struct elements e = elements_of(m, m->list);

    *ret_more = false;
    return e.array == NULL || read_elements(m, &e, rcpts, ret_more);
}

/* Does the work of the current stage and goes to the next one. *ret_worked: the work was not
 * small. */
static bool read_stage(struct inject_mail *m, size_t rcpts, bool *ret_worked)
{
    bool more = false, good = false;

    *ret_worked = m->source.len + m->text.len + m->html.len > LITTLE;
    switch (m->stage) {
    case INJECT_MAIL_DOCUMENT:
        good = parse_document(m) && read_document(m);
        break;
    case INJECT_MAIL_LISTS:
        good = read_list(m, rcpts, &more);
        if (!more && m->list + 1 < LIST_RECIPIENTS) {
            begin_list(m, m->list + 1);
            more = true;
        }
        break;
    case INJECT_MAIL_MEMBERS:
        good = read_members(m);
        break;
    case INJECT_MAIL_CONTENTS:
        good = check_contents(m, &more);
        *ret_worked = *ret_worked || more;
        break;
    case INJECT_MAIL_RECIPIENTS:
        good = read_list(m, rcpts, &more);
        if (good && m->divided && m->recipients.count == 0) {
            good = no_rcpts(m);
        }
        break;
    case INJECT_MAIL_READ:
        UNREACHABLE("it is complete");
    }
    if (good && !more) {
        m->stage++;
        if (m->stage == INJECT_MAIL_LISTS || m->stage == INJECT_MAIL_RECIPIENTS) {
            begin_list(m, m->stage == INJECT_MAIL_LISTS ? 0 : LIST_RECIPIENTS);
        }
    }
    return good;
}

enum inject_mail_result inject_mail_read(struct inject_mail *m, size_t rcpts, struct buf *ret_error)
{
    uint64_t before = memory_used;
    bool worked, good;

    m->error = ret_error;
    memory_max = memory_used + m->limits.memory - m->parser_memory;
    memory_refused = false;
    do {
        good = read_stage(m, rcpts, &worked);
    } while (good && !worked && m->stage != INJECT_MAIL_READ);
    memory_max = UINT64_MAX;
    m->parser_memory += memory_used - before;
    if (memory_refused) {
        (void)wrong(m, "the document takes too much memory: expected fewer objects and arrays "
                       "(inject_json_limit)");
    }
    m->error = NULL;
    if (!good) {
        return memory_refused || m->too_large ? INJECT_MAIL_TOO_LARGE
               : m->no_json                   ? INJECT_MAIL_NO_JSON
                                              : INJECT_MAIL_WRONG;
    }
    m->memory = m->parser_memory + own_memory(m);
    return m->stage == INJECT_MAIL_READ ? INJECT_MAIL_OK : INJECT_MAIL_MORE;
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

uint64_t inject_mail_header_least(const struct inject_mail *m)
{
    const struct inject_mailboxes *lists[] = {&m->to, &m->cc, &m->reply_to};
    uint64_t bytes = 0;

    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        for (size_t k = 0; k < lists[i]->count; k++) {
            const struct inject_mailbox *box = &lists[i]->all[k];

            bytes += inject_mail_address(m, box).len + box->name_len;
        }
    }
    return m->divided || inject_mail_is_whole(m) ? 0 : bytes;
}

bool inject_mail_is_divided(const struct inject_mail *m)
{
    return m->divided;
}

bool inject_mail_is_whole(const struct inject_mail *m)
{
    return m->whole.ptr != NULL;
}
