#include "cluster_tables.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "boot_clock.h"
#include "check.h"
#include "cluster_nodes.h"
#include "member_sql.h"
#include "membership.h"
#include "schema.h"

/* ---- connecting ------------------------------------------------------------------------------ */

PGresult *cluster_tables_ask(PGconn *conn, struct cluster_url *u, const char *sql,
                             struct buf *ret_error)
{
    PGresult *r = cluster_url_exec(u, conn, sql, 0, NULL);
    ExecStatusType status = PQresultStatus(r);

    if (status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK) {
        return r;
    }
    cluster_url_say_error(u, conn, ret_error);
    PQclear(r);
    return NULL;
}

/* Returns the first value of the first row, or an empty text. */
static const char *first(const PGresult *r)
{
    return PQntuples(r) > 0 && PQnfields(r) > 0 ? PQgetvalue(r, 0, 0) : "";
}

static bool is_new_enough(const PGconn *conn, struct cluster_url *u, struct buf *ret_error)
{
    int version = PQserverVersion(conn);

    if (version < CLUSTER_SERVER_MIN) {
        (void)buf_addf(ret_error, "spool %s: the server has version %d.%d; expected %d or newer",
                       u->text, version / 10000, version % 10000,
                       CLUSTER_SERVER_MIN / 10000); /* errors of the buffer are sticky */
    }
    return version >= CLUSTER_SERVER_MIN;
}

/* Do the tables exist, and in a format that this program knows? Returns 0 or a negative errno with
 * its text. */
static int look_at_format(PGconn *conn, struct cluster_url *u, int *ret_format,
                          struct buf *ret_error)
{
    PGresult *r =
        cluster_tables_ask(conn, u, "SELECT to_regclass('cluster') IS NOT NULL", ret_error);
    bool is_there = r != NULL && strcmp(first(r), "t") == 0;
    int64_t format;

    if (r == NULL) {
        return -EIO;
    }
    PQclear(r);
    if (!is_there) {
        (void)buf_addf(ret_error,
                       "spool %s: there are no tables in schema %s; `sluice cluster init' makes "
                       "them",
                       u->text, u->schema);
        return -EPROTO;
    }
    r = cluster_tables_ask(conn, u, "SELECT format FROM cluster", ret_error);
    if (r == NULL) {
        return -EIO;
    }
    if (PQntuples(r) == 0) {
        PQclear(r);
        (void)buf_addf(ret_error, "spool %s: the table cluster has no row", u->text);
        return -EPROTO;
    }
    format = strtoll(first(r), NULL, 10);
    PQclear(r);
    if (format < SCHEMA_FORMAT_MIN || format > SCHEMA_FORMAT) {
        (void)buf_addf(ret_error,
                       "spool %s: its tables have format %" PRId64 "; this program knows %d to %d",
                       u->text, format, SCHEMA_FORMAT_MIN, SCHEMA_FORMAT);
        return -EPROTO;
    }
    *ret_format = (int)format;
    return 0;
}

PGconn *cluster_tables_open(struct cluster_url *u, int *ret_err, struct buf *ret_error)
{
    PGconn *conn = cluster_url_connect(u, ret_error);
    int format;

    if (conn == NULL) {
        *ret_err = -EIO;
        return NULL;
    }
    *ret_err =
        is_new_enough(conn, u, ret_error) ? look_at_format(conn, u, &format, ret_error) : -EPROTO;
    if (*ret_err != 0) {
        PQfinish(conn);
        return NULL;
    }
    return conn;
}

/* ---- commands -------------------------------------------------------------------------------- */

/* Connects for a use; `is_made`: the tables must exist. Returns NULL with *ret_err and *ret_error
 * after an error. */
static PGconn *begin(struct cluster_url *u, const char *url, enum cluster_url_use use,
                     struct slice password, bool is_made, int *ret_err, struct buf *ret_error)
{
    PGconn *conn;

    *ret_err = -EINVAL;
    if (!cluster_url_parse(u, url, use, ret_error)) {
        return NULL;
    }
    cluster_url_set_password(u, password);
    *ret_err = -EIO;
    if (!cluster_url_resolve(u, ret_error)) {
        return NULL;
    }
    if (is_made) {
        return cluster_tables_open(u, ret_err, ret_error);
    }
    conn = cluster_url_connect(u, ret_error);
    if (conn != NULL && !is_new_enough(conn, u, ret_error)) {
        PQfinish(conn);
        conn = NULL;
    }
    return conn;
}

static int run(PGconn *conn, struct cluster_url *u, const char *sql, struct buf *ret_error)
{
    PGresult *r = cluster_tables_ask(conn, u, sql, ret_error);

    PQclear(r);
    return r != NULL ? 0 : -EIO;
}

