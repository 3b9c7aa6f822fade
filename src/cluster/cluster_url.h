/*
 * URL of a database, in the form that libpq uses:
 *
 *     postgresql://[USER@][HOST[:PORT][,..]]/DATABASE[?NAME=VALUE[&..]]
 *
 * HOST is a name, an address (an IPv6 address in brackets), or the directory of a Unix socket, with
 * %2F for each slash. The default is /var/run/postgresql. NAME is one of host, port, user, dbname,
 * schema (default sluice), sslmode, sslrootcert, sslcert, sslkey, target_session_attrs (only
 * read-write). %XX is any byte.
 *
 * With several hosts the one that accepts writes is used. A connection to another machine has TLS,
 * and the server's certificate must match the host's name (sslmode=verify-full). The authorities
 * are those of the system, or those in sslrootcert.
 *
 * A URL with a password is refused without printing the password, as URLs are visible in logs and
 * in `sluice config show`. The password comes from spool_password_file.
 */
#ifndef CLUSTER_CLUSTER_URL_H
#define CLUSTER_CLUSTER_URL_H

#include <stdbool.h>

#include "buf.h"
#include "link.h"
#include "slice.h"

#define CLUSTER_URL_FORM "postgresql://[USER@]HOST[:PORT]/DATABASE[?schema=NAME]"
/* Number of hosts; a connection to each may take LINK_CONNECT_US. */
#define CLUSTER_URL_HOSTS_MAX    8
#define CLUSTER_URL_MAX          2000
#define CLUSTER_URL_SETTINGS_MAX 16

/* Time limits of a connection that waits, in seconds. ANSWER is for the first answer. SILENT is for
 * later answers, unless the server works on the statement; WORK is the limit for that. */
#define CLUSTER_URL_ANSWER_S 10
#define CLUSTER_URL_SILENT_S 30
#define CLUSTER_URL_WORK_S   600

/* Purpose of a connection. */
enum cluster_url_use {
    CLUSTER_URL_QUEUE,    /* small statements, with plans that never read a whole table */
    CLUSTER_URL_READING,  /* lists and counts: read only, with a limit of 10 s for each statement */
    CLUSTER_URL_LOOKING,  /* operators' commands that may take long and are read only */
    CLUSTER_URL_OPERATOR, /* operators' commands that change the database */
};

/* State of a statement that got no answer. */
enum cluster_url_doubt {
    CLUSTER_URL_NO_CHANGE, /* it only reads */
    CLUSTER_URL_NOT_DONE,  /* its transaction was undone */
    CLUSTER_URL_IN_DOUBT,
};

struct cluster_url {
    char *text; /* owned; whole URL as given, which contains no secret */
    char *room; /* owned; memory of the other texts */
    struct link_target target;
    const char *hosts[CLUSTER_URL_HOSTS_MAX]; /* names, addresses and directories as given */
    const char *ports[CLUSTER_URL_HOSTS_MAX]; /* NULL for the default port */
    unsigned host_count;
    const char *schema;
    char *password; /* owned; cluster_url_fini overwrites it */
    char *lists[3]; /* owned; host, hostaddr and port as lists for libpq */
    /* Statement that sets search_path and so on, and the list of all of them for the target. The
     * startup message has no settings, as pools of connections refuse or ignore them. */
    char session_sql[400];
    const char *settings[CLUSTER_URL_SETTINGS_MAX + 1];
    /* Time limit for answers on a connection that waits, in seconds. If `may_work` is set, a second
     * connection then checks whether the server still works on the statement. */
    int silent_s;
    bool may_work;
    /* Reason why the last statement got no answer, or NULL. */
    const char *silence;
    int silence_s;                /* time until then, in seconds */
    enum cluster_url_doubt doubt; /* state of the last statement of cluster_url_exec */
};

/* Parses `where`, which may begin with "postgresql:". Returns false with the fault in *ret_error.
 * cluster_url_fini must be called in both cases. */
bool cluster_url_parse(struct cluster_url *u, const char *where, enum cluster_url_use use,
                       struct buf *ret_error);
void cluster_url_fini(struct cluster_url *u);

/* Sets the password to the first line of the file's text; none if that is empty. */
void cluster_url_set_password(struct cluster_url *u, struct slice file);

/* Looks up the names of hosts, which may take time, and completes the target. Returns false with a
 * reason in *ret_error if no host has an address. A later call replaces the addresses. */
bool cluster_url_resolve(struct cluster_url *u, struct buf *ret_error);

/* Connects to all hosts and waits for them. Returns the connection to the host that accepts writes
 * and has the highest timeline; hosts with a lower one are old primaries and are listed in
 * *ret_error. A host reached by a pool of connections that shares sessions is refused. Returns NULL
 * with causes and remedies in *ret_error if there is no such host. */
PGconn *cluster_url_connect(const struct cluster_url *u, struct buf *ret_error);

/* Waits for the answer to a statement; `is_sent` is the result of PQsend... Returns NULL or a
 * failed result after an error; cluster_url_say_error has its text. The connection is closed if no
 * answer arrives within u->silent_s, unless u->may_work is set and the server works on the
 * statement. */
PGresult *cluster_url_wait(struct cluster_url *u, PGconn *conn, int is_sent);
/* Executes a statement like PQexecParams, with values and result as text. */
PGresult *cluster_url_exec(struct cluster_url *u, PGconn *conn, const char *sql, int count,
                           const char *const *values);
/* Prints the last error. */
void cluster_url_say_error(const struct cluster_url *u, const PGconn *conn, struct buf *ret_error);

#endif
