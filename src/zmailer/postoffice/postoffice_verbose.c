/*
 * Log file with which a sender follows a message. The `v` line of the control file has its name,
 * relative to transport/, which may be anywhere in the postoffice but not outside. The file must
 * exist, and is written with the rights of the message's owner.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mem.h"
#include "postoffice_engine.h"

#define VERBOSE_PATH_MAX 1024
#define VERBOSE_LINE_MAX 4096

/* Appends the path from the root of the postoffice, without "." and "..". Returns false if it leads
 * outside. */
static bool resolve(struct slice path, struct buf *ret_path)
{
    if (slice_starts(path, SLICE("/"))) {
        return false;
    }
    (void)buf_add_string(ret_path, "transport"); /* checked at the end */
    while (path.ptr != NULL) {
        struct slice part = slice_cut(&path, '/');

        if (part.len == 0 || slice_equal(part, SLICE("."))) {
            continue;
        }
        if (slice_equal(part, SLICE(".."))) {
            struct slice so_far = buf_slice(ret_path);
            size_t slash = slice_find_last(so_far, '/');

            if (so_far.len == 0) {
                return false;
            }
            buf_truncate(ret_path, slash == so_far.len ? 0 : slash);
            continue;
        }
        if (buf_len(ret_path) > 0) {
            (void)buf_add_byte(ret_path, '/');
        }
        (void)buf_add(ret_path, part);
    }
    return !ret_path->failed && buf_len(ret_path) > 0;
}

/* Opens the path component by component, so that no link is followed. */
static int open_below(struct postoffice *po, struct slice path)
{
    char part_text[NAME_MAX + 1];
    int at = po->root, fd = -1;

    while (path.ptr != NULL) {
        struct slice part = slice_cut(&path, '/');
        bool last = path.ptr == NULL;

        if (part.len > NAME_MAX) {
            fd = -ENAMETOOLONG;
        } else {
            memcpy(part_text, part.ptr, part.len);
            part_text[part.len] = '\0';
            fd = po->io->openat(at, part_text,
                                last ? O_WRONLY | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY
                                     : O_PATH | O_DIRECTORY | O_NOFOLLOW,
                                0);
        }
        if (at != po->root) {
            (void)po->io->close(at); /* a directory */
        }
        if (fd < 0) {
            break;
        }
        at = fd;
    }
    return fd;
}

/* May the owner write the file? Only the user id changes for the opening, so the group's permission
 * was checked with this process's groups, which are root's. The file must be writable for its owner
 * or for all. */
static bool may_write(const struct stat *st, uid_t owner)
{
    return owner == 0 ||
           (st->st_mode & (st->st_uid == owner ? (mode_t)S_IWUSR : (mode_t)S_IWOTH)) != 0;
}

static void append_line(struct postoffice *po, uid_t owner, struct slice path, struct slice line)
{
    int fd = open_below(po, path);
    struct stat st;
    struct buf text;

    if (fd < 0) {
        return;
    }
    buf_init(&text, VERBOSE_LINE_MAX);
    (void)buf_add(&text, line); /* checked together with the line end */
    if (buf_add_byte(&text, '\n') && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
        (geteuid() != 0 || may_write(&st, owner))) {
        struct slice bytes = buf_slice(&text);

        (void)spool_io_write_all(po->io, fd, bytes.ptr, bytes.len); /* errors do not matter */
    }
    buf_fini(&text);
    (void)po->io->close(fd); /* as above */
}

void verbose_file(struct postoffice *po, const struct post_file *file, struct slice line)
{
    struct post_view *view;
    struct buf path;

    if (!file->is_verbose || view_of(po, file, false, &view) != 0) {
        return;
    }
    buf_init(&path, VERBOSE_PATH_MAX);
    if (resolve(view->control.verbose, &path)) {
        bool root = geteuid() == 0;

        if (root) {
            (void)setfsuid(file->owner); /* the check below shows whether it worked */
        }
        if (!root || (uint32_t)setfsuid((uid_t)-1) == file->owner) {
            append_line(po, file->owner, buf_slice(&path), line);
        }
        if (root) {
            (void)setfsuid(0);
        }
    }
    buf_fini(&path);
}

void verbose_add(struct spool *sp, struct msg_id id, struct slice line)
{
    struct postoffice *po = postoffice_of(sp);
    const struct post_part *p = table_part(&po->table, id.n);

    if (p != NULL) {
        verbose_file(po, p->file, line);
    }
}
