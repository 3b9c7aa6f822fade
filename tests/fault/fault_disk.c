#include "fault_disk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/stat.h>
#include <unistd.h>

#include <sqlite3.h>

#include "check.h"
#include "mem.h"
#include "rng.h"
#include "slice.h"

#define SECTOR   512
#define FDS_MAX  1024
#define PATH_LEN 256

/* A write since the last sync; len 0 and `cut` = a truncation. */
struct change {
    TAILQ_ENTRY(change) next;
    uint64_t at;
    size_t len;
    bool cut;
    char *bytes; /* owned */
};

struct file {
    TAILQ_ENTRY(file) next;
    char path[PATH_LEN];
    char *durable; /* owned: content as of the last sync */
    size_t durable_len;
    TAILQ_HEAD(, change) changes;
    bool named;   /* its name is durable, if it has one */
    bool removed; /* its name was removed, durably or not */
    bool is_dir;
};

static struct {
    struct fault_plan plan;
    struct rng rng;
    uint64_t calls, syncs;
    bool happened, off; /* off: the power is gone */
    TAILQ_HEAD(, file) files;
    struct file *by_fd[FDS_MAX];
} disk;

static sqlite3_vfs *real_vfs;

/* ---- what has been written ------------------------------------------------------------------ */

static struct file *find(const char *path)
{
    struct file *f;

    TAILQ_FOREACH(f, &disk.files, next)
    {
        if (!f->removed && strcmp(f->path, path) == 0) {
            return f;
        }
    }
    return NULL;
}

static char *read_file(const char *path, size_t *ret_len)
{
    int fd = open(path, O_RDONLY);
    struct stat st;
    char *bytes;

    if (fd < 0) {
        *ret_len = 0;
        return mem_new(0);
    }
    CHECK(fstat(fd, &st) == 0);
    bytes = mem_new((size_t)st.st_size);
    *ret_len = (size_t)st.st_size;
    if (S_ISREG(st.st_mode)) {
        CHECK(pread(fd, bytes, *ret_len, 0) == st.st_size);
    }
    close(fd);
    return bytes;
}

/* Remember a file that is (about to be) opened. */
static struct file *track(const char *path, bool is_dir)
{
    struct file *f = find(path);

    if (f != NULL) {
        return f;
    }
    f = mem_new(sizeof *f);
    CHECK(strlen(path) < sizeof f->path);
    strcpy(f->path, path);
    TAILQ_INIT(&f->changes);
    f->named = access(path, F_OK) == 0;
    f->is_dir = is_dir;
    f->durable = is_dir ? mem_new(0) : read_file(path, &f->durable_len);
    TAILQ_INSERT_TAIL(&disk.files, f, next);
    return f;
}

static void note_change(struct file *f, uint64_t at, const void *bytes, size_t len, bool cut)
{
    struct change *c = mem_new(sizeof *c);

    c->at = at;
    c->len = len;
    c->cut = cut;
    c->bytes = len == 0 ? NULL : mem_copy(bytes, len);
    TAILQ_INSERT_TAIL(&f->changes, c, next);
}

static void forget_changes(struct file *f)
{
    struct change *c;

    while ((c = TAILQ_FIRST(&f->changes)) != NULL) {
        TAILQ_REMOVE(&f->changes, c, next);
        mem_free(c->bytes);
        mem_free(c);
    }
}

/* Put bytes into the durable image. */
static void image_write(struct file *f, uint64_t at, const char *bytes, size_t len)
{
    if (at + len > f->durable_len) {
        f->durable = mem_resize(f->durable, at + len, 1);
        if (at > f->durable_len) {
            memset(f->durable + f->durable_len, 0, at - f->durable_len);
        }
        f->durable_len = at + len;
    }
    memcpy(f->durable + at, bytes, len);
}

static void apply(struct file *f, const struct change *c)
{
    if (!c->cut) {
        image_write(f, c->at, c->bytes, c->len);
    } else if (c->at < f->durable_len) {
        f->durable_len = c->at;
    }
}

