/*
 * The statistics log: one line for each recipient that has come to its end, as ZMailer's scheduler
 * writes it (option -l) and the programs that read it expect.
 *
 *     S11059230AbmKTNSaerpyH 0 3 ok fk/slow.s             SPOOLID DT1 DT2 WORD CHANNEL/HOST
 *     1795180710 11059230 0 3 ok fk/slow.s                TIME NAME DT1 DT2 WORD CHANNEL/HOST
 *
 * The second form is the one of ZMailer's manual page and of its older versions. DT1 is how long
 * the message waited for its router, DT2 how long the recipient was the scheduler's, in seconds.
 * Spools that know no router have no DT1, and call a message by its queue id.
 */
#ifndef QUEUE_STATISTICS_H
#define QUEUE_STATISTICS_H

#include "conf.h"
#include "log_sink.h"
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

/* The same to the log_sink LOG_SINK_STATISTICS, if it is open. */
void statistics_add(struct log_sink *to, enum conf_statistics_format format, struct wall now,
                    const struct statistics_line *line);

#endif
