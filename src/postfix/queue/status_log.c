#include "status_log.h"

#include <inttypes.h>
#include <stddef.h>
#include <string.h>

#define NOTIFY_ALL 15

struct field {
    const char *name;
    size_t offset; /* offset of a slice in struct status_log_entry */
};

#define FIELD(name, member)                                                                        \
    {                                                                                              \
        name, offsetof(struct status_log_entry, member)                                            \
    }

/* Fields in the order of bounce(8); "offset" follows the second, "notify_flags" the third. */
static const struct field fields[] = {
    FIELD("recipient", recipient),
    FIELD("original_recipient", original),
    FIELD("dsn_orig_rcpt", dsn_original),
    FIELD("status", status),
    FIELD("action", action),
    FIELD("diag_type", diag_type),
    FIELD("diag_text", diag_text),
    FIELD("mta_type", mta_type),
    FIELD("mta_mname", mta_mname),
    FIELD("reason", reason),
};
#define FIELD_COUNT (sizeof fields / sizeof fields[0])

static struct slice *field_of(struct status_log_entry *e, size_t i)
{
    return (struct slice *)(void *)((char *)e + fields[i].offset);
}

static void put_line(struct status_log_entry *e, struct slice line)
{
    size_t at = slice_find(line, '=');
    struct slice name = slice_of(line.ptr, at), value = slice_skip(line, at + 1);
    unsigned long long n;

    if (at == line.len) {
        return;
    }
    if (slice_equal(name, SLICE("offset")) && slice_number(value, INT64_MAX, &n)) {
        e->offset = n;
    } else if (slice_equal(name, SLICE("notify_flags")) && slice_number(value, NOTIFY_ALL, &n)) {
        e->notify = (unsigned)n;
    }
    for (size_t i = 0; i < FIELD_COUNT; i++) {
        if (slice_equal(name, slice_string(fields[i].name))) {
            *field_of(e, i) = value;
        }
    }
}

bool status_log_next(struct slice *rest, struct status_log_entry *ret_entry)
{
    struct status_log_entry e = {0};

    while (rest->len > 0) {
        struct slice line = slice_cut(rest, '\n');

        if (line.len > 0) {
            put_line(&e, line);
        }
        if ((line.len == 0 || rest->len == 0) && e.recipient.len > 0) {
            *ret_entry = e;
            return true;
        }
        if (line.len == 0) {
            e = (struct status_log_entry){0};
        }
    }
    return false;
}

static void put_text(struct buf *out, struct slice text)
{
    for (size_t i = 0; i < text.len; i++) {
        (void)buf_add_byte(out, text.ptr[i] == '\n' || text.ptr[i] == '\r' || text.ptr[i] == '\0'
                                    ? ' '
                                    : text.ptr[i]); /* errors are sticky */
    }
}

void status_log_put(struct buf *out, const struct status_log_entry *e)
{
    struct status_log_entry copy = *e;

    (void)buf_add_string(out, "\n<"); /* errors are sticky */
    put_text(out, e->recipient);
    (void)buf_add_string(out, ">: ");
    put_text(out, e->reason);
    (void)buf_add_byte(out, '\n');
    for (size_t i = 0; i < FIELD_COUNT; i++) {
        struct slice value = *field_of(&copy, i);

        if (value.len > 0) {
            (void)buf_addf(out, "%s=", fields[i].name);
            put_text(out, value);
            (void)buf_add_byte(out, '\n');
        }
        if (i == 1 && e->offset > 0) {
            (void)buf_addf(out, "offset=%" PRIu64 "\n", e->offset);
        }
        if (i == 2 && e->notify > 0) {
            (void)buf_addf(out, "notify_flags=%u\n", e->notify);
        }
    }
}
