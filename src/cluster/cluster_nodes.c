#include "cluster_nodes.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <libpq-fe.h>

#include "boot_clock.h"
#include "cluster_tables.h"
#include "member_sql.h"
#include "membership.h"

#define LOOK_US (100 * US_PER_MS)
#define LIST_US (3 * US_PER_S) /* the time of three renewals */

/* Names of the values of node.state. */
#define STATE_NAME                                                                                 \
    "(ARRAY['waiting', 'up', 'draining', 'stopped', 'stopped, draining', 'removed'])[state + 1]"

struct work {
    struct cluster_url u;
    PGconn *conn; /* NULL if the connection failed */
    struct buf *error;
};

static int begin(struct work *w, const char *url, enum cluster_url_use use, struct slice password,
                 struct buf *ret_error)
{
    int err = -EIO;

    *w = (struct work){.error = ret_error};
    if (!cluster_url_parse(&w->u, url, use, ret_error)) {
        return -EINVAL;
    }
    cluster_url_set_password(&w->u, password);
    if (cluster_url_resolve(&w->u, ret_error)) {
        w->conn = cluster_tables_open(&w->u, &err, ret_error);
    }
    return w->conn != NULL ? 0 : err;
}

static int finish(struct work *w, int rc)
{
    PQfinish(w->conn); /* NULL is allowed */
    cluster_url_fini(&w->u);
    return rc;
}

/* Executes a statement with at most three parameters as text. Returns its result, or NULL with the
 * error in w->error. */
static PGresult *ask(struct work *w, const char *sql, const char *a, const char *b, const char *c)
{
    const char *const values[] = {a, b, c};
    int count = c != NULL ? 3 : b != NULL ? 2 : a != NULL;
    PGresult *r = cluster_url_exec(&w->u, w->conn, sql, count, values);

    if (PQresultStatus(r) == PGRES_TUPLES_OK || PQresultStatus(r) == PGRES_COMMAND_OK) {
        return r;
    }
    cluster_url_say_error(&w->u, w->conn, w->error);
    PQclear(r);
    return NULL;
}

static int do_it(struct work *w, const char *sql, const char *a, const char *b, const char *c)
{
    PGresult *r = ask(w, sql, a, b, c);

    PQclear(r);
    return r != NULL ? 0 : -EIO;
}

static void pause_us(int64_t us)
{
    struct timespec t = {us / US_PER_S, us % US_PER_S * 1000};

    (void)nanosleep(&t, NULL); /* a signal may end it early */
}

/* ---- list ------------------------------------------------------------------------------------ */

/* Beats of all nodes, by node number. */
struct beats {
    int64_t first[MEMBERSHIP_NODES_MAX];
    bool is_there[MEMBERSHIP_NODES_MAX], moves[MEMBERSHIP_NODES_MAX];
};

/* Reads the beats once. Sets *ret_all if all have moved. Returns false with the error in
 * w->error. */
static bool look(struct work *w, struct beats *b, bool is_first, bool *ret_all)
{
    PGresult *r = ask(w, "SELECT no, beat FROM node WHERE state < 3", NULL, NULL, NULL);

    if (r == NULL) {
        return false;
    }
    *ret_all = true;
    for (int i = 0; i < PQntuples(r); i++) {
        long no = strtol(PQgetvalue(r, i, 0), NULL, 10);
        int64_t beat = strtoll(PQgetvalue(r, i, 1), NULL, 10);

        if (no < 0 || no >= MEMBERSHIP_NODES_MAX) {
            continue;
        }
        if (is_first || !b->is_there[no]) {
            b->first[no] = beat;
            b->is_there[no] = true;
        }
        b->moves[no] = beat != b->first[no];
        *ret_all = *ret_all && b->moves[no];
    }
    PQclear(r);
    return true;
}

