#include "outcomes.h"

#include "envelope.h"
#include "mem.h"

void outcomes_fini(struct outcomes *o)
{
    for (size_t i = 0; i < sizeof o->logs / sizeof o->logs[0]; i++) {
        if (o->logs[i].was_read) {
            buf_fini(&o->logs[i].text);
            mem_free(o->logs[i].entries);
        }
    }
}

static void read_entries(struct outcomes *o, struct manager *mg, struct msg_id id,
                         enum postfix_log which)
{
    struct status_log_entry e;
    struct slice rest;
    size_t size = 0;

    o->logs[which].was_read = true;
    buf_init(&o->logs[which].text, POSTFIX_LOG_MAX);
    postfix_read_log(mg->q->spool, id, which, &o->logs[which].text);
    rest = buf_slice(&o->logs[which].text);
    while (status_log_next(&rest, &e)) {
        o->logs[which].entries =
            mem_grow(o->logs[which].entries, o->logs[which].count, &size, sizeof e);
        o->logs[which].entries[o->logs[which].count++] = e;
    }
}

/* Finds the last entry about the recipient, as the newest ones are those of this delivery. */
static const struct status_log_entry *find(struct outcomes *o, struct manager *mg, struct msg_id id,
                                           enum postfix_log which, uint32_t n)
{
    struct postfix_rcpt r;
    bool has_rcpt = postfix_rcpt(mg->q->spool, id, n, &r);

    if (!o->logs[which].was_read) {
        read_entries(o, mg, id, which);
    }
    for (size_t i = o->logs[which].count; has_rcpt && i-- > 0;) {
        if (o->logs[which].entries[i].offset == r.offset) {
            return &o->logs[which].entries[i];
        }
    }
    return NULL;
}

static void take(struct wire_verdict *v, const struct status_log_entry *e)
{
    v->status = e->status;
    v->text = e->reason.len > 0 ? e->reason : v->text;
    v->reply = e->diag_text;
    v->relay = e->mta_mname;
}

/* Do agents report deliveries to this recipient to bounce(8)? */
static bool is_traced(const struct manager *mg, struct msg_id id, uint32_t n)
{
    const struct postfix_message *m = postfix_message(mg->q->spool, id);
    struct postfix_rcpt r;

    return m != NULL && postfix_rcpt(mg->q->spool, id, n, &r) &&
           ((r.notify & NOTIFY_SUCCESS) != 0 ||
            (m->envelope->trace_flags & QUEUE_FILE_TRACE_RECORD) != 0);
}

void outcomes_done(struct outcomes *o, struct manager *mg, struct msg_id id, struct wire_verdict *v)
{
    const struct status_log_entry *e = find(o, mg, id, POSTFIX_LOG_BOUNCE, v->n);

    if (e == NULL && is_traced(mg, id, v->n)) {
        e = find(o, mg, id, POSTFIX_LOG_TRACE, v->n);
        if (e != NULL) {
            take(v, e);
        }
    } else if (e != NULL) {
        v->kind = VERDICT_BOUNCED;
        v->report = WIRE_REPORT_NONE; /* bounce(8) sends the bounce */
        take(v, e);
    }
}

void outcomes_deferred(struct outcomes *o, struct manager *mg, struct msg_id id,
                       struct wire_verdict *v)
{
    const struct status_log_entry *e = find(o, mg, id, POSTFIX_LOG_DEFER, v->n);

    if (e != NULL) {
        take(v, e);
    }
}
