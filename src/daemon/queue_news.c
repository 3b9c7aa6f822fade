/*
 * What others do to the spool: looked for now and then, and acted on.
 */
#include "queue.h"

#include <errno.h>
#include <event2/event.h>

#include "check.h"
#include "clock.h"
#include "log.h"
#include "mem.h"

/* After a look that failed. */
#define LOOK_AGAIN_US US_PER_S

/* A control file that is to be read again. */
struct resync {
    STAILQ_ENTRY(resync) next;
    char *path; /* owned */
};

static void on_news(evutil_socket_t fd, short what, void *arg)
{
    struct queue *q = arg;

    (void)fd;
    (void)what;
    q->poll_at.us = 0; /* the turn that follows looks */
}

/* NULL when there are none. */
static char *join_words(const struct conf_list *words)
{
    struct buf b;

    if (words->count == 0) {
        return NULL;
    }
    buf_init(&b, CONF_LINE_MAX + 1); /* that of a value, which they come from */
    for (size_t i = 0; i < words->count; i++) {
        (void)buf_addf(&b, "%s ", words->items[i]);
    }
    return buf_take(&b);
}

void queue_news_options(struct queue *q, struct spool_postoffice_options *ret_options)
{
    const struct conf *conf = q->conf;
    const char *router = conf_zenv(conf, SLICE("ROUTERNOTIFY"));

    q->spool_strings[0] = mem_string(conf->myhostname);
    /* Who sees to some files only does not want to hear of others. */
    q->spool_strings[1] = conf->notifysock[0] != '\0' && conf->postoffice_files.count == 0
                              ? mem_string(conf->notifysock)
                              : NULL;
    q->spool_strings[3] = join_words(&conf->postoffice_files);
    q->spool_strings[2] = router != NULL ? mem_string(router) : NULL;
    *ret_options = (struct spool_postoffice_options){
        .hash_levels = (unsigned)conf->postoffice_hash_levels,
        .scan_files = (uint32_t)conf->postoffice_scan_files,
        .scan_us = conf->postoffice_scan_time_us,
        .report_interval_us = conf->global_report_interval_us,
        .hostname = q->spool_strings[0],
        .notify_path = q->spool_strings[1],
        .router_notify = q->spool_strings[2],
        .only = q->spool_strings[3],
        .msgwriteasync = conf->msgwriteasync,
        .keep_files = conf->deliver_only[0] != '\0',
    };
}

void queue_news_options_free(struct queue *q)
{
    for (size_t i = 0; i < sizeof q->spool_strings / sizeof q->spool_strings[0]; i++) {
        mem_free(q->spool_strings[i]);
    }
}

void queue_news_begin(struct queue *q)
{
    int fd = spool_news_fd(q->spool);

    STAILQ_INIT(&q->resyncs);
    if (fd >= 0) {
        q->news = event_new(q->role->base, fd, EV_READ | EV_PERSIST, on_news, q);
        CHECK(q->news != NULL && event_add(q->news, NULL) == 0);
    }
}

void queue_news_end(struct queue *q)
{
    struct resync *r;

    while ((r = STAILQ_FIRST(&q->resyncs)) != NULL) {
        STAILQ_REMOVE_HEAD(&q->resyncs, next);
        mem_free(r->path);
        mem_free(r);
    }
    if (q->news != NULL) {
        event_free(q->news);
    }
}

void queue_news_resync(struct queue *q, struct slice path)
{
    struct resync *r = mem_new(sizeof *r);

    r->path = mem_copy(path.ptr, path.len);
    STAILQ_INSERT_TAIL(&q->resyncs, r, next);
}

/* ETRN: the domain is the first word, the rest is about who asked. */
static void flush_asked(struct queue *q, struct slice text)
{
    struct slice rest = text, word = slice_cut(&rest, ' ');
    struct buf domain;

    log_info("ETRN: %.*s", SLICE_ARGS(text));
    buf_init(&domain, SCHED_DEST_NAME_MAX + 1);
    for (size_t i = 0; i < word.len && !domain.failed; i++) {
        (void)buf_add_byte(&domain, ascii_lower(word.ptr[i])); /* failed: no such domain */
    }
    if (!domain.failed && word.len > 0) {
        ask_flush_domain(q, buf_slice(&domain));
    }
    buf_fini(&domain);
}

void queue_news_look(struct queue *q)
{
    spool_look(q->spool);
    q->poll_at.us = 0;
    q->next_due.us = 0;
}

void queue_news_tell(struct queue *q)
{
    struct spool_news news;

    while (spool_next_news(q->spool, &news)) {
        switch (news.type) {
        case SPOOL_NEWS_LOG:
            log_info("%.*s", SLICE_ARGS(news.text));
            break;
        case SPOOL_NEWS_COMPLETE:
            q->completed++;
            report_line(q, "%.*s", SLICE_ARGS(news.text));
            break;
        case SPOOL_NEWS_WARNING:
            log_warning("%.*s", SLICE_ARGS(news.text));
            break;
        case SPOOL_NEWS_ETRN:
            flush_asked(q, news.text);
            break;
        case SPOOL_NEWS_CHANGED:
            queue_leave(q, news.id);
            break;
        }
    }
}

static void resync_all(struct queue *q)
{
    struct resync *r;
    int rc;

    while ((r = STAILQ_FIRST(&q->resyncs)) != NULL) {
        STAILQ_REMOVE_HEAD(&q->resyncs, next);
        rc = spool_resync(q->spool, slice_string(r->path));
        if (rc == 0) {
            log_info(" .. resynced!  (wrkcnt %u)", HASH_COUNT(q->active.msgs));
        } else if (rc != -ENOENT) { /* gone: what it was about has come to its end */
            log_warning("%s: can't be read again: %s", r->path, spool_error(q->spool));
        }
        mem_free(r->path);
        mem_free(r);
        q->next_due.us = 0;
    }
}

void queue_news_turn(struct queue *q)
{
    struct wall again = WALL_NEVER;

    if (spool_dirty(q->spool)) {
        return;
    }
    resync_all(q);
    if (clock_wall().us >= q->poll_at.us && !q->role->stopping) {
        if (spool_poll(q->spool, clock_wall(), &again) != 0) {
            log_warning("spool: %s", spool_error(q->spool));
            again = wall_after(clock_wall(), LOOK_AGAIN_US);
        }
        q->poll_at = again;
        q->looked = q->looked || again.us > clock_wall().us;
        if (q->news != NULL) {
            q->next_due.us = 0; /* something may have come */
        }
    }
    queue_news_tell(q);
}
