#include "mailq_directories.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "slice.h"

#define HASH_LEVELS_MAX 2

static bool is_hash_directory(const char *name)
{
    return name[0] >= 'A' && name[0] <= 'Z' && name[1] == '\0';
}

/* Files below the open directory `fd`, which is taken; -1 with errno. */
static long count_files(int fd, unsigned levels)
{
    DIR *directory = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *entry;
    long count = 0;

    if (directory == NULL) {
        if (fd >= 0) {
            (void)close(fd); /* only opened */
        }
        return -1;
    }
    while ((entry = readdir(directory)) != NULL) {
        if (ascii_is_digit(entry->d_name[0])) {
            count++;
        } else if (levels > 0 && is_hash_directory(entry->d_name)) {
            long below = count_files(openat(fd, entry->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC),
                                     levels - 1);

            count += below > 0 ? below : 0; /* a file of that name holds none */
        }
    }
    (void)closedir(directory); /* only read */
    return count;
}

static long count_below(const char *postoffice, const char *name)
{
    struct buf path;
    long count;

    buf_init(&path, 8192);
    (void)buf_addf(&path, "%s/%s", postoffice, name); /* cut off: there is no such directory */
    count = count_files(open(buf_cstr(&path), O_RDONLY | O_DIRECTORY | O_CLOEXEC), HASH_LEVELS_MAX);
    buf_fini(&path);
    return count;
}

/* Does the process live whose number is in this file? */
static bool is_running(const char *postoffice, const char *pid_file)
{
    char text[32] = "";
    struct buf path;
    FILE *file;
    long pid;

    buf_init(&path, 8192);
    (void)buf_addf(&path, "%s/%s", postoffice, pid_file); /* as above */
    file = fopen(buf_cstr(&path), "re");
    buf_fini(&path);
    if (file == NULL) {
        return false;
    }
    pid = fgets(text, sizeof text, file) == NULL ? 0 : strtol(text, NULL, 10);
    (void)fclose(file); /* only read */
    return pid > 1 && pid <= INT32_MAX && (kill((pid_t)pid, 0) == 0 || errno == EPERM);
}

static bool put_line(struct buf *out, const char *postoffice, const char *name, const char *one,
                     const char *many, long count, bool running)
{
    if (count < 0) {
        (void)buf_addf(out, "%s/%s/ directory: %s\n", postoffice, name, strerror(errno));
        return false;
    }
    (void)buf_addf(out, "%ld %s in %s/%s/ directory: %s\n", count, count == 1 ? one : many,
                   postoffice, name,
                   count == 0 ? "idle"
                   : running  ? "working"
                              : "inactive");
    return true;
}

bool mailq_directories_put(struct buf *out, const char *postoffice)
{
    bool scheduler = is_running(postoffice, ".pid.scheduler");
    long waiting, queued;
    bool ok;

    ok = put_line(out, postoffice, "router", "entry", "entries", count_below(postoffice, "router"),
                  is_running(postoffice, ".pid.router"));
    waiting = count_below(postoffice, "transport");
    ok = put_line(out, postoffice, "transport", "message", "messages", waiting, scheduler) && ok;
    queued = count_below(postoffice, "queue");
    if (queued != waiting) {
        ok = put_line(out, postoffice, "queue", "message", "messages", queued, scheduler) && ok;
    }
    if (!scheduler) {
        (void)buf_add_string(out, "no scheduler is running\n");
    }
    return ok;
}
