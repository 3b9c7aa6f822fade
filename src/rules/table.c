#include "table.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "check.h"
#include "mem.h"

#define MAGIC      UINT64_C(0x31656c6269726573) /* magic number of this layout */
#define ENTRY_SIZE 10u                          /* bytes before a key */
#define VALUE_SIZE 4u                           /* bytes before a value */
#define SLOTS_MIN  16u
#define BITS_MAX   128u

/* Offsets are from the start of the image. */
struct head {
    uint64_t magic, size;
    uint64_t count; /* number of tables, which follow */
};

struct table {
    uint64_t list;
    uint64_t path_at, path_len;
    uint64_t slots_at, slot_count; /* slot_count is a power of two, or 0 without entries */
    uint64_t entries_at, entries_len;
    uint64_t values_at, values_len;
    uint64_t bits[3]; /* bit n is set if a network of n bits exists */
};

static const char *const list_names[TABLE_LISTS] = {
    [TABLE_CLIENT_ACCESS] = "client_access",
    [TABLE_SENDER_ACCESS] = "sender_access",
    [TABLE_RECIPIENT_ACCESS] = "recipient_access",
    [TABLE_LOCAL_RECIPIENT] = "local_recipient_maps",
    [TABLE_RELAY_RECIPIENT] = "relay_recipient_maps",
    [TABLE_VIRTUAL_ALIAS] = "virtual_alias_maps",
    [TABLE_ALIAS] = "alias_maps",
    [TABLE_CANONICAL] = "canonical_maps",
    [TABLE_SENDER_CANONICAL] = "sender_canonical_maps",
    [TABLE_RECIPIENT_CANONICAL] = "recipient_canonical_maps",
    [TABLE_SENDER_BCC] = "sender_bcc_maps",
    [TABLE_RECIPIENT_BCC] = "recipient_bcc_maps",
    [TABLE_HEADER_CHECKS] = "header_checks",
    [TABLE_BODY_CHECKS] = "body_checks",
};

const char *table_list_name(enum table_list list)
{
    CHECK(list < TABLE_LISTS);
    return list_names[list];
}

/* The hash has no seed: other processes read the image, and its keys come from an operator. */
static uint64_t hash(struct slice key)
{
    return XXH3_64bits(key.ptr, key.len);
}

struct slice table_network_key(const struct cidr *network, char room[TABLE_NETWORK_KEY])
{
    room[0] = '\0';
    memcpy(room + 1, network->address, sizeof network->address);
    room[TABLE_NETWORK_KEY - 1] = (char)network->bits;
    return slice_of(room, TABLE_NETWORK_KEY);
}

/* ---- making an image ------------------------------------------------------------------------ */

/* Offsets of entries + 1, by hash. */
struct slots {
    uint32_t *at;
    size_t size, used;
};

struct building {
    struct table table;
    char *path;
    struct buf entries, values;
    struct slots keys;
    struct slots texts; /* slots of values */
};

struct table_image {
    struct building *tables;
    size_t count, size;
};

struct table_image *table_image_new(void)
{
    return mem_new(sizeof(struct table_image));
}

void table_image_free(struct table_image *image)
{
    for (size_t i = 0; image != NULL && i < image->count; i++) {
        struct building *b = &image->tables[i];

        mem_free(b->path);
        buf_fini(&b->entries);
        buf_fini(&b->values);
        mem_free(b->keys.at);
        mem_free(b->texts.at);
    }
    if (image != NULL) {
        mem_free(image->tables);
        mem_free(image);
    }
}

bool table_image_begin(struct table_image *image, enum table_list list, struct slice path)
{
    struct building *b;

    if (image->count == TABLE_COUNT_MAX) {
        return false;
    }
    image->tables = mem_grow(image->tables, image->count, &image->size, sizeof *image->tables);
    b = &image->tables[image->count++];
    *b = (struct building){.table.list = list, .path = mem_copy(path.ptr, path.len)};
    b->table.path_len = path.len;
    buf_init(&b->entries, UINT32_MAX / 2);
    buf_init(&b->values, UINT32_MAX / 2);
    return true;
}

static uint32_t get_u32(const char *at)
{
    uint32_t n;

    memcpy(&n, at, sizeof n);
    return n;
}

