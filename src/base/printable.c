#include "printable.h"

#include <stdint.h>
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

/* Returns the code point of a well-formed sequence. */
static uint32_t decode(const char *bytes, size_t len)
{
    static const unsigned char lead_bits[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    uint32_t c = (unsigned char)bytes[0] & lead_bits[len];

    for (size_t i = 1; i < len; i++) {
        c = c << 6 | ((unsigned char)bytes[i] & 0x3f);
    }
    return c;
}

/* Is this an invisible code point beyond ASCII that changes the text around it, or could be taken
 * for the end of a line? These are the C1 controls, U+2028 and U+2029, annotations, and all that
 * Unicode calls default ignorable (marks of direction, joiners, fillers, selectors, tags). */
static bool is_invisible(uint32_t c)
{
    static const struct {
        uint32_t first, last;
    } ranges[] = {
        {0x80, 0x9f},       {0xad, 0xad},       {0x34f, 0x34f},     {0x61c, 0x61c},
        {0x115f, 0x1160},   {0x17b4, 0x17b5},   {0x180b, 0x180f},   {0x200b, 0x200f},
        {0x2028, 0x202e},   {0x2060, 0x206f},   {0x3164, 0x3164},   {0xfdd0, 0xfdef},
        {0xfe00, 0xfe0f},   {0xfeff, 0xfeff},   {0xffa0, 0xffa0},   {0xfff0, 0xfffb},
        {0x1bca0, 0x1bca3}, {0x1d173, 0x1d17a}, {0xe0000, 0xe0fff},
    };

    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0] && c >= ranges[i].first; i++) {
        if (c <= ranges[i].last) {
            return true;
        }
    }
    return (c & 0xfffe) == 0xfffe; /* noncharacters, in each plane */
}

void printable_fix(char *bytes, size_t len)
{
    size_t i = 0;

    while (i < len) {
        unsigned char c = (unsigned char)bytes[i];
        size_t sequence;

        if (c >= 0x20 && c < 0x7f) {
            i++; /* nearly all bytes of nearly all lines */
            continue;
        }
        sequence = c < 0x80 ? 1 : utf8_length(slice_of(bytes + i, len - i));
        if (c == '\t') {
            bytes[i] = ' ';
        } else if (sequence == 0 || c < 0x80) {
            bytes[i] = '?';
        } else if (is_invisible(decode(bytes + i, sequence))) {
            memset(bytes + i, '?', sequence);
        }
        i += sequence == 0 ? 1 : sequence;
    }
}

void printable_line(char *bytes, size_t len)
{
    char *cr;

    for (char *at = bytes; (cr = memchr(at, '\r', len - (size_t)(at - bytes))) != NULL; at = cr) {
        *cr = ' ';
    }
    printable_fix(bytes, len);
}

bool printable_add(struct buf *out, struct slice s, size_t max)
{
    bool cut = s.len > max;
    char *room;

    if (cut) {
        s.len = max;
        while (s.len > 0 && ((unsigned char)s.ptr[s.len] & 0xc0) == 0x80) {
            s.len--; /* the byte after the cut continues a sequence, so the whole sequence is
                      * dropped */
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
