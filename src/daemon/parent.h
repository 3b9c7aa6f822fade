/*
 * The parent: starts, connects, restarts, reconfigures and stops the other processes.
 *
 *   STARTING --all started--> RUNNING --SIGTERM, SIGINT, WIRE_STOP_ALL--> STOP_RECEIVE
 *                                             receive has ended, or half the time is over |
 *                                  STOP_WORK (queue, deliver, local finish what they do) <+
 *                                             the queue has ended, or the time is over |
 *                                  STOP_REST (everybody; after STOP_GRACE they are killed) <+
 *
 * Processes begin in the order queue, deliver, local, control, receive: mail is accepted when
 * everything behind is there. One that ends by itself is started again, at once the first time,
 * and after a pause that doubles from 1 s to service_throttle_time while it keeps ending soon.
 * During STARTING such an end stops everything instead, so that a wrong set-up is noticed.
 *
 * Signals: SIGTERM and SIGINT stop (a second one hastens), SIGHUP reloads, SIGUSR1 opens the log
 * again. A reload with errors changes nothing; see parent.c for what only a restart changes.
 *
 * The parent reads no data from the network. It does read maildrop (pickup.h).
 */
#ifndef DAEMON_PARENT_H
#define DAEMON_PARENT_H

/* Run the daemon with the configuration file `path` (NULL: built-in configuration) until it is
 * stopped. The exit status, as in sysexits.h. */
int parent_main(const char *path);

#endif
