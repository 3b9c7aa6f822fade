/*
 * Load and disks of the machine, for the counters of the mailq protocol.
 */
#ifndef ZMAILER_MACHINE_H
#define ZMAILER_MACHINE_H

#include <jansson.h>

#include "conf.h"

/* Returns an object with a member for each known counter of the machine, by ZMailer's names: the
 * load in hundredths ("SYS.Load-Avg-1-min-G"), and space in kB and files of queue/ ("SYS.Spool.."),
 * transport/ ("SYS.TportSpool..") and the directory of the log file ("SYS.Log.."). Unknown values
 * are left out. */
json_t *machine_json(const struct conf *conf);

#endif
