#include "node_lease.h"

#include <string.h>

#include "clock.h"
#include "log.h"
#include "queue.h"
#include "spool_lease.h"
#include "wire.h"

bool node_lease_begin(struct queue *q)
{
    int rc = spool_has_lease(q->spool) ? lease_page_make(&q->lease.page) : 0;

    if (rc != 0) {
        log_error("memory to share the lease with other processes: %s", strerror(-rc));
    }
    q->lease.held = true; /* until the first turn */
    return rc == 0;
}

void node_lease_fini(struct node_lease *l)
{
    if (lease_page_exists(&l->page)) {
        lease_page_set(&l->page, (struct mono){0}); /* a survivor must begin nothing */
    }
    lease_page_fini(&l->page);
}

void node_lease_lost(struct queue *q)
{
    q->lease.is_lost = true;
}

/* Is a delivery of lost mail in flight? */
static bool lost_is_under_way(const struct queue *q)
{
    for (const struct delivery *d = q->active.deliveries; d != NULL; d = d->hh.next) {
        if (active_is_dropped(d->msg)) {
            return true;
        }
    }
    return false;
}

static struct mono until(struct queue *q)
{
    struct mono now = clock_mono_now(); /* read first, so that the end is never late */
    int64_t left;

    if (q->lease.is_lost && !lost_is_under_way(q)) {
        q->lease.is_lost = false;
        spool_lease_ended(q->spool);
    }
    left = q->lease.is_lost ? 0 : spool_lease_left_us(q->spool);
    return left > 0 ? mono_after(now, left) : (struct mono){0};
}

/* Divides the limits of all nodes again if the number of nodes has changed. */
static void divide_limits(struct queue *q)
{
    unsigned nodes =
        q->conf->cluster_limits == CONF_CLUSTER_LIMITS_DIVIDE ? spool_lease_nodes(q->spool) : 1;

    if (nodes != q->transports.nodes) {
        q->transports.nodes = nodes;
        transports_load(q);
        destinations_reload(q); /* maxchannel and maxta are limits of clauses */
    }
}

void node_lease_turn(struct queue *q)
{
    struct node_lease *l = &q->lease;
    bool holds;

    if (!spool_has_lease(q->spool)) {
        return;
    }
    divide_limits(q);
    lease_page_set(&l->page, until(q));
    holds = node_lease_holds(l);
    if (holds != l->held) {
        l->held = holds;
        if (holds) {
            log_info("this node's lease holds: deliveries go on");
        } else {
            log_warning("this node's lease is over: nothing is delivered until the database "
                        "renews it");
        }
    }
}

void node_lease_give(const struct node_lease *l, struct channel *worker)
{
    int fd;

    if (lease_page_exists(&l->page)) {
        fd = lease_page_share(&l->page);
        /* A frame without its descriptor does not decode, so that nothing is delivered without a
         * page. */
        wire_put_lease(worker, fd >= 0 ? fd : -1);
    }
}