/* CREATE SCHEMA IF NOT EXISTS would need rights to the database, even if the schema exists. */
static int make_schema(PGconn *conn, struct cluster_url *u, struct buf *ret_error)
{
    const char *const name = u->schema;
    PGresult *r =
        cluster_url_exec(u, conn, "SELECT 1 FROM pg_namespace WHERE nspname = $1", 1, &name);
    bool is_there = PQntuples(r) == 1;
    char sql[100];
    int err = 0;

    if (PQresultStatus(r) != PGRES_TUPLES_OK) {
        cluster_url_say_error(u, conn, ret_error);
        err = -EIO;
    } else if (!is_there) {
        (void)snprintf(sql, sizeof sql, "CREATE SCHEMA \"%s\"", u->schema); /* fits */
        err = run(conn, u, sql, ret_error);
    }
    PQclear(r);
    return err;
}

int cluster_tables_init(const char *url, struct slice password, bool flag, struct buf *out,
                        struct buf *ret_error)
{
    struct cluster_url u;
    int err;
    PGconn *conn = begin(&u, url, CLUSTER_URL_OPERATOR, password, false, &err, ret_error);

    (void)flag;
    if (conn != NULL) {
        err = run(conn, &u, "BEGIN", ret_error);
        err = err != 0 ? err : make_schema(conn, &u, ret_error);
        err = err != 0 ? err : run(conn, &u, schema_sql, ret_error);
        err = err != 0 ? err : run(conn, &u, "COMMIT", ret_error);
        if (err == 0) {
            (void)buf_addf(out,
                           "%s: the tables are made; `sluice cluster check' looks at the "
                           "server's settings\n",
                           u.text);
        }
    }
    PQfinish(conn); /* undoes an open transaction */
    cluster_url_fini(&u);
    return err;
}

/* Prints a setting that should be changed, and the reason. */
static void advise(struct buf *out, const char *setting, const char *value, const char *advice)
{
    (void)buf_addf(out, "advice: %s is %s; %s\n", setting, value[0] != '\0' ? value : "empty",
                   advice);
}

/* Settings that should be changed, one per row: name, value and advice. A node does not work
 * without those marked `must`. */
static const char settings_sql[] =
    "SELECT * FROM (VALUES "
    "(current_setting('fsync') = 'on', true, 'fsync', current_setting('fsync'), "
    "'without it a crash of the machine loses mail: set it to on'), "
    "(current_setting('full_page_writes') = 'on', true, 'full_page_writes', "
    "current_setting('full_page_writes'), 'a page that was half written is lost: set it to on'), "
    "(current_setting('synchronous_commit') IN ('on', 'remote_apply'), true, "
    "'synchronous_commit', current_setting('synchronous_commit'), "
    "'what was acknowledged must be on two machines: set it to on'), "
    "(current_setting('synchronous_standby_names') <> '', true, 'synchronous_standby_names', "
    "current_setting('synchronous_standby_names'), "
    "'name a standby, or say cluster_standby = none in the configuration of the nodes'), "
    "(current_setting('synchronous_standby_names') = '' OR EXISTS (SELECT FROM "
    "pg_stat_replication), true, 'pg_stat_replication', '', "
    "'commits wait for a standby and none follows this server: start it, or is this a primary "
    "whose place another has taken?'), "
    "(pg_size_bytes(current_setting('max_wal_size')) >= 4294967296, false, 'max_wal_size', "
    "current_setting('max_wal_size'), "
    "'checkpoints come often and WAL grows by full pages: 8GB is good'), "
    "(pg_size_bytes(current_setting('shared_buffers')) >= 268435456, false, 'shared_buffers', "
    "current_setting('shared_buffers'), 'a quarter of the memory of the machine is good'), "
    "(current_setting('autovacuum') = 'on', false, 'autovacuum', current_setting('autovacuum'), "
    "'tables of waiting mail grow without it: set it to on'), "
    "(current_setting('wal_compression') <> 'off', false, 'wal_compression', "
    "current_setting('wal_compression'), 'lz4 makes WAL smaller'), "
    "(current_setting('hot_standby_feedback') = 'off', false, 'hot_standby_feedback', "
    "current_setting('hot_standby_feedback'), "
    "'a query on a standby then keeps dead rows here: set it to off'), "
    "(current_setting('server_encoding') = 'UTF8', true, 'server_encoding', "
    "current_setting('server_encoding'), 'make the database anew with encoding UTF8'), "
    "(current_setting('max_connections')::int >= 50, false, 'max_connections', "
    "current_setting('max_connections'), 'each node takes up to 7')) "
    "s (good, must, name, value, advice) WHERE NOT good";

/* Is the setting good enough for a server without a standby? */
static bool is_fit_alone(const char *setting, const char *value)
{
    return strcmp(setting, "synchronous_standby_names") == 0 ||
           (strcmp(setting, "synchronous_commit") == 0 && strcmp(value, "off") != 0);
}

