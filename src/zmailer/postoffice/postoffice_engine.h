/*
 * Internal declarations of the postoffice engine: ZMailer's POSTOFFICE directory as a store.
 *
 *     transport/90417          control file: the envelope and the results
 *     transport/A/R/90417      the same, hashed
 *     transport/.hold.90417    held by an operator; .damaged.90417: quarantined
 *     queue/90417              the message, with the same path
 *     public/, router/         new mail on its way to the router
 *     postman/                 reports without a reader
 *
 * The files are the store. The router writes a control file once; agents mark recipients in it and
 * append diagnostics. This engine makes the following changes; a crash leaves each step as
 * described:
 *
 *  1  `d` lines are appended, then the tags of recipients that no agent has marked are set, then
 *     the file is synced. A recipient with tag ' ' and a `d` line that was not reported yet counts
 *     as done: the line is written first because it could not be made again.
 *  2  Files are renamed to hold, release or quarantine them, and their directories synced: mail
 *     that an operator holds must not be delivered after a power failure.
 *  3  Files for the router (reports, and mail that needs new routes) are written and synced before
 *     the commit. Now they are renamed into router/, and that directory is synced. A crash before
 *     this step repeats the pass; a crash after it sends the report, or the mail, twice.
 *  4  `d` lines that were reported get their '+', and recipients that were returned to the router
 *     get theirs; step 1 leaves out the tags of the latter.
 *  5  transport/NAME is removed, then queue/NAME: a message without a control file is debris
 *     (after a kill the next start removes it; see postoffice_removal.c). The removal is not
 *     synced, except for mail that an operator removed: after a power failure a finished file may
 *     reappear, with all recipients done as far as the steps before or the agents have synced it.
 *
 * Steps 1 to 3 can fail the batch and can be repeated: a second `d` line for the same recipient
 * changes nothing, and a file that was already renamed is sent twice. Errors in steps 4 and 5 are
 * reported as events and left to the next scan, which finds a file with all recipients done and
 * ends it.
 *
 * A deferral is not written anywhere: ZMailer's files have no place for it.
 *
 *     postoffice_open.c     opening and closing, configuration
 *     postoffice_spool.c    the engine: its calls, changes of the table
 *     postoffice_search.c   queries about many messages
 *     postoffice_table.c    the data in memory
 *     postoffice_file.c     one control file: reading it, its locks
 *     postoffice_load.c     from a control file to the table, first and later (resync)
 *     postoffice_work.c     a batch's changes on disk
 *     postoffice_removal.c  cleaning up after a kill between two removals
 *     postoffice_content.c  a message's headers and body
 *     postoffice_scan.c     searching the directories for files
 *     postoffice_notify.c   announced files
 *     postoffice_submit.c   handing mail to the router
 *     postoffice_reroute.c  returning a message's recipients to the router
 *     postoffice_verbose.c  a message's log file for its sender
 */
#ifndef ZMAILER_POSTOFFICE_ENGINE_H
#define ZMAILER_POSTOFFICE_ENGINE_H

#include <limits.h>
#include <sys/types.h>

#include "postoffice.h"
#include "postoffice_table.h"
#include "spool_engine.h"
#include "told_events.h"

/* Largest control file in bytes; a larger one is quarantined. At a hundred bytes per recipient it
 * has two million. */
#define POST_CONTROL_MAX ((size_t)256 << 20)
/* Longest path in transport/ or queue/, with its NUL: two letters, ".damaged.", NAME_MAX. */
#define POST_PATH_MAX 280

#define POST_HOLD    ".hold."
#define POST_DAMAGED ".damaged."

/* ---- postoffice_file.c ---- */

/* A control file as it was read. `reports` are its `d` lines with a final result that were not
 * reported yet, in the order of recipients and offsets. */
