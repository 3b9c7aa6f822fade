/*
 * Internal interface of the engine of Postfix's queue directory; postfix_spool.h describes the
 * whole.
 *
 *     postfix_open.c    opening, with the parameters of the configuration
 *     postfix_spool.c   the engine: its calls, and the batch
 *     postfix_look.c    scans; taking files into active/
 *     postfix_read.c    a file's envelope and pages of its recipients, and their routes
 *     postfix_pass.c    the end of a pass, with the services
 *     postfix_search.c  searches: lists, counts, destinations
 *     postfix_known.c   requested mail on disk, and operators' changes of it
 *     postfix_paused.c  paused mail on disk
 */
#ifndef POSTFIX_STORE_H
#define POSTFIX_STORE_H

#include <sys/queue.h>

#include "hash.h"
#include "postfix_spool.h"
#include "queue_dir.h"
#include "queue_file.h"
#include "services.h"
#include "spool_engine.h"
#include "text_pool.h"
#include "told_events.h"

/* Pause after an error of the disk. */
#define STORE_AGAIN_US (60 * US_PER_S)
/* Limit of names that one poll reads in each queue. */
#define STORE_SCAN_NAMES 200
/* Limit of messages of each queue that one poll takes: each takes about 50 us, in which no agent is
 * served. */
#define STORE_SCAN_TAKEN 8
/* Limit of messages in active/ that are not claimed: enough to keep the resolver busy. */
#define STORE_AHEAD_MAX 200
/* Limit of recipients of a file that are read at once, as in Postfix. */
#define STORE_READ_MAX 5000

/*
 *   ASKED --> ROUTED --> DEFERRED --commit--> KEPT (while it is pinned) --> OUT
 *     |          |
 *     |          +--> OUT: done, or skipped, or discarded
 *     +-------------> OUT
 *
 * A rollback makes the recipients that the batch has settled ROUTED again.
 */
enum store_rcpt_state {
    STORE_RCPT_ASKED,
    STORE_RCPT_ROUTED,
    STORE_RCPT_DEFERRED, /* by the open batch: not tried again in this activation */
    STORE_RCPT_KEPT,     /* as DEFERRED, but committed */
    STORE_RCPT_OUT,      /* leaves memory, with the open batch at the latest */
};

/* A recipient in memory. It is small, as there may be qmgr_message_recipient_limit of these;
 * read_rcpt_show returns its texts. */
struct store_rcpt {
    uint64_t offset; /* of its record in the file */
    char *texts;     /* owned; address in the file, dsn_original, and original if it is another;
                      * NULL = the recipient has left memory */
    char *route;     /* owned; transport, nexthop, and recipient if it is another than the address;
                      * NULL = not routed yet */
    uint32_t n;
    uint32_t notify;
    uint32_t address_len, original_len, dsn_original_len;
    uint32_t transport_len, nexthop_len, recipient_len;
    bool is_original;  /* the address is the original one */
    bool is_recipient; /* the address is the recipient */
    bool pinned;       /* by postfix_pin */
    enum store_rcpt_state state : 8;
};

enum store_state { STORE_ROUTING, STORE_CLAIMED, STORE_CONCLUDING, STORE_LEAVING };

/* Action of the commit on a message. */
enum store_exit {
    STORE_STAYS,
    STORE_CONCLUDES,
    STORE_TO_DEFERRED,
    STORE_TO_INCOMING,
    STORE_TO_HOLD,
    STORE_TO_CORRUPT,
    STORE_TO_MAILDROP, /* to pickup(8), which submits it as another message */
    STORE_REMOVED,     /* done */
    STORE_REMOVED_BY,  /* by an operator, with its logs */
};

