#include "member_link_private.h"

#include <inttypes.h>
#include <string.h>

#include "boot_clock.h"
#include "buf.h"
#include "member_sql.h"
#include "spool_routes.h"

/* ---- statements ---------------------------------------------------------------------------------
 * A condition that must be met is a division by zero (22012) otherwise, which fails the
 * transaction. */

/* The lock is kept until the commit; a node that takes over waits for it. */
#define SQL_FENCE                                                                                  \
    "SELECT 1 / count(*) FROM (SELECT 1 FROM fence WHERE no = $1 AND incarnation = $2 FOR SHARE) " \
    "f"
#define SQL_END_OWN_FENCE                                                                          \
    "WITH u AS (UPDATE fence SET incarnation = incarnation + 1 WHERE no = $1 AND incarnation = "   \
    "$2 RETURNING 1) SELECT 1 / count(*) FROM u"

/* No node gives ids from this number on; they were set by hand. */
#define ID_END "4611686018427387904"
/* Highest id_reserved that is accepted. It leaves room for additions, and no incarnation gets so
 * far. */
#define RESERVED_MAX (INT64_MAX / 4 * 3)

#define OR_OF(table)                                                                               \
    " UNION ALL SELECT x.id FROM generate_series(0, 255) AS g (p), LATERAL (SELECT max(id) AS id " \
    "FROM " table " WHERE p = g.p::smallint AND id < " ID_END ") x"
/* Highest id that has a row. Ids of a node without a row, or whose row lacks this number, continue
 * above it, so that no id is given twice. */
#define SQL_HIGHEST_ID                                                                             \
    "(SELECT coalesce(max(id), 0) FROM (SELECT max(id) AS id FROM message WHERE id < " ID_END      \
    " UNION ALL SELECT max(id) FROM content WHERE id < " ID_END OR_OF("fresh_0") OR_OF("fresh_1")  \
        OR_OF("fresh_2") OR_OF("part") OR_OF("recipient") ") h)"

/* A take-over raises both numbers in one transaction. A fence that was changed by hand ends the
 * incarnation, too, as nothing could be committed in it. */
#define SQL_RENEW                                                                                  \
    "UPDATE node SET beat = beat + 1, state = CASE WHEN state = 0 AND $3::bool THEN 1 ELSE state " \
    "END, id_reserved = greatest(CASE WHEN id_reserved < " ID_END " THEN id_reserved END, "        \
    "$4::bigint), status = $5::jsonb, route = coalesce((SELECT generation FROM route WHERE "       \
    "fingerprint = $6::bigint), 0) WHERE no = $1 AND incarnation = $2 AND EXISTS (SELECT FROM "    \
    "fence WHERE no = $1 AND incarnation = $2) RETURNING beat, id_reserved"
#define SQL_RAISE_TIMELINE "UPDATE cluster SET timeline = $1 WHERE timeline < $1"

/* Locks the row before routing tables get a number, so that the next statement sees the changes of
 * other nodes. */
#define SQL_LOCK_ROUTES "SELECT active_route FROM cluster FOR UPDATE"
/* Gives the next number to unknown tables; with $2 also to known ones with an older number. */
#define SQL_GIVE_ROUTE                                                                             \
    "WITH known AS (SELECT generation FROM route WHERE fingerprint = $1::bigint), next AS "        \
    "(UPDATE "                                                                                     \
    "cluster SET active_route = 1 + greatest(active_route, (SELECT max(generation) FROM route)) "  \
    "WHERE NOT EXISTS (SELECT FROM known) OR ($2::bool AND (SELECT generation FROM known) < "      \
    "active_route) RETURNING active_route) INSERT INTO route (generation, fingerprint, seen) "     \
    "SELECT active_route, $1::bigint, (extract(epoch FROM now()) * 1000000)::bigint FROM next ON " \
    "CONFLICT (fingerprint) DO UPDATE SET generation = excluded.generation"

