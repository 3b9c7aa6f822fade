#include "unstored.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "checksum.h"
#include "hash.h"
#include "log.h"
#include "mem.h"
#include "queue.h"
#include "spool_commits.h"
#include "spool_conclusion.h"
#include "spool_division.h"
#include "spool_io.h"
#include "spool_lease.h"

#define FILE_NAME  "unstored_results"
#define NEW_SUFFIX ".new"
#define SUM_DIGITS 16
#define ALL        "all"

struct unstored_message {
    struct msg_id id;
    bool all;
    uint32_t *ns; /* recipients; owned; unused when `all` */
    size_t count, size;
    UT_hash_handle hh;
};

static struct unstored_message *need(struct unstored *u, struct msg_id id)
{
    struct unstored_message *m;

    HASH_FIND(hh, u->table, &id, sizeof id, m);
    if (m == NULL) {
        m = mem_new(sizeof *m);
        m->id = id;
        HASH_ADD(hh, u->table, id, sizeof m->id, m);
    }
    return m;
}

static void add_number(struct unstored_message *m, uint32_t n)
{
    if (m->count == m->size) {
        m->size = m->size == 0 ? 8 : m->size * 2;
        m->ns = mem_resize(m->ns, m->size, sizeof m->ns[0]);
    }
    m->ns[m->count++] = n;
}

static void forget(struct unstored *u, struct unstored_message *m)
{
    HASH_DEL(u->table, m);
    mem_free(m->ns);
    mem_free(m);
}

/* ---- the file -------------------------------------------------------------------------------- */

static void put_line(const struct unstored_message *m, struct buf *out)
{
    char id[SPOOL_ID_TEXT_MAX];
    size_t start = buf_len(out);

    spool_id_print(m->id, id);
    (void)buf_addf(out, "%s ", id); /* errors are sticky */
    if (m->all) {
        (void)buf_add_string(out, ALL);
    }
    for (size_t i = 0; i < m->count && !m->all; i++) {
        (void)buf_addf(out, "%s%" PRIu32, i > 0 ? "," : "", m->ns[i]);
    }
    (void)buf_addf(out, " %0*" PRIx64 "\n", SUM_DIGITS,
                   checksum_of(slice_skip(buf_slice(out), start)));
}

/* Parses a line. Returns false if put_line has not written it. */
static bool take_line(struct unstored *u, struct slice line)
{
    size_t end = slice_find_last(line, ' ');
    struct slice rest = slice_of(line.ptr, end), id_text, number;
    char sum[SUM_DIGITS + 1];
    unsigned long long n;
    struct msg_id id;

    if (end == line.len) {
        return false;
    }
    (void)snprintf(sum, sizeof sum, "%0*" PRIx64, SUM_DIGITS, checksum_of(rest));
    id_text = slice_cut(&rest, ' ');
    if (!slice_equal(slice_skip(line, end + 1), slice_string(sum)) ||
        !spool_id_parse(id_text, &id)) {
        return false;
    }
    if (slice_equal(rest, SLICE(ALL))) {
        need(u, id)->all = true;
        return true;
    }
    while (rest.ptr != NULL && rest.len > 0) {
        number = slice_cut(&rest, ',');
        if (!slice_number(number, SPOOL_RCPTS_MAX, &n) || n == 0) {
            return false;
        }
        add_number(need(u, id), (uint32_t)n);
    }
    return true;
}

static int read_file(const struct unstored *u, struct buf *ret_text)
{
    const struct spool_io *io = &spool_io_real;
    int fd = io->open(u->path, O_RDONLY | O_NOFOLLOW, 0), err;
    uint64_t size = 0;
    char *room;

    if (fd < 0) {
        return fd;
    }
    err = io->fstat_size(fd, &size);
    if (err == 0 && size > UNSTORED_FILE_MAX) {
        err = -EFBIG;
    }
    room = err == 0 && size > 0 ? buf_room(ret_text, size) : NULL;
    if (room != NULL) {
        err = spool_io_read_all(io, fd, room, size, 0);
        buf_grew(ret_text, err == 0 ? size : 0);
    }
    (void)io->close(fd); /* only read */
    return err;
}

static int write_file(const struct unstored *u, const char *path, struct slice text)
{
    const struct spool_io *io = &spool_io_real;
    int fd = io->open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, 0600), err;

    if (fd < 0) {
        return fd;
    }
    err = spool_io_write_all(io, fd, text.ptr, text.len);
    if (err == 0) {
        err = io->fsync(fd);
    }
    (void)io->close(fd); /* synced, or useless */
    return err != 0 ? err : io->renameat(AT_FDCWD, path, AT_FDCWD, u->path);
}

