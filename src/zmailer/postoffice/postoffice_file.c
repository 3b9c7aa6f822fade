#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "check.h"
#include "mem.h"
#include "postoffice_engine.h"

/* Limits of the cache; the newest view is kept whatever its size. */
#define CACHE_VIEWS 64
#define CACHE_BYTES ((size_t)32 << 20)

/* ---- paths ---------------------------------------------------------------------------------- */

void post_path_of(struct slice path, const char *prefix, char ret_path[POST_PATH_MAX])
{
    size_t slash = slice_find_last(path, '/'), hash = slash == path.len ? 0 : slash + 1;
    int len = snprintf(ret_path, POST_PATH_MAX, "%.*s%s%.*s", (int)hash, path.ptr, prefix,
                       SLICE_ARGS(slice_skip(path, hash)));

    CHECK(len > 0 && len < POST_PATH_MAX);
}

void post_control_path(const struct post_file *file, uint8_t state, char ret_path[POST_PATH_MAX])
{
    post_path_of(post_path(file),
                 state == SPOOL_HOLD      ? POST_HOLD
                 : state == SPOOL_CORRUPT ? POST_DAMAGED
                                          : "",
                 ret_path);
}

/* ---- locks ---------------------------------------------------------------------------------- */

/* Is the process alive? A process that has ended is not, even if its parent has not waited for it
 * yet: in a container the parent may never do so. */
static bool is_alive(pid_t pid)
{
    struct pollfd ended = {.events = POLLIN};
    int ready;

    ended.fd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (ended.fd < 0) { /* a thread of a process, or no free descriptor */
        return errno != ESRCH && (kill(pid, 0) == 0 || errno != ESRCH);
    }
    ready = poll(&ended, 1, 0);
    (void)close(ended.fd); /* it was only polled */
    return ready == 0;
}

int64_t lock_holder(const struct control_rcpt *r)
{
    return r->tag == '~' && r->lock_pid > 0 && is_alive((pid_t)r->lock_pid) ? r->lock_pid : 0;
}

/* ---- diagnostics ---------------------------------------------------------------------------- */

bool diagnostic_end(const struct control_diagnostic *d, enum spool_rcpt_state *ret_state)
{
    static const struct {
        const char *action;
        enum spool_rcpt_state state;
    } ends[] = {
        {"failed", SPOOL_RCPT_FAILED},
        {"delivered", SPOOL_RCPT_DELIVERED},
        {"expanded", SPOOL_RCPT_DELIVERED},
        {"relayed", SPOOL_RCPT_RELAYED},
    };
    struct slice rest = d->notary, action;

    (void)slice_cut(&rest, '\1'); /* skips the address */
    action = rest.ptr != NULL ? slice_cut(&rest, '\1') : SLICE("");
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        if (slice_equal_nocase(action, slice_string(ends[i].action))) {
            *ret_state = ends[i].state;
            return true;
        }
    }
    return false;
}

static int by_rcpt_and_place(const void *a, const void *b)
{
    const struct control_diagnostic *const *x = a, *const *y = b;

    if ((*x)->rcpt != (*y)->rcpt) {
        return (*x)->rcpt < (*y)->rcpt ? -1 : 1;
    }
    return (*x)->offset < (*y)->offset ? -1 : 1;
}

static void find_reports(struct post_view *view)
{
    const struct control_file *c = &view->control;

    view->reports = mem_array(c->diagnostic_count + 1, sizeof(struct control_diagnostic *));
    for (size_t i = 0; i < c->diagnostic_count; i++) {
        if (c->diagnostics[i].tag == ' ') {
            view->reports[view->report_count++] = &c->diagnostics[i];
        }
    }
    qsort(view->reports, view->report_count, sizeof(struct control_diagnostic *),
          by_rcpt_and_place);
}

const struct control_diagnostic *const *view_reports(const struct post_view *view, uint64_t rcpt,
                                                     size_t *ret_count)
{
    size_t low = 0, high = view->report_count, count = 0;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (view->reports[middle]->rcpt < rcpt) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    while (low + count < view->report_count && view->reports[low + count]->rcpt == rcpt) {
        count++;
    }
    *ret_count = count;
    return count > 0 ? &view->reports[low] : NULL;
}

/* ---- reading -------------------------------------------------------------------------------- */

void view_free(struct post_view *view)
{
    if (view != NULL) {
        control_file_fini(&view->control);
        mem_free(view->reports);
        mem_free(view->bytes);
        mem_free(view);
    }
}

/* Reads the bytes of a regular file, which may grow or shrink meanwhile: an append in progress
 * looks like an incomplete last line. */
