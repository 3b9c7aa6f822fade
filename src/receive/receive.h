/*
 * The role `receive` (its table is receive_role in role.h): the SMTP and LMTP server.
 *
 * Accepts connections on the listeners, lets smtp/server.h talk to each client, decides by the
 * configuration which client may send where, and hands complete messages to the queue process. A
 * client hears of success only after the queue has committed its message.
 *
 *   relaying             clients in relay_networks and those on Unix sockets anywhere; others to
 *                        local_domains and relay_domains. Recipients that are routed to `error:`
 *                        are refused with its text.
 *   no queue process     mail is refused with 451 until there is one again; clients that wait for
 *                        an answer get 451, too. Their messages may have been committed: they may
 *                        come twice, but never get lost.
 *   limits               connections, connections per client address, descriptors, the memory of
 *                        all messages under way (receive_settings.h), and those of the engine. Each
 *                        has its 4xx reply.
 *   slow queue           WIRE_FLOW: a client waits in_flow_delay after each message; without space
 *                        452, without working storage 451
 *
 * A session keeps the limits and certificates that it began with; routing, and the answer to
 * whether there is room, are always those of now.
 */
#ifndef RECEIVE_RECEIVE_H
#define RECEIVE_RECEIVE_H

#include "role.h"

/* A stop waits this long for messages that are being received, or shutdown_timeout if that is
 * less; idle clients are sent away at once. */
#define RECEIVE_STOP_US (10 * US_PER_S)

#endif
