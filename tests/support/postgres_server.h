/*
 * A PostgreSQL server of a test's own: in a temporary directory, on a Unix socket there, under an
 * unprivileged user when the test runs as root. Its processes end with it.
 */
#ifndef TESTS_POSTGRES_SERVER_H
#define TESTS_POSTGRES_SERVER_H

#include <stdbool.h>
#include <sys/types.h>

struct postgres_server {
    char dir[64]; /* the host to connect to */
    pid_t pid;
};

/* Is PostgreSQL installed here? */
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

#endif
