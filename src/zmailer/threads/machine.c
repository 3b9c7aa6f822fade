#include "machine.h"

#include <stdint.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/sysinfo.h>

#include "buf.h"
#include "json.h"
#include "zmailer_dialect.h"

#define PATH_BYTES_MAX 8192
/* sysinfo(2) counts load in this part of a process. */
#define LOAD_UNIT 65536

static void put_value(json_t *object, const char *prefix, const char *name, uint64_t value)
{
    struct buf key;

    buf_init(&key, 64);
    (void)buf_addf(&key, "SYS.%s%s-G", prefix, name); /* fits */
    json_put(object, buf_cstr(&key), json_integer((json_int_t)(value & INT64_MAX)));
    buf_fini(&key);
}

static void put_load(json_t *object)
{
    static const char *const names[] = {"1-min", "5-min"};
    struct sysinfo info;

    if (sysinfo(&info) == 0) {
        for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
            put_value(object, "Load-Avg-", names[i], info.loads[i] * UINT64_C(100) / LOAD_UNIT);
        }
    }
}

static void put_disk(json_t *object, const char *prefix, const char *path)
{
    struct statvfs st;

    if (statvfs(path, &st) == 0) {
        put_value(object, prefix, "FreeSpace-kB", (uint64_t)st.f_bavail * st.f_frsize / 1024);
        put_value(object, prefix, "UsedSpace-kB",
                  (uint64_t)(st.f_blocks - st.f_bfree) * st.f_frsize / 1024);
        put_value(object, prefix, "FreeFiles", st.f_favail);
        put_value(object, prefix, "UsedFiles", st.f_files - st.f_ffree);
    }
}

json_t *machine_json(const struct conf *conf)
{
    static const struct {
        const char *prefix, *directory;
    } disks[] = {{"Spool", "queue"}, {"TportSpool", "transport"}};
    const char *postoffice = conf_postoffice(conf);
    struct slice log = slice_string(conf->log);
    json_t *object = json_object();
    struct buf path;

    buf_init(&path, PATH_BYTES_MAX);
    put_load(object);
    for (size_t i = 0; postoffice != NULL && i < sizeof disks / sizeof disks[0]; i++) {
        buf_clear(&path);
        (void)buf_addf(&path, "%s/%s", postoffice, disks[i].directory); /* cut off: not found */
        put_disk(object, disks[i].prefix, buf_cstr(&path));
    }
    if (slice_starts(log, SLICE("file:/"))) {
        buf_clear(&path);
        (void)buf_add(&path, slice_of(log.ptr + 5, slice_find_last(log, '/') - 4)); /* as above */
        put_disk(object, "Log", buf_cstr(&path));
    }
    buf_fini(&path);
    return object;
}
