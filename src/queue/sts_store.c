#include "sts_store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "buf.h"
#include "check.h"
#include "checksum.h"
#include "log.h"
#include "mem.h"

#define DIRECTORY_NAME "sts"
#define NEW_NAME       ".new" /* no domain begins with a dot */
#define MAGIC          "sluice-sts 1 "
#define SUM_DIGITS     16
#define FILE_SIZE_MAX  (STS_POLICY_MAX + 1024)
/* Largest number of seconds that can be converted to microseconds. */
#define SECONDS_MAX (INT64_MAX / US_PER_S / 2)

_Static_assert(WIRE_DOMAIN_MAX <= NAME_MAX, "a domain is the name of a file");

struct sts_store {
    char *path; /* owned */
    int fd;     /* -1: not open */
};

static bool open_directory(struct sts_store *s)
{
    if (s->fd < 0) {
        s->fd = open(s->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    }
    return s->fd >= 0;
}

struct sts_store *sts_store_open(const char *state_directory)
{
    struct sts_store *s = mem_new(sizeof *s);
    struct buf path;

    buf_init(&path, PATH_MAX);
    CHECK(buf_addf(&path, "%s/" DIRECTORY_NAME, state_directory)); /* within the limit of a path */
    s->path = buf_take(&path);
    buf_fini(&path);
    s->fd = -1;
    return s;
}

void sts_store_close(struct sts_store *s)
{
    if (s->fd >= 0) {
        (void)close(s->fd); /* only read */
    }
    mem_free(s->path);
    mem_free(s);
}

/* ---- reading -------------------------------------------------------------------------------- */

/* Returns 0 or a negative errno. */
static int read_file(const struct sts_store *s, const char *name, struct buf *out)
{
    int fd = openat(s->fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    char *room = buf_room(out, FILE_SIZE_MAX);
    ssize_t n = 0;
    int error = 0;

    CHECK(room != NULL);
    if (fd < 0) {
        return -errno;
    }
    while (error == 0 && (size_t)n < FILE_SIZE_MAX) {
        ssize_t got = read(fd, room + n, FILE_SIZE_MAX - (size_t)n);

        if (got == 0) {
            break;
        }
        error = got < 0 ? -errno : 0;
        n += got < 0 ? 0 : got;
    }
    (void)close(fd); /* only read */
    buf_grew(out, (size_t)n);
    return error;
}

/* Returns the value of the next line in *ret_value; false if it does not begin with `name`. */
static bool take_line(struct slice *rest, const char *name, struct slice *ret_value)
{
    struct slice line = slice_cut(rest, '\n');

    if (!slice_starts(line, slice_string(name)) || rest->ptr == NULL) {
        return false;
    }
    *ret_value = slice_skip(line, strlen(name));
    return true;
}

static bool sum_fits(struct slice *rest)
{
    char sum[SUM_DIGITS + 1];
    struct slice value;

    if (!take_line(rest, MAGIC, &value)) {
        return false;
    }
    (void)snprintf(sum, sizeof sum, "%016" PRIx64, checksum_of(*rest)); /* fits */
    return slice_equal(value, slice_string(sum));
}

static struct mono mono_at(unsigned long long seconds, struct mono now, struct wall wall)
{
    return (struct mono){now.us - (wall.us - (int64_t)seconds * US_PER_S)};
}

static bool take_file(struct sts_cache *cache, struct slice name, struct slice rest,
                      struct mono now, struct wall wall)
{
    unsigned long long fetched, used;
    struct slice id, fetched_text, used_text, empty;

    return sum_fits(&rest) && take_line(&rest, "id: ", &id) &&
           take_line(&rest, "fetched: ", &fetched_text) && take_line(&rest, "used: ", &used_text) &&
           take_line(&rest, "", &empty) && empty.len == 0 &&
           slice_number(fetched_text, SECONDS_MAX, &fetched) &&
           slice_number(used_text, SECONDS_MAX, &used) &&
           sts_cache_restore(cache, now, name, id, rest, mono_at(fetched, now, wall),
                             mono_at(used, now, wall));
}

static void load_one(struct sts_store *s, const char *name, struct sts_cache *cache,
                     struct mono now, struct wall wall)
{
    struct buf bytes;
    int error;

    buf_init(&bytes, FILE_SIZE_MAX);
    error = read_file(s, name, &bytes);
    if (error != 0) {
        log_warning("%s/%s: %s", s->path, name, strerror(-error));
    } else if (!take_file(cache, slice_string(name), buf_slice(&bytes), now, wall)) {
        log_info("%s/%s: the policy is over, or not as it was written: removed", s->path, name);
        (void)unlinkat(s->fd, name, 0); /* otherwise the next start tries again */
    }
    buf_fini(&bytes);
}

void sts_store_load(struct sts_store *s, struct sts_cache *cache, struct mono now, struct wall wall)
{
    int fd = open_directory(s) ? openat(s->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    DIR *directory = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *entry;

    if (directory == NULL) {
        if (fd >= 0) {
            (void)close(fd);          /* only read */
        } else if (errno != ENOENT) { /* missing before the first policy */
            log_warning("%s: %s", s->path, strerror(errno));
        }
        return;
    }
    while ((entry = readdir(directory)) != NULL) {
        if (entry->d_name[0] != '.') {
            load_one(s, entry->d_name, cache, now, wall);
        }
    }
    (void)closedir(directory); /* only read */
}

/* ---- writing -------------------------------------------------------------------------------- */

static bool write_file(const struct sts_store *s, const char *name, struct slice bytes)
{
    int fd = openat(s->fd, NEW_NAME, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    bool ok;

    if (fd < 0) {
        return false;
    }
    errno = ENOSPC; /* for a partial write */
    ok = write(fd, bytes.ptr, bytes.len) == (ssize_t)bytes.len;
    ok = close(fd) == 0 && ok;
    return ok && renameat(s->fd, NEW_NAME, s->fd, name) == 0;
}

static int64_t seconds_at(struct mono t, struct mono now, struct wall wall)
{
    int64_t seconds = us_seconds(wall.us - (now.us - t.us));

    return seconds > 0 ? seconds : 0;
}

static void remove_file(const struct sts_store *s, const char *name)
{
    if (s->fd >= 0 && unlinkat(s->fd, name, 0) != 0 && errno != ENOENT) {
        log_warning("%s/%s: %s", s->path, name, strerror(errno));
    }
}

void sts_store_put(struct sts_store *s, const struct sts_domain *d, struct mono now,
                   struct wall wall)
{
    struct buf body, file;
    bool ok;

    if (d->policy == NULL) {
        remove_file(s, d->name);
        return;
    }
    buf_init(&body, FILE_SIZE_MAX);
    buf_init(&file, FILE_SIZE_MAX);
    ok = buf_addf(&body, "id: %s\nfetched: %" PRId64 "\nused: %" PRId64 "\n\n%s", d->id,
                  seconds_at(d->fetched, now, wall), seconds_at(d->used, now, wall), d->policy) &&
         buf_addf(&file, MAGIC "%016" PRIx64 "\n", checksum_of(buf_slice(&body))) &&
         buf_add(&file, buf_slice(&body));
    CHECK(ok); /* all policies of the cache fit */
    ok = open_directory(s) || ((mkdir(s->path, 0700) == 0 || errno == EEXIST) && open_directory(s));
    if (!ok || !write_file(s, d->name, buf_slice(&file))) {
        log_warning("%s/%s: %s: this MTA-STS policy will not outlast a restart", s->path, d->name,
                    strerror(errno));
    }
    buf_fini(&body);
    buf_fini(&file);
}
