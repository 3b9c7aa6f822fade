#include "queue_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"

/* Permission bits of the owner, and those by which other programs send requests to the manager. */
#define MODE_OWNER    0700
#define MODE_COMPLETE 0700
#define MODE_FLUSH    0040
#define MODE_EXPIRE   0010
/* Long queue ids have the microseconds in four digits of base 52 before the last z. */
#define LONG_ID_Z_MIN  10
#define LONG_ID_MICROS 4
#define HASH_KEY_MAX   (QUEUE_ID_MAX + 1)
/* Entries per call while the files of the previous manager are moved. */
#define RESTART_ENTRIES 1000

static const char *const words[QUEUE_DIRS] = {
    [QUEUE_DIR_INCOMING] = "incoming", [QUEUE_DIR_ACTIVE] = "active",
    [QUEUE_DIR_DEFERRED] = "deferred", [QUEUE_DIR_HOLD] = "hold",
    [QUEUE_DIR_CORRUPT] = "corrupt",   [QUEUE_DIR_BOUNCE] = "bounce",
    [QUEUE_DIR_DEFER] = "defer",       [QUEUE_DIR_TRACE] = "trace",
    [QUEUE_DIR_MAILDROP] = "maildrop",
};

/* Directories without which there is no queue. */
static const enum queue_dir_name needed[] = {QUEUE_DIR_INCOMING, QUEUE_DIR_ACTIVE,
                                             QUEUE_DIR_DEFERRED, QUEUE_DIR_CORRUPT};

const char *queue_dir_word(enum queue_dir_name which)
{
    CHECK(which < QUEUE_DIRS);
    return words[which];
}

/* ---- opening -------------------------------------------------------------------------------- */

static unsigned hashed_names(const char *list)
{
    unsigned hashed = 0;

    while (*list != '\0') {
        size_t len = strcspn(list, ", \t\r\n");

        for (unsigned i = 0; i < QUEUE_DIRS; i++) {
            if (len == strlen(words[i]) && memcmp(list, words[i], len) == 0) {
                hashed |= 1u << i;
            }
        }
        list += len;
        list += strspn(list, ", \t\r\n");
    }
    return hashed;
}

int queue_dir_open(struct queue_dir *d, const char *path, const struct queue_dir_options *options,
                   struct buf *ret_error)
{
    int depth = options->hash_queue_depth == 0 ? QUEUE_DIR_HASH_DEPTH : options->hash_queue_depth;
    int err;

    if (depth < 1 || depth > QUEUE_DIR_DEPTH_MAX) {
        buf_addf(ret_error, "hash_queue_depth: %d is not from 1 to %d", depth, QUEUE_DIR_DEPTH_MAX);
        return -EINVAL;
    }
    d->io = options->io != NULL ? options->io : &spool_io_real;
    d->depth = (unsigned)depth;
    d->hashed = hashed_names(options->hash_queue_names != NULL ? options->hash_queue_names
                                                               : QUEUE_DIR_HASH_NAMES);
    d->fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (d->fd < 0) {
        err = -errno;
        buf_addf(ret_error, "open %s: %s", path, strerror(-err));
        return err;
    }
    for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++) {
        struct stat st;

        err = fstatat(d->fd, words[needed[i]], &st, AT_SYMLINK_NOFOLLOW) != 0 ? -errno
              : !S_ISDIR(st.st_mode)                                          ? -ENOTDIR
                                                                              : 0;
        if (err != 0) {
            buf_addf(ret_error, "%s/%s: %s", path, words[needed[i]], strerror(-err));
            queue_dir_close(d);
            return err;
        }
    }
    return 0;
}

void queue_dir_close(struct queue_dir *d)
{
    if (d->fd >= 0) {
        (void)close(d->fd); /* nothing was written */
    }
    d->fd = -1;
}

/* ---- names ---------------------------------------------------------------------------------- */

bool queue_id_ok(struct slice id)
{
    if (id.len == 0 || id.len > QUEUE_ID_MAX) {
        return false;
    }
    for (size_t i = 0; i < id.len; i++) {
        if (!ascii_is_alnum(id.ptr[i]) && id.ptr[i] != '_') {
            return false;
        }
    }
    return true;
}

