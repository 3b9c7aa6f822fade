/*
 * The bytes, all numbers little-endian; sums are XXH3-64:
 *
 *      segment    0 "SLUICE segment\n\0"    16 version u32      20 its number u32    24 tag u64
 *                32 0 u64     40 0 u64      48 0 u64           56 sum of the 56 before
 *                64 zeros up to 4096
 *
 *      record     0 "SREC"                   4 segment u32      8 its place u64     16 tag u64
 *                24 id u64    32 size u64   40 sum of content  48 0 u64
 *                56 sum of the 56 before    64 content
 *
 * The next record begins at the next multiple of 64.
 */
#include "segments.h"

#include <dirent.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include <xxhash.h>

#include "check.h"
#include "mem.h"
#include "numbered_file.h"

#define VERSION       1
#define PIECE         ((size_t)1 << 18) /* bytes per write and read: few enough for the L2 cache */
#define SEGMENT_MAGIC "SLUICE segment\n"
#define RECORD_MAGIC  "SREC"
#define SUFFIX        "segment"
#define CONTENT_SHARE 4 /* content that needs more than a fourth of a segment gets its own file */

_Static_assert(sizeof SEGMENT_MAGIC == 16 && SEGMENT_HEADER <= SEGMENT_START, "headers as drawn");
_Static_assert(PIECE % SEGMENT_START == 0, "pieces end with pages");

static void put32(char *at, uint32_t n)
{
    n = htole32(n);
    memcpy(at, &n, sizeof n);
}

static void put64(char *at, uint64_t n)
{
    n = htole64(n);
    memcpy(at, &n, sizeof n);
}

static uint64_t round_up(uint64_t n, uint64_t to)
{
    return (n + to - 1) / to * to;
}

/* ---- headers -------------------------------------------------------------------------------- */

static void segment_header(const struct segments *sg, uint32_t number, char h[SEGMENT_HEADER])
{
    memset(h, 0, SEGMENT_HEADER);
    memcpy(h, SEGMENT_MAGIC, sizeof SEGMENT_MAGIC);
    put32(h + 16, VERSION);
    put32(h + 20, number);
    put64(h + 24, sg->tag);
    put64(h + 56, XXH3_64bits(h, 56));
}

/* Fills in the header except the content's sum and its own. */
static void record_header(const struct segments *sg, struct segment_place place, struct msg_id id,
                          uint64_t size, char h[SEGMENT_HEADER])
{
    memset(h, 0, SEGMENT_HEADER);
    memcpy(h, RECORD_MAGIC, 4);
    put32(h + 4, place.segment);
    put64(h + 8, place.at);
    put64(h + 16, sg->tag);
    put64(h + 24, id.n);
    put64(h + 32, size);
}

static void record_header_end(char h[SEGMENT_HEADER], uint64_t checksum)
{
    put64(h + 40, checksum);
    put64(h + 56, XXH3_64bits(h, 56));
}

/* ---- files ---------------------------------------------------------------------------------- */

static void close_active(struct segments *sg)
{
    if (sg->fd >= 0) {
        (void)sg->io->close(sg->fd); /* synced, or abandoned */
    }
    sg->fd = -1;
    sg->unsynced = false;
    sg->active = NULL;
}

/* Is there a segment of this spool with that number? */
static bool is_ours(struct segments *sg, uint32_t number, uint64_t *ret_size)
{
    char want[SEGMENT_HEADER], found[SEGMENT_HEADER];
    int fd = numbered_file_open(sg->io, sg->dir, number, SUFFIX, O_RDONLY);
    bool ours;

    *ret_size = 0;
    if (fd < 0) {
        return false;
    }
    segment_header(sg, number, want);
    ours = sg->io->fstat_size(fd, ret_size) == 0 &&
           spool_io_read_all(sg->io, fd, found, SEGMENT_HEADER, 0) == 0 &&
           memcmp(want, found, SEGMENT_HEADER) == 0;
    (void)sg->io->close(fd); /* opened for reading */
    return ours;
}

