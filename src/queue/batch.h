/*
 * The batch: what becomes durable with the next commit of the spool.
 *
 * Each change of the spool that belongs to a message's way is a step. It is applied to the spool's
 * open batch when it arises, and kept until the end of its commit, so that it can be done again:
 *
 *   batch_add_x --> OPEN --batch_commit--> UNDER WAY --+--> committed: clients get their answers,
 *                    ^                     (a FIFO)     |    messages are opened
 *                    |                                  +--> undone, with all that came later:
 *                    |                                       submissions are refused, all other
 *       later, alone +-- REDO <------------------------------steps are done again
 *
 * A step about a message that the spool has not at hand (-EAGAIN) waits before it is applied, and
 * so does every later step of that message.
 *
 * How many commits can be under way, and whether they end at once, is the spool's matter
 * (spool_commits.h); while it bears no more the open batch grows. They are made durable one after
 * the other, so behind one that is under way another begins with BATCH_ENOUGH_LATER submissions
 * only: fewer are not earlier for being sent now, and a commit costs the database what 20 messages
 * do.
 *
 * Submissions are not done again, because their clients are refused for now. Results are, until
 * they are stored, because the mail has been delivered. While some wait in REDO (batch_is_blocked)
 * nothing new is accepted or delivered, so their number is bounded by what was being delivered;
 * results that come meanwhile wait behind them, as they may rest on them. They are done one by one,
 * each when the commit of the one before has ended. Those of a message that the spool can't store
 * at all (-EUCLEAN) leave REDO together, and are tried again later (queue_damage.h).
 *
 * A submission is committed in the turn it comes in, because its client waits for the answer,
 * unless commits have had several of late: clients that were answered together send their next
 * messages together, so the first of these waits for the others, BATCH_GATHER_US at most, and
 * shares their sync. A batch of results alone waits BATCH_WAIT_US for a submission: nothing depends
 * on it, and a crash in that time repeats what a crash in the sync would have repeated. A spool
 * that concludes has no submissions and no sync to share, so nothing waits.
 *
 * Where commits end later both wait as long as the last commit took, if that is longer, but not
 * longer than BATCH_SPACE_US: the slower the database is, the more it gains by fewer commits, and
 * an answer takes at most about twice as long for it. If many came while a commit was under way,
 * there are more clients than it had, and what has come waits for more at its end, for as long.
 */
#ifndef QUEUE_BATCH_H
#define QUEUE_BATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "buf.h"
#include "spool.h"
#include "times.h"
#include "waiting.h"

struct active_msg;
struct channel;
struct queue;
struct step;

#define BATCH_WAIT_US   (2 * US_PER_MS)
#define BATCH_GATHER_US 300
/* With fewer submissions in a commit there is nothing to wait for. */
#define BATCH_GATHER_MIN 4
/* Where commits end later: the most that is waited to fill one. */
#define BATCH_SPACE_US (16 * US_PER_MS)

/* The clients of a commit that takes longer are told to try again, though it may yet happen: their
 * mail is then there twice, and never lost. */
#define BATCH_PATIENCE_US (20 * US_PER_S)

/* While a commit has taken longer than this, at most so many submissions, of so many bytes, wait to
 * be stored; further ones are refused, to be tried again. */
#define BATCH_SLOW_US      (1 * US_PER_S)
#define BATCH_WAITING_MAX  1000
#define BATCH_WAITING_SIZE ((uint64_t)16 << 20)

/* Commits under way; a spool that bears more gets no more. */
#define BATCH_COMMITS_MAX 4
/* With so many submissions a commit begins: more of them save little. Where commits end later one
 * costs the database more, and it begins behind another then. */
#define BATCH_ENOUGH       64
#define BATCH_ENOUGH_LATER 128

STAILQ_HEAD(step_list, step);

/* A commit under way. */
struct batch_commit {
    struct step_list steps;
    struct step *redo;    /* owned: what it does again, beside them; or NULL */
    int redo_rc;          /* what the spool said to that */
    struct buf log_lines; /* of commits that end later: to be written then */
    struct mono begun;
    unsigned submissions;
};

/* Fields are private to batch.c. */
struct batch {
    struct step_list open;                            /* applied, not committed */
    struct batch_commit under_way[BATCH_COMMITS_MAX]; /* a ring; the oldest: */
    unsigned under_way_first, under_way_count;
    struct step_list waits; /* what they are about is not at hand yet (spool_want) */
    struct step_list redo;  /* their commit failed */
    bool redo_goes_on;      /* else batch_redo says when it is tried again */
    bool redo_stored;       /* some of it was */
    bool redo_applies;      /* a step is being done again, or its commit is under way */
    bool is_busy;           /* commits that have ended are being taken in */
    bool wanted;            /* batch_commit was called, and can't begin yet */
    struct mono commit_by;  /* what is in `open` waits no longer; us 0: nothing waits */
    unsigned submissions;   /* in `open` */
    unsigned usual_eighths; /* submissions of a commit of late, in eighths */
    unsigned waiting;       /* submissions that are not stored yet */
    uint64_t waiting_size;  /* their content; bytes */
    bool is_full;           /* some were refused since a commit has ended */
    /* Clients were told to try again, and nothing has ended since: no more is taken, as they would
     * try again and again what is stored in the end. */
    bool is_late;
    bool gathers;     /* commit_by is that of a submission */
    bool is_spaced;   /* it is that of a busy time */
    int64_t space_us; /* as long as the last commit took, BATCH_SPACE_US at most; 0: they end at
                         once */
    uint64_t commits; /* since start */
};

