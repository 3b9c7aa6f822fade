/*
 * A connection to PostgreSQL that never waits: libpq in pipeline mode, driven by readiness.
 *
 *   DOWN --link_connect--> CONNECTING --connected--> PREPARING --answered--> UP --lost--> DOWN
 *                              +-----refused, or too long----+--------dropped---------^
 *
 * Statements are queued in libpq's memory and sent as the socket takes them; answers come back in
 * order, one for each statement and one for each sync. Statements behind one that failed are not
 * done before the next sync; they are answered PGRES_PIPELINE_ABORTED. When the connection is lost,
 * what was not answered gets no answer: the owner is told once (link_changed) and knows the rest.
 *
 * The owner watches one epoll descriptor for all its links (link_fd), and calls link_turn when it
 * is readable. A link's own time limit for connecting is in there, too: of several hosts, one that
 * is silent for that long is tried last the next time. So is one that takes the connection and
 * closes it, behind which libpq tries none, and one whose timeline is behind what the owner knows:
 * an old primary, which others have promoted a standby of. It may take writes still, and nothing
 * that it says or stores counts. Nothing here resolves names: a host is a directory of a Unix
 * socket or an address.
 *
 * A server, or a pool between, may take what is sent and never answer, which no timeout of TCP
 * ends. So a link that waits for an answer and has had none for LINK_SILENCE_US is dropped, and the
 * host passed over. A statement may take long without fault (a count of much mail; a commit, while
 * no standby answers): so the time doubles, up to LINK_SILENCE_MAX_US, as often as it is over
 * before anything was answered. What was sent may have happened, or happen later, as with any lost
 * connection: a batch is looked for before it is sent again, behind the lock that its session holds
 * (committer.h), so that no second one comes to wait for the same standby.
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
#define LINK_SOCKET_SIZE  (1 << 20) /* that a Unix socket is to take at once; bytes */
/* Longer than a lock is waited for, and than clients wait for a commit. */
#define LINK_SILENCE_US     (60 * INT64_C(1000000))
#define LINK_SILENCE_MAX_US (3600 * INT64_C(1000000))

/* Where to, by libpq's names. Borrowed as long as the link is there; NULL or empty: libpq's
 * default. */
struct link_target {
    /* Lists with commas, of equal length: for the certificate, or the directory of a socket; the
     * address, empty for a directory; the port. Those that take writes are tried in turn. */
    const char *host;
    const char *hostaddr;
    const char *port;
    const char *database;
    const char *user;
    const char *password;
    const char *options; /* "-c name=value ..." */
    /* Statements before all others, of which any may fail: settings that another engine, or a pool
     * between, refuses are missed by speed alone. NULL behind the last; NULL: none. */
    const char *const *settings;
    int64_t silence_us;  /* in place of LINK_SILENCE_US; 0: that */
    const char *session; /* which of the hosts: target_session_attrs; NULL: read-write */
    /* The lowest timeline that a server of PostgreSQL may have, as far as the owner knows now; it
     * may rise, and links to others are dropped then. 0: not known; NULL: any. */
    const int64_t *timeline;
    const char *sslmode;
    const char *sslrootcert, *sslcert, *sslkey; /* paths */
};

/* The same in libpq's words. Returns how many; the arrays end with NULL. */
#define LINK_WORDS_MAX 24
unsigned link_words(const struct link_target *t, const char *ret_names[], const char *ret_values[]);

/* How many hosts it names. */
unsigned link_hosts(const struct link_target *t);
/* The same with its first `by` hosts behind the others. Lists of it are the caller's to free. */
#define LINK_LISTS 3
struct link_target link_rotate(const struct link_target *t, unsigned by,
                               char *ret_lists[LINK_LISTS]);

struct link_param {
    const char *bytes; /* NULL: the value NULL */
    size_t len;
    bool is_binary; /* else `bytes` ends with NUL */
};

