#include "sqlite_schema.h"

#include <stdbool.h>
#include <stdio.h>

#include "row_sum.h"

/* Expression for the text of an id, as spool_id_print writes it for ids of the short form. */
#define DIGIT(shift) "substr('0123456789BCDFGHJKLMNPQRSTVWXYZz', 1 + (m.id >> " #shift " & 31), 1)"
#define ID_TEXT                                                                                    \
    DIGIT(50)                                                                                      \
    " || " DIGIT(45) " || " DIGIT(40) " || " DIGIT(35) " || " DIGIT(30) " || " DIGIT(              \
        25) " || " DIGIT(20) " || " DIGIT(15) " || " DIGIT(10) " || " DIGIT(5) " || " DIGIT(0)
#define ISO(column) "strftime('%Y-%m-%dT%H:%M:%SZ', " column " / 1000000, 'unixepoch')"
#define QUEUE_VIEW(more)                                                                           \
    "CREATE VIEW queue AS SELECT"                                                                  \
    "  m.id, " ID_TEXT " AS queue_id,"                                                             \
    "  CASE m.state WHEN 1 THEN 'incoming' WHEN 2 THEN 'deferred' WHEN 3 THEN 'hold'"              \
    "    WHEN 4 THEN 'corrupt' END AS state,"                                                      \
    "  " ISO("m.arrived") " AS arrived, " ISO(                                                     \
        "m.due") " AS due,"                                                                        \
                 "  m.size, m.sender, m.rcpt_pending AS pending, m.rcpt_total AS recipients,"      \
                 "  " more "m.client, m.reason"                                                    \
                 "  FROM message m;"

