/*
 * The door to ZMailer's world: registers all that other rooms need of it.
 *
 *     dialect.h       scheduler.conf and zmailer.conf, for programs that read configurations
 *     spool_engine.h  the spool in POSTOFFICE, for programs that open spools
 *     agent_kind.h    transport agents, for the queue process
 *     delivery_details.h
 *                     notes of transport agents about deliveries
 *     observer.h      logs of ZMailer's scheduler
 *     report_form.h   ZMailer's layout of reports
 *     operation.h     listing and dismissal of threads
 *     service.h       the mailq protocols, in the control process
 *     extension.h     sockets and files of the mailq protocols, in the parent
 */
#ifndef ZMAILER_DOOR_H
#define ZMAILER_DOOR_H

#include <stdbool.h>

/* Registers everything, for the daemon's programs. Called before the parent or a role begins. The
 * role that runs transport agents is in agents_role.h. */
void zmailer_open_door(void);

/* Registers the dialect alone, for programs that only read configurations. Called before they
 * do. */
void zmailer_open_conf(void);

/* Registers the parts that the command `sluice` uses. Called before all other work. */
void zmailer_open_commands(void);

/* Runs the command line if it is one of ZMailer's mailq, for a program called as mailq. Returns
 * false if it is not; otherwise the exit status is in *ret_status. */
bool zmailer_run_mailq(int argc, char **argv, int *ret_status);

#endif
