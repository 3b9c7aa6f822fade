/*
 * Assertions that stay in every build.
 *
 * CHECK is for what only a bug of ours can make false. What a peer, a user or a disk can influence
 * is input and gets an error path instead. A failed CHECK aborts the process: the spool survives by
 * design, and a corrupt scheduler must not go on.
 */
#ifndef BASE_CHECK_H
#define BASE_CHECK_H

#define CHECK(x)         ((x) ? (void)0 : check_failed(__FILE__, __LINE__, __func__, #x))
#define UNREACHABLE(why) check_failed(__FILE__, __LINE__, __func__, why)

/* Write one line to standard error (async-signal-safe, no allocation) and abort. */
_Noreturn void check_failed(const char *file, int line, const char *function, const char *what);

#endif
