/*
 * An agent's end of its talk with the scheduler (the other end and the lines are in ta.h): orders
 * come in, results and comments go out.
 *
 *     ta_agent_hungry, then for each line:   ta_agent_wait -> the job -> ta_agent_hungry
 *
 * The scheduler may go away while a message is being delivered. That is remembered in `gone`, not
 * an error at once: what was delivered is still to be marked as such in the control file.
 *
 * SIGQUIT and SIGTERM ask the agent to end after the job it has: ta_agent_init arranges for that,
 * and the signals are delivered only while ta_agent_wait waits. SIGTERM comes when the scheduler's
 * process group is told to end: what is being delivered is to be marked as such.
 */
#ifndef ZMAILER_TA_AGENT_H
#define ZMAILER_TA_AGENT_H

#include <stdbool.h>
#include <sys/types.h>

#include "buf.h"
#include "slice.h"
#include "ta.h"

/* Bytes of an order; the path and the host in it are far shorter. A longer one ends the agent. */
#define TA_AGENT_ORDER_MAX 8192

/* Fields but those of the first block are private to ta_agent.c. */
struct ta_agent {
    const char *name;     /* of the program, for texts: "mailbox"; borrowed */
    struct slice channel; /* whose recipients are for this agent; borrowed */
    struct slice host;    /* for jobs that name none; empty: any; borrowed */
    pid_t pid;
    bool gone;       /* what is said is not read any more */
    bool stop;       /* end after this job */
    int exit_status; /* to end with; of sysexits(3) */

    int in, out;
    sigset_t wait_mask; /* of signals, while waiting */
    struct buf input, line;
    bool ended; /* no more input comes */
};

/* Talk on these descriptors. From now on SIGPIPE is ignored, and SIGXFSZ, so that a limit of file
 * sizes is an error like a full disk. */
void ta_agent_init(struct ta_agent *a, const char *name, struct slice channel, int in, int out);
void ta_agent_fini(struct ta_agent *a);

/* Wait for the next order. False when the agent is to end: an empty line, the end of input, a line
 * without end, SIGQUIT, or `stop`. Slices last until the next call. */
bool ta_agent_wait(struct ta_agent *a, struct ta_order *ret_order);

/* The same without waiting, for a program with a loop of its own: read what has come (after which
 * `ended` may be set), then take orders one by one. False: there is none (or `stop`). */
void ta_agent_read(struct ta_agent *a);
bool ta_agent_next(struct ta_agent *a, struct ta_order *ret_order);

/* Ready for the next line. */
void ta_agent_hungry(struct ta_agent *a);

/* Whole lines, as ta_put_result makes them. */
void ta_agent_say(struct ta_agent *a, struct slice lines);

/* A line for the scheduler's log: "# NAME[PID]: TEXT". */
void ta_agent_comment(struct ta_agent *a, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Read that control file again. */
void ta_agent_resync(struct ta_agent *a, struct slice path);

#endif
