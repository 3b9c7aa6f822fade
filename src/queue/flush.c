#include "flush.h"

#include <errno.h>
#include <string.h>

#include "check.h"
#include "clock.h"
#include "log.h"
#include "mem.h"
#include "nexthop.h"
#include "queue.h"
#include "queue_retry.h"
#include "spool_search.h"

/* Messages per turn. */
#define PAGE 200
/* Recipients of a message whose destinations are tried again. */
#define REVIVED_MAX 10
/* Domains that wait; further ETRNs are dropped and logged. */
#define FLUSHES_MAX 100

struct flush {
    STAILQ_ENTRY(flush) next;
    char *domain; /* owned */
    struct msg_id after;
};

void flushes_init(struct flushes *f)
{
    STAILQ_INIT(&f->list);
}

void flushes_fini(struct flushes *f)
{
    struct flush *flush;

    while ((flush = STAILQ_FIRST(&f->list)) != NULL) {
        STAILQ_REMOVE_HEAD(&f->list, next);
        mem_free(flush->domain);
        mem_free(flush);
    }
}

/* ---- one message, one destination ----------------------------------------------------------- */

/* Ends the death of destinations that a waiting message needs: those of its first recipients. */
static void revive_for(struct queue *q, struct msg_id id, const struct spool_message *m)
{
    struct spool_rcpt page[REVIVED_MAX];
    struct route route;
    size_t count;

    if (m->parked.len > 0) {
        park_revive(q, m->parked);
        return;
    }
    if (spool_read_rcpts(q->spool, id, 0, true, REVIVED_MAX, page, &count) != 0) {
        return; /* not loaded, or damaged: the message's pass handles that */
    }
    for (size_t i = 0; i < count; i++) {
        uint32_t transport;

        if (page[i].nexthop.len <= ROUTE_NEXTHOP_MAX &&
            transport_find(&q->transports, page[i].transport, &transport)) {
            route.transport = transport_name(&q->transports, transport);
            memcpy(route.nexthop, page[i].nexthop.ptr, page[i].nexthop.len);
            route.nexthop[page[i].nexthop.len] = '\0';
            route_destination(q->conf, page[i].address, &route);
            if (route.destination[0] != '\0') {
                sched_revive(q->sched, clock_mono(), transport, slice_string(route.destination));
            }
        }
    }
}

/* Mail in memory continues anyway; parked mail continues when its destination has room. */
int flush_message(struct queue *q, struct msg_id id, const struct spool_message *m)
{
    if (spool_is_claimed(q->spool, id)) {
        return 0;
    }
    revive_for(q, id, m);
    if (park_is_full(q, m->parked)) {
        return 0;
    }
    requested_add(&q->requested, id);
    return spool_set_due(q->spool, id, queue_clock_to_store(&q->clock, id, clock_wall()));
}

void flush_revive(struct queue *q, struct slice wanted)
{
    char room[SCHED_DEST_NAME_MAX];
    uint64_t cursor = 0;
    struct sched_dest_info info;

    wanted = nexthop_canonical(wanted, room, sizeof room);
    while (sched_dest_each(q->sched, &cursor, &info)) {
        struct slice name = slice_string(transport_name(&q->transports, info.transport));

        if (slice_equal_nocase(info.dest, wanted) ||
            (slice_starts(wanted, name) && wanted.len > name.len && wanted.ptr[name.len] == '/' &&
             slice_equal_nocase(slice_skip(wanted, name.len + 1), info.dest))) {
            char copy[SCHED_DEST_NAME_MAX + 1];
            CHECK(info.dest.len <= SCHED_DEST_NAME_MAX);
            memcpy(copy, info.dest.ptr, info.dest.len);
            sched_revive(q->sched, clock_mono(), info.transport, slice_of(copy, info.dest.len));
        }
    }
    queue_retry_request(q, wanted);
}

/* ---- domains -------------------------------------------------------------------------------- */

void flush_domain(struct queue *q, struct slice domain)
{
    struct flush *flush;

    STAILQ_FOREACH(flush, &q->flushes.list, next)
    {
        if (slice_equal_nocase(slice_string(flush->domain), domain)) {
            return; /* the flush is active */
        }
    }
    if (q->flushes.count == FLUSHES_MAX) {
        log_warning("ETRN: %d domains are being flushed, %.*s is left out", FLUSHES_MAX,
                    SLICE_ARGS(domain));
        return;
    }
    flush_revive(q, domain);
    flush = mem_new(sizeof *flush);
    flush->domain = mem_copy(domain.ptr, domain.len);
    STAILQ_INSERT_TAIL(&q->flushes.list, flush, next);
    q->flushes.count++;
}

bool flush_some(struct queue *q)
{
    struct flush *flush = STAILQ_FIRST(&q->flushes.list);
    struct spool_filter f = {.states = 1u << SPOOL_INCOMING | 1u << SPOOL_DEFERRED};
    struct msg_id ids[PAGE];
    size_t count = 0;
    int rc;

    if (flush == NULL) {
        return false;
    }
    f.destination = slice_string(flush->domain);
    f.after = flush->after;
    rc = spool_scan(q->spool, &f, PAGE, ids, &count);
    if (rc == -EAGAIN) {
        return false; /* the spool sends an event when it is loaded */
    }
    if (rc != 0) {
        log_warning("ETRN %s: %s", flush->domain, spool_error(q->spool));
        count = 0;
    }
    for (size_t i = 0; i < count; i++) {
        struct spool_message m;
        rc = spool_read(q->spool, ids[i], &m);
        if (rc == -EAGAIN) {
            return i > 0;
        }
        flush->after = ids[i];
        if (rc == 0) {
            rc = flush_message(q, ids[i], &m);
        }
        if (rc != 0) {
            log_warning("ETRN %s: %s", flush->domain, spool_error(q->spool));
        }
        if (rc != 0 && !batch_refused(rc)) {
            count = 0; /* the storage has failed: the client will repeat its ETRN */
        }
    }
    if (count < PAGE) {
        STAILQ_REMOVE_HEAD(&q->flushes.list, next);
        q->flushes.count--;
        mem_free(flush->domain);
        mem_free(flush);
    }
    import_now(&q->import);
    return true;
}