static bool watch_all(struct work *w, struct buf *ret_numbers)
{
    struct beats b = {{0}, {0}, {0}};
    int64_t until = boot_now().us + LIST_US;
    bool is_first = true, all = false;

    while (!all && boot_now().us < until) {
        if (!look(w, &b, is_first, &all)) {
            return false;
        }
        is_first = false;
        pause_us(all ? 0 : LOOK_US);
    }
    (void)buf_add_byte(ret_numbers, '{'); /* the buffer is large enough */
    for (int no = 0; no < MEMBERSHIP_NODES_MAX; no++) {
        if (b.moves[no]) {
            (void)buf_addf(ret_numbers, "%s%d", buf_len(ret_numbers) > 1 ? "," : "", no);
        }
    }
    (void)buf_add_byte(ret_numbers, '}');
    return true;
}

bool cluster_nodes_alive(struct cluster_url *u, PGconn *conn, struct buf *names,
                         struct buf *ret_error)
{
    struct work w = {.u = *u, .conn = conn, .error = ret_error};
    struct buf numbers;
    PGresult *r = NULL;

    buf_init(&numbers, MEMBERSHIP_NODES_MAX * 4);
    if (watch_all(&w, &numbers)) {
        r = ask(&w,
                "SELECT coalesce(string_agg(name, ', ' ORDER BY name), '') FROM node "
                "WHERE no = ANY ($1::smallint[])",
                buf_cstr(&numbers), NULL, NULL);
    }
    if (r != NULL) {
        (void)buf_addf(names, "%s", PQgetvalue(r, 0, 0)); /* errors of the buffer are sticky */
    }
    buf_fini(&numbers);
    PQclear(r);
    return r != NULL;
}

/* Number in the status that a node stores with its lease; NULL if there is none. */
#define WORD(name)                                                                                 \
    "CASE WHEN jsonb_typeof(status->'" name "') = 'number' THEN least(greatest((status->>'" name   \
    "')::numeric, 0), 1e15)::bigint END"

/* Seconds by which the node's clock is ahead of the database's. */
#define SQL_CLOCK                                                                                  \
    "CASE WHEN jsonb_typeof(status->'clock') = 'number' THEN "                                     \
    "round(least(greatest((status->>'clock')::numeric, -9e18), 9e18) / 1000000, 1) END"

/* Each node with its partitions and mail; $1 has the numbers of nodes that are alive. */
#define SQL_LIST                                                                                   \
    "SELECT name, no, " STATE_NAME " AS state, no = ANY ($1::smallint[]) AS alive, "               \
    "(SELECT count(*) FROM lease WHERE node = n.no) AS partitions, "                               \
    "(SELECT count(*) FROM part JOIN lease USING (p) WHERE node = n.no) AS waiting, " WORD(        \
        "under_way") " AS under_way, " WORD("awaited") " AS awaited, "                             \
                                                       "incarnation, program, format_min, "        \
                                                       "format_max, route, route = (SELECT "       \
                                                       "active_route FROM "                        \
                                                       "cluster) AS route_in_force, " SQL_CLOCK    \
                                                       " AS clock_ahead FROM node n WHERE state "  \
                                                       "<> 5"

/* Columns of SQL_LIST. */
enum {
    NAME,
    NUMBER,
    STATE,
    ALIVE,
    HAS,
    WAITING,
    UNDER_WAY,
    AWAITED,
    INCARNATION,
    PROGRAM,
    FORMAT_MIN,
    FORMAT_MAX,
    ROUTE,
    ROUTE_IN_FORCE,
    CLOCK
};

