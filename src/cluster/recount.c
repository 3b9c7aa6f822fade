#include "recount.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "answers.h"
#include "buf.h"
#include "mem.h"

#define OF_FRESH(k) " UNION ALL SELECT p, 1, size FROM fresh_" k " WHERE p = ANY($1::smallint[])"

/* What is told and was not read stands under partition -1. */
static const char count_sql[] =
    "SELECT p::bigint, state::bigint, count(*), coalesce(sum(size), 0)::bigint FROM (SELECT p, "
    "state, size FROM part WHERE p = ANY($1::smallint[]) AND message = id" OF_FRESH("0")
        OF_FRESH("1") OF_FRESH(
            "2") ") m GROUP BY 1, 2 UNION ALL SELECT -1, 0, count(*), 0 FROM arrival WHERE node = "
                 "$2::smallint AND seq <> ALL($3::bigint[])";

_Static_assert(SPOOL_INCOMING == 1, "it stands in count_sql");

void recount_init(struct recount *r, struct desk *desk, const struct arrivals *arrivals)
{
    *r = (struct recount){.desk = desk, .arrivals = arrivals};
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

static bool is_quiet(const struct recount *r, unsigned p, int64_t now)
{
    return r->desk->finder->is_mine[p] && now - r->gained_at[p] >= RECOUNT_AFTER_US &&
           desk_is_quiet(r->desk, p);
}

static uint64_t messages_of(const struct recount *r, unsigned p)
{
    const struct spool_totals *t = &r->desk->by_p[p];

    return t->incoming + t->deferred + t->hold + t->corrupt;
}

/* Which are asked for next. */
static void choose(struct recount *r, int64_t now)
{
    uint64_t messages = 0;

    r->asked = 0;
    for (unsigned looked = 0; looked < PARTITIONS && r->asked < RECOUNT_PARTITIONS; looked++) {
        unsigned p = r->next;

        if (is_quiet(r, p, now)) {
            messages += messages_of(r, p);
            if (r->asked > 0 && messages > RECOUNT_MESSAGES) {
                return; /* in the next round */
            }
            r->p[r->asked] = (uint16_t)p;
            r->changes[r->asked++] = r->desk->changes[p];
        }
        r->next = (p + 1) % PARTITIONS;
    }
}

struct committer_batch *recount_ask(struct recount *r, int no, int64_t now)
{
    struct committer_batch *b;
    struct buf ps, number, seqs;

    choose(r, now);
    if (r->asked == 0 || no < 0) {
        r->asked = 0;
        return NULL;
    }
    buf_init(&ps, RECOUNT_PARTITIONS * 8);
    buf_init(&number, 16);
    (void)buf_addf(&number, "%d", no); /* these fit */
    for (unsigned i = 0; i < r->asked; i++) {
        (void)buf_addf(&ps, "%s%u", i == 0 ? "{" : ",", (unsigned)r->p[i]);
    }
    (void)buf_add_byte(&ps, '}');
    arrivals_print_read(r->arrivals, &seqs);
    b = committer_batch_new();
    committer_batch_add(b, count_sql,
                        (struct link_param[]){{.bytes = buf_cstr(&ps), .len = buf_len(&ps)},
                                              {.bytes = buf_cstr(&number), .len = buf_len(&number)},
                                              {.bytes = buf_cstr(&seqs), .len = buf_len(&seqs)}},
                        3);
    buf_fini(&ps);
    buf_fini(&number);
    buf_fini(&seqs);
    return b;
}

/* Into the totals of those that are asked for. False: others have told of something that was not
 * read, or it is no answer. */
static bool add_up(const struct recount *r, const PGresult *answer,
                   struct spool_totals totals[RECOUNT_PARTITIONS])
{
    bool all_is_read = false;

    for (int row = 0; row < PQntuples(answer); row++) {
        int64_t p, state, count, bytes;

        if (!answer_number(answer, row, 0, &p) || !answer_number(answer, row, 1, &state) ||
            !answer_number(answer, row, 2, &count) || !answer_number(answer, row, 3, &bytes)) {
            return false;
        }
        all_is_read = all_is_read || (p == -1 && count == 0);
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
    return all_is_read;
}

uint64_t recount_answer(struct recount *r, const PGresult *answer)
{
    struct spool_totals totals[RECOUNT_PARTITIONS] = {{0}};
    uint64_t drift = 0;

    if (!add_up(r, answer, totals)) {
        r->asked = 0;
    }
    for (unsigned i = 0; i < r->asked; i++) {
        unsigned p = r->p[i];

        if (r->desk->finder->is_mine[p] && r->desk->changes[p] == r->changes[i]) {
            uint64_t wrong = desk_set_totals(r->desk, p, &totals[i]);

            drift += r->is_sure[p] ? wrong : 0;
            r->is_sure[p] = true;
        }
    }
    r->asked = 0;
    r->drift += drift;
    return drift;
}