struct post_view {
    uint64_t number;
    TAILQ_ENTRY(post_view) by_use;
    uint64_t size; /* size and time of change when it was read */
    struct timespec changed;
    struct wall listed; /* ctime */
    char *bytes;        /* owned */
    struct control_file control;
    const struct control_diagnostic **reports; /* owned */
    size_t report_count;
};

/* Views that were read recently, most recently used first. */
struct post_cache {
    TAILQ_HEAD(post_views, post_view) views;
    size_t bytes;
};

struct postoffice;

/* Reads the control file at `path`. Returns 0 with *ret_view, which the caller frees with
 * view_free; -ENOENT; -EBADMSG with *ret_reason if the file is no control file or damaged; or
 * another error. */
int view_read(struct postoffice *po, const char *path, struct buf *ret_reason,
              struct post_view **ret_view);
void view_free(struct post_view *view);

/* Returns the file's view in *ret_view, from the cache if possible; `fresh`: only if its size and
 * time have not changed since. The view is valid until the next call. Returns errors as an engine
 * does. */
int view_of(struct postoffice *po, const struct post_file *file, bool fresh,
            struct post_view **ret_view);
void cache_init(struct post_cache *cache);
void cache_drop(struct post_cache *cache, uint64_t number);
void cache_fini(struct post_cache *cache);

/* Notes that the file must be forgotten when no batch is open; a later scan finds it again if it
 * exists. */
void forget_later(struct postoffice *po, uint64_t number);

/* Returns the recipient's reports in the view, the oldest first, or NULL if there are none. */
const struct control_diagnostic *const *view_reports(const struct post_view *view, uint64_t rcpt,
                                                     size_t *ret_count);

/* Finds the final state in a `d` line. Returns false if the line has none ("delayed", or
 * nothing). */
bool diagnostic_end(const struct control_diagnostic *d, enum spool_rcpt_state *ret_state);

/* Returns the live process that has locked the recipient, or 0 if there is none. */
int64_t lock_holder(const struct control_rcpt *r);

/* Writes the path of a file in transport/ for a state. With state 0 it is also the path in queue/,
 * where files are never renamed. */
void post_control_path(const struct post_file *file, uint8_t state, char ret_path[POST_PATH_MAX]);
void post_path_of(struct slice path, const char *prefix, char ret_path[POST_PATH_MAX]);

/* ---- postoffice_work.c ---- */

/* A `d` line that must be appended. */
struct post_note {
    uint32_t index; /* index of the recipient */
    struct control_diagnostic d;
    char *bytes; /* owned: bytes of d.notary and d.text */
};

struct post_mark {
    uint64_t offset;   /* offset of the recipient's line */
    char tag;          /* new tag; 0: only `warnings` are written */
    uint32_t warnings; /* number of delay reports */
    bool handed;       /* written after the router files are safe */
};

/* Changes of the open batch to one file. */
struct post_work {
    struct post_file *file;
    struct post_note *notes; /* owned; in the order of recipients, for one recipient in the order of
                              * time */
    size_t note_count, note_size;
    struct post_mark *marks; /* owned */
    size_t mark_count, mark_size;
    uint64_t *reported; /* owned; offsets of recipients, in order */
    size_t reported_count, reported_size;
    bool removed;
    bool renamed;   /* renamed during this commit, as file->f.state requires */
    uint8_t before; /* state in the name before the renaming */
    STAILQ_ENTRY(post_work) by_batch;
};

/* A file for the router. */
struct post_router_file {
    char from[POST_PATH_MAX]; /* path in public/ */
    char to[POST_PATH_MAX];
    bool to_postman;
    bool sent;
    STAILQ_ENTRY(post_router_file) by_batch;
};

/* Returns the open batch's work on a file, made if it is missing. */
struct post_work *work_on(struct postoffice *po, struct post_file *file);
void work_note(struct post_work *work, uint32_t index, const struct control_diagnostic *d);
void work_mark(struct post_work *work, uint64_t offset, char tag);
/* Notes that the marks from index `from` on are of recipients in a router file. */
void work_handed(struct post_work *work, size_t from);
void work_warnings(struct post_work *work, uint64_t offset, uint32_t warnings);
void work_reported(struct post_work *work, uint64_t offset);
/* Returns the last note on a recipient, or NULL. */
const struct post_note *work_noted(const struct post_work *work, uint32_t index);