/* ---- segments ------------------------------------------------------------------------------- */

static struct segment *find(struct segments *sg, uint32_t number)
{
    struct segment *s;

    HASH_FIND(hh, sg->all, &number, sizeof number, s);
    return s;
}

static struct segment *add(struct segments *sg, uint32_t number)
{
    struct segment *s = mem_new(sizeof *s);

    s->number = number;
    s->used = SEGMENT_START;
    HASH_ADD(hh, sg->all, number, sizeof s->number, s);
    sg->highest = number > sg->highest ? number : sg->highest;
    return s;
}

static void forget(struct segments *sg, struct segment *s)
{
    HASH_DEL(sg->all, s);
    mem_free(s);
}

/* A failure has no consequences: the next start finds the file. */
static void remove_segment(struct segments *sg, struct segment *s)
{
    char *path = numbered_file_path(sg->dir, s->number, SUFFIX);

    (void)sg->io->unlink(path);
    mem_free(path);
    forget(sg, s);
}

/* Frees a segment without live messages. */
static void use_again(struct segments *sg, struct segment *s)
{
    s->used = SEGMENT_START;
    s->bytes = 0;
    s->can_not_empty = false;
    if (s->state == SEGMENT_FOREIGN) {
        forget(sg, s);
    } else if (s->state == SEGMENT_FULL && (s->failed || sg->spares >= SEGMENT_SPARES)) {
        remove_segment(sg, s);
    } else if (s->state == SEGMENT_FULL) {
        s->state = SEGMENT_SPARE;
        sg->spares++;
    }
}

void segments_tidy(struct segments *sg)
{
    struct segment *s, *next;

    CHECK(sg->appended.count == 0);
    if (!sg->some_empty || numbered_file_keep(sg->io, sg->dir)) {
        return;
    }
    sg->some_empty = false;
    HASH_ITER(hh, sg->all, s, next)
    {
        if (s->messages == 0 && s->state != SEGMENT_SPARE) {
            use_again(sg, s);
        }
    }
}

/* ---- start and end -------------------------------------------------------------------------- */

void segments_init(struct segments *sg, const struct spool_io *io, const char *dir, uint64_t tag,
                   uint64_t segment_bytes)
{
    *sg = (struct segments){.io = io, .dir = mem_string(dir), .tag = tag, .fd = -1, .why = ""};
    sg->segment_bytes = segment_bytes == 0 ? SEGMENT_BYTES : segment_bytes;
    CHECK(sg->segment_bytes % SEGMENT_START == 0 && sg->segment_bytes >= 4 * SEGMENT_START &&
          sg->segment_bytes <= UINT64_C(1) << 40);
}

void segments_fini(struct segments *sg)
{
    struct segment *s, *next;

    close_active(sg);
    HASH_ITER(hh, sg->all, s, next)
    {
        forget(sg, s);
    }
    mem_free(sg->appended.all);
    mem_free(sg->released.all);
    mem_free(sg->piece);
    mem_free(sg->dir);
}

void segments_count(struct segments *sg, uint32_t segment, uint64_t messages, uint64_t bytes,
                    uint64_t end)
{
    struct segment *s = find(sg, segment);

    CHECK(segment > 0 && segment <= SEGMENT_NUMBER_MAX);
    if (s == NULL) {
        s = add(sg, segment);
        s->state = SEGMENT_FOREIGN; /* until its file is found */
    }
    end = round_up(end < sg->segment_bytes ? end : sg->segment_bytes, SEGMENT_START);
    s->used = end > s->used ? end : s->used;
    s->messages += messages;
    s->bytes += bytes;
}

