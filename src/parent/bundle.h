/*
 * The configuration as the parent reads it: parsed, and as the files it came from.
 *
 * Confined children own no files. The parent remembers each file that was read (the main file
 * first, then included files, tables, certificates and keys) and sends the bytes to them
 * (WIRE_CONF), so all processes see the same state of the files.
 */
#ifndef PARENT_BUNDLE_H
#define PARENT_BUNDLE_H

#include "buf.h"
#include "conf.h"
#include "wire.h"

struct bundle {
    struct conf *conf;       /* owned */
    struct wire_file *files; /* owned, paths and bytes, too */
    uint32_t file_count;
    uint32_t *readers; /* owned: of each file, the roles that get it, as bits 1 << enum wire_role */
    int tables_fd;     /* the tables of rules (rules/table.h), or 0 or -1: there are none; owned */
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

/* For extensions: is the file there, and another one to have there. 0 or negative errno; -EMFILE
 * when there is no room. `bytes` are copied. */
bool bundle_has(const struct bundle *b, const char *path);
int bundle_add(struct bundle *b, const char *path, struct slice bytes);

/* The files that a process of this role gets: all but the secrets of others. To be freed with
 * mem_free; what they point to is the bundle's. */
struct wire_file *bundle_files_for(const struct bundle *b, enum wire_role role,
                                   uint32_t *ret_count);

/* The tables of rules for a process of this role: a descriptor of the caller's, or -1. */
int bundle_tables_for(const struct bundle *b, enum wire_role role);

/* Keys are wiped before their memory is given back. An empty bundle, or one after bundle_fini, is
 * fine. */
void bundle_fini(struct bundle *b);

/* Where the configuration is when no option names it: $SLUICE_CONF (not in set-id programs), else
 * BUNDLE_DEFAULT_PATH when there is such a file, else NULL. */
#define BUNDLE_DEFAULT_PATH "/etc/sluice/sluice.conf"
const char *bundle_default_path(void);

#endif
