#include "columns.h"

#include <endian.h>
#include <string.h>

#include "check.h"
#include "marked_text.h"
#include "mem.h"

/* Size of an array's head: dimensions, has nulls, type of elements, length, index of the first
 * element. */
#define HEAD_SIZE 20
/* A column gets room for so many values of the size of its first, so that large content is rarely
 * copied on growth. */
#define USUAL_ROWS 64

static uint32_t type_of(char letter)
{
    switch (letter) {
    case 's':
        return 21;
    case 'i':
        return 23;
    case 'l':
        return 20;
    case 'b':
        return 17;
    case 't':
        return 25;
    case 'o':
        return 16;
    default:
        UNREACHABLE("no such type");
    }
}

static unsigned width_of(char letter)
{
    return letter == 'o' ? 1 : letter == 's' ? 2 : letter == 'i' ? 4 : 8;
}

static char *room(struct column *c, size_t len)
{
    if (c->size - c->len < len) {
        size_t more = c->len + (len < COLUMNS_BYTES_MAX / USUAL_ROWS ? USUAL_ROWS * len : len);

        c->size = 2 * c->size > more ? 2 * c->size : more;
        c->bytes = mem_resize(c->bytes, c->size, 1);
    }
    c->len += len;
    return c->bytes + c->len - len;
}

static void put_u32(char *at, uint32_t n)
{
    n = htobe32(n);
    memcpy(at, &n, sizeof n);
}

static struct column *next(struct columns *c, char *ret_letter)
{
    struct column *column = &c->column[c->at];

    CHECK(c->types[c->at] != '\0');
    *ret_letter = c->types[c->at++];
    if (c->rows == 0) {
        column->len = 0;
        column->has_null = false;
        (void)room(column, HEAD_SIZE);
    }
    return column;
}

void columns_init(struct columns *c, const char *sql, const char *types)
{
    *c = (struct columns){.sql = sql, .types = types};
    CHECK(strlen(types) <= COLUMNS_MAX);
}

void columns_fini(struct columns *c)
{
    for (unsigned i = 0; i < COLUMNS_MAX; i++) {
        mem_free(c->column[i].bytes);
    }
}

void columns_number(struct columns *c, int64_t n)
{
    char letter;
    struct column *column = next(c, &letter);
    unsigned width = width_of(letter);
    char *at = room(column, 4 + width);
    uint64_t big;

    CHECK(letter != 'b' && letter != 't');
    put_u32(at, width);
    big = htobe64((uint64_t)n << (64 - 8 * width));
    memcpy(at + 4, &big, width);
    c->bytes += 4 + width;
}

static void put_plain(struct columns *c, struct column *column, struct slice bytes)
{
    char *at = room(column, 4 + bytes.len);

    put_u32(at, (uint32_t)bytes.len);
    if (bytes.len > 0) {
        memcpy(at + 4, bytes.ptr, bytes.len);
    }
    c->bytes += 4 + bytes.len;
}

static void put_marked(struct columns *c, struct column *column, struct slice text)
{
    size_t len = marked_text_size(text);
    char *at = room(column, 4 + len);

    put_u32(at, (uint32_t)len);
    marked_text_write(at + 4, text);
    c->bytes += 4 + len;
}

void columns_bytes(struct columns *c, struct slice bytes)
{
    char letter;
    struct column *column = next(c, &letter);

    CHECK((letter == 'b' || letter == 't') && bytes.len <= COLUMNS_BYTES_MAX);
    if (letter == 'b' || marked_text_is_plain(bytes)) {
        put_plain(c, column, bytes);
    } else {
        put_marked(c, column, bytes);
    }
}

void columns_null(struct columns *c)
{
    char letter;
    struct column *column = next(c, &letter);

    put_u32(room(column, 4), UINT32_MAX);
    column->has_null = true;
}

void columns_row_open(struct columns *c)
{
    CHECK(c->types[c->at] == '\0');
    c->at = 0;
    c->rows++;
}

void columns_row(struct columns *c, struct committer_batch *b)
{
    columns_row_open(c);
    if (c->rows >= COLUMNS_ROWS_MAX || c->bytes >= COLUMNS_BYTES_MAX) {
        columns_flush(c, b);
    }
}

/* Writes the heads of the arrays and fills in the parameters. Returns their number. */
static int finish(struct columns *c, struct link_param params[COLUMNS_MAX + 1])
{
    int count = 0;

    CHECK(c->at == 0);
    for (; c->types[count] != '\0'; count++) {
        struct column *column = &c->column[count];

        if (c->rows == 0) {
            column->len = 0;
            column->has_null = false;
            (void)room(column, HEAD_SIZE);
        }
        put_u32(column->bytes, c->rows > 0);
        put_u32(column->bytes + 4, column->has_null);
        put_u32(column->bytes + 8, type_of(c->types[count]));
        put_u32(column->bytes + 12, c->rows);
        put_u32(column->bytes + 16, 1);
        params[count] = (struct link_param){
            .bytes = column->bytes,
            .len = c->rows > 0 ? column->len : HEAD_SIZE - 8, /* an empty array has no dimension */
            .is_binary = true};
    }
    c->rows = 0;
    c->bytes = 0;
    return count;
}

struct slice columns_array(struct columns *c)
{
    struct link_param params[COLUMNS_MAX + 1];

    CHECK(finish(c, params) == 1);
    return slice_of(params[0].bytes, params[0].len);
}

void columns_flush(struct columns *c, struct committer_batch *b)
{
    struct link_param params[COLUMNS_MAX + 1];

    if (c->rows > 0) {
        int count = finish(c, params);

        committer_batch_add_taken(b, c->sql, params, count); /* taken, as content is large */
        memset(c->column, 0, sizeof c->column);
    }
}

void columns_flush_with(struct columns *c, struct committer_batch *b, struct link_param more)
{
    struct link_param params[COLUMNS_MAX + 1];
    int count = finish(c, params);

    params[count++] = more;
    committer_batch_add(b, c->sql, params, count);
}
