/*
 * One entry as a job of a transport agent: the message's recipients for one host, known to the
 * agent by the path of their control file, and in its answers by the message's number and the
 * offset of each recipient's line.
 *
 * Nothing that an agent says is taken on trust: agent_job_take accepts a result for a recipient of
 * this job that has none yet, and nothing else.
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
    struct job_place place;        /* while it waits */
    struct assignment *assignment; /* owned */
    uint64_t number;               /* of the message: the leading digits of its file's name */
    uint32_t *by_offset;           /* owned: indices of recipients, sorted by n */
    uint32_t overfeed;             /* of the clause, when it came */
    struct mono fed;               /* when an agent got it; us 0: none has */
    bool resync;
    bool thread_stops;
    struct wall thread_until; /* us 0: not given */
    TAILQ_ENTRY(agent_job) in_agent;
};
TAILQ_HEAD(agent_job_list, agent_job);

/* The job that waits, or NULL. */
static inline struct agent_job *agent_job_at(struct job_place *place)
{
    return place == NULL ? NULL : CONTAINER_OF(place, struct agent_job, place);
}

/* From a WIRE_DELIVER frame; its assignment is one of `all`. NULL when it does not decode. *ret_why
 * is NULL, or says why no agent can be asked for this: then finish it. */
struct agent_job *agent_job_new(struct assignments *all, const struct frame *frame,
                                const char **ret_why);

enum agent_job_take {
    AGENT_JOB_TAKEN,
    AGENT_JOB_OTHER,   /* another message's number */
    AGENT_JOB_NO_RCPT, /* no recipient of this job stands at that offset */
    AGENT_JOB_TWICE,   /* that recipient has its result */
    AGENT_JOB_WORD,    /* an unknown status: as if nothing had been said */
};

/* A result line of its agent. `relay` stands in the log when the notary names no host. `now` for
 * retry times, which end at `longest_us` from it. */
enum agent_job_take agent_job_take(struct agent_job *job, const struct ta_event *result,
                                   struct slice relay, struct wall now, int64_t longest_us);

/* The agent has answered: tell the queue and free the job. `reason` is empty, or a crash's or a
 * failed start's. */
void agent_job_finish(struct agent_job *job, uint32_t pid, struct slice reason);

/* Untried, back to the queue, which is to put it off when its thread was `stopped`; freed. */
void agent_job_give_back(struct agent_job *job, bool stopped);

/* Without a word to the queue. */
void agent_job_free(struct agent_job *job);

/* The offsets of its recipients, for a line of the log: "103, 125 (3 more)". */
void agent_job_offsets(const struct agent_job *job, struct buf *out);

#endif