/* A message in active/. */
struct store_message {
    struct msg_id id;
    UT_hash_handle by_id, by_name;
    enum store_state state;
    enum store_exit exit;                /* of the open batch; in STORE_LEAVING the action that is
                                          * being tried */
    struct postfix_message told;         /* its queue_id and envelope point into this struct */
    struct queue_file_envelope envelope; /* owned */
    struct wall due;                     /* valid when it concludes or leaves */
    struct wall ready;                   /* time from which it could be claimed */
    struct store_rcpt *rcpts;            /* owned; in order of n */
    size_t rcpt_count, rcpt_size, rcpts_out;
    uint32_t pending;                /* recipients in the file that are not done, read or not */
    uint32_t unrouted;               /* number of recipients in memory without a route */
    uint32_t pinned;                 /* number of pinned recipients */
    struct queue_file_cursor behind; /* cursor after the last recipient that was read */
    uint32_t unread;                 /* number of pending recipients after that cursor */
    bool from_deferred, expires;     /* from deferred/; `expires`: nothing is tried */
    bool is_new;                     /* no manager has had it before */
    bool deferred;                   /* recipients are deferred; valid when it concludes */
    bool unreadable, damaged;        /* recipients can't be read; the file is damaged */
    bool wanted;                     /* spool_want_rcpts needs an event to retry */
    bool touched;                    /* changed by the open batch */
    bool asking;                     /* services->ask is running and may answer before it returns */
    TAILQ_ENTRY(store_message) by_turn; /* in `routing` or `leaving` */
    STAILQ_ENTRY(store_message) by_batch;
    STAILQ_ENTRY(store_message) by_conclusion;
    char *class_name; /* owned; NULL = none */
    enum class_source class_source;
    char name[]; /* its queue id, with a NUL */
};

/* A message on disk that was requested. */
struct store_known {
    struct msg_id id;
    UT_hash_handle by_id, by_name;
    TAILQ_ENTRY(store_known) by_use;
    bool touched; /* changed by the open batch */
    STAILQ_ENTRY(store_known) by_batch;
    enum store_exit exit;
    bool expire;
    struct wall due; /* new time, if `exit` is to deferred/ or incoming/ */
    bool flush;      /* flushed: its destinations are revived when it is taken */
    char name[QUEUE_ID_MAX + 1];
};

/* The position of a list. */
#define STORE_LISTS   4
#define STORE_LIST_US (60 * US_PER_S) /* time after which an unused list is dropped */
struct store_list {
    bool is_open;
    bool is_on_disk;         /* the active messages were listed */
    struct msg_id active_at; /* last active message that was examined */
    size_t place;            /* index of the queue that is scanned */
    struct queue_scan look;
    struct msg_id at;    /* id that names the rest: the last of its last page, or a new one */
    struct msg_id *page; /* owned; the last page, as the reader may have used only a part */
    size_t page_count;
    struct wall used;
    uint64_t turn; /* order of use: the lowest was used least recently */
};

/* A count of the files of a queue that is otherwise not read. */
enum { STORE_HELD, STORE_CORRUPT, STORE_TALLIES };
struct store_tally {
    bool running;
    struct queue_scan scan;
    struct wall began;
    uint64_t seen, count; /* count so far; count of the last complete scan */
};

struct store_paused; /* in postfix_paused.c */

struct store_scan {
    bool running, wanted;
    bool any_time, next_any_time;
    bool flush, next_flush;
    struct wall again; /* time of another scan, as a file could not be taken; or WALL_NEVER */
    uint64_t seen;     /* number of names that this scan has left in place */
    struct queue_scan scan;
};

struct store_settled {
    struct store_message *m;
    uint32_t n;
    bool done;
};

