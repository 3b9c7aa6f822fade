#include "draft.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "address.h"
#include "check.h"
#include "hash.h"
#include "idn.h"
#include "mem.h"

/* Minimum bytes of a write to the memfd; smaller pieces are collected. A peer that sends lines of
 * one dot makes the scanner emit single bytes, which must not cost a system call each. */
#define WRITE_MIN 8192
/* Maximum bytes that are searched at once for the end of the header. */
#define PIECE_SIZE 65536

/* Record before each address in the envelope. It is not aligned, so it is copied in and out. */
struct record {
    uint16_t notify;
    uint16_t ignores_case; /* 1: the local part is compared without case */
    uint16_t address_len;
    uint16_t extra_len; /* length of ENVID or ORCPT */
};

/* Recipient of the envelope, found by the hash of its address in the form that is compared. */
struct draft_known {
    UT_hash_handle hh;
    uint64_t sum; /* key */
    size_t at;    /* offset of its record */
};

_Static_assert(ADDRESS_MAX <= UINT16_MAX && DSN_ORCPT_MAX <= UINT16_MAX, "lengths fit a record");
_Static_assert(DRAFT_ENVELOPE_MAX + DRAFT_INLINE_MAX + DRAFT_HEADER_MAX + WIRE_TRACE_MAX +
                       WIRE_HOST_MAX + WIRE_URL_MAX + 1000 <
                   CHANNEL_BODY_MAX,
               "a submission fits its frame");
_Static_assert(DRAFT_INLINE_MAX + DRAFT_HEADER_MAX <= WIRE_CONTENT_MAX,
               "content inside a frame has its own limit");

void draft_init(struct draft *d, struct draft_budget *budget, uint64_t inline_max)
{
    *d = (struct draft){.budget = budget, .fd = -1};
    d->inline_max = inline_max < DRAFT_INLINE_MAX ? inline_max : DRAFT_INLINE_MAX;
    buf_init(&d->envelope, DRAFT_ENVELOPE_MAX);
    buf_init(&d->content, DRAFT_INLINE_MAX + WRITE_MIN);
    buf_init(&d->header, DRAFT_HEADER_MAX + DRAFT_INLINE_MAX + PIECE_SIZE);
}

static void give_back(struct draft *d, uint64_t bytes)
{
    CHECK(bytes <= d->charged);
    d->charged -= bytes;
    d->budget->used -= bytes;
}

static void forget_known(struct draft *d)
{
    struct draft_known *k, *following;

    HASH_ITER(hh, d->known, k, following)
    {
        HASH_DEL(d->known, k);
        mem_free(k);
        give_back(d, sizeof *k);
    }
    d->known_end = 0;
}

/* Releases all memory; keeps the charge, except that of the hash. */
static void release(struct draft *d)
{
    forget_known(d);
    buf_fini(&d->envelope);
    buf_fini(&d->content);
    buf_fini(&d->header);
    if (d->fd >= 0) {
        (void)close(d->fd); /* memory, not a file */
    }
    d->fd = -1;
    d->fd_size = 0;
    d->rcpts = 0;
    d->apart = false;
}

void draft_drop(struct draft *d)
{
    release(d);
    give_back(d, d->charged);
    d->held = 0;
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

bool draft_reserve(struct draft *d, uint64_t bytes)
{
    return !d->failed && charge(d, bytes);
}

static bool add_record(struct draft *d, struct slice address, struct slice extra, uint32_t notify,
                       bool ignores_case)
{
    struct record record = {
        .notify = (uint16_t)notify,
        .ignores_case = ignores_case,
        .address_len = (uint16_t)address.len,
        .extra_len = (uint16_t)extra.len,
    };

    CHECK(address.len <= ADDRESS_MAX);
    CHECK(extra.len <= DSN_ORCPT_MAX);
    CHECK(notify <= UINT16_MAX);
    d->last_rcpt = buf_len(&d->envelope);
    if (!charge(d, sizeof record + address.len + extra.len)) {
        return false;
    }
    buf_add(&d->envelope, slice_of(&record, sizeof record));
    buf_add(&d->envelope, address);
    return buf_add(&d->envelope, extra) || fail(d);
}

/* Removes the record at the front of *rest and returns it in *ret. Returns true if its local part
 * is compared without case. */
static bool take_rcpt(struct slice *rest, struct wire_rcpt *ret)
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
    return record.ignores_case != 0;
}

