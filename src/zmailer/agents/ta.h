/*
 * ZMailer's transport agent protocol on the scheduler's side: one process, and the lines on its
 * standard input and output. Without I/O.
 *
 *   to the agent    PATH \t HOST      a job: one message's recipients for this host
 *                   PATH              the same, for an agent that was started for one host
 *                   #idle             no work now
 *                   (empty), end      terminate
 *   from the agent  #hungry           ready for the next line: one for each line, and one at first
 *                   NUM/OFF \t NOTARY \t STATUS TEXT     result of a recipient
 *                   #resync PATH      read that control file again
 *                   # anything        for the log
 *
 * The owner feeds bytes and gets events; an event requests work if the agent can take some:
 *
 *   LARVA --hungry--> STUFF --nothing left--> FINISH --another thread--> STUFF
 *     one job at first,  batches of           |
 *                        overfeed + 1         +--none--> IDLE --work comes--> STUFF
 *
 * The agent's lines are not trusted: their length is bounded and the form of numbers is checked.
 * The owner has the jobs and checks that a result belongs to one of them.
 */
#ifndef ZMAILER_TA_H
#define ZMAILER_TA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "slice.h"

/* Longest line of the agent in bytes; a longer one ends it. */
#define TA_LINE_MAX 65536
/* Bytes of unwritten output above which the agent gets no more jobs. */
#define TA_OUTPUT_MAX 65536

enum ta_state { TA_LARVA, TA_STUFF, TA_FINISH, TA_IDLE, TA_ENDING };

enum ta_status {
    TA_OK,        /* done; the scheduler makes a success report */
    TA_OK2,       /* done; the agent has written the diagnostic */
    TA_OK3,       /* done; no report is due */
    TA_ERROR,     /* failed; the scheduler writes the diagnostic */
    TA_ERROR2,    /* failed; the agent has written the diagnostic */
    TA_DEFERRED,  /* try again */
    TA_DEFERBACK, /* try again, after the rest of its thread */
    TA_DEFERALL,  /* try again, with the rest of its thread */
    TA_RETRYAT,   /* try again, with the rest of its thread, at `retry_at` */
    TA_UNKNOWN,   /* unknown word, in `status_word` */
};

enum ta_event_type {
    TA_NEED_INPUT, /* all input was used */
    TA_FEED,       /* call ta_job or ta_no_job */
    TA_DETACH,     /* the agent has finished its jobs and left its thread: call ta_job for another
                * thread, or ta_idle */
    TA_REST,       /* the agent is idle: call ta_job when there is a job, or ta_end */
    TA_HUNGRY,     /* the agent has answered its oldest line, or asks for work the first time */
    TA_RESULT,
    TA_RESYNC,    /* `path` is set */
    TA_COMMENT,   /* `line`, for the log */
    TA_MALFORMED, /* `line`, for the log: a line of no known form; `what` is the expected one */
    TA_BROKEN,    /* the agent has sent a line that is too long: end it */
};

struct ta_event {
    enum ta_event_type type;
    struct slice line, path; /* valid until the next call */
    const char *what;
    /* members of TA_RESULT */
    uint64_t number;     /* number of the message: leading digits of its file's name */
    uint64_t offset;     /* offset of the recipient in the control file */
    struct slice notary; /* fields separated by ^A; may be empty */
    enum ta_status status;
    struct slice status_word, text;
    bool retry_is_relative; /* TA_RETRYAT: seconds from now, otherwise since 1970 */
    int64_t retry_s;        /* 0: none */
};

/* State of the protocol, embedded by its owner; ta_fini releases its buffers. */
struct ta {
    enum ta_state state;
    bool host_bound;
    uint32_t overfeed; /* number of unanswered jobs allowed next to the first */
    uint32_t owed;     /* lines without a #hungry yet, and the first #hungry */
    bool feeding;      /* a batch is being fed */
    bool stop_feeding; /* the rest of its thread must wait (deferall, retryat) */
    bool told_idle;
    struct buf line;   /* line of the current event */
    struct buf output; /* bytes for the agent */
};

void ta_init(struct ta *ta, bool host_bound, uint32_t overfeed);
void ta_fini(struct ta *ta);

/* Returns the next event, from the front of *in. */
void ta_next(struct ta *ta, struct buf *in, struct ta_event *ret_event);

/* Gives a job, after TA_FEED, TA_DETACH or TA_REST. `host` is that of the thread. The names must
 * not contain bytes that end the line. */
void ta_job(struct ta *ta, struct slice path, struct slice host);
/* Replies to TA_FEED that there is no job. */
void ta_no_job(struct ta *ta);
/* Replies to TA_DETACH that there is no other thread. */
void ta_idle(struct ta *ta);

/* Stops the feeding of this thread because of a result (deferall, retryat). TA_DETACH follows when
 * the agent has answered its jobs. */
void ta_stop_feeding(struct ta *ta);

/* Sends the agent the line that ends it. The owner then shuts down the agent's input and waits for
 * its end. */
void ta_end(struct ta *ta);

/* Is the agent idle? */
bool ta_is_idle(const struct ta *ta);

/* Parses a result line of an agent. Returns false with the expected form in *ret_what; the event's
 * numbers are then invalid. Slices point into `line`. */
bool ta_parse_result(struct slice line, struct ta_event *ret_event, const char **ret_what);

/* Appends a result line, for our own agents. `text` may have several lines, separated by CR. */
void ta_put_result(struct buf *out, uint64_t number, uint64_t offset, struct slice notary,
                   enum ta_status status, struct slice text);

/* One line from the scheduler, without its line feed. */
enum ta_order_type { TA_ORDER_JOB, TA_ORDER_IDLE, TA_ORDER_END };
struct ta_order {
    enum ta_order_type type;
    struct slice path, host; /* empty host: the host for which the agent was started */
};
void ta_parse_order(struct slice line, struct ta_order *ret_order);

#endif
