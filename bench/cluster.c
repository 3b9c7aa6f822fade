/*
 * How fast the spool in PostgreSQL is, beside the same bytes in one plain table.
 *
 *      bench_cluster raw URL SECONDS BATCH BYTES
 *      bench_cluster spool URL SECONDS BATCH BYTES
 *      bench_cluster through URL SECONDS BATCH BYTES
 *
 * A cycle stores BATCH messages of BYTES bytes and removes those of the cycle before, in one
 * transaction, and waits for its end. `raw` is the ceiling: a table of ids and bytes, made anew in
 * the schema of the URL, one statement to insert and one to delete, with arrays in binary. `spool`
 * is the engine behind spool.h: submitted with a claim, finished as delivered. `through` is two
 * nodes in this process: one stores BATCH messages at a time, the other, which has all partitions,
 * is told of them, reads, claims and removes them; two batches of each are under way.
 *
 * Prints `ready` when all is open, and at the end messages, microseconds, and processor time of
 * this process in microseconds, since then. bench/cluster runs them.
 */
#include <malloc.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <libpq-fe.h>

#include "buf.h"
#include "check.h"
#include "cluster_spool.h"
#include "conf.h"
#include "mem.h"
#include "spool.h"
#include "spool_commits.h"

#define BATCH_MAX  1024
#define OID_BYTEA  17
#define OID_BIGINT 20

struct work {
    unsigned batch;
    size_t bytes;
    int64_t seconds;
    char *content; /* owned, `bytes` long */
    uint64_t done;
    int64_t began_us, cpu_us; /* when everything was open */
};

static int64_t now_us(clockid_t clock)
{
    struct timespec t;

    CHECK(clock_gettime(clock, &t) == 0);
    return (int64_t)t.tv_sec * US_PER_S + t.tv_nsec / 1000;
}

/* What was done until now does not count. */
static void begin(struct work *w)
{
    (void)puts("ready");
    (void)fflush(stdout);
    w->began_us = now_us(CLOCK_MONOTONIC);
    w->cpu_us = now_us(CLOCK_PROCESS_CPUTIME_ID);
}

static bool goes_on(const struct work *w)
{
    return now_us(CLOCK_MONOTONIC) < w->began_us + w->seconds * US_PER_S;
}

/* What is done from now on does not count. */
static void end(const struct work *w)
{
    (void)printf("%llu %lld %lld\n", (unsigned long long)w->done,
                 (long long)(now_us(CLOCK_MONOTONIC) - w->began_us),
                 (long long)(now_us(CLOCK_PROCESS_CPUTIME_ID) - w->cpu_us));
    (void)fflush(stdout);
}

static _Noreturn void give_up(const char *what, const char *why)
{
    fprintf(stderr, "bench_cluster: %s: %s\n", what, why);
    exit(1);
}

/* ---- the plain table ------------------------------------------------------------------------- */

static void put_u32(char **at, uint32_t n)
{
    for (int shift = 24; shift >= 0; shift -= 8) {
        *(*at)++ = (char)(n >> shift & 0xff);
    }
}

static void put_u64(char **at, uint64_t n)
{
    put_u32(at, (uint32_t)(n >> 32));
    put_u32(at, (uint32_t)(n & UINT32_MAX));
}

/* The head of an array of one dimension in PostgreSQL's binary form. */
static char *put_head(char *at, uint32_t type, uint32_t count)
{
    put_u32(&at, 1); /* dimensions */
    put_u32(&at, 0); /* no NULL inside */
    put_u32(&at, type);
    put_u32(&at, count);
    put_u32(&at, 1); /* its first index */
    return at;
}

static int put_ids(char *room, uint64_t first, unsigned count)
{
    char *at = put_head(room, OID_BIGINT, count);

    for (unsigned i = 0; i < count; i++) {
        put_u32(&at, 8);
        put_u64(&at, first + i);
    }
    return (int)(at - room);
}

static int put_contents(char *room, const struct work *w)
{
    char *at = put_head(room, OID_BYTEA, w->batch);

    for (unsigned i = 0; i < w->batch; i++) {
        put_u32(&at, (uint32_t)w->bytes);
        memcpy(at, w->content, w->bytes);
        at += w->bytes;
    }
    return (int)(at - room);
}

static void run_sql(PGconn *conn, const char *sql)
{
    PGresult *r = PQexec(conn, sql);

    if (PQresultStatus(r) != PGRES_COMMAND_OK) {
        give_up(sql, PQerrorMessage(conn));
    }
    PQclear(r);
}

static PGconn *open_raw(const char *url)
{
    PGconn *conn = PQconnectdb(url);

    if (PQstatus(conn) != CONNECTION_OK) {
        give_up(url, PQerrorMessage(conn));
    }
    run_sql(conn, "SET client_min_messages = warning");
    run_sql(conn, "DROP TABLE IF EXISTS bench_raw");
    run_sql(conn, "CREATE TABLE bench_raw (id bigint PRIMARY KEY, bytes bytea) WITH "
                  "(toast_tuple_target = 8160, vacuum_truncate = off)");
    run_sql(conn, "ALTER TABLE bench_raw ALTER bytes SET STORAGE EXTERNAL");
    if (PQenterPipelineMode(conn) != 1) {
        give_up(url, PQerrorMessage(conn));
    }
    return conn;
}

