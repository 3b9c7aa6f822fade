/*
 * What the postoffice engine knows in memory: files, the messages they are divided into, and where
 * their recipients are to go. The files themselves are the store; here is only what scheduling
 * needs, and every text that is long is read again when it is wanted.
 *
 *      post_file  one control file           A/90417
 *        post_vertex  its recipients of one destination (one job of an agent)
 *        post_rcpt    a recipient: its offset in the file, its part and its vertex
 *        post_part    a message: `root`, and those that were put off from it
 *      post_dest    a destination            smtp/mx.example
 *      post_key     what parts are parked under
 *      post_text    words of a failure, shared by all that say the same
 *
 * A recipient belongs to one part while it is PENDING; recipients to be reported belong to the
 * root. What is done with stays in the array without a part, because an agent may yet mark it.
 *
 * A root without recipients is dormant while other parts have some: it is no message then, and is
 * one again when something is to be reported. A file that is held or quarantined holds all
 * its parts.
 *
 * Between table_begin and table_commit or table_undo every change is logged with what was before,
 * and can be undone. What leaves is freed at the commit.
 *
 * Invariants (table_audit): a part is in the heap of its state exactly when it can be claimed; a
 * key's list has its parts, the oldest first; a destination's list has the vertices with pending
 * recipients; counts are what can be counted.
 */
#ifndef ZMAILER_POSTOFFICE_TABLE_H
#define ZMAILER_POSTOFFICE_TABLE_H

#include <sys/queue.h>

#include "control_file.h"
#include "hash.h"
#include "heap.h"
#include "spool.h"

struct post_part;
struct post_file;
struct post_vertex;

struct post_dest {
    uint64_t rcpts, messages;         /* pending; and of how many files */
    LIST_HEAD(, post_vertex) waiting; /* with pending recipients */
    size_t vertices;                  /* of all files: the destination lives as long */
    UT_hash_handle hh;
    size_t transport_len, key_len;
    char key[]; /* transport, '/', nexthop */
};

/* Words of a failure, `refs` times in use. */
struct post_text {
    size_t refs;
    bool shared; /* in the table of texts */
    UT_hash_handle hh;
    size_t status_len, diagnostic_len, reply_len, remote_len, len;
    char text[]; /* status, diagnostic, reply, remote, notary */
};

struct post_key {
    TAILQ_HEAD(post_key_parts, post_part) parts; /* those that can be claimed */
    size_t count;                                /* of all that are parked here */
    bool idle;                                   /* it may go when the batch has ended, and is */
    SLIST_ENTRY(post_key) by_idle;               /* in this list */
    UT_hash_handle hh;
    size_t len;
    char name[];
};

struct post_rcpt {
    struct post_part *part; /* NULL: done with, or an alternative whose turn has not come */
    uint32_t offset;
    uint32_t vertex;       /* index */
    uint32_t address_hash; /* of the whole, in lower case; and of its domain */
    uint32_t domain_hash;
    uint16_t attempts;
    uint8_t state; /* enum spool_rcpt_state, or POST_DONE ... */
    char tag;      /* that it ends with when done: '+' or '-' */
};

/* What else becomes of recipients than enum spool_rcpt_state has. */
enum { POST_DONE = 16, POST_ALTERNATIVE = 17 };

struct post_vertex {
    struct post_file *file;
    struct post_dest *dest;
    struct post_part *put_off; /* where its recipients were put off to last; NULL */
    struct post_text *words;   /* owned reference: of its last failure; NULL */
    int64_t last_attempt_us;
    uint32_t pending;
    LIST_ENTRY(post_vertex) by_dest;
};

/* The fields that change, so that undoing is one assignment. */
struct post_fields {
    struct wall due;
    struct wall created;
    struct post_key *key; /* parked under; NULL */
    uint32_t warnings;
    uint8_t state; /* INCOMING or DEFERRED */
    bool claimed;
    bool dormant; /* a root that is no message just now */
    bool gone;    /* to be freed at the commit */
    bool force_expire;
};

struct post_part {
    uint64_t id;
    struct post_file *file;
    struct post_fields f;
    uint32_t pending;        /* recipients */
    uint32_t low, high;      /* its recipients are at indexes low <= i < high */
    uint32_t pending_low;    /* and the pending ones at or behind this */
    uint32_t pending_before; /* of a resync, during it */
    uint32_t put_off_vertex; /* whose `put_off` may be this */
    struct heap_node due;
    TAILQ_ENTRY(post_part) by_key;
    LIST_ENTRY(post_part) by_file;
};

struct post_file_fields {
    struct wall report_due; /* when what has gathered is reported; WALL_NEVER: nothing has */
    uint32_t failed;        /* recipients */
    uint8_t state;          /* SPOOL_HOLD, SPOOL_CORRUPT, or 0: as its parts are */
    bool gone;
    char *reason; /* of that state; owned */
};

struct post_work;