static void take_record(struct slice *rest, struct wire_rcpt *ret)
{
    (void)take_rcpt(rest, ret); /* nothing is compared */
}

/* Writes an address in the form that is compared, and returns it. */
static struct slice compared_form(struct slice address, bool ignores_case, char room[ADDRESS_MAX])
{
    char with_a_labels[ADDRESS_MAX];
    size_t lower_from;

    CHECK(address.len <= ADDRESS_MAX);
    address = idn_address(address, with_a_labels, sizeof with_a_labels);
    lower_from = ignores_case ? 0 : address_split(address).local.len;
    for (size_t i = 0; i < address.len; i++) {
        room[i] = i < lower_from ? address.ptr[i] : ascii_lower(address.ptr[i]);
    }
    return slice_of(room, address.len);
}

/* Is the recipient that `k` refers to this one? */
static bool is_same(const struct draft *d, const struct draft_known *k, struct slice form)
{
    struct slice rest = slice_skip(buf_slice(&d->envelope), k->at);
    char room[ADDRESS_MAX];
    struct wire_rcpt other;
    bool ignores_case = take_rcpt(&rest, &other);

    return slice_equal(compared_form(other.address, ignores_case, room), form);
}

/* Adds the recipients after `known_end` to the hash. A second recipient with the same sum, which
 * only chance makes, is left out; the envelope may then have it twice. Returns false if the draft
 * has failed. */
static bool learn_rcpts(struct draft *d)
{
    struct slice all = buf_slice(&d->envelope), rest = slice_skip(all, d->known_end);
    char room[ADDRESS_MAX];
    struct wire_rcpt rcpt;

    if (d->known_end == 0) {
        take_record(&rest, &rcpt); /* the sender */
    }
    while (rest.len > 0) {
        size_t at = all.len - rest.len;
        bool ignores_case = take_rcpt(&rest, &rcpt);
        struct slice form = compared_form(rcpt.address, ignores_case, room);
        uint64_t sum = hash_bytes(form.ptr, form.len);
        struct draft_known *k;

        HASH_FIND(hh, d->known, &sum, sizeof sum, k);
        if (k != NULL) {
            continue;
        }
        if (!charge(d, sizeof *k)) {
            return false;
        }
        k = mem_new(sizeof *k);
        k->sum = sum;
        k->at = at;
        HASH_ADD(hh, d->known, sum, sizeof k->sum, k);
    }
    d->known_end = all.len;
    return true;
}

static bool is_known(const struct draft *d, struct slice address, bool ignores_case)
{
    char room[ADDRESS_MAX];
    struct slice form = compared_form(address, ignores_case, room);
    uint64_t sum = hash_bytes(form.ptr, form.len);
    struct draft_known *k;

    HASH_FIND(hh, d->known, &sum, sizeof sum, k);
    return k != NULL && is_same(d, k, form);
}

bool draft_begin(struct draft *d, struct slice sender, struct slice envid)
{
    draft_drop(d);
    return add_record(d, sender, envid, 0, false);
}

bool draft_add_rcpt(struct draft *d, const struct wire_rcpt *rcpt, bool ignores_case)
{
    if (d->failed) {
        return false;
    }
    if (d->rcpts > 0) { /* most mail has one recipient, and needs no hash */
        if (!learn_rcpts(d)) {
            return false;
        }
        if (is_known(d, rcpt->address, false) ||
            (ignores_case && is_known(d, rcpt->address, true))) {
            return true;
        }
    }
    if (d->rcpts == WIRE_RCPTS_MAX) {
        return fail(d);
    }
    if (!add_record(d, rcpt->address, rcpt->orcpt, rcpt->notify, ignores_case)) {
        return false;
    }
    d->rcpts++;
    return true;
}

