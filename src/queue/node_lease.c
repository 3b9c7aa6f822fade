#include "node_lease.h"

#include <string.h>

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
    q->lease.held = true; /* until a turn has looked */
    return rc == 0;
}

void node_lease_fini(struct node_lease *l)
{
    lease_page_fini(&l->page);
}

void node_lease_turn(struct queue *q)
{
    struct node_lease *l = &q->lease;
    bool holds;

    if (!spool_has_lease(q->spool)) {
        return;
    }
    lease_page_set(&l->page, spool_lease_until(q->spool));
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
        /* Without a descriptor the frame does not decode: nothing is delivered without a page. */
        wire_put_lease(worker, fd >= 0 ? fd : -1);
    }
}
