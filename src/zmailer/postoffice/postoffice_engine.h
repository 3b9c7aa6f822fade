/*
 * The postoffice engine's parts: ZMailer's POSTOFFICE directory as a store.
 *
 *     transport/90417          control file: the envelope and what has become of it
 *     transport/A/R/90417      the same, hashed
 *     transport/.hold.90417    held by an operator; .damaged.90417: quarantined
 *     queue/90417              the message, at the same place
 *     public/, router/         how new mail is handed to the router
 *     postman/                 reports without a reader
 *
 * The files are the store. The router writes a control file once; agents mark recipients in it and
 * append diagnostics; this engine does as follows, and what a crash leaves after each step is:
 *
 *  1  `d` lines are appended, then the tags of recipients that no agent has marked are set, then
 *     the file is synced. A recipient with tag ' ' and a `d` line not yet reported counts as done:
 *     the line is written first because it is the one that can't be made again.
 *  2  Files are renamed to hold, release or set them aside, and their directories synced: mail that
 *     an operator was told is held does not go out after a power failure.
 *  3  What is for the router, reports and mail that it is to find new ways for, has been written
 *     and synced already; it is renamed into router/, and that directory is synced. Before that a
 *     crash repeats the pass; after it the report, or the mail, goes twice.
 *  4  `d` lines that the reports tell of get their '+', and so do recipients who went back to the
 *     router: theirs are the tags that step 1 must not set.
 *  5  transport/NAME is removed, then queue/NAME: a message without a control file is debris
 *     (of a kill, the next start removes it; see postoffice_removal.c). Not
 *     synced, but for mail that an operator removed: of what is done a power failure brings back a
 *     file in which all is done, as far as the steps before or the agents have synced it.
 *
 * Steps 1 to 3 can fail the batch. They can be made again: a second `d` line for the same recipient
 * changes nothing, and what was renamed already goes twice. What fails in 4 and 5 is told
 * and left to the next scan, which finds a file in which all is done and makes an end of it.
 *
 * A deferral is not written anywhere: ZMailer's files have no place for it.
 *
 *     postoffice_open.c     opening it, with what the configuration says
 *     postoffice_spool.c    the engine: its calls, changes of what is known
 *     postoffice_search.c   questions about many messages
 *     postoffice_table.c    what is known in memory
 *     postoffice_file.c     one control file: reading it, its locks
 *     postoffice_load.c     from a control file to the table, anew and again (resync)
 *     postoffice_work.c     what a batch does on disk
 *     postoffice_removal.c  what a kill between two removals leaves
 *     postoffice_content.c  a message's headers and body
 *     postoffice_scan.c     looking for files
 *     postoffice_notify.c   files that are announced
 *     postoffice_submit.c   handing mail to the router
 *     postoffice_reroute.c  handing a message's recipients back to it
 *     postoffice_verbose.c  a message's account of itself, for its sender
 */
#ifndef ZMAILER_POSTOFFICE_ENGINE_H
#define ZMAILER_POSTOFFICE_ENGINE_H

#include <limits.h>
#include <sys/types.h>

#include "postoffice.h"
#include "postoffice_table.h"
#include "spool_engine.h"
#include "told_events.h"

/* Larger control files are quarantined: a hundred bytes per recipient make this two million. */
#define POST_CONTROL_MAX ((size_t)256 << 20)
/* A path in transport/ or queue/, with its NUL: two letters, ".damaged.", NAME_MAX. */
#define POST_PATH_MAX 280

#define POST_HOLD    ".hold."
#define POST_DAMAGED ".damaged."

/* ---- postoffice_file.c ---- */

/* A control file as read. `reports` are its `d` lines that tell of an end and have not been
 * reported, in order of recipient and place. */
struct post_view {
    uint64_t number;
    TAILQ_ENTRY(post_view) by_use;
    uint64_t size; /* and time of the last change, as of reading */
    struct timespec changed;
    struct wall listed; /* ctime */
    char *bytes;        /* owned */
    struct control_file control;
    const struct control_diagnostic **reports; /* owned */
    size_t report_count;
};