/* Returns the path with a suffix; the caller frees it. */
static char *beside(const struct unstored *u, const char *suffix)
{
    size_t size = strlen(u->path) + strlen(suffix) + 1;
    char *path = mem_new(size);

    (void)snprintf(path, size, "%s%s", u->path, suffix); /* fits */
    return path;
}

static int replace(struct queue *q)
{
    struct unstored *u = &q->unstored;
    struct unstored_message *m;
    struct buf text;
    char *new_path = beside(u, NEW_SUFFIX);
    int err;

    buf_init(&text, UNSTORED_FILE_MAX);
    for (m = u->table; m != NULL; m = m->hh.next) {
        put_line(m, &text);
    }
    err = text.failed           ? -EFBIG
          : buf_len(&text) == 0 ? spool_io_real.unlink(u->path)
                                : write_file(u, new_path, buf_slice(&text));
    if (err == 0 || err == -ENOENT) {
        err = spool_io_sync_dir(&spool_io_real, q->conf->state_directory);
    }
    buf_fini(&text);
    mem_free(new_path);
    return err;
}

bool unstored_sync(struct queue *q, bool again)
{
    struct unstored *u = &q->unstored;
    int err;

    if (!u->changed || (u->write_failed && !again)) {
        return !u->changed;
    }
    err = replace(q);
    if (err != 0 && !u->write_failed) {
        log_error("%s: %s: mail whose result could not be stored may be delivered again after a "
                  "restart",
                  u->path, strerror(-err));
    }
    u->write_failed = err != 0;
    u->changed = err != 0;
    return err == 0;
}

/* ---- the table ------------------------------------------------------------------------------- */

static void add_delivered(void *arg, uint32_t n)
{
    struct unstored_message *m = arg;

    if (n == 0) {
        m->all = true;
    } else {
        add_number(m, n);
    }
}

void unstored_add(struct queue *q, struct msg_id id, const struct step_list *steps)
{
    struct unstored *u = &q->unstored;
    struct unstored_message *m;
    size_t before;
    bool was_all;

    if (u->path == NULL) {
        return;
    }
    m = need(u, id);
    before = m->count;
    was_all = m->all;
    batch_each_delivery(steps, add_delivered, m);
    if (!m->all && m->count == 0) {
        forget(u, m); /* nothing was delivered */
    } else {
        u->changed = u->changed || m->all != was_all || m->count != before;
    }
}

void unstored_forget(struct queue *q, struct msg_id id)
{
    struct unstored *u = &q->unstored;
    struct unstored_message *m;

    HASH_FIND(hh, u->table, &id, sizeof id, m);
    if (m != NULL) {
        forget(u, m);
        u->changed = true;
    }
}

static bool is_for(const struct spool *sp)
{
    return spool_commits_fd(sp) < 0 && !spool_has_lease(sp) && !spool_concludes(sp) &&
           !spool_divides(sp);
}

void unstored_begin(struct queue *q)
{
    struct unstored *u = &q->unstored;
    struct unstored_message *m, *next;
    struct slice rest;
    struct buf text;
    int err;

    if (!is_for(q->spool)) {
        return;
    }
    u->path = mem_new(PATH_MAX);
    (void)snprintf(u->path, PATH_MAX, "%s/" FILE_NAME, q->conf->state_directory); /* cut: no file */
    buf_init(&text, UNSTORED_FILE_MAX);
    err = read_file(u, &text);
    if (err != 0 && err != -ENOENT) {
        log_error("%s: can't be read: %s: mail whose result could not be stored may be delivered "
                  "again",
                  u->path, strerror(-err));
    }
    rest = buf_slice(&text);
    while (rest.len > 0) {
        if (!take_line(u, slice_cut(&rest, '\n'))) {
            log_error("%s: a line is damaged: its message may be delivered again", u->path);
        }
    }
    buf_fini(&text);
    HASH_ITER(hh, u->table, m, next)
    {
        struct step_list steps = STAILQ_HEAD_INITIALIZER(steps);

        batch_make_deliveries(m->id, m->ns, m->all ? 0 : m->count, &steps);
        damage_resume(q, m->id, &steps);
    }
}

void unstored_fini(struct unstored *u)
{
    struct unstored_message *m, *next;

    HASH_ITER(hh, u->table, m, next)
    {
        forget(u, m);
    }
    mem_free(u->path);
}
