/*
 * Where the database is, as users of libpq write it:
 *
 *     postgresql://[USER@][HOST[:PORT][,..]]/DATABASE[?NAME=VALUE[&..]]
 *
 * HOST is a name, an address ([..] around one of IPv6) or, with %2F for each slash, the directory
 * of a Unix socket; none: /var/run/postgresql. NAME is one of host, port, user, dbname, schema
 * (default sluice), sslmode, sslrootcert, sslcert, sslkey, target_session_attrs (only read-write).
 * %XX stands for any byte.
 *
 * Of several hosts the one that takes writes is used. A connection that leaves the machine has TLS,
 * and the server shows by its certificate that it is the host that was named (sslmode=verify-full);
 * authorities are the system's unless sslrootcert names others.
 *
 * A password has no place in a URL, which all sees in logs and in `sluice config show`: one that is
 * there is refused, without repeating it. It comes from spool_password_file.
 */
#ifndef CLUSTER_CLUSTER_URL_H
#define CLUSTER_CLUSTER_URL_H

#include <stdbool.h>

#include "buf.h"
#include "link.h"
#include "slice.h"

#define CLUSTER_URL_FORM "postgresql://[USER@]HOST[:PORT]/DATABASE[?schema=NAME]"
/* Each is tried for at most LINK_CONNECT_US. */
#define CLUSTER_URL_HOSTS_MAX 8
#define CLUSTER_URL_MAX       2000
#define CLUSTER_URL_ANSWER_S  10  /* for the first statement of a connection that waits */
#define CLUSTER_URL_SILENT_S  30  /* for others, unless the server is seen to work on them */
#define CLUSTER_URL_WORK_S    600 /* .. for at most so long: they may look at all mail */

/* What a connection is for. */
enum cluster_url_use {
    CLUSTER_URL_QUEUE,    /* small statements, plans that never read a table whole */
    CLUSTER_URL_READING,  /* lists and counts: changes nothing, nothing takes longer than 10 s */
    CLUSTER_URL_LOOKING,  /* operators' commands that may take long and change nothing */
    CLUSTER_URL_OPERATOR, /* .. that change something */
};

/* What is known of a statement that was not answered. */
enum cluster_url_doubt {
    CLUSTER_URL_NO_CHANGE, /* it only reads */
    CLUSTER_URL_NOT_DONE,  /* its transaction is undone */
    CLUSTER_URL_IN_DOUBT,
};

struct cluster_url {
    char *text; /* owned: the whole url, as given; without a secret */
    char *room; /* owned: where the others point */
    struct link_target target;
    const char *hosts[CLUSTER_URL_HOSTS_MAX]; /* as given: names, addresses, directories */
    const char *ports[CLUSTER_URL_HOSTS_MAX]; /* NULL: the usual one */
    unsigned host_count;
    const char *schema;
    char *password; /* owned; wiped by cluster_url_fini */
    char *lists[3]; /* owned: host, hostaddr and port, as libpq wants them */
    char options[400];
    /* Of a connection that waits: so long for a statement's answer; then the server is asked by a
     * second connection what it does, if `may_work`. */
    int silent_s;
    bool may_work;
    /* Why the answer to the last statement was not waited for; NULL: it was. */
    const char *silence;
    int silence_s;                /* .. and for how long it was */
    enum cluster_url_doubt doubt; /* of the last statement of cluster_url_exec */
};

/* `where` may begin with "postgresql:". False: *ret_error says what is wrong. cluster_url_fini
 * is to be called all the same. */
bool cluster_url_parse(struct cluster_url *u, const char *where, enum cluster_url_use use,
                       struct buf *ret_error);
void cluster_url_fini(struct cluster_url *u);

/* The first line of the password's file; an empty slice: there is none. */
void cluster_url_set_password(struct cluster_url *u, struct slice file);

/* Look up the names of hosts, which may wait, and make the target complete. False: none has an
 * address; *ret_error has a reason. Called again, it replaces the addresses. */
bool cluster_url_resolve(struct cluster_url *u, struct buf *ret_error);

/* Connect to all hosts, and wait for them; the one that takes writes and has the highest timeline
 * is taken, and *ret_error names those that are passed over, as old primaries. NULL: *ret_error has
 * what failed, where, and what to do. */
PGconn *cluster_url_connect(const struct cluster_url *u, struct buf *ret_error);

/* Wait for the answer to what was sent, if it was (`is_sent` is what PQsend.. has returned). NULL,
 * or a failed result: cluster_url_say_error has words. When there is none in u->silent_s the
 * connection is cut, unless u->may_work and its session is seen to work. */
PGresult *cluster_url_wait(struct cluster_url *u, PGconn *conn, int is_sent);
/* As PQexecParams, with values and answer in text. */
PGresult *cluster_url_exec(struct cluster_url *u, PGconn *conn, const char *sql, int count,
                           const char *const *values);
/* What has failed last. */
void cluster_url_say_error(const struct cluster_url *u, const PGconn *conn, struct buf *ret_error);

#endif