/* What was read last, most recently used first. */
struct post_cache {
    TAILQ_HEAD(post_views, post_view) views;
    size_t bytes;
};

struct postoffice;

/* Read the control file at `path`. 0, -ENOENT, -EBADMSG (no control file, or damaged: *ret_reason
 * says why), or another error; in *ret_view, to be freed with view_free. */
int view_read(struct postoffice *po, const char *path, struct buf *ret_reason,
              struct post_view **ret_view);
void view_free(struct post_view *view);

/* The file's view, from the cache if it has it; `fresh`: unless its size has changed since. Lasts
 * until the next call. An error is told as an engine tells it. */
int view_of(struct postoffice *po, const struct post_file *file, bool fresh,
            struct post_view **ret_view);
void cache_init(struct post_cache *cache);
void cache_drop(struct post_cache *cache, uint64_t number);
void cache_fini(struct post_cache *cache);

/* The file is to be forgotten when no batch is open, and found anew if it is there. */
void forget_later(struct postoffice *po, uint64_t number);

/* The recipient's reports in the view, the oldest first; NULL when there is none. */
const struct control_diagnostic *const *view_reports(const struct post_view *view, uint64_t rcpt,
                                                     size_t *ret_count);

/* The end that a `d` line tells of; false when it tells of none ("delayed", or nothing). */
bool diagnostic_end(const struct control_diagnostic *d, enum spool_rcpt_state *ret_state);

/* The live process that has locked the recipient; 0: it is not locked, or the process is gone. */
int64_t lock_holder(const struct control_rcpt *r);

/* Where a file is: transport/, or queue/, of which the message file is never renamed. */
void post_control_path(const struct post_file *file, uint8_t state, char ret_path[POST_PATH_MAX]);
void post_path_of(struct slice path, const char *prefix, char ret_path[POST_PATH_MAX]);

/* ---- postoffice_work.c ---- */

/* A `d` line to be appended. */
struct post_note {
    uint32_t index; /* of the recipient */
    struct control_diagnostic d;
    char *bytes; /* owned: of d.notary and d.text */
};

struct post_mark {
    uint64_t offset;   /* of the recipient's line */
    char tag;          /* a new tag, or 0: */
    uint32_t warnings; /* the number of delay reports */
    bool handed;       /* written when the router files are safe */
};

/* What the open batch is to do to one file. */
struct post_work {
    struct post_file *file;
    struct post_note *notes; /* owned; in order of index, of one recipient in order of time */
    size_t note_count, note_size;
    struct post_mark *marks; /* owned */
    size_t mark_count, mark_size;
    uint64_t *reported; /* owned; offsets of recipients, in order */
    size_t reported_count, reported_size;
    bool removed;
    bool renamed;   /* during the commit: as file->f.state tells */
    uint8_t before; /* and as what it was */
    STAILQ_ENTRY(post_work) by_batch;
};

/* A file for the router. */
struct post_router_file {
    char from[POST_PATH_MAX]; /* in public/ */
    char to[POST_PATH_MAX];
    bool to_postman;
    bool sent;
    STAILQ_ENTRY(post_router_file) by_batch;
};

/* Of the open batch, made when there is none. */
struct post_work *work_on(struct postoffice *po, struct post_file *file);
void work_note(struct post_work *work, uint32_t index, const struct control_diagnostic *d);
void work_mark(struct post_work *work, uint64_t offset, char tag);
/* The marks from number `from` on are of recipients that a router file has taken along. */
void work_handed(struct post_work *work, size_t from);
void work_warnings(struct post_work *work, uint64_t offset, uint32_t warnings);
void work_reported(struct post_work *work, uint64_t offset);
/* The last note on a recipient; NULL when there is none. */
const struct post_note *work_noted(const struct post_work *work, uint32_t index);

