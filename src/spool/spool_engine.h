/*
 * What an engine is to spool.c: a struct of functions behind struct spool, which it embeds first.
 *
 * spool.c has checked the arguments (lengths, limits, mode) and opened the batch when an engine's
 * function is called, so an engine sees only what is well formed. The rules of which state follows
 * which are in spool.c, too: an engine reads and writes rows.
 *
 * A function that returns an error has either changed nothing, or called spool_batch_failed.
 */
#ifndef SPOOL_SPOOL_ENGINE_H
#define SPOOL_SPOOL_ENGINE_H

#include "spool.h"
#include "spool_io.h"

#define SPOOL_ERROR_MAX 512

struct spool {
    const struct spool_engine *engine;
    enum spool_open_mode mode;
    bool dirty;      /* a batch is open */
    int batch_error; /* what failed it, or 0 */
    char error[SPOOL_ERROR_MAX];
};

/* A message to be stored; everything checked, free texts cut. */
struct spool_new {
    const struct spool_message *m; /* with state and reason */
    const struct spool_rcpt *rcpts;
    uint32_t rcpt_count;
    struct slice prefix;
    const struct spool_content *content;
    uint64_t size; /* of prefix and content */
    bool claim;
};

/* A change of a message's own fields. `to` differs from the row only in these: state, due, created,
 * warnings, force_expire, reason, parked. */
struct spool_change {
    const struct spool_message *from; /* as read */
    const struct spool_message *to;
    bool end_claim;
    bool forget_tries; /* of the pending recipients: attempts 0, not routed */
};

struct spool_engine {
    void (*close)(struct spool *sp);

    int (*begin)(struct spool *sp);
    int (*commit)(struct spool *sp); /* on an error everything is undone already */
    void (*rollback)(struct spool *sp);
    void (*tidy)(struct spool *sp);

    struct msg_id (*next_id)(struct spool *sp); /* each id is given once, even if the batch fails */
    int (*submit)(struct spool *sp, struct msg_id id, const struct spool_new *n);
    int (*settle)(struct spool *sp, struct msg_id id, uint32_t n, const struct spool_verdict *v);
    int (*set_route)(struct spool *sp, struct msg_id id, uint32_t n, struct slice transport,
                     struct slice nexthop, uint64_t route_generation);
    int (*reported)(struct spool *sp, struct msg_id id);
    int (*finish)(struct spool *sp, struct msg_id id, struct wall due, bool *ret_gone);
    int (*finish_all_done)(struct spool *sp, struct msg_id id);
    int (*change)(struct spool *sp, const struct spool_change *change);
    int (*remove)(struct spool *sp, struct msg_id id);
    int (*set_aside)(struct spool *sp, struct msg_id id, struct slice reason);

    void (*unclaim)(struct spool *sp, struct msg_id id);
    int (*claim)(struct spool *sp, enum spool_state from, struct wall now, size_t max,
                 struct msg_id *ret_ids, size_t *ret_count);
    int (*claim_parked)(struct spool *sp, struct slice key, struct wall now, size_t max,
                        struct msg_id *ret_ids, size_t *ret_count, bool *ret_more);
    int (*next_due)(struct spool *sp, struct wall *ret_due);
    bool (*is_claimed)(const struct spool *sp, struct msg_id id);
    size_t (*claimed)(const struct spool *sp, uint64_t *cursor, size_t max, struct msg_id *ret_ids);

    int (*read)(struct spool *sp, struct msg_id id, struct spool_message *ret_message);
    int (*read_rcpts)(struct spool *sp, struct msg_id id, uint32_t after, bool only_pending,
                      size_t max, struct spool_rcpt *ret_rcpts, size_t *ret_count);
    int (*read_content)(struct spool *sp, struct msg_id id, struct buf *ret_bytes, int *ret_fd,
                        uint64_t *ret_size);
    int (*scan)(struct spool *sp, const struct spool_filter *f, size_t max, struct msg_id *ret_ids,
                size_t *ret_count);
    int (*count)(struct spool *sp, const struct spool_filter *f, uint64_t *ret_count);
    int (*totals)(struct spool *sp, struct spool_totals *ret_totals);
    int (*destinations)(struct spool *sp, size_t max, struct spool_destination *ret,
                        size_t *ret_count);
    /* NULL: ids grow as messages arrive. */
    int (*oldest)(struct spool *sp, const struct spool_destination *of, struct wall *ret_arrived);
    int (*destinations_from)(struct spool *sp, const struct spool_destination *from, size_t max,
                             struct spool_destination *ret, size_t *ret_count);
    int (*parked_keys)(struct spool *sp, struct slice after, size_t max, struct slice *ret_keys,
                       size_t *ret_count);
    int (*free_bytes)(struct spool *sp, uint64_t *ret_bytes);

    /* These are NULL in engines that nobody else writes to. */
    int (*put_off)(struct spool *sp, struct msg_id id, const uint32_t *ns, size_t count,
                   struct slice key, struct wall due);
    int (*reroute)(struct spool *sp, struct msg_id id, const uint32_t *ns, size_t count,
                   size_t *ret_count);
    int (*news_fd)(const struct spool *sp);
    int (*poll)(struct spool *sp, struct wall now, struct wall *ret_again);
    void (*look)(struct spool *sp);
    int (*resync)(struct spool *sp, struct slice path);
    void (*verbose)(struct spool *sp, struct msg_id id, struct slice line);
    bool (*next_news)(struct spool *sp, struct spool_news *ret_news);
};

/* Keep the words for spool_error; returns `err`. */
int spool_fail(struct spool *sp, int err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The open batch can't be completed; returns `err`. */
int spool_batch_failed(struct spool *sp, int err);

/* Engines. `where` is what follows the colon in the url. */
int sqlite_spool_open(const char *where, enum spool_open_mode mode,
                      const struct spool_options *options, struct buf *ret_error,
                      struct spool **ret_spool);
int postoffice_spool_open(const char *where, const struct spool_options *options,
                          struct buf *ret_error, struct spool **ret_spool);
int memory_spool_open(const struct spool_options *options, struct spool **ret_spool);

/* The total of each state; NULL for what is no state. */
uint64_t *spool_total_of(struct spool_totals *totals, enum spool_state state);

/* What stands behind the last '@' (nothing when there is none), as given. */
struct slice spool_domain(struct slice address);

#endif
