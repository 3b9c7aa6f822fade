/*
 * The batch: changes of messages that become durable with the next commit of the spool.
 *
 * Each such change is a step. It is applied to the spool's open batch at once, and kept until its
 * commit has ended, so that it can be repeated:
 *
 *   batch_add_x --> OPEN --batch_commit--> IN FLIGHT --+--> committed: clients get their answers,
 *                    ^                     (a FIFO)    |    messages are opened
 *                    |                                 +--> undone, with all later steps:
 *                    |                                      submissions are refused, all other
 *       later, alone +-- REDO <-----------------------------steps are repeated
 *
 * A step about a message that the spool has not loaded (-EAGAIN) waits before it is applied, and so
 * does every later step of that message.
 *
 * The spool limits the commits in flight, and decides whether they end at once (spool_commits.h).
 * The open batch grows while no further commit is allowed. Commits become durable one after the
 * other, so a second one begins only with BATCH_ENOUGH_LATER submissions: a smaller one would not
 * end earlier, and a commit costs the database as much as 20 messages.
 *
 * Submissions are not repeated: their clients get a temporary refusal. Results are repeated until
 * they are stored, because the mail has been delivered. While steps are in REDO (batch_is_blocked)
 * no mail is accepted and no delivery begins, so REDO holds at most the results of deliveries in
 * flight. Later results queue in REDO, as they may depend on earlier ones. Each step is repeated in
 * a commit of its own, after the previous one has ended: a batch of n results costs at most n more
 * commits. If the spool can't store the results of a message at all (-EUCLEAN: a damaged page),
 * they leave REDO together, and are tried again later (queue_damage.h). Such a failure concerns
 * that message alone, which is logged; storage counts as working.
 *
 * A submission is committed in the turn in which it was received, because its client waits, unless
 * recent commits had several submissions. Clients that got their answers together send their next
 * messages together. So the first of these waits for the others, for at most BATCH_GATHER_US, and
 * shares their sync. A batch without submissions waits for one for BATCH_WAIT_US: no client waits
 * for it, and a crash in that time repeats no more than a crash during the sync. A spool with
 * conclusions has no submissions and no sync to share, so its batches do not wait.
 *
 * If commits end later, both wait as long as the last commit took, if that is longer, up to
 * BATCH_SPACE_US. The slower the database is, the more it gains from fewer commits; an answer takes
 * at most about twice as long. If many submissions arrive during a commit, there are more clients
 * than the commit had. Then the next commit waits for more submissions, again as long as the last
 * one took.
 */
#ifndef QUEUE_BATCH_H
#define QUEUE_BATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "log.h"
#include "spool.h"
#include "times.h"
#include "waiting.h"

struct active_msg;
struct channel;
struct queue;
struct step;

#define BATCH_WAIT_US   (2 * US_PER_MS)
#define BATCH_GATHER_US 300
/* Commits with fewer submissions than this do not wait for more. */
#define BATCH_GATHER_MIN 4
/* Longest wait for a larger commit, if commits end later. */
#define BATCH_SPACE_US (16 * US_PER_MS)

/* The clients of a slower commit are asked to try again. The commit may still succeed: their mail
 * then exists twice, and is never lost. */
#define BATCH_PATIENCE_US (20 * US_PER_S)

/* Once a commit takes longer than BATCH_SLOW_US, this many submissions and bytes may wait to be
 * stored; further submissions are refused for now. */
#define BATCH_SLOW_US      (1 * US_PER_S)
#define BATCH_WAITING_MAX  1000
#define BATCH_WAITING_SIZE ((uint64_t)16 << 20)

/* Highest number of commits in flight, even if the spool allows more. */
#define BATCH_COMMITS_MAX 4
/* Number of submissions that begins a commit: more of them save little. If commits end later, a
 * commit costs the database more, and this number begins one while another is in flight. */
#define BATCH_ENOUGH       64
#define BATCH_ENOUGH_LATER 128

STAILQ_HEAD(step_list, step);

/* A commit in flight. */
struct batch_commit {
    struct step_list steps;
    struct step *redo;         /* owned; the repeated step, which is not in `steps`; NULL: none */
    int redo_rc;               /* the spool's result of applying `redo` */
    struct log_held log_lines; /* log lines to write at the end, if commits end later */
    struct mono begun;
    unsigned submissions;
};

/* Fields are private to batch.c. */
struct batch {
    struct step_list open;                            /* applied, not committed */
    struct batch_commit under_way[BATCH_COMMITS_MAX]; /* a ring of commits in flight */
    unsigned under_way_first, under_way_count;
    struct step_list waits; /* steps for data that is not loaded (spool_want) */
    struct step_list redo;  /* steps whose commit failed */
    bool redo_goes_on;      /* repeat steps now; false: when batch_redo is called */
    bool works;             /* a commit has succeeded since the last failure */
    bool redo_applies;      /* a step is being repeated, or its commit is in flight */
    bool failure_told;      /* the failure of commits was logged */
    bool is_busy;           /* ended commits are being handled */
    bool wanted;            /* batch_commit was called; no commit can begin yet */
    struct mono commit_by;  /* end of the wait of `open`; us 0: no wait */
    unsigned submissions;   /* number in `open` */
    unsigned usual_eighths; /* recent average of submissions per commit, in eighths */
    unsigned waiting;       /* number of submissions not stored yet */
    uint64_t waiting_size;  /* bytes of their content */
    bool is_full;           /* submissions were refused since a commit has ended */
    /* Clients were asked to try again, and no commit has ended since. No mail is accepted now:
     * clients would repeat again and again mail that is stored in the end. */
    bool is_late;
    bool gathers;     /* commit_by is the end of a submission's wait */
    bool is_spaced;   /* commit_by is the end of a wait for the many clients of a busy time */
    int64_t space_us; /* duration of the last commit, at most BATCH_SPACE_US; 0: commits end at
                         once */
    uint64_t commits; /* number since the start */
};

