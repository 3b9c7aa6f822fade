#include "recount.h"

#include <string.h>

#include "answers.h"
#include "buf.h"
#include "mem.h"

#define OF_FRESH(k) " UNION ALL SELECT p, 1, size FROM fresh_" k " WHERE p = ANY($1::smallint[])"

/* Entries of arrival rows have the form of arrivals.c; rows up to the floor are no longer read.
 * Numbers of batches are returned with partition -1. */
static const char count_sql[] =
    "SELECT p::bigint, state::bigint, count(*), coalesce(sum(size), 0)::bigint FROM (SELECT p, "
    "state, size FROM part WHERE p = ANY($1::smallint[]) AND message = id" OF_FRESH("0")
        OF_FRESH("1") OF_FRESH(
            "2") ") m GROUP BY 1, 2 UNION ALL SELECT p, state, -count(*), -coalesce(sum(size), "
                 "0)::bigint FROM (SELECT 256 * get_byte(parts, 20 * i + 2) + get_byte(parts, 20 * "
                 "i + 3) AS p, get_byte(parts, 20 * i + 1) AS state, ('x' || encode(substring("
                 "parts FROM 20 * i + 13 FOR 8), 'hex'))::bit(64)::bigint AS size FROM arrival, "
                 "generate_series(0, length(parts) / 20 - 1) i WHERE node = $2::smallint AND "
                 "seq > $3::bigint) a WHERE p = ANY($1::smallint[]) GROUP BY 1, 2 UNION ALL "
                 "(SELECT -1, n, 0, 0 FROM batch WHERE node = $2::smallint AND n > $4::bigint "
                 "ORDER BY n LIMIT 1000)";

_Static_assert(SPOOL_INCOMING == 1, "it stands in count_sql");
_Static_assert(ARRIVAL_SIZE == 20, "it stands in count_sql");
_Static_assert(RECOUNT_BATCHES == 1000, "it stands in count_sql");

void recount_init(struct recount *r, struct desk *desk, const struct arrivals *arrivals)
{
    *r = (struct recount){.desk = desk, .arrivals = arrivals};
}

void recount_fini(struct recount *r)
{
    mem_free(r->ended);
    mem_free(r->adds);
}

void recount_gained(struct recount *r, unsigned p, int64_t now)
{
    r->gained_at[p] = now;
    r->is_sure[p] = false;
}

void recount_doubt(struct recount *r)
{
    memset(r->is_sure, 0, sizeof r->is_sure);
}

static bool is_due(const struct recount *r, unsigned p, int64_t now)
{
    return r->desk->finder->is_mine[p] && now - r->gained_at[p] >= RECOUNT_AFTER_US &&
           (desk_is_quiet(r->desk, p) || now - r->asked_at[p] >= RECOUNT_BUSY_US);
}

static uint64_t messages_of(const struct recount *r, unsigned p)
{
    const struct spool_totals *t = &r->desk->by_p[p];

    return t->incoming + t->deferred + t->hold + t->corrupt;
}

/* Chooses the partitions of this recount. */
static void choose(struct recount *r, int64_t now)
{
    uint64_t messages = 0;

    for (unsigned looked = 0; looked < PARTITIONS && r->asked < RECOUNT_PARTITIONS; looked++) {
        unsigned p = r->next;

        if (is_due(r, p, now)) {
            uint64_t more = messages_of(r, p);

            if (r->asked > 0 && messages + more > RECOUNT_MESSAGES) {
                break; /* in the next round */
            }
            messages += more <= INT64_MAX ? more : 0;
            r->asked_at[p] = now;
            r->stored[r->asked] = desk_stored(r->desk, p);
            r->p[r->asked++] = (uint16_t)p;
        }
        r->next = (p + 1) % PARTITIONS;
    }
    r->rests = messages / RECOUNT_MESSAGES;
}

struct committer_batch *recount_ask(struct recount *r, int no, int64_t last, int64_t now)
{
    const struct desk *d = r->desk;
    struct committer_batch *b;
    char room[3][LINK_NUMBER_SIZE];
    struct buf ps;

