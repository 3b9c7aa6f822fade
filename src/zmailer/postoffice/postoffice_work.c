/*
 * Changes of a batch on disk; postoffice_engine.h explains their order.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "mem.h"
#include "postoffice_engine.h"

/* ---- collecting ------------------------------------------------------------------------------ */

struct post_work *work_on(struct postoffice *po, struct post_file *file)
{
    if (file->work == NULL) {
        file->work = mem_new(sizeof *file->work);
        file->work->file = file;
        STAILQ_INSERT_TAIL(&po->works, file->work, by_batch);
    }
    return file->work;
}

void work_note(struct post_work *work, uint32_t index, const struct control_diagnostic *d)
{
    struct post_note note = {.index = index, .d = *d};
    size_t at = work->note_count;

    note.bytes = mem_new(d->notary.len + d->text.len);
    if (d->notary.len > 0) {
        memcpy(note.bytes, d->notary.ptr, d->notary.len);
    }
    if (d->text.len > 0) {
        memcpy(note.bytes + d->notary.len, d->text.ptr, d->text.len);
    }
    note.d.notary = slice_of(note.bytes, d->notary.len);
    note.d.text = slice_of(note.bytes + d->notary.len, d->text.len);
    work->notes = mem_grow(work->notes, work->note_count, &work->note_size, sizeof work->notes[0]);
    while (at > 0 && work->notes[at - 1].index > index) {
        work->notes[at] = work->notes[at - 1];
        at--;
    }
    work->notes[at] = note;
    work->note_count++;
}

const struct post_note *work_noted(const struct post_work *work, uint32_t index)
{
    size_t low = 0, high = work == NULL ? 0 : work->note_count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (work->notes[middle].index <= index) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low > 0 && work->notes[low - 1].index == index ? &work->notes[low - 1] : NULL;
}

static void add_mark(struct post_work *work, struct post_mark mark)
{
    work->marks = mem_grow(work->marks, work->mark_count, &work->mark_size, sizeof work->marks[0]);
    work->marks[work->mark_count++] = mark;
}

void work_mark(struct post_work *work, uint64_t offset, char tag)
{
    CHECK(tag != '\0');
    add_mark(work, (struct post_mark){.offset = offset, .tag = tag});
}

void work_handed(struct post_work *work, size_t from)
{
    for (size_t i = from; i < work->mark_count; i++) {
        work->marks[i].handed = true;
    }
}

static bool has_marks(const struct post_work *work, bool handed)
{
    for (size_t i = 0; i < work->mark_count; i++) {
        if (work->marks[i].handed == handed) {
            return true;
        }
    }
    return false;
}

void work_warnings(struct post_work *work, uint64_t offset, uint32_t warnings)
{
    add_mark(work, (struct post_mark){.offset = offset, .warnings = warnings});
}

void work_reported(struct post_work *work, uint64_t offset)
{
    work->reported = mem_grow(work->reported, work->reported_count, &work->reported_size,
                              sizeof work->reported[0]);
    work->reported[work->reported_count++] = offset;
}

void work_drop(struct postoffice *po)
{
    struct post_work *work;

    while ((work = STAILQ_FIRST(&po->works)) != NULL) {
        STAILQ_REMOVE_HEAD(&po->works, by_batch);
        work->file->work = NULL;
        for (size_t i = 0; i < work->note_count; i++) {
            mem_free(work->notes[i].bytes);
        }
        mem_free(work->notes);
        mem_free(work->marks);
        mem_free(work->reported);
        mem_free(work);
    }
}

/* ---- one control file ----------------------------------------------------------------------- */

static int write_at(struct postoffice *po, int fd, const char *bytes, size_t len, uint64_t at)
{
    while (len > 0) {
        ssize_t n = po->io->pwrite(fd, bytes, len, at);

        if (n == -EINTR) {
            continue;
        }
        if (n <= 0) {
            return n < 0 ? (int)n : -EIO;
        }
        bytes += n;
        len -= (size_t)n;
        at += (uint64_t)n;
    }
    return 0;
}

static int write_mark(struct postoffice *po, int fd, const struct control_rcpt *r, char tag)
{
    char bytes[CONTROL_MARK_MAX];
    size_t len = control_mark(r, tag, 0, bytes);

    CHECK(len > 0);
    return write_at(po, fd, bytes, len, r->offset + 1);
}