int work_commit(struct postoffice *po);
/* Forget the batch's work. */
void work_drop(struct postoffice *po);

/* Mark one recipient now. */
int mark_now(struct postoffice *po, const char *path, const struct control_rcpt *r, char tag);
/* Append lines and sync them. */
int append_now(struct postoffice *po, const char *path, struct slice lines);
/* Remove a file's control and message file, in this order; what fails is told as an event. */
void remove_files(struct postoffice *po, const char *control_path, const char *message_path);

/* ---- postoffice_load.c ---- */

enum load_result {
    LOAD_DONE,        /* it is in the table, or has come to its end */
    LOAD_GONE,        /* there is no such file */
    LOAD_LOCKED,      /* a living process works on it: try again later */
    LOAD_SAME_NUMBER, /* another file has its number: try again later */
    LOAD_FAILED,      /* it can't be read now; told as an event */
};

/* Take in the control file at `path` in transport/ ("A/90417", "A/.hold.90417"). */
enum load_result load_file(struct postoffice *po, const char *path);
int load_again(struct postoffice *po, struct post_file *file);
/* "SPOOLID: complete (...)" of a file that is about to go. */
void tell_complete(struct postoffice *po, const struct post_file *file);
void post_spoolid(const struct post_file *file, char ret_text[CONTROL_SPOOLID_MAX]);
/* Take a file out of the table that has gone by itself, or is to be read anew; its holders are
 * told. */
void forget_file(struct postoffice *po, struct post_file *file);

/* Is it a control file's name, possibly of one that is held or quarantined? The state that it tells
 * (0, SPOOL_HOLD, SPOOL_CORRUPT) and the name without the prefix. */
bool control_name(struct slice name, uint8_t *ret_state, struct slice *ret_name);

/* ---- postoffice_open.c ---- */

void post_close(struct spool *sp);

/* ---- postoffice_spool.c ---- */

extern const struct spool_engine postoffice_engine;

/* The message, or a recipient of it; -ENOENT. */
int need_part(struct postoffice *po, struct msg_id id, struct post_part **ret_part);
int need_rcpt(struct postoffice *po, struct msg_id id, uint32_t n, struct post_part **ret_part,
              uint32_t *ret_index);

/* A recipient's end: to be reported, or POST_DONE. `tag` is what stands in the file, or will. */
void end_rcpt(struct postoffice *po, struct post_file *file, uint32_t index, uint8_t state,
              char tag);
/* One of several alternatives has ended. Success makes an end of the others; failure gives another
 * its turn, and is not to be reported then: *state is changed. */
void end_alternative(struct postoffice *po, struct post_file *file, uint32_t index,
                     const struct post_view *view, const struct control_rcpt *line, bool failed,
                     uint8_t *state);
/* A recipient whose turn has come as others of its class failed: mail of its own, due now. */
void start_alternative(struct postoffice *po, struct post_file *file, uint32_t index);
/* The root after its recipients changed: asleep, or due when its reports are. */
void arrange_root(struct postoffice *po, struct post_file *file);

/* ---- postoffice_scan.c ---- */

struct post_found {
    int64_t changed_us; /* ctime */
    char *path;         /* owned */
};

struct post_scan {
    void *dir;         /* of the directory that is being read; NULL: none */
    char at[8];        /* its path, "A/R/" */
    char (*unread)[8]; /* owned; directories to be read */
    size_t unread_count, unread_size;
    struct post_found *found; /* owned; files not yet known */
    size_t found_count, found_size, loaded;
    struct post_found *locked; /* owned; to be tried again at `changed_us` */
    size_t locked_count, locked_size;
    size_t failed; /* files that could not be read */
    int64_t began_us;
    int64_t next_us; /* when the next scan begins */
    bool busy;       /* a scan is under way: */
    bool reading;    /* directories, else loading what was found */
    bool cut;        /* the limits ended it before its end */
};