/* Takes a free number. If it was used before, new ids are above the previous node's id_reserved. */
#define SQL_NEW_ROW                                                                                \
    "INSERT INTO node (no, name, incarnation, beat, state, id_reserved, program, format_min, "     \
    "format_max) SELECT g, $1, 0, 0, CASE WHEN $2::bool THEN 1 ELSE 0 END, " SQL_HIGHEST_ID        \
    ", $3, $4::int, $5::int FROM generate_series(0, 63) g WHERE NOT EXISTS (SELECT 1 FROM node "   \
    "WHERE no = g AND state <> 5) ORDER BY g LIMIT 1 ON CONFLICT (no) DO UPDATE SET name = "       \
    "excluded.name, id_reserved = greatest(CASE WHEN node.id_reserved < " ID_END " THEN "          \
    "node.id_reserved END, excluded.id_reserved), beat = "                                         \
    "node.beat + 1, state = excluded.state, program = excluded.program, "                          \
    "format_min = excluded.format_min, format_max = excluded.format_max WHERE node.state = 5"
/* If the fence was deleted by hand, too, the numbers of batches contain the last incarnation
 * (committer.c). */
#define SQL_NEW_FENCE                                                                              \
    "INSERT INTO fence SELECT no, 1 + coalesce((SELECT max(n) >> 36 FROM batch WHERE node = no), " \
    "0) FROM node WHERE name = $1 ON CONFLICT (no) DO UPDATE SET incarnation = "                   \
    "fence.incarnation + 1"
#define SQL_NEW_INCARNATION                                                                        \
    "WITH u AS (UPDATE node SET incarnation = f.incarnation FROM fence f WHERE f.no = node.no "    \
    "AND node.name = $1 RETURNING node.no, f.incarnation, node.beat, node.id_reserved) "           \
    "SELECT max(no)::bigint, max(incarnation), max(beat), max(id_reserved), 1 / count(*) FROM u"
#define SQL_NEW_LIFE                                                                               \
    "WITH u AS (UPDATE node SET incarnation = f.incarnation, beat = beat + 1, state = CASE WHEN "  \
    "state IN (2, 4) THEN 2 WHEN $5::bool THEN 1 ELSE 0 END, program = $6, format_min = "          \
    "$7::int, format_max = $8::int, id_reserved = CASE WHEN id_reserved BETWEEN 1 AND " ID_END     \
    " THEN id_reserved ELSE " SQL_HIGHEST_ID " END FROM fence f WHERE node.no = $1 AND f.no = "    \
    "$1 AND node.incarnation = $2 AND beat = $3 AND name = $4 RETURNING node.no, f.incarnation, "  \
    "beat, id_reserved) SELECT max(no)::bigint, max(incarnation), max(beat), max(id_reserved), "   \
    "1 / count(*) FROM u"

#define SQL_END_LIFE                                                                               \
    "WITH u AS (UPDATE node SET incarnation = incarnation + 1 WHERE no = $1 AND incarnation = $2 " \
    "AND beat = $3 RETURNING 1) SELECT 1 / count(*) FROM u"
#define SQL_NO_LIFE "SELECT 1 / (1 - count(*)) FROM node WHERE no = $1 AND state <> 5"
#define SQL_STOPPED                                                                                \
    "UPDATE node SET incarnation = incarnation + 1, state = CASE state WHEN 2 THEN 4 ELSE 3 END "  \
    "WHERE no = $1"

#define SQL_CLAIM                                                                                  \
    "WITH l AS (SELECT p FROM lease WHERE p = ANY ($2::smallint[]) AND node IS NULL ORDER BY p "   \
    "FOR UPDATE) UPDATE lease SET node = $1, epoch = epoch + 1, wanted = NULL FROM l WHERE "       \
    "lease.p = l.p RETURNING lease.p::bigint, epoch"
#define SQL_WISH                                                                                   \
    "WITH l AS (SELECT p FROM lease WHERE p = ANY ($2::smallint[]) AND node <> $1 AND wanted IS "  \
    "NULL ORDER BY p FOR UPDATE) UPDATE lease SET wanted = $1 FROM l WHERE lease.p = l.p"
#define SQL_RELEASE                                                                                \
    "WITH l AS (SELECT lease.p, w FROM unnest($2::smallint[], $3::smallint[], $4::bigint[]) "      \
    "r(p, w, e), lease WHERE lease.p = r.p AND node = $1 AND epoch = e ORDER BY lease.p FOR "      \
    "UPDATE OF lease) UPDATE lease SET node = (SELECT no FROM node WHERE no = w AND state = 1), "  \
    "epoch = epoch + 1, wanted = NULL FROM l WHERE lease.p = l.p"