static int open_control(struct postoffice *po, const char *path, int flags)
{
    return po->io->openat(po->transport, path, flags | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0);
}

int mark_now(struct postoffice *po, const char *path, const struct control_rcpt *r, char tag)
{
    int fd = open_control(po, path, O_WRONLY), err;

    if (fd < 0) {
        return fd;
    }
    err = write_mark(po, fd, r, tag);
    (void)po->io->close(fd); /* a lost mark is made again after the next reading */
    return err;
}

/* Appends with one write, so that nothing gets between the bytes of a line. Removes a partial line
 * after a full disk if nothing was appended after it. */
static int append(struct postoffice *po, int fd, struct slice lines)
{
    uint64_t before, after;
    ssize_t n;
    int err = po->io->fstat_size(fd, &before);

    if (err != 0) {
        return err;
    }
    do {
        n = po->io->write(fd, lines.ptr, lines.len);
    } while (n == -EINTR);
    if (n == (ssize_t)lines.len) {
        return 0;
    }
    if (n > 0 && po->io->fstat_size(fd, &after) == 0 && after == before + (uint64_t)n) {
        (void)po->io->ftruncate(fd, before); /* an incomplete `d` line does no damage */
    }
    return n < 0 ? (int)n : -ENOSPC;
}

int append_now(struct postoffice *po, const char *path, struct slice lines)
{
    int fd = open_control(po, path, O_WRONLY | O_APPEND), err;

    if (fd < 0) {
        return fd;
    }
    err = append(po, fd, lines);
    err = err != 0 ? err : po->io->fsync(fd);
    (void)po->io->close(fd); /* synced */
    return err;
}

static int append_notes(struct postoffice *po, const struct post_work *work, const char *path,
                        bool ends_in_part)
{
    struct buf lines;
    int err;

    if (work->note_count == 0) {
        return 0;
    }
    buf_init(&lines, POST_CONTROL_MAX);
    if (ends_in_part) {
        (void)buf_add_byte(&lines, '\n'); /* checked below */
    }
    for (size_t i = 0; i < work->note_count; i++) {
        control_put_diagnostic(&lines, &work->notes[i].d);
    }
    err = lines.failed ? -EFBIG : append_now(po, path, buf_slice(&lines));
    buf_fini(&lines);
    return err;
}

static int write_warnings(struct postoffice *po, int fd, const struct control_rcpt *r,
                          uint32_t warnings)
{
    char columns[CONTROL_COLUMN_DELAY + 1];

    if (!r->has_delay) {
        return 0; /* an old file has no columns for it: a restart warns again */
    }
    (void)snprintf(columns, sizeof columns, "%*u", CONTROL_COLUMN_DELAY,
                   (unsigned)(warnings < 9999 ? warnings : 9999));
    return write_at(po, fd, columns, CONTROL_COLUMN_DELAY, r->offset + 2 + CONTROL_COLUMN_PID);
}

static int write_marks(struct postoffice *po, const struct post_work *work, const char *path,
                       const struct control_file *control, bool handed)
{
    int fd, err = 0;

    if (!has_marks(work, handed)) {
        return 0;
    }
    fd = open_control(po, path, O_WRONLY);
    if (fd < 0) {
        return fd;
    }
    for (size_t i = 0; err == 0 && i < work->mark_count; i++) {
        const struct post_mark *mark = &work->marks[i];
        const struct control_rcpt *r = control_file_find(control, mark->offset);

        CHECK(r != NULL); /* recipients never move */
        if (mark->handed != handed) {
            continue;
        }
        if (mark->tag == '\0') {
            err = write_warnings(po, fd, r, mark->warnings);
        } else if (r->tag == ' ' || r->tag == '~') { /* otherwise an agent was faster */
            err = write_mark(po, fd, r, mark->tag);
        }
    }
    err = err != 0 ? err : po->io->fsync(fd);
    (void)po->io->close(fd); /* synced */
    return err;
}