/* Builds the hash key of a long id: its microseconds in the form with which a short id begins.
 * Returns false for a short id. */
static bool long_id_key(struct slice id, char ret_key[HASH_KEY_MAX])
{
    static const char digits[] = "0123456789BCDFGHJKLMNPQRSTVWXYZbcdfghjklmnpqrstvwxyz";
    size_t z = slice_find_last(id, 'z');
    size_t micros = 0;

    if (z == id.len || z < LONG_ID_Z_MIN) {
        return false;
    }
    for (size_t i = z - LONG_ID_MICROS; i < z; i++) {
        const char *digit = strchr(digits, id.ptr[i]);

        if (digit == NULL) {
            return false;
        }
        micros = micros * (sizeof digits - 1) + (size_t)(digit - digits);
    }
    (void)snprintf(ret_key, HASH_KEY_MAX, "%05zX", micros);
    return true;
}

void queue_dir_hash(struct queue_dir *d, enum queue_dir_name which, unsigned depth)
{
    CHECK(depth <= QUEUE_DIR_DEPTH_MAX);
    d->hashed = depth > 0 ? d->hashed | 1u << which : d->hashed & ~(1u << which);
    d->depth = depth;
}

void queue_dir_path(const struct queue_dir *d, enum queue_dir_name which, struct slice id,
                    char ret_path[QUEUE_DIR_PATH_MAX])
{
    size_t len = strlen(words[which]);

    CHECK(queue_id_ok(id));
    memcpy(ret_path, words[which], len);
    ret_path[len++] = '/';
    if ((d->hashed & 1u << which) != 0) {
        char key[HASH_KEY_MAX];

        if (!long_id_key(id, key)) {
            memcpy(key, id.ptr, id.len);
            key[id.len] = '\0';
        }
        for (size_t i = 0, key_len = strlen(key); i < d->depth; i++) {
            ret_path[len++] = i < key_len ? key[i] : '_';
            ret_path[len++] = '/';
        }
    }
    memcpy(ret_path + len, id.ptr, id.len);
    len += id.len;
    ret_path[len] = '\0';
    CHECK(len < QUEUE_DIR_PATH_MAX);
}

/* ---- one file ------------------------------------------------------------------------------- */

static struct queue_dir_file file_of(const struct stat *st)
{
    return (struct queue_dir_file){.mode = st->st_mode,
                                   .size = (uint64_t)st->st_size,
                                   .links = (uint64_t)st->st_nlink,
                                   .modified = {(int64_t)st->st_mtim.tv_sec * US_PER_S},
                                   .owner = st->st_uid,
                                   .is_new = st->st_mtim.tv_nsec != 0};
}

int queue_dir_stat(const struct queue_dir *d, enum queue_dir_name which, struct slice id,
                   struct queue_dir_file *ret_file)
{
    char path[QUEUE_DIR_PATH_MAX];
    struct stat st;

    queue_dir_path(d, which, id, path);
    if (fstatat(d->fd, path, &st, AT_SYMLINK_NOFOLLOW) != 0) {
        return -errno;
    }
    *ret_file = file_of(&st);
    return 0;
}

bool queue_dir_usable(const struct queue_dir_file *file)
{
    return S_ISREG(file->mode) && (file->mode & MODE_OWNER) == MODE_COMPLETE;
}

bool queue_dir_flushed(const struct queue_dir_file *file)
{
    return (file->mode & MODE_FLUSH) != 0;
}

bool queue_dir_force_expire(const struct queue_dir_file *file)
{
    return (file->mode & MODE_EXPIRE) != 0;
}

/* Creates the hash directories of a path. */
static int make_parents(const struct queue_dir *d, char *path)
{
    for (char *slash = strchr(path, '/') + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
        int err;

        *slash = '\0';
        err = d->io->mkdirat(d->fd, path, 0700);
        *slash = '/';
        if (err != 0 && err != -EEXIST) {
            return err;
        }
    }
    return 0;
}

