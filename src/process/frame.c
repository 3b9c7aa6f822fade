#include "frame.h"

#include <endian.h>
#include <string.h>

void frame_reader_init(struct frame_reader *r, struct slice body)
{
    *r = (struct frame_reader){.rest = body};
}

static bool take(struct frame_reader *r, void *to, size_t size)
{
    if (r->failed || r->rest.len < size) {
        r->failed = true;
        return false;
    }
    memcpy(to, r->rest.ptr, size);
    r->rest = slice_skip(r->rest, size);
    return true;
}

uint8_t frame_get_u8(struct frame_reader *r)
{
    uint8_t value = 0;

    return take(r, &value, sizeof value) ? value : 0;
}

uint32_t frame_get_u32(struct frame_reader *r)
{
    uint32_t value = 0;

    return take(r, &value, sizeof value) ? le32toh(value) : 0;
}

uint64_t frame_get_u64(struct frame_reader *r)
{
    uint64_t value = 0;

    return take(r, &value, sizeof value) ? le64toh(value) : 0;
}

int64_t frame_get_i64(struct frame_reader *r)
{
    return (int64_t)frame_get_u64(r);
}

bool frame_get_bool(struct frame_reader *r)
{
    uint8_t value = frame_get_u8(r);

    if (value > 1) {
        r->failed = true;
    }
    return value == 1;
}

struct slice frame_get_bytes(struct frame_reader *r, size_t max)
{
    uint32_t len = frame_get_u32(r);
    struct slice bytes;

    if (r->failed || len > max || len > r->rest.len) {
        r->failed = true;
        return slice_of("", 0);
    }
    bytes = slice_of(r->rest.ptr, len);
    r->rest = slice_skip(r->rest, len);
    return bytes;
}

uint32_t frame_get_count(struct frame_reader *r, size_t element_min, uint32_t max)
{
    uint32_t count = frame_get_u32(r);

    if (r->failed || count > max || count > r->rest.len / element_min) {
        r->failed = true;
        return 0;
    }
    return count;
}

bool frame_reader_end(const struct frame_reader *r)
{
    return !r->failed && r->rest.len == 0;
}

void frame_put_u8(struct buf *b, uint8_t value)
{
    (void)buf_add(b, slice_of(&value, sizeof value)); /* sticky error */
}

void frame_put_u32(struct buf *b, uint32_t value)
{
    value = htole32(value);
    (void)buf_add(b, slice_of(&value, sizeof value)); /* sticky error */
}

void frame_put_u64(struct buf *b, uint64_t value)
{
    value = htole64(value);
    (void)buf_add(b, slice_of(&value, sizeof value)); /* sticky error */
}

void frame_put_i64(struct buf *b, int64_t value)
{
    frame_put_u64(b, (uint64_t)value);
}

void frame_put_bool(struct buf *b, bool value)
{
    frame_put_u8(b, value ? 1 : 0);
}

void frame_put_bytes(struct buf *b, struct slice bytes)
{
    if (bytes.len > UINT32_MAX) {
        b->failed = true;
        return;
    }
    frame_put_u32(b, (uint32_t)bytes.len);
    (void)buf_add(b, bytes); /* sticky error */
}
