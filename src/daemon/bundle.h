/*
 * The configuration as the parent reads it: parsed, and as the files it came from.
 *
 * Confined children own no files. The parent remembers each file that was read (the main file
 * first, then included files, tables, certificates and keys) and sends the bytes to them
 * (WIRE_CONF), so all processes see the same state of the files.
 */
#ifndef DAEMON_BUNDLE_H
#define DAEMON_BUNDLE_H

#include "buf.h"
#include "conf.h"
#include "wire.h"

struct bundle {
    struct conf *conf;       /* owned */
    struct wire_file *files; /* owned, paths and bytes, too */
    uint32_t file_count;
};

/* Read the file `path`; NULL: the built-in configuration, as if it stood in ./sluice.conf. False
 * when there is an error; everything found is appended to *out as "FILE:LINE:COLUMN: ..." lines,
 * warnings, too. */
bool bundle_load(const char *path, struct bundle *ret_bundle, struct buf *out);

/* The same of a file for a program that delivers by SMTP alone: that its clauses name no user for
 * local deliveries is no error there. */
bool bundle_load_client(const char *path, struct bundle *ret_bundle, struct buf *out);

/* The same for a `text` that stands for the content of the file `path`, which need not be there;
 * an empty one: what the file says. */
bool bundle_load_text(const char *path, struct slice text, struct bundle *ret_bundle,
                      struct buf *out);

/* Keys are wiped before their memory is given back. An empty bundle is fine. */
void bundle_fini(struct bundle *b);

/* Where the configuration is when nobody says so: $SLUICE_CONF (not in set-id programs), else
 * BUNDLE_DEFAULT_PATH when there is such a file, else NULL. */
#define BUNDLE_DEFAULT_PATH "/etc/sluice/sluice.conf"
const char *bundle_default_path(void);

#endif
