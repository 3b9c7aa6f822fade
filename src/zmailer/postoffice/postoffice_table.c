#include "postoffice_table.h"

#include <string.h>

#include "check.h"
#include "mem.h"
#include "spool_engine.h"

enum undo_type { UNDO_PART, UNDO_FILE, UNDO_RCPT, UNDO_WORDS, UNDO_DIVIDE };

/* A change with its old value. */
struct post_undo {
    enum undo_type type;
    bool buries;      /* the change that set `gone` */
    bool owns_reason; /* the change that replaced the reason */
    struct post_part *part;
    struct post_file *file;
    uint32_t index; /* index of a recipient or vertex */
    union {
        struct post_fields part;
        struct post_file_fields file;
        struct post_rcpt rcpt;
        struct {
            struct post_text *words;
            int64_t last_attempt_us;
        } said;
    } before;
};

/* ---- names ---------------------------------------------------------------------------------- */

static size_t hash_len(const struct post_file *file)
{
    return 2 * (size_t)file->levels;
}

struct slice post_path(const struct post_file *file)
{
    return slice_of(file->text, hash_len(file) + file->name_len);
}

struct slice post_name(const struct post_file *file)
{
    return slice_of(file->text + hash_len(file), file->name_len);
}

struct slice post_sender(const struct post_file *file)
{
    return slice_of(file->text + hash_len(file) + file->name_len + 1, file->sender_len);
}

struct slice post_envid(const struct post_file *file)
{
    struct slice sender = post_sender(file);

    return slice_of(sender.ptr + sender.len, file->envid_len);
}

struct slice dest_transport(const struct post_dest *dest)
{
    return slice_of(dest->key, dest->transport_len);
}

struct slice dest_nexthop(const struct post_dest *dest)
{
    return slice_of(dest->key + dest->transport_len + 1, dest->key_len - dest->transport_len - 1);
}

enum spool_state post_state(const struct post_part *p)
{
    return (enum spool_state)(p->file->f.state != 0 ? p->file->f.state : p->f.state);
}

uint32_t post_to_report(const struct post_part *p)
{
    return p == &p->file->root ? p->file->to_report : 0;
}

/* ---- the log -------------------------------------------------------------------------------- */

static struct post_undo *log_add(struct post_table *t, enum undo_type type, struct post_file *file)
{
    struct post_undo *undo;

    t->log = mem_grow(t->log, t->log_count, &t->log_size, sizeof t->log[0]);
    undo = &t->log[t->log_count++];
    *undo = (struct post_undo){.type = type, .file = file};
    return undo;
}

/* ---- keys ----------------------------------------------------------------------------------- */

static void key_free(struct post_table *t, struct post_key *key)
{
    HASH_DEL(t->keys, key);
    mem_free(key);
}

/* Handles a key under which nothing is parked. During a batch it is kept for the log until the
 * end. */
static void key_idle(struct post_table *t, struct post_key *key)
{
    if (!t->logging) {
        key_free(t, key);
    } else if (!key->idle) {
        key->idle = true;
        SLIST_INSERT_HEAD(&t->idle_keys, key, by_idle);
    }
}

static void free_idle_keys(struct post_table *t)
{
    struct post_key *key;

    while ((key = SLIST_FIRST(&t->idle_keys)) != NULL) {
        SLIST_REMOVE_HEAD(&t->idle_keys, by_idle);
        key->idle = false;
        if (key->count == 0) {
            key_free(t, key);
        }
    }
}

struct post_key *table_key_find(const struct post_table *t, struct slice name)
{
    struct post_key *key;

    HASH_FIND(hh, t->keys, name.ptr, name.len, key);
    return key;
}

struct post_key *table_key(struct post_table *t, struct slice name)
{
    struct post_key *key = table_key_find(t, name);

    if (key == NULL) {
        key = mem_new(sizeof *key + name.len);
        key->len = name.len;
        memcpy(key->name, name.ptr, name.len);
        TAILQ_INIT(&key->parts);
        HASH_ADD(hh, t->keys, name, name.len, key);
        if (t->logging) {
            key_idle(t, key);
        }
    }
    return key;
}

/* ---- destinations --------------------------------------------------------------------------- */

#define DEST_KEY_MAX (2 * SPOOL_ROUTE_MAX + 1)

