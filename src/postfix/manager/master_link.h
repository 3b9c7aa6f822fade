/*
 * The connection of a daemon with a process limit of 1 to Postfix's master(8), over inherited
 * descriptors: triggers on its listening socket, status messages, and the tokens of in-flow
 * control.
 *
 *     3, 4   the pipe of in-flow control: a byte for each message that cleanup(8) may accept
 *     5      the status channel: messages of 12 bytes mean "busy" or "available". Its end means
 *            that this process must end, which the parent process handles, and accept no more
 *            triggers
 *     6      the listening socket public/qmgr
 *
 * A client of the socket writes some letters, then waits until its connection is closed; there is
 * no answer. Nearly all clients have written before they are accepted; such a client is closed at
 * once, and only the first is reported to master. A client that writes nothing is closed after
 * MASTER_CLIENT_US. At most MASTER_CLIENTS_MAX are read at once; the others wait in the socket's
 * queue.
 */
#ifndef POSTFIX_MASTER_LINK_H
#define POSTFIX_MASTER_LINK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "slice.h"
#include "times.h"

#define MASTER_FLOW_READ   3
#define MASTER_FLOW_WRITE  4
#define MASTER_STATUS      5
#define MASTER_LISTEN      6
#define MASTER_CLIENT_US   (10 * US_PER_S)
#define MASTER_CLIENTS_MAX 50

struct event_base;
struct master_link;

struct master_link_plan {
    struct event_base *base;
    pid_t pid;           /* process that master has started, and expects in status messages */
    unsigned generation; /* generation from the environment */
    unsigned tokens;     /* default_process_limit; 0 = no in-flow control */
    /* Called when a client has requested these scans, bits of enum postfix_scan. */
    void (*triggered)(void *arg, unsigned scans);
    void *arg;
};

/* Returns the scans that the letters of a trigger request. Ignores unknown letters. */
unsigned master_trigger_scans(struct slice letters);

/* Has this process a master? The parent process sets MASTER_ENVIRONMENT if so. */
#define MASTER_ENVIRONMENT "SLUICE_MASTER"
bool master_is_there(void);
/* Parses the value of GENERATION, octal; returns 0 if it is invalid. */
unsigned master_generation(const char *text);

struct master_link *master_link_new(const struct master_link_plan *plan);
void master_link_free(struct master_link *link);

/* Lets in as much mail as there is room for; call it once per turn. `taken`: number of messages
 * read from incoming/ since the last call; `scanning`: a scan of incoming/ is running. */
void master_link_flow(struct master_link *link, uint64_t taken, bool scanning);

#endif
