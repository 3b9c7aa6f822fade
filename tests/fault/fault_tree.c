#include "fault_tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "mem.h"
#include "rng.h"

#define SECTOR   512
#define FDS_MAX  1024
#define PATH_LEN 300

/* Of a file's bytes since its last sync. */
struct change {
    TAILQ_ENTRY(change) next;
    uint64_t at;
    size_t len;
    bool truncates; /* to `at` */
    char *bytes;    /* owned */
};

struct inode {
    TAILQ_ENTRY(inode) next;
    uint64_t number;
    char *durable; /* owned */
    size_t durable_len;
    TAILQ_HEAD(, change) changes;
};

/* A name that is durable; then, as the cut goes through the changes, one that survives. */
struct name {
    TAILQ_ENTRY(name) next;
    char path[PATH_LEN]; /* below the root */
    bool is_directory;
    uint64_t inode;
};

enum naming_kind { MADE, RENAMED, REMOVED };

/* A change of names; `directories` are those it is in, the second one possibly empty. */
struct naming {
    TAILQ_ENTRY(naming) next;
    enum naming_kind kind;
    char directories[2][PATH_LEN];
    char path[PATH_LEN], to[PATH_LEN];
    bool is_directory, durable, lost;
    uint64_t inode;
};

struct handle {
    bool is_open, is_directory, appends;
    char path[PATH_LEN]; /* of a directory */
    struct inode *inode; /* of a named file */
};

static struct {
    char root[PATH_LEN], inodes[PATH_LEN];
    uint64_t syncs, cut_sync;
    bool off;
    struct rng rng;
    TAILQ_HEAD(, inode) files;
    TAILQ_HEAD(, name) names;
    TAILQ_HEAD(naming_list, naming) namings;
    struct handle handles[FDS_MAX];
} tree;

/* ---- paths ---------------------------------------------------------------------------------- */

static void join(char ret_path[PATH_LEN], const char *directory, const char *path)
{
    int len = directory[0] == '\0' ? snprintf(ret_path, PATH_LEN, "%s", path)
                                   : snprintf(ret_path, PATH_LEN, "%s/%s", directory, path);

    CHECK(len < PATH_LEN);
}

static void below(char ret_path[PATH_LEN], int directory, const char *path)
{
    if (directory == AT_FDCWD) {
        CHECK(strcmp(path, tree.root) == 0);
        ret_path[0] = '\0';
        return;
    }
    CHECK(tree.handles[directory].is_directory);
    if (strcmp(path, ".") == 0) {
        strcpy(ret_path, tree.handles[directory].path);
    } else {
        join(ret_path, tree.handles[directory].path, path);
    }
}

static void parent_of(const char *path, char ret_path[PATH_LEN])
{
    const char *slash = strrchr(path, '/');
    size_t len = slash == NULL ? 0 : (size_t)(slash - path);

    memcpy(ret_path, path, len);
    ret_path[len] = '\0';
}

static void inode_path(uint64_t number, char ret_path[PATH_LEN])
{
    CHECK(snprintf(ret_path, PATH_LEN, "%s/%" PRIu64, tree.inodes, number) < PATH_LEN);
}

/* ---- what is known -------------------------------------------------------------------------- */

static struct inode *find_inode(uint64_t number)
{
    struct inode *i;

    TAILQ_FOREACH(i, &tree.files, next)
    {
        if (i->number == number) {
            return i;
        }
    }
    return NULL;
}

/* A file that was found or made. The second link keeps it when its name goes. */
static struct inode *add_inode(const char *path, const struct stat *st)
{
    struct inode *i = mem_new(sizeof *i);
    char real[PATH_LEN], link_path[PATH_LEN];
    int fd;

    i->number = st->st_ino;
    i->durable_len = (size_t)st->st_size;
    i->durable = mem_new(i->durable_len);
    TAILQ_INIT(&i->changes);
    TAILQ_INSERT_TAIL(&tree.files, i, next);
    join(real, tree.root, path);
    inode_path(i->number, link_path);
    CHECK(link(real, link_path) == 0);
    fd = open(real, O_RDONLY);
    CHECK(fd >= 0 && pread(fd, i->durable, i->durable_len, 0) == st->st_size);
    close(fd);
    return i;
}

static void add_name(const char *path, bool is_directory, uint64_t inode)
{
    struct name *n = mem_new(sizeof *n);

    strcpy(n->path, path);
    n->is_directory = is_directory;
    n->inode = inode;
    TAILQ_INSERT_TAIL(&tree.names, n, next);
}

static struct name *find_name(const char *path)
{
    struct name *n;

    TAILQ_FOREACH(n, &tree.names, next)
    {
        if (strcmp(n->path, path) == 0) {
            return n;
        }
    }
    return NULL;
}

