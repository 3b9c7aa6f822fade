/*
 * Checks a configuration against the system before a start: users, groups, directories, files,
 * addresses. The start and a reload make the same checks before they change anything, so `config
 * check` finds as much as they do. Only the start itself can find other faults, such as a port in
 * use or a full disk.
 */
#ifndef PARENT_PREFLIGHT_H
#define PARENT_PREFLIGHT_H

#include <stdbool.h>

#include "buf.h"
#include "conf.h"
#include "outgoing.h"

/* Checks that users and groups exist, directories and files are possible, names have addresses, and
 * addresses of listeners belong to this machine. Returns EX_OK, or the exit status (sysexits.h) of
 * the first fault; each fault is a line "PLACE: error: NAME: ..." in *out. With EX_OK,
 * *ret_outgoing (may be NULL) gets the addresses of filters and other peers; the caller frees
 * it. */
int preflight(const struct conf *conf, struct outgoing **ret_outgoing, struct buf *out);

#endif
