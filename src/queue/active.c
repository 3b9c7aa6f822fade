#include "active.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "mem.h"

void active_init(struct active *a)
{
    *a = (struct active){0};
}

void active_fini(struct active *a)
{
    struct delivery *d, *next_delivery;
    struct active_msg *m, *next_msg;

    HASH_ITER(hh, a->deliveries, d, next_delivery)
    {
        delivery_remove(a, d);
    }
    HASH_ITER(hh, a->msgs, m, next_msg)
    {
        active_remove(a, m);
    }
}

struct active_msg *active_find(struct active *a, struct msg_id id)
{
    struct active_msg *m;

    HASH_FIND(hh, a->msgs, &id, sizeof id, m);
    return m;
}

/* `name.ptr` may be NULL if the name is empty. */
static struct active_class *class_find(const struct active *a, struct slice name)
{
    struct active_class *c;
    const char *key = name.len > 0 ? name.ptr : "";

    HASH_FIND(hh, a->classes, key, name.len, c);
    return c;
}

static struct active_class *class_add(struct active *a, struct slice name)
{
    struct active_class *c = class_find(a, name);

    if (c == NULL) {
        c = mem_new(sizeof *c + name.len + 1);
        if (name.len > 0) {
            memcpy(c->name, name.ptr, name.len);
        }
        HASH_ADD_KEYPTR(hh, a->classes, c->name, name.len, c);
    }
    c->count++;
    return c;
}

static void class_remove(struct active *a, struct active_class *c)
{
    if (--c->count == 0) {
        HASH_DEL(a->classes, c);
        mem_free(c);
    }
}

size_t active_class_count(const struct active *a, struct slice class_name)
{
    const struct active_class *c = class_find(a, class_name);

    return c != NULL ? c->count : 0;
}

/* Copies a string with its NUL, and returns the place after it. */
static char *put_string(char *at, struct slice string)
{
    if (string.len > 0) {
        memcpy(at, string.ptr, string.len);
    }
    return at + string.len + 1;
}

/* Copies the message's strings into one allocation, which begins with id_text. */
static void put_texts(struct active_msg *m, const struct spool_message *from,
                      struct slice sched_class, const char *id_text)
{
    const struct slice id = from->spoolid.len > 0 ? from->spoolid : slice_string(id_text);
    const struct {
        struct slice text;
        char **copy;
    } texts[] = {{id, &m->id_text},
                 {from->sender, &m->sender},
                 {from->envid, &m->envid},
                 {sched_class, &m->sched_class},
                 {from->path, &m->path}};
    const size_t count = sizeof texts / sizeof texts[0];
    size_t size = 0; /* does not overflow: the spool limits each of them */
    char *at;

    for (size_t i = 0; i < count; i++) {
        size += texts[i].text.len + 1;
    }
    at = mem_new(size);
    for (size_t i = 0; i < count; i++) {
        *texts[i].copy = at;
        at = put_string(at, texts[i].text);
    }
    m->spoolid = from->spoolid.len > 0 ? m->id_text : at - 1; /* the NUL at the end is empty */
}

struct active_msg *active_add(struct active *a, const struct spool_message *from,
                              struct slice sched_class, struct mono now, struct wall wall_now)
{
    struct active_msg *m = mem_new(sizeof *m);
    char id_text[SPOOL_ID_TEXT_MAX];

    CHECK(active_find(a, from->id) == NULL);
    m->id = from->id;
    m->serial = ++a->last_serial;
    m->content_fd = -1;
    spool_id_print(spool_whole(from), id_text);
    put_texts(m, from, sched_class, id_text);
    m->its_class = class_add(a, from->class_name);
    m->flags = from->flags;
    m->arrived = from->arrived;
    m->created = from->created;
    m->listed = from->listed;
    m->fresh = m->is_new = from->state == SPOOL_INCOMING;
    m->activated = now;
    m->activated_wall = wall_now;
    m->size = from->size;
    m->undone = from->rcpt_pending;
    m->state = from->rcpt_to_report > 0 ? ACTIVE_TOUCHED : ACTIVE_CLEAN;
    m->is_part = spool_is_part(from);
    m->warned = from->warnings > 0;
    HASH_ADD(hh, a->msgs, id, sizeof m->id, m);
    return m;
}