/* Registers a file with the name of a segment. */
static void take_file(struct segments *sg, uint32_t number, bool keep)
{
    struct segment *s = find(sg, number);
    uint64_t size;
    bool ours = is_ours(sg, number, &size);

    sg->highest = number > sg->highest ? number : sg->highest; /* the name is taken */
    if (s == NULL && !ours && size >= SEGMENT_START) {
        return; /* not a segment of this spool */
    }
    if (s == NULL) {
        s = add(sg, number);
        s->state = SEGMENT_FULL;
        sg->some_empty = true;
    }
    s->allocated = size;
    if (ours) {
        s->state = SEGMENT_FULL;
    } else if (s->messages == 0) {
        remove_segment(sg, s); /* its creation was interrupted, so it never held anything */
        return;
    }
    if (keep && size > s->used) {
        s->used = round_up(size < sg->segment_bytes ? size : sg->segment_bytes, SEGMENT_START);
    }
}

int segments_keep(struct segments *sg)
{
    char *path = numbered_file_beside(sg->dir, "keep");
    int fd = sg->io->open(path, O_WRONLY | O_CREAT, 0600);

    mem_free(path);
    if (fd >= 0) {
        (void)sg->io->close(fd); /* nothing was written */
    }
    return fd < 0 && fd != -ENOENT ? fd : 0;
}

int segments_begin(struct segments *sg)
{
    DIR *dir = opendir(sg->dir);
    struct dirent *entry;
    uint32_t number;
    bool keep;

    if (dir == NULL) {
        return errno == ENOENT ? 0 : -errno;
    }
    keep = numbered_file_keep(sg->io, sg->dir);
    while ((entry = readdir(dir)) != NULL) {
        if (numbered_file_parse(entry->d_name, SUFFIX, &number)) {
            take_file(sg, number, keep);
        }
    }
    closedir(dir);
    sg->poor_unknown = true;
    segments_tidy(sg);
    return 0;
}

/* ---- where to append ------------------------------------------------------------------------ */

/* Creates a segment: a file that begins with its header, durable with its name. */
static int make_segment(struct segments *sg)
{
    uint32_t number = sg->highest + 1;
    char *header = mem_new(SEGMENT_START);
    int fd;

    segment_header(sg, number, header);
    fd = numbered_file_create(sg->io, sg->dir, number, SUFFIX, slice_of(header, SEGMENT_START));
    mem_free(header);
    if (fd < 0) {
        return fd;
    }
    sg->active = add(sg, number);
    sg->active->state = SEGMENT_ACTIVE;
    sg->active->allocated = SEGMENT_START;
    sg->fd = fd;
    return 0;
}

static bool activate(struct segments *sg, struct segment *s)
{
    CHECK(sg->active == NULL && s->state == SEGMENT_FULL);
    sg->fd = numbered_file_open(sg->io, sg->dir, s->number, SUFFIX, O_RDWR);
    if (sg->fd < 0) {
        s->failed = true;
        return false;
    }
    s->state = SEGMENT_ACTIVE;
    sg->active = s;
    return true;
}

/* Activates an empty segment whose file has at least `allocated` bytes. Returns false if there is
 * none. */
static bool take_spare(struct segments *sg, uint64_t allocated)
{
    struct segment *s, *next, *best = NULL;

    HASH_ITER(hh, sg->all, s, next)
    {
        if (s->state == SEGMENT_SPARE && s->allocated >= allocated &&
            (best == NULL || s->number < best->number)) {
            best = s;
        }
    }
    if (best == NULL) {
        return false;
    }
    sg->spares--;
    best->state = SEGMENT_FULL;
    return activate(sg, best);
}

/* Closes the active segment for writing. */
static void end_active(struct segments *sg)
{
    int err;

    if (sg->active == NULL) {
        return;
    }
    err = sg->unsynced ? sg->io->fdatasync(sg->fd) : 0;
    if (err != 0) {
        sg->sync_error = err; /* a sync reports an error only once, so the batch is lost */
    }
    sg->active->state = SEGMENT_FULL;
    sg->some_empty = sg->some_empty || sg->active->messages == 0;
    close_active(sg);
}

/* Activates a segment that was closed early: the last one before a restart, or one that could not
 * grow on a full disk. */
