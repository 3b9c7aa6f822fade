/*
 * Link: a connection to PostgreSQL that never waits; libpq in pipeline mode, driven by readiness.
 *
 *   DOWN --link_connect--> CONNECTING --connected--> PREPARING --answered--> UP --lost--> DOWN
 *                              +-----refused, or too long----+--------dropped---------^
 *
 * Statements are queued in libpq's memory and sent when the socket accepts them. Each statement and
 * each sync has one answer, in their order. Statements after one that failed are not executed until
 * the next sync; their answer is PGRES_PIPELINE_ABORTED. If the connection is lost, open requests
 * get no answer; the owner gets one call of `changed`.
 *
 * The owner watches one epoll descriptor for all its links, and calls link_turn when it is
 * readable. The link's timer is in this descriptor, too. If there are several hosts, the next
 * attempt tries a host last in three cases. It was silent for LINK_CONNECT_US. It closed the
 * connection at once (libpq then tries no further host). Its timeline is lower than the owner's, so
 * it is an old primary, whose standby was promoted; it may still accept writes, and these are lost.
 * The link resolves no names: a host is an address or the directory of a Unix socket.
 *
 * A server or a connection pool may accept requests and never answer, which no timeout of TCP ends.
 * So a link that has waited LINK_SILENCE_US for any answer is dropped, and the host is tried last.
 * A statement may take long without a fault: a count of much mail, or a commit while no standby
 * answers. So the time doubles, up to LINK_SILENCE_MAX_US, each time it ends before anything was
 * answered. As with any lost connection, what was sent may have happened, or may happen later. A
 * batch is searched for before it is sent again, after waiting for the lock of its session
 * (committer.h), so no second one waits for the same standby.
 *
 * A pool of connections in transaction mode gives each transaction another session. Settings,
 * prepared statements, locks and LISTEN of a link are then lost or meet those of others. A link
 * whose prepared statements are missing, or exist already, is dropped for that reason.
 */
#ifndef CLUSTER_LINK_H
#define CLUSTER_LINK_H

#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <libpq-fe.h>

#include "slice.h"

#define LINK_PARAMS_MAX   80
#define LINK_PREPARED_MAX 64
#define LINK_CONNECT_US   (5 * INT64_C(1000000))
#define LINK_ERROR_MAX    512
#define LINK_SHARED_SESSION                                                                        \
    "a pool of connections in front of the server gives transactions of one connection different " \
    "sessions: set pool_mode = session in the pool, or name the server itself in spool"
#define LINK_SOCKET_SIZE (1 << 20) /* bytes that a Unix socket should accept at once */
/* Longer than lock timeouts and than clients wait for a commit. */
#define LINK_SILENCE_US     (60 * INT64_C(1000000))
#define LINK_SILENCE_MAX_US (3600 * INT64_C(1000000))

/* Target of a connection, with libpq's parameters. Borrowed while the link exists; NULL or empty
 * for libpq's default. */
struct link_target {
    /* Lists with commas, of equal length: the host for the certificate, or the directory of a
     * socket; the address, empty for a directory; the port. Each host is tried until one fits
     * `session`. */
    const char *host;
    const char *hostaddr;
    const char *port;
    const char *database;
    const char *user;
    const char *password;
    const char *options; /* "-c name=value ..."; pools of connections refuse or ignore them */
    /* Statements to execute first. Any may fail: without a setting that another engine or a pool
     * refuses, only speed suffers. Ends with NULL; NULL for none. */
    const char *const *settings;
    int64_t silence_us;  /* replaces LINK_SILENCE_US unless 0 */
    const char *session; /* target_session_attrs; NULL for read-write */
    /* Lowest timeline that a server of PostgreSQL may have, as far as the owner knows now. It may
     * rise; links to servers with a lower one are dropped then. 0 if unknown; NULL if any is
     * allowed. */
    const int64_t *timeline;
    const char *sslmode;
    const char *sslrootcert, *sslcert, *sslkey; /* paths */
};

/* Makes libpq's parameters of a target. Returns their number; the arrays end with NULL. */
#define LINK_WORDS_MAX 24
unsigned link_words(const struct link_target *t, const char *ret_names[], const char *ret_values[]);

/* Returns the number of hosts in the target. */
unsigned link_hosts(const struct link_target *t);
/* Returns the target with its first `by` hosts moved to the end. The caller must free the lists. */
#define LINK_LISTS 3
struct link_target link_rotate(const struct link_target *t, unsigned by,
                               char *ret_lists[LINK_LISTS]);

struct link_param {
    const char *bytes; /* NULL for the value NULL */
    size_t len;
    bool is_binary; /* otherwise `bytes` ends with NUL */
};

/* Makes a parameter of a number as text, stored in `room`. link_text_param makes one of a text,
 * which is borrowed. */