static void send_sql(PGconn *conn, const char *sql, int count, const char *const *values,
                     const int *lengths)
{
    static const int formats[] = {1, 1};

    if (PQsendQueryParams(conn, sql, count, NULL, values, lengths, formats, 1) != 1) {
        give_up(sql, PQerrorMessage(conn));
    }
}

static void await_sync(PGconn *conn)
{
    for (;;) {
        PGresult *r = PQgetResult(conn);
        ExecStatusType status = r == NULL ? PGRES_COMMAND_OK : PQresultStatus(r);

        PQclear(r);
        if (status == PGRES_PIPELINE_SYNC) {
            return;
        }
        if (status != PGRES_COMMAND_OK) {
            give_up("a batch", PQerrorMessage(conn));
        }
    }
}

static void raw(const char *url, struct work *w)
{
    PGconn *conn = open_raw(url);
    char *ids = mem_new(20 + (size_t)w->batch * 12),
         *contents = mem_new(20 + w->batch * (4 + w->bytes)), *gone = mem_new(20 + w->batch * 12ul);

    begin(w);
    for (uint64_t next = 1; goes_on(w); next += w->batch) {
        const char *values[] = {ids, contents}, *removed[] = {gone};
        int lengths[] = {put_ids(ids, next, w->batch), put_contents(contents, w)};
        int removed_length[] = {put_ids(gone, next > w->batch ? next - w->batch : next, w->batch)};

        send_sql(conn, "BEGIN", 0, NULL, NULL);
        send_sql(conn, "INSERT INTO bench_raw SELECT * FROM unnest($1::bigint[], $2::bytea[])", 2,
                 values, lengths);
        if (next > w->batch) {
            send_sql(conn, "DELETE FROM bench_raw WHERE id = ANY($1::bigint[])", 1, removed,
                     removed_length);
        }
        send_sql(conn, "COMMIT", 0, NULL, NULL);
        if (PQpipelineSync(conn) != 1) {
            give_up("a batch", PQerrorMessage(conn));
        }
        await_sync(conn);
        w->done += w->batch;
    }
    end(w);
    mem_free(ids);
    mem_free(contents);
    mem_free(gone);
    PQfinish(conn);
}

/* ---- the engine ------------------------------------------------------------------------------ */

static void must(struct spool *sp, int err)
{
    if (err != 0) {
        give_up(spool_error(sp), strerror(-err));
    }
}

static struct msg_id submit_one(struct spool *sp, const struct work *w, uint64_t i)
{
    int64_t now = now_us(CLOCK_REALTIME);
    struct spool_message m = {.client = SLICE("client.example.org[192.0.2.1]"),
                              .sender = SLICE("sender@example.net"),
                              .arrived = {now},
                              .created = {now},
                              .due = {now}};
    struct spool_content content = {.bytes = slice_of(w->content, w->bytes), .fd = -1};
    struct spool_rcpt r = {.transport = SLICE("smtp"), .nexthop = SLICE("site.example.com")};
    char address[64];
    struct msg_id id;

    (void)snprintf(address, sizeof address, "user%llu@site.example.com", (unsigned long long)i);
    r.address = slice_string(address);
    must(sp, spool_submit(sp, &m, &r, 1, SLICE("Received: by relay.example.org; id \1\r\n"),
                          &content, true, SLICE(""), &id));
    return id;
}

static struct spool *open_node(const char *url, const char *name)
{
    struct conf *conf = mem_new(sizeof *conf);
    struct spool_options options = {
        .inline_limit = 16 * 1024, .conf = conf, .id_floor = (uint64_t)now_us(CLOCK_REALTIME)};
    struct spool *sp;
    struct buf error;

    conf->cluster_node = name;
    conf->cluster_standby = CONF_CLUSTER_STANDBY_NONE;
    cluster_spool_register();
    buf_init(&error, 4096);
    if (spool_open(url, SPOOL_OPEN_WRITE, &options, &error, &sp) != 0) {
        give_up("open", buf_cstr(&error));
    }
    buf_fini(&error);
    mem_free(conf);
    return sp;
}

static void spool(const char *url, struct work *w)
{
    struct msg_id before[BATCH_MAX];
    struct spool *sp = open_node(url, "a");

    /* What waits is counted before the first commit. */
    must(sp, spool_finish_all_done(sp, submit_one(sp, w, 0)));
    must(sp, spool_commit(sp));
    begin(w);
    while (goes_on(w)) {
        for (unsigned i = 0; i < w->batch; i++) {
            if (w->done > 0) {
                must(sp, spool_finish_all_done(sp, before[i]));
            }
            before[i] = submit_one(sp, w, w->done + i);
        }
        must(sp, spool_commit(sp));
        w->done += w->batch;
    }
    end(w);
    for (unsigned i = 0; i < w->batch; i++) {
        must(sp, spool_finish_all_done(sp, before[i]));
    }
    must(sp, spool_commit(sp));
    spool_close(sp);
}

