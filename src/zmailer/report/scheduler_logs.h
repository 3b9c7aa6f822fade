/*
 * The logs of ZMailer's scheduler.
 *
 * The statistics log (option -l, parameter statistics_log) has a line for each recipient that has
 * come to its end, as the programs that read it expect:
 *
 *     S11059230AbmKTNSaerpyH 0 3 ok fk/slow.s             SPOOLID DT1 DT2 WORD CHANNEL/HOST
 *     1795180710 11059230 0 3 ok fk/slow.s                TIME NAME DT1 DT2 WORD CHANNEL/HOST
 *
 * The second form is the one of ZMailer's manual page and of its older versions. DT1 is how long
 * the message waited for its router, DT2 how long the recipient was the scheduler's, in seconds.
 * Spools that know no router have no DT1, and call a message by its queue id.
 *
 * Syslog gets lines about messages as a whole, with scheduler_syslog.
 */
#ifndef ZMAILER_SCHEDULER_LOGS_H
#define ZMAILER_SCHEDULER_LOGS_H

#include "conf.h"
#include "observer.h"
#include "slice.h"
#include "times.h"

struct statistics_line {
    struct slice spoolid;       /* or the queue id */
    struct slice name;          /* of the control file, or the queue id */
    const char *word;           /* ok ok2 ok3 error error2 expire */
    struct slice channel, host; /* transport, destination */
    struct wall created;        /* mtime of the message file; when it was taken in */
    struct wall listed;         /* ctime of the control file when it was read; us 0: as created */
};

/* Append the line of a recipient that came to its end at `now`. Bytes that would end a field or the
 * line show as '?'. */
void statistics_print(struct buf *out, enum conf_statistics_format format, struct wall now,
                      const struct statistics_line *line);

/* They write to LOG_SINK_STATISTICS and LOG_SINK_SYSLOG, where those are open. */
extern const struct queue_observer scheduler_logs;

#endif
