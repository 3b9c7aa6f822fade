/*
 * A file that shows something complete: what comes out of a socket until its other end closes.
 *
 *   PATH.PID grows  --end of the stream-->  mtime one second back, renamed to PATH
 *
 * Readers of PATH see the old content or all of the new one. Those that know ZMailer's rendezvous
 * file wait until its mtime is less than its ctime, which it is.
 */
#ifndef ZMAILER_DUMP_H
#define ZMAILER_DUMP_H

struct dump;
struct event_base;

/* Begin to write what `fd` (taken, non-blocking) gives to `path`. What fails is logged; NULL when
 * that is so from the start. `ended` is called when it is over, and may free it. */
struct dump *dump_new(struct event_base *base, const char *path, int fd, void (*ended)(void *arg),
                      void *arg);

/* NULL is fine. A file that is not complete is removed. */
void dump_free(struct dump *d);

#endif