/* Performs step 1 of postoffice_engine.h. */
static int write_results(struct postoffice *po, const struct post_work *work)
{
    char path[POST_PATH_MAX];
    struct post_view *view;
    int err;

    if (work->note_count == 0 && !has_marks(work, false)) {
        return 0;
    }
    err = view_of(po, work->file, true, &view);
    if (err != 0) {
        /* the file was removed, and its results with it */
        return err == -ENOENT ? 0 : err;
    }
    post_control_path(work->file, work->file->on_disk, path);
    err = append_notes(po, work, path, view->control.ends_in_part);
    err = err != 0 ? err : write_marks(po, work, path, &view->control, false);
    cache_drop(&po->cache, work->file->number);
    return err == 0 || err == -ENOENT
               ? 0
               : spool_fail(&po->base, err, "transport/%s: %s", path, strerror(-err));
}

/* Performs step 2 of postoffice_engine.h. */
static int rename_control(struct postoffice *po, struct post_work *work)
{
    struct post_file *file = work->file;
    char from[POST_PATH_MAX], to[POST_PATH_MAX];
    int err;

    if (file->on_disk == file->f.state || file->f.gone) {
        return 0;
    }
    post_control_path(file, file->on_disk, from);
    post_control_path(file, file->f.state, to);
    err = po->io->renameat(po->transport, from, po->transport, to);
    if (err != 0 && err != -ENOENT) {
        return spool_fail(&po->base, err, "transport/%s: rename to %s: %s", from, to,
                          strerror(-err));
    }
    work->renamed = true;
    file->on_disk = file->f.state;
    return 0;
}

/* Undoes step 2. */
static void rename_back(struct postoffice *po, struct post_work *work, uint8_t state)
{
    char from[POST_PATH_MAX], to[POST_PATH_MAX];

    post_control_path(work->file, work->file->on_disk, from);
    post_control_path(work->file, state, to);
    if (po->io->renameat(po->transport, from, po->transport, to) == 0) {
        work->file->on_disk = state;
    } /* otherwise the name has a newer state than the table, as after a crash here */
}

/* Writes the directory of a path in transport/. */
static void directory_of(const char *path, char ret_directory[POST_PATH_MAX])
{
    const char *slash = strrchr(path, '/');

    (void)snprintf(ret_directory, POST_PATH_MAX, "%.*s", slash == NULL ? 1 : (int)(slash - path),
                   slash == NULL ? "." : path);
}

/* Syncs the directory of a path in transport/, which makes changes of names there durable. */
static int sync_directory(struct postoffice *po, const char *path)
{
    char directory[POST_PATH_MAX];
    int fd, err;

    directory_of(path, directory);
    fd = po->io->openat(po->transport, directory, O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0) {
        return fd;
    }
    err = po->io->fsync(fd);
    (void)po->io->close(fd); /* synced */
    return err;
}

static bool has_work(const struct post_file *file)
{
    return file->pending > 0 || file->to_report > 0;
}

/* Makes changes of names durable: of the batch's renamed files, or of its removed files that had
 * work left. Consecutive files of one directory share a sync. */
static int sync_names(struct postoffice *po, bool removed)
{
    char path[POST_PATH_MAX], directory[POST_PATH_MAX], last[POST_PATH_MAX] = "/";
    const struct post_work *work;
    int err = 0;

    STAILQ_FOREACH(work, &po->works, by_batch)
    {
        if (removed ? !work->removed || !has_work(work->file) : !work->renamed) {
            continue;
        }
        post_control_path(work->file, work->file->on_disk, path);
        directory_of(path, directory);
        if (strcmp(directory, last) != 0) {
            err = err != 0 ? err : sync_directory(po, path);
            (void)strcpy(last, directory); /* fits: the same size */
        }
    }
    return err == 0 ? 0 : spool_fail(&po->base, err, "transport/%s: %s", last, strerror(-err));
}

