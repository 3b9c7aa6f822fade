/*
 * The bytes, all numbers little-endian; sums are XXH3-64:
 *
 *      file       0 "SLUICE passage\n\0"    16 version u32      20 its number u32    24 tag u64
 *                32 zeros                   56 sum of the 56 before    64 zeros to 4096
 *
 *      batch      0 sum of the next 88      8 "SBATCH\n\0"     16 tag u64           24 file u32
 *                28 its place u32           32 generation u64   40 oldest u64        48 number u64
 *                56 commit u64              64 last id u64      72 length u32        76 records u32
 *                80 1: with the database    88 from u64         96 records
 *
 *      record     0 sum of the header's rest and the envelope    8 "SREC" and kind, u32 each
 *                16 id u64                  24 file u32         28 its place u32
 *                32 generation u64          40 envelope u32     44 content u32
 *                48 sum of the content      56 tag u64          64 envelope, content
 *
 *      The next record begins at the next multiple of 16.
 *
 * Batches whose number is less than `from` are void; the database has such a number, too. `oldest`
 * is the generation of the oldest file that may have messages in it; files of older generations
 * have none. The "envelope" of a mark is a list of numbers of 8 bytes: ids, or for void batches
 * generation and place. The "envelope" of a key is made by the engine.
 */
#include "passage.h"

#include <dirent.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "check.h"
#include "mem.h"
#include "numbered_file.h"

#define VERSION      1
#define FILE_MAGIC   "SLUICE passage\n"
#define BATCH_MAGIC  "SBATCH\n"
#define RECORD_MAGIC UINT32_C(0x43455253) /* "SREC" */
#define HEADER       64u                  /* size of a file's header, and of a record's */
#define BATCH_HEADER 96u
#define RECORD_ALIGN 16u
#define SUFFIX       "passage"
/* Limit of one write call. Longer writes put the file into the page cache in pieces of several
 * pages; a batch that later ends in such a piece would write all of it again. */
#define WRITE_PIECE   PASSAGE_PAGE
#define FILE_SIZE_MAX (UINT64_C(1) << 31)

enum { KIND_MAIL = 1, KIND_DONE, KIND_MOVED, KIND_VOID, KIND_KEY };
enum { WITH_DATABASE = 1 };

_Static_assert(sizeof FILE_MAGIC == 16 && sizeof BATCH_MAGIC == 8, "headers as drawn");
/* Room for the marks of all messages that fit into some tens of batches. */
_Static_assert(PASSAGE_FILE_BYTES + 64 * PASSAGE_BATCH_MAX < FILE_SIZE_MAX, "places are 32 bits");

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

static size_t round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

/* ---- lists ---------------------------------------------------------------------------------- */

static void list_add(struct passage_list *list, uint64_t n)
{
    if (list->count == list->size) {
        list->size = list->size == 0 ? 64 : list->size * 2;
        list->all = mem_resize(list->all, list->size, sizeof list->all[0]);
    }
    list->all[list->count++] = n;
}

/* ---- files ---------------------------------------------------------------------------------- */

static void file_header(const struct passage *p, uint32_t number, char h[HEADER])
{
    memset(h, 0, HEADER);
    memcpy(h, FILE_MAGIC, sizeof FILE_MAGIC);
    put32(h + 16, VERSION);
    put32(h + 20, number);
    put64(h + 24, p->tag);
    put64(h + 56, XXH3_64bits(h, 56));
}

static struct passage_file *find_file(const struct passage *p, uint32_t number)
{
    for (size_t i = 0; i < p->file_count; i++) {
        if (p->files[i].number == number) {
            return &p->files[i];
        }
    }
    return NULL;
}

static struct passage_file *add_file(struct passage *p, uint32_t number)
{
    if (p->file_count == p->file_size) {
        p->file_size = p->file_size == 0 ? PASSAGE_FILES : p->file_size * 2;
        p->files = mem_resize(p->files, p->file_size, sizeof p->files[0]);
    }
    p->files[p->file_count] = (struct passage_file){.number = number, .end = PASSAGE_PAGE};
    p->highest = number > p->highest ? number : p->highest;
    return &p->files[p->file_count++];
}

/* A failure has no consequences: nothing in the file counts. */
static void remove_file(struct passage *p, size_t at)
{
    char *path = numbered_file_path(p->dir, p->files[at].number, SUFFIX);

    (void)p->io->unlink(path);
    mem_free(path);
    p->files[at] = p->files[--p->file_count];
}

