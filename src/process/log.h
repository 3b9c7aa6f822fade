/*
 * The log: lines in Postfix's form, so that log analysers can read them.
 *
 *     Nov 21 05:00:00 host postfix/smtp[123]: 4Vq...: to=<a@example.org>, ..., status=sent (...)
 *
 * Lines go to standard error, syslog or a file (parameter `log`), through a buffer that the main
 * loop writes once per turn (log_flush). So a busy turn costs one write; a pipe needs one per
 * PIPE_BUF bytes, because longer writes would mix with those of other processes. A process opens
 * its log before its confinement. This module makes text from outside printable. A line is cut at
 * LOG_LINE_MAX. Times are those of clock_wall().
 *
 * Levels appear as in Postfix: "warning: " and "error: " before the text.
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

/* Opens a destination: "stderr", "syslog", "postlog:PATH" (a datagram per line to Postfix's
 * postlogd(8), with the host name of the variable POSTLOG_HOSTNAME) or "file:PATH" (a relative PATH
 * starts at `directory`). `name` is the first part of the tag ("postfix"), `program` the second
 * ("qmgr"). Returns false and the reason in *ret_error on a failure; then the previous destination
 * stays. Before the first call lines go to standard error. */
bool log_open(const char *where, const char *directory, const char *name, const char *program,
              struct buf *ret_error);

/* Opens the log again, after a rotation or a restart of the syslog daemon. The previous one stays
 * on a failure. Standard output and error follow if they are the same file. Does nothing for
 * standard error. */
void log_reopen(void);

/* Was the file renamed, or does the syslog daemon have a new socket, since this process opened its
 * log? Then call log_reopen. */
bool log_moved(void);

/* Opens a file of lines for appending, with additional `flags` of open(2). A new file gets the mode
 * of log_set_file_mode, whatever the umask is. Returns a descriptor or negative errno. */
int log_open_file(const char *path, int flags);
/* Sets the mode of new log files; 0640 before the first call. log_reopen gives a new file the mode
 * of the previous one. */
void log_set_file_mode(unsigned mode);

/* Opens a socket to the syslog daemon, for one datagram per line: "<priority>", the time, the tag,
 * the text. Returns a descriptor or negative errno. */
int log_open_syslog(void);

/* Passes the log to a confined process, which can't open files: the parent reopens its log.
 * log_share returns a new descriptor for a child (-1 for standard error, or if there is none);
 * log_adopt takes it in the child. */
int log_share(void);
void log_adopt(int fd);

void log_set_level(enum log_level least);

/* Logs a line of this process. */
void log_info(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_warning(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Logs why this process ends, at the level of Postfix's daemons. */
void log_fatal(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Logs an event that the operator must see at once. */
void log_emergency(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_debug(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Logs a line in the name of another program and process: after the commit, the queue process logs
 * the results of agents ("smtp", 4711). */
void log_as(const char *program, int pid, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Returns the pid of this process for log_as; reads it from the kernel only once after log_open. */
int log_pid(void);

/* Keeps lines about uncommitted changes aside until log_held_write. Lines between log_hold and
 * log_hold_end are about changes that a failed commit undoes: log_held_drop drops them, and they
 * are logged again with the repeated changes. Lines between log_hold_deliveries and
 * log_hold_deliveries_end are about deliveries, which are not undone: log_held_drop keeps them for
 * a later commit. Calls may nest. Lines beyond LOG_BUFFER_MAX bytes are logged at once. */
void log_hold(void);
void log_hold_end(void);
void log_hold_deliveries(void);
void log_hold_deliveries_end(void);

/* Writes the lines that are kept aside, deliveries first; without `with_deliveries` the deliveries
 * stay. */
void log_held_write(bool with_deliveries);
void log_held_drop(void);

/* Lines of a commit that has not ended. */
struct log_held {
    struct buf changes, deliveries;
};

/* Moves the lines that are kept aside into *ret_held, which the caller owns until it calls one of
 * the next two functions. They work like log_held_write and log_held_drop; unwritten deliveries are
 * kept aside again. */
void log_held_take(struct log_held *ret_held);
void log_held_write_taken(struct log_held *held, bool with_deliveries);
void log_held_drop_taken(struct log_held *held);

/* Writes the buffer as far as the destination accepts it without waiting, because a stuck terminal
 * or pipe must not stop the mail. Up to LOG_BUFFER_MAX bytes wait. A full buffer is also written
 * between turns, so a file loses no lines. If the destination is stuck, lines are lost and counted:
 * informational lines from half of the buffer on, deliveries (log_as) and warnings at its end. When
 * there is room again, a line has the number of lost lines. A destination that no longer exists
 * loses lines without notice. */
void log_flush(void);

/* Are there lines that log_flush could not write? Then call it again within about a second. */
bool log_waiting(void);

#endif
