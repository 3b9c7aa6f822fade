#include "handover.h"

#include <stdlib.h>
#include <string.h>

#include "answers.h"
#include "boot_clock.h"
#include "check.h"
#include "columns.h"
#include "mem.h"
#include "partition.h"

#define STR_(x) #x
#define STR(x)  STR_(x)

/* Values of lease_note.what. */
enum { NOTE_DEAD = 1, NOTE_RATE = 2 };

/* Largest size of all notes, so that they fit into a statement. */
#define BYTES_MAX ((size_t)4 << 20)

#define TRANSPORT_MAX 255

static const char clear_sql[] = "DELETE FROM lease_note WHERE p = ANY($1::smallint[])";

static const char write_sql[] =
    "INSERT INTO lease_note (p, what, destination, nexthop, left_us, until, deaths, reason) "
    "SELECT * FROM unnest($1::smallint[], $2::smallint[], $3::text[], $4::text[], $5::bigint[], "
    "$6::bigint[], $7::smallint[], $8::bytea[]) ON CONFLICT DO NOTHING";

const char handover_sql[] =
    "SELECT p, what, destination, nexthop, left_us, until, deaths, reason FROM "
    "lease_note WHERE p = ANY($1::smallint[]) AND $2::bigint IS NOT NULL ORDER BY left_us DESC "
    "LIMIT " STR(HANDOVER_MAX);

struct handover_note {
    struct spool_suspension s; /* texts of its slices are in `bytes` */
    struct slice name;         /* transport/destination, in `bytes` */
    uint16_t p;
    size_t size;                /* used size of `bytes` */
    struct handover_note *next; /* next of the notes that were read */
    char bytes[];
};

void handover_init(struct handover *h, const struct spool *base, const struct finder *finder)
{
    *h = (struct handover){.base = base, .finder = finder};
}

void handover_fini(struct handover *h)
{
    while (h->read != NULL) {
        struct handover_note *n = h->read;

        h->read = n->next;
        mem_free(n);
    }
    mem_free(h->given);
    h->given = NULL;
}

static uint16_t partition(const struct handover *h, const struct spool_suspension *s)
{
    const struct spool_rcpt r = {.transport = s->transport, .nexthop = s->nexthop};

    return partition_of(&r, parts_ring(h->base, &r));
}

static struct slice keep(struct handover_note *n, struct slice text)
{
    char *at = n->bytes + n->size;

    if (text.len > 0) {
        memcpy(at, text.ptr, text.len);
    }
    n->size += text.len;
    return slice_of(at, text.len);
}

static struct handover_note *note_new(const struct spool_suspension *s, uint16_t p)
{
    struct handover_note *n = mem_new(sizeof *n + s->transport.len + 1 + s->destination.len +
                                      s->nexthop.len + s->reason.len);

    n->s = *s;
    n->p = p;
    n->s.transport = keep(n, s->transport);
    (void)keep(n, SLICE("/"));
    n->s.destination = keep(n, s->destination);
    n->name = slice_of(n->bytes, n->size);
    n->s.nexthop = keep(n, s->nexthop);
    n->s.reason = keep(n, s->reason);
    return n;
}

/* ---- writing --------------------------------------------------------------------------------- */

/* States from the owner's callback, for some partitions. */
struct collection {
    const struct handover *handover;
    struct partition_set of;
    struct handover_note **notes; /* owned, with each note */
    size_t count, size;
    bool only_counts;
};

static void collect(void *to, const struct spool_suspension *s)
{
    struct collection *c = to;
    uint16_t p = partition(c->handover, s);

    if (!partition_set_has(&c->of, p) || s->left_us <= 0 || s->transport.len > TRANSPORT_MAX ||
        s->nexthop.len > SPOOL_SUSPENSION_NAME_MAX || s->destination.len == 0 ||
        s->destination.len > SPOOL_SUSPENSION_NAME_MAX ||
        s->reason.len > SPOOL_SUSPENSION_REASON_MAX) {
        return;
    }
    if (c->only_counts) {
        c->count++;
        return;
    }
    c->notes = mem_grow(c->notes, c->count, &c->size, sizeof(struct handover_note *));
    c->notes[c->count++] = note_new(s, p);
}

static int latest_first(const void *a, const void *b)
{
    const struct handover_note *const *x = a, *const *y = b;

    return ((*x)->s.left_us < (*y)->s.left_us) - ((*x)->s.left_us > (*y)->s.left_us);
}