static bool was_reported(const struct post_work *work, uint64_t offset)
{
    for (size_t low = 0, high = work->reported_count; low < high;) {
        size_t middle = low + (high - low) / 2;

        if (work->reported[middle] == offset) {
            return true;
        }
        if (work->reported[middle] < offset) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return false;
}

/* Performs step 4 of postoffice_engine.h for reports. */
static int mark_reported(struct postoffice *po, const struct post_work *work)
{
    char path[POST_PATH_MAX];
    struct post_view *view;
    int fd, err = view_of(po, work->file, true, &view);

    if (err != 0) {
        return err;
    }
    post_control_path(work->file, work->file->on_disk, path);
    fd = open_control(po, path, O_WRONLY);
    if (fd < 0) {
        return fd;
    }
    for (size_t i = 0; err == 0 && i < view->report_count; i++) {
        if (was_reported(work, view->reports[i]->rcpt)) {
            err = write_at(po, fd, "+", 1, view->reports[i]->offset + 1);
        }
    }
    (void)po->io->close(fd); /* a lost mark costs a second report */
    cache_drop(&po->cache, work->file->number);
    return err;
}

static int mark_handed(struct postoffice *po, const struct post_work *work)
{
    char path[POST_PATH_MAX];
    struct post_view *view;
    int err = view_of(po, work->file, true, &view);

    if (err != 0) {
        return err;
    }
    post_control_path(work->file, work->file->on_disk, path);
    err = write_marks(po, work, path, &view->control, true);
    cache_drop(&po->cache, work->file->number);
    return err;
}

/* Performs step 5 of postoffice_engine.h. */
void remove_files(struct postoffice *po, const char *control_path, const char *message_path)
{
    int err;

    removal_note(po, message_path);
    err = po->io->unlinkat(po->transport, control_path);
    if (err != 0 && err != -ENOENT) {
        post_tell(po, SPOOL_EVENT_WARNING, 0, "transport/%s can't be removed: %s", control_path,
                  strerror(-err));
        return; /* the next scan finds both files */
    }
    /* The removal of the control file must be on disk first, or a power failure could leave a
     * control file without its message. Within one file system removals keep their order. */
    if (!po->one_device && sync_directory(po, control_path) != 0) {
        return; /* leaves debris */
    }
    err = po->io->unlinkat(po->queue, message_path);
    if (err != 0 && err != -ENOENT) {
        post_tell(po, SPOOL_EVENT_WARNING, 0, "queue/%s can't be removed: %s", message_path,
                  strerror(-err));
    }
}

static void finish_work(struct postoffice *po, const struct post_work *work)
{
    char control[POST_PATH_MAX], message[POST_PATH_MAX];
    int err;

    if (work->removed) {
        post_control_path(work->file, work->file->on_disk, control);
        post_control_path(work->file, 0, message);
        remove_files(po, control, message);
        cache_drop(&po->cache, work->file->number);
        return;
    }
    if (work->renamed && work->file->hollow && work->file->on_disk == 0) {
        forget_later(po, work->file->number);
    }
    err = work->reported_count > 0 ? mark_reported(po, work) : 0;
    if (err != 0 && err != -ENOENT) {
        post_tell(po, SPOOL_EVENT_WARNING, work->file->root.id,
                  "reports were sent, but that can't be marked: %s", strerror(-err));
    }
    err = has_marks(work, true) ? mark_handed(po, work) : 0;
    if (err != 0 && err != -ENOENT) {
        post_tell(po, SPOOL_EVENT_WARNING, work->file->root.id,
                  "recipients went back to the router, but that can't be marked: %s",
                  strerror(-err));
    }
}

int work_commit(struct postoffice *po)
{
    struct post_work *work;
    int err = 0;

    STAILQ_FOREACH(work, &po->works, by_batch)
    {
        err = err != 0 ? err : write_results(po, work);
    }
    if (po->options.keep_files) {
        return err; /* a scheduler without that option does the rest */
    }
    STAILQ_FOREACH(work, &po->works, by_batch)
    {
        work->before = work->file->on_disk;
        err = err != 0 ? err : rename_control(po, work);
    }
    err = err != 0 ? err : sync_names(po, false);
    err = err != 0 ? err : router_files_send(po);
    STAILQ_FOREACH(work, &po->works, by_batch)
    {
        if (err == 0) {
            finish_work(po, work);
        } else if (work->renamed) {
            rename_back(po, work, work->before);
        }
    }
    if (err == 0 && sync_names(po, true) != 0) {
        post_tell(po, SPOOL_EVENT_WARNING, 0,
                  "mail was removed, but a power failure may bring it back");
    }
    return err;
}