static void make_durable(struct file *f)
{
    struct change *c;

    TAILQ_FOREACH(c, &f->changes, next)
    {
        apply(f, c);
    }
    forget_changes(f);
}

static void forget_file(struct file *f)
{
    forget_changes(f);
    TAILQ_REMOVE(&disk.files, f, next);
    mem_free(f->durable);
    mem_free(f);
}

/* Is `f` directly in the directory `dir`? */
static bool is_in(const struct file *f, const char *dir)
{
    size_t len = strlen(dir);

    return strncmp(f->path, dir, len) == 0 && f->path[len] == '/' &&
           strchr(f->path + len + 1, '/') == NULL;
}

static void sync_dir(const char *dir)
{
    struct file *f, *next;

    for (f = TAILQ_FIRST(&disk.files); f != NULL; f = next) {
        next = TAILQ_NEXT(f, next);
        if (!is_in(f, dir)) {
            continue;
        }
        if (f->removed) {
            forget_file(f);
        } else {
            f->named = true;
        }
    }
}

/* A name goes; it may be back after a power cut. */
static void note_removed(const char *path)
{
    struct file *f = find(path);

    if (f != NULL) {
        f->removed = true;
    }
}

/* ---- the plan ------------------------------------------------------------------------------- */

/* Every call that could fail passes here: does it? */
static bool fails(void)
{
    disk.calls++;
    if (disk.off) {
        return true;
    }
    if (disk.plan.fail_call == 0 || disk.calls < disk.plan.fail_call) {
        return false;
    }
    if (disk.calls == disk.plan.fail_call || disk.plan.fail_ever_more) {
        disk.happened = true;
        return true;
    }
    return false;
}

/* Every sync passes here, before it does anything: does it fail, or the power go? */
static bool sync_fails(void)
{
    disk.syncs++;
    if (disk.syncs == disk.plan.cut_sync) {
        disk.happened = disk.off = true;
    }
    return disk.off || disk.syncs == disk.plan.fail_sync;
}

/* Of failures half say that the disk is full. */
static bool full(void)
{
    return !disk.off && (disk.calls & 1) != 0;
}

void fault_disk_begin(const struct fault_plan *plan)
{
    memset(&disk, 0, sizeof disk);
    disk.plan = *plan;
    rng_init(&disk.rng, plan->seed);
    TAILQ_INIT(&disk.files);
}

bool fault_disk_happened(void)
{
    return disk.happened;
}

/* ---- after the power cut -------------------------------------------------------------------- */

static bool coin(void)
{
    return rng_below(&disk.rng, 2) == 0;
}

enum ending { KEPT, LOST, TORN, GARBAGE, ENDINGS };

/* What became of one write that was not synced. */
static void survive(struct file *f, struct change *c, enum ending ending)
{
    size_t part = c->len;

    switch (ending) {
    case KEPT:
        apply(f, c);
        break;
    case LOST:
    case ENDINGS:
        break;
    case TORN:
        if (!c->cut) { /* its first or its last sectors */
            part = (size_t)rng_below(&disk.rng, c->len / SECTOR + 1) * SECTOR;
            if (coin()) {
                image_write(f, c->at, c->bytes, part);
            } else {
                image_write(f, c->at + part, c->bytes + part, c->len - part);
            }
        }
        break;
    case GARBAGE:
        if (!c->cut) {
            for (size_t i = 0; i < c->len; i++) {
                c->bytes[i] = (char)rng_next(&disk.rng);
            }
            apply(f, c);
        }
        break;
    }
}

