#include "attributes.h"

#include <string.h>

#include "check.h"

/* ---- writing ---- */

/* Appends to a buf may fail. Such an error is sticky, and the caller checks it at the end. */

static void put_name(struct buf *out, const char *name)
{
    (void)buf_add(out, slice_of(name, strlen(name) + 1));
}

void attributes_put(struct buf *out, const char *name, struct slice value)
{
    size_t name_len = strlen(name) + 1;
    char *room;

    value.len = slice_find(value, '\0');
    room = buf_room(out, name_len + value.len + 1);
    if (room != NULL) {
        memcpy(room, name, name_len);
        if (value.len > 0) {
            memcpy(room + name_len, value.ptr, value.len);
        }
        room[name_len + value.len] = '\0';
        buf_grew(out, name_len + value.len + 1);
    }
}

void attributes_put_int(struct buf *out, const char *name, int32_t value)
{
    attributes_put_size(out, name, (uint32_t)value);
}

void attributes_put_size(struct buf *out, const char *name, uint64_t value)
{
    char digits[20 + 1] = ""; /* digits of the largest number, and a NUL */
    size_t at = sizeof digits - 1;

    do {
        digits[--at] = (char)('0' + value % 10);
        value /= 10;
    } while (value > 0);
    put_name(out, name);
    (void)buf_add(out, slice_of(digits + at, sizeof digits - at));
}

void attributes_put_data(struct buf *out, const char *name, const void *bytes, size_t len)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *at = bytes;
    char *room;

    CHECK(len <= ATTRIBUTES_LIST_MAX);
    put_name(out, name);
    room = buf_room(out, (len + 2) / 3 * 4 + 1);
    if (room == NULL) {
        return;
    }
    for (size_t i = 0; i < len; i += 3) {
        size_t have = len - i < 3 ? len - i : 3;
        unsigned bits = (unsigned)at[i] << 16 | (have > 1 ? (unsigned)at[i + 1] << 8 : 0) |
                        (have > 2 ? (unsigned)at[i + 2] : 0);

        *room++ = digits[bits >> 18];
        *room++ = digits[bits >> 12 & 63];
        *room++ = have > 1 ? digits[bits >> 6 & 63] : '=';
        *room++ = have > 2 ? digits[bits & 63] : '=';
    }
    *room = '\0';
    buf_grew(out, (len + 2) / 3 * 4 + 1);
}

void attributes_end(struct buf *out)
{
    (void)buf_add_byte(out, '\0');
}

/* ---- reading ---- */

enum attributes_event attributes_scan(struct attributes_scan *scan, struct slice in,
                                      size_t *ret_len)
{
    CHECK(scan->at <= in.len);
    while (scan->at < in.len) {
        bool is_nul = in.ptr[scan->at++] == '\0';

        if (is_nul && !scan->in_value && !scan->in_name) {
            *ret_len = scan->at;
            *scan = (struct attributes_scan){0};
            return *ret_len <= ATTRIBUTES_LIST_MAX ? ATTRIBUTES_LIST : ATTRIBUTES_BAD;
        }
        if (is_nul) {
            scan->in_value = scan->in_name; /* the value follows the name */
            scan->in_name = false;
        } else {
            scan->in_name = !scan->in_value;
        }
    }
    if (in.len > ATTRIBUTES_LIST_MAX) {
        *scan = (struct attributes_scan){0};
        return ATTRIBUTES_BAD;
    }
    return ATTRIBUTES_MORE;
}

bool attributes_take(struct slice *list, const char *name, struct slice *ret_value)
{
    struct slice rest = *list;
    size_t len = strlen(name), end;

    if (rest.len <= len || memcmp(rest.ptr, name, len + 1) != 0) {
        return false;
    }
    rest = slice_skip(rest, len + 1);
    end = slice_find(rest, '\0');
    if (end == rest.len) {
        return false; /* the list is not complete */
    }
    *ret_value = slice_of(rest.ptr, end);
    *list = slice_skip(rest, end + 1);
    return true;
}

bool attributes_take_int(struct slice *list, const char *name, int32_t *ret_value)
{
    struct slice rest = *list, value;
    unsigned long long number;

    if (!attributes_take(&rest, name, &value) || !slice_number(value, UINT32_MAX, &number)) {
        return false;
    }
    *list = rest;
    *ret_value =
        number <= INT32_MAX ? (int32_t)number : (int32_t)((int64_t)number - (INT64_C(1) << 32));
    return true;
}

bool attributes_at_end(struct slice list)
{
    return list.len == 1 && list.ptr[0] == '\0';
}
