#include "arrivals.h"

#include <inttypes.h>
#include <string.h>

#include "answers.h"
#include "buf.h"
#include "check.h"
#include "mem.h"
#include "partition.h"
#include "spool.h"

#define FLOOR_US (60 * INT64_C(1000000))

#define INSERT(more)                                                                               \
    "INSERT INTO arrival (node, parts) SELECT l.node, string_agg(u.entry, ''::bytea) FROM "        \
    "unnest($1::smallint[], $2::bytea[]) AS u (p, entry) JOIN lease l ON l.p = u.p WHERE l.node "  \
    "IS NOT NULL " more "GROUP BY l.node"

const char arrivals_insert_sql[] = INSERT("");
const char arrivals_insert_types[] = "sb";

/* Deletes arrivals outside the committer's batches, so it contains a check of the fence. As it may
 * be sent twice, arrivals are passed on only if their rows existed. $3: node's number, incarnation,
 * and numbers of the rows. */
static const char delete_alone_sql[] =
    "WITH gone AS (DELETE FROM arrival WHERE node = ($3::bigint[])[1]::smallint AND seq = "
    "ANY(($3::bigint[])[3:]) AND EXISTS (SELECT FROM fence WHERE no = "
    "($3::bigint[])[1]::smallint AND incarnation = ($3::bigint[])[2]) RETURNING 1) " INSERT(
        "AND EXISTS (SELECT FROM gone) ");

static void put_number(unsigned char *at, unsigned bytes, uint64_t n)
{
    for (unsigned i = 0; i < bytes; i++) {
        at[i] = (unsigned char)(n >> 8 * (bytes - 1 - i));
    }
}

static uint64_t get_number(const unsigned char *at, unsigned bytes)
{
    uint64_t n = 0;

    for (unsigned i = 0; i < bytes; i++) {
        n = n << 8 | at[i];
    }
    return n;
}

void arrived_put(struct columns *c, const struct arrived_mail *a)
{
    unsigned char entry[ARRIVAL_SIZE];

    entry[0] = (unsigned char)a->kind;
    entry[1] = (unsigned char)a->counts_as;
    put_number(entry + 2, 2, a->p);
    put_number(entry + 4, 8, a->id);
    put_number(entry + 12, 8, a->size);
    columns_number(c, a->p);
    columns_bytes(c, slice_of((const char *)entry, sizeof entry));
}

static bool get_arrived(const unsigned char *entry, struct arrived_mail *ret)
{
    uint64_t p = get_number(entry + 2, 2);

    *ret = (struct arrived_mail){.p = (uint16_t)p,
                                 .id = get_number(entry + 4, 8),
                                 .kind = (enum arrival_kind)entry[0],
                                 .counts_as = entry[1],
                                 .size = get_number(entry + 12, 8)};
    return entry[0] <= ARRIVAL_TOLD && entry[1] <= SPOOL_CORRUPT && p < PARTITIONS && ret->id > 0 &&
           ret->id <= INT64_MAX && ret->size <= SPOOL_CONTENT_MAX;
}

const char arrivals_ask_sql[] =
    "SELECT seq, parts FROM arrival WHERE node = $1::smallint AND seq > $2::bigint AND "
    "seq <> ALL($3::bigint[]) ORDER BY seq LIMIT 64";

const char arrivals_delete_sql[] =
    "DELETE FROM arrival WHERE node = $1::smallint AND seq = ANY($2::bigint[])";

void arrivals_init(struct arrivals *a)
{
    *a = (struct arrivals){.count = 0};
    columns_init(&a->handed_on, arrivals_insert_sql, arrivals_insert_types);
}

void arrivals_fini(struct arrivals *a)
{
    columns_fini(&a->handed_on);
    mem_free(a->seqs);
}

/* Prints the numbers from index `from` on, as an array. */
static void print_seqs(const struct arrivals *a, size_t from, struct buf *out)
{
    buf_init(out, (ARRIVALS_MAX + ARRIVALS_PAGE + 1) * 24);
    (void)buf_add_byte(out, '{'); /* the buffer is large enough */
    for (size_t i = from; i < a->count; i++) {
        (void)buf_addf(out, "%s%" PRId64, i > from ? "," : "", a->seqs[i]);
    }
    (void)buf_add_byte(out, '}');
}

static void raise_floor(struct arrivals *a, int64_t now)
{
    if (now - a->floor_at >= FLOOR_US) {
        a->floor = a->highest_before;
        a->highest_before = a->highest;
        a->floor_at = now;
    }
}

struct committer_batch *arrivals_ask(struct arrivals *a, int no, int64_t now)
{
    struct committer_batch *b;
    char room[2][LINK_NUMBER_SIZE];
    struct buf seqs;

