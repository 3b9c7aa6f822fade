#include "draft.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "check.h"
#include "mem.h"

/* Content goes to the memfd in pieces of this size: a peer that sends lines of one dot makes the
 * scanner hand out single bytes, and they must not cost a system call each. */
#define PIECE_SIZE 65536

/* In front of each address in the envelope; not aligned, so it is copied in and out. */
struct record {
    uint32_t notify;
    uint16_t address_len;
    uint16_t extra_len; /* of ENVID or ORCPT */
};

_Static_assert(ADDRESS_MAX <= UINT16_MAX && DSN_ORCPT_MAX <= UINT16_MAX, "lengths fit a record");
_Static_assert(DRAFT_ENVELOPE_MAX + DRAFT_INLINE_MAX + WIRE_TRACE_MAX + WIRE_HOST_MAX +
                       WIRE_URL_MAX + 1000 <
                   CHANNEL_BODY_MAX,
               "a submission fits its frame");
_Static_assert(DRAFT_INLINE_MAX <= WIRE_CONTENT_MAX, "content inside a frame has its own limit");

void draft_init(struct draft *d, struct draft_budget *budget, uint64_t inline_max)
{
    *d = (struct draft){.budget = budget, .fd = -1};
    d->inline_max = inline_max < DRAFT_INLINE_MAX ? inline_max : DRAFT_INLINE_MAX;
    buf_init(&d->envelope, DRAFT_ENVELOPE_MAX);
    buf_init(&d->content, DRAFT_INLINE_MAX + PIECE_SIZE);
}

/* Everything but the charge. */
static void release(struct draft *d)
{
    buf_fini(&d->envelope);
    buf_fini(&d->content);
    if (d->fd >= 0) {
        (void)close(d->fd); /* memory, not a file */
    }
    d->fd = -1;
    d->fd_size = 0;
    d->rcpts = 0;
}

void draft_drop(struct draft *d)
{
    release(d);
    CHECK(d->budget->used >= d->charged);
    d->budget->used -= d->charged;
    d->charged = 0;
    d->failed = false;
}

static bool fail(struct draft *d)
{
    draft_drop(d);
    d->failed = true;
    return false;
}

static bool charge(struct draft *d, uint64_t bytes)
{
    if (bytes > d->budget->max - d->budget->used) {
        return fail(d);
    }
    d->budget->used += bytes;
    d->charged += bytes;
    return true;
}

static bool add_record(struct draft *d, struct slice address, struct slice extra, uint32_t notify)
{
    struct record record = {
        .notify = notify,
        .address_len = (uint16_t)address.len,
        .extra_len = (uint16_t)extra.len,
    };

    CHECK(address.len <= ADDRESS_MAX);
    CHECK(extra.len <= DSN_ORCPT_MAX);
    if (!charge(d, sizeof record + address.len + extra.len)) {
        return false;
    }
    buf_add(&d->envelope, slice_of(&record, sizeof record));
    buf_add(&d->envelope, address);
    return buf_add(&d->envelope, extra) || fail(d);
}

/* Take the record at the front of *rest. */
static void take_record(struct slice *rest, struct wire_rcpt *ret)
{
    struct record record;

    CHECK(rest->len >= sizeof record);
    memcpy(&record, rest->ptr, sizeof record);
    *rest = slice_skip(*rest, sizeof record);
    CHECK(rest->len >= (size_t)record.address_len + record.extra_len);
    ret->address = slice_of(rest->ptr, record.address_len);
    ret->orcpt = slice_of(rest->ptr + record.address_len, record.extra_len);
    ret->notify = record.notify;
    *rest = slice_skip(*rest, (size_t)record.address_len + record.extra_len);
}

bool draft_begin(struct draft *d, struct slice sender, struct slice envid)
{
    draft_drop(d);
    return add_record(d, sender, envid, 0);
}

bool draft_add_rcpt(struct draft *d, struct slice address, struct slice orcpt, uint32_t notify)
{
    if (d->failed) {
        return false;
    }
    if (d->rcpts == WIRE_RCPTS_MAX) {
        return fail(d);
    }
    if (!add_record(d, address, orcpt, notify)) {
        return false;
    }
    d->rcpts++;
    return true;
}

/* Move what is in memory to the memfd. */
static bool write_out(struct draft *d)
{
    while (buf_len(&d->content) > 0) {
        struct slice piece = buf_slice(&d->content);
        ssize_t n = write(d->fd, piece.ptr, piece.len);

        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return fail(d);
        }
        d->fd_size += (uint64_t)n;
        buf_consume(&d->content, (size_t)n);
    }
    return true;
}

bool draft_add_content(struct draft *d, struct slice bytes)
{
    if (d->failed || !charge(d, bytes.len)) {
        return false;
    }
    if (d->fd < 0 && buf_len(&d->content) + bytes.len > d->inline_max) {
        d->fd = memfd_create("message", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        if (d->fd < 0) {
            return fail(d);
        }
    }
    while (d->fd >= 0 && bytes.len > 0) {
        size_t len = bytes.len < PIECE_SIZE ? bytes.len : PIECE_SIZE;

        CHECK(buf_add(&d->content, slice_of(bytes.ptr, len)));
        bytes = slice_skip(bytes, len);
        if (buf_len(&d->content) >= PIECE_SIZE && !write_out(d)) {
            return false;
        }
    }
    CHECK(buf_add(&d->content, bytes)); /* within inline_max, or nothing is left */
    return true;
}

bool draft_finish(struct draft *d)
{
    if (d->failed) {
        return false;
    }
    if (d->fd < 0) {
        return true;
    }
    if (!write_out(d)) {
        return false;
    }
    buf_fini(&d->content);
    /* The offset travels with the descriptor. */
    return (lseek(d->fd, 0, SEEK_SET) == 0 &&
            fcntl(d->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) ==
                0) ||
           fail(d);
}

void draft_submit(struct draft *d, struct channel *ch, struct wire_submit *m)
{
    struct slice rest = buf_slice(&d->envelope);
    struct wire_rcpt sender, *rcpts = mem_array(d->rcpts, sizeof *rcpts);

    CHECK(!d->failed);
    CHECK(d->rcpts > 0);
    CHECK(d->fd < 0 || buf_len(&d->content) == 0);
    take_record(&rest, &sender);
    for (uint32_t i = 0; i < d->rcpts; i++) {
        take_record(&rest, &rcpts[i]);
    }
    CHECK(rest.len == 0);
    m->sender = sender.address;
    m->envid = sender.orcpt;
    m->rcpts = rcpts;
    m->rcpt_count = d->rcpts;
    m->content = buf_slice(&d->content);
    m->fd_size = d->fd_size;
    wire_put_submit(ch, m, d->fd);
    mem_free(rcpts);
    d->fd = -1; /* the channel's */
    buf_fini(&d->content);
}

struct slice draft_sender(const struct draft *d)
{
    struct slice rest = buf_slice(&d->envelope);
    struct wire_rcpt sender;

    if (rest.len == 0) {
        return slice_of(NULL, 0);
    }
    take_record(&rest, &sender);
    return sender.address;
}

uint32_t draft_rcpts(const struct draft *d)
{
    return d->rcpts;
}

struct slice draft_first_rcpt(const struct draft *d)
{
    struct slice rest = buf_slice(&d->envelope);
    struct wire_rcpt record = {0};

    for (int i = 0; i < 2 && d->rcpts > 0; i++) {
        take_record(&rest, &record);
    }
    return record.address;
}