static void put_u32(struct buf *b, uint32_t n)
{
    (void)buf_add(b, slice_of(&n, sizeof n)); /* sticky */
}

static struct slice key_at(const char *entry)
{
    uint16_t len;

    memcpy(&len, entry + 2 * sizeof(uint32_t), sizeof len);
    return slice_of(entry + ENTRY_SIZE, len);
}

static struct slice value_at(const char *value)
{
    return slice_of(value + VALUE_SIZE, get_u32(value));
}

typedef struct slice text_at(const char *at);

/* Returns the slot that holds this text, or the free slot for it. */
static uint32_t *find_slot(const struct slots *s, const struct buf *texts, text_at *text,
                           struct slice wanted)
{
    size_t i = (size_t)hash(wanted) & (s->size - 1);

    while (s->at[i] != 0 && !slice_equal(text(buf_slice(texts).ptr + s->at[i] - 1), wanted)) {
        i = (i + 1) & (s->size - 1);
    }
    return &s->at[i];
}

/* Doubles the slots when half of them are used. */
static void make_room(struct slots *s, const struct buf *texts, text_at *text)
{
    struct slots larger = {.size = s->size == 0 ? SLOTS_MIN : 2 * s->size, .used = s->used};

    if (s->used < s->size / 2) {
        return;
    }
    larger.at = mem_array(larger.size, sizeof *larger.at);
    for (size_t i = 0; i < s->size; i++) {
        if (s->at[i] != 0) {
            *find_slot(&larger, texts, text, text(buf_slice(texts).ptr + s->at[i] - 1)) = s->at[i];
        }
    }
    mem_free(s->at);
    *s = larger;
}

/* Returns the offset of the value; equal values are stored once. */
static uint32_t put_value(struct building *b, struct slice value)
{
    uint32_t *slot;

    make_room(&b->texts, &b->values, value_at);
    slot = find_slot(&b->texts, &b->values, value_at, value);
    if (*slot == 0) {
        *slot = (uint32_t)buf_len(&b->values) + 1;
        b->texts.used++;
        put_u32(&b->values, (uint32_t)value.len);
        (void)buf_add(&b->values, value); /* sticky, seen by the caller */
    }
    return *slot - 1;
}

enum table_added table_image_add(struct table_image *image, struct slice key, struct slice value,
                                 unsigned line, unsigned *ret_line)
{
    struct building *b = &image->tables[image->count - 1];
    uint16_t key_len = (uint16_t)key.len;
    uint32_t *slot, value_offset;

    CHECK(key.len <= TABLE_KEY_MAX);
    make_room(&b->keys, &b->entries, key_at);
    slot = find_slot(&b->keys, &b->entries, key_at, key);
    if (*slot != 0) {
        *ret_line = get_u32(buf_slice(&b->entries).ptr + *slot - 1);
        return TABLE_SEEN;
    }
    if (b->keys.used == TABLE_ENTRIES_MAX) {
        return TABLE_FULL;
    }
    value_offset = put_value(b, value);
    *slot = (uint32_t)buf_len(&b->entries) + 1;
    b->keys.used++;
    put_u32(&b->entries, line);
    put_u32(&b->entries, value_offset);
    (void)buf_add(&b->entries, slice_of(&key_len, sizeof key_len)); /* sticky, like the next */
    (void)buf_add(&b->entries, key);
    if (key.len == TABLE_NETWORK_KEY && key.ptr[0] == '\0') {
        unsigned bits = (unsigned char)key.ptr[TABLE_NETWORK_KEY - 1];

        b->table.bits[bits / 64] |= UINT64_C(1) << bits % 64;
    }
    return b->entries.failed || b->values.failed ? TABLE_FULL : TABLE_ADDED;
}

bool table_image_find(const struct table_image *image, struct slice key, struct slice *ret_value,
                      unsigned *ret_line)
{
    const struct building *b = &image->tables[image->count - 1];
    const char *entry;
    uint32_t slot;

    slot = b->keys.size == 0 ? 0 : *find_slot(&b->keys, &b->entries, key_at, key);
    if (slot == 0) {
        return false;
    }
    entry = buf_slice(&b->entries).ptr + slot - 1;
    *ret_line = get_u32(entry);
    *ret_value = value_at(buf_slice(&b->values).ptr + get_u32(entry + sizeof(uint32_t)));
    return true;
}

