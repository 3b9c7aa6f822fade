#include "schema.h"

#define FRESH(k)                                                                                   \
    "CREATE TABLE fresh_" k " (p smallint, id bigint, due bigint NOT NULL, arrived bigint NOT "    \
    "NULL, created bigint NOT NULL, size bigint NOT NULL, route_generation bigint NOT NULL, "      \
    "flags int NOT NULL, notify smallint NOT NULL, class_source smallint NOT NULL, "               \
    "sender bytea NOT NULL, envid bytea NOT NULL, client bytea NOT NULL, "                         \
    "address bytea NOT NULL, orcpt bytea NOT NULL, reason bytea NOT NULL, class text NOT NULL, "   \
    "transport text NOT NULL, nexthop text NOT NULL, bytes bytea NOT NULL, PRIMARY KEY (p, id)) "  \
    "WITH (toast_tuple_target = 8160, autovacuum_enabled = off, vacuum_truncate = off);"           \
    "ALTER TABLE fresh_" k " ALTER bytes SET STORAGE EXTERNAL;"

const char schema_sql[] =
    "CREATE TABLE cluster (one boolean PRIMARY KEY DEFAULT true CHECK (one), format int NOT NULL, "
    "min_format int NOT NULL, partitions smallint NOT NULL, timeline int NOT NULL DEFAULT 0, "
    "system_id text NOT NULL DEFAULT '', fresh_now smallint NOT NULL DEFAULT 0, "
    "fresh_since bigint NOT NULL DEFAULT 0);"
    "CREATE TABLE fence (no smallint PRIMARY KEY, incarnation bigint NOT NULL) "
    "WITH (fillfactor = 10);"
    "CREATE TABLE batch (node smallint, n bigint, PRIMARY KEY (node, n)) "
    "WITH (vacuum_truncate = off);"
    "CREATE TABLE node (no smallint PRIMARY KEY, name text UNIQUE NOT NULL, "
    "incarnation bigint NOT NULL, beat bigint NOT NULL, state smallint NOT NULL, "
    "id_reserved bigint NOT NULL, program text NOT NULL) WITH (fillfactor = 10);" FRESH("0")
        FRESH("1") FRESH(
            "2") "CREATE TABLE message (id bigint PRIMARY KEY, flags int NOT NULL, rcpt_total int "
                 "NOT NULL, "
                 "size bigint NOT NULL, arrived bigint NOT NULL, class_source smallint NOT NULL, "
                 "envid bytea NOT NULL, client bytea NOT NULL, chunks int NOT NULL, bytes bytea) "
                 "WITH (toast_tuple_target = 8160, autovacuum_vacuum_scale_factor = 0.02, "
                 "autovacuum_vacuum_threshold = 5000, vacuum_truncate = off);"
                 "ALTER TABLE message ALTER bytes SET STORAGE EXTERNAL;"
                 "CREATE TABLE part (p smallint, id bigint, message bigint NOT NULL, kind smallint "
                 "NOT NULL, "
                 "state smallint NOT NULL, due bigint NOT NULL, arrived bigint NOT NULL, "
                 "created bigint NOT NULL, size bigint NOT NULL, pending int NOT NULL, to_report "
                 "int NOT NULL, "
                 "rcpts int NOT NULL, warnings int NOT NULL, force_expire boolean NOT NULL, "
                 "sender bytea NOT NULL, sender_domain text NOT NULL, class text NOT NULL, parked "
                 "text, "
                 "reason bytea NOT NULL, PRIMARY KEY (p, id)) "
                 "WITH (fillfactor = 85, autovacuum_vacuum_scale_factor = 0.02, "
                 "autovacuum_vacuum_threshold = 5000, vacuum_truncate = off);"
                 "CREATE INDEX part_due ON part (p, due, id) WHERE state <= 2;"
                 "CREATE INDEX part_parked ON part (p, parked, id) WHERE parked IS NOT NULL;"
                 "CREATE INDEX part_state ON part (state, id);"
                 "CREATE INDEX part_arrived ON part (arrived);"
                 "CREATE INDEX part_size ON part (size);"
                 "CREATE INDEX part_sender ON part (lower(encode(sender, 'escape') COLLATE \"C\"));"
                 "CREATE INDEX part_class ON part (class) WHERE class <> '';"
                 "CREATE TABLE recipient (p smallint, id bigint, n int, state smallint NOT NULL, "
                 "notify smallint NOT NULL, attempts int NOT NULL, last_attempt bigint NOT NULL, "
                 "route_generation bigint NOT NULL, address bytea NOT NULL, domain text NOT NULL, "
                 "transport text NOT NULL, nexthop text NOT NULL, orcpt bytea NOT NULL, status "
                 "bytea NOT NULL, "
                 "diagnostic bytea NOT NULL, reply bytea NOT NULL, remote bytea NOT NULL, tls "
                 "bytea NOT NULL, "
                 "PRIMARY KEY (p, id, n)) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = "
                 "0.02, "
                 "autovacuum_vacuum_threshold = 5000, vacuum_truncate = off);"
                 "CREATE INDEX recipient_address ON recipient "
                 "(lower(encode(address, 'escape') COLLATE \"C\"), id);"
                 "CREATE INDEX recipient_domain ON recipient (domain, id);"
                 "CREATE INDEX recipient_nexthop ON recipient (nexthop, transport, id);"
                 "CREATE TABLE content (id bigint, n int, bytes bytea NOT NULL, PRIMARY KEY (id, "
                 "n));"
                 "ALTER TABLE content ALTER bytes SET STORAGE EXTERNAL;"
                 "CREATE TABLE note (name text PRIMARY KEY, text bytea NOT NULL);"
                 "INSERT INTO cluster (format, min_format, partitions) VALUES (1, 1, 256);";