int queue_dir_move(const struct queue_dir *d, struct slice id, enum queue_dir_name from,
                   enum queue_dir_name to)
{
    char from_path[QUEUE_DIR_PATH_MAX], to_path[QUEUE_DIR_PATH_MAX];
    int err;

    queue_dir_path(d, from, id, from_path);
    queue_dir_path(d, to, id, to_path);
    err = d->io->renameat(d->fd, from_path, d->fd, to_path);
    if (err == -ENOENT && (d->hashed & 1u << to) != 0) {
        err = make_parents(d, to_path);
        if (err == 0) {
            err = d->io->renameat(d->fd, from_path, d->fd, to_path);
        }
    }
    return err;
}

int queue_dir_set_time(const struct queue_dir *d, enum queue_dir_name which, struct slice id,
                       struct wall when)
{
    struct timespec t = {.tv_sec = (time_t)us_seconds(when.us)};
    const struct timespec both[2] = {t, t};
    char path[QUEUE_DIR_PATH_MAX];

    queue_dir_path(d, which, id, path);
    return d->io->utimensat(d->fd, path, both, AT_SYMLINK_NOFOLLOW);
}

int queue_dir_remove(const struct queue_dir *d, enum queue_dir_name which, struct slice id)
{
    char path[QUEUE_DIR_PATH_MAX];

    queue_dir_path(d, which, id, path);
    return d->io->unlinkat(d->fd, path);
}

int queue_dir_open_file(const struct queue_dir *d, enum queue_dir_name which, struct slice id,
                        int flags, int *ret_fd)
{
    char path[QUEUE_DIR_PATH_MAX];
    int fd;

    queue_dir_path(d, which, id, path);
    fd = d->io->openat(d->fd, path, flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0);
    if (fd < 0) {
        return fd;
    }
    *ret_fd = fd;
    return 0;
}

static int write_mark(const struct queue_dir *d, int fd, const struct queue_file_mark *mark)
{
    char is[2];
    size_t head = mark->len > 1 ? 2 : 1; /* for a longer record, its length, too */
    int err = spool_io_read_all(d->io, fd, is, head, mark->offset);
    ssize_t n;

    if (err != 0) {
        return err == -ENODATA ? -EBADMSG : err;
    }
    if (is[0] == mark->bytes[0] && is[0] != mark->before) {
        return 0;
    }
    if (is[0] != mark->before || (head > 1 && is[1] != mark->bytes[1])) {
        return -EBADMSG;
    }
    n = d->io->pwrite(fd, mark->bytes, mark->len, mark->offset);
    return n < 0 ? (int)n : n == (ssize_t)mark->len ? 0 : -EIO;
}

int queue_dir_mark(const struct queue_dir *d, enum queue_dir_name which, struct slice id,
                   const struct queue_file_mark *mark)
{
    int fd, err = queue_dir_open_file(d, which, id, O_RDWR, &fd);

    if (err != 0) {
        return err;
    }
    err = write_mark(d, fd, mark);
    (void)d->io->close(fd); /* nothing is buffered */
    return err;
}

int queue_dir_rcpt_type(const struct queue_dir *d, enum queue_dir_name which, struct slice id,
                        uint64_t offset, char *ret_type)
{
    int fd, err = queue_dir_open_file(d, which, id, O_RDONLY, &fd);

    if (err != 0) {
        return err;
    }
    err = spool_io_read_all(d->io, fd, ret_type, 1, offset);
    (void)d->io->close(fd); /* opened for reading */
    return err == -ENODATA ? -EBADMSG : err;
}

/* ---- taking a file -------------------------------------------------------------------------- */

/* Opens and locks a file that was moved to active/. */
static enum queue_dir_take open_taken(const struct queue_dir *d, struct slice id, struct wall now,
                                      int *ret_fd, int *ret_error)
{
    int fd, err = queue_dir_open_file(d, QUEUE_DIR_ACTIVE, id, O_RDWR, &fd);

    if (err != 0) {
        *ret_error = err;
        return err == -ENOENT ? QUEUE_DIR_RACED : QUEUE_DIR_FAILED;
    }
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        err = -errno;
        (void)d->io->close(fd); /* nothing was written */
        if (err != -EWOULDBLOCK) {
            *ret_error = err;
            return QUEUE_DIR_FAILED;
        }
        (void)queue_dir_set_time(d, QUEUE_DIR_ACTIVE, id,
                                 wall_after(now, QUEUE_DIR_LOCKED_S * US_PER_S)); /* the file may be
                                                                                   * gone */
        return QUEUE_DIR_LOCKED;
    }
    *ret_fd = fd;
    return QUEUE_DIR_TAKEN;
}

