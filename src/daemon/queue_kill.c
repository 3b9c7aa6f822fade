/*
 * KILL THREAD of the mailq protocol: recipients of one transport and next hop are done with, and
 * nobody is told. What their messages have for others stays.
 */
#include "queue.h"

#include <errno.h>

#include "check.h"
#include "clock.h"
#include "listing.h"
#include "log.h"
#include "mem.h"

/* Messages, and recipients of one, in one piece. */
#define KILL_PAGE  100
#define KILL_RCPTS 200

/* What is to be killed, and the messages that had some of it. */
struct kill {
    struct slice transport, nexthop;
    struct msg_id done[KILL_PAGE];
    size_t done_count;
};

/* Some recipients behind number *after; 0 when none follow, 1 when some may, or a negative errno.
 */
static int kill_rcpts(struct queue *q, const struct kill *k, struct msg_id id, uint32_t *after,
                      bool *found)
{
    const struct spool_verdict verdict = {
        .state = SPOOL_RCPT_FAILED, .done = true, .unreported = true, .when = clock_wall()};
    struct spool_rcpt rcpts[KILL_RCPTS];
    uint32_t wanted[KILL_RCPTS];
    size_t count = 0, wanted_count = 0;
    int rc = spool_read_rcpts(q->spool, id, *after, true, KILL_RCPTS, rcpts, &count);

    for (size_t i = 0; rc == 0 && i < count; i++) {
        *after = rcpts[i].n;
        if (slice_equal(rcpts[i].transport, k->transport) &&
            slice_equal_nocase(rcpts[i].nexthop, k->nexthop)) {
            wanted[wanted_count++] = rcpts[i].n;
        }
    }
    for (size_t i = 0; rc == 0 && i < wanted_count; i++) {
        rc = spool_settle(q->spool, id, wanted[i], &verdict);
        *found = true;
    }
    return rc != 0 ? rc : count == KILL_RCPTS;
}

static int kill_message(struct queue *q, struct kill *k, struct msg_id id)
{
    struct spool_message m;
    uint32_t after = 0;
    bool found = false, gone;
    int rc;

    do {
        rc = kill_rcpts(q, k, id, &after, &found);
    } while (rc > 0);
    if (rc != 0 || !found) {
        return rc;
    }
    k->done[k->done_count++] = id;
    if (spool_is_claimed(q->spool, id)) {
        return 0; /* the end of its pass sees what is left */
    }
    rc = spool_read(q->spool, id, &m);
    return rc != 0 ? rc : spool_finish(q->spool, id, m.due, &gone);
}

/* After the commit. */
static json_t *killed(struct queue *q, const struct kill *k)
{
    json_t *changed = json_array();
    char text[SPOOL_ID_TEXT_MAX];

    for (size_t i = 0; i < k->done_count; i++) {
        queue_leave(q, k->done[i]);
        spool_id_print(k->done[i], text);
        CHECK(json_array_append_new(changed, json_string(text)) == 0);
        log_info("%s: killed for %.*s/%.*s", text, SLICE_ARGS(k->transport),
                 SLICE_ARGS(k->nexthop));
    }
    return changed;
}

static unsigned kill_page(struct queue *q, struct kill *k, struct msg_id after, json_t **ret_answer)
{
    struct spool_filter f = {.after = after};
    struct msg_id ids[KILL_PAGE];
    char text[SPOOL_ID_TEXT_MAX];
    struct buf name;
    size_t count = 0;
    int rc, committed;

    buf_init(&name, (size_t)2 * SPOOL_ROUTE_MAX + 2);
    (void)buf_addf(&name, "%.*s/%.*s", SLICE_ARGS(k->transport), SLICE_ARGS(k->nexthop));
    f.destination = buf_slice(&name);
    rc = name.failed ? 0 : spool_scan(q->spool, &f, KILL_PAGE, ids, &count); /* there is none */
    for (size_t i = 0; i < count && rc == 0; i++) {
        rc = kill_message(q, k, ids[i]);
        rc = queue_refused(rc) ? 0 : rc; /* the others go on */
    }
    buf_fini(&name);
    committed = commit_now(q); /* also ends a batch that failed */
    rc = rc != 0 ? rc : committed;
    if (rc != 0) {
        return listing_error(503, ret_answer, "nothing was killed: %s", spool_error(q->spool));
    }
    q->next_due.us = 0;
    *ret_answer = json_pack("{s:o}", "changed", killed(q, k));
    if (count == KILL_PAGE) {
        spool_id_print(ids[count - 1], text);
        CHECK(json_object_set_new(*ret_answer, "next", json_string(text)) == 0);
    }
    return 200;
}

unsigned ask_kill(struct queue *q, const json_t *question, json_t **ret_answer)
{
    const char *transport = json_string_value(json_object_get(question, "transport"));
    const char *nexthop = json_string_value(json_object_get(question, "nexthop"));
    const char *after_text = json_string_value(json_object_get(question, "after"));
    struct msg_id after = {0};
    struct kill *k;
    unsigned status;

    if (transport == NULL || transport[0] == '\0' || nexthop == NULL || nexthop[0] == '\0' ||
        (after_text != NULL && !spool_id_parse(slice_string(after_text), &after))) {
        return listing_error(400, ret_answer, "transport and nexthop are expected");
    }
    k = mem_new(sizeof *k);
    k->transport = slice_string(transport);
    k->nexthop = slice_string(nexthop);
    status = kill_page(q, k, after, ret_answer);
    mem_free(k);
    return status;
}
