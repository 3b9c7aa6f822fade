#include "parts.h"

#include "partition.h"

uint16_t parts_home(struct msg_id whole)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a, 64 bits */

    for (unsigned shift = 0; shift < 64; shift += 8) {
        hash = (hash ^ (whole.n >> shift & 255)) * UINT64_C(0x100000001b3);
    }
    return (uint16_t)(hash % PARTITIONS);
}

const char parts_give_sql[] =
    "UPDATE recipient x SET p = u.home, id = u.whole, state = u.state, attempts = u.attempts, "
    "last_attempt = u.last_attempt, route_generation = u.route_generation, "
    "transport = u.transport, nexthop = u.nexthop, status = u.status, diagnostic = u.diagnostic, "
    "reply = u.reply, remote = u.remote, tls = u.tls FROM unnest($1::smallint[], $2::bigint[], "
    "$3::int[], $4::smallint[], $5::int[], $6::bigint[], $7::bigint[], $8::text[], $9::text[], "
    "$10::bytea[], $11::bytea[], $12::bytea[], $13::bytea[], $14::bytea[], $15::smallint[], "
    "$16::bigint[]) AS u (p, id, n, state, attempts, last_attempt, route_generation, transport, "
    "nexthop, status, diagnostic, reply, remote, tls, home, whole) WHERE x.p = u.p AND "
    "x.id = u.id AND x.n = u.n";
const char parts_give_types[] = "slisillttbbbbbsl";

/* FOR UPDATE locks the rows in their order, which UPDATE alone would not, and reads their latest
 * values. Limits keep numbers that were set by hand from failing a batch. */
const char parts_tell_sql[] =
    "WITH told AS MATERIALIZED (SELECT x.p, x.id, u.given, u.ended, u.due FROM (SELECT p, id, "
    "sum(given)::int AS given, sum(ended)::int AS ended, min(due) AS due FROM "
    "unnest($1::smallint[], $2::bigint[], $3::int[], $4::int[], $5::bigint[]) AS u (p, id, given, "
    "ended, due) GROUP BY p, id) u JOIN part x ON x.p = u.p AND x.id = u.id ORDER BY x.p, x.id "
    "FOR UPDATE OF x) UPDATE part x SET to_report = least(x.to_report::bigint + told.given, "
    "2147483647)::int, gen = CASE x.gen WHEN 2147483647 THEN 0 ELSE x.gen + 1 END, "
    "parts_left = greatest(x.parts_left, told.ended) - told.ended, due = CASE WHEN x.parts_left <= "
    "told.ended THEN least(x.due, x.created) ELSE least(x.due, told.due) END, state = CASE WHEN "
    "x.parts_left <= told.ended AND x.state = 3 THEN 2 ELSE x.state END FROM told WHERE "
    "x.p = told.p AND x.id = told.id";
const char parts_tell_types[] = "sliil";

const char parts_move_sql[] =
    "UPDATE part x SET state = u.state, due = u.due, created = u.created, pending = u.pending, "
    "to_report = u.to_report, warnings = u.warnings, force_expire = u.force_expire, "
    "parked = u.parked, reason = u.reason, p = u.to_p, kind = u.kind, parts_left = u.parts_left "
    "FROM unnest($1::smallint[], $2::bigint[], $3::smallint[], $4::bigint[], $5::bigint[], "
    "$6::int[], $7::int[], $8::int[], $9::boolean[], $10::text[], $11::bytea[], $12::smallint[], "
    "$13::smallint[], $14::int[]) AS u (p, id, state, due, created, pending, to_report, warnings, "
    "force_expire, parked, reason, to_p, kind, parts_left) WHERE x.p = u.p AND x.id = u.id";
const char parts_move_types[] = "slslliiiotbssi";

const char parts_divide_sql[] =
    "UPDATE message x SET home = u.home, parts = u.parts FROM unnest($1::bigint[], "
    "$2::smallint[], $3::smallint[]) AS u (id, home, parts) WHERE x.id = u.id";
const char parts_divide_types[] = "lss";

const char parts_update_sql[] =
    "UPDATE part x SET state = u.state, due = CASE WHEN x.gen = u.gen THEN u.due ELSE "
    "least(x.due, u.due) END, created = u.created, "
    "to_report = greatest(x.to_report::bigint - u.reported, 0)::int, "
    "warnings = u.warnings, force_expire = u.force_expire, reason = u.reason FROM "
    "unnest($1::smallint[], $2::bigint[], $3::smallint[], $4::bigint[], $5::bigint[], $6::int[], "
    "$7::int[], $8::boolean[], $9::bytea[], $10::int[]) AS u (p, id, state, due, created, "
    "reported, warnings, force_expire, reason, gen) WHERE x.p = u.p AND x.id = u.id";
const char parts_update_types[] = "slslliiobi";

const char parts_close_sql[] =
    "WITH closed AS (DELETE FROM part x USING unnest($1::smallint[], $2::bigint[]) AS u (p, id) "
    "WHERE x.p = u.p AND x.id = u.id AND x.parts_left = 0 RETURNING x.p, x.id, x.message), "
    "rcpts AS (DELETE FROM recipient x USING closed WHERE x.p = closed.p AND x.id = closed.id), "
    "whole AS (DELETE FROM message x USING closed WHERE x.id = closed.message) "
    "DELETE FROM content x USING closed WHERE x.id = closed.message";
const char parts_close_types[] = "sl";
