#include "status.h"

#include <stdio.h>
#include <sysexits.h>

#define PART_MAX 999 /* RFC 3463, section 2: one to three digits */

/* Takes one to three digits from the front of *s, without superfluous zeros. */
static bool take_part(struct slice *s, uint16_t *ret_part)
{
    unsigned value = 0;
    size_t len = 0;

    while (len < s->len && len <= 3 && ascii_is_digit(s->ptr[len])) {
        value = value * 10 + (unsigned)(s->ptr[len] - '0');
        len++;
    }
    if (len == 0 || len > 3 || (len > 1 && s->ptr[0] == '0')) {
        return false;
    }
    *ret_part = (uint16_t)value;
    *s = slice_skip(*s, len);
    return true;
}

static bool take_dot(struct slice *s)
{
    if (s->len == 0 || s->ptr[0] != '.') {
        return false;
    }
    *s = slice_skip(*s, 1);
    return true;
}

bool status_prefix(struct slice text, struct status *ret_status, size_t *ret_len)
{
    struct slice rest = text;
    struct status s;

    if (!take_part(&rest, &s.class) || !take_dot(&rest) || !take_part(&rest, &s.subject) ||
        !take_dot(&rest) || !take_part(&rest, &s.detail)) {
        return false;
    }
    if (s.class != STATUS_SUCCESS && s.class != STATUS_TRANSIENT && s.class != STATUS_PERMANENT) {
        return false;
    }
    if (rest.len > 0 && rest.ptr[0] != ' ' && rest.ptr[0] != '\t') {
        return false;
    }
    *ret_status = s;
    *ret_len = text.len - rest.len;
    return true;
}

bool status_parse(struct slice text, struct status *ret_status)
{
    struct status s;
    size_t len;

    if (!status_prefix(text, &s, &len) || len != text.len) {
        return false;
    }
    *ret_status = s;
    return true;
}

static bool starts_word(char before)
{
    return before == ' ' || before == '\t' || before == '-';
}

bool status_find(struct slice text, enum status_class class, struct status *ret_status)
{
    for (size_t i = 0; i < text.len; i++) {
        struct status s;
        size_t len;

        if ((i == 0 || starts_word(text.ptr[i - 1])) &&
            status_prefix(slice_skip(text, i), &s, &len) && s.class == class) {
            *ret_status = s;
            return true;
        }
    }
    return false;
}

const char *status_print(struct status s, char out[STATUS_SIZE])
{
    if (s.class == STATUS_NONE) {
        out[0] = '\0';
    } else {
        (void)snprintf(out, STATUS_SIZE, "%u.%u.%u", s.class % 10U, s.subject % (PART_MAX + 1U),
                       s.detail % (PART_MAX + 1U)); /* bounded by the remainders */
    }
    return out;
}

struct status status_of_reply(unsigned code)
{
    switch (code / 100) {
    case 2:
        return (struct status){STATUS_SUCCESS, 0, 0};
    case 5:
        return (struct status){STATUS_PERMANENT, 0, 0};
    default:
        return (struct status){STATUS_TRANSIENT, 0, 0};
    }
}

struct status status_repair(struct status s, enum status_class class)
{
    return s.class == class ? s : (struct status){(uint16_t) class, 0, 0};
}

struct status status_of_exit(int exit_status, const char **ret_text)
{
    static const struct {
        int exit_status;
        struct status status;
        const char *text;
    } table[] = {
        {EX_OK, {2, 0, 0}, "delivered"},
        {EX_USAGE, {4, 3, 0}, "command line usage error"},
        {EX_DATAERR, {5, 6, 0}, "data format error"},
        {EX_NOINPUT, {4, 3, 0}, "cannot open input"},
        {EX_NOUSER, {5, 1, 1}, "user unknown"},
        {EX_NOHOST, {5, 1, 2}, "host name unknown"},
        {EX_UNAVAILABLE, {5, 3, 0}, "service unavailable"},
        {EX_SOFTWARE, {4, 3, 0}, "internal software error"},
        {EX_OSERR, {4, 3, 0}, "system resource problem"},
        {EX_OSFILE, {4, 3, 0}, "critical system file missing"},
        {EX_CANTCREAT, {4, 2, 0}, "cannot create user output file"},
        {EX_IOERR, {4, 3, 0}, "input/output error"},
        {EX_TEMPFAIL, {4, 3, 0}, "temporary failure"},
        {EX_PROTOCOL, {5, 5, 0}, "remote error in protocol"},
        {EX_NOPERM, {5, 7, 0}, "permission denied"},
        {EX_CONFIG, {4, 3, 5}, "local configuration error"},
    };

    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        if (table[i].exit_status == exit_status) {
            *ret_text = table[i].text;
            return table[i].status;
        }
    }
    *ret_text = "unknown mail system error";
    return (struct status){STATUS_TRANSIENT, 3, 0};
}