/* Prints what a drain still waits for. */
static void print_drain(const PGresult *r, int i, struct buf *out)
{
    long has = strtol(PQgetvalue(r, i, HAS), NULL, 10);
    long awaited = strtol(PQgetvalue(r, i, AWAITED), NULL, 10);

    (void)buf_addf(out, "%s: %ld partitions left, %s deliveries in flight", PQgetvalue(r, i, NAME),
                   has, PQgetvalue(r, i, UNDER_WAY)[0] != '\0' ? PQgetvalue(r, i, UNDER_WAY) : "?");
    if (awaited > 0) {
        (void)buf_addf(out,
                       ", %ld of these in partitions that others wait for: what can be broken off "
                       "is, a command that runs has command_time_limit",
                       awaited);
    }
    (void)buf_addf(out, "\n"); /* errors of the buffer are sticky, here and below */
}

static void print_nodes(const PGresult *r, struct buf *out)
{
    (void)buf_addf(out, "%-30s %4s %-18s %-6s %10s %10s %10s %-14s %-8s %s\n", "name", "no",
                   "state", "alive", "partitions", "waiting", "in flight", "tables", "clock",
                   "program");
    for (int i = 0; i < PQntuples(r); i++) {
        char tables[32];

        (void)snprintf(tables, sizeof tables, "%.20s%s", PQgetvalue(r, i, ROUTE),
                       PQgetvalue(r, i, ROUTE_IN_FORCE)[0] == 't' ? "" : " (old)"); /* fits */
        (void)buf_addf(out, "%-30s %4s %-18s %-6s %10s %10s %10s %-14s %-8s %s\n",
                       PQgetvalue(r, i, NAME), PQgetvalue(r, i, NUMBER), PQgetvalue(r, i, STATE),
                       PQgetvalue(r, i, ALIVE)[0] == 't' ? "yes" : "no", PQgetvalue(r, i, HAS),
                       PQgetvalue(r, i, WAITING), PQgetvalue(r, i, UNDER_WAY), tables,
                       PQgetvalue(r, i, CLOCK), PQgetvalue(r, i, PROGRAM));
    }
    for (int i = 0; i < PQntuples(r); i++) {
        if (strcmp(PQgetvalue(r, i, STATE), "draining") == 0 && PQgetvalue(r, i, ALIVE)[0] == 't' &&
            strcmp(PQgetvalue(r, i, HAS), "0") != 0) {
            print_drain(r, i, out);
        }
    }
}

static int list(struct work *w, bool json, struct buf *out)
{
    struct buf numbers;
    PGresult *r = NULL;

    buf_init(&numbers, 1024);
    if (watch_all(w, &numbers)) {
        r = json ? ask(w, "SELECT coalesce(json_agg(t), '[]') FROM (" SQL_LIST " ORDER BY name) t",
                       buf_cstr(&numbers), NULL, NULL)
                 : ask(w, SQL_LIST " ORDER BY name", buf_cstr(&numbers), NULL, NULL);
    }
    buf_fini(&numbers);
    if (r == NULL) {
        return -EIO;
    }
    if (json) {
        (void)buf_addf(out, "%s\n", PQgetvalue(r, 0, 0));
    } else {
        print_nodes(r, out);
    }
    PQclear(r);
    return 0;
}

int cluster_nodes_list(const char *url, struct slice password, bool json, struct buf *out,
                       struct buf *ret_error)
{
    struct work w;
    int rc = begin(&w, url, CLUSTER_URL_LOOKING, password, ret_error);

    return finish(&w, rc == 0 ? list(&w, json, out) : rc);
}

/* ---- drain and undrain ----------------------------------------------------------------------- */

/* Returns the row of the node, or NULL with the error in w->error. */
static PGresult *find(struct work *w, const char *name)
{
    PGresult *r = ask(w,
                      "SELECT no, state, incarnation, beat, " STATE_NAME " FROM node WHERE name = "
                      "$1 AND state <> 5",
                      name, NULL, NULL);
    PGresult *all;

    if (r == NULL || PQntuples(r) == 1) {
        return r;
    }
    PQclear(r);
    all = ask(w,
              "SELECT coalesce(string_agg(name, ', ' ORDER BY name), 'none') FROM node "
              "WHERE state <> 5",
              NULL, NULL, NULL);
    if (all != NULL) {
        (void)buf_addf(w->error, "no node of the cluster is called %s; there are: %s", name,
                       PQgetvalue(all, 0, 0));
        PQclear(all);
    }
    return NULL;
}

