/*
 * Steps: what changes the spool, applied when it arises, done again when its commit fails. queue.h
 * has the plan.
 */
#include "queue.h"

#include <errno.h>
#include <stdio.h>

#include "check.h"
#include "clock.h"
#include "log.h"
#include "mem.h"

void queue_step_free(struct step *step)
{
    mem_free(step->strings);
    mem_free(step->parked);
    mem_free(step->ns);
    mem_free(step);
}

/* Do to the spool what the step says. */
static int step_apply(struct queue *q, struct step *step)
{
    struct spool_message m;
    int rc = 0;

    log_hold(); /* what it says is true when it is committed */
    switch (step->type) {
    case STEP_SUBMIT:
        break; /* pass_submit did it, with the content at hand */
    case STEP_SETTLE:
        rc = spool_read(q->spool, step->id, &m);
        if (rc == 0) {
            rc = spool_settle(q->spool, step->id, step->n, &step->verdict);
        }
        break;
    case STEP_PUT_OFF:
        rc = pass_put_off(q, step);
        break;
    case STEP_ALL_DONE:
        rc = spool_finish_all_done(q->spool, step->id);
        log_info("%s: removed", step->strings);
        break;
    case STEP_END_PASS:
        rc = pass_end(q, step);
        break;
    case STEP_SET_ASIDE:
        rc = spool_set_aside(q->spool, step->id, slice_string(step->strings));
        break;
    }
    log_hold_end();
    return rc == -ENOENT ? 0 : rc; /* an operator removed it meanwhile: nothing is left to record */
}

bool queue_refused(int rc)
{
    return rc == -EINVAL || rc == -EBADMSG || rc == -ENOENT || rc == -EROFS;
}

/* The spool refused a step. A message whose rows make no sense must not be tried for ever, and
 * never be deleted. */
static void step_refused(struct queue *q, struct step *step)
{
    char text[SPOOL_ID_TEXT_MAX];

    if (step->type == STEP_SET_ASIDE) {
        spool_id_print(step->id, text);
        log_error("%s: can't be set aside: %s", text, spool_error(q->spool));
    } else {
        queue_set_aside(q, step->id, spool_error(q->spool));
    }
    queue_step_free(step);
}

void queue_step(struct queue *q, struct step *step)
{
    int rc = step_apply(q, step);

    if (queue_refused(rc)) {
        step_refused(q, step);
        return;
    }
    /* Any other error has failed the batch; the commit finds out and sorts it out. */
    STAILQ_INSERT_TAIL(&q->batch, step, next);
}

void queue_set_aside(struct queue *q, struct msg_id id, const char *reason)
{
    struct step *step = mem_new(sizeof *step);
    char text[SPOOL_ID_TEXT_MAX];

    spool_id_print(id, text);
    log_error("%s: set aside as corrupt: %s", text, reason);
    step->type = STEP_SET_ASIDE;
    step->id = id;
    step->strings = mem_string(reason);
    queue_drop(q, id);
    queue_step(q, step);
}

static void answer_submit(struct queue *q, struct step *step, int rc)
{
    char id[SPOOL_ID_TEXT_MAX], text[64];
    struct wire_submit_done done = {.token = step->token};

    if (step->from == NULL) {
        return;
    }
    if (rc == 0) {
        spool_id_print(step->id, id);
        (void)snprintf(text, sizeof text, "Ok: queued as %s", id); /* fits by the sizes above */
        done.code = 250;
        done.status = SLICE("2.0.0");
        done.text = slice_string(text);
        done.id = slice_string(id);
        q->submitted++;
    } else if (rc == -ENOSPC) {
        done.code = 452;
        done.status = SLICE("4.3.1");
        done.text = SLICE("Insufficient system storage");
    } else if (rc == -EMSGSIZE || rc == -EINVAL) {
        done.code = 554;
        done.status = SLICE("5.6.0");
        done.text = SLICE("Message can't be stored as it is");
    } else {
        done.code = 451;
        done.status = SLICE("4.3.0");
        done.text = SLICE("Mail storage failed, try again later");
    }
    wire_put_submit_done(step->from, &done);
}

