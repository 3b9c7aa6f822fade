#include "batch.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "clock.h"
#include "log.h"
#include "mem.h"
#include "pass_end.h"
#include "queue.h"
#include "queue_pass.h"
#include "queue_result.h"
#include "spool_commits.h"
#include "spool_conclusion.h"

/* Recipients of deliveries_apply that are read in one call. */
#define DELIVERED_PAGE 100

enum step_type {
    STEP_SUBMISSION,
    STEP_VERDICT,
    STEP_ALL_DONE,
    STEP_PUT_OFF,
    STEP_PASS_END,
    STEP_QUARANTINE,
    STEP_DELIVERED,
    STEP_WAITER,
};

struct step {
    STAILQ_ENTRY(step) next;
    enum step_type type;
    struct msg_id id;
    bool was_alone; /* has failed in a commit of its own */
    union {
        struct {
            struct channel *from; /* NULL: the client is gone */
            uint64_t token;
            bool repeated;
            uint64_t size;
            uint64_t replaces; /* entry whose recipients were taken over; 0: none */
            struct active_msg *msg;
        } submission;
        struct {
            uint32_t n;
            struct spool_verdict v; /* its slices point into `text` */
        } verdict;
        struct put_off put_off;
        struct pass_end pass_end;
        struct {
            uint32_t *ns; /* owned; sorted */
            size_t count; /* 0: all that are pending */
        } delivered;
        struct {
            batch_ended *ended;
            void *arg;
        } waiter;
    };
    char text[]; /* reason of STEP_QUARANTINE, name of STEP_ALL_DONE, slices of STEP_VERDICT */
};

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
    } else if (step->type == STEP_DELIVERED) {
        mem_free(step->delivered.ns);
    }
    mem_free(step);
}

/* ---- steps ----------------------------------------------------------------------------------- */

bool batch_refused(int rc)
{
    return rc == -EINVAL || rc == -EBADMSG || rc == -ENOENT || rc == -EROFS;
}

static int compare_numbers(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return (x > y) - (x < y);
}

/* Stores deliveries of an earlier process (unstored.h). Its replies are no longer known. */
static int deliveries_apply(struct queue *q, const struct step *step)
{
    struct spool_rcpt page[DELIVERED_PAGE];
    uint32_t after = 0;
    size_t count = 0;
    int rc;

    do {
        uint32_t ns[DELIVERED_PAGE];
        bool wants_notice[DELIVERED_PAGE];

        rc = spool_read_rcpts(q->spool, step->id, after, true, DELIVERED_PAGE, page, &count);
        for (size_t i = 0; rc == 0 && i < count; i++) { /* spool_settle invalidates the page */
            ns[i] = page[i].n;
            wants_notice[i] = (page[i].notify & NOTIFY_SUCCESS) != 0;
        }
        for (size_t i = 0; rc == 0 && i < count; i++) {
            struct spool_verdict v = {.done = !wants_notice[i],
                                      .state = SPOOL_RCPT_DELIVERED,
                                      .status = SLICE("2.0.0"),
                                      .diagnostic = SLICE("delivered"),
                                      .when = clock_wall(),
                                      .attempted = true};

            after = ns[i];
            if (step->delivered.count == 0 ||
                bsearch(&ns[i], step->delivered.ns, step->delivered.count, sizeof ns[0],
                        compare_numbers) != NULL) {
                rc = spool_settle(q->spool, step->id, ns[i], &v);
            }
        }
    } while (rc == 0 && count == DELIVERED_PAGE);
    return rc;
}

