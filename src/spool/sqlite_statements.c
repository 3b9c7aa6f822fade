/*
 * The SQL statements of the sqlite engine. docs/spool.md explains the tables.
 *
 * Laid out as SQL, not by clang-format.
 */
#include "sqlite_engine.h"

/* clang-format off */
/* The numbers in ST_MESSAGE_QUARANTINE are the limits of spool.h and envelope.h. */
_Static_assert(SPOOL_RCPTS_MAX == 10000000 && SPOOL_CONTENT_MAX == 1099511627776, "quarantined");
_Static_assert(2 * ENVELOPE_TRACE - 1 == 63 && SPOOL_SENDER_MAX == 320, "quarantined");
_Static_assert(CLASS_NAME_MAX == 128 && CLASS_SOURCE_MAX == 9, "quarantined");
_Static_assert(DSN_ENVID_MAX == 100 && SPOOL_REMOTE_MAX == 512, "quarantined");

/* Replaces an invalid time by 0. */
#define TIME(column)                                                                               \
    "iif(typeof(" column ") = 'integer' AND " column                                               \
    " BETWEEN -(1 << 58) AND 1 << 58, " column ", 0)"

/* Replaces a text that is invalid, longer than `max` bytes, or contains a NUL, at which length()
 * ends, by an empty one. */
#define HARMLESS(column, max)                                                                      \
    "iif(typeof(" column ") = 'text' AND length(CAST(" column " AS BLOB)) <= " max                 \
    " AND instr(CAST(" column " AS BLOB), x'00') = 0, " column ", '')"