static size_t dest_key(char key[DEST_KEY_MAX], struct slice transport, struct slice nexthop)
{
    CHECK(transport.len <= SPOOL_ROUTE_MAX);
    CHECK(nexthop.len <= SPOOL_ROUTE_MAX);
    memcpy(key, transport.ptr, transport.len);
    key[transport.len] = '/';
    memcpy(key + transport.len + 1, nexthop.ptr, nexthop.len);
    return transport.len + 1 + nexthop.len;
}

struct post_dest *table_dest_find(const struct post_table *t, struct slice transport,
                                  struct slice nexthop)
{
    char key[DEST_KEY_MAX];
    struct post_dest *dest;
    size_t len;

    if (transport.len > SPOOL_ROUTE_MAX || nexthop.len > SPOOL_ROUTE_MAX) {
        return NULL;
    }
    len = dest_key(key, transport, nexthop);
    HASH_FIND(hh, t->dests, key, len, dest);
    return dest;
}

struct post_dest *table_dest(struct post_table *t, struct slice transport, struct slice nexthop)
{
    struct post_dest *dest = table_dest_find(t, transport, nexthop);
    size_t len = transport.len + 1 + nexthop.len;

    if (dest == NULL) {
        dest = mem_new(sizeof *dest + len);
        dest->transport_len = transport.len;
        dest->key_len = dest_key(dest->key, transport, nexthop);
        LIST_INIT(&dest->waiting);
        HASH_ADD(hh, t->dests, key, dest->key_len, dest);
    }
    dest->vertices++;
    return dest;
}

static void dest_drop(struct post_table *t, struct post_dest *dest)
{
    if (--dest->vertices == 0) {
        CHECK(dest->rcpts == 0);
        HASH_DEL(t->dests, dest);
        mem_free(dest);
    }
}

/* ---- texts ----------------------------------------------------------------------------------- */

#define TEXT_MAX                                                                                   \
    (SPOOL_STATUS_MAX + SPOOL_DIAGNOSTIC_MAX + SPOOL_REPLY_MAX + SPOOL_REMOTE_MAX +                \
     SPOOL_DETAILS_MAX)

static struct post_text *text_take(struct post_table *t, const struct spool_verdict *said)
{
    const struct slice parts[] = {said->status, said->diagnostic, said->reply, said->remote,
                                  said->details};
    char bytes[TEXT_MAX];
    struct post_text *text;
    size_t len = 0;

    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        CHECK(parts[i].len <= sizeof bytes - len);
        if (parts[i].len > 0) {
            memcpy(bytes + len, parts[i].ptr, parts[i].len);
        }
        len += parts[i].len;
    }
    if (len == 0) {
        return NULL;
    }
    HASH_FIND(hh, t->texts, bytes, len, text);
    /* Equal bytes with other boundaries are other texts; the new one replaces the shared one. */
    if (text == NULL || text->status_len != said->status.len ||
        text->diagnostic_len != said->diagnostic.len || text->reply_len != said->reply.len ||
        text->remote_len != said->remote.len) {
        if (text != NULL) {
            HASH_DEL(t->texts, text);
            text->shared = false;
        }
        text = mem_new(sizeof *text + len);
        text->status_len = said->status.len;
        text->diagnostic_len = said->diagnostic.len;
        text->reply_len = said->reply.len;
        text->remote_len = said->remote.len;
        text->len = len;
        text->shared = true;
        memcpy(text->text, bytes, len);
        HASH_ADD(hh, t->texts, text, len, text);
    }
    text->refs++;
    return text;
}

static void text_drop(struct post_table *t, struct post_text *text)
{
    if (text != NULL && --text->refs == 0) {
        if (text->shared) {
            HASH_DEL(t->texts, text);
        }
        mem_free(text);
    }
}

static void words_put(struct post_vertex *v, struct post_text *words, int64_t last_attempt_us)
{
    v->words = words;
    v->last_attempt_us = last_attempt_us;
}

void table_set_words(struct post_table *t, struct post_vertex *v, const struct spool_verdict *said,
                     struct wall when)
{
    struct post_text *before = v->words;

    if (t->logging) {
        struct post_undo *undo = log_add(t, UNDO_WORDS, v->file);

        undo->index = (uint32_t)(v - v->file->vertices);
        undo->before.said.words = before;
        undo->before.said.last_attempt_us = v->last_attempt_us;
    }
    words_put(v, text_take(t, said), when.us != 0 ? when.us : v->last_attempt_us);
    if (!t->logging) {
        text_drop(t, before);
    }
}