/* Applies the step to the spool. */
static int step_apply(struct queue *q, struct step *step)
{
    struct spool_message m;
    char id[SPOOL_ID_TEXT_MAX];
    int rc = 0;

    log_hold(); /* its log lines are true once it is committed */
    switch (step->type) {
    case STEP_SUBMISSION:
    case STEP_WAITER:
        break; /* applied by submit_message, which has the content, or by the waiter's owner */
    case STEP_VERDICT:
        rc = spool_read(q->spool, step->id, &m);
        if (rc == 0) {
            rc = spool_settle(q->spool, step->id, step->verdict.n, &step->verdict.v);
        }
        break;
    case STEP_ALL_DONE:
        rc = spool_finish_all_done(q->spool, step->id);
        if (step->text[0] != '\0') {
            log_info("%s: removed", step->text);
        } else {
            import_now(&q->import); /* the last part may have ended */
        }
        break;
    case STEP_PUT_OFF:
        rc = pass_put_off_apply(q, step->id, &step->put_off);
        break;
    case STEP_PASS_END:
        rc = pass_end_apply(q, step->id, &step->pass_end);
        break;
    case STEP_QUARANTINE:
        rc = spool_quarantine(q->spool, step->id, slice_string(step->text));
        if (rc == 0) {
            spool_id_print(step->id, id);
            log_error("%s: quarantined as corrupt: %s", id, step->text);
        }
        break;
    case STEP_DELIVERED:
        rc = deliveries_apply(q, step);
        break;
    }
    log_hold_end();
    /* Removed by an operator, or owned by another node: no result needs to be stored. */
    return rc == -ENOENT || rc == -EROFS ? 0 : rc;
}

/* Handles a refusal of the spool, and takes the step. A message with damaged rows must not be tried
 * for ever, and never be deleted. */
static void step_refused(struct queue *q, struct step *step)
{
    char text[SPOOL_ID_TEXT_MAX];

    if (step->type == STEP_QUARANTINE) {
        spool_id_print(step->id, text);
        log_error("%s: can't be quarantined: %s", text, spool_error(q->spool));
    } else {
        damage_drop(q, step->id);
        queue_quarantine(q, step->id, spool_error(q->spool));
    }
    step_free(step);
}

static bool list_has(const struct step_list *steps, struct msg_id id)
{
    const struct step *step;

    STAILQ_FOREACH(step, steps, next)
    {
        if (step->id.n == id.n) {
            return true;
        }
    }
    return false;
}

static void each_delivery(const struct step *step, void (*each)(void *arg, uint32_t n), void *arg)
{
    if (step->type == STEP_ALL_DONE ||
        (step->type == STEP_DELIVERED && step->delivered.count == 0)) {
        each(arg, 0);
    } else if (step->type == STEP_VERDICT &&
               (step->verdict.v.done || step->verdict.v.state == SPOOL_RCPT_DELIVERED ||
                step->verdict.v.state == SPOOL_RCPT_RELAYED)) {
        each(arg, step->verdict.n); /* also a failure without a bounce */
    } else if (step->type == STEP_DELIVERED) {
        for (size_t i = 0; i < step->delivered.count; i++) {
            each(arg, step->delivered.ns[i]);
        }
    }
}

void batch_each_delivery(const struct step_list *steps, void (*each)(void *arg, uint32_t n),
                         void *arg)
{
    const struct step *step;

    STAILQ_FOREACH(step, steps, next)
    {
        each_delivery(step, each, arg);
    }
}

void batch_make_deliveries(struct msg_id id, const uint32_t *ns, size_t count,
                           struct step_list *steps)
{
    struct step *step = step_new(STEP_DELIVERED, id, 0);

    if (count > 0) {
        step->delivered.ns = mem_array(count, sizeof ns[0]);
        memcpy(step->delivered.ns, ns, count * sizeof ns[0]);
        qsort(step->delivered.ns, count, sizeof ns[0], compare_numbers);
    }
    step->delivered.count = count;
    STAILQ_INSERT_TAIL(steps, step, next);
}

/* Stores the delivery outside the spool, so that a restart does not repeat it. */
static void note_delivery(struct queue *q, struct step *step)
{
    struct step_list one = STAILQ_HEAD_INITIALIZER(one);

    STAILQ_INSERT_TAIL(&one, step, next);
    unstored_add(q, step->id, &one);
}

/* Applies the step to the open batch. An error that is not the step's alone fails the batch: the
 * engine does that for changes, but not for the reads before them. */
static int apply(struct queue *q, struct step *step)
{
    int rc = step_apply(q, step);

    if (rc != 0 && rc != -EAGAIN && !batch_refused(rc)) {
        spool_lose_batch(q->spool, rc);
    }
    return rc;
}

