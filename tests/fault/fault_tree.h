/*
 * A directory tree that loses power: what a journalling file system may leave of it.
 *
 * Calls reach the real files at once, syncs do not. What a cut takes, at random:
 *
 *   of a file, each sector holds what any number of the first changes since its last sync made of
 *   it, and its size is that of any of these moments; bytes that never came are zeros;
 *   of names (made, renamed, removed) each directory keeps any number of the first changes since
 *   its last sync. A rename between two directories is in both of them or in neither. Nothing is
 *   promised between directories, and a file's sync does not sync its name; that of a new directory
 *   does.
 *
 * All files that are made or changed must be so through the calls here. One tree per process, of
 * regular files that have one name, and directories. Files keep their inodes through a cut.
 */
#ifndef TESTS_FAULT_TREE_H
#define TESTS_FAULT_TREE_H

#include <stdbool.h>
#include <stdint.h>

#include "spool_io.h"

/* What the postoffice engine calls. */
extern const struct spool_io fault_tree_io;

/* `root` is durable as it is now. The power goes at sync `cut_sync`, from 1. Beside it a directory
 * ROOT.inodes is made. */
void fault_tree_begin(const char *root, uint64_t cut_sync, uint64_t seed);

/* Has the power gone? All calls fail then. */
bool fault_tree_is_off(void);

/* All is closed: make the tree look like after a cut here and now, and forget. */
void fault_tree_cut(void);

#endif