void active_touch(struct active_msg *m)
{
    switch (m->state) {
    case ACTIVE_CLEAN:
        m->state = ACTIVE_TOUCHED;
        break;
    case ACTIVE_LEFT:
        m->state = ACTIVE_UNTRIED;
        break;
    case ACTIVE_TOUCHED:
    case ACTIVE_UNTRIED:
    case ACTIVE_DROPPED:
    case ACTIVE_ENDED:
        break;
    }
}

void active_leave(struct active_msg *m)
{
    switch (m->state) {
    case ACTIVE_CLEAN:
        m->state = ACTIVE_LEFT;
        break;
    case ACTIVE_TOUCHED:
        m->state = ACTIVE_UNTRIED;
        break;
    case ACTIVE_LEFT:
    case ACTIVE_UNTRIED:
    case ACTIVE_DROPPED:
    case ACTIVE_ENDED:
        break;
    }
}

void active_drop(struct active_msg *m)
{
    if (m->state != ACTIVE_ENDED) {
        m->state = ACTIVE_DROPPED;
    }
}

void active_end(struct active_msg *m)
{
    CHECK(active_is_clean(m) && m->all_read);
    CHECK(m->waiting.state == WAITS_NOT);
    m->state = ACTIVE_ENDED;
}

void active_sweep_begin(struct active *a)
{
    a->sweep_at = a->msgs;
    a->sweep_end = a->last_serial;
}

struct active_msg *active_sweep_next(struct active *a)
{
    struct active_msg *m = a->sweep_at;

    if (m == NULL || m->serial > a->sweep_end) { /* the table keeps the order of arrival */
        a->sweep_at = NULL;
        return NULL;
    }
    a->sweep_at = m->hh.next;
    return m;
}

void active_remove(struct active *a, struct active_msg *m)
{
    if (a->sweep_at == m) {
        a->sweep_at = m->hh.next;
    }
    HASH_DEL(a->msgs, m);
    for (size_t i = 0; i < m->rcpt_count; i++) {
        mem_free(m->rcpts[i].address);
    }
    if (m->content_fd >= 0) {
        (void)close(m->content_fd); /* can't fail for a memfd */
        a->fd_bytes -= m->size - m->content_len;
        a->fds--;
    }
    if (m->content != NULL) {
        a->content_bytes -= m->content_len;
    }
    mem_free(m->content);
    waiting_fini(&m->waiting);
    mem_free(m->id_text);
    mem_free(m->rcpts);
    class_remove(a, m->its_class);
    mem_free(m);
}

/* Drops settled recipients once they are more than half, so that a list of a million recipients
 * needs memory only for those that are read and pending. A recipient that the scheduler has not got
 * yet is never settled, so all of them stay after rcpt_handed. */
static void drop_settled(struct active_msg *m)
{
    uint32_t kept = 0, handed = m->rcpt_handed;

    for (size_t i = 0; i < m->rcpt_count; i++) {
        if (m->rcpts[i].address == NULL) {
            handed -= i < m->rcpt_handed ? 1 : 0;
        } else {
            m->rcpts[kept++] = m->rcpts[i];
        }
    }
    m->rcpt_count = kept;
    m->rcpt_handed = handed;
    m->rcpt_settled = 0;
}

void active_add_rcpt(struct active_msg *m, const struct spool_rcpt *from,
                     enum stored_route its_route)
{
    bool fixed = from->route_generation == SPOOL_ROUTE_FIXED || its_route == STORED_ROUTE_NEWER;
    size_t route_bytes = fixed ? from->transport.len + from->nexthop.len + 2 : 0;
    struct active_rcpt *r;
    char *strings, *at;

