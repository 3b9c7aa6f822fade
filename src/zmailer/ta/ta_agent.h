/*
 * The agent's side of the transport agent protocol: reads orders from the scheduler, writes results
 * and comments. The scheduler's side and the lines are in ta.h.
 *
 *     ta_agent_hungry, then for each line:   ta_agent_wait -> the job -> ta_agent_hungry
 *
 * If the scheduler ends during a delivery, `gone` is set and the agent goes on: the delivery must
 * still be marked in the control file.
 *
 * SIGQUIT and SIGTERM end the agent after its current job. ta_agent_init blocks both, and they are
 * delivered only while ta_agent_wait waits. SIGTERM is sent to the scheduler's whole process group;
 * the mail that is being delivered must still be marked.
 */
#ifndef ZMAILER_TA_AGENT_H
#define ZMAILER_TA_AGENT_H

#include <stdbool.h>
#include <sys/types.h>

#include "buf.h"
#include "slice.h"
#include "ta.h"

/* Longest order in bytes; the path and host in an order are far shorter. A longer order ends the
 * agent. */
#define TA_AGENT_ORDER_MAX 8192

/* Members after the first block are private to ta_agent.c. */
struct ta_agent {
    const char *name;     /* name of the program in messages: "mailbox"; borrowed */
    struct slice channel; /* channel of the recipients that this agent delivers to; borrowed */
    struct slice host;    /* host of jobs that name none; empty: any; borrowed */
    pid_t pid;
    bool gone;       /* the scheduler reads our output no longer */
    bool stop;       /* end after this job */
    int exit_status; /* exit status at the end; of sysexits(3) */

    int in, out;
    sigset_t wait_mask; /* signal mask while waiting */
    struct buf input, line;
    bool ended; /* end of input was read */
};

/* Starts talking on these descriptors. From now on SIGPIPE and SIGXFSZ are ignored, so that a file
 * size limit is an error like a full disk. */
void ta_agent_init(struct ta_agent *a, const char *name, struct slice channel, int in, int out);
void ta_agent_fini(struct ta_agent *a);

/* Waits for the next order. Returns false if the agent must end: after an empty line, the end of
 * input, a line that is too long, SIGQUIT, SIGTERM, or `stop`. Slices of the order are valid until
 * the next call. */
bool ta_agent_wait(struct ta_agent *a, struct ta_order *ret_order);

/* Reads the available input, for a program with its own event loop; may set `ended`. Afterwards
 * ta_agent_next returns the orders one by one, or false if there is none or `stop` is set. */
void ta_agent_read(struct ta_agent *a);
bool ta_agent_next(struct ta_agent *a, struct ta_order *ret_order);

/* Reports that the agent is ready for the next order. */
void ta_agent_hungry(struct ta_agent *a);

/* Sends whole lines, as ta_put_result makes them. */
void ta_agent_say(struct ta_agent *a, struct slice lines);

/* Sends a line for the scheduler's log: "# NAME[PID]: TEXT". */
void ta_agent_comment(struct ta_agent *a, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Requests that the scheduler reads this control file again. */
void ta_agent_resync(struct ta_agent *a, struct slice path);

#endif
