/*
 * Listening sockets, which the parent opens for receive and control.
 *
 *     smtp://HOST:PORT  lmtp://HOST:PORT  lmtp:unix:PATH     parameter `listen`, for receive
 *     submission://HOST[:PORT]  submissions://HOST[:PORT]
 *     http://HOST:PORT  https://HOST:PORT
 *     unix:PATH                                              control_socket
 *     NAME:...                                               an extension's (extension.h)
 *
 * HOST is an address ([v6] in brackets), a name, or `*` for all addresses. A name with several
 * addresses gets a socket for each. The owner of a socket gets its URL as written here.
 */
#ifndef PARENT_LISTENER_H
#define PARENT_LISTENER_H

#include <stdbool.h>
#include <sys/queue.h>

#include "buf.h"
#include "conf.h"
#include "wire.h"

#define LISTENERS_MAX 256 /* number of all sockets */

struct listener {
    TAILQ_ENTRY(listener) next;
    enum wire_role role; /* ROLE_RECEIVE or ROLE_CONTROL */
    char *url;
    char *path; /* path of a Unix socket, or NULL */
    int fd;
    bool listens;
    bool fresh; /* opened by the last listeners_open, and not sent to any process yet */
};

TAILQ_HEAD(listeners, listener);

/* Opens the listeners of `conf` that `list` lacks. Returns false and the reason in *ret_error if
 * one can't be opened; then the sockets opened by this call are closed again. A failure of an
 * extension's optional socket is only a line in *ret_error. */
bool listeners_open(struct listeners *list, const struct conf *conf, struct buf *ret_error);

/* Can listeners_open find all names and addresses? Opens nothing. Appends a line "PLACE: error:
 * ..." to *ret_error for each that it can't find. */
bool listeners_check(const struct conf *conf, struct buf *ret_error);

/* Does `list` have all listeners of `conf`? */
bool listeners_complete(const struct listeners *list, const struct conf *conf);

/* Closes the listeners that `conf` (NULL: none) lacks, and removes their Unix sockets. */
void listeners_prune(struct listeners *list, const struct conf *conf);

/* Returns a new descriptor of the socket for a child, or negative errno if another program listens
 * there. The socket listens from now on. In a cluster, sockets for mail do not listen earlier, so
 * that clients find another node while this one starts. */
int listener_share(struct listener *l);

#endif