/* Nodes in their order, so that always the first fault is reported. The values in status may be
 * anything. */
#define SQL_NODES                                                                                  \
    "SELECT no::bigint, incarnation, beat, state::bigint, name, CASE WHEN "                        \
    "jsonb_typeof(status->'behind') = 'number' THEN least(greatest((status->>'behind')::numeric, " \
    "0), 1e15)::bigint ELSE 0 END, CASE WHEN jsonb_typeof(status->'interventions') = 'number' "    \
    "THEN least(greatest((status->>'interventions')::numeric, 0), 9e18)::bigint ELSE -1 "          \
    "END, " MEMBER_SQL_LOST ", CASE WHEN jsonb_typeof(status->'clock') = 'number' THEN "           \
    "least(greatest((status->>'clock')::numeric, -9e18), 9e18)::bigint END FROM node ORDER BY no"
#define SQL_LEASES                                                                                 \
    "SELECT p::bigint, epoch, coalesce(node, -1)::bigint, coalesce(wanted, -1)::bigint FROM "      \
    "lease ORDER BY p"
#define SQL_CLUSTER                                                                                \
    "SELECT format::bigint, min_format::bigint, partitions::bigint, timeline::bigint, system_id, " \
    "fresh_now::bigint, active_route, " /* columns that format 1 lacks are read by name: */        \
    "coalesce((to_jsonb(cluster) ->> 'interventions')::bigint, 0), coalesce((SELECT generation "   \
    "FROM route WHERE fingerprint = $1::bigint), 0), (extract(epoch FROM clock_timestamp()) * "    \
    "1000000)::bigint, " MEMBER_SQL_ACCEPTED ", EXISTS (SELECT FROM batch WHERE node = "           \
    "$2::smallint AND n >= $3::bigint), "
#define SQL_CLUSTER_POSTGRESQL                                                                     \
    SQL_CLUSTER                                                                                    \
    "pg_is_in_recovery(), current_setting('fsync') = 'on', current_setting('full_page_writes') "   \
    "= 'on', current_setting('synchronous_commit'), "                                              \
    "current_setting('synchronous_standby_names')," LINK_SQL_TIMELINE                              \
    ", (SELECT system_identifier::text FROM pg_control_system()), pg_backend_pid()::bigint FROM "  \
    "cluster"
#define SQL_CLUSTER_OTHER                                                                          \
    SQL_CLUSTER "false, true, true, '', '', 0::bigint, '', 0::bigint FROM cluster"

/* ---- requests -------------------------------------------------------------------------------- */

/* Parameters as text, at most 8. */
struct params {
    char room[8][LINK_NUMBER_SIZE];
    struct link_param list[8];
    int count;
};

static void add_number(struct params *ps, int64_t n)
{
    CHECK(ps->count < 8);
    ps->list[ps->count] = link_number_param(ps->room[ps->count], n);
    ps->count++;
}

static void add_text(struct params *ps, const char *text)
{
    CHECK(ps->count < 8);
    ps->list[ps->count++] = link_text_param(text);
}

static void add_bool(struct params *ps, bool is_true)
{
    add_text(ps, is_true ? "true" : "false");
}

static void state(struct member_link *ml, enum purpose purpose, const char *sql,
                  const struct params *ps)
{
    CHECK(ml->statement_count < STATEMENTS_MAX);
    ml->purposes[ml->statement_count++] = purpose;
    link_send(ml->link, sql, ps != NULL ? ps->list : NULL, ps != NULL ? ps->count : 0);
}

static void state_numbers(struct member_link *ml, enum purpose purpose, const char *sql, int64_t a,
                          int64_t b)
{
    struct params ps = {.count = 0};

    add_number(&ps, a);
    add_number(&ps, b);
    state(ml, purpose, sql, &ps);
}

static void state_number(struct member_link *ml, enum purpose purpose, const char *sql, int64_t a)
{
    struct params ps = {.count = 0};

    add_number(&ps, a);
    state(ml, purpose, sql, &ps);
}

static void state_fence(struct member_link *ml)
{
    state_numbers(ml, FENCE, SQL_FENCE, membership_number(ml->membership),
                  membership_incarnation(ml->membership));
}

