/*
 * Searches for control files. A scan reads one directory after another and notes the unknown files;
 * when all are read, or enough files are known, it loads them, the oldest first. Each call does a
 * bounded piece of the work.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "mem.h"
#include "postoffice_engine.h"

/* Limits of one call; each takes a few milliseconds. */
#define PIECE_ENTRIES 500
#define PIECE_FILES   20
#define PIECE_BYTES   ((uint64_t)1 << 18)

/* Time until the next scan if the limits ended this one. */
#define CUT_WAIT_US (100 * US_PER_MS)
/* With a backlog, the time between scans grows: a second per 32 files, at most ten. */
#define BACKLOG_PER_S 32
#define BACKLOG_S_MAX 10

/* ---- lists ---------------------------------------------------------------------------------- */

static void found_add(struct post_found **list, size_t *count, size_t *size, const char *path,
                      int64_t changed_us)
{
    *list = mem_grow(*list, *count, size, sizeof **list);
    (*list)[(*count)++] = (struct post_found){changed_us, mem_string(path)};
}

static void found_clear(struct post_found *list, size_t from, size_t count)
{
    for (size_t i = from; i < count; i++) {
        mem_free(list[i].path);
    }
}

/* Adds a directory: "", "A/" or "A/R/". */
static void unread_add(struct post_scan *scan, const char *path)
{
    CHECK(strlen(path) <= 4);
    scan->unread =
        mem_grow(scan->unread, scan->unread_count, &scan->unread_size, sizeof scan->unread[0]);
    (void)strcpy(scan->unread[scan->unread_count++], path); /* fits */
}

void scan_fini(struct post_scan *scan)
{
    if (scan->dir != NULL) {
        (void)closedir(scan->dir); /* read only */
    }
    found_clear(scan->found, scan->loaded, scan->found_count);
    found_clear(scan->locked, 0, scan->locked_count);
    mem_free(scan->found);
    mem_free(scan->locked);
    mem_free(scan->unread);
}

/* ---- loading --------------------------------------------------------------------------------- */

static bool waits_locked(const struct post_scan *scan, const char *path)
{
    for (size_t i = 0; i < scan->locked_count; i++) {
        if (strcmp(scan->locked[i].path, path) == 0) {
            return true;
        }
    }
    return false;
}

void scan_take(struct postoffice *po, const char *path, struct wall now)
{
    struct post_scan *scan = &po->scan;

    if (!waits_locked(scan, path) && load_file(po, path) == LOAD_LOCKED) {
        found_add(&scan->locked, &scan->locked_count, &scan->locked_size, path,
                  us_add(now.us, LOAD_LOCKED_US));
    }
}

static void try_locked(struct postoffice *po, struct wall now)
{
    struct post_scan *scan = &po->scan;
    size_t kept = 0, count = scan->locked_count;
    struct post_found *list = scan->locked;

    /* load results that are still locked go to a new list */
    scan->locked = NULL;
    scan->locked_count = scan->locked_size = 0;
    for (size_t i = 0; i < count; i++) {
        if (list[i].changed_us <= now.us) {
            scan_take(po, list[i].path, now);
            mem_free(list[i].path);
        } else {
            list[kept++] = list[i];
        }
    }
    for (size_t i = 0; i < kept; i++) {
        found_add(&scan->locked, &scan->locked_count, &scan->locked_size, list[i].path,
                  list[i].changed_us);
        mem_free(list[i].path);
    }
    mem_free(list);
}

static struct wall next_locked(const struct post_scan *scan)
{
    struct wall next = WALL_NEVER;

    for (size_t i = 0; i < scan->locked_count; i++) {
        next = wall_min(next, (struct wall){scan->locked[i].changed_us});
    }
    return next;
}

/* ---- reading directories -------------------------------------------------------------------- */

static bool is_hash(const char *name)
{
    return name[0] >= 'A' && name[0] <= 'Z' && name[1] == '\0';
}