static void close_current(struct passage *p)
{
    if (p->fd >= 0) {
        (void)p->io->close(p->fd); /* synced, or abandoned */
    }
    p->fd = -1;
    p->current = 0;
}

/* Returns the generation of the oldest file that may have messages in it. */
static uint64_t oldest_generation(const struct passage *p)
{
    uint64_t oldest = p->generation;

    for (size_t i = 0; i < p->file_count; i++) {
        const struct passage_file *f = &p->files[i];

        if ((f->live > 0 || f->number == p->current) && f->generation < oldest) {
            oldest = f->generation;
        }
    }
    return oldest;
}

/* Counts the files that can't be reused yet. */
static size_t files_in_use(const struct passage *p)
{
    uint64_t oldest = oldest_generation(p);
    size_t count = 0;

    for (size_t i = 0; i < p->file_count; i++) {
        count += p->files[i].generation >= oldest;
    }
    return count;
}

/* ---- start and end -------------------------------------------------------------------------- */

void passage_init(struct passage *p, const struct spool_io *io, const char *dir,
                  uint32_t file_bytes)
{
    *p = (struct passage){
        .io = io, .dir = mem_string(dir), .fd = -1, .sequence = 1, .generation = 1, .why = ""};
    p->file_bytes = file_bytes == 0 ? PASSAGE_FILE_BYTES : file_bytes;
    CHECK(p->file_bytes >= 2 * PASSAGE_PAGE && p->file_bytes <= PASSAGE_FILE_BYTES);
}

void passage_fini(struct passage *p)
{
    close_current(p);
    mem_free(p->files);
    mem_free(p->bytes);
    mem_free(p->added.all);
    mem_free(p->done.all);
    mem_free(p->moved.all);
    mem_free(p->ended.all);
    mem_free(p->voids.all);
    mem_free(p->read);
    mem_free(p->dir);
}

/* ---- where the batch goes ------------------------------------------------------------------- */

/* Creates a file that begins with its header, durable with its name. */
static int make_file(struct passage *p)
{
    uint32_t number = p->highest + 1;
    char *header = mem_new(PASSAGE_PAGE);
    int fd;

    file_header(p, number, header);
    fd = numbered_file_create(p->io, p->dir, number, SUFFIX, slice_of(header, PASSAGE_PAGE));
    mem_free(header);
    if (fd < 0) {
        p->highest += fd == -EEXIST;
        return fd;
    }
    (void)add_file(p, number);
    p->fd = fd;
    p->current = number;
    return 0;
}

/* Begins to overwrite a file whose messages are all gone. Returns false if there is none. */
static bool take_free(struct passage *p)
{
    uint64_t oldest = oldest_generation(p);
    struct passage_file *best = NULL;

    for (size_t i = 0; i < p->file_count; i++) {
        struct passage_file *f = &p->files[i];

        if (f->generation < oldest && !f->failed && (best == NULL || f->number < best->number)) {
            best = f;
        }
    }
    if (best == NULL || numbered_file_keep(p->io, p->dir)) {
        return false;
    }
    p->fd = numbered_file_open(p->io, p->dir, best->number, SUFFIX, O_RDWR);
    if (p->fd < 0) {
        best->failed = true;
        return false;
    }
    p->current = best->number;
    return true;
}

static int need_current(struct passage *p)
{
    struct passage_file *f = find_file(p, p->current);
    int err;

    if (f != NULL && !f->failed && f->end < p->file_bytes) {
        return 0;
    }
    close_current(p);
    err = take_free(p) ? 0 : make_file(p);
    if (err == 0) {
        f = find_file(p, p->current);
        f->generation = p->generation++;
        f->end = PASSAGE_PAGE;
    }
    return err;
}

/* ---- the batch ------------------------------------------------------------------------------ */

static char *room(struct passage *p, size_t more)
{
    size_t need = round_up(p->len + more, PASSAGE_PAGE);

    if (need > p->size) {
        p->size = need > 2 * p->size ? need : 2 * p->size;
        p->bytes = mem_resize(p->bytes, p->size, 1);
    }
    return p->bytes + p->len;
}

int passage_open(struct passage *p)
{
    int err = p->len > 0 ? 0 : need_current(p);

    if (err == 0 && p->len == 0) {
        memset(room(p, BATCH_HEADER), 0, BATCH_HEADER);
        p->len = BATCH_HEADER;
    }
    return err;
}

