/*
 * The bytes that are hashed: the numbers, 8 bytes each, the least significant first; then each text
 * as its length, as such a number, and its bytes. A note has both lengths first.
 */
#include "row_sum.h"

#include <string.h>

#include "check.h"
#include "checksum.h"

#define NUMBERS_MAX 10
#define ROW_MAX                                                                                    \
    (NUMBERS_MAX * sizeof(uint64_t) + SPOOL_SENDER_MAX + DSN_ENVID_MAX + DSN_ORCPT_MAX +           \
     SPOOL_REMOTE_MAX + CLASS_NAME_MAX + ADDRESS_MAX)

struct row_bytes {
    size_t len;
    unsigned char bytes[ROW_MAX];
};

static void put_number(struct row_bytes *row, uint64_t n)
{
    CHECK(row->len + sizeof n <= sizeof row->bytes);
    for (unsigned i = 0; i < sizeof n; i++) {
        row->bytes[row->len++] = (unsigned char)(n >> 8 * i);
    }
}

static void put_text(struct row_bytes *row, struct slice text)
{
    put_number(row, text.len);
    CHECK(text.len <= sizeof row->bytes - row->len);
    if (text.len > 0) {
        memcpy(row->bytes + row->len, text.ptr, text.len);
    }
    row->len += text.len;
}

static uint64_t row_sum(const struct row_bytes *row)
{
    return checksum_of(slice_of(row->bytes, row->len));
}

uint64_t row_sum_message(const struct spool_message *m, uint64_t content_sum)
{
    struct row_bytes row;

    row.len = 0;
    put_number(&row, m->id.n);
    put_number(&row, (uint64_t)m->arrived.us);
    put_number(&row, m->size);
    put_number(&row, m->flags);
    put_number(&row, m->rcpt_total);
    put_number(&row, content_sum);
    put_text(&row, m->sender);
    put_text(&row, m->envid);
    put_text(&row, m->client);
    put_text(&row, m->class_name);
    return row_sum(&row);
}

uint64_t row_sum_rcpt(struct msg_id id, const struct spool_rcpt *r)
{
    struct row_bytes row;

    row.len = 0;
    put_number(&row, id.n);
    put_number(&row, r->n);
    put_number(&row, r->notify);
    put_text(&row, r->address);
    put_text(&row, r->orcpt);
    return row_sum(&row);
}

/* Hashes in pieces, as a note's text does not fit into struct row_bytes. */
uint64_t row_sum_note(struct slice name, struct slice text)
{
    struct checksum *c = checksum_new();
    struct row_bytes lengths = {.len = 0};
    uint64_t sum;

    put_number(&lengths, name.len);
    put_number(&lengths, text.len);
    checksum_add(c, slice_of(lengths.bytes, lengths.len));
    checksum_add(c, name);
    checksum_add(c, text);
    sum = checksum_value(c);
    checksum_free(c);
    return sum;
}
