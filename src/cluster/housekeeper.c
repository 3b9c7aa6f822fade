#include "housekeeper.h"

#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "answers.h"
#include "check.h"
#include "mem.h"

/* The turn of the fresh tables. Lock and check are one transaction; a refusal (a lock of another
 * session, a table with rows) undoes only this attempt. Nothing is done while the table in use is
 * as small as an empty one. The commit does not wait for the standby: while no standby answers, the
 * lock would keep mail in passage from being read. A standby that is promoted without the turn goes
 * on with the previous table. */
static const char turn_sql[] =
    "DO $$ DECLARE c record; k int; has boolean; "
    "now_us bigint := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint; grown bigint; "
    "BEGIN "
    "SELECT fresh_now, fresh_since INTO STRICT c FROM cluster; "
    "grown := pg_total_relation_size(to_regclass('fresh_' || c.fresh_now)); "
    "IF grown < 65536 OR (grown < " HOUSEKEEPER_TURN_MAX
    " AND abs(now_us - c.fresh_since) < 20000000) THEN RETURN; END IF; "
    "PERFORM set_config('lock_timeout', '200', true); "
    "PERFORM set_config('synchronous_commit', 'local', true); "
    "FOR i IN 1..2 LOOP k := (c.fresh_now + i) % 3; "
    "BEGIN "
    "EXECUTE 'SELECT EXISTS (SELECT FROM fresh_' || k || ')' INTO has; "
    "CONTINUE WHEN has; " /* a check without the lock, which often suffices */
    "EXECUTE 'LOCK TABLE fresh_' || k || ' IN ACCESS EXCLUSIVE MODE'; "
    "EXECUTE 'SELECT EXISTS (SELECT FROM fresh_' || k || ')' INTO has; "
    "IF has THEN RAISE lock_not_available; END IF; "
    "EXECUTE 'TRUNCATE fresh_' || k; "
    "UPDATE cluster SET fresh_now = k, fresh_since = now_us; "
    "RETURN; "
    "EXCEPTION WHEN lock_not_available OR query_canceled THEN NULL; END; "
    "END LOOP; END $$";

_Static_assert(HOUSEKEEPER_TURN_S == 20, "it stands in turn_sql");
_Static_assert(HOUSEKEEPER_STUCK_S == 60, "it stands in fresh_now_sql");

/* Returns the table in use, and whether its turn, as defined in turn_sql, is long overdue. */
static const char fresh_now_sql[] =
    "SELECT fresh_now::bigint, (pg_total_relation_size(to_regclass('fresh_' || fresh_now)) >= "
    "65536 AND (extract(epoch FROM now()) * 1000000)::bigint - fresh_since > "
    "60000000)::int::bigint FROM cluster";

/* Measurements. Transactions of other roles are visible only to members of pg_read_all_stats. */
static const char measure_sql[] =
    "SELECT pg_total_relation_size('fresh_0') + pg_total_relation_size('fresh_1') + "
    "pg_total_relation_size('fresh_2') AS fresh_bytes, greatest(0, (extract(epoch FROM "
    "clock_timestamp() - (SELECT min(began) FROM (SELECT xact_start FROM pg_stat_activity WHERE "
    "datname = current_database() AND backend_xmin IS NOT NULL AND pid <> pg_backend_pid() UNION "
    "ALL SELECT prepared FROM pg_prepared_xacts WHERE database = current_database()) t (began))) * "
    "1000000)::bigint) AS oldest";

/* A statement of its own, as VACUUM cannot run in a transaction. */
static const char vacuum_sql[] =
    "VACUUM (TRUNCATE OFF) arrival, lease, node, fence, batch, cluster, ask";
/* For fresh tables that cannot be emptied. Reads all of them. */
static const char vacuum_fresh_sql[] = "VACUUM (TRUNCATE OFF) fresh_0, fresh_1, fresh_2";

/* Deletions of useless rows. Ids are times; rows younger than an hour may be about to be used. */
static const char *const tidy_sql[] = {
    "DELETE FROM batch b USING (SELECT node, max(n) - 1000 AS upto FROM batch GROUP BY node) m "
    "WHERE b.node = m.node AND b.n < m.upto",
    "DELETE FROM content WHERE (id, n) IN (SELECT id, n FROM content c WHERE id < "
    "(extract(epoch FROM now()) * 1000000)::bigint - 3600000000 AND NOT EXISTS "
    "(SELECT FROM message m WHERE m.id = c.id) LIMIT 1000)",
    /* Arrivals for nodes without partitions; the new owners have looked for all of their mail. */
    "DELETE FROM arrival a WHERE NOT EXISTS (SELECT FROM lease l WHERE l.node = a.node)",
    "DELETE FROM ask WHERE at < (extract(epoch FROM now()) * 1000000)::bigint - 60000000",
    /* Expired by the writer's clock; no node uses them (handover.h). */
    "DELETE FROM lease_note WHERE until < (extract(epoch FROM now()) * 1000000)::bigint - "
    "600000000",
};

struct housekeeper {
    struct link *link; /* owned */
    int epoll_fd;
    int timer; /* owned; time of the next round */
    bool is_ours;
    bool is_stuck; /* whether no fresh table can be emptied */
    unsigned rounds, stuck_rounds;
    unsigned unanswered; /* number of syncs without an answer */
    bool is_counting;    /* whether the last answer of this round is the count */
    struct housekeeper_measures measures;
    const struct housekeeper_owner *owner;
    void *arg;
};

static void set_timer(const struct housekeeper *h, int64_t us)
{
    struct itimerspec at = {.it_value = {.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000}};

    CHECK(timerfd_settime(h->timer, 0, &at, NULL) == 0);
}

