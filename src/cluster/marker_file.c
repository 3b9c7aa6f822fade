#include "marker_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

#define NAME "cluster-marker"
#define WORD "sluice-marker 1"
#define SIZE (sizeof WORD - 1 + (size_t)5 * 17 + 1)

/* Adds a text and its NUL to an FNV-1a hash. */
static uint64_t add_text(uint64_t sum, const char *text)
{
    do {
        sum = (sum ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
    } while (*text++ != '\0');
    return sum;
}

static void read_marker(const struct marker_file *f, struct member_marker *ret)
{
    char text[SIZE + 1] = "";
    uint64_t queue, number, accepted, at_us;
    unsigned no;

    if (pread(f->fd, text, SIZE, 0) == (ssize_t)SIZE && text[SIZE - 1] == '\n' &&
        sscanf(text, WORD " %16" SCNx64 " %16x %16" SCNx64 " %16" SCNx64 " %16" SCNx64, &queue, &no,
               &number, &accepted, &at_us) == 5 &&
        queue == f->queue && no < MEMBERSHIP_NODES_MAX && number <= INT64_MAX &&
        accepted < INT32_MAX && at_us <= INT64_MAX) {
        *ret = (struct member_marker){.no = (int)no,
                                      .number = (int64_t)number,
                                      .accepted = (int64_t)accepted,
                                      .at_us = (int64_t)at_us};
    }
}

int marker_file_open(struct marker_file *f, const char *directory, const char *database,
                     const char *schema, const char *node, struct member_marker *ret_marker)
{
    char path[PATH_MAX];
    int len = snprintf(path, sizeof path, "%s/" NAME, directory);

    *ret_marker = (struct member_marker){.no = 0};
    f->queue = add_text(add_text(add_text(UINT64_C(0xcbf29ce484222325), database), schema), node);
    f->fd =
        len < (int)sizeof path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600) : -1;
    if (f->fd < 0) {
        return len < (int)sizeof path ? -errno : -ENAMETOOLONG;
    }
    read_marker(f, ret_marker);
    return 0;
}

int marker_file_write(const struct marker_file *f, const struct member_marker *m)
{
    char text[SIZE + 1];
    int len = snprintf(text, sizeof text,
                       WORD " %016" PRIx64 " %016x %016" PRIx64 " %016" PRIx64 " %016" PRIx64 "\n",
                       f->queue, (unsigned)m->no, (uint64_t)m->number, (uint64_t)m->accepted,
                       (uint64_t)m->at_us);
    ssize_t done;

    CHECK(len == (int)SIZE);
    done = f->fd < 0 ? (ssize_t)SIZE : pwrite(f->fd, text, SIZE, 0);
    return done == (ssize_t)SIZE ? 0 : done < 0 ? -errno : -ENOSPC;
}

void marker_file_close(struct marker_file *f)
{
    if (f->fd >= 0) {
        (void)close(f->fd);
    }
    f->fd = -1;
}
