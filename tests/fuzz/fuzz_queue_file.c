/*
 * Damaged and hostile queue files. Wanted, beside no crash and an end: reading goes on behind any
 * recipient, and a mark changes its record and nothing else of what is read.
 */
#include <stdint.h>
#include <string.h>

#include "check.h"
#include "mem.h"
#include "queue_file.h"

#define CURSORS 16

static struct queue_file_source over(struct slice *bytes)
{
    return (struct queue_file_source){
        .read = queue_file_read_bytes, .context = bytes, .size = bytes->len};
}

/* What was read, in one number. */
static uint64_t mix(uint64_t sum, struct slice s)
{
    for (size_t i = 0; i < s.len; i++) {
        sum = (sum ^ (unsigned char)s.ptr[i]) * UINT64_C(0x100000001b3);
    }
    return sum * 31 + s.len;
}

struct told {
    enum queue_file_read end;
    uint32_t undelivered, done, cancelled;
    uint64_t sum; /* of recipients and texts, but for the types of recipients */
    uint64_t todo_at;
    struct queue_file_cursor cursors[CURSORS];
    uint64_t offsets[CURSORS];
    size_t cursor_count;
};

static void tell(struct queue_file_reader *r, struct told *ret)
{
    struct queue_file_rcpt rcpt;

    memset(ret, 0, sizeof *ret);
    while ((ret->end = queue_file_next(r, &rcpt)) == QUEUE_FILE_READ_ITEM) {
        CHECK(rcpt.offset < r->source.size && rcpt.n == r->at.n);
        CHECK(rcpt.address.len <= QUEUE_FILE_RECORD_MAX);
        ret->sum =
            mix(mix(mix(ret->sum + rcpt.offset, rcpt.address), rcpt.original), rcpt.dsn_original) +
            rcpt.notify;
        if (rcpt.type == 'R' && ret->todo_at == 0) {
            ret->todo_at = rcpt.offset;
        }
        if (ret->cursor_count < CURSORS) {
            ret->cursors[ret->cursor_count] = queue_file_cursor(r);
            ret->offsets[ret->cursor_count++] = rcpt.offset;
        }
    }
    for (size_t i = 0; i < QUEUE_FILE_TEXTS; i++) {
        ret->sum = mix(ret->sum, r->text[i]);
    }
    ret->undelivered = r->envelope.undelivered;
    ret->done = r->envelope.done;
    ret->cancelled = r->envelope.cancelled;
    CHECK((ret->end == QUEUE_FILE_READ_CORRUPT) == (r->problem[0] != '\0'));
}

/* Each recipient that was told first is told again from behind the one before it. */
static void check_resume(struct slice *bytes, const struct queue_file_envelope *layout,
                         const struct told *whole)
{
    for (size_t i = 0; i < whole->cursor_count; i++) {
        struct queue_file_reader r;
        struct queue_file_rcpt rcpt;

        queue_file_resume(&r, over(bytes), layout, whole->cursors[i]);
        for (size_t j = i + 1; j < whole->cursor_count; j++) {
            CHECK(queue_file_next(&r, &rcpt) == QUEUE_FILE_READ_ITEM);
            CHECK(rcpt.offset == whole->offsets[j] && rcpt.n == j + 1);
        }
        queue_file_fini(&r);
    }
}

/* Without pointers that lead back no byte belongs to two records. */
static void check_mark(struct slice *bytes, const struct told *before)
{
    struct queue_file_mark mark = queue_file_mark_done(before->todo_at);
    char *copy = mem_copy(bytes->ptr, bytes->len);
    struct slice marked = slice_of(copy, bytes->len);
    struct queue_file_reader r;
    struct told after;

    CHECK(copy[mark.offset] == mark.before);
    memcpy(copy + mark.offset, mark.bytes, mark.len);
    queue_file_init(&r, over(&marked));
    tell(&r, &after);
    CHECK(after.end == QUEUE_FILE_READ_END && after.sum == before->sum);
    CHECK(after.undelivered == before->undelivered - 1 && after.done == before->done + 1);
    queue_file_fini(&r);
    mem_free(copy);
}

static void read_content(struct slice *bytes, const struct queue_file_envelope *layout)
{
    struct queue_file_reader r;
    struct slice piece;
    bool ends;

    queue_file_content_init(&r, over(bytes), layout);
    while (queue_file_content_next(&r, &piece, &ends) == QUEUE_FILE_READ_ITEM) {
        CHECK(piece.len <= QUEUE_FILE_RECORD_MAX);
    }
    queue_file_fini(&r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct slice bytes = slice_of(data, size);
    struct queue_file_reader r;
    struct told told;

    queue_file_init(&r, over(&bytes));
    tell(&r, &told);
    if (told.end == QUEUE_FILE_READ_END) {
        CHECK(r.envelope.data_offset + r.envelope.data_size < size);
        check_resume(&bytes, &r.envelope, &told);
        read_content(&bytes, &r.envelope);
        if (told.undelivered > 0 && r.at.jumps == 0) {
            check_mark(&bytes, &told);
        }
    }
    queue_file_fini(&r);
    return 0;
}