static void state_view(struct member_link *ml)
{
    struct params ps = {.count = 0};

    add_number(&ps, ml->tables);
    add_number(&ps, ml->marker.no);
    add_number(&ps, ml->marker.number);
    state(ml, CLUSTER, ml->by_consensus ? SQL_CLUSTER_OTHER : SQL_CLUSTER_POSTGRESQL, &ps);
    state(ml, NODES, SQL_NODES, NULL);
    state(ml, LEASES, SQL_LEASES, NULL);
}

/* Gives a number to the own tables. */
static void state_tables(struct member_link *ml)
{
    struct params ps = {.count = 0};

    add_number(&ps, ml->tables);
    add_bool(&ps, ml->tables_are == TABLES_IN_FORCE);
    state(ml, OTHER, SQL_LOCK_ROUTES, NULL);
    state(ml, OTHER, SQL_GIVE_ROUTE, &ps);
    ml->sent_are = ml->tables_are;
}

/* `[renews]`: sends a renewal. */
static void state_renewal(struct member_link *ml)
{
    struct params ps = {.count = 0};

    add_number(&ps, membership_number(ml->membership));
    add_number(&ps, membership_incarnation(ml->membership));
    add_bool(&ps, ml->action.ready);
    add_number(&ps, (int64_t)ml->reserve);
    add_text(&ps, buf_len(&ml->status) > 0 ? buf_cstr(&ml->status) : "{}");
    add_number(&ps, ml->tables);
    state(ml, RENEWAL, SQL_RENEW, &ps);
    ml->begun++;
    if (ml->action.raise_timeline > 0) {
        state_number(ml, OTHER, SQL_RAISE_TIMELINE, ml->action.raise_timeline);
    }
    if (ml->tables_are != TABLES_KNOWN) {
        state_tables(ml);
    }
    state_view(ml);
}

/* `[comes up]`: sends a registration. */
static void state_registration(struct member_link *ml)
{
    const struct membership_action *a = &ml->action;
    struct params name = {.count = 0}, ps = {.count = 0};

    add_text(&name, ml->config.name);
    if (a->no == MEMBERSHIP_NOBODY) {
        add_text(&ps, ml->config.name);
    } else {
        state_number(ml, OTHER, MEMBER_SQL_RAISE_FENCE, a->no);
        add_number(&ps, a->no);
        add_number(&ps, a->incarnation);
        add_number(&ps, a->beat);
        add_text(&ps, ml->config.name);
    }
    add_bool(&ps, a->ready);
    add_text(&ps, "sluice " SLUICE_VERSION);
    add_number(&ps, ml->config.format_min);
    add_number(&ps, ml->config.format_max);
    if (a->no == MEMBERSHIP_NOBODY) {
        state(ml, OTHER, SQL_NEW_ROW, &ps);
        state(ml, OTHER, SQL_NEW_FENCE, &name);
        state(ml, LIFE, SQL_NEW_INCARNATION, &name);
    } else {
        state(ml, LIFE, SQL_NEW_LIFE, &ps);
        state_number(ml, OTHER, MEMBER_SQL_FREE_LEASES, a->no);
    }
}

/* `[takes over]`: sends a take-over. */
static void state_take_over(struct member_link *ml)
{
    const struct membership_action *a = &ml->action;
    struct params ps = {.count = 0};

    if (a->no > membership_number(ml->membership)) {
        state_fence(ml);
    }
    state_number(ml, OTHER, MEMBER_SQL_RAISE_FENCE, a->no);
    if (a->no < membership_number(ml->membership)) {
        state_fence(ml);
    }
    if (a->beat == MEMBERSHIP_NOBODY) {
        state_number(ml, CONDITION, SQL_NO_LIFE, a->no);
    } else {
        add_number(&ps, a->no);
        add_number(&ps, a->incarnation);
        add_number(&ps, a->beat);
        state(ml, CONDITION, SQL_END_LIFE, &ps);
    }
    state_number(ml, OTHER, MEMBER_SQL_FREE_LEASES, a->no);
}

/* Adds the owner's statements for partitions that are let go. */
static void state_letting_go(struct member_link *ml, const struct partition_set *partitions)
{
    struct committer_batch *b =
        ml->owner->letting_go != NULL ? ml->owner->letting_go(ml->arg, partitions) : NULL;

    if (b != NULL) {
        for (unsigned n = committer_batch_send(b, ml->link); n > 0; n--) {
            CHECK(ml->statement_count < STATEMENTS_MAX);
            ml->purposes[ml->statement_count++] = OTHER;
        }
        committer_batch_free(b);
    }
}