enum queue_dir_take queue_dir_take(const struct queue_dir *d, enum queue_dir_name from,
                                   struct slice id, struct wall now, bool any_time, int *ret_fd,
                                   struct queue_dir_file *ret_file, int *ret_error)
{
    struct queue_dir_file file;
    enum queue_dir_take taken;
    int err = queue_dir_stat(d, from, id, &file);

    CHECK(from == QUEUE_DIR_INCOMING || from == QUEUE_DIR_DEFERRED);
    if (err == -ENOENT) {
        return QUEUE_DIR_SKIPPED;
    }
    if (err == 0) {
        if (!queue_dir_usable(&file)) {
            return QUEUE_DIR_SKIPPED;
        }
        if (!any_time && us_seconds(file.modified.us) > us_seconds(now.us) + QUEUE_DIR_SLACK_S) {
            *ret_file = file;
            return QUEUE_DIR_NOT_DUE;
        }
        err = queue_dir_move(d, id, from, QUEUE_DIR_ACTIVE);
    }
    if (err != 0) {
        *ret_error = err;
        return err == -ENOENT ? QUEUE_DIR_RACED : QUEUE_DIR_FAILED;
    }
    taken = open_taken(d, id, now, ret_fd, ret_error);
    *ret_file = file; /* the file was complete at that time */
    if (taken == QUEUE_DIR_LOCKED) {
        err = queue_dir_move(d, id, QUEUE_DIR_ACTIVE, QUEUE_DIR_INCOMING);
    } else if (taken == QUEUE_DIR_FAILED) {
        err = queue_dir_move(d, id, QUEUE_DIR_ACTIVE, from); /* keeps its time */
    }
    if (err != 0 && err != -ENOENT) { /* the next start finds it in active/ */
        *ret_error = err;
        return QUEUE_DIR_FAILED;
    }
    return taken;
}

int queue_dir_clear_flushed(const struct queue_dir *d, int fd, const struct queue_dir_file *file)
{
    return d->io->fchmod(fd, file->mode & 07777 & ~(mode_t)MODE_FLUSH);
}

int queue_dir_set_force_expire(const struct queue_dir *d, int fd, const struct queue_dir_file *file)
{
    return d->io->fchmod(fd, (file->mode & 07777) | MODE_EXPIRE);
}

/* ---- looking through a queue ---------------------------------------------------------------- */

static int push(struct queue_scan *scan, const char *name)
{
    unsigned len = scan->level == 0 ? 0 : scan->path_len[scan->level - 1];
    int fd, n;

    CHECK(scan->level <= QUEUE_DIR_DEPTH_MAX);
    n = snprintf(scan->path + len, sizeof scan->path - len, "%s/", name);
    CHECK(n > 0 && (size_t)n < sizeof scan->path - len);
    fd = openat(scan->dir->fd, scan->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        return -errno;
    }
    scan->open[scan->level] = fdopendir(fd);
    if (scan->open[scan->level] == NULL) {
        int err = -errno;

        (void)close(fd); /* nothing was written */
        return err;
    }
    scan->path_len[scan->level] = len + (unsigned)n;
    scan->level++;
    return 0;
}

static void pop(struct queue_scan *scan)
{
    (void)closedir(scan->open[--scan->level]); /* opened for reading */
}

void queue_scan_begin(struct queue_scan *scan, const struct queue_dir *d, enum queue_dir_name which)
{
    memset(scan, 0, sizeof *scan);
    scan->dir = d;
    scan->which = which;
    scan->starts = true;
}

void queue_scan_end(struct queue_scan *scan)
{
    while (scan->level > 0) {
        pop(scan);
    }
    scan->starts = false;
}

