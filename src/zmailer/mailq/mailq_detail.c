#include "mailq_detail.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "control_file.h"
#include "mailq_text.h"

#define READ_MAX       ((size_t)256 << 20) /* largest control file in bytes */
#define NAME_MAX_BYTES 255

struct detail {
    struct buf bytes;
    struct control_file file;
    const char *problem; /* reason why the control file is not usable; NULL: none */
    uint64_t control_size, message_size;
    int64_t arrived_s; /* 0: not known */
};

/* Is it a path like "A/B/11059320": hash directories, then digits and other bytes of a name? */
static bool is_control_path(struct slice path)
{
    uint64_t number;

    while (path.len > 2 && path.ptr[0] >= 'A' && path.ptr[0] <= 'Z' && path.ptr[1] == '/') {
        path = slice_skip(path, 2);
    }
    return path.len <= NAME_MAX_BYTES && control_spool_number(path, &number) &&
           slice_find(path, '/') == path.len;
}

/* Opens a regular file below `postoffice`. Returns -1 with errno on error. */
static int open_below(const char *postoffice, const char *directory, const char *path,
                      struct stat *st)
{
    struct buf name;
    int fd;

    buf_init(&name, 8192);
    (void)buf_addf(&name, "%s/%s/%s", postoffice, directory, path); /* sticky: checked below */
    if (name.failed) {
        buf_fini(&name);
        errno = ENAMETOOLONG;
        return -1;
    }
    fd = open(buf_cstr(&name), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW | O_NOCTTY);
    buf_fini(&name);
    if (fd >= 0 && (fstat(fd, st) != 0 || !S_ISREG(st->st_mode))) {
        (void)close(fd); /* only opened */
        errno = EINVAL;
        fd = -1;
    }
    return fd;
}

static bool read_all(int fd, struct buf *out)
{
    for (;;) {
        char *room = buf_room(out, 65536);
        ssize_t n = room == NULL ? -1 : read(fd, room, 65536);

        if (n == 0) {
            return true;
        }
        if (n < 0 && errno != EINTR) {
            return false;
        }
        buf_grew(out, n > 0 ? (size_t)n : 0);
    }
}

static void detail_read(struct detail *d, const char *postoffice, const char *path)
{
    struct control_problem problem;
    struct stat st;
    int fd;

    *d = (struct detail){.problem = "the server names no control file"};
    buf_init(&d->bytes, READ_MAX);
    if (!is_control_path(slice_string(path))) {
        return;
    }
    fd = open_below(postoffice, "transport", path, &st);
    if (fd < 0) {
        d->problem = strerror(errno);
        return;
    }
    d->control_size = (uint64_t)st.st_size;
    d->problem = !read_all(fd, &d->bytes) ? "it can't be read"
                 : !control_file_parse(buf_slice(&d->bytes), &d->file, &problem) ? "it is damaged"
                                                                                 : NULL;
    (void)close(fd); /* only read */
    fd = open_below(postoffice, "queue", path, &st);
    if (fd >= 0) {
        d->message_size = (uint64_t)st.st_size;
        d->arrived_s = st.st_mtime;
        (void)close(fd); /* only opened */
    }
}

static void detail_fini(struct detail *d)
{
    control_file_fini(&d->file);
    buf_fini(&d->bytes);
}

static void put_field(struct buf *out, const char *name, struct slice value)
{
    (void)buf_addf(out, "\t%s\t", name);
    mailq_client_put_plain(out, value);
    (void)buf_add_byte(out, '\n');
}

/* Appends the line that is built from the numbers of version 2. */
static void put_first_line(struct buf *out, const struct detail *d, int64_t now_s,
                           const struct mailq_row *row)
{
    (void)buf_add_byte(out, '\t');
    mailq_client_put_plain(out, slice_string(row->path));
    if (row->count > 1) {
        (void)buf_addf(out, "/%zu", row->count);
    }
    (void)buf_addf(out, ": (%" PRIu64 " tries", row->tries);
    if (d->arrived_s != 0) {
        (void)buf_add_string(out, ", age ");
        mailq_duration(out, now_s - d->arrived_s);
    }
    if (row->expires) {
        (void)buf_add_string(out, ", expires in ");
        mailq_duration(out, row->expires_in_s);
    }
    if (d->problem == NULL) {
        (void)buf_addf(out, ", %" PRIu64 "+%" PRIu64 " bytes", d->control_size, d->message_size);
    }
    (void)buf_add_string(out, ")\n");
}

/* Appends an age in ZMailer's form for -vv, which has at most three units. */
static void put_age(struct buf *out, int64_t age_s)
{
    static const struct {
        int64_t seconds;
        char unit;
    } units[] = {{86400, 'd'}, {3600, 'h'}, {60, 'm'}};
    unsigned left = 3;

    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (age_s > units[i].seconds) {
            (void)buf_addf(out, "%" PRId64 "%c", age_s / units[i].seconds, units[i].unit);
            age_s %= units[i].seconds;
            left--;
        }
    }
    if (left > 0) {
        (void)buf_addf(out, "%" PRId64 "s", age_s);
    }
}

static void put_id(struct buf *out, const struct detail *d, int64_t now_s, bool sizes)
{
    (void)buf_add_string(out, "\t  id\t");
    mailq_client_put_plain(out, d->file.log_id);
    if (sizes && d->message_size > 0) {
        (void)buf_addf(out, ", %" PRIu64 " bytes, age ", d->message_size);
        put_age(out, now_s - d->arrived_s);
    }
    (void)buf_add_byte(out, '\n');
}

static void put_rcpts(struct buf *out, const struct detail *d, const struct mailq_row *row)
{
    bool first = true;

    for (size_t i = 0; i < row->count; i++) {
        const struct control_rcpt *r = control_file_find(&d->file, row->offsets[i]);

        if (r != NULL) {
            put_field(out, first ? "  to" : "", r->address.user);
            first = false;
        }
    }
}

static void put_diagnostic(struct buf *out, struct slice text)
{
    while (text.len > 0) {
        put_field(out, "  diag", slice_cut(&text, '\r'));
    }
}

void mailq_detail_put(struct buf *out, const char *postoffice, int64_t now_s,
                      const struct mailq_row *row, bool sizes)
{
    struct detail d;

    detail_read(&d, postoffice, row->path);
    if (row->is_short) {
        put_first_line(out, &d, now_s, row);
    }
    if (d.problem == NULL) {
        put_id(out, &d, now_s, sizes && !row->is_short);
        if (d.file.error_to.len > 0) {
            put_field(out, "  from", d.file.error_to);
        }
        put_rcpts(out, &d, row);
    } else {
        put_field(out, "  (control file)", slice_string(d.problem));
    }
    if (row->is_short) {
        put_diagnostic(out, slice_string(row->diagnostic));
    }
    detail_fini(&d);
}

bool mailq_detail_look(const char *postoffice, const char *path, uid_t *ret_owner,
                       uint64_t *ret_size)
{
    struct stat st;
    int fd =
        is_control_path(slice_string(path)) ? open_below(postoffice, "transport", path, &st) : -1;

    if (fd < 0) {
        return false;
    }
    (void)close(fd); /* only opened */
    *ret_owner = st.st_uid;
    fd = open_below(postoffice, "queue", path, &st);
    *ret_size = fd < 0 ? 0 : (uint64_t)st.st_size;
    if (fd >= 0) {
        (void)close(fd); /* only opened */
    }
    return true;
}
