/*
 * Observers: logs of another mail system, which get each recipient's end from the queue process.
 *
 * The program registers an observer before its roles begin. Other programs read the journal
 * (journal.h), which is part of each commit and has more facts. An observer is called at once, when
 * the log line is written.
 */
#ifndef QUEUE_OBSERVER_H
#define QUEUE_OBSERVER_H

#include "settlement.h"
#include "slice.h"
#include "spool.h"
#include "times.h"
#include "wire.h"

struct queue;

/* End of a recipient: delivered, bounced or expired. All slices are borrowed for the call. */
struct recipient_end {
    enum disposition how;    /* never deferred */
    enum wire_report report; /* duty to report to the sender */
    struct msg_id id;
    struct slice spoolid, path; /* as in struct spool_message */
    struct slice transport, destination;
    struct wall created, listed; /* as in struct spool_message */
};

/* Functions of an observer; none is NULL. */
struct queue_observer {
    void (*ended)(struct queue *q, const struct recipient_end *end);
    /* Gets a line about a whole message (report_line), without a line feed. */
    void (*line)(struct queue *q, const char *text);
};

/* Registers the observer, once; `observer` is borrowed for the life of the process. */
void observer_register(const struct queue_observer *observer);

/* Calls the observer, if one is registered. */
void observer_ended(struct queue *q, const struct recipient_end *end);
void observer_line(struct queue *q, const char *text);

#endif
