/*
 * A transport agent of ZMailer's, seen from the scheduler: one process and the lines that go to and
 * fro on its standard input and output. Without I/O.
 *
 *   to the agent    PATH \t HOST      a job: one message's recipients for this host
 *                   PATH              the same, for an agent that was started for one host
 *                   #idle             no work now
 *                   (empty), end      terminate
 *   from the agent  #hungry           ready for the next line: one for each line, and one at first
 *                   NUM/OFF \t NOTARY \t STATUS TEXT     what became of a recipient
 *                   #resync PATH      read that control file again
 *                   # anything        for the log
 *
 * The owner gives bytes and gets events, and is asked for work when the agent can take some:
 *
 *   LARVA --hungry--> STUFF --nothing left--> FINISH --another thread--> STUFF
 *     one job at first,  batches of           |
 *                        overfeed + 1         +--none--> IDLE --work comes--> STUFF
 *
 * What an agent says is hostile: lines are bounded, numbers checked for their form. Whether a
 * result belongs to a job that this agent has is for the owner to check, who knows the jobs.
 */
#ifndef ZMAILER_TA_H
#define ZMAILER_TA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "slice.h"

/* Bytes of a line of the agent's; a longer one ends it. */
#define TA_LINE_MAX 65536
/* Bytes that may wait to be written to it; then it gets no more jobs. */
#define TA_OUTPUT_MAX 65536

enum ta_state { TA_LARVA, TA_STUFF, TA_FINISH, TA_IDLE, TA_ENDING };

enum ta_status {
    TA_OK,        /* done; a success report is the scheduler's business */
    TA_OK2,       /* done; the agent has written the diagnostic itself */
    TA_OK3,       /* done; no report is due */
    TA_ERROR,     /* failed; the diagnostic is the scheduler's business */
    TA_ERROR2,    /* failed; the agent has written it itself */
    TA_DEFERRED,  /* try it again */
    TA_DEFERBACK, /* try it again, after the others of its thread */
    TA_DEFERALL,  /* and nothing else of this thread now */
    TA_RETRYAT,   /* and nothing of this thread before `retry_at` */
    TA_UNKNOWN,   /* an unknown word, in `status_word` */
};

enum ta_event_type {
    TA_NEED_INPUT, /* all input has been used */
    TA_FEED,       /* answer with ta_job, or with ta_no_job */
    TA_DETACH, /* the agent has done what it was given: its thread is left. Answer with ta_job of
                  another thread, or with ta_idle */
    TA_REST,   /* it is idle: ta_job when there is one, or ta_end */
    TA_HUNGRY, /* it has answered the oldest of the lines that it had, or has come to life */
    TA_RESULT,
    TA_RESYNC,    /* `path` */
    TA_COMMENT,   /* `line`, for the log */
    TA_MALFORMED, /* `line`, for the log: neither of these. `what` says what was expected */
    TA_BROKEN,    /* it has sent a line without end: end it */
};

struct ta_event {
    enum ta_event_type type;
    struct slice line, path; /* last until the next call */
    const char *what;
    /* TA_RESULT */
    uint64_t number;     /* of the message: the leading number of its file's name */
    uint64_t offset;     /* of the recipient in the control file */
    struct slice notary; /* fields separated by ^A, or empty */
    enum ta_status status;
    struct slice status_word, text;
    bool retry_is_relative; /* TA_RETRYAT: seconds from now, else since 1970 */
    int64_t retry_s;        /* 0: none was given */
};

/* A plain value: embed it, ta_fini releases its buffers. */
struct ta {
    enum ta_state state;
    bool host_bound;
    uint32_t overfeed; /* jobs beyond the first that it may have unanswered */
    uint32_t owed;     /* lines sent that it has not answered with #hungry, and the first #hungry */
    bool feeding;      /* a batch is being fed */
    bool stop_feeding; /* the rest of its thread is not for now (deferall, retryat) */
    bool told_idle;
    struct buf line;   /* of an event */
    struct buf output; /* to be written to the agent */
};

void ta_init(struct ta *ta, bool host_bound, uint32_t overfeed);
void ta_fini(struct ta *ta);

/* The next event, from the front of *in. */
void ta_next(struct ta *ta, struct buf *in, struct ta_event *ret_event);

/* Give a job. `host` is that of the thread. After TA_FEED, TA_DETACH or TA_REST. Names with bytes
 * that would end the line are the caller's mistake. */
void ta_job(struct ta *ta, struct slice path, struct slice host);
/* After TA_FEED: there is none. */
void ta_no_job(struct ta *ta);
/* After TA_DETACH: there is no other thread. */
void ta_idle(struct ta *ta);

/* Nothing more of this thread now, because a result said so (deferall, retryat): TA_DETACH follows
 * when the agent has answered what it has. */
void ta_stop_feeding(struct ta *ta);

/* Tell it to terminate. The owner then shuts its input down and waits for its end. */
void ta_end(struct ta *ta);

/* Has it said that it rests? */
bool ta_is_idle(const struct ta *ta);

/* One line of an agent as a result. False: *ret_what says what was expected; the event's numbers
 * are then not to be used. Slices point into `line`. */
bool ta_parse_result(struct slice line, struct ta_event *ret_event, const char **ret_what);

/* The other side, for agents of ours: a result line is appended to *out. `text` may hold several
 * lines, separated by CR. */
void ta_put_result(struct buf *out, uint64_t number, uint64_t offset, struct slice notary,
                   enum ta_status status, struct slice text);

/* One line from the scheduler, without its line feed. */
enum ta_order_type { TA_ORDER_JOB, TA_ORDER_IDLE, TA_ORDER_END };
struct ta_order {
    enum ta_order_type type;
    struct slice path, host; /* host empty: that which the agent was started for */
};
void ta_parse_order(struct slice line, struct ta_order *ret_order);

#endif
