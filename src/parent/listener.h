/*
 * Listening sockets, opened by the parent and handed to receive and control.
 *
 *     smtp://HOST:PORT  lmtp://HOST:PORT  lmtp:unix:PATH     parameter `listen`, for receive
 *     submission://HOST[:PORT]  submissions://HOST[:PORT]
 *     http://HOST:PORT  https://HOST:PORT
 *     unix:PATH                                              control_socket
 *     NAME:...                                               an extension's (extension.h)
 *
 * HOST is an address ([v6] in brackets), a name, or `*` for all addresses; a name with several
 * addresses gives a socket for each. The owner sees URLs as written here.
 */
#ifndef PARENT_LISTENER_H
#define PARENT_LISTENER_H

#include <stdbool.h>
#include <sys/queue.h>

#include "buf.h"
#include "conf.h"
#include "wire.h"

#define LISTENERS_MAX 256 /* sockets in all */

struct listener {
    TAILQ_ENTRY(listener) next;
    enum wire_role role; /* ROLE_RECEIVE or ROLE_CONTROL */
    char *url;
    char *path; /* of a Unix socket, or NULL */
    int fd;
    bool listens;
    bool fresh; /* opened by the last listeners_open: not sent to any process yet */
};

TAILQ_HEAD(listeners, listener);

/* Open what `conf` asks for and `list` does not have yet. False when one can't be opened: what was
 * opened by this call is closed again, and the reason is in *ret_error. An optional socket of an
 * extension may fail: the reason is then a line in *ret_error. */
bool listeners_open(struct listeners *list, const struct conf *conf, struct buf *ret_error);

/* Would listeners_open find names and addresses as it needs them? Nothing is opened. A line in
 * *ret_error for each that it would not, "PLACE: error: ...". */
bool listeners_check(const struct conf *conf, struct buf *ret_error);

/* Is all there that `conf` asks for? */
bool listeners_complete(const struct listeners *list, const struct conf *conf);

/* Close what `conf` (NULL: none) does not ask for, and remove the Unix sockets among it. */
void listeners_prune(struct listeners *list, const struct conf *conf);

/* A new descriptor of the socket for a child to have, which listens from now on: those that receive
 * mail for one of several nodes do not before, so that clients find another node while this one
 * starts. Negative errno: another program listens there by now. */
int listener_share(struct listener *l);

#endif
