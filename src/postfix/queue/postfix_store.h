/*
 * The parts of the engine of Postfix's queue directory; postfix_spool.h has the whole.
 *
 *     postfix_open.c    opening it, with what the configuration says
 *     postfix_spool.c   the engine: its calls, and the batch
 *     postfix_look.c    scans; taking files into active/
 *     postfix_read.c    a file's envelope and pages of its recipients, and where they go
 *     postfix_pass.c    the end of a pass, with the services
 *     postfix_search.c  questions: lists, counts, destinations
 *     postfix_known.c   mail on disk that was asked for, and operators' changes of it
 *     postfix_paused.c  mail on disk that a pause has kept
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

/* A disk that fails is asked again after. */
#define STORE_AGAIN_US (60 * US_PER_S)
/* Names that one poll looks at in each queue. */
#define STORE_SCAN_NAMES 200
/* Messages of each queue that one poll takes: some 50 us each, in which no agent is heard. */
#define STORE_SCAN_TAKEN 8
/* Messages that are in active/ and not claimed: enough for the resolver to be busy. */
#define STORE_AHEAD_MAX 200
/* Recipients of a file that are read at once, as in Postfix. */
#define STORE_READ_MAX 5000

/*
 *   ASKED --> ROUTED --> DEFERRED --commit--> KEPT (while it is pinned) --> OUT
 *     |          |
 *     |          +--> OUT: done, or skipped, or discarded
 *     +-------------> OUT
 *
 * At a rollback what the batch has settled is ROUTED again.
 */
enum store_rcpt_state {
    STORE_RCPT_ASKED,
    STORE_RCPT_ROUTED,
    STORE_RCPT_DEFERRED, /* by the open batch: not to be delivered in this activation */
    STORE_RCPT_KEPT,     /* likewise, committed */
    STORE_RCPT_OUT,      /* it leaves memory, at the latest with the open batch */
};

struct store_rcpt {
    struct postfix_rcpt r; /* its slices are in the two texts */
    enum store_rcpt_state state;
    bool pinned;          /* postfix_pin */
    struct slice address; /* of the file */
    char *texts;          /* owned: address, original, dsn_original; NULL: it is out of memory */
    char *route;          /* owned: recipient, transport, nexthop; NULL before it is routed */
};

enum store_state { STORE_ROUTING, STORE_CLAIMED, STORE_CONCLUDING, STORE_LEAVING };

/* Where a message is to go at the commit. */
enum store_exit {
    STORE_STAYS,
    STORE_CONCLUDES,
    STORE_TO_DEFERRED,
    STORE_TO_INCOMING,
    STORE_TO_HOLD,
    STORE_TO_CORRUPT,
    STORE_TO_MAILDROP, /* to pickup(8), from which it comes again as another message */
    STORE_REMOVED,     /* done */
    STORE_REMOVED_BY,  /* by an operator, with its logs */
};

/* One message in active/. */
struct store_message {
    struct msg_id id;
    UT_hash_handle by_id, by_name;
    enum store_state state;
    enum store_exit exit;                /* of the open batch; in STORE_LEAVING, what is tried */
    struct postfix_message told;         /* queue_id and envelope point into this */
    struct queue_file_envelope envelope; /* owned */
    bool from_deferred, expires;         /* `expires`: given up, nothing is tried */
    bool is_new;                         /* no manager has had it before */
    bool deferred;                       /* as it concludes */
    struct wall due;                     /* as it concludes or leaves */
    struct wall ready;                   /* when it could be claimed */
    struct store_rcpt *rcpts;            /* owned; in order of n */
    size_t rcpt_count, rcpt_size, rcpts_out;
    uint32_t pending;                /* of the file: not done, read or not */
    uint32_t unrouted;               /* of those in memory, as is the next */
    uint32_t pinned;                 /* they stay in memory though they are settled */
    struct queue_file_cursor behind; /* the last recipient that was read */
    uint32_t unread;                 /* recipients to be tried behind it */
    bool unreadable, damaged;        /* they can't be read; as the file is damaged */
    bool wanted;                     /* spool_want_rcpts was told to ask again */
    bool touched;                    /* by the open batch */
    bool asking;                     /* services->ask is under way: its answers come from within */
    TAILQ_ENTRY(store_message) by_turn; /* of `routing` or `leaving` */
    STAILQ_ENTRY(store_message) by_batch;
    STAILQ_ENTRY(store_message) by_conclusion;
    char *class_name; /* owned; NULL: none */
    enum class_source class_source;
    char name[QUEUE_ID_MAX + 1];
};

