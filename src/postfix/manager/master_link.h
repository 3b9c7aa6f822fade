/*
 * What a daemon that is alone in its service has to do with Postfix's master(8), of which it has
 * inherited descriptors: triggers on its listening socket, status messages, and the tokens of
 * in-flow control.
 *
 *     3, 4   the pipe of in-flow control: a byte for each message that cleanup(8) may take in
 *     5      the status channel: 12 bytes say "busy" or "available"; its end means that this
 *            process is to end (the parent process sees to that), and takes no more triggers
 *     6      the listening socket public/qmgr
 *
 * A client of the socket writes some letters, then waits until its connection is closed; there is
 * no answer. One that has written when it is accepted, as nearly all have, is closed at once, and
 * master is not told of it but for the first. One that writes nothing is closed after
 * MASTER_CLIENT_US; no more than MASTER_CLIENTS_MAX are read at once, the others wait in the
 * socket's queue.
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
    pid_t pid;           /* that master has started, and expects in status messages */
    unsigned generation; /* of the environment */
    unsigned tokens;     /* default_process_limit; 0: no in-flow control */
    /* A client has asked for these scans, bits of enum postfix_scan. */
    void (*triggered)(void *arg, unsigned scans);
    void *arg;
};

/* The scans that the letters of a trigger ask for. Unknown ones are passed over. */
unsigned master_trigger_scans(struct slice letters);

/* Does this process have a master? As its parent process has found out. */
#define MASTER_ENVIRONMENT "SLUICE_MASTER"
bool master_is_there(void);
/* The value of GENERATION, octal; 0 when it makes no sense. */
unsigned master_generation(const char *text);

struct master_link *master_link_new(const struct master_link_plan *plan);
void master_link_free(struct master_link *link);

/* In each turn: let in as much mail as there is room for. `taken`: messages that were taken from
 * incoming/ since; `scanning`: a scan of it runs. */
void master_link_flow(struct master_link *link, uint64_t taken, bool scanning);

#endif
