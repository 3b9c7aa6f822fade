/*
 * The role `filter` (filter_role in role.h): passes mail of the spool through filters and rules. A
 * bounce or notice passes those filters of non_smtpd_milters that sign all other mail; mail that an
 * operator requeues is treated as a file of sendmail (receive/local_mail.h).
 *
 *     queue: the recipients are routed to the built-in transport `milter', next hop `reports' or
 *       `requeue'
 *       --WIRE_DELIVER--> this process: draft --> rules, if it is requeued --> filters
 *       <--WIRE_SUBMIT--- the changed message
 *     queue: one batch stores and routes it, and removes the recipients from the old message
 *
 * So mail waits in the spool for its filters as other mail waits for its next hop. No work in the
 * queue process waits with it, a failure defers it with the usual back-off, a restart finds it
 * again, and `sluice why' prints the reason. If a process ends meanwhile, the mail exists once:
 * with its old id before the commit, with the new one after it.
 *
 *   4xx, failure   deferred; never sent without the filter, unless milter_default_action allows it
 *   5xx            bounced, as after a refusal by the recipient's site
 *   discarded      as delivered, without a success notice
 *
 * The process exists wherever the configuration routes mail, as mail may be requeued at any time.
 * It runs as receive_user, without files, and its only network is the sockets that it receives
 * (receive/filter_hub.h).
 *
 * Limit: the deliveries of the scheduler at a time (milter_destination_concurrency_limit).
 */
#ifndef FILTER_FILTER_H
#define FILTER_FILTER_H

#include "role.h"

#endif