/* One message on disk that was asked for by its queue id. */
struct store_known {
    struct msg_id id;
    UT_hash_handle by_id, by_name;
    TAILQ_ENTRY(store_known) by_use;
    bool touched; /* by the open batch: */
    STAILQ_ENTRY(store_known) by_batch;
    enum store_exit exit;
    bool expire;
    struct wall due; /* of `exit` to deferred/ or incoming/ */
    bool flush;      /* asked for: its destinations are to be revived when it is taken */
    char name[QUEUE_ID_MAX + 1];
};

/* How far a list has come. */
#define STORE_LISTS   4
#define STORE_LIST_US (60 * US_PER_S) /* without a question for its next page it is given up */
struct store_list {
    bool is_open;
    bool is_on_disk;         /* what is active is behind it */
    struct msg_id active_at; /* the last one of these */
    size_t place;            /* index of the queue that is looked through */
    struct queue_scan look;
    struct msg_id at;    /* what names the rest of it: the last id of its last page, or a new one */
    struct msg_id *page; /* owned: the last page, as its reader may not have taken all of it */
    size_t page_count;
    struct wall used;
    uint64_t turn; /* of lists: the least was used least */
};

/* Counting the files of a queue of which nothing else is known. */
enum { STORE_HELD, STORE_CORRUPT, STORE_TALLIES };
struct store_tally {
    bool running;
    struct queue_scan scan;
    struct wall began;
    uint64_t seen, count; /* by now; by the last one that has come to its end */
};

struct store_paused; /* postfix_paused.c */

