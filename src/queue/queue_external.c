#include "queue_external.h"

#include <errno.h>
#include <event2/event.h>
#include <sysexits.h>

#include "check.h"
#include "clock.h"
#include "log.h"
#include "mem.h"
#include "queue.h"
#include "queue_handover.h"
#include "queue_report.h"
#include "spool_external.h"

/* Wait after a poll that failed. */
#define LOOK_AGAIN_US US_PER_S

/* A control file that must be read again. */
struct resync {
    STAILQ_ENTRY(resync) next;
    char *path; /* owned */
};

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
    struct external *e = arg;

    (void)fd;
    (void)what;
    e->poll_at.us = 0; /* the next turn polls */
}

void external_begin(struct queue *q)
{
    struct external *e = &q->external;
    int fd = spool_external_fd(q->spool);

    STAILQ_INIT(&e->resyncs);
    if (fd >= 0) {
        e->readable = event_new(q->role->base, fd, EV_READ | EV_PERSIST, on_readable, e);
        CHECK(e->readable != NULL && event_add(e->readable, NULL) == 0);
    }
}

void external_end(struct external *e)
{
    struct resync *r;

    while ((r = STAILQ_FIRST(&e->resyncs)) != NULL) {
        STAILQ_REMOVE_HEAD(&e->resyncs, next);
        mem_free(r->path);
        mem_free(r);
    }
    if (e->readable != NULL) {
        event_free(e->readable);
    }
}

void external_resync(struct external *e, struct slice path)
{
    struct resync *r = mem_new(sizeof *r);

    r->path = mem_copy(path.ptr, path.len);
    STAILQ_INSERT_TAIL(&e->resyncs, r, next);
}

/* Flushes a domain by ETRN: the first word of the text is the domain, the rest names the client. */
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
        flush_domain(q, buf_slice(&domain));
    }
    buf_fini(&domain);
}

void external_look(struct queue *q)
{
    struct external *e = &q->external;

    spool_look(q->spool);
    e->poll_at.us = 0;
    import_now(&q->import);
}

void external_poll_soon(struct external *e)
{
    e->poll_at.us = 0;
}

void external_tell(struct queue *q)
{
    struct spool_event event;

    while (spool_next_event(q->spool, &event)) {
        switch (event.type) {
        case SPOOL_EVENT_LOG:
            log_info("%.*s", SLICE_ARGS(event.text));
            break;
        case SPOOL_EVENT_COMPLETE:
            report_completed(q, event.text);
            break;
        case SPOOL_EVENT_WARNING:
            log_warning("%.*s", SLICE_ARGS(event.text));
            break;
        case SPOOL_EVENT_ETRN:
            flush_asked(q, event.text);
            break;
        case SPOOL_EVENT_CHANGED:
            queue_leave(q, event.id);
            damage_leave(q, event.id, false);
            break;
        case SPOOL_EVENT_READY:
            queue_at_hand(q);
            break;
        case SPOOL_EVENT_LOST:
            if (event.id.n == 0) {
                queue_lose_unclaimed(q);
                node_lease_lost(q);
                break;
            }
            queue_lose(q, event.id);
            break;
        case SPOOL_EVENT_HURRY:
            agents_break_off(q, event.id);
            damage_leave(q, event.id, true);
            break;
        case SPOOL_EVENT_ROUTES:
            queue_reroute(q);
            queue_leave_elsewhere(q);
            break;
        case SPOOL_EVENT_GAINED:
            interventions_reroute(q);
            interventions_look_at_keys(q); /* pauses may have ended before the mail came */
            break;
        case SPOOL_EVENT_STOP:
            log_error("spool: %.*s", SLICE_ARGS(event.text));
            wire_put_empty(q->role->parent, WIRE_STOP_ALL);
            break;
        case SPOOL_EVENT_ENDED:
            log_error("spool: %.*s", SLICE_ARGS(event.text));
            role_exit(q->role, EX_CONFIG);
            break;
        }
    }
}

static void resync_all(struct queue *q)
{
    struct external *e = &q->external;
    struct resync *r;
    int rc;

    while ((r = STAILQ_FIRST(&e->resyncs)) != NULL) {
        STAILQ_REMOVE_HEAD(&e->resyncs, next);
        rc = spool_resync(q->spool, slice_string(r->path));
        if (rc == 0) {
            log_info(" .. resynced!  (wrkcnt %u)", HASH_COUNT(q->active.msgs));
        } else if (rc != -ENOENT) { /* gone: its recipients have ended */
            log_warning("%s: can't be read again: %s", r->path, spool_error(q->spool));
        }
        mem_free(r->path);
        mem_free(r);
        import_now(&q->import);
    }
}

void external_turn(struct queue *q)
{
    struct external *e = &q->external;
    struct wall again = WALL_NEVER;

    if (e->readable != NULL && e->poll_at.us == 0 && (spool_dirty(q->spool) || q->role->stopping)) {
        CHECK(event_del(e->readable) == 0); /* else it wakes the loop until it is read */
    }
    if (spool_dirty(q->spool)) {
        return;
    }
    resync_all(q);
    if (clock_wall().us >= e->poll_at.us && !q->role->stopping) {
        if (spool_poll(q->spool, clock_wall(), &again) != 0) {
            log_warning("spool: %s", spool_error(q->spool));
            again = wall_after(clock_wall(), LOOK_AGAIN_US);
        }
        e->poll_at = again;
        if (e->readable != NULL) {
            CHECK(event_add(e->readable, NULL) == 0); /* no effect if already added */
        }
        e->looked = e->looked || again.us > clock_wall().us;
        if (e->readable != NULL) {
            import_now(&q->import); /* new mail, perhaps */
        }
    }
    external_tell(q);
}