static int read_bytes(struct postoffice *po, int fd, struct buf *reason, struct post_view *view)
{
    struct stat st;
    size_t len = 0;

    if (fstat(fd, &st) != 0) {
        return -errno;
    }
    if (!S_ISREG(st.st_mode)) {
        (void)buf_add_string(reason, "no regular file"); /* sticky */
        return -EBADMSG;
    }
    if ((uint64_t)st.st_size > POST_CONTROL_MAX) {
        (void)buf_addf(reason, "%lld bytes, at most %zu are expected", (long long)st.st_size,
                       POST_CONTROL_MAX);
        return -EBADMSG;
    }
    view->size = (uint64_t)st.st_size;
    view->changed = st.st_mtim;
    view->listed.us = st.st_ctim.tv_sec * US_PER_S + st.st_ctim.tv_nsec / 1000;
    view->bytes = mem_new(view->size + 1);
    while (len < view->size) {
        ssize_t n = po->io->pread(fd, view->bytes + len, view->size - len, len);

        if (n == -EINTR) {
            continue;
        }
        if (n < 0) {
            return (int)n;
        }
        if (n == 0) {
            break;
        }
        len += (size_t)n;
    }
    view->size = len;
    return 0;
}

static int parse(struct post_view *view, struct buf *reason)
{
    struct control_problem problem;

    if (!control_file_parse(slice_of(view->bytes, view->size), &view->control, &problem)) {
        (void)buf_addf(reason, "offset %llu: expected %s", (unsigned long long)problem.offset,
                       problem.expected);
        return -EBADMSG;
    }
    find_reports(view);
    return 0;
}

int view_read(struct postoffice *po, const char *path, struct buf *ret_reason,
              struct post_view **ret_view)
{
    /* O_NONBLOCK, because it may be a pipe */
    int fd = po->io->openat(po->transport, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0);
    struct post_view *view;
    int err;

    if (fd == -ELOOP) {
        (void)buf_add_string(ret_reason, "no regular file but a link");
        return -EBADMSG;
    }
    if (fd < 0) {
        return fd;
    }
    view = mem_new(sizeof *view);
    err = read_bytes(po, fd, ret_reason, view);
    (void)po->io->close(fd); /* read only */
    err = err != 0 ? err : parse(view, ret_reason);
    if (err != 0) {
        view_free(view);
        return err;
    }
    *ret_view = view;
    return 0;
}

/* ---- the cache ------------------------------------------------------------------------------ */

void cache_init(struct post_cache *cache)
{
    TAILQ_INIT(&cache->views);
    cache->bytes = 0;
}

static void cache_remove(struct post_cache *cache, struct post_view *view)
{
    TAILQ_REMOVE(&cache->views, view, by_use);
    cache->bytes -= view->size;
    view_free(view);
}

static struct post_view *cache_find(const struct post_cache *cache, uint64_t number)
{
    struct post_view *view;

    TAILQ_FOREACH(view, &cache->views, by_use)
    {
        if (view->number == number) {
            break;
        }
    }
    return view;
}

void cache_drop(struct post_cache *cache, uint64_t number)
{
    struct post_view *view = cache_find(cache, number);

    if (view != NULL) {
        cache_remove(cache, view);
    }
}

void cache_fini(struct post_cache *cache)
{
    struct post_view *view;

    while ((view = TAILQ_FIRST(&cache->views)) != NULL) {
        cache_remove(cache, view);
    }
}

static void cache_add(struct post_cache *cache, struct post_view *view)
{
    struct post_view *last, *v;
    size_t count = 0;

    TAILQ_INSERT_HEAD(&cache->views, view, by_use);
    cache->bytes += view->size;
    TAILQ_FOREACH(v, &cache->views, by_use)
    {
        count++;
    }
    while ((last = TAILQ_LAST(&cache->views, post_views)) != view &&
           (count > CACHE_VIEWS || cache->bytes > CACHE_BYTES)) {
        cache_remove(cache, last);
        count--;
    }
}

static bool has_changed(struct postoffice *po, const char *path, const struct post_view *view)
{
    struct stat st;

    return fstatat(po->transport, path, &st, AT_SYMLINK_NOFOLLOW) != 0 ||
           (uint64_t)st.st_size != view->size || st.st_mtim.tv_sec != view->changed.tv_sec ||
           st.st_mtim.tv_nsec != view->changed.tv_nsec;
}

void forget_later(struct postoffice *po, uint64_t number)
{
    po->vanished =
        mem_grow(po->vanished, po->vanished_count, &po->vanished_size, sizeof po->vanished[0]);
    po->vanished[po->vanished_count++] = number;
}

int view_of(struct postoffice *po, const struct post_file *file, bool fresh,
            struct post_view **ret_view)
{
    struct post_view *view = cache_find(&po->cache, file->number);
    char path[POST_PATH_MAX];
    struct buf reason;
    int err;

    post_control_path(file, file->on_disk, path);
    if (view != NULL && fresh && has_changed(po, path, view)) {
        cache_remove(&po->cache, view);
        view = NULL;
    }
    if (view != NULL) {
        TAILQ_REMOVE(&po->cache.views, view, by_use);
        TAILQ_INSERT_HEAD(&po->cache.views, view, by_use);
        *ret_view = view;
        return 0;
    }
    buf_init(&reason, 256);
    err = view_read(po, path, &reason, &view);
    if (err == -ENOENT) {
        forget_later(po, file->number);
    }
    if (err != 0) {
        err = spool_fail(&po->base, err, "transport/%s: %s", path,
                         err == -EBADMSG ? buf_cstr(&reason) : strerror(-err));
    } else {
        view->number = file->number;
        cache_add(&po->cache, view);
        *ret_view = view;
    }
    buf_fini(&reason);
    return err;
}