static int check_settings(PGconn *conn, struct cluster_url *u, bool needs_standby, struct buf *out,
                          struct buf *ret_error)
{
    PGresult *r = cluster_tables_ask(conn, u, settings_sql, ret_error);
    int err = r != NULL ? 0 : -EIO;

    for (int i = 0; r != NULL && i < PQntuples(r); i++) {
        if (!needs_standby && is_fit_alone(PQgetvalue(r, i, 2), PQgetvalue(r, i, 3))) {
            continue;
        }
        if (strcmp(PQgetvalue(r, i, 1), "t") == 0) {
            err = -EUCLEAN;
            (void)buf_addf(out, "error: %s is %s; %s\n", PQgetvalue(r, i, 2),
                           PQgetvalue(r, i, 3)[0] != '\0' ? PQgetvalue(r, i, 3) : "empty",
                           PQgetvalue(r, i, 4));
        } else {
            advise(out, PQgetvalue(r, i, 2), PQgetvalue(r, i, 3), PQgetvalue(r, i, 4));
        }
    }
    PQclear(r);
    return err;
}

/* Transactions and slots that hold back vacuum, TRUNCATE or the removal of WAL. */
static const char others_sql[] =
    "SELECT 'the oldest transaction of this database, of ' || coalesce(usename, '?') || ' (' || "
    "application_name || '), is ' || round(extract(epoch FROM now() - xact_start)) || "
    "' s old: dead rows are kept for it' FROM pg_stat_activity WHERE datname = current_database() "
    "AND xact_start < now() - interval '60 s' AND pid <> pg_backend_pid() "
    "UNION ALL SELECT 'replication slot ' || slot_name || ' is not used: WAL is kept for it' "
    "FROM pg_replication_slots WHERE NOT active "
    "UNION ALL SELECT 'prepared transaction ' || gid || ' is left open' FROM pg_prepared_xacts";

static int check_advice(PGconn *conn, struct cluster_url *u, const char *sql, struct buf *out,
                        struct buf *ret_error)
{
    PGresult *r = cluster_tables_ask(conn, u, sql, ret_error);

    for (int i = 0; r != NULL && i < PQntuples(r); i++) {
        (void)buf_addf(out, "advice: %s\n", PQgetvalue(r, i, 0));
    }
    PQclear(r);
    return r != NULL ? 0 : -EIO;
}

/* No decision depends on the database's clock alone, but lists calculate ages from both clocks. */
static int check_clock(PGconn *conn, struct cluster_url *u, struct buf *out, struct buf *ret_error)
{
    PGresult *r = cluster_tables_ask(
        conn, u, "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint", ret_error);
    int64_t apart;

    if (r == NULL) {
        return -EIO;
    }
    apart = strtoll(first(r), NULL, 10) - wall_now().us / US_PER_MS;
    PQclear(r);
    if (apart > 5000 || apart < -5000) {
        (void)buf_addf(
            out, "advice: the server's clock and that of this machine are %" PRId64 " s apart\n",
            (apart < 0 ? -apart : apart) / 1000);
    }
    return 0;
}

static int check_format(PGconn *conn, struct cluster_url *u, struct buf *out, struct buf *ret_error)
{
    int format, err = look_at_format(conn, u, &format, ret_error);

    if (err == 0 && format < SCHEMA_FORMAT) {
        (void)buf_addf(out,
                       "advice: the tables have format %d, this program makes %d: `sluice cluster "
                       "upgrade' when all nodes have it\n",
                       format, SCHEMA_FORMAT);
    }
    return err;
}

/* Nodes whose totals were wrong. Each node compares its totals with the tables, corrects them, and
 * stores the difference in its status. */
static const char drift_sql[] =
    "SELECT 'node ' || name || ' has counted what waits wrong, by ' || (status->>'drift') || ' "
    "messages since it was started, and has put that right: please report it' FROM node WHERE "
    "state "
    "IN (0, 1, 2) AND jsonb_typeof(status->'drift') = 'number' AND (status->>'drift')::numeric > 0 "
    "ORDER BY name";

/* Nodes whose acknowledged changes this database lacks. The number of missing commits is known only
 * within one incarnation, and counts the marker of each new connection. */
#define LOSSES                                                                                     \
    "SELECT 'node ' || name || ' had changes acknowledged that this server lacks: up to ' || "     \
    "CASE WHEN here >> 36 = number >> 36 THEN (number - here)::text ELSE '?' END || ' commits, "   \
    "each of one to some hundred messages or results of deliveries, the last of them at ' || "     \
    "to_char(to_timestamp(at / 1000000.0), 'YYYY-MM-DD HH24:MI:SS TZ') FROM (SELECT "              \
    "name, " MEMBER_SQL_LOST                                                                       \
    " AS lost, state, " STATUS_NUMBER("lost_number") " AS number, " STATUS_NUMBER(                 \
        "lost_at") " AS at, (SELECT coalesce(max(n), 0) FROM batch WHERE batch.node = "            \
                   "node.no) AS here FROM node) n WHERE state <> 5 AND lost "                      \
                   "> " MEMBER_SQL_ACCEPTED