/* Writes the header of a record at `p->len`. Its envelope of `envelope` bytes is already in
 * place. */
static void record_header(struct passage *p, uint32_t kind, uint64_t id, size_t envelope,
                          size_t content, uint64_t content_sum)
{
    const struct passage_file *f = find_file(p, p->current);
    char *h = p->bytes + p->len;

    put32(h + 8, RECORD_MAGIC);
    put32(h + 12, kind);
    put64(h + 16, id);
    put32(h + 24, f->number);
    put32(h + 28, f->end + (uint32_t)p->len);
    put64(h + 32, f->generation);
    put32(h + 40, (uint32_t)envelope);
    put32(h + 44, (uint32_t)content);
    put64(h + 48, content_sum);
    put64(h + 56, p->tag);
    put64(h, XXH3_64bits(h + 8, HEADER - 8 + envelope));
}

static void record_end(struct passage *p, size_t len)
{
    size_t padded = round_up(len, RECORD_ALIGN);

    memset(p->bytes + p->len + len, 0, padded - len);
    p->len += padded;
    p->records++;
}

bool passage_fits(const struct passage *p, size_t envelope, uint64_t content)
{
    return envelope <= PASSAGE_ENVELOPE_MAX && content <= PASSAGE_CONTENT_MAX &&
           p->len + HEADER + envelope + content <= PASSAGE_BATCH_MAX;
}

static void copy(char *to, struct slice from)
{
    if (from.len > 0) {
        memcpy(to, from.ptr, from.len);
    }
}

int passage_add(struct passage *p, struct msg_id id, struct slice envelope, struct slice prefix,
                const struct spool_content *content, struct passage_place *ret_place,
                uint64_t *ret_content_sum)
{
    size_t from_fd = content->fd >= 0 ? (size_t)content->fd_size : 0;
    size_t len = prefix.len + content->bytes.len + from_fd;
    struct passage_file *f;
    char *at;
    int err;

    CHECK(passage_fits(p, envelope.len, len));
    err = passage_open(p);
    if (err != 0) {
        return err;
    }
    at = room(p, HEADER + envelope.len + len + RECORD_ALIGN) + HEADER;
    copy(at, envelope);
    at += envelope.len;
    copy(at, prefix);
    copy(at + prefix.len, content->bytes);
    if (from_fd > 0) {
        err =
            spool_io_read_all(p->io, content->fd, at + prefix.len + content->bytes.len, from_fd, 0);
        if (err != 0) {
            return err;
        }
    }
    f = find_file(p, p->current);
    *ret_content_sum = XXH3_64bits(at, len);
    *ret_place = (struct passage_place){.file = f->number, .at = f->end + (uint32_t)p->len};
    record_header(p, KIND_MAIL, id.n, envelope.len, len, *ret_content_sum);
    record_end(p, HEADER + envelope.len + len);
    f->live++;
    list_add(&p->added, f->number);
    return 0;
}

int passage_end(struct passage *p, struct msg_id id, uint32_t file, bool moved)
{
    int err = passage_open(p);

    if (err == 0) {
        list_add(moved ? &p->moved : &p->done, id.n);
        list_add(&p->ended, file);
    }
    return err;
}

int passage_add_key(struct passage *p, struct msg_id id, struct slice key, uint32_t *ret_file)
{
    struct passage_file *f;
    int err;

    CHECK(passage_fits(p, key.len, 0));
    err = passage_open(p);
    if (err != 0) {
        return err;
    }
    copy(room(p, HEADER + key.len + RECORD_ALIGN) + HEADER, key);
    record_header(p, KIND_KEY, id.n, key.len, 0, 0);
    record_end(p, HEADER + key.len);
    f = find_file(p, p->current);
    f->live++;
    list_add(&p->added, f->number);
    *ret_file = f->number;
    return 0;
}

int passage_end_key(struct passage *p, uint32_t file)
{
    int err = passage_open(p);

    if (err == 0) {
        list_add(&p->ended, file);
    }
    return err;
}

bool passage_dirty(const struct passage *p)
{
    return p->len > 0 || p->voids.count > 0;
}

static void add_marks(struct passage *p, uint32_t kind, const struct passage_list *list)
{
    size_t len = list->count * sizeof(uint64_t);
    char *at;

    if (list->count == 0) {
        return;
    }
    at = room(p, HEADER + len + RECORD_ALIGN) + HEADER;
    for (size_t i = 0; i < list->count; i++) {
        put64(at + i * sizeof(uint64_t), list->all[i]);
    }
    record_header(p, kind, 0, len, 0, 0);
    record_end(p, HEADER + len);
}