static bool take_half_full(struct segments *sg)
{
    struct segment *s, *next, *best = NULL;

    HASH_ITER(hh, sg->all, s, next)
    {
        if (s->state == SEGMENT_FULL && s->messages > 0 && !s->failed &&
            s->used < sg->segment_bytes / 2 && (best == NULL || s->number < best->number)) {
            best = s;
        }
    }
    return best != NULL && activate(sg, best);
}

static int need_active(struct segments *sg, uint64_t size)
{
    if (sg->active != NULL && sg->active->used + SEGMENT_HEADER + size > sg->segment_bytes) {
        end_active(sg);
    }
    if (sg->active != NULL || take_half_full(sg) || take_spare(sg, 0)) {
        return 0;
    }
    return make_segment(sg);
}

/* ---- appending ------------------------------------------------------------------------------ */

struct writer {
    struct segments *sg;
    XXH3_state_t *hash;
    uint64_t at; /* offset in the file of the first byte of the piece */
    size_t len;  /* number of bytes in the piece */
    bool whole;  /* nothing was written yet, so the header is in the piece */
    int err;
};

static int pwrite_all(struct segments *sg, const char *bytes, size_t len, uint64_t at)
{
    sg->unsynced = true;
    while (len > 0) {
        ssize_t n = sg->io->pwrite(sg->fd, bytes, len, at);

        if (n == -EINTR) {
            continue;
        }
        if (n <= 0) {
            return n < 0 ? (int)n : -EIO;
        }
        bytes += n;
        at += (uint64_t)n;
        len -= (size_t)n;
        if (at > sg->active->allocated) {
            sg->active->allocated = at;
        }
    }
    return 0;
}

static void write_piece(struct writer *w)
{
    if (w->err == 0) {
        w->err = pwrite_all(w->sg, w->sg->piece, w->len, w->at);
    }
    w->at += w->len;
    w->len = 0;
    w->whole = false;
}

static void write_bytes(struct writer *w, struct slice bytes)
{
    while (w->err == 0 && bytes.len > 0) {
        size_t part = bytes.len < PIECE - w->len ? bytes.len : PIECE - w->len;

        memcpy(w->sg->piece + w->len, bytes.ptr, part);
        (void)XXH3_64bits_update(w->hash, bytes.ptr, part); /* fails for NULL alone */
        w->len += part;
        bytes = slice_skip(bytes, part);
        if (w->len == PIECE) {
            write_piece(w);
        }
    }
}

/* Reads directly into the piece, without a copy. */
static void write_from(struct writer *w, int fd, uint64_t size)
{
    uint64_t at = 0;

    while (w->err == 0 && at < size) {
        size_t room = PIECE - w->len;
        size_t part = size - at < room ? (size_t)(size - at) : room;

        w->err = spool_io_read_all(w->sg->io, fd, w->sg->piece + w->len, part, at);
        if (w->err != 0) {
            return;
        }
        (void)XXH3_64bits_update(w->hash, w->sg->piece + w->len, part); /* fails for NULL alone */
        w->len += part;
        at += part;
        if (w->len == PIECE) {
            write_piece(w);
        }
    }
}

/* Writes the last piece, filled up to the end of its page, so that the kernel need not read a page
 * to write it. Then the header is complete; if the record is longer than a piece, it is written
 * last. */
static int write_end(struct writer *w, uint64_t at, char header[SEGMENT_HEADER],
                     uint64_t *ret_checksum)
{
    uint64_t end = w->at + w->len, padded = round_up(end, SEGMENT_START);

    *ret_checksum = XXH3_64bits_digest(w->hash);
    record_header_end(header, *ret_checksum);
    if (w->err == 0 && w->whole) {
        memcpy(w->sg->piece, header, SEGMENT_HEADER);
    } else if (w->err == 0) {
        w->err = pwrite_all(w->sg, header, SEGMENT_HEADER, at);
    }
    if (w->len > 0 && padded <= w->sg->segment_bytes && padded - w->at <= PIECE) {
        memset(w->sg->piece + w->len, 0, (size_t)(padded - end));
        w->len = (size_t)(padded - w->at);
    }
    if (w->len > 0) {
        write_piece(w);
    }
    return w->err;
}

