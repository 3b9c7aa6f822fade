/*
 * One entry as a job of a transport agent: one message's recipients for one host. The agent gets
 * the path of the control file; its answers have the message's number and the offset of each
 * recipient's line.
 *
 * Answers of agents are not trusted: agent_job_take accepts a result only for a recipient of this
 * job that has none yet.
 */
#ifndef ZMAILER_AGENT_JOB_H
#define ZMAILER_AGENT_JOB_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "agent_pool.h"
#include "assignment.h"
#include "frame.h"
#include "hash.h"
#include "heap.h"
#include "ta.h"

struct agent_job {
    struct job_place place;        /* place in the pool while the job waits */
    struct assignment *assignment; /* owned */
    uint64_t number;               /* number of the message: leading digits of its file's name */
    uint32_t *by_offset;           /* owned: indices of recipients, sorted by n */
    uint32_t overfeed;             /* overfeed of the clause at the arrival of the job */
    struct mono fed;               /* time when an agent got it; us 0: none has */
    bool resync;
    bool thread_stops;
    struct wall thread_until; /* us 0: none */
    TAILQ_ENTRY(agent_job) in_agent;
};
TAILQ_HEAD(agent_job_list, agent_job);

/* Returns the waiting job at a place, or NULL. */
static inline struct agent_job *agent_job_at(struct job_place *place)
{
    return place == NULL ? NULL : CONTAINER_OF(place, struct agent_job, place);
}

/* Makes a job from a WIRE_DELIVER frame; its assignment is one of `all`. Returns NULL if the frame
 * does not decode. *ret_why is NULL, or the reason for which no agent can do the job; the caller
 * then finishes the job. */
struct agent_job *agent_job_new(struct assignments *all, const struct frame *frame,
                                const char **ret_why);

enum agent_job_take {
    AGENT_JOB_TAKEN,
    AGENT_JOB_OTHER,   /* number of another message */
    AGENT_JOB_NO_RCPT, /* no recipient of this job at that offset */
    AGENT_JOB_TWICE,   /* the recipient has its result already */
    AGENT_JOB_WORD,    /* unknown status; the line is ignored */
};

/* Takes a result line of the job's agent. `relay` is logged if the notary has no host. `now` is the
 * base of retry times, which end at most `longest_us` later. */
enum agent_job_take agent_job_take(struct agent_job *job, const struct ta_event *result,
                                   struct slice relay, struct wall now, int64_t longest_us);

/* Reports the results of the job to the queue and frees it. `reason` is empty, or that of a crash
 * or a failed start. */
void agent_job_finish(struct agent_job *job, uint32_t pid, struct slice reason);

/* Returns the job untried to the queue and frees it. The queue puts it off if its thread was
 * `stopped`. */
void agent_job_give_back(struct agent_job *job, bool stopped);

/* Frees the job without a report to the queue. */
void agent_job_free(struct agent_job *job);

/* Appends the offsets of its recipients for a log line: "103, 125 (3 more)". */
void agent_job_offsets(const struct agent_job *job, struct buf *out);

#endif