struct store_scan {
    bool running, wanted;
    bool any_time, next_any_time;
    bool flush, next_flush;
    struct wall again; /* a file could not be taken: look again; WALL_NEVER */
    uint64_t seen;     /* names that this scan has left */
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
    struct postfix_spool_options options; /* numbers only, defaults filled in */
    const struct postfix_services *services;
    bool restarted;  /* what a manager before had active was moved */
    int ready_fd;    /* an eventfd: something can be claimed */
    bool ready_told; /* it was written since the last poll */
    bool polls;      /* the holder, who polls, looks for what is ready behind that */
    struct store_message *by_id, *by_name;
    TAILQ_HEAD(store_turns, store_message) routing[2]; /* from incoming, from deferred */
    struct store_turns leaving;
    STAILQ_HEAD(, store_message) touched, conclusions;
    struct told_events events;
    struct store_scan scans[2];
    struct store_settled *settled; /* owned; of the open batch */
    size_t settled_count, settled_size;
    uint64_t last_id;
    uint64_t rcpts;     /* in memory */
    uint64_t ahead;     /* messages that are routing */
    uint64_t taken;     /* from incoming/, since that was asked for */
    uint64_t counts[2]; /* of messages, about: spool_totals */
    struct wall now;    /* the latest that was heard of */
    struct wall next_run;
    struct text_pool pool;            /* texts of what was read last */
    struct queue_file_envelope shown; /* owned; of the message on disk that was read last */
    struct store_list lists[STORE_LISTS];
    uint64_t list_turn;
    struct store_tally tallies[STORE_TALLIES];
    struct msg_id goes_on; /* behind which the last list or count has more; 0: it has not */
    struct store_known *known, *known_by_name;
    TAILQ_HEAD(, store_known) known_by_use;
    STAILQ_HEAD(, store_known) known_touched;
    TAILQ_HEAD(, store_paused) paused; /* owned; mail of pauses that is looked for */
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
/* A message that has been read: it joins the tables. */
void store_add(struct postfix_store *s, struct store_message *m);
/* It leaves memory. */
void store_forget(struct postfix_store *s, struct store_message *m);
/* Move or remove its file, and forget it; a disk that fails makes it STORE_LEAVING. */
void store_leave(struct postfix_store *s, struct store_message *m, enum store_exit how,
                 struct wall due);
/* Remove its file from `place`, and its logs. */
int store_remove(struct postfix_store *s, struct slice name, enum queue_dir_name place);
/* What postsuper -r does. */
int store_requeue(struct postfix_store *s, struct slice name, enum queue_dir_name place);
/* What the envelope says; texts in s->pool. */
void store_show(struct postfix_store *s, const struct queue_file_envelope *e,
                struct spool_message *ret_message);
/* spool_claim has something. */
void store_ready(struct postfix_store *s);
/* So may spool_want_rcpts. */
void store_at_hand(struct postfix_store *s, struct store_message *m);

/* ---- postfix_look.c ---- */

int look_poll(struct spool *sp, struct wall now, struct wall *ret_again);
void look_all(struct spool *sp);
void look_fini(struct postfix_store *s);

/* ---- postfix_read.c ---- */

/* Read the file from `fd`, which the caller closes: envelope and first recipients. 0, -EBADMSG (and
 * why, as it is to be logged), or what the disk says. */
int read_message(struct postfix_store *s, struct store_message *m, int fd, uint64_t size,
                 struct buf *ret_problem);
/* The next `count` recipients that are not done, fewer at the end of the file, and ask the services
 * where they go. When they can't be read they stay unread. */
void read_more(struct postfix_store *s, struct store_message *m, size_t count);
/* Recipients that are not done, as the file has them, for a list; their number. Texts are in
 * s->pool. */
size_t read_listed(struct postfix_store *s, struct queue_file_reader *r, uint32_t after, size_t max,
                   struct spool_rcpt *ret_rcpts);
/* Those of a message that is active, with what is in memory of them. */
int read_active(struct postfix_store *s, const struct store_message *m, uint32_t after, size_t max,
                struct spool_rcpt *ret_rcpts, size_t *ret_count);
/* How many in memory above `after` are to be delivered; counts to `max`. */
size_t read_routed_behind(const struct store_message *m, uint32_t after, size_t max);
/* The index of the first recipient with a number above `after`. */
size_t read_rcpt_behind(const struct store_message *m, uint32_t after);
/* Ask the services where the first recipients go. */
void read_routes(struct postfix_store *s, struct store_message *m);
void read_rcpts_fini(struct postfix_store *s, struct store_message *m);
struct store_rcpt *read_rcpt_find(const struct store_message *m, uint32_t n);
/* It goes elsewhere than it was routed. */
void read_set_route(const struct store_message *m, uint32_t n, struct slice transport,
                    struct slice nexthop);
/* Free what is known of a recipient that is settled. */
void read_rcpt_out(struct postfix_store *s, struct store_message *m, struct store_rcpt *r);
int read_content(struct spool *sp, struct msg_id id, struct buf *ret_bytes, int *ret_fd,
                 uint64_t *ret_size);

/* ---- postfix_search.c ---- */

extern const struct spool_search_part postfix_search;

/* Lists that are not gone on with. */
void search_forget_old(struct postfix_store *s);
void search_fini(struct postfix_store *s);
/* Files on hold (STORE_HELD) or set aside (STORE_CORRUPT). A large queue is counted in pieces, and
 * until the first end it is as many as were seen. */
uint64_t search_count(struct postfix_store *s, unsigned which);
/* Go on with counting; true: there is more. */
bool search_tally(struct postfix_store *s);

/* ---- postfix_known.c ---- */

/* One that a list has found. */
struct store_known *known_have(struct postfix_store *s, struct slice name);
/* By its queue id; NULL when there is no such file. */
struct store_known *known_by_name(struct postfix_store *s, struct slice name);
/* The message on disk that has this id; NULL. */
struct store_known *known_find(struct postfix_store *s, struct msg_id id);
/* It is taken into active/: its id, and whether it was asked for. False: it was not known. */
bool known_take(struct postfix_store *s, struct slice name, struct msg_id *ret_id, bool *ret_flush);
int known_read(struct postfix_store *s, const struct store_known *k,
               struct spool_message *ret_message);
/* Open its file, when its envelope, in s->shown, could be read. */
int known_open(struct postfix_store *s, const struct store_known *k, int *ret_fd);
int known_read_rcpts(struct postfix_store *s, const struct store_known *k, uint32_t after,
                     size_t max, struct spool_rcpt *ret_rcpts, size_t *ret_count);
int known_leave(struct postfix_store *s, struct store_known *k, enum store_exit how);
int known_change(struct postfix_store *s, struct store_known *k, const struct spool_change *c);
/* The batch ends: do what it has changed, or forget that. */
void known_end(struct postfix_store *s, bool committed);
void known_fini(struct postfix_store *s);

/* ---- postfix_paused.c ---- */

/* Look on for mail that is kept by the pause of this key, and make it due. True: there is more. */
bool paused_wake(struct postfix_store *s, struct slice key);
void paused_fini(struct postfix_store *s);

/* ---- postfix_pass.c ---- */

/* Tell the services of each message that has concluded. */
void pass_conclusions(struct postfix_store *s);

#endif
