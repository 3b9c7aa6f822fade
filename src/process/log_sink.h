/*
 * Lines for a file or for syslog, from a process that can open neither: the parent opens them, and
 * again after a rotation, and hands over the descriptor.
 *
 * Writing never waits. What the other end does not take now stays in memory, up to LOG_SINK_MAX
 * bytes; lines beyond are lost, and counted. The log is told once when lines begin to wait, and how
 * many were lost when they go through again: a full disk loses nothing in silence.
 */
#ifndef PROCESS_LOG_SINK_H
#define PROCESS_LOG_SINK_H

#include <stdbool.h>
#include <stdint.h>

#include "buf.h"
#include "slice.h"

#define LOG_SINK_MAX (1u << 20)

/* The numbers travel in WIRE_LOG_SINK. */
enum log_sink_id {
    LOG_SINK_STATISTICS, /* parameter statistics_log */
    LOG_SINK_SYSLOG,     /* parameter scheduler_syslog */
    LOG_SINK_EVENTS,     /* parameter events_file */
    LOG_SINK_COUNT,
};

struct log_sink {
    const char *name; /* of its parameter, for the log */
    bool datagrams;   /* each line is one, without its line feed */
    int fd;           /* -1: lines vanish */
    struct buf out;
    bool stuck;    /* the log has been told that lines wait */
    uint64_t lost; /* since then */
};

/* Nothing is open yet. */
void log_sink_init(struct log_sink *sink, enum log_sink_id id);
/* Last try to write, then close. */
void log_sink_fini(struct log_sink *sink);

/* Write to `fd` (taken) from now on. */
void log_sink_adopt(struct log_sink *sink, int fd);

bool log_sink_is_open(const struct log_sink *sink);

/* Append a line, which has its line feed. */
void log_sink_add(struct log_sink *sink, struct slice line);

/* Write out what waits, as far as it goes. Once per turn. */
void log_sink_flush(struct log_sink *sink);

/* ---- the parent's side ---- */

/* Open a file of lines for appending, without waiting for anything. A descriptor or a negative
 * errno. */
int log_sink_open_file(const char *path);

#endif
