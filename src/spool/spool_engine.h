/*
 * The interface between spool.c and an engine: a table of functions, and struct spool, which the
 * engine embeds as its first member.
 *
 * Every engine has the core (struct spool_engine): the batch, changes by id, claims, reading by id.
 * Optional parts are structs of functions, each described in its own header; NULL if the engine
 * lacks the part. Other rooms ask for a part (spool_divides, an fd that is -1), never for an engine
 * by its name.
 *
 *     part                sqlite  postoffice  postfix          postgresql
 *     spool_search.h      yes     yes         with a limit     yes
 *     spool_division.h    -       yes         -                -
 *     spool_external.h    -       yes         scans, triggers  -
 *     spool_reroute.h     -       yes         -                -
 *     spool_verbose.h     -       yes         -                -
 *     spool_conclusion.h  -       -           yes              -
 *     spool_keys.h        yes     -           -                -
 *     spool_notes.h       yes     side store  side store       side store
 *     spool_events.h      yes     side store  side store       side store
 *     spool_commits.h     -       -           -                yes
 *     spool_parts.h       -       -           -                yes
 *     spool_lease.h       -       -           -                yes
 *     spool_others.h      -       -           -                yes
 *     spool_handover.h    -       -           -                yes
 *
 *     side store: side_store.h implements the part for this engine
 *
 * The contract of the core:
 *
 * - Before spool.c calls an engine's function, it has checked the arguments (lengths, limits, mode)
 *   and opened the batch. The rules about which state follows which are in spool.c, too: an engine
 *   only reads and writes rows.
 * - begin alternates with commit or rollback. Functions from `submit` to `quarantine`, and
 *   claim_parked, are called inside a batch, `tidy` and spool_poll outside one, the others in both.
 * - A function that returns an error has either changed nothing, or called spool_batch_failed.
 * - Returned slices last until the next call on the same spool; arguments are borrowed for the
 *   call. Errors are those of spool.h; spool_fail stores their texts.
 * - Claims are in memory. An engine whose store moves a message when it is claimed (Postfix: from
 *   incoming/ or deferred/ to active/) moves it back when the spool is opened for writing.
 * - `submit` of an engine into which the queue process submits nothing returns -ENOTSUP (Postfix:
 *   only cleanup(8) makes files, and bounce(8) makes reports). An engine whose agents record
 *   results themselves writes nothing in `settle` for a verdict with `noted`.
 *
 * Commits that end later (spool_commits.h): a cluster's commit is sent, and ends when the database
 * answers. `commit` is for engines whose commits end before the call returns; an engine with the
 * part has no `commit`.
 *
 * Reads by id are for claimed messages, which a cluster's engine has in memory. For a message that
 * is not loaded they return -EAGAIN (spool_want), and an event announces it later.
 */
#ifndef SPOOL_SPOOL_ENGINE_H
#define SPOOL_SPOOL_ENGINE_H

#include "spool.h"
#include "spool_commits.h"
#include "spool_conclusion.h"
#include "spool_division.h"
#include "spool_events.h"
#include "spool_external.h"
#include "spool_handover.h"
#include "spool_io.h"
#include "spool_keys.h"
#include "spool_lease.h"
#include "spool_notes.h"
#include "spool_others.h"
#include "spool_parts.h"
#include "spool_reroute.h"
#include "spool_routes.h"
#include "spool_search.h"
#include "spool_shared.h"
#include "spool_verbose.h"

#define SPOOL_ERROR_MAX 512

struct side_store;

/* All bits that stored flags may have. */
#define MESSAGE_FLAGS                                                                              \
    (ENVELOPE_8BIT | ENVELOPE_SMTPUTF8 | ENVELOPE_RET_FULL | ENVELOPE_RET_HDRS | ENVELOPE_REPORT | \
     ENVELOPE_TRACE)
#define NOTIFY_BITS (NOTIFY_NEVER | NOTIFY_SUCCESS | NOTIFY_FAILURE | NOTIFY_DELAY)

struct spool {
    const struct spool_engine *engine;
    enum spool_open_mode mode;
    struct side_store *side; /* owned; NULL = the engine has its own place for notes and events, or
                              * no path was set */
    bool dirty;              /* a batch is open */
    int batch_error;         /* error that failed the batch, or 0 */
    bool missed;             /* data was not loaded in a call since spool_missed */
    const char *(*ring_of)(void *ring_arg, struct slice transport, struct slice nexthop);
    void *ring_arg; /* of spool_options */
    unsigned commits_under_way;
    int commit_error; /* error of the youngest of these if it could not begin; result of the last
                       * commit, where commits end at once */
    char error[SPOOL_ERROR_MAX];
};

/* A message to store; everything is checked and free texts are cut. */
struct spool_new {
    const struct spool_message *m; /* with state and reason set */
    const struct spool_rcpt *rcpts;
    uint32_t rcpt_count;
    struct slice prefix;
    const struct spool_content *content;
    uint64_t size; /* bytes of prefix and content */
    bool claim;
};

/* A change of a message's own fields. `to` differs from the row in these at most: state, due,
 * created, warnings, force_expire, reason, parked. */
struct spool_change {
    const struct spool_message *from; /* the row as read */
    const struct spool_message *to;
    bool end_claim;
    bool forget_tries; /* set attempts to 0 and remove the routes of pending recipients */
};

