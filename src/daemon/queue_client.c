/*
 * Those who bring mail: receiving processes and the parent's pickup. They submit, ask for a
 * domain's mail, and are told how the queue is doing.
 */
#include "queue.h"

#include <errno.h>
#include <inttypes.h>
#include <unistd.h>

#include "check.h"
#include "clock.h"
#include "log.h"
#include "match.h"
#include "mem.h"

static void submit(struct queue *q, struct channel *ch, const struct frame *frame, bool *ret_ok)
{
    struct wire_submit m;
    struct wire_rcpt *rcpts;
    struct step *step;
    int rc;

    *ret_ok = wire_get_submit(frame->body, &m, &rcpts);
    if (!*ret_ok) {
        return;
    }
    step = mem_new(sizeof *step);
    step->type = STEP_SUBMIT;
    step->from = ch;
    step->token = m.token;
    if (!q->flow.space_ok) {
        rc = -ENOSPC; /* the sender of the frame did not know yet */
    } else if (q->flow.storage_ok && !q->role->stopping) {
        rc = pass_submit(q, &m, frame->fd, &step->id, &step->msg);
    } else {
        rc = -EIO;
    }
    mem_free(rcpts);
    if (rc != 0) {
        queue_step_undone(q, step,
                          rc); /* nothing of it is in the batch, or the batch will fail as well */
    } else {
        queue_step(q, step);
    }
}

bool queue_client_frame(struct queue *q, struct channel *ch, const struct frame *frame)
{
    struct wire_etrn etrn;
    bool ok = false;

    switch (frame->type) {
    case WIRE_SUBMIT:
        submit(q, ch, frame, &ok);
        return ok;
    case WIRE_ETRN:
        if (!wire_get_etrn(frame->body, &etrn)) {
            return false;
        }
        if (domain_list_match(&q->conf->fast_flush_domains, etrn.domain)) {
            ask_flush_domain(q, etrn.domain);
            wire_put_etrn_done(ch, &(struct wire_etrn_done){.token = etrn.token,
                                                            .code = 250,
                                                            .text = SLICE("Queuing started")});
        } else {
            wire_put_etrn_done(
                ch, &(struct wire_etrn_done){.token = etrn.token,
                                             .code = 459,
                                             .text = SLICE("ETRN is not for this domain")});
        }
        return true;
    default:
        return false;
    }
}

static void client_lost(struct queue *q, struct channel *ch)
{
    struct step *step;

    STAILQ_FOREACH(step, &q->batch, next)
    {
        if (step->from == ch) {
            step->from = NULL; /* committed all the same; nobody is left to be told */
        }
    }
    for (size_t i = 0; i < QUEUE_CLIENTS_MAX; i++) {
        if (q->clients[i] == ch) {
            q->clients[i] = NULL;
        }
    }
    channel_free(ch);
}

void queue_on_client(void *arg, struct channel *ch)
{
    struct queue *q = arg;
    struct frame frame;
    enum channel_event event;

    queue_clock_look(q);
    while ((event = channel_next(ch, &frame)) == CHANNEL_FRAME) {
        bool ok = queue_client_frame(q, ch, &frame);

        if (frame.fd >= 0) {
            (void)close(frame.fd); /* a submission's content has been copied */
        }
        if (!ok) {
            log_error("a receiving process sent what it must not: connection closed");
            event = CHANNEL_CLOSED;
            break;
        }
    }
    if (event == CHANNEL_CLOSED) {
        client_lost(q, ch);
    }
}

void queue_flow_update(struct queue *q)
{
    struct spool_totals totals;
    uint64_t free_bytes;
    uint64_t minimum = q->conf->queue_minfree > 0 ? (uint64_t)q->conf->queue_minfree
                                                  : (uint64_t)q->conf->message_size_limit * 3 / 2;
    struct wire_flow flow = q->flow;

    if (spool_free_bytes(q->spool, &free_bytes) == 0) {
        flow.free_bytes = free_bytes;
        flow.space_ok = free_bytes >= minimum;
        if (!flow.space_ok && q->flow.space_ok) {
            log_warning("queue_minfree: %" PRIu64 " bytes free, %" PRIu64
                        " wanted: mail is refused for now",
                        free_bytes, minimum);
        }
    }
    if (spool_totals(q->spool, &totals) == 0) {
        uint64_t claimed = HASH_COUNT(q->active.msgs);
        flow.behind = totals.incoming > claimed + QUEUE_BEHIND;
    }
    if (flow.space_ok != q->flow.space_ok || flow.behind != q->flow.behind) {
        q->flow_sent = false;
    }
    q->flow = flow;
}

void queue_flow_send(struct queue *q)
{
    for (size_t i = 0; !q->flow_sent && i < QUEUE_CLIENTS_MAX; i++) {
        if (q->clients[i] != NULL) {
            wire_put_flow(q->clients[i], &q->flow);
        }
    }
    q->flow_sent = true;
}