static void drop_name(const char *path)
{
    struct name *n = find_name(path);

    if (n != NULL) {
        TAILQ_REMOVE(&tree.names, n, next);
        mem_free(n);
    }
}

/* Everything below `path`, directories first. */
static void find_all(const char *path)
{
    char real[PATH_LEN], entry_path[PATH_LEN];
    struct dirent *entry;
    struct stat st;
    DIR *d;

    join(real, tree.root, path);
    d = opendir(real);
    CHECK(d != NULL);
    while ((entry = readdir(d)) != NULL) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) {
            continue;
        }
        join(entry_path, path, entry->d_name);
        CHECK(fstatat(dirfd(d), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0);
        add_name(entry_path, S_ISDIR(st.st_mode), st.st_ino);
        if (S_ISDIR(st.st_mode)) {
            find_all(entry_path);
        } else {
            (void)add_inode(entry_path, &st);
        }
    }
    closedir(d);
}

void fault_tree_begin(const char *root, uint64_t cut_sync, uint64_t seed)
{
    memset(&tree, 0, sizeof tree);
    CHECK(snprintf(tree.root, sizeof tree.root, "%s", root) < 250);
    (void)snprintf(tree.inodes, sizeof tree.inodes, "%.250s.inodes", root); /* measured */
    tree.cut_sync = cut_sync;
    rng_init(&tree.rng, seed);
    TAILQ_INIT(&tree.files);
    TAILQ_INIT(&tree.names);
    TAILQ_INIT(&tree.namings);
    CHECK(mkdir(tree.inodes, 0700) == 0);
    find_all("");
}

bool fault_tree_is_off(void)
{
    return tree.off;
}

/* ---- changes -------------------------------------------------------------------------------- */

static void note_change(struct inode *i, uint64_t at, const void *bytes, size_t len, bool truncates)
{
    struct change *c = mem_new(sizeof *c);

    c->at = at;
    c->len = len;
    c->truncates = truncates;
    c->bytes = len > 0 ? mem_copy(bytes, len) : NULL;
    TAILQ_INSERT_TAIL(&i->changes, c, next);
}

static void note_naming(enum naming_kind kind, const char *path, const char *to, bool is_directory,
                        uint64_t inode)
{
    struct naming *n = mem_new(sizeof *n);

    n->kind = kind;
    strcpy(n->path, path);
    strcpy(n->to, to);
    n->is_directory = is_directory;
    n->inode = inode;
    parent_of(path, n->directories[0]);
    if (kind == RENAMED) {
        parent_of(to, n->directories[1]);
    } else { /* what is in a new directory comes after it */
        strcpy(n->directories[1], is_directory ? path : n->directories[0]);
    }
    TAILQ_INSERT_TAIL(&tree.namings, n, next);
}

static bool touches(const struct naming *n, const char *directory)
{
    return strcmp(n->directories[0], directory) == 0 || strcmp(n->directories[1], directory) == 0;
}

/* Does a later change that is to be durable need this one? */
static bool is_needed(const struct naming *n)
{
    const struct naming *later = n;

    while ((later = TAILQ_NEXT(later, next)) != NULL) {
        if (later->durable &&
            (touches(later, n->directories[0]) || touches(later, n->directories[1]))) {
            return true;
        }
    }
    return false;
}

static void sync_directory(const char *directory)
{
    struct naming *n;

    TAILQ_FOREACH_REVERSE(n, &tree.namings, naming_list, next)
    {
        n->durable = n->durable || touches(n, directory) || is_needed(n);
    }
}

/* ---- the cut -------------------------------------------------------------------------------- */

/* The bytes of one sector that a change has made, within `len` bytes. */
static void change_sector(const struct change *c, uint64_t sector, char *bytes, uint64_t len)
{
    uint64_t from = sector * SECTOR, to = from + SECTOR < len ? from + SECTOR : len;

    if (c->truncates) {
        from = c->at > from ? c->at : from;
        if (from < to) {
            memset(bytes + from, 0, to - from);
        }
        return;
    }
    from = c->at > from ? c->at : from;
    to = c->at + c->len < to ? c->at + c->len : to;
    if (from < to) {
        memcpy(bytes + from, c->bytes + (from - c->at), to - from);
    }
}

static uint64_t size_after(const struct inode *i, uint64_t count)
{
    uint64_t size = i->durable_len;
    const struct change *c;

    TAILQ_FOREACH(c, &i->changes, next)
    {
        if (count-- == 0) {
            break;
        }
        size = c->truncates || c->at + c->len > size ? c->at + c->len : size;
    }
    return size;
}

