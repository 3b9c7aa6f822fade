/*
 * One job of an agent: the agent's recipients in one control file, from lock to result. The control
 * file is described in control_file.h, the lines to the scheduler in ta.h.
 *
 *     ta_job_open                 reads the file, locks the recipients of our channel and host
 *     ta_job_settle, one each     writes the `d` line and the tag, keeps the result line
 *     ta_job_tell                 syncs the tags, then sends the result lines
 *     ta_job_close                does ta_job_tell, and unlocks recipients without a result
 *
 * Files are opened in the current directory, POSTOFFICE/transport, and in ../queue. Control files
 * are hostile input: every name and offset in them is checked, and nothing outside these two
 * directories is opened.
 *
 * After a crash before the tag is written, the lock remains. The scheduler removes the lock when it
 * finds that the process is gone, and the recipient is tried again: a delivery may happen twice,
 * but no mail is lost. After a crash after the tag, the recipient is done, and the scheduler
 * learns of it when it reads the file again. The `d` line and final tags are on disk before the
 * scheduler gets the result, because its next steps (the report, the removal of the file) must not
 * survive a power cut without them.
 *
 * Two agents may open one file. Agents of this package hold an advisory lock on the tag byte while
 * they change it, so only one of them gets a recipient. ZMailer's own agents ignore this lock: two
 * agents of both kinds could deliver one recipient at the same moment. A scheduler prevents that by
 * giving a thread's recipients to one agent.
 *
 * ZMailer's own scheduler supports process ids of six digits (kernel.pid_max) only. It takes the
 * lock of a longer one for stale; ours does not.
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

/* Longest path: hash directories and name. */
#define TA_JOB_PATH_MAX 272
/* Longest notary in bytes; longer fields are cut. */
#define TA_JOB_NOTARY_MAX 12288
/* Largest piece of content. */
#define TA_JOB_PIECE_MAX 65536

struct ta_job_rcpt {
    const struct control_rcpt *rcpt;
    bool settled;
};

/* Members after the first block are private to ta_job.c. */
struct ta_job {
    struct control_file control; /* the control file as it was before the locks */
    struct ta_job_rcpt *rcpts;   /* owned: the locked recipients, in the order of the file */
    size_t rcpt_count;
    uint64_t number; /* number of the job in result lines */
    struct slice path;
    char spoolid[CONTROL_SPOOLID_MAX];
    struct wall arrived; /* arrival of the message */
    bool stuck; /* deliver no more of this job now, because its file can't be appended to or its
                 * content can't be made */

    struct ta_agent *agent;
    char *bytes;       /* owned: the bytes of the control file and its path */
    int file, message; /* file descriptors */
    uint64_t message_size;
    bool torn;          /* the control file ends in an incomplete line */
    struct buf results; /* result lines that were not sent yet */
    bool unsynced;      /* a final tag was written and not synced */
};

/* Opens the file of a job and locks the recipients that are ours. Returns false if the job has
 * nothing to do or fails; the scheduler was then asked to read the file again. */
bool ta_job_open(struct ta_job *job, struct ta_agent *agent, const struct ta_order *order);

/* Sends the remaining results and unlocks recipients without a result. */
void ta_job_close(struct ta_job *job);

/* Returns the end of the run that begins with recipient `first`: recipients with the same content,
 * sender and host, which are adjacent. */
size_t ta_job_run(const struct ta_job *job, size_t first);

/* Returns the sender of recipient `i`: empty for a bounce. */
struct slice ta_job_sender(const struct ta_job *job, size_t i);

/* Returns a word of an address: empty if the word is "-". */
struct slice ta_job_word(struct slice word);

enum ta_job_outcome {
    TA_JOB_DELIVERED, /* final delivery */
    TA_JOB_RELAYED,   /* handed to a system that sends no success reports */
    TA_JOB_PASSED,    /* handed to a system that sends success reports on request */
    TA_JOB_FAILED,
    TA_JOB_DEFERRED,
    TA_JOB_DEFERRED_ALL, /* deferred, with all other mail of its thread */
};

struct ta_job_result {
    enum ta_job_outcome outcome;
    struct slice status;     /* "5.1.1 (bad destination mailbox address)" */
    struct slice diagnostic; /* "x-local; 500 (no such user)" */
    struct slice remote;     /* "dns; mx.example"; may be empty */
    struct slice text;       /* for people; lines are separated by CR */
};

/* Settles a recipient; called once for each. ta_job_tell sends the result to the scheduler. */
void ta_job_settle(struct ta_job *job, size_t i, const struct ta_job_result *result);

/* Settles all recipients that have no result yet. */
void ta_job_settle_rest(struct ta_job *job, const struct ta_job_result *result);

/* Syncs the tags of the results so far, then sends these results. Called when the next result may
 * take a while; one call for many results costs one sync. */
void ta_job_tell(struct ta_job *job);

/* Content of a recipient: the headers of its group, an empty line, the body. Lines end as they do
 * in the files. */
struct ta_content {
    int fd; /* descriptor of the message file; the owner may replace it by a duplicate */
    struct slice headers;
    uint64_t at; /* read offset in the message file */
    enum { TA_CONTENT_HEADERS, TA_CONTENT_GAP, TA_CONTENT_BODY } next;
    char piece[TA_JOB_PIECE_MAX];
};

void ta_content_init(struct ta_content *c, const struct ta_job *job, size_t i);

/* Reads the next piece: a mail_read of mail_file.h whose argument is a struct ta_content. */
int ta_content_read(void *arg, struct slice *ret_piece);

#endif