/* Applies the step to the open batch and keeps it. Takes the step. */
static void add(struct queue *q, struct step *step)
{
    struct step_list *resting = damage_results(&q->damage, step->id);
    struct batch *b = &q->batch;
    int rc;

    if (resting != NULL) {
        note_delivery(q, step);
        STAILQ_INSERT_TAIL(resting, step, next); /* depends on the unsaved results */
        return;
    }
    if (batch_is_blocked(b)) {
        STAILQ_INSERT_TAIL(&b->redo, step, next);
        return;
    }
    rc = !STAILQ_EMPTY(&b->waits) && list_has(&b->waits, step->id) ? -EAGAIN : apply(q, step);
    if (rc == -EAGAIN) {
        STAILQ_INSERT_TAIL(&b->waits, step, next);
        return;
    }
    if (batch_refused(rc)) {
        step_refused(q, step);
        return;
    }
    /* Any other error has failed the batch, and its commit returns the error. */
    STAILQ_INSERT_TAIL(&b->open, step, next);
}

void batch_at_hand(struct queue *q)
{
    struct batch *b = &q->batch;
    struct step_list waits = STAILQ_HEAD_INITIALIZER(waits);
    struct step *step;

    STAILQ_CONCAT(&waits, &b->waits);
    while ((step = STAILQ_FIRST(&waits)) != NULL) {
        STAILQ_REMOVE_HEAD(&waits, next);
        add(q, step);
    }
    b->redo_goes_on = true; /* a repeated step may have waited for the data, too */
}

static void drop_from(struct step_list *steps, struct msg_id id)
{
    struct step *step, *after;
    char text[SPOOL_ID_TEXT_MAX];

    for (step = STAILQ_FIRST(steps); step != NULL; step = after) {
        after = STAILQ_NEXT(step, next);
        if (step->id.n == id.n && step->type != STEP_SUBMISSION && step->type != STEP_WAITER) {
            spool_id_print(id, text);
            log_warning("%s: another node has it now: what was delivered may be delivered again",
                        text);
            STAILQ_REMOVE(steps, step, step, next);
            step_free(step);
        }
    }
}

void batch_drop(struct queue *q, struct msg_id id)
{
    drop_from(&q->batch.waits, id);
    drop_from(&q->batch.redo, id);
    damage_drop(q, id); /* also its unsaved results */
}

void batch_add_submission(struct queue *q, struct msg_id id, struct active_msg *msg,
                          struct channel *from, uint64_t token, bool repeated, uint64_t size,
                          uint64_t replaces)
{
    struct step *step = step_new(STEP_SUBMISSION, id, 0);

    q->batch.waiting++;
    q->batch.waiting_size += size;
    step->submission.size = size;
    step->submission.replaces = replaces;
    step->submission.msg = msg;
    step->submission.from = from;
    step->submission.token = token;
    step->submission.repeated = repeated;
    q->batch.submissions++;
    STAILQ_INSERT_TAIL(&q->batch.open, step, next); /* the spool's open batch has it already */
}

bool batch_is_full(struct queue *q, uint64_t size)
{
    struct batch *b = &q->batch;
    bool is_slow = b->under_way_count > 0 &&
                   clock_mono().us - b->under_way[b->under_way_first].begun.us >= BATCH_SLOW_US;

    if (!is_slow || (b->waiting < BATCH_WAITING_MAX && size <= BATCH_WAITING_SIZE &&
                     b->waiting_size <= BATCH_WAITING_SIZE - size)) {
        return false;
    }
    if (!b->is_full) {
        b->is_full = true;
        log_warning("%u messages of %" PRIu64 " bytes wait for a slow commit: more is refused",
                    b->waiting, b->waiting_size);
    }
    return true;
}

void batch_add_waiter(struct queue *q, batch_ended *ended, void *arg)
{
    struct step *step = step_new(STEP_WAITER, (struct msg_id){0}, 0);

    step->waiter.ended = ended;
    step->waiter.arg = arg;
    STAILQ_INSERT_TAIL(&q->batch.open, step, next);
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

    memcpy(step->text, reason, len);
    queue_drop(q, id);
    add(q, step);
}