static void batch_header(struct passage *p, const struct passage_file *f, uint64_t number,
                         uint64_t last_id, bool with_database)
{
    char *h = p->bytes;

    memcpy(h + 8, BATCH_MAGIC, sizeof BATCH_MAGIC);
    put64(h + 16, p->tag);
    put32(h + 24, f->number);
    put32(h + 28, f->end);
    put64(h + 32, f->generation);
    put64(h + 40, oldest_generation(p));
    put64(h + 48, p->sequence);
    put64(h + 56, number);
    put64(h + 64, last_id);
    put32(h + 72, (uint32_t)p->len);
    put32(h + 76, p->records);
    put64(h + 80, with_database ? WITH_DATABASE : 0);
    put64(h + 88, p->from);
    put64(h, XXH3_64bits(h + 8, BATCH_HEADER - 8));
}

static int write_all(struct passage *p, uint64_t at, size_t len)
{
    const char *bytes = p->bytes;

    while (len > 0) {
        /* Pieces end at multiples of their size. */
        size_t piece = WRITE_PIECE - at % WRITE_PIECE;
        ssize_t n = p->io->pwrite(p->fd, bytes, len < piece ? len : piece, at);

        if (n == -EINTR) {
            continue;
        }
        if (n <= 0) {
            return n < 0 ? (int)n : -EIO;
        }
        bytes += n;
        at += (uint64_t)n;
        len -= (size_t)n;
    }
    return 0;
}

static bool is_full_disk(int err)
{
    return err == -ENOSPC || err == -EDQUOT || err == -EFBIG;
}

int passage_write(struct passage *p, uint64_t number, uint64_t last_id, bool with_database)
{
    struct passage_file *f;
    size_t padded;
    int err = passage_open(p);

    if (err != 0) {
        return err;
    }
    CHECK(!p->written);
    add_marks(p, KIND_DONE, &p->done);
    add_marks(p, KIND_MOVED, &p->moved);
    add_marks(p, KIND_VOID, &p->voids);
    f = find_file(p, p->current);
    batch_header(p, f, number, last_id, with_database);
    padded = round_up(p->len, PASSAGE_PAGE);
    if (padded > FILE_SIZE_MAX - f->end) {
        return -EFBIG;
    }
    (void)room(p, padded - p->len);
    memset(p->bytes + p->len, 0, padded - p->len);
    p->sequence++;
    p->written = true; /* completely or in part */
    err = write_all(p, f->end, padded);
    if (err == 0) {
        err = p->io->fdatasync(p->fd);
    }
    f->failed = err != 0 && !is_full_disk(err); /* its place on the disk may be bad */
    return err;
}

/* Removes the batch from memory. */
static void forget_batch(struct passage *p)
{
    p->len = 0;
    p->records = 0;
    p->written = false;
    p->added.count = p->done.count = p->moved.count = p->ended.count = 0;
}

/* Removes files beyond PASSAGE_FILES, and failed ones, once they are free. */
static void remove_some(struct passage *p)
{
    uint64_t oldest = oldest_generation(p);

    for (size_t i = p->file_count; i-- > 0;) {
        if (p->files[i].generation < oldest &&
            (p->file_count > PASSAGE_FILES || p->files[i].failed) &&
            !numbered_file_keep(p->io, p->dir)) {
            remove_file(p, i);
        }
    }
}

void passage_committed(struct passage *p)
{
    struct passage_file *f;

    if (p->len == 0) {
        return;
    }
    CHECK(p->written);
    f = find_file(p, p->current);
    f->end += (uint32_t)round_up(p->len, PASSAGE_PAGE);
    for (size_t i = 0; i < p->ended.count; i++) {
        f = find_file(p, (uint32_t)p->ended.all[i]);
        CHECK(f != NULL && f->live > 0);
        f->live--;
    }
    p->voids.count = 0;
    forget_batch(p);
    if (p->file_count > PASSAGE_FILES) {
        remove_some(p);
    }
}

void passage_undone(struct passage *p)
{
    struct passage_file *f;

    for (size_t i = 0; i < p->added.count; i++) {
        find_file(p, (uint32_t)p->added.all[i])->live--;
    }
    if (p->written) {
        f = find_file(p, p->current);
        list_add(&p->voids, f->generation);
        list_add(&p->voids, f->end);
        f->end += (uint32_t)round_up(p->len, PASSAGE_PAGE);
    }
    forget_batch(p);
}

