/*
 * Commits that end later: a database on another machine confirms a commit some time after the
 * request, and the process continues meanwhile.
 *
 *     changes --> the open batch --spool_commit_begin--> in flight --spool_commit_end--> result
 *                     ^                                      |
 *                     +---- the next change opens another ---+
 *
 * Commits end in the order in which they began. When one fails, all later batches are undone with
 * it, the youngest first: the open batch, then those in flight, each of which then ends with
 * -ECANCELED. Claims are again as they were when the failed batch was opened.
 *
 * Reads see the open batch and the batches in flight. But spool_claim does not claim a message that
 * a batch in flight has changed, unless it is still claimed: later changes would rest on a change
 * that may be undone. (The process that writes may claim by key, as spool_claim_parked is a change
 * itself.)
 *
 * Every engine has these calls. If an engine lacks the part, a commit has ended when
 * spool_commit_begin returns, and spool_commit_end returns its result. Such an engine allows one
 * commit at a time.
 */
#ifndef SPOOL_SPOOL_COMMITS_H
#define SPOOL_SPOOL_COMMITS_H

#include "spool.h"

/* Begins to make the open batch durable, even one without changes. At most spool_commits_max
 * commits may be in flight. */
void spool_commit_begin(struct spool *sp);

/* Has the oldest commit ended whose result was not returned yet? Then *ret_rc is the result as of
 * spool_commit, and spool_error has the text of an error. */
bool spool_commit_end(struct spool *sp, int *ret_rc);

/* Does the pending work of an engine with this part without waiting. Rows that were requested
 * arrive here, too, announced by SPOOL_EVENT_READY. Call it when spool_commits_fd is readable, and
 * before spool_next_event. */
void spool_commits_turn(struct spool *sp);

/* Has the engine changes of its own to commit, even when no batch is open? */
bool spool_commit_is_wanted(const struct spool *sp);

/* Returns the number of commits that were begun and whose result was not returned yet, and the
 * highest such number: at least 1. */
unsigned spool_commits_under_way(const struct spool *sp);
unsigned spool_commits_max(const struct spool *sp);

/* Returns a descriptor that is readable when a commit may have ended; -1 if commits end at once. It
 * belongs to the engine; the caller only watches it. */
int spool_commits_fd(const struct spool *sp);

/* Waits until the oldest commit may have ended, for at most `wait_us`; for callers with nothing
 * else to do. Returns false if the time is over. */
bool spool_commits_wait(struct spool *sp, int64_t wait_us);

/* Functions of an engine with this part. */
struct spool_commits_part {
    /* Sends the open batch. An error is returned later by `end`, in the order of commits. */
    void (*begin)(struct spool *sp);
    /* Has the oldest commit ended? Called only with one in flight. On an error the engine has
     * undone the batches in flight and, by its `rollback`, the open batch, if there was one
     * (sp->dirty). The younger batches in flight end with -ECANCELED. */
    bool (*end)(struct spool *sp, int *ret_rc);
    int (*fd)(const struct spool *sp);
    void (*turn)(struct spool *sp);            /* NULL = no work */
    bool (*is_wanted)(const struct spool *sp); /* as spool_commit_is_wanted; NULL = never */
    /* spool_want; NULL = everything is loaded */
    int (*want)(struct spool *sp, struct msg_id id, bool content);
    unsigned max;
};

#endif