#define STATUS_NUMBER(name)                                                                        \
    "CASE WHEN jsonb_typeof(status->'" name "') = 'number' THEN least(greatest((status->>'" name   \
    "')::numeric, 0), 9e18)::bigint ELSE 0 END"
static const char losses_sql[] = LOSSES " ORDER BY name";

static int check_losses(PGconn *conn, struct cluster_url *u, struct buf *out, struct buf *ret_error)
{
    PGresult *r = cluster_tables_ask(conn, u, losses_sql, ret_error);
    int err = r == NULL ? -EIO : PQntuples(r) > 0 ? -EUCLEAN : 0;

    for (int i = 0; r != NULL && i < PQntuples(r); i++) {
        (void)buf_addf(out, "error: %s\n", PQgetvalue(r, i, 0));
    }
    if (err == -EUCLEAN) {
        (void)buf_addf(out,
                       "advice: if another server has them, stop this one and promote that; if "
                       "none has, `sluice cluster accept-loss --yes'\n");
    }
    PQclear(r);
    return err;
}

/* Rows that no other row refers to. They must be older than an hour, as younger ones may still be
 * in use; ids are times. */
#define OLD "(extract(epoch FROM now()) * 1000000 - 3600000000)::bigint"

#define LEASE_IS_WRONG                                                                             \
    "epoch NOT BETWEEN 0 AND 4611686018427387904 OR node NOT BETWEEN 0 AND 63 OR wanted NOT "      \
    "BETWEEN 0 AND 63"
/* Incarnations are counted up; a number above this limit was set by hand. Numbers of batches
 * contain the incarnation. */
#define LIFE_IS_WRONG "incarnation NOT BETWEEN 0 AND 100000000"
#define LAST_LIFE(no)                                                                              \
    "(SELECT 1 + coalesce(max(n) >> 36, 0) FROM batch WHERE n BETWEEN 0 AND 6871947673600000000 "  \
    "AND batch.node = " no ")"
#define NODE_IS_WRONG                                                                              \
    LIFE_IS_WRONG " OR beat NOT BETWEEN 0 AND 4611686018427387904 OR state NOT BETWEEN 0 AND 5 "   \
                  "OR name = ''"

#define PASSING                                                                                    \
    "SELECT p, id FROM fresh_0 UNION ALL SELECT p, id FROM fresh_1 UNION ALL SELECT p, id FROM "   \
    "fresh_2"

