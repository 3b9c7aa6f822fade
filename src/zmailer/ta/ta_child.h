/*
 * Runs one function in a child process and waits for its end.
 *
 * The child is a process group of its own and has no descriptors open except those passed to it. At
 * the timeout the whole group is killed. The child's output is collected; output beyond the limit
 * is discarded.
 */
#ifndef ZMAILER_TA_CHILD_H
#define ZMAILER_TA_CHILD_H

#include <stdbool.h>

#include "buf.h"

/* The one descriptor that a child keeps next to the three standard ones. */
#define TA_CHILD_FD 3

/* Body of a child. Never returns: ends with child_fail, _exit, or by executing a program. */
typedef void ta_child_body(void *arg);

struct ta_child_end {
    int wait_status; /* status of waitpid */
    bool timed_out;
};

/* Runs `body` with an empty standard input, with its output and errors collected in *ret_output,
 * and with `fd` (-1: none) as TA_CHILD_FD. Returns 0, or negative errno if the child could not be
 * started. */
int ta_child_run(ta_child_body *body, void *arg, int fd, int timeout_s, struct buf *ret_output,
                 struct ta_child_end *ret_end);

#endif