bool table_image_add_text(struct table_image *image, struct slice text)
{
    struct building *b = &image->tables[image->count - 1];

    (void)put_value(b, text);
    return !b->values.failed;
}

static bool write_all(int fd, struct slice bytes)
{
    while (bytes.len > 0) {
        ssize_t n = write(fd, bytes.ptr, bytes.len);

        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            errno = n == 0 ? ENOSPC : errno;
            return false;
        }
        bytes = slice_skip(bytes, (size_t)n);
    }
    return true;
}

/* Returns *at, and moves *at past `len` bytes, aligned for slots. */
static uint64_t place(uint64_t *at, uint64_t len)
{
    uint64_t here = *at;

    *at += (len + 7) / 8 * 8;
    return here;
}

static bool write_part(int fd, struct slice bytes)
{
    static const char zeros[8];

    return write_all(fd, bytes) && write_all(fd, slice_of(zeros, (8 - bytes.len % 8) % 8));
}

static struct slice slots_slice(const struct slots *s)
{
    return slice_of(s->at, s->size * sizeof *s->at);
}

static bool write_image(int fd, struct table_image *image, struct head *head)
{
    bool ok = write_all(fd, slice_of(head, sizeof *head));

    for (size_t i = 0; ok && i < image->count; i++) {
        ok = write_all(fd, slice_of(&image->tables[i].table, sizeof(struct table)));
    }
    for (size_t i = 0; ok && i < image->count; i++) {
        const struct building *b = &image->tables[i];

        ok = write_part(fd, slice_of(b->path, (size_t)b->table.path_len)) &&
             write_part(fd, slots_slice(&b->keys)) && write_part(fd, buf_slice(&b->entries)) &&
             write_part(fd, buf_slice(&b->values));
    }
    return ok;
}

int table_image_seal(struct table_image *image)
{
    static const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL;
    struct head head = {.magic = MAGIC, .count = image->count};
    int fd = memfd_create("rules", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd == 0) { /* standard input was closed; callers use 0 for "no tables" */
        fd = fcntl(0, F_DUPFD_CLOEXEC, 1);
        (void)close(0);
    }

    head.size = sizeof head + image->count * sizeof(struct table);
    for (size_t i = 0; i < image->count; i++) {
        struct building *b = &image->tables[i];
        struct table *t = &b->table;

        t->path_at = place(&head.size, t->path_len);
        t->slot_count = b->keys.size;
        t->slots_at = place(&head.size, slots_slice(&b->keys).len);
        t->entries_len = buf_len(&b->entries);
        t->entries_at = place(&head.size, t->entries_len);
        t->values_len = buf_len(&b->values);
        t->values_at = place(&head.size, t->values_len);
    }
    if (fd >= 0 && (head.size > TABLE_IMAGE_MAX || !write_image(fd, image, &head) ||
                    fcntl(fd, F_ADD_SEALS, seals) != 0)) {
        int error = head.size > TABLE_IMAGE_MAX ? EFBIG : errno;

        (void)close(fd); /* memory */
        errno = error;
        return -1;
    }
    return fd;
}

/* ---- reading one ---------------------------------------------------------------------------- */

struct tables {
    const char *bytes;
    size_t size;
    const struct table *at;
    size_t count;
};

static bool inside(size_t size, uint64_t at, uint64_t len)
{
    return at <= size && len <= size - at;
}

static bool table_ok(const struct table *t, size_t size)
{
    return t->list < TABLE_LISTS && inside(size, t->path_at, t->path_len) &&
           t->slot_count <= UINT32_MAX && (t->slot_count & (t->slot_count - 1)) == 0 &&
           t->slots_at % sizeof(uint32_t) == 0 &&
           inside(size, t->slots_at, t->slot_count * sizeof(uint32_t)) &&
           inside(size, t->entries_at, t->entries_len) && inside(size, t->values_at, t->values_len);
}

struct tables *tables_open(int fd)
{
    struct stat st;
    struct tables *t;
    struct head head;
    void *bytes;