const struct schema_step schema_steps[] = {
    {"create the tables",
     "PRAGMA application_id = 0x534c5549;"

     "CREATE TABLE spool ("
     "  one INTEGER PRIMARY KEY CHECK (one = 1),"
     "  last_id INTEGER NOT NULL CHECK (last_id >= 0),"
     "  unlisted_from INTEGER NOT NULL CHECK (unlisted_from >= 0),"
     "  incoming INTEGER NOT NULL, deferred INTEGER NOT NULL,"
     "  hold INTEGER NOT NULL, corrupt INTEGER NOT NULL,"
     "  bytes INTEGER NOT NULL"
     ") STRICT;"
     "INSERT INTO spool VALUES (1, 0, 1, 0, 0, 0, 0, 0);"

     "CREATE TABLE message ("
     "  id INTEGER PRIMARY KEY CHECK (id > 0),"
     "  listed INTEGER NOT NULL CHECK (listed IN (0, 1)),"
     "  state INTEGER NOT NULL CHECK (state BETWEEN 1 AND 4),"
     "  due INTEGER NOT NULL,"
     "  arrived INTEGER NOT NULL,"
     "  created INTEGER NOT NULL,"
     "  size INTEGER NOT NULL CHECK (size >= 0),"
     "  in_file INTEGER NOT NULL CHECK (in_file IN (0, 1)),"
     "  flags INTEGER NOT NULL CHECK (flags >= 0),"
     "  rcpt_total INTEGER NOT NULL CHECK (rcpt_total > 0),"
     "  rcpt_pending INTEGER NOT NULL CHECK (rcpt_pending BETWEEN 0 AND rcpt_total),"
     "  rcpt_to_report INTEGER NOT NULL CHECK (rcpt_to_report BETWEEN 0 AND rcpt_total),"
     "  warned INTEGER NOT NULL CHECK (warned IN (0, 1)),"
     "  force_expire INTEGER NOT NULL CHECK (force_expire IN (0, 1)),"
     "  sender TEXT NOT NULL COLLATE NOCASE,"
     "  sender_domain TEXT NOT NULL,"
     "  envid TEXT NOT NULL,"
     "  client TEXT NOT NULL,"
     "  reason TEXT NOT NULL"
     ") STRICT;"
     "CREATE INDEX message_due ON message (state, due) WHERE listed = 1;"
     "CREATE INDEX message_state ON message (state) WHERE listed = 1;"
     "CREATE INDEX message_sender ON message (sender) WHERE listed = 1;"
     "CREATE INDEX message_sender_domain ON message (sender_domain) WHERE listed = 1;"
     "CREATE INDEX message_arrived ON message (arrived) WHERE listed = 1;"
     "CREATE INDEX message_size ON message (size) WHERE listed = 1;"

     "CREATE TABLE recipient ("
     "  message INTEGER NOT NULL REFERENCES message (id),"
     "  n INTEGER NOT NULL CHECK (n > 0),"
     "  listed INTEGER NOT NULL CHECK (listed IN (0, 1)),"
     "  state INTEGER NOT NULL CHECK (state BETWEEN 1 AND 4),"
     "  notify INTEGER NOT NULL CHECK (notify BETWEEN 0 AND 15),"
     "  attempts INTEGER NOT NULL CHECK (attempts >= 0),"
     "  last_attempt INTEGER NOT NULL,"
     "  route_generation INTEGER NOT NULL,"
     "  address TEXT NOT NULL COLLATE NOCASE CHECK (address <> ''),"
     "  domain TEXT NOT NULL,"
     "  transport TEXT NOT NULL,"
     "  nexthop TEXT NOT NULL,"
     "  orcpt TEXT NOT NULL,"
     "  status TEXT NOT NULL,"
     "  diagnostic TEXT NOT NULL,"
     "  remote TEXT NOT NULL,"
     "  PRIMARY KEY (message, n)"
     ") STRICT, WITHOUT ROWID;"
     "CREATE INDEX recipient_address ON recipient (address, message) WHERE listed = 1;"
     "CREATE INDEX recipient_domain ON recipient (domain, message) WHERE listed = 1;"
     "CREATE INDEX recipient_nexthop ON recipient (nexthop, message, transport, state)"
     "  WHERE listed = 1;"

     "CREATE TABLE content ("
     "  message INTEGER PRIMARY KEY REFERENCES message (id),"
     "  bytes BLOB NOT NULL"
     ") STRICT;"

     QUEUE_VIEW("") "CREATE VIEW queue_recipient AS SELECT"
                    "  " ID_TEXT " AS queue_id, r.n, r.address,"
                    "  CASE r.state WHEN 1 THEN 'pending' WHEN 2 THEN 'failed' WHEN 3 THEN "
                    "'delivered'"
                    "    WHEN 4 THEN 'relayed' END AS state,"
                    "  r.transport, r.nexthop, r.attempts,"
                    "  iif(r.last_attempt = 0, NULL, " ISO(
                        "r.last_attempt") ") AS last_attempt,"
                                          "  r.status, r.remote, r.diagnostic"
                                          "  FROM recipient r JOIN message m ON m.id = r.message;"},
    {"let messages be parked and have a class, and count what waits per destination",
     "CREATE TABLE destination ("
     "  nexthop TEXT NOT NULL,"
     "  transport TEXT NOT NULL,"
     "  recipients INTEGER NOT NULL,"
     "  messages INTEGER NOT NULL,"
     "  PRIMARY KEY (nexthop, transport)"
     ") STRICT, WITHOUT ROWID;"
     "INSERT INTO destination SELECT nexthop, transport, count(*), count(DISTINCT message)"
     "  FROM recipient INDEXED BY recipient_nexthop WHERE listed = 1 AND state = 1"
     "  GROUP BY nexthop, transport;"

     "ALTER TABLE message ADD COLUMN parked TEXT;"
     "CREATE INDEX message_parked ON message (parked) WHERE parked IS NOT NULL;"
     "ALTER TABLE message ADD COLUMN class TEXT NOT NULL DEFAULT '';"
     "CREATE INDEX message_class ON message (class) WHERE listed = 1 AND class <> '';"
     "DROP VIEW queue;" QUEUE_VIEW("m.class, ")},
    /* Existing rows get no checksums. A step that computed them would read all content, and would
     * accept existing damage. */
    {"keep checksums, and count commits",
     "ALTER TABLE message ADD COLUMN content_sum INTEGER;"
     "ALTER TABLE message ADD COLUMN sum INTEGER;"
     "ALTER TABLE recipient ADD COLUMN sum INTEGER;"
     "ALTER TABLE spool ADD COLUMN commits INTEGER NOT NULL DEFAULT 0;"
     "CREATE TABLE removed (message INTEGER PRIMARY KEY) STRICT;"},
    {"keep where a message has its class from",
     "ALTER TABLE message ADD COLUMN class_source INTEGER NOT NULL DEFAULT 0"
     "  CHECK (class_source >= 0);"},
    /* Content with a file of its own stays there; the longest content still goes to such files. */
    {"put content into segments", "ALTER TABLE message ADD COLUMN segment INTEGER;"
                                  "ALTER TABLE message ADD COLUMN at INTEGER;"
                                  "CREATE INDEX message_segment ON message (segment, at, size)"
                                  "  WHERE listed = 1 AND segment IS NOT NULL;"
                                  "ALTER TABLE spool ADD COLUMN tag INTEGER NOT NULL DEFAULT 0;"
                                  "UPDATE spool SET tag = random();"},
    /* Existing results have no reply: their bounces only have the diagnostic. */
    {"keep the replies of remote sites",
     "ALTER TABLE recipient ADD COLUMN reply TEXT NOT NULL DEFAULT '';"},
    {"keep what connections have shown",
     "ALTER TABLE recipient ADD COLUMN tls TEXT NOT NULL DEFAULT '';"},
    {"keep the keys of calls",
     "CREATE TABLE call_key ("
     "  key BLOB PRIMARY KEY, sum BLOB NOT NULL, message INTEGER NOT NULL, until INTEGER NOT NULL"
     ") STRICT, WITHOUT ROWID;"
     "CREATE INDEX call_key_until ON call_key (until);"
     "CREATE TABLE call_keys ("
     "  one INTEGER PRIMARY KEY CHECK (one = 1), keys INTEGER NOT NULL CHECK (keys >= 0)"
     ") STRICT;"
     "INSERT INTO call_keys VALUES (1, 0);"},
    {"keep notes",
     "CREATE TABLE note (name TEXT PRIMARY KEY, text TEXT NOT NULL) STRICT, WITHOUT ROWID;"},
    {"keep a journal of events",
     "CREATE TABLE event ("
     "  first INTEGER PRIMARY KEY, last INTEGER NOT NULL CHECK (last >= first),"
     "  at INTEGER NOT NULL, lines BLOB NOT NULL"
     ") STRICT;"},
    {"keep mail in passage out of the tables",
     "ALTER TABLE spool ADD COLUMN passage_from INTEGER NOT NULL DEFAULT 0;"},
    /* A note that is not text gets no sum, and is therefore read as damaged. */
    {"keep checksums of notes", "ALTER TABLE note ADD COLUMN sum INTEGER;"
                                "UPDATE note SET sum = note_sum(name, text)"
                                "  WHERE typeof(name) = 'text' AND typeof(text) = 'text';"},
};