void passage_end_all(struct passage *p)
{
    forget_batch(p);
    p->voids.count = 0;
    for (size_t i = 0; i < p->file_count; i++) {
        p->files[i].live = 0;
    }
    close_current(p);
}

uint32_t passage_to_empty(const struct passage *p)
{
    const struct passage_file *f = find_file(p, p->current);
    uint64_t oldest = oldest_generation(p);

    if (f == NULL || f->end < p->file_bytes / 2 || files_in_use(p) < PASSAGE_FILES) {
        return 0;
    }
    for (size_t i = 0; i < p->file_count; i++) {
        if (p->files[i].generation == oldest && p->files[i].number != p->current) {
            return p->files[i].number;
        }
    }
    return 0;
}

/* ---- reading -------------------------------------------------------------------------------- */

static int damaged(struct passage *p, const char *why)
{
    p->why = why;
    return -EBADMSG;
}

const char *passage_why(const struct passage *p)
{
    return p->why;
}

static char *read_room(struct passage *p, size_t size)
{
    if (size > p->read_size) {
        p->read_size = size;
        p->read = mem_resize(p->read, size, 1);
    }
    return p->read;
}

/* Do these bytes hold a record, complete up to the end of its envelope, of this place and
 * generation? */
static bool record_fits(const struct passage *p, const char *h, size_t len,
                        struct passage_place place, uint64_t generation)
{
    return len >= HEADER && get32(h + 8) == RECORD_MAGIC && get32(h + 24) == place.file &&
           get32(h + 28) == place.at && get64(h + 32) == generation && get64(h + 56) == p->tag &&
           get32(h + 40) <= len - HEADER && get32(h + 44) <= PASSAGE_CONTENT_MAX &&
           get64(h) == XXH3_64bits(h + 8, HEADER - 8 + get32(h + 40));
}

/* Decodes a valid record in `len` bytes; content that does not fit into them is cut. */
static struct passage_mail mail_of(const char *h, size_t len)
{
    size_t envelope = get32(h + 40), content = get32(h + 44), rest = len - HEADER - envelope;

    return (struct passage_mail){
        .id = {get64(h + 16)},
        .envelope = slice_of(h + HEADER, envelope),
        .content = slice_of(h + HEADER + envelope, content < rest ? content : rest),
        .content_sum = get64(h + 48)};
}

/* Reads a record to p->read, with or without its content. */
static int read_file(struct passage *p, const struct passage_file *f, struct passage_place place,
                     bool with_content, size_t *ret_len)
{
    int fd = f->number == p->current
                 ? p->fd
                 : numbered_file_open(p->io, p->dir, f->number, SUFFIX, O_RDONLY);
    int err = fd < 0 ? fd : spool_io_read_all(p->io, fd, read_room(p, HEADER), HEADER, place.at);
    size_t len = HEADER;

    if (err == 0) {
        size_t envelope = get32(p->read + 40), content = get32(p->read + 44);

        len += envelope <= PASSAGE_ENVELOPE_MAX ? envelope : 0;
        len += with_content && content <= PASSAGE_CONTENT_MAX ? content : 0;
        err = spool_io_read_all(p->io, fd, read_room(p, len), len, place.at);
    }
    if (fd >= 0 && fd != p->fd) {
        (void)p->io->close(fd); /* opened for reading */
    }
    if (err == -ENOENT) {
        return damaged(p, "missing: its file of mail in passage is missing");
    }
    if (err == -ENODATA) {
        return damaged(p, "missing: its file of mail in passage is cut short");
    }
    *ret_len = len;
    return err;
}

int passage_read(struct passage *p, struct passage_place place, struct msg_id id, bool with_content,
                 struct passage_mail *ret_mail)
{
    const struct passage_file *f = find_file(p, place.file);
    const char *h;
    size_t len = 0;
    int err = 0;

    CHECK(f != NULL);
    if (place.file == p->current && place.at >= f->end) {
        CHECK(place.at - f->end < p->len);
        h = p->bytes + (place.at - f->end);
        len = p->len - (place.at - f->end);
    } else {
        err = read_file(p, f, place, with_content, &len);
        h = p->read;
    }
    if (err == 0 && (!record_fits(p, h, len, place, f->generation) || get64(h + 16) != id.n ||
                     get32(h + 12) != KIND_MAIL)) {
        err = damaged(p, "missing: its place in its file of mail in passage has no record of it");
    }
    if (err == 0) {
        *ret_mail = mail_of(h, len);
    }
    return err;
}

