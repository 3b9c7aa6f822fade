#include "auditor.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "clock.h"
#include "heap.h"
#include "log.h"
#include "mem.h"
#include "park_key.h"
#include "queue.h"
#include "spool_others.h"
#include "spool_search.h"

/* Things examined in a step, at least and at most. */
#define BUDGET_MIN 200
#define BUDGET_MAX 5000
/* Rows and keys that a step reads from the spool. */
#define ROWS_PER_STEP 100
#define FAULTS_MAX    16
/* Shortest time from the start of a round to the start of the next one. */
#define ROUND_PAUSE_US (20 * US_PER_S)
/* Due mail was overlooked if there is room and it is not read for this long. */
#define OVERDUE_US (60 * US_PER_S)
/* No configuration defers mail for this long: a later due time is damaged. */
#define FAR_US (INT64_C(3) * 366 * 24 * 3600 * US_PER_S)
/* Longest time for an answer of the queue process, and for a delivery, which every agent limits. */
#define ANSWER_TIMEOUT_US   (60 * US_PER_S)
#define DELIVERY_TIMEOUT_US (24 * 3600 * US_PER_S)

/* Parts of a round; a round ends when all are done. */
enum part {
    PART_SCHEDULER = 1,
    PART_DELIVERIES = 2,
    PART_MESSAGES = 4,
    PART_CLAIMS = 8,
    PART_PARKED = 16,
    PARTS = 31
};

enum kind {
    KIND_FAULT,     /* reported by the scheduler's own search */
    KIND_NO_ENTRY,  /* a delivery that is not in the scheduler */
    KIND_UNSENT,    /* a delivery that was not sent to its agent */
    KIND_LOST,      /* a message in memory that is not in the scheduler */
    KIND_UNCLAIMED, /* a message in memory that is not claimed */
    KIND_CLAIMED,   /* a claimed message that is not in memory */
    KIND_PARKED,    /* a parked key that the scheduler has not got */
    KIND_OVERDUE,   /* due mail that is not read */
    KIND_PASSED,    /* a due message that a search by due time does not find */
};

struct suspect {
    uint64_t kind;
    uint64_t n;    /* n of a message or entry, or hash of a name */
    uint64_t more; /* distinguishes faults with the same `n` */
};

struct suspicion {
    struct suspect key;
    struct mono first;
    uint64_t round; /* last round in which it was found */
    bool told;
    UT_hash_handle hh;
};

void auditor_init(struct auditor *a)
{
    *a = (struct auditor){0};
}

static void suspicion_forget(struct auditor *a, struct suspicion *s)
{
    HASH_DEL(a->suspicions, s);
    mem_free(s);
}

void auditor_fini(struct auditor *a)
{
    struct suspicion *s, *next;

    HASH_ITER(hh, a->suspicions, s, next)
    {
        suspicion_forget(a, s);
    }
    mem_free(a->parked_at);
    a->parked_at = NULL;
}

/* ---- suspicions and findings ---------------------------------------------------------------- */

/* Adds a suspicion, or marks it as found in this round. Returns NULL if there are too many. */
static struct suspicion *suspect(struct queue *q, enum kind kind, uint64_t n, uint64_t more)
{
    struct auditor *a = &q->auditor;
    const struct suspect key = {.kind = kind, .n = n, .more = more};
    struct suspicion *s;

    HASH_FIND(hh, a->suspicions, &key, sizeof key, s);
    if (s == NULL) {
        if (HASH_COUNT(a->suspicions) == AUDIT_SUSPICIONS_MAX) {
            return NULL;
        }
        s = mem_new(sizeof *s);
        s->key = key;
        s->first = clock_mono();
        HASH_ADD(hh, a->suspicions, key, sizeof s->key, s);
    }
    s->round = a->rounds;
    return s;
}

/* Adds or marks a suspicion, as suspect(). Returns true, once, when its first occurrence is
 * AUDIT_CONFIRM_US ago. */
static bool confirmed(struct queue *q, enum kind kind, uint64_t n, uint64_t more)
{
    struct suspicion *s = suspect(q, kind, n, more);

    if (s == NULL || s->told ||
        !mono_reached(mono_after(s->first, AUDIT_CONFIRM_US), clock_mono())) {
        return false;
    }
    s->told = true;
    return true;
}

