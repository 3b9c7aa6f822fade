/*
 * One job of an agent: the recipients of one control file that are for it, from their locks to
 * their results. The control file is described in control_file.h, the lines to the scheduler in
 * ta.h.
 *
 *     ta_job_open                 read the file, lock the recipients of our channel and host
 *     ta_job_settle, one each     result: `d` line, tag, and the result line, which is kept
 *     ta_job_tell                 the tags are synced, the result lines are said
 *     ta_job_close                the same, and locks of those without a result are taken back
 *
 * The files are those of the current directory, POSTOFFICE/transport, and of ../queue. What stands
 * in a control file is hostile: every name and offset in it is checked, and nothing outside these
 * two directories is opened.
 *
 * What a crash leaves: before the tag, a lock, which the scheduler takes back when it finds its
 * process gone, and the recipient is tried again; so a delivery may happen twice, but none is lost.
 * After the tag, a recipient that is done, of which the scheduler learns when it reads the file
 * again. `d` line and final tags are on disk before the scheduler hears of the result: what it does
 * then (it reports, and removes the file) does not outlive a power cut that the tags have not.
 *
 * Two agents at one file: of ours, an advisory lock on the tag byte while it is changed lets one of
 * them win a recipient. ZMailer's own know no such lock, and agents of both kinds on one recipient
 * at the same moment would both have it; a scheduler gives a thread's recipients to one of them.
 *
 * ZMailer's own scheduler knows process ids of six digits (kernel.pid_max): the lock of a larger
 * one looks stale to it, not to ours.
 */
#ifndef ZMAILER_TA_JOB_H
#define ZMAILER_TA_JOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "control_file.h"
#include "slice.h"
#include "ta.h"
#include "ta_agent.h"
#include "times.h"

/* Hash directories and name. */
#define TA_JOB_PATH_MAX 272
/* Bytes of a notary; fields beyond are cut. */
#define TA_JOB_NOTARY_MAX 12288
/* Content is read in pieces of at most this size. */
#define TA_JOB_PIECE_MAX 65536

struct ta_job_rcpt {
    const struct control_rcpt *rcpt;
    bool settled;
};

/* Fields but those of the first block are private to ta_job.c. */
struct ta_job {
    struct control_file control; /* as it was before the locks */
    struct ta_job_rcpt *rcpts;   /* owned: those that are locked, in the order of the file */
    size_t rcpt_count;
    uint64_t number; /* that results go by */
    struct slice path;
    char spoolid[CONTROL_SPOOLID_MAX];
    struct wall arrived; /* when the message came */
    bool stuck; /* deliver no more of it now: its file can't be appended to, or its content made */

    struct ta_agent *agent;
    char *bytes;       /* owned: the control file; and the path */
    int file, message; /* descriptors */
    uint64_t message_size;
    bool torn;          /* the control file ends in part of a line */
    struct buf results; /* lines that are not said yet */
    bool unsynced;      /* there is a final tag among them */
};

/* Open the file of a job and lock what is ours. False when there is nothing to do, or it can't be
 * done: the scheduler was told to read the file again. */
bool ta_job_open(struct ta_job *job, struct ta_agent *agent, const struct ta_order *order);

/* Recipients without a result are unlocked. */
void ta_job_close(struct ta_job *job);

/* Recipients that get the same bytes from the same sender at the same host stand together: the end
 * of those that begin with `first`. */
size_t ta_job_run(const struct ta_job *job, size_t first);

/* Sender of recipient `i`: empty for a bounce. */
struct slice ta_job_sender(const struct ta_job *job, size_t i);

/* A word of an address: empty where "-" stands for that. */
struct slice ta_job_word(struct slice word);

enum ta_job_outcome {
    TA_JOB_DELIVERED, /* to its end */
    TA_JOB_RELAYED,   /* to a system that makes no reports of success */
    TA_JOB_PASSED,    /* to one that does, when it was asked for them */
    TA_JOB_FAILED,
    TA_JOB_DEFERRED,
    TA_JOB_DEFERRED_ALL, /* and nothing else of its thread now */
};

struct ta_job_result {
    enum ta_job_outcome outcome;
    struct slice status;     /* "5.1.1 (bad destination mailbox address)" */
    struct slice diagnostic; /* "x-local; 500 (no such user)" */
    struct slice remote;     /* "dns; mx.example", or empty */
    struct slice text;       /* for people; several lines are separated by CR */
};

/* Once for each recipient. The scheduler hears of it by ta_job_tell. */
void ta_job_settle(struct ta_job *job, size_t i, const struct ta_job_result *result);

/* The same for all that have none yet. */
void ta_job_settle_rest(struct ta_job *job, const struct ta_job_result *result);

/* Say the results so far, once their tags are on disk. To be called when the next result may take a
 * while; one call for many costs one sync. */
void ta_job_tell(struct ta_job *job);

/* What a recipient is to get: the headers of its group, an empty line, the body. Lines end as they
 * do in the files. */
struct ta_content {
    int fd; /* the message file; may be replaced by a copy of the descriptor */
    struct slice headers;
    uint64_t at; /* in the message file */
    enum { TA_CONTENT_HEADERS, TA_CONTENT_GAP, TA_CONTENT_BODY } next;
    char piece[TA_JOB_PIECE_MAX];
};

void ta_content_init(struct ta_content *c, const struct ta_job *job, size_t i);

/* How many bytes that will be. */
uint64_t ta_content_size(const struct ta_job *job, size_t i);

/* A mail_read of mail_file.h, for a struct ta_content. */
int ta_content_read(void *arg, struct slice *ret_piece);

#endif
