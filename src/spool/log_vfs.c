#include "log_vfs.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include <sqlite3.h>

struct log_file {
    sqlite3_file base;
    char *kept; /* owned; LOG_VFS_BYTES long */
    int len;
    sqlite3_int64 at; /* offset in the file at which `kept` begins */
    bool keeps;
    /* The underlying VFS's file follows this struct in memory. */
};

static sqlite3_vfs *below; /* set once, when the VFS is registered */

static struct log_file *log_of(sqlite3_file *file)
{
    return (struct log_file *)file;
}

static sqlite3_file *real_of(sqlite3_file *file)
{
    return (sqlite3_file *)(log_of(file) + 1);
}

static int write_kept(sqlite3_file *file)
{
    struct log_file *f = log_of(file);
    sqlite3_file *real = real_of(file);
    int len = f->len;

    f->len = 0;
    return len == 0 ? SQLITE_OK : real->pMethods->xWrite(real, f->kept, len, f->at);
}

static int log_close(sqlite3_file *file)
{
    sqlite3_file *real = real_of(file);

    sqlite3_free(log_of(file)->kept);
    return real->pMethods->xClose(real);
}

static int log_read(sqlite3_file *file, void *bytes, int len, sqlite3_int64 at)
{
    sqlite3_file *real = real_of(file);
    int rc = write_kept(file);

    return rc == SQLITE_OK ? real->pMethods->xRead(real, bytes, len, at) : rc;
}

static int log_write(sqlite3_file *file, const void *bytes, int len, sqlite3_int64 at)
{
    struct log_file *f = log_of(file);
    sqlite3_file *real = real_of(file);
    int rc = SQLITE_OK;

    if (f->len > 0 && (at != f->at + f->len || len > LOG_VFS_BYTES - f->len)) {
        rc = write_kept(file);
    }
    if (rc != SQLITE_OK || len > LOG_VFS_BYTES || !f->keeps) {
        return rc == SQLITE_OK ? real->pMethods->xWrite(real, bytes, len, at) : rc;
    }
    if (f->len == 0) {
        f->at = at;
    }
    memcpy(f->kept + f->len, bytes, (size_t)len);
    f->len += len;
    return SQLITE_OK;
}

static int log_truncate(sqlite3_file *file, sqlite3_int64 size)
{
    sqlite3_file *real = real_of(file);
    int rc = write_kept(file);

    return rc == SQLITE_OK ? real->pMethods->xTruncate(real, size) : rc;
}

static int log_sync(sqlite3_file *file, int flags)
{
    sqlite3_file *real = real_of(file);
    int rc = write_kept(file);

    return rc == SQLITE_OK ? real->pMethods->xSync(real, flags) : rc;
}

static int log_size(sqlite3_file *file, sqlite3_int64 *ret_size)
{
    sqlite3_file *real = real_of(file);
    int rc = write_kept(file);

    return rc == SQLITE_OK ? real->pMethods->xFileSize(real, ret_size) : rc;
}

static int log_lock(sqlite3_file *file, int level)
{
    return real_of(file)->pMethods->xLock(real_of(file), level);
}

static int log_unlock(sqlite3_file *file, int level)
{
    return real_of(file)->pMethods->xUnlock(real_of(file), level);
}

static int log_check_lock(sqlite3_file *file, int *ret_locked)
{
    return real_of(file)->pMethods->xCheckReservedLock(real_of(file), ret_locked);
}

static int log_control(sqlite3_file *file, int op, void *arg)
{
    return real_of(file)->pMethods->xFileControl(real_of(file), op, arg);
}

static int log_sector_size(sqlite3_file *file)
{
    return real_of(file)->pMethods->xSectorSize(real_of(file));
}

static int log_characteristics(sqlite3_file *file)
{
    return real_of(file)->pMethods->xDeviceCharacteristics(real_of(file));
}

static const sqlite3_io_methods log_methods = {
    .iVersion = 1, /* a log is neither mapped nor does it have shared memory */
    .xClose = log_close,
    .xRead = log_read,
    .xWrite = log_write,
    .xTruncate = log_truncate,
    .xSync = log_sync,
    .xFileSize = log_size,
    .xLock = log_lock,
    .xUnlock = log_unlock,
    .xCheckReservedLock = log_check_lock,
    .xFileControl = log_control,
    .xSectorSize = log_sector_size,
    .xDeviceCharacteristics = log_characteristics,
};

static int log_open(sqlite3_vfs *vfs, const char *path, sqlite3_file *file, int flags,
                    int *ret_flags)
{
    struct log_file *f = log_of(file);
    int rc;

    (void)vfs;
    if ((flags & SQLITE_OPEN_WAL) == 0) {
        return below->xOpen(below, path, file, flags, ret_flags);
    }
    *f = (struct log_file){.kept = sqlite3_malloc(LOG_VFS_BYTES)};
    if (f->kept == NULL) {
        return SQLITE_NOMEM;
    }
    rc = below->xOpen(below, path, real_of(file), flags, ret_flags);
    if (real_of(file)->pMethods == NULL) {
        sqlite3_free(f->kept);
        return rc;
    }
    f->base.pMethods = &log_methods; /* set after an error, too: SQLite then closes the file */
    f->keeps = (log_characteristics(file) & SQLITE_IOCAP_POWERSAFE_OVERWRITE) != 0;
    return rc;
}

const char *log_vfs(void)
{
    static sqlite3_vfs vfs;

    if (below == NULL) {
        sqlite3_vfs *found = sqlite3_vfs_find(NULL);

        if (found == NULL) {
            return NULL;
        }
        vfs = *found;
        vfs.zName = "sluice-log";
        vfs.szOsFile = (int)sizeof(struct log_file) + found->szOsFile;
        vfs.xOpen = log_open;
        below = found;
        if (sqlite3_vfs_register(&vfs, 0) != SQLITE_OK) {
            below = NULL;
            return NULL;
        }
    }
    return vfs.zName;
}