/* `[claims]`, `[gives away]`: sends changes of leases, or wishes. */
static void state_leases(struct member_link *ml)
{
    const struct membership_action *a = &ml->action;
    struct params ps = {.count = 0};
    struct buf p, to, epoch;
    struct buf *lists[] = {&p, &to, &epoch};

    for (int i = 0; i < 3; i++) {
        buf_init(lists[i], PARTITIONS * 24);
        (void)buf_add_byte(lists[i], '{'); /* the buffers are large enough */
    }
    for (int i = 0; i < PARTITIONS; i++) {
        const char *comma = buf_len(&p) > 1 ? "," : "";

        if (partition_set_has(&a->partitions, i)) {
            (void)buf_addf(&p, "%s%d", comma, i);
            (void)buf_addf(&to, "%s%d", comma, a->to[i]);
            (void)buf_addf(&epoch, "%s%" PRId64, comma, a->epochs[i]);
        }
    }
    for (int i = 0; i < 3; i++) {
        (void)buf_add_byte(lists[i], '}');
    }
    state_fence(ml);
    add_number(&ps, membership_number(ml->membership));
    add_text(&ps, buf_cstr(&p));
    if (a->type == MEMBERSHIP_RELEASE) {
        add_text(&ps, buf_cstr(&to));
        add_text(&ps, buf_cstr(&epoch));
    }
    if (a->type == MEMBERSHIP_RELEASE) {
        state_letting_go(ml, &a->partitions);
    }
    state(ml, a->type == MEMBERSHIP_CLAIM ? CLAIM : OTHER,
          a->type == MEMBERSHIP_CLAIM  ? SQL_CLAIM
          : a->type == MEMBERSHIP_WISH ? SQL_WISH
                                       : SQL_RELEASE,
          &ps);
    for (int i = 0; i < 3; i++) {
        buf_fini(lists[i]);
    }
}

/* `[gives away]` all: sends the end of the incarnation. */
static void state_leaving(struct member_link *ml)
{
    int no = membership_number(ml->membership);
    struct partition_set all = {{0}};

    for (int p = 0; p < PARTITIONS; p++) {
        if (membership_is_mine(ml->membership, p) || membership_is_draining(ml->membership, p)) {
            partition_set_add(&all, p);
        }
    }
    state_numbers(ml, FENCE, SQL_END_OWN_FENCE, no, membership_incarnation(ml->membership));
    state_letting_go(ml, &all);
    state_number(ml, OTHER, SQL_STOPPED, no);
    state_number(ml, OTHER, MEMBER_SQL_FREE_LEASES, no);
}

void member_link_send_request(struct member_link *ml)
{
    ml->statement_count = ml->answered = 0;
    ml->committed = ml->failed = ml->warned = false;
    ml->answer = (struct membership_answer){.outcome = MEMBERSHIP_DONE};
    ml->view = (struct membership_view){.by_consensus = ml->by_consensus};
    ml->read = ml->renewal;
    ml->sent_tables = ml->tables;
    ml->sent_are = TABLES_KNOWN;
    ml->sent_marker = ml->marker;
    ml->asked_at = boot_now();
    ml->server_us = 0;
    state(ml, OTHER, "BEGIN", NULL);
    switch (ml->action.type) {
    case MEMBERSHIP_NONE:
        break;
    case MEMBERSHIP_LOOK:
        state_view(ml);
        break;
    case MEMBERSHIP_REGISTER:
        state_registration(ml);
        break;
    case MEMBERSHIP_RENEW:
        state_renewal(ml);
        break;
    case MEMBERSHIP_TAKE_OVER:
        state_take_over(ml);
        break;
    case MEMBERSHIP_CLAIM:
    case MEMBERSHIP_WISH:
    case MEMBERSHIP_RELEASE:
        state_leases(ml);
        break;
    case MEMBERSHIP_LEAVE:
        state_leaving(ml);
        break;
    }
    state(ml, OTHER, "COMMIT", NULL);
    member_link_end_with(ml, SENT_REQUEST);
}

/* ---- answers --------------------------------------------------------------------------------- */

static bool numbers_at(const PGresult *r, int row, int64_t *const ret[], int count)
{
    for (int i = 0; i < count; i++) {
        if (!link_number(r, row, i, ret[i])) {
            return false;
        }
    }
    return true;
}

