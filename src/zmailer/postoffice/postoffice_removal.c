/*
 * Record of the removal in progress. A control file is removed before its message file, so that no
 * control file is ever without its message. A process that is killed between both removals leaves a
 * message file without a control file. A search for such files would have to guess, because a
 * router may be about to give the control file its name. So the engine records the next removal:
 *
 *     POSTOFFICE/.scheduler.removing        PATH SECONDS.NANOSECONDS, blanks, line feed
 *
 * PATH is the path in queue/, followed by the time of the message file's last change. Each removal
 * overwrites the record, as there is only one at a time. The next start completes the last removal
 * if the message file is unchanged and no control file of its name exists, with any prefix. The
 * record is not synced and its errors are ignored: if it is lost, only debris remains.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "postoffice_engine.h"

#define RECORD      ".scheduler.removing"
#define RECORD_SIZE (POST_PATH_MAX + 40)

void removal_note(struct postoffice *po, const char *message_path)
{
    char record[RECORD_SIZE + 1];
    struct stat st;

    if (fstatat(po->queue, message_path, &st, AT_SYMLINK_NOFOLLOW) != 0) {
        return; /* already removed */
    }
    if (po->removing >= 0) {
        int len = snprintf(record, sizeof record, "%s %lld.%09ld", message_path,
                           (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec);

        if (len > 0 && len < RECORD_SIZE) {
            memset(record + len, ' ', (size_t)(RECORD_SIZE - 1 - len));
            record[RECORD_SIZE - 1] = '\n';
            (void)!pwrite(po->removing, record, RECORD_SIZE,
                          0); /* an error leaves debris at worst */
        }
    }
}

/* Is it "90417", "A/90417" or "A/R/90417"? No other path in the record is used. */
static bool is_message_path(struct slice path)
{
    uint64_t number;

    for (int level = 0; level < 2 && path.len > 2 && path.ptr[0] >= 'A' && path.ptr[0] <= 'Z' &&
                        path.ptr[1] == '/';
         level++) {
        path = slice_skip(path, 2);
    }
    return path.len > 0 && slice_find(path, '/') == path.len &&
           slice_find(path, '\0') == path.len && control_spool_number(path, &number);
}

/* Is there a control file for the message, or will there be one? A router renames the hidden file
 * last, so that name is checked first. */
static bool has_control(const struct postoffice *po, struct slice path)
{
    static const char *const prefixes[] = {".", "", POST_HOLD, POST_DAMAGED};
    char name[POST_PATH_MAX];
    struct stat st;

    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++) {
        post_path_of(path, prefixes[i], name);
        if (fstatat(po->transport, name, &st, AT_SYMLINK_NOFOLLOW) == 0 || errno != ENOENT) {
            return true;
        }
    }
    return false;
}

static bool read_record(const struct postoffice *po, char record[RECORD_SIZE + 1])
{
    int fd = openat(po->root, RECORD, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    ssize_t n = fd < 0 ? -1 : read(fd, record, RECORD_SIZE);

    if (fd >= 0) {
        (void)close(fd); /* only read */
    }
    record[n < 0 ? 0 : n] = '\0';
    return n == RECORD_SIZE;
}

static void finish(struct postoffice *po)
{
    char record[RECORD_SIZE + 1], path[POST_PATH_MAX], changed[40];
    struct slice rest, name, time;
    struct stat st;

    if (!read_record(po, record)) {
        return;
    }
    rest = slice_string(record);
    name = slice_cut(&rest, ' ');
    time = rest.ptr == NULL ? SLICE("") : slice_trim(rest);
    if (name.len >= sizeof path - sizeof POST_DAMAGED || !is_message_path(name)) {
        return;
    }
    (void)snprintf(path, sizeof path, "%.*s", SLICE_ARGS(name));
    if (fstatat(po->queue, path, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(st.st_mode)) {
        return;
    }
    (void)snprintf(changed, sizeof changed, "%lld.%09ld", (long long)st.st_mtim.tv_sec,
                   st.st_mtim.tv_nsec);
    if (slice_equal(time, slice_string(changed)) && !has_control(po, name) &&
        po->io->unlinkat(po->queue, path) == 0) {
        post_tell(po, SPOOL_EVENT_LOG, 0,
                  "queue/%s is removed: its control file was before the last scheduler ended",
                  path);
    }
}

void removal_begin(struct postoffice *po)
{
    finish(po);
    /* made now, because the process can make no file here later */
    po->removing =
        openat(po->root, RECORD, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY, 0600);
}