struct spool_engine {
    void (*close)(struct spool *sp);

    void (*set_secret)(struct spool *sp, struct slice secret); /* NULL = no server */

    /* the batch */
    int (*begin)(struct spool *sp);
    int (*commit)(struct spool *sp); /* undoes everything before it returns an error; NULL =
                                      * `commits` is set */
    void (*rollback)(struct spool *sp);
    void (*tidy)(struct spool *sp);

    /* changes */
    struct msg_id (*next_id)(struct spool *sp); /* never returns an id twice, even if the batch
                                                 * fails */
    int (*submit)(struct spool *sp, struct msg_id id, const struct spool_new *n);
    struct slice (*submitted_name)(const struct spool *sp); /* NULL = always empty */
    int (*settle)(struct spool *sp, struct msg_id id, uint32_t n, const struct spool_verdict *v);
    int (*set_route)(struct spool *sp, struct msg_id id, uint32_t n, struct slice transport,
                     struct slice nexthop, uint64_t route_generation);
    int (*reported)(struct spool *sp, struct msg_id id);
    int (*finish)(struct spool *sp, struct msg_id id, struct wall due, bool *ret_gone);
    int (*finish_all_done)(struct spool *sp, struct msg_id id);
    int (*change)(struct spool *sp, const struct spool_change *change);
    int (*remove)(struct spool *sp, struct msg_id id);
    int (*quarantine)(struct spool *sp, struct msg_id id, struct slice reason);

    /* claims */
    void (*unclaim)(struct spool *sp, struct msg_id id);
    int (*claim)(struct spool *sp, enum spool_state from, struct wall now, size_t max,
                 struct msg_id *ret_ids, size_t *ret_count);
    int (*claim_parked)(struct spool *sp, struct slice key, struct wall now, size_t max,
                        struct msg_id *ret_ids, size_t *ret_count, bool *ret_more);
    int (*parked_keys)(struct spool *sp, struct slice after, size_t max, struct slice *ret_keys,
                       size_t *ret_count);
    int (*next_due)(struct spool *sp, struct wall *ret_due);
    bool (*is_claimed)(const struct spool *sp, struct msg_id id);
    size_t (*claimed)(const struct spool *sp, uint64_t *cursor, size_t max, struct msg_id *ret_ids);

    /* reading */
    int (*read)(struct spool *sp, struct msg_id id, struct spool_message *ret_message);
    int (*read_rcpts)(struct spool *sp, struct msg_id id, uint32_t after, bool only_pending,
                      size_t max, struct spool_rcpt *ret_rcpts, size_t *ret_count);
    int (*want_rcpts)(struct spool *sp, struct msg_id id, uint32_t after,
                      size_t max); /* NULL = all are loaded */
    int (*read_content)(struct spool *sp, struct msg_id id, struct buf *ret_bytes, int *ret_fd,
                        uint64_t *ret_size);
    int (*totals)(struct spool *sp, struct spool_totals *ret_totals);
    int (*free_bytes)(struct spool *sp, uint64_t *ret_bytes);
    bool (*next_event)(struct spool *sp, struct spool_event *ret_event); /* NULL = no events */

    /* parts; NULL = the engine lacks the part */
    const struct spool_search_part *search;
    const struct spool_division_part *division;
    const struct spool_external_part *external;
    const struct spool_reroute_part *reroute;
    const struct spool_verbose_part *verbose;
    const struct spool_conclusion_part *conclusion;
    const struct spool_keys_part *keys;
    const struct spool_notes_part *notes;
    const struct spool_events_part *events;
    const struct spool_commits_part *commits;
    const struct spool_parts_part *parts;
    const struct spool_lease_part *lease;
    const struct spool_others_part *others;
    const struct spool_handover_part *handover;
    const struct spool_shared_part *shared;
    const struct spool_routes_part *routes;
};

/* Stores the text for spool_error; returns `err`. */
int spool_fail(struct spool *sp, int err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Marks the open batch as failed; returns `err`. */
int spool_batch_failed(struct spool *sp, int err);

/* The URLs of an engine. */
struct spool_scheme {
    const char *prefix; /* "sqlite:" */
    const char *form;   /* form of the whole URL, for error messages: "sqlite:PATH" */
    bool reads;         /* SPOOL_OPEN_READ is possible, too */
    /* As spool_open; `where` is the text after the prefix, never empty. `options` are borrowed for
     * the call, except `io`, which is borrowed until the spool is closed. */
    int (*open)(const char *where, enum spool_open_mode mode, const struct spool_options *options,
                struct buf *ret_error, struct spool **ret_spool);
};

/* Registers an engine, so that spool_open opens its URLs. Call it at the start of a program, once
 * per engine; a second registration of the same engine changes nothing. `scheme` must last as long
 * as the program. If two have the same prefix, the later one is used. The sqlite engine is always
 * registered. */
#define SPOOL_SCHEMES_MAX 8
void spool_register(const struct spool_scheme *scheme);

int sqlite_spool_open(const char *where, enum spool_open_mode mode,
                      const struct spool_options *options, struct buf *ret_error,
                      struct spool **ret_spool);

/* Returns the total of this state; NULL if `state` is not a state. */
uint64_t *spool_total_of(struct spool_totals *totals, enum spool_state state);

/* Returns the text after the last '@', unchanged; empty if there is none. */
struct slice spool_domain(struct slice address);

#endif
