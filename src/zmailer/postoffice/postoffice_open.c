/*
 * Opens and closes a postoffice, and reads its configuration.
 */
#include "postoffice.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "conf.h"
#include "mem.h"
#include "postoffice_engine.h"
#include "zmailer_dialect.h"

#define SCAN_FILES_DEFAULT    40000
#define SCAN_US_DEFAULT       (5 * US_PER_S)
#define SCAN_INTERVAL_DEFAULT (10 * US_PER_S)

/* ---- opening and closing -------------------------------------------------------------------- */

/* Opens a directory of the postoffice, made if it is missing. The last component of its path may be
 * a link, as transport/ may be on another file system. */
static int open_directory(struct postoffice *po, const char *name, mode_t mode, struct buf *error,
                          int *ret_fd)
{
    int err = po->io->mkdirat(po->root, name, mode), fd;

    if (err != 0 && err != -EEXIST) {
        (void)buf_addf(error, "%s: %s", name, strerror(-err)); /* sticky */
        return err;
    }
    fd = po->io->openat(po->root, name, O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0) {
        (void)buf_addf(error, "%s: %s", name, strerror(-fd));
        return fd;
    }
    *ret_fd = fd;
    return 0;
}

static int open_directories(struct postoffice *po, const char *where, struct buf *error)
{
    const struct {
        const char *name;
        mode_t mode;
        int *fd;
    } directories[] = {
        {"transport", 02755, &po->transport}, {"queue", 02755, &po->queue},
        {"public", 01777, &po->public},       {"router", 02755, &po->router},
        {"postman", 02755, &po->postman},
    };
    struct stat transport, queue;
    int err;

    po->root = po->io->openat(AT_FDCWD, where, O_RDONLY | O_DIRECTORY, 0);
    if (po->root < 0) {
        (void)buf_addf(error, "%s", strerror(-po->root));
        return po->root;
    }
    for (size_t i = 0; i < sizeof directories / sizeof directories[0]; i++) {
        err =
            open_directory(po, directories[i].name, directories[i].mode, error, directories[i].fd);
        if (err != 0) {
            return err;
        }
    }
    if (fstat(po->transport, &transport) != 0 || fstat(po->queue, &queue) != 0) {
        return -errno;
    }
    po->one_device = transport.st_dev == queue.st_dev;
    return 0;
}

static char *copy_of(const char *text)
{
    return text != NULL ? mem_string(text) : NULL;
}

static void set_options(struct postoffice *po, const struct postoffice_options *options)
{
    struct postoffice_options *o = &po->options;

    *o = *options;
    o->scan_files = o->scan_files == 0 ? SCAN_FILES_DEFAULT : o->scan_files;
    o->scan_us = o->scan_us == 0 ? SCAN_US_DEFAULT : o->scan_us;
    o->scan_interval_us = o->scan_interval_us == 0 ? SCAN_INTERVAL_DEFAULT : o->scan_interval_us;
    o->hostname = po->texts_of_options[0] =
        mem_string(o->hostname == NULL ? "localhost" : o->hostname);
    o->notify_path = po->texts_of_options[1] = copy_of(o->notify_path);
    o->router_notify = po->texts_of_options[2] = copy_of(o->router_notify);
    o->only = po->texts_of_options[3] = copy_of(o->only);
    CHECK(o->hash_levels <= 2);
}

void post_close(struct spool *sp)
{
    struct postoffice *po = postoffice_of(sp);
    const int fds[] = {po->root,    po->transport, po->queue,       po->public,  po->router,
                       po->postman, po->notify,    po->tell_router, po->removing};

    told_events_fini(&po->events);
    scan_fini(&po->scan);
    cache_fini(&po->cache);
    table_fini(&po->table);
    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++) {
        if (fds[i] >= 0) {
            (void)close(fds[i]); /* directories and a socket */
        }
    }
    for (size_t i = 0; i < sizeof po->texts_of_options / sizeof po->texts_of_options[0]; i++) {
        mem_free(po->texts_of_options[i]);
    }
    mem_free(po->vanished);
    mem_free(po);
}

int postoffice_open(const char *where, const struct spool_options *options,
                    const struct postoffice_options *own, struct buf *ret_error,
                    struct spool **ret_spool)
{
    struct postoffice *po = mem_new(sizeof *po);
    int err;

    po->base.engine = &postoffice_engine;
    po->base.mode = SPOOL_OPEN_WRITE;
    po->root = po->transport = po->queue = po->public = po->router = po->postman = -1;
    po->notify = po->tell_router = po->removing = -1;
    STAILQ_INIT(&po->works);
    STAILQ_INIT(&po->router_files);
    told_events_init(&po->events);
    set_options(po, own);
    po->io = options->io != NULL ? options->io : &spool_io_real;
    table_init(&po->table, options->id_floor);
    cache_init(&po->cache);
    (void)buf_addf(ret_error, "spool postoffice:%s: ", where); /* sticky */
    err = open_directories(po, where, ret_error);
    if (err == 0 && !po->options.keep_files) {
        removal_begin(po);
    }
    if (err == 0 && po->options.notify_path != NULL) {
        notify_open(po, po->options.notify_path);
    }
    if (err == 0 && po->options.router_notify != NULL) {
        po->tell_router = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    }
    if (err != 0) {
        post_close(&po->base);
        return err;
    }
    buf_clear(ret_error);
    *ret_spool = &po->base;
    return 0;
}

/* ---- opening by url -------------------------------------------------------------------------- */

/* Returns the words as one string, or NULL if there are none. */
static char *join_words(const struct conf_list *words)
{
    struct buf b;

    if (words->count == 0) {
        return NULL;
    }
    buf_init(&b, CONF_LINE_MAX + 1); /* limit of the value that has the words */
    for (size_t i = 0; i < words->count; i++) {
        (void)buf_addf(&b, "%s ", words->items[i]);
    }
    return buf_take(&b);
}

static int open_url(const char *where, enum spool_open_mode mode,
                    const struct spool_options *options, struct buf *ret_error,
                    struct spool **ret_spool)
{
    static const struct postoffice_options defaults = {0};
    const struct conf *conf = options->conf;
    char *only;
    int rc;

    CHECK(mode == SPOOL_OPEN_WRITE);
    if (conf == NULL) {
        return postoffice_open(where, options, &defaults, ret_error, ret_spool);
    }
    only = join_words(&conf->postoffice_files);
    rc = postoffice_open(
        where, options,
        &(struct postoffice_options){
            .hash_levels = (unsigned)conf->postoffice_hash_levels,
            .scan_files = (uint32_t)conf->postoffice_scan_files,
            .scan_us = conf->postoffice_scan_time_us,
            .report_interval_us = conf->global_report_interval_us,
            .hostname = conf->myhostname,
            /* a pass over some files ignores all others */
            .notify_path = conf->notifysock[0] != '\0' && only == NULL ? conf->notifysock : NULL,
            .router_notify = conf_zenv(conf, SLICE("ROUTERNOTIFY")),
            .only = only,
            .msgwriteasync = conf->msgwriteasync,
            .keep_files = conf->deliver_only[0] != '\0',
        },
        ret_error, ret_spool);
    mem_free(only);
    return rc;
}

void postoffice_register(void)
{
    static const struct spool_scheme scheme = {
        .prefix = "postoffice:", .form = "postoffice:DIR", .open = open_url};

    spool_register(&scheme);
}
