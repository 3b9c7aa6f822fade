#include "shared_texts.h"

#include "answers.h"
#include "check.h"
#include "mem.h"
#include "reader.h"

/* ---- statements ------------------------------------------------------------------------------ */

#define STRINGIFY(n) #n
#define TEXT_OF(n)   STRINGIFY(n)

/* Values of SPOOL_SHARED_MAX and SPOOL_SHARED_TEXT_MAX, as digits for statements. */
#define TEXTS_MAX 10000
#define TEXT_MAX  8192
_Static_assert(TEXTS_MAX == SPOOL_SHARED_MAX && TEXT_MAX == SPOOL_SHARED_TEXT_MAX,
               "the same limits");

#define SQL_COUNT                                                                                  \
    "UPDATE cluster SET interventions = interventions + 1, redirects = CASE WHEN $1::bool THEN "   \
    "interventions + 1 ELSE redirects END"
#define SQL_PUT                                                                                    \
    "INSERT INTO intervention SELECT interventions, $1::smallint, $2::bigint, $3::bytea FROM "     \
    "cluster WHERE (SELECT count(*) FROM intervention) < " TEXT_OF(TEXTS_MAX) " ON CONFLICT DO "   \
                                                                              "NOTHING"
#define SQL_REMOVE "DELETE FROM intervention WHERE number = $1::bigint"

/* The count is read first, so that the rows are at least as new. */
static const char count_sql[] = "SELECT interventions, redirects FROM cluster";
static const char rows_sql[] =
    "SELECT number, node, asked, CASE WHEN octet_length(text) <= " TEXT_OF(
        TEXT_MAX) " THEN text END FROM intervention WHERE number > $1::bigint ORDER BY number "
                  "LIMIT " TEXT_OF(SHARED_TEXTS_PAGE);
static const char numbers_sql[] =
    "SELECT number FROM intervention ORDER BY number LIMIT 1 + " TEXT_OF(TEXTS_MAX);

/* ---- state ----------------------------------------------------------------------------------- */

struct text {
    uint64_t number;
    int64_t node, asked;
    struct slice bytes; /* owned */
};

struct shared_texts {
    struct reader *reader; /* owned */
    int node;              /* SPOOL_NOBODY until the node has registered */
    int64_t incarnation;
    struct text *texts; /* owned; the copy, ordered by number */
    size_t count, size;
    bool is_there, is_cut;

    int64_t db_count, db_redirects; /* count and redirects of the copy */
    int64_t told_count;             /* count of the last renewal */
    uint64_t looks, wanted;         /* number of looks ended; last one requested */
    int64_t wanted_since;           /* microseconds; 0 if none is open */
    bool is_looking, has_added, has_more, reads_anew, has_come;
    bool is_current;       /* whether a look of this incarnation and lease has ended */
    uint64_t current_with; /* otherwise the look that makes the copy current */
    int64_t read_count, read_redirects;
    uint64_t begun;   /* number of looks that have begun */
    int64_t sweep_at; /* time of the next sweep, in microseconds */
};

static int64_t asked_number(const struct shared_texts *t, uint32_t token)
{
    return (int64_t)((uint64_t)t->incarnation << 32 | token);
}

/* ---- the copy -------------------------------------------------------------------------------- */

static uint64_t last_number(const struct shared_texts *t)
{
    return t->count > 0 ? t->texts[t->count - 1].number : 0;
}

static void add(struct shared_texts *t, const struct text *text)
{
    if (t->count == t->size) {
        t->size = t->size == 0 ? 16 : 2 * t->size;
        t->texts = mem_resize(t->texts, t->size, sizeof t->texts[0]);
    }
    t->texts[t->count++] = *text;
}

static void take_rows(struct shared_texts *t, const PGresult *r)
{
    t->has_added = false;
    for (int row = 0; row < PQntuples(r) && t->count < SPOOL_SHARED_MAX; row++) {
        struct text text = {.number = 0};
        size_t len = PQnfields(r) > 3 ? (size_t)PQgetlength(r, row, 3) : 0;
        int64_t n;

        if (!answer_number(r, row, 0, &n) || n <= 0 || (uint64_t)n <= last_number(t) ||
            !answer_number(r, row, 1, &text.node) || !answer_number(r, row, 2, &text.asked)) {
            continue; /* it is invalid, or was read before */
        }
        text.number = (uint64_t)n;
        if (len > 0 && len <= SPOOL_SHARED_TEXT_MAX) {
            text.bytes = slice_of(mem_copy(PQgetvalue(r, row, 3), len), len);
        }
        add(t, &text);
        t->has_added = true;
    }
}

