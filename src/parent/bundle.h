/*
 * The configuration as read by the parent: parsed, and as the files it came from.
 *
 * Confined children have no files. The parent keeps each file that was read (first the main file,
 * then included files, tables, certificates and keys) and sends the bytes to the children
 * (WIRE_CONF), so all processes have the same state of the files.
 */
#ifndef PARENT_BUNDLE_H
#define PARENT_BUNDLE_H

#include "buf.h"
#include "conf.h"
#include "wire.h"

struct bundle {
    struct conf *conf;       /* owned */
    struct wire_file *files; /* owned, with paths and bytes */
    uint32_t file_count;
    /* owned: for each file, the roles that get it, as bits 1 << enum wire_role */
    uint32_t *readers;
    int tables_fd; /* owned: tables of rules (rules/table.h), or 0 or -1: none */
};

/* Reads the configuration file `path`; NULL: the built-in configuration, as if it were
 * ./sluice.conf. Returns false on an error. Appends all errors and warnings to *out as lines
 * "FILE:LINE:COLUMN: ...". */
bool bundle_load(const char *path, struct bundle *ret_bundle, struct buf *out);

/* Reads a configuration as bundle_load, for a program that only delivers by SMTP: a clause for
 * local deliveries without a user is not an error. */
bool bundle_load_client(const char *path, struct bundle *ret_bundle, struct buf *out);

/* Reads a configuration as bundle_load, with `text` as the content of the file `path`, which may be
 * missing. An empty text: reads the file. */
bool bundle_load_text(const char *path, struct slice text, struct bundle *ret_bundle,
                      struct buf *out);

/* Reads the system's resolv.conf and hosts again, for the resolve process, which can't (confine.h).
 * Returns true if one of them has changed; appends their errors to *out. */
bool bundle_read_names(struct bundle *b, struct buf *out);

/* Looks up or adds a file, for extensions. bundle_add copies `bytes` and returns 0 or negative
 * errno, -EMFILE if there are too many files. */
bool bundle_has(const struct bundle *b, const char *path);
int bundle_add(struct bundle *b, const char *path, struct slice bytes);

/* Returns the files for a process of this role: all except the secrets of other roles. Free the
 * array with mem_free; its data belongs to the bundle. */
struct wire_file *bundle_files_for(const struct bundle *b, enum wire_role role,
                                   uint32_t *ret_count);

/* Returns a descriptor of the tables of rules for a process of this role, or -1; the caller owns
 * it. */
int bundle_tables_for(const struct bundle *b, enum wire_role role);

/* Frees a bundle and overwrites keys before that. An empty bundle, or one after bundle_fini, is
 * fine. */
void bundle_fini(struct bundle *b);

/* Returns the path of the configuration if no option names one: $SLUICE_CONF (not in set-id
 * programs), otherwise BUNDLE_DEFAULT_PATH if that file exists, otherwise NULL. */
#define BUNDLE_DEFAULT_PATH "/etc/sluice/sluice.conf"
const char *bundle_default_path(void);

#endif
