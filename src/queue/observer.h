/*
 * Observers: logs of another system, which hear from the queue process what has happened.
 *
 * A program registers one before its roles begin. What programs of any kind read is the journal
 * (journal.h), which is part of each commit and tells more; an observer is told at once, as the log
 * is.
 */
#ifndef QUEUE_OBSERVER_H
#define QUEUE_OBSERVER_H

#include "settlement.h"
#include "slice.h"
#include "spool.h"
#include "times.h"
#include "wire.h"

struct queue;

/* A recipient that nothing more is done for. All is borrowed for the call. */
struct recipient_end {
    enum disposition how;    /* not deferred */
    enum wire_report report; /* whose it is to tell the sender */
    struct msg_id id;
    struct slice spoolid, path; /* as of struct spool_message */
    struct slice transport, destination;
    struct wall created, listed; /* as of struct spool_message */
};

/* No function is NULL. */
struct queue_observer {
    void (*ended)(struct queue *q, const struct recipient_end *end);
    /* A line about a message as a whole (report_line), without a line feed. */
    void (*line)(struct queue *q, const char *text);
};

/* `observer` is borrowed for good. Once. */
void observer_register(const struct queue_observer *observer);

/* Tell the observer, if there is one. */
void observer_ended(struct queue *q, const struct recipient_end *end);
void observer_line(struct queue *q, const char *text);

#endif