/* The step's part of the batch is durable. */
static void step_committed(struct queue *q, struct step *step)
{
    if (step->type == STEP_SUBMIT) {
        answer_submit(q, step, 0);
        if (step->msg != NULL) {
            (void)pass_open(q, step->msg, false); /* else it goes back to disk */
        }
    }
    queue_step_free(step);
}

void queue_step_undone(struct queue *q, struct step *step, int rc)
{
    if (step->type == STEP_SUBMIT) {
        answer_submit(q, step, rc);
        if (step->msg != NULL) {
            active_remove(&q->active, step->msg);
        }
        queue_step_free(step);
    } else {
        STAILQ_INSERT_TAIL(&q->redo, step, next);
    }
}

void queue_redo(struct queue *q)
{
    STAILQ_HEAD(, step) kept = STAILQ_HEAD_INITIALIZER(kept);
    struct step *step;
    bool storage_ok = true, stored = false;

    while ((step = STAILQ_FIRST(&q->redo)) != NULL) {
        int rc, applied;

        STAILQ_REMOVE_HEAD(&q->redo, next);
        if (!storage_ok) {
            STAILQ_INSERT_TAIL(&kept, step, next); /* later ones may build on the one that failed */
            continue;
        }
        rc = applied = step_apply(q, step);
        if (!queue_refused(rc)) {
            int end = spool_commit(q->spool); /* also ends a batch that failed */
            rc = rc != 0 ? rc : end;
        }
        if (rc == 0) {
            log_held_write();
        } else {
            log_held_drop(); /* it is said when it is done again */
        }
        if (applied == -EUCLEAN) {
            /* Its pages are damaged; what others did can still be stored. Each further try of the
             * message would deliver it once more. */
            log_error("a result can't be stored, its message may be sent again after the next "
                      "start: %s",
                      spool_error(q->spool));
            queue_drop(q, step->id);
            damage_hide(q, step->id, spool_error(q->spool), false);
            queue_step_free(step);
        } else if (rc == 0) {
            stored = true;
            queue_step_free(step);
        } else if (queue_refused(rc)) {
            step_refused(q, step); /* what sets it aside joins the next batch */
        } else {
            storage_ok = false;
            STAILQ_INSERT_TAIL(&kept, step, next);
        }
    }
    STAILQ_CONCAT(&q->redo, &kept);
    if (storage_ok && stored && !q->flow.storage_ok) {
        log_info("storage works again");
        q->flow.storage_ok = true;
        q->flow_sent = false;
    }
}

int commit_now(struct queue *q)
{
    STAILQ_HEAD(, step) batch = STAILQ_HEAD_INITIALIZER(batch);
    struct step *step;
    int rc = spool_commit(q->spool);

    STAILQ_CONCAT(&batch, &q->batch);
    q->commit_by.us = 0;
    if (rc == 0) {
        log_held_write();
        q->commits += STAILQ_EMPTY(&batch) ? 0 : 1;
        while ((step = STAILQ_FIRST(&batch)) != NULL) {
            STAILQ_REMOVE_HEAD(&batch, next);
            step_committed(q, step);
        }
        return 0;
    }
    log_held_drop();
    log_error("commit failed, nothing of it is acknowledged: %s", spool_error(q->spool));
    while ((step = STAILQ_FIRST(&batch)) != NULL) {
        STAILQ_REMOVE_HEAD(&batch, next);
        queue_step_undone(q, step, rc);
    }
    q->flow.storage_ok = false;
    q->flow_sent = false;
    queue_redo(q);
    queue_flow_update(
        q); /* a full disk has cost the spool its reserve: no new mail before it is back */
    q->next_check = mono_after(clock_mono(), QUEUE_CHECK_PERIOD_US);
    return rc;
}