struct post_file {
    uint64_t number; /* the digits of its name */
    UT_hash_handle hh;
    struct post_file_fields f;
    struct post_part root;
    LIST_HEAD(, post_part) parts; /* but for the root */
    struct post_rcpt *rcpts;      /* owned; in order of their offsets */
    struct post_vertex *vertices; /* owned */
    struct post_work *work;       /* what the open batch is to do on disk; NULL */
    uint32_t rcpt_count, vertex_count;
    uint32_t total;              /* recipients when it was written */
    uint32_t pending, to_report; /* recipients, of all parts */
    uint32_t resyncs;
    uint32_t owner;    /* uid of the message file */
    uint32_t log_hash; /* of the `l` line */
    uint64_t size;     /* of the message file */
    struct wall arrived, listed;
    uint32_t mtime_ns;     /* of `arrived`, below its second */
    uint8_t levels;        /* of hashing */
    uint8_t flags;         /* enum envelope_flag bits */
    uint8_t on_disk;       /* f.state that its name tells; the batch may be about to change it */
    bool same_number_told; /* that another file has its number */
    bool has_alternatives;
    bool is_verbose; /* it names a file to be told of what happens */
    bool hollow;     /* quarantined when it was found: its recipients are not known */
    uint16_t name_len, sender_len, envid_len;
    char text[]; /* hash directory "A/", NUL-terminated name, sender, envid */
};

struct post_undo;

struct post_table {
    struct post_file *files; /* by number */
    struct post_dest *dests;
    struct post_key *keys;
    SLIST_HEAD(, post_key) idle_keys;
    struct post_text *texts;
    struct post_by_id {
        uint64_t id;
        struct post_part *part; /* NULL: gone */
    } * by_id;                  /* owned; ids grow, so it is in order */
    size_t id_count, id_size, id_gone;
    struct heap due[2]; /* INCOMING, DEFERRED */
    struct spool_totals totals;
    struct post_undo *log; /* owned */
    size_t log_count, log_size;
    bool logging;
    uint64_t last_id;
};

void table_init(struct post_table *t, uint64_t id_floor);
void table_fini(struct post_table *t);

void table_begin(struct post_table *t);
void table_commit(struct post_table *t);
void table_undo(struct post_table *t);

uint64_t table_next_id(struct post_table *t);

/* A message, unless it is gone or dormant. */
struct post_part *table_part(const struct post_table *t, uint64_t id);
/* The index in by_id of the first id above `after`. */
size_t table_after(const struct post_table *t, uint64_t after);
struct post_file *table_file(const struct post_table *t, uint64_t number);

/* ---- files: made and forgotten outside batches ---- */

/* A file of so many recipients and vertices with its root, to be filled in by the caller and then
 * given to table_add. `path` is its path relative to transport/. */
struct post_file *table_file_new(struct slice path, struct slice sender, struct slice envid,
                                 uint32_t rcpt_count, uint32_t vertex_count);
/* Its recipients stand as they are (part, state, vertex); root.f is set. Taken. */
void table_add(struct post_table *t, struct post_file *file);
/* Free it with all its parts. */
void table_forget(struct post_table *t, struct post_file *file);
/* The destination, made when it is new; counts a vertex of it. */
struct post_dest *table_dest(struct post_table *t, struct slice transport, struct slice nexthop);
struct post_dest *table_dest_find(const struct post_table *t, struct slice transport,
                                  struct slice nexthop);

struct slice post_name(const struct post_file *file); /* without the hash directory */
struct slice post_path(const struct post_file *file); /* NUL-terminated */
struct slice post_sender(const struct post_file *file);
struct slice post_envid(const struct post_file *file);
struct slice dest_transport(const struct post_dest *dest);
struct slice dest_nexthop(const struct post_dest *dest);

/* The state that the world sees. */
enum spool_state post_state(const struct post_part *p);
/* Recipients that wait for a report: of the root alone. */
uint32_t post_to_report(const struct post_part *p);

/* ---- changes: undone with the batch if there is one ---- */

/* The one function that changes a part's fields. One that is gone is freed with the batch, at once
 * when there is none. */
void table_set(struct post_table *t, struct post_part *p, struct post_fields to);
/* The same of a file; takes to.reason, a string of its own if it differs. */
void table_set_file(struct post_table *t, struct post_file *file, struct post_file_fields to);
/* The same of a recipient: its part, state, tag and attempts. */
void table_set_rcpt(struct post_table *t, struct post_file *file, uint32_t index,
                    struct post_rcpt to);
/* What was last said of a vertex. */
void table_set_words(struct post_table *t, struct post_vertex *v, const struct spool_verdict *said,
                     struct wall when);
/* A new part, unclaimed; recipients are moved there with table_set_rcpt. */
struct post_part *table_divide(struct post_table *t, struct post_file *file,
                               struct post_fields fields);
/* A key, made when it is new; it goes when nothing is parked there and no batch is open. */
struct post_key *table_key(struct post_table *t, struct slice name);
struct post_key *table_key_find(const struct post_table *t, struct slice name);

/* The index of the recipient with this offset, or file->rcpt_count. */
uint32_t table_rcpt_at(const struct post_file *file, uint64_t offset);
/* The index of the first recipient with an offset above `offset`. */
uint32_t table_rcpt_behind(const struct post_file *file, uint64_t offset);
/* The first recipient of a part at or behind `index`, in the states wanted; part->high when none.
 */
uint32_t table_rcpt_next(struct post_part *p, uint32_t index, bool only_pending);

/* Abort unless the invariants hold. */
void table_audit(const struct post_table *t);

#endif
