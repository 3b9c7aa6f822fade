#include "report_draft.h"

#include <string.h>

#include "buf.h"
#include "check.h"
#include "delivery_details.h"
#include "mem.h"

/* Bytes kept of each string; reports cut most strings further. */
#define PART_MAX 8192

/* Strings kept of a recipient, in one piece of memory. */
enum part { ADDRESS, ORCPT, DIAGNOSTIC, REPLY, REMOTE, STATUS, DETAILS, CONTROL, PARTS };

enum report_action report_draft_action(const struct spool_rcpt *r)
{
    struct delivery_details details;

    switch (r->state) {
    case SPOOL_RCPT_PENDING:
        return REPORT_DELAYED;
    case SPOOL_RCPT_FAILED:
        return REPORT_FAILED;
    case SPOOL_RCPT_DELIVERED:
    case SPOOL_RCPT_RELAYED:
        break;
    }
    (void)details_read(r->details, &details); /* otherwise it has no action */
    if (details.action == DETAILS_EXPANDED) {
        return REPORT_EXPANDED;
    }
    if (details.action == DETAILS_RELAYED) {
        return REPORT_RELAYED;
    }
    return r->state == SPOOL_RCPT_RELAYED ? REPORT_RELAYED : REPORT_DELIVERED;
}

/* Copies all strings of a recipient into one piece of memory. */
static char *keep(const struct spool_rcpt *r, struct slice kept[PARTS])
{
    const struct slice parts[PARTS] = {
        [ADDRESS] = r->address, [ORCPT] = r->orcpt,     [DIAGNOSTIC] = r->diagnostic,
        [REPLY] = r->reply,     [REMOTE] = r->remote,   [STATUS] = r->status,
        [DETAILS] = r->details, [CONTROL] = r->control,
    };
    size_t lengths[PARTS], at = 0;
    struct buf b;
    char *string;

    buf_init(&b, (size_t)PARTS * PART_MAX);
    for (size_t i = 0; i < PARTS; i++) {
        lengths[i] = parts[i].len < PART_MAX ? parts[i].len : PART_MAX;
        if (lengths[i] > 0) {
            CHECK(buf_add(&b, slice_of(parts[i].ptr, lengths[i])));
        }
    }
    string = buf_take(&b);
    for (size_t i = 0; i < PARTS; i++) {
        /* CR separates the lines of a text. Only recipients with `control` have reports that show
         * lines. */
        for (size_t k = 0; i == DIAGNOSTIC && r->control.len == 0 && k < lengths[i]; k++) {
            string[at + k] = string[at + k] == '\r' ? ' ' : string[at + k];
        }
        kept[i] = slice_of(string + at, lengths[i]);
        at += lengths[i];
    }
    return string;
}

/* Applies the agent's details, which are more precise. */
static void add_details(struct report_rcpt *to, struct slice text)
{
    struct delivery_details d;
    struct status status;

    if (!details_read(text, &d)) {
        return;
    }
    /* The details of a delay are the destination's last reply, perhaps for another recipient. */
    if (d.address.len > 0 && to->action != REPORT_DELAYED) {
        to->address = d.address;
    }
    /* The details of an expired recipient have only the status of a delay. */
    if (to->action == REPORT_FAILED && d.action == DETAILS_DELAYED) {
        to->status = (struct status){STATUS_PERMANENT, 4, 7};
    } else {
        to->status_words = d.status_words;
        if (status_parse(d.status, &status)) {
            to->status = status;
        }
    }
    to->remote_type = d.host_type;
    to->remote_mta = d.host;
    to->diagnostic_type = d.diagnostic_type;
    to->diagnostic = d.diagnostic;
    to->agent = d.agent;
}

void report_draft_add(struct report_draft *d, const struct spool_rcpt *r, enum report_action action,
                      struct wall retry_until)
{
    struct slice kept[PARTS];
    struct report_rcpt *to;
    struct status status = {0};

    if (d->count == d->size) {
        d->size = d->size == 0 ? 8 : d->size * 2;
        d->rcpts = mem_resize(d->rcpts, d->size, sizeof *d->rcpts);
        d->strings = mem_resize(d->strings, d->size, sizeof *d->strings);
    }
    d->strings[d->count] = keep(r, kept);
    to = &d->rcpts[d->count++];
    /* A bounce has status 5.x.x. An expired recipient keeps its 4.x.x, as senders expect it; the
     * action shows that it failed. */
    if (!status_parse(kept[STATUS], &status)) {
        status = (struct status){.class = action == REPORT_FAILED    ? STATUS_PERMANENT
                                          : action == REPORT_DELAYED ? STATUS_TRANSIENT
                                                                     : STATUS_SUCCESS};
    }
    *to = (struct report_rcpt){.address = kept[ADDRESS],
                               .orcpt = kept[ORCPT],
                               .action = action,
                               .status = status,
                               .text = kept[DIAGNOSTIC],
                               .last_attempt = r->last_attempt,
                               .retry_until = retry_until,
                               .control = kept[CONTROL]};
    size_t address_at = slice_find(kept[REMOTE], '['); /* "host[address]:port" of a site */
    if (address_at < kept[REMOTE].len) {
        to->remote_mta = slice_of(kept[REMOTE].ptr, address_at);
        to->diagnostic = kept[REPLY];
    }
    add_details(to, kept[DETAILS]);
}

void report_draft_fini(struct report_draft *d)
{
    for (size_t i = 0; i < d->count; i++) {
        mem_free(d->strings[i]);
    }
    mem_free(d->strings);
    mem_free(d->rcpts);
    *d = (struct report_draft){.count = 0};
}