static int write_record(struct segments *sg, struct msg_id id, struct slice prefix,
                        const struct spool_content *content, uint64_t size, uint64_t *ret_checksum)
{
    struct segment_place place = {.segment = sg->active->number, .at = sg->active->used};
    struct writer w = {.sg = sg, .at = place.at, .len = SEGMENT_HEADER, .whole = true};
    char header[SEGMENT_HEADER];
    int err;

    if (sg->piece == NULL) {
        sg->piece = mem_new(PIECE);
    }
    w.hash = XXH3_createState();
    CHECK(w.hash != NULL);
    (void)XXH3_64bits_reset(w.hash); /* fails for NULL alone */
    record_header(sg, place, id, size, header);
    memset(sg->piece, 0, SEGMENT_HEADER);
    write_bytes(&w, prefix);
    write_bytes(&w, content->bytes);
    if (content->fd >= 0) {
        write_from(&w, content->fd, content->fd_size);
    }
    err = write_end(&w, place.at, header, ret_checksum);
    (void)XXH3_freeState(w.hash); /* always XXH_OK */
    return err;
}

static bool is_full_disk(int err)
{
    return err == -ENOSPC || err == -EDQUOT || err == -EFBIG;
}

static void note(struct segment_changes *list, struct segment_change change)
{
    if (list->count == list->size) {
        list->size = list->size == 0 ? 64 : list->size * 2;
        list->all = mem_resize(list->all, list->size, sizeof list->all[0]);
    }
    list->all[list->count++] = change;
}

uint64_t segments_content_max(const struct segments *sg)
{
    return sg->segment_bytes / CONTENT_SHARE;
}

int segments_append(struct segments *sg, struct msg_id id, struct slice prefix,
                    const struct spool_content *content, struct segment_place *ret_place,
                    uint64_t *ret_checksum)
{
    uint64_t size = prefix.len + content->bytes.len + (content->fd >= 0 ? content->fd_size : 0);
    struct segment *s;
    int err;

    CHECK(size <= segments_content_max(sg));
    err = need_active(sg, size);
    if (err == 0) {
        err = write_record(sg, id, prefix, content, size, ret_checksum);
    }
    if (is_full_disk(err)) {
        end_active(sg);
        if (take_spare(sg, SEGMENT_START + round_up(SEGMENT_HEADER + size, SEGMENT_START))) {
            err = write_record(sg, id, prefix, content, size, ret_checksum);
        }
    }
    if (err != 0) {
        if (sg->active != NULL && !is_full_disk(err)) {
            sg->active->failed = true; /* its place on the disk may be bad */
        }
        end_active(sg);
        return err;
    }
    s = sg->active;
    *ret_place = (struct segment_place){.segment = s->number, .at = s->used};
    note(&sg->appended, (struct segment_change){s->number, size, s->used});
    s->used = round_up(s->used + SEGMENT_HEADER + size, SEGMENT_HEADER);
    s->messages++;
    s->bytes += size;
    return 0;
}

/* ---- the batch ------------------------------------------------------------------------------ */

int segments_sync(struct segments *sg)
{
    int err = sg->sync_error;

    if (err == 0 && sg->unsynced) {
        err = sg->io->fdatasync(sg->fd);
        sg->unsynced = false;
        if (err != 0) {
            sg->sync_error = err; /* a second sync would not report the error again */
            sg->active->failed = true;
            end_active(sg);
        }
    }
    return err;
}

void segments_release(struct segments *sg, uint32_t segment, uint64_t size)
{
    note(&sg->released, (struct segment_change){.segment = segment, .size = size});
}

/* Subtracts a record that is no longer live from its segment. */
static void end_life(struct segments *sg, const struct segment_change *c)
{
    struct segment *s = find(sg, c->segment);

    if (s == NULL || s->messages == 0) {
        return; /* a damaged row named the segment */
    }
    s->messages--;
    s->bytes -= c->size < s->bytes ? c->size : s->bytes;
    s->can_not_empty = false;
    sg->some_empty = sg->some_empty || s->messages == 0;
    sg->poor_unknown = true;
}