/* ---- through another node -------------------------------------------------------------------- */

struct through {
    struct spool *from, *to;
    uint64_t sent, claimed, done;
    uint64_t under_way[2]; /* of the receiver: messages of each commit, the oldest first */
};

static void take_events(struct spool *sp)
{
    struct spool_event event;

    while (spool_next_event(sp, &event)) {
    }
}

static bool ends(struct spool *sp)
{
    int rc;
    bool ended = spool_commit_end(sp, &rc);

    if (ended) {
        must(sp, rc);
    }
    return ended;
}

static bool send_batch(struct through *t, const struct work *w)
{
    if (spool_commits_under_way(t->from) == spool_commits_max(t->from) ||
        t->sent - t->done > 8ul * w->batch) {
        return false;
    }
    for (unsigned i = 0; i < w->batch; i++) {
        (void)submit_one(t->from, w, t->sent++);
    }
    spool_commit_begin(t->from);
    return true;
}

static bool take_batch(struct through *t, const struct work *w)
{
    struct wall now = {now_us(CLOCK_REALTIME)};
    unsigned under_way = spool_commits_under_way(t->to);
    struct msg_id ids[BATCH_MAX];
    size_t count;

    if (under_way == spool_commits_max(t->to)) {
        return false;
    }
    must(t->to, spool_claim(t->to, SPOOL_INCOMING, now, w->batch, ids, &count));
    if (count == 0) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        must(t->to, spool_finish_all_done(t->to, ids[i]));
    }
    t->under_way[under_way] = count;
    spool_commit_begin(t->to);
    return true;
}

static void pump(struct through *t, const struct work *w, bool sends)
{
    bool is_busy = sends && send_batch(t, w);

    is_busy |= take_batch(t, w);
    while (ends(t->from)) {
        is_busy = true;
    }
    while (ends(t->to)) {
        t->done += t->under_way[0];
        t->under_way[0] = t->under_way[1];
        is_busy = true;
    }
    if (!is_busy) {
        struct pollfd ready[] = {{.fd = spool_commits_fd(t->from), .events = POLLIN},
                                 {.fd = spool_commits_fd(t->to), .events = POLLIN}};

        (void)poll(ready, 2, 100);
    }
    spool_commits_turn(t->from);
    spool_commits_turn(t->to);
    take_events(t->from);
    take_events(t->to);
}

/* The sender's partitions go to the other, as an operator drains a node. */
static void drain_sender(const char *url, struct through *t, const struct work *w)
{
    PGconn *conn;
    char plain[1000]; /* without what libpq does not know */
    bool has_all = false;

    (void)snprintf(plain, sizeof plain, "%s", url);
    if (strstr(plain, "&schema=") != NULL) {
        *strstr(plain, "&schema=") = '\0';
    }
    conn = PQconnectdb(plain);
    run_sql(conn, "UPDATE sluice.node SET state = 2 WHERE name = 'a'");
    while (!has_all) {
        PGresult *r;

        pump(t, w, false);
        r = PQexec(conn, "SELECT FROM sluice.lease l JOIN sluice.node n ON l.node = n.no WHERE "
                         "n.name = 'b' HAVING count(*) = 256");
        has_all = PQntuples(r) == 1;
        PQclear(r);
    }
    PQfinish(conn);
}

static void through(const char *url, struct work *w)
{
    struct through t = {.from = open_node(url, "a"), .to = open_node(url, "b")};

    drain_sender(url, &t, w);
    begin(w);
    while (goes_on(w) || t.done < t.sent) {
        pump(&t, w, goes_on(w));
    }
    w->done = t.done;
    end(w);
    spool_close(t.from);
    spool_close(t.to);
}

int main(int argc, char **argv)
{
    struct work w = {.done = 0};

    if (argc != 6 || (strcmp(argv[1], "raw") != 0 && strcmp(argv[1], "spool") != 0 &&
                      strcmp(argv[1], "through") != 0)) {
        fprintf(stderr, "usage: bench_cluster raw|spool|through URL SECONDS BATCH BYTES\n");
        return 64;
    }
    w.seconds = atoi(argv[3]);
    w.batch = (unsigned)atoi(argv[4]);
    w.bytes = (size_t)atoi(argv[5]);
    if (w.batch == 0 || w.batch > BATCH_MAX || w.bytes > 1 << 20) {
        fprintf(stderr, "bench_cluster: at most %d messages of 1 MiB\n", BATCH_MAX);
        return 64;
    }
    (void)mallopt(M_TRIM_THRESHOLD, 4 << 20); /* as the daemon's processes (process/role.c) */
    (void)mallopt(M_MMAP_THRESHOLD, 4 << 20);
    w.content = mem_new(w.bytes);
    memset(w.content, 'x', w.bytes);
    if (strcmp(argv[1], "raw") == 0) {
        raw(argv[2], &w);
    } else if (strcmp(argv[1], "spool") == 0) {
        spool(argv[2], &w);
    } else {
        through(argv[2], &w);
    }
    mem_free(w.content);
    return 0;
}