/* Returns the index of the i-th commit in flight, from the oldest. */
static unsigned slot(const struct batch *b, unsigned i)
{
    return (b->under_way_first + i) % BATCH_COMMITS_MAX;
}

bool batch_has(const struct batch *b, struct msg_id id)
{
    bool has = list_has(&b->open, id) || list_has(&b->redo, id) || list_has(&b->waits, id);

    for (unsigned i = 0; i < b->under_way_count && !has; i++) {
        const struct batch_commit *c = &b->under_way[slot(b, i)];

        has = list_has(&c->steps, id) || (c->redo != NULL && c->redo->id.n == id.n);
    }
    return has;
}

static void forget_client(struct step_list *steps, const struct channel *client)
{
    struct step *step;

    STAILQ_FOREACH(step, steps, next)
    {
        if (step->type == STEP_SUBMISSION && step->submission.from == client) {
            step->submission.from = NULL;
        }
    }
}

void batch_forget_client(struct batch *b, const struct channel *client)
{
    forget_client(&b->open, client);
    for (unsigned i = 0; i < b->under_way_count; i++) {
        forget_client(&b->under_way[slot(b, i)].steps, client);
    }
}

/* ---- how a commit ends ----------------------------------------------------------------------- */

static void waits_no_more(struct batch *b, const struct step *step)
{
    if (step->type == STEP_SUBMISSION) {
        b->waiting--;
        b->waiting_size -= step->submission.size;
    }
}

/* Handles the end of a successful commit. Clients get their answers first, so that they send the
 * next messages while this process opens the committed ones. */
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
        waits_no_more(&q->batch, step);
        if (step->type == STEP_SUBMISSION && step->submission.replaces != 0) {
            queue_delivery_replaced(q, step->submission.replaces);
        }
        if (step->type == STEP_SUBMISSION && step->submission.msg != NULL) {
            (void)pass_open(q, step->submission.msg, false); /* else it stays on disk */
        } else if (step->type == STEP_WAITER) {
            step->waiter.ended(q, step->waiter.arg, 0);
        }
        step_free(step);
    }
}