    if (fstat(fd, &st) != 0 || st.st_size < (off_t)sizeof head) {
        return NULL;
    }
    bytes = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (bytes == MAP_FAILED) {
        return NULL;
    }
    t = mem_new(sizeof *t);
    t->bytes = bytes;
    t->size = (size_t)st.st_size;
    memcpy(&head, bytes, sizeof head);
    if (head.magic != MAGIC || head.size != t->size || head.count > TABLE_COUNT_MAX ||
        !inside(t->size, sizeof head, head.count * sizeof(struct table))) {
        tables_close(t);
        return NULL;
    }
    t->at = (const struct table *)(const void *)(t->bytes + sizeof head);
    t->count = (size_t)head.count;
    for (size_t i = 0; i < t->count; i++) {
        if (!table_ok(&t->at[i], t->size)) {
            tables_close(t);
            return NULL;
        }
    }
    return t;
}

void tables_close(struct tables *t)
{
    if (t != NULL) {
        (void)munmap((void *)(uintptr_t)t->bytes, t->size); /* munmap takes no const */
        mem_free(t);
    }
}

size_t tables_count(const struct tables *t, enum table_list list)
{
    size_t count = 0;

    for (size_t i = 0; t != NULL && i < t->count; i++) {
        count += t->at[i].list == (uint64_t)list ? 1 : 0;
    }
    return count;
}

static const struct table *table_of(const struct tables *t, enum table_list list, size_t n)
{
    size_t i = 0;

    CHECK(n < tables_count(t, list));
    while (t->at[i].list != (uint64_t)list || n-- > 0) {
        i++;
    }
    return &t->at[i];
}

static struct slice path_of(const struct tables *t, const struct table *table)
{
    return slice_of(t->bytes + table->path_at, (size_t)table->path_len);
}

/* Returns the value at an offset; empty if it is not inside the image. */
static struct slice value_of(const struct tables *t, const struct table *table, uint32_t offset)
{
    const char *values = t->bytes + table->values_at;
    size_t size = (size_t)table->values_len;

    if (!inside(size, offset, VALUE_SIZE) ||
        !inside(size, offset + VALUE_SIZE, get_u32(values + offset))) {
        return slice_of(NULL, 0);
    }
    return value_at(values + offset);
}

static bool find(const struct tables *t, const struct table *table, struct slice key,
                 struct table_hit *ret_hit)
{
    const uint32_t *slots = (const uint32_t *)(const void *)(t->bytes + table->slots_at);
    const char *entries = t->bytes + table->entries_at;
    size_t size = (size_t)table->entries_len, mask = (size_t)table->slot_count - 1;
    size_t i = (size_t)hash(key) & mask;

    for (size_t looked = 0; looked < table->slot_count && slots[i] != 0; looked++) {
        size_t at = slots[i] - 1;

        if (!inside(size, at, ENTRY_SIZE) ||
            !inside(size, at + ENTRY_SIZE, key_at(entries + at).len)) {
            return false;
        }
        if (slice_equal(key_at(entries + at), key)) {
            ret_hit->list = (enum table_list)table->list;
            ret_hit->line = get_u32(entries + at);
            ret_hit->value = value_of(t, table, get_u32(entries + at + sizeof(uint32_t)));
            ret_hit->path = path_of(t, table);
            return true;
        }
        i = (i + 1) & mask;
    }
    return false;
}

bool tables_find(const struct tables *t, enum table_list list, size_t i, struct slice key,
                 struct table_hit *ret_hit)
{
    return find(t, table_of(t, list, i), key, ret_hit);
}

bool tables_find_network(const struct tables *t, enum table_list list, size_t i,
                         const unsigned char ip[16], struct table_hit *ret_hit)
{
    const struct table *table = table_of(t, list, i);
    struct cidr c;
    char room[TABLE_NETWORK_KEY];

    memcpy(c.address, ip, sizeof c.address);
    for (unsigned bits = BITS_MAX + 1; bits-- > 0;) {
        if (bits < BITS_MAX) { /* clear the bit after the mask */
            c.address[bits / 8] &= (unsigned char)(0xff00u >> bits % 8);
        }
        c.bits = bits;
        if ((table->bits[bits / 64] >> bits % 64 & 1) != 0 &&
            find(t, table, table_network_key(&c, room), ret_hit)) {
            return true;
        }
    }
    return false;
}

struct slice tables_text(const struct tables *t, enum table_list list, size_t i,
                         struct slice *ret_path)
{
    const struct table *table = table_of(t, list, i);

    *ret_path = path_of(t, table);
    return value_of(t, table, 0);
}
