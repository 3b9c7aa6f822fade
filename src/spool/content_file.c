#include "content_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "mem.h"

static void list_add(struct content_list *list, uint64_t id)
{
    if (list->count == list->size) {
        list->size = list->size == 0 ? 64 : list->size * 2;
        list->ids = mem_resize(list->ids, list->size, sizeof list->ids[0]);
    }
    list->ids[list->count++] = id;
}

static char *file_path(const struct content_files *cf, struct msg_id id)
{
    char text[SPOOL_ID_TEXT_MAX];
    size_t size = strlen(cf->dir) + 1 + sizeof text;
    char *path = mem_new(size);

    spool_id_print(id, text);
    snprintf(path, size, "%s/%s", cf->dir, text);
    return path;
}

/* A failure has no consequences: the next start removes the orphan. */
static void remove_file(struct content_files *cf, struct msg_id id)
{
    char *path = file_path(cf, id);

    (void)cf->io->unlink(path);
    mem_free(path);
}

/* A failure to close loses nothing: the file was synced before, or is abandoned. */
static void close_fd(struct content_files *cf, int fd)
{
    if (fd >= 0) {
        (void)cf->io->close(fd);
    }
}

static void close_written(struct content_files *cf)
{
    for (size_t i = 0; i < cf->fd_count; i++) {
        close_fd(cf, cf->fds[i]);
    }
    cf->fd_count = 0;
}

void content_files_init(struct content_files *cf, const struct spool_io *io, const char *dir)
{
    *cf = (struct content_files){.io = io, .dir = mem_string(dir), .dir_fd = -1};
}

void content_files_fini(struct content_files *cf)
{
    close_written(cf);
    close_fd(cf, cf->dir_fd);
    mem_free(cf->made.ids);
    mem_free(cf->doomed.ids);
    mem_free(cf->dir);
}

static int need_dir(struct content_files *cf)
{
    int err;

    if (cf->dir_fd >= 0) {
        return 0;
    }
    err = spool_io_make_dir(cf->io, cf->dir);
    if (err != 0) {
        return err;
    }
    int fd = cf->io->open(cf->dir, O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0) {
        return fd;
    }
    cf->dir_fd = fd;
    return 0;
}

static int sync_written(struct content_files *cf)
{
    for (size_t i = 0; i < cf->fd_count; i++) {
        int err = cf->io->fsync(cf->fds[i]);

        if (err != 0) {
            return err;
        }
    }
    close_written(cf);
    return 0;
}

/* Writes all content of a message to its file, piece by piece. */
static int write_pieces(struct content_files *cf, int fd, struct slice prefix,
                        const struct spool_content *content, uint64_t *ret_sum)
{
    struct checksum *sum = checksum_new();
    int err = spool_io_write_all(cf->io, fd, prefix.ptr, prefix.len);

    checksum_add(sum, prefix);
    if (err == 0) {
        err = spool_io_write_all(cf->io, fd, content->bytes.ptr, content->bytes.len);
        checksum_add(sum, content->bytes);
    }
    if (err == 0 && content->fd >= 0) {
        err = spool_io_copy(cf->io, content->fd, fd, content->fd_size, sum);
    }
    if (err == 0) {
        *ret_sum = checksum_value(sum);
    }
    checksum_free(sum);
    return err;
}

int content_files_write(struct content_files *cf, struct msg_id id, struct slice prefix,
                        const struct spool_content *content, uint64_t *ret_sum)
{
    char *path;
    int fd = -1, err;

    err = need_dir(cf);
    if (err == 0 && cf->fd_count == CONTENT_OPEN_MAX) {
        err = sync_written(cf);
    }
    if (err != 0) {
        return err;
    }
    path = file_path(cf, id);
    fd = cf->io->open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    mem_free(path);
    if (fd < 0) {
        return fd;
    }
    err = write_pieces(cf, fd, prefix, content, ret_sum);
    if (err != 0) {
        close_fd(cf, fd);
        remove_file(cf, id);
        return err;
    }
    cf->fds[cf->fd_count++] = fd;
    list_add(&cf->made, id.n);
    cf->dir_changed = true;
    return 0;
}

int content_files_sync(struct content_files *cf)
{
    int err = sync_written(cf);

    if (err == 0 && cf->dir_changed) {
        err = cf->io->fsync(cf->dir_fd);
        cf->dir_changed = err != 0;
    }
    return err;
}

void content_files_doom(struct content_files *cf, struct msg_id id)
{
    list_add(&cf->doomed, id.n);
}

void content_files_committed(struct content_files *cf)
{
    CHECK(cf->fd_count == 0);
    for (size_t i = 0; i < cf->doomed.count; i++) {
        remove_file(cf, (struct msg_id){cf->doomed.ids[i]});
    }
    cf->doomed.count = cf->in_doubt = 0;
    cf->made.count = 0;
}

void content_files_undone(struct content_files *cf, bool in_doubt)
{
    close_written(cf);
    cf->doomed.count = cf->in_doubt; /* files of failed commits remain doomed */
    for (size_t i = 0; i < cf->made.count; i++) {
        if (in_doubt) {
            content_files_doom(cf, (struct msg_id){cf->made.ids[i]});
            cf->in_doubt++;
        } else {
            remove_file(cf, (struct msg_id){cf->made.ids[i]});
        }
    }
    cf->made.count = 0;
}

int content_files_read(struct content_files *cf, struct msg_id id, uint64_t size, int *ret_fd)
{
    char *path = file_path(cf, id);
    int fd = cf->io->open(path, O_RDONLY, 0), err;
    uint64_t found;

    mem_free(path);
    if (fd < 0) {
        return fd == -ENOENT || fd == -ELOOP ? -EBADMSG : fd;
    }
    err = cf->io->fstat_size(fd, &found);
    if (err == 0 && found != size) {
        err = -EBADMSG;
    }
    if (err != 0) {
        close_fd(cf, fd);
        return err;
    }
    *ret_fd = fd;
    return 0;
}

int content_files_sync_dir(struct content_files *cf)
{
    int err = need_dir(cf);

    return err != 0 ? err : cf->io->fsync(cf->dir_fd);
}

bool content_files_are_there(const struct content_files *cf)
{
    DIR *dir = opendir(cf->dir);
    struct dirent *entry;
    struct msg_id id;
    bool found = false;

    while (dir != NULL && !found && (entry = readdir(dir)) != NULL) {
        found = spool_id_parse(slice_string(entry->d_name), &id) ||
                slice_ends_nocase(slice_string(entry->d_name), SLICE(".segment"));
    }
    if (dir != NULL) {
        (void)closedir(dir);
    }
    return found;
}

int content_files_sweep(struct content_files *cf, int (*wanted)(void *context, struct msg_id id),
                        void *context)
{
    DIR *dir = opendir(cf->dir);
    struct dirent *entry;
    struct msg_id id;
    int keep = 1;

    if (dir == NULL) {
        return errno == ENOENT ? 0 : -errno;
    }
    while (keep >= 0 && (entry = readdir(dir)) != NULL) {
        if (!spool_id_parse(slice_string(entry->d_name), &id)) {
            continue;
        }
        keep = wanted(context, id);
        if (keep == 0) {
            remove_file(cf, id);
        }
    }
    closedir(dir);
    return keep < 0 ? keep : 0;
}
