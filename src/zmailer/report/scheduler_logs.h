/*
 * Logs of ZMailer's scheduler.
 *
 * The statistics log (option -l, parameter statistics_log) has a line for each finished recipient,
 * in the format that existing programs read:
 *
 *     S11059230AbmKTNSaerpyH 0 3 ok fk/slow.s             SPOOLID DT1 DT2 WORD CHANNEL/HOST
 *     1795180710 11059230 0 3 ok fk/slow.s                TIME NAME DT1 DT2 WORD CHANNEL/HOST
 *
 * The second form is that of ZMailer's manual page and of its older versions. DT1 is the time that
 * the message waited for its router, DT2 the time that the recipient spent in the scheduler, in
 * seconds. Spools without a router have no DT1, and identify a message by its queue id.
 *
 * With scheduler_syslog, syslog gets lines about whole messages.
 */
#ifndef ZMAILER_SCHEDULER_LOGS_H
#define ZMAILER_SCHEDULER_LOGS_H

#include "conf.h"
#include "observer.h"
#include "slice.h"
#include "times.h"

struct statistics_line {
    struct slice spoolid;       /* printable id, or the queue id */
    struct slice name;          /* name of the control file, or the queue id */
    const char *word;           /* ok ok2 ok3 error error2 expire */
    struct slice channel, host; /* transport and destination */
    struct wall created;        /* mtime of the message file, or time of receipt */
    struct wall listed;         /* ctime of the control file when it was read; us 0: as `created` */
};

/* Appends the line of a recipient that was finished at `now`. Bytes that would end a field or the
 * line are written as '?'. */
void statistics_print(struct buf *out, enum conf_statistics_format format, struct wall now,
                      const struct statistics_line *line);

/* Observer that writes to LOG_SINK_STATISTICS and LOG_SINK_SYSLOG if these are open. */
extern const struct queue_observer scheduler_logs;

#endif
