/*
 * The spool engine of Postfix's queue directory: mail that cleanup(8) puts there, agents mark, and
 * bounce(8) reports. queue_dir.h has the states of a file, queue_file.h what is in it, services.h
 * what the engine asks of Postfix's services and what they ask of it.
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
 * In memory are the messages of these three states: their envelopes, and recipients from the time
 * when they are read until they are settled. Before a message is claimed so many are read as
 * qmgr_message_recipient_limit leaves room for, but qmgr_message_recipient_minimum in any case;
 * then so many as the scheduler asks for. Of messages that wait on disk nothing is known: a million
 * of them cost no memory, and no time at a start. Nothing is stored beside the directory, either;
 * times of next attempts are those of the files.
 *
 * Mail is found as Postfix's own manager finds it: deferred/ is scanned every queue_run_delay, and
 * incoming/ when a trigger asks, both a bounded piece with each poll. Messages are claimed in the
 * order in which they were found.
 *
 * Ids (struct msg_id) last from a message's way into active/ to its way out of it;
 * spool_message.spoolid has its queue id. Recipients are numbered in the order of reading, which is
 * the same each time.
 *
 * What became of a recipient is in the files before the engine hears of it, so it writes nothing
 * when one is settled; it submits nothing (-ENOTSUP). A batch is applied to the directory at its
 * commit. A rename that fails there, other than by finding the file gone, is told, and made again
 * later: the file stays in active/, where the next start finds it, too.
 */
#ifndef POSTFIX_SPOOL_H
#define POSTFIX_SPOOL_H

#include "queue_dir.h"
#include "spool.h"

/* Zeroed = Postfix's defaults. */
struct postfix_spool_options {
    struct queue_dir_options dir; /* its io comes from spool_options */
    int64_t run_delay_us;         /* from one scan of deferred/ to the next; 300 s */
    uint32_t active_limit;        /* qmgr_message_active_limit; 20000 */
    uint32_t rcpt_limit;          /* qmgr_message_recipient_limit; 20000 */
    uint32_t rcpt_minimum;        /* qmgr_message_recipient_minimum; 10 */
};

/* Open queue_directory `where` for writing. Errors as of spool_open. postfix_use_services must
 * follow before the first poll, which moves what another manager has left in active/ to incoming/.
 */
int postfix_spool_open(const char *where, const struct spool_options *options,
                       const struct postfix_spool_options *own, struct buf *ret_error,
                       struct spool **ret_spool);

/* From now on spool_open opens "postfix:DIR", with the parameters of spool_options.conf. */
void postfix_spool_register(void);

#endif
