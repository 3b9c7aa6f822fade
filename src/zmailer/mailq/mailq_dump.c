#include "mailq_dump.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "clock.h"
#include "hash.h"
#include "mailq_json.h"
#include "mailq_text.h"
#include "mem.h"

/* The current message's vertex for one thread. */
struct vertex {
    bool open;
    uint64_t *offsets; /* owned */
    size_t count, size;
    struct mailq_vertex v; /* values of its first recipient; path and diagnostic are not set */
    char *diagnostic;      /* owned */
};

struct dumped_thread {
    UT_hash_handle hh;
    uint32_t number;            /* from 0, in the order of first vertices */
    const char *channel, *host; /* point into `key` */
    struct vertex vertex;
    size_t key_len;
    char key[]; /* channel, NUL, host, NUL */
};

struct mailq_dump {
    struct dumped_thread *threads;
    struct dumped_thread **by_number; /* owned array */
    size_t thread_count;
    uint32_t *vertices; /* owned: number of the thread, by key - 1 */
    size_t vertex_count, vertex_size;
    uint32_t *open; /* owned: threads with vertices of the current message */
    size_t open_count, open_size;
};

struct mailq_dump *mailq_dump_new(void)
{
    return mem_new(sizeof(struct mailq_dump));
}

static void vertex_fini(struct vertex *x)
{
    mem_free(x->offsets);
    mem_free(x->diagnostic);
    *x = (struct vertex){0};
}

void mailq_dump_free(struct mailq_dump *d)
{
    if (d == NULL) {
        return;
    }
    for (size_t i = 0; i < d->thread_count; i++) {
        HASH_DEL(d->threads, d->by_number[i]);
        vertex_fini(&d->by_number[i]->vertex);
        mem_free(d->by_number[i]);
    }
    mem_free(d->by_number);
    mem_free(d->vertices);
    mem_free(d->open);
    mem_free(d);
}

/* ---- vertices ------------------------------------------------------------------------------- */

/* Appends to a growing array of numbers. */
static void append(uint32_t **array, size_t *count, size_t *size, uint32_t number)
{
    if (*count == *size) {
        *size = *size == 0 ? 64 : 2 * *size;
        *array = mem_resize(*array, *size, sizeof **array);
    }
    (*array)[(*count)++] = number;
}

/* Returns the thread, made if it is missing. */
static struct dumped_thread *need_thread(struct mailq_dump *d, const json_t *thread)
{
    struct slice channel = mailq_json_text(thread, "transport");
    struct slice host = mailq_json_text(thread, "nexthop");
    struct dumped_thread *t;
    struct buf key;

    buf_init(&key, channel.len + host.len + 16);
    (void)buf_add(&key, channel); /* fits, as the rest of the key */
    (void)buf_add_byte(&key, '\0');
    (void)buf_add(&key, host);
    (void)buf_add_byte(&key, '\0');
    HASH_FIND(hh, d->threads, key.ptr, buf_len(&key), t);
    if (t == NULL) {
        t = mem_new(sizeof *t + buf_len(&key));
        t->key_len = buf_len(&key);
        memcpy(t->key, buf_slice(&key).ptr, t->key_len);
        t->channel = t->key;
        t->host = t->key + channel.len + 1;
        t->number = (uint32_t)d->thread_count;
        HASH_ADD_KEYPTR(hh, d->threads, t->key, t->key_len, t);
        d->by_number =
            mem_resize(d->by_number, d->thread_count + 1, sizeof(struct dumped_thread *));
        d->by_number[d->thread_count++] = t;
    }
    buf_fini(&key);
    return t;
}

/* Sets the values of the vertex as a whole. */
static void begin_vertex(struct vertex *x, const json_t *message, const json_t *rcpt,
                         const json_t *thread)
{
    const json_t *agent = json_array_get(json_object_get(thread, "agents"), 0);
    int64_t now = clock_wall().us / US_PER_S, lifetime = mailq_json_seconds(thread, "lifetime");
    struct slice diagnostic = mailq_json_reply(rcpt);

    x->open = true;
    x->diagnostic = mem_copy(diagnostic.ptr, diagnostic.len);
    x->v = (struct mailq_vertex){
        .retry_in_s = mailq_json_wait(thread, message, now),
        .pending = mailq_json_pending(thread),
        .pid = agent == NULL ? 0 : json_integer_value(json_object_get(agent, "pid")),
        .expires = lifetime > 0,
        .expires_in_s = mailq_json_seconds(message, "created") + lifetime - now,
        .attempts = mailq_json_count32(rcpt, "attempts"),
    };
}

