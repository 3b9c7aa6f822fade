/*
 * Bounces, delay notices and success notices, made in the open batch; log lines about messages as a
 * whole.
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

/* Returns the name of a message for people: its store's name for it, or its queue id. */
#define QUEUE_NAME_MAX 128
const char *queue_message_name(const struct spool_message *m, char room[QUEUE_NAME_MAX]);

/* Registers the layout for bounces and notices about mail that another system's router has written,
 * and for all bounces and notices where report_form names a form. `layout` is borrowed for the life
 * of the process. Called once, before a role begins. Without a layout Sluice's own is used. */
struct report_layout;
void report_layout_register(const struct report_layout *layout);

/* Makes the bounce or success notice for the recipients that must be reported, and marks them as
 * reported; both in the open batch. Returns 0 or the spool's negative errno. */
int report_results(struct queue *q, const struct spool_message *m);

/* Is a delay notice due, and not made yet, for mail that is `age_us` old? */
bool report_delay_is_due(struct queue *q, const struct spool_message *m, int64_t age_us);

/* Makes a delay notice for mail that is `age_us` old, if one is due and not made yet. `until` is
 * when the message expires. Returns 0 or the spool's negative errno. */
int report_delay(struct queue *q, const struct spool_message *m, int64_t age_us, struct wall until);

/* Writes a line about a message as a whole to our log and to the observers. */
void report_line(struct queue *q, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Counts a control file that has ended, and logs `line`. */
void report_completed(struct queue *q, struct slice line);

/* Writes a line to the file in which a message's sender follows its delivery (spool_verbose). */
void report_verbose(struct queue *q, struct msg_id id, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

struct destination;

/* Sends the postmaster a notice, in the open batch, that a relay refuses our login or needs one:
 * only the site's configuration can correct that, and its mail waits. Sends at most one a day for
 * each destination, and only with notify_classes = software. `words` is the relay's reply. */
void report_login_refused(struct queue *q, struct destination *d, struct slice words);

#endif
