#include "mover.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "mem.h"

#define LINE_MAX_BYTES 1000
#define MARK           "mark"
#define MARK_NEW       "mark.new"
#define MARK_MAX       8192
#define LOCK_FILE      "pid/master.pid"

/* ---- words ---------------------------------------------------------------------------------- */

int mover_fail(struct mover *m, int err, const char *format, ...)
{
    va_list args;

    CHECK(err < 0);
    va_start(args, format);
    buf_clear(m->error);
    (void)buf_addv(m->error, format, args); /* the text may be cut */
    va_end(args);
    return err;
}

static void tell(struct mover *m, const char *format, va_list args)
{
    char line[LINE_MAX_BYTES];

    (void)vsnprintf(line, sizeof line, format, args); /* may be cut */
    m->move->tell(m->move->context, line);
}

void mover_tell(struct mover *m, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    tell(m, format, args);
    va_end(args);
}

void mover_leave(struct mover *m, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    tell(m, format, args);
    va_end(args);
    m->moved->left++;
}

/* ---- the directory -------------------------------------------------------------------------- */

/* Postfix's master holds this lock while it runs, and can't start while this process holds it. */
static int lock_master(struct mover *m)
{
    m->lock = openat(m->fd, LOCK_FILE, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (m->lock < 0) {
        return errno == ENOENT ? 0
                               : mover_fail(m, -errno, "%s/%s: %s", m->move->directory, LOCK_FILE,
                                            strerror(errno));
    }
    if (flock(m->lock, LOCK_EX | LOCK_NB) == 0) {
        return 0;
    }
    if (errno != EWOULDBLOCK) {
        return mover_fail(m, -errno, "%s/%s: %s", m->move->directory, LOCK_FILE, strerror(errno));
    }
    return mover_fail(m, -EBUSY, "Postfix runs on %s: stop it first (postfix stop)",
                      m->move->directory);
}

int mover_open(struct mover *m, const struct spool_move *move, const char *stage,
               struct spool_moved *ret_moved, struct buf *ret_error)
{
    struct queue_dir_options options = {.io = move->io};
    struct stat st;
    int err;

    *ret_moved = (struct spool_moved){0};
    *m = (struct mover){.move = move,
                        .io = move->io != NULL ? move->io : &spool_io_real,
                        .stage = stage,
                        .fd = -1,
                        .lock = -1,
                        .moved = ret_moved,
                        .error = ret_error};
    err = queue_dir_open(&m->dir, move->directory, &options, ret_error);
    if (err != 0) {
        return err;
    }
    m->fd = open(move->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (m->fd < 0 || fstatat(m->fd, queue_dir_word(QUEUE_DIR_INCOMING), &st, 0) != 0) {
        err = mover_fail(m, -errno, "%s: %s", move->directory, strerror(errno));
    } else {
        m->owner = st.st_uid;
        m->group = st.st_gid;
        err = lock_master(m);
    }
    if (err != 0) {
        mover_close(m);
    }
    return err;
}

void mover_close(struct mover *m)
{
    if (m->lock >= 0) {
        (void)close(m->lock); /* nothing was written */
    }
    if (m->fd >= 0) {
        (void)close(m->fd); /* nothing was written */
    }
    queue_dir_close(&m->dir);
}

/* ---- files ---------------------------------------------------------------------------------- */

int mover_sync(struct mover *m)
{
    int err = m->io->syncfs(m->fd);

    return err == 0 ? 0 : mover_fail(m, err, "%s: %s", m->move->directory, strerror(-err));
}

/* Gives a file that root has made to Postfix's user. */
static int give(struct mover *m, const char *path, int fd)
{
    struct stat st;

    if (fstat(fd, &st) != 0) {
        return -errno;
    }
    if (st.st_uid == m->owner && st.st_gid == m->group) {
        return 0;
    }
    if (fchown(fd, m->owner, m->group) == 0) {
        return 0;
    }
    if (errno == EPERM && st.st_uid == m->owner) {
        return 0; /* the group does not matter */
    }
    return mover_fail(m, -errno, "%s/%s can't be given to its owner, user %u: %s",
                      m->move->directory, path, (unsigned)m->owner, strerror(errno));
}

static int make_directory(struct mover *m, const char *path)
{
    int fd, err = m->io->mkdirat(m->fd, path, 0700);

    if (err != 0 && err != -EEXIST) {
        return mover_fail(m, err, "%s/%s: %s", m->move->directory, path, strerror(-err));
    }
    fd = openat(m->fd, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        return mover_fail(m, -errno, "%s/%s: %s", m->move->directory, path, strerror(errno));
    }
    err = give(m, path, fd);
    (void)close(fd); /* nothing was written */
    return err;
}

int mover_place(struct mover *m, const char *path, enum queue_dir_name which, struct slice id)
{
    char to[QUEUE_DIR_PATH_MAX];
    struct stat st;
    int err = 0;

    queue_dir_path(&m->dir, which, id, to);
    if (fstatat(m->fd, to, &st, AT_SYMLINK_NOFOLLOW) == 0) {
        return mover_fail(m, -EEXIST, "%s/%s is there already", m->move->directory, to);
    }
    for (char *slash = strchr(to, '/') + 1; err == 0 && (slash = strchr(slash, '/')) != NULL;
         slash++) {
        *slash = '\0';
        err = make_directory(m, to);
        *slash = '/';
    }
    if (err != 0) {
        return err;
    }
    err = m->io->renameat(m->fd, path, m->fd, to);
    return err == 0 ? 0
                    : mover_fail(m, err, "rename %s/%s to %s: %s", m->move->directory, path, to,
                                 strerror(-err));
}

bool mover_find_log(struct mover *m, enum queue_dir_name which, struct slice id,
                    char ret_path[QUEUE_DIR_PATH_MAX])
{
    struct stat st;

    for (unsigned depth = 0; depth <= QUEUE_DIR_DEPTH_MAX; depth++) {
        struct queue_dir hashed = m->dir;

        queue_dir_hash(&hashed, which, depth);
        queue_dir_path(&hashed, which, id, ret_path);
        if (fstatat(m->fd, ret_path, &st, AT_SYMLINK_NOFOLLOW) == 0) {
            return S_ISREG(st.st_mode);
        }
    }
    return false;
}

int mover_remove(struct mover *m, const char *path)
{
    int err = m->io->unlinkat(m->fd, path);

    return err == 0 || err == -ENOENT
               ? 0
               : mover_fail(m, err, "remove %s/%s: %s", m->move->directory, path, strerror(-err));
}

int mover_create(struct mover *m, const char *path, int *ret_fd)
{
    int fd = m->io->openat(m->fd, path, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    int err;

    if (fd < 0) {
        return mover_fail(m, fd, "%s/%s: %s", m->move->directory, path, strerror(-fd));
    }
    err = give(m, path, fd);
    if (err != 0) {
        (void)m->io->close(fd); /* nothing was written */
        return err;
    }
    *ret_fd = fd;
    return 0;
}

/* ---- the stage ------------------------------------------------------------------------------ */

int stage_make(struct mover *m)
{
    return make_directory(m, m->stage);
}

void stage_path(const struct mover *m, const char *name, const char *suffix,
                char ret_path[MOVER_PATH_MAX])
{
    int n = suffix == NULL ? snprintf(ret_path, MOVER_PATH_MAX, "%s/%s", m->stage, name)
                           : snprintf(ret_path, MOVER_PATH_MAX, "%s/%s.%s", m->stage, name, suffix);

    CHECK(n > 0 && n < MOVER_PATH_MAX);
}

int stage_mark_read(struct mover *m, struct buf *ret_text)
{
    char path[MOVER_PATH_MAX], bytes[MARK_MAX];
    ssize_t got;
    int fd;

    stage_path(m, MARK, NULL, path);
    fd = openat(m->fd, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return errno == ENOENT
                   ? -ENOENT
                   : mover_fail(m, -errno, "%s/%s: %s", m->move->directory, path, strerror(errno));
    }
    got = m->io->pread(fd, bytes, sizeof bytes, 0);
    (void)close(fd); /* opened for reading */
    if (got < 0) {
        return mover_fail(m, (int)got, "%s/%s: %s", m->move->directory, path, strerror((int)-got));
    }
    (void)buf_add(ret_text, slice_of(bytes, (size_t)got)); /* errors are sticky */
    return 0;
}

int stage_mark_write(struct mover *m, struct slice text)
{
    char path[MOVER_PATH_MAX], fresh[MOVER_PATH_MAX];
    int fd, err;

    CHECK(text.len < MARK_MAX);
    stage_path(m, MARK, NULL, path);
    stage_path(m, MARK_NEW, NULL, fresh);
    err = mover_create(m, fresh, &fd);
    if (err != 0) {
        return err;
    }
    err = spool_io_write_all(m->io, fd, text.ptr, text.len);
    if (err == 0) {
        err = m->io->fsync(fd);
    }
    (void)m->io->close(fd); /* already synced */
    if (err == 0) {
        err = m->io->renameat(m->fd, fresh, m->fd, path);
    }
    return err == 0
               ? 0
               : mover_fail(m, err, "write %s/%s: %s", m->move->directory, path, strerror(-err));
}

int stage_remove(struct mover *m)
{
    char path[MOVER_PATH_MAX];
    int err;

    stage_path(m, MARK_NEW, NULL, path);
    err = mover_remove(m, path);
    if (err == 0) {
        stage_path(m, MARK, NULL, path);
        err = mover_remove(m, path);
    }
    if (err == 0 && unlinkat(m->fd, m->stage, AT_REMOVEDIR) != 0 && errno != ENOENT) {
        return mover_fail(m, -errno, "remove %s/%s: %s", m->move->directory, m->stage,
                          strerror(errno));
    }
    return err;
}

static bool is_mark(const char *name)
{
    return strcmp(name, MARK) == 0 || strcmp(name, MARK_NEW) == 0;
}

int stage_list(struct mover *m, char ***ret_names, size_t *ret_count)
{
    int fd = openat(m->fd, m->stage, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    const struct dirent *entry;
    size_t count = 0, size = 0;
    char **names = NULL;
    DIR *d;

    if (fd < 0 && errno == ENOENT) {
        *ret_names = NULL;
        *ret_count = 0;
        return 0;
    }
    d = fd < 0 ? NULL : fdopendir(fd);
    if (d == NULL) {
        int err = mover_fail(m, -errno, "%s/%s: %s", m->move->directory, m->stage, strerror(errno));

        if (fd >= 0) {
            (void)close(fd); /* nothing was written */
        }
        return err;
    }
    while ((entry = readdir(d)) != NULL) {
        if (entry->d_name[0] == '.' || is_mark(entry->d_name)) {
            continue;
        }
        names = mem_grow(names, count, &size, sizeof *names);
        names[count++] = mem_string(entry->d_name);
    }
    (void)closedir(d); /* opened for reading */
    *ret_names = names;
    *ret_count = count;
    return 0;
}

void stage_free(char **names, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        mem_free(names[i]);
    }
    mem_free(names);
}