/* ---- the start ------------------------------------------------------------------------------ */

/* A batch found in a file. */
struct found_batch {
    uint32_t file, at, length, records;
    uint64_t generation, oldest, sequence, commit, last_id, from;
    bool with_database, has_happened;
};

struct finding {
    struct passage *p;
    const struct passage_start *start;
    struct found_batch *all; /* owned */
    size_t count, size;
    char *bytes; /* owned; bytes of one batch */
    size_t bytes_size;
    struct passage_list ended;   /* ids of messages that are done or moved */
    struct passage_list voids;   /* generation and place of void batches */
    uint64_t newest, generation; /* highest number and generation found, void or not */
};

static int open_found(const struct passage *p, uint32_t number, uint64_t *ret_size)
{
    int fd = numbered_file_open(p->io, p->dir, number, SUFFIX, O_RDONLY), err;

    if (fd < 0) {
        return fd;
    }
    err = p->io->fstat_size(fd, ret_size);
    if (err != 0) {
        (void)p->io->close(fd); /* opened for reading */
        return err;
    }
    return fd;
}

/* Decodes the header of a batch; false if there is no batch at that place of the file. */
static bool take_batch(struct finding *f, uint32_t number, uint32_t at, uint64_t file_size,
                       const char h[BATCH_HEADER], struct found_batch *ret_batch)
{
    if (memcmp(h + 8, BATCH_MAGIC, sizeof BATCH_MAGIC) != 0 || get64(h + 16) != f->p->tag ||
        get32(h + 24) != number || get32(h + 28) != at || get32(h + 72) < BATCH_HEADER ||
        get32(h + 72) > file_size - at || get64(h) != XXH3_64bits(h + 8, BATCH_HEADER - 8)) {
        return false;
    }
    *ret_batch = (struct found_batch){.file = number,
                                      .at = at,
                                      .generation = get64(h + 32),
                                      .oldest = get64(h + 40),
                                      .sequence = get64(h + 48),
                                      .commit = get64(h + 56),
                                      .last_id = get64(h + 64),
                                      .from = get64(h + 88),
                                      .length = get32(h + 72),
                                      .records = get32(h + 76),
                                      .with_database = (get64(h + 80) & WITH_DATABASE) != 0};
    return true;
}

static int find_batches(struct finding *f, uint32_t number, int fd, uint64_t size)
{
    char h[BATCH_HEADER];
    struct found_batch b;
    int err = 0;

    size = size < FILE_SIZE_MAX ? size : FILE_SIZE_MAX;
    for (uint64_t at = PASSAGE_PAGE; err == 0 && at + BATCH_HEADER <= size;) {
        err = spool_io_read_all(f->p->io, fd, h, BATCH_HEADER, at);
        if (err != 0 || !take_batch(f, number, (uint32_t)at, size, h, &b)) {
            at += PASSAGE_PAGE;
            continue;
        }
        at += round_up(b.length, PASSAGE_PAGE);
        f->newest = b.sequence > f->newest ? b.sequence : f->newest;
        f->generation = b.generation > f->generation ? b.generation : f->generation;
        if (b.sequence < f->start->from) {
            continue;
        }
        if (f->count == f->size) {
            f->size = f->size == 0 ? 256 : f->size * 2;
            f->all = mem_resize(f->all, f->size, sizeof f->all[0]);
        }
        f->all[f->count++] = b;
    }
    return err;
}

/* Reads a file whose name is that of a passage file. Ignores files of another spool. */
static int find_in_file(struct finding *f, uint32_t number)
{
    struct passage *p = f->p;
    char want[HEADER], found[HEADER];
    uint64_t size = 0;
    int fd = open_found(p, number, &size), err = 0;

    p->highest = number > p->highest ? number : p->highest; /* the name is taken */
    if (fd < 0) {
        return fd;
    }
    if (size < PASSAGE_PAGE && !f->start->only_look) {
        (void)add_file(p, number); /* its creation was interrupted, so it never held anything */
        remove_file(p, p->file_count - 1);
    } else if (size >= PASSAGE_PAGE) {
        err = spool_io_read_all(p->io, fd, found, HEADER, 0);
        p->tag = err == 0 && p->tag == 0 ? get64(found + 24) : p->tag;
        file_header(p, number, want);
        if (err == 0 && memcmp(want, found, HEADER) == 0) {
            (void)add_file(p, number);
            err = find_batches(f, number, fd, size);
        }
    }
    (void)p->io->close(fd); /* opened for reading */
    return err;
}