static const struct {
    const char *what, *count_sql, *repair_sql;
} orphans[] = {
    /* Rows that nodes work with; nodes go on by themselves once the rows are valid. An incarnation
     * that was set by hand ends: the next one is above those of all batches. */
    {"leases that can't be; they are free now", "SELECT count(*) FROM lease WHERE " LEASE_IS_WRONG,
     "UPDATE lease SET node = NULL, wanted = NULL, epoch = extract(epoch FROM now())::bigint "
     "WHERE " LEASE_IS_WRONG},
    {"leases of no partition; they are deleted",
     "SELECT count(*) FROM lease WHERE p NOT BETWEEN 0 AND 255",
     "DELETE FROM lease WHERE p NOT BETWEEN 0 AND 255"},
    {"partitions without a lease; they are free now",
     "SELECT count(*) FROM generate_series(0, 255) g (p) WHERE p NOT IN (SELECT p FROM lease)",
     "INSERT INTO lease (p, epoch) SELECT p, extract(epoch FROM now())::bigint FROM "
     "generate_series(0, 255) g (p) WHERE p NOT IN (SELECT p FROM lease)"},
    {"fences that can't be; they begin a new life",
     "SELECT count(*) FROM fence WHERE " LIFE_IS_WRONG,
     "UPDATE fence SET incarnation = " LAST_LIFE("fence.no") " WHERE " LIFE_IS_WRONG},
    {"nodes that can't be; they begin a new life", "SELECT count(*) FROM node WHERE " NODE_IS_WRONG,
     "UPDATE node SET incarnation = 1 + " LAST_LIFE(
         "node.no") ", beat = CASE WHEN beat BETWEEN 0 "
                    "AND 4611686018427387904 THEN beat ELSE 0 END, state = CASE WHEN state BETWEEN "
                    "0 AND 5 THEN "
                    "state ELSE 1 END, name = CASE WHEN name <> '' THEN name ELSE 'node-' || no "
                    "END WHERE " NODE_IS_WRONG},
    /* Mail in passage is moved to the tables of waiting mail in one transaction, and is never in
     * both. Mail with rows in both cannot be deferred. */
    {"parts of mail that is still passing; they are deleted, the mail is not",
     "SELECT count(*) FROM part JOIN (" PASSING ") f USING (p, id)",
     "WITH f AS MATERIALIZED (" PASSING "), r AS (DELETE FROM recipient USING f WHERE recipient.p "
     "= f.p AND recipient.id = f.id) DELETE FROM part USING f WHERE part.p = f.p AND part.id = "
     "f.id"},
    {"rows of message of mail that is still passing; they are deleted, the mail is not",
     "SELECT count(*) FROM message JOIN (" PASSING ") f USING (id)",
     "WITH f AS MATERIALIZED (" PASSING "), c AS (DELETE FROM content USING f WHERE content.id = "
     "f.id) DELETE FROM message USING f WHERE message.id = f.id"},
    {"pieces of content that no message has",
     "SELECT count(*) FROM content c WHERE id < " OLD
     " AND NOT EXISTS (SELECT FROM message m WHERE m.id = c.id)",
     "DELETE FROM content c WHERE id < " OLD
     " AND NOT EXISTS (SELECT FROM message m WHERE m.id = c.id)"},
    {"messages that have no part",
     "SELECT count(*) FROM message m WHERE id < " OLD
     " AND NOT EXISTS (SELECT FROM part WHERE part.id = m.id OR part.message = m.id)",
     "DELETE FROM message m WHERE id < " OLD
     " AND NOT EXISTS (SELECT FROM part WHERE part.id = m.id OR part.message = m.id)"},
    {"recipients that belong to no part",
     "SELECT count(*) FROM recipient r WHERE id < " OLD
     " AND NOT EXISTS (SELECT FROM part WHERE part.p = r.p AND part.id = r.id)",
     "DELETE FROM recipient r WHERE id < " OLD
     " AND NOT EXISTS (SELECT FROM part WHERE part.p = r.p AND part.id = r.id)"},
    /* Rows of mail. They are not deleted: an operator must see them. */
    {"parts whose state can't be; they are put on hold",
     "SELECT count(*) FROM part WHERE state NOT BETWEEN 1 AND 4",
     "UPDATE part SET state = 3, parked = NULL, reason = 'its state was unknown' WHERE state NOT "
     "BETWEEN 1 AND 4"},
    {"parts whose message is not there; they are put on hold",
     "SELECT count(*) FROM part x WHERE state <> 3 AND NOT EXISTS (SELECT FROM message m WHERE "
     "m.id = x.message)",
     "UPDATE part x SET state = 3, parked = NULL, reason = 'its message is missing in the "
     "database' "
     "WHERE state <> 3 AND NOT EXISTS (SELECT FROM message m WHERE m.id = x.message)"},
    {"messages whose parts are not as many as is written; they are counted",
     "SELECT count(*) FROM part x WHERE kind = 1 AND parts_left <> (SELECT count(*) FROM part y "
     "WHERE y.message = x.id AND y.message <> y.id)",
     "UPDATE part x SET gen = CASE gen WHEN 2147483647 THEN 0 ELSE gen + 1 END, due = created, "
     "state = CASE state WHEN 4 THEN 2 ELSE state END, parts_left = (SELECT count(*) FROM part y "
     "WHERE y.message = x.id AND y.message <> y.id) WHERE kind = 1 AND parts_left <> (SELECT "
     "count(*) FROM part y WHERE y.message = x.id AND y.message <> y.id)"},
    {"messages whose report part is not there; it is made",
     "SELECT count(DISTINCT message) FROM part x WHERE message <> id AND EXISTS (SELECT FROM "
     "message m WHERE m.id = x.message) AND NOT EXISTS (SELECT FROM part y WHERE y.id = "
     "x.message AND y.kind = 1)",
     "INSERT INTO part (p, id, message, kind, state, due, arrived, created, size, pending, "
     "to_report, rcpts, warnings, force_expire, parts_left, sender, sender_domain, class, reason) "
     "SELECT DISTINCT ON (x.message) m.home, m.id, m.id, 1, 2, x.created, x.arrived, x.created, "
     "x.size, 0, (SELECT count(*) FROM recipient r WHERE r.p = m.home AND r.id = m.id), 0, 0, "
     "false, (SELECT count(*) FROM part y WHERE y.message = m.id AND y.message <> y.id), "
     "x.sender, x.sender_domain, x.class, ''::bytea FROM part x JOIN message m ON m.id = "
     "x.message WHERE x.message <> x.id AND NOT EXISTS (SELECT FROM part y WHERE y.id = "
     "x.message AND y.kind = 1) ORDER BY x.message, x.id"},
    {"messages with pieces of content missing; they are put on hold",
     "SELECT count(*) FROM message m JOIN part x ON x.message = m.id WHERE x.state <> 3 AND "
     "chunks > 0 AND chunks <> (SELECT count(*) FROM content c WHERE c.id = m.id)",
     "UPDATE part x SET state = 3, parked = NULL, reason = 'pieces of its content are missing' "
     "FROM message m WHERE m.id = x.message AND x.state <> 3 AND chunks > 0 AND "
     "chunks <> (SELECT count(*) FROM content c WHERE c.id = m.id)"},
};

