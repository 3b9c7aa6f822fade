/*
 * KILL THREAD and REROUTE of the mailq protocol: remove the recipients of one transport and next
 * hop, without a report. Killed recipients are done; rerouted ones are returned to the router of
 * their postoffice. Other recipients of their messages stay.
 */
#include "dismiss.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "check.h"
#include "clock.h"
#include "listing.h"
#include "log.h"
#include "mem.h"
#include "operation.h"
#include "queue.h"
#include "queue_report.h"
#include "spool_reroute.h"
#include "spool_search.h"

/* Messages, and recipients of a message, that are processed at once. */
#define DISMISS_PAGE  100
#define DISMISS_RCPTS 200

enum dismiss_how { DISMISS_KILL, DISMISS_REROUTE };

/* Recipients to remove, and the messages that had some of them. */
struct dismissal {
    enum dismiss_how how;
    uint64_t token;
    char *thread; /* owned: "transport/nexthop"; the next two point into it */
    struct slice transport, nexthop;
    int rc; /* error that ended the page early */
    bool more;
    struct msg_id last;
    struct delivery **deliveries; /* owned array of the thread's deliveries; each is borrowed */
    size_t delivery_count, delivery_size;
    uint64_t under_way; /* number of recipients that stay because of an active delivery */
    struct {
        struct msg_id id;
        char *name; /* owned */
        uint64_t rcpts;
    } done[DISMISS_PAGE];
    size_t done_count;
};

/* ---- active deliveries ----------------------------------------------------------------------- */

static void find_deliveries(struct queue *q, struct dismissal *d)
{
    struct delivery *f, *next;

    HASH_ITER(hh, q->active.deliveries, f, next)
    {
        if (!slice_equal(slice_string(transport_name(&q->transports, f->transport)),
                         d->transport) ||
            !slice_equal_nocase(
                slice_string(f->destination != NULL ? f->destination->nexthop : f->dest),
                d->nexthop)) {
            continue;
        }
        if (d->delivery_count == d->delivery_size) {
            d->delivery_size = d->delivery_size == 0 ? 16 : 2 * d->delivery_size;
            d->deliveries = mem_resize(d->deliveries, d->delivery_size, sizeof(struct delivery *));
        }
        d->deliveries[d->delivery_count++] = f;
    }
}

static bool is_under_way(const struct dismissal *d, struct msg_id id, uint32_t n)
{
    for (size_t i = 0; i < d->delivery_count; i++) {
        const struct delivery *f = d->deliveries[i];

        for (size_t j = 0; f->msg->id.n == id.n && j < f->rcpt_count; j++) {
            if (f->rcpts[j] == n) {
                return true;
            }
        }
    }
    return false;
}

/* ---- one message ---------------------------------------------------------------------------- */

/* Removes recipients. *ret_count is the number of those that were removed. */
static int dismiss_some(struct queue *q, const struct dismissal *d, struct msg_id id,
                        const uint32_t *ns, size_t count, size_t *ret_count)
{
    const struct spool_verdict killed = {
        .state = SPOOL_RCPT_FAILED, .done = true, .unreported = true, .when = clock_wall()};
    int rc = 0;

    *ret_count = count;
    if (d->how == DISMISS_REROUTE) {
        return count == 0 ? 0 : spool_reroute(q->spool, id, ns, count, ret_count);
    }
    for (size_t i = 0; rc == 0 && i < count; i++) {
        rc = spool_settle(q->spool, id, ns[i], &killed);
    }
    return rc;
}

/* Removes some recipients after number *after. Returns 0 if none follow, 1 if more may follow, or
 * negative errno. */
static int dismiss_rcpts(struct queue *q, struct dismissal *d, struct msg_id id, uint32_t *after,
                         uint64_t *left)
{
    struct spool_rcpt rcpts[DISMISS_RCPTS];
    uint32_t wanted[DISMISS_RCPTS];
    size_t count = 0, wanted_count = 0, done;
    int rc = spool_read_rcpts(q->spool, id, *after, true, DISMISS_RCPTS, rcpts, &count);

    for (size_t i = 0; rc == 0 && i < count; i++) {
        *after = rcpts[i].n;
        if (!slice_equal(rcpts[i].transport, d->transport) ||
            !slice_equal_nocase(rcpts[i].nexthop, d->nexthop)) {
            continue;
        }
        if (d->how == DISMISS_REROUTE && is_under_way(d, id, rcpts[i].n)) {
            d->under_way++;
        } else {
            wanted[wanted_count++] = rcpts[i].n;
        }
    }
    rc = rc != 0 ? rc : dismiss_some(q, d, id, wanted, wanted_count, &done);
    if (rc != 0) {
        return rc;
    }
    *left += done;
    return count == DISMISS_RCPTS;
}

