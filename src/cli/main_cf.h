/*
 * Import of a configuration of Postfix: main.cf, master.cf, and the files that they name.
 *
 * The result starts: each line passes the parser that will read it, and the whole passes
 * main_cf_world.check. Settings without a line become comments with the reason. Decisions
 * (import_report.h) are listed first. Where a decision is open, the result is the safer one: mail
 * to others waits, clients that Postfix admitted are refused.
 */
#ifndef CLI_MAIN_CF_H
#define CLI_MAIN_CF_H

#include <stdbool.h>

#include "buf.h"
#include "import_report.h"
#include "postfix_files.h"
#include "slice.h"

struct main_cf_world {
    const char *hostname; /* of this machine */
    postfix_read *read;   /* reads a file */
    void *arg;
    /* Checks a whole configuration, as the daemon's start does. Appends its faults as lines
     * "FILE:LINE:COLUMN: error: TEXT". NULL: no check. */
    bool (*check)(struct slice text, struct buf *ret_faults);
    const char *check_path; /* FILE of faults in the text itself */
};

/* Imports `path`, a directory with main.cf and master.cf, or a main.cf. Appends our configuration
 * to *out, whose errors are sticky. *ret_report is for import_report_fini in any case. Returns 0
 * or a negative errno if main.cf can't be read. */
int main_cf_import(const char *path, const struct main_cf_world *world, struct buf *out,
                   struct import_report *ret_report);

#endif
