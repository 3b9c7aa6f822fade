#include "idn.h"

#include <idn2.h>
#include <stdint.h>
#include <string.h>

/* Bytes of a label that are looked at: 63 code points of UTF-8 have at most 252. */
#define LABEL_MAX 252

/* Can the label have an A-label? Brackets and marks of patterns are no part of a name. */
static bool is_u_label(struct slice label)
{
    bool found = false;

    for (size_t i = 0; i < label.len; i++) {
        if ((unsigned char)label.ptr[i] > 0x7f) {
            found = true;
        } else if (!ascii_is_alnum(label.ptr[i]) && label.ptr[i] != '-' && label.ptr[i] != '_') {
            return false;
        }
    }
    return found && label.len <= LABEL_MAX;
}

static bool is_ascii(struct slice s)
{
    for (size_t i = 0; i < s.len; i++) {
        if ((unsigned char)s.ptr[i] > 0x7f) {
            return false;
        }
    }
    return true;
}

/* Appends bytes to *used bytes of the room. Returns whether they fit. */
static bool put(char *room, size_t size, size_t *used, struct slice bytes)
{
    if (bytes.len > size - *used) {
        return false;
    }
    memcpy(room + *used, bytes.ptr, bytes.len);
    *used += bytes.len;
    return true;
}

/* Is the text a label of a name? The mapping makes @, > or a space of their wide forms, which would
 * then be a part of a command. */
static bool is_label(struct slice text)
{
    for (size_t i = 0; i < text.len; i++) {
        if (!ascii_is_alnum(text.ptr[i]) && text.ptr[i] != '-' && text.ptr[i] != '_') {
            return false;
        }
    }
    return text.len > 0;
}

static bool put_label(char *room, size_t size, size_t *used, struct slice label)
{
    char text[LABEL_MAX + 1];
    uint8_t *found = NULL;
    bool fits;

    if (!is_u_label(label)) {
        return put(room, size, used, label);
    }
    memcpy(text, label.ptr, label.len);
    text[label.len] = '\0';
    if (idn2_lookup_u8((const uint8_t *)text, &found, IDN2_NFC_INPUT | IDN2_NONTRANSITIONAL) !=
        IDN2_OK) {
        return put(room, size, used, label);
    }
    if (is_label(slice_string((const char *)found))) {
        label = slice_string((const char *)found);
    }
    fits = put(room, size, used, label);
    idn2_free(found);
    return fits;
}

struct slice idn_domain(struct slice name, char *room, size_t size)
{
    size_t used = 0;

    if (is_ascii(name)) {
        return name;
    }
    for (struct slice rest = name; rest.len > 0;) {
        struct slice label = slice_of(rest.ptr, slice_find(rest, '.'));

        if (!put_label(room, size, &used, label)) {
            return name;
        }
        rest = slice_skip(rest, label.len);
        if (rest.len > 0) {
            if (!put(room, size, &used, SLICE("."))) {
                return name;
            }
            rest = slice_skip(rest, 1);
        }
    }
    return slice_of(room, used);
}

struct slice idn_address(struct slice address, char *room, size_t size)
{
    size_t at = slice_find_last(address, '@');
    size_t local = at == address.len ? 0 : at + 1;
    struct slice domain = slice_skip(address, local), found;

    if (is_ascii(domain) || local > size) {
        return address;
    }
    found = idn_domain(domain, room + local, size - local);
    if (found.ptr == domain.ptr) {
        return address;
    }
    if (local > 0) {
        memcpy(room, address.ptr, local);
    }
    return slice_of(room, local + found.len);
}
