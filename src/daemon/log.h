/*
 * The log: lines in Postfix's form, so that log analysers read them.
 *
 *     Nov 21 05:00:00 host postfix/smtp[123]: 4Vq...: to=<a@example.org>, relay=..., status=sent
 * (...)
 *
 * Lines go to standard error, syslog or a file (parameter `log`), through a buffer that the main
 * loop empties once per turn (log_flush), so a busy turn costs one write. A confined process gets
 * its log descriptor opened before it is confined. Text from outside is made printable here, once.
 * A line is cut at LOG_LINE_MAX.
 */
#ifndef DAEMON_LOG_H
#define DAEMON_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "buf.h"

#define LOG_LINE_MAX 4096

enum log_level { LOG_LEVEL_DEBUG, LOG_LEVEL_INFO, LOG_LEVEL_WARNING, LOG_LEVEL_ERROR };

/* Where to: "stderr", "syslog" or "file:PATH". `name` is the first part of the tag ("postfix"),
 * `program` the second ("qmgr"). Errors are written to *ret_error; the old destination stays. */
bool log_open(const char *where, const char *name, const char *program, struct buf *ret_error);

/* Open the log again (file rotation). */
void log_reopen(void);

void log_set_level(enum log_level least);

/* Lines of this process. */
void log_info(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_warning(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_debug(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A line on behalf of another program and process: the queue writes what agents report, after the
 * commit ("smtp", 4711). */
void log_as(const char *program, int pid, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Write out what has gathered. */
void log_flush(void);

#endif