enum queue_scan_found queue_scan_next(struct queue_scan *scan, unsigned entries,
                                      char ret_name[QUEUE_ID_MAX + 1], int *ret_error)
{
    if (scan->starts) {
        scan->starts = false;
        *ret_error = push(scan, words[scan->which]);
        if (*ret_error != 0) {
            return QUEUE_SCAN_FAILED;
        }
    }
    for (; entries > 0 && scan->level > 0; entries--) {
        const struct dirent *entry;

        errno = 0;
        entry = readdir(scan->open[scan->level - 1]);
        if (entry == NULL) {
            int err = -errno;

            pop(scan);
            if (err != 0) {
                *ret_error = err;
                return QUEUE_SCAN_FAILED;
            }
        } else if (entry->d_name[0] == '.') {
            continue;
        } else if (entry->d_name[1] == '\0') {
            int err = scan->level > QUEUE_DIR_DEPTH_MAX ? -ENAMETOOLONG : push(scan, entry->d_name);

            if (err != 0 && err != -ENOENT && err != -ENOTDIR) {
                *ret_error = err;
                return QUEUE_SCAN_FAILED;
            }
        } else {
            (void)snprintf(ret_name, QUEUE_ID_MAX + 1, "%s", entry->d_name); /* NAME_MAX is less */
            return queue_id_ok(slice_string(ret_name)) ? QUEUE_SCAN_ID : QUEUE_SCAN_OTHER;
        }
    }
    return scan->level > 0 ? QUEUE_SCAN_MORE : QUEUE_SCAN_END;
}

void queue_scan_path(const struct queue_scan *scan, const char *name,
                     char ret_path[QUEUE_DIR_PATH_MAX])
{
    int n;

    CHECK(scan->level > 0);
    n = snprintf(ret_path, QUEUE_DIR_PATH_MAX, "%.*s%s", (int)scan->path_len[scan->level - 1],
                 scan->path, name);
    CHECK(n > 0 && n < QUEUE_DIR_PATH_MAX);
}

/* ---- start ---------------------------------------------------------------------------------- */

static void tell(queue_dir_told *told, void *context, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void tell(queue_dir_told *told, void *context, const char *format, ...)
{
    char line[QUEUE_DIR_PATH_MAX + 200];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(line, sizeof line, format, args); /* may be cut */
    va_end(args);
    told(context, line);
}

/* Moves a file to incoming/, due now: its time may be in the future after a crash. */
static bool move_back(const struct queue_dir *d, struct slice id, struct wall now,
                      queue_dir_told *told, void *context)
{
    int err = queue_dir_set_time(d, QUEUE_DIR_ACTIVE, id, now);

    if (err == 0) {
        err = queue_dir_move(d, id, QUEUE_DIR_ACTIVE, QUEUE_DIR_INCOMING);
    }
    if (err != 0) {
        tell(told, context, "%.*s: can't be moved from active to incoming: %s", SLICE_ARGS(id),
             strerror(-err));
    }
    return err == 0;
}

int queue_dir_restart(const struct queue_dir *d, struct wall now, queue_dir_told *told,
                      void *context, size_t *ret_count)
{
    char name[QUEUE_ID_MAX + 1];
    struct queue_scan scan;
    size_t count = 0;
    int err = 0;

    queue_scan_begin(&scan, d, QUEUE_DIR_ACTIVE);
    for (bool more = true; more;) {
        int failed = 0;

        switch (queue_scan_next(&scan, RESTART_ENTRIES, name, &failed)) {
        case QUEUE_SCAN_ID:
            count += move_back(d, slice_string(name), now, told, context) ? 1 : 0;
            break;
        case QUEUE_SCAN_OTHER:
            tell(told, context, "qmgr_move: ignored: queue active id %s", name);
            break;
        case QUEUE_SCAN_MORE:
            break;
        case QUEUE_SCAN_END:
            more = false;
            break;
        case QUEUE_SCAN_FAILED:
            tell(told, context, "scan of active: %s", strerror(-failed));
            err = failed;
            break;
        }
    }
    queue_scan_end(&scan);
    *ret_count = count;
    return err;
}