static void write_image(const struct file *f)
{
    int fd = open(f->path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    CHECK(fd >= 0);
    CHECK(write(fd, f->durable, f->durable_len) == (ssize_t)f->durable_len);
    close(fd);
}

/* `all` is what became of every write, or ENDINGS: something else of each. */
static void cut_file(struct file *f, enum ending all)
{
    struct change *c;

    if (f->removed) { /* back only where nothing else has taken its name */
        if (!f->named || find(f->path) != NULL || coin()) {
            return;
        }
    } else if (!f->named && coin()) {
        (void)unlink(f->path); /* may never have been made */
        return;
    }
    TAILQ_FOREACH(c, &f->changes, next)
    {
        survive(f, c, all != ENDINGS ? all : (enum ending)rng_below(&disk.rng, ENDINGS));
    }
    write_image(f);
}

void fault_disk_end(void)
{
    static const enum ending alls[] = {KEPT, LOST, ENDINGS, ENDINGS};
    enum ending all = alls[rng_below(&disk.rng, sizeof alls / sizeof alls[0])];
    struct file *f;

    if (disk.off) {
        TAILQ_FOREACH(f, &disk.files, next)
        {
            if (!f->is_dir) {
                cut_file(f, all);
            }
        }
        TAILQ_FOREACH(f, &disk.files, next)
        {
            if (f->is_dir && !f->named && coin()) {
                (void)rmdir(f->path); /* only when it came out empty, which is enough */
            }
        }
    }
    while ((f = TAILQ_FIRST(&disk.files)) != NULL) {
        forget_file(f);
    }
    memset(&disk.plan, 0, sizeof disk.plan);
    disk.off = false;
}

/* ---- the spool's own files ------------------------------------------------------------------ */

static int io_error(void)
{
    return full() ? -ENOSPC : -EIO;
}

/* The lock and the database are opened by the spool, too; the database is the VFS's affair. */
static bool is_content(const char *path)
{
    return strstr(path, ".d/") != NULL;
}

static int disk_open(const char *path, int flags, mode_t mode)
{
    struct file *f = NULL;
    int fd;

    if (fails()) {
        return io_error();
    }
    if ((flags & O_DIRECTORY) != 0) {
        f = track(path, true);
    } else if (is_content(path) && (flags & O_ACCMODE) != O_RDONLY) {
        f = track(path, false);
    }
    fd = spool_io_real.open(path, flags, mode);
    if (fd >= 0) {
        CHECK(fd < FDS_MAX);
        disk.by_fd[fd] = f;
    }
    return fd;
}

static int disk_close(int fd)
{
    disk.by_fd[fd] = NULL;
    return spool_io_real.close(fd);
}

/* Only appends are made. */
static ssize_t disk_write(int fd, const void *bytes, size_t len)
{
    struct file *f = disk.by_fd[fd];
    off_t at = lseek(fd, 0, SEEK_CUR);

    if (fails()) {
        return io_error();
    }
    if (f != NULL) {
        note_change(f, (uint64_t)at, bytes, len, false);
    }
    return spool_io_real.write(fd, bytes, len);
}

static ssize_t disk_pwrite(int fd, const void *bytes, size_t len, uint64_t at)
{
    struct file *f = disk.by_fd[fd];

    if (fails()) {
        return io_error();
    }
    if (f != NULL) {
        note_change(f, at, bytes, len, false);
    }
    return spool_io_real.pwrite(fd, bytes, len, at);
}

static ssize_t disk_pread(int fd, void *bytes, size_t len, uint64_t at)
{
    return fails() ? -EIO : spool_io_real.pread(fd, bytes, len, at);
}

static int disk_fsync(int fd)
{
    struct file *f = disk.by_fd[fd];

    if (fails() || sync_fails()) {
        return -EIO;
    }
    CHECK(f != NULL);
    if (f->is_dir) {
        sync_dir(f->path);
    } else {
        make_durable(f);
    }
    return 0;
}

static int disk_fstat_size(int fd, uint64_t *ret_size)
{
    return fails() ? -EIO : spool_io_real.fstat_size(fd, ret_size);
}

static int disk_unlink(const char *path)
{
    int err;

    if (fails()) {
        return -EIO;
    }
    (void)track(path, false);
    err = spool_io_real.unlink(path);
    note_removed(path);
    return err;
}

static int disk_mkdir(const char *path, mode_t mode)
{
    if (fails()) {
        return io_error();
    }
    (void)track(path, true);
    return spool_io_real.mkdir(path, mode);
}

const struct spool_io fault_disk_io = {
    .open = disk_open,
    .close = disk_close,
    .write = disk_write,
    .pread = disk_pread,
    .fsync = disk_fsync,
    .fdatasync = disk_fsync,
    .pwrite = disk_pwrite,
    .fstat_size = disk_fstat_size,
    .unlink = disk_unlink,
    .mkdir = disk_mkdir,
};

/* ---- SQLite's files ------------------------------------------------------------------------- */

struct vfs_file {
    sqlite3_file base;
    sqlite3_file *real; /* behind this struct */
    char path[PATH_LEN];
};

static struct vfs_file *vfs_file(sqlite3_file *file)
{
    return (struct vfs_file *)file;
}

/* A file that SQLite has removed while open is not tracked any more. */
static struct file *tracked(sqlite3_file *file)
{
    return vfs_file(file)->path[0] == '\0' ? NULL : track(vfs_file(file)->path, false);
}

static int file_close(sqlite3_file *file)
{
    struct vfs_file *f = vfs_file(file);

    return f->real->pMethods == NULL ? SQLITE_OK : f->real->pMethods->xClose(f->real);
}

static int file_read(sqlite3_file *file, void *bytes, int len, sqlite3_int64 at)
{
    sqlite3_file *real = vfs_file(file)->real;

    return fails() ? SQLITE_IOERR_READ : real->pMethods->xRead(real, bytes, len, at);
}

static int file_write(sqlite3_file *file, const void *bytes, int len, sqlite3_int64 at)
{
    sqlite3_file *real = vfs_file(file)->real;
    struct file *f = tracked(file);

    if (fails()) {
        return full() ? SQLITE_FULL : SQLITE_IOERR_WRITE;
    }
    if (f != NULL) {
        note_change(f, (uint64_t)at, bytes, (size_t)len, false);
    }
    return real->pMethods->xWrite(real, bytes, len, at);
}

static int file_truncate(sqlite3_file *file, sqlite3_int64 size)
{
    sqlite3_file *real = vfs_file(file)->real;
    struct file *f = tracked(file);

    if (fails()) {
        return SQLITE_IOERR_TRUNCATE;
    }
    if (f != NULL) {
        note_change(f, (uint64_t)size, NULL, 0, true);
    }
    return real->pMethods->xTruncate(real, size);
}

static void sync_dir_of(const char *path)
{
    char dir[PATH_LEN];

    snprintf(dir, sizeof dir, "%.*s", (int)slice_find_last(slice_string(path), '/'), path);
    sync_dir(dir);
}

/* The default VFS syncs the directory, too, with the first sync of a log or journal. */
static int file_sync(sqlite3_file *file, int flags)
{
    struct file *f = tracked(file);

    (void)flags;
    if (fails() || sync_fails()) {
        return SQLITE_IOERR_FSYNC;
    }
    if (f != NULL) {
        make_durable(f);
        if (!f->named) {
            sync_dir_of(f->path);
        }
    }
    return SQLITE_OK;
}

static int file_size(sqlite3_file *file, sqlite3_int64 *ret_size)
{
    sqlite3_file *real = vfs_file(file)->real;

    return fails() ? SQLITE_IOERR_FSTAT : real->pMethods->xFileSize(real, ret_size);
}

static int file_lock(sqlite3_file *file, int level)
{
    return vfs_file(file)->real->pMethods->xLock(vfs_file(file)->real, level);
}

static int file_unlock(sqlite3_file *file, int level)
{
    return vfs_file(file)->real->pMethods->xUnlock(vfs_file(file)->real, level);
}

static int file_check_lock(sqlite3_file *file, int *ret_locked)
{
    return vfs_file(file)->real->pMethods->xCheckReservedLock(vfs_file(file)->real, ret_locked);
}

static int file_control(sqlite3_file *file, int op, void *arg)
{
    return vfs_file(file)->real->pMethods->xFileControl(vfs_file(file)->real, op, arg);
}

static int file_sector_size(sqlite3_file *file)
{
    (void)file;
    return SECTOR;
}

/* As the default VFS: no atomic writes, but a torn write harms no bytes beside it. */
static int file_characteristics(sqlite3_file *file)
{
    (void)file;
    return SQLITE_IOCAP_POWERSAFE_OVERWRITE;
}

static int file_shm_map(sqlite3_file *file, int page, int size, int extend, void volatile **ret_map)
{
    sqlite3_file *real = vfs_file(file)->real;

    return fails() ? SQLITE_IOERR_SHMMAP
                   : real->pMethods->xShmMap(real, page, size, extend, ret_map);
}

static int file_shm_lock(sqlite3_file *file, int offset, int n, int flags)
{
    return vfs_file(file)->real->pMethods->xShmLock(vfs_file(file)->real, offset, n, flags);
}

static void file_shm_barrier(sqlite3_file *file)
{
    vfs_file(file)->real->pMethods->xShmBarrier(vfs_file(file)->real);
}

static int file_shm_unmap(sqlite3_file *file, int delete)
{
    return vfs_file(file)->real->pMethods->xShmUnmap(vfs_file(file)->real, delete);
}

static const sqlite3_io_methods file_methods = {
    .iVersion = 2, /* no memory mapping */
    .xClose = file_close,
    .xRead = file_read,
    .xWrite = file_write,
    .xTruncate = file_truncate,
    .xSync = file_sync,
    .xFileSize = file_size,
    .xLock = file_lock,
    .xUnlock = file_unlock,
    .xCheckReservedLock = file_check_lock,
    .xFileControl = file_control,
    .xSectorSize = file_sector_size,
    .xDeviceCharacteristics = file_characteristics,
    .xShmMap = file_shm_map,
    .xShmLock = file_shm_lock,
    .xShmBarrier = file_shm_barrier,
    .xShmUnmap = file_shm_unmap,
};

static int vfs_open(sqlite3_vfs *vfs, const char *path, sqlite3_file *file, int flags,
                    int *ret_flags)
{
    struct vfs_file *f = vfs_file(file);
    int rc;

    (void)vfs;
    memset(f, 0, sizeof *f);
    if (fails()) {
        return SQLITE_CANTOPEN;
    }
    f->real = (sqlite3_file *)(f + 1);
    if (path != NULL && (flags & SQLITE_OPEN_DELETEONCLOSE) == 0) {
        CHECK(strlen(path) < sizeof f->path);
        strcpy(f->path, path);
        (void)track(path, false);
    }
    rc = real_vfs->xOpen(real_vfs, path, f->real, flags, ret_flags);
    if (f->real->pMethods != NULL) {
        f->base.pMethods = &file_methods;
    }
    return rc;
}

static int vfs_delete(sqlite3_vfs *vfs, const char *path, int sync)
{
    int rc;

    (void)vfs;
    if (fails()) {
        return SQLITE_IOERR_DELETE;
    }
    rc = real_vfs->xDelete(real_vfs, path, 0);
    if (rc == SQLITE_OK) {
        note_removed(path);
        if (sync) {
            sync_dir_of(path);
        }
    }
    return rc;
}

void fault_disk_install(void)
{
    static sqlite3_vfs vfs;

    real_vfs = sqlite3_vfs_find(NULL);
    CHECK(real_vfs != NULL);
    vfs = *real_vfs;
    vfs.zName = "fault";
    vfs.szOsFile = (int)sizeof(struct vfs_file) + real_vfs->szOsFile;
    vfs.xOpen = vfs_open;
    vfs.xDelete = vfs_delete;
    CHECK(sqlite3_vfs_register(&vfs, 1) == SQLITE_OK);
    TAILQ_INIT(&disk.files);
}
