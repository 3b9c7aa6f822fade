/*
 * Lines for a file or for syslog, from a process that can open neither: the parent opens them, and
 * again after a rotation, and hands over the descriptor.
 *
 * Writing never waits. What the other end does not take now stays in memory, up to OUTLET_MAX
 * bytes; lines beyond are lost, and counted. The log is told once when lines begin to wait, and how
 * many were lost when they go through again: a full disk loses nothing in silence.
 */
#ifndef DAEMON_OUTLET_H
#define DAEMON_OUTLET_H

#include <stdbool.h>
#include <stdint.h>

#include "buf.h"
#include "slice.h"

#define OUTLET_MAX (1u << 20)

/* The numbers travel in WIRE_OUTLET. */
enum outlet_id {
    OUTLET_STATISTICS, /* parameter statistics_log */
    OUTLET_SYSLOG,     /* parameter scheduler_syslog */
    OUTLET_COUNT,
};

struct outlet {
    const char *name; /* of its parameter, for the log */
    bool datagrams;   /* each line is one, without its line feed */
    int fd;           /* -1: lines vanish */
    struct buf out;
    bool stuck;    /* the log has been told that lines wait */
    uint64_t lost; /* since then */
};

/* Nothing is open yet. */
void outlet_init(struct outlet *o, enum outlet_id id);
/* Last try to write, then close. */
void outlet_fini(struct outlet *o);

/* Write to `fd` (taken) from now on. */
void outlet_adopt(struct outlet *o, int fd);

bool outlet_is_open(const struct outlet *o);

/* Append a line, which has its line feed. */
void outlet_add(struct outlet *o, struct slice line);

/* Write out what waits, as far as it goes. Once per turn. */
void outlet_flush(struct outlet *o);

/* ---- the parent's side ---- */

/* Open a file of lines for appending, without waiting for anything. A descriptor or a negative
 * errno. */
int outlet_open_file(const char *path);

#endif
