/*
 * The spool engine of Postfix's queue directory: cleanup(8) puts mail there, agents mark it, and
 * bounce(8) reports it. queue_dir.h describes the states of a file, queue_file.h its content,
 * services.h the calls between the engine and the clients of Postfix's services.
 *
 *     scans of incoming/ and deferred/
 *         | spool_poll: into active/, read to its end, its lock dropped
 *         v
 *      ROUTING ---------> CLAIMED ------------------> CONCLUDING ---> deferred/, removed, corrupt/
 *            spool_claim   |   ^  spool_conclude,           postfix_concluded
 *                          |   |  at its commit
 *        spool_want_rcpts: +---+ more of its recipients
 *
 *      CLAIMED: spool_unclaim --> incoming/
 *      any of them: spool_hold --> hold/, spool_remove, spool_quarantine --> corrupt/
 *
 * Messages in these three states are in memory: their envelopes, and recipients from their reading
 * until they are settled. Before a message is claimed, it gets as many recipients as
 * qmgr_message_recipient_limit leaves room for, but at least qmgr_message_recipient_minimum; later
 * as many as the scheduler requests. Messages that wait on disk cost no memory, and no time at a
 * start, even a million of them. Nothing is stored outside the directory; the time of the next
 * attempt is that of the file.
 *
 * Mail is found as in Postfix's own manager: deferred/ is scanned every queue_run_delay, and
 * incoming/ after a trigger, both a bounded piece per poll. Messages are claimed in the order in
 * which they were found.
 *
 * An id (struct msg_id) lasts while a message is in active/; spool_message.spoolid has its queue
 * id. Recipients are numbered in the order of reading, which is the same each time.
 *
 * The result of a recipient is in the files before the engine gets it, so the engine writes nothing
 * when a recipient is settled; it submits nothing, either (-ENOTSUP). The commit applies a batch to
 * the directory. A rename that fails there is logged and repeated later, unless the file is gone.
 * Meanwhile the file stays in active/, where the next start finds it, too.
 */
#ifndef POSTFIX_SPOOL_H
#define POSTFIX_SPOOL_H

#include "queue_dir.h"
#include "spool.h"

/* Options of the engine. Zeroed = Postfix's defaults. */
struct postfix_spool_options {
    struct queue_dir_options dir; /* its `io` is that of spool_options */
    int64_t run_delay_us;         /* time between two scans of deferred/; 300 s */
    uint32_t active_limit;        /* qmgr_message_active_limit; 20000 */
    uint32_t rcpt_limit;          /* qmgr_message_recipient_limit; 20000 */
    uint32_t rcpt_minimum;        /* qmgr_message_recipient_minimum; 10 */
};

/* Opens the queue directory `where` for writing. Errors as of spool_open. The caller must call
 * postfix_use_services before the first poll, which moves files that another manager has left in
 * active/ to incoming/. */
int postfix_spool_open(const char *where, const struct spool_options *options,
                       const struct postfix_spool_options *own, struct buf *ret_error,
                       struct spool **ret_spool);

/* Registers the engine, so that spool_open opens "postfix:DIR" with the parameters of
 * spool_options.conf. */
void postfix_spool_register(void);

#endif
