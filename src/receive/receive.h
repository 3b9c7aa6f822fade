/*
 * The role `receive` (receive_role in role.h): the SMTP and LMTP server, and mail by HTTP.
 *
 * Accepts connections on the listeners, runs smtp/server.h for each client, decides by the
 * configuration where a client may send, and submits complete messages to the queue process. A
 * client gets a positive reply only after the commit of its message.
 *
 *   relaying             clients in relay_networks and on Unix sockets may send anywhere; others to
 *                        local_domains and relay_domains. Recipients that are routed to `error:`
 *                        are refused with its text.
 *   no queue process     mail is refused with 451 until a new process exists; clients that wait for
 *                        an answer get 451, too. Their messages may have been committed: they may
 *                        arrive twice, but never get lost.
 *   limits               connections, connections per client address, descriptors, memory of all
 *                        messages (receive_settings.h), and the limits of the engine. Each has its
 *                        4xx reply.
 *   slow queue           WIRE_FLOW: a client waits in_flow_delay after each message; without space
 *                        it gets 452, without working storage 451
 *
 * A session keeps the limits and certificates of its start. Routing and the checks for room always
 * use the current values.
 */
#ifndef RECEIVE_RECEIVE_H
#define RECEIVE_RECEIVE_H

#include "role.h"

/* Maximum time that a stop waits for messages that are being received; shutdown_timeout if that is
 * less. Idle clients are disconnected at once. */
#define RECEIVE_STOP_US (10 * US_PER_S)

#endif
