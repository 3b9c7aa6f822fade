/*
 * Writes a complete file: the output of a socket until its other end closes.
 *
 *   PATH.PID grows  --end of the stream-->  mtime one second back, renamed to PATH
 *
 * Readers of PATH get either the old or the new content, whole. Readers of ZMailer's rendezvous
 * file wait until its mtime is less than its ctime, so the mtime is set back.
 */
#ifndef ZMAILER_DUMP_H
#define ZMAILER_DUMP_H

struct dump;
struct event_base;

/* Starts to write the data of `fd` (taken, non-blocking) to `path`. Logs errors; returns NULL if
 * the file can't be created. `ended` is called at the end, and may free the dump. */
struct dump *dump_new(struct event_base *base, const char *path, int fd, void (*ended)(void *arg),
                      void *arg);

/* Frees the dump and removes an incomplete file. `d` may be NULL. */
void dump_free(struct dump *d);

#endif