int scan_poll(struct postoffice *po, struct wall now, struct wall *ret_again);
/* Take in a file now; one that is locked is tried again later. */
void scan_take(struct postoffice *po, const char *path, struct wall now);
void scan_fini(struct post_scan *scan);

/* ---- postoffice_notify.c ---- */

int notify_open(struct postoffice *po, const char *path, struct buf *ret_error);
void notify_poll(struct postoffice *po, struct wall now);
/* Is it "90417", "R/90417" or "D/R/90417"? */
bool notify_path_ok(struct slice path);

/* ---- postoffice_submit.c ---- */

/* `as_it_is`: its lines end as in message files. */
int router_file_write(struct postoffice *po, struct msg_id id, const struct spool_new *n,
                      bool as_it_is);
int router_files_send(struct postoffice *po);
/* Forget those not sent. */
void router_files_drop(struct postoffice *po);

/* ---- postoffice_content.c ---- */

/* As spool_read_content, for the file's recipient `index`, or for none (rcpt_count). */
int original_read(struct postoffice *po, const struct post_file *file, uint32_t index,
                  struct buf *ret_bytes, int *ret_fd, uint64_t *ret_size);

/* ---- postoffice_reroute.c ---- */

/* As spool_reroute. */
int reroute_rcpts(struct spool *sp, struct msg_id id, const uint32_t *ns, size_t count,
                  size_t *ret_count);

/* ---- postoffice_verbose.c ---- */

void verbose_add(struct spool *sp, struct msg_id id, struct slice line);
void verbose_file(struct postoffice *po, const struct post_file *file, struct slice line);

/* ---- postoffice_search.c ---- */

int search_scan(struct spool *sp, const struct spool_filter *f, size_t max, struct msg_id *ret_ids,
                size_t *ret_count);
int search_count(struct spool *sp, const struct spool_filter *f, uint64_t *ret_count);
int search_destinations(struct spool *sp, size_t max, struct spool_destination *ret,
                        size_t *ret_count);
int search_oldest(struct spool *sp, const struct spool_destination *of, struct wall *ret_arrived);
int search_destinations_from(struct spool *sp, const struct spool_destination *from, size_t max,
                             struct spool_destination *ret, size_t *ret_count);
int search_parked_keys(struct spool *sp, struct slice after, size_t max, struct slice *ret_keys,
                       size_t *ret_count);
/* As filters compare addresses. */
uint32_t address_hash(struct slice address);

/* ---- postoffice_removal.c ---- */

/* This message file is about to be removed, after its control file. */
void removal_note(struct postoffice *po, const char *message_path);
/* At the start: remove the message file that the last process was about to remove when it was
 * killed. */
void removal_begin(struct postoffice *po);

/* ---- the engine ---- */

struct postoffice {
    struct spool base;
    struct postoffice_options options;
    char *texts_of_options[4];                           /* owned: strings in `options` */
    const struct spool_io *io;                           /* borrowed */
    int root, transport, queue, public, router, postman; /* directories */
    int removing;                                        /* postoffice_removal.c's record; -1 */
    bool one_device; /* removals of control and message files reach the disk in their order */
    struct post_table table;
    struct post_cache cache;
    STAILQ_HEAD(, post_work) works;
    STAILQ_HEAD(post_router_files, post_router_file) router_files;
    struct told_events events;
    struct post_scan scan;
    uint64_t *vanished; /* owned; numbers of files that were found to be gone */
    size_t vanished_count, vanished_size;
    struct wall now; /* the latest that was heard of */
    int notify;      /* the socket; -1 */
    int tell_router; /* a socket without a name, made before the process may make none; -1 */
    uint32_t router_file_count;
    char texts[1024]; /* of the message that was read last: path, spoolid */
};

static inline struct postoffice *postoffice_of(struct spool *sp)
{
    return (struct postoffice *)sp;
}

void post_tell(struct postoffice *po, enum spool_event_type type, uint64_t id, const char *format,
               ...) __attribute__((format(printf, 4, 5)));

#endif