/* Wakes the node, which would otherwise read its row with its next renewal. */
#define SQL_WAKE "SELECT pg_notify('sluice_' || no, 'lease') FROM node WHERE name = $1"

static int change(struct work *w, const char *name, const char *sql, const char *done,
                  const char *not_needed, struct buf *out)
{
    PGresult *row = find(w, name), *r;
    int rc;

    if (row == NULL) {
        return w->error->failed || buf_len(w->error) > 0 ? -EINVAL : -EIO;
    }
    r = ask(w, sql, name, NULL, NULL);
    rc = r != NULL ? 0 : -EIO;
    if (rc == 0) {
        (void)buf_addf(out, PQntuples(r) == 1 ? "%s: %s\n" : "%s: %s (%s)\n", name,
                       PQntuples(r) == 1 ? done : not_needed, PQgetvalue(row, 0, 4));
        rc = do_it(w, SQL_WAKE, name, NULL, NULL);
    }
    PQclear(r);
    PQclear(row);
    return rc;
}

int cluster_node_drain(const char *url, struct slice password, const char *name, struct buf *out,
                       struct buf *ret_error)
{
    struct work w;
    int rc = begin(&w, url, CLUSTER_URL_OPERATOR, password, ret_error);

    if (rc == 0) {
        rc = change(&w, name,
                    "UPDATE node SET state = CASE state WHEN 3 THEN 4 ELSE 2 END WHERE name = $1 "
                    "AND state IN (0, 1, 3) RETURNING no",
                    "its partitions go to other nodes that are up", "it drains already", out);
    }
    return finish(&w, rc);
}

/* Returns 0 if another node takes partitions or waits to start, -ECANCELED if there is none. */
static int find_taker(struct work *w, const char *name)
{
    PGresult *r =
        ask(w, "SELECT 1 FROM node WHERE name <> $1 AND state IN (0, 1) LIMIT 1", name, NULL, NULL);
    int rc = r == NULL ? -EIO : 0;

    if (rc == 0 && PQntuples(r) == 0) {
        (void)buf_addf(w->error,
                       "%s keeps its partitions, as no other node is up that does not drain: start "
                       "one, or end the drain (sluice node undrain %s)",
                       name, name);
        rc = -ECANCELED;
    }
    PQclear(r);
    return rc;
}

static int left(struct work *w, const char *name, struct buf *out)
{
    PGresult *row = find(w, name), *r = NULL;
    int rc = -EINVAL;

    if (row != NULL) {
        r = ask(w, SQL_LIST " AND name = $2", "{}", name, NULL);
        rc = r != NULL ? 0 : -EIO;
    }
    if (rc == 0 && PQntuples(r) == 1) {
        bool drains = strcmp(PQgetvalue(r, 0, STATE), "draining") == 0;

        if (strcmp(PQgetvalue(r, 0, HAS), "0") == 0) {
            (void)buf_addf(out, "%s: it has no partitions\n", name);
        } else if (drains) {
            print_drain(r, 0, out);
            rc = find_taker(w, name);
            rc = rc == 0 ? -EAGAIN : rc;
        } else {
            (void)buf_addf(w->error, "%s drains no longer (%s)", name, PQgetvalue(r, 0, STATE));
            rc = -ECANCELED;
        }
    }
    PQclear(r);
    PQclear(row);
    return rc;
}

int cluster_node_left(const char *url, struct slice password, const char *name, struct buf *out,
                      struct buf *ret_error)
{
    struct work w;
    int rc = begin(&w, url, CLUSTER_URL_LOOKING, password, ret_error);

    return finish(&w, rc == 0 ? left(&w, name, out) : rc);
}