    if (a->is_asked || a->count >= ARRIVALS_MAX) {
        return NULL;
    }
    a->is_asked = true;
    a->read_at = a->count == 0 ? now : a->read_at;
    raise_floor(a, now);
    print_seqs(a, 0, &seqs);
    b = committer_batch_new();
    committer_batch_add(b, arrivals_ask_sql,
                        (struct link_param[]){link_number_param(room[0], no),
                                              link_number_param(room[1], a->floor),
                                              link_text_param(buf_cstr(&seqs))},
                        3);
    buf_fini(&seqs);
    return b;
}

_Static_assert(ARRIVALS_PAGE == 64, "as above");

static bool has_seq(const struct arrivals *a, int64_t seq)
{
    for (size_t i = a->count; i-- > 0;) {
        if (a->seqs[i] == seq) {
            return true;
        }
    }
    return false;
}

static void add_seq(struct arrivals *a, int64_t seq)
{
    if (a->count == a->size) {
        a->size = a->size == 0 ? ARRIVALS_PAGE : 2 * a->size;
        a->seqs = mem_resize(a->seqs, a->size, sizeof a->seqs[0]);
    }
    a->seqs[a->count++] = seq;
    a->highest = seq > a->highest ? seq : a->highest;
}

void arrivals_answer(struct arrivals *a, const PGresult *r,
                     bool (*arrived)(void *arg, const struct arrived_mail *arrival), void *arg)
{
    struct arrived_mail one;
    int64_t seq;

    for (int row = 0; row < PQntuples(r) && row < ARRIVALS_PAGE; row++) {
        const unsigned char *parts;
        int len;

        if (PQnfields(r) != 2 || !answer_number(r, row, 0, &seq) || has_seq(a, seq)) {
            continue; /* the row was read twice */
        }
        add_seq(a, seq);
        parts = (const unsigned char *)PQgetvalue(r, row, 1);
        len = PQgetlength(r, row, 1);
        for (int at = 0; at + ARRIVAL_SIZE <= len; at += ARRIVAL_SIZE) {
            if (get_arrived(parts + at, &one) && arrived(arg, &one)) {
                one.counts_as = 0;
                arrived_put(&a->handed_on, &one);
                columns_row_open(&a->handed_on);
            }
        }
    }
}

bool arrivals_ended(struct arrivals *a, unsigned rows)
{
    a->is_asked = false;
    return rows == ARRIVALS_PAGE;
}

static size_t in_batches(const struct arrivals *a)
{
    size_t count = 0;

    for (unsigned i = 0; i < a->under_way_count; i++) {
        count += a->under_way[i];
    }
    return count;
}

void arrivals_begin(struct arrivals *a, int no, struct committer_batch *b)
{
    size_t from = in_batches(a);
    char room[LINK_NUMBER_SIZE];
    struct buf seqs;

    CHECK(a->under_way_count < COMMITTER_UNDER_WAY_MAX);
    a->under_way[a->under_way_count++] = a->count - from;
    if (a->count == from) {
        return;
    }
    print_seqs(a, from, &seqs);
    committer_batch_add(
        b, arrivals_delete_sql,
        (struct link_param[]){link_number_param(room, no), link_text_param(buf_cstr(&seqs))}, 2);
    columns_flush(&a->handed_on, b);
    buf_fini(&seqs);
}

void arrivals_kept(struct arrivals *a)
{
    size_t gone = a->under_way[0];

    CHECK(a->under_way_count > 0);
    a->under_way_count--;
    memmove(a->under_way, a->under_way + 1, a->under_way_count * sizeof a->under_way[0]);
    a->count -= gone;
    if (gone > 0) {
        memmove(a->seqs, a->seqs + gone, a->count * sizeof a->seqs[0]);
    }
}

static void forget(struct arrivals *a)
{
    a->under_way_count = 0;
    a->count = 0;
    columns_fini(&a->handed_on);
    columns_init(&a->handed_on, arrivals_insert_sql, arrivals_insert_types);
}

void arrivals_undone(struct arrivals *a)
{
    forget(a);
}

struct committer_batch *arrivals_delete(struct arrivals *a, int no, int64_t incarnation,
                                        int64_t now)
{
    struct committer_batch *b;
    struct buf numbers;

    if (a->is_asked || a->count == 0 || a->under_way_count > 0 ||
        now - a->read_at < ARRIVALS_ALONE_US) {
        return NULL;
    }
    b = committer_batch_new();
    buf_init(&numbers, ((size_t)ARRIVALS_MAX + ARRIVALS_PAGE + 3) * 24);
    (void)buf_addf(&numbers, "{%d,%" PRId64, no, incarnation); /* the buffer is large enough */
    for (size_t i = 0; i < a->count; i++) {
        (void)buf_addf(&numbers, ",%" PRId64, a->seqs[i]);
    }
    (void)buf_add_byte(&numbers, '}');
    a->handed_on.sql = delete_alone_sql;
    columns_flush_with(&a->handed_on, b, link_text_param(buf_cstr(&numbers)));
    buf_fini(&numbers);
    forget(a);
    return b;
}