static void finding(struct queue *q, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void finding(struct queue *q, const char *format, ...)
{
    struct auditor *a = &q->auditor;
    va_list args;

    va_start(args, format);
    (void)vsnprintf(a->last_words, sizeof a->last_words, format, args); /* may be cut */
    va_end(args);
    a->findings++;
    a->last_is_damage = false;
    a->last_finding = clock_wall();
    log_warning("audit: %s", a->last_words);
}

void auditor_tell_damage(struct queue *q, struct msg_id id, const char *why)
{
    char text[SPOOL_ID_TEXT_MAX];

    spool_id_print(id, text);
    finding(q, "%s: it can't be read or changed on disk, and waits for `%s': %s", text,
            spool_has_others(q->spool) ? "sluice cluster check --repair" : "sluice spool repair",
            why);
    q->auditor.last_is_damage = true;
}

/* Counts a repair, and makes the queue process read due mail from the spool at once. */
static void repaired(struct queue *q)
{
    q->auditor.repaired++;
    import_now(&q->import);
}

/* ---- the scheduler -------------------------------------------------------------------------- */

static bool tell_fault(struct queue *q, const struct sched_fault *f)
{
    char id[SPOOL_ID_TEXT_MAX] = "scheduler", numbers[64] = "";
    uint64_t n = f->msg.n != 0 ? f->msg.n : hash_bytes(f->dest.ptr, f->dest.len);
    const struct active_msg *m = active_find(&q->active, (struct msg_id){f->msg.n});

    if (f->type == SCHED_FAULT_UNANSWERED && m != NULL && m->read_max > 0) {
        return false; /* the spool sends an event when its recipients are loaded */
    }
    if (!confirmed(q, KIND_FAULT, n, (uint64_t)(uintptr_t)f->words)) {
        return false;
    }
    if (f->msg.n != 0) {
        spool_id_print((struct msg_id){f->msg.n}, id);
    }
    if (f->type == SCHED_FAULT_COUNT) {
        (void)snprintf(numbers, sizeof numbers, ": %" PRIu64 ", should be %" PRIu64, f->value,
                       f->expected); /* fits */
    } else if (f->value > 0) {
        (void)snprintf(numbers, sizeof numbers, " (%" PRIu64 " s)", f->value); /* fits */
    }
    if (f->dest.len > 0) {
        finding(q, "%s: %s/%.*s: %s%s", id, transport_name(&q->transports, f->transport),
                SLICE_ARGS(f->dest), f->words, numbers);
    } else {
        finding(q, "%s: %s%s", id, f->words, numbers);
    }
    return true;
}

/* Searches the scheduler for faults. Stuck mail is taken out of the scheduler and read again. */
static void look_at_scheduler(struct queue *q, uint32_t budget)
{
    static const struct sched_timeouts timeouts = {.answer_us = ANSWER_TIMEOUT_US,
                                                   .delivery_us = DELIVERY_TIMEOUT_US};
    struct auditor *a = &q->auditor;
    struct sched_fault faults[FAULTS_MAX];
    struct msg_id stuck[FAULTS_MAX];
    uint64_t rounds = a->search.rounds;
    size_t count, stuck_count = 0;

    count = sched_search_faults(q->sched, clock_mono(), &timeouts, &a->search, budget, faults,
                                FAULTS_MAX);
    for (size_t i = 0; i < count; i++) {
        if (tell_fault(q, &faults[i]) && faults[i].type == SCHED_FAULT_STUCK &&
            faults[i].msg.n != 0) {
            stuck[stuck_count++].n = faults[i].msg.n;
        }
    }
    for (size_t i = 0; i < stuck_count; i++) {
        queue_leave(q, stuck[i]);
        repaired(q);
    }
    if (a->search.rounds != rounds) {
        a->parts_done |= PART_SCHEDULER;
    }
}

/* ---- deliveries in flight ------------------------------------------------------------------- */

/* Removes a delivery that the scheduler has not got. Its result would not count, so its recipients
 * are tried again. */
static void forget_delivery(struct queue *q, struct delivery *d)
{
    active_touch(d->msg);
    active_leave(d->msg);
    for (size_t i = 0; i < d->rcpt_count; i++) {
        struct active_rcpt *r = active_find_rcpt(d->msg, d->rcpts[i]);

        if (r != NULL) {
            active_settle_rcpt(d->msg, r);
        }
    }
    delivery_remove(&q->active, d);
}

static void look_at_delivery(struct queue *q, struct delivery *d)
{
    char id[SPOOL_ID_TEXT_MAX];

    spool_id_print(d->msg->id, id);
    if (!sched_is_delivering(q->sched, (struct sched_entry){d->entry})) {
        if (confirmed(q, KIND_NO_ENTRY, d->entry, 0)) {
            finding(q, "%s: a delivery to %s that the scheduler does not know", id, d->dest);
            forget_delivery(q, d);
            repaired(q);
        }
    } else if (agents_overlooked(&q->agents, d) && confirmed(q, KIND_UNSENT, d->entry, 0)) {
        finding(q, "%s: a delivery to %s that no process was given", id, d->dest);
        agents_serve(q, d);
        repaired(q);
    }
}

/* ---- a walk over a table -------------------------------------------------------------------- */

/* Stores elements of the next buckets in `room`, at most `budget`, and returns their number. The
 * caller may then remove elements, which it could not do during the walk. */
static size_t gather(const struct UT_hash_handle *any, uint64_t *cursor, size_t budget,
                     struct UT_hash_handle **room)
{
    size_t count = 0;

    for (size_t looked = 0; looked <= budget / 4 && (looked == 0 || *cursor != 0); looked++) {
        struct UT_hash_handle *hh = hash_bucket(any, cursor);

        for (; hh != NULL && count < budget; hh = hh->hh_next) {
            room[count++] = hh;
        }
    }
    return count;
}

static void look_at_deliveries(struct queue *q, uint32_t budget)
{
    struct auditor *a = &q->auditor;
    const struct delivery *all = q->active.deliveries;
    struct UT_hash_handle **found = mem_array(budget, sizeof(struct UT_hash_handle *));
    uint64_t *entries = mem_array(budget, sizeof *entries);
    size_t count = gather(all != NULL ? &all->hh : NULL, &a->deliveries_at, budget, found);

    for (size_t i = 0; i < count; i++) {
        entries[i] = CONTAINER_OF(found[i], struct delivery, hh)->entry;
    }
    for (size_t i = 0; i < count; i++) {
        /* The repair of an earlier one may have ended it. */
        struct delivery *d = delivery_find(&q->active, entries[i]);

        if (d != NULL) {
            look_at_delivery(q, d);
        }
    }
    mem_free(found);
    mem_free(entries);
    if (a->deliveries_at == 0) {
        a->parts_done |= PART_DELIVERIES;
    }
}

/* ---- messages in memory --------------------------------------------------------------------- */

/* Removes a message that the scheduler has not got from memory, so that it is read again. */
static void give_back(struct queue *q, struct active_msg *m)
{
    struct msg_id id = m->id;
    struct delivery *d, *next;

    HASH_ITER(hh, q->active.deliveries, d, next)
    {
        if (d->msg == m) {
            delivery_remove(&q->active, d);
        }
    }
    active_remove(&q->active, m);
    spool_unclaim(q->spool, id);
}

static void look_at_message(struct queue *q, struct active_msg *m)
{
    struct msg_id id = m->id;

    if (!sched_has_message(q->sched, (struct sched_msg){id.n})) {
        if (!batch_has(&q->batch, id) && confirmed(q, KIND_LOST, id.n, 0)) {
            finding(q, "%s: it is in memory, and the scheduler does not know it", m->id_text);
            give_back(q, m);
            repaired(q);
        }
    } else if (!active_is_dropped(m) && m->state != ACTIVE_ENDED &&
               !spool_is_claimed(q->spool, id) && confirmed(q, KIND_UNCLAIMED, id.n, 0)) {
        finding(q, "%s: it is in memory, and not claimed", m->id_text);
        queue_leave(q, id);
        repaired(q);
    }
}

static void look_at_messages(struct queue *q, uint32_t budget)
{
    struct auditor *a = &q->auditor;
    const struct active_msg *all = q->active.msgs;
    struct UT_hash_handle **found = mem_array(budget, sizeof(struct UT_hash_handle *));
    size_t count = gather(all != NULL ? &all->hh : NULL, &a->messages_at, budget, found);

    for (size_t i = 0; i < count; i++) {
        /* may remove this message, and no other */
        look_at_message(q, CONTAINER_OF(found[i], struct active_msg, hh));
    }
    mem_free(found);
    if (a->messages_at == 0) {
        a->parts_done |= PART_MESSAGES;
    }
}

/* ---- the spool ------------------------------------------------------------------------------ */

static void look_at_claims(struct queue *q, uint32_t budget)
{
    struct auditor *a = &q->auditor;
    struct msg_id *ids = mem_array(budget, sizeof *ids);
    size_t count = spool_claimed(q->spool, &a->claims_at, budget, ids);
    char text[SPOOL_ID_TEXT_MAX];

    for (size_t i = 0; i < count; i++) {
        if (active_find(&q->active, ids[i]) == NULL && !batch_has(&q->batch, ids[i]) &&
            !damage_is_hidden(&q->damage, ids[i]) && confirmed(q, KIND_CLAIMED, ids[i].n, 0)) {
            spool_id_print(ids[i], text);
            finding(q, "%s: it is claimed, and not in memory", text);
            spool_unclaim(q->spool, ids[i]);
            repaired(q);
        }
    }
    mem_free(ids);
    if (a->claims_at == 0) {
        a->parts_done |= PART_CLAIMS;
    }
}

static void look_at_parked(struct queue *q)
{
    struct auditor *a = &q->auditor;
    struct slice keys[ROWS_PER_STEP], after = slice_string(a->parked_at);
    size_t count = 0;

    if (park_is_telling(&q->parking) ||
        spool_parked_keys(q->spool, after, ROWS_PER_STEP, keys, &count)) {
        count = 0; /* the scheduler is getting the keys; or storage has failed, which is logged */
    }
    for (size_t i = 0; i < count; i++) {
        if (!park_is_known(q, keys[i]) &&
            confirmed(q, KIND_PARKED, hash_bytes(keys[i].ptr, keys[i].len), 0)) {
            /* Not a fault: mail that was claimed when it was due keeps its key while it is in
             * memory. The scheduler would continue it anyway, and does so earlier with the key. */
            log_info("%.*s: mail is parked for it, the scheduler is notified again",
                     SLICE_ARGS(park_key_place(keys[i])));
            park_tell(q, keys[i]);
        }
    }
    mem_free(a->parked_at);
    a->parked_at = NULL;
    if (count == ROWS_PER_STEP) {
        a->parked_at = mem_copy(keys[count - 1].ptr, keys[count - 1].len);
    } else {
        a->parts_done |= PART_PARKED;
    }
}

/* Searches for due mail that is not read although the scheduler has room. */
static void look_at_due(struct queue *q)
{
    struct wall due;

    if (spool_next_due(q->spool, &due) == 0 && due.us < clock_wall().us - OVERDUE_US &&
        sched_has_room(q->sched) && confirmed(q, KIND_OVERDUE, (uint64_t)due.us, q->import.count)) {
        finding(q, "mail is due since %" PRId64 " s, there is room, and it is not read",
                us_seconds(clock_wall().us - due.us));
        repaired(q);
    }
}

/* Are the rows of the message damaged? Then it may never be found by its due time. */
static bool is_damaged(struct queue *q, struct msg_id id)
{
    struct spool_message m;

    return !spool_is_claimed(q->spool, id) && spool_read(q->spool, id, &m) == -EBADMSG;
}

/* Is the message due and not found by its due time, or due at an impossible time? */
static bool is_passed(struct queue *q, struct msg_id id)
{
    struct spool_message m;
    struct wall due;

    if (queue_clock_is_walking(&q->clock) /* due times are being moved */ ||
        batch_is_late(&q->batch) /* its changes are not in the order of due times yet */ ||
        spool_is_claimed(q->spool, id) || spool_read(q->spool, id, &m) != 0 ||
        (m.state != SPOOL_INCOMING && m.state != SPOOL_DEFERRED)) {
        return false;
    }
    return m.due.us > clock_wall().us + FAR_US ||
           (m.due.us < clock_wall().us - OVERDUE_US && spool_next_due(q->spool, &due) == 0 &&
            due.us > clock_wall().us);
}

/* Reads all rows of the spool by id, slowly, because the order of due times may lack one. A
 * suspicious one is examined again in each round. Mail in passage has no rows. Rows of other
 * partitions are examined by their nodes. */
static void look_at_rows(struct queue *q)
{
    struct auditor *a = &q->auditor;
    struct spool_places own;
    struct spool_filter all = {.after = a->rows_at, .waits = true};
    struct msg_id ids[ROWS_PER_STEP];
    size_t count = 0;
    bool at_hand = true;

    if (spool_has_others(q->spool)) {
        spool_own_places(q->spool, &own);
        all.places = &own;
    }
    if (spool_due_by_scans(q->spool) ||
        spool_scan(q->spool, &all, ROWS_PER_STEP, ids, &count) != 0) {
        return; /* there are no rows, or the storage has failed, which is logged */
    }
    for (size_t i = 0; i < count; i++) {
        at_hand &= spool_want(q->spool, ids[i], SPOOL_WANT_ROWS) != -EAGAIN;
    }
    if (!at_hand) {
        return; /* the next step reads the same rows */
    }
    for (size_t i = 0; i < count; i++) {
        if (is_damaged(q, ids[i])) {
            queue_quarantine(q, ids[i], spool_error(q->spool));
        } else if (is_passed(q, ids[i])) {
            (void)suspect(q, KIND_PASSED, ids[i].n, 0); /* look_at_passed examines it again */
        }
    }
    a->rows_at = count == ROWS_PER_STEP ? ids[count - 1] : (struct msg_id){0};
}

static void look_at_passed(struct queue *q)
{
    struct suspicion *s, *next;
    char text[SPOOL_ID_TEXT_MAX];

    HASH_ITER(hh, q->auditor.suspicions, s, next)
    {
        struct msg_id id = {s->key.n};

        if (s->key.kind != KIND_PASSED || !is_passed(q, id)) {
            continue;
        }
        if (confirmed(q, KIND_PASSED, id.n, 0)) {
            spool_id_print(id, text);
            finding(q, "%s: it is due, and was overlooked; or its due time is impossible", text);
            (void)spool_set_due(
                q->spool, id,
                queue_clock_to_store(&q->clock, id, clock_wall())); /* a failure undoes the batch */
            repaired(q);
        }
    }
}

/* ---- steps and rounds ----------------------------------------------------------------------- */

static uint32_t budget_for(uint64_t things)
{
    uint64_t budget = things / AUDIT_ROUND_S;

    return budget < BUDGET_MIN ? BUDGET_MIN : budget > BUDGET_MAX ? BUDGET_MAX : (uint32_t)budget;
}

static void round_ends(struct queue *q)
{
    struct auditor *a = &q->auditor;
    struct suspicion *s, *next;

    look_at_due(q);
    look_at_passed(q);
    HASH_ITER(hh, a->suspicions, s, next)
    {
        if (s->round != a->rounds) {
            suspicion_forget(a, s); /* it was no fault, or is over */
        }
    }
    a->rounds++;
    a->last_round = clock_wall();
    a->parts_done = 0;
}

void auditor_step(struct queue *q)
{
    struct auditor *a = &q->auditor;
    struct sched_totals t;

    /* While results wait to be stored, mail must not move. */
    if (!mono_reached(a->next, clock_mono()) || q->role->stopping ||
        queue_clock_is_walking(&q->clock) || batch_is_blocked(&q->batch)) {
        return;
    }
    a->next = mono_after(clock_mono(), AUDIT_STEP_US);
    look_at_rows(q);
    if (a->parts_done == 0 &&
        !mono_reached(mono_after(a->round_began, ROUND_PAUSE_US), clock_mono())) {
        return;
    }
    if (a->parts_done == 0) {
        a->round_began = clock_mono();
    }
    t = sched_totals(q->sched);
    if ((a->parts_done & PART_SCHEDULER) == 0) {
        look_at_scheduler(q, budget_for((uint64_t)t.entries_waiting + t.entries_busy +
                                        t.destinations + t.messages));
    }
    if ((a->parts_done & PART_DELIVERIES) == 0) {
        look_at_deliveries(q, budget_for(t.entries_busy));
    }
    if ((a->parts_done & PART_MESSAGES) == 0) {
        look_at_messages(q, budget_for(t.messages));
    }
    if ((a->parts_done & PART_CLAIMS) == 0) {
        look_at_claims(q, budget_for(t.messages));
    }
    if ((a->parts_done & PART_PARKED) == 0) {
        look_at_parked(q);
    }
    if (a->parts_done == PARTS) {
        round_ends(q);
    }
}