/* Makes the next batch begin at a page of its own. */
static void end_batch(struct segments *sg)
{
    for (size_t i = 0; i < sg->appended.count; i++) {
        struct segment *s = find(sg, sg->appended.all[i].segment);

        s->used = round_up(s->used, SEGMENT_START);
    }
    sg->appended.count = 0;
}

void segments_committed(struct segments *sg)
{
    CHECK(!sg->unsynced && sg->sync_error == 0);
    for (size_t i = 0; i < sg->released.count; i++) {
        end_life(sg, &sg->released.all[i]);
    }
    sg->released.count = sg->in_doubt = 0;
    end_batch(sg);
    segments_tidy(sg);
}

void segments_undone(struct segments *sg, bool in_doubt)
{
    sg->released.count = sg->in_doubt;
    for (size_t i = sg->appended.count; i-- > 0;) {
        const struct segment_change *c = &sg->appended.all[i];

        if (in_doubt) {
            note(&sg->released, *c);
            sg->in_doubt++;
        } else {
            find(sg, c->segment)->used = c->used_before;
            end_life(sg, c);
        }
    }
    end_batch(sg);
    sg->sync_error = 0;
    sg->unsynced = false; /* if needed, the bytes will be written again */
}

/* ---- reading -------------------------------------------------------------------------------- */

static int damaged(struct segments *sg, const char *why)
{
    sg->why = why;
    return -EBADMSG;
}

const char *segments_why(const struct segments *sg)
{
    return sg->why;
}

/* Has the record the expected header? */
static int check_header(struct segments *sg, int fd, struct segment_place place, struct msg_id id,
                        uint64_t size, uint64_t *ret_checksum)
{
    char found[SEGMENT_HEADER], want[SEGMENT_HEADER];
    uint64_t checksum;
    int err = spool_io_read_all(sg->io, fd, found, SEGMENT_HEADER, place.at);

    if (err != 0) {
        return err == -ENODATA ? damaged(sg, "missing: its segment is cut short") : err;
    }
    memcpy(&checksum, found + 40, sizeof checksum);
    checksum = le64toh(checksum);
    record_header(sg, place, id, size, want);
    record_header_end(want, checksum);
    if (memcmp(found, want, SEGMENT_HEADER) != 0) {
        return damaged(sg, "missing: its place in its segment has no record of it");
    }
    *ret_checksum = checksum;
    return 0;
}

static int read_content(struct segments *sg, int fd, uint64_t at, uint64_t size, uint64_t checksum,
                        int (*take)(void *context, struct slice piece), void *context)
{
    XXH3_state_t *hash = XXH3_createState();
    int err = 0;

    CHECK(hash != NULL);
    (void)XXH3_64bits_reset(hash); /* fails for NULL alone, as does the update */
    if (sg->piece == NULL) {
        sg->piece = mem_new(PIECE);
    }
    while (err == 0 && size > 0) {
        size_t part = size < PIECE ? (size_t)size : PIECE;

        err = spool_io_read_all(sg->io, fd, sg->piece, part, at);
        if (err == 0) {
            (void)XXH3_64bits_update(hash, sg->piece, part);
            err = take(context, slice_of(sg->piece, part));
        } else if (err == -ENODATA) {
            err = damaged(sg, "missing: its segment is cut short");
        }
        at += part;
        size -= part;
    }
    if (err == 0 && XXH3_64bits_digest(hash) != checksum) {
        err = damaged(sg, "not what was stored: its checksum does not match");
    }
    (void)XXH3_freeState(hash); /* always XXH_OK */
    return err;
}