    CHECK(from->n > m->last_read);
    if (m->rcpt_settled > m->rcpt_count / 2) {
        drop_settled(m);
    }
    if (m->rcpt_count == m->rcpt_size) {
        m->rcpt_size = m->rcpt_size == 0 ? 1 : m->rcpt_size * 2;
        m->rcpts = mem_resize(m->rcpts, m->rcpt_size, sizeof *m->rcpts);
    }
    strings = mem_new(from->address.len + from->orcpt.len + 2 + route_bytes);
    at = put_string(put_string(strings, from->address), from->orcpt);
    if (fixed) {
        (void)put_string(put_string(at, from->transport), from->nexthop);
    }
    r = &m->rcpts[m->rcpt_count++];
    *r = (struct active_rcpt){.n = from->n,
                              .notify = from->notify,
                              .route_stale = its_route == STORED_ROUTE_STALE && !fixed,
                              .route_fixed = fixed,
                              .route_by_rule = from->route_by_rule,
                              .tried = from->attempts > 0,
                              .address = strings};
    m->last_read = from->n;
}

struct slice active_rcpt_transport(const struct active_rcpt *r)
{
    const char *orcpt = active_rcpt_orcpt(r);

    CHECK(r->route_fixed);
    return slice_string(orcpt + strlen(orcpt) + 1);
}

struct slice active_rcpt_nexthop(const struct active_rcpt *r)
{
    struct slice transport = active_rcpt_transport(r);

    return slice_string(transport.ptr + transport.len + 1);
}

struct active_rcpt *active_find_rcpt(struct active_msg *m, uint32_t n)
{
    size_t low = 0, high = m->rcpt_count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (m->rcpts[middle].n < n) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (low == m->rcpt_count || m->rcpts[low].n != n || m->rcpts[low].address == NULL) {
        return NULL;
    }
    return &m->rcpts[low];
}

void active_settle_rcpt(struct active_msg *m, struct active_rcpt *r)
{
    mem_free(r->address);
    r->address = NULL;
    m->rcpt_settled++;
}

void active_keep_content(struct active *a, struct active_msg *m, struct slice content)
{
    if (m->content == NULL && content.len == m->size && content.len <= ACTIVE_KEEP_MAX &&
        content.len <= ACTIVE_CONTENT_MAX - a->content_bytes) {
        m->content = mem_copy(content.ptr, content.len);
        m->content_len = content.len;
        a->content_bytes += content.len;
    }
}

void active_keep_fd(struct active *a, struct active_msg *m, struct slice head, int fd)
{
    if (m->content != NULL || head.len > m->size || head.len > ACTIVE_KEEP_MAX ||
        head.len > ACTIVE_CONTENT_MAX - a->content_bytes || a->fds >= ACTIVE_FDS_MAX ||
        m->size - head.len > ACTIVE_CONTENT_MAX - a->fd_bytes) {
        return;
    }
    m->content_fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (m->content_fd < 0) {
        return; /* no descriptor is left: the content is read again when it is needed */
    }
    m->content = mem_copy(head.ptr == NULL ? "" : head.ptr, head.len);
    m->content_len = head.len;
    a->content_bytes += head.len;
    a->fd_bytes += m->size - head.len;
    a->fds++;
}

struct delivery *delivery_add(struct active *a, uint64_t entry, struct active_msg *m,
                              uint32_t transport, struct slice dest, const uint32_t *rcpts,
                              size_t rcpt_count, struct mono now)
{
    struct delivery *d = mem_new(sizeof *d);

    d->entry = entry;
    d->msg = m;
    d->transport = transport;
    d->rcpts = mem_array(rcpt_count, sizeof *d->rcpts);
    memcpy(d->rcpts, rcpts, rcpt_count * sizeof *rcpts);
    d->rcpt_count = rcpt_count;
    d->handed = now;
    d->dest = mem_copy(dest.ptr, dest.len);
    HASH_ADD(hh, a->deliveries, entry, sizeof d->entry, d);
    return d;
}

struct delivery *delivery_find(const struct active *a, uint64_t entry)
{
    struct delivery *d;

    HASH_FIND(hh, a->deliveries, &entry, sizeof entry, d);
    return d;
}

void delivery_remove(struct active *a, struct delivery *d)
{
    HASH_DEL(a->deliveries, d);
    a->inline_bytes -= d->inline_bytes;
    mem_free(d->rcpts);
    mem_free(d->dest);
    mem_free(d);
}