/* Has another program renamed a held or damaged file, so that its name has another state? Names
 * that we changed since the directory was opened no longer exist. */
static bool was_renamed(struct postoffice *po, const struct post_file *known, uint8_t state,
                        const char *found)
{
    char path[POST_PATH_MAX];
    struct stat st;

    post_control_path(known, known->on_disk, path);
    return state != known->on_disk &&
           fstatat(po->transport, found, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
           fstatat(po->transport, path, &st, AT_SYMLINK_NOFOLLOW) != 0 && errno == ENOENT;
}

static void see_entry(struct postoffice *po, const char *name)
{
    struct post_scan *scan = &po->scan;
    char path[POST_PATH_MAX];
    struct slice plain;
    struct stat st;
    uint64_t number;
    uint8_t state;
    struct post_file *known;

    if (is_hash(name) && strlen(scan->at) <= 2) {
        (void)snprintf(path, sizeof path, "%s%s/", scan->at, name); /* at most four bytes */
        unread_add(scan, path);
        return;
    }
    if (!control_name(slice_string(name), &state, &plain) ||
        !control_spool_number(plain, &number)) {
        return;
    }
    if (snprintf(path, sizeof path, "%s%s", scan->at, name) >= (int)sizeof path) {
        return;
    }
    known = table_file(&po->table, number);
    if (known != NULL && slice_equal(post_name(known), plain)) {
        if (!was_renamed(po, known, state, path)) {
            return;
        }
        forget_file(po, known);
    }
    if (fstatat(po->transport, path, &st, AT_SYMLINK_NOFOLLOW) != 0) {
        return; /* removed meanwhile */
    }
    found_add(&scan->found, &scan->found_count, &scan->found_size, path,
              st.st_ctim.tv_sec * US_PER_S + st.st_ctim.tv_nsec / 1000);
}

/* Opens the next directory. Returns false if there is none. */
static bool open_next(struct postoffice *po)
{
    struct post_scan *scan = &po->scan;

    while (scan->dir == NULL && scan->unread_count > 0) {
        char name[sizeof scan->at] = ".";
        int fd;

        (void)strcpy(scan->at, scan->unread[--scan->unread_count]); /* fits: unread_add */
        if (scan->at[0] != '\0') {
            (void)strcpy(name, scan->at);
            name[strlen(name) - 1] = '\0'; /* with a slash at the end a link would be followed */
        }
        fd = openat(po->transport, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        scan->dir = fd < 0 ? NULL : fdopendir(fd);
        if (scan->dir == NULL) {
            post_tell(po, SPOOL_EVENT_WARNING, 0, "transport/%s can't be read: %s", scan->at,
                      strerror(errno));
            if (fd >= 0) {
                (void)close(fd); /* read only */
            }
        }
    }
    return scan->dir != NULL;
}

static int by_age(const void *a, const void *b)
{
    const struct post_found *x = a, *y = b;

    if (x->changed_us != y->changed_us) {
        return x->changed_us < y->changed_us ? -1 : 1;
    }
    return strcmp(x->path, y->path);
}

/* Ends the reading of directories, because all were read or the limits are reached (`cut`). */
static void end_reading(struct post_scan *scan, bool cut)
{
    if (scan->dir != NULL) {
        (void)closedir(scan->dir); /* read only */
        scan->dir = NULL;
    }
    scan->unread_count = 0;
    scan->reading = false;
    scan->cut = cut;
    if (scan->found_count > 1) {
        qsort(scan->found, scan->found_count, sizeof scan->found[0], by_age);
    }
}

static void read_entries(struct postoffice *po, struct wall now)
{
    struct post_scan *scan = &po->scan;

    for (unsigned i = 0; i < PIECE_ENTRIES; i++) {
        const struct dirent *entry;

        if (!open_next(po)) {
            end_reading(scan, false);
            return;
        }
        entry = readdir(scan->dir);
        if (entry == NULL) {
            (void)closedir(scan->dir); /* read only */
            scan->dir = NULL;
        } else {
            see_entry(po, entry->d_name);
        }
        if (scan->found_count >= po->options.scan_files) {
            end_reading(scan, true);
            return;
        }
    }
    if (scan->found_count > 0 && now.us - scan->began_us > po->options.scan_us) {
        end_reading(scan, true);
    }
}

/* ---- scanning -------------------------------------------------------------------------------- */

static void take_found(struct postoffice *po, struct wall now)
{
    struct post_scan *scan = &po->scan;
    uint64_t bytes = 0;

    for (unsigned i = 0; i < PIECE_FILES && bytes < PIECE_BYTES; i++) {
        struct stat st;
        char *path;

        if (scan->loaded == scan->found_count) {
            break;
        }
        path = scan->found[scan->loaded++].path;
        if (fstatat(po->transport, path, &st, AT_SYMLINK_NOFOLLOW) == 0) {
            bytes += (uint64_t)st.st_size;
        }
        scan_take(po, path, now);
        mem_free(path);
    }
}

/* Loads the named files, all at once, and never any others. */
static void take_named(struct postoffice *po, struct wall now)
{
    struct slice rest = slice_string(po->options.only);
    char path[POST_PATH_MAX];

    while (rest.ptr != NULL) {
        struct slice word = slice_cut(&rest, ' ');

        if (word.len == 0) {
            continue;
        }
        if (!notify_path_ok(word) || word.len >= sizeof path) {
            post_tell(po, SPOOL_EVENT_WARNING, 0, "%.*s is no control file's name below transport/",
                      SLICE_ARGS(word));
            continue;
        }
        memcpy(path, word.ptr, word.len);
        path[word.len] = '\0';
        scan_take(po, path, now);
    }
    po->scan.next_us = INT64_MAX;
}

static void end_scan(struct postoffice *po, struct wall now)
{
    struct post_scan *scan = &po->scan;
    size_t backlog_s = scan->found_count / BACKLOG_PER_S;
    int64_t wait_us = po->options.scan_interval_us;

    wait_us += (int64_t)(backlog_s < BACKLOG_S_MAX ? backlog_s : BACKLOG_S_MAX) * US_PER_S;
    scan->next_us = us_add(now.us, scan->cut ? CUT_WAIT_US : wait_us);
    scan->found_count = scan->loaded = 0;
    scan->busy = false;
    if (scan->failed > 1) {
        post_tell(po, SPOOL_EVENT_WARNING, 0, "nor can %zu other control files", scan->failed - 1);
    }
    scan->failed = 0;
}

static void forget_vanished(struct postoffice *po)
{
    for (size_t i = 0; i < po->vanished_count; i++) {
        struct post_file *file = table_file(&po->table, po->vanished[i]);

        if (file != NULL) {
            post_tell(po, SPOOL_EVENT_LOG, file->root.id, "transport/%.*s is gone",
                      SLICE_ARGS(post_path(file)));
            forget_file(po, file);
        }
    }
    if (po->vanished_count > 0 && po->options.only == NULL) {
        po->scan.next_us = 0; /* finds a released file again */
    }
    po->vanished_count = 0;
}

int scan_poll(struct postoffice *po, struct wall now, struct wall *ret_again)
{
    struct post_scan *scan = &po->scan;

    forget_vanished(po);
    if (scan->locked_count > 0 && next_locked(scan).us <= now.us) {
        try_locked(po, now);
    }
    if (po->options.only != NULL && scan->next_us <= now.us) {
        take_named(po, now);
    }
    if (!scan->busy && scan->next_us <= now.us) {
        scan->busy = scan->reading = true;
        scan->began_us = now.us;
        unread_add(scan, "");
    }
    if (scan->reading) {
        read_entries(po, now);
    } else if (scan->busy) {
        take_found(po, now);
    }
    if (scan->busy && !scan->reading && scan->loaded == scan->found_count) {
        end_scan(po, now);
    }
    *ret_again = scan->busy ? now : wall_min((struct wall){scan->next_us}, next_locked(scan));
    return 0;
}