int segments_read(struct segments *sg, struct segment_place place, struct msg_id id, uint64_t size,
                  uint64_t *ret_checksum, int (*take)(void *context, struct slice piece),
                  void *context)
{
    uint64_t checksum;
    int fd, err;

    if (place.segment == 0 || place.segment > SEGMENT_NUMBER_MAX || place.at < SEGMENT_START ||
        place.at > SPOOL_CONTENT_MAX || size > SPOOL_CONTENT_MAX) {
        return damaged(sg, "missing: its place is impossible");
    }
    fd = numbered_file_open(sg->io, sg->dir, place.segment, SUFFIX, O_RDONLY);
    if (fd < 0) {
        return fd == -ENOENT || fd == -ELOOP ? damaged(sg, "missing: so is its segment") : fd;
    }
    err = check_header(sg, fd, place, id, size, &checksum);
    if (err == 0) {
        err = read_content(sg, fd, place.at + SEGMENT_HEADER, size, checksum, take, context);
    }
    (void)sg->io->close(fd); /* opened for reading */
    if (err == 0) {
        *ret_checksum = checksum;
    }
    return err;
}

/* ---- room ----------------------------------------------------------------------------------- */

/* Returns the bytes of dead records in a full segment. */
static uint64_t dead_bytes(const struct segment *s)
{
    uint64_t written = s->used - SEGMENT_START;

    return s->state == SEGMENT_FULL && s->bytes < written ? written - s->bytes : 0;
}

uint32_t segments_poorest(struct segments *sg, bool eager, uint64_t room)
{
    struct segment *s, *next, *best = NULL;
    bool too_large = false;

    if (!sg->poor_unknown) {
        return 0;
    }
    HASH_ITER(hh, sg->all, s, next)
    {
        uint64_t dead = dead_bytes(s), least = (s->used - SEGMENT_START) / (eager ? 8 : 2);

        if (s->messages == 0 || s->can_not_empty || dead <= least) {
            continue;
        }
        if (s->bytes > room) {
            too_large = true;
        } else if (best == NULL || dead > dead_bytes(best)) {
            best = s;
        }
    }
    sg->poor_unknown = best != NULL || too_large;
    return best == NULL ? 0 : best->number;
}

void segments_can_not_empty(struct segments *sg, uint32_t segment)
{
    struct segment *s = find(sg, segment);

    if (s != NULL) {
        s->can_not_empty = true;
    }
}

void segments_may_empty(struct segments *sg, uint32_t segment)
{
    struct segment *s = find(sg, segment);

    if (s != NULL) {
        s->can_not_empty = false;
        sg->poor_unknown = true;
    }
}

uint64_t segments_dead_bytes(const struct segments *sg)
{
    uint64_t sum = 0;

    for (const struct segment *s = sg->all; s != NULL; s = s->hh.next) {
        sum += dead_bytes(s);
    }
    return sum;
}

uint64_t segments_spare_bytes(const struct segments *sg)
{
    uint64_t sum = 0;

    for (const struct segment *s = sg->all; s != NULL; s = s->hh.next) {
        if ((s->state == SEGMENT_SPARE || s->state == SEGMENT_ACTIVE) && s->allocated > s->used) {
            sum += s->allocated - s->used;
        }
    }
    return sum;
}

bool segments_are_there(const struct segments *sg)
{
    DIR *dir = opendir(sg->dir);
    struct dirent *entry;
    uint32_t number;
    bool found = false;

    while (dir != NULL && !found && (entry = readdir(dir)) != NULL) {
        found = numbered_file_parse(entry->d_name, SUFFIX, &number);
    }
    if (dir != NULL) {
        closedir(dir);
    }
    return found;
}

bool segments_is_foreign(struct segments *sg, const char *name)
{
    uint32_t number;
    uint64_t size = 0;

    return numbered_file_parse(name, SUFFIX, &number) && !is_ours(sg, number, &size) &&
           size >= SEGMENT_START;
}

/* ---- without a database --------------------------------------------------------------------- */

static uint32_t get32(const char *at)
{
    uint32_t n;

    memcpy(&n, at, sizeof n);
    return le32toh(n);
}

static uint64_t get64(const char *at)
{
    uint64_t n;

    memcpy(&n, at, sizeof n);
    return le64toh(n);
}