static int check_orphans(PGconn *conn, struct cluster_url *u, bool repair, struct buf *out,
                         struct buf *ret_error)
{
    int err = 0;

    for (size_t i = 0; i < sizeof orphans / sizeof orphans[0]; i++) {
        PGresult *r = cluster_tables_ask(
            conn, u, repair ? orphans[i].repair_sql : orphans[i].count_sql, ret_error);
        const char *count = r == NULL ? "0" : repair ? PQcmdTuples(r) : first(r);

        if (strcmp(count, "0") != 0) {
            (void)buf_addf(out, "%s: %s %s\n", repair ? "repaired" : "error", count,
                           orphans[i].what);
            err = repair ? err : -EUCLEAN;
        }
        PQclear(r);
        if (r == NULL) {
            return -EIO;
        }
    }
    return err;
}

/* Returns the more severe of two errors. */
static int worse(int a, int b)
{
    return a == 0 || (a == -EUCLEAN && b != 0) ? b : a;
}

int cluster_tables_check(const char *url, struct slice password, bool needs_standby, bool repair,
                         struct buf *out, struct buf *ret_error)
{
    struct cluster_url u;
    int err;
    PGconn *conn = begin(&u, url, repair ? CLUSTER_URL_OPERATOR : CLUSTER_URL_LOOKING, password,
                         true, &err, ret_error);

    if (conn != NULL) {
        err = check_settings(conn, &u, needs_standby, out, ret_error);
        err = worse(err, check_losses(conn, &u, out, ret_error));
        err = worse(err, check_format(conn, &u, out, ret_error));
        err = worse(err, check_advice(conn, &u, others_sql, out, ret_error));
        err = worse(err, check_advice(conn, &u, drift_sql, out, ret_error));
        err = worse(err, check_clock(conn, &u, out, ret_error));
        err = worse(err, check_orphans(conn, &u, repair, out, ret_error));
        if (err == 0) {
            (void)buf_addf(out, "%s: nothing is wrong with it\n", u.text);
        }
    }
    PQfinish(conn);
    cluster_url_fini(&u);
    return err;
}

/* ---- upgrade --------------------------------------------------------------------------------- */

/* Nodes read the locked table all the time. A lock that waits blocks them, so it waits only for a
 * moment. */
#define UPGRADE_TRIES   20
#define UPGRADE_WAIT_NS (500L * 1000 * 1000)

/* Nodes that run, or may run, and do not know the new format. */
static const char behind_sql[] = "SELECT name, program, format_max FROM node WHERE state IN (0, 1, "
                                 "2) AND format_max < $1::int ORDER BY name";

static int look_for_older_nodes(PGconn *conn, struct cluster_url *u, int to, struct buf *ret_error)
{
    char room[16];
    const char *value = room;
    PGresult *r;
    int err = -EIO;

    (void)snprintf(room, sizeof room, "%d", to); /* fits */
    r = cluster_url_exec(u, conn, behind_sql, 1, &value);
    if (PQresultStatus(r) == PGRES_TUPLES_OK) {
        err = PQntuples(r) > 0 ? -EBUSY : 0;
    } else {
        cluster_url_say_error(u, conn, ret_error);
    }
    for (int i = 0; err == -EBUSY && i < PQntuples(r); i++) {
        (void)buf_addf(ret_error,
                       "%sspool %s: node %s runs %s, which knows formats up to %s, not %d: give "
                       "it the new program, or stop it (`sluice node remove' when it was killed)",
                       i > 0 ? "\n" : "", u->text, PQgetvalue(r, i, 0), PQgetvalue(r, i, 1),
                       PQgetvalue(r, i, 2), to);
    }
    PQclear(r);
    return err;
}

/* Executes a part of a step. Returns -EAGAIN if a lock could not be had. */
static int run_step(PGconn *conn, struct cluster_url *u, const char *sql, struct buf *ret_error)
{
    PGresult *r = cluster_url_exec(u, conn, sql, 0, NULL);
    const char *state = PQresultErrorField(r, PG_DIAG_SQLSTATE);
    int err = 0;

    if (PQresultStatus(r) != PGRES_COMMAND_OK && PQresultStatus(r) != PGRES_TUPLES_OK) {
        err = state != NULL && (strcmp(state, "55P03") == 0 || strcmp(state, "40P01") == 0)
                  ? -EAGAIN
                  : -EIO;
        cluster_url_say_error(u, conn, ret_error);
    }
    PQclear(r);
    return err;
}