bool member_link_text_at(const PGresult *r, int row, int column, char *room, size_t size,
                         struct slice *ret)
{
    size_t len;

    if (row >= PQntuples(r) || column >= PQnfields(r)) {
        return false;
    }
    len = (size_t)PQgetlength(r, row, column);
    if (len >= size) {
        return false;
    }
    memcpy(room, PQgetvalue(r, row, column), len);
    *ret = slice_of(room, len);
    return true;
}

static bool bool_at(const PGresult *r, int row, int column, bool *ret)
{
    if (row >= PQntuples(r) || column >= PQnfields(r) || PQgetlength(r, row, column) != 1) {
        return false;
    }
    *ret = PQgetvalue(r, row, column)[0] != 0;
    return true;
}

/* Reads the number of routing tables; an invalid number becomes 0. */
static bool route_at(const PGresult *r, int column, int64_t *ret)
{
    if (!link_number(r, 0, column, ret)) {
        return false;
    }
    if (*ret < 0 || (uint64_t)*ret > SPOOL_ROUTE_NUMBERS_MAX) {
        *ret = 0;
    }
    return true;
}

/* Reads the accepted losses, and whether the marker was found. */
static bool marker_at(struct member_link *ml, const PGresult *r, int accepted, int found)
{
    const struct member_marker *marker = &ml->sent_marker;
    bool is_there;

    if (!link_number(r, 0, accepted, &ml->read.accepted) || !bool_at(r, 0, found, &is_there)) {
        return false;
    }
    ml->view.accepted = ml->read.accepted;
    ml->view.lacks_marker = !ml->is_confirmed && marker->number != 0 && !is_there &&
                            ml->read.accepted <= marker->accepted;
    return true;
}

static bool read_cluster(struct member_link *ml, const PGresult *r)
{
    struct membership_view *v = &ml->view;
    int64_t *const numbers[] = {&v->format, &v->min_format, &v->partitions, &v->cluster_timeline};

    return numbers_at(r, 0, numbers, 4) &&
           member_link_text_at(r, 0, 4, ml->texts[0], sizeof ml->texts[0], &v->cluster_system_id) &&
           link_number(r, 0, 5, &ml->read.fresh_now) && route_at(r, 6, &ml->read.active_route) &&
           link_number(r, 0, 7, &ml->read.interventions) && route_at(r, 8, &ml->read.route) &&
           link_number(r, 0, 9, &ml->server_us) && marker_at(ml, r, 10, 11) &&
           bool_at(r, 0, 12, &v->in_recovery) && bool_at(r, 0, 13, &v->fsync) &&
           bool_at(r, 0, 14, &v->full_page_writes) &&
           member_link_text_at(r, 0, 15, ml->texts[1], sizeof ml->texts[1],
                               &v->synchronous_commit) &&
           member_link_text_at(r, 0, 16, ml->texts[2], sizeof ml->texts[2], &v->standby_names) &&
           link_number(r, 0, 17, &v->timeline) &&
           member_link_text_at(r, 0, 18, ml->texts[3], sizeof ml->texts[3], &v->system_id) &&
           link_number(r, 0, 19, &ml->session_read);
}

static bool read_nodes(struct member_link *ml, const PGresult *r)
{
    if (PQntuples(r) > MEMBERSHIP_NODES_MAX) {
        return false;
    }
    for (int no = 0; no < MEMBERSHIP_NODES_MAX; no++) {
        ml->words_read[no] = (struct member_words){.interventions = MEMBER_LINK_UNSAID,
                                                   .clock_us = MEMBER_LINK_NO_CLOCK};
    }
    for (int i = 0; i < PQntuples(r); i++) {
        struct membership_node *n = &ml->nodes[i];
        int64_t *const numbers[] = {&n->no, &n->incarnation, &n->beat, &n->state};
        int64_t behind, interventions, clock_us;

        if (!numbers_at(r, i, numbers, 4) ||
            !member_link_text_at(r, i, 4, ml->names[i], sizeof ml->names[i], &n->name) ||
            !link_number(r, i, 5, &behind) || !link_number(r, i, 6, &interventions) ||
            !link_number(r, i, 7, &n->lost)) {
            return false;
        }
        if (!link_number(r, i, 8, &clock_us)) {
            clock_us = MEMBER_LINK_NO_CLOCK; /* it has stored none */
        }
        if (n->no >= 0 && n->no < MEMBERSHIP_NODES_MAX) {
            ml->words_read[n->no] =
                (struct member_words){.behind = behind > 0 ? (uint64_t)behind : 0,
                                      .interventions = interventions,
                                      .clock_us = clock_us};
        }
    }
    ml->view.nodes = ml->nodes;
    ml->view.node_count = (size_t)PQntuples(r);
    return true;
}

