/*
 * The postoffice engine's data in memory: files, the messages into which they are divided, and the
 * destinations of their recipients. The files themselves are the store. The table has only the data
 * that scheduling needs; long texts are read again when they are needed.
 *
 *      post_file  one control file           A/90417
 *        post_vertex  its recipients of one destination (one job of an agent)
 *        post_rcpt    a recipient: its offset in the file, its part and its vertex
 *        post_part    a message: `root`, and those that were split off by put_off
 *      post_dest    a destination            smtp/mx.example
 *      post_key     key under which parts are parked
 *      post_text    texts of a failure, shared by all vertices with equal texts
 *
 * A recipient belongs to one part while it is PENDING; recipients with a due report belong to the
 * root. Finished recipients stay in the array without a part, because an agent may still mark them.
 *
 * A root without recipients is dormant while other parts have some: it is not a message then, and
 * becomes one again when a report is due. A file that is held or quarantined holds all its parts.
 *
 * Between table_begin and table_commit or table_undo every change is logged with its old value, and
 * can be undone. Objects that are removed are freed at the commit.
 *
 * Invariants (table_audit): a part is in the heap of its state exactly when it can be claimed; a
 * key's list has its parts, the oldest first; a destination's list has the vertices with pending
 * recipients; counters agree with the objects.
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
    uint64_t rcpts, messages;         /* number of pending recipients, and of their files */
    LIST_HEAD(, post_vertex) waiting; /* vertices with pending recipients */
    size_t vertices;                  /* number of its vertices in all files; the destination is
                                       * freed with the last */
    UT_hash_handle hh;
    size_t transport_len, key_len;
    char key[]; /* transport, '/', nexthop */
};

/* Texts of a failure, with `refs` references. */
struct post_text {
    size_t refs;
    bool shared; /* is in the table of texts */
    UT_hash_handle hh;
    size_t status_len, diagnostic_len, reply_len, remote_len, len;
    char text[]; /* status, diagnostic, reply, remote, notary */
};

struct post_key {
    TAILQ_HEAD(post_key_parts, post_part) parts; /* parts that can be claimed */
    size_t count;                                /* number of all parts that are parked here */
    bool idle;                                   /* unused, to be freed at the end of the batch */
    SLIST_ENTRY(post_key) by_idle;               /* link in the list of idle keys */
    UT_hash_handle hh;
    size_t len;
    char name[];
};

struct post_rcpt {
    struct post_part *part; /* NULL: finished, or an alternative that is not tried yet */
    uint32_t offset;
    uint32_t vertex;       /* index of its vertex */
    uint32_t address_hash; /* hashes of the address and of its domain, in lower case */
    uint32_t domain_hash;
    uint16_t attempts;
    uint8_t state; /* enum spool_rcpt_state, POST_DONE or POST_ALTERNATIVE */
    char tag;      /* tag of its end: '+' or '-' */
};

/* States of recipients next to those of enum spool_rcpt_state. */
enum { POST_DONE = 16, POST_ALTERNATIVE = 17 };

struct post_vertex {
    struct post_file *file;
    struct post_dest *dest;
    struct post_part *put_off; /* part to which its recipients were put off last; NULL */
    struct post_text *words;   /* owned reference: texts of its last failure; NULL */
    int64_t last_attempt_us;
    uint32_t pending;
    LIST_ENTRY(post_vertex) by_dest;
};

/* Fields that change, in one struct so that one assignment undoes a change. */
struct post_fields {
    struct wall due;
    struct wall created;
    struct post_key *key; /* key under which it is parked; NULL */
    uint32_t warnings;
    uint8_t state; /* INCOMING or DEFERRED */
    bool claimed;
    bool dormant; /* a root that is not a message now */
    bool gone;    /* freed at the commit */
    bool force_expire;
};

struct post_part {
    uint64_t id;
    struct post_file *file;
    struct post_fields f;
    uint32_t pending;        /* number of pending recipients */
    uint32_t low, high;      /* bounds of its recipients: low <= index < high */
    uint32_t pending_low;    /* lower bound of the pending ones */
    uint32_t pending_before; /* `pending` before a resync */
    uint32_t put_off_vertex; /* vertex whose `put_off` may be this part */
    struct heap_node due;
    TAILQ_ENTRY(post_part) by_key;
    LIST_ENTRY(post_part) by_file;
};

struct post_file_fields {
    struct wall report_due; /* time of the report on collected results; WALL_NEVER: none */
    uint32_t failed;        /* number of failed recipients */
    uint8_t state;          /* SPOOL_HOLD, SPOOL_CORRUPT, or 0: the states of its parts apply */
    bool gone;
    char *reason; /* reason of that state; owned */
};

struct post_work;