static int find_in_dir(struct finding *f)
{
    DIR *dir = opendir(f->p->dir);
    struct dirent *entry;
    uint32_t number;
    int err = 0;

    if (dir == NULL) {
        return errno == ENOENT ? 0 : -errno;
    }
    while (err == 0 && (entry = readdir(dir)) != NULL) {
        if (numbered_file_parse(entry->d_name, SUFFIX, &number)) {
            err = find_in_file(f, number);
        }
    }
    closedir(dir);
    return err;
}

/* Reads a complete batch to f->bytes. */
static int read_batch(struct finding *f, const struct found_batch *b)
{
    int fd = numbered_file_open(f->p->io, f->p->dir, b->file, SUFFIX, O_RDONLY), err;

    if (fd < 0) {
        return fd;
    }
    if (b->length > f->bytes_size) {
        f->bytes_size = b->length;
        f->bytes = mem_resize(f->bytes, f->bytes_size, 1);
    }
    err = spool_io_read_all(f->p->io, fd, f->bytes, b->length, b->at);
    (void)f->p->io->close(fd); /* opened for reading */
    return err;
}

/* Returns the next record at *at or later, and moves *at to its end; NULL if there is none.
 * *ret_len is the number of bytes from the record to the end of the batch. Skips damaged
 * records. */
static const char *next_record(struct finding *f, const struct found_batch *b, size_t *at,
                               size_t *ret_len)
{
    while (*at + HEADER <= b->length) {
        const char *h = f->bytes + *at;
        size_t len = b->length - *at;
        struct passage_place place = {b->file, b->at + (uint32_t)*at};

        if (record_fits(f->p, h, len, place, b->generation)) {
            *ret_len = len;
            *at += round_up(HEADER + (size_t)get32(h + 40) + get32(h + 44), RECORD_ALIGN);
            return h;
        }
        *at += RECORD_ALIGN;
    }
    return NULL;
}

static uint32_t count_records(struct finding *f, const struct found_batch *b, bool *ret_whole)
{
    size_t at = BATCH_HEADER, len;
    uint32_t count = 0;
    const char *h;

    *ret_whole = true;
    while ((h = next_record(f, b, &at, &len)) != NULL) {
        struct passage_mail mail = mail_of(h, len);

        count++;
        if (get32(h + 12) == KIND_MAIL &&
            XXH3_64bits(mail.content.ptr, mail.content.len) != mail.content_sum) {
            *ret_whole = false;
        }
    }
    *ret_whole = *ret_whole && count == b->records;
    return count;
}

static bool is_void(const struct finding *f, const struct found_batch *b)
{
    for (size_t i = 0; i + 1 < f->voids.count; i += 2) {
        if (f->voids.all[i] == b->generation && f->voids.all[i + 1] == b->at) {
            return true;
        }
    }
    return false;
}

static void take_marks(struct finding *f, const struct found_batch *b)
{
    size_t at = BATCH_HEADER, len;
    const char *h;

    while ((h = next_record(f, b, &at, &len)) != NULL) {
        uint32_t kind = get32(h + 12);
        struct slice marks = mail_of(h, len).envelope;
        /* A message has not moved to a database that was reset to an earlier commit. */
        bool counts = kind == KIND_DONE || kind == KIND_VOID ||
                      (kind == KIND_MOVED && b->commit <= f->start->commits);

        for (size_t i = 0; counts && i + sizeof(uint64_t) <= marks.len; i += sizeof(uint64_t)) {
            list_add(kind == KIND_VOID ? &f->voids : &f->ended, get64(marks.ptr + i));
        }
    }
}

static int newer_first(const void *a, const void *b)
{
    const struct found_batch *x = a, *y = b;

    return (x->sequence < y->sequence) - (x->sequence > y->sequence);
}