static bool write_bytes(struct draft *d, struct slice bytes)
{
    while (bytes.len > 0) {
        ssize_t n = write(d->fd, bytes.ptr, bytes.len);

        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return fail(d);
        }
        d->fd_size += (uint64_t)n;
        bytes = slice_skip(bytes, (size_t)n);
    }
    return true;
}

/* Moves the content in memory to the memfd. */
static bool write_out(struct draft *d)
{
    if (!write_bytes(d, buf_slice(&d->content))) {
        return false;
    }
    buf_clear(&d->content);
    return true;
}

/* `last_rcpt` is valid, as the recipient is the last record. */
void draft_undo_rcpt(struct draft *d)
{
    if (!d->failed) {
        CHECK(d->rcpts > 0);
        if (d->known_end > d->last_rcpt) {
            forget_known(d);
        }
        give_back(d, buf_len(&d->envelope) - d->last_rcpt);
        buf_truncate(&d->envelope, d->last_rcpt);
        d->rcpts--;
    }
}

void draft_keep_header(struct draft *d)
{
    CHECK(buf_len(&d->content) == 0);
    CHECK(d->fd < 0);
    d->apart = true;
    content_init(&d->scanner, CONTENT_COUNTED);
}

static bool add_body(struct draft *d, struct slice bytes);

/* Adds bytes to `header`. After the first line that is no field, moves that line and the rest to
 * the body. */
static bool add_to_header(struct draft *d, struct slice bytes)
{
    struct slice rest = bytes, ignored;
    uint64_t header_bytes;
    size_t used, len = buf_len(&d->header), more;
    char *body;
    bool ok;

    while (rest.len > 0 && !d->scanner.facts.header_ended) { /* line by line, to scan no body */
        size_t line = slice_find(rest, '\n') + 1;

        line = line < rest.len ? line : rest.len;
        (void)content_feed(&d->scanner, slice_of(rest.ptr, line), &used,
                           &ignored); /* counted: reports no end */
        rest = slice_skip(rest, used);
    }
    header_bytes = d->scanner.facts.header_bytes;
    if (!d->scanner.facts.header_ended) {
        return (buf_add(&d->header, bytes) && len + bytes.len <= DRAFT_HEADER_MAX) || fail(d);
    }
    CHECK(header_bytes <= len + bytes.len);
    if (header_bytes > DRAFT_HEADER_MAX) {
        return fail(d);
    }
    if (header_bytes >= len) {
        more = (size_t)header_bytes - len;
        CHECK(buf_add(&d->header, slice_of(bytes.ptr, more))); /* within its limit */
        return add_body(d, slice_skip(bytes, more));
    }
    len -= (size_t)header_bytes;
    body = mem_copy(buf_slice(&d->header).ptr + header_bytes, len);
    buf_truncate(&d->header, (size_t)header_bytes);
    ok = add_body(d, slice_of(body, len)) && add_body(d, bytes);
    mem_free(body);
    return ok;
}

bool draft_add_content(struct draft *d, struct slice bytes)
{
    while (!d->failed && d->apart && !d->scanner.facts.header_ended && bytes.len > 0) {
        size_t len = bytes.len < PIECE_SIZE ? bytes.len : PIECE_SIZE;

        if (!charge(d, len) || !add_to_header(d, slice_of(bytes.ptr, len))) {
            return false;
        }
        bytes = slice_skip(bytes, len);
    }
    return !d->failed && (bytes.len == 0 || (charge(d, bytes.len) && add_body(d, bytes)));
}

