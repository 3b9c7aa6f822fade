/*
 * Lines for a file or for syslog, from a process that can open neither: the parent opens them,
 * opens them again after a rotation, and passes the descriptor.
 *
 * Writing never waits. Lines that the destination does not accept now stay in memory, up to
 * LOG_SINK_MAX bytes; further lines are lost and counted. The log gets one warning when lines begin
 * to wait, and the number of lost lines when writing continues, so that no loss on a full disk goes
 * unnoticed.
 */
#ifndef PROCESS_LOG_SINK_H
#define PROCESS_LOG_SINK_H

#include <stdbool.h>
#include <stdint.h>

#include "buf.h"
#include "slice.h"

#define LOG_SINK_MAX (1u << 20)

/* Sinks; their numbers are used in WIRE_LOG_SINK. */
enum log_sink_id {
    LOG_SINK_STATISTICS, /* parameter statistics_log */
    LOG_SINK_SYSLOG,     /* parameter scheduler_syslog */
    LOG_SINK_EVENTS,     /* parameter events_file */
    LOG_SINK_COUNT,
};

struct log_sink {
    const char *name; /* name of its parameter, for the log */
    bool datagrams;   /* one datagram per line, without line feed */
    int fd;           /* -1: lines are dropped */
    struct buf out;
    bool stuck;    /* the log has a warning that lines wait */
    uint64_t lost; /* lines lost since then */
};

/* Initializes a sink without a destination. */
void log_sink_init(struct log_sink *sink, enum log_sink_id id);
/* Tries to write the remaining lines, then closes the sink. */
void log_sink_fini(struct log_sink *sink);

/* Takes `fd` as the new destination. */
void log_sink_adopt(struct log_sink *sink, int fd);

bool log_sink_is_open(const struct log_sink *sink);

/* Appends a line with its line feed. */
void log_sink_add(struct log_sink *sink, struct slice line);

/* Writes waiting lines as far as the destination accepts them; is called once per turn. */
void log_sink_flush(struct log_sink *sink);

/* ---- the parent's side ---- */

/* Opens a file of lines for appending, without waiting. Returns a descriptor or negative errno. */
int log_sink_open_file(const char *path);

#endif