#define LINK_NUMBER_SIZE 24
static inline struct link_param link_number_param(char room[LINK_NUMBER_SIZE], int64_t n)
{
    int len = snprintf(room, LINK_NUMBER_SIZE, "%" PRId64, n); /* fits */

    return (struct link_param){.bytes = room, .len = (size_t)len};
}

static inline struct link_param link_text_param(const char *text)
{
    return (struct link_param){.bytes = text, .len = strlen(text)};
}

/* Timeline of a server of PostgreSQL, a bigint: the names of its WAL files begin with the timeline
 * in hexadecimal digits. 0 for a standby; fails on other engines. */
#define LINK_SQL_TIMELINE                                                                          \
    "CASE WHEN pg_is_in_recovery() THEN 0 ELSE ('x' || lpad(substr(pg_walfile_name("               \
    "pg_current_wal_lsn()), 1, 8), 16, '0'))::bit(64)::bigint END"

/* Ends sessions of this role whose client has sent a part of a transaction and nothing for
 * `interval`. The client's machine or the network stands still, and the session's locks would stay.
 * The server's idle_in_transaction_session_timeout affects only sessions that wait after a Sync.
 * The server's clock measures; if it is set, a session may be ended needlessly. */
#define LINK_SQL_END_ABANDONED(interval)                                                           \
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() "   \
    "AND usename = current_user AND application_name = 'sluice' AND state = 'active' AND "         \
    "wait_event = 'ClientRead' AND xact_start IS NOT NULL AND clock_timestamp() - query_start "    \
    "NOT BETWEEN interval '0' AND " interval

/* Is an error with this SQLSTATE temporary: serialization, deadlock or lock timeout? */
static inline bool link_error_passes(const char *state)
{
    return strcmp(state, "40001") == 0 || strcmp(state, "40P01") == 0 ||
           strcmp(state, "55P03") == 0;
}

/* Reads a binary bigint. Returns false if it is missing, NULL or of another type. */
static inline bool link_number(const PGresult *result, int row, int column, int64_t *ret)
{
    const unsigned char *bytes;
    uint64_t n = 0;

    if (row >= PQntuples(result) || column >= PQnfields(result) ||
        PQgetlength(result, row, column) != 8) {
        return false;
    }
    bytes = (const unsigned char *)PQgetvalue(result, row, column);
    for (int i = 0; i < 8; i++) {
        n = n << 8 | bytes[i];
    }
    *ret = (int64_t)n;
    return true;
}

struct link;

struct link_owner {
    /* The link is up, or has gone down for the reason in link_error. The callback may connect the
     * link again, but must not free it. */
    void (*changed)(void *arg, struct link *l, bool is_up);
    /* Receives the next answer; PGRES_PIPELINE_SYNC for a sync. `result` is valid during the
     * call. */
    void (*answer)(void *arg, struct link *l, const PGresult *result);
    /* Receives a notice of the server: SQLSTATE and text. */
    void (*notice)(void *arg, struct link *l, const char *state, const char *words);
    /* Receives a notification (LISTEN). NULL if the owner does not listen. */
    void (*notified)(void *arg, struct link *l, const char *payload);
};

/* Creates a link in state DOWN. `epoll_fd`, target and owner are borrowed. */
struct link *link_new(int epoll_fd, const struct link_target *target,
                      const struct link_owner *owner, void *arg);
void link_free(struct link *l); /* NULL is allowed; no callback is called */

/* Adds frequent statements, which are prepared after each connect, before the link is up. They must
 * be static. link_send recognizes them by their address, so it must get the same pointers. */
void link_prepare(struct link *l, const char *const *sql, unsigned count);

/* Replaces LINK_SILENCE_US by a time of its own. */
void link_set_silence(struct link *l, int64_t us);

/* Begins to connect; the state must be DOWN. `changed` is called with the result, never during this
 * call. */
void link_connect(struct link *l);
/* Closes the connection as if it were lost. */
void link_drop(struct link *l, const char *why);
/* Closes the connection, and tries its server last the next time. */
void link_pass_over(struct link *l, const char *why);
/* Is there another host? */
bool link_has_others(const struct link *l);

bool link_is_up(const struct link *l);
bool link_is_down(const struct link *l);
const char *link_error(const struct link *l);
/* Did the last attempt fail because the server refuses a statement of link_prepare? */
bool link_is_refused(const struct link *l);

/* Queues a statement, copying the parameters; the link must be up. If there is no memory, the link
 * is dropped: `changed` is called in the next link_turn. */
void link_send(struct link *l, const char *sql, const struct link_param *params, int count);
void link_sync(struct link *l);

/* Sends what is queued, as far as the socket accepts it. Calls no callback. */
void link_flush(struct link *l);

/* Does all work that needs no waiting. Must be called for each link when the epoll descriptor is
 * readable, and after sending. */
void link_turn(struct link *l);

#endif