static bool read_leases(struct member_link *ml, const PGresult *r)
{
    if (PQntuples(r) > PARTITIONS) {
        return false;
    }
    for (int i = 0; i < PQntuples(r); i++) {
        struct membership_lease *l = &ml->leases[i];
        int64_t *const numbers[] = {&l->p, &l->epoch, &l->node, &l->wanted};

        if (!numbers_at(r, i, numbers, 4)) {
            return false;
        }
    }
    ml->view.leases = ml->leases;
    ml->view.lease_count = (size_t)PQntuples(r);
    return true;
}

static bool read_claims(struct member_link *ml, const PGresult *r)
{
    for (int i = 0; i < PQntuples(r); i++) {
        int64_t p, epoch;
        int64_t *const numbers[] = {&p, &epoch};

        if (!numbers_at(r, i, numbers, 2) || p < 0 || p >= PARTITIONS) {
            return false;
        }
        partition_set_add(&ml->answer.partitions, (int)p);
        ml->answer.epochs[p] = epoch;
    }
    return true;
}

static bool read_reserved(struct member_link *ml, const PGresult *r, int column)
{
    int64_t id;

    if (!link_number(r, 0, column, &id) || id < 0 || id > RESERVED_MAX) {
        return false;
    }
    ml->read.id_reserved = (uint64_t)id;
    return true;
}

/* Reads the answer of a renewal. Without a row another incarnation is in force; then the statements
 * that follow change nothing of this node. */
static bool read_renewal(struct member_link *ml, const PGresult *r)
{
    if (PQntuples(r) == 0) {
        ml->answer.outcome = MEMBERSHIP_STALE;
        return true;
    }
    return link_number(r, 0, 0, &ml->answer.beat) && read_reserved(ml, r, 1);
}

static bool read_life(struct member_link *ml, const PGresult *r)
{
    struct membership_answer *a = &ml->answer;
    int64_t *const numbers[] = {&a->no, &a->incarnation, &a->beat};

    return numbers_at(r, 0, numbers, 3) && read_reserved(ml, r, 3);
}

bool member_link_read_answer(struct member_link *ml, enum purpose purpose, const PGresult *r)
{
    switch (purpose) {
    case OTHER:
        ml->committed = strcmp(PQcmdStatus((PGresult *)(uintptr_t)r), "COMMIT") == 0;
        return true;
    case FENCE:
    case CONDITION:
        return true;
    case RENEWAL:
        return read_renewal(ml, r);
    case LIFE:
        return read_life(ml, r);
    case CLAIM:
        return read_claims(ml, r);
    case CLUSTER:
        return read_cluster(ml, r);
    case NODES:
        return read_nodes(ml, r);
    case LEASES:
        return read_leases(ml, r);
    }
    UNREACHABLE("a purpose");
}

bool member_link_read_failure(struct member_link *ml, enum purpose purpose, const PGresult *r)
{
    const char *state = PQresultErrorField(r, PG_DIAG_SQLSTATE);
    const char *words = PQresultErrorField(r, PG_DIAG_MESSAGE_PRIMARY);
    bool is_condition = state != NULL && strcmp(state, "22012") == 0;

    ml->failed = true;
    if (state != NULL && link_error_passes(state)) {
        ml->answer.outcome = MEMBERSHIP_AGAIN;
        member_link_keep_error(ml, words != NULL ? words : state);
    } else if (is_condition && purpose == FENCE) {
        ml->answer.outcome = MEMBERSHIP_STALE;
    } else if ((is_condition && (purpose == CONDITION || purpose == LIFE)) ||
               (state != NULL && strcmp(state, "23505") == 0)) { /* name or number is taken */
        ml->answer.outcome = MEMBERSHIP_NOT_MET;
    } else {
        return false;
    }
    return true;
}