/* A number in text form, which is in `room` and lasts as long; and a text, which is borrowed. */
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

/* The timeline of a server of PostgreSQL, a bigint: the name of a file of its log begins with it,
 * in hexadecimal digits. A standby has none (0); for other engines it fails. */
#define LINK_SQL_TIMELINE                                                                          \
    "CASE WHEN pg_is_in_recovery() THEN 0 ELSE ('x' || lpad(substr(pg_walfile_name("               \
    "pg_current_wal_lsn()), 1, 8), 16, '0'))::bit(64)::bigint END"

/* Ends sessions of this role whose client has sent a part of a transaction, and nothing more for
 * `interval`: its machine stands still, or the network between, and the locks that they hold would
 * stay. The server's idle_in_transaction_session_timeout sees only those that wait behind a Sync.
 * It is by the server's clock; when that is set, a session may lose its connection without need. */
#define LINK_SQL_END_ABANDONED(interval)                                                           \
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() "   \
    "AND usename = current_user AND application_name = 'sluice' AND state = 'active' AND "         \
    "wait_event = 'ClientRead' AND xact_start IS NOT NULL AND clock_timestamp() - query_start "    \
    "NOT BETWEEN interval '0' AND " interval

/* Is what was refused with that SQLSTATE to be tried again? Serialization, deadlock, lock. */
static inline bool link_error_passes(const char *state)
{
    return strcmp(state, "40001") == 0 || strcmp(state, "40P01") == 0 ||
           strcmp(state, "55P03") == 0;
}

/* A bigint in binary. False: it is none, or NULL, or not there. */
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
    /* It is up, or has gone down; then link_error has the words. The link may be connected again in
     * the call, not freed. */
    void (*changed)(void *arg, struct link *l, bool is_up);
    /* The next answer; of a sync, PGRES_PIPELINE_SYNC. `result` lasts for the call. */
    void (*answer)(void *arg, struct link *l, const PGresult *result);
    /* A notice of the server: its SQLSTATE and words. */
    void (*notice)(void *arg, struct link *l, const char *state, const char *words);
    /* What it listens to (LISTEN) was told; NULL: it does not listen. */
    void (*notified)(void *arg, struct link *l, const char *payload);
};

/* `epoll_fd`, target and owner are borrowed. */
struct link *link_new(int epoll_fd, const struct link_target *target,
                      const struct link_owner *owner, void *arg);
void link_free(struct link *l); /* NULL is fine; its owner is not told */

/* Statements that are sent often, to be prepared each time before it is up; later calls add to
 * them. Link_send knows them by their address: what it is given must be one of these very pointers.
 * They last as long as the program. */
void link_prepare(struct link *l, const char *const *sql, unsigned count);

/* Be patient for at least so long, in place of LINK_SILENCE_US. */
void link_set_silence(struct link *l, int64_t us);

/* From DOWN. The end of it is told by `changed`, never in the call. */
void link_connect(struct link *l);
/* Cut it, as if it were lost. */
void link_drop(struct link *l, const char *why);
/* The same; and its server is tried last the next time. */
void link_pass_over(struct link *l, const char *why);
/* Is there another host? */
bool link_has_others(const struct link *l);

bool link_is_up(const struct link *l);
bool link_is_down(const struct link *l);
const char *link_error(const struct link *l);
/* It did not come up, the last time: the server refuses a statement of link_prepare. */
bool link_is_refused(const struct link *l);

/* Queue a statement; parameters are copied. The link is up. What can't be queued (memory) drops it:
 * `changed` is told at the next link_turn. */
void link_send(struct link *l, const char *sql, const struct link_param *params, int count);
void link_sync(struct link *l);

/* Send what is queued, as far as the socket takes it; its owner is not called. */
void link_flush(struct link *l);

/* Do what can be done without waiting. For each link when the epoll descriptor is readable, and
 * after what was sent. */
void link_turn(struct link *l);

#endif
