#include "batch.h"

#include <errno.h>
#include <string.h>

#include "check.h"
#include "clock.h"
#include "log.h"
#include "mem.h"
#include "pass_end.h"
#include "queue.h"
#include "queue_pass.h"
#include "spool_conclusion.h"

enum step_type {
    STEP_SUBMISSION,
    STEP_VERDICT,
    STEP_ALL_DONE,
    STEP_PUT_OFF,
    STEP_PASS_END,
    STEP_QUARANTINE,
};

struct step {
    STAILQ_ENTRY(step) next;
    enum step_type type;
    struct msg_id id;
    union {
        struct {
            struct channel *from; /* NULL: gone */
            uint64_t token;
            bool repeated;
            struct active_msg *msg;
        } submission;
        struct {
            uint32_t n;
            struct spool_verdict v; /* its slices point into `text` */
        } verdict;
        struct put_off put_off;
        struct pass_end pass_end;
    };
    char text[]; /* of STEP_QUARANTINE the reason, of STEP_ALL_DONE the message's name */
};

void batch_init(struct batch *b)
{
    *b = (struct batch){.commits = 0};
    STAILQ_INIT(&b->open);
    STAILQ_INIT(&b->redo);
}

static struct step *step_new(enum step_type type, struct msg_id id, size_t text_len)
{
    struct step *step = mem_new(sizeof *step + text_len + 1);

    step->type = type;
    step->id = id;
    return step;
}

static void step_free(struct step *step)
{
    if (step->type == STEP_PUT_OFF) {
        mem_free(step->put_off.ns);
        mem_free(step->put_off.park_key);
    } else if (step->type == STEP_PASS_END) {
        mem_free(step->pass_end.park_key);
        waiting_fini(&step->pass_end.waiting);
    }
    mem_free(step);
}

void batch_fini(struct batch *b)
{
    struct step *step;

    if (batch_is_blocked(b)) {
        log_error("results could not be stored: some mail will be delivered again");
    }
    while ((step = STAILQ_FIRST(&b->redo)) != NULL) {
        STAILQ_REMOVE_HEAD(&b->redo, next);
        step_free(step);
    }
}

/* ---- steps ----------------------------------------------------------------------------------- */

bool batch_refused(int rc)
{
    return rc == -EINVAL || rc == -EBADMSG || rc == -ENOENT || rc == -EROFS;
}

/* Do to the spool what the step says. */
static int step_apply(struct queue *q, struct step *step)
{
    struct spool_message m;
    int rc = 0;

    log_hold(); /* what it says is true when it is committed */
    switch (step->type) {
    case STEP_SUBMISSION:
        break; /* submit_message did it, with the content at hand */
    case STEP_VERDICT:
        rc = spool_read(q->spool, step->id, &m);
        if (rc == 0) {
            rc = spool_settle(q->spool, step->id, step->verdict.n, &step->verdict.v);
        }
        break;
    case STEP_ALL_DONE:
        rc = spool_finish_all_done(q->spool, step->id);
        log_info("%s: removed", step->text);
        break;
    case STEP_PUT_OFF:
        rc = pass_put_off_apply(q, step->id, &step->put_off);
        break;
    case STEP_PASS_END:
        rc = pass_end_apply(q, step->id, &step->pass_end);
        break;
    case STEP_QUARANTINE:
        rc = spool_quarantine(q->spool, step->id, slice_string(step->text));
        break;
    }
    log_hold_end();
    return rc == -ENOENT ? 0 : rc; /* an operator removed it meanwhile: nothing is left to record */
}

/* The spool refused a step. A message whose rows make no sense must not be tried for ever, and
 * never be deleted. Takes the step. */
static void step_refused(struct queue *q, struct step *step)
{
    char text[SPOOL_ID_TEXT_MAX];

    if (step->type == STEP_QUARANTINE) {
        spool_id_print(step->id, text);
        log_error("%s: can't be quarantined: %s", text, spool_error(q->spool));
    } else {
        queue_quarantine(q, step->id, spool_error(q->spool));
    }
    step_free(step);
}

/* Apply it to the open batch and remember it. Takes the step. */
static void add(struct queue *q, struct step *step)
{
    int rc = step_apply(q, step);

    if (batch_refused(rc)) {
        step_refused(q, step);
        return;
    }
    /* Any other error has failed the batch; the commit finds out and sorts it out. */
    STAILQ_INSERT_TAIL(&q->batch.open, step, next);
}

void batch_add_submission(struct queue *q, struct msg_id id, struct active_msg *msg,
                          struct channel *from, uint64_t token, bool repeated)
{
    struct step *step = step_new(STEP_SUBMISSION, id, 0);

    step->submission.msg = msg;
    step->submission.from = from;
    step->submission.token = token;
    step->submission.repeated = repeated;
    add(q, step);
}

