/*
 * For a daemon whose spool has a lease: linked with it, the urls `sqlite:PATH` open SQLite's engine
 * with the lease that stands in the file PATH.lease, eight bytes: until when, in microseconds of
 * CLOCK_BOOTTIME. The test writes there what another daemon's engine would learn from its database.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "leased_spool.h"

static int open_leased(const char *where, enum spool_open_mode mode,
                       const struct spool_options *options, struct buf *ret_error,
                       struct spool **ret_spool)
{
    char path[4096];
    void *at = MAP_FAILED;
    int rc = sqlite_spool_open(where, mode, options, ret_error, ret_spool), fd;

    if (rc != 0 || mode != SPOOL_OPEN_WRITE) {
        return rc;
    }
    (void)snprintf(path, sizeof path, "%s.lease", where);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        at = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);
        (void)close(fd); /* the mapping stays */
    }
    if (at == MAP_FAILED) {
        (void)buf_addf(ret_error, "%s: no lease can be read there", path);
        spool_close(*ret_spool);
        return -ENOENT;
    }
    leased_spool(*ret_spool, at);
    return 0;
}

static const struct spool_scheme scheme = {
    .prefix = "sqlite:", .form = "sqlite:PATH", .reads = true, .open = open_leased};

__attribute__((constructor)) static void register_scheme(void)
{
    spool_register(&scheme);
}