static void add_rcpt(struct mailq_dump *d, const json_t *message, const json_t *rcpt,
                     const json_t *thread)
{
    struct dumped_thread *t = need_thread(d, thread);
    struct vertex *x = &t->vertex;

    if (!x->open) {
        begin_vertex(x, message, rcpt, thread);
        append(&d->open, &d->open_count, &d->open_size, t->number);
    }
    x->v.next_feed = x->v.next_feed || json_is_true(json_object_get(rcpt, "next"));
    if (x->count == x->size) {
        x->size = x->size == 0 ? 4 : 2 * x->size;
        x->offsets = mem_resize(x->offsets, x->size, sizeof *x->offsets);
    }
    x->offsets[x->count++] = mailq_json_count(rcpt, "n");
}

static void end_vertex(struct mailq_dump *d, uint32_t number, struct slice path, struct buf *out)
{
    struct vertex *x = &d->by_number[number]->vertex;

    if (d->vertex_count < MAILQ_DUMP_VERTICES_MAX) {
        append(&d->vertices, &d->vertex_count, &d->vertex_size, number);
        x->v.key = (uint32_t)d->vertex_count;
        x->v.path = path;
        x->v.offsets = x->offsets;
        x->v.rcpt_count = x->count;
        x->v.diagnostic = slice_string(x->diagnostic);
        mailq_put_vertex(out, &x->v);
    }
    vertex_fini(x);
}

void mailq_dump_message(struct mailq_dump *d, const json_t *message, const json_t *threads,
                        bool last, struct buf *out)
{
    struct slice path = mailq_json_path(message);
    const json_t *rcpt;
    size_t i;

    json_array_foreach(json_object_get(message, "recipients"), i, rcpt)
    {
        const json_t *thread = mailq_json_thread(rcpt, threads);

        if (thread != NULL) {
            add_rcpt(d, message, rcpt, thread);
        }
    }
    if (last) {
        for (i = 0; i < d->open_count; i++) {
            end_vertex(d, d->open[i], path, out);
        }
        d->open_count = 0;
    }
}

/* ---- channels and hosts --------------------------------------------------------------------- */

static int by_channel(const void *a, const void *b)
{
    const struct dumped_thread *const *x = a, *const *y = b;
    int order = strcmp((*x)->channel, (*y)->channel);

    return order != 0 ? order : ((*x)->number > (*y)->number) - ((*x)->number < (*y)->number);
}

static int by_host(const void *a, const void *b)
{
    const struct dumped_thread *const *x = a, *const *y = b;
    int order = strcmp((*x)->host, (*y)->host);

    return order != 0 ? order : ((*x)->number > (*y)->number) - ((*x)->number < (*y)->number);
}

/* Appends "NAME:\t>1>5" for each channel or host. The keys are sorted by name with a counting sort:
 * the names get ranks, then the keys are placed by rank. */
static void put_index(const struct mailq_dump *d, bool hosts, struct buf *out)
{
    struct dumped_thread **sorted = mem_array(d->thread_count, sizeof(struct dumped_thread *));
    uint32_t *rank = mem_array(d->thread_count, sizeof *rank);
    size_t *from = mem_array(d->thread_count + 1, sizeof *from);
    uint32_t *keys = mem_array(d->vertex_count, sizeof *keys);
    const char **names = mem_array(d->thread_count, sizeof(const char *));
    size_t count = 0;

    memcpy(sorted, d->by_number, d->thread_count * sizeof(struct dumped_thread *));
    qsort(sorted, d->thread_count, sizeof(struct dumped_thread *), hosts ? by_host : by_channel);
    for (size_t i = 0; i < d->thread_count; i++) {
        const char *name = hosts ? sorted[i]->host : sorted[i]->channel;

        if (count == 0 || strcmp(names[count - 1], name) != 0) {
            names[count++] = name;
        }
        rank[sorted[i]->number] = (uint32_t)(count - 1);
    }
    for (size_t i = 0; i < d->vertex_count; i++) {
        from[rank[d->vertices[i]] + 1]++;
    }
    for (size_t i = 0; i < count; i++) {
        from[i + 1] += from[i];
    }
    for (size_t i = 0; i < d->vertex_count; i++) {
        keys[from[rank[d->vertices[i]]]++] = (uint32_t)i + 1; /* from[r] becomes the end of r */
    }
    (void)buf_addf(out, "%s\n", hosts ? "Hosts:" : "Channels:");
    for (size_t i = 0, key = 0; i < count; i++) {
        (void)buf_addf(out, "%s:\t", names[i]);
        for (; key < from[i]; key++) {
            (void)buf_addf(out, ">%" PRIu32, keys[key]);
        }
        (void)buf_add_byte(out, '\n');
    }
    mem_free(sorted);
    mem_free(rank);
    mem_free(from);
    mem_free(keys);
    mem_free(names);
}

void mailq_dump_end(struct mailq_dump *d, struct buf *out)
{
    if (d->vertex_count > 0) {
        put_index(d, false, out);
        put_index(d, true, out);
    }
    (void)buf_add_string(out, "End:\n");
}
