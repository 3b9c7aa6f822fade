/*
 * Content of a message, for reports and for the router.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "postoffice_engine.h"

/* The original as it would be delivered: the headers of the recipients' group from the control
 * file, an empty line, and the body from the message file. */
struct original {
    struct slice headers;
    int fd; /* descriptor of the message file */
    uint64_t body_at, body_size;
};

static int open_original(struct postoffice *po, const struct post_file *file, uint32_t index,
                         struct original *ret)
{
    char path[POST_PATH_MAX];
    struct post_view *view;
    uint32_t group = 0;
    uint64_t size;
    int err = view_of(po, file, false, &view), fd;

    if (err != 0) {
        return err;
    }
    if (index < file->rcpt_count) {
        const struct control_rcpt *line =
            control_file_find(&view->control, file->rcpts[index].offset);

        group = line != NULL ? line->group : 0;
    }
    post_control_path(file, 0, path);
    fd = po->io->openat(po->queue, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0);
    err = fd < 0 ? fd : po->io->fstat_size(fd, &size);
    if (err != 0) {
        if (fd >= 0) {
            (void)po->io->close(fd); /* read only */
        }
        return spool_fail(&po->base, err, "queue/%s: %s", path, strerror(-err));
    }
    *ret = (struct original){
        .headers = view->control.group_count > 0 ? view->control.groups[group].headers : SLICE(""),
        .fd = fd,
        .body_at = view->control.body_at < size ? view->control.body_at : size};
    ret->body_size = size - ret->body_at;
    return 0;
}

static int original_to_buf(struct postoffice *po, const struct original *o, struct buf *bytes)
{
    char *room;
    int err;

    (void)buf_add(bytes, o->headers); /* the caller has checked that it fits */
    (void)buf_add_byte(bytes, '\n');
    if (o->body_size == 0) {
        return 0;
    }
    room = buf_room(bytes, (size_t)o->body_size);
    if (room == NULL) {
        return -ENOBUFS;
    }
    err = spool_io_read_all(po->io, o->fd, room, (size_t)o->body_size, o->body_at);
    if (err == 0) {
        buf_grew(bytes, (size_t)o->body_size);
    }
    return err;
}

/* Copies content that is too large for a buffer to a file without a name. */
static int original_to_file(struct postoffice *po, const struct original *o, int *ret_fd)
{
    int fd = po->io->openat(po->public, ".", O_TMPFILE | O_RDWR, 0600), err;
    uint64_t at = o->body_at, end = o->body_at + o->body_size;

    if (fd < 0) {
        return fd;
    }
    err = spool_io_write_all(po->io, fd, o->headers.ptr, o->headers.len);
    err = err != 0 ? err : spool_io_write_all(po->io, fd, "\n", 1);
    while (err == 0 && at < end) {
        char chunk[1 << 16];
        size_t len = end - at < sizeof chunk ? (size_t)(end - at) : sizeof chunk;

        err = spool_io_read_all(po->io, o->fd, chunk, len, at);
        err = err != 0 ? err : spool_io_write_all(po->io, fd, chunk, len);
        at += len;
    }
    if (err != 0) {
        (void)po->io->close(fd); /* it has no name */
        return err;
    }
    *ret_fd = fd;
    return 0;
}

int original_read(struct postoffice *po, const struct post_file *file, uint32_t index,
                  struct buf *ret_bytes, int *ret_fd, uint64_t *ret_size)
{
    struct original o = {.fd = -1};
    uint64_t size;
    int fd = -1, err = open_original(po, file, index, &o);

    if (err != 0) {
        return err;
    }
    size = o.headers.len + 1 + o.body_size;
    if (size <= ret_bytes->limit - buf_len(ret_bytes)) {
        err = original_to_buf(po, &o, ret_bytes);
    } else {
        err = original_to_file(po, &o, &fd);
    }
    (void)po->io->close(o.fd); /* read only */
    if (err != 0) {
        return spool_fail(&po->base, err, "queue/%.*s: %s", SLICE_ARGS(post_path(file)),
                          strerror(-err));
    }
    *ret_fd = fd;
    *ret_size = size;
    return 0;
}