void batch_add_verdict(struct queue *q, struct msg_id id, uint32_t n, const struct spool_verdict *v)
{
    size_t text_len = v->status.len + v->diagnostic.len + v->reply.len + v->remote.len +
                      v->tls.len + v->details.len;
    struct step *step = step_new(STEP_VERDICT, id, text_len);
    struct slice *const parts[] = {&step->verdict.v.status, &step->verdict.v.diagnostic,
                                   &step->verdict.v.reply,  &step->verdict.v.remote,
                                   &step->verdict.v.tls,    &step->verdict.v.details};
    char *at = step->text;

    step->verdict.n = n;
    step->verdict.v = *v;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (parts[i]->len > 0) {
            memcpy(at, parts[i]->ptr, parts[i]->len);
        }
        parts[i]->ptr = at;
        at += parts[i]->len;
    }
    add(q, step);
}

void batch_add_all_done(struct queue *q, struct msg_id id, const char *name)
{
    size_t len = strlen(name);
    struct step *step = step_new(STEP_ALL_DONE, id, len);

    memcpy(step->text, name, len);
    add(q, step);
}

void batch_add_put_off(struct queue *q, struct msg_id id, const struct put_off *p)
{
    struct step *step = step_new(STEP_PUT_OFF, id, 0);

    step->put_off = *p;
    add(q, step);
}

void batch_add_pass_end(struct queue *q, struct msg_id id, const struct pass_end *e)
{
    struct step *step = step_new(STEP_PASS_END, id, 0);

    step->pass_end = *e;
    add(q, step);
}

void queue_quarantine(struct queue *q, struct msg_id id, const char *reason)
{
    size_t len = strlen(reason);
    struct step *step = step_new(STEP_QUARANTINE, id, len);
    char text[SPOOL_ID_TEXT_MAX];

    spool_id_print(id, text);
    log_error("%s: quarantined as corrupt: %s", text, reason);
    memcpy(step->text, reason, len);
    queue_drop(q, id);
    add(q, step);
}

bool batch_has(const struct batch *b, struct msg_id id)
{
    const struct step_list *const lists[] = {&b->open, &b->redo};
    const struct step *step;

    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        STAILQ_FOREACH(step, lists[i], next)
        {
            if (step->id.n == id.n) {
                return true;
            }
        }
    }
    return false;
}

void batch_forget_client(struct batch *b, const struct channel *client)
{
    struct step *step;

    STAILQ_FOREACH(step, &b->open, next)
    {
        if (step->type == STEP_SUBMISSION && step->submission.from == client) {
            step->submission.from = NULL;
        }
    }
}

/* ---- the commit ------------------------------------------------------------------------------ */

/* The steps are durable. Clients are answered first and at once: their next messages arrive while
 * this process finds out what becomes of these. */
static void committed(struct queue *q, struct step_list *steps)
{
    struct step *step;
    bool answered = false;

    STAILQ_FOREACH(step, steps, next)
    {
        if (step->type == STEP_SUBMISSION && step->submission.from != NULL) {
            clients_answer(q, step->submission.from, step->submission.token, step->id, 0,
                           step->submission.repeated);
            answered = true;
        }
    }
    if (answered) {
        channel_flush_all();
    }
    while ((step = STAILQ_FIRST(steps)) != NULL) {
        STAILQ_REMOVE_HEAD(steps, next);
        if (step->type == STEP_SUBMISSION && step->submission.msg != NULL) {
            (void)pass_open(q, step->submission.msg, false); /* else it goes back to disk */
        }
        step_free(step);
    }
}

/* Nothing of the steps has happened. */
static void undone(struct queue *q, struct step_list *steps, int rc)
{
    struct step *step;

    while ((step = STAILQ_FIRST(steps)) != NULL) {
        STAILQ_REMOVE_HEAD(steps, next);
        if (step->type != STEP_SUBMISSION) {
            STAILQ_INSERT_TAIL(&q->batch.redo, step, next);
            continue;
        }
        if (step->submission.from != NULL) {
            clients_answer(q, step->submission.from, step->submission.token, step->id, rc,
                           step->submission.repeated);
        }
        if (step->submission.msg != NULL) {
            active_remove(&q->active, step->submission.msg);
        }
        step_free(step);
    }
    clients_storage(&q->clients, false);
}

/* Do the clients of three quarters of the submissions of a usual commit have to send theirs? */
static bool more_will_come(const struct batch *b)
{
    unsigned usual = b->usual_eighths / 8;

    return usual >= BATCH_GATHER_MIN && b->submissions * 4 < usual * 3;
}

