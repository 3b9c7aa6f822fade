/*
 * A child process that does one thing, and is waited for.
 *
 * It is a process group of its own, with nothing open but what the body is given: when its time is
 * over the whole group is killed. What it says is collected; the rest of too much is read and
 * forgotten.
 */
#ifndef ZMAILER_TA_CHILD_H
#define ZMAILER_TA_CHILD_H

#include <stdbool.h>

#include "buf.h"

/* The descriptor that a child keeps beside the three standard ones. */
#define TA_CHILD_FD 3

/* Never returns: ends with child_fail, _exit, or another program. */
typedef void ta_child_body(void *arg);

struct ta_child_end {
    int wait_status; /* of waitpid */
    bool timed_out;
};

/* Run `body` with standard input from nowhere, output and errors collected in *ret_output, and `fd`
 * (-1: none) as TA_CHILD_FD. 0, or negative errno when there is no such child. */
int ta_child_run(ta_child_body *body, void *arg, int fd, int timeout_s, struct buf *ret_output,
                 struct ta_child_end *ret_end);

#endif
