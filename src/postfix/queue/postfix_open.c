#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>

#include "check.h"
#include "conf.h"
#include "mem.h"
#include "postfix_store.h"

#define RUN_DELAY_US (300 * US_PER_S)
#define RCPT_LIMIT   20000
#define RCPT_MINIMUM 10
#define ACTIVE_LIMIT 20000

static void set_options(struct postfix_store *s, const struct postfix_spool_options *own)
{
    s->options = *own;
    s->options.run_delay_us = own->run_delay_us != 0 ? own->run_delay_us : RUN_DELAY_US;
    s->options.rcpt_limit = own->rcpt_limit != 0 ? own->rcpt_limit : RCPT_LIMIT;
    s->options.rcpt_minimum = own->rcpt_minimum != 0 ? own->rcpt_minimum : RCPT_MINIMUM;
    s->options.active_limit = own->active_limit != 0 ? own->active_limit : ACTIVE_LIMIT;
    s->options.dir.hash_queue_names = NULL; /* the caller's string, not borrowed */
}

int postfix_spool_open(const char *where, const struct spool_options *options,
                       const struct postfix_spool_options *own, struct buf *ret_error,
                       struct spool **ret_spool)
{
    struct queue_dir_options dir = own->dir;
    struct postfix_store *s;
    struct queue_dir opened;
    int err;

    dir.io = options->io;
    (void)buf_addf(ret_error, "spool postfix:%s: ", where); /* errors are sticky */
    err = queue_dir_open(&opened, where, &dir, ret_error);
    if (err != 0) {
        return err;
    }
    s = mem_new(sizeof *s);
    s->base.engine = &postfix_engine;
    s->base.mode = SPOOL_OPEN_WRITE;
    s->dir = opened;
    s->last_id = options->id_floor;
    s->ready_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    for (size_t i = 0; i < 2; i++) {
        TAILQ_INIT(&s->routing[i]);
        s->scans[i].wanted = true;
        s->scans[i].again = WALL_NEVER;
    }
    TAILQ_INIT(&s->leaving);
    STAILQ_INIT(&s->touched);
    STAILQ_INIT(&s->conclusions);
    told_events_init(&s->events);
    TAILQ_INIT(&s->known_by_use);
    STAILQ_INIT(&s->known_touched);
    TAILQ_INIT(&s->paused);
    set_options(s, own);
    if (s->ready_fd < 0) {
        err = -errno;
        (void)buf_addf(ret_error, "eventfd: %s", strerror(-err));
        spool_close(&s->base);
        return err;
    }
    buf_clear(ret_error);
    *ret_spool = &s->base;
    return 0;
}

/* ---- by url --------------------------------------------------------------------------------- */

static int open_url(const char *where, enum spool_open_mode mode,
                    const struct spool_options *options, struct buf *ret_error,
                    struct spool **ret_spool)
{
    const struct conf *conf = options->conf;
    struct postfix_spool_options own = {0};
    struct buf names;
    int err;

    CHECK(mode == SPOOL_OPEN_WRITE);
    if (conf == NULL) {
        return postfix_spool_open(where, options, &own, ret_error, ret_spool);
    }
    buf_init(&names, CONF_LINE_MAX + 1); /* limit of a value in the configuration */
    for (size_t i = 0; i < conf->hash_queue_names.count; i++) {
        (void)buf_addf(&names, "%s ", conf->hash_queue_names.items[i]);
    }
    own = (struct postfix_spool_options){
        .dir = {.hash_queue_names = buf_cstr(&names),
                .hash_queue_depth = (int)conf->hash_queue_depth},
        .run_delay_us = conf->queue_run_delay_us,
        .active_limit = (uint32_t)conf->qmgr_message_active_limit,
        .rcpt_limit = (uint32_t)conf->qmgr_message_recipient_limit,
        .rcpt_minimum = (uint32_t)conf->qmgr_message_recipient_minimum,
    };
    err = postfix_spool_open(where, options, &own, ret_error, ret_spool);
    buf_fini(&names);
    return err;
}

void postfix_spool_register(void)
{
    static const struct spool_scheme scheme = {
        .prefix = "postfix:", .form = "postfix:DIR", .open = open_url};

    spool_register(&scheme);
}