const size_t schema_version = sizeof schema_steps / sizeof schema_steps[0];

static int number(sqlite3 *db, const char *sql, sqlite3_int64 *ret_n)
{
    sqlite3_stmt *st;
    int rc = sqlite3_prepare_v2(db, sql, -1, &st, NULL);

    if (rc != SQLITE_OK) {
        return rc;
    }
    rc = sqlite3_step(st);
    if (rc == SQLITE_ROW) {
        *ret_n = sqlite3_column_int64(st, 0);
        rc = SQLITE_OK;
    }
    sqlite3_finalize(st);
    return rc;
}

/* Finds the version of the file, which must be empty or a spool no newer than `version`. */
static int find_version(sqlite3 *db, size_t version, size_t *ret_found, const char **ret_why)
{
    sqlite3_int64 application = 0, found = 0, objects = 0;
    int rc = number(db, "PRAGMA application_id", &application);

    *ret_why = "read the schema version";
    if (rc == SQLITE_OK) {
        rc = number(db, "PRAGMA user_version", &found);
    }
    if (rc == SQLITE_OK) {
        rc = number(db, "SELECT count(*) FROM sqlite_schema", &objects);
    }
    if (rc != SQLITE_OK) {
        return rc;
    }
    bool empty = application == 0 && found == 0 && objects == 0;
    if (!empty && (application != SCHEMA_APPLICATION_ID || found < 0)) {
        *ret_why = "this database belongs to another program";
        return SQLITE_MISMATCH;
    }
    if (found > (sqlite3_int64)version) {
        *ret_why = "this spool was written by a newer version of this program";
        return SQLITE_MISMATCH;
    }
    *ret_found = (size_t)found;
    return SQLITE_OK;
}

static int take_step(sqlite3 *db, const struct schema_step *step, size_t to)
{
    char set_version[64];
    int rc = sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL);

    if (rc != SQLITE_OK) {
        return rc;
    }
    rc = sqlite3_exec(db, step->sql, NULL, NULL, NULL);
    if (rc == SQLITE_OK) {
        snprintf(set_version, sizeof set_version, "PRAGMA user_version = %zu", to);
        rc = sqlite3_exec(db, set_version, NULL, NULL, NULL);
    }
    if (rc == SQLITE_OK) {
        rc = sqlite3_exec(db, "COMMIT", NULL, NULL, NULL);
    }
    if (rc != SQLITE_OK && !sqlite3_get_autocommit(db)) {
        (void)sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL); /* or closing would */
    }
    return rc;
}

static struct slice value_text(sqlite3_value *value)
{
    return slice_of((const char *)sqlite3_value_text(value), (size_t)sqlite3_value_bytes(value));
}

/* Implements the SQL function note_sum(name, text) for a step. */
static void note_sum(sqlite3_context *context, int count, sqlite3_value **values)
{
    (void)count;
    sqlite3_result_int64(context,
                         (sqlite3_int64)row_sum_note(value_text(values[0]), value_text(values[1])));
}

int schema_upgrade(sqlite3 *db, const struct schema_step *steps, size_t version,
                   const char **ret_why)
{
    size_t at;
    int rc = find_version(db, version, &at, ret_why);

    if (rc == SQLITE_OK) {
        rc = sqlite3_create_function(db, "note_sum", 2, SQLITE_UTF8, NULL, note_sum, NULL, NULL);
    }
    for (; rc == SQLITE_OK && at < version; at++) {
        *ret_why = steps[at].what;
        rc = take_step(db, &steps[at], at + 1);
    }
    return rc;
}

int schema_check(sqlite3 *db, size_t version, const char **ret_why)
{
    size_t found;
    int rc = find_version(db, version, &found, ret_why);

    if (rc == SQLITE_OK && found != version) {
        *ret_why = found == 0 ? "there is no spool in this file yet"
                              : "this spool is of an older version; opening it for writing "
                                "upgrades it";
        rc = SQLITE_MISMATCH;
    }
    return rc;
}