struct postfix_store {
    struct spool base;
    struct queue_dir dir;
    struct postfix_spool_options options; /* only numbers, with defaults filled in */
    const struct postfix_services *services;
    bool restarted;  /* files of the previous manager were moved */
    int ready_fd;    /* eventfd, readable if a poll or a claim has work */
    bool ready_told; /* it was written since the last poll */
    bool polls;      /* a poll is running, after which its caller claims ready messages */
    struct store_message *by_id, *by_name;
    TAILQ_HEAD(store_turns, store_message) routing[2]; /* from incoming/, from deferred/ */
    struct store_turns leaving;
    STAILQ_HEAD(, store_message) touched, conclusions;
    struct told_events events;
    struct store_scan scans[2];
    struct store_settled *settled; /* owned; recipients settled by the open batch */
    size_t settled_count, settled_size;
    uint64_t last_id;
    uint64_t rcpts;     /* number of recipients in memory */
    uint64_t ahead;     /* number of messages in STORE_ROUTING */
    uint64_t taken;     /* number of messages taken from incoming/ since
                         * postfix_taken_from_incoming */
    uint64_t counts[2]; /* approximate counts for spool_totals */
    struct wall now;    /* latest known time */
    struct wall next_run;
    struct text_pool pool;            /* texts of the last read */
    struct text_pool walked;          /* texts of the last rows of spool_walk */
    struct queue_file_envelope shown; /* owned; envelope of the message on disk that was read
                                       * last */
    struct store_list lists[STORE_LISTS];
    uint64_t list_turn;
    struct store_tally tallies[STORE_TALLIES];
    struct msg_id goes_on; /* id after which the last list or count continues; 0 = it is complete */
    struct store_known *known, *known_by_name;
    TAILQ_HEAD(, store_known) known_by_use;
    STAILQ_HEAD(, store_known) known_touched;
    TAILQ_HEAD(, store_paused) paused; /* owned; scans for mail of pauses */
};

static inline struct postfix_store *store_of(struct spool *sp)
{
    return (struct postfix_store *)sp;
}

/* ---- postfix_spool.c ---- */

extern const struct spool_engine postfix_engine;

void store_tell(struct postfix_store *s, enum spool_event_type type, uint64_t id,
                const char *format, ...) __attribute__((format(printf, 4, 5)));
struct store_message *store_find(struct postfix_store *s, struct msg_id id);
bool store_has(struct postfix_store *s, struct slice name);
/* Adds a message that has been read to the tables. */
void store_add(struct postfix_store *s, struct store_message *m);
/* Removes a message from memory. */
void store_forget(struct postfix_store *s, struct store_message *m);
/* Moves or removes a message's file, and removes the message from memory; an error of the disk
 * makes it STORE_LEAVING. */
void store_leave(struct postfix_store *s, struct store_message *m, enum store_exit how,
                 struct wall due);
/* Removes a file from `place`, and its logs. */
int store_remove(struct postfix_store *s, struct slice name, enum queue_dir_name place);
/* Moves a file to maildrop/, as postsuper -r does. */
int store_requeue(struct postfix_store *s, struct slice name, enum queue_dir_name place);
/* Converts an envelope to a spool_message; texts are in s->pool. */
void store_show(struct postfix_store *s, const struct queue_file_envelope *e,
                struct spool_message *ret_message);
/* Makes ready_fd readable: spool_claim has a message, or a poll has work. */
void store_ready(struct postfix_store *s);
/* Sends SPOOL_EVENT_READY if spool_want_rcpts of this message needs a retry. */
void store_at_hand(struct postfix_store *s, struct store_message *m);

/* ---- postfix_look.c ---- */

int look_poll(struct spool *sp, struct wall now, struct wall *ret_again);
void look_all(struct spool *sp);
void look_fini(struct postfix_store *s);

/* ---- postfix_read.c ---- */

/* Reads envelope and first recipients of the file `fd`, which the caller closes. Returns 0 with the
 * first value that was ignored or an empty text, -EBADMSG with the cause for the log, or an error
 * of the disk. */
int read_message(struct postfix_store *s, struct store_message *m, int fd, uint64_t size,
                 char ret_odd[QUEUE_FILE_PROBLEM_MAX], struct buf *ret_problem);
/* Reads the next `count` recipients that are not done, fewer at the end of the file, and requests
 * their routes. If they can't be read, they stay unread. */
void read_more(struct postfix_store *s, struct store_message *m, size_t count);
/* Lists recipients that are not done, as the file has them, with the reasons of their last
 * deferral. Returns their number. `name` is the message's. Texts are in s->pool. */
size_t read_listed(struct postfix_store *s, struct slice name, struct queue_file_reader *r,
                   uint32_t after, size_t max, struct spool_rcpt *ret_rcpts);