/* Takes one step under a lock on the table `cluster`. Nodes that read the format wait for the lock,
 * so none can start between the check of the nodes and the step. */
static int take_step(PGconn *conn, struct cluster_url *u, int to, struct buf *ret_error)
{
    char sql[100];
    int format, err;

    err = run_step(conn, u, "BEGIN; SET LOCAL lock_timeout = 500; LOCK TABLE cluster", ret_error);
    err = err != 0 ? err : look_at_format(conn, u, &format, ret_error);
    if (err == 0 && format != to - 1) { /* another operator has raised it */
        return run_step(conn, u, "ROLLBACK", ret_error);
    }
    err = err != 0 ? err : look_for_older_nodes(conn, u, to, ret_error);
    err = err != 0 ? err : run_step(conn, u, schema_step(to), ret_error);
    (void)snprintf(sql, sizeof sql, "UPDATE cluster SET format = %d, min_format = %d; COMMIT", to,
                   to); /* fits */
    return err != 0 ? err : run_step(conn, u, sql, ret_error);
}

static int raise_format(PGconn *conn, struct cluster_url *u, int to, struct buf *ret_error)
{
    static const struct timespec pause = {.tv_nsec = UPGRADE_WAIT_NS};
    int err = take_step(conn, u, to, ret_error);

    for (int i = 1; err == -EAGAIN && i < UPGRADE_TRIES; i++) {
        PQclear(cluster_url_exec(u, conn, "ROLLBACK", 0, NULL));
        buf_clear(ret_error);
        (void)nanosleep(&pause, NULL); /* a signal may end it early */
        err = take_step(conn, u, to, ret_error);
    }
    return err == -EAGAIN ? -EBUSY : err;
}

int cluster_tables_upgrade(const char *url, struct slice password, bool flag, struct buf *out,
                           struct buf *ret_error)
{
    struct cluster_url u;
    int err, from = 0;
    PGconn *conn = begin(&u, url, CLUSTER_URL_OPERATOR, password, true, &err, ret_error);

    (void)flag;
    if (conn != NULL) {
        err = look_at_format(conn, &u, &from, ret_error);
    }
    for (int to = from + 1; err == 0 && to <= SCHEMA_FORMAT; to++) {
        err = raise_format(conn, &u, to, ret_error);
    }
    if (err == 0) {
        (void)buf_addf(out, "%s: its tables have format %d, %s\n", u.text, SCHEMA_FORMAT,
                       from < SCHEMA_FORMAT ? "from now on" : "the newest that this program knows");
    }
    PQfinish(conn); /* undoes an open transaction */
    cluster_url_fini(&u);
    return err;
}

/* Stores the number of the accepted losses: the highest that a node waits for, or the next one. */
#define ACCEPT_LOSS                                                                                \
    "INSERT INTO note (name, text) SELECT 'losses accepted', convert_to(greatest(1 "               \
    "+ " MEMBER_SQL_ACCEPTED ", (SELECT coalesce(max(" MEMBER_SQL_LOST "), 0) FROM node))::text, " \
    "'UTF8') ON CONFLICT (name) DO UPDATE SET text = excluded.text"

int cluster_tables_accept_loss(const char *url, struct slice password, bool yes, struct buf *out,
                               struct buf *ret_error)
{
    struct cluster_url u;
    int err, losses = 0;
    PGconn *conn = begin(&u, url, CLUSTER_URL_OPERATOR, password, true, &err, ret_error);

    if (conn != NULL) {
        losses = err = check_losses(conn, &u, out, ret_error);
    }
    if ((err == 0 || err == -EUCLEAN) && yes) {
        err = run(conn, &u, ACCEPT_LOSS, ret_error);
        if (err == 0) {
            (void)buf_addf(out, "%s: nodes go on with what is there\n", u.text);
        }
    } else if (conn != NULL && losses == 0) {
        (void)buf_addf(out,
                       "%s: no node that runs has found anything missing; one that does not start "
                       "for that reason goes on after `--yes'\n",
                       u.text);
    }
    PQfinish(conn);
    cluster_url_fini(&u);
    return err;
}

/* Mail in a backup may have been delivered since. Mail in passage is moved to the tables of waiting
 * mail, as only there it can be on hold. Rows of fence are locked in the same order as by a
 * take-over. */