static void add_row(struct columns *rows, const struct handover_note *n, int64_t now)
{
    int64_t left = n->s.left_us < SPOOL_SUSPENSION_US_MAX ? n->s.left_us : SPOOL_SUSPENSION_US_MAX;

    columns_number(rows, n->p);
    columns_number(rows, n->s.is_dead ? NOTE_DEAD : NOTE_RATE);
    columns_bytes(rows, n->name);
    columns_bytes(rows, n->s.nexthop);
    columns_number(rows, left);
    columns_number(rows, now + left);
    columns_number(rows, n->s.deaths < UINT8_MAX ? n->s.deaths : UINT8_MAX);
    columns_bytes(rows, n->s.reason);
    columns_row_open(rows);
}

/* Adds rows for the notes that end last, within the limits. Returns the partitions with rows. */
static struct partition_set add_rows(const struct collection *c, struct columns *rows)
{
    struct partition_set noted = {{0}};
    uint16_t by_p[PARTITIONS] = {0};
    int64_t now = wall_now().us;
    size_t count = 0, bytes = 0;

    for (size_t i = 0; i < c->count && count < HANDOVER_MAX && bytes < BYTES_MAX; i++) {
        const struct handover_note *n = c->notes[i];

        if (by_p[n->p] < HANDOVER_PARTITION_MAX) {
            add_row(rows, n, now);
            partition_set_add(&noted, n->p);
            by_p[n->p]++;
            count++;
            bytes += n->size;
        }
    }
    return noted;
}

static void clear(struct committer_batch *b, const struct partition_set *partitions)
{
    struct columns c;

    columns_init(&c, clear_sql, "s");
    for (int p = 0; p < PARTITIONS; p++) {
        if (partition_set_has(partitions, p)) {
            columns_number(&c, p);
            columns_row_open(&c);
        }
    }
    columns_flush(&c, b);
    columns_fini(&c);
}

/* Adds statements to `b` that replace all notes of `partitions` by current ones. Returns the
 * partitions with notes. */
static struct partition_set write_notes(const struct handover *h,
                                        const struct partition_set *partitions,
                                        struct committer_batch *b)
{
    struct collection c = {.handover = h, .of = *partitions};
    struct partition_set written, cleared;
    struct columns rows;

    if (h->tell != NULL) {
        h->tell(h->arg, collect, &c);
    }
    if (c.count > 0) {
        qsort(c.notes, c.count, sizeof(struct handover_note *), latest_first);
    }
    columns_init(&rows, write_sql, "ssttllsb");
    written = add_rows(&c, &rows);
    for (int i = 0; i < PARTITIONS / 64; i++) {
        cleared.bits[i] = (written.bits[i] | h->noted.bits[i]) & partitions->bits[i];
    }
    clear(b, &cleared);
    columns_flush(&rows, b);
    columns_fini(&rows);
    for (size_t i = 0; i < c.count; i++) {
        mem_free(c.notes[i]);
    }
    mem_free(c.notes);
    return written;
}

static bool has_something(const struct handover *h, const struct partition_set *partitions)
{
    struct collection c = {.handover = h, .of = *partitions, .only_counts = true};

    for (int i = 0; i < PARTITIONS / 64; i++) {
        if ((h->noted.bits[i] & partitions->bits[i]) != 0) {
            return true;
        }
    }
    if (h->tell != NULL) {
        h->tell(h->arg, collect, &c);
    }
    return c.count > 0;
}

static struct partition_set ours(const struct handover *h)
{
    struct partition_set set = {{0}};

    for (int p = 0; p < PARTITIONS; p++) {
        if (h->finder->is_mine[p]) {
            partition_set_add(&set, p);
        }
    }
    return set;
}

void handover_turn(struct handover *h, int64_t now)
{
    struct partition_set mine;

    if (!h->has_table || h->is_wanted || h->under_way > 0 || now < h->next_at) {
        return;
    }
    h->next_at = now + HANDOVER_EACH_US;
    mine = ours(h);
    h->is_wanted = has_something(h, &mine);
}

bool handover_is_wanted(const struct handover *h)
{
    return h->is_wanted;
}

