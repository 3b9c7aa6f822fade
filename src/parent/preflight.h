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

/* Do the users exist that the processes are to have? Each that does not gets a line "error: NAME:
 * ..." in *out. */
bool preflight_users(const struct conf *conf, struct buf *out);

/* Can the directories and files be there, and do names lead to addresses of this machine? Lines as
 * above. */
bool preflight_places(const struct conf *conf, struct buf *out);

#endif
