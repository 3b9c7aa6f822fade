/*
 * The door to ZMailer's world, for the programs: all that the rooms know of it is registered here.
 *
 *     dialect.h       scheduler.conf and zmailer.conf, for those that read configurations
 *     spool_engine.h  the spool in POSTOFFICE, for those that open spools
 *     agent_kind.h    transport agents, for the queue process
 *     delivery_details.h
 *                     what its agents note of deliveries
 *     observer.h      the logs of its scheduler
 *     report_form.h   the layout of reports that its users know
 *     operation.h     threads, which are asked for and dismissed
 *     service.h       the mailq protocols, in the control process
 *     extension.h     and their sockets and files, in the parent
 */
#ifndef ZMAILER_DOOR_H
#define ZMAILER_DOOR_H

#include <stdbool.h>

/* For the daemon's programs, first of all: before a role begins, or the parent. The process that
 * runs transport agents is in agents_role.h. */
void zmailer_open_door(void);

/* For programs that only read configurations, before they do. */
void zmailer_open_conf(void);

/* For the command of operators, before it does anything. */
void zmailer_open_commands(void);

/* Called as mailq: is this a command line of ZMailer's? Then it was run, and its status is
 * *ret_status. */
bool zmailer_run_mailq(int argc, char **argv, int *ret_status);

#endif