static int dismiss_message(struct queue *q, struct dismissal *d, struct msg_id id)
{
    char name[QUEUE_NAME_MAX];
    struct spool_message m;
    uint32_t after = 0;
    uint64_t left = 0;
    bool gone;
    int rc;

    do {
        rc = dismiss_rcpts(q, d, id, &after, &left);
    } while (rc > 0);
    if (left == 0) {
        return rc;
    }
    rc = spool_read(q->spool, id, &m);
    if (rc != 0) {
        return rc;
    }
    d->done[d->done_count].id = id;
    d->done[d->done_count].name = mem_string(queue_message_name(&m, name));
    d->done[d->done_count++].rcpts = left;
    report_verbose(q, id, "%s: %" PRIu64 " recipients for %.*s/%.*s",
                   d->how == DISMISS_KILL ? "killed" : "rerouted", left, SLICE_ARGS(d->transport),
                   SLICE_ARGS(d->nexthop));
    /* a claimed message is finished at the end of its pass */
    return spool_is_claimed(q->spool, id) ? 0 : spool_finish(q->spool, id, m.due, &gone);
}

/* ---- the page ------------------------------------------------------------------------------- */

/* Completes the committed page. Returns the ids of the changed messages. */
static json_t *dismissed(struct queue *q, const struct dismissal *d)
{
    json_t *changed = json_array();
    char text[SPOOL_ID_TEXT_MAX];

    for (size_t i = 0; i < d->done_count; i++) {
        queue_leave(q, d->done[i].id);
        spool_id_print(d->done[i].id, text);
        CHECK(json_array_append_new(changed, json_string(text)) == 0);
        log_info("%s: %s: %" PRIu64 " recipients for %.*s/%.*s", d->done[i].name,
                 d->how == DISMISS_KILL ? "killed" : "rerouted", d->done[i].rcpts,
                 SLICE_ARGS(d->transport), SLICE_ARGS(d->nexthop));
    }
    return changed;
}

/* Answers a page after its commit. */
static void page_ended(struct queue *q, void *arg, int rc)
{
    struct dismissal *d = arg;
    char text[SPOOL_ID_TEXT_MAX];
    json_t *answer = NULL;
    unsigned status = 200;

    if (rc != 0 || d->rc != 0) {
        status = listing_error(503, &answer, "nothing was changed: %s", spool_error(q->spool));
    } else {
        import_now(&q->import);
        answer = json_pack("{s:o, s:I}", "changed", dismissed(q, d), "under_way",
                           (json_int_t)d->under_way);
        if (d->more) {
            spool_id_print(d->last, text);
            CHECK(json_object_set_new(answer, "next", json_string(text)) == 0);
        }
    }
    operations_answer_later(q, d->token, status, answer);
    for (size_t i = 0; i < d->done_count; i++) {
        mem_free(d->done[i].name);
    }
    mem_free(d->thread);
    mem_free(d);
}

static void dismiss_page(struct queue *q, struct dismissal *d, struct msg_id after)
{
    struct spool_filter f = {.after = after, .destination = slice_string(d->thread)};
    struct msg_id ids[DISMISS_PAGE];
    size_t count = 0;

    if (d->how == DISMISS_REROUTE) {
        f.states = 1u << SPOOL_INCOMING | 1u << SPOOL_DEFERRED; /* held mail stays held */
        find_deliveries(q, d);
    }
    d->rc = spool_scan(q->spool, &f, DISMISS_PAGE, ids, &count);
    for (size_t i = 0; i < count && d->rc == 0; i++) {
        d->rc = dismiss_message(q, d, ids[i]);
        d->rc = batch_refused(d->rc) ? 0 : d->rc; /* the other messages go on */
    }
    mem_free(d->deliveries);
    d->deliveries = NULL; /* deliveries may end before the commit */
    d->more = count == DISMISS_PAGE;
    d->last = count > 0 ? ids[count - 1] : after;
    batch_add_waiter(q, page_ended, d);
    batch_commit(q); /* also ends a batch that failed */
}

static unsigned dismiss(struct queue *q, enum dismiss_how how, const json_t *question,
                        uint64_t token, json_t **ret_answer)
{
    const char *transport = json_string_value(json_object_get(question, "transport"));
    const char *nexthop = json_string_value(json_object_get(question, "nexthop"));
    const char *after_text = json_string_value(json_object_get(question, "after"));
    struct msg_id after = {0};
    struct dismissal *d;
    struct buf thread;

    if (transport == NULL || transport[0] == '\0' || nexthop == NULL || nexthop[0] == '\0' ||
        (after_text != NULL && !spool_id_parse(slice_string(after_text), &after))) {
        return listing_error(400, ret_answer, "transport and nexthop are expected");
    }
    buf_init(&thread, (size_t)2 * SPOOL_ROUTE_MAX + 2);
    if (!buf_addf(&thread, "%s/%s", transport, nexthop)) {
        buf_fini(&thread);
        *ret_answer = json_pack("{s:[], s:i}", "changed", "under_way", 0); /* no such thread */
        return 200;
    }
    (void)buf_cstr(&thread);
    d = mem_new(sizeof *d);
    d->how = how;
    d->token = token;
    d->thread = buf_take(&thread);
    d->transport = slice_of(d->thread, strlen(transport));
    d->nexthop = slice_string(d->thread + strlen(transport) + 1);
    dismiss_page(q, d, after);
    return 0;
}

unsigned dismiss_kill(struct queue *q, const json_t *question, uint64_t token, json_t **ret_answer)
{
    return dismiss(q, DISMISS_KILL, question, token, ret_answer);
}

unsigned dismiss_reroute(struct queue *q, const json_t *question, uint64_t token,
                         json_t **ret_answer)
{
    return dismiss(q, DISMISS_REROUTE, question, token, ret_answer);
}
