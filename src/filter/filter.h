/*
 * The role `filter` (its table is filter_role in role.h): what the daemon itself writes passes the
 * filters of non_smtpd_milters here, so that it is signed like all other mail.
 *
 *     queue: a report is stored, its recipients routed to the built-in transport `milter'
 *       --WIRE_DELIVER--> this process: draft --> filters --WIRE_SUBMIT--> queue: stored anew, in
 *                                                                          the batch and routed by
 *                                                                          its recipients
 *       <--WIRE_RESULT--- delivered, when the queue has said 250
 *
 * So a report waits in the spool for its filters as other mail waits for its next hop: nothing in
 * the queue process waits with it, trouble defers it with the back-off of all mail, a restart finds
 * it again, and `sluice why' says what it waits for. At worst, when one of both processes ends
 * between the 250 and the result, a report is sent twice.
 *
 *   4xx, trouble   deferred; never sent without the filter, unless milter_default_action says so
 *   5xx            the report has failed, as one that its recipient's site refuses
 *   discarded      the same as delivered
 *
 * It runs where non_smtpd_milters and internal_mail_filter_classes are set, as receive_user, with
 * no files and no network but the sockets that it is given (receive/filter_hub.h).
 *
 * Limit: what the scheduler hands over at once (milter_destination_concurrency_limit).
 */
#ifndef FILTER_FILTER_H
#define FILTER_FILTER_H

#include "role.h"

#endif