#define RESTORE_FRESH(k)                                                                           \
    "WITH f AS (DELETE FROM fresh_" k " RETURNING *), m AS (INSERT INTO message (id, flags, "      \
    "rcpt_total, size, arrived, class_source, envid, client, chunks, bytes) SELECT id, flags, 1, " \
    "size, arrived, class_source, envid, client, 0, bytes FROM f), x AS (INSERT INTO recipient "   \
    "(p, id, n, state, notify, attempts, last_attempt, route_generation, address, domain, "        \
    "transport, nexthop, orcpt, status, diagnostic, reply, remote, tls) SELECT p, id, 1, 1, "      \
    "notify, 0, 0, route_generation, address, lower(coalesce(substring(encode(address, 'escape') " \
    "FROM '@([^@]*)$'), '') COLLATE \"C\"), transport, nexthop, orcpt, '', '', '', '', '' FROM "   \
    "f) "                                                                                          \
    "INSERT INTO part (p, id, message, kind, state, due, arrived, created, size, pending, "        \
    "to_report, rcpts, warnings, force_expire, sender, sender_domain, class, parked, reason) "     \
    "SELECT p, id, id, 0, 2, due, arrived, created, size, 1, 0, 1, 0, false, sender, "             \
    "lower(coalesce(substring(encode(sender, 'escape') FROM '@([^@]*)$'), '') COLLATE \"C\"), "    \
    "class, NULL, '' FROM f;"

static const char restored_sql[] =
    "UPDATE fence SET incarnation = incarnation + 1000000;"
    "UPDATE node SET incarnation = incarnation + 1000000, id_reserved = greatest(id_reserved, "
    "(extract(epoch FROM now()) * 1000000)::bigint) + 3600000000;"
    "UPDATE lease SET node = NULL, wanted = NULL, epoch = epoch + 1000000;"
    "TRUNCATE arrival, ask, batch;" RESTORE_FRESH("0") RESTORE_FRESH("1")
        RESTORE_FRESH("2") "UPDATE cluster SET timeline = 0, system_id = '';"
                           "UPDATE part SET state = 3, parked = NULL, reason = 'restored from a "
                           "backup: it may have been "
                           "delivered since' WHERE state <> 3;" ACCEPT_LOSS ";";

/* Nodes that run are connected even if they renew no lease, as they refuse a restored database. */
static const char connected_sql[] =
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND usename = "
    "current_user AND application_name = 'sluice' AND pid <> pg_backend_pid()";

/* Are all nodes stopped? Returns -EBUSY with the nodes in *ret_error if not. */
static int check_stopped(PGconn *conn, struct cluster_url *u, struct buf *ret_error)
{
    struct buf names;
    PGresult *r = NULL;
    int err = -EIO;

    buf_init(&names, MEMBERSHIP_NODES_MAX * (MEMBERSHIP_NAME_MAX + 2));
    if (cluster_nodes_alive(u, conn, &names, ret_error)) {
        r = cluster_tables_ask(conn, u, connected_sql, ret_error);
    }
    if (r != NULL && buf_len(&names) > 0) {
        (void)buf_addf(ret_error, "spool %s: nodes are running: %s; stop their daemons first",
                       u->text, buf_cstr(&names));
        err = -EBUSY;
    } else if (r != NULL && strcmp(first(r), "0") != 0) {
        (void)buf_addf(ret_error,
                       "spool %s: %s connections of nodes or commands are open; stop all daemons "
                       "first, and wait up to a minute for connections of machines that are gone",
                       u->text, first(r));
        err = -EBUSY;
    } else if (r != NULL) {
        err = 0;
    }
    buf_fini(&names);
    PQclear(r);
    return err;
}

int cluster_tables_restored(const char *url, struct slice password, bool flag, struct buf *out,
                            struct buf *ret_error)
{
    struct cluster_url u;
    PGresult *r = NULL;
    int err, format;
    PGconn *conn = begin(&u, url, CLUSTER_URL_OPERATOR, password, true, &err, ret_error);

    (void)flag;
    if (conn != NULL) {
        err = check_stopped(conn, &u, ret_error);
        err = err != 0 ? err : run(conn, &u, "BEGIN", ret_error);
        err = err != 0 ? err : run(conn, &u, restored_sql, ret_error);
        err = err != 0 ? err : look_at_format(conn, &u, &format, ret_error);
        if (err == 0 && format >= 2) { /* skip numbers given since the backup */
            err = run(conn, &u, "UPDATE cluster SET interventions = interventions + 1000000",
                      ret_error);
        }
        err = err != 0 ? err : run(conn, &u, "COMMIT", ret_error);
    }
    if (err == 0) {
        r = cluster_tables_ask(conn, &u, "SELECT count(DISTINCT message) FROM part WHERE state = 3",
                               ret_error);
        err = r != NULL ? 0 : -EIO;
    }
    if (err == 0) {
        (void)buf_addf(out, "%s: %s messages are on hold; `sluice release' lets them go\n", u.text,
                       first(r)); /* errors are sticky */
    }
    PQclear(r);
    PQfinish(conn);
    cluster_url_fini(&u);
    return err;
}