static int compare_numbers(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

/* Walks from the newest batch to the oldest: finds those that have happened, and the messages that
 * they end. */
static int look_back(struct finding *f, struct passage_found *found)
{
    bool later = false; /* a later batch has happened */
    int err;

    for (size_t i = 0; i < f->count; i++) {
        struct found_batch *b = &f->all[i];
        bool whole;

        if (is_void(f, b)) {
            continue;
        }
        err = read_batch(f, b);
        if (err != 0) {
            return err;
        }
        (void)count_records(f, b, &whole);
        /* An incomplete batch before one that has happened was complete once, and is damaged. */
        b->has_happened = later || (whole && (!b->with_database || b->commit <= f->start->commits ||
                                              b->commit <= f->start->told));
        if (b->has_happened) {
            take_marks(f, b);
            later = true;
            found->last_id = b->last_id > found->last_id ? b->last_id : found->last_id;
            found->commits = b->commit > found->commits ? b->commit : found->commits;
        }
    }
    return 0;
}

/* Counts batches that were written and can't be found: their first page is damaged. */
static uint64_t missing_batches(const struct finding *f)
{
    uint64_t expected, there = f->count;

    if (f->count == 0) {
        return 0;
    }
    expected = f->all[0].sequence - f->all[f->count - 1].sequence + 1;
    for (size_t i = 0; i + 1 < f->voids.count; i += 2) {
        bool is_there = false;

        for (size_t j = 0; j < f->count && !is_there; j++) {
            is_there =
                f->all[j].generation == f->voids.all[i] && f->all[j].at == f->voids.all[i + 1];
        }
        there += !is_there;
    }
    return expected > there ? expected - there : 0;
}

static int give(struct finding *f, const struct found_batch *b, struct passage_found *found)
{
    size_t at = BATCH_HEADER, len;
    uint32_t count = 0;
    const char *h;
    int err = read_batch(f, b);

    while (err == 0 && (h = next_record(f, b, &at, &len)) != NULL) {
        struct passage_mail mail = mail_of(h, len);

        count++;
        if (get32(h + 12) == KIND_MAIL &&
            (f->ended.count == 0 || bsearch(&mail.id.n, f->ended.all, f->ended.count,
                                            sizeof mail.id.n, compare_numbers) == NULL)) {
            err = f->start->take(f->start->context, &mail);
            found->messages++;
        } else if (get32(h + 12) == KIND_KEY && f->start->take_key != NULL) {
            err = f->start->take_key(f->start->context, mail.id, mail.envelope);
        }
    }
    found->damaged += count < b->records ? b->records - count : 0;
    return err;
}

int passage_begin(struct passage *p, const struct passage_start *start,
                  struct passage_found *ret_found)
{
    struct finding f = {.p = p, .start = start, .newest = 0};
    struct passage_found found = {.last_id = 0};
    int err;

    p->tag = start->tag;
    err = find_in_dir(&f);
    found.batches = f.count;
    if (err == 0 && f.count > 0) {
        uint64_t oldest, from;
        size_t kept = 0;

        qsort(f.all, f.count, sizeof f.all[0], newer_first);
        oldest = f.all[0].oldest;
        from = f.all[0].from; /* replaces start->from, which a lost database has forgotten */
        for (size_t i = 0; i < f.count; i++) {
            if (f.all[i].generation >= oldest && f.all[i].sequence >= from) {
                f.all[kept++] = f.all[i];
            }
        }
        f.count = kept;
        err = look_back(&f, &found);
    }
    if (err == 0 && f.ended.count > 0) {
        qsort(f.ended.all, f.ended.count, sizeof f.ended.all[0], compare_numbers);
    }
    found.damaged = missing_batches(&f);
    for (size_t i = f.count; err == 0 && i-- > 0;) {
        if (f.all[i].has_happened) {
            err = give(&f, &f.all[i], &found);
        }
    }
    p->generation = f.generation + 1;
    p->sequence = f.newest >= start->from ? f.newest + 1 : start->from;
    p->from = found.next = p->sequence;
    mem_free(f.all);
    mem_free(f.bytes);
    mem_free(f.ended.all);
    mem_free(f.voids.all);
    if (err == 0) {
        *ret_found = found;
    }
    return err;
}

bool passage_is_there(const struct passage *p)
{
    DIR *dir = opendir(p->dir);
    struct dirent *entry;
    uint32_t number;
    bool is_there = false;

    while (dir != NULL && !is_there && (entry = readdir(dir)) != NULL) {
        is_there = numbered_file_parse(entry->d_name, SUFFIX, &number);
    }
    if (dir != NULL) {
        closedir(dir);
    }
    return is_there;
}