/* Sends a statement with a sync of its own, so that its failure does not affect others. */
static void say(struct housekeeper *h, const char *sql)
{
    link_send(h->link, sql, NULL, 0);
    link_sync(h->link);
    h->unanswered++;
}

/* Sends the last query of a round. */
static void ask_count(struct housekeeper *h)
{
    struct committer_batch *question = h->owner->recount(h->arg);

    if (question != NULL) {
        (void)committer_batch_send(question, h->link);
        link_sync(h->link);
        h->unanswered++;
        committer_batch_free(question);
    }
    h->is_counting = question != NULL;
}

static void begin_round(struct housekeeper *h)
{
    h->rounds++;
    if (h->is_ours) {
        say(h, turn_sql);
        if (h->rounds % HOUSEKEEPER_VACUUM == 1) {
            say(h, vacuum_sql);
        }
        if (h->rounds % HOUSEKEEPER_TIDY == 1) {
            for (size_t i = 0; i < sizeof tidy_sql / sizeof tidy_sql[0]; i++) {
                say(h, tidy_sql[i]);
            }
        }
        if (h->is_stuck && h->stuck_rounds++ % HOUSEKEEPER_VACUUM_FRESH == 0) {
            say(h, vacuum_fresh_sql);
        }
    }
    if (h->rounds % HOUSEKEEPER_MEASURE == 1) {
        say(h, measure_sql);
    }
    say(h, fresh_now_sql);
    ask_count(h);
}

static void changed(void *arg, struct link *l, bool is_up)
{
    struct housekeeper *h = arg;

    (void)l;
    h->unanswered = 0;
    h->is_counting = false;
    if (is_up) {
        begin_round(h);
    } else {
        set_timer(h, HOUSEKEEPER_AGAIN_US);
    }
}

static void measured(struct housekeeper *h, const PGresult *result)
{
    int64_t n;

    if (answer_number(result, 0, 0, &n)) {
        h->measures.fresh_bytes = n;
    }
    h->measures.oldest_snapshot_us = answer_number(result, 0, 1, &n) ? n : 0;
}

/* Statements that the server refuses are sent again in a later round. */
static void answer(void *arg, struct link *l, const PGresult *result)
{
    struct housekeeper *h = arg;
    int64_t table, is_stuck;

    (void)l;
    if (PQresultStatus(result) == PGRES_TUPLES_OK && h->is_counting && h->unanswered == 1) {
        h->owner->counted(h->arg, result);
    } else if (PQresultStatus(result) == PGRES_TUPLES_OK && PQntuples(result) == 1 &&
               strcmp(PQfname(result, 0), "fresh_bytes") == 0) {
        measured(h, result);
    } else if (PQresultStatus(result) == PGRES_TUPLES_OK && PQntuples(result) == 1 &&
               answer_number(result, 0, 0, &table) && answer_number(result, 0, 1, &is_stuck)) {
        h->is_stuck = is_stuck != 0;
        h->stuck_rounds = h->is_stuck ? h->stuck_rounds : 0;
        if (table >= 0 && table <= 2) { /* the CHECK of the table guarantees nothing */
            h->owner->fresh(h->arg, (unsigned)table);
        }
    }
    if (PQresultStatus(result) == PGRES_PIPELINE_SYNC && h->unanswered > 0 &&
        --h->unanswered == 0) {
        set_timer(h, HOUSEKEEPER_ROUND_US);
    }
}

static void notice(void *arg, struct link *l, const char *state, const char *words)
{
    (void)arg;
    (void)l;
    (void)state;
    (void)words; /* notices of VACUUM are not needed */
}

static const struct link_owner link_owner = {
    .changed = changed, .answer = answer, .notice = notice};

struct housekeeper *housekeeper_new(int epoll_fd, const struct link_target *target,
                                    const struct housekeeper_owner *owner, void *arg)
{
    struct housekeeper *h = mem_new(sizeof *h);
    struct epoll_event e = {.events = EPOLLIN};

    h->epoll_fd = epoll_fd;
    h->is_ours = true;
    h->owner = owner;
    h->arg = arg;
    h->timer = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    CHECK(h->timer >= 0);
    CHECK(epoll_ctl(epoll_fd, EPOLL_CTL_ADD, h->timer, &e) == 0);
    h->link = link_new(epoll_fd, target, &link_owner, h);
    link_set_silence(h->link, HOUSEKEEPER_SILENCE_US); /* a vacuum may take long */
    set_timer(h, 1);                                   /* connects in the first turn */
    return h;
}

void housekeeper_free(struct housekeeper *h)
{
    if (h == NULL) {
        return;
    }
    link_free(h->link);
    (void)epoll_ctl(h->epoll_fd, EPOLL_CTL_DEL, h->timer, NULL);
    (void)close(h->timer);
    mem_free(h);
}

void housekeeper_set_duty(struct housekeeper *h, bool is_ours)
{
    h->is_ours = is_ours;
}

const struct housekeeper_measures *housekeeper_measures(const struct housekeeper *h)
{
    return &h->measures;
}

void housekeeper_turn(struct housekeeper *h)
{
    uint64_t times;
    bool is_time = read(h->timer, &times, sizeof times) == (ssize_t)sizeof times;

    link_turn(h->link);
    if (is_time && link_is_down(h->link)) {
        link_connect(h->link);
    } else if (is_time && link_is_up(h->link) && h->unanswered == 0) {
        begin_round(h);
    }
    link_flush(h->link); /* sends what was queued */
}