static bool add_body(struct draft *d, struct slice bytes)
{
    if (d->fd < 0 && buf_len(&d->content) + bytes.len > d->inline_max) {
        d->fd = memfd_create("message", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        if (d->fd < 0) {
            return fail(d);
        }
    }
    if (d->fd >= 0 && buf_len(&d->content) + bytes.len >= WRITE_MIN) {
        return write_out(d) && write_bytes(d, bytes);
    }
    CHECK(buf_add(&d->content, bytes)); /* within inline_max, or less than WRITE_MIN */
    return true;
}

bool draft_hold(struct draft *d, uint64_t bytes)
{
    if (d->failed || (bytes > d->held && !charge(d, bytes - d->held))) {
        return false;
    }
    if (bytes < d->held) {
        give_back(d, d->held - bytes);
    }
    d->held = bytes;
    return true;
}

bool draft_finish(struct draft *d)
{
    if (d->failed) {
        return false;
    }
    if (d->apart && !d->scanner.facts.header_ended) {
        struct slice header = buf_slice(&d->header);

        content_finish(&d->scanner);
        if (d->scanner.facts.header_bytes < header.len) { /* the last line is no field */
            CHECK(buf_add(&d->content, slice_skip(header, (size_t)d->scanner.facts.header_bytes)));
            buf_truncate(&d->header, (size_t)d->scanner.facts.header_bytes);
        }
    }
    if (d->fd < 0) {
        return true;
    }
    if (!write_out(d)) {
        return false;
    }
    buf_fini(&d->content);
    /* The receiver gets the descriptor with its offset. */
    return (lseek(d->fd, 0, SEEK_SET) == 0 &&
            fcntl(d->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) ==
                0) ||
           fail(d);
}

struct wire_rcpt *draft_envelope(const struct draft *d)
{
    struct slice rest = buf_slice(&d->envelope);
    struct wire_rcpt sender, *rcpts = mem_array(d->rcpts, sizeof *rcpts);

    CHECK(!d->failed);
    take_record(&rest, &sender);
    for (uint32_t i = 0; i < d->rcpts; i++) {
        take_record(&rest, &rcpts[i]);
    }
    CHECK(rest.len == 0);
    return rcpts;
}

void draft_submit(struct draft *d, struct channel *ch, struct wire_submit *m)
{
    struct slice rest = buf_slice(&d->envelope);
    struct wire_rcpt sender, *rcpts = NULL;

    CHECK(!d->failed);
    CHECK(d->rcpts > 0);
    CHECK(d->fd < 0 || buf_len(&d->content) == 0);
    take_record(&rest, &sender);
    m->sender = m->sender.ptr == NULL ? sender.address : m->sender;
    m->envid = sender.orcpt;
    if (m->rcpts == NULL) {
        m->rcpts = rcpts = draft_envelope(d);
        m->rcpt_count = d->rcpts;
    }
    if (d->apart) {
        CHECK(buf_add(&d->header, buf_slice(&d->content))); /* its limit is the sum of both */
        buf_fini(&d->content);
    }
    m->content = buf_slice(d->apart ? &d->header : &d->content);
    m->fd_size = d->fd_size;
    wire_put_submit(ch, m, d->fd);
    mem_free(rcpts);
    d->fd = -1; /* the channel owns it */
    buf_fini(&d->content);
    buf_fini(&d->header);
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

bool draft_next_rcpt(const struct draft *d, size_t *at, struct slice *ret_address)
{
    struct slice rest = buf_slice(&d->envelope);
    struct wire_rcpt record;

    if (*at == 0 && rest.len > 0) { /* the sender's record is the first */
        struct slice behind = rest;

        take_record(&behind, &record);
        *at = rest.len - behind.len;
    }
    if (*at >= rest.len) {
        return false;
    }
    struct slice behind = slice_skip(rest, *at);

    take_record(&behind, &record);
    *at = rest.len - behind.len;
    *ret_address = record.address;
    return true;
}

/* ---- what filters change -------------------------------------------------------------------- */

static const struct slice empty_line = {"\r\n", 2};

struct slice draft_header(const struct draft *d)
{
    return buf_slice(&d->header);
}

/* Returns the length of the empty line before the body, or 0. Either the memfd has the whole body,
 * or memory has it. */
static uint64_t body_start(const struct draft *d)
{
    char start[2];

    if (d->fd < 0) {
        return slice_starts(buf_slice(&d->content), empty_line) ? empty_line.len : 0;
    }
    return pread(d->fd, start, sizeof start, 0) == sizeof start &&
                   memcmp(start, empty_line.ptr, sizeof start) == 0
               ? sizeof start
               : 0;
}

uint64_t draft_body_size(const struct draft *d)
{
    return (d->fd < 0 ? buf_len(&d->content) : d->fd_size) - body_start(d);
}

size_t draft_read_body(const struct draft *d, uint64_t offset, char *to, size_t size)
{
    struct slice content = buf_slice(&d->content);
    ssize_t n;

    offset += body_start(d);
    if (d->fd < 0) {
        content = slice_skip(content, offset < content.len ? (size_t)offset : content.len);
        size = content.len < size ? content.len : size;
        memcpy(to, content.ptr, size);
        return size;
    }
    do {
        n = pread(d->fd, to, size, (off_t)offset);
    } while (n < 0 && errno == EINTR);
    return n < 0 ? 0 : (size_t)n;
}

bool draft_set_header(struct draft *d, struct slice header)
{
    bool had_none = buf_len(&d->header) == 0;

    CHECK(d->apart);
    if (d->failed || header.len > DRAFT_HEADER_MAX || !charge(d, header.len)) {
        return d->failed ? false : fail(d);
    }
    give_back(d, buf_len(&d->header));
    buf_clear(&d->header);
    CHECK(buf_add(&d->header, header)); /* within DRAFT_HEADER_MAX */
    /* Add the empty line if it is missing and a body follows, or if the header was empty before. */
    if (body_start(d) == 0 && (had_none || draft_body_size(d) > 0)) {
        (void)buf_add(&d->header, empty_line); /* there is room */
    }
    return true;
}

/* Builds the envelope again, without the recipients `*without`, and with sender `*sender`. NULL
 * changes nothing. Sets *ret_removed to the number of recipients removed. */
static bool rewrite(struct draft *d, const struct slice *sender, const struct slice *without,
                    uint32_t *ret_removed)
{
    struct buf old = d->envelope;
    struct slice rest = buf_slice(&old);
    struct wire_rcpt record;
    bool ok, ignores_case;

    *ret_removed = 0;
    forget_known(d);
    buf_init(&d->envelope, DRAFT_ENVELOPE_MAX);
    take_record(&rest, &record);
    ok = add_record(d, sender != NULL ? *sender : record.address, record.orcpt, 0, false);
    while (ok && rest.len > 0) {
        ignores_case = take_rcpt(&rest, &record);
        if (without != NULL && slice_equal_nocase(record.address, *without)) {
            (*ret_removed)++;
            d->rcpts--;
        } else {
            ok = add_record(d, record.address, record.orcpt, record.notify, ignores_case);
        }
    }
    if (ok) {
        give_back(d, buf_len(&old));
    }
    buf_fini(&old);
    return ok;
}

bool draft_set_sender(struct draft *d, struct slice sender)
{
    uint32_t removed;

    return !d->failed && rewrite(d, &sender, NULL, &removed);
}

uint32_t draft_remove_rcpt(struct draft *d, struct slice address)
{
    uint32_t removed = 0;

    if (!d->failed) {
        (void)rewrite(d, NULL, &address, &removed); /* a failed draft shows later */
    }
    return removed;
}

void draft_move_body(struct draft *d, struct draft *from)
{
    CHECK(d->budget == from->budget);
    CHECK(!d->failed);
    CHECK(!from->failed);
    buf_fini(&d->content);
    if (d->fd >= 0) {
        (void)close(d->fd); /* memory, not a file */
    }
    d->content = from->content;
    d->fd = from->fd;
    d->fd_size = from->fd_size;
    d->charged += from->charged; /* the charge of the old body ends with the draft */
    from->charged = 0;
    from->fd = -1;
    buf_init(&from->content, DRAFT_INLINE_MAX + WRITE_MIN);
    draft_drop(from);
}