int cluster_node_undrain(const char *url, struct slice password, const char *name, struct buf *out,
                         struct buf *ret_error)
{
    struct work w;
    int rc = begin(&w, url, CLUSTER_URL_OPERATOR, password, ret_error);

    if (rc == 0) {
        rc = change(&w, name,
                    "UPDATE node SET state = state - 1 WHERE name = $1 AND state IN (2, 4) "
                    "RETURNING no",
                    "it takes its share of partitions", "it does not drain", out);
    }
    return finish(&w, rc);
}

/* ---- remove ---------------------------------------------------------------------------------- */

/* Waits for as long as other nodes do before they take a node for dead. Returns -EBUSY if the node
 * was not silent. */
static int watch_one(struct work *w, const char *name, const char *incarnation, const char *beat)
{
    int64_t until = boot_now().us + membership_times.dead_us;

    while (boot_now().us < until) {
        PGresult *r =
            ask(w, "SELECT 1 FROM node WHERE name = $1 AND incarnation = $2 AND beat = $3", name,
                incarnation, beat);
        int rows = r != NULL ? PQntuples(r) : 0;

        PQclear(r);
        if (r == NULL) {
            return -EIO;
        }
        if (rows == 0) {
            (void)buf_addf(w->error, "%s is running; stop its daemon first", name);
            return -EBUSY;
        }
        pause_us(LOOK_US);
    }
    return 0;
}

/* Ends the node's incarnation and frees its partitions, with the same order of locks as a
 * take-over. The row stays to keep the number. */
static int take_away(struct work *w, const char *no, const char *incarnation, const char *beat,
                     const char *name)
{
    PGresult *r = NULL;
    int rc = do_it(w, "BEGIN", NULL, NULL, NULL);

    rc = rc != 0 ? rc : do_it(w, MEMBER_SQL_RAISE_FENCE, no, NULL, NULL);
    if (rc == 0) {
        r = ask(w,
                "UPDATE node SET incarnation = incarnation + 1, state = 5, name = '#' || no WHERE "
                "no = $1 AND incarnation = $2 AND beat = $3 RETURNING no",
                no, incarnation, beat);
        rc = r != NULL ? 0 : -EIO;
    }
    if (rc == 0 && PQntuples(r) == 0) {
        (void)buf_addf(w->error, "%s is running; stop its daemon first", name);
        rc = -EBUSY;
    }
    PQclear(r);
    rc = rc != 0 ? rc : do_it(w, MEMBER_SQL_FREE_LEASES, no, NULL, NULL);
    return rc != 0 ? rc : do_it(w, "COMMIT", NULL, NULL, NULL); /* or disconnect: undone */
}

static int take_away_silent(struct work *w, const char *name, struct buf *out)
{
    PGresult *row = find(w, name);
    long state;
    int rc = 0;

    if (row == NULL) {
        return w->error->failed || buf_len(w->error) > 0 ? -EINVAL : -EIO;
    }
    state = strtol(PQgetvalue(row, 0, 1), NULL, 10);
    if (state != NODE_STOPPED && state != NODE_STOPPED_DRAINING) {
        rc = watch_one(w, name, PQgetvalue(row, 0, 2), PQgetvalue(row, 0, 3));
    }
    if (rc == 0) {
        rc =
            take_away(w, PQgetvalue(row, 0, 0), PQgetvalue(row, 0, 2), PQgetvalue(row, 0, 3), name);
    }
    if (rc == 0) {
        (void)buf_addf(out, "%s: removed; others take its partitions\n", name);
    }
    PQclear(row);
    return rc;
}

int cluster_node_remove(const char *url, struct slice password, const char *name, struct buf *out,
                        struct buf *ret_error)
{
    struct work w;
    int rc = begin(&w, url, CLUSTER_URL_OPERATOR, password, ret_error);

    return finish(&w, rc == 0 ? take_away_silent(&w, name, out) : rc);
}