/* Ways in which a message leaves the active queue. */
enum pass_how {
    PASS_TRIED,   /* all pending recipients were tried, or their destinations are dead */
    PASS_UNTRIED, /* some recipients were not tried: the message continues at once */
    PASS_DROPPED, /* an operator ended its claim; results arrived nevertheless */
    PASS_PARKED,  /* all pending recipients wait for one destination: park_key */
    PASS_REPORT,  /* no recipient is pending: only bounces and notices are left */
};

/* The end of a pass: bounces and notices, expiry, then the message is deleted, parked or
 * deferred. */
struct pass_end {
    enum pass_how how;
    char *park_key;         /* owned; for PASS_PARKED */
    struct waiting waiting; /* owned; reasons of deferred recipients */
    bool moves;             /* some recipients move to other partitions */
};

/* Recipients that leave their message's pass and wait on disk. */
struct put_off {
    uint32_t *ns; /* owned; their numbers */
    size_t count;
    char *park_key; /* owned */
    struct wall until;
};

void batch_init(struct batch *b);

/* Drops the steps that wait in REDO or are in flight, which is logged. */
void batch_end(struct queue *q);

/* ---- steps ---------------------------------------------------------------------------------- */

/* Adds a submission that spool_submit has put into this batch, or `repeated`, into an earlier one.
 * `msg` is opened after the commit, or removed if it fails; NULL: the mail stays on disk. The
 * answer is sent to `from`. `replaces` is the entry whose recipients the submission has taken over
 * in this batch; 0: none. */
void batch_add_submission(struct queue *q, struct msg_id id, struct active_msg *msg,
                          struct channel *from, uint64_t token, bool repeated, uint64_t size,
                          uint64_t replaces);
/* Must a submission of `size` bytes be refused, because too many wait to be stored? Logged once. */
bool batch_is_full(struct queue *q, uint64_t size);

/* Adds the result of a recipient. The verdict's slices are copied. */
void batch_add_verdict(struct queue *q, struct msg_id id, uint32_t n,
                       const struct spool_verdict *v);

/* Adds the deletion of a message whose recipients were all delivered, without a notice. `name` is
 * its name for the log; empty: it is a part, and the message may have others. */
void batch_add_all_done(struct queue *q, struct msg_id id, const char *name);

/* Adds a step, which takes what `p` or `e` owns. */
void batch_add_put_off(struct queue *q, struct msg_id id, const struct put_off *p);
void batch_add_pass_end(struct queue *q, struct msg_id id, const struct pass_end *e);

/* Quarantines a message whose rows or content are damaged: drops it from memory and marks it as
 * corrupt. */
void queue_quarantine(struct queue *q, struct msg_id id, const char *reason);

/* Receives, once, the result of the open batch's commit: 0, or the negative errno with which all of
 * the batch was undone (spool_error has the text). If the process ends before the commit does, the
 * result is -ECANCELED. */
typedef void batch_ended(struct queue *q, void *arg, int rc);
void batch_add_waiter(struct queue *q, batch_ended *ended, void *arg);

/* Applies the steps that waited for data, if it is loaded now. */
void batch_at_hand(struct queue *q);

/* Drops and logs the waiting steps of a message that another node owns now. */
void batch_drop(struct queue *q, struct msg_id id);

/* ---- the commit ------------------------------------------------------------------------------ */

/* Handles commits that have ended, and begins the open batch's unless it should wait for more. Call
 * it once per turn. */
void batch_turn(struct queue *q);

/* Returns the time of the next batch_turn, even without events; MONO_NEVER: none is needed. */
struct mono batch_wake_at(const struct queue *q);

/* Commits the open batch, at once or as soon as the spool allows another commit. */
void batch_commit(struct queue *q);

/* Commits, and waits until no commit is in flight, or until no commit has ended for `wait_us`.
 * Returns false if one is still in flight. */
bool batch_drain(struct queue *q, int64_t wait_us);

/* Tries again to store the steps whose commit failed. Each has a batch of its own, so that one that
 * can't be stored does not block the others. */
void batch_redo(struct queue *q);

/* Do steps wait to be repeated? */
static inline bool batch_is_blocked(const struct batch *b)
{
    return !STAILQ_EMPTY(&b->redo) || b->redo_applies;
}

/* Has a commit not ended in time, so that clients should not wait for another one? */
static inline bool batch_is_late(const struct batch *b)
{
    return b->is_late;
}

/* Is nothing applied that is not durable yet? */
bool batch_is_idle(const struct queue *q);

/* Did the spool refuse only this call, so that the batch is unchanged? */
bool batch_refused(int rc);

/* Appends all of `steps`, which are taken, to the steps that are repeated. batch_redo begins. */
void batch_add_again(struct queue *q, struct step_list *steps);
void batch_free_steps(struct step_list *steps);

/* Calls `each` with the numbers of the recipients that were delivered according to `steps`; 0
 * stands for all recipients. */
void batch_each_delivery(const struct step_list *steps, void (*each)(void *arg, uint32_t n),
                         void *arg);
/* Appends to `steps` one that stores such deliveries of an earlier process: to the recipients `ns`,
 * or, if `count` is 0, to all that are pending. */
void batch_make_deliveries(struct msg_id id, const uint32_t *ns, size_t count,
                           struct step_list *steps);

/* Is there a step of this message? */
bool batch_has(const struct batch *b, struct msg_id id);

/* Keeps the submissions of a client that is gone, and sends no answers for them. */
void batch_forget_client(struct batch *b, const struct channel *client);

#endif
