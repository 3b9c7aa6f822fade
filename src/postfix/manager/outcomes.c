#include "outcomes.h"

#include "status_log.h"

enum { OUTCOMES_FAILED, OUTCOMES_DEFERRED };

void outcomes_fini(struct outcomes *o)
{
    for (size_t i = 0; i < sizeof o->logs / sizeof o->logs[0]; i++) {
        if (o->logs[i].was_read) {
            buf_fini(&o->logs[i].text);
        }
    }
}

/* The last entry about the recipient: one that was released may have an older one. */
static bool find(struct outcomes *o, struct manager *mg, struct msg_id id, unsigned which,
                 uint32_t n, struct status_log_entry *ret_entry)
{
    const struct postfix_rcpt *r = postfix_rcpt(mg->q->spool, id, n);
    struct status_log_entry e;
    bool found = false;
    struct slice rest;

    if (!o->logs[which].was_read) {
        o->logs[which].was_read = true;
        buf_init(&o->logs[which].text, POSTFIX_LOG_MAX);
        postfix_read_log(mg->q->spool, id, which == OUTCOMES_DEFERRED, &o->logs[which].text);
    }
    rest = buf_slice(&o->logs[which].text);
    while (r != NULL && status_log_next(&rest, &e)) {
        if (e.offset == r->offset) {
            *ret_entry = e;
            found = true;
        }
    }
    return found;
}

static void take(struct wire_verdict *v, const struct status_log_entry *e)
{
    v->status = e->status;
    v->text = e->reason.len > 0 ? e->reason : v->text;
    v->reply = e->diag_text;
    v->relay = e->mta_mname;
}

void outcomes_done(struct outcomes *o, struct manager *mg, struct msg_id id, struct wire_verdict *v)
{
    struct status_log_entry e;

    if (find(o, mg, id, OUTCOMES_FAILED, v->n, &e)) {
        v->kind = VERDICT_BOUNCED;
        v->report = WIRE_REPORT_NONE; /* bounce(8) makes it */
        take(v, &e);
    }
}

void outcomes_deferred(struct outcomes *o, struct manager *mg, struct msg_id id,
                       struct wire_verdict *v)
{
    struct status_log_entry e;

    if (find(o, mg, id, OUTCOMES_DEFERRED, v->n, &e)) {
        take(v, &e);
    }
}
