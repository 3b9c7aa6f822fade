/*
 * Bounces, delay notices and success reports, made in the open batch; and lines of log about
 * messages as a whole.
 *
 * Owns nothing.
 */
#ifndef QUEUE_QUEUE_REPORT_H
#define QUEUE_QUEUE_REPORT_H

#include <stdint.h>

#include "slice.h"
#include "spool.h"
#include "times.h"

struct queue;

/* What people call the message: its store's name for it, or its queue id. */
#define QUEUE_NAME_MAX 128
const char *queue_message_name(const struct spool_message *m, char room[QUEUE_NAME_MAX]);

/* The layout of reports on mail that another system's router has written, and of all where
 * report_form names a form; `layout` is borrowed for good. Once, before a role begins. Without one
 * all reports have our own. */
struct report_layout;
void report_layout_register(const struct report_layout *layout);

/* Tell the sender, in the open batch, of the recipients that are to be reported, and note that it
 * was told. In a batch that is lost both are. 0 or negative errno of the spool. */
int report_results(struct queue *q, const struct spool_message *m);

/* Is it time to tell the sender of the delay of mail that is `age_us` old, and was not done? */
bool report_delay_is_due(struct queue *q, const struct spool_message *m, int64_t age_us);

/* Tell the sender of the delay of mail that is `age_us` old, if it is time for that and was not
 * done; `until` is when it will be given up. */
int report_delay(struct queue *q, const struct spool_message *m, int64_t age_us, struct wall until);

/* A line about a message as a whole, to our log and to observers. */
void report_line(struct queue *q, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A control file has come to its end: count it, with a line that says so. */
void report_completed(struct queue *q, struct slice line);

/* A line for the file in which a message's sender follows what becomes of it (spool_verbose). */
void report_verbose(struct queue *q, struct msg_id id, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

struct destination;

/* Tell the postmaster, in the open batch, that a relay refuses our login or misses one: only the
 * site's own configuration can mend that, and its mail waits. At most once a day of each
 * destination, and only with notify_classes = software. `words` is what was said, to whom. */
void report_login_refused(struct queue *q, struct destination *d, struct slice words);

#endif
