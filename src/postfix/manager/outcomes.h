/*
 * Results of recipients, from the logs of bounce(8). Agents report failed and deferred recipients
 * to bounce(8), but to the manager only whether some were deferred. For delivered recipients there
 * is no further information, unless their sender requested it (NOTIFY=SUCCESS, sendmail -v).
 */
#ifndef POSTFIX_OUTCOMES_H
#define POSTFIX_OUTCOMES_H

#include "buf.h"
#include "manager.h"
#include "status_log.h"
#include "wire.h"

/* Logs that were read so far. Zeroed = none. */
struct outcomes {
    struct {
        bool was_read;
        struct buf text;                  /* owned; only the end of a long log */
        struct status_log_entry *entries; /* owned; slices of the text */
        size_t count;
    } logs[POSTFIX_LOGS];
};

void outcomes_fini(struct outcomes *o);

/* Sets the verdict of a recipient that its agent has marked: did it fail? */
void outcomes_done(struct outcomes *o, struct manager *mg, struct msg_id id,
                   struct wire_verdict *v);
/* Sets the reason in the verdict of a recipient that its agent has deferred. Slices last as long as
 * `o`. */
void outcomes_deferred(struct outcomes *o, struct manager *mg, struct msg_id id,
                       struct wire_verdict *v);

#endif
