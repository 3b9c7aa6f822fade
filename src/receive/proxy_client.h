/*
 * Clients of listeners with proxy=yes, before their session: each connection begins with the header
 * of the PROXY protocol (smtp/proxy_header.h), and the session begins with the address in it.
 *
 * Only a proxy of smtpd_upstream_proxy_networks may send one, because the sender of one may take
 * any address.
 *
 * A connection holds a place (admission.h) while it waits for its header, at most
 * smtpd_upstream_proxy_timeout. The proxy's address is that of all its clients. Therefore no limit
 * of an address or network counts the place, and it may be one of the reserve, to which its client
 * may have a right. Under overload it is lost to a faster client like the place of any client that
 * keeps the server waiting. The session then needs a place by the address in the header.
 *
 * Exactly the header is read, because what follows it may be a TLS handshake, which the stream of
 * the session needs from its first byte.
 */
#ifndef RECEIVE_PROXY_CLIENT_H
#define RECEIVE_PROXY_CLIENT_H

#include <stdbool.h>
#include <sys/queue.h>
#include <sys/socket.h>

#include "receive_session.h"
#include "receive_settings.h"

struct proxy_client;

/* Begins the session of a client (takes `fd`). `known`: the address is the client's, or the proxy
 * speaks for itself; otherwise it is that of the proxy, whose rights the client must not get. */
typedef void proxy_client_begun(void *arg, struct receive_origin *origin, int fd,
                                const struct sockaddr *addr, bool known);

struct proxy_clients {
    struct receive_sessions *all;
    proxy_client_begun *begun;
    void *arg;
    LIST_HEAD(, proxy_client) list;
};

void proxy_clients_init(struct proxy_clients *clients, struct receive_sessions *all,
                        proxy_client_begun *begun, void *arg);

/* Waits for the header of a new connection, perhaps in the place of another client, or closes it.
 * Takes `fd`; takes a reference to the origin. */
void proxy_client_begin(struct proxy_clients *clients, const struct receive_settings *settings,
                        struct receive_origin *origin, int fd, const struct sockaddr_storage *addr);

/* Checks all time limits after a change of the clocks. */
void proxy_clients_clock_moved(struct proxy_clients *clients);

/* Closes all connections that wait for their header. */
void proxy_clients_cut(struct proxy_clients *clients);

#endif
