/*
 * A PostgreSQL server of a test's own: in a temporary directory, on a Unix socket there, under an
 * unprivileged user when the test runs as root. Its processes end with it.
 */
#ifndef TESTS_POSTGRES_SERVER_H
#define TESTS_POSTGRES_SERVER_H

#include "unit.h"

#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>

struct postgres_server {
    char dir[64]; /* the host to connect to */
    pid_t pid;
};

/* Is PostgreSQL unpacked (scripts/tools) or installed here, and open to an ordinary user? */
bool postgres_server_is_there(void);

/* Make a cluster of databases and start it. Fails the test when that fails. */
void postgres_server_init(struct postgres_server *s);
void postgres_server_fini(struct postgres_server *s);

/* Start again what was ended. */
void postgres_server_start(struct postgres_server *s);
/* SIGKILL of the postmaster; returns when it and its children have ended. */
void postgres_server_kill(struct postgres_server *s);
/* SIGSTOP or SIGCONT to all its processes. */
void postgres_server_pause(struct postgres_server *s, bool pause);

/* Run SQL as its superuser, apart; the first value of the last row, in a static buffer. */
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