/* What the changes have made of the file: all of them, or of each sector any number. */
static char *image_of(struct inode *i, bool all, uint64_t *ret_size)
{
    uint64_t count = 0;
    const struct change *c;
    char *bytes;

    TAILQ_FOREACH(c, &i->changes, next)
    {
        count++;
    }
    *ret_size = size_after(i, all ? count : rng_below(&tree.rng, count + 1));
    bytes = mem_new(*ret_size);
    memcpy(bytes, i->durable, i->durable_len < *ret_size ? i->durable_len : *ret_size);
    for (uint64_t sector = 0; sector * SECTOR < *ret_size; sector++) {
        uint64_t left = all ? count : rng_below(&tree.rng, count + 1);

        TAILQ_FOREACH(c, &i->changes, next)
        {
            if (left-- == 0) {
                break;
            }
            change_sector(c, sector, bytes, *ret_size);
        }
    }
    return bytes;
}

static void forget_changes(struct inode *i)
{
    struct change *c;

    while ((c = TAILQ_FIRST(&i->changes)) != NULL) {
        TAILQ_REMOVE(&i->changes, c, next);
        mem_free(c->bytes);
        mem_free(c);
    }
}

static void sync_file(struct inode *i)
{
    uint64_t size;
    char *bytes = image_of(i, true, &size);

    mem_free(i->durable);
    i->durable = bytes;
    i->durable_len = size;
    forget_changes(i);
}

static void survive_file(struct inode *i)
{
    char path[PATH_LEN], *bytes;
    uint64_t size;
    int fd;

    if (TAILQ_EMPTY(&i->changes)) {
        return; /* its times stay, too */
    }
    bytes = image_of(i, false, &size);
    inode_path(i->number, path);
    fd = open(path, O_WRONLY | O_TRUNC);
    CHECK(fd >= 0 && write(fd, bytes, size) == (ssize_t)size);
    close(fd);
    mem_free(bytes);
}

static void survive_naming(const struct naming *n)
{
    struct name *name = find_name(n->path);

    switch (n->kind) {
    case MADE:
        add_name(n->path, n->is_directory, n->inode);
        break;
    case RENAMED:
        CHECK(name != NULL);
        drop_name(n->to);
        strcpy(name->path, n->to);
        break;
    case REMOVED:
        drop_name(n->path);
        break;
    }
}

/* Has a change before this one been lost in one of its directories? */
static bool follows_lost(const struct naming *n)
{
    const struct naming *before = n;

    while ((before = TAILQ_PREV(before, naming_list, next)) != NULL) {
        if (before->lost &&
            (touches(before, n->directories[0]) || touches(before, n->directories[1]))) {
            return true;
        }
    }
    return false;
}

static void survive_names(void)
{
    struct naming *n;

    TAILQ_FOREACH(n, &tree.namings, next)
    {
        n->lost = !n->durable && (follows_lost(n) || rng_below(&tree.rng, 3) == 0);
        if (!n->lost) {
            survive_naming(n);
        }
    }
}

/* All names of the real tree go, those of directories from below. */
static void clear(const char *path)
{
    struct dirent *entry;
    DIR *d = opendir(path);

    CHECK(d != NULL);
    while ((entry = readdir(d)) != NULL) {
        char entry_path[PATH_LEN];

        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) {
            continue;
        }
        join(entry_path, path, entry->d_name);
        if (unlink(entry_path) != 0) {
            clear(entry_path);
            CHECK(rmdir(entry_path) == 0);
        }
    }
    closedir(d);
}

static void make_names(bool directories)
{
    struct name *n;

    TAILQ_FOREACH(n, &tree.names, next)
    {
        char path[PATH_LEN], from[PATH_LEN];

        if (n->is_directory == directories) {
            join(path, tree.root, n->path);
            inode_path(n->inode, from);
            CHECK((directories ? mkdir(path, 0755) : link(from, path)) == 0);
        }
    }
}

static void forget_names(void)
{
    struct naming *naming;
    struct name *name;

    while ((naming = TAILQ_FIRST(&tree.namings)) != NULL) {
        TAILQ_REMOVE(&tree.namings, naming, next);
        mem_free(naming);
    }
    while ((name = TAILQ_FIRST(&tree.names)) != NULL) {
        TAILQ_REMOVE(&tree.names, name, next);
        mem_free(name);
    }
}

void fault_tree_cut(void)
{
    struct inode *i;

    survive_names();
    clear(tree.root);
    make_names(true);
    make_names(false);
    forget_names();
    while ((i = TAILQ_FIRST(&tree.files)) != NULL) {
        survive_file(i);
        forget_changes(i);
        TAILQ_REMOVE(&tree.files, i, next);
        mem_free(i->durable);
        mem_free(i);
    }
    clear(tree.inodes);
    CHECK(rmdir(tree.inodes) == 0);
    tree.off = false;
}