    r->asked = 0;
    r->ended_count = 0;
    r->breaks = d->breaks;
    if (r->rests > 0) {
        r->rests--;
        return NULL;
    }
    choose(r, now);
    if (r->asked == 0) {
        return NULL;
    }
    buf_init(&ps, RECOUNT_PARTITIONS * 8);
    for (unsigned i = 0; i < r->asked; i++) {
        (void)buf_addf(&ps, "%s%u", i == 0 ? "{" : ",", (unsigned)r->p[i]); /* fits */
    }
    (void)buf_add_byte(&ps, '}');
    last = d->under_way_count > 0 ? d->under_way[0].number - 1 : last;
    b = committer_batch_new();
    committer_batch_add(b, count_sql,
                        (struct link_param[]){link_text_param(buf_cstr(&ps)),
                                              link_number_param(room[0], no),
                                              link_number_param(room[1], r->arrivals->floor),
                                              link_number_param(room[2], last)},
                        4);
    buf_fini(&ps);
    return b;
}

void recount_kept(struct recount *r)
{
    const struct desk_batch *b = &r->desk->under_way[0];

    if (r->asked == 0) {
        return;
    }
    if (r->ended_count == RECOUNT_BATCHES) {
        r->asked = 0;
        return;
    }
    if (r->ended_count == r->ended_size) {
        r->ended_size = r->ended_size == 0 ? 16 : 2 * r->ended_size;
        r->ended = mem_resize(r->ended, r->ended_size, sizeof r->ended[0]);
        r->adds = mem_resize(r->adds, r->ended_size, RECOUNT_PARTITIONS * sizeof r->adds[0]);
    }
    for (unsigned i = 0; i < r->asked; i++) {
        r->adds[r->ended_count * RECOUNT_PARTITIONS + i] = desk_batch_adds(b, r->p[i]);
    }
    r->ended[r->ended_count++] = b->number;
}

/* Adds a batch that the snapshot contains, if it had not ended before the question. */
static void add_batch(struct recount *r, int64_t number)
{
    const struct desk *d = r->desk;

    for (size_t k = 0; k < r->ended_count; k++) {
        for (unsigned i = 0; i < r->asked && r->ended[k] == number; i++) {
            desk_add_totals(&r->stored[i], &r->adds[k * RECOUNT_PARTITIONS + i]);
        }
    }
    for (unsigned k = 0; k < d->under_way_count; k++) {
        for (unsigned i = 0; i < r->asked && d->under_way[k].number == number; i++) {
            struct spool_totals adds = desk_batch_adds(&d->under_way[k], r->p[i]);

            desk_add_totals(&r->stored[i], &adds);
        }
    }
}

/* Adds the snapshot's counts to `totals`, and calculates the desk's totals of that moment. Returns
 * false if the answer is invalid. */
static bool add_up(struct recount *r, const PGresult *answer,
                   struct spool_totals totals[RECOUNT_PARTITIONS])
{
    for (int row = 0; row < PQntuples(answer); row++) {
        int64_t p, state, count, bytes;

        if (!answer_number(answer, row, 0, &p) || !answer_number(answer, row, 1, &state) ||
            !answer_number(answer, row, 2, &count) || !answer_number(answer, row, 3, &bytes)) {
            return false;
        }
        if (p == -1) {
            add_batch(r, state);
        }
        for (unsigned i = 0; i < r->asked; i++) {
            uint64_t *total = r->p[i] == p && state > 0 && state <= SPOOL_CORRUPT
                                  ? spool_total_of(&totals[i], (enum spool_state)state)
                                  : NULL;

            if (total != NULL) {
                *total += (uint64_t)count;
                totals[i].bytes += (uint64_t)bytes;
            }
        }
    }
    return true;
}

uint64_t recount_answer(struct recount *r, const PGresult *answer)
{
    struct spool_totals totals[RECOUNT_PARTITIONS] = {{0}};
    uint64_t drift = 0;

    if (r->breaks != r->desk->breaks || !add_up(r, answer, totals)) {
        r->asked = 0;
    }
    for (unsigned i = 0; i < r->asked; i++) {
        unsigned p = r->p[i];

        if (r->desk->finder->is_mine[p]) {
            uint64_t wrong = desk_correct_totals(r->desk, p, &r->stored[i], &totals[i]);

            drift += r->is_sure[p] ? wrong : 0;
            r->is_sure[p] = true;
        }
    }
    r->asked = 0;
    r->drift += drift;
    return drift;
}
