/*
 * The sqlite engine: counts of pending recipients, and of their messages, for each destination.
 *
 * The table `destination` counts listed recipients only. Passing mail costs nothing here; its few
 * rows are counted by each query. A function that changes a listed recipient calls
 * sqlite_tally_rcpt (or sqlite_tally_message) with sign -1 before the change, and with sign 1 after
 * it.
 */
#include "sqlite_engine.h"

#include <errno.h>

/* Are the recipients of this message in the counts? */
static bool is_counted(const struct sqlite_spool *s, struct msg_id id)
{
    return !claims_get(&s->claims, id.n).unlisted;
}

static struct slice column(sqlite3_stmt *st, int at)
{
    const void *text = sqlite3_column_text(st, at);

    return slice_of(text == NULL ? "" : text, (size_t)sqlite3_column_bytes(st, at));
}

int sqlite_tally_message(struct sqlite_spool *s, struct msg_id id, int sign)
{
    sqlite3_stmt *st;
    int rc;

    if (!is_counted(s, id)) {
        return 0;
    }
    st = sqlite_ask(s, ST_MESSAGE_PLACES);
    sqlite_bind_int(st, 1, (int64_t)id.n);
    while ((rc = sqlite_step(s, st)) == SQLITE_ROW) {
        tally_add(&s->tally, column(st, 0), column(st, 1), sign * sqlite3_column_int64(st, 2),
                  sign);
    }
    return sqlite_done(s, st, rc);
}

int sqlite_tally_rcpt(struct sqlite_spool *s, struct msg_id id, uint32_t n, int sign)
{
    sqlite3_stmt *st;
    int rc;

    if (!is_counted(s, id)) {
        return 0;
    }
    st = sqlite_ask(s, ST_RCPT_PLACE);
    sqlite_bind_int(st, 1, (int64_t)id.n);
    sqlite_bind_int(st, 2, n);
    rc = sqlite_step(s, st);
    if (rc == SQLITE_ROW) {
        bool has_others = sqlite3_column_int(st, 2) != 0;

        tally_add(&s->tally, column(st, 0), column(st, 1), sign, has_others ? 0 : sign);
    }
    return sqlite_done(s, st, rc);
}

static int write_entry(struct sqlite_spool *s, const struct tally_entry *e)
{
    sqlite3_stmt *st = sqlite_ask(s, ST_DESTINATION_ADD);
    int err;

    sqlite_bind_slice(st, 1, tally_nexthop(e));
    sqlite_bind_slice(st, 2, tally_transport(e));
    sqlite_bind_int(st, 3, e->rcpts);
    sqlite_bind_int(st, 4, e->messages);
    err = sqlite_done(s, st, sqlite_step(s, st));
    if (err == 0 && e->rcpts < 0) {
        st = sqlite_ask(s, ST_DESTINATION_DROP);
        sqlite_bind_slice(st, 1, tally_nexthop(e));
        sqlite_bind_slice(st, 2, tally_transport(e));
        err = sqlite_done(s, st, sqlite_step(s, st));
    }
    return err;
}

int sqlite_tally_write(struct sqlite_spool *s)
{
    const struct tally_entry *e;
    int err = 0;

    if (s->base.batch_error != 0) {
        return 0; /* as in sqlite_flush_counts */
    }
    if (s->tally_is_broken) {
        tally_clear(&s->tally);
        return 0;
    }
    for (e = s->tally.entries; err == 0 && e != NULL; e = e->hh.next) {
        if (e->rcpts != 0 || e->messages != 0) {
            err = write_entry(s, e);
            err = err == -EBADMSG ? 0 : err; /* a damaged counter must not delay mail */
        }
    }
    if (err != 0) {
        s->tally_is_broken = err == -EUCLEAN; /* the next batch does without counters */
        return spool_batch_failed(&s->base, err);
    }
    tally_clear(&s->tally);
    return 0;
}