static void forget(struct shared_texts *t)
{
    for (size_t i = 0; i < t->count; i++) {
        mem_free((char *)(uintptr_t)t->texts[i].bytes.ptr);
    }
    t->count = 0;
}

/* Takes the list of all numbers: texts that are not in it leave the copy. */
static void take_numbers(struct shared_texts *t, const PGresult *r)
{
    uint64_t last = last_number(t);
    size_t kept = 0, at = 0;
    bool misses = false, has_changed;
    int64_t n = 0;

    for (int row = 0; row < PQntuples(r); row++) {
        if (!answer_number(r, row, 0, &n) || n <= 0) {
            continue;
        }
        while (at < t->count && t->texts[at].number < (uint64_t)n) {
            mem_free((char *)(uintptr_t)t->texts[at++].bytes.ptr);
        }
        if (at < t->count && t->texts[at].number == (uint64_t)n) {
            t->texts[kept++] = t->texts[at++];
        } else {
            misses = misses || (uint64_t)n < last;
        }
    }
    while (at < t->count) {
        mem_free((char *)(uintptr_t)t->texts[at++].bytes.ptr);
    }
    has_changed = t->has_added || kept < t->count;
    t->count = kept;
    t->is_cut = PQntuples(r) > (int)SPOOL_SHARED_MAX;
    t->has_more =
        has_changed && n > 0 && (uint64_t)n > last_number(t) && t->count < SPOOL_SHARED_MAX;
    if (misses && !t->reads_anew) { /* only once in a look, as some rows may be invalid */
        forget(t);
        t->reads_anew = t->has_more = true;
    }
}

/* ---- looks ----------------------------------------------------------------------------------- */

static void look(struct shared_texts *t)
{
    struct committer_batch *b = committer_batch_new();
    char room[LINK_NUMBER_SIZE];

    t->is_looking = true;
    committer_batch_add(b, count_sql, NULL, 0);
    committer_batch_add(b, rows_sql,
                        (struct link_param[]){link_number_param(room, (int64_t)last_number(t))}, 1);
    committer_batch_add(b, numbers_sql, NULL, 0);
    reader_ask(t->reader, b, NULL);
}

static void on_answer(void *arg, void *question, unsigned n, const PGresult *r)
{
    struct shared_texts *t = arg;

    (void)question;
    switch (n) {
    case 0:
        if (!answer_number(r, 0, 0, &t->read_count) ||
            !answer_number(r, 0, 1, &t->read_redirects)) {
            t->read_count = t->read_redirects = 0; /* so that the next renewal's count differs */
        }
        return;
    case 1:
        take_rows(t, r);
        return;
    default:
        take_numbers(t, r);
    }
}

static void on_end(void *arg, void *question, bool is_answered)
{
    struct shared_texts *t = arg;

    (void)question;
    t->is_looking = false;
    if (!is_answered || t->has_more) {
        return;
    }
    t->reads_anew = false;
    t->db_count = t->read_count;
    t->db_redirects = t->read_redirects;
    t->looks = t->begun;
    t->is_current = t->is_current || t->looks >= t->current_with;
    t->has_come = true;
}

/* ---- interface ------------------------------------------------------------------------------- */

struct shared_texts *shared_texts_new(int epoll_fd, const struct link_target *target)
{
    static const struct reader_owner owner = {.answer = on_answer, .end = on_end};
    struct shared_texts *t = mem_new(sizeof *t);

    t->node = SPOOL_NOBODY;
    t->reader = reader_new(epoll_fd, target, &owner, t);
    return t;
}

void shared_texts_free(struct shared_texts *t)
{
    if (t == NULL) {
        return;
    }
    reader_free(t->reader);
    forget(t);
    mem_free(t->texts);
    mem_free(t);
}

void shared_texts_enter(struct shared_texts *t, int node, int64_t incarnation)
{
    t->node = node;
    t->incarnation = incarnation;
    shared_texts_doubt(t);
}

