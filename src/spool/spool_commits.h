/*
 * Commits that end later: a database on another machine answers when it has stored, and the process
 * that asked does something else meanwhile.
 *
 *     changes --> the open batch --spool_commit_begin--> under way --spool_commit_end--> told how
 *                     ^                                      |                           it ended
 *                     +---- the next change opens another ---+
 *
 * Commits end in the order in which they began. When one fails, everything that came after it is
 * undone with it, the youngest first: the open batch, then those under way, each of which is told
 * next with -ECANCELED. Claims are then what they were when the batch of the failed one was opened.
 *
 * Reads see the open batch and those under way, but a message that one of these has changed is not
 * claimed (spool_claim) before its commit ended, unless it is claimed still: what is done to it
 * would rest on what may be undone. (The holder may claim by key, spool_claim_parked, which is a
 * change itself.)
 *
 * Every engine has these calls: where spool_engine.h's part is missing, a commit has ended when
 * spool_commit_begin returns, and spool_commit_end tells it. Such an engine bears one at a time.
 */
#ifndef SPOOL_SPOOL_COMMITS_H
#define SPOOL_SPOOL_COMMITS_H

#include "spool.h"

/* Begin to make the open batch durable (one without a change, too). At most spool_commits_max may
 * be under way. */
void spool_commit_begin(struct spool *sp);

/* Has the oldest commit that was not told yet ended? Then *ret_rc is as of spool_commit, and of an
 * error spool_error has the words. */
bool spool_commit_end(struct spool *sp, int *ret_rc);

/* Do what such an engine has to do, without waiting: what it reads comes, too, and is told by
 * SPOOL_EVENT_READY. To be called when spool_commits_fd is readable, and before the events are
 * asked for. */
void spool_commits_turn(struct spool *sp);

/* Has the engine something of its own for a commit, also when no batch is open? */
bool spool_commit_is_wanted(const struct spool *sp);

/* How many were begun and not told, and how many may be: at least 1. */
unsigned spool_commits_under_way(const struct spool *sp);
unsigned spool_commits_max(const struct spool *sp);

/* Readable when a commit may have ended; -1: they end at once. The engine's, to be watched only. */
int spool_commits_fd(const struct spool *sp);

/* Wait until the oldest commit may have ended, for at most `wait_us`; for those who have nothing
 * else to do. False: the time is over. */
bool spool_commits_wait(struct spool *sp, int64_t wait_us);

/* The part, as spool_engine.h wants it. */
struct spool_commits_part {
    /* The open batch goes under way. What prevents it is told by `end`, in its turn. */
    void (*begin)(struct spool *sp);
    /* Has the oldest ended? Called only with one under way. On an error the engine has undone what
     * is under way and, by its `rollback`, the batch that was open, if one was (sp->dirty); the
     * younger ones that were under way end with -ECANCELED. */
    bool (*end)(struct spool *sp, int *ret_rc);
    int (*fd)(const struct spool *sp);
    void (*turn)(struct spool *sp);            /* NULL: it has nothing to do */
    bool (*is_wanted)(const struct spool *sp); /* spool_commit_is_wanted; NULL: never */
    /* spool_want; NULL: all is at hand */
    int (*want)(struct spool *sp, struct msg_id id, bool content);
    unsigned max;
};

#endif