/* Handles steps that were undone. */
static void undone(struct queue *q, struct step_list *steps, int rc)
{
    struct step *step;

    while ((step = STAILQ_FIRST(steps)) != NULL) {
        STAILQ_REMOVE_HEAD(steps, next);
        waits_no_more(&q->batch, step);
        if (step->type == STEP_WAITER) {
            step->waiter.ended(q, step->waiter.arg, rc);
            step_free(step);
            continue;
        }
        if (step->type != STEP_SUBMISSION) {
            STAILQ_INSERT_TAIL(&q->batch.redo, step, next);
            continue;
        }
        if (step->submission.replaces != 0) {
            queue_delivery_not_replaced(q, step->submission.replaces,
                                        step->submission.from == NULL);
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
}

/* Keeps the results of a message that can't be stored because of damaged pages or foreign rows,
 * with all its steps in REDO. The message is dropped from memory, because each further delivery
 * would be repeated. Takes the step. */
static void redo_rest(struct queue *q, struct step *step)
{
    struct step_list results = STAILQ_HEAD_INITIALIZER(results), *redo = &q->batch.redo;
    struct step *later, *after;
    struct msg_id id = step->id;

    STAILQ_INSERT_TAIL(&results, step, next);
    for (later = STAILQ_FIRST(redo); later != NULL; later = after) {
        after = STAILQ_NEXT(later, next);
        if (later->id.n == id.n) {
            STAILQ_REMOVE(redo, later, step, next);
            STAILQ_INSERT_TAIL(&results, later, next);
        }
    }
    queue_drop(q, id);
    unstored_add(q, id, &results);
    damage_rest(q, id, spool_error(q->spool), &results);
}

/* Removes the oldest commit from the ring. Its slot is valid until the next commit begins. */
static struct batch_commit *take_oldest(struct batch *b)
{
    struct batch_commit *oldest = &b->under_way[slot(b, 0)];

    CHECK(b->under_way_count > 0);
    b->under_way_count--;
    b->under_way_first = (b->under_way_first + 1) % BATCH_COMMITS_MAX;
    return oldest;
}

/* Do commits end later? If not, log lines stay in the log's own list. */
static bool ends_later(const struct queue *q)
{
    return spool_commits_fd(q->spool) >= 0;
}

static void redo_ended(struct queue *q, struct step *step, int step_rc, int rc)
{
    struct batch *b = &q->batch;

    b->redo_applies = false;
    rc = step_rc != 0 ? step_rc : rc;
    if (rc == -EUCLEAN && !step->was_alone && !ends_later(q)) {
        /* The engine may have found damage outside the message, and avoids it in the next
         * commit. */
        step->was_alone = true;
        STAILQ_INSERT_HEAD(&b->redo, step, next);
    } else if (rc == -EUCLEAN) {
        redo_rest(q, step);
    } else if (rc == 0) {
        damage_stored(q, step->id, !list_has(&b->redo, step->id));
        step_free(step);
    } else if (batch_refused(rc)) {
        step_refused(q, step); /* a later batch has its quarantine */
    } else {
        STAILQ_INSERT_HEAD(&b->redo, step, next); /* later steps may depend on it */
        b->redo_goes_on = false;
    }
}

static unsigned enough(const struct queue *q)
{
    return ends_later(q) ? BATCH_ENOUGH_LATER : BATCH_ENOUGH;
}

/* Lets the next commit wait for more submissions, if many have arrived during this one: there are
 * more clients than it had. */
static void space_out(struct batch *b, const struct batch_commit *c)
{
    if (b->under_way_count == 0 && b->submissions >= BATCH_GATHER_MIN &&
        b->submissions * 4 >= c->submissions) {
        b->is_spaced = true;
        b->commit_by = mono_after(clock_mono(), b->space_us);
    }
}

/* Writes the log lines, and before them the deliveries that a restart must find outside the
 * spool. */
static void write_lines(struct queue *q)
{
    bool all_stored = !batch_is_blocked(&q->batch);

    if (all_stored) {
        (void)unstored_sync(q, false); /* a failure is logged, and tried again */
    }
    log_held_write(all_stored);
}

static void succeeded(struct queue *q, struct batch_commit *c)
{
    struct step_list steps = STAILQ_HEAD_INITIALIZER(steps);
    int64_t count = 0, took = clock_mono().us - c->begun.us;
    const struct step *step;

    q->batch.is_full = false;
    if (ends_later(q)) {
        q->batch.space_us = took < BATCH_SPACE_US ? took : BATCH_SPACE_US;
    }
    STAILQ_CONCAT(&steps, &c->steps);
    if (c->redo_rc != 0 && !ends_later(q)) {
        log_held_drop(); /* logged when it is repeated */
    } else if (c->redo_rc != 0) {
        log_held_drop_taken(&c->log_lines);
    } else if (ends_later(q)) {
        log_held_write_taken(&c->log_lines, STAILQ_EMPTY(&q->batch.redo));
        import_now(&q->import); /* messages that it has changed can be claimed now */
    } else {
        write_lines(q);
    }
    STAILQ_FOREACH(step, &steps, next)
    {
        count++;
    }
    q->batch.works = q->batch.works || count > 0 || (c->redo != NULL && c->redo_rc == 0);
    if (count > 0) {
        q->batch.commits++;
        measure_add(&q->measures.commit_time, &measure_commits, took);
        measure_add(&q->measures.batch_steps, &measure_sizes, count);
    }
    if (q->batch.is_late && !batch_is_blocked(&q->batch)) {
        q->batch.is_late = false;
        log_info("storage works again");
        clients_storage(&q->clients, true);
    }
    if (c->redo != NULL) {
        redo_ended(q, c->redo, c->redo_rc, 0);
    }
    space_out(&q->batch, c);
    committed(q, &steps);
}

/* Handles the failure of the oldest commit, with which all later ones were undone. */
static void failed(struct queue *q, int rc)
{
    struct step_list open = STAILQ_HEAD_INITIALIZER(open);
    bool is_first = true, is_damage = rc == -EUCLEAN;

    STAILQ_CONCAT(&open, &q->batch.open);
    q->batch.submissions = 0;
    q->batch.works = false;
    log_held_drop();
    if (!is_damage && !q->batch.failure_told) {
        q->batch.failure_told = true;
        log_error("commit failed, nothing of it is acknowledged: %s", spool_error(q->spool));
    }
    do {
        struct step_list steps = STAILQ_HEAD_INITIALIZER(steps);
        struct batch_commit *c = take_oldest(&q->batch);
        bool is_redo = c->redo != NULL;

        CHECK(rc != 0);
        if (is_first && !is_redo) {
            q->batch.redo_goes_on = true;
        }
        is_first = false;
        if (ends_later(q)) {
            log_held_drop_taken(&c->log_lines);
        }
        STAILQ_CONCAT(&steps, &c->steps);
        if (is_redo) {
            redo_ended(q, c->redo, c->redo_rc, rc);
        }
        undone(q, &steps, rc);
    } while (spool_commit_end(q->spool, &rc));
    CHECK(q->batch.under_way_count == 0);
    undone(q, &open, -ECANCELED);
    q->batch.is_late = false;
    if (is_damage) {
        return; /* it concerns single messages, which the repeated steps will show */
    }
    clients_storage(&q->clients, false);
    queue_flow_update(
        q); /* after a full disk the spool has no reserve: no mail is accepted until it is back */
    q->next_check = mono_after(clock_mono(), QUEUE_CHECK_PERIOD_US);
}

static void take_ends(struct queue *q)
{
    int rc;

    while (spool_commit_end(q->spool, &rc)) {
        journal_done(q, rc == 0);
        if (rc == 0) {
            succeeded(q, take_oldest(&q->batch));
        } else {
            failed(q, rc);
        }
    }
}

static void answer_submissions(struct queue *q, struct step_list *steps, int rc)
{
    struct step *step;

    STAILQ_FOREACH(step, steps, next)
    {
        if (step->type == STEP_SUBMISSION && step->submission.from != NULL &&
            step->submission.replaces == 0) {
            clients_answer(q, step->submission.from, step->submission.token, step->id, rc,
                           step->submission.repeated);
            step->submission.from = NULL;
        }
    }
}

/* Refuses submissions for now if a database does not answer within BATCH_PATIENCE_US. A submission
 * that replaces mail has no waiting client, and its result must be known. */
static void answer_late(struct queue *q)
{
    struct batch *b = &q->batch;

    if (b->under_way_count == 0 ||
        clock_mono().us - b->under_way[slot(b, 0)].begun.us < BATCH_PATIENCE_US) {
        return;
    }
    for (unsigned i = 0; i < b->under_way_count; i++) {
        answer_submissions(q, &b->under_way[slot(b, i)].steps, -ETIMEDOUT);
    }
    answer_submissions(q, &b->open, -ETIMEDOUT); /* the commits in flight may take as long again */
    if (!b->is_late) {
        b->is_late = true;
        log_error("a commit does not end: no mail is accepted before it does");
        clients_storage(&q->clients, false);
    }
}

/* ---- when a commit begins -------------------------------------------------------------------- */

/* Are fewer than three quarters of a usual commit's submissions in the open batch? */
static bool more_will_come(const struct batch *b)
{
    unsigned usual = b->usual_eighths / 8;

    return usual >= BATCH_GATHER_MIN && b->submissions * 4 < usual * 3;
}

/* Updates the average number of submissions per commit. */
static void note_submissions(struct batch *b)
{
    int change = ((int)(b->submissions * 8) - (int)b->usual_eighths) / 4;

    if (b->submissions > 0) {
        b->usual_eighths = (unsigned)((int)b->usual_eighths + change);
    }
    b->submissions = 0;
}

static int64_t longer(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Should the commit wait for a later turn? */
static bool may_wait(struct queue *q)
{
    struct batch *b = &q->batch;

    if (q->role->stopping || !spool_dirty(q->spool) || spool_concludes(q->spool) ||
        (import_is_due(&q->import) && !ends_later(q))) { /* import waits for its end */
        return false;
    }
    if (b->submissions >= enough(q)) {
        return false;
    }
    if (b->submissions > 0 && !b->is_spaced && !more_will_come(b)) {
        return false;
    }
    if (b->submissions > 0 && !b->is_spaced && !b->gathers) {
        b->gathers = true;
        b->commit_by = mono_after(clock_mono(), longer(BATCH_GATHER_US, b->space_us));
    } else if (b->commit_by.us == 0) {
        b->commit_by = mono_after(clock_mono(), longer(BATCH_WAIT_US, b->space_us));
    }
    return !mono_reached(b->commit_by, clock_mono());
}

/* Is there anything to commit? */
static bool has_open(const struct queue *q)
{
    return spool_dirty(q->spool) || spool_commit_is_wanted(q->spool) ||
           !STAILQ_EMPTY(&q->batch.open) || journal_waits(q);
}

/* Can a commit begin? Commits become durable one after the other: while one is in flight, a small
 * batch would not end earlier, and can still grow. */
static bool can_begin(const struct queue *q)
{
    const struct batch *b = &q->batch;
    unsigned max = spool_commits_max(q->spool);

    return b->under_way_count < (max < BATCH_COMMITS_MAX ? max : BATCH_COMMITS_MAX) &&
           (b->under_way_count == 0 || b->submissions >= enough(q));
}

/* Commits the open batch. `redo`, which is taken, is the step that was repeated in it, or NULL. */
static void begin(struct queue *q, struct step *redo, int redo_rc)
{
    struct batch *b = &q->batch;
    struct batch_commit *c = &b->under_way[slot(b, b->under_way_count)];

    STAILQ_INIT(&c->steps);
    STAILQ_CONCAT(&c->steps, &b->open);
    c->submissions = b->submissions;
    c->redo = redo;
    c->redo_rc = redo_rc;
    c->begun = clock_mono();
    b->under_way_count++;
    b->wanted = false;
    b->commit_by.us = 0;
    b->gathers = b->is_spaced = false;
    note_submissions(b);
    /* A commit with a repeated step has the events of all waiting steps. A crash now repeats the
     * other steps and their events. */
    journal_write(q, redo != NULL || !batch_is_blocked(b));
    spool_commit_begin(q->spool);
    if (ends_later(q)) {
        log_held_take(&c->log_lines);
    }
}

static void redo_first(struct queue *q)
{
    struct batch *b = &q->batch;
    struct step *step = STAILQ_FIRST(&b->redo);
    int rc;

    STAILQ_REMOVE_HEAD(&b->redo, next);
    b->redo_applies = true;
    rc = apply(q, step);
    if (!batch_refused(rc)) {
        begin(q, step, rc); /* a failed batch needs a commit, too */
        return;
    }
    log_held_drop();
    b->redo_applies = false;
    step_refused(q, step);
}

/* Handles ended commits, and begins those that can begin. */
static void go_on(struct queue *q)
{
    struct batch *b = &q->batch;

    if (b->is_busy) {
        return; /* called by a step that has just ended: the caller continues */
    }
    b->is_busy = true;
    for (;;) {
        take_ends(q);
        if (!can_begin(q)) {
            break;
        }
        if (b->wanted && has_open(q)) {
            begin(q, NULL, 0);
            continue;
        }
        b->wanted = false;
        if (STAILQ_EMPTY(&b->redo) || !b->redo_goes_on || b->under_way_count > 0) {
            break;
        }
        if (has_open(q)) {
            begin(q, NULL, 0); /* steps that depend on none of these */
        } else {
            redo_first(q);
        }
    }
    b->is_busy = false;
    if (batch_is_blocked(b)) {
        return;
    }
    if (b->works && (b->failure_told || !q->clients.commits_work)) {
        b->failure_told = false;
        log_info("storage works again");
        if (!q->clients.commits_work) {
            clients_storage(&q->clients, true);
        }
    }
    if (!has_open(q) && b->under_way_count == 0) {
        write_lines(q); /* of unsaved results, or of the last repeated step */
    }
}

void batch_commit(struct queue *q)
{
    q->batch.wanted = true;
    go_on(q);
}

void batch_turn(struct queue *q)
{
    go_on(q); /* ended commits decide how long to wait */
    if (can_begin(q) && !may_wait(q)) {
        q->batch.wanted = true;
        go_on(q);
    }
    answer_late(q);
}

void batch_add_again(struct queue *q, struct step_list *steps)
{
    STAILQ_CONCAT(&q->batch.redo, steps);
}

void batch_redo(struct queue *q)
{
    q->batch.redo_goes_on = true;
    go_on(q);
}

struct mono batch_wake_at(const struct queue *q)
{
    const struct batch *b = &q->batch;

    if (b->under_way_count > 0 && !b->is_late) {
        return mono_min(mono_after(b->under_way[slot(b, 0)].begun, BATCH_PATIENCE_US),
                        spool_dirty(q->spool) && can_begin(q)
                            ? (b->commit_by.us != 0 && !b->wanted ? b->commit_by : clock_mono())
                            : MONO_NEVER);
    }
    if (!spool_dirty(q->spool) || !can_begin(q)) {
        return MONO_NEVER; /* the end of a commit in flight wakes the process */
    }
    return b->commit_by.us != 0 && !b->wanted ? b->commit_by : clock_mono();
}

bool batch_is_idle(const struct queue *q)
{
    return q->batch.under_way_count == 0 && !spool_dirty(q->spool) && STAILQ_EMPTY(&q->batch.waits);
}

bool batch_drain(struct queue *q, int64_t wait_us)
{
    for (;;) {
        int64_t wait = wait_us < US_PER_S ? wait_us : US_PER_S;

        batch_commit(q);
        if (q->batch.under_way_count == 0) {
            return true;
        }
        if (wait <= 0) {
            return false;
        }
        wait_us -= spool_commits_wait(q->spool, wait) ? 0 : wait;
        clock_update();
    }
}

/* ---- the whole ------------------------------------------------------------------------------- */

void batch_init(struct batch *b)
{
    *b = (struct batch){.commits = 0};
    STAILQ_INIT(&b->open);
    STAILQ_INIT(&b->redo);
    STAILQ_INIT(&b->waits);
}

static void forget(struct queue *q, struct step_list *steps)
{
    struct step *step;

    while ((step = STAILQ_FIRST(steps)) != NULL) {
        STAILQ_REMOVE_HEAD(steps, next);
        if (step->type == STEP_WAITER) {
            step->waiter.ended(q, step->waiter.arg, -ECANCELED);
        }
        note_delivery(q, step);
        step_free(step);
    }
}

void batch_end(struct queue *q)
{
    struct batch *b = &q->batch;
    bool is_left = batch_is_blocked(b) || !STAILQ_EMPTY(&b->waits) || q->damage.resting > 0;
    bool is_under_way = b->under_way_count > 0;

    b->is_busy = true; /* no commit begins from here on */
    while (b->under_way_count > 0) {
        struct batch_commit *c = take_oldest(b);

        log_held_drop_taken(&c->log_lines);
        if (c->redo != NULL) {
            step_free(c->redo);
        }
        forget(q, &c->steps);
    }
    forget(q, &b->waits);
    forget(q, &b->redo);
    forget(q, &b->open);
    if (is_left && unstored_sync(q, true) && q->unstored.path != NULL) {
        log_error("results could not be stored: they are kept in %s, and their mail waits",
                  q->unstored.path);
    } else if (is_left) {
        log_error("results could not be stored: some mail will be delivered again");
    } else if (is_under_way) {
        log_error("commits have not ended within shutdown_timeout: some mail may be delivered "
                  "again, or sent to us again");
    }
    log_held_drop();
    log_held_write(true);
}

void batch_free_steps(struct step_list *steps)
{
    struct step *step;

    while ((step = STAILQ_FIRST(steps)) != NULL) {
        STAILQ_REMOVE_HEAD(steps, next);
        step_free(step);
    }
}
