#include "queue_tree.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "unit.h"

#include "queue_file.h"

#define PATH_SIZE 512

static void path_of(const struct queue_tree *t, const char *path, char ret[PATH_SIZE])
{
    int len = snprintf(ret, PATH_SIZE, "%s/%s", t->path, path);

    assert_true(len > 0 && len < PATH_SIZE);
}

void queue_tree_make(struct queue_tree *t)
{
    static const char *const names[] = {"incoming", "active", "deferred", "hold",    "corrupt",
                                        "bounce",   "defer",  "trace",    "maildrop"};

    (void)snprintf(t->path, sizeof t->path, "/tmp/sluice-queue-XXXXXX");
    assert_non_null(mkdtemp(t->path));
    for (size_t i = 0; i < COUNT(names); i++) {
        char path[PATH_SIZE];

        path_of(t, names[i], path);
        assert_return_code(mkdir(path, 0700), errno);
    }
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st;
    (void)type;
    (void)at;
    return remove(path);
}

void queue_tree_remove(struct queue_tree *t)
{
    assert_return_code(nftw(t->path, remove_one, 16, FTW_DEPTH | FTW_PHYS), errno);
}

static void make_parents(const struct queue_tree *t, char *full)
{
    for (char *slash = full + strlen(t->path) + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = '\0';
        assert_true(mkdir(full, 0700) == 0 || errno == EEXIST);
        *slash = '/';
    }
}

void queue_tree_put(const struct queue_tree *t, const char *path, struct slice bytes, mode_t mode,
                    int64_t mtime_s)
{
    const struct timespec times[2] = {{.tv_sec = mtime_s}, {.tv_sec = mtime_s}};
    char full[PATH_SIZE];
    int fd;

    path_of(t, path, full);
    make_parents(t, full);
    fd = open(full, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_return_code(fd, errno);
    assert_int_equal(write(fd, bytes.ptr, bytes.len), bytes.len);
    assert_return_code(fchmod(fd, mode), errno);
    assert_return_code(futimens(fd, times), errno);
    (void)close(fd);
}

void queue_tree_unlink(const struct queue_tree *t, const char *path)
{
    char full[PATH_SIZE];

    path_of(t, path, full);
    assert_return_code(unlink(full), errno);
}

void queue_tree_rename(const struct queue_tree *t, const char *from, const char *to)
{
    char full_from[PATH_SIZE], full_to[PATH_SIZE];

    path_of(t, from, full_from);
    path_of(t, to, full_to);
    make_parents(t, full_to);
    assert_return_code(rename(full_from, full_to), errno);
}

static bool look(const struct queue_tree *t, const char *path, struct stat *ret)
{
    char full[PATH_SIZE];

    path_of(t, path, full);
    return lstat(full, ret) == 0;
}

bool queue_tree_has(const struct queue_tree *t, const char *path)
{
    struct stat st;

    return look(t, path, &st);
}

mode_t queue_tree_mode(const struct queue_tree *t, const char *path)
{
    struct stat st;

    assert_true(look(t, path, &st));
    return st.st_mode & 07777;
}

int64_t queue_tree_mtime(const struct queue_tree *t, const char *path)
{
    struct stat st;

    assert_true(look(t, path, &st));
    return st.st_mtim.tv_sec;
}

char queue_tree_byte(const struct queue_tree *t, const char *path, uint64_t at)
{
    char full[PATH_SIZE], byte;
    int fd;

    path_of(t, path, full);
    fd = open(full, O_RDONLY);
    assert_return_code(fd, errno);
    assert_int_equal(pread(fd, &byte, 1, (off_t)at), 1);
    (void)close(fd);
    return byte;
}

void queue_tree_message(struct buf *ret_bytes, const char *sender, const char *prefix,
                        unsigned count)
{
    struct buf envelope, content;
    char text[128];

    buf_init(&envelope, (size_t)1 << 28);
    buf_init(&content, 1000);
    queue_file_put(&envelope, 'T', SLICE("1000 5"));
    queue_file_put(&envelope, 'S', slice_string(sender));
    for (unsigned i = 1; i <= count; i++) {
        (void)snprintf(text, sizeof text, "dsn_orig_rcpt=rfc822;%s%u@example.org", prefix, i);
        queue_file_put(&envelope, 'A', slice_string(text));
        (void)snprintf(text, sizeof text, "%s%u@example.org", prefix, i);
        queue_file_put(&envelope, 'O', slice_string(text));
        queue_file_put(&envelope, 'R', slice_string(text));
    }
    queue_file_put(&envelope, 'M', SLICE(""));
    queue_file_put(&content, 'N', SLICE("Subject: test"));
    queue_file_put(&content, 'N', SLICE(""));
    queue_file_put(&content, 'L', SLICE("one line "));
    queue_file_put(&content, 'N', SLICE("in two pieces"));
    (void)snprintf(text, sizeof text, "%15zu %15zu %15u %15d %15zu %15d", buf_len(&content),
                   buf_len(&envelope) + 97, count, 0, buf_len(&content), 0);
    queue_file_put(ret_bytes, 'C', slice_string(text));
    assert_true(buf_add(ret_bytes, buf_slice(&envelope)));
    assert_true(buf_add(ret_bytes, buf_slice(&content)));
    queue_file_put(ret_bytes, 'X', SLICE(""));
    queue_file_put(ret_bytes, 'E', SLICE(""));
    buf_fini(&envelope);
    buf_fini(&content);
}
