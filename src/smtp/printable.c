#include "printable.h"

#include <string.h>

size_t utf8_length(struct slice s)
{
    const unsigned char *p = (const unsigned char *)s.ptr;
    unsigned char least = 0x80, most = 0xbf;
    size_t len;

    if (s.len == 0) {
        return 0;
    }
    if (p[0] < 0x80) {
        return 1;
    }
    /* RFC 3629, section 4: only the second byte's range depends on the first. */
    if (p[0] >= 0xc2 && p[0] <= 0xdf) {
        len = 2;
    } else if ((p[0] & 0xf0) == 0xe0) {
        len = 3;
        least = p[0] == 0xe0 ? 0xa0 : 0x80;
        most = p[0] == 0xed ? 0x9f : 0xbf;
    } else if (p[0] >= 0xf0 && p[0] <= 0xf4) {
        len = 4;
        least = p[0] == 0xf0 ? 0x90 : 0x80;
        most = p[0] == 0xf4 ? 0x8f : 0xbf;
    } else {
        return 0;
    }
    if (s.len < len || p[1] < least || p[1] > most) {
        return 0;
    }
    for (size_t i = 2; i < len; i++) {
        if ((p[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    return len;
}

void printable_fix(char *bytes, size_t len)
{
    size_t i = 0;

    while (i < len) {
        unsigned char c = (unsigned char)bytes[i];
        size_t sequence;

        if (c >= 0x20 && c < 0x7f) {
            i++;
            continue;
        }
        sequence = c < 0x80 ? 0 : utf8_length(slice_of(bytes + i, len - i));
        if (c == 0xc2 && sequence == 2 && (unsigned char)bytes[i + 1] < 0xa0) {
            memset(bytes + i, '?', 2);
        } else if (sequence == 0) {
            bytes[i] = c == '\t' ? ' ' : '?';
        }
        i += sequence == 0 ? 1 : sequence;
    }
}

bool printable_add(struct buf *out, struct slice s, size_t max)
{
    bool cut = s.len > max;
    char *room;

    if (cut) {
        s.len = max;
        while (s.len > 0 && ((unsigned char)s.ptr[s.len] & 0xc0) == 0x80) {
            s.len--; /* the byte behind the cut continues a sequence: take all of it away */
        }
    }
    room = buf_room(out, s.len);
    if (room == NULL) {
        return false;
    }
    if (s.len > 0) {
        memcpy(room, s.ptr, s.len);
        printable_fix(room, s.len);
    }
    buf_grew(out, s.len);
    return !cut || buf_add(out, SLICE("..."));
}