void handover_join(struct handover *h, struct committer_batch *b, unsigned commits)
{
    if (!h->is_wanted) {
        return;
    }
    h->is_wanted = false;
    h->under_way = commits;
    h->writing = ours(h);
    h->written = write_notes(h, &h->writing, b);
    for (int i = 0; i < PARTITIONS / 64; i++) {
        h->noted.bits[i] |= h->written.bits[i];
    }
}

void handover_ended(struct handover *h, bool failed)
{
    if (h->under_way == 0) {
        return;
    }
    h->under_way = failed ? 0 : h->under_way - 1;
    for (int i = 0; i < PARTITIONS / 64 && h->under_way == 0 && !failed; i++) {
        h->noted.bits[i] = (h->noted.bits[i] & ~h->writing.bits[i]) | h->written.bits[i];
    }
}

bool handover_is_under_way(const struct handover *h)
{
    return h->under_way > 0;
}

struct committer_batch *handover_of(struct handover *h, const struct partition_set *partitions)
{
    struct committer_batch *b;

    if (!h->has_table || !has_something(h, partitions)) {
        return NULL;
    }
    b = committer_batch_new();
    (void)write_notes(h, partitions, b);
    return b;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Splits a name. Returns false if the transport or destination is missing. */
static bool divide(struct slice name, struct spool_suspension *s)
{
    const char *slash = name.len > 0 ? memchr(name.ptr, '/', name.len) : NULL;

    if (slash == NULL) {
        return false;
    }
    s->transport = slice_of(name.ptr, (size_t)(slash - name.ptr));
    s->destination = slice_skip(name, s->transport.len + 1);
    return s->transport.len > 0 && s->transport.len <= TRANSPORT_MAX && s->destination.len > 0 &&
           s->destination.len <= SPOOL_SUSPENSION_NAME_MAX;
}

/* Reads a row. Returns false if it is invalid. */
static bool read_row(const PGresult *r, int row, struct text_pool *pool, uint16_t *ret_p,
                     int64_t *ret_until, struct spool_suspension *s)
{
    int64_t p, what, deaths;
    struct slice name;

    if (!answer_number(r, row, 0, &p) || p < 0 || p >= PARTITIONS ||
        !answer_number(r, row, 1, &what) || (what != NOTE_DEAD && what != NOTE_RATE) ||
        !answer_text(r, row, 2, TRANSPORT_MAX + 1 + SPOOL_SUSPENSION_NAME_MAX, pool, &name) ||
        !divide(name, s) || !answer_text(r, row, 3, SPOOL_SUSPENSION_NAME_MAX, pool, &s->nexthop) ||
        !answer_number(r, row, 4, &s->left_us) || s->left_us <= 0 ||
        s->left_us > SPOOL_SUSPENSION_US_MAX || !answer_number(r, row, 5, ret_until) ||
        !answer_number(r, row, 6, &deaths) || deaths < 0 || deaths > UINT8_MAX ||
        PQnfields(r) < 8 || PQgetlength(r, row, 7) > SPOOL_SUSPENSION_REASON_MAX) {
        return false;
    }
    *ret_p = (uint16_t)p;
    s->is_dead = what == NOTE_DEAD;
    s->deaths = (uint32_t)deaths;
    s->reason = slice_of(PQgetvalue(r, row, 7), (size_t)PQgetlength(r, row, 7));
    return true;
}

void handover_answer(struct handover *h, const PGresult *r)
{
    struct text_pool pool = {NULL, 0};
    int64_t now = wall_now().us;

    for (int row = 0; row < PQntuples(r) && row < HANDOVER_MAX; row++) {
        struct spool_suspension s = {.left_us = 0};
        struct handover_note *n;
        int64_t until;
        uint16_t p;

        text_pool_clear(&pool);
        if (!read_row(r, row, &pool, &p, &until, &s) || !h->finder->is_mine[p]) {
            continue;
        }
        partition_set_add(&h->noted, p);
        if (partition(h, &s) != p || until < now - HANDOVER_PAST_US) {
            continue;
        }
        n = note_new(&s, p);
        n->next = h->read;
        h->read = n;
    }
    text_pool_fini(&pool);
}

bool handover_next(struct handover *h, struct spool_suspension *ret)
{
    mem_free(h->given);
    h->given = h->read;
    if (h->given == NULL) {
        return false;
    }
    h->read = h->given->next;
    *ret = h->given->s;
    return true;
}