/* How many came with this commit, for the average of late. */
static void note_submissions(struct batch *b)
{
    int change = ((int)(b->submissions * 8) - (int)b->usual_eighths) / 4;

    if (b->submissions > 0) {
        b->usual_eighths = (unsigned)((int)b->usual_eighths + change);
    }
    b->submissions = 0;
}

bool batch_may_wait(struct queue *q)
{
    struct batch *b = &q->batch;
    struct step *step;

    if (q->role->stopping || !spool_dirty(q->spool) || import_is_due(&q->import) ||
        spool_concludes(q->spool)) {
        return false;
    }
    b->submissions = 0;
    STAILQ_FOREACH(step, &b->open, next)
    {
        b->submissions += step->type == STEP_SUBMISSION;
    }
    if (b->submissions > 0 && !more_will_come(b)) {
        return false;
    }
    if (b->submissions > 0 && !b->gathers) {
        b->gathers = true;
        b->commit_by = mono_after(clock_mono(), BATCH_GATHER_US);
    } else if (b->commit_by.us == 0) {
        b->commit_by = mono_after(clock_mono(), BATCH_WAIT_US);
    }
    return !mono_reached(b->commit_by, clock_mono());
}

struct mono batch_commit_at(const struct batch *b)
{
    return b->commit_by.us != 0 ? b->commit_by : clock_mono();
}

int batch_commit(struct queue *q)
{
    struct step_list steps = STAILQ_HEAD_INITIALIZER(steps);
    const struct step *step;
    struct mono begun;
    int64_t count = 0;
    int rc;

    STAILQ_FOREACH(step, &q->batch.open, next)
    {
        count++;
    }
    STAILQ_CONCAT(&steps, &q->batch.open);
    q->batch.commit_by.us = 0;
    q->batch.gathers = false;
    note_submissions(&q->batch);
    begun = clock_mono();
    if (!batch_is_blocked(&q->batch)) {
        journal_write(q);
    }
    rc = spool_commit(q->spool);
    journal_done(q, rc == 0);
    if (rc == 0) {
        log_held_write();
        if (count > 0) {
            q->batch.commits++;
            measure_add(&q->measures.commit_time, &measure_commits, clock_mono().us - begun.us);
            measure_add(&q->measures.batch_steps, &measure_sizes, count);
        }
        committed(q, &steps);
        return 0;
    }
    log_held_drop();
    log_error("commit failed, nothing of it is acknowledged: %s", spool_error(q->spool));
    undone(q, &steps, rc);
    batch_redo(q);
    queue_flow_update(
        q); /* a full disk has cost the spool its reserve: no new mail before it is back */
    q->next_check = mono_after(clock_mono(), QUEUE_CHECK_PERIOD_US);
    return rc;
}

enum redo_end {
    REDO_STORED,
    REDO_DROPPED, /* it can't be stored */
    REDO_FAILED,  /* the storage fails: all steps wait on */
};

/* Takes the step, unless it failed. */
static enum redo_end step_redo(struct queue *q, struct step *step)
{
    int rc, applied;

    rc = applied = step_apply(q, step);
    if (!batch_refused(rc)) {
        int end;

        journal_write(q); /* events of all steps: a crash now has them done, and told, again */
        end = spool_commit(q->spool); /* also ends a batch that failed */
        journal_done(q, end == 0);
        rc = rc != 0 ? rc : end;
    }
    if (rc == 0) {
        log_held_write();
    } else {
        log_held_drop(); /* it is said when it is done again */
    }
    if (applied == -EUCLEAN) {
        /* Its pages are damaged; results of other messages can still be stored. Each further
         * try of the message would deliver it once more. */
        log_error("a result can't be stored, its message may be sent again after the next "
                  "start: %s",
                  spool_error(q->spool));
        queue_drop(q, step->id);
        damage_hide(q, step->id, spool_error(q->spool), false);
        step_free(step);
        return REDO_DROPPED;
    }
    if (rc == 0) {
        step_free(step);
        return REDO_STORED;
    }
    if (batch_refused(rc)) {
        step_refused(q, step); /* its quarantine joins the next batch */
        return REDO_DROPPED;
    }
    return REDO_FAILED;
}

void batch_redo(struct queue *q)
{
    struct step *step;
    bool stored = false;

    while ((step = STAILQ_FIRST(&q->batch.redo)) != NULL) {
        STAILQ_REMOVE_HEAD(&q->batch.redo, next);
        switch (step_redo(q, step)) {
        case REDO_STORED:
            stored = true;
            break;
        case REDO_DROPPED:
            break;
        case REDO_FAILED: /* later ones may build on it */
            STAILQ_INSERT_HEAD(&q->batch.redo, step, next);
            return;
        }
    }
    if (stored && !q->clients.flow.storage_ok) {
        log_info("storage works again");
        clients_storage(&q->clients, true);
    }
}
