/*
 * A disk that fails when told to, and that loses power: under SQLite (a VFS over the default one)
 * and under the spool's own files (a struct spool_io).
 *
 * Calls reach the real files at once, so reading is simple; syncs do not, so tests are fast. Beside
 * each file the disk remembers what of it is durable and what was written since. fault_disk_cut
 * makes the files look as they might after a power cut: each write since the last sync was kept,
 * lost, torn at a sector or turned to garbage; each name since the last sync of its directory is
 * there or not; and a removed file may be back.
 *
 * One disk per process; begin and end enclose each use.
 */
#ifndef TESTS_FAULT_DISK_H
#define TESTS_FAULT_DISK_H

#include <stdbool.h>
#include <stdint.h>

#include "spool_io.h"

struct fault_plan {
    uint64_t fail_call;  /* the call that fails, from 1; 0 = none */
    bool fail_ever_more; /* all after it, too */
    uint64_t fail_sync;  /* the sync that fails, from 1; 0 = none */
    uint64_t cut_sync;   /* the sync at which the power goes, from 1; 0 = none */
    uint64_t seed;       /* of what survives the power cut */
};

extern const struct spool_io fault_disk_io;

/* Make the VFS the default one. Once, before the first use. */
void fault_disk_install(void);

void fault_disk_begin(const struct fault_plan *plan);

/* Has the planned thing happened? */
bool fault_disk_happened(void);

/* All is closed: make the files look like after the power cut, if there was one, and forget. */
void fault_disk_end(void);

#endif
