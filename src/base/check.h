/*
 * Assertions that stay in every build.
 *
 * CHECK is for conditions that only a bug in this program can make false. Anything that a peer, a
 * user or a disk can influence is input and gets an error path instead. A failed CHECK aborts the
 * process: the spool survives by design, and a corrupt scheduler must not go on.
 */
#ifndef BASE_CHECK_H
#define BASE_CHECK_H

#define CHECK(x)         ((x) ? (void)0 : check_failed(__FILE__, __LINE__, __func__, #x))
#define UNREACHABLE(why) check_failed(__FILE__, __LINE__, __func__, why)

/* Writes one line to standard error (async-signal-safe, no allocation) and aborts. */
_Noreturn void check_failed(const char *file, int line, const char *function, const char *what);

#endif