struct post_file {
    uint64_t number; /* digits of its name */
    UT_hash_handle hh;
    struct post_file_fields f;
    struct post_part root;
    LIST_HEAD(, post_part) parts; /* all parts except the root */
    struct post_rcpt *rcpts;      /* owned; in the order of their offsets */
    struct post_vertex *vertices; /* owned */
    struct post_work *work;       /* changes of the open batch on disk; NULL */
    uint32_t rcpt_count, vertex_count;
    uint32_t total;              /* number of recipients when it was written */
    uint32_t pending, to_report; /* numbers of recipients in all parts */
    uint32_t resyncs;
    uint32_t owner;    /* uid of the message file */
    uint32_t log_hash; /* hash of the `l` line */
    uint64_t size;     /* size of the message file */
    struct wall arrived, listed;
    uint32_t mtime_ns;     /* nanoseconds of `arrived` */
    uint8_t levels;        /* levels of hash directories */
    uint8_t flags;         /* enum envelope_flag bits */
    uint8_t on_disk;       /* state in the file's name; the open batch may be about to change it */
    bool same_number_told; /* the event that another file has the same number was reported */
    bool has_alternatives;
    bool is_verbose; /* has a `v` line: events are written to the sender's log file */
    bool hollow;     /* found quarantined, so its recipients are not known */
    bool is_locked;  /* another program has locked it: it is loaded again before it is claimed */
    uint16_t name_len, sender_len, envid_len;
    char text[]; /* hash directory "A/", name with NUL, sender, envid */
};

struct post_undo;

struct post_table {
    struct post_file *files; /* hashed by number */
    struct post_dest *dests;
    struct post_key *keys;
    SLIST_HEAD(, post_key) idle_keys;
    struct post_text *texts;
    struct post_by_id {
        uint64_t id;
        struct post_part *part; /* NULL: freed */
    } * by_id;                  /* owned; in the order of ids, which only grow */
    size_t id_count, id_size, id_gone;
    struct heap due[2]; /* heaps for INCOMING and DEFERRED */
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

/* Returns a message, or NULL if it is gone or dormant. */
struct post_part *table_part(const struct post_table *t, uint64_t id);
/* Returns the index in by_id of the first id above `after`. */
size_t table_after(const struct post_table *t, uint64_t after);
struct post_file *table_file(const struct post_table *t, uint64_t number);

/* ---- files: made and forgotten outside batches ---- */

/* Makes a file with its root and this number of recipients and vertices. The caller fills them in,
 * then calls table_add. `path` is relative to transport/. */
struct post_file *table_file_new(struct slice path, struct slice sender, struct slice envid,
                                 uint32_t rcpt_count, uint32_t vertex_count);
/* Adds the file and takes it. Its recipients have their part, state and vertex, and root.f is
 * set. */
void table_add(struct post_table *t, struct post_file *file);
/* Removes the file and frees it with all its parts. */
void table_forget(struct post_table *t, struct post_file *file);
/* Returns the destination, made if it is new, and counts another vertex of it. */
struct post_dest *table_dest(struct post_table *t, struct slice transport, struct slice nexthop);
struct post_dest *table_dest_find(const struct post_table *t, struct slice transport,
                                  struct slice nexthop);

struct slice post_name(const struct post_file *file); /* without the hash directory */
struct slice post_path(const struct post_file *file); /* with a NUL after it */
struct slice post_sender(const struct post_file *file);
struct slice post_envid(const struct post_file *file);
struct slice dest_transport(const struct post_dest *dest);
struct slice dest_nexthop(const struct post_dest *dest);

/* Returns the state of a message as callers of the spool see it. */
enum spool_state post_state(const struct post_part *p);
/* Returns the number of recipients with a due report; only a root has some. */
uint32_t post_to_report(const struct post_part *p);

/* ---- changes: undone with the batch if there is one ---- */

/* Sets a part's fields; nothing else changes them. A part that is `gone` is freed with the batch,
 * or at once if there is none. */
void table_set(struct post_table *t, struct post_part *p, struct post_fields to);
/* Sets a file's fields. Takes to.reason, which must be a new string if it differs. */
void table_set_file(struct post_table *t, struct post_file *file, struct post_file_fields to);
/* Sets a recipient's part, state, tag and attempts. */
void table_set_rcpt(struct post_table *t, struct post_file *file, uint32_t index,
                    struct post_rcpt to);
/* Sets the texts and the time of a vertex's last failure. */
void table_set_words(struct post_table *t, struct post_vertex *v, const struct spool_verdict *said,
                     struct wall when);
/* Makes a new part, unclaimed; recipients are moved there with table_set_rcpt. */
struct post_part *table_divide(struct post_table *t, struct post_file *file,
                               struct post_fields fields);
/* Returns a key, made if it is new. A key is freed when no part is parked there and no batch is
 * open. */
struct post_key *table_key(struct post_table *t, struct slice name);
struct post_key *table_key_find(const struct post_table *t, struct slice name);

/* Returns the index of the recipient with this offset, or file->rcpt_count. */
uint32_t table_rcpt_at(const struct post_file *file, uint64_t offset);
/* Returns the index of the first recipient with an offset above `offset`. */
uint32_t table_rcpt_behind(const struct post_file *file, uint64_t offset);
/* Returns the index of the part's first recipient at or after `index`, only a pending one if
 * `only_pending`; part->high if there is none. */
uint32_t table_rcpt_next(struct post_part *p, uint32_t index, bool only_pending);

/* Aborts unless the invariants hold. */
void table_audit(const struct post_table *t);

#endif