/* How a message leaves the active queue. */
enum pass_how {
    PASS_TRIED,   /* all that is pending was tried, or its destination is dead */
    PASS_UNTRIED, /* some of it was not: it goes on at once */
    PASS_DROPPED, /* an operator ended its claim; results came all the same */
    PASS_PARKED,  /* all that is pending waits for one destination: park_key */
    PASS_REPORT,  /* nothing is pending: all that is left is to report */
};

/* The end of a pass: reports, expiry, then the message is deleted, parked or deferred. */
struct pass_end {
    enum pass_how how;
    char *park_key;         /* owned: of PASS_PARKED */
    struct waiting waiting; /* owned: what was deferred */
    bool moves;             /* some of it, to other partitions */
};

/* Recipients leave their message and wait by themselves. */
struct put_off {
    uint32_t *ns; /* owned: their numbers */
    size_t count;
    char *park_key; /* owned */
    struct wall until;
};

void batch_init(struct batch *b);

/* What waits in REDO, or is under way still, is lost; logged. */
void batch_end(struct queue *q);

/* ---- steps ---------------------------------------------------------------------------------- */

/* What spool_submit has put into the batch, or into an earlier one (`repeated`). `msg` is opened
 * after the commit, or removed when it fails; NULL: the mail stays on disk. The answer goes to
 * `from`. */
void batch_add_submission(struct queue *q, struct msg_id id, struct active_msg *msg,
                          struct channel *from, uint64_t token, bool repeated, uint64_t size);
/* Too much waits to be stored as to take a submission of `size` bytes; logged once. */
bool batch_is_full(struct queue *q, uint64_t size);

/* What became of a recipient. The verdict's slices are copied. */
void batch_add_verdict(struct queue *q, struct msg_id id, uint32_t n,
                       const struct spool_verdict *v);

/* Every recipient was delivered and none is reported: the message is deleted. `name` is for the
 * log; empty: it is a part, and the message may have others. */
void batch_add_all_done(struct queue *q, struct msg_id id, const char *name);

/* Take what `p` and `e` own. */
void batch_add_put_off(struct queue *q, struct msg_id id, const struct put_off *p);
void batch_add_pass_end(struct queue *q, struct msg_id id, const struct pass_end *e);

/* Quarantine a message, whose rows or content make no sense: it leaves memory and becomes
 * corrupt. */
void queue_quarantine(struct queue *q, struct msg_id id, const char *reason);

/* Call `ended` when the commit of the open batch has ended, with 0 or the negative errno with which
 * all of it was undone (spool_error has the words). It is called once, even if the process stops
 * before: then with -ECANCELED, and the role is ending. */
typedef void batch_ended(struct queue *q, void *arg, int rc);
void batch_add_waiter(struct queue *q, batch_ended *ended, void *arg);

/* Steps that waited for what was not at hand are applied, as far as it is now. */
void batch_at_hand(struct queue *q);

/* A message is another's now: what waits to be stored about it is dropped, and logged. */
void batch_drop(struct queue *q, struct msg_id id);

/* ---- the commit ------------------------------------------------------------------------------ */

/* Take in commits that have ended, and begin the open batch's unless it is better left for a later
 * turn. Once a turn. */
void batch_turn(struct queue *q);

/* When that is to be done, though nothing happens; MONO_NEVER: nothing is to be done. */
struct mono batch_wake_at(const struct queue *q);

/* Commit what is in the open batch, at once or as soon as the spool bears another commit. */
void batch_commit(struct queue *q);

/* Commit, and wait until nothing is under way; while nothing ends, at most so long. False:
 * something still is. */
bool batch_drain(struct queue *q, int64_t wait_us);

/* Try again to store steps whose commit failed, each in a batch of its own, so that one that can't
 * be stored does not hold up the others. */
void batch_redo(struct queue *q);

/* Do steps wait to be done again? */
static inline bool batch_is_blocked(const struct batch *b)
{
    return !STAILQ_EMPTY(&b->redo) || b->redo_applies;
}

/* Does a commit not end, so that no client is to wait for another one? */
static inline bool batch_is_late(const struct batch *b)
{
    return b->is_late;
}

/* Is anything applied that is not durable yet? */
bool batch_is_idle(const struct queue *q);

/* Did the spool refuse this call alone, leaving the batch as it was? */
bool batch_refused(int rc);

/* What could not be stored is done again, behind what is done again already: all of `steps`, which
 * are taken. batch_redo begins. */
void batch_add_again(struct queue *q, struct step_list *steps);
void batch_free_steps(struct step_list *steps);

/* Is there a step of this message? */
bool batch_has(const struct batch *b, struct msg_id id);

/* The client is gone: its submissions are committed all the same, and not answered. */
void batch_forget_client(struct batch *b, const struct channel *client);

#endif
