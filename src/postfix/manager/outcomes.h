/*
 * What became of recipients, from what bounce(8) keeps of them: agents tell it of those that failed
 * and were deferred, and the manager only whether some were deferred. Of those that were delivered
 * nothing is known but that, unless their sender wants to be told (NOTIFY=SUCCESS, sendmail -v).
 */
#ifndef POSTFIX_OUTCOMES_H
#define POSTFIX_OUTCOMES_H

#include "buf.h"
#include "manager.h"
#include "status_log.h"
#include "wire.h"

/* Zeroed: nothing was read yet. */
struct outcomes {
    struct {
        bool was_read;
        struct buf text;                  /* owned; its end, where it is long */
        struct status_log_entry *entries; /* owned; of the text */
        size_t count;
    } logs[POSTFIX_LOGS];
};

void outcomes_fini(struct outcomes *o);

/* Into the verdict of a recipient with a mark: did it fail? */
void outcomes_done(struct outcomes *o, struct manager *mg, struct msg_id id,
                   struct wire_verdict *v);
/* Into that of one which its agent has deferred: why? Slices last as long as `o`. */
void outcomes_deferred(struct outcomes *o, struct manager *mg, struct msg_id id,
                       struct wire_verdict *v);

#endif
