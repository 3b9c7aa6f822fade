/*
 * What a start would find wrong with a configuration's place in the world: users, groups,
 * directories, files, addresses. The start and a reload ask the same before they change anything,
 * so `config check` can't know less than they do; what only doing it can show (a port that is in
 * use, a full disk) is left to them.
 */
#ifndef PARENT_PREFLIGHT_H
#define PARENT_PREFLIGHT_H

#include <stdbool.h>

#include "buf.h"
#include "conf.h"
#include "outgoing.h"

/* Do users and groups exist, can directories and files be there, do names lead to addresses, and
 * those to be listened on to addresses of this machine? EX_OK, or the exit status (sysexits.h) for
 * the first that is wrong: each gets a line "PLACE: error: NAME: ..." in *out. *ret_outgoing (may
 * be NULL), with EX_OK: the addresses of filters and other peers, for the caller to free. */
int preflight(const struct conf *conf, struct outgoing **ret_outgoing, struct buf *out);

#endif