/* Decodes the header of a record; false if it is not one for this place. */
static bool decode_record(const char h[SEGMENT_HEADER], struct segment_place place,
                          struct segment_record *ret)
{
    *ret = (struct segment_record){.id = get64(h + 24),
                                   .size = get64(h + 32),
                                   .tag = get64(h + 16),
                                   .checksum = get64(h + 40),
                                   .place = place};
    return memcmp(h, RECORD_MAGIC, 4) == 0 && get32(h + 4) == place.segment &&
           get64(h + 8) == place.at && get64(h + 56) == XXH3_64bits(h, 56) && ret->id > 0 &&
           ret->id <= INT64_MAX && ret->size <= SPOOL_CONTENT_MAX;
}

/* Examines every place where a record may begin, so that a damaged record hides no other. */
static void walk_segment(const struct spool_io *io, int fd, uint32_t number, char *piece,
                         void (*found)(void *context, const struct segment_record *record),
                         void *context)
{
    struct segment_place place = {.segment = number, .at = SEGMENT_START};
    uint64_t size = 0, begin = 0, end = 0; /* range of the file that is in the piece */
    struct segment_record record;

    if (io->fstat_size(fd, &size) != 0) {
        return;
    }
    while (place.at + SEGMENT_HEADER <= size) {
        if (place.at < begin || place.at + SEGMENT_HEADER > end) {
            begin = place.at;
            end = size - begin < PIECE ? size : begin + PIECE;
            if (spool_io_read_all(io, fd, piece, (size_t)(end - begin), begin) != 0) {
                place.at = round_up(end, SEGMENT_HEADER); /* unreadable place on the disk */
                end = begin;
                continue;
            }
        }
        if (decode_record(piece + (place.at - begin), place, &record)) {
            found(context, &record);
            place.at = round_up(place.at + SEGMENT_HEADER + record.size, SEGMENT_HEADER);
        } else {
            place.at += SEGMENT_HEADER;
        }
    }
}

void segments_walk(const struct spool_io *io, const char *dir,
                   void (*found)(void *context, const struct segment_record *record), void *context)
{
    struct segments sg = {.io = io, .dir = mem_string(dir)};
    DIR *all = opendir(dir);
    struct dirent *entry;
    char *piece = mem_new(PIECE);
    uint32_t number;

    while (all != NULL && (entry = readdir(all)) != NULL) {
        int fd = numbered_file_parse(entry->d_name, SUFFIX, &number)
                     ? numbered_file_open(sg.io, sg.dir, number, SUFFIX, O_RDONLY)
                     : -1;

        if (fd >= 0) {
            walk_segment(io, fd, number, piece, found, context);
            (void)io->close(fd); /* opened for reading */
        }
    }
    if (all != NULL) {
        (void)closedir(all);
    }
    mem_free(piece);
    mem_free(sg.dir);
}

void segments_audit(const struct segments *sg)
{
    size_t spares = 0, actives = 0;

    for (const struct segment *s = sg->all; s != NULL; s = s->hh.next) {
        CHECK(s->number > 0 && s->number <= sg->highest);
        CHECK(s->used >= SEGMENT_START && s->used <= round_up(sg->segment_bytes, SEGMENT_START));
        CHECK(s->messages > 0 || s->bytes == 0);
        CHECK(s->state != SEGMENT_SPARE || (s->messages == 0 && s->used == SEGMENT_START));
        CHECK(s->state != SEGMENT_ACTIVE || s == sg->active);
        CHECK(sg->appended.count > 0 || s->used % SEGMENT_START == 0);
        CHECK(s->messages > 0 || s->state == SEGMENT_SPARE || s->used == SEGMENT_START ||
              sg->some_empty);
        spares += s->state == SEGMENT_SPARE;
        actives += s->state == SEGMENT_ACTIVE;
    }
    CHECK(spares == sg->spares && spares <= SEGMENT_SPARES);
    CHECK(actives == (sg->active != NULL));
    CHECK((sg->fd >= 0) == (sg->active != NULL));
    CHECK(sg->in_doubt <= sg->released.count);
}