/* Lists such recipients of an active message, with the routes in memory. */
int read_active(struct postfix_store *s, const struct store_message *m, uint32_t after, size_t max,
                struct spool_rcpt *ret_rcpts, size_t *ret_count);
/* Counts the recipients in memory above `after` that wait for delivery, up to `max`. */
size_t read_routed_behind(const struct store_message *m, uint32_t after, size_t max);
/* Returns the index of the first recipient with a number above `after`. */
size_t read_rcpt_behind(const struct store_message *m, uint32_t after);
/* Requests the routes of the first recipients. */
void read_routes(struct postfix_store *s, struct store_message *m);
void read_rcpts_fini(struct postfix_store *s, struct store_message *m);
struct store_rcpt *read_rcpt_find(const struct store_message *m, uint32_t n);
/* Returns a recipient with its texts, which last as long as the recipient and its route. */
struct postfix_rcpt read_rcpt_show(const struct store_rcpt *r);
/* Changes the route of a recipient that has one. */
void read_set_route(const struct store_message *m, uint32_t n, struct slice transport,
                    struct slice nexthop);
/* Frees the data of a settled recipient. */
void read_rcpt_out(struct postfix_store *s, struct store_message *m, struct store_rcpt *r);
int read_content(struct spool *sp, struct msg_id id, struct buf *ret_bytes, int *ret_fd,
                 uint64_t *ret_size);

/* ---- postfix_search.c ---- */

extern const struct spool_search_part postfix_search;

/* Drops lists that were not continued. */
void search_forget_old(struct postfix_store *s);
void search_fini(struct postfix_store *s);
/* Counts the files on hold (STORE_HELD) or corrupt (STORE_CORRUPT). A large queue is counted in
 * pieces; before the first count is complete, the result is the number so far. */
uint64_t search_count(struct postfix_store *s, unsigned which);
/* Continues the counts; true if one is not complete. */
bool search_tally(struct postfix_store *s);

/* ---- postfix_known.c ---- */

/* Returns a message that a list has found; adds it if missing. */
struct store_known *known_have(struct postfix_store *s, struct slice name);
/* Returns a message by its queue id; NULL if there is no such file. */
struct store_known *known_by_name(struct postfix_store *s, struct slice name);
/* Returns the message on disk with this id, or NULL. */
struct store_known *known_find(struct postfix_store *s, struct msg_id id);
/* Removes a message that is taken into active/; returns its id, and whether it was flushed. False
 * if it was not requested before. */
bool known_take(struct postfix_store *s, struct slice name, struct msg_id *ret_id, bool *ret_flush);
int known_read(struct postfix_store *s, const struct store_known *k,
               struct spool_message *ret_message);
/* Opens the file of a message, after reading its envelope to s->shown. */
int known_open(struct postfix_store *s, const struct store_known *k, int *ret_fd);
int known_read_rcpts(struct postfix_store *s, const struct store_known *k, uint32_t after,
                     size_t max, struct spool_rcpt *ret_rcpts, size_t *ret_count);
int known_leave(struct postfix_store *s, struct store_known *k, enum store_exit how);
int known_change(struct postfix_store *s, struct store_known *k, const struct spool_change *c);
/* Ends the batch: applies its changes to messages on disk, or drops them. */
void known_end(struct postfix_store *s, bool committed);
void known_fini(struct postfix_store *s);

/* ---- postfix_paused.c ---- */

/* Continues the scan for mail of the pause with this key, and makes that mail due. True if the scan
 * is not complete. */
bool paused_wake(struct postfix_store *s, struct slice key);
void paused_fini(struct postfix_store *s);

/* ---- postfix_pass.c ---- */

/* Passes each message that concludes to the services. */
void pass_conclusions(struct postfix_store *s);
/* Appends a log of bounce(8), at most its last POSTFIX_LOG_MAX bytes; nothing if it can't be
 * read. */
void store_read_log(struct postfix_store *s, enum queue_dir_name which, struct slice name,
                    struct buf *out);

#endif