/* ---- the calls ------------------------------------------------------------------------------ */

static int tree_openat(int directory, const char *path, int flags, mode_t mode)
{
    struct handle h = {.is_open = true, .appends = (flags & O_APPEND) != 0};
    struct stat st;
    int fd;

    if (tree.off) {
        return -EIO;
    }
    below(h.path, directory, path);
    fd = spool_io_real.openat(directory, path, flags, mode);
    if (fd < 0) {
        return fd;
    }
    CHECK(fd < FDS_MAX && fstat(fd, &st) == 0);
    h.is_directory = S_ISDIR(st.st_mode);
    if (!h.is_directory && (flags & O_TMPFILE) != O_TMPFILE) {
        h.inode = find_inode(st.st_ino);
        if (h.inode == NULL) {
            h.inode = add_inode(h.path, &st);
            note_naming(MADE, h.path, "", false, st.st_ino);
        }
    }
    tree.handles[fd] = h;
    return fd;
}

static int tree_close(int fd)
{
    tree.handles[fd].is_open = false;
    return spool_io_real.close(fd);
}

/* Put down before it is done: no write here is cut short. */
static void note_write(int fd, uint64_t at, const void *bytes, size_t len)
{
    const struct handle *h = &tree.handles[fd];

    CHECK(h->is_open);
    if (h->inode != NULL) {
        note_change(h->inode, at, bytes, len, false);
    }
}

static ssize_t tree_write(int fd, const void *bytes, size_t len)
{
    off_t at = lseek(fd, 0, tree.handles[fd].appends ? SEEK_END : SEEK_CUR);

    if (tree.off) {
        return -EIO;
    }
    note_write(fd, (uint64_t)at, bytes, len);
    return spool_io_real.write(fd, bytes, len);
}

static ssize_t tree_pwrite(int fd, const void *bytes, size_t len, uint64_t at)
{
    if (tree.off) {
        return -EIO;
    }
    note_write(fd, at, bytes, len);
    return spool_io_real.pwrite(fd, bytes, len, at);
}

static ssize_t tree_pread(int fd, void *bytes, size_t len, uint64_t at)
{
    return tree.off ? -EIO : spool_io_real.pread(fd, bytes, len, at);
}

static int tree_ftruncate(int fd, uint64_t size)
{
    if (tree.off) {
        return -EIO;
    }
    note_change(tree.handles[fd].inode, size, NULL, 0, true);
    return spool_io_real.ftruncate(fd, size);
}

static int tree_fsync(int fd)
{
    const struct handle *h = &tree.handles[fd];

    CHECK(h->is_open);
    tree.off = tree.off || ++tree.syncs == tree.cut_sync;
    if (tree.off) {
        return -EIO;
    }
    if (h->is_directory) {
        sync_directory(h->path);
    } else if (h->inode != NULL) {
        sync_file(h->inode);
    }
    return 0;
}

static int tree_fstat_size(int fd, uint64_t *ret_size)
{
    return tree.off ? -EIO : spool_io_real.fstat_size(fd, ret_size);
}

static int tree_renameat(int from_directory, const char *from, int to_directory, const char *to)
{
    char from_path[PATH_LEN], to_path[PATH_LEN];
    int err = tree.off ? -EIO : spool_io_real.renameat(from_directory, from, to_directory, to);

    if (err == 0) {
        below(from_path, from_directory, from);
        below(to_path, to_directory, to);
        note_naming(RENAMED, from_path, to_path, false, 0);
    }
    return err;
}

static int tree_unlinkat(int directory, const char *path)
{
    char below_root[PATH_LEN];
    int err = tree.off ? -EIO : spool_io_real.unlinkat(directory, path);

    if (err == 0) {
        below(below_root, directory, path);
        note_naming(REMOVED, below_root, "", false, 0);
    }
    return err;
}

static int tree_mkdirat(int directory, const char *path, mode_t mode)
{
    char below_root[PATH_LEN];
    int err = tree.off ? -EIO : spool_io_real.mkdirat(directory, path, mode);

    if (err == 0) {
        below(below_root, directory, path);
        note_naming(MADE, below_root, "", true, 0);
    }
    return err;
}

const struct spool_io fault_tree_io = {
    .close = tree_close,
    .write = tree_write,
    .pread = tree_pread,
    .fsync = tree_fsync,
    .fstat_size = tree_fstat_size,
    .openat = tree_openat,
    .pwrite = tree_pwrite,
    .renameat = tree_renameat,
    .unlinkat = tree_unlinkat,
    .mkdirat = tree_mkdirat,
    .ftruncate = tree_ftruncate,
};
