/*
 * Listening sockets, opened by the parent and handed to receive and control.
 *
 *     smtp://HOST:PORT  lmtp://HOST:PORT  lmtp:unix:PATH     parameter `listen`, for receive
 *     unix:PATH                                              control_socket
 *     mailq:TCP:PORT  mailq:UNIX:PATH                        mailqsock; PORT of BINDADDR, else, for
 *                                                            a postoffice with an auth file, of all
 *                                                            addresses, else of localhost
 *
 * HOST is an address ([v6] in brackets), a name, or `*` for all addresses; a name with several
 * addresses gives a socket for each. The owner sees URLs as written here.
 */
#ifndef DAEMON_LISTENER_H
#define DAEMON_LISTENER_H

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
    bool fresh; /* opened by the last listeners_open: not sent to anybody yet */
};

TAILQ_HEAD(listeners, listener);

/* Open what `conf` asks for and `list` does not have yet. False when one can't be opened: what was
 * opened by this call is closed again, and the reason is in *ret_error. The socket of a
 * postoffice's mailq protocols may fail: the reason is then a line in *ret_error. */
bool listeners_open(struct listeners *list, const struct conf *conf, struct buf *ret_error);

/* Would listeners_open find names, addresses and groups as it needs them? Nothing is opened. A line
 * in *ret_error for each that it would not. */
bool listeners_check(const struct conf *conf, struct buf *ret_error);

/* Is all there that `conf` asks for? */
bool listeners_complete(const struct listeners *list, const struct conf *conf);

/* Close what `conf` (NULL: nobody) does not ask for, and remove the Unix sockets among it. */
void listeners_prune(struct listeners *list, const struct conf *conf);

/* A new descriptor of the socket for a child to have. */
int listener_share(const struct listener *l);

#endif