/* ---- parts ---------------------------------------------------------------------------------- */

static bool due_before(const struct heap_node *a, const struct heap_node *b)
{
    const struct post_part *x = CONTAINER_OF(a, const struct post_part, due);
    const struct post_part *y = CONTAINER_OF(b, const struct post_part, due);

    /* all mail for a thread is due at the same time; the oldest is first */
    return x->f.due.us != y->f.due.us                   ? x->f.due.us < y->f.due.us
           : x->file->arrived.us != y->file->arrived.us ? x->file->arrived.us < y->file->arrived.us
                                                        : x->id < y->id;
}

static struct heap *heap_of(struct post_table *t, const struct post_part *p)
{
    return &t->due[p->f.state == SPOOL_INCOMING ? 0 : 1];
}

static bool is_message(const struct post_part *p)
{
    return !p->f.gone && !p->f.dormant && !p->file->f.gone;
}

/* Adds a part to the indexes that its fields require. unplace removes it before they change. */
static void place(struct post_table *t, struct post_part *p)
{
    struct post_key *key = p->f.key;

    if (is_message(p)) {
        ++*spool_total_of(&t->totals, post_state(p));
    }
    if (is_message(p) && !p->f.claimed && p->file->f.state == 0) {
        heap_add(heap_of(t, p), &p->due);
        if (key != NULL) {
            TAILQ_INSERT_TAIL(&key->parts, p, by_key);
        }
    }
    if (key != NULL) {
        key->count++;
    }
}

static void unplace(struct post_table *t, struct post_part *p)
{
    struct post_key *key = p->f.key;

    if (is_message(p)) {
        --*spool_total_of(&t->totals, post_state(p));
    }
    if (heap_has(&p->due)) {
        heap_remove(heap_of(t, p), &p->due);
        if (key != NULL) {
            TAILQ_REMOVE(&key->parts, p, by_key);
        }
    }
    if (key != NULL && --key->count == 0) {
        key_idle(t, key);
    }
}

