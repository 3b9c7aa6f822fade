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

/* Counts the files below the open directory `fd` and closes it. Returns -1 with errno on error. */
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

            count += below > 0 ? below : 0; /* a file with such a name contains none */
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
    (void)buf_addf(&path, "%s/%s", postoffice, name); /* cut off, it names no directory */
    count = count_files(open(buf_cstr(&path), O_RDONLY | O_DIRECTORY | O_CLOEXEC), HASH_LEVELS_MAX);
    buf_fini(&path);
    return count;
}

/* State of the process in a pid file. */
enum life { LIFE_NEVER, LIFE_ENDED, LIFE_RUNNING };

static enum life life_of(const char *postoffice, const char *pid_file)
{
    char text[32] = "";
    struct buf path;
    FILE *file;
    long pid;

    buf_init(&path, 8192);
    (void)buf_addf(&path, "%s/%s", postoffice, pid_file); /* cut off, it names no file */
    file = fopen(buf_cstr(&path), "re");
    buf_fini(&path);
    if (file == NULL) {
        return LIFE_NEVER;
    }
    pid = fgets(text, sizeof text, file) == NULL ? 0 : strtol(text, NULL, 10);
    (void)fclose(file); /* only read */
    if (pid <= 1 || pid > INT32_MAX) {
        return LIFE_NEVER;
    }
    return kill((pid_t)pid, 0) == 0 || errno == EPERM ? LIFE_RUNNING : LIFE_ENDED;
}

/* Appends the line of a directory. `states` are the words for a process that never started, has
 * ended, runs with work, and runs without work. */
static bool put_line(struct buf *out, const char *postoffice, const char *name, const char *one,
                     const char *many, enum life life, const char *const states[4], long *ret_count)
{
    long count = *ret_count = count_below(postoffice, name);

    if (count < 0) {
        (void)buf_addf(out, "%s/%s/ directory: %s\n", postoffice, name, strerror(errno));
        return false;
    }
    (void)buf_addf(out, "%ld %s in %s/%s/ directory: %s", count, count == 1 ? one : many,
                   postoffice, name, states[life == LIFE_RUNNING && count == 0 ? 3 : (int)life]);
    return true;
}

bool mailq_directories_put(struct buf *out, const char *postoffice)
{
    static const char *const router[] = {"never started", "no daemon", "processing", "idle"};
    static const char *const scheduler[] = {"never started", "no scheduler daemon", "working",
                                            "idle"};
    enum life life = life_of(postoffice, ".pid.scheduler");
    bool ok, queue_ok;
    long count;

    ok = put_line(out, postoffice, "router", "entry", "entries", life_of(postoffice, ".pid.router"),
                  router, &count);
    (void)buf_add_string(out, ok ? "\n" : ""); /* sticky: the caller checks `out` */
    count = count_below(postoffice, "deferred");
    if (count > 0) {
        (void)buf_addf(out, "%ld message%s deferred\n", count, count == 1 ? "" : "s");
    }
    queue_ok =
        put_line(out, postoffice, "transport", "message", "messages", life, scheduler, &count);
    if (queue_ok && life == LIFE_NEVER && count > 0) {
        (void)buf_addf(out, " \"%s/transport\" polluted", postoffice);
    }
    (void)buf_add_string(out, queue_ok ? "\n" : "");
    return ok && queue_ok;
}
