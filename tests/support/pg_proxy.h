/*
 * A proxy between a client and a PostgreSQL server, in a process of its own, which knows where
 * the messages of the protocol end, and does harm at one of them. In clear, on Unix sockets.
 *
 * It does what lines tell it, and answers each with a line that begins with a number:
 *
 *     arm SIDE N HARM KIND   at the Nth message from now on from that side (`front`: of the client;
 *                            `back`: of the server; `statements`, `answers`: the same, but only
 *                            those that begin a statement or end it, or a batch) on connections of
 *                            that kind, once:
 *         cut                before it is passed on, both ends are closed
 *         half               the client's end is closed, the server's later
 *         swallow            nothing is passed on any more, either way; later both are closed
 *         delay              it is passed on later
 *         STATE              five characters: the server finds an error with that SQLSTATE in the
 *                            place of the statement that the client binds next
 *     fired                  how many harms were done
 *     random SEED ONE_IN     any of the first four at each message with that chance; 0: no more
 *     flips SEED ONE_IN      one bit of each message is turned over with that chance
 *     noise                  all clients get bytes that are no message, now
 *     late MS                how much later that is; PG_PROXY_LATE_MS if not told
 *     hole 0|1               a network that is cut: nothing is passed on and nobody is told
 *     drop                   all connections are closed
 *
 * Kinds of connections, by what is first said on them: W commits batches, L is the membership's, R
 * reads; `*` any; `+` those that begin from now on.
 */
#ifndef TESTS_PG_PROXY_H
#define TESTS_PG_PROXY_H

#include <sys/types.h>

#define PG_PROXY_LATE_MS 300

struct pg_proxy {
    char dir[64]; /* the host to connect to */
    pid_t pid;
    int control;
};

/* To the server whose socket is in that directory. Fails the test when that fails. */
void pg_proxy_init(struct pg_proxy *p, const char *server_dir);
void pg_proxy_fini(struct pg_proxy *p);

/* A line as above; the number of its answer. */
long pg_proxy_tell(const struct pg_proxy *p, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The process itself: listens in `dir`, reads lines from `in` until its end. */
int pg_proxy_run(const char *dir, const char *server_dir, int in, int out);

#endif
