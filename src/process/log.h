/*
 * The log: lines in Postfix's form, so that log analysers read them.
 *
 *     Nov 21 05:00:00 host postfix/smtp[123]: 4Vq...: to=<a@example.org>, ..., status=sent (...)
 *
 * Lines go to standard error, syslog or a file (parameter `log`), through a buffer that the main
 * loop empties once per turn (log_flush), so a busy turn costs one write (or one per LOG_LINE_MAX
 * bytes to a pipe, where longer writes would mix with those of other processes). A confined process
 * opens its log before it is confined. Text from outside is made printable here, once. A line is
 * cut at LOG_LINE_MAX. Times are those of clock_wall().
 *
 * Levels show as Postfix shows them: "warning: " and "error: " in front of the text.
 */
#ifndef PROCESS_LOG_H
#define PROCESS_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "buf.h"

#define LOG_LINE_MAX   4096
#define LOG_BUFFER_MAX (8u << 20)

enum log_level {
    LOG_LEVEL_DEBUG,
    LOG_LEVEL_INFO,
    LOG_LEVEL_WARNING,
    LOG_LEVEL_ERROR,
    LOG_LEVEL_FATAL,
    LOG_LEVEL_EMERGENCY
};

/* Where to: "stderr", "syslog", "postlog:PATH" (a datagram per line to Postfix's postlogd(8), with
 * the host name of the variable POSTLOG_HOSTNAME) or "file:PATH" (a relative PATH starts at
 * `directory`). `name` is the first part of the tag ("postfix"), `program` the second ("qmgr"). On
 * failure the reason is written to *ret_error and the old destination stays. Before the first call
 * lines go to standard error. */
bool log_open(const char *where, const char *directory, const char *name, const char *program,
              struct buf *ret_error);

/* Open the log again: file rotation, or a syslog daemon that came back. The old one stays when that
 * fails. Standard output and error follow where they are the same file. Does nothing for standard
 * error. */
void log_reopen(void);

/* Has the file been renamed away, or the syslog daemon been started anew, with a new socket, since
 * this process last opened it? Then log_reopen. */
bool log_moved(void);

/* Open a file of lines for appending; `flags` of open(2) more. When it has to be made it gets the
 * mode of log_set_file_mode, whatever the umask is. A descriptor or a negative errno. */
int log_open_file(const char *path, int flags);
/* 0640 before the first call. log_reopen gives a new file the mode of the one before it. */
void log_set_file_mode(unsigned mode);

/* A new socket to the syslog daemon, one datagram per line: "<priority>", the time, the tag, the
 * text. A descriptor or a negative errno. */
int log_open_syslog(void);

/* A confined process cannot open anything: the parent reopens, and hands over a copy of its
 * descriptor. log_share returns a new one for a child (-1 for standard error, or when there is
 * none); log_adopt takes it. */
int log_share(void);
void log_adopt(int fd);

void log_set_level(enum log_level least);

/* Lines of this process. */
void log_info(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_warning(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Why this process ends, as Postfix's daemons say it. */
void log_fatal(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* What the operator must see at once, whatever else is logged. */
void log_emergency(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_debug(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A line on behalf of another program and process: the queue writes what agents report, after the
 * commit ("smtp", 4711). */
void log_as(const char *program, int pid, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* This process as log_as has it, which is not asked of the kernel again after log_open. */
int log_pid(void);

/* Lines that tell of what is not committed yet: those from log_hold to log_hold_end are kept aside
 * until log_held_write puts them into the log, or log_held_drop forgets them, as what they tell of
 * was undone. Of more than LOG_BUFFER_MAX bytes the rest is logged at once. */
void log_hold(void);
void log_hold_end(void);
void log_held_write(void);
void log_held_drop(void);
/* The lines that are kept aside become the caller's, who owns *ret_lines, until they are written,
 * which releases it, or forgotten (buf_fini). */
void log_held_take(struct buf *ret_lines);
void log_held_write_taken(struct buf *lines);

/* Write out what has gathered, as far as the destination takes it without waiting: a stuck terminal
 * or pipe must not stop the mail. Up to LOG_BUFFER_MAX bytes wait for it, and when they are full
 * they are written out in between, so a file loses nothing. Where the destination does not take
 * them, lines are lost and counted: from half of the buffer on those that only inform, at its end
 * deliveries (log_as) and warnings, too. A line says how many when there is room again. A
 * destination that is gone loses lines in silence. */
void log_flush(void);

/* Is something left that log_flush could not write? Then call it again within a second or so. */
bool log_waiting(void);

#endif