size_t table_after(const struct post_table *t, uint64_t after)
{
    size_t low = 0, high = t->id_count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (t->by_id[middle].id <= after) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static void id_drop(struct post_table *t, uint64_t id)
{
    size_t at = table_after(t, id - 1), kept = 0;

    CHECK(at < t->id_count);
    CHECK(t->by_id[at].id == id);
    t->by_id[at].part = NULL;
    if (++t->id_gone < 1024 || t->id_gone < t->id_count / 2) {
        return;
    }
    for (size_t i = 0; i < t->id_count; i++) {
        if (t->by_id[i].part != NULL) {
            t->by_id[kept++] = t->by_id[i];
        }
    }
    t->id_count = kept;
    t->id_gone = 0;
}

/* Removes a part from all indexes and frees it. Not for the root, which is part of its file. */
static void part_free(struct post_table *t, struct post_part *p)
{
    struct post_file *file = p->file;

    unplace(t, p);
    id_drop(t, p->id);
    if (file->vertex_count > 0 && file->vertices[p->put_off_vertex].put_off == p) {
        file->vertices[p->put_off_vertex].put_off = NULL;
    }
    LIST_REMOVE(p, by_file);
    mem_free(p);
}

void table_set(struct post_table *t, struct post_part *p, struct post_fields to)
{
    struct post_key *was = p->f.key;

    if (t->logging) {
        struct post_undo *undo = log_add(t, UNDO_PART, p->file);

        undo->part = p;
        undo->before.part = p->f;
        undo->buries = to.gone && !p->f.gone;
    }
    if (was != NULL) {
        was->count++; /* keeps the key if it does not change */
    }
    unplace(t, p);
    p->f = to;
    place(t, p);
    if (was != NULL && --was->count == 0) {
        key_idle(t, was);
    }
    if (to.gone && !t->logging) {
        part_free(t, p);
    }
}

static void id_add(struct post_table *t, struct post_part *p)
{
    t->by_id = mem_grow(t->by_id, t->id_count, &t->id_size, sizeof t->by_id[0]);
    p->id = table_next_id(t);
    t->by_id[t->id_count++] = (struct post_by_id){p->id, p};
}

struct post_part *table_part(const struct post_table *t, uint64_t id)
{
    size_t at = id == 0 ? t->id_count : table_after(t, id - 1);
    struct post_part *p;

    if (at == t->id_count || t->by_id[at].id != id) {
        return NULL;
    }
    p = t->by_id[at].part;
    return p != NULL && is_message(p) ? p : NULL;
}

uint64_t table_next_id(struct post_table *t)
{
    return ++t->last_id;
}

static void part_init(struct post_part *p, struct post_file *file)
{
    p->file = file;
    heap_node_init(&p->due);
}

struct post_part *table_divide(struct post_table *t, struct post_file *file,
                               struct post_fields fields)
{
    struct post_part *p = mem_new(sizeof *p);

    part_init(p, file);
    id_add(t, p);
    LIST_INSERT_HEAD(&file->parts, p, by_file);
    p->f = fields;
    place(t, p);
    if (t->logging) {
        log_add(t, UNDO_DIVIDE, file)->part = p;
    }
    return p;
}

/* ---- recipients ----------------------------------------------------------------------------- */

static bool to_report(const struct post_rcpt *r)
{
    return r->state == SPOOL_RCPT_FAILED || r->state == SPOOL_RCPT_DELIVERED ||
           r->state == SPOOL_RCPT_RELAYED;
}

static void part_reach(struct post_part *p, uint32_t index, bool pending)
{
    if (p->low >= p->high) {
        p->low = index;
        p->high = index + 1;
        p->pending_low = index;
    }
    p->low = index < p->low ? index : p->low;
    p->high = index >= p->high ? index + 1 : p->high;
    if (pending && index < p->pending_low) {
        p->pending_low = index;
    }
}

static void rcpt_count_in(struct post_file *file, uint32_t index)
{
    const struct post_rcpt *r = &file->rcpts[index];
    struct post_vertex *v = &file->vertices[r->vertex];

    if (r->part != NULL) {
        part_reach(r->part, index, r->state == SPOOL_RCPT_PENDING);
    }
    if (r->state == SPOOL_RCPT_PENDING) {
        CHECK(r->part != NULL);
        r->part->pending++;
        file->pending++;
        v->dest->rcpts++;
        if (v->pending++ == 0) {
            v->dest->messages++;
            LIST_INSERT_HEAD(&v->dest->waiting, v, by_dest);
        }
    }
    file->to_report += to_report(r);
}

static void rcpt_count_out(struct post_file *file, uint32_t index)
{
    const struct post_rcpt *r = &file->rcpts[index];
    struct post_vertex *v = &file->vertices[r->vertex];

    if (r->state == SPOOL_RCPT_PENDING) {
        r->part->pending--;
        file->pending--;
        v->dest->rcpts--;
        if (--v->pending == 0) {
            v->dest->messages--;
            LIST_REMOVE(v, by_dest);
        }
    }
    file->to_report -= to_report(r);
}

static void rcpt_put(struct post_file *file, uint32_t index, struct post_rcpt to)
{
    rcpt_count_out(file, index);
    file->rcpts[index] = to;
    rcpt_count_in(file, index);
}

void table_set_rcpt(struct post_table *t, struct post_file *file, uint32_t index,
                    struct post_rcpt to)
{
    if (t->logging) {
        struct post_undo *undo = log_add(t, UNDO_RCPT, file);

        undo->index = index;
        undo->before.rcpt = file->rcpts[index];
    }
    rcpt_put(file, index, to);
}

uint32_t table_rcpt_behind(const struct post_file *file, uint64_t offset)
{
    uint32_t low = 0, high = file->rcpt_count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (file->rcpts[middle].offset <= offset) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

uint32_t table_rcpt_at(const struct post_file *file, uint64_t offset)
{
    uint32_t behind = table_rcpt_behind(file, offset);

    return behind > 0 && file->rcpts[behind - 1].offset == offset ? behind - 1 : file->rcpt_count;
}

uint32_t table_rcpt_next(struct post_part *p, uint32_t index, bool only_pending)
{
    uint32_t from = only_pending ? p->pending_low : p->low, i = index > from ? index : from;

    while (i < p->high && (p->file->rcpts[i].part != p ||
                           (only_pending && p->file->rcpts[i].state != SPOOL_RCPT_PENDING))) {
        i++;
    }
    if (index <= from && only_pending) {
        p->pending_low = i;
    } else if (index <= from) {
        p->low = i;
    }
    return i < p->high ? i : p->high;
}

/* ---- files ---------------------------------------------------------------------------------- */

struct post_file *table_file(const struct post_table *t, uint64_t number)
{
    struct post_file *file;

    HASH_FIND(hh, t->files, &number, sizeof number, file);
    return file;
}

struct post_file *table_file_new(struct slice path, struct slice sender, struct slice envid,
                                 uint32_t rcpt_count, uint32_t vertex_count)
{
    struct post_file *file = mem_new(sizeof *file + path.len + 1 + sender.len + envid.len);
    size_t slash = slice_find_last(path, '/'), hash = slash == path.len ? 0 : slash + 1;
    char *to = file->text;

    CHECK(hash <= 4);
    CHECK(path.len - hash <= UINT16_MAX);
    CHECK(sender.len <= UINT16_MAX);
    CHECK(envid.len <= UINT16_MAX);
    file->levels = (uint8_t)(hash / 2);
    file->name_len = (uint16_t)(path.len - hash);
    file->sender_len = (uint16_t)sender.len;
    file->envid_len = (uint16_t)envid.len;
    memcpy(to, path.ptr, path.len);
    memcpy(to + path.len + 1, sender.ptr, sender.len);
    memcpy(to + path.len + 1 + sender.len, envid.ptr, envid.len);
    LIST_INIT(&file->parts);
    part_init(&file->root, file);
    file->f.report_due = WALL_NEVER;
    file->rcpt_count = rcpt_count;
    file->vertex_count = vertex_count;
    file->rcpts = mem_array(rcpt_count, sizeof file->rcpts[0]);
    file->vertices = mem_array(vertex_count, sizeof file->vertices[0]);
    return file;
}

void table_add(struct post_table *t, struct post_file *file)
{
    CHECK(!t->logging);
    for (uint32_t i = 0; i < file->rcpt_count; i++) {
        rcpt_count_in(file, i);
    }
    HASH_ADD(hh, t->files, number, sizeof file->number, file);
    id_add(t, &file->root);
    place(t, &file->root);
    t->totals.bytes += file->size;
}

void table_forget(struct post_table *t, struct post_file *file)
{
    struct post_part *p;

    CHECK(file->work == NULL);
    for (uint32_t i = 0; i < file->rcpt_count; i++) {
        rcpt_count_out(file, i);
    }
    while ((p = LIST_FIRST(&file->parts)) != NULL) {
        part_free(t, p);
    }
    unplace(t, &file->root);
    id_drop(t, file->root.id);
    for (uint32_t i = 0; i < file->vertex_count; i++) {
        text_drop(t, file->vertices[i].words);
        dest_drop(t, file->vertices[i].dest);
    }
    if (!file->f.gone) {
        t->totals.bytes -= file->size;
    }
    HASH_DEL(t->files, file);
    mem_free(file->f.reason);
    mem_free(file->rcpts);
    mem_free(file->vertices);
    mem_free(file);
}

/* Adds all parts of the file to the indexes, or removes them. */
static void file_place(struct post_table *t, struct post_file *file, bool in)
{
    struct post_part *p;

    (in ? place : unplace)(t, &file->root);
    LIST_FOREACH(p, &file->parts, by_file)
    {
        (in ? place : unplace)(t, p);
    }
    if (!file->f.gone) {
        t->totals.bytes += in ? file->size : -file->size;
    }
}

static void file_put(struct post_table *t, struct post_file *file, struct post_file_fields to)
{
    bool moves = to.state != file->f.state || to.gone != file->f.gone;

    if (moves) {
        file_place(t, file, false);
    }
    file->f = to;
    if (moves) {
        file_place(t, file, true);
    }
}

void table_set_file(struct post_table *t, struct post_file *file, struct post_file_fields to)
{
    struct post_file_fields before = file->f;

    if (t->logging) {
        struct post_undo *undo = log_add(t, UNDO_FILE, file);

        undo->before.file = before;
        undo->buries = to.gone && !before.gone;
        undo->owns_reason = before.reason != to.reason;
    }
    file_put(t, file, to);
    if (!t->logging && before.reason != to.reason) {
        mem_free(before.reason);
    }
}

/* ---- the batch ------------------------------------------------------------------------------ */

void table_begin(struct post_table *t)
{
    CHECK(!t->logging);
    t->logging = true;
}

void table_commit(struct post_table *t)
{
    /* Frees the strings first, then the parts, then their files. A change of a reason owns the old
     * reason; the next change of that file has the newer one. */
    for (size_t i = 0; i < t->log_count; i++) {
        struct post_undo *undo = &t->log[i];

        if (undo->type == UNDO_WORDS) {
            text_drop(t, undo->before.said.words);
        } else if (undo->type == UNDO_FILE && undo->owns_reason) {
            mem_free(undo->before.file.reason);
        }
    }
    for (size_t i = 0; i < t->log_count; i++) {
        const struct post_undo *undo = &t->log[i];

        if (undo->type == UNDO_PART && undo->buries && undo->part != &undo->file->root) {
            part_free(t, undo->part);
        }
    }
    for (size_t i = 0; i < t->log_count; i++) {
        if (t->log[i].type == UNDO_FILE && t->log[i].buries) {
            table_forget(t, t->log[i].file);
        }
    }
    t->log_count = 0;
    free_idle_keys(t);
    t->logging = false;
}

static void undo_one(struct post_table *t, const struct post_undo *undo)
{
    struct post_vertex *v;

    switch (undo->type) {
    case UNDO_PART:
        unplace(t, undo->part);
        undo->part->f = undo->before.part;
        place(t, undo->part);
        break;
    case UNDO_FILE:
        if (undo->owns_reason) {
            mem_free(undo->file->f.reason);
        }
        file_put(t, undo->file, undo->before.file);
        break;
    case UNDO_RCPT:
        rcpt_put(undo->file, undo->index, undo->before.rcpt);
        break;
    case UNDO_WORDS:
        v = &undo->file->vertices[undo->index];
        text_drop(t, v->words);
        words_put(v, undo->before.said.words, undo->before.said.last_attempt_us);
        break;
    case UNDO_DIVIDE:
        part_free(t, undo->part);
        break;
    }
}

void table_undo(struct post_table *t)
{
    while (t->log_count > 0) {
        undo_one(t, &t->log[--t->log_count]);
    }
    free_idle_keys(t);
    t->logging = false;
}

/* ---- setup and audit ------------------------------------------------------------------------- */

void table_init(struct post_table *t, uint64_t id_floor)
{
    *t = (struct post_table){.last_id = id_floor};
    SLIST_INIT(&t->idle_keys);
    for (size_t i = 0; i < 2; i++) {
        heap_init(&t->due[i], due_before);
    }
}

void table_fini(struct post_table *t)
{
    struct post_file *file, *next;

    CHECK(!t->logging);
    HASH_ITER(hh, t->files, file, next)
    {
        table_forget(t, file);
    }
    for (size_t i = 0; i < 2; i++) {
        heap_fini(&t->due[i]);
    }
    mem_free(t->by_id);
    mem_free(t->log);
}

static void audit_part(const struct post_part *p)
{
    uint32_t pending = 0;

    for (uint32_t i = 0; i < p->file->rcpt_count; i++) {
        const struct post_rcpt *r = &p->file->rcpts[i];

        if (r->part != p) {
            continue;
        }
        CHECK(i >= p->low);
        CHECK(i < p->high);
        if (r->state == SPOOL_RCPT_PENDING) {
            CHECK(i >= p->pending_low);
            pending++;
        } else {
            CHECK(p == &p->file->root);
            CHECK(to_report(r));
        }
    }
    CHECK(pending == p->pending);
    CHECK(heap_has(&p->due) == (is_message(p) && !p->f.claimed && p->file->f.state == 0));
}

void table_audit(const struct post_table *t)
{
    const struct post_file *file, *next_file;
    const struct post_dest *dest, *next_dest;
    const struct post_part *p;
    struct spool_totals totals = {0};
    uint64_t pending = 0, waiting = 0;

    HASH_ITER(hh, t->files, file, next_file)
    {
        uint32_t of_parts = file->root.pending;

        audit_part(&file->root);
        if (is_message(&file->root)) {
            ++*spool_total_of(&totals, post_state(&file->root));
        }
        LIST_FOREACH(p, &file->parts, by_file)
        {
            audit_part(p);
            of_parts += p->pending;
            if (is_message(p)) {
                ++*spool_total_of(&totals, post_state(p));
            }
        }
        CHECK(of_parts == file->pending);
        pending += file->pending;
        totals.bytes += file->f.gone ? 0 : file->size;
    }
    HASH_ITER(hh, t->dests, dest, next_dest)
    {
        waiting += dest->rcpts;
    }
    CHECK(pending == waiting);
    CHECK(memcmp(&totals, &t->totals, sizeof totals) == 0);
    heap_audit(&t->due[0]);
    heap_audit(&t->due[1]);
}