int work_commit(struct postoffice *po);
/* Discards the work of the batch. */
void work_drop(struct postoffice *po);

/* Marks one recipient at once. Returns 0 or negative errno. */
int mark_now(struct postoffice *po, const char *path, const struct control_rcpt *r, char tag);
/* Appends lines and syncs them. Returns 0 or negative errno. */
int append_now(struct postoffice *po, const char *path, struct slice lines);
/* Removes a file's control file, then its message file. Errors are reported as events. */
void remove_files(struct postoffice *po, const char *control_path, const char *message_path);

/* ---- postoffice_load.c ---- */

enum load_result {
    LOAD_DONE,        /* the file is in the table, or is finished */
    LOAD_GONE,        /* the file does not exist */
    LOAD_LOCKED,      /* a living process works on it: load it again after LOAD_LOCKED_US. If it is
                       * in the table, it is parked there until then */
    LOAD_SAME_NUMBER, /* another file has the same number: try again later */
    LOAD_FAILED,      /* the file can't be read now; reported as an event */
};

#define LOAD_LOCKED_US (32 * US_PER_S)

/* Loads the control file at `path` in transport/ ("A/90417", "A/.hold.90417"). */
enum load_result load_file(struct postoffice *po, const char *path);
int load_again(struct postoffice *po, struct post_file *file);
/* Reports "SPOOLID: complete (...)" for a file that is about to be removed. */
void tell_complete(struct postoffice *po, const struct post_file *file);
void post_spoolid(const struct post_file *file, char ret_text[CONTROL_SPOOLID_MAX]);
/* Removes a file from the table that has vanished or must be loaded again; reports that to the
 * holders of claims. */
void forget_file(struct postoffice *po, struct post_file *file);

/* Is it the name of a control file, perhaps held or quarantined? Returns the state in the name (0,
 * SPOOL_HOLD, SPOOL_CORRUPT) and the name without its prefix. */
bool control_name(struct slice name, uint8_t *ret_state, struct slice *ret_name);

/* ---- postoffice_open.c ---- */

void post_close(struct spool *sp);

/* ---- postoffice_spool.c ---- */

extern const struct spool_engine postoffice_engine;

/* Finds a message, or a recipient of one. Returns -ENOENT if it does not exist. */
int need_part(struct postoffice *po, struct msg_id id, struct post_part **ret_part);
int need_rcpt(struct postoffice *po, struct msg_id id, uint32_t n, struct post_part **ret_part,
              uint32_t *ret_index);

/* Ends a recipient: `state` is that of a recipient with a due report, or POST_DONE. `tag` is its
 * tag in the file, now or later. */
void end_rcpt(struct postoffice *po, struct post_file *file, uint32_t index, uint8_t state,
              char tag);
/* Ends one of several alternatives. After a success the others end, too. After a failure another
 * one is tried if there is one; the failure is then not reported, and *state is changed. */
void end_alternative(struct postoffice *po, struct post_file *file, uint32_t index,
                     const struct post_view *view, const struct control_rcpt *line, bool failed,
                     uint8_t *state);
/* Starts an alternative after others of its class have failed: its recipient becomes a new message,
 * due now. */
void start_alternative(struct postoffice *po, struct post_file *file, uint32_t index);
/* Updates the root after a change of its recipients: makes it dormant, or due when its reports
 * are. */
void arrange_root(struct postoffice *po, struct post_file *file);

/* ---- postoffice_scan.c ---- */

struct post_found {
    int64_t changed_us; /* ctime */
    char *path;         /* owned; path in transport/ */
};

