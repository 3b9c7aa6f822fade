/*
 * A PostgreSQL server of a test's own: in a temporary directory, on a Unix socket there, under an
 * unprivileged user when the test runs as root. Its processes end with it.
 *
 * SLUICE_TEST_POSTGRESQL, a URL as `spool` has it, names a server that is there, in which the test
 * makes the schema `sluice` anew; what needs to stop a server is skipped then. One of its own is
 * below SLUICE_TEST_SERVERS, else below /tmp.
 */
#ifndef TESTS_POSTGRES_SERVER_H
#define TESTS_POSTGRES_SERVER_H

#include "unit.h"

#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>

#include "cluster_url.h"

struct postgres_server {
    char dir[64];              /* of one's own: the host to connect to; else empty */
    pid_t pid;                 /* of one's own; or 0 */
    struct cluster_url url;    /* of its schema `sluice` */
    struct link_target target; /* the same, without a node's settings */
};

/* Is one named, or PostgreSQL unpacked (scripts/tools) or installed here, and open to an ordinary
 * user? */
bool postgres_server_is_there(void);

/* It is one of the test's own. Else it skips the test. */
void postgres_server_need_own(const struct postgres_server *s);

/* Make a cluster of databases and start it, unless one is named. Fails the test when that fails. */
void postgres_server_init(struct postgres_server *s);
void postgres_server_fini(struct postgres_server *s);
/* The tables of a queue, anew, and the engine is registered. */
void postgres_server_make_tables(const struct postgres_server *s);

/* Start again what was ended. */
void postgres_server_start(struct postgres_server *s);
/* SIGKILL of the postmaster; returns when it and its children have ended. */
void postgres_server_kill(struct postgres_server *s);
/* SIGSTOP or SIGCONT to all its processes. */
void postgres_server_pause(struct postgres_server *s, bool pause);

/* Its URL, for the engine. */
const char *postgres_server_url(const struct postgres_server *s);

/* A session of its superuser, in the schema; to be ended with PQfinish. */
PGconn *postgres_server_connect(const struct postgres_server *s);

/* Run SQL in such a session; the first value of the last row, in a static buffer. */
const char *postgres_server_ask(const struct postgres_server *s, const char *sql);

/* As UNIT_MAIN, with group fixtures; where no server is there, all of it is skipped in one line. */
#define POSTGRES_MAIN(setup, teardown, ...)                                                        \
    int main(int argc, char **argv)                                                                \
    {                                                                                              \
        const struct CMUnitTest tests[] = {__VA_ARGS__};                                           \
        if (!postgres_server_is_there()) {                                                         \
            (void)puts("1..1\nok 1 # SKIP PostgreSQL 15 is not there (scripts/tools)");            \
            return 0;                                                                              \
        }                                                                                          \
        cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);                                         \
        return cmocka_run_group_tests(tests, setup, teardown);                                     \
    }

#endif