/* A look in flight may have begun before a change, so another one is needed. */
void shared_texts_doubt(struct shared_texts *t)
{
    t->is_current = false;
    t->current_with = shared_texts_look(t);
}

uint64_t shared_texts_look(struct shared_texts *t)
{
    t->wanted = t->begun + 1;
    return t->wanted;
}

void shared_texts_woken(struct shared_texts *t)
{
    (void)shared_texts_look(t);
}

void shared_texts_turn(struct shared_texts *t, int64_t format, int64_t count, int64_t now)
{
    reader_turn(t->reader);
    if (format < SHARED_TEXTS_FORMAT) {
        return;
    }
    t->is_there = true;
    if (count != t->told_count) {
        t->told_count = count;
        if (count != t->db_count) {
            (void)shared_texts_look(t);
        }
    }
    if (t->looks >= t->wanted) {
        t->wanted_since = 0;
    } else if (t->wanted_since == 0) {
        t->wanted_since = now;
    }
    if (t->node != SPOOL_NOBODY && !t->is_looking && reader_is_up(t->reader) &&
        (t->wanted > t->begun || t->has_more || now >= t->sweep_at)) {
        if (!t->has_more) {
            t->begun++;
        }
        t->sweep_at = now + SHARED_TEXTS_SWEEP_US;
        look(t);
    }
}

bool shared_texts_has_come(struct shared_texts *t)
{
    bool has_come = t->has_come;

    t->has_come = false;
    return has_come;
}

bool shared_texts_is_current(const struct shared_texts *t)
{
    return !t->is_there || t->is_current;
}

bool shared_texts_is_late(const struct shared_texts *t, int64_t now)
{
    return !shared_texts_is_current(t) ||
           (t->wanted_since != 0 && now - t->wanted_since > SHARED_TEXTS_LATE_US);
}

const char *shared_texts_error(const struct shared_texts *t)
{
    return reader_is_up(t->reader) ? "" : reader_error(t->reader);
}

/* ---- spool_shared.h -------------------------------------------------------------------------- */

bool shared_texts_is_there(const struct shared_texts *t)
{
    return t->is_there;
}

static void count_up(struct committer_batch *b, bool reroutes)
{
    committer_batch_add(b, SQL_COUNT,
                        (struct link_param[]){link_text_param(reroutes ? "true" : "false")}, 1);
}

void shared_texts_put(const struct shared_texts *t, struct committer_batch *b, uint32_t token,
                      bool reroutes, struct slice text)
{
    char room[2][LINK_NUMBER_SIZE];

    count_up(b, reroutes);
    committer_batch_add(
        b, SQL_PUT,
        (struct link_param[]){link_number_param(room[0], t->node),
                              link_number_param(room[1], asked_number(t, token)),
                              {.bytes = text.ptr, .len = text.len, .is_binary = true}},
        3);
}

void shared_texts_remove(struct committer_batch *b, uint64_t n, bool reroutes)
{
    char room[LINK_NUMBER_SIZE];

    count_up(b, reroutes);
    committer_batch_add(b, SQL_REMOVE, (struct link_param[]){link_number_param(room, (int64_t)n)},
                        1);
}

uint64_t shared_texts_looks(const struct shared_texts *t)
{
    return t->looks;
}

uint64_t shared_texts_changes(const struct shared_texts *t)
{
    return t->db_count > 0 ? (uint64_t)t->db_count : 0;
}

uint64_t shared_texts_reroutes(const struct shared_texts *t)
{
    return t->db_redirects > 0 ? (uint64_t)t->db_redirects : 0;
}

bool shared_texts_next(const struct shared_texts *t, uint64_t after, struct spool_shared *ret)
{
    size_t low = 0, high = t->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (t->texts[middle].number <= after) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (low == t->count) {
        return false;
    }
    *ret = (struct spool_shared){.number = t->texts[low].number, .text = t->texts[low].bytes};
    if (t->texts[low].node == t->node && t->texts[low].asked > 0 &&
        t->texts[low].asked >> 32 == t->incarnation) {
        ret->token = (uint32_t)t->texts[low].asked;
    }
    return true;
}

bool shared_texts_is_cut(const struct shared_texts *t)
{
    return t->is_cut;
}