struct post_scan {
    void *dir;         /* stream of the directory that is being read; NULL: none */
    char at[8];        /* path of that directory, "A/R/" */
    char (*unread)[8]; /* owned; directories that must still be read */
    size_t unread_count, unread_size;
    struct post_found *found; /* owned; files that are not loaded yet */
    size_t found_count, found_size, loaded;
    struct post_found *locked; /* owned; locked files, tried again at `changed_us` */
    size_t locked_count, locked_size;
    size_t failed; /* number of files that could not be read */
    int64_t began_us;
    int64_t next_us; /* start of the next scan */
    bool busy;       /* a scan is running */
    bool reading;    /* the scan reads directories; otherwise it loads files */
    bool cut;        /* the limits ended the scan early */
};

int scan_poll(struct postoffice *po, struct wall now, struct wall *ret_again);
/* Loads a file now; a locked file is tried again later. */
void scan_take(struct postoffice *po, const char *path, struct wall now);
void scan_fini(struct post_scan *scan);

/* ---- postoffice_notify.c ---- */

/* Binds the socket. An error is reported as an event; the scan then finds the files. */
void notify_open(struct postoffice *po, const char *path);
void notify_poll(struct postoffice *po, struct wall now);
/* Is it "90417", "R/90417" or "D/R/90417"? */
bool notify_path_ok(struct slice path);

/* ---- postoffice_submit.c ---- */

/* Writes a file for the router, and its name to po->texts. `as_it_is`: the content has the line
 * ends of message files. */
int router_file_write(struct postoffice *po, struct msg_id id, const struct spool_new *n,
                      bool as_it_is);
int router_files_send(struct postoffice *po);
/* Discards files that were not sent. */
void router_files_drop(struct postoffice *po);

/* ---- postoffice_content.c ---- */

/* Reads content as spool_read_content does, for the file's recipient `index`, or for none
 * (rcpt_count). */
int original_read(struct postoffice *po, const struct post_file *file, uint32_t index,
                  struct buf *ret_bytes, int *ret_fd, uint64_t *ret_size);

/* ---- postoffice_reroute.c ---- */

/* Reroutes recipients as spool_reroute does. */
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
/* Returns the hash by which filters compare addresses. */
uint32_t address_hash(struct slice address);

/* ---- postoffice_removal.c ---- */

/* Records that this message file is about to be removed, after its control file. */
void removal_note(struct postoffice *po, const char *message_path);
/* Removes the message file that the previous process was about to remove when it was killed. Called
 * at the start. */
void removal_begin(struct postoffice *po);

/* ---- the engine ---- */

struct postoffice {
    struct spool base;
    struct postoffice_options options;
    char *texts_of_options[4];                           /* owned: strings in `options` */
    const struct spool_io *io;                           /* borrowed */
    int root, transport, queue, public, router, postman; /* descriptors of directories */
    int removing;                                        /* descriptor of postoffice_removal.c's
                                                          * record; -1 */
    bool one_device; /* control and message files are on one file system, so that removals reach the
                      * disk in order */
    struct post_table table;
    struct post_cache cache;
    STAILQ_HEAD(, post_work) works;
    STAILQ_HEAD(post_router_files, post_router_file) router_files;
    struct told_events events;
    struct post_scan scan;
    uint64_t *vanished; /* owned; numbers of files that have vanished */
    size_t vanished_count, vanished_size;
    struct wall now; /* latest time that a caller has passed */
    int notify;      /* descriptor of the socket; -1 */
    int tell_router; /* unnamed socket, made at the start because the process can make none later;
                      * -1 */
    uint32_t router_file_count;
    char texts[1024]; /* name of the message that was read or submitted last */
};

static inline struct postoffice *postoffice_of(struct spool *sp)
{
    return (struct postoffice *)sp;
}

void post_tell(struct postoffice *po, enum spool_event_type type, uint64_t id, const char *format,
               ...) __attribute__((format(printf, 4, 5)));

#endif