const char *const sqlite_statement_sql[ST_COUNT] = {
    [ST_BEGIN] = "BEGIN IMMEDIATE",
    [ST_COMMIT] = "COMMIT",
    [ST_ROLLBACK] = "ROLLBACK",
    [ST_SPOOL_READ] =
        "SELECT last_id, unlisted_from, incoming, deferred, hold, corrupt, bytes, commits,"
        " passage_from FROM spool WHERE one = 1",
    [ST_SPOOL_TAG] = "SELECT tag FROM spool WHERE one = 1",
    [ST_SPOOL_WRITE] =
        "UPDATE spool"
        " SET last_id = ?1, unlisted_from = ?2, incoming = ?3, deferred = ?4, hold = ?5,"
        " corrupt = ?6, bytes = ?7, commits = ?8, passage_from = ?9"
        " WHERE one = 1",
    /* After rows were made of mail in passage. */
    [ST_SPOOL_START] =
        "UPDATE spool"
        " SET last_id = max(last_id, ?1), unlisted_from = min(unlisted_from, ?2),"
        " incoming = incoming + ?3, bytes = bytes + ?4, commits = max(commits, ?5),"
        " passage_from = max(passage_from, ?6)"
        " WHERE one = 1",
    [ST_MESSAGE_INSERT] =
        "INSERT INTO message (id, listed, state, due, arrived, created, size, in_file, flags,"
        " rcpt_total, rcpt_pending, rcpt_to_report, warned, force_expire, sender, sender_domain,"
        " envid, client, reason, parked, class, content_sum, sum, class_source, segment, at)"
        " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?10, 0, 0, 0, ?11, ?12, ?13, ?14, ?15,"
        " ?16, ?17, ?18, ?19, ?20, ?21, ?22)",
    [ST_MESSAGE_READ] =
        "SELECT state, due, arrived, created, size, flags, rcpt_total, rcpt_pending,"
        " rcpt_to_report, warned, force_expire, sender, envid, client, reason, ifnull(parked, ''),"
        " class, class_source, listed, content_sum, sum"
        " FROM message WHERE id = ?1",
    [ST_MESSAGE_EXISTS] = "SELECT 1 FROM message WHERE id = ?1",
    [ST_MESSAGE_UNREADABLE] =
        "INSERT INTO message (id, listed, state, due, arrived, created, size, in_file, flags,"
        " rcpt_total, rcpt_pending, rcpt_to_report, warned, force_expire, sender, sender_domain,"
        " envid, client, reason)"
        " VALUES (?1, 1, 4, 0, 0, 0, ?2, 1, 0, 1, 0, 0, 0, 0, '', '', '', '', ?3)",
    [ST_MESSAGE_COUNTERS] =
        "SELECT state, rcpt_total, rcpt_pending, rcpt_to_report FROM message WHERE id = ?1",
    [ST_RCPT_COUNT] =
        "SELECT count(*) FILTER (WHERE state = 1 AND n BETWEEN 1 AND 10000000),"
        " count(*) FILTER (WHERE n BETWEEN 1 AND 10000000) FROM recipient NOT INDEXED"
        " WHERE message = ?1",
    [ST_MESSAGE_SET_SUM] = "UPDATE message SET sum = ?2 WHERE id = ?1",
    [ST_RCPT_SET_SUM] = "UPDATE recipient SET sum = ?3 WHERE message = ?1 AND n = ?2",
    [ST_MESSAGE_BRIEF] =
        "SELECT state, due, size, in_file, segment, EXISTS (SELECT 1 FROM recipient r NOT INDEXED"
        " WHERE r.message = ?1), rcpt_pending + rcpt_to_report FROM message WHERE id = ?1",
    [ST_MESSAGE_CHANGE] =
        "UPDATE message"
        " SET state = ?2, due = ?3, created = ?4, warned = ?5, force_expire = ?6, reason = ?7,"
        " parked = ?8"
        " WHERE id = ?1",
    [ST_MESSAGE_SET_FLAGS] = "UPDATE message SET warned = ?2, force_expire = ?3 WHERE id = ?1",
    [ST_MESSAGE_SET_DUE] = "UPDATE message SET due = ?2, parked = NULL WHERE id = ?1",
    [ST_MESSAGE_DEFER] = "UPDATE message SET state = 2, due = ?2, parked = NULL WHERE id = ?1",
    [ST_MESSAGE_MOVE] = "UPDATE message SET segment = ?2, at = ?3 WHERE id = ?1",
    [ST_MESSAGE_COUNTS] =
        "UPDATE message"
        " SET rcpt_pending = rcpt_pending + ?2, rcpt_to_report = rcpt_to_report + ?3"
        " WHERE id = ?1",
    [ST_MESSAGE_LIST] = "UPDATE message SET listed = 1 WHERE id = ?1",
    /* For a row that may be damaged: replaces values of a wrong type or range. */
    [ST_MESSAGE_QUARANTINE] =
        "UPDATE message SET state = 4, listed = 1, reason = ?2, parked = NULL,"
        " rcpt_pending = (SELECT count(*) FROM recipient r NOT INDEXED WHERE r.message = ?1"
        " AND r.state = 1),"
        " rcpt_to_report = (SELECT count(*) FROM recipient r NOT INDEXED WHERE r.message = ?1"
        " AND r.state <> 1),"
        " rcpt_total = max((SELECT count(*) FROM recipient r NOT INDEXED WHERE r.message = ?1),"
        " (SELECT ifnull(max(r.n), 1) FROM recipient r NOT INDEXED WHERE r.message = ?1"
        " AND typeof(r.n) = 'integer' AND r.n <= 10000000),"
        " iif(typeof(rcpt_total) = 'integer' AND rcpt_total BETWEEN 1 AND 10000000,"
        " rcpt_total, 1)),"
        " due = " TIME("due") ","
        " arrived = " TIME("arrived") ","
        " created = " TIME("created") ","
        " size = iif(typeof(size) = 'integer' AND size BETWEEN 0 AND 1099511627776, size, 0),"
        " flags = iif(typeof(flags) = 'integer' AND flags BETWEEN 0 AND 63, flags, 0),"
        " in_file = iif(in_file IS 1, 1, 0),"
        " segment = iif(typeof(segment) = 'integer' AND segment BETWEEN 1 AND 2147483647,"
        " segment, NULL),"
        " at = iif(typeof(at) = 'integer', at, NULL),"
        " warned = iif(warned IS 1, 1, 0),"
        " force_expire = iif(force_expire IS 1, 1, 0),"
        " sender = " HARMLESS("sender", "320") ","
        " sender_domain = " HARMLESS("sender_domain", "320") ","
        " envid = " HARMLESS("envid", "100") ","
        " client = " HARMLESS("client", "512") ","
        " class = iif(" HARMLESS("class", "128") " NOT GLOB '*[^-_.+=@a-z0-9]*',"
        " " HARMLESS("class", "128") ", ''),"
        " content_sum = iif(typeof(content_sum) = 'integer', content_sum, NULL),"
        " class_source = iif(typeof(class_source) = 'integer' AND class_source BETWEEN 0 AND 9,"
        " class_source, 0),"
        " sum = iif(typeof(sum) = 'integer', sum, NULL)"
        " WHERE id = ?1",
    [ST_MESSAGE_DELETE] = "DELETE FROM message WHERE id = ?1",
    [ST_KEY_READ] = "SELECT sum, message, until FROM call_key WHERE key = ?1",
    [ST_KEY_ADD] = "INSERT INTO call_key (key, sum, message, until) VALUES (?1, ?2, ?3, ?4)"
                   " ON CONFLICT (key) DO UPDATE SET sum = excluded.sum,"
                   " message = excluded.message, until = excluded.until"
                   " WHERE excluded.until > call_key.until",
    [ST_KEYS_FORGET] =
        "DELETE FROM call_key WHERE until <= ?1 AND (key = ?3 OR key IN"
        " (SELECT key FROM call_key WHERE until <= ?1 ORDER BY until LIMIT ?2))",
    [ST_KEYS_COUNT] = "SELECT keys, (SELECT min(until) FROM call_key) FROM call_keys"
                      " WHERE one = 1",
    [ST_KEYS_COUNT_ADD] = "UPDATE call_keys SET keys = max(0, keys + ?1) WHERE one = 1",
    [ST_NOTE_PUT] =
        "INSERT INTO note (name, text, sum) VALUES (?1, ?2, ?3)"
        " ON CONFLICT (name) DO UPDATE SET text = ?2, sum = ?3",
    [ST_EVENTS_RANGE] =
        "SELECT (SELECT min(first) FROM event), (SELECT last FROM event ORDER BY first DESC"
        " LIMIT 1), (SELECT at FROM event ORDER BY first LIMIT 1)",
    [ST_EVENTS_BYTES] = "SELECT coalesce(sum(length(lines)), 0) FROM event",
    [ST_EVENTS_ADD] = "INSERT INTO event (first, last, at, lines) VALUES (?1, ?2, ?3, ?4)",
    /* The event's block is the last one that begins at or before its number, unless that was
     * removed. */
    [ST_EVENTS_READ] =
        "SELECT first, last, lines FROM event WHERE first >= coalesce((SELECT max(first) FROM"
        " event WHERE first <= ?1), 0) AND last >= ?1 ORDER BY first LIMIT 1",
    [ST_EVENTS_FORGET] =
        "DELETE FROM event WHERE first = (SELECT min(first) FROM event) AND first <> (SELECT"
        " max(first) FROM event) RETURNING length(lines)",
    [ST_NOTE_REMOVE] = "DELETE FROM note WHERE name = ?1",
    /* In the order of the tables, so that both are read sequentially. */
    [ST_WALK_RCPTS] =
        "SELECT r.message, r.n, r.nexthop, r.transport, 1, m.state, m.arrived"
        " FROM recipient r NOT INDEXED CROSS JOIN message m ON m.id = r.message"
        " WHERE (r.message, r.n) > (?1, ?2) AND r.state = 1 ORDER BY r.message, r.n LIMIT ?3",
    [ST_WALK_MESSAGES] =
        "SELECT id, 0, iif(?2 = 1, sender, iif(?2 = 2, sender_domain, class)), '', rcpt_pending,"
        " state, arrived FROM message NOT INDEXED WHERE id > ?1 ORDER BY id LIMIT ?3",
    /* Reads the whole table, as a search by a damaged name would not find it. */
    [ST_NOTE_REMOVE_DAMAGED] =
        "DELETE FROM note WHERE iif(typeof(name) = 'text', name, '') = ?1"
        " AND (sum IS NULL OR sum <> note_sum(name, text))",
    [ST_NOTES] = "SELECT name, text, sum FROM note",
    [ST_REMOVED_ADD] = "INSERT OR IGNORE INTO removed (message) VALUES (?1)",
    [ST_REMOVED_HAS] = "SELECT 1 FROM removed WHERE message = ?1",
    [ST_REMOVED_CLEAR] = "DELETE FROM removed",
    [ST_RCPT_INSERT] =
        "INSERT INTO recipient (message, n, listed, state, notify, attempts, last_attempt,"
        " route_generation, address, domain, transport, nexthop, orcpt, status, diagnostic,"
        " remote, sum)"
        " VALUES (?1, ?2, ?3, 1, ?4, 0, 0, ?5, ?6, ?7, ?8, ?9, ?10, '', '', '', ?11)",
    [ST_RCPT_LIST] = "UPDATE recipient SET listed = 1 WHERE message = ?1 AND listed = 0",
    [ST_RCPT_STATE] = "SELECT state FROM recipient WHERE message = ?1 AND n = ?2",
    [ST_RCPT_DEFER] =
        "UPDATE recipient"
        " SET attempts = min(attempts + ?3, 4294967295), last_attempt = iif(?3, ?4,"
        " last_attempt), status = ?5, diagnostic = ?6, remote = ?7, reply = ?8,"
        " tls = ?9"
        " WHERE message = ?1 AND n = ?2 AND state = 1",
    [ST_RCPT_SETTLE] =
        "UPDATE recipient"
        " SET attempts = min(attempts + ?3, 4294967295), last_attempt = iif(?3, ?4,"
        " last_attempt), status = ?5, diagnostic = ?6, remote = ?7, reply = ?8,"
        " tls = ?9, state = ?10"
        " WHERE message = ?1 AND n = ?2",
    [ST_RCPT_DONE] = "DELETE FROM recipient WHERE message = ?1 AND n = ?2 AND state = 1",
    [ST_RCPT_DELETE] = "DELETE FROM recipient WHERE message = ?1 AND n = ?2",
    [ST_RCPT_ROUTE] =
        "UPDATE recipient"
        " SET transport = ?3, nexthop = iif(?3 = '', domain, ?4), route_generation = ?5"
        " WHERE message = ?1 AND n = ?2",
    [ST_RCPT_FORGET_TRIES] =
        "UPDATE recipient"
        " SET attempts = 0, transport = '', nexthop = domain, route_generation = 0"
        " WHERE message = ?1 AND state = 1",
    [ST_RCPT_REPORTED] = "DELETE FROM recipient WHERE message = ?1 AND state <> 1",
    [ST_RCPT_DELETE_ALL] = "DELETE FROM recipient WHERE message = ?1",
    [ST_RCPT_READ] =
        "SELECT n, address, orcpt, notify, state, transport, nexthop, route_generation,"
        " attempts, status, diagnostic, remote, reply, tls, last_attempt, sum"
        " FROM recipient NOT INDEXED WHERE message = ?1 AND n > ?2 ORDER BY n LIMIT ?3",
    [ST_RCPT_READ_PENDING] =
        "SELECT n, address, orcpt, notify, state, transport, nexthop, route_generation,"
        " attempts, status, diagnostic, remote, reply, tls, last_attempt, sum"
        " FROM recipient NOT INDEXED WHERE message = ?1 AND n > ?2 AND state = 1"
        " ORDER BY n LIMIT ?3",
    [ST_CONTENT_INSERT] = "INSERT INTO content (message, bytes) VALUES (?1, ?2)",
    [ST_CONTENT_READ] =
        "SELECT m.size, m.in_file, m.content_sum, m.segment, m.at, c.bytes FROM message m"
        " LEFT JOIN content c ON c.message = m.id WHERE m.id = ?1",
    [ST_CONTENT_DELETE] = "DELETE FROM content WHERE message = ?1",
    /* The walk of claims has two parts, because SQLite would compare (due, id) > (?, ?) with every
     * row of the same due time; after a flush all rows have the same. */
    [ST_WALK_SAME_DUE] =
        "SELECT due, id FROM message INDEXED BY message_due"
        " WHERE listed = 1 AND state = ?1 AND due = ?2 AND id > ?3 ORDER BY id",
    [ST_WALK_LATER] =
        "SELECT due, id FROM message INDEXED BY message_due"
        " WHERE listed = 1 AND state = ?1 AND due > ?2 ORDER BY due, id",
    [ST_WALK_PARKED] =
        "SELECT id FROM message INDEXED BY message_parked WHERE parked = ?1 ORDER BY id",
    [ST_PARKED_KEY] =
        "SELECT parked FROM message INDEXED BY message_parked WHERE parked > ?1"
        " ORDER BY parked LIMIT 1",
    [ST_HIGHEST_ID] = "SELECT max(0, ifnull(max(id), 0)) FROM message WHERE id < 1 << 60",
    [ST_UNLISTED] =
        "SELECT id, due, size, in_file, segment, at FROM message NOT INDEXED"
        " WHERE id >= ?1 AND listed = 0",
    /* An invalid row counts as a message, too, so that its segment is not overwritten. */
    [ST_SEGMENT_COUNTS] =
        "SELECT segment, count(*),"
        " CAST(total(iif(size BETWEEN 0 AND 1099511627776, size, 0)) AS INTEGER),"
        " max(iif(at BETWEEN 0 AND 1099511627776 AND size BETWEEN 0 AND 1099511627776,"
        " at + size, 1099511627776))"
        " FROM message INDEXED BY message_segment WHERE listed = 1 AND segment IS NOT NULL"
        " GROUP BY segment",
    [ST_SEGMENT_ROWS] =
        "SELECT id, at, size FROM message INDEXED BY message_segment"
        " WHERE listed = 1 AND segment = ?1 ORDER BY at LIMIT ?2",
    [ST_MESSAGE_PLACES] =
        "SELECT nexthop, transport, count(*) FROM recipient NOT INDEXED"
        " WHERE message = ?1 AND listed = 1 AND state = 1 GROUP BY nexthop, transport",
    /* The last column: has the message other recipients at that destination? */
    [ST_RCPT_PLACE] =
        "SELECT r.nexthop, r.transport, EXISTS (SELECT 1 FROM recipient o"
        " INDEXED BY recipient_nexthop WHERE o.listed = 1 AND o.nexthop = r.nexthop"
        " AND o.message = ?1 AND o.transport = r.transport AND o.state = 1 AND o.n <> ?2)"
        " FROM recipient r NOT INDEXED"
        " WHERE r.message = ?1 AND r.n = ?2 AND r.listed = 1 AND r.state = 1",
    [ST_DESTINATION_ADD] =
        "INSERT INTO destination (nexthop, transport, recipients, messages)"
        " VALUES (?1, ?2, ?3, ?4) ON CONFLICT (nexthop, transport)"
        " DO UPDATE SET recipients = recipients + ?3, messages = messages + ?4",
    [ST_DESTINATION_DROP] =
        "DELETE FROM destination WHERE nexthop = ?1 AND transport = ?2 AND recipients <= 0",
    [ST_DESTINATIONS] =
        "SELECT nexthop, transport, recipients, messages FROM destination"
        " WHERE recipients > 0 AND (nexthop, transport) >= (?1, ?2) ORDER BY nexthop, transport",
    [ST_UNLISTED_DESTINATIONS] =
        "SELECT nexthop, transport, count(*), count(DISTINCT message) FROM recipient NOT INDEXED"
        " WHERE message >= ?3 AND listed = 0 AND state = 1 AND (nexthop, transport) >= (?1, ?2)"
        " GROUP BY nexthop, transport ORDER BY nexthop, transport",
};
/* clang-format on */
